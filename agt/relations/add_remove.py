"""The relation add_remove: up to k units are removed or added in all. The default."""

from agt.relations.relation import Edit, Relation


class AddRemove(Relation):
    """Neighbours differ by units that were removed or added, up to k in all.

    Formal guarantees:
        - The bounds on a batch's sum are [L - r Q, U + r Q], divided by the public constant B,
          where L and U sum the records' bounds, r rows are at stake and Q is the clip level
          (Lemma 2 of docs/proofs/relations.md).
        - Public records are summed in and never change.
        - The relation is symmetric, and boxes nest.
    """

    name = "add_remove"
    ball_template = "up to {k} {many} added or removed in all"
    edit_template = "{one} added or removed"
    edits = (Edit(removed=1, added=0), Edit(removed=0, added=1))
    sums_proved = True


RELATION = AddRemove()
