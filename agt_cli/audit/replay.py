"""agt audit replay: a release recorded on a run, and replayed on its neighbours with the same draws."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from agt.audit.findings import Finding
from agt.audit.mechanism import LabellingPair, between_roots, neighbours, segments
from agt.audit.replay import replay
from agt.certificates.conditions import Condition, weaker
from agt.errors import ConfigError
from agt.mechanisms.claims import (
    Labelling,
    WeightsMechanism,
    head_of,
    of_release,
    prepare_labels,
    prepare_quantile,
    prepare_weights,
)
from agt.mechanisms.composition import ApproximateDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.objective import ObjectivePerturbation, Shape, problem_of
from agt.mechanisms.quantile import CertifiedQuantile
from agt.models.box import BoxModel
from agt.models.model import Model
from agt.numeric import Draw, Randomness, answered
from agt.settings import schema
from agt.training.loop import DrawKey, NoiseConfig, SgdStep, Tensors, TrainingRun
from agt_cli.audit.dpsgd import NoisyTraining
from agt_cli.audit.job import OWNER, Audited, AuditInputs
from agt_cli.releasing.release import AnyMechanism
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun


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
        model: of the run.
        queries: [n, ...] that labels or a number are released of; neighbours are made to differ there.
        mechanism: that releases; None: it is training itself, with noise inside.
        options: of ``prepare_labels`` and its like: accounting, counting.
        conditions: of the run.
    """

    model: Model
    queries: np.ndarray
    mechanism: AnyMechanism | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()

    def findings(self, count: int, rng: np.random.Generator) -> Iterator[Finding]:
        """What the pairs of the run with so many of its neighbours say.

        Args:
            rng: of the queries and neighbours that are looked for.
        """
        begin, end = segments(self.model, self.queries, count, rng)
        middle = (begin + (end - begin) / 2).astype(begin.dtype)
        for edit, other in islice(neighbours(self.model, middle, count), count):
            yield from self.pair(other, f"the run's own data, and the same {edit}", rng)

    def pair(self, other: Model, where: str, rng: np.random.Generator) -> tuple[Finding, Finding]:
        """What the run and one neighbour of it say. Args: where: which datasets."""
        mechanism, sides, queries = self.mechanism, (self.model, other), self.queries
        if mechanism is None:
            noise = cast(NoiseConfig, self.model.problem.settings.noise)
            claimed = ApproximateDP(noise.epsilon, noise.delta)
            first, second = (partial(publish_training, cast(BoxModel, side)) for side in sides)
            return replay("training with noise inside", claimed, first, second, where)
        options: dict[str, Any] = {}
        if isinstance(mechanism, Mechanism):
            options["composed"] = "answer"
            queries = np.concatenate([self.searched(other, mechanism, rng), queries])
        if isinstance(mechanism, ObjectivePerturbation):
            heads = [head_of(side, mechanism.name) for side in sides]
            shape = Shape.of(heads[0], mechanism.weight_decay)
            options["problems"] = tuple(problem_of(head, shape) for head in heads)
        first, second = (partial(self.publish, side, queries) for side in sides)
        return replay(mechanism.name, mechanism.guarantee, first, second, where, **options)

    def searched(self, other: Model, mechanism: Mechanism, rng: np.random.Generator) -> np.ndarray:
        """[m, ...] queries at which labels or evidence of the two models differ; none of noisy counts."""
        if mechanism.needs == "votes" and mechanism.classes > 2:
            return self.queries[:0]
        sides = (Labelling.of(side, mechanism, self.conditions, **self.options) for side in (self.model, other))
        found = between_roots(LabellingPair(*sides), self.queries, rng)
        return found[:: -(-len(found) // len(self.queries)) or 1]

    def publish(self, model: Model, queries: np.ndarray, source: Randomness) -> Mapping[str, object]:
        """Release from a model; return what is drawn, and every entry of the claim."""
        mechanism, conditions = self.mechanism, weaker(self.conditions, model.conditions)
        if isinstance(mechanism, Mechanism):
            release: Any = prepare_labels(model, queries, mechanism, conditions=conditions, **self.options)
        elif isinstance(mechanism, CertifiedQuantile):
            release = prepare_quantile(model, queries, mechanism, conditions=conditions, **self.options)
        else:
            release = prepare_weights(model, cast(WeightsMechanism, mechanism), conditions=conditions)
        claim = of_release(release, cast(AnyMechanism, mechanism).name, simulated=source.simulated)
        return {"drawn": release.draw(source), **vars(claim)}


@schema
class Replay:
    """Records releases of a run, and replays each on neighbours.

    Attributes:
        neighbours: how many neighbouring datasets are trained, each of which is one pair.
        queries: test records that are asked, beside as many queries that are searched.
    """

    neighbours: Annotated[int, Field(ge=1)] = 2
    queries: Annotated[int, Field(ge=1)] = 100

    name: ClassVar[str] = "replay"

    def check(self, given: AuditInputs) -> None:
        """Refuse a mechanism without a budget, or none; training with noise inside is itself replayed."""
        given.need_run()
        noisy = TrainedRun.of({**given.config, "mechanism": None}).settings.noise is not None
        if noisy and given.config.get("mechanism") is not None:
            raise ConfigError(
                f"mechanism: the training of run={given.run} drew noise, and is what is replayed: leave it out"
            )
        if not noisy:
            given.mechanism()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Record, replay and compare."""
        opened = TrainedRun.of(given.config).open(record, console)
        model, queries, mechanism = opened.model, opened.queries.features[: self.queries], None
        if model.problem.settings.noise is None:
            mechanism = given.mechanism().mechanism(model.problem.classes, len(opened.queries))
            if not isinstance(mechanism, Mechanism | CertifiedQuantile):
                head = head_of(model, mechanism.name)
                if head is not model:  # beside votes it never was trained
                    head = head.retrained(head.problem.dataset.train)
                model = head
        options = {key: given.config[key] for key in ("accounting", "counting")}
        release = ReplayedRelease(model, queries, mechanism, options, opened.conditions)
        found = list(release.findings(self.neighbours, np.random.default_rng(given.seed)))
        return Audited.of(opened.trained.finished, found, NOTES)


NOTES = (
    OWNER,
    "a replay compares one recorded release of this run with the neighbours that were trained: what differs on other data, "
    "or after other draws, is not seen, nor whether a draw has the distribution that it names",
)
