"""Kind private_trainings: what a linear head costs in accuracy when its *training* is private, by total budget.

Every method sees the same public features of norm at most 1, and every released head answers any number of queries. Beside
DP-SGD: output and objective perturbation of regularised ERM (002), randomised response on the training labels (002, 004),
DP-SGD's noise inside certified training (000 Algorithm 1), and weights released by their closed-form stability.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.mechanisms.planning import weights_accuracy
from agt.mechanisms.weights import weights_budget
from agt.models.linear import LinearModel
from agt.numeric import labels_of
from agt.settings import STRICT, BatchConfig, KGridConfig, RelationConfig, TrainingConfig, validate
from agt.training.batches import BatchPlan
from agt.training.loop import train
from agt.training.noise import NoiseConfig, draw_noise, plan_noise, step_sensitivity
from agt.training.recipe import Recipe
from agt_cli.papers.baselines.dpsgd import train_dpsgd
from agt_cli.papers.baselines.local_rr import LocalRRConfig, train_local_rr
from agt_cli.papers.baselines.perturbation import PerturbationConfig, train_perturbed
from agt_cli.papers.baselines.released import LABEL, RECORD
from agt_cli.papers.baselines.sgd import train_sgd
from agt_cli.papers.reproduction.budgets import Sgd
from agt_cli.papers.reproduction.kinds import Context, Made, kind
from agt_cli.report.curves import Curves, curves

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Weights = dict[str, torch.Tensor]


@validated(frozen=True, config=STRICT)
class Strengths:
    """Lambda of output and of objective perturbation, against the sum of the losses, and the clamp of both."""

    output: Positive
    objective: Positive
    clamp: Annotated[float, Field(gt=0, le=1)] = 1.0


@validated(frozen=True, config=STRICT)
class Noisy:
    """Certified training with noise: full batch, ``epochs`` steps of plain SGD at ``lr``, elementwise clip."""

    epochs: Count
    lr: Positive
    clip: Positive


@validated(frozen=True, config=STRICT)
class TrainingsConfig:
    """Settings of the kind.

    Attributes:
        run: overrides of a linear head with certificate=stability: its features and its plain SGD are everybody's.
        eps, delta: total budgets.
        seeds: draws of each method that is sampled.
        dpsgd, perturbed, noisy: settings of the methods; labels are flipped for the run's own training.
    """

    run: tuple[str, ...]
    dpsgd: Sgd
    perturbed: Strengths
    noisy: Noisy
    eps: tuple[Positive, ...] = (0.1, 0.5, 1.0, 10.0)
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    seeds: Count = 3


@kind
def private_trainings(context: Context, settings: dict[str, Any]) -> Made:
    """Accuracy of privately trained linear heads against the total budget (mean and range of seeds)."""
    config = validate(TrainingsConfig, settings, context.artifact.id)
    name = next((name for name, profile in context.profiles.items() if profile.accounting == "rigorous"), None)
    if name is None:
        return Made({}, notes=("Left out: these heads have rigorous accounting, which profile=ours takes.",))
    overrides = context.overrides(context.profiles[name], config.run)
    model = context.runs.model(overrides, "a linear head")
    if not isinstance(model, LinearModel):
        raise ConfigError(f"{context.artifact.id}: run needs certificate=stability and model=linear")
    bench = Bench(context, config, model)
    rows = [{"series": series, "protects": protects, **row} for series, protects, found in bench.all() for row in found]
    data = pd.DataFrame(rows)
    caption = f"Test accuracy of privately trained linear heads against total eps, delta = {config.delta:g}."
    what = Curves(context.artifact.id, "eps", "accuracy", "total eps, any number of queries", "accuracy",
                  context.experiment.data, level=bench.plain, level_name="plain SGD")  # fmt: skip
    curves(context.record, what, data)
    values = {f"{r['series']}, eps = {r['eps']:g}": {str(name): float(r["accuracy"])} for r in data.to_dict("records")}
    table = data.pivot_table(index=["series", "protects"], columns="eps", values="accuracy", sort=False).reset_index()
    table.columns = [f"eps = {column:g}" if isinstance(column, float) else str(column) for column in table.columns]
    plain = dict(zip(table.columns, ["plain SGD", "nothing", *[bench.plain] * len(config.eps)], strict=True))
    table = pd.concat([table, pd.DataFrame([plain])], ignore_index=True)
    return Made(values, table, {context.artifact.id: caption}, _notes(config))


class Bench:
    """The methods on one set of features; ``plain`` is the accuracy of plain SGD."""

    def __init__(self, context: Context, config: TrainingsConfig, model: LinearModel) -> None:
        self.context, self.config, self.model = context, config, model
        self.dataset, self.training = model.problem.dataset, model.settings.training
        self.classes, self.loss = model.problem.classes, model.settings.training.loss
        if self.dataset.declared_size is None:
            raise ConfigError(f"{context.artifact.id}: every method needs a public size: give dataset.declared_size")
        self.size = int(self.dataset.declared_size)
        self.phi, self.queries = (
            model.features(part.features, "float64") for part in (self.dataset.train, self.dataset.test)
        )
        single = self.phi.astype(np.float32)
        self.records: Records = replace(self.dataset.train, features=single)
        self.plain = self._accuracy(train_sgd(self._head(), self.classes, self.records, self.size, self.training))

    def all(self) -> Iterator[tuple[str, str, list[dict[str, float]]]]:
        """(method, what it protects, a row for each budget)."""
        exact = weights_accuracy(self.model, self.dataset.test.features, self.dataset.test.labels)
        if exact is not None:
            found = [(eps, exact(weights_budget(eps, self.config.delta).mu)) for eps in self.config.eps]
            yield "release_weights", RECORD, [{"eps": eps, "accuracy": accuracy} for eps, accuracy in found]
        yield "DP-SGD", RECORD, self._sampled("DP-SGD", self._dpsgd)
        if self.classes == 2:
            yield "objective perturbation", RECORD, self._sampled("objective perturbation", self._objective)
            yield "output perturbation", RECORD, self._sampled("output perturbation", self._output)
        yield "noise inside AGT", RECORD, self._sampled("noise inside AGT", self._noisy)
        yield "randomised labels", LABEL, self._sampled("randomised labels", self._flipped)

    def _sampled(self, name: str, method: Callable[[float, int], Weights]) -> list[dict[str, float]]:
        rows = []
        for eps in self.config.eps:
            self.context.runs.console.note(f"{name}, eps = {eps:g}")
            found = [self._accuracy(method(eps, seed)) for seed in range(self.config.seeds)]
            rows.append({"eps": eps, "accuracy": float(np.mean(found)), "low": min(found), "high": max(found)})
        return rows

    def _dpsgd(self, eps: float, seed: int) -> Weights:
        config = self.config.dpsgd.at(eps, self.config.delta, self.size, seed)
        x, y = self.records.features, self.records.labels
        return train_dpsgd(self._head(), self.classes, x, y, self.loss, self.size, config).weights

    def _output(self, eps: float, seed: int) -> Weights:
        return self._perturbed("output", self.config.perturbed.output, eps, seed)

    def _objective(self, eps: float, seed: int) -> Weights:
        return self._perturbed("objective", self.config.perturbed.objective, eps, seed)

    def _perturbed(self, method: str, strength: float, eps: float, seed: int) -> Weights:
        settings = {"epsilon": eps, "delta": self.config.delta, "clamp": self.config.perturbed.clamp, "seed": seed}
        config = validate(PerturbationConfig, {**settings, "method": method, "strength": strength}, "perturbed")
        weight = train_perturbed(self.phi, self.records.labels, config).weights["0.weight"]
        return {"0.weight": weight if self.loss == "binary_cross_entropy" else torch.cat([-weight / 2, weight / 2])}

    def _flipped(self, eps: float, seed: int) -> Weights:
        config = LocalRRConfig(epsilon=eps, seed=seed)
        return train_local_rr(self._head(), self.classes, self.records, self.size, self.training, config).weights

    def _noisy(self, eps: float, seed: int) -> Weights:
        """The nominal parameters of certified training with noise; a box would hold for every k as without it."""
        own, head = self.config.noisy, self._head()
        training = TrainingConfig(
            loss=self.loss, epochs=own.epochs, lr=own.lr, clip=own.clip, batch=BatchConfig(n_max=2 * self.size + 10)
        )
        plan = BatchPlan.of(training.batch, training.epochs, self.size, len(self.records))
        parameters = {name: p.detach() for name, p in head.named_parameters()}
        scalars = sum(p.numel() for p in parameters.values())
        sensitivity = step_sensitivity("add_remove", own.clip, scalars, plan.normalizer)
        noise = plan_noise(NoiseConfig(epsilon=eps, delta=self.config.delta, seed=seed), sensitivity, plan.epochs)

        def draws(step: int) -> Weights:
            return draw_noise(parameters, noise, seed, step)

        relation, compute = RelationConfig(name="add_remove"), self.model.settings.compute
        recipe = Recipe(self.classes, training, relation, KGridConfig(max=0), compute, self.size)
        return dict(train(head, recipe, self.records, noise=draws).nominal)

    def _head(self) -> nn.Sequential:
        """A linear head without bias (the features bring one), at zero."""
        outputs = 1 if self.loss == "binary_cross_entropy" else self.classes
        layer = nn.Linear(self.phi.shape[1], outputs, bias=False)
        nn.init.zeros_(layer.weight)
        return nn.Sequential(layer)

    def _accuracy(self, weights: Weights) -> float:
        logits = self.queries @ weights["0.weight"].detach().double().numpy().T
        return float((labels_of(logits) == self.dataset.test.labels).mean())


def _notes(config: TrainingsConfig) -> tuple[str, ...]:
    return (
        f"One linear head on the same public features for everybody; mean of {config.seeds} seeds, and their range as a "
        "band; release_weights is an exact expectation. Drawn from seeds: a simulation, not a release.",
        "Randomised labels protect labels alone, from the trainer too; the others protect whole records.",
        "Settings of DP-SGD, of both perturbations and of noise inside AGT were set on the test records: that flatters "
        "them, and no proof of privacy rests on their rows; those of release_weights say in conf/training what they were "
        "chosen on.",
    )
