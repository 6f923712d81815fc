#!/usr/bin/env python3
"""Statements (as ``ast`` counts them), files, imports, functions of each folder, words of pages: it fails nothing.

python scripts/size.py [ROOT]
"""

import ast
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

PARTS = ("agt", "agt_cli", "experiments", "scripts", "tests")
PRODUCT = ("agt", "agt_cli")
COLUMNS = ("files", "statements", "imports", "functions")


def nodes_of(path: Path) -> list[ast.AST]:
    """Everything in a module."""
    return list(ast.walk(ast.parse(path.read_bytes(), str(path))))


def counts(nodes: list[ast.AST]) -> Counter[str]:
    """Of one module, by column."""
    kinds = {"statements": ast.stmt, "imports": (ast.Import, ast.ImportFrom), "functions": ast.FunctionDef}
    return Counter(files=1, **{name: sum(isinstance(node, kind) for node in nodes) for name, kind in kinds.items()})


def lengths(nodes: list[ast.AST]) -> list[int]:
    """Lines of each function."""
    return [node.end_lineno - node.lineno + 1 for node in nodes if isinstance(node, ast.FunctionDef) and node.end_lineno]


def row(name: str, numbers: Counter[str]) -> str:
    """A line of the table."""
    return f"{name:28}" + "".join(f"{numbers[column]:>12,}" for column in COLUMNS)


def pages(root: Path) -> str:
    """Configurations, pages and their words, and the README's lines."""
    texts = [path.read_text() for path in (root / "docs").rglob("*.md")]
    words, configs = sum(len(text.split()) for text in texts), sum(1 for _ in (root / "conf").rglob("*.yaml"))
    readme = len((root / "README.md").read_text().splitlines())
    return f"conf: {configs} files; docs: {len(texts)} pages, {words:,} words; README: {readme} lines"


def main() -> None:
    """Print the tables."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folders: dict[str, Counter[str]] = defaultdict(Counter)
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    long: list[int] = []
    for path in sorted(path for part in PARTS for path in (root / part).rglob("*.py")):
        place, nodes = path.relative_to(root).parts, nodes_of(path)
        folders["/".join(place[: 2 if len(place) > 2 else 1])] += counts(nodes)
        totals[f"= {place[0]}"] += counts(nodes)
        long += lengths(nodes) if place[0] in PRODUCT else []
    print(f"{'folder':28}" + "".join(f"{column:>12}" for column in COLUMNS))
    print("\n".join(row(name, numbers) for name, numbers in [*sorted(folders.items()), *sorted(totals.items())]))
    product, long = sum((totals[f"= {part}"] for part in PRODUCT), Counter[str]()), sorted(long)
    share = 100 * product["imports"] / product["statements"]
    tenth = long[len(long) * 9 // 10]
    print(
        f"agt and agt_cli: {product['statements']:,} statements, {share:.1f} % of them imports, in {product['files']} files"
    )
    print(
        f"lines of their functions: median {statistics.median(long):g}, nine in ten at most {tenth}, the longest {long[-1]}"
    )
    print(pages(root))


if __name__ == "__main__":
    main()
