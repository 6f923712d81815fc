"""make paper on small files in the official formats: what is there is said, what is missing is left
out, and what is finished is not run again.
"""

import gzip
import json
import struct
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from agt_cli._experiments.amex_like import make
from agt_cli._experiments.entry import Entry

from agt.data.images import Digits
from agt.errors import DataError
from agt_cli._experiments import reproduce
from agt_cli.cli import INTERRUPTED

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import official_files
import paper

IMAGES = "t10k-images-idx3-ubyte.gz"
LABELS = "t10k-labels-idx1-ubyte.gz"
ONE_FIGURE = ["imdb:001_fig8", "removal:003_table1"]
CHANGED = ["imdb:training.lr=0.1"]


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write uint8 values as MNIST's files have them."""
    header = struct.pack(f">{1 + values.ndim}I", 0x800 + values.ndim, *values.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + values.astype(np.uint8).tobytes())


def write_official_files(folder: Path) -> None:
    """Write small files in the official formats: MNIST, OCT-MNIST, AMEX, and vectors of reviews."""
    images = np.zeros((300, 28, 28), np.uint8)
    pixels, digits = Digits()._read()
    images[:, 6:22, 6:22] = np.kron(pixels[:300].reshape(-1, 8, 8), np.ones((2, 2))) * 15
    labels = digits[:300]
    for part, rows in (("train", slice(0, 200)), ("t10k", slice(200, 300))):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images[rows])
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels[rows])
    classes = (labels % 4).astype(np.uint8)[:, None]
    splits = {"train": slice(0, 150), "val": slice(150, 200), "test": slice(200, 300)}
    arrays = {f"{split}_images": images[rows] for split, rows in splits.items()}
    arrays |= {f"{split}_labels": classes[rows] for split, rows in splits.items()}
    np.savez(folder / "octmnist.npz", **arrays)
    make(folder, 200, "csv")
    write_vectors(folder)


def write_vectors(folder: Path, seed: int = 0) -> None:
    """Write vectors of reviews that somebody made."""
    draws = np.random.default_rng(seed)
    label = draws.integers(0, 2, 100)
    x = draws.normal(size=(100, 6)).astype(np.float32) + label[:, None]
    np.savez(folder / "imdb_gpt2.npz", x=x, label=label, is_test=np.arange(100) % 5 == 0)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    folder = tmp_path / "official"
    folder.mkdir()
    write_official_files(folder)
    return folder


def file_of(name: str) -> official_files.OfficialFile:
    """Return what is known of one official file."""
    files = {file.name: file for data in official_files.data_sets().values() for file in data.files}
    return files[name]


def state(folder: Path, name: str) -> str:
    """Return the state of one file in a folder."""
    return official_files.look(file_of(name), folder).state


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (IMAGES, "other"),
        ("octmnist.npz", "other"),
        ("train_data.csv", "not checked"),
        ("imdb_gpt2.npz", "not checked"),
        ("aclImdb_v1.tar.gz", "missing"),
    ],
)
def test_a_file_is_as_far_checked_as_something_is_published(
    official: Path, name: str, expected: str
) -> None:
    assert state(official, name) == expected


def test_a_file_with_the_published_digest_is_official(official: Path) -> None:
    digest = md5((official / IMAGES).read_bytes()).hexdigest()
    file = replace(file_of(IMAGES), md5=digest)
    assert official_files.look(file, official).state == "official"


@pytest.mark.parametrize("name", [IMAGES, "octmnist.npz"])
def test_a_truncated_file_is_damaged(official: Path, name: str) -> None:
    path = official / name
    path.write_bytes(path.read_bytes()[:-200])
    assert state(official, name) == "damaged"


@pytest.mark.parametrize("name", [IMAGES, "octmnist.npz", "train_data.csv", "aclImdb_v1.tar.gz"])
def test_another_file_under_the_official_name_is_damaged(official: Path, name: str) -> None:
    (official / name).write_bytes((official / "imdb_gpt2.npz").read_bytes())
    assert state(official, name) == "damaged"


def test_labels_in_place_of_images_are_no_images(official: Path, tmp_path: Path) -> None:
    (official / IMAGES).write_bytes((official / LABELS).read_bytes())
    mnist = official_files.data_sets()["mnist"]
    files = tuple(official_files.look(file, official) for file in mnist.files)
    with pytest.raises(DataError):
        official_files.prepare(mnist, files, tmp_path / "work", trial=True)


def test_reviews_come_from_the_archive_and_from_the_hubs_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2").mkdir()
    texts = {"train/pos/0_9": "good", "train/neg/1_2": "bad", "test/pos/0_8": "fine"}
    with tarfile.open(tmp_path / "aclImdb_v1.tar.gz", "w:gz") as archive:
        for name, text in texts.items():
            path = tmp_path / "review.txt"
            path.write_text(text)
            archive.add(path, f"aclImdb/{name}.txt")
        archive.add(path, "aclImdb/train/unsup/0_0.txt")  # has no label
    for split in ("train", "test"):
        table = pd.DataFrame({"text": [f"{split} text"], "label": [1]})
        table.to_parquet(tmp_path / f"{split}-00000-of-00001.parquet")
    commands = []
    monkeypatch.setattr(official_files, "_run_agt", lambda *words: commands.append(words))
    for choice in official_files.IMDB.choices[1:]:
        names = [file.name for file in choice]
        work = tmp_path / f"work of {len(commands)}"
        work.mkdir()
        official_files._prepare_imdb({name: tmp_path / name for name in names}, work, False)
    archive_rows = pyarrow.parquet.read_table(tmp_path / "work of 0/imdb_reviews.parquet")
    assert archive_rows.to_pylist() == [
        {"split": "test", "label": 1, "id": "0_8", "text": "fine"},
        {"split": "train", "label": 0, "id": "1_2", "text": "bad"},
        {"split": "train", "label": 1, "id": "0_9", "text": "good"},
    ]
    hub_rows = pyarrow.parquet.read_table(tmp_path / "work of 1/imdb_reviews.parquet")
    assert hub_rows["text"].to_pylist() == ["train text", "test text"]
    named = [[word for word in words if word.startswith("prepare.id=")] for words in commands]
    assert named == [["prepare.id=[split,label,id]"], ["prepare.id=null"]]


def test_an_experiment_without_its_files_is_left_out_and_the_files_are_named(
    official: Path, tmp_path: Path
) -> None:
    (official / LABELS).unlink()
    out = tmp_path / "out"
    code = paper.main([str(official), "--out", str(out), "--only", "removal:003_table1"])
    assert code == 0
    table = pd.read_csv(out / "paper.csv")
    assert list(table["published"]) == [0.04, 15.6]
    assert table["ours"].isna().all()
    assert table["why"].str.contains(LABELS, regex=False).all()


def test_without_trial_no_other_file_is_taken(official: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert paper.main([str(official), "--out", str(out), "--only", "removal:003_table1"]) == 0
    assert pd.read_csv(out / "paper.csv")["ours"].isna().all()


def test_amex_is_used_whole_unless_it_is_a_trial(official: Path, tmp_path: Path) -> None:
    amex = official_files.data_sets()["amex"]
    files = tuple(official_files.look(file, official) for file in amex.files)
    assert official_files.prepare(amex, files, tmp_path / "work", trial=True) == ()
    with pytest.raises(DataError, match="200"):
        official_files.prepare(amex, files, tmp_path / "work", trial=False)


@pytest.fixture
def run_paper(
    official: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], tuple[int, list[str]]]:
    """Run a trial; returns its exit code, and which experiments it ran."""
    monkeypatch.chdir(tmp_path)

    def run() -> tuple[int, list[str]]:
        started: list[str] = []
        run_one = paper.reproduce

        def noted(task: paper.Task, out: Path) -> int:
            started.append(task.name)
            return run_one(task, out)

        words = [str(official), "--out", "out", "--trial", "--only", *ONE_FIGURE, "--set", *CHANGED]
        with monkeypatch.context() as patch:
            patch.setattr(paper, "reproduce", noted)
            return paper.main(words), started

    return run


def test_an_interrupted_run_goes_on_and_a_changed_file_is_run_again(
    run_paper: Callable[[], tuple[int, list[str]]],
    official: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    render = reproduce.render

    def interrupted(entry: Entry, *rest: object) -> object:
        if entry.artifact.id == "003_table1":
            raise KeyboardInterrupt
        return render(entry, *rest)

    monkeypatch.setattr(reproduce, "render", interrupted)
    assert run_paper() == (INTERRUPTED, ["imdb", "removal"])
    monkeypatch.setattr(reproduce, "render", render)
    assert run_paper() == (0, ["removal"]), "what was finished is not run again"
    table = pd.read_csv(tmp_path / "out/paper.csv")
    assert table["ours"].notna().all()
    assert set(table["paper"]) == {"001 Fig 8", "003 Table 1"}
    assert (tmp_path / "out/figures/imdb_001_fig8.png").exists()
    assert run_paper() == (0, [])
    write_vectors(official, seed=1)
    assert run_paper() == (0, ["imdb"])
    progress = json.loads((tmp_path / "out/progress.json").read_text())
    assert set(progress) == {"imdb", "removal"}


def test_a_forecast_is_passes_times_the_time_of_one(
    official: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper, "seconds_of_a_pass", lambda job, runs: 0.5)
    task = paper.Task("imdb")
    passes = task.definition.passes
    assert passes is not None
    assert paper.forecast_seconds(task, tmp_path) == passes * 0.5
    assert paper.forecast_seconds(replace(task, only=("001_fig8",)), tmp_path) is None
