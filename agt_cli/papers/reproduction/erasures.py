"""Kinds about erasure requests: which queries an ensemble answers while they wait (000 section 4.2), and what each method
of removing records costs, promises and leaves, on the same requests."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.errors import ConfigError
from agt.folder import BoundFolder, NewFolder
from agt.models.ensemble import EnsembleModel, VoteCertificates
from agt.models.linear import LinearModel
from agt.models.model import Model, accuracy, fit
from agt.settings import STRICT
from agt.training.ensemble import shards
from agt.unlearning.availability import answerable, availability, spread_requests
from agt.unlearning.newton import brought_within
from agt.unlearning.sisa import retrain_affected
from agt_cli.papers.reproduction.budgets import Count
from agt_cli.papers.reproduction.definition import ProfileName
from agt_cli.papers.reproduction.kinds import EVERY, Entry, Figure, Key, Kind, Overrides, Profiles, kind, through, wide
from agt_cli.papers.reproduction.marks import Marks, marks
from agt_cli.papers.reproduction.removing import removing
from agt_cli.report.curves import Curves
from agt_cli.runs.prepare import Prepared, RunSettings

CODE = ("agt.unlearning.availability", "agt.unlearning.newton", "agt.unlearning.sisa", __name__)
WITH, WITHOUT = "with certificates", "without"
AT_RANDOM, SPREAD = "at random", "spread by the key"


@kind
def answered_while_waiting(
    profiles: Profiles,
    run: Overrides,
    members: Annotated[int, Field(ge=2)] = 10,
    requests: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 3, 10, 30, 100, 300, 1000),
    draws: Count = 50,
    only: tuple[ProfileName, ...] = (),
    data: str = "",
) -> Kind:
    """The share of queries that an ensemble answers, against how many erasure requests wait (000 section 4.2).

    Args:
        run: overrides of an ensemble's run; its relation is the profile's for unlearning.
        members: d.
        requests: how many wait at once, of randomly chosen units (mean of ``draws``), or one after another for each member
            in turn, by somebody who knows which unit is where.
        only: the profiles that it is for; none: all.
        data: which data it is, where it is not the experiment's.
    """
    keys = [
        {"profile": name, "certificates": way, "who": who, "requests": number, **({"data": data} if data else {})}
        for name in profiles
        if not only or name in only
        for way in (WITH, WITHOUT)
        for who in (AT_RANDOM, SPREAD)
        for number in requests
    ]

    def votes(entry: Entry, name: ProfileName) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            certificates = fit(prepared.problem(settings)).certify(prepared.dataset.test.features)
            if not isinstance(certificates, VoteCertificates):
                raise ConfigError(f"{entry.artifact.id}: members={members}: an ensemble is asked for")
            columns = [*certificates.members, *certificates.member_distances]
            home = shards(np.unique(prepared.dataset.train.units), settings.ensemble)
            facts = {"home": home.tolist(), "classes": prepared.classes}
            return pd.DataFrame({f"c{at}": column for at, column in enumerate(columns)}), facts

        own = (*run, "relation=@unlearning", f"ensemble.members={members}")
        frame, facts = entry.runs.once(
            entry.overrides(name, own), f"{members} members, {name}", make, "votes", modules=CODE
        )
        both = frame.to_numpy().T
        return both[:members], both[members:], np.array(facts["home"]), int(facts["classes"])

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        labels, distances, home, classes = votes(entry, key["profile"])
        seen = distances if key["certificates"] == WITH else np.zeros_like(distances)
        if key["who"] == AT_RANDOM:
            number = min(key["requests"], len(home))
            share = float(availability(seen, labels, home, (number,), np.random.default_rng(0), classes, draws)[0])
        else:
            share = float(answerable(seen, labels, spread_requests(members, key["requests"]), classes).mean())
        k = int(np.median(distances)) + 1
        yield {
            "series": f"{key['certificates']}, {key['who']} ({key['profile']})",
            "answered": share,
            "k": k,
            "d log d": members * math.log(members),
            "kd log(kd)": k * members * math.log(k * members),
        }

    def points(rows: pd.DataFrame) -> pd.DataFrame:
        known = rows[(rows["certificates"] == WITH) | (rows["profile"] == rows["profile"].iloc[0])]  # without: all alike
        last = known.groupby("profile")["kd log(kd)"].transform("first").max()
        return known.assign(**{"kd log(kd)": last})[["requests", "series", "answered", "d log d", "kd log(kd)"]]

    def half(rows: pd.DataFrame) -> str:
        some = rows[(rows["who"] == AT_RANDOM) & (rows["answered"] >= 0.5)]
        most = some.groupby(["certificates", "profile"], sort=False)["requests"].max().reset_index()
        each = (f"{row.requests:,} {row.certificates} ({row.profile})" for row in most.itertuples())
        return f"Half of the queries are still answered while this many requests wait: {', '.join(each)}"

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        about = [*rows.columns.intersection(["data"]), "series", "k"]
        return wide(rows, about, "requests", "answered", requests[:: max(1, len(requests) // 4)], "{:,}")

    figure = Figure(
        f"Test queries that {members} members answer while requests wait; k: a member's median stable distance, plus 1.",
        points,
        Curves(
            "",
            "requests",
            "answered",
            "requests that wait",
            "share of queries answered",
            "",
            upright=("d log d", "kd log(kd)"),
        ),
        half,
    )
    notes = (
        "Answered: the vote's label is the same whatever the members say that are to be retrained; so it is the label that "
        "the retrained ensemble gives. Without certificates such a member is every one with a request.",
        f"d log d and kd log(kd): 000's orders of how many requests take d = {members} members offline, without and with "
        "certificates. 000 gives no constants and no numbers, so nothing published stands beside.",
    )
    index = ("profile", "certificates", "who", "requests")
    return Kind(keys, through(keys, measure), index, (figure,), table, notes=lambda rows: notes)


@validated(frozen=True, config=STRICT)
class Served:
    """One data set and what is trained on it.

    Attributes:
        label, data: what figures and tables call it.
        run: overrides of its data.
        removal: of a head with certificate=removal.
        certified: of a linear head with certificates in closed form.
        ensemble: of an ensemble, added to ``certified``'s.
    """

    label: str
    data: str
    removal: Overrides
    certified: Overrides
    ensemble: Overrides
    run: Overrides = ()


@kind
def erasure_methods(
    profiles: Profiles,
    sets: Annotated[tuple[Served, ...], Field(min_length=1)],
    requests: Count = 20,
) -> Kind:
    """Every method on the same requests: seconds for each record beside training again, accuracy, what is promised.

    Args:
        requests: how many records are to go, the same for each method.
    """
    *_, name = profiles  # everything here is ours, whatever the profile
    ways = {"newton": _newton, "sisa": _sisa, "retrain": _retrain, "certificate": _certificate}
    keys = [{"profile": EVERY, "set": one.label, "data": one.data, "method": method} for one in sets for method in ways]
    by_label = {one.label: one for one in sets}

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        one, method = by_label[key["set"]], key["method"]
        own = {"sisa": (*one.certified, *one.ensemble), "certificate": one.certified}.get(method, one.removal)

        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            units = np.unique(prepared.dataset.train.units)
            gone = np.isin(prepared.dataset.train.units, np.random.default_rng(0).permutation(units)[:requests])
            return pd.DataFrame([ways[method](prepared, settings, gone)]), {}

        overrides, words = entry.overrides(name, (*one.run, *own)), f"{key['set']}: {method}"
        frame, _ = entry.runs.once(overrides, words, make, f"{method} {requests}", modules=CODE)
        yield frame.to_dict("records")[0]

    def quickest(rows: pd.DataFrame) -> str:
        newton, retrained = (rows[rows["method"] == way]["seconds each"] for way in ("newton", "retrain"))
        ratio = retrained.to_numpy() / newton.to_numpy()
        return f"One Newton removal takes 1/{ratio.min():,.0f} to 1/{ratio.max():,.0f} of the time of training again"

    notes = (
        f"The same {requests} records for every method of a data set, from a seed. newton: one at a time, the Hessian "
        "kept up, and a pass over the data where the budget asks for it. sisa: all at once, divided by their number. "
        "retrain: the removal head from scratch, which one request alone costs, too. certificate: nothing is trained; "
        "what is not certified for all of them abstains.",
        "Accuracy of certificate: of the queries that are answered. Requests supported: newton, by the bound alone, before "
        "a pass over the data is needed; certificate, while half of the queries are answered; the others, all there are.",
        "newton's promise is 003's (eps, delta): its Theorem 2 takes the residual to be independent of the perturbation, "
        "and it is not; certificate.masking=output needs no such assumption. The noise's seed is fixed here: a simulation.",
    )
    drawing = Marks("seconds each", "method", "set", "unit", "seconds for each record", "{}", log=True)
    figure = Figure(
        f"Seconds for each of {requests} records, by method; certificate takes none.",
        lambda rows: rows[rows["seconds each"] > 0].assign(
            unit=f"{requests} requests", low=lambda some: some["seconds each"], high=lambda some: some["seconds each"]
        ),
        drawing,
        quickest,
        draw=marks,
    )
    index = ("profile", "set", "method")
    return Kind(
        keys,
        through(keys, measure),
        index,
        (figure,),
        lambda rows: rows.drop(columns="profile"),
        notes=lambda rows: notes,
    )


def _row(
    seconds: float, each: float, training: float, accuracies: tuple[float, float], promise: str, supported: float
) -> Key:
    """What one method is compared by."""
    return {
        "seconds": seconds,
        "seconds each": each,
        "training": training,
        "accuracy before": accuracies[0],
        "accuracy after": accuracies[1],
        "answered": 1.0,
        "promise": promise,
        "requests supported": supported,
    }


def _remaining(prepared: Prepared, gone: np.ndarray) -> Prepared:
    return replace(prepared, dataset=replace(prepared.dataset, train=prepared.dataset.train.take(~gone)))


def _newton(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    trained, test = removing(prepared, settings, "newton"), prepared.dataset.test
    head, rows, model = trained.head, np.flatnonzero(gone), trained.model
    before, allowed = head.residual, model.budget or math.inf
    started, bounds = time.perf_counter(), []
    for count, row in enumerate(rows, start=1):
        step = head.remove(trained.x[[row]], trained.targets[[row]])
        bounds.append(step.after - step.before)
        if head.residual > allowed:
            brought_within(head, *trained.left(rows[:count]), allowed)
    seconds = time.perf_counter() - started
    after = model.with_weight(torch.from_numpy(head.weight))
    scores = accuracy(model, test), accuracy(after, test)
    promise = f"({model.config.eps:g}, {model.config.delta:g}), oblivious"
    most = min(float(len(trained.x)), (allowed - before) / float(np.mean(bounds)))
    return _row(seconds, seconds / len(rows), trained.seconds, scores, promise, math.floor(most))


def _retrain(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    trained, test = removing(prepared, settings, "retrain"), prepared.dataset.test
    again = removing(_remaining(prepared, gone), settings, "retrain")
    scores = accuracy(trained.model, test), accuracy(again.model, test)
    return _row(again.seconds, again.seconds, trained.seconds, scores, "exact, adaptive", float(len(trained.x)))


def _sisa(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    model, training = _fitted(prepared, settings)
    if not isinstance(model, EnsembleModel):
        raise ConfigError("sisa: ensemble: several members are asked for")
    with TemporaryDirectory() as folder:
        store = NewFolder(Path(folder), "train")
        model.save(store)
        model.save_shards(store)
        store.finish()
        started = time.perf_counter()
        after = retrain_affected(
            _remaining(prepared, gone).problem(settings), BoundFolder.open(Path(folder), "train")
        ).model
        seconds = time.perf_counter() - started
    scores = accuracy(model, prepared.dataset.test), accuracy(after, prepared.dataset.test)
    return _row(seconds, seconds / int(gone.sum()), training, scores, "exact, adaptive", float(len(gone)))


def _certificate(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    model, training = _fitted(prepared, settings)
    if not isinstance(model, LinearModel):
        raise ConfigError("certificate: a linear head with certificates in closed form is asked for")
    test = prepared.dataset.test
    certificates = model.certify(test.features)
    stable = certificates.stable_distance >= len(np.unique(prepared.dataset.train.units[gone]))
    right = certificates.prediction == test.labels
    after = float(right[stable].mean()) if stable.any() else float("nan")
    supported = float(np.median(certificates.stable_distance))
    found = _row(0.0, 0.0, training, (float(right.mean()), after), "exact where answered, adaptive", supported)
    return {**found, "answered": float(stable.mean())}


def _fitted(prepared: Prepared, settings: RunSettings) -> tuple[Model, float]:
    started = time.perf_counter()
    model = fit(prepared.problem(settings))
    return model, time.perf_counter() - started
