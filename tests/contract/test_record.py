"""The run record as a container: claimed once, written whole, read back only if finished and
sound.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from records import reseal
from safetensors.torch import load_file, save_file

from agt.bounds.box import Box
from agt.errors import ConfigError, DataMissing, UnsoundError
from agt.models.store import bounds_file, read_boxes, write_boxes
from agt.store.atomic import Pending, write_atomic
from agt_cli.report.finished import Run
from agt_cli.report.opening import open_run
from agt_cli.report.record import RunRecord

KS = (0, 2, 5)
NOMINAL = {
    "0.weight": torch.arange(6.0, dtype=torch.float64).view(2, 3),
    "0.bias": torch.zeros(2, dtype=torch.float64),
}
WITH_SOURCE = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
RADIUS = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)


def state(folder: Path) -> dict[str, object]:
    value = json.loads((folder / "status.json").read_text())
    assert isinstance(value, dict)
    return value


@pytest.fixture
def finished(tmp_path: Path) -> Run:
    """A finished training record with boxes of three k."""
    with RunRecord(tmp_path / "run", "train", {"training": {"seed": 7}}) as record:
        spread = {
            name: RADIUS.view(-1, *[1] * t.dim()).expand(3, *t.shape) for name, t in NOMINAL.items()
        }
        lower = {name: t - spread[name] for name, t in NOMINAL.items()}
        write_boxes(
            record,
            Box.from_ends(
                KS, NOMINAL, lower, {name: t + spread[name] for name, t in NOMINAL.items()}
            ),
        )
        record.add_metrics(accuracy=0.5)
    return open_run(tmp_path / "run", "train")


def test_running_then_done(tmp_path: Path) -> None:
    with RunRecord(tmp_path / "run", "train", {}) as record:
        assert state(record.folder)["state"] == "running"
        with pytest.raises(ConfigError, match="'running'"):
            open_run(record.folder, "train")
    assert state(tmp_path / "run")["state"] == "done"
    assert open_run(tmp_path / "run", "train").folder == tmp_path / "run"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DataMissing("x.npz is not there"), 4, "DataMissing: x.npz is not there"),
        (ZeroDivisionError("oops"), 1, "ZeroDivisionError: oops"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failure_is_recorded_and_goes_on(
    tmp_path: Path, error: BaseException, code: int, text: str
) -> None:
    with pytest.raises(type(error)), RunRecord(tmp_path / "run", "train", {}):
        raise error
    end = state(tmp_path / "run")
    assert (end["state"], end["exit_code"], end["error"]) == ("failed", code, text)
    with pytest.raises(ConfigError, match="'failed'"):
        open_run(tmp_path / "run", "train")


@pytest.mark.parametrize("how", ["done", "failed", "running"])
def test_a_folder_is_claimed_once(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "status.json").write_text(json.dumps({"state": how}))
    with pytest.raises(ConfigError, match=str(folder)), RunRecord(folder, "train", {}):
        pass
    assert state(folder) == {"state": how}, "left as it was"
    assert os.listdir(folder) == ["status.json"]


def test_configuration_and_environment(tmp_path: Path) -> None:
    config = {
        "dataset": {"name": "x", "path": None},
        "training": {"seed": 7, "lr": 1e-3},
        "compute": {"device": "cpu"},
    }
    with RunRecord(tmp_path / "run", "train", config) as record:
        record.environment(data_digest="abc")
    run = open_run(tmp_path / "run", "train")
    assert run.config == config
    assert run.environment["data_digest"] == "abc"
    assert run.environment["seed"] == 7
    assert run.environment["packages"]["torch"] == torch.__version__
    assert run.environment["device"].startswith("cpu")
    assert {"agt", "revision", "python", "argv"} <= set(run.environment)


def test_metrics_are_flat_and_finite(tmp_path: Path) -> None:
    with RunRecord(tmp_path / "run", "train", {}) as record:
        record.add_metrics(a=1)
        record.add_metrics(b=0.5)
        for bad in (float("nan"), float("inf")):
            with pytest.raises(UnsoundError, match="metric 'c'"):
                record.add_metrics(c=bad)
    assert open_run(tmp_path / "run", "train").metrics == {"a": 1, "b": 0.5}


def test_a_write_that_fails_leaves_the_old_file_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.json"
    write_atomic(path, b"old")
    assert os.listdir(tmp_path) == ["metrics.json"], "nothing is left beside it"

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="28") as caught:
        write_atomic(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["metrics.json"]


def test_boxes_come_back_bit_for_bit(finished: Run) -> None:
    box = read_boxes(finished, KS, NOMINAL)
    assert list(box.nominal) == list(box.bounds) == list(NOMINAL), "in the model's order"
    for name, tensor in NOMINAL.items():
        assert torch.equal(box.nominal[name], tensor)
        for index, radius in enumerate(RADIUS.tolist()):
            assert torch.equal(box.lower[name][index], tensor - radius)
            assert torch.equal(box.upper[name][index], tensor + radius)


def damage(
    finished: Run, change: Callable[[dict[str, torch.Tensor]], object], k: str = "2"
) -> None:
    path = finished.folder / bounds_file(2)
    box = load_file(path)
    change(box)
    save_file(box, path, {"k": k})


def resealed(finished: Run) -> Run:
    """The same folder with a manifest that fits it again."""
    reseal(finished.folder)
    return open_run(finished.folder, "train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda box: box["lower.0.bias"][:1].fill_(9.0),
            r"k=00002\.safetensors .*\b0\.bias\b.*upper",
        ),
        (lambda box: box["upper.0.weight"][0].fill_(float("nan")), r"upper\.0\.weight .*NaN"),
        (lambda box: box["upper.0.weight"][0].fill_(float("inf")), r"upper\.0\.weight .*infinite"),
        (
            lambda box: box.update({"lower.0.bias": torch.zeros(3, dtype=torch.float64)}),
            r"lower.0.bias .*\(3,\)",
        ),
        (lambda box: box.update({"lower.0.bias": torch.zeros(2)}), r"lower.0.bias .*float32"),
        (lambda box: box.pop("lower.0.bias"), r"k=00002\.safetensors"),
        (lambda box: box.update(extra=torch.zeros(1)), r"k=00002\.safetensors"),
    ],
    ids=["crossed", "nan", "infinite", "shape", "dtype", "missing", "unknown"],
)
def test_unsound_boxes_are_refused(
    finished: Run, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    damage(finished, change)
    with pytest.raises(ConfigError, match=r"k=00002\.safetensors .*manifest\.json"):
        read_boxes(finished, KS, NOMINAL)
    again = resealed(finished)
    with pytest.raises(UnsoundError, match=message):
        read_boxes(again, KS, NOMINAL)


def test_a_box_of_another_k_is_refused(finished: Run) -> None:
    """Two files swapped, and the manifest made to fit: only their headers tell."""
    two, five = (finished.folder / bounds_file(k) for k in (2, 5))
    content = two.read_bytes(), five.read_bytes()
    two.write_bytes(content[1])
    five.write_bytes(content[0])
    with pytest.raises(UnsoundError, match=r"k=00002\.safetensors: .*5, .*2"):
        read_boxes(resealed(finished), KS, NOMINAL)
    save_file(load_file(two), two)
    with pytest.raises(UnsoundError, match=r"k=00002\.safetensors: .*None"):
        read_boxes(resealed(finished), KS, NOMINAL)


@pytest.mark.parametrize(
    ("ks", "message"),
    [
        ((0, 2, 3, 5), r"k=00003\.safetensors is missing"),
        ((0, 5), r"k=00002\.safetensors does not belong to the run"),
    ],
)
def test_there_is_one_box_for_every_k_of_the_grid(
    finished: Run, ks: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_boxes(finished, ks, NOMINAL)


def test_a_truncated_file_is_refused(finished: Run) -> None:
    path = finished.folder / bounds_file(5)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ConfigError, match=r"k=00005\.safetensors .*manifest\.json"):
        open_run(finished.folder, "train")
    with pytest.raises(ConfigError, match=r"k=00005\.safetensors: "):
        read_boxes(resealed(finished), KS, NOMINAL)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("status.json", "{", "status.json cannot be read"),
        ("status.json", "[]", "status.json does not contain a JSON object"),
        ("config.yaml", "a: [", "config.yaml cannot be read"),
        ("config.yaml", "- 1", "config.yaml does not contain a mapping"),
        ("env.json", "", "env.json cannot be read"),
        *(
            (name, None, name)
            for name in ("status.json", "config.yaml", "env.json", "metrics.json")
        ),
    ],
)
def test_broken_and_missing_records_are_refused(
    finished: Run, name: str, content: str | None, message: str
) -> None:
    (finished.folder / name).unlink()
    if content is not None:
        (finished.folder / name).write_text(content)
    with pytest.raises(ConfigError, match=name):
        open_run(finished.folder, "train")
    reseal(finished.folder)
    with pytest.raises(ConfigError, match=message):
        open_run(finished.folder, "train")


def test_another_command_s_run_and_a_wrong_folder(finished: Run) -> None:
    with pytest.raises(ConfigError, match=r"agt train.*agt certify"):
        open_run(finished.folder, "certify")
    with pytest.raises(ConfigError, match=f"{finished.folder}"):
        open_run(finished.folder.parent / "rnu", "train")


# -- the manifest


def test_a_run_killed_before_its_last_write_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def write(path: Path, content: bytes) -> None:
        if path.name == "status.json":
            raise Killed
        write_atomic(path, content)

    monkeypatch.setattr("agt_cli.report.record.write_atomic", write)
    with pytest.raises(Killed), RunRecord(tmp_path / "run", "train", {}):
        pass
    assert (tmp_path / "run/manifest.json").exists()
    with pytest.raises(ConfigError, match="'running'"):
        open_run(tmp_path / "run", "train")


def test_a_run_that_cannot_be_finished_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: bytes) -> None:
        if path.name == "manifest.json":
            raise OSError(28, "No space left on device", str(path))
        write_atomic(path, content)

    monkeypatch.setattr("agt_cli.report.record.write_atomic", write)
    with (
        pytest.raises(OSError, match=r"manifest\.json"),
        RunRecord(tmp_path / "run", "train", {}) as record,
    ):
        pass
    assert record.digest is None
    assert state(tmp_path / "run")["state"] == "failed"


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    with RunRecord(tmp_path / "run", "train", {}) as record:
        record.finish()
        with pytest.raises(RuntimeError, match="finished"):
            record.write("late.txt", b"")
    assert open_run(tmp_path / "run", "train").digest == record.digest, (
        "what was finished stays finished"
    )


def test_another_digest_is_another_run(finished: Run) -> None:
    assert open_run(finished.folder, "train", finished.digest).digest == finished.digest
    with pytest.raises(ConfigError, match=rf"{finished.digest}.*sha256:0000"):
        open_run(finished.folder, "train", f"sha256:{64 * '0'}")
    (finished.folder / "metrics.json").write_text('{"accuracy": 0.75}')
    reseal(finished.folder)
    assert open_run(finished.folder, "train").metrics == {"accuracy": 0.75}, "what a digest is for"
    with pytest.raises(ConfigError, match=str(finished.digest)):
        open_run(finished.folder, "train", finished.digest)


def test_a_file_that_is_not_listed_is_never_read(finished: Run) -> None:
    (finished.folder / "notes.txt").write_text("a person's own, and none of the run's business")
    (finished.folder / "stability.json").write_text("{}")
    run = open_run(finished.folder, "train")
    with pytest.raises(ConfigError, match=r"stability\.json .*manifest\.json"):
        run.json("stability.json")


def test_parts_read_through_the_whole_run_s_manifest(tmp_path: Path) -> None:
    with RunRecord(tmp_path / "run", "train", {}) as record:
        for index in range(2):
            record.part(f"members/00{index}").write("a.txt", str(index).encode())
    run = open_run(tmp_path / "run", "train")
    assert [run.part(f"members/00{index}").read("a.txt") for index in range(2)] == [b"0", b"1"]
    (run.folder / "members/000/a.txt").write_bytes(b"1")
    with pytest.raises(ConfigError, match=r"members/000/a\.txt"):
        run.part("members/000").read("a.txt")
    with pytest.raises(ConfigError, match=r"members/000/a\.txt"):
        open_run(tmp_path / "run", "train")


# -- the disk


def test_names_are_made_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new name's folder is synchronised, after the file itself."""
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomic(tmp_path / "a" / "b" / "c.txt", b"x")
    home = str(tmp_path)
    assert sorted(synced[:2]) == [home, f"{home}/a"], "whoever makes folders keeps them"
    assert synced[2].startswith(f"{home}/a/b/c.txt.part")
    assert synced[3:] == [f"{home}/a/b"]


def test_room_is_taken_before_and_given_back(tmp_path: Path) -> None:
    pending = Pending(tmp_path / "labels.csv", 1000)
    (part,) = tmp_path.iterdir()
    assert (part.name.startswith("labels.csv.part"), part.stat().st_size) == (True, 1000)
    pending.write(b"short")
    assert [path.name for path in tmp_path.iterdir()] == ["labels.csv"]
    assert (tmp_path / "labels.csv").read_bytes() == b"short"


def test_a_disk_without_room_says_so_before(tmp_path: Path) -> None:
    """A process that may write no file of over 4 KiB."""
    code = (
        "import resource; from pathlib import Path; from agt.store.atomic import Pending\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: Pending(Path('labels.csv'), 5000)\n"
        "except OSError as error: print(error.filename)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=WITH_SOURCE
    )
    assert done.stdout == "labels.csv\n", done.stderr
    assert not list(tmp_path.iterdir())
