"""agt audit dpsgd: DP-SGD on a run's data and head, or the run's own noisy training, with canaries in or out."""

import importlib.util
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from agt.audit.canaries import CANARIES
from agt.audit.dpsgd import Bound, Claim, Effort, Trainer, audit, judged
from agt.audit.findings import Finding, Strength
from agt.audit.heads import AuditHead, head_for
from agt.audit.noisy import NoisyTraining
from agt.audit.reference import Reference
from agt.audit.subsampled import noise_for
from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.models.box import BoxModel, start_from
from agt.settings import Positive, schema
from agt_cli.audit.job import Audited, Given
from agt_cli.audit.opacus import OpacusTraining
from agt_cli.papers.baselines.dpsgd import DpSgd
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun, TrainedRun

CLAIMS = (1.0, 2.0, 4.0, 8.0, 16.0)  # lecture 004's columns
CURVE = (
    "a bound from the curve of Gaussian noise holds against the claim that the training is just that noise on such "
    "batches: of full batches it is the bound of Gaussian differential privacy. What it contradicts is that claim, from "
    "which epsilon at delta follows; the bounds called Clopper-Pearson contradict epsilon at delta itself"
)
COMPOSED = (
    "the step-by-step bound is one step's, composed by the accountant: it can notice bugs in noise and clipping, and "
    "cannot debug the composition"
)
BESIDE = (
    "the audited DP-SGD was trained beside the run, on some of its records and from its initial head: no release of the "
    "run is audited"
)
ITSELF = "trainings are the run's own loop with fresh noise, on some of its records and all of its public constants"
SHARED = (
    "rigorous bounds of one claim hold together; Katz-log is asymptotic, the Bayesian one credible, and neither decides"
)


@schema
class DpSgdAudit:
    """How DP-SGD is trained beside the run, and how hard it is attacked.

    Attributes:
        trainer: opacus, reference (ours), noise (the run's own noisy training); auto: noise where the run has noise, else
            opacus.
        eps: the claims, one training each; null: 1, 2, 4, 8, 16. A run with noise has its own.
        delta: beside them.
        records: how many of the run's records are trained on, besides the canaries.
        batch, epochs, clip, lr: of DP-SGD: expected records of a batch, passes, l2 clip, learning rate.
        canary: one of agt.audit.canaries; null: dirac, or signs where the clip is elementwise.
        canaries: of the one-run audit; 0: none is made.
        trials: trainings a side.
        step_runs: trainings with a coin in each step.
    """

    trainer: Literal["auto", "opacus", "reference", "noise"] = "auto"
    eps: tuple[Positive, ...] | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = 1e-5
    records: Annotated[int, Field(ge=1)] = 200
    batch: Positive = 50.0
    epochs: Positive = 5.0
    clip: Positive = 1.0
    lr: Positive = 0.5
    canary: Literal["dirac", "gaussian", "signs", "mislabelled", "blank", "adversarial"] | None = None
    canaries: Annotated[int, Field(ge=0)] = 100
    trials: Annotated[int, Field(ge=1)] = 200
    step_runs: Annotated[int, Field(ge=1)] = 50
    name: ClassVar[str] = "dpsgd"

    def check(self, given: Given) -> None:
        """Refuse what no data is needed for."""
        if given.run is None:
            raise ConfigError("run=null: name the folder of an agt train run, whose data and head DP-SGD is audited on")
        if given.config.get("inputs") is not None:
            raise ConfigError("inputs: agt audit dpsgd trains on the run's own data: leave it out")
        if self.delta is None:
            raise ConfigError(
                "audit.delta=null: Gaussian noise gives no pure epsilon, so a claim without delta says nothing: give one, "
                "such as 1e-5"
            )
        if self.batch > self.records:
            raise ConfigError(
                f"audit.batch={self.batch:g}: more than the {self.records} records trained on (audit.records): use "
                f"{self.records} for full batches"
            )
        if self.trainer == "opacus" and importlib.util.find_spec("opacus") is None:
            raise ConfigError(
                "audit.trainer=opacus: Opacus is not installed: pip install 'agt-certified[dpsgd]', or use "
                "audit.trainer=reference"
            )

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Train with canaries, and hold lower bounds against each claim."""
        opened = TrainedRun.of(given.config).open(record, console)
        findings, columns = [], {}
        trainers = list(self._trainers(opened, given.seed))
        with console.progress("audits", "claim") as report:
            for done, (trainer, head, records) in enumerate(trainers, 1):
                finding, bounds = self._audit(trainer, head, records, given)
                findings.append(finding)
                columns[trainer.claim.epsilon] = bounds
                report(done, len(trainers), done, len(trainers))
        finished = opened.trained.finished
        notes = (ITSELF if isinstance(trainers[0][0], NoisyTraining) else BESIDE, CURVE, COMPOSED, SHARED)
        return Audited(finished.folder.name, finished.digest, tuple(findings), notes, {"bounds": table_of(columns)})

    def _audit(self, trainer: Trainer, head: AuditHead, records: Records, given: Given) -> tuple[Finding, list[Bound]]:
        make = CANARIES[self.canary or ("signs" if isinstance(trainer, NoisyTraining) else "dirac")]
        effort = Effort(self.trials, self.step_runs, given.confidence, given.seed)
        canary = make(1, head, records, given.seed)
        several = make(self.canaries, head, records, given.seed) if self.canaries else None
        bounds = audit(trainer, canary, effort, several)
        return judged(trainer, canary, effort, bounds), bounds

    def _trainers(self, opened: OpenedRun, seed: int) -> Iterator[tuple[Trainer, AuditHead, Records]]:
        """One for each claim."""
        model, problem = opened.model, opened.kept.problem
        records = self._some(problem.dataset.train, seed)
        noisy = isinstance(model, BoxModel) and model.noise is not None
        if self.trainer == "noise" or (self.trainer == "auto" and noisy):
            if not isinstance(model, BoxModel) or not noisy:
                raise ConfigError("audit.trainer=noise: the run was trained without noise: leave it out")
            if self.eps is not None:
                raise ConfigError("audit.eps: the run's own noise claims noise.epsilon: leave it out")
            trainer = NoisyTraining.of(model, records)
            yield trainer, trainer.head, records
            return
        training = problem.settings.training
        module = problem.settings.model.build(records.features.shape[1:], problem.classes, training)
        start_from(module, problem.initial or {})
        head = head_for(module, training.loss, len(records))
        for epsilon in self.eps or CLAIMS:
            budget = (epsilon, self.delta or 0.0)
            if self.trainer == "reference":
                yield self._reference(head, records, budget), head, records
            else:
                method = DpSgd(batch=self.batch, lr=self.lr, clip=self.clip, epochs=self.epochs)
                opacus = OpacusTraining.of(method, module, training.loss, problem.classes, records, budget)
                yield opacus, head, records

    def _reference(self, head: AuditHead, records: Records, budget: tuple[float, float]) -> Reference:
        rate = min(1.0, self.batch / len(records))
        steps = int(np.ceil(self.epochs / rate))
        claim = Claim(noise_for(*budget, rate, steps), rate, steps, *budget)
        return Reference(claim, head, records, self.clip, self.lr)

    def _some(self, records: Records, seed: int) -> Records:
        """As many as are asked for, chosen by the audit's seed."""
        if self.records > len(records):
            raise ConfigError(f"audit.records={self.records}: the run has {len(records)} training records: use fewer")
        return records.take(np.sort(np.random.default_rng(seed).permutation(len(records))[: self.records]))


def table_of(columns: dict[float, list[Bound]]) -> pd.DataFrame:
    """Lower bounds in rows, the rigorous and the greatest first; claims in columns."""
    bounds = next(iter(columns.values()))
    table = {
        "lower bound on epsilon": [bound.estimate for bound in bounds],
        "who sees": [bound.adversary for bound in bounds],
        "it is": [bound.strength.value for bound in bounds],
    }
    totals = [sum(column) for column in zip(*([bound.epsilon for bound in each] for each in columns.values()), strict=True)]
    claims = {f"claimed {epsilon:g}": [bound.epsilon for bound in each] for epsilon, each in columns.items()}
    order = sorted(range(len(bounds)), key=lambda row: (bounds[row].strength is not Strength.CONFIDENT, -totals[row]))
    return pd.DataFrame(table | claims).iloc[order].reset_index(drop=True)
