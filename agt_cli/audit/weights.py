"""agt audit weights: released weights of two neighbours, told apart along the line between them (white box)."""

from typing import Annotated, ClassVar

from pydantic import Field

from agt.audit.findings import Finding
from agt.audit.mechanism import Plan
from agt.audit.weights import Heads, audit_weights, farthest
from agt.errors import ConfigError
from agt.mechanisms.release import prepare_weights
from agt.mechanisms.weights import ReleaseWeights
from agt.models.linear import LinearModel
from agt.settings import schema
from agt_cli.audit.job import Audited, Given
from agt_cli.audit.opening import OWNER, check_run, mechanism_of, not_found, open_with_data
from agt_cli.report.console import Console
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
        if config.kind is not ReleaseWeights or config.weights is not None:
            raise ConfigError(
                "agt audit weights draws releases anew: give mechanism=release_weights and mechanism.mu or total"
            )
        if given.run is not None:
            check_run(given)

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Draw weights for both sides, project them, and count."""
        mechanism, plan = mechanism_of(given).mechanism(2, 1), Plan(self.trials, given.confidence)
        assert isinstance(mechanism, ReleaseWeights)
        if given.run is None:
            audited = audit_weights(mechanism, Heads.alone(self.width), plan)
            alone = ("no run and no data: two heads, as far apart as the sensitivity that the noise is made for",)
            return Audited(mechanism.name, None, audited.findings, alone)
        opened = open_with_data(given, record, console, ALONE)
        claim = prepare_weights(opened.model, mechanism, conditions=opened.conditions).claim
        assert isinstance(opened.model, LinearModel)  # else it was refused
        heads = farthest(opened.model, opened.queries.features, self.neighbours, given.seed)
        nowhere: tuple[Finding, ...] = (not_found(mechanism, self.neighbours, "a neighbour with other weights"),)
        finished, made = opened.trained.finished, nowhere
        if heads is not None:
            with console.progress("releases on both sides", "release") as report:
                every = 2 * plan.trials
                made = audit_weights(mechanism, heads, plan, lambda done: report(done, every, done, every)).findings
        notes = (claim.text, OWNER, f"{self.neighbours} neighbouring datasets at most were trained, of all there are")
        return Audited(finished.folder.name, finished.digest, made, notes)
