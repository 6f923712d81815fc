"""agt ledger init|show|verify|admit NAME: one population's budget.

It writes nothing but the ledger and its head file.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from agt.errors import ConfigError, few
from agt.ledger.book import Debit, Population
from agt.ledger.chain import Head
from agt.ledger.descriptions import clock_warnings, describe_budget, without_delta
from agt.ledger.file_checks import same_disk
from agt.ledger.head_file import head_file_path
from agt.ledger.ledger import Ledger
from agt.ledger.ledger_list import (
    check_as_listed,
    check_same_ledger,
    listed_head,
    put_on_list,
    similar_ledgers_warning,
)
from agt.ledger.payer import ProtectedPeople
from agt.ledger.remaining import RemainingBudget
from agt.ledger.store import identity_of
from agt.ledger.tables import AdmittedTable
from agt.ledger.unit import Unit
from agt.mechanisms.budget import Allowance, Cost, eps_so_far
from agt.settings import schema, validate
from agt_cli.command_settings.ledger import no_budget, no_unit, read_total_budget
from agt_cli.configuration import read_digest_setting
from agt_cli.ledger_files import NO_LEDGER, ledger_path, require_ledger
from agt_cli.places import check_head_folder
from agt_cli.releasing.ledgers import people_of_run, say_skipped
from agt_cli.report.console import Console
from agt_cli.report.finished import SPENT_FILE, Run
from agt_cli.report.found import resolve_latest, runs_below
from agt_cli.report.opening import open_run

MAX_DEBITS_SHOWN = 20  # in the table; --json has all
MAX_COUNTED_RELEASES = 10**9  # of further releases are not counted exactly
_DIGEST = re.compile("[0-9a-f]{32}")
_FIRST_ENTRY = re.compile("[0-9a-f]{16}")
_TABLE = (
    "run",
    "digest",
    "data",
    "table",
    "unit_column",
    "unit_rows",
    "another_population",
    "unreadable",
    "replaces",
)
_KEYS = {
    "init": (*_TABLE, "total", "unit", "relation"),
    "admit": (*_TABLE, "unit", "lost"),
    "show": (),
    "verify": (),
}


@schema
class LedgerConfig:
    """The settings of ``agt ledger``, as in conf/ledger.yaml."""

    action: Literal["init", "show", "verify", "admit"]
    ledger: str
    total: Mapping[str, Any]
    unit: str | None = None
    relation: Mapping[str, Any] | None = None
    run: str | None = None
    digest: str | None = None
    data: str | None = None
    table: str | None = None
    unit_column: str | None = None
    unit_rows: int | None = None
    head: str | None = None
    another_population: bool = False
    lost: bool = False
    unreadable: str | tuple[str, ...] = ()
    replaces: str | None = None
    output_dir: str = "outputs"

    def __post_init__(self) -> None:
        self._check_keys()
        self._check_head_and_ledger()
        self._check_data()

    def _check_keys(self) -> None:
        """Raise ConfigError for a setting that does not apply to the action."""
        every_key = {key for keys in _KEYS.values() for key in keys}
        for key in sorted(every_key - {*_KEYS[self.action]}):
            is_given = any(self.total.values()) if key == "total" else getattr(self, key)
            if is_given:
                actions = " and ".join(action for action, keys in _KEYS.items() if key in keys)
                raise ConfigError(
                    f"{key}=... only applies to agt ledger {actions}: leave it out of agt ledger "
                    f"{self.action}"
                )

    def _check_head_and_ledger(self) -> None:
        """Raise ConfigError for a head that is not COUNT:HASH, or a ledger with a reserved name.

        A head that does not begin like COUNT:HASH is the path of a file, which is not checked here.
        """
        is_count = bool(re.match(r"\d+:", self.head or ""))
        if self.action == "verify" and is_count and not self.noted_head:
            raise ConfigError(
                f"head={self.head}: give head=COUNT:HASH, the ledger's number of entries and at "
                "least the first 16 digits of its last entry's hash"
            )
        if self.action == "init" and self.ledger in (NO_LEDGER, "null"):
            raise ConfigError(
                f"ledger={self.ledger}: in other commands, this name means that no ledger is used: "
                "give the ledger another name"
            )

    def _check_data(self) -> None:
        """Raise ConfigError for settings of a table that do not go together."""
        if self.run and self.data:
            raise ConfigError(
                "run=... and data=... cannot be given together: leave out data=..., because "
                "the run contains the digest of its data"
            )
        if self.unit_column and not self.data:
            raise ConfigError(
                "unit_column=... only applies together with data=DIGEST: leave unit_column=... "
                "out. For run=FOLDER it is not needed, because a run records this column"
            )
        if self.unit_rows is not None and not self.unit_column:
            raise ConfigError(
                "unit_rows=... only applies together with data=DIGEST and unit_column=...: leave "
                "unit_rows=... out. For run=FOLDER it is not needed, because a run records this "
                "limit"
            )
        if self.action == "admit" and self.unit and not (self.run or self.data):
            raise ConfigError(
                "unit=... only applies to a table that is admitted: also give run=FOLDER, or "
                "data=DIGEST table=NAME"
            )
        if self.replaces and not _FIRST_ENTRY.fullmatch(self.replaces):
            raise ConfigError(
                f"replaces={self.replaces}: give the 16 digits that agt printed when it asked for "
                "replaces=... (the first digits of the hash of the replaced ledger's first entry)"
            )
        if self.data and not (_DIGEST.fullmatch(self.data) and self.table):
            raise ConfigError(
                f"data={self.data}: give data=DIGEST together with table=NAME, where DIGEST (32 "
                "hexadecimal digits) is the value data_digest in a run's env.json"
            )

    @property
    def path(self) -> Path:
        """The ledger's file, which is there unless it is to be made."""
        if self.action == "init":
            return ledger_path(self.ledger)
        return require_ledger(self.ledger)

    @property
    def noted_head(self) -> Head | None:
        """The head that is to be compared, if COUNT:HASH was given."""
        return Head.read(self.head) if self.head and self.action == "verify" else None

    @property
    def second_head(self) -> Path | None:
        """The head file, if one was given.

        Raises:
            ConfigError: one is to be made where there is no folder: the other disk is not there;
                or its name is the word ``none``.
        """
        if not self.head or self.noted_head:
            return None
        if self.head == "none":
            raise ConfigError(
                "head=none would be a head file with the name 'none': leave out head=... for a "
                "ledger without a head file, or give the path of one, on another disk"
            )
        if self.action in ("init", "admit"):
            check_head_folder(self.head)
        return Path(self.head)

    @property
    def declared(self) -> list[Mapping[str, str] | str]:
        """The declarations about other ledgers, as ``Ledger.declare`` takes them."""
        files = (self.unreadable,) if isinstance(self.unreadable, str) else self.unreadable
        declared: list[Mapping[str, str] | str] = [identity_of(Path(file)) for file in files]
        if self.replaces:
            declared.append(self.replaces)
        return declared

    def people(self) -> ProtectedPeople | None:
        """Return the people whose data is admitted; None: the settings name no table.


        Raises:
            ConfigError: ``run`` is no finished training run, or another than ``digest``.
        """
        if self.run:
            run = open_run(
                Path(self.run), "train", read_digest_setting({"digest": self.digest}, "digest")
            )
            people = people_of_run(run, self.table)
            return replace(people, table=replace(people.table, apart=self.another_population))
        if not self.data or not self.table:
            return None
        unit = Unit(self.unit_column, 1 if self.unit_rows is None else self.unit_rows)
        return ProtectedPeople(AdmittedTable(self.table, self.data, unit=unit))

    def population(self, people: ProtectedPeople | None) -> Population:
        """Return the population of a new ledger: its unit, relation and budget.

        Args:
            people: the people whose data is admitted; None: no people were named.

        Raises:
            ConfigError: there is no budget, or no unit.
        """
        if self.total.get("eps") is None:
            raise no_budget()
        allowance = read_total_budget(self.total, Allowance)
        unit = self.unit
        if not unit and people is not None and self.run:
            unit = people.table.unit.name
        if not unit:
            raise no_unit()
        relation = (self.relation or {}).get("name")
        if not relation and people is not None:
            relation = people.relation
        return Population(self.path.stem, unit, str(relation or "add_remove"), allowance)


def configure(config: Mapping[str, Any]) -> LedgerConfig:
    """Validate the settings.

    Raises:
        ConfigError: a setting is missing, unknown or invalid; the message names its key.
    """
    return validate(LedgerConfig, config, "")


def run(config: LedgerConfig, console: Console) -> dict[str, Any]:
    """Create, show, verify or extend a ledger; return what --json prints."""
    if config.run:
        config = replace(config, run=str(resolve_latest(vars(config), console.note)["run"]))
    actions = {"init": _init, "show": _show, "verify": _verify, "admit": _admit}
    return actions[config.action](config, console)


def _init(config: LedgerConfig, console: Console) -> dict[str, Any]:
    """Create a ledger."""
    people = config.people()
    population = config.population(people)
    if people and people.relation:
        population.check_relation(people.relation)
    tables = [people.table] if people else []
    declared = config.declared
    if not config.path.exists():
        check_same_ledger(config.path, declared=declared)
    say_skipped(config.path.parent)
    with Ledger.create(config.path, population, config.second_head, tables, declared) as ledger:
        _list_ledger(ledger, console)
        allowance = population.allowance
        console.say(
            f"ledger {ledger.path} was created with the budget {describe_budget(allowance)}, which "
            "cannot be raised later"
        )
        if not allowance.delta:
            console.note(without_delta(ledger.path))
        else:
            reserved = float(allowance.leak_limit)
            share = allowance.leaks
            console.say(
                f"{reserved:g} of delta is reserved for mechanisms with a delta of their own "
                f"(total.delta_share={share:g}), the rest for Gaussian noise"
            )
            console.say(_describe_remaining(RemainingBudget.after(allowance, Cost())))
        console.say(
            f"the ledger protects {ledger.unit} of the tables that are admitted to it. agt knows "
            "the same people in another table only by equal ids: if their ids differ, do not open "
            f"a second ledger, which agt would not notice, but type agt ledger admit "
            f"{config.ledger} run=FOLDER unit={shlex.quote(ledger.unit)}"
        )
        result = _print_state(ledger, console)
        _warn_of_other_ledgers(config, people, console)
        if config.second_head is None:
            console.note(
                f"to create a head file later, type agt ledger admit {config.ledger} head=FILE "
                "(FILE on another disk). From then on, an older copy of the ledger is recognised, "
                "and claims say since which entry"
            )
        elif same_disk(config.second_head, config.path):
            console.note(
                "to move the head file to another disk, type agt ledger admit "
                f"{config.ledger} head=FILE"
            )
        if not people:
            console.note(
                f"next: agt ledger admit {config.ledger} run=FOLDER (required before the "
                "ledger can pay for a release)"
            )
        return result


def _admit(config: LedgerConfig, console: Console) -> dict[str, Any]:
    """Admit a table, a head file, or declarations about other ledgers.

    Raises:
        ConfigError: nothing to admit was named.
    """
    people = config.people()
    folder_or_file = config.second_head
    head = None if folder_or_file is None else head_file_path(folder_or_file, config.path)
    declared = config.declared
    if people is None and head is None and not declared:
        raise ConfigError(
            "agt ledger admit: say what to admit. For the table of a run, give run=FOLDER; for "
            "another table, data=DIGEST table=NAME. For a head file (which keeps a copy of the "
            "ledger's last entry), give head=FILE. Give unreadable=FILE or replaces=DIGITS "
            "only if a message asked for it"
        )
    say_skipped(config.path.parent)
    head_exists = head is not None and head.exists()
    if config.lost and head is not None:
        _check_listed_head_is_lost(config.path)
        Ledger.replace_head(config.path, head)
        head_exists = True
    with Ledger.open(config.path, head if head_exists else None) as ledger:
        for declaration in declared:
            ledger.declare(declaration)
        _list_ledger(ledger, console)
        if head is not None and not head_exists:
            ledger.move_head(head)
            _list_ledger(ledger, console)  # the list also has the path of the new head file
        if people is not None:
            if people.relation:
                ledger.population.check_relation(people.relation)
            ledger.admit(people.table, config.unit)
            _warn_of_other_ledgers(config, people, console)
        return _print_state(ledger, console)


def _check_listed_head_is_lost(path: Path) -> None:
    """Raise ConfigError if the head file that a ledger had when it was last used here exists.

    ``Ledger.replace_head`` does not know of this file if an older copy replaced the ledger.

    Args:
        path: the ledger's file.
    """
    with Ledger.open(path, writing=False, as_copy=True) as ledger:
        head = listed_head(ledger.book.first_entry)
    if head and Path(head).exists():
        raise ConfigError(
            f"lost=true declares that the ledger's head file is lost, but this file exists ({head}"
            "): leave out lost=true"
        )


def _list_ledger(ledger: Ledger, console: Console) -> None:
    """Add a ledger to the user's list of ledgers, and warn if that is not possible.

    Raises:
        CheckError: another ledger is listed at this path, or the ledger is an older copy.
    """
    if note := put_on_list(ledger):
        console.warn(note)


def _warn_of_other_ledgers(
    config: LedgerConfig, people: ProtectedPeople | None, console: Console
) -> None:
    """Warn of ledgers and releases that may be about the same people.

    These are ledgers in other folders, releases that no ledger counts, and people that could not be
    compared.

    Args:
        config: the settings.
        people: the people whose data is admitted; None: no people were named, so there is no
            warning.
        console: prints the warnings.
    """
    if people is None:
        return
    unpaid = _unpaid_releases(people.table, list(runs_below(Path(config.output_dir))))
    if unpaid:
        folders = few(unpaid)
        console.warn(
            f"these releases about the same data were made without a ledger: {folders}. This "
            "ledger does not count them, so add their privacy losses to the ledger's total "
            "yourself"
        )
    warning = similar_ledgers_warning(config.path, people.table)
    if warning:
        console.warn(warning)
    if not people.table.people:
        name = people.table.name
        console.warn(
            f"agt cannot check whether another ledger already counts the people of {name}, "
            "because it has no list of these people. Only a training run contains such a list "
            "(as keyed hashes): if a run was trained on these data, give run=FOLDER"
        )


def _unpaid_releases(table: AdmittedTable, runs: Sequence[Run]) -> list[str]:
    """Return the folders of releases about a table that no ledger counts.

    A run that does not say which data it is about may be about these.
    """
    digests = _data_digests(table, runs)
    unpaid = []
    for run in runs:
        may_be_about = not run.environment or str(run.environment.get("data_digest")) in digests
        if may_be_about and (run.folder / SPENT_FILE).exists() and _is_unpaid(run):
            unpaid.append(str(run.folder))
    return unpaid


def _data_digests(table: AdmittedTable, runs: Sequence[Run]) -> set[str]:
    """Return the digests of a table's data: present and earlier ones, and those of runs that read
    the same files with other settings.

    Args:
        table: the admitted table.
        runs: the runs whose data may be from the same files.
    """

    def files(run: Run) -> set[str]:
        listed = run.environment.get("data_files")
        listed_files = listed.values() if isinstance(listed, dict) else ()
        return {str(file.get("sha256")) for file in listed_files if isinstance(file, dict)}

    digests = {table.data, *table.before}
    for run in runs:
        if files(run) & {*table.files}:
            digests.add(str(run.environment.get("data_digest")))
    return digests


def _is_unpaid(run: Run) -> bool:
    """Return whether no ledger counts the release of a run. True as well if its spent.json cannot
    be read.
    """
    try:
        spent = run.json(SPENT_FILE)
    except ConfigError:
        return True
    return not spent.get("ledger") and spent.get("simulated") is not True


def _print_state(ledger: Ledger, console: Console, brief: bool = False) -> dict[str, Any]:
    """Print a ledger's guarantee, warnings about its clock and its last head.

    Everything is printed before the check, so that the owner sees what the file contains even if
    the check fails.

    Args:
        ledger: an open ledger.
        console: the console on which the state is printed.
        brief: True: what ``agt ledger init`` has said is not printed again.

    Returns:
        The same for ``--json``, all of it.

    Raises:
        CheckError: the file is not the ledger that was at this path before
            (``check_as_listed``).
    """
    book = ledger.book
    warnings = clock_warnings(book)
    head = str(book.last.head)
    for line in [*ledger.claim_sentences(brief), *warnings, f"head: {head}"]:
        console.say(line)
    check_as_listed(ledger)
    return {
        "ledger": str(ledger.path),
        "first_entry": book.first_entry,
        "head": head,
        "words": [*ledger.claim_sentences(), *warnings],
    }


def _show(config: LedgerConfig, console: Console) -> dict[str, Any]:
    """Print what a ledger guarantees, its debits, and how much of its budget was spent.

    Returns:
        What --json prints.
    """
    with Ledger.open(config.path, config.second_head, writing=False) as ledger:
        debits = list(ledger.history().values())
        book = ledger.book
        population = ledger.population
        allowance = population.allowance
        eps = eps_so_far(allowance, book.spent)
        further_releases = None
        if debits:
            last_guarantee = debits[-1].charge.guarantee
            further_releases = allowance.max_lot_size(
                book.spent, last_guarantee, MAX_COUNTED_RELEASES
            )
        _print_guarantee(ledger, console)
        if debits:
            _print_debits(debits, console)
        console.say(_describe_spent(eps, further_releases, allowance.eps))
        remaining = RemainingBudget.after(allowance, book.spent)
        console.say(_describe_remaining(remaining))
        state = _print_state(ledger, console, brief=True)
        console.note(
            "store this head (COUNT:HASH) elsewhere: with it, `agt ledger verify "
            f"{ledger.path} head=COUNT:HASH` detects later whether an older copy replaced the "
            "ledger"
        )
        tables = [
            {"table": table.name, "data": table.data, "counts": str(table.unit)}
            for table in book.tables.values()
        ]
        return {
            **state,
            "population": asdict(population),
            "entries": book.last.number,
            "second_head": ledger.head and str(ledger.head),
            "spent": book.spent.as_json(),
            "eps_so_far": eps,
            "more_of_the_last": further_releases,
            "remaining": asdict(remaining),
            "tables": tables,
            "debits": [_debit_fields(debit) for debit in debits],
            "answers": book.answered,
        }


def _print_guarantee(ledger: Ledger, console: Console) -> None:
    """Print which population a ledger protects, and its budget."""
    population = ledger.population
    names = dict.fromkeys(table.name for table in ledger.book.tables.values())
    tables = ", ".join(names) or (
        f"no table was admitted yet; to admit one, type agt ledger admit {ledger.path} run=FOLDER"
    )
    name = population.name
    limit = describe_budget(population.allowance)
    relation = population.relation
    console.say(
        f"ledger {name}: everything that is ever released under this ledger must stay "
        f"within the budget {limit}"
    )
    console.say(
        f"the guarantee protects {ledger.unit} (the unit); neighbouring datasets are those "
        f"of relation={relation}; tables of these people: {tables}"
    )


def _debit_fields(debit: Debit) -> dict[str, Any]:
    """Return what --json prints about a debit."""
    return {
        "entry": debit.entry.number,
        "time": debit.entry.time,
        "size": debit.size,
        "answered": debit.answered,
        **debit.charge.as_json(),
    }


def _print_debits(debits: list[Debit], console: Console) -> None:
    """Print a table of the last debits."""
    count = len(debits)
    title = "spent on"
    if count > MAX_DEBITS_SHOWN:
        title = (
            f"entries that spent budget (the last {MAX_DEBITS_SHOWN} of {count}; --json lists all)"
        )
    rows = []
    for debit in debits[-MAX_DEBITS_SHOWN:]:
        charge = debit.charge
        time = debit.entry.time.removesuffix("+00:00").replace("T", " ")
        parameters = charge.guarantee.parameters
        guarantee = ", ".join(f"{name} = {value:g}" for name, value in parameters.items())
        run = charge.run.removeprefix("sha256:")[:12] or "-"
        output = f"{charge.output} by {charge.mechanism}"
        number = str(debit.entry.number)
        rows.append((number, time, str(debit.size), guarantee, output, str(debit.answered), run))
    console.table(title, ("entry", "time", "releases", "each", "of", "kept", "run"), rows)


def _describe_spent(spent_eps: float, further_releases: int | None, total_eps: float) -> str:
    """Return a sentence on how much of a budget was spent.

    Args:
        spent_eps: eps that was spent so far.
        further_releases: the number of further releases, with the last one's guarantee, that the
            remaining budget allows; None: nothing was released yet.
        total_eps: the eps of the whole budget.
    """
    if further_releases is None:
        return "spent: nothing of this ledger's budget so far"
    count = (
        f"{further_releases:,}"
        if further_releases < MAX_COUNTED_RELEASES
        else "more than a billion"
    )
    share = 100 * spent_eps / total_eps
    return (
        f"spent: eps = {spent_eps:.4g} of {total_eps:g} ({share:.3g} %); the rest pays for this "
        f"number of further releases like the last one: {count}"
    )


def _describe_remaining(remaining: RemainingBudget) -> str:
    """Return a sentence on which kinds of releases still fit into a ledger."""
    sentence = remaining.sentence()
    if not sentence:
        return "no further release fits into this ledger, whatever its eps"
    if not remaining.labels_eps or not remaining.gaussian_eps:
        return sentence
    return (
        f"{sentence}. A release of the one kind leaves less room for the other, or none "
        "(docs/releasing_reference.md)"
    )


def _verify(config: LedgerConfig, console: Console) -> dict[str, Any]:
    """Check a ledger's whole chain, compute the cost of each debit again, and print the result."""
    with Ledger.open(config.path, config.second_head, writing=False) as ledger:
        book = ledger.verify(config.noted_head)
        entries = book.last.number
        debits = book.kind_counts["debit"]
        answers = book.answered
        limit = describe_budget(ledger.population.allowance)
        console.say(
            f"{ledger.path}: no problem found. Number of entries: {entries}, each of which "
            f"contains the hash of the previous one. Number of debits: {debits}; agt computed "
            f"their costs again, and together they are within the budget of {limit}. Stored "
            f"answers: {answers}"
        )
        state = _print_state(ledger, console)
        counts = {"entries": entries, "debits": debits, "answers": answers}
        return {**state, "verified": True, **counts}
