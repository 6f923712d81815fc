"""The registry of the neighbour relations: their names, each with what settings must know of it.

A relation is a module of this package that has its name, whose ``RELATION`` is an instance of its
class, and an entry here. Nothing is imported here, because settings, help and a shell's completion
read it.
"""

from typing import NamedTuple


class RelationEntry(NamedTuple):
    """What the settings of a relation are, before its rule is read.

    Attributes:
        summary: one line for lists of options.
        takes_radius: it needs ``relation.radius``, which every other relation refuses.
    """

    summary: str
    takes_radius: bool = False


ENTRIES: dict[str, RelationEntry] = {
    "add_remove": RelationEntry(
        "at most k units added or removed in all; constant normaliser (the default)"
    ),
    "remove": RelationEntry("at most k units removed; for unlearning, never for a privacy release"),
    "substitute": RelationEntry("at most k units exchanged for others; constant normaliser"),
    "flip": RelationEntry(
        "at most k labels changed, of linear heads; by ridge regressions (certificate=votes) "
        "counted exactly; features are not protected"
    ),
    "perturb": RelationEntry(
        "at most k units given other features, each within a radius; for boxes of one model in "
        "full batches, against poisoning alone",
        takes_radius=True,
    ),
    "paper_privacy": RelationEntry(
        "the papers' privacy relation: up to k removals and k additions, mean over the batch; "
        "k here compares with add_remove's 2k"
    ),
    "paper_unlearning": RelationEntry(
        "the papers' unlearning relation: at most k removals, mean over the batch; never for a "
        "privacy release"
    ),
}
