"""Released weights as a folder of their own: all that answers from them, and nothing that must stay
at home.

    release.json     classes, the dataset's public constants, the public features, the claim in
                     words, what was declared
    weights.npz      the released weights; matrices of the public features, where there are any
    README.md        the claim, and a few lines of plain NumPy that answer as agt does
    manifest.json    every file's hash; its own is the folder's digest

Formal guarantees
    Post-processing. The weights are drawn by a mechanism whose claim is proved
    (agt/mechanisms/weights.py); nobody makes a folder of a simulation. Everything else in it is a
    function of the configuration and of constants that the claim's conditions take to be public:
    classes and ranges (condition e; one that was found in the records voids it, and nothing is
    released), a size (condition c), matrices from public rows or a public seed. So no number of
    records, no digest of the private run, no accuracy, no time and no place on the owner's machine
    is in it: a digest of the run would let whoever guesses all of the data but one record test the
    last one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from io import BytesIO
from math import isfinite
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol
from unicodedata import normalize
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile
from zlib import error as ZlibError

import numpy as np

from agt import __version__
from agt.data.arrays import gathered, pieces
from agt.data.dataset import Dataset, DataSource
from agt.errors import ConfigError, Superseded
from agt.models.features import FeatureMap
from agt.numeric import labels_of, logits_of, signed_margins
from agt.settings import FeaturesConfig, build, validate
from agt.store import MANIFEST_FILE as MANIFEST, Folder, Manifest, as_json

if TYPE_CHECKING:  # whoever reads a folder and answers from it loads no torch
    from agt.models.linear import LinearModel
    from agt.models.store import FileWriter

FORMAT = 1
SHRUNK = 2  # an earlier version's form, whose answers come from the weights drawn towards 0
COMMAND = "agt.release"  # what such a folder's manifest says wrote it
RELEASE, WEIGHTS, README, CLAIM = "release.json", "weights.npz", "README.md", "claim.json"
# which alone have such a constant
_DRAWN_BY = {"tilt": "objective_perturbation", "gram": "noisy_statistics"}
_NOISE = {"sigma", "step", "tilt", "gram", "mu", "eps", "delta"}
# beside which answers' records show the noise
_ANSWER_METRICS = {"n_queries", "proved", "simulated"}
MAX_ARRAY_BYTES = 2**30  # of all arrays together, unpacked
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00..{'descr': '(<[fi][48])', 'fortran_order': (True|False), 'shape': \(([\d, "
    rb"]{0,99})\), } *\n",
    re.DOTALL,
)
# where a spreadsheet may end a cell, whatever it takes for a separator
_CELL = re.compile(r"[,;|\t\"']")
# what it runs; +1 and -1.5 are numbers
_FORMULA = re.compile(r"\s*([=@]|[+-](?!([0-9]+\.?[0-9]*|\.[0-9]+)\s*$))")
# settings of a dataset that queries do not need
AT_HOME = ("data_dir", "test", "obtain", "download", "public_digest")


class Released(Protocol):
    """Weights as a mechanism drew them (``agt.mechanisms.weights.ReleasedWeights``)."""

    @property
    def weight(self) -> np.ndarray: ...
    @property
    def described(self) -> dict[str, float]: ...
    @property
    def mechanism(self) -> str: ...
    @property
    def simulated(self) -> bool: ...


@dataclass(frozen=True, repr=False)
class Portable:
    """Released weights with what queries need.

    Attributes:
        name: what tables call the dataset.
        classes: the labels' names, in their order.
        source: the dataset's configuration, with the constants that make a query's features.
        features: the public feature map.
        dtype: of its results.
        weight: [1 or classes, outputs] float64.
        noise: the guarantee's parameters, sigma, the lattice's step, and the mechanism's other
            constants, by name (``ReleasedWeights.described``).
        words: all that may be said of the release, a line each, the claim first.
        mechanism: the name of what released them.
        brief: the same as ``words`` for a terminal; empty: not recorded, as in releases of earlier
            versions.
        slope: of the public link to probabilities (agt/mechanisms/link.py); None: not known, as in
            what was read back, or what a command released.
    """

    name: str
    classes: tuple[str, ...]
    source: Mapping[str, Any]
    features: FeatureMap
    dtype: str
    weight: np.ndarray
    noise: Mapping[str, float]
    words: tuple[str, ...]
    mechanism: str
    brief: tuple[str, ...] = ()
    slope: float | None = None

    @classmethod
    def of(
        cls,
        model: "LinearModel",
        released: Released,
        source: Mapping[str, Any],
        words: Sequence[str],
        brief: Sequence[str] = (),
    ) -> "Portable":
        """What may be published of a release from this model.

        Args:
            source: the settled configuration of the dataset that it was trained on.

        Raises:
            ValueError: the weights are a simulation's.
        """
        if released.simulated:
            raise ValueError("a simulation is not a release")
        kept = {key: value for key, value in source.items() if key not in AT_HOME}
        if "path" in kept:
            kept["path"] = PurePath(str(kept["path"])).name
        dataset = model.problem.dataset
        name, dtype = str(source.get("name") or dataset.name), model.settings.training.dtype
        classes, noise = dataset.classes, released.described
        return cls(
            name=name,
            classes=classes,
            source=kept,
            features=model.features,
            dtype=dtype,
            weight=released.weight,
            noise=noise,
            words=tuple(words),
            mechanism=released.mechanism,
            brief=tuple(brief),
        )

    def __repr__(self) -> str:
        classes = len(self.classes)
        return (
            f"agt.Portable: released weights of {classes} classes by {self.mechanism}\n  "
            f"{self.words[0]}"
        )

    @property
    def described(self) -> dict[str, Any]:
        """What release.json says, by field.

        Raises:
            ConfigError: the dataset's code is not there, or not trusted (``agt.targets``).
        """
        return {**self.settings, **self.formula}

    @property
    def settings(self) -> dict[str, Any]:
        """What release.json says and no code of the dataset makes: all but the formula."""
        config = self.features.config
        named = {} if self.mechanism == drawn_by(self.noise) else {"mechanism": self.mechanism}
        return {
            "format": FORMAT,
            "name": self.name,
            "words": self.words,
            "brief": self.brief,
            "noise": self.noise,
            "classes": self.classes,
            "source": self.source,
            "features": asdict(config),
            "width": self.features.width,
            "dtype": self.dtype,
            # with the bias and the formula, for the lines in README.md
            "radius": config.radius or 0.0,
            "bias": config.bias,
            **named,
        }

    def save(self, store: "FileWriter", claim: bytes) -> str:
        """Write the folder, with claim.json (agt/mechanisms/claims.py); returns its digest."""
        arrays = BytesIO()
        matrices: dict[str, Any] = self.features.matrices
        np.savez(arrays, weight=self.weight, **matrices)
        files = {
            RELEASE: as_json(self.described),
            WEIGHTS: arrays.getvalue(),
            README: self.readme().encode(),
            CLAIM: claim,
        }
        for name, content in files.items():
            store.write(name, content)
        manifest = Manifest(
            COMMAND, {name: sha256(content).hexdigest() for name, content in files.items()}
        )
        store.write(MANIFEST, manifest.content)
        return manifest.digest

    @classmethod
    def open(cls, folder: Path, digest: str | None = None) -> "Portable":
        """Read what ``save`` wrote.

        Args:
            folder: it, or the record of the call that released it.
            digest: the folder must be the one of this digest; None: any.

        Raises:
            ConfigError: no such folder, or a file that is not what was written; or a class is a
                spreadsheet's formula, and no digest vouches for it.
        """
        inside = folder / "release"
        shelf = Folder.open(
            inside if (inside / MANIFEST).is_file() else folder, COMMAND, digest, "release"
        )
        portable = cls.read(shelf)
        if digest is None:
            _check_no_formulas(portable, folder)
        return portable

    @classmethod
    def read(cls, shelf: Folder) -> "Portable":
        """Read a folder that anybody may have written; nothing that it names is imported.

        Raises:
            ConfigError: a file is not what the manifest lists, or holds what ``save`` never writes.
        """
        try:
            node = shelf.json(RELEASE)
            version = shelf.json(CLAIM).get("agt") if node["format"] == SHRUNK else None
            if version not in (None, __version__):  # anybody may have written it
                raise Superseded(
                    f"release={shelf.folder}: made with mechanism.shrink=true by agt "
                    f"{version!r}, which this version does not support: use that version"
                )
            if node["format"] != FORMAT:
                raise ValueError(
                    f"{RELEASE} has format {node['format']}, but this version of agt reads "
                    f"format {FORMAT}"
                )
            matrices = unpacked(shelf.read(WEIGHTS))
            weight = matrices.pop("weight")
            bare = FeatureMap(validate(FeaturesConfig, node["features"], "features"), node["width"])
            if bare.shapes != {name: matrix.shape for name, matrix in matrices.items()}:
                raise ValueError(f"the shapes of the matrices differ from those in {RELEASE}")
            features = bare.with_matrices(matrices)
            if (
                weight.ndim != 2
                or weight.shape[1] != features.outputs
                or weight.dtype != np.float64
                or not np.isfinite(weight).all()
            ):
                expected = f"features and width = {node['width']} give {features.outputs} columns"
                raise ValueError(
                    f"the weights have shape {weight.shape} and type {weight.dtype}; {expected}"
                )
            _check_described(node, len(weight))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, MemoryError) as error:
            what = str(error) or "it needs more memory than this machine has"
            raise ConfigError(
                f"release={shelf.folder}: cannot be read ({what}); perhaps another version wrote it"
            ) from None
        noise = node["noise"]
        return cls(
            name=node["name"],
            classes=tuple(node["classes"]),
            source=node["source"],
            features=features,
            dtype=node["dtype"],
            weight=weight,
            noise=noise,
            words=tuple(node["words"]),
            mechanism=node.get("mechanism") or drawn_by(noise),
            brief=tuple(node.get("brief", ())),
        )

    def queries(self) -> DataSource:
        """What reads files of queries.

        Raises:
            ConfigError: the dataset's code is not there, or not trusted (``agt.targets``).
        """
        return build(self.source, "dataset")

    def labels(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels of queries as ``queries`` reads them; nothing is spent."""
        return gathered(map(labels_of, self._logits(features)), len(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """As ``Model.margins``, of the same queries; nothing is spent."""
        return signed_margins(gathered(self._logits(features), len(features)))

    def _logits(self, features: np.ndarray) -> Iterator[np.ndarray]:
        return (
            logits_of(self.weight, self.features(piece, self.dtype)) for piece in pieces(features)
        )

    @property
    def formula(self) -> dict[str, Any]:
        """What makes a query's vector, for the lines in README.md; empty: they do not know how.

        Raises:
            ConfigError: the dataset's code is not there, or not trusted (``agt.targets``).
        """
        formula = getattr(self.queries(), "formula", None)
        return {} if formula is None or not self.features.plain else formula()

    def readme(self) -> str:
        """The claim, and how to answer from the weights."""
        formula = self.formula
        lines = VECTOR_LINES if "vectors" in formula else TABLE_LINES
        alone = f"With only NumPy, from this folder:\n\n```python\n{lines}```\n"
        if not formula:
            alone = (
                "Only agt can compute the features of this release, so NumPy is not enough "
                "to use it.\n"
            )
        said = "\n".join(f"- {line}" for line in self.words)
        return README_TEXT.format(name=self.name, words=said, alone=alone)


def drawn_by(noise: Mapping[str, Any]) -> str:
    """Return the mechanism that these constants tell; release.json records any other one."""
    return next((name for key, name in _DRAWN_BY.items() if key in noise), "release_weights")


def unpacked(content: bytes) -> dict[str, np.ndarray]:
    """Name -> array, of an npz that anybody may have written: plain numbers, as many as its own
    heads say and no more.

    Raises:
        ValueError: it is none, or would unpack to more than ``MAX_ARRAY_BYTES``.
    """
    arrays = dict[str, np.ndarray]()
    try:
        with ZipFile(BytesIO(content)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if size > MAX_ARRAY_BYTES or any(
                e.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for e in entries
            ):
                raise ValueError(
                    f"{WEIGHTS} was not read, because it would unpack to {size:,} bytes, or "
                    "is packed in an unusual way"
                )
            for entry in entries:
                # asked for all of it at once it would unpack whatever is there
                with archive.open(entry) as file:
                    arrays[entry.filename.removesuffix(".npy")] = _plain_array(
                        file.read(entry.file_size)
                    )
    except (BadZipFile, ZlibError, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise ValueError(f"{WEIGHTS} is not a valid npz file: {error}") from None
    return arrays


def _plain_array(content: bytes) -> np.ndarray:
    """An array from the bytes of an npy file, as numpy writes it; no more room is made than they
    are.
    """
    head = _NPY.match(content)
    if head is None:
        raise ValueError(f"{WEIGHTS} contains something that is not an array of numbers")
    dtype, transposed, shape = (part.decode() for part in head.groups())
    sizes = tuple(int(size) for size in shape.split(",") if size.strip())
    flat = np.frombuffer(content, dtype, offset=head.end())
    return flat.reshape(sizes, order="F" if transposed == "True" else "C").copy()


def _check_described(node: Mapping[str, Any], rows: int) -> None:
    """Raise ValueError where release.json, which anybody may have written, is not of the form that
    ``save`` gives it.

    Args:
        rows: of the weights.
    """
    texts, noise = (
        [node["name"], *node["classes"], *node["words"], *node.get("brief", ())],
        node["noise"],
    )
    if not node["words"] or not all(isinstance(text, str) for text in texts):
        raise ValueError("name, classes and words must be text")
    if not all(text.isprintable() for text in texts):
        raise ValueError("words contain control characters, which must not be sent to a terminal")
    if rows != len(node["classes"]) and (rows, len(node["classes"])) != (1, 2):
        raise ValueError(f"there are {len(node['classes'])} classes, but weights of {rows}")
    numbers = all(type(number) in (int, float) and isfinite(number) for number in noise.values())
    mechanism = node.get("mechanism", drawn_by(noise))
    if not isinstance(mechanism, str) or not mechanism.isidentifier():
        raise ValueError(f"mechanism is {mechanism!r}, which is not a name")
    known = set(noise) <= _NOISE
    if "mechanism" in node:  # which agt may never have heard of
        known = all(map(str.isidentifier, noise)) and not _ANSWER_METRICS & set(noise)
    if not {"sigma", "step"} <= set(noise) or not known or not numbers:
        raise ValueError("noise must have the numbers sigma and step, and no unknown ones")
    if node["dtype"] not in ("float32", "float64") or not isinstance(node["source"], Mapping):
        raise ValueError(
            f"dtype is {node['dtype']} (must be float32 or float64), and source is of "
            f"type {type(node['source']).__name__} (must be a mapping)"
        )


def check_printable(dataset: Dataset, words: Sequence[str]) -> None:
    """Raise ConfigError where a release would hold text that ``Portable.read`` refuses: before it
    is paid for.

    Args:
        words: all that may be said of the release.
    """
    odd = next(
        (text for text in (dataset.name, *dataset.classes, *words) if not text.isprintable()), None
    )
    if odd is not None:
        raise ConfigError(
            f"{odd!r} has control characters, which would make the release unreadable: "
            "rename the class, column or dataset, and train again"
        )


def _check_no_formulas(portable: Portable, folder: Path) -> None:
    """Raise ConfigError for a class that a spreadsheet would run, as no digest vouches for it."""
    runs = [
        name
        for name in portable.classes
        if any(map(_FORMULA.match, _CELL.split(normalize("NFKC", name))))
    ]
    if runs:
        raise ConfigError(
            f"release={folder}: a spreadsheet program would interpret the class {runs[0]!r} "
            "as a formula: if you trust it, give digest=sha256:... as the publisher of the "
            "release gave it to you"
        )


README_TEXT = (
    "# Released weights: {name}\n\n{words}\n\nAnswers from these weights do not spend "
    "any more budget, however many there are. To label the rows of a file of "
    "queries:\n\n    agt predict release=THIS_FOLDER inputs=queries.csv\n\n{alone}\nThe "
    "hash of every file is in `manifest.json`; the hash of that file is the digest of "
    "this release.\n"
)
_LABEL = """\
    f = w @ np.append(x / max(np.linalg.norm(x), r["radius"], 1e-300), r["bias"])
    print(r["classes"][int(f[0] > 0) if len(f) == 1 else f.argmax()])
"""
TABLE_LINES = (
    """\
import csv, json, numpy as np
r, w = json.load(open("release.json", encoding="utf-8")), np.load("weights.npz")["weight"]
m, day = r["missing"], lambda v: np.datetime64(v.strip(), "us").astype(int) / 864e8
number = lambda v: np.nan if v in m else day(v) if v.strip()[4:8:3] == "--" else float(v)
make = {"range": lambda v, low, high: np.nan_to_num(2 * (np.clip(number(v), low, high) - low) / (high - low) - 1),
        "from": lambda v, edge, unit: unit * (1.0 * (number(v) >= edge) - (number(v) < edge)), "missing": lambda v: v in m,
        "unknown": lambda v: np.isnan(number(v)), "is": lambda v, w: v == w, "other": lambda v, *w: v not in [*w, *m]}
for row in csv.DictReader(open("queries.csv", encoding=r["encoding"], newline=""), delimiter=r["separator"]):
    x = np.array([make[kind](row[column], *values) for column, kind, *values in r["columns"]], np.float32).astype(float)
"""
    + _LABEL
)
VECTOR_LINES = (
    """\
import json, numpy as np
r, w = json.load(open("release.json", encoding="utf-8")), np.load("weights.npz")["weight"]
v = r["vectors"]
for x in np.load("queries.npz")[v["key"]]:
    x = x.astype(float).ravel() - np.ravel(v["center"])
    x = x / (np.sqrt(np.sum(x * x)) or 1.0) if v["unit_norm"] else x
    x = (x * v["scale"]).astype(np.float32).astype(float)
"""
    + _LABEL
)
