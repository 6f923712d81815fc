"""Load the data of a run without the records that its request log names.

Formal guarantees
    * The data of a run are what it was trained on without every record that its log names, whether
      the request was carried out or is pending. So their digest is the same whether or not the
      owner has deleted these rows from the table (agt.data.erasure). The run records this digest
      from the request on, also if the request is pending.
"""

from dataclasses import replace

import numpy as np

from agt.data.erasure import IsErased, never
from agt.data.records import Records
from agt.errors import counted
from agt.store.folder import broken_as_config_error
from agt_cli.releasing.ledgers import EARLIER, PEOPLE, encrypt_unit_sample
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.runs.prepare import (
    Prepared,
    RunSettings,
    prepare,
    run_without_records,
)
from agt_cli.unlearn.log import SIZE, HashKey, Log, are_among

ALIKE = "read_alike"
"""In env.json: the run's digests in earlier states whose records were read by the same constants
as they are now.
"""


def gone_of(run: Run) -> IsErased:
    """Return a predicate for the records that a run's log names, erased and pending ones.

    Raises:
        ConfigError: the log was altered, or its key is missing.
    """
    log = Log.of(run)
    return named(key_of(run), log.erased | log.waiting) if log.entries else never


def key_of(run: Run) -> HashKey:
    """Return the key with which a run's log was written.

    Raises:
        ConfigError: the key is missing, or the log was written with another one.
    """
    with broken_as_config_error(run.folder, run.key):
        return Log.of(run).check_key(HashKey.of(run.folder))


def named(key: HashKey, hashes: frozenset[str]) -> IsErased:
    """Return a predicate for the records whose ids have one of several keyed hashes.

    Args:
        key: the key of the hashes.
        hashes: in hexadecimal digits, as a log lists them.
    """
    wanted = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=np.uint8).reshape(-1, SIZE)

    def is_named(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
        return are_among(key.names(ids, "record"), wanted)

    return is_named


def prepare_without(
    run: Run, settings: RunSettings, console: Console, asked: frozenset[str] = frozenset()
) -> tuple[Prepared, Records]:
    """Load the training data that remain once all requests for erasure are carried out.

    These are the requests that were carried out before, those that are pending, and the present
    one. ``Prepared.untouched`` of the result says whether every other record is the same as in the
    run's present state. If it is not, the model has to be trained again from these data.

    Args:
        run: the run in its present state.
        settings: the settings of the run.
        console: prints progress.
        asked: keyed hashes of the records that are requested now.

    Returns:
        The remaining data; and the newly erased records, which are those of the pending and the
        present requests that are still in the data. ``Prepared.erased`` has the same records.

    Raises:
        DataMissing, DataError: as ``agt.data.erasure.load_without_erased``.
    """
    log = Log.of(run)
    key = key_of(run)
    stored = run_without_records(run, settings)
    constants = None if stored is None else stored.settled.get("settled", {})
    is_erased = named(key, log.erased | log.waiting | asked)
    prepared = prepare(settings, console, is_erased, constants)
    all_erased = prepared.erased
    erased_before = named(key, log.erased)(all_erased.ids, all_erased.units)
    erased = all_erased.take(~erased_before)
    return replace(prepared, erased=erased), erased


def environment_facts(run: Run, prepared: Prepared) -> dict[str, object]:
    """Return the entries of env.json about the data of a run's next state and of earlier ones.

    Args:
        run: the run in its present state.
        prepared: the data of the next state.
    """
    before = run.environment
    key = HashKey.of(run.folder)
    earlier_digests = [*before.get(EARLIER, ()), str(before["data_digest"])]
    return {
        **({PEOPLE: encrypt_unit_sample(prepared.loaded, key)} if key else {}),
        "dataset": prepared.dataset.name,
        "data_digest": prepared.loaded.digest,
        "features_digest": prepared.dataset.digest,
        EARLIER: list(dict.fromkeys(earlier_digests)),
        ALIKE: [*before.get(ALIKE, ()), run.digest] if prepared.untouched.held else [],
    }


def people(units: int) -> str:
    """Return a number of people in words, such as "3 people"."""
    return counted(units, "person", "people")
