"""manifest.json: the files of a finished folder with their hashes, and the folder's digest.

    {"command": "train", "files": {"bounds/k=00005.safetensors": "<sha256>", ...}, "format": 1,
    "seal": "<sha256>"}

``seal`` is the hash of the rest of the manifest. It shows damage and careless edits of the list
itself, such as an entry that was taken out. The ``digest`` of a folder is the sha256 of the bytes
of its manifest, as ``sha256sum manifest.json`` prints it.

Formal guarantees
    - A file that a reader takes from a finished folder has the bytes that were written, or the
      reader stops: what is hashed are the very bytes that are parsed. A file that was damaged,
      edited or swapped with another is never used, and one that is not listed is never read.
    - Hashes are of the bytes that were handed to the disk, not of what lay there later, so nothing
      can change between the two.
    - Whoever rewrites the files, the list and the seal together makes another folder that is sound
      in itself. Only its digest differs. So a digest that was stored elsewhere when the folder was
      written proves that a folder is that one.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from typing import Any

from agt.errors import altered
from agt.store.reading import MAX_FILE_BYTES, Broken, open_plain, read_file
from agt.store.sealed import seal, unseal

FORMAT = 1
"""The format of manifests that this version writes."""
MANIFEST_FILE = "manifest.json"
HASH = re.compile("[0-9a-f]{64}")
"""A sha256 in hexadecimal."""
MANIFEST_KEYS = {"command", "files", "format"}
"""The entries of a manifest, beside its seal."""


@dataclass(frozen=True)
class Manifest:
    """The list of the files of one finished folder, with their hashes.

    Attributes:
        command: the command that wrote the files.
        files: path in the folder, with forward slashes -> sha256 in hexadecimal.

    Raises:
        Broken: a path leads out of the folder, or a hash is not a sha256.
    """

    command: str
    files: Mapping[str, str]

    def __post_init__(self) -> None:
        """Raise Broken for a path that leads out of the folder, or a hash that is no sha256."""
        for name, digest in self.files.items():
            if not _is_file_name(name):
                raise Broken(
                    altered(
                        MANIFEST_FILE, f"the listed name {name!r} cannot be a file of this folder"
                    )
                )
            if not isinstance(digest, str) or not HASH.fullmatch(digest):
                raise Broken(altered(MANIFEST_FILE, f"the listed file {name} has no sha256 hash"))

    @classmethod
    def read(cls, content: bytes) -> "Manifest":
        """Return the manifest that the bytes of a manifest.json hold.

        Raises:
            Broken: the bytes are not those that agt would write for this list, or have a format
                that this version does not know.
        """
        value = unseal_manifest(content, MANIFEST_FILE)
        if (
            value.keys() != MANIFEST_KEYS
            or not isinstance(value["files"], dict)
            or not isinstance(value["command"], str)
        ):
            entries = ", ".join(sorted(MANIFEST_KEYS))
            raise Broken(altered(MANIFEST_FILE, f"its entries must be {entries}"))
        return cls(value["command"], value["files"])

    @classmethod
    def open(cls, folder: Path) -> "Manifest":
        """Return the manifest of a folder.

        Raises:
            Broken: the manifest cannot be read (see ``read``), or does not exist.
        """
        return cls.read(read_file(folder / MANIFEST_FILE))

    @property
    def content(self) -> bytes:
        """The bytes of manifest.json. The same list gives the same bytes."""
        return seal_manifest({"command": self.command, "files": dict(self.files)})

    @property
    def digest(self) -> str:
        """The name of this folder: ``sha256:`` and the hash of ``content``."""
        return f"sha256:{sha256(self.content).hexdigest()}"

    def check(self, name: str, content: bytes) -> None:
        """Compare the bytes of a file with its listed hash.

        Args:
            name: the file's path in the folder.
            content: the bytes.

        Raises:
            Broken: the file is not listed, or has another hash.
        """
        self._compare(name, sha256(content).hexdigest())

    def load(self, folder: Path, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the bytes of one file, checked: what the caller parses is what was hashed.

        Args:
            folder: the folder that has the files.
            name: the file's path in the folder.
            limit: the largest number of bytes that it may have.

        Raises:
            Broken: the file is not listed, is gone, is a link or lies behind one, cannot be read,
                has more bytes than ``limit``, or another hash.
        """
        self._hash_of(name)  # it raises unless the file is listed, before anything is opened
        content = read_file(_path_inside(folder, name), limit, name)
        self.check(name, content)
        return content

    def check_file(self, folder: Path, name: str) -> None:
        """Read one listed file in pieces, and compare it with its hash.

        Args:
            folder: the folder that has the files.
            name: the file's path in the folder.

        Raises:
            Broken: the file is not the one that is listed (see ``load``).
        """
        with open_plain(_path_inside(folder, name), name=name) as file:
            digest = file_digest(file, "sha256").hexdigest()
        self._compare(name, digest)

    def verify(self, folder: Path) -> None:
        """Read every listed file once, and compare it with its hash.

        Args:
            folder: the folder that has the files.

        Raises:
            Broken: a file is not the one that is listed (see ``load``); the message is about the
                first.
        """
        for name in self.files:
            self.check_file(folder, name)

    def _compare(self, name: str, digest: str) -> None:
        """Raise Broken unless ``digest`` is the hash that is listed for a file."""
        expected = self._hash_of(name)
        if digest != expected:
            raise Broken(
                altered(
                    name,
                    f"the sha256 of {name} is {digest[:16]}..., but {MANIFEST_FILE} lists "
                    f"{expected[:16]}...",
                )
            )

    def _hash_of(self, name: str) -> str:
        """Return the hash that is listed for a file.

        Raises:
            Broken: the file is not listed.
        """
        if name not in self.files:
            raise Broken(
                f"{name} is not listed in {MANIFEST_FILE}, so it does not belong to this "
                "run: remove it, or give the right folder"
            )
        return self.files[name]


def _is_file_name(name: str) -> bool:
    """Return whether a name can be the path of a file in a folder, written in its one form."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return False
    return str(path) == name and name not in (".", MANIFEST_FILE)


def _path_inside(folder: Path, name: str) -> Path:
    """Return the path of a listed file.

    Args:
        folder: the folder of the manifest.
        name: the file's path in the folder, with forward slashes.

    Raises:
        Broken: a folder on the way is a link to another one.
    """
    path = folder
    for folder_name in name.split("/")[:-1]:
        path /= folder_name
        if path.is_symlink():
            raise Broken(
                f"{name} is not read, because {path.name} on its path is a link, which agt "
                "does not follow: replace the link by the folder itself"
            )
    return folder / name


def seal_manifest(value: Mapping[str, Any]) -> bytes:
    """Return the bytes of a sealed file: canonical JSON with a format and a hash.

    Keys are sorted, lines are indented by two spaces, and a newline stands at the end.

    Args:
        value: the content, to which ``format`` and ``seal`` (the hash of the rest) are added.
    """
    return seal({**value, "format": FORMAT}, canonical=True)


def unseal_manifest(content: bytes, name: str) -> dict[str, Any]:
    """Return the content of a file that ``seal_manifest`` made, with its ``format``.

    Args:
        content: the bytes of the file.
        name: the name of the file in messages.

    Raises:
        Broken: these are not the bytes that ``seal_manifest`` makes of the content, or have another
            format.
    """
    try:
        number = json.loads(content).get("format")
        if isinstance(number, int) and number > FORMAT:
            raise Broken(
                f"{name} has format {number}, which a newer version of agt wrote: read it with "
                "that version"
            )
        value = unseal(content, canonical=True)
    except (ValueError, AttributeError, RecursionError) as error:
        raise Broken(altered(name, str(error))) from None
    if content != seal_manifest(value):
        raise Broken(altered(name, "agt would write other bytes for the same content"))
    return value


def read_digest(text: str) -> str:
    """Return a digest that a user gave in the form of ``Manifest.digest``.

    Args:
        text: 64 hexadecimal digits, with or without ``sha256:`` in front.

    Raises:
        ValueError: this is not a digest.
    """
    number = text.strip().lower().removeprefix("sha256:")
    if not HASH.fullmatch(number):
        raise ValueError(
            "a digest is sha256: followed by 64 hexadecimal digits: give the one that was printed "
            "when the folder was made, by `agt train` for a training run, by `agt predict` for "
            "released weights"
        )
    return f"sha256:{number}"
