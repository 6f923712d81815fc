"""The runs that artifacts need: trained and certified once, kept by signature, found again by whoever asks.

A signature is a hash of everything a certificate depends on: the configuration without what only affects speed or paths,
the data's digest, and the code of the rooms that compute. A run is kept when it is finished, whole or not at all, so a
killed reproduction goes on where it stopped.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import agt_cli
from agt_cli.certificates.conditions import Condition
from agt_cli.mechanisms.planning import Evidence
from agt_cli.mechanisms.votes import published_vote
from agt_cli.report.console import Console
from agt_cli.report.disk import write_atomic
from agt_cli.tasks.choices import bound, declares, hashes
from agt_cli.tasks.compose import composed
from agt_cli.tasks.ensemble import VoteCertificates
from agt_cli.tasks.model import Model, fit
from agt_cli.tasks.prepare import Prepared, Settings, prepare, settings_of

CODE = ("bounds", "certificates", "data", "kernels", "mechanisms", "models", "training")
SPEED = ("compute", "output_dir", "data_dir")
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

    def settings(self, overrides: Sequence[str]) -> tuple[dict[str, Any], Settings]:
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
        """
        config, settings = self.settings(overrides)
        prepared = self.prepared(overrides)
        place = self.folder / signature(config, prepared.loaded.digest, on)
        kept = _read(place)
        if kept:
            return self._handed(kept)
        self.console.note(f"running: {what}")
        started = time.perf_counter()
        model = fit(prepared, settings, self.console)
        trained = time.perf_counter()
        features = prepared.dataset.test.features if queries is None else queries(prepared)
        frame, ks = _ask(model, features, prepared, None if queries else prepared.dataset.test.labels, self.console)
        facts = {
            **model.metrics,
            "seconds_training": trained - started,
            "seconds_certifying": time.perf_counter() - trained,
        }
        classes = prepared.dataset.classes
        done = Finished(frame, facts, classes, model.conditions, ks, settings.relation.name)
        _write(place, done, config)
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


def signature(config: dict[str, Any], digest: str, on: str) -> str:
    """Names a run: everything its certificates depend on."""
    what = {key: value for key, value in config.items() if key not in SPEED}
    dataset = {key: value for key, value in what["dataset"].items() if key not in ("data_dir", "path", "download")}
    text = json.dumps([{**what, "dataset": dataset}, digest, on, _code()], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _settled(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of these overrides; of two that set one key, the later counts."""
    return _composed(tuple({word.split("=")[0].lstrip("+~"): word for word in overrides}.values()))


@cache
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    """As ``composed``, once for each run; nobody changes it."""
    return composed("train", overrides)


@cache
def _code() -> str:
    """A hash of the code that certificates come from."""
    root, h = Path(agt_cli.__file__).parent, blake2b(digest_size=16)
    for path in sorted(path for room in CODE for path in (root / room).rglob("*.py")):
        h.update(path.read_bytes())
    return h.hexdigest()


@cache
def _loaded(key: str) -> list[Prepared]:
    return []


def _prepared(key: str, settings: Settings) -> Prepared:
    kept = _loaded(key)
    if not kept:
        kept.append(prepare(settings, Console(quiet=True)))
    return kept[0]


def _ask(
    model: Model, features: np.ndarray, prepared: Prepared, labels: np.ndarray | None, console: Console
) -> tuple[pd.DataFrame, tuple[int, ...]]:
    certificates = model.certify(features, console, "certifying")
    columns = {"prediction": certificates.prediction, "distance": certificates.stable_distance}
    if labels is not None:
        columns["label"] = labels
    if isinstance(certificates, VoteCertificates) and prepared.classes == 2:
        columns["gap"] = certificates.gap
        columns["published_distance"] = published_vote(certificates.members, certificates.member_distances).distance
        columns["member_right"] = (certificates.members == labels).mean(axis=0) if labels is not None else certificates.gap
    return pd.DataFrame(columns), certificates.ks


def _write(place: Path, done: Finished, config: dict[str, Any]) -> None:
    buffer = BytesIO()
    done.frame.to_parquet(buffer, index=False)
    write_atomic(place.with_suffix(".parquet"), buffer.getvalue())
    rest = {key: value for key, value in asdict(done).items() if key not in ("frame", "conditions")}
    rest["conditions"] = [condition.as_json() for condition in done.conditions]
    write_atomic(place.with_suffix(".json"), json.dumps({**rest, "config": config}, default=str).encode())  # last: finished


def _read(place: Path) -> Finished | None:
    try:
        rest = json.loads(place.with_suffix(".json").read_text())
        frame = pd.read_parquet(place.with_suffix(".parquet"))
    except (OSError, ValueError):
        return None
    conditions = tuple(Condition.of(condition) for condition in rest["conditions"])
    return Finished(frame, rest["facts"], tuple(rest["classes"]), conditions, tuple(rest["ks"]), rest["relation"])
