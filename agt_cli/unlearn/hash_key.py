"""The secret key of one run, under which its request log and its index name people.

Formal guarantees
    - A name in the log or in the index is BLAKE2b keyed with 32 random bytes, which are only in the
      run's folder, in a file of mode 600 that no manifest lists. BLAKE2b is a pseudorandom function
      of its key. So whoever has log and index, but not the key, learns how many records there are
      and which entries are equal, and nothing of any id: a guessed id cannot be tested.
    - Record ids, units and contents are hashed with different personalisations (``person``), so an
      id that is also a person's name has two hashes that nobody without the key can connect.
"""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import get_ident
from typing import Literal

import numpy as np

from agt.data.ids import hash_names, hash_rows
from agt.errors import ConfigError
from agt.store.atomic import sync_folder

KEY_FILE = "unlearning/key"
SIZE = 16  # bytes of a hash
_KEY_BYTES = 32
KeyKind = Literal["record", "unit", "content", "codes", "check"]


@dataclass(frozen=True)
class HashKey:
    """The secret key of one run, under which its request log and index hash names.

    Attributes:
        secret: 32 random bytes.

    Raises:
        ConfigError: ``secret`` does not have 32 bytes.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        length = len(self.secret)
        if length != _KEY_BYTES:
            raise ConfigError(
                f"{KEY_FILE} has {length} bytes, but the key of a run must have {_KEY_BYTES} "
                "bytes: restore the file from a copy of the run"
            )

    @classmethod
    def of(cls, folder: Path) -> "HashKey | None":
        """Read the key in a run's folder; return None if the run has none.

        Raises:
            ConfigError: the file cannot be read, or does not have 32 bytes.
        """
        try:
            return cls((folder / KEY_FILE).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            path = folder / KEY_FILE
            reason = error.strerror or error
            raise ConfigError(
                f"{path}: agt cannot read this file ({reason}): make it readable"
            ) from None

    @classmethod
    def read_or_create(cls, folder: Path) -> "HashKey":
        """Read the key in a run's folder; write a new random key first if there is none.

        Two processes that do this at the same time both get the key that was written first.

        Raises:
            ConfigError: there is a key that cannot be read, or that does not have 32 bytes.
        """
        key = cls.of(folder)
        if key is None:
            _write_new(folder / KEY_FILE, secrets.token_bytes(_KEY_BYTES))
            # Read back, because another process may have written its key first.
            key = cls((folder / KEY_FILE).read_bytes())
        return key

    @property
    def check(self) -> str:
        """The hash of the empty text, in hexadecimal digits, with which keys can be compared.

        It is stored with the hashes, and reveals nothing about the key.
        """
        return hexadecimal(self.names([""], "check")[0])

    def names(self, names: Sequence[str] | np.ndarray, kind: KeyKind) -> np.ndarray:
        """Return the keyed hash of each of n names, [n, 16] uint8.

        Args:
            names: the names, as text.
            kind: what they name. The same name has another hash for each kind.
        """
        return hash_names(self._keyed(kind), names)

    def rows(self, rows: np.ndarray, kind: KeyKind) -> np.ndarray:
        """Return the keyed hash of each of n rows of bytes, [n, 16] uint8.

        Args:
            rows: [n, width] uint8.
            kind: what the rows name. The same row has another hash for each kind.
        """
        return hash_rows(self._keyed(kind), rows)

    def _keyed(self, kind: KeyKind) -> blake2b:
        """Return a hash object that has only read the key; ``kind`` goes into its hashes."""
        return blake2b(digest_size=SIZE, key=self.secret, person=kind.encode())


def as_words(hashes: np.ndarray) -> tuple[str, ...]:
    """Return the distinct hashes as a log lists them: hexadecimal digits, in increasing order.

    Args:
        hashes: [n, 16] uint8.
    """
    return tuple(sorted(set(map(hexadecimal, hashes))))


def hexadecimal(hash_bytes: np.ndarray) -> str:
    """Return one hash, [16] uint8, in hexadecimal digits."""
    return hash_bytes.tobytes().hex()


def _write_new(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, unless a file is already at the path.

    A file that is already there stays unchanged. A new file appears with its whole content at once,
    so that no other process reads part of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part{os.getpid()}-{get_ident()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(part, path)  # appears whole, and fails if there is a file already
        except OSError:  # there is a file already, or the file system has no links
            if not path.exists():
                part.rename(path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)
