"""The next state of a run, written beside it as a whole record, and then put in its place (swap.py).

Use::

    with hold(folder):
        run = open_run(folder, "train")
        with Successor(run) as record:          # a RunRecord of "train"; an error leaves the run as it was
            ...                                 # write_trained(record, ...), record.environment(...), record.report(...)
            record.write(LOG, log.append(...after=record.state...).content)
            digest = record.finish()
        put(folder)                             # from here on it is done
"""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from agt.disk import write_atomic
from agt.manifest import NAME as MANIFEST
from agt.manifest import Manifest
from agt.models.store import as_json
from agt.unlearning.log import state_of
from agt_cli.report.finished import FinishedRun
from agt_cli.report.record import RunRecord
from agt_cli.report.swap import NEXT, put


class Successor(RunRecord):
    """A record of the run's next state: a training record, made by ``agt unlearn``.

    It keeps the run's configuration, when the run was begun, with what command line, and where its data files lay. Its
    env.json says beside that which digests it succeeds, the oldest first, and when each gave way.

    Args:
        run: as it is now; the caller holds it (``swap.hold``).
    """

    def __init__(self, run: FinishedRun) -> None:
        super().__init__(run.folder / NEXT, "train", run.config)
        self.run = run

    def __enter__(self) -> "Successor":
        shutil.rmtree(self.folder, ignore_errors=True)
        super().__enter__()
        now = self._status["started"]
        self._status |= {"started": self.run.status.get("started", now), "updated": now}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        if error is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def place(self) -> Path:
        """The run's folder, in which its key stays."""
        return self.run.folder

    @property
    def state(self) -> str:
        """The name of the model's state that was written so far (``state_of``): what the log's next entry tells of."""
        return state_of(self._hashes)

    def _history(self, now: str) -> dict[str, object]:
        kept = {key: self.run.environment[key] for key in ("argv", "data_files", "resumed") if key in self.run.environment}
        return kept | _succession(self.run, now)


def amend(run: FinishedRun, files: Mapping[str, bytes], **facts: object) -> str:
    """Give a run some files anew, or more of them, and leave its model as it is; the caller holds it.

    Args:
        files: path -> content: a log with a request that waits, say. The state's name stays.
        facts: for env.json.

    Returns:
        The run's new digest.

    Raises:
        OSError: they cannot be written; nothing is changed then.
    """
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    told = {"env.json": as_json({**run.environment, **_succession(run, now), **facts})}
    content, staged = {**told, **files}, run.folder / NEXT
    hashes = {name: sha256(part).hexdigest() for name, part in content.items()}
    manifest = Manifest(run.manifest.command, {**run.manifest.files, **hashes})
    shutil.rmtree(staged, ignore_errors=True)
    for name, part in (*content.items(), (MANIFEST, manifest.content)):
        write_atomic(staged / name, part)
    put(run.folder)
    return manifest.digest


def _succession(run: FinishedRun, now: str) -> dict[str, object]:
    """What env.json tells of the states before: their digests, and when each gave way."""
    before = run.environment
    return {"succeeds": [*before.get("succeeds", ()), run.digest], "updated": [*before.get("updated", ()), now]}
