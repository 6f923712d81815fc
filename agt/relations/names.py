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
        "at most k units (people) with changed features, each feature by at most "
        "relation.radius; only for certificate=box with one model and one batch; about "
        "poisoning, not about privacy",
        takes_radius=True,
    ),
    "paper_privacy": RelationEntry(
        "the privacy relation of the published papers (docs/bibliography.md 000, 001): up to "
        "k removals and k additions, with the mean over the batch; compare its k with 2k of "
        "add_remove"
    ),
    "paper_unlearning": RelationEntry(
        "the unlearning relation of the published papers (docs/bibliography.md 000): at most "
        "k removals, with the mean over the batch; for unlearning, never for a privacy release"
    ),
}
