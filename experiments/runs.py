"""The runs that figures and tables need: each is trained and certified once, stored, and reused.

A run is stored in a folder that is named by its signature: a hash of everything that its results
depend on, to the last bit. That is the configuration without paths, digests of the data and of the
queries, the code that computes, found from its imports, versions and the kind of machine.
``Runs.once`` looks for the folder, reads the table and the facts in it, or computes and writes
them; so a reproduction that was killed resumes where it stopped. A stored run that was altered is
an error: it is neither used nor computed again without saying so.

Records are assigned to parts by a public hash, so that some choose settings and others report.
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

COMMAND = "reproduce"  # the command that writes these records
RESULTS = "results.parquet"
FACTS = "facts.json"
TableAndFacts = tuple[pd.DataFrame, dict[str, Any]]
Make = Callable[[Prepared, RunSettings], TableAndFacts]
"""Computes the table and the facts of a run from its data and its settings."""


def read_stored(folder: Path) -> TableAndFacts | None:
    """Return the table and the facts of a run that is stored in a folder; None: there is none.

    Args:
        folder: the folder, named by the signature of the run.

    Raises:
        ConfigError: a file of it is damaged or edited, or it contains another run.
    """
    try:
        run = finished_record(folder, COMMAND, folder.name)
        if run is None:
            return None
        return pd.read_parquet(BytesIO(run.read(RESULTS))), run.json(FACTS)
    except ConfigError as error:
        raise ConfigError(
            f"{folder} was altered or damaged after agt wrote it ({error}): delete it to compute "
            "it again"
        ) from None


@dataclass(frozen=True)
class PrivacyBasis:
    """What a privacy guarantee of a run's labels depends on.

    Attributes:
        relation: the name of the relation, which says which datasets are neighbours.
        conditions: the conditions a to g.
    """

    relation: str
    conditions: tuple[Condition, ...]

    @property
    def counts(self) -> str:
        """A phrase that says what one k counts."""
        return RELATIONS[self.relation].describe_neighbours()


@dataclass(frozen=True)
class Finished(PrivacyBasis):
    """A run that was trained, with its answers to queries.

    Attributes:
        frame: a row for each query, with the columns prediction and distance (the stable distance);
            for test records also label; for ensembles of two classes also gap and
            published_distance.
        facts: the metrics of the model and the seconds that it took, by name.
        classes: the names of the classes.
        ks: the values of k with certificates; empty: every k has one.
    """

    frame: pd.DataFrame
    facts: dict[str, Any]
    classes: tuple[str, ...]
    ks: tuple[int, ...]

    def evidence(self, vote: str = "certified") -> QueryEvidence:
        """Return what mechanisms that release labels take of the test records.

        Args:
            vote: how the distances of an ensemble are computed, as of ``Profile.vote``.
        """
        distance = self.frame["distance"].to_numpy()
        if vote == "published" and "published_distance" in self.frame:
            distance = self.frame["published_distance"].to_numpy()
        prediction = self.frame["prediction"].to_numpy()
        labels = self.frame["label"].to_numpy()
        gap = None
        votes = None
        if "gap" in self.frame:
            gap = self.frame["gap"].to_numpy()
            votes = prediction
        return QueryEvidence(labels, prediction, distance, len(self.classes), gap, votes)

    @property
    def distance(self) -> np.ndarray:
        """The stable distances of the queries, [n]."""
        return self.frame["distance"].to_numpy()

    @property
    def accuracy(self) -> float:
        """The share of test records that are answered right, without noise."""
        return float((self.frame["prediction"] == self.frame["label"]).mean())

    @property
    def seconds(self) -> float:
        """The seconds that training and certifying took together."""
        return float(self.facts["seconds_training"]) + float(self.facts["seconds_certifying"])


@dataclass(frozen=True)
class Runs:
    """Trains and certifies runs, and stores them.

    Attributes:
        folder: where finished runs are stored, each in a folder of its own.
        common: the user's own overrides, which come last in every run.
        console: shows progress.
        loaded: the data that was loaded, by the configuration of the data and of its encoder; a
            cache.
    """

    folder: Path
    common: tuple[str, ...]
    console: Console
    loaded: dict[str, Prepared] = field(default_factory=dict, compare=False)

    def settings(self, overrides: Sequence[str]) -> tuple[dict[str, Any], RunSettings]:
        """Return the resolved configuration of a run, and its validated settings.

        An experiment's declaration of what its settings were chosen on is about the settings in its
        file, so it does not hold if the user overrides one of them. A declaration by the user is
        about the settings that are used.
        """
        config = _resolved_config((*overrides, *self.common))
        if declares_public_choices(self.common):
            config = bind_to_settings(config)
        elif declares_public_choices(overrides):
            config = bind_to_settings(config, hash_parts(_resolved_config(overrides)))
        # The classes are named by the experiment's file and by the user, so they may be imported.
        with trusting(targets_of(config)):
            return config, read_settings_and_learner(config)

    def prepared(self, overrides: Sequence[str]) -> Prepared:
        """Return the data of a run, which is loaded once for each dataset and encoder."""
        config, settings = self.settings(overrides)
        key = json.dumps([config["dataset"], config["model"].get("encoder")], sort_keys=True)
        if key not in self.loaded:
            self.loaded[key] = prepare(settings, Console(quiet=True))
        return self.loaded[key]

    def model(self, overrides: Sequence[str], label: str) -> Model:
        """Train a model, even if its run is stored, because stored runs have no models."""
        self.console.note(f"training: {label}")
        return fit(self.prepared(overrides), self.settings(overrides)[1], self.console)

    def finished(
        self,
        overrides: Sequence[str],
        label: str,
        on: str = "test",
        queries: np.ndarray | None = None,
    ) -> Finished:
        """Return the run of these overrides with its answers, from its folder or computed now.

        Args:
            overrides: the overrides of the run, without ``common``.
            label: a description of the run, for progress.
            on: a name of the queries, which is part of the signature.
            queries: [n, ...] the queries; None: the test records.

        Raises:
            ConfigError: a file of the stored run is damaged or edited, or is another run's.
        """

        def make(prepared: Prepared, settings: RunSettings) -> TableAndFacts:
            started = time.perf_counter()
            model = fit(prepared, settings, self.console)
            trained = time.perf_counter()
            test = prepared.dataset.test
            features = test.features
            labels: np.ndarray | None = test.labels
            if queries is not None:
                features = queries
                labels = None
            frame, ks = answers(model, features, prepared, labels, self.console)
            seconds = {
                "seconds_training": trained - started,
                "seconds_certifying": time.perf_counter() - trained,
            }
            facts = {
                "facts": {**model.metrics, **seconds},
                "conditions": [condition.as_json() for condition in model.conditions],
                "classes": prepared.dataset.classes,
                "ks": ks,
                "relation": settings.relation.name,
            }
            return frame, facts

        frame, stored = self.once(overrides, label, make, on, queries)
        conditions = tuple(Condition.from_json(condition) for condition in stored["conditions"])
        return Finished(
            relation=stored["relation"],
            conditions=conditions,
            frame=frame,
            facts=stored["facts"],
            classes=tuple(stored["classes"]),
            ks=tuple(stored["ks"]),
        )

    def once(
        self,
        overrides: Sequence[str],
        label: str,
        make: Make,
        on: str,
        queries: np.ndarray | None = None,
    ) -> TableAndFacts:
        """Return the table and the facts of a run, from its folder or computed now.

        Args:
            overrides: the overrides of the run, without ``common``.
            label: a description of the run, for progress.
            make: computes the table and the facts.
            on: a name of what ``make`` computes, which is part of the signature.
            queries: [n, ...] queries that ``make`` depends on; None: none but the data's.

        Raises:
            ConfigError: a file of the stored run is damaged or edited, or another process is
                computing the run.
        """
        config, settings = self.settings(overrides)
        prepared = self.prepared(overrides)
        folder = self.folder / signature(config, prepared, on, queries)
        stored = read_stored(folder)
        if stored is not None:
            return stored
        if may_be_running(folder):
            raise ConfigError(
                f"{folder}: another process is computing this ({label}). Wait until it ends"
            )
        move_aside(folder)  # what a killed process left
        self.console.note(f"running: {label}")
        with RunRecord(folder, COMMAND, config) as record:
            record.environment(signature=folder.name)
            frame, facts = make(prepared, settings)
            record.parquet(RESULTS.removesuffix(".parquet"), [frame])
            record.write(FACTS, as_json(facts))
        return frame, facts


def unproved_relations(bases: Iterable[PrivacyBasis]) -> tuple[str, ...]:
    """Return a sentence for each relation under which runs have no privacy guarantee.

    It says which conditions do not hold, each with the reason of the first run in which it fails.
    """
    reasons_by_relation: dict[str, dict[str, str]] = {}
    for basis in bases:
        for condition in basis.conditions:
            if not condition.held:
                reasons = reasons_by_relation.setdefault(basis.relation, {})
                reasons.setdefault(condition.letter, condition.why)
    sentences = []
    for relation, reasons in reasons_by_relation.items():
        clauses = [
            f"condition {letter} does not hold ({reason})"
            for letter, reason in sorted(reasons.items())
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
    """Return a hash of everything that the results of a run depend on, to the last bit.

    Args:
        config: the resolved configuration; entries that only say where something is do not count.
        prepared: the data, and the features that an encoder made of them.
        on: a name of the queries, or of what is computed.
        queries: [n, ...] the queries; None: they are in the data.
    """
    settings = _without_keys(config, "output_dir", "data_dir")
    settings["dataset"] = _without_keys(config.get("dataset", {}), "data_dir", "path", "download")
    settings["model"] = _without_keys(config.get("model", {}), "encoder")
    encoder = config.get("model", {}).get("encoder")
    encoder_settings = encoder and _without_keys(encoder, "cache_dir", "weights")
    dataset = prepared.dataset
    declared = (
        dataset.name,
        dataset.classes,
        dataset.declared_size,
        asdict(dataset.selection),
        asdict(dataset.preprocessing),
    )
    digests = (
        prepared.loaded.digest,
        dataset.digest,
        dataset.scaling.get("encoder"),
        _digest_of_queries(queries),
    )
    compute = config["compute"]
    threads = None if compute["threads"] else default_threads()
    environment = (machine(str(compute["device"])), threads)
    code = _code_digest(targets(config))
    determinants = [settings, encoder_settings, declared, digests, on, code, environment]
    text = json.dumps(determinants, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _without_keys(node: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a part of a configuration without some of its keys."""
    return {key: value for key, value in node.items() if key not in keys}


def _resolved_config(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of these overrides; of several that set one key, the last counts."""
    by_key = {override.split("=")[0].lstrip("+~"): override for override in overrides}
    return with_votes_recipe(_composed_config(tuple(by_key.values())))


def _digest_of_queries(queries: np.ndarray | None) -> str | None:
    """Return a hash of the shape, the type and the bytes of queries; None: there are none."""
    if queries is None:
        return None
    digest = blake2b(f"{queries.dtype.str} {queries.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(queries).tobytes())
    return digest.hexdigest()


@cache
def _composed_config(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Return the configuration of ``agt train``, composed once; callers do not change it."""
    return compose_command("train", overrides)


@cache
def _code_digest(targets: tuple[str, ...]) -> str:
    """Return the digest of the code that computes results, which is read once.

    Args:
        targets: the classes that a configuration names.
    """
    # looseness.py takes its attacks from agt_audit
    return code_digest(("agt_cli", "agt_audit", __name__, *targets))


def answers(
    model: Model,
    features: np.ndarray,
    prepared: Prepared,
    labels: np.ndarray | None,
    console: Console,
) -> tuple[pd.DataFrame, tuple[int, ...]]:
    """Return the certified answers of a model to queries.

    Args:
        model: the model.
        features: [n, ...] the queries.
        prepared: the data that the model was trained on.
        labels: [n] the true labels of the queries; None: they are not known.
        console: shows progress.

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
    is_two_classes = prepared.classes == 2
    if (
        isinstance(certificates, VoteCertificates)
        and is_two_classes
        and not certificates.by_margins
    ):
        votes = published_vote(certificates.members, certificates.member_distances)
        frame["gap"] = certificates.tally
        frame["published_distance"] = votes.distance
    covers_every_k = model.problem.settings.certificate.bounded == "vote counts"
    return frame, () if covers_every_k else certificates.ks


KEY = "halves"  # the public key of the hash that assigns units to parts


def dealt(units: np.ndarray, parts: int) -> np.ndarray:
    """Return the part that the rows of each unit belong to, whichever other rows there are.

    Args:
        units: [n] the units of the rows.
        parts: the number of parts.

    Returns:
        [n] int64 from 0 to parts - 1.
    """
    high_half = keyed_hash(units, KEY) >> np.uint64(32)
    part = (high_half * np.uint64(parts)) >> np.uint64(32)
    return part.astype(np.int64)


def left_out(
    runs: Runs, overrides: Sequence[str], label: str, fold: int, folds: int
) -> tuple[pd.DataFrame, list[int]]:
    """Return the answers to one fold of the training records of a run that is trained without it.

    Args:
        runs: the runs, in which these are stored.
        overrides: the overrides of the run.
        label: a description of the run, for progress.
        fold: the number of the fold, from 0.
        folds: how many folds there are.

    Returns:
        ``Finished.frame`` and ``Finished.ks``.
    """

    def make(prepared: Prepared, settings: RunSettings) -> TableAndFacts:
        dataset = prepared.dataset
        is_left_out = dealt(dataset.train.units, folds) == fold
        size = dataset.declared_size and dataset.declared_size * (1 - 1 / folds)
        without_fold = replace(
            dataset,
            train=dataset.train.take(~is_left_out),
            test=dataset.train.take(is_left_out),
            declared_size=size,
            plane=None,
        )
        model = fit(replace(prepared, dataset=without_fold), settings, runs.console)
        queries = without_fold.test
        frame, ks = answers(model, queries.features, prepared, queries.labels, runs.console)
        return frame, {"ks": ks}

    frame, facts = runs.once(overrides, label, make, f"fold {fold} of {folds}")
    return frame, list(facts["ks"])
