"""What an account says of other runs that were trained on erased records: never that there is
none where nothing was searched.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from records import reseal

from agt.data.dataset import Dataset
from agt.errors import ConfigError
from agt_cli.cli import main
from agt_cli.report.opening import open_run
from agt_cli.runs.prepare import read_settings, stored_network
from agt_cli.unlearn.account import ErasureReport, read_account
from agt_cli.unlearn.account_md import account_lines, account_markdown, summary
from agt_cli.unlearn.account_tasks import open_tasks
from agt_cli.unlearn.hash_key import KEY_FILE
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log
from agt_cli.unlearn.name_columns import NameColumns

SETTINGS = (
    "dataset=table",
    "dataset.path=t.csv",
    "dataset.label=y",
    "dataset.classes=[0,1]",
    "+dataset.numeric={a:[-3,3],b:[-3,3]}",
    "model=linear",
    "training.epochs=1",
    "compute.kernel=reference",
    "kgrid.max=2",
    "-q",
)
PEOPLE = ("dataset.id=id", "dataset.unit=person", "relation.unit_rows=3")
WAITING = (
    *PEOPLE,
    "dataset.id_permanent=true",
    "dataset.declared_size=60",
    "training.chosen_on=public",
)
LATER = "outputs/unlearn/later"


def write_table(without: Sequence[str] = ()) -> pd.DataFrame:
    chance = np.random.default_rng(0)
    names = {
        "id": [f"rec{row:03}" for row in range(90)],
        "person": [f"person{row // 3:02}" for row in range(90)],
        "number": [f"n{row:03}" for row in range(90)],
    }
    numbers = {name: chance.normal(size=90) for name in "ab"} | {"y": chance.integers(0, 2, 90)}
    table = pd.DataFrame(names | numbers)
    table[~table.person.isin(without)].to_csv("t.csv", index=False)
    return table


def train(folder: str, *more: str) -> Path:
    assert main(["train", *SETTINGS, *(more or PEOPLE), f"hydra.run.dir={folder}"]) == 0
    return Path(folder)


def unlearn(run: Path, folder: str, *more: str) -> ErasureReport:
    assert main(["unlearn", f"run={run}", f"hydra.run.dir={folder}", "-q", *more]) == 0
    return read_account(Path(folder, "account.json").read_bytes())


def data_of(run: Path) -> Dataset:
    opened = open_run(run, "train")
    return read_settings(opened.config, stored_network(opened)).source.load()


def people_of(run: Path) -> list[str]:
    """Return the people with training records in a run's data, in order."""
    return sorted({*data_of(run).train.units.tolist()})


def codes(account: ErasureReport) -> set[str]:
    assert account.sweep is not None
    return {remark.code for place in account.sweep.places for remark in place.remarks}


def counts(account: ErasureReport) -> tuple[int, int | None, int]:
    """Return the runs, those searched for everything, and the traces."""
    assert account.sweep is not None
    (place,) = account.sweep.places
    return place.runs, place.searched, place.found


def says_none(account: ErasureReport) -> bool:
    text = "\n".join([*account_lines(account), account_markdown(account)])
    return "none found in" in text or "no_trace_in_runs" in codes(account)


@pytest.fixture
def erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two runs on one table; two people were erased from the first, and then their rows deleted."""
    monkeypatch.chdir(tmp_path)
    write_table()
    first = train("outputs/train/a")
    train("outputs/train/b")
    names = people_of(first)[:2]
    Path("ids.txt").write_text("\n".join(names))
    account = unlearn(first, "outputs/unlearn/first", "ids=ids.txt")
    assert counts(account) == (1, 1, 6)
    write_table(without=names)
    return names


A = Path("outputs/train/a")
B = Path("outputs/train/b")


def forget_search(run: Path, instead: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Make the request log what an earlier version wrote, which kept nothing of the search."""
    log = Log()
    for entry in Log.read((run / REQUEST_LOG_FILE).read_bytes()).entries:
        facts = {name: entry.facts[name] for name in ("removal", "training", "untrained")}
        facts |= instead
        log = log.append(replace(entry, facts=facts))
    (run / REQUEST_LOG_FILE).write_bytes(log.content)
    key = (run / KEY_FILE).read_bytes()
    (run / KEY_FILE).unlink()  # no manifest lists it
    reseal(run)
    (run / KEY_FILE).write_bytes(key)


def test_an_account_written_again_keeps_the_traces_after_the_rows_are_deleted(
    erased: list[str],
) -> None:
    account = unlearn(A, LATER)
    assert counts(account) == (1, 1, 6)
    assert "trained_on_erased" in codes(account)
    assert not says_none(account)


def test_without_rows_and_without_an_earlier_search_nothing_is_called_searched(
    erased: list[str],
) -> None:
    forget_search(A)
    account = unlearn(A, LATER)
    assert counts(account) == (1, 0, 0)
    assert codes(account) == {"searched_in_part"}
    assert not says_none(account)
    said = "\n".join(account_lines(account))
    assert "NOT SEARCHED" in said
    assert "**not searched**" in account_markdown(account)
    assert any("NOT SEARCHED" in task for task in open_tasks(account, ["outputs"]))
    assert main(["verify", LATER, "-q"]) == 0


def test_a_person_is_searched_for_by_name_while_one_of_their_rows_is_there(
    erased: list[str],
) -> None:
    forget_search(A)
    table = write_table(without=erased)
    left = table[table.person.isin(erased)].groupby("person").tail(1)
    pd.concat([table[~table.person.isin(erased)], left]).to_csv("t.csv", index=False)
    account = unlearn(A, LATER)
    assert counts(account) == (1, 1, 6)
    assert codes(account) == {"trained_on_erased"}


def test_traces_are_cleared_when_the_other_run_was_erased_from(erased: list[str]) -> None:
    unlearn(B, "outputs/unlearn/second", "ids=ids.txt")
    account = unlearn(A, LATER)
    assert counts(account) == (1, 1, 0)
    assert codes(account) == {"no_trace_in_runs"}


def test_an_erasure_of_others_in_the_other_run_clears_nothing(erased: list[str]) -> None:
    write_table()
    Path("others.txt").write_text(people_of(B)[5])
    unlearn(B, "outputs/unlearn/second", "ids=others.txt")
    write_table(without=erased)
    assert counts(unlearn(A, LATER)) == (1, 1, 6)


def test_a_request_that_waits_in_the_other_run_clears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    for folder in (A, B):
        train(str(folder), *WAITING)
    Path("ids.txt").write_text(people_of(A)[0])
    unlearn(A, "outputs/unlearn/first", "ids=ids.txt")
    unlearn(B, "outputs/unlearn/waiting", "ids=ids.txt", "method=certificate")
    write_table(without=[people_of(A)[0]])
    assert counts(unlearn(A, LATER)) == (1, 1, 3)


def test_a_run_that_is_gone_is_not_called_searched(erased: list[str]) -> None:
    B.rename("moved")
    account = unlearn(A, LATER)
    assert counts(account) == (1, 0, 0)
    assert codes(account) == {"runs_gone"}
    assert not says_none(account)
    Path("moved").rename("outputs/train/under_another_name")
    assert counts(unlearn(A, "outputs/unlearn/again")) == (1, 1, 6)


def test_a_run_that_was_trained_after_the_erasure_is_not_called_searched(
    erased: list[str],
) -> None:
    """On an older copy of the table, say; the account cannot know."""
    rows = Path("t.csv").read_bytes()
    write_table()
    train("outputs/train/c")
    Path("t.csv").write_bytes(rows)
    account = unlearn(A, LATER)
    assert counts(account) == (2, 1, 6)
    assert {"trained_on_erased", "searched_in_part"} <= codes(account)


def linked(run: Path) -> None:
    run.rename("elsewhere")
    run.symlink_to(Path("elsewhere").resolve(), target_is_directory=True)


def linked_above(run: Path) -> None:
    run.parent.rename("elsewhere")
    run.parent.symlink_to(Path("elsewhere").resolve(), target_is_directory=True)


@pytest.mark.parametrize("move", [linked, linked_above])
def test_runs_behind_links_are_searched(erased: list[str], move: Callable[[Path], None]) -> None:
    move(B)
    assert counts(unlearn(A, LATER)) == (1, 1, 6)


def test_a_link_that_leads_back_is_followed_once(erased: list[str]) -> None:
    Path("outputs/train/loop").symlink_to(Path("outputs").resolve(), target_is_directory=True)
    assert counts(unlearn(A, LATER)) == (1, 1, 6)


def empty_index(run: Path) -> None:
    head, _, _ = (run / "records.bin").read_bytes().partition(b"\n")
    node = json.loads(head) | {"records": 0}
    (run / "records.bin").write_bytes(json.dumps(node).encode() + b"\n")


def index_of_another_run(run: Path) -> None:
    shutil.copy(A / "records.bin", run / "records.bin")


@pytest.mark.parametrize(
    ("damage", "code"),
    [  # the ids of these cases are killers of mutants
        (empty_index, "index_not_readable"),
        (index_of_another_run, "index_not_readable"),
        (lambda run: (run / "manifest.json").unlink(), "index_not_readable"),
        (lambda run: (run / "records.bin").unlink(), "index_missing"),
    ],
)
def test_a_run_that_cannot_be_asked_is_not_called_searched(
    erased: list[str], damage: Callable[[Path], Any], code: str
) -> None:
    damage(B)
    account = unlearn(A, LATER)
    assert counts(account)[1:] == (0, 0)
    assert code in codes(account)
    assert not says_none(account)


def test_a_run_without_its_key_is_asked_by_the_hashes_that_were_kept(erased: list[str]) -> None:
    (B / "unlearning/key").unlink()
    assert counts(unlearn(A, LATER)) == (1, 1, 6)


def test_a_run_without_its_key_is_not_called_searched(erased: list[str]) -> None:
    (B / "unlearning/key").unlink()
    forget_search(A)
    account = unlearn(A, LATER)
    assert counts(account) == (1, 0, 0)
    assert codes(account) == {"key_missing"}


def test_a_run_that_names_its_records_by_other_columns_is_not_called_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A), "dataset.id=id")
    train(str(B), "dataset.id=number")
    Path("ids.txt").write_text(people_of(A)[0])
    account = unlearn(A, LATER, "ids=ids.txt")
    assert counts(account) == (1, 0, 0)
    assert codes(account) == {"named_by_other_columns"}
    assert any("dataset.id" in task for task in open_tasks(account, ["outputs"]))


def test_a_run_on_another_table_with_other_ids_is_named_with_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = write_table()
    table.assign(a=table.a + 1).to_csv("pupils.csv", index=False)
    train(str(A), "dataset.id=id")
    train(str(B), "dataset.id=number", "dataset.path=pupils.csv", "dataset.name=pupils")
    Path("ids.txt").write_text(people_of(A)[0])
    account = unlearn(A, LATER, "ids=ids.txt")
    assert counts(account) == (1, 0, 0)
    assert codes(account) == {"of_other_tables"}
    (task,) = [task for task in open_tasks(account, ["outputs"]) if "pupils" in task]
    assert "train/b" in task
    assert not any("NOT SEARCHED" in task for task in open_tasks(account, ["outputs"]))
    texts = {row.heading: row.text for row in summary(account)}
    assert "1 of them are of other tables" in texts["traces"]
    assert main(["verify", LATER]) == 0


def test_a_request_for_test_records_alone_is_recorded_and_erases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A))
    tested = {*data_of(A).test.units.tolist()} - {*people_of(A)}
    Path("ids.txt").write_text(min(tested))
    digest = open_run(A, "train").digest
    capsys.readouterr()
    assert main(["unlearn", f"run={A}", "ids=ids.txt", "--json", f"hydra.run.dir={LATER}"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["metrics"]["people_with_test_records_only"] == 1
    assert open_run(A, "train").digest == said["digest"] == digest
    assert main(["verify", LATER]) == 0
    page = (Path(LATER) / "report.md").read_text(encoding="utf-8")
    assert "Nothing to erase from the model" in page


def test_a_run_that_names_records_by_content_is_to_be_trained_again_with_the_columns_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of ids finds nobody there, so no advice may end with erasing by it."""
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A))
    train(str(B), "dataset.id=null")
    Path("ids.txt").write_text(people_of(A)[0])
    account = unlearn(A, LATER, "ids=ids.txt")
    assert codes(account) == {"named_by_content"}
    (task, *_) = open_tasks(account, ["outputs"])
    assert "dataset.id=id dataset.unit=person" in task
    assert "delete outputs/train/b" in task
    assert not any("NOT SEARCHED" in task for task in open_tasks(account, ["outputs"]))
    shutil.rmtree(B)
    train(str(B))
    unlearn(B, "outputs/unlearn/b", "ids=ids.txt")
    assert counts(unlearn(A, "outputs/unlearn/again")) == (1, 1, 0)


def test_ids_of_another_form_are_refused_where_records_are_named_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A), "dataset.id=null")
    Path("ids.txt").write_text("person00\nperson01\n")
    assert main(["unlearn", f"run={A}", "ids=ids.txt", "unknown=ignore"]) == 2
    assert "dataset.id=COLUMN" in capsys.readouterr().err
    Path("ids.txt").write_text("0" * 32)  # a hash of somebody who is not there
    assert main(["unlearn", f"run={A}", "ids=ids.txt", "unknown=ignore"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "nothing to erase" in said
    assert "no ids of a column" in said, "such an id may look like a hash of content"


def test_names_are_shared_only_by_the_same_column() -> None:
    columns = NameColumns("id", "person")
    assert columns.shares("id", NameColumns("id", None))
    assert columns.shares("id", NameColumns("person", "id"))
    assert columns.shares("unit", NameColumns("person", None))
    for other in (NameColumns(None, None), NameColumns("number", "client")):
        assert not columns.shares("id", other)
        assert not columns.shares("unit", other)
    by_content = NameColumns(None, None, "a, b")
    assert by_content.shares("id", NameColumns(None, None, "a, b"))
    assert not by_content.shares("id", NameColumns(None, None, "a"))
    assert not by_content.shares("id", columns)
    assert not by_content.shares("unit", columns)


def test_rows_deleted_before_the_request_are_searched_for_by_the_person_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A))
    train(str(B))
    train("outputs/train/by_id", "dataset.id=id")
    person = people_of(A)[0]
    Path("ids.txt").write_text(person)
    write_table(without=[person])
    account = unlearn(A, LATER, "ids=ids.txt")
    assert counts(account) == (2, 1, 3)
    assert codes(account) == {"trained_on_erased", "searched_in_part"}


def test_people_with_test_records_only_are_searched_for_as_long_as_they_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = write_table()
    train(str(A))
    train(str(B), *PEOPLE, "dataset.split_salt=another")
    only_test = sorted(set(table.person) - set(people_of(A)))
    asked = next(name for name in only_test if name in people_of(B))
    Path("ids.txt").write_text("\n".join([people_of(A)[0], asked]))
    first = unlearn(A, "outputs/unlearn/first", "ids=ids.txt")
    assert first.asked.people_requested == 2
    assert first.asked.people_with_test_records_only == 1
    assert (first.asked.training_records, first.asked.test_records) == (3, 3)
    assert counts(first)[2] >= 3
    assert counts(unlearn(A, LATER)) == counts(first)
    forget_search(A)
    account = unlearn(A, "outputs/unlearn/forgotten")
    assert counts(account)[1] == 0
    assert "searched_in_part" in codes(account)


def test_the_second_of_two_erasures_is_about_its_own_records(erased: list[str]) -> None:
    unlearn(B, "outputs/unlearn/b", "ids=ids.txt")
    other = people_of(A)[4]
    Path("more.txt").write_text(other)
    unlearn(A, "outputs/unlearn/second", "ids=more.txt")
    write_table(without=[*erased, other])
    assert counts(unlearn(A, LATER)) == (1, 1, 3)


def test_traces_of_an_earlier_erasure_are_not_forgotten_by_the_account_of_a_later_one(
    erased: list[str],
) -> None:
    write_table()
    other = next(name for name in people_of(A) if name not in erased)
    Path("more.txt").write_text(other)
    unlearn(B, "outputs/unlearn/b", "ids=more.txt")
    account = unlearn(A, LATER, "ids=more.txt")
    assert counts(account) == (1, 1, 6)
    (task,) = [task for task in open_tasks(account, ["outputs"]) if "outputs/train/b" in task]
    assert "ids of earlier requests" in task
    unlearn(B, "outputs/unlearn/c", "ids=ids.txt")
    assert counts(unlearn(A, "outputs/unlearn/again")) == (1, 1, 0)


def test_a_number_of_traces_that_was_changed_alone_is_refused(erased: list[str]) -> None:
    node = json.loads(Path("outputs/unlearn/first/account.json").read_text())
    node["sweep"]["places"][0]["found"] = 0
    with pytest.raises(ConfigError, match="traces"):
        read_account(json.dumps(node).encode())


def test_a_search_in_the_log_that_is_none_is_refused(erased: list[str]) -> None:
    forget_search(A, {"searched_runs": {"0" * 32: {"records": ["no hash"]}}})
    assert main(["unlearn", f"run={A}", "-q"]) == 2


def test_requests_that_waited_keep_what_was_found_when_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A), *WAITING)
    train(str(B))
    person = people_of(A)[0]
    Path("ids.txt").write_text(person)
    unlearn(A, "outputs/unlearn/waiting", "ids=ids.txt", "method=certificate")
    write_table(without=[person])
    assert counts(unlearn(A, LATER)) == (1, 1, 3)


def test_a_run_that_was_trained_while_requests_waited_is_missed_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A), *WAITING)
    Path("ids.txt").write_text(people_of(A)[0])
    unlearn(A, "outputs/unlearn/waiting", "ids=ids.txt", "method=certificate")
    train(str(B))
    assert counts(unlearn(A, "outputs/unlearn/carried_out")) == (1, 1, 3)
    B.rename("moved")
    account = unlearn(A, LATER)
    assert counts(account) == (1, 0, 0)
    assert codes(account) == {"runs_gone"}


def test_a_copy_of_the_run_from_before_is_found(erased: list[str], tmp_path: Path) -> None:
    shutil.copytree(B, "outputs/train/copy")
    assert counts(unlearn(A, LATER)) == (2, 2, 12)


STUMP = """
def stump(x, y):
    return lambda queries: (queries[:, 0] > 0) * 1
"""


def test_a_run_with_a_learner_of_ones_own_is_not_sent_to_agt_unlearn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_table()
    Path("stump_of_test.py").write_text(STUMP)
    train(str(A))
    votes = ("certificate=votes", "ensemble.members=3")
    own = "certificate.learner._target_=stump_of_test.stump"
    settings = [word for word in SETTINGS if not word.startswith(("model", "training"))]
    line = ["train", *settings, *PEOPLE, *votes, own, f"hydra.run.dir={B}"]
    assert main(line) == 0
    Path("ids.txt").write_text(people_of(A)[0])
    account = unlearn(A, LATER, "ids=ids.txt")
    assert counts(account) == (1, 1, 3)
    assert codes(account) == {"learner_trained_on_erased"}
    tasks = open_tasks(account, ["outputs"])
    (again,) = [task for task in tasks if "write this account again" in task]
    others = next(index for index, task in enumerate(tasks) if "outputs/train/b" in task)
    rows = next(index for index, task in enumerate(tasks) if "delete the rows" in task)
    assert others < tasks.index(again) < rows, "the rows are needed to ask the other runs again"
    assert "the path of a, without ids" in again
    assert not any("agt unlearn run=outputs/train/b" in task for task in tasks)
    assert any("outputs/train/b" in task and "delete" in task for task in tasks)


def test_people_who_are_in_no_run_are_an_answer_where_the_owner_says_so(
    erased: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = (B / "manifest.json").read_bytes()
    Path("strangers.txt").write_text("nobody\nnothing")
    line = ["unlearn", f"run={B}", "ids=strangers.txt", "-q", "hydra.run.dir=outputs/unlearn/no"]
    write_table()
    assert main(line) == 2
    assert "unknown=ignore" in capsys.readouterr().err
    Path("outputs/unlearn/no").mkdir()
    Path("outputs/unlearn/no/mine.txt").write_text("kept")
    assert main([*line, "dry_run=true"]) == 2
    left = [path.name for path in Path("outputs/unlearn/no").iterdir()]
    assert left == ["mine.txt"], "a refused request leaves nothing that looks like a record"
    shutil.rmtree("outputs/unlearn/no")
    assert main([*line, "unknown=ignore"]) == 0
    assert (B / "manifest.json").read_bytes() == before
    assert not Path("outputs/unlearn/no/account.json").exists()
    assert main(["verify", "outputs/unlearn/no", "-q"]) == 0
    for mistake in (";".join(erased), "rec000"):  # several ids in a line, and the id of a record
        Path("mistake.txt").write_text(mistake)
        line_of_mistake = ["unlearn", f"run={B}", "ids=mistake.txt", "unknown=ignore", "-q"]
        assert main(line_of_mistake) == 2, mistake
    Path("some.txt").write_text("\n".join(["nobody", *erased]))
    account = unlearn(B, LATER, "ids=some.txt", "unknown=ignore")
    assert (account.asked.people_requested, account.asked.ids_not_in_data) == (2, 1)
    assert main(["verify", LATER, "-q"]) == 0


def test_several_runs_are_erased_from_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A))
    train(str(B))
    Path("ids.txt").write_text(people_of(A)[0])
    assert main(["unlearn", "-m", f"run={A},{B}", "ids=ids.txt", "sweep=both", "-q"]) == 0
    # Folders of jobs are named by hashes, so only their times tell that of the first job.
    first = sorted(Path("outputs/unlearn").glob("both*/*/account.json"), key=modified)
    assert [asks_for_another_account(path) for path in first] == [True, False]
    write_table(without=[people_of(A)[0]])
    assert main(["unlearn", "-m", f"run={A},{B}", "sweep=again", "-q"]) == 0
    accounts = sorted(Path("outputs/unlearn").glob("again*/*/account.json"))
    assert [counts(read_account(path.read_bytes())) for path in accounts] == [(1, 1, 0)] * 2
    assert not any(asks_for_another_account(path) for path in accounts)


def modified(path: Path) -> int:
    """Return the time of a file's last change, in nanoseconds."""
    return path.stat().st_mtime_ns


def asks_for_another_account(path: Path) -> bool:
    """Return whether what is left to do names writing this account again."""
    tasks = open_tasks(read_account(path.read_bytes()), ["outputs"])
    return any("write this account again" in task for task in tasks)


def test_deleted_rows_are_said_to_be_expected_and_declarations_are_listed_once(
    erased: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    unlearn(A, LATER)
    capsys.readouterr()
    assert main(["verify", LATER, "-q"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "expected after an erasure" in said
    assert said.index("not checked: ") < said.index("what depends on what")
    assert said.index("checks check") < said.index("what depends on what")
    assert ": not checked ├" not in said


def put_back(run: Path, backup: str) -> None:
    """Leave beside a run a copy of its folder from before."""
    shutil.copytree(backup, run.with_name("put_back"))


def test_an_earlier_state_that_is_put_back_is_not_called_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A))
    train(str(B))
    shutil.copytree(B, "backup")
    person = people_of(A)[0]
    Path("ids.txt").write_text(person)
    unlearn(B, "outputs/unlearn/b", "ids=ids.txt")
    assert counts(unlearn(A, "outputs/unlearn/a", "ids=ids.txt")) == (1, 1, 0)
    put_back(B, "backup")
    assert counts(unlearn(A, "outputs/unlearn/with_rows")) == (2, 2, 3)
    write_table(without=[person])
    account = unlearn(A, LATER)
    assert counts(account) == (2, 1, 0)
    assert codes(account) == {"no_trace_in_runs", "searched_in_part"}
    assert open_tasks(account, ["outputs"])


def test_an_earlier_state_that_others_were_erased_from_is_not_called_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A))
    train(str(B))
    shutil.copytree(B, "backup")
    people = people_of(A)
    Path("ids.txt").write_text(people[0])
    Path("more.txt").write_text(people[1])
    unlearn(B, "outputs/unlearn/b", "ids=ids.txt")
    unlearn(A, "outputs/unlearn/a", "ids=ids.txt")
    elsewhere = "output_dir=elsewhere"
    unlearn(Path("backup"), "elsewhere/unlearn/more", "ids=more.txt", elsewhere)
    put_back(B, "backup")
    write_table(without=people[:2])
    account = unlearn(A, LATER)
    assert counts(account) == (2, 1, 0)
    assert "searched_in_part" in codes(account)


def test_a_later_state_of_a_run_that_was_asked_stays_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A))
    train(str(B))
    people = people_of(A)
    Path("ids.txt").write_text(people[0])
    Path("more.txt").write_text(people[1])
    unlearn(A, "outputs/unlearn/a", "ids=ids.txt")
    unlearn(B, "outputs/unlearn/b", "ids=ids.txt")
    unlearn(B, "outputs/unlearn/more", "ids=more.txt")
    write_table(without=people[:2])
    assert counts(unlearn(A, LATER)) == (1, 1, 0)


def test_ids_by_content_of_other_columns_are_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A), "dataset.id=null")
    train(str(B), "dataset.id=null", "~dataset.numeric", "+dataset.numeric={a:[-3,3]}")
    train("outputs/train/c", "dataset.id=null", "dataset.split_key=another")
    Path("ids.txt").write_text(people_of(A)[0])
    account = unlearn(A, LATER, "ids=ids.txt")
    runs, searched, _ = counts(account)
    assert (runs, searched) == (2, 1)
    assert "named_by_content" in codes(account)


def test_a_run_that_names_no_people_is_asked_for_test_records_and_is_not_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have more records of a person than the run that was erased from."""
    monkeypatch.chdir(tmp_path)
    table = write_table()
    part = np.where(table.id.isin(["rec002", "rec011", "rec020", "rec029"]), "test", "train")
    other_part = np.where(table.id.isin(["rec009", "rec012", "rec022", "rec030"]), "test", "train")
    table.assign(part=part, other_part=other_part).to_csv("t.csv", index=False)
    train(str(A), *PEOPLE, "dataset.split=part")
    train(str(B), "dataset.id=id", "dataset.split=other_part")
    Path("ids.txt").write_text("person00")
    for account in (unlearn(A, "outputs/unlearn/first", "ids=ids.txt"), unlearn(A, LATER)):
        assert counts(account) == (1, 0, 3)
        assert codes(account) == {"trained_on_erased", "searched_in_part"}
        assert not says_none(account)


@pytest.mark.parametrize("by", ["unit", "id"])
def test_ids_that_this_run_does_not_have_are_searched_for_in_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.chdir(tmp_path)
    table = write_table()
    train(str(B))
    strangers = people_of(B)[:2]
    write_table(without=strangers)
    train(str(A))
    person = people_of(A)[0]
    names = [person, *strangers]
    if by == "id":
        names = table.id[table.person.isin(names)].tolist()
    Path("ids.txt").write_text("\n".join([*names, "nobody"]))
    line = ("ids=ids.txt", f"by={by}", "unknown=ignore")
    account = unlearn(A, "outputs/unlearn/first", *line)
    unknown = account.asked.ids_not_in_data
    assert unknown == (3 if by == "unit" else 7)
    assert counts(account) == (1, 1, 9)
    assert counts(unlearn(A, LATER)) == (1, 1, 9)
    forget_search(A, {"unknown": unknown})
    account = unlearn(A, "outputs/unlearn/forgotten")
    assert counts(account) == (1, 0, 3)
    assert "searched_in_part" in codes(account)


def test_a_newer_run_with_records_of_an_earlier_erasure_is_named_while_their_rows_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    train(str(A))
    first, second = people_of(A)[:2]
    Path("first.txt").write_text(first)
    Path("second.txt").write_text(second)
    unlearn(A, "outputs/unlearn/first", "ids=first.txt")
    train(str(B))
    unlearn(B, "outputs/unlearn/b", "ids=second.txt")
    account = unlearn(A, "outputs/unlearn/second", "ids=second.txt")
    assert counts(account) == (1, 1, 3)
    assert counts(unlearn(A, LATER)) == (1, 1, 3)


@pytest.mark.parametrize(
    "left", ["model.safetensors", "features.safetensors", "records.bin.part17-1"]
)
def test_a_folder_in_which_a_training_left_its_files_counts_as_stopped(
    erased: list[str], left: str
) -> None:
    folder = Path("outputs/train/stopped")
    folder.mkdir()
    status = {"command": "train", "state": "failed"}
    (folder / "status.json").write_text(json.dumps(status))
    (folder / left).write_bytes(b"numbers")
    account = unlearn(A, LATER)
    assert counts(account) == (2, 1, 7)
    assert "training_unfinished" in codes(account)
    assert any(
        "outputs/train/stopped" in task and "delete" in task
        for task in open_tasks(account, ["outputs"])
    )
