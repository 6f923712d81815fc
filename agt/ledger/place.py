"""Where a ledger may lie: a file of a local disk, under one name."""

import fcntl
import os
import re
import stat
import time
from pathlib import Path

from agt.errors import AgtError, ConfigError

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = (
    *("9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "juicefs", "lustre", "ncpfs"),
    *("nfs", "nfs4", "orangefs", "prl_fs", "pvfs2", "rclone", "s3fs", "smb2", "smb3", "smbfs", "sshfs", "vboxsf", "vmhgfs"),
    *("davfs2", "gcsfuse", "grpcfuse", "osxfs", "smbnetfs", "virtiofs", "vmhgfs-fuse"),
)
"""File systems of other machines, as mountinfo has them, with or without "fuse." before: no memory is shared there."""


def check_local(path: Path, remedy: str) -> None:
    """Raise ConfigError where a file's disk is another machine's."""
    kind = file_system(path)
    if kind.removeprefix("fuse.") in NETWORK:
        raise ConfigError(
            f"ledger={path}: lies on a network file system ({kind}), where processes on different machines could each "
            f"spend the same budget (SQLite's write-ahead log needs one machine's memory): {remedy}"
        )


def check_file(path: Path) -> None:
    """Raise ConfigError unless there is a plain file, of one name: SQLite keeps a log of its own beside each name."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"ledger={path}: no such file: agt ledger init makes one") from None
    except OSError as error:
        raise ConfigError(f"ledger={path}: cannot be looked at ({error.strerror})") from None
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"ledger={path}: is a folder: give the ledger's file")
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"ledger={path}: is no file (a pipe, a socket or a device)")
    if status.st_nlink > 1:
        raise ConfigError(
            f"ledger={path}: has {status.st_nlink} names (hard links), and two processes that used different ones would "
            "spend the same budget: delete the others, or move a copy into its place"
        )


def file_system(path: Path) -> str:
    """The name of the file system that a path is on; empty where the system does not tell (no /proc)."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    there, kind = os.path.realpath(path), ""
    longest = -1
    for line in lines:
        fields, _, tail = line.partition(" - ")
        mount = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields.split(" ")[4])
        if (there == mount or there.startswith(mount.rstrip("/") + "/")) and len(mount) >= longest:
            longest, kind = len(mount), tail.split(" ")[0]
    return kind


def same_disk(one: Path, other: Path) -> bool:
    """Whether two files lie on one file system; unknown counts as not."""
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False


def take_lock(handle: int, seconds: float, name: str) -> None:
    """Lock an open file or folder against other processes, until it is closed.

    Raises:
        AgtError: somebody else has had it for so long.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise AgtError(
                    f"{name}: another process has kept it locked for {seconds:g} s; nothing was written: is one stopped "
                    "half-way?"
                ) from None
            time.sleep(0.001)
