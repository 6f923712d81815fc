"""Which queries a run answers: of its own population, better than a constant, and joined by the
right column.
"""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agt_cli.cli import main

from .conftest import Agt, Said
from .test_service import entries, labels_of, open_ledger

TABLE = (
    *("dataset=table", "dataset.label=y", "dataset.classes=[no,yes]", "dataset.declared_size=450"),
    *(
        "+dataset.numeric={age: [0, 100]}",
        "+dataset.categorical={town: [Graz, Linz]}",
        "training.chosen_on=public",
    ),
)
EACH = ("mechanism.eps=1",)
ABROAD = ("'town'",)
FAR = ("'age'", "[0, 100]")
"""What is named of values outside their column's public list or range."""
WEAK = "mechanism.eps=0.1"  # two of three labels stay as they are, and three of four are no


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on 600 people named by ``client``, of whom about a fifth have the label yes: those
    above 80.
    """
    home = tmp_path_factory.mktemp("clients")
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 100, 600).round(1)
    town = rng.choice(["Graz", "Linz"], 600)
    people = pd.DataFrame({"client": [f"c{row}" for row in range(600)], "age": age, "town": town})
    people.assign(y=np.where(age > 80, "yes", "no")).to_csv(home / "people.csv", index=False)
    where = (
        f"dataset.path={home / 'people.csv'}",
        "dataset.id=client",
        "dataset.id_permanent=true",
        f"hydra.run.dir={home / 'run'}",
    )
    assert main(["train", *TABLE, *where, "-q", "--json"]) == 0
    return home / "run"


Talk = Callable[..., tuple[Said, list[dict[str, Any]]]]


@pytest.fixture
def talk(agt: Agt, run: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Sends records one by one to a session; (what it left behind, its answers)."""

    def ask(records: list[dict[str, Any]], *more: str) -> tuple[Said, list[dict[str, Any]]]:
        content = "".join(json.dumps({"record": record}) + "\n" for record in records).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        said = agt("predict", f"run={run}", "inputs=-", *EACH, *more)
        return said, [json.loads(line) for line in said.out.splitlines()][1:]

    return ask


def queries(*records: dict[str, Any]) -> str:
    pd.DataFrame(list(records)).to_csv("q.csv", index=False)
    return "inputs=q.csv"


HERE: dict[str, Any] = {"age": 37, "town": "Graz"}
WIEN: dict[str, Any] = {"age": 37, "town": "Wien"}
OLD: dict[str, Any] = {"age": 1e6, "town": "Graz"}

# -- of another population


def test_a_line_of_another_population_costs_nothing_and_the_next_is_answered(
    talk: Talk, run: Path
) -> None:
    path = open_ledger(run, 100)
    near = {"age": 190, "town": "Linz"}
    said, answers = talk([WIEN, OLD, HERE, near], "ledger=people")
    assert said.code == 0, said.err
    codes = [answer.get("code") for answer in answers]
    assert codes == [None, 2, None, None], "one rare word counts as other"
    for value in ("line 2", *FAR):
        assert value in answers[1]["error"]
    assert sum(entry["size"] for entry in entries(path, "debit")) == 3, "line 2 costs nothing"
    assert "line 2" in said.err
    assert "force=true" in said.err
    forced, answers = talk([WIEN, OLD], "ledger=people", "force=true")
    assert [answer["stored"] for answer in answers] == [True, False], "WIEN was asked before"
    assert "force=true" not in forced.err


def test_a_line_s_refusal_does_not_depend_on_the_lines_before_it(talk: Talk) -> None:
    refused = talk([OLD])[1][0]
    _, answers = talk([HERE] * 30 + [OLD], "hydra.run.dir=many")
    assert answers[-1] == {**refused, "error": refused["error"].replace("line 1", "line 31")}


def test_a_file_is_refused_as_its_rows_are_one_by_one(agt: Agt, run: Path) -> None:
    agt("predict", f"run={run}", queries(OLD), *EACH).ended(2, *FAR, "force=true")
    assert agt("predict", f"run={run}", queries(*[HERE] * 4, OLD), *EACH).code == 0
    assert agt("predict", f"run={run}", queries(OLD), *EACH, "force=true").code == 0


def test_one_rare_word_is_answered_and_two_of_two_are_of_another_population(
    agt: Agt, run: Path
) -> None:
    agt("predict", f"run={run}", queries(WIEN), *EACH, "hydra.run.dir=rare").ended(0)
    agt("predict", f"run={run}", queries(WIEN, WIEN), *EACH).ended(2, *ABROAD, "force=true")


def test_weights_that_were_released_answer_no_other_population_unasked(agt: Agt, run: Path) -> None:
    weights = ("mechanism=release_weights", "total.eps=5", "total.delta=1e-5")
    assert agt("predict", f"run={run}", *weights, "hydra.run.dir=released").code == 0
    release = "release=released/release"
    agt("predict", release, queries(WIEN, WIEN)).ended(2, *ABROAD, "force=true")
    assert agt("predict", release, queries(WIEN, WIEN), "force=true").code == 0
    assert agt("predict", release, queries(WIEN)).code == 0, "it counts as other"
    assert agt("predict", release, queries(HERE)).code == 0


# -- no better than a constant


def many(labelled: bool = False, count: int = 40) -> str:
    age = np.linspace(1, 99, count)
    labels = {"y": np.where(age > 80, "yes", "no")} if labelled else {}
    pd.DataFrame({"age": age, "town": "Graz", **labels}).to_csv("q.csv", index=False)
    return "inputs=q.csv"


LEAVES = ("labelled", "unlabelled", "few labels")


@pytest.mark.parametrize("kind", LEAVES)
def test_labels_that_a_constant_beats_are_not_drawn_unasked(agt: Agt, run: Path, kind: str) -> None:
    asked = (
        "predict",
        f"run={run}",
        many(kind != "unlabelled", 5 if kind == "few labels" else 60),
        WEAK,
    )
    agt(*asked).ended(2, "force=true")
    assert not list(Path("outputs").rglob("spent.json"))
    forced = agt(*asked, "force=true", "hydra.run.dir=forced").ended(0)
    written = "".join(
        file.read_text(errors="replace") for file in Path("forced").rglob("*") if file.is_file()
    )
    warning = forced.err.splitlines()[0]
    assert warning not in forced.out + written, "the estimate is the owner's"
    assert agt(*asked[:-1], *EACH).code == 0


def test_test_records_are_refused_alike(agt: Agt, run: Path) -> None:
    agt("predict", f"run={run}", WEAK).ended(2, "force=true")


def test_under_a_ledger_whose_debit_comes_first_the_estimate_is_the_owner_s_alone(
    agt: Agt, run: Path
) -> None:
    open_ledger(run, 100)
    said = agt("predict", f"run={run}", many(), WEAK, "ledger=people").ended(0)
    sure = agt("predict", f"run={run}", many(), *EACH, "ledger=people").ended(0)
    told = {*said.err.splitlines()} - {*sure.err.splitlines()}
    assert told, "that one answer to all is as good"
    assert not any(line in said.out for line in told)


def test_where_few_test_records_were_kept_nothing_is_said_of_the_constant(
    agt: Agt, run: Path
) -> None:
    """An estimate needs records, as a verdict does."""
    people = pd.read_csv(run.parent / "people.csv").assign(part="train")
    people.loc[:4, "part"] = "test"
    people.to_csv("people.csv", index=False)
    where = ("dataset.path=people.csv", "dataset.split=part", "hydra.run.dir=few", "-q", "--json")
    assert agt("train", *TABLE, *where).code == 0
    assert agt("predict", "run=few", many(), WEAK).code == 0


# -- which column joins answers to queries

NAMED = {"client": ["x1", "x2"], "id": ["a", "b"]}


@pytest.mark.parametrize(
    ("columns", "used"),
    [(["client"], "client"), (["id"], "id"), (["id", "client"], "client"), ([], None)],
    ids=["the dataset's", "id", "both", "none"],
)
def test_answers_are_joined_by_the_dataset_s_id_or_by_id(
    agt: Agt, run: Path, columns: list[str], used: str | None
) -> None:
    pd.DataFrame({"age": [1, 99], "town": "Graz"} | {name: NAMED[name] for name in columns}).to_csv(
        "q.csv", index=False
    )
    said = agt("predict", f"run={run}", "inputs=q.csv", *EACH, "hydra.run.dir=answers").ended(0)
    assert labels_of(said)["record_id"].tolist() == (["0", "1"] if used is None else NAMED[used])
    assert json.loads(Path("answers/env.json").read_text())["inputs_id"] == used
    assert (f"column '{used}'" in said.err) == (used is not None)


@pytest.mark.parametrize("how", ["certify", "release"])
def test_certificates_and_weights_join_alike(agt: Agt, run: Path, how: str) -> None:
    asked: tuple[str, ...] = ("certify", f"run={run}")
    if how == "release":
        weights = (
            "mechanism=release_weights",
            "total.eps=5",
            "total.delta=1e-5",
            "hydra.run.dir=released",
        )
        assert agt("predict", f"run={run}", *weights).code == 0
        asked = ("predict", "release=released/release")
    inputs = queries({**HERE, "id": "q7"})
    said = agt(*asked, inputs, "hydra.run.dir=answers").ended(0)
    assert json.loads(Path("answers/env.json").read_text())["inputs_id"] == "id"
    if how == "release":
        assert "column 'id'" in said.err
        assert labels_of(said)["record_id"].tolist() == ["q7"]
    else:
        assert pd.read_parquet("answers/certificates.parquet").iloc[0].astype(str).eq("q7").any()
