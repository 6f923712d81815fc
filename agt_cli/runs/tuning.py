"""Settings to compare: from a configuration and a grid to candidates, and their data."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

from pydantic import Field

from agt.data.dataset import UNLABELLED, DataError, Records
from agt.errors import ConfigError, nearest
from agt.mechanisms.tuning import Trials
from agt.models.features import FeatureMap
from agt.settings import ChosenFrom, schema
from agt.tuning import Objective
from agt_cli.papers.encoder import EncodedHead
from agt_cli.report.console import Console
from agt_cli.runs.choices import PARTS, chosen_from, public_rows, words_of
from agt_cli.runs.prepare import Prepared, RunSettings, prepare, settings_of

Changes = Mapping[str, Any]
"""Key -> value: what makes a candidate of the settings as they stand; a mapping's entries are changed alone."""

_TIMES = (0.25, 0.5, 2, 4)
_EXACT: tuple[Changes, ...] = ({"map": "relu", "count": 256}, {"map": "crosses", "count": 256})
_MAPS: tuple[Changes, ...] = (*_EXACT, {"map": "fourier", "count": 256}, {"map": "landmarks", "count": 256})


@schema
class TuneConfig:
    """What is compared, by what.

    Attributes:
        public: the rows declared public, with their labels (``ChosenFrom.rows``); None: training records marked public.
        private: choose by private tuning instead, and release the chosen weights.
        grid: key -> values, every combination of which is a candidate; None: ``neighbours``.
        folds: of the public rows.
        objective: what is compared: accuracy; the fraction right and certified at ``k``; the expected accuracy of released
            weights at total.eps and total.delta.
        k: a distance.
        name: of the experiment file; None: the dataset's with _tuned.
        trials: private: how many candidates are tried, a random number.
        seed: private: of a simulation; None: the operating system draws.
    """

    public: Annotated[str, Field(min_length=1)] | None = None
    private: bool = False
    grid: Mapping[str, Annotated[tuple[Any, ...], Field(min_length=1)]] | None = None
    folds: Annotated[int, Field(ge=2, le=100)] = 5
    objective: Objective = "certified"
    k: Annotated[int, Field(ge=1)] = 20
    name: Annotated[str, Field(pattern=r"^[\w-]+$")] | None = None
    trials: Trials = Field(default_factory=Trials)
    seed: Annotated[int, Field(ge=0)] | None = None

    @property
    def words(self) -> str:
        """How the choice is made, in words."""
        other = "accuracy" if self.objective == "certified" else f"right and certified at {self.k}"
        what = {
            "accuracy": "accuracy",
            "certified": f"the fraction right and certified at {self.k}",
            "expected": "the expected accuracy of released weights",
        }[self.objective]
        return f"best by {what}; of all within one standard error, the one with most {other}"


@dataclass(frozen=True)
class Choice:
    """A candidate's settings.

    Attributes:
        changes: what they change.
        config: the whole of them, resolved, as plain containers.
        settings: the same, validated.
    """

    changes: Changes
    config: dict[str, Any]
    settings: RunSettings

    @property
    def words(self) -> str:
        """For a table's cell."""
        return ", ".join(f"{key}={_short(value)}" for key, value in self.changes.items()) or "as given"


def choices(
    config: dict[str, Any], grid: Mapping[str, Sequence[Any]] | None, exact: bool = False, public: str | None = None
) -> list[Choice]:
    """Every candidate, validated before any data is read.

    Args:
        config: a training configuration, resolved, as plain containers.
        grid: as ``TuneConfig.grid``.
        exact: without a grid, leave out features that are known up to rounding alone.
        public: without a grid, the rows declared public, as ``FeaturesConfig.public`` has them; None: none of those.

    Raises:
        ConfigError: a key that is not there, or settings that are refused; by key.
    """
    base = deepcopy(config)
    base["training"] |= {"chosen_on": None, "chosen_for": None, "chosen_from": None}
    if grid is None:
        each: Iterator[Changes] = neighbours(base, exact, public)
    else:
        each = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    return [Choice(changes, changed, settings_of(changed)) for changes in each for changed in [_changed(base, changes)]]


def neighbours(config: Mapping[str, Any], exact: bool = False, public: str | None = None) -> Iterator[Changes]:
    """The settings as they stand, and one thing changed at a time: how strongly they regularise, or how long they train;
    public features; and, where the dataset has them, crosses and bins of its columns."""
    yield {}
    training, erm = config["training"], config["certificate"]["name"] == "erm"
    left_open = any(value == "recipe" for value in training.values())
    name = "caution" if left_open else "weight_decay" if erm else "epochs"
    for times in _TIMES:
        scaled = training[name] * times
        yield {f"training.{name}": scaled if left_open or erm else max(1, round(scaled))}
    dataset, chosen = config["dataset"], config["certificate"].get("features", {}).get("map")
    for features in _EXACT if exact else _MAPS:
        if chosen == "none" and _fits(features, dataset, public):
            yield {"certificate.features": {**features, **({"public": public} if features["map"] == "landmarks" else {})}}
    if "crosses" in dataset and len(dataset["numeric"]) + len(dataset["categorical"]) > 1:
        yield {"dataset.crosses": 0 if dataset["crosses"] else 256}
    if "bins" in dataset:
        yield {"dataset.bins": 2 * (dataset["bins"] or 1)}


def _fits(features: Changes, dataset: Mapping[str, Any], public: str | None) -> bool:
    """Crosses are for a table's columns, landmarks for those who declare rows public."""
    return {"crosses": "crosses" in dataset, "landmarks": public is not None}.get(features["map"], True)


def _changed(config: dict[str, Any], changes: Changes) -> dict[str, Any]:
    changed = deepcopy(config)
    for key, value in changes.items():
        *path, last = key.split(".")
        node: Any = changed
        for part in path:
            node = node.get(part) if isinstance(node, Mapping) else None
        if not path or path[0] not in PARTS or not isinstance(node, dict) or last not in node:
            raise ConfigError(f"tune.grid: unknown key '{key}'{_near(config, path, last)}")
        node[last] = {**node[last], **value} if isinstance(value, Mapping) and isinstance(node[last], dict) else value
    return changed


def _near(config: Mapping[str, Any], path: Sequence[str], last: str) -> str:
    node: Any = config
    for part in path:
        node = node.get(part, {}) if isinstance(node, Mapping) else {}
    return nearest(last, list(node) if path and isinstance(node, Mapping) and node else PARTS)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_short(entry)}" for key, entry in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


class TuningData:
    """The datasets of candidates, each loaded once, and the rows of them that are declared public."""

    def __init__(self, which: str | None, console: Console) -> None:
        self.which, self._console = which or "train", console
        self._loaded: list[tuple[Any, Prepared]] = []

    def prepared(self, choice: Choice) -> Prepared:
        """The candidate's dataset."""
        node = choice.config["dataset"]
        for known, prepared in self._loaded:
            if known == node:
                return prepared
        prepared = prepare(choice.settings, self._console)
        if self._loaded and not prepared.loaded.same_records(self._loaded[0][1].loaded):
            raise ConfigError(
                f"tune.grid: {choice.words}: other records are for testing, or they have other ids or units, than in other "
                "candidates: what is public for one would be private for another; change neither split, ids nor units (a "
                "column named by dataset.id keeps ids where columns of features change)"
            )
        self._loaded.append((node, prepared))
        return prepared

    def able(self, choice: Choice) -> bool:
        """Whether there are public rows enough for its landmarks."""
        features = getattr(choice.settings.certificate, "features", None)
        try:
            return (
                features is None
                or features.map != "landmarks"
                or bool(FeatureMap.of(features, self.prepared(choice).dataset))
            )
        except ConfigError:
            return False

    def rows(self, choice: Choice) -> Records:
        """Its public rows.

        Raises:
            ConfigError: nothing was declared public, or there is an encoder, which would have to see the rows too.
            DataError: there are none, or one has no label.
        """
        encoder = choice.settings.model.encoder if isinstance(choice.settings.model, EncodedHead) else None
        if encoder is not None:
            raise ConfigError("model.encoder: agt tune takes features as they lie in files: prepare them first")
        rows = public_rows(self.which, self.prepared(choice).loaded, choice.settings.source)
        if self.which == "train" and not len(rows):
            raise ConfigError(
                "tune.public: no training record is marked public, and private ones are not for choosing settings by: give "
                "dataset.public=COLUMN, tune.public=FILE with labelled public rows, or tune.public=test, which declares "
                "test records and labels public; without any of them, tune.private=true pays for it"
            )
        if bool((rows.labels == UNLABELLED).any()):
            raise DataError(f"tune.public={self.which}: a row has no label, and settings are chosen by labels")
        return rows

    def declaration(self, choice: Choice) -> ChosenFrom:
        """Which rows, and their digest."""
        return chosen_from(self.which, self.prepared(choice).loaded, choice.settings.source)

    @property
    def words(self) -> str:
        """Which rows, in words."""
        return words_of(self.which)
