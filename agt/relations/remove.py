"""remove: up to k units are removed; for unlearning.

    upper numerator U - low_r(min(u, 0)), divided by B

Formal guarantees
    At most r private records go, each takes u away at worst, and only u < 0 raises the sum.
"""

from agt.errors import ConfigError
from agt.relations.relation import Edit, Relation


class Remove(Relation):
    """Units go and none come."""

    name = "remove"
    ball_template = "up to {k} {many} removed"
    edit_template = "{one} removed"
    edits = (Edit(removed=1, added=0),)
    selects = True
    private_only = True
    caps_at_zero = True

    def check_noise(self) -> None:
        """Refuse it."""
        raise ConfigError(
            f"noise.epsilon: relation={self.name} is for unlearning, and training again draws "
            "other "
            "noise than this run met, so its certificates would say nothing about it; nor do "
            "removals alone make a privacy guarantee: use relation=add_remove"
        )


RELATION = Remove()
