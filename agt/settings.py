"""Typed, frozen settings, which are checked once when they are built.

``ComputeConfig`` changes speed alone; certificates depend on all other settings. The settings of a
kind of certificate are in a file of its own (agt/models/kind.py).

Documents that programs of other people read (claims, accounts of erasures) are JSON files of a
versioned form. A form is a class of ``agt.settings.schema`` whose first entry, ``schema``, is its
version. Entries that are None are left out of the file.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from numbers import Real
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass as validated
from pydantic_core import ArgsKwargs

from agt.errors import ConfigError, Superseded, altered, counted, nearest
from agt.messages import KEYS, Message, Setting, SettingNames
from agt.parameters import ArgumentError, nearest_name
from agt.relations.names import ENTRIES
from agt.store.json_text import parse_json
from agt.store.reading import Broken
from agt.targets import imported

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

if TYPE_CHECKING:
    RelationName = str
else:
    # The names in the registry, which a type checker cannot read. The published form of a file
    # takes any name, so that a new relation does not change it; reading the file checks the name.
    RelationName = Annotated[
        Literal[tuple(ENTRIES)], WithJsonSchema({"type": "string", "pattern": "^[a-z][a-z0-9_]*$"})
    ]
OpenName = Literal["lr", "epochs", "weight_decay", "batch.count"]  # what may be ``recipe``
LossName = Literal["binary_cross_entropy", "cross_entropy", "squared_error"]  # bounds/losses.py
Accounting = Literal["rigorous", "paper"]  # whether what is not proved is refused
Counting = Literal["distance", "index"]  # what evidence counts: records, or steps of the grid
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0)]

# Public caps. Numbers beyond them are mistakes, or would leave the range in which sums are proved
# exact.
MAX_ROWS = 2**30  # rows of a batch, and rows at stake at one k: docs/proofs/sums.md
QUANTA = 2**30  # quanta in one clip level gamma: docs/proofs/sums.md
MAX_BATCHES = 10**6  # of an epoch
MAX_KS = 2**16 + 1  # values in a grid: no mechanism tells longer distances apart


def _refuse_thousands_point(value: object) -> object:
    """Return the value, or raise ValueError if it is a decimal number below 1,000.

    A German or Spanish 9.000 is the number 9 in YAML. Numbers from 1,000 on cannot come from such a
    point: 1.234.567 is no number, and 1e5 is one hundred thousand.
    """
    if isinstance(value, float) and value < 1000:
        thousands = round(1000 * value)
        raise ValueError(
            f"write all digits without a point, {thousands} if the point separates thousands, "
            f"because a number with a point is a decimal number ({value:g})"
        )
    return value


DeclaredSize = Annotated[int, BeforeValidator(_refuse_thousands_point), Field(ge=1, le=MAX_ROWS)]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
RECIPE: Final = "recipe"
_PLACEHOLDERS = {"lr": 1.0, "epochs": 1, "weight_decay": 0.0}
"""Setting that may be ``recipe`` -> a valid number until the recipe's value is known."""
T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def schema(cls: type[T]) -> type[T]:
    """Make a class of settings: a frozen dataclass that checks keys and values when it is built.

    Building it raises ConfigError for a mistake.
    """
    return _raising_config_errors(validated(frozen=True, config=STRICT)(cls))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
def keyword_schema(cls: type[T]) -> type[T]:
    """Make a class of settings like ``schema``, built from named values only.

    A class that inherits settings with defaults needs it to add settings without defaults.
    """
    return _raising_config_errors(validated(frozen=True, kw_only=True, config=STRICT)(cls))


def _raising_config_errors(cls: Any) -> Any:
    """Make building a class of settings raise ConfigError, with agt's messages, for a mistake."""
    build = cls.__init__
    names = [entry.name for entry in fields(cls) if entry.init]

    @wraps(build)
    def __init__(self: Any, *values: Any, **settings: Any) -> None:
        _refuse_other_than_numbers(cls, {**dict(zip(names, values, strict=False)), **settings})
        try:
            build(self, *values, **settings)
        except ValidationError as error:
            kinds = {entry["type"] for entry in error.errors()}
            mistake = ArgumentError if _UNKNOWN_KEY in kinds else ConfigError
            raise mistake(_explain(cls, error, cls.__name__)) from None

    cls.__init__ = __init__
    return cls


def _refuse_other_than_numbers(cls: Any, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError if a program gives true, false or text for a number.

    In configurations text is allowed, because YAML and the command line write numbers as text.

    Args:
        cls: the class of settings.
        settings: its settings by name, unknown ones too.
    """
    for key, value in settings.items():
        entry = cls.__dataclass_fields__.get(key)
        if entry is None or not _is_number_type(entry.type):
            continue
        is_text = isinstance(value, str | bytes)
        is_allowed_word = isinstance(value, str) and value in _words_of(entry.type)
        # NumPy has a type of its own for true and false.
        is_boolean = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
        if is_boolean or (is_text and not is_allowed_word):
            raise ConfigError(f"{cls.__name__}.{key}: expected a number, got {_shown(value)}")


def _is_number_type(kind: Any) -> bool:
    """Return whether a type is of numbers, perhaps in a union with None and literal words."""
    if get_origin(kind) is Annotated:
        return _is_number_type(get_args(kind)[0])
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        members = [member for member in get_args(kind) if member is not NoneType]
        members = [member for member in members if get_origin(member) is not Literal]
        return bool(members) and all(map(_is_number_type, members))
    return kind in (int, float)


def _words_of(kind: Any) -> tuple[Any, ...]:
    """Return the literal words that a union type allows instead of a number, such as ``recipe``."""
    if not (isinstance(kind, UnionType) or get_origin(kind) is Union):
        return ()
    literals = [member for member in get_args(kind) if get_origin(member) is Literal]
    return tuple(word for literal in literals for word in get_args(literal))


def accepting_removed(**unused: object) -> Any:
    """Return a validator of a class of settings that drops settings of earlier versions.

    Args:
        unused: setting -> the value that had no effect; the validator drops it. It raises
            Superseded for another value, because results with that value cannot be reproduced.
    """

    def drop_removed(cls: type, values: Any) -> Any:
        """Return the values that pydantic builds the class from, without removed settings."""
        given = values.kwargs if isinstance(values, ArgsKwargs) else values
        if not isinstance(given, Mapping):
            return values
        for key, value in unused.items():
            if key in given and given[key] != value:
                raise Superseded(
                    f"{key}={given[key]}: earlier versions of agt had this setting, but this "
                    "version does not: leave this setting out"
                )
        settings = {key: value for key, value in given.items() if key not in unused}
        return ArgsKwargs(values.args, settings) if isinstance(values, ArgsKwargs) else settings

    return model_validator(mode="before")(drop_removed)


@schema
class KGridConfig:
    """The values of k: every integer 0..max (dense), or the values listed.

    A privacy guarantee needs the dense grid; on a listed one only the index is 1-Lipschitz
    (reference.md section 3a).
    """

    max: Annotated[int, Field(ge=0)] | None = None
    values: tuple[Annotated[int, Field(ge=0, le=MAX_ROWS)], ...] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless there is exactly one grid, without repetition, not too long."""
        if (self.max is None) == (self.values is None):
            both = ": for a list, give kgrid=sparse as well" if self.values else ""
            raise ValueError(
                "give exactly one of kgrid.max (every integer k from 0 to max) and "
                f"kgrid.values (a list){both}"
            )
        if self.max is not None and self.max >= MAX_KS:
            raise ValueError(
                f"max={self.max} asks for every integer k up to {self.max}, but at "
                f"most {MAX_KS} values of k are possible: use max={MAX_KS - 1} or "
                "less, or list some values of k"
            )
        if self.values is not None:
            if not self.values:
                raise ValueError("values is empty")
            if len(self.values) > MAX_KS:
                raise ValueError(
                    f"kgrid.values has {len(self.values)} entries, but at most {MAX_KS} "
                    "values of k are possible: list fewer"
                )
            repeated = sorted(k for k, times in Counter(self.values).items() if times > 1)
            if repeated:
                raise ValueError(f"values repeats {repeated[0]}")

    @property
    def ks(self) -> tuple[int, ...]:
        """The grid in increasing order."""
        if self.max is not None:
            return tuple(range(self.max + 1))
        return tuple(sorted(self.values or ()))

    @property
    def dense(self) -> bool:
        """True if the grid is every integer from 0 to its largest value."""
        return self.ks == tuple(range(len(self.ks)))


@schema
class RelationConfig:
    """The neighbour relation between datasets (reference.md section 2).

    Attributes:
        name: the name of the relation.
        unit_rows: the public cap on the rows of one unit.
        radius: a public constant, the largest change of each feature on the scale on which the head
            takes it; None: the relation changes no features.
    """

    name: RelationName
    unit_rows: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 1
    radius: Positive | None = None

    def __post_init__(self) -> None:
        if ENTRIES[self.name].takes_radius != (self.radius is not None):
            takers = [name for name, entry in ENTRIES.items() if entry.takes_radius]
            raise ValueError(
                Message(
                    "{config:relation.radius} must be given for {config:relation}={takers}, and "
                    "for no other relation. It is a public constant that says by how much each "
                    "feature may change, in the scale in which the model takes the features",
                    takers=" or ".join(takers),
                )
            )


@schema
class BatchConfig:
    """How records are divided into batches; all settings are public constants.

    Attributes:
        count: batches per epoch; a record's batch is a keyed hash of its unit's id.
        normalizer: B, the number that a summed gradient is divided by; None: declared_size / count.
        n_max: the largest number of records in a batch; None: 1.1 B + 6 sqrt(B), rounded up.
        key: the public key of the hash.
    """

    count: Annotated[int, Field(ge=1, le=MAX_BATCHES)] = 1
    normalizer: Annotated[float, Field(ge=1e-6, le=MAX_ROWS)] | None = None
    n_max: Annotated[int, Field(ge=1, le=MAX_ROWS)] | None = None
    key: str = "agt"


@schema
class ChosenFrom:
    """The public rows that settings were chosen on, as the user declares.

    Attributes:
        rows: "test", the test records with their labels; "train", training records marked public;
            or a file, relative to the working directory.
        digest: the digest of those rows with the features that the dataset makes of them
            (data/embeddings.py, ``public_digest``).
    """

    rows: str
    digest: str


@schema
class TrainingConfig:
    """Settings of SGD with momentum, decoupled weight decay and clipped gradients.

    The learning rate at step n is max(lr / (1 + decay n), lr_min).

    ``lr``, ``epochs``, ``weight_decay`` and ``batch.count`` of a linear head may be ``recipe``:
    they are then computed from public constants once the data are declared (training/strength.py).
    Until then ``by_recipe`` lists them, and their values are placeholders (1, or 0 for the decay).
    ``TrainingSetup`` refuses settings with placeholders.

    Attributes:
        clip: gamma, the elementwise clip level of each record's gradient.
        by_recipe: the settings that the recipe computes.
        caution: a factor on the recipe's strength: at 2, stable distances are about twice as long,
            and accuracy is lower.
        product: how two intervals are multiplied: by the exact four corners, or by Rump's
            midpoint-radius method.
        decay_mode: whether weight decay is applied beside the gradient (``decoupled``) or added to
            it (``coupled``, which is refused with momentum).
        chosen_on: the data that these settings were chosen on, as the user declares: "public" data
            or constants, or the training or test "data" itself; "recipe": they are the recipe's,
            unchanged, which is checked; None: it was not declared, so condition e does not hold.
        chosen_for: the settings that ``chosen_on`` is about (agt_cli/choices.py); it does not cover
            others. With votes by the recipe: the version of the recipe.
        chosen_from: the public rows that ``chosen_on`` is about; if they have changed, it covers
            nothing. None: it names none.
    """

    loss: LossName
    epochs: Annotated[int, Field(ge=1, le=10**5)]
    lr: Annotated[float, Field(gt=0, le=1e6)]
    clip: Annotated[float, Field(ge=1e-9, le=1e9)]
    decay: NonNegative = 0.0
    lr_min: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    dampening: Annotated[float, Field(ge=0, le=1)] = 0.0
    nesterov: bool = False
    weight_decay: NonNegative = 0.0
    decay_mode: Literal["decoupled", "coupled"] = "decoupled"
    batch: BatchConfig = Field(default_factory=BatchConfig)
    product: Literal["exact", "rump"] = "exact"
    dtype: Literal["float64", "float32"] = "float64"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    chosen_on: Literal["public", "data", "recipe"] | None = None
    chosen_for: Mapping[str, str] | None = None
    chosen_from: ChosenFrom | None = None
    by_recipe: tuple[OpenName, ...] = ()
    caution: Positive = 1.0

    @model_validator(mode="before")
    @classmethod
    def _leave_open(cls, values: Any) -> Any:
        """Return the values with placeholders for settings that are ``recipe``.

        ``by_recipe`` then lists these settings. The recipe's numbers depend on public constants
        that are not known yet, so placeholders pass the checks of numbers until they are resolved.

        Args:
            values: the settings by name, as pydantic has them before it checks them.
        """
        given = values.kwargs if isinstance(values, ArgsKwargs) else values
        if not isinstance(given, Mapping):
            return values
        settings = dict(given)
        by_recipe: list[str] = []
        for name, placeholder in _PLACEHOLDERS.items():
            if given.get(name) == RECIPE:
                settings[name] = placeholder
                by_recipe.append(name)
        batch = given.get("batch")
        if isinstance(batch, Mapping) and batch.get("count") == RECIPE:
            settings["batch"] = {**batch, "count": 1}
            by_recipe.append("batch.count")
        if not by_recipe:
            return values
        settings["by_recipe"] = tuple(by_recipe)
        return ArgsKwargs(values.args, settings) if isinstance(values, ArgsKwargs) else settings

    def __post_init__(self) -> None:
        """Raise ValueError for momentum and weight decay that the bounds do not cover."""
        if self.nesterov and (self.dampening or not self.momentum):
            raise ValueError(
                "nesterov=true needs training.momentum above 0 and training.dampening=0"
            )
        if self.dampening and not self.momentum:
            raise ValueError("dampening above 0 needs training.momentum above 0")
        if self.decay_mode == "coupled" and self.momentum:
            raise ValueError(
                "decay_mode=coupled: agt's bounds would be wrong, because the weight decay is "
                "added to the gradient before momentum is applied (docs/reference.md section 2): "
                "use decay_mode=decoupled"
            )
        product = max(self.lr, self.lr_min) * self.weight_decay
        if product > 1:
            raise ValueError(
                f"lr * weight_decay = {product:g} exceeds 1, so the decay factor 1 - lr * "
                "weight_decay would be negative and swap lower and upper bounds: lower lr or "
                "weight_decay"
            )


PublicRows = Literal["test", "train"]
"""Rows that somebody declared public: the test records, or training records marked public."""


@schema
class FeaturesConfig:
    """Public features phi(x) of norm at most 1 in front of a linear head (models/features.py);
    every setting is public.

    Attributes:
        map: none; relu: max(W x, 0) with a random W; landmarks: a Gaussian kernel's values at
            public rows; scattering: averages of wavelets' moduli, of square images
            (models/scattering.py).
        count: how many random features or landmarks; null for none and scattering.
        bandwidth: landmarks: the length over which the kernel decays, where records have length 1.
        seed: public seed of W, of the choice of landmarks.
        whiten: p: x -> cov^(-p/2) x before anything else, cov being public rows' covariance; 0:
            nothing, 1: whitening.
        public: the rows that are declared public for whitening, landmarks, and the center of
            scattering features: "test", the dataset's test records without their labels, or
            "train", training records that are marked public.
        ridge: share of the mean variance added to the covariance, and to the kernel of ``root``.
        radius: null: every vector is brought to length 1; else vectors are divided by it, and
            longer ones brought to 1.
        bias: the bias coordinate, relative to a vector of length 1.
        root: landmarks: p: their values are multiplied by K^(-p/2), K their own kernel; 0: nothing,
            1: Nystroem's map.
    """

    map: Literal["none", "relu", "landmarks", "scattering"] = "none"
    count: Annotated[int, Field(ge=2, le=2**20)] | None = None
    bandwidth: Positive = 1.0
    seed: Annotated[int, Field(ge=0)] = 0
    whiten: Annotated[float, Field(ge=0, le=1)] = 0.0
    public: PublicRows | None = None
    ridge: Annotated[float, Field(ge=0, le=1)] = 1e-3
    radius: Positive | None = None
    bias: Annotated[float, Field(ge=0, le=10)] = 0.1
    root: Annotated[float, Field(ge=0, le=1)] = 1.0

    _earlier = accepting_removed(order=2, weight=1.0)

    @field_validator("map", mode="before")
    @classmethod
    def _refuse_removed_map(cls, name: object) -> object:
        """Return the name of a map; raise Superseded if only earlier versions had this map."""
        if isinstance(name, str) and name in REMOVED_MAPS:
            raise Superseded(
                Message(
                    "{config:features.map}={name}: earlier versions of agt had this map, but "
                    "this version does not: use {instead}",
                    name=name,
                    instead=REMOVED_MAPS[name],
                )
            )
        return name

    def __post_init__(self) -> None:
        """Raise ValueError if a setting that the map needs is missing, or one is given in vain."""
        counted = self.map in DEFAULT_FEATURE_COUNTS
        if not counted and self.count is not None:
            raise ValueError(
                f"features.count is only for the maps relu and landmarks: with map={self.map}, "
                "set count=null"
            )
        if counted and self.count is None:
            raise ValueError(
                f"features.count is missing: give the number of features that map={self.map} "
                f"makes, such as count={DEFAULT_FEATURE_COUNTS[self.map]}"
            )
        if self.map == "landmarks" and self.public is None:
            raise ValueError(
                "map=landmarks needs public rows: give public=test (the test records, without "
                "their labels) or public=train (training records marked public)"
            )
        reads_public_rows = bool(self.whiten or self.map == "landmarks" or self.centers)
        if reads_public_rows != (self.public is not None):
            raise ValueError(
                "whitening needs public rows: give both features.whiten above 0 and "
                "features.public, or neither"
            )

    @property
    def centers(self) -> bool:
        """Whether the mean of public rows' scattering features is subtracted from all records'.

        Public rows of a map that whitens before scattering are read for the covariance only.
        """
        return self.map == "scattering" and self.public is not None and not self.whiten


DEFAULT_FEATURE_COUNTS = {"relu": 1024, "landmarks": 512}
"""What a map asked for by its name alone makes, as in conf/certificate/features."""
REMOVED_MAPS = {"fourier": "landmarks", "crosses": "dataset.crosses of a table"}
"""Maps of earlier versions -> what to use instead."""


@schema
class ComputeConfig:
    """Settings that change speed and memory alone, never a certificate's validity.

    Attributes:
        device: cpu or cuda.
        kernel: who sums gradients; auto takes the fastest that this device has.
        fragment: records handled at once; auto fits it to ``memory_mb``.
        memory_mb: working memory for one fragment, MiB; small enough for the caches is fastest on a
            CPU. On a GPU it is the card's, and the records have a share of their own
            (training/batches.py).
        threads: CPU threads; None: all.
        checkpoint_seconds: between two checkpoints (training/checkpoint.py); None: as often as they
            cost little; 0: none.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    kernel: Literal["auto", "reference", "cpu", "gpu"] = "auto"
    fragment: Count | Literal["auto"] = "auto"
    memory_mb: Annotated[int, Field(ge=16)] = 256
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    checkpoint_seconds: NonNegative | None = None


@schema
class TotalConfig:
    """The privacy budget of the whole call, for all of its queries together.

    Attributes:
        eps: all queries together are (eps, delta)-DP; None: the mechanism states a budget per
            query.
        delta: see ``eps``.
        queries: a public maximum number of queries, over which the budget is divided; None: the
            number of queries in the file, which is taken to be public.
    """

    eps: Positive | None = None
    delta: Annotated[NonNegative, Field(lt=1)] = 0.0
    queries: Annotated[int, Field(ge=1)] | None = None


def validate(cls: type[T], node: object, where: str) -> T:
    """Build a class of settings from a plain mapping.

    Args:
        cls: a (pydantic) dataclass.
        node: a mapping of field names to values.
        where: the key of the mapping, for messages; empty: the mapping of all keys.

    Raises:
        ConfigError: a key is unknown or missing, or a value is wrong. The message names the key and
            proposes the most similar one.
    """
    if not isinstance(node, Mapping):
        raise ConfigError(
            Message(
                "{setting}: expected a mapping of settings (key: value), got {node!r}",
                setting=Setting(where),
                node=node,
            )
        )
    _refuse_booleans(cls, node, where)
    try:
        return TypeAdapter(cls).validate_python(dict(node))
    except ValidationError as error:
        raise ConfigError(_explain(cls, error, where)) from None


def _refuse_booleans(cls: Any, node: Mapping[Any, Any], where: str) -> None:
    """Raise ConfigError for true, false or an empty path where it would pass as another value.

    Python takes true and false as the numbers 1 and 0, and an empty path as the working directory.

    Args:
        cls: the class of settings.
        node: its settings by name, and those of the groups inside of it.
        where: the key of the group, for messages.
    """
    for key, value in node.items():
        entry = getattr(cls, "__dataclass_fields__", {}).get(key)
        if entry is None:
            continue
        kind = str(entry.type)
        path = f"{where}.{key}" if where else str(key)
        if value == "" and "Path" in kind:
            raise ConfigError(f"{path}= is empty: give a path, or leave it out")
        takes_numbers = ("int" in kind or "float" in kind) and "bool" not in kind
        if takes_numbers and isinstance(value, bool):
            shown = str(value).lower()
            raise ConfigError(
                Message(
                    "{setting}: expected a number, got {shown}", setting=Setting(path), shown=shown
                )
            )
        if isinstance(value, Mapping) and hasattr(entry.type, "__dataclass_fields__"):
            _refuse_booleans(entry.type, value, path)


_UNKNOWN_KEY = "unexpected_keyword_argument"
"""Pydantic's type of an error about a key that does not exist."""
_LIMITS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
"""Pydantic's name of a limit on a number -> the words that a message has before it."""
_PROBLEMS = {  # pydantic's type of an error -> a sentence that users understand
    "tuple_type": "expected a list such as [1, 2]",
    "path_type": "expected a path",
    "dataclass_type": "expected a mapping of settings (key: value)",
    "mapping_type": "expected a mapping",
    "string_type": "expected text",
    "int_parsing": "expected a whole number, without thousands separators",
    "int_from_float": "expected a whole number",
    "int_type": "expected a whole number",
    "float_parsing": "expected a number, without thousands separators",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
}


def _shown(value: object) -> str:
    """Return a value as a message shows it, cut where it would fill a screen.

    A number of NumPy is shown as Python's own: 1 instead of np.int64(1).
    """
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()  # type: ignore[attr-defined]
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a number with thousands of digits"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _explain(cls: Any, error: ValidationError, where: str) -> Message:
    """Return a message about the first of the mistakes that pydantic found.

    Args:
        cls: the class of settings.
        error: pydantic's error.
        where: the key of the settings; empty: the mapping of all keys.
    """
    errors = error.errors()
    # An unknown key comes first, because it may be the reason why another key is missing.
    first = next((entry for entry in errors if entry["type"] == _UNKNOWN_KEY), errors[0])
    keys = [where, *(str(part) for part in first["loc"] if _is_key(part))]
    path = ".".join(filter(None, keys)) or "settings"
    problem = _problem_of(cls, first, path)
    template = "{setting}: {problem}"
    is_one_value = isinstance(first.get("input"), int | float | str)
    if first["type"] == "tuple_type" and is_one_value and ".." not in str(first["input"]):
        template = "{setting}: {problem}: give {setting}=[{value}]"
    value = _proposed_entries(first.get("input"))
    return Message(template, setting=Setting(path), problem=problem, value=value)


def _proposed_entries(value: object) -> object:
    """Return the entries of the list that a message proposes instead of a single value.

    100k and 2M become whole numbers, and no or none becomes nothing (an empty list).
    """
    if isinstance(value, str) and value.casefold() in ("no", "none"):
        return ""
    written = re.fullmatch(r"(\d+)([kM])", value) if isinstance(value, str) else None
    if written is None:
        return value
    digits, unit = written.groups()
    return int(digits) * {"k": 10**3, "M": 10**6}[unit]


class _UnknownKey(Message):
    """A message that a group of settings has no such key, with the keys that it has.

    Args:
        path: the key with those of its groups, of which the last part is unknown.
        fields: the names of the group's settings.
    """

    def __init__(self, path: str, fields: Sequence[str]) -> None:
        super().__init__("unknown key")
        self.group, _, self.key = path.rpartition(".")
        self.fields = fields

    def text(self, names: SettingNames = KEYS) -> str:
        known = [key for field in self.fields for key in names.keys_in(self.group, field)]
        return f"{self.template}{nearest_name(self.key, known)}"


def _problem_of(cls: Any, entry: Mapping[str, Any], path: str) -> str | Message:
    """Return what is wrong with one value, for a message.

    Args:
        cls: the class of settings.
        entry: pydantic's description of the mistake.
        path: the key of the value.
    """
    kind = entry["type"]
    value = entry.get("input")
    if kind == "missing":
        return _missing_value(str(entry["loc"][-1]), value)
    if kind == _UNKNOWN_KEY:
        return _UnknownKey(path, _fields(cls, entry["loc"]))
    if kind == "literal_error":
        choices = entry["ctx"]["expected"].replace(" or ", ", ").split(",")
        known = [choice.strip("' ") for choice in choices]
        return f"unknown value '{value}'{nearest(str(value), known)}"
    shown = _shown(value)
    if kind == "tuple_type" and isinstance(value, int | float | str):
        return f"expected a list, got {shown}"
    # A class's own check raised an error, whose message may name settings.
    own_error = entry.get("ctx", {}).get("error")
    own_text = own_error.args[0] if isinstance(own_error, ValueError) and own_error.args else None
    own_message = own_text if isinstance(own_text, Message) else None
    problem = own_message or _PROBLEMS.get(kind) or _plain_words(entry)
    if isinstance(value, dict) or "ArgsKwargs" in shown:
        return problem
    return Message("{problem}, got {shown}", problem=problem, shown=shown)


def _missing_value(name: str, given: object) -> str:
    """Return what is wrong if a setting has no value, for a message.

    Args:
        name: the setting.
        given: pydantic's input. If values were given by position, it is an ``ArgsKwargs`` with
            them.
    """
    positional = given.args if isinstance(given, ArgsKwargs) else ()
    if not positional:
        return "this setting is required: give a value"
    if len(positional) > 1:
        return "settings are given by name: write NAME=VALUE for each value"
    return f"this setting is given by name: write {name}={_shown(positional[0])}"


def _plain_words(entry: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, in agt's words instead of pydantic's.

    Args:
        entry: pydantic's description of the mistake.
    """
    context = entry.get("ctx", {})
    if entry["type"] == "too_short":
        return f"needs at least {counted(context['min_length'], 'entry', 'entries')}"
    for key, limit in context.items():
        if key in _LIMITS and isinstance(limit, int | float):
            shown = str(limit) if isinstance(limit, int) else f"{limit:.15g}"
            return f"must be {_LIMITS[key]} {shown}"
    sentence: str = entry["msg"].removeprefix("Value error, ")
    return sentence.replace("Input should be", "must be").replace("String should", "must")


def _is_key(part: int | str) -> bool:
    """Return whether a part of pydantic's location is a key or the index of a list's entry.

    Others are pydantic's names for members of a union (``constrained-int``, ``literal['auto']``).
    """
    if isinstance(part, int):
        return True
    return part.isidentifier() and part not in ("int", "float", "str", "bool")


def _fields(cls: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Return the names of the settings in the group that an unknown key was given in.

    Args:
        cls: the class of all settings.
        loc: pydantic's location of the key, from the outermost group on.
    """
    for part in loc[:-1]:
        # Other parts are indices of a list, or tags of a union.
        if part in cls.__dataclass_fields__:
            cls = _settings_in(cls.__dataclass_fields__[part].type)
    return [entry.name for entry in fields(cls)]  # without class variables


def _settings_in(kind: Any) -> Any:
    """Return the class of settings that a type is, or a list or mapping of; None: there is none."""
    # The arguments of Annotated are values, which may be instances of dataclasses of pydantic.
    if isinstance(kind, type) and is_dataclass(kind):
        return kind
    return next(filter(None, map(_settings_in, get_args(kind))), None)


def check_choice(value: object, choices: Any, where: str) -> None:
    """Raise ConfigError unless an argument is one of the choices of a Literal type.

    Args:
        value: the argument.
        choices: the Literal type.
        where: what messages call the argument.
    """
    if value not in get_args(choices):
        raise ConfigError(
            f"{where}: unknown value {value!r}{nearest(str(value), get_args(choices))}"
        )


def check_number(value: object, where: str) -> None:
    """Raise ConfigError unless an argument is a real number; ``where`` is its name in messages."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{where}={value!r}: give a number")


def build(node: object, where: str) -> Any:
    """Build the class of settings that ``_target_`` names (of a dataset or a model).

    Args:
        node: a mapping with ``_target_``, the full name of the class, and its settings.
        where: the key of the mapping, for messages.

    Raises:
        ConfigError: there is no ``_target_``, it cannot be imported or is no class of settings, or
            a setting is wrong.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(
            f"{where}: expected a mapping with the entry '_target_', got {node!r}. Give the class "
            "of the settings as '_target_'"
        )
    settings = dict(node)
    name = str(settings.pop("_target_"))
    target = imported(name, where)
    # Only classes of settings are called, because a function could do anything.
    if not (isinstance(target, type) and is_dataclass(target)):
        raise ConfigError(
            f"{where}._target_: '{name}' is not a dataclass of settings. Give a dataclass that "
            "agt.settings.schema made"
        )
    return validate(target, settings, where)


def default_n_max(normalizer: float) -> int:
    """Return the default cap on a batch's size, 1.1 B + 6 sqrt(B) rounded up (reference.md 3c).

    Args:
        normalizer: B, the public number that a summed gradient is divided by.
    """
    return math.ceil(1.1 * normalizer + 6 * math.sqrt(normalizer))


def plain_of(value: Any) -> dict[str, Any]:
    """Return an object of a class of settings as JSON values, without entries that are None."""
    return _adapter(value.__class__).dump_python(value, mode="json", exclude_none=True)


def content_of(value: Any) -> bytes:
    """Return the bytes of a document's file, which are equal for equal values."""
    text = json.dumps(plain_of(value), indent=2, allow_nan=False, ensure_ascii=False)
    return f"{text}\n".encode()


def read_document(
    cls: type[T],
    content: bytes,
    version: str,
    name: str,
    key: str,
    of_earlier: Callable[[dict[str, Any]], dict[str, Any]] = lambda node: node,
) -> T:
    """Read a document that ``content_of`` wrote.

    Args:
        cls: the class of settings that is its form.
        content: the bytes of the file.
        version: the version of the form that is read.
        name: what messages call such a document, for example "a claim".
        key: the key that messages put before the names of its entries, for example "claim".
        of_earlier: makes a document of ``version`` from one of an earlier version, and returns
            others unchanged.

    Raises:
        ConfigError: the content has another version, is no JSON, or has NaN or infinity; or an
            entry is unknown, missing, out of range, or not written as ``content_of`` writes it.
    """
    try:
        node = parse_json(content, name)
    except Broken as error:
        raise ConfigError(str(error)) from None
    node = of_earlier(node) if isinstance(node, dict) else {}
    if node.get("schema") != version:
        raise ConfigError(
            f"{name} has version {node.get('schema')!r}, but this version of agt reads {version}: "
            "use the version of agt that wrote the file"
        )
    value = validate(cls, node, key)
    difference = _difference(node, plain_of(value))
    if difference:
        raise ConfigError(altered(name, difference))
    return value


def _difference(node: Any, expected: Any, path: str = "") -> str:
    """Return where a JSON value first differs from the one that agt would have written.

    true differs from 1, and 3.0 from 3; but a whole number may be written for a float.

    Args:
        node: the value in the file.
        expected: the value that agt would have written.
        path: the entry of the document that is compared, such as ".total.eps".

    Returns:
        A text with both values, for a message; empty: they are equal.
    """
    if isinstance(node, Mapping) and isinstance(expected, Mapping):
        for key in {**expected, **node}:
            if (key in expected) != (key in node):
                return f"{path}.{key} = {node.get(key)!r}".removeprefix(".")
        entries = [(f"{path}.{key}", node[key], expected[key]) for key in expected]
    elif isinstance(node, list | tuple) and isinstance(expected, list | tuple):
        if len(node) != len(expected):
            return _unequal(node, expected, path)
        pairs = enumerate(zip(node, expected, strict=True))
        entries = [(f"{path}[{index}]", entry, other) for index, (entry, other) in pairs]
    else:
        has_other_type = isinstance(node, bool) != isinstance(expected, bool)
        is_float_of_integer = isinstance(expected, int) and isinstance(node, float)
        if has_other_type or is_float_of_integer or node != expected:
            return _unequal(node, expected, path)
        return ""
    differences = (_difference(entry, other, where) for where, entry, other in entries)
    return next(filter(None, differences), "")


def _unequal(node: Any, expected: Any, path: str) -> str:
    """Return the text that one entry of a document is not the one that agt would have written."""
    entry = path.removeprefix(".")
    return f"the entry {entry} is {node!r}, but agt would have written {expected!r}"


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    """Return pydantic's adapter of a class, which is slow to build and so is cached."""
    return TypeAdapter(cls)
