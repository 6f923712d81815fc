"""From a path to what lies there and everything that it rests on, each part checked as far as it is still there."""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from agt.errors import ConfigError
from agt.manifest import NAME, Broken, Manifest, unseal
from agt.mechanisms.portable import COMMAND as RELEASE
from agt_cli.report.checks import Findings
from agt_cli.report.swap import unsettled
from agt_cli.report.unfinished import is_alive
from agt_cli.verify.bound import Bound, Progress, bind
from agt_cli.verify.erasure import COMMAND as ERASURE
from agt_cli.verify.erasure import LIMITS, account_of, check_account, run_of
from agt_cli.verify.files import data_subjects
from agt_cli.verify.findings import Subject
from agt_cli.verify.ledger import Known, is_ledger, ledgers_of, look_at_ledger
from agt_cli.verify.reading import parsed, read
from agt_cli.verify.record import Record
from agt_cli.verify.release import check_portable
from agt_cli.verify.requests import HALF, replaced
from agt_cli.verify.run import claims_of

FARTHEST = 4  # steps from what is audited to what it rests on
WORDS = {"train": "training run", ERASURE: "erasure", RELEASE: "released weights", "agt.save": "saved model"}


@dataclass(frozen=True)
class Verification:
    """Looks at folders.

    Attributes:
        progress: told how many files of the present folder are hashed, and of how many.
        ledger: where the account of a release lies, by name or path; None: where it says itself.
        public: of the owner whose signature an account is to bear; None: nobody said.
        head: of a ledger: where its chain ended at some time, as somebody noted it, or where its second head lies.
        steps: how far the present folder is from the first.
    """

    progress: Progress
    ledger: str | None = None
    head: Known = None
    public: bytes | None = None
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
        if is_ledger(path):
            if digest is not None:
                raise ConfigError("digest: a ledger grows and has none: give head=COUNT:HASH, as agt ledger show prints it")
            return look_at_ledger(path, self.head)[0]
        if not path.is_dir():
            raise ConfigError(f"{path}: expected the folder of a run or of a release, or a ledger's file")
        if not _there(path / NAME):
            return _unfinished(path)
        return self._folder(path, digest)[0]

    def _folder(self, folder: Path, digest: str | None) -> tuple[Subject, Record | None]:
        """A folder with a manifest, and its record, if it is a run, and no other than the one of ``digest``."""
        findings = Findings()
        if _half(folder):
            findings.problem("state", *HALF)
            return Subject(f"run {folder}", tuple(findings.checks)), None
        bound = bind(folder, digest, findings, self.progress)
        if bound is None:
            return Subject(f"folder {folder}", tuple(findings.checks)), None
        if bound.manifest.command == RELEASE:
            return self._release(bound, findings), None
        record = Record.read(bound, findings)
        subject = self._run(record)
        return subject, record if digest in (None, bound.manifest.digest) else None

    def _release(self, bound: Bound, findings: Findings) -> Subject:
        portable = check_portable(bound, findings)
        name, digest = f"{WORDS[RELEASE]} {bound.folder}", bound.manifest.digest
        facts = (("dataset", portable.name), ("classes", ", ".join(portable.classes))) if portable else ()
        below = self._maker(bound)
        return Subject(name, tuple(findings.checks), facts, (), portable.words if portable else (), below, digest)

    def _run(self, record: Record) -> Subject:
        findings, bound = record.findings, record.bound
        below, trained, claims, facts = tuple[Subject, ...](), None, tuple[str, ...](), tuple[tuple[str, str], ...]()
        with findings.looking("record"):
            if record.command == ERASURE:
                below, claims = self._erasure(record)
            else:
                for name, place, digest in record.sources():
                    subject, source = self._source(name, place, digest, bound.folder)
                    current = source is not None and digest in (None, source.bound.manifest.digest)
                    below, trained = (*below, subject), trained or (source if current else None)
                claims = claims_of(record, trained)
            facts = record.facts
            below += data_subjects(record) if record.command == "train" else ()
            below += tuple(ledgers_of(record, trained, self.ledger, self.head))
        name = f"{WORDS.get(record.command, f'{record.command} run')} {bound.folder}"
        digest, limits = bound.manifest.digest, LIMITS if record.command == ERASURE else ()
        return Subject(name, tuple(findings.checks), facts, record.conditions, claims, below, digest, limits)

    def _erasure(self, record: Record) -> tuple[tuple[Subject, ...], tuple[str, ...]]:
        """The account of an erasure: the run that it is about, as it is now, and what it says, a line each."""
        account = account_of(record)
        if account is None:
            return (), ()
        subject, run = self._source("training run", run_of(record), account.state.after, record.bound.folder)
        return (subject,), check_account(account, record, run, self.public)

    def _source(self, name: str, place: Path, digest: str | None, home: Path) -> tuple[Subject, Record | None]:
        """A folder that a run was made from, and its record, if it is what was recorded or came after it by erasures."""
        findings, folder = Findings(), _whereabouts(place, digest, home) if self.steps < FARTHEST else None
        if folder is None:
            findings.unchecked("folder", "not there", "copy it beside this one, and verify again")
            return Subject(f"{name} {place}", tuple(findings.checks), digest=digest or ""), None
        earlier = replaced(folder, digest)
        if earlier is None:
            return self._deeper._folder(folder, digest)
        findings.note("state", earlier.words, "what follows is the run as it is now")
        now, record = self._deeper._folder(folder, None)
        return Subject(f"{name} {place}", tuple(findings.checks), rests_on=(now,), digest=earlier.digest), record

    @property
    def _deeper(self) -> "Verification":
        return replace(self, steps=self.steps + 1)

    def _maker(self, bound: Bound) -> tuple[Subject, ...]:
        """The run that released these weights, where they still lie in its folder: the owner's, not the public's."""
        inside, listed = bound.folder.resolve(), sha256(bound.manifest.content).hexdigest()
        try:
            maker = Manifest.read(read(inside.parent / NAME))
        except Broken:
            return ()
        if self.steps >= FARTHEST or maker.files.get(f"{inside.name}/{NAME}") != listed:
            return ()
        return (self._deeper._folder(bound.folder.parent, None)[0],)


def _whereabouts(recorded: Path, digest: str | None, home: Path) -> Path | None:
    """Where a folder lies that a run names: where it did then, or beside that run, in a copy of the whole.

    None: nowhere; a folder of another digest counts only where that gave way there in an erasure, or where the folder lies
    at the very place that was recorded.

    Args:
        digest: that it must have; None: any.
        home: the run's own folder.
    """
    home = home.resolve()
    places = (recorded, home.parent.parent / recorded.parent.name / recorded.name, home.parent / recorded.name)
    for folder in places:
        try:
            if digest in (None, Manifest.read(read(folder / NAME)).digest):
                return folder
        except Broken:
            continue
    later = next((folder for folder in places if replaced(folder, digest) is not None), None)
    return later or (recorded if _there(recorded / NAME) else None)


def _half(folder: Path) -> bool:
    """Whether an erasure's files are still on their way into the folder."""
    with suppress(OSError):
        return unsettled(folder)
    return False


def _there(path: Path) -> bool:
    """Whether something lies there, a link that leads nowhere too; a name that no file can have is nowhere."""
    return os.path.lexists(path)


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
        if state == "running":
            why = ": a process is at work on it" if is_alive(folder) else ": nobody works on it any more, it was killed"
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
