"""Markdown that reads well as it is, and in which a name from data stays a name.

Checks, as an auditor and a machine's doctor say them: what was looked at, how it stands, and what
to do about it.

Pages for a browser. report.html is report.md, rendered: what one says, the other says, and nothing
more.

A page is one file that asks nobody for anything: style, script and a report's figures are inside
it. Names of datasets, columns and classes come from data that nobody has read: raw HTML is text
here, a picture is one of the record's own figures or a line of text, and the page's policy (CSP)
runs no other script and loads no address.
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

from agt.errors import AgtError, Busy, Superseded
from agt.facts import Standing
from agt.store.reading import Broken
from agt.targets import UntrustedCode
from agt_cli.process import visible
from agt_cli.report.findings import Outcome
from agt_cli.report.tables import CLAUSE, is_number, told_once

if TYPE_CHECKING:  # the console, which every command has, loads no arrays
    from agt.certificates.conditions import Condition

SPECIAL = re.compile(r"""
    [\\`*\[\]~]                              # code, emphasis, links, strokes
    | <(?=[A-Za-z/!?]) | &(?=\#?\w+;)        # HTML
    | (?<![^\W_])_ | _(?![^\W_])             # an underscore inside a word means nothing
    | ^(?:[>\#] | [-+=](?=\s))               # what begins a quotation, a heading or a list
    """, re.VERBOSE)  # fmt: skip


class Markdown(str):
    """Text that is Markdown already; any other is a name or a number."""

    __slots__ = ()


def excerpt(text: str, most: int = 400) -> str:
    """Text that nobody vouches for, ``visible`` on one line.

    Args:
        most: characters; more are cut off, and said to be.
    """
    words = " ".join(text[:most].split())
    return visible(words if len(text) <= most else f"{words}... ({len(text):,} characters)")


def clip(text: str, letters: int = 48) -> str:
    """At most so many letters of a text, as a key or a table has room for."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def plain(text: str) -> str:
    """Text as Markdown that shows exactly it, on one line."""
    return text if isinstance(text, Markdown) else SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {plain(line)}" for line in lines)


def document(*blocks: str | Sequence[str]) -> str:
    """A page of blocks: Markdown (titles, sentences, tables, figures), and lines that become a
    list; none that is empty.
    """
    text = (
        "\n\n".join(
            block if isinstance(block, str) else bullets(block) for block in blocks if block
        )
        + "\n"
    )
    return visible(text, keep="\n")


def standings(conditions: "Sequence[Condition]") -> str:
    """How each condition stands, a line each."""
    return "\n".join(f"- {plain(c.name)} **{c.standing}** ({c.letter})" for c in conditions)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, numbers right-aligned; what every row, or more than one, would say in the same
    sentence is said below it.
    """
    columns, rows, notes = told_once(columns, rows)
    ends = [
        "---:" if rows and all(is_number(row[place]) for row in rows) else "---"
        for place in range(len(columns))
    ]
    lines = [[*map(_cell, columns)], ends, *([*map(_cell, row)] for row in rows)]
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([drawn, *(plain(note) for note in notes)])


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")


class CheckState(StrEnum):
    """How a check ended, the worst last."""

    OK = "ok"
    NOTE = "note"
    UNCHECKED = "not checked"
    BUSY = "not checked, because another process is using these files"
    PROBLEM = "PROBLEM"

    @property
    def badness(self) -> int:
        return list(CheckState).index(self)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. Its words may hold text from anywhere: nothing in them acts on
    a terminal.

    Attributes:
        name: what was looked at.
        state: how it stands.
        words: what was seen.
        remedy: what to do; empty: nothing.
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
        return self.name, str(self.state), self.told

    @property
    def told(self) -> str:
        """What was seen, and what to do."""
        return f"{self.words}: {self.remedy}" if self.remedy else self.words

    def as_json(self) -> dict[str, str]:
        return {
            "check": self.name,
            "state": str(self.state),
            "words": self.words,
            "remedy": self.remedy,
        }


def worst(checks: Sequence[Check]) -> CheckState:
    """The worst state of several; ok if there are none."""
    return max(
        (check.state for check in checks), key=lambda state: state.badness, default=CheckState.OK
    )


@dataclass
class Findings:
    """Checks as they are made."""

    checks: list[Check] = field(default_factory=list)

    def ok(self, name: str, words: str) -> None:
        self.checks.append(Check(name, CheckState.OK, words))

    def note(self, name: str, words: str, remedy: str = "") -> None:
        """It holds, and somebody should know."""
        self.checks.append(Check(name, CheckState.NOTE, words, remedy))

    def unchecked(self, name: str, words: str, remedy: str = "") -> None:
        """Nobody could look."""
        self.checks.append(Check(name, CheckState.UNCHECKED, words, remedy))

    def problem(self, name: str, words: str, remedy: str = "") -> None:
        self.checks.append(Check(name, CheckState.PROBLEM, words, remedy))

    def compare(self, name: str, holds: bool, right: str, wrong: str) -> None:
        (self.ok if holds else self.problem)(name, right if holds else wrong)

    @contextmanager
    def looking(self, name: str) -> Iterator[None]:
        """Note what is wrong as a problem of this name, and others' code and forms no longer
        read as not checked.
        """
        try:
            yield
        except UntrustedCode as error:
            self.unchecked(name, error.fact)
        except Superseded as error:
            self.unchecked(name, str(error))
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


PARTS = Path(__file__).parent / "page"
DPI = 300  # of a record's figures
# of a figure's width in print: below it, its words are too small to read, and it scrolls instead
SMALLEST = 0.64
MARKS = {
    str(Standing.PROVED): "proved",
    str(Standing.DECLARED): "declared",
    str(Standing.VOID): "void",
}
MARKS |= {
    str(CheckState.OK): "proved",
    str(CheckState.NOTE): "declared",
    str(CheckState.UNCHECKED): "declared",
    str(CheckState.BUSY): "declared",
    str(CheckState.PROBLEM): "void",
    str(Outcome.UNTESTED): "declared",
    str(Outcome.VIOLATED): "void",
}

Figures = Callable[[str], bytes | None]
"""From a path in the record (``figures/NAME.png``) to the picture; None: the record has no such
figure.
"""


def report_page(markdown: str, figures: Figures) -> str:
    """report.html from report.md; the same words and figures give the same bytes."""
    tokens = _parser().parse(markdown)
    title = next((after.content for token, after in pairwise(tokens) if token.tag == "h1"), "agt")
    return page(title, _parser().renderer.render(tokens, _parser().options, {"figures": figures}))


def page(title: str, body: str) -> str:
    """A whole page.

    Args:
        title: as text.
        body: as HTML, in which every name is escaped.
    """
    style, script = (
        (PARTS / name).read_text(encoding="utf-8") for name in ("style.css", "sort.js")
    )
    title, body = escape(visible(title)), visible(body, keep="\n")
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


def _sentence(text: str) -> bool:
    return len(text) >= CLAUSE and " " in text


FOLDED = ("Every number", "Setting", "Settings of the training run")
BOX = '<div class="scroll" tabindex="0">'


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("image", _image)
    parser.add_render_rule("table_open", lambda *_: f"{BOX}<table>\n")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.core.ruler.push("standings", lambda state: _mark(state.tokens))
    parser.core.ruler.push("folds", lambda state: _fold(state.tokens))
    return parser


def _fold(tokens: list[Token]) -> None:
    """What is long and seldom read is folded away below its title."""
    titles = [at for at in range(len(tokens)) if _opens(tokens[at], "h2")]
    for start, end in reversed([*pairwise([*titles, len(tokens)])]):
        if tokens[start + 1].content in FOLDED:
            for at, html in (
                (end, "</details>\n"),
                (start + 3, "</summary>\n"),
                (start, "<details>\n<summary>"),
            ):
                tokens.insert(at, Token("html_block", "", 0, content=html))


def _opens(token: Token, tag: str) -> bool:
    return token.type == "heading_open" and token.tag == tag


def _image(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    place: int,
    options: object,
    env: MutableMapping[str, Any],
) -> str:
    """A figure of the record, inside the page; any other picture is its words."""
    words, content = escape(tokens[place].content), env["figures"](str(tokens[place].attrs["src"]))
    if content is None:
        return words
    # of a PNG, in pixels, as it would be printed
    width = int.from_bytes(content[16:20], "big") * 96 / DPI
    source = f"data:image/png;base64,{b64encode(content).decode()}"
    size = f'width="{width:.0f}" style="min-width: {SMALLEST * width:.0f}px"'
    return f'<span class="scroll" tabindex="0"><img src="{source}" alt="{words}" {size}></span>'


def _mark(tokens: Sequence[Token]) -> None:
    """How conditions stand, in colour beside the word; a list of them becomes a compact block,
    and sentences have room.
    """
    lists: list[Token] = []
    for before, token in pairwise(tokens):
        if token.type == "bullet_list_open":
            lists.append(token)
        elif token.type == "bullet_list_close":
            lists.pop()
        elif before.type == "td_open" and _sentence(token.content):
            before.attrSet("class", "words")
        for strong, word in pairwise(token.children or ()):
            if strong.type == "strong_open" and word.content in MARKS:
                strong.attrSet("class", f"standing {MARKS[word.content]}")
                if lists:
                    lists[-1].attrSet("class", "conditions")
