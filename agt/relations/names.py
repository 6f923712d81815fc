"""The names of the neighbour relations, each with the facts that settings need.

A relation is an entry here and a module of this package with the entry's name, whose ``RELATION``
is an instance of its class. Nothing is imported here, because settings, help and a shell's
completion read this file.
"""

from typing import NamedTuple


class RelationEntry(NamedTuple):
    """The properties of a relation that settings need before its module is imported.

    Attributes:
        summary: one line about the relation for lists of options.
        takes_radius: True if the setting ``relation.radius`` must be given; every other relation
            refuses it.
    """

    summary: str
    takes_radius: bool = False


ENTRIES: dict[str, RelationEntry] = {
    "add_remove": RelationEntry(
        "the default: at most k units (people) are added or removed in all, and training divides "
        "sums by a constant"
    ),
    "remove": RelationEntry(
        "at most k units (people) removed; for unlearning, never for a privacy release"
    ),
    "substitute": RelationEntry(
        "at most k units (people) are exchanged for others, and training divides sums by a constant"
    ),
    "flip": RelationEntry(
        "at most k labels changed; features are not protected; only for linear heads"
    ),
    "perturb": RelationEntry(
        "at most k units (people) with changed features, each feature by at most "
        "relation.radius. Only for certificate=box with one model and one batch; about "
        "poisoning, not about privacy",
        takes_radius=True,
    ),
    "paper_privacy": RelationEntry(
        "as in the published papers (000 and 001 in docs/bibliography.md): up to k removals and "
        "k additions, with gradients averaged over the batch. k of this relation is 2k of "
        "add_remove"
    ),
    "paper_unlearning": RelationEntry(
        "as in the published papers on unlearning (000 in docs/bibliography.md): at most k "
        "removals, with gradients averaged over the batch; never for a privacy release"
    ),
}
