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
    """A folder that is being written: each file whole or not at all, and its hash noted.

    It is an ``agt.models.store.FileWriter``.

    Args:
        folder: the folder that the files are written to.
        command: the command that writes them, for the manifest.

    Attributes:
        folder: the folder of the files; for a ``part``, the subfolder.
        command: the command that writes them.
        digest: the digest of the folder once it is finished; None before.
    """

    digest: str | None

    def __init__(self, folder: Path, command: str) -> None:
        self.folder = folder
        self.command = command
        self.digest = None
        self._manifest_folder = folder
        self._hashes: dict[str, str] = {}  # the parts of a folder write into the same dict

    def write(self, name: str, content: bytes) -> Path:
        """Write one file, and return its path.

        Raises:
            OSError: it cannot be written.
        """
        with self.opened(name) as file:
            file.write(content)
        return self.folder / name

    def opened(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file for writing piece by piece: it appears at the end of the block, or never."""
        return self._opened(Pending(self.folder / name))

    @contextmanager
    def _opened(self, pending: Pending) -> Iterator[BinaryIO]:
        """Open a pending file for writing, and note its hash at the end."""
        if self.digest is not None:
            raise RuntimeError(
                f"{pending.path}: this file cannot be written, because the run is finished and "
                "no file can be added to a finished run: write into a new folder"
            )
        with pending.opened() as file:
            hashing = _HashingFile(file)
            yield cast(BinaryIO, hashing)
        name = pending.path.relative_to(self._manifest_folder).as_posix()
        self._hashes[name] = hashing.hexdigest()

    def part(self, name: str) -> Self:
        """Return a writer of a subfolder, whose files go into the same manifest."""
        part = copy(self)
        part.folder = self.folder / name
        return part

    def finish(self) -> str:
        """Write the manifest, and return the digest of the folder.

        The manifest comes last, so that a folder without one is known not to be whole.
        """
        manifest = Manifest(self.command, self._hashes)
        write_atomic(self._manifest_folder / MANIFEST_FILE, manifest.content)
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


class _HashingFile(RawIOBase):
    """A file that is only appended to, with the hash of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = sha256()
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
    """A finished folder, of which every file is checked as it is read.

    Attributes:
        folder: its path; of a ``part``, that of the subfolder.
        home: the folder with the manifest, which is ``folder`` itself unless this is a ``part``.
        manifest: the hashes that its files must have.
        key: the setting that names the folder, for messages; empty: no setting names it.
    """

    folder: Path
    home: Path
    manifest: Manifest
    key: str = ""

    @classmethod
    def open(
        cls,
        folder: Path,
        command: str,
        digest: str | None = None,
        key: str = "",
        *,
        verify: bool = True,
    ) -> Self:
        """Open a folder whose manifest is the expected one, and verify every file that it lists.

        Args:
            folder: the folder.
            command: the command that must have written it.
            digest: the digest that it must have; None: any.
            key: the setting that names the folder, for messages; empty: no setting names it.
            verify: False: no file is read now, but each is still verified when it is read.

        Raises:
            ConfigError: the folder is another command's, or has another digest, or a file is not
                what was written.
        """
        with broken_as_config_error(folder, key):
            manifest = _open_manifest(folder)
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
            if verify:
                manifest.verify(folder)
        return cls(folder, folder, manifest, key)

    @property
    def digest(self) -> str:
        """The digest of the folder's content, which does not depend on its path."""
        return self.manifest.digest

    def part(self, name: str) -> Self:
        """Return a reader of a subfolder, whose files the same manifest lists."""
        return replace(self, folder=self.folder / name)

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the bytes of one file, which are those that the manifest lists.

        Args:
            name: the file's path in this folder.
            limit: the largest number of bytes that it may have.

        Raises:
            ConfigError: the bytes are others, or more than ``limit``, or the file is gone or not
                listed. The message names it.
        """
        with broken_as_config_error(self.home, self.key):
            return self.manifest.load(self.home, self._listed_name(name), limit)

    def json(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file.

        Raises:
            ConfigError: the file cannot be read (see ``read``), or holds no JSON object.
        """
        with broken_as_config_error(self.home, self.key):
            return parse_object(self.read(name, MAX_TEXT_BYTES), name)

    def yaml(self, name: str) -> dict[str, Any]:
        """Return the mapping in a YAML file.

        Raises:
            ConfigError: the file cannot be read (see ``read``), or holds no mapping in YAML.
        """
        with broken_as_config_error(self.home, self.key):
            return parse_yaml(self.read(name, MAX_TEXT_BYTES), name)

    def names(self, folder: str) -> set[str]:
        """Return the listed files of a subfolder, by their paths in it."""
        prefix = f"{self._listed_name(folder)}/"
        return {
            name.removeprefix(prefix) for name in self.manifest.files if name.startswith(prefix)
        }

    def holds(self, name: str) -> bool:
        """Return whether a file is listed."""
        return self._listed_name(name) in self.manifest.files

    def _listed_name(self, name: str) -> str:
        """Return the name of a file in the manifest: its path in the whole folder."""
        return (self.folder / name).relative_to(self.home).as_posix()


@contextmanager
def broken_as_config_error(folder: Path, key: str) -> Iterator[None]:
    """Turn ``Broken`` from the block into a ConfigError that names the folder.

    Args:
        folder: the folder whose files are read in the block.
        key: the setting that names the folder; empty: no setting names it.

    Raises:
        ConfigError: a file is broken.
    """
    try:
        yield
    except Broken as error:
        named = f"{key}={folder}" if key else str(folder)
        raise ConfigError(
            f"{named}: {error}. If this folder cannot be restored, make it again with the "
            "command that made it"
        ) from None


def _open_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder that a user named.

    Raises:
        Broken: the folder or its manifest does not exist, or the manifest is wrong.
    """
    if not folder.is_dir():
        raise Broken("this folder does not exist: give the folder of a finished run")
    if not os.path.lexists(folder / MANIFEST_FILE):
        raise Broken(
            f"{MANIFEST_FILE} is missing: restore a copy of the run (very old versions of agt did "
            "not write this file)"
        )
    return Manifest.open(folder)
