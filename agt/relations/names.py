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
        "at most k units (people) added or removed in all; sums are divided by a constant "
        "normaliser (the default)"
    ),
    "remove": RelationEntry(
        "at most k units (people) removed; for unlearning, never for a privacy release"
    ),
    "substitute": RelationEntry(
        "at most k units (people) exchanged for others; sums are divided by a constant normaliser"
    ),
    "flip": RelationEntry(
        "at most k labels changed, while features are not protected; only for linear heads "
        "(ridge regressions with certificate=votes count changed labels exactly)"
    ),
    "perturb": RelationEntry(
        "at most k units (people) given other features, each feature changed by at most a given "
        "radius; only for certificate=box with one model and one batch; protects against "
        "poisoning, not privacy",
        takes_radius=True,
    ),
    "paper_privacy": RelationEntry(
        "the papers' privacy relation: up to k removals and k additions, with the mean over the "
        "batch; compare its k with 2k of add_remove"
    ),
    "paper_unlearning": RelationEntry(
        "the papers' unlearning relation: at most k removals, with the mean over the batch; for "
        "unlearning, never for a privacy release"
    ),
}
