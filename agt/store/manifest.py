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
MANIFEST_FILE = "manifest.json"
HASH = re.compile("[0-9a-f]{64}")
MANIFEST_KEYS = {"command", "files", "format"}


@dataclass(frozen=True)
class Manifest:
    """The files of one finished run.

    Attributes:
        command: that wrote them.
        files: path in the folder, with forward slashes -> sha256 in hexadecimal.

    Raises:
        Broken: a path leads out of the folder, or a hash is none.
    """

    command: str
    files: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, digest in self.files.items():
            path = PurePosixPath(name)
            if (
                path.is_absolute()
                or ".." in path.parts
                or str(path) != name
                or name in (".", MANIFEST_FILE)
            ):
                raise Broken(
                    altered(
                        MANIFEST_FILE, f"the listed name {name!r} cannot be a file of this folder"
                    )
                )
            if not isinstance(digest, str) or not HASH.fullmatch(digest):
                raise Broken(altered(MANIFEST_FILE, f"the listed file {name} has no sha256 hash"))

    @classmethod
    def read(cls, content: bytes) -> "Manifest":
        """From manifest.json's bytes.

        Raises:
            Broken: they are not a manifest's, byte for byte, or in a format that this version does
                not know.
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
        """A folder's own. Raises Broken as ``read``, or where there is none."""
        return cls.read(read_file(folder / MANIFEST_FILE))

    @property
    def content(self) -> bytes:
        """manifest.json's bytes; the same list gives the same bytes."""
        return seal_manifest({"command": self.command, "files": dict(self.files)})

    @property
    def digest(self) -> str:
        """``sha256:`` and the hash of ``content``: the name of this run."""
        return f"sha256:{sha256(self.content).hexdigest()}"

    def check(self, name: str, content: bytes) -> None:
        """Raise Broken unless these are the bytes listed for ``name``."""
        self._compare(name, sha256(content).hexdigest())

    def load(self, folder: Path, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """The bytes of one file, checked: what the caller parses is what was hashed.

        Raises:
            Broken: it is not listed, is gone, is a link or lies behind one, cannot be read, has
                more bytes than ``limit``, or others.
        """
        self._listed(name)
        content = read_file(_path_inside(folder, name), limit, name)
        self.check(name, content)
        return content

    def check_file(self, folder: Path, name: str) -> None:
        """Read one listed file, in pieces; raises Broken as ``load``."""
        with open_plain(_path_inside(folder, name), name=name) as file:
            digest = file_digest(file, "sha256").hexdigest()
        self._compare(name, digest)

    def verify(self, folder: Path) -> None:
        """Read every listed file once, and raise Broken, as ``load`` does, at the first that is
        not right.
        """
        for name in self.files:
            self.check_file(folder, name)

    def _compare(self, name: str, digest: str) -> None:
        expected = self._listed(name)
        if digest != expected:
            raise Broken(
                altered(
                    name,
                    f"the sha256 of {name} is {digest[:16]}..., but {MANIFEST_FILE} lists "
                    f"{expected[:16]}...",
                )
            )

    def _listed(self, name: str) -> str:
        if name not in self.files:
            raise Broken(
                f"{name} is not listed in {MANIFEST_FILE}, so it does not belong to this "
                "run: remove it, or give the right folder"
            )
        return self.files[name]


def _path_inside(folder: Path, name: str) -> Path:
    """Where a listed file lies. Raises Broken where a folder on the way is a link to another."""
    path = folder
    for part in name.split("/")[:-1]:
        path /= part
        if path.is_symlink():
            raise Broken(
                f"{name} is not read, because {path.name} on its path is a link, which agt "
                "does not follow: replace the link by the folder itself"
            )
    return folder / name


def seal_manifest(value: Mapping[str, Any]) -> bytes:
    """Canonical JSON (sorted keys, two spaces, a newline at the end) with the format's number
    and the hash of the rest.
    """
    return seal({**value, "format": FORMAT}, canonical=True)


def unseal_manifest(content: bytes, name: str) -> dict[str, Any]:
    """What ``seal_manifest`` made, read back: the value and its ``format``.

    Args:
        name: of the file, for messages.

    Raises:
        Broken: not the bytes that ``seal_manifest`` makes of it, or another format.
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
    """A digest as a user gives it, with or without ``sha256:``, as ``Manifest.digest`` gives it.

    Raises:
        ValueError: it is none.
    """
    number = text.strip().lower().removeprefix("sha256:")
    if not HASH.fullmatch(number):
        raise ValueError(
            "a digest is sha256: followed by 64 hexadecimal digits: give the one that "
            "`agt train` printed"
        )
    return f"sha256:{number}"
