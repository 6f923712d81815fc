"""Settings compared on public rows: folds that stand for the real run, the rule of choice, and
private records unread.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agt.data.dataset import Dataset
from agt.data.records import Records, records
from agt.data.target import ClassTarget
from agt.errors import ConfigError
from agt.facts import Standing, declared, evidence, not_held, proved
from agt.mechanisms.guarantees import GaussianDP
from agt.models.box import BoxKind
from agt.models.erm import ErmKind
from agt.models.heads import HeadConfig
from agt.models.stability import StabilityKind
from agt.problem import Problem, Settings
from agt.settings import ChosenFrom, ComputeConfig, KGridConfig, RelationConfig, TrainingConfig
from agt.training.settings import EnsembleConfig
from agt_cli.choices import compare_public_rows, declare_public_rows
from agt_cli.commands.tune import TuningData, read_candidates
from agt_cli.composing import compose_command
from agt_cli.report.console import Console
from agt_cli.runs.tuning import Candidate, choose_candidate, untrained_linear_model

BUDGET = GaussianDP(0.3)


def rows(n: int, seed: int, name: str = "p") -> Records:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    x = rng.normal(size=(n, 4)) + 1.5 * labels[:, None]
    return records(x.astype(np.float32), labels, np.array([f"{name}{i}" for i in range(n)]))


def dataset(private: Records, test: Records, size: float | None = 400) -> Dataset:
    return Dataset(
        "toy",
        ClassTarget(("0", "1")),
        private,
        test,
        size,
        {},
        evidence(proved("own_words", text="ids")),
        evidence(proved("own_words", text="constants")),
    )


def settings(certificate: Any = None, **training: Any) -> Settings:
    given = {
        "loss": "binary_cross_entropy",
        "epochs": 1,
        "lr": 1.0,
        "clip": 0.5,
        "weight_decay": 0.01,
    } | training
    return Settings(
        model=HeadConfig(hidden=()),
        training=TrainingConfig(**given),
        relation=RelationConfig(name="add_remove"),
        kgrid=KGridConfig(max=30),
        compute=ComputeConfig(),
        certificate=certificate or ErmKind(),
        ensemble=EnsembleConfig(),
        noise=None,
        choices=not_held("own_words", text="nobody said"),
    )


def candidate(
    private: Records | None = None, size: float | None = 400, **training: Any
) -> Candidate:
    data = dataset(rows(400, 1, "t") if private is None else private, rows(120, 2), size)
    return Candidate.from_dataset(data, settings(**training), data.test)


def test_distances_of_the_folds_are_the_real_runs() -> None:
    """Ten times as many private records declared, and nothing else: they reach farther, and no
    label changes.
    """
    few, many = (candidate(size=size).scores(4, 20, BUDGET) for size in (400, 4000))
    assert (few[:, 0] == many[:, 0]).all()
    assert (few[:, 1] < many[:, 1]).all()
    assert (few[:, 2] < many[:, 2]).all()
    assert candidate(size=400).model.l2_sensitivity == pytest.approx(
        10 * candidate(size=4000).model.l2_sensitivity, rel=1e-3
    )


def test_a_fold_is_what_a_run_on_its_rows_would_be() -> None:
    """If the public rows outside the fold were the private records, and as many, the head would
    be the fold's own.
    """
    here = candidate(size=90)
    inside = here.rows.take(np.arange(90))
    stand_in = here._train_on_public(inside)
    real = untrained_linear_model(Problem(dataset(inside, here.rows, 90), settings())).retrained(
        inside
    )
    assert stand_in.trained.weight.numpy() == pytest.approx(real.trained.weight.numpy(), abs=1e-9)
    assert stand_in.trained.sensitivity == here.model.trained.sensitivity


def test_private_records_are_never_read() -> None:
    """Other private records, and another number of them: the same scores to the last bit."""
    one, two = (
        candidate(private).scores(3, 20, BUDGET)
        for private in (rows(400, 1, "t"), rows(250, 9, "u"))
    )
    assert (one == two).all()


def test_a_rate_close_to_the_limit_holds_in_the_folds() -> None:
    """n_max / B, and with it the largest learning rate, is the real run's, though the folds are
    far smaller.
    """
    limit = untrained_linear_model(
        Problem(dataset(rows(9, 0), rows(9, 1), 40_000), settings(StabilityKind()))
    ).trained.sensitivity.rate_limit
    assert limit is not None
    scores = candidate(
        size=40_000, certificate=StabilityKind(), epochs=4, lr=0.999 * limit, weight_decay=0.01
    )
    assert scores.scores(3, 20, BUDGET).shape == (3, 3)


def test_people_stay_on_one_side_of_a_fold() -> None:
    here = candidate()
    people = replace(here.rows, units=np.array([f"u{i // 4}" for i in range(120)]))
    assert Candidate(here.model, people).scores(5, 20, BUDGET).shape == (5, 3)
    with pytest.raises(ConfigError, match=r"tune\.folds=31.*\b30\b"):
        Candidate(here.model, people).scores(31, 20, BUDGET)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"size": None}, "dataset.declared_size"),
        ({"certificate": BoxKind()}, "certificate=erm"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        candidate(**change)


def test_features_that_depend_on_private_records_are_refused() -> None:
    data = replace(
        dataset(rows(400, 1, "t"), rows(120, 2)),
        preprocessing=evidence(not_held("own_words", text="a range is private")),
    )
    with pytest.raises(ConfigError, match="agt tune"):
        Candidate.from_dataset(data, settings(), data.test)


def test_the_choice_is_within_a_standard_error_of_the_best() -> None:
    def score(certified: float, accuracy: float) -> np.ndarray:
        return np.array([[accuracy, certified + off, 0.5] for off in (-0.02, 0.0, 0.02)])

    best_of_all = score(0.80, 0.7)
    close = score(0.79, 0.9)
    far = score(0.7, 0.99)
    assert choose_candidate([far, best_of_all, close], "certified") == 2
    assert choose_candidate([far, best_of_all], "certified") == 1
    assert choose_candidate([best_of_all, close, far], "accuracy") == 2


def test_a_grid_names_keys_and_merges_mappings() -> None:
    config = compose_command(
        "train", ["dataset=digits", "model=linear", "training=recipe", "certificate=erm"]
    )
    grid = {
        "training.weight_decay": (1e-3, 1e-2),
        "certificate.features": ({"map": "none"}, {"map": "relu", "count": 8}),
    }
    found = read_candidates(config, grid)
    assert [choice.settings.training.weight_decay for choice in found] == [1e-3, 1e-3, 1e-2, 1e-2]
    assert found[1].config["certificate"]["features"]["bias"] == 0.1
    assert re.match(
        r"training\.weight_decay=0\.001.*certificate\.features=.*8", found[1].description
    )
    assert read_candidates(config, None)[0].description == "as given"
    for key, text in (
        ("training.weigth_decay", r"'training\.weigth_decay'.*'weight_decay'"),
        ("compute.threads", "unknown key"),
    ):
        with pytest.raises(ConfigError, match=text):
            read_candidates(config, {key: (1,)})
    with pytest.raises(ConfigError, match=r"training\.weight_decay"):
        read_candidates(config, {"training.weight_decay": (-1.0,)})


@pytest.mark.parametrize(
    ("grid", "allowed"),
    [
        ({"dataset.split_key": ("a", "b")}, False),
        ({"dataset.test_fraction": (0.25, 0.3)}, False),
        ({"dataset.numeric": ({"x": [0, 1], "z": [0, 1]}, {"x": [0, 1], "y2": [0, 1]})}, False),
        ({"dataset.bins": (0, 5), "dataset.crosses": (0, 8)}, True),
    ],
)
def test_no_candidate_is_scored_on_what_another_trains_on(
    grid: dict[str, tuple[Any, ...]], allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids made of content change with the columns, and with them the split."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = "".join(f"{x:.4f},{z:.4f},{z:.3f},{int(x > 0.5)}\n" for x, z in rng.random((80, 2)))
    Path("t.csv").write_text(f"x,z,y2,y\n{lines}")
    columns = ["dataset.path=t.csv", "dataset.label=y", "+dataset.numeric={x: [0, 1], z: [0, 1]}"]
    config = compose_command("train", ["dataset=table", *columns])
    data = TuningData("test", Console(quiet=True))
    found = read_candidates(config, grid)
    if allowed:
        assert len({id(data.load(choice)) for choice in found}) == len(found)
    else:
        with pytest.raises(ConfigError, match=r"tune\.grid: .*dataset\."):
            [data.load(choice) for choice in found]


def test_a_declaration_falls_with_the_public_rows_that_it_names() -> None:
    source: Any = None
    now = dataset(rows(400, 1, "t"), rows(120, 2))
    said = declared("settings_of_recipe")
    about = declare_public_rows("test", now, source)
    assert compare_public_rows(said, about, now, source).standing is Standing.DECLARED
    assert about.digest in compare_public_rows(said, about, now, source).sentence
    neighbour = dataset(rows(399, 1, "t"), rows(120, 2))
    assert compare_public_rows(said, about, neighbour, source) == compare_public_rows(
        said, about, now, source
    )
    other = dataset(rows(400, 1, "t"), rows(120, 3))
    fact = compare_public_rows(said, about, other, source)
    assert fact.standing is Standing.VOID
    assert fact.code == "chosen_on_other_rows"
    assert compare_public_rows(said, None, other, source) == said
    assert compare_public_rows(fact, about, now, source) == fact, "what is void stays so"
    assert (
        compare_public_rows(said, ChosenFrom("gone.csv", "x"), now, source).standing
        is Standing.DECLARED
    )
