"""The relation substitute: up to k units are replaced by others."""

from agt.relations.relation import Edit, Relation


class Substitute(Relation):
    """Neighbours have up to k private units replaced by other units.

    One edit removes one private unit and adds another one.

    Formal guarantees:
        - The greatest sum of a batch is U - low_r(min(u, 0)) + r Q, divided by the public constant
          B. U is the sum of the records' upper bounds u, r is how many records of the batch k
          edits can remove, low_r the sum of the r least values over private records, and Q the clip
          level (Lemma 4 of docs/proofs/relations.md).
        - One batch may lose r records and gain r others independently, because a replaced record
          may get another id, and with it another batch.
        - The relation is symmetric. Boxes nest, also for a shard (one member's part of the
          records) that only loses or only gains a unit (Lemma 7 of docs/proofs/relations.md).
    """

    name = "substitute"
    ball_template = "up to {k} {units} replaced by others"
    counted_template = "{units} replaced by others"
    edit_template = "{one_unit} replaced by another"
    edits = (Edit(removed=1, added=1),)
    selects = True
    private_only = True
    caps_at_zero = True
    sums_proved = True


RELATION = Substitute()
