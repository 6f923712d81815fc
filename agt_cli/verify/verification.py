"""Check a folder or a ledger, and everything that it was made from, as far as that is found."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from agt.models.portable import COMMAND as RELEASE
from agt.store.manifest import MANIFEST_FILE, Manifest, unseal_manifest
from agt.store.reading import Broken, read_file
from agt.unlearning.sentences import sentences
from agt_cli.ledger_files import is_ledger
from agt_cli.report.finished import Run, has_pending_commit, spent_lines
from agt_cli.report.markdown import Findings
from agt_cli.unlearn.account import OUTSIDE
from agt_cli.verify.data_files import data_items
from agt_cli.verify.descent import check_data, check_descent
from agt_cli.verify.environment import check_environment, note_inputs_of_members
from agt_cli.verify.erasure import check_account, read_account_of
from agt_cli.verify.folders import OnFile, Record
from agt_cli.verify.items import Facts, VerifiedItem
from agt_cli.verify.labels import check_labels
from agt_cli.verify.ledgers import NotedHead, check_whole_ledger, ledgers_of
from agt_cli.verify.metrics import check_repeated_numbers
from agt_cli.verify.pages import (
    certificate_sentences,
    check_audit,
    check_certified,
    check_noise,
)
from agt_cli.verify.portable import RunsBehind, check_portable
from agt_cli.verify.quality import check_quality
from agt_cli.verify.release import check_measured, check_release
from agt_cli.verify.removals import check_budget
from agt_cli.verify.requests import (
    check_key,
    check_record_count,
    check_requests,
    check_shards,
    check_state,
    describe_replacement,
    erased_words,
)
from agt_cli.verify.tables import check_tables
from agt_cli.verify.weights import check_weights

ERASURE = "unlearn"
MAKER_LIMIT = (
    "hashes do not prove who made this folder: only a digest that was stored elsewhere, or a "
    "signature of manifest.json (`ssh-keygen -Y verify`), can"
)
PAGES_LIMIT = (
    "the sentences in report.md and report.html may be false: their text was not compared with the "
    "other files"
)
CODE_LIMIT = "no file proves that agt itself wrote this folder"
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


class RecordCheck(NamedTuple):
    """A check of the records of some commands.

    Attributes:
        command: whose records are checked; None: those of every command.
        name: the name of what is checked, in findings.
        check: carries it out (``Record.run_check``).
    """

    command: str | None
    name: str
    check: Callable[..., str | None]


OWN_CHECKS = (
    RecordCheck(None, "env.json", check_environment),
    RecordCheck("train", "budget", check_noise),
    RecordCheck("train", "removal budget", check_budget),
    RecordCheck("train", "state", check_state),
    RecordCheck("train", "key", check_key),
    RecordCheck("train", "records", check_record_count),
    RecordCheck("train", "request log", check_requests),
    RecordCheck("train", "shards", check_shards),
    RecordCheck("train", "members", note_inputs_of_members),
)
"""Checks of a record alone, in the order of their findings."""
CHECKS_WITH_TRAINING = (
    RecordCheck(None, "conditions", check_descent),
    RecordCheck(None, "data digest", check_data),
    RecordCheck(None, "quality", check_quality),
    RecordCheck(None, "metrics", check_repeated_numbers),
    RecordCheck("predict", "labels", check_labels),
    RecordCheck("predict", "noise", check_weights),
    RecordCheck("certify", "certificates", check_certified),
    RecordCheck(None, "tables", check_tables),
)
"""Checks of a record, given the training run that it was made from; None: it was not found."""


def _run_checks(checks: Sequence[RecordCheck], record: Record, *given: Record | None) -> None:
    """Run the checks of a record's command, each with the record and ``given``, in their order."""
    for check in checks:
        if check.command in (None, record.command):
            record.run_check(check.name, check.check, *given)


OWN_CLAIMS = {"measure": check_measured, "audit": check_audit}
"""By command: checks a record that is made from no training run, and returns its claims."""


def claims_of(record: Record, trained: Record | None) -> tuple[str, ...]:
    """Check what a record claims, and return sentences that say what is certified or guaranteed.

    Args:
        record: the record; takes the findings.
        trained: the training run that it was made from, or itself; None: it was not found.
    """
    if record.command in OWN_CLAIMS:
        return OWN_CLAIMS[record.command](record)
    if record.command == "predict":
        return check_release(record, trained)
    sentences_on_certificates = certificate_sentences(trained)
    if record.command == "train":
        return (*sentences_on_certificates, *erased_words(record))
    return sentences_on_certificates


@dataclass(frozen=True)
class VerifiedFolder:
    """A folder that was checked.

    Attributes:
        item: the findings.
        record: the folder's record; None: the folder is not a run, or its digest is not the one
            that was asked for.
        training: the training run that the folder was made from, in the state that was used; for a
            training run, its own record. None: it was not made from one, or that was not found.
    """

    item: VerifiedItem
    record: Record | None = None
    training: Record | None = None


@dataclass(frozen=True)
class _Contents:
    """What the checks of a run's folder found, beside the findings of its record.

    Attributes:
        rests_on: the findings about everything that the run was made from.
        claims: the sentences that say what is certified or guaranteed, or those of an account.
        training: the training run; None: there is none, or it was not found in the recorded state.
    """

    rests_on: tuple[VerifiedItem, ...] = ()
    claims: tuple[str, ...] = ()
    training: Record | None = None


@dataclass(frozen=True)
class Verification:
    """Checks folders, and the folders that they were made from.

    Attributes:
        progress: called with (files hashed, all files) of the folder that is being hashed.
        ledger: the ledger that paid for a release, by name or path; None: the one that the release
            names.
        head: what the caller knows of the end of the ledger's chain.
        steps: how many steps it took from the folder that the caller named to the present one; at
            most MAX_STEPS.
    """

    progress: OnFile
    ledger: str | None = None
    head: NotedHead = None
    steps: int = 0

    def look(self, path: Path, digest: str | None) -> VerifiedItem:
        """Check the folder or the ledger at a path, and return the findings.

        Args:
            path: a folder of a run or of released weights, or a ledger's file, which
                ``check_verified_path`` accepts.
            digest: the digest that the folder must have; None: any. A ledger has none.

        """
        if is_ledger(path):
            return check_whole_ledger(path, self.head)
        if not os.path.lexists(path / MANIFEST_FILE):
            return _unfinished(path)
        return self._folder(path, digest).item

    def _folder(self, folder: Path, digest: str | None) -> VerifiedFolder:
        """Check a folder with a manifest, and everything that it was made from.

        Args:
            folder: the folder.
            digest: the digest that it must have; None: any.
        """
        findings = Findings()
        # Files of an erasure that was interrupted are still to be moved, so no check could pass.
        if has_pending_commit(folder):
            findings.problem("state", *HALF_COMMITTED)
            return VerifiedFolder(VerifiedItem(f"run {folder}", findings.checks))
        record = Record.bind(folder, digest, findings, self.progress)
        if record is None:
            return VerifiedFolder(VerifiedItem(f"folder {folder}", findings.checks))
        training = None
        if record.command == RELEASE:
            owner = self._owner(record)
            below = () if owner is None else (owner.item,)
            runs = RunsBehind() if owner is None else RunsBehind(owner.record, owner.training)
            item = self._release(record, below, runs)
        else:
            item, training = self._run(record)
        return VerifiedFolder(item, record if digest in (None, record.digest) else None, training)

    def _release(
        self, record: Record, below: tuple[VerifiedItem, ...], runs: RunsBehind
    ) -> VerifiedItem:
        """Check a folder of released weights, and return the findings.

        Args:
            record: the record of the folder.
            below: the findings about what it was made from.
            runs: the runs that it was made from, as far as they were found.
        """
        portable = check_portable(record, runs)
        facts: Facts = ()
        claims: tuple[str, ...] = ()
        if portable is not None:
            classes = ", ".join(portable.classes) or portable.answers
            facts = (("dataset", portable.name), ("classes", classes))
            claims = portable.words
        return VerifiedItem(
            f"{ITEM_NAMES[RELEASE]} {record.folder}",
            record.findings.checks,
            facts=facts,
            claims=claims,
            rests_on=below,
            digest=record.digest,
            drawn=bool(claims),
        )

    def _run(self, record: Record) -> tuple[VerifiedItem, Record | None]:
        """Check a run, and return the findings and the training run that it was made from."""
        contents = _Contents()
        with record.findings.recording_errors("record"):
            record.check_status()
            # Read here, so that a file that cannot be read becomes a finding only once.
            _ = record.config, record.metrics, record.conditions, record.spent, record.rebuilt_model
            is_erasure = record.command == ERASURE
            contents = self._erasure(record) if is_erasure else self._ordinary_run(record)
            record.note_uncompared_metrics()
            record.note_uncompared_columns()
        name = f"{ITEM_NAMES.get(record.command, f'{record.command} run')} {record.folder}"
        limits = ACCOUNT_LIMITS if record.command == ERASURE else ()
        item = VerifiedItem(
            name,
            record.findings.checks,
            facts=record.facts,
            conditions=record.conditions,
            claims=contents.claims,
            rests_on=contents.rests_on,
            digest=record.digest,
            limits=limits,
            drawn=bool(record.spent) or record.command == "audit",
        )
        return item, contents.training

    def _ordinary_run(self, record: Record) -> _Contents:
        """Check a run that is not an erasure."""
        trained = record if record.command == "train" else None
        below = () if trained is None else data_items(record)
        for recorded in record.sources():
            source = self._check_source(
                recorded.name, recorded.path, recorded.digest, record.folder
            )
            below = (*below, source.item)
            if not trained and source.record and recorded.digest in (None, source.record.digest):
                trained = source.record
        _run_checks(OWN_CHECKS, record)
        _run_checks(CHECKS_WITH_TRAINING, record, trained)
        claims = claims_of(record, trained)
        published = self._published(record, trained)
        ledgers = ledgers_of(record, trained, self.ledger, self.head)
        return _Contents((*below, *published, *ledgers), claims, trained)

    def _erasure(self, record: Record) -> _Contents:
        """Check the record of an erasure.

        Returns:
            The findings about the run from which records were erased, as it is now; and the
            sentences of the account. All is empty if there is no account that can be read.

        Raises:
            Broken: no file names that run.
        """
        record.run_check("env.json", check_environment)
        account = read_account_of(record)
        if account is None:
            return _Contents()
        place = record.environment.get("trained_run") or record.config.get("run")
        if not isinstance(place, str):
            raise Broken(
                "env.json (entry 'trained_run') or config.yaml (entry 'run') should name the run "
                "from which records were erased, but neither does"
            )
        run = self._check_source("training run", Path(place), account.state.after, record.folder)
        return _Contents((run.item,), check_account(account, record, run.record))

    def _check_source(
        self, name: str, recorded: Path, digest: str | None, run_folder: Path
    ) -> VerifiedFolder:
        """Find and check a folder that a run was made from.

        If an erasure has replaced the recorded state of the folder, its present state is checked
        instead, and a note says so.

        Args:
            name: what the folder is, such as "training run", for the findings.
            recorded: the recorded path of the folder.
            digest: the recorded digest; None: none was recorded.
            run_folder: the folder of the run that names it.

        Returns:
            The findings, and the folder's record. The record is None if the folder was not found,
            or is neither in the recorded state nor in a later one after erasures.
        """
        title = f"{name} {recorded}"
        findings = Findings()
        folder = None
        if self.steps < MAX_STEPS:
            folder = _find_folder(recorded, digest, run_folder)
        if folder is None:
            findings.unchecked(
                "folder",
                f"the folder {recorded} was not found",
                "copy the missing folder next to the folder that you verify, and verify again",
            )
            return VerifiedFolder(VerifiedItem(title, findings.checks, digest=digest or ""))
        erasure = describe_replacement(folder, digest)
        if not erasure:
            return self._for_source._folder(folder, digest)
        findings.note(
            "state",
            erasure,
            "the checks below are about the present state of the run, not about the earlier state "
            "from which this folder was made",
        )
        present = self._for_source._folder(folder, None)
        item = VerifiedItem(title, findings.checks, rests_on=(present.item,), digest=digest or "")
        return VerifiedFolder(item, present.record)

    @property
    def _for_source(self) -> "Verification":
        """A copy of this verification, for checking a source: ``steps`` is increased by one."""
        return replace(self, steps=self.steps + 1)

    def _published(self, record: Record, training: Record | None) -> tuple[VerifiedItem, ...]:
        """Check the folder of released weights inside a record, if it has one.

        It is checked only if the caller named the record itself. Returns one item, or none.
        """
        if self.steps or not record.holds(f"{RELEASE_FOLDER}/{MANIFEST_FILE}"):
            return ()
        findings = Findings()
        release_record = Record.bind(record.folder / RELEASE_FOLDER, None, findings, self.progress)
        if release_record is None:
            return (VerifiedItem(f"folder {record.folder / RELEASE_FOLDER}", findings.checks),)
        return (self._release(release_record, (), RunsBehind(record, training)),)

    def _owner(self, record: Record) -> VerifiedFolder | None:
        """Check the run that released these weights, which is the folder that contains theirs.

        None: the folder around them is not a run that lists them, as is usual for whoever received
        the weights alone; or it is too many steps away.
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
        return self._for_source._folder(record.folder.parent, None)


def _find_folder(recorded: Path, digest: str | None, run_folder: Path) -> Path | None:
    """Return the present path of a folder that a run names; None: it was not found.

    It is looked for at the recorded path, then next to the run, where it is if the folders were
    copied together. A folder with the right digest is preferred to one whose state with this digest
    an erasure replaced, and that to any other folder at the recorded path.

    Args:
        recorded: the recorded path of the folder.
        digest: the recorded digest; None: any digest is right.
        run_folder: the folder of the run that names it.
    """
    run_folder = run_folder.resolve()
    candidates = (
        recorded,
        run_folder.parent.parent / recorded.parent.name / recorded.name,
        run_folder.parent / recorded.name,
    )
    for folder in candidates:
        try:
            if digest in (None, Manifest.open(folder).digest):
                return folder
        except Broken:
            continue
    for folder in candidates:
        if describe_replacement(folder, digest):
            return folder
    return recorded if os.path.lexists(recorded / MANIFEST_FILE) else None


def _unfinished(folder: Path) -> VerifiedItem:
    """Return the findings about a run without a manifest: it did not end, or lost the manifest.

    There is always a problem among them.
    """
    findings = Findings()
    with findings.recording_errors("status"):
        run = Run.at(folder)
        run.json("status.json")  # called because it raises if the file cannot be read
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
        remedy = "finish the run"
        if run.command == "train" and state in ("killed", "failed"):
            remedy = f"finish the run (agt train resume={folder})"
        findings.problem(
            "status",
            f"the run is not finished ({reason}), so there is no list of hashes with which its "
            f"files could be checked: {remedy}, and verify again",
        )
    if os.path.lexists(folder / "spent.json"):
        with findings.recording_errors("budget"):
            spent = unseal_manifest(read_file(folder / "spent.json"), "spent.json")
            budget = "; ".join(spent_lines(spent))
            released_output = spent["what"]
            time = spent["time"]
            findings.problem(
                "budget",
                f"{released_output} may have been drawn at {time}, so count this budget as spent: "
                f"{budget}",
            )
    return VerifiedItem(f"unfinished run {folder}", findings.checks)
