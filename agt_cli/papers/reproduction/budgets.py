"""Kinds about privacy budgets: accuracy against eps (001 Fig 2), ensemble size (Fig 4), queries (Fig 5), and the bound on
smooth sensitivity against the grid (Fig 6). Every accuracy is an exact expectation; only DP-SGD is sampled."""

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.errors import ConfigError
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.guarantee import PureDP
from agt.mechanisms.planning import Budget, afford, weights_accuracy
from agt.mechanisms.weights import weights_budget
from agt.models.box import start_from
from agt.models.heads import build_head
from agt.numeric import labels_of
from agt.relations import RELATIONS
from agt.settings import STRICT, validate
from agt_cli.papers.baselines.dpsgd import DpSgdConfig, train_dpsgd
from agt_cli.papers.reproduction.definition import Profile
from agt_cli.papers.reproduction.kinds import Context, Made, kind
from agt_cli.papers.reproduction.runs import Finished
from agt_cli.report.curves import Curves, curves

Positive = Annotated[float, Field(gt=0)]
Overrides = tuple[str, ...]
Values = dict[str, dict[str, float]]


@validated(frozen=True, config=STRICT)
class EpsConfig:
    """accuracy_by_eps: the run, and eps of one query: ``count`` values from ``least`` to ``most``."""

    run: Overrides = ()
    least: Positive = 0.01
    most: Positive = 10.0
    count: Annotated[int, Field(ge=2)] = 20


@kind
def accuracy_by_eps(context: Context, settings: dict[str, Any]) -> Made:
    """Expected accuracy against eps of one query, one model (001 Fig 2)."""
    config = validate(EpsConfig, settings, context.artifact.id)
    rows, table, level = [], [], 0.0
    values: Values = {}
    for name, profile in context.profiles.items():
        finished = context.run(name, config.run)
        evidence, level = finished.evidence(profile.vote), finished.accuracy
        reached = {}
        for mechanism in profile.mechanisms:
            if MECHANISMS[mechanism].needs == "votes":
                continue
            for eps in np.geomspace(config.least, config.most, config.count):
                accuracy = evidence.expected(MECHANISMS[mechanism].of(PureDP(float(eps)), evidence.classes))
                rows.append({"eps": eps, "series": f"{mechanism} ({name})", "accuracy": accuracy})
                if mechanism not in reached and accuracy >= level - 0.01:
                    reached[mechanism] = float(eps)
            values.setdefault(f"least eps within a point of noise-free, {mechanism}", {})[name] = reached.get(
                mechanism, np.nan
            )
        values.setdefault("noise-free accuracy", {})[name] = level
        table.append(
            {
                "profile": name,
                "accounting": _accounting(profile, finished),
                "k counts": RELATIONS[finished.relation].ball,
                "median stable distance": float(np.median(finished.distance)),
                "noise-free": level,
                **{f"{m}: least eps within a point": reached.get(m, np.nan) for m in profile.mechanisms},
            }
        )
    what = Curves(
        context.artifact.id,
        "eps",
        "accuracy",
        "eps of one query",
        "expected accuracy",
        context.experiment.data,
        level=level,
    )
    curves(context.record, what, pd.DataFrame(rows))
    return Made(values, pd.DataFrame(table), {context.artifact.id: "Expected accuracy against the budget of one query."})


@validated(frozen=True, config=STRICT)
class MembersConfig:
    """accuracy_by_members: the run of a member, ensemble sizes, and eps of one query for each panel."""

    run: Overrides = ()
    members: tuple[Annotated[int, Field(ge=1)], ...] = (1, 5, 25, 95)
    eps: tuple[Positive, ...] = (1.0, 0.5, 0.1)


@kind
def accuracy_by_members(context: Context, settings: dict[str, Any]) -> Made:
    """Expected accuracy against ensemble size: noisy arg-max and certified votes (001 Fig 4)."""
    config = validate(MembersConfig, settings, context.artifact.id)
    rows, table = [], []
    for name, profile in context.profiles.items():
        for members in config.members:
            finished = context.run(name, (*config.run, f"ensemble.members={members}"), f"{members} members")
            evidence = finished.evidence(profile.vote)
            for mechanism in dict.fromkeys((*profile.mechanisms, "noisy_argmax")):
                if mechanism == "global_sensitivity" or (MECHANISMS[mechanism].needs == "votes" and evidence.gap is None):
                    continue
                for eps in config.eps:
                    accuracy = evidence.expected(MECHANISMS[mechanism].of(PureDP(eps), evidence.classes))
                    series = f"{mechanism} ({name})" if mechanism != "noisy_argmax" else f"noisy_argmax ({name} members)"
                    rows.append({"members": members, "series": series, "panel": f"eps = {eps:g}", "accuracy": accuracy})
            table.append(
                {
                    "profile": name,
                    "members": members,
                    "accounting": _accounting(profile, finished),
                    "vote": finished.accuracy,
                    "median distance of the vote": float(np.median(evidence.distance)),
                    "seconds": round(float(finished.facts["seconds_training"]), 1),
                }
            )
    what = Curves(
        context.artifact.id,
        "members",
        "accuracy",
        "members",
        "expected accuracy",
        context.experiment.data,
        log=False,
        panels="panel",
    )
    curves(context.record, what, pd.DataFrame(rows))
    return Made({}, pd.DataFrame(table), {context.artifact.id: "Expected accuracy against the number of members."})


@validated(frozen=True, config=STRICT)
class Sgd:
    """DP-SGD's settings for comparison (DpSgdConfig's, without the budget)."""

    batch: Positive
    lr: Positive
    clip: Positive
    epochs: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    decay: Annotated[float, Field(ge=0)] = 0.0
    seeds: Annotated[int, Field(ge=1)] = 3

    def at(self, eps: float, delta: float, size: int, seed: int) -> DpSgdConfig:
        """The settings of one training on ``size`` records (a public constant), no batch larger than all of them."""
        kept = {key: value for key, value in vars(self).items() if key != "seeds"}
        return DpSgdConfig(**{**kept, "batch": min(self.batch, size)}, epsilon=eps, delta=delta, seed=seed)


@validated(frozen=True, config=STRICT)
class QueriesConfig:
    """accuracy_by_queries: the run, ensemble sizes, one total budget, and how many queries share it; DP-SGD's settings, and
    the overrides of a linear head whose weights a profile with rigorous accounting releases for the whole budget.
    """

    run: Overrides = ()
    members: tuple[Annotated[int, Field(ge=1)], ...] = (1, 25)
    queries: tuple[Annotated[int, Field(ge=1)], ...] = (1, 3, 10, 30, 100, 300, 1000)
    eps: Positive = 10.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    dpsgd: Sgd | None = None
    weights: Overrides = ()


@kind
def accuracy_by_queries(context: Context, settings: dict[str, Any]) -> Made:
    """Expected accuracy against the number of queries under one total budget, DP-SGD beside it (001 Fig 5)."""
    config = validate(QueriesConfig, settings, context.artifact.id)
    rows: list[dict[str, Any]] = []
    values: Values = {}
    for name, profile in context.profiles.items():
        for members in config.members:
            finished = context.run(name, (*config.run, f"ensemble.members={members}"), f"{members} members")
            evidence = finished.evidence(profile.vote)
            for mechanism in dict.fromkeys((*profile.mechanisms, profile.many)):
                if MECHANISMS[mechanism].needs == "votes":
                    continue
                series = f"{mechanism}, T = {members} ({name})"
                for queries in config.queries:
                    budget = Budget(config.eps, config.delta, queries)
                    each = afford(MECHANISMS[mechanism], budget, evidence.classes, profile.bounds)
                    rows.append({"queries": queries, "series": series, "accuracy": evidence.expected(each)})
                last = f"{mechanism}, T = {members}, {config.queries[-1]} queries"
                values.setdefault(last, {})[name] = rows[-1]["accuracy"]
        if config.weights and profile.accounting == "rigorous":
            accuracy = _weights(context, profile, config)
            rows += [{"queries": q, "series": f"release_weights ({name})", "accuracy": accuracy} for q in config.queries]
            values.setdefault("release_weights", {})[name] = accuracy
    first = next(iter(context.profiles))
    if config.dpsgd is not None:
        accuracies = list(_dpsgd(context, context.profiles[first], config, config.dpsgd))
        mean = float(np.mean(accuracies))
        band = {"accuracy": mean, "low": min(accuracies), "high": max(accuracies)}
        rows += [{"queries": queries, "series": "DP-SGD", **band} for queries in config.queries]
        values["DP-SGD"] = dict.fromkeys(context.profiles, mean)
    what = Curves(
        context.artifact.id,
        "queries",
        "accuracy",
        f"queries that share eps = {config.eps:g}, delta = {config.delta:g}",
        "expected accuracy",
        context.experiment.data,
    )
    frame = pd.DataFrame(rows)
    curves(context.record, what, frame)
    table = frame.pivot_table(index="series", columns="queries", values="accuracy", sort=False).reset_index()
    table.columns = [str(column) for column in table.columns]
    divided = "; ".join(f"{name}: {', '.join(profile.bounds)}" for name, profile in context.profiles.items())
    caption = f"Expected accuracy against the number of queries under one total budget (best composition of {divided})."
    return Made(
        values, table, {context.artifact.id: caption + (" DP-SGD: mean and range of seeds." if config.dpsgd else "")}
    )


def _weights(context: Context, profile: Profile, config: QueriesConfig) -> float:
    """The exact expected accuracy of a linear head's weights, released once for the total budget."""
    overrides = context.overrides(profile, config.weights)
    test = context.runs.prepared(overrides).dataset.test
    model = context.runs.model(overrides, "a linear head to release")
    accuracy = weights_accuracy(model, test.features, test.labels)
    if accuracy is None:
        raise ConfigError(f"{context.artifact.id}: weights: these need certificate=stability and model=linear")
    return accuracy(weights_budget(config.eps, config.delta).mu)


def _dpsgd(context: Context, profile: Profile, config: QueriesConfig, sgd: Sgd) -> Iterator[float]:
    """Test accuracy of the run's own head trained by DP-SGD at the total budget, one for each seed."""
    overrides = context.overrides(profile, config.run)
    _, settings = context.runs.settings(overrides)
    prepared = context.runs.prepared(overrides)
    train, test = prepared.dataset.train, prepared.dataset.test
    size = int(prepared.dataset.declared_size or len(train))
    queries = torch.from_numpy(np.ascontiguousarray(test.features, dtype=np.float32))
    for seed in range(sgd.seeds):
        head = build_head(train.features.shape[1:], prepared.classes, settings.model, settings.training)
        if prepared.initial:
            start_from(head, prepared.initial)  # as the runs it is compared with
        head = head.float()
        plan = sgd.at(config.eps, config.delta, size, seed)
        loss = settings.training.loss
        released = train_dpsgd(head, prepared.classes, train.features, train.labels, loss, size, plan)
        yield _accuracy(head, released.weights, queries, test.labels)


def _accuracy(head: nn.Sequential, weights: Any, x: torch.Tensor, labels: np.ndarray) -> float:
    head.load_state_dict({name: tensor.to(torch.float32) for name, tensor in weights.items()})
    with torch.no_grad():
        logits = head(x)
    return float((labels_of(logits).numpy() == labels).mean())


@validated(frozen=True, config=STRICT)
class GridConfig:
    """sensitivity_by_grid: the run (on a dense grid), how many values of k are kept of it, and eps (beta = eps/6)."""

    run: Overrides = ()
    counts: tuple[Annotated[int, Field(ge=1)], ...] = (1, 2, 3, 5, 8, 10, 15, 20, 50, 100, 200)
    eps: Positive = 1.0


@kind
def sensitivity_by_grid(context: Context, settings: dict[str, Any]) -> Made:
    """The mean bound on smooth sensitivity against how many values of k were certified (001 Fig 6).

    A coarser grid is read off the dense one: its boxes are some of the same boxes.
    """
    config = validate(GridConfig, settings, context.artifact.id)
    beta, rows = config.eps / 6, []
    for name in context.profiles:
        finished = context.run(name, config.run)
        top = max(finished.ks) if finished.ks else 0
        if finished.ks != tuple(range(top + 1)):
            raise ConfigError(
                f"{context.artifact.id}: needs a dense grid; {name} has {len(finished.ks)} values up to {top}"
            )
        for count in config.counts:
            if count > top:
                continue
            grid = np.unique(np.concatenate([[0], np.round(np.linspace(0, top, count + 1)[1:]).astype(int)]))
            known = grid[np.searchsorted(grid, finished.distance, side="right") - 1]
            rows.append({"values of k": count, "series": name, "bound": float(np.exp(-beta * known).mean())})
    frame = pd.DataFrame(rows)
    what = Curves(
        context.artifact.id,
        "values of k",
        "bound",
        "values of k certified, evenly spaced",
        f"mean bound on smooth sensitivity (eps = {config.eps:g})",
        context.experiment.data,
        level=1.0,
        level_name="global sensitivity",
    )
    curves(context.record, what, frame)
    caption = "Mean bound on the smooth sensitivity of the test records' labels against the number of values of k."
    return Made({}, frame, {context.artifact.id: caption}, (
        "A coarse grid looks tight here and is not private: under accounting=paper its true loss exceeds the claimed one "
        "(agt plan draws by how much).",
    ))  # fmt: skip


def _accounting(profile: Profile, finished: Finished) -> str:
    """What the guarantee of labels released from this run would be worth."""
    if profile.accounting == "paper":
        return "paper: no proof of privacy"
    missing = [condition.letter for condition in finished.conditions if not condition.held]
    return f"rigorous, but no proof of privacy: not held: {', '.join(missing)}" if missing else "rigorous"
