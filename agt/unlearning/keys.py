"""The secret of one run, under which its log and its index name people: without it nobody can test a guess.

Formal guarantees
    A name in the log or in the index is BLAKE2b keyed with 32 random bytes that lie in the run's folder alone, in a file of
    mode 600 that no manifest lists. As BLAKE2b is a pseudorandom function of its key, whoever has log and index and not the
    key learns from them how many records there are and which entries are equal, and nothing of any id: a guessed id cannot
    be tested. Record ids, units and contents are hashed apart (``person``), so that an id that is also a person's name has
    two hashes that nobody can bring together.
"""

import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import get_ident
from typing import Literal

import numpy as np

from agt.disk import sync_folder
from agt.errors import ConfigError

NAME = "unlearning/key"
SIZE = 16  # bytes of a hash
_LENGTH = 32
Kind = Literal["record", "unit", "content", "check"]


@dataclass(frozen=True)
class Key:
    """The secret of one run.

    Raises:
        ConfigError: not 32 bytes.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != _LENGTH:
            raise ConfigError(f"{NAME} holds {len(self.secret)} bytes, and a run's key has {_LENGTH}: bring it back")

    @classmethod
    def of(cls, folder: Path) -> "Key | None":
        """The key that lies in a run's folder; None: there is none.

        Raises:
            ConfigError: it cannot be read, or is none.
        """
        try:
            return cls((folder / NAME).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{folder / NAME}: cannot be read ({error.strerror or error})") from None

    @classmethod
    def made(cls, folder: Path) -> "Key":
        """The key of a run's folder, made if there is none yet. Of two that make one at once, both get the same."""
        there = cls.of(folder)
        if there is None:
            _write_new(folder / NAME, secrets.token_bytes(_LENGTH))
            there = cls((folder / NAME).read_bytes())
        return there

    @property
    def check(self) -> str:
        """Tells whether another key is this one, and nothing else: hexadecimal."""
        return self._hash(b"", "check").hex()

    def names(self, names: Sequence[str] | np.ndarray, kind: Kind) -> np.ndarray:
        """[n, 16] uint8: the keyed hash of each name."""
        return self._hashes((str(name).encode() for name in names), len(names), kind)

    def rows(self, rows: np.ndarray, kind: Kind) -> np.ndarray:
        """[n, 16] uint8: the keyed hash of each row of bytes. ``rows``: [n, width] uint8."""
        content, width = memoryview(rows.tobytes()), rows.shape[1]
        return self._hashes((content[start : start + width] for start in range(0, len(content), width)), len(rows), kind)

    def _hashes(self, contents: Iterable[bytes | memoryview], count: int, kind: Kind) -> np.ndarray:
        hashes = np.fromiter((self._hash(content, kind) for content in contents), dtype=f"V{SIZE}", count=count)
        return hashes.view(np.uint8).reshape(count, SIZE)

    def _hash(self, content: bytes | memoryview, kind: Kind) -> bytes:
        return blake2b(content, digest_size=SIZE, key=self.secret, person=kind.encode()).digest()


def as_words(hashes: np.ndarray) -> tuple[str, ...]:
    """[n, 16] uint8 as hexadecimal digits, one word each, in increasing order and each once: what a log lists."""
    return tuple(sorted({row.tobytes().hex() for row in hashes}))


def _write_new(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read and that was not there; where it is by now, it stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part{os.getpid()}-{get_ident()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            _name(part, path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _name(part: Path, path: Path) -> None:
    """Give a file its name, which must be free: by a link, as nothing else is exclusive and whole at once."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if not path.exists():
            part.rename(path)
