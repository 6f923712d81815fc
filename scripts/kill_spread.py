"""Jobs of several processes, one of which is killed at a random moment: what the record says, and how resuming ends.

    python scripts/kill_spread.py [--kills 12] [--seed 0] [--only NAME ...]

Each trial starts ``torchrun -m agt_cli train`` and sends SIGKILL to one process of the job: its first, another, or
torchrun itself. All others must then end by themselves, and the record must say that the run failed, or have nobody hold
its lock. ``resume=`` goes on with another number of processes, and with some luck is killed again. At last every file of
the record but those that tell the time or have a secret of their own is compared with that of a run by one process that
nobody disturbed. gloo on the loopback device; Linux. Exit code 1 if anything is not as it must be.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kill_runs import bits as files

from agt_cli.report.unfinished import is_alive

KEYED = ("unlearning/key", "records.bin")
OFTEN = ("compute.checkpoint_seconds=0.05", "-q", "--json")
CASES: dict[str, tuple[str, ...]] = {
    "box": ("dataset.n_train=400", "training.epochs=80", "kgrid.max=8", "training.chosen_on=public"),
    "linear": (
        *("dataset=digits", "training=generic", "model=linear", "training.momentum=0", "certificate=stability"),
        *("training.loss=binary_cross_entropy", "training.clip=0.5", "training.lr=4", "training.epochs=600"),
    ),
    "tube": ("dataset.n_train=400", "certificate=tube", "model.hidden=[8]", "training.caution=4", "training.epochs=400"),
}
VICTIMS = ("first", "other", "torchrun")
LONGEST = 300.0  # seconds of a job that nobody kills
SOON = 90.0  # seconds within which a job whose process was killed must have ended; torchrun allows 30 for SIGTERM


@dataclass
class Job:
    """A command line that several processes carry out, or one."""

    size: int
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        start = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.size))
        command = [*(start if self.size > 1 else (sys.executable,)), "-m", "agt_cli", "train", *self.words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        with Path("said.txt").open("a") as said:
            self.process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)

    def ranks(self) -> dict[int, int]:
        """The processes that torchrun started and that are there, by rank."""
        there = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError, StopIteration):
                if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == self.process.pid:
                    variables = (folder / "environ").read_text().split("\0")
                    there[int(next(v[5:] for v in variables if v.startswith("RANK=")))] = int(folder.name)
        return there

    def wait(self, ends: float) -> int | None:
        """The exit code; None: it is still there."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(ends)
        return None


def gone(processes: list[int], within: float) -> bool:
    """Whether none of them is left after so many seconds."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if not any(_lives(process) for process in processes):
            return True
        time.sleep(0.05)
    return False


def _lives(process: int) -> bool:
    with suppress(OSError):
        return (Path("/proc") / str(process) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def bits(folder: Path) -> dict[str, bytes]:
    """Every file of a record that tells neither the time nor a secret of its own."""
    return {name: content for name, content in files(folder).items() if name not in KEYED}


def status(folder: Path) -> dict[str, str]:
    """What the record says; nothing: there is none yet."""
    with suppress(OSError, ValueError):
        return dict(json.loads((folder / "status.json").read_text()))
    return {}


def reached(folder: Path) -> int:
    """The step of the newest checkpoint; -1: the training has not begun."""
    if not (folder / "checkpoint" / "run.json").exists():
        return -1
    return max((int(path.name[5:17]) for path in folder.glob("checkpoint/step=*")), default=0)


def kill(job: Job, folder: Path, victim: str, chance: random.Random, steps: int) -> tuple[list[int], bool]:
    """Kill a process of a job at a random moment, mostly between two steps of its training.

    By steps and not by seconds: how long a training takes depends on what else the machine does, and on what was compiled
    before.

    Returns:
        Those that were there; whether one was killed, and had not ended before.
    """
    until, early, least = time.monotonic() + LONGEST, chance.random() < 0.15, chance.randrange(int(0.9 * steps))
    while reached(folder) < least and job.process.poll() is None and time.monotonic() < until:
        if early and len(job.ranks()) == job.size and chance.random() < 0.05:
            break
        time.sleep(0.02)
    time.sleep(chance.uniform(0, 0.05))
    ranks = job.ranks()
    if victim == "torchrun" or len(ranks) < job.size:
        target = job.process.pid
    else:
        target = ranks[0] if victim == "first" else ranks[chance.randrange(1, job.size)]
    struck = job.process.poll() is None
    if struck:
        os.kill(target, signal.SIGKILL)
    return [*ranks.values()], struck


@dataclass
class Trial:
    """One run that is killed until a coin says that it may end.

    Attributes:
        steps: of the whole training.
        kills: how often, by who was killed.
        faults: what was not as it must be.
    """

    name: str
    folder: Path
    steps: int
    chance: random.Random

    def __post_init__(self) -> None:
        self.kills, self.faults = Counter[str](), list[str]()

    def run(self, victim: str) -> None:
        """Kill it, resume it with another number of processes, and perhaps again."""
        words, size = (f"hydra.run.dir={self.folder}", *CASES[self.name]), self.chance.choice((2, 3))
        while True:
            job = Job(size, (*words, *OFTEN))
            ranks, struck = kill(job, self.folder, victim, self.chance, self.steps)
            self.kills[victim] += struck
            self._check(job, ranks, size, victim)
            if status(self.folder).get("state") == "done" or self.faults:
                return
            begun = (self.folder / "config.yaml").exists()
            if not begun:
                shutil.rmtree(self.folder, ignore_errors=True)
            words = (f"resume={self.folder}",) if begun else words
            size = self.chance.choice([n for n in (1, 2, 3) if n != size])
            if size == 1 or self.chance.random() < 0.6:
                code = Job(size, (*words, *OFTEN)).wait(LONGEST)
                print(f"{'':10} goes on by {size}: exit code {code}", flush=True)
                self.faults += [f"resumed by {size}: exit code {code}"] if code else []
                return
            victim = self.chance.choice(VICTIMS)

    def _check(self, job: Job, ranks: list[int], size: int, victim: str) -> None:
        started = time.monotonic()
        code = job.wait(SOON)
        if code is None or not gone(ranks, SOON):
            self.faults.append(f"{victim} of {size} killed: processes are left after {SOON:g} s")
            for process in (job.process.pid, *ranks):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        said, alive = status(self.folder), is_alive(self.folder)
        if alive:
            self.faults.append("its lock is held")
        if said.get("state") == "failed" and not said.get("error"):
            self.faults.append("failed for no reason")
        left = [path.name for path in self.folder.rglob("*.part*")] if said.get("state") == "failed" else []
        self.faults += [f"left half written: {left}"] if left else []
        seconds = time.monotonic() - started
        step = reached(self.folder)
        there = f"step {step}" if step >= 0 else "no checkpoint"
        state = f"{said.get('state', 'no record')} {said.get('error', '')}"
        print(f"{self.name:10} {size} {victim:9} {there:18} {code!s:>4} {seconds:5.1f} s  {state[:70]}", flush=True)


def main() -> None:
    """Print a line for each kill, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12, help="at least, in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=CASES)
    options = parser.parse_args()
    chance, lines, wrong = random.Random(options.seed), list[str](), 0
    print(f"{'case':10} n {'killed':9} {'reached':18} code  ended in  record")
    for name in options.only:
        with tempfile.TemporaryDirectory() as home:
            os.chdir(home)
            if Job(1, (f"hydra.run.dir={home}/alone", *CASES[name], *OFTEN)).wait(LONGEST):
                sys.exit(f"{name}: a run that nobody killed failed: {Path('said.txt').read_text()[-1000:]}")
            expected = bits(Path(home) / "alone")
            steps = json.loads((Path(home) / "alone" / "metrics.json").read_text())["steps"]
            kills, runs, same, victims = Counter[str](), 0, 0, list(VICTIMS)
            while sum(kills.values()) < options.kills / len(options.only) and runs < options.kills:
                trial = Trial(name, Path(home) / f"run{runs}", steps, chance)
                trial.run(victims[runs % len(victims)])
                alike = bits(trial.folder) == expected
                for fault in (*trial.faults, *([] if alike else ["other bits"])):
                    print(f"FAULT {name} run{runs}: {fault}", flush=True)
                kills, runs, same, wrong = (
                    kills + trial.kills,
                    runs + 1,
                    same + alike,
                    wrong + bool(trial.faults or not alike),
                )
            told = "".join(f"{kills[victim]:>10}" for victim in VICTIMS)
            lines.append(f"{name:10}{runs:>6}{sum(kills.values()):>7}{told}{same:>11}")
    print(f"\n{'':10}{'runs':>6}{'kills':>7}" + "".join(f"{victim:>10}" for victim in VICTIMS) + f"{'same bits':>11}")
    print("\n".join(lines))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
