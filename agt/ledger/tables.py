"""Tables whose releases a ledger counts, and the comparison of tables about the same people."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from agt.data.ids import distinct, keyed_hash
from agt.ledger.unit import SINGLE_RECORDS, Unit
from agt.mechanisms.accounts import CountedTable


@dataclass(frozen=True)
class AdmittedTable:
    """A table whose releases a ledger counts.

    Attributes:
        name: the table's name, for messages.
        data: the digest of its data.
        files: the SHA-256 of each file that it was read from.
        unit: the rule by which records of the table belong together, such as those of one person.
        before: digests of the data before records were erased. Nothing more may be released from
            these data once this table is admitted.
        people: a sample of the names of its units: the hashes of ``sample_names``. In a table that
            was read from a ledger they are hashed again with the ledger's salt (``hash_names``).
        paths: the paths of its files when it was admitted.
        columns: a hash of the names of its columns; empty if these are not known.
        apart: whether the owner declared that its people are not those of the other ledgers in the
            folder, although some names occur in both.
    """

    name: str
    data: str
    files: tuple[str, ...] = ()
    unit: Unit = SINGLE_RECORDS
    before: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    columns: str = ""
    apart: bool = False

    def as_json(self, salt: str) -> dict[str, Any]:
        """Return the body of the entry that admits this table, as plain JSON values.

        Args:
            salt: the ledger's salt, with which the sample of names is hashed.
        """
        body = {
            "table": self.name,
            "data": self.data,
            "files": list(self.files),
            "paths": list(self.paths),
            "people": list(hash_names(self.people, salt)),
            "unit": asdict(self.unit),
            "columns": self.columns,
            "apart": self.apart,
        }
        if self.before:
            body["before"] = list(self.before)
        return body

    @classmethod
    def from_json(cls, node: Mapping[str, Any]) -> "AdmittedTable":
        """Return the table that the body of an entry stores.

        Args:
            node: the body: the values that ``as_json`` gave, and others that are not read. Entries
                of earlier versions lack some values, for which the defaults are used.

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
        """What a claim says about the table, without its digests, files and names."""
        return CountedTable(self.name, self.unit.column, self.unit.rows, self.apart)

    def shared_source(self, other: "AdmittedTable") -> str:
        """Return the source that two tables share: "data", "file", or "" if they share neither.

        They share data if a digest of the data, before or after records were erased, is the same.
        Either source shows that both tables are about some of the same people.
        """
        if {self.data, *self.before} & {other.data, *other.before}:
            return "data"
        return "file" if {*self.files} & {*other.files} else ""

    def shared_people(self, admitted: "AdmittedTable", salt: str) -> str:
        """Return a phrase with the number of names that this table shares with an admitted table.

        The phrase is empty if the tables share too few names. Hashes of different names of two
        samples coincide with a probability below 2^-47. One shared name may be a placeholder
        ("unknown"), so two shared names are needed, or all names of the smaller sample.

        Args:
            admitted: a table that was read from a ledger.
            salt: that ledger's salt.
        """
        common, compared = self.count_common_names(admitted, salt)
        if compared == 0 or common < min(2, compared):
            return ""
        sample = "a sample of " if compared == MAX_SAMPLE else ""
        return (
            f"names of people (of {sample}{compared} names that agt compared, {common} are in both "
            "tables)"
        )

    def count_common_names(self, admitted: "AdmittedTable", salt: str) -> tuple[int, int]:
        """Return the number of names in both samples, and the size of the smaller sample.

        Args:
            admitted: a table that the ledger admitted, whose sample of names is hashed.
            salt: the ledger's salt, with which this table's names are hashed.
        """
        common = len({*hash_names(self.people, salt)} & {*admitted.people})
        return common, min(len(self.people), len(admitted.people))

    def shared_properties(self, other: "AdmittedTable") -> str:
        """Return a list, as text, of the properties that two tables share: name, path, columns.

        It is empty if they share none. Tables about different people may share properties, so this
        is a weaker sign than ``shared_source`` and ``shared_people``.
        """
        is_same = {
            "name": self.name == other.name,
            "path": bool({*self.paths} & {*other.paths}),
            "columns": bool(self.columns) and self.columns == other.columns,
        }
        return ", ".join(name for name, same in is_same.items() if same)


MAX_SAMPLE = 256  # the largest number of names of a table whose hashes are stored


def sample_names(names: np.ndarray) -> tuple[str, ...]:
    """Return hashes of a sample of names: the ``MAX_SAMPLE`` smallest hashes, in ascending order.

    The sample depends neither on the order of the names nor on how often each occurs. If the share
    f of a table's names occurs in another table, about 256 f hashes of its sample occur in the
    other's sample.

    Args:
        names: [n], the names of units.

    Returns:
        Hashes of 16 hexadecimal digits, without repetition.
    """
    smallest = distinct(keyed_hash(names, "agt ledger people"))[:MAX_SAMPLE]
    return tuple(f"{name_hash:016x}" for name_hash in smallest.tolist())


def hash_names(sample: Iterable[str], salt: str) -> tuple[str, ...]:
    """Return the sorted hashes with which a ledger stores a sample of names.

    A person who does not have the ledger's salt cannot test a guess of a name with them.

    Args:
        sample: the hashes of ``sample_names``.
        salt: the ledger's salt, in hexadecimal digits.
    """
    key = bytes.fromhex(salt)
    hashes = (blake2b(name.encode(), digest_size=8, key=key).hexdigest() for name in sample)
    return tuple(sorted(hashes))
