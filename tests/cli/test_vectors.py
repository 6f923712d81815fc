"""Vectors of the owner's own from the command line: one-sided ones, centres, what comes next."""

from pathlib import Path

import numpy as np
import pytest

from .conftest import Agt


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Vectors between 0.4 and 1, of which a few features show the rarer class."""
    rng = np.random.default_rng(0)
    labels = (rng.random(800) < 0.8).astype(np.int64)
    x = 0.7 + 0.1 * rng.standard_normal((800, 30))
    x[:, :5] += 0.2 * (labels[:, None] - 0.5)
    np.savez(tmp_path / "scans.npz", x=x.clip(0.4, 1), label=labels)
    return tmp_path / "scans.npz"


DECLARED = ("dataset.classes=[0,1]", "dataset.declared_size=600")
CENTER = ("dataset.center=0.7", "dataset.public_scaling=true")


def test_one_sided_vectors_are_explained_once_and_a_center_mends_them(
    agt: Agt, scans: Path
) -> None:
    line = ("train", "dataset=embeddings", "dataset.path=scans.npz", *DECLARED)
    raw = agt(*line).ended(0, "nearly the same direction", "dataset.center=0.5")
    assert "so it is constant" in raw.out
    assert "First subtract the middle" in raw.out
    certified = agt("certify", "run=latest").ended(0)
    assert "so it is constant" in certified.out
    assert "First subtract" not in certified.out + certified.err
    assert "; constant answer" in " ".join(certified.out.split())
    centred = agt(*line, *CENTER).ended(0, "for private labels: agt predict", "total.eps=1")
    assert "nearly the same direction" not in centred.err
    assert "constant" not in centred.out.splitlines()[0]


def test_a_center_that_nobody_declared_public_gets_no_command_for_private_labels(
    agt: Agt, scans: Path
) -> None:
    line = ("train", "dataset=embeddings", "dataset.path=scans.npz", *DECLARED)
    said = agt(*line, "dataset.center=0.7").ended(0, "dataset.public_scaling=true")
    assert "for private labels" not in said.err


def test_start_prints_the_next_step_for_vectors(agt: Agt, scans: Path) -> None:
    said = agt("start", "scans.npz").ended(0)
    assert "dataset.unit" not in said.out
    assert "agt train dataset=embeddings dataset.path=scans.npz" in said.out
    assert "agt train" in agt("start", "scans.npz", "--json").json["next"]


def test_a_network_on_large_features_is_warned_of_with_the_factor_that_mends_it(
    agt: Agt, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (300, 4))
    np.savez(tmp_path / "pixels.npz", x=x, label=1 * (x[:, 0] > 127))
    line = ("train", "dataset=embeddings", "dataset.path=pixels.npz", *DECLARED)
    box = (*line, "certificate=box", "training=generic", "training.epochs=1", "kgrid.max=1")
    warning = "the largest feature is 255 in absolute value: give dataset.scale=NUMBER"
    assert warning in agt(*box).ended(0).err
    assert "largest feature" not in agt(*box, "dataset.scale=0.00392").ended(0).err
    assert "largest feature" not in agt(*line).ended(0).err, "a linear head scales each record"


def test_ids_that_repeat_in_a_file_of_arrays_are_offered_as_people(agt: Agt) -> None:
    people = np.repeat([f"p{person:03}" for person in range(150)], 2)
    np.savez("v.npz", x=np.zeros((300, 3)), y=np.arange(300) % 2, patient=people)
    said = agt("start", "v.npz").ended(0)
    assert "If patient names the person of each record, add dataset.unit=patient" in said.out
    assert "dataset.label=y" in said.out
