"""Numeric targets and models of numbers: data, what refuses, private answers, files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import check_estimator

import agt
from agt.data.embeddings import Embeddings
from agt.data.table import Table
from agt.data.target import NumericTarget
from agt.numeric import Draw, ObservedRandomness, SeededRandomness
from agt.training.lattice import LATTICE_STEPS, to_lattice

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (120, 2))
Y = 5 + 3 * X[:, 0] + RNG.normal(0, 0.3, 120)
DECLARED = agt.Declared(size=120, features=True, settings=True)


def fitted(**settings: Any) -> agt.Fitted:
    given = {"target": "numeric", "range": (0, 10), "members": 6, "declared": DECLARED}
    return agt.fit(X, Y, **given | settings)


# -- the target


@pytest.mark.parametrize(
    "bounds",
    [
        (1.0, 1.0),
        (2.0, 1.0),
        (0.0, np.inf),
        (np.nan, 1.0),
        (0, 10**400),
        (0.0, 5e-324),  # half of the width is 0, so scaled labels would be NaN
        (1e16, 1e16 + 2),
        None,
        3,
    ],
)
def test_a_range_that_is_none_is_refused(bounds: Any) -> None:
    with pytest.raises(agt.ConfigError, match=r"^range="):
        fitted(range=bounds)


@pytest.mark.parametrize("k", [-1, 1.5, "1", True])
def test_intervals_exist_for_whole_k_only(k: Any) -> None:
    with pytest.raises(agt.ConfigError, match=r"^k="):
        fitted().certify(X[:2]).bounds(k)
    with pytest.raises(agt.ConfigError, match=r"^tolerance="):
        fitted().certify(X[:2]).within("3")


def test_a_range_without_numbers_is_refused() -> None:
    with pytest.raises(agt.ConfigError, match=r"^range="):
        agt.fit(X, X[:, 0] > 0, range=(0, 1))


@pytest.mark.parametrize("label", [np.nan, np.inf, -np.inf, "many"])
def test_a_label_that_is_no_finite_number_is_refused(label: Any) -> None:
    labels = np.array([*Y[:-1].tolist(), label], dtype=object if label == "many" else None)
    with pytest.raises(agt.DataError):
        agt.fit(X, labels, target="numeric", range=(0, 10), members=6)


def test_labels_are_clipped_and_counted() -> None:
    with pytest.warns(agt.Doubtful, match="were clipped") as warned:
        model = agt.fit(X, Y, target="numeric", range=(4, 6), members=6)
    labels = model.model.problem.dataset.train.labels
    assert labels.dtype == np.float64
    assert (labels.min(), labels.max()) == (4, 6)
    outside = int(((Y < 4) | (Y > 6)).sum())
    assert any(f"{outside} of 120" in str(warning.message) for warning in warned)
    assert any("WARNING" in str(warning.message) for warning in warned)  # they are most of them


def test_clipping_a_few_is_no_loud_warning() -> None:
    target = NumericTarget(0, 10)
    (note,) = target.clipping_notes(np.array([1.0, 2.0, 11.0]))
    assert "WARNING" not in note
    assert target.clipping_notes(np.array([0.0, 10.0])) == ()


@pytest.mark.parametrize("certificate", ["box", "stability", "erm", "removal"])
def test_what_is_made_for_classes_refuses_numbers(certificate: str) -> None:
    with pytest.raises(agt.ConfigError, match="votes"):
        fitted(certificate=certificate, members=1)


@pytest.mark.parametrize("settings", [{"relation": "flip"}, {"learner": "logistic"}])
def test_settings_that_are_made_for_classes_refuse_numbers(settings: Any) -> None:
    with pytest.raises(agt.ConfigError, match="numeric"):
        fitted(**settings)


@pytest.mark.parametrize(
    "mechanism", [agt.RandomizedResponse(eps=1), agt.NoisyArgmax(eps=1), agt.GaussianMargin(mu=1)]
)
def test_mechanisms_of_classes_refuse_numbers(mechanism: Any) -> None:
    with pytest.raises(agt.ConfigError, match="LaplaceMean"):
        fitted().release(X[:2], mechanism)


def test_the_mechanism_of_numbers_refuses_classes() -> None:
    model = agt.fit(X, X[:, 0] > 0, certificate="votes", members=6, declared=DECLARED)
    with pytest.raises(agt.ConfigError, match="numeric"):
        model.release(X[:2], agt.LaplaceMean(eps=1))


# -- files


def test_an_npz_has_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", x=(X / 2).astype(np.float32), label=Y)
    source = Embeddings(path=tmp_path / "e.npz", target="numeric", range=(0, 10), declared_size=90)
    dataset = source.load()
    assert dataset.target == NumericTarget(0, 10)
    assert set(dataset.train.labels.tolist()) <= set(Y.tolist())
    queries = source.load_queries(tmp_path / "e.npz")
    assert sorted(queries.labels.tolist()) == sorted(Y.tolist())


def test_a_table_has_numbers_and_queries_may_have_none(tmp_path: Path) -> None:
    rows = "\n".join(f"{a:.4f},{y:.3f}" for a, y in zip(X[:, 0], Y, strict=True))
    (tmp_path / "t.csv").write_text(f"a,y\n{rows}\n")
    (tmp_path / "q.csv").write_text("a\n0.5\n")
    table = Table(
        path=tmp_path / "t.csv",
        label="y",
        numeric={"a": (-1, 1)},
        target="numeric",
        range=(0, 10),
    )
    assert table.load().train.labels.dtype == np.float64
    assert np.isnan(table.load_queries(tmp_path / "q.csv").labels).all()


@pytest.mark.parametrize("cell", ["", "text", "inf"])
def test_a_table_with_a_label_that_is_no_number_is_refused(tmp_path: Path, cell: str) -> None:
    (tmp_path / "t.csv").write_text(f"a,y\n0.5,1\n0.2,{cell}\n0.1,2\n")
    table = Table(
        path=tmp_path / "t.csv", label="y", numeric={"a": (-1, 1)}, target="numeric", range=(0, 9)
    )
    with pytest.raises(agt.DataError, match=r"dataset\.label"):
        table.load()


# -- the model


def test_a_saved_model_answers_the_same(tmp_path: Path) -> None:
    model = fitted()
    digest = model.save(tmp_path / "m")
    loaded = agt.load(tmp_path / "m", digest)
    for k in (0, 1, 2):
        for ours, theirs in zip(
            model.certify(X).bounds(k), loaded.certify(X).bounds(k), strict=True
        ):
            assert np.array_equal(ours, theirs)


def test_a_learner_of_ones_own_is_read_back_with_its_answers(tmp_path: Path) -> None:
    model = fitted(learner=DecisionTreeRegressor(max_depth=2))
    assert np.abs(model.predict(X) - Y).mean() < 1.5
    digest = model.save(tmp_path / "m")
    assert np.array_equal(agt.load(tmp_path / "m", digest).predict(X), model.predict(X))


def test_removing_people_trains_again() -> None:
    ids = np.array([f"p{row}" for row in range(120)])
    model = fitted(ids=ids)
    smaller, _ = model.unfit(ids[:3])
    again = agt.fit(
        X[3:], Y[3:], ids=ids[3:], target="numeric", range=(0, 10), members=6, declared=DECLARED
    )
    assert np.array_equal(smaller.predict(X), again.predict(X))


class Observed(ObservedRandomness):
    """Notes the public parameters and the private input of each draw."""

    simulated = True

    def __init__(self) -> None:
        self.draws: list[Draw] = []

    def answer(self, draw: Draw, sample: Any) -> Any:
        self.draws.append(draw)
        return sample(SeededRandomness(0))


def test_a_number_beyond_the_range_is_the_nearer_end() -> None:
    """Otherwise one member could move the sum of all by more than the noise covers."""
    assert to_lattice(np.array([-5.0, 5.0])).tolist() == [0, LATTICE_STEPS]


@pytest.mark.parametrize(("relation", "touches"), [("add_remove", 1), ("substitute", 2)])
def test_noise_covers_as_many_members_as_an_edit_changes(relation: str, touches: int) -> None:
    votes = fitted(relation=relation).model.number_votes
    assert votes is not None
    observed: Any = Observed()
    sums = votes.sums(X[:3])
    agt.LaplaceMean(eps=0.5).release(sums, 6, votes.members_per_edit, observed)
    assert [draw.law for draw in observed.draws] == ["geometric"] * 3
    assert {draw.public for draw in observed.draws} == {(0.5, touches * LATTICE_STEPS, 1)}
    assert [draw.private for draw in observed.draws] == [[total] for total in sums.tolist()]


def test_the_mean_is_over_all_members_whatever_the_records_are() -> None:
    votes = fitted().model.number_votes
    assert votes is not None
    few: Any = votes.with_problem(votes.problem.with_dataset(votes.problem.dataset.without_records))
    sums = votes.sums(X)
    assert np.array_equal(few.mean_of(sums), votes.mean_of(sums))
    assert few.mean_of(np.array([6 * LATTICE_STEPS])).tolist() == [10.0]


def test_a_private_answer_stays_in_the_range_and_its_claim_is_pure() -> None:
    published = fitted().release(X, agt.LaplaceMean(eps=0.01), seed=1)
    assert published.labels.min() >= 0
    assert published.labels.max() <= 10
    assert published.claim.guarantee.parameters == {"eps": 0.01}
    assert published.claim.proved


def test_a_model_of_numbers_has_no_classes() -> None:
    model = fitted()
    assert len(model.classes) == 0
    for ask in (model.model.margins, model.model.shares, model.model.member_margins):
        with pytest.raises(agt.ConfigError, match="numeric"):
            ask(X)


# -- scikit-learn


def test_scikit_learn_accepts_the_regressor() -> None:
    check_estimator(agt.CertifiedRegressor(range=(-300, 300), members=5), on_skip=None)


def test_the_regressor_needs_a_declared_range() -> None:
    with pytest.raises(agt.ConfigError, match=r"^range="):
        agt.CertifiedRegressor(members=5).fit(X, Y)


def test_the_regressor_certifies_intervals() -> None:
    regressor = agt.CertifiedRegressor(range=(0, 10), members=6).fit(X, Y)
    lower, upper = regressor.certify(X).bounds(1)
    answers = regressor.predict(X)
    assert ((lower <= answers) & (answers <= upper)).all()


def test_the_regressor_releases_numbers_of_the_range() -> None:
    regressor = agt.CertifiedRegressor(range=(0, 10), members=6, declared=DECLARED).fit(X, Y)
    published = regressor.release(X[:4], agt.LaplaceMean(eps=1.0))
    assert ((published.labels >= 0) & (published.labels <= 10)).all()


def test_the_regressor_forgets_people() -> None:
    ids = np.array([f"p{row}" for row in range(120)])
    regressor = agt.CertifiedRegressor(range=(0, 10), members=6, declared=DECLARED)
    smaller, _ = regressor.fit(X, Y, ids=ids).unfit(ids[:3])
    again = agt.CertifiedRegressor(range=(0, 10), members=6, declared=DECLARED)
    assert np.array_equal(smaller.predict(X), again.fit(X[3:], Y[3:], ids=ids[3:]).predict(X))
