"""agt audit mechanism, weights: what a mechanism's labels, or released weights, show of two neighbours."""

from functools import partial
from typing import Annotated, ClassVar, cast, get_args

import numpy as np
import pandas as pd
from pydantic import Field

from agt.audit.findings import Finding
from agt.audit.mechanism import (
    Choosing,
    Heads,
    OnDone,
    Problems,
    TrialPlan,
    audit_alone,
    audit_line,
    audit_objective,
    audit_pair,
    audit_quantile,
    audit_weights,
    check_audited,
    expected_bound,
    farthest,
    search,
    worst_line,
)
from agt.errors import ConfigError
from agt.mechanisms.claims import (
    Accounting,
    Claim,
    Counting,
    Labelling,
    WeightsMechanism,
    head_of,
    prepare_quantile,
    prepare_weights,
)
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.objective import Noises, ObjectivePerturbation, Shape
from agt.mechanisms.optimal import RandomizedResponse
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.weights import ReleaseWeights
from agt.settings import check_choice, schema
from agt_cli.audit.job import OWNER, Audited, AuditInputs, no_pair_found
from agt_cli.releasing.release import AnyMechanism
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun

Natural = Annotated[int, Field(ge=0, le=65_536)]
WITHOUT_RUN = "agt audit mechanism mechanism=NAME mechanism.eps=EPS (no run=) audits the mechanism by itself"
MAX_PAIRS_SHOWN = 1000
AuditedMechanism = ReleaseWeights | ObjectivePerturbation
RELEASE = "mechanism=release_weights mechanism.mu=1"
WEIGHTS_WITHOUT_RUN = "agt audit weights mechanism=release_weights mechanism.mu=MU (no run=) audits the noise by itself"
STRENGTH = 10.0  # Lambda of an audit without a run, unless mechanism.weight_decay says otherwise


@schema
class MechanismAudit:
    """Attacks one mechanism.

    Attributes:
        trials: releases a side that are counted.
        choosing: split: as many more choose the event; fixed: each label is one, and they share the error probability.
        neighbours: with a run: how many neighbouring datasets are trained.
        segments: with a run: how many segments between records are searched for a query.
        farthest: without a run: evidence is every integer up to this.
        values: without a run: the values that evidence takes, as of a grid with gaps; null: every integer.
    """

    trials: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    choosing: Choosing = "split"
    neighbours: Annotated[int, Field(ge=1)] = 4
    segments: Annotated[int, Field(ge=1)] = 8
    farthest: Natural = 100
    values: tuple[Natural, ...] | None = None

    name: ClassVar[str] = "mechanism"

    def check(self, given: AuditInputs) -> None:
        """Refuse a mechanism without a budget, and settings that have no effect."""
        target = (given.config.get("mechanism") or {}).get("_target_")
        for kind in get_args(WeightsMechanism):
            if target == f"{kind.__module__}.{kind.__qualname__}":  # before anything about its budget
                raise ConfigError(f"mechanism={kind.name} releases weights: use agt audit weights, or agt audit replay")
        mechanism = given.mechanism()
        for key, choices in (("accounting", Accounting), ("counting", Counting)):
            check_choice(given.config.get(key), choices, key)
        if given.run is None:
            self._check_values(mechanism.mechanism(2, 1))
            return
        if self.values is not None:
            raise ConfigError("audit.values: a run's grid says which values evidence takes: leave it out, or leave out run")
        given.check_run()

    def _check_values(self, mechanism: AnyMechanism) -> None:
        """Raise ConfigError where values are given that leave no pair."""
        if self.values is not None and isinstance(mechanism, CertifiedQuantile):
            raise ConfigError("audit.values: without a run K_q and K_q + 1 are audited: leave it out")
        if self.values is not None and isinstance(mechanism, Mechanism) and mechanism.needs == "votes":
            raise ConfigError("audit.values: votes have no grid: give audit.farthest, how many members there are")

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Find a pair, draw, and hold what was counted against the claim."""
        plan = TrialPlan(self.trials, given.confidence, self.choosing)
        if given.run is None:
            return self._without_data(given.mechanism().mechanism(2, 1), plan)
        opened = given.open_with_data(record, console, WITHOUT_RUN)
        mechanism = given.mechanism().mechanism(opened.model.problem.classes, len(opened.queries))
        check_audited(mechanism)
        if isinstance(mechanism, CertifiedQuantile):
            claim, audited = self._quantile(opened, mechanism, given, plan)
        else:
            claim, audited = self._labels(opened, cast(Mechanism, mechanism), given, plan)
        nowhere = no_pair_found(mechanism, self.neighbours, "a query that two neighbouring datasets show differently")
        findings = (nowhere,) if audited is None else audited
        notes = (claim.text, OWNER, f"{self.neighbours} neighbouring datasets at most were trained, of all there are")
        return Audited.of(opened.trained.finished, findings, notes)

    def _labels(
        self, opened: OpenedRun, mechanism: Mechanism, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        accounting, counting, model = given.config["accounting"], given.config["counting"], opened.model
        labelling = Labelling.of(model, mechanism, opened.conditions, accounting, counting)
        worth, anchors = partial(expected_bound, labelling.mechanism, plan=plan), opened.queries.features
        found = search(labelling, worth, anchors, self.neighbours, self.segments, given.seed)
        return labelling.claim, None if found is None else audit_pair(labelling.mechanism, found, plan, model.farthest)

    def _quantile(
        self, opened: OpenedRun, mechanism: CertifiedQuantile, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        """Of a file of one query, whose distance is K_q."""
        accounting, counting, model = given.config["accounting"], given.config["counting"], opened.model
        how = {"conditions": opened.conditions, "accounting": accounting, "counting": counting}
        anchors = opened.queries.features
        claim = prepare_quantile(model, anchors, mechanism, **how).claim
        reader = RandomizedResponse(eps=mechanism.eps, classes=model.problem.classes)  # reads the same evidence
        labelling = Labelling.of(model, reader, **{**how, "accounting": "rigorous" if claim.proved else "paper"})
        found = search(labelling, lambda pair: pair.moved, anchors, self.neighbours, self.segments, given.seed)
        if found is None or not found.moved:
            return claim, None
        sides = np.array([found.first.evidence]), np.array([found.second.evidence])
        return claim, audit_quantile(mechanism, sides, model.farthest, plan, found.where)

    def _without_data(self, mechanism: AnyMechanism, plan: TrialPlan) -> Audited:
        self._check_values(mechanism)
        notes = ("no run and no data: the evidence is any that two neighbours can have",)
        if isinstance(mechanism, CertifiedQuantile):
            middle = self.farthest // 2
            sides, where = (np.array([middle]), np.array([middle + 1])), "no data: neighbours whose K_q is one apart"
            audited = audit_quantile(mechanism, sides, max(self.farthest, 1), plan, where)
            return Audited(mechanism.name, None, audited, notes)
        values = range(self.farthest + 1) if self.values is None else sorted({0, *self.values})
        findings, losses = audit_alone(cast(Mechanism, mechanism), values, plan)
        rows = [{"pair": str(pair), "loss": loss.rank, "exceeds": loss.exceeds} for pair, loss in losses[:MAX_PAIRS_SHOWN]]
        return Audited(mechanism.name, None, findings, notes, {"pairs": pd.DataFrame(rows)})


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

    def check(self, given: AuditInputs) -> None:
        """Refuse what releases no weights."""
        config = given.mechanism(RELEASE)
        audited = config.kind in (ReleaseWeights, ObjectivePerturbation)
        if not audited or config.weights is not None:
            raise ConfigError(
                "agt audit weights draws releases anew: give mechanism=release_weights and mechanism.mu or total, or "
                "mechanism=objective_perturbation; agt audit replay takes mechanism=noisy_statistics"
            )
        if given.run is not None:
            given.check_run()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Draw weights for both sides, project them, and count."""
        mechanism = cast(AuditedMechanism, given.mechanism().mechanism(2, 1))  # else check refused it
        plan = TrialPlan(self.trials, given.confidence)
        if given.run is None:
            return self._without_run(mechanism, plan)
        opened = given.open_with_data(record, console, WEIGHTS_WITHOUT_RUN)
        claim = prepare_weights(opened.model, mechanism, conditions=opened.conditions).claim
        every = (4 if isinstance(mechanism, ObjectivePerturbation) else 2) * plan.trials
        with console.progress("releases on both sides", "release") as report:
            found = self._attacked(opened, mechanism, plan, given.seed, lambda done: report(done, every, done, every))
        found = found or (no_pair_found(mechanism, self.neighbours, "a neighbour with other weights"),)
        notes = (claim.text, OWNER, f"{self.neighbours} neighbouring datasets at most were trained, of all there are")
        return Audited.of(opened.trained.finished, found, notes)

    def _attacked(
        self, opened: OpenedRun, mechanism: AuditedMechanism, plan: TrialPlan, seed: int, on_done: OnDone
    ) -> tuple[Finding, ...]:
        """What was found; nothing where no neighbour has other weights."""
        model, anchors = head_of(opened.model, mechanism.name), opened.queries.features
        if model is not opened.model:  # beside votes it never was trained
            model = model.retrained(model.problem.dataset.train)
        pair = farthest(model, anchors, self.neighbours, seed)
        if pair is None:
            return ()
        other, heads = pair
        if isinstance(mechanism, ReleaseWeights):
            return audit_weights(mechanism, heads, plan, on_done)
        problems = Problems.of_run(model, other, mechanism.weight_decay, heads.where)
        return audit_objective(mechanism.guarantee, problems, mechanism.noises(model), plan, on_done)

    def _without_run(self, mechanism: AuditedMechanism, plan: TrialPlan) -> Audited:
        """Two heads at the distance that noise is made for, or records along a line."""
        if isinstance(mechanism, ReleaseWeights):
            note = "no run and no data: two heads, as far apart as the sensitivity that the noise is made for"
            return Audited(mechanism.name, None, audit_weights(mechanism, Heads.without_data(self.width), plan), (note,))
        shape, guarantee = Shape(mechanism.weight_decay or STRENGTH, 1.0, 1, self.width), mechanism.guarantee
        noises = Noises.of(shape, guarantee.eps, guarantee.delta)
        line = worst_line(shape, noises, guarantee)
        findings = audit_line(guarantee, line, noises), *audit_objective(guarantee, line, noises, plan)
        note = f"no run and no data: Lambda = {shape.strength:g} (mechanism.weight_decay, with B = 1), C = 1"
        return Audited(mechanism.name, None, findings, (note,))
