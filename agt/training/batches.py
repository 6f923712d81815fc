"""The plan of batches: public constants, and the batch of each record (reference.md 3b and 3c)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agt.data.ids import keyed_hash, most_frequent, remix
from agt.errors import ConfigError
from agt.messages import Message
from agt.settings import MAX_ROWS, BatchConfig, default_n_max

# The cap on a batch's records must be at least this multiple of the normaliser, because the sizes
# of hashed batches scatter around their mean.


@dataclass(frozen=True)
class BatchPlan:
    """The assignment of records to batches by a hash, and the public constants of the batches.

    A unit is whose data a record is (a person, say); all of its rows are in one batch.

    Formal guarantees
        * A record's batch in an epoch is a function of its unit's id and of public constants. So
          the batches of a neighbouring dataset differ only in the rows of the edited units
          (Lemma 1 of docs/proofs/training.md).
        * No batch has more than ``n_max`` records: a larger batch is refused before training, and
          no record is dropped.

    Attributes:
        epochs: the number of passes over the data.
        count: the number of batches of an epoch, empty batches included.
        normalizer: B, the constant by which a batch's sum of gradients is divided.
        n_max: the public cap on the records of a batch, at most ``MAX_ROWS`` (2^30).
        key: the public key of the hash that assigns units to batches.
        declared: False if the normaliser was computed from the number of private records, so that
            condition c (all constants are public) does not hold.

    Raises:
        ConfigError: n_max is above ``MAX_ROWS``, up to which integer sums are proved exact.
    """

    epochs: int
    count: int
    normalizer: float
    n_max: int
    key: str
    declared: bool

    def __post_init__(self) -> None:
        """Raise ConfigError if n_max is above 2^30, up to which integer sums are proved exact."""
        if self.n_max > MAX_ROWS:
            raise ConfigError(
                Message(
                    "{config:training.batch.n_max}={n_max} exceeds {maximum}, the largest batch "
                    "for which sums are proved exact: use more batches. If n_max is null, agt "
                    "computes it from the normalizer (now {normalizer:g}), so lower the "
                    "normalizer instead",
                    n_max=self.n_max,
                    maximum=MAX_ROWS,
                    normalizer=self.normalizer,
                )
            )

    @classmethod
    def from_settings(
        cls, config: BatchConfig, epochs: int, declared_size: float | None, records: int
    ) -> "BatchPlan":
        """Return the plan of batches, with defaults for settings that are None.

        Args:
            config: the batch settings. The default normaliser B, the divisor of a batch's gradient
                sum, is the dataset's size divided by the number of batches. The default ``n_max``,
                the cap on a batch's records, is 1.1 B + 6 sqrt(B), rounded up.
            epochs: the number of passes over the data.
            declared_size: the public size of the dataset; None: no size was declared.
            records: the actual number of records, used as the size if none was declared. The
                normaliser is then private, and the plan's ``declared`` is False.

        Raises:
            ConfigError: n_max is below 1.1 times the normaliser, or above ``MAX_ROWS`` (2^30).
        """
        size = declared_size
        if size is None:
            # A shard (one ensemble member's part of the records) may be empty, and the normaliser
            # must not be 0.
            size = max(records, 1)
        normalizer, n_max = config.constants(size)
        is_declared = config.normalizer is not None or declared_size is not None
        return cls(
            epochs=epochs,
            count=config.count,
            normalizer=normalizer,
            n_max=n_max,
            key=config.key,
            declared=is_declared,
        )

    @property
    def steps(self) -> int:
        """The number of steps of the whole training; an empty batch takes a step as well."""
        return self.epochs * self.count

    def batches(self, units: np.ndarray) -> Iterator[np.ndarray]:
        """Yield, for each step of all epochs, the indices of the records in its batch.

        Args:
            units: [n] str, each record's unit id (whose data the record is). All records of a unit
                are in the same batch.

        Yields:
            [b] int64 in increasing order, where b differs from batch to batch and may be 0.

        Raises:
            ConfigError: a batch of any epoch has more than ``n_max`` records. All epochs are
                checked before the first batch is yielded.
        """
        for batch_numbers in self._checked_batch_numbers(units):
            # A stable sort keeps the indices within a batch in increasing order. NumPy sorts
            # integers of one or two bytes in linear time.
            small_numbers = batch_numbers.astype(np.min_scalar_type(self.count - 1))
            rows_by_batch = np.argsort(small_numbers, kind="stable")
            sizes = np.bincount(batch_numbers, minlength=self.count)
            yield from np.split(rows_by_batch, np.cumsum(sizes)[:-1])

    def check_batch_sizes(self, units: np.ndarray) -> None:
        """Raise ConfigError if a batch of any epoch has more than ``n_max`` records.

        Args:
            units: [n] str, each record's unit id.
        """
        self._checked_batch_numbers(units)  # called because it raises; the numbers are not needed

    def _checked_batch_numbers(self, units: np.ndarray) -> list[np.ndarray]:
        """Return for each epoch the batch number of each record, [n] int64, after a check.

        Args:
            units: [n] str, each record's unit id.

        Raises:
            ConfigError: a batch of any epoch has more than ``n_max`` records.
        """
        if self.count == 1:
            # The only batch has every record, whatever its hash is; hashing takes long. All epochs
            # share one array, because there may be many of them.
            epochs = [np.zeros(len(units), dtype=np.int64)] * self.epochs
        else:
            hashes = keyed_hash(units, f"batch/{self.key}")
            epochs = [self._batch_numbers(hashes, epoch) for epoch in range(self.epochs)]
        largest = max(int(np.bincount(numbers, minlength=1).max()) for numbers in epochs)
        if largest > self.n_max:
            raise self._too_large_batch(largest)
        return epochs

    def _too_large_batch(self, largest: int) -> ConfigError:
        """Return the refusal of a batch with more than ``n_max`` records.

        Args:
            largest: the number of its records.
        """
        if self.n_max == default_n_max(self.normalizer):
            problem = (
                "a batch has {largest} records, but by {config:dataset.declared_size} and the "
                "number of batches it should have about {normalizer:g}, and at most {n_max}: "
                "declare a public size nearer to the number of training records (which are rows, "
                "not people), or raise {config:training.batch.count}"
            )
        else:
            problem = (
                "a batch has {largest} records, but {config:training.batch.n_max}={n_max} allows "
                "fewer: raise n_max and normalizer, or use more batches"
            )
        return ConfigError(
            Message(
                "{problem}. agt never drops records",
                problem=Message(
                    problem, largest=largest, normalizer=self.normalizer, n_max=self.n_max
                ),
            )
        )

    def _batch_numbers(self, hashes: np.ndarray, epoch: int) -> np.ndarray:
        """Return the batch number of each record in one epoch.

        Args:
            hashes: [n] uint64, the hash of each record's unit id.
            epoch: the number of the epoch, from 0. It is mixed into the hashes, so that each epoch
                has other batches.

        Returns:
            [n] int64 from 0 to count - 1.
        """
        # Lemma 1 of docs/proofs/training.md: a record's batch does not depend on other records.
        return (remix(hashes, epoch) % np.uint64(self.count)).astype(np.int64)


def check_unit_rows(units: np.ndarray, unit_rows: int) -> None:
    """Raise ConfigError if some unit has more records than the public cap allows.

    Certificates cover edits of whole units (a unit is whose data a record is), so they need a
    public cap on the number of records of one unit.

    Args:
        units: [n] str, each record's unit id.
        unit_rows: the cap, ``relation.unit_rows``, at least 1.

    Raises:
        ConfigError: a unit exceeds the cap. The message names the unit and its number of records.
    """
    largest = most_frequent(units, unit_rows)
    if largest:
        raise ConfigError(
            Message(
                "the unit (person) {unit!r} has {rows} rows, but {config:relation.unit_rows} "
                "is {unit_rows}: raise {config:relation.unit_rows} to a public limit on the "
                "rows of one unit, or remove rows",
                unit=largest.name,
                rows=largest.times,
                unit_rows=unit_rows,
            )
        )
