"""How many debits and answers a ledger takes in a second, beside what its disk can sync.

    python scripts/bench_ledger.py [--runs 5] [--folder .]

Debits: one process, synchronous=FULL, one release each, on an empty ledger and on one of 5,000 entries, without and with a
second head. A debit and a sync of the same disk take turns, so that other work on the machine is in both: the sync is of a
page of 4,096 bytes that is appended to a file, which is what SQLite's log does. The floor that is asked for is a third of
the disk's rate; a second head is a second sync, and half of that. Answers: 100,000 kept at once, and asked for again; the
floor is 20,000 a second. Each run has files of its own. Exit code 1 where a floor is missed in the median.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this tree, whatever is installed

from agt.ledger.book import Charge, Population, Table  # noqa: E402
from agt.ledger.ledger import Ledger  # noqa: E402
from agt.mechanisms.account import Allowance  # noqa: E402
from agt.mechanisms.guarantee import PureDP  # noqa: E402

DATA = "d" * 32
CHARGE = Charge(PureDP(1e-4), "labels", "randomized_response", "sha256:" + "a" * 64, DATA, "add_remove")
DEBITS, LONG, ANSWERS = 1000, 5000, 100_000
FLOOR, FAST = 1 / 3, 20_000


def rates(ledger: Ledger, folder: Path) -> tuple[float, float]:
    """Debits and syncs in a second, by turns."""
    spent = synced = 0.0
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(DEBITS):
            start = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fsync(file.fileno())
            middle = time.perf_counter()
            ledger.debit(CHARGE, 1)
            synced, spent = synced + middle - start, spent + time.perf_counter() - middle
    return DEBITS / spent, DEBITS / synced


def debit_lines(folder: Path) -> Iterator[tuple[str, float, float]]:
    """What was done, debits in a second, syncs in a second beside them."""
    for words, head in (("no second head", None), ("a second head", folder / "second.head")):
        population = Population("bench", "one person", "add_remove", Allowance(1e4, 1e-6))
        with Ledger.create(folder / f"{words}.ledger", population, head, [Table("people", DATA)]) as ledger:
            yield f"{words}, empty", *rates(ledger, folder)
            while head is None and ledger.last.number < LONG:
                ledger.debit(CHARGE, 1)
            if head is None:
                yield f"{words}, {LONG} entries", *rates(ledger, folder)
        (folder / f"{words}.ledger").unlink()


def answer_lines(folder: Path) -> Iterator[tuple[str, float]]:
    """What was done, answers in a second."""
    keys = [sha256(str(number).encode()).digest() for number in range(ANSWERS)]
    population = Population("bench", "one person", "add_remove", Allowance(1e4, 1e-6))
    path = folder / "answers.ledger"
    with Ledger.create(path, population, None, [Table("people", DATA)]) as ledger:
        debit = ledger.debit(CHARGE, ANSWERS)
        start = time.perf_counter()
        ledger.answer(debit, {key: number % 2 for number, key in enumerate(keys)})
        yield "kept", ANSWERS / (time.perf_counter() - start)
    for words in ("asked again by a new process, opening included", "and once more"):
        start = time.perf_counter()
        ledger = Ledger.open(path) if "new" in words else ledger
        stored = ledger.stored(keys)
        yield words, ANSWERS / (time.perf_counter() - start)
        if len(stored) != ANSWERS:
            raise SystemExit("answers were lost")
    ledger.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", default=".", help="on the disk to be looked at")
    options = parser.parse_args()
    shares: dict[str, list[float]] = {}
    answered: dict[str, list[float]] = {}
    print("debits | per second | syncs of the disk per second | share")
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory(dir=options.folder) as home:
            for words, rate, disk in debit_lines(Path(home)):
                shares.setdefault(words, []).append(rate / disk)
                print(f"{words} | {rate:.0f} | {disk:.0f} | {rate / disk:.2f}", flush=True)
            for words, rate in answer_lines(Path(home)):
                answered.setdefault(words, []).append(rate)
    for words, share in shares.items():
        print(f"median share, {words}: {median(share):.2f} (floor {FLOOR if 'no second' in words else FLOOR / 2:.2f})")
    for words, rate in answered.items():
        print(f"answers {words}: {', '.join(f'{r:,.0f}' for r in rate)} per second (floor {FAST:,})")
    slow = [w for w, s in shares.items() if median(s) < (FLOOR if "no second" in w else FLOOR / 2)]
    return int(bool(slow + [words for words, rate in answered.items() if median(rate) < FAST]))


if __name__ == "__main__":
    sys.exit(main())
