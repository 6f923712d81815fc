"""Typed, frozen configuration, validated once at the border; nothing below the commands sees a
DictConfig.

``ComputeConfig`` changes speed alone; certificates depend on all the others. The settings of a kind
of certificate stand in its own file (agt/models/kind.py).

Values as JSON files of a versioned form, which programs of other people read: claims, accounts of
erasures.

A form is a class of ``agt.settings.schema`` whose first entry, ``schema``, is its version. What is
None is left out.
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

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)

if TYPE_CHECKING:
    RelationName = str
else:
    # Of the registry, which a type checker cannot read. A file's form takes any name, so that a new
    # relation changes no published form; whoever reads the file checks the name.
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
MOST_ROWS = 2**30  # rows of a batch, and rows at stake at one k: docs/proofs/sums.md
QUANTA = 2**30  # quanta in one clip level gamma: docs/proofs/sums.md
MOST_BATCHES = 10**6  # of an epoch
MOST_KS = 2**16 + 1  # values in a grid: no mechanism tells longer distances apart


def _no_thousands_point(value: object) -> object:
    # A German or Spanish 9.000 is the number 9 in YAML. Numbers from 1000 on cannot come from such
    # a point: 1.234.567 is no number, and 1e5 is one hundred thousand.
    if isinstance(value, float) and value < 1000:
        raise ValueError(
            f"{value:g} was written with a decimal point: write all digits (9000 for nine "
            "thousand, because 9.000 is the number 9)"
        )
    return value


DeclaredSize = Annotated[int, BeforeValidator(_no_thousands_point), Field(ge=1, le=MOST_ROWS)]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
RECIPE: Final = "recipe"
_PENDING = {"lr": 1.0, "epochs": 1, "weight_decay": 0.0}
T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def schema(cls: type[T]) -> type[T]:
    """A class of settings: a frozen dataclass whose keys and values are checked when it is built
    (ConfigError).
    """
    return _explaining(validated(frozen=True, config=STRICT)(cls))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
def keyword_schema(cls: type[T]) -> type[T]:
    """The same, its values given by name alone: for classes that inherit some."""
    return _explaining(validated(frozen=True, kw_only=True, config=STRICT)(cls))


def _explaining(cls: Any) -> Any:
    """Where a program builds it, a mistake is a ConfigError, as it is in a configuration."""
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
    """Refuse true, false and text where a program gives them for a number: text is for
    configurations.
    """
    for key, value in settings.items():
        entry = cls.__dataclass_fields__.get(key)
        # NumPy has its own
        is_boolean = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
        if (
            entry is not None
            and (is_boolean or isinstance(value, str | bytes))
            and not (isinstance(value, str) and value in _words_of(entry.type))
            and _is_number_type(entry.type)
        ):
            raise ConfigError(f"{cls.__name__}.{key}: expected a number, got {_shown(value)}")


def _is_number_type(kind: Any) -> bool:
    """Return whether values of a type are numbers, or None, or a word in the place of a number."""
    if get_origin(kind) is Annotated:
        return _is_number_type(get_args(kind)[0])
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        others = [
            member
            for member in get_args(kind)
            if member is not NoneType and get_origin(member) is not Literal
        ]
        return bool(others) and all(_is_number_type(member) for member in others)
    return kind in (int, float)


def _words_of(kind: Any) -> tuple[Any, ...]:
    """Return the words that a union allows in the place of a number, such as ``recipe``."""
    if not (isinstance(kind, UnionType) or get_origin(kind) is Union):
        return ()
    literals = [member for member in get_args(kind) if get_origin(member) is Literal]
    return tuple(word for literal in literals for word in get_args(literal))


def accepting_removed(**unused: object) -> Any:
    """Return a validator of a class of settings that drops those that earlier versions recorded.

    Args:
        unused: setting -> the value that asked for nothing, and is dropped. Another value raises
            Superseded, since what was made with it cannot be read.
    """

    def drop_removed(cls: type, values: Any) -> Any:
        given = values.kwargs if isinstance(values, ArgsKwargs) else values
        if not isinstance(given, Mapping):
            return values
        for key, value in unused.items():
            if key in given and given[key] != value:
                raise Superseded(
                    f"{key}={given[key]}: earlier versions of agt had this setting, but this "
                    "version does not: leave this setting out"
                )
        kept = {key: value for key, value in given.items() if key not in unused}
        return ArgsKwargs(values.args, kept) if isinstance(values, ArgsKwargs) else kept

    return model_validator(mode="before")(drop_removed)


@schema
class KGridConfig:
    """The values of k: every integer 0..max (dense), or the values listed.

    A privacy guarantee needs the dense grid; on a listed one only the index is 1-Lipschitz
    (reference.md section 3a).
    """

    max: Annotated[int, Field(ge=0)] | None = None
    values: tuple[Annotated[int, Field(ge=0, le=MOST_ROWS)], ...] | None = None

    def __post_init__(self) -> None:
        if (self.max is None) == (self.values is None):
            both = ": for a list, give kgrid=sparse as well" if self.values else ""
            raise ValueError(
                "give exactly one of kgrid.max (every integer k from 0 to max) and "
                f"kgrid.values (a list){both}"
            )
        if self.max is not None and self.max >= MOST_KS:
            raise ValueError(
                f"max={self.max} asks for every integer k up to {self.max}, but at "
                f"most {MOST_KS} values of k are possible: use max={MOST_KS - 1} or "
                "less, or list some values of k"
            )
        if self.values is not None:
            if not self.values:
                raise ValueError("values is empty")
            if len(self.values) > MOST_KS:
                raise ValueError(
                    f"kgrid.values has {len(self.values)} entries, but at most {MOST_KS} "
                    "values of k are possible: list fewer"
                )
            repeated = sorted(k for k, times in Counter(self.values).items() if times > 1)
            if repeated:
                raise ValueError(f"values repeats {repeated[0]}")

    @property
    def ks(self) -> tuple[int, ...]:
        """The grid in increasing order."""
        return (
            tuple(range(self.max + 1)) if self.max is not None else tuple(sorted(self.values or ()))
        )

    @property
    def dense(self) -> bool:
        """True if the grid is every integer from 0 to its largest value."""
        return self.ks == tuple(range(len(self.ks)))


@schema
class RelationConfig:
    """Which datasets count as neighbours, and how many rows one unit may have (reference.md section
    2).

    Attributes:
        radius: by how much each feature may move, as the head takes it; a public constant. None:
            the relation lets none.
    """

    name: RelationName
    unit_rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 1
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
    """How records are laid into batches; all of it public constants.

    Attributes:
        count: batches per epoch; a record's batch is a keyed hash of its unit's id.
        normalizer: B, what a summed gradient is divided by; None: declared_size / count.
        n_max: no batch may hold more records; None: 1.1 B + 6 sqrt(B), rounded up.
        key: the public key of the hash.
    """

    count: Annotated[int, Field(ge=1, le=MOST_BATCHES)] = 1
    normalizer: Annotated[float, Field(ge=1e-6, le=MOST_ROWS)] | None = None
    n_max: Annotated[int, Field(ge=1, le=MOST_ROWS)] | None = None
    key: str = "agt"


@schema
class ChosenFrom:
    """The public rows that settings were chosen on, as whoever chose them declares.

    Attributes:
        rows: "test", the test records with their labels; "train", training records marked public;
            or a file, relative to the working directory.
        digest: of those rows, as the dataset makes their features (data/embeddings.py,
            ``public_digest``).
    """

    rows: str
    digest: str


@schema
class TrainingConfig:
    """SGD: learning rate max(lr / (1 + decay n), lr_min) at step n, momentum, decoupled weight
    decay, clip level.

    ``lr``, ``epochs``, ``weight_decay`` and ``batch.count`` of a linear head may be ``recipe``:
    computed from public constants once the data is declared (training/strength.py). They are listed
    in ``by_recipe``, and until then stand at 1, or at 0 for the decay; ``TrainingSetup`` refuses
    settings that are still open.

    Attributes:
        clip: gamma, the elementwise clip level of each record's gradient.
        by_recipe: settings that are left to the recipe.
        caution: how far those go from the recipe's place: at 2 about twice the stable distance, and
            less accuracy.
        product: interval products: exact four-corner, or Rump's midpoint-radius.
        decay_mode: where weight decay acts; ``coupled`` (inside the gradient) is refused with
            momentum.
        chosen_on: what these settings were chosen on, declared by whoever chose them: "public" data
            or constants, or the training or test "data" itself; "recipe": they are the recipe's,
            unchanged, which is checked; None: nobody said, and then condition e does not hold.
        chosen_for: which settings ``chosen_on`` is about (agt_cli/choices.py); about any others it
            says nothing. With votes by the recipe: the version of the recipe.
        chosen_from: which public rows it is about: where those are others now, it says nothing
            either; None: it names none.
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
        """List what is ``recipe``, and put numbers there that no training is meant to see."""
        given = values.kwargs if isinstance(values, ArgsKwargs) else values
        if not isinstance(given, Mapping):
            return values
        batch: Mapping[str, Any] = node if isinstance(node := given.get("batch"), Mapping) else {}
        counted = batch.get("count") == RECIPE
        left = tuple(name for name in _PENDING if given.get(name) == RECIPE) + (
            ("batch.count",) if counted else ()
        )
        if not left:
            return values
        numbers = {name: _PENDING[name] for name in left if name in _PENDING}
        settings = {**given, **numbers, "by_recipe": left} | (
            {"batch": {**batch, "count": 1}} if counted else {}
        )
        return ArgsKwargs(values.args, settings) if isinstance(values, ArgsKwargs) else settings

    def __post_init__(self) -> None:
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
        counted = self.map in USUAL_COUNTS
        if not counted and self.count is not None:
            raise ValueError(
                f"features.count is only for the maps relu and landmarks: with map={self.map}, "
                "set count=null"
            )
        if counted and self.count is None:
            raise ValueError(
                f"features.count is missing: give the number of features that map={self.map} "
                f"makes, such as count={USUAL_COUNTS[self.map]}"
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


USUAL_COUNTS = {"relu": 1024, "landmarks": 512}
"""What a map asked for by its name alone makes, as in conf/certificate/features."""
REMOVED_MAPS = {"fourier": "landmarks", "crosses": "dataset.crosses of a table"}
"""Maps of earlier versions -> what to use instead."""


@schema
class ComputeConfig:
    """What changes speed and memory alone, never a certificate's validity.

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
    """Build ``cls`` from a plain mapping, or raise ConfigError naming the key, the fault and the
    nearest name.

    Args:
        cls: a (pydantic) dataclass.
        node: a mapping of field names to values.
        where: the key of the mapping, for messages; empty: the mapping of all keys.
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
    """Refuse true and false where a number is meant, which Python would take as 1 and 0."""
    for key, value in node.items():
        entry = getattr(cls, "__dataclass_fields__", {}).get(key)
        if entry is None:
            continue
        kind, path = str(entry.type), ".".join(filter(None, [where, str(key)]))
        if value == "" and "Path" in kind:
            raise ConfigError(f"{path}= is empty: give a path, or leave it out")
        if isinstance(value, bool) and ("int" in kind or "float" in kind) and "bool" not in kind:
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
"""What pydantic calls a limit of a number -> the words before it."""
_PLAIN = {  # pydantic's words that only a programmer understands
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
    errors = error.errors()
    # An unknown key explains why another is missing: it may be meant for it.
    first = next((entry for entry in errors if entry["type"] == _UNKNOWN_KEY), errors[0])
    path = (
        ".".join(filter(None, [where, *(str(part) for part in first["loc"] if _is_key(part))]))
        or "settings"
    )
    problem = _problem_of(cls, first, path)
    template = "{setting}: {problem}"
    is_one_value = isinstance(first.get("input"), int | float | str)
    if first["type"] == "tuple_type" and is_one_value and ".." not in str(first["input"]):
        template = "{setting}: {problem}: give {setting}=[{value}]"
    value = _entries(first.get("input"))
    return Message(template, setting=Setting(path), problem=problem, value=value)


def _entries(value: object) -> object:
    """Return what stands in a list instead of a single value, as somebody may have meant it.

    100k and 2M are written in digits, and no or none becomes an empty list.
    """
    if isinstance(value, str) and value.casefold() in ("no", "none"):
        return ""
    written = re.fullmatch(r"(\d+)([kM])", value) if isinstance(value, str) else None
    if written is None:
        return value
    digits, unit = written.groups()
    return int(digits) * {"k": 10**3, "M": 10**6}[unit]


class _UnknownKey(Message):
    """That a group of settings has no such key, with the keys that it has.

    Args:
        path: the whole key, of which the last part is unknown.
        fields: of the group.
    """

    def __init__(self, path: str, fields: Sequence[str]) -> None:
        super().__init__("unknown key")
        self.group, _, self.key = path.rpartition(".")
        self.fields = fields

    def text(self, names: SettingNames = KEYS) -> str:
        known = [key for field in self.fields for key in names.keys_in(self.group, field)]
        return f"{self.template}{nearest_name(self.key, known)}"


def _problem_of(cls: Any, first: Mapping[str, Any], path: str) -> str | Message:
    """Return what is wrong with one value, of pydantic's description of it.

    Args:
        path: its key.
    """
    kind, value = first["type"], first.get("input")
    if kind == "missing":
        return _missing_value(str(first["loc"][-1]), value)
    if kind == _UNKNOWN_KEY:
        return _UnknownKey(path, _fields(cls, first["loc"]))
    if kind == "literal_error":
        known = [
            word.strip("' ") for word in first["ctx"]["expected"].replace(" or ", ", ").split(",")
        ]
        return f"unknown value '{value}'{nearest(str(value), known)}"
    shown = _shown(value)
    if kind == "tuple_type" and isinstance(value, int | float | str):
        return f"expected a list, got {shown}"
    # of a class's own check, which may name settings
    raised = first.get("ctx", {}).get("error")
    text = raised.args[0] if isinstance(raised, ValueError) and raised.args else None
    message = text if isinstance(text, Message) else None
    problem = message or _PLAIN.get(kind) or _plain_words(first)
    if isinstance(value, dict) or "ArgsKwargs" in shown:
        return problem
    return Message("{problem}, got {shown}", problem=problem, shown=shown)


def _missing_value(name: str, given: object) -> str:
    """Return what is wrong where a setting has no value.

    Args:
        name: the setting.
        given: what was given instead, as pydantic has it: by name, or by position.
    """
    positional = given.args if isinstance(given, ArgsKwargs) else ()
    if not positional:
        return "this setting is required: give a value"
    if len(positional) > 1:
        return "settings are given by name: write NAME=VALUE for each value"
    return f"this setting is given by name: write {name}={_shown(positional[0])}"


def _plain_words(first: Mapping[str, Any]) -> str:
    """Return pydantic's words for what is wrong with a value, as agt says them."""
    context = first.get("ctx", {})
    if first["type"] == "too_short":
        least = context["min_length"]
        return f"needs at least {counted(least, 'entry', 'entries')}"
    for key, limit in context.items():
        if key in _LIMITS and isinstance(limit, int | float):
            shown = str(limit) if isinstance(limit, int) else f"{limit:.15g}"
            return f"must be {_LIMITS[key]} {shown}"
    words: str = first["msg"].removeprefix("Value error, ")
    return words.replace("Input should be", "must be").replace("String should", "must")


def _is_key(part: int | str) -> bool:
    """False for the names that pydantic gives to the members of a union (``constrained-int``,
    ``literal['auto']``).
    """
    return isinstance(part, int) or (
        part.isidentifier() and part not in ("int", "float", "str", "bool")
    )


def _fields(cls: Any, loc: tuple[int | str, ...]) -> list[str]:
    for part in loc[:-1]:
        if part in cls.__dataclass_fields__:  # no place in a list, and no tag of a union
            cls = _settings_in(cls.__dataclass_fields__[part].type)
    return [entry.name for entry in fields(cls)]  # without class variables


def _settings_in(kind: Any) -> Any:
    """The class of settings that a type is, or holds a list or a mapping of."""
    # What pydantic notes of a type is a value of a class of its own, not a class of settings.
    if isinstance(kind, type) and is_dataclass(kind):
        return kind
    return next(filter(None, map(_settings_in, get_args(kind))), None)


def check_choice(value: object, choices: Any, where: str) -> None:
    """Raise ConfigError unless ``value`` is one of a Literal's ``choices``: for what programs
    hand over.
    """
    if value not in get_args(choices):
        raise ConfigError(
            f"{where}: unknown value {value!r}{nearest(str(value), get_args(choices))}"
        )


def check_number(value: object, where: str) -> None:
    """Raise ConfigError unless ``value`` is a real number: for what programs hand over."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{where}={value!r}: give a number")


def build(node: object, where: str) -> Any:
    """Build what ``_target_`` names from the mapping's other keys (datasets, models).

    Raises:
        ConfigError: no ``_target_``, one that cannot be imported or is no description, or settings
            it does not take.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(
            f"{where}: expected a mapping with the entry '_target_', got {node!r}. Give the class "
            "of the settings as '_target_'"
        )
    settings = dict(node)
    name = str(settings.pop("_target_"))
    target = imported(name, where)
    # a function would be called, whatever it does
    if not (isinstance(target, type) and is_dataclass(target)):
        raise ConfigError(
            f"{where}._target_: '{name}' is not a dataclass of settings. Give a dataclass that "
            "agt.settings.schema made"
        )
    return validate(target, settings, where)


def default_n_max(normalizer: float) -> int:
    """The public cap on a batch's size when none is given: 1.1 B + 6 sqrt(B), rounded up
    (reference.md 3c).
    """
    return math.ceil(1.1 * normalizer + 6 * math.sqrt(normalizer))


def plain_of(value: Any) -> dict[str, Any]:
    """JSON values; what is None is left out."""
    return _adapter(value.__class__).dump_python(value, mode="json", exclude_none=True)


def content_of(value: Any) -> bytes:
    """The file: the same value gives the same bytes."""
    return (
        json.dumps(plain_of(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    ).encode()


def read_document(
    cls: type[T],
    content: bytes,
    version: str,
    name: str,
    key: str,
    of_earlier: Callable[[dict[str, Any]], dict[str, Any]] = lambda node: node,
) -> T:
    """What ``content_of`` made.

    Args:
        version: that this program reads.
        name: of such a document, for messages: ``a claim``.
        key: before the names of its entries, in messages: ``claim``.
        of_earlier: from a document of an earlier version to the same of ``version``; others it
            returns as they are.

    Raises:
        ConfigError: another version, or no such document: no JSON, NaN or infinity, an entry
            unknown, missing or out of range.
    """
    try:
        node = parse_json(content, name)
    except Broken as error:
        raise ConfigError(str(error)) from None
    node = of_earlier(node) if isinstance(node, dict) else {}
    given = node.get("schema")
    if given != version:
        raise ConfigError(
            f"{name} has version {given!r}, but this version of agt reads {version}: use "
            "the version of agt that wrote the file"
        )
    value = validate(cls, node, key)
    if odd := _misspelt(node, plain_of(value)):
        raise ConfigError(altered(name, odd))
    return value


def _misspelt(node: Any, written: Any, place: str = "") -> str:
    """Return where a JSON value is not as another is written, with both; empty: nowhere.

    true is not 1, and 3.0 is not 3; but where a fraction is written, a whole number may stand.
    """
    if isinstance(node, Mapping) and isinstance(written, Mapping):
        unlike = [key for key in {**written, **node} if (key in written) != (key in node)]
        if unlike:
            return f"{place}.{unlike[0]} = {node.get(unlike[0])!r}".removeprefix(".")
        pairs = {f"{place}.{key}": (node[key], written[key]) for key in written}
    elif (
        isinstance(node, list | tuple)
        and isinstance(written, list | tuple)
        and len(node) == len(written)
    ):
        pairs = {
            f"{place}[{index}]": both for index, both in enumerate(zip(node, written, strict=True))
        }
    else:
        odd_kind = isinstance(node, bool) != isinstance(written, bool)
        odd_kind = odd_kind or (isinstance(written, int) and isinstance(node, float))
        return (
            f"the entry {place.removeprefix('.')} is {node!r}, but agt would have written "
            f"{written!r}"
            if odd_kind or node != written
            else ""
        )
    found = (_misspelt(one, other, where) for where, (one, other) in pairs.items())
    return next(filter(None, found), "")


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)
