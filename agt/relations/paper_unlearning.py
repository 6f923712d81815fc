"""The relation paper_unlearning: up to k units are removed, by the mean over the other records.

It is the unlearning relation of the paper 000; never for a privacy release.
"""

from typing import TYPE_CHECKING

from agt.relations.mean import MeanRelation
from agt.relations.relation import Edit

if TYPE_CHECKING:
    from torch import Tensor


class PaperUnlearning(MeanRelation):
    """Neighbours lack up to k units; the direction is the mean over the batch's other records.

    Formal guarantees:
        - The greatest mean is (U - low_r(u)) / (b - r) for r < b; for r >= b it is the greater of
          0 and the greatest single gradient (Lemma 6 of docs/proofs/relations.md).
        - Boxes contain every neighbour's training, but they do not nest, and the relation is not
          symmetric; so no mechanism may use its certificates.
    """

    name = "paper_unlearning"
    ball_template = "up to {k} {many} removed"
    edit_template = "{one} removed"
    edits = (Edit(removed=1, added=0),)
    reason_not_nested = (
        "boxes of neighbours do not nest, because each is about the mean over the records "
        "that remain in its own dataset"
    )

    def divisor(self, rows: "Tensor", batch: int) -> "Tensor":
        """Return b - r, the number of remaining records; 0 or less where none need remain."""
        return batch - rows

    def bounds_of_emptied_batch(
        self, lower: "Tensor", upper: "Tensor", clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return the bounds widened to contain 0, the mean of an empty batch."""
        return lower.clamp(max=0), upper.clamp(min=0)


RELATION = PaperUnlearning()
