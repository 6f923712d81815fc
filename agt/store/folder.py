"""Folders with a manifest: written file by file, and read with every file checked."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from hashlib import sha256
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from agt.errors import ConfigError
from agt.store.atomic import Pending, write_atomic
from agt.store.json_text import parse_object
from agt.store.manifest import MANIFEST_FILE, Manifest
from agt.store.reading import MAX_FILE_BYTES, MAX_TEXT_BYTES, Broken
from agt.store.yaml_text import parse_yaml


class FolderWriter:
    """A folder that is being written (a ``models.store.FileWriter``): each file whole or not at
    all, its hash noted.

    Args:
        folder: where its files go.
        command: what writes it.

    Attributes:
        digest: once it is finished; None before.
    """

    def __init__(self, folder: Path, command: str) -> None:
        self.folder, self.command, self.digest = folder, command, cast("str | None", None)
        self._home, self._hashes = folder, dict[str, str]()  # parts write into the same list

    def write(self, name: str, content: bytes) -> Path:
        """Write one file; returns its path."""
        with self.opened(name) as file:
            file.write(content)
        return self.folder / name

    def opened(self, name: str) -> AbstractContextManager[BinaryIO]:
        """``write`` for a file that is written part after part: it appears at the end, or never."""
        return self._opened(Pending(self.folder / name))

    @contextmanager
    def _opened(self, pending: Pending) -> Iterator[BinaryIO]:
        if self.digest is not None:
            raise RuntimeError(
                f"{pending.path}: this file cannot be written, because the run is finished and "
                "no file can be added to a finished run: write into a new folder"
            )
        with pending.opened() as file:
            hashing = _Hashing(file)
            yield cast(BinaryIO, hashing)
        self._hashes[pending.path.relative_to(self._home).as_posix()] = hashing.hexdigest()

    def part(self, name: str) -> Self:
        """A subfolder; its files go into the same manifest."""
        part = copy(self)
        part.folder = self.folder / name
        return part

    def finish(self) -> str:
        """Write the manifest, last: a folder without one is not whole. Returns the digest."""
        manifest = Manifest(self.command, self._hashes)
        write_atomic(self._home / MANIFEST_FILE, manifest.content)
        self.digest = manifest.digest
        return self.digest


class NewFolder(FolderWriter):
    """A folder that nothing else is in.

    Raises:
        ConfigError: something is there.
    """

    def __init__(self, folder: Path, command: str) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(
                f"{folder}: this folder already exists and is not overwritten: give the name "
                "of a new folder"
            )
        super().__init__(folder, command)


class _Hashing(RawIOBase):
    """A file that is only added to, with the hash of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, sha256()
        self.hexdigest = self._hash.hexdigest

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._hash.update(content)
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()


@dataclass(frozen=True)
class Folder:
    """A finished folder; every file of it through ``read`` (a ``models.store.FileReader``).

    Attributes:
        folder: where it lies; of a part, the subfolder.
        home: the whole, which holds the manifest.
        manifest: what its files must be.
        key: the setting that names it, for messages; empty: none.
    """

    folder: Path
    home: Path
    manifest: Manifest
    key: str = ""

    @classmethod
    def open(cls, folder: Path, command: str, digest: str | None = None, key: str = "") -> Self:
        """Read the manifest, and verify every file that it lists.

        Args:
            command: what must have written the folder.
            digest: the folder must be the one of this digest; None: any.

        Raises:
            ConfigError: another command's folder, or another than ``digest``, or a file that is not
                what was written.
        """
        with broken_as_config_error(folder, key):
            manifest = _manifest(folder)
            if manifest.command != command:
                raise Broken(
                    f"{MANIFEST_FILE} says that `agt {manifest.command}` made this folder, but "
                    f"the folder of an `agt {command}` is needed: give such a folder"
                )
            if digest is not None and manifest.digest != digest:
                setting = "digest" if key in ("", "run", "release") else f"{key}_digest"
                raise Broken(
                    f"{MANIFEST_FILE} has the digest {manifest.digest}, but you gave "
                    f"{setting}={digest}, so this is another run, or the run was changed: give "
                    "the right folder or the right digest"
                )
            manifest.verify(folder)
        return cls(folder, folder, manifest, key)

    @property
    def digest(self) -> str:
        """The name of the whole, wherever its folder lies."""
        return self.manifest.digest

    def part(self, name: str) -> Self:
        """A subfolder; the same manifest lists its files."""
        return replace(self, folder=self.folder / name)

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """One file, if its bytes are those that the manifest lists.

        Raises:
            ConfigError: they are not, or more than ``limit``, or it is gone or not listed; names
                it.
        """
        with broken_as_config_error(self.home, self.key):
            return self.manifest.load(self.home, self._listed(name), limit)

    def json(self, name: str) -> dict[str, Any]:
        """The JSON object in a file. Raises ConfigError as ``read``, or where it is none."""
        with broken_as_config_error(self.home, self.key):
            return parse_object(self.read(name, MAX_TEXT_BYTES), name)

    def yaml(self, name: str) -> dict[str, Any]:
        """The mapping in a YAML file. Raises ConfigError as ``read``, or where it is none."""
        with broken_as_config_error(self.home, self.key):
            return parse_yaml(self.read(name, MAX_TEXT_BYTES), name)

    def names(self, folder: str) -> set[str]:
        """The listed files of a subfolder, without its name."""
        inside = f"{self._listed(folder)}/"
        return {
            name.removeprefix(inside) for name in self.manifest.files if name.startswith(inside)
        }

    def holds(self, name: str) -> bool:
        """Whether a file is listed."""
        return self._listed(name) in self.manifest.files

    def _listed(self, name: str) -> str:
        """How the manifest calls one of this part's files."""
        return (self.folder / name).relative_to(self.home).as_posix()


@contextmanager
def broken_as_config_error(folder: Path, key: str = "") -> Iterator[None]:
    """Say of a broken file which folder it is in, and by which setting that was named."""
    try:
        yield
    except Broken as error:
        named = f"{key}={folder}" if key else str(folder)
        raise ConfigError(
            f"{named}: {error}. If this folder cannot be restored, make it again with the "
            "command that made it"
        ) from None


def _manifest(folder: Path) -> Manifest:
    if not folder.is_dir():
        raise Broken("this folder does not exist: give the folder of a finished run")
    if not os.path.lexists(folder / MANIFEST_FILE):
        raise Broken(
            f"{MANIFEST_FILE} is missing: restore a copy of the run (very old versions of agt did "
            "not write this file)"
        )
    return Manifest.open(folder)
