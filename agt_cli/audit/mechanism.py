"""agt audit mechanism: a release mechanism's draws for two neighbours, told apart; on a run's own data, or without any."""

from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from agt.audit.mechanism import AuditedPair, Choosing, Plan, audit_alone, audit_pair, audit_quantile
from agt.audit.worst import Found, Quarry, search
from agt.errors import ConfigError
from agt.mechanisms.aggregate import CertifiedQuantile
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.objective import ObjectivePerturbation
from agt.mechanisms.optimal import RandomizedResponse
from agt.mechanisms.release import Labelling, prepare_quantile
from agt.mechanisms.rigour import Accounting, Claim, Counting
from agt.mechanisms.weights import ReleaseWeights
from agt.settings import check_choice, schema
from agt_cli.audit.job import Audited, Given
from agt_cli.audit.opening import OWNER, check_run, mechanism_of, not_found, open_with_data
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.mechanisms import AnyMechanism
from agt_cli.runs.queries import OpenedRun

Natural = Annotated[int, Field(ge=0, le=65_536)]
ALONE = "agt audit mechanism mechanism=NAME mechanism.eps=EPS (no run=) audits the mechanism by itself"
SHOWN = 1000  # rows of a table of all pairs


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

    def check(self, given: Given) -> None:
        """Refuse a mechanism without a budget, and settings that have no effect."""
        target = (given.config.get("mechanism") or {}).get("_target_")
        for kind in (ReleaseWeights, ObjectivePerturbation):
            if target == f"{kind.__module__}.{kind.__qualname__}":  # before anything about its budget
                raise ConfigError(f"mechanism={kind.name} is audited by agt audit weights, which looks at the weights")
        mechanism = mechanism_of(given)
        for key, choices in (("accounting", Accounting), ("counting", Counting)):
            check_choice(given.config.get(key), choices, key)
        if given.run is None:
            self._alone(mechanism.mechanism(2, 1))
        else:
            if self.values is not None:
                raise ConfigError(
                    "audit.values: a run's grid says which values evidence takes: leave it out, or leave out run"
                )
            check_run(given)

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Find a pair, draw, and hold what was counted against the claim."""
        plan = Plan(self.trials, given.confidence, self.choosing)
        if given.run is None:
            return self._without_data(mechanism_of(given).mechanism(2, 1), plan)
        opened = open_with_data(given, record, console, ALONE)
        model = opened.model
        mechanism = mechanism_of(given).mechanism(model.problem.classes, len(opened.queries))
        if isinstance(mechanism, CertifiedQuantile):
            claim, audited = self._quantile(opened, mechanism, given, plan)
        else:
            assert isinstance(mechanism, Mechanism)
            claim, audited = self._labels(opened, mechanism, given, plan)
        findings = (
            (not_found(mechanism, self.neighbours, "a query that two neighbouring datasets show differently"),)
            if audited is None
            else audited.findings
        )
        notes = (claim.text, OWNER, f"{self.neighbours} neighbouring datasets at most were trained, of all there are")
        finished = opened.trained.finished
        return Audited(finished.folder.name, finished.digest, findings, notes)

    def _labels(
        self, opened: OpenedRun, mechanism: Mechanism, given: Given, plan: Plan
    ) -> tuple[Claim, AuditedPair | None]:
        accounting, counting, model = given.config["accounting"], given.config["counting"], opened.model
        labelling = Labelling.of(model, mechanism, opened.conditions, accounting, counting)
        found = self._searched(labelling, Quarry.of_labels(labelling, plan), opened, given)
        audited = None if found is None else audit_pair(mechanism, found.pair, plan, model.farthest)
        return labelling.claim, audited

    def _quantile(
        self, opened: OpenedRun, mechanism: CertifiedQuantile, given: Given, plan: Plan
    ) -> tuple[Claim, AuditedPair | None]:
        """Of a file of one query, whose distance is K_q."""
        accounting, counting, model = given.config["accounting"], given.config["counting"], opened.model
        how = {"conditions": opened.conditions, "accounting": accounting, "counting": counting}
        claim = prepare_quantile(model, opened.queries.features, mechanism, **how).claim
        reader = RandomizedResponse(eps=mechanism.eps, classes=model.problem.classes)  # reads the same evidence
        labelling = Labelling.of(model, reader, **{**how, "accounting": "rigorous" if claim.proved else "paper"})
        found = self._searched(labelling, Quarry.of_distances(labelling), opened, given)
        if found is None or not found.pair.moved:
            return claim, None
        sides = np.array([found.pair.first.evidence]), np.array([found.pair.second.evidence])
        return claim, audit_quantile(mechanism, sides, int(model.metrics["k_max"]), plan, found.pair.where)

    def _searched(self, labelling: Labelling, quarry: Quarry, opened: OpenedRun, given: Given) -> Found | None:
        return search(labelling, quarry, opened.queries.features, self.neighbours, self.segments, given.seed)

    def _alone(self, mechanism: AnyMechanism) -> tuple[int, ...]:
        """The values that evidence takes without a run. Raises ConfigError: they leave no pair."""
        values = tuple(range(self.farthest + 1)) if self.values is None else tuple(sorted({0, *self.values}))
        if isinstance(mechanism, CertifiedQuantile) and self.values is not None:
            raise ConfigError("audit.values: without a run K_q and K_q + 1 are audited: leave it out")
        if isinstance(mechanism, Mechanism) and mechanism.needs == "votes" and self.values is not None:
            raise ConfigError("audit.values: votes have no grid: give audit.farthest, how many members there are")
        return values

    def _without_data(self, mechanism: AnyMechanism, plan: Plan) -> Audited:
        values, notes = self._alone(mechanism), ("no run and no data: the evidence is any that two neighbours can have",)
        if isinstance(mechanism, CertifiedQuantile):
            end, middle = max(values[-1], 1), values[-1] // 2
            sides = np.array([middle]), np.array([middle + 1])
            audited = audit_quantile(mechanism, sides, end, plan, "no data: neighbours whose K_q is one apart")
            return Audited(mechanism.name, None, audited.findings, notes)
        assert isinstance(mechanism, Mechanism)
        alone = audit_alone(mechanism, values, plan)
        losses = pd.DataFrame(
            [{"pair": str(pair), "loss": exact.rank, "exceeds": exact.exceeds} for pair, exact in alone.losses[:SHOWN]]
        )
        return Audited(mechanism.name, None, alone.findings, notes, {"pairs": losses})
