"""Which payer a command's releases are paid from: the ledger that was named, or none, where the
data is in no ledger.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agt.data.dataset import Dataset
from agt.errors import AgtError, ConfigError
from agt.ledger.known import put_on_list
from agt.ledger.ledger import Ledger, find_matching_table
from agt.ledger.payer import LedgerPayer, NoPayer, ProtectedPeople
from agt.ledger.tables import AdmittedTable, sample_names
from agt.mechanisms.accounts import Uncounted
from agt_cli.ledger_files import FOLDER, NO_LEDGER, VARIABLE, existing_ledger
from agt_cli.process import put
from agt_cli.releasing.ledgers import say_skipped, second_head, unit_of
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import RunSettings, data_files


@contextmanager
def payer_of(
    setting: object, people: ProtectedPeople, record: RunRecord, run: str = ""
) -> Iterator[NoPayer | LedgerPayer]:
    """Open what releases about some data are paid from.

    Args:
        setting: ``ledger``, or else the environment's AGT_LEDGER; null: none was named.
        people: whose data it is, and under which relation.
        record: says in env.json which ledger it was.
        run: the digest of the training run, or of the draw, that is released from; empty: none.

    Raises:
        ConfigError: the ledger is not there, or its population has other data or another relation;
            or none was named, and a ledger in the working directory has these people; or a second
            ledger beside the one that was named has.
        CheckError: a ledger is not what was written.
    """
    name = str(setting) if setting is not None else os.environ.get(VARIABLE) or None
    if name is None:
        holding, refusals = _ledgers_of(people)
        if holding:
            dataset = people.table.name
            ledgers = ", ".join(holding)
            first = holding[0]
            raise ConfigError(
                f"ledger: the people of {dataset} are in the ledger of {ledgers}: give "
                f"ledger={first}, so that this ledger counts the release. To release without a "
                f"ledger, give ledger={NO_LEDGER}"
            )
        for error in refusals:
            raise type(error)(f"{error}. To release without a ledger, give ledger={NO_LEDGER}")
        yield NoPayer(Uncounted("unnamed"))
    elif name == NO_LEDGER:
        holding, refusals = _ledgers_of(people)
        if setting is None:
            # named by the environment, which no other file says
            record.environment(ledger=NO_LEDGER)
        yield NoPayer(Uncounted("declined", tuple(holding), bool(refusals)))
    else:
        path = existing_ledger(name)
        say_skipped(path.parent)
        with Ledger.open(path, second_head()) as ledger:
            if note := put_on_list(ledger):
                put(note, "stderr")
            payer = LedgerPayer.checked(ledger, people, run)
            record.environment(ledger=name)
            yield payer


def people_of(loaded: Dataset, settings: RunSettings, config: Mapping[str, Any]) -> ProtectedPeople:
    """Whose data a training run is about to read for a release of its own, and how it counts them.

    Args:
        config: of the run, which the settings are from.
    """
    hashes = (file["sha256"] for file in data_files(settings.source).values() if "sha256" in file)
    people = sample_names(loaded.train.units)
    table = AdmittedTable(
        loaded.name, loaded.digest, tuple(sorted(hashes)), unit_of(config), people=people
    )
    return ProtectedPeople(table, settings.relation.name)


def _ledgers_of(people: ProtectedPeople) -> tuple[list[str], list[AgtError]]:
    """(names, refusals): the ledgers in the working directory that have these people, and why
    others cannot be opened.
    """
    names, refusals = list[str](), list[AgtError]()
    try:
        paths = say_skipped(Path(FOLDER))
    except AgtError as error:
        return [], [error]
    for path in paths:
        try:
            names += [path.stem] if find_matching_table(path, people.table) else []
        except AgtError as error:
            refusals.append(error)
    return names, refusals
