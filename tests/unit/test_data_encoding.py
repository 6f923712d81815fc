"""From rows to features: thermometer codes, one-hot lists, gaps and crosses, each row on its own."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agt.data.encoding import HALVINGS, Encoding
from agt.data.table import Table
from agt.errors import ConfigError

LIMITS = {"age": (0.0, 100.0), "debt": (-10.0, 0.0, 5.0, 1000.0)}
LISTED = {"home": ("own", "rent"), "sex": ("f", "m")}


def numbers(*rows: float | None) -> np.ndarray:
    return np.array([[math.nan if row is None else row] for row in rows])


def words(*rows: str | None) -> np.ndarray:
    return np.array([[row] for row in rows], dtype=object)


def nothing(n: int) -> np.ndarray:
    return np.empty((n, 0), dtype=object)


def test_edges_by_hand() -> None:
    code = Encoding({"x": (0.0, 10.0, 20.0, 100.0, 200.0)}, {}, bins=7)
    unit = np.float32(1 / math.sqrt(3))  # between four bins there are three edges
    expected = unit * np.array(
        [[-1, -1, -1], [-1, -1, -1], [1, -1, -1], [1, 1, -1], [1, 1, 1], [1, 1, 1], [0, 0, 0]], dtype=np.float32
    )
    assert (code(numbers(-5, 9.99, 10, 99, 100, 1e9, None), nothing(7)) == expected).all()


def test_a_range_is_cut_into_equal_parts_and_halved_towards_zero() -> None:
    (edges,) = Encoding({"x": (0.0, 1024.0)}, {}, bins=4).thresholds.values()
    assert edges == sorted({256.0, 512.0, 768.0, *(1024 / 2**j for j in range(1, HALVINGS + 1))})
    (both,) = Encoding({"x": (-8.0, 1024.0)}, {}, bins=2).thresholds.values()
    assert {0.0, 512.0, 1.0, -4.0, -8 / 1024} <= set(both)
    (above,) = Encoding({"x": (16.0, 32.0)}, {}, bins=2).thresholds.values()
    assert above == [16 + 16 / 2**j for j in range(HALVINGS, 0, -1)]


def test_without_bins_numbers_are_scaled_and_a_column_that_never_changes_is_nothing() -> None:
    assert Encoding({"x": (0.0, 4.0)}, {})(numbers(0, 1, 9, None), nothing(4)).ravel().tolist() == [-1, -0.5, 1, 0]
    assert Encoding({"x": (3.0, 3.0)}, {}, bins=5)(numbers(3, 4), nothing(2)).ravel().tolist() == [0, 0]


def test_categories_gaps_and_their_order() -> None:
    code = Encoding({"x": (0.0, 2.0, 4.0)}, {"home": ("own", "rent")}, indicator=True)
    features = code(numbers(1, 3, None), words("rent", "boat", None))
    assert features.tolist() == [[-1, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1]]
    assert features.dtype == np.float32


def test_each_column_has_length_one() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 2)) * 100
    features = Encoding(LIMITS, LISTED, bins=20)(rows, np.array([["own", "m"]] * 50, dtype=object))
    assert np.linalg.norm(features, axis=1) == pytest.approx(2.0, abs=1e-6)


@given(st.floats(-50, 150), st.floats(-50, 150))
def test_codes_are_monotone(first: float, second: float) -> None:
    low, high = Encoding({"x": (0.0, 100.0)}, {}, bins=20)(numbers(*sorted((first, second))), nothing(2))
    assert (low <= high).all()


ROWS = st.lists(
    st.tuples(
        st.one_of(st.just(math.nan), st.floats(-200, 2000)),
        st.one_of(st.just(math.nan), st.floats(-200, 2000)),
        st.sampled_from(["own", "rent", "boat", None]),
        st.sampled_from(["f", "m", None]),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("bins", [0, 20])
@pytest.mark.parametrize("crosses", [0, 16])
@given(rows=ROWS)
def test_a_row_has_the_same_bits_whatever_stands_beside_it(bins: int, crosses: int, rows: list[tuple]) -> None:  # type: ignore[type-arg]
    code = Encoding(LIMITS, LISTED, bins, crosses, indicator=True)
    figures = np.array([row[:2] for row in rows])
    texts = np.array([row[2:] for row in rows], dtype=object).reshape(len(rows), 2)
    assert code(figures, texts).shape == (len(rows), code.width)
    assert each_alone(code, figures, texts)


def each_alone(code: Encoding, figures: np.ndarray, texts: np.ndarray) -> bool:
    """Whether every row keeps its bits alone, and in another order."""
    together = code(figures, texts)
    alone = (code(figures[i : i + 1], texts[i : i + 1]) for i in range(len(figures)))
    return bool(
        (np.concatenate(list(alone)) == together).all() and (code(figures[::-1], texts[::-1]) == together[::-1]).all()
    )


def test_the_check_catches_a_code_that_looks_at_other_rows() -> None:
    class Ranked(Encoding):
        def __call__(self, numbers: np.ndarray, words: np.ndarray) -> np.ndarray:
            return super().__call__(numbers - np.nanmin(numbers, axis=0), words)

    rows = np.array([[3.0], [50.0], [80.0]])
    assert each_alone(Encoding({"x": (0.0, 100.0)}, {}, 20), rows, nothing(3))
    assert not each_alone(Ranked({"x": (0.0, 100.0)}, {}, 20), rows, nothing(3))


def test_crosses_tell_pairs_apart_and_weigh_as_much_as_the_columns() -> None:
    code = Encoding({}, {"a": ("x", "y"), "b": ("x", "y"), "c": ("z",)}, crosses=2**12)
    pairs = np.array([[a, b, "z"] for a in "xy" for b in "xy"], dtype=object)
    crossed = code(np.empty((4, 0)), pairs)[:, -code.crosses :]
    assert len({row.tobytes() for row in crossed}) == 4
    assert np.linalg.norm(crossed, axis=1) == pytest.approx(np.sqrt(3))
    assert not code(np.empty((1, 0)), np.array([["x", None, None]], dtype=object))[0, -code.crosses :].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"numeric": {"a": (0, 5, 5, 9)}}, "numeric.a: the edges of bins must increase, and 5 is followed by 5"),
        ({"numeric": {"a": (3, 1, 9)}}, "3 is followed by 1"),
        ({"numeric": {"a": (5, 5)}}, "low < high"),
        ({"numeric": {"a": (5,)}}, "numeric"),
        ({"numeric": {"a": (0, math.inf)}}, "finite"),
        ({"numeric": {"a": (0, 1)}, "bins": -1}, "bins"),
        ({"numeric": {"a": (0, 1)}, "bins": 10_000}, "bins"),
        ({"numeric": {f"a{i}": (0, 1) for i in range(100)}, "bins": 1000}, "lower bins or crosses"),
        ({"numeric": {"a": (0, 1)}, "crosses": -1}, "crosses"),
        ({"numeric": {"a": (0, 1)}, "crosses": 8}, "pairs of columns"),
    ],
)
def test_what_makes_no_features_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Table(path="x.csv", label="y", **settings)  # type: ignore[arg-type]


def test_queries_are_coded_as_records_are(tmp_path) -> None:  # type: ignore[no-untyped-def]
    lines = [f"p{i},{i},{i * i},{'own' if i % 2 else 'rent'},{i % 2}" for i in range(40)]
    for name, chosen in (("all.csv", lines), ("some.csv", lines[7:20])):
        (tmp_path / name).write_text("who,age,debt,home,y\n" + "".join(f"{line}\n" for line in chosen))
    numeric = {"age": (0.0, 40.0), "debt": (0.0, 10.0, 100.0, 2000.0)}
    coding = {"numeric": numeric, "categorical": {"home": ("own", "rent")}, "bins": 8, "crosses": 32}
    table = Table(tmp_path / "all.csv", "y", id="who", classes=("0", "1"), **coding)  # type: ignore[arg-type]
    dataset = table.load()
    known = {i: row for part in (dataset.train, dataset.test) for i, row in zip(part.ids, part.features, strict=True)}
    queries = table.load_queries(tmp_path / "some.csv")
    assert all((known[i] == row).all() for i, row in zip(queries.ids, queries.features, strict=True))
    assert dataset.scaling["thresholds"]["debt"] == [10.0, 100.0]  # type: ignore[index]
