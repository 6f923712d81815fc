"""Queries of another population, and data frames in another order, are refused by every door of
the library.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import agt
from agt.errors import DataError

RNG = np.random.default_rng(8)
FRAME = pd.DataFrame(
    {"age": RNG.integers(18, 90, 200), "region": RNG.choice(["north", "south"], 200)}
)
Y = np.where(FRAME.age > 50, "yes", "no")
COLUMNS = agt.Columns({"age": [18, 90]}, {"region": ["north", "south"]}, missing="indicator")
DECLARED = agt.Declared(classes=["no", "yes"], size=200, features=True, settings=True)
ABROAD = "column 'region'"


def rows(age: list[float | None], region: str | None = "north") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": np.array(age, dtype=np.float64),
            "region": pd.Series([region] * len(age), dtype=object),
        }
    )


@pytest.mark.parametrize(
    ("frame", "refusal"),
    [
        (rows([162]), ""),  # a range's width away is near
        (
            rows([163]),
            r"1 of 1 .*'age'.*\[18, 90\]",
        ),
        (rows([-55]), "1 of 1 .*'age'"),
        (rows([40], "west"), ""),  # a rare word counts as other
        (rows([40] * 2, "west"), f"2 of 2 .*{ABROAD}"),
        (rows([40] * 4 + [1e300]), ""),
        (rows([40] * 3 + [1e300]), "1 of 4 "),
        (rows([95] * 19), ""),
        (rows([95] * 20), "20 of 20 "),
        (rows([40] * 16 + [95] * 4), ""),
        (rows([40] * 16 + [95] * 5), "5 of 21 "),
        (rows([None], None), ""),
        (rows([None] * 20), "0 of 0 .*'age'"),
        (rows([163] * 2, "west"), f"column 'age' .*; 2 of 2 .*{ABROAD}"),
    ],
)
def test_queries_far_outside_or_many_outside_are_of_another_population(
    frame: pd.DataFrame, refusal: str
) -> None:
    coded = COLUMNS(frame)
    if not refusal:
        assert (COLUMNS.code_queries(frame) == coded).all()
        return
    with pytest.raises(agt.DataError, match=refusal):
        COLUMNS.code_queries(frame)


@pytest.mark.parametrize(
    ("regions", "sizes", "refused"),
    [
        (["west"], ["small"], []),
        (["north"], ["huge"], []),
        (["west"], ["huge"], ["region", "size"]),  # no word of this query is in a list
        (["west"], [None], []),
        (["west"] * 2, ["small"] * 2, ["region"]),
        (["west"] + ["north"] * 3, ["huge"] + ["small"] * 3, []),
        (["west"] + ["north"] * 18, ["small"] * 19, []),
        (["west", "north"], ["huge", "tiny"], ["region", "size"]),  # more than half of the words
    ],
)
def test_a_rare_word_alone_counts_as_other(
    regions: list[str], sizes: list[str | None], refused: list[str]
) -> None:
    columns = agt.Columns(
        {}, {"region": ["north", "south"], "size": ["small", "large"]}, missing="indicator"
    )
    frame = pd.DataFrame({"region": regions, "size": pd.Series(sizes, dtype=object)})
    if not refused:
        columns.code_queries(frame)
        return
    with pytest.raises(agt.DataError) as error:
        columns.code_queries(frame)
    named = [name for name in ("region", "size") if f"column '{name}'" in str(error.value)]
    assert named == refused


def doors(folder: Path) -> dict[str, Callable[[Any], object]]:
    model = agt.fit(FRAME, Y, columns=COLUMNS, declared=DECLARED)
    model.save(folder / "model")
    certified = agt.CertifiedClassifier(columns=COLUMNS, declared=DECLARED).fit(FRAME, Y)
    private = agt.PrivateClassifier(columns=COLUMNS, declared=DECLARED).fit(FRAME, Y)
    mechanism = agt.RandomizedResponse(eps=1.0, classes=2)
    return {
        "predict": model.predict,
        "certify": model.certify,
        "release": lambda frame: model.release(frame, mechanism),
        "loaded": agt.load(folder / "model").predict,
        "estimator": certified.predict,
        "probabilities": certified.predict_proba,
        "estimator's release": lambda frame: certified.release(frame, mechanism),
        "private": private.predict,
        "private probabilities": private.predict_proba,
    }


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_every_door_of_the_library_refuses_queries_of_another_population(tmp_path: Path) -> None:
    for name, door in doors(tmp_path).items():
        door(FRAME[:1])
        with pytest.raises((agt.DataError, ValueError)) as refused:  # the latter of estimators
            door(rows([40] * 2, "west"))
        assert ABROAD in str(refused.value), name


# -- names of columns
# --------------------------------------------------------------------------------------------------

WIDE = pd.DataFrame(RNG.normal(size=(200, 3)) * [1.0, 0.1, 3.0], columns=["a", "b", "c"])
SIGNS = np.where(WIDE.a > 0, "yes", "no")


def test_an_arrow_table_whose_names_would_be_lost_is_refused() -> None:
    model = agt.fit(WIDE, SIGNS)
    table = pa.Table.from_pandas(WIDE[["c", "b", "a"]])
    for ask in (model.predict, model.certify, lambda x: agt.fit(x, SIGNS)):
        with pytest.raises(DataError, match="to_pandas"):
            ask(table)


def test_a_frame_in_another_order_is_answered_by_its_names(tmp_path: Path) -> None:
    model = agt.fit(WIDE, SIGNS, ids=np.arange(200))
    due = model.predict(WIDE)
    model.save(tmp_path / "model")
    left = agt.fit(
        WIDE, SIGNS, ids=np.arange(200), declared=agt.Declared(classes=["no", "yes"])
    ).unfit([3])[0]
    estimator = agt.CertifiedClassifier().fit(WIDE, SIGNS)
    for one in (model, agt.load(tmp_path / "model"), left, estimator.model_):
        assert (one.predict(WIDE[["c", "a", "b"]]) == one.predict(WIDE)).all()
        assert (one.certify(WIDE[["b", "c", "a"]]).labels == one.predict(WIDE)).all()
    assert (model.predict(WIDE.to_numpy()) == due).all()
    assert (due == SIGNS).mean() > 0.9
    numbered = agt.fit(WIDE.set_axis(range(3), axis=1), SIGNS)
    assert (numbered.predict(WIDE.set_axis(range(3), axis=1)[[2, 0, 1]]) == due).all()


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (
            WIDE.rename(columns={"c": "d"}),
            r"a, b, c.*unknown: c, d\b",
        ),
        (WIDE[["a", "b"]], r"a, b, c.*unknown: c\b"),
        (WIDE.assign(d=1.0), r"a, b, c.*unknown: d\b"),
        (WIDE[["a", "b", "c", "a"]], r"unknown: a, b, c\b.*\b1\b"),
    ],
)
def test_a_frame_of_other_columns_is_refused(frame: pd.DataFrame, named: str) -> None:
    model = agt.fit(WIDE, SIGNS)
    for door in (model.predict, model.certify):
        with pytest.raises(agt.DataError, match=named):
            door(frame)


@pytest.mark.parametrize("kind", [agt.CertifiedClassifier, agt.PrivateClassifier])
def test_estimators_refuse_another_order_as_scikit_learn_does(kind: Any) -> None:
    model = kind(declared=DECLARED).fit(WIDE, SIGNS)
    with pytest.raises(ValueError, match="order"):
        model.predict(WIDE[["c", "a", "b"]])
