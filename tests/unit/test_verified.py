"""The auditor's reader: what lies in a folder, against its manifest, whatever was put there."""

import json
import os
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from agt.errors import ConfigError
from agt.store.folder import NewFolder
from agt.store.json_text import parse_object
from agt.store.manifest import MANIFEST_FILE, Manifest, seal_manifest
from agt.store.reading import Broken, read_file
from agt.store.yaml_text import parse_yaml
from agt_cli.report.markdown import CheckState, Findings, excerpt
from agt_cli.verify import folders
from agt_cli.verify.folders import Record, inventory
from agt_cli.verify.labels import read_labels

FILES = {"a.json": b"{}", "b.bin": bytes(range(256)), "deep/er/c.txt": b"words", "empty": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole folder."""
    new = NewFolder(tmp_path / "folder", "train")
    for name, content in FILES.items():
        new.write(name, content)
    new.finish()
    return tmp_path / "folder"


def look(folder: Path, digest: str | None = None) -> tuple[Record | None, dict[str, str]]:
    """The folder as it is read, and its problems."""
    findings = Findings()
    bound = Record.bind(folder, digest, findings, lambda done, files: None)
    return bound, {
        check.name: check.words for check in findings.checks if check.state is CheckState.PROBLEM
    }


def test_what_is_read_is_what_was_hashed(folder: Path) -> None:
    """A file that is exchanged between the two is not used."""
    bound, problems = look(folder)
    assert not problems
    assert bound is not None
    assert all(bound.read(name) == content for name, content in FILES.items())
    (folder / "a.json").write_bytes(b"[]")
    with pytest.raises(ConfigError, match=r"a\.json "):
        bound.read("a.json")


WAYS: dict[str, Callable[[Path, Path], object]] = {
    "edited": lambda path, other: path.write_bytes(bytes([*path.read_bytes()[:-1], 1])),
    "longer": lambda path, other: path.write_bytes(path.read_bytes() + b"\n"),
    "removed": lambda path, other: path.unlink(),
    "swapped": lambda path, other: path.write_bytes(other.read_bytes()),
    "a link to the same bytes": lambda path, other: (
        path.rename(path.parent / ".kept"),
        path.symlink_to(".kept"),
    ),
    "a link that leads nowhere": lambda path, other: (path.unlink(), path.symlink_to("nowhere")),
    "a pipe": lambda path, other: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path, other: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FILES)
def test_every_change_of_every_file_is_named(folder: Path, name: str, way: str) -> None:
    WAYS[way](folder / name, folder / ("b.bin" if name != "b.bin" else "empty"))
    bound, problems = look(folder)
    assert problems["files"].startswith(name), problems
    assert bound is not None
    with pytest.raises(ConfigError, match=rf"{name} "):
        bound.read(name)


def test_a_link_on_the_way_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "deep").rename(tmp_path / "away")
    (folder / "deep").symlink_to(tmp_path / "away")
    problems = look(folder)[1]
    assert problems["files"].startswith("deep/er/c.txt ")
    assert "deep (a link)" in problems["nothing else"]


def test_what_is_not_listed_is_named(folder: Path) -> None:
    (folder / "checkpoint").mkdir()
    for left in ("checkpoint/state.npz", "lock"):  # by a run: a note
        (folder / left).write_bytes(b"")
    (folder / "nowhere").mkdir()
    assert not look(folder)[1], "an empty folder says nothing to anybody"
    (folder / "deep/more.txt").write_text("")
    os.mkfifo(folder / "pipe")
    problems = look(folder)[1]
    assert set(problems) == {"nothing else"}
    assert "deep/more.txt" in problems["nothing else"]
    assert "pipe (a pipe)" in problems["nothing else"]


def test_the_digest_is_compared(folder: Path) -> None:
    digest = Manifest.read((folder / MANIFEST_FILE).read_bytes()).digest
    assert not look(folder, digest)[1]
    files = json.loads((folder / MANIFEST_FILE).read_bytes())["files"]
    (folder / MANIFEST_FILE).write_bytes(seal_manifest({"command": "predict", "files": files}))
    assert not look(folder)[1], "sealed again by hand: only the digest can tell"
    assert set(look(folder, digest)[1]) == {"digest"}


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b"[" * 10**5, b"\xff", b'{"files": {}, "files": {}}', None),
        *(
            # leads out of the folder
            seal_manifest({"command": "train", "files": {name: 64 * "0"}})
            for name in ("../outside", "/etc/passwd", "a/../../b", "./a", "a//b", MANIFEST_FILE)
        ),
    ],
)
def test_a_manifest_that_is_none_stops_there(folder: Path, content: bytes | None) -> None:
    (folder / MANIFEST_FILE).unlink()
    os.mkfifo(folder / MANIFEST_FILE) if content is None else (folder / MANIFEST_FILE).write_bytes(
        content
    )
    bound, problems = look(folder)
    assert bound is None
    assert set(problems) == {"manifest"}


def test_a_file_beyond_measure_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "b.bin").open("r+b") as file:
        file.truncate(2**40)  # no bytes on the disk
    assert "1,099,511,627,776 bytes" in look(folder)[1]["files"]
    with pytest.raises(Broken, match=r"b\.bin .*16,777,216"):
        read_file(folder / "b.bin")


def test_a_folder_beyond_measure_is_not_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_ENTRIES", 10)
    for number in range(20):
        (folder / f"{number}").write_bytes(b"")
    deepest = folder / "/".join(["d"] * 40)
    deepest.mkdir(parents=True)
    (deepest / "file").write_text("")
    assert list(inventory(folder / "d").values()) == ["a folder"], "depth ends somewhere"
    with pytest.raises(Broken, match=r"\b10 files"):
        inventory(folder)
    assert re.search(r"\b10\b", look(folder)[1]["nothing else"])


@pytest.mark.parametrize(
    "content",
    [
        *(b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -1e999}'),
        b'{"a": ' + b"9" * 5000 + b"}",
        *(b"[" * 10**5, b'{"a": ' * 10**5, b"[1]", b"1", b"", b"\xff\xfe{", b"\xef\xbb\xbf{}"),
    ],
)
def test_json_that_nobody_should_read(content: bytes) -> None:
    with pytest.raises(Broken, match=r"^x\.json "):
        parse_object(content, "x.json")


@pytest.mark.parametrize(
    "content",
    [
        *(b"a: &x [1]\nb: "
          b"*x", b"a: 1\na: "
                               b"2", b"a: {b: 1, b: "
                                              b"2}", b"!!python/name:os.system "
                                                                  b"''", b"a: " + b"[" * 10**4),
        *(b"- 1", b"", b"\xff", b"a: \x00", b"a: [", b"{[1]: 2}", b"a: " + b"x" * 2**20),
    ],
)  # fmt: skip
def test_yaml_that_nobody_should_read(content: bytes) -> None:
    with pytest.raises(Broken, match=r"^x\.yaml "):
        parse_yaml(content, "x.yaml")
    assert parse_yaml(b"a: ${oc.env:HOME}\nb: 1.0e-05\n", "x.yaml") == {
        "a": "${oc.env:HOME}",
        "b": 1e-5,
    }


@given(st.text(max_size=50))
def test_visible_text_acts_on_nothing(text: str) -> None:
    shown = excerpt(text)
    assert shown.isprintable()
    assert excerpt(shown) == shown
    assert excerpt("a\x1b[31m\u202e\udcff") == "a\\x1b[31m\\u202e\\udcff"
    assert excerpt("x" * 10**6, 5) == "xxxxx... (1,000,000 characters)"


# -- labels
# --------------------------------------------------------------------------------------------------


def labels(names: list[str], words: list[str], count: int | None = None, **how: Any) -> list[str]:
    """What is read of labels.parquet, of which metrics.json counts so many."""
    file = BytesIO()
    table = pa.table(
        [pa.array(column, pa.string()) for column in (names, words)], ["record_id", "label"]
    )
    pq.write_table(table, file, row_group_size=max(7, len(names) // 3), **how)
    counts = {"n_queries": 20 + len(names), "answered": len(names) if count is None else count}
    record = SimpleNamespace(
        holds="labels.parquet".__eq__, read=lambda name: file.getvalue(), metrics=counts, config={}
    )
    read = read_labels(cast(Record, record))
    assert read is not None
    return cast(list[str], read.to_pylist())


def test_labels_are_read_as_they_stand_and_no_more_of_them_than_were_counted() -> None:
    names = [str(n) for n in range(20)]
    words = [*"abcbbbb", *"cccccca", *"dbbbbd"]
    for how in (
        dict[str, Any](),
        {"use_dictionary": ["label"], "write_statistics": False},
        {"compression": "none"},
    ):
        assert labels(names, words, **how) == words
    assert labels([], []) == []
    with pytest.raises(Broken, match=r"labels\.parquet.*\b20\b.*\b21\b"):
        labels(names, words, 21)
    for content, how, wrong in (
        # a dictionary holds each once: a few hundred bytes
        ((["x"] * 100_000, ["a"] * 100_000), {}, r"labels\.parquet.*\b100000\b"),
        (
            (["1", "2"], ["a", "b"]),
            {"compression": "zstd"},
            r"labels\.parquet.*ZSTD.*SNAPPY",
        ),
    ):
        with pytest.raises(Broken, match=wrong):
            labels(*content, **how)
