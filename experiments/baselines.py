"""Private trainings to compare with, and the union of them all.

``LocalRR`` flips labels (002, 004): epsilon-DP for labels alone. Every record's label is kept or
replaced before anyone sees it, so not even the trainer is trusted with it; features, and which
records there are, get no protection at all. ``NoisyAgt`` is DP-SGD's noise inside certified
training (000, Algorithm 1): the nominal weights of such a run.

Formal guarantees
    Labels are flipped by the mechanism that agt releases labels by, at stable distance 0, where any
    label is a neighbour of any other: epsilon-DP for each (agt.mechanisms.optimal, its integer
    table agt.mechanisms.mechanism).
    What follows sees the flipped labels only: batches are laid out by features, never by an id that
    may hash the label. Training on flipped labels as they are keeps the likeliest class: each wrong
    one takes the same share.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

import numpy as np

from agt.data.records import Records
from agt.mechanisms.guarantees import PureDP
from agt.mechanisms.optimal import RandomizedResponse
from agt.numeric import SeededRandomness
from agt.relations import RELATIONS
from agt.settings import (
    BatchConfig,
    Count,
    KGridConfig,
    Positive,
    RelationConfig,
    TrainingConfig,
    schema,
)
from agt.training.batches import BatchPlan
from agt.training.loop import train
from agt.training.noise import draw_noise, plan_noise
from agt.training.settings import NoiseConfig
from agt.training.setup import TrainingSetup

from .bench import LABEL, RECORD, Bench, Weights, train_sgd
from .dp_sgd import DpSgd
from .perturbation import Perturbation


@dataclass(frozen=True)
class LocalRR:
    """The private records' labels flipped, then plain SGD on them.

    Public records keep their labels.
    """

    protects: ClassVar[str] = LABEL
    caveat: ClassVar[str] = "protects labels alone, from the trainer too"

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline`` says; delta is not spent."""
        records = bench.single
        response = RandomizedResponse.with_guarantee(PureDP(eps), bench.classes)
        drawn = response.release(
            records.labels, np.zeros_like(records.labels), SeededRandomness(seed)
        )
        flipped = np.where(records.public, records.labels, drawn)
        rows = (np.ascontiguousarray(row).tobytes() for row in records.features)
        units = np.array([blake2b(row, digest_size=16).hexdigest() for row in rows])
        return train_sgd(
            bench, Records(records.features, flipped, records.ids, units, records.public)
        )


@schema
class NoisyAgt:
    """Certified training with noise: full batch, ``epochs`` steps of plain SGD at ``lr``,
    elementwise clip.
    """

    epochs: Count
    lr: Positive
    clip: Positive
    protects: ClassVar[str] = RECORD
    caveat: ClassVar[str] = (
        "the bounds around these weights hold for every draw of the noise, and are not released"
    )

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline`` says; the proof is in ``agt.training.loop``."""
        batch = BatchConfig(n_max=2 * bench.size + 10)
        training = TrainingConfig(
            loss=bench.training.loss, epochs=self.epochs, lr=self.lr, clip=self.clip, batch=batch
        )
        plan = BatchPlan.from_settings(batch, self.epochs, bench.size, len(bench.records))
        parameters = {name: p.detach() for name, p in bench.head.named_parameters()}
        scalars = sum(p.numel() for p in parameters.values())
        sensitivity = RELATIONS["add_remove"].step_sensitivity(self.clip, scalars, plan.normalizer)
        noise = plan_noise(
            NoiseConfig(epsilon=eps, delta=delta, seed=seed), sensitivity, plan.epochs
        )

        def draws(step: int) -> Weights:
            return draw_noise(parameters, noise, seed, step)

        relation = RelationConfig(name="add_remove")
        setup = TrainingSetup(
            bench.classes, training, relation, KGridConfig(max=0), bench.compute, bench.size
        )
        return dict(train(bench.head, setup, bench.single, noise=draws).nominal)


# A private training method with its settings, all public. ``protects``: which datasets count as
# neighbours; ``caveat``: what its guarantee leaves open. ``fit(bench, eps, delta, seed)``: weights
# that are (eps, delta)-differentially private, whatever number of queries they answer; ConfigError:
# the records, the head or the budget are out of its reach; UnsoundError: training diverged.
Baseline = DpSgd | LocalRR | NoisyAgt | Perturbation
