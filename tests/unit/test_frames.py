"""Data frames: coded as the command line codes files, each row alone; what is wrong with data or
model is said.
"""

import pickle
from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import agt
from agt.data.table import Table
from agt.errors import Doubtful

RNG = np.random.default_rng(8)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, 300),
        "since": pd.to_datetime("2020-01-01")
        + pd.to_timedelta(RNG.integers(0, 900, 300), unit="D"),
        "region": RNG.choice(["north", "south", "?", "east"], 300),
        "note": "ignored",
    }
)
Y = np.where(FRAME.age + 20 * (FRAME.region == "north") > 60, "yes", "no")
CODE: dict[str, Any] = {
    "numeric": {"age": [18, 90], "since": ["2020-01-01", "2023-01-01"]},
    "categorical": {"region": ["north", "south", "east"]},
    "bins": 8,
    "crosses": 32,
    "missing": "indicator",
    "missing_values": ["?"],
}
COLUMNS = agt.Columns(**CODE)
DECLARED = agt.Declared(classes=["no", "yes"], size=300, settings=True)
STATED = replace(DECLARED, features=True)


def test_a_frame_is_coded_as_a_file_is_and_each_row_alone(tmp_path: Path) -> None:
    FRAME.assign(y=Y).to_csv(tmp_path / "t.csv", index=False)
    table = Table(path=tmp_path / "t.csv", label="y", **CODE).load()
    coded = COLUMNS(FRAME)
    assert coded.shape == (300, table.train.features.shape[1])
    assert coded.std() > 0.1
    of_file = np.concatenate([table.train.features, table.test.features])
    assert sorted(map(bytes, of_file)) == sorted(map(bytes, coded))
    rows = RNG.permutation(300)[:50]
    assert (COLUMNS(FRAME.iloc[rows]) == coded[rows]).all()
    assert np.isfinite(COLUMNS(FRAME[:1].assign(age=None, since=None, region=None))).all()


EAST = timezone(timedelta(hours=5))
WEST = timezone(timedelta(hours=-3))
OBJECTS = [
    *(1, 2.5, True, "1", None, np.int8(1), np.uint64(2**64 - 1), 2**70, b"1"),
    *(Decimal("1"), Decimal("1.25"), Decimal("10"), date(2024, 1, 1), time(1), timedelta(1)),
    *(
        datetime(2024, 1, 1, 5),
        datetime(2024, 1, 1, 5, tzinfo=EAST),
        datetime(2024, 1, 1, 5, tzinfo=WEST),
    ),
    *(
        pd.Timestamp("2024-01-01 05:00:00.000000001"),
        np.datetime64("2024-01-01T05", "s"),
        pd.Interval(0, 1),
    ),
]
WORDS = [
    "1",
    "1.25",
    "10",
    "2024-01-01",
    "2024-01-01 05:00:00",
    "2024-01-01 05:00:00+05:00",
    "01:00:00",
    "1 day, 0:00:00",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["object", "category"])
@pytest.mark.parametrize(
    "kind", [{"numeric": {"it": [-1e5, 1e5]}, "bins": 0}, {"categorical": {"it": WORDS}}]
)
def test_no_object_in_a_column_changes_how_another_is_read(
    kind: dict[str, Any], dtype: str
) -> None:
    columns = agt.Columns(**kind, missing="indicator")
    refused = 0

    def coded(*values: object) -> np.ndarray | None:
        try:
            return columns(pd.DataFrame({"it": pd.Series(values, dtype=object).astype(dtype)}))[0]
        except (agt.AgtError, ValueError):  # pandas' own of categories
            return None

    for one, other in permutations(OBJECTS, 2):
        alone = coded(one)
        beside = coded(one, other)
        assert alone is None or beside is None or (alone == beside).all(), (one, other)
        refused += beside is None
    assert 0.5 < refused / len(OBJECTS) ** 2 < 0.95


TIMES = (
    pd.Series(np.array(["1969-12-31T12", "2024-01-01T06"], "datetime64[ns]"))
    .repeat(150)
    .reset_index(drop=True)
)


@pytest.mark.parametrize(
    ("column", "like"),
    [
        ({"since": TIMES + pd.Timedelta(1, "ns")}, {"since": TIMES}),
        ({"since": TIMES.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")}, {"since": TIMES}),
        ({"since": TIMES.astype(str)}, {"since": TIMES}),
        ({"since": pd.Series([date(9999, 12, 31)] * 300)}, {"since": "9999-12-31"}),
        ({"age": FRAME.age.astype("Int16")}, {"age": FRAME.age}),
        ({"region": FRAME.region.astype("category")}, {"region": FRAME.region}),
        ({"region": pd.concat([FRAME.region[:9], FRAME.region[9:]])}, {"region": FRAME.region}),
        (
            {"region": FRAME.region.astype(pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())))},
            {"region": FRAME.region},
        ),
    ],
)
def test_columns_of_many_types_are_coded_alike(
    column: dict[str, Any], like: dict[str, Any]
) -> None:
    assert (COLUMNS(FRAME.assign(**column)) == COLUMNS(FRAME.assign(**like))).all()


def test_a_model_of_a_frame_answers_frames_also_when_loaded(tmp_path: Path) -> None:
    model = agt.fit(FRAME, Y, declared=DECLARED, columns=COLUMNS)
    answers = model.certify(FRAME)
    assert (answers.labels == Y).mean() > 0.8
    assert answers.stable_distance.max() > 3
    assert (
        agt.fit(COLUMNS(FRAME), Y, declared=DECLARED).certify(COLUMNS(FRAME)).labels
        == answers.labels
    ).all()
    assert all(condition.held for condition in model.conditions)
    model.save(tmp_path / "m")
    again = agt.load(tmp_path / "m")
    assert again.columns == COLUMNS
    assert (again.certify(FRAME[::-1]).stable_distance == answers.stable_distance[::-1]).all()


def test_a_dataset_file_codes_a_frame_and_ranges_read_off_the_records_are_no_public_ones(
    tmp_path: Path,
) -> None:
    text = (
        "label: y\nbins: 8\nnumeric:\n  age: [18, 90]\ncategorical:\n  region: [north, south, "
        "east]\n"
    )
    text += "missing: indicator\nmissing_values: ['?']\nfrom_data: [age]\n"
    (tmp_path / "t.yaml").write_text(text)
    model = agt.fit(FRAME, Y, declared=DECLARED, columns=tmp_path / "t.yaml")
    assert model.columns == agt.Columns(
        **{**CODE, "numeric": {"age": [18, 90]}, "crosses": 0}, from_data=["age"]
    )
    assert [condition.letter for condition in model.conditions if not condition.held] == ["e"]
    with pytest.raises(agt.ConfigError, match=r"condition e.*'age'.*columns\.numeric\.age"):
        model.release(FRAME, agt.RandomizedResponse(eps=1.0, classes=2))


def test_estimators_take_frames_and_what_is_published_codes_them_too() -> None:
    private = agt.PrivateClassifier(epsilon=20.0, declared=DECLARED, columns=COLUMNS).fit(FRAME, Y)
    published = pickle.dumps(private)
    assert len(published) < 20_000
    assert (pickle.loads(published).predict(FRAME) == private.predict(FRAME)).all()
    assert private.predict_proba(FRAME).shape == (300, 2)
    assert private.n_features_in_ == 4
    search = GridSearchCV(
        agt.CertifiedClassifier(columns=COLUMNS), {"caution": [1.0, 4.0]}, cv=2
    ).fit(FRAME, Y)
    assert search.best_score_ > 0.75
    assert (search.best_estimator_.certify(FRAME).labels == search.predict(FRAME)).all()
    assert (search.best_estimator_.decision_function(FRAME) > 0).mean() == (
        search.predict(FRAME) == "yes"
    ).mean()


@pytest.mark.parametrize("kind", [agt.CertifiedClassifier, agt.PrivateClassifier])
def test_a_list_that_would_refuse_queries_like_the_records_is_said_when_fitting(kind: Any) -> None:
    """Of the private estimator before anything is spent: the model would answer no such frame."""
    columns = agt.Columns(**{**CODE, "categorical": {"region": ["north", "east"]}})
    estimator = kind(declared=DECLARED, columns=columns)
    with pytest.warns(Doubtful, match="Queries like these"):
        estimator.fit(FRAME, Y)
    with pytest.raises(ValueError, match="another population"):
        estimator.predict(FRAME)


@pytest.mark.parametrize("kind", [agt.CertifiedClassifier, agt.PrivateClassifier])
def test_a_dataset_file_that_changes_after_fitting_changes_no_answer(
    kind: Any, tmp_path: Path
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("numeric: {age: [18, 90]}\ncategorical: {region: [north, south, east, '?']}\n")
    model = kind(columns=file, declared=DECLARED).fit(FRAME, Y)
    before = model.decision_function(FRAME)
    file.write_text("numeric: {age: [18, 40]}\ncategorical: {region: [south, north]}\n")
    assert (model.decision_function(FRAME) == before).all()
    file.unlink()
    assert (pickle.loads(pickle.dumps(model)).decision_function(FRAME) == before).all()


@pytest.mark.parametrize(
    ("columns", "frame", "says"),
    [
        (COLUMNS, FRAME.to_numpy(), "^columns=.*ndarray"),
        (
            COLUMNS,
            FRAME.drop(columns="age"),
            r"'age'.*columns\.numeric\.age",
        ),
        (
            COLUMNS,
            FRAME.assign(age="old"),
            r"columns\.numeric\.age\) .*'old'.*\b1\b",
        ),
        (COLUMNS, FRAME.assign(age=np.inf), r"'age'.*\binf\b.*\b1\b"),
        (COLUMNS, FRAME.assign(age=2**70), "'age' .*Python"),
        (
            COLUMNS,
            FRAME.assign(since=time(1)),
            r"time64\[us\].*columns\.numeric\.since",
        ),
        (COLUMNS, FRAME.assign(since=np.datetime64(10**14, "s")), "'since' .*Casting"),
        (COLUMNS, FRAME.assign(region=pd.Period("2024")), "'region' .*Function"),
        (
            COLUMNS,
            FRAME.assign(age=FRAME.age.where(FRAME.index > 0, date(1970, 1, 1))),
            "'age' .*date",
        ),
        (
            COLUMNS,
            FRAME.assign(region="west"),
            r"\b300\b.*columns\.categorical\.region",
        ),
        (COLUMNS, pd.concat([FRAME, FRAME], axis=1), "columns .*'age'"),
        (agt.Columns({"age": None}), FRAME, r"^columns\.numeric\.age: "),
        (
            agt.Columns({"age": [0, 99]}),
            FRAME.assign(age=FRAME.age.where(FRAME.index > 0)),
            r"row 1\b.*columns\.missing=indicator",
        ),
        (
            "nowhere.yaml",
            FRAME,
            r"columns=nowhere\.yaml ",
        ),
        (None, FRAME, r"features: .*columns=agt\.Columns"),
    ],
)
def test_what_cannot_be_coded_is_refused(columns: Any, frame: Any, says: str) -> None:
    with pytest.raises(agt.AgtError, match=says):
        agt.fit(frame, Y, columns=columns)


def test_features_that_are_not_scaled_and_classes_that_are_never_answered_are_said() -> None:
    rows = RNG.normal(size=(300, 3))
    with pytest.warns(Doubtful, match=r"\b5000\b"):
        agt.fit(np.minimum(5_000 * np.abs(rows) + 4_000, 5_000), Y)
    with pytest.warns(Doubtful, match=r"\b300\b.*'no'"):
        agt.fit(np.zeros((300, 3)), np.where(np.arange(300) % 3, "yes", "no"))
    with pytest.warns(Doubtful, match=r"\b300\b.*'age'.*\[18, 50\]"):
        agt.fit(FRAME, Y, columns=agt.Columns({"age": [18, 50]}))


KINDS: dict[str, dict[str, Any]] = {
    "linear": {},
    "network": {"network": (4,), "ks": 2, "epochs": 4, "lr": 2.0, "clip": 0.06},
    "votes": {"certificate": "votes", "members": 5},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_model_without_some_people_is_the_one_that_never_saw_them(kind: dict[str, Any]) -> None:
    x = COLUMNS(FRAME)
    y = np.where(Y == "yes", 1, 0)
    declared = agt.Declared(classes=[0, 1], size=300, settings=True, ids=True)
    ids = np.array([f"p{row}" for row in range(300)])
    rest = ~np.isin(ids, ["p3", "p7"])
    model = agt.CertifiedClassifier(declared=declared, **kind).fit(x, y, ids=ids)
    left, removal = model.unfit(["p3", "p7"])
    fresh = agt.CertifiedClassifier(declared=declared, **kind).fit(x[rest], y[rest], ids=ids[rest])
    assert (left.decision_function(x) == fresh.decision_function(x)).all()
    assert (left.decision_function(x) != model.decision_function(x)).any()
    assert (removal.records, removal.facts["records_after"], removal.promise.exact) == (
        2,
        298,
        True,
    )
    assert len(model.model_.model.problem.dataset.train) == 300
    for wrong in (["p3", "nobody"], []):
        with pytest.raises(ValueError, match=r"ids=.*300"):
            model.unfit(wrong)


def test_constants_that_were_read_off_the_records_keep_them_from_being_taken_out() -> None:
    with pytest.raises(agt.DataError, match=r"declared\.classes.*load_without"):
        agt.fit(COLUMNS(FRAME), Y, ids=np.arange(300)).unfit([3])


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_a_budget_that_protects_nobody_is_said_before_it_is_spent() -> None:
    with pytest.warns(Doubtful, match="epsilon is 100"):
        agt.PrivateClassifier(epsilon=100.0, declared=DECLARED, columns=COLUMNS).fit(FRAME, Y)
    with pytest.warns(Doubtful, match="delta is 0.01"):
        agt.PrivateClassifier(epsilon=1.0, delta=0.01, declared=DECLARED, columns=COLUMNS).fit(
            FRAME, Y
        )


@pytest.mark.parametrize("listed", [False, True])
def test_arrays_that_are_edited_after_fitting_change_nothing(listed: bool) -> None:
    x = RNG.normal(size=(80, 3))
    names = np.array([f"p{row}" for row in range(80)])
    y = (x[:, 0] > 0) * 1
    mine = x.copy()
    labels = y.copy()
    ids = names.copy()
    estimator = agt.CertifiedClassifier(declared=agt.Declared(classes=[0, 1])).fit(
        mine, labels, ids=ids
    )
    model = estimator if listed else estimator.model_
    due = model.unfit(["p7"])[0].certify(x).stable_distance
    mine[:], labels[:], ids[:] = mine[::-1].copy(), 1 - labels, ids[::-1].copy()
    assert (model.unfit(["p7"])[0].certify(x).stable_distance == due).all()
    assert (
        estimator.fit(mine, labels, ids=ids).unfit(["p7"])[0].certify(x).stable_distance != due
    ).any()


def test_one_name_is_no_list_of_them() -> None:
    model = agt.fit(np.eye(4)[np.arange(40) % 4], np.arange(40) % 2, ids=np.arange(40))
    with pytest.raises(agt.ConfigError, match="ids='12'"):
        model.unfit("12")


@pytest.mark.parametrize("kind", [agt.CertifiedClassifier, agt.PrivateClassifier])
def test_estimators_answer_as_they_were_fitted_whatever_is_set_or_refused_later(kind: Any) -> None:
    numbers = FRAME[["age"]].to_numpy() / 90.0
    framed = kind(declared=DECLARED, columns=COLUMNS).fit(FRAME, Y)
    plain = kind(declared=STATED).fit(numbers, Y)
    for model, own, other in ((framed, FRAME, None), (plain, numbers, COLUMNS)):
        before = model.predict_proba(own)
        model.set_params(declared=agt.Declared(classes=["a", "b", "c"]))
        with pytest.raises(ValueError, match=r"row 0.*'yes'"):
            model.fit(own, Y)
        model.set_params(columns=other)
        assert (model.predict_proba(own) == before).all()
        assert model.classes_.tolist() == ["no", "yes"]
    for wrong in (numbers, FRAME.age, FRAME[["age"]], None):
        with pytest.raises(ValueError, match=r"^columns|columns\.numeric\.since"):
            framed.predict_proba(wrong)
        with pytest.raises(ValueError, match=r"^columns|columns\.numeric\.since"):
            kind(declared=DECLARED, columns=COLUMNS).fit(wrong, Y)
    with pytest.raises(NotFittedError):
        kind(columns=COLUMNS).predict(FRAME)
