"""What a kind of audit is given, and what it returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from agt.audit.findings import VERSION, Audit, Finding, Part
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord


@dataclass(frozen=True)
class Given:
    """The settings that all kinds share, validated.

    Attributes:
        config: the whole configuration, for ``TrainedRun.of`` and the like.
        run: the folder of the audited run; None: none was given.
        digest: that it must have; None: any.
        confidence: of every bound.
        seed: of whatever the audit draws itself: canaries, subsets, neighbours. Releases are drawn as they would be.
        output_dir: where runs are written.
    """

    config: Mapping[str, Any]
    run: Path | None
    digest: str | None
    confidence: float
    seed: int
    output_dir: Path


@dataclass(frozen=True)
class Audited:
    """What an audit found, for the record.

    Attributes:
        subject: what was audited: the run's folder name, or what else.
        digest: of the run; None: it is none.
        findings: at least one.
        notes: what else a reader must know.
        tables: tables/NAME.csv, and shown in the report in this order.
        captions: of figures that were drawn into the record, by their names (as ``figures.drawing`` writes them).
        metrics: flat numbers.
        parts, unaudited: of a summary: as in ``Audit``.
    """

    subject: str
    digest: str | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    captions: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float | int | str] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    unaudited: tuple[str, ...] = ()

    def audit(self, kind: str) -> Audit:
        """audit.json of it. Raises ConfigError: it contradicts itself."""
        about = (self.subject, self.findings, self.digest, self.notes)
        return Audit(VERSION, kind, *about, parts=self.parts, unaudited=self.unaudited)


class Kind(Protocol):
    """One kind of audit: a class of ``agt.settings.schema`` that conf/audit/NAME.yaml names by ``_target_``; its fields are
    the settings ``audit.*``.

    A kind that is right of a run in which requests to erase wait says so by ``while_waiting = True``: the model is of all
    records, its data has those alone that do not wait, so that what is trained on one record less is many records away.
    Such a run is refused to any other kind.
    """

    @property
    def name(self) -> str:
        """The kind's, as in conf/audit."""
        ...

    def check(self, given: Given) -> None:
        """Refuse what can be refused before any data is read (ConfigError)."""
        ...

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Audit. Draws figures into the record; everything else is written by the command."""
        ...
