"""Every sentence that agt says, with its place and an example.

    python scripts/messages.py                          all of them
    python scripts/messages.py --draw 120 --seed 3f21ab90     some at random, to be read by somebody

| kind    | what it is                                                            |
|---------|-----------------------------------------------------------------------|
| fact    | of a condition or of an erasure: a code with a template               |
| claim   | of a release, a ledger, a page's fixed parts                          |
| error   | what is raised                                                        |
| console | what a command says or a page has                                     |

An example has the names of values in place of the values: ``<certificate.tolerance>``.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agt.fact_sentences import BROKEN_BY, TEMPLATES
from agt.unlearning.sentences import TEMPLATES as ERASURE_TEMPLATES

ROOMS = ("agt", "agt_cli", "agt_audit")
CLAIM_FILES = ("agt/sentences.py", "agt_cli/report/release_md.py")
LEAST_WORDS = 5


class Message(NamedTuple):
    """A template of a sentence.

    Attributes:
        kind: fact, claim, error or console.
        place: the file and line, or the code of a fact.
        example: the sentence, with the names of its values.
    """

    kind: str
    place: str
    example: str


def example_of(node: ast.expr) -> str | None:
    """Return a string of the source as a reader sees it; None: the expression is no string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            parts.append(f"<{ast.unparse(part.value)}>")
    return "".join(parts)


def strings_of(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the outermost strings of a tree that are no docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.expr) and example_of(node) is not None:
            yield node
        else:
            yield from strings_of(node)


def messages_of(path: Path) -> Iterator[Message]:
    """Yield the sentences of a file: those that are raised, and the others."""
    tree = ast.parse(path.read_text())
    raised = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            raised |= {id(text) for text in strings_of(node)}
    for node in strings_of(tree):
        text = " ".join((example_of(node) or "").split())
        if len(text.split()) < LEAST_WORDS:
            continue
        kind = "console"
        if id(node) in raised:
            kind = "error"
        elif path.as_posix() in CLAIM_FILES:
            kind = "claim"
        yield Message(kind, f"{path}:{node.lineno}", text)


def facts() -> Iterator[Message]:
    """Yield the sentences of facts and of erasures, which have codes."""
    for code, template in (TEMPLATES | ERASURE_TEMPLATES).items():
        yield Message("fact", code, template.replace("{", "<").replace("}", ">"))
    for code, template in BROKEN_BY.items():
        example = template.replace("{", "<").replace("}", ">")
        yield Message("fact", f"{code}, false if", example)


def all_messages() -> list[Message]:
    """Return every sentence of at least ``LEAST_WORDS`` words, each once."""
    found = list(facts())
    for room in ROOMS:
        for path in sorted(Path(room).rglob("*.py")):
            if path.name not in ("fact_sentences.py",) and path.parts[:2] != ("agt", "unlearning"):
                found += messages_of(path)
    return list({message.example: message for message in found}.values())


def main() -> None:
    """Print the messages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", type=int, help="how many, at random; all by default")
    parser.add_argument("--seed", type=lambda text: int(text, 16), default=0)
    arguments = parser.parse_args()
    messages = all_messages()
    if arguments.draw:
        messages = random.Random(arguments.seed).sample(messages, arguments.draw)
    for message in messages:
        print(f"{message.kind:8} {message.place:60} {message.example}")


if __name__ == "__main__":
    main()
