"""The plan of batches: public constants, and in which batch a record is (method.md 3b and 3c)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agt.data.ids import keyed_hash, most_frequent, remix
from agt.errors import ConfigError
from agt.messages import Message
from agt.settings import MOST_ROWS, BatchConfig, default_n_max

# A batch's default cap must be at least so many times the normaliser.
_MIN_CAP_RATIO = 1.1


@dataclass(frozen=True)
class BatchPlan:
    """How many batches there are, how large they may be, and which records are in which.

    Formal guarantees
        * A record's batch in an epoch is a function of its unit's id and of public constants, so a
          neighbour's batches differ in the edited units' rows alone (Lemma 1 of
          docs/proofs/training.md).
        * No batch has more than ``n_max`` records: training stops instead of dropping any.

    Attributes:
        epochs: passes over the data.
        count: batches of an epoch, empty ones included.
        normalizer: B, what sums of gradients are divided by.
        n_max: the public cap on the records of a batch, at most ``MOST_ROWS``.
        key: the public key of the hash that assigns units to batches.
        declared: False where the normaliser was derived from the records at hand, so that
            condition c (public constants) does not hold.

    Raises:
        ConfigError: n_max is above ``MOST_ROWS``, beyond which sums are not proved exact.
    """

    epochs: int
    count: int
    normalizer: float
    n_max: int
    key: str
    declared: bool

    def __post_init__(self) -> None:
        if self.n_max > MOST_ROWS:
            raise ConfigError(
                Message(
                    "{config:training.batch.n_max}={n_max} exceeds {maximum}, up to which "
                    "sums over a batch are proved exact. Use more batches; or a smaller "
                    "normalizer (now {normalizer:g}), from which n_max follows if it is null",
                    n_max=self.n_max,
                    maximum=MOST_ROWS,
                    normalizer=self.normalizer,
                )
            )

    @classmethod
    def from_settings(
        cls, config: BatchConfig, epochs: int, declared_size: float | None, records: int
    ) -> "BatchPlan":
        """Return the plan, with what the settings leave open filled in.

        Args:
            config: the batch settings. Where they have no normaliser, it is the size divided by the
                number of batches; where they have no cap, it is ``default_n_max`` of the
                normaliser.
            epochs: passes over the data.
            declared_size: the data's public size; None: none was declared.
            records: how many there are, used as the size where none was declared.

        Raises:
            ConfigError: n_max is below 1.1 times the normaliser, or above ``MOST_ROWS``.
        """
        size = declared_size
        if size is None:
            size = max(records, 1)  # a shard may be empty
        normalizer = config.normalizer or size / config.count
        # The minimum keeps the default finite, and still above MOST_ROWS, so that it is refused.
        n_max = config.n_max or default_n_max(min(normalizer, 2 * MOST_ROWS))
        minimum = _MIN_CAP_RATIO * normalizer
        if n_max < minimum:
            raise ConfigError(
                Message(
                    "{config:training.batch.n_max}={n_max} is below 1.1 times the normalizer, "
                    "{minimum:g}: raise n_max, or lower the normalizer",
                    n_max=n_max,
                    minimum=minimum,
                )
            )
        is_declared = config.normalizer is not None or declared_size is not None
        return cls(epochs, config.count, float(normalizer), n_max, config.key, is_declared)

    @property
    def steps(self) -> int:
        """The number of steps of the whole training, those on empty batches included."""
        return self.epochs * self.count

    def batches(self, units: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the rows of each step's batch, [b] int64 in increasing order; a batch may be empty.

        Args:
            units: [n] str, each record's unit id. All rows of a unit are in the same batch.

        Raises:
            ConfigError: a batch of any epoch exceeds n_max; it is raised before the first batch.
        """
        hashes = keyed_hash(units, f"batch/{self.key}")
        epochs = [self._batch_numbers(hashes, epoch) for epoch in range(self.epochs)]
        largest = max(_largest_batch(batch_numbers, self.count) for batch_numbers in epochs)
        if largest > self.n_max:
            raise ConfigError(
                Message(
                    "a batch has {largest} records, but {config:training.batch.n_max}={n_max} "
                    "allows fewer (if null, n_max follows from the declared size). Declare a "
                    "public size nearer to the number of records, raise n_max and normalizer, "
                    "or use more batches. agt never drops records to make a batch fit",
                    largest=largest,
                    n_max=self.n_max,
                )
            )
        for batch_numbers in epochs:
            for batch in range(self.count):
                yield np.flatnonzero(batch_numbers == batch)

    def _batch_numbers(self, hashes: np.ndarray, epoch: int) -> np.ndarray:
        """Return the batch of each row in an epoch, [n] int64, from its unit's hash [n] uint64."""
        # Lemma 1 of docs/proofs/training.md: nothing here depends on other rows.
        return (remix(hashes, epoch) % np.uint64(self.count)).astype(np.int64)


def _largest_batch(batch_numbers: np.ndarray, count: int) -> int:
    """Return how many rows the largest of ``count`` batches has; ``batch_numbers`` is [n] int64."""
    return int(np.bincount(batch_numbers, minlength=count).max())


def check_unit_rows(units: np.ndarray, unit_rows: int) -> None:
    """Refuse records of which one unit has more rows than the public cap allows.

    Args:
        units: [n] str, each record's unit id.
        unit_rows: the cap, ``relation.unit_rows``.

    Raises:
        ConfigError: a unit has more rows; it is named.
    """
    excess = most_frequent(units, unit_rows)
    if excess:
        unit, rows = excess
        raise ConfigError(
            Message(
                "the unit (person) {unit!r} has {rows} rows, but {config:relation.unit_rows} "
                "is {unit_rows}: raise {config:relation.unit_rows} to a public limit on the "
                "rows of one unit, or remove rows",
                unit=unit,
                rows=rows,
                unit_rows=unit_rows,
            )
        )
