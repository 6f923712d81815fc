"""The frontier: settings are chosen on records that do not report."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from agt_cli._experiments.catalogue import make_kind
from agt_cli._experiments.certified import HALF
from agt_cli._experiments.entry import Entry
from agt_cli._experiments.experiment import Profile, ProfileName, load_experiment
from agt_cli._experiments.frontier import Curve, Method, SettingScore, index_of_best
from agt_cli._experiments.runs import Runs, dealt, left_out
from reproducing import an_entry, made, rows_of

from agt.errors import ConfigError
from agt_cli.config_files import experiment_names
from agt_cli.report.console import Console

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
    found = SettingScore.from_answers(
        a_table(distance, [True, False, True, True, True][: len(distance)]), ks
    )
    assert (found.half_k, found.half_k_is_exact) == (half, exact)
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

    def run(self: Curve, setting: tuple[str, ...], initialisation: int, more: Any = ()) -> Any:
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
    halves = [SettingScore.from_answers(table, range(21)).half_k for table in tables]
    assert curve.rounds[0].scores[0].half_k == pytest.approx(np.mean(halves) * 3 / 2)
    assert curve.rounds[0].reports.all()


def test_distances_of_votes_are_chosen_as_they_are_and_keys_are_drawn(tmp_path: Path) -> None:
    """Half of the records with as many members certify as far as all of them, unlike a head."""
    here = an_entry("frontier", tmp_path, PUBLIC_BLOBS, OURS)
    run = ("model=linear", "certificate=votes", "training=recipe")
    members = ("ensemble.members=9",)
    method = Method(label="votes", run=run, settings=(members,), seeds=("ensemble.key",))
    curve = Curve(here, "ours", method, (), 2)
    own = here.overrides("ours", (*run, *members, "training.chosen_on=data"))
    halves = [
        SettingScore.from_answers(*left_out(here.runs, own, "a fold", fold, 2)) for fold in range(2)
    ]
    assert curve.rounds[0].scores[0] == SettingScore.mean(halves)
    assert halves[0].half_k_is_exact
    assert curve.measure([members], 1)["known"] == "exactly"
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
    place = index_of_best([SettingScore.from_answers(run.frame, run.ks) for run in fresh], 1)
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
