"""agt audit unlearning: each method of agt unlearn, on copies of a run, against training without
the erased records.

An attack is a sequence of requests to erase (agt_audit/forget_sets.py), each of which may be chosen
after looking at what the one before left. What the method promised is tested as in
agt_audit/unlearning_claims.py.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from agt.data.erasure import copy_groups
from agt.data.records import Records
from agt.errors import ConfigError
from agt.models.fitting import fit, load
from agt.models.model import Model
from agt.numeric import SystemRandomness, noisy
from agt.settings import schema
from agt.store.folder import NewFolder
from agt.unlearning.promise import MethodName, Promise
from agt.unlearning.sentences import Remark
from agt_audit.forget_sets import ForgetSets, RemovedRows
from agt_audit.job import SILENT, Audited, AuditInputs, AuditKind, counted_progress
from agt_audit.kind_settings import UnlearningSettings
from agt_audit.trials import TrialPlan
from agt_audit.unlearning_claims import (
    NOT_MADE,
    ModelState,
    Trial,
    Unlearn,
    UnlearningAudit,
    audit_unlearning,
    not_tested,
)
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding
from agt_cli.report.next_state import run_lock
from agt_cli.report.opening import open_run
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import erased_predicate
from agt_cli.runs.pending import PendingErasures
from agt_cli.runs.prepare import Prepared, prepare
from agt_cli.runs.queries import OpenedRun, TrainedRun
from agt_cli.unlearn.erasure import ErasureOrder, erase
from agt_cli.unlearn.log import Log
from agt_cli.unlearn.methods import METHODS, choose_method, from_the_start
from agt_cli.unlearn.rehearsal import copy_run


def saved_bytes(model: Model, scratch: Path) -> np.ndarray:
    """Return the bytes of all files of a saved model, [d] uint8, in order of their paths.

    Args:
        model: the model.
        scratch: a folder in which the files lie meanwhile.
    """
    with TemporaryDirectory(dir=scratch) as folder:
        model.save(NewFolder(Path(folder), "train"))
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        content = b"".join(path.read_bytes() for path in files)
    return np.frombuffer(content, dtype=np.uint8)


NOTES = (
    "each method ran with the code of `agt unlearn` on a copy of the run. The copies were "
    "deleted, and the run was not changed",
    "this program on this machine also trained without the erased records, so the audit does "
    "not notice errors in code that training shares with an unlearning method (such as loading "
    "data)",
    "the audit shows nothing about sets of records that were not tried",
)


@schema
class Unlearning(UnlearningSettings, AuditKind):
    """Compares unlearned models of a run with models that were trained without the records.

    Attributes:
        records: how many records each attack erases; of a whole class, all of them.
        trials: how many forget sets are drawn at random, beside those chosen by an adversary.
        methods: the methods of ``agt unlearn`` to attack; None: all that can be used for the run.
        releases: how many draws of released weights there are, from each side and direction.
        queries: how many test records' labels are compared, for a method that answers queries
            before it removes records.
    """

    question = "the erased records had been used in training"
    while_waiting = True

    def check(self, given: AuditInputs) -> None:
        """Check that a run is given and can be opened.

        Raises:
            ConfigError: it is not, or cannot; the error names the key.
        """
        super().check(given)
        _open_without_queries(given)  # called because it raises if the run cannot be opened

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Make every attack on every method.

        A method that cannot be used for the run has an untested finding if the settings name it,
        and a note otherwise.

        Args:
            given: the settings that all kinds of audit share.
            record: the audit's run folder, in which copies of the run lie meanwhile.
            console: the console, which shows progress.

        Returns:
            The findings of all methods, and the table of attacks.

        Raises:
            ConfigError: the run's data is missing or was changed, or fewer records can be erased
                than ``records``.
        """
        trained = _open_without_queries(given)
        opened = trained.open(record, console)
        train = opened.dataset.train
        forget = ForgetSets(
            train, copy_groups(opened.stored.source, train), self.records, self.trials, given.seed
        )
        plan = TrialPlan(self.releases, given.confidence)
        findings: list[Finding] = []
        rows: list[dict[str, object]] = []
        omissions: list[str] = []  # sentences about methods and attacks that were left out
        with TemporaryDirectory(dir=record.folder, prefix=".copies-") as scratch:
            for method in self.methods or METHODS:
                tested = MethodUnderTest(method, opened, train, Path(scratch) / "run", self.queries)
                obstacle = _why_unusable(method, trained)
                if obstacle and self.methods:
                    claim = "nothing is claimed, because the method cannot be used for this run"
                    findings.append(not_tested(tested.words, claim, obstacle))
                    continue
                if obstacle:
                    omissions.append(
                        f"method={method} was not attacked, because it cannot be used for this "
                        f"run: {obstacle}"
                    )
                    continue
                method_findings, trials = tested.make_attacks(forget, plan, console)
                findings += method_findings
                omissions += attacks_not_made(method, trials)
                rows += [{"method": method, **asdict(trial)} for trial in trials]
        columns = ["method", *(field.name for field in fields(Trial))]
        table = pd.DataFrame(rows, columns=columns)
        notes = (*omissions, *NOTES)
        return Audited.of(trained.finished, findings, notes, tables={"attacks": table})


def _why_unusable(method: MethodName, trained: TrainedRun) -> str:
    """Return why a method of ``agt unlearn`` cannot be used for a run; "": it can be used."""
    try:
        # called only because it raises if the method cannot be used
        choose_method(method, trained.settings, trained.finished, False)
    except ConfigError as error:
        return str(error)
    return ""


def attacks_not_made(method: MethodName, trials: Sequence[Trial]) -> Iterator[str]:
    """Yield a sentence about each attack that a method refused, so that nothing was tested."""
    for trial in trials:
        if trial.test == NOT_MADE:
            yield f"method={method}: the attack with {trial.attack} was {trial.words}"


def _open_without_queries(given: AuditInputs) -> TrainedRun:
    """Open the audited run, without the queries (``inputs``) of its settings.

    Raises:
        ConfigError: the run cannot be opened.
    """
    return TrainedRun.from_config({**given.config, "inputs": None})


class MethodUnderTest:
    """A method of ``agt unlearn`` on copies of a run, and training without the erased records.

    ``begin`` starts an attack: it replaces the copy by a fresh one. ``retrained`` does not depend
    on the copy.

    Args:
        method: the method's name.
        opened: the run, which is not changed.
        train: its training records, from which rows are erased.
        copy: the folder of the copy, which is created and replaced; its parent must exist, and
            is written to.
        queries: how many test records' labels are compared.

    Attributes:
        words: the method, in words.
        run: the run, as it was trained.
        promises: the promise of each removal, in all attacks so far.
        removed_rows: the rows that were erased since the last ``begin``.
        noise_drawn: (side, n) -> [n] noise; draws are made once and used again.
    """

    def __init__(
        self, method: MethodName, opened: OpenedRun, train: Records, copy: Path, queries: int
    ) -> None:
        self.method = method
        self.opened = opened
        self.train = train
        self.copy = copy
        self.queries = queries
        self.words = f"method={method} of agt unlearn"
        self.run = opened.trained.finished
        self.promises: list[Promise] = []
        self.noise_drawn: dict[tuple[str, int], np.ndarray] = {}
        self.removed_rows = np.empty(0, dtype=np.int64)

    @property
    def reason_not_comparable(self) -> str:
        """Why the unlearned model cannot be compared with a retrained one; "": it can."""
        settings = self.opened.trained.settings
        if settings.noise is not None:
            return (
                "nothing can be compared, because training draws private noise (noise.epsilon): "
                "two results differ by that noise, whatever was removed"
            )
        if settings.certificate.noise_is_fixed:
            return (
                "unlearning with certificate.masking=loss was not tested, because its noise is "
                "drawn once, in training: every trial would need a training of its own. In "
                "addition, its guarantee is not proved"
            )
        return ""

    def make_attacks(
        self, forget: ForgetSets, plan: TrialPlan, console: Console
    ) -> UnlearningAudit:
        """Make every attack on the method.

        Args:
            forget: the sets of records to erase.
            plan: how many draws there are, and the confidence of bounds.
            console: the console, which shows progress.

        Returns:
            What the attacks showed; one untested finding and no result if the method's models
            cannot be compared.
        """
        reason = self.reason_not_comparable
        if reason:
            return UnlearningAudit((not_tested(self.words, "see agt unlearn", reason),))
        bounds_votes = self.opened.trained.settings.certificate.bounded == "vote counts"
        attacks = list(forget.attacks(by_shard=self.method == "sisa" or bounds_votes))
        label = f"method={self.method}"
        with counted_progress(console, label, "attack", len(attacks)) as report:
            return audit_unlearning(
                self.words, self.begin, self.retrained, attacks, lambda: self.claimed, plan, report
            )

    def begin(self) -> tuple[ModelState, Unlearn]:
        """Replace the copy by a fresh one; return the trained model's state and ``_unlearn``."""
        shutil.rmtree(self.copy, ignore_errors=True)
        copy_run(self.run, self.copy)
        self.removed_rows = self.removed_rows[:0]
        return self._trained_state, self._unlearn

    @cached_property
    def _trained_state(self) -> ModelState:
        """The trained model's state: one object in all attacks, so its noise is counted once."""
        return self._state(self.opened.model)

    def retrained(self, rows: RemovedRows) -> ModelState:
        """Train a model from scratch without these rows, and return its state."""
        settings = from_the_start(self.run, self.opened.trained.settings)
        model = fit(self._prepared(rows).problem(settings))
        return self._state(model, rows, "retrained")

    @property
    def claimed(self) -> Promise:
        """The weakest promise that the method made in all attacks so far.

        An attack that the method answered by training from scratch fulfils weaker promises as
        well. Assumptions about the data on which settings were chosen are left out, because the
        retrained model has the same settings.

        Before any attack, it is an exact promise without details.
        """
        if not self.promises:
            return Promise(self.method, True, 0.0, 0.0, True, (Remark("as_promised"),))
        choices = {
            self.opened.trained.settings.choices,
            self.opened.stored.problem.settings.choices,
        }
        promises = []
        for promise in self.promises:
            assumptions = tuple(fact for fact in promise.assumptions if fact not in choices)
            promises.append(replace(promise, assumptions=assumptions))
        return max(
            promises, key=lambda promise: (not promise.proved, not promise.exact, promise.eps)
        )

    def _unlearn(self, rows: RemovedRows) -> ModelState:
        """Erase rows from the copy as ``agt unlearn`` does, and return the model's new state.

        The rows are added to ``removed_rows``, and the method's promise to ``promises``.

        Raises:
            AgtError: the method refuses the request.
        """
        self.removed_rows = np.concatenate([self.removed_rows, rows])
        ids = self.copy.with_name("ids.txt")
        ids.write_text("\n".join(self.train.ids[rows].tolist()), encoding="utf-8")
        compute = self.run.config.get("compute")
        order = ErasureOrder(
            folder=self.copy,
            digest=None,
            compute=compute,
            ids=str(ids),
            by="id",
            choice=self.method,
            may_retrain=True,
            fresh=False,
            output_dir=self.copy.parent,
        )
        with run_lock(self.copy):
            erase(order, SILENT)
        run = open_run(self.copy, "train")
        removal = Log.of(run).entries[-1].removal
        self.promises.append(removal.promise)
        if self.method == "certificate":
            return self._answers(PendingErasures.from_run(run), self.opened.model)
        model = load(self._prepared(self.removed_rows).problem(self.opened.trained.settings), run)
        removed_by = str(removal.facts.get("removed_by", ""))
        if not removed_by:
            removed_by = removal.sentences[0]
        return replace(self._state(model, self.removed_rows), how=removed_by)

    def _prepared(self, rows: RemovedRows) -> Prepared:
        """Return the run's data without these rows, and without those that were erased before.

        Args:
            rows: the rows of ``train``. Records that the run itself has erased are in its request
                log.
        """
        ids_removed = self.train.ids[rows]
        is_removed_before = erased_predicate(self.run)

        def is_removed(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
            return np.isin(ids, ids_removed) | is_removed_before(ids, units)

        return prepare(self.opened.trained.settings, SILENT, is_removed)

    def _state(
        self, model: Model, rows: RemovedRows | None = None, side: str = "unlearned"
    ) -> ModelState:
        """Return the values of a model that the method's claim is about.

        They are labels, if the method answers queries before it removes records; otherwise
        weights, if the model has weights that records can be removed from; otherwise the bytes of
        its files.

        Args:
            model: the trained, unlearned or retrained model.
            rows: the rows that were erased; None: none were.
            side: the side for which noise is drawn, "unlearned" or "retrained".
        """
        if self.method == "certificate":
            return ModelState(model.predict(self._queries(rows)), visible=model)
        weights = model.removable_weights
        if weights is None:
            return ModelState(saved_bytes(model, self.copy.parent), visible=model)
        own_method = self.opened.trained.settings.certificate.own_erasure
        distance = weights.distance if self.method == own_method else None
        if not weights.sigma:
            return ModelState(weights.weight.ravel(), claimed_distance=distance, visible=model)
        return ModelState(
            weights.weight.ravel(),
            claimed_distance=distance,
            draw_noise=partial(self._draw_noise, weights.sigma, side),
            noisy_values=weights.noisy_weight.ravel(),
            # noise of a recorded seed repeats itself, so nothing is claimed of its size
            sigma=weights.sigma if weights.noise_is_random else None,
            visible=model,
        )

    def _draw_noise(self, sigma: float, side: str, count: int) -> np.ndarray:
        """Return ``count`` draws of Gaussian noise, [count], made as releases make theirs.

        They are drawn once for each side and returned in every call with the same count, so all
        attacks share them.

        Args:
            sigma: the standard deviation; it is the same in all calls.
            side: "unlearned" or "retrained".
            count: how many draws.
        """
        if (side, count) not in self.noise_drawn:
            self.noise_drawn[side, count] = noisy(np.zeros(count), sigma, SystemRandomness())
        return self.noise_drawn[side, count]

    def _answers(self, pending: PendingErasures, model: Model) -> ModelState:
        """Return the labels of a model while erasures are pending, and which are answered.

        Args:
            pending: the pending erasures.
            model: the trained model, from which nothing has been removed yet.
        """
        certificates = model.certify(self._queries(self.removed_rows))
        answered = pending.answerable_queries(certificates, model.problem.classes)
        summary = f"{int(answered.sum())} of {len(answered)} queries were answered"
        return ModelState(certificates.prediction, answered=answered, visible=model, how=summary)

    def _queries(self, rows: RemovedRows | None) -> np.ndarray:
        """Return the features of test records, followed by those of erased records, [n, ...].

        Args:
            rows: the erased rows, of which at most ``queries`` are used; None: test records only.
        """
        test = self.opened.dataset.test.features[: self.queries]
        if rows is None:
            return test
        return np.concatenate([test, self.train.features[rows[: self.queries]]])
