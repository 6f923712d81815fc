"""Poisoned neighbours: where names go, who has influence, and one record that decides a natural query."""

from itertools import islice

import numpy as np
import pytest

from agt.api import fit
from agt.audit.neighbours import retrained, without
from agt.audit.poisoning import aims, edited, influence, names_into, newcomers, poisoned
from agt.data.arrays import Declared
from agt.data.ids import CONTENT
from agt.models.model import Model
from agt.training.ensemble import EnsembleConfig, shards

N, WIDTH = 90, 4


def trained(classes: int = 2, members: int = 1, relation: str = "add_remove", certificate: str = "stability") -> Model:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, WIDTH))
    y = (x[:, :classes] + 0.8 * rng.normal(size=(N, classes))).argmax(axis=1)
    known = Declared(classes=list(range(classes)), size=N, features=True, settings=True)
    how = {"threads": 1, "kernel": "reference"}
    return fit(
        x,
        y,
        declared=known,
        relation=relation,  # type: ignore[arg-type]
        members=members,
        ks=3,
        compute=how,
        certificate=certificate,
    ).model


QUERIES = np.random.default_rng(1).normal(size=(40, WIDTH))


@pytest.mark.parametrize("hashes", [False, True])
def test_names_go_where_they_are_meant_to(hashes: bool) -> None:
    config = EnsembleConfig(members=7)
    names = list(islice(names_into("poison", 3, config, hashes), 40))
    assert len(set(names)) == 40
    assert (shards(np.array(names), config) == 3).all()
    assert all(bool(CONTENT.fullmatch(name)) is hashes for name in names)


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_an_edit_is_within_one_k(relation: str) -> None:
    model = trained(members=3, relation=relation)
    records, config = model.problem.dataset.train, model.problem.settings.ensemble
    other = edited(model.problem, records, 5)
    gone, come = set(records.units) - set(other.units), set(other.units) - set(records.units)
    assert gone == {records.units[5]}
    assert len(come) == (relation == "substitute")
    moved = shards(np.array([*gone, *come]), config)
    assert len(set(moved.tolist())) == len(moved)


@pytest.mark.parametrize("classes", [2, 3])
def test_influence_foretells_what_leaving_one_out_does(classes: int) -> None:
    model, query = trained(classes), QUERIES[:1]
    margins = model.margins(query)[:, 0]
    rival = (0 if margins[0] > 0 else 1) if classes == 2 else int(np.argsort(margins)[-2])
    records, label = model.problem.dataset.train, int(model.predict(query)[0])

    def lead(of: Model) -> float:
        values = of.margins(query)[:, 0]
        return float(values[0]) if classes == 2 else float(values[label])

    foretold = influence(model, records, query, rival)
    rows = np.arange(0, N, 3)
    true = [lead(retrained(model.problem, without(records, np.array([row])))) - lead(model) for row in rows]
    assert np.corrcoef(foretold[rows], true)[0, 1] > 0.8


KINDS = [(2, 1, "stability"), (3, 1, "stability"), (2, 3, "stability"), (2, 1, "box")]


@pytest.mark.parametrize(("classes", "members", "certificate"), KINDS)
def test_one_record_decides_a_natural_query_among_poisons(classes: int, members: int, certificate: str) -> None:
    model = trained(classes, members, certificate=certificate)
    found = poisoned(model.problem, model, QUERIES, allowance=12, retrainings=60)
    assert found is not None
    assert found.decided
    assert found.trained <= 60
    labels = [int(retrained(model.problem, side).predict(found.query)[0]) for side in (found.having, found.lacking)]
    assert labels[0] != labels[1]
    assert len(found.having) == N + 12
    assert len(found.lacking) == N + 11
    assert (found.query == QUERIES).all(axis=1).any()
    names = found.having.units[~np.isin(found.having.units, model.problem.dataset.train.units)]
    gone = found.having.units[~np.isin(found.having.units, found.lacking.units)]
    config = model.problem.settings.ensemble
    assert set(shards(names, config)) == set(shards(gone, config))


def test_poisons_that_are_too_few_say_how_many_would_do() -> None:
    model = trained()
    far = QUERIES[np.argsort(np.abs(model.margins(QUERIES)[0]))[-3:]]
    found = poisoned(model.problem, model, far, allowance=1, retrainings=20)
    assert found is not None
    assert not found.decided
    assert found.needed is not None
    assert found.needed > 1


def test_an_ensemble_is_aimed_at_where_one_member_decides() -> None:
    model = trained(members=3)
    for aim in aims(model, model.problem.dataset.train, QUERIES, 4):
        labels = [int(member.predict(QUERIES[[aim.query]])[0]) for member in model.members]  # type: ignore[attr-defined]
        assert aim.member is not None
        assert sum(label == labels[aim.member] for label in labels) == 2


def test_newcomers_are_units_of_their_own_in_one_shard() -> None:
    model = trained(members=3)
    records, config = model.problem.dataset.train, model.problem.settings.ensemble
    made = newcomers(records, QUERIES[:5], [0] * 5, "new", 2, config)
    assert (shards(made.units, config) == 2).all()
    assert len(set(made.units)) == 5
    assert not made.public.any()
