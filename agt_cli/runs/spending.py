"""What a release gives away, on disk before it is drawn: spent.json, and what earlier attempts left there.

Formal guarantees
    Whatever was drawn is told by a spent.json that was durable before the first draw: a release that was killed, or whose
    disk ran full, counts as spent, and the next one about the same training run says so, as long as it writes under the
    same ``output_dir`` or beside it. It is no ledger: an attempt that was written elsewhere, moved or deleted is not known.
    What is said depends on public settings and on what happened to the machine, never on labels or distances.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agt.errors import AgtError
from agt.manifest import NAME as MANIFEST
from agt.manifest import Broken, Manifest, seal, unseal
from agt_cli.mistakes import explain
from agt_cli.report.finished import FinishedRun
from agt_cli.report.record import RunRecord

NAME = "spent.json"
PLACES = ("*/spent.json", "*/*/spent.json")  # runs, and the jobs of a sweep


@dataclass(frozen=True)
class Spending:
    """What is about to be released.

    Attributes:
        what: labels, weights or a number.
        mechanism: its name.
        guarantee: of each query, in words.
        totals: of all of them together, in words.
        queries: how many.
        dataset: its name.
        simulated: drawn with a seed: nothing is given away that counts.
        ledger: the entry that counts it: population, number and hash; None: none does.
    """

    what: str
    mechanism: str
    guarantee: str
    totals: tuple[str, ...]
    queries: int
    dataset: str
    simulated: bool
    ledger: Mapping[str, Any] | None = None

    @property
    def entry(self) -> str:
        """Which entry counts it, in words; empty: none does."""
        return f" (entry {self.ledger['entry']} of the ledger of {self.ledger['population']})" if self.ledger else ""


@contextmanager
def spending(record: RunRecord, subject: Mapping[str, str], about: Spending) -> Iterator[None]:
    """Put spent.json on disk, then let draw: whatever fails from here on says that it counts.

    Args:
        subject: what the release is about, by digest: ``of_run``, or ``of_data`` for weights trained with noise.

    Raises:
        OSError: spent.json cannot be written; nothing was drawn.
        AgtError: what was drawn could not be written.
    """
    write_spent(record, subject, about)
    place = record.folder / NAME
    counted = f"; {about.what} may have been drawn: {place} says what to count{{}}{about.entry}"
    counted = "" if about.simulated else counted
    try:
        yield
    except KeyboardInterrupt as error:
        error.args = (f"{error or 'interrupted'}{counted.format('')}",)
        raise
    except Exception as error:
        known = explain(error, "", ()) if isinstance(error, MemoryError | RuntimeError) else None  # out of memory, maybe
        where = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(known or error)
        text = f"{where}{counted.format(' as spent')}"
        if known or isinstance(error, OSError | AgtError):
            raise AgtError(text) from error
        raise RuntimeError(f"{type(error).__name__}: {text}") from error


def write_spent(record: RunRecord, subject: Mapping[str, str], about: Spending) -> None:
    """Put spent.json on disk. Raises OSError where it cannot be written; AgtError where it was debited already."""
    note = f"from this time on {about.what} may have been drawn: count them as spent, whatever became of this run"
    began = spent_before(record).get("time")
    now = began or datetime.now(UTC).isoformat(timespec="seconds")
    try:
        record.write(NAME, seal({**asdict(about), **subject, "time": now, "note": note}))
    except OSError as error:
        if about.ledger is None:
            raise
        raise AgtError(
            f"{error.filename}: {error.strerror}; nothing was drawn, and it stays debited{about.entry}"
        ) from error


def spent_before(record: RunRecord) -> dict[str, Any]:
    """What spent.json of this run says already: where it goes on, it draws what it would have drawn; empty: nothing yet."""
    try:
        return unseal((record.folder / NAME).read_bytes(), NAME)
    except (OSError, Broken):
        return {}


def of_run(finished: FinishedRun) -> dict[str, str]:
    """The subject of a release from a training run."""
    return {"trained_run": str(finished.folder.resolve()), "trained_digest": finished.digest}


def of_data(digest: str) -> dict[str, str]:
    """The subject of a training whose weights are a release."""
    return {"data_digest": digest}


def states_of(finished: FinishedRun) -> tuple[str, ...]:
    """The digests of a run's earlier states: what was drawn from one of them is about the same people."""
    return tuple(map(str, finished.environment.get("succeeds", ())))


def unfinished(record: RunRecord, subject: Mapping[str, str], before: Collection[str] = ()) -> list[str]:
    """Earlier attempts of the same command on the same subject that did not end as done, a line each.

    Args:
        before: more digests of the subject (``states_of``).

    They are looked for where runs are written (``output_dir``) and beside the present run. What a ledger counts is not
    told again.
    """
    homes = (Path(record.config.get("output_dir") or ".") / record.command, record.folder.parent)
    attempts = {path.resolve(): path for home in homes for place in PLACES for path in sorted(home.glob(place))}
    attempts.pop((record.folder / NAME).resolve(), None)  # a run that goes on is no other attempt
    return [line for path in attempts.values() if (line := _line(path, subject, before))]


def _line(path: Path, subject: Mapping[str, str], before: Collection[str]) -> str | None:
    state = _state(path.parent)
    try:
        if not path.is_file():
            raise Broken(f"{NAME} is no file")
        content = path.read_bytes()
        if state == "done" and _ended(path.parent, content):
            return None
        value = unseal(content, NAME)
        totals, about = "; ".join(value["totals"]), f"{value['what']} by {value['mechanism']}"
    except (OSError, Broken, KeyError, TypeError) as error:
        return (
            f"an earlier attempt ({path.parent}, {state}) may have released something: its spent.json cannot be read "
            f"({error}): count it as spent, the amount unknown"
        )
    other = any(value.get(key) not in (subject[key], *before) for key in subject if key.endswith("_digest"))
    if value.get("simulated") or value.get("ledger") or other:
        return None
    return (
        f"an earlier attempt ({path.parent}, {value.get('time')}, {state}) may have released {about}: count it as spent: "
        f"{totals}"
    )


def _ended(folder: Path, spent: bytes) -> bool:
    """Whether the run's manifest says so too: a status alone is a word in a file."""
    try:
        manifest = Manifest.read((folder / MANIFEST).read_bytes())
        manifest.check(NAME, spent)
        manifest.load(folder, "status.json")
    except (OSError, Broken):
        return False
    return True


def _state(folder: Path) -> str:
    status = folder / "status.json"
    try:
        return str(json.loads(status.read_bytes())["state"]) if status.is_file() else "state unknown"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "state unknown"
