"""A world that stands still, for golden records: Python imports this module at start, where it is
on PYTHONPATH.

Everything that two runs of the same command legitimately differ in is fixed here, at its source, as
hashes of one file are written into others; each with its reason:

    the date            GOLDEN_NOW: folders, records and ledgers are named and dated by it
    durations           none passes, as far as agt's own modules see: metrics and states have them
    the system's draws  a stream for each command (GOLDEN_SEED) and each size of a draw, for agt's
    own modules alone
    the revision        ``git`` finds the same everywhere: env.json names it
    digests of code     the same everywhere: the code is what changes
    hashes of pages     one for all pages and pictures, which manifests list: they may change
    fsync               left out: it takes time, and no power is cut
"""

import datetime
import hashlib
import os
import random
import subprocess
import sys
import time
import types
from importlib.machinery import PathFinder

OURS = ("agt", "agt_cli", "agt_audit", "experiments", "hydra_plugins", "papers")
PASSING_ON = ("random", "secrets", "uuid", "sitecustomize")
DIGESTS_OF_CODE = ("code_digest", "package_digest")
PROSE = (b"# ", b"<!doctype html", b"<!DOCTYPE html", b"\x89PNG", b"%PDF")
TICKS = ("monotonic", "perf_counter", "time", "process_time", "thread_time")
real_datetime = datetime.datetime
real_sha256 = hashlib.sha256
real_new = hashlib.new
drawn: dict[int, int] = {}


def asked_by_us() -> bool:
    """Whether one of agt's own modules called what called this."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in PASSING_ON:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] in OURS


class AnyDatetime(type):
    """Takes every datetime for one of its classes'."""

    def __instancecheck__(cls, value):
        return isinstance(value, real_datetime)


class FixedDatetime(real_datetime, metaclass=AnyDatetime):
    """A datetime whose clock stands at GOLDEN_NOW (ISO, UTC)."""

    @classmethod
    def now(cls, tz=None):
        fixed = cls.fromisoformat(os.environ["GOLDEN_NOW"])
        return fixed.replace(tzinfo=None) if tz is None else fixed.astimezone(tz)


def fixed_clock(real):
    """A clock that tells agt's modules the same time always, and everybody else the right one."""
    return lambda: 1000.0 if asked_by_us() else real()


def fixed_draws(real):
    """``os.urandom``, with draws that repeat for agt's modules."""

    def urandom(size):
        if not asked_by_us():
            return real(size)
        drawn[size] = drawn.get(size, 0) + 1
        words = f"{os.environ.get('GOLDEN_SEED')} {size} {drawn[size]}".encode()
        return hashlib.shake_256(words).digest(size)

    return urandom


class Sha256:
    """SHA-256, which takes all pages and pictures for one."""

    name = "sha256"
    digest_size = 32
    block_size = 64

    def __init__(self, content=b"", *, usedforsecurity=True):
        self._digest_of_queries, self._start = real_sha256(), b""
        self.update(content)

    def update(self, content):
        if len(self._start) < 20:
            view = memoryview(content)
            self._start += bytes(view.cast("B")[:20]) if view.nbytes else b""
        self._digest_of_queries.update(content)

    def copy(self):
        other = Sha256()
        other._digest_of_queries, other._start = self._digest_of_queries.copy(), self._start
        return other

    def digest(self):
        return (
            real_sha256(b"prose").digest()
            if self._start.startswith(PROSE)
            else self._digest_of_queries.digest()
        )

    def hexdigest(self):
        return self.digest().hex()


def fixed_git(real):
    """``subprocess.run``, for which every source tree has the same revision, without changes."""

    def run(command, *rest, **options):
        if not isinstance(command, str) and command[:1] == ["git"]:
            return subprocess.CompletedProcess(
                command, 0, "0" * 40 if "rev-parse" in command else "", ""
            )
        return real(command, *rest, **options)

    return run


class FixedModules:
    """Finds modules as Python does, and fixes what ours, and Hydra's, hold in their names once they
    are loaded.

    Compiled modules of others rely on the true ``datetime``.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        """As ``PathFinder``; None for what is not to be fixed."""
        spec = (
            PathFinder.find_spec(name, path, target)
            if name.partition(".")[0] in (*OURS, "hydra")
            else None
        )
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), fix(module))[0]
        return spec


def fix(module):
    """Its clock, and the functions that it defines for digests of code."""
    held = vars(module)
    for real, fixed in ((real_datetime, FixedDatetime), (datetime, fixed_module)):
        held.update({name: fixed for name, value in list(held.items()) if value is real})
    for name in DIGESTS_OF_CODE:
        if getattr(held.get(name), "__module__", None) == module.__name__:
            held[name] = lambda *_: "c0de" * 16


if "GOLDEN_NOW" in os.environ:
    fixed_module = types.ModuleType("datetime")
    vars(fixed_module).update({**vars(datetime), "datetime": FixedDatetime})
    for tick in TICKS:
        setattr(time, tick, fixed_clock(getattr(time, tick)))
    os.urandom = random._urandom = fixed_draws(os.urandom)
    hashlib.sha256 = Sha256
    hashlib.new = lambda name, *rest, **more: (
        Sha256(*rest) if name == "sha256" else real_new(name, *rest, **more)
    )
    subprocess.run = fixed_git(subprocess.run)
    os.fsync = lambda file: None
    sys.meta_path.insert(0, FixedModules)
