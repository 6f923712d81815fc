"""The runs that artifacts need: trained and certified once, kept by signature, found again by whoever asks.

A signature is a hash of everything that a result depends on, to the last bit: the configuration without paths, digests of
the data and of the queries, the code that computes, found from its imports, versions and the kind of machine. A run is kept
when it is finished, whole or not at all, so a killed reproduction goes on where it stopped. Its two files are bound to each
other and to their name: what does not match is an error, never used and never made again in silence.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agt.certificates.conditions import Condition
from agt.mechanisms.planning import Evidence
from agt.models.model import Model
from agt.provenance import code_digest, default_threads, machine, targets
from agt_cli.papers.reproduction.answers import answers
from agt_cli.papers.reproduction.keep import keep, kept
from agt_cli.report.console import Console
from agt_cli.runs.choices import bound, declares, hashes
from agt_cli.runs.compose import composed
from agt_cli.runs.model import fit
from agt_cli.runs.prepare import Prepared, RunSettings, prepare, settings_of

COMPUTE = ("agt.models.model", "agt_cli.runs.model", "agt_cli.runs.prepare", "agt_cli.papers.reproduction.answers")
PLACES = ("output_dir", "data_dir")
Queries = Callable[[Prepared], np.ndarray]


@dataclass(frozen=True)
class Finished:
    """A run that was trained and asked.

    Attributes:
        frame: one row for each query: ``prediction``, ``distance``; ``label`` for test records; ``gap`` and
            ``published_distance`` for ensembles of two classes.
        facts: flat numbers: accuracy, seconds, sizes.
        classes: their names.
        conditions: a-g.
        ks: the grid; empty where every k is known.
        relation: its name.
    """

    frame: pd.DataFrame
    facts: dict[str, Any]
    classes: tuple[str, ...]
    conditions: tuple[Condition, ...]
    ks: tuple[int, ...]
    relation: str

    def evidence(self, vote: str = "certified") -> Evidence:
        """What mechanisms see of the test records."""
        column = "published_distance" if vote == "published" and "published_distance" in self.frame else "distance"
        gap = self.frame["gap"].to_numpy() if "gap" in self.frame else None
        prediction, labels = self.frame["prediction"].to_numpy(), self.frame["label"].to_numpy()
        votes = prediction if gap is not None else None
        return Evidence(labels, prediction, self.frame[column].to_numpy(), len(self.classes), gap, votes)

    @property
    def distance(self) -> np.ndarray:
        """[n] stable distances."""
        distance: np.ndarray = self.frame["distance"].to_numpy()
        return distance

    @property
    def accuracy(self) -> float:
        """Of the nominal labels on the test records."""
        return float((self.frame["prediction"] == self.frame["label"]).mean())

    @property
    def seconds(self) -> float:
        """Of training and certifying."""
        return float(self.facts["seconds_training"]) + float(self.facts["seconds_certifying"])


@dataclass(frozen=True)
class Runs:
    """Trains, certifies and keeps.

    Attributes:
        folder: where finished runs are kept.
        common: overrides of every run: where data lies, how to compute.
        used: the seconds that each run handed out so far took when it was made.
        conditions: (relation, conditions a-g) of each run and model handed out so far.
    """

    folder: Path
    common: tuple[str, ...]
    console: Console
    used: list[float] = field(default_factory=list, compare=False)
    conditions: list[tuple[str, tuple[Condition, ...]]] = field(default_factory=list, compare=False)

    def settings(self, overrides: Sequence[str]) -> tuple[dict[str, Any], RunSettings]:
        """The resolved configuration and its typed form."""
        given = (*overrides, *self.common)  # the user's own come last, and count
        config = self._declared(_settled(given), overrides)
        return config, settings_of(config)

    def _declared(self, config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """The configuration with what its definition declares of its own settings, or the user of the ones at hand.

        A definition's declaration is about its settings as they stand in the file: what the user overrides voids it.
        """
        if declares(self.common):
            return bound(config)
        return bound(config, hashes(_settled(overrides))) if declares(overrides) else config

    def prepared(self, overrides: Sequence[str]) -> Prepared:
        """The data of a run, loaded once for each dataset and encoder."""
        config, settings = self.settings(overrides)
        return _prepared(json.dumps([config["dataset"], config["model"].get("encoder")], sort_keys=True), settings)

    def model(self, overrides: Sequence[str], what: str) -> Model:
        """Train, whether or not it was done before: for what the kept tables do not hold."""
        _, settings = self.settings(overrides)
        self.console.note(f"training: {what}")
        model = fit(self.prepared(overrides), settings, self.console)
        self.conditions.append((settings.relation.name, model.conditions))
        return model

    def finished(self, overrides: Sequence[str], what: str, on: str = "test", queries: Queries | None = None) -> Finished:
        """The run of these overrides, asked about its test records or about ``queries``.

        Args:
            what: in words, for progress.
            on: names the queries; part of the signature.
            queries: makes them from the prepared data; None: the test records.

        Raises:
            ConfigError: the kept run's files do not match each other, themselves or their name.
        """
        config, settings = self.settings(overrides)
        prepared = self.prepared(overrides)
        features = None if queries is None else queries(prepared)
        place = self.folder / signature(config, prepared, on, features)
        before = _kept(place)
        if before:
            return self._handed(before)
        self.console.note(f"running: {what}")
        started = time.perf_counter()
        model = fit(prepared, settings, self.console)
        trained = time.perf_counter()
        test = prepared.dataset.test
        asked, labels = (test.features, test.labels) if features is None else (features, None)
        frame, ks = answers(model, asked, prepared, labels, self.console)
        facts = {
            **model.metrics,
            "seconds_training": trained - started,
            "seconds_certifying": time.perf_counter() - trained,
        }
        classes = prepared.dataset.classes
        done = Finished(frame, facts, classes, model.conditions, ks, settings.relation.name)
        _keep(place, done, config)
        return self._handed(done)

    def _handed(self, done: Finished) -> Finished:
        self.used.append(done.seconds)
        self.conditions.append((done.relation, done.conditions))
        return done


def without_proof(handed: Sequence[tuple[str, tuple[Condition, ...]]]) -> tuple[str, ...]:
    """A sentence for each relation under which no privacy guarantee rests on these runs: which conditions fail, and why."""
    failed: dict[str, dict[str, str]] = {}
    for relation, conditions in handed:
        reasons = failed.setdefault(relation, {})
        for condition in conditions:
            if not condition.held:
                reasons.setdefault(condition.letter, condition.why)
    return tuple(
        f"No proof of privacy rests on the runs with {relation}: "
        + "; ".join(f"condition {letter} does not hold ({reasons[letter]})" for letter in sorted(reasons))
        + "."
        for relation, reasons in failed.items()
        if reasons
    )


def signature(
    config: dict[str, Any],
    prepared: Prepared,
    on: str,
    queries: np.ndarray | None = None,
    modules: tuple[str, ...] = (),
) -> str:
    """Names a run: everything that its results, to the last bit, depend on.

    Args:
        config: the resolved configuration; where things lie does not count.
        prepared: the data, and the features that an encoder made of it.
        on: which queries, in a word.
        queries: [n, ...] the queries themselves, where they are not the test records.
        modules: where else the code lies that makes the result.
    """
    what = {key: value for key, value in config.items() if key not in PLACES}
    for part, places in (("dataset", ("data_dir", "path", "download")), ("model", ("encoder",))):
        what[part] = {key: value for key, value in what.get(part, {}).items() if key not in places}
    encoder = config.get("model", {}).get("encoder")
    settings = encoder and {key: value for key, value in encoder.items() if key not in ("cache_dir", "weights")}
    data = prepared.dataset
    public = (data.name, data.classes, data.declared_size, asdict(data.selection), asdict(data.preprocessing))
    digests = (prepared.loaded.digest, data.digest, data.scaling.get("encoder"), _digest(queries))
    compute = config["compute"]
    where = (machine(str(compute["device"])), None if compute["threads"] else default_threads())
    text = json.dumps(
        [what, settings, public, digests, on, _code((*targets(config), *modules)), where], sort_keys=True, default=str
    )
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _settled(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of these overrides; of two that set one key, the later counts."""
    return _composed(tuple({word.split("=")[0].lstrip("+~"): word for word in overrides}.values()))


def _digest(queries: np.ndarray | None) -> str | None:
    """A hash of queries: their shape, their type and their bytes."""
    if queries is None:
        return None
    h = blake2b(f"{queries.dtype.str} {queries.shape}".encode(), digest_size=16)
    h.update(np.ascontiguousarray(queries).tobytes())
    return h.hexdigest()


@cache
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    """As ``composed``, once for each run; nobody changes it."""
    return composed("train", overrides)


@cache
def _code(targets: tuple[str, ...]) -> str:
    """The digest of the code that results come from, read once."""
    return code_digest((*COMPUTE, *targets))


@cache
def _loaded(key: str) -> list[Prepared]:
    return []


def _prepared(key: str, settings: RunSettings) -> Prepared:
    kept = _loaded(key)
    if not kept:
        kept.append(prepare(settings, Console(quiet=True)))
    return kept[0]


def _keep(place: Path, done: Finished, config: dict[str, Any]) -> None:
    facts = {key: value for key, value in asdict(done).items() if key not in ("frame", "conditions")}
    facts["conditions"] = [condition.as_json() for condition in done.conditions]
    keep(place, done.frame, {**facts, "config": config})


def _kept(place: Path) -> Finished | None:
    """A run that was kept; None if it was not. Raises ConfigError as ``keep.kept``."""
    found = kept(place)
    if found is None:
        return None
    frame, rest = found
    conditions = tuple(Condition.of(condition) for condition in rest["conditions"])
    return Finished(frame, rest["facts"], tuple(rest["classes"]), conditions, tuple(rest["ks"]), rest["relation"])
