"""The account of an erasure: its form, what contradicts itself, and that there is no entry for
anybody's name.
"""

import json
import math
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from unit.test_claims import change

from agt import __version__
from agt.documents import LAST_READER
from agt.errors import ConfigError, Superseded
from agt.facts import declared, not_held, proved
from agt.unlearning.promise import Promise, Removal, RemovalBudget, read_removal
from agt.unlearning.sentences import TEMPLATES, Remark
from agt_cli.report.markdown import escape_markdown
from agt_cli.report.replaced import check_not_replaced
from agt_cli.unlearn import account as account_module
from agt_cli.unlearn.account import (
    OUTSIDE,
    VERSION,
    Asked,
    Earlier,
    ErasureReport,
    Place,
    StateChange,
    TraceSearch,
    Waiting,
    read_account,
)
from agt_cli.unlearn.account_md import account_lines, account_markdown
from agt_cli.unlearn.account_tasks import open_tasks

BEFORE = f"sha256:{'a' * 64}"
AFTER = f"sha256:{'b' * 64}"
LOG = f"3:{'c' * 64}"
NEWTON = Promise(
    "newton", False, 1.0, 1e-4, False, (Remark("close", {"eps": 1.0, "delta": 1e-4}),),
    (proved("noise_exact"), not_held("residual_depends_on_noise"), declared("marked_public")),
)  # fmt: skip
RETRAIN = Promise("retrain", True, 0.0, 0.0, True, (Remark("retrained"),))
CERTIFICATE = Promise("certificate", True, 0.0, 0.0, True, (Remark("answers_as_retrained"),))

NOTHING = Place(Remark("other_runs"), 9, 0, (Remark("no_trace_in_runs", {"runs": 9}),), 9)


def made(promise: Promise = NEWTON, **more: Any) -> ErasureReport:
    removed = 0 if promise.method == "certificate" else 20
    budget = RemovalBudget(0.1, 0.5) if promise.method == "newton" else None
    removal = Removal(
        promise,
        removed,
        0.01,
        {"steps": 1, "fresh": False},
        (Remark("step", {"records": 20}),),
        budget,
    )
    state = StateChange("folder", BEFORE, AFTER, 100, 100 - removed, LOG, 3)
    stands = (Remark("answers_stand", {"stable": 5, "given": 9, "units": 3}),)
    void = (Remark("claim_missing"),)
    earlier = (Earlier("predict/one", 5, 4, stands, BEFORE), Earlier("certify/two", 0, 1, void))
    sweep = TraceSearch((NOTHING,), (Remark("other_folders"),)) if removed else None
    given = {
        "asked": Asked(20, 20, 0, 20, "id", 20, "2026-11-22T10:00:00.123456+00:00"),
        "state": state,
        "training": 3.5,
        "earlier": earlier,
        "sweep": sweep,
        "waiting": None if removed else Waiting(20, 20),
    }
    return ErasureReport(
        schema=VERSION, agt=__version__, removal=removal, outside=OUTSIDE, **given | more
    )


@pytest.mark.parametrize(
    "promise", [NEWTON, RETRAIN, CERTIFICATE], ids=lambda promise: promise.method
)
def test_what_is_written_is_read(promise: Promise) -> None:
    account = made(promise)
    assert read_account(account.content) == account
    assert account.updated == (promise is not CERTIFICATE)


def test_every_entry_by_name() -> None:
    """A new one is looked at before anybody sees it: none may hold an id, a row, a value or a
    path.
    """
    modules = (account_module.__name__, Promise.__module__, Remark.__module__)
    kinds = [
        kind
        for kind in vars(account_module).values()
        if hasattr(kind, "__pydantic_fields__") and kind.__module__ in modules
    ]
    names = {f"{kind.__name__}.{name}" for kind in kinds for name in kind.__dataclass_fields__}
    assert {name.split(".")[0] for name in names} == {
        *(
            "ErasureReport",
            "Asked",
            "Earlier",
            "Place",
            "Remark",
            "Removal",
            "StateChange",
            "TraceSearch",
            "Waiting",
        ),
    }
    assert {
        name for name in names if name.startswith(("Asked", "StateChange", "Earlier", "Place"))
    } == {
        *(
            "Asked.people_requested",
            "Asked.people_with_training_records",
            "Asked.people_with_test_records_only",
            "Asked.people_pending_before",
            "Asked.training_records",
            "Asked.test_records",
            "Asked.ids_not_in_data",
            "Asked.by",
            "Asked.hashes_in_log",
            "Asked.time",
        ),
        *(
            "StateChange.run",
            "StateChange.before",
            "StateChange.after",
            "StateChange.records_before",
        ),
        *("StateChange.records_after", "StateChange.log", "StateChange.entry"),
        *("Earlier.name", "Earlier.state", "Earlier.reasons"),
        *("Earlier.answers_standing", "Earlier.answers_void"),
        *("Place.place", "Place.runs", "Place.searched", "Place.found", "Place.remarks"),
    }


def test_every_value_of_a_remark_by_name() -> None:
    """A new one is looked at before anybody sees it: none may hold an id, a row or a value of
    one.
    """
    counts = {
        "records",
        "units",
        "farthest",
        "trained",
        "members",
        "given",
        "stable",
        "lost",
        "releases",
        "states",
    }
    counts |= {"runs", "folders", "rows", "erased", "forgotten", "before", "after", "count"}
    numbers = {
        "within",
        "distance",
        "retrained",
        "eps",
        "delta",
        "mu",
        "residual",
        "spent",
        "total",
    }
    # settings: the names of columns; tables: those of data
    names = {"relation", "certificate", "mechanism", "output", "stages", "release", "settings"}
    names |= {"tables"}
    # what does not hold, and an error's message
    texts = {"fact", "error"}
    found = {
        name
        for template in TEMPLATES.values()
        for _, name, _, _ in Formatter().parse(template)
        if name
    }
    assert found == counts | numbers | names | texts


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("schema", "agt.erasure/5", "version 'agt.erasure/5'"),
        ("removal.promise.eps", math.nan, "NaN"),
        ("removal.promise.eps", -1.0, "eps"),
        ("removal.promise.exact", True, "exact=true"),
        ("removal.promise.terms", [], "terms"),
        ("removal.promise.adaptive", "any", "adaptive"),
        ("removal.promise.assumptions.1.standing", "assumed", "standing"),
        ("removal.promise.assumptions.2.code", "noise_exact", r"assumptions\.2: noise_exact"),
        ("removal.promise.assumptions.1.code", "nothing", r"assumptions\.1: nothing"),
        (
            "removal.promise.assumptions.0.values",
            {"text": "held"},
            r"assumptions\.0: noise_exact: .*'text'",
        ),
        ("removal.promise.method", "certificate", "pending"),
        ("removal.records", 19, "records"),
        ("state.records_after", 81, "records"),
        ("state.after", BEFORE, "digest"),
        ("state.entry", 4, "entry"),
        ("state.log", "0:00", "log"),
        ("removal.budget.spent", 0.6, "budget"),
        ("asked.people_requested", -1, "people_requested"),
        ("asked.people_requested", 21, "people who requested erasure"),
        ("sweep.places.0.searched", 10, "searched"),
        ("asked.time", "today", "time"),
        ("earlier.0.answers_void", "perhaps", "answers_void"),
        ("asked.names", ["Ada"], "names"),
        ("removal.steps.0.code", "leap", "leap"),
        ("removal.steps.0.values", {}, "step: .*'records'"),
        ("removal.promise.terms.0.values.eps", "one", "close: .*'one'"),
        ("earlier.0.reasons", [], "reasons"),
    ],
)
def test_other_accounts_are_refused(path: str, value: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        read_account(change(json.loads(made().content), path, value))


@pytest.mark.parametrize(
    ("exact", "adaptive", "requests"),
    [
        (False, False, "oblivious"),
        (True, False, "adaptive for fixed keys"),
        (False, True, "adaptive"),
        (True, True, "adaptive"),
    ],
)
@pytest.mark.parametrize("method", ["newton", "sisa", "retrain"])
def test_for_which_requests(method: Any, exact: bool, adaptive: bool, requests: str) -> None:
    """A promise that is not adaptive is never said to be."""
    promise = Promise(method, exact, 0.0 if exact else 1.0, 0.0, adaptive, (Remark("as_promised"),))
    assert made(promise).removal.promise.requests == requests
    assert ("NOT " in "".join(account_lines(made(promise)))) == (not adaptive)


def test_the_page_is_one_page_and_says_it_all() -> None:
    why = (Remark("claim_missing"),)
    many = tuple(Earlier(f"predict/{n}", int(n > 0), int(n == 0), why, BEFORE) for n in range(40))
    page = account_markdown(made(earlier=many, abstained=4))
    assert len(page.splitlines()) < 95
    for words in (
        "20 people requested erasure; 20 records removed from the run",
        "1 assumption is not met",
        "NOT hold for erasure requests that were chosen after looking",
        "0.4 of 0.5 left",
        "39 stand, 1 void",
        "32 further results",
        "queries left unanswered until pending erasure requests were carried out: 4 queries",
        "none found in 9 of 9 other training runs",
        "following places:\n\n- folders outside of output_dir (of this command",
        "What this account does not show",
        LOG,
    ):
        assert words in page, words
    assert page.index("predict/0") < page.index("predict/1 "), "what is void comes first"


def test_a_pending_request_says_that_nothing_is_removed() -> None:
    account = made(CERTIFICATE)
    said = "\n".join(account_lines(account))
    for words in (
        "nothing has been removed yet (with earlier requests, those of 20 people are now pending)",
        "stable distance is at least 20",
        "agt did not search for traces",
    ):
        assert words in said, said
        assert words.removeprefix("traces: ") in account_markdown(account)


def test_traces_are_said_loudly() -> None:
    found = (
        Remark("trained_on_erased", {"runs": ("train/b",)}),
        Remark("training_unfinished", {"runs": ("train/a",)}),
    )
    sweep = TraceSearch((Place(Remark("other_runs"), 4, 2, found, 3), NOTHING), ())
    account = made(sweep=sweep)
    (line,) = (line for line in account_lines(account) if "2 found" in line)
    assert "records.bin" in line
    assert "2 found" in account_markdown(account)
    tasks = open_tasks(account, ["outputs", "elsewhere"])
    assert any("run=outputs/train/b" in task for task in tasks)
    assert any("outputs/train/a" in task for task in tasks)


def test_an_account_of_versions_before_0_22_is_read_and_shown() -> None:
    """They counted the runs that were not searched, and had other codes."""
    remarks = (
        Remark("trained_on_erased_earlier", {"runs": ("train/a",)}),
        Remark("training_stopped", {"folders": ("train/b",)}),
        Remark("training_running", {"folders": ("train/c",)}),
        Remark("runs_not_searched", {"runs": 1, "forgotten": 2, "erased": 3}),
        Remark("runs_not_searched_for_people", {"runs": 1, "units": 2}),
        *(
            Remark(code, {"runs": 1})
            for code in ("traces_cleared", "named_otherwise", "index_unreadable", "no_index")
        ),
        Remark("key_gone", {"runs": 1}),
        Remark("folders_not_listed", {"count": 1}),
    )
    sweep = TraceSearch((Place(Remark("other_runs"), 9, 1, remarks, 0),), ())
    account = read_account(made(sweep=sweep).content)
    page = " ".join(account_markdown(account).split())
    assert all(escape_markdown(remark.sentence) in page for remark in remarks)


@pytest.mark.parametrize("form", ["agt.erasure/1", "agt.erasure/2", "agt.erasure/3"])
def test_an_account_of_an_earlier_form_is_refused_with_the_version_that_reads_it(form: str) -> None:
    with pytest.raises(Superseded, match=LAST_READER):
        read_account(change(json.loads(made().content), "schema", form))


@pytest.mark.parametrize("form", ["agt.erasure/1", "agt.erasure/2", "agt.erasure/3"])
def test_an_account_of_every_form_shows_that_a_copy_of_the_run_was_replaced(
    form: str, tmp_path: Path
) -> None:
    """A copy with erased records is refused, whichever version erased them."""
    account = tmp_path / "unlearn/first/account.json"
    account.parent.mkdir(parents=True)
    account.write_bytes(change(json.loads(made().content), "schema", form))
    with pytest.raises(ConfigError, match="erasure 3"):
        check_not_replaced(BEFORE, tmp_path / "train/copy", [tmp_path])
    check_not_replaced(AFTER, tmp_path / "train/run", [tmp_path])


@pytest.mark.parametrize(
    ("promise", "removal"),
    [
        ({"words": ["exact"]}, {"steps": []}),
        ({"assumptions": [{"standing": "proved", "why": "it holds"}]}, {"steps": []}),
        ({}, {"steps": [{"code": "condition_not_held", "values": {"why": "it does not"}}]}),
    ],
)
def test_a_removal_of_sentences_is_refused_with_the_version_that_reads_it(
    promise: dict[str, Any], removal: dict[str, Any]
) -> None:
    with pytest.raises(Superseded, match=LAST_READER):
        read_removal(promise, removal)
