"""What each kind of figure and table says is what its runs say, and is found again."""

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import reproducing
import torch
from agt_cli._experiments.accuracy import EVEN, GEOMETRIC, spaced_ks
from agt_cli._experiments.bench import RECORD, Bench
from agt_cli._experiments.catalogue import make_kind
from agt_cli._experiments.certified import HALF
from agt_cli._experiments.convolutional import features, network
from agt_cli._experiments.dp_sgd import DpSgd, of_one
from agt_cli._experiments.entry import Entry
from agt_cli._experiments.erasure_requests import (
    AT_RANDOM,
    SPREAD,
    WITH,
    WITHOUT,
    answered_at_random,
    spread_requests,
)
from agt_cli._experiments.experiment import Profile, ProfileName, load_experiment
from agt_cli._experiments.frontier import Curve, Method, Reached, best
from agt_cli._experiments.looseness import influences
from agt_cli._experiments.private_features import Schedule, schedule_for
from agt_cli._experiments.removable_head import budget, published, removing
from agt_cli._experiments.rendering import Section, render
from agt_cli._experiments.runs import Runs, dealt, left_out
from agt_cli._experiments.smallest_batch import (
    MONOTONE,
    batch_counts,
    largest_batch,
    over_seeds,
    searched,
    stand_in,
)
from agt_cli._experiments.students import Student, taught
from reproducing import an_entry, made, rows_of, values
from scipy.special import expit
from synthetic import make_head, make_recipe, make_records, make_training

from agt.bounds.box import Box
from agt.errors import ConfigError
from agt.mechanisms.composition import PUBLISHED_BOUNDS
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.planning import Budget, afford
from agt.models.box import BoxModel
from agt.numeric import gaussian_mu
from agt.relations import RELATIONS
from agt.settings import BatchConfig, default_n_max
from agt.training.batches import BatchPlan
from agt.training.loop import train
from agt.unlearning.sisa import answerable
from agt_audit.neighbours import retrained
from agt_cli._experiments import certified, runs as kept
from agt_cli.config_files import experiment_names
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord

# -- reproduction certified
# --------------------------------------------------------------------------------------------


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


# -- reproduction frontier
# ---------------------------------------------------------------------------------------------


PUBLIC_BLOBS = (
    "dataset=blobs_overlapping",
    "dataset.n_train=120",
    "training.chosen_on=public",
    "kgrid=dense",
    "kgrid.max=20",
)
LINEAR = {
    "label": "linear head",
    "run": ["model=linear", "certificate=erm", "training=recipe"],
    "settings": [["training.weight_decay=0.01"], ["training.weight_decay=0.3"]],
    "seeds": [],
}
BOXES = {
    "label": "boxes",
    "run": ["model.hidden=[4]"],
    "settings": [["training.epochs=1"], ["training.lr=0.1"]],
}
OURS: dict[ProfileName, Profile] = {"ours": Profile()}


def a_table(distance: list[int], right: list[bool] | None = None) -> pd.DataFrame:
    labels = np.ones(len(distance), dtype=int)
    return pd.DataFrame({"distance": distance, "label": labels, "prediction": right or labels})


@pytest.mark.parametrize(
    ("distance", "ks", "half", "exact"),
    [
        ([3, 3, 1, 0], range(5), 3, True),  # exactly half at 3
        ([3, 2, 1, 0, 0], range(5), 1, True),
        ([0, 0, 0, 4], range(5), 0, True),
        ([4, 4, 4, 0], range(5), 4, False),  # the grid ends there
        ([5, 5, 5, 0], (1, 5, 9), 5, False),  # or has a gap
        ([70, 80, 90, 0], range(5), 80, True),  # a closed form, whose distances no grid ends
    ],
)
def test_the_k_at_half(distance: list[int], ks: Any, half: int, exact: bool) -> None:
    found = Reached.of(a_table(distance, [True, False, True, True, True][: len(distance)]), ks)
    assert (found.half, found.exact) == (half, exact)
    assert found.accuracy == pytest.approx(1 - 1 / len(distance))


def test_what_a_setting_reaches_where_it_reports_has_no_say_in_the_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two settings is right on one half of the test records alone: whoever looked would
    report 1, and gets 0.
    """
    here = an_entry("frontier", tmp_path, PUBLIC_BLOBS, OURS)
    test = here.data("ours", ())[0].dataset.test
    part = dealt(test.units, 2)
    assert 0 < part.mean() < 1

    def run(self: Curve, setting: tuple[str, ...], seed: int, more: Any = ()) -> Any:
        right = part == int(setting[0][-1])
        frame = pd.DataFrame(
            {"distance": 9, "label": 1, "prediction": right.astype(int)}, index=range(len(test))
        )
        return type(
            "Run",
            (),
            {"frame": frame, "ks": range(20), "relation": "add_remove", "counts": "records"},
        )

    monkeypatch.setattr(Curve, "run", run)
    rows = rows_of(
        here,
        methods=[{"label": "a", "settings": [["training.seed=0"], ["training.seed=1"]]}],
        ks=[5, 10],
    )
    assert rows["k asked"].tolist() == [5, 5, 5]  # half is certified at 9
    assert (rows["accuracy"] == 0).all()
    assert (rows[HALF] == 9).all()


@pytest.mark.sweep
def test_folds_leave_out_each_training_record_once_and_void_the_private_claim(
    tmp_path: Path,
) -> None:
    here = an_entry("frontier", tmp_path, PUBLIC_BLOBS, OURS)
    section = made(here, tmp_path / "r", methods=[LINEAR], ks=[1], folds=3)
    assert "no private claim" in section.table["chosen on"].iloc[0]
    assert any("condition e" in note for note in section.notes)
    overrides = [
        *PUBLIC_BLOBS,
        "relation=add_remove",
        *LINEAR["run"],
        *LINEAR["settings"][0],
        "training.chosen_on=data",
    ]
    train = here.runs.prepared(overrides).dataset.train
    tables = [left_out(here.runs, overrides, "a fold", fold, 3)[0] for fold in range(3)]
    part = dealt(train.units, 3)
    for fold, table in enumerate(tables):
        assert table["label"].tolist() == train.labels[part == fold].tolist()
    method = Method(**{**LINEAR, "run": tuple(LINEAR["run"])})  # type: ignore[arg-type]
    curve = Curve(here, "ours", method, (), 3)
    halves = [Reached.of(table, range(21)).half for table in tables]
    assert curve.rounds[0].seen[0].half == pytest.approx(np.mean(halves) * 3 / 2)
    assert curve.rounds[0].reports.all()


def test_distances_of_votes_are_chosen_as_they_are_and_keys_are_drawn(tmp_path: Path) -> None:
    """Half of the records with as many members certify as far as all of them, unlike a head."""
    here = an_entry("frontier", tmp_path, PUBLIC_BLOBS, OURS)
    run, members = ("model=linear", "certificate=votes", "training=recipe"), ("ensemble.members=9",)
    method = Method(label="votes", run=run, settings=(members,), seeds=("ensemble.key",))
    curve = Curve(here, "ours", method, (), 2)
    own = here.overrides("ours", (*run, *members, "training.chosen_on=data"))
    halves = [Reached.of(*left_out(here.runs, own, "a fold", fold, 2)) for fold in range(2)]
    assert curve.rounds[0].seen[0] == Reached.mean(halves)
    assert halves[0].exact
    assert curve.reached([members], 1)["known"] == "exactly"
    assert (
        curve.run(members, 1).frame["gap"].tolist() != curve.run(members, 0).frame["gap"].tolist()
    )


def test_a_fresh_draw_chooses_and_the_run_reports(tmp_path: Path) -> None:
    here = an_entry("frontier", tmp_path, PUBLIC_BLOBS, OURS)
    rows = rows_of(here, methods=[LINEAR], ks=[1], draw=["dataset.seed=7"])
    own = [*PUBLIC_BLOBS, "relation=add_remove", *LINEAR["run"]]
    fresh = [
        here.runs.finished([*own, *setting, "dataset.seed=7"], "by hand")
        for setting in LINEAR["settings"]
    ]
    place = best([Reached.of(run.frame, run.ks) for run in fresh], 1)
    reporting = here.runs.finished([*own, *LINEAR["settings"][place or 0]], "by hand")
    assert rows["accuracy"].tolist() == [reporting.accuracy]


def test_not_both_a_draw_and_folds_choose() -> None:
    with pytest.raises(ConfigError, match=r"draw.*folds"):
        make_kind(
            "frontier", OURS, {"methods": [LINEAR], "draw": ["dataset.seed=1"], "folds": 2}, "here"
        )


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name",
    sorted({*experiment_names()} - {"digits", "lectures", "octmnist", "removal", "unlearning"}),
)
def test_methods_compose_and_stand_under_their_profiles_rules(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(name)
    artifact = next(one for one in experiment.artifacts if one.kind == "frontier")
    entry = Entry(
        experiment, artifact, experiment.profiles, Runs(tmp_path, (), Console(quiet=True))
    )
    for node in artifact.settings["methods"]:
        profile: ProfileName = "paper" if node.get("published") else "ours"
        own = (*artifact.settings.get("run", ()), *node.get("run", ()), *node["settings"][-1])
        _, typed = entry.runs.settings(entry.overrides(profile, own, node.get("grid", ())))
        ours = "flip" if "flipped" in node["label"] else "add_remove"
        assert typed.relation.name == ("paper_privacy" if profile == "paper" else ours), node[
            "label"
        ]
        assert typed.training.product == ("rump" if profile == "paper" else "exact"), node["label"]


# -- reproduction removal
# ----------------------------------------------------------------------------------------------


PAPER_REMOVING, OURS_REMOVING = (
    Profile(privacy="remove", accounting="paper"),
    Profile(privacy="remove"),
)
BOTH: dict[ProfileName, Profile] = {"paper": PAPER_REMOVING, "ours": OURS_REMOVING}
HEAD = (
    "dataset=digits",
    "model=linear",
    "training=recipe",
    "training.weight_decay=0.01",
    "certificate=removal",
    "certificate.features.bias=0",
    "certificate.seed=0",
)
WAITING = (
    "experiment=blobs_overlapping",
    "model=linear",
    "dataset.n_train=200",
    "kgrid=dense",
    "kgrid.max=8",
)


def entry_of(
    kind: str,
    folder: Path,
    base: tuple[str, ...] = HEAD,
    profiles: dict[ProfileName, Profile] = BOTH,
) -> Entry:
    return an_entry(kind, folder, base, profiles)


def test_published_bounds_are_those_of_003(tmp_path: Path) -> None:
    """Corollary 1 worked out by hand: 1/4 |X'| |v| |X' v|, v the inverse Hessian times the
    record's gradient.
    """
    prepared, settings = entry_of("removal_bounds", tmp_path).data("ours", ())
    trained = removing(prepared, settings, "here")
    x, targets, weight = trained.x, trained.targets[:, 0], trained.model.state.weight[0]
    stays = np.arange(len(x)) != 3
    curvatures = expit(x @ weight) * (1 - expit(x @ weight))
    hessian = (x[stays].T * curvatures[stays]) @ x[stays] + trained.objective.strength * np.eye(
        x.shape[1]
    )
    v = np.linalg.solve(hessian, (expit(x[3] @ weight) - targets[3]) * x[3])
    by_hand = np.linalg.norm(x[stays], 2) * np.linalg.norm(v) * np.linalg.norm(x[stays] @ v) / 4
    step = trained.head.remove(x[[3]], trained.targets[[3]], remaining=x[stays])
    assert by_hand <= published(step, trained.objective) <= 1.02 * by_hand  # |X| is an upper bound
    assert step.length == pytest.approx(np.linalg.norm(v), rel=1e-5)


def test_budgets_are_the_exact_curves_and_003s() -> None:
    assert budget(PAPER_REMOVING, 2.0, 1.0, 1e-4) == pytest.approx(
        2 / math.sqrt(2 * math.log(1.5e4))
    )
    assert budget(OURS_REMOVING, 2.0, 1.0, 1e-4) == pytest.approx(2 * gaussian_mu(1.0, 1e-4))
    assert budget(OURS_REMOVING, 2.0, 1.0, 1e-4) > budget(PAPER_REMOVING, 2.0, 1.0, 1e-4)


def test_bounds_hold_and_keep_their_order(tmp_path: Path) -> None:
    entry = entry_of("removal_bounds", tmp_path)
    section = made(entry, tmp_path / "r", run=[], removals=30, batch=5, every=5)
    last = section.table.set_index(["profile", "way"])["residual"]
    single = "one at a time"
    residual = last["paper", f"residual, {single}"]
    assert (
        residual
        < last["ours", f"bound, {single}"]
        < last["paper", f"bound, {single}"]
        < last["paper", f"worst case, {single}"]
    )
    assert last["ours", f"bound, {single}"] < last["ours", f"bound, Hessian kept up, {single}"]
    assert last["ours", f"measured after each, {single}"] < 1e-8
    assert section.compared.empty
    assert (tmp_path / "r" / "figures" / "figure.pdf").is_file()
    drawn = pd.read_csv(tmp_path / "r" / "figures" / "figure.csv")
    assert drawn.groupby("series")["residual"].apply(lambda seen: len(seen)).eq(6).all()
    with pytest.raises(ConfigError, match=r"removals=500 .*264"):
        rows_of(entry, run=[], removals=500)


@pytest.mark.sweep
def test_settings_show_what_supports_more_removals(tmp_path: Path) -> None:
    entry = entry_of("removal_settings", tmp_path)
    rows = rows_of(entry, run=[], strengths=[0.001, 0.1], sigmas=[0.1, 1.0], draws=1, records=4)
    number = rows.set_index(["profile", "lambda", "sigma"])["removals"]
    assert number["ours", 0.001, 1.0] > number["paper", 0.001, 1.0]
    assert number["ours", 0.1, 0.1] > number["ours", 0.001, 0.1]
    right = rows.set_index(["profile", "lambda", "sigma"])["accuracy"]
    assert right["ours", 0.1, 0.1] == right["paper", 0.1, 0.1]
    section = made(
        entry,
        tmp_path / "r",
        run=[],
        strengths=[0.001, 0.1],
        sigmas=[0.1, 1.0],
        show=["front"],
        draws=1,
        records=4,
    )
    assert set(section.captions) == {"figure"}
    assert "hides nothing" in " ".join(section.notes)


@pytest.mark.sweep
def test_a_budget_is_spent_on_as_many_removals_as_were_asked_for(tmp_path: Path) -> None:
    entry = entry_of("removal_budgets", tmp_path)
    rows = rows_of(entry, run=[], strengths=[0.1], eps=[0.5, 2.0], removals=10, draws=2, records=4)
    assert rows["removals"].between(10, 12).all()
    assert ((rows["low"] <= rows["accuracy"]) & (rows["accuracy"] <= rows["high"])).all()
    assert (2 * rows["accuracy"]).to_numpy() == pytest.approx(
        (rows["low"] + rows["high"]).to_numpy()
    ), "of two draws"
    needed = rows.set_index(["profile", "eps"])["sigma"]
    assert needed["paper", 0.5] > 3 * needed["ours", 0.5] > 3 * needed["ours", 2.0]


# -- reproduction looseness
# --------------------------------------------------------------------------------------------


FEW = (
    "dataset=blobs_overlapping",
    "dataset.n_train=6",
    "dataset.test_fraction=1",
    "model=linear",
    "training.chosen_on=null",
)
MINIMISED = ("certificate=erm", "training=recipe", "training.weight_decay=0.03")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", ["remove", "add_remove"])
def test_the_truth_lies_between_certificate_and_attack(tmp_path: Path, relation: str) -> None:
    """And is what trying every removal by hand finds, where records only go."""
    entry = entry_of("looseness", tmp_path, (*FEW, *MINIMISED), {"ours": Profile(privacy=relation)})  # type: ignore[arg-type]
    rows = rows_of(entry, small=[{"label": "few"}], large=[{"label": "few, too"}], queries=4)
    few, larger = (rows[rows["panel"] == title] for title in ("few", "few, too"))
    assert (few["certified"] <= few["exact"]).all()
    assert (few["exact"] <= few["attacked"]).all()
    assert larger["exact"].isna().all()
    assert (few["attacked"].to_numpy() == larger["attacked"].to_numpy()).all()
    if relation == "remove":
        model = entry.model("ours", [])
        queries, train = model.problem.dataset.test.features[:4], model.problem.dataset.train
        nominal, least = model.predict(queries), np.full(4, 7)
        for kept in product([False, True], repeat=6):
            other = retrained(model.problem, train.take(np.array(kept)), (0,)).predict(queries)
            least = np.where(other != nominal, np.minimum(least, 6 - sum(kept)), least)
        assert few["exact"].tolist() == least.tolist()
        assert (least < 7).any()


def test_the_attack_goes_by_the_records_gradients(tmp_path: Path) -> None:
    """Of a linear head on one logit: residual times inner product, towards the query's label."""
    model: Any = Runs(tmp_path, (), Console(quiet=True)).model((*FEW, *MINIMISED), "one logit")
    records, queries = model.problem.dataset.train, model.problem.dataset.test.features
    phi, weight = model.phi(records.features), model.trained.weight.numpy()
    for query in (queries[:1], queries[1:2]):
        label = torch.from_numpy(model.predict(query))
        found = influences(model, records, query, label) / 2e-4
        pull = (phi @ model.phi(query).T)[:, 0] * (2 * label.item() - 1)
        np.testing.assert_allclose(
            found, (expit(phi @ weight.T)[:, 0] - records.labels) * pull, rtol=1e-5
        )


def test_one_request_a_shard_takes_an_ensemble_offline_unless_it_is_certified() -> None:
    labels, home = np.zeros((4, 10), dtype=int), np.repeat(np.arange(4), 25)
    everywhere = spread_requests(4, 4)
    assert everywhere.tolist() == [1, 1, 1, 1]
    assert not answerable(np.zeros_like(labels), labels, everywhere).any()
    assert answerable(np.ones_like(labels), labels, everywhere).all()
    assert spread_requests(4, 6).tolist() == [2, 2, 1, 1]

    def shares(distance: int) -> list[float]:
        distances, rng = np.full_like(labels, distance), np.random.default_rng(0)
        counts = (0, 1, 4, 100)
        return [answered_at_random(distances, labels, home, count, rng) for count in counts]

    offline = shares(0)
    assert offline[0] == offline[1] == 1 > offline[2] > offline[3] == 0
    assert shares(25) == [1, 1, 1, 1]


@pytest.mark.sweep
def test_certificates_keep_an_ensemble_answering(tmp_path: Path) -> None:
    entry = entry_of(
        "answered_while_waiting",
        tmp_path,
        WAITING,
        {"ours": Profile(privacy="remove", unlearning="remove")},
    )
    rows = rows_of(entry, run=[], members=3, requests=[1, 4, 20], draws=4)
    share = rows.set_index(["certificates", "who", "requests"])["answered"]
    for who in (AT_RANDOM, SPREAD):
        assert share[WITH, who, 1] >= share[WITH, who, 4] >= share[WITH, who, 20]
        assert share[WITH, who, 4] > share[WITHOUT, who, 4]
        assert share[WITHOUT, who, 20] == 0
    assert rows["d log d"].eq(3 * math.log(3)).all()


def test_methods_are_compared_on_the_same_requests(tmp_path: Path) -> None:
    certified = [
        "model=linear",
        "training=recipe",
        "certificate=stability",
        "certificate.features.bias=0.1",
    ]
    one = {
        "label": "digits",
        "data": "small digits",
        "removal": HEAD[1:],
        "certified": certified,
        "ensemble": ["ensemble.members=2"],
    }
    entry = entry_of(
        "erasure_methods",
        tmp_path,
        ("dataset=digits", "compute.threads=1"),
        {"ours": OURS_REMOVING},
    )
    rows = rows_of(entry, sets=[one], requests=2).set_index("method")
    assert set(rows.index) == {"newton", "sisa", "retrain", "certificate"}
    assert rows["accuracy after"]["newton"] == pytest.approx(
        rows["accuracy after"]["retrain"], abs=0.02
    )
    assert rows["seconds"]["certificate"] == 0
    assert rows["promise"]["newton"].startswith("(1, 0.0001)")
    assert rows["promise"]["sisa"] == rows["promise"]["retrain"] == "exact, adaptive"


def test_a_networks_features_are_what_its_last_layer_sees() -> None:
    head = network(64, 3, (2, 3), 5, seed=0)
    x = np.random.default_rng(0).random((4, 64), dtype=np.float32)
    weights = {name: parameter.detach() for name, parameter in head.named_parameters()}
    bench = Bench(head, 3, None, 10, None)  # type: ignore[arg-type]
    seen = features(bench, weights, x)
    assert seen.shape == (4, 5)
    with torch.no_grad():
        assert torch.equal(head[-1](torch.from_numpy(seen)), head(torch.from_numpy(x)))


def test_what_one_record_may_cost_is_what_the_group_pays() -> None:
    assert of_one(5.0, 1e-4, 10, published=True) == (0.5, 1e-4)
    one, delta = of_one(5.0, 1e-4, 10, published=False)
    assert one * 10 == pytest.approx(5.0)
    assert delta * sum(math.exp(i * one) for i in range(10)) == pytest.approx(1e-4)


@pytest.mark.sweep
def test_a_head_on_private_features_is_compared_with_the_private_network(tmp_path: Path) -> None:
    entry = entry_of("private_features", tmp_path, (*HEAD, "dataset.classes=[0,1,2]"))
    settings = {
        "run": ["dataset.declared_size=400"],
        "network": {"channels": [2, 2], "hidden": 6, "epochs": 1, "batches": 10},
        "schedules": [
            {"least_eps": 0, "dpsgd": {"batch": 1000, "lr": 0.5, "clip": 1.0, "epochs": 2}}
        ],
        "seeds": 2,
        "eps": [8.0],
    }
    rows = made(entry, tmp_path / "record", **settings).table.set_index(["profile", "way"])
    alone = rows.loc["ours", "private network"]
    below = rows.loc["ours", "head with removals on private features"]
    untrained = rows.loc["ours", "head with removals on untrained features"]
    assert (
        rows.loc["paper", "private network"]["network delta"] == 1e-4 > 100 * alone["network delta"]
    )
    assert alone["network eps"] == pytest.approx(0.8)
    assert below["network eps"] == pytest.approx(0.8 / 1.1)
    assert below["sigma"] > untrained["sigma"] > 0, "removals have all of eps where nothing trains"
    assert untrained["network eps"] == 0
    assert 0 < alone["not private"] <= 1
    assert alone["low"] < alone["high"]
    assert alone["low"] + alone["high"] == pytest.approx(2 * alone["accuracy"]), "of two seeds"


def test_a_schedule_follows_from_eps_alone() -> None:
    dpsgd = DpSgd(batch=10, lr=1, clip=1, epochs=1)
    schedules = tuple(Schedule(least, dpsgd) for least in (3.0, 0.0, 10.0))
    chosen = {eps: schedule_for(eps, schedules).least_eps for eps in (0.1, 3.0, 9.0, 10.0)}
    assert chosen == {0.1: 0.0, 3.0: 3.0, 9.0: 3.0, 10.0: 10.0}
    with pytest.raises(ConfigError, match="least_eps"):
        schedule_for(2.0, schedules[:1])


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


# -- reproduction search
# -----------------------------------------------------------------------------------------------


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


# -- the search
# --------------------------------------------------------------------------------------------------


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


# -- the kind
# --------------------------------------------------------------------------------------------------


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


# -- the data
# --------------------------------------------------------------------------------------------------


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
    head, setup = (
        make_head(training, 3, 2, (4,)),
        make_recipe(training, ks=(0, 1), declared_size=60),
    )
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


# -- reproduction students
# ---------------------------------------------------------------------------------------------


FAR_BLOBS = (
    "dataset=blobs",
    "dataset.n_train=160",
    "dataset.test_fraction=0.5",
    "model.hidden=[6]",
    "kgrid=dense",
    "kgrid.max=6",
)
STUDENT = {"epochs": 20, "lr": 0.3}


@pytest.fixture
def students(tmp_path: Path) -> Entry:
    """On well separated blobs, with two profiles."""
    return an_entry(
        "students",
        tmp_path,
        FAR_BLOBS,
        {"paper": Profile(accounting="paper", many="smooth_cauchy"), "ours": Profile()},
    )


def settings(mechanism: str, profile: str = "ours", **more: Any) -> dict[str, Any]:
    """One teacher, few draws."""
    row = {"label": "the teacher", "mechanisms": {profile: mechanism}}
    return {"teachers": [row], "queries": [10], "draws": 3, "student": STUDENT, **more}


def test_a_rich_budget_buys_the_teachers_labels_and_a_poor_one_noise(
    students: Entry, tmp_path: Path
) -> None:
    rich = made(
        students, tmp_path / "r", **settings("global_sensitivity", eps=100.0, queries=[10, 2])
    ).table
    assert rich["labels right, expected"].tolist() == pytest.approx(
        [rich["teacher, noise-free"][0]] * 2, abs=0.01
    )
    assert rich["student"][0] > 0.95
    poor = rows_of(students, **settings("global_sensitivity", eps=0.01, delta=1e-9))
    assert poor["labels right, expected"][0] == pytest.approx(0.5, abs=0.01)
    assert poor["low"][0] < 0.7
    assert (tmp_path / "r" / "figures" / "figure.png").is_file()


def test_the_papers_accounting_composes_as_the_papers_do(students: Entry) -> None:
    table = rows_of(students, **settings("many", profile="paper", eps=5.0))
    evidence = students.run("paper", ()).evidence("certified")
    published = afford(MECHANISMS["smooth_cauchy"], Budget(5.0, 1e-5, 10), 2, PUBLISHED_BOUNDS)
    assert table["mechanism"].tolist() == ["smooth_cauchy"]
    assert table["labels right, expected"][0] == evidence.expected_accuracy(published)
    assert evidence.expected_accuracy(published) < evidence.expected_accuracy(
        afford(MECHANISMS["smooth_cauchy"], Budget(5.0, 1e-5, 10), 2)
    )


def test_students_learn_from_queries_and_are_judged_on_the_others(students: Entry) -> None:
    test, asked = students.data("ours", ())[0].dataset.test, []

    def wrong(rows: np.ndarray, draw: int) -> np.ndarray:
        asked.append(rows)
        return 1 - test.labels[rows]

    found = taught(students, "ours", (), Student(**STUDENT), 40, 3, wrong)  # type: ignore[arg-type]
    assert found.max() < 0.1  # a student of a liar, judged by the truth
    assert [len(rows) for rows in asked] == [40] * 3
    assert not np.array_equal(asked[0], asked[1])
    with pytest.raises(ConfigError, match="queries=80"):
        taught(students, "ours", (), Student(), len(test), 3, wrong)


def test_draws_differ_and_repeat(students: Entry) -> None:
    one, again = (rows_of(students, **settings("global_sensitivity", eps=1.0)) for _ in range(2))
    assert one.equals(again)
    assert one["low"][0] < one["high"][0]


@pytest.mark.sweep
def test_votes_and_the_private_trainings(students: Entry, tmp_path: Path) -> None:
    linear = ("model.hidden=[]", "training=imdb_linear", "training.lr=5.0", "certificate=stability")
    teachers = [
        {"label": "votes", "members": 3, "mechanisms": {"paper": "noisy_argmax"}},
        {"label": "DP-SGD", "mechanisms": {"paper": "dpsgd"}},
        {"label": "weights", "mechanisms": {"ours": "release_weights"}, "run": linear},
    ]
    dpsgd = {"batch": 160, "lr": 2.0, "clip": 1.0, "epochs": 4}
    section = made(
        students, tmp_path / "r", **settings("many", teachers=teachers, dpsgd=dpsgd, trained=1)
    )
    table = section.table.set_index("teacher")
    assert table["mechanism"].to_dict() == {
        "votes": "noisy_argmax",
        "DP-SGD": "dpsgd",
        "weights": "release_weights",
    }
    assert table["profile"].to_dict() == {"votes": "paper", "DP-SGD": "paper", "weights": "ours"}
    assert table.loc["DP-SGD", "labels right, expected"] > 0.9
    assert table.loc["weights", "labels right, expected"] > 0.9
    assert values(section)["weights"]["ours"] == table.loc["weights", "student"]
    assert np.isnan(values(section)["weights"]["paper"])


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("noisy_argmax", "members"),
        ("dpsgd", "dpsgd"),
        ("release_weights", "certificate=stability"),
        ("smooth_cuchy", "smooth_cauchy"),
    ],
)
def test_teachers_that_cannot_be_are_refused(students: Entry, mechanism: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rows_of(students, **settings(mechanism))


# -- reproduction trainings
# --------------------------------------------------------------------------------------------


TRAINED_HEAD = [
    "model.hidden=[]",
    "training=imdb_linear",
    "training.lr=5.0",
    "training.epochs=20",
    "certificate=stability",
]
SETTINGS: dict[str, Any] = {
    "run": TRAINED_HEAD,
    "eps": [0.002, 100.0],
    "seeds": 3,
    "dpsgd": {"batch": 300, "lr": 4.0, "clip": 0.5, "epochs": 5},
    "perturbed": [
        {"method": "objective", "strength": 10000.0},
        {"method": "output", "strength": 10.0},
    ],
    "noisy": {"epochs": 10, "lr": 4.0, "clip": 0.1},
}
SAMPLED = (
    "DP-SGD",
    "objective perturbation",
    "output perturbation",
    "noise inside AGT",
    "randomised labels",
)


def trainings(folder: Path, profile: str = "smoke") -> Entry:
    experiment = load_experiment("imdb")
    runs = Runs(folder / "runs", ("dataset.n_train=300",), Console(quiet=True))
    return Entry(
        experiment, experiment.artifacts[-1], {profile: experiment.profiles[profile]}, runs
    )  # type: ignore[dict-item,index]


def test_budgets_decide_what_is_learnt(tmp_path: Path) -> None:
    here = trainings(tmp_path)
    section = made(here, tmp_path / "record", **SETTINGS)
    drawn = pd.read_csv(tmp_path / "record" / "figures" / "baselines.csv").set_index(
        ["series", "eps"]
    )
    plain = float(section.table.set_index("series").loc["plain SGD", "eps = 100"])
    assert plain > 0.9
    for name in (*SAMPLED, "release_weights"):
        assert drawn.loc[(name, 100.0), "accuracy"] > plain - 0.1, name
        assert drawn.loc[(name, 0.002), "accuracy"] < plain - 0.1, name
        assert (
            values(section)[f"{name}, eps = 100"]["smoke"] == drawn.loc[(name, 100.0), "accuracy"]
        )
    for name in SAMPLED:
        low = drawn.loc[(name, 0.002)]
        assert low["low"] < low["accuracy"] < low["high"]  # seeds differ, so noise was drawn
    # nothing was sampled
    assert drawn.loc[("release_weights", 100.0), ["low", "high"]].isna().all()
    protects = section.table.set_index("series")["protects"]
    assert protects["plain SGD"] == "nothing"
    assert "label" in protects["randomised labels"]
    assert set(protects[["DP-SGD", "release_weights", "noise inside AGT"]]) == {RECORD}
    assert len(here.used) == 1  # so that the report can say which conditions fail


def test_without_rigorous_accounting_it_is_left_out_and_says_so(tmp_path: Path) -> None:
    section = made(trainings(tmp_path, "paper"), tmp_path / "record", **SETTINGS)
    assert section.table.empty
    assert "profile=ours" in section.notes[-1]


def test_another_kind_of_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certificate=stability"):
        made(trainings(tmp_path), tmp_path / "record", **{**SETTINGS, "run": ["model=linear"]})
