"""agt start FILE: what it asks, what it takes from files that are there, and lines that can be
pasted.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml  # type: ignore[import-untyped]

from agt.errors import ConfigError
from agt_cli.cli import main
from agt_cli.commands import start
from agt_cli.runs.inspect import inspect_table
from agt_cli.runs.usual_learners import ReferenceScores
from agt_cli.start.ledger_proposal import _may_be_by_chance
from agt_cli.start.questions import LINE_LETTERS, MAX_COLUMNS, questions
from agt_cli.start.settings import Answered, StartSettings

from .conftest import Agt, Said
from .test_start import ANSWERS, shop, typed

FILE = Path("conf", "dataset", "t.yaml")


@pytest.fixture(autouse=True)
def uncompared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the usual learners beside the model, which take longer than it."""
    monkeypatch.setattr(
        start, "scores_on_table", lambda table, scoring, console: ReferenceScores({}, 0)
    )


def plain(path: Path, rows: int = 300, unlabelled: int = 0) -> pd.DataFrame:
    """A table whose rows are all of different people, as far as its columns tell."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, rows)
    table = pd.DataFrame({"age": age, "town": rng.choice(["Köln", "Aachen"], rows)})
    noisy_age = age + rng.normal(0, 10, rows)
    table["churn"] = np.where(noisy_age > 50, "yes", "no")
    table.loc[table.index[3 : 3 + unlabelled], "churn"] = None
    table.to_csv(path, index=False)
    return table


def dataset(folder: Path, name: str = "t") -> dict[str, Any]:
    text = (folder / "conf" / "dataset" / f"{name}.yaml").read_text(encoding="utf-8")
    node = yaml.safe_load(text)
    assert isinstance(node, dict)
    return node


def line_to_paste(refused: Said) -> list[str]:
    """The words of the line with which a refusal without a terminal ends, without ``agt``."""
    line = refused.err.strip().splitlines()[-1]
    return shlex.split(line[line.rindex("agt start") :])[1:]


def test_without_a_terminal_the_last_line_answers_every_question(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv", unlabelled=5)
    refused = agt("start", "t.csv").ended(2, "town: ", "not interactive")
    words = line_to_paste(refused)
    assert words == [
        *("start", "t.csv", "label=churn", "id=none", "missing_label=drop", "public=YES_OR_NO"),
        *("purpose=both", "eps=1"),
    ]
    agt(*words, "-q").ended(2, "YES_OR_NO")
    agt(*(word.replace("YES_OR_NO", "yes") for word in words), "-q").ended(0)


def test_numbers_that_may_be_codes_are_asked_about_and_typed(agt: Agt, tmp_path: Path) -> None:
    table = plain(tmp_path / "t.csv").assign(ward=[1 + row % 3 for row in range(300)])
    table.to_csv(tmp_path / "t.csv", index=False)
    words = line_to_paste(agt("start", "t.csv").ended(2, "codes: "))
    assert "codes=none" in words
    given = {"codes=none": "codes=[ward]", "public=YES_OR_NO": "public=yes"}
    agt(*(given.get(word, word) for word in words), "-q").ended(0)
    assert dataset(tmp_path)["categorical"]["ward"] == ["1", "2", "3"]
    assert "ward" not in dataset(tmp_path)["numeric"]
    said = agt("start", "t.csv", *ANSWERS, "-q").ended(0)
    assert "codes=[ward]" in said.err, "before it is trained"
    table.assign(pay=[row + 0.5 for row in range(300)]).to_csv(tmp_path / "t.csv", index=False)
    agt("start", "t.csv", *ANSWERS, "codes=[pay]", "-q").ended(2, "codes", "not whole", "'pay'")


def test_the_line_says_what_has_no_default(agt: Agt, tmp_path: Path) -> None:
    table = pd.read_csv(shop(tmp_path / "t.csv", 300)).rename(columns={"churn": "kind"})
    table[["kind", "home", "town", "age", "spent"]].to_csv(tmp_path / "t.csv", index=False)
    words = line_to_paste(agt("start", "t.csv").ended(2))
    assert {"label=COLUMN", "id=COLUMN"} <= {*words}
    given = {"label=COLUMN": "label=kind", "id=COLUMN": "id=home", "public=YES_OR_NO": "public=no"}
    words = line_to_paste(agt(*(given.get(word, word) for word in words), "-q").ended(2))
    assert "unit_rows=NUMBER" in words, "as one person has several rows by 'home'"
    given = {"unit_rows=NUMBER": "unit_rows=2"}
    agt(*(given.get(word, word) for word in words), "-q").ended(0)


def test_rows_without_a_label_are_left_out_by_a_rule_that_is_declared(
    agt: Agt, tmp_path: Path
) -> None:
    plain(tmp_path / "t.csv", unlabelled=7)
    refused = agt("start", "t.csv", *ANSWERS).ended(2)
    assert "7 of 300 rows" in refused.err
    assert "row 4" in refused.err
    assert "missing_label=drop" in line_to_paste(refused)
    agt("start", "t.csv", *ANSWERS, "missing_label=error").ended(2, "missing_label=drop", "row 4")
    assert not (tmp_path / "conf").exists()
    told = agt("start", "t.csv", *ANSWERS, "missing_label=drop", "--json").ended(0).json
    assert dataset(tmp_path)["missing_label"] == "drop"
    assert "missing_label=drop" in shlex.split(told["commands"][0])
    conditions = json.loads((tmp_path / told["run"] / "conditions.json").read_text())
    (b,) = [entry for entry in conditions if entry["letter"] == "b"]
    assert b["standing"] == "declared", "so every claim lists it"
    assert "unlabelled_rows_left_out" in {fact["code"] for fact in b["facts"]}
    agt("data", "inspect", "t.csv", "name=other", "missing_label=drop").ended(0)
    assert dataset(tmp_path, "other")["missing_label"] == "drop"
    agt("train", "dataset=other", "-q").ended(0)


def test_a_word_for_a_missing_label_is_left_out_as_the_empty_cell_is(
    agt: Agt, tmp_path: Path
) -> None:
    table = plain(tmp_path / "t.csv")
    table.loc[[1, 2], "churn"] = ["?", "unknown"]
    table.to_csv(tmp_path / "t.csv", index=False)
    given = (*ANSWERS, "missing_label=drop", "missing_values=[unknown]")
    agt("start", "t.csv", *given, "-q").ended(0)
    node = dataset(tmp_path)
    assert node["classes"] == ["no", "yes"]
    assert {*node["missing_values"]} >= {"?", "unknown"}


def test_ids_are_judged_by_the_rows_that_are_used(agt: Agt, tmp_path: Path) -> None:
    """Of all rows the ids fill a tenth of their range; of those with a label, less."""
    rng = np.random.default_rng(0)
    table = plain(tmp_path / "t.csv", 600)
    table.insert(0, "code", rng.choice(5_600, 600, replace=False))
    table.loc[table.index[100:160], "churn"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    path = tmp_path / "t.csv"
    assert inspect_table(path, label="churn", id="code").row_number_ids == ["code"]
    used = inspect_table(path, label="churn", id="code", missing_label="drop")
    assert (used.row_number_ids, used.rows, used.unlabelled) == ([], 540, 60)
    given = [word for word in ANSWERS if not word.startswith("id=")]
    agt("start", "t.csv", *given, "id=code", "missing_label=drop", "-q").ended(0)


def test_only_columns_that_may_be_ids_are_said_to_look_like_row_numbers(
    agt: Agt, tmp_path: Path
) -> None:
    plain(tmp_path / "t.csv")
    refused = agt("start", "t.csv")
    assert "row number" not in refused.err, "ages fill their range, but name no row"


def test_columns_are_listed_in_lines_that_fit(tmp_path: Path) -> None:
    table = pd.DataFrame({f"column {'x' * number}": range(60) for number in range(MAX_COLUMNS + 5)})
    table["churn"] = ["yes", "no"] * 30
    table.to_csv(tmp_path / "t.csv", index=False)
    question = questions(inspect_table(tmp_path / "t.csv"))["label"]
    _, *listed, last = question.text.splitlines()
    assert max(map(len, listed)) <= LINE_LETTERS
    assert "and 6 columns more: column" in listed[MAX_COLUMNS]
    assert listed[-1].endswith("churn"), "a column that is not described can still be chosen"
    assert (question.default, "'churn' is proposed, because" in last) == ("churn", True)


def test_no_label_is_proposed_without_a_reason(tmp_path: Path) -> None:
    table = plain(tmp_path / "t.csv")[["churn", "town", "age"]].rename(columns={"churn": "left"})
    table.to_csv(tmp_path / "t.csv", index=False)
    question = questions(inspect_table(tmp_path / "t.csv"))["label"]
    assert question.default == ""
    assert "is proposed" not in question.text


@pytest.mark.parametrize(
    ("name", "values", "asked"),
    [
        ("customer_id", [row // 2 for row in range(60)], True),
        ("PatientId", [f"p{row // 3 * 7919}" for row in range(60)], True),
        ("account", [row % 20 for row in range(60)], True),
        ("account", [row % 4 for row in range(60)], False),
        ("account_balance", [row % 30 for row in range(60)], False),
        ("user", [row * 7919 for row in range(60)], False),
        ("zper", [row // 3 * 7919 % 100_003 for row in range(600)], True),
        ("income", [row * 7919 % 1_009 * 10 for row in range(3000)], False),
        ("debt", [row * 7919 % 1_009 if row % 6 == 0 else 0 for row in range(3000)], False),
    ],
    ids=[
        *("id", "camel case", "number", "few values", "of an account", "different"),
        *("rows in groups", "rows in no groups", "mostly zero"),
    ],
)
def test_who_the_rows_belong_to_is_asked_without_a_default_where_people_repeat(
    tmp_path: Path, name: str, values: list[object], asked: bool
) -> None:
    ages = [row % 60 for row in range(len(values))]
    churn = ["yes", "no"] * (len(values) // 2)
    pd.DataFrame({name: values, "age": ages, "churn": churn}).to_csv(
        tmp_path / "t.csv", index=False
    )
    inspection = inspect_table(tmp_path / "t.csv")
    question = questions(inspection)["id"]
    assert (question.default == "") == asked
    assert (f"'{name}' (" in question.text) == asked
    assert "each row another person, whom no erasure request can name" in question.text


def test_an_id_is_declared_permanent_only_in_so_many_words(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv", 300)
    asked = "declares: ids are never reused, nor changed when others leave"
    declared = "never passes to another person, and never changes"
    for column in ("member", "home"):
        assert asked in questions(inspect_table(tmp_path / "t.csv"))["id"].text
        answers = [f"id={column}" if word == "id=none" else word for word in ANSWERS]
        cap = ["unit_rows=2"] if column == "home" else []
        said = agt("start", "t.csv", *answers, *cap, "force=true").ended(0)
        assert f"id={column} declares" in said.err
        (line,) = re.findall("(?m)^id_permanent: .*", (tmp_path / FILE).read_text("utf-8"))
        assert "declared by this line" in line
        assert all(declared in text for text in (" ".join(said.err.split()), line))


def test_that_each_row_is_another_person_is_written_down_as_declared(
    agt: Agt, tmp_path: Path
) -> None:
    shop(tmp_path / "t.csv", 300)
    told = agt("start", "t.csv", *ANSWERS, "--json").ended(0).json
    (line,) = re.findall("(?m)^id: .*", (tmp_path / FILE).read_text(encoding="utf-8"))
    assert "declared" in line
    assert "each row is another person" in line
    assert any("'home'" in remark and "id=home" in remark for remark in told["remarks"])


def test_a_public_size_is_that_of_the_whole_table(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv")
    told = agt("start", "t.csv", *ANSWERS, "size=320", "--json").ended(0).json
    assert dataset(tmp_path)["declared_size"] == 240
    assert "75% of 320" in (tmp_path / FILE).read_text(encoding="utf-8")
    assert not any("size=" in remark for remark in told["remarks"])


def test_a_size_that_is_exactly_the_number_of_rows_is_asked_about(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv", 307)
    told = agt("start", "t.csv", *ANSWERS, "size=307", "--json").ended(0).json
    (remark,) = [remark for remark in told["remarks"] if remark.startswith("size=307")]
    assert "published" in remark


def test_a_size_alone_updates_the_dataset_file(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv")
    agt("start", "t.csv", *ANSWERS, "-q").ended(0)
    agt("start", "t.csv", *ANSWERS, "size=400", "-q").ended(0)
    assert dataset(tmp_path)["declared_size"] == 300
    file = tmp_path / FILE
    file.write_text(file.read_text(encoding="utf-8").replace("[10, 90]", "[0, 120]"))
    agt("start", "t.csv", *ANSWERS, "size=500", "-q").ended(2, "already exists")
    assert dataset(tmp_path)["declared_size"] == 300


def test_what_start_wrote_is_replaced_by_other_answers_unless_it_was_edited(
    agt: Agt, tmp_path: Path
) -> None:
    plain(tmp_path / "t.csv")
    agt("start", "t.csv", *ANSWERS, "-q").ended(0)
    assert dataset(tmp_path)["from_data"] == []
    others = [word for word in ANSWERS if not word.startswith("public=")]
    agt("start", "t.csv", *others, "public=no", "-q").ended(0)
    assert dataset(tmp_path)["from_data"] != []
    file = tmp_path / FILE
    file.write_text(file.read_text(encoding="utf-8").replace("[10, 90]", "[0, 120]"))
    agt("start", "t.csv", *ANSWERS, "-q").ended(2, "already exists")
    assert "[0, 120]" in file.read_text(encoding="utf-8")


def test_row_numbers_are_named_where_columns_are_listed_and_ids_asked(
    agt: Agt, tmp_path: Path
) -> None:
    table = plain(tmp_path / "t.csv")
    table.insert(0, "code", [f"P{number:05d}" for number in range(300)])
    table.to_csv(tmp_path / "t.csv", index=False)
    refused = agt("start", "t.csv").ended(2)
    (listed,) = re.findall("(?m)^  code: .*", refused.err)
    assert "row numbers?" in listed
    (asked,) = re.findall("(?m)^id: .*", refused.err)
    assert "'code'" in asked
    assert "id_permanent=true" in asked
    assert "row numbers" not in re.findall("(?m)^  age: .*", refused.err)[0]


@pytest.mark.parametrize("answered", [False, True], ids=["asked", "answered"])
def test_equal_rows_are_counted_before_anything_is_trained(
    agt: Agt, tmp_path: Path, answered: bool
) -> None:
    table = plain(tmp_path / "t.csv")
    pd.concat([table] * 3).to_csv(tmp_path / "t.csv", index=False)
    repeated = 900 - len(table.drop_duplicates())
    said = agt("start", "t.csv", *(ANSWERS if answered else ()), "-q")
    before, *_ = said.err.partition("Before you trust")
    equal = f"{repeated} of 900 rows are equal to an earlier row in all columns that are used"
    assert f"{equal} ('age', 'town', 'churn')" in before
    inspection = inspect_table(tmp_path / "t.csv", label="churn")
    assert inspection.repeated == repeated
    table.assign(height=np.linspace(150, 200, 300)).to_csv(tmp_path / "t.csv", index=False)
    assert not inspect_table(tmp_path / "t.csv", label="churn").repeated


def test_columns_that_are_left_out_are_named_before_anything_is_trained(
    agt: Agt, tmp_path: Path
) -> None:
    table = plain(tmp_path / "t.csv")
    rng = np.random.default_rng(0)
    noted = ["".join(rng.choice([*"abcdefgh"], 12)) for _ in range(300)]
    table = table.assign(one="1 kg", number=range(300), noted=noted)
    table.to_csv(tmp_path / "t.csv", index=False)
    said = agt("start", "t.csv", *ANSWERS, "-q").ended(0)
    before, *_ = said.err.partition("Before you trust")
    assert "No features: 'one' (one value), 'number' (ids or row numbers?)." in before
    assert "'noted' (300)" in before
    assert "No features" not in said.out


def test_what_a_column_costs_that_gives_the_label_away_is_said_with_what_to_type(
    agt: Agt, tmp_path: Path
) -> None:
    table = plain(tmp_path / "t.csv")
    refund = np.where(table["churn"] == "yes", "2024-05-01", "")
    table.assign(late=table["churn"] + "!", refund=refund).to_csv(tmp_path / "t.csv", index=False)
    told = agt("start", "t.csv", *ANSWERS, "--json").ended(0).json
    (remark,) = [line for line in told["remarks"] if "nearly every label" in line]
    assert remark.startswith("Each of the columns 'late', 'refund' alone predicts")
    assert "condition e" in remark
    assert "drop=[late,refund]' force=true" in remark
    assert "agt train dataset=t training.chosen_on=data" in remark


@pytest.mark.parametrize("is_noise", [True, False])
def test_of_a_model_no_better_than_a_constant_the_next_command_says_so(
    agt: Agt, tmp_path: Path, is_noise: bool
) -> None:
    table = plain(tmp_path / "t.csv", 600)
    if is_noise:
        table["churn"] = np.where(np.random.default_rng(3).random(600) < 0.1, "yes", "no")
        table.to_csv(tmp_path / "t.csv", index=False)
    said = agt("start", "t.csv", *ANSWERS, "eps=90", "-q").ended(0)
    _, _, after = said.out.partition("\nNext:\n")
    (report,) = tmp_path.glob("outputs/start/*/report.md")
    page = report.read_text(encoding="utf-8").partition("## Next")[2]
    for words in (after, page):
        assert ("not better than the majority-class baseline" in words) == is_noise


def test_what_private_answers_lack_is_said_before_training(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv")
    said = agt("start", "t.csv", *ANSWERS, "public=[ranges,size]", "-q").ended(0)
    (remark,) = [line for line in said.err.splitlines() if "public=yes" in line]
    assert "leaves out lists, classes" in remark
    said = agt("start", "t.csv", *ANSWERS, "public=no", "purpose=certificates", "-q").ended(0)
    assert "public=yes" not in said.err


def test_a_range_that_its_owner_knows_is_an_answer(agt: Agt, tmp_path: Path) -> None:
    table = plain(tmp_path / "t.csv")
    table.insert(0, "body height", np.random.default_rng(1).integers(150, 200, 300))
    table.to_csv(tmp_path / "t.csv", index=False)
    given = [word for word in ANSWERS if not word.startswith("public=")]
    public = "public=[lists,classes,size]"
    told = agt("start", "t.csv", *given, public, "ranges={age: [0,120]}", "--json").ended(0).json
    node = dataset(tmp_path)
    assert node["numeric"]["age"] == [0, 120]
    assert node["from_data"] == ["body height"], "nobody said its range"
    assert "age" not in node["proposed_from_rows"]
    assert told["not_public"] == ["ranges"]
    assert "ranges={age: [0, 120]}" in shlex.split(told["commands"][0])
    ranges = "ranges={age: [0,120], body height: [100,250]}"
    told = agt("start", "t.csv", *given, public, ranges, "--json").ended(0).json
    assert dataset(tmp_path)["from_data"] == told["not_public"] == []
    assert dataset(tmp_path)["proposed_from_rows"] == ["town", "classes", "declared_size"]
    words = shlex.split(told["commands"][0])[1:]
    agt(*words, "-q").ended(0)


def test_a_range_in_a_file_of_answers_may_be_of_a_date(agt: Agt, tmp_path: Path) -> None:
    table = plain(tmp_path / "t.csv")
    table["größe"] = table["age"] + 100
    table["since"] = pd.date_range("2020-01-01", periods=300).strftime("%d.%m.%Y")
    table.to_csv(tmp_path / "t.csv", index=False)
    lines = [*(word.replace("=", ": ", 1) for word in ANSWERS), "ranges:"]
    lines += ["  größe: [50, 250]", "  since: [2000-01-01, 2040-12-31]"]
    (tmp_path / "a.yaml").write_text("\n".join(lines), encoding="utf-8")
    said = agt("start", "t.csv", "label=churn", "answers=a.yaml", "-q").ended(0)
    assert "later date" not in said.err
    assert dataset(tmp_path)["numeric"]["größe"] == [50, 250]
    assert str(dataset(tmp_path)["numeric"]["since"][1]) == "2040-12-31"


@pytest.mark.parametrize("command", ["start", "data inspect"])
def test_a_list_without_a_value_of_a_column_with_many_values_is_refused(
    agt: Agt, tmp_path: Path, command: str
) -> None:
    """All of its values would be read as other."""
    table = plain(tmp_path / "t.csv")
    table["code"] = [f"c{row % 150}" for row in range(len(table))]
    table.to_csv(tmp_path / "t.csv", index=False)
    words = ANSWERS if command == "start" else ("label=churn", "id=null")
    said = agt(*command.split(), "t.csv", *words, "lists={code: [a, b]}", "-q")
    said.ended(2, "lists={code: [a, b]} contains no value of this column")
    assert not (tmp_path / "conf").exists()
    agt(*command.split(), "t.csv", *words, "lists={code: [a, c7]}", "-q").ended(0)


def test_a_question_that_a_file_answers_twice_is_refused_with_its_line(
    agt: Agt, tmp_path: Path
) -> None:
    plain(tmp_path / "t.csv")
    (tmp_path / "a.yaml").write_text("label: churn\nid: none\nlabel: age\n")
    said = agt("start", "t.csv", "answers=a.yaml", "-q").ended(2)
    assert "a.yaml, line 3: found duplicate key label" in said.err
    assert not (tmp_path / "conf").exists()


def test_a_table_that_is_named_with_and_without_a_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a person types it: a program's own command line may give a setting twice."""
    monkeypatch.chdir(tmp_path)
    plain(tmp_path / "t.csv")
    plain(tmp_path / "u.csv")
    monkeypatch.setattr("sys.argv", ["agt", "start", "t.csv", "file=u.csv", *ANSWERS, "-q"])
    assert main() == 2
    said = capsys.readouterr().err
    assert "t.csv" in said
    assert "file=u.csv" in said


def test_with_one_range_declared_the_others_keep_a_claim_back(agt: Agt, tmp_path: Path) -> None:
    table = plain(tmp_path / "t.csv")
    table.insert(0, "height", np.random.default_rng(1).integers(150, 200, 300))
    table.to_csv(tmp_path / "t.csv", index=False)
    words = (*ANSWERS, "public=[lists,classes,size]", "ranges={age: [0,120]}", "--json")
    run = agt("start", "t.csv", *words).ended(0).json["run"]
    conditions = json.loads((tmp_path / run / "conditions.json").read_text())
    (e,) = [entry for entry in conditions if entry["letter"] == "e"]
    assert e["standing"] == "not held"


def test_a_proposed_range_of_dates_is_not_declared(agt: Agt, tmp_path: Path) -> None:
    table = plain(tmp_path / "t.csv")
    table["since"] = pd.date_range("2020-01-01", periods=300).strftime("%Y-%m-%d")
    table.to_csv(tmp_path / "t.csv", index=False)
    agt("data", "inspect", "t.csv", "label=churn", "-q").ended(0)
    assert "since" in dataset(tmp_path)["from_data"]
    ranges = "ranges={since: [2000-01-01, 2040-12-31]}"
    agt("data", "inspect", "t.csv", "label=churn", ranges, "force=true", "-q").ended(0)
    assert dataset(tmp_path)["from_data"] == ["age", "town", "classes"]


def test_a_list_that_its_owner_knows_is_an_answer(agt: Agt, tmp_path: Path) -> None:
    table = plain(tmp_path / "t.csv")
    given = [word for word in ANSWERS if not word.startswith("public=")]
    public = "public=[ranges,classes,size]"
    seen = sorted(table["town"].unique())
    lists = f"lists={{town: [{seen[0]}, elsewhere]}}"
    told = agt("start", "t.csv", *given, public, lists, "--json").ended(0).json
    node = dataset(tmp_path)
    assert node["categorical"]["town"] == [seen[0], "elsewhere"]
    assert node["from_data"] == told["not_public"] == []
    assert "town" not in node["proposed_from_rows"]
    words = shlex.split(told["commands"][0])[1:]
    assert lists in words
    agt(*words, "-q").ended(0)


def test_a_list_makes_codes_of_numbers_and_keeps_a_column_of_many_words(
    agt: Agt, tmp_path: Path
) -> None:
    table = plain(tmp_path / "t.csv")
    table["region"] = np.arange(300) % 7
    table["street"] = [f"street {'abcdefghij'[row % 10]}{row}" for row in range(300)]
    table.to_csv(tmp_path / "t.csv", index=False)
    lists = "lists={region: [0,1,2,3], street: [street a0]}"
    agt("data", "inspect", "t.csv", "label=churn", lists, "-q").ended(0)
    listed = dataset(tmp_path)["categorical"]
    assert (listed["region"], listed["street"]) == (["0", "1", "2", "3"], ["street a0"])
    assert dataset(tmp_path)["from_data"] == ["age", "town", "classes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lists={Town: [a]}",), "did you mean 'town'"),
        (("lists={town: [nowhere]}",), "no value of this column"),
        (("lists={town: north}",), "in brackets"),
        (("lists={town: []}",), "at least 1 entry"),
        (("lists={town: [north, north]}",), "in the list twice"),
        (("lists={town: ['', north]}",), "is empty"),
        (("lists={churn: [a]}",), "leave 'churn' out of lists"),
        (("lists=[a]",), "lists={region: [north, south]}"),
        (("lists={age: [a]}", "ranges={age: [0,120]}"), "both name the column 'age'"),
        (("ranges={Age: [0,120]}",), "did you mean 'age'"),
        (("ranges={town: [0,1]}",), "town"),
        (("ranges={churn: [0,1]}",), "range=[LOW,HIGH]"),
        (("ranges={age: [120,0]}",), "must increase"),
        (("ranges={age: [120]}",), "two numbers"),
        (("ranges={age: [200,300]}",), "no value of this column"),
        (("ranges=[0,120]",), "ranges={age: [15, 50]}"),
        (("age=[0,120]",), "ranges={age: [0,120]}"),
    ],
)
def test_a_range_or_list_that_cannot_be_is_refused_before_anything_is_written(
    agt: Agt, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    plain(tmp_path / "t.csv")
    assert said in agt("start", "t.csv", *ANSWERS, *words).err
    assert not (tmp_path / "conf").exists()


def test_values_outside_of_a_declared_range_are_said_before_training(
    agt: Agt, tmp_path: Path
) -> None:
    table = plain(tmp_path / "t.csv")
    outside = int((table["age"] > 50).sum())
    said = agt("start", "t.csv", *ANSWERS, "ranges={age: [0,50]}", "-q").ended(0)
    assert f"[0, 50] that you declared in {outside} rows" in said.err


@pytest.mark.parametrize(
    ("size", "said"),
    [("3", "size=300?"), ("30000", "size=300?"), ("3,000", "size=3000"), ("3.100", "3100 if")],
)
def test_a_mistyped_size_is_answered_by_the_likely_one(
    agt: Agt, tmp_path: Path, size: str, said: str
) -> None:
    plain(tmp_path / "t.csv")
    assert said in agt("start", "t.csv", *ANSWERS, f"size={size}").ended(2).err
    assert not (tmp_path / "conf").exists()


def test_on_how_many_rows_and_features_was_trained_is_said(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv")
    told = agt("start", "t.csv", *ANSWERS, "--json").ended(0).json
    metrics = json.loads((tmp_path / told["run"] / "metrics.json").read_text())
    assert told["training_rows"] == metrics["n_train"]
    inspected = agt("data", "inspect", "t.csv", "name=other", "--json").ended(0).json
    assert told["features"] == inspected["features"]
    said = agt("start", "t.csv", *ANSWERS).ended(0)
    assert f"trained on {told['training_rows']} rows of {told['features']} features" in said.out


def test_an_edited_file_is_refused_before_the_table_is_read(
    agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(tmp_path / "t.csv")
    agt("start", "t.csv", *ANSWERS, "-q").ended(0)
    with (tmp_path / FILE).open("a", encoding="utf-8") as file:
        file.write("# an edit\n")

    def read(*args: object, **settings: object) -> None:
        pytest.fail("the table was read")

    monkeypatch.setattr("agt_cli.runs.inspect_settings.inspect_table", read)
    agt("start", "t.csv", *ANSWERS).ended(2, "may contain your declarations")


def test_the_line_has_only_what_a_known_label_needs(agt: Agt, tmp_path: Path) -> None:
    table = plain(tmp_path / "t.csv")
    table.loc[3, "age"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    refused = agt("start", "t.csv").ended(2)
    assert not any(word.startswith("missing_label=") for word in line_to_paste(refused))
    assert "target: " not in refused.err
    assert "agt: questions to answer: " in refused.err
    assert "agt: error" not in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("start", "t.csv", "ranges={age:", "[1,2]}"), "'ranges={age: [1,2]}'"),
        (("start", "t.csv", *ANSWERS, "force=fasle"), "force: expected true or false"),
    ],
)
def test_what_was_typed_wrong_is_answered_by_what_to_type(
    agt: Agt, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    plain(tmp_path / "t.csv")
    assert said in agt(*words).ended(2).err


def test_an_eps_with_a_comma_is_asked_again(tmp_path: Path) -> None:
    plain(tmp_path / "t.csv")
    settings = StartSettings(file=tmp_path / "t.csv", data_dir=tmp_path)
    with pytest.raises(ConfigError, match="decimal point"):
        Answered(settings, settings.inspect()).with_answer("eps", "1,0")


def test_that_a_column_repeats_is_said_before_training(agt: Agt, tmp_path: Path) -> None:
    shop(tmp_path / "t.csv", 300)
    said = agt("start", "t.csv", *ANSWERS).ended(0)
    assert "give id=home" in said.err


def test_a_second_label_gets_a_dataset_file_of_its_own(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv")
    agt("start", "t.csv", *ANSWERS, "-q").ended(0)
    second = [word for word in ANSWERS if not word.startswith("label=")]
    said = agt("start", "t.csv", "label=town", *second, "-q").ended(0)
    assert "is called t_town" in said.err
    assert dataset(tmp_path, "t_town")["label"] == "town"
    assert dataset(tmp_path)["label"] == "churn"


def test_what_inspect_wrote_is_replaced_unless_it_was_edited(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv")
    agt("data", "inspect", "t.csv", "-q").ended(0)
    words = line_to_paste(agt("start", "t.csv").ended(2))
    given = {"public=YES_OR_NO": "public=yes"}
    agt(*(given.get(word, word) for word in words), "-q").ended(0)
    assert dataset(tmp_path)["from_data"] == []


def test_an_edited_file_is_judged_before_anything_is_asked(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv")
    agt("data", "inspect", "t.csv", "-q").ended(0)
    file = tmp_path / FILE
    file.write_text(file.read_text(encoding="utf-8").replace("[10, 90]", "[0, 120]"))
    refused = agt("start", "t.csv").ended(2, "may contain your declarations")
    assert "purpose" not in refused.err, "nothing is asked before"
    training, anew, beside = re.findall("`agt (.*?)`", refused.err)
    assert anew == "start t.csv force=true"
    assert beside == "start t.csv name=t_2"
    agt(*shlex.split(training), "-q").ended(0)


def test_a_dataset_file_about_another_table_is_an_edited_one(agt: Agt, tmp_path: Path) -> None:
    plain(tmp_path / "t.csv")
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text("label: nowhere\nid: 7\n", encoding="utf-8")
    agt("start", "t.csv").ended(2, "may contain your declarations", "agt train dataset=t`")


def release_of(told: dict[str, Any]) -> list[str]:
    """The words of the release that was proposed, with queries that were not trained on."""
    return [word for word in typed(told["next"], "q.csv") if not word.startswith("inputs=")]


@pytest.fixture
def counted(agt: Agt, tmp_path: Path) -> dict[str, Any]:
    """What agt start said of a table whose people then got a ledger with eps = 1."""
    plain(tmp_path / "t.csv")
    told = agt("start", "t.csv", *ANSWERS, "eps=1", "--json").ended(0).json
    opening = typed(told["next_commands"][0], "q.csv")
    agt(*opening, "-q").ended(0)
    return told


def again(agt: Agt, *words: str) -> dict[str, Any]:
    return agt("start", "t.csv", *ANSWERS, "eps=1", *words, "--json").ended(0).json


def test_no_more_is_proposed_than_the_ledger_holds(agt: Agt, counted: dict[str, Any]) -> None:
    spent = [word.replace("total.eps=1", "total.eps=0.7") for word in release_of(counted)]
    agt(*spent, "-q").ended(0)
    told = again(agt)
    (budget,) = [word for word in release_of(told) if word.startswith("total.eps=")]
    assert 0 < float(budget.partition("=")[2]) < 1
    assert "not 1" in told["ledger"]
    agt(*release_of(told), "-q").ended(0)


def test_where_the_ledger_holds_nothing_more_no_release_is_proposed(
    agt: Agt, counted: dict[str, Any]
) -> None:
    agt(*release_of(counted), "-q").ended(0)
    told = again(agt)
    assert told["recommended"] == told["plan"][2]
    assert told["next"].startswith("agt certify run=")
    assert "already spent" in told["ledger"]


def test_a_head_that_is_not_there_is_said_before_a_release_is_proposed(
    agt: Agt, counted: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "ledger.head").unlink()
    told = again(agt)
    assert "ledger.head" in told["ledger"]
    assert told["next"].startswith("agt certify run=")


def test_a_damaged_ledger_is_said_and_no_release_proposed(
    agt: Agt, counted: dict[str, Any], tmp_path: Path
) -> None:
    ledger = tmp_path / "ledgers" / "t.ledger"
    ledger.write_bytes(ledger.read_bytes()[:100])
    told = again(agt)
    assert "t.ledger" in told["ledger"]
    assert "No release can be counted" in told["ledger"]
    assert told["next"].startswith("agt certify run=")


def test_a_damaged_ledger_beside_the_people_s_own_is_said_until_it_is_declared(
    agt: Agt, counted: dict[str, Any], tmp_path: Path
) -> None:
    own = (tmp_path / "ledgers" / "t.ledger").read_bytes()
    (tmp_path / "ledgers" / "old.ledger").write_bytes(own[:100])
    told = again(agt)
    assert "old.ledger" in told["ledger"]
    assert told["next"].startswith("agt certify run=")
    agt("ledger", "admit", "t", "unreadable=ledgers/old.ledger", "-q").ended(0)
    assert again(agt)["next"].startswith("agt predict run=")


@pytest.mark.parametrize(
    ("names", "share", "by_chance"),
    [
        (["p00001", "p00002", "p00003"], 1.0, True),
        (["p17", "p7919", "p90210"], 0.1, True),
        (["p17", "p7919", "p90210"], 1.0, False),
        (["ann@home", "bob@home", "cid@home"], 0.1, False),
    ],
    ids=["row numbers", "few numbers", "most numbers", "no numbers"],
)
def test_only_numbered_names_may_be_those_of_others(
    names: list[str], share: float, by_chance: bool
) -> None:
    assert _may_be_by_chance(np.array(names), share) == by_chance


def test_a_new_ledger_does_not_take_the_name_of_other_people_s(
    agt: Agt, counted: dict[str, Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    other = plain(tmp_path / "t.csv").assign(age=rng.normal(50, 9, 300).round(3))
    other.to_csv(tmp_path / "t.csv", index=False)
    told = again(agt, "force=true")
    opening = typed(told["next_commands"][0], "q.csv")
    assert opening[:3] == ["ledger", "init", "t2"]
    assert "ledger=t2" in told["next"]
