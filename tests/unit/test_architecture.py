"""The rooms and the one direction of their imports; docs/architecture.md says what each room is
for.
"""

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import agt
import agt_audit
import agt_cli
from agt.models.kind import CertificateKind
from agt.models.kinds import KINDS
from agt.relations import RELATIONS
from agt_cli import usage

LIBRARY, COMMANDS, AUDITS = (
    Path(str(package.__file__)).parent for package in (agt, agt_cli, agt_audit)
)

# Each room may import from those before it, and from its own; the bottom first. Rooms of one line
# stand at the same height.
ROOMS = (
    (
        *("agt.errors", "agt.facts", "agt.fact_sentences", "agt.messages", "agt.sentences"),
        "agt.parameters",
        *("agt.arrays", "agt.templates"),
        *("agt.store", "agt.numeric", "agt.targets"),
        "agt.relations.names",
    ),
    ("agt.setting_mistakes",),
    ("agt.settings", "agt.documents", "agt.release_settings", "agt.provenance"),
    ("agt.data", "agt.bounds"),
    ("agt.kernels", "agt.distributed"),
    ("agt.relations",),
    ("agt.training",),
    ("agt.certificates",),
    ("agt.mechanism_settings",),
    (
        "agt.unlearning.sentences",
        "agt.unlearning.promise",
        "agt.unlearning.bounded_matrix",
        "agt.unlearning.newton",
        "agt.unlearning.newton_promise",
    ),  # what a kind that removes records promises, and does
    ("agt.problem", "agt.models"),
    ("agt.mechanisms",),
    ("agt.ledger",),
    ("agt.release",),
    ("agt.unlearning",),
    ("agt.account", "agt.progress"),
    (
        *("agt.fit_settings", "agt.fit_problem", "agt.answers", "agt.fitted", "agt.fit_doubts"),
        *("agt.api", "agt.estimator"),
    ),
    (
        *(
            "agt_cli._experiments",
            "agt_cli.usage",
            "agt_cli.config_files",
            "agt_cli.help_pages",
            "agt_cli.completion",
        ),
        *("agt_cli.errors", "agt_cli.configuration", "agt_cli.composing", "agt_cli.process"),
        *("agt_cli.networks", "agt_cli.own_network", "agt_cli.renamed", "agt_cli.command_settings"),
        "agt_cli.ledger_files",
        "agt_cli.shell_words",
        "agt_cli.typed_ranges",
    ),
    # forms of files, which whoever reads a run knows
    ("agt_cli.unlearn.hash_key",),
    ("agt_cli.unlearn.log", "agt_cli.unlearn.record_index"),
    ("agt_cli.unlearn.account",),
    ("agt_cli.report",),
    ("agt_cli.places",),
    ("agt_cli.table_columns",),
    ("agt_cli.table_settings", "agt_cli.training_checks"),
    (
        *("agt_cli.runs", "agt_cli.releasing", "agt_cli.verify", "agt_cli.unlearn"),
        *("agt_cli.choices", "agt_cli.checks", "agt_cli.team"),
        "agt_cli.worker",
    ),
    ("agt_cli.start",),
    ("agt_cli.commands",),
    (
        *("agt_cli.cli", "agt_cli.sweeps", "agt_cli.sweep_jobs", "agt_cli.sweep_table"),
        *("agt_cli.launchers", "agt_cli.jobs", "agt_cli.__main__"),
    ),
    ("agt_audit",),
)
TABLES_OF_RELATIONS = {LIBRARY / "relations/names.py", AUDITS / "relation_edits.py"}
"""The registry, and the audit's own table of edits: beside its own file, where a relation is
named as one of several.
"""
# what the library has nothing of
FOREIGN = {"hydra", "omegaconf", "rich", "matplotlib", "agt_cli", "agt_audit"}


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def module(path: Path) -> str:
    root = next(
        package.parent for package in (LIBRARY, COMMANDS, AUDITS) if path.is_relative_to(package)
    )
    return (
        path.relative_to(root)
        .with_suffix("")
        .as_posix()
        .replace("/", ".")
        .removesuffix(".__init__")
    )


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return every module that a file names in an import, anywhere in it."""
    names = list[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def level(name: str) -> int | None:
    """Where a module's room stands; None for modules of other packages, and for the packages'
    own first lines.
    """
    for height, rooms in enumerate(ROOMS):
        if any(name == room or name.startswith(f"{room}.") for room in rooms):
            return height
    return None


def test_every_module_is_in_a_room_and_imports_go_down() -> None:
    upward = []
    for path in (*sources(LIBRARY), *sources(COMMANDS), *sources(AUDITS)):
        own = level(module(path))
        assert own is not None or module(path) in ("agt", "agt_cli"), (
            f"{module(path)} is in no room"
        )
        upward += [
            (module(path), name)
            for name in imports(path)
            if own is not None and (level(name) or 0) > own
        ]
    assert not upward


@pytest.fixture(scope="module")
def imported() -> list[set[str]]:
    """The packages that a process has imported with all of the library, and then with all
    commands.
    """
    code = "import sys\n"
    for folder in (LIBRARY, COMMANDS):
        rooms = [
            module(path)
            for path in sources(folder)
            if not path.stem.startswith(("gpu", "__main__"))
        ]
        code += (
            f"import {', '.join(rooms)}\nprint(*{{name.partition('.')[0] for name in "
            f"sys.modules}})\n"
        )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=LIBRARY.parent, check=True
    )
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_the_library_knows_neither_command_line_nor_console_nor_figures(
    imported: list[set[str]],
) -> None:
    assert not [
        (module(path), name)
        for path in sources(LIBRARY)
        for name in imports(path)
        if name.partition(".")[0] in FOREIGN
    ]
    assert not imported[0] & FOREIGN


def test_the_audits_are_imported_by_nothing_that_they_attack(imported: list[set[str]]) -> None:
    """Nor do they import a command, or the dispatcher, which finds theirs by its name."""
    attacked = (*sources(LIBRARY), *sources(COMMANDS))
    assert not [
        module(path)
        for path in attacked
        for name in imports(path)
        if name.partition(".")[0] == "agt_audit"
    ]
    above = (
        *("agt_cli.commands", "agt_cli.cli", "agt_cli.sweeps", "agt_cli.sweep_jobs"),
        *("agt_cli.sweep_table", "agt_cli.launchers", "agt_cli.jobs"),
    )
    assert not [
        (module(path), name)
        for path in sources(AUDITS)
        for name in imports(path)
        if name.startswith(above)
    ]
    assert "agt_audit" not in imported[1]


def relation_names_told_apart(path: Path) -> Iterator[tuple[str, str, int]]:
    """(file, name, line) of relations that a file compares with, looks up, or has in a
    collection.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        among: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            among = [node.left, *node.comparators]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            among = [*node.elts]
        elif isinstance(node, ast.Dict):
            among = [*node.keys]
        elif isinstance(node, ast.MatchValue):
            among = [node.value]
        for value in among:
            if isinstance(value, ast.Constant) and value.value in set(RELATIONS) - {path.stem}:
                yield module(path), str(value.value), value.lineno


def test_what_depends_on_a_relation_is_asked_of_it() -> None:
    """No name of a relation is compared outside of its own file."""
    every = {*sources(LIBRARY), *sources(COMMANDS), *sources(AUDITS)} - TABLES_OF_RELATIONS
    assert not [found for path in sorted(every) for found in relation_names_told_apart(path)]


def test_every_module_of_the_commands_is_one_command() -> None:
    modules = {module(path) for path in sources(COMMANDS / "commands")} - {"agt_cli.commands"}
    assert {*modules, "agt_cli._experiments.reproduce", "agt_audit.command"} == {
        command.module for command in usage.COMMANDS.values()
    }


def test_kinds_of_certificate_are_asked_and_not_compared() -> None:
    """Outside of the kinds' own files nothing compares a kind's name, or asks of which class a
    kind is.
    """
    names = {kind.name for kind in KINDS}
    classes = {
        base.__name__
        for kind in KINDS
        for base in kind.__mro__
        if issubclass(base, CertificateKind)
    }
    own = {
        Path(inspect.getfile(base))
        for kind in KINDS
        for base in kind.__mro__
        if issubclass(base, CertificateKind)
    }
    asked = []
    for path in (*sources(LIBRARY), *sources(COMMANDS), *sources(AUDITS)):
        if path in own:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                texts = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                if texts & names and "certificate" in ast.unparse(node):
                    asked.append((module(path), ast.unparse(node)))
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "cast"):
                named = {
                    each.id
                    for argument in node.args
                    for each in ast.walk(argument)
                    if isinstance(each, ast.Name)
                }
                if named & classes:
                    asked.append((module(path), ast.unparse(node)))
    # What a program hands over for a certificate is a kind, its name or its settings.
    assert asked == [("agt.fit_problem", "isinstance(certificate, CertificateKind)")]
