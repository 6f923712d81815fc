"""The search for the smallest batch: bisection against trying everything, resumption, and which data it ran on."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import make_head, make_recipe, make_records, make_training

from agt.errors import ConfigError, DataMissing
from agt.models.box import BoxModel
from agt.settings import BatchConfig, default_n_max, validate
from agt.training.batches import BatchPlan
from agt.training.loop import train
from agt_cli.papers.reproduction import runs as kept
from agt_cli.papers.reproduction import search
from agt_cli.papers.reproduction.definition import load_experiment, settings_for
from agt_cli.papers.reproduction.kinds import Context, Made
from agt_cli.papers.reproduction.runs import Runs
from agt_cli.papers.reproduction.search import SearchConfig, batch_counts, largest_batch, last_that_passes, smallest_batch
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord

TINY: dict[str, Any] = {"depths": [1], "width": 4, "k": 2, "least": 64, "per_doubling": 1, "generated": 1000}
TINY |= {"data": "generated", "run": ["training.lr=0.3"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs and generated statements are kept, by all tests of this file."""
    return tmp_path_factory.mktemp("kept")


def context(folder: Path, record: RunRecord, profile: str = "smoke", *common: str) -> Context:
    experiment = load_experiment("amex")
    runs = Runs(folder, (f"data_dir={folder / 'nothing'}", *common), Console(quiet=True))
    return Context(experiment, experiment.artifacts[0], {profile: experiment.profiles[profile]}, runs, record)  # type: ignore[dict-item,index]


@pytest.fixture(autouse=True)
def composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Composing a configuration takes longer than training on a thousand rows; a run asks for the same one twice."""
    composed = cache(kept.composed)
    monkeypatch.setattr(kept, "composed", lambda command, overrides: composed(command, tuple(overrides)))


def made(folder: Path, tmp_path: Path, profile: str = "smoke", *common: str, **settings: Any) -> Made:
    with RunRecord(tmp_path / "record", "reproduce", {}) as record:
        return smallest_batch(context(folder, record, profile, *common), {**TINY, **settings})


# -- the search --------------------------------------------------------------------------------------------------------


def test_bisection_finds_what_trying_everything_finds() -> None:
    for size in range(1, 20):
        for last in range(-1, size):
            asked: list[int] = []
            assert last_that_passes(lambda i, last=last, asked=asked: asked.append(i) or i <= last, size) == last  # type: ignore[misc,func-returns-value]
            assert len(asked) <= 1 + int(np.ceil(np.log2(size + 1)))
            assert all(0 <= index < size for index in asked)


def test_batches_shrink_in_equal_steps_down_to_the_least() -> None:
    config = SearchConfig(least=64, per_doubling=4)
    counts = batch_counts(900_000, config)
    assert counts[:8] == (1, 2, 3, 4, 5, 6, 7, 8)
    assert set(2 ** np.arange(14)) <= set(counts)
    ratios = np.diff(np.log2(counts[20:]))
    assert np.abs(ratios - 0.25).max() < 0.02
    assert 64 <= 900_000 / counts[-1] < 64 * 2**0.25
    assert batch_counts(50, config) == (1,)


def test_the_search_tries_two_sizes_on_either_side(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SearchConfig(least=1, per_doubling=1, k=1)

    def searched(certified: dict[int, float]) -> search.Search:
        def probe(context: Any, task: search.Task, count: int, k: int) -> search.Probe:
            return search.Probe(count, task.size / count, certified.get(count, 0.0), 0.5, 0.5, 1.0, 1.0)

        monkeypatch.setattr(search, "_probe", probe)
        context: Any = None
        return search._search(context, search.Task((), "", 128, 1, "", ""), config)

    found = searched({1: 1.0, 2: 0.99, 4: 0.96})
    assert found.enough is not None
    assert (found.enough.count, found.monotone, found.last) == (4, True, False)
    assert {2, 4, 8, 16} <= {probe.count for probe in found.probes}
    odd = searched({1: 1.0, 2: 0.99, 8: 0.97})  # 4 fails, 8 passes, and bisection alone never looks at it
    assert odd.enough is not None
    assert (odd.enough.count, odd.monotone) == (2, False)
    none = searched({})
    assert (none.enough, none.monotone, [p.count for p in none.probes]) == (None, True, [1, 2])
    assert not searched({2: 1.0}).monotone
    every = searched(dict.fromkeys((1, 2, 4, 8, 16, 32, 64, 128), 1.0))
    assert every.enough is not None
    assert (every.enough.count, every.last) == (128, True)


def test_the_cap_on_a_batch_leaves_room_for_whole_customers() -> None:
    """Customers of 13 rows in batches of about 300: the usual cap, which assumes single rows, is too small."""
    assert largest_batch(700.0, 1) == default_n_max(700.0)
    units = np.repeat([f"customer {i}" for i in range(4_000)], 13)

    def largest(n_max: int) -> int:
        plan = BatchPlan.of(BatchConfig(count=173, n_max=n_max), 1, len(units), len(units))
        return max(len(rows) for rows in plan.batches(units))

    assert largest(largest_batch(300.0, 13)) > default_n_max(300.0)
    with pytest.raises(ConfigError, match="n_max"):
        largest(default_n_max(300.0))


# -- the kind ----------------------------------------------------------------------------------------------------------


def test_the_answer_is_that_of_trying_every_batch(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = made(folder, tmp_path, claims=["privacy"])
    counts = batch_counts(900, SearchConfig(least=64, per_doubling=1))
    with RunRecord(tmp_path / "all", "reproduce", {}) as record:
        everything = context(folder, record)
        profile = everything.profiles["smoke"]
        data = search._data(everything, profile, validate(SearchConfig, TINY, ""))
        own = (*TINY["run"], *data, "relation=@privacy", "model.hidden=[4]", "kgrid=sparse", "kgrid.values=[2]")
        task = search._task(everything, everything.overrides(profile, own), "")
        fractions = [search._probe(everything, task, count, 2).certified for count in counts]
    enough = [900 / count for count, fraction in zip(counts, fractions, strict=True) if fraction >= 0.95]
    assert 1 <= len(enough) < len(counts), fractions  # otherwise this test shows nothing
    assert result.values == {"smallest batch, privacy, depth 1": {"smoke": min(enough)}}
    written = {path.name for path in (tmp_path / "record" / "figures").iterdir()}
    assert written == {f"{id}.{kind}" for id in ("001_fig9", "001_fig9_runs") for kind in ("pdf", "png", "csv")}
    assert set(result.captions) == {"001_fig9", "001_fig9_runs"}
    drawn = pd.read_csv(tmp_path / "record" / "figures" / "001_fig9.csv")
    assert drawn["batch"].tolist() == [v["smoke"] for v in result.values.values()]

    def trained_again(*args: Any) -> None:
        raise AssertionError("a probe that was kept is trained again")

    monkeypatch.setattr(kept, "fit", trained_again)
    monkeypatch.setattr(search, "curves", lambda record, what, frame: None)
    again = made(folder, tmp_path / "again", claims=["privacy"])
    assert again.values == result.values
    pd.testing.assert_frame_equal(again.table, result.table)


def test_tables_say_synthetic_what_one_k_counts_and_how_good_the_network_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "curves", lambda record, what, frame: None)
    ours = made(folder, tmp_path, claims=["privacy"], least=450).table.iloc[0]
    assert ours["data"] == "AMEX-shaped SYNTHETIC statements, 1,000 (unit: customer)"
    assert ours["k counts"] == "up to k units of up to 13 records added or removed in all"
    assert max(ours["larger class"], ours["given one label"]) <= 1
    assert ours["larger class"] >= 0.5
    assert ours["seconds per step"] > 0
    paper = made(folder, tmp_path / "paper", "paper", claims=["unlearning"], least=450).table.iloc[0]
    assert paper["data"] == "AMEX-shaped SYNTHETIC statements, 1,000 (unit: statement)"
    assert paper["k counts"] == "up to k records removed"


def test_more_than_all_records_is_said_and_drawn_nowhere(folder: Path, tmp_path: Path) -> None:
    result = made(folder, tmp_path, claims=["privacy"], run=["training.lr=3000"], least=450)
    row = result.table.iloc[0]
    assert row["smallest batch for 95%"] == "more than all 900"
    assert row["certified"] == row["certified, one batch of all"] < 0.95
    assert np.isnan(result.values["smallest batch, privacy, depth 1"]["smoke"])
    assert pd.read_csv(tmp_path / "record" / "figures" / "001_fig9.csv")["batch"].isna().all()


def test_the_definition_is_valid_in_every_profile() -> None:
    experiment = load_experiment("amex")
    assert {artifact.kind for artifact in experiment.artifacts} == {"smallest_batch"}
    for artifact in experiment.artifacts:
        config = validate(SearchConfig, artifact.settings, artifact.id)
        assert (config.depths, config.width, config.k, config.fraction) == ((1, 2, 3, 4), 128, 50, 0.95)
        computed = {f"smallest batch, {claim}, depth {depth}" for claim in config.claims for depth in config.depths}
        assert {entry.what for entry in artifact.published} <= computed
    smoke = settings_for(experiment.artifacts[0], {"smoke": experiment.profiles["smoke"]})
    assert smoke is not None
    assert validate(SearchConfig, smoke, "smoke").data == "generated"


# -- the data ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def either(folder: Path, tmp_path: Path) -> Any:
    """The overrides that stand generated data in, under ``data: either``."""

    def data(*common: str) -> tuple[str, ...]:
        with RunRecord(tmp_path / "record", "reproduce", {}) as record:
            made = context(folder, record, "paper", *common)
            return search._data(made, made.profiles["paper"], validate(SearchConfig, {"generated": 1000}, ""))

    return data


def test_generated_statements_stand_in_where_there_are_none(either: Any, folder: Path) -> None:
    path, name, size = either()
    assert path == f"dataset.path='{folder}/amex_like_1000'"
    assert name == "dataset.name='AMEX-shaped SYNTHETIC statements, 1,000 (unit: statement)'"
    assert size == "dataset.declared_size=900"
    assert sorted(p.name for p in folder.glob("*amex_like*")) == ["amex_like_1000"]


@pytest.mark.parametrize("there", ["amex", "amex.part"])
def test_prepared_data_comes_first_even_if_unfinished(either: Any, tmp_path: Path, there: str) -> None:
    (tmp_path / there).mkdir()
    assert either(f"data_dir={tmp_path}") == ()


def test_nothing_stands_in_for_data_that_was_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="agt data prepare amex"):
        made(folder, tmp_path, "paper", "dataset.path=mistyped", data="either")


def test_read_only_features_train_predict_and_certify() -> None:
    """Memory-mapped features: PyTorch warns about each that it is given, and a warning is an error here."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 3))
    features.flags.writeable = False
    labels = (features[:, 0] > 0).astype(np.int64)
    training = make_training(lr=0.5)
    head, recipe = make_head(training, 3, 2, (4,)), make_recipe(training, ks=(0, 1), declared_size=60)
    torch.set_warn_always(True)
    try:
        box = train(head, recipe, make_records(features, labels))
        problem: Any = SimpleNamespace(classes=2, settings=SimpleNamespace(training=training), recipe=recipe)
        model = BoxModel(problem, head, box, recipe.plan(60))
        predicted = model.predict(features)
        certificates = model.certify(features)
        margins = model.margins(features)
    finally:
        torch.set_warn_always(False)
    assert (certificates.prediction == predicted).all()
    assert ((margins[0] > 0) == (predicted == 1)).all()


def test_several_initialisations_give_a_median_and_a_range_and_none_is_left_out(folder: Path, tmp_path: Path) -> None:
    result = made(folder, tmp_path, claims=["privacy"], seeds={"smoke": 3})
    assert result.table["seed"].tolist() == [0, 1, 2]
    answers = search.over_seeds(pd.DataFrame(result.table).assign(batch=[100.0, np.nan, 300.0]), 900)
    assert answers.drop(columns="data").to_dict("records") == [
        {"profile": "smoke", "claim": "privacy", "depth": 1, "batch": 300.0, "low": 100.0, "high": 900.0}
    ]
    too_few = search.over_seeds(pd.DataFrame(result.table).assign(batch=[100.0, np.nan, np.nan]), 900)
    assert np.isnan(too_few["batch"]).all()  # the median initialisation needs more than all records
    drawn = pd.read_csv(tmp_path / "record" / "figures" / "001_fig9_runs.csv")
    assert set(drawn["series"]) == {f"privacy (smoke), seed {seed}" for seed in range(3)}
    one = search.over_seeds(pd.DataFrame(result.table).assign(batch=[1.0, 2.0, 3.0])[:1], 900)
    assert one[["low", "high"]].isna().all(axis=None)  # no range of one
