"""DP-SGD broken on purpose, each by one method of the reference: what an audit of DP-SGD is there to find."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from agt.audit.canaries import dirac
from agt.audit.dpsgd import ONE_RUN, Claim, Effort, audit, judged
from agt.audit.dpsgd import STEPS as STEP_BY_STEP
from agt.audit.findings import Finding
from agt.audit.heads import head_for
from agt.audit.planted import SURE
from agt.audit.reference import Reference
from agt.audit.subsampled import noise_for
from agt.data.dataset import Records

EFFORT = Effort(trials=300, step_runs=100)
SURELY = replace(EFFORT, confidence=SURE)
EPSILON, DELTA, STEPS, RATE, SIZE = 1.0, 1e-5, 10, 0.25, 40
MANY = 60


class NoNoise(Reference):
    """The noise is forgotten."""

    def noise(self, shape: tuple[int, ...], step: int) -> np.ndarray:
        return np.zeros(shape)


class NoClip(Reference):
    """The clip is forgotten."""

    def kept(self, norms: np.ndarray) -> np.ndarray:
        return np.ones_like(norms)


class MeanClip(NoClip):
    """The mean gradient of the batch is clipped, not each record's: one microbatch."""

    def summed(self, total: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        mean = total / np.maximum(drawn, 1)[:, None]
        return self.expected * mean * Reference.kept(self, np.linalg.norm(mean, axis=1, keepdims=True))


class OtherRate(Reference):
    """Records enter batches four times as often as the accountant is told."""

    @property
    def rate(self) -> float:
        return min(1.0, 4 * self.claim.rate)


class MeanOfDrawn(Reference):
    """Gradients are averaged over the records drawn: a lonely one weighs more than the noise covers."""

    def summed(self, total: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        return total * (self.expected / np.maximum(drawn, 1))[:, None]


@dataclass(frozen=True)
class SameNoise(Reference):
    """Each step seeds its generator anew: the noise is that of the first."""

    _first: list[np.ndarray] = field(default_factory=list, compare=False)

    def noise(self, shape: tuple[int, ...], step: int) -> np.ndarray:
        if step == 0:
            self._first[:] = [super().noise(shape, step)]
        return self._first[0]


def reference(
    kind: type[Reference],
    seed: int,
    records: int = SIZE,
    rate: float = RATE,
    epsilon: float = EPSILON,
    width: int = 7,
) -> Reference:
    """A small DP-SGD of a linear head, whose last feature no record has: for audits of the audit."""
    rng = np.random.default_rng(seed)
    features = np.column_stack([rng.normal(size=(records, width - 1)) / 3, np.zeros(records)])
    names = np.arange(records).astype(str)
    data = Records(features, np.arange(records) % 2, names, names, np.zeros(records, dtype=bool))
    layer = nn.Linear(width, 1, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    head = head_for(nn.Sequential(layer), "binary_cross_entropy", records)
    claim = Claim(noise_for(epsilon, DELTA, rate, STEPS), rate, STEPS, epsilon, DELTA)
    return kind(claim, head, data, clip=0.5, lr=0.5, size=SIZE, seed=seed, words=f"DP-SGD: {_words(kind)}")


def caught(kind: type[Reference], records: int = SIZE, effort: Effort = EFFORT) -> Callable[[int], Finding]:
    """seed -> the finding of its audit."""

    def plant(seed: int) -> Finding:
        trainer = reference(kind, seed, records)
        canary = dirac(1, trainer.head, trainer.records, seed)
        return judged(trainer, canary, effort, audit(trainer, canary, effort))

    return plant


def told_by(kind: type[Reference], adversary: str) -> Callable[[int], Finding]:
    """The same of one adversary's bounds alone, in a head that has room for many canaries of one run."""

    def plant(seed: int) -> Finding:
        trainer = reference(kind, seed, width=MANY)
        one, several = (dirac(count, trainer.head, trainer.records, seed) for count in (1, MANY))
        bounds = audit(trainer, one, EFFORT, several)
        return judged(trainer, one, EFFORT, [bound for bound in bounds if bound.adversary.startswith(adversary)])

    return plant


def _words(kind: type[Reference]) -> str:
    return (kind.__doc__ or "").split(".")[0].strip()


PLANTED = {
    "DP-SGD that forgets its noise": caught(NoNoise),
    "DP-SGD that forgets its clip": caught(NoClip),
    "DP-SGD that clips the batch's mean, not each record": caught(MeanClip),
    "DP-SGD that samples more often than its accountant knows": caught(OtherRate),
    "DP-SGD that divides by the records drawn": caught(MeanOfDrawn, records=2),
    "DP-SGD whose noise is the same in each step": caught(SameNoise),
    "DP-SGD that forgets its noise, told step by step": told_by(NoNoise, STEP_BY_STEP),
    "DP-SGD that forgets its noise, told in one run": told_by(NoNoise, ONE_RUN),
}
SOUND = {"DP-SGD as its accountant knows it": caught(Reference, effort=SURELY)}
