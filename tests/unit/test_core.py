"""The border of the core: what it imports, what its own tests import, and that its README is
true.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
README = HOME / "agt/README.md"
ROOMS = ("agt.bounds", "agt.kernels", "agt.relations", "agt.training", "agt.certificates")
# any learner's votes; what is declared
NOT_CORE = {
    "agt.training.learners",
    "agt.certificates.conditions",
    "agt.certificates.requirements",
}
MECHANISMS = (
    *(
        "mechanism",
        "tables",
        "curves",
        "optimal",
        "output",
        "guarantees",
        "enclosures",
        "gaussian_equivalent",
        "composition",
        "budget",
    ),
)
BENEATH = {
    *(
        "agt.errors",
        "agt.numeric",
        "agt.parameters",
        "agt.settings",
        "agt.setting_mistakes",
        "agt.release_settings",
        "agt.distributed",
        "agt.targets",
        "agt.facts",
        "agt.fact_sentences",
        "agt.sentences",
        "agt.messages",
        "agt.templates",
    ),
    *(
        "agt.store.atomic",
        "agt.store.dotted_keys",
        "agt.store.json_text",
        "agt.store.lock",
        "agt.store.reading",
        "agt.store.sealed",
    ),
    *(
        "agt.data.records",
        "agt.data.ids",
        "agt.data.arrays",
        "agt.data.coded",
        "agt.data.population",
        "agt.relations.names",
        "agt.sentences",
    ),
}
HEADS = "agt.models.heads"  # tests build their networks with it


def module_of(path: Path) -> str:
    return (
        path.relative_to(HOME)
        .with_suffix("")
        .as_posix()
        .replace("/", ".")
        .removesuffix(".__init__")
    )


MODULES = {module_of(path): path for path in (HOME / "agt").rglob("*.py")}


def core() -> set[str]:
    inside = {
        name
        for name in MODULES
        if any(name == room or name.startswith(f"{room}.") for room in ROOMS)
    }
    mechanisms = {f"agt.mechanisms.{name}" for name in MECHANISMS}
    return inside - NOT_CORE - BENEATH | mechanisms | {"agt.mechanism_settings"}


def imports(path: Path) -> Iterator[str]:
    """The modules of agt, agt_cli, agt_audit and the tests that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


def ours(names: Iterator[str]) -> set[str]:
    return {
        name
        for name in names
        if name.partition(".")[0] in ("agt", "agt_cli", "agt_audit", "experiments")
    }


def core_tests() -> list[Path]:
    (listed,) = re.findall(
        r"^CORE_TESTS = ((?:.*\\\n)*.*)", (HOME / "Makefile").read_text(), re.MULTILINE
    )
    return [HOME / name for name in listed.replace("\\\n", " ").split()]


def test_the_core_imports_itself_and_what_lies_beneath_it() -> None:
    allowed = core() | BENEATH
    beyond = {
        (name, found)
        for name in core()
        for found in ours(imports(MODULES[name]))
        if found not in allowed
    }
    assert not beyond
    below = {
        (name, found)
        for name in BENEATH
        for found in ours(imports(MODULES[name]))
        if found not in BENEATH
    }
    assert not below


@pytest.mark.parametrize("path", core_tests(), ids=lambda path: path.stem)
def test_tests_of_the_core_import_nothing_of_the_rest(path: Path) -> None:
    helpers = {
        helper.stem: helper for helper in (*HOME.glob("tests/*.py"), *HOME.glob("tests/*/*.py"))
    }
    read: set[Path] = set()
    waiting = [path]
    found: set[str] = set()
    while waiting:
        file = waiting.pop()
        read.add(file)
        names = set(imports(file))
        found |= ours(iter(names))
        used = {helpers[name] for name in names if name in helpers}
        waiting += used - read
    assert found <= core() | BENEATH | {HEADS, "agt.data"}


def test_the_readme_names_every_file_of_the_core_and_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    files = {
        MODULES[name].relative_to(HOME).as_posix()
        for name in core()
        if MODULES[name].stem != "__init__"
    }
    assert files <= set(re.findall(r"`(agt/[\w/]+\.py)`", text))
    beneath = set(re.findall(r"`(agt\.[\w.]+)`", text))
    assert beneath >= BENEATH


def test_the_example_of_the_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text(encoding="utf-8")
    code, printed = re.search(
        r"```python\n(.*?)```\n\nIt prints\n\n```\n(.*?)```", text, re.DOTALL
    ).groups()  # type: ignore[union-attr]
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out == printed
