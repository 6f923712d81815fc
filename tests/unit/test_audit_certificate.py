"""Neighbours of a run: trained by its own constants, whatever its records."""

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config
from torch import nn

import agt
from agt.errors import ConfigError
from agt.models.fitting import fit
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt_audit import neighbours
from agt_audit.certificate import Certificate
from agt_audit.certificate_attacks import Auditor
from agt_audit.certificate_findings import notes, share_of_bound_text
from agt_audit.edited_records import EditedRecords, with_added, without
from agt_audit.editor import AttackSettings, Editor, TargetQuery
from agt_audit.model_bounds import bounds_of, flips_to_rival, scores_of
from agt_audit.neighbours import neighbours_of, retrained
from agt_audit.selftest import audit_one_more_edit
from agt_cli.report.findings import Finding, Outcome

FEW = {"epochs": 3, "lr": 0.5}
COMPUTE = {"threads": 1, "kernel": "reference"}
KINDS: dict[str, dict[str, Any]] = {
    "box": {
        "certificate": "box",
        "network": (3,),
        "ks": 2,
        "batch": {"count": 2},
        "epochs": 2,
        "lr": 2.0,
        "clip": 0.06,
    },
    "stability": {"certificate": "stability", **FEW},
    "erm": {"certificate": "erm", "weight_decay": 0.1},
    "boxes vote": {"certificate": "box", "members": 3, "ks": 1, "epochs": 1},
    "heads vote": {"certificate": "stability", "members": 3, **FEW},
    "convolution": {
        "certificate": "box",
        "network": nn.Sequential(
            nn.Unflatten(1, (1, 1, 3)),
            nn.Conv2d(1, 2, (1, 2)),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(4, 2),
        ),
        "ks": 2,
        "batch": {"count": 2},
        "epochs": 2,
        "lr": 2.0,
        "clip": 0.06,
    },
    "votes": {"certificate": "votes", "members": 9},
}


def made(settings: dict[str, Any], declared: bool, n: int = 40) -> Model:
    """A run, of a declared size or a counted one."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    size = agt.Declared(classes=[0, 1], size=n + 5, features=True, settings=True)
    ids = np.array([f"r{i}" for i in range(n)])
    model = agt.fit(
        x, (x[:, 0] > 0).astype(int), declared=size, ids=ids, compute=COMPUTE, **settings
    ).model
    problem = model.problem
    return (
        model
        if declared
        else fit(problem.with_dataset(replace(problem.dataset, declared_size=None)))
    )


def heads(model: Any) -> list[torch.Tensor]:
    """All parameters of a model, members one after another."""
    members = getattr(model, "members", (model,))
    return [tensor for m in members for tensor in bounds_of(m).parameters(m).values()]


@pytest.mark.parametrize(("kind", "declared"), list(zip(KINDS, [True, False] * 5, strict=False)))
def test_the_same_records_give_the_same_bits(kind: str, declared: bool) -> None:
    model = made(KINDS[kind], declared)
    train = model.problem.dataset.train
    again = retrained(model.problem, train)
    assert all(torch.equal(a, b) for a, b in zip(heads(model), heads(again), strict=True))
    fewer = retrained(model.problem, without(train, np.array([0, 7, 9])), (0,))
    assert any(not torch.equal(a, b) for a, b in zip(heads(model), heads(fewer), strict=True))
    mine, theirs = (getattr(m, "members", (m,)) for m in (model, fewer))
    assert [m.plan for m in mine] == [m.plan for m in theirs] or not declared
    assert [m.plan.normalizer for m in mine] == [m.plan.normalizer for m in theirs]
    assert [m.plan.n_max for m in mine] == [m.plan.n_max for m in theirs]


def test_nobody_and_one_class_train_too() -> None:
    problem = made(KINDS["box"], True).problem
    train = problem.dataset.train
    assert len(without(train, train.labels == 1)) < len(train)
    for rows in (train.labels == 1, np.ones(len(train), dtype=bool)):
        assert len(retrained(problem, without(train, rows)).problem.dataset.train) == (~rows).sum()
    part = without(train, np.arange(5))
    rest = without(train, np.arange(5, len(train)))
    assert sorted(with_added(part, rest).ids) == sorted(train.ids)


SHARED: dict[str, dict[str, Any]] = {
    **KINDS,
    "momentum": {
        **KINDS["box"],
        "momentum": 0.5,
        "nesterov": True,
        "weight_decay": 0.1,
        "dampening": 0.0,
    },
    "removal": {"certificate": {"name": "removal", "seed": 1}, "weight_decay": 0.1},
}


def test_a_batch_above_n_max_is_refused_as_training_refuses_it() -> None:
    model = made(
        {**KINDS["box"], "batch": {"count": 1, "n_max": 50, "normalizer": 40.0}}, True, n=50
    )
    newcomer = replace(
        model.problem.dataset.train.take(np.array([0])),
        ids=np.array(["new"]),
        units=np.array(["new"]),
    )
    one_more, one_less = neighbours_of(
        model,
        [
            EditedRecords(model.problem.dataset.train, added=(newcomer,)),
            EditedRecords(model.problem.dataset.train, np.array([3])),
        ],
    )
    assert isinstance(one_more, ConfigError)
    assert "n_max" in str(one_more)
    assert not isinstance(one_less, ConfigError)


@pytest.mark.parametrize("kind", ["removal", "heads vote"])
def test_neighbours_are_trained_by_the_trainer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In processes as in this one: an ensemble's untouched members stay, a removal keeps the
    run's draws.
    """
    model = made(SHARED[kind], True)
    train = model.problem.dataset.train
    rng = np.random.default_rng(1)
    editor = Editor(AttackSettings.of(model.problem), rng)
    target = TargetQuery(rng.normal(size=3), 1)
    edits = [
        EditedRecords(train),
        EditedRecords(train, np.array([3])),
        editor.step(EditedRecords(train), target),
    ]
    here = list(neighbours_of(model, edits))
    assert (
        all(torch.equal(a, b) for a, b in zip(heads(model), heads(here[0]), strict=True))
        or kind == "removal"
    )
    for edit, one in zip(edits, here, strict=True):
        alone = neighbours.neighbour_of(model, edit.records, (0,))
        assert all(torch.equal(a, b) for a, b in zip(heads(one), heads(alone), strict=True))
    monkeypatch.setattr(neighbours, "EDITS_PER_WORKER", 1)
    monkeypatch.setattr(
        neighbours, "worker_processes", lambda *given: parallel_config("threading", n_jobs=2)
    )
    for one, other in zip(here, neighbours_of(model, edits), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(heads(one), heads(other), strict=True))


def test_an_edit_under_the_same_name_trains_its_shard_again() -> None:
    model = made(SHARED["heads vote"], True)
    train = model.problem.dataset.train
    twin = replace(train.take(np.array([5])), ids=np.array(["twin"]), labels=1 - train.labels[[5]])
    other = neighbours.neighbour_of(model, EditedRecords(train, np.array([5]), (twin,)).records)
    changed = [a is not b for a, b in zip(model.members, other.members, strict=True)]  # type: ignore[attr-defined]
    assert sum(changed) == 1


SMALL = Certificate(units=12, neighbours=16, farthest=2, bounded=1, queries=10, lines=3)
STEP = {
    "certificate": "box",
    "loss": "binary_cross_entropy",
    "epochs": 1,
    "batch": {"count": 1},
    "ks": 3,
}


def audited(model: Any, extent: Certificate = SMALL) -> dict[str, Finding]:
    """Findings by what they are about."""
    return Auditor(model, extent, 0).run()


def notes_of(auditor: Auditor) -> list[str]:
    extent = auditor.extent
    return list(notes(auditor.claims, auditor.counts, extent.seconds))


@pytest.mark.parametrize("kind", ["removal", "boxes vote", "votes"])
def test_no_run_as_it_is_is_accused(kind: str) -> None:
    found = audited(made(SHARED[kind], True))
    assert not [finding.meaning for finding in found.values() if finding.violated]
    assert 0 < (found["parameters"].found or 0) <= 1
    assert found["parameters"].noticeable


@pytest.mark.parametrize(
    "settings",
    [
        {"certificate": "stability", **FEW},
        {"certificate": "stability", "loss": "cross_entropy", "clip": 1.0, **FEW},
        {"certificate": "erm"},
        {"certificate": "votes", "members": 21},
        {"certificate": "votes", "members": 21, "relation": "substitute"},
    ],
    ids=["stability", "softmax", "erm", "votes", "votes-substitute"],
)
@pytest.mark.parametrize("classes", [2, 3])
def test_labels_within_bounds_stay_and_one_k_farther_they_turn(
    settings: dict[str, Any], classes: int
) -> None:
    """Whoever said a distance one longer would be told, whatever it is, and a true one never."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    y = np.digitize(x[:, 0], [-0.5, 0.5][: classes - 1])
    known = agt.Declared(classes=list(range(classes)), size=600, features=True, settings=True)
    model: Any = agt.fit(x, y, declared=known, compute=COMPUTE, **settings).model
    queries = rng.normal(size=(40, 3))
    distance = model.certify(queries).stable_distance
    assert not bounds_of(model).labels_changed(model, queries, distance).any()
    assert bounds_of(model).labels_changed(model, queries, distance + 1).all()


def test_a_head_that_says_it_moves_less_than_it_does() -> None:
    model: Any = made(SHARED["erm"], True)
    share = audited(model)["parameters"].found
    trained = model.trained
    sensitivity = replace(trained.sensitivity, rho=trained.sensitivity.rho * share * 0.99)
    boasting = replace(model, trained=replace(trained, sensitivity=sensitivity))
    assert audited(boasting)["parameters"].violated


def test_a_sparse_grid_and_rump_claim_no_nesting() -> None:
    sparse = audited(made({**STEP, "ks": (0, 2)}, True))
    assert "nesting" not in sparse
    assert sparse["stable distances"].outcome is Outcome.NOT_CONTRADICTED
    rump = audited(made({**STEP, "product": "rump"}, True))
    assert not {"nesting", "stable distances"} & rump.keys()


def test_what_a_limit_left_out_is_said() -> None:
    auditor = Auditor(made(STEP, True), replace(SMALL, seconds=1e-9), 0)
    assert auditor.run()["parameters"].outcome is Outcome.UNTESTED
    (note,) = (note for note in notes_of(auditor) if "audit.seconds" in note)
    planned = SMALL.neighbours + (SMALL.units or 0)
    assert re.findall(r"(\d+) of (\d+)", note) == [("0", str(planned)), ("0", "1")]


def test_refusals_are_counted_and_farther_than_the_data() -> None:
    tight = {**STEP, "batch": {"count": 1, "n_max": 41, "normalizer": 30.0}}
    auditor = Auditor(made(tight, True), replace(SMALL, farthest=3), 0)
    auditor.run()
    assert any("n_max" in note for note in notes_of(auditor))
    assert auditor.counts.refused > 0
    far = Auditor(made({**STEP, "relation": "remove"}, True, n=4), replace(SMALL, farthest=9), 0)
    assert not any(finding.violated for finding in far.run().values())
    assert far.counts.neighbours_trained


@pytest.mark.parametrize(
    ("share", "figure"),
    [
        (1.0, "100 %"),
        (0.649193, "64.9 %"),
        (0.9999996, "99.99996 %"),
        (1 + 2.0**-20, "100.00010 %"),
        (1 - 2.0**-53, "99.99999999999999 %"),
        (1.004, "100.4 %"),
        (12.0, "12 times"),
    ],
)
def test_only_the_bound_itself_is_all_of_the_way(share: float, figure: str) -> None:
    assert share_of_bound_text(share).startswith(f"{figure} ")


def test_a_limit_is_shared_among_the_attacks() -> None:
    """Each kind has its share, though one of them alone would take all the time; what was not
    made is not told.
    """
    auditor = Auditor(made(STEP, True), replace(SMALL, neighbours=0), 0)
    assert re.findall(r"\d+", auditor.run()["parameters"].effort) == ["12", "40"]
    auditor.extent = replace(SMALL, seconds=3e6)
    for stages in (3, 2, 1):
        auditor.share_time(stages)
        assert auditor.stage_ends - auditor.started == pytest.approx(3e6 / stages, rel=1e-3)


def test_a_grid_of_nothing_holds_no_neighbour() -> None:
    found = audited(made({**STEP, "ks": (0,)}, True))
    assert found["parameters"].outcome is Outcome.UNTESTED
    assert found["parameters"].found is None
    assert found["on record"].outcome is Outcome.NOT_CONTRADICTED


@pytest.mark.parametrize("classes", [2, 3])
def test_flips_that_bring_a_member_to_a_rival_are_found_and_of_two_classes_the_fewest(
    classes: int,
) -> None:
    rng = np.random.default_rng(classes)
    every = np.array([*product(range(classes), repeat=5)])
    for _ in range(60):
        influence = rng.integers(-3, 4, 5).astype(np.float64)
        given = rng.integers(0, classes, 5)
        answers = np.array([scores_of(influence, labels, classes).argmax() for labels in every])
        for rival in range(classes):
            fewest = (every != given).sum(axis=1)[answers == rival].min(initial=6)
            found = flips_to_rival(influence, given, rival, classes, 5)
            assert found == fewest if classes == 2 else found >= fewest


def test_labels_of_uncertified_queries_are_counted_apart_and_accuse_nobody() -> None:
    """Where one edit more is called certified, the same labels are violations."""
    right = audit_one_more_edit(0, kind=LinearModel)
    wrong = audit_one_more_edit(0)
    assert (right.outcome, right.found) == (Outcome.NOT_CONTRADICTED, 0.0)
    assert wrong.outcome is Outcome.VIOLATED
    assert wrong.found


def test_with_each_unit_left_out_all_training_records_are_asked() -> None:
    auditor = Auditor(made(STEP, True), replace(SMALL, units=2, neighbours=0, queries=0), 0)
    auditor.leave_out()
    records = auditor.problem.dataset.train
    distance = auditor.model.certify(np.asarray(records.features), (1,)).stable_distance
    assert auditor.counts.labels_compared == 2 * (distance >= 1).sum() + 2 * sum(
        auditor.certificates.stable_distance >= 1
    )
