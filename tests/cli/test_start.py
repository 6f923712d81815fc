"""agt start FILE: questions, a trained model and a plan; nothing is claimed that was not said,
and nothing is spent.
"""

import json
import os
import pty
import re
import shlex
import shutil
import sys
import termios
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pytest
import yaml  # type: ignore[import-untyped]

from agt.mechanisms.planning import Budget, PlannedRelease
from agt.mechanisms.statistics import NoisyStatistics
from agt_cli.cli import main
from agt_cli.commands import start
from agt_cli.report.proposed_release import HEAD, QUERIES
from agt_cli.report.scoring import MEMBERS_WITHOUT_SIZE
from agt_cli.runs.dataset_file import COUNTS_ROWS
from agt_cli.runs.usual_learners import ReferenceScores
from agt_cli.start.plan import weights_release

from .conftest import Agt

ANSWERS = ("label=churn", "id=none", "public=yes", "purpose=both", "eps=2")
WORDS = 495


def shop(path: Path, rows: int = 1500) -> Path:
    """Customers with a name for good, two of them in a household, and a column that is known too
    late.
    """
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, rows)
    town = rng.choice(["Köln", "Bonn, Süd", "Aachen"], rows)
    churn = np.where(
        age / 90 + 0.3 * (town == "Köln") + rng.normal(0, 0.1, rows) > 0.7, "yes", "no"
    )
    member, home = (
        [f"{letter}{7919 * (row // of) % 100_003}" for row in range(rows)]
        for letter, of in (("m", 1), ("h", 2))
    )
    table = {
        "member": member,
        "home": home,
        "age": age,
        "spent": np.round(rng.lognormal(5, 1, rows), 2),
        "town": town,
    }
    pd.DataFrame({**table, "refund": 1 * (churn == "yes"), "churn": churn}).to_csv(
        path, index=False
    )
    return path


def typed(line: str, queries: str, trained: bool = False) -> list[str]:
    """The words of a command that was proposed, with a file of queries in the place of FILE, and a
    file for the ledger's head in the place of HEAD; ``trained``: the queries are training records.
    """
    _, *words = shlex.split(line)
    confirmed = ["force=true"] if trained and QUERIES in words else []
    filled = {QUERIES: f"inputs={queries}", f"head={HEAD}": "head=ledger.head"}
    return [*(filled.get(word, word) for word in words), *confirmed]


def test_from_a_table_to_a_released_label_by_the_commands_that_it_prints(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "my shop.csv")
    said = agt("start", "my shop.csv", *ANSWERS, "id=member", "-q").ended(0)
    assert "'refund'" in said.out, "it alone tells nearly every label"
    for other in ("this model", "LogisticRegression", "boosting", "majority class 'no'"):
        assert re.search(rf"^ +{other} +[01]\.\d+ \[", said.out, re.MULTILINE), other
    assert re.search(r"\b\d+ people\b", said.out), "so many that half of the answers withstand"
    assert said.out.count("<- the next command") == 1
    assert not list(tmp_path.glob("outputs/*/*/spent.json"))
    next_lines = [line for line in said.out.splitlines() if line.startswith("  agt ")]
    (report,) = tmp_path.glob("outputs/start/*/report.md")
    page = report.read_text(encoding="utf-8").partition("one step at a time:")[2]
    by_hand = [line for line in page.splitlines() if line.startswith("    agt ")]
    lines = [*by_hand, *next_lines]
    commands = [typed(line, "my shop.csv", trained=True) for line in lines]
    named = [words[0] for words in commands]
    assert named == ["start", "train", "certify", "plan", "ledger", "predict"]
    assert "ledger=my_shop" in commands[-1], "the release that is proposed is counted"
    for words in commands:
        done = agt(*words, "-q").ended(0)
    labels = re.search(r"^labels: (.*)$", done.out, re.MULTILINE)
    assert labels is not None
    assert set(pd.read_csv(labels[1])["label"]) == {"no", "yes"}
    digests = {
        (run / "votes.json").read_bytes() for run in (tmp_path / "outputs" / "train").iterdir()
    }
    assert len(digests) == 1, "by hand it is the same model"


@pytest.fixture
def uncompared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the usual learners beside the model, which take longer than it."""
    monkeypatch.setattr(
        start, "scores_on_table", lambda table, scoring, console: ReferenceScores({}, 0)
    )


def costs(path: Path, rows: int = 900) -> Path:
    """Patients whose costs follow from their age and visits, in a curve that trees find."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, rows)
    visits = rng.poisson(3, rows)
    cost = 30 * age + 10 * (visits - 3) ** 2 + rng.gamma(2, 50, rows)
    table = {"age": age, "visits": visits, "cost": np.round(cost, 2)}
    pd.DataFrame(table).to_csv(path, index=False)
    return path


NUMBERS = ("label=cost", "target=numeric", "range=[0,4000]", "id=none", "purpose=both", "eps=90")


def test_numbers_from_a_table_to_released_weights_by_the_commands_that_it_prints(
    agt: Agt, tmp_path: Path
) -> None:
    costs(tmp_path / "t.csv")
    told = agt("start", "t.csv", *NUMBERS, "public=yes", "--json").ended(0).json
    assert [*told["rmse"]] == ["this model", "Ridge", "boosting", "always the median"]
    assert told["rmse"]["this model"] < told["rmse"]["always the median"]
    assert "mechanism=laplace_mean" in told["plan"][1]
    assert "mechanism=noisy_statistics" in told["next"]
    assert told["recommended"] == told["plan"][0]
    assert told["commands"][1] == "agt train dataset=t certificate=votes"
    assert not list(tmp_path.glob("outputs/*/*/spent.json"))
    dataset = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert (dataset["target"], dataset["range"], dataset["from_data"]) == ("numeric", [0, 4000], [])
    for line in (*told["commands"][:2], *told["next_commands"]):
        agt(*typed(line, "t.csv", trained=True), "-q").ended(0)
    comparison = pd.read_csv(tmp_path / told["record"] / "tables" / "comparison.csv")
    assert [*comparison] == ["name", "rmse", "low", "high", "mae", "r2"]
    agt("verify", told["record"], "-q").ended(0)


@pytest.mark.usefixtures("uncompared")
def test_numbers_of_which_nothing_is_public_but_their_range_are_measured_first(
    agt: Agt, tmp_path: Path
) -> None:
    costs(tmp_path / "t.csv")
    told = agt("start", "t.csv", *NUMBERS, "public=no", "--json").ended(0).json
    assert told["not_public"] == ["ranges", "lists", "size"]
    assert f"ensemble.members={MEMBERS_WITHOUT_SIZE}" in told["commands"][1]
    for line in told["measuring"][:2]:
        agt(*typed(line, "t.csv", trained=True), "-q").ended(0)
    path = tmp_path / "conf" / "dataset" / "t_measured.yaml"
    measured = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert (measured["target"], measured["classes"]) == ("numeric", None)
    assert "classes" not in measured["measurement"]["of"]


@pytest.mark.usefixtures("uncompared")
def test_what_is_expected_of_numbers_decides_no_proposal(agt: Agt, tmp_path: Path) -> None:
    costs(tmp_path / "t.csv", 300)
    given = [word for word in NUMBERS if not word.startswith("eps=")]
    told = agt("start", "t.csv", *given, "eps=0.0001", "public=yes", "--json").ended(0).json
    assert told["recommended"] == told["plan"][0]
    assert "mechanism=noisy_statistics" in told["next"]


def test_what_a_label_of_numbers_is_and_its_range_are_asked(agt: Agt, tmp_path: Path) -> None:
    costs(tmp_path / "t.csv", 300)
    answers = ("label=cost", "id=none", "public=yes", "purpose=both", "eps=1")
    agt("start", "t.csv", *answers).ended(2, "target=numeric", "range=[LOW,HIGH]")
    agt("start", "t.csv", *answers, "target=numeric").ended(2, "range=[LOW,HIGH]")
    agt("start", "t.csv", *answers, "range=[0,4000]").ended(2, "target=numeric")
    agt("start", "t.csv", *answers, "target=numeric", "range=[7,7]").ended(2, "7, 7")
    agt("start", "t.csv", *answers, "target=classes").ended(2, "target=numeric")


@pytest.mark.usefixtures("uncompared")
def test_the_data_set_has_what_was_said_and_nothing_else(agt: Agt, tmp_path: Path) -> None:
    (tmp_path / "answers.yaml").write_text(
        "label: churn\nid: member\npublic: [lists, size]\npurpose: answers\neps: 1\n"
    )
    told = agt(
        "start",
        shop(tmp_path / "t.csv").name,
        "answers=answers.yaml",
        "purpose=certificates",
        "--json",
    ).json
    dataset = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert (dataset["id"], dataset["id_permanent"], dataset["declared_size"]) == (
        "member",
        True,
        1125,
    )
    assert dataset["from_data"] == ["age", "spent", "refund", "classes"]
    assert told["not_public"] == ["ranges", "classes"]
    answers = "label=churn id=member 'public=[lists,size]' purpose=certificates eps=1"
    assert told["commands"][0] == f"agt start t.csv {answers}"
    training = "agt train dataset=t certificate=votes"
    assert told["commands"][1] == training


@pytest.mark.usefixtures("uncompared")
def test_people_of_several_rows_are_a_cap_more(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv")
    given = [word for word in ANSWERS if not word.startswith(("id=", "public="))]
    told = (
        agt("start", "t.csv", *given, "id=home", "unit_rows=2", "public=[lists,size]", "--json")
        .ended(0)
        .json
    )
    dataset = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert (dataset["id"], dataset["unit"], dataset["unit_rows"]) == (None, "home", 2)
    assert "home" not in {*dataset["numeric"], *dataset["categorical"]}
    assert not any("in several rows" in line for line in told["remarks"])
    run = tmp_path / told["run"]
    agt("certify", f"run={run}", "-q").ended(0)
    assert yaml.safe_load((run / "config.yaml").read_text())["relation"]["unit_rows"] == 2
    commands = [typed(line, "t.csv", trained=True) for line in told["measuring"]]
    for words in commands:
        # of a table whose measured ranges are rough, the whole file is no population of queries
        agt(*(word for word in words if word != "inputs=t.csv"), "-q").ended(0)
    claims = [json.loads(path.read_text()) for path in tmp_path.glob("outputs/*/*/claim.json")]
    assert [claim["relation"]["unit_rows"] for claim in claims] == [2, 2]


@pytest.mark.usefixtures("uncompared")
def test_row_numbers_are_said_to_be_some_and_nothing_private_rests_on_them(
    agt: Agt, tmp_path: Path
) -> None:
    name = "Unnamed: 0"
    table = pd.read_csv(shop(tmp_path / "t.csv", 300))
    table.insert(0, name, np.random.default_rng(0).permutation(300))
    table.to_csv(tmp_path / "t.csv", index=False)
    agt("start", "t.csv", *ANSWERS, f"id={name}").ended(2, "id_permanent=ANSWER", "row numbers")
    assert not (tmp_path / "outputs").exists(), "it is asked before anything is trained"
    agt("start", "t.csv", *ANSWERS, f"id={name}", "id_permanent=sometimes").ended(2, "sometimes")
    given = (*ANSWERS, f"id={name}", "id_permanent=false")
    told = agt("start", "t.csv", *given, "--json").ended(0).json
    assert any(remark.startswith(f"'{name}': {COUNTS_ROWS}.") for remark in told["remarks"])
    dataset = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert (dataset["id"], "id_permanent" in dataset) == (name, False)
    assert ["not yet, because condition b" in way for way in told["plan"]] == [True, True, False]
    conditions = json.loads((tmp_path / told["run"] / "conditions.json").read_text())
    assert next(entry["standing"] for entry in conditions if entry["letter"] == "b") == "not held"


@pytest.mark.usefixtures("uncompared")
def test_ids_that_look_like_row_numbers_can_be_declared_permanent(agt: Agt, tmp_path: Path) -> None:
    table = pd.read_csv(shop(tmp_path / "t.csv", 300))
    table.insert(0, "code", [f"P{number:05d}" for number in range(300)])
    table.to_csv(tmp_path / "t.csv", index=False)
    told = agt("start", "t.csv", *ANSWERS, "id=code", "id_permanent=true", "--json").ended(0).json
    assert not any(COUNTS_ROWS in remark for remark in told["remarks"])
    dataset = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert (dataset["id"], dataset["id_permanent"]) == ("code", True)
    assert "id_permanent=true" in told["commands"][0]
    conditions = json.loads((tmp_path / told["run"] / "conditions.json").read_text())
    assert next(entry["standing"] for entry in conditions if entry["letter"] == "b") == "declared"


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize(
    ("public", "lacks"),
    [("no", "ranges, lists, classes, size"), ("[ranges,lists,classes]", "size")],
    ids=["nothing", "not-the-size"],
)
def test_what_was_not_called_public_carries_no_private_answer(
    agt: Agt, tmp_path: Path, public: str, lacks: str
) -> None:
    shop(tmp_path / "t.csv")
    said = agt("start", "t.csv", *ANSWERS, f"public={public}", "-q").ended(0)
    assert lacks in " ".join(said.out.split())
    dataset = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert (dataset["declared_size"], "id_permanent" in dataset) == (None, False)
    assert dataset["from_data"] == (
        ["age", "spent", "town", "refund", "classes"] if public == "no" else []
    )
    assert said.out.count("not yet") == 2
    measured = re.search(
        r"agt measure dataset=t total\.eps=0\.4 .*\n +agt train dataset=t_measured\n +agt predict ",
        said.out,
    )
    assert measured is not None
    assert said.out.count("agt predict") == 1
    assert "agt certify run=" in said.out
    run = next((tmp_path / "outputs" / "train").iterdir())
    told = (
        agt("start", "t.csv", *ANSWERS, f"public={public}", "purpose=answers", "-q", "--json")
        .ended(0)
        .json
    )
    assert told["not_public"] == lacks.split(", ")
    assert told["next"] == told["measuring"][0]
    assert told["recommended"] == told["plan"][0]
    total = ("mechanism=release_weights", "total.eps=1", "total.delta=1e-5")
    agt("predict", f"run={run}", *total, "-q").ended(2)
    with (tmp_path / "conf" / "dataset" / "t.yaml").open("a", encoding="utf-8") as file:
        file.write("# an edit\n")
    agt("start", "t.csv", *ANSWERS, "-q").ended(2, "conf/dataset/t.yaml", "force=true")


@pytest.mark.usefixtures("uncompared")
def test_a_cap_makes_people_units_whose_rows_do_not_repeat_in_this_file(
    agt: Agt, tmp_path: Path
) -> None:
    """Which column is the unit is public then, and not whether somebody among the records has
    two rows.
    """
    shop(tmp_path / "t.csv", 300)
    given = [word for word in ANSWERS if word != "id=none"]
    run = agt("start", "t.csv", *given, "id=member", "unit_rows=3", "--json").ended(0).json["run"]
    dataset = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert [dataset[key] for key in ("id", "unit", "unit_rows", "id_permanent")] == [
        None,
        "member",
        3,
        True,
    ]
    agt("certify", f"run={run}", "-q").ended(0)
    assert (
        yaml.safe_load((tmp_path / run / "config.yaml").read_text())["relation"]["unit_rows"] == 3
    )


@pytest.mark.usefixtures("uncompared")
def test_what_was_proposed_from_the_rows_and_declared_is_shown_recorded_and_claimed(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "t.csv", 300)
    said = agt("start", "t.csv", *ANSWERS, "id=member").ended(0)
    before_next, _, _ = said.out.partition("\nNext:")
    block = before_next[
        before_next.index("4 of 4 ranges and lists, the classes and the size, which") :
    ]
    assert "\n  age: 10 to 90; " in block
    assert "; town: 3 values (Aachen, " in block
    assert "; classes: 2 values (no, yes); size: about 300 rows in the whole table" in block
    (page,) = tmp_path.glob("outputs/start/*/report.md")
    listed = page.read_text(encoding="utf-8").replace("\\", "")
    assert re.search(r"\n- town: 3 values \(.*Aachen", listed)
    assert "\n- classes: 2 values (no, yes)" in listed
    names = ["age", "spent", "town", "refund", "classes"]
    file = tmp_path / "conf" / "dataset" / "t.yaml"
    dataset = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert dataset["from_data"] == []
    assert dataset["proposed_from_rows"] == [*names, "declared_size"]
    run = next((tmp_path / "outputs" / "train").iterdir())
    conditions = json.loads((run / "conditions.json").read_text())
    (e,) = [entry for entry in conditions if entry["letter"] == "e"]
    assert e["standing"] == "declared"
    release = ("mechanism=noisy_statistics", "total.eps=2", "total.delta=1e-5", "force=true")
    told = agt("predict", f"run={run}", *release, "ledger=none")
    assert "4 of 4 ranges and lists, the classes and the size were proposed" in told.err
    (claim,) = tmp_path.glob("outputs/predict/*/claim.json")
    proposed = [
        fact["fact"]
        for fact in json.loads(claim.read_text())["declared"]
        if "proposed" in fact["fact"]["code"]
    ]
    assert [fact["code"] for fact in proposed] == [
        "size_public_proposed",
        "columns_public_some_proposed",
        "classes_public_proposed",
    ]
    assert proposed[0]["values"]["size"] == 225
    assert proposed[1]["values"]["proposed"] == names[:-1]
    agt("verify", str(claim.parent), "page=verified.md").ended(0)
    assert "dataset.proposed" in (tmp_path / "verified.md").read_text(encoding="utf-8")


def test_proposals_of_inspect_that_are_taken_leave_the_same_trace(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv", 300)
    agt("data", "inspect", "t.csv", "label=churn", "id=member", "drop=[home]").ended(0)
    file = tmp_path / "conf" / "dataset" / "t.yaml"
    text = file.read_text(encoding="utf-8")
    names = ["age", "spent", "town", "refund", "classes"]
    dataset = yaml.safe_load(text)
    assert dataset["from_data"] == dataset["proposed_from_rows"] == names
    declared = re.sub(r"(?m)^from_data: .*$", "from_data: []", text)
    declared = re.sub(r"(?m)^declared_size: null", "declared_size: 220", declared)
    assert declared.count("from_data: []") > text.count("from_data: []")
    file.write_text(declared, encoding="utf-8")
    run = agt("train", "dataset=t", "certificate=votes", "--json").ended(0).json["run"]
    conditions = json.loads((tmp_path / run / "conditions.json").read_text())
    (e,) = [entry for entry in conditions if entry["letter"] == "e"]
    facts = {fact["code"]: fact["values"] for fact in e["facts"]}
    assert facts["columns_public_some_proposed"]["proposed"] == names[:-1]
    assert "classes_public_proposed" in facts
    release = ("mechanism=noisy_statistics", "total.eps=2", "total.delta=1e-5", "force=true")
    told = agt("predict", f"run={run}", *release).ended(0)
    assert "4 of 4 ranges and lists and the classes were proposed" in told.err
    not_public = f"dataset.from_data=[{','.join(names)}]"
    training = ("train", "dataset=t", "certificate=votes", not_public, "--json")
    refused = agt("predict", f"run={agt(*training).ended(0).json['run']}", *release).ended(2).err
    assert "proposed from the rows" not in refused, "no claim takes what is in from_data as public"


@pytest.mark.usefixtures("uncompared")
def test_a_size_that_its_owner_gave_is_not_said_to_be_computed_from_the_records(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "t.csv", 300)
    agt("start", "t.csv", *ANSWERS, "size=150", "-q").ended(0)
    dataset = yaml.safe_load((tmp_path / "conf/dataset/t.yaml").read_text(encoding="utf-8"))
    assert "declared_size" not in dataset["proposed_from_rows"]
    run = next((tmp_path / "outputs" / "train").iterdir())
    conditions = json.loads((run / "conditions.json").read_text())
    (c,) = [entry for entry in conditions if entry["letter"] == "c"]
    assert [fact["code"] for fact in c["facts"]] == ["members_stated", "size_public"]


@pytest.mark.usefixtures("uncompared")
def test_of_a_range_that_its_owner_replaced_no_claim_says_that_it_was_proposed(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "t.csv", 300)
    agt("start", "t.csv", *ANSWERS, "-q").ended(0)
    training = ("train", "dataset=t", "certificate=votes", "dataset.proposed_from_rows=[age]")
    run = agt(*training, "--json").ended(0).json["run"]
    conditions = json.loads((tmp_path / run / "conditions.json").read_text())
    (e,) = [entry for entry in conditions if entry["letter"] == "e"]
    facts = {fact["code"]: fact["values"] for fact in e["facts"]}
    assert facts["columns_public_some_proposed"]["proposed"] == ["age"]
    assert "classes_public" in facts


def test_the_first_list_of_answers_is_complete(agt: Agt, tmp_path: Path) -> None:
    table = pd.read_csv(shop(tmp_path / "t.csv", 300))
    table.insert(0, "code", [f"P{number // 2:05d}" for number in range(300)])
    table.to_csv(tmp_path / "t.csv", index=False)
    refused = agt("start", "t.csv").ended(2)
    for key in ("label", "id", "public", "purpose", "eps"):
        assert f"{key}=" in refused.err, key
    answers = [word for word in ANSWERS if not word.startswith("id=")]
    refused = agt("start", "t.csv", *answers, "id=code").ended(2)
    line = (
        "agt start t.csv label=churn id=code id_permanent=ANSWER public=yes purpose=both "
        "unit_rows=NUMBER eps=2 drop=none"
    )
    assert refused.err.rstrip().endswith(line)
    assert "'refund' alone predicts nearly every label" in refused.err
    given = (*answers, "id=code", "id_permanent=true", "unit_rows=2", "purpose=certificates")
    agt("start", "t.csv", *given, "-q").ended(0)


@pytest.mark.usefixtures("uncompared")
def test_where_an_id_was_given_no_other_column_is_proposed_as_one(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv", 300)
    told = agt("start", "t.csv", *ANSWERS, "id=member", "--json").ended(0).json
    assert not any("give id=" in remark for remark in told["remarks"])
    agt("start", "t.csv", *ANSWERS, "id=home", "unit_rows=2", "force=true", "-q").ended(0)
    text = (tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8")
    (line,) = re.findall("(?m)^id: .*", text)
    assert "unit" in line
    assert "no column gives ids" not in line


@pytest.mark.usefixtures("uncompared")
def test_dates_whose_range_was_called_public_are_not_remarked_on(agt: Agt, tmp_path: Path) -> None:
    table = pd.read_csv(shop(tmp_path / "t.csv", 300))
    table.insert(0, "since", [f"2020-{1 + row % 12:02}-{1 + row % 28:02}" for row in range(300)])
    table.to_csv(tmp_path / "t.csv", index=False)
    remark = "ends with the last year in the file"
    assert remark in agt("start", "t.csv", *ANSWERS, "public=[lists,size]", "-q").ended(0).err
    said = agt("start", "t.csv", *ANSWERS, "force=true").ended(0)
    assert remark not in said.err
    assert "\n  since: 2019-01-01 to 2021-01-01 (later dates are outside: write" in said.out
    assert said.out.count("later dates") == 1


@pytest.mark.usefixtures("uncompared")
def test_a_size_that_was_given_is_declared_as_it_is(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv", 300)
    told = agt("start", "t.csv", *ANSWERS, "size=1000", "--json").ended(0).json
    dataset = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert dataset["declared_size"] == 750
    assert "size=1000" in shlex.split(told["commands"][0])
    assert "size" not in told["not_public"]
    assert any("dataset.declared_size is 750" in line for line in told["remarks"]), "far off"
    said = agt("start", "t.csv", *ANSWERS, "size=220", "force=true").ended(0)
    assert "size: about" not in said.out, "it was not computed from the rows"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("public=no", "size=200"), "public=[size]"),
        (("public=[ranges]", "size=200"), "public=[ranges,size]"),
        (("public=yes", "size=0"), "size"),
        (("public=yes", "size=2.5"), "size"),
        (("public=yes", "size=many"), "size"),
    ],
)
def test_a_size_that_is_none_or_not_called_public_is_refused(
    agt: Agt, tmp_path: Path, given: tuple[str, ...], named: str
) -> None:
    shop(tmp_path / "t.csv", 60)
    agt("start", "t.csv", *ANSWERS, *given).ended(2, named)
    assert not (tmp_path / "conf").exists()


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("certificate", ["votes", "stability"])
def test_train_recommends_for_private_labels_what_start_does(
    agt: Agt, tmp_path: Path, certificate: str
) -> None:
    shop(tmp_path / "t.csv", 600)
    given = [word for word in ANSWERS if not word.startswith("eps=")]
    proposed = agt("start", "t.csv", *given, "eps=1", "--json").ended(0).json["next_commands"]
    trained = agt("train", "dataset=t", f"certificate={certificate}").ended(0)
    opening, release = (
        shlex.split(line[line.index("agt ") :].partition(" (")[0])
        for line in trained.err.splitlines()
        if line.startswith(("to open a ledger: ", "for private labels: "))
    )

    def of_no_run(words: list[str]) -> list[str]:
        return [word for word in words if not word.startswith(("run=", "total.", "unit="))]

    assert [of_no_run(opening), of_no_run(release)] == [
        of_no_run(shlex.split(line)) for line in proposed
    ]
    for words in (opening, release):
        agt(*typed(shlex.join(words), "t.csv", trained=True), "-q").ended(0)


@pytest.mark.usefixtures("uncompared")
def test_people_who_have_a_ledger_are_not_proposed_another(agt: Agt, tmp_path: Path) -> None:
    table = pd.read_csv(shop(tmp_path / "t.csv", 600))
    given = (*ANSWERS, "id=member", "--json")
    run = agt("start", "t.csv", *given).ended(0).json["run"]
    budget = ("total.eps=9", "total.delta=1e-4", "unit=one customer")
    agt("ledger", "init", "all customers", f"run={run}", *budget, "-q").ended(0)
    again = agt("start", "t.csv", *given, "force=true").ended(0).json["next_commands"]
    (release,) = (shlex.split(line) for line in again)
    assert "ledger=all customers" in release, "this table is in it"
    table.iloc[:500].to_csv(tmp_path / "newer.csv", index=False)
    said = agt("start", "newer.csv", *ANSWERS, "id=member").ended(0)
    assert "The ledger all customers admitted the table" in said.out
    proposed = said.out[said.out.index("\nNext:") :]
    lines = [line for line in proposed.splitlines() if line.startswith("  agt ")]
    admission, release = (typed(line, "t.csv", trained=True) for line in lines)
    assert admission[:3] == ["ledger", "admit", "all customers"]
    for words in (admission, release):
        agt(*words, "-q").ended(0)
    # with a budget of 2, the noise would hide one of the classes in 1 of 20 measurements
    given = (*ANSWERS, "eps=6", "id=member", "public=no", "name=private", "--json")
    measuring = agt("start", "newer.csv", *given).ended(0).json["measuring"]
    assert [line.split()[1] for line in measuring] == ["measure", "train", "ledger", "predict"]
    for line in measuring:
        words = [word for word in typed(line, "t.csv", trained=True) if word != "inputs=t.csv"]
        agt(*words, "-q").ended(0)


@pytest.mark.usefixtures("uncompared")
def test_where_only_labels_fit_into_a_ledger_labels_are_proposed(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv", 600)
    given = (*ANSWERS, "id=member", "eps=1", "--json")
    run = agt("start", "t.csv", *given).ended(0).json["run"]
    budget = ("total.eps=1", "total.delta=1e-5", "unit=one customer")
    agt("ledger", "init", "people", f"run={run}", *budget, "-q").ended(0)
    spend = ("mechanism=randomized_response", "total.eps=0.4", "force=true", "-q")
    pd.read_csv("t.csv").head(2).to_csv("two.csv", index=False)
    agt("predict", f"run={run}", "ledger=people", "inputs=two.csv", *spend).ended(0)
    found = agt("start", "t.csv", *given, "force=true").ended(0).json
    (release,) = (typed(line, "two.csv", trained=True) for line in found["next_commands"])
    assert {"mechanism=randomized_response", "total.eps=0.6", "total.delta=0"} <= {*release}
    weights, singly, _ = found["plan"]
    assert weights.endswith("no weights fit into what is left of the ledger people")
    assert "eps = 0.6, delta = 0" in weights
    assert found["recommended"] == singly
    agt(*release, "-q").ended(0)
    spent = agt("start", "t.csv", *given, "force=true").ended(0).json
    assert spent["next"].startswith("agt certify")


@pytest.mark.usefixtures("uncompared")
def test_after_weights_a_plan_says_how_much_fits_for_labels(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv", 600)
    given = (*ANSWERS, "id=member", "eps=0.5", "--json")
    found = agt("start", "t.csv", *given).ended(0).json
    budget = ("total.eps=1", "total.delta=1e-5", "unit=one customer")
    agt("ledger", "init", "people", f"run={found['run']}", *budget, "-q").ended(0)
    spend = ("mechanism=noisy_statistics", "total.eps=0.5", "total.delta=1e-5", "force=true")
    agt("predict", f"run={found['run']}", "ledger=people", "inputs=t.csv", *spend).ended(0)
    _, singly, _ = agt("start", "t.csv", *given, "force=true").ended(0).json["plan"]
    assert "only eps = 0.179 fits" in singly


@pytest.mark.usefixtures("uncompared")
def test_numbered_ids_that_match_by_chance_are_proposed_a_ledger_of_their_own(
    agt: Agt, tmp_path: Path
) -> None:
    table = pd.read_csv(shop(tmp_path / "t.csv", 300))
    given = (*ANSWERS, "id=member", "--json")
    run = agt("start", "t.csv", *given).ended(0).json["run"]
    budget = ("total.eps=9", "total.delta=1e-4", "unit=one person")
    agt("ledger", "init", "theirs", f"run={run}", *budget, "-q").ended(0)
    table.loc[20:, "member"] = [f"m{900_001 + 7 * row**2}" for row in range(280)]
    table.assign(age=table["age"] + 1).to_csv(tmp_path / "mine.csv", index=False)
    found = agt("start", "mine.csv", *given).ended(0).json
    opening, release = (typed(line, "t.csv", trained=True) for line in found["next_commands"])
    assert {"another_population=ANSWER", "total.eps=2", "unit=one person"} <= {*opening}
    assert {"total.delta=1e-05", "head=ledger.head"} <= {*opening}
    assert "ledger=mine" in release
    assert "agt ledger admit theirs run=" in found["ledger"]
    refused = agt("ledger", "init", "mine", f"run={found['run']}", *budget).ended(2)
    assert "add another_population=true to agt ledger init mine" in refused.err
    agt(*opening, "-q").ended(2)  # only its owner can say whether these are other people
    answered = [word.replace("ANSWER", "true") for word in opening]
    for words in (answered, release):
        agt(*words, "-q").ended(0)


@pytest.mark.usefixtures("uncompared")
def test_how_much_is_outside_of_what_is_proposed_is_said_in_one_line(
    agt: Agt, tmp_path: Path
) -> None:
    table = pd.read_csv(shop(tmp_path / "t.csv", 300))
    table.loc[[3, 4, 5], "town"] = ["Ulm", "Ulm", "Trier"]
    table.loc[[7, 8], "spent"] = 1e9
    table.to_csv(tmp_path / "t.csv", index=False)
    remarks = agt("start", "t.csv", *ANSWERS, "--json").ended(0).json["remarks"]
    (remark,) = [line for line in remarks if "rare values" in line]
    assert "2 rare values (3 cells)" in remark
    assert sum("2 of 300 values of column 'spent'" in line for line in remarks) == 1
    file = tmp_path / "conf" / "dataset" / "t.yaml"
    assert str(file.relative_to(tmp_path)) in remark
    assert re.search(r"(?m)^  town: .*# .*2 values \(3 rows\) not in the list", file.read_text())


@pytest.mark.usefixtures("uncompared")
def test_a_size_that_alone_was_declared_is_shown_before_the_next_command(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "t.csv", 300)
    said = agt("start", "t.csv", *ANSWERS, "public=[size]").ended(0)
    before_next, _, _ = said.out.partition("\nNext:")
    assert "The size that you declared public was computed from the rows" in before_next
    assert "\n  size: about 300 rows in the whole table, so 225 for training" in before_next
    assert "for training" not in agt("start", "t.csv", *ANSWERS, "public=no", "force=true").out


def test_columns_with_too_many_values_are_said_to_be_left_out_for_that(
    agt: Agt, tmp_path: Path
) -> None:
    table = pd.read_csv(shop(tmp_path / "t.csv", 600))
    table.insert(0, "agent", [f"a{row % 250}" for row in range(600)])
    table.to_csv(tmp_path / "t.csv", index=False)
    remarks = agt("start", "t.csv", *ANSWERS, "id=member", "--json").ended(0).json["remarks"]
    (remark,) = [remark for remark in remarks if "'agent'" in remark]
    assert "too many different values" in remark
    assert "'agent' (250)" in remark
    assert "categorical" in remark
    told = agt("data", "inspect", "t.csv", "label=churn", "name=other").ended(0)
    assert "250 different values, too many" in " ".join(told.out.split())


@pytest.mark.usefixtures("uncompared")
def test_labels_with_a_blank_between_thousands_are_numbers_in_table_and_queries(
    agt: Agt, tmp_path: Path
) -> None:
    table = pd.read_csv(costs(tmp_path / "plain.csv"))
    plain = table["cost"].to_numpy()
    table["cost"] = [f"{cost:,.2f}".replace(",", " ").replace(".", ",") for cost in plain]
    table.insert(0, "patient", [f"c{7919 * row % 100_003}" for row in range(len(table))])
    table.to_csv(tmp_path / "t.csv", index=False, sep=";")
    answers = [word for word in NUMBERS if not word.startswith("id=")]
    told = agt("start", "t.csv", *answers, "id=patient", "public=yes", "--json").ended(0).json
    dataset = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert dataset["formats"]["cost"] == {"decimal": ",", "thousands": " "}
    assert told["rmse"]["this model"] < told["rmse"]["always the median"]
    release = ("mechanism=noisy_statistics", "total.eps=90", "total.delta=1e-5", "ledger=none")
    asked = ("predict", f"run={told['run']}", "inputs=t.csv", *release)
    agt(*asked).ended(2, "inputs=t.csv is the training table itself", "force=true")
    made = agt(*asked, "force=true", "--json").ended(0)
    assert "inputs=t.csv is the training table itself" in made.err
    numbers = pd.read_csv(tmp_path / made.json["run"] / "labels.csv")["label"]
    assert (numbers == numbers.round(3)).all(), (
        "digits beyond a millionth of the range mean nothing"
    )
    answered = agt("predict", f"release={made.json['release']}", "inputs=t.csv", "--json").ended(0)
    owner = answered.json["owner_only"]
    assert owner["rows"] + owner["training_rows"] == len(table)
    assert owner["rows"] == told["rmse_rows"] if "rmse_rows" in told else owner["rows"] < 400
    assert owner["rmse"] < told["rmse"]["always the median"]


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("named", [True, False], ids=["by id", "by content"])
def test_queries_that_are_training_records_are_pointed_out_to_the_owner(
    agt: Agt, tmp_path: Path, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.read_csv(shop(tmp_path / "t.csv", 300))
    id = "id=member" if named else "id=none"
    run = agt("start", "t.csv", *ANSWERS, id, "--json").ended(0).json["run"]
    own = table.drop(columns=["churn"] if named else ["churn", "member", "home"])
    mixed = pd.concat([own, own.assign(age=own["age"] + 0.5, member="z" + table["member"])])
    mixed.to_csv(tmp_path / "queries.csv", index=False)
    release = ("mechanism=noisy_statistics", "total.eps=2", "total.delta=1e-5")
    release = (f"run={run}", *release, "ledger=none")
    Path("link.csv").symlink_to("t.csv")
    for same in ("t.csv", "link.csv"):
        agt("predict", f"inputs={same}", *release).ended(2, "training table itself", "force=true")
    assert not [*tmp_path.glob("outputs/predict/*/spent.json")]
    Path("elsewhere").mkdir()
    shutil.copy("queries.csv", "elsewhere/t.csv")
    monkeypatch.chdir("elsewhere")
    from_there = (f"run={tmp_path / run}", *release[1:], "simulate=1")
    agt("predict", "inputs=t.csv", *from_there).ended(0)
    agt("predict", "inputs=../t.csv", *from_there[:-1]).ended(2, "training table itself")
    monkeypatch.chdir(tmp_path)
    shutil.copy("t.csv", "copy.csv")
    said = agt("predict", "inputs=copy.csv", *release, "simulate=1", "--json").ended(0)
    assert "training table itself" in said.err, "what is in a file decides nothing but a warning"
    said = agt("predict", "inputs=queries.csv", *release, "--json").ended(0)
    trained = json.loads((tmp_path / run / "metrics.json").read_text())["n_train"]
    kind = "id" if named else "content"
    assert f"{trained} of 600 queries have the {kind} of a training record" in said.err
    claim = (tmp_path / said.json["run"] / "claim.json").read_text()
    assert "of a training record" not in claim, "for the owner only"
    strangers = mixed.iloc[300:].assign(spent=mixed["spent"].iloc[300:] + 0.123)
    strangers.to_csv(tmp_path / "strangers.csv", index=False)
    said = agt("predict", "inputs=strangers.csv", *release, "force=true")
    assert "of a training record" not in said.err


@pytest.mark.usefixtures("uncompared")
def test_several_classes_are_a_head_s_and_what_is_expected_decides_no_proposal(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "t.csv", 300)
    told = agt(
        "start",
        "t.csv",
        "label=town",
        "id=none",
        "public=yes",
        "purpose=answers",
        "eps=0.1",
        "--json",
        "-q",
    ).json
    assert "certificate=stability" in told["commands"][1]
    assert told["recommended"] == told["plan"][0], "although a town is as good as drawn by lot"
    release = f"{QUERIES} mechanism=noisy_statistics "
    assert told["next"].startswith(f"agt predict run={told['run']} ledger=t {release}")
    shop(tmp_path / "more.csv")
    few = agt("start", "more.csv", *ANSWERS[:-1], "eps=0.0001", "--json", "-q").json
    assert few["recommended"] == few["plan"][0], "although there are too few rows for this budget"
    assert few["next"].startswith(f"agt predict run={few['run']} ledger=more {release}")


@pytest.mark.usefixtures("uncompared")
def test_a_column_that_was_dropped_in_an_answer_is_no_feature(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv", 300)
    answers = [*ANSWERS, "drop=[refund, spent]"]
    lines = "\n".join(answer.replace("=", ": ", 1) for answer in answers)
    (tmp_path / "answers.yaml").write_text(lines, encoding="utf-8")
    said = agt("start", "t.csv", "answers=answers.yaml", "--json").ended(0).json
    text = (tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8")
    written = yaml.safe_load(text)
    assert [*written["numeric"], *written["categorical"]] == ["age", "town"]
    assert "refund" in text.partition("# left out:")[2], "it is remembered why"
    assert not any("refund" in remark for remark in said["remarks"])
    assert shlex.split(said["commands"][0])[-1] == "drop=[refund,spent]"


@pytest.mark.usefixtures("uncompared")
def test_a_column_that_tells_the_label_comes_with_the_command_that_drops_it(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "t.csv", 300)
    said = agt("start", "t.csv", *ANSWERS, "--json").ended(0).json
    (remark,) = [remark for remark in said["remarks"] if "'refund'" in remark]
    assert remark in agt("start", "t.csv", *ANSWERS).err, "before it is trained"
    line, _, _ = remark[remark.index("agt start") :].partition(". If you")
    _, *words = shlex.split(line)
    agt(*words, "-q").ended(0)
    text = (tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8")
    assert "refund" not in yaml.safe_load(text)["numeric"]


@pytest.mark.parametrize(
    ("dropped", "named"),
    [
        ("drop=[refnd]", "did you mean 'refund'"),
        ("drop=[churn]", "label=churn"),
        ("drop=[member,home,age,spent,town,refund]", "drop names every column"),
    ],
)
def test_what_cannot_be_dropped_is_said_before_anything_is_written(
    agt: Agt, tmp_path: Path, dropped: str, named: str
) -> None:
    shop(tmp_path / "t.csv", 60)
    refused = agt("start", "t.csv", *ANSWERS, dropped)
    assert refused.code in (2, 3)
    assert named in refused.err
    assert not (tmp_path / "conf").exists()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_at_a_terminal_few_questions_and_few_words(tmp_path: Path) -> None:
    shop(tmp_path / "t.csv")
    terminal, other = pty.openpty()
    # What is typed is not echoed: only what agt prints is counted, however fast it is.
    attributes = termios.tcgetattr(other)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(other, termios.TCSANOW, attributes)
    seen = ""
    answers = ["", "refund", "none", "sometimes", "yes", "", "", "2"]
    process = os.fork()  # one that is not forked imports everything anew
    if not process:
        _start_at(other, tmp_path)
    os.close(other)
    while chunk := _read(terminal):
        seen += chunk
        if seen.endswith(": ") and answers:
            os.write(terminal, f"{answers.pop(0)}\n".encode())
    os.close(terminal)
    assert os.waitpid(process, 0)[1] == 0, seen
    assert "'sometimes'" in seen
    (report,) = tmp_path.glob("outputs/start/*/report.md")
    command = (
        "agt start t.csv label=churn id=none public=yes size=1500 purpose=both eps=2 "
        "'drop=[refund]'"
    )
    assert command in report.read_text(encoding="utf-8")
    written = yaml.safe_load((tmp_path / "conf" / "dataset" / "t.yaml").read_text(encoding="utf-8"))
    assert "refund" not in {*written["numeric"], *written["categorical"]}
    first, wrong, after = re.sub(r"\x1b\[[\d;?]*\w", "", seen).partition("sometimes")
    words = len(first.split()) + len(after[after.index("ranges,classes (no): ") :].split())
    assert wrong
    assert words <= WORDS, words


def _start_at(terminal: int, folder: Path) -> NoReturn:
    """Carry out agt start at a terminal, in a process that ends with it."""
    code = 70
    try:
        os.chdir(folder)
        for stream in range(3):
            os.dup2(terminal, stream)
        # those of pytest are files
        sys.stdin = os.fdopen(0)
        sys.stdout = os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w")
        code = main(["start", "t.csv", "-q"])
        sys.stdout.flush()
    finally:
        os._exit(code)


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 4096).decode(errors="replace")
    except OSError:  # on Linux the end of a terminal
        return ""


@pytest.mark.usefixtures("uncompared")
def test_after_an_edit_of_the_data_set_s_file_the_training_that_reads_it_is_named(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "t.csv", 300)
    agt("start", "t.csv", *ANSWERS, "-q").ended(0)
    file = tmp_path / "conf" / "dataset" / "t.yaml"
    edited = re.sub(r"(?m)^  refund:.*\n", "", file.read_text(encoding="utf-8"))
    assert edited != file.read_text(encoding="utf-8")
    file.write_text(edited, encoding="utf-8")
    refused = agt("start", "t.csv", *ANSWERS, "-q").ended(2)
    assert file.read_text(encoding="utf-8") == edited
    named = re.search(r"`agt (.*?)`", refused.err)
    assert named is not None
    assert named[1] == "train dataset=t certificate=votes"
    agt(*named[1].split()).ended(0)


@pytest.mark.usefixtures("uncompared")
def test_a_record_keeps_the_comparison_the_plan_and_the_recommendation(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "t.csv", 600)
    told = agt("start", "t.csv", *ANSWERS, "--json", "-q").ended(0).json
    record = tmp_path / told["record"]
    metrics = json.loads((record / "metrics.json").read_text())
    assert metrics["test_accuracy"] == told["accuracy"]["this model"]
    recalls = told["recall_of_rarest_class"]
    assert metrics["test_recall_of_rarest_class"] == recalls["this model"] > 0.5
    assert recalls["majority class 'no'"] == 0
    assert metrics["stable_distance_median"] == told["stable_distance_median"]
    comparison = pd.read_csv(record / "tables" / "comparison.csv")
    assert list(comparison.name) == [
        "this model",
        "published weights, eps = 2 (expected accuracy)",
        "majority class 'no'",
    ]
    assert comparison.recall_of_rarest_class.iloc[0] == recalls["this model"]
    report = (record / "report.html").read_text(encoding="utf-8")
    assert "recall of rarest class" in report
    plan = pd.read_csv(record / "tables" / "plan.csv")
    assert list(plan.what) == told["plan"]
    assert list(plan.what[plan.recommended]) == [told["recommended"]]
    assert metrics["recommended"] == plan.way[plan.recommended].item()
    settings = yaml.safe_load((record / "config.yaml").read_text())
    assert (settings["label"], settings["eps"]) == ("churn", 2)
    agt("verify", str(record), "-q").ended(0)


WRITTEN_FORMATS = {
    "thousands": ('{thousands: ","}', lambda number: f'"{number:,}"'),
    "unit in front": ('{thousands: ",", unit: "$"}', lambda number: f'"${number:,}"'),
    "unit behind": ('{unit: "%"}', lambda number: f"{number}%"),
    "decimal comma": ('{decimal: ",", thousands: "."}', lambda number: f'"1.{number % 1000:03},5"'),
    "date": ('"%d.%m.%Y"', lambda number: f"{1 + number % 28:02}.{1 + number % 12:02}.2020"),
}


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("kind", WRITTEN_FORMATS)
def test_a_format_on_the_command_line_is_in_the_record(agt: Agt, tmp_path: Path, kind: str) -> None:
    declared, write = WRITTEN_FORMATS[kind]
    numbers = np.random.default_rng(0).integers(1000, 90_000, 300)
    rows = (f"{write(number)},{'yes' if number > 45_000 else 'no'}" for number in numbers)
    (tmp_path / "t.csv").write_text("\n".join(["income,churn", *rows, ""]), encoding="utf-8")
    word = f"+formats={{income: {declared}}}"
    told = agt("start", "t.csv", *ANSWERS, word, "--json").ended(0).json
    config = yaml.safe_load((tmp_path / told["record"] / "config.yaml").read_text(encoding="utf-8"))
    given = yaml.safe_load(declared)
    form = config["formats"]["income"]
    assert form == given if isinstance(given, str) else given.items() <= form.items()
    agt("verify", told["record"], "-q").ended(0)


@pytest.mark.usefixtures("uncompared")
def test_the_path_of_the_page_is_printed(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv", 300)
    said = agt("start", "t.csv", *ANSWERS, "-q").ended(0)
    page = re.search(r"^report: (.*)$", said.out, re.MULTILINE)
    assert page is not None
    assert (tmp_path / page[1]).read_text().startswith("<!doctype html>")


@dataclass(frozen=True)
class Planned:
    releases: tuple[PlannedRelease, ...]


def _planned(**accuracies: float) -> Any:
    guarantee = NoisyStatistics.within(1.0, 1e-5).guarantee
    budget = Budget(1.0, 1e-5, 1)
    return Planned(
        tuple(PlannedRelease(name, budget, guarantee, rate) for name, rate in accuracies.items())
    )


def test_the_mechanism_for_weights_does_not_depend_on_private_results() -> None:
    for rates in ((0.9, 0.5), (0.5, 0.9)):
        offered = dict(zip(("release_weights", "noisy_statistics"), rates, strict=True))
        chosen = weights_release(_planned(**offered, randomized_response=1.0))
        assert chosen is not None
        assert chosen.mechanism == "noisy_statistics"
    only = weights_release(_planned(release_weights=0.5))
    assert only is not None
    assert only.mechanism == "release_weights"
    assert weights_release(_planned(randomized_response=1.0)) is None
