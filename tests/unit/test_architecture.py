"""The rooms and the one direction of their imports; docs/architecture.md says what each room is for."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import agt
import agt_audit
import agt_cli
from agt_cli import usage

LIBRARY, COMMANDS, AUDITS = (Path(str(package.__file__)).parent for package in (agt, agt_cli, agt_audit))

# Each room may import from those before it, and from its own; the bottom first. Rooms of one line stand at the same height.
ROOMS = (
    ("agt.errors", "agt.facts", "agt.store", "agt.numeric", "agt.targets"),
    ("agt.settings", "agt.provenance"),
    ("agt.data", "agt.bounds"),
    ("agt.kernels", "agt.distributed"),
    ("agt.relations",),
    ("agt.training",),
    ("agt.certificates",),
    ("agt.problem", "agt.models"),
    ("agt.mechanisms",),
    ("agt.ledger",),
    ("agt.unlearning",),
    ("agt.api", "agt.estimator"),
    (
        *("agt_cli._experiments", "agt_cli.usage", "agt_cli.config_files", "agt_cli.help_pages", "agt_cli.completion"),
        *("agt_cli.errors", "agt_cli.configuration", "agt_cli.composing", "agt_cli.process"),
    ),
    ("agt_cli.unlearn.log", "agt_cli.unlearn.account"),  # forms of files, which whoever reads a run knows
    ("agt_cli.report",),
    (
        *("agt_cli.runs", "agt_cli.releasing", "agt_cli.verify", "agt_cli.unlearn"),
        *("agt_cli.choices", "agt_cli.team", "agt_cli.worker"),
    ),
    ("agt_cli.commands",),
    ("agt_cli.cli", "agt_cli.sweeps", "agt_cli.jobs", "agt_cli.__main__"),
    ("agt_audit",),
)
FOREIGN = {"hydra", "omegaconf", "rich", "matplotlib", "agt_cli", "agt_audit"}  # what the library has nothing of


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def module(path: Path) -> str:
    root = next(package.parent for package in (LIBRARY, COMMANDS, AUDITS) if path.is_relative_to(package))
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
    for height, rooms in enumerate(ROOMS):
        if any(name == room or name.startswith(f"{room}.") for room in rooms):
            return height
    return None


def test_every_module_is_in_a_room_and_imports_go_down() -> None:
    upward = []
    for path in (*sources(LIBRARY), *sources(COMMANDS), *sources(AUDITS)):
        own = level(module(path))
        assert own is not None or module(path) in ("agt", "agt_cli"), f"{module(path)} is in no room"
        upward += [(module(path), name) for name in imports(path) if own is not None and (level(name) or 0) > own]
    assert not upward


@pytest.fixture(scope="module")
def imported() -> list[set[str]]:
    """The packages that a process has imported with all of the library, and then with all commands."""
    code = "import sys\n"
    for folder in (LIBRARY, COMMANDS):
        rooms = [module(path) for path in sources(folder) if not path.stem.startswith(("gpu", "__main__"))]
        code += f"import {', '.join(rooms)}\nprint(*{{name.partition('.')[0] for name in sys.modules}})\n"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=LIBRARY.parent, check=True)
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_the_library_knows_neither_command_line_nor_console_nor_figures(imported: list[set[str]]) -> None:
    assert not [
        (module(path), name) for path in sources(LIBRARY) for name in imports(path) if name.partition(".")[0] in FOREIGN
    ]
    assert not imported[0] & FOREIGN


def test_the_audits_are_imported_by_nothing_that_they_attack(imported: list[set[str]]) -> None:
    """Nor do they import a command, or the dispatcher, which finds theirs by its name."""
    attacked = (*sources(LIBRARY), *sources(COMMANDS))
    assert not [module(path) for path in attacked for name in imports(path) if name.partition(".")[0] == "agt_audit"]
    above = ("agt_cli.commands", "agt_cli.cli", "agt_cli.sweeps", "agt_cli.jobs")
    assert not [(module(path), name) for path in sources(AUDITS) for name in imports(path) if name.startswith(above)]
    assert "agt_audit" not in imported[1]


def test_every_module_of_the_commands_is_one_command() -> None:
    modules = {module(path) for path in sources(COMMANDS / "commands")} - {"agt_cli.commands"}
    assert {*modules, "agt_cli._experiments.reproduce", "agt_audit.command"} == {
        command.module for command in usage.COMMANDS.values()
    }
