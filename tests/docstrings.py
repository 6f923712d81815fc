"""Docstrings of source files, without importing them."""

import ast
from functools import cache
from pathlib import Path

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def docstrings(path: Path) -> tuple[str, ...]:
    """Return every docstring of a file; nothing is looked for inside expressions, where there is
    none.
    """
    found = []
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, DOCUMENTED):
            found.append(ast.get_docstring(node) or "")
        waiting += [
            child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)
        ]
    return tuple(found)
