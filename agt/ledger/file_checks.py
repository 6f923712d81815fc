"""Checks of a ledger's file: one regular file with one name, on a local file system."""

import os
import re
import stat
from pathlib import Path

from agt.errors import CheckError, ConfigError
from agt.messages import Message
from agt.store.reading import file_kind

SUFFIX = ".ledger"
"""The ending of the name of a ledger's file."""
SQLITE_MAGIC = b"SQLite format 3\0"
"""The first bytes of an SQLite file."""
MOUNTS = Path("/proc/self/mountinfo")
_NETWORK_NAMES = """
    9p afpfs afs beegfs ceph cifs coda davfs davfs2 gcsfuse glusterfs gpfs grpcfuse juicefs lustre
    ncpfs nfs nfs4 orangefs osxfs prl_fs pvfs2 rclone s3fs smb2 smb3 smbfs smbnetfs sshfs vboxsf
    virtiofs vmhgfs vmhgfs-fuse
"""
NETWORK = frozenset(_NETWORK_NAMES.split())
"""Types of network file systems, as mountinfo names them, without a prefix "fuse.".

SQLite's locks need memory that processes share, which processes on two machines do not have.
"""


def check_suffix(path: Path) -> None:
    """Raise ConfigError unless the name of a new ledger ends in ``SUFFIX``."""
    if path.suffix != SUFFIX:
        raise ConfigError(
            f"ledger={path}: the file needs a name that ends in {SUFFIX}, because agt "
            "finds ledgers by this ending: choose such a name"
        )


def check_free(path: Path) -> None:
    """Raise ConfigError if a file or a link already exists at the path of a new ledger."""
    if path.exists() or path.is_symlink():
        raise ConfigError(
            Message(
                "ledger={path}: this ledger already exists, and its budget cannot be "
                "changed; {config:agt ledger show} {path} shows it",
                path=path,
            )
        )


def check_local(path: Path, remedy: str) -> None:
    """Raise ConfigError if a ledger's file is on a network file system.

    If the type of the file system is not known, nothing is raised.

    Args:
        path: the file, which need not exist.
        remedy: the end of the message, which says what the user can do instead.
    """
    kind = file_system(path)
    if kind.removeprefix("fuse.") in NETWORK:
        raise ConfigError(
            f"ledger={path}: this file is on a network file system ({kind}), where processes on "
            f"different machines could each spend the same budget: {remedy}"
        )


COMPANION_SUFFIXES = ("-wal", "-shm", "-journal")
"""Endings of the names of files that SQLite opens in the folder of a database."""


def check_file(path: Path) -> None:
    """Raise an error unless a ledger is one regular file with one name.

    Under a second name (a hard link) SQLite would open another log, without what was spent under
    the first name. The companion files of the ledger (SQLite's log, locks and journal) are checked,
    too, before SQLite opens them: it would wait for ever at a pipe, and what is written to a log
    that is a link to a device is lost.

    Args:
        path: the ledger's file; links to it are followed.

    Raises:
        ConfigError: there is no regular file, it cannot be examined, or it has several names.
        CheckError: a companion file is a link, a folder, a pipe or a device.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            Message(
                "ledger={path}: this file does not exist: create a ledger with "
                "{config:agt ledger init}",
                path=path,
            )
        ) from None
    except OSError as error:
        raise ConfigError(
            f"ledger={path}: this file cannot be read ({error.strerror}): make it readable, "
            "or give the path of another ledger"
        ) from None
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"ledger={path}: this is a folder: give the ledger's file")
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(
            f"ledger={path}: this is not a regular file (but a pipe, a socket or a "
            "device): give the ledger's file"
        )
    if status.st_nlink > 1:
        raise ConfigError(
            f"ledger={path}: the file has {status.st_nlink} names (hard links), so two "
            "processes that use different names could spend the same budget twice: delete "
            "the other names, or replace the file by a copy"
        )
    real = os.path.realpath(path)
    for companion in (Path(f"{real}{suffix}") for suffix in COMPANION_SUFFIXES):
        if os.path.lexists(companion) and (kind := file_kind(companion.lstat().st_mode)):
            raise CheckError(
                f"ledger={path}: next to this file there is {kind} named {companion.name}, but "
                "under this name SQLite needs a regular file. Nothing was read or written. Find "
                f"out who created {companion.name}, and remove it"
            )


def file_system(path: Path) -> str:
    """Return the type of the file system that a path is on, such as "ext4" or "fuse.sshfs".

    It is read from /proc/self/mountinfo. It is empty if the operating system has no such file.
    """
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    real_path = os.path.realpath(path)
    kind = ""
    longest = -1
    for line in lines:
        # "ID PARENT DEVICE ROOT MOUNT-POINT OPTIONS ... - TYPE SOURCE OPTIONS", see proc(5)
        fields, _, tail = line.partition(" - ")
        mount_point = _without_octal_codes(fields.split(" ")[4])
        is_above = real_path == mount_point or real_path.startswith(mount_point.rstrip("/") + "/")
        # The innermost mount counts, and of several at one mount point the last.
        if is_above and len(mount_point) >= longest:
            longest = len(mount_point)
            kind = tail.split(" ")[0]
    return kind


def _without_octal_codes(path: str) -> str:
    """Return a path with mountinfo's octal codes, such as \\040 for a blank, replaced."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)


def same_disk(first: Path, second: Path) -> bool:
    """Return whether two files are on one file system; False if a file cannot be examined."""
    try:
        return first.stat().st_dev == second.stat().st_dev
    except OSError:
        return False
