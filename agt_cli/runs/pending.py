"""Answers while requests to erase wait: what is stable for them is answered, anything else is owed
an answer.

    unlearning/waiting.json      {"units": 5, "members": [0, 3, 2]}: listed in the run's manifest
    unlearning/abstained.jsonl   one line for each command that abstained, added before it answers;
                                 beside the manifest. It names the state that was asked, and stays:
                                 each update counts those of its own states

Formal guarantees
    An answer that is given is the one that training without the waiting records gives
    (agt.unlearning.sisa, which the request was checked for; of an ensemble
    ``agt.unlearning.sisa``). Which queries abstain depends on all records, those that wait among
    them, and everybody sees it: so no private claim holds of such answers, and private mechanisms
    are refused until the update.
    A line of abstained.jsonl is on the disk before the answers beside it are: a crash may count
    queries that nobody got to see, and loses none.
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
from agt.ledger.place import acquire_lock
from agt.store.atomic import sync_folder
from agt.store.json_text import parse_object
from agt.store.manifest import MANIFEST_FILE as MANIFEST, Manifest
from agt.store.reading import Broken, read_file
from agt.unlearning.sisa import answerable
from agt_cli.report.finished import Run, has_pending_commit
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import people
from agt_cli.unlearn.log import Log


@dataclass
class StateMonitor:
    """Whether a run is still what it was when it was opened: a look at its manifest's time, as
    often as one likes.

    Attributes:
        run: as it was opened.
        seen: (time, size, number) of a manifest that was read and is of this run; None: none was
            read.
    """

    run: Run
    seen: tuple[int, int, int] | None = None

    @property
    def changed(self) -> bool:
        """A change that is decided and not yet carried through counts, too."""
        path = self.run.folder / MANIFEST
        try:
            state = path.stat()
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen != self.seen:
                if Manifest.open(path.parent).digest != self.run.digest:
                    return True
                self.seen = seen
        except (OSError, Broken):
            return True
        return has_pending_commit(self.run.folder)


WAITING_FILE = "unlearning/waiting.json"

ABSTAINED_FILE = Path("unlearning/abstained.jsonl")


@dataclass(frozen=True)
class PendingErasures:
    """What waits in a run.

    Attributes:
        run: as it is.
        units: how many people (or other units) wait to be erased; 0: none.
        members: how many of them each member of an ensemble was trained on; None: not known, or no
            ensemble.
    """

    run: Run
    units: int
    members: tuple[int, ...] | None = None

    @classmethod
    def of(cls, run: Run) -> "PendingErasures":
        """Raises ConfigError where the log or what was kept beside it is not what was written."""
        units = len(Log.of(run).waiting_units)
        if not units or not run.holds(WAITING_FILE):
            return cls(run, units)
        members = json.loads(run.read(WAITING_FILE))["members"]
        known = members is not None and sum(members) == units
        return cls(run, units, tuple(map(int, members)) if known else None)

    def answered(self, certificates: Certificates, classes: int) -> np.ndarray:
        """[n] bool: the queries whose label is the same without whatever waits."""
        if (
            self.members is not None
            and isinstance(certificates, VoteCertificates)
            and not certificates.by_margins
        ):
            pending = np.array(self.members)
            return answerable(certificates.member_distances, certificates.members, pending, classes)
        return certificates.stable_distance >= self.units

    def refuse(self, release: str) -> None:
        """Raise ConfigError where something waits: nothing private is released then."""
        if self.units:
            folder = self.run.folder
            requesters = people(self.units)
            are = "is" if self.units == 1 else "are"
            raise ConfigError(
                f"run={folder}: {requesters} asked to be erased and {are} still in the model, "
                f"so {release} would use their records. First carry out the erasure with `agt "
                f"unlearn run={folder}`. Until then, `agt certify` can answer the queries that "
                "do not depend on these records"
            )

    def record_deferred(self, answered: np.ndarray, record: RunRecord) -> list[str]:
        """Count on the disk what is not answered now, and what is said of it; nothing where nothing
        waits.

        Args:
            answered: [n] bool.
        """
        if not self.units:
            return []
        queries, abstained = len(answered), int((~answered).sum())
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = {"time": now, "state": self.run.digest, "queries": queries, "abstained": abstained}
        _append(self.run.folder / ABSTAINED_FILE, json.dumps(line))
        record.add_metrics(waiting=self.units, answered=queries - abstained, abstained=abstained)
        folder = self.run.folder
        requesters = people(self.units)
        are = "is" if self.units == 1 else "are"
        answered_count = queries - abstained
        return [
            (
                f"{requesters} asked to be erased and {are} still in the model until it is "
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
    """How many queries abstained in these states of a run.

    A line that breaks off was being written when its command died, and nobody saw the answers
    beside it.

    Args:
        states: their digests.

    Raises:
        ConfigError: the file cannot be read, or holds a line that is none of these.
    """
    path, count, number = folder / ABSTAINED_FILE, 0, 0
    if not path.exists():
        return 0
    try:
        for number, line in enumerate(read_file(path).decode(errors="replace").splitlines(), 1):
            if not line or (line.startswith("{") and not line.endswith("}")):
                continue
            told = parse_object(line.encode(), f"line {number}")
            if int(told["abstained"]) < 0:
                raise ValueError("a negative count")
            count += int(told["abstained"]) * (str(told["state"]) in states)
    except (Broken, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}, line {number}: agt cannot read the number of unanswered queries from this "
            f"line ({error}). Move the file to another place; agt then counts unanswered "
            "queries from zero again"
        ) from None
    return count


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    handle = os.open(
        path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600
    )
    try:
        acquire_lock(handle, 60.0, str(path))
        size = os.fstat(handle).st_size
        # somebody died in the middle of a line
        broken = size and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, ("\n" if broken else "").encode() + f"{line}\n".encode())
        os.fsync(handle)
        sync_folder(path.parent)
    finally:
        os.close(handle)
