"""The next state of a run, which takes the place of the one before in the same folder: wholly, or not at all.

    RUN/unlearning/lock      held by the one process that changes the run
    RUN/unlearning/next/     a new state that is being written; it counts for nothing
    RUN/unlearning/commit/   a new state that is whole, and now the run's, whose files are on their way into its folder
    RUN/unlearning/key       the run's secret (agt/unlearning/keys.py); no state's, and never moved

Formal guarantees
    The new state is on the disk, every file and name of it synced, before the one rename from next to commit; so a process
    that ends at any moment, a power cut too, leaves the earlier state or the new one. From the rename on, whoever opens the
    run first brings the files into their places (``settle``). Each step of that may be taken twice: a file that has left
    commit/ is in its place; old files are deleted by the old manifest's list, which stays until all of them are gone; the
    new manifest comes after them, and commit/ goes last. Who reads meanwhile without looking for commit/ compares each file
    with a manifest (manifest.py), and stops at the first of another state: nobody mixes two.

An auditor never writes: where commit/ has a manifest, the audit says that an erasure was carried out and that its files
are not all in their places yet (any other command on the run brings them there), and does not go on; next/ it only notes.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from agt.disk import Lock, is_locked, sync_folder, write_atomic
from agt.errors import ConfigError
from agt.manifest import NAME as MANIFEST
from agt.manifest import Broken, Manifest
from agt.models.store import as_json
from agt.unlearning.log import state_of
from agt_cli.report.finished import FinishedRun
from agt_cli.report.record import RunRecord
from agt_cli.report.swap import COMMIT, HOME, LOCK, NEXT, roll_forward, settle
