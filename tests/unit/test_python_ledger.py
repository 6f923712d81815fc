"""Releases from Python: on a ledger, and the warning where there is none."""

import copy
import math
import multiprocessing
import pickle
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_backend
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

import agt
from agt.data.records import Records
from agt.errors import CheckError
from agt.ledger import process
from agt.ledger.ledger import Exhausted, Ledger as OpenLedger
from agt.ledger.process import HashedPeople, ProcessAccount
from agt.ledger.tables import sample_names
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, PureDP
from agt.models import own_votes
from agt.numeric import mills_delta

RNG = np.random.default_rng(7)
Y = np.arange(200) % 2
X = RNG.normal(size=(200, 3)) / 4 + (2 * Y - 1)[:, None] / 2
DECLARED = agt.Declared(classes=[0, 1], size=200, features=True, settings=True)
RESPONSE = agt.RandomizedResponse(eps=1.0)
FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def account(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> ProcessAccount:
    """The account of this process, as if nothing had been released before, on no ledger either."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setattr(process.PROCESS, "groups", [])
    monkeypatch.setattr(process.PROCESS, "is_last_search", lambda search: False)
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


# -- no ledger
# --------------------------------------------------------------------------------------------------


def test_the_second_fit_about_the_same_people_warns_with_the_total_of_all() -> None:
    estimator = private()
    with warnings.catch_warnings():
        warnings.simplefilter("error", agt.PrivacySumWarning)
        estimator.fit(X, Y)
    assert (estimator.total_guarantee_.eps, estimator.total_guarantee_.delta) == (
        pytest.approx(4, abs=1e-9),
        1e-5,
    )
    # of one fit, by the Gaussian mechanism that (4, 1e-5) affords
    mu = math.sqrt(13) * 0.9249308976234688
    for _ in range(12):
        with pytest.warns(agt.PrivacySumWarning) as told:
            estimator.fit(X, Y)
    total = estimator.total_guarantee_
    assert total.releases == 13
    assert mills_delta(total.eps, mu) <= 1e-5 < mills_delta(total.eps - 1e-6, mu), (
        "the least eps at this delta"
    )
    (sum_warning,) = [each for each in told if each.category is agt.PrivacySumWarning]
    assert str(total) in str(sum_warning.message)
    assert sum_warning.filename == __file__, "where the user called it"


@pytest.mark.parametrize(
    ("x", "y", "units", "same"),
    [
        (X + 1e-3, Y, None, False),
        (X[100:], Y[100:], None, True),
        (X + 1e-3, Y, [f"p{row}" for row in range(199, 399)], True),
        (X + 1e-3, Y, [f"q{row}" for row in range(200)], False),
        (X, Y, [f"q{row}" for row in range(200)], True),
    ],
    ids=[
        "nobody",
        "half of the records",
        "one unit",
        "other units",
        "other units of the same records",
    ],
)
def test_people_are_known_again_by_their_ids_or_by_their_records(
    x: Any, y: Any, units: Any, same: bool
) -> None:
    known = replace(DECLARED, ids=True)
    private(declared=known).fit(X, Y, units=[f"p{row}" for row in range(200)])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        private(declared=replace(known, size=len(x))).fit(x, y, units=units)
    assert [agt.PrivacySumWarning] * same == [
        each.category for each in told if each.category is agt.PrivacySumWarning
    ]


def test_labels_and_weights_add_up_and_simulations_do_not(model: agt.Fitted) -> None:
    model.release(X[:2], RESPONSE, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", agt.PrivacySumWarning)
        model.release(X[:2], RESPONSE)
    with pytest.warns(
        agt.PrivacySumWarning, match=r"\(5, 0\)-differentially private in all \(5 releases\)"
    ):
        model.release(X[:3], RESPONSE)


def test_strict_accounting_refuses_the_second_and_draws_nothing(
    model: agt.Fitted, account: ProcessAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agt.accounting("strict"):
        model.release(X[:1], RESPONSE)
        monkeypatch.setattr(
            "agt.mechanisms.labelling.Labelling.draw_in_pieces",
            lambda *given: pytest.fail("it was drawn"),
        )
        with pytest.raises(agt.PrivacySumError, match=r"\(1, 0\).*ledger=agt"):
            model.release(X[:1], RESPONSE)
        assert len(account.groups) == 1
    assert account.mode == "warn"
    with pytest.raises(agt.ConfigError, match="accounting"):
        agt.accounting("never")  # type: ignore[arg-type]


def test_a_search_raises_at_its_second_fit_with_the_total_so_far(account: ProcessAccount) -> None:
    search = GridSearchCV(private(), {"epsilon": [1.0, 4.0]}, cv=3)
    with pytest.raises(
        agt.PrivacySumError,
        match=r"\(1, 1e-05\).*public=True",
    ):
        search.fit(X, Y)
    assert len(account.groups) == 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_cross_validation_raises_at_its_second_fit(
    account: ProcessAccount, wrapped: bool
) -> None:
    estimator = make_pipeline(FunctionTransformer(), private()) if wrapped else private()
    with pytest.raises(agt.PrivacySumError, match=r"\(4, 1e-05\).*\b1\b"):
        cross_val_score(estimator, X, Y, cv=3)
    assert len(account.groups) == 1


def test_searches_on_public_records_are_not_counted(account: ProcessAccount) -> None:
    public = private(declared=replace(DECLARED, public=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", agt.PrivacySumWarning)
        GridSearchCV(public, {"epsilon": [1.0, 4.0]}, cv=2, error_score="raise").fit(X, Y)
    assert not account.groups


def test_a_worker_process_of_a_search_refuses_its_first_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "parent_process", lambda: object())
    with pytest.raises(ValueError, match="PrivacySumError"):
        GridSearchCV(private(), {}, cv=3, refit=False).fit(X, Y)


def warned(*releases: Callable[[], object]) -> list[int]:
    """How many warnings that losses add up each release gives."""
    counts = []
    for release in releases:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            release()
        counts.append(sum(each.category is agt.PrivacySumWarning for each in told))
    return counts


@pytest.mark.parametrize(
    ("first", "classes", "second", "labels"),
    [
        (X, [1, 0], X, Y),
        (X, [0, 1], X, 1 - Y),
        (X, [0, 1], X.astype(np.float32), Y),
        (np.abs(X) * [0.0, 1, 1], [0, 1], np.abs(X) * [-0.0, 1, 1], Y),
    ],
    ids=["classes in another order", "other labels", "float32", "minus zero"],
)
def test_the_same_records_are_known_again_in_another_form(
    first: Any, classes: Any, second: Any, labels: Any
) -> None:
    other = private(declared=replace(DECLARED, classes=classes))
    assert warned(lambda: private().fit(first, Y), lambda: other.fit(second, labels)) == [0, 1]


def test_a_pickle_does_not_tell_who_was_in_other_fits() -> None:
    alone = private().fit(X + 1e-3, Y)
    private().fit(X, Y)
    with pytest.warns(agt.PrivacySumWarning):
        shared = private().fit(X, Y)
    assert shared.total_guarantee_ != alone.total_guarantee_
    again = pickle.loads(pickle.dumps(shared))
    assert not hasattr(again, "total_guarantee_")
    assert (again.predict(X) == shared.predict(X)).all()


def test_public_records_are_nobodys() -> None:
    public = np.arange(200) < 50
    first = agt.fit(X, Y, declared=DECLARED, public=public)
    others = np.where(public[:, None], X, X + 1e-3)
    second = agt.fit(others, Y, declared=DECLARED, public=public)
    response = agt.RandomizedResponse(eps=0.1)
    assert warned(*(partial(each.release, X[:1], response) for each in (first, second, first))) == [
        0,
        0,
        1,
    ]


def test_a_model_that_was_read_back_has_the_people_of_the_one_that_was_saved(
    model: agt.Fitted, tmp_path: Path
) -> None:
    rest, _ = model.unfit([model.model.problem.dataset.train.units[0]])
    model.save(tmp_path / "model")
    rest.save(tmp_path / "rest")
    models = (model, agt.load(tmp_path / "model"), agt.load(tmp_path / "rest"))
    assert warned(*(partial(each.release, X[:1], RESPONSE) for each in models)) == [0, 1, 1]


@pytest.mark.parametrize("scaled", [False, True])
def test_a_thread_of_a_search_refuses_its_first_fit(account: ProcessAccount, scaled: bool) -> None:
    estimator = make_pipeline(StandardScaler(), private()) if scaled else private()
    with (
        parallel_backend("threading", n_jobs=2),
        pytest.raises(ValueError, match="PrivacySumError"),
    ):
        cross_val_score(estimator, X, Y, cv=3)
    assert not account.groups


def test_a_calibration_that_fits_again_raises_at_its_second_fit(account: ProcessAccount) -> None:
    with pytest.raises(agt.PrivacySumError, match=r"\(4, 1e-05\).*\b1\b"):
        CalibratedClassifierCV(make_pipeline(StandardScaler(), private()), cv=3).fit(X, Y)
    assert len(account.groups) == 1


def test_a_search_may_be_used_again_on_other_people_or_public_ones(account: ProcessAccount) -> None:
    search = GridSearchCV(private(), {}, cv=ShuffleSplit(1, random_state=0), refit=False)
    search.fit(X, Y)
    search.fit(X + 1e-2, Y)
    assert len(account.groups) == 2
    search.set_params(estimator__declared=replace(DECLARED, public=True)).fit(X, Y)
    assert len(account.groups) == 2


def test_a_block_of_strict_accounting_ends_no_other_one(account: ProcessAccount) -> None:
    first = agt.accounting("strict")
    second = agt.accounting("strict")
    with first:
        pass
    assert account.mode == "strict"
    with second:
        pass
    assert account.mode == "warn"


def test_a_warning_that_is_an_error_leaves_the_release_noted(
    model: agt.Fitted, account: ProcessAccount
) -> None:
    model.release(X[:1], RESPONSE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(agt.PrivacySumWarning):
            model.release(X[:1] + 1, RESPONSE)
    assert sum(noted.releases for noted in account.groups) == 2


@pytest.mark.parametrize(
    ("lots", "eps", "delta"),
    [
        ([(ApproximateDP(1.0, 0.2), 1)] * 3, 3.0, 0.8),
        ([(ApproximateDP(1.0, 0.5), 2)], math.inf, 1.0),
        ([(ApproximateDP(100.0, 1e-15), 20_000)], 2e6, 4e-11),
        ([(PureDP(0.1), 3), (PureDP(0.7), 1)], 1.0, 0.0),
    ],
)
def test_a_total_is_told_whatever_was_released(lots: list[Any], eps: float, delta: float) -> None:
    account = ProcessAccount()
    people = HashedPeople(np.array([1], dtype=np.uint64))
    totals = [account.add(people, guarantee, size) for guarantee, size in lots]
    assert (totals[-1].eps, totals[-1].delta) == (pytest.approx(eps), pytest.approx(delta))


def test_a_total_of_leaks_and_gaussian_releases_is_near_that_of_the_gaussian_ones() -> None:
    people = HashedPeople(np.array([1], dtype=np.uint64))
    for leak in np.geomspace(1e-12, 1e-3, 60):
        account = ProcessAccount()
        account.add(people, GaussianDP(0.1), 1)
        assert account.add(people, ApproximateDP(0.1, leak), 7).eps < 5


def test_a_loop_over_one_model_keeps_one_entry(model: agt.Fitted, account: ProcessAccount) -> None:
    warnings.simplefilter("ignore")
    for _ in range(20):
        model.release(X[:1], RESPONSE)
    assert [noted.releases for noted in account.groups] == [20]


# -- on a ledger
# --------------------------------------------------------------------------------------------------


def test_what_a_ledger_pays_is_debited_before_it_is_drawn(
    ledger: agt.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[list[int]]()
    monkeypatch.setattr(
        "agt.mechanisms.statistics.Statistics.noisy",
        lambda *given: seen.append(debits(ledger)) or 1 / 0,
    )
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


def test_a_budget_that_does_not_hold_all_pays_for_none(
    ledger: agt.Ledger, model: agt.Fitted
) -> None:
    with pytest.raises(Exhausted, match=r"\b10\D+11\b"):
        model.release(X[:11], RESPONSE, ledger=ledger)
    assert debits(ledger) == []
    with pytest.raises(ValueError, match="ledger"):
        private(epsilon=20.0, ledger=ledger).fit(X, Y)
    assert debits(ledger) == []


def test_clones_copies_and_pickles_share_one_budget(ledger: agt.Ledger) -> None:
    estimator = private(epsilon=1.0, delta=1e-7, ledger=ledger)
    copies = [
        copy.deepcopy(estimator),
        pickle.loads(pickle.dumps(estimator)),
        estimator.__sklearn_clone__(),
    ]
    totals = [each.fit(X, Y).total_guarantee_ for each in copies]
    assert [total.releases for total in totals] == [1, 2, 3]
    assert debits(ledger) == [1, 1, 1]


@FORKS
def test_workers_of_a_search_share_one_budget(ledger: agt.Ledger) -> None:
    estimator = private(delta=1e-7, ledger=ledger)
    search = GridSearchCV(estimator, {"epsilon": [0.5, 1.0]}, cv=2, error_score="raise")
    # forked workers, as others import everything anew; what they are given is pickled for both
    with parallel_backend("multiprocessing", n_jobs=2):
        search.fit(X, Y)
    assert len(debits(ledger)) == 5


def _release(path: Path, model: agt.Fitted, start: int, answers: Any) -> None:
    try:
        labels = model.release(X[start : start + 6], RESPONSE, ledger=path).labels.tolist()
        answers.put((start, labels))
    except Exhausted:
        answers.put((start, None))


@FORKS
def test_two_processes_spend_one_budget(ledger: agt.Ledger, model: agt.Fitted) -> None:
    context = multiprocessing.get_context("fork")  # a spawned process imports everything anew
    answers = context.Queue()
    workers = [
        context.Process(target=_release, args=(ledger.path, model, start, answers))
        for start in (0, 6)
    ]
    for worker in workers:
        worker.start()
    told = dict(answers.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    assert sum(debits(ledger)) <= 10
    assert sum(labels is None for labels in told.values()) == 1, "the budget holds one of the two"


@pytest.mark.parametrize(
    "given", [{"relation": "substitute"}, {"unit": "one customer"}], ids=["relation", "unit"]
)
def test_a_ledger_of_another_relation_or_unit_is_refused(
    given: dict[str, Any], tmp_path: Path
) -> None:
    ledger = agt.Ledger.create(
        tmp_path / "others.ledger", **{"unit": "one record", "eps": 10, "delta": 1e-5, **given}
    )
    with pytest.raises(ValueError, match=next(iter(given.values()))):
        private(ledger=ledger).fit(X, Y)
    assert debits(ledger) == []


def test_two_ledgers_beside_each_other_do_not_count_the_same_people(
    ledger: agt.Ledger, tmp_path: Path
) -> None:
    private(ledger=ledger).fit(X, Y)
    other = agt.Ledger.create(tmp_path / "copy.ledger", unit="one record", eps=10, delta=1e-5)
    with pytest.raises(ValueError, match=r"people\.ledger.*arrays"):
        private(ledger=other).fit(X, Y)


def test_a_ledger_of_another_folder_that_counts_the_same_people_is_named(
    tmp_path: Path, model: agt.Fitted
) -> None:
    ledgers = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "people.ledger"
        ledgers.append(agt.Ledger.create(path, unit="one record", eps=10, delta=1e-5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.release(X[:1] + 1, RESPONSE, ledger=ledgers[0])
    with pytest.warns(agt.PrivacySumWarning, match=str(ledgers[0].path)):
        release = model.release(X[:1], RESPONSE, ledger=ledgers[1])
    with OpenLedger.open(ledgers[0].path, writing=False) as other:
        first_entry = other.book.first_entry
    account = release.claim.account
    assert account is not None
    assert account.elsewhere == (first_entry,)
    assert any(first_entry in sentence for sentence in release.words)


def test_two_copies_of_a_ledger_do_not_both_spend_its_budget(
    ledger: agt.Ledger, tmp_path: Path, model: agt.Fitted
) -> None:
    model.release(X[:1], RESPONSE, ledger=ledger)
    copy_path = tmp_path / "copy" / "people.ledger"
    copy_path.parent.mkdir()
    copy_path.write_bytes(ledger.path.read_bytes())
    model.release(X[1:2], RESPONSE, ledger=ledger)
    with pytest.raises(CheckError, match=str(ledger.path)):
        model.release(X[1:2], RESPONSE, ledger=copy_path)


def test_a_copy_from_before_the_head_file_was_added_pays_for_nothing(
    ledger: agt.Ledger, tmp_path: Path, model: agt.Fitted
) -> None:
    model.release(X[:1], RESPONSE, ledger=ledger)
    older = ledger.path.read_bytes()
    with OpenLedger.open(ledger.path) as opened:
        opened.move_head(tmp_path / "late.head")
    model.release(X[1:2], RESPONSE, ledger=ledger)
    ledger.path.write_bytes(older)
    with pytest.raises(CheckError, match=r"late\.head"):
        model.release(X[2:3], RESPONSE, ledger=ledger)
    assert debits(ledger) == [1]


def test_a_ledger_that_was_edited_or_is_not_there_is_refused(
    ledger: agt.Ledger, tmp_path: Path
) -> None:
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
    with pytest.raises(agt.ConfigError, match=r"seed.*ledger"):
        model.release(X[:1], RESPONSE, seed=1, ledger=ledger)


def test_who_was_erased_is_not_released_on_the_ledger_again(
    ledger: agt.Ledger, model: agt.Fitted
) -> None:
    model.release(X[:1], RESPONSE, ledger=ledger)
    rest, _ = model.unfit([model.model.problem.dataset.train.units[0]])
    rest.release(X[:1], RESPONSE, ledger=ledger)
    with pytest.raises(agt.ConfigError, match=r"[0-9a-f]{32}.*entry \d"):
        model.release(X[5:6], RESPONSE, ledger=ledger)


def test_what_a_ledger_shows_is_its_budget_and_its_counter(ledger: agt.Ledger) -> None:
    assert (ledger.budget.eps, ledger.budget.delta) == (10, 1e-5)
    assert ledger.spent.eps == 0
    assert ledger.remaining(RESPONSE.guarantee) == 10
    private(epsilon=1.0, delta=1e-7, ledger=ledger).fit(X, Y)
    assert 0 < ledger.spent.eps < 1.5
    assert len(str(ledger).splitlines()) <= 5
    assert "spent so far: eps" in str(ledger)


def learn_zero(x: np.ndarray, y: np.ndarray) -> Any:
    """Learn that everything is 0."""
    return lambda queries: np.zeros(len(queries), dtype=np.int64)


def test_models_of_other_code_or_other_first_parameters_are_other_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a fresh process takes seconds
    monkeypatch.setattr(own_votes, "check_retrained", lambda *_: None)
    votes = [agt.fit(X, Y, declared=DECLARED, learner=learn_zero, members=4) for _ in range(2)]
    given: dict[str, Any] = {"epochs": 1, "lr": 0.1, "clip": 1.0, "ks": 1, "declared": DECLARED}
    networks = [
        agt.fit(X, Y, network=nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)), **given)
        for _ in range(2)
    ]
    for one, other in (votes, networks):
        assert one.owner.data == other.owner.data
        assert one.owner.run != other.owner.run
    assert agt.fit(X, Y, declared=DECLARED).owner.run == agt.fit(X, Y, declared=DECLARED).owner.run


def test_a_model_without_records_that_nothing_is_known_of_is_refused(
    ledger: agt.Ledger, model: agt.Fitted, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    read_back = agt.load(tmp_path / "model")
    for given in (ledger, None):
        with pytest.raises(agt.ConfigError, match=r"^model: "):
            replace(model, model=read_back.model).release(X[:1], RESPONSE, ledger=given)
    again = replace(read_back, model=model.model)
    assert again.owner.table.people == model.owner.table.people


def test_names_of_people_are_hashed_for_ledgers_alone(
    ledger: agt.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = agt.fit(X, Y, declared=DECLARED)
    with monkeypatch.context() as patch:
        patch.setattr("agt.account.sample_names", None)
        model.release(X[:1], RESPONSE)
    hashed = []

    def noting(names: np.ndarray) -> tuple[str, ...]:
        hashed.append(names)
        return sample_names(names)

    monkeypatch.setattr("agt.account.sample_names", noting)
    model.release(X[:1], RESPONSE, ledger=ledger)
    (names,) = hashed
    assert names is model.model.problem.dataset.train.units
    assert model.owner.table.people == sample_names(names)


def test_people_of_other_data_are_known_by_their_names_on_another_ledger(
    ledger: agt.Ledger, tmp_path: Path
) -> None:
    names = [token_hex(8) for _ in range(200)]
    other = agt.Ledger.create(tmp_path / "copy.ledger", unit="one record", eps=10, delta=1e-5)
    declared = replace(DECLARED, ids=True)
    agt.fit(X, Y, ids=names, declared=declared).release(X[:1], RESPONSE, ledger=ledger)
    with pytest.raises(agt.AgtError, match="of 200 names that agt compared, 200 are in both"):
        agt.fit(X / 2, Y, ids=names, declared=declared).release(X[:1], RESPONSE, ledger=other)


def test_a_ledger_stays_the_same_file_when_the_process_changes_its_folder(
    model: agt.Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = agt.Ledger.create("people.ledger", unit="one record", eps=10)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    agt.Ledger.create("people.ledger", unit="one record", eps=10)
    model.release(X[:1], RESPONSE, ledger=ledger)
    assert debits(agt.Ledger.open(tmp_path / "people.ledger")) == [1]


@pytest.mark.parametrize("wrong", [True, 3, b"x", object()])
def test_what_is_no_ledger_is_refused_by_its_name(wrong: Any, model: agt.Fitted) -> None:
    with pytest.raises(agt.ConfigError, match="ledger="):
        model.release(X[:1], RESPONSE, ledger=wrong)


def test_an_estimator_releases_labels_on_a_ledger(ledger: agt.Ledger) -> None:
    agt.CertifiedClassifier(declared=DECLARED).fit(X, Y).release(X[:2], RESPONSE, ledger=ledger)
    assert debits(ledger) == [2]


def test_people_are_hashed_where_a_whole_block_of_records_is_public(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "ROWS", 100)
    names = np.arange(200).astype(str)
    records = Records(X, Y, ids=names, units=names, public=np.arange(200) < 100)
    private_records = records.take(np.arange(100, 200))
    assert np.array_equal(
        HashedPeople.from_records(records).hashes, HashedPeople.from_records(private_records).hashes
    )


# -- what is said to somebody who brings own arrays
# --------------------------------------------------------------------------------------------------

PEOPLE = np.array([f"p{row // 2}" for row in range(200)])
WITH_IDS = replace(DECLARED, ids=True)


def test_records_on_a_ledger_of_people_are_told_what_to_give(tmp_path: Path) -> None:
    people = agt.Ledger.create(tmp_path / "p.ledger", unit="one patient", eps=1, delta=1e-5)
    model = agt.fit(X, Y, declared=WITH_IDS)
    with pytest.raises(agt.ConfigError) as refused:
        model.release(X[:2] + 1, RESPONSE, ledger=people)
    text = str(refused.value)
    assert "Train with units=... and unit_rows=NUMBER" in text
    assert "a ledger that was created with unit='one record'" in text
    assert "dataset." not in text
    counted = agt.fit(X, Y, declared=WITH_IDS, units=PEOPLE, unit_rows=2)
    small = agt.RandomizedResponse(eps=0.1)
    counted.release(X[:2] + 1, small, ledger=people)  # what the message says to do


def test_a_ledger_without_a_delta_says_so_when_it_is_created_and_when_it_refuses(
    tmp_path: Path, model: agt.Fitted
) -> None:
    with pytest.warns(agt.Doubtful, match="delta=0: this budget has no delta"):
        pure = agt.Ledger.create(tmp_path / "pure.ledger", unit="one record", eps=1)
    with pytest.raises(Exhausted, match=r"needs a ledger whose budget has a delta above 0\."):
        model.release(X[:2] + 1, agt.GaussianMargin(mu=0.02), ledger=pure)
    assert debits(pure) == []


def test_a_budget_that_is_used_up_says_what_is_spent(ledger: agt.Ledger, model: agt.Fitted) -> None:
    model.release(X[:9] + 1, RESPONSE, ledger=ledger)
    with pytest.raises(Exhausted, match="because eps = 9 is already spent"):
        model.release(X[:2] + 2, agt.RandomizedResponse(eps=2), ledger=ledger)
    with pytest.raises(Exhausted, match="covers only 1 of the 2"):
        model.release(X[:2] + 2, RESPONSE, ledger=ledger)


@pytest.mark.parametrize(("rows", "said"), [(3, "3 of 5 queries have"), (1, "1 of 5 queries has")])
def test_a_release_about_training_records_warns(model: agt.Fitted, rows: int, said: str) -> None:
    queries = np.concatenate([X[:rows], X[:5][rows:] + 1])
    with pytest.warns(agt.Doubtful, match=f"{said} the features of a training record"):
        model.release(queries, RESPONSE)


def test_other_queries_simulations_and_coded_coincidences_do_not_warn(model: agt.Fitted) -> None:
    frame = pd.DataFrame({"group": np.array(["a", "b"])[Y]})
    columns = agt.Columns(categorical={"group": ("a", "b", "c")})
    coded = agt.fit(frame, Y, columns=columns, declared=DECLARED)
    queries = pd.DataFrame({"group": ["a", "c", "c"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.release(X[:5] + 1, agt.RandomizedResponse(eps=0.01))
        model.release(X[:5], agt.RandomizedResponse(eps=0.01), seed=0)
        coded.release(queries, agt.RandomizedResponse(eps=0.01))
    queries = pd.DataFrame({"group": ["a", "a", "c"]})
    with pytest.warns(agt.Doubtful, match="2 of 3 queries"), pytest.warns(agt.PrivacySumWarning):
        coded.release(queries, agt.RandomizedResponse(eps=0.01))
