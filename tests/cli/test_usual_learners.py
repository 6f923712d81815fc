"""agt train shows usual learners beside a model of vectors, and records nothing of them."""

from pathlib import Path

import numpy as np
import pytest

from .conftest import Agt


def test_a_linear_head_far_behind_logistic_regression_is_told_where_to_look(
    agt: Agt, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 200)
    far = np.full((200, 3), 50.0)  # a linear head without an offset of its own is no better here
    np.savez(tmp_path / "v.npz", x=far + rng.normal(size=(200, 3)) + label[:, None], label=label)
    train = ("train", "dataset=embeddings", "dataset.path=v.npz")
    agt(*train).ended(0, "certificate/features=relu")
    assert "certificate/features=relu" not in agt(*train, "certificate/features=relu").err


def test_a_network_that_a_linear_classifier_beats_is_named_with_the_command_to_compare(
    agt: Agt, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 400)
    np.savez(tmp_path / "v.npz", x=rng.normal(size=(400, 3)) + 2 * label[:, None], label=label)
    network = ("model=mlp", "certificate=box", "training=generic", "training.lr=1e-9")
    told = agt("train", "dataset=embeddings", "dataset.path=v.npz", *network, "kgrid.max=1")
    told.ended(0, "A plain linear classifier labels 0.")
    line = next(line for line in told.err.splitlines() if line.startswith("to compare: agt "))
    better = agt(*line.removeprefix("to compare: agt ").split()).ended(0)
    assert "A plain linear classifier" not in better.err


def test_a_network_is_named_although_its_few_test_records_alone_would_show_nothing(
    agt: Agt,
) -> None:
    told = agt("train", "dataset=digits", "model=mlp", "kgrid.max=1")
    told.ended(0, "A plain linear classifier labels 0.98", "of 357 records")


@pytest.mark.parametrize(("quiet", "shown"), [(["-q"], False), ([], True)])
def test_usual_learners_are_shown_unless_output_is_quiet(
    agt: Agt, tmp_path: Path, quiet: list[str], shown: bool
) -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 200)
    np.savez(tmp_path / "v.npz", x=rng.normal(size=(200, 3)) + 2 * label[:, None], label=label)
    train = ("train", "dataset=embeddings", "dataset.path=v.npz", "--json", *quiet)
    told = agt(*train).ended(0).json
    assert ("usual_learners" in told) == shown
    assert not any("LogisticRegression" in name for name in told["metrics"])
