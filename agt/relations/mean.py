"""Relations whose direction is a mean over the actual batch, as in the papers."""

from abc import abstractmethod
from typing import TYPE_CHECKING, NoReturn

from agt.errors import ConfigError
from agt.relations.relation import BoundSums, Relation, divide_quanta, one_for_each_k

if TYPE_CHECKING:
    from torch import Tensor

EXACT_ROWS = 2**23  # rows whose sum of quanta float64 holds exactly


class MeanRelation(Relation):
    """A relation whose direction divides by the size of the batch, not by a public constant.

    Formal guarantees:
        - Means over batches of different sizes compare in floating point as their fractions do,
          for batches of at most ``EXACT_ROWS`` records (Lemma 13 of docs/proofs/relations.md).
        - One record more changes the weight of every other record, so no sensitivity is proved:
          ``rows_moved`` and ``step_sensitivity`` refuse.
    """

    selects = True
    published_rule = ", by the published rule (the mean over the records that are left)"

    @abstractmethod
    def divisor(self, rows: "Tensor", batch: int) -> "Tensor":
        """Return over how many records the bounds are a mean, [K, 1, ...] int64.

        Args:
            rows: [K, 1, ...] int64, r for each k.
            batch: b, the number of records in the batch.
        """

    @abstractmethod
    def bounds_of_emptied_batch(
        self, lower: "Tensor", upper: "Tensor", clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return the bounds for r >= b, where edits can remove every record of the batch.

        Args:
            lower, upper: [K, ...] float64, the bounds on the mean of some remaining records.
            clip: gamma, the elementwise clip level.
        """

    def check_batches(self, n_max: int) -> None:
        """Refuse batches whose means are not proved to compare exactly."""
        if n_max > EXACT_ROWS:
            raise ConfigError(
                f"relation={self.name}: means can only be compared exactly for batches of at "
                f"most {EXACT_ROWS} rows, but training.batch.n_max={n_max}. Use more batches, "
                "or relation=add_remove"
            )

    def rows_moved(self, unit_rows: int, gradient_norm: float | None = None) -> NoReturn:
        """Refuse: one record more or less changes the weight of every other record."""
        raise ConfigError(
            f"relation={self.name} divides by the actual size of the batch, so one record "
            "changes the weight of every other record. Only certificate=box covers this; "
            "with any other certificate use relation=add_remove, substitute or remove"
        )

    def step_sensitivity(
        self, clip: float, parameters: int, normalizer: float, unit_rows: int = 1
    ) -> NoReturn:
        """Refuse: the sensitivity of a mean depends on the data."""
        raise ConfigError(
            f"relation={self.name} divides by the actual size of the batch, so its "
            "sensitivity depends on the data. For noise inside training use "
            "relation=add_remove or substitute"
        )

    def count_selected(self, rows: int, batch: int, eligible: int) -> int:
        """Return r, or b - 1 (at least 0) where r edits can remove the whole batch."""
        if rows < batch:
            return rows
        # b - 1 removals leave one record, the extreme one, as paper_unlearning needs for r >= b.
        # paper_privacy replaces its bounds for such r and reads no selection.
        return max(batch - 1, 0)

    def direction(
        self, sums: BoundSums, rows: "Tensor", batch: int, normalizer: float, clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return bounds on the mean gradient of every batch that k edits can make of this one.

        Args and Returns are those of ``Relation.direction``; ``normalizer`` is not used.
        """
        rows_of_k = one_for_each_k(rows, sums.lower)
        numerator_lower, numerator_upper = self.numerators(sums, rows_of_k)
        # A divisor of 0 or less occurs only where the batch can be emptied; its quotient is
        # replaced, or taken as the mean of the one record that is left, which divides by 1.
        divisor = self.divisor(rows_of_k, batch).clamp(min=1).double()
        lower = divide_quanta(numerator_lower, divisor, clip)
        upper = divide_quanta(numerator_upper, divisor, clip)
        can_be_emptied = rows_of_k >= max(batch, 1)
        emptied_lower, emptied_upper = self.bounds_of_emptied_batch(lower, upper, clip)
        lower = emptied_lower.where(can_be_emptied, lower)
        upper = emptied_upper.where(can_be_emptied, upper)
        return lower, upper

    def nominal_direction(
        self, total: "Tensor", batch: int, normalizer: float, clip: float
    ) -> "Tensor":
        """Return the mean gradient of the batch itself, 0 of an empty batch.

        Args and Returns are those of ``Relation.nominal_direction``; ``normalizer`` is not used.
        """
        return super().nominal_direction(total, batch, max(batch, 1), clip)
