"""Every example in Python on a page passes ``mypy --strict``."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
READERS = {
    "agt": "import agt",
    "x": "x = np.zeros((4, 2))",
    "y": "y = np.arange(4) % 2",
    "queries": "queries = np.zeros((4, 2))",
    "frame": "frame = pd.DataFrame()",
    "patient_ids": "patient_ids = np.arange(4)",
    "customers": "customers = np.arange(4)",
    "declared": "declared = agt.Declared(size=100)",
    "model": 'model = agt.load("model")',
}
"""What a page says in words, or in an earlier block: name -> the line that makes it."""


def names_of_readers(block: str) -> set[str]:
    """The names that a block reads and its reader brings: it reads them before it makes them."""
    first: dict[str, tuple[tuple[int, int], bool]] = {}
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.Name):
            stored = isinstance(node.ctx, ast.Store)
            # what an assignment makes is there once its right side was read
            place = (node.end_lineno or 0, node.col_offset + 1000 * stored)
            earlier = first.setdefault(node.id, (place, stored))
            first[node.id] = min(earlier, (place, stored))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return {name for name, (_, stored) in first.items() if not stored} - imported


def examples() -> Iterator[tuple[str, str]]:
    """The name and the text of a module for each block."""
    for page in PAGES:
        for number, block in enumerate(FENCE.findall(page.read_text(encoding="utf-8"))):
            named = names_of_readers(block)
            if "model" in named:
                named.add("agt")
            # a block that imports agt further down reads it there
            if re.search("^import agt$", block, re.MULTILINE):
                named.discard("agt")
            lines = [line for name, line in READERS.items() if name in named]
            brought = ["import numpy as np", "import pandas as pd"] if lines else []
            yield f"{page.stem}_{number}.py", "\n".join([*brought, *lines, block])


def test_what_a_block_reads_before_it_makes_it_is_its_readers() -> None:
    assert names_of_readers("import agt\nm = agt.f(x)\nx = m\n") == {"x"}


def test_every_example_on_a_page_is_typed_strictly(tmp_path: Path) -> None:
    """What mypy knows of our packages is that of ``make types``, where it was carried out."""
    pytest.importorskip("mypy")
    found = dict(examples())
    assert len(found) > 10
    folder = tmp_path / "pages"  # pyproject.toml has the strict settings of this package
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--package", folder.name],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
