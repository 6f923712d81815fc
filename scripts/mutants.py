"""Mistakes planted one at a time, and the tests that must notice each: tests/mutants.yaml has both.

    python scripts/mutants.py              every mutant against its killers: tests/mutants.csv
    python scripts/mutants.py --only NAME  those whose name has this in it, with the tests' output
    python scripts/mutants.py --check      only that each text occurs once, and each killer exists

A mutant names no file: its old text occurs once in the sources, whitespace aside. A killer that
moved is found by its name. A mutant of a guarantee needs two killers, any other one. Each is tried
in a copy of the tree, in a process that is forked from one which has imported the libraries (but
nothing of agt).
"""

import argparse
import ast
import csv
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("agt", "agt_cli", "agt_audit", "experiments")
LIBRARIES = (
    "torch",
    "numba",
    "scipy.linalg",
    "scipy.special",
    "pandas",
    "pyarrow.parquet",
    "hydra",
    "hypothesis",
)
SECONDS = 300  # for one test
PASSED = "passed"
KILLED = "killed"
ABSENT = "not run"
Mutant = SimpleNamespace  # what an entry of tests/mutants.yaml has
Outcomes = dict[str, tuple[str, float]]  # test -> how it ended, and in how many seconds


def read_sources(root: Path) -> dict[Path, str]:
    """Path -> text of every module that a mutant may be planted in."""
    return {
        path: path.read_text()
        for folder in SOURCES
        for path in sorted((root / folder).rglob("*.py"))
    }


@cache
def squeezed(text: str) -> str:
    """Without whitespace, so that it does not matter how a text is broken into lines."""
    return "".join(text.split())


def mutated(mutant: Mutant, sources: Mapping[Path, str]) -> tuple[Path, str]:
    """(the file that changes, its new text).

    Raises:
        LookupError: the old text does not occur exactly once.
        SyntaxError: the new text is no Python.
    """
    old = squeezed(mutant.old)
    found = [path for path, text in sources.items() for _ in range(squeezed(text).count(old))]
    if len(found) != 1:
        raise LookupError(
            "its old text is "
            f"{'ambiguous: ' + ', '.join(map(str, found)) if found else 'not found'}"
        )
    text = sources[found[0]]
    at = squeezed(sources[found[0]]).index(old)
    solid = [index for index, letter in enumerate(text) if not letter.isspace()]
    start = solid[at]
    stop = solid[at + len(old) - 1] + 1
    line = text[text.rfind("\n", 0, start) + 1 : start]
    indent = line[: len(line) - len(line.lstrip())]
    changed = text[:start] + mutant.new.rstrip("\n").replace("\n", f"\n{indent}") + text[stop:]
    compile(changed, found[0], "exec")
    return found[0], changed


def test_places(root: Path) -> dict[str, list[str]]:
    """Name of a test function -> the files that define it, relative to the root."""
    places: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                places.setdefault(node.name, []).append(path.relative_to(root).as_posix())
    return places


def located(killer: str, places: Mapping[str, Sequence[str]]) -> str:
    """The id of a test as it is now, wherever its file went.

    Raises:
        LookupError: no test has this name, or several have and none where the id says.
    """
    path, _, test = killer.partition("::")
    found = places.get(function_of(test).rpartition("::")[2], [])
    if path not in found and len(found) != 1:
        raise LookupError(f"{killer} is {'one of ' + ', '.join(found) if found else 'no test'}")
    return killer if path in found else f"{found[0]}::{test}"


def function_of(test: str) -> str:
    """Without the case."""
    return test.partition("[")[0]


def problems(mutants: Sequence[Mutant], root: Path = ROOT) -> Iterator[str]:
    """What is wrong with the list, a line each."""
    sources = read_sources(root)
    places = test_places(root)
    for mutant in mutants:
        if len({*mutant.killers}) < 1 + mutant.guarantee:
            yield f"{mutant.name}: killers are too few"
        for check in (
            partial(mutated, mutant, sources),
            *(partial(located, each, places) for each in mutant.killers),
        ):
            try:
                check()
            except (LookupError, SyntaxError) as error:
                yield f"{mutant.name}: {error}"


class Recorder:
    """A plugin that picks the cases which killers name, and notes how each ended."""

    def __init__(self, killers: Sequence[str]) -> None:
        self.killers, self.cases = {*killers}, Outcomes()

    def pytest_collection_modifyitems(self, items) -> None:  # type: ignore[no-untyped-def]
        whole = {
            function_of(killer) for killer in self.killers - {item.nodeid for item in items}
        }  # its case is gone, or none
        items[:] = [
            item
            for item in items
            if item.nodeid in self.killers or function_of(item.nodeid) in whole
        ]

    def pytest_runtest_logreport(self, report) -> None:  # type: ignore[no-untyped-def]
        before, seconds = self.cases.get(report.nodeid, (PASSED, 0.0))
        late = "Timeout (>" in str(report.longrepr)  # of a busy machine, maybe: that tells nothing
        now = ABSENT if late else KILLED if report.failed else report.outcome
        self.cases[report.nodeid] = (before if now == PASSED else now, seconds + report.duration)

    def ended(self, killer: str) -> tuple[str, float]:
        """How a test ended, with all its cases where it names none that is there: killed, if one
        of them is.
        """
        named = [self.cases[killer]] if killer in self.cases else []
        cases = named or [
            case for test, case in self.cases.items() if function_of(test) == function_of(killer)
        ]
        words = {word for word, _ in cases}
        return KILLED if KILLED in words else PASSED if words == {PASSED} else ABSENT, sum(
            each for _, each in cases
        )


def run_tests(tree: Path, killers: Sequence[str], shown: bool = False) -> None:
    """Run tests of a tree in this process, which is used up by it; how each ended is written
    beside the tree.
    """
    os.chdir(tree)
    os.environ["PYTHONPATH"] = sys.path[0] = str(tree)
    if not shown:
        log = os.open(tree.with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1), os.dup2(log, 2)
    recorder = Recorder(killers)
    options = [
        "-n0",
        "-q",
        "-pno:cacheprovider",
        "--assert=plain",
        f"-otimeout={SECONDS}",
        f"--rootdir={tree}",
    ]
    code = importlib.import_module("pytest").main(
        [*options, *sorted(set(map(function_of, killers)))], [recorder]
    )
    ran = code in (0, 1)  # all passed, or some failed; else none has noticed anything
    tree.with_suffix(".json").write_text(
        json.dumps({each: recorder.ended(each) if ran else (ABSENT, 0) for each in killers})
    )


def try_mutant(mutant: Mutant, killers: Sequence[str], base: Path, shown: bool) -> None:
    """Plant a mistake in a copy of the tree ``base``, and run its killers there."""
    tree = base.with_name(mutant.name)
    shutil.copytree(base, tree, copy_function=os.link, symlinks=True)
    path, text = mutated(mutant, read_sources(tree))
    path.unlink()  # it is the base's file, too
    path.write_text(text)
    for cached in path.parent.glob("__pycache__/*.nb?") if "njit" in text else ():
        cached.unlink()  # what Numba compiled of the other text
    run_tests(tree, killers, shown)
    shutil.rmtree(tree)


def forked(
    works: Mapping[str, Callable[[], None]], jobs: int, place: Path
) -> Iterator[tuple[str, Outcomes]]:
    """Do each work in a process of its own, ``jobs`` at once; yields its name and how its tests
    ended.
    """
    waiting = list(works)
    running = dict[int, str]()
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            running[pid := os.fork()] = name
            if not pid:
                try:
                    works[name]()
                finally:
                    os._exit(0)  # nothing of the parent's is tidied up here
        name = running.pop(os.wait()[0])
        result = place / f"{name}.json"
        yield name, json.loads(result.read_text()) if result.exists() else {}


def copied_tree(base: Path) -> None:
    """What git knows of this tree or does not ignore; and what Numba compiled, taken where the
    source is the same.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    )
    compiled = [
        path.relative_to(ROOT)
        for folder in SOURCES
        for path in (ROOT / folder).rglob("__pycache__/*.nb?")
    ]
    for name in (*listed.stdout.decode().split("\0"), *compiled):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy2(ROOT / name, base / name)


def run(
    mutants: Sequence[Mutant], jobs: int, shown: bool, place: Path
) -> list[tuple[Mutant, Outcomes]]:
    """Each mutant, and how its killers ended; one that does not pass where there is no mutant is
    as good as absent.
    """
    places = test_places(ROOT)
    base = place / "base"
    killers = {
        mutant.name: [located(killer, places) for killer in mutant.killers] for mutant in mutants
    }
    copied_tree(base)
    for library in LIBRARIES:
        importlib.import_module(library)
    everyone = sorted({killer for some in killers.values() for killer in some})
    ((_, ended),) = forked({"base": partial(run_tests, base, everyone)}, 1, place)
    spoilt = {killer for killer in everyone if ended.get(killer, (ABSENT, 0.0))[0] != PASSED}
    if spoilt:
        print(
            base.with_suffix(".log").read_text()[-3000:],
            "without any mutant these fail, or do not run:",
            *spoilt,
            sep="\n",
        )
    works = {
        mutant.name: partial(try_mutant, mutant, killers[mutant.name], base, shown)
        for mutant in mutants
    }
    outcomes = {}
    for name, found in forked(works, jobs, place):
        outcomes[name] = {
            each: (ABSENT, 0.0) if each in spoilt else found.get(each, (ABSENT, 0.0))
            for each in killers[name]
        }
        alive = [killer for killer, (word, _) in outcomes[name].items() if word != KILLED]
        seconds = sum(seconds for _, seconds in outcomes[name].values())
        print(
            f"{name:32} {seconds:5.1f} s  "
            f"{'NOT NOTICED by ' + ', '.join(alive) if alive else 'killed'}",
            flush=True,
        )
    return [(mutant, outcomes[mutant.name]) for mutant in mutants]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False  # trees share what is compiled
    mutants = [
        Mutant(**entry) for entry in yaml.safe_load((ROOT / "tests/mutants.yaml").read_text())
    ]
    wrong = list(problems(mutants))
    if wrong or given.check:
        print("\n".join(wrong) or f"{len(mutants)} mutants are in order")
        return bool(wrong)
    mutants = [mutant for mutant in mutants if given.only in mutant.name]
    if not mutants:
        parser.error(f"no mutant has {given.only!r} in its name")
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        ended = run(mutants, given.jobs, bool(given.only), Path(place))
    if not given.only:
        rows = [
            (m.name, m.guarantee, killer, word)
            for m, outcomes in ended
            for killer, (word, _) in outcomes.items()
        ]
        with (ROOT / "tests/mutants.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [("mutant", "guarantee", "killer", "outcome"), *rows]
            )
    alive = [
        m.name
        for m, outcomes in ended
        if [word for word, _ in outcomes.values()].count(KILLED) < 1 + m.guarantee
    ]
    print(
        f"{len(mutants)} mutants; "
        + (f"too few killers: {', '.join(alive)}" if alive else "each is noticed")
    )
    return bool(alive)


if __name__ == "__main__":
    raise SystemExit(main())
