"""substitute: up to k units are replaced by others.

    upper numerator U - low_r(min(u, 0)) + r Q, divided by B

Formal guarantees
    A replaced record's id, and with it its batch, may change (default ids hash the content). So
    this batch may lose up to r records and, independently, gain up to r: hence min(u, 0) rather
    than u, which would assume that the newcomer lands in the same batch.
"""

from agt.relations.relation import Edit, Relation


class Substitute(Relation):
    """Each unit that goes makes way for another."""

    name = "substitute"
    ball_template = "up to k {many} replaced by others"
    edit_template = "{one} replaced by another"
    edits = (Edit(removed=1, added=1),)
    selects = True
    private_only = True
    caps_at_zero = True
    sums_proved = True


RELATION = Substitute()
