"""What the data owner is told about data that hardly fits what was declared: on stderr, and in
the report of training.
"""

import json
from pathlib import Path

import pytest

from .conftest import Agt, Said

DATASET = (
    "dataset=table",
    "data_dir=.",
    "dataset.path=t.csv",
    "dataset.label=y",
    "dataset.split=part",
    "+dataset.numeric={a:[0,5]}",
    "+dataset.categorical={b:[x,y]}",
    "dataset.classes=[no,yes,maybe]",
    "dataset.declared_size=3000",
)
TINY = (
    *("model=linear", "training=generic", "certificate=box", "training.epochs=1"),
    *("dataset.bins=0", "kgrid.max=1", "compute.kernel=reference"),
)
CLIPPED = ("column 'a'", "16 of 40", "[0, 5]")
"""What a note names of values outside the range that their column was given."""


@pytest.fixture
def trained(agt: Agt) -> Said:
    lines = [
        f"{i % 10},{'xy'[i % 2]},{'no' if i % 3 else 'yes'},{'test' if i % 4 == 3 else 'train'}"
        for i in range(40)
    ]
    Path("t.csv").write_text("a,b,y,part\n" + "".join(f"{line}\n" for line in lines))
    said = agt("train", *DATASET, *TINY, "--json").ended(0)
    return said


def test_training_tells_the_owner_before_it_begins_and_in_the_report(trained: Said) -> None:
    notes = [line for line in trained.err.splitlines() if line.startswith("note: ")]
    for note, values in zip(
        notes, (CLIPPED, ("'maybe'",), ("dataset.declared_size",)), strict=True
    ):
        for value in values:
            assert value in note
    run = Path(trained.json["run"])
    assert json.loads((run / "metrics.json").read_text())["notes"] == 3
    assert "16 of 40" in (run / "report.md").read_text()
    for name in ("conditions.json", "env.json", "config.yaml"):
        assert "16 of 40" not in (run / name).read_text(), "no part of what a claim rests on"


@pytest.mark.parametrize("command", ["certify", "predict", "plan"])
def test_queries_that_were_clipped_or_unknown_are_counted(
    trained: Said, agt: Agt, command: str
) -> None:
    Path("q.csv").write_text("a,b,y\n3,x,no\n99,z,yes\n")
    more = {
        "predict": ("mechanism.eps=1", "accounting=paper", "force=true"),
        "plan": ("mechanisms=[randomized_response]", "eps=[1]", "queries=[1]"),
    }
    said = agt(
        command, f"run={trained.json['run']}", "inputs=q.csv", *more.get(command, ()), "--json"
    ).ended(0)
    of_a, of_b = (
        next(line for line in said.err.splitlines() if line.startswith(f"{column}: 1 of 2"))
        for column in "ab"
    )
    assert "3 to 99" in of_a
    assert "'z'" in of_b
    assert "to 99" not in said.out
    report = (Path(said.json["run"]) / "report.md").read_text()
    assert ("3 to 99" in report) == (command == "certify")


def test_queries_of_another_population(trained: Said, agt: Agt) -> None:
    Path("q.csv").write_text("a,b\n" + "3,x\n" * 30 + "9,z\n" * 10)
    said = agt("certify", f"run={trained.json['run']}", "inputs=q.csv", "--json")
    report = (Path(said.json["run"]) / "report.md").read_text()
    for text in (said.err, report):
        for values in ("10 of 40", "column 'a'", "'b'"):
            assert values in text
