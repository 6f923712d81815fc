"""The relation substitute: up to k units are replaced by others."""

from agt.relations.relation import Edit, Relation


class Substitute(Relation):
    """Neighbours have up to k private units replaced by other units.

    Formal guarantees:
        - The greatest sum of a batch is U - low_r(min(u, 0)) + r Q, divided by the public constant
          B: one batch may lose r rows and gain r others independently, because the id of a
          replaced record, and with it its batch, may change (Lemma 4 of docs/proofs/relations.md).
        - The relation is symmetric, and boxes nest, also for a shard that sees one half of an
          exchange (Lemma 7 of docs/proofs/relations.md).
    """

    name = "substitute"
    ball_template = "up to {k} {many} replaced by others"
    edit_template = "{one} replaced by another"
    edits = (Edit(removed=1, added=1),)
    selects = True
    private_only = True
    caps_at_zero = True
    sums_proved = True


RELATION = Substitute()
