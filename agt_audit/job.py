"""What a kind of audit is given, what it returns, and how it opens the run that it attacks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from agt.errors import ConfigError, DataMissing
from agt.mechanisms.mechanism_config import AnyMechanism, MechanismConfig
from agt.settings import TotalConfig, validate
from agt_cli.report.console import Console
from agt_cli.report.findings import VERSION, Audit, Finding, Outcome
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun, TrainedRun

OWNER = "this report is only for the data owner, because it reveals something about private records"


@dataclass(frozen=True)
class AuditInputs:
    """The settings that all kinds share, validated.

    Attributes:
        config: the whole configuration, for ``TrainedRun.of`` and the like.
        run: the folder of the audited run; None: none was given.
        digest: that it must have; None: any.
        confidence: of every bound.
        seed: of whatever the audit draws itself: canaries, subsets, neighbours. Releases are drawn
            as they would be.
        output_dir: where runs are written.
    """

    config: Mapping[str, Any]
    run: Path | None
    digest: str | None
    confidence: float
    seed: int
    output_dir: Path

    def mechanism(
        self, example: str = "mechanism=randomized_response mechanism.eps=1"
    ) -> MechanismConfig:
        """Return the mechanism that is audited, with its budget.

        Args:
            example: an audited mechanism, for a message to those who named none.

        Raises:
            ConfigError: there is none, or it has no budget.
        """
        if self.config.get("mechanism") is None:
            raise ConfigError(f"mechanism: name the mechanism to audit, for example {example}")
        return MechanismConfig.from_settings(
            self.config["mechanism"], validate(TotalConfig, self.config.get("total"), "total")
        )

    def need_run(self, inputs: bool = False) -> None:
        """Refuse to go without a run, or with queries that the audit does not take.

        Args:
            inputs: it takes queries that are brought along.

        Raises:
            ConfigError: by key.
        """
        if self.run is None:
            raise ConfigError(
                "run: give the folder of a finished `agt train` run, or write run=latest"
            )
        if not inputs and self.config.get("inputs") is not None:
            raise ConfigError(
                f"inputs={self.config['inputs']}: this audit uses the run's own records and "
                "chooses its queries itself. Leave inputs=... out"
            )

    def open(self, record: RunRecord, console: Console) -> OpenedRun:
        """Open the run with the records that it was trained on, and the queries that are asked.

        Args:
            record: of the audit.
            console: for progress.

        Raises:
            DataMissing: the records are not there.
            ConfigError: they are not what they were.
        """
        return TrainedRun.of(self.config).open(record, console)

    def check_run(self, inputs: bool = False) -> TrainedRun:
        """Return the run that is audited by training neighbours; no data of it is read yet.

        Args:
            inputs: the audit takes queries that are brought along.

        Raises:
            ConfigError: it is no finished training run, or queries are brought along; or training
                drew noise, which training again would draw anew.
        """
        self.need_run(inputs)
        trained = TrainedRun.of(self.config)
        if trained.settings.noise is not None:
            raise ConfigError(
                f"run={self.run}: the training of this run used random noise, so models of "
                "neighbouring datasets cannot be compared with it. Use `agt audit dpsgd` for "
                "this run"
            )
        return trained

    def open_with_data(self, record: RunRecord, console: Console, instead: str) -> OpenedRun:
        """Open the run with the records that it was trained on.

        Args:
            record: of the audit.
            console: for progress.
            instead: what can be audited without them, in words.

        Raises:
            DataMissing: they are not there.
            ConfigError: they are not what they were.
        """
        try:
            return self.check_run().open(record, console)
        except DataMissing as error:
            raise DataMissing(
                f"{error}\nThis audit needs the data of run={self.run}, because it trains models "
                f"on neighbouring datasets. Without the data, {instead}"
            ) from None


@dataclass(frozen=True)
class Audited:
    """What an audit found, for the record.

    Attributes:
        subject: what was audited: the run's folder name, or what else.
        digest: of the run; None: it is none.
        findings: at least one.
        notes: what else a reader must know.
        tables: tables/NAME.csv, and shown in the report in this order.
        captions: of figures that were drawn into the record, by their names (as ``figures.drawing``
            writes them).
        metrics: flat numbers.
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
        """Return what an audit of a run found; its first note is for whom the report is."""
        return cls(run.folder.name, run.digest, tuple(findings), (OWNER, *notes), **more)

    def audit(self, kind: str) -> Audit:
        """Return the content of audit.json.

        Args:
            kind: of the audit.

        Raises:
            ConfigError: it contradicts itself.
        """
        return Audit(VERSION, kind, self.subject, self.findings, self.digest, self.notes)


class AuditKind:
    """One kind of audit: a class of ``agt.settings.schema``, in a file of its own.

    Its fields are the settings ``audit.*``. It is registered by its entry of
    conf/groups/audit.yaml, or by a file conf/audit/NAME.yaml of the user's, which names the class
    by ``_target_`` and gives every setting with its meaning.

    Attributes:
        name: the kind's, as it is registered.
        question: what a person wants to know of the run, as a clause: what a claimed loss limits.
        while_waiting: it can audit a run in which requests to erase wait. The model of such a run
            is of all records, but its data has only those that do not wait, so what is trained on
            one record less is many records away; every other kind refuses it.
        needs_classes: it attacks labels that are classes, so it refuses a run of numbers.
    """

    name: ClassVar[str]
    question: ClassVar[str] = "a person's record is among the training records"
    while_waiting: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False

    def check(self, given: AuditInputs) -> None:
        """Refuse what can be refused before any data is read; here, to go without a run.

        Raises:
            ConfigError: by key.
        """
        given.need_run()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Attack, and return what was found.

        Args:
            given: the settings that all kinds share.
            record: figures are drawn into it; everything else is written by the command.
            console: for progress, notes and tables.
        """
        raise NotImplementedError


def no_pair_found(mechanism: AnyMechanism, neighbours: int, sought: str) -> Finding:
    """Return the finding of a mechanism for which nothing was drawn.

    Args:
        mechanism: that is audited.
        neighbours: how many neighbouring datasets were tried at most.
        sought: what was looked for, in words.
    """
    return Finding(
        subject=mechanism.name,
        claim=str(mechanism.guarantee),
        attack=f"a search for {sought}",
        effort=(
            f"at most {neighbours} neighbouring datasets were tried. The queries lie between test "
            "records of different labels"
        ),
        outcome=Outcome.UNTESTED,
        meaning=(
            f"a search for {sought} found none, so nothing was tested. Raise audit.neighbours, "
            "or use a run with more test records of each label"
        ),
        measure="mu" if "mu" in mechanism.guarantee.parameters else "epsilon",
    )
