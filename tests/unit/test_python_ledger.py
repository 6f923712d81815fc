"""Releases from Python: on a ledger, and the warning where there is none."""

import copy
import math
import multiprocessing
import pickle
import sqlite3
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import agt
from agt.errors import CheckError
from agt.ledger import process
from agt.ledger.ledger import Exhausted, Ledger as OpenLedger
from agt.ledger.process import ProcessAccount
from agt.numeric import mills_delta

RNG = np.random.default_rng(7)
Y = np.arange(200) % 2
X = RNG.normal(size=(200, 3)) / 4 + (2 * Y - 1)[:, None] / 2
DECLARED = agt.Declared(classes=[0, 1], size=200, features=True, settings=True)
RESPONSE = agt.RandomizedResponse(eps=1.0)


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> ProcessAccount:
    """The account of this process, as if nothing had been released before."""
    monkeypatch.setattr(process.PROCESS, "noted", [])
    monkeypatch.setattr(process.PROCESS, "searched", lambda: None)
    return process.PROCESS


@pytest.fixture
def ledger(tmp_path: Path) -> agt.Ledger:
    return agt.Ledger.create(tmp_path / "people.ledger", unit="one record", eps=10, delta=1e-5)


def private(**given: Any) -> agt.PrivateClassifier:
    return agt.PrivateClassifier(**{"epsilon": 4.0, "declared": DECLARED, **given})


@pytest.fixture(scope="module")
def model() -> agt.Fitted:
    return agt.fit(X, Y, declared=DECLARED)


def debits(ledger: agt.Ledger) -> list[int]:
    with OpenLedger.open(ledger.path, writing=False) as opened:
        return [debit.size for debit in opened.history().values()]


# -- no ledger -----------------------------------------------------------------------------------------------------------


def test_the_second_fit_about_the_same_people_warns_with_the_total_of_all() -> None:
    estimator = private()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.fit(X, Y)
    assert (estimator.total_guarantee_.eps, estimator.total_guarantee_.delta) == (pytest.approx(4, abs=1e-9), 1e-5)
    mu = math.sqrt(13) * 0.9249308976234688  # of one fit, by the Gaussian mechanism that (4, 1e-5) affords
    for _ in range(12):
        with pytest.warns(agt.PrivacySumWarning) as told:
            estimator.fit(X, Y)
    total = estimator.total_guarantee_
    assert total.releases == 13
    assert mills_delta(total.eps, mu) <= 1e-5 < mills_delta(total.eps - 1e-6, mu), "the least eps at this delta"
    assert str(total) in str(told[0].message)
    assert told[0].filename == __file__, "where the user called it"


@pytest.mark.parametrize(
    ("x", "y", "units", "same"),
    [
        (X + 1e-3, Y, None, False),
        (X[100:], Y[100:], None, True),
        (X + 1e-3, Y, [f"p{row}" for row in range(199, 399)], True),
        (X + 1e-3, Y, [f"q{row}" for row in range(200)], False),
        (X, Y, [f"q{row}" for row in range(200)], True),
    ],
    ids=["nobody", "half of the records", "one unit", "other units", "other units of the same records"],
)
def test_people_are_known_again_by_their_ids_or_by_their_records(x: Any, y: Any, units: Any, same: bool) -> None:
    known = replace(DECLARED, ids=True)
    private(declared=known).fit(X, Y, units=[f"p{row}" for row in range(200)])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        private(declared=replace(known, size=len(x))).fit(x, y, units=units)
    assert [agt.PrivacySumWarning] * same == [each.category for each in told if each.category is agt.PrivacySumWarning]


def test_labels_and_weights_add_up_and_simulations_do_not(model: agt.Fitted) -> None:
    model.release(X[:2], RESPONSE, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", agt.PrivacySumWarning)
        model.release(X[:2], RESPONSE)
    with pytest.warns(agt.PrivacySumWarning, match=r"\(5, 0\)-differentially private over 5 releases"):
        model.release(X[:3], RESPONSE)


def test_strict_accounting_refuses_the_second_and_draws_nothing(
    model: agt.Fitted, account: ProcessAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agt.accounting("strict"):
        model.release(X[:1], RESPONSE)
        monkeypatch.setattr("agt.mechanisms.labelling.Labelling.drawn", lambda *given: pytest.fail("it was drawn"))
        with pytest.raises(agt.PrivacySumError, match=r"\(1, 0\).*refuses another"):
            model.release(X[:1], RESPONSE)
        assert len(account.noted) == 1
    assert account.mode == "warn"
    with pytest.raises(agt.ConfigError, match="accounting"):
        agt.accounting("never")  # type: ignore[arg-type]


def test_a_search_raises_at_its_second_fit_with_the_total_so_far(account: ProcessAccount) -> None:
    search = GridSearchCV(private(), {"epsilon": [1.0, 4.0]}, cv=3)
    with pytest.raises(agt.PrivacySumError, match=r"\(1, 1e-05\)-differentially private over 1 release .*public=True"):
        search.fit(X, Y)
    assert len(account.noted) == 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_cross_validation_raises_at_its_second_fit(account: ProcessAccount, wrapped: bool) -> None:
    estimator = make_pipeline(FunctionTransformer(), private()) if wrapped else private()
    with pytest.raises(agt.PrivacySumError, match="over 1 release"):
        cross_val_score(estimator, X, Y, cv=3)
    assert len(account.noted) == 1


def test_searches_on_public_records_are_not_counted(account: ProcessAccount) -> None:
    public = private(declared=replace(DECLARED, public=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", agt.PrivacySumWarning)
        GridSearchCV(public, {"epsilon": [1.0, 4.0]}, cv=2, error_score="raise").fit(X, Y)
    assert not account.noted


def test_a_worker_process_of_a_search_refuses_its_first_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "parent_process", lambda: object())
    with pytest.raises(ValueError, match="All the 3 fits failed"):
        GridSearchCV(private(), {}, cv=3, refit=False).fit(X, Y)


# -- on a ledger ---------------------------------------------------------------------------------------------------------


def test_what_a_ledger_pays_is_debited_before_it_is_drawn(ledger: agt.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[list[int]]()
    monkeypatch.setattr("agt.mechanisms.statistics.Statistics.noisy", lambda *given: seen.append(debits(ledger)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        private(ledger=ledger).fit(X, Y)
    assert seen == [[1]]
    assert debits(ledger) == [1], "what failed stays spent"


def test_a_repeated_question_is_answered_as_before_and_costs_nothing(
    ledger: agt.Ledger, model: agt.Fitted, tmp_path: Path
) -> None:
    first = model.release(X[:4], RESPONSE, ledger=ledger)
    assert "entry" in " ".join(first.words)
    model.save(tmp_path / "model")
    read_back = agt.load(tmp_path / "model")
    for again in (model, read_back):
        answer = again.release(X[:5], RESPONSE, ledger=str(ledger.path))
        assert answer.labels[:4].tolist() == first.labels.tolist()
    assert debits(ledger) == [4, 1]


def test_a_budget_that_does_not_hold_all_pays_for_none(ledger: agt.Ledger, model: agt.Fitted) -> None:
    with pytest.raises(Exhausted, match=r"holds 10 of 11 labels"):
        model.release(X[:11], RESPONSE, ledger=ledger)
    assert debits(ledger) == []
    with pytest.raises(ValueError, match="ledger"):
        private(epsilon=20.0, ledger=ledger).fit(X, Y)
    assert debits(ledger) == []


def test_clones_copies_and_pickles_share_one_budget(ledger: agt.Ledger) -> None:
    estimator = private(epsilon=1.0, delta=1e-7, ledger=ledger)
    copies = [copy.deepcopy(estimator), pickle.loads(pickle.dumps(estimator)), estimator.__sklearn_clone__()]
    totals = [each.fit(X, Y).total_guarantee_ for each in copies]
    assert [total.releases for total in totals] == [1, 2, 3]
    assert debits(ledger) == [1, 1, 1]


def test_workers_of_a_search_share_one_budget(ledger: agt.Ledger) -> None:
    estimator = private(delta=1e-7, ledger=ledger)
    GridSearchCV(estimator, {"epsilon": [0.5, 1.0]}, cv=2, n_jobs=2, error_score="raise").fit(X, Y)
    assert len(debits(ledger)) == 5


def _release(path: Path, model: agt.Fitted, start: int, answers: Any) -> None:
    try:
        labels = model.release(X[start : start + 4], RESPONSE, ledger=path).labels.tolist()
        answers.put((start, labels))
    except Exhausted:
        answers.put((start, None))


def test_two_processes_spend_one_budget(ledger: agt.Ledger, model: agt.Fitted) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    workers = [context.Process(target=_release, args=(ledger.path, model, start, answers)) for start in (0, 4, 8)]
    for worker in workers:
        worker.start()
    told = dict(answers.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    assert sum(debits(ledger)) <= 10
    assert sum(labels is None for labels in told.values()) == 1, "the budget holds two of the three"


@pytest.mark.parametrize("given", [{"relation": "substitute"}, {"unit": "one customer"}], ids=["relation", "unit"])
def test_a_ledger_of_another_relation_or_unit_is_refused(given: dict[str, Any], tmp_path: Path) -> None:
    ledger = agt.Ledger.create(tmp_path / "others.ledger", **{"unit": "one record", "eps": 10, "delta": 1e-5, **given})
    with pytest.raises(ValueError, match=next(iter(given.values()))):
        private(ledger=ledger).fit(X, Y)
    assert debits(ledger) == []


def test_two_ledgers_beside_each_other_do_not_count_the_same_people(ledger: agt.Ledger, tmp_path: Path) -> None:
    private(ledger=ledger).fit(X, Y)
    other = agt.Ledger.create(tmp_path / "copy.ledger", unit="one record", eps=10, delta=1e-5)
    with pytest.raises(ValueError, match="have a ledger already"):
        private(ledger=other).fit(X, Y)


def test_a_ledger_that_was_edited_or_is_not_there_is_refused(ledger: agt.Ledger, tmp_path: Path) -> None:
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as rows:
        rows.execute("DROP TRIGGER entries_stay")
        rows.execute("UPDATE entries SET text = replace(text, 'one record', 'one person')")
    with pytest.raises(CheckError):
        agt.Ledger.open(ledger.path)
    with pytest.raises(agt.ConfigError, match=r"none\.ledger"):
        agt.Ledger.open(tmp_path / "none.ledger")


def test_what_is_refused_is_admitted_to_no_ledger(ledger: agt.Ledger, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="condition"):
        private(declared=replace(DECLARED, features=False), ledger=ledger).fit(X, Y)
    other = agt.Ledger.create(tmp_path / "other.ledger", unit="one record", eps=10, delta=1e-5)
    private(ledger=other).fit(X, Y)
    assert debits(other) == [1]


def test_a_simulation_is_no_business_of_a_ledger(ledger: agt.Ledger, model: agt.Fitted) -> None:
    with pytest.raises(agt.ConfigError, match="seed and ledger"):
        model.release(X[:1], RESPONSE, seed=1, ledger=ledger)


def test_who_was_erased_is_not_released_on_the_ledger_again(ledger: agt.Ledger, model: agt.Fitted) -> None:
    model.release(X[:1], RESPONSE, ledger=ledger)
    rest, _ = model.unfit([model.model.problem.dataset.train.units[0]])
    rest.release(X[:1], RESPONSE, ledger=ledger)
    with pytest.raises(agt.ConfigError, match="was replaced"):
        model.release(X[5:6], RESPONSE, ledger=ledger)


def test_what_a_ledger_shows_is_its_budget_and_its_counter(ledger: agt.Ledger) -> None:
    assert (ledger.budget.eps, ledger.budget.delta) == (10, 1e-5)
    assert ledger.spent.eps == 0
    assert ledger.remaining(RESPONSE.guarantee) == 10
    private(epsilon=1.0, delta=1e-7, ledger=ledger).fit(X, Y)
    assert 0 < ledger.spent.eps < 1.5
    assert len(str(ledger).splitlines()) <= 5
    assert "counter at eps" in str(ledger)
