"""What a computed result comes from, beside its settings and data: the code and the machine.

Whoever keeps results names them by these digests, so that a result is found again only where it
would come out the same. Code is read, not imported: all of the packages that take part (agt,
agt_cli, and the package of a user's own ``_target_``). That is more than what runs, which costs a
computation made again after an edit elsewhere. Versions stand for the packages of others (numpy,
torch).
"""

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from agt.errors import AgtError
from agt.targets import current_name, targets_of

PACKAGES = ("torch", "numpy", "numba", "scipy", "scikit-learn")
CODE = "agt's code"  # a word of ``surroundings``
# the same by the names that are imported: versions stand for them
_KNOWN = {"torch", "numpy", "numba", "scipy", "sklearn"}
_SOURCES = {".py", ".so", ".pyd"}
_LIBRARY = __name__.partition(".")[0]
# reproduces the papers; code that computes, and that no other package's digest covers
PAPERS = "agt_cli._experiments"


def targets(config: object) -> tuple[str, ...]:
    """The modules that a configuration's ``_target_``s name, at any depth, each once; without
    those of ``PACKAGES``.
    """
    modules = {current_name(target).rpartition(".")[0] for target in targets_of(config)}
    return tuple(sorted(name for name in modules if name.partition(".")[0] not in _KNOWN))


def code_digest(modules: Iterable[str]) -> str:
    """A hash of all the source of this library, and of the packages that these modules lie in.

    Args:
        modules: dotted names.

    Raises:
        AgtError: a package is not to be found as files.
    """
    packages = {_LIBRARY, *map(package_of, modules)}
    return sha256(
        "\n".join(f"{name} {package_digest(name)}" for name in sorted(packages)).encode()
    ).hexdigest()


def package_of(module: str) -> str:
    """Return the package whose source counts as a module's: its topmost, and for the papers'
    modules theirs.
    """
    return PAPERS if module.startswith(PAPERS) else module.partition(".")[0]


def package_digest(package: str) -> str:
    """A hash of all the source of a package, or of a module in a file of its own.

    Raises AgtError as ``code_digest``.
    """
    roots, h = list[Path](), sha256()
    with suppress(ImportError, ValueError):
        # which only the running program holds
        spec = find_spec(package) if package != "__main__" else None
        places = (
            map(Path, spec.submodule_search_locations or filter(None, [spec.origin]))
            if spec
            else ()
        )
        # in a source tree its modules lie elsewhere, which only the package itself says
        if package == PAPERS:
            places = map(Path, import_module(package).__path__)
        roots = [path for path in places if path.exists()]  # "built-in" is none
    if not roots:
        raise AgtError(
            f"the source code of {package} is not in a file: put the class or function into a "
            "module of its own"
        )
    for root in roots:
        for path in (
            sorted(path for path in root.rglob("*") if path.suffix in _SOURCES)
            if root.is_dir()
            else (root,)
        ):
            h.update(
                f"{path.relative_to(root).as_posix()} "
                f"{sha256(path.read_bytes()).hexdigest()}\n".encode()
            )
    return h.hexdigest()


def machine(device: str = "cpu") -> dict[str, str | None]:
    """What last bits depend on beside code and settings: versions of Python and of what computes,
    and the kind of machine.

    Args:
        device: cpu or cuda, as ``compute.device``.
    """
    import torch

    gpu = torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_available() else None
    kind = {
        "system": platform.system(),
        "machine": platform.machine(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
    }
    return {
        "python": platform.python_version(),
        **{name: package_version(name) for name in PACKAGES},
        **kind,
        "gpu": gpu,
    }


def surroundings(device: str, threads: int | None) -> dict[str, object]:
    """What the last bits of a training depend on beside its settings and its data, each under words
    for a message.

    Args:
        device, threads: as ``compute.device`` and ``compute.threads``.
    """
    known = {f"this machine's {key}": value for key, value in machine(device).items()}
    return {CODE: package_digest(_LIBRARY), "threads": threads or list(default_threads()), **known}


def default_threads() -> tuple[int | None, str | None]:
    """What decides how many threads compute where nobody says: the processors of this process, and
    OpenMP's own setting.

    Not how many PyTorch has just now: Numba's first parallel loop changes that.
    """
    some = hasattr(os, "sched_getaffinity")  # Linux
    return len(os.sched_getaffinity(0)) if some else os.cpu_count(), os.environ.get(
        "OMP_NUM_THREADS"
    )


@cache
def package_version(package: str) -> str | None:
    """The installed version; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
