"""paper_unlearning: up to k units are removed, and the mean is over what is left (000).

    upper numerator U - low_r(u), divided by b - r

Formal guarantees
    The mean over what is left; for r >= b that may be one record, or none (mean 0).
"""

from typing import TYPE_CHECKING

from agt.relations.mean import MeanRelation
from agt.relations.relation import Edit

if TYPE_CHECKING:
    from torch import Tensor


class PaperUnlearning(MeanRelation):
    """Units go and none come."""

    name = "paper_unlearning"
    ball_template = "up to {k} {many} removed"
    edit_template = "{one} removed"
    edits = (Edit(removed=1, added=0),)
    unnested = "the mean over what is left does not nest under removals from other datasets"

    def divisor(self, rows: "Tensor", batch: int) -> "Tensor":
        """Return b - r."""
        return batch - rows

    def of_emptied_batch(
        self, lower: "Tensor", upper: "Tensor", clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return the bounds with 0 among them: the batch may be empty."""
        return lower.clamp(max=0), upper.clamp(min=0)


RELATION = PaperUnlearning()
