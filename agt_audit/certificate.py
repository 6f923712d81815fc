"""agt audit certificate: models are trained on neighbouring datasets of a run, and compared with
every claim of the run's certificates.

The model is audited as it was saved. A violation is a counterexample, which is certain if the
conditions of the claim hold. That none was found is no proof, so the audit reports how close the
neighbours came to their bounds, and by how much a bound must be too narrow to be detected.
"""

from collections.abc import Mapping

import numpy as np

from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.facts import Standing
from agt.models.model import Model
from agt.settings import schema
from agt_audit.certificate_attacks import Auditor
from agt_audit.certificate_counts import Claims
from agt_audit.certificate_findings import notes
from agt_audit.intervals import audit_intervals
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import CertificateSettings
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun

NUMBERS_NOTES = (
    "finding no violation proves nothing: this audit shows nothing about datasets and queries that "
    "were not tried",
    "of a run that answers with numbers, people are not left out one at a time, and the run is not "
    "trained again: audit.units, audit.bounded, audit.lines and audit.again have no effect",
)
CODE_KEYS = ("agt", "revision")  # keys of env.json that name the version of agt


@schema
class Certificate(CertificateSettings, AuditKind):
    """Audits the certificates of a run; its settings say how much is tried.

    Attributes:
        units: how many units are left out of training, one at a time, drawn at random if there are
            more; None: all.
        neighbours: how many neighbouring datasets to make by edits that are chosen to change
            answers, at distances from 1 to ``farthest``.
        farthest: the largest distance k of these.
        bounded: on how many neighbouring datasets to train with all bounds.
        queries: how many test records to ask.
        lines: on how many lines between test records to search changes of labels and certificates.
        seconds: no training starts after so many seconds; None: no limit.
        again: whether to train the run itself again, with its bounds.
    """

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Open the run with its data, make all attacks, and return the findings.

        Raises:
            DataMissing: the run's data is missing.
            ConfigError: the data was changed, or the run's training used noise without a seed.
        """
        opened = given.open(record, console)
        if opened.model.number_votes is not None:
            return self._audit_intervals(opened, given.seed)
        model = opened.model
        _check_noise_is_repeatable(model)
        self._note_unused_distances(model, console)
        run_environment = opened.trained.finished.environment
        audit_environment = Run.at(record.folder).environment
        other_code = _code_differences(run_environment, audit_environment)
        with console.progress("certificate audit", "neighbour") as report:

            def on_progress(done: int, total: int) -> None:
                report(done, total, done, total)

            auditor = Auditor(model, self, given.seed, other_code, on_progress)
            findings = auditor.run()
        counts = auditor.counts
        conditions = map(_condition_sentence, opened.conditions)
        return Audited.of(
            opened.trained.finished,
            findings.values(),
            (*notes(auditor.claims, counts, self.seconds), *conditions),
            metrics={
                "neighbours": counts.neighbours_trained,
                "deviation": counts.largest_deviation,
                "pairs": counts.pairs,
            },
        )

    def _note_unused_distances(self, model: Model, console: Console) -> None:
        """Print a note if ``farthest`` exceeds the largest k for which the run has bounds."""
        usable = max(model.max_distance, 1)
        if self.farthest > usable:
            console.note(
                f"audit.farthest={self.farthest} exceeds {model.max_distance}, the largest "
                "distance k for which this run has bounds, so datasets that are farther away "
                f"are not used: set audit.farthest={usable} or less"
            )

    def _audit_intervals(self, opened: OpenedRun, seed: int) -> Audited:
        """Audit a run whose answers are numbers, and whose certificates are intervals.

        Args:
            opened: the run.
            seed: the seed of the choice of queries and edits.
        """
        model = opened.model
        dataset = model.problem.dataset
        candidates = dataset.test if len(dataset.test) else dataset.train
        shuffled = np.random.default_rng(seed).permutation(len(candidates))
        rows = np.sort(shuffled[: max(self.queries, 1)])
        queries = np.asarray(candidates.take(rows).features)
        counts = audit_intervals(model, queries, self.neighbours, self.farthest, seed, self.seconds)
        return Audited.of(
            opened.trained.finished,
            counts.findings(Claims(model.problem).subject, len(queries)),
            (*NUMBERS_NOTES, *map(_condition_sentence, opened.conditions)),
            metrics={"neighbours": counts.neighbours},
        )


def _check_noise_is_repeatable(model: Model) -> None:
    """Raise ConfigError if a run's training added noise that no seed gives again."""
    noise = model.problem.settings.noise
    if noise is not None and noise.seed is None:
        raise ConfigError(
            "noise.seed=null: the noise of this run was not stored, so models of "
            "neighbouring datasets cannot be trained with the same noise. Train a run with "
            "the same settings and noise.seed=NUMBER, then audit that run"
        )


def _code_differences(
    run_environment: Mapping[str, object], audit_environment: Mapping[str, object]
) -> str:
    """Return a clause that says which other version of agt made a run; "": the same version did.

    Args:
        run_environment: the content of the run's env.json.
        audit_environment: the content of this audit's env.json.
    """
    listed = "; ".join(
        f"{key}={run_environment.get(key)} in the run, {key}={audit_environment.get(key)} in this "
        "audit"
        for key in CODE_KEYS
        if run_environment.get(key) != audit_environment.get(key)
    )
    return f"the run was made by another version of agt ({listed})" if listed else ""


def _condition_sentence(condition: Condition) -> str:
    """Return a sentence with a condition's status and the reason for it.

    The reason of a declared condition says itself that it is declared, so its status is left out.
    """
    reason = f"{condition.standing}: {condition.why}"
    if condition.standing is Standing.DECLARED:
        reason = condition.why
    return f"condition {condition.letter} ({condition.name}): {reason}"
