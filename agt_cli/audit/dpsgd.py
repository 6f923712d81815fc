"""agt audit dpsgd: a run's own training with noise inside, with canaries in or out."""

from typing import Annotated, ClassVar, Literal, cast

import numpy as np
import pandas as pd
from pydantic import Field

from agt.audit.dpsgd import NoisyTraining, TrainingEffort, audit, judged
from agt.audit.findings import Estimate, Strength
from agt.errors import ConfigError
from agt.models.box import BoxModel
from agt.settings import schema
from agt_cli.audit.job import Audited, AuditInputs
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun

NOTES = (
    "trainings are the run's own loop with fresh noise, on some of its records and all of its public constants",
    "a bound called Gaussian DP or gdp holds against the claim that the training is just Gaussian noise of this size. What "
    "it contradicts is that claim, from which epsilon at delta follows; the bounds called Clopper-Pearson and exact "
    "contradict epsilon at delta itself",
    "the step-by-step bound is one step's, composed by the accountant: it can notice bugs in noise and clipping, and "
    "cannot debug the composition",
    "rigorous bounds of one claim hold together; Katz-log is asymptotic, the Bayesian one credible, and neither decides",
)


@schema
class DpSgdAudit:
    """How hard a run's training with noise inside is attacked.

    Attributes:
        trainer: noise (the run's own noisy training), which auto means, too.
        records: how many of the run's records are trained on, besides the canaries.
        canary: one of ``agt.audit.dpsgd.KINDS``; null: signs, as the clip is elementwise.
        canaries: of the one-run audit; 0: none is made.
        trials: trainings a side.
        step_runs: trainings with a coin in each step.
    """

    trainer: Literal["auto", "noise"] = "auto"
    records: Annotated[int, Field(ge=1)] = 200
    canary: Literal["dirac", "gaussian", "signs", "mislabelled", "blank", "adversarial"] | None = None
    canaries: Annotated[int, Field(ge=0)] = 100
    trials: Annotated[int, Field(ge=1)] = 200
    step_runs: Annotated[int, Field(ge=1)] = 50
    name: ClassVar[str] = "dpsgd"

    def check(self, given: AuditInputs) -> None:
        """Refuse what no data is needed for."""
        if given.run is None:
            raise ConfigError("run=null: name the folder of an agt train run with noise.epsilon, whose training is audited")
        if given.config.get("inputs") is not None:
            raise ConfigError("inputs: agt audit dpsgd trains on the run's own data: leave it out")

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train with canaries, and hold lower bounds against the run's claim."""
        opened = TrainedRun.of(given.config).open(record, console)
        model, records = opened.model, opened.kept.problem.dataset.train
        if model.noise is None:
            raise ConfigError(
                f"run={given.run}: was trained without noise, and claims nothing of its weights: agt audit dpsgd is of "
                "runs with noise.epsilon (DP-SGD beside a run is no longer trained)"
            )
        if self.records > len(records):
            raise ConfigError(f"audit.records={self.records}: the run has {len(records)} training records: use fewer")
        rows = np.sort(np.random.default_rng(given.seed).permutation(len(records))[: self.records])
        trainer, kind = NoisyTraining.of(cast(BoxModel, model), records.take(rows)), self.canary or "signs"
        effort = TrainingEffort(self.trials, self.step_runs, given.confidence, given.seed)
        canary = trainer.canaries(kind, 1, given.seed)
        several = trainer.canaries(kind, self.canaries, given.seed) if self.canaries else None
        with console.progress("audits", "claim") as report:
            bounds = audit(trainer, canary, effort, several)
            report(1, 1, 1, 1)
        finished = opened.trained.finished
        tables = {"bounds": table_of(bounds, trainer.config.epsilon)}
        finding = judged(trainer, canary, effort, bounds)
        return Audited(finished.folder.name, finished.digest, (finding,), NOTES, tables)


def table_of(bounds: list[Estimate], epsilon: float) -> pd.DataFrame:
    """Lower bounds in rows, the rigorous and the greatest first."""
    ordered = sorted(bounds, key=lambda each: (each.strength is not Strength.CONFIDENT, -each.found))
    names = [each.estimator.partition(", ") for each in ordered]
    return pd.DataFrame(
        {
            "lower bound on epsilon": [estimator for estimator, _, _ in names],
            "who sees": [adversary for *_, adversary in names],
            "it is": [each.strength.value for each in ordered],
            f"claimed {epsilon:g}": [each.found for each in ordered],
        }
    )
