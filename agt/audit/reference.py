"""A small DP-SGD to audit, many runs side by side: Poisson batches, one clip for each record, Gaussian noise.

It is written apart from every library whose DP-SGD is audited, and broken on purpose by overriding one method
(planted/dpsgd.py). Noise comes from a seeded generator: it trains nothing that is released.
"""

from dataclasses import dataclass, field

import numpy as np

from agt.audit.canaries import Canaries
from agt.audit.dpsgd import Claim, Sight, joined, noticed
from agt.audit.heads import AuditHead
from agt.data.dataset import Records


@dataclass(frozen=True)
class Reference:
    """A ``Trainer``.

    Attributes:
        claim: what is claimed of it; rate, steps and noise are those that it trains with.
        head: what is trained.
        records: the others, in every run.
        clip: C.
        lr: the learning rate.
        size: the public number of records; None: as many as there are.
        seed: of batches and noise; None: the operating system's.
    """

    claim: Claim
    head: AuditHead
    records: Records
    clip: float
    lr: float
    size: int | None = None
    seed: int | None = None
    words: str = "the reference DP-SGD"
    _draws: np.random.Generator = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_draws", np.random.default_rng(self.seed))

    # -- the steps of DP-SGD, each of which one planted bug replaces ---------------------------------------------------

    @property
    def rate(self) -> float:
        """q."""
        return self.claim.rate

    @property
    def expected(self) -> float:
        """Records in a batch, a public constant."""
        return self.rate * (self.size or len(self.records))

    def kept(self, norms: np.ndarray) -> np.ndarray:
        """What is left of gradients of these norms: the clip."""
        return np.minimum(1, self.clip / np.maximum(norms, 1e-300))

    def summed(self, total: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """The sum [R, P] of so many clipped gradients [R], before the noise."""
        return total

    def noise(self, shape: tuple[int, ...], step: int) -> np.ndarray:
        """A step's."""
        return self._draws.normal(0, self.claim.noise * self.clip, shape)

    def divisor(self, drawn: np.ndarray) -> np.ndarray | float:
        """What a noisy sum is divided by; ``drawn`` [R] is how many records it is of."""
        return self.expected

    # ------------------------------------------------------------------------------------------------------------------

    def train(self, canaries: Canaries, inside: np.ndarray) -> Sight:
        """As ``Trainer.train``."""
        block = max(1, self.head.runs)
        return joined([self._train(canaries, inside[at : at + block]) for at in range(0, len(inside), block)])

    def _train(self, canaries: Canaries, inside: np.ndarray) -> Sight:
        runs, m, n = len(inside), len(canaries), len(self.records)
        features, labels = np.asarray(self.records.features), self.records.labels
        if canaries.features is not None and canaries.labels is not None:
            features, labels = np.concatenate([features, canaries.features]), np.concatenate([labels, canaries.labels])
        at = self.head.on(features, labels)
        theta = np.tile(self.head.initial, (runs, 1))
        scores, reach = (np.empty((runs, self.claim.steps, m)) for _ in range(2))
        fixed = None if canaries.gradients is None else self.clip * canaries.gradients[None]
        for step in range(self.claim.steps):
            there, drawn = at(theta), self._draws.random((runs, n + m)) < self.rate
            drawn[:, n:] &= inside[:, min(step, inside.shape[1] - 1)]
            kept = self.kept(there.norms)
            total = there.sum(kept * drawn[:, : kept.shape[1]])
            if fixed is not None:
                total = total + (drawn[:, n:] * self.kept(np.linalg.norm(fixed, axis=2))) @ fixed[0]
            gradients = there.last(m) if fixed is None else fixed
            count = drawn.sum(1)
            update = (self.summed(total, count) + self.noise(theta.shape, step)) / self.divisor(count)
            others = kept * np.where(np.arange(kept.shape[1]) < n, self.rate, 0)
            excess = update * self.expected - there.sum(others)
            scores[:, step], reach[:, step] = noticed(excess, gradients, self.clip)
            if not step:
                first = gradients
            theta = theta - self.lr * update
        weights = noticed(self.head.initial - theta, first, self.lr * self.clip)[0]
        return Sight(scores, reach, weights, at(theta).losses[:, -m:] if fixed is None else None)
