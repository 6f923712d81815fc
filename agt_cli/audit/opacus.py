"""Opacus' DP-SGD under audit: the papers' baseline, with canaries among its records."""

import copy
import secrets
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from agt.audit.canaries import Canaries
from agt.audit.dpsgd import Claim, Sight, joined, noticed
from agt.audit.heads import AuditHead, head_for
from agt.data.dataset import Records
from agt_cli.papers.baselines.dpsgd import DpSgd, Plan, Watch
from agt_cli.papers.baselines.sgd import LOSSES, one_hot


@dataclass(frozen=True)
class OpacusTraining:
    """A ``Trainer``.

    Attributes:
        method: DP-SGD's settings.
        module: layers and initial parameters; left unchanged.
        loss, classes: of the run.
        records: those that every training has.
        claim: epsilon by Opacus' accountant.
        plan: what Opacus trains by.
    """

    method: DpSgd
    module: nn.Sequential
    loss: str
    classes: int
    records: Records
    claim: Claim
    plan: Plan
    words: str = "Opacus' DP-SGD"

    @classmethod
    def of(
        cls, method: DpSgd, module: nn.Sequential, loss: str, classes: int, records: Records, budget: tuple[float, float]
    ) -> "OpacusTraining":
        """Plan the noise for a budget of (epsilon, delta)."""
        plan = method.plan(len(records), *budget)
        claim = Claim(plan.noise, plan.rate, plan.steps, *budget)
        return cls(method, module.double(), loss, classes, records, claim, plan)

    @cached_property
    def head(self) -> AuditHead:
        """For canaries to be made, and for what the others are expected to add."""
        return head_for(self.module, self.loss, len(self.records))

    def train(self, canaries: Canaries, inside: np.ndarray) -> Sight:
        """As ``Trainer.train``; every training draws from a seed of its own, from the operating system."""
        return joined([self._once(canaries, one) for one in inside])

    def _once(self, canaries: Canaries, inside: np.ndarray) -> Sight:
        inside = np.broadcast_to(inside, (self.plan.steps, len(canaries)))
        present = np.flatnonzero(inside.any(0))
        model, draws = copy.deepcopy(self.module).train(), torch.Generator()
        draws.manual_seed(secrets.randbits(63))
        watch = _Auditor(self, canaries, inside, present)
        x, labels = watch.rows()
        y = torch.from_numpy(one_hot(labels, self.classes, self.loss))
        self.method.descend(model, torch.from_numpy(x), y, LOSSES[self.loss], self.plan, self.expected, draws, watch)
        return watch.sight(_flat(p.detach() for p in model.parameters()))

    @property
    def expected(self) -> float:
        """Records in a batch, a public constant."""
        return self.plan.rate * len(self.records)


class _Auditor(Watch):
    """Plants the canaries of one training, and scores them."""

    def __init__(self, trainer: OpacusTraining, canaries: Canaries, inside: np.ndarray, present: np.ndarray) -> None:
        self.trainer, self.canaries, self.inside, self.present = trainer, canaries, inside, present
        self.scores, self.reach = np.zeros(inside.shape), np.zeros(inside.shape)
        records, head = trainer.records, trainer.head
        self.start, clip = head.initial, trainer.method.clip
        self.fixed = None if canaries.gradients is None else clip * canaries.gradients
        self.others = head.on(np.asarray(records.features), records.labels)
        if canaries.features is not None and canaries.labels is not None:
            self.planted = head.on(canaries.features, canaries.labels)
        self._look(self.start)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """All records' features and labels; a gradient canary's are placeholders."""
        records, count = self.trainer.records, len(self.canaries)
        features = np.zeros((count, *records.features.shape[1:])) if self.fixed is not None else self.canaries.features
        labels = np.zeros(count, dtype=np.int64) if self.fixed is not None else self.canaries.labels
        assert features is not None
        assert labels is not None
        x = np.concatenate([records.features, features[self.present]]).astype(np.float64)
        return x, np.concatenate([records.labels, labels[self.present]])

    def drawn(self, model: nn.Sequential, rows: Tensor, step: int) -> None:
        """Give the canaries among the rows their gradients: none where they are out."""
        size = len(self.trainer.records)
        for place in torch.nonzero(rows >= size).flatten().tolist():
            canary = self.present[int(rows[place]) - size]
            if self.fixed is not None:
                parts = torch.from_numpy(self.fixed[canary]).split([p.numel() for p in model.parameters()])
                for p, part in zip(model.parameters(), parts, strict=True):
                    p.grad_sample[place] = part.view_as(p)  # type: ignore[attr-defined]
            if not self.inside[step, canary]:
                for p in model.parameters():
                    p.grad_sample[place] = 0  # type: ignore[attr-defined]

    def moved(self, model: nn.Sequential, step: int) -> None:
        """Score the noisy sum, less what the others were expected to add."""
        noisy = self.trainer.expected * _flat(p.grad for p in model.parameters())
        scores, reach = noticed((noisy - self.clean)[None], self.gradients[None], self.trainer.method.clip)
        self.scores[step], self.reach[step] = scores[0], reach[0]
        if step == 0:
            self.first = self.gradients
        self._look(_flat(p.detach() for p in model.parameters()))

    def sight(self, end: np.ndarray) -> Sight:
        """What was seen in all."""
        method = self.trainer.method
        weights = noticed((self.start - end)[None], self.first[None], method.lr * method.clip)[0]
        losses = None if self.fixed is not None else self.planted(end[None]).losses
        return Sight(self.scores[None], self.reach[None], weights, losses)

    def _look(self, theta: np.ndarray) -> None:
        """The expected sum and the canaries' gradients at these parameters."""
        there = self.others(theta[None])
        kept = np.minimum(1, self.trainer.method.clip / np.maximum(there.norms, 1e-300))
        self.clean = self.trainer.plan.rate * there.sum(kept)[0]
        if self.fixed is not None:
            self.gradients = self.fixed
        else:
            self.gradients = self.planted(theta[None]).last(len(self.canaries))[0]


def _flat(tensors: object) -> np.ndarray:
    return np.concatenate([tensor.double().numpy().ravel() for tensor in tensors])  # type: ignore[attr-defined]
