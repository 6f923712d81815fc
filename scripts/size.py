#!/usr/bin/env python3
"""Statements (as ``ast`` counts them), files, imports, functions of each folder: it fails nothing.

python scripts/size.py [ROOT]
"""

import ast
import sys
from collections import Counter, defaultdict
from pathlib import Path

PARTS = ("agt", "agt_cli", "agt_audit", "experiments", "scripts", "tests")
KINDS = {
    "statements": ast.stmt,
    "imports": (ast.Import, ast.ImportFrom),
    "functions": ast.FunctionDef,
}


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folders: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted(path for part in PARTS for path in (root / part).rglob("*.py")):
        place = path.relative_to(root).parts
        nodes = list(ast.walk(ast.parse(path.read_bytes(), str(path))))
        counts = {
            name: sum(isinstance(node, kind) for node in nodes) for name, kind in KINDS.items()
        }
        for name in ("/".join(place[: 2 if len(place) > 2 else 1]), f"= {place[0]}"):
            folders[name].update(counts, files=1)
    print(f"{'folder':28}" + "".join(f"{column:>12}" for column in ("files", *KINDS)))
    for name, numbers in sorted(
        folders.items(), key=lambda pair: (pair[0].startswith("="), pair[0])
    ):
        print(f"{name:28}" + "".join(f"{numbers[column]:>12,}" for column in ("files", *KINDS)))


if __name__ == "__main__":
    main()
