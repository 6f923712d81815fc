"""A finished run's requests to erase, as whoever loads its data or answers from it needs them.

Formal guarantees
    The data of a run is what it was trained on without every record that its log names, carried out or waiting. So its
    digest is the same whether the owner has deleted those rows from the table or not (agt.data.erasure), and it is the
    digest that the run records from the request on: a request that waits writes it, too.
"""

import numpy as np

from agt.data.dataset import Records
from agt.data.erasure import Gone, nobody
from agt.folder import refusing
from agt.unlearning.index import SIZE, places
from agt.unlearning.keys import Key
from agt.unlearning.log import Log
from agt_cli.report.console import Console
from agt_cli.report.finished import FinishedRun
from agt_cli.runs.prepare import Prepared, RunSettings, prepare
from agt_cli.runs.source import kept

EARLIER = "earlier_data"
"""In env.json: the digests of the data of this run's earlier states, by which a ledger knows its people."""


def gone_of(run: FinishedRun) -> Gone:
    """Which records a run's log names.

    Raises:
        ConfigError: the log is not what was written, or its key is gone.
    """
    log = Log.of(run)
    if not log.entries:
        return nobody
    with refusing(run.folder, run.key):
        key = log.check_key(Key.of(run.folder))
    return named(key, log.erased | log.waiting)


def named(key: Key, hashes: frozenset[str]) -> Gone:
    """Which records have one of these keyed hashes."""
    wanted = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=np.uint8).reshape(-1, SIZE)

    def gone(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
        marked = np.zeros(len(ids), dtype=bool)
        marked[places(key.names(ids, "record"), wanted)] = True
        return marked

    return gone


def prepare_without(run: FinishedRun, settings: RunSettings, console: Console, gone: Gone) -> tuple[Prepared, Records]:
    """(the data of an update, of which the erased records are no longer a part; those that the data still has).

    ``Prepared.untouched`` says whether every other record is as it was in the state that the update starts from: where it
    is not held, whatever does not train again from this data says nothing about training without the erased records.

    Args:
        gone: every record that is gone once the update is made.

    Raises:
        DataMissing, DataError: as ``agt.data.erasure.part``.
    """
    told = kept(run, settings)
    prepared = prepare(settings, console, gone, None if told is None else told.settled.get("settled", {}))
    return prepared, prepared.erased


def earlier_data(run: FinishedRun) -> dict[str, list[str]]:
    """What env.json of a run's next state has of the data of those before it."""
    known = [*run.environment.get(EARLIER, ()), str(run.environment["data_digest"])]
    return {EARLIER: list(dict.fromkeys(known))}


def waiting_units(run: FinishedRun) -> int:
    """How many units asked to be erased and are still in the run's state."""
    return len(Log.of(run).waiting_units)
