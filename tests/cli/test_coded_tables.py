"""Commands on a table that is held as codes: the records of the same table held as an array.

Tables are held as codes only if they need much memory, so here the limit is set to nothing.
"""

import json
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agt.data import dataset, digests, table
from agt.data.records import Records
from agt.errors import AgtError
from agt_cli.commands import train
from agt_cli.report.quality import AnyQuality
from agt_cli.runs import prepare

from .conftest import Agt

SETTINGS = (
    "dataset=table",
    "dataset.path=people.csv",
    "dataset.label=label",
    "dataset.classes=[no,yes]",
    "dataset.declared_size=300",
    "+dataset.numeric={age: [18, 100], income: [-5, 5]}",
    "+dataset.categorical={region: [north, south]}",
)

NOISE = (
    "certificate=box",
    "training=generic",
    "training.epochs=2",
    "training.clip=0.05",
    "kgrid.max=2",
    "noise.epsilon=1",
)


def write_people(path: Path, missing: bool) -> None:
    """Write a csv of 400 people with duplicates, and with gaps if asked for."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(10, 110, 400),
            "income": rng.normal(size=400).round(3),
            "region": rng.choice(["north", "south", "west"], 400),
            "label": rng.choice(["no", "yes"], 400),
        }
    )
    frame.loc[frame["age"] > 60, "label"] = "yes"
    if missing:
        frame["income"] = frame["income"].mask(rng.random(400) < 0.2)
    pd.concat([frame, frame[:30]]).to_csv(path, index=False)


def files_of(run: Path) -> dict[str, bytes]:
    """The files of a run that depend on its data and settings alone, by name."""
    files = {}
    for path in sorted(run.rglob("*")):
        if path.suffix in (".safetensors", ".parquet", ".csv"):
            files[str(path.relative_to(run))] = path.read_bytes()
    files["conditions.json"] = (run / "conditions.json").read_bytes()
    metrics = json.loads((run / "metrics.json").read_text())
    del metrics["seconds_training"]
    files["numbers"] = json.dumps(metrics).encode()
    return files


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("dataset.missing=indicator",),
        ("certificate=erm",),
        ("certificate=removal", "certificate.seed=1"),
        ("certificate=votes", "ensemble.members=5"),
        (
            "certificate=box",
            "training=generic",
            "training.epochs=2",
            "training.lr=0.1",
            "kgrid.max=2",
        ),
    ],
    ids=["stability", "missing values", "erm", "removal", "votes", "box"],
)
def test_a_run_has_the_same_files_however_its_table_is_held(
    settings: tuple[str, ...], agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_people(tmp_path / "people.csv", missing="dataset.missing=indicator" in settings)
    for name, limit in (("array", 2**40), ("codes", 0)):
        monkeypatch.setattr(table, "ARRAY_BYTES", limit)
        agt("train", *SETTINGS, *settings, f"hydra.run.dir={name}", "-q").ended(0)
    assert files_of(tmp_path / "codes") == files_of(tmp_path / "array")


def test_the_accuracy_of_an_ensemble_is_of_a_public_sample(
    agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "TRAIN_ACCURACY_RECORDS", 100)
    write_people(tmp_path / "people.csv", missing=False)
    metrics = []
    for name, settings in (
        ("many", ("certificate=votes", "ensemble.members=5")),
        ("one", ()),
    ):
        agt("train", *SETTINGS, *settings, f"hydra.run.dir={name}", "-q").ended(0)
        metrics.append(json.loads((tmp_path / name / "metrics.json").read_text()))
    of_many, of_one = metrics
    assert 50 < of_many["train_accuracy_records"] < 150
    assert "train_accuracy_records" not in of_one
    asked = of_many["train_accuracy"] * of_many["train_accuracy_records"]
    assert asked == pytest.approx(round(asked))


@pytest.mark.parametrize(("then", "now"), [(0, 2**40), (2**40, 0)], ids=["codes", "array"])
def test_a_run_is_used_and_erased_from_although_its_table_is_held_in_another_way(
    then: int, now: int, agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_people(tmp_path / "people.csv", missing=False)
    people = pd.read_csv(tmp_path / "people.csv")
    people.insert(0, "id", [f"r{row}" for row in range(len(people))])
    people.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "ids.txt").write_text("r3\n")
    named = ("dataset.id=id", "dataset.id_permanent=true")
    votes = ("certificate=votes", "ensemble.members=5")
    monkeypatch.setattr(table, "ARRAY_BYTES", then)
    agt("train", *SETTINGS, *named, *votes, "hydra.run.dir=run", "-q").ended(0)
    monkeypatch.setattr(table, "ARRAY_BYTES", now)
    certified = agt("certify", "run=run", "hydra.run.dir=certified").ended(0)
    assert "changed" not in certified.err + certified.out
    agt("unlearn", "run=run", "ids=ids.txt", "hydra.run.dir=account", "-q").ended(0)
    removal = json.loads((tmp_path / "account/account.json").read_text())["removal"]
    assert removal["facts"]["members_retrained"] == 1
    monkeypatch.setattr(table, "ARRAY_BYTES", then)
    agt("certify", "run=run", "hydra.run.dir=again", "-q").ended(0)
    for folder in ("run", "certified", "account", "again"):
        agt("verify", folder, "-q").ended(0)


@pytest.mark.parametrize("held", ["array", "codes"])
def test_a_run_whose_data_are_hashed_meanwhile_has_the_files_of_one_whose_data_are_hashed_first(
    held: str, agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest is known only when everything else is done, and is recorded nevertheless."""
    write_people(tmp_path / "people.csv", missing=False)
    monkeypatch.setattr(table, "ARRAY_BYTES", 0 if held == "codes" else 2**40)
    agt("train", *SETTINGS, "hydra.run.dir=first", "-q").ended(0)
    judged = Event()
    really_compute = digests.fingerprint
    really_judge = prepare._judge

    def compute_after_judging(*parts: Records, **how: Any) -> str:
        assert judged.wait(60)
        return really_compute(*parts, **how)

    def judge_first(*arguments: Any) -> AnyQuality:
        quality = really_judge(*arguments)
        judged.set()
        return quality

    monkeypatch.setattr(train, "HASHED_LATER_BYTES", 0)
    monkeypatch.setattr(digests, "fingerprint", compute_after_judging)
    monkeypatch.setattr(prepare, "_judge", judge_first)
    agt("train", *SETTINGS, "hydra.run.dir=meanwhile", "-q").ended(0)
    assert files_of(tmp_path / "meanwhile") == files_of(tmp_path / "first")
    first, meanwhile = (
        json.loads((tmp_path / run / "env.json").read_text()) for run in ("first", "meanwhile")
    )
    for key in ("data_digest", "features_digest", "dataset", "data_files"):
        assert meanwhile[key] == first[key]
    assert meanwhile["people"]
    agt("certify", "run=meanwhile", "hydra.run.dir=certified").ended(0)
    agt("verify", "meanwhile").ended(0)


@pytest.mark.parametrize(
    "settings",
    [("compute.checkpoint_seconds=5",), ("ensemble.members=3",), NOISE],
    ids=["checkpoints", "ensemble", "noise"],
)
def test_data_are_hashed_first_where_something_needs_their_digest(
    settings: tuple[str, ...], agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_people(tmp_path / "people.csv", missing=False)
    monkeypatch.setattr(train, "HASHED_LATER_BYTES", 0)
    monkeypatch.setattr(dataset, "fingerprint_in_background", None)
    agt("train", *SETTINGS, *settings, "hydra.run.dir=run", "-q").ended(0)


def test_a_run_that_failed_before_its_data_were_hashed_starts_over(
    agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_people(tmp_path / "people.csv", missing=False)
    agt("train", *SETTINGS, "hydra.run.dir=whole", "-q").ended(0)

    def compute_until_stopped(*parts: Records, stop: Event, **how: Any) -> str:
        assert stop.wait(60)
        raise digests.Stopped

    def fail(*arguments: Any) -> None:
        raise AgtError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(train, "HASHED_LATER_BYTES", 0)
        patch.setattr(digests, "fingerprint", compute_until_stopped)
        patch.setattr(train, "fit", fail)
        agt("train", *SETTINGS, "hydra.run.dir=failed", "-q").ended(1, "no more")
    assert not (tmp_path / "failed" / "checkpoint").exists()
    assert "data_digest" not in json.loads((tmp_path / "failed" / "env.json").read_text())
    agt("train", "resume=failed", "-q").ended(0)
    assert files_of(tmp_path / "failed") == files_of(tmp_path / "whole")
