"""Prepared folders: written in chunks, resumed, refused when anything about them is not as it should be."""

import json
import resource
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agt.data.dataset import DataError
from agt.data.embeddings import Embeddings, read_prepared
from agt.errors import ConfigError, DataMissing
from agt.store import seal, unseal
from experiments.folder import open_folder

X = np.arange(40, dtype=np.float32).reshape(10, 4)
SETTINGS = {"prepare": {"pooling": "mean", "range": [0, 1]}, "files": {"bytes": 9}}
COLUMNS = {"x": ((10, 4), "<f4"), "label": ((10,), "|u1"), "id": ((10,), "<U2"), "is_test": ((10,), "|b1")}
ALONE = {"rows": {"held": True, "why": "each on its own"}, "units": {"held": False, "why": "units were mixed"}}


def write(out: Path, until: int = 5, settings: Any = SETTINGS, columns: Any = COLUMNS) -> list[int]:
    """Write two rows a chunk, up to ``until`` chunks in all; returns the chunks written here."""
    with open_folder(out, settings) as folder:
        if folder.finished:
            return []
        folder.allocate(columns)
        folder.write("label", 0, np.arange(10) % 2)
        folder.write("id", 0, np.array([f"r{i}" for i in range(10)]))
        folder.write("is_test", 0, np.arange(10) > 6)
        chunks = list(range(folder.done, until))
        for chunk in chunks:
            folder.write("x", 2 * chunk, X[2 * chunk : 2 * chunk + 2])
            folder.finish_chunk()
        if until == 5:
            folder.finish({"alone": ALONE})
        return chunks


OLD = json.dumps({"settings": SETTINGS, "arrays": {"x": {"shape": [10, 4], "dtype": "<f4"}}, "alone": ALONE}, indent=2)


def flip(path: Path, place: int) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit prepared.json by hand, as json that is in order."""
    prepared = json.loads((folder / "prepared.json").read_text())
    change(prepared)
    (folder / "prepared.json").write_text(json.dumps(prepared, indent=2) + "\n")


def reseal(folder: Path, **changes: Any) -> None:
    """Another prepared.json whose checksum is right; None drops a key."""
    content = {**unseal((folder / "prepared.json").read_bytes()), **changes}
    (folder / "prepared.json").write_bytes(seal({key: value for key, value in content.items() if value is not None}))


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    assert write(tmp_path / "deep" / "d") == [0, 1, 2, 3, 4]
    assert np.array_equal(np.load(tmp_path / "deep" / "d" / "x.npy"), X)
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"d"}
    names = {path.name for path in (tmp_path / "deep" / "d").iterdir()}
    assert names == {"x.npy", "label.npy", "id.npy", "is_test.npy", "prepared.json"}
    assert read_prepared(tmp_path / "deep" / "d")["settings"] == SETTINGS


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    assert write(tmp_path / "d", until=3) == [0, 1, 2]
    assert not (tmp_path / "d").exists(), "what is not whole has not got its name"
    assert write(tmp_path / "d") == [3, 4]
    assert np.array_equal(np.load(tmp_path / "d" / "x.npy"), X)
    assert write(tmp_path / "d") == [], "a finished folder is left alone"


@pytest.mark.parametrize("until", [2, 5])
def test_changed_settings_are_refused_and_named(tmp_path: Path, until: int) -> None:
    write(tmp_path / "d", until)
    with pytest.raises(ConfigError, match=r"prepare\.pooling=mean, and now prepare\.pooling=last"):
        write(tmp_path / "d", settings={**SETTINGS, "prepare": {"pooling": "last", "range": [0, 1]}})
    with pytest.raises(ConfigError, match=r"prepare\.range=\[0, 1\], and now prepare\.range=\[0, 2\]"):
        write(tmp_path / "d", settings={**SETTINGS, "prepare": {"pooling": "mean", "range": [0, 2]}})
    assert write(tmp_path / "d") == ([2, 3, 4] if until == 2 else []), "and with the old ones it goes on"


def test_a_small_disk_is_noticed_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**40, 2**40, 50 * 2**20))
    large = {**COLUMNS, "x": ((10_000_000, 4), "<f4")}
    with pytest.raises(
        DataError, match=r"152\.\d MiB are still to be written and the disk has 50\.0 MiB free.*prepare\.out"
    ):
        write(tmp_path / "d", columns=large)
    assert not list(tmp_path.glob("d.part/*.npy"))
    assert write(tmp_path / "d") == [0, 1, 2, 3, 4], "a small one still fits"


@pytest.mark.parametrize("limit", [100, 200], ids=["making the file", "filling it"])
def test_a_disk_that_fills_up_on_the_way_names_the_file_and_loses_nothing(tmp_path: Path, limit: int) -> None:
    """A limit on the size of files stands in for the full disk: both fail in the same calls."""
    assert write(tmp_path / "d", until=0 if limit == 100 else 2) == list(range(0 if limit == 100 else 2))
    if limit == 100:
        shutil.rmtree(tmp_path / "d.part")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write(tmp_path / "d")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(tmp_path / "d") in str(caught.value.filename)
    write(tmp_path / "d")
    assert np.array_equal(np.load(tmp_path / "d" / "x.npy"), X)


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    with open_folder(tmp_path / "d", SETTINGS), pytest.raises(ConfigError, match="another process is preparing"):
        write(tmp_path / "d")


def test_foreign_and_damaged_files_are_named(tmp_path: Path) -> None:
    write(tmp_path / "d", until=2)
    np.save(tmp_path / "d.part" / "x.npy", X[:5])
    with pytest.raises(DataError, match=r"x\.npy: not the array .* \(5, 4\), expected float32 \(10, 4\).*delete"):
        write(tmp_path / "d")
    (tmp_path / "d.part" / "progress.json").write_text('{"done": 2')
    with pytest.raises(DataError, match=r"progress\.json: cannot be read: delete"):
        write(tmp_path / "d")
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match=r"other: no prepared\.json in it"):
        write(tmp_path / "other")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "x.npy").unlink(), r"x\.npy: gone, truncated or not"),
        (lambda d: (d / "x.npy").write_bytes((d / "x.npy").read_bytes()[:-8]), r"x\.npy: gone, truncated"),
        (lambda d: np.save(d / "label.npy", np.zeros(9, dtype=np.uint8)), r"label\.npy: uint8 \(9,\), and prepared"),
        (lambda d: (d / "prepared.json").write_text("{"), r"prepared\.json: damaged, edited, or made by another version"),
        (
            lambda d: flip(d / "x.npy", -3),
            r"x\.npy: its content is not what was prepared .*delete .* prepare the data again",
        ),
        (lambda d: flip(d / "label.npy", 20), r"label\.npy: "),
        (
            lambda d: np.save(d / "label.npy", np.zeros(10, dtype=np.uint8)),
            r"label\.npy: its content is not what was prepared",
        ),
        (lambda d: np.save(d / "public.npy", np.ones(10, dtype=bool)), r"public\.npy: not an array that was prepared"),
        (lambda d: edit(d, lambda p: p["alone"]["units"].update(held=True)), r"prepared\.json: damaged, edited"),
        (lambda d: edit(d, lambda p: p.pop("format")), r"prepared\.json: damaged, edited"),
        (
            lambda d: edit(d, lambda p: p.pop("sha256")),
            r"prepared\.json: .*made by another version .*no checksum of itself",
        ),
        (lambda d: (d / "prepared.json").write_text(OLD), r"prepared\.json: .*made by another version .*prepare the data"),
        (lambda d: reseal(d, format=3), r"prepared\.json: of format 3, and this version of agt reads 2: delete"),
        (lambda d: (d / "prepared.json").write_text("[]"), r"prepared\.json: damaged"),
    ],
)
def test_a_damaged_folder_is_not_trained_on(tmp_path: Path, damage: Any, message: str) -> None:
    write(tmp_path / "d")
    damage(tmp_path / "d")
    with pytest.raises(DataError, match=message):
        Embeddings(path=tmp_path / "d", is_test="is_test", id="id", id_permanent=True).load()


def test_unfinished_and_absent_folders_say_what_to_run(tmp_path: Path) -> None:
    source = Embeddings(path=tmp_path / "d", is_test="is_test", obtain="agt data prepare imdb")
    with pytest.raises(DataMissing, match=r"d is not there: make it with: agt data prepare imdb;") as caught:
        source.load()
    assert caught.value.exit_code == 4
    write(tmp_path / "d", until=2)
    for path in (tmp_path / "d", tmp_path / "d.part"):
        with pytest.raises(DataMissing, match=r"has not finished; the same command goes on with it: agt data prepare imdb"):
            Embeddings(path=path, is_test="is_test", obtain="agt data prepare imdb").load()


def test_conditions_come_with_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "d")
    rows = Embeddings(path=tmp_path / "d", is_test="is_test", id="id", id_permanent=True).load()
    assert rows.selection.held
    assert "each on its own" in rows.selection.why
    assert rows.train.ids.tolist() == [f"r{i}" for i in range(7)]
    assert isinstance(rows.train.features.base, np.memmap)
    units = Embeddings(path=tmp_path / "d", is_test="is_test", id="id", unit="id", id_permanent=True).load()
    assert not units.selection.held
    assert "units were mixed" in units.selection.why
    reseal(tmp_path / "d", alone=None)
    assert not Embeddings(path=tmp_path / "d", is_test="is_test").load().selection.held, "silence is no promise"
