"""A finished run's requests to erase, as whoever loads its data or answers from it needs them.

Formal guarantees
    The data of a run is what it was trained on without every record that its log names, carried out or waiting. So its
    digest is the same whether the owner has deleted those rows from the table or not (agt.data.erasure), and it is the
    digest that the run records from the request on: a request that waits writes it, too.
"""

from dataclasses import dataclass, replace

import numpy as np

from agt.data.dataset import Records
from agt.data.erasure import Gone, nobody
from agt.folder import refusing
from agt.manifest import NAME as MANIFEST
from agt.manifest import Broken, Manifest
from agt.unlearning.index import SIZE, places
from agt.unlearning.keys import Key
from agt.unlearning.log import Log
from agt_cli.report.console import Console
from agt_cli.report.finished import FinishedRun
from agt_cli.report.swap import unsettled
from agt_cli.runs.ledger import EARLIER
from agt_cli.runs.prepare import Prepared, RunSettings, prepare
from agt_cli.runs.source import kept

ALIKE = "read_alike"
"""In env.json: the run's digests in earlier states whose records were read by the same constants as they are now."""


def gone_of(run: FinishedRun) -> Gone:
    """Which records a run's log names.

    Raises:
        ConfigError: the log is not what was written, or its key is gone.
    """
    log = Log.of(run)
    return named(key_of(run), log.erased | log.waiting) if log.entries else nobody


def key_of(run: FinishedRun) -> Key:
    """The key that a run's log was written with. Raises ConfigError: it is gone, or another."""
    with refusing(run.folder, run.key):
        return Log.of(run).check_key(Key.of(run.folder))


def named(key: Key, hashes: frozenset[str]) -> Gone:
    """Which records have one of these keyed hashes."""
    wanted = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=np.uint8).reshape(-1, SIZE)

    def gone(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
        marked = np.zeros(len(ids), dtype=bool)
        marked[places(key.names(ids, "record"), wanted)] = True
        return marked

    return gone


def prepare_without(
    run: FinishedRun, settings: RunSettings, console: Console, asked: frozenset[str] = frozenset()
) -> tuple[Prepared, Records]:
    """(the data of a run's next state; the records that it has not, the present state has, and the data still has).

    ``Prepared.untouched`` says whether every other record is as it was in the present state: where it is not held, whatever
    does not train again from this data says nothing about training without the erased records.

    Args:
        asked: keyed hashes of the records that are asked for now; those that wait go with them.

    Raises:
        DataMissing, DataError: as ``agt.data.erasure.part``.
    """
    log, key, told = Log.of(run), key_of(run), kept(run, settings)
    before = None if told is None else told.settled.get("settled", {})
    prepared = prepare(settings, console, named(key, log.erased | log.waiting | asked), before)
    erased = prepared.erased.take(~named(key, log.erased)(prepared.erased.ids, prepared.erased.units))
    return replace(prepared, erased=erased), erased


def told(run: FinishedRun, prepared: Prepared) -> dict[str, object]:
    """What env.json of a run's next state has of its data, and of that of the states before.

    Args:
        run: as it is now.
        prepared: the data of the next state.
    """
    before = run.environment
    return {
        "dataset": prepared.dataset.name,
        "data_digest": prepared.loaded.digest,
        "features_digest": prepared.dataset.digest,
        EARLIER: list(dict.fromkeys([*before.get(EARLIER, ()), str(before["data_digest"])])),
        ALIKE: [*before.get(ALIKE, ()), run.digest] if prepared.untouched.held else [],
    }


@dataclass
class Watch:
    """Whether a run is still what it was when it was opened: a look at its manifest's time, as often as one likes.

    Attributes:
        run: as it was opened.
        seen: (time, size, number) of a manifest that was read and is of this run; None: none was read.
    """

    run: FinishedRun
    seen: tuple[int, int, int] | None = None

    @property
    def changed(self) -> bool:
        """A change that is decided and not yet carried through counts, too."""
        path = self.run.folder / MANIFEST
        try:
            state = path.stat()
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen != self.seen:
                if Manifest.read(path.read_bytes()).digest != self.run.digest:
                    return True
                self.seen = seen
        except (OSError, Broken):
            return True
        return unsettled(self.run.folder)
