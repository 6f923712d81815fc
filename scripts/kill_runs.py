"""Runs that are killed at random moments, again and again, and resumed: do they end with the bits of a run left alone?

    python scripts/kill_runs.py [--kills 200] [--slow 12] [--seed 0] [--only NAME ...]

Each trial is ``agt train`` with checkpoints as often as the disk allows, in a process of its own that gets SIGKILL at a
random moment, mostly of its training; ``resume=`` goes on in the same folder, is killed again with some luck, and is left
alone at last. Every file of the record but those that tell the time (env, status, metrics, report, manifest, spent) or
that hash names under the run's own secret is then compared, byte by byte, with that of a run that was never killed.
Private noise has no such run: its seed is read from the checkpoints of the killed one, as only its owner can, and the run
that was left alone is given the same draw.

Processes are forked from one that has everything loaded, so that a trial takes a second. What takes longer (a frozen
encoder, ensembles that start workers of their own) gets as many kills as --slow says. Exit code 1 if a file differs.
"""

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

import numpy as np

from agt_cli.cli import main as agt
from agt_cli.runs import noise

TIMES = ("env.json", "status.json", "metrics.json", "report.md", "report.html", "manifest.json", "spent.json", "lock")
KEYED = ("records.bin", "shard.json", "key")  # by the run's own secret
OFTEN = ("compute.threads=1", "compute.checkpoint_seconds=0.001", "-q")
BLOBS = ("dataset.n_train=200", "kgrid.max=6", "training.chosen_on=public", "compute.kernel=reference")
HEAD = ("dataset=digits", "training=generic", "model=linear", "training.loss=binary_cross_entropy", "training.clip=0.5")
SGD = (*HEAD, "certificate=stability", "training.lr=4")
ERM = (*HEAD, "certificate=erm", "training.weight_decay=1e-6", "training.batch.count=1", "certificate.tolerance=1e-8")
ENCODED = (
    *("experiment=octmnist", "dataset.path=octmnist.npz", "data_dir=.", "dataset.declared_size=120"),
    *("model.encoder.epochs=2", "kgrid=dense", "kgrid.max=1", "compute.kernel=reference"),
)
MOMENTUM = ("training.momentum=0.9", "training.epochs=40")
PLACES = (
    "before",
    "first steps",
    "training",
    "writing",
)  # where a kill fell: before it trained, before it had a checkpoint
CASES: dict[str, tuple[str, ...]] = {
    "boxes": (*BLOBS, "training.epochs=60"),
    "boxes, momentum, three batches": (*BLOBS, *MOMENTUM, "training.batch.count=3", "training.dampening=0.2"),
    "boxes, Nesterov, listed k": (*BLOBS[:1], *BLOBS[2:], *MOMENTUM, "training.nesterov=true", "kgrid=sparse"),
    "boxes, float32, fast kernel": (*BLOBS[:-1], "compute.kernel=cpu", "training.dtype=float32", "training.epochs=60"),
    "boxes, private noise": (*BLOBS, *MOMENTUM, "noise.epsilon=2"),
    "linear, average": (*SGD, "training.epochs=600", "training.batch.count=3", "certificate.average=200"),
    "linear, one batch": (*SGD, "training.epochs=1200"),
    "minimiser": ERM,
    "ensemble of boxes": (*BLOBS, "training.epochs=20", "ensemble.members=5"),
    "ensemble of linear heads": (*SGD, "training.lr=2", "training.epochs=300", "ensemble.members=6"),
}
SLOW = {
    "frozen encoder and head": (*ENCODED, "training.epochs=6", "training.momentum=0.9"),
    "parallel ensemble of boxes": (*BLOBS, "training.epochs=40", "ensemble.members=4", "compute.threads=2"),
    "parallel ensemble of linear heads": (
        *SGD,
        "training.lr=2",
        "training.epochs=800",
        "ensemble.members=4",
        "compute.threads=2",
    ),
}


def forked(*words: str, seed: int | None = None) -> int:
    """The process that runs one command line; with ``seed``, its private noise is drawn from that."""
    process = os.fork()
    if process:
        return process
    if seed is not None:
        noise.noise_seed = lambda config: seed  # type: ignore[assignment]
    code = 1
    try:
        for stream in (1, 2):  # of the workers too: what loky says of a process that was killed
            os.dup2(os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        code = agt(["train", *words])
    finally:
        os._exit(code)


def ended(process: int, within: float = 600.0) -> int | None:
    """The exit code of a process; None: it is still there after so many seconds."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def alone(folder: Path, settings: tuple[str, ...], seed: int | None = None) -> tuple[float, float]:
    """A run that nobody kills: (when its training began, when it ended), in seconds."""
    started = time.monotonic()
    if ended(forked(f"hydra.run.dir={folder}", *settings, seed=seed)) != 0:
        sys.exit(f"{folder}: a run that nobody killed failed: {Path('said.txt').read_text()[-1000:]}")
    seconds = time.monotonic() - started
    return seconds - json.loads((folder / "metrics.json").read_text())["seconds_training"], seconds


def images() -> None:
    """A small file in OCT-MNIST's format: random images whose brightness tells the four classes apart."""
    rng, arrays = np.random.default_rng(0), {}
    for split, n in (("train", 400), ("val", 8), ("test", 40)):
        labels = np.arange(n) % 4
        pixels = rng.integers(0, 60, size=(n, 28, 28)) + 40 * labels[:, None, None]
        arrays |= {f"{split}_images": pixels.astype(np.uint8), f"{split}_labels": labels.astype(np.uint8)[:, None]}
    np.savez("octmnist.npz", **arrays)


def bits(folder: Path) -> dict[str, bytes]:
    """Every file of a record that neither tells the time nor names records under the run's secret."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name not in TIMES and path.name not in KEYED}


class Trial:
    """One run that is killed until it is done.

    Args:
        folder: of its record; resumed there.
        settings: of its command line.
        span: when training begins in such a run, and when the run ends.
        chance: draws the moments.
    """

    def __init__(self, folder: Path, settings: tuple[str, ...], span: tuple[float, float], chance: random.Random) -> None:
        self.folder, self.settings, self.span, self.chance = folder, settings, span, chance
        self.kills, self.moments, self.seed = 0, Counter[str](), None

    def run(self) -> None:
        """Kill it once; then again as long as a coin says so; then let it end."""
        words = (f"hydra.run.dir={self.folder}", *self.settings)
        while True:
            again = not self.kills or self.chance.random() < 0.5
            within = self.chance.uniform(0.7 * self.span[0], self.span[1]) if again else 600.0
            process = forked(*words)
            code = ended(process, within)
            if code is not None:
                if code:
                    sys.exit(f"{self.folder}: {words}: exit code {code}: {Path('said.txt').read_text()[-1000:]}")
                return
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            self._noted()
            if _state(self.folder) == "done":  # too late: it was about to say so; resume= says that there is nothing to do
                ended(forked(f"resume={self.folder}", "-q"))
                return
            begun = (self.folder / "config.yaml").exists()
            if not begun:
                shutil.rmtree(self.folder, ignore_errors=True)  # no settings were written: there is nothing to resume
            words = (f"resume={self.folder}", "-q") if begun else words

    def _noted(self) -> None:
        self.kills += 1
        kept = self.folder / "checkpoint"
        states = list(kept.rglob("step=*"))
        begun, trained = (kept / "run.json").exists(), (self.folder / "source.json").exists()
        place = "writing" if trained else "training" if states else "first steps" if begun else "before"
        place = "too late" if _state(self.folder) == "done" else place
        self.moments[place] += 1
        with contextlib.suppress(OSError):
            self.seed = int(json.loads((kept / "noise.json").read_bytes())["number"], 16)


def _state(folder: Path) -> str:
    try:
        return str(json.loads((folder / "status.json").read_bytes())["state"])
    except (OSError, ValueError):
        return "none"


def one_case(home: Path, name: str, settings: tuple[str, ...], kills: int, chance: random.Random) -> tuple[str, int, int]:
    """Kill runs of one kind so often; a line of the table, how often it was, and how many runs differ."""
    settings = (*OFTEN, *settings)
    alone(home / "warm", settings)
    span, reference = alone(home / "alone", settings), bits(home / "alone")
    done, runs, different, moments = 0, 0, 0, Counter[str]()
    while done < kills:
        trial = Trial(home / f"run{runs}", settings, span, chance)
        trial.run()
        if trial.seed is not None:
            alone(home / f"same{runs}", settings, trial.seed)
            reference = bits(home / f"same{runs}")
        elif "noise.epsilon=2" in settings:  # it was killed before it drew a seed: there is nothing to compare with
            shutil.rmtree(trial.folder)
            continue
        result = bits(trial.folder)
        names = sorted(name for name in {*result, *reference} if result.get(name) != reference.get(name))
        if names:
            print(f"{name}: {trial.folder}: differs: {names[:5]}", file=sys.stderr)
        done, runs, different = done + trial.kills, runs + 1, different + bool(names)
        moments += trial.moments
    where = "".join(f"{moments[place]:>12}" for place in PLACES)
    return f"{name:36}{runs:>6}{done:>7}{where}{runs - different:>11}", done, different


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="in all")
    parser.add_argument("--slow", type=int, default=12, help="of those that take longer, in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=None, help="names of cases, or their beginnings")
    options = parser.parse_args()
    chance, total, different = random.Random(options.seed), 0, 0
    shares = {name: options.kills / len(CASES) for name in CASES} | {n: options.slow / len(SLOW) for n in SLOW}
    cases = [name for name in shares if options.only is None or name.startswith(tuple(options.only))]
    print(f"{'':36}{'runs':>6}{'kills':>7}" + "".join(f"{place:>12}" for place in PLACES) + f"{'same bits':>11}")
    for name in cases:
        with tempfile.TemporaryDirectory() as home:
            os.chdir(home)
            images()
            line, kills, others = one_case(Path(home), name, (CASES | SLOW)[name], math.ceil(shares[name]), chance)
        print(line, flush=True)
        total, different = total + kills, different + others
    print(f"{total} kills, {different} runs that differ")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
