"""Files, modules and names that pages and docstrings name are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from docstrings import docstrings

ROOT = Path(__file__).parents[2]
PACKAGES = [
    name for name in ("agt", "agt_cli", "agt_audit", "experiments") if (ROOT / name).is_dir()
]
FOLDERS = (*PACKAGES, "conf", "docs", "scripts", "tests", ".ci")
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
# that pages show or tell readers to write
READERS_FILES = {"iris.py", "laplace_margin.py", "my_net.py", "script.py"}
FOREIGN_FILES = {"info.py"}  # medmnist's

IN_BACK_QUOTES = re.compile(r"`([^`\n]+)`")
PATH_OF_TREE = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*")
DOTTED = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
MODULE_FILE = re.compile(r"(?<![\w./-])((?:[\w.-]+/)*[\w-]+\.py)\b")
ATTRIBUTE = re.compile(r"``([A-Za-z_]\w*)\.([A-Za-z_]\w*)(?:\.\w+)*(?:\([^`]*\))?``")
# a block that names a file of an earlier tree says so
EARLIER = ("revision", "#scripts-that-made-these-numbers-once")


@cache
def files_of_tree() -> frozenset[str]:
    """Every file of the tree, apart from what is built or installed."""
    found = [ROOT / name for name in ("Makefile", "pyproject.toml")]
    for name in FOLDERS:
        found += [path for path in (ROOT / name).rglob("*") if "__pycache__" not in path.parts]
    return frozenset(path.relative_to(ROOT).as_posix() for path in found)


def is_in_tree(name: str) -> bool:
    """Return whether a path, or a pattern of paths, from the root of the tree is there."""
    if "*" in name:
        return any(ROOT.glob(name))
    return name.rstrip("/") in files_of_tree() or (ROOT / name).is_dir()


def is_placeholder_in_a_folder(name: str) -> bool:
    """Return whether it is NAME.yaml of a folder that is there."""
    path = Path(name)
    return path.stem == "NAME" and (ROOT / path.parent).is_dir()


def words_in_back_quotes(page: Path) -> Iterator[str]:
    """Yield each word that a page has in back quotes, apart from names of files of earlier
    revisions.
    """
    for block in page.read_text(encoding="utf-8").split("\n\n"):
        of_earlier_tree = any(word in block for word in EARLIER)
        for quoted in IN_BACK_QUOTES.findall(block):
            for word in quoted.split():
                if not (of_earlier_tree and ".py" in word):
                    yield word.strip("'\"(),.:;")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_back_quotes_are_there(page: Path) -> None:
    lost = []
    for word in words_in_back_quotes(page):
        if PATH_OF_TREE.fullmatch(word):
            if not is_in_tree(word) and not is_placeholder_in_a_folder(word):
                lost.append(word)
        elif re.fullmatch(r"[\w-]+\.py", word) and word not in READERS_FILES:
            lost.append(f"{word}, without its folder")
    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_packages_in_back_quotes_are_there(page: Path) -> None:
    lost = [
        word
        for word in words_in_back_quotes(page)
        if DOTTED.fullmatch(word) and not is_defined(word)
    ]
    assert not lost


def is_defined(dotted: str) -> bool:
    """Return whether a dotted name is a module, or a name that its module has."""
    package, *parts = dotted.replace("agt_cli._experiments", "experiments").split(".")
    place = ROOT / package
    for depth, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
        elif (place / f"{part}.py").is_file():
            return has_names((place / f"{part}.py"), parts[depth + 1 :])
        else:
            return has_names(place / "__init__.py", parts[depth:])
    return True


def has_names(path: Path, names: list[str]) -> bool:
    return all(
        re.search(rf"\b{re.escape(name)}\b", path.read_text(encoding="utf-8")) for name in names
    )


def test_rooms_of_the_architecture_page_are_there() -> None:
    """The first column of its table: names without a package are of the package before them."""
    lost = []
    for row in re.findall(
        r"^\| (`agt[^|]+) \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE
    ):
        package = ""
        for name in IN_BACK_QUOTES.findall(row):
            package = name.partition(".")[0] if name.startswith("agt") else package
            dotted = name if name.startswith("agt") else f"{package}.{name}"
            if not is_defined(dotted):
                lost.append(dotted)
    assert not lost


def test_a_module_that_a_docstring_or_comment_names_is_there_with_its_room() -> None:
    """A name without a folder is of the same folder; scripts that are gone are named with their
    revision.
    """
    lost = []
    for path in SOURCES:
        for line in path.read_text(encoding="utf-8").splitlines():
            for name in MODULE_FILE.findall(line):
                beside = (path.parent / name).is_file()
                by_its_folder = "/" in name and any(
                    known.endswith(f"/{name}") for known in files_of_tree()
                )
                if not (
                    beside
                    or by_its_folder
                    or is_in_tree(name)
                    or name in FOREIGN_FILES
                    or Path(name).name in READERS_FILES
                    or "revision" in line
                ):
                    lost.append(f"{path.relative_to(ROOT)}: {name}")
    assert not lost


def test_what_a_docstring_has_in_double_back_quotes_is_there() -> None:
    """Of ``name.attribute``: both occur in the code, or the first can be imported from
    elsewhere.
    """
    known = names_in_code()
    lost = []
    for path in SOURCES:
        for text in docstrings(path):
            for first, second in ATTRIBUTE.findall(text):
                foreign = first not in known and find_spec(first) is not None
                if not foreign and not {first, second} <= known:
                    lost.append(f"{path.relative_to(ROOT)}: {first}.{second}")
    assert not lost


@cache
def names_in_code() -> frozenset[str]:
    """Modules, and every name, attribute, argument and short text of the packages and scripts."""
    found: set[str] = set()
    for path in (*SOURCES, *sorted((ROOT / "scripts").rglob("*.py"))):
        found |= {path.stem, path.parent.name}
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # docstrings among them
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.arg | ast.keyword):
                found.add(node.arg or "")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found |= set((node.asname or node.name).split("."))
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in statements
            ):
                found |= set(re.findall(r"\w+", node.value))
    return frozenset(found)
