"""agt audit weights: released weights of two neighbours, told apart along the line between them (white box)."""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from agt.audit.findings import Finding
from agt.audit.mechanism import Plan
from agt.audit.objective import (
    STRENGTH,
    audit_line,
    audit_objective,
    neighbouring_problems,
    worst_line,
)
from agt.audit.weights import Heads, audit_weights, farthest
from agt.errors import ConfigError
from agt.mechanisms.objective import Noises, ObjectivePerturbation, Shape
from agt.mechanisms.release import WeightsMechanism, prepare_weights
from agt.mechanisms.weights import ReleaseWeights
from agt.models.linear import LinearModel
from agt.settings import schema
from agt_cli.audit.job import Audited, Given
from agt_cli.audit.opening import OWNER, check_run, mechanism_of, not_found, open_with_data
from agt_cli.report.console import Console, Report
from agt_cli.report.record import RunRecord

RELEASE = "mechanism=release_weights mechanism.mu=1"
ALONE = "agt audit weights mechanism=release_weights mechanism.mu=MU (no run=) audits the noise by itself"


@schema
class WeightsAudit:
    """Attacks released weights.

    Attributes:
        trials: releases a side; each draws exact noise for every weight, at some 40 microseconds.
        neighbours: with a run: how many neighbouring datasets are trained.
        width: without a run: how many weights there are.
    """

    trials: Annotated[int, Field(ge=1, le=10_000_000)] = 2000
    neighbours: Annotated[int, Field(ge=1)] = 4
    width: Annotated[int, Field(ge=1, le=100_000)] = 4

    name: ClassVar[str] = "weights"

    def check(self, given: Given) -> None:
        """Refuse what releases no weights."""
        config = mechanism_of(given, RELEASE)
        if not config.releases_weights or config.weights is not None:
            raise ConfigError(
                "agt audit weights draws releases anew: give mechanism=release_weights and mechanism.mu or total, or "
                "mechanism=objective_perturbation"
            )
        if given.run is not None:
            check_run(given)

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Draw weights for both sides, project them, and count."""
        mechanism, plan = mechanism_of(given).mechanism(2, 1), Plan(self.trials, given.confidence)
        assert isinstance(mechanism, WeightsMechanism)
        if given.run is None:
            return self._alone(mechanism, plan)
        opened = open_with_data(given, record, console, ALONE)
        claim = prepare_weights(opened.model, mechanism, conditions=opened.conditions).claim
        assert isinstance(opened.model, LinearModel)  # else it was refused
        anchors, finished = opened.queries.features, opened.trained.finished
        with console.progress("releases on both sides", "release") as report:
            if isinstance(mechanism, ReleaseWeights):
                made = self._added(mechanism, plan, opened.model, anchors, given.seed, report)
            else:
                made = self._solved(mechanism, plan, opened.model, anchors, given.seed, report)
        made = made or (not_found(mechanism, self.neighbours, "a neighbour with other weights"),)
        notes = (claim.text, OWNER, f"{self.neighbours} neighbouring datasets at most were trained, of all there are")
        return Audited(finished.folder.name, finished.digest, made, notes)

    def _added(
        self, mechanism: ReleaseWeights, plan: Plan, model: LinearModel, anchors: np.ndarray, seed: int, report: Report
    ) -> tuple[Finding, ...]:
        heads, every = farthest(model, anchors, self.neighbours, seed), 2 * plan.trials
        if heads is None:
            return ()
        return audit_weights(mechanism, heads, plan, lambda done: report(done, every, done, every)).findings

    def _solved(
        self,
        mechanism: ObjectivePerturbation,
        plan: Plan,
        model: LinearModel,
        anchors: np.ndarray,
        seed: int,
        report: Report,
    ) -> tuple[Finding, ...]:
        problems, every = neighbouring_problems(model, mechanism, anchors, self.neighbours, seed), 4 * plan.trials
        if problems is None:
            return ()
        noises = mechanism.noises(model)
        return audit_objective(mechanism.guarantee, problems, noises, plan, lambda done: report(done, every, done, every))

    def _alone(self, mechanism: WeightsMechanism, plan: Plan) -> Audited:
        """Without a run: two heads at the distance that noise is made for, or records along a line."""
        if isinstance(mechanism, ReleaseWeights):
            note = "no run and no data: two heads, as far apart as the sensitivity that the noise is made for"
            return Audited(mechanism.name, None, audit_weights(mechanism, Heads.alone(self.width), plan).findings, (note,))
        shape, guarantee = Shape(mechanism.weight_decay or STRENGTH, 1.0, 1, self.width), mechanism.guarantee
        noises = Noises.of(shape, guarantee.eps, guarantee.delta)
        line = worst_line(shape, noises, guarantee)
        findings = audit_line(guarantee, line, noises), *audit_objective(guarantee, line, noises, plan)
        note = f"no run and no data: Lambda = {shape.strength:g} (mechanism.weight_decay, with B = 1), C = 1"
        return Audited(mechanism.name, None, findings, (note,))
