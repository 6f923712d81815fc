"""Tiny commands that scripts/injector.py stops: one that pays, notes, and answers, and the same
with a mistake.

    python tests/stopping.py CASE [--modes ...]

Whoever finds the answer must find the debit, in another folder.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from injector import Case, Ended, main, start_preloaded

start_preloaded()

from agt.store.atomic import write_atomic  # noqa: E402

DEBIT = Path("book/debit")
ANSWER = Path("answer")


def paid_first() -> int:
    """As it must be; a second call finds what the first did."""
    if not DEBIT.exists():
        write_atomic(DEBIT, b"one\n")
    write_atomic(ANSWER, b"yes\n")
    return 0


def answered_first() -> int:
    """The answer is there before it is paid."""
    write_atomic(ANSWER, b"yes\n")
    write_atomic(DEBIT, b"one\n")
    return 0


def renamed_unsynced() -> int:
    """Names are made durable, and what they name is not."""
    for path, content in ((DEBIT, b"one\n"), (ANSWER, b"yes\n")):
        part = path.with_suffix(".part")
        part.write_bytes(content)
        part.replace(path)
        os.fsync(os.open(path.parent, os.O_RDONLY))
    return 0


def names_unsynced() -> int:
    """What is written is durable, and the name of the debit is not."""
    for path, content in ((DEBIT, b"one\n"), (ANSWER, b"yes\n")):
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    os.fsync(os.open(ANSWER.parent, os.O_RDONLY))
    Path("end").touch()
    return 0


def before(home: Path) -> None:
    """The debit's folder."""
    (home / DEBIT).parent.mkdir()


def check(home: Path, ended: Ended) -> list[str]:
    """No answer without its whole debit; whoever ends with 0 has both."""
    debit, answer = (home / name for name in (DEBIT, ANSWER))
    whole = debit.exists() and debit.read_bytes() == b"one\n"
    faults = ["answered, and not paid"] if answer.exists() and not whole else []
    faults += ["half an answer"] if answer.exists() and answer.read_bytes() != b"yes\n" else []
    return faults + (
        ["ended with 0, and nothing is there"] if ended.code == 0 and not answer.exists() else []
    )


CASES: dict[str, Callable[[], int]] = {
    each.__name__: each for each in (paid_first, answered_first, renamed_unsynced, names_unsynced)
}

if __name__ == "__main__":
    sys.exit(main({name: Case(command, check, check, before) for name, command in CASES.items()}))
