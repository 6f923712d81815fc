"""Entries of a ledger, each bound to the one before it by its hash.

Formal guarantees
    An entry's hash is over its own content, its number and the hash before it. So whoever knows the last number and hash
    (a head) knows all of it: no other sequence of entries has the same one (SHA-256). Whoever rewrites an entry and every
    later one makes another chain, sound in itself: only a head kept at a second place tells the two apart.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from agt.manifest import Broken

START = "0" * 64


@dataclass(frozen=True)
class Head:
    """Where a chain ends: the number of entries, and the last one's hash."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"


@dataclass(frozen=True)
class Entry:
    """One entry.

    Attributes:
        number: 1 for the first.
        kind: what it tells: open, admit, debit, answers.
        body: plain JSON values.
        before: the hash of the entry before; ``START`` of the first.
    """

    number: int
    kind: str
    body: Mapping[str, Any]
    before: str

    @property
    def text(self) -> str:
        """Canonical JSON of all of it: what is stored, and hashed."""
        return json.dumps(
            {"number": self.number, "kind": self.kind, "before": self.before, "body": dict(self.body)},
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
        )

    @property
    def hash(self) -> str:
        """SHA-256 of ``text``, in hexadecimal."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def head(self) -> Head:
        """A chain that ends here."""
        return Head(self.number, self.hash)

    @classmethod
    def read(cls, text: str) -> "Entry":
        """From what ``text`` gave.

        Raises:
            Broken: it is not, byte for byte.
        """
        try:
            node = json.loads(text)
            entry = cls(node["number"], node["kind"], node["body"], node["before"])
            same = entry.text == text
        except (ValueError, TypeError, KeyError, RecursionError):
            same = False
        if not same:
            raise Broken(f"an entry is not as it was written: {text[:80]!r}")
        return entry


def follow(texts: Iterable[str]) -> list[Entry]:
    """The entries of a whole chain, each checked against the one before.

    Raises:
        Broken: one was edited, taken out, or put in.
    """
    entries: list[Entry] = []
    before = START
    for number, text in enumerate(texts, start=1):
        entry = Entry.read(text)
        if entry.number != number:
            raise Broken(f"entry {number} is gone: the one in its place is numbered {entry.number}")
        if entry.before != before:
            raise Broken(
                f"entry {number - 1 or number} was edited, or entry {number} does not follow it: the chain breaks there"
            )
        entries.append(entry)
        before = entry.hash
    return entries
