"""The relation flip: up to k labels change, and features stay unchanged."""

from typing import TYPE_CHECKING, NoReturn

from agt.errors import ConfigError
from agt.messages import Message
from agt.relations.relation import Relation

if TYPE_CHECKING:
    import numpy as np


class Flip(Relation):
    """Neighbours have the same records, of which up to k have another label.

    One edit gives one record another label; its features stay.

    Formal guarantees:
        - The size of a batch stays, and its sum of gradients changes only by what the changed
          labels do (Lemma 10 of docs/proofs/relations.md).
        - No rule bounds this change for parameter boxes (interval bounds), so every use of boxes is
          refused. Only linear heads count changed labels: exactly in certificates/flips.py, and as
          a sensitivity in training/sensitivity.py.
        - Ids are made without labels, so one edit changes one batch of an epoch and one member of
          an ensemble.
    """

    name = "flip"
    ball_template = "up to {k} {units} with changed labels"
    counted_template = "{units} with changed labels"
    edit_template = (
        "{one_unit} with another label (a record's features, and the fact that it is in the "
        "data, are not protected)"
    )
    changes = "labels"
    label_free_ids = True
    counts_label_flips = True

    def whole_records_error(self) -> ConfigError:
        """Return the error for a use that does not cover edits that only change labels.

        The message names the certificates that do, and `substitute` as another relation.
        """
        return ConfigError(
            Message(
                "relation={name}: agt can bound the effect of changed labels only for linear "
                "heads: use certificate=votes learner=ridge, certificate=stability or "
                "certificate=erm. Or use relation=substitute, which counts a changed label as a "
                "replaced record",
                name=self.name,
            )
        )

    def check_boxes(self, public: "np.ndarray") -> NoReturn:
        """Raise ConfigError: no box of `flip` is proved, whatever the records are.

        No rule bounds how far changed labels move a batch's sum of gradients.

        Args:
            public: not used.
        """
        raise self.whole_records_error()

    def check_closed_form(self) -> None:
        """Accept linear heads with closed-form certificates, which cover changed labels.

        ``gradients_changed_per_edit`` says as how many records a changed label counts there.
        """

    def check_head(self, counts_label_flips: bool, unit_rows: int) -> None:
        """Raise ConfigError unless the head's certificate covers changed labels of single records.

        Args:
            counts_label_flips: whether the certificate is proved for labels that change.
            unit_rows: the public cap on how many records one unit has; only 1 is proved, because
                one edit changes one label.
        """
        if not counts_label_flips:
            raise self.whole_records_error()
        if unit_rows > 1:
            raise ConfigError(
                Message(
                    "{config:relation.unit_rows}={unit_rows} is not possible, because "
                    "relation={name} counts single labels, not people with several rows. Use "
                    "{config:relation.unit_rows}=1, without {config:dataset.unit}",
                    unit_rows=unit_rows,
                    name=self.name,
                )
            )

    def check_ids(self, label_free: bool) -> None:
        """Raise ConfigError if ids are made from labels.

        A record whose label changes would then get another id, and with it another batch or split.

        Args:
            label_free: whether ids and hashed splits are made from features without labels.
        """
        if not label_free:
            raise ConfigError(
                Message(
                    "relation={name}: in this dataset, ids and splits are hashes that include "
                    "the label, so a changed label would move its record to another batch or "
                    "split. Give {config:dataset.label_free}=true, which leaves the label out of "
                    "the hashes",
                    name=self.name,
                )
            )

    def gradients_changed_per_edit(
        self, unit_rows: int, derivative_bound: float | None = None
    ) -> int:
        """Return the number of whole records that bound a changed label's effect: 1 or 2.

        A removed or added record moves the sum of the loss's derivatives by at most C. Between two
        labels the derivatives of a record differ by at most C if C is at least 1, so a changed
        label is bounded like one record. Derivatives that are clipped to a smaller C differ by at
        most 2 C, so it is bounded like two records, one removed and one added (Lemma 3 of
        docs/proofs/sensitivity.md).

        Args:
            unit_rows: not used, because ``check_head`` admits only units of one record.
            derivative_bound: C, a bound on the norm of the loss's derivative in one record's
                logits; None: the certificate does not cover changed labels.

        Raises:
            ConfigError: ``derivative_bound`` is None.
        """
        if derivative_bound is None:
            raise self.whole_records_error()
        return 1 if derivative_bound >= 1 else 2


RELATION = Flip()
