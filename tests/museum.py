"""Finished runs of every kind, each made once a test session, when a test first asks for it;
nobody changes them.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from agt.data.blobs import Blobs
from agt.models import own_votes
from agt_cli.cli import main

PUBLIC = "training.chosen_on=public"
SMALLEST = (
    "model=linear",
    "dataset.n_train=80",
    "training.epochs=1",
    "kgrid.max=3",
    "compute.kernel=reference",
)
TINY = (
    "dataset.n_train=80",
    "training.epochs=2",
    "kgrid.max=3",
    "compute.kernel=reference",
    "compute.threads=1",
    PUBLIC,
)
BOX = (*TINY, "model=linear")
LINEAR = (
    *TINY,
    "model=linear",
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
    "training.momentum=0",
)
BUDGET = ("total.eps=1", "total.delta=1e-5")
COMMANDS: dict[str, tuple[str, ...]] = {
    "train/tiny": ("train", *SMALLEST),  # well under a second
    "train/box": ("train", *BOX),
    "train/network": ("train", *TINY, "model.hidden=[4]"),
    "train/linear": ("train", *LINEAR, "certificate=stability"),
    "train/erm": (
        "train",
        *LINEAR,
        "certificate=erm",
        "training.weight_decay=0.1",
        "certificate.tolerance=1e-6",
    ),
    "train/removal": ("train", *LINEAR, "certificate=removal", "training.weight_decay=0.1"),
    "train/ensemble": ("train", *BOX, "ensemble.members=2"),
    "train/linear_ensemble": ("train", *LINEAR, "certificate=stability", "ensemble.members=2"),
    "train/noisy": ("train", *BOX, "noise.epsilon=1", "training.clip=0.05"),
    "train/whitened": (
        *("train", *LINEAR, "certificate=stability"),
        *("certificate.features.whiten=0.5", "certificate.features.public=test"),
    ),
    "train/trees": (
        *(
            "train",
            "dataset=blobs_overlapping",
            "dataset.n_train=200",
            "certificate=votes",
            "ensemble.members=5",
        ),
        *(
            "certificate.learner._target_=sklearn.tree.DecisionTreeClassifier",
            "certificate.learner.max_depth=2",
            PUBLIC,
        ),
    ),
    "certify/box": ("certify", "run=train/box", "map_resolution=12"),
    "plan/linear": (
        "plan",
        "run=train/linear",
        "eps=[1.0]",
        "queries=[10]",
        "mechanisms=[randomized_response]",
    ),
    "predict/labels": ("predict", "run=train/box", "mechanism.eps=1"),
    "predict/number": (
        "predict",
        "run=train/box",
        "mechanism=certified_quantile",
        "mechanism.eps=1",
    ),
    "predict/weights": ("predict", "run=train/linear", "mechanism=release_weights", *BUDGET),
    "ledgers/people.ledger": (
        "ledger",
        "init",
        "people",
        "run=train/erm",
        *BUDGET,
        "unit=one person",
    ),
    "predict/paid": (
        *("predict", "run=train/erm", "inputs=queries.npz"),
        *("ledger=people", "mechanism=gaussian_margin", "mechanism.mu=0.1"),
    ),
    "train/erased": ("train", *BOX, "training.epochs=1"),
    "unlearn/erased": ("unlearn", "run=train/erased", "ids=ids.txt", "method=retrain"),
}
AFTER = {"predict/paid": ("ledgers/people.ledger",)}  # beside the run that a command names


class FinishedRuns:
    """Folders of finished runs, by name (``COMMANDS``): ``finished_runs["train/box"]``."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __getitem__(self, name: str) -> Path:
        done = self.home / f"{name.replace('/', '.')}.done"
        if not done.exists():
            words = COMMANDS[name]
            for before in (
                *AFTER.get(name, ()),
                *(word.removeprefix("run=") for word in words if word.startswith("run=")),
            ):
                _ = self[before]
            with _alone(self.home / "museum.lock"), _inside(self.home):
                if not done.exists():
                    place = (
                        ()
                        if name.startswith("ledgers/")
                        else (f"hydra.run.dir={name}", "output_dir=outputs")
                    )
                    np.savez(
                        "queries.npz", x=np.arange(6.0).reshape(3, 2), id=np.array(["a", "b", "c"])
                    )
                    ids = Blobs(center=1.25, std=0.35, n_train=80).load().train.ids
                    Path("ids.txt").write_text(f"{ids[0]}\n{ids[3]}\n")
                    with pytest.MonkeyPatch.context() as patch:
                        # a fresh process takes seconds
                        patch.setattr(own_votes, "check_retrained", lambda *_: None)
                        assert main([*words, *place, "-q", "--json"]) == 0, name
                    done.touch()
        return self.home / name

    def copy(self, name: str, to: Path) -> Path:
        """A copy of one, to be spoilt."""
        shutil.copytree(self[name], to)
        return to


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Of several worker processes one makes a run, and the others wait for it."""
    fcntl = pytest.importorskip("fcntl")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def museum(base: Path, worker: str) -> FinishedRuns:
    """For all worker processes of this test session."""
    home = (base.parent if worker != "master" else base) / "museum"
    home.mkdir(exist_ok=True)
    return FinishedRuns(home)
