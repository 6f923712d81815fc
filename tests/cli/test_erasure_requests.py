"""Requests to erase as the command reads them: who is meant, what is refused, and what is found
afterwards.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from agt.data.erasure import copy_groups
from agt.errors import ConfigError, DataError
from agt.unlearning.sentences import Remark
from agt_cli.report.opening import open_run
from agt_cli.runs.prepare import read_settings, stored_network
from agt_cli.unlearn.account import Place
from agt_cli.unlearn.ids_file import ListedId, read_ids
from agt_cli.unlearn.request import Request, request_for
from agt_cli.unlearn.traces import TraceTargets, search_places
from agt_cli.unlearn.training_records import TrainingRecords
from tests.cli.conftest import Agt


def other_runs(targets: TraceTargets, folder: Path, run: Path) -> Place:
    (place,) = search_places(targets, (folder,), run)
    return place


TABLE = (
    "train",
    "dataset=table",
    "dataset.path=t.csv",
    "dataset.label=y",
    "dataset.classes=[0,1]",
    "kgrid.max=2",
)
TABLE += (
    "+dataset.numeric={a: [-3,3], b: null}",
    "compute.kernel=reference",
    "training.epochs=1",
    "hydra.run.dir=run",
    "-q",
)
PEOPLE = ("dataset.id=id", "dataset.unit=person", "relation.unit_rows=3")


def people(n: int = 60) -> pd.DataFrame:
    chance = np.random.default_rng(0)
    names = {
        "id": [f"rec{i:03}" for i in range(n)],
        "person": [f"person{i // 3:02}" for i in range(n)],
    }
    numbers = {
        "a": chance.normal(size=n),
        "b": chance.normal(size=n),
        "y": chance.integers(0, 2, n),
    }
    return pd.DataFrame({**names, **numbers})


def known() -> TrainingRecords:
    run = open_run(Path("run"), "train")
    return TrainingRecords.of(run, read_settings(run.config, stored_network(run)))


def ask(of: TrainingRecords, *words: str, by: str | None = None) -> Request:
    Path("ids.txt").write_text("\n".join(words))
    request = request_for(of, read_ids("ids.txt", of.source), by, "ids.txt")  # type: ignore[arg-type]
    of.check(request.records)
    return request


def test_requests_of_people(agt: Agt) -> None:
    table = people()
    table.to_csv("t.csv", index=False)
    assert agt(*TABLE, *PEOPLE).code == 0
    of = known()
    train = of.data.train
    test = of.data.test
    one = str(train.units[0])
    other = str(train.units[5])
    tested = str(test.units[0])
    assert (len(ask(of, one, one, "").records), ask(of, one, one).asked) == (3, 1)
    (repeated,) = ask(of, one, one).notes
    assert "1 of 2 lines" in repeated
    (of_test,) = ask(of, one, tested).notes
    assert "1 of 2" in of_test
    assert len(ask(of, str(train.ids[0]), by="id").records) == 1
    for words, message in (
        (("x", one), r"ids=ids\.txt: .*1 of 2 ids \(line 1\).*by=id"),
        ((f"{one} {other}",), r"ids=ids\.txt: line 1 seems to list several ids"),
        (("person", one), r"ids=ids\.txt: line 1 is the name of the column"),
        ((f'"{one}"',), r"ids=ids\.txt: line 1 is an id in quotes"),
        ((f"‘{one}’",), r"ids=ids\.txt: line 1 is an id in quotes"),
        (("",), r"ids=ids\.txt: "),
        (tuple(train.units), r"ids=ids\.txt"),
        (tuple(train.units[train.labels == 1]), r"ids=ids\.txt"),
    ):
        with pytest.raises(ConfigError, match=message) as raised:
            ask(of, *words)
        assert one not in str(raised.value)
    public = replace(
        of, data=replace(of.data, train=replace(train, public=np.ones(len(train), dtype=bool)))
    )
    with pytest.raises(ConfigError, match=r"ids\.txt: 3 .*dataset\.public"):
        ask(public, one)
    table[table.person != one].to_csv("t.csv", index=False)
    assert len(ask(known(), one).records) == 3, "its rows are gone, and were asked for"
    with pytest.raises(DataError, match="lack 3 of the"):
        ask(known(), other)
    table.assign(a=table.a.where(table.person != other, 0.5)).to_csv("t.csv", index=False)
    with pytest.raises(DataError, match="3 records"):
        known()


@pytest.mark.parametrize("separator", [";", ",", "; ", " , "])
def test_a_line_with_several_ids_is_refused_without_naming_them(agt: Agt, separator: str) -> None:
    people().to_csv("t.csv", index=False)
    assert agt(*TABLE, *PEOPLE).code == 0
    of = known()
    one, other, third = (str(unit) for unit in np.unique(of.data.train.units)[:3])
    with pytest.raises(ConfigError, match="line 2 seems to list several ids") as raised:
        ask(of, third, separator.join((one, other)))
    assert not any(unit in str(raised.value) for unit in (one, other, third))


def test_ids_of_a_table(agt: Agt) -> None:
    people().to_csv("t.csv", index=False)
    assert agt(*TABLE, *PEOPLE).code == 0
    of = known()
    pd.DataFrame({"since": [1], "person": [of.data.train.units[0]]}).to_parquet("who.parquet")
    assert read_ids("who.parquet", of.source) == [ListedId(str(of.data.train.units[0]), "row 1")]
    pd.DataFrame({"who": [of.data.train.units[0]]}).to_csv("who.csv", index=False)
    with pytest.raises(ConfigError, match=r"who\.csv"):
        read_ids("who.csv", of.source)


def test_ids_with_blanks_and_odd_line_ends(agt: Agt) -> None:
    """Each as the data has it; blanks that it has not are left out."""
    table = people()
    odd = [" lead", "trail ", "next\x85line", "para\u2029graph", "file\x1cmark", "tab\tinside"]
    table["id"] = [odd[i % len(odd)] + (f"{i}" if i >= len(odd) else "") for i in range(len(table))]
    table.to_csv("t.csv", index=False)
    assert agt(*TABLE, "dataset.id=id").code == 0
    of = known()
    names = [str(name) for name in of.data.train.ids]
    assert any(name.startswith(" ") for name in names)
    for name in names[:30]:
        request = ask(of, name)
        assert len(request.records) == 1
        assert not request.notes
        if name == name.strip():
            padded = ask(of, f" \t{name}  ")
            assert padded.records == request.records
            assert "1 of 1" in padded.notes[0], "taken without the blanks around it"
    Path("ids.txt").write_bytes("\r\n".join(names[:4]).encode() + b"\r\n\r")
    assert len(request_for(of, read_ids("ids.txt", of.source)).records) == 4


def test_of_copies_the_last_one_goes(agt: Agt) -> None:
    rows = people(20).drop(columns=["id", "person"]).assign(b=0.5)
    table = pd.concat([rows] * 3).sort_values("a").reset_index(drop=True)
    table.to_csv("t.csv", index=False)
    assert agt(*TABLE).code == 0
    of = known()
    train = of.data.train
    names = copy_groups(of.source, train)
    copies = np.flatnonzero(names == names[0])
    request = ask(of, str(train.ids[copies[0]]))
    assert request.records == (of.index.words[copies[2]],)
    assert len(request.notes) == 1, "which of them goes"
    both = ask(of, *map(str, train.ids[copies[:2]]))
    assert set(both.records) == {of.index.words[copies[1]], of.index.words[copies[2]]}
    path = Path("t.csv")
    name = str(train.ids[copies[0]])
    lines = path.read_text().splitlines(keepends=True)
    # the row of these copies: the one without which their ids are gone
    for line in dict.fromkeys(lines[1:]):
        path.write_text("".join(other for other in lines if other != line))
        if name not in of.source.load().train.ids:
            break
    lines.remove(line)
    path.write_text("".join(lines))
    later = known()
    assert later.missing.tolist() == [copies[2]], (
        "whichever row is deleted, the last number is gone"
    )
    assert ask(later, name).records == request.records
    alone = next(str(each) for each in train.ids if each not in train.ids[copies])
    with pytest.raises(DataError, match="lack 1 of the"):
        ask(later, alone)


def test_other_runs_say_whether_they_were_trained_on_erased_records(
    agt: Agt, tmp_path: Path
) -> None:
    people().to_csv("t.csv", index=False)
    assert agt(*TABLE, *PEOPLE).code == 0
    assert agt(*TABLE[:-2], *PEOPLE, "hydra.run.dir=outputs/train/other", "-q").code == 0
    asked = TraceTargets((str(known().data.train.units[0]),))
    assert other_runs(asked, Path("outputs"), Path("run")).found == 3
    assert other_runs(TraceTargets(("nobody",)), Path("outputs"), Path("run")).found == 0


def test_a_training_whose_network_is_refused_is_no_trace(
    agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the network takes records of another shape is known once the data are read."""
    (tmp_path / "wide.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Sequential(nn.Linear(7, 2))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wide", raising=False)
    model = ("model=custom", "model._target_=wide.make", "certificate=box")
    training = ("training=generic", "training.epochs=1", "training.lr=1", "kgrid.max=2")
    clip = "training.clip_elementwise=0.1"
    agt("train", *model, *training, clip).ended(2, "cannot be trained on records of shape (6,)")
    assert not list((tmp_path / "outputs").rglob("status.json"))
    assert other_runs(TraceTargets(()), tmp_path, Path("run")).found == 0


def test_trainings_that_were_stopped_are_named(tmp_path: Path) -> None:
    """A checkpoint holds weights of whoever it was trained on, and nothing tells who that was."""
    left = (
        "train/a/checkpoint/run.json",
        "train/b/checkpoint/members/003/step=000000000017.0.safetensors",
    )
    left += ("own/step=000000000001.0.safetensors",)
    for number, name in enumerate(left, 1):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
        place = other_runs(TraceTargets(()), tmp_path, Path("run"))
        assert (place.found, place.runs) == (number, number)
    unfinished = {"runs": ("own", "train/a/checkpoint", "train/b/checkpoint")}
    assert Remark("training_unfinished", unfinished) in place.remarks
    for name in left:
        (tmp_path / name).unlink()
    assert other_runs(TraceTargets(()), tmp_path, Path("run")).remarks == (Remark("no_other_runs"),)
