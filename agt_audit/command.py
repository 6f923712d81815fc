"""agt audit KIND: attack a run's own claims; exit code 3 if one is false."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt.errors import CheckError, ConfigError
from agt.settings import build, plain_of
from agt_audit.early_checks import checked_confidence, checked_seed
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.page import lines, page
from agt_cli.configuration import check_keys, read_digest_setting
from agt_cli.report.audit_files import remove_copies
from agt_cli.report.console import Console
from agt_cli.report.findings import AUDIT_FILE, Audit
from agt_cli.report.finished import Run
from agt_cli.report.opening import open_run
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import count_people
from agt_cli.runs.pending import PendingErasures, StateMonitor
from agt_cli.runs.queries import DIGEST_NAMES

KEYS = (
    "audit",
    "kind",
    "run",
    "digest",
    "confidence",
    "seed",
    "mechanism",
    "total",
    "accounting",
    "counting",
    "inputs",
    "compute",
    "output_dir",
)
"""Settings of ``agt audit``; any other is refused."""


@dataclass(frozen=True)
class AuditConfig:
    """The validated settings of ``agt audit``.

    Attributes:
        kind: the kind of audit, with its own settings.
        given: the settings that all kinds share.
        finished: the run to audit; None: none was given.
    """

    kind: AuditKind
    given: AuditInputs
    finished: Run | None


def configure(config: Mapping[str, Any]) -> AuditConfig:
    """Validate the settings and open the run, before any data is read.

    The kind of audit checks the settings that it needs itself, among them whether a run is given.

    Args:
        config: the composed settings, with the keys ``KEYS`` and no others.

    Raises:
        ConfigError: a setting is wrong; or the run is not finished, was changed, or cannot be
            audited by this kind.
    """
    check_keys(config, KEYS)
    confidence = checked_confidence(config.get("confidence"))
    seed = checked_seed(config.get("seed"))
    kind = _built_kind(config.get("audit"))
    run = config.get("run")
    folder = None if run is None else Path(str(run))
    given = AuditInputs(
        config,
        folder,
        read_digest_setting(config, "digest"),
        confidence,
        seed,
        Path(str(config["output_dir"])),
    )
    kind.check(given)
    if folder is None:
        return AuditConfig(kind, given, None)
    finished = open_run(folder, "train", given.digest)
    kind.check_run(finished)
    if not kind.while_waiting:
        _check_no_pending_erasure(finished)
    return AuditConfig(kind, given, finished)


def _built_kind(settings: Any) -> AuditKind:
    """Return the kind of audit that the settings ``audit`` describe.

    Raises:
        ConfigError: they describe an object of another class, or are not valid.
    """
    kind = build(settings, "audit")
    if not isinstance(kind, AuditKind):
        class_name = type(kind).__name__
        raise ConfigError(
            f"audit._target_: the class {class_name} is not a kind of audit. Let it inherit from "
            "agt_audit.job.AuditKind"
        )
    return kind


def run(config: AuditConfig, record: RunRecord, console: Console) -> dict[str, Any]:
    """Carry out the audit, write its record, and print its findings.

    Args:
        config: the validated settings, with the run to audit.
        record: the audit's run folder, which is finished here.
        console: the console, which shows progress and the findings.

    Returns:
        The audit, its metrics and the record's digest, for ``--json``.

    Raises:
        CheckError: a claim is false, and the record is finished all the same; or the audited run
            was changed during the audit, and no findings are written.
    """
    remove_copies(record.folder.parent)  # of runs, which an audit that was killed left there
    record.environment(kind=config.kind.name, **_run_facts(config.finished))
    audited = config.kind.carry_out(config.given, record, console)
    # before findings are written, because they might be about a mixture of two states
    _check_state_unchanged(config.finished, audited.digest)
    audit = audited.audit(config.kind.name)
    _write_results(audit, audited, record, config.kind.question)
    digest = record.finish()
    for line in lines(audit, config.kind.question):
        console.say(line)
    console.say(f"run folder: {record.folder}")
    console.say(f"digest: {digest}")
    result = {"audit": plain_of(audit), "metrics": record.metrics, "digest": digest}
    if audit.violations:
        raise CheckError(audit.verdict, {"command": "audit", "run": str(record.folder), **result})
    return result


def _check_no_pending_erasure(finished: Run) -> None:
    """Raise ConfigError if erasures of a run are pending.

    The run's model was trained on records that its data no longer has, so models that are trained
    on this data are not its neighbours.
    """
    pending_units = PendingErasures.from_run(finished).units
    if pending_units:
        people = count_people(pending_units)
        raise ConfigError(
            f"run={finished.folder}: the model was trained on records of {people} who "
            "asked to be erased, so it cannot be compared with models trained on the remaining "
            f"records. First type `agt unlearn run={finished.folder}`; only `agt audit "
            "unlearning` can audit the run before that"
        )


def _run_facts(finished: Run | None) -> dict[str, object]:
    """Return facts for env.json that name the audited run and its state; ``agt verify`` reads them.

    It is empty without a run.
    """
    if finished is None:
        return {}
    digests = {key: finished.environment.get(key) for key in (*DIGEST_NAMES, "dataset")}
    return {
        "trained_run": str(finished.folder.resolve()),
        "trained_digest": finished.digest,
        **digests,
    }


def _check_state_unchanged(finished: Run | None, digest: str | None) -> None:
    """Raise CheckError if the run was changed during the audit, or another state was audited.

    Args:
        finished: the run as it was when the settings were checked; None: no run was audited.
        digest: the digest of the state that was audited; None: the kind of audit does not record
            it.
    """
    if finished is None:
        return
    if digest not in (None, finished.digest) or StateMonitor(finished).changed:
        raise CheckError(
            f"run={finished.folder}: `agt unlearn` changed this run during the audit, so no "
            "findings are shown. Start the audit again"
        )


def _write_results(audit: Audit, audited: Audited, record: RunRecord, question: str) -> None:
    """Write audit.json, the tables, the metrics and the report into the record.

    Args:
        audit: the findings, with their verdict.
        audited: the tables, figures, metrics and notes of the same audit.
        record: the run folder to write to; it is not finished here.
        question: what an attacker wants to know, for the report: a clause that follows "whether".
    """
    record.write(AUDIT_FILE, audit.content)
    for name, table in audited.tables.items():
        record.table(name, table)
    counts = {"findings": len(audit.findings), "violations": len(audit.violations)}
    record.add_metrics(**counts, verdict=audit.verdict, **audited.metrics)
    record.report(page(audit, audited, question))
