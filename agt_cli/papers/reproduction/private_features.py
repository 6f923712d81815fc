"""Kind private_features: a network trained by DP-SGD, alone and as the maker of features for a head that records can be
removed from (003 Fig 5 and Theorem 5: the guarantees add)."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.data.dataset import Dataset, Records
from agt.models.model import accuracy
from agt.settings import STRICT, BatchConfig, Positive, TrainingConfig
from agt_cli.papers.baselines.dpsgd import DpSgd
from agt_cli.papers.baselines.network import Channels, features, network, of_one
from agt_cli.papers.baselines.released import Bench, Weights
from agt_cli.papers.baselines.sgd import train_sgd
from agt_cli.papers.reproduction.budgets import Count, Delta, best
from agt_cli.papers.reproduction.definition import ProfileName
from agt_cli.papers.reproduction.kinds import Entry, Figure, Key, Kind, Overrides, Profiles, kind, through
from agt_cli.papers.reproduction.removing import CODE, Removing, budget, published, removing, settings_of
from agt_cli.report.curves import Curves
from agt_cli.runs.prepare import Prepared, RunSettings

ALONE, BELOW = "private network", "head with removals on private features"
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

    def bench(self, records: Records, classes: int, size: int) -> Bench:
        """On [n, pixels] images."""
        batch = BatchConfig(count=self.batches)
        training = TrainingConfig("cross_entropy", self.epochs, self.lr, 1.0, momentum=0.9, batch=batch, dtype="float32")
        pixels = int(np.prod(records.features.shape[1:]))
        return Bench(network(pixels, classes, self.channels, self.hidden, 0), classes, records, size, training)


@kind
def private_features(
    profiles: Profiles,
    run: Overrides,
    dpsgd: DpSgd,
    network: Network,
    eps: Annotated[tuple[Positive, ...], Field(min_length=1)] = (3.0, 6.0, 10.0, 15.0),
    delta: Delta = 1e-4,
    removals: Count = 10,
    strength: Positive = 0.001,
    data: str = "",
) -> Kind:
    """Accuracy against the eps of ``removals`` removals: a private network, and a head on a private network's features.

    Args:
        run: overrides of a head with certificate=removal, on square images.
        dpsgd: of both networks.
        strength: the head's lambda.
        data: which data it is, where it is not the experiment's.
    """
    keys = [
        {"profile": name, "way": way, "eps": value, **({"data": data} if data else {})}
        for name in profiles
        for way in (BELOW, ALONE)
        for value in eps
    ]

    def plain(entry: Entry) -> float:
        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            bench = _bench(prepared.dataset, network)
            return pd.DataFrame([{"accuracy": _right(bench, train_sgd(bench, bench.single), prepared)}]), {}

        overrides = entry.overrides(next(iter(profiles)), run)
        found, _ = entry.runs.once(
            overrides, "the network without privacy", make, f"plain {network}", modules=(*CODE, __name__)
        )
        return float(found["accuracy"].iloc[0])

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name, total = key["profile"], key["eps"]
        known = profiles[name].accounting == "paper"
        share = (1.0, 1.0) if key["way"] == ALONE else (1 - 1 / SHARE, 0.1)  # of eps and of delta, for the network
        one = of_one(share[0] * total, share[1] * delta, removals, known)

        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            started = time.perf_counter()
            bench = _bench(prepared.dataset, network)
            weights = dpsgd.fit(bench, *one, seed=0)
            found: dict[str, Any] = {
                "network eps": one[0],
                "network delta": one[1],
                "training": time.perf_counter() - started,
            }
            if key["way"] == ALONE:
                return pd.DataFrame([{**found, "accuracy": _right(bench, weights, prepared)}]), {}
            seen = replace(prepared, dataset=_seen(prepared.dataset, partial(features, bench, weights)))
            trained, sigma = _head(entry, name, seen, (1 - share[0]) * total, (1 - share[1]) * delta)
            head, started = trained.head, time.perf_counter()
            head.remove(trained.x[:1], trained.targets[:1])
            found |= {"removal": time.perf_counter() - started, "sigma": sigma}
            return pd.DataFrame([{**found, "accuracy": accuracy(trained.model, seen.dataset.test)}]), {}

        entry.runs.console.note(f"{key['way']}, eps = {total:g} ({name})")
        on = f"{key['way']} {total} {delta} {one} {profiles[name].accounting} {removals} {strength} {dpsgd} {network}"
        code = (*CODE, __name__, "agt_cli.papers.baselines.network", "agt_cli.papers.baselines.dpsgd")
        frame, _ = entry.runs.once(entry.overrides(name, run), key["way"], make, on, modules=code)
        yield {"series": f"{key['way']} ({name})", **frame.to_dict("records")[0], "not private": plain(entry)}

    def _head(entry: Entry, name: ProfileName, seen: Prepared, left: float, share: float) -> tuple[Removing, float]:
        """A head whose noise hides so many removals, and that noise."""
        sigma, profile = 1.0, profiles[name]
        for _ in range(3):
            settings = entry.data(name, (*run, *settings_of(strength, sigma, 0)))[1]
            trained = removing(seen, settings, entry.artifact.id)
            head = trained.head
            steps = [head.copy().remove(trained.x[[row]], trained.targets[[row]]) for row in trained.drawn(4 * removals)]
            paper = profile.accounting == "paper"
            each = [published(step, trained.objective) if paper else step.after - step.before for step in steps]
            needed = removals * float(np.mean(each)) / budget(profile, 1.0, left, share)
            if 0.8 * sigma <= needed <= sigma:
                break
            sigma = float(f"{1.05 * needed:.3g}")
        return trained, sigma

    def compared(key: Key) -> Key:
        return {f"{key['way']}, eps = {key['eps']:g}": "accuracy"}

    notes = (
        f"eps and delta are those of {removals} removals. The network alone: (eps / {removals}, delta) for one record, as "
        "published; ours takes the delta that group privacy asks for, whose noise is larger.",
        "The head: ten parts of eps and a tenth of delta for the network, the rest for the removals, which its noise is "
        "made for; each class against the others, all together. That the parts add is 003's Theorem 5.",
        "DP-SGD's settings, the network's and lambda were set on the test records, which flatters both alike. Draws come "
        "from seeds: a simulation.",
    )
    figure = Figure(
        f"Test accuracy against the eps of {removals} removals (delta = {delta:g}).",
        lambda rows: rows[["eps", "series", "accuracy"]],
        Curves("", "eps", "accuracy", f"eps of {removals} removals", "test accuracy", "", level_name="not private"),
        lambda rows: best(rows[rows["eps"] == rows["eps"].min()], "at eps = {eps:g}"),
        level="not private",
    )
    return Kind(
        keys, through(keys, measure), ("profile", "way", "eps"), (figure,), compared=compared, notes=lambda rows: notes
    )


def _bench(dataset: Dataset, network: Network) -> Bench:
    size = dataset.declared_size or len(dataset.train)
    return network.bench(dataset.train, len(dataset.classes), int(size))


def _right(bench: Bench, weights: Weights, prepared: Prepared) -> float:
    test = prepared.dataset.test
    return float((bench.labels(weights, test.features.astype(np.float32)) == test.labels).mean())


def _seen(dataset: Dataset, extract: Any) -> Dataset:
    """The dataset with features made of its images."""
    train, test = (replace(records, features=extract(records.features)) for records in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test)
