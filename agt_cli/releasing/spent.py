"""Write spent.json, the budget of a release, before anything is drawn; find earlier attempts.

Formal guarantees
    - Before the first draw of a release, a spent.json that states its budget is durable on disk. So
      a release that was killed, or whose disk ran full, is treated as spent.
    - The next release about the same training run lists such attempts, if they were written under
      the same ``output_dir`` or in a folder beside it. This is not a ledger: an attempt that was
      written elsewhere, moved or deleted is not found.
    - What is listed depends on public settings and on what happened to the machine, never on labels
      or stable distances.
"""

import shlex
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
from agt_cli.report.found import runs_below
from agt_cli.report.record import RunRecord

RELEASE_FOLDER = "release"  # in the folder of a run that released weights
_SPENT_PATTERNS = (f"*/{SPENT_FILE}", f"*/*/{SPENT_FILE}")  # of runs, and of the jobs of a sweep


@dataclass(frozen=True)
class Spending:
    """What a release spends: the fields of spent.json.

    Attributes:
        what: the kind of output that is released: labels, weights, a number or constants.
        mechanism: the name of the mechanism.
        guarantee: the kind and the parameters of the guarantee of each query, as JSON values.
        totals: the guarantees of all queries together, each with an eps for one delta; empty:
            ``guarantee`` is that of the whole release.
        queries: how many queries budget is spent for; 0: the release does not answer queries.
        dataset: the name of the dataset.
        simulated: whether everything is drawn with a seed, so that no budget is spent.
        ledger: the ledger's entry that paid: population, number and hash; None: no ledger paid.
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
        """Return what a release spends whose privacy guarantee is stated by a claim.

        Args:
            claim: the claim of the release; its output, mechanism, guarantee and totals are used,
                and whether it is a simulation.
            queries: how many queries budget is spent for; 0: the release does not answer queries.
            dataset: the name of the dataset.
            ledger: the ledger's entry that paid, as in ``Spending.ledger``; None: no ledger paid.
        """
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
        """The ledger's entry that paid, in parentheses for a sentence; empty: no ledger paid."""
        if not self.ledger:
            return ""
        entry = self.ledger["entry"]
        population = self.ledger["population"]
        return f" (entry {entry} of the ledger of {population})"


@contextmanager
def spending(record: RunRecord, subject: Mapping[str, str], about: Spending) -> Iterator[None]:
    """Write spent.json, then run the body, which draws and writes the release.

    Any error of the body is raised with a sentence that the budget is treated as spent, unless it
    is a simulation.

    Args:
        record: the record of the release.
        subject: the data that the release is about, by digest: ``subject_of``, or the data's
            digest for weights trained with noise.
        about: the fields of spent.json, which say what the release spends.

    Raises:
        OSError: spent.json cannot be written, and no ledger was debited; nothing was drawn.
        AgtError: spent.json cannot be written although a ledger was debited; or the body failed
            with an AgtError, an OSError or an error that ``explain`` knows.
        RuntimeError: the body failed with another error, which is a bug.
        KeyboardInterrupt: the body was interrupted.
    """
    write_spent(record, subject, about)
    warning = ""  # the end of every error's message
    if not about.simulated:
        path = record.folder / SPENT_FILE
        warning = (
            f"; {about.what} may have been drawn, so treat the budget recorded in {path} as "
            f"spent{about.entry}"
        )
    try:
        yield
    except KeyboardInterrupt as error:
        error.args = (f"{error or 'interrupted'}{warning}",)
        raise
    except Exception as error:
        known = None
        if isinstance(error, MemoryError | RuntimeError):  # perhaps out of memory
            known = explain(error, "", ())
        reason = str(known or error)
        if isinstance(error, OSError):
            reason = f"{error.filename}: {error.strerror}"
        text = f"{reason}{warning}"
        if known or isinstance(error, OSError | AgtError):
            raise AgtError(text) from error
        raise RuntimeError(f"{type(error).__name__}: {text}") from error


def write_spent(record: RunRecord, subject: Mapping[str, str], about: Spending) -> None:
    """Write spent.json, durably; the time of an earlier spent.json of this run is kept.

    Args:
        record: the record of the release.
        subject: the data that the release is about, by digest.
        about: the fields of spent.json, which say what the release spends.

    Raises:
        OSError: the file cannot be written, and no ledger was debited.
        AgtError: the file cannot be written, but a ledger was debited.
    """
    note = sentences.spent_note(about.what)
    earlier_time = recorded_spending(record.folder).get("time")
    time = earlier_time or datetime.now(UTC).isoformat(timespec="seconds")
    try:
        record.write(
            SPENT_FILE, seal_manifest({**asdict(about), **subject, "time": time, "note": note})
        )
    except OSError as error:
        if about.ledger is None:
            raise
        problem = f"{error.filename}: {error.strerror}"
        raise AgtError(
            f"{problem}; nothing was released, but the budget stays debited in the "
            f"ledger{about.entry}"
        ) from error


def recorded_spending(folder: Path) -> dict[str, Any]:
    """Return the content of a run's spent.json; empty: there is none that can be read.

    A run that has not begun to draw has one only if it is resumed. It then draws what it would have
    drawn the first time.

    Args:
        folder: the folder of the run.
    """
    try:
        return unseal_manifest(read_file(folder / SPENT_FILE), SPENT_FILE)
    except Broken:
        return {}


def subject_of(finished: Run) -> dict[str, str]:
    """Return the entries of spent.json that name the training run of a release: path and digest."""
    return {"trained_run": str(finished.folder.resolve()), "trained_digest": finished.digest}


def free_answers(outputs: Path, population: str) -> str:
    """Return what answers queries without spending more of a ledger's budget, in sentences.

    Args:
        outputs: the folder of runs, in which weights are looked for that the ledger paid for.
        population: the name of the ledger's population.
    """
    folders = [
        str(run.folder / RELEASE_FOLDER)
        for run in runs_below(outputs)
        if (run.folder / RELEASE_FOLDER).is_dir() and _population_of(run) == population
    ]
    if folders:
        return (
            "Weights that this ledger has paid for answer any number of queries, and spend nothing "
            f"more: agt predict release={shlex.quote(folders[-1])} inputs=FILE"
        )
    return (
        "Only released weights answer queries without spending more (agt predict release=FOLDER), "
        f"and none that this ledger paid for were found below {outputs}. The budget of a ledger "
        "cannot be raised, and that of another ledger for the same people adds to it, so it means "
        "a weaker guarantee for them"
    )


def _population_of(run: Run) -> str:
    """Return the population of the ledger that paid for a run's release; empty: not known."""
    entry = recorded_spending(run.folder).get("ledger")
    return str(entry.get("population", "")) if isinstance(entry, dict) else ""


def interrupted_releases(
    record: RunRecord, subject: Mapping[str, str], before: Iterable[object] = ()
) -> list[str]:
    """Return a warning for each earlier attempt of a release that may have spent budget.

    These are runs of the same command on the same subject that did not finish. They are looked for
    in ``output_dir`` and in the folder that contains the present run. Attempts that a ledger counts
    are left out.

    Args:
        record: the record of the present run, which is not an earlier attempt even if it was
            resumed.
        subject: the data that the release is about, by digest.
        before: digests of earlier states of the training run, whose releases are about the same
            people.
    """
    parents = (Path(record.config.get("output_dir") or ".") / record.command, record.folder.parent)
    attempts: dict[Path, Path] = {}  # by their real paths, because both folders may be the same
    for parent in parents:
        for pattern in _SPENT_PATTERNS:
            for path in sorted(parent.glob(pattern)):
                attempts[path.resolve()] = path
    attempts.pop((record.folder / SPENT_FILE).resolve(), None)
    known = [*map(str, before)]
    warnings = (_warn_of_attempt(path, subject, known) for path in attempts.values())
    return [*filter(None, warnings)]


def _warn_of_attempt(path: Path, subject: Mapping[str, str], before: Collection[str]) -> str:
    """Return a warning about another run's spent.json.

    Empty: the run is finished, is about other data, was a simulation, or was paid by a ledger.

    Args:
        path: the file.
        subject: the data that the present release is about, by digest.
        before: further digests of the same data.
    """
    folder = path.parent
    state = str(Run.at(folder).status.get("state", "state unknown"))
    try:
        content = read_file(path)
        if state == "done" and _is_done(folder, content):
            return ""
        value = unseal_manifest(content, SPENT_FILE)
        totals = "; ".join(spent_lines(value))
        output = value["what"]
        mechanism = value["mechanism"]
    except (Broken, KeyError, TypeError, ValueError) as error:
        return (
            f"an earlier attempt ({folder}, {state}) may have released something, but its file "
            f"spent.json cannot be read ({error}). Restore the file, or assume that this "
            "attempt spent an unknown amount of budget"
        )
    digest_keys = [key for key in subject if key.endswith("_digest")]
    is_other_data = any(value.get(key) not in (subject[key], *before) for key in digest_keys)
    if value.get("simulated") or value.get("ledger") or is_other_data:
        return ""
    return (
        f"an earlier attempt ({folder}, {value.get('time')}, {state}) may have released {output} "
        f"by {mechanism}, so treat this budget as spent: {totals}"
    )


def _is_done(folder: Path, spent: bytes) -> bool:
    """Return whether a run's manifest lists its status.json and this content of spent.json.

    The status alone does not prove that the run finished, because anybody can write it.

    Args:
        folder: the folder of the run.
        spent: the content of its spent.json.
    """
    try:
        manifest = Manifest.open(folder)
        manifest.check(SPENT_FILE, spent)
        manifest.load(folder, "status.json")  # raises unless it is as listed
    except Broken:
        return False
    return True
