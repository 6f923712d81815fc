"""agt train certificate=removal on the command line: end to end, refused by key, resumed with
the draw it began with.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from agt.numeric import SeededRandomness, noisy, step_of
from agt.training.checkpoint import CheckpointFolder

from .conftest import Agt

HEAD = (
    "dataset=digits",
    "training=generic",
    "model=linear",
    "certificate=removal",
    "training.weight_decay=1e-4",
)
LOSS = ("certificate.masking=loss", "certificate.sigma=1")
PUBLIC = "training.chosen_on=public"


def test_it_trains_certifies_answers_and_is_verified(agt: Agt) -> None:
    said = agt("train", *HEAD, PUBLIC, "training.clip=0.5", "hydra.run.dir=run").ended(0)
    assert "(1, 0.0001)" in said.out, "so close is what is served after a removal"
    assert "not prove" not in said.out
    assert "note: training.clip: " in said.err
    state = json.loads(Path("run/removal.json").read_text())
    assert 0 < state["residual"] <= state["allowed"] == 1e-5
    served = load_file("run/model.safetensors")["weight"]
    tensors = load_file("run/removal.safetensors")
    assert not np.fmod(served, step_of(0.01)).any()
    assert np.array_equal(served - tensors["weight"], tensors["noise"])
    assert not tensors["tilt"].any()
    for words in (
        ("certify", "run=run", "map_resolution=0"),
        (
            "predict",
            "run=run",
            "mechanism=release_weights",
            "total.eps=1",
            "total.delta=1e-5",
            "force=true",
        ),
        ("verify", "run"),
    ):
        agt(*words, "-q").ended(0)
    one = json.loads(Path("run/conditions.json").read_text())
    assert "given_the_draw" in [fact["code"] for fact in one[3]["facts"]], (
        "as every certificate under noise is"
    )


def test_served_weights_under_output_noise_are_not_the_inner_ones_and_a_seed_is_a_simulation(
    agt: Agt,
) -> None:
    settings = (
        "certificate.masking=output",
        "certificate.sigma=0.5",
        "certificate.seed=4",
        "hydra.run.dir=run",
    )
    said = agt("train", *HEAD, *settings).ended(0)
    assert "certificate.seed=4" in said.out
    assert json.loads(Path("run/metrics.json").read_text())["simulation"] == 1
    served = load_file("run/model.safetensors")["weight"]
    tensors = load_file("run/removal.safetensors")
    assert "not prove" in said.out
    assert np.array_equal(served, noisy(tensors["weight"], 0.5, SeededRandomness(4)))


def test_as_published_nothing_is_claimed(agt: Agt) -> None:
    said = agt("train", *HEAD, *LOSS, "hydra.run.dir=run").ended(0)
    assert "not prove" in said.out
    assert "(1, 0.0001)" in said.out
    served = load_file("run/model.safetensors")["weight"]
    tensors = load_file("run/removal.safetensors")
    assert np.array_equal(served, tensors["weight"])
    assert tensors["tilt"].std() > 0.5


@pytest.fixture
def stopped(agt: Agt, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Begins a run in ./run that fails once it has offered its third checkpoint."""
    save_if_due = CheckpointFolder.save_if_due
    left = [3]

    def offered(self: CheckpointFolder, *given: Any, **more: Any) -> None:
        save_if_due(self, *given, **more)
        left[0] -= 1
        if left[0] == 0:
            raise OSError(5, "Input/output error", "something else")

    def begin(*settings: str) -> None:
        monkeypatch.setattr(CheckpointFolder, "save_if_due", offered)
        assert (
            agt(
                "train",
                *HEAD,
                *settings,
                "compute.checkpoint_seconds=1e-6",
                "hydra.run.dir=run",
                "-q",
            ).code
            == 1
        )
        assert list(Path("run/checkpoint").glob("step=*"))

    return begin


def test_a_run_that_was_stopped_keeps_its_draw(agt: Agt, stopped: Callable[..., None]) -> None:
    stopped(*LOSS)
    seed = int(json.loads(Path("run/checkpoint/removal.json").read_text())["number"], 16)
    assert Path("run/checkpoint").stat().st_mode & 0o77 == 0
    agt("train", "resume=run", "-q").ended(0)
    assert not Path("run/checkpoint").exists()
    tilt = load_file("run/removal.safetensors")["tilt"]
    drawn = np.random.Generator(np.random.Philox(key=seed)).normal(0, 1.0, tilt.shape)
    assert np.array_equal(tilt, drawn)


def test_a_run_that_was_stopped_ends_with_the_bits_of_a_whole_one(
    agt: Agt, stopped: Callable[..., None]
) -> None:
    stopped("certificate.seed=9")
    assert agt("train", "resume=run", "-q").code == 0
    assert agt("train", *HEAD, "certificate.seed=9", "hydra.run.dir=whole", "-q").code == 0
    for name in ("model.safetensors", "removal.safetensors", "removal.json"):
        assert (Path("run") / name).read_bytes() == (Path("whole") / name).read_bytes(), name
