"""Folders on disk: files that appear whole or not at all, locks, JSON with a checksum, manifests,
and a careful reader.

A lock is held by a folder's process as long as it lives, so that a dead one's folder is told from a
living one's.
A checksum inside a file is kept against accidents and careless edits. It is no signature: whoever
rewrites a file and its checksum together is not found out. manifest.json lists each file of a
folder with its hash; its own hash names the run:

    {"command": "train", "files": {"bounds/k=00005.safetensors": "<sha256>", ...}, "format": 1,
    "seal": "<sha256>"}

Everything is read as if anybody may have written it: links, pipes and devices are named and not
opened; a file is read through a handle that is known to be of a plain file, up to a size; JSON has
no key twice, no number that is none and no depth that a reader cannot take; YAML has no aliases,
which a few lines can blow up to gigabytes, no tags, which make objects, and no numbers to the base
of 60, which take as long as somebody likes.

Formal guarantees
    A file that a reader takes from a finished run has the bytes that the run wrote, or the reader
    stops (sha256 of the very bytes that are parsed): a file that was damaged, edited or swapped
    with another is never used, and one that is not listed is never read. Hashes are of the bytes
    that were handed to the disk, not of what lay there later, so nothing can change between the
    two. ``seal`` is the hash of the rest of the manifest: it shows damage and hand edits of the
    list itself, an entry taken out, say. Whoever rewrites the files, the list and the seal together
    makes another run, sound in itself; only its ``digest`` differs, the sha256 of manifest.json's
    bytes (as ``sha256sum manifest.json`` shows it). So a digest that was kept elsewhere, at the
    time of the training, proves that a folder is that run.
"""

import errno
import json
import math
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from hashlib import file_digest, sha256
from io import BufferedReader, RawIOBase
from pathlib import Path, PurePosixPath
from threading import get_ident
from typing import Any, BinaryIO, ClassVar, Self, cast

from agt.errors import ConfigError, DataMissing, altered

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NETWORK = ("nfs", "nfs4", "lustre")
_LOCAL = {"nolock", "local_lock=flock", "local_lock=all", "localflock"}  # options of theirs
_SEALS = {False: "sha256", True: "seal"}
_BLOCK_BYTES = 2**20
_PART = re.compile(r"\.part\d+-\d+$")
MAX_FILE_BYTES = 2**36  # of a file that is hashed
MAX_TEXT_BYTES = 2**24  # of a file that is parsed
MAX_YAML_BYTES = 2**20  # its reader is slow
MAX_DEPTH = 100  # of nested JSON and YAML
MAX_DIGITS = 40  # of a whole number
_LONG_NUMBER = re.compile(rf"[-+.:_\d]{{{MAX_DIGITS},}}")
READ_FLAGS = os.O_RDONLY | sum(
    getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "NOCTTY", "BINARY")
)


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds either all of it or what it held before, also after
    a power cut.

    Raises:
        OSError: with ``filename`` set, also where the system names no file (a full disk).
    """
    Pending(path).write(content)


class Pending:
    """A file that is about to be written, with room for it on the disk.

    Args:
        path: of the file, which appears when it is whole.
        size: bytes to take hold of at once, so that a disk too full for them is found out now. A
            file system that copies on writing may still run full later.

    Raises:
        OSError: as ``write_atomic``.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path, self._part = path, path.with_name(f"{path.name}.part{os.getpid()}-{get_ident()}")
        with self._cleared():
            made = [folder for folder in path.parents if not folder.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            for folder in made:
                sync_folder(folder.parent)
            if size:
                with self._part.open("wb") as file:
                    for start in range(0, size, _BLOCK_BYTES):
                        file.write(bytes(min(_BLOCK_BYTES, size - start)))
                    file.flush()
                    os.fsync(file.fileno())

    def write(self, content: bytes) -> None:
        """Write the file, durably."""
        with self.opened() as file:
            file.write(content)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Write the file part after part; it appears, durably, when all of them are written, and
        not if that fails.
        """
        with self._cleared():
            with self._part.open("r+b" if self._part.exists() else "wb") as file:
                yield file
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            self._part.replace(self.path)
            sync_folder(self.path.parent)

    def discard(self) -> None:
        """Give the room back, if the file was not written."""
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    @contextmanager
    def _cleared(self) -> Iterator[None]:
        """Leave nothing half written behind, and name the file."""
        try:
            yield
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror or str(error), str(self.path)) from error
            raise


def remove_parts(folder: Path) -> None:
    """Remove what killed processes left half written in a folder, and in those below it."""
    for path in folder.rglob("*.part*"):
        if _PART.search(path.name):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; nothing where the platform or the file system cannot."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
            errno.EBADF,
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
        ):
            raise
    finally:
        os.close(handle)


class Lock:
    """A lock on a file, which the operating system lets go of when its process ends, however it
    ends.

    A process that holds it is alive: on this machine, or on another that shares the file system and
    its locks.

    Attributes:
        works: False where the system or the file system keeps no locks: then it tells nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file, self.works = path, -1, True

    def take(self) -> bool:
        """Take it if nobody has it; True: it is ours, or there are no locks here.

        Raises OSError as opening a file does.
        """
        # somebody may just be asking who holds it, or be about to remove the file
        for _ in range(5):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            got = _flock(handle)
            if got and _same(handle, self._path):
                self._file = handle
                return True
            os.close(handle)
            if got is None:
                self.works = False
                self._path.unlink(missing_ok=True)  # it would look like a dead process's
                return True
            time.sleep(0.02)
        return False

    def release(self) -> None:
        """Let it go, and leave no file of it. Twice is as good as once."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1

    def abandon(self) -> None:
        """Let it go as a killed process would: the file stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.abandon()


def is_locked(path: Path) -> bool | None:
    """Whether a living process holds the lock of this file; None: there is no such file, or
    nobody can tell.
    """
    with suppress(OSError), path.open("rb") as file:
        got = _flock(file.fileno(), shared=True)
        return None if got is None else not got
    return None


def _flock(handle: int, shared: bool = False) -> bool | None:
    """Take the lock of an open file, if it is free; None: there are no locks here."""
    if fcntl is None or _apart(os.fstat(handle).st_dev):
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


@cache
def _apart(device: int, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether a network's file system is mounted here so that its locks stay on this machine: they
    tell nothing of others.

    Linux says so, in proc_pid_mountinfo(5); elsewhere nobody asks.
    """
    place = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in Path(mounts).read_text(errors="replace").splitlines():
            mount, _, system = line.partition(" - ")
            if mount.split()[2] == place and system.split()[0] in _NETWORK:
                return bool(_LOCAL & set(system.split()[2].split(",")))
    return False


def _same(handle: int, path: Path) -> bool:
    """Whether the file is still what its name stands for."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def seal(content: Mapping[str, Any], canonical: bool = False) -> bytes:
    """The one file that holds ``content``: a JSON object and its checksum. What JSON has no form
    for becomes text.

    Both kinds are on users' disks, and are written as they always were.

    Args:
        canonical: keys are sorted, and ``seal`` is the checksum of the lines without it; False:
            they keep their own order, and ``sha256``, the last, is the checksum of one line of
            JSON.
    """
    plain = json.loads(json.dumps(dict(content), default=str))
    hashed = _lines(plain, canonical) if canonical else json.dumps(plain).encode()
    return _lines({**plain, _SEALS[canonical]: sha256(hashed).hexdigest()}, canonical)


def unseal(raw: bytes, canonical: bool = False) -> dict[str, Any]:
    """The content of a file that ``seal`` made, without its checksum.

    Raises:
        ValueError: it is not such a file, to the last byte.
    """
    content = json.loads(raw)
    if not isinstance(content, dict) or content.pop(_SEALS[canonical], None) is None:
        raise ValueError("the file does not contain a checksum of its content")
    if seal(content, canonical) != raw:
        raise ValueError("the file's content does not match its checksum")
    return content


def _lines(content: Mapping[str, Any], canonical: bool) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=canonical) + "\n").encode()


def flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted keys."""
    dotted: dict[str, Any] = {}
    for key, value in node.items():
        inside = isinstance(value, Mapping) and value
        dotted |= flat(value, f"{prefix}{key}.") if inside else {f"{prefix}{key}": value}
    return dotted


class Broken(Exception):
    """A file is not what was recorded; the message names it, relative to its folder, and says
    what is wrong.
    """


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read in pieces, as hexadecimal digits; links are followed.

    Raises OSError.
    """
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@contextmanager
def open_plain(path: Path, limit: int = MAX_FILE_BYTES, name: str = "") -> Iterator[BufferedReader]:
    """A plain file, open; what it is, is asked of the handle, so that nothing can be put in its
    place in between.

    Args:
        limit: bytes that it may have.
        name: for messages; empty: its own.

    Raises:
        Broken: it is gone, no plain file, larger than ``limit``, or cannot be read.
    """
    name = name or path.name
    try:
        handle = os.open(path, READ_FLAGS)
    except (OSError, ValueError) as error:
        raise Broken(f"{name} {_why_not_opened(path, error)}") from None
    try:
        status = os.fstat(handle)
        if kind := file_kind(status.st_mode):
            raise Broken(
                f"{name} is {kind}, but must be a regular file: put a regular file in its place"
            )
        if status.st_size > limit:
            raise Broken(
                f"{name} was not read, because it has {status.st_size:,} bytes, more than the "
                f"limit of {limit:,}"
            )
        with open(handle, "rb", closefd=False) as file:
            yield file
    except OSError as error:
        raise Broken(f"{name} cannot be read ({error.strerror or error})") from None
    finally:
        os.close(handle)


def read_file(path: Path, limit: int = MAX_TEXT_BYTES, name: str = "") -> bytes:
    """The bytes of a plain file. Arguments and errors as ``open_plain``."""
    with open_plain(path, limit, name) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1)
    if len(content) > size:
        raise Broken(
            f"{name or path.name} grew while agt was reading the file, so another process is "
            "writing it: wait for that process, and type the command again"
        )
    return content


def file_kind(mode: int) -> str:
    """What a file's mode says that it is, in words; empty: a plain file."""
    kinds = {
        stat.S_IFREG: "",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
    }
    return kinds.get(stat.S_IFMT(mode), "a device or a socket")


def _why_not_opened(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "is gone"
    if isinstance(error, ValueError):  # a NUL in its name
        return f"cannot be read ({error})"
    return (
        "is a link, which agt does not follow: replace the link by the file itself"
        if os.path.islink(path)
        else f"cannot be read ({error.strerror or error})"
    )


def as_json(value: object) -> bytes:
    """JSON for people to read."""
    return (json.dumps(value, indent=2, default=str) + "\n").encode()


def parse_json(content: bytes, name: str) -> Any:
    """Any JSON.

    Args:
        name: of the file, for messages.

    Raises:
        Broken: it is none, has a key twice or a number that is none, or is nested beyond measure.
    """
    try:
        value = json.loads(
            content.decode(),
            object_pairs_hook=_unique_keys,
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_bounded_int,
        )
        _check_depth(value)
    except RecursionError:
        raise Broken(f"{name} cannot be read, because its values are nested too deeply") from None
    except ValueError as error:
        raise Broken(f"{name} cannot be read as JSON ({error})") from None
    return value


def parse_object(content: bytes, name: str) -> dict[str, Any]:
    """A JSON object. Raises Broken as ``parse_json``."""
    value = parse_json(content, name)
    if not isinstance(value, dict):
        raise Broken(f"{name} does not contain a JSON object")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(
            f"the key {repeated!r} occurs twice, so two programs could read different values"
        )
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        nested = [
            node.values() if isinstance(node, dict) else node
            for node in level
            if isinstance(node, dict | list)
        ]
        if not nested:
            return
        level = [part for parts in nested for part in parts]
    raise RecursionError


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is NaN, infinite, or too large for a float")
    return value


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number has more than {MAX_DIGITS} digits")
    return int(digits)


def parse_yaml(content: bytes, name: str) -> dict[str, Any]:
    r"""A mapping from YAML. Interpolations stay text, as nothing of this machine belongs into them;
    ``\${`` is ``${``.

    Raises:
        Broken: it is none, or holds what a record's never does: an alias, an object, a key twice.
    """
    yaml, loader = _yaml_loader()
    try:
        if len(content) > MAX_YAML_BYTES:
            raise ValueError(f"of {len(content):,} bytes")
        text = content.decode()
        _check_events(yaml.parse(text, loader))
        value = yaml.load(text, loader)
    except (ValueError, TypeError, OverflowError, RecursionError, yaml.YAMLError) as error:
        raise Broken(f"{name} cannot be read ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(value, dict):
        raise Broken(f"{name} does not contain a mapping (key: value)")
    return {str(key): unescaped(node) for key, node in value.items()}


def unescaped(node: Any) -> Any:
    """A configuration as it was before ``to_yaml`` kept its text from being an interpolation."""
    if isinstance(node, str):
        return (
            re.sub(r"(\\*)\\\$\{", lambda start: start[1][: len(start[1]) // 2] + "${", node)
            if "${" in node
            else node
        )
    if isinstance(node, dict):
        return {key: unescaped(value) for key, value in node.items()}
    return [unescaped(value) for value in node] if isinstance(node, list) else node


@cache
def _yaml_loader() -> tuple[Any, Any]:
    """(the yaml package, a safe loader that refuses a key twice); loaded when first needed."""
    import yaml  # type: ignore[import-untyped]

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc, valid-type]
        yaml_implicit_resolvers: ClassVar = {  # dates stay text, as OmegaConf reads them
            first: [(tag, rule) for tag, rule in rules if not tag.endswith(":timestamp")]
            for first, rules in base.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            value: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(value) < len(node.value):
                keys = [key.value for key, _ in node.value]
                repeated = next((key for key in keys if keys.count(key) > 1), "")
                raise yaml.YAMLError(f"the key {repeated!r} occurs twice")
            return value

    return yaml, Loader


def _check_events(events: Iterator[Any]) -> None:
    """Raise ValueError at what no record has, before a reader makes anything of it."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if kind == "AliasEvent":
            raise ValueError("the file contains a YAML alias (*name), which agt never writes")
        if getattr(event, "tag", None) or _LONG_NUMBER.fullmatch(getattr(event, "value", "")):
            raise ValueError(
                "the file contains a YAML tag (!name) or a number with very many digits, "
                "which agt never writes"
            )
        if depth > MAX_DEPTH:
            raise ValueError("nested beyond measure")


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
        with refusing(folder, key):
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
        with refusing(self.home, self.key):
            return self.manifest.load(self.home, self._listed(name), limit)

    def json(self, name: str) -> dict[str, Any]:
        """The JSON object in a file. Raises ConfigError as ``read``, or where it is none."""
        with refusing(self.home, self.key):
            return parse_object(self.read(name, MAX_TEXT_BYTES), name)

    def yaml(self, name: str) -> dict[str, Any]:
        """The mapping in a YAML file. Raises ConfigError as ``read``, or where it is none."""
        with refusing(self.home, self.key):
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
def refusing(folder: Path, key: str = "") -> Iterator[None]:
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


# -- where a person's files lie
# ------------------------------------------------------------------------------------------


def home(path: Path) -> Path:
    """``path`` with ~ as the home directory; where nobody has that name, it is a name as any
    other.
    """
    return Path(os.path.expanduser(path))


def resolve(path: Path, data_dir: Path) -> Path:
    """``path``, taken relative to ``data_dir`` unless absolute: where something is to be
    written.
    """
    return home(data_dir) / home(path)


def places(path: Path, data_dir: Path) -> tuple[Path, ...]:
    """Where a person's file may lie, first the working directory and then ``data_dir``; an
    absolute path is one place.
    """
    return tuple(dict.fromkeys((home(path), resolve(path, data_dir))))


def locate(path: Path, data_dir: Path, setting: str) -> Path:
    """The first of its ``places`` where a file or folder is.

    Raises DataMissing naming all of them.
    """
    tried = places(path, data_dir)
    there = next((place for place in tried if place.exists()), None)
    if there is None:
        nor = "".join(f", and {place} does not exist either" for place in tried[1:])
        raise DataMissing(
            f"{tried[0]} does not exist{nor}: put the file there, or change {setting}"
        )
    return there


def require(path: Path, setting: str) -> None:
    """Raise DataMissing unless ``path`` is a file."""
    if not path.is_file():
        raise DataMissing(
            f"{path} does not exist, or is not a file: put the file there, or change {setting}"
        )
