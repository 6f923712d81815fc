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
CLIPPED = (
    "note: column 'a': 16 of 40 values outside [0, 5] are clipped to it (they go from 0 to 9).\n"
)


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
    assert trained.err.startswith(
        CLIPPED + "note: no training record has the class 'maybe'.\nnote: dataset.declared_size is"
    )
    run = Path(trained.json["run"])
    assert json.loads((run / "metrics.json").read_text())["notes"] == 3
    section = (run / "report.md").read_text().split("## For the data owner")[1].split("\n## ")[0]
    assert "not for publication" in section
    assert "- column 'a': 16 of 40 values outside" in section
    for name in ("conditions.json", "env.json", "config.yaml"):
        assert "values outside" not in (run / name).read_text(), (
            "a note is no part of what a claim rests on"
        )


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
    lines = said.err.splitlines()
    assert "a: 1 of 2 values (rate .500) outside [0, 5], seen: 3 to 99" in lines
    assert "b: 1 of 2 values (rate .500) outside the 2 listed, seen: 'z'" in lines
    assert "to 99" not in said.out
    report = (Path(said.json["run"]) / "report.md").read_text()
    assert ("- a: 1 of 2 values (rate .500) outside \\[0, 5\\], seen: 3 to 99" in report) == (
        command == "certify"
    )


def test_queries_of_another_population(trained: Said, agt: Agt) -> None:
    Path("q.csv").write_text("a,b\n" + "3,x\n" * 30 + "9,z\n" * 10)
    said = agt("certify", f"run={trained.json['run']}", "inputs=q.csv", "--json")
    report = (Path(said.json["run"]) / "report.md").read_text()
    for line in (
        "10 of 40 values of column 'a' lie outside",
        "'b' lie outside the 2 listed, as of another population",
    ):
        assert line in said.err
        assert line in report
