"""The relation flip: up to k labels change, and features stay as they are."""

from typing import NoReturn

import numpy as np

from agt.errors import ConfigError
from agt.messages import Message
from agt.relations.relation import Relation


class Flip(Relation):
    """Neighbours have other labels on up to k records, and the same records otherwise.

    Formal guarantees:
        - The size of a batch stays, and its sum changes only by what the changed labels do
          (Lemma 10 of docs/proofs/relations.md).
        - No rule bounds that sum for boxes, so every use of boxes is refused. Linear heads alone
          count labels: exactly in certificates/flips.py, as a sensitivity in training/linear.py.
        - Ids are made without labels, so one flip changes one batch of an epoch and one member of
          an ensemble.
    """

    name = "flip"
    ball_template = "up to {k} {many} given other labels"
    edit_template = (
        "{one} given another label; its features, and who is among the records, are not protected"
    )
    changes = "labels"
    label_free_ids = True
    counts_label_flips = True

    def check_edits_whole_records(self) -> NoReturn:
        """Refuse what is proved for added and removed records: labels alone change here."""
        raise ConfigError(
            Message(
                "relation={name}: only linear heads count changed labels. Use certificate=votes "
                "learner=ridge (exact, also for one head on all records with "
                "{config:ensemble.members}=1), certificate=stability or certificate=erm; or use "
                "relation=substitute, which counts a changed label as a replaced record",
                name=self.name,
            )
        )

    def check_boxes(self, public: np.ndarray) -> NoReturn:
        """Refuse every box: a batch's sum of gradients says nothing about changed labels."""
        self.check_edits_whole_records()

    def check_closed_form(self) -> None:
        """Accept linear heads in closed form: training/linear.py bounds what a label moves."""

    def check_head(self, counts_label_flips: bool, unit_rows: int) -> None:
        """Refuse heads whose proof does not cover changed labels, and units of several rows."""
        if not counts_label_flips:
            self.check_edits_whole_records()
        if unit_rows > 1:
            raise ConfigError(
                Message(
                    "{config:relation.unit_rows}={unit_rows}: relation={name} counts single "
                    "labels, not people with several rows. Use {config:relation.unit_rows}=1, "
                    "without {config:dataset.unit}",
                    unit_rows=unit_rows,
                    name=self.name,
                )
            )

    def check_ids(self, label_free: bool) -> None:
        """Refuse ids that are made from labels, under which a flipped record would move."""
        if not label_free:
            raise ConfigError(
                Message(
                    "relation={name}: ids and splits are hashes that include labels here, so "
                    "a record whose label changes would move to another batch or split. Give "
                    "{config:dataset.label_free}=true (relation=flip on the command line sets "
                    "it for tables, vectors and blobs)",
                    name=self.name,
                )
            )

    def rows_moved(self, unit_rows: int, gradient_norm: float | None = None) -> int:
        """Return as how many records one changed label counts: 1 or 2.

        A changed label counts as one record where the bound on a gradient's norm is at least 1,
        and as a record removed and another added below it (training/sensitivity.py, "One label").

        Args:
            unit_rows: not used; ``check_head`` admits single rows alone.
            gradient_norm: the bound on one record's gradient; None: the head's proof does not
                cover changed labels.

        Raises:
            ConfigError: ``gradient_norm`` is None.
        """
        if gradient_norm is None:
            self.check_edits_whole_records()
        return 1 if gradient_norm >= 1 else 2


RELATION = Flip()
