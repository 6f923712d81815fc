"""SISA: after a removal only what it touched is trained again, to the bits of a training that
never saw the record.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import make_records, make_training

import agt
from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.data.target import ClassTarget
from agt.errors import CheckError
from agt.facts import evidence, not_held, proved
from agt.models import ensemble as ensembles
from agt.models.box import BoxKind
from agt.models.erm import ErmKind
from agt.models.fitting import fit
from agt.models.heads import HeadConfig
from agt.models.own_votes import OwnVotesKind
from agt.models.stability import StabilityKind
from agt.models.votes import VotesKind, VotesModel
from agt.problem import Problem, Settings
from agt.settings import (
    ComputeConfig,
    FeaturesConfig,
    KGridConfig,
    RelationConfig,
    RelationName,
)
from agt.store.folder import Folder, NewFolder
from agt.training.ensemble import assign_shards
from agt.training.settings import EnsembleConfig
from agt.unlearning.sisa import Retrained, retrain_affected

UNITS = 40
DEFAULT = {"normalizer": None, "n_max": None}
CLOSED = {"loss": "binary_cross_entropy", "clip": 1.0, "lr": 0.5, "batch": DEFAULT}
NO_SIZE = {"normalizer": None, "n_max": 200}


def people(seed: int = 0) -> Records:
    """Units of one to three rows, two classes that overlap."""
    rng = np.random.default_rng(seed)
    units = [f"u{unit}" for unit in range(UNITS) for _ in range(1 + unit % 3)]
    y = rng.integers(0, 2, len(units))
    return make_records(rng.normal(size=(len(y), 4)) / 3 + y[:, None] / 2, y, units)


def problem(
    certificate: Any,
    records: Records,
    size: float | None = 80.0,
    **training: Any,
) -> Problem:
    dataset = Dataset(
        "people",
        ClassTarget(("0", "1")),
        records,
        people(1),
        size,
        {},
        *2 * [evidence(proved("own_words", text="made here"))],
    )
    settings = Settings(
        model=HeadConfig(hidden=(3,) if isinstance(certificate, BoxKind) else ()),
        training=make_training(epochs=4, **training),
        relation=RelationConfig(name="add_remove", unit_rows=3),
        kgrid=KGridConfig(max=2),
        compute=ComputeConfig(threads=1, kernel="reference"),
        certificate=certificate,
        ensemble=EnsembleConfig(members=4),
        noise=None,
        choices=not_held("own_words", text="a test"),
    )
    return Problem(dataset, settings)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "box, batches": (BoxKind(), {"batch": {**DEFAULT, "count": 2}, "momentum": 0.5, "decay": 0.1}),
    "stability": (StabilityKind(), CLOSED),
    "stability, batches": (StabilityKind(average=3), {**CLOSED, "batch": {**DEFAULT, "count": 2}}),
    "erm": (ErmKind(), {**CLOSED, "weight_decay": 0.1}),
    "box, no size": (BoxKind(), {"size": None, "batch": NO_SIZE}),
}
cases = pytest.mark.parametrize(
    "name", ["box, batches", "stability, batches", "erm", "box, no size"]
)


def home(records: Records) -> np.ndarray:
    return assign_shards(records.units, EnsembleConfig(members=4))


def removals(records: Records) -> Iterator[np.ndarray]:
    """Masks of what remains: without a unit, without some, without a shard, without a class of a
    shard.
    """
    yield records.units != "u5"
    yield ~np.isin(records.units, ["u0", "u11", "u23"])
    yield home(records) != 2
    yield (home(records) != 1) | (records.labels == 0)


def files(model: Any, folder: Path) -> dict[str, bytes]:
    store = NewFolder(folder, "test")
    model.save(store)
    model.save_shards(store)
    store.finish()
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@dataclass
class Kept:
    """An ensemble that was trained on everybody, in a folder."""

    whole: Problem
    folder: Path

    @classmethod
    def of(cls, name: str, folder: Path, **training: Any) -> "Kept":
        certificate, given = CASES[name]
        kept = cls(problem(certificate, people(), **{**given, **training}), folder / "kept")
        files(fit(kept.whole), kept.folder)
        return kept

    @property
    def shelf(self) -> Folder:
        return Folder.open(self.folder, "test")

    def without(self, remaining: np.ndarray) -> Problem:
        dataset = self.whole.dataset
        return self.whole.with_dataset(replace(dataset, train=dataset.train.take(remaining)))

    def updated(self, remaining: np.ndarray) -> Retrained:
        return retrain_affected(self.without(remaining), self.shelf)


@pytest.mark.sampled(2)
@cases
def test_every_file_is_that_of_a_training_without_the_record(name: str, tmp_path: Path) -> None:
    kept = Kept.of(name, tmp_path)
    for number, remaining in enumerate(removals(people())):
        done = kept.updated(remaining)
        fresh = files(fit(kept.without(remaining)), tmp_path / f"fresh{number}")
        assert files(done.model, tmp_path / f"now{number}") == fresh
        assert set(done.trained) == set(home(people())[~remaining])
        assert not done.environment_differences


def test_members_in_one_file_are_those_of_a_training_without_the_record(tmp_path: Path) -> None:
    kept = Kept(problem(VotesKind(strength=0.1), people()), tmp_path / "kept")
    files(fit(kept.whole), kept.folder)
    for number, remaining in enumerate(removals(people())):
        done = kept.updated(remaining)
        fresh = files(fit(kept.without(remaining)), tmp_path / f"fresh{number}")
        assert files(done.model, tmp_path / f"now{number}") == fresh
        assert set(done.trained) == set(home(people())[~remaining])
        assert not done.environment_differences


@pytest.mark.parametrize("relation", ["add_remove", "flip"])
def test_some_members_trained_again_are_those_of_training_all(relation: RelationName) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    ids = [f"r{row}" for row in range(120)]
    fitted = agt.fit(x, x[:, 0] > 0, ids=ids, certificate="votes", relation=relation, members=4)
    model = fitted.model.shard_votes
    assert isinstance(model, VotesModel)
    records = model.problem.dataset.train
    shards = assign_shards(records.units, model.settings.ensemble)
    remaining = records.take(~((shards == 1) & (np.arange(len(records)) % 2 == 0)))
    some = model.with_members_retrained(remaining, [1])
    every = model.retrained(remaining)
    assert not torch.equal(some.weight, model.weight)
    for name, tensor in every.tensors.items():
        assert torch.equal(some.tensors[name], tensor)


def test_members_of_a_learner_of_ones_own_are_not_stored_and_so_not_kept() -> None:
    own = OwnVotesKind(learner={"_target_": "own_learners.drawing"})
    settings = problem(VotesKind(strength=0.1), people()).settings
    assert "sisa" in settings.certificate.erasure_methods(settings.ensemble)
    assert "sisa" not in own.erasure_methods(settings.ensemble)


def test_nothing_is_trained_where_nobody_is_gone(tmp_path: Path) -> None:
    kept = Kept.of("stability, batches", tmp_path)
    done = kept.updated(np.full(len(people()), True))
    assert (done.trained, done.steps) == ((), 4 * 2)


def test_members_of_other_code_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept.of("stability, batches", tmp_path)
    real = ensembles.surroundings
    monkeypatch.setattr(
        ensembles, "surroundings", lambda *about: {**real(*about), "agt's code": "another"}
    )
    done = kept.updated(people().units != "u5")
    assert len(done.trained) == 1
    assert done.environment_differences == ("agt's code",)


def test_what_depends_on_more_than_its_shard_is_refused(tmp_path: Path) -> None:
    kept = Kept.of("stability", tmp_path)
    alone = replace(kept.whole, settings=replace(kept.whole.settings, ensemble=EnsembleConfig()))
    with pytest.raises(CheckError, match=r"ensemble\.members=1\b"):
        retrain_affected(alone, kept.shelf)
    (kept.folder / "members/001/shard.json").unlink()
    manifest = NewFolder(tmp_path / "bare", "test")
    fit(kept.whole).save(manifest)
    manifest.finish()
    with pytest.raises(CheckError, match=r"method=sisa: .*shard\.json"):
        retrain_affected(kept.whole, Folder.open(tmp_path / "bare", "test"))


def test_features_whitened_by_rows_that_are_others_now_are_refused(tmp_path: Path) -> None:
    features = FeaturesConfig(whiten=0.5, public="test")
    CASES["whitened"] = (StabilityKind(features=features), CLOSED)
    try:
        kept = Kept.of("whitened", tmp_path)
    finally:
        del CASES["whitened"]
    now = kept.without(people().units != "u5")
    assert len(retrain_affected(now, kept.shelf).trained) == 1
    fewer = now.with_dataset(replace(now.dataset, test=now.dataset.test.take(np.arange(30))))
    with pytest.raises(CheckError, match=r"method=sisa: .*certificate\.features\.public"):
        retrain_affected(fewer, kept.shelf)


def test_features_made_from_public_rows_of_the_shard_are_made_anew(tmp_path: Path) -> None:
    records = people()
    records = replace(records, public=np.isin(records.units, [f"u{i}" for i in range(0, 40, 2)]))
    features = FeaturesConfig(whiten=0.5, public="train")
    whole = problem(StabilityKind(features=features), records, **CLOSED)
    files(fit(whole), tmp_path / "kept")
    gone = records.units[records.public][0]
    now = whole.with_dataset(replace(whole.dataset, train=records.take(records.units != gone)))
    done = retrain_affected(now, Folder.open(tmp_path / "kept", "test"))
    assert len(done.trained) == 1
    assert files(done.model, tmp_path / "after") == files(fit(now), tmp_path / "fresh")
