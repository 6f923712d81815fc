"""Kind private_trainings: what a linear head costs in accuracy when its *training* is private, by
total budget.

Every method sees the same public features of norm at most 1, and every released head answers any
number of queries. Beside DP-SGD: output and objective perturbation of regularised ERM (002),
randomised response on the training labels (002, 004), DP-SGD's noise inside certified training (000
Algorithm 1), and weights released by their closed-form stability.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas as pd
from torch import nn

from agt.errors import ConfigError
from agt.mechanisms.weights import ReleaseWeights
from agt.models.linear import LinearModel
from agt.settings import Count, Positive, Probability, keyword_schema

from .baselines import Baseline, LocalRR, NoisyAgt
from .bench import RECORD, Bench, Weights, train_sgd
from .dp_sgd import DpSgd
from .entry import Entry, Key, Overrides
from .figures import lines
from .kinds import Figure, Kind, Shown, grid, wide
from .perturbation import Perturbation

EXACT = "release_weights"


@keyword_schema
class PrivateTrainings(Kind):
    """Accuracy of privately trained linear heads against the total budget (mean and range of
    seeds).

    Attributes:
        run: overrides of a linear head with certificate=stability: its features and its plain SGD
            are everybody's; labels are flipped for that training.
        seeds: draws of each method that is sampled.
    """

    run: Overrides
    dpsgd: DpSgd
    perturbed: tuple[Perturbation, ...]
    noisy: NoisyAgt
    eps: tuple[Positive, ...] = (0.1, 0.5, 1.0, 10.0)
    delta: Probability = 1e-5
    seeds: Count = 3
    index = ("series", "eps")

    @cached_property
    def methods(self) -> dict[str, Baseline]:
        """The methods that are compared, by the name of their series."""
        return {
            "DP-SGD": self.dpsgd,
            **{f"{each.method} perturbation": each for each in self.perturbed},
            "noise inside AGT": self.noisy,
            "randomised labels": LocalRR(),
        }

    @property
    def keys(self) -> list[Key]:
        protects = {EXACT: RECORD}
        protects |= {name: method.protects for name, method in self.methods.items()}
        rigorous = [
            name for name, profile in self.profiles.items() if profile.accounting == "rigorous"
        ]
        keys: list[Key] = []
        for series, what in protects.items():
            keys += grid(profile=rigorous[:1], series=[series], protects=[what], eps=self.eps)
        return keys

    def rows(self, entry: Entry) -> pd.DataFrame:
        """Return accuracies of heads that each method trained on its budget, beside plain SGD's."""
        if not self.keys:
            return pd.DataFrame()
        model = entry.model(self.keys[0]["profile"], self.run).linear_head
        if model is None:
            raise ConfigError(
                f"{entry.artifact.id}: the run needs certificate=stability and model=linear"
            )
        bench = _bench(entry, model)
        test = model.problem.dataset.test
        exact = ReleaseWeights.expectation(model, test.features, test.labels)
        queries = model.features(test.features, "float64")
        found = []

        def right(weights: Weights) -> float:
            return float((bench.labels(weights, queries) == test.labels).mean())

        plain = right(train_sgd(bench, bench.single))
        for key in self.keys:
            eps = key["eps"]
            method = self.methods.get(key["series"])
            if method is None:
                measured = {"accuracy": exact(ReleaseWeights.within(eps, self.delta))}
            elif isinstance(method, Perturbation) and bench.classes != 2:
                continue
            else:
                entry.runs.console.note(f"{key['series']}, eps = {eps:g}")
                each = [
                    right(method.fit(bench, eps, self.delta, seed)) for seed in range(self.seeds)
                ]
                measured = {"accuracy": float(np.mean(each)), "low": min(each), "high": max(each)}
            found.append({**key, **measured, "plain SGD": plain})
        return pd.DataFrame(found)

    def shown(self, rows: pd.DataFrame) -> Shown:
        plain = float(rows["plain SGD"].iloc[0])
        found = wide(rows, ["series", "protects"], "eps", "accuracy", self.eps, "eps = {:g}")
        without_privacy = ["plain SGD", "nothing", *[plain] * len(self.eps)]
        last = pd.DataFrame([without_privacy], columns=found.columns)
        table = pd.concat([found, last], ignore_index=True)
        xlabel = "total eps, any number of queries"
        draw = lines("eps", "accuracy", xlabel, "accuracy", level=plain, level_name="plain SGD")
        caption = (
            "Test accuracy of privately trained linear heads against total eps, delta = "
            f"{self.delta:g}."
        )
        left_open = "; ".join(f"{name}: {method.caveat}" for name, method in self.methods.items())
        notes = tuple(
            note.format(seeds=self.seeds, left_open=left_open) for note in TRAININGS_NOTES
        )
        figure = Figure(caption, rows.drop(columns=["profile", "plain SGD"]), draw)
        return Shown(table, [figure], notes, measured=rows)

    def compared(self, key: Key) -> Key:
        return {f"{key['series']}, eps = {key['eps']:g}": "accuracy"}


TRAININGS_NOTES = (
    "One linear head on the same public features for everybody; mean of {seeds} seeds, and their "
    "range as a band; release_weights is an exact expectation. Drawn from seeds: a simulation, "
    "not a release.",
    "What the guarantees leave open: {left_open}.",
    "Settings of DP-SGD, of both perturbations and of noise inside AGT were set on the test "
    "records: that flatters them, and no proof of privacy rests on their rows; those of "
    "release_weights say in conf/training what they were chosen on.",
)


def _bench(entry: Entry, model: LinearModel) -> Bench:
    """A linear head without bias (the features bring one), at zero, on the model's features."""
    dataset = model.problem.dataset
    settings = model.settings
    if dataset.declared_size is None:
        raise ConfigError(
            f"{entry.artifact.id}: every method needs a public size: give dataset.declared_size"
        )
    records = replace(dataset.train, features=model.features(dataset.train.features, "float64"))
    outputs = 1 if settings.training.loss == "binary_cross_entropy" else model.problem.classes
    layer = nn.Linear(records.features.shape[1], outputs, bias=False)
    nn.init.zeros_(layer.weight)
    size = int(dataset.declared_size)
    return Bench(
        nn.Sequential(layer),
        model.problem.classes,
        records,
        size,
        settings.training,
        settings.compute,
    )
