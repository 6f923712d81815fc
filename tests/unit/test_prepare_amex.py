"""AMEX: statements in the competition's schema (synthetic) to arrays, values, units, split, resumption and bad input."""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from agt.data.dataset import DataError, uniform
from agt.data.embeddings import Embeddings
from agt.errors import ConfigError, DataMissing
from agt.settings import build
from agt_cli.usage import options
from experiments.amex import Amex
from experiments.folder import ArrayFolder

ROOT = Path(__file__).parents[2]
ROWS = 1_000


def generator() -> ModuleType:
    spec = spec_from_file_location("make_amex_like", ROOT / "scripts" / "make_amex_like.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train_data.csv and train_labels.csv; synthetic."""
    folder = tmp_path_factory.mktemp("raw")
    generator().make(folder, ROWS, "csv")
    return folder


@pytest.fixture(scope="module")
def frame(raw: Path) -> pd.DataFrame:
    """The csv as pandas reads it."""
    return pd.read_csv(raw / "train_data.csv", dtype={"D_63": str, "D_64": str})


@pytest.fixture
def own(raw: Path, tmp_path: Path) -> Callable[..., Amex]:
    """A preparation of changed copies of the raw files."""

    def make(
        data: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
        labels: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
        suffix: str = ".csv",
        **settings: Any,
    ) -> Amex:
        for name, change in (("train_data", data), ("train_labels", labels)):
            table = pd.read_csv(raw / f"{name}.csv", dtype={"D_63": str, "D_64": str})
            table = table if change is None else change(table)
            if suffix == ".csv":
                table.to_csv(tmp_path / f"{name}.csv", index=False)
            else:
                table.to_parquet(tmp_path / f"{name}.parquet", index=False, row_group_size=300)
        return amex(tmp_path, data=f"train_data{suffix}", labels=f"train_labels{suffix}", **settings)

    return make


def amex(folder: Path, **settings: Any) -> Amex:
    """The preparation as prepare=amex has it."""
    node = OmegaConf.to_container(OmegaConf.create(options("prepare")["amex"]), resolve=False)
    assert isinstance(node, dict)
    built = build({**node, "data_dir": str(folder), **settings}, "prepare")
    assert isinstance(built, Amex)
    return built


def run(preparation: Amex) -> Path:
    return preparation.run(lambda done, total: None, lambda text: None).folder


def arrays(folder: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


def by_id(folder: Path) -> dict[str, tuple[Any, ...]]:
    a = arrays(folder)
    return {
        a["id"][i].decode(): (a["x"][i].tobytes(), int(a["label"][i]), a["unit"][i], bool(a["is_test"][i]))
        for i in range(len(a["x"]))
    }


def test_values_labels_units_and_split(own: Callable[..., Amex], frame: pd.DataFrame, raw: Path) -> None:
    preparation = own()
    a = arrays(run(preparation))
    labels = pd.read_csv(raw / "train_labels.csv").set_index("customer_ID")["target"]
    expected = frame.drop(columns=["customer_ID", "S_2"]).copy()
    for name in expected:
        if name in preparation.vocabulary:
            words = [str(word) for word in preparation.vocabulary[name]]
            expected[name] = expected[name].map({word: i / (len(words) - 1) for i, word in enumerate(words)})
        elif name in preparation.coded:
            low, high = preparation.coded[name]
            expected[name] = (expected[name].clip(low, high) - low) / (high - low)
        else:
            expected[name] = expected[name].clip(-1, 2)
    test = uniform(frame["customer_ID"].to_numpy(), "amex") < 0.1
    order = np.concatenate([np.flatnonzero(~test), np.flatnonzero(test)])
    np.testing.assert_allclose(a["x"], expected.fillna(0.0).to_numpy()[order], atol=1e-6)
    assert a["x"].min() >= -1
    assert a["x"].max() == 2, "the heavy tails are clamped"
    assert a["is_test"].tolist() == test[order].tolist()
    assert a["label"].tolist() == labels[frame["customer_ID"]].to_numpy()[order].tolist()
    people = pd.factorize(frame["customer_ID"].to_numpy()[order])[0]
    assert np.array_equal(pd.factorize(a["unit"])[0], people)
    assert len(np.unique(a["id"])) == ROWS
    assert a["id"][0].decode().endswith("/" + frame["S_2"].iloc[order[0]])
    people_of = pd.read_parquet(preparation.data_dir / "amex" / "customers.parquet").set_index("unit")
    assert people_of.loc[a["unit"][0].decode(), "customer_ID"] == frame["customer_ID"].iloc[order[0]]


def test_csv_and_parquet_agree_whatever_the_chunks(own: Callable[..., Amex]) -> None:
    one = by_id(run(own(out="csv", chunk_mb=64)))
    assert by_id(run(own(out="small", chunk_mb=1))) == one
    assert by_id(run(own(out="parquet", suffix=".parquet"))) == one


def test_a_customer_s_leaving_changes_nobody_else(own: Callable[..., Amex], frame: pd.DataFrame) -> None:
    gone = frame["customer_ID"].iloc[400]
    whole = by_id(run(own(out="whole")))

    def without(table: pd.DataFrame) -> pd.DataFrame:
        return table[table["customer_ID"] != gone]

    rest = by_id(run(own(out="rest", data=without, labels=without)))
    assert len(rest) == ROWS - (frame["customer_ID"] == gone).sum()
    assert rest.items() <= whole.items()


def test_two_statements_of_one_day(own: Callable[..., Amex], frame: pd.DataFrame) -> None:
    def twice(table: pd.DataFrame) -> pd.DataFrame:
        table = table.copy()
        same = table.index[table["customer_ID"] == table["customer_ID"].iloc[0]][:3]
        table.loc[same, "S_2"] = "2017-03-01"
        return table

    outcome = (preparation := own(data=twice)).run(lambda done, total: None, lambda text: None)
    assert outcome.metrics["repeated_dates"] == 2
    names = [name.decode() for name in np.load(outcome.folder / "id.npy")]
    assert sum(name.endswith("#1") for name in names) == sum(name.endswith("#2") for name in names) == 1
    assert len(set(names)) == ROWS
    path = preparation.data_dir / "amex"
    assert Embeddings(path=path, is_test="is_test", id="id", unit="unit").load().selection.held
    rows = Embeddings(path=path, is_test="is_test", id="id").load().selection
    assert not rows.held
    assert "only customers may be units" in rows.why


@pytest.mark.parametrize("stop_after", [1, 2])
def test_a_killed_run_resumes(own: Callable[..., Amex], monkeypatch: pytest.MonkeyPatch, stop_after: int) -> None:
    whole = by_id(run(own(out="whole", chunk_mb=1)))
    preparation = own(chunk_mb=1)
    finish, values, reads = ArrayFolder.finish_chunk, Amex._values, []

    def killed(folder: ArrayFolder) -> None:
        finish(folder)
        if folder.done == stop_after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArrayFolder, "finish_chunk", killed)
        with pytest.raises(KeyboardInterrupt):
            run(preparation)
    assert not (preparation.data_dir / "amex").exists()
    with pytest.raises(ConfigError, match=r"prepare\.missing=0\.0, and now prepare\.missing=0\.5"):
        run(amex(preparation.data_dir, missing=0.5, chunk_mb=1))
    monkeypatch.setattr(Amex, "_values", lambda self, table: reads.append(len(table)) or values(self, table))
    folder = run(preparation)
    assert sum(reads) == ROWS if stop_after == 1 else sum(reads) < ROWS, "finished chunks are not read again"
    assert by_id(folder) == whole
    assert {p.name for p in folder.iterdir()} == {
        *(f"{name}.npy" for name in ("x", "label", "id", "unit", "is_test")),
        "prepared.json",
        "customers.parquet",
    }


def test_customers_that_do_not_match(own: Callable[..., Amex], frame: pd.DataFrame) -> None:
    people = frame["customer_ID"].unique()
    with pytest.raises(DataError, match=rf"2 of {len(people)} customers of .*train_data\.csv are not in .*{people[0]}"):
        run(own(labels=lambda t: t[~t["customer_ID"].isin(people[:2])]))
    with pytest.raises(DataError, match=rf"1 of {len(people)} customers of .*train_labels\.csv are not in .*{people[3]}"):
        run(own(data=lambda t: t[t["customer_ID"] != people[3]]))


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        (lambda t: t.drop(columns="B_7"), None, "187 features, expected 188: a wrong or partial file"),
        (lambda t: t.drop(columns="customer_ID"), None, "no column 'customer_ID'"),
        (lambda t: t.drop(columns="D_68"), None, "no column 'D_68'"),
        (lambda t: t.rename(columns={"B_7": "Z_7"}), None, r"prepare\.clamp has no range for the column 'Z_7'"),
        (lambda t: t.astype({"B_7": object}).assign(B_7="high"), None, r"invalid value 'high'"),
        (lambda t: t.assign(S_2="spring"), None, r"invalid value 'spring'"),
        (lambda t: t.assign(S_2=t["S_2"].where(t.index != 7)), None, "column 'S_2' has no value in row 8 of the data"),
        (
            lambda t: t.assign(customer_ID=t["customer_ID"].iloc[0]),
            None,
            r"has 1000 statements and prepare\.unit_rows is 13",
        ),
        (lambda t: t.iloc[:0], None, "holds no rows"),
        (None, lambda t: t.assign(target=2), "has the label '2'"),
        (None, lambda t: pd.concat([t, t.iloc[:1]]), r"prepare\.labels: column 'customer_ID' has '\w+' 2 times"),
        (None, lambda t: t.drop(columns="target"), "no column or key 'target'"),
    ],
)
def test_bad_input(own: Callable[..., Amex], data: Any, labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        run(own(data=data, labels=labels))
    assert caught.value.exit_code == 2


def test_damaged_files(own: Callable[..., Amex], tmp_path: Path) -> None:
    preparation = own()
    path = tmp_path / "train_data.csv"
    path.write_bytes(path.read_bytes()[:-700])
    with pytest.raises(DataError, match=r"train_data\.csv: in the bytes \d+ to \d+: .*[Ee]xpected 190 columns"):
        run(preparation)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="the first line is no header"):
        run(preparation)
    (tmp_path / "train_data.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="truncated or not a parquet file"):
        run(amex(tmp_path, data="train_data.parquet"))
    with pytest.raises(
        DataMissing, match=r"none\.csv is not there: accept the rules at https.*kaggle competitions download"
    ):
        run(amex(tmp_path, data="none.csv"))
