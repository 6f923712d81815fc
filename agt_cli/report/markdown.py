"""Write Markdown and HTML pages, and collect the findings of checks.

Names of datasets, columns and classes may contain any character. In Markdown they are escaped, so
that they are shown as they are.

report.html is report.md rendered, and says nothing else. A page is one file: style, script and
figures are inside it. Raw HTML is shown as text, a picture is one of the record's own figures or
becomes text, and the page's policy (CSP) allows no other script and loads nothing from elsewhere.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from hashlib import sha256
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from agt.errors import AgtError, Busy
from agt.facts import Standing
from agt.store.reading import Broken
from agt.targets import UntrustedCode
from agt_cli.process import visible
from agt_cli.report.findings import Outcome
from agt_cli.report.tables import CLAUSE, is_number, repeated_text_to_footnotes

if TYPE_CHECKING:  # the console, which every command has, loads no arrays
    from agt.certificates.conditions import Condition

SPECIAL_CHARACTERS = re.compile(r"""
    [\\`*\[\]~]                              # code, emphasis, links, strokes
    | <(?=[A-Za-z/!?]) | &(?=\#?\w+;)        # HTML
    | (?<![^\W_])_ | _(?![^\W_])             # an underscore inside a word means nothing
    | ^(?:[>\#] | [-+=](?=\s))               # what begins a quotation, a heading or a list
    """, re.VERBOSE)  # fmt: skip


class Markdown(str):
    """Text that is already Markdown; ``escape_markdown`` escapes all other text."""

    __slots__ = ()


def excerpt(text: str, max_characters: int = 400) -> str:
    """Return the beginning of an untrusted text on one line, without characters that act.

    Args:
        text: any text.
        max_characters: the largest number of characters. If there are more, the text says how many.
    """
    words = " ".join(text[:max_characters].split())
    return visible(
        words if len(text) <= max_characters else f"{words}... ({len(text):,} characters)"
    )


def shorten(text: str, max_characters: int = 48) -> str:
    """Return a text, shortened to a number of characters of which the last is then "…"."""
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def capitalize_first(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def escape_markdown(text: str) -> str:
    """Return Markdown that shows a text unchanged, on one line; ``Markdown`` is not changed."""
    return (
        text
        if isinstance(text, Markdown)
        else SPECIAL_CHARACTERS.sub(r"\\\g<0>", " ".join(text.split()))
    )


def bold(text: str) -> Markdown:
    """Return Markdown that shows a text in bold type, otherwise unchanged."""
    return Markdown(f"**{escape_markdown(text)}**")


def bullet_list(lines: Sequence[str]) -> str:
    """Return lines as a list in Markdown."""
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


def document(*blocks: str | Sequence[str]) -> str:
    """Return a page in Markdown.

    Args:
        blocks: each is Markdown (a title, sentences, a table, a figure), or lines that become a
            list. Empty blocks are left out.
    """
    shown = [block if isinstance(block, str) else bullet_list(block) for block in blocks if block]
    return visible("\n\n".join(shown) + "\n", allowed="\n")


def conditions_list(conditions: "Sequence[Condition]") -> str:
    """Return a list in Markdown that says of each condition whether it is proved or declared."""
    return "\n".join(
        f"- {escape_markdown(c.name)} **{c.standing}** ({c.letter})" for c in conditions
    )


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, with columns of numbers aligned right.

    Sentences that several rows have are moved below the table (``repeated_text_to_footnotes``).

    Args:
        columns: the titles.
        rows: a cell for each column.
    """
    columns, rows, notes = repeated_text_to_footnotes(columns, rows)
    alignments = []
    for column in range(len(columns)):
        is_numeric = bool(rows) and all(is_number(row[column]) for row in rows)
        alignments.append("---:" if is_numeric else "---")
    lines = []
    for row in (columns, *rows):
        lines.append([escape_markdown(cell).replace("|", "\\|") for cell in row])
    lines.insert(1, alignments)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([table, *map(escape_markdown, notes)])


class CheckState(StrEnum):
    """The result of a check, from the best to the worst."""

    OK = "ok"
    NOTE = "note"
    UNCHECKED = "not checked"
    BUSY = "not checked, because another process is using these files"
    PROBLEM = "PROBLEM"

    @property
    def badness(self) -> int:
        """The place of the state in their order; a larger number is worse."""
        return list(CheckState).index(self)


@dataclass(frozen=True)
class Check:
    """The result of one check.

    The texts may come from untrusted files, so they are shortened and made ``visible``.

    Attributes:
        name: a name of what was checked.
        state: the result.
        words: a clause that says what was found.
        remedy: a sentence that says what to do; empty: nothing is to be done.
    """

    name: str
    state: CheckState
    words: str
    remedy: str = ""

    def __post_init__(self) -> None:
        for key in ("name", "words", "remedy"):
            object.__setattr__(self, key, excerpt(getattr(self, key), 1000))

    @property
    def cells(self) -> tuple[str, str, str]:
        """The check's row in a table: name, result, and sentence."""
        return self.name, str(self.state), self.sentence

    @property
    def sentence(self) -> str:
        """The result of the check as a sentence, and what to do about a problem."""
        return f"{self.words}: {self.remedy}" if self.remedy else self.words

    def as_json(self) -> dict[str, str]:
        """Return the object of --json."""
        return {
            "check": self.name,
            "state": str(self.state),
            "words": self.words,
            "remedy": self.remedy,
        }


def worst_state(checks: Sequence[Check]) -> CheckState:
    """Return the worst state of several checks; OK if there are none."""
    states = [check.state for check in checks]
    return max(states, key=lambda state: state.badness, default=CheckState.OK)


@dataclass
class Findings:
    """Collects the results of checks, in the order in which they are made."""

    checks: list[Check] = field(default_factory=list)

    def ok(self, name: str, words: str) -> None:
        """Add that a check passed."""
        self.checks.append(Check(name, CheckState.OK, words))

    def note(self, name: str, words: str, remedy: str = "") -> None:
        """Add that a check passed, with something that the reader should know."""
        self.checks.append(Check(name, CheckState.NOTE, words, remedy))

    def unchecked(self, name: str, words: str, remedy: str = "") -> None:
        """Add that something could not be checked."""
        self.checks.append(Check(name, CheckState.UNCHECKED, words, remedy))

    def problem(self, name: str, words: str, remedy: str = "") -> None:
        """Add that a check failed."""
        self.checks.append(Check(name, CheckState.PROBLEM, words, remedy))

    def compare(self, name: str, holds: bool, right: str, wrong: str) -> None:
        """Add that a check passed, in the words ``right``, or failed, in the words ``wrong``."""
        if holds:
            self.ok(name, right)
        else:
            self.problem(name, wrong)

    @contextmanager
    def recording_errors(self, name: str) -> Iterator[None]:
        """Turn an error within the context into a finding of this name; the error ends the context.

        Code that may not be imported and busy files are not checked. Any other error is a problem.
        So is a file in a form that is no longer read (``Superseded``), because a false file could
        otherwise pass by naming such a form.
        """
        try:
            yield
        except UntrustedCode as error:
            self.unchecked(name, error.fact)
        except Busy as error:
            self.checks.append(Check(name, CheckState.BUSY, str(error)))
        except (Broken, AgtError) as error:
            self.problem(name, str(error))
        except MemoryError:
            self.problem(
                name,
                "this file needs more memory than this machine has, so it was not read; agt "
                "never writes files of this size",
            )
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            RuntimeError,
        ) as error:
            reason = f"{type(error).__name__}: {error}"
            self.problem(
                name,
                f"a file of this run was altered or damaged after agt wrote it ({reason}): "
                "restore it from a backup, or train again",
            )


PAGE_FILES = Path(__file__).parent / "page"
DPI = 300  # of a record's figures
# of a figure's width in print: below it, its words are too small to read, and it scrolls instead
MIN_FIGURE_SCALE = 0.64
STATE_CLASSES = {
    str(Standing.PROVED): "proved",
    str(Standing.DECLARED): "declared",
    str(Standing.VOID): "void",
}
STATE_CLASSES |= {
    str(CheckState.OK): "proved",
    str(CheckState.NOTE): "declared",
    str(CheckState.UNCHECKED): "declared",
    str(CheckState.BUSY): "declared",
    str(CheckState.PROBLEM): "void",
    str(Outcome.UNTESTED): "declared",
    str(Outcome.VIOLATED): "void",
}

Figures = Callable[[str], bytes | None]
"""Returns the PNG file at a path in the record (``figures/NAME.png``); None: the record has no such
figure.
"""


def report_page(markdown: str, figures: Figures) -> str:
    """Return report.html, which the text and the figures determine byte for byte.

    Args:
        markdown: report.md.
        figures: reads the figures that it shows.
    """
    parser = _parser()
    tokens = parser.parse(markdown)
    title = next((after.content for token, after in pairwise(tokens) if token.tag == "h1"), "agt")
    return page(title, parser.renderer.render(tokens, parser.options, {"figures": figures}))


def page(title: str, body: str) -> str:
    """Return a complete page in HTML.

    Args:
        title: the title as text.
        body: HTML in which all names are escaped.
    """
    style = (PAGE_FILES / "style.css").read_text(encoding="utf-8")
    script = (PAGE_FILES / "sort.js").read_text(encoding="utf-8")
    title = escape(visible(title))
    body = visible(body, allowed="\n")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


FOLDED_SECTIONS = ("Every number", "Setting", "Settings of the training run")
"""Titles of sections that are long and seldom read."""
SCROLL_BOX = '<div class="scroll" tabindex="0">'


@cache
def _parser() -> MarkdownIt:
    """Return the parser and renderer of reports."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("image", _image)
    parser.add_render_rule("table_open", lambda *_: f"{SCROLL_BOX}<table>\n")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.core.ruler.push("standings", lambda state: _add_classes(state.tokens))
    parser.core.ruler.push("folds", lambda state: _fold(state.tokens))
    return parser


def _fold(tokens: list[Token]) -> None:
    """Insert HTML that folds the sections in ``FOLDED_SECTIONS``, so that only their titles are
    shown.

    Args:
        tokens: the tokens of a page; it is changed.
    """
    starts = [
        index
        for index, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag == "h2"
    ]
    # From the last section to the first, so that the indices of earlier ones stay right.
    for start, end in reversed([*pairwise([*starts, len(tokens)])]):
        if tokens[start + 1].content in FOLDED_SECTIONS:
            tokens.insert(end, _html("</details>\n"))
            tokens.insert(start + 3, _html("</summary>\n"))  # a title has three tokens
            tokens.insert(start, _html("<details>\n<summary>"))


def _html(html: str) -> Token:
    """Return a token that is rendered as this HTML."""
    return Token("html_block", "", 0, content=html)


def _image(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: object,
    env: MutableMapping[str, Any],
) -> str:
    """Return the HTML of a figure of the record; of any other picture, only its description.

    Args:
        renderer: not used.
        tokens: the tokens of the page.
        index: the index of the picture's token.
        options: not used.
        env: its entry "figures" reads the record's figures (``Figures``).
    """
    token = tokens[index]
    description = escape(token.content)
    content = env["figures"](str(token.attrs["src"]))
    if content is None:
        return description
    # Bytes 16 to 19 of a PNG file are its width, here converted to pixels of a page.
    width = int.from_bytes(content[16:20], "big") * 96 / DPI
    source = f"data:image/png;base64,{b64encode(content).decode()}"
    size = f'width="{width:.0f}" style="min-width: {MIN_FIGURE_SCALE * width:.0f}px"'
    image = f'<img src="{source}" alt="{description}" {size}>'
    return f'<span class="scroll" tabindex="0">{image}</span>'


def _add_classes(tokens: Sequence[Token]) -> None:
    """Add the classes of style.css to the tokens of a page.

    Words in ``STATE_CLASSES`` get their colour, lists with such words become compact, and cells
    with sentences become wide.
    """
    lists: list[Token] = []
    for before, token in pairwise(tokens):
        if token.type == "bullet_list_open":
            lists.append(token)
        elif token.type == "bullet_list_close":
            lists.pop()
        elif before.type == "td_open" and len(token.content) >= CLAUSE and " " in token.content:
            before.attrSet("class", "words")
        for strong, word in pairwise(token.children or ()):
            if strong.type == "strong_open" and word.content in STATE_CLASSES:
                strong.attrSet("class", f"standing {STATE_CLASSES[word.content]}")
                if lists:
                    lists[-1].attrSet("class", "conditions")
