"""Answers of a run with pending requests for erasure, given only if the erasure cannot change them.

    unlearning/waiting.json      {"units": 5, "members": [0, 3, 2]}; the run's manifest lists it
    unlearning/abstained.jsonl   one line for each command that left queries unanswered, appended
                                 before the command answers; no manifest lists it. A line names the
                                 state of the run; each update counts the lines of its own states

Formal guarantees
    * An answer that is given is the one that training without the pending records gives
      (agt.unlearning.sisa, for which the request was checked).
    * Which queries are left unanswered depends on all records, also on the pending ones, and
      whoever asks sees it. So no privacy claim holds for such answers, and private mechanisms are
      refused until the update.
    * A line of abstained.jsonl is on the disk before the answers of its command are. So a crash may
      count queries whose answers nobody saw, but it loses none.
"""

import json
import os
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.vote_certificates import VoteCertificates
from agt.errors import ConfigError
from agt.ledger.locks import acquire_lock
from agt.store.atomic import sync_folder
from agt.store.json_text import parse_object
from agt.store.manifest import MANIFEST_FILE as MANIFEST, Manifest
from agt.store.reading import Broken, read_file
from agt.unlearning.sisa import answerable
from agt_cli.report.finished import Run, has_pending_commit
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import count_people
from agt_cli.unlearn.log import Log


@dataclass
class StateMonitor:
    """Notices whether a run was changed since it was opened.

    The manifest is read again only when the time, size or inode of its file has changed, so that
    ``changed`` can be asked before every answer.

    Attributes:
        run: the run as it was opened.
        seen: (time of the last change, size, inode) of a manifest that was read and has the run's
            digest; None: no state was read yet.
    """

    run: Run
    seen: tuple[int, int, int] | None = None

    @property
    def changed(self) -> bool:
        """Whether the run was changed, or a change was committed whose files are being moved.

        If the manifest still has the run's digest, the state of its file is stored in ``seen``.
        """
        path = self.run.folder / MANIFEST
        try:
            state = path.stat()
            present_state = (state.st_mtime_ns, state.st_size, state.st_ino)
            if present_state != self.seen:
                if Manifest.open(path.parent).digest != self.run.digest:
                    return True
                self.seen = present_state
        except (OSError, Broken):
            return True
        return has_pending_commit(self.run.folder)


WAITING_FILE = "unlearning/waiting.json"

ABSTAINED_FILE = Path("unlearning/abstained.jsonl")


@dataclass(frozen=True)
class PendingErasures:
    """The pending requests for erasure of a run.

    Attributes:
        run: the run.
        units: the number of people (or other units) to be erased; 0: no request is pending.
        members: how many of these units each member of an ensemble was trained on; None: this is
            not known, or the model is not an ensemble.
    """

    run: Run
    units: int
    members: tuple[int, ...] | None = None

    @classmethod
    def from_run(cls, run: Run) -> "PendingErasures":
        """Read the pending requests of a run.

        Raises:
            ConfigError: the request log, or waiting.json, was altered.
        """
        units = len(Log.of(run).waiting_units)
        if not units or not run.holds(WAITING_FILE):
            return cls(run, units)
        members = json.loads(run.read(WAITING_FILE))["members"]
        is_known = members is not None and sum(members) == units
        return cls(run, units, tuple(map(int, members)) if is_known else None)

    def answerable_queries(self, certificates: Certificates, classes: int) -> np.ndarray:
        """Return which queries have the same label without the pending records, [n] bool.

        Args:
            certificates: the certificates of the n queries.
            classes: the number of classes.
        """
        if (
            self.members is not None
            and isinstance(certificates, VoteCertificates)
            and not certificates.by_margins
        ):
            pending = np.array(self.members)
            return answerable(certificates.member_distances, certificates.members, pending, classes)
        return certificates.stable_distance >= self.units

    @property
    def _still_in_model(self) -> str:
        """A clause that says how many people asked to be erased."""
        are = "is" if self.units == 1 else "are"
        return f"{count_people(self.units)} asked to be erased and {are} still in the model"

    def refuse(self, release: str) -> None:
        """Raise ConfigError if requests are pending, because nothing private is released then.

        Args:
            release: a name of what was asked for, as the subject of a sentence.
        """
        if self.units:
            folder = self.run.folder
            raise ConfigError(
                f"run={folder}: {self._still_in_model}, "
                f"so {release} would use their records. First carry out the erasure with `agt "
                f"unlearn run={folder}`. Until then, `agt certify` can answer the queries that "
                "do not depend on these records"
            )

    def record_deferred(self, answered: np.ndarray, record: RunRecord) -> list[str]:
        """Count the queries that are not answered now, in abstained.jsonl and as metrics.

        Args:
            answered: [n] bool, the result of ``answerable_queries``.
            record: the record of the present command; its metrics are changed.

        Returns:
            Sentences about these queries for the owner. Without pending requests there are none,
            and nothing is written.
        """
        if not self.units:
            return []
        queries = len(answered)
        answered_count = int(answered.sum())
        abstained = queries - answered_count
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = {"time": now, "state": self.run.digest, "queries": queries, "abstained": abstained}
        folder = self.run.folder
        _append(folder / ABSTAINED_FILE, json.dumps(line))
        record.add_metrics(waiting=self.units, answered=answered_count, abstained=abstained)
        return [
            (
                f"{self._still_in_model} until it is "
                f"updated. {answered_count} of {queries} queries are answered, exactly as a "
                f"model trained without the records of these people would answer. {abstained} "
                f"queries are not answered until the update: type `agt unlearn run={folder}` "
                "to carry it out"
            ),
            "the accuracies, certified fractions and figures of this result are for all "
            "queries (including those that are not answered), and for the model before the "
            "update. They reveal something about the unanswered queries, so do not publish "
            "them",
        ]


def abstentions(folder: Path, states: Collection[str]) -> int:
    """Return how many queries were not answered in some states of a run, by abstained.jsonl.

    An incomplete line is skipped: its command was killed while it wrote the line, so nobody saw its
    answers.

    Args:
        folder: the folder of the run.
        states: the digests of the states.

    Raises:
        ConfigError: the file cannot be read, or has a line of another form.
    """
    path = folder / ABSTAINED_FILE
    if not path.exists():
        return 0
    count = 0
    number = 0
    try:
        for number, line in enumerate(read_file(path).decode(errors="replace").splitlines(), 1):
            if not line or (line.startswith("{") and not line.endswith("}")):
                continue
            entry = parse_object(line.encode(), f"line {number}")
            abstained = int(entry["abstained"])
            if abstained < 0:
                raise ValueError("a negative count")
            if str(entry["state"]) in states:
                count += abstained
    except (Broken, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}, line {number}: agt cannot read the number of unanswered queries from this "
            f"line ({error}). Move the file to another place; agt then counts unanswered "
            "queries from zero again"
        ) from None
    return count


def _append(path: Path, line: str) -> None:
    """Append a line to a file, which is on the disk when this returns.

    The file is locked meanwhile, and a new one is readable by its owner only. If the last line is
    incomplete, because its process was killed, it is ended first.
    """
    path.parent.mkdir(exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags, 0o600)
    try:
        acquire_lock(handle, 60.0, str(path))
        size = os.fstat(handle).st_size
        is_incomplete = size and os.pread(handle, 1, size - 1) != b"\n"
        text = f"\n{line}\n" if is_incomplete else f"{line}\n"
        os.write(handle, text.encode())
        os.fsync(handle)
        sync_folder(path.parent)
    finally:
        os.close(handle)
