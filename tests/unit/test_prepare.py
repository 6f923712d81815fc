"""Data prepared as folders of arrays: reviews, statements, and the folders themselves, resumed
and refused.
"""

import json
import resource
import shutil
from collections import namedtuple
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from agt_cli._experiments.amex import Amex
from agt_cli._experiments.embedder import Embedder
from agt_cli._experiments.folder import ArrayFolder, open_folder
from agt_cli._experiments.imdb import Imdb
from omegaconf import OmegaConf
from synthetic import refused

from agt.data.embeddings import Embeddings
from agt.data.ids import uniform
from agt.data.prepared import read_prepared
from agt.errors import ConfigError, DataError, DataMissing
from agt.settings import build, validate
from agt.store.sealed import seal, unseal
from agt.targets import trusting
from agt_cli.config_files import options_of_group

# -- prepare folder
# --------------------------------------------------------------------------------------------------


X = np.arange(40, dtype=np.float32).reshape(10, 4)
OBTAIN = "agt data prepare imdb"
SETTINGS = {"prepare": {"pooling": "mean", "range": [0, 1]}, "files": {"bytes": 9}}
COLUMNS = {
    "x": ((10, 4), "<f4"),
    "label": ((10,), "|u1"),
    "id": ((10,), "<U2"),
    "is_test": ((10,), "|b1"),
}
ALONE = {
    "rows": {"held": True, "why": "each on its own"},
    "units": {"held": False, "why": "units were mixed"},
}


def write(out: Path, until: int = 5, settings: Any = SETTINGS, columns: Any = COLUMNS) -> list[int]:
    """Write two rows a chunk, up to ``until`` chunks in all; returns the chunks written here."""
    with open_folder(out, settings) as folder:
        if folder.finished:
            return []
        folder.allocate(columns)
        folder.write("label", 0, np.arange(10) % 2)
        folder.write("id", 0, np.array([f"r{i}" for i in range(10)]))
        folder.write("is_test", 0, np.arange(10) > 6)
        chunks = list(range(folder.done, until))
        for chunk in chunks:
            folder.write("x", 2 * chunk, X[2 * chunk : 2 * chunk + 2])
            folder.finish_chunk()
        if until == 5:
            folder.finish({"alone": ALONE})
        return chunks


OLD = json.dumps(
    {"settings": SETTINGS, "arrays": {"x": {"shape": [10, 4], "dtype": "<f4"}}, "alone": ALONE},
    indent=2,
)


def flip(path: Path, place: int) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit prepared.json by hand, as json that is in order."""
    prepared = json.loads((folder / "prepared.json").read_text())
    change(prepared)
    (folder / "prepared.json").write_text(json.dumps(prepared, indent=2) + "\n")


def reseal(folder: Path, **changes: Any) -> None:
    """Another prepared.json whose checksum is right; None drops a key."""
    content = {**unseal((folder / "prepared.json").read_bytes()), **changes}
    (folder / "prepared.json").write_bytes(
        seal({key: value for key, value in content.items() if value is not None})
    )


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    assert write(tmp_path / "deep" / "d") == [0, 1, 2, 3, 4]
    assert np.array_equal(np.load(tmp_path / "deep" / "d" / "x.npy"), X)
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"d"}
    names = {path.name for path in (tmp_path / "deep" / "d").iterdir()}
    assert names == {"x.npy", "label.npy", "id.npy", "is_test.npy", "prepared.json"}
    assert read_prepared(tmp_path / "deep" / "d")["settings"] == SETTINGS


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    assert write(tmp_path / "d", until=3) == [0, 1, 2]
    assert not (tmp_path / "d").exists(), "what is not whole has not got its name"
    assert write(tmp_path / "d") == [3, 4]
    assert np.array_equal(np.load(tmp_path / "d" / "x.npy"), X)
    assert write(tmp_path / "d") == [], "a finished folder is left alone"


@pytest.mark.parametrize("until", [2, 5])
def test_changed_settings_are_refused_and_named(tmp_path: Path, until: int) -> None:
    write(tmp_path / "d", until)
    refused(
        (
            ConfigError,
            r"prepare\.pooling=mean, but now prepare\.pooling=last",
            lambda: write(
                tmp_path / "d",
                settings={**SETTINGS, "prepare": {"pooling": "last", "range": [0, 1]}},
            ),
        ),
        (
            ConfigError,
            r"prepare\.range=\[0, 1\], but now prepare\.range=\[0, 2\]",
            lambda: write(
                tmp_path / "d",
                settings={**SETTINGS, "prepare": {"pooling": "mean", "range": [0, 2]}},
            ),
        ),
    )
    assert write(tmp_path / "d") == ([2, 3, 4] if until == 2 else []), (
        "and with the old ones it goes on"
    )


def test_a_small_disk_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**40, 2**40, 50 * 2**20))
    large = {**COLUMNS, "x": ((10_000_000, 4), "<f4")}
    with pytest.raises(
        DataError,
        match=r"\b152\.\d.*\b50\.0.*prepare\.out",
    ):
        write(tmp_path / "d", columns=large)
    assert not list(tmp_path.glob("d.part/*.npy"))
    assert write(tmp_path / "d") == [0, 1, 2, 3, 4], "a small one still fits"


@pytest.mark.parametrize("limit", [100, 200], ids=["making the file", "filling it"])
def test_a_disk_that_fills_up_on_the_way_names_the_file_and_loses_nothing(
    tmp_path: Path, limit: int
) -> None:
    """A limit on the size of files stands in for the full disk: both fail in the same calls."""
    assert write(tmp_path / "d", until=0 if limit == 100 else 2) == list(
        range(0 if limit == 100 else 2)
    )
    if limit == 100:
        shutil.rmtree(tmp_path / "d.part")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match=r"too large") as caught:
            write(tmp_path / "d")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(tmp_path / "d") in str(caught.value.filename)
    write(tmp_path / "d")
    assert np.array_equal(np.load(tmp_path / "d" / "x.npy"), X)


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path / "d", SETTINGS),
        pytest.raises(ConfigError, match=r"d\.part"),
    ):
        write(tmp_path / "d")


def test_foreign_and_damaged_files_are_named(tmp_path: Path) -> None:
    write(tmp_path / "d", until=2)
    np.save(tmp_path / "d.part" / "x.npy", X[:5])
    with pytest.raises(DataError, match=r"x\.npy: .*\(5,.*\(10,"):
        write(tmp_path / "d")
    (tmp_path / "d.part" / "progress.json").write_text('{"done": 2')
    with pytest.raises(DataError, match=r"progress\.json"):
        write(tmp_path / "d")
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match=r"other: .*prepared\.json"):
        write(tmp_path / "other")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "x.npy").unlink(), r"x\.npy: "),
        (
            lambda d: (d / "x.npy").write_bytes((d / "x.npy").read_bytes()[:-8]),
            r"x\.npy: .*mmap",
        ),
        (
            lambda d: np.save(d / "label.npy", np.zeros(9, dtype=np.uint8)),
            r"label\.npy: .*\(9,\)",
        ),
        (
            lambda d: (d / "prepared.json").write_text("{"),
            r"prepared\.json: .*line 1",
        ),
        (
            lambda d: flip(d / "x.npy", -3),
            r"x\.npy: .*SHA-256",
        ),
        (lambda d: flip(d / "label.npy", 20), r"label\.npy: "),
        (
            lambda d: np.save(d / "label.npy", np.zeros(10, dtype=np.uint8)),
            r"label\.npy: .*SHA-256",
        ),
        (
            lambda d: np.save(d / "public.npy", np.ones(10, dtype=bool)),
            r"public\.npy: .*prepared\.json",
        ),
        (
            lambda d: edit(d, lambda p: p["alone"]["units"].update(held=True)),
            r"prepared\.json: .*checksum",
        ),
        (lambda d: edit(d, lambda p: p.pop("format")), r"prepared\.json: .*checksum"),
        (
            lambda d: edit(d, lambda p: p.pop("sha256")),
            r"prepared\.json: .*checksum",
        ),
        (
            lambda d: (d / "prepared.json").write_text(OLD),
            r"prepared\.json: ",
        ),
        (
            lambda d: reseal(d, format=3),
            r"prepared\.json: .*format 3\b",
        ),
        (lambda d: (d / "prepared.json").write_text("[]"), r"prepared\.json: "),
    ],
)
def test_a_damaged_folder_is_not_trained_on(tmp_path: Path, damage: Any, message: str) -> None:
    write(tmp_path / "d")
    damage(tmp_path / "d")
    with pytest.raises(DataError, match=message):
        Embeddings(path=tmp_path / "d", is_test="is_test", id="id", id_permanent=True).load()


def test_unfinished_and_absent_folders_say_what_to_run(tmp_path: Path) -> None:
    source = Embeddings(path=tmp_path / "d", is_test="is_test", obtain=OBTAIN)
    with pytest.raises(DataMissing, match=OBTAIN) as caught:
        source.load()
    assert caught.value.exit_code == 4
    write(tmp_path / "d", until=2)
    for path in (tmp_path / "d", tmp_path / "d.part"):
        with pytest.raises(
            DataMissing,
            match=rf"d\.part.*{OBTAIN}",
        ):
            Embeddings(path=path, is_test="is_test", obtain=OBTAIN).load()


def test_conditions_come_with_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "d")
    rows = Embeddings(path=tmp_path / "d", is_test="is_test", id="id", id_permanent=True).load()
    assert rows.selection.held
    assert "split_by_column" in {fact.code for fact in rows.selection.facts}
    assert rows.train.ids.tolist() == [f"r{i}" for i in range(7)]
    assert isinstance(rows.train.features.base, np.memmap)
    units = Embeddings(
        path=tmp_path / "d", is_test="is_test", id="id", unit="id", id_permanent=True
    ).load()
    assert not units.selection.held
    assert [fact.code for fact in units.selection.facts if not fact.held] == ["prepared_together"]
    reseal(tmp_path / "d", alone=None)
    assert not Embeddings(path=tmp_path / "d", is_test="is_test").load().selection.held, (
        "silence is no promise"
    )


# -- prepare amex
# --------------------------------------------------------------------------------------------------


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
def tables(raw: Path) -> dict[str, pd.DataFrame]:
    """Both files as pandas reads them."""
    words = {"D_63": str, "D_64": str}
    return {path.stem: pd.read_csv(path, dtype=words) for path in raw.glob("*.csv")}


@pytest.fixture(scope="module")
def frame(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return tables["train_data"]


@pytest.fixture
def own(raw: Path, tables: dict[str, pd.DataFrame], tmp_path: Path) -> Callable[..., Amex]:
    """A preparation of changed copies of the raw files."""

    def make(
        data: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
        labels: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
        suffix: str = ".csv",
        **settings: Any,
    ) -> Amex:
        for name, change in (("train_data", data), ("train_labels", labels)):
            table = tables[name] if change is None else change(tables[name].copy())
            if suffix != ".csv":
                table.to_parquet(tmp_path / f"{name}.parquet", index=False, row_group_size=300)
            elif change is None:
                shutil.copy(raw / f"{name}.csv", tmp_path)
            else:
                table.to_csv(tmp_path / f"{name}.csv", index=False)
        return amex(
            tmp_path, data=f"train_data{suffix}", labels=f"train_labels{suffix}", **settings
        )

    return make


def amex(folder: Path, **settings: Any) -> Amex:
    """The preparation as prepare=amex has it."""
    node = OmegaConf.to_container(
        OmegaConf.create(options_of_group("prepare")["amex"]), resolve=False
    )
    assert isinstance(node, dict)
    with trusting([node["_target_"]]):
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
        a["id"][i].decode(): (
            a["x"][i].tobytes(),
            int(a["label"][i]),
            a["unit"][i],
            bool(a["is_test"][i]),
        )
        for i in range(len(a["x"]))
    }


def test_values_labels_units_and_split(
    own: Callable[..., Amex], frame: pd.DataFrame, raw: Path
) -> None:
    preparation = own()
    a = arrays(run(preparation))
    labels = pd.read_csv(raw / "train_labels.csv").set_index("customer_ID")["target"]
    expected = frame.drop(columns=["customer_ID", "S_2"]).copy()
    for name in expected:
        if name in preparation.vocabulary:
            words = [str(word) for word in preparation.vocabulary[name]]
            expected[name] = expected[name].map(
                {word: i / (len(words) - 1) for i, word in enumerate(words)}
            )
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
    people_of = pd.read_parquet(preparation.data_dir / "amex" / "customers.parquet").set_index(
        "unit"
    )
    assert (
        people_of.loc[a["unit"][0].decode(), "customer_ID"] == frame["customer_ID"].iloc[order[0]]
    )


def test_csv_and_parquet_agree_whatever_the_chunks(own: Callable[..., Amex]) -> None:
    one = by_id(run(own(out="csv", chunk_mb=64)))
    assert by_id(run(own(out="small", chunk_mb=1))) == one
    assert by_id(run(own(out="parquet", suffix=".parquet"))) == one


def test_a_customer_s_leaving_changes_nobody_else(
    own: Callable[..., Amex], frame: pd.DataFrame
) -> None:
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
    assert (
        sum(name.endswith("#1") for name in names)
        == sum(name.endswith("#2") for name in names)
        == 1
    )
    assert len(set(names)) == ROWS
    path = preparation.data_dir / "amex"
    assert Embeddings(path=path, is_test="is_test", id="id", unit="unit").load().selection.held
    rows = Embeddings(path=path, is_test="is_test", id="id").load().selection
    assert not rows.held
    assert "prepared_together" in {fact.code for fact in rows.facts}


@pytest.mark.parametrize("stop_after", [1, 2])
def test_a_killed_run_resumes(
    own: Callable[..., Amex], monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    whole = by_id(run(own(out="whole", chunk_mb=1)))
    preparation = own(chunk_mb=1)
    finish = ArrayFolder.finish_chunk
    values = Amex._values
    reads = []

    def killed(folder: ArrayFolder) -> None:
        finish(folder)
        if folder.done == stop_after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArrayFolder, "finish_chunk", killed)
        with pytest.raises(KeyboardInterrupt):
            run(preparation)
    assert not (preparation.data_dir / "amex").exists()
    with pytest.raises(ConfigError, match=r"prepare\.missing=0\.0.*prepare\.missing=0\.5"):
        run(amex(preparation.data_dir, missing=0.5, chunk_mb=1))
    monkeypatch.setattr(
        Amex, "_values", lambda self, table: reads.append(len(table)) or values(self, table)
    )
    folder = run(preparation)
    assert sum(reads) == ROWS if stop_after == 1 else sum(reads) < ROWS, (
        "finished chunks are not read again"
    )
    assert by_id(folder) == whole
    assert {p.name for p in folder.iterdir()} == {
        *(f"{name}.npy" for name in ("x", "label", "id", "unit", "is_test")),
        "prepared.json",
        "customers.parquet",
    }


def test_customers_that_do_not_match(own: Callable[..., Amex], frame: pd.DataFrame) -> None:
    people = frame["customer_ID"].unique()
    refused(
        (
            DataError,
            rf"2 of {len(people)} customers of .*train_data\.csv are not in .*{people[0]}",
            lambda: run(own(labels=lambda t: t[~t["customer_ID"].isin(people[:2])])),
        ),
        (
            DataError,
            rf"1 of {len(people)} customers of .*train_labels\.csv are not in .*{people[3]}",
            lambda: run(own(data=lambda t: t[t["customer_ID"] != people[3]])),
        ),
    )


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        (
            lambda t: t.drop(columns="B_7"),
            None,
            r"187\b.*\b188\b.*prepare\.features=187",
        ),
        (lambda t: t.drop(columns="customer_ID"), None, "'customer_ID'"),
        (lambda t: t.drop(columns="D_68"), None, "'D_68'"),
        (
            lambda t: t.rename(columns={"B_7": "Z_7"}),
            None,
            r"prepare\.clamp.*'Z_7'",
        ),
        (lambda t: t.astype({"B_7": object}).assign(B_7="high"), None, "'high'"),
        (lambda t: t.assign(S_2="spring"), None, "'spring'"),
        (
            lambda t: t.assign(S_2=t["S_2"].where(t.index != 7)),
            None,
            r"'S_2'.*\b8\b",
        ),
        (
            lambda t: t.assign(customer_ID=t["customer_ID"].iloc[0]),
            None,
            r"\b1000\b.*prepare\.unit_rows.*\b13\b",
        ),
        (lambda t: t.iloc[:0], None, r"train_data\.csv: "),
        (None, lambda t: t.assign(target=2), r"row 1\b.*'2'"),
        (
            None,
            lambda t: pd.concat([t, t.iloc[:1]]),
            r"'customer_ID' \(prepare\.labels\).*'\w+'.*\b2\b",
        ),
        (None, lambda t: t.drop(columns="target"), r"'target'.*prepare\.labels"),
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
    with pytest.raises(DataError, match=r"train_data\.csv: .*190"):
        run(preparation)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"train_data\.csv"):
        run(preparation)
    (tmp_path / "train_data.parquet").write_bytes(b"PAR1")
    refused(
        (
            DataError,
            "this parquet file is damaged",
            lambda: run(amex(tmp_path, data="train_data.parquet")),
        ),
        (
            DataMissing,
            r"none\.csv does not exist.*https.*kaggle competitions download",
            lambda: run(amex(tmp_path, data="none.csv")),
        ),
    )


# -- prepare imdb
# --------------------------------------------------------------------------------------------------


WORDS = (
    "the",
    "film",
    "was",
    "good",
    "bad",
    "long",
    "short",
    "and",
    "I",
    "we",
    "liked",
    "hated",
    "every",
    "minute",
)


def reviews(n: int = 40) -> pd.DataFrame:
    """Random word salads, 1 to 60 words long, under the columns of the real file."""
    rng = np.random.default_rng(0)
    text = [" ".join(rng.choice(WORDS, size=size)) for size in rng.integers(1, 60, size=n)]
    rows = np.arange(n)
    return pd.DataFrame(
        {"split": "train", "id": rows // 2, "rating": 5, "label": rows % 2, "text": text}
    )


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a GPT-2 of two layers, width 16, 64 positions."""
    pytest.importorskip("transformers", reason="needs the text extra")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    # seconds, of which other files need none
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(reviews()["text"], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    config = GPT2Config(
        vocab_size=400,
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        GPT2Model(config).save_pretrained(folder)
    return folder


@pytest.fixture
def imdb(gpt2: Path, tmp_path: Path) -> Callable[..., Imdb]:
    """A preparation of these reviews, or changed ones."""

    def make(table: pd.DataFrame | None = None, **settings: Any) -> Imdb:
        (reviews() if table is None else table).to_parquet(tmp_path / "r.parquet", index=False)
        defaults = {
            "out": "d",
            "data_dir": tmp_path,
            "reviews": "r.parquet",
            "model": gpt2,
            "tokens": 32,
            "chunk": 8,
        }
        return validate(Imdb, {**defaults, "test_fraction": 0.3, **settings}, "prepare")

    return make


def embedded(preparation: Imdb) -> Path:
    return preparation.run(lambda done, total: None, lambda text: None).folder


def vectors(folder: Path) -> dict[str, bytes]:
    x = np.load(folder / "x.npy")
    ids = np.load(folder / "id.npy")
    return {str(name): row.tobytes() for name, row in zip(ids, x, strict=True)}


@pytest.mark.parametrize("pooling", ["mean", "last", "max"])
@pytest.mark.parametrize("batch", [1, 5])
def test_vectors_are_the_model_s(
    imdb: Callable[..., Imdb], gpt2: Path, pooling: str, batch: int
) -> None:
    from transformers import AutoModel, PreTrainedTokenizerFast

    x = np.load(embedded(imdb(pooling=pooling, batch=batch)) / "x.npy")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(gpt2)
    model = AutoModel.from_pretrained(gpt2).eval()
    for row, text in enumerate(reviews()["text"]):
        tokens = tokenizer(text)["input_ids"][:32]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([tokens])).last_hidden_state[0].numpy()
        expected = {"mean": states.mean(axis=0), "last": states[-1], "max": states.max(axis=0)}[
            pooling
        ]
        np.testing.assert_allclose(x[row], expected, atol=1e-5)


def test_names_labels_split_and_center(imdb: Callable[..., Imdb]) -> None:
    folder = embedded(imdb())
    table = reviews()
    names = [f"train/{label}/{id}" for label, id in zip(table["label"], table["id"], strict=True)]
    assert np.load(folder / "id.npy").tolist() == names
    assert np.load(folder / "label.npy").tolist() == table["label"].tolist()
    test = uniform(names, "imdb") < 0.3
    assert np.load(folder / "is_test.npy").tolist() == test.tolist()
    x = np.load(folder / "x.npy")
    np.testing.assert_allclose(
        np.load(folder / "center.npy"), x[test].astype(np.float64).mean(axis=0), rtol=1e-12
    )


def test_a_review_s_leaving_changes_nobody_else(imdb: Callable[..., Imdb]) -> None:
    whole = vectors(embedded(imdb(out="whole")))
    test = np.load(embedded(imdb(out="whole")) / "is_test.npy")
    gone = int(np.flatnonzero(~test)[3])
    rest = embedded(imdb(reviews().drop(index=gone), out="rest"))
    assert len(vectors(rest)) == 39
    assert vectors(rest).items() <= whole.items()
    assert np.array_equal(
        np.load(rest / "center.npy"), np.load(rest.parent / "whole" / "center.npy")
    ), "a training review"


def test_ids_from_content(imdb: Callable[..., Imdb]) -> None:
    table = pd.concat([reviews(), reviews().iloc[:1]])
    ids = np.load(embedded(imdb(table, id=None)) / "id.npy")
    assert len(set(ids.tolist())) == 41, "a copy gets a name of its own"
    with pytest.raises(DataError, match=r"prepare\.id: 2 .*'train/0/0'"):
        embedded(imdb(table, out="e"))


def test_training_reads_it_and_knows_about_batches(imdb: Callable[..., Imdb]) -> None:
    settings: dict[str, Any] = {
        "is_test": "is_test",
        "id": "id",
        "center": "center",
        "classes": ("0", "1"),
    }
    alone = Embeddings(path=embedded(imdb()), public_scaling=True, **settings).load()
    assert alone.selection.held
    assert alone.preprocessing.held
    assert "prepared_alone" in {fact.code for fact in alone.selection.facts}
    together = Embeddings(path=embedded(imdb(out="b", batch=4)), **settings).load()
    assert not together.selection.held
    assert "prepare.batch=1" in together.selection.why
    trial = Embeddings(path=embedded(imdb(out="t", limit=20)), **settings).load()
    assert not trial.selection.held
    assert len(trial.train) + len(trial.test) == 20


def test_a_killed_run_over_reviews_resumes(
    imdb: Callable[..., Imdb], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = vectors(embedded(imdb(out="whole")))
    embed = Embedder.embed
    done = []

    def counted(self: Embedder, texts: Any, batch: int) -> np.ndarray:
        if len(done) == 2 and limit:
            raise KeyboardInterrupt
        done.append(len(texts))
        return embed(self, texts, batch)

    monkeypatch.setattr(Embedder, "embed", counted)
    limit = True
    with pytest.raises(KeyboardInterrupt):
        embedded(imdb())
    parquet = reviews()
    changed = parquet.assign(text=parquet["text"].where(parquet.index != 30, "the film"))
    for settings, named in (
        ({"pooling": "max"}, r"prepare\.pooling=mean.*prepare\.pooling=max"),
        ({"table": changed}, r"reviews\.digest=\w+.*reviews\.digest="),
    ):
        with pytest.raises(ConfigError, match=named):
            embedded(imdb(**settings))
    limit = False
    assert vectors(embedded(imdb())) == whole
    assert done == [8] * 5, "no chunk twice"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.drop(columns="text"),
            r"'text'.*prepare\.reviews",
        ),
        (lambda t: t.drop(columns="id"), r"'id'.*prepare\.id"),
        (lambda t: t.assign(label=-1), r"row 1\b.*'-1'"),
        (
            lambda t: t.assign(text=t["text"].where(t.index != 4, " ")),
            r"row 5\b",
        ),
        (lambda t: t.iloc[:0], r"r\.parquet: "),
        (lambda t: t.iloc[:1], r"^1 .*prepare\.test_fraction"),
    ],
)
def test_bad_reviews(imdb: Callable[..., Imdb], change: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        embedded(imdb(change(reviews())))


def test_models_that_cannot_be_used(imdb: Callable[..., Imdb], gpt2: Path, tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"/none .*openai-community/gpt2"):
        embedded(imdb(model="none"))
    (tmp_path / "empty").mkdir()
    refused(
        (
            DataError,
            "empty does not have a complete model",
            lambda: embedded(imdb(model="empty")),
        ),
        (
            ConfigError,
            r"prepare\.tokens=65 exceeds 64",
            lambda: embedded(imdb(tokens=65)),
        ),
    )
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"prepare\.device=cuda"):
            embedded(imdb(device="cuda"))


def test_weights_that_are_missing_are_no_random_numbers(
    imdb: Callable[..., Imdb], gpt2: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    for path in gpt2.iterdir():
        (tmp_path / "part").mkdir(exist_ok=True)
        (tmp_path / "part" / path.name).write_bytes(path.read_bytes())
    weights = load_file(tmp_path / "part" / "model.safetensors")
    lost = next(name for name in weights if name.endswith("h.1.attn.c_attn.weight"))
    kept = {name: tensor for name, tensor in weights.items() if name != lost}
    save_file(kept, tmp_path / "part" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"part: .*h\.1\.attn\.c_attn\.weight"):
        embedded(imdb(model="part"))
