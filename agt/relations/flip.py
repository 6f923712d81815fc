"""flip: up to k labels change.

Formal guarantees
    The records stay and up to k labels change, so no batch's size, and no sum but by what labels
    do. No rule here is for boxes: ``check_moves_records`` refuses it; certificates/flips.py counts
    it, and training/linear.py bounds what it does. Ids are made without labels
    (``Dataset.label_free``), so one flip changes one batch of an epoch and one member.
"""

from typing import NoReturn

import numpy as np

from agt.errors import ConfigError
from agt.messages import Message
from agt.relations.relation import Relation


class Flip(Relation):
    """Records stay where they are, under other labels."""

    name = "flip"
    ball_template = "up to {k} {many} given other labels"
    edit_template = (
        "{one} given another label; its features, and who is among the records, are not protected"
    )
    changes = "labels"
    label_free_ids = True
    counts_label_flips = True

    def check_moves_records(self) -> NoReturn:
        """Refuse: of changed labels a batch's sum of gradients tells nothing."""
        raise ConfigError(
            Message(
                "relation={name}: changed labels are counted by linear heads alone: use "
                "certificate=votes learner=ridge (exact; {config:ensemble.members}=1: one "
                "head on all records), certificate=stability or erm; or "
                "relation=substitute, to which a flip is a record replaced",
                name=self.name,
            )
        )

    def check_boxes(self, public: np.ndarray) -> None:
        """Refuse them."""
        self.check_moves_records()

    def check_closed_form(self) -> None:
        """Accept it: training/linear.py bounds what a label moves."""

    def check_head(self, counts_label_flips: bool, unit_rows: int) -> None:
        """Refuse heads that no proof covers, and units of several rows."""
        if not counts_label_flips:
            self.check_moves_records()
        if unit_rows > 1:
            raise ConfigError(
                Message(
                    "{config:relation.unit_rows}={unit_rows}: relation={name} counts single "
                    "labels: use unit_rows=1, without {config:dataset.unit}",
                    unit_rows=unit_rows,
                    name=self.name,
                )
            )

    def check_ids(self, label_free: bool) -> None:
        """Refuse ids that hold labels."""
        if not label_free:
            raise ConfigError(
                Message(
                    "relation={name}: ids and splits that are hashes of labels would move "
                    "a record whose label flips: give {config:dataset.label_free}=true "
                    "(relation=flip on the command line does so, of tables, vectors and "
                    "blobs)",
                    name=self.name,
                )
            )

    def rows_moved(self, unit_rows: int, gradient_norm: float | None = None) -> int:
        """Return as how many records one label counts (training/sensitivity.py, "One label")."""
        if gradient_norm is None:
            self.check_moves_records()
        return 1 if gradient_norm >= 1 else 2


RELATION = Flip()
