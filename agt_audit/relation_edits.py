"""Which edits of the records are within one k of a relation, stated again for audits."""

import math
from enum import Enum

import numpy as np

from agt.errors import ConfigError
from agt_audit.edited_records import EditedRecords


class EditKind(Enum):
    """One change of the records; an edit of one k makes one or two of them (``EDITS``)."""

    LEAVES = "a unit leaves"
    COMES = "a unit comes"
    REPLACED = "a unit is removed and another is added"
    MOVES = "the features of a unit (person) change by at most relation.radius"
    RELABELLED = "a unit gets another label"


_LEAVES = (EditKind.LEAVES,)
_COMES = (EditKind.COMES,)
_REPLACED = (EditKind.REPLACED,)
EDITS: dict[str, tuple[tuple[EditKind, ...], ...]] = {
    "add_remove": (_LEAVES, _LEAVES, _COMES, _COMES, _COMES),
    "remove": (_LEAVES,),
    "substitute": (_REPLACED, _REPLACED, _REPLACED, _LEAVES, _COMES),
    "flip": ((EditKind.RELABELLED,),),
    "perturb": ((EditKind.MOVES,),),
    "paper_privacy": (_REPLACED, _REPLACED, _REPLACED, _LEAVES, _COMES),
    "paper_unlearning": (_LEAVES,),
}
"""Name of a relation -> the edits that are within one k.

Each edit lists the changes that it makes, in this order. An attack draws one of the edits, so an
edit that is listed more often is made more often.

The table repeats on purpose what the rules in agt/relations/ say: an audit that asked them would
repeat their mistakes. If one k replaces a unit, removing or adding one is within one k too."""


def edits_of(relation: str) -> tuple[tuple[EditKind, ...], ...]:
    """Return the entry of ``EDITS`` for a relation.

    Args:
        relation: its name, as ``relation.name`` in settings.

    Raises:
        ConfigError: ``EDITS`` has no such relation, so this audit cannot make its neighbours.
    """
    if relation not in EDITS:
        known = ", ".join(EDITS)
        raise ConfigError(
            f"relation={relation}: this audit cannot make neighbouring datasets under this "
            f"relation. Audit a run with relation={known}"
        )
    return EDITS[relation]


def kinds_of(relation: str) -> set[EditKind]:
    """Return every kind of change that some edit of one k makes; raises as ``edits_of``."""
    return {kind for edit in edits_of(relation) for kind in edit}


def replaces(relation: str) -> bool:
    """Return whether one k may remove one unit and add another; raises as ``edits_of``."""
    return EditKind.REPLACED in kinds_of(relation)


def edit_distance(edit: EditedRecords, relation: str) -> int:
    """Return the distance k of a neighbour, from the units that were removed and added.

    It is at most ``edit.distance``, which counts edits; some edits may have changed nothing.
    """
    removed = len(np.unique(edit.original.units[edit.removed_rows]))
    added = len(edit.added)
    only_removes_or_adds = kinds_of(relation) <= {EditKind.LEAVES, EditKind.COMES}
    # If one k replaces or changes a unit, it both removes and adds one.
    changes = removed + added if only_removes_or_adds else max(removed, added)
    changes_per_k = max(len(steps) for steps in edits_of(relation))
    return math.ceil(changes / changes_per_k)
