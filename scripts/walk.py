"""How calls move between the rooms of the code while a command runs: down, as imports do, or back up.

    python scripts/walk.py              train, certify, predict and plan on a small run, and a table

A call climbs when a function of a lower room calls one of a higher: a callback, a method of a value that was handed down.
Each distinct pair of modules that climbs is listed; the fewer, the easier a reader follows. Rooms are
those of docs/architecture.md, as tests/unit/test_architecture.py holds them.
"""

import argparse
import ast
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
SMALL = ("dataset.n_train=120", "training.epochs=2", "kgrid.max=4", "model.hidden=[4]", "training.chosen_on=public")
COMMANDS = {
    "train": SMALL,
    "certify": ("run={run}", "map_resolution=0"),
    "plan": ("run={run}",),
    "predict": ("run={run}", "mechanism.eps=1"),
}


def rooms() -> tuple[tuple[str, ...], ...]:
    """The rooms from the bottom, as the test of imports has them."""
    tree = ast.parse((ROOT / "tests" / "unit" / "test_architecture.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ROOMS":
            value: tuple[tuple[str, ...], ...] = ast.literal_eval(node.value)
            return value
    raise LookupError("ROOMS")


ROOMS = rooms()


def level(module: str) -> int | None:
    """How high a module's room stands."""
    for place, names in enumerate(ROOMS):
        if any(module == name or module.startswith(f"{name}.") for name in names):
            return place
    return None


class Walk:
    """Distinct (caller, callee) modules of calls between rooms, while it is the profiler."""

    def __init__(self) -> None:
        self.down: set[tuple[str, str]] = set()
        self.up: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        """Note one call."""
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        callee = str(frame.f_globals.get("__name__", ""))
        there = level(callee)
        if there is None:
            return
        above = frame.f_back
        while above is not None and level(str(above.f_globals.get("__name__", ""))) is None:
            above = above.f_back
        if above is None:
            return
        caller = str(above.f_globals["__name__"])
        here = level(caller)
        if here is not None and here != there:
            (self.up if there > here else self.down).add((caller, callee))


def walked(main: Callable[[list[str]], Any], words: list[str]) -> Walk:
    """Run a command with its output put aside."""
    walk, kept = Walk(), (os.dup(1), os.dup(2))
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
        sys.setprofile(walk)
        try:
            code = main(words)
        finally:
            sys.setprofile(None)
            for stream, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, stream)
    if code:
        raise SystemExit(f"agt {' '.join(words)} ended with {code}")
    return walk


def main() -> None:
    """Walk every command, and say where it climbed."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    sys.path.insert(0, str(ROOT))
    from agt_cli.cli import main as agt

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        walks = {}
        for command, words in COMMANDS.items():
            run = max(Path("outputs/train").glob("*"), default=Path())
            walks[command] = walked(agt, [command, *(word.format(run=run) for word in words)])
    table = Table("command", "pairs of modules, down", "pairs, back up", title="calls between rooms")
    for command, walk in walks.items():
        table.add_row(command, str(len(walk.down)), str(len(walk.up)))
    console = Console(width=120)
    console.print(table)
    for command, walk in walks.items():
        for caller, callee in sorted(walk.up):
            console.print(f"{command}: {caller} calls {callee}")


if __name__ == "__main__":
    main()
