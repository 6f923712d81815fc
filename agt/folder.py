"""A folder bound together by its manifest (manifest.py): written once, and read back as it was written or not at all.

Saved models lie in one of their own; a run's folder is another, which the command line writes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Self

from agt.disk import write_atomic
from agt.errors import ConfigError
from agt.manifest import NAME, Broken, Manifest


class NewFolder:
    """A folder to write into (a ``models.store.Store``).

    Args:
        folder: it must not exist, or be empty.
        command: what writes it.

    Raises:
        ConfigError: something is there.
    """

    def __init__(self, folder: Path, command: str) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder}: something is there already, and nothing is written over: name a new folder")
        self._home, self._folder, self._command, self._hashes = folder, folder, command, dict[str, str]()

    def write(self, name: str, content: bytes) -> None:
        """Write one file, whole or not at all."""
        path = self._folder / name
        write_atomic(path, content)
        self._hashes[path.relative_to(self._home).as_posix()] = sha256(content).hexdigest()

    def part(self, name: str) -> "NewFolder":
        """A subfolder; its files go into the same manifest."""
        part = copy(self)
        part._folder = self._folder / name
        return part

    def finish(self) -> str:
        """Write the manifest, last: a folder without one is not whole. Returns the digest."""
        manifest = Manifest(self._command, self._hashes)
        write_atomic(self._home / NAME, manifest.content)
        return manifest.digest


@dataclass(frozen=True)
class BoundFolder:
    """A finished folder; every file of it through ``read`` (a ``models.store.Shelf``).

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
            ConfigError: another command's folder, or another than ``digest``, or a file that is not what was written.
        """
        with refusing(folder, key):
            manifest = Manifest.read(_manifest(folder))
            if manifest.command != command:
                raise Broken(f"{NAME} is of a run of {manifest.command!r}, not {command!r}")
            if digest is not None and manifest.digest != digest:
                setting = "digest" if key in ("", "run", "release") else f"{key}_digest"
                raise Broken(f"{NAME} has the digest {manifest.digest} and {setting} asks for {digest}: another run")
            manifest.verify(folder)
        return cls(folder, folder, manifest, key)

    @property
    def digest(self) -> str:
        """The name of the whole, wherever its folder lies."""
        return self.manifest.digest

    def part(self, name: str) -> Self:
        """A subfolder; the same manifest lists its files."""
        return replace(self, folder=self.folder / name)

    def read(self, name: str) -> bytes:
        """One file, if its bytes are those that the manifest lists.

        Raises:
            ConfigError: they are not, or it is gone or not listed; names it.
        """
        with refusing(self.home, self.key):
            return self.manifest.load(self.home, self._listed(name))

    def names(self, folder: str) -> set[str]:
        """The listed files of a subfolder, without its name."""
        inside = self._listed(folder)
        return {name.removeprefix(f"{inside}/") for name in self.manifest.under(inside)}

    def holds(self, name: str) -> bool:
        """Whether a file is listed."""
        return self._listed(name) in self.manifest.files

    def _listed(self, name: str) -> str:
        """How the manifest calls one of this part's files."""
        return (self.folder / name).relative_to(self.home).as_posix()


@contextmanager
def refusing(folder: Path, key: str = "") -> Iterator[None]:
    """Say of a broken file which folder it is in, and by which setting that was named."""
    try:
        yield
    except Broken as error:
        named = f"{key}={folder}" if key else str(folder)
        raise ConfigError(f"{named}: {error}; restore it, or run again") from None


def plain(path: Path) -> bytes:
    """A file's bytes; a pipe in its place, which would be waited for for ever, is none. Raises OSError."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is no file")
    return path.read_bytes()


def _manifest(folder: Path) -> bytes:
    try:
        return plain(folder / NAME)
    except (FileNotFoundError, NotADirectoryError):
        if not folder.is_dir():
            raise Broken("there is no such folder") from None
        raise Broken(f"{NAME} is missing: the run was made by an agt that wrote none, or is damaged") from None
    except OSError as error:
        raise Broken(f"{NAME} cannot be read ({error.strerror or error})") from None
