"""From a path to what lies there and everything that it rests on, each part checked as far as it is still there."""

from dataclasses import dataclass
from pathlib import Path

from agt.errors import ConfigError
from agt.manifest import NAME, Broken, Manifest, read_digest, unseal
from agt.mechanisms.portable import COMMAND as RELEASE
from agt_cli.audit.bound import Bound, Progress, bind
from agt_cli.audit.findings import Subject
from agt_cli.audit.reading import parsed, read
from agt_cli.audit.release import check_portable
from agt_cli.audit.run import Record, check_release, check_training, claims_of_training, data_subjects
from agt_cli.report.checks import Findings

FARTHEST = 4  # steps from what is audited to what it rests on
WORDS = {"train": "training run", RELEASE: "released weights", "agt.save": "saved model"}


@dataclass(frozen=True)
class Audit:
    """Looks at folders.

    Attributes:
        progress: told how many files of the present folder are hashed, and of how many.
        steps: how far the present folder is from the first.
    """

    progress: Progress
    steps: int = 0

    def look(self, path: Path, digest: str | None) -> Subject:
        """What lies at a path.

        Args:
            digest: that it must have; None: nobody said.

        Raises:
            ConfigError: nothing that agt writes lies there.
        """
        if not path.exists():
            raise ConfigError(f"{path}: no such file or folder")
        if not path.is_dir():
            raise ConfigError(f"{path}: expected the folder of a run or of a release")
        if not _there(path / NAME):
            return _unfinished(path)
        findings = Findings()
        bound = bind(path, digest, findings, self.progress)
        if bound is None:
            return Subject(f"folder {path}", tuple(findings.checks))
        return self._release(bound, findings) if bound.manifest.command == RELEASE else self._run(bound, findings)

    def _release(self, bound: Bound, findings: Findings) -> Subject:
        portable = check_portable(bound, findings)
        name, digest = f"{WORDS[RELEASE]} {bound.folder}", bound.manifest.digest
        facts = (("dataset", portable.name), ("classes", ", ".join(portable.classes))) if portable else ()
        return Subject(name, tuple(findings.checks), facts, (), portable.words if portable else (), (), digest)

    def _run(self, bound: Bound, findings: Findings) -> Subject:
        record = Record.read(bound, findings)
        below, trained = self._trained(record)
        claims: tuple[str, ...] = ()
        if record.command == "train":
            with findings.looking("record"):
                check_training(record)
                claims = claims_of_training(record)
                below += data_subjects(record)
        elif record.command == "predict" and record.spent:
            claims = check_release(record, trained)
        name = f"{WORDS.get(record.command, f'{record.command} run')} {bound.folder}"
        facts: tuple[tuple[str, str], ...] = ()
        with findings.looking("env.json"):
            facts = record.facts
        return Subject(name, tuple(findings.checks), facts, record.conditions, claims, below, bound.manifest.digest)

    def _trained(self, record: Record) -> tuple[tuple[Subject, ...], Record | None]:
        """The run that a run was made from, and its record, if that is the run that was recorded."""
        place, digest = (record.environment.get(key) for key in ("trained_run", "trained_digest"))
        if place is None or self.steps >= FARTHEST:
            return (), None
        findings = Findings()
        with findings.looking("trained_run"):
            digest, place = read_digest(str(digest)), Path(str(place))
            folder = _whereabouts(place, digest, record.bound.folder)
            if folder is None:
                findings.unchecked("trained_run", "not there", "copy that run's folder beside this one, and verify again")
                return (Subject(f"training run {place}", tuple(findings.checks), digest=digest),), None
            bound = bind(folder, digest, findings, self.progress)
            if bound is not None:
                subject = Audit(self.progress, self.steps + 1)._run(bound, findings)
                whole = bound.manifest.digest == digest
                return (subject,), Record.read(bound, Findings()) if whole else None
        return (Subject(f"training run {place}", tuple(findings.checks)),), None


def _whereabouts(recorded: Path, digest: str, home: Path) -> Path | None:
    """Where a run of this digest lies: where it did, or beside the run that names it, in a copy of the whole.

    None: nowhere; a folder of another digest counts only where it lies at the very place that was recorded.
    """
    home = home.resolve()
    beside = (home.parent.parent / recorded.parent.name / recorded.name, home.parent / recorded.name)
    for folder in (recorded, *beside):
        try:
            if Manifest.read(read(folder / NAME)).digest == digest:
                return folder
        except (Broken, OSError, ValueError):
            continue
    return recorded if _there(recorded / NAME) else None


def _there(path: Path) -> bool:
    """Whether something lies there, a link that leads nowhere too."""
    return path.is_symlink() or path.exists()


def _unfinished(folder: Path) -> Subject:
    """A run that has no manifest: it did not end, or what bound it is gone.

    Raises:
        ConfigError: it is no run at all.
    """
    if not _there(folder / "status.json"):
        raise ConfigError(f"{folder}: neither a run nor a release: {NAME} is not there, nor status.json{_runs_in(folder)}")
    findings = Findings()
    with findings.looking("status"):
        status = parsed(read(folder / "status.json"), "status.json")
        state, error = status.get("state"), status.get("error")
        if state == "done":
            raise Broken(f"status.json says it is finished, and {NAME} is gone: nothing binds its files together")
        why = f": {error}" if error else ""
        findings.problem("status", f"not finished ({state}{why}), so nothing binds its files together")
    if _there(folder / "spent.json"):
        with findings.looking("budget"):
            spent = unseal(read(folder / "spent.json"), "spent.json")
            words = "; ".join(map(str, spent["totals"]))
            findings.problem(
                "budget", f"{spent['what']} may have been drawn at {spent['time']}: count it as spent: {words}"
            )
    return Subject(f"unfinished run {folder}", tuple(findings.checks))


def _runs_in(folder: Path) -> str:
    """A suffix naming runs below, if there are any."""
    runs = sorted(path.parent for place in (f"*/{NAME}", f"*/*/{NAME}") for path in folder.glob(place))
    return f"; below it are {len(runs)}, such as {runs[-1]}" if runs else ""
