"""Neighbour relations: which datasets are neighbours, and bounds on what their batches sum to.

``RELATIONS`` maps the names that users type to the relations. names.py lists the names,
relation.py has the base class, and each relation has a file of its own name.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from agt.relations.names import ENTRIES

if TYPE_CHECKING:
    from agt.relations.relation import Relation


class RelationRegistry(Mapping[str, "Relation"]):
    """A read-only mapping from a relation's name to the relation.

    A relation's file is imported when its name is looked up, because importing it earlier would be
    circular: agt.settings imports this package for the names, and relations import agt.settings.
    """

    def __getitem__(self, name: str) -> "Relation":
        """Return the relation with a given name.

        Raises:
            KeyError: no relation has this name.
        """
        if name not in ENTRIES:
            raise KeyError(name)
        # Each relation has a module of its name here, which is imported when it is first needed.
        module = import_module(f"{__name__}.{name}")
        relation: Relation = module.RELATION
        return relation

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of ``ENTRIES``."""
        return iter(ENTRIES)

    def __len__(self) -> int:
        """Return the number of relations."""
        return len(ENTRIES)


RELATIONS = RelationRegistry()
