"""agt audit KIND: attack a run's own claims; exit code 3 if one is false."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt.errors import CheckError, ConfigError
from agt.settings import build, plain_of
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.page import lines, page
from agt_cli.configuration import digest_of, only_keys
from agt_cli.report.audit_files import remove_copies
from agt_cli.report.console import Console
from agt_cli.report.findings import AUDIT_FILE, Audit
from agt_cli.report.finished import Run
from agt_cli.report.opening import check_edits, open_run
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import people
from agt_cli.runs.pending import PendingErasures, StateMonitor
from agt_cli.runs.queries import DIGESTS

KEYS = (
    *(
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
    ),
    *("inputs", "compute", "output_dir"),
)


@dataclass(frozen=True)
class AuditConfig:
    """A kind of audit with its settings, and the settings that all kinds share.

    Attributes:
        finished: the run; None: none was given.
    """

    kind: AuditKind
    given: AuditInputs
    finished: Run | None


def configure(config: Mapping[str, Any]) -> AuditConfig:
    """Validate the settings, before any data is read.

    Raises:
        ConfigError: by key; or the run is not finished, or not what it was.
    """
    only_keys(config, KEYS)
    confidence, seed, run = config.get("confidence"), config.get("seed"), config.get("run")
    if (
        isinstance(confidence, bool)
        or not isinstance(confidence, int | float)
        or not 0.5 <= confidence < 1
    ):
        raise ConfigError(
            f"confidence={confidence}: give a number that is at least 0.5 and below 1, for "
            "example 0.95. It is the probability with which the audit's bounds hold"
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed={seed}: give an integer that is at least 0")
    kind = build(config.get("audit"), "audit")
    if not isinstance(kind, AuditKind):
        class_name = type(kind).__name__
        raise ConfigError(
            f"audit._target_: the class {class_name} is not a kind of audit. Let it inherit from "
            "agt_audit.job.AuditKind"
        )
    folder = None if run is None else Path(str(run))
    given = AuditInputs(
        config,
        folder,
        digest_of(config, "digest"),
        confidence,
        seed,
        Path(str(config["output_dir"])),
    )
    kind.check(given)
    finished = None if folder is None else open_run(folder, "train", given.digest)
    if finished is not None:
        check_edits(finished, f"agt audit {kind.name}")
    if finished is not None and not kind.while_waiting:
        _check_no_pending_erasure(finished)
    if finished is not None and kind.needs_classes:
        _check_classes(finished, kind.name)
    return AuditConfig(kind, given, finished)


def run(config: AuditConfig, record: RunRecord, console: Console) -> dict[str, Any]:
    """Attack, write the record, say what was found, and return it for --json.

    Raises:
        CheckError: a claim is false; the record is finished all the same. Or the run was changed
            meanwhile, and it is not.
    """
    remove_copies(record.folder.parent)
    record.environment(kind=config.kind.name, **_run_facts(config.finished))
    audited = config.kind.carry_out(config.given, record, console)
    _check_current(config.finished, audited.digest)
    audit = audited.audit(config.kind.name)
    _write(audit, audited, record, config.kind.question)
    digest = record.finish()
    for line in lines(audit, config.kind.question):
        console.say(line)
    console.say(f"run folder: {record.folder}")
    console.say(f"digest: {digest}")
    console.note(f"report: {record.folder / 'report.html'}")
    result = {"audit": plain_of(audit), "metrics": record.metrics, "digest": digest}
    if audit.violations:
        raise CheckError(audit.verdict, {"command": "audit", "run": str(record.folder), **result})
    return result


def _check_no_pending_erasure(finished: Run) -> None:
    """Raise ConfigError if requests to erase records of a run wait.

    Its model is of records that its data no longer has, so nothing trained now is its neighbour.
    """
    waiting = PendingErasures.of(finished).units
    if waiting:
        raise ConfigError(
            f"run={finished.folder}: the model was trained on records of {people(waiting)} who "
            "asked to be erased, so it cannot be compared with models trained on the remaining "
            f"records. First type `agt unlearn run={finished.folder}`; only `agt audit "
            "unlearning` can audit the run before that"
        )


def _check_classes(finished: Run, kind: str) -> None:
    """Raise ConfigError if the labels of a run are numbers, and say what can be audited."""
    dataset = finished.config.get("dataset") or {}
    if dataset.get("target") == "numeric":
        raise ConfigError(
            f"run={finished.folder}: `agt audit {kind}` attacks models of classes, but this run "
            "answers with numbers. Audit its certified intervals with `agt audit certificate`, "
            "and its releases with `agt audit mechanism`, `agt audit prediction` or `agt audit "
            "replay` (mechanism=laplace_mean)"
        )


def _run_facts(finished: Run | None) -> dict[str, object]:
    """Return which state of which run is audited, as a verifier looks for it in env.json."""
    if finished is None:
        return {}
    digests = {key: finished.environment.get(key) for key in (*DIGESTS, "dataset")}
    return {
        "trained_run": str(finished.folder.resolve()),
        "trained_digest": finished.digest,
        **digests,
    }


def _check_current(finished: Run | None, digest: str | None) -> None:
    """Raise CheckError if the run is not what it was, or another state of it was audited.

    Args:
        finished: the run; None: none was audited.
        digest: of the state that was audited; None: the audit does not say.
    """
    if finished is None:
        return
    if digest not in (None, finished.digest) or StateMonitor(finished).changed:
        raise CheckError(
            f"run={finished.folder}: `agt unlearn` changed this run during the audit, so no "
            "findings are shown. Start the audit again"
        )


def _write(audit: Audit, audited: Audited, record: RunRecord, question: str) -> None:
    """Write audit.json, the tables, the metrics and the report."""
    record.write(AUDIT_FILE, audit.content)
    for name, table in audited.tables.items():
        record.table(name, table)
    counts = {"findings": len(audit.findings), "violations": len(audit.violations)}
    record.add_metrics(**counts, verdict=audit.verdict, **audited.metrics)
    record.report(page(audit, audited, question))
