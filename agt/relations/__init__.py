"""Neighbour relations: which datasets are neighbours, and what that does to a batch's sum.

``RELATIONS`` is the way to them. relation.py says what each owes, names.py lists them.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from agt.relations.names import ENTRIES

if TYPE_CHECKING:
    from agt.relations.relation import Relation


class RelationRegistry(Mapping[str, "Relation"]):
    """Name -> relation.

    A relation's file is imported when it is asked for: settings import this package for the names
    alone, and are themselves imported by the rules.
    """

    def __getitem__(self, name: str) -> "Relation":
        if name not in ENTRIES:
            raise KeyError(name)
        relation: Relation = import_module(f"{__name__}.{name}").RELATION
        return relation

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)


RELATIONS = RelationRegistry()
