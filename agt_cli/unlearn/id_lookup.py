"""Find what the ids of a request name in a run's data."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from agt.data.ids import CONTENT
from agt_cli.command_settings.unlearn import By
from agt_cli.unlearn.hash_key import KeyKind, hexadecimal
from agt_cli.unlearn.ids_file import ListedId
from agt_cli.unlearn.record_index import places
from agt_cli.unlearn.training_records import TrainingRecords

_SEVERAL = re.compile("[;,]")  # what separates ids where somebody writes several in one line
_QUOTED = re.compile(r"""["'“‘”’](.+)["'“‘”’]""")  # an id in quotes, as some programs write text
_NAME_KINDS: tuple[KeyKind, ...] = ("record", "unit")
Match = Literal["training", "asked", "test", "unknown"]
"""What an id of a request names: training records that can be erased; records whose erasure was
requested before; test records only; or no record of the data.
"""


@dataclass(frozen=True)
class RequestedId:
    """An id of a request, and what it names.

    Attributes:
        name: the id.
        place: its place in the file, such as "line 3"; if its erasure was requested before, also
            the entry of the request log.
        rows: the rows in the index of the training records that it names.
        match: what it names.
    """

    name: str
    place: str
    rows: np.ndarray
    match: Match


@dataclass(frozen=True)
class IdLookup:
    """Finds what the ids of a request name in a run's data.

    Attributes:
        known: the run's training records.
        by: what the ids name: records, or units with all of their records.
    """

    known: TrainingRecords
    by: By

    @property
    def finds_units(self) -> bool:
        """Whether ids name units. Without units in the data, they name records in any case."""
        return self.by == "unit" and self.known.index.units is not None

    @cached_property
    def test_names(self) -> np.ndarray:
        """[t] the names that the test records have, of records or units."""
        test = self.known.data.test
        return test.units if self.by == "unit" else test.ids

    @cached_property
    def is_named_by_content(self) -> bool:
        """Whether ids can only be hashes of the content of records."""
        if self.finds_units:
            return False
        # A class of the user's own may have a setting ``id`` and make ids of another form.
        is_hash = CONTENT.fullmatch(str(self.known.data.train.ids[0])) is not None
        return is_hash and getattr(self.known.source, "id", "") is None

    @cached_property
    def _distinct_test_names(self) -> set[str]:
        """The different names among ``test_names``, for a fast search."""
        return set(self.test_names.tolist())

    def find(self, ids: Sequence[ListedId]) -> list[RequestedId]:
        """Return what each distinct id names, in the order of the file.

        Args:
            ids: the ids. Of a repeated id, the first place is taken.
        """
        places_of_names: dict[str, str] = {}
        for listed in ids:
            places_of_names.setdefault(listed.name, listed.place)
        rows_of_names = self.index_rows([*places_of_names])
        requested = []
        for (name, place), rows in zip(places_of_names.items(), rows_of_names, strict=True):
            match = self._match(name, rows)
            if match == "asked":
                place = f"{place} (in entry {self._entry_of(name)} of the request log)"
            requested.append(RequestedId(name, place, rows, match))
        return requested

    def index_rows(self, names: list[str]) -> list[np.ndarray]:
        """Return for each name the rows in the index that it names; an empty array: there is none.

        Args:
            names: the names of records or units.
        """
        column = self.known.index.ids
        kind: KeyKind = "record"
        if self.by == "unit" and self.known.index.units is not None:
            column = self.known.index.units
            kind = "unit"
        hashes = self.known.key.names(names, kind)
        groups = dict[bytes, list[int]]()
        for row in places(column, hashes).tolist():
            groups.setdefault(column[row].tobytes(), []).append(row)
        return [np.array(groups.get(hashed.tobytes(), ()), dtype=np.int64) for hashed in hashes]

    def _match(self, name: str, rows: np.ndarray) -> Match:
        """Return what an id names, given the rows in the index that it names."""
        if not self.known.is_pending[rows].all():
            return "training"
        if self._entry_of(name) is not None:
            return "asked"
        return "test" if name in self._distinct_test_names else "unknown"

    def _entry_of(self, name: str) -> int | None:
        """Return the number of the first entry of the request log that names an id; None: none."""
        key = self.known.key
        hashes = {hexadecimal(key.names([name], kind)[0]) for kind in _NAME_KINDS}
        for entry in self.known.log.entries:
            if not hashes.isdisjoint((*entry.records, *entry.units)):
                return entry.number
        return None

    def lists_ids(self, line: str) -> bool:
        """Return whether a line that is no id lists several.

        It does if one of its parts, cut at commas and semicolons, is an id; or if all of its words
        are, because an id may have blanks.
        """
        parts = [ListedId(part.strip(), "") for part in _SEVERAL.split(line)]
        if len(parts) > 1:
            return any(part.match != "unknown" for part in self.find(parts))
        words = [ListedId(word, "") for word in line.split()]
        return len(words) > 1 and all(word.match != "unknown" for word in self.find(words))

    def is_quoted_id(self, line: str) -> bool:
        """Return whether a line that is no id is one if the quotes around it are removed."""
        quoted = _QUOTED.fullmatch(line)
        if quoted is None:
            return False
        (inner,) = self.find([ListedId(quoted[1].strip(), "")])
        return inner.match != "unknown"

    def is_header(self, line: str) -> bool:
        """Return whether a line is the name of the data's column of ids or of units."""
        columns = (getattr(self.known.source, name, None) for name in ("id", "unit"))
        return line in columns

    def may_be_ignored(self, requested: RequestedId) -> bool:
        """Return whether an id is unknown, and is not a mistake.

        An id of the other kind (``by``), an id in quotes and a line that lists several ids are
        mistakes, which are refused also where ids may be unknown. So is an id that is no hash where
        hashes of content name the records, because it could not be found even if the person's
        records are there.
        """
        name = requested.name
        if requested.match != "unknown" or self.lists_ids(name) or self.is_header(name):
            return False
        if self.is_quoted_id(name):
            return False
        if self.is_named_by_content and not CONTENT.fullmatch(name):
            return False
        other_kind = IdLookup(self.known, "id" if self.by == "unit" else "unit")
        (rows,) = other_kind.index_rows([name])
        return not len(rows) and name not in other_kind.test_names
