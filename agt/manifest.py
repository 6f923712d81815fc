"""What binds a run's files together: manifest.json lists each of them with its hash, and its own hash names the run.

    {"command": "train", "files": {"bounds/k=00005.safetensors": "<sha256>", ...}, "format": 1, "seal": "<sha256>"}

Formal guarantees
    A file that a reader takes from a finished run has the bytes that the run wrote, or the reader stops (sha256 of the
    very bytes that are parsed): a file that was damaged, edited or swapped with another is never used, and one that is
    not listed is never read. Hashes are of the bytes that were handed to the disk, not of what lay there later, so nothing
    can change between the two. ``seal`` is the hash of the rest of the manifest: it shows damage and hand edits of the
    list itself, an entry taken out, say. Whoever rewrites the files, the list and the seal together makes another run,
    sound in itself; only its ``digest`` differs, the sha256 of manifest.json's bytes (as ``sha256sum manifest.json`` shows
    it). So a digest that was kept elsewhere, at the time of the training, proves that a folder is that run.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from agt import sealed

FORMAT = 1
NAME = "manifest.json"
HASH = re.compile("[0-9a-f]{64}")
KEYS = {"command", "files", "format"}
_FORM = sealed.Form("seal", sort=True, hash_lines=True)


class Broken(Exception):
    """A file is not what was recorded; the message names it, relative to its folder, and says what is wrong."""


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
            if path.is_absolute() or ".." in path.parts or str(path) != name or name in (".", NAME):
                raise Broken(f"{NAME} lists {name!r}, which is no file of this folder")
            if not isinstance(digest, str) or not HASH.fullmatch(digest):
                raise Broken(f"{NAME} lists {name} without a sha256")

    @classmethod
    def read(cls, content: bytes) -> "Manifest":
        """From manifest.json's bytes.

        Raises:
            Broken: they are not a manifest's, byte for byte, or in a format that this version does not know.
        """
        value = unseal(content, NAME)
        if value.keys() != KEYS or not isinstance(value["files"], dict) or not isinstance(value["command"], str):
            raise Broken(f"{NAME} is damaged: it does not hold {', '.join(sorted(KEYS))} alone")
        return cls(value["command"], value["files"])

    @property
    def content(self) -> bytes:
        """manifest.json's bytes; the same list gives the same bytes."""
        return seal({"command": self.command, "files": dict(self.files)})

    @property
    def digest(self) -> str:
        """``sha256:`` and the hash of ``content``: the name of this run."""
        return f"sha256:{sha256(self.content).hexdigest()}"

    def under(self, folder: str) -> set[str]:
        """The listed files of a subfolder (``bounds``), and of its subfolders."""
        return {name for name in self.files if name.startswith(f"{folder}/")}

    def check(self, name: str, content: bytes) -> None:
        """Raise Broken unless these are the bytes listed for ``name``."""
        self._compare(name, sha256(content).hexdigest())

    def load(self, folder: Path, name: str) -> bytes:
        """The bytes of one file, checked: what the caller parses is what was hashed.

        Raises:
            Broken: it is not listed, is gone, cannot be read, or has other bytes.
        """
        self._listed(name)
        with _readable(folder, name) as path:
            content = path.read_bytes()
        self.check(name, content)
        return content

    def verify(self, folder: Path) -> None:
        """Read every listed file once, in pieces, and raise Broken, as ``load`` does, at the first that is not right."""
        for name in self.files:
            with _readable(folder, name) as path:
                digest = sealed.file_sha256(path)
            self._compare(name, digest)

    def _compare(self, name: str, digest: str) -> None:
        expected = self._listed(name)
        if digest != expected:
            raise Broken(f"{name} is not what {NAME} says: sha256 {digest[:16]}..., listed {expected[:16]}...")

    def _listed(self, name: str) -> str:
        if name not in self.files:
            raise Broken(f"{name} is not listed in {NAME}, so it is no part of this run")
        return self.files[name]


@contextmanager
def _readable(folder: Path, name: str) -> Iterator[Path]:
    """The path of a listed file; Broken where it is gone or cannot be read."""
    path = folder / name
    if not path.is_file():  # a pipe put in its place would be waited for for ever
        raise Broken(f"{name} is listed in {NAME} and is gone")
    try:
        yield path
    except OSError as error:
        raise Broken(f"{name} cannot be read ({error.strerror or error})") from None


def seal(value: Mapping[str, Any]) -> bytes:
    """Canonical JSON (sorted keys, two spaces, a newline at the end) with the format's number and the hash of the rest."""
    return sealed.seal({**value, "format": FORMAT}, _FORM)


def unseal(content: bytes, name: str) -> dict[str, Any]:
    """What ``seal`` made, read back: the value and its ``format``.

    Args:
        name: of the file, for messages.

    Raises:
        Broken: not the bytes that ``seal`` makes of it, or another format.
    """
    try:
        number = json.loads(content).get("format")
        if isinstance(number, int) and number > FORMAT:
            raise Broken(f"{name} is of format {number}, written by a newer agt: read it with that version")
        value = sealed.unseal(content, _FORM)
    except (ValueError, AttributeError, RecursionError) as error:
        raise Broken(f"{name} is damaged: {error}") from None
    if content != seal(value):
        raise Broken(f"{name} is damaged: not the bytes that agt wrote")
    return value


def read_digest(text: str) -> str:
    """A digest as a user gives it, with or without ``sha256:``, as ``Manifest.digest`` gives it.

    Raises:
        ValueError: it is none.
    """
    number = text.strip().lower().removeprefix("sha256:")
    if not HASH.fullmatch(number):
        raise ValueError("expected sha256: and 64 hexadecimal digits, as agt train prints them")
    return f"sha256:{number}"
