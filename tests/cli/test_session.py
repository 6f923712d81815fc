"""agt predict inputs=-: questions as JSON lines, each answered by a line, whatever a line may
be.
"""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agt.mechanisms.labelling import Labelling
from agt_cli.releasing import session as lines

from .conftest import Agt, Said
from .test_service import entries, open_ledger
from .test_spending import WITH_SOURCE

EACH = ("mechanism.eps=0.1",)
TABLE = (
    *(
        "dataset=table",
        "dataset.path=t.csv",
        "dataset.label=y",
        "dataset.classes=[no,yes]",
        "dataset.declared_size=80",
    ),
    *(
        "+dataset.numeric={age: [0, 100]}",
        "+dataset.categorical={town: [Graz, Linz]}",
        "training.chosen_on=public",
    ),
)
ASK = {"id": 1, "record": {"x1": 1.25, "x2": 1.0}}


@pytest.fixture
def talk(
    agt: Agt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Said, list[dict[str, Any]]]]:
    """Sends lines, objects or bytes, to a session; (what it left behind, the answers behind the
    claim).
    """

    def run(
        sent: list[Any], *more: str, run: Path | None = None
    ) -> tuple[Said, list[dict[str, Any]]]:
        content = b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in sent
        )
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        said = agt("predict", f"run={run or home / 'box'}", "inputs=-", *(more or EACH))
        answers = [json.loads(line) for line in said.out.splitlines()]
        if answers:
            assert set(answers[0]) == {"claim"}
        return said, answers[1:]

    return run


Talk = Callable[..., tuple[Said, list[dict[str, Any]]]]


def test_a_line_an_answer(talk: Talk, home: Path) -> None:
    path = open_ledger(home / "box", 10)
    batch = {"id": "b", "records": [{"x1": 1.25, "x2": 1.0}, [-1.0, -2.0], [-1.0, -2.0]]}
    batch["records"][0] = [1.25, 1.0]  # type: ignore[index]
    sent = [ASK, {"id": "a17", "features": [1.25, 1.0]}, {"features": [3, 4]}, batch]
    said, answers = talk(sent, *EACH, "ledger=people")
    assert said.code == 0, said.err
    one, two, three, four = answers
    assert one == {"id": 1, "label": one["label"], "stored": False, "left": 99}
    assert two == {"id": "a17", "label": one["label"], "stored": True, "left": 99}
    assert (three["id"], three["stored"], three["left"]) == (None, False, 98)
    assert (four["id"], four["stored"], four["left"]) == ("b", [True, False, False], 97)
    assert four["labels"][0] == one["label"]
    assert four["labels"][1] == four["labels"][2]
    assert [entry["size"] for entry in entries(path, "debit")] == [1, 1, 1]
    claim = json.loads(said.out.splitlines()[0])["claim"]
    assert claim["publishable"]
    assert claim["account"]["population"] == "people"
    assert (claim["account"]["counts"], claim["one_by_one"]) == ("answers", True)
    folder = next(Path("outputs/predict").iterdir())
    metrics = json.loads((folder / "metrics.json").read_text())
    assert {
        key: metrics[key]
        for key in ("lines", "n_queries", "answered", "stored", "unanswered", "reserved")
    } == {
        "lines": 4,
        "n_queries": 6,
        "answered": 6,
        "stored": 2,
        "unanswered": 0,
        "reserved": 3,
    }
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    assert json.loads((folder / "claim.json").read_text())["releases"] == 3


def test_verified_by_an_auditor(agt: Agt, talk: Talk, home: Path) -> None:
    open_ledger(home / "box", 10)
    talk([ASK, {"features": [3, 4]}, ASK], *EACH, "ledger=people", "hydra.run.dir=session")
    verified = agt("verify", "session", "-q", "--json")
    verified.ended(0)
    claim = json.loads(Path("session/claim.json").read_text())
    assert (claim["one_by_one"], claim["totals"]) == (True, [])
    assert verified.json["rests_on"][-1]["checks"][-1]["state"] == "ok", "the ledger counts it"


BAD: list[tuple[Any, str]] = [
    (b"nonsense\n", "as JSON"),
    (b"\xff\xfe{}\n", "codec"),
    (b"[1, 2]\n", "one JSON object"),
    (b'{"id": 7}\n', "exactly one of the entries 'record'"),
    (b'{"id": 7, "record": {"x1": NaN, "x2": 1}}\n', "NaN"),
    (b'{"id": 7, "record": {"x1": 1e999, "x2": 1}}\n', "1e999"),
    (b'{"id": 7, "record": {"x1": 1, "x1": 2, "x2": 1}}\n', "twice"),
    (b'{"id": 7, "record": {"x1": 1}}\n', "1 features"),
    (b'{"id": 7, "record": {"y": 1}}\n', "key 'x'"),
    (b'{"id": 7, "record": {"x1": "red", "x2": 1}}\n', "expected a number"),
    (b'{"id": 7, "record": {"x1": {"a": 1}, "x2": 1}}\n', "'x1'"),
    (b'{"id": 7, "record": {"x1": "\\ud800", "x2": 1}}\n', "lone surrogate"),
    (b'{"id": 7, "records": []}\n', "'records' must be"),
    (
        b'{"id": 7, "records": [[1, 2], {"x1": 1, "x2": 2}]}\n',
        "record 1 and record 2 have different keys (only one of these records has 'x')",
    ),
    (b'{"id": 7, "records": [[1, 2], [1]]}\n', "different lengths"),
    (b'{"id": 7, "features": [1, 2, 3]}\n', "3 features"),
    (b'{"id": 7, "features": ["a", 2]}\n', "'x'"),
    (b'{"id": 7, "features": [true, false]}\n', "'x'"),
    (b'{"id": 7, "features": [1, 2], "lot": 3}\n', "unknown entry 'lot'"),
    (b'{"id": [7], "features": [1, 2]}\n', "'id' of a query line must be"),
    (b'{"id": true, "features": [1, 2]}\n', "'id' of a query line must be"),
    (b'{"id": 1e400, "features": [1, 2]}\n', "1e400"),
    (b'{"id": "\\udfff", "features": [1, 2]}\n', "'id' of a query line must be"),
    (b'{"id": 7, "record": {"x1": true, "x2": 1}}\n', "needs numbers"),
    (b'{"id": 7, "record": {"x1": [1], "x2": 1}}\n', "'x1'"),
    (b'{"id": 7, "features": [1, true]}\n', "'x'"),
    (b'{"id": 7, "features": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", ""),
    (b'{"id": 7, "features": [' + b"9" * 5000 + b", 1]}\n", ""),
    (
        b'{"id": 7, "records": [{"id": "k", "x1": 1, "x2": 1}, {"id": "k", "x1": 1, "x2": 2}]}\n',
        "'k' 2 times",
    ),
    (b"\n", '{"id": 1'),
    (b"  \r\n", '{"id": 1'),
    (b'{"features": [1, 2', "as JSON"),
]


def test_a_bad_line_is_told_and_the_session_goes_on(talk: Talk, home: Path) -> None:
    path = open_ledger(home / "box", 10)
    said, answers = talk([*(line for line, _ in BAD[:-1]), ASK, BAD[-1][0]], *EACH, "ledger=people")
    assert said.code == 0, said.err
    assert len(answers) == len(BAD) + 1
    assert answers.pop(-2)["label"] in ("left", "right")
    for (line, words), answer in zip(BAD, answers, strict=True):
        assert answer["code"] == 2, line
        assert words in answer["error"], line
        assert answer["id"] in (7, None)
        assert answer["id"] is not True
    assert answers[10]["id"] == 7
    assert [entry["size"] for entry in entries(path, "debit")] == [1], "bad lines cost nothing"


def test_a_line_longer_than_any_question(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(lines.read_lines, "__defaults__", (1000,))
    said, answers = talk([b'{"id": 1, "x": "' + b"a" * 5000 + b'"}\r\n', ASK, b"a" * 3000])
    assert said.code == 0
    assert ["1000" in answer.get("error", "") for answer in answers] == [True, False, True]
    content = io.BytesIO(b"a\r\n\r\n\n" + b"b" * 9 + b"\n" + b"c" * 10 + b"\nd")
    assert list(lines.read_lines(content, 9)) == [
        (1, b"a\r\n"), (2, b"\r\n"), (3, b"\n"), (4, b"b" * 9 + b"\n"), (5, None), (6, b"d"),
    ]  # fmt: skip


def test_where_the_budget_ends(talk: Talk, home: Path) -> None:
    path = open_ledger(home / "box", 0.55)
    asked = [{"id": n, "features": [n, 1]} for n in range(4)]
    more = [
        {"id": "b", "records": [[0, 1], [8, 1], [9, 1], [8, 1]]},
        {"id": 9, "features": [9, 1]},
        {"id": 0, "features": [0, 1]},
    ]
    said, answers = talk([*asked, *more], *EACH, "ledger=people")
    assert said.code == 3
    assert [answer["left"] for answer in answers] == [4, 3, 2, 1, 0, 0, 0]
    batch, refused, stored = answers[4:]
    assert (batch["stored"], batch["labels"][2], batch["code"]) == (
        [True, False, False, False],
        None,
        3,
    )
    assert batch["labels"][1] == batch["labels"][3] is not None
    assert "1 of 4" in batch["error"]
    assert (refused["id"], refused["code"], "label" in refused) == (9, 3, False)
    assert stored == {"id": 0, "label": answers[0]["label"], "stored": True, "left": 0}
    assert "8 of 10" in said.err
    assert sum(entry["size"] for entry in entries(path, "debit")) == 5
    assert (
        json.loads(next(Path("outputs/predict").glob("*/status.json")).read_text())["state"]
        == "done"
    )


def test_a_lot_is_paid_in_advance_and_what_is_left_of_it_stays_spent(
    talk: Talk, home: Path
) -> None:
    path = open_ledger(home / "box", 10)
    asked = [{"id": n, "features": [n, 1]} for n in range(5)]
    said, answers = talk(
        [*asked, asked[0], {"records": [[1, 1], [7, 7], [8, 8], [9, 9]]}],
        *EACH,
        "ledger=people",
        "lot=6",
    )
    assert said.code == 0, said.err
    assert answers[5] == {**answers[0], "stored": True, "left": answers[4]["left"]}
    assert answers[6]["labels"][0] == answers[1]["label"]
    assert [entry["size"] for entry in entries(path, "debit")] == [6, 6]
    assert [entry["size"] for entry in entries(path, "answers")] == [6, 2]
    assert answers[0]["left"] == 99
    assert answers[-1]["left"] == 92
    assert "reserve=6" in said.err, "4 labels of it were paid for and not asked for"
    said, answers = talk([*asked, [0]], *EACH, "ledger=people", "lot=6")
    assert [answer.get("stored") for answer in answers] == [True] * 5 + [None]
    assert len(entries(path, "debit")) == 2


def test_without_a_ledger_each_answer_is_told_before_it_is_drawn(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Labelling.draw_in_pieces

    def drawn(self: Labelling, features: np.ndarray, *more: Any) -> Iterator[np.ndarray]:
        (spent,) = Path("outputs/predict").glob("*/spent.json")
        seen.append((len(features), json.loads(spent.read_text())["queries"]))
        return real(self, features, *more)

    monkeypatch.setattr(Labelling, "draw_in_pieces", drawn)
    said, answers = talk([ASK, ASK, {"records": [[1, 1], [1, 1]]}])
    assert said.code == 0
    assert seen == [(1, 1), (1, 2), (2, 4)]
    assert [answer["left"] for answer in answers] == [None] * 3
    folder = next(Path("outputs/predict").iterdir())
    assert json.loads((folder / "claim.json").read_text())["uncounted"]["why"] == "unnamed"
    (total, *_) = json.loads((folder / "spent.json").read_text())["totals"]
    assert (total["eps"], total["delta"]) == (pytest.approx(0.4), 0.0)
    seen.clear()
    said, answers = talk([ASK, ASK, ASK], "total.eps=1", "total.queries=2", "hydra.run.dir=capped")
    assert (said.code, [answer["left"] for answer in answers]) == (3, [1, 0, 0])
    assert "total.queries=2" in answers[-1]["error"]
    assert "(1, 0)" in said.out.splitlines()[0]
    simulated, _ = talk([ASK], *EACH, "seed=1", "hydra.run.dir=simulated")
    assert "SIMULATION" in simulated.out.splitlines()[0]


def test_what_lines_cannot_ask_for(agt: Agt, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = [
        (("total.eps=1",), "total.queries"),
        (("mechanism=certified_quantile", *EACH), "certified_quantile"),
        ((*EACH, "--json"), "--json"),
        ((*EACH, "lot=0"), "reserve"),
        ((*EACH, "release=x", "run=null"), "release=x"),
    ]
    for more, words in refused:
        content = io.TextIOWrapper(io.BytesIO(json.dumps(ASK).encode()))
        monkeypatch.setattr(sys, "stdin", content)
        said = agt("predict", f"run={home / 'box'}", "inputs=-", *more).ended(2, words)
        assert "claim" not in said.out
    agt("predict", f"run={home / 'box'}", *EACH, "lot=3").ended(2, "reserve=3")


def test_a_line_is_the_question_that_a_file_asks(agt: Agt, talk: Talk) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, 120).round(2),
            "town": rng.choice(["Graz", "Linz", "Wien"], 120),
        }
    )
    frame.assign(y=np.where(frame["age"] > 50, "yes", "no")).to_csv("t.csv", index=False)
    assert agt("train", *TABLE, "hydra.run.dir=table", "-q", "--json").code == 0
    open_ledger(Path("table"), 100)
    frame.iloc[:20].to_csv("q.csv", index=False)
    first = agt(
        "predict", "run=table", "inputs=q.csv", "ledger=people", "force=true", *EACH, "-q", "--json"
    ).json["labels"]
    rows = json.loads(frame.iloc[:20].to_json(orient="records"))
    sent = [{"id": n, "record": row} for n, row in enumerate(rows)]
    mixed = [{**rows[0], "age": str(rows[0]["age"])}, {**rows[1], "more": 1}]
    lines = [*sent, {"records": rows}, *({"record": row} for row in mixed)]
    said, answers = talk(lines, *EACH, "ledger=people", "force=true", run=Path("table"))
    assert said.code == 0, said.err
    assert [answer["label"] for answer in answers[:20]] == first
    assert answers[20]["labels"] == first
    assert all(np.all(answer["stored"]) for answer in answers)
    wrong = [
        {"town": "Graz"},
        {"age": None, "town": "Graz"},
        {"age": 1e6, "town": "Graz"},
        {"agee": 3, "town": "Graz"},
    ]
    _, answers = talk([{"record": row} for row in wrong], *EACH, "ledger=people", run=Path("table"))
    for answer, column in zip(answers, ("'age'", "'age'", "'age'", "'agee'"), strict=True):
        assert column in answer["error"]


def session(home: Path, *more: str, **how: Any) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "agt_cli",
        "predict",
        f"run={home / 'box'}",
        "inputs=-",
        *EACH,
        *more,
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **{**pipes, **how}, env=WITH_SOURCE)


def asked(process: subprocess.Popen[bytes], value: object) -> dict[str, Any]:
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(value).encode() + b"\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


@pytest.mark.sweep
@pytest.mark.parametrize("end", ["SIGTERM", "reader", "kill"])
def test_however_a_session_ends_what_was_told_is_counted(talk: Talk, home: Path, end: str) -> None:
    path = open_ledger(home / "box", 10)
    process = session(home, "ledger=people", "lot=10", "hydra.run.dir=ended")
    assert process.stdout
    assert process.stdin
    assert process.stderr
    process.stdout.readline()
    label = asked(process, ASK)["label"]
    if end == "reader":
        process.stdout.close()
        process.stdin.write(json.dumps({"features": [4, 4]}).encode() + b"\n")
        process.stdin.close()
    else:
        os.kill(process.pid, signal.SIGTERM if end == "SIGTERM" else signal.SIGKILL)
    code = process.wait(30)
    err = process.stderr.read().decode()
    for pipe in (process.stdin, process.stdout, process.stderr):
        with suppress(BrokenPipeError):
            pipe.close()
    assert "Traceback" not in err
    assert code == {"SIGTERM": 143, "reader": 1, "kill": -9}[end], err
    assert [entry["size"] for entry in entries(path, "debit")] == [10]
    status = json.loads(Path("ended/status.json").read_text())["state"]
    assert status == {"SIGTERM": "failed", "reader": "done", "kill": "running"}[end]
    said, (again,) = talk([ASK], *EACH, "ledger=people")
    assert (said.code, again["stored"]) == (0, end != "kill")
    assert again["label"] == label or end == "kill"
