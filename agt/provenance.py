"""What a computed result comes from, beside its settings and data: the code, found from its imports, and the machine.

Whoever keeps results names them by these digests, so that a result is found again only where it would come out the same.
Code is read, not imported: from some modules on, every import is followed, at the top of a file or inside a function, as
far as the modules' own packages go (agt_cli, and the package of a user's own ``_target_``). More than what runs may be
found, which costs a computation made again; less is not, unless a module's name is put together while running.
"""

import ast
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.machinery import all_suffixes
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, resolve_name
from pathlib import Path

from agt.errors import AgtError
from agt.settings import current_module

PACKAGES = ("torch", "numpy", "numba", "scipy", "scikit-learn")
CODE = "agt's code"  # a word of ``surroundings``
_KNOWN = {"torch", "numpy", "numba", "scipy", "sklearn"}  # the same by the names that are imported: versions stand for them
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_LIBRARY = __name__.partition(".")[0]
Roots = Mapping[str, Sequence[Path]]
"""For a package's first name, where its modules lie: its folders, or its one file."""


def targets(config: object) -> tuple[str, ...]:
    """The modules that a configuration's ``_target_``s name, at any depth, each once; without those of ``PACKAGES``."""
    modules: set[str] = set()
    nodes = [config]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Mapping):
            modules |= {current_module(str(node["_target_"]).rpartition(".")[0])} if "_target_" in node else set()
            nodes += node.values()
        elif isinstance(node, list | tuple):
            nodes += node
    return tuple(sorted(name for name in modules if name.partition(".")[0] not in _KNOWN))


def code_digest(modules: Iterable[str]) -> str:
    """A hash of the source of every module that these can reach by import; files that move unchanged keep it.

    Args:
        modules: dotted names.

    Raises:
        AgtError: one of ``modules`` is not to be found as a file.
    """
    h = sha256()
    for name, path in sorted(reachable(modules).items()):
        h.update(f"{name} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return h.hexdigest()


def package_digest(package: str) -> str:
    """A hash of all the source of a package: in a millisecond, where ``code_digest`` reads and follows every import."""
    h, (root,) = sha256(), _places(package)
    for path in sorted(root.rglob("*.py")):
        h.update(f"{path.relative_to(root).as_posix()} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return h.hexdigest()


def reachable(modules: Iterable[str]) -> dict[str, Path]:
    """The file of every module that importing ``modules`` can load, by name, with the packages that hold it.

    Modules of other packages than this library and those of ``modules`` (numpy, torch) are left out: their versions stand
    for them.

    Args:
        modules: dotted names.

    Raises:
        AgtError: as ``code_digest``.
    """
    waiting = list(modules)
    roots = {top: _places(top) for top in {_LIBRARY, *(name.partition(".")[0] for name in waiting)}}
    absent = [name for name in waiting if _file(name, roots) is None]
    if absent:
        raise AgtError(f"the code of {absent[0]} is not in a file that can be found: put it into a module of its own")
    files: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        path = _file(name, roots) if name not in files else None
        if path is None:
            continue
        files[name] = path
        waiting += [name.rpartition(".")[0]] if "." in name else []  # a package is loaded before what it holds
        waiting += _imports(name, path, roots) if path.suffix == ".py" else []
    return files


def machine(device: str = "cpu") -> dict[str, str | None]:
    """What last bits depend on beside code and settings: versions of Python and of what computes, and the kind of machine.

    Args:
        device: cpu or cuda, as ``compute.device``.
    """
    import torch

    gpu = torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_available() else None
    kind = {"system": platform.system(), "machine": platform.machine(), "vectors": torch.backends.cpu.get_cpu_capability()}
    return {"python": platform.python_version(), **{name: package_version(name) for name in PACKAGES}, **kind, "gpu": gpu}


def surroundings(device: str, threads: int | None) -> dict[str, object]:
    """What the last bits of a training depend on beside its settings and its data, each under words for a message.

    Args:
        device, threads: as ``compute.device`` and ``compute.threads``.
    """
    known = {f"this machine's {key}": value for key, value in machine(device).items()}
    return {CODE: package_digest(_LIBRARY), "threads": threads or list(default_threads()), **known}


def default_threads() -> tuple[int | None, str | None]:
    """What decides how many threads compute where nobody says: the processors of this process, and OpenMP's own setting.

    Not how many PyTorch has just now: Numba's first parallel loop changes that.
    """
    some = hasattr(os, "sched_getaffinity")  # Linux
    return len(os.sched_getaffinity(0)) if some else os.cpu_count(), os.environ.get("OMP_NUM_THREADS")


def package_version(package: str) -> str | None:
    """The installed version; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _places(top: str) -> list[Path]:
    """Where Python finds a top-level package; nowhere for what only a running program holds (``__main__``)."""
    spec = None
    if top != "__main__":
        with suppress(ImportError, ValueError):
            spec = find_spec(top)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(place) for place in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin else []


def _file(name: str, roots: Roots) -> Path | None:
    """Where a module's code lies; None if it is none of these packages', or no module."""
    top, *rest = name.split(".")
    for root in roots.get(top, ()):
        if root.is_file():
            return None if rest else root
        base = root.joinpath(*rest)
        for stem in (base / "__init__", base) if rest else (base / "__init__",):
            for suffix in all_suffixes():
                path = stem.with_name(stem.name + suffix)
                if path.is_file():
                    return path
    return None


def _imports(name: str, path: Path, roots: Roots) -> Iterator[str]:
    """Every module that this one may load, and names beside them that may be none."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    for node in _nodes(path.read_bytes(), str(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots, source = "." * node.level, str(node.module)
            if dots:
                try:
                    source = resolve_name(f"{dots}{node.module or ''}", package)
                except ImportError:  # beyond the package: it would fail when run
                    continue
            yield source
            for alias in node.names:
                yield from _inside(source, roots) if alias.name == "*" else (f"{source}.{alias.name}",)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            word = node.value.partition(":")[0]
            if _DOTTED.fullmatch(word):  # import_module("a.b"), or a table of such names, with what they define or without
                yield from (word, word.rpartition(".")[0])


@cache
def _nodes(source: bytes, path: str) -> tuple[ast.AST, ...]:
    """The imports and constants of a module; the jobs of a sweep ask for the same ones."""
    kinds = (ast.Import, ast.ImportFrom, ast.Constant)
    return tuple(node for node in ast.walk(ast.parse(source, path)) if isinstance(node, kinds))


def _inside(package: str, roots: Roots) -> Iterator[str]:
    """The modules right inside a package: which of them ``import *`` loads is for its ``__all__`` to say."""
    path = _file(package, roots)
    if path is not None and path.stem == "__init__":
        names = sorted({entry.name.partition(".")[0] for entry in path.parent.iterdir()} - {"__init__", "__pycache__"})
        yield from (f"{package}.{name}" for name in names)
