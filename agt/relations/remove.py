"""The relation remove: up to k units are removed. For unlearning, never for a privacy release."""

from typing import NoReturn

from agt.errors import ConfigError
from agt.relations.relation import Edit, Relation


class Remove(Relation):
    """Neighbours lack up to k of the dataset's private units.

    One edit removes one private unit.

    Formal guarantees:
        - The greatest sum of a batch is U - low_r(min(u, 0)), divided by the public constant B. U
          is the sum of the records' upper bounds u, r is how many records of the batch k edits can
          remove, and low_r is the sum of the r least values over private records. Only removing a
          negative gradient raises the sum (Lemma 3 of docs/proofs/relations.md).
        - The relation is not symmetric, so no mechanism may use its certificates.
    """

    name = "remove"
    ball_template = "up to {k} {units} removed"
    counted_template = "{units} removed"
    edit_template = "{one_unit} removed"
    edits = (Edit(removed=1, added=0),)
    selects = True
    private_only = True
    caps_at_zero = True

    def check_noise(self) -> NoReturn:
        """Raise ConfigError: certificates of removals do not cover noise inside training.

        Training again without a record would draw other noise than this run.
        """
        raise ConfigError(
            f"noise.epsilon: relation={self.name} is for unlearning, and training again without a "
            "record would draw new noise, which the certificates do not cover. For unlearning, "
            "leave out noise.epsilon. For privacy, use relation=add_remove"
        )


RELATION = Remove()
