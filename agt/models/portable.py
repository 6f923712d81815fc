"""Released weights as a folder that may be published, and that answers queries without the run.

| file          | what it holds                                                                    |
|---------------|----------------------------------------------------------------------------------|
| release.json  | classes, public constants of the dataset, feature map, the claim in sentences    |
| weights.npz   | the released weights, and matrices of the public features if there are any       |
| claim.json    | the claim as fields                                                              |
| README.md     | for strangers: the answers, the claim, plain NumPy that answers as agt does      |
| manifest.json | the hash of every file; its own hash is the digest of the folder                 |
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

from agt.data.arrays import gathered, pieces
from agt.data.dataset import Dataset, DataSource
from agt.data.target import NumericTarget, Target, read_target
from agt.errors import ConfigError
from agt.models.features import FeatureMap
from agt.numeric import labels_of, logits_of, signed_margins
from agt.settings import FeaturesConfig, build, validate
from agt.store.folder import Folder
from agt.store.json_text import as_json
from agt.store.manifest import MANIFEST_FILE as MANIFEST, Manifest

if TYPE_CHECKING:  # whoever reads a folder and answers from it loads no torch
    from agt.models.linear import LinearModel
    from agt.models.store import FileWriter

RELEASE_FORMAT = 1
COMMAND = "agt.release"
"""The program that the manifest of a release folder names as its writer."""
RELEASE = "release.json"
WEIGHTS = "weights.npz"
README = "README.md"
CLAIM = "claim.json"
MAX_ARRAY_BYTES = 2**30
"""The largest size of all arrays of weights.npz together, uncompressed."""
# A constant that only one mechanism has -> the mechanism. release_weights has none of them.
_MECHANISM_OF_CONSTANT = {"tilt": "objective_perturbation", "gram": "noisy_statistics"}
_NOISE_CONSTANTS = {"sigma", "step", "tilt", "gram", "mu", "eps", "delta"}
# Metrics of runs that are shown together with the constants of the noise. No constant of a user's
# mechanism may have one of these names.
_ANSWER_METRICS = {"n_queries", "proved", "simulated"}
# The header of an npy file of integers or floats, as NumPy writes it.
_NPY_HEAD = re.compile(
    rb"\x93NUMPY\x01\x00..{'descr': '(<[fi][48])', 'fortran_order': (True|False), 'shape': \(([\d, "
    rb"]{0,99})\), } *\n",
    re.DOTALL,
)
# Characters at which a spreadsheet program may end a cell; they depend on its settings.
_CELL_END = re.compile(r"[,;|\t\"']")
# The start of a cell that a spreadsheet program runs as a formula; +1 and -1.5 are numbers.
_FORMULA = re.compile(r"\s*([=@]|[+-](?!([0-9]+\.?[0-9]*|\.[0-9]+)\s*$))")
# Settings of features in releases of versions up to 0.6.0. No map of today reads them.
_UNUSED_FEATURES = ("order", "weight")
# Settings of a dataset that queries do not need. Some hold paths of the owner's machine.
_SETTINGS_LEFT_OUT = ("data_dir", "test", "obtain", "download", "public_digest")


class Released(Protocol):
    """Weights with noise, as ``agt.mechanisms.weights_mechanism.ReleasedWeights`` holds them.

    Attributes:
        weight: [J, w] the released weights, for J logits and w features.
        public_parameters: the privacy parameters and the constants of the noise, by name.
        mechanism: the name of the mechanism that drew the noise.
        simulated: True if the noise comes from a known seed, so that there is no privacy guarantee.
    """

    @property
    def weight(self) -> np.ndarray: ...
    @property
    def public_parameters(self) -> dict[str, float]: ...
    @property
    def mechanism(self) -> str: ...
    @property
    def simulated(self) -> bool: ...


@dataclass(frozen=True, repr=False)
class Portable:
    """Weights released with differential privacy, with everything that labelling queries needs.

    ``model.release_weights(mechanism)`` returns one, and a fitted ``PrivateClassifier`` has one as
    ``released_``.

    ``labels(features)`` gives the class indices of queries, or ``numbers(features)`` the numbers,
    ``words`` says what is guaranteed, and ``save`` writes a folder that ``Portable.open`` reads
    back. None of them spends any budget.

    Formal guarantees
        * What ``save`` writes, and every answer from it, has the privacy guarantee of the released
          weights, because it is post-processing (Lemma 1 of docs/proofs/release_folder.md).
        * The folder reveals no undeclared number of records, no digest of the run, no accuracy, no
          time, and no path of the owner's machine (Lemma 2 of docs/proofs/release_folder.md).

    Attributes:
        name: the name of the dataset, as tables show it.
        target: the kind of answers: classes, or numbers in a public range.
        source: the configuration of the dataset, with the constants that make a query's features;
            empty if the model was trained on arrays.
        features: the public feature map in front of the head.
        dtype: float32 or float64, the precision of the feature map's values.
        weight: [J, outputs] float64, the released weights; J is the number of classes, or 1 for two
            classes and for numbers; ``outputs`` is the number of the feature map's values.
        noise: the privacy parameters and the constants of the noise by name, among them ``sigma``
            (the standard deviation) and ``step`` (the noise is rounded to multiples of it).
        words: all that may be said about the release, a sentence each, the privacy claim first.
        mechanism: the name of the mechanism that released the weights.
        brief: the shorter form of ``words`` that a terminal shows; empty in releases of earlier
            versions, which did not record it.
        slope: the factor on the logits after which softmax gives probabilities; None: not known,
            as for a folder that was read back.
    """

    name: str
    target: Target
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
        """Return released weights together with the public part of a model's settings.

        Args:
            model: the head whose weights were released; its feature map and settings are read.
            released: the weights with noise.
            source: the configuration of the dataset, with its public constants as numbers; empty if
                the model was trained on arrays.
            words: all that may be said about the release, a sentence each, the privacy claim first.
            brief: a shorter form of ``words`` for terminals; empty: there is no shorter form.

        Raises:
            ValueError: the noise comes from a known seed (a simulation).
        """
        if released.simulated:
            raise ValueError(
                "these weights are a simulation (their noise was drawn from a seed), so they "
                "cannot be saved as a release: release them without a seed"
            )
        # Lemma 2 of docs/proofs/release_folder.md: no path of the owner's machine is published
        published = {key: value for key, value in source.items() if key not in _SETTINGS_LEFT_OUT}
        if "path" in published:
            published["path"] = PurePath(str(published["path"])).name
        dataset = model.problem.dataset
        return cls(
            name=str(source.get("name") or dataset.name),
            target=dataset.target,
            source=published,
            features=model.features,
            dtype=model.settings.training.dtype,
            weight=released.weight,
            noise=released.public_parameters,
            words=tuple(words),
            mechanism=released.mechanism,
            brief=tuple(brief),
        )

    def __repr__(self) -> str:
        """Return a short text with the number of classes, the mechanism, and the privacy claim."""
        guarantee = self.words[0]
        return (
            f"agt.Portable: weights of a model with {self.answers}, released by "
            f"{self.mechanism}\n  {guarantee}"
        )

    @property
    def answers(self) -> str:
        """The kind of answers in a few words, such as "3 classes"."""
        numbers = self.target.numeric
        if numbers is None:
            return f"{len(self.classes)} classes"
        return f"numbers from {numbers.low:g} to {numbers.high:g}"

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their indices; empty: answers are numbers."""
        return () if self.target.numeric is not None else self.target.classes

    @property
    def release_fields(self) -> dict[str, Any]:
        """The content of release.json by name: ``recorded_fields`` and ``formula``.

        Raises:
            ConfigError: the class of the dataset cannot be imported, or is not trusted.
        """
        # The formulas of agt's datasets have other names: vectors, columns, and a table's format.
        return self.recorded_fields | self.formula

    @property
    def recorded_fields(self) -> dict[str, Any]:
        """The fields of release.json without ``formula``, which needs the class of the dataset.

        ``agt verify`` compares only these if another version of agt made the folder, or if the
        dataset is of the user's own class, which is not imported.
        """
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
            "width": self.features.width,  # the number of raw features
            "dtype": self.dtype,
            # The NumPy code in README.md reads these two, and ``formula``. A query's vector is
            # divided by its norm, but at least by ``radius``, and ``bias`` is appended.
            "radius": config.radius or 0.0,
            "bias": config.bias,
        }
        if self.target.numeric is not None:
            fields |= self.target.description
        # Recorded only where the names of the constants do not imply it, as for a user's mechanism.
        if self.mechanism != mechanism_from_noise(self.noise):
            fields["mechanism"] = self.mechanism
        return fields

    def save(self, store: "FileWriter", claim: bytes) -> str:
        """Write the folder of the release, and return its digest.

        Args:
            store: an empty folder, ``agt.store.folder.NewFolder(path, command)``.
            claim: the content of claim.json: ``claim.for_file().content`` of the release's claim.

        Returns:
            The hash of manifest.json, which lists the hashes of all other files.

        Raises:
            ConfigError: the class of the dataset cannot be imported, or is not trusted.
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
        """Read a release folder, and check every file against the manifest.

        Args:
            folder: a folder that ``save`` wrote, or the record of ``agt predict``, which holds one
                in its subfolder ``release``.
            digest: the digest that the folder must have, as ``save`` returned it; None: any.

        Raises:
            ConfigError: there is no such folder; a file differs from what the manifest lists; or
                ``digest`` is None and a spreadsheet program would run the name of a class as a
                formula.
        """
        release_folder = folder / "release"  # in the record of ``agt predict``
        if not (release_folder / MANIFEST).is_file():
            release_folder = folder
        reader = Folder.open(release_folder, COMMAND, digest, "release")
        portable = cls.read(reader)
        # Whoever knows the digest trusts the release, and with it the names of its classes.
        if digest is None:
            _check_no_formulas(portable, folder)
        return portable

    @classmethod
    def read(cls, reader: Folder) -> "Portable":
        """Read a release folder of unknown origin, without importing code that it names.

        Args:
            reader: the opened folder, which compares every file with the manifest.
                ``Portable.open(path)`` opens a folder and reads it.

        Raises:
            ConfigError: a file differs from what the manifest lists, or has content that ``save``
                never writes.
        """
        try:
            node = reader.json(RELEASE)
            if node["format"] != RELEASE_FORMAT:
                raise ValueError(
                    f"{RELEASE} has format {node['format']}, but this version of agt reads "
                    f"format {RELEASE_FORMAT}"
                )
            matrices = _read_arrays(reader.read(WEIGHTS))
            weight = matrices.pop("weight")
            features = _read_features(node, matrices)
            _check_weight(weight, features, node["width"])
            _check_fields(node, len(weight))
            target = _read_target(node, len(weight))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, MemoryError) as error:
            reason = str(error) or "reading this file needs more memory than this machine has"
            raise ConfigError(
                f"release={reader.folder}: this release cannot be read ({reason}). Get it again "
                "from its publisher, or use the version of agt that wrote it"
            ) from None
        noise = node["noise"]
        return cls(
            name=node["name"],
            target=target,
            source=node["source"],
            features=features,
            dtype=node["dtype"],
            weight=weight,
            noise=noise,
            words=tuple(node["words"]),
            mechanism=node.get("mechanism", mechanism_from_noise(noise)),
            brief=tuple(node.get("brief", ())),
        )

    def queries(self) -> DataSource:
        """Return the dataset that reads files of queries, and makes their features.

        Raises:
            ConfigError: the weights were trained on arrays, so the release has no dataset.
            ConfigError: the class of the dataset cannot be imported, or is not trusted.
        """
        return build(self.source, "dataset")

    def labels(self, features: np.ndarray) -> np.ndarray:
        """Return the labels of queries, [n] int64, as indices into ``classes``.

        It spends no privacy budget, because the weights are released already.

        Args:
            features: [n, ...] the queries' features, made as those of the training records were.

        Raises:
            ConfigError: the release answers with numbers.
        """
        _ = self.target.classes  # the names are not needed: reading them raises for numbers
        labels = (labels_of(logits) for logits in self._logits(features))
        return gathered(labels, len(features))

    def numbers(self, features: np.ndarray) -> np.ndarray:
        """Return the numbers that the weights give for queries, [n] float64, within the range.

        It spends no privacy budget, because the weights are released already.

        Args:
            features: [n, ...] the queries' features, made as those of the training records were.

        Raises:
            ConfigError: the release answers with classes.
        """
        numbers = self.target.numeric
        if numbers is None:
            raise ConfigError("these released weights answer with classes: call labels instead")
        answers = (numbers.unscaled(outputs[:, 0]) for outputs in self._logits(features))
        return gathered(answers, len(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return the margins of queries, which spends no privacy budget.

        Args:
            features: [n, ...] the queries' features, made as those of the training records were.

        Returns:
            For two classes [1, n], positive where class 1 is predicted. For more classes [C, n]:
            each class's logit less the greatest logit of the other classes.
        """
        return signed_margins(gathered(self._logits(features), len(features)))

    def _logits(self, features: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the logits [m, J] of successive blocks of m queries.

        Args:
            features: [n, ...] the queries' features.
        """
        for block in pieces(features):
            yield logits_of(self.weight, self.features(block, self.dtype))

    @property
    def formula(self) -> dict[str, Any]:
        """The fields of release.json from which plain NumPy code can make a query's features.

        The code is in README.md. The dictionary is empty if only agt can make the features.

        Raises:
            ConfigError: the class of the dataset cannot be imported, or is not trusted.
        """
        # A method of datasets whose features a formula makes; other datasets do not have it.
        dataset_formula = getattr(self.queries(), "formula", None)
        if dataset_formula is None or not self.features.only_normalises:
            return {}
        return dataset_formula()

    def readme(self) -> str:
        """Return the text of README.md, for readers who do not know the publisher or agt.

        It says what the answers are, how to label queries, the privacy claim, and how to check it.

        Raises:
            ConfigError: the class of the dataset cannot be imported, or is not trusted.
        """
        formula = self.formula
        if formula:
            code_of_features = VECTOR_LINES if "vectors" in formula else TABLE_LINES
            code_of_answers = LABEL_LINES if self.target.numeric is None else NUMBER_LINES
            lines = code_of_features + code_of_answers
            alone = f"With NumPy alone, run this in this folder:\n\n```python\n{lines}```\n"
        else:
            alone = (
                "Only agt can compute the features that these weights need, so NumPy is not "
                "enough to use this release.\n"
            )
        sentences = "\n".join(f"- {sentence}" for sentence in self.words)
        return README_TEXT.format(
            name=self.name,
            answers=self.answers,
            mechanism=self.mechanism,
            words=sentences,
            alone=alone,
        )


def mechanism_from_noise(noise: Mapping[str, Any]) -> str:
    """Return the name of the mechanism of agt that has noise with these constants.

    release.json names the mechanism only if this function would return another one.

    Args:
        noise: the constants of the noise by name, as in release.json.
    """
    for constant, mechanism in _MECHANISM_OF_CONSTANT.items():
        if constant in noise:
            return mechanism
    return "release_weights"


def _read_features(node: Mapping[str, Any], matrices: dict[str, np.ndarray]) -> FeatureMap:
    """Return the public feature map of a release folder.

    Args:
        node: the content of release.json.
        matrices: the arrays of weights.npz except the weights, by name.

    Raises:
        ValueError: a matrix is missing, unexpected, or has the wrong shape.
    """
    settings = {
        name: value for name, value in node["features"].items() if name not in _UNUSED_FEATURES
    }
    config = validate(FeaturesConfig, settings, "features")
    without_matrices = FeatureMap(config, node["width"])
    shapes = {name: matrix.shape for name, matrix in matrices.items()}
    if without_matrices.shapes != shapes:
        raise ValueError(
            f"the matrices of the feature map do not have the shapes that {RELEASE} states"
        )
    return without_matrices.with_matrices(matrices)


def _check_weight(weight: np.ndarray, features: FeatureMap, width: object) -> None:
    """Raise ValueError unless weights are finite float64 with a column for each public feature.

    Args:
        weight: the weights as they were read from the folder; they should be [J, outputs].
        features: the public feature map, which says how many ``outputs`` there are.
        width: the number of raw features of a query, for the message.
    """
    fits_features = weight.ndim == 2 and weight.shape[1] == features.outputs
    if not fits_features or weight.dtype != np.float64 or not np.isfinite(weight).all():
        raise ValueError(
            f"the weights have shape {weight.shape} and type {weight.dtype}, but must be finite "
            f"float64 numbers in {features.outputs} columns (width={width}, the number of "
            "features of a query)"
        )


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file of unknown origin, by name.

    A hostile file can claim a small size and unpack to a huge one. So the sizes that the file
    claims are checked first, and no entry is unpacked beyond its claimed size.

    Args:
        content: all bytes of the file.

    Raises:
        ValueError: the file is not an npz file of plain numbers, or claims to unpack to more than
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
                    f"{WEIGHTS} would need {size:,} bytes when unpacked, or is compressed in a "
                    "way that agt never uses"
                )
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                with archive.open(entry) as file:
                    # Without a size, read() would unpack everything that the entry holds.
                    arrays[name] = _read_array(file.read(entry.file_size))
    except (BadZipFile, ZlibError, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise ValueError(f"{WEIGHTS} is not a valid npz file: {error}") from None
    return arrays


def _read_array(content: bytes) -> np.ndarray:
    """Return the array of an npy file of unknown origin.

    ``np.load`` is not used, because it trusts the shape that the header claims.

    Args:
        content: all bytes of the file.

    Raises:
        ValueError: the header is not one that NumPy writes for numbers, or the data do not have the
            size that it claims.
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
    """Raise ValueError unless release.json has fields of the types that ``save`` writes.

    A missing field raises KeyError, and a field of a wrong type may raise TypeError. The caller
    treats them in the same way.

    Args:
        node: the content of release.json, of unknown origin.
        rows: the number of rows of the weights.
    """
    classes = node["classes"]
    texts = [node["name"], *classes, *node["words"], *node.get("brief", ())]
    if not node["words"] or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            "the release's entries 'name', 'classes' and 'words' must be text, and not empty"
        )
    if not all(text.isprintable() for text in texts):
        raise ValueError(
            "the release's entries 'name', 'classes' and 'words' must not contain control "
            "characters, which could mislead a terminal"
        )
    # Two classes need only one row of weights, whose logit is that of class 1.
    is_one_row_of_two_classes = rows == 1 and len(classes) == 2
    is_of_classes = "range" not in node
    if is_of_classes and rows != len(classes) and not is_one_row_of_two_classes:
        raise ValueError(
            f"the release lists {len(classes)} classes, but its weights are for {rows} classes"
        )
    _check_noise(node)
    dtype = node["dtype"]
    source = node["source"]
    if dtype not in ("float32", "float64"):
        raise ValueError(f"the release's entry 'dtype' is {dtype}, not float32 or float64")
    if not isinstance(source, Mapping):
        raise ValueError(
            "the release's entry 'source' must be a mapping (key: value), but is of the type "
            f"{type(source).__name__}"
        )


def _check_noise(node: Mapping[str, Any]) -> None:
    """Raise ValueError unless release.json names a mechanism and the constants of its noise.

    Args:
        node: the content of release.json, of unknown origin.
    """
    noise = node["noise"]
    are_numbers = all(
        type(number) in (int, float) and isfinite(number) for number in noise.values()
    )
    mechanism = node.get("mechanism", mechanism_from_noise(noise))
    if not isinstance(mechanism, str) or not mechanism.isidentifier():
        raise ValueError(
            f"the release's entry 'mechanism' is {mechanism!r}, which is not the name of a "
            "mechanism"
        )
    names = set(noise)
    if "mechanism" in node:  # a mechanism of the user's own, which may have any other constants
        are_names = all(map(str.isidentifier, noise)) and not _ANSWER_METRICS & names
    else:
        are_names = names <= _NOISE_CONSTANTS
    if not {"sigma", "step"} <= names or not are_names or not are_numbers:
        raise ValueError(
            "the release's entry 'noise' must contain the numbers 'sigma' and 'step', and "
            "otherwise only constants of the mechanism"
        )


def _read_target(node: Mapping[str, Any], rows: int) -> Target:
    """Return the target of a release (classes or numbers), from the fields of release.json.

    Args:
        node: the content of release.json, of unknown origin.
        rows: the number of rows of the weights.

    Raises:
        ConfigError: the range is none.
        ValueError: there are neither at least two classes nor a range with one row of weights.
    """
    if "range" not in node:
        return read_target({"names": node["classes"]})
    low, high = node["range"]
    if not all(type(end) in (int, float) for end in (low, high)) or node["classes"] or rows != 1:
        raise ValueError(
            "the release's entry 'range' must have two numbers, and it is possible only without "
            "classes and with one row of weights"
        )
    return NumericTarget.declared((low, high))


def check_printable(dataset: Dataset, words: Sequence[str]) -> None:
    """Raise ConfigError if a release would contain control characters.

    ``Portable.read`` refuses a release that has them. This check comes before any budget is spent.

    Args:
        dataset: the dataset, whose name and classes go into the release.
        words: all sentences that go into the release.
    """
    classes = () if dataset.target.numeric is not None else dataset.classes
    for text in (dataset.name, *classes, *words):
        if not text.isprintable():
            raise ConfigError(
                f"{text!r} has control characters, which would make the release unreadable: "
                "rename the class, column or dataset, and train again"
            )


def _check_no_formulas(portable: Portable, folder: Path) -> None:
    """Raise ConfigError if a spreadsheet program would run the name of a class as a formula.

    The names of classes go into CSV files of answers. A hostile release could attack their readers.

    Args:
        portable: the release as it was read.
        folder: the folder of the release, for the message.
    """
    for name in portable.classes:
        # NFKC turns characters that look like = or + into these, as some programs do.
        cells = _CELL_END.split(normalize("NFKC", name))
        if any(_FORMULA.match(cell) for cell in cells):
            raise ConfigError(
                f"release={folder}: a spreadsheet program would read the class name {name!r} "
                "as a formula. If you trust the release, give digest=sha256:... with the "
                "digest that its publisher gave you, and agt reads it"
            )


README_TEXT = """\
# Released weights: {name}

This folder answers queries with {answers}. It holds the weights of a linear model, which was
trained on private records. Random noise was added before the weights were published (by the
mechanism `{mechanism}`). So they reveal about the people behind these records no more than the
guarantee below allows. Answers can be wrong, and the guarantee does not say how often.

## Answer queries

With agt, label the rows of a file of queries by

    agt predict release=THIS_FOLDER inputs=queries.csv

{alone}
Answers spend no privacy budget, however many there are, because each is computed from these weights
and the query alone.

## What is guaranteed, and what was declared

{words}

Sentences that begin with "declared" are statements of the publisher, which no program can check. If
one of them is false, the guarantee may not hold. `claim.json` has the claim as fields, for programs.

## Check this folder

Ask the publisher for the digest of this folder, by another way than the one by which you got the
folder. Then type

    agt verify THIS_FOLDER digest=sha256:...

agt compares each file with its hash in `manifest.json` (the SHA-256 of that file is the digest), and
recomputes the guarantee from `claim.json`. How the noise was drawn, only somebody with the
publisher's training run can check.
"""
LABEL_LINES = """\
    f = w @ np.append(x / max(np.linalg.norm(x), r["radius"], 1e-300), r["bias"])
    print(r["classes"][int(f[0] > 0) if len(f) == 1 else f.argmax()])
"""
NUMBER_LINES = """\
    f = w @ np.append(x / max(np.linalg.norm(x), r["radius"], 1e-300), r["bias"])
    low, high = r["range"]
    share = np.clip(f[0] / np.hypot(1, r["bias"]), -1, 1) / 2 + 0.5
    print(low + (high - low) * share)
"""
TABLE_LINES = """\
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
VECTOR_LINES = """\
import json, numpy as np
r, w = json.load(open("release.json", encoding="utf-8")), np.load("weights.npz")["weight"]
v = r["vectors"]
for x in np.load("queries.npz")[v["key"]]:
    x = x.astype(float).ravel() - np.ravel(v["center"])
    x = x / (np.sqrt(np.sum(x * x)) or 1.0) if v["unit_norm"] else x
    x = (x * v["scale"]).astype(np.float32).astype(float)
"""
