"""Queries of a parquet file too large to be held: answered group by group, as a small file is,
and whole or not at all.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from agt.store.folder import _HashingFile
from agt_cli.cli import main
from agt_cli.releasing import spent as spending

from .conftest import Agt
from .test_spending import child

N = 60
WIDTH = 3
ROWS = 7
EACH = ("mechanism.eps=1", "accounting=paper")
WEIGHTS = ("mechanism=release_weights", "total.eps=1", "total.delta=1e-5")
MANY = f"""
from agt.data import arrays, cell_values, files, ids, queries
from agt_cli.releasing import label_table as publish
for module in (arrays, cell_values, ids, files, publish): module.ROWS = {ROWS}
publish.MAX_LABELS_SHOWN = 10
queries.is_large = lambda path: True
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear head on vectors, which no test changes."""
    home = tmp_path_factory.mktemp("vectors")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, WIDTH)).astype(np.float32)
    np.savez(home / "train.npz", x=x, label=(x[:, 0] > 0).astype(int))
    settings = (
        "dataset=embeddings",
        f"dataset.path={home / 'train.npz'}",
        "dataset.classes=[0,1]",
        "model=linear",
    )
    more = (
        "dataset.declared_size=300",
        "certificate=stability",
        "training.loss=binary_cross_entropy",
        "kgrid.max=3",
    )
    assert (
        main(
            [
                "train",
                *settings,
                *more,
                "training.chosen_on=public",
                f"hydra.run.dir={home / 'run'}",
                "-q",
            ]
        )
        == 0
    )
    return home


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on seven rows are many."""

    def shrink() -> None:
        for module in (
            "agt.data.arrays",
            "agt.data.ids",
            "agt.data.files",
            "agt.data.cell_values",
            "agt_cli.releasing.label_table",
        ):
            monkeypatch.setattr(f"{module}.ROWS", ROWS)
        monkeypatch.setattr("agt_cli.releasing.label_table.MAX_LABELS_SHOWN", 10)
        monkeypatch.setattr("agt.data.queries.is_large", lambda path: True)

    return shrink


def asked(**columns: object) -> str:
    """q.parquet in groups of twenty rows."""
    x = np.random.default_rng(1).normal(size=(N, WIDTH)).astype(np.float32)
    named = {f"x{i}": x[:, i] for i in range(WIDTH)} | columns
    pd.DataFrame(named).to_parquet("q.parquet", row_group_size=20)
    return "inputs=q.parquet"


def labels_of(folder: str) -> list[list[str]]:
    csv = Path(folder) / "labels.csv"
    frame = (
        pd.read_csv(csv, dtype=str)
        if csv.exists()
        else pd.read_parquet(Path(folder) / "labels.parquet")
    )
    return [list(frame.columns), *frame.to_numpy().tolist()]


def only(pattern: str) -> Path:
    (path,) = Path("outputs/predict").glob(pattern)
    return path


@pytest.mark.sampled(2)
@pytest.mark.parametrize("named", [True, False])
def test_the_same_answers_from_the_same_draws(
    agt: Agt, home: Path, many: Callable[[], None], named: bool
) -> None:
    ids = [f"é,{row}" for row in range(N)] if named else None
    inputs = asked(id=ids) if named else asked()
    assert (
        agt("predict", f"run={home / 'run'}", inputs, *WEIGHTS, "hydra.run.dir=weights", "-q").code
        == 0
    )
    ways = [(f"run={home / 'run'}", *EACH, "seed=1"), (f"run={home / 'run'}", *WEIGHTS, "seed=1")]
    ways.append((f"release={Path('weights/release').resolve()}",))
    small = [agt("predict", *way, inputs, "--json", "-q").json for way in ways]
    many()
    for way, before in zip(ways, small, strict=True):
        said = agt("predict", *way, inputs, "--json", "-q").json
        assert said["labels"] == str(Path(said["run"]) / "labels.parquet"), "too many to be listed"
        assert before["labels"] == [row[1] for row in labels_of(before["run"])[1:]]
        if named:
            assert labels_of(said["run"]) == labels_of(before["run"])
        else:
            assert [row[1] for row in labels_of(said["run"])] == ["label", *before["labels"]]
            assert [row[0] for row in labels_of(said["run"])[1:]] == [str(row) for row in range(N)]
        metadata = pq.read_metadata(Path(said["run"]) / "labels.parquet")
        assert (metadata.num_rows, metadata.num_row_groups) == (N, -(-N // ROWS))
        assert agt("verify", said["run"], "-q").code == 0
    assert "`labels.parquet` may be published." in Path(said["run"], "report.md").read_text(), (
        "of weights that were released"
    )


def test_a_budget_that_ends_in_the_middle(agt: Agt, home: Path, many: Callable[[], None]) -> None:
    """Under a ledger: what is answered, and what is asked again."""
    inputs = asked()
    run = f"run={home / 'run'}"
    assert agt("ledger", "init", "people", run, "total.eps=3", "unit=one person", "-q").code == 0
    many()
    first = agt(
        "predict",
        run,
        inputs,
        "mechanism.eps=0.1",
        "ledger=people",
        "force=true",
        "hydra.run.dir=first",
    ).ended(3)
    answered = labels_of("first")
    assert 0 < len(answered) - 1 < N
    assert f"{len(answered) - 1} of {N} queries were answered" in first.err
    again = agt(
        "predict",
        run,
        inputs,
        "mechanism.eps=0.1",
        "ledger=people",
        "force=true",
        "hydra.run.dir=again",
    )
    assert (again.code, labels_of("again")) == (3, answered), "repeated, and free"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x1": np.where(np.arange(N) == 44, np.nan, 0.5)}, "NaN or inf in row 45 of the data"),
        ({"x1": np.array(["1"] * N)}, None),
        ({"x4": np.zeros(N)}, "x0 to x4"),
        (
            {"x3": np.zeros(N)},
            "each record in this file has 4 features",
        ),
        ({"id": ["a"] * N}, "'a' occurs 60 times"),
        ({}, "q.parquet: the file has no rows, but at least one query is needed"),
    ],
    ids=[
        "not a number",
        "text of numbers",
        "a column is absent",
        "a column too many",
        "an id twice",
        "no rows",
    ],
)
def test_what_is_wrong_is_found_before_anything_is_paid(
    agt: Agt, home: Path, many: Callable[[], None], change: dict[str, object], words: str | None
) -> None:
    many()
    inputs = asked(**change)
    if not change:
        pd.read_parquet("q.parquet").iloc[:0].to_parquet("q.parquet")
    agt("predict", f"run={home / 'run'}", inputs, *EACH, "-q").ended(2 if words else 0, words or "")
    assert bool(list(Path("outputs").rglob("spent.json"))) is (words is None)
    assert words is None or not list(Path("outputs").rglob("labels*"))


def test_a_file_that_is_replaced_under_way(
    agt: Agt, home: Path, many: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was looked through and paid for: the debit stands, and nobody sees half of an
    answer.
    """
    real = spending.write_spent
    # an estimate that looks at few holds few
    monkeypatch.setattr("agt_cli.releasing.worth.MAX_RECORDS_LINEAR", 5)
    monkeypatch.setattr(
        spending, "write_spent", lambda *given: (real(*given), asked(x0=np.zeros(N)))
    )
    many()
    agt("predict", f"run={home / 'run'}", asked(), *EACH).ended(1, "q.parquet: ", "spent.json")
    assert only("*/spent.json")
    assert not list(Path("outputs").rglob("labels*"))


def test_a_disk_that_runs_full_under_way(
    agt: Agt, home: Path, many: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = _HashingFile.write
    left = [3]

    def full(self: _HashingFile, content: bytes) -> int:
        left[0] -= "labels" in str(self._file.name)
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return write(self, content)

    monkeypatch.setattr(_HashingFile, "write", full)
    many()
    agt("predict", f"run={home / 'run'}", asked(), *EACH).ended(1, "labels.parquet: ", "spent.json")
    assert not list(Path("outputs").rglob("labels*"))
    assert json.loads((only("*/status.json")).read_text())["state"] == "failed"


@pytest.mark.sweep  # one release is killed in make test (test_spending.py)
def test_killed_in_the_middle_of_the_answers(agt: Agt, home: Path) -> None:
    kill = (
        f"{MANY}\nfrom agt.mechanisms.mechanism import Mechanism\nreal, left = "
        "Mechanism.release, [3]\n"
    )
    kill += "def release(*given, **more):\n  left[0] -= 1\n"
    kill += (
        "  return os.kill(os.getpid(), 9) if left[0] < 0 else real(*given, **more)\n"
        "Mechanism.release = release"
    )
    assert child(kill, "predict", f"run={home / 'run'}", asked(), *EACH).returncode == -9
    folder = only("*/spent.json").parent
    assert json.loads((folder / "status.json").read_text())["state"] == "running"
    assert not (folder / "labels.parquet").exists()
    assert len(list(folder.glob("labels.parquet.part*"))) == 1, (
        "what it was writing, under a name that nobody reads"
    )
    said = agt("predict", f"run={home / 'run'}", asked(), *EACH)
    assert f"({folder}, " in said.out, "an earlier attempt"
    assert "running" in said.out
