"""Load the data of a run without the records that its request log names.

Formal guarantees
    * The data of a run are what it was trained on without every record that its log names, whether
      the request was carried out or is pending. So their digest is the same whether or not the
      owner has deleted these rows from the table (agt.data.erasure). The run records this digest
      from the request on, also if the request is pending.
"""

from dataclasses import replace

import numpy as np

from agt.data.erasure import IsErased, erase_none
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
from agt_cli.unlearn.hash_key import SIZE, HashKey
from agt_cli.unlearn.log import Log
from agt_cli.unlearn.record_index import are_among

SAME_CONSTANTS = "read_alike"
"""In env.json: the run's digests in earlier states whose records were read by the same constants
as they are now.
"""


def erased_predicate(run: Run) -> IsErased:
    """Return a predicate for the records that a run's log names, erased and pending ones.

    Raises:
        ConfigError: the log was altered, or its key is missing.
    """
    log = Log.of(run)
    if not log.entries:
        return erase_none
    return predicate_for_hashes(read_hash_key(run), log.erased | log.waiting)


def read_hash_key(run: Run) -> HashKey:
    """Return the key with which a run's log was written.

    Raises:
        ConfigError: the key is missing, or the log was written with another one.
    """
    with broken_as_config_error(run.folder, run.key):
        return Log.of(run).check_key(HashKey.of(run.folder))


def predicate_for_hashes(key: HashKey, hashes: frozenset[str]) -> IsErased:
    """Return a predicate for the records whose ids have one of several keyed hashes.

    Args:
        key: the key of the hashes.
        hashes: the hashes in hexadecimal digits, as a log lists them.
    """
    digests = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=np.uint8).reshape(-1, SIZE)

    def is_named(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
        return are_among(key.names(ids, "record"), digests)

    return is_named


def prepare_without(
    run: Run, settings: RunSettings, console: Console, requested: frozenset[str]
) -> tuple[Prepared, Records]:
    """Load the training data that remain once all requests for erasure are carried out.

    These are the requests that were carried out before, those that are pending, and the present
    one. ``Prepared.untouched`` of the result says whether every other record is the same as in the
    run's present state. If it is not, the model has to be trained again from these data.

    Args:
        run: the run in its present state.
        settings: the settings of the run.
        console: prints progress.
        requested: keyed hashes of the records that are requested now.

    Returns:
        The remaining data; and the newly erased records, which are those of the pending and the
        present requests that are still in the data. ``Prepared.erased`` has the same records.

    Raises:
        DataMissing, DataError: as ``agt.data.erasure.load_without_erased``.
    """
    log = Log.of(run)
    key = read_hash_key(run)
    stored = run_without_records(run, settings)
    constants = stored.dataset_config.get("settled", {})
    is_erased = predicate_for_hashes(key, log.erased | log.waiting | requested)
    prepared = prepare(settings, console, is_erased, constants)
    all_erased = prepared.erased
    erased_before = predicate_for_hashes(key, log.erased)(all_erased.ids, all_erased.units)
    erased = all_erased.take(~erased_before)
    return replace(prepared, erased=erased), erased


def environment_facts(run: Run, prepared: Prepared) -> dict[str, object]:
    """Return the entries of env.json about the data of a run's next state and of earlier ones.

    Args:
        run: the run in its present state.
        prepared: the data of the next state.
    """
    environment = run.environment
    key = HashKey.of(run.folder)
    earlier_digests = [*environment.get(EARLIER, ()), str(environment["data_digest"])]
    return {
        **({PEOPLE: encrypt_unit_sample(prepared.loaded, key)} if key else {}),
        "dataset": prepared.dataset.name,
        "data_digest": prepared.loaded.digest,
        "features_digest": prepared.dataset.digest,
        EARLIER: list(dict.fromkeys(earlier_digests)),
        SAME_CONSTANTS: [*environment.get(SAME_CONSTANTS, ()), run.digest]
        if prepared.untouched.held
        else [],
    }


def count_people(units: int) -> str:
    """Return a number of people with its noun, such as "3 people"."""
    return counted(units, "person", "people")
