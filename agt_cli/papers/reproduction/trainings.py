"""Kind private_trainings: what a linear head costs in accuracy when its *training* is private, by total budget.

Every method sees the same public features of norm at most 1, and every released head answers any number of queries. Beside
DP-SGD: output and objective perturbation of regularised ERM (002), randomised response on the training labels (002, 004),
DP-SGD's noise inside certified training (000 Algorithm 1), and weights released by their closed-form stability.
"""

from dataclasses import replace
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.errors import ConfigError
from agt.mechanisms.planning import weights_accuracy
from agt.mechanisms.weights import weights_budget
from agt.models.linear import LinearModel
from agt.settings import STRICT, Positive
from agt_cli.papers.baselines.dpsgd import DpSgd
from agt_cli.papers.baselines.local_rr import LocalRR
from agt_cli.papers.baselines.noise import NoisyAgt
from agt_cli.papers.baselines.perturbation import Perturbation
from agt_cli.papers.baselines.released import RECORD, Baseline, Bench, Weights
from agt_cli.papers.baselines.sgd import train_sgd
from agt_cli.papers.reproduction.budgets import Count, Delta, best
from agt_cli.papers.reproduction.kinds import Entry, Figure, Key, Kind, Overrides, Profiles, kind, wide
from agt_cli.report.curves import Curves

EXACT = "release_weights"


@validated(frozen=True, config=STRICT)
class Strengths:
    """Lambda of output and of objective perturbation, against the sum of the losses, and the clamp of both."""

    output: Positive
    objective: Positive
    clamp: Annotated[float, Field(gt=0, le=1)] = 1.0


@kind
def private_trainings(
    profiles: Profiles,
    run: Overrides,
    dpsgd: DpSgd,
    perturbed: Strengths,
    noisy: NoisyAgt,
    eps: tuple[Positive, ...] = (0.1, 0.5, 1.0, 10.0),
    delta: Delta = 1e-5,
    seeds: Count = 3,
) -> Kind:
    """Accuracy of privately trained linear heads against the total budget (mean and range of seeds).

    Args:
        run: overrides of a linear head with certificate=stability: its features and its plain SGD are everybody's; labels
            are flipped for that training.
        seeds: draws of each method that is sampled.
    """
    methods: dict[str, Baseline] = {
        "DP-SGD": dpsgd,
        "objective perturbation": Perturbation("objective", perturbed.objective, perturbed.clamp),
        "output perturbation": Perturbation("output", perturbed.output, perturbed.clamp),
        "noise inside AGT": noisy,
        "randomised labels": LocalRR(),
    }
    protects = {EXACT: RECORD, **{name: method.protects for name, method in methods.items()}}
    rigorous = [name for name, profile in profiles.items() if profile.accounting == "rigorous"][:1]
    keys: list[Key] = [
        {"profile": name, "series": series, "protects": what, "eps": budget}
        for name in rigorous
        for series, what in protects.items()
        for budget in eps
    ]

    def rows(entry: Entry) -> pd.DataFrame:
        if not keys:
            return pd.DataFrame()
        model = entry.model(rigorous[0], run)
        if not isinstance(model, LinearModel):
            raise ConfigError(f"{entry.artifact.id}: run needs certificate=stability and model=linear")
        bench, test = _bench(entry, model), model.problem.dataset.test
        exact = weights_accuracy(model, test.features, test.labels)
        queries, found = model.features(test.features, "float64"), []

        def accuracy(weights: Weights) -> float:
            return float((bench.labels(weights, queries) == test.labels).mean())

        plain = accuracy(train_sgd(bench, bench.single))
        for key in keys:
            if key["series"] == EXACT and exact is not None:
                measured = {"accuracy": exact(weights_budget(key["eps"], delta).mu)}
            elif isinstance(method := methods[key["series"]], Perturbation) and bench.classes != 2:
                continue
            else:
                entry.runs.console.note(f"{key['series']}, eps = {key['eps']:g}")
                each = [accuracy(method.fit(bench, key["eps"], delta, seed)) for seed in range(seeds)]
                measured = {"accuracy": float(np.mean(each)), "low": min(each), "high": max(each)}
            found.append({**key, **measured, "plain SGD": plain})
        return pd.DataFrame(found)

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        found = wide(rows, ["series", "protects"], "eps", "accuracy", eps, "eps = {:g}")
        plain = ["plain SGD", "nothing", *[rows["plain SGD"].iloc[0]] * len(eps)]
        return pd.concat([found, pd.DataFrame([plain], columns=found.columns)], ignore_index=True)

    def notes(rows: pd.DataFrame) -> tuple[str, ...]:
        if rows.empty:
            return ("Left out: these heads have rigorous accounting, which profile=ours takes.",)
        return (
            f"One linear head on the same public features for everybody; mean of {seeds} seeds, and their range as a "
            "band; release_weights is an exact expectation. Drawn from seeds: a simulation, not a release.",
            f"What the guarantees leave open: {'; '.join(f'{name}: {method.caveat}' for name, method in methods.items())}.",
            "Settings of DP-SGD, of both perturbations and of noise inside AGT were set on the test records: that flatters "
            "them, and no proof of privacy rests on their rows; those of release_weights say in conf/training what they "
            "were chosen on.",
        )

    figure = Figure(
        f"Test accuracy of privately trained linear heads against total eps, delta = {delta:g}.",
        lambda rows: rows.drop(columns=["profile", "plain SGD"]),
        Curves("", "eps", "accuracy", "total eps, any number of queries", "accuracy", "", level_name="plain SGD"),
        lambda rows: best(rows[rows["eps"] == rows["eps"].min()], "at a total eps of {eps:g}"),
        level="plain SGD",
    )
    return Kind(
        keys,
        rows,
        ("series", "eps"),
        (figure,),
        table,
        measured=lambda rows: rows,
        compared=lambda key: {f"{key['series']}, eps = {key['eps']:g}": "accuracy"},
        notes=notes,
    )


def _bench(entry: Entry, model: LinearModel) -> Bench:
    """A linear head without bias (the features bring one), at zero, on the model's features."""
    dataset, settings = model.problem.dataset, model.settings
    if dataset.declared_size is None:
        raise ConfigError(f"{entry.artifact.id}: every method needs a public size: give dataset.declared_size")
    records = replace(dataset.train, features=model.features(dataset.train.features, "float64"))
    outputs = 1 if settings.training.loss == "binary_cross_entropy" else model.problem.classes
    layer = nn.Linear(records.features.shape[1], outputs, bias=False)
    nn.init.zeros_(layer.weight)
    size = int(dataset.declared_size)
    return Bench(nn.Sequential(layer), model.problem.classes, records, size, settings.training, settings.compute)
