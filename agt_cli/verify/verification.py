"""From a path to what lies there and everything that it rests on, each part checked as far as it
is still there.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agt.errors import ConfigError, counted
from agt.models.portable import COMMAND as RELEASE
from agt.store.manifest import MANIFEST_FILE, Manifest, unseal_manifest
from agt.store.reading import Broken, read_file
from agt.unlearning.sentences import sentences
from agt_cli.ledger_files import is_ledger
from agt_cli.report.finished import Run, has_pending_commit, spent_lines
from agt_cli.report.markdown import Findings
from agt_cli.unlearn.account import OUTSIDE
from agt_cli.verify.environment import check_environment
from agt_cli.verify.erasure import (
    check_account,
    check_budget,
    check_key,
    check_requests,
    check_shards,
    check_state,
    erased_words,
    read_account_of,
    replaced,
)
from agt_cli.verify.folders import OnFile, Record, VerifiedItem, data_items
from agt_cli.verify.ledgers import NotedHead, ledgers_of, look_at_ledger
from agt_cli.verify.pages import (
    certificate_sentences,
    check_audit,
    check_certified,
    check_data,
    check_descent,
    check_noise,
)
from agt_cli.verify.portable import RunsBehind, check_portable
from agt_cli.verify.release import (
    check_labels,
    check_measured,
    check_release,
    check_tuned,
    check_weights,
)

ERASURE = "unlearn"
MAKER_LIMIT = (
    "hashes do not prove who made this folder. Only a digest that was stored elsewhere when the "
    "folder was made, or a signature of manifest.json with a key from another source "
    "(`ssh-keygen -Y verify`), distinguishes this folder from an imitation"
)
PAGES_LIMIT = (
    "the sentences in report.md and report.html may be false: the hashes of these pages were "
    "checked, but their text was not compared with the other files"
)
CODE_LIMIT = (
    "no file proves that agt itself wrote this folder, because the version and the revision in "
    "it are only text"
)
ACCOUNT_LIMITS = (
    PAGES_LIMIT,
    "the model after the erasure was not recomputed; to check this model, train on the remaining "
    "records and compare the two models",
    "the request log may lack requests: a request that was never given to agt is not in any file",
    MAKER_LIMIT,
    CODE_LIMIT,
    *sentences(OUTSIDE),
)
HALF_COMMITTED = (
    "an erasure was carried out, but some of its files are still in unlearning/commit and have to "
    "be moved to their places",
    "`agt verify` does not write files. Type any other agt command for the run, for example `agt "
    "certify run=...`, which moves these files; then verify again",
)
RELEASE_FOLDER = "release"  # of a record: what may be handed on
MAX_STEPS = 4  # steps from what is audited to what it rests on
ITEM_NAMES = {
    "train": "training run",
    ERASURE: "erasure",
    RELEASE: "released weights",
    "agt.save": "saved model",
}
Check = Callable[[Record, Record | None], str | None]
"""Of a record, and of the training run that it was made from: what holds, in words
(``Record.look``).
"""
# which command's records, the check's name, the check
CHECKS: tuple[tuple[str, str, Check], ...] = (
    ("", "env.json", check_environment),
    ("", "conditions", check_descent),
    ("", "data digest", check_data),
    ("train", "budget", check_noise),
    ("train", "removal budget", check_budget),
    ("train", "state", check_state),
    ("train", "key", check_key),
    ("train", "request log", check_requests),
    ("train", "shards", check_shards),
    ("predict", "labels", check_labels),
    ("predict", "noise", check_weights),
    ("certify", "certificates", check_certified),
)
# what is certified or guaranteed, a line each
CLAIMS: dict[str, Callable[[Record, Record | None], tuple[str, ...]]] = {
    "train": lambda record, trained: (
        *certificate_sentences(record, trained),
        *erased_words(record),
    ),
    "tune": check_tuned,
    "measure": check_measured,
    "predict": check_release,
    "audit": check_audit,
}


@dataclass(frozen=True)
class VerifiedFolder:
    """A folder that was looked at.

    Attributes:
        item: what was seen.
        record: of a run that is no other than the one of the digest that was asked for; None: it is
            none.
        training: the training run that it was made from, in the state of then; itself, of a
            training run. None: it has none, or that is not there.
    """

    item: VerifiedItem
    record: Record | None = None
    training: Record | None = None


@dataclass(frozen=True)
class Verification:
    """Looks at folders.

    Attributes:
        progress: told how many files of the present folder are hashed, and of how many.
        ledger: where the account of a release lies, by name or path; None: where it says itself.
        head: of a ledger: where its chain ended at some time, as somebody noted it, or where its
            head file lies.
        steps: how far the present folder is from the first.
    """

    progress: OnFile
    ledger: str | None = None
    head: NotedHead = None
    steps: int = 0

    def look(self, path: Path, digest: str | None) -> VerifiedItem:
        """What lies at a path.

        Args:
            digest: that it must have; None: nobody said.

        Raises:
            ConfigError: nothing that agt writes lies there.
        """
        if not path.exists():
            raise ConfigError(f"{path}: this file or folder does not exist: correct the path")
        if is_ledger(path):
            if digest is not None:
                raise ConfigError(
                    "digest=... cannot be given for a ledger, because a ledger grows: give "
                    "head=COUNT:HASH instead, as `agt ledger show` prints it"
                )
            return look_at_ledger(path, self.head)
        if not path.is_dir():
            raise ConfigError(
                f"{path}: give the folder of a run or of a release, or a ledger's file"
            )
        if not os.path.lexists(path / MANIFEST_FILE):
            return _unfinished(path)
        return self._folder(path, digest).item

    def _folder(self, folder: Path, digest: str | None) -> VerifiedFolder:
        """Look at a folder with a manifest."""
        findings = Findings()
        if has_pending_commit(folder):  # an erasure's files are still on their way
            findings.problem("state", *HALF_COMMITTED)
            return VerifiedFolder(VerifiedItem(f"run {folder}", findings.checks))
        record = Record.bind(folder, digest, findings, self.progress)
        if record is None:
            return VerifiedFolder(VerifiedItem(f"folder {folder}", findings.checks))
        if record.command == RELEASE:
            owner = self._owner(record)
            below = () if owner is None else (owner.item,)
            runs = RunsBehind() if owner is None else RunsBehind(owner.record, owner.training)
            return VerifiedFolder(self._release(record, below, runs))
        item, training = self._run(record)
        return VerifiedFolder(item, record if digest in (None, record.digest) else None, training)

    def _release(
        self, record: Record, below: tuple[VerifiedItem, ...], runs: RunsBehind
    ) -> VerifiedItem:
        """Return what was seen of a folder of released weights.

        Args:
            record: of the folder.
            below: what it rests on, verified.
            runs: that it was made from.
        """
        portable = check_portable(record, runs)
        facts: tuple[tuple[str, str], ...] = ()
        words: tuple[str, ...] = ()
        if portable is not None:
            classes = ", ".join(portable.classes) or portable.answers
            facts = (("dataset", portable.name), ("classes", classes))
            words = portable.words
        return VerifiedItem(
            f"{ITEM_NAMES[RELEASE]} {record.folder}",
            record.findings.checks,
            facts,
            (),
            words,
            below,
            record.digest,
            drawn=bool(words),
        )

    def _run(self, record: Record) -> tuple[VerifiedItem, Record | None]:
        """Return what was seen of a run, and the training run that it was made from."""
        below: tuple[VerifiedItem, ...] = ()
        claims: tuple[str, ...] = ()
        training = None
        with record.findings.looking("record"):
            record.check_status()
            # read here, so that each file that cannot be read is told once
            _ = record.config, record.metrics, record.conditions, record.spent, record.rebuilt_model
            if record.command == ERASURE:
                below, claims = self._erasure(record)
            else:
                below, claims, training = self._made(record)
        name = f"{ITEM_NAMES.get(record.command, f'{record.command} run')} {record.folder}"
        limits = ACCOUNT_LIMITS if record.command == ERASURE else ()
        item = VerifiedItem(
            name,
            record.findings.checks,
            record.facts,
            record.conditions,
            claims,
            below,
            record.digest,
            limits,
            drawn=bool(record.spent) or record.command == "audit",
        )
        return item, training

    def _made(
        self, record: Record
    ) -> tuple[tuple[VerifiedItem, ...], tuple[str, ...], Record | None]:
        """Check a run that is no erasure.

        Returns:
            What it was made from, what it claims (a line each), and its training run.
        """
        trained = record if record.command == "train" else None
        below = () if trained is None else data_items(record)
        for name, place, digest in record.sources():
            item, source = self._source(name, place, digest, record.folder)
            below = (*below, item)
            is_in_recorded_state = source is not None and digest in (None, source.digest)
            if not trained and is_in_recorded_state:
                trained = source
        for command, name, check in CHECKS:
            if command in ("", record.command):
                record.look(name, check, trained)
        claims = CLAIMS.get(record.command, certificate_sentences)(record, trained)
        published = self._published(record, trained)
        ledgers = ledgers_of(record, trained, self.ledger, self.head)
        return (*below, *published, *ledgers), claims, trained

    def _erasure(self, record: Record) -> tuple[tuple[VerifiedItem, ...], tuple[str, ...]]:
        """Check the record of an erasure.

        Returns:
            The run from which records were erased, as it is now; and what the account says, a line
            each.

        Raises:
            Broken: no file names that run.
        """
        record.look("env.json", check_environment)
        account = read_account_of(record)
        if account is None:
            return (), ()
        place = record.environment.get("trained_run") or record.config.get("run")
        if not isinstance(place, str):
            raise Broken(
                "env.json (entry 'trained_run') or config.yaml (entry 'run') should name the run "
                "from which records were erased, but neither does"
            )
        subject, run = self._source("training run", Path(place), account.state.after, record.folder)
        return (subject,), check_account(account, record, run)

    def _source(
        self, name: str, place: Path, digest: str | None, home: Path
    ) -> tuple[VerifiedItem, Record | None]:
        """Look at a folder that a run was made from.

        Args:
            name: what it is, in words.
            place: where it was.
            digest: that it had; None: nobody said.
            home: the run's own folder.

        Returns:
            What was seen, and its record; None: it is neither what was recorded nor a later state
            after erasures.
        """
        findings = Findings()
        folder = None
        if self.steps < MAX_STEPS:
            folder = _whereabouts(place, digest, home)
        if folder is None:
            findings.unchecked(
                "folder",
                f"the folder {place} was not found",
                "copy the missing folder next to the folder that you verify, and verify again",
            )
            return VerifiedItem(f"{name} {place}", findings.checks, digest=digest or ""), None
        earlier = replaced(folder, digest)
        if not earlier:
            found = self._deeper._folder(folder, digest)
            return found.item, found.record
        findings.note(
            "state",
            earlier,
            "the checks below are about the present state of the run, not about the earlier state "
            "from which this folder was made",
        )
        present = self._deeper._folder(folder, None)
        item = VerifiedItem(
            f"{name} {place}", findings.checks, rests_on=(present.item,), digest=digest or ""
        )
        return item, present.record

    @property
    def _deeper(self) -> "Verification":
        """The same, for folders one step farther from the first."""
        return replace(self, steps=self.steps + 1)

    def _published(self, record: Record, training: Record | None) -> tuple[VerifiedItem, ...]:
        """Look at the folder of released weights inside a record, which may be handed on."""
        if self.steps or not record.holds(f"{RELEASE_FOLDER}/{MANIFEST_FILE}"):
            return ()
        findings = Findings()
        inside = Record.bind(record.folder / RELEASE_FOLDER, None, findings, self.progress)
        if inside is None:
            return (VerifiedItem(f"folder {record.folder / RELEASE_FOLDER}", findings.checks),)
        return (self._release(inside, (), RunsBehind(record, training)),)

    def _owner(self, record: Record) -> VerifiedFolder | None:
        """Return the run that released these weights, verified: the owner's, not the public's.

        None: the weights lie elsewhere.
        """
        release = record.folder.resolve()
        try:
            manifest = Manifest.open(release.parent)
        except Broken:
            return None
        listed = manifest.files.get(f"{release.name}/{MANIFEST_FILE}")
        is_listed = listed == record.digest.removeprefix("sha256:")
        if not is_listed or self.steps >= MAX_STEPS:
            return None
        return self._deeper._folder(record.folder.parent, None)


def _whereabouts(recorded: Path, digest: str | None, home: Path) -> Path | None:
    """Return where a folder lies that a run names; None: nowhere.

    It is where it was, or beside that run in a copy of the whole. A folder of another digest counts
    only if an erasure replaced the digest there, or if it lies at the very place that was recorded.

    Args:
        recorded: where it was.
        digest: that it must have; None: any.
        home: the run's own folder.
    """
    home = home.resolve()
    places = (
        recorded,
        home.parent.parent / recorded.parent.name / recorded.name,
        home.parent / recorded.name,
    )
    for folder in places:
        try:
            if digest in (None, Manifest.open(folder).digest):
                return folder
        except Broken:
            continue
    for folder in places:
        if replaced(folder, digest):
            return folder
    return recorded if os.path.lexists(recorded / MANIFEST_FILE) else None


def _unfinished(folder: Path) -> VerifiedItem:
    """Return what is seen of a run without a manifest, which did not end or lost its manifest.

    Raises:
        ConfigError: it is no run at all.
    """
    if not os.path.lexists(folder / "status.json"):
        raise ConfigError(_no_run_words(folder))
    findings = Findings()
    with findings.looking("status"):
        run = Run.at(folder)
        run.json("status.json")  # says why it cannot be read
        state = run.state
        if state == "done":
            raise Broken(
                f"status.json says that the run is finished, but {MANIFEST_FILE} is missing, so "
                f"its files cannot be checked: restore {MANIFEST_FILE} from a copy"
            )
        known = {
            "running": "a process is still working on this run",
            "killed": "no process is working on this run any more, so the run was killed",
        }
        explanation = known.get(state, run.error)
        reason = f"{state}: {explanation}" if explanation else str(state)
        findings.problem(
            "status",
            f"the run is not finished ({reason}), so there is no list of hashes with which its "
            "files could be checked: finish the run, and verify again",
        )
    if os.path.lexists(folder / "spent.json"):
        with findings.looking("budget"):
            spent = unseal_manifest(read_file(folder / "spent.json"), "spent.json")
            budget = "; ".join(spent_lines(spent))
            what = spent["what"]
            time = spent["time"]
            findings.problem(
                "budget",
                f"{what} may have been drawn at {time}, so count this budget as spent: {budget}",
            )
    return VerifiedItem(f"unfinished run {folder}", findings.checks)


def _no_run_words(folder: Path) -> str:
    """Return in words that a folder is no run, and which of the runs in it could be meant."""
    runs = sorted(
        path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{MANIFEST_FILE}")
    )
    problem = (
        f"{folder}: this is neither a run nor a release, because both {MANIFEST_FILE} and "
        "status.json are missing"
    )
    if not runs:
        return problem
    runs_inside = counted(len(runs), "run")
    newest = runs[-1]
    return (
        f"{problem}. To verify one of the {runs_inside} in this folder, type for example `agt "
        f"verify {newest}`"
    )
