"""What commands propose and refusals say where a ledger is spent, or only has the same ids."""

import io
import os
from pathlib import Path

import pytest
from ledgers import people
from museum import LINEAR

from agt.errors import ConfigError
from agt.ledger.ledger import Exhausted, Ledger, check_no_other_ledger, find_matching_table
from agt.ledger.tables import AdmittedTable
from agt_cli.start.settings import StartSettings

from .conftest import Agt

TRAIN = ("train", *LINEAR, "certificate=stability")
WEIGHTS = ("inputs=q.csv", "mechanism=release_weights", "total.delta=1e-5", "force=true")
NAMES = tuple(f"{number:016x}" for number in range(1, 9))


@pytest.fixture
def run(agt: Agt, home: Path) -> Path:
    """A run of a linear head, whose people have a ledger of eps = 1, and a file of queries."""
    Path("q.csv").write_text("x1,x2\n0.1,0.2\n")
    budget = ("total.eps=1", "total.delta=1e-5", "unit=one person")
    agt("ledger", "init", "people", f"run={home / 'linear'}", *budget, "-q").ended(0)
    return home / "linear"


def pay(agt: Agt, run: Path, eps: float) -> Path:
    given = ("predict", f"run={run}", "ledger=people", f"total.eps={eps}", *WEIGHTS, "--json")
    return Path(agt(*given).ended(0).json["run"])


def test_after_a_training_whose_ledger_is_spent_no_command_is_proposed_that_it_refuses(
    agt: Agt, run: Path
) -> None:
    before = agt(*TRAIN).ended(0)
    assert "agt predict run=" in before.err
    paid = pay(agt, run, 1.0)
    after = agt(*TRAIN).ended(0)
    assert "agt predict run=" not in after.err
    assert f"agt predict release={paid / 'release'} inputs=" in after.err


def test_a_spent_ledger_whose_labels_are_asked_for_proposes_none(agt: Agt, run: Path) -> None:
    """Of a model whose weights cannot be released."""
    ensemble = (*TRAIN, "ensemble.members=2")
    assert "mechanism=noisy_argmax" in agt(*ensemble).ended(0).err
    pay(agt, run, 1.0)
    assert "agt predict run=" not in agt(*ensemble).ended(0).err


def test_the_refusal_of_a_spent_ledger_says_what_answers_without_spending(
    agt: Agt, run: Path
) -> None:
    again = ("predict", f"run={run}", "ledger=people", "total.eps=0.5", *WEIGHTS)
    paid = pay(agt, run, 1.0)
    folder = str(paid / "release")
    agt(*again).ended(3, f"agt predict release={folder}")
    agt("predict", f"release={folder}", "inputs=q.csv", "-q").ended(0)
    os.rename(folder, "elsewhere")
    agt(*again).ended(3, "agt predict release=FOLDER")


LABELS = ("inputs=q.csv", "mechanism=randomized_response", "force=true")


def test_labels_that_close_a_ledger_to_weights_are_warned_of_before_they_are_paid(
    agt: Agt, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Exhausted("stopped at the debit")

    spend = ("predict", f"run={run}", "ledger=people", *LABELS)
    little = agt(*spend, "total.eps=0.05").ended(0)
    assert "takes most" not in little.err
    Path("q.csv").write_text("x1,x2\n0.3,0.2\n")
    with monkeypatch.context() as context:
        context.setattr(Ledger, "debit", refuse)
        agt(*spend, "total.eps=0.4").ended(3, "takes most", "no release with Gaussian noise")
    agt(*spend, "total.eps=0.4").ended(0, "takes most")
    show = agt("ledger", "show", "people", "--json").ended(0).json
    assert show["remaining"] == {"labels_eps": 0.55, "gaussian_eps": 0.0, "delta": 1e-5}
    refused = ("predict", f"run={run}", "ledger=people", "total.eps=0.01", *WEIGHTS)
    agt(*refused).ended(3, "labels by randomized_response still fit, with eps = 0.55")


def test_a_training_proposes_labels_where_only_these_fit_into_its_ledger(
    agt: Agt, run: Path
) -> None:
    spend = ("predict", f"run={run}", "ledger=people", *LABELS, "total.eps=0.4")
    agt(*spend).ended(0)
    labels = "mechanism=randomized_response total.eps=0.6 total.delta=0 "
    agt(*TRAIN).ended(0, labels, "no release with Gaussian noise")


def test_a_session_whose_labels_close_a_ledger_to_weights_says_so_first(
    agt: Agt, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    session = ("predict", f"run={run}", "ledger=people", "inputs=-", *LABELS[1:])
    agt(*session, "total.eps=0.4", "total.queries=2").ended(0, "takes most")


def test_the_next_command_of_a_certification_names_the_ledger(agt: Agt, run: Path) -> None:
    said = agt("certify", f"run={run}", "inputs=q.csv", "--json").ended(0).json
    report = (Path(said["run"]) / "report.md").read_text()
    assert "ledger=people inputs=FILE" in report


@pytest.mark.parametrize("command", ["certify", "plan"])
def test_after_a_command_whose_ledger_is_spent_the_weights_that_it_paid_for_are_proposed(
    agt: Agt, run: Path, command: str
) -> None:
    words = (command, f"run={run}", "--json")
    plan = ("eps=[1.0]", "queries=[10]", "mechanisms=[randomized_response]")
    if command == "plan":
        words = (*words, *plan)
    before = agt(*words).ended(0)
    paid = pay(agt, run, 1.0)
    after = agt(*words).ended(0)
    shown = [Path(said.json["run"], "report.md").read_text() for said in (before, after)]
    if command == "plan":
        shown = [before.err, after.err]
    assert "agt predict run=" in shown[0]
    assert "agt predict run=" not in shown[1]
    assert f"agt predict release={paid / 'release'} inputs=" in shown[1]


def test_the_next_command_of_a_certification_without_a_ledger_names_none(
    agt: Agt, home: Path
) -> None:
    Path("q.csv").write_text("x1,x2\n0.1,0.2\n")
    said = agt("certify", f"run={home / 'linear'}", "inputs=q.csv", "--json").ended(0).json
    assert "ledger=" not in (Path(said["run"]) / "report.md").read_text()


def test_ids_that_match_are_said_to_match_by_chance_before_anything_else(tmp_path: Path) -> None:
    mine = AdmittedTable("mine", "a" * 32, people=NAMES)
    yours = AdmittedTable("yours", "b" * 32, people=NAMES)
    with Ledger.create(tmp_path / "yours.ledger", people(), tables=[yours]) as ledger:
        path = ledger.path
    with pytest.raises(ConfigError, match=r"^The same ids.*by chance.*another_population=true"):
        check_no_other_ledger(tmp_path / "mine.ledger", mine)
    match = find_matching_table(path, mine)
    assert match is not None
    assert match.by_names


def test_a_match_of_data_is_not_said_to_be_chance(tmp_path: Path) -> None:
    table = AdmittedTable("yours", "b" * 32, people=NAMES)
    with Ledger.create(tmp_path / "yours.ledger", people(), tables=[table]) as ledger:
        path = ledger.path
    with pytest.raises(ConfigError, match=r"^the people of yours already have a ledger"):
        check_no_other_ledger(tmp_path / "mine.ledger", table)
    match = find_matching_table(path, table)
    assert match is not None
    assert not match.by_names


@pytest.mark.parametrize(
    ("answer", "counted"), [("none", "person"), ("x", "person"), (None, "row")]
)
def test_where_each_row_was_declared_another_person_people_are_counted(
    answer: str | None, counted: str
) -> None:
    assert StartSettings(file="t.csv", data_dir=Path("."), id=answer).unit_names.singular == counted
