"""spent.json: what a release gives away, on the disk before it is drawn; and what earlier attempts
left there.

Formal guarantees
    Whatever was drawn is told by a spent.json that was durable before the first draw: a release
    that was killed, or whose disk ran full, counts as spent, and the next one about the same
    training run says so, as long as it writes under the same ``output_dir`` or beside it. It is no
    ledger: an attempt that was written elsewhere, moved or deleted is not known. What is said
    depends on public settings and on what happened to the machine, never on labels or distances.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agt import sentences
from agt.errors import AgtError
from agt.mechanisms.claims import Claim
from agt.mechanisms.composition import Total
from agt.store.manifest import Manifest, seal_manifest, unseal_manifest
from agt.store.reading import Broken, read_file
from agt_cli.errors import explain
from agt_cli.report.finished import SPENT_FILE, Run, spent_lines
from agt_cli.report.record import RunRecord

_PLACES = (f"*/{SPENT_FILE}", f"*/*/{SPENT_FILE}")  # runs, and the jobs of a sweep


@dataclass(frozen=True)
class Spending:
    """What is about to be released, as spent.json has it.

    Attributes:
        what: labels, weights, a number or constants.
        mechanism: its name.
        guarantee: of each query: its kind and parameters.
        totals: of all of them together; empty: the guarantee is of all of it.
        queries: how many.
        dataset: its name.
        simulated: drawn with a seed: nothing is given away that counts.
        ledger: the entry that counts it: population, number and hash; None: none does.
    """

    what: str
    mechanism: str
    guarantee: Mapping[str, Any]
    totals: tuple[Total, ...]
    queries: int
    dataset: str
    simulated: bool
    ledger: Mapping[str, Any] | None = None

    @classmethod
    def of_claim(
        cls, claim: Claim, queries: int, dataset: str, ledger: Mapping[str, Any] | None
    ) -> "Spending":
        """What a release spends. Arguments as the attributes."""
        return cls(
            what=claim.output.value,
            mechanism=claim.mechanism,
            guarantee=claim.guarantee.as_json,
            totals=claim.totals,
            queries=queries,
            dataset=dataset,
            simulated=claim.simulated,
            ledger=ledger,
        )

    @property
    def entry(self) -> str:
        """Which entry counts it, in words; empty: none does."""
        if not self.ledger:
            return ""
        entry = self.ledger["entry"]
        population = self.ledger["population"]
        return f" (entry {entry} of the ledger of {population})"


@contextmanager
def spending(record: RunRecord, subject: Mapping[str, str], about: Spending) -> Iterator[None]:
    """Put spent.json on disk, then let draw: whatever fails from here on says that it counts.

    Args:
        subject: what the release is about, by digest: ``subject_of``, or the data's digest for
            weights trained with noise.

    Raises:
        OSError: spent.json cannot be written; nothing was drawn.
        AgtError: what was drawn could not be written.
    """
    write_spent(record, subject, about)
    place = record.folder / SPENT_FILE
    what = about.what
    entry = about.entry
    counted = ""
    if not about.simulated:
        doubt = (
            f"{what} may have been drawn, so treat the budget recorded in {place} as spent{entry}"
        )
        counted = f"; {doubt}"
    try:
        yield
    except KeyboardInterrupt as error:
        error.args = (f"{error or 'interrupted'}{counted}",)
        raise
    except Exception as error:
        # out of memory, maybe
        known = explain(error, "", ()) if isinstance(error, MemoryError | RuntimeError) else None
        where = (
            f"{error.filename}: {error.strerror}"
            if isinstance(error, OSError)
            else str(known or error)
        )
        text = f"{where}{counted}"
        if known or isinstance(error, OSError | AgtError):
            raise AgtError(text) from error
        raise RuntimeError(f"{type(error).__name__}: {text}") from error


def write_spent(record: RunRecord, subject: Mapping[str, str], about: Spending) -> None:
    """Put spent.json on disk.

    Raises OSError where it cannot be written; AgtError where it was debited already.
    """
    note = sentences.spent_note(about.what)
    now = spent_before(record).get("time") or datetime.now(UTC).isoformat(timespec="seconds")
    try:
        record.write(
            SPENT_FILE, seal_manifest({**asdict(about), **subject, "time": now, "note": note})
        )
    except OSError as error:
        if about.ledger is None:
            raise
        problem = f"{error.filename}: {error.strerror}"
        raise AgtError(
            f"{problem}; nothing was released, but the budget stays debited in the "
            f"ledger{about.entry}"
        ) from error


def spent_before(record: RunRecord) -> dict[str, Any]:
    """What spent.json of this run says already: where it goes on, it draws what it would have
    drawn; empty: nothing yet.
    """
    try:
        return unseal_manifest(read_file(record.folder / SPENT_FILE), SPENT_FILE)
    except Broken:
        return {}


def subject_of(finished: Run) -> dict[str, str]:
    """What a release from a training run is about, by digest."""
    return {"trained_run": str(finished.folder.resolve()), "trained_digest": finished.digest}


def unfinished(
    record: RunRecord, subject: Mapping[str, str], before: Iterable[object] = ()
) -> list[str]:
    """Earlier attempts of the same command on the same subject that did not end as done, a line
    each.

    They are looked for where runs are written (``output_dir``) and beside the present run. What a
    ledger counts is not told again.

    Args:
        before: digests of earlier states of the subject: what was drawn from one of them is about
            the same people.
    """
    homes = (Path(record.config.get("output_dir") or ".") / record.command, record.folder.parent)
    attempts = {
        path.resolve(): path
        for home in homes
        for place in _PLACES
        for path in sorted(home.glob(place))
    }
    # a run that goes on is no other attempt
    attempts.pop((record.folder / SPENT_FILE).resolve(), None)
    known = [*map(str, before)]
    return [line for path in attempts.values() if (line := _attempt(path, subject, known))]


def _attempt(path: Path, subject: Mapping[str, str], before: Collection[str]) -> str | None:
    """What is said of another run's spent.json; None: nothing."""
    folder = path.parent
    state = str(Run.at(folder).status.get("state", "state unknown"))
    try:
        content = read_file(path)
        if state == "done" and _is_done(path.parent, content):
            return None
        value = unseal_manifest(content, SPENT_FILE)
        totals, about = "; ".join(spent_lines(value)), f"{value['what']} by {value['mechanism']}"
    except (Broken, KeyError, TypeError, ValueError) as error:
        return (
            f"an earlier attempt ({folder}, {state}) may have released something, but its file "
            f"spent.json cannot be read ({error}). Restore the file, or assume that this "
            "attempt spent an unknown amount of budget"
        )
    other = any(
        value.get(key) not in (subject[key], *before) for key in subject if key.endswith("_digest")
    )
    if value.get("simulated") or value.get("ledger") or other:
        return None
    time = value.get("time")
    return (
        f"an earlier attempt ({folder}, {time}, {state}) may have released {about}, so treat "
        f"this budget as spent: {totals}"
    )


def _is_done(folder: Path, spent: bytes) -> bool:
    """Whether the run's manifest says so too: a status alone is a word in a file."""
    try:
        manifest = Manifest.open(folder)
        manifest.check(SPENT_FILE, spent)
        manifest.load(folder, "status.json")
    except Broken:
        return False
    return True
