"""agt audit unlearning: each method of agt unlearn, on copies of a run, against training without the records."""

import shutil
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, ClassVar, cast

import numpy as np
import pandas as pd
from pydantic import Field

from agt.audit.findings import Finding
from agt.audit.unlearning import (
    Effort,
    ForgetSets,
    Promised,
    RemovedRows,
    Served,
    Trial,
    Unlearn,
    attacked,
    bits,
    judged,
    not_tested,
)
from agt.data.dataset import Records
from agt.data.erasure import IsErased, families
from agt.errors import ConfigError
from agt.models.linear import RemovalModel
from agt.models.model import Model, fit, load
from agt.numeric import SystemRandomness, noisy
from agt.settings import schema
from agt.unlearning.account import METHODS, MethodName, Promise
from agt.unlearning.log import Log
from agt_cli.audit.job import Audited, AuditInputs
from agt_cli.report.console import Console
from agt_cli.report.finished import Run, open_run, run_lock
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import PendingErasures, gone_of
from agt_cli.runs.prepare import Prepared, prepare
from agt_cli.runs.queries import OpenedRun, TrainedRun
from agt_cli.unlearn.erasure import ErasureOrder, copied, erase
from agt_cli.unlearn.methods import ErasureJob, chosen, from_the_start

QUIET = Console(json=True, quiet=True)  # what would be said is of copies, and not of the run
NOTES = (
    "methods were carried out by agt unlearn's own code on copies of the run, which were deleted; the run was not changed",
    "training without the records was done by this program on this machine: what a method shares with it (the loading of "
    "data, the training itself) is compared with itself",
    "forget sets that were not tried are not covered: an attack that finds nothing proves nothing",
)


@schema
class Unlearning:
    """Tells unlearned models of a run from such as never saw the records.

    Attributes:
        records: how many ask to be erased in each attack; of a whole class, as many as it has.
        trials: how many forget sets are drawn at random, beside those chosen by an adversary.
        methods: of ``agt unlearn``; null: all that are made for this kind of run.
        releases: draws of what is served, each side, for each direction.
        queries: test records whose labels are compared where a method answers before it removes.
    """

    name: ClassVar[str] = "unlearning"
    while_waiting: ClassVar[bool] = True
    records: Annotated[int, Field(ge=1)] = 8
    trials: Annotated[int, Field(ge=1, le=10_000)] = 2
    methods: tuple[MethodName, ...] | None = None
    releases: Annotated[int, Field(le=10**7)] = 20_000
    queries: Annotated[int, Field(ge=1)] = 500

    def check(self, given: AuditInputs) -> None:
        """The run's folder, and how many draws."""
        Effort(given.confidence, self.releases)
        _opened(given)

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Every method against every attack."""
        trained = _opened(given)
        opened = trained.open(record, console)
        forget = ForgetSets.of(
            opened.dataset.train, families(opened.kept.source, opened.dataset.train), self.records, self.trials, given.seed
        )
        findings, rows, effort = list[Finding](), list[dict[str, object]](), Effort(given.confidence, self.releases)
        methods, absent = self._methods(opened)
        with TemporaryDirectory(dir=record.folder, prefix=".copies-") as scratch:
            for method in methods:
                found, trials = self._method(method, opened, forget, Path(scratch), effort, console)
                findings += found
                rows += [_row(method, trial) for trial in trials]
        table = pd.DataFrame(rows, columns=list(_row("retrain", Trial("", "", 0, None, False, ""))))
        about = (trained.finished.folder.name, trained.finished.digest, tuple(findings), (*absent, *NOTES))
        return Audited(*about, {"attacks": table})

    def _methods(self, opened: OpenedRun) -> tuple[tuple[MethodName, ...], tuple[str, ...]]:
        """(the methods to attack: those that are asked for, or all that this run has; notes of those that it has not)."""
        if self.methods:
            return self.methods, ()
        made, absent = list[MethodName](), list[str]()
        for method in METHODS:
            try:
                chosen(method, opened.trained.settings, False)
                made.append(method)
            except ConfigError as error:
                absent.append(f"this run has no method={method}, so that there was nothing to attack: {error}")
        return tuple(made), tuple(absent)

    def _method(
        self, method: MethodName, opened: OpenedRun, forget: ForgetSets, scratch: Path, effort: Effort, console: Console
    ) -> tuple[tuple[Finding, ...], tuple[Trial, ...]]:
        subject = f"method={method} of agt unlearn"
        try:
            chosen(method, opened.trained.settings, False)
        except ConfigError as error:
            return (not_tested(subject, "nothing: the method is not for this run", str(error)),), ()
        side = Sides(method, opened, forget.train, scratch / "run", self.queries)
        if why := side.unfit:
            return (not_tested(subject, "see agt unlearn", why),), ()
        attacks = list(forget.attacks(by_shard=method == "sisa"))
        with console.progress(f"method={method}", "attack") as report:
            pairs, refused = attacked(
                side.begin, side.retrained, attacks, lambda done: report(done, len(attacks), done, len(attacks))
            )
        return judged(subject, pairs, refused, side.claimed, effort)


def _opened(given: AuditInputs) -> TrainedRun:
    if given.run is None:
        raise ConfigError("run=null: give the folder of a finished training run, or run=latest")
    return TrainedRun.of({**given.config, "inputs": None})


def _row(method: str, trial: Trial) -> dict[str, object]:
    outcome = "not tested" if trial.found is None else "violated" if trial.violated else "not contradicted"
    return {
        "method": method,
        "attack": trial.attack,
        "records": trial.records,
        "test": trial.test,
        "found": trial.found,
        "outcome": outcome,
        "words": trial.words,
        "removed_by": trial.how,
    }


@dataclass
class Sides:
    """A method on a copy of the run, and training without the records.

    Attributes:
        opened: the run, which stays as it is.
        train: its training records, whose rows are asked to be erased.
        copy: where the copy lies.
        queries: how many labels are compared.
        promises: what the method said after each removal.
        gone: rows that were asked for since the last beginning.
        drawn: (side, n) -> noise that was drawn.
    """

    method: MethodName
    opened: OpenedRun
    train: Records
    copy: Path
    queries: int
    promises: list[Promise] = field(default_factory=list)
    gone: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    drawn: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    @property
    def unfit(self) -> str:
        """Why nothing can be compared; empty: it can."""
        certificate, settings = self.opened.trained.settings.certificate, self.opened.trained.settings
        if settings.noise is not None:
            return "training draws private noise (noise.epsilon): what it gives twice differs by that, whatever was removed"
        if certificate.name == "removal" and certificate.masking == "loss":
            return (
                "certificate.masking=loss: its noise is drawn once, in training, so that each draw of what is served takes "
                "a training; and its promise is not proved (agt unlearn says so)"
            )
        return ""

    def begin(self) -> tuple[Served, Unlearn]:
        """A fresh copy."""
        shutil.rmtree(self.copy, ignore_errors=True)
        copied(self.run, self.copy)
        self.gone = self.gone[:0]
        return self._first, self._unlearn

    @cached_property
    def _first(self) -> Served:
        return self._served(self.opened.model)

    def retrained(self, rows: RemovedRows) -> Served:
        """Training from scratch on the data without them."""
        prepared = self._prepared(rows)
        job = ErasureJob(self.run, self.opened.trained.settings, prepared, prepared.erased, len(rows), len(rows))
        return self._served(fit(prepared.problem(from_the_start(job))), rows, "retrained")

    @property
    def claimed(self) -> Promised:
        """The least that the method promised: what an attack was answered by training from scratch keeps that, too.

        What the settings were chosen on is left out: the model that was never trained on the records has the same ones.
        """
        if not self.promises:
            return Promised("as agt unlearn promises", True)
        choices = {self.opened.trained.settings.choices, self.opened.kept.problem.settings.choices}
        promises = [
            replace(made, assumptions=tuple(fact for fact in made.assumptions if fact not in choices))
            for made in self.promises
        ]
        return Promised.of(max(promises, key=lambda made: (not made.proved, not made.exact, made.eps)))

    @property
    def run(self) -> Run:
        """The run that is audited."""
        return self.opened.trained.finished

    def _unlearn(self, rows: RemovedRows) -> Served:
        self.gone = np.concatenate([self.gone, rows])
        ids = self.copy.with_name("ids.txt")
        ids.write_text("\n".join(self.train.ids[rows].tolist()))
        compute = self.run.config.get("compute")
        order = ErasureOrder(self.copy, None, compute, str(ids), "id", self.method, True, False, None, self.copy.parent)
        with run_lock(self.copy):
            erase(order, QUIET)
        state = open_run(self.copy, "train")
        removal = Log.of(state).entries[-1].removal
        self.promises.append(removal.promise)
        if self.method == "certificate":
            return self._answers(PendingErasures.of(state), self.opened.model)
        model = load(self._prepared(self.gone).problem(self.opened.trained.settings), state)
        how = str(removal.facts.get("removed_by", "")) or removal.words[0]
        return replace(self._served(model, self.gone), how=how)

    def _prepared(self, rows: RemovedRows) -> Prepared:
        """The data without these records, and without those that the run's own log names."""
        names, before = self.train.ids[rows], gone_of(self.run)

        def gone(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
            marked: np.ndarray = np.isin(ids, names) | before(ids, units)
            return marked

        return prepare(self.opened.trained.settings, QUIET, cast(IsErased, gone))

    def _served(self, model: Model, rows: RemovedRows | None = None, side: str = "unlearned") -> Served:
        if self.method == "certificate":
            return Served(model.predict(self._asked(rows)), shown=model)
        if not isinstance(model, RemovalModel):
            return Served(bits(model), shown=model)
        state, config, objective = model.state, model.config, model.known.objective
        within = state.residual / objective.strength if self.method == "newton" else None
        if config.masking == "none":
            return Served(state.weight.ravel(), within=within, shown=model)
        probes = {} if rows is None else {"the gradient of the forgotten records' loss": self._gradient(model, rows)}
        drawn = config.seed is None  # a recorded seed is a simulation, which repeats itself
        return Served(
            state.weight.ravel(),
            within=within,
            noise=partial(self._noise, side),
            seen=state.served.ravel(),
            sigma=config.sigma if drawn else None,
            probes=probes,
            shown=model,
        )

    def _gradient(self, model: RemovalModel, rows: RemovedRows) -> np.ndarray:
        gone, objective = self.train.take(rows), model.known.objective
        targets = objective.targets(gone.labels, model.problem.classes)
        return objective.force(model.state.weight, model.phi(gone.features), targets, model.features.slack).gradient.ravel()

    def _noise(self, side: str, n: int) -> np.ndarray:
        """Noise of one coordinate, drawn as the product draws it: once for each side, for all directions and attacks."""
        certificate = self.opened.trained.settings.certificate
        assert certificate.name == "removal"
        if (side, n) not in self.drawn:
            self.drawn[side, n] = noisy(np.zeros(n), certificate.sigma, SystemRandomness())
        return self.drawn[side, n]

    def _answers(self, waiting: PendingErasures, model: Model) -> Served:
        """Labels that are given while the requests wait."""
        certificates = model.certify(self._asked(self.gone))
        answered = waiting.answered(certificates, model.problem.classes)
        how = f"{int(answered.sum())} of {len(answered)} queries answered"
        return Served(certificates.prediction, answered=answered, shown=model, how=how)

    def _asked(self, rows: RemovedRows | None) -> np.ndarray:
        """Test records, and those that ask."""
        test = self.opened.dataset.test.features[: self.queries]
        if rows is None:
            return test
        return np.concatenate([test, self.train.features[rows[: self.queries]]])
