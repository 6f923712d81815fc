"""Typed, frozen settings, which are checked once when they are built.

``ComputeConfig`` changes speed alone; certificates depend on all other settings. The settings of a
kind of certificate are in a separate file (agt/models/kind.py).

What is wrong with settings is said in agt/setting_mistakes.py. Classes of settings are also the
forms of documents (agt/documents.py).
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from numbers import Real
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    dataclass_transform,
    get_args,
)

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.dataclasses import dataclass as validated
from pydantic_core import ArgsKwargs

from agt.errors import ConfigError, nearest
from agt.messages import Message, Setting
from agt.parameters import ArgumentError
from agt.relations.names import ENTRIES
from agt.setting_mistakes import (
    UNKNOWN_KEY,
    explain_mistakes,
    refuse_booleans,
    refuse_other_than_numbers,
)
from agt.targets import imported_with_settings

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
NonNegativeInt = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Probability = Annotated[float, Field(gt=0, lt=1)]

# Public caps. Numbers beyond them are mistakes, or would leave the range in which sums are proved
# exact.
MAX_ROWS = 2**30  # rows of a batch, and rows at stake at one k: docs/proofs/sums.md
RowLimit = Annotated[int, Field(ge=1, le=MAX_ROWS)]
QUANTA = 2**30  # quanta in one clip level gamma: docs/proofs/sums.md
MAX_BATCHES = 10**6  # of an epoch
_MIN_CAP_RATIO = 1.1
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
        """Build the settings, or raise ConfigError for the first mistake."""
        refuse_other_than_numbers(cls, {**dict(zip(names, values, strict=False)), **settings})
        try:
            build(self, *values, **settings)
        except ValidationError as error:
            kinds = {entry["type"] for entry in error.errors()}
            mistake = ArgumentError if UNKNOWN_KEY in kinds else ConfigError
            raise mistake(explain_mistakes(cls, error, cls.__name__)) from None

    cls.__init__ = __init__
    return cls


def changing_settings(change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Any:
    """Return a validator that replaces the settings a class is built from, before they are checked.

    Args:
        change: returns the settings to build the class from, given those that were typed.
    """

    def replace_settings(cls: type, values: Any) -> Any:
        is_call = isinstance(values, ArgsKwargs)  # else a mapping, or a mistake that is found later
        given = values.kwargs if is_call else values
        if not isinstance(given, Mapping):
            return values
        settings = change(given)
        return ArgsKwargs(values.args, dict(settings)) if is_call else settings

    return model_validator(mode="before")(replace_settings)


def _with_placeholders(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a training with placeholders for those that are ``recipe``.

    ``by_recipe`` then lists these settings. The recipe's numbers depend on public constants that
    are not known yet, so placeholders pass the checks of numbers until they are resolved.
    """
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
    if by_recipe:
        settings["by_recipe"] = tuple(by_recipe)
    return settings


@schema
class KGridConfig:
    """The values of k: every integer 0..max (dense), or the values listed.

    A privacy guarantee needs the dense grid; on a listed one only the index is 1-Lipschitz
    (reference.md section 3a).
    """

    max: NonNegativeInt | None = None
    values: tuple[Annotated[int, Field(ge=0, le=MAX_ROWS)], ...] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless there is exactly one grid, without repetition, not too long."""
        if (self.max is None) == (self.values is None):
            hint = ": for a list, give kgrid=sparse as well" if self.values else ""
            raise ValueError(
                "give exactly one of kgrid.max (every integer k from 0 to max) and "
                f"kgrid.values (a list){hint}"
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
    unit_rows: RowLimit = 1
    radius: Positive | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless a radius is given exactly for a relation that takes one."""
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
    n_max: RowLimit | None = None
    key: str = "agt"

    def constants(self, size: float) -> tuple[float, int]:
        """Return the normaliser and the cap on a batch's records, which have defaults.

        Args:
            size: the size of the dataset.

        Raises:
            ConfigError: n_max is below 1.1 times the normaliser.
        """
        normalizer = self.normalizer
        if normalizer is None:
            normalizer = size / self.count
        # A huge normaliser is capped so that the default n_max is a finite integer. It is still
        # above MAX_ROWS then, so ``BatchPlan`` refuses it.
        n_max = self.n_max
        if n_max is None:
            n_max = default_n_max(min(normalizer, 2 * MAX_ROWS))
        minimum = _MIN_CAP_RATIO * normalizer
        if n_max < minimum:
            raise ConfigError(
                Message(
                    "{config:training.batch.n_max}={n_max} is below {minimum:g}, which is 1.1 "
                    "times the normalizer: raise n_max, or lower the normalizer",
                    n_max=n_max,
                    minimum=minimum,
                )
            )
        return float(normalizer), n_max


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
        product: the rule by which two intervals are multiplied: by the exact four corners, or by
            Rump's midpoint-radius method.
        decay_mode: whether weight decay is applied beside the gradient (``decoupled``) or added to
            it (``coupled``, which is refused with momentum).
        chosen_on: the data that these settings were chosen on, as the user declares: "public" data
            or constants, or the training or test "data" itself; "recipe": they are the recipe's,
            unchanged, which is checked; None: it was not declared, so condition e (preprocessing
            and settings are public) does not hold.
        chosen_for: the settings that ``chosen_on`` is about (agt_cli/choices.py); it does not cover
            others. With votes by the recipe: the version of the recipe.
        chosen_from: the public rows that ``chosen_on`` is about; if they have changed, it covers
            nothing. None: the declaration is about no such rows.
    """

    loss: LossName
    epochs: Annotated[int, Field(ge=1, le=10**5)]
    lr: Annotated[float, Field(gt=0, le=1e6)]
    clip: Annotated[float, Field(ge=1e-9, le=1e9)]
    decay: NonNegative = 0.0
    lr_min: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    dampening: Share = 0.0
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

    _leave_open = changing_settings(_with_placeholders)

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
        count: the number of random features or landmarks; null for none and scattering.
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
    seed: NonNegativeInt = 0
    whiten: Share = 0.0
    public: PublicRows | None = None
    ridge: Share = 1e-3
    radius: Positive | None = None
    bias: Annotated[float, Field(ge=0, le=10)] = 0.1
    root: Share = 1.0

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


KERNELS = {"cpu": ("cpu", "reference"), "cuda": ("gpu", "reference")}
"""Device -> the names of its kernels, the fastest first. The last one, plain PyTorch, always works.
"""


@schema
class ComputeConfig:
    """Settings that change speed and memory alone, never a certificate's validity.

    Attributes:
        device: cpu or cuda.
        kernel: the code that sums gradients; auto takes the fastest that this device has.
        fragment: records handled at once; auto fits it to ``memory_mb``.
        memory_mb: working memory for one fragment, MiB; small enough for the caches is fastest on a
            CPU. On a GPU it is the card's, and the records have a share of their own
            (training/batches.py).
        threads: CPU threads; None: all.
        checkpoint_seconds: between two checkpoints (training/checkpoint.py); None: as often as they
            cost little; 0: none.

    Raises:
        ConfigError: the kernel does not run on the device.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    kernel: Literal["auto", "reference", "cpu", "gpu"] = "auto"
    fragment: Count | Literal["auto"] = "auto"
    memory_mb: Annotated[int, Field(ge=16)] = 256
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    checkpoint_seconds: NonNegative | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError unless the kernel runs on the device."""
        kernels = KERNELS[self.device]
        if self.kernel not in ("auto", *kernels):
            raise ConfigError(
                Message(
                    "{config:compute.kernel}={kernel} does not run on "
                    "{config:compute.device}={device}: use one of the kernels {usable}",
                    kernel=self.kernel,
                    device=self.device,
                    usable=" or ".join(kernels),
                )
            )

    @property
    def memory_bytes(self) -> int:
        """``memory_mb`` in bytes."""
        return self.memory_mb * 2**20


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
    queries: Count | None = None


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
    refuse_booleans(cls, node, where)
    try:
        return TypeAdapter(cls).validate_python(dict(node))
    except ValidationError as error:
        raise ConfigError(explain_mistakes(cls, error, where)) from None


def check_choice(value: object, choices: Any, where: str) -> None:
    """Raise ConfigError unless an argument is one of the choices of a Literal type.

    Args:
        value: the argument.
        choices: the Literal type.
        where: the name of the argument in messages.
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
    name, target, settings = imported_with_settings(node, where)
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


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    """Return pydantic's adapter of a class, which is slow to build and so is cached."""
    return TypeAdapter(cls)
