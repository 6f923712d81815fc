"""Pages for a browser. report.html is report.md, rendered: what one says, the other says, and nothing more.

A page is one file that asks nobody for anything: style, script and a report's figures are inside it. Names of datasets,
columns and classes come from data that nobody has read: raw HTML is text here, a picture is one of the record's own figures
or a line of text, and the page's policy (CSP) runs no other script and loads no address.
"""

from base64 import b64encode
from collections.abc import Callable, MutableMapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from agt.audit.findings import Outcome
from agt.facts import Standing
from agt_cli.report.checks import State
from agt_cli.report.markdown import CLAUSE

PARTS = Path(__file__).parent / "page"
DPI = 200  # of a record's figures
SMALLEST = 0.64  # of a figure's width in print: below it, its words are too small to read, and it scrolls instead
MARKS = {str(Standing.PROVED): "proved", str(Standing.DECLARED): "declared", str(Standing.VOID): "void"}
MARKS |= {
    str(State.OK): "proved",
    str(State.NOTE): "declared",
    str(State.UNCHECKED): "declared",
    str(State.PROBLEM): "void",
    str(Outcome.UNTESTED): "declared",
    str(Outcome.VIOLATED): "void",
}

Figures = Callable[[str], bytes | None]
"""From a path in the record (``figures/NAME.png``) to the picture; None: the record has no such figure."""


def report_page(markdown: str, figures: Figures) -> str:
    """report.html from report.md; the same words and figures give the same bytes."""
    tokens = _parser().parse(markdown)
    title = next((after.content for token, after in pairwise(tokens) if token.tag == "h1"), "agt")
    return page(title, _parser().renderer.render(tokens, _parser().options, {"figures": figures}))


def page(title: str, body: str, pictures: str = "data:") -> str:
    """A whole page.

    Args:
        title: as text.
        body: as HTML, in which every name is escaped.
        pictures: where pictures may come from (the policy's img-src).
    """
    style, script = ((PARTS / name).read_text(encoding="utf-8") for name in ("style.css", "sort.js"))
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src {pictures}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls in a box of its own.

    Args:
        columns: as text.
        rows: as HTML.
    """
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    return f"{BOX}<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}</tbody>\n</table></div>\n"


def _cell(content: str) -> str:
    """A sentence has room; links and standings are short, whatever their HTML."""
    return f'<td class="words">{content}</td>' if _sentence(content) and "<" not in content else f"<td>{content}</td>"


def _sentence(text: str) -> bool:
    return len(text) >= CLAUSE and " " in text


def standing(word: str, look: str) -> str:
    """A word in the colour, and with the mark, of proved, declared or void."""
    return f'<span class="standing {look}">{escape(word)}</span>'


BOX = '<div class="scroll" tabindex="0">'


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("image", _image)
    parser.add_render_rule("table_open", lambda *_: f"{BOX}<table>\n")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.core.ruler.push("standings", lambda state: _mark(state.tokens))
    return parser


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], place: int, options: object, env: MutableMapping[str, Any]
) -> str:
    """A figure of the record, inside the page; any other picture is its words."""
    words, content = escape(tokens[place].content), env["figures"](str(tokens[place].attrs["src"]))
    if content is None:
        return words
    width = int.from_bytes(content[16:20], "big") * 96 / DPI  # of a PNG, in pixels, as it would be printed
    source = f"data:image/png;base64,{b64encode(content).decode()}"
    size = f'width="{width:.0f}" style="min-width: {SMALLEST * width:.0f}px"'
    return f'<span class="scroll" tabindex="0"><img src="{source}" alt="{words}" {size}></span>'


def _mark(tokens: Sequence[Token]) -> None:
    """How conditions stand, in colour beside the word; a list of them becomes a compact block, and sentences have room."""
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
