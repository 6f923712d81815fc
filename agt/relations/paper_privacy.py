"""paper_privacy: up to k units are removed and, at the same time, up to {k} added (001 Theorem
4.6).

    upper numerator U - low_r(u) + r Q, divided by b

Formal guarantees
    The mean over the actual batch; for r >= b it is anything in [-gamma, gamma]. Unsound if public
    records share the batch, so those are refused.
    One side alone (relation.py). The numerators are the extreme means: of all batches b - a + c,
    a <= r, c <= r, the greatest mean has c = r and then a = r (an added gamma raises a mean, and so
    does taking out the least), which is the rule; so these follow the inclusion too, and where
    r >= b the rule is the whole [-gamma, gamma].
"""

from typing import TYPE_CHECKING

import numpy as np

from agt.errors import ConfigError
from agt.relations.mean import MeanRelation
from agt.relations.relation import Edit

if TYPE_CHECKING:
    from torch import Tensor


class PaperPrivacy(MeanRelation):
    """As many units come as go."""

    name = "paper_privacy"
    ball_template = "up to {k} {many} removed and, at the same time, up to {k} added"
    edit_template = "{one} removed and, at the same time, one added"
    edits = (Edit(removed=1, added=1), Edit(removed=1, added=0), Edit(removed=0, added=1))

    @property
    def remarks(self) -> tuple[str, ...]:
        """With which k of the default it compares."""
        return (f"So `{self.name}` at k compares with `add_remove` at 2k, never at k.",)

    def check_boxes(self, public: np.ndarray) -> None:
        """Refuse public records."""
        if public.any():
            raise ConfigError(
                f"relation={self.name} is unsound when public records share the batch (method.md "
                "section 2): use relation=add_remove, or leave the public records out"
            )

    def divisor(self, rows: "Tensor", batch: int) -> "Tensor":
        """Return b."""
        return rows.new_full(rows.shape, batch)

    def of_emptied_batch(
        self, lower: "Tensor", upper: "Tensor", clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return all that a clipped gradient can be: the batch may be replaced as a whole."""
        return lower.new_full(lower.shape, -clip), upper.new_full(upper.shape, clip)


RELATION = PaperPrivacy()
