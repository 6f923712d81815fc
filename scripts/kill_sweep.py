"""Sweeps that lose a job, or the call that started them, to kill -9: is it said, and does the same line finish the rest?

    python scripts/kill_sweep.py [--launchers joblib submitit_local] [--trials 4] [--jobs 4] [--seed 0]

Each trial is ``agt train -m training.seed=...`` over a real launcher, two jobs at once. At a random moment of some job's
training SIGKILL goes to that job's process, or to the call itself, by their numbers. Then the same line is given again
until it ends with 0. What must hold, of every trial:

- a call whose job was killed ends with another code than 0, and says "killed" of that job, by its record;
- what a call reported as done is the same run afterwards, untouched;
- every job ends done, with the bits of a sweep that nobody killed.

Linux: whose process a job is, the kernel's list of locks says. Exit code 1 if something of this does not hold.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from kill_runs import bits

TRAINING = (
    *("dataset.n_train=300", "model.hidden=[64]", "training.epochs=150", "kgrid.max=6", "training.chosen_on=public"),
    *("compute.kernel=reference", "compute.threads=1", "compute.checkpoint_seconds=0.1"),
)
LAUNCHERS = {
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    "submitit_local": ("hydra/launcher=submitit_local", "hydra.sweeper.max_batch_size=2"),
}
SWEEP = Path("outputs/train/seeds_sweep")
CALLS = 5  # of one line, at most, before it is given up
WIDTHS = (16, 8, 9, 6, 28, 7, 9, 6, 10)


@dataclass
class Call:
    """One call of the line: its process, and what came of it."""

    process: subprocess.Popen[str]
    code: int = 0
    told: dict[str, Any] = field(default_factory=dict)
    errors: str = ""

    @classmethod
    def of(cls, home: Path, line: tuple[str, ...]) -> "Call":
        command = [sys.executable, "-m", "agt_cli", "train", "-m", *line, "sweep=seeds", "--json"]
        streams = {name: (home / name).open("w") for name in ("stdout", "stderr")}  # orphans would keep a pipe open
        return cls(subprocess.Popen(command, cwd=home, text=True, **streams))

    def ended(self, home: Path) -> "Call":
        self.code = self.process.wait()
        text, self.errors = ((home / name).read_text() for name in ("stdout", "stderr"))
        self.told = json.loads(text) if text.strip() else {}
        return self

    @property
    def states(self) -> Counter[str]:
        return Counter(job["state"] for job in self.told.get("jobs", ()))


def holder(folder: Path) -> int | None:
    """The process that holds a job's lock, by the kernel's list; None: none does."""
    try:
        place = (folder / "lock").stat()
    except OSError:
        return None
    file = f"{os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}:{place.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5] == file:
            return int(words[4])
    return None


def training(home: Path) -> list[tuple[Path, int]]:
    """Jobs that have a checkpoint, with their processes."""
    folders = [path.parent.parent for path in (home / SWEEP).glob("*/checkpoint/run.json")]
    return [(folder, process) for folder in folders if (process := holder(folder)) is not None]


def struck(home: Path, call: Call, target: str, chance: random.Random) -> float:
    """Wait for some job to train, and a random time more; then kill. Returns after how many seconds of the call."""
    started, patience = time.monotonic(), chance.uniform(0.0, 3.0)
    seen: float | None = None
    while call.process.poll() is None:
        there = training(home)
        seen = time.monotonic() if there and seen is None else seen
        if there and seen is not None and time.monotonic() > seen + patience:
            os.kill(call.process.pid if target == "call" else chance.choice(there)[1], signal.SIGKILL)
            break
        time.sleep(0.02)
    return time.monotonic() - started


def finished(home: Path) -> dict[str, dict[str, bytes]]:
    """Seed -> the files of its finished job."""
    found = {}
    for folder in sorted((home / SWEEP).glob("[0-9]*")):
        if json.loads((folder / "status.json").read_text())["state"] == "done":
            overrides = json.loads((folder / "env.json").read_text())["overrides"]
            found[next(word for word in overrides if "training.seed" in word)] = bits(folder)
    return found


def digests(call: Call) -> dict[str, str]:
    return {job["run"]: job["digest"] for job in call.told.get("jobs", ()) if job["state"] == "done"}


def trial(
    home: Path, line: tuple[str, ...], target: str, alone: dict[str, Any], chance: random.Random
) -> tuple[Any, list[str]]:
    """One sweep from its first call to its last: (cells of its row, what is wrong)."""
    call, wrong = Call.of(home, line), list[str]()
    after = struck(home, call, target, chance)
    first = call.ended(home)
    calls = [first]
    while calls[-1].code and len(calls) < CALLS:
        while target == "call" and len(calls) == 1 and training(home) and chance.random() < 0.9:
            time.sleep(0.2)  # mostly until what the killed call left at work has ended
        calls.append(Call.of(home, line).ended(home))
    said = sum(job["state"] == "killed" and f"job {job['job']} " in first.errors for job in first.told.get("jobs", ()))
    if target == "job" and (not first.code or not said or said != first.states["killed"]):
        wrong.append(f"a job was killed, and the call ended with {first.code}, saying {dict(first.states)}")
    if target == "call" and first.code != -signal.SIGKILL:
        wrong.append(f"the call was killed, and ended with {first.code}")
    for earlier, later in pairwise(calls):
        if any(digests(later).get(run) != digest for run, digest in digests(earlier).items()):
            wrong.append("a job that was done is another afterwards")
    last = calls[-1]
    if last.code or set(last.states) != {"done"}:
        wrong.append(f"the last call ended with {last.code}: {dict(last.states)}: {last.errors[-500:]}")
    same = sum(files == alone.get(seed) for seed, files in finished(home).items())
    if same != len(alone):
        wrong.append(f"{len(alone) - same} jobs do not have the bits of those that nobody killed")
    statuses = [json.loads(path.read_text()) for path in (home / SWEEP).glob("*/status.json")]
    resumed, anew = sum("resumed" in status for status in statuses), len(list((home / SWEEP).glob("*_*/status.json")))
    words = ", ".join(f"{count} {state}" for state, count in first.states.items()) or "(killed)"
    return (target, f"{after:.1f}", first.code, words, len(calls), resumed, anew, f"{same}/{len(alone)}"), wrong


def row(*cells: object) -> str:
    return "".join(f"{cell!s:<{width}}" for cell, width in zip(cells, WIDTHS, strict=False))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launchers", nargs="+", default=list(LAUNCHERS), choices=LAUNCHERS)
    parser.add_argument("--trials", type=int, default=4, help="of each launcher; every other kills the call")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, wrong = random.Random(options.seed), list[str]()
    line = (*TRAINING, f"training.seed=range({options.jobs})")
    with tempfile.TemporaryDirectory() as place:
        alone_at = Path(place) / "alone"
        alone_at.mkdir()
        if Call.of(alone_at, line).ended(alone_at).code:
            sys.exit(f"a sweep that nobody killed failed: {(alone_at / 'stderr').read_text()[-1000:]}")
        alone = finished(alone_at)
        print(row("launcher", "killed", "after s", "exit", "states, first call", "calls", "resumed", "anew", "same bits"))
        for launcher in options.launchers:
            for number in range(options.trials):
                home = Path(place) / f"{launcher}{number}"
                home.mkdir()
                target = "call" if number % 2 else "job"
                cells, faults = trial(home, (*line, *LAUNCHERS[launcher]), target, alone, chance)
                print(row(launcher, *cells), flush=True)
                wrong += [f"{launcher} {number}: {fault}" for fault in faults]
    for fault in wrong:
        print(fault, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
