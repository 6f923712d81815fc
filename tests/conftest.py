"""Makes ``tests/synthetic.py`` importable from every test, and keeps tiny tensors on one thread."""

import contextlib
import gc
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as agt_cli says, before anything loads OpenMP

import sys
from collections import Counter
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest
import torch
from filelock import FileLock
from hypothesis import settings
from numba.core.dispatcher import Dispatcher

from agt import provenance

if TYPE_CHECKING:
    from museum import FinishedRuns

# the first call of a kernel compiles it
settings.register_profile("agt", deadline=None, derandomize=True)
settings.load_profile("agt")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Thousands of matrices of a few elements are faster without handing them round."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def own_state() -> None:
    """Ledgers that fixtures of several tests make are in no list of ledgers."""
    os.environ["XDG_STATE_HOME"] = os.devnull


@pytest.fixture(autouse=True)
def own_list(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers of other tests about the same data are in no test's list of ledgers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / token_hex(8)))


@pytest.fixture(autouse=True)
def own_releases() -> None:
    """What one test releases about people is no second release of another's."""
    if process := sys.modules.get("agt.ledger.process"):
        process.PROCESS.groups.clear()


@pytest.fixture(autouse=True, scope="session")
def digested_once() -> None:
    """Every training and command hashes all of our source files, which no test changes.

    Packages of tests' own are hashed each time.
    """
    package_digest = provenance.package_digest
    digests = dict[str, str]()

    def digest_of(package: str) -> str:
        if package not in ("agt", "agt_cli", "agt_audit", provenance.PAPERS):
            return package_digest(package)
        if package not in digests:
            digests[package] = package_digest(package)
        return digests[package]

    provenance.package_digest = digest_of


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of several worker processes one compiles a kernel, and the others find it in the cache."""
    whole = Dispatcher.compile
    locks = dict[int, FileLock]()
    lock_file = tmp_path_factory.getbasetemp().parent / "compiling.lock"

    def compiled(self: Dispatcher, signature: object) -> object:
        # a forked process needs a lock of its own
        with locks.setdefault(os.getpid(), FileLock(lock_file)):
            return whole(self, signature)

    Dispatcher.compile = compiled


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before ``-m`` chooses."""
    seen = Counter[str]()
    for item in items:
        if sampled := item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            if seen[test] % sampled.args[0]:
                item.add_marker("sweep")
            seen[test] += 1


def pytest_collection_finish() -> None:
    """Thousands of tests, and what they import, are no rubbish: nobody looks for it among them
    again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> "FinishedRuns":
    """Finished runs of every kind (museum.py): ``finished_runs["train/box"]``,
    ``finished_runs.copy(name, to)``.
    """
    from museum import museum  # loads the command line

    return museum(tmp_path_factory.getbasetemp(), os.environ.get("PYTEST_XDIST_WORKER", "master"))


# An accountant of the test tools brings a logger that keeps the stderr of the moment, which is a
# test's own, and closes it when logging is configured anew: every later test would find its stderr
# closed. It may keep the process's.
with contextlib.suppress(ImportError):
    from absl import logging as absl_logging

    absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__
