"""Tables that a ledger admitted, and how two tables are found to be about the same people."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from agt.data.ids import distinct, keyed_hash
from agt.ledger.unit import EACH, Unit
from agt.mechanisms.accounts import CountedTable


@dataclass(frozen=True)
class AdmittedTable:
    """A table whose releases a ledger counts.

    Attributes:
        name: how people call it.
        data: the digest of its data.
        files: the SHA-256 of each file that it was read from.
        unit: in which unit runs on this table count.
        before: digests of the data before records were erased. The table is about some of the same
            people, and nothing more is released from those earlier data.
        people: ``sample_of`` the names of its units. A table that a ledger admitted has them
            ``keyed`` with the ledger's salt.
        paths: the paths of its files when it was admitted.
        columns: a hash of the names of its columns; empty if it is not known.
        apart: whether the owner declared that its people are others than those of a neighbouring
            ledger's table, although some names are the same.
    """

    name: str
    data: str
    files: tuple[str, ...] = ()
    unit: Unit = EACH
    before: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    columns: str = ""
    apart: bool = False

    def as_json(self, salt: str) -> dict[str, Any]:
        """Return the body of the entry that admits this table, as plain JSON values.

        Args:
            salt: the ledger's salt, with which the names of people are hashed.
        """
        body = {
            "table": self.name,
            "data": self.data,
            "files": list(self.files),
            "paths": list(self.paths),
            "people": list(keyed(self.people, salt)),
            "unit": asdict(self.unit),
            "columns": self.columns,
            "apart": self.apart,
        }
        if self.before:
            body["before"] = list(self.before)
        return body

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "AdmittedTable":
        """Return the table that the body of an entry describes.

        Args:
            node: what ``as_json`` gave, among other values. Entries of earlier versions lack the
                values that have a default.

        Raises:
            KeyError, TypeError, ConfigError: the body is not one of a table.
        """
        return cls(
            name=node["table"],
            data=node["data"],
            files=tuple(node["files"]),
            unit=Unit(**node["unit"]),
            before=tuple(node.get("before", ())),
            people=tuple(node.get("people", ())),
            paths=tuple(node.get("paths", ())),
            columns=node.get("columns", ""),
            apart=node.get("apart", False),
        )

    @property
    def counted(self) -> CountedTable:
        """What claims say about the table."""
        return CountedTable(self.name, self.unit.column, self.unit.rows, self.apart)

    def shares(self, other: "AdmittedTable") -> str:
        """Return what shows that another table is about the same people: "data" or "file".

        It is empty if neither shows it.
        """
        if {self.data, *self.before} & {other.data, *other.before}:
            return "data"
        return "file" if {*self.files} & {*other.files} else ""

    def shares_people(self, admitted: "AdmittedTable", salt: str) -> str:
        """Return, in words, how many people this table shares with one that a ledger admitted.

        It is empty if they share nobody beyond chance. Hashes of different names of two samples
        coincide with a probability below 2^-47. One shared name may stand for nobody ("unknown"),
        so two shared names are needed, or all names of the smaller sample.

        Args:
            admitted: a table that a ledger admitted.
            salt: that ledger's salt.
        """
        common = len({*keyed(self.people, salt)} & {*admitted.people})
        compared = min(len(self.people), len(admitted.people))
        if compared == 0 or common < min(2, compared):
            return ""
        return f"people ({common} of {compared} compared names occur in both tables)"

    def resembles(self, other: "AdmittedTable") -> str:
        """Return what two tables, perhaps about different people, share: name, path, columns.

        It is empty if they share none of these.
        """
        is_same = {
            "name": self.name == other.name,
            "path": bool({*self.paths} & {*other.paths}),
            "columns": bool(self.columns) and self.columns == other.columns,
        }
        return ", ".join(name for name, same in is_same.items() if same)


MAX_SAMPLE = 256  # hashes of names that are kept of a table


def sample_of(names: np.ndarray) -> tuple[str, ...]:
    """Return a sample of names as hashes: the ``MAX_SAMPLE`` smallest hashes, in order.

    The sample depends neither on the order of the names nor on how often each occurs. If the share
    f of a table's names occurs in another table, about 256 f hashes of its sample occur in the
    other's sample.

    Args:
        names: [n], the names of units.
    """
    smallest = distinct(keyed_hash(names, "agt ledger people"))[:MAX_SAMPLE]
    return tuple(f"{name_hash:016x}" for name_hash in smallest.tolist())


def keyed(people: Iterable[str], salt: str) -> tuple[str, ...]:
    """Return the hashes of a sample of names that a ledger keeps, sorted.

    Whoever does not have the ledger's salt cannot test a guess of a name with them.

    Args:
        people: ``sample_of`` the names.
        salt: the ledger's salt, in hexadecimal digits.
    """
    key = bytes.fromhex(salt)
    hashes = (blake2b(name.encode(), digest_size=8, key=key).hexdigest() for name in people)
    return tuple(sorted(hashes))
