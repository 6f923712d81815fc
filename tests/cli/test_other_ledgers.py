"""What else lies in ./ledgers: files that cannot be opened, other programs', and another ledger
in the place of one.
"""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledgers import people
from records import reseal

from agt.ledger.ledger import Ledger
from agt.ledger.ledger_list import find_ledgers_elsewhere
from agt.ledger.tables import AdmittedTable

from .conftest import Agt, Said
from .test_ledger import BUDGET

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

OTHER = Path("ledgers/other.ledger")
LIST = Path("state/agt/ledgers")


def sql(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(statement)
    connection.close()


def overwrite(path: Path, start: int, content: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + content + whole[start + len(content) :])


def instead(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "a hard link": lambda path: os.link(path, "backup"),
    "a newer format": lambda path: sql(path, "PRAGMA user_version=2"),
    "an empty file": lambda path: path.write_bytes(b""),
    "no magic": lambda path: overwrite(path, 0, bytes(16)),
    "another application id": lambda path: overwrite(path, 68, b"\0\0\0\0"),
    "a cut header": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "the first letters": lambda path: path.write_bytes(b"SQLite form"),
    "a cut file": lambda path: path.write_bytes(path.read_bytes()[:9000]),
    "random bytes": lambda path: path.write_bytes(bytes(range(256)) * 4),
    "a trigger more": lambda path: sql(path, "DROP TRIGGER entries_stay"),
    "a link to nowhere": lambda path: instead(path, lambda p: p.symlink_to("gone")),
    "a link to itself": lambda path: instead(path, lambda p: p.symlink_to(p.name)),
    "a folder": lambda path: instead(path, Path.mkdir),
    "a pipe": lambda path: instead(path, os.mkfifo),
    "a log that is a device": lambda path: Path(f"{path}-wal").symlink_to("/dev/zero"),
    "an index that is a pipe": lambda path: os.mkfifo(f"{path}-shm"),
}


def predict(agt: Agt, run: Path, *more: str) -> Said:
    return agt("predict", f"run={run}", "inputs=q.csv", "mechanism.eps=0.01", "force=true", *more)


@pytest.fixture
def trained(agt: Agt, home: Path) -> Path:
    """A run that may be released from, which no command here changes, and a file of two queries."""
    Path("q.csv").write_text("x1,x2\n0.1,0.2\n-0.3,0.4\n")
    return home / "box"


@pytest.fixture
def other(agt: Agt, trained: Path) -> Path:
    """A ledger of the run's people."""
    agt("ledger", "init", OTHER.stem, f"run={trained}", *BUDGET, "-q").ended(0)
    return trained


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_ledger_that_cannot_be_opened_is_not_taken_for_none(
    agt: Agt, other: Path, kind: str
) -> None:
    UNREADABLE[kind](OTHER)
    line = f"unreadable={OTHER}"
    predict(agt, other).ended(3, line, "ledger=none")
    init = ("ledger", "init", "people", f"run={other}", *BUDGET)
    agt(*init).ended(3, line)
    assert not Path("ledgers/people.ledger").exists()
    agt(*init, line).ended(0)
    said = predict(agt, other, "ledger=people", "--json").ended(0).json
    (declared,) = account_of(Path(said["run"]))["ledger"]["declared"]
    assert (declared["entry"], declared["file"]) == (2, "other.ledger")


def test_a_claim_that_no_ledger_pays_for_says_that_others_could_not_be_opened(
    agt: Agt, other: Path
) -> None:
    UNREADABLE["random bytes"](OTHER)
    agt("ledger", "init", "people", f"run={other}", *BUDGET, f"unreadable={OTHER}").ended(0)
    said = predict(agt, other, "ledger=none", "--json").ended(0).json
    claim = json.loads((Path(said["run"]) / "claim.json").read_text())
    assert claim["uncounted"]["unopened"] is True


def test_a_declaration_is_of_that_very_file(agt: Agt, other: Path) -> None:
    agt("ledger", "init", "people", "unit=y", *BUDGET).ended(0)
    OTHER.write_bytes(b"")
    admit = ("ledger", "admit", "people", f"run={other}", "unit=y")
    agt(*admit).ended(3, f"unreadable={OTHER}")
    agt("ledger", "admit", "people", f"unreadable={OTHER}").ended(0)
    agt(*admit).ended(0)
    for content in (b"\0", bytes(5000)):
        OTHER.write_bytes(content)
        predict(agt, other, "ledger=people").ended(
            3, "agt ledger admit NAME unreadable=ledgers/other.ledger"
        )
    OTHER.unlink()
    OTHER.mkdir()
    predict(agt, other, "ledger=people").ended(3)
    agt("ledger", "verify", "people").ended(0)


def test_several_files_are_declared_at_once(agt: Agt, trained: Path) -> None:
    Path("ledgers").mkdir()
    for name in ("a b", "c"):
        Path(f"ledgers/{name}.ledger").touch()
    files = "unreadable=['ledgers/a b.ledger', ledgers/c.ledger]"
    init = ("ledger", "init", "people", f"run={trained}", *BUDGET, files, "--json")
    words = agt(*init).ended(0).json["words"]
    for number, file in ((2, "a b.ledger"), (3, "c.ledger")):
        assert any(f"entry {number} " in line and file in line for line in words)


@pytest.mark.parametrize("kind", ["text", "another program's"])
def test_what_is_surely_another_program_s_is_named_once_and_skipped(
    agt: Agt, trained: Path, kind: str
) -> None:
    """The ledger program writes journals of this name as text."""
    Path("ledgers").mkdir()
    if kind == "text":
        OTHER.write_bytes("2026/01/01 Groceries\n  Expenses:Füchse  10 €\n".encode())
    else:
        sql(OTHER, "CREATE TABLE entries (x); PRAGMA application_id=7")
    before = OTHER.read_bytes()
    for said in (predict(agt, trained), agt("ledger", "init", "people", f"run={trained}", *BUDGET)):
        assert (said.code, said.err.count("other.ledger is not a ledger but ")) == (0, 1), said.err
    assert OTHER.read_bytes() == before


@pytest.mark.parametrize(
    "make", [lambda path: path.symlink_to("/nowhere/ledgers"), lambda path: path.touch()]
)
def test_a_folder_of_ledgers_that_cannot_be_listed_is_not_taken_for_none(
    agt: Agt, trained: Path, make: Callable[[Path], object]
) -> None:
    """Its disk is not there."""
    make(Path("ledgers"))
    predict(agt, trained).ended(3, "ledgers: ", "ledger=none")
    predict(agt, trained, "ledger=none").ended(0)


# -- another ledger in the place of one


@pytest.fixture
def listed(agt: Agt, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger that was spent from, in a list of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    agt("ledger", "init", "people", f"run={trained}", *BUDGET, "-q").ended(0)
    predict(agt, trained, "ledger=people").ended(0)
    return trained


def account_of(run: Path) -> dict[str, Any]:
    """What a release's claim says of the ledger that paid for it."""
    account: dict[str, Any] = json.loads((run / "claim.json").read_text())["account"]
    return account


def first_entry(path: Path = Path("ledgers/people.ledger")) -> str:
    with Ledger.open(path, writing=False) as ledger:
        return ledger.book.first_entry


def test_a_ledger_that_is_deleted_and_made_again_is_another_one(agt: Agt, listed: Path) -> None:
    first = first_entry()
    Path("ledgers/people.ledger").unlink()
    init = ("ledger", "init", "people", f"run={listed}", *BUDGET)
    agt(*init).ended(3, f"init replaces={first}")
    assert not os.listdir("ledgers")
    agt(*init, f"replaces={'0' * 16}").ended(3)
    made = agt(*init, f"replaces={first}", "--json").ended(0).json
    assert first in str(made["words"])
    said = predict(agt, listed, "ledger=people", "hydra.run.dir=paid", "--json").ended(0).json
    assert first in str(said["words"])
    account = account_of(Path("paid"))
    assert account["first_entry"] == first_entry() != first
    assert first in str(account["ledger"]["declared"])
    agt("ledger", "verify", "people").ended(0)
    agt("verify", "paid").ended(0)


def test_a_ledger_that_was_put_in_the_place_of_another_is_another_one(
    agt: Agt, listed: Path
) -> None:
    people = Path("ledgers/people.ledger")
    first = first_entry()
    agt("ledger", "init", "away/new.ledger", f"run={listed}", *BUDGET, "-q").ended(0)
    shutil.copy("away/new.ledger", people)
    predict(agt, listed, "ledger=people").ended(3, f"admit replaces={first}")
    agt("ledger", "show", "people").ended(3, first)
    agt("ledger", "verify", "people").ended(3, first)
    more = (f"data={'e' * 32}", "table=more", "unit=one record")
    agt("ledger", "admit", "people", *more).ended(3, first)
    checks = agt("verify", str(people), "--json").ended(3).json["checks"]
    assert [c["check"] for c in checks if c["state"] == "PROBLEM"] == ["first entry"]
    with Ledger.open(people, writing=False) as ledger:
        assert not ledger.book.debits, "nothing was spent"
    agt("ledger", "admit", "people", f"replaces={first}").ended(0)
    predict(agt, listed, "ledger=people").ended(0)
    agt("verify", str(people)).ended(0)
    agt("ledger", "init", "people", "unit=y", *BUDGET).ended(2, str(people))


def test_a_ledger_is_listed_before_it_pays(agt: Agt, listed: Path) -> None:
    """As a kill between its making and its listing leaves it; a line that a power cut tore is
    left out.
    """
    place = LIST.read_text()
    for left in ("", place[:-9], '{"/x": "'):
        LIST.write_text(left)
        predict(agt, listed, "ledger=people").ended(0)
        assert first_entry() in LIST.read_text()
        Path("ledgers/people.ledger").rename("kept")
        agt("ledger", "init", "people", f"run={listed}", *BUDGET).ended(3)
        Path("kept").rename("ledgers/people.ledger")
    LIST.write_text(f"{Path('ledgers/people.ledger').resolve()}\n")  # an earlier version's
    predict(agt, listed, "ledger=people").ended(0)
    assert first_entry() in LIST.read_text()


@pytest.fixture
def elsewhere(agt: Agt, listed: Path) -> tuple[str, str]:
    """The first entries of two ledgers in two folders that both count the run's people."""
    agt("ledger", "init", "away/other.ledger", f"run={listed}", *BUDGET, "-q").ended(0)
    return first_entry(), first_entry(Path("away/other.ledger"))


def test_a_claim_names_a_ledger_in_another_folder_that_counts_the_same_data(
    agt: Agt, listed: Path, elsewhere: tuple[str, str]
) -> None:
    here, away = elsewhere
    for name, other in (("people", away), ("away/other.ledger", here)):
        folder = f"paid_{other}"
        predict(agt, listed, f"ledger={name}", "mechanism.eps=0.02", f"hydra.run.dir={folder}")
        assert account_of(Path(folder))["elsewhere"] == [other]
        assert other in (Path(folder) / "report.md").read_text()
        agt("verify", folder).ended(0)


def test_a_release_without_a_ledger_is_refused_where_one_in_another_folder_counts_the_data(
    agt: Agt, listed: Path, elsewhere: tuple[str, str]
) -> None:
    Path("ledgers").rename("moved")
    predict(agt, listed).ended(2, str(Path("away/other.ledger").resolve()))
    said = predict(agt, listed, "ledger=none", "--json").ended(0).json
    claim = json.loads((Path(said["run"]) / "claim.json").read_text())
    assert claim["uncounted"]["ledgers"] == ["other"], "no path of the owner's machine"


def test_a_ledger_beside_the_data_is_found_by_who_never_used_it(
    agt: Agt, listed: Path, tmp_path: Path
) -> None:
    LIST.unlink()
    table = AdmittedTable("people", "d" * 32, paths=(str(tmp_path / "data/people.csv"),))
    with Ledger.create(Path("ledgers/beside.ledger"), people(), tables=[table]):
        found = find_ledgers_elsewhere(Path("elsewhere"), table)
    assert [path.name for path in found] == ["beside.ledger"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(200)),
        lambda path: instead(path, os.mkfifo),
        lambda path: instead(path, Path.mkdir),
        lambda path: instead(path, lambda p: p.symlink_to(p.name)),
        lambda path: path.parent.rename("gone"),
        lambda path: LIST.write_text('{"' + "[" * 10**5 + '\n{"/\\u0000": "a", "/x": 5}\n'),
    ],
    ids=["damaged", "a pipe", "a folder", "a circle", "gone", "a damaged list"],
)
def test_a_ledger_of_another_folder_that_cannot_be_read_stops_no_release(
    agt: Agt, listed: Path, elsewhere: tuple[str, str], spoil: Callable[[Path], object]
) -> None:
    spoil(Path("away/other.ledger"))
    said = predict(agt, listed, "ledger=people", "mechanism.eps=0.02", "--json").ended(0).json
    assert "elsewhere" not in account_of(Path(said["run"]))


def test_two_copies_of_a_ledger_do_not_both_spend_its_budget(
    agt: Agt, listed: Path, tmp_path: Path
) -> None:
    """One that is older pays again only if an entry declares the loss of the newer one."""
    Path("copy").mkdir()
    shutil.copy("ledgers/people.ledger", "copy/people.ledger")
    predict(agt, listed, "ledger=people", "mechanism.eps=0.02").ended(0)
    predict(agt, listed, "ledger=copy/people.ledger", "mechanism.eps=0.03").ended(3, "people")
    Path("ledgers").rename("archive")
    copy = ("ledger", "admit", "copy/people.ledger", "head=copy.head")
    for refused in (copy, ("ledger", "show", "copy/people.ledger")):
        agt(*refused).ended(3, "account_heads")
    predict(agt, listed, "ledger=copy/people.ledger", "mechanism.eps=0.03").ended(3, "lost=true")
    agt(*copy, "lost=true").ended(0)
    predict(agt, listed, "ledger=copy/people.ledger", "mechanism.eps=0.03").ended(0)
    Path("archive").rename("ledgers")
    predict(agt, listed, "ledger=people", "mechanism.eps=0.04").ended(3, "copy/people.ledger")
    agt("ledger", "show", "people").ended(3, "copy/people.ledger")


def test_a_list_that_cannot_be_written_is_said(
    agt: Agt, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("file").absolute()))
    agt("ledger", "init", "people", f"run={trained}", *BUDGET).ended(
        0, str(Path("file").absolute())
    )


def test_a_claim_says_which_ledger(agt: Agt, listed: Path) -> None:
    predict(agt, listed, "ledger=people", "hydra.run.dir=paid", "mechanism.eps=0.02").ended(0)
    claim = json.loads(Path("paid/claim.json").read_text())
    del claim["account"]["first_entry"]
    others = {**claim, "account": {**claim["account"], "first_entry": "0" * 16}}
    for value in (others, claim):
        Path("paid/claim.json").write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
        reseal(Path("paid"))
        said = agt("verify", "paid", "--json").ended(3).json
        assert "first_entry" in json.dumps(said), said


def test_a_ledger_that_a_stopped_process_has_is_not_checked(
    agt: Agt, listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be in order: nothing says that it is not."""
    predict(agt, listed, "ledger=people", "hydra.run.dir=paid", "mechanism.eps=0.02").ended(0)
    path, (read, written) = Path("ledgers/people.ledger"), os.pipe()
    if not (process := os.fork()):
        with Ledger.open(path) as ledger, ledger._store.transaction():
            os.write(written, b"!")
            signal.pause()
    assert os.read(read, 1) == b"!"
    monkeypatch.setitem(Ledger.open.__func__.__kwdefaults__, "seconds", 0.1)  # type: ignore[attr-defined]
    try:
        for place in (str(path), "paid"):
            said = agt("verify", place).ended(1, "people.ledger")
            assert "not checked" in said.out
            assert "DOES NOT VERIFY" not in said.out
        agt("ledger", "verify", "people").ended(1)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    agt("verify", "paid").ended(0)


# -- names are text


NAME = "odd/${oc.env:HOME}.ledger"


@pytest.mark.parametrize("typed", [NAME, f"ledger={NAME}", f"ledger='{NAME}'"])
def test_an_interpolation_in_a_name_is_not_resolved(agt: Agt, typed: str) -> None:
    agt("ledger", "init", NAME, "unit=y", *BUDGET).ended(0)
    assert [path.name for path in Path().rglob("*.ledger")] == [Path(NAME).name]
    if "=" not in typed:
        agt("ledger", "show", typed).ended(0)
        agt("verify", typed).ended(0)


def test_an_interpolation_in_the_name_of_a_ledger_that_pays_is_not_resolved(
    agt: Agt, trained: Path
) -> None:
    agt("ledger", "init", NAME, f"run={trained}", *BUDGET).ended(0)
    for typed in (f"ledger={NAME}", f"ledger='{NAME}'"):
        predict(agt, trained, typed, "hydra.run.dir=paid", "--json").ended(0)
        assert json.loads(Path("paid/env.json").read_text())["ledger"] == NAME
        agt("verify", "paid").ended(0)
        shutil.rmtree("paid")
    Path("x ${y}").symlink_to(trained.absolute())
    predict(agt, Path("x ${y}"), "ledger=none").ended(0)
