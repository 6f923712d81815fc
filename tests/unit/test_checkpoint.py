"""Training that was killed after any step ends with the bits of a training that was not; what
may not be used is not.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import make_head, make_recipe, make_records, make_training
from torch import Tensor

import agt
from agt.bounds.box import Box
from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.store.lock import Lock
from agt.training import checkpoint
from agt.training.checkpoint import NO_CHECKPOINTS, CheckpointFolder, Checkpoints, open_checkpoints
from agt.training.ensemble import train_members
from agt.training.erm import train_erm
from agt.training.linear import train_linear
from agt.training.loop import Progress, TrainingRun, train
from agt.training.settings import EnsembleConfig
from agt.training.setup import TrainingSetup

ABOUT = {"training": {"lr": 0.1, "batch": {"count": 1}}, "data_digest": "abc"}
Tensors = Callable[[], dict[str, Tensor]]
Train = Callable[[Checkpoints, Callable[[Progress], None]], dict[str, Tensor]]


class Killed(BaseException):
    """What stands for SIGKILL in one process: nothing catches it."""


def some_records(n: int = 60, width: int = 3) -> Records:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, width))
    return make_records(x / np.linalg.norm(x, axis=1, keepdims=True) * 0.99, rng.integers(0, 2, n))


def of_box(box: Box) -> dict[str, Tensor]:
    ends = {f"lower.{n}": t for n, t in box.lower.items()} | {
        f"upper.{n}": t for n, t in box.upper.items()
    }
    return {**box.nominal, **ends}


def boxes(relation: str = "add_remove", noise: bool = False, **settings: object) -> Train:
    training = make_training(epochs=3, batch={"count": 2}, **settings)
    records = some_records()
    setup = make_recipe(training, relation, ks=(0, 1, 5), kernel="reference")
    head = make_head(training, 3, 2, (4,))

    def draw(step: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(step)
        return {
            n: torch.randn(p.shape, generator=generator, dtype=torch.float64)
            for n, p in head.named_parameters()
        }

    def run(kept: Checkpoints, heard: Callable[[Progress], None]) -> dict[str, Tensor]:
        return of_box(train(head, setup, records, heard, draw if noise else None, checkpoints=kept))

    return run


def linear(average: int = 1, batches: int = 1) -> Train:
    settings = {"loss": "binary_cross_entropy", "clip": 1.0, "lr": 1.0, "epochs": 6 // batches}
    training = make_training(
        **settings, batch={"count": batches, "normalizer": 60.0 / batches, "n_max": 80}
    )

    def run(kept: Checkpoints, heard: Callable[[Progress], None]) -> dict[str, Tensor]:
        return {
            "weight": train_linear(
                make_recipe(training), some_records(), average, heard, kept
            ).weight
        }

    return run


def minimiser(kept: Checkpoints, heard: Callable[[Progress], None]) -> dict[str, Tensor]:
    settings = {"loss": "binary_cross_entropy", "clip": 1.0, "lr": 0.5, "weight_decay": 0.1}
    training = make_training(**settings, batch={"count": 1, "normalizer": 60.0, "n_max": 80})
    return {"weight": train_erm(make_recipe(training), some_records(), 1e-6, heard, kept).weight}


KINDS: dict[str, Train] = {
    "boxes": boxes(),
    "momentum": boxes(momentum=0.9, dampening=0.3, weight_decay=0.01),
    "Nesterov": boxes(momentum=0.9, nesterov=True, decay=0.1),
    "substitute, float32": boxes("substitute", momentum=0.5, dtype="float32"),
    "published": boxes("paper_unlearning"),
    "noise": boxes(noise=True, momentum=0.9),
    "linear": linear(),
    "linear, average": linear(average=4, batches=2),
    "minimiser": minimiser,
}


def opened(folder: Path, every: float | None = 1e-9) -> CheckpointFolder:
    return open_checkpoints(folder, ABOUT, every, lambda line: pytest.fail(line))


class Dying:
    """Checkpoints of a process that is killed right after it was offered the state of some step."""

    def __init__(self, kept: Checkpoints, step: int) -> None:
        self.stored = kept
        self.step = step
        self.offered = 0
        self.last_state = kept.last_state
        self.part = kept.part
        self.draw_once = kept.draw_once

    def save_if_due(self, step: int, tensors: Tensors, is_last_step: bool = False) -> None:
        self.stored.save_if_due(step, tensors, is_last_step)
        self.offered = step
        if step >= self.step:
            raise Killed


def silent(progress: Progress) -> None:
    pass


def resumed(kind: Train, folder: Path, *kills: int) -> dict[str, Tensor]:
    """The result of a training that was killed after each of these steps."""
    for step in kills:
        with pytest.raises(Killed):
            kind(Dying(opened(folder), step), silent)
    return kind(opened(folder), silent)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", KINDS)
def test_killed_after_any_step_it_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    whole = kind(NO_CHECKPOINTS, silent)
    for step in range(1, 7):
        assert same(resumed(kind, tmp_path / str(step), step), whole), step
    assert same(resumed(kind, tmp_path / "often", 1, 2, 2, 5), whole)


def test_it_goes_on_and_does_not_begin_anew(tmp_path: Path) -> None:
    kind = KINDS["momentum"]
    steps = list[int]()
    done = list[int]()
    kind(NO_CHECKPOINTS, lambda at: done.append(at.done))
    whole = done[-1]
    with pytest.raises(Killed):
        kind(Dying(opened(tmp_path / "c"), 4), silent)
    done.clear()
    kind(opened(tmp_path / "c"), lambda at: (steps.append(at.step), done.append(at.done))[0])  # type: ignore[func-returns-value]
    assert steps[0] == 4, "progress says where it goes on"
    assert done[-1] == whole


BROKEN: dict[str, tuple[str, Callable[[int, dict[str, Tensor]], tuple[int, dict[str, Tensor]]]]] = {
    "momentum buffers left out": (
        "momentum",
        lambda step, at: (step, {n: t for n, t in at.items() if "buffer" not in n}),
    ),
    "one buffer is another's": (
        "momentum",
        lambda step, at: (
            step,
            at
            | {n: at[n.replace("lower", "upper")] for n in at if n.startswith('["buffer", "lower')},
        ),
    ),
    "the running average forgotten": (
        "linear, average",
        lambda step, at: (step, at | {"total": 0 * at["total"]}),
    ),
    "a step too far": ("linear, average", lambda step, at: (step + 1, at)),
    "a step too few": ("boxes", lambda step, at: (step - 1, at)),
    "bounds from the point": (
        "boxes",
        lambda step, at: (
            step,
            at
            | {n: at[n.replace("lower", "nominal")].expand_as(at[n]) for n in at if "lower" in n},
        ),
    ),
    "one of the minimiser's points": ("minimiser", lambda step, at: (step, at | {"x": at["y"]})),
    "rounded to float32": (
        "linear",
        lambda step, at: (step, {n: t.float().double() for n, t in at.items()}),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_checkpoint_that_forgets_something_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind, change = BROKEN[name]
    save_if_due = CheckpointFolder.save_if_due

    def offered(
        self: CheckpointFolder, step: int, tensors: Tensors, is_last_step: bool = False
    ) -> None:
        step, at = change(step, tensors())
        save_if_due(self, step, lambda: at, is_last_step)

    monkeypatch.setattr(CheckpointFolder, "save_if_due", offered)
    with suppress(UnsoundError):  # some do not even hold together
        assert not same(resumed(KINDS[kind], tmp_path, 4), KINDS[kind](NO_CHECKPOINTS, silent))


def test_everything_that_a_run_holds_is_contiguous() -> None:
    """A file keeps no strides, and a product may round otherwise with others."""
    training = make_training(momentum=0.9, nesterov=True, batch={"count": 2})
    records = some_records()
    for kernel in ("reference", "cpu"):
        run = TrainingRun(
            make_head(training, 3, 2, (4,)),
            make_recipe(training, ks=(0, 2), kernel=kernel),
            records,
        )
        with torch.no_grad():
            for rows in run.plan.batches(records.units):
                run.step(rows)
        assert all(tensor.is_contiguous() for tensor in run.tensors().values())


def member(setup: TrainingSetup, records: Records, checkpoints: Checkpoints) -> tuple[int, Tensor]:
    """A stand-in for a member: counts to 3, and says where it began."""
    state = checkpoints.last_state()
    begun = state.step if state else 0
    at = state.tensors["x"] if state else torch.zeros(1)
    for step in range(begun, 3):
        at = at + len(records)
        checkpoints.save_if_due(step + 1, partial(dict, x=at), is_last_step=step == 2)
    return begun, at


@pytest.mark.parametrize(
    "threads", [1, pytest.param(2, marks=pytest.mark.sweep)], ids=["one process", "two processes"]
)
def test_members_that_are_done_are_kept(tmp_path: Path, threads: int) -> None:
    setup = make_recipe(make_training(), declared_size=60, threads=threads)
    config = EnsembleConfig(members=3)
    first = train_members(member, setup, some_records(), config, checkpoints=opened(tmp_path))
    assert [begun for begun, _ in first] == [0, 0, 0]
    for path in (tmp_path / "members/001").iterdir():
        if path.name.startswith("step=000000000003"):
            path.unlink()
    again = train_members(member, setup, some_records(), config, checkpoints=opened(tmp_path))
    assert [begun for begun, _ in again] == [3, 2, 3]
    assert [float(x) for _, x in again] == [float(x) for _, x in first]


# -- what is never used
# --------------------------------------------------------------------------------------------------


def filled(folder: Path, about: dict[str, object] = ABOUT) -> list[Path]:
    kept = open_checkpoints(folder, about, 1e-9, lambda line: None)
    for step in (1, 2, 3):
        kept.save_if_due(step, partial(dict, x=torch.full((2,), float(step), dtype=torch.float64)))
    return sorted(folder.glob("step=*"))


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    assert [int(path.name[5:17]) for path in filled(tmp_path)] == [2, 3]
    state = opened(tmp_path).last_state()
    assert state
    assert (state.step, state.tensors["x"].tolist()) == (3, [3.0, 3.0])
    assert state.tensors["x"].data_ptr() % 64 == 0


def test_tensors_may_share_their_memory(tmp_path: Path) -> None:
    """The minimiser's two points are one where no step is needed, as of an empty shard."""
    x = torch.arange(4.0)
    kept = opened(tmp_path)
    kept.save_if_due(1, lambda: {"x": x, "y": x, "part": x[:2]})
    state = opened(tmp_path).last_state()
    assert state
    assert [state.tensors[name].tolist() for name in ("y", "part")] == [[0, 1, 2, 3], [0, 1]]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "empty": lambda path: path.write_bytes(b""),
    "a bit flipped": lambda path: path.write_bytes(
        path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])
    ),
    "called another step": lambda path: path.rename(
        path.with_name(path.name.replace("03.", "09."))
    ),
    "not its name": lambda path: path.rename(path.with_name("step=5.safetensors")),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_one_is_named_and_the_one_before_is_used(tmp_path: Path, how: str) -> None:
    DAMAGE[how](filled(tmp_path)[-1])
    notes: list[str] = []
    state = open_checkpoints(tmp_path, ABOUT, None, notes.append).last_state()
    assert state
    assert state.step == 2
    (line,) = notes
    assert "step=" in line
    assert len(list(tmp_path.glob("step=*"))) == 1


def refuse(folder: Path, before: Callable[[CheckpointFolder], object]) -> None:
    """Open checkpoints, do something, and refuse the training."""
    checkpoints = open_checkpoints(folder, ABOUT, None, lambda line: None)
    before(checkpoints)
    with suppress(ConfigError), checkpoints.removed_if_refused():
        raise ConfigError("the model is refused")


def test_a_training_that_is_refused_before_its_first_state_leaves_no_folder(
    tmp_path: Path,
) -> None:
    refuse(tmp_path / "checkpoint", lambda checkpoints: checkpoints.last_state())
    assert not (tmp_path / "checkpoint").exists()


def test_a_training_that_is_refused_after_its_first_state_leaves_the_folder(tmp_path: Path) -> None:
    part = "members/003"
    refuse(tmp_path, lambda checkpoints: checkpoints.part(part)._write(1, {"a": torch.ones(1)}))
    assert (tmp_path / "run.json").exists()
    assert list((tmp_path / part).glob("step=*"))


def test_a_training_that_is_refused_after_a_draw_leaves_the_number(tmp_path: Path) -> None:
    refuse(tmp_path, lambda checkpoints: checkpoints.draw_once("noise", lambda: 5))
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "noise.json"}


def test_a_folder_of_an_earlier_attempt_stays_when_resuming_is_refused(tmp_path: Path) -> None:
    open_checkpoints(tmp_path, ABOUT, None, lambda line: None)
    refuse(tmp_path, lambda checkpoints: checkpoints.last_state())
    assert (tmp_path / "run.json").exists()


def test_one_of_another_run_is_named(tmp_path: Path) -> None:
    foreign = filled(tmp_path / "other", {**ABOUT, "data_digest": "xyz"})[-1]
    filled(tmp_path / "ours")
    foreign.rename(
        tmp_path / "ours" / foreign.name.replace("step=000000000003", "step=000000000007")
    )
    notes: list[str] = []
    state = open_checkpoints(tmp_path / "ours", ABOUT, None, notes.append).last_state()
    assert state
    assert state.step == 3
    assert "step=000000000007" in notes[0]


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({**ABOUT, "data_digest": "new"}, r"data_digest.*\babc\b.*\bnew\b"),
        (
            {**ABOUT, "training": {"lr": 0.2, "batch": {"count": 1}}},
            r"training\.lr.*\b0\.1\b.*\b0\.2\b",
        ),
        ({**ABOUT, "code": "x"}, r"\bcode\b.*None"),
        ({"data_digest": "abc"}, "training"),
    ],
)
def test_something_else_that_bits_depend_on_is_refused(
    tmp_path: Path, about: dict[str, object], message: str
) -> None:
    filled(tmp_path)
    assert json.loads((tmp_path / "run.json").read_text())["training.batch.count"] == 1, (
        "for people to read"
    )
    with pytest.raises(ConfigError, match=message):
        open_checkpoints(tmp_path, about, None, lambda line: None)


def test_a_run_json_that_was_edited_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace("abc", "xyz"))
    with pytest.raises(ConfigError, match=r"run\.json"):
        open_checkpoints(tmp_path, {**ABOUT, "data_digest": "xyz"}, None, lambda line: None)


def test_what_a_killed_writer_left_half_written_goes(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "members").mkdir()
    (tmp_path / "members" / "x.part12-13").write_bytes(b"half")
    opened(tmp_path)
    assert not list(tmp_path.rglob("*.part*"))


def test_a_number_is_drawn_once(tmp_path: Path) -> None:
    drawn = opened(tmp_path).draw_once("noise", lambda: 2**127 + 1)
    assert drawn == 2**127 + 1
    assert opened(tmp_path).draw_once("noise", lambda: pytest.fail("drawn again")) == drawn
    path = tmp_path / "noise.json"
    path.write_text(path.read_text().replace("8", "9", 1))
    with pytest.raises(ConfigError, match=r"noise\.json"):
        opened(tmp_path).draw_once("noise", lambda: 3)


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_nobody_else_may_look_into_them(tmp_path: Path) -> None:
    opened(tmp_path / "checkpoint")
    assert (tmp_path / "checkpoint").stat().st_mode & 0o077 == 0


# -- the price
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("takes", "step", "size"),
    [(0.001, 0.01, 10), (0.5, 0.3, 10), (3.0, 0.01, 10), (0.05, 7.0, 10**6)],
)
def test_checkpoints_take_no_more_than_a_twentieth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: float, step: float, size: int
) -> None:
    """On a clock of our own: every step takes ``step`` seconds, and every file ``takes``."""
    now = [0.0]
    wrote = [0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    kept = opened(tmp_path, every=None)
    kept.last_state()

    def write(self: CheckpointFolder, at: int, tensors: dict[str, Tensor]) -> None:
        now[0] += takes
        wrote[0] += 1

    monkeypatch.setattr(CheckpointFolder, "_write", write)
    tensors = {"x": torch.zeros(size)}
    while now[0] < 500:
        now[0] += step
        kept.save_if_due(1, lambda: tensors)
    spent = wrote[0] * takes
    assert wrote[0] >= 3
    assert spent <= 0.05 * now[0] + takes, "the first is written before anybody knows what it takes"


def test_none_if_none_is_wanted(tmp_path: Path) -> None:
    kept = opened(tmp_path, every=0)
    kept.save_if_due(1, lambda: {"x": torch.zeros(1)}, is_last_step=True)
    assert not list(tmp_path.glob("step=*"))


def test_a_full_disk_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    kept = opened(tmp_path)
    monkeypatch.setattr(checkpoint, "write_atomic", full)
    with pytest.warns(
        UserWarning, match="the checkpoint of step 1 was not written .*No space left on device"
    ):
        kept.save_if_due(1, lambda: {"x": torch.zeros(1)})


def test_a_worker_whose_run_was_killed_ends(tmp_path: Path) -> None:
    """Its folder may be another's by now: it writes nothing any more."""
    kept = opened(tmp_path)
    kept.owner = 1 if os.getppid() != 1 else 2**22
    process = os.fork() if hasattr(os, "fork") else pytest.skip("POSIX processes")
    if not process:
        kept.save_if_due(1, lambda: {"x": torch.zeros(1)})
        os._exit(0)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(status) == 1
    assert not list(tmp_path.glob("step=*"))


# -- from a program
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [1, 2], ids=["one", "ensemble"])
def test_a_program_that_is_killed_calls_fit_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: int
) -> None:
    records = some_records()
    place = tmp_path / "checkpoint"
    settings = {"network": (4,), "ks": 2, "epochs": 5, "lr": 2.0, "clip": 0.06}
    settings |= {"members": members, "declared": agt.Declared(size=60)}
    settings |= {"compute": {"threads": 1, "kernel": "reference", "checkpoint_seconds": 1e-9}}

    def fit(**more: object) -> list[np.ndarray]:
        model = agt.fit(records.features, records.labels, **(settings | more)).model  # type: ignore[arg-type]
        each = getattr(model, "members", (model,))
        return [t.numpy() for one in each for t in of_box(one.box).values()]

    whole = fit()
    save_if_due = CheckpointFolder.save_if_due
    left = [3]

    def dies(
        self: CheckpointFolder, step: int, tensors: Tensors, is_last_step: bool = False
    ) -> None:
        save_if_due(self, step, tensors, is_last_step)
        left[0] -= 1
        if not left[0]:
            raise Killed

    monkeypatch.setattr(CheckpointFolder, "save_if_due", dies)
    with pytest.raises(Killed):
        fit(checkpoint=place)
    assert list(place.rglob("step=*"))
    with pytest.raises(ConfigError, match=r"settings\.training\.epochs.*\b5\b.*\b6\b"):
        fit(checkpoint=place, epochs=6)
    with pytest.raises(ConfigError, match=r"\bdata\b.*[0-9a-f]{32}"):
        agt.fit(records.features[1:], records.labels[1:], checkpoint=place, **settings)  # type: ignore[arg-type]
    steps: list[int] = []
    again = fit(checkpoint=place, on_progress=lambda at: steps.append(at.step))
    assert all(np.array_equal(a, b) for a, b in zip(again, whole, strict=True))
    assert members > 1 or steps[0] == 3
    assert not list(tmp_path.iterdir()), "nothing is left of a training that is done"


def test_a_program_s_checkpoints_go_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.part1-2").write_text("mine")
    records = some_records()
    with pytest.raises(ConfigError, match=r"/work: .*run\.json"):
        agt.fit(records.features, records.labels, checkpoint=tmp_path / "work")
    assert (tmp_path / "work" / "thesis.part1-2").exists()
    lock = Lock(tmp_path / "c.lock")
    assert lock.acquire()
    with pytest.raises(ConfigError, match=r"checkpoint=.*/c:"):
        agt.fit(records.features, records.labels, checkpoint=tmp_path / "c")
