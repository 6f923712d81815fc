"""Entries of a ledger, each bound to the one before it by its hash.

Formal guarantees
    An entry's hash is over its own content, its number and the hash before it. So whoever knows the last number and hash
    (a head) knows all of it: no other sequence of entries has the same one (SHA-256). Whoever rewrites an entry and every
    later one makes another chain, sound in itself: only a head kept at a second place tells the two apart.
    Hashes tell nothing about the data whose digests are in entries: the first entry holds 32 random bytes ("salt").
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
from agt.manifest import Broken

Row = tuple[int, object, object]
START = "0" * 64
_EXACT = 2**53  # integers up to here are the same number in every reader of JSON
_ODD = re.compile(r"\\ud|[:,\[]-?\d{16}")  # what ``_check`` may refuse, in text that was read
_HEAD = re.compile(r"([1-9]\d{0,15}):([0-9a-f]{16,64})")


@dataclass(frozen=True)
class Head:
    """Where a chain ends: the number of entries, and the last one's hash, of which a person may have kept the start."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def read(cls, text: str) -> "Head | None":
        """From COUNT:HASH, or COUNT: and at least the first 16 digits of it; None: it is none."""
        match = _HEAD.fullmatch(text.strip().lower())
        return cls(int(match[1]), match[2]) if match else None


@dataclass(frozen=True)
class Entry:
    """One entry.

    Attributes:
        number: 1 for the first.
        kind: what it tells: open, admit, debit, answers, head.
        body: plain JSON values.
        before: the hash of the entry before; ``START`` of the first.
    """

    number: int
    kind: str
    body: Mapping[str, Any]
    before: str

    @cached_property
    def text(self) -> str:
        """Canonical JSON of all of it, in ASCII: what is stored, and hashed.

        Raises:
            ConfigError: a value that not every reader of JSON reads alike.
        """
        _check(vars(self), "entry")
        return self._written

    @property
    def _written(self) -> str:
        node = {"number": self.number, "kind": self.kind, "before": self.before, "body": self.body}
        return json.dumps(node, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of ``text``, in hexadecimal."""
        return hash_of(self.text)

    @property
    def head(self) -> Head:
        """A chain that ends here."""
        return Head(self.number, self.hash)

    @property
    def time(self) -> str:
        """When it was made, by the clock of the machine that made it; nothing rests on it."""
        return str(self.body.get("time", ""))

    @classmethod
    def read(cls, text: object, number: int, before: str, hash: object) -> "Entry":
        """From what ``text`` gave.

        Args:
            number, before: those that it must have, where it stands.
            hash: as it was written beside it: it shows a careless edit of the last entry, which none follows.

        Raises:
            Broken: it is not, byte for byte, or does not follow.
        """
        try:
            node = json.loads(str(text))
            entry = cls(node["number"], node["kind"], node["body"], node["before"])
            if _ODD.search(str(text)):
                _check(node, "entry")
            same = entry._written == text
        except (ValueError, TypeError, KeyError, RecursionError, ConfigError):
            same = False
        if not same:
            raise Broken(f"entry {number} is not as it was written: {str(text)[:60]!r}")
        vars(entry)["text"] = text  # known now
        if entry.hash != hash:
            raise Broken(f"entry {number} was edited: it has another hash than is written beside it")
        if entry.number != number:
            raise Broken(f"entry {number} is gone: in its place lies one that is numbered {entry.number}")
        if entry.before != before:
            raise Broken(f"the chain breaks: entry {number - 1} was edited, or entry {number} does not follow it")
        return entry


def follow(rows: Iterable[Row], last: Entry | None = None) -> Iterator[Entry]:
    """The entries of a chain, each checked against the one before.

    Args:
        rows: (number, hash, text) of each, in order.
        last: the one before the first of them; None: none.

    Raises:
        Broken: one was edited, taken out, or put in.
    """
    number, before = (last.number, last.hash) if last else (0, START)
    for place, written, text in rows:
        number += 1
        if place != number:
            raise Broken(f"entry {number} is gone: the next one there is {place}")
        entry = Entry.read(text, number, before, written)
        before = entry.hash
        yield entry


def hash_of(text: str) -> str:
    """SHA-256 of an entry's text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def _check(value: object, key: str) -> None:
    """Refuse what JSON writes and not everybody reads alike: half characters, NaN, infinity, integers beyond 2^53."""
    if isinstance(value, str):
        if not value.isascii() and not _whole(value):
            raise ConfigError(f"{key}: text with half a character (a lone surrogate) cannot be kept: {value!r}")
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(name, str):
                raise ConfigError(f"{key}: {name!r} is no text, and cannot name a value")
            _check(name, key)
            _check(part, name)
    elif isinstance(value, list | tuple):
        for part in value:
            _check(part, key)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"{key}: {value} is no number that can be kept")
    elif isinstance(value, int):
        if abs(value) > _EXACT:
            raise ConfigError(f"{key}: a whole number beyond 2^53, up to which every reader of JSON has the same ones")
    elif value is not None:
        raise ConfigError(f"{key}: {type(value).__name__} cannot be kept")


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
