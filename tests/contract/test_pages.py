"""report.html: the words of report.md, whatever signs are in a name."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, strategies as st
from markdown_it import MarkdownIt

from agt_cli.cli import main
from agt_cli.report.choice_md import tune_report
from agt_cli.report.markdown import DPI, Markdown, escape_markdown, markdown_table, report_page
from agt_cli.report.record import RunRecord

ROOT = Path(__file__).parents[2]
TINY = (
    "model=linear",
    "dataset.n_train=80",
    "training.epochs=1",
    "kgrid.max=3",
    "compute.kernel=reference",
)
HOSTILE = (
    "<script>alert(1)</script>",
    "a|b",
    "`code` ``",
    "![x](http://example.invalid/x.png)",
    "[x](javascript:alert(1))",
    "<img src=x onerror=alert(1)>",
    "**proved**",
    "Größe ≥ 3 €",
    "back\\slash |\\| \\",
    "&lt;b&gt; &#x3c;",
    "_a_ b_c ~~d~~",
    "# 1",
    "- x",
    "> 50K",
    "<=50K",
    "</td></table>",
    '"><svg onload=alert(1)>',
)


class Page(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and the text of
    its body outside scripts.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.text = ""
        self.feed(text.replace("<style>", "<script>").replace("</style>", "</script>"))
        self.cells = [cell.strip() for cell in self.cells]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag != "script":
            self.text += data
        if self.cells and self.lasttag in ("td", "th"):
            self.cells[-1] += data

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}


def check_harmless(text: str) -> Page:
    """Nothing runs but the page's own script, nothing is loaded, and every element is one that
    the renderer makes.
    """
    page = Page(text)
    ours = {
        "html",
        "head",
        "meta",
        "title",
        "script",
        "body",
        "main",
        "h1",
        "h2",
        "p",
        "div",
        "span",
        "table",
        "thead",
    }
    ours |= {
        "tbody",
        "tr",
        "th",
        "td",
        "ul",
        "li",
        "strong",
        "em",
        "code",
        "pre",
        "img",
        "a",
        "blockquote",
        "details",
        "summary",
    }
    assert page.tags <= ours
    # the style is one for this parser
    assert [tag for tag, _ in page.elements].count("script") == 2
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert str(attributes.get("src", "data:image/png")).startswith("data:image/png")
        assert not re.match(
            r"\s*(javascript|data|vbscript):", attributes.get("href") or "", re.IGNORECASE
        )
    return page


# -- names


MARKDOWN_WITH_TABLES = MarkdownIt("commonmark", {"html": True}).enable("table")


@given(st.text(min_size=1).map(lambda text: " ".join(text.split())).filter(bool))
@example("a\\|b")
@example("1. x")
def test_a_name_in_a_table_is_shown_as_it_is(name: str) -> None:
    """Not by our renderer alone: by CommonMark with GitHub's tables."""
    name = name.replace("\x00", "")
    page = Page(MARKDOWN_WITH_TABLES.render(markdown_table(("", "k"), [(name, "1")])))
    assert page.cells[2:] == [name.strip(), "1"]
    assert page.tags == {"table", "thead", "tbody", "tr", "th", "td"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_in_a_sentence_is_shown_as_it_is(name: str) -> None:
    page = Page(
        MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .render(f"# of {escape_markdown(name)}")
    )
    assert page.text.strip() == f"of {name}"
    assert page.tags == {"h1"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_was_not_escaped_still_harms_nobody(name: str) -> None:
    """The last line of defence: raw HTML is text, and no other picture than the record's own is
    shown.
    """
    page = check_harmless(
        report_page(
            f"# {name}\n\n{name}\n\n- {name}\n\n| a |\n| --- |\n| {name} |\n", lambda path: None
        )
    )
    assert "img" not in page.tags


def test_the_same_words_give_the_same_bytes() -> None:
    text = "# title\n\nfirst\n\n![a](figures/a.png)\n"
    picture = b"\x89PNG" + bytes(12) + DPI.to_bytes(4, "big") + bytes(9)
    assert report_page(text, lambda path: picture) == report_page(text, lambda path: picture)
    assert 'width="96"' in report_page(text, lambda path: picture), (
        "so many pixels of a figure are one inch"
    )


def test_how_a_condition_stands_is_a_word_beside_its_colour_and_no_name_can_pretend_it() -> None:
    page = report_page(
        "# t\n\n- a **proved**\n- b **not held**\n\n" + markdown_table(("x",), [("**proved**",)]),
        lambda path: None,
    )
    found = [
        attributes.get("class")
        for tag, attributes in Page(page).elements
        if tag in ("strong", "ul")
    ]
    assert found == ["conditions", "standing proved", "standing void"]


# -- tables

LONG = "declared by the owner, and by nobody else in the world"


def test_the_chosen_row_of_agt_tune_is_bold_and_shows_no_stars(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"settings": ["a*b=1", "a*b=2"], "accuracy": [0.5, 0.75], "accuracy_se": [0.1, 0.1]}
    )
    with RunRecord(tmp_path / "run", "tune", {}) as record:
        text = tune_report(table, 1, "the best", "public rows", Path("x.yaml"), record)
    made = report_page(text, lambda path: None)
    assert "<td><strong>a*b=2</strong></td>" in made
    assert "**" not in made


def test_a_table_says_a_sentence_once() -> None:
    rows = [("a", LONG, "x" * 30), ("b", LONG, "x" * 30), ("c", "another", "x" * 30)]
    text = markdown_table(("name", "why", "data"), rows)
    assert text.count(LONG) == text.count("x" * 30) == 1
    assert text.endswith(f"data: {'x' * 30}\n\n(1) {LONG}")
    row = "| a | (1) |"
    assert row in text


def test_a_short_table_and_short_words_stay() -> None:
    table = "| a | b |\n| --- | ---: |\n| yes | 1 |\n| yes | - |"
    assert markdown_table(("a", "b"), [("yes", "1"), ("yes", "-")]) == table
    assert LONG in markdown_table(("a",), [(LONG,)])
    assert markdown_table(("a",), [(Markdown("**x**"),)]).endswith("| **x** |")


# -- runs


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table with hostile names: trained on and certified, in an outputs folder of its own."""
    home = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    table = pd.DataFrame(
        {"x1": x[:, 0], "x2": x[:, 1], "cl|<b>": np.where(x[:, 0] > 0, HOSTILE[0], "a|b `c` ü")}
    )
    table.to_csv(home / "people.csv", index=False)
    data = (
        "dataset=table",
        f"dataset.path={home / 'people.csv'}",
        "dataset.label='cl|<b>'",
        "dataset.declared_size=90",
    )
    data += (
        "+dataset.numeric={x1: [-3, 3], x2: [-3, 3]}",
        "dataset.name='<img src=x onerror=alert(1)>'",
    )
    data += ("certificate=box", "training=generic", TINY[0], *TINY[2:], "-q", "--json")
    outputs = f"output_dir={home / 'outputs'}"
    found = {name: home / "outputs" / name / "run" for name in ("train", "certify")}
    assert main(["train", *data, outputs, f"hydra.run.dir={found['train']}"]) == 0
    assert (
        main(
            [
                "certify",
                f"run={found['train']}",
                outputs,
                f"hydra.run.dir={found['certify']}",
                "-q",
                "--json",
            ]
        )
        == 0
    )
    return found


@pytest.mark.parametrize("command", ["train", "certify"])
def test_hostile_data_makes_harmless_pages(hostile: dict[str, Path], command: str) -> None:
    folder = hostile[command]
    page = check_harmless((folder / "report.html").read_text())
    assert "<img src=x onerror=alert(1)>" in page.text
    assert ("img" in page.tags) == (command == "certify")
    assert "report.html" in json.loads((folder / "manifest.json").read_text())["files"]
    if command == "certify":
        assert {HOSTILE[0], "a|b `c` ü"} <= set(page.cells)


def test_a_releases_page_says_what_its_report_says_and_no_more(trained: Path) -> None:
    assert (
        main(
            [
                "predict",
                f"run={trained}",
                "mechanism.eps=1",
                "force=true",
                "hydra.run.dir=outputs/predict/one",
                "-q",
                "--json",
            ]
        )
        == 0
    )
    page = check_harmless(Path("outputs/predict/one/report.html").read_text())
    words = set(re.findall(r"\w+", page.text.replace("\n", " "))) - {"agt"}
    assert words <= set(re.findall(r"\w+", Path("outputs/predict/one/report.md").read_text()))
    assert "img" not in page.tags


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a tiny run, the only one below outputs."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", *TINY, "training.chosen_on=public", "-q", "--json"]) == 0
    return next(Path("outputs/train").iterdir())


# -- in a browser


@pytest.fixture(scope="module")
def look() -> Iterator[ModuleType]:
    """scripts/look.py; skips where there is no browser."""
    spec = spec_from_file_location("look", ROOT / "scripts" / "look.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.browser() is None:
        pytest.skip("no chromium or chrome on PATH")
    return module


def test_a_browser_shows_it_at_every_width(look: ModuleType, hostile: dict[str, Path]) -> None:
    assert look.faults(hostile["certify"] / "report.html") == []


def test_the_browser_would_see_faults(
    look: ModuleType, hostile: dict[str, Path], tmp_path: Path
) -> None:
    text = (hostile["certify"] / "report.html").read_text()
    broken = text.replace("<h1>", '<h1 style="width: 600px">').replace(
        "down ? order(b, a)", "down ? order(a, b)"
    )
    (tmp_path / "page.html").write_text(
        broken.replace("</main>", '<img src="gone.png" alt="gone"></main>')
    )
    faults = "\n".join(look.faults(tmp_path / "page.html"))
    for words in (
        "phone: the page is 6",
        "desktop: unsorted",
        "phone: broken: ['gone']",
        "its own policy",
    ):
        assert words in faults


def test_settings_are_folded_away_and_what_follows_is_not() -> None:
    made = report_page(
        "# t\n\n## Setting\n\n```yaml\na: 1\n```\n\n## Next\n\nx\n", lambda path: None
    )
    places = [
        made.index(text) for text in ("<summary><h2>Setting", "a: 1", "</details>", "<h2>Next")
    ]
    assert places == sorted(places)
