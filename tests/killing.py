"""Processes that spend one ledger's budget and are killed at random moments, and what must be
true of it afterwards.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from agt.ledger.book import Charge, Population
from agt.ledger.head_file import HeadFile
from agt.ledger.ledger import Exhausted, Ledger
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.budget import Allowance
from agt.mechanisms.guarantees import PureDP

DATA = "d" * 32
EPS = 0.01
CHARGE = Charge(
    PureDP(EPS), "labels", "randomized_response", "sha256:" + "a" * 64, DATA, "add_remove"
)
QUESTIONS = [sha256(str(number).encode()).digest() for number in range(300)]
TOGETHER = 0.04  # of kills: all processes at once, so that the log must be recovered


@dataclass
class Killed:
    """What happened to one ledger.

    Attributes:
        kills: processes killed.
        told: debits that returned, as their processes told, by entry: (hash, size).
        answers: labels that their processes were given as the kept ones.
        faults: what was not as it must be.
    """

    capacity: int
    kills: int = 0
    told: dict[int, tuple[str, int]] = field(default_factory=dict)
    answers: dict[bytes, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        """A line of a process."""
        word, *rest = line.split(" ")
        if word == "debit":
            number = int(rest[0])
            if number in self.told:
                self.faults.append(f"entry {number} was given to two processes")
            self.told[number] = (rest[1], int(rest[2]))
        elif word == "answer":
            key = bytes.fromhex(rest[0])
            label = int(rest[1])
            if self.answers.setdefault(key, label) != label:
                self.faults.append(f"question {rest[0]} was answered in two ways")
        elif word == "fault":
            self.faults.append(" ".join(rest))
        self.counts[word] += 1

    def check_head(self, head: HeadFile | None) -> None:
        """Compare the second head with what was told."""
        if head and head.read().count < max(self.told, default=0):
            self.faults.append("a debit returned before the second head had it")

    def check(self, path: Path) -> None:
        """Compare the ledger with what was told."""
        with Ledger.open(path, writing=False) as ledger:
            ledger.verify()
            entries = {entry.number: entry for entry in ledger.entries()}
            debits = ledger.history()
            kept = ledger.stored(QUESTIONS)
        sizes = {number: paid.size for number, paid in debits.items()}
        for number, (digest, size) in self.told.items():
            if number not in sizes or entries[number].hash != digest or sizes[number] != size:
                self.faults.append(f"the debit of entry {number} was lost")
        if sum(sizes.values()) > self.capacity:
            self.faults.append(
                f"{sum(sizes.values())} releases were paid for, and the budget holds "
                f"{self.capacity}"
            )
        if self.counts["exhausted"] and sum(sizes.values()) < self.capacity:
            self.faults.append("a debit was refused, and the budget was not used up")
        if len(sizes) > len(self.told) + self.kills:
            self.faults.append("more debits than were told and killed")
        if any(kept.get(key) != label for key, label in self.answers.items()):
            self.faults.append("an answer that was given is not the one that is kept")
        self.counts.update(entries=len(entries), debits=len(sizes), kept=len(kept))


def attack(
    home: Path,
    seed: int,
    kills: int,
    processes: int = 16,
    capacity: int = 1500,
    second: bool = True,
) -> Killed:
    """One ledger, spent by ``processes`` at a time until ``kills`` were killed or the budget is
    used up.
    """
    path = home / f"{seed}.ledger"
    place = home / "second" / f"{seed}.head"
    population = Population(
        f"attack {seed}", "one person", "add_remove", Allowance(round(capacity * EPS, 9))
    )
    with Ledger.create(
        path, population, place if second else None, [AdmittedTable("people", f"{seed:032x}")]
    ) as ledger:
        ledger.admit(AdmittedTable("people", DATA))
        name = ledger.entries()[0].hash
    return _attack(
        path, HeadFile(place, name) if second else None, seed, kills, processes, Killed(capacity)
    )


def _attack(
    path: Path, head: HeadFile | None, seed: int, kills: int, processes: int, killed: Killed
) -> Killed:
    chance = random.Random(seed)
    ends = dict[int, float]()
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    lines = _lines(reader)
    while killed.kills < kills and not killed.counts["exhausted"] and not killed.faults:
        while len(ends) < processes:
            ends[_start(path, writer, chance.random())] = time.monotonic() + chance.expovariate(8)
        due = [process for process, end in ends.items() if end < time.monotonic()]
        together = bool(due) and chance.random() < TOGETHER
        _kill(list(ends) if together else due, ends, killed)
        for line in next(lines):
            killed.hear(line)
        if together:
            killed.check_head(head)
        time.sleep(0.0005)
    _kill(list(ends), ends, killed)
    os.close(writer)
    for line in next(lines):
        killed.hear(line)
    os.close(reader)
    killed.check_head(head)
    killed.check(path)
    return killed


def _kill(processes: list[int], ends: dict[int, float], killed: Killed) -> None:
    for process in processes:
        os.kill(process, signal.SIGKILL)
    for process in processes:
        _, status = os.waitpid(process, 0)
        killed.kills += os.WIFSIGNALED(status)
        del ends[process]


def _lines(reader: int) -> Iterator[list[str]]:
    """Whole lines that came since the last time."""
    rest = b""
    while True:
        while True:
            try:
                more = os.read(reader, 1 << 16)
            except BlockingIOError:
                break
            rest += more
            if not more:
                break
        *whole, rest = rest.split(b"\n")
        yield [line.decode() for line in whole]


def _start(path: Path, writer: int, seed: float) -> int:
    """Fork a process that spends until it is killed, and tells what returned: a line is written
    whole or not at all.
    """
    process = os.fork()
    if process:
        return process
    try:
        _spend(path, lambda line: os.write(writer, f"{line}\n".encode()), random.Random(seed))
    except BaseException as error:
        os.write(writer, f"fault {type(error).__name__}: {error}\n".encode()[:4000])
    finally:
        os._exit(0)


def _spend(path, tell, chance: random.Random) -> None:  # type: ignore[no-untyped-def]
    ledger = Ledger.open(path)
    while True:
        questions = chance.sample(QUESTIONS, 3)
        kept = ledger.stored(questions)
        for key, label in kept.items():
            tell(f"answer {key.hex()} {label}")
        fresh = [key for key in questions if key not in kept] or questions[:1]
        try:
            debit = ledger.debit(CHARGE, len(fresh))
        except Exhausted:
            tell("exhausted")
            return
        tell(f"debit {debit.entry.head.count} {debit.entry.head.hash} {debit.size}")
        if chance.random() < 0.5:
            drawn = {key: chance.randrange(1000) for key in fresh[: debit.size]}
            for key, label in ledger.answer(debit, drawn).items():
                tell(f"answer {key.hex()} {label}")
