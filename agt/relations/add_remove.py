"""add_remove: up to k units are removed or added in all.

    upper numerator U + r Q, divided by B

Formal guarantees
    A record gone takes away g in [l, u], one added brings at most Q; since u <= Q, -l <= Q, each of
    r changes moves the sum by at most Q beyond [L, U]. Public records are summed in and never
    change.
"""

from agt.relations.relation import Edit, Relation


class AddRemove(Relation):
    """Units come or go; the default."""

    name = "add_remove"
    ball_template = "up to k {many} added or removed in all"
    edit_template = "{one} added or removed"
    edits = (Edit(removed=1, added=0), Edit(removed=0, added=1))
    sums_proved = True


RELATION = AddRemove()
