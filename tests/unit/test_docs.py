"""The pages keep their word: citations resolve, links lead somewhere, rooms are named, code
runs.
"""

import ast
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
from docstrings import docstrings

from agt import __version__
from agt_cli import config_files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted(DOCS.rglob("*.md")),
]
FOLDERS = ("agt", "agt_cli", "agt_audit", "scripts", "tests")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]

CITED = re.compile(r"reference\.md(?:,?\s+sections?)?\s+((?:\d+[a-g]?(?:, | and |-)?)+)")
CODE = re.compile(r"(?<![\w.])00\d\b(?![.-]\d)")
AUTHORS = re.compile(
    r"\b([A-Z][a-zà-ÿ]+)(?:,?\s+(?:and\s+)?[A-Z][a-zà-ÿ]+|\s+et al\.)*\s+\(?((?:19|20)\d\d)\b"
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXTS = {
    path: path.read_text(encoding="utf-8")
    for path in (*SOURCES, *PAGES)
    if path.name != Path(__file__).name
}


def sections(cited: str) -> set[int]:
    """The sections that a citation names: ``1-3`` and ``3b, 3c`` and ``1, 2``."""
    found = set()
    for part in re.findall(r"(\d+)[a-g]?(?:-(\d+))?", cited):
        first = int(part[0])
        last = int(part[1] or part[0])
        found |= set(range(first, last + 1))
    return found


def anchors(path: Path) -> set[str]:
    """The names that a page's headings can be linked by."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def bibliography() -> str:
    return (DOCS / "bibliography.md").read_text(encoding="utf-8")


def test_citations_are_read_as_they_are_written() -> None:
    text = (
        "reference.md section 3b, 3c; reference.md 1, 2; reference.md sections 1-3; "
        "reference.md section 4's sum; reference.md 3c"
    )
    assert [sections(cited) for cited in CITED.findall(text)] == [{3}, {1, 2}, {1, 2, 3}, {4}, {3}]
    cited = AUTHORS.findall(
        "(Dong, Roth and Su 2022; Mironov 2012) Kifer et al. 2012; Hardt, Recht, Singer (2016)"
    )
    assert cited == [("Dong", "2022"), ("Mironov", "2012"), ("Kifer", "2012"), ("Hardt", "2016")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_cited_section_is_a_heading(folder: str) -> None:
    headings = {
        int(n)
        for n in re.findall(
            r"^## (\d+)\. ", (DOCS / "reference.md").read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    here = {path: text for path, text in TEXTS.items() if path.is_relative_to(ROOT / folder)}
    lost = {
        (str(p), n)
        for p, text in here.items()
        for cited in CITED.findall(text)
        for n in sections(cited) - headings
    }
    assert not lost


def test_numbered_sections_are_cited_by_the_page_that_has_them() -> None:
    """docs/method.md has none since they moved to docs/reference.md."""
    cited = re.compile(r"method\.md,?\s+(?:sections?\s+)?\d")
    assert [str(path) for path, text in TEXTS.items() if cited.search(text)] == []


def test_pages_that_docstrings_name_exist() -> None:
    named = {
        (path, name)
        for path in SOURCES
        for text in docstrings(path)
        for name in re.findall(r"\b[a-z-]+\.md\b", text)
    }
    pages = {page.name for page in PAGES} | {"report.md"}  # what commands write
    assert {(str(path), name) for path, name in named if name not in pages} == set()


def test_every_code_is_in_the_bibliography() -> None:
    known = set(re.findall(r"^\| (00\d) \|", bibliography(), re.MULTILINE))
    works = {path: text for path, text in TEXTS.items() if not path.is_relative_to(ROOT / "tests")}
    lost = {
        (str(path), code)
        for path, text in works.items()
        for code in CODE.findall(text)
        if code not in known
    }
    assert not lost
    assert known == {"000", "001", "002", "003", "004"}


def test_every_cited_work_is_in_the_bibliography() -> None:
    entries = bibliography().split("\n- ")
    library = [path for path in SOURCES if not path.is_relative_to(ROOT / "tests")]
    used = {work for path in library for text in docstrings(path) for work in AUTHORS.findall(text)}
    assert len(used) > 10
    assert {
        (name, year) for name, year in used if not any(name in e and year in e for e in entries)
    } == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page.name} links to {target}"
        assert there.is_relative_to(ROOT), f"{page.name} links out of the repository: {target}"
        assert not anchor or anchor in anchors(there), (
            f"{page.name} links to {target}, and there is no such heading"
        )


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "README.md"], ids=lambda page: page.name
)
def test_python_on_pages_compiles_and_imports_what_there_is(page: Path) -> None:
    """Blocks stand for files of their own; what they import from agt must exist."""
    for block in FENCE.findall(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agt"):
                module = __import__(str(node.module), fromlist=["_"])
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_python_in_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        exec(block, {"__name__": "__main__"})
        assert capsys.readouterr().out


def read_installs(path: Path) -> list[str]:
    """What each ``pip install`` of a file is told to install: its words, options apart."""
    text = path.read_text(encoding="utf-8")
    lines = re.findall(r"(?:pip install|\$\(PIP\)) ([^`\n#;)]*)", text.replace('\\"', '"'))
    words = [
        word.strip("\"'.,)") for line in lines for word in re.findall(r"'[^']*'|[^\s'\"]+", line)
    ]
    return [word for word in words if re.match(r"\w", word)]


INSTALLERS = [
    *PAGES,
    *(ROOT / name for name in ("Makefile", "pyproject.toml", ".ci/run")),
    *(
        path
        for folder in ("agt", "agt_cli", "agt_audit", "experiments", "scripts")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ),
    *sorted((ROOT / "conf").rglob("*.yaml")),
]
OTHERS = {
    "medmnist",
    "kaggle",
    "triton",
    "interpret-core",
    "opacus",
    "diffprivlib",
    "opendp[scikit-learn]",
    "model-signing",
}  # projects of these names


def test_whatever_is_to_be_installed_is_a_project_that_we_know() -> None:
    """No index has agt's name, so that anybody may take it: commands name the packages, or a
    path.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    known = {requirement for name in extras if name != "dev" for requirement in extras[name]}
    found = {path.name: words for path in INSTALLERS if (words := read_installs(path))}
    assert {"papers.md", "dp_sgd.py", "Makefile"} <= set(found)
    for name, words in found.items():
        for word in words:
            pinned = name == "measurements.md" and re.fullmatch(r"[\w-]+==[\d.]+", word)
            options = name == "Makefile" and word in (
                "constraints.txt",
                "dist/*.whl",
                "wheel-check/lib",
            )
            assert word in known | OTHERS or pinned or options, (name, word)
    everywhere = [
        path for path in INSTALLERS if path.name not in ("CHANGELOG.md", "pyproject.toml")
    ]
    assert [
        path.name for path in everywhere if "agt-certified[" in path.read_text(encoding="utf-8")
    ] == []


def test_the_security_page_says_how_to_report_what_is_in_scope_and_which_versions_are_mended() -> (
    None
):
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    headings = re.findall("^## (.+)$", text, re.MULTILINE)
    assert headings[:3] == ["How to report", "In scope", "Out of scope"]
    assert len(headings) == 4
    newest = __version__.rpartition(".")[0]
    assert re.search(rf"^\| {newest}\b.*\| yes", text, re.MULTILINE)


def test_the_readme_keeps_its_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "    make run " in text
    assert "    make test " in text


@pytest.mark.parametrize("group", ["dataset", "mechanism"])
def test_settings_that_pages_give_can_be_chosen(group: str) -> None:
    """GROUP=NAME on a page is an option, or one that the page itself makes."""
    options = set(config_files.options_of_group(group))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        own = set(re.findall(rf"conf/{group}/(\w+)\.yaml", text))
        used = set(re.findall(rf"(?<![\w.]){group}=(\w+)", text)) - {"NAME"}
        assert used <= options | own, page.name


STATES = ("made", "stand-in", "in part", "not made")


def test_the_counts_of_the_papers_rows_are_those_of_their_page() -> None:
    parts = TEXTS[DOCS / "papers_rows.md"].split("\n## ")[1:]
    counted = []
    for part in parts:
        rows = [line.split("|") for line in part.splitlines() if line.startswith("| ")]
        states = [row[2].strip() for row in rows[1:]]
        assert set(states) <= set(STATES)
        counted.append([len(states), *(states.count(state) for state in STATES)])
    counted.append([sum(column) for column in zip(*counted, strict=True)])
    table = TEXTS[DOCS / "papers.md"].split("on a stand-in, which is named")[1].split("\n\n")[0]
    lines = [line.split("|")[2:-1] for line in table.splitlines()[2:]]
    assert [[int(cell) for cell in line] for line in lines] == counted


def test_every_artifact_that_the_papers_rows_name_is_defined() -> None:
    named = re.findall(r"\| `(\w+)` `(\w+)`", TEXTS[DOCS / "papers_rows.md"])
    assert len(named) > 30
    for experiment, artifact in named:
        definition = (ROOT / "experiments" / f"{experiment}.yaml").read_text(encoding="utf-8")
        assert f"id: {artifact}\n" in definition, (experiment, artifact)
