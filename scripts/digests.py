"""Digests of what many small runs compute: to show that a change of the code's shape changed not a bit of a result.

    python scripts/digests.py write digests.json        before the change
    python scripts/digests.py compare digests.json      after it: lists every value that differs, exit code 1 if any does

Forty runs over every relation, kind of model, loss, product, precision, feature map and ensemble, each trained, certified
and planned through the command line: nominal weights, boxes, stable distances and predictions, tables. Two embedded
datasets, a table and a file of vectors that this script makes. Digests hold for one machine and one set of versions.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load

from agt_cli.cli import main as agt

SMALL = ("dataset.n_train=160", "training.epochs=2", "kgrid.max=6")
MLP = (*SMALL, "model.hidden=[6]")
DIGITS = ("dataset=digits", "training=generic", "training.epochs=2", "kgrid.max=5", "model.hidden=[]")
TEN = (*DIGITS, "dataset.classes=null", "dataset.declared_size=1350")
BCE = "training.loss=binary_cross_entropy"
HEAD = (
    "dataset=digits",
    "model=linear",
    "training=generic",
    BCE,
    "certificate=stability",
    "training.epochs=12",
    "training.lr=4",
)
SOFT = (*HEAD[:3], "training.loss=cross_entropy", *HEAD[4:], "training.lr=2", "training.clip=1")
ERM = ("training.lr=1", "certificate=erm", "training.weight_decay=0.01", "training.batch.count=1")
TABLE = ("dataset=table", "model=mlp", "certificate=box", "training=generic", "dataset.bins=0",
         "dataset.label=y", "dataset.id=who",
         "dataset.declared_size=300", "+dataset.numeric.a=[-2,2]", "+dataset.categorical.b=[u,v]",
         "dataset.classes=[no,yes]")  # fmt: skip
TABLE_HEAD = (*TABLE, "dataset.path=people.csv", BCE, "certificate=stability", "model=linear", "training.lr=3")
VECTORS = ("dataset=embeddings", "certificate=box", "training=generic", "dataset.path=vectors.npz",
           "dataset.declared_size=300")  # fmt: skip
THREE = ("ensemble.members=3", "compute.threads=1")

RELATIONS = ("add_remove", "remove", "substitute", "paper_privacy", "paper_unlearning")
RUNS: dict[str, tuple[str, ...]] = {
    **{f"mlp {r}": (*MLP, f"relation={r}") for r in RELATIONS},
    **{f"linear {r}": (*SMALL, "model=linear", f"relation={r}") for r in ("add_remove", "substitute", "paper_privacy")},
    "rump": (*MLP, "training.product=rump"),
    "rump paper": (*MLP, "training.product=rump", "relation=paper_privacy"),
    "float32": (*MLP, "training.dtype=float32"),
    "reference kernel": (*MLP, "compute.kernel=reference"),
    "momentum": (*MLP, "training.momentum=0.9", "training.dampening=0.2"),
    "nesterov": (*MLP, "training.momentum=0.9", "training.nesterov=true"),
    "decay": (*MLP, "training.weight_decay=0.01"),
    "batches": (*MLP, "training.batch.count=3"),
    "deep": (*SMALL, "model.hidden=[6,5,4]"),
    "one logit": (*MLP, BCE),
    "overlapping": ("dataset=blobs_overlapping", *MLP),
    "units": (*MLP, "relation.unit_rows=3"),
    "sparse": (*MLP, "kgrid=sparse", "kgrid.max=null", "kgrid.values=[0,2,5]"),
    "noise": (*MLP, "noise.epsilon=1", "noise.seed=1"),
    "digits": DIGITS,
    "ten digits": TEN,
    "ten digits, substitute": (*TEN, "relation=substitute"),
    "head": HEAD,
    "head, substitute": (*HEAD, "relation=substitute"),
    "head, averaged": (*HEAD, "certificate.average=4"),
    "head, batches": (*HEAD, "training.batch.count=2", "training.weight_decay=0.01"),
    "head, float32": (*HEAD, "training.dtype=float32"),
    "one-vs-all": (*HEAD, "dataset.classes=null", "dataset.declared_size=1350"),
    "softmax": (*SOFT, "dataset.classes=null", "dataset.declared_size=1350"),
    "relu features": (*HEAD, "certificate.features.map=relu", "certificate.features.count=64"),
    "fourier features": (*HEAD, "certificate.features.map=fourier", "certificate.features.count=64"),
    "landmarks": (*HEAD, "certificate/features=landmarks", "certificate.features.public=test",
                  "certificate.features.count=64"),
    "whitened": (*HEAD, "certificate.features.whiten=0.7", "certificate.features.public=test"),
    "minimiser": (*HEAD, *ERM),
    "ensemble": (*MLP, *THREE),
    "ensemble, substitute": (*MLP, *THREE, "relation=substitute"),
    "ensemble of heads": (*HEAD, *THREE),
    "table": (*TABLE, "dataset.path=people.csv", "kgrid.max=5"),
    "table, head": TABLE_HEAD,
    "table, crosses": (*TABLE_HEAD, "certificate/features=crosses"),
    "vectors": (*VECTORS, "kgrid.max=5", "model=linear"),
}  # fmt: skip


def make_files() -> None:
    """A table and a file of vectors, synthetic, from fixed seeds."""
    rng = np.random.default_rng(5)
    n, a = 420, rng.normal(size=420)
    b = rng.choice(["u", "v", "w"], n)
    y = np.where(a + (b == "u") + 0.5 * rng.normal(size=n) > 0.3, "yes", "no")
    pd.DataFrame({"who": [f"k{7 * i % 997}" for i in range(n)], "a": a, "b": b, "y": y}).to_csv("people.csv", index=False)
    x = rng.normal(size=(n, 5)).astype(np.float32)
    np.savez("vectors.npz", x=x, label=(x[:, 0] + x[:, 1] > 0).astype(int))


def digest_of(folder: Path) -> dict[str, str]:
    """File -> digest of the numbers in it, for the files of a run that hold results."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".safetensors":
            tensors = load(path.read_bytes())
            content = b"".join(
                f"{k}{tensors[k].dtype}{tensors[k].shape}".encode() + tensors[k].tobytes() for k in sorted(tensors)
            )
        elif path.suffix == ".parquet":
            content = pd.read_parquet(path).to_csv(index=False).encode()
        elif path.suffix == ".csv" or path.name == "stability.json":
            content = path.read_bytes()
        else:
            continue
        found[name] = hashlib.sha256(content).hexdigest()[:20]
    return found


def run(name: str, overrides: tuple[str, ...]) -> dict[str, str]:
    """Train, certify and plan; file of each -> digest."""
    place, found = Path("runs") / name.replace(" ", "_").replace(",", ""), {}
    steps = {
        "train": (*overrides, "data_dir=."),
        "certify": (f"run={place / 'train'}", "map_resolution=12"),
        "plan": (f"run={place / 'train'}",),
    }
    for command, arguments in steps.items():
        code = agt([command, *arguments, f"hydra.run.dir={place / command}", "-q", "--json"])
        if code:
            raise SystemExit(f"{name}: agt {command} ended with {code}")
        found |= {f"{command}/{file}": value for file, value in digest_of(place / command).items()}
    return found


def main() -> int:
    """Write digests, or compare with digests written before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    path, out, said = arguments.file.resolve(), sys.stdout, {}
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as sys.stdout:
        os.chdir(folder)
        make_files()
        for name, overrides in RUNS.items():
            said[name] = run(name, overrides)
            print(f"{name}: {len(said[name])} digests", file=out, flush=True)
        os.chdir("/")
    sys.stdout = out
    if arguments.what == "write":
        path.write_text(json.dumps(said, indent=1) + "\n")
        return 0
    before, differ = json.loads(path.read_text()), 0
    for name in before.keys() | said.keys():
        old, new = before.get(name, {}), said.get(name, {})
        for file in sorted(old.keys() | new.keys()):
            if old.get(file) != new.get(file):
                differ += 1
                print(f"{name}: {file}: {old.get(file)} before, {new.get(file)} now")
    print(f"{len(said)} runs, {sum(map(len, said.values()))} digests, {differ} differ")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
