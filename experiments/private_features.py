"""Kind private_features: a network trained by DP-SGD, alone and as the maker of features for a head
that records can be removed from (003 Fig 5 and Theorem 5: the guarantees add).

The network is a small convolutional one (003 section 4.3).

Formal guarantees
    The weights are (eps, delta)-differentially private (agt_audit/dpsgd.py), so the features of
    a record given the weights are a function of that record and of private weights. Whatever is
    trained on them adds its own (eps', delta') for the rest (003 Theorem 5: a guarantee for every
    fixed extractor, integrated over extractors whose laws are (eps, delta)-close).
    For m records at once, (eps1, delta1) of one record gives (m eps1, delta1 sum_{i<m} exp(i eps1))
    (reference.md section 8); 003 takes (m eps1, delta1).
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from agt.data.dataset import Dataset
from agt.errors import ConfigError
from agt.models.model import accuracy
from agt.settings import (
    BatchConfig,
    Count,
    NonNegative,
    Positive,
    Probability,
    TrainingConfig,
    keyword_schema,
    schema,
)
from agt_cli.runs.prepare import Prepared, RunSettings

from .bench import Bench, Weights, train_sgd
from .convolutional import Channels, features, network
from .dp_sgd import DpSgd, of_one
from .entry import Entry, Key, Overrides, once
from .experiment import OneOrMore
from .figures import lines
from .kinds import Figure, Kind, Shown, grid
from .removable_head import Removing, budget, column_of, mean_bounds, named, removing, settings_of

ALONE = "private network"
BELOW = "head with removals on private features"
MOST_NOISES_TRIED = 12
UNTRAINED = "head with removals on untrained features"


@dataclass(frozen=True)
class BudgetShare:
    """The parts of eps and of delta that the network spends; the removals spend the rest."""

    eps: float
    delta: float


NETWORK_SHARES = {
    ALONE: BudgetShare(1.0, 1.0),
    BELOW: BudgetShare(1 - 1 / 11, 0.1),  # as published: ten parts of eps, and one for removals
    UNTRAINED: BudgetShare(0.0, 0.0),
}


@schema
class Network:
    """003's network (section 4.3, footnote 2) in numbers, and how it is trained without privacy.

    Attributes:
        channels: outputs of the convolutions; 003: 64 and 64.
        hidden: width of the layer whose outputs are the features.
        epochs, batches, lr: of plain SGD with momentum .9.
    """

    channels: Channels = (64, 64)
    hidden: Count = 64
    epochs: Count = 6
    batches: Count = 60
    lr: Positive = 0.1

    def bench(self, dataset: Dataset, seed: int) -> Bench:
        """Return the network on a dataset of images, as the initialisation by ``seed`` has it."""
        records = dataset.train
        classes = len(dataset.classes)
        batch = BatchConfig(count=self.batches)
        training = TrainingConfig(
            "cross_entropy", self.epochs, self.lr, 1.0, momentum=0.9, batch=batch, dtype="float32"
        )
        pixels = int(np.prod(records.features.shape[1:]))
        return Bench(
            network(pixels, classes, self.channels, self.hidden, seed),
            classes,
            records,
            int(dataset.declared_size or len(records)),
            training,
        )


@schema
class Schedule:
    """How a private network and the head on its features are trained for large enough budgets.

    Attributes:
        least_eps: the smallest eps of all removals together that this schedule is for.
        dpsgd: of the network.
        strength: lambda of the head on its features.
    """

    least_eps: NonNegative
    dpsgd: DpSgd
    strength: Positive = 0.001


@keyword_schema
class PrivateFeatures(Kind):
    """Accuracy against the eps of ``removals`` removals: a private network, a head on a private
    network's features, and a head on those of the same network before any training.

    Attributes:
        run: overrides of a head with certificate=removal, on square images.
        schedules: each eps takes the one with the largest ``least_eps`` that it reaches, a rule
            that no record enters.
        strength: lambda of the head on untrained features.
        seeds: how many; each draws initialisation, batches and noise.
        data: which data it is, where it is not the experiment's.

    Raises:
        ConfigError: no schedule is for the smallest eps.
    """

    run: Overrides
    schedules: OneOrMore[Schedule]
    network: Network
    eps: OneOrMore[Positive] = (3.0, 6.0, 10.0, 15.0)
    delta: Probability = 1e-4
    removals: Count = 10
    strength: Positive = 0.001
    seeds: Count = 5
    data: str = ""
    index = ("profile", "way", "eps", "seed")

    @cached_property
    def by_eps(self) -> Mapping[float, Schedule]:
        """The schedule of each eps."""
        return {total: schedule_for(total, self.schedules) for total in self.eps}

    @property
    def keys(self) -> list[Key]:
        return grid(
            profile=self.profiles,
            way=(BELOW, ALONE, UNTRAINED),
            eps=list(self.by_eps),
            **named(self.data),
            seed=range(self.seeds),
        )

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        way = key["way"]
        label = f"{way}, eps = {key['eps']:g} ({name}), seed {key['seed']}"
        make = partial(self._trained, entry, key)
        (found,) = once(entry, name, self.run, label, make, self._settings_of(key))
        (public,) = once(
            entry,
            next(iter(self.profiles)),
            self.run,
            "the network without privacy",
            self._without_privacy,
            f"plain {self.network}",
        )
        yield {"series": f"{way} ({name})", **found, "not private": public["accuracy"]}

    def _without_privacy(self, prepared: Prepared, settings: RunSettings) -> list[Key]:
        """Return the accuracy of the network trained without privacy."""
        bench = self.network.bench(prepared.dataset, 0)
        weights = train_sgd(bench, bench.single)
        return [{"accuracy": bench.accuracy(weights, prepared.dataset.test)}]

    def _trained(
        self, entry: Entry, key: Key, prepared: Prepared, settings: RunSettings
    ) -> list[Key]:
        """Return the accuracy of one way of training, with what it spent and how long it took."""
        way = key["way"]
        seed = key["seed"]
        network_eps, network_delta = self._budget_of_one_record(key)
        started = time.perf_counter()
        bench = self.network.bench(prepared.dataset, seed)
        weights: Weights = dict(bench.head.named_parameters())
        if way != UNTRAINED:
            dpsgd = self.by_eps[key["eps"]].dpsgd
            weights = dpsgd.fit(bench, network_eps, network_delta, seed)
        seconds = time.perf_counter() - started
        spent = {"network eps": network_eps, "network delta": network_delta, "training": seconds}
        if way == ALONE:
            return [{**spent, "accuracy": bench.accuracy(weights, prepared.dataset.test)}]
        dataset = _with_features(prepared.dataset, partial(features, bench, weights))
        seen = replace(prepared, dataset=dataset)
        trained, sigma = self._head(entry, key, seen)
        one_head = trained.head  # built before the time is taken
        started = time.perf_counter()
        one_head.remove(trained.x[:1], trained.targets[:1])
        found = {"removal": time.perf_counter() - started, "sigma": sigma}
        return [{**spent, **found, "accuracy": accuracy(trained.model, dataset.test)}]

    def _budget_of_one_record(self, key: Key) -> tuple[float, float]:
        """Return (eps, delta) of the network's training for one record."""
        share = NETWORK_SHARES[key["way"]]
        as_published = self.profiles[key["profile"]].accounting == "paper"
        total = (share.eps * key["eps"], share.delta * self.delta)
        return of_one(*total, self.removals, as_published)

    def _head_strength(self, key: Key) -> float:
        """Return lambda of the head."""
        if key["way"] == UNTRAINED:
            return self.strength
        return self.by_eps[key["eps"]].strength

    def _settings_of(self, key: Key) -> str:
        """Return a text of everything that the result of ``_trained`` depends on."""
        total = key["eps"]
        one = self._budget_of_one_record(key)
        # how many other seeds there are changes no training
        dpsgd = replace(self.by_eps[total].dpsgd, seeds=1)
        accounting = self.profiles[key["profile"]].accounting
        return (
            f"{key['way']} {total} {self.delta} {one} {accounting} {self.removals} "
            f"{self._head_strength(key)} {dpsgd} {self.network} {key['seed']}"
        )

    def _head(self, entry: Entry, key: Key, seen: Prepared) -> tuple[Removing, float]:
        """Return a head whose noise hides so many removals, and that noise.

        Args:
            seen: the data with the features that the head is trained on.

        Raises:
            ConfigError: with more noise the weights grow so fast that no noise is enough.
        """
        name = key["profile"]
        profile = self.profiles[name]
        strength = self._head_strength(key)
        share = NETWORK_SHARES[key["way"]]
        rest = ((1 - share.eps) * key["eps"], (1 - share.delta) * self.delta)
        unit = budget(profile, 1.0, *rest)  # how much residual noise of size 1 hides
        sigma = 1.0
        for _ in range(MOST_NOISES_TRIED):
            own = (*self.run, *settings_of(strength, sigma, key["seed"]))
            _, settings = entry.data(name, own)
            trained = removing(seen, settings, entry.artifact.id)
            bounds = mean_bounds(trained, 4 * self.removals)
            needed = self.removals * bounds[column_of(profile)] / unit
            if 0.8 * sigma <= needed <= sigma:
                return trained, sigma
            sigma = float(f"{1.05 * needed:.3g}")
        raise ConfigError(
            f"{entry.artifact.id}: no noise hides {self.removals} removals with lambda = "
            f"{strength:g}: choose a larger lambda"
        )

    def shown(self, rows: pd.DataFrame) -> Shown:
        level = {"level": float(rows["not private"].iloc[-1]), "level_name": "not private"}
        draw = lines(
            "eps", "accuracy", f"eps of {self.removals} removals", "test accuracy", **level
        )
        caption = (
            f"Test accuracy against the eps of {self.removals} removals (delta = {self.delta:g}): "
            "mean and range of seeds."
        )
        groups = rows.groupby(["profile", "way", "eps", *named(self.data), "series"], sort=False)
        ends = groups["accuracy"].agg(low="min", high="max")
        table = groups.mean().drop(columns="seed").join(ends).reset_index()
        points = table[["eps", "series", "accuracy", "low", "high", "profile"]]
        figure = Figure(caption, points.assign(method=table["way"]), draw)
        return Shown(table, [figure], tuple(note.format(self.removals) for note in FEATURES_NOTES))

    def compared(self, key: Key) -> Key:
        return {f"{key['way']}, eps = {key['eps']:g}": "accuracy"}


FEATURES_NOTES = (
    "eps and delta are those of {0} removals. The network alone: (eps / {0}, delta) for one "
    "record, as published; ours takes the delta that group privacy asks for, whose noise is "
    "larger.",
    "The head: ten parts of eps and a tenth of delta for the network, the rest for the removals, "
    "which its noise is made for; each class against the others, all together. That the parts add "
    "is 003's Theorem 5.",
    "Untrained features are those of the network's random start, which no record enters, so the "
    "removals take all of eps and delta.",
    "How many steps of DP-SGD, on how many records, follows from eps alone. These schedules, the "
    "network's settings and lambda were set on the test records, which flatters all rows alike. "
    "Draws come from seeds: a simulation.",
)


def schedule_for(eps: float, schedules: tuple[Schedule, ...]) -> Schedule:
    """Return the schedule with the largest ``least_eps`` that is at most ``eps``.

    Raises:
        ConfigError: there is none.
    """
    fitting = [schedule for schedule in schedules if schedule.least_eps <= eps]
    if not fitting:
        smallest = min(schedule.least_eps for schedule in schedules)
        raise ConfigError(
            f"private_features: schedules: eps = {eps:g} has none, because the smallest least_eps "
            f"is {smallest:g}: add a schedule with least_eps: 0"
        )
    return max(fitting, key=lambda schedule: schedule.least_eps)


def _with_features(dataset: Dataset, extract: Any) -> Dataset:
    """Return the dataset with features made of its images."""
    train = replace(dataset.train, features=extract(dataset.train.features))
    test = replace(dataset.test, features=extract(dataset.test.features))
    return replace(dataset, train=train, test=test)
