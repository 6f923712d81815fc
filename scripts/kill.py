"""Commands that get SIGKILL at random moments and are given again: does all end as if nobody had
killed anything?

    python scripts/kill.py KIND [--kills 12] [--seed 0] [--only NAME ...]

| KIND    | what is killed                                          | what goes on                 |
|---------|---------------------------------------------------------|------------------------------|
| runs    | `agt train` with checkpoints, or a worker of it         | `resume=` in the same folder |
| spread  | `torchrun`, or one of the processes that it started     | `resume=` by other processes |
| sweep   | `agt train -m` over a real launcher: it, or a job of it | the same line                |
| unlearn | `agt unlearn`                                           | the same request             |

A trial starts the command in a session of its own and kills one of the session's processes. Then
the rest must end, a call that ends with 0 must have left finished runs alone, and what is given
again, until it ends with 0, must leave the files that an undisturbed command leaves, byte by byte,
but for those that tell the time or hash names under a run's own secret. An erasure must have been
carried out wholly or not at all after each kill. Linux. Exit code 1: something is not so.
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from agt_cli.report.opening import open_run
from agt_cli.unlearn.log import Log, state_of

TIMES = (
    "env.json",
    "status.json",
    "metrics.json",
    "report.md",
    "report.html",
    "manifest.json",
    "spent.json",
    "lock",
)
KEYED = ("records.bin", "shard.json", "shards.json", "key")  # by the run's own secret
PATIENCE_SECONDS = 90.0  # for what is left of a killed command; torchrun allows 30 for SIGTERM
CALLS = 5  # of what is given again, at most
OFTEN = ("compute.threads=1", "compute.checkpoint_seconds=0.05", "-q")
BLOBS = (
    "dataset.n_train=300",
    "kgrid.max=6",
    "training.chosen_on=public",
    "compute.kernel=reference",
)
HEAD = (
    "dataset=digits",
    "training=generic",
    "model=linear",
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
)
SGD = (*HEAD, "certificate=stability", "training.lr=4", "training.momentum=0")
RUNS = {
    "boxes": (*BLOBS, "training.epochs=60"),
    "boxes, momentum, batches": (
        *BLOBS,
        "training.momentum=0.9",
        "training.epochs=40",
        "training.batch.count=3",
    ),
    "boxes, noise": (*BLOBS, "training.epochs=40", "noise.epsilon=2", "noise.seed=1"),
    "linear, average": (
        *SGD,
        "training.epochs=600",
        "training.batch.count=3",
        "certificate.average=200",
    ),
    "minimiser": (*HEAD, "certificate=erm", "training.weight_decay=1e-6", "training.batch.count=1"),
    "ensemble of boxes": (*BLOBS, "training.epochs=20", "ensemble.members=5"),
    "parallel ensemble": (*SGD, "training.epochs=800", "ensemble.members=4", "compute.threads=2"),
}
SPREAD = {
    "box": (*BLOBS[:3], "training.epochs=80"),
    "linear": (*SGD, "training.epochs=600"),
}
LAUNCHERS = {
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
}
PEOPLE = (
    "dataset=table",
    "dataset.path=people.csv",
    "dataset.label=y",
    "dataset.id=id",
    "dataset.unit=person",
)
PEOPLE += (
    "+dataset.numeric={a: [-3, 3], b: [-3, 3]}",
    "dataset.classes=[0, 1]",
    "relation.unit_rows=2",
    "kgrid.max=2",
)


@dataclass(frozen=True)
class Case:
    """One command.

    Attributes:
        first: its words, and how many processes torchrun starts; 1: none does.
        again: what goes on.
        left: what it left below a folder, to compare.
        check: of a folder after a kill, whether all is well; raises or returns a fault.
        apart: each call has a record of its own: that of a killed one stays as it was, and is no
            fault.
    """

    first: tuple[str, ...]
    again: tuple[str, ...]
    left: Callable[[Path], object]
    sizes: tuple[int, ...] = (1,)
    check: Callable[[Path], str] = lambda home: ""
    before: Callable[[Path], None] = lambda home: None
    apart: bool = False


def bits(folder: Path) -> dict[str, bytes]:
    """Every file of a record that neither tells the time nor names records under the run's
    secret.
    """
    files = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    return {
        name: path.read_bytes() for name, path in files.items() if path.name not in (*TIMES, *KEYED)
    }


def job_bits(home: Path) -> dict[str, dict[str, bytes]]:
    """Of a sweep's finished jobs, by what they override."""
    found = {}
    for path in home.glob("outputs/train/*/*/status.json"):
        if json.loads(path.read_text())["state"] == "done":
            found[str(json.loads((path.parent / "env.json").read_text())["overrides"])] = bits(
                path.parent
            )
    return found


def erased(home: Path) -> tuple[str, int]:
    """(the model's state, requests in its log) of a run, of which every file is read."""
    run = open_run(home / "run", "train")
    for name in run.manifest.files:
        run.read(name)
    return state_of(run.manifest.files), len(Log.of(run).entries)


def cases(kind: str) -> dict[str, Case]:
    """The commands of one kind, by name."""
    if kind == "sweep":
        line = (
            "train",
            "-m",
            *BLOBS,
            *OFTEN,
            "model.hidden=[64]",
            "training.epochs=150",
            "training.seed=range(4)",
            "sweep=seeds",
        )
        return {
            name: Case((*line, *words), (*line, *words), job_bits)
            for name, words in LAUNCHERS.items()
        }
    if kind == "unlearn":
        line = ("unlearn", "run=run", "ids=ids.txt", "method=retrain", "-q")
        return {"retrain": Case(line, line, erased, check=half_erased, before=people, apart=True)}
    again = ("train", "resume=run", "-q")
    sizes = (2, 3) if kind == "spread" else (1,)
    settings = SPREAD if kind == "spread" else RUNS
    return {
        name: Case(
            ("train", "hydra.run.dir=run", *words, *OFTEN),
            again,
            lambda home: bits(home / "run"),
            sizes,
        )
        for name, words in settings.items()
    }


def people(home: Path) -> None:
    """A table, a run trained on it, and a request."""
    chance = np.random.default_rng(0)
    count = 300
    a, b = chance.normal(size=(2, count))
    table = {
        "id": [f"record-{n:04}" for n in range(count)],
        "person": [f"person-{n // 2:03}" for n in range(count)],
    }
    pd.DataFrame({**table, "a": a, "b": b, "y": (a + b > 0).astype(int)}).to_csv(
        home / "people.csv", index=False
    )
    (home / "ids.txt").write_text("".join(f"person-{n:03}\n" for n in range(40, 60)))
    if start(
        ("train", *PEOPLE, "compute.kernel=reference", "hydra.run.dir=run", "-q"), home
    ).wait():
        sys.exit(f"training failed: {(home / 'said.txt').read_text()[-1000:]}")


def half_erased(home: Path) -> str:
    """Whether the log has an entry whose state is not the model's."""
    run = open_run(home / "run", "train")
    entries = Log.of(run).entries
    return (
        "a kill left a third state"
        if entries and entries[-1].after != state_of(run.manifest.files)
        else ""
    )


def start(words: tuple[str, ...], home: Path, size: int = 1) -> subprocess.Popen[bytes]:
    torchrun = (
        ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size))
        if size > 1
        else ()
    )
    root = str(Path(__file__).parents[1])
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
        "PYTHONPATH": root,
    }
    with (home / "said.txt").open("a") as said:
        command = [sys.executable, *torchrun, "-m", "agt_cli", *words]
        return subprocess.Popen(
            command, cwd=home, env=environment, stdout=said, stderr=said, start_new_session=True
        )


def session(leader: int) -> list[int]:
    """The processes of a session that are there, its leader first."""
    there = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, of = path.read_text().rsplit(")", 1)[1].split()[:4]
            there += [int(path.parent.name)] if int(of) == leader and state != "Z" else []
    return sorted(there, key=lambda process: (process != leader, process))


def unfinished(home: Path) -> list[str]:
    states = {path: json.loads(path.read_text())["state"] for path in home.rglob("status.json")}
    return [f"{path.parent.name} {state}" for path, state in states.items() if state != "done"]


def killed(case: Case, home: Path, span: float, chance: random.Random) -> list[str]:
    """One command killed, perhaps twice, and given again until it ends with 0: what is wrong."""
    words = case.first
    size = chance.choice(case.sizes)
    faults = list[str]()
    kill = True
    for _ in range(CALLS):
        stays = unfinished(home) if case.apart else []
        process = start(words, home, size)
        if kill:
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, span))
            victims = session(process.pid)
            if victims:
                os.kill(chance.choice(victims), signal.SIGKILL)
        code = process.wait()
        until = time.monotonic() + PATIENCE_SECONDS
        while session(process.pid) and time.monotonic() < until:
            time.sleep(0.05)
        faults += ["processes are left"] if session(process.pid) else []
        faults += [
            f"ended with 0, and left {left}"
            for left in unfinished(home)
            if code == 0 and left not in stays
        ]
        faults += [fault for fault in [case.check(home)] if fault]
        asked = b"asked for before" in (home / "said.txt").read_bytes()[-2000:]
        done = any("done" in path.read_text() for path in home.glob("run/status.json"))
        if faults or code == 0 or (code == 2 and (asked or done)):
            return faults
        kill = kill and chance.random() < 0.4
        size = chance.choice([1, *case.sizes])
        words = case.again if (home / "run" / "config.yaml").exists() else case.first
    return [
        f"given {CALLS} times, it still ends with {code}: {(home / 'said.txt').read_text()[-300:]}"
    ]


def main() -> int:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("runs", "spread", "sweep", "unlearn"))
    parser.add_argument(
        "--kills", type=int, default=12, help="trials in all, each with one kill or more"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="names of cases")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    wrong = 0
    chosen = {
        name: case
        for name, case in cases(options.kind).items()
        if options.only is None or name in options.only
    }
    for name, case in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            pristine = Path(folder, "pristine")
            alone = Path(folder, "alone")
            pristine.mkdir()
            case.before(pristine)
            shutil.copytree(pristine, alone)
            began = time.monotonic()
            if start(case.first, alone).wait():
                sys.exit(
                    f"{name}: a command that nobody killed failed: "
                    f"{(alone / 'said.txt').read_text()[-1000:]}"
                )
            span = time.monotonic() - began
            expected = case.left(alone)
            trials = max(1, options.kills // len(chosen))
            for number in range(trials):
                home = Path(folder, str(number))
                shutil.copytree(pristine, home)
                faults = killed(case, home, span, chance)
                faults += [] if case.left(home) == expected else ["other files than without a kill"]
                wrong += bool(faults)
                print(
                    "\n".join(f"FAULT {name} {number}: {fault}" for fault in faults),
                    end="\n" if faults else "",
                )
            print(f"{name}: {trials} killed, {span:.1f} s without", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
