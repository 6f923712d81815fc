"""Open the payer of a command's releases: the ledger that was named, or none.

Without a named ledger, nothing may be released about data that a ledger nearby has admitted.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agt.errors import AgtError, ConfigError
from agt.ledger.ledger import (
    SAME_IDS,
    Exhausted,
    Ledger,
    MatchingTable,
    find_matching_table,
)
from agt.ledger.ledger_list import find_ledgers_elsewhere, put_on_list
from agt.ledger.payer import LedgerPayer, NoPayer, ProtectedPeople
from agt.ledger.tables import AdmittedTable, sample_names
from agt.mechanisms.accounts import Uncounted
from agt_cli.ledger_files import FOLDER, NO_LEDGER, VARIABLE, require_ledger
from agt_cli.process import write_line
from agt_cli.releasing.ledgers import people_of_run, say_skipped, second_head, unit_of
from agt_cli.report.finished import Run

if TYPE_CHECKING:  # a ledger can be looked at without what trains
    from agt.data.dataset import Dataset
    from agt_cli.report.record import RunRecord
    from agt_cli.runs.prepare import RunSettings


@contextmanager
def payer_of(
    setting: object, people: ProtectedPeople, record: "RunRecord", run: str = ""
) -> Iterator[NoPayer | LedgerPayer]:
    """Open the payer of releases about some data, and record the ledger's name in env.json.

    The name is not recorded if none was named. The payer is closed at the end of the context.

    Args:
        setting: the setting ``ledger``; None: the environment's AGT_LEDGER is used, if it is set.
        people: the data that releases are about, and the relation.
        record: the record of the release; its env.json is changed.
        run: the digest of the training run, or of the draw, that is released from; empty: none.

    Yields:
        The ledger that pays, or a payer that counts nothing and says why no ledger does.

    Raises:
        ConfigError: the ledger does not exist, or is about other data or another relation; or no
            ledger was named, but one that agt knows of has admitted these data; or a second ledger
            beside the one that was named has.
        CheckError: a ledger's file was changed after it was written.
    """
    name = os.environ.get(VARIABLE) or None
    if setting is not None:
        name = str(setting)
    if name is None:
        yield _no_payer_where_no_ledger_is_known(people)
    elif name == NO_LEDGER:
        if setting is None:
            # The environment named it, and no other file of the record says so.
            record.environment(ledger=NO_LEDGER)
        yield _no_payer_as_declared(people)
    else:
        with _open_ledger_payer(name, people, record, run) as payer:
            yield payer


def _no_payer_where_no_ledger_is_known(people: ProtectedPeople) -> NoPayer:
    """Return the payer of a release for which no ledger was named, and which none may count.

    Args:
        people: the data that the release is about.

    Raises:
        ConfigError: a ledger that agt knows of has admitted these data.
        AgtError: a file in the working directory cannot be read, and may be such a ledger.
    """
    found = ledgers_of(people)
    if found.holding:
        raise _ledger_not_named(people.table.name, found.holding)
    if found.errors:
        first = found.errors[0]
        raise type(first)(f"{first}. To release without a ledger, give ledger={NO_LEDGER}")
    return NoPayer(Uncounted("unnamed"))


def _no_payer_as_declared(people: ProtectedPeople) -> NoPayer:
    """Return the payer of a release whose owner declared that no ledger is to count it.

    Args:
        people: the data that the release is about; the claim names the ledgers that hold them.
    """
    found = ledgers_of(people)
    # Claims name no path of the owner's machine.
    names = tuple(Path(name).stem for name in found.holding)
    return NoPayer(Uncounted("declined", names, bool(found.errors)))


@contextmanager
def _open_ledger_payer(
    name: str, people: ProtectedPeople, record: "RunRecord", run: str
) -> Iterator[LedgerPayer]:
    """Open the payer of a ledger that was named; see ``payer_of`` for what is raised.

    Args:
        name: the ledger, as the setting ``ledger`` takes it.
        people: the data that releases are about, and the relation.
        record: the record of the release; its env.json gets the ledger's name.
        run: the digest of the training run, or of the draw, that is released from; empty: none.
    """
    path = require_ledger(name)
    say_skipped(path.parent)
    with Ledger.open(path, second_head()) as ledger:
        note = put_on_list(ledger)
        if note:
            write_line(note, "stderr")
        payer = LedgerPayer.checked(ledger, people, run)
        record.environment(ledger=name)
        try:
            yield payer
        except Exhausted as error:
            outputs = Path(str(record.config.get("output_dir") or "."))
            raise _with_free_answers(error, outputs, ledger) from None


def _with_free_answers(error: Exhausted, outputs: Path, ledger: Ledger) -> Exhausted:
    """Return an error about a spent budget that says what answers without more budget.

    Args:
        error: the error.
        outputs: the folder of runs.
        ledger: the ledger whose budget is spent.
    """
    from agt_cli.releasing.spent import free_answers  # loads what writes records

    answers = free_answers(outputs, ledger.population.name)
    return Exhausted(f"{error}. {answers}", error.result)


def _ledger_not_named(dataset: str, holding: Mapping[str, MatchingTable]) -> ConfigError:
    """Return the refusal of a release without ``ledger=``, where a ledger may count its people.

    Args:
        dataset: the name of the table that the release is about.
        holding: name of a ledger -> the table for which it may count these people; at least one.
    """
    first, match = next(iter(holding.items()))
    if all(matching_table.by_names for matching_table in holding.values()):
        return ConfigError(
            f"ledger: is this one of the people of the ledger {first}? {SAME_IDS} "
            f"The table {dataset} and a table of that ledger have the same {match.shared}. If "
            f"these are the same people, give ledger={first}, so that this ledger counts "
            "the release. Otherwise open a ledger of their own with agt ledger init NAME "
            "run=FOLDER total.eps=EPS total.delta=DELTA another_population=true, and give "
            f"ledger=NAME. To release without a ledger, give ledger={NO_LEDGER}"
        )
    ledgers = ", ".join(holding)
    return ConfigError(
        f"ledger: the people of {dataset} are in the ledger of {ledgers}: give "
        f"ledger={first}, so that this ledger counts the release. To release without a "
        f"ledger, give ledger={NO_LEDGER}"
    )


def people_of(
    loaded: "Dataset", settings: "RunSettings", config: Mapping[str, Any]
) -> ProtectedPeople:
    """Return the table and the relation of a training run that releases its own noisy weights.

    Args:
        loaded: the dataset of the run.
        settings: the settings of the run.
        config: the configuration that the settings come from.
    """
    from agt_cli.runs.prepare import data_files  # loads PyTorch

    files = data_files(settings.source)
    hashes = [file["sha256"] for file in files.values() if "sha256" in file]
    people = sample_names(loaded.train.units)
    table = AdmittedTable(
        loaded.name, loaded.digest, tuple(sorted(hashes)), unit_of(config), people=people
    )
    return ProtectedPeople(table, settings.relation.name)


def counting_ledger(run: Run) -> str | None:
    """Return the ledger in the working directory that counts releases of a training run.

    Args:
        run: the training run.

    Returns:
        As ``ledger=`` takes it. None: there is none, or the environment names one; also where a
        ledger only has the same names, which may be other people's.
    """
    if os.environ.get(VARIABLE) or not Path(FOLDER).is_dir():
        return None
    with suppress(AgtError):
        holding = ledgers_of(people_of_run(run)).holding
        return next((name for name, match in holding.items() if not match.by_names), None)
    return None


class FoundLedgers(NamedTuple):
    """The ledgers that agt knows of, as far as they are about a table.

    Attributes:
        holding: the names of ledgers that have admitted the table (of those in other folders, the
            paths), each with the admitted table.
        errors: the errors of files in the working directory that could not be read as ledgers,
            which may have admitted the table as well.
    """

    holding: dict[str, MatchingTable]
    errors: list[AgtError]


def ledgers_of(people: ProtectedPeople) -> FoundLedgers:
    """Look for ledgers that have admitted a table, first in the working directory.

    Files of other programs there are named on stderr.

    Args:
        people: the table.
    """
    holding: dict[str, MatchingTable] = {}
    errors: list[AgtError] = []
    try:
        paths = say_skipped(Path(FOLDER))
    except AgtError as error:
        return FoundLedgers({}, [error])
    for path in paths:
        try:
            match = find_matching_table(path, people.table)
            if match is not None:
                holding[path.stem] = match
        except AgtError as error:
            errors.append(error)
    elsewhere = find_ledgers_elsewhere(Path(FOLDER), people.table)
    holding.update((str(path), match) for path, match in elsewhere.items())
    return FoundLedgers(holding, errors)
