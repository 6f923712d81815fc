"""The official files of the papers' data, as they are downloaded: which are in a folder, whether
they are the official ones, and how they become what ``agt reproduce`` reads.

scripts/paper.py uses it. A digest or a size stands here only where it is published: those of MNIST
and of the reviews are in the download code of several libraries, that of OCT-MNIST in the package
medmnist. AMEX, the hub's files and vectors that somebody made have none here, so of them only the
format is checked.
"""

import csv
import gzip
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from agt_cli._experiments.folder import open_folder

from agt.data.ids import default_ids
from agt.data.medmnist_files import all_info
from agt.data.prepared import read_prepared
from agt.errors import DataError
from agt_cli import cli

State = Literal["official", "not checked", "other", "damaged", "missing"]
IMAGE_SIDE = 28
AMEX_STATEMENTS = 5_531_451  # as the papers count them
IDX_IMAGES = 0x803
IDX_LABELS = 0x801


@dataclass(frozen=True)
class OfficialFile:
    """One file, or one folder, under the name that it has when it is downloaded.

    Attributes:
        name: its name.
        obtain: how it is obtained.
        read: raises an exception if the file is not whole or not in this format.
        bytes: its published size; None: not known for certain.
        md5: its published MD5; None: not known for certain.
    """

    name: str
    obtain: str
    read: Callable[[Path], object]
    bytes: int | None = None
    md5: str | None = None


@dataclass(frozen=True)
class FoundFile:
    """What a folder has of one official file.

    Attributes:
        state: ``official`` (its digest is the published one), ``not checked`` (in this format, and
            no digest is published), ``other`` (in this format, another digest), ``damaged`` (not
            whole, or not in this format) or ``missing``.
        detail: size, digest or error, for a reader.
    """

    file: OfficialFile
    path: Path
    state: State
    detail: str

    def usable(self, trial: bool) -> bool:
        """Return whether an experiment may run on it; a trial takes files that are not official."""
        return self.state in ("official", "not checked") or (trial and self.state == "other")

    @property
    def identity(self) -> list[object]:
        """Return what changes when the file does: name, size and time of the last change."""
        if self.path.is_dir():
            return [[path.name, *_stamp(path)] for path in sorted(self.path.rglob("*"))]
        return [self.file.name, *_stamp(self.path)]


@dataclass(frozen=True)
class DataSet:
    """One of the papers' data sets.

    Attributes:
        choices: sets of files; any one of them is enough, and the first that is whole is taken.
        prepare: makes of the files, in a working folder, what ``agt reproduce`` reads with
            ``data_dir`` set to that folder; returns the overrides that it needs besides.
        outputs: what ``prepare`` writes in the working folder.
    """

    name: str
    choices: tuple[tuple[OfficialFile, ...], ...]
    prepare: Callable[[Mapping[str, Path], Path, bool], tuple[str, ...]]
    outputs: tuple[str, ...]

    @property
    def files(self) -> tuple[OfficialFile, ...]:
        """Every file of every choice, each once."""
        return tuple(dict.fromkeys(file for choice in self.choices for file in choice))

    def choose(self, found: Mapping[str, FoundFile], trial: bool) -> tuple[FoundFile, ...] | None:
        """Return the files of the first choice that is usable; None: none is."""
        for choice in self.choices:
            files = tuple(found[file.name] for file in choice)
            if all(file.usable(trial) for file in files):
                return files
        return None


def look(file: OfficialFile, folder: Path) -> FoundFile:
    """Return what a folder has of one official file."""
    path = folder / file.name
    if not path.exists():
        return FoundFile(file, path, "missing", file.obtain)
    size = "" if path.is_dir() else f"{path.stat().st_size:,} bytes"
    try:
        file.read(path)
    except Exception as error:  # each format has exceptions of its own
        expected = f" of {file.bytes:,}" if file.bytes else ""
        return FoundFile(file, path, "damaged", f"{size}{expected}; {error}")
    if file.md5 is None:
        return FoundFile(file, path, "not checked", size)
    with path.open("rb") as opened:
        digest = file_digest(opened, "md5").hexdigest()
    if digest == file.md5:
        return FoundFile(file, path, "official", f"{size}, MD5 {digest}")
    return FoundFile(file, path, "other", f"{size}, MD5 {digest} instead of {file.md5}")


def prepare(
    data: DataSet, files: tuple[FoundFile, ...], work: Path, trial: bool
) -> tuple[str, ...]:
    """Make what ``agt reproduce`` reads of a data set's files, or find it made.

    What was made of other files, or of these before they changed, is deleted and made again.

    Returns:
        Overrides of every run on this data, beside ``data_dir``.

    Raises:
        DataError: the files are not what their names say.
    """
    identity = json.dumps([file.identity for file in files])
    noted = work / f"{data.name}.files.json"
    if not noted.exists() or noted.read_text() != identity:
        for name in data.outputs:
            for path in (work / name, work / f"{name}.part"):
                _delete(path)
        work.mkdir(parents=True, exist_ok=True)
        noted.write_text(identity)
    return data.prepare({file.file.name: file.path.resolve() for file in files}, work, trial)


def _stamp(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _run_agt(*words: str) -> None:
    """Run one command of agt. Raises DataError if it fails; it has said why."""
    if code := cli.main([*words]):
        raise DataError(f"agt {' '.join(words)} ended with exit code {code}")


# MNIST: four files in the format idx, gzipped


def read_idx(path: Path) -> np.ndarray:
    """Return the images [n, 28, 28] or the labels [n], uint8, of a gzipped idx file.

    Raises:
        DataError: the file is not in this format, or has more or fewer values than it states.
        EOFError, OSError: it is truncated, or not gzipped.
    """
    with gzip.open(path) as file:
        content = file.read()
    header = np.frombuffer(content[:16], dtype=">u4")
    magic = int(header[0]) if len(header) else 0
    if magic not in (IDX_IMAGES, IDX_LABELS):
        raise DataError(f"{path.name}: no idx file of images or labels (magic number {magic})")
    dimensions = magic & 0xFF
    shape = [int(length) for length in header[1 : 1 + dimensions]]
    values = np.frombuffer(content, dtype=np.uint8, offset=4 * (1 + dimensions))
    if len(values) != np.prod(shape):
        raise DataError(f"{path.name}: {len(values)} values, but its header states {shape}")
    if magic == IDX_IMAGES and shape[1:] != [IMAGE_SIDE, IMAGE_SIDE]:
        raise DataError(f"{path.name}: images of {shape[1:]} pixels, expected 28 x 28")
    return values.reshape(shape)


def _prepare_mnist(files: Mapping[str, Path], work: Path, trial: bool) -> tuple[str, ...]:
    out = work / "mnist_70k.npz"
    if not out.exists():
        parts = ("train", "t10k")
        images = [read_idx(files[f"{part}-images-idx3-ubyte.gz"]) for part in parts]
        labels = [read_idx(files[f"{part}-labels-idx1-ubyte.gz"]) for part in parts]
        for part, pictures, digits in zip(parts, images, labels, strict=True):
            if pictures.ndim != 3 or digits.ndim != 1 or len(pictures) != len(digits):
                raise DataError(f"MNIST, {part}: {pictures.shape} images and {digits.shape} labels")
        everything = {
            "x": np.concatenate(images).reshape(-1, IMAGE_SIDE**2),
            "label": np.concatenate(labels),
            "is_test": np.repeat([0, 1], [len(digits) for digits in labels]).astype(np.uint8),
        }
        kept = np.isin(everything["label"], (3, 8))
        pair = {f"{name}_3_8": values[kept] for name, values in everything.items()}
        unfinished = out.with_name(f"{out.name}.part")
        with unfinished.open("wb") as file:
            np.savez_compressed(file, **everything, **pair)
        unfinished.rename(out)
    return ()


MNIST_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = DataSet(
    "mnist",
    (
        tuple(
            OfficialFile(name, f"download {MNIST_MIRROR}{name}", read_idx, size, md5)
            for name, size, md5 in (
                ("train-images-idx3-ubyte.gz", 9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                ("train-labels-idx1-ubyte.gz", 28881, "d53e105ee54ea40749a09fcbcd1e9432"),
                ("t10k-images-idx3-ubyte.gz", 1648877, "9fb629c4189551a2d022fa330f9573f3"),
                ("t10k-labels-idx1-ubyte.gz", 4542, "ec29112dd5afa0611ce80d1b7f02629c"),
            )
        ),
    ),
    _prepare_mnist,
    ("mnist_70k.npz",),
)


# OCT-MNIST: one npz


def _lengths(path: Path, *names: str) -> dict[str, int]:
    """Return how many rows these arrays of an npz have.

    Raises:
        DataError: an array is missing, or a part of the file does not have its checksum.
        OSError, ValueError, zipfile.BadZipFile: it is truncated, or no npz.
    """
    with zipfile.ZipFile(path) as members:  # first, as NumPy leaves a damaged file open
        broken = members.testzip()
    if broken:
        raise DataError(f"{path.name}: {broken} does not have its checksum")
    with np.load(path, allow_pickle=False) as arrays:
        missing = set(names) - set(arrays.files)
        if missing:
            raise DataError(f"{path.name}: no array {', '.join(sorted(missing))}")
        return {name: len(arrays[name]) for name in names}


def _read_medmnist(path: Path) -> None:
    _lengths(path, "train_images", "train_labels", "test_images", "test_labels")


def _prepare_octmnist(files: Mapping[str, Path], work: Path, trial: bool) -> tuple[str, ...]:
    # The loader checks the MD5 of the file in data_dir; a trial's file is named and not checked.
    source = files["octmnist.npz"]
    if trial:
        return (f"dataset.path={source}",)
    link = work / "octmnist.npz"
    link.unlink(missing_ok=True)
    link.symlink_to(source)
    return ("dataset.download=false",)


def _octmnist() -> DataSet:
    known = (all_info() or {}).get("octmnist", {})
    url = known.get("url", "https://medmnist.com")
    file = OfficialFile("octmnist.npz", f"download {url}", _read_medmnist, None, known.get("MD5"))
    return DataSet("octmnist", ((file,),), _prepare_octmnist, ("octmnist.npz",))


# AMEX: two csv files


def _read_header(*columns: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        with path.open(newline="", encoding="utf-8") as file:
            names = next(csv.reader(file), [])
        missing = [name for name in columns if name not in names]
        if missing:
            raise DataError(f"{path.name}: no column {', '.join(missing)}")

    return read


def _prepare_amex(files: Mapping[str, Path], work: Path, trial: bool) -> tuple[str, ...]:
    out = work / "amex"
    if not out.exists():
        _run_agt(
            *("data", "prepare", "amex", f"output_dir={work / 'records'}"),
            f"prepare.data={files['train_data.csv']}",
            f"prepare.labels={files['train_labels.csv']}",
            f"prepare.out={out}",
        )
    statements = read_prepared(out)["counts"]["records"]
    if statements != AMEX_STATEMENTS and not trial:
        raise DataError(f"{statements:,} statements, but the whole has {AMEX_STATEMENTS:,}")
    return ()


KAGGLE = "kaggle competitions download -c amex-default-prediction -f"
AMEX = DataSet(
    "amex",
    (
        (
            OfficialFile(
                "train_data.csv",
                f"{KAGGLE} train_data.csv, then unzip",
                _read_header("customer_ID", "S_2", "P_2"),
            ),
            OfficialFile(
                "train_labels.csv",
                f"{KAGGLE} train_labels.csv, then unzip",
                _read_header("customer_ID", "target"),
            ),
        ),
    ),
    _prepare_amex,
    ("amex",),
)


# IMDB: reviews in one of three forms with the folder of GPT-2, or vectors that somebody made


def read_review_archive(path: Path) -> pa.Table:
    """Return the 50,000 labelled reviews of Maas et al.'s archive: split, label, id and text.

    Raises:
        DataError: there are no labelled reviews in it.
        EOFError, OSError: it is truncated, or no archive.
    """
    rows = []
    with tarfile.open(path) as archive:
        for member in archive:
            parts = member.name.split("/")
            if len(parts) != 4 or parts[1] not in ("train", "test") or parts[2] not in LABELS:
                continue
            file = archive.extractfile(member)
            text = file.read().decode() if file else ""
            rows.append((parts[1], LABELS[parts[2]], Path(parts[3]).stem, text))
    if not rows:
        raise DataError(f"{path.name}: no file aclImdb/train/pos/ID.txt in it")
    columns = zip(*sorted(rows), strict=True)
    return pa.table(dict(zip(("split", "label", "id", "text"), columns, strict=True)))


LABELS = {"neg": 0, "pos": 1}


def _read_review_table(path: Path) -> None:
    names = pa.parquet.ParquetFile(path).schema_arrow.names
    missing = {"text", "label"} - set(names)
    if missing:
        raise DataError(f"{path.name}: no column {', '.join(sorted(missing))}")


def _read_model(path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer_config.json"):
        if not (path / name).exists():
            raise DataError(f"{path.name}: the file {name} is not in it")


def _read_vectors(path: Path) -> None:
    lengths = _lengths(path, "x", "label", "is_test")
    if len(set(lengths.values())) != 1:
        raise DataError(f"{path.name}: arrays of different lengths {lengths}")


def _prepare_imdb(files: Mapping[str, Path], work: Path, trial: bool) -> tuple[str, ...]:
    out = work / "imdb_gpt2"
    if out.exists():
        return ()
    if VECTORS.name in files:
        _write_vectors(files[VECTORS.name], out)
        return ()
    reviews = work / "imdb_reviews.parquet"
    named = "prepare.id=null"
    if ARCHIVE.name in files:
        pa.parquet.write_table(read_review_archive(files[ARCHIVE.name]), reviews)
        named = "prepare.id=[split,label,id]"
    else:
        columns = ["text", "label"]
        tables = [
            pa.parquet.read_table(path, columns=columns)
            for name, path in files.items()
            if name.endswith(".parquet")
        ]
        pa.parquet.write_table(pa.concat_tables(tables, promote_options="permissive"), reviews)
    _run_agt(
        *("data", "prepare", "imdb", f"output_dir={work / 'records'}", named),
        f"prepare.reviews={reviews}",
        f"prepare.model={files[MODEL.name]}",
        f"prepare.out={out}",
    )
    return ()


def _write_vectors(path: Path, out: Path) -> None:
    """Write vectors that somebody made as a prepared folder, which says that they are unchecked."""
    with np.load(path, allow_pickle=False) as arrays:
        x = arrays["x"].astype(np.float32)
        label = arrays["label"].astype(np.uint8)
        is_test = arrays["is_test"].astype(bool)
        ids = arrays["id"].astype(str) if "id" in arrays.files else default_ids(x, label)
    if not is_test.any() or is_test.all():
        raise DataError(f"{path.name}: is_test leaves the training or the test part empty")
    content = {
        "x": x,
        "label": label,
        "is_test": is_test,
        "id": ids,
        "center": x[is_test].mean(axis=0, dtype=np.float64),
    }
    settings = {"model": {"weights": "not checked"}, "bytes": path.stat().st_size}
    why = f"{path.name} does not say whether each vector was made from its own review alone"
    alone = {"held": False, "why": why}
    with open_folder(out, settings) as folder:
        folder.allocate({name: (rows.shape, rows.dtype.str) for name, rows in content.items()})
        for name, rows in content.items():
            folder.write(name, 0, rows)
        made_by = f"a model that {path.name} does not name"
        folder.finish({"embedded_by": made_by, "alone": {"rows": alone, "units": alone}})


def _read_archive(path: Path) -> None:
    with tarfile.open(path) as archive:
        members = archive.getmembers()  # reads to the end, so that a truncated one is noticed
    if not any(member.name.startswith("aclImdb/train/pos/") for member in members):
        raise DataError(f"{path.name}: no folder aclImdb/train/pos in it")


HUB = "hf download --repo-type dataset stanfordnlp/imdb"
ARCHIVE = OfficialFile(
    "aclImdb_v1.tar.gz",
    "download https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    _read_archive,
    84125825,
    "7c2ac02c03563afcf9b574c7e56c153a",
)
HUB_TABLES = tuple(
    OfficialFile(f"{split}-00000-of-00001.parquet", f"{HUB}, from plain_text/", _read_review_table)
    for split in ("train", "test")
)
MODEL = OfficialFile("gpt2", "hf download openai-community/gpt2 --local-dir gpt2", _read_model)
VECTORS = OfficialFile(
    "imdb_gpt2.npz",
    "vectors of your own: x [n, width], label, is_test, and id if you have it",
    _read_vectors,
)
IMDB = DataSet(
    "imdb",
    ((VECTORS,), (ARCHIVE, MODEL), (*HUB_TABLES, MODEL)),
    _prepare_imdb,
    ("imdb_gpt2", "imdb_reviews.parquet"),
)


def data_sets() -> dict[str, DataSet]:
    """The papers' data sets that have official files, by name."""
    return {data.name: data for data in (MNIST, _octmnist(), AMEX, IMDB)}
