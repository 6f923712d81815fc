"""agt measure: what a table's records tell with noise, and what is then claimed, counted and
refused.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]

from agt.data.table import Columns
from agt_cli.cli import main
from agt_cli.commands import start
from agt_cli.runs.usual_learners import ReferenceScores

from .conftest import Agt
from .test_start import shop
from .test_verify import Edit, problems, tamper

BUDGET = ("total.eps=4", "total.delta=1e-5")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where agt start was run on a table of which nothing is public."""
    folder = tmp_path_factory.mktemp("started")
    shop(folder / "shop.csv", rows=3000)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # the usual learners take longer than agt's
        patch.setattr(
            start, "scores_on_table", lambda table, scoring, console: ReferenceScores({}, 0)
        )
        answers = ("label=churn", "id=member", "public=no", "purpose=answers", "eps=5")
        assert main(["start", "shop.csv", *answers, "-q"]) == 0
    return folder


@pytest.fixture
def table(agt: Agt, tmp_path: Path, started: Path) -> Path:
    """The data set that agt start wrote, in a copy of its folder."""
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    return tmp_path / "conf" / "dataset" / "shop.yaml"


def test_who_calls_nothing_public_can_still_release(agt: Agt, tmp_path: Path, table: Path) -> None:
    agt("measure", "dataset=shop", *BUDGET, "--json").ended(0)
    made = yaml.safe_load((tmp_path / "conf" / "dataset" / "shop_measured.yaml").read_text())
    low, high = made["numeric"]["age"]
    assert 8 <= low < 30 < 85 <= high < 130
    assert {"Köln", "Bonn, Süd", "Aachen"} >= {*made["categorical"]["town"]}
    assert made["classes"] == ["no", "yes"]
    assert 2000 < made["declared_size"] < 2500
    assert not made["from_data"]
    agt("measure", "dataset=shop_measured", *BUDGET, "name=more").ended(2, "dataset.measurement")
    (folder,) = (
        path
        for path in (tmp_path / "outputs" / "measure").iterdir()
        if (path / "claim.json").exists()
    )
    said = agt("verify", str(folder)).ended(0)
    assert "(4, 1e-05)-differentially private" in said.out
    agt("train", "dataset=shop_measured", "-q").ended(0)
    agt(
        "predict", "run=latest", "mechanism=noisy_statistics", "total.eps=1", "total.delta=1e-5"
    ).ended(0)
    (claim,) = (tmp_path / "outputs" / "predict").glob("*/claim.json")
    words = " ".join(json.loads(claim.read_text())["words"])
    for value in ("age, spent", "(4, 1e-05)", "add_remove"):
        assert value in words


EDITS: dict[str, tuple[str, dict[str, Edit]]] = {  # the check that tells, and the files
    "a lower price in the file": ("dataset.yaml", {"dataset.yaml": ("claim: (4,", "claim: (0.1,")}),
    "no price in the file": (
        "dataset.yaml",
        {"dataset.yaml": lambda made: made.update(measurement=None)},
    ),
    "nothing spent": ("budget", {"spent.json": None}),
    "words left out": (
        "claim",
        {"claim.json": lambda claim: claim.update(words=[claim["words"][0], claim["words"][-1]])},
    ),
    "declarations left out": ("claim", {"claim.json": lambda claim: claim.update(declared=[])}),
}


def test_a_record_that_was_edited_contradicts_itself(agt: Agt, tmp_path: Path, table: Path) -> None:
    agt("measure", "dataset=shop", *BUDGET).ended(0)
    (folder,) = (path for path in (tmp_path / "outputs" / "measure").iterdir() if path.is_dir())
    for name, (check, edits) in EDITS.items():
        edited = shutil.copytree(folder, tmp_path / name)
        tamper(edited, edits)
        assert [*problems(agt("verify", str(edited), "--json", "-q"))] == [check], name


def test_a_word_that_no_configuration_holds_is_left_out(agt: Agt, tmp_path: Path) -> None:
    rows = "\n".join(
        f"{7919 * i},{i % 70},{('a', '???')[i % 2]},{'ny'[i % 70 > 30]}" for i in range(2000)
    )
    (tmp_path / "odd.csv").write_text(f"id,x,w,y\n{rows}\n")
    agt("data", "inspect", "odd.csv", "label=y", "id=id").ended(0)
    agt("measure", "dataset=odd", "dataset.id_permanent=true", *BUDGET).ended(0)
    assert "?" not in (tmp_path / "conf" / "dataset" / "odd_measured.yaml").read_text()


def test_what_is_public_is_not_paid_for(agt: Agt, tmp_path: Path, table: Path) -> None:
    node = yaml.safe_load(table.read_text()) | {"from_data": ["town"], "declared_size": 2000}
    (table.parent / "half.yaml").write_text(yaml.safe_dump(node))
    agt("measure", "dataset=half", *BUDGET, "name=towns").ended(0)
    made = yaml.safe_load((tmp_path / "conf" / "dataset" / "towns.yaml").read_text())
    assert made["measurement"]["of"] == ["town"]
    ranges = Columns.of(tmp_path / "conf" / "dataset" / "towns.yaml").facts[1]
    assert ranges.code == "columns_public_some_measured_some_proposed"
    assert ranges.values["measured"] == ("town",)
    assert ranges.values["proposed"] == ("age", "spent", "refund"), "what was measured is not"
    assert {key: made[key] for key in ("numeric", "classes", "declared_size")} == {
        key: node[key] for key in ("numeric", "classes", "declared_size")
    }
    (table.parent / "public.yaml").write_text(yaml.safe_dump(node | {"from_data": []}))
    agt("measure", "dataset=public", *BUDGET, "name=nothing").ended(2, "dataset")


def test_a_new_ledger_names_a_measurement_of_the_same_file(
    agt: Agt, tmp_path: Path, table: Path
) -> None:
    """Whatever its coding was: the table's data has another digest since."""
    measured = Path(agt("measure", "dataset=shop", *BUDGET, "--json").ended(0).json["run"])
    agt("train", "dataset=shop_measured", "hydra.run.dir=run", "-q").ended(0)
    given = ("run=run", "total.eps=5", "total.delta=1e-4", "unit=a member")
    said = agt("ledger", "init", "people", *given).ended(0)
    assert str(measured) in said.err
    # unreadable: nobody can tell what it was about
    for text in ("", "[]", '{"data_files": [1], "data_digest": {}}'):
        (measured / "env.json").write_text(text)
        named = str(measured) in agt("ledger", "admit", "people", "run=run").ended(0).err
        assert named == (text in ("", "[]"))


def test_a_ledger_counts_it_before_it_is_drawn(agt: Agt, tmp_path: Path, table: Path) -> None:
    agt(
        "ledger",
        "init",
        "people",
        "run=latest",
        "total.eps=5",
        "total.delta=1e-4",
        "total.leaks=5e-5",
        "unit=a member",
    ).ended(0)
    agt("measure", "dataset=shop", *BUDGET).ended(2, "ledger=people")
    said = agt("measure", "dataset=shop", *BUDGET, "ledger=people").ended(0)
    (folder,) = (
        path
        for path in (tmp_path / "outputs" / "measure").iterdir()
        if (path / "spent.json").exists()
    )
    entry = json.loads((folder / "claim.json").read_text())["account"]["entry"]
    assert f"after entry {entry}:" in said.out
    agt("verify", str(folder)).ended(0)
    agt("measure", "dataset=shop", *BUDGET, "ledger=people", "name=more").ended(3, "people")


def test_mistakes_are_told_before_anything_is_spent(agt: Agt, tmp_path: Path, table: Path) -> None:
    by_home = ("measure", "dataset=shop", "dataset.unit=home", *BUDGET)
    agt(*by_home).ended(2, "relation.unit_rows")
    (tmp_path / "conf" / "dataset" / "shop_measured.yaml").write_text("")
    agt("measure", "dataset=shop", *BUDGET).ended(2, "shop_measured")
    assert not list(tmp_path.glob("outputs/measure/*/spent.json"))
    made = agt(*by_home, "relation.unit_rows=2", "name=homes", "--json").ended(0).json["measured"]
    assert (made["unit"], made["unit_rows"]) == ("home", 2)
    agt("train", "dataset=homes", "relation.unit_rows=3").ended(2, "relation.unit_rows")


def test_where_nothing_stands_out_it_is_spent_and_said(
    agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = "\n".join(f"{x:.3f},{'ab'[int(x > 0)]}" for x in rng.normal(size=60))
    (tmp_path / "few.csv").write_text(f"x,y\n{rows}\n")
    agt("data", "inspect", "few.csv", "label=y").ended(0)
    line = ("measure", "dataset=few", "total.eps=0.1", "total.delta=1e-6")
    for more in ((), ("ledger=none",)):
        agt(*line, *more).ended(2, "total.eps")
    assert not list(tmp_path.glob("outputs/measure/*/spent.json"))
    agt("train", "dataset=few", "hydra.run.dir=run", "-q").ended(0)
    agt(
        "ledger",
        "init",
        "people",
        "run=run",
        "total.eps=5",
        "total.delta=1e-4",
        "total.leaks=.5",
        "unit=a row",
    ).ended(0)
    # it is debited unseen
    agt(*line, "ledger=people").ended(1, "spent.json")
    monkeypatch.setenv("AGT_LEDGER", "people")
    agt(*line).ended(1, "spent.json")
    spent = set(tmp_path.glob("outputs/measure/*/spent.json"))
    assert len(spent) == 2
    agt(*line, "ledger=none").ended(2)
    assert set(tmp_path.glob("outputs/measure/*/spent.json")) == spent
