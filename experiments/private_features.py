"""Kind private_features: a network trained by DP-SGD, alone and as the maker of features for a head
that records can be removed from (003 Fig 5 and Theorem 5: the guarantees add).
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.errors import ConfigError
from agt.models.model import accuracy
from agt.settings import STRICT, BatchConfig, Count, NonNegative, Positive, TrainingConfig
from agt_cli.runs.prepare import Prepared, RunSettings

from .accuracy import Delta
from .bench import Bench, Weights, train_sgd
from .convolutional import Channels, features, network
from .dp_sgd import DpSgd, of_one
from .entry import Entry, Key, Overrides, Profiles, once
from .experiment import ProfileName
from .figures import lines
from .kinds import Figure, Kind, Shown, grid, kind, through
from .removable_head import Removing, budget, column_of, mean_bounds, named, removing, settings_of

ALONE = "private network"
BELOW = "head with removals on private features"
MOST_NOISES_TRIED = 12
UNTRAINED = "head with removals on untrained features"
SHARE = 11  # of the budget: ten parts for the network, one for removals, as published


@validated(frozen=True, config=STRICT)
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

    def bench(self, records: Records, classes: int, size: int, seed: int) -> Bench:
        """On [n, pixels] images, from the initialisation that ``seed`` draws."""
        batch = BatchConfig(count=self.batches)
        training = TrainingConfig(
            "cross_entropy", self.epochs, self.lr, 1.0, momentum=0.9, batch=batch, dtype="float32"
        )
        pixels = int(np.prod(records.features.shape[1:]))
        return Bench(
            network(pixels, classes, self.channels, self.hidden, seed),
            classes,
            records,
            size,
            training,
        )


@validated(frozen=True, config=STRICT)
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


@kind
def private_features(
    profiles: Profiles,
    run: Overrides,
    schedules: Annotated[tuple[Schedule, ...], Field(min_length=1)],
    network: Network,
    eps: Annotated[tuple[Positive, ...], Field(min_length=1)] = (3.0, 6.0, 10.0, 15.0),
    delta: Delta = 1e-4,
    removals: Count = 10,
    strength: Positive = 0.001,
    seeds: Count = 5,
    data: str = "",
) -> Kind:
    """Accuracy against the eps of ``removals`` removals: a private network, a head on a private
    network's features, and a head on those of the same network before any training.

    Args:
        run: overrides of a head with certificate=removal, on square images.
        schedules: each eps takes the one with the largest ``least_eps`` that it reaches, a rule
            that no record enters.
        strength: lambda of the head on untrained features.
        seeds: how many; each draws initialisation, batches and noise.
        data: which data it is, where it is not the experiment's.

    Raises:
        ConfigError: no schedule is for the smallest eps.
    """
    by_eps = {total: schedule_for(total, schedules) for total in eps}
    ways = (BELOW, ALONE, UNTRAINED)
    keys = grid(profile=profiles, way=ways, eps=eps, **named(data), seed=range(seeds))

    def plain(prepared: Prepared, settings: RunSettings) -> list[Key]:
        bench = _bench_of_network(prepared.dataset, network, 0)
        weights = train_sgd(bench, bench.single)
        return [{"accuracy": bench.accuracy(weights, prepared.dataset.test)}]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        total = key["eps"]
        way = key["way"]
        seed = key["seed"]
        profile = profiles[name]
        dpsgd = by_eps[total].dpsgd
        head_strength = strength if way == UNTRAINED else by_eps[total].strength
        # of eps and of delta, for the network
        shares = {ALONE: (1.0, 1.0), BELOW: (1 - 1 / SHARE, 0.1), UNTRAINED: (0.0, 0.0)}
        eps_share, delta_share = shares[way]
        as_published = profile.accounting == "paper"
        one = of_one(eps_share * total, delta_share * delta, removals, as_published)

        def make(prepared: Prepared, settings: RunSettings) -> list[Key]:
            started = time.perf_counter()
            bench = _bench_of_network(prepared.dataset, network, seed)
            weights: Weights = dict(bench.head.named_parameters())
            if way != UNTRAINED:
                weights = dpsgd.fit(bench, *one, seed)
            seconds = time.perf_counter() - started
            spent = {"network eps": one[0], "network delta": one[1], "training": seconds}
            if way == ALONE:
                return [{**spent, "accuracy": bench.accuracy(weights, prepared.dataset.test)}]
            dataset = _seen(prepared.dataset, partial(features, bench, weights))
            seen = replace(prepared, dataset=dataset)
            unit = budget(profile, 1.0, (1 - eps_share) * total, (1 - delta_share) * delta)
            trained, sigma = head(entry, name, seen, unit, head_strength, seed)
            one_head = trained.head
            started = time.perf_counter()
            one_head.remove(trained.x[:1], trained.targets[:1])
            found = {"removal": time.perf_counter() - started, "sigma": sigma}
            return [{**spent, **found, "accuracy": accuracy(trained.model, seen.dataset.test)}]

        of = replace(dpsgd, seeds=1)  # how many others there are changes no training
        on = (
            f"{way} {total} {delta} {one} {profile.accounting} {removals} {head_strength} {of} "
            f"{network} {seed}"
        )
        label = f"{way}, eps = {total:g} ({name}), seed {seed}"
        (found,) = once(entry, name, run, label, make, on)
        first = next(iter(profiles))
        label = "the network without privacy"
        (public,) = once(entry, first, run, label, plain, f"plain {network}")
        yield {"series": f"{way} ({name})", **found, "not private": public["accuracy"]}

    def head(
        entry: Entry,
        name: ProfileName,
        seen: Prepared,
        unit: float,
        head_strength: float,
        seed: int,
    ) -> tuple[Removing, float]:
        """Return a head whose noise hides so many removals, and that noise.

        Args:
            unit: how much residual noise of size 1 hides.
            head_strength: the head's lambda.

        Raises:
            ConfigError: with more noise the weights grow so fast that no noise is enough.
        """
        sigma = 1.0
        for _ in range(MOST_NOISES_TRIED):
            own = (*run, *settings_of(head_strength, sigma, seed))
            _, settings = entry.data(name, own)
            trained = removing(seen, settings, entry.artifact.id)
            bounds = mean_bounds(trained, 4 * removals)
            needed = removals * bounds[column_of(profiles[name])] / unit
            if 0.8 * sigma <= needed <= sigma:
                return trained, sigma
            sigma = float(f"{1.05 * needed:.3g}")
        raise ConfigError(
            f"{entry.artifact.id}: no noise hides {removals} removals with lambda = "
            f"{head_strength:g}: choose a larger lambda"
        )

    def shown(rows: pd.DataFrame) -> Shown:
        level = {"level": float(rows["not private"].iloc[-1]), "level_name": "not private"}
        draw = lines("eps", "accuracy", f"eps of {removals} removals", "test accuracy", **level)
        caption = (
            f"Test accuracy against the eps of {removals} removals (delta = {delta:g}): mean "
            "and range of seeds."
        )
        groups = rows.groupby(["profile", "way", "eps", *named(data), "series"], sort=False)
        ends = groups["accuracy"].agg(low="min", high="max")
        table = groups.mean().drop(columns="seed").join(ends).reset_index()
        points = table[["eps", "series", "accuracy", "low", "high", "profile"]]
        figure = Figure(caption, points.assign(method=table["way"]), draw)
        return Shown(table, [figure], tuple(note.format(removals) for note in FEATURES_NOTES))

    def compared(key: Key) -> Key:
        return {f"{key['way']}, eps = {key['eps']:g}": "accuracy"}

    return Kind(keys, ("profile", "way", "eps", "seed"), through(keys, measure), shown, compared)


FEATURES_NOTES = (
    "eps and delta are those of {0} removals. The network alone: (eps / {0}, delta) for one "
    "record, as "
    "published; ours takes the delta that group privacy asks for, whose noise is larger.",
    "The head: ten parts of eps and a tenth of delta for the network, the rest for the removals, "
    "which its noise is "
    "made for; each class against the others, all together. That the parts add is 003's Theorem 5.",
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


def _bench_of_network(dataset: Dataset, network: Network, seed: int) -> Bench:
    size = dataset.declared_size or len(dataset.train)
    return network.bench(dataset.train, len(dataset.classes), int(size), seed)


def _seen(dataset: Dataset, extract: Any) -> Dataset:
    """The dataset with features made of its images."""
    train = replace(dataset.train, features=extract(dataset.train.features))
    test = replace(dataset.test, features=extract(dataset.test.features))
    return replace(dataset, train=train, test=test)
