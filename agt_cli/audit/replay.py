"""agt audit replay: a release recorded on a run, and replayed on neighbours with the same draws."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from agt.audit.findings import Finding
from agt.audit.mechanism import LabellingPair, Problems, between_roots, neighbours, segments
from agt.audit.replay import Composed, ReplayedPair
from agt.certificates.conditions import weaker
from agt.errors import ConfigError
from agt.mechanisms.claims import (
    Labelling,
    head_of,
    of_release,
    prepare_labels,
    prepare_quantile,
    prepare_weights,
)
from agt.mechanisms.composition import ApproximateDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.objective import ObjectivePerturbation
from agt.mechanisms.published import CertifiedQuantile
from agt.models.box import BoxModel
from agt.models.model import Model
from agt.numeric import Draw, Randomness, SystemRandomness, answered
from agt.settings import schema
from agt.training.loop import DrawKey, NoiseConfig, SgdStep, Tensors, TrainingRun
from agt_cli.audit.dpsgd import NoisyTraining
from agt_cli.audit.job import OWNER, Audited, AuditInputs, no_pair_found
from agt_cli.releasing.release import AnyMechanism
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun

WITHOUT_DATA = "agt audit mechanism mechanism=NAME (no run=) audits the mechanism by itself"


class ReplayedTraining(TrainingRun):
    """A training with noise inside, whose noisy directions are draws of a source."""

    def __init__(self, trainer: NoisyTraining, source: Randomness) -> None:
        problem = trainer.problem
        super().__init__(trainer.module, problem.recipe, problem.dataset.train, noise=trainer.drawn(None))
        self.source, self.sigma, self.nominal = source, trainer.plan.sigma, False

    def _descended(self, key: DrawKey, theta: Tensor, direction: Tensor, at: SgdStep) -> Tensor:
        self.nominal = key[0] == "nominal"
        return super()._descended(key, theta, direction, at)

    def _noisy(self, name: str, direction: Tensor, noise: Tensors) -> Tensor:
        sample = partial(super()._noisy, name, direction, noise)
        if not self.nominal:  # ends of boxes are not released
            return sample()
        draw = Draw("gaussian", (self.sigma, name, self.taken), np.atleast_1d(direction.numpy()))
        return answered(self.source, draw, lambda source: sample())


def publish_training(model: BoxModel, source: Randomness) -> Mapping[str, object]:
    """Train a run with noise again, on its own records, and return what it publishes."""
    run = ReplayedTraining(NoisyTraining.of(model, model.problem.dataset.train), source)
    with torch.no_grad():
        for rows in run.plan.batches(run.records.units):
            run.step(rows)
    weights = {name: parameter.numpy() for name, parameter in run.point.items()}
    return {**weights, **model.metrics, "steps": run.taken}


@dataclass(frozen=True)
class ReplayedRelease:
    """A release from a run and from its neighbours.

    Attributes:
        mechanism: that releases.
        model: of the run.
        queries: [n, ...] that labels or a number are released of.
        options: of ``prepare_labels`` and its like: conditions, accounting, counting.
    """

    mechanism: AnyMechanism
    model: Model
    queries: np.ndarray
    options: Mapping[str, Any]

    def publish(self, model: Model, queries: np.ndarray, source: Randomness) -> Mapping[str, object]:
        """Release from a model; return what is drawn, and every entry of the claim."""
        options = {**self.options, "conditions": weaker(self.options["conditions"], model.conditions)}
        if isinstance(self.mechanism, Mechanism):
            release: Any = prepare_labels(model, queries, self.mechanism, **options)
        elif isinstance(self.mechanism, CertifiedQuantile):
            release = prepare_quantile(model, queries, self.mechanism, **options)
        else:
            release = prepare_weights(model, self.mechanism, conditions=options["conditions"])
        claim = of_release(release, self.mechanism.name, simulated=source.simulated)
        return {"drawn": release.draw(source), **vars(claim)}

    def findings(self, count: int, rng: np.random.Generator) -> Iterator[Finding]:
        """What the pairs of the run with so many of its neighbours say."""
        composed: Composed = "answer" if isinstance(self.mechanism, Mechanism) else "release"
        for where, other in neighbours_between(self.model, self.queries, count, rng):
            pair = self.pair(SystemRandomness(), other, where, rng)
            yield from pair.findings(self.mechanism.name, self.mechanism.guarantee, composed)

    def pair(self, source: Randomness, other: Model, where: str, rng: np.random.Generator) -> ReplayedPair:
        """Record a release from the run, and replay it on a neighbour."""
        queries, mechanism = self.queries, self.mechanism
        if isinstance(mechanism, Mechanism):
            sides = (Labelling.of(side, mechanism, **self.options) for side in (self.model, other))
            between = between_roots(LabellingPair(*sides), queries, rng)
            queries = np.concatenate([between[: len(queries)], queries])
        first, second = (partial(self.publish, side, queries) for side in (self.model, other))
        if not isinstance(mechanism, ObjectivePerturbation):
            return ReplayedPair.of(source, first, second, where)
        model, neighbour = (head_of(side, mechanism.name) for side in (self.model, other))
        problems = Problems.of_run(model, neighbour, mechanism.weight_decay, where)
        both = problems.first, problems.second
        return ReplayedPair.of_objective(source, (first, second), where, both, mechanism.guarantee)


@schema
class Replay:
    """Records releases of a run, and replays each on a neighbour.

    Attributes:
        neighbours: how many neighbouring datasets are trained, each of which is one pair.
        queries: of labels or one number: test records, beside those that are searched.
    """

    neighbours: Annotated[int, Field(ge=1)] = 2
    queries: Annotated[int, Field(ge=1)] = 100

    name: ClassVar[str] = "replay"

    def check(self, given: AuditInputs) -> None:
        """Refuse a mechanism without a budget; training with noise inside is replayed without one."""
        given.need_run()
        if given.config.get("mechanism") is not None:
            given.mechanism()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Record, replay and compare."""
        trained = TrainedRun.of(given.config)
        if trained.settings.noise is not None:
            return self._training(trained, given, record, console)
        opened = given.open_with_data(record, console, WITHOUT_DATA)
        mechanism = given.mechanism().mechanism(opened.model.problem.classes, len(opened.queries))
        model, anchors = opened.model, opened.queries.features
        if not isinstance(mechanism, Mechanism | CertifiedQuantile):
            model = head_of(model, mechanism.name)
            if model is not opened.model:  # beside votes it never was trained
                model = model.retrained(model.problem.dataset.train)
        options = {"conditions": opened.conditions}
        options |= {key: given.config[key] for key in ("accounting", "counting")}
        release = ReplayedRelease(mechanism, model, anchors[: self.queries], options)
        findings = list(release.findings(self.neighbours, np.random.default_rng(given.seed)))
        nowhere = no_pair_found(mechanism, self.neighbours, "a neighbour")
        return Audited.of(opened.trained.finished, findings or [nowhere], NOTES)

    def _training(self, trained: TrainedRun, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        if given.config.get("mechanism") is not None:
            raise ConfigError(
                f"mechanism: the training of run={given.run} drew noise, and is what is replayed: leave it out"
            )
        opened = trained.open(record, console)
        rng = np.random.default_rng(given.seed)
        model = cast(BoxModel, opened.model)
        found = training_findings(model, opened.queries.features, self.neighbours, rng)
        return Audited.of(trained.finished, found, NOTES)


def training_findings(model: BoxModel, anchors: np.ndarray, count: int, rng: np.random.Generator) -> Iterator[Finding]:
    """What training with noise inside says of a run and so many of its neighbours."""
    claimed = cast(NoiseConfig, model.settings.noise)
    guarantee = ApproximateDP(claimed.epsilon, claimed.delta)
    for where, other in neighbours_between(model, anchors, count, rng):
        first, second = (partial(publish_training, side) for side in (model, cast(BoxModel, other)))
        pair = ReplayedPair.of(SystemRandomness(), first, second, where)
        yield from pair.findings("training with noise inside", guarantee)


def neighbours_between(
    model: Model, anchors: np.ndarray, count: int, rng: np.random.Generator
) -> Iterator[tuple[str, Model]]:
    """(which datasets, the neighbour's model) of edits made to move a model between its classes."""
    begin, end = segments(model, anchors, count, rng)
    middle = (begin + (end - begin) / 2).astype(begin.dtype)
    for edit, other in neighbours(model, middle, count):
        yield f"the run's own data, and the same {edit}", other


NOTES = (
    OWNER,
    "a replay compares this run with the neighbours that were trained, on one recorded release each: what differs on other "
    "data, or after other draws, is not seen, nor whether a draw has the distribution that it names",
)
