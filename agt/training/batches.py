"""The plan of batches: public constants, and a record's place in it decided by its own id
(method.md section 3b, 3c).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agt.data.ids import keyed_hash, most_frequent, remix
from agt.errors import ConfigError
from agt.messages import Message
from agt.settings import MOST_ROWS, BatchConfig, default_n_max


@dataclass(frozen=True)
class BatchPlan:
    """How many batches there are and who is in which.

    Attributes:
        epochs, count: steps = epochs * count, whatever the data.
        normalizer: B.
        n_max: the public cap on a batch, itself at most ``MOST_ROWS``: sums over more records are
            not proved exact.
        key: the public key of the hash.
        declared: False if a constant was derived from the data at hand, which voids condition c.

    Raises:
        ConfigError: n_max is too large.
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
                    "{config:training.batch.n_max}={n_max} (from normalizer = {normalizer:g}, "
                    "where it is null): sums are exact over at most {most_rows} records of "
                    "a batch: use more batches, or a smaller normalizer",
                    n_max=self.n_max,
                    normalizer=self.normalizer,
                    most_rows=MOST_ROWS,
                )
            )

    @classmethod
    def of(
        cls, config: BatchConfig, epochs: int, declared_size: float | None, records: int
    ) -> "BatchPlan":
        """Fill in what the configuration leaves open.

        Args:
            config: the batch settings.
            epochs: passes over the data.
            declared_size: the dataset's public size, or None.
            records: the actual number, used only if neither a normalizer nor a size was declared.

        Raises:
            ConfigError: n_max < 1.1 B, or n_max or B is too large.
        """
        size = max(records, 1) if declared_size is None else declared_size  # a shard may be empty
        normalizer = config.normalizer or size / config.count
        n_max = config.n_max or default_n_max(min(normalizer, 2 * MOST_ROWS))
        if n_max < 1.1 * normalizer:
            raise ConfigError(
                Message(
                    "{config:training.batch.n_max}={n_max} is below 1.1 * normalizer = "
                    "{least:g}: raise n_max",
                    n_max=n_max,
                    least=1.1 * normalizer,
                )
            )
        declared = config.normalizer is not None or declared_size is not None
        return cls(epochs, config.count, float(normalizer), n_max, config.key, declared)

    @property
    def steps(self) -> int:
        """The number of steps, empty batches included."""
        return self.epochs * self.count

    def batches(self, units: np.ndarray) -> Iterator[np.ndarray]:
        """The rows of each step's batch, in increasing order.

        Args:
            units: [n] str, each record's unit id. All rows of a unit share a batch.

        Raises:
            ConfigError: a batch exceeds n_max; raised before the first step, never by truncating.
        """
        hashes = keyed_hash(units, f"batch/{self.key}")
        homes = [
            (remix(hashes, epoch) % np.uint64(self.count)).astype(np.int64)
            for epoch in range(self.epochs)
        ]
        largest = max(int(np.bincount(home, minlength=self.count).max()) for home in homes)
        if largest > self.n_max:
            raise ConfigError(
                Message(
                    "a batch holds {largest} records and {config:training.batch.n_max} is "
                    "{n_max}, which follows from the declared size: declare a public size "
                    "nearer to how many there are, raise n_max and normalizer, or use more "
                    "batches; records are never dropped to fit",
                    largest=largest,
                    n_max=self.n_max,
                )
            )
        for home in homes:
            for index in range(self.count):
                yield np.flatnonzero(home == index)


def check_unit_rows(units: np.ndarray, unit_rows: int) -> None:
    """Enforce the public cap of ``relation.unit_rows`` rows for each unit.

    Raises:
        ConfigError: a unit has more rows; it is named.
    """
    most = most_frequent(units, unit_rows)
    if most:
        raise ConfigError(
            Message(
                "unit {unit!r} has {rows} rows and {config:relation.unit_rows} is "
                "{unit_rows}: raise {config:relation.unit_rows} to a public cap on the rows "
                "of one unit, or drop rows",
                unit=most[0],
                rows=most[1],
                unit_rows=unit_rows,
            )
        )
