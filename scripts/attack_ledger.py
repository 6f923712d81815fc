"""Kills processes that spend one ledger's budget, at random moments, and checks that nothing is
lost or spent twice.

    python scripts/attack_ledger.py [--trials 10000] [--seed 0] [--processes 16] [--folder .]

One trial is one kill -9, of a process that debits, keeps answers and asks for kept ones in a loop,
while the others do the same on the same ledger; now and then all of them are killed at once, so
that SQLite's log must be recovered. Whatever returned to a process is written to a pipe at once. A
ledger lasts until its budget is used up, half of them with a second head; then all of it is
checked: every debit that returned is in the chain, none was given twice, the budget is not
exceeded, and used up where a debit was refused; every answer that was given is the one that is
kept; the second head has each debit that returned. Exit code 1 if anything is not so.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # this tree, whatever is installed

from killing import Killed, attack  # noqa: E402

COLUMNS = (
    "second head",
    "ledgers",
    "kills",
    "debits told",
    "debits in chain",
    "answers told",
    "kept",
    "refused",
    "faults",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000, help="kills in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument(
        "--capacity", type=int, default=1500, help="releases that a ledger's budget holds"
    )
    parser.add_argument("--folder", default=".", help="on the disk to be looked at")
    options = parser.parse_args()
    ledgers: list[Killed] = []
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=options.folder) as home:
        while (left := options.trials - sum(ledger.kills for ledger in ledgers)) > 0:
            seed = options.seed + len(ledgers)
            folder = Path(home) / str(seed)
            second = len(ledgers) % 2 == 0
            ledgers.append(attack(folder, seed, left, options.processes, options.capacity, second))
            for fault in ledgers[-1].faults:
                print(f"ledger of seed {seed}: {fault}", flush=True)
    print(" | ".join(COLUMNS))
    for second, some in (("yes", ledgers[::2]), ("no", ledgers[1::2])):
        print(" | ".join(map(str, (second, *row(some)))))
    print(f"{time.perf_counter() - start:.0f} s, {options.processes} processes at a time")
    return int(any(ledger.faults for ledger in ledgers))


def row(ledgers: list[Killed]) -> tuple[int, ...]:
    """The table's numbers."""
    counts = ("debits", "answer", "kept", "exhausted")
    debits, told, kept, refused = (
        sum(ledger.counts[name] for ledger in ledgers) for name in counts
    )
    kills = sum(ledger.kills for ledger in ledgers)
    debited = sum(len(ledger.told) for ledger in ledgers)
    return (
        len(ledgers),
        kills,
        debited,
        debits,
        told,
        kept,
        refused,
        sum(len(ledger.faults) for ledger in ledgers),
    )


if __name__ == "__main__":
    sys.exit(main())
