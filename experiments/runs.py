"""The runs that figures and tables need: trained and certified once, kept by signature, found again
by whoever asks.

A signature is a hash of everything that a result depends on, to the last bit: the configuration
without paths, digests of the data and of the queries, the code that computes, found from its
imports, versions and the kind of machine. Runs are kept as the jobs of a sweep are
(agt_cli/report/by_signature.py): the record that a signature names holds a table and facts about
it, and a killed reproduction goes on where it stopped. A record that is not as it was written is an
error, never used and never made again in silence.

Records are dealt out by a public hash, so that some choose settings and others report.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agt.certificates.conditions import Condition
from agt.certificates.vote_certificates import VoteCertificates
from agt.data.ids import keyed_hash
from agt.errors import ConfigError
from agt.mechanisms.planning import QueryEvidence
from agt.mechanisms.published import published_vote
from agt.models.model import Model
from agt.provenance import code_digest, default_threads, machine, targets
from agt.relations import RELATIONS
from agt.store.json_text import as_json
from agt.targets import targets_of, trusting
from agt_cli.choices import bind_to_settings, declares_public_choices, hash_parts, with_votes_recipe
from agt_cli.composing import compose_command
from agt_cli.report.by_signature import finished_record, may_be_running, move_aside
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import (
    Prepared,
    RunSettings,
    certification_progress,
    fit,
    prepare,
    read_settings_and_learner,
)

COMMAND = "reproduce"  # of these records
RESULTS = "results.parquet"
FACTS = "facts.json"
TableAndFacts = tuple[pd.DataFrame, dict[str, Any]]
Make = Callable[[Prepared, RunSettings], TableAndFacts]
"""Computes the table and the facts of a run from its data and its settings."""


def kept(place: Path) -> TableAndFacts | None:
    """Return the table and the facts of the finished record in a folder; None: there is none.

    Args:
        place: named by the signature.

    Raises:
        ConfigError: a file of it is damaged or edited, or the record is another result's: it is
        named.
    """
    try:
        run = finished_record(place, COMMAND, place.name)
        if run is None:
            return None
        return pd.read_parquet(BytesIO(run.read(RESULTS))), run.json(FACTS)
    except ConfigError as error:
        raise ConfigError(
            f"{place} was altered or damaged after agt wrote it ({error}): delete it to compute "
            "it again"
        ) from None


@dataclass(frozen=True)
class Standing:
    """What the guarantee of a run's labels rests on: its relation's name, and conditions a-g."""

    relation: str
    conditions: tuple[Condition, ...]

    @property
    def counts(self) -> str:
        """What one k counts."""
        return RELATIONS[self.relation].describe_neighbours()


@dataclass(frozen=True)
class Finished(Standing):
    """A run that was trained and asked.

    Attributes:
        frame: one row for each query: ``prediction``, ``distance``; ``label`` for test records;
            ``gap`` and ``published_distance`` for ensembles of two classes.
        facts: flat numbers: accuracy, seconds, sizes.
        classes: their names.
        ks: the grid; empty where every k is known.
    """

    frame: pd.DataFrame
    facts: dict[str, Any]
    classes: tuple[str, ...]
    ks: tuple[int, ...]

    def evidence(self, vote: str = "certified") -> QueryEvidence:
        """What mechanisms see of the test records."""
        column = (
            "published_distance"
            if vote == "published" and "published_distance" in self.frame
            else "distance"
        )
        gap = self.frame["gap"].to_numpy() if "gap" in self.frame else None
        prediction = self.frame["prediction"].to_numpy()
        labels = self.frame["label"].to_numpy()
        votes = prediction if gap is not None else None
        return QueryEvidence(
            labels, prediction, self.frame[column].to_numpy(), len(self.classes), gap, votes
        )

    @property
    def distance(self) -> np.ndarray:
        """[n] stable distances."""
        return self.frame["distance"].to_numpy()

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
        loaded: data that was loaded, by its and its encoder's configuration: a memo.
    """

    folder: Path
    common: tuple[str, ...]
    console: Console
    loaded: dict[str, Prepared] = field(default_factory=dict, compare=False)

    def settings(self, overrides: Sequence[str]) -> tuple[dict[str, Any], RunSettings]:
        """The resolved configuration and its typed form.

        A definition's declaration of what its settings were chosen on is about them as they stand
        in the file: what the user overrides voids it. The user's own is about the settings at hand.
        """
        config = _settled((*overrides, *self.common))  # the user's own come last, and count
        if declares_public_choices(self.common):
            config = bind_to_settings(config)
        elif declares_public_choices(overrides):
            config = bind_to_settings(config, hash_parts(_settled(overrides)))
        # composed from the definition and from the user's own settings
        with trusting(targets_of(config)):
            return config, read_settings_and_learner(config)

    def prepared(self, overrides: Sequence[str]) -> Prepared:
        """The data of a run, loaded once for each dataset and encoder."""
        config, settings = self.settings(overrides)
        key = json.dumps([config["dataset"], config["model"].get("encoder")], sort_keys=True)
        if key not in self.loaded:
            self.loaded[key] = prepare(settings, Console(quiet=True))
        return self.loaded[key]

    def model(self, overrides: Sequence[str], label: str) -> Model:
        """Train, whether or not it was done before: for what the kept tables do not hold."""
        self.console.note(f"training: {label}")
        return fit(self.prepared(overrides), self.settings(overrides)[1], self.console)

    def finished(
        self,
        overrides: Sequence[str],
        label: str,
        on: str = "test",
        queries: np.ndarray | None = None,
    ) -> Finished:
        """The run of these overrides, asked about its test records or about ``queries``.

        Args:
            label: in words, for progress.
            on: names the queries; part of the signature.
            queries: [n, ...]; None: the test records.

        Raises:
            ConfigError: the kept run's file is damaged, edited, or of another name.
        """

        def make(prepared: Prepared, settings: RunSettings) -> TableAndFacts:
            started = time.perf_counter()
            model = fit(prepared, settings, self.console)
            trained = time.perf_counter()
            test = prepared.dataset.test
            asked = test.features
            labels: np.ndarray | None = test.labels
            if queries is not None:
                asked = queries
                labels = None
            frame, ks = answers(model, asked, prepared, labels, self.console)
            seconds = {
                "seconds_training": trained - started,
                "seconds_certifying": time.perf_counter() - trained,
            }
            conditions = [condition.as_json() for condition in model.conditions]
            about = {
                "classes": prepared.dataset.classes,
                "ks": ks,
                "relation": settings.relation.name,
            }
            return frame, {"facts": {**model.metrics, **seconds}, "conditions": conditions, **about}

        frame, rest = self.once(overrides, label, make, on, queries)
        conditions = tuple(Condition.from_json(condition) for condition in rest["conditions"])
        return Finished(
            rest["relation"],
            conditions,
            frame,
            rest["facts"],
            tuple(rest["classes"]),
            tuple(rest["ks"]),
        )

    def once(
        self,
        overrides: Sequence[str],
        label: str,
        make: Make,
        on: str,
        queries: np.ndarray | None = None,
    ) -> TableAndFacts:
        """A table and facts that ``make`` makes of a run, found again by the run's signature.

        Args:
            on, queries: as ``signature``.
        """
        config, settings = self.settings(overrides)
        prepared = self.prepared(overrides)
        place = self.folder / signature(config, prepared, on, queries)
        found = kept(place)
        if found is not None:
            return found
        if may_be_running(place):
            raise ConfigError(
                f"{place}: another process is computing this ({label}). Wait until it ends"
            )
        move_aside(place)
        self.console.note(f"running: {label}")
        with RunRecord(place, COMMAND, config) as record:
            record.environment(signature=place.name)
            frame, facts = make(prepared, settings)
            record.parquet(RESULTS.removesuffix(".parquet"), [frame])
            record.write(FACTS, as_json(facts))
        return frame, facts


def without_proof(standings: Iterable[Standing]) -> tuple[str, ...]:
    """A sentence for each relation under which no privacy guarantee rests on these runs: which
    conditions fail, and why.
    """
    failed: dict[str, dict[str, str]] = {}
    for standing in standings:
        for condition in standing.conditions:
            if not condition.held:
                failed.setdefault(standing.relation, {}).setdefault(condition.letter, condition.why)
    sentences = []
    for relation, reasons in failed.items():
        clauses = [
            f"condition {letter} does not hold ({reasons[letter]})" for letter in sorted(reasons)
        ]
        listed = "; ".join(clauses)
        sentences.append(f"No proof of privacy rests on the runs with {relation}: {listed}.")
    return tuple(sentences)


def signature(
    config: dict[str, Any],
    prepared: Prepared,
    on: str,
    queries: np.ndarray | None = None,
) -> str:
    """Names a run: everything that its results, to the last bit, depend on.

    Args:
        config: the resolved configuration; where things lie does not count.
        prepared: the data, and the features that an encoder made of it.
        on: which queries, in a word.
        queries: [n, ...] the queries themselves, where they are not the test records.
    """
    what = _without_keys(config, "output_dir", "data_dir")
    what["dataset"] = _without_keys(what.get("dataset", {}), "data_dir", "path", "download")
    what["model"] = _without_keys(what.get("model", {}), "encoder")
    encoder = config.get("model", {}).get("encoder")
    settings = encoder and _without_keys(encoder, "cache_dir", "weights")
    data = prepared.dataset
    public = (
        data.name,
        data.classes,
        data.declared_size,
        asdict(data.selection),
        asdict(data.preprocessing),
    )
    digests = (prepared.loaded.digest, data.digest, data.scaling.get("encoder"), _digest(queries))
    compute = config["compute"]
    threads = None if compute["threads"] else default_threads()
    where = (machine(str(compute["device"])), threads)
    determinants = [what, settings, public, digests, on, _code(targets(config)), where]
    text = json.dumps(determinants, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _without_keys(node: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a part of a configuration without some of its keys."""
    return {key: value for key, value in node.items() if key not in keys}


def _settled(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of these overrides; of two that set one key, the later counts."""
    by_key = {word.split("=")[0].lstrip("+~"): word for word in overrides}
    return with_votes_recipe(_composed(tuple(by_key.values())))


def _digest(queries: np.ndarray | None) -> str | None:
    """A hash of queries: their shape, their type and their bytes."""
    if queries is None:
        return None
    h = blake2b(f"{queries.dtype.str} {queries.shape}".encode(), digest_size=16)
    h.update(np.ascontiguousarray(queries).tobytes())
    return h.hexdigest()


@cache
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    """As ``compose_command``, once for each run; nobody changes it."""
    return compose_command("train", overrides)


@cache
def _code(targets: tuple[str, ...]) -> str:
    """The digest of the code that results come from, read once."""
    # looseness.py takes its attacks from agt_audit
    return code_digest(("agt_cli", "agt_audit", __name__, *targets))


def answers(
    model: Model,
    features: np.ndarray,
    prepared: Prepared,
    labels: np.ndarray | None,
    console: Console,
) -> tuple[pd.DataFrame, tuple[int, ...]]:
    """Certify queries.

    Args:
        features: [n, ...] the queries.
        labels: [n] their true ones, where they are known.

    Returns:
        ``Finished.frame`` and ``Finished.ks``.
    """
    with certification_progress(model, console) as on_progress:
        certificates = model.certify(features, on_progress=on_progress)
    frame = pd.DataFrame(
        {"prediction": certificates.prediction, "distance": certificates.stable_distance}
    )
    if labels is not None:
        frame["label"] = labels
    if (
        isinstance(certificates, VoteCertificates)
        and prepared.classes == 2
        and not certificates.by_margins
    ):
        frame["gap"] = certificates.tally
        frame["published_distance"] = published_vote(
            certificates.members, certificates.member_distances
        ).distance
    return (
        frame,
        () if model.problem.settings.certificate.bounded == "vote counts" else certificates.ks,
    )


KEY = "halves"  # public key of the hash


def dealt(units: np.ndarray, parts: int) -> np.ndarray:
    """[n] the part, 0 to parts - 1, that each unit's rows belong to, whichever other rows there
    are.
    """
    high_half = keyed_hash(units, KEY) >> np.uint64(32)
    part = (high_half * np.uint64(parts)) >> np.uint64(32)
    return part.astype(np.int64)


def left_out(
    runs: Runs, overrides: Sequence[str], label: str, fold: int, folds: int
) -> tuple[pd.DataFrame, list[int]]:
    """What the run of these overrides, without one fold of its training records, answers about that
    fold.

    Returns:
        ``Finished.frame`` and ``Finished.ks``.
    """

    def make(prepared: Prepared, settings: RunSettings) -> TableAndFacts:
        dataset = prepared.dataset
        part = dealt(dataset.train.units, folds)
        size = dataset.declared_size and dataset.declared_size * (1 - 1 / folds)
        fewer = replace(
            dataset,
            train=dataset.train.take(part != fold),
            test=dataset.train.take(part == fold),
            declared_size=size,
            plane=None,
        )
        model = fit(replace(prepared, dataset=fewer), settings, runs.console)
        frame, ks = answers(model, fewer.test.features, prepared, fewer.test.labels, runs.console)
        return frame, {"ks": ks}

    frame, facts = runs.once(overrides, label, make, f"fold {fold} of {folds}")
    return frame, list(facts["ks"])
