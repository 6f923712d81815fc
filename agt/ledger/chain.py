"""The chain of a ledger's entries, each of which contains the hash of the entry before it.

So the last hash determines all entries (Lemma 1 of docs/proofs/ledger.md).
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from agt.errors import ConfigError
from agt.store.reading import Broken

Row = tuple[int, object, object]  # (number, hash, text) of an entry, as read from the file
START = "0" * 64  # takes the place of the hash before the first entry
_EXACT = 2**53  # integers up to here are the same number in every reader of JSON
# JSON text without a match contains no value that ``_check_portable`` refuses.
_MAYBE_REFUSED = re.compile(r"\\ud|[:,\[]-?\d{16}")
HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # a lone surrogate
_HEAD = re.compile(r"([1-9]\d{0,15}):([0-9a-f]{16,64})")


class AlteredLedger(Broken):
    """A ledger was altered or damaged after agt wrote it.

    Args:
        finding: a clause that says what shows it, with which the message begins.
    """

    def __init__(self, finding: str) -> None:
        super().__init__(
            f"{finding}, so the ledger was altered or damaged after agt wrote it. Restore the "
            "newest intact copy of the ledger"
        )


@dataclass(frozen=True)
class Head:
    """The end of a chain: the number of entries, and the hash of the last one.

    Attributes:
        count: the number of entries.
        hash: the hash in hexadecimal digits; or, if a person wrote the head down, perhaps only its
            first digits, at least 16.
    """

    count: int
    hash: str

    def __str__(self) -> str:
        """Return COUNT:HASH, which ``read`` reads."""
        return f"{self.count}:{self.hash}"

    @classmethod
    def read(cls, text: str) -> "Head | None":
        """Return the head that a text states; None if the text does not have the form COUNT:HASH.

        Args:
            text: COUNT is a number, and HASH is the hash or its first digits, at least 16. Capital
                letters and blanks around them are accepted.
        """
        match = _HEAD.fullmatch(text.strip().lower())
        return cls(int(match[1]), match[2]) if match else None


@dataclass(frozen=True)
class Entry:
    """One entry of a chain.

    Attributes:
        number: its place in the chain, 1 for the first entry.
        kind: the event that it records: "open", "admit", "debit", "answers", "head", "declare" or
            "checkpoint".
        body: the values that entries of this kind record, as plain JSON values.
        before: the hash of the entry before it; ``START`` in the first entry.
    """

    number: int
    kind: str
    body: Mapping[str, Any]
    before: str

    @cached_property
    def text(self) -> str:
        """The entry as canonical JSON in ASCII, which is stored and hashed.

        Raises:
            ConfigError: the entry has a value that some programs would read differently from JSON.
        """
        _check_portable(vars(self), "entry")
        return self._canonical_json

    @property
    def _canonical_json(self) -> str:
        """The entry as JSON with sorted keys and no blanks; its values are not checked."""
        node = {"number": self.number, "kind": self.kind, "before": self.before, "body": self.body}
        return json.dumps(node, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of ``text``, in hexadecimal digits."""
        return hash_of(self.text)

    @property
    def head(self) -> Head:
        """The head of a chain whose last entry is this one."""
        return Head(self.number, self.hash)

    @property
    def time(self) -> str:
        """When the entry was written, by its machine's clock; empty if that is not recorded.

        No check relies on it.
        """
        return str(self.body.get("time", ""))

    @classmethod
    def read(cls, text: object, number: int, before: str | None, hash: object) -> "Entry":
        """Return the entry that a stored text contains, after checking it.

        Args:
            text: the stored text, which must be what ``Entry.text`` gave, byte for byte; any other
                value, None included, is reported as a change.
            number: the number that the entry must have.
            before: the hash of the entry before it; None: this link is not checked.
            hash: the hash that is stored with the text. It shows a change of the last entry, whose
                hash is in no later entry.

        Raises:
            AlteredLedger: the entry was changed, or has another number or another entry before it.
        """
        try:
            node = json.loads(str(text))
            entry = cls(node["number"], node["kind"], node["body"], node["before"])
            if _MAYBE_REFUSED.search(str(text)):
                _check_portable(node, "entry")
            is_unchanged = entry._canonical_json == text
        except (ValueError, TypeError, KeyError, RecursionError, ConfigError):
            is_unchanged = False
        if not is_unchanged:
            beginning = str(text)[:60]
            raise AlteredLedger(
                f"entry {number} was changed after it was written (its text now begins with "
                f"{beginning!r})"
            )
        vars(entry)["text"] = text  # fills the cached property, so that it is not computed again
        if entry.hash != hash:
            raise AlteredLedger(
                f"entry {number} was changed (the hash of its text is not the recorded one)"
            )
        if entry.number != number:
            raise AlteredLedger(
                f"entry {number} is missing (the entry at its place has the number {entry.number})"
            )
        if before is not None and entry.before != before:
            raise AlteredLedger(f"entry {number} does not contain the hash of entry {number - 1}")
        return entry


def read_chain(rows: Iterable[Row], last: Entry | None = None) -> Iterator[Entry]:
    """Yield the entries that rows of a ledger's file contain, each checked against the one before.

    Args:
        rows: (number, hash, text) of each entry, in order.
        last: the entry before the first of the rows; None if the rows begin the chain.

    Raises:
        AlteredLedger: an entry was changed, removed or inserted. Entries before it were yielded.
    """
    number = last.number if last else 0
    before = last.hash if last else START
    for stored_number, stored_hash, text in rows:
        number += 1
        if stored_number != number:
            raise AlteredLedger(
                f"entry {number} is missing (the next entry that exists has the number "
                f"{stored_number})"
            )
        entry = Entry.read(text, number, before, stored_hash)
        before = entry.hash
        yield entry


def hash_of(text: str) -> str:
    """Return the SHA-256 of an entry's text, in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()


def _check_portable(value: object, key: str) -> None:
    """Raise ConfigError for a value that some programs would read differently from JSON.

    Such values are text with a lone surrogate (half a character), NaN, infinity and integers beyond
    2^53. Values of other types than those of JSON are refused, too.

    Args:
        value: a value of an entry; mappings and lists are searched.
        key: the name of the value, for the message.
    """
    refused = ""
    if isinstance(value, str):
        if HALF_CHARACTER.search(value):
            refused = f"{value!r}, which contains half a character (a lone surrogate)"
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(name, str):
                refused = f"the key {name!r}, which is not text"
                break
            _check_portable(name, key)
            _check_portable(part, name)
    elif isinstance(value, list | tuple):
        for part in value:
            _check_portable(part, key)
    elif isinstance(value, float):
        if not math.isfinite(value):
            refused = f"{value} (only finite numbers)"
    elif isinstance(value, int):
        if abs(value) > _EXACT:
            refused = "whole numbers beyond 2^53, which some readers of JSON would round"
    elif value is not None:
        refused = f"a value of the type {type(value).__name__}"
    if refused:
        raise ConfigError(f"{key}: a ledger cannot store {refused}")
