"""A finished run's requests to erase, as whoever loads its data or answers from it needs them.

Formal guarantees
    The data of a run is what it was trained on without every record that its log names, carried out
    or waiting. So its digest is the same whether the owner has deleted those rows from the table or
    not (agt.data.erasure), and it is the digest that the run records from the request on: a request
    that waits writes it, too.
"""

from dataclasses import replace

import numpy as np

from agt.data.erasure import IsErased, never
from agt.data.records import Records
from agt.errors import counted
from agt.store.folder import broken_as_config_error
from agt_cli.releasing.ledgers import EARLIER, PEOPLE, veiled
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.runs.prepare import (
    Prepared,
    RunSettings,
    prepare,
    run_without_records,
)
from agt_cli.unlearn.log import SIZE, HashKey, Log, places

ALIKE = "read_alike"
"""In env.json: the run's digests in earlier states whose records were read by the same constants
as they are now.
"""


def gone_of(run: Run) -> IsErased:
    """Which records a run's log names.

    Raises:
        ConfigError: the log is not what was written, or its key is gone.
    """
    log = Log.of(run)
    return named(key_of(run), log.erased | log.waiting) if log.entries else never


def key_of(run: Run) -> HashKey:
    """The key that a run's log was written with. Raises ConfigError: it is gone, or another."""
    with broken_as_config_error(run.folder, run.key):
        return Log.of(run).check_key(HashKey.of(run.folder))


def named(key: HashKey, hashes: frozenset[str]) -> IsErased:
    """Which records have one of these keyed hashes."""
    wanted = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=np.uint8).reshape(-1, SIZE)

    def gone(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
        marked = np.zeros(len(ids), dtype=bool)
        marked[places(key.names(ids, "record"), wanted)] = True
        return marked

    return gone


def prepare_without(
    run: Run, settings: RunSettings, console: Console, asked: frozenset[str] = frozenset()
) -> tuple[Prepared, Records]:
    """(the data of a run's next state; the records that it has not, the present state has, and the
    data still has).

    ``Prepared.untouched`` says whether every other record is as it was in the present state: where
    it is not held, whatever does not train again from this data says nothing about training without
    the erased records.

    Args:
        asked: keyed hashes of the records that are asked for now; those that wait go with them.

    Raises:
        DataMissing, DataError: as ``agt.data.erasure.load_without_erased``.
    """
    log, key, told = Log.of(run), key_of(run), run_without_records(run, settings)
    before = None if told is None else told.settled.get("settled", {})
    prepared = prepare(settings, console, named(key, log.erased | log.waiting | asked), before)
    erased = prepared.erased.take(
        ~named(key, log.erased)(prepared.erased.ids, prepared.erased.units)
    )
    return replace(prepared, erased=erased), erased


def environment_facts(run: Run, prepared: Prepared) -> dict[str, object]:
    """What env.json of a run's next state has of its data, and of that of the states before.

    Args:
        run: as it is now.
        prepared: the data of the next state.
    """
    before, key = run.environment, HashKey.of(run.folder)
    return {
        **({PEOPLE: veiled(prepared.loaded, key)} if key else {}),
        "dataset": prepared.dataset.name,
        "data_digest": prepared.loaded.digest,
        "features_digest": prepared.dataset.digest,
        EARLIER: list(dict.fromkeys([*before.get(EARLIER, ()), str(before["data_digest"])])),
        ALIKE: [*before.get(ALIKE, ()), run.digest] if prepared.untouched.held else [],
    }


def people(units: int) -> str:
    return counted(units, "person", "people")
