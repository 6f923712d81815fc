"""Whole commands: train, certify, sweeps, and what they print where."""

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from records import reseal

from .conftest import TINY, Agt


def test_train_then_certify(agt: Agt) -> None:
    train = agt("train", *TINY).ended(0)
    folder = Path(re.search(r"^run folder: (.+)$", train.out, re.M)[1])  # type: ignore[index]
    assert re.fullmatch(r"outputs/train/\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-\d{6}", str(folder))
    digest = re.search(
        r"^digest: "
        r"(sha256:[0-9a-f]{64})$",
        train.out,
        re.M,
    )[1]  # type: ignore[index]
    assert digest == f"sha256:{sha256((folder / 'manifest.json').read_bytes()).hexdigest()}"
    assert f"agt certify run={folder} digest={digest}" in train.err, "says what to type next"
    agt("certify", f"run={folder}", f"digest={digest}", "map_resolution=12").ended(0)


def test_json_is_alone_on_stdout(trained: Path, agt: Agt) -> None:
    certify = agt("--json", "certify", f"run={trained}", "map_resolution=0")
    assert (certify.json["command"], certify.json["exit_code"]) == ("certify", 0)
    assert certify.json["metrics"]["k_max"] == 3
    assert [row["k"] for row in certify.json["table"]] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "loss", "name"),
    [
        (("dataset=digits",), "binary_cross_entropy", "Digits"),
        (("experiment=digits",), "binary_cross_entropy", "Digits"),
        (("dataset=digits", "training=blobs"), "cross_entropy", "Digits"),
        (("experiment=digits", "dataset=blobs"), "cross_entropy", "Blobs"),
    ],
)
def test_training_settings_follow_the_dataset(
    agt: Agt, arguments: tuple[str, ...], loss: str, name: str
) -> None:
    said = agt("train", *arguments, "--cfg", "job").ended(0)
    assert f"loss: {loss}\n" in said.out
    assert f".{name}\n" in said.out
    assert not Path("outputs").exists(), "it runs nothing"


def test_same_command_twice_gives_the_same_bounds_in_two_folders(agt: Agt) -> None:
    first, second = (Path(agt("train", *TINY, "--json", "-q").json["run"]) for _ in range(2))
    assert first != second
    for name in ("model.safetensors", "bounds/k=00003.safetensors"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_queries_of_a_file_alone_and_among_others(agt: Agt, trained: Path) -> None:
    points = np.array([[2.0, 2.0], [-2.0, -2.0], [0.1, 0.3], [-0.4, 1.0]])
    tables = []
    for rows in (points, points[2:3]):
        pd.DataFrame(rows, columns=["x1", "x2"]).to_csv("queries.csv", index=False)
        said = agt(
            "certify", f"run={trained}", "inputs=queries.csv", "map_resolution=0", "--json", "-q"
        ).ended(0)
        assert "accuracy" not in said.json["metrics"], "unlabelled queries have none"
        tables.append(pd.read_parquet(Path(said.json["run"]) / "certificates.parquet"))
    assert set(tables[0]["label"]) == {""}
    for column in ("prediction", "stable_distance"):
        assert tables[1][column].tolist() == tables[0][column].tolist()[2:3]
    agt("certify", f"run={trained}", "inputs=gone.csv").ended(4, "gone.csv")


def test_certify_uses_its_own_compute_settings(agt: Agt, trained: Path) -> None:
    """A run trained on a GPU is certified on a machine without one."""
    config = trained / "config.yaml"
    config.write_text(
        config.read_text()
        .replace("device: cpu", "device: cuda")
        .replace("memory_mb: 256", "memory_mb: 32")
    )
    reseal(trained)
    agt("certify", f"run={trained}", "map_resolution=0", "-q").ended(0)
    agt("certify", f"run={trained}", "compute.memory_mb=1").ended(2, "compute.memory_mb")


def test_test_records_may_go_and_training_records_may_not(agt: Agt, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "mine.csv"
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]).assign(y=np.arange(60) % 2)
    frame.to_csv(path, index=False)
    table = (
        "dataset=table",
        f"dataset.path={path}",
        "dataset.label=y",
        "dataset.classes=['0','1']",
        "training.epochs=1",
    )
    said = agt(
        "train", *table, "kgrid.max=2", "+dataset.numeric={a: null, b: [-3, 3]}", "--json", "-q"
    ).ended(0)
    run = said.json["run"]
    n_test = said.json["metrics"]["n_test"]
    codes: set[int] = set()
    for row in range(10):
        if codes == {0, 2}:
            break
        frame.drop(index=row).to_csv(path, index=False)
        certified = agt("certify", f"run={run}", "map_resolution=0")
        codes.add(certified.code)
        for value in (n_test - 1, n_test) if certified.code == 0 else (1,):
            assert re.search(rf"\b{value}\b", certified.err)
    assert codes == {0, 2}


READERS = {
    "certify": ("map_resolution=0",),
    "plan": ("eps=[1.0]", "queries=[1]", "mechanisms=[randomized_response]"),
    "predict": ("mechanism.eps=1",),
}


@pytest.mark.parametrize(
    ("command", "given", "words"),
    [
        ("certify", 64 * "0", "another run"),
        ("plan", "sha256:12", "digest=sha256:12: a digest is sha256:"),
    ],
)
def test_readers_take_the_digest_of_the_run_that_they_may_read(
    agt: Agt, trained: Path, command: str, given: str, words: str
) -> None:
    own = sha256((trained / "manifest.json").read_bytes()).hexdigest()
    said = agt(
        command, f"run={trained}", f"digest=SHA256:{own.upper()}", *READERS[command], "--json", "-q"
    ).ended(0)
    assert (
        json.loads((Path(said.json["run"]) / "env.json").read_text())["trained_digest"]
        == f"sha256:{own}"
    )
    agt(command, f"run={trained}", f"digest={given}", *READERS[command]).ended(2, words)


OWN_FILES = {"config.yaml": "mine: 1\n", "env.json": "{}", "report.md": "my notes\n"}


@pytest.mark.parametrize("name", OWN_FILES)
@pytest.mark.parametrize("command", ["train", "certify", "predict", "unlearn", "plan"])
def test_a_folder_with_files_of_the_users_own_is_refused_and_left_as_it_was(
    agt: Agt, trained: Path, home: Path, command: str, name: str
) -> None:
    """Whatever a record would write there would replace them, and a refused one would delete it."""
    own = Path("own")
    own.mkdir()
    (own / name).write_text(OWN_FILES[name])
    Path("ids.txt").write_text("nobody\n")
    settings = {
        "train": TINY,
        "unlearn": (f"run={trained}", "ids=ids.txt"),
        # only of a run that may release is it not refused for another reason
        "predict": (f"run={home / 'box'}", "mechanism.eps=0.1", "force=true"),
    }
    more = settings.get(command, (f"run={trained}",))
    agt(command, *more, f"hydra.run.dir={own}", "-q").ended(2, name)
    assert [(path.name, path.read_text()) for path in own.iterdir()] == [(name, OWN_FILES[name])]


def test_a_refused_erasure_leaves_an_empty_folder_of_the_users_own(agt: Agt, trained: Path) -> None:
    Path("own").mkdir()
    Path("ids.txt").write_text("nobody\n")
    agt("unlearn", f"run={trained}", "ids=ids.txt", "hydra.run.dir=own", "-q").ended(2, "ids.txt")
    assert list(Path("own").iterdir()) == []
    agt("unlearn", f"run={trained}", "ids=ids.txt", "hydra.run.dir=new", "-q").ended(2, "ids.txt")
    assert not Path("new").exists()


def test_a_run_begins_in_a_folder_in_which_a_killed_one_left_only_its_lock(agt: Agt) -> None:
    Path("left").mkdir()
    Path("left/lock").touch()
    agt("train", *TINY, "hydra.run.dir=left", "-q").ended(0)


def test_a_sweep_does_not_overwrite_a_table_of_the_users_own(agt: Agt) -> None:
    own = Path("own/sweep.csv")
    own.parent.mkdir()
    own.write_text("a,b\n1,2\n")
    sweep = ("train", "-m", *TINY, "training.seed=0,1", "hydra.sweep.dir=own", "-q")
    agt(*sweep).ended(2, str(own))
    assert own.read_text() == "a,b\n1,2\n"
    assert [path.name for path in own.parent.iterdir()] == ["sweep.csv"]


@pytest.mark.parametrize(
    ("asked", "shown", "hidden"),
    [((1, 3, 7, 40), (1, 3, 7, 40), 0), (range(1, 26), (1, 5, 10, 20, 25), 20)],
    ids=["few", "many"],
)
def test_every_k_that_was_asked_is_printed_and_of_many_how_many_are_left_out(
    agt: Agt, asked: Sequence[int], shown: Sequence[int], hidden: int
) -> None:
    ks = ",".join(map(str, asked))
    settings = [word for word in TINY if not word.startswith("kgrid")]
    agt("train", *settings, "kgrid=sparse", f"kgrid.values=[{ks}]").ended(0)
    certified = agt("certify", "run=latest", "map_resolution=0").ended(0).out
    rows = [line.split() for line in certified.splitlines()]
    printed = [int(row[0]) for row in rows if len(row) == 5 and row[0].isdigit()]
    assert printed == [*shown]
    assert ("not shown here: 20 (all are in tables/certified.csv)" in certified) == bool(hidden)
