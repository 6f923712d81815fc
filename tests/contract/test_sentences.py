"""No sentence of ours is read back: commands run, and verify records, while each reading of one
raises.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import NOTES, READING, ReadBack, Sentence, guard, guarded

import agt_cli.commands.verify  # noqa: F401
from agt import sentences
from agt.facts import declared, evidence, not_held
from agt_cli.cli import main

PUBLIC = "training.chosen_on=public"
TINY = (
    "dataset.n_train=80",
    "training.epochs=2",
    "kgrid.max=3",
    "compute.kernel=reference",
    PUBLIC,
    "model=linear",
)
HEAD = (
    *TINY,
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
    "training.momentum=0",
    "certificate=stability",
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "train/box": ("train", *TINY),
    "train/head": ("train", *HEAD),
    "train/noise": ("train", *TINY, "noise.epsilon=1", "training.clip=0.05"),
    "certify/c": ("certify", "run=train/box", "map_resolution=0"),
    "predict/labels": ("predict", "run=train/box", "mechanism.eps=1"),
    "predict/number": (
        "predict",
        "run=train/box",
        "mechanism=certified_quantile",
        "mechanism.eps=1",
    ),
    "predict/simulated": ("predict", "run=train/box", "mechanism.eps=1", "seed=3"),
    "predict/weights": (
        "predict",
        "run=train/head",
        "mechanism=release_weights",
        "total.eps=1",
        "total.delta=1e-5",
    ),
    "predict/answers": ("predict", "release=predict/weights/release", "inputs=queries.npz"),
    "ledgers": (
        "ledger",
        "init",
        "people",
        "run=train/head",
        "total.eps=1",
        "total.delta=1e-5",
        "unit=one person",
    ),
    "predict/paid": (
        "predict",
        "run=train/head",
        "inputs=queries.npz",
        "ledger=people",
        "mechanism.eps=0.1",
    ),
}


class TestTheGuard:
    """It would notice: these readings raise where our own code makes them, and nowhere else."""

    def read(self, expression: str, **values: Any) -> Any:
        """What an expression gives in a module of ours."""
        return eval(expression, {"__name__": "agt.reader", "re": re, **values})

    @pytest.mark.parametrize("method", READING)
    def test_a_reading_raises(self, method: str) -> None:
        given = {"__getitem__": "0", "replace": "'a', 'b'", "__iter__": "", "splitlines": ""}.get(
            method, "'a'"
        )
        with pytest.raises(ReadBack):
            self.read(f"line.{method}({given})", line=Sentence("a b"))

    @pytest.mark.parametrize(
        "expression", ["'a' in line", "line == 'a'", "'a' == line", "line in ('a', 'b')"]
    )
    def test_an_operator_raises(self, expression: str) -> None:
        with pytest.raises(ReadBack):
            self.read(expression, line=Sentence("a b"))

    def test_a_pattern_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        guard(monkeypatch)
        for expression in ("re.sub('a', 'b', line)", "re.search('a', line)"):
            with pytest.raises(ReadBack):
                self.read(expression, line=Sentence("a b"))

    def test_a_template_of_the_room_is_guarded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        guard(monkeypatch)
        assert type(sentences.budget(1.0, 0.0)) is Sentence
        assert type(sentences.SCOPE) is Sentence

    def test_what_a_fact_says_is_guarded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        guard(monkeypatch)
        known = declared("classes_public", setting="dataset.classes")
        told = evidence(known, not_held("grid_sparse"))
        assert {
            type(text)
            for text in (known.sentence, known.broken_by, known.words, told.why, told.missing)
        } == {Sentence}

    def test_a_reading_is_noted_whoever_catches_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(NOTES, str(tmp_path / "notes"))
        with pytest.raises(ReadBack):
            self.read("'a' in line", line=Sentence("a b"))
        noted = (tmp_path / "notes").read_text()
        assert "__contains__" in noted
        assert "a b" in noted

    def test_what_lays_text_out_may_read(self) -> None:
        assert guarded("a b").split() == ["a", "b"]
        assert f"{guarded('a')}; {guarded('b')}" == "a; b"
        assert json.dumps(guarded(["a"])) == '["a"]'


def test_commands_read_no_sentence_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("queries.npz", x=np.arange(6.0).reshape(3, 2), id=np.array(["a", "b", "c"]))
    guard(monkeypatch)
    for name, words in COMMANDS.items():
        place = [] if name == "ledgers" else [f"hydra.run.dir={name}"]
        assert main([*words, *place]) == 0, (name, capsys.readouterr().err)
    for name in COMMANDS:
        if name != "ledgers":
            assert main(["verify", name]) == 0, (name, capsys.readouterr())
    assert main(["verify", "predict/weights/release"]) == 0
    assert main(["verify", "ledgers/people.ledger"]) == 0
    assert main(["runs", "output_dir=.", "limit=null"]) == 0
    said = capsys.readouterr()
    assert "report.md" in said.out
    Path("predict/labels/manifest.json").unlink()
    assert main(["verify", "predict/labels"]) == 3
