"""The search for the smallest batch finds what trying every batch finds."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import reproducing
import torch
from agt_cli._experiments.entry import Entry
from agt_cli._experiments.experiment import load_experiment
from agt_cli._experiments.rendering import Section
from agt_cli._experiments.runs import Runs
from agt_cli._experiments.smallest_batch import (
    MONOTONE,
    batch_counts,
    largest_batch,
    over_seeds,
    searched,
    stand_in,
)
from reproducing import values
from synthetic import make_head, make_recipe, make_records, make_training

from agt.errors import ConfigError
from agt.models.box import BoxModel
from agt.settings import BatchConfig, default_n_max
from agt.training.batches import BatchPlan
from agt.training.loop import train
from agt_cli._experiments import runs as kept
from agt_cli.report.console import Console

TINY: dict[str, Any] = {
    "depths": [1],
    "width": 4,
    "k": 2,
    "least": 64,
    "per_doubling": 1,
    "generated": 1000,
}


TINY |= {"data": "generated", "run": ["training.lr=0.3"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs and generated statements are kept, by all tests of this file."""
    return tmp_path_factory.mktemp("kept")


def a_search(folder: Path, profile: str = "smoke", *common: str) -> Entry:
    experiment = load_experiment("amex")
    runs = Runs(folder, (f"data_dir={folder / 'nothing'}", *common), Console(quiet=True))
    return Entry(experiment, experiment.artifacts[0], {profile: experiment.profiles[profile]}, runs)  # type: ignore[dict-item,index]


@pytest.fixture(autouse=True)
def composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Composing a configuration takes longer than training on a thousand rows; a run asks for
    the same one twice.
    """
    compose = cache(kept.compose_command)
    monkeypatch.setattr(
        kept, "compose_command", lambda command, overrides: compose(command, tuple(overrides))
    )


def searched_and_made(
    folder: Path, tmp_path: Path, profile: str = "smoke", *common: str, **settings: Any
) -> Section:
    return reproducing.made(
        a_search(folder, profile, *common), tmp_path / "record", **{**TINY, **settings}
    )


def ours(section: Section, profile: str = "smoke") -> dict[str, float]:
    """What was measured, without the published numbers that a small search leaves alone."""
    found = {what: by[profile] for what, by in values(section).items()}
    return {what: value for what, value in found.items() if "depth 4" not in what}


def test_bisection_finds_what_trying_everything_finds() -> None:
    for size in range(1, 20):
        for last in range(-1, size):
            asked: list[int] = []

            def probe(count: int, last: int = last, asked: list[int] = asked) -> dict[str, Any]:
                asked.append(count)
                return {"count": count, "certified": float(count <= last)}

            found = searched(tuple(range(size)), probe, 1.0)
            assert [p["count"] for p in found if p["enough"]] == ([last] if last >= 0 else [])
            assert len(asked) == len(set(asked)) <= 3 + int(np.ceil(np.log2(size + 1)))
            assert all(p[MONOTONE] and p["least tried"] == (last == size - 1) for p in found)


def test_batches_shrink_in_equal_steps_down_to_the_least() -> None:
    counts = batch_counts(900_000, 64, 4)
    assert counts[:8] == (1, 2, 3, 4, 5, 6, 7, 8)
    assert set(2 ** np.arange(14)) <= set(counts)
    ratios = np.diff(np.log2(counts[20:]))
    assert np.abs(ratios - 0.25).max() < 0.02
    assert 64 <= 900_000 / counts[-1] < 64 * 2**0.25
    assert batch_counts(50, 64, 4) == (1,)


def test_the_cap_on_a_batch_leaves_room_for_whole_customers() -> None:
    """Customers of 13 rows in batches of about 300: the usual cap, which assumes single rows, is
    too small.
    """
    assert largest_batch(700.0, 1) == default_n_max(700.0)
    units = np.repeat([f"customer {i}" for i in range(4_000)], 13)

    def largest(n_max: int) -> int:
        plan = BatchPlan.from_settings(
            BatchConfig(count=173, n_max=n_max), 1, len(units), len(units)
        )
        return max(len(rows) for rows in plan.batches(units))

    assert largest(largest_batch(300.0, 13)) > default_n_max(300.0)
    with pytest.raises(ConfigError, match="n_max"):
        largest(default_n_max(300.0))


def test_the_answer_is_that_of_trying_every_batch(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = searched_and_made(folder, tmp_path, claims=["privacy"])
    everything = a_search(folder)
    data = stand_in(everything, "smoke", TINY["run"], 1000, "generated")
    own = (
        *TINY["run"],
        *data,
        "relation=@privacy",
        "model.hidden=[4]",
        "kgrid=sparse",
        "kgrid.values=[2]",
    )
    batches = [900 / count for count in batch_counts(900, 64, 1)]
    rows = everything.data("smoke", own)[1].relation.unit_rows
    cuts = [
        (f"training.batch.count={round(900 / b)}", f"training.batch.n_max={largest_batch(b, rows)}")
        for b in batches
    ]
    fractions = [
        float((everything.run("smoke", (*own, *cut)).distance >= 2).mean()) for cut in cuts
    ]
    enough = [batch for batch, fraction in zip(batches, fractions, strict=True) if fraction >= 0.95]
    assert 1 <= len(enough) < len(batches), fractions  # otherwise this test shows nothing
    assert ours(result) == {"smallest batch, privacy, depth 1": min(enough)}
    written = {path.name for path in (tmp_path / "record" / "figures").iterdir()}
    assert written == {
        f"{id}.{kind}" for id in ("001_fig9", "001_fig9_runs") for kind in ("pdf", "png", "csv")
    }
    assert set(result.captions) == {"001_fig9", "001_fig9_runs"}
    assert pd.read_csv(tmp_path / "record" / "figures" / "001_fig9.csv")["batch"].tolist() == [
        min(enough)
    ]

    def trained_again(*args: Any) -> None:
        raise AssertionError("a probe that was kept is trained again")

    monkeypatch.setattr(kept, "fit", trained_again)
    again = searched_and_made(folder, tmp_path / "again", claims=["privacy"])
    assert ours(again) == ours(result)
    pd.testing.assert_frame_equal(again.table, result.table)


@pytest.fixture
def either(folder: Path) -> Any:
    """The overrides that stand generated data in, under ``data: either``."""
    return lambda *common: stand_in(a_search(folder, "paper", *common), "paper", (), 1000, "either")


def test_generated_statements_stand_in_where_there_are_none(either: Any, folder: Path) -> None:
    path, name, size = either()
    assert path == f"dataset.path='{folder}/amex_like_1000'"
    assert name == "dataset.name='AMEX-shaped SYNTHETIC statements, 1,000 (unit: statement)'"
    assert size == "dataset.declared_size=900"
    assert sorted(p.name for p in folder.glob("*amex_like*")) == ["amex_like_1000"]


@pytest.mark.parametrize("there", ["amex", "amex.part"])
def test_prepared_data_comes_first_even_if_unfinished(
    either: Any, tmp_path: Path, there: str
) -> None:
    (tmp_path / there).mkdir()
    assert either(f"data_dir={tmp_path}") == ()


def test_read_only_features_train_predict_and_certify() -> None:
    """Memory-mapped features: PyTorch warns about each that it is given, and a warning is an
    error here.
    """
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 3))
    features.flags.writeable = False
    labels = (features[:, 0] > 0).astype(np.int64)
    training = make_training(lr=0.5)
    head = make_head(training, 3, 2, (4,))
    setup = make_recipe(training, ks=(0, 1), declared_size=60)
    torch.set_warn_always(True)
    try:
        box = train(head, setup, make_records(features, labels))
        problem: Any = SimpleNamespace(
            classes=2, settings=SimpleNamespace(training=training), setup=setup
        )
        model = BoxModel(problem, head, box, setup.plan(60))
        predicted = model.predict(features)
        certificates = model.certify(features)
        margins = model.margins(features)
    finally:
        torch.set_warn_always(False)
    assert (certificates.prediction == predicted).all()
    assert ((margins[0] > 0) == (predicted == 1)).all()


@pytest.mark.sweep
def test_several_initialisations_give_a_median_and_a_range_and_none_is_left_out(
    folder: Path, tmp_path: Path
) -> None:
    result = searched_and_made(folder, tmp_path, claims=["privacy"], seeds={"smoke": 3})
    assert result.table["seed"].tolist() == [0, 1, 2]
    answers = over_seeds(result.table.assign(batch=[100.0, np.nan, 300.0]), 900)
    assert answers.drop(columns="data").to_dict("records") == [
        {
            "profile": "smoke",
            "claim": "privacy",
            "depth": 1,
            "batch": 300.0,
            "low": 100.0,
            "high": 900.0,
        }
    ]
    too_few = over_seeds(result.table.assign(batch=[100.0, np.nan, np.nan]), 900)
    assert np.isnan(too_few["batch"]).all()  # the median initialisation needs more than all records
    drawn = pd.read_csv(tmp_path / "record" / "figures" / "001_fig9_runs.csv")
    assert set(drawn["series"]) == {f"privacy (smoke), seed {seed}" for seed in range(3)}
    one = over_seeds(result.table.assign(batch=[1.0, 2.0, 3.0])[:1], 900)
    assert one[["low", "high"]].isna().all(axis=None)  # no range of one
