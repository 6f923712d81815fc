"""The relation paper_unlearning: up to k units are removed, and a step is the mean of the rest.

It is the unlearning relation of the paper 000; never for a privacy release.
"""

from typing import TYPE_CHECKING

from agt.relations.mean import MeanRelation
from agt.relations.relation import Edit

if TYPE_CHECKING:
    from torch import Tensor


class PaperUnlearning(MeanRelation):
    """Neighbours lack up to k units; a step is the mean over the batch's remaining records.

    One edit removes one unit.

    Formal guarantees, where r is how many records of a batch k edits can remove, b the number of
    its records, U the sum of their upper bounds u, and low_r(u) the sum of the r least of these:
        - The greatest mean is (U - low_r(u)) / (b - r) for r < b; for r >= b it is the greater of
          0 and the greatest single gradient (Lemma 6 of docs/proofs/relations.md).
        - Boxes contain every neighbour's training, but they do not nest, and the relation is not
          symmetric; so no mechanism may use its certificates.
    """

    name = "paper_unlearning"
    ball_template = "up to {k} {units} removed"
    counted_template = "{units} removed"
    edit_template = "{one_unit} removed"
    edits = (Edit(removed=1, added=0),)
    reason_not_nested = (
        "the bounds on the weights (boxes) that are computed from one dataset need not lie within "
        "those from its neighbour, because each training averages over its own records"
    )

    def divisor(self, rows: "Tensor", batch: int) -> "Tensor":
        """Return b - r, the number of records that remain when r are removed.

        Args:
            rows: [K, 1, ...] int64, r for each k.
            batch: b, the number of records of the batch.

        Returns:
            [K, 1, ...] int64; 0 or less where the whole batch may be removed.
        """
        return batch - rows

    def bounds_of_emptied_batch(
        self, lower: "Tensor", upper: "Tensor", clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return bounds that also contain 0, the mean of a batch whose records are all removed.

        Args:
            lower: [K, ...] float64, lower bounds on the gradient of a single remaining record.
            upper: [K, ...] float64, upper bounds on it.
            clip: not used.
        """
        return lower.clamp(max=0), upper.clamp(min=0)


RELATION = PaperUnlearning()
