"""The plan of batches: public constants, and a record's place in it decided by its own id (method.md section 3b, 3c).

Slices (Bourtoule et al. 2021). Records may be dealt to S slices; training goes through S stages of e' epochs, and in stage
s takes the records of slices 1..s alone. What it has reached at a stage's end depends on no later slice, so that after a
removal from slice s training goes on from the state at the end of stage s - 1.

Formal guarantees
    With slices a plan is the plan of S e' epochs in which some records sit out some epochs. Whether one does is a function
    of its own unit's id, the public key and the epoch, as its batch is (condition b); B, n_max, the rates and the number of
    steps are the same public constants in every stage (condition c). What training/loop.py, relations.py and
    sensitivity.py prove of a step holds for batches of any records up to n_max, and they compose steps by induction: no
    proof asks that a record be in each epoch, only that neighbours' batches differ by the units they differ in. A bound
    that counts one batch of each epoch for a record counts too many where it sits out: valid, and attained by slice 1.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from agt.data.ids import keyed_hash, most_frequent, remix
from agt.errors import ConfigError
from agt.settings import MOST_ROWS, BatchConfig, default_n_max


@dataclass(frozen=True)
class Slices:
    """How many slices records are dealt to, and the public key of the hash that deals them."""

    count: int = 1
    key: str = "agt"

    def of(self, units: np.ndarray) -> np.ndarray:
        """[n] int64: the slice of each record, from 0. All rows of a unit share one."""
        if self.count == 1:
            return np.zeros(len(units), dtype=np.int64)
        return (keyed_hash(units, f"slice/{self.key}") % np.uint64(self.count)).astype(np.int64)

    def stage_epochs(self, epochs: int) -> int:
        """Epochs of each stage: 2 e / (S + 1), rounded up, after which training has looked at e times the records."""
        return math.ceil(2 * epochs / (self.count + 1))


@dataclass(frozen=True)
class BatchPlan:
    """How many batches there are and who is in which.

    Attributes:
        epochs, count: steps = epochs * count, whatever the data.
        normalizer: B.
        n_max: the public cap on a batch, itself at most ``MOST_ROWS``: sums over more records are not proved exact.
        key: the public key of the hash.
        declared: False if a constant was derived from the data at hand, which voids condition c.
        slices: ``epochs`` is divided into as many stages, each of which takes one slice more.

    Raises:
        ConfigError: n_max is too large; or there are slices, and a constant would depend on records of later ones.
    """

    epochs: int
    count: int
    normalizer: float
    n_max: int
    key: str
    declared: bool
    slices: Slices = field(default_factory=Slices)

    def __post_init__(self) -> None:
        if self.slices.count > 1 and not self.declared:
            raise ConfigError(
                f"ensemble.slices={self.slices.count}: the normaliser would come from the number of records, those of "
                "later slices among them, and so would every state on the way: declare dataset.declared_size or "
                "training.batch.normalizer"
            )
        if self.n_max > MOST_ROWS:
            raise ConfigError(
                f"training.batch.n_max={self.n_max} (from normalizer = {self.normalizer:g}, where it is null): sums are "
                f"exact over at most {MOST_ROWS} records of a batch: use more batches, or a smaller normalizer"
            )

    @classmethod
    def of(
        cls, config: BatchConfig, epochs: int, declared_size: float | None, records: int, slices: Slices = Slices()
    ) -> "BatchPlan":
        """Fill in what the configuration leaves open.

        Args:
            config: the batch settings.
            epochs: passes over the data.
            declared_size: the dataset's public size, or None.
            records: the actual number, used only if neither a normalizer nor a size was declared.
            slices: with more than one, ``epochs`` are split up among the stages (``Slices.stage_epochs``).

        Raises:
            ConfigError: n_max < 1.1 B, or n_max or B is too large.
        """
        size = max(records, 1) if declared_size is None else declared_size  # a shard may be empty
        normalizer = config.normalizer or size / config.count
        n_max = config.n_max or default_n_max(min(normalizer, 2 * MOST_ROWS))
        if n_max < 1.1 * normalizer:
            raise ConfigError(f"training.batch.n_max={n_max} is below 1.1 * normalizer = {1.1 * normalizer:g}: raise n_max")
        declared = config.normalizer is not None or declared_size is not None
        epochs = epochs if slices.count == 1 else slices.count * slices.stage_epochs(epochs)
        return cls(epochs, config.count, float(normalizer), n_max, config.key, declared, slices)

    @property
    def steps(self) -> int:
        """The number of steps, empty batches included."""
        return self.epochs * self.count

    @property
    def ends(self) -> tuple[int, ...]:
        """How many steps were taken at the end of each stage but the last."""
        stage = self.steps // self.slices.count
        return tuple(stage * s for s in range(1, self.slices.count))

    def batches(self, units: np.ndarray) -> Iterator[np.ndarray]:
        """The rows of each step's batch, in increasing order.

        Args:
            units: [n] str, each record's unit id. All rows of a unit share a batch.

        Raises:
            ConfigError: a batch exceeds n_max; raised before the first step, never by truncating.
        """
        hashes = keyed_hash(units, f"batch/{self.key}")
        slices = self.slices.of(units)
        homes = [self._homes(hashes, slices, epoch) for epoch in range(self.epochs)]
        largest = max(int(np.bincount(home, minlength=self.count)[: self.count].max()) for home in homes)
        if largest > self.n_max:
            raise ConfigError(
                f"a batch holds {largest} records and training.batch.n_max is {self.n_max}: raise n_max "
                "(and normalizer), or use more batches; records are never dropped to fit"
            )
        for home in homes:
            for index in range(self.count):
                yield np.flatnonzero(home == index)

    def _homes(self, hashes: np.ndarray, slices: np.ndarray, epoch: int) -> np.ndarray:
        """[n] the batch of each record in an epoch; ``count``, which is none, for those whose slice is not in yet."""
        home = (remix(hashes, epoch) % np.uint64(self.count)).astype(np.int64)
        home[slices > epoch * self.slices.count // self.epochs] = self.count
        return home


def check_unit_rows(units: np.ndarray, unit_rows: int) -> None:
    """Enforce the public cap of ``relation.unit_rows`` rows for each unit.

    Raises:
        ConfigError: a unit has more rows; it is named.
    """
    most = most_frequent(units, unit_rows)
    if most:
        raise ConfigError(
            f"unit {most[0]!r} has {most[1]} rows and relation.unit_rows is {unit_rows}: "
            "raise relation.unit_rows to a public cap on the rows of one unit, or drop rows"
        )
