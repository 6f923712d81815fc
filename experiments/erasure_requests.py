"""Kinds about erasure requests.

Which queries an ensemble answers while requests wait (000 section 4.2), and what each method of
removing records costs, promises and leaves, on the same requests.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

from agt.certificates.vote_certificates import VoteCertificates
from agt.errors import ConfigError
from agt.models.ensemble import EnsembleModel
from agt.models.fitting import fit
from agt.models.linear import LinearModel
from agt.models.model import accuracy
from agt.settings import Count, keyword_schema
from agt.store.folder import Folder, NewFolder
from agt.training.ensemble import assign_shards
from agt.unlearning.newton import reduce_residual
from agt.unlearning.sisa import answerable, retrain_affected
from agt_cli.runs.prepare import Prepared, RunSettings

from .certified import Variant
from .entry import Entry, Key, Overrides, once
from .experiment import AtLeastTwo, OneOrMore, ProfileName
from .figures import lines, marks
from .kinds import EVERY, Figure, Kind, Shown, grid, wide
from .removable_head import named, removing
from .runs import TableAndFacts


def spread_requests(members: int, requests: int) -> np.ndarray:
    """Return how many removal requests affect each member if an adversary spreads them evenly.

    The adversary knows the public key that assigns units to shards, and requests the removal of one
    unit of each shard in turn.

    Args:
        members: T, the number of members.
        requests: the number of requests, each to remove one unit.

    Returns:
        [T] int64.
    """
    return np.bincount(np.arange(requests) % members, minlength=members)


def answered_at_random(
    distances: np.ndarray,
    labels: np.ndarray,
    shard_of_units: np.ndarray,
    requests: int,
    rng: np.random.Generator,
    classes: int = 2,
    draws: int = 100,
) -> float:
    """Return the mean share of queries that are answered while random removal requests wait.

    Args:
        distances: [T, n] the stable distances of the members' labels, as in ``answerable``.
        labels: [T, n] the members' labels, as in ``answerable``.
        shard_of_units: [units] the index of the member that each unit belongs to
            (``training.ensemble.assign_shards``).
        requests: the number of pending requests, at most the number of units. A draw of requests is
            of different units, chosen uniformly.
        rng: draws the units.
        classes: C, the number of classes.
        draws: how often requests are drawn.
    """
    members = len(labels)
    shares = []
    for _ in range(draws):
        shards_of_requests = rng.choice(shard_of_units, size=requests, replace=False)
        pending = np.bincount(shards_of_requests, minlength=members)
        shares.append(float(answerable(distances, labels, pending, classes).mean()))
    return float(np.mean(shares))


WITH = "with certificates"
WITHOUT = "without"
AT_RANDOM = "at random"
SPREAD = "spread by the key"


@keyword_schema
class AnsweredWhileWaiting(Kind):
    """The share of queries that an ensemble answers, against how many erasure requests wait (000
    section 4.2).

    Attributes:
        run: overrides of an ensemble's run; its relation is the profile's for unlearning.
        members: d.
        requests: how many wait at once, of randomly chosen units (mean of ``draws``), or one after
            another for each member in turn, by somebody who knows which unit is where.
        only: the profiles that it is for; none: all.
        data: which data it is, where it is not the experiment's.
    """

    run: Overrides
    members: AtLeastTwo = 10
    requests: OneOrMore[Count] = (1, 3, 10, 30, 100, 300, 1000)
    draws: Count = 50
    only: tuple[ProfileName, ...] = ()
    data: str = ""
    index = ("profile", "certificates", "who", "requests")

    @property
    def keys(self) -> list[Key]:
        chosen = [name for name in self.profiles if not self.only or name in self.only]
        return grid(
            profile=chosen,
            certificates=(WITH, WITHOUT),
            who=(AT_RANDOM, SPREAD),
            requests=self.requests,
            **named(self.data),
        )

    def _votes(self, prepared: Prepared, settings: RunSettings) -> TableAndFacts:
        """Return the members' labels and their stable distances, and the shard of each unit."""
        certificates = fit(prepared.problem(settings)).certify(prepared.dataset.test.features)
        if not isinstance(certificates, VoteCertificates):
            raise ConfigError(
                f"answered_while_waiting: members={self.members}: this needs an ensemble, so give "
                "members=2 or more"
            )
        columns = [*certificates.members, *certificates.member_distances]
        table = {f"c{index}": column for index, column in enumerate(columns)}
        home = assign_shards(np.unique(prepared.dataset.train.units), settings.ensemble)
        facts = {"home": home.tolist(), "classes": prepared.classes}
        return pd.DataFrame(table), facts

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        own = (*self.run, "relation=@unlearning", f"ensemble.members={self.members}")
        overrides = entry.overrides(key["profile"], own)
        label = f"{self.members} members, {key['profile']}"
        frame, facts = entry.runs.once(overrides, label, self._votes, "votes")
        labels, distances = np.split(frame.to_numpy().T, 2)
        home = np.array(facts["home"])
        classes = int(facts["classes"])
        seen = distances if key["certificates"] == WITH else np.zeros_like(distances)
        if key["who"] == AT_RANDOM:
            number = min(key["requests"], len(home))
            rng = np.random.default_rng(0)
            share = answered_at_random(seen, labels, home, number, rng, classes, self.draws)
        else:
            affected = spread_requests(self.members, key["requests"])
            share = float(answerable(seen, labels, affected, classes).mean())
        k = int(np.median(distances)) + 1
        series = f"{key['certificates']}, {key['who']} ({key['profile']})"
        without = self.members * math.log(self.members)
        within = k * self.members * math.log(k * self.members)
        orders = {"d log d": without, "kd log(kd)": within}
        yield {"series": series, "answered": share, "k": k, **orders}

    def shown(self, rows: pd.DataFrame) -> Shown:
        about = [*rows.columns.intersection(["data"]), "series", "k"]
        some_requests = self.requests[:: max(1, len(self.requests) // 4)]
        table = wide(rows, about, "requests", "answered", some_requests, "{:,}")
        # without certificates, all profiles are alike
        is_first = rows["profile"] == rows["profile"].iloc[0]
        known = rows[(rows["certificates"] == WITH) | is_first]
        last = known.groupby("profile")["kd log(kd)"].transform("first").max()
        alike = known["certificates"] + ", " + known["who"]
        names = known["series"].where(known["certificates"] == WITH, alike)
        points = known.assign(**{"kd log(kd)": last, "series": names})
        points = points[["requests", "series", "answered", "d log d", "kd log(kd)"]]
        upright = ("d log d", "kd log(kd)")
        draw = lines(
            "requests",
            "answered",
            "requests that wait",
            "share of queries answered",
            upright=upright,
            share=True,
        )
        caption = (
            f"Test queries that {self.members} members answer while requests wait; k: a member's "
            "median stable distance, plus 1."
        )
        notes = tuple(note.format(self.members) for note in WAITING_NOTES)
        return Shown(table, [Figure(caption, points, draw)], notes)


WAITING_NOTES = (
    "Answered: the vote's label is the same whatever the members say that are to be retrained; so "
    "it is the label that the retrained ensemble gives. Without certificates such a member is "
    "every one with a request.",
    "d log d and kd log(kd): 000's orders of how many requests take d = {} members offline, "
    "without and with certificates. 000 gives no constants and no numbers, so nothing published "
    "stands beside.",
)


@keyword_schema
class Served(Variant):
    """One data set, the overrides of its data, and what is trained on it.

    Attributes:
        removal: of a head with certificate=removal.
        certified: of a linear head with certificates in closed form.
        ensemble: of an ensemble, added to ``certified``'s.
    """

    removal: Overrides
    certified: Overrides
    ensemble: Overrides


@keyword_schema
class ErasureMethods(Kind):
    """Every method on the same requests: seconds for each record beside training again, accuracy,
    what is promised.

    Attributes:
        requests: how many records are to go, the same for each method.
    """

    sets: OneOrMore[Served]
    requests: Count = 20
    index = ("profile", "set", "method")

    @property
    def by_label(self) -> Mapping[str, Served]:
        """The data sets by their labels."""
        return {one.label: one for one in self.sets}

    @property
    def keys(self) -> list[Key]:
        return [
            {"profile": EVERY, "set": one.label, "data": one.data, "method": method}
            for one in self.sets
            for method in ERASURE_METHODS
        ]

    def measure(self, entry: Entry, key: Key) -> list[Key]:
        one = self.by_label[key["set"]]
        method = key["method"]
        own = one.removal
        if method == "sisa":
            own = (*one.certified, *one.ensemble)
        elif method == "certificate":
            own = one.certified

        def make(prepared: Prepared, settings: RunSettings) -> list[Key]:
            unit_of_row = prepared.dataset.train.units
            units = np.random.default_rng(0).permutation(np.unique(unit_of_row))
            removed = np.isin(unit_of_row, units[: self.requests])
            return [ERASURE_METHODS[method](prepared, settings, removed).row]

        label = f"{key['set']}: {method}"
        *_, last_profile = self.profiles
        on = f"{method} {self.requests}"
        return once(entry, last_profile, (*one.run, *own), label, make, on)

    def shown(self, rows: pd.DataFrame) -> Shown:
        some = rows[rows["seconds each"] > 0]
        seconds = some["seconds each"]
        points = some.assign(unit=f"{self.requests} requests", low=seconds, high=seconds)
        columns: Key = {"x": "seconds each", "y": "method", "series": "set", "panels": "unit"}
        draw = partial(marks, **columns, xlabel="seconds for each record", panel="{}", log=True)
        caption = f"Seconds for each of {self.requests} records, by method; certificate takes none."
        notes = tuple(note.format(self.requests) for note in ERASURE_NOTES)
        return Shown(rows.drop(columns="profile"), [Figure(caption, points, draw)], notes)


ERASURE_NOTES = (
    "The same {} records for every method of a data set, from a seed. newton: one at a time, the "
    "Hessian kept up, and a pass over the data where the budget asks for it. sisa: all at once, "
    "divided by their number. retrain: the removal head from scratch, which one request alone "
    "costs, too. certificate: nothing is trained; what is not certified for all of them abstains.",
    "Accuracy of certificate: of the queries that are answered. Requests supported: newton, by "
    "the bound alone, before a pass over the data is needed; certificate, while half of the "
    "queries are answered; the others, all there are.",
    "newton's promise is 003's (eps, delta): its Theorem 2 takes the residual to be independent "
    "of the perturbation, and it is not; certificate.masking=output needs no such assumption. The "
    "noise's seed is fixed here: a simulation.",
)


@dataclass(frozen=True)
class MethodResult:
    """What one method of removing records costs, promises and leaves.

    Attributes:
        seconds: the seconds that all requests take.
        seconds_each: the seconds for each record.
        training_seconds: the seconds of the training before the requests.
        accuracy_before, accuracy_after: the test accuracy before and after the requests.
        promise: what the method promises of the remaining model.
        requests_supported: how many requests the method supports before the model has to be
            trained again.
        answered: the share of queries that are answered after the requests.
    """

    seconds: float
    seconds_each: float
    training_seconds: float
    accuracy_before: float
    accuracy_after: float
    promise: str
    requests_supported: float
    answered: float = 1.0

    @property
    def row(self) -> Key:
        """The columns of the table, in their order."""
        return {
            "seconds": self.seconds,
            "seconds each": self.seconds_each,
            "training": self.training_seconds,
            "accuracy before": self.accuracy_before,
            "accuracy after": self.accuracy_after,
            "answered": self.answered,
            "promise": self.promise,
            "requests supported": self.requests_supported,
        }


def _without_records(prepared: Prepared, removed: np.ndarray) -> Prepared:
    """Return the data without some training records.

    Args:
        prepared: the data.
        removed: [n] bool, the training records to leave out.
    """
    dataset = prepared.dataset
    remaining = replace(dataset, train=dataset.train.take(~removed))
    return replace(prepared, dataset=remaining)


def _remove_by_newton(
    prepared: Prepared, settings: RunSettings, removed: np.ndarray
) -> MethodResult:
    """Remove records by Newton steps, one at a time; arguments as of ``ERASURE_METHODS``.

    Where the bound on the residual gradient exceeds what the noise hides, passes over the remaining
    records make it smaller.
    """
    trained = removing(prepared, settings, "newton")
    test = prepared.dataset.test
    model = trained.model
    head = trained.head
    initial_residual = head.residual
    allowed_residual = model.budget or math.inf
    rows = np.flatnonzero(removed)
    increases = []
    started = time.perf_counter()
    for count, row in enumerate(rows, start=1):
        step = head.remove(trained.x[[row]], trained.targets[[row]])
        increases.append(step.after - step.before)
        if head.residual > allowed_residual:
            remaining = trained.left(rows[:count])
            reduce_residual(head, *remaining, allowed_residual)
    seconds = time.perf_counter() - started
    after = model.with_weight(torch.from_numpy(head.weight))
    affordable = (allowed_residual - initial_residual) / float(np.mean(increases))
    return MethodResult(
        seconds=seconds,
        seconds_each=seconds / len(rows),
        training_seconds=trained.seconds,
        accuracy_before=accuracy(model, test),
        accuracy_after=accuracy(after, test),
        promise=f"({model.config.eps:g}, {model.config.delta:g}), oblivious",
        requests_supported=math.floor(min(float(len(trained.x)), affordable)),
    )


def _retrain(prepared: Prepared, settings: RunSettings, removed: np.ndarray) -> MethodResult:
    """Train on the remaining records from scratch; arguments as of ``ERASURE_METHODS``."""
    trained = removing(prepared, settings, "retrain")
    retrained = removing(_without_records(prepared, removed), settings, "retrain")
    test = prepared.dataset.test
    return MethodResult(
        seconds=retrained.seconds,
        seconds_each=retrained.seconds,  # one request alone takes as long
        training_seconds=trained.seconds,
        accuracy_before=accuracy(trained.model, test),
        accuracy_after=accuracy(retrained.model, test),
        promise="exact, adaptive",
        requests_supported=float(len(trained.x)),
    )


def _retrain_shards(prepared: Prepared, settings: RunSettings, removed: np.ndarray) -> MethodResult:
    """Train the members again that lost a record (SISA); arguments as of ``ERASURE_METHODS``."""
    model, training_seconds = _fitted(prepared, settings, EnsembleModel)
    test = prepared.dataset.test
    with TemporaryDirectory() as folder:
        store = NewFolder(Path(folder), "train")
        model.save(store)
        model.save_shards(store)
        store.finish()
        started = time.perf_counter()
        problem = _without_records(prepared, removed).problem(settings)
        after = retrain_affected(problem, Folder.open(Path(folder), "train")).model
        seconds = time.perf_counter() - started
    return MethodResult(
        seconds=seconds,
        seconds_each=seconds / int(removed.sum()),
        training_seconds=training_seconds,
        accuracy_before=accuracy(model, test),
        accuracy_after=accuracy(after, test),
        promise="exact, adaptive",
        requests_supported=float(len(removed)),
    )


def _abstain_by_certificate(
    prepared: Prepared, settings: RunSettings, removed: np.ndarray
) -> MethodResult:
    """Answer only what no removal of so many units can change, and train nothing.

    Arguments as of ``ERASURE_METHODS``.
    """
    model, training_seconds = _fitted(prepared, settings, LinearModel)
    test = prepared.dataset.test
    certificates = model.certify(test.features)
    removed_units = np.unique(prepared.dataset.train.units[removed])
    is_answered = certificates.stable_distance >= len(removed_units)
    is_right = certificates.prediction == test.labels
    accuracy_of_answered = math.nan
    if is_answered.any():
        accuracy_of_answered = float(is_right[is_answered].mean())
    return MethodResult(
        seconds=0.0,
        seconds_each=0.0,
        training_seconds=training_seconds,
        accuracy_before=float(is_right.mean()),
        accuracy_after=accuracy_of_answered,
        promise="exact where answered, adaptive",
        requests_supported=float(np.median(certificates.stable_distance)),
        answered=float(is_answered.mean()),
    )


def _fitted(prepared: Prepared, settings: RunSettings, kind: type) -> tuple[Any, float]:
    """Train a model; return it and the seconds that this took.

    Raises:
        ConfigError: the settings give a model of another class than ``kind``.
    """
    started = time.perf_counter()
    model = fit(prepared.problem(settings))
    if not isinstance(model, kind):
        raise ConfigError(f"erasure_methods: the run must have a model of the kind {kind.__name__}")
    return model, time.perf_counter() - started


ERASURE_METHODS: dict[str, Callable[[Prepared, RunSettings, np.ndarray], MethodResult]] = {
    "newton": _remove_by_newton,
    "sisa": _retrain_shards,
    "retrain": _retrain,
    "certificate": _abstain_by_certificate,
}
"""The methods of removing records, by name.

Each takes the data, the settings of the run, and which of the training records are removed, [n]
bool.
"""
