"""Kill `agt unlearn` at random moments, start several at once, and read while it works: is a run ever half erased?

    python scripts/kill_unlearn.py [--kills 60] [--seed 0] [--home FOLDER]

A tiny run is trained; each attack starts from a copy of it, with the command line itself as a process of its own. Half of
the kills (SIGKILL) fall anywhere in the process's life, the others right where the new state is put in its place. After
each one the run must open, with every file as its manifest lists it, in the earlier state or in the new one, and the log
and the state must tell the same; then the same request goes through, or is refused as carried out. Exit code 1: it was not.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from agt.errors import ConfigError
from agt.unlearning.log import Log, state_of
from agt_cli.report.finished import open_run
from agt_cli.report.swap import COMMIT, HOME, NEXT

AGT = (sys.executable, "-m", "agt_cli")
TRAIN = ("train", "dataset=table", "dataset.path=people.csv", "dataset.label=y", "dataset.id=id", "dataset.unit=person")
TRAIN += ("+dataset.numeric={a: [-3, 3], b: [-3, 3]}", "dataset.classes=[0, 1]", "relation.unit_rows=2", "kgrid.max=2")
TRAIN += ("compute.kernel=reference", "hydra.run.dir=pristine", "-q")
AT_ONCE = 4


def main() -> int:
    """Run every attack; prints what happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--home", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        home = options.home or Path(made)
        home.mkdir(parents=True, exist_ok=True)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
        os.chdir(home)
        attack = Attack(random.Random(options.seed))
        attack.kill(options.kills)
        attack.race()
        attack.read()
    print(", ".join(f"{words}: {count}" for words, count in attack.counts.items()))
    for fault in attack.faults:
        print(f"FAULT: {fault}")
    return int(bool(attack.faults))


class Attack:
    """One run, attacked again and again.

    Attributes:
        counts: what happened, in words.
        faults: what must not happen.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance, self.counts, self.faults = chance, Counter[str](), list[str]()
        _people()
        subprocess.run([*AGT, *TRAIN], check=True, capture_output=True)
        self._begin()
        started = time.monotonic()
        subprocess.run(_command(), check=True, capture_output=True)
        self._seconds = time.monotonic() - started
        self._before, self._after = (_state(Path(name)) for name in ("pristine", "run"))
        print(f"one `agt unlearn` takes {self._seconds:.1f} s")

    def kill(self, kills: int) -> None:
        """Kill one process after the other, and look at what it left."""
        for number in range(kills):
            self._begin()
            process = _start()
            self._wait(process, aimed=number % 2 == 1)
            process.send_signal(signal.SIGKILL)
            killed = process.wait() == -signal.SIGKILL
            left = "commit" if Path("run", COMMIT).exists() else "next" if Path("run", NEXT).exists() else "nothing"
            self.counts[f"killed, leaving {left}" if killed else "ended before it was killed"] += 1
            done = self._look()
            self._again(done)

    def race(self) -> None:
        """Several at once: one does it, the others are refused, and nothing is done twice."""
        for _ in range(3):
            self._begin()
            codes = [process.wait() for process in [_start() for _ in range(AT_ONCE)]]
            self.counts["races"] += 1
            if codes.count(0) != 1 or set(codes) != {0, 2}:
                self.faults.append(f"{AT_ONCE} at once ended with {codes}")
            if _state(Path("run")) != self._after:
                self.faults.append("a race left another state")

    def read(self) -> None:
        """Open the run again and again while it is updated."""
        for _ in range(3):
            self._begin()
            process = _start()
            while process.poll() is None:
                try:
                    state = _state(Path("run"))
                except ConfigError as error:
                    self.counts["readers told to ask again"] += 1
                    if "changed while it was read" not in str(error) and "changing this run" not in str(error):
                        self.faults.append(f"a reader was told: {error}")
                else:
                    self.counts[f"readers of the {'earlier' if state == self._before else 'new'} state"] += 1
                    if state not in (self._before, self._after):
                        self.faults.append("a reader saw a third state")

    def _begin(self) -> None:
        shutil.rmtree("run", ignore_errors=True)
        shutil.copytree("pristine", "run")

    def _wait(self, process: "subprocess.Popen[bytes]", aimed: bool) -> None:
        """Until a random moment; an aimed one is within milliseconds of the swap."""
        if not aimed:
            time.sleep(self._chance.uniform(0, self._seconds))
            return
        moment = self._chance.choice((Path("run", NEXT, "manifest.json"), Path("run", COMMIT)))
        while process.poll() is None and not moment.exists():
            pass
        time.sleep(self._chance.expovariate(300))

    def _look(self) -> bool:
        """Whether it was done; wholly or not at all."""
        state = _state(Path("run"))
        if state not in (self._before, self._after):
            self.faults.append("a kill left a third state")
        self.counts["done" if state == self._after else "not done"] += 1
        run = open_run(Path("run"), "train")
        there = {path.relative_to("run").as_posix() for path in Path("run").rglob("*") if path.is_file()}
        extra = {name for name in there if not name.startswith((f"{HOME}/next/", f"{HOME}/lock", f"{HOME}/key", ".hydra/"))}
        if extra - {*run.manifest.files, "manifest.json", ".abstained"}:
            self.faults.append(f"left behind: {sorted(extra - {*run.manifest.files, 'manifest.json'})}")
        return state == self._after

    def _again(self, done: bool) -> None:
        """The same request again: carried out, or refused as carried out."""
        ended = subprocess.run(_command(), capture_output=True, text=True)
        if ended.returncode != (2 if done else 0) or (done and "asked for before" not in ended.stderr):
            self.faults.append(f"asked again: {ended.returncode}, {ended.stderr[-300:]}")
        elif _state(Path("run")) != self._after:
            self.faults.append("asked again: another state")


def _people() -> None:
    chance, count = np.random.default_rng(0), 300
    a, b = chance.normal(size=(2, count))
    table = {"id": [f"record-{n:04}" for n in range(count)], "person": [f"person-{n // 2:03}" for n in range(count)]}
    pd.DataFrame({**table, "a": a, "b": b, "y": (a + b > 0).astype(int)}).to_csv("people.csv", index=False)
    Path("ids.txt").write_text("".join(f"person-{n:03}\n" for n in range(40, 60)))


def _command() -> list[str]:
    return [*AGT, "unlearn", "run=run", "ids=ids.txt", "method=retrain", "-q"]


def _start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(_command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _state(folder: Path) -> tuple[str, int]:
    """(the name of the model's state, requests in the log) of a run, of which every file is read.

    A state's name has records.bin in it, whose key all copies of a run share: two updates alike have the same.
    """
    run = open_run(folder, "train")
    for name in run.manifest.files:
        run.read(name)
    return state_of(run.manifest.files), len(Log.of(run).entries)


if __name__ == "__main__":
    sys.exit(main())
