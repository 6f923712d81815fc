"""Digests of the code and the machine that results depend on, beside their settings and data.

A stored result is named by these digests, so that it is found again only where the computation
would give the same result. Code is read, not imported: all source of agt, agt_cli and the packages
of the user's own ``_target_`` classes. That is more than the code that runs; the price is that some
results are computed again after an edit that did not affect them. Other packages (numpy, torch) are
identified by their versions.
"""

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from agt.errors import AgtError
from agt.targets import FORMER_NAMES, targets_of

PACKAGES = ("torch", "numpy", "numba", "scipy", "scikit-learn")
"""Packages whose versions are recorded instead of their source."""
CODE = "agt's code"
"""The key in ``surroundings`` of the digest of this library's source; messages show it."""
_PACKAGES_AS_IMPORTED = {"torch", "numpy", "numba", "scipy", "sklearn"}
"""``PACKAGES`` by the names under which they are imported."""
_SOURCE_SUFFIXES = {".py", ".so", ".pyd"}
_LIBRARY = __name__.partition(".")[0]
PAPERS = "agt_cli._experiments"
"""The package that reproduces the papers, which no other package's digest covers."""


def targets(config: object) -> tuple[str, ...]:
    """Return the modules that the ``_target_``s of a configuration name, each once, sorted.

    Those of ``PACKAGES`` are left out, because their versions are recorded.

    Args:
        config: nested mappings and lists, at any depth.
    """
    names = [FORMER_NAMES.get(target, target) for target in targets_of(config)]
    modules = {name.rpartition(".")[0] for name in names}
    recorded_modules = [
        name for name in modules if name.partition(".")[0] not in _PACKAGES_AS_IMPORTED
    ]
    return tuple(sorted(recorded_modules))


def code_digest(modules: Iterable[str]) -> str:
    """Return a hash of all the source of this library and of the packages of some modules.

    Args:
        modules: dotted names.

    Raises:
        AgtError: a package is not in files.
    """
    packages = {_LIBRARY, *map(package_of, modules)}
    lines = [f"{name} {package_digest(name)}" for name in sorted(packages)]
    return sha256("\n".join(lines).encode()).hexdigest()


def package_of(module: str) -> str:
    """Return the package whose source is the source of a module.

    That is its topmost package, and ``PAPERS`` for modules in there.

    Args:
        module: a dotted name.
    """
    return PAPERS if module.startswith(PAPERS) else module.partition(".")[0]


def package_digest(package: str) -> str:
    """Return a hash of all the source of a package, or of a module in a separate file.

    Args:
        package: the name under which it is imported.

    Raises:
        AgtError: it is not in a file, because only the running program has it.
    """
    roots: list[Path] = []
    with suppress(ImportError, ValueError):
        roots = _source_roots(package)
    if not roots:
        raise AgtError(
            f"the source code of {package} is not in a file: put the class or function into a "
            "module of its own"
        )
    digest = sha256()
    for root in roots:
        files = [root]
        if root.is_dir():
            files = sorted(path for path in root.rglob("*") if path.suffix in _SOURCE_SUFFIXES)
        for path in files:
            name = path.relative_to(root).as_posix()
            content_digest = sha256(path.read_bytes()).hexdigest()
            digest.update(f"{name} {content_digest}\n".encode())
    return digest.hexdigest()


def _source_roots(package: str) -> list[Path]:
    """Return the folders, or the file, of a package's source; none if it is not in files.

    Args:
        package: the name under which it is imported.

    Raises:
        ImportError, ValueError: it cannot be found.
    """
    if package == PAPERS:
        # In a source tree its modules are in another folder, which only the package itself knows.
        locations = list(import_module(package).__path__)
    else:
        spec = None if package == "__main__" else find_spec(package)
        if spec is None:
            return []
        locations = list(spec.submodule_search_locations or [])
        if not locations and spec.origin:
            locations = [spec.origin]
    return [path for path in map(Path, locations) if path.exists()]  # "built-in" is no file


def machine(device: str = "cpu") -> dict[str, str | None]:
    """Return the software versions and the kind of machine, which the bits of a result depend on.

    They are the versions of Python and of the ``PACKAGES``, and the processor and GPU.

    Args:
        device: cpu or cuda, as ``compute.device``.
    """
    import torch

    gpu = None
    if device == "cuda" and torch.cuda.is_available():
        gpu = torch.cuda.get_device_name()
    return {
        "python": platform.python_version(),
        **{name: package_version(name) for name in PACKAGES},
        "system": platform.system(),
        "machine": platform.machine(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "gpu": gpu,
    }


def surroundings(device: str, threads: int | None) -> dict[str, object]:
    """Return the code, machine and threads that the bits of a trained model depend on.

    The keys are phrases that messages show.

    Args:
        device: the value of the setting ``compute.device``.
        threads: the value of the setting ``compute.threads``; None: the system's default.
    """
    of_machine = {f"this machine's {key}": value for key, value in machine(device).items()}
    return {
        CODE: package_digest(_LIBRARY),
        "threads": threads or list(default_threads()),
        **of_machine,
    }


def default_threads() -> tuple[int | None, str | None]:
    """Return the values that set the number of threads where no setting does.

    PyTorch's present number of threads is not read, because the first parallel loop of Numba
    changes that.

    Returns:
        The number of processors that this process may use (None if unknown), and OpenMP's own
        setting (None if not set).
    """
    if hasattr(os, "sched_getaffinity"):  # Linux
        processors: int | None = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count()
    return processors, os.environ.get("OMP_NUM_THREADS")


@cache
def package_version(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    # Imported only here, because it takes a thirtieth of the time of a mistake's answer.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
