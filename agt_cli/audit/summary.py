"""agt audit summary: what every audit of a run found, on one page, and what was never audited."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from agt.audit.findings import AUDIT_FILE, LOWER, Audit, Finding, FindingPart, read_audit
from agt.errors import ConfigError, counted
from agt.settings import schema
from agt.unlearning.log import Log
from agt_cli import usage
from agt_cli.audit.job import ABOUT, SIGNS, Audited, AuditInputs, audit_rows, claims_table
from agt_cli.report.console import Console
from agt_cli.report.figures import WIDTH, drawing, headline as figure_headline, keys
from agt_cli.report.finished import Run, open_run, runs_below
from agt_cli.report.record import RunRecord

NOTE = "what each audit did not cover is in the notes of its own report"
NO_AUDITS = ("selftest", "summary", "shadows")
FIGURE = "claimed_against_found"
LOOKS: dict[str, dict[str, Any]] = {
    "violated": {"marker": "^", "color": "#a3161c", "s": 46},
    "bound from below, not above its claim": {"marker": "o", "color": "#2c7fb8", "s": 30},
    "estimate, no confidence bound": {"marker": "o", "facecolors": "white", "edgecolors": "#2c7fb8", "s": 30},
}


@schema
class Summary:
    """Gathers finished audits of a run.

    Attributes:
        audits: folders of the audits; empty: all below output_dir.
    """

    name: ClassVar[str] = "summary"
    while_waiting: ClassVar[bool] = True
    audits: tuple[str, ...] = ()

    def check(self, given: AuditInputs) -> None:
        """It is about a run."""
        places = [Path(folder).resolve() for folder in self.audits]
        again = {folder for folder, place in zip(self.audits, places, strict=True) if places.count(place) > 1}
        if again:
            raise ConfigError(f"audit.audits: {min(again)} is named more than once")
        given.need_run(inputs=True)

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Read every audit again, and lay their claims and bounds into one table.

        Raises:
            ConfigError: there is none, or one of them is not what was written, or is of another run.
        """
        assert given.run is not None, "check refuses it"
        run = open_run(given.run, "train", given.digest)
        states = {run.digest, *(entry.before for entry in Log.of(run).entries)}
        found = (each for each in runs_below(given.output_dir) if each.command == "audit")
        audits = sorted(found, key=lambda each: (each.moment, each.folder.name))
        mine = (each for each in audits if _is_of(each, run) or each.environment.get("trained_digest") in states)
        done = [each.folder for each in mine if each.state == "done" and each.environment.get("kind") not in NO_AUDITS]
        gathered = [_read(folder, run, states) for folder in (map(Path, self.audits) if self.audits else done)]
        if not gathered:
            raise ConfigError(
                f"run={run.folder}: no finished audit of it lies below {given.output_dir}: make one (agt audit mechanism "
                f"run={run.folder} ..., say), or name their folders: audit.audits=[FOLDER, ...]"
            )
        parts = tuple(part for *_, part in gathered)
        numbered = ((number, audit) for number, (_, audit, _) in enumerate(gathered, 1))
        findings = tuple(replace(finding, part=number) for number, audit in numbered for finding in audit.findings)
        kinds = {part.kind for part in parts if part.current}
        unaudited = tuple(kind for kind in usage.options("audit") if kind not in (*kinds, *NO_AUDITS))
        record.environment(audits=[[str(each.folder.resolve()), each.digest] for each, *_ in gathered])
        captions = claimed_against_found(record, findings, run.folder.name)
        about = (run.folder.name, run.digest, findings, tuple(_notes(parts, audits, run)))
        summed = Audited(*about, captions=captions, parts=parts, unaudited=unaudited)
        audit = summed.audit(self.name)
        console.table(f"audits of {run.folder.name}", *audit_rows(audit))
        return replace(summed, tables={"claims": claims_table(audit)})


def _is_of(audit: Run, run: Run) -> bool:
    """Whether it was asked about the run's folder, as far as it says so itself."""
    place = audit.environment.get("trained_run") or audit.config.get("run")
    return isinstance(place, str) and Path(place).resolve() == run.folder.resolve()


def _read(folder: Path, run: Run, states: set[str]) -> tuple[Run, Audit, FindingPart]:
    """One finished audit, verified file by file: its record, what it found, and as the summary names it.

    Raises:
        ConfigError: it is not finished, not what was written, or of another run.
    """
    record = open_run(folder, "audit", key="audit.audits")
    audit, state = read_audit(record.read(AUDIT_FILE)), record.environment.get("trained_digest")
    if audit.kind in NO_AUDITS:
        raise ConfigError(f"audit.audits={folder}: is a {audit.kind}: name the audits themselves")
    if state not in states:
        about = f"the run of {state}" if state else "no run"
        raise ConfigError(f"audit.audits={folder}: is about {about}, and run={run.folder} is {run.digest}")
    return record, audit, FindingPart(audit.kind, record.folder.name, record.digest, state, state == run.digest)


def _notes(parts: Sequence[FindingPart], audits: list[Run], run: Run) -> Iterator[str]:
    """What the table does not say: audits of a state that gave way, audits of the run that did not end and may have been
    about to find something, violations of no run, and what the newest look at the auditor itself said."""
    for part in parts:
        if not part.current:
            yield (
                f"{part.kind} ({part.folder}) is of an earlier state of the run, before an erasure: what "
                "it found is counted, and of the present state it says nothing; audit again"
            )
    newest = "the auditor itself was not looked at here: agt audit selftest plants violations, and sees which it notices"
    for record in audits:
        kind, name = record.environment.get("kind") or "kind not known", record.folder.name
        if record.state in ("failed", "killed") and _is_of(record, run):
            error = f": {record.error.splitlines()[0][:120]}" if record.error else ""
            yield f"an audit did not finish: {kind} ({name}), {record.state}{error}"
        of_none = kind not in NO_AUDITS and not record.environment.get("trained_digest")
        if record.state == "done" and of_none and record.metrics.get("violations"):
            yield f"an audit of no run found a violation, and is not counted here: {kind} ({name})"
        if record.state == "done" and kind == "selftest":
            audit = read_audit(open_run(record.folder, "audit", key="audit.audits").read(AUDIT_FILE))
            newest = f"the auditor itself: {audit.verdict} (agt audit selftest, {name})"
    yield from (newest, NOTE)


def claimed_against_found(record: RunRecord, findings: Sequence[Finding], subject: str) -> dict[str, str]:
    """Each claimed epsilon or mu with what was found of it, where both are above 0; none: no figure.

    Returns:
        The figure's caption by its name.
    """
    losses = [each for each in findings if each.measure in LOWER and each.claimed and each.found is not None]
    above = [each for each in losses if each.found]
    if not above:
        return {}
    rows = [(each.subject, each.measure, each.claimed, each.found, _look(each)) for each in above]
    data = pd.DataFrame(rows, columns=["audited", "measure", "claimed", "found", "look"])
    low, high = float(data[["claimed", "found"]].min().min()), float(data[["claimed", "found"]].max().max())
    ends = (low / 2.5, high * 2.5)
    with drawing(record, FIGURE, data, (WIDTH, 4.2)) as figure:
        axes = figure.subplots()
        axes.plot(ends, ends, color="black", linewidth=0.8, linestyle="--", label="what is claimed")
        for look, style in LOOKS.items():
            here = data[data["look"] == look]
            if len(here):
                axes.scatter(here["claimed"], here["found"], label=look, zorder=3, **style)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="claimed (epsilon or mu)", ylabel="found")
        ticks = [step * 10.0**power for power in range(-9, 9) for step in (1, 2, 5)]
        shown = [tick for tick in ticks if ends[0] <= tick <= ends[1]]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(shown, [f"{tick:g}" for tick in shown])
            axis.set_ticks([], minor=True)
        keys(figure, [axes])
        wrong, none = sum(each.violated for each in above), len(losses) - len(above)
        rest = f"; of {counted(none, 'more claim')} nothing was found" if none else ""
        figure_headline(
            figure,
            f"{counted(wrong, 'claim')} violated" if wrong else "No bound is above its claim: that is no proof",
            f"{subject}: {counted(len(above), 'bound')} and estimates{rest}",
        )
    return {FIGURE: "What attacks found, against what was claimed: a triangle above the line is a claim that is false."}


def _look(finding: Finding) -> str:
    violated, bound, estimate = LOOKS
    return violated if finding.violated else estimate if SIGNS[finding.strength] == ABOUT else bound
