"""Figures of certified fractions and of accuracies say what their runs say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agt_cli._experiments.accuracy import EVEN, GEOMETRIC, spaced_ks
from agt_cli._experiments.catalogue import make_kind
from agt_cli._experiments.entry import Entry
from agt_cli._experiments.experiment import Profile
from agt_cli._experiments.rendering import render
from reproducing import an_entry, made, values
from synthetic import make_head, make_recipe, make_records, make_training

from agt.bounds.box import Box
from agt.errors import ConfigError
from agt.relations import RELATIONS
from agt.training.loop import train
from agt_cli._experiments import certified
from agt_cli.report.record import RunRecord

BLOBS = (
    "dataset=blobs_overlapping",
    "dataset.n_train=120",
    "model.hidden=[6]",
    "kgrid=dense",
    "kgrid.max=9",
)
PAPER = Profile(
    privacy="paper_privacy",
    unlearning="paper_unlearning",
    overrides=("training.product=rump",),
    accounting="paper",
)


@pytest.fixture
def entry(tmp_path: Path) -> Callable[..., Entry]:
    """Makes entries over one folder of kept runs."""

    def make(kind: str, base: tuple[str, ...] = BLOBS, **profiles: Profile) -> Entry:
        return an_entry(kind, tmp_path, base, profiles or {"paper": PAPER, "ours": Profile()})  # type: ignore[arg-type]

    return make


def test_each_epoch_hands_over_what_a_shorter_run_returns() -> None:
    rng = np.random.default_rng(0)
    records = make_records(rng.normal(size=(30, 4)).astype(np.float32), rng.integers(0, 2, 30))
    seen: dict[int, Box] = {}

    def run(epochs: int, keep: bool) -> Box:
        training = make_training(epochs=epochs, momentum=0.5, batch={"count": 2})
        setup = make_recipe(training, ks=(0, 2), declared_size=30, threads=1, kernel="reference")
        on_epoch = seen.__setitem__ if keep else None
        return train(make_head(training, 4, 2, (5,)), setup, records, on_epoch=on_epoch)

    run(3, keep=True)
    assert list(seen) == [0, 1, 2, 3]
    for epochs in (1, 2, 3):
        alone = run(epochs, keep=False)
        for name in alone.nominal:
            assert torch.equal(seen[epochs].nominal[name], alone.nominal[name])
            assert torch.equal(seen[epochs].lower[name], alone.lower[name])
            assert torch.equal(seen[epochs].upper[name], alone.upper[name])
    assert all(
        torch.equal(seen[0].lower[name][1], seen[0].nominal[name]) for name in seen[0].nominal
    )


def test_by_k_is_what_each_run_certifies(entry: Callable[..., Entry], tmp_path: Path) -> None:
    here = entry("certified_by_k")
    variants = [{"label": "gamma = 0.06"}, {"label": "gamma = 0.2", "run": ["training.clip=0.2"]}]
    section = made(
        here,
        tmp_path / "r",
        variants=variants,
        claims=["privacy", "unlearning"],
        at=[2, 50],
        only=1,
    )
    assert len(section.table) == 2 * 2 * 2
    overrides = [*BLOBS, "relation=paper_unlearning", "training.product=rump", "training.clip=0.2"]
    run = here.runs.finished(overrides, "the same by hand")
    positive = run.frame[run.frame["label"] == 1]
    expected = (positive["distance"] >= 2).mean()
    assert 0 < expected < 1
    found = values(section)
    assert found["certified at k=2 (unlearning, gamma = 0.2)"]["paper"] == pytest.approx(expected)
    assert found["accuracy, gamma = 0.2"]["paper"] == (positive["prediction"] == 1).mean()
    # beyond the grid: unknown, not 0
    assert np.isnan(found["certified at k=50 (privacy, gamma = 0.06)"]["ours"])
    balls = dict(
        zip(
            section.table["profile"] + section.table["claim"],
            section.table["k counts"],
            strict=True,
        )
    )
    for profile, claim in (("paper", "privacy"), ("ours", "unlearning")):
        assert balls[profile + claim] == RELATIONS[f"paper_{claim}"].describe_neighbours()
    assert (tmp_path / "r" / "figures" / "figure.pdf").is_file()


def test_two_rows_alike_are_refused(entry: Callable[..., Entry], tmp_path: Path) -> None:
    here = entry("certified_by_k", ours=Profile())
    kind = make_kind("certified_by_k", here.profiles, {"claims": ["privacy", "privacy"]}, "here")
    with (
        pytest.raises(ConfigError, match="profile, claim"),
        RunRecord(tmp_path / "r", "reproduce", {}) as record,
    ):
        render(here, kind, record)


@pytest.mark.sweep
def test_a_curve_ends_where_the_run_does(
    entry: Callable[..., Entry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = entry("training_curve")
    own = ["training.epochs=3", "training.batch.count=2"]
    settings: dict[str, Any] = {"run": own, "ks": [2, 6], "claims": ["privacy"]}
    section = made(here, tmp_path / "r", **settings)
    whole = here.runs.finished(
        [*BLOBS, *own, "relation=paper_privacy", "training.product=rump"], "the same by hand"
    )
    for k in (2, 6):
        expected = (whole.distance >= k).mean()
        assert values(section)[f"certified at k={k} (privacy)"]["paper"] == pytest.approx(expected)
    assert values(section)["nominal accuracy"]["paper"] == whole.accuracy
    csv = (tmp_path / "r" / "figures" / "figure_accuracy.csv").read_text()
    assert csv.count("nominal") == 2 * 4  # two profiles, the start and three epochs

    monkeypatch.setattr(
        certified, "train", lambda *arguments, **options: pytest.fail("trained again")
    )
    again = made(here, tmp_path / "again", **settings)
    assert again.table.equals(section.table)


def test_a_grid_that_is_too_short_says_at_least(
    entry: Callable[..., Entry], tmp_path: Path
) -> None:
    here = entry("half_certified", ours=Profile())
    section = made(here, tmp_path / "r", seeds=1, grids={"ours": ["kgrid.max=1"]})
    assert section.table["known"].tolist() == ["at least"]
    assert section.notes


@pytest.mark.parametrize(
    ("count", "spacing", "ks"),
    [
        (1, EVEN, [0, 64]),
        (2, EVEN, [0, 32, 64]),
        (1, GEOMETRIC, [0, 8]),
        (2, GEOMETRIC, [0, 4, 16]),
        (5, GEOMETRIC, [0, 2, 4, 8, 16, 32]),
    ],
)
def test_values_of_k_are_spaced(count: int, spacing: str, ks: list[int]) -> None:
    assert spaced_ks(64, count, spacing).tolist() == ks
