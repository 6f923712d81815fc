"""A ledger's head at a second place: a small file that tells an older copy of the ledger from the ledger.

Two lines of text, each in a block of 4,096 bytes of its own; the one with the greater count counts:

    agt-ledger-head 1 LEDGER COUNT HASH CHECKSUM

LEDGER is the hash of the ledger's first entry, CHECKSUM the SHA-256 of what stands before it in the line.

Formal guarantees
    Never ahead of the ledger: it is written after the ledger's commit, under a lock that is held from before the commit.
    So a ledger with fewer entries than its head, or with another entry where the head ends, is not the one it was.
    Only forwards: where the head is already further, or ends in another entry, the next debit stops before it spends.
    A write that a power cut tears hits one block, and the other holds the head before it. Then at most that one entry
    could be taken away unseen; a ledger that has it is ahead of its head, which is no fault.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from agt.disk import write_atomic
from agt.errors import AgtError, ConfigError
from agt.ledger.chain import Head
from agt.ledger.place import take_lock
from agt.manifest import Broken

BLOCK = 4096  # what a disk writes at once
_WORD = "agt-ledger-head 1"


@dataclass(frozen=True)
class SecondHead:
    """One ledger's.

    Attributes:
        path: of the file.
        ledger: the hash of the ledger's first entry.
    """

    path: Path
    ledger: str

    @property
    def name(self) -> str:
        """In a sentence."""
        return f"its second head {self.path}"

    def start(self, head: Head) -> None:
        """Make the file.

        Raises:
            ConfigError: something is there already.
        """
        if self.path.exists():
            raise ConfigError(
                f"head={self.path}: something is there already, and one head serves one ledger: choose another file, or "
                "delete it if it is left over from an init that was interrupted"
            )
        write_atomic(self.path, 2 * self._block(head))

    def read(self) -> Head:
        """What the file tells.

        Raises:
            Broken: it is gone, unreadable, or another ledger's.
        """
        with self._opened(os.O_RDONLY) as handle:
            return self._newest(handle)[0]

    @contextmanager
    def held(self, seconds: float) -> Iterator[tuple[Head, Callable[[Head], None]]]:
        """What it tells, and how to move it forwards, while nobody else can.

        Args:
            seconds: how long to wait for the lock.
        """
        with self._opened(os.O_RDWR) as handle:
            take_lock(handle, seconds, f"head={self.path}")
            head, place = self._newest(handle)
            yield head, lambda later: self._write(handle, later, 1 - place)

    def _block(self, head: Head) -> bytes:
        line = f"{_WORD} {self.ledger} {head.count} {head.hash}"
        return f"{line} {sha256(line.encode()).hexdigest()}".ljust(BLOCK - 1).encode() + b"\n"

    def _write(self, handle: int, head: Head, place: int) -> None:
        try:
            if os.pwrite(handle, self._block(head), place * BLOCK) < BLOCK:
                raise OSError("the disk took a part of it")
            os.fsync(handle)
        except OSError as error:
            raise AgtError(
                f"head={self.path}: cannot be written ({error.strerror or error}), after the ledger was: what it counts "
                "stays spent, and nothing is drawn on a debit that was just made; make the head's place writable again"
            ) from error

    def _newest(self, handle: int) -> tuple[Head, int]:
        """The head with the greater count, and in which block it lies."""
        content = os.pread(handle, 2 * BLOCK, 0)
        heads = [(parts, place) for place in (0, 1) if (parts := _parsed(content[place * BLOCK : (place + 1) * BLOCK]))]
        if not heads:
            raise Broken(f"{self.path} is damaged, or no second head of a ledger")
        if any(ledger != self.ledger for (ledger, _), _ in heads):
            raise Broken(
                f"{self.path} is the second head of another ledger: this one was put in the place of that one, or head= "
                "names the wrong file"
            )
        return max(((head, place) for (_, head), place in heads), key=lambda pair: pair[0].count)

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise Broken(f"{self.path} is no file, and so no second head of a ledger")
            handle = os.open(self.path, flags | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Broken(
                f"its second head {self.path} is gone, without which an older copy of the ledger cannot be told from the "
                "ledger: bring the disk or the file back, or say head=FILE if it lies elsewhere now (to look at a copy: "
                "agt verify, with head=COUNT:HASH as it was noted)"
            ) from None
        except OSError as error:
            access = "read" if flags == os.O_RDONLY else "written, so nothing was spent"
            raise AgtError(f"head={self.path}: cannot be {access} ({error.strerror or error})") from error
        try:
            yield handle
        finally:
            os.close(handle)


def head_file(head: Path, ledger: Path) -> Path:
    """Where a ledger's second head lies: the file that is named, or in the folder, under the ledger's name."""
    place = Path(os.path.abspath(head))
    place = place / f"{ledger.stem}.head" if place.is_dir() else place
    if place.resolve() == ledger.resolve():
        raise ConfigError(f"head={head}: is the ledger itself: give a file at a second place")
    return place


def _parsed(block: bytes) -> tuple[str, Head] | None:
    """(ledger, head) of a block that is whole."""
    line, _, checksum = block.rstrip(b" \n").rpartition(b" ")
    if sha256(line).hexdigest().encode() != checksum:
        return None
    parts = line.decode(errors="replace").split(" ")
    if len(parts) != 5 or " ".join(parts[:2]) != _WORD or not parts[3].isdecimal():
        return None
    return parts[2], Head(int(parts[3]), parts[4])
