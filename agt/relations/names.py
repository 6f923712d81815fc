"""The names of the neighbour relations, each with the facts that settings need.

A relation is an entry here and a module of this package with the entry's name, whose ``RELATION``
is an instance of its class. Nothing is imported here, because settings, help and a shell's
completion read this file.
"""

from typing import NamedTuple


class RelationEntry(NamedTuple):
    """What settings know about a relation before its module is imported.

    Attributes:
        summary: one line about the relation for lists of options.
        takes_radius: True if the setting ``relation.radius`` must be given; every other relation
            refuses it.
    """

    summary: str
    takes_radius: bool = False


ENTRIES: dict[str, RelationEntry] = {
    "add_remove": RelationEntry(
        "at most k units (people) added or removed in all; constant normaliser (the default)"
    ),
    "remove": RelationEntry(
        "at most k units (people) removed; for unlearning, never for a privacy release"
    ),
    "substitute": RelationEntry(
        "at most k units (people) exchanged for others; constant normaliser"
    ),
    "flip": RelationEntry(
        "at most k labels changed; for linear heads (with certificate=votes, ridge "
        "regressions count them exactly); features are not protected"
    ),
    "perturb": RelationEntry(
        "at most k units (people) given other features, each within a radius; for boxes of "
        "one model in full batches; only about poisoning, not privacy",
        takes_radius=True,
    ),
    "paper_privacy": RelationEntry(
        "the papers' privacy relation: up to k removals and k additions, mean over the batch; "
        "its k compares with 2k of add_remove"
    ),
    "paper_unlearning": RelationEntry(
        "the papers' unlearning relation: at most k removals, mean over the batch; for "
        "unlearning, never for a privacy release"
    ),
}
