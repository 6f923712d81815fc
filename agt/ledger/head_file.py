"""The head file: a second file that records the number and the hash of a ledger's last entry.

The owner may keep one, preferably on another disk. Beside it, agt keeps one on each account that
uses the ledger to pay (``HeadFile.of_account``), which all copies of the ledger share there.

A ledger that has fewer entries than its head file says was replaced by an older copy. The head file
never has more entries than the ledger was given (Lemma 2 of docs/proofs/ledger.md), and its count
only grows (Lemma 3 of docs/proofs/ledger.md). The file holds two lines of text, each in a block of
4,096 bytes of its own:

    agt-ledger-head 1 LEDGER COUNT HASH CHECKSUM

LEDGER is the hash of the ledger's first entry, COUNT and HASH are the head, and CHECKSUM is the
SHA-256 of the line before it. The line with the greater count is the current head.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import get_ident

from agt.errors import AgtError, ConfigError
from agt.ledger.chain import Head
from agt.ledger.locks import acquire_lock
from agt.store.atomic import sync_folder, write_atomic
from agt.store.reading import Broken

BLOCK_BYTES = 4096  # a power cut damages at most the block that is being written
_FORMAT = "agt-ledger-head 1"
_LINE = re.compile(rf"({_FORMAT} (\S+) (\d+) (\S+)) (\S+)", re.ASCII)


@dataclass(frozen=True)
class HeadFile:
    """The head file of one ledger.

    Attributes:
        path: the path of the head file.
        ledger: the hash of the ledger's first entry.
        of_account: whether agt keeps the file for this account, instead of the owner.
    """

    path: Path
    ledger: str
    of_account: bool = False

    @property
    def name(self) -> str:
        """A phrase for the file in messages."""
        owner = "this account's head file" if self.of_account else "the head file"
        return f"{owner} {self.path} (which keeps a copy of the ledger's last entry)"

    @property
    def _setting(self) -> str:
        """The start of messages about the file: the setting that says where it is, and its path."""
        return f"XDG_STATE_HOME: {self.path}" if self.of_account else f"head={self.path}"

    @property
    def _other_remedy(self) -> str:
        """What the owner can do instead of restoring the file; empty for the account's file."""
        return "" if self.of_account else ", or give the right one with head="

    def create(self, head: Head) -> None:
        """Create the file with a head, which both blocks contain.

        Raises:
            ConfigError: the path exists already.
        """
        if self.path.exists():
            raise ConfigError(
                f"head={self.path}: this file already exists, but each ledger needs a head file "
                "of its own (which keeps a copy of the ledger's last entry): choose another "
                "file. If an interrupted agt ledger init left this file there, delete it"
            )
        write_atomic(self.path, 2 * self._block(head))

    def create_unless_exists(self, head: Head) -> None:
        """Create the file with a head, as ``create`` does; do nothing if the file exists already.

        Of several processes that do this at the same moment, one creates the file, and the others
        leave it unchanged.

        Raises:
            AgtError: it cannot be found out whether the file exists.
            OSError: the file cannot be written.
        """
        if self.exists():
            return
        complete_file = self.path.with_name(f"{self.path.name}.new{os.getpid()}-{get_ident()}")
        try:
            write_atomic(complete_file, 2 * self._block(head))
            # A link, because a rename would replace the file of another process, which may have
            # recorded a debit in it since.
            with suppress(FileExistsError):
                os.link(complete_file, self.path)
        finally:
            complete_file.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def exists(self) -> bool:
        """Return whether something has the file's path, also if it is no head file.

        Raises:
            AgtError: this is not known, for example because the folder may not be searched. A file
                that is not seen may record a debit that the ledger lacks.
        """
        try:
            self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            reason = error.strerror or error
            raise AgtError(
                f"{self._setting}: agt cannot tell whether this head file (which keeps a copy of "
                f"the ledger's last entry) exists ({reason}). Nothing was spent. Make its folder "
                "readable and writable"
            ) from error
        return True

    def knows_losses(self, losses: Sequence[str]) -> bool:
        """Return whether ``restart_for_losses`` was called for all of these losses before.

        Args:
            losses: the hashes of entries that declare that a head file was lost.
        """
        return all(path.exists() for path in self._loss_paths(losses))

    def restart_for_losses(
        self, losses: Sequence[str], head_to_record: Callable[[Head], Head | None], seconds: float
    ) -> None:
        """Record a head, also if it has fewer entries than the present one, once for each loss.

        Nothing is recorded if all losses are known from earlier calls. If the process is killed,
        the present head stays until the other one is in both blocks, and the losses become known
        after that.

        Args:
            losses: the hashes of entries that declare that a head file was lost.
            head_to_record: called with the present head while the file is locked. It returns the
                head to record; None: the present head stays.
            seconds: the longest time to wait for the lock, in seconds.

        Raises:
            Busy: another process held the lock for ``seconds``.
            Broken: the file is missing, damaged, or another ledger's.
            AgtError: the file cannot be opened or written, or it cannot be recorded that the losses
                are known.
        """
        with self._open(os.O_RDWR) as handle:
            acquire_lock(handle, seconds, self._setting)
            if self.knows_losses(losses):
                return
            present, block = self._read_current(handle)
            head = head_to_record(present)
            if head is not None:
                self._write(handle, head, 1 - block)
                self._write(handle, head, block)
            try:
                for path in self._loss_paths(losses):
                    path.touch()
                sync_folder(self.path.parent)
            except OSError as error:
                # An error for the caller, because without these files each copy of the ledger
                # could take over the head again and again.
                raise AgtError(
                    f"{self._setting}: agt must record beside this file that the ledger declares "
                    f"a lost head file, but cannot ({error.strerror or error}). Nothing was spent. "
                    "Make its folder writable"
                ) from error

    def _loss_paths(self, losses: Sequence[str]) -> list[Path]:
        """Return the path of the empty file that records that a loss is known, of each loss."""
        return [self.path.with_name(f"{loss}.lost") for loss in losses]

    def read(self) -> Head:
        """Return the head that the file records.

        Raises:
            Broken: the file is missing, damaged, or another ledger's.
            AgtError: the file cannot be opened.
        """
        with self._open(os.O_RDONLY) as handle:
            head, _ = self._read_current(handle)
            return head

    def read_if_intact(self) -> Head | None:
        """Return the head that the file records; None wherever ``read`` would raise an error."""
        try:
            return self.read()
        except (Broken, AgtError):
            return None

    @contextmanager
    def locked(self, seconds: float) -> Iterator[tuple[Head, Callable[[Head], None]]]:
        """Lock the file for a block, and yield its head and a function that writes a later head.

        The function returns when the head is on the disk.

        Args:
            seconds: the longest time to wait for the lock, in seconds.

        Raises:
            Busy: another process held the lock for all of this time.
            Broken: the file is missing, damaged, or another ledger's.
            AgtError: the file cannot be opened; or, from the function, cannot be written.
        """
        with self._open(os.O_RDWR) as handle:
            acquire_lock(handle, seconds, self._setting)
            head, block = self._read_current(handle)
            # The other block is overwritten, so that the current head stays if the write fails.
            other_block = 1 - block
            yield head, lambda later: self._write(handle, later, other_block)

    def _block(self, head: Head) -> bytes:
        """Return the block of ``BLOCK_BYTES`` bytes that records a head."""
        line = f"{_FORMAT} {self.ledger} {head.count} {head.hash}"
        checksum = sha256(line.encode()).hexdigest()
        return f"{line} {checksum}".ljust(BLOCK_BYTES - 1).encode() + b"\n"

    def _write(self, handle: int, head: Head, block: int) -> None:
        """Write a head to one block of the file, and wait until it is on the disk.

        Args:
            handle: the descriptor of the file, which is locked.
            head: the head.
            block: the index of the block, 0 or 1.

        Raises:
            AgtError: the disk does not store it.
        """
        try:
            if os.pwrite(handle, self._block(head), block * BLOCK_BYTES) < BLOCK_BYTES:
                raise OSError("the disk stored only a part of the data")
            os.fsync(handle)
        except OSError as error:
            reason = error.strerror or error
            raise AgtError(
                f"{self._setting}: this head file (which keeps a copy of the ledger's last entry) "
                f"cannot be written ({reason}), but the debit is already in the ledger. So the "
                "debit counts as spent, although nothing is released for it. Make the head file "
                "writable before the next release"
            ) from error

    def _read_current(self, handle: int) -> tuple[Head, int]:
        """Return the head with the greater count, and the index (0 or 1) of the block that has it.

        Args:
            handle: the descriptor of the file.

        Raises:
            Broken: the file has not the size of two blocks, no block is intact, or one is another
                ledger's.
        """
        content = os.pread(handle, 2 * BLOCK_BYTES + 1, 0)
        heads = list[tuple[Head, int]]()
        ledgers = set[str]()
        for block in (0, 1):
            start = block * BLOCK_BYTES
            parsed = _parse_block(content[start : start + BLOCK_BYTES])
            if parsed is not None:
                ledger, head = parsed
                ledgers.add(ledger)
                heads.append((head, block))
        # The file appears whole, and its blocks are overwritten in place. So no crash leaves
        # another size, and a file that was cut off may lack the current head.
        if not heads or len(content) != 2 * BLOCK_BYTES:
            raise Broken(
                f"{self.path} is damaged, or is not a head file (which keeps a copy of a ledger's "
                f"last entry): restore this file{self._other_remedy}"
            )
        if ledgers != {self.ledger}:
            raise Broken(
                f"{self.path} is the head file of another ledger (it keeps a copy of that ledger's "
                "last entry): give this ledger's head file with head=. If another ledger replaced "
                "this ledger's own file, restore the earlier file"
            )
        return max(heads, key=lambda pair: pair[0].count)

    @contextmanager
    def _open(self, flags: int) -> Iterator[int]:
        """Open the file for a block, and yield its descriptor.

        Args:
            flags: os.O_RDONLY or os.O_RDWR.

        Raises:
            Broken: the file is missing, or is not a regular file.
            AgtError: the file cannot be opened.
        """
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise Broken(
                    f"{self.path} is not a regular file, so it cannot be a ledger's head file "
                    f"(which keeps a copy of its last entry): restore this file{self._other_remedy}"
                )
            handle = os.open(self.path, flags | os.O_CLOEXEC)
        except FileNotFoundError:
            if self.of_account:
                raise Broken(
                    f"{self.name} was removed while the ledger was open, so agt cannot tell the "
                    "ledger from an older copy of itself: restore this file"
                ) from None
            raise Broken(
                f"the ledger's head file {self.path} (which keeps a copy of the ledger's last "
                "entry) is missing, so agt cannot tell the ledger from an older copy of itself. "
                "Restore the head file, or give its new place with head=FILE. To check a mere "
                "copy of a ledger, run agt verify with head=COUNT:HASH, as agt printed it earlier"
            ) from None
        except OSError as error:
            reason = error.strerror or error
            consequence = "" if flags == os.O_RDONLY else ". Nothing was spent"
            access = "read" if flags == os.O_RDONLY else "written"
            raise AgtError(
                f"{self._setting}: this head file (which keeps a copy of the ledger's last "
                f"entry) cannot be {access} ({reason}){consequence}. Make it readable and writable"
            ) from error
        try:
            yield handle
        finally:
            os.close(handle)


def head_file_path(head: Path, ledger: Path) -> Path:
    """Return the path of a ledger's head file.

    Args:
        head: the path that the user gave: the file itself, or a folder, in which the head file has
            the ledger's name.
        ledger: the ledger's file.

    Raises:
        ConfigError: the path is the ledger's own.
    """
    path = Path(os.path.abspath(head))
    if path.is_dir():
        path = path / f"{ledger.stem}.head"
    if path.resolve() == ledger.resolve():
        raise ConfigError(
            f"head={head}: this is the ledger itself, but the head file (which keeps a copy of "
            "the ledger's last entry) must be another file: give another file, preferably on "
            "another disk"
        )
    return path


def _parse_block(block: bytes) -> tuple[str, Head] | None:
    """Return (hash of the ledger's first entry, head) of a block of a head file.

    Args:
        block: the bytes of the block; fewer than ``BLOCK_BYTES`` if the file is too short.

    Returns:
        None if the block does not have the form of a line with its checksum.
    """
    match = _LINE.fullmatch(block.rstrip(b" \n").decode(errors="replace"))
    if match is None or sha256(match[1].encode()).hexdigest() != match[5]:
        return None
    return match[2], Head(int(match[3]), match[4])
