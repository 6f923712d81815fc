"""``agt certify person=...``: answers without one person's records, against training without the
person's rows in the table.
"""

import json
from pathlib import Path

import pandas as pd
import pytest

from agt_cli.report.console import Console
from agt_cli.report.opening import open_run
from agt_cli.runs.prepare import prepare, read_settings

from .conftest import Agt
from .test_sisa import BOXES, MEMBERS, TABLE, write

LINEAR = ("model=linear", "certificate=erm", "training.weight_decay=0.05")
FROM_DATA = tuple(
    "+dataset.numeric={a: null, b: null}" if "numeric" in text else text for text in TABLE
)
VOTES = ("model=linear", "certificate=votes", "ensemble.members=9")
RUNS = {
    "votes": (*TABLE, *VOTES),
    "votes, scaled by the records": (*FROM_DATA, *VOTES),
    "ensemble": (*MEMBERS, "model=linear", "certificate=stability"),
    "boxes": (*TABLE, *BOXES, "training.epochs=3", "training.lr=2", "training.clip=0.5"),
    "minimiser": (*TABLE, *LINEAR),
    "minimiser, scaled by the records": (*FROM_DATA, *LINEAR),
}
METHODS = {
    "votes": {"members"},
    "votes, scaled by the records": {"members", "retraining"},  # as the scales stay, or not
    "ensemble": {"members"},
    "boxes": {"retraining"},
    "minimiser": {"newton", "retraining"},  # as the step decides every answer, or not
    "minimiser, scaled by the records": {"retraining"},
}
ASKED = ("p3", "p10", "p42")


def train(agt: Agt, folder: str, *settings: str) -> Path:
    assert agt("train", *settings, f"hydra.run.dir={folder}").code == 0
    return Path(folder)


def answers(agt: Agt, run: Path) -> dict[str, str]:
    """The answer to each query of queries.csv."""
    record = f"{run}-certified"
    certified = agt("certify", f"run={run}", "inputs=queries.csv", f"hydra.run.dir={record}")
    assert certified.code == 0
    table = pd.read_parquet(Path(record) / "certificates.parquet")
    return dict(zip(table["record_id"].astype(str), table["prediction"], strict=True))


def write_queries(folder: Path) -> None:
    rows = [(f"q{i}", f"s{i}", -1 + i / 20, 0.5 - i / 40 + (i % 7) / 20) for i in range(40)]
    columns = ["id", "person", "a", "b"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "queries.csv", index=False)


@pytest.mark.parametrize("name", RUNS)
def test_the_letter_says_what_training_without_the_persons_rows_answers(
    agt: Agt, tmp_path: Path, name: str
) -> None:
    write(tmp_path)
    write_queries(tmp_path)
    run = train(agt, "runs/everybody", *RUNS[name])
    before = answers(agt, run)
    asked = (f"run={run}", "inputs=queries.csv", f"person=[{','.join(ASKED)}]", "-q", "--json")
    fields = agt("certify", *asked, "hydra.run.dir=runs/letter").ended(0).json["people"]
    assert [person["person"] for person in fields] == [*ASKED]
    assert {person["method"] for person in fields} <= METHODS[name]
    for person in fields:
        write(tmp_path, without=person["person"])
        after = answers(agt, train(agt, f"runs/without-{person['person']}", *RUNS[name]))
        changed = {each["id"]: each["without"] for each in person["changed_queries"]}
        assert person["not_shown"] == 0
        assert person["same"] + person["changed"] == len(before)
        assert changed == {query: after[query] for query in before if after[query] != before[query]}


@pytest.fixture
def run(agt: Agt, tmp_path: Path) -> Path:
    write(tmp_path)
    return train(agt, "runs/everybody", *RUNS["votes"])


def test_the_record_has_a_page_for_the_owner_and_fields(agt: Agt, run: Path) -> None:
    test_only = sorted(set(people_of("test")) - set(people_of("train")))[0]
    asked = (f"run={run}", f"person=[p3,{test_only}]", "hydra.run.dir=runs/letter")
    said = agt("certify", *asked).ended(0)
    record = open_run(Path("runs/letter"), "certify")
    fields = json.loads(record.read("person.json"))
    assert [each["method"] for each in fields] == ["members", "nothing"]
    assert fields[1]["training_records"] == 0 < fields[1]["test_records"]
    assert fields[1]["same"] == record.metrics["n_queries"]
    assert record.metrics["people"] == 2
    same = sum(each["same"] for each in fields)
    assert record.metrics["answers_same"] == same
    page = record.read("person.md").decode()
    assert "do not publish them" in page
    assert "do not publish them" in said.out
    assert test_only in page
    assert record.holds("person.html")
    assert agt("verify", "runs/letter").code == 0


def people_of(split: str) -> list[str]:
    """The people with records in a split of people.csv, as the runs of this file divide it."""
    config = open_run(Path("runs/everybody"), "train").config
    dataset = prepare(read_settings(config), Console(quiet=True)).dataset
    units: list[str] = getattr(dataset, split).units.tolist()
    return units


def test_unknown_ids_are_all_named_in_one_error(agt: Agt, run: Path) -> None:
    agt("certify", f"run={run}", "person=[nobody,p3,stranger]").ended(2, "nobody, stranger")


def test_a_whole_number_that_two_ids_could_mean_is_refused_until_it_is_quoted(
    agt: Agt, tmp_path: Path
) -> None:
    write(tmp_path)
    table = pd.read_csv("people.csv")
    table["person"] = table["person"].replace({"p3": "7", "p7": "+7"})
    table.to_csv("people.csv", index=False)
    folder = train(agt, "runs/everybody", *RUNS["votes"], "dataset.id_as_text=true")
    asked = ("certify", f"run={folder}", "-q", "--json")
    agt(*asked, "person=+7", "hydra.run.dir=runs/number").ended(2, "person=7")
    agt(*asked, "person=[p4,7]", "hydra.run.dir=runs/list").ended(2, "person=7")
    (found,) = agt(*asked, "person='+7'", "hydra.run.dir=runs/text").ended(0).json["people"]
    assert found["person"] == "+7"


def test_a_minimiser_of_a_table_with_declared_constants_is_not_trained_again(
    agt: Agt, tmp_path: Path
) -> None:
    write(tmp_path)
    folder = train(agt, "runs/everybody", *RUNS["minimiser"])
    asked = ("certify", f"run={folder}", "person=[p3,p10,p42]", "-q", "--json")
    people = agt(*asked, "hydra.run.dir=runs/letter").ended(0).json["people"]
    assert "newton" in {each["method"] for each in people}


@pytest.mark.parametrize("person", ["[]", "1.5", "{a: 1}", "true"])
def test_a_person_that_is_no_id_is_refused_before_data_is_read(
    agt: Agt, run: Path, person: str
) -> None:
    Path("people.csv").unlink()
    agt("certify", f"run={run}", f"person={person}").ended(2, "person=")


def test_while_requests_to_erase_are_pending_nobody_is_compared(
    agt: Agt, tmp_path: Path, run: Path
) -> None:
    (tmp_path / "requests.txt").write_text("p3\n")
    agt("unlearn", f"run={run}", "ids=requests.txt", "method=certificate")
    agt("certify", f"run={run}", "person=p10").ended(2, "person=p10", "agt unlearn")


def test_somebody_who_was_erased_is_unknown_and_the_others_are_compared(
    agt: Agt, tmp_path: Path, run: Path
) -> None:
    (tmp_path / "requests.txt").write_text("p3\n")
    assert agt("unlearn", f"run={run}", "ids=requests.txt").code == 0
    agt("certify", f"run={run}", "person=p3").ended(2, "p3")
    assert agt("certify", f"run={run}", "person=p10").code == 0


def test_a_training_that_drew_noise_is_not_compared(agt: Agt, tmp_path: Path) -> None:
    write(tmp_path)
    removal = ("certificate=removal", "certificate.masking=output", "certificate.sigma=0.05")
    noisy = train(agt, "runs/noisy", *TABLE, "model=linear", *removal)
    agt("certify", f"run={noisy}", "person=p3").ended(2, "person=p3", "noise")
