"""Who pays for a release: the ledger that was named, nobody where the data is in none, a refusal where it is in one.

What a release gives away is on disk before it is drawn: spent.json, and what earlier attempts left there.

Formal guarantees
    Whatever was drawn is told by a spent.json that was durable before the first draw: a release that was killed, or whose
    disk ran full, counts as spent, and the next one about the same training run says so, as long as it writes under the
    same ``output_dir`` or beside it. It is no ledger: an attempt that was written elsewhere, moved or deleted is not known.
    What is said depends on public settings and on what happened to the machine, never on labels or distances.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from agt import sentences
from agt.data.dataset import Dataset
from agt.errors import AgtError, ConfigError
from agt.ledger.book import AdmittedTable, Charge, Debit, sample_of
from agt.ledger.ledger import Ledger, Questions, admitted, check_unclaimed, keys_of
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.claims import Claim
from agt.mechanisms.composition import Total
from agt.mechanisms.guarantees import Guarantee
from agt.store import Broken, Manifest, read_file, seal_manifest, unseal_manifest
from agt_cli.errors import explain
from agt_cli.releasing.ledgers import (
    FOLDER,
    NO_LEDGER,
    ProtectedPeople,
    existing_ledger,
    recognise,
    say_skipped,
    second_head,
    unit_of,
)
from agt_cli.report.finished import SPENT_FILE, Run, spent_lines
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import RunSettings, data_files

MAX_RELEASES = 10**9
VARIABLE = "AGT_LEDGER"
_PLACES = (f"*/{SPENT_FILE}", f"*/*/{SPENT_FILE}")  # runs, and the jobs of a sweep


@dataclass(frozen=True)
class Receipt:
    """What was paid.

    Attributes:
        size: for how many releases.
        debit: the ledger's; None: nobody counts, or nothing was paid now.
        population: whose ledger it is.
    """

    size: int
    debit: Debit | None = None
    population: str = ""

    @property
    def facts(self) -> dict[str, Any] | None:
        """Of its entry, for spent.json; None: there is no debit."""
        if self.debit is None:
            return None
        return {"population": self.population, "entry": self.debit.entry.number, "hash": self.debit.entry.hash}


@dataclass(frozen=True)
class NoLedger:
    """Nobody counts: every question is new, every payment is granted, nothing is kept; methods as ``LedgerPayer`` has them.

    Attributes:
        uncounted: why; None: a simulation, which nobody has to count.
        name: of the population: none.
    """

    uncounted: Uncounted | None = None
    name = ""

    def check(self, claim: Claim) -> None:
        pass

    def questions(self, about: list[object], features: np.ndarray) -> Questions:
        return Questions(range(len(features)), {})

    def debit(self, charge: Charge, wanted: int) -> Receipt:
        return Receipt(wanted)

    def keep(self, debit: Debit | None, answers: Mapping[Any, int]) -> Mapping[Any, int]:
        return answers

    def paid(self, charge: Charge) -> Receipt | None:
        return None

    def left(self, guarantee: Guarantee, most: int = MAX_RELEASES) -> int | None:
        return None

    def account(self, receipt: Receipt, one_by_one: bool = False) -> Uncounted | None:
        return self.uncounted


@dataclass(frozen=True)
class LedgerPayer:
    """An open ledger: it debits before anything is drawn, and remembers answers.

    Attributes:
        ledger: of one population.
    """

    ledger: Ledger

    @property
    def name(self) -> str:
        """The population's."""
        return self.ledger.population.name

    def check(self, claim: Claim) -> None:
        """Raise ConfigError where the ledger would count what is not proved, or does not add up with what it counts."""
        if claim.noisy:
            raise ConfigError(
                f"ledger={self.name}: {sentences.APART}, and a ledger adds up: release the noisy weights alone, train "
                "without noise to release from certificates, or give ledger=none"
            )
        if not claim.proved:
            raise ConfigError(
                f"accounting={claim.accounting}: nothing is proved of this release, and a ledger counts what is: use "
                "accounting=rigorous, or give ledger=none"
            )

    def questions(self, about: list[object], features: np.ndarray) -> Questions:
        """Which queries were answered before, and which are new. Args: about: what they have in common (``keys_of``)."""
        keys = keys_of(bytes.fromhex(self.ledger.salt), about, features)
        return Questions(keys, self.ledger.stored(list(dict.fromkeys(keys))))

    def debit(self, charge: Charge, wanted: int) -> Receipt:
        """Debit as many releases as the budget holds, durably.

        Raises:
            Exhausted: it holds none.
        """
        debit = self.ledger.debit(charge, wanted)
        return Receipt(debit.size, debit, self.name)

    def keep(self, debit: Debit | None, answers: Mapping[bytes, int]) -> Mapping[bytes, int]:
        """Remember what was drawn on a debit: key of a question -> label; returns what everybody is told."""
        return answers if debit is None else self.ledger.answer(debit, answers)

    def paid(self, charge: Charge) -> Receipt | None:
        """What was paid for exactly this, one release, before a run was killed; None: the ledger does not have it."""
        debits = self.ledger.history().values()
        return next((Receipt(debit.size, debit, self.name) for debit in debits if debit.charge == charge), None)

    def left(self, guarantee: Guarantee, most: int = MAX_RELEASES) -> int | None:
        """How many more releases of this guarantee the budget holds, as one lot.

        Args:
            most: they were so many some time ago: found faster from near there, as there are never more.
        """
        return self.ledger.population.allowance.fitting(self.ledger.book.spent, guarantee, most)

    def account(self, receipt: Receipt, one_by_one: bool = False) -> Account:
        """What a claim says of the ledger.

        Args:
            receipt: what was paid last.
            one_by_one: each answer is debited when it comes.
        """
        if one_by_one:
            return self.ledger.account(receipt.debit, "answers")
        return self.ledger.account(receipt.debit, "nothing" if receipt.debit is None else "entry")


Payer = NoLedger | LedgerPayer


@contextmanager
def payer_of(setting: object, people: ProtectedPeople, record: RunRecord) -> Iterator[Payer]:
    """What releases about some data are paid from.

    Args:
        setting: ``ledger``, or else the environment's AGT_LEDGER; null: none was named.
        people: whose data it is, and under which relation.
        record: says in env.json which ledger it was.

    Raises:
        ConfigError: the ledger is not there, or its population has other data or another relation; or none was named, and
            a ledger in the working directory has these people; or a second ledger beside the one that was named has.
        CheckError: a ledger is not what was written.
    """
    name = str(setting) if setting is not None else os.environ.get(VARIABLE) or None
    if name is None:
        holding, refusals = _ledgers_of(people)
        if holding:
            raise ConfigError(
                f"ledger: the people of {people.table.name} are in the ledger of {', '.join(holding)}: give "
                f"ledger={holding[0]}, which counts what is released, or ledger={NO_LEDGER} to release outside of it"
            )
        for error in refusals:
            raise type(error)(f"{error}; or give ledger={NO_LEDGER} to release outside of any ledger")
        yield NoLedger(Uncounted("unnamed"))
    elif name == NO_LEDGER:
        holding, refusals = _ledgers_of(people)
        if setting is None:
            record.environment(ledger=NO_LEDGER)  # named by the environment, which no other file says
        yield NoLedger(Uncounted("declined", tuple(holding), bool(refusals)))
    else:
        path = existing_ledger(name)
        say_skipped(path.parent)
        with Ledger.open(path, second_head()) as ledger:
            recognise(ledger)
            _admit_erased(ledger, people.table)
            ledger.check(people.relation, people.table.data, people.table.unit)
            # a copy of the ledger has its budget once more
            check_unclaimed(ledger.path, people.table, by_name=False, declared=ledger.book.declared)
            record.environment(ledger=name)
            yield LedgerPayer(ledger)


def people_of(loaded: Dataset, settings: RunSettings, config: Mapping[str, Any]) -> ProtectedPeople:
    """Whose data a training run is about to read for a release of its own, and how it counts them.

    Args:
        config: of the run, which the settings are from.
    """
    hashes = (file["sha256"] for file in data_files(settings.source).values() if "sha256" in file)
    people = sample_of(loaded.train.units)
    table = AdmittedTable(loaded.name, loaded.digest, tuple(sorted(hashes)), unit_of(config), people=people)
    return ProtectedPeople(table, settings.relation.name)


def _admit_erased(ledger: Ledger, table: AdmittedTable) -> None:
    """Admit a table that the ledger knows as it was before records were erased: what was declared of it still holds."""
    tables = ledger.book.tables
    known = next((data for data in table.before if data in tables), None)
    if known is not None and ledger.book.is_new(table):
        ledger.admit(replace(table, name=tables[known].name, apart=tables[known].apart), ledger.population.unit)


def _ledgers_of(people: ProtectedPeople) -> tuple[list[str], list[AgtError]]:
    """(names, refusals): the ledgers in the working directory that have these people, and why others cannot be opened."""
    names, refusals = list[str](), list[AgtError]()
    try:
        paths = say_skipped(Path(FOLDER))
    except AgtError as error:
        return [], [error]
    for path in paths:
        try:
            names += [path.stem] if admitted(path, people.table) else []
        except AgtError as error:
            refusals.append(error)
    return names, refusals


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
    def of_claim(cls, claim: Claim, queries: int, dataset: str, ledger: Mapping[str, Any] | None) -> "Spending":
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
        return f" (entry {self.ledger['entry']} of the ledger of {self.ledger['population']})" if self.ledger else ""


@contextmanager
def spending(record: RunRecord, subject: Mapping[str, str], about: Spending) -> Iterator[None]:
    """Put spent.json on disk, then let draw: whatever fails from here on says that it counts.

    Args:
        subject: what the release is about, by digest: ``subject_of``, or the data's digest for weights trained with noise.

    Raises:
        OSError: spent.json cannot be written; nothing was drawn.
        AgtError: what was drawn could not be written.
    """
    write_spent(record, subject, about)
    place = record.folder / SPENT_FILE
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
    note = sentences.spent_note(about.what)
    now = spent_before(record).get("time") or datetime.now(UTC).isoformat(timespec="seconds")
    try:
        record.write(SPENT_FILE, seal_manifest({**asdict(about), **subject, "time": now, "note": note}))
    except OSError as error:
        if about.ledger is None:
            raise
        raise AgtError(
            f"{error.filename}: {error.strerror}; nothing was drawn, and it stays debited{about.entry}"
        ) from error


def spent_before(record: RunRecord) -> dict[str, Any]:
    """What spent.json of this run says already: where it goes on, it draws what it would have drawn; empty: nothing yet."""
    try:
        return unseal_manifest(read_file(record.folder / SPENT_FILE), SPENT_FILE)
    except Broken:
        return {}


def subject_of(finished: Run) -> dict[str, str]:
    """What a release from a training run is about, by digest."""
    return {"trained_run": str(finished.folder.resolve()), "trained_digest": finished.digest}


def unfinished(record: RunRecord, subject: Mapping[str, str], before: Iterable[object] = ()) -> list[str]:
    """Earlier attempts of the same command on the same subject that did not end as done, a line each.

    They are looked for where runs are written (``output_dir``) and beside the present run. What a ledger counts is not
    told again.

    Args:
        before: digests of earlier states of the subject: what was drawn from one of them is about the same people.
    """
    homes = (Path(record.config.get("output_dir") or ".") / record.command, record.folder.parent)
    attempts = {path.resolve(): path for home in homes for place in _PLACES for path in sorted(home.glob(place))}
    attempts.pop((record.folder / SPENT_FILE).resolve(), None)  # a run that goes on is no other attempt
    known = [*map(str, before)]
    return [line for path in attempts.values() if (line := _attempt(path, subject, known))]


def _attempt(path: Path, subject: Mapping[str, str], before: Collection[str]) -> str | None:
    """What is said of another run's spent.json; None: nothing."""
    state = str(Run.at(path.parent).status.get("state", "state unknown"))
    try:
        content = read_file(path)
        if state == "done" and _is_done(path.parent, content):
            return None
        value = unseal_manifest(content, SPENT_FILE)
        totals, about = "; ".join(spent_lines(value)), f"{value['what']} by {value['mechanism']}"
    except (Broken, KeyError, TypeError, ValueError) as error:
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


def _is_done(folder: Path, spent: bytes) -> bool:
    """Whether the run's manifest says so too: a status alone is a word in a file."""
    try:
        manifest = Manifest.open(folder)
        manifest.check(SPENT_FILE, spent)
        manifest.load(folder, "status.json")
    except Broken:
        return False
    return True
