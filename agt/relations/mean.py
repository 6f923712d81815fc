"""Relations under which a step is the mean over the actual batch, as in the papers."""

from abc import abstractmethod
from typing import TYPE_CHECKING, NoReturn

from agt.errors import ConfigError
from agt.relations.relation import BoundSums, Relation, add_parameter_axes, divide_quanta

if TYPE_CHECKING:
    from torch import Tensor

# The sums of quanta over at most this many records are below 2^53, so float64 holds them exactly.
EXACT_ROWS = 2**23


class MeanRelation(Relation):
    """A relation whose descent direction divides by the size of the batch itself.

    Other relations divide by a public constant. Here an edit that removes or adds a record also
    changes the weight of every other record in the mean.

    Formal guarantees:
        - Means over batches of different sizes, as computed, are in the same order as the exact
          means, for batches of at most ``EXACT_ROWS`` records (Lemma 13 of
          docs/proofs/relations.md).
        - No sensitivity is proved, so ``gradients_changed_per_edit`` and ``step_sensitivity`` raise
          ConfigError.
    """

    selects = True
    averages = True

    @abstractmethod
    def divisor(self, rows: "Tensor", batch: int) -> "Tensor":
        """Return the numbers by which bounds on a sum are divided to give bounds on the mean.

        Args:
            rows: [K, 1, ...] int64, r for each k: the number of records of the batch that k edits
                can remove.
            batch: b, the number of records of the batch.

        Returns:
            [K, 1, ...] int64; 0 or less where edits can remove the whole batch (r >= b), whose
            bounds ``bounds_of_emptied_batch`` gives.
        """

    @abstractmethod
    def bounds_of_emptied_batch(
        self, lower: "Tensor", upper: "Tensor", clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return bounds on the mean where edits can remove every record of the batch.

        Args:
            lower: [K, ...] float64, lower bounds on the mean over at least one remaining record.
            upper: [K, ...] float64, upper bounds on this mean.
            clip: gamma, the elementwise clip level of a record's gradient.

        Returns:
            (lower, upper), each [K, ...] float64.
        """

    def check_batch_size(self, n_max: int) -> None:
        """Raise ConfigError if batches are so large that rounding could reorder two means.

        Args:
            n_max: the public cap on the number of records of a batch; at most ``EXACT_ROWS``.
        """
        if n_max > EXACT_ROWS:
            raise ConfigError(
                f"relation={self.name}: bounds on means are only exact for batches of at most "
                f"{EXACT_ROWS} rows, but training.batch.n_max={n_max} allows more. Use more "
                "batches, or relation=add_remove"
            )

    def gradients_changed_per_edit(
        self, unit_rows: int, derivative_bound: float | None = None
    ) -> NoReturn:
        """Raise ConfigError: one edit changes the weight of every gradient in the mean.

        Args:
            unit_rows: not used.
            derivative_bound: not used.
        """
        raise ConfigError(
            f"relation={self.name} divides by the actual size of the batch, so one record "
            "changes the weight of every other record. Only certificate=box can bound this "
            "effect. With any other certificate, use relation=add_remove, substitute or remove"
        )

    def step_sensitivity(
        self, clip: float, parameters: int, normalizer: float, unit_rows: int = 1
    ) -> NoReturn:
        """Raise ConfigError: the sensitivity of a mean depends on the batch's size, hence on data.

        Noise inside training needs a sensitivity that is a public constant. No argument is used.
        """
        raise ConfigError(
            f"relation={self.name} divides by the actual size of the batch, so a training step's "
            "sensitivity depends on the data, and no fixed noise suffices. For noise inside "
            "training, use relation=add_remove or substitute"
        )

    def count_selected(self, rows: int, batch: int, eligible: int) -> int:
        """Return the number of records of a batch that are selected for each parameter.

        To bound a mean after r records are removed, training selects for each scalar parameter the
        r records with the greatest lower bounds, and the r with the least upper ones.

        Args:
            rows: r, the number of records of the batch that k edits can remove.
            batch: b, the number of records of the batch.
            eligible: not used, because every record of the batch may be removed.

        Returns:
            r, or b - 1 (at least 0) where r edits can remove the whole batch.
        """
        if rows < batch:
            return rows
        # Removing the b - 1 most extreme records leaves one record, whose gradient is the extreme
        # mean that paper_unlearning needs for r >= b. paper_privacy replaces its bounds for such r,
        # so its selection does not matter.
        return max(batch - 1, 0)

    def bound_direction(
        self, sums: BoundSums, rows: "Tensor", batch: int, normalizer: float, clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return bounds on the mean gradient of every batch that k edits can make of this one.

        Args:
            sums: the sums of bounds over the batch without edits, in quanta of gamma / 2^30.
            rows: [K] int64, r for each k: the number of records of the batch that k edits can
                remove.
            batch: b, the number of records of the batch.
            normalizer: not used, because the mean divides by the actual number of records.
            clip: gamma, the elementwise clip level of a record's gradient.

        Returns:
            (lower, upper), each [K, ...] float64.
        """
        rows_of_k = add_parameter_axes(rows, sums.lower)
        sum_lower, sum_upper = self.bound_edited_sum(sums, rows_of_k)
        # The divisor is 0 or less only where r >= b. The selection then leaves one record, whose
        # mean divides by 1 (paper_unlearning), or the bounds are replaced below (paper_privacy).
        divisor = self.divisor(rows_of_k, batch).clamp(min=1).double()
        lower = divide_quanta(sum_lower, divisor, clip)
        upper = divide_quanta(sum_upper, divisor, clip)
        can_be_emptied = rows_of_k >= max(batch, 1)  # a batch of no records is not emptied at r = 0
        emptied_lower, emptied_upper = self.bounds_of_emptied_batch(lower, upper, clip)
        lower = emptied_lower.where(can_be_emptied, lower)
        upper = emptied_upper.where(can_be_emptied, upper)
        return lower, upper

    def nominal_direction(
        self, total: "Tensor", batch: int, normalizer: float, clip: float
    ) -> "Tensor":
        """Return the mean gradient of the batch without edits, or 0 for a batch of no records.

        Args:
            total: [...] int64, the sum of the records' clipped gradients, in quanta.
            batch: b, the number of records of the batch.
            normalizer: not used, because the mean divides by b.
            clip: gamma, the elementwise clip level of a record's gradient.

        Returns:
            [...] float64.
        """
        # A batch of no records has the sum 0, which is divided by 1.
        return super().nominal_direction(total, batch, max(batch, 1), clip)
