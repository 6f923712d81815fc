"""Runs that stand on their own: what certify, plan and predict need to answer a file of queries,
and what they do not.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from records import reseal

from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun

from .conftest import Agt

RNG = np.random.default_rng(0)
N = 80
LABELS = np.array(["no", "yes"])[np.arange(N) % 2]
AGE = np.where(np.arange(N) % 2, 60.0, 30.0) + RNG.uniform(-8, 8, N).round(1)
TABLE = {"age": AGE, "town": RNG.choice(["a", "b", "c"], N), "same": np.full(N, 3.0), "y": LABELS}
VECTORS = {
    "x": RNG.normal(size=(N, 4)).astype(np.float32) + (np.arange(N) % 2)[:, None],
    "label": np.arange(N) % 2,
}
HEAD = ("compute.threads=1", "training=generic", "training.lr=0.1", "training.chosen_on=public")
LINEAR = (
    *HEAD,
    "certificate=stability",
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
    "model=linear",
)
BOX = (*HEAD, "certificate=box", "training.epochs=2", "kgrid.max=3", "compute.kernel=reference")
OF_TABLE = ("dataset=table", "dataset.path=t.csv", "dataset.label=y", "dataset.declared_size=60")
DERIVED = ("+dataset.numeric={age: null, same: null}", "+dataset.categorical={town: [a, b]}")
GIVEN = (
    "+dataset.numeric={age: [18, 100]}",
    "+dataset.categorical={town: [a, b]}",
    "dataset.classes=[no, yes]",
)
OF_VECTORS = (
    "dataset=embeddings",
    "dataset.path=e.npz",
    "dataset.declared_size=60",
    "+dataset.center=middle",
)
SOURCES = {
    "given constants": (*OF_TABLE, *GIVEN, *LINEAR),
    "constants found in the data": (*OF_TABLE, *DERIVED, *LINEAR),
    "a size that nobody declared": (*OF_TABLE, *GIVEN, *LINEAR, "dataset.declared_size=null"),
    "boxes": (*OF_TABLE, *DERIVED, *BOX, "model=mlp", "model.hidden=[3]"),
    "an ensemble": (*OF_TABLE, *GIVEN, *LINEAR, "ensemble.members=2"),
    "an ensemble of no declared size": (
        *OF_TABLE,
        *GIVEN,
        *LINEAR,
        "ensemble.members=2",
        "dataset.declared_size=null",
    ),
    "a network of one's own": (
        *OF_TABLE,
        "dataset.bins=0",
        *GIVEN,
        *BOX,
        "model=custom",
        "model._target_=ownnet.network",
    ),
    "vectors with a center of their file": (*OF_VECTORS, *LINEAR),
    "digits": ("dataset=digits", "dataset.declared_size=300", *LINEAR),
    "points": ("dataset=blobs", "dataset.n_train=80", *LINEAR),
}
# by make sweep
SWEPT = ("a size that nobody declared", "an ensemble of no declared size", "digits", "points")
OWN = (
    "from torch import nn\n\n\ndef network():\n    return nn.Sequential(nn.Linear(4, 3), "
    "nn.Tanh(), nn.Linear(3, 2))\n"
)


@pytest.fixture
def trained(agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Trains the run of that name in the folder where the data lies."""
    (tmp_path / "data").mkdir()
    pd.DataFrame(TABLE).to_csv("data/t.csv", index=False)
    np.savez("data/e.npz", **VECTORS, middle=np.full(4, 0.5))
    Path("ownnet.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))

    def train(name: str) -> Path:
        said = agt("train", *SOURCES[name], "--json", "-q").ended(0)
        return Path(said.json["run"])

    return train


Trained = Callable[[str], Path]


def queries(name: str) -> str:
    """A file of queries of the data that was trained on, of which some are beyond its constants."""
    if "vectors" in name:
        np.savez("q.npz", x=VECTORS["x"][:9], label=VECTORS["label"][:9])
        return "q.npz"
    if name == "digits":
        np.savez("q.npz", x=RNG.integers(0, 17, (9, 64)))
        return "q.npz"
    columns: dict[str, Any] = {
        "age": [20, 70, 500],
        "town": ["a", "nowhere", "c"],
        "same": [3, 4, 5],
        "y": ["no", "yes", "no"],
    }
    if name == "points":
        columns = {"x1": [1.5, -1.5, 0.2], "x2": [1.5, -1.5, 0.1]}
    pd.DataFrame(columns).to_csv("q.csv", index=False)
    return "q.csv"


def certified(run: Path, inputs: str, with_records: bool = False) -> list[Any]:
    """Names, labels and distances, without the figures that agt certify draws."""
    config = {"run": str(run), "inputs": inputs, "compute": {"threads": 1}}
    with RunRecord(Path(f"asked {run.name}"), "certify", config) as record:
        opened = TrainedRun.from_config(config).open(record, Console(quiet=True), with_records)
        found = opened.model.certify(opened.queries.features)
    standings = [
        (condition.letter, condition.standing, condition.why) for condition in opened.conditions
    ]
    return [
        *zip(
            opened.queries.ids,
            opened.queries.labels,
            found.prediction,
            found.stable_distance,
            strict=True,
        ),
        standings,
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.sweep] * (name in SWEPT)) for name in SOURCES]
)
def test_a_file_of_queries_needs_the_runs_folder_alone(trained: Trained, name: str) -> None:
    """As the same run answered with the data at hand, from a copy elsewhere, its data and code
    gone.
    """
    run = trained(name)
    inputs = queries(name)
    expected = certified(run, inputs, with_records=True)
    shutil.rmtree("data")
    Path("ownnet.py").unlink()
    shutil.move(run, "elsewhere")
    assert certified(Path("elsewhere"), inputs) == expected
    assert len(expected) > 3


def test_every_command_says_that_it_did_not_look_at_the_data(trained: Trained, agt: Agt) -> None:
    run = trained("given constants")
    inputs = queries("given constants")
    shutil.rmtree("data")
    commands = {
        "certify": (),
        "plan": ("eps=[1]", "queries=[10]"),
        "predict": ("mechanism.eps=1", "force=true"),
    }
    for command, more in commands.items():
        said = agt(command, f"run={run}", f"inputs={inputs}", *more, "--json", "-q").ended(0)
        now, then = (
            json.loads((folder / "env.json").read_text())
            for folder in (Path(said.json["run"]), run)
        )
        assert "not read" in now["training_data"]
        assert now["data_digest"] == then["data_digest"]
        conditions = [
            json.loads((folder / "conditions.json").read_text())
            for folder in (Path(said.json["run"]), run)
        ]
        assert conditions[0] == conditions[1]


@pytest.mark.usefixtures("trained")  # for its data
def test_a_claim_names_the_rows_that_settings_were_chosen_on(agt: Agt) -> None:
    """A release about a file of queries looks at no training data, and still lists what the run
    declared of it.
    """
    given = ("dataset=table", *OF_TABLE[1:], *GIVEN, "certificate=erm", "compute.threads=1")
    agt(
        "tune",
        *given,
        "tune.public=test",
        "tune.folds=2",
        "tune.name=mine",
        "tune.grid={training.caution: [4]}",
    ).ended(0)
    run = agt("train", "experiment=mine", "compute.threads=1", "--json", "-q").json["run"]
    said = agt(
        "predict",
        f"run={run}",
        f"inputs={queries('')}",
        "mechanism.eps=1",
        "force=true",
        "--json",
        "-q",
    )
    assert any("training.chosen_on" in line for line in said.json["words"])
    claim = json.loads((Path(said.json["run"]) / "claim.json").read_text())
    declared = [entry["fact"] for entry in claim["declared"] if entry["condition"] == "e"]
    assert any("digest" in fact["values"] for fact in declared), "of the test records"


def test_test_records_need_the_data_as_it_was(trained: Trained, agt: Agt) -> None:
    run = trained("given constants")
    inputs = queries("given constants")
    pd.DataFrame(TABLE).iloc[1:].to_csv("data/t.csv", index=False)
    agt("certify", f"run={run}", "-q").ended(2, "lack 1 of the")
    assert certified(run, inputs), "what queries need is in the run"
    Path("data/t.csv").unlink()
    agt("certify", f"run={run}", "-q").ended(4, "t.csv")
    (run / "source.json").unlink()
    reseal(run)
    agt("certify", f"run={run}", f"inputs={inputs}", "-q").ended(2, "source.json")


def test_a_source_holds_no_record_and_is_refused_when_it_was_edited(
    trained: Trained, agt: Agt
) -> None:
    """Constants, facts and, where nobody declared a size, a number of records."""
    run = trained("given constants")
    inputs = queries("given constants")
    whole = (run / "source.json").read_text()
    node = json.loads(whole)
    assert set(node) == {
        "format", "name", "source", "shape", "names",
        "declared_size", "records", "selection", "preprocessing", "size",
    }  # fmt: skip
    assert node["records"] is None
    assert node["source"]["settled"] == {"classes": ["no", "yes"], "ranges": {}}
    for edit, value in (("format", 99), ("names", None), ("source", None)):
        (run / "source.json").write_text(json.dumps({**node, edit: value}))
        edited = agt("certify", f"run={run}", f"inputs={inputs}").ended(2, "source.json")
        assert "manifest.json" in edited.err
        reseal(run)
        said = agt("certify", f"run={run}", f"inputs={inputs}", "-q").ended(2)
        assert "source.json" in said.err or "dataset" in said.err
        (run / "source.json").write_text(whole)
        reseal(run)


@pytest.mark.parametrize(
    "name",
    [
        "boxes",
        *(pytest.param(n, marks=pytest.mark.sweep) for n in ("given constants", "an ensemble")),
    ],
)
def test_a_large_file_is_answered_as_a_small_one(
    trained: Trained, agt: Agt, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Eleven rows at once: the same certificates, scores up to rounding, and the same labels
    from the same draws.
    """
    run = trained(name)
    n = 150
    asked = pd.DataFrame(
        {"age": RNG.uniform(0, 110, n), "town": RNG.choice(["a", "b", "x"], n), "same": 3.0}
    )
    asked.assign(y=RNG.choice(["no", "yes"], n)).to_csv("q.csv", index=False)
    found = []
    for large in (False, True):
        if large:
            for module in ("arrays", "ids", "files"):
                monkeypatch.setattr(f"agt.data.{module}.ROWS", 11)
            monkeypatch.setattr("agt_cli.report.certification_md.ROWS", 11)
            monkeypatch.setattr("agt.data.csv_format._PARSED_BYTES", 500)
            monkeypatch.setattr("agt.data.queries.is_large", lambda path: True)
            monkeypatch.setattr("agt_cli.releasing.label_table.MAX_LABELS_SHOWN", 100)
        certified = agt(
            "certify", f"run={run}", "inputs=q.csv", "map_resolution=0", "--json", "-q"
        ).ended(0)
        simulated = ("accounting=paper", "mechanism.eps=1", "seed=1", "--json", "-q")
        predicted = agt("predict", f"run={run}", "inputs=q.csv", *simulated).ended(0)
        certificates = Path(certified.json["run"]) / "certificates.parquet"
        assert pq.read_metadata(certificates).num_row_groups == (-(-n // 11) if large else 1)
        each = pd.read_parquet(certificates)
        each = each.drop(columns="record_id").round({"score": 12})
        told = certified.json["metrics"].items()
        metrics = {
            key: value for key, value in told if not key.startswith(("seconds", "auc"))
        }  # scores may round otherwise
        labels = (Path(predicted.json["run"]) / "labels.csv").read_text()
        found.append((each.to_numpy().tolist(), metrics, labels))
        told = predicted.json["labels"]
        assert told == str(Path(predicted.json["run"]) / "labels.csv") if large else len(told) == n
    assert found[0] == found[1]


def test_a_certificate_names_its_row_of_the_table(trained: Trained, agt: Agt) -> None:
    """No column names the records; those of queries are numbered as labels.csv numbers them."""
    part = RNG.choice(["train", "test"], N, p=[0.7, 0.3])
    pd.DataFrame({**TABLE, "part": part}).to_csv("data/t.csv", index=False)
    run = Path(
        agt("train", *SOURCES["given constants"], "dataset.split=part", "--json", "-q")
        .ended(0)
        .json["run"]
    )
    for more, rows in (
        ((), np.flatnonzero(part == "test")),
        ((f"inputs={queries('table')}",), np.arange(3)),
    ):
        said = agt("certify", f"run={run}", *more, "map_resolution=0", "--json", "-q").ended(0)
        assert (
            pd.read_parquet(Path(said.json["run"]) / "certificates.parquet")["row"].tolist()
            == rows.tolist()
        )
