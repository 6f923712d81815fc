"""The base class of audits, ``AuditKind``, with its inputs and results."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from agt.mechanisms.mechanism_config import MechanismConfig
from agt.release import ReleaseTerms
from agt.settings import TotalConfig, validate
from agt_audit.kind_settings import AuditSettings
from agt_cli.report.console import Console
from agt_cli.report.findings import VERSION, Audit, Finding
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun, TrainedRun

SILENT = Console(json=True, quiet=True)
"""Prints nothing: for commands that an audit runs, whose messages would mislead or be private."""
OWNER = "this report is only for the data owner, because it reveals something about private records"


@dataclass(frozen=True)
class AuditInputs:
    """The validated settings that all kinds of audit share.

    Attributes:
        config: the whole configuration, from which ``TrainedRun.from_config`` and others read
            further keys.
        run: the folder of the audited run; None: none was given.
        digest: the digest that the run must have; None: any.
        confidence: the probability with which bounds hold, in [0.5, 1).
        seed: the seed of the audit's own draws: canaries, subsets, neighbours. Releases are drawn
            with the randomness of real releases instead.
        output_dir: the folder in which run folders are created.
    """

    config: Mapping[str, Any]
    run: Path | None
    digest: str | None
    confidence: float
    seed: int
    output_dir: Path

    def mechanism(self) -> MechanismConfig:
        """Return the settings of the mechanism that is audited, with its budget.

        Raises:
            ConfigError: it has no budget, or a setting of it is wrong.
        """
        return MechanismConfig.from_settings(
            self.config["mechanism"], validate(TotalConfig, self.config.get("total"), "total")
        )

    def release_terms(self, opened: OpenedRun) -> ReleaseTerms:
        """Return how releases from the run are judged: by its conditions, and these settings."""
        return ReleaseTerms(
            conditions=opened.conditions,
            accounting=self.config["accounting"],
            counting=self.config["counting"],
        )

    def open(self, record: RunRecord, console: Console) -> OpenedRun:
        """Open the run with the records that it was trained on, and the queries.

        Args:
            record: the audit's run folder.
            console: the console, which shows progress.

        Raises:
            DataMissing: the records are missing.
            ConfigError: the records were changed.
        """
        return TrainedRun.from_config(self.config).open(record, console)


@dataclass(frozen=True)
class Audited:
    """The results of an audit, which the command writes into its record.

    Attributes:
        subject: the folder name of the audited run, or the name of what else was audited.
        digest: the digest of the audited state of the run; None: no run was audited.
        findings: the findings, at least one.
        notes: sentences that a reader needs beside the findings.
        tables: name -> table, each written to tables/NAME.csv; the report shows them in order.
        captions: name of a figure that was drawn into the record -> its caption.
        metrics: name -> value, for metrics.json.
    """

    subject: str
    digest: str | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    captions: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float | int | str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, run: Run, findings: Iterable[Finding], notes: Iterable[str] = (), **more: Any
    ) -> "Audited":
        """Return the results of an audit of a run; a note that they are for its owner comes first.

        Args:
            run: the audited run.
            findings: the findings, at least one.
            notes: further notes.
            more: values of further attributes by name (tables, captions and metrics).
        """
        return cls(run.folder.name, run.digest, tuple(findings), (OWNER, *notes), **more)

    def audit(self, kind: str) -> Audit:
        """Return the content of audit.json.

        Args:
            kind: the name of the kind of audit.

        Raises:
            ConfigError: the findings contradict each other.
        """
        return Audit(VERSION, kind, self.subject, self.findings, self.digest, self.notes)


class AuditKind(AuditSettings):
    """One kind of audit: a class of ``agt.settings.schema``, in a separate file.

    Its fields are the settings ``audit.*``. It is registered by its entry of
    conf/groups/audit.yaml, or by a file conf/audit/NAME.yaml of the user's, which names the class
    by ``_target_`` and gives every setting with its meaning.

    Attributes:
        question: what an attacker wants to know, as a clause that follows "whether"; a claimed
            privacy loss limits how sure the answer can become.
        while_waiting: whether it can audit a run with pending erasures. The model of such a run was
            trained on all records, but its data lacks the pending ones, so a dataset with one
            record less is no neighbour of the model's; other kinds refuse such a run.
    """

    question: ClassVar[str] = "a person's record is among the training records"
    while_waiting: ClassVar[bool] = False

    def check(self, given: AuditInputs) -> None:
        """Check the settings before any data is read.

        Args:
            given: the settings that all kinds share.

        Raises:
            ConfigError: a setting is missing or wrong, or this kind cannot attack the mechanism.
                The error names the key.
        """
        self.check_settings(given.config, None if given.run is None else Run.at(given.run))
        if given.config.get("mechanism") is not None:
            # also a mechanism of the user's own, whose code is imported here
            self.check_kind_of_mechanism(given.mechanism().kind)

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Carry out the audit and return its results.

        Every kind overrides it; this default raises NotImplementedError.

        Args:
            given: the settings that all kinds share.
            record: the audit's run folder. Only figures are written into it here; the command
                writes everything else.
            console: the console, which shows progress, notes and tables.
        """
        raise NotImplementedError


@contextmanager
def counted_progress(
    console: Console, label: str, unit: str, count: int
) -> Iterator[Callable[[int], None]]:
    """Show the progress of some work while the context lasts.

    Args:
        console: shows it.
        label: the work, such as "releases on both sides".
        unit: what one step is, such as "release".
        count: how many steps there are.

    Yields:
        The function to call with the number of steps that are done.
    """
    with console.progress(label, unit) as report:
        yield lambda done: report(done, count, done, count)
