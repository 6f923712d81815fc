"""Relations whose direction is a mean over the actual batch, as the papers have it.

Formal guarantees
    Rounding. A mean: where its value counts r < b <= 2^23, so numerators are at most 2^53, exact,
    and means of different divisors compare as fractions do; where r >= b it is replaced.
    The papers' divisor is b, b - r for bounds and the neighbour's own size for its nominal run.
    Sums of up to 2^23 rows are exact in float64, hence so is the comparison of their means.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, NoReturn

from agt.errors import ConfigError
from agt.relations.relation import BoundSums, Relation, divided

if TYPE_CHECKING:
    from torch import Tensor

EXACT_ROWS = 2**23  # rows whose sum of quanta float64 holds exactly


class MeanRelation(Relation):
    """A rule that divides by the number of records in the batch, whatever the public constants."""

    selects = True
    published_rule = ", by the published rule (the mean over the records that are left)"

    @abstractmethod
    def divisor(self, rows: "Tensor", batch: int) -> "Tensor":
        """Return over how many records the bounds are a mean, [K, 1, ...] int64."""

    @abstractmethod
    def of_emptied_batch(
        self, lower: "Tensor", upper: "Tensor", clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return the bounds where no record of the batch need be left, r >= b."""

    def check_batches(self, n_max: int) -> None:
        """Refuse batches whose means are not proved to compare exactly."""
        if n_max > EXACT_ROWS:
            raise ConfigError(
                f"relation={self.name}: means compare exactly over at most {EXACT_ROWS} rows, and "
                f"n_max is {n_max}: use more batches, or relation=add_remove"
            )

    def rows_moved(self, unit_rows: int, gradient_norm: float | None = None) -> NoReturn:
        """Refuse: one record more changes the weight of every other."""
        raise ConfigError(
            f"relation={self.name} divides by the size of the actual batch, so that one record "
            "changes every other record's weight: certificate=box alone covers that; others need "
            "relation=add_remove, substitute or remove"
        )

    def step_sensitivity(
        self, clip: float, parameters: int, normalizer: float, unit_rows: int = 1
    ) -> NoReturn:
        """Refuse: the sensitivity depends on the data."""
        raise ConfigError(
            f"relation={self.name} divides by the actual batch, so its sensitivity depends on the "
            "data: noise inside training needs relation=add_remove or substitute"
        )

    def selected(self, rows: int, batch: int, eligible: int) -> int:
        """Return r, or all records but one where r of them may be all."""
        if rows < batch:
            return rows
        # paper_unlearning: the single worst record is left; paper_privacy does not look.
        return max(batch - 1, 0)

    def direction(
        self, sums: BoundSums, rows: "Tensor", batch: int, normalizer: float, clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return bounds on the mean; ``normalizer`` is not read."""
        at_stake = rows.view(-1, *[1] * (sums.lower.dim() - 1))
        least, greatest = self.numerators(sums, at_stake)
        divisor = self.divisor(at_stake, batch).clamp(min=1).double()
        lower, upper = divided(least, divisor, clip), divided(greatest, divisor, clip)
        emptied = at_stake >= max(batch, 1)
        lowest, highest = self.of_emptied_batch(lower, upper, clip)
        return lowest.where(emptied, lower), highest.where(emptied, upper)

    def nominal_direction(
        self, total: "Tensor", batch: int, normalizer: float, clip: float
    ) -> "Tensor":
        """Return the mean; ``normalizer`` is not read."""
        return super().nominal_direction(total, batch, max(batch, 1), clip)
