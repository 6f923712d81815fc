"""The relation paper_privacy: up to k units are removed and, at the same time, up to k added.

It is the privacy relation of the paper 001 (Theorem 4.6), with its mean over the actual batch.
"""

from typing import TYPE_CHECKING

from agt.errors import ConfigError
from agt.relations.mean import MeanRelation
from agt.relations.relation import Edit

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


class PaperPrivacy(MeanRelation):
    """Neighbours lack up to k units and have up to k other units; a step is the batch's mean.

    One edit removes one unit and adds another at the same time, or does only one of the two.

    Formal guarantees, where r is how many records of a batch k edits can remove, b the number of
    its records, U the sum of their upper bounds u, low_r(u) the sum of the r least of these, and Q
    the clip level:
        - The greatest mean is (U - low_r(u) + r Q) / b for r < b, and the clip level for r >= b
          (Lemma 5 of docs/proofs/relations.md).
        - Boxes nest, also for a shard (one member's part of the records) that only loses or only
          gains a unit (Lemma 7 of docs/proofs/relations.md).
        - The bounds would be wrong for a batch that contains public records, so datasets with
          public records are refused.
    """

    name = "paper_privacy"
    ball_template = "up to {k} {units} removed and, at the same time, up to {k} added"
    counted_template = (
        "{units} that may be removed and, at the same time, of those that may be added"
    )
    edit_template = "{one_unit} removed and, at the same time, one added"
    edits = (Edit(removed=1, added=1), Edit(removed=1, added=0), Edit(removed=0, added=1))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return a sentence that says which distance of `add_remove` corresponds to k here."""
        return (
            f"One edit under `{self.name}` can be a removal and an addition, so compare k under "
            f"`{self.name}` with 2k under `add_remove`, never with k.",
        )

    def check_boxes(self, public: "np.ndarray") -> None:
        """Raise ConfigError if any training record is public.

        The rule assumes that every record of a batch may be removed.

        Args:
            public: [n] bool, which training records are declared public.
        """
        if public.any():
            raise ConfigError(
                f"relation={self.name} gives wrong bounds if public records are in the same "
                "batch as private ones (reference.md section 2). Use relation=add_remove, or "
                "leave the public records out"
            )

    def divisor(self, rows: "Tensor", batch: int) -> "Tensor":
        """Return the number of records b for every k, because extreme batches keep their size.

        The greatest mean has r records removed and r added.

        Args:
            rows: [K, 1, ...] int64, r for each k; only its shape is used.
            batch: b, the number of records of the batch.
        """
        return rows.new_full(rows.shape, batch)

    def bounds_of_emptied_batch(
        self, lower: "Tensor", upper: "Tensor", clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return [-clip, clip], since every record of the batch may be replaced (r >= b).

        Args:
            lower: [K, ...] float64, of which only shape and dtype are used.
            upper: [K, ...] float64, in the same way.
            clip: the elementwise clip level of a record's gradient, which bounds every mean.
        """
        return lower.new_full(lower.shape, -clip), upper.new_full(upper.shape, clip)


RELATION = PaperPrivacy()
