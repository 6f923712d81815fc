"""A folder that holds one saved model: written once, file by file, and bound together by its manifest (manifest.py).

The command line keeps models in run folders, which hold much more; programs save and load them here.
"""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from agt.disk import write_atomic
from agt.errors import ConfigError
from agt.manifest import NAME, Broken, Manifest

COMMAND = "agt.save"  # what the manifest says wrote the files


class NewFolder:
    """A folder to save a model into (``store.Store``).

    Args:
        folder: it must not exist, or be empty.

    Raises:
        ConfigError: something is there.
    """

    def __init__(self, folder: Path) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder}: something is there already, and nothing is written over: name a new folder")
        self._home, self._folder, self._hashes = folder, folder, dict[str, str]()

    def write(self, name: str, content: bytes) -> None:
        """Write one file, whole or not at all."""
        path = self._folder / name
        write_atomic(path, content)
        self._hashes[path.relative_to(self._home).as_posix()] = sha256(content).hexdigest()

    def part(self, name: str) -> "NewFolder":
        """A subfolder; its files go into the same manifest."""
        part = object.__new__(NewFolder)
        part._home, part._folder, part._hashes = self._home, self._folder / name, self._hashes
        return part

    def finish(self) -> str:
        """Write the manifest, last: a folder without one is no model. Returns the digest."""
        manifest = Manifest(COMMAND, self._hashes)
        write_atomic(self._home / NAME, manifest.content)
        return manifest.digest


@dataclass(frozen=True)
class SavedFolder:
    """A saved model's folder, every file of it as it was written or not read at all (``store.Shelf``).

    Attributes:
        folder: of the part.
        home: of the whole, which holds the manifest.
    """

    folder: Path
    home: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path, digest: str | None = None) -> "SavedFolder":
        """Read the manifest, and verify every file that it lists.

        Args:
            digest: what ``save`` returned, kept elsewhere; None: any model's.

        Raises:
            ConfigError: no saved model, a damaged one, or another than ``digest``.
        """
        try:
            manifest = Manifest.read((folder / NAME).read_bytes())
            if manifest.command != COMMAND:
                raise Broken(f"{NAME} is of a run of {manifest.command!r}, not of a saved model")
            if digest is not None and manifest.digest != digest:
                raise Broken(f"{NAME} has the digest {manifest.digest}, not {digest}: another model")
            manifest.verify(folder)
        except (OSError, Broken) as error:
            raise ConfigError(f"{folder}: holds no saved model that can be used: {error}") from None
        return cls(folder, folder, manifest)

    def read(self, name: str) -> bytes:
        """One file. Raises ConfigError if it is not what was written."""
        try:
            return self.manifest.load(self.home, self._listed(name))
        except Broken as error:
            raise ConfigError(f"{self.home}: {error}; restore it, or train again") from None

    def names(self, folder: str) -> set[str]:
        """The listed files of a subfolder, without its name."""
        inside = self._listed(folder)
        return {name.removeprefix(f"{inside}/") for name in self.manifest.under(inside)}

    def part(self, name: str) -> "SavedFolder":
        """A subfolder; the same manifest lists its files."""
        return replace(self, folder=self.folder / name)

    def _listed(self, name: str) -> str:
        return (self.folder / name).relative_to(self.home).as_posix()
