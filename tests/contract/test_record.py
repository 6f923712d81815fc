"""The run record as a container: claimed once, written whole, read back only if finished and sound."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agt_cli.errors import ConfigError, DataMissing, UnsoundError
from agt_cli.report.record import FinishedRun, RunRecord, bounds_file, open_run, write_atomic

KS = (0, 2, 5)
NOMINAL = {"0.weight": torch.arange(6.0, dtype=torch.float64).view(2, 3), "0.bias": torch.zeros(2, dtype=torch.float64)}
RADIUS = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)


def state(folder: Path) -> dict[str, object]:
    value = json.loads((folder / "status.json").read_text())
    assert isinstance(value, dict)
    return value


@pytest.fixture
def finished(tmp_path: Path) -> FinishedRun:
    """A finished training record with boxes of three k."""
    with RunRecord(tmp_path / "run", "train", {"training": {"seed": 7}}) as record:
        spread = {name: RADIUS.view(-1, *[1] * t.dim()).expand(3, *t.shape) for name, t in NOMINAL.items()}
        lower = {name: t - spread[name] for name, t in NOMINAL.items()}
        record.model(KS, NOMINAL, lower, {name: t + spread[name] for name, t in NOMINAL.items()})
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
def test_failure_is_recorded_and_goes_on(tmp_path: Path, error: BaseException, code: int, text: str) -> None:
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
    with pytest.raises(ConfigError, match="already holds a run"), RunRecord(folder, "train", {}):
        pass
    assert state(folder) == {"state": how}, "left as it was"
    assert os.listdir(folder) == ["status.json"]


def test_configuration_and_environment(tmp_path: Path) -> None:
    config = {"dataset": {"name": "x", "path": None}, "training": {"seed": 7, "lr": 1e-3}, "compute": {"device": "cpu"}}
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
            with pytest.raises(UnsoundError, match="metric c"):
                record.add_metrics(c=bad)
    assert open_run(tmp_path / "run", "train").metrics == {"a": 1, "b": 0.5}


def test_a_write_that_fails_leaves_the_old_file_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.json"
    write_atomic(path, b"old")
    assert os.listdir(tmp_path) == ["metrics.json"], "nothing is left beside it"

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomic(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["metrics.json"]


def test_boxes_come_back_bit_for_bit(finished: FinishedRun) -> None:
    nominal, lower, upper = finished.boxes(KS, NOMINAL)
    assert list(nominal) == list(NOMINAL), "in the model's order"
    for name, tensor in NOMINAL.items():
        assert torch.equal(nominal[name], tensor)
        for index, radius in enumerate(RADIUS.tolist()):
            assert torch.equal(lower[name][index], tensor - radius)
            assert torch.equal(upper[name][index], tensor + radius)


def damage(finished: FinishedRun, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = finished.folder / bounds_file(2)
    box = load_file(path)
    change(box)
    save_file(box, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda box: box["lower.0.bias"][:1].fill_(9.0), "lower.0.bias exceeds upper.0.bias"),
        (lambda box: box["upper.0.weight"][0].fill_(float("nan")), "upper.0.weight is NaN or infinite"),
        (lambda box: box["upper.0.weight"][0].fill_(float("inf")), "upper.0.weight is NaN or infinite"),
        (lambda box: box.update({"lower.0.bias": torch.zeros(3, dtype=torch.float64)}), r"lower.0.bias is .*\(3,\)"),
        (lambda box: box.update({"lower.0.bias": torch.zeros(2)}), "lower.0.bias is torch.float32"),
        (lambda box: box.pop("lower.0.bias"), "holds"),
        (lambda box: box.update(extra=torch.zeros(1)), "holds"),
    ],
)
def test_unsound_boxes_are_refused(
    finished: FinishedRun, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    damage(finished, change)
    with pytest.raises(UnsoundError, match=message):
        finished.boxes(KS, NOMINAL)


def test_every_k_of_the_grid_must_be_there(finished: FinishedRun) -> None:
    with pytest.raises(ConfigError, match=r"k=00003\.safetensors"):
        finished.boxes((0, 2, 3, 5), NOMINAL)


def test_a_truncated_file_is_refused(finished: FinishedRun) -> None:
    path = finished.folder / bounds_file(5)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ConfigError, match=r"k=00005\.safetensors: cannot be read"):
        finished.boxes(KS, NOMINAL)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("status.json", "{", "status.json cannot be read"),
        ("status.json", "[]", "status.json does not hold an object"),
        ("config.yaml", "a: [", "config.yaml cannot be read"),
        ("config.yaml", "- 1", "config.yaml does not hold a mapping"),
        ("env.json", "", "env.json cannot be read"),
    ],
)
def test_broken_records_are_refused(finished: FinishedRun, name: str, content: str, message: str) -> None:
    (finished.folder / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        open_run(finished.folder, "train")


@pytest.mark.parametrize("name", ["status.json", "config.yaml", "env.json", "metrics.json"])
def test_missing_files_are_named(finished: FinishedRun, name: str) -> None:
    (finished.folder / name).unlink()
    with pytest.raises(ConfigError, match=name):
        open_run(finished.folder, "train")


def test_another_command_s_run(finished: FinishedRun) -> None:
    with pytest.raises(ConfigError, match="a run of 'train', not 'certify'"):
        open_run(finished.folder, "certify")


def test_a_wrong_folder_names_the_newest_run_beside_it(finished: FinishedRun) -> None:
    with pytest.raises(ConfigError, match=f"the newest train run there is {finished.folder}"):
        open_run(finished.folder.parent / "rnu", "train")
