"""Released weights as a folder that answers queries by itself and may be published.

| file          | what it holds                                                                     |
|---------------|-----------------------------------------------------------------------------------|
| release.json  | classes, public constants of the dataset, public features, the claim in sentences |
| weights.npz   | the released weights, and matrices of the public features if there are any        |
| claim.json    | the claim as fields                                                               |
| README.md     | the claim, and lines of plain NumPy that answer as agt does                       |
| manifest.json | the hash of every file; its own hash is the digest of the folder                  |
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from io import BytesIO
from math import isfinite
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, Protocol
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

RELEASE_FORMAT = 1
SHRUNK_RELEASE_FORMAT = 2
"""The format of an earlier version, whose answers come from weights shrunk towards 0."""
COMMAND = "agt.release"
"""What the manifest of such a folder names as its writer."""
RELEASE = "release.json"
WEIGHTS = "weights.npz"
README = "README.md"
CLAIM = "claim.json"
MAX_ARRAY_BYTES = 2**30
"""The largest size of all arrays of weights.npz together, unpacked."""
# A mechanism's own constant -> its name. The other mechanism has neither constant.
_MECHANISM_OF_CONSTANT = {"tilt": "objective_perturbation", "gram": "noisy_statistics"}
_NOISE_CONSTANTS = {"sigma", "step", "tilt", "gram", "mu", "eps", "delta"}
# Metrics of records that show the noise beside them, so that no constant may have these names.
_ANSWER_METRICS = {"n_queries", "proved", "simulated"}
# The head of an npy file of numbers, as NumPy writes it.
_NPY_HEAD = re.compile(
    rb"\x93NUMPY\x01\x00..{'descr': '(<[fi][48])', 'fortran_order': (True|False), 'shape': \(([\d, "
    rb"]{0,99})\), } *\n",
    re.DOTALL,
)
# Where a spreadsheet may end a cell, whatever it takes for a separator.
_CELL_END = re.compile(r"[,;|\t\"']")
# What a spreadsheet runs as a formula; +1 and -1.5 are numbers.
_FORMULA = re.compile(r"\s*([=@]|[+-](?!([0-9]+\.?[0-9]*|\.[0-9]+)\s*$))")
# Settings of a dataset that queries do not need; some name files of the owner's machine.
_SETTINGS_LEFT_OUT = ("data_dir", "test", "obtain", "download", "public_digest")


class Released(Protocol):
    """Weights that a mechanism drew (``agt.mechanisms.weights_mechanism.ReleasedWeights``).

    Attributes:
        weight: [J, w] the released weights.
        described: the guarantee's parameters and the constants of the noise, by name.
        mechanism: the name of the mechanism.
        simulated: True if the noise comes from a known seed, so that the guarantee does not hold.
    """

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
    """Released weights with everything that answering queries needs.

    Formal guarantees
        * What ``save`` writes has the guarantee of the released weights, and so does every answer
          from it: it is post-processing (Lemma 1 of docs/proofs/release_folder.md).
        * It holds no undeclared number of records, no digest of the run, no accuracy, no time, and
          no path of the owner's machine (Lemma 2 of docs/proofs/release_folder.md).

    Attributes:
        name: what tables call the dataset.
        classes: the names of the labels, in their order.
        source: the configuration of the dataset, with the constants that make a query's features.
        features: the public feature map.
        dtype: the precision of the feature map's results.
        weight: [J, outputs] float64, the released weights; J is 1 or the number of classes.
        noise: the guarantee's parameters, sigma, the lattice's step, and the mechanism's other
            constants, by name (``ReleasedWeights.described``).
        words: all that may be said about the release, a sentence each, the claim first.
        mechanism: the name of the mechanism that released the weights.
        brief: the shorter form of ``words`` that a terminal shows; empty: not recorded, as in
            releases of earlier versions.
        slope: the factor on the logits whose softmax are probabilities (agt/mechanisms/link.py);
            None: not known, as in folders that were read back.
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
    def from_release(
        cls,
        model: "LinearModel",
        released: Released,
        source: Mapping[str, Any],
        words: Sequence[str],
        brief: Sequence[str] = (),
    ) -> "Portable":
        """Return what may be published of a release of a model's weights.

        Args:
            model: the head whose weights were released, with its dataset and features.
            released: the weights with noise.
            source: the configuration of its dataset, with resolved constants.
            words: all that may be said about the release, a sentence each, the claim first.
            brief: a shorter form for terminals; empty: none.

        Raises:
            ValueError: the weights are a simulation's.
        """
        if released.simulated:
            raise ValueError(
                "this is a simulation (drawn from a seed), so it cannot be saved as a release"
            )
        # Lemma 2 of docs/proofs/release_folder.md: no path of the owner's machine is published
        published = {key: value for key, value in source.items() if key not in _SETTINGS_LEFT_OUT}
        if "path" in published:
            published["path"] = PurePath(str(published["path"])).name
        dataset = model.problem.dataset
        return cls(
            name=str(source.get("name") or dataset.name),
            classes=dataset.classes,
            source=published,
            features=model.features,
            dtype=model.settings.training.dtype,
            weight=released.weight,
            noise=released.described,
            words=tuple(words),
            mechanism=released.mechanism,
            brief=tuple(brief),
        )

    def __repr__(self) -> str:
        """Return the number of classes, the mechanism, and the claim."""
        classes = len(self.classes)
        return (
            f"agt.Portable: released weights of {classes} classes by {self.mechanism}\n  "
            f"{self.words[0]}"
        )

    @property
    def release_fields(self) -> dict[str, Any]:
        """The content of release.json.

        Raises:
            ConfigError: the dataset's code is missing, or is not trusted (``agt.targets``).
        """
        return {**self.recorded_fields, **self.formula}

    @property
    def recorded_fields(self) -> dict[str, Any]:
        """The content of release.json apart from ``formula``, which code of the dataset makes."""
        config = self.features.config
        fields = {
            "format": RELEASE_FORMAT,
            "name": self.name,
            "words": self.words,
            "brief": self.brief,
            "noise": self.noise,
            "classes": self.classes,
            "source": self.source,
            "features": asdict(config),
            "width": self.features.width,
            "dtype": self.dtype,
            # The lines in README.md read these two and the formula.
            "radius": config.radius or 0.0,
            "bias": config.bias,
        }
        if self.mechanism != mechanism_from_noise(self.noise):
            fields["mechanism"] = self.mechanism
        return fields

    def save(self, store: "FileWriter", claim: bytes) -> str:
        """Write the folder, and return its digest.

        Args:
            store: an empty folder.
            claim: the content of claim.json (agt/mechanisms/claims.py).
        """
        matrices: dict[str, Any] = self.features.matrices
        arrays = BytesIO()
        np.savez(arrays, weight=self.weight, **matrices)
        # Lemma 1 of docs/proofs/release_folder.md: nothing else of the run goes into the folder
        files = {
            RELEASE: as_json(self.release_fields),
            WEIGHTS: arrays.getvalue(),
            README: self.readme().encode(),
            CLAIM: claim,
        }
        for name, content in files.items():
            store.write(name, content)
        hashes = {name: sha256(content).hexdigest() for name, content in files.items()}
        manifest = Manifest(COMMAND, hashes)
        store.write(MANIFEST, manifest.content)
        return manifest.digest

    @classmethod
    def open(cls, folder: Path, digest: str | None = None) -> "Portable":
        """Read a folder that ``save`` wrote.

        Args:
            folder: the folder, or the record of the call that released the weights.
            digest: the digest that the folder has to have; None: any.

        Raises:
            ConfigError: there is no such folder; a file is not what was written; or no digest was
                given, and a spreadsheet would take a class for a formula.
        """
        inside = folder / "release"
        location = inside if (inside / MANIFEST).is_file() else folder
        portable = cls.read(Folder.open(location, COMMAND, digest, "release"))
        if digest is None:
            _check_no_formulas(portable, folder)
        return portable

    @classmethod
    def read(cls, reader: Folder) -> "Portable":
        """Read a folder that anybody may have written; no code that it names is imported.

        Raises:
            ConfigError: a file is not what the manifest lists, or holds what ``save`` never writes.
            Superseded: an earlier version of agt wrote it, in a form that this one does not read.
        """
        try:
            node = reader.json(RELEASE)
            _check_format(node, reader)
            matrices = _read_arrays(reader.read(WEIGHTS))
            weight = matrices.pop("weight")
            features = _read_features(node, matrices)
            _check_weight(weight, features, node["width"])
            _check_fields(node, len(weight))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, MemoryError) as error:
            what = str(error) or "reading it needs more memory than this machine has"
            raise ConfigError(
                f"release={reader.folder}: cannot be read ({what}); perhaps another version wrote it"
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
            mechanism=node.get("mechanism") or mechanism_from_noise(noise),
            brief=tuple(node.get("brief", ())),
        )

    def queries(self) -> DataSource:
        """Return the reader of files of queries, which makes their features.

        Raises:
            ConfigError: the dataset's code is missing, or is not trusted (``agt.targets``).
        """
        return build(self.source, "dataset")

    def labels(self, features: np.ndarray) -> np.ndarray:
        """Return labels of queries, [n] int64; no budget is spent.

        Args:
            features: [n, ...] as ``queries`` reads them.
        """
        labels = (labels_of(logits) for logits in self._logits(features))
        return gathered(labels, len(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return signed margins of queries, of two classes [1, n], else [C, n]; nothing is spent.

        Args:
            features: [n, ...] as ``queries`` reads them.
        """
        return signed_margins(gathered(self._logits(features), len(features)))

    def _logits(self, features: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the logits [m, J] of one block of queries after another."""
        for block in pieces(features):
            yield logits_of(self.weight, self.features(block, self.dtype))

    @property
    def formula(self) -> dict[str, Any]:
        """What the lines in README.md need to make a query's vector, as fields of release.json.

        It is empty where plain NumPy cannot make the features.

        Raises:
            ConfigError: the dataset's code is missing, or is not trusted (``agt.targets``).
        """
        formula = getattr(self.queries(), "formula", None)
        if formula is None or not self.features.plain:
            return {}
        return formula()

    def readme(self) -> str:
        """Return the text of README.md: the claim, and how to answer from the weights."""
        formula = self.formula
        if formula:
            lines = VECTOR_LINES if "vectors" in formula else TABLE_LINES
            alone = f"With only NumPy, from this folder:\n\n```python\n{lines}```\n"
        else:
            alone = (
                "Only agt can compute the features of this release, so NumPy is not enough to "
                "use it.\n"
            )
        sentences = "\n".join(f"- {sentence}" for sentence in self.words)
        return README_TEXT.format(name=self.name, words=sentences, alone=alone)


def mechanism_from_noise(noise: Mapping[str, Any]) -> str:
    """Return the mechanism that has constants of these names.

    release.json names the mechanism only if it is not the one that this function returns.
    """
    for constant, mechanism in _MECHANISM_OF_CONSTANT.items():
        if constant in noise:
            return mechanism
    return "release_weights"


def _check_format(node: Mapping[str, Any], reader: Folder) -> None:
    """Refuse a folder in another format than this version's.

    Args:
        node: the content of release.json.
        reader: the folder.

    Raises:
        Superseded: the format is one that an earlier version wrote.
        ValueError: this version does not know the format.
    """
    if node["format"] == SHRUNK_RELEASE_FORMAT:
        version = reader.json(CLAIM).get("agt")
        # A claim that names this version, or none, is no earlier version's: refused below.
        if version not in (None, __version__):
            raise Superseded(
                f"release={reader.folder}: made with mechanism.shrink=true by agt "
                f"{version!r}, which this version does not support: use that version"
            )
    if node["format"] != RELEASE_FORMAT:
        raise ValueError(
            f"{RELEASE} has format {node['format']}, but this version of agt reads "
            f"format {RELEASE_FORMAT}"
        )


def _read_features(node: Mapping[str, Any], matrices: dict[str, np.ndarray]) -> FeatureMap:
    """Return the public feature map.

    Args:
        node: the content of release.json.
        matrices: the arrays of weights.npz beside the weights.

    Raises:
        ValueError: matrices are missing or too many, or one has another shape.
    """
    config = validate(FeaturesConfig, node["features"], "features")
    without_matrices = FeatureMap(config, node["width"])
    shapes = {name: matrix.shape for name, matrix in matrices.items()}
    if without_matrices.shapes != shapes:
        raise ValueError(f"the feature matrices have other shapes than {RELEASE} states")
    return without_matrices.with_matrices(matrices)


def _check_weight(weight: np.ndarray, features: FeatureMap, width: object) -> None:
    """Raise ValueError unless weights are finite float64 numbers, one for each public feature.

    Args:
        weight: as it was read.
        features: the public feature map.
        width: the number of features of a query, for the message.
    """
    fits_features = weight.ndim == 2 and weight.shape[1] == features.outputs
    if not fits_features or weight.dtype != np.float64 or not np.isfinite(weight).all():
        expected = (
            f"the entries features and width = {width} need weights with {features.outputs} columns"
        )
        raise ValueError(
            f"the weights have shape {weight.shape} and type {weight.dtype} (must be finite "
            f"float64 numbers); {expected}"
        )


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file that anybody may have written.

    No more memory is taken than the heads of its entries say, which are checked first.

    Args:
        content: the whole file.

    Returns:
        Name -> array of plain numbers.

    Raises:
        ValueError: it is no npz file of plain numbers, or would unpack to more than
            ``MAX_ARRAY_BYTES``.
    """
    arrays = dict[str, np.ndarray]()
    try:
        with ZipFile(BytesIO(content)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            packings = {entry.compress_type for entry in entries}
            if size > MAX_ARRAY_BYTES or not packings <= {ZIP_STORED, ZIP_DEFLATED}:
                raise ValueError(
                    f"{WEIGHTS} was not read, because it would unpack to {size:,} bytes, or "
                    "is compressed in an unusual way"
                )
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                with archive.open(entry) as file:
                    # Read without a size, it would unpack more than the head says.
                    arrays[name] = _read_array(file.read(entry.file_size))
    except (BadZipFile, ZlibError, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise ValueError(f"{WEIGHTS} is not a valid npz file: {error}") from None
    return arrays


def _read_array(content: bytes) -> np.ndarray:
    """Return the array of an npy file of plain numbers; it takes as much memory as the file.

    Raises:
        ValueError: the head is not one that NumPy writes for numbers, or the size differs from it.
    """
    head = _NPY_HEAD.match(content)
    if head is None:
        raise ValueError(f"{WEIGHTS} contains something that is not an array of numbers")
    dtype, in_fortran_order, shape_text = (part.decode() for part in head.groups())
    shape = tuple(int(size) for size in shape_text.split(",") if size.strip())
    order: Literal["F", "C"] = "F" if in_fortran_order == "True" else "C"
    numbers = np.frombuffer(content, dtype, offset=head.end())
    return numbers.reshape(shape, order=order).copy()


def _check_fields(node: Mapping[str, Any], rows: int) -> None:
    """Raise ValueError unless the fields of release.json have the form that ``save`` gives them.

    Args:
        node: the content of release.json, which anybody may have written.
        rows: the number of rows of the weights.
    """
    classes = node["classes"]
    noise = node["noise"]
    texts = [node["name"], *classes, *node["words"], *node.get("brief", ())]
    if not node["words"] or not all(isinstance(text, str) for text in texts):
        raise ValueError("the entries name, classes and words must be text")
    if not all(text.isprintable() for text in texts):
        raise ValueError(
            "a text in it contains control characters, which agt does not send to a terminal"
        )
    is_one_row_of_two_classes = rows == 1 and len(classes) == 2
    if rows != len(classes) and not is_one_row_of_two_classes:
        raise ValueError(f"there are {len(classes)} classes, but the weights are for {rows}")
    are_numbers = all(
        type(number) in (int, float) and isfinite(number) for number in noise.values()
    )
    mechanism = node.get("mechanism", mechanism_from_noise(noise))
    if not isinstance(mechanism, str) or not mechanism.isidentifier():
        raise ValueError(f"mechanism is {mechanism!r}, which is not a name")
    names = set(noise)
    if "mechanism" in node:  # of the user's own, whose constants have names of their own
        are_names = all(map(str.isidentifier, noise)) and not _ANSWER_METRICS & names
    else:
        are_names = names <= _NOISE_CONSTANTS
    if not {"sigma", "step"} <= names or not are_names or not are_numbers:
        raise ValueError(
            "the entry noise must have the numbers sigma and step, and no unknown ones"
        )
    if node["dtype"] not in ("float32", "float64") or not isinstance(node["source"], Mapping):
        raise ValueError(
            f"dtype is {node['dtype']} (must be float32 or float64), and source is of "
            f"type {type(node['source']).__name__} (must be a mapping)"
        )


def check_printable(dataset: Dataset, words: Sequence[str]) -> None:
    """Raise ConfigError for text that ``Portable.read`` would refuse, before a release is paid for.

    Args:
        dataset: its name and classes go into the release.
        words: all that may be said about the release.
    """
    for text in (dataset.name, *dataset.classes, *words):
        if not text.isprintable():
            raise ConfigError(
                f"{text!r} has control characters, which would make the release unreadable: "
                "rename the class, column or dataset, and train again"
            )


def _check_no_formulas(portable: Portable, folder: Path) -> None:
    """Raise ConfigError if a spreadsheet would run the name of a class as a formula."""
    for name in portable.classes:
        cells = _CELL_END.split(normalize("NFKC", name))
        if any(_FORMULA.match(cell) for cell in cells):
            raise ConfigError(
                f"release={folder}: a spreadsheet program would read the class name {name!r} "
                "as a formula: if you trust this release, give digest=sha256:... as its "
                "publisher gave it to you"
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
