"""The relation paper_privacy: up to k units are removed and, at the same time, up to k added.

It is the privacy relation of the paper 001 (Theorem 4.6), with its mean over the actual batch.
"""

from typing import TYPE_CHECKING

import numpy as np

from agt.errors import ConfigError
from agt.relations.mean import MeanRelation
from agt.relations.relation import Edit

if TYPE_CHECKING:
    from torch import Tensor


class PaperPrivacy(MeanRelation):
    """Neighbours lack up to k units and have up to k others; the direction is the batch's mean.

    Formal guarantees:
        - The greatest mean is (U - low_r(u) + r Q) / b for r < b, and the clip level for r >= b
          (Lemma 5 of docs/proofs/relations.md).
        - Boxes nest, also for a shard that sees one half of an edit (Lemma 7 of
          docs/proofs/relations.md).
        - The bounds are unsound where public records share the batch, so those are refused.
    """

    name = "paper_privacy"
    ball_template = "up to {k} {many} removed and, at the same time, up to {k} added"
    edit_template = "{one} removed and, at the same time, one added"
    edits = (Edit(removed=1, added=1), Edit(removed=1, added=0), Edit(removed=0, added=1))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the sentence that says with which k of the default relation it compares."""
        return (f"So k under `{self.name}` compares with 2k under `add_remove`, never with k.",)

    def check_boxes(self, public: np.ndarray) -> None:
        """Refuse boxes if any training record is public."""
        if public.any():
            raise ConfigError(
                f"relation={self.name} is not sound if public records are in the same batch "
                "as private ones (method.md section 2). Use relation=add_remove, or leave "
                "the public records out"
            )

    def divisor(self, rows: "Tensor", batch: int) -> "Tensor":
        """Return b for every k: as many records are added as are removed."""
        return rows.new_full(rows.shape, batch)

    def bounds_of_emptied_batch(
        self, lower: "Tensor", upper: "Tensor", clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return [-clip, clip]: every record of the batch may be replaced."""
        return lower.new_full(lower.shape, -clip), upper.new_full(upper.shape, clip)


RELATION = PaperPrivacy()
