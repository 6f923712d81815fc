"""What every dataset owes (agt/data/dataset.py), for each kind in conf/dataset: a new one inherits
it with an example.

Files are made here, small, from plain columns; so a row can be taken out, moved, spoilt, or asked
about, and nobody else's record may notice. That is condition b of the method, on which every claim
of privacy rests.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

from agt.data.dataset import Dataset
from agt.data.ids import uniform
from agt.data.records import Records
from agt.data.sent_records import columns_of
from agt.errors import AgtError, DataError, DataMissing
from agt.facts import Standing
from agt.settings import build
from agt.training.batches import BatchPlan
from agt.training.ensemble import assign_shards
from agt.training.settings import EnsembleConfig
from agt_cli import config_files
from agt_cli.composing import compose_command

RNG = np.random.default_rng(0)
N = 60
LABELS = np.arange(N) % 2
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Example:
    """How to load one: its settings, and its raw rows where they come from a file.

    Attributes:
        settings: over those of conf/dataset/NAME.yaml.
        columns: name -> [n, ...] raw values of a file, a row for each record.
        file: its name; csv or npz.
        numbers: a column that must hold numbers; None: none can be NaN.
        answers: the column of labels.
        asked: the columns that a file of queries has, and what they are called there.
        beside: what else the file holds.
        bundled: scikit-learn's loader of what comes with it; and which of its targets are used.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    file: str = ""
    numbers: str | None = None
    answers: str = "label"
    asked: dict[str, str] = field(default_factory=dict)
    beside: Columns = field(default_factory=dict)
    bundled: tuple[str, tuple[int, ...]] | None = None

    def write(self, folder: Path, columns: Columns) -> Path:
        path = folder / self.file
        if path.suffix == ".csv":
            pd.DataFrame(columns).to_csv(path, index=False)
        else:
            np.savez(path, **columns, **self.beside)
        return path


def images(n: int) -> np.ndarray:
    return (RNG.integers(0, 90, (n, 28, 28)) + 100 * (np.arange(n) % 2)[:, None, None]).astype(
        np.uint8
    )


TABLE = {
    "age": RNG.uniform(18, 100, N).round(2),
    "town": RNG.choice(["a", "b", "c"], N),
    "label": np.array(["no", "yes"])[LABELS],
}
# of one content; of 0 and 2 everything is alike, 6 is public
COPIES = np.isin(np.arange(N), (0, 2, 4, 6))
VECTORS = {"x": RNG.normal(size=(N, 4)).astype(np.float32), "label": LABELS}
ASKED = {"age": "age", "town": "town", "label": "label"}
NUMERIC = {
    "numeric": {"age": (18, 100)},
    "categorical": {"town": ("a", "b")},
    "label": "label",
    "classes": ("no", "yes"),
}
EXAMPLES: dict[str, tuple[str, Example]] = {
    "blobs": ("blobs", Example({"n_train": N})),
    "blobs_overlapping": ("blobs_overlapping", Example({"n_train": N})),
    "digits": ("digits", Example(bundled=("load_digits", (3, 8)))),
    "mnist": (
        "mnist",
        Example(
            {"declared_size": 45},
            {"images": images(N), "labels": np.array([3, 8])[LABELS]},
            "d.npz",
            answers="labels",
            asked={"images": "x", "labels": "label"},
        ),
    ),
    "table": ("table", Example(NUMERIC, TABLE, "t.csv", "age", asked=ASKED)),
    "table with names, people and a split": (
        "table",
        Example(
            {**NUMERIC, "id": "key", "unit": "who", "public": "open", "split": "part"},
            {
                **TABLE,
                "key": np.array([f"k{i}" for i in RNG.permutation(1000)[:N]]),
                "who": np.array([f"p{i // 2 * 7919 % 1009}" for i in range(N)]),
                "open": (np.arange(N) // 2 % 7 == 0).astype(int),
                "part": np.where(np.arange(N) // 2 % 4 == 3, "test", "train"),
            },
            "t.csv",
            "age",
            asked=ASKED,
        ),
    ),
    "table with copies that differ in whose they are, whether they are public, or in nothing": (
        "table",
        Example(
            {**NUMERIC, "unit": "who", "public": "open"},
            {
                **{name: np.where(COPIES, values[0], values) for name, values in TABLE.items()},
                "who": np.where(
                    np.isin(np.arange(N), (0, 2, 6)),
                    "p0",
                    [f"p{(1 + i // 2) * 7919 % 1009}" for i in range(N)],
                ),
                "open": ((np.arange(N) // 2 % 7 == 3) & (np.arange(N) % 2 == 0)).astype(int),
            },
            "t.csv",
            "age",
            asked=ASKED,
        ),
    ),
    "embeddings": (
        "embeddings",
        Example({"classes": (0, 1)}, VECTORS, "e.npz", "x", asked={"x": "x", "label": "label"}),
    ),
    "embeddings with a center and a split": (
        "embeddings",
        Example(
            {
                "classes": (0, 1),
                "center": (0.5,) * 4,
                "public_scaling": True,
                "unit_norm": True,
                "is_test": "held",
                "scale": 3.0,
            },
            {**VECTORS, "held": (np.arange(N) // 2 % 4 == 3).astype(int)},
            "e.npz",
            "x",
            asked={"x": "x", "label": "label"},
        ),
    ),
    "medmnist": (
        "medmnist",
        Example(
            {"name": "breastmnist"},
            {"train_images": images(N), "train_labels": LABELS[:, None].astype(np.uint8)},
            "m.npz",
            answers="train_labels",
            asked={"train_images": "x"},
            beside={
                **{f"{split}_images": images(8) for split in ("val", "test")},
                **{
                    f"{split}_labels": (np.arange(8) % 2)[:, None].astype(np.uint8)
                    for split in ("val", "test")
                },
            },
        ),
    ),
}
every = pytest.mark.parametrize("name", EXAMPLES)
of_files = pytest.mark.parametrize(
    "name", [name for name, (_, example) in EXAMPLES.items() if example.file]
)


@cache
def compose(group: str) -> dict[str, Any]:
    node = compose_command("train", [f"dataset={group}", "data_dir=elsewhere"], complete=False)[
        "dataset"
    ]
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items()}


def source(name: str, path: Path | None = None) -> Any:
    group, example = EXAMPLES[name]
    given = {"path": path} if path else {}
    return build({**compose(group), **example.settings, **given}, "dataset")


def loaded(
    name: str, folder: Path, change: Callable[[Columns], Columns] = lambda columns: columns
) -> Dataset:
    example = EXAMPLES[name][1]
    return source(
        name, example.write(folder, change(example.columns)) if example.file else None
    ).load()


def rows_of(columns: Columns, rows: np.ndarray) -> Columns:
    return {key: values[rows] for key, values in columns.items()}


def everyone(dataset: Dataset) -> dict[str, tuple[Any, ...]]:
    """Each record's name -> all that belongs to it: its bits, its split, its batch of each
    epoch, its shard.
    """
    found = {}
    for split, records in (("train", dataset.train), ("test", dataset.test)):
        plan = BatchPlan(2, 3, 20.0, 1000, "agt", True)
        batches = np.empty((6, len(records)), dtype=int)
        for step, rows in enumerate(plan.batches(records.units)):
            batches[step] = np.isin(np.arange(len(records)), rows)
        home = assign_shards(records.units, EnsembleConfig(members=3))
        for row, key in enumerate(records.ids.tolist()):
            own = (
                records.features[row].tobytes(),
                records.labels[row],
                records.units[row],
                records.public[row],
            )
            found[key] = (split, *own, tuple(batches[:, row]), home[row])
    return found


# -- the contract


def test_the_hash_split_has_its_public_rate() -> None:
    names = [f"record {i}" for i in range(20_000)]
    assert abs((uniform(names, "split") < 0.25).mean() - 0.25) < 0.01


def test_every_kind_of_dataset_in_conf_has_an_example() -> None:
    """Those that need a file of the user's are of a class that is here with a small one."""
    classes = {compose(group)["_target_"] for group, _ in EXAMPLES.values()}
    assert {
        compose(name)["_target_"] for name in config_files.options_of_group("dataset")
    } == classes


@every
def test_records_are_whole_and_their_names_are_their_own(name: str, tmp_path: Path) -> None:
    dataset = loaded(name, tmp_path)
    for records in (dataset.train, dataset.test):
        assert isinstance(records, Records)
        assert records.features.dtype in (np.float32, np.float64)
        assert records.ids.dtype.kind == records.units.dtype.kind == "U"
        assert records.public.dtype == bool
        assert set(records.labels.tolist()) == set(range(len(dataset.classes)))
        assert np.abs(records.features).max() <= 1000, "scaled by public constants"
    names = [*dataset.train.ids, *dataset.test.ids]
    assert len(set(names)) == len(names)
    assert not set(dataset.train.units) & set(dataset.test.units), "a person is in one split"
    assert dataset.name
    assert len(set(dataset.classes)) == len(dataset.classes) >= 2
    json.dumps(dict(dataset.scaling))
    assert dataset.selection.held
    assert dataset.preprocessing.held


@every
def test_two_loads_are_one_dataset_and_another_row_makes_another(name: str, tmp_path: Path) -> None:
    first = loaded(name, tmp_path)
    again = loaded(name, tmp_path)
    assert first.digest == again.digest
    assert everyone(first) == everyone(again)
    if EXAMPLES[name][1].file:
        fewer = loaded(name, tmp_path, lambda columns: rows_of(columns, np.arange(N) > 0))
        assert fewer.digest != first.digest


def fewer(loader: str, used: tuple[int, ...], gone: int) -> Callable[[], Any]:
    """scikit-learn's loader, without one of the rows that are used."""
    bunch = getattr(sklearn.datasets, loader)()
    kept = np.arange(len(bunch.data)) != np.flatnonzero(np.isin(bunch.target, used))[gone]
    for key in ("data", "target"):
        bunch[key] = bunch[key][kept]
    return lambda: bunch


@pytest.mark.parametrize(
    "name", [name for name, (_, example) in EXAMPLES.items() if example.file or example.bundled]
)
@pytest.mark.parametrize("gone", [0, 1, 7, 30, N - 1])
def test_a_record_that_goes_takes_nothing_with_it(
    name: str, gone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = everyone(loaded(name, tmp_path))
    if bundled := EXAMPLES[name][1].bundled:
        monkeypatch.setattr(sklearn.datasets, bundled[0], fewer(*bundled, gone))
    less = everyone(loaded(name, tmp_path, lambda columns: rows_of(columns, np.arange(N) != gone)))
    assert len(less) == len(whole) - 1
    assert less == {key: whole[key] for key in less}


@pytest.mark.parametrize(("name", "contents"), [("table", 5), ("embeddings", 8)])
def test_copies_share_a_split(name: str, contents: int, tmp_path: Path) -> None:
    """Of copies the last number goes, whichever row does: told apart, a training record could
    take out a test record.
    """
    dataset = loaded(name, tmp_path, lambda columns: rows_of(columns, np.arange(N) % contents))
    train, test = (
        {features.tobytes() for features in part.features} for part in (dataset.train, dataset.test)
    )
    assert len(train | test) == contents
    assert not train & test


@of_files
def test_the_order_of_rows_says_nothing(name: str, tmp_path: Path) -> None:
    shuffled = loaded(
        name, tmp_path, lambda columns: rows_of(columns, np.random.default_rng(1).permutation(N))
    )
    assert everyone(shuffled) == everyone(loaded(name, tmp_path))


@of_files
def test_queries_are_scaled_as_records_are(name: str, tmp_path: Path) -> None:
    """A file of the very rows that were loaded: the same bits, whichever split they are in, one
    at a time or all.
    """
    example = EXAMPLES[name][1]
    dataset = loaded(name, tmp_path)
    known = {
        records.features[row].tobytes()
        for records in (dataset.train, dataset.test)
        for row in range(len(records))
    }
    path = tmp_path / example.file
    asking = source(name, path)
    folder = tmp_path / "queries"
    folder.mkdir()
    inputs = folder / example.file
    for rows in (np.arange(N), np.array([3])):
        columns = {there: example.columns[here][rows] for here, there in example.asked.items()}
        if inputs.suffix == ".csv":
            pd.DataFrame(columns).to_csv(inputs, index=False)
        else:
            np.savez(inputs, **columns)
        queries = asking.load_queries(inputs)
        assert len(queries) == len(rows)
        assert queries.features.dtype == dataset.train.features.dtype
        assert {features.tobytes() for features in queries.features} <= known
        if example.answers in example.asked:
            assert queries.labels.tolist() == LABELS[rows].tolist()
        lines = [
            json.loads(json.dumps({key: column[row].tolist() for key, column in columns.items()}))
            for row in range(len(rows))
        ]
        sent = asking.read_queries(columns_of(lines, "line 1"))
        assert sent.features.dtype == queries.features.dtype
        assert sent.features.tobytes() == queries.features.tobytes(), "as JSON, each read by itself"


ORDERS: dict[str, Callable[[int], np.ndarray]] = {
    "in order": np.arange,
    "shuffled": lambda n: np.random.default_rng(0).permutation(n),
    "with gaps": lambda n: np.arange(n) * 3 // 2,
    "from 1000 down": lambda n: 1000 - np.arange(n),
}
WAYS_IN: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "csv": ("table", np.asarray),
    "csv, zeros in front": (
        "table",
        lambda numbers: np.array([f"{number:06d}" for number in numbers]),
    ),
    "csv of floats": ("table", lambda numbers: numbers.astype(float)),
    "csv, site and number": (
        "table",
        lambda numbers: np.array([f"site A/{number}" for number in numbers]),
    ),
    "csv, one odd": (
        "table",
        lambda numbers: np.where(np.arange(len(numbers)) == 7, "none yet", numbers.astype(str)),
    ),
    "npz": ("embeddings", np.asarray),
    "npz of text": ("embeddings", lambda numbers: numbers.astype(str)),
    "npz of floats": ("embeddings", lambda numbers: numbers.astype(float)),
}


def numbered(
    name: str, folder: Path, ids: np.ndarray | None, rows: np.ndarray, permanent: bool = False
) -> Dataset:
    """Some rows of an example, with a column of ids."""
    example = EXAMPLES[name][1]
    columns = {**rows_of(example.columns, rows), **({} if ids is None else {"row": ids})}
    path = example.write(folder, columns)
    return replace(
        source(name, path),
        id=None if ids is None else "row",
        id_permanent=permanent,
        id_as_text=True,
    ).load()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("way", WAYS_IN)
def test_row_numbers_void_condition_b_in_any_order_and_form(
    way: str, order: str, tmp_path: Path
) -> None:
    name, written = WAYS_IN[way]
    ids = written(ORDERS[order](N))
    selection = numbered(name, tmp_path, ids, np.arange(N)).selection
    assert selection.standing is Standing.VOID
    (counting,) = (fact for fact in selection.facts if fact.code == "column_counts_rows")
    assert counting.values["column"] == "row"
    declared = numbered(name, tmp_path, ids, np.arange(N), permanent=True).selection
    assert declared.standing is Standing.DECLARED, "somebody said so in as many words"
    scattered = numbered(
        name, tmp_path, written(ORDERS[order](N) * 7919 % 100_003), np.arange(N)
    ).selection
    assert scattered.held


@pytest.mark.parametrize("order", ORDERS)
def test_one_person_less_in_an_export_moves_nobody_unless_row_numbers_are_ids(
    order: str, tmp_path: Path
) -> None:
    """The rows are numbered anew, as pandas does where a table is read, cut and written again."""
    fewer = np.arange(1, N)
    whole, less = (numbered("table", tmp_path, None, rows) for rows in (np.arange(N), fewer))
    assert everyone(less).items() <= everyone(whole).items()
    assert whole.selection.held
    by_row = [
        numbered("table", tmp_path, ORDERS[order](len(rows)), rows)
        for rows in (np.arange(N), fewer)
    ]
    there, here = (
        {entry[1]: entry[5:] + entry[:1] for entry in everyone(data).values()} for data in by_row
    )
    assert sum(there[features] != places for features, places in here.items()) > N // 4
    assert not any(data.selection.held for data in by_row)


# -- refusals


@of_files
def test_a_file_that_is_not_there_is_missing_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="nowhere") as caught:
        source(name, tmp_path / "nowhere.npz").load()
    assert caught.value.exit_code == 4
    loaded(name, tmp_path)
    with pytest.raises(AgtError, match="nowhere"):
        source(name, tmp_path / EXAMPLES[name][1].file).load_queries(tmp_path / "nowhere.npz")


@of_files
def test_a_nan_is_refused_by_its_row(name: str, tmp_path: Path) -> None:
    key = EXAMPLES[name][1].numbers
    if key is None:
        return  # whole numbers

    def spoilt(columns: Columns) -> Columns:
        values = columns[key].copy()
        values[4] = np.nan
        return {**columns, key: values}

    with pytest.raises(DataError, match="row 5 "):
        loaded(name, tmp_path, spoilt)


@of_files
def test_a_public_class_need_not_occur(name: str, tmp_path: Path) -> None:
    """To refuse that would tell of the records, and a neighbour may well lack a class."""
    example = EXAMPLES[name][1]
    label = example.columns[example.answers]
    dataset = loaded(
        name,
        tmp_path,
        lambda columns: {**columns, example.answers: np.repeat(label[:1], N, axis=0)},
    )
    assert len(dataset.classes) == 2
    assert set(dataset.train.labels.tolist()) == {0}


@of_files
def test_no_rows_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        loaded(name, tmp_path, lambda columns: rows_of(columns, np.arange(0)))


# -- broken on purpose


@pytest.mark.parametrize("how", ["a split by position", "a scale from the data", "ids that count"])
def test_the_check_catches(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dataset made by hand most often does, in ``Table``'s own column of splits, range
    and ids.
    """
    name = "table with names, people and a split"
    group, example = EXAMPLES[name]

    def hand_made(columns: Columns) -> Columns:
        n = len(columns["age"])
        if how == "a split by position":
            return {
                **columns,
                "part": np.where(np.arange(n) % 4 == 3, "test", "train"),
                "who": columns["key"],
            }
        if how == "ids that count":
            return {
                **columns,
                "key": np.array([f"k{i}" for i in range(n)]),
                "who": np.array([f"p{i}" for i in range(n)]),
            }
        return columns

    scaled_by_data = how == "a scale from the data"
    if scaled_by_data:
        settings = {**example.settings, "numeric": {"age": None}}
        monkeypatch.setitem(
            EXAMPLES, name, (group, Example(settings, example.columns, "t.csv", asked=ASKED))
        )
        gone = int(example.columns["age"].argmax())
        # the greatest of the training records, or its neighbour
        gone -= example.columns["part"][gone] == "test"
    else:
        gone = 0
    assert loaded(name, tmp_path, hand_made).preprocessing.held is not scaled_by_data
    whole = everyone(loaded(name, tmp_path, hand_made))
    less = everyone(
        loaded(name, tmp_path, lambda columns: hand_made(rows_of(columns, np.arange(N) != gone)))
    )
    assert less != {key: whole[key] for key in less}
