"""Settings of agt tune, but for those of the training."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from agt.errors import ConfigError, nearest
from agt.settings import schema

EXPERIMENTS = Path("conf/experiment")  # of the working directory
CONFIGURATION_PARTS = (
    "dataset",
    "model",
    "training",
    "relation",
    "kgrid",
    "certificate",
    "ensemble",
    "noise",
)
"""The parts of a training configuration that agt tune may change."""
Changes = Mapping[str, Any]
"""Key -> value: the changes that make a candidate of the given settings. Of a mapping only the
given entries are changed.
"""
TuningObjective = Literal["accuracy", "certified", "expected"]


@schema
class TuneConfig:
    """Which candidates agt tune compares, on which public rows, and by what.

    Attributes:
        public: the rows that are declared public, with their labels (``ChosenFrom.rows``); None:
            training records that are marked public.
        grid: key -> values, every combination of which is a candidate; None: the neighbours of the
            present settings.
        folds: into how many parts the public rows are divided for cross-validation.
        objective: accuracy; the fraction of answers that are correct and certified at ``k``; or the
            expected accuracy of weights that are released at total.eps and total.delta.
        k: the stable distance of the objective ``certified``.
        name: the name of the experiment file that is written; None: that of the dataset, with
            ``_tuned``.
    """

    public: Annotated[str, Field(min_length=1)] | None = None
    grid: Mapping[str, Annotated[tuple[Any, ...], Field(min_length=1)]] | None = None
    folds: Annotated[int, Field(ge=2, le=100)] = 5
    objective: TuningObjective = "certified"
    k: Annotated[int, Field(ge=1)] = 20
    name: Annotated[str, Field(pattern=r"^[\w-]+$")] | None = None

    @property
    def rule(self) -> str:
        """A clause that says how the candidate is chosen, for reports."""
        certified = f"fraction of answers that are correct and certified at k = {self.k}"
        measures = {
            "accuracy": "accuracy",
            "certified": certified,
            "expected": "expected accuracy of the weights when they are released with noise",
        }
        decides_between_equals = "accuracy" if self.objective == "certified" else certified
        return (
            f"among the candidates whose {measures[self.objective]} is within one standard error "
            f"of the best one, the candidate with the highest {decides_between_equals}"
        )


TUNE_KEYS = ("tune", "total")
"""Settings of agt tune that are not those of a training."""


def grid_changes(grid: Mapping[str, Sequence[Any]]) -> list[Changes]:
    """Return the changes of every candidate of a grid.

    Args:
        grid: the candidate values of each setting: dotted key -> values.
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def with_changes(config: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """Return a copy of a configuration with some changes.

    A mapping is merged into a mapping; anything else is replaced.

    Raises:
        ConfigError: a key that is not there.
    """
    changed = deepcopy(config)
    for key, value in changes.items():
        group, _, last = key.rpartition(".")
        settings = _mapping_at(changed, group)
        part = key.partition(".")[0]
        if part not in CONFIGURATION_PARTS or last not in settings:
            known = settings or CONFIGURATION_PARTS
            name = last if settings else part
            raise ConfigError(f"tune.grid: unknown key '{key}'{nearest(name, known)}")
        if isinstance(value, Mapping) and isinstance(settings[last], dict):
            settings[last] = {**settings[last], **value}
        else:
            settings[last] = value
    return changed


def _mapping_at(config: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the mapping of a configuration at a dotted key; empty: there is none."""
    node: Any = config if key else {}
    for part in filter(None, key.split(".")):
        node = node.get(part) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def default_name(options: Mapping[str, str]) -> str:
    """Return the name of the experiment file if none was given.

    Args:
        options: group -> the option that was chosen.
    """
    dataset = options.get("dataset", "data")
    return f"{dataset}_tuned"


def new_experiment_path(name: str) -> Path:
    """Return the path for a new experiment file.

    Args:
        name: the name of the experiment.

    Raises:
        ConfigError: there is an experiment of this name.
    """
    path = EXPERIMENTS / f"{name}.yaml"
    if path.exists():
        raise ConfigError(
            f"{path} already exists: give another name with tune.name=NAME, or move the file away"
        )
    return path


def encoder_not_run() -> ConfigError:
    """Return the refusal of a model with an encoder."""
    return ConfigError(
        "model.encoder: agt tune does not run an encoder, but can read features from files: write "
        "the features to files first, with agt data prepare NAME"
    )


def not_one_linear_model() -> ConfigError:
    """Return the refusal of settings that train a network, votes, or several models."""
    return ConfigError(
        "`agt tune` only compares single linear models, because it computes stable "
        "distances and noise in closed form: give model=linear certificate=erm, and "
        "leave out ensemble settings"
    )


def no_public_rows() -> ConfigError:
    """Return the refusal of data of which no training record is public."""
    return ConfigError(
        "tune.public: no training record is marked public, but settings must be chosen on public "
        "records. Give dataset.public=COLUMN (a column that marks public records) or "
        "tune.public=FILE (a file of labelled public rows). tune.public=test declares the test "
        "records and their labels public"
    )
