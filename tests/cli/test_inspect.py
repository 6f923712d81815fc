"""agt data inspect FILE: what is written trains as it stands, and is not public until its owner
says so.
"""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml  # type: ignore[import-untyped]

from agt.settings import build
from agt_cli.composing import compose_command

from .conftest import Agt, Said

TRAIN = ("kgrid.max=3", "compute.kernel=reference", "-q", "--json")


def people(path: Path, rows: int = 400) -> Path:
    """A table as an office exports it: semicolons, a byte order mark, odd names, two words for a
    missing value.
    """
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, rows)
    wage = np.round(rng.lognormal(7.5, 1.2, rows), 2)
    town = rng.choice(["Köln", "Bonn, Süd", "?"], rows)
    lines = ["Nr.;Größe (cm);net.income;Wohn ort;1;yes;default"]
    for row in range(rows):
        size = "?" if row % 50 == 0 else str(rng.integers(150, 200))
        label = "yes" if age[row] + rng.normal(0, 15) > 50 else "no"
        lines.append(f'{row + 1};{size};{wage[row]};"{town[row]}";{age[row]};{row % 2};{label}')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return path


def of(said: Said, condition: str) -> str:
    """How a condition stands in a run's record."""
    conditions = json.loads((Path(said.json["run"]) / "conditions.json").read_text())
    return str(next(entry["standing"] for entry in conditions if entry["letter"] == condition))


def test_from_a_table_to_a_run(agt: Agt, tmp_path: Path) -> None:
    people(tmp_path / "Kunden 2024.csv")
    said = agt("data", "inspect", "Kunden 2024.csv").ended(0)
    assert "agt train dataset=Kunden_2024" in said.err
    written = (tmp_path / "conf" / "dataset" / "Kunden_2024.yaml").read_text(encoding="utf-8")
    settings = yaml.safe_load(written)
    assert settings["numeric"]["Größe (cm)"] == [140, 200]
    assert settings["categorical"]["Wohn ort"] == ["Bonn, Süd", "Köln"]
    assert "Nr." not in {*settings["numeric"], *settings["categorical"]}, "it counts rows"
    assert settings["from_data"], "not public until it is declared"
    assert settings["csv"] == {"separator": ";", "encoding": "utf-8", "header": True}
    assert "Kunden_2024" in agt("train", "--help").out
    agt("train", "dataset=Kunden_2025").ended(2, "'Kunden_2024'")


def test_the_ranges_are_not_public_until_the_owner_says_so(agt: Agt, tmp_path: Path) -> None:
    inspected = agt("data", "inspect", str(people(tmp_path / "t.csv")), "--json").json
    assert inspected["next"] == "agt train dataset=t"
    assert (inspected["label"], inspected["id"]) == ("default", None)
    assert inspected["from_data"] == ["Größe (cm)", "net.income", "Wohn ort", "1", "yes", "classes"]
    path = tmp_path / "conf" / "dataset" / "t.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("declared_size: null", "declared_size: 300"),
        encoding="utf-8",
    )
    first = agt("train", "dataset=t", *TRAIN).ended(0)
    assert of(first, "e") == "not held"
    declared = agt(
        "train", "dataset=t", "dataset.from_data=[]", "training.chosen_on=public", *TRAIN
    )
    assert of(declared, "e") == "declared"


def test_inspecting_says_how_many_features_a_record_has_after_coding(
    agt: Agt, tmp_path: Path
) -> None:
    inspected = agt("data", "inspect", str(people(tmp_path / "t.csv")), "--json").json
    loaded = build(compose_command("train", ["dataset=t"])["dataset"], "dataset").load()
    assert loaded.train.features.shape[1:] == (inspected["features"],)


def test_a_label_of_many_numbers_is_asked_about_and_no_range_is_proposed(
    agt: Agt, tmp_path: Path
) -> None:
    ages = [20 + row % 40 for row in range(200)]
    pd.DataFrame({"size": np.arange(200) % 7, "age": ages}).to_csv(tmp_path / "t.csv", index=False)
    agt("data", "inspect", "t.csv", "label=age").ended(2, "target=numeric", "range=[LOW,HIGH]")
    agt("data", "inspect", "t.csv", "label=age", "target=numeric").ended(2, "range=[LOW,HIGH]")
    assert not (tmp_path / "conf").exists()
    given = ("label=age", "target=numeric", "range=[0,120]")
    told = agt("data", "inspect", "t.csv", *given, "--json").ended(0).json
    assert (told["range"], told["classes"], told["from_data"]) == ([0, 120], [], ["size"])
    next_words = told["next"].replace("declared_size=N", "declared_size=150").split()[1:]
    trained = agt(*next_words, "-q", "--json").ended(0)
    assert "test_rmse" in trained.json["metrics"]
    classes = agt("data", "inspect", "t.csv", "label=age", "target=classes", "name=c", "--json")
    assert len(classes.json["classes"]) == 40


def test_what_is_there_is_not_written_over(agt: Agt, tmp_path: Path) -> None:
    people(tmp_path / "t.csv")
    agt("data", "inspect", "t.csv", "-q").ended(0)
    agt("data", "inspect", "t.csv", "-q").ended(2, "conf/dataset/t.yaml", "force=true")
    agt("data", "inspect", "t.csv", "-q", "force=true").ended(0)
    agt("data", "inspect", "t.csv", "-q", "name=other", "id='Nr.'", "label=yes").ended(0)
    other = (tmp_path / "conf" / "dataset" / "other.yaml").read_text(encoding="utf-8")
    assert 'id: "Nr."' in other
    assert 'label: "yes"' in other


def test_a_run_is_found_from_another_folder(
    agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    people(tmp_path / "data" / "t.csv")  # not in the working directory: under data_dir
    agt("data", "inspect", "t.csv", "-q")
    said = agt("train", "dataset=t", "dataset.declared_size=300", *TRAIN)
    run = tmp_path / said.json["run"]
    files = json.loads((run / "env.json").read_text())["data_files"]
    assert files["path"]["path"] == str((tmp_path / "data" / "t.csv").resolve())
    assert len(files["path"]["sha256"]) == 64
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    agt("certify", f"run={run}", "-q").ended(0)
    people(tmp_path / "data" / "t.csv", 401)
    agt("certify", f"run={run}", "-q").ended(2, "302 records")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('label: "y\npath: t.csv\n', "conf/dataset/mine.yaml, line 3"),
        (
            "label: y\nid: null\nlabel: z\n",
            "conf/dataset/mine.yaml, line 3: found duplicate key label: leave one",
        ),
        ("numeric: {x: [0, 1], x: [0, 2]}\n", "line 1: found duplicate key x: leave one"),
        ("\tlabel: y\n", "conf/dataset/mine.yaml, line 1"),
        ("label: y\n", "the first line is 'defaults: \\[table, _self_\\]'"),
        ("label: \x01\n", "mine.yaml: this is not plain text in UTF-8"),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    agt: Agt, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "mine.yaml").write_text(text)
    said = agt("train", "dataset=mine").ended(2)
    assert re.search(says, said.err)
    agt("train", "--help").ended(0)


def test_odd_names_on_the_command_line(agt: Agt, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "a.b,c d,y\n" + "".join(f"{n},{n},{n % 2}\n" for n in range(60))
    )
    table = (
        "train",
        "dataset=table",
        "dataset.path=t.csv",
        "dataset.label=y",
        "dataset.declared_size=45",
        *TRAIN,
    )
    for size in (45, 5000):
        line = [word.replace("=45", f"={size}") for word in table if word != "-q"]
        said = agt(*line, "+dataset.numeric={a.b: [0, 60], c d: [0, 60]}").ended(0)
        # as docs/recipe.md has it
        assert ("certificate=votes may be better for this table" in said.err) == (size == 5000)
    agt(*table, '+dataset.numeric={"a.b": [0, 60]}').ended(2, "{a.b: [0, 1]")


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J",
    "\u202eevil\u2066",
    "\x9b31m\x85",
    "two\n\n# Forged: proved\n\nlines",
)


def test_nothing_in_a_table_acts_on_a_terminal_or_a_page(agt: Agt, tmp_path: Path) -> None:
    """Names of columns, values, classes and ids with escapes, C1 controls, bidi marks and line
    ends, through every page.
    """
    size = 120
    table = {name: np.arange(size) % (5 + at) for at, name in enumerate(HOSTILE)}
    words = {f"word {HOSTILE[0]}": np.resize(np.array(HOSTILE), size)}
    ids = np.array([f"{row:03d}x{HOSTILE[row % 4]}" for row in range(size)])
    label = np.where(
        table[HOSTILE[0]] + np.arange(size) % 3 > 3, f"yes{HOSTILE[0]}", f"no{HOSTILE[1]}"
    )
    pd.DataFrame({f"id{HOSTILE[1]}": ids, **table, **words, f"y {HOSTILE[2]}": label}).to_parquet(
        "t.parquet"
    )
    said = [agt("data", "inspect", "t.parquet", f"label='y {HOSTILE[2]}'", f"id='id{HOSTILE[1]}'")]
    line = (
        "dataset=t",
        "dataset.declared_size=90",
        "dataset.from_data=[]",
        "training.chosen_on=public",
    )
    said.append(
        agt(
            "train",
            *line,
            f"dataset.name='set {HOSTILE[0]}'",
            "kgrid.max=3",
            "compute.kernel=reference",
        )
    )
    said.append(agt("certify", "run=latest"))
    said.append(agt("plan", "run=latest", "eps=[1.0]", "queries=[10]", "-q"))
    said += [agt("runs"), agt("train", "dataset=t", f"dataset.label='{HOSTILE[3]}{HOSTILE[0]}'")]
    assert [one.code for one in said] == [0, 0, 0, 0, 0, 2], [one.err for one in said]
    pages = [
        path.read_text("utf-8")
        for path in Path("outputs").rglob("*")
        if path.suffix in (".md", ".html")
    ]
    assert len(pages) >= 8
    for text in [
        *pages,
        *(one.out + one.err for one in said),
        Path("conf/dataset/t.yaml").read_text("utf-8"),
    ]:
        assert not {letter for letter in text if not letter.isprintable()} - {"\n"}
        assert not re.search("^# Forged|<h1>.*Forged", text.partition("<td")[0], re.MULTILINE)
    assert "\\x1b]0;owned" in said[0].out


def test_ids_that_look_like_row_numbers_are_declared_by_the_line_that_inspect_prints(
    agt: Agt, tmp_path: Path
) -> None:
    people(tmp_path / "t.csv")
    agt("data", "inspect", "t.csv", "id_permanent=true").ended(2, "id=COLUMN")
    said = agt("data", "inspect", "t.csv", "label=default").ended(0)
    file = tmp_path / "conf" / "dataset" / "t.yaml"
    assert "id_permanent" not in yaml.safe_load(file.read_text(encoding="utf-8"))
    (line,) = re.findall(r"declare it: agt (.*)", said.out)
    assert "id_permanent=true" in line
    told = agt(*shlex.split(line), "--json").ended(0).json
    (declared,) = [column for column in told["columns"] if column["name"] == "Nr."]
    assert declared["proposal"] == "the record's id", "no doubt is left about what was declared"
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert (settings["id"], settings["id_permanent"]) == ("Nr.", True)
    public = ("dataset.from_data=[]", "dataset.declared_size=300", "certificate=votes")
    assert of(agt("train", "dataset=t", *public, *TRAIN).ended(0), "b") == "declared"


def test_equal_rows_are_counted_where_no_column_names_records(agt: Agt, tmp_path: Path) -> None:
    table = pd.read_csv(people(tmp_path / "t.csv"), sep=";").drop(columns="Nr.")
    pd.concat([table, table]).to_csv(tmp_path / "t.csv", index=False)
    said = agt("data", "inspect", "t.csv", "label=default").ended(0)
    compared = r"in all columns that are used \('Größe.*, 'default'\)\."
    assert re.search(rf"4\d\d of 800 rows are equal to an earlier row {compared}", said.out)


def test_a_table_that_no_dataset_file_describes_is_named(agt: Agt, tmp_path: Path) -> None:
    people(tmp_path / "loans.csv")
    agt("train", "dataset=loans").ended(2, "agt data inspect loans.csv", "agt start loans.csv")
