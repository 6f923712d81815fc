"""Every sentence that agt says, with its place and an example.

    python scripts/messages.py                          all of them
    python scripts/messages.py --draw 120 --seed 3f21ab90     some at random, to be read by somebody

| kind    | what it is                                                            |
|---------|-----------------------------------------------------------------------|
| fact    | of a condition or of an erasure: a code with a template               |
| claim   | of a release, a ledger, a page's fixed parts                          |
| error   | what is raised                                                        |
| console | what a command says or a page has                                     |

An example is what a reader sees, as far as the source shows it:

- values have their names: ``<tolerance>``;
- a text that is only ever put into another one is shown there (a local variable, a private
  constant of the module, the two sides of a sum); with a choice, each text is an example;
- a label that the page prints beside the text is shown before it ("claimed: ...");
- SQL, shell scripts, patterns and types are left out, because nobody is told them.
"""

import argparse
import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agt.fact_sentences import BROKEN_BY, TEMPLATES
from agt.unlearning.sentences import TEMPLATES as ERASURE_TEMPLATES

ROOMS = ("agt", "agt_cli", "agt_audit")
CLAIM_FILES = ("agt/sentences.py", "agt_cli/report/release_md.py")
LEAST_WORDS = 5
MOST_VARIANTS = 4  # of a text with choices
FACT_LABELS = {"false if": "this declaration is false if"}
FINDING = ("subject", "claim", "attack", "effort", "outcome", "meaning", "measure")
COUNTEREXAMPLES = ("subject", "claim", "attack", "effort", "measure", "found", "meaning", "able")
FINDING_LABELS = {
    "subject": "audited: ",
    "claim": "claimed: ",
    "attack": "attacked, how hard: ",
    "effort": "attacked, how hard: ",
    "noticeable": "The audit could have detected: ",
    "able": "The audit could have detected: ",
}
"""The label that a page prints beside a field of a finding (agt_audit/page.py)."""
LABELS = {
    "selftest.PLANTED": "planted violation: ",
    "selftest.SOUND": "correct claim: ",
    "selftest.CASES": "case of the kernels' self-test: ",
    "sections_md.REQUIREMENTS": "condition <letter>: ",
    "data.COUNTS_ROWS": "column '<column>' ",
    "inspect.remark": "column '<column>': ",
    "choices._UNREAD": "note: <setting> ",
    "choices.table": "note: <setting> ",
    "job.question": "an attacker who guesses whether ",
    "account_md.METHOD_WORDS": "<records> removed from the run by ",
    "account_md.REQUESTS": "exact, ",
    "names.ENTRIES": "relation=<name>: ",
    "ball_template": "k counts ",
    "edit_template": "one edit: ",
}
"""The text that is printed before a constant, or before each text in it or in an argument; the
name of a constant, or that of its module and its own.
"""
NOT_SENTENCES = re.compile(
    r"^(SELECT|INSERT|CREATE|PRAGMA)\b|\bPRAGMA\b|<!doctype|<span |default-src|width=\"<"
    r"|\bimport json\b|\(\?|\(\[\^|complete -c|compopt|compadd|np\.append|^<[^>]*>$"
    r"|^[\w.\[\], ]+( \| [\w.\[\], ]+)+$|\(\\S"
)
PIECE = re.compile(r"[;,.:(]|$")  # how a piece of a sentence begins
PLAIN_CALLS = frozenset(
    ("str", "repr", "plain", "printable", "capital", "excerpt", "quoted", "list", "tuple")
) | frozenset(("sorted", "float", "int", "first_line", "few", "max", "min", "shlex.join"))
Env = dict[str, list[ast.expr]]


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


def named(template: str) -> str:
    """Return a template of ``str.format`` with the names of its values in brackets."""
    template = re.sub(r"\{config:\+?([^{}]*)\}", r"\1", template)
    template = re.sub(r"\{(\w+)(![rs])?(:[^{}]*)?\}", r"<\1>", template)
    return template.replace("{}", "<value>")


def value_name(node: ast.expr) -> str:
    """Return a short name of a value: what a reader may think of in its place."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called == "len" and len(node.args) == 1:
            return f"number of {value_name(node.args[0])}"
        if called in PLAIN_CALLS and node.args:
            return value_name(node.args[0])
        if called.endswith(".join") and len(node.args) == 1:
            return value_name(node.args[0])
        if called.startswith(("self.", "_")) and not node.args:
            return called.removeprefix("self.").strip("_").replace("_", " ")
    if isinstance(node, ast.Attribute):
        return ".".join(ast.unparse(node).removeprefix("self.").split(".")[-2:])
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return value_name(node.generators[0].iter)
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return node.slice.value
        return value_name(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant):
        return value_name(node.right)
    if isinstance(node, ast.BoolOp):
        return value_name(node.values[0])
    return ast.unparse(node)


class Renderer:
    """The texts of a module as a reader sees them.

    Attributes:
        used: the ids of the nodes that were shown as a part of another text.
    """

    def __init__(self, module: str, constants: Env) -> None:
        self._module = module
        self._constants = constants
        self.pieces = dict[str, list[tuple[ast.expr, Env]]]()
        self.used = set[int]()

    def label(self, name: str) -> str:
        """Return the text that is printed before the texts in a constant or an argument."""
        return LABELS.get(f"{self._module}.{name}", LABELS.get(name, ""))

    def add_pieces(self, function: ast.FunctionDef) -> None:
        """Note the pieces of sentences that a function returns: its callers complete them."""
        env = local_texts(function, self)
        returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
        texts = [node.value for node in returns if node.value is not None]
        shown = all(self.is_text(text, env) or isinstance(text, ast.Name) for text in texts)
        if shown and any(PIECE.match(self.show(text, env, 0)) for text in texts):
            self.pieces[function.name] = [(text, env) for text in texts]

    def _pieces_of(self, node: ast.AST) -> list[tuple[ast.expr, Env]]:
        called = node.func if isinstance(node, ast.Call) else node
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return self.pieces.get(name, [])

    def is_text(self, node: ast.expr, env: Env) -> bool:
        """Whether an expression is a text that the source shows at least a part of."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, str)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.is_text(node.left, env) or self.is_text(node.right, env)
        if isinstance(node, ast.IfExp):
            return self.is_text(node.body, env) or self.is_text(node.orelse, env)
        return isinstance(node, ast.JoinedStr)

    def choices(self, node: ast.expr, env: Env) -> int:
        """Return how many variants of a text there are, the largest choice in it."""
        most = 1
        for part in ast.walk(node):
            if isinstance(part, ast.IfExp):
                most = max(most, 2)
            most = max(most, len(self._pieces_of(part)))
            if isinstance(part, ast.Name):
                texts = env.get(part.id) or self._constants.get(part.id, [])
                inner = {name: found for name, found in env.items() if name != part.id}
                most = max([most, len(texts), *(self.choices(text, inner) for text in texts)])
        return min(most, MOST_VARIANTS)

    def show(self, node: ast.expr, env: Env, variant: int) -> str:
        """Return one variant of a text.

        Args:
            env: the texts of local variables.
            variant: which of several texts is taken where there is a choice.
        """
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self.show(part, env, variant) for part in node.values)
        if isinstance(node, ast.FormattedValue):
            return self.show(node.value, env, variant)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and self.is_text(node, env):
            return self.show(node.left, env, variant) + self.show(node.right, env, variant)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            text = node.left if isinstance(node.left, ast.Constant) else None
            if text is not None and isinstance(text.value, str):
                return str(text.value) if variant % 2 else ""
        if isinstance(node, ast.IfExp) and self.is_text(node, env):
            self.used |= {id(node.body), id(node.orelse)}
            return self.show(node.orelse if variant % 2 else node.body, env, variant)
        if pieces := self._pieces_of(node):
            text, scope = pieces[min(variant, len(pieces) - 1)]
            self.used |= {id(piece) for piece, _ in pieces}
            others = {name: found for name, found in scope.items() if name not in env}
            return self.show(text, others, variant)
        if isinstance(node, ast.Name):
            texts = env.get(node.id) or self._constants.get(node.id)
            if texts:
                self.used |= {id(text) for text in texts}
                inner = {name: found for name, found in env.items() if name != node.id}
                return self.show(texts[min(variant, len(texts) - 1)], inner, variant)
        return f"<{value_name(node)}>"


def local_texts(function: ast.AST, renderer: Renderer) -> Env:
    """Return the local variables of a function that only ever hold texts, and these texts."""
    texts = defaultdict[str, list[ast.expr]](list)
    others = set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and renderer.is_text(node.value, {}):
                    texts[target.id].append(node.value)
                else:
                    others |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before = texts.get(node.target.id)
            if not before or not renderer.is_text(node.value, {}):
                others.add(node.target.id)
            else:
                texts[node.target.id].append(ast.BinOp(before[0], ast.Add(), node.value))
                renderer.used.add(id(node.value))
        elif isinstance(node, ast.For | ast.comprehension | ast.NamedExpr):
            others |= {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
    return {name: found for name, found in texts.items() if name not in others}


def texts_of(
    node: ast.AST, env: Env, renderer: Renderer, label: str = ""
) -> Iterator[tuple[ast.expr, Env, str]]:
    """Yield the outermost texts below a node, the texts of variables there, and their labels."""
    for child in ast.iter_child_nodes(node):
        scope, about = env, label
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.Compare) or _is_pattern(child):
            continue
        if isinstance(child, ast.FunctionDef):
            scope = local_texts(child, renderer)
        if isinstance(child, ast.expr) and renderer.is_text(child, scope):
            yield child, scope, about
        elif isinstance(child, ast.Call) and (fields := _finding_fields(child)):
            yield from _finding_texts(child, fields, scope, renderer)
        else:
            if isinstance(child, ast.Assign | ast.AnnAssign):
                about = renderer.label(_target(child))
            elif isinstance(child, ast.keyword):
                about = renderer.label(child.arg or "")
            elif isinstance(child, ast.stmt | ast.Lambda):
                about = ""
            yield from texts_of(child, scope, renderer, about)


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _is_pattern(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.")


def _finding_fields(node: ast.Call) -> dict[str, ast.expr]:
    """Return the fields that a call gives to a finding of an audit; empty: another call."""
    called = ast.unparse(node.func)
    if called not in ("Finding", "counterexamples"):
        return {}
    names = FINDING if called == "Finding" else COUNTEREXAMPLES
    fields = dict(zip(names, node.args, strict=False))
    return fields | {keyword.arg or "": keyword.value for keyword in node.keywords}


def _finding_texts(
    call: ast.Call, fields: dict[str, ast.expr], env: Env, renderer: Renderer
) -> Iterator[tuple[ast.expr, Env, str]]:
    """Yield the texts of a finding; the attack and its effort are one cell of the page."""
    attack, effort = fields.get("attack"), fields.get("effort")
    joined = None
    if attack is not None and effort is not None and renderer.is_text(effort, env):
        joined = ast.JoinedStr([ast.FormattedValue(attack, -1), ast.Constant("; ")])
        joined.values.append(ast.FormattedValue(effort, -1))
        yield ast.copy_location(joined, call), env, FINDING_LABELS["attack"]
    for name, value in fields.items():
        if joined is not None and name in ("attack", "effort"):
            continue
        if renderer.is_text(value, env):
            yield value, env, FINDING_LABELS.get(name, "")
        else:
            yield from texts_of(value, env, renderer)


def constants_of(path: Path) -> Env:
    """Return the module's constants that are texts."""
    found = Env()
    for node in ast.parse(path.read_text()).body:
        value = getattr(node, "value", None)
        text = value.value if isinstance(value, ast.Constant) else value
        if isinstance(node, ast.Assign) and isinstance(text, str | ast.JoinedStr):
            found[_target(node)] = [value]
    return found


def messages_of(path: Path) -> Iterator[Message]:
    """Yield the sentences of a file: those that are raised, and the others."""
    tree = ast.parse(path.read_text())
    constants = constants_of(path)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            source = Path(*node.module.split(".")).with_suffix(".py")
            if source.parts[0] in ROOMS and source.exists():
                wanted = {alias.name for alias in node.names}
                there = constants_of(source)
                constants |= {name: there[name] for name in wanted & set(there)}
    renderer = Renderer(path.stem, constants)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            renderer.add_pieces(node)
    raised = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            raised |= {id(part) for part in ast.walk(node)}
    shown = list[tuple[ast.expr, Message]]()
    for node, env, label in texts_of(tree, {}, renderer):
        kind = "console"
        if id(node) in raised:
            kind = "error"
        elif path.as_posix() in CLAIM_FILES:
            kind = "claim"
        for variant in range(renderer.choices(node, env)):
            text = named(" ".join(renderer.show(node, env, variant).split()))
            enough = len(re.sub(r"<[^<>]*>", "value", text).split()) >= LEAST_WORDS
            text = label + text
            if enough and not NOT_SENTENCES.search(text):
                shown.append((node, Message(kind, f"{path}:{node.lineno}", text)))
    for node, message in shown:
        if id(node) not in renderer.used:
            yield message


def facts() -> Iterator[Message]:
    """Yield the sentences of facts and of erasures, which have codes."""
    for code, template in (TEMPLATES | ERASURE_TEMPLATES).items():
        if not re.fullmatch(r"\{[^{}]*\}", template):
            yield Message("fact", code, named(template))
    for code, template in BROKEN_BY.items():
        if not re.fullmatch(r"\{[^{}]*\}", template):
            example = f"{FACT_LABELS['false if']} {named(template)}"
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
