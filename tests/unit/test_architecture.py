"""The rooms and the one direction of their imports, as docs/architecture.md draws them."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import agt
import agt_cli
from agt_cli import usage

LIBRARY, COMMANDS = (Path(str(package.__file__)).parent for package in (agt, agt_cli))

# Each room may import from those before it, and from its own; the bottom first. docs/architecture.md says what each is for.
ROOMS = (
    (
        "agt.errors",
        "agt.facts",
        "agt.disk",
        "agt.sealed",
        "agt.manifest",
        "agt.folder",
        "agt.numeric",
        "agt.randomness",
        "agt.lattice",
        "agt.provenance",
        "agt.quality",
    ),
    ("agt.settings",),
    ("agt.document",),
    ("agt.data", "agt.bounds"),
    ("agt.kernels", "agt.distributed"),
    ("agt.relations",),
    ("agt.training",),
    ("agt.certificates",),
    ("agt.tube",),
    ("agt.problem", "agt.models"),
    ("agt.mechanisms",),
    ("agt.ledger",),
    ("agt.unlearning",),
    ("agt.api", "agt.estimator", "agt.tuning"),
    ("agt.audit",),
    (
        *("agt_cli.usage", "agt_cli.mistakes", "agt_cli.search_path"),
        *("agt_cli.completion", "agt_cli.latest", "agt_cli.streams", "agt_cli.signals"),
        *("agt_cli.torchrun", "agt_cli.shares"),
    ),
    ("agt_cli.report",),
    ("agt_cli.papers", "agt_cli.runs", "agt_cli.verify", "agt_cli.doctor", "agt_cli.unlearn"),
    ("agt_cli.audit",),
    ("agt_cli.commands",),
    ("agt_cli.cli", "agt_cli.sweeper", "agt_cli.jobs", "agt_cli.__main__"),
)
LONGEST = 130  # lines of a command's module, so that it stays thin
STILL_LONG = {"reproduce": 210}  # most of it belongs to agt_cli.papers
FOREIGN = {"hydra", "omegaconf", "rich", "matplotlib", "agt_cli"}  # what the library has nothing of


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def module(path: Path) -> str:
    root = LIBRARY.parent if path.is_relative_to(LIBRARY) else COMMANDS.parent
    return path.relative_to(root).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file names in an import, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def level(name: str) -> int | None:
    """Where a module's room stands; None for modules of other packages, and for the packages' own first lines."""
    for place, rooms in enumerate(ROOMS):
        if any(name == room or name.startswith(f"{room}.") for room in rooms):
            return place
    return None


def test_every_module_is_in_a_room() -> None:
    homeless = [module(p) for p in (*sources(LIBRARY), *sources(COMMANDS)) if level(module(p)) is None]
    assert homeless == ["agt", "agt_cli"]


@pytest.mark.parametrize("path", [*sources(LIBRARY), *sources(COMMANDS)], ids=module)
def test_imports_go_down(path: Path) -> None:
    own = level(module(path))
    for name in imports(path):
        other = level(name)
        if own is not None and other is not None:
            assert other <= own, f"{module(path)} imports {name}, a room above it"


@pytest.mark.parametrize("path", sources(LIBRARY), ids=module)
def test_the_library_knows_neither_command_line_nor_console_nor_figures(path: Path) -> None:
    named = {name.partition(".")[0] for name in imports(path)}
    assert not named & FOREIGN, module(path)


def test_every_module_of_the_commands_is_one_command_and_thin() -> None:
    lines = {module(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources(COMMANDS / "commands")}
    del lines["agt_cli.commands"]
    assert set(lines) == {command.module for command in usage.COMMANDS.values()}
    fat = {name: n for name, n in lines.items() if n > STILL_LONG.get(name.rpartition(".")[2], LONGEST)}
    assert not fat


def test_importing_the_library_loads_nothing_of_the_command_line() -> None:
    rooms = ", ".join(sorted(module(path) for path in sources(LIBRARY) if not path.stem.startswith("gpu")))
    code = f"import sys, {rooms}; print(sorted({FOREIGN!r} & {{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=LIBRARY.parent)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
