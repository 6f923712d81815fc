"""The relation add_remove: up to k units are removed or added in all. The default."""

from agt.relations.relation import Edit, Relation


class AddRemove(Relation):
    """Neighbours differ by units that were removed or added, up to k of them in all.

    One edit removes one unit or adds one unit.

    Formal guarantees:
        - The bounds on a batch's sum of gradients are [L - r Q, U + r Q], divided by the public
          constant B. L and U are the sums of the records' lower and upper bounds, r is how many
          records of the batch k edits can remove or add, and Q is the clip level (Lemma 2 of
          docs/proofs/relations.md).
        - Public records are part of the sums, and edits never change them.
        - The relation is symmetric, and boxes nest.
    """

    name = "add_remove"
    ball_template = "up to {k} {units} added or removed in all"
    counted_template = "{units} added or removed"
    edit_template = "{one_unit} added or removed"
    edits = (Edit(removed=1, added=0), Edit(removed=0, added=1))
    sums_proved = True


RELATION = AddRemove()
