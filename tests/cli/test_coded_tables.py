"""Commands on a table that is held as codes: the records of the same table held as an array.

Tables are held as codes only if they need much memory, so here the limit is set to nothing.
"""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agt.data import encoding
from agt_cli.releasing import noise
from agt_cli.report.record import RunRecord
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


def digests_of(run: Path) -> list[str]:
    """The digests by which a run's record names its data."""
    environment = json.loads((run / "env.json").read_text())
    return [environment["data_digest"], environment["features_digest"]]


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
        monkeypatch.setattr(encoding, "ARRAY_BYTES", limit)
        agt("train", *SETTINGS, *settings, f"hydra.run.dir={name}", "-q").ended(0)
    assert files_of(tmp_path / "codes") == files_of(tmp_path / "array")
    assert digests_of(tmp_path / "codes") == digests_of(tmp_path / "array")


@pytest.mark.parametrize("seed", [(), ("noise.seed=1",)], ids=["noise", "noise and a seed"])
def test_a_release_names_its_data_by_their_digest_before_anything_is_drawn(
    seed: tuple[str, ...], agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a later attempt, and a ledger, know what a run was about that was killed then."""
    write_people(tmp_path / "people.csv", missing=False)
    monkeypatch.setattr(encoding, "ARRAY_BYTES", 0)
    at_draw = []
    draw = noise.spending

    def spending(record: RunRecord, *about: Any) -> AbstractContextManager[None]:
        at_draw.extend(digests_of(record.folder))
        return draw(record, *about)

    monkeypatch.setattr(noise, "spending", spending)
    noisy = ("certificate=box", "training=generic", "training.epochs=2", "noise.epsilon=2")
    agt("train", *SETTINGS, *noisy, *seed, "kgrid.max=2", "hydra.run.dir=run", "-q").ended(0)
    assert at_draw == digests_of(tmp_path / "run")


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
    monkeypatch.setattr(encoding, "ARRAY_BYTES", then)
    agt("train", *SETTINGS, *named, *votes, "hydra.run.dir=run", "-q").ended(0)
    monkeypatch.setattr(encoding, "ARRAY_BYTES", now)
    certified = agt("certify", "run=run", "hydra.run.dir=certified").ended(0)
    assert "changed" not in certified.err + certified.out
    agt("unlearn", "run=run", "ids=ids.txt", "hydra.run.dir=account", "-q").ended(0)
    removal = json.loads((tmp_path / "account/account.json").read_text())["removal"]
    assert removal["facts"]["members_retrained"] == 1
    monkeypatch.setattr(encoding, "ARRAY_BYTES", then)
    agt("certify", "run=run", "hydra.run.dir=again", "-q").ended(0)
    for folder in ("run", "certified", "account", "again"):
        agt("verify", folder, "-q").ended(0)
