"""The account of an erasure: its form, what contradicts itself, and that there is no entry for anybody's name."""

import json
import math
from importlib import resources
from typing import Any

import pytest
from pydantic import TypeAdapter
from unit.test_claims import bare, change

from agt.errors import ConfigError
from agt.facts import declared, proved, void
from agt.unlearning.promise import Promise, Removal, RemovalBudget
from agt_cli.unlearn import account as module
from agt_cli.unlearn.account import (
    VERSION,
    Asked,
    Earlier,
    ErasureReport,
    Place,
    StateChange,
    TraceSearch,
    Waiting,
    account_of,
    read_account,
)
from agt_cli.unlearn.erasure import account_lines, account_markdown

BEFORE, AFTER, LOG = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}", f"3:{'c' * 64}"
NEWTON = Promise(
    "newton", False, 1.0, 1e-4, False, ("As a model that never saw them, within epsilon and delta.",),
    (proved("the residual is bounded"), void("it is independent of noise"), declared("rows are short", "one is longer")),
)  # fmt: skip
RETRAIN = Promise("retrain", True, 0.0, 0.0, True, ("The very model that training without them gives.",))
CERTIFICATE = Promise("certificate", True, 0.0, 0.0, True, ("What is answered is what a model without them answers.",))


def made(promise: Promise = NEWTON, **more: Any) -> ErasureReport:
    removed = 0 if promise.method == "certificate" else 20
    allowance = RemovalBudget(0.1, 0.5, "the gradient's residual") if promise.method == "newton" else None
    removal = Removal(promise, removed, 0.01, {"steps": 1, "fresh": False}, ("One step.",), allowance)
    state = StateChange("folder", BEFORE, AFTER, 100, 100 - removed, LOG, 3)
    earlier = (Earlier("predict/one", True, "released", BEFORE), Earlier("certify/two", False, "of other data"))
    sweep = TraceSearch((Place("the run", 9, 0, "ids and rows"),), ("the table",)) if removed else None
    given = {
        "asked": Asked(20, 20, "id", 20, "2026-11-22T10:00:00.123456+00:00"),
        "state": state,
        "training": 3.5,
        "earlier": earlier,
        "sweep": sweep,
        "waiting": None if removed else Waiting(20, 20),
    }
    return account_of(removal, **given | more)


@pytest.mark.parametrize("promise", [NEWTON, RETRAIN, CERTIFICATE], ids=lambda promise: promise.method)
def test_what_is_written_is_read(promise: Promise) -> None:
    account = made(promise)
    assert read_account(account.content) == account
    assert account.updated == (promise is not CERTIFICATE)


def test_every_entry_by_name() -> None:
    """A new one is looked at before anybody sees it: none may hold an id, a row, a value or a path."""
    kinds = [
        kind
        for kind in vars(module).values()
        if hasattr(kind, "__pydantic_fields__") and kind.__module__ in (module.__name__, Promise.__module__)
    ]
    names = {f"{kind.__name__}.{name}" for kind in kinds for name in kind.__dataclass_fields__}
    assert {name.split(".")[0] for name in names} == {
        *(
            "ErasureReport",
            "Asked",
            "Done",
            "Earlier",
            "Guaranteed",
            "Place",
            "RemovalBudget",
            "StateChange",
            "TraceSearch",
            "Waiting",
        )
    }
    assert {name for name in names if name.startswith(("Asked", "StateChange", "Earlier", "Place"))} == {
        *("Asked.people", "Asked.records", "Asked.by", "Asked.hashes", "Asked.time", "Asked.pending", "Asked.untrained"),
        *(
            "StateChange.run",
            "StateChange.before",
            "StateChange.after",
            "StateChange.records_before",
            "StateChange.records_after",
            "StateChange.log",
            "StateChange.entry",
        ),
        *("Earlier.name", "Earlier.state", "Earlier.stands", "Earlier.why"),
        *("Place.place", "Place.files", "Place.found", "Place.words"),
    }


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("schema", "agt.erasure/2", "version 'agt.erasure/2'"),
        ("guaranteed.eps", math.nan, "NaN is no number"),
        ("guaranteed.eps", -1.0, "eps"),
        ("guaranteed.exact", True, "no guarantee of exactness"),
        ("guaranteed.words", [], "words"),
        ("guaranteed.requests", "any", "requests"),
        ("guaranteed.assumptions.1.standing", "assumed", "standing"),
        ("guaranteed.assumptions.2.broken_by", "", "what would break it"),
        ("done.method", "certificate", "nothing pending"),
        ("done.records", 19, "without the removed"),
        ("state.records_after", 81, "without the removed"),
        ("state.after", BEFORE, "another digest"),
        ("state.entry", 4, "one of the log"),
        ("state.log", "0:00", "log"),
        ("budget.spent", 0.6, "overdrawn"),
        ("asked.people", -1, "people"),
        ("asked.time", "today", "time"),
        ("earlier.0.stands", "perhaps", "stands"),
        ("asked.names", ["Ada"], "names"),
    ],
)
def test_other_accounts_are_refused(path: str, value: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        read_account(change(json.loads(made().content), path, value))


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"null", b"[" * 100_000, b'{"schema": "agt.erasure/1"}'])
def test_what_is_no_account_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="account"):
        read_account(content)


def test_the_schema_file_is_the_form() -> None:
    node = json.loads(resources.files("agt_cli.unlearn").joinpath("erasure.schema.json").read_text(encoding="utf-8"))
    assert node.pop("$id") == VERSION
    assert node.pop("$schema").startswith("https://json-schema.org/")
    assert bare(node) == bare(TypeAdapter(ErasureReport).json_schema())


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
    promise = Promise(method, exact, 0.0 if exact else 1.0, 0.0, adaptive, ("It holds.",))
    assert made(promise).guaranteed.requests == requests
    assert ("NOT " in "".join(account_lines(made(promise)))) == (not adaptive)


def test_the_page_is_one_page_and_says_it_all() -> None:
    many = tuple(Earlier(f"predict/{n}", n > 0, f"why {n}", BEFORE) for n in range(40))
    page = account_markdown(made(earlier=many, abstained=4))
    assert len(page.splitlines()) < 90
    for words in (
        "20 people asked: 20 records removed from the run",
        "1 assumption does NOT hold",
        "NOT where requests were chosen after looking",
        "0.4 of 0.5 left",
        "39 stand, 1 void",
        "And 32 more",
        "abstained while requests were pending: 4 queries",
        "none found in the run",
        "Not looked at:\n\n- the table",
        "What this account does not show",
        LOG,
    ):
        assert words in page, words
    assert page.index("predict/0") < page.index("predict/1 "), "what is void comes first"


def test_a_pending_request_says_that_nothing_is_removed() -> None:
    account = made(CERTIFICATE)
    said = "\n".join(account_lines(account))
    for words in (
        "20 people pending in all, and nothing is removed yet",
        "stable distance is at least 20",
        "traces: not looked for",
    ):
        assert words in said, said
        assert words.removeprefix("traces: ") in account_markdown(account)


def test_traces_are_said_loudly() -> None:
    sweep = TraceSearch((Place("checkpoints", 4, 2, "two ids"), Place("the run", 9, 0, "ids and rows")), ())
    account = made(sweep=sweep)
    assert "  - FOUND 2 in checkpoints: two ids" in list(account_lines(account))
    assert "2 found in checkpoints, the run" in account_markdown(account)
