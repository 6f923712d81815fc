#!/usr/bin/env python3
"""Golden records: the files that some 100 command lines write, of this source tree and of an
earlier one, byte for byte.

    python scripts/golden.py [--base REV] [--only NAME ...] [--jobs 2]
    python scripts/golden.py --guard [--only NAME ...]    no sentence is read back, in any chain

Each chain of golden.yaml is a list of command lines, run in order in a folder of its own that holds
the inputs made here. Both trees run on this machine, in the same folder one after the other, in a
world that stands still (golden_world/sitecustomize.py says what is fixed there, and why). Compared
are: which files there are, the bytes of all that programs read, the rows of SQLite, exit codes, and
standard output where it is for programs (--json, --cfg job). Not compared is what only people read
(SAID, PAGES). What the base wrote is kept for all checkouts in a folder of the system's temporary
ones, so that it runs once; what this tree wrote lies in .golden/NAME, with what was said in said/.

With --guard nothing is compared: this tree runs with sentences that raise where our own code reads
them (tests/sentences.py), and agt verify over every record that a chain left.

Exit code 0: equal; 1: something differs, or a sentence was read.
"""

import argparse
import csv
import fcntl
import hashlib
import importlib
import inspect
import io
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

BASE = "9a5d85fa"
ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
HOME_VARIABLE = "GOLDEN_HOME"
HOME = Path(
    os.environ.get(HOME_VARIABLE) or Path(tempfile.gettempdir()) / f"golden-agt-{os.getuid()}"
)
GUARD_NOTES = "GUARD_NOTES"  # tests/sentences.py notes readings in the file that it names
VERIFY_ALL = "verify everything"
"""The last line of a guarded chain."""
VERIFIED_ENDS = (0, 3)
"""Of agt verify: it verifies, or it says what does not."""
LIMIT_SECONDS = 240
CRASHED = 70
PAGES = {".md", ".html", ".png", ".pdf", ".svg"}
SAID = {".err", ".said"}
"""Ends of names of files that only people read: they have to be there, and that is all."""
MAY_CHANGE: tuple[tuple[re.Pattern[bytes], bytes, str], ...] = (
    (
        re.compile(rb'("(?:error|noticeable|(?:test_)?verdict)": )"(?:[^"\\]|\\.)*"'),
        rb"\1...",
        "messages inside JSON",
    ),
    (
        re.compile(rb'("peak_(?:gib|memory_[gm]ib)": )[\d.]+'),
        rb"\1...",
        "memory of the process, never twice the same",
    ),
    (re.compile(rb'("modified": )\d+'), rb"\1...", "a file's date: the file system's clock"),
    (re.compile(rb'("(?:agt|by)": )"0\.\d+\.0"'), rb"\1...", "the version"),
)
r"""What files that programs read may differ in: a pattern, what stands for it in both trees, and
why. Hashes may follow.

A name that moved goes here: ``(re.compile(rb"agt\.old\.Name"), b"agt.new.Name", "moved; the old one
still resolves")``.
"""
HASH = re.compile(rb"(?<![0-9a-f])(?:sha256:)?[0-9a-f]{10,64}(?![0-9a-f])")
THREADS = dict.fromkeys(
    ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Difference:
    """Of one file of a chain.

    Attributes:
        kind: missing, new, differs, may change (MAY_CHANGE), or hash: only hashes differ, which may
            follow.
        words: the first line that differs, of both trees.
    """

    name: str
    kind: str
    words: str = ""


def compare(before: Path, after: Path) -> list[Difference]:
    """The differences of two folders' files."""
    old_jobs = job_numbers(before)
    new_jobs = job_numbers(after)
    old = files_of(before, old_jobs)
    new = files_of(after, new_jobs)
    gone = [Difference(name, "missing") for name in sorted(old.keys() - new.keys())]
    come = [Difference(name, "new") for name in sorted(new.keys() - old.keys())]
    differences = []
    for name in sorted(old.keys() & new.keys()):
        if Path(name).suffix in PAGES | SAID:
            continue
        old_content = numbered(content(old[name]), old_jobs)
        new_content = numbered(content(new[name]), new_jobs)
        found = difference(name, old_content, new_content)
        if found is not None:
            differences.append(found)
    return gone + come + differences


def job_numbers(folder: Path) -> dict[str, str]:
    """Names of folders of a sweep's jobs, which depend on the code, -> the jobs' numbers."""
    numbers: dict[str, str] = {}
    for table in folder.rglob("sweep.csv"):
        for row in csv.DictReader(table.read_text().splitlines()):
            if re.fullmatch("[0-9a-f]{24}", row["run"]):
                numbers[row["run"]] = row["job"]
    return numbers


def numbered(content: bytes, jobs: dict[str, str]) -> bytes:
    """Put numbers in the place of names of jobs' folders."""
    for name, number in jobs.items():
        content = content.replace(name.encode(), number.encode())
    return content


def files_of(folder: Path, jobs: dict[str, str]) -> dict[str, Path]:
    """Names of files, with jobs' numbers for names of their folders, -> paths.

    Without those that SQLite keeps beside an open database: ``content`` reads the rows through
    them.
    """
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.endswith(("-wal", "-shm")):
            name = path.relative_to(folder).as_posix()
            found[numbered(name.encode(), jobs).decode()] = path
    return found


def content(path: Path) -> bytes:
    """A file's bytes; of an SQLite file the rows, with the statements that made its tables."""
    read = path.read_bytes()
    if not read.startswith(b"SQLite format 3\0"):
        return read
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        return "\n".join(database.iterdump()).encode()


def difference(name: str, before: bytes, after: bytes) -> Difference | None:
    """Of one file, apart from what may change."""
    if before == after:
        return None
    for pattern, instead, _ in MAY_CHANGE:
        before = pattern.sub(instead, before)
        after = pattern.sub(instead, after)
    if before == after:
        return Difference(name, "may change")
    lines = zip(before.splitlines(), after.splitlines(), strict=False)
    first = next(
        ((a, b) for a, b in lines if a != b), (b"(ends)", b"(goes on, or differs in ends of lines)")
    )
    same = HASH.sub(b"#", before) == HASH.sub(b"#", after)
    words = "\n".join(
        f"      {sign} {shown(line, first)}" for sign, line in zip("-+", first, strict=True)
    )
    return Difference(name, "hash" if same else "differs", words)


def shown(line: bytes, both: tuple[bytes, bytes], width: int = 160) -> str:
    """A line from shortly before where the two of them part."""
    same = next((i for i, (a, b) in enumerate(zip(*both, strict=False)) if a != b), 0)
    return line[max(0, same - 40) :][:width].decode("utf-8", "backslashreplace")


def inputs(folder: Path) -> None:
    """What the command lines read: tables, queries, ids, images, vectors, a key; small, and
    always the same.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    a, b, noise = rng.normal(size=(3, 240)).clip(-3, 3).round(3)
    labels = np.where(a + b / 2 + noise / 2 > 0, "yes", "no")
    region = np.array(["north", "south", "west"])[rng.integers(0, 3, 240)]
    rows = [f"r{i},p{i // 2},{a[i]},{b[i]},{region[i]},{labels[i]}" for i in range(240)]
    head = "id,person,a,b,region,answer"
    (folder / "people.csv").write_text("\n".join([head, *rows, ""]))
    (folder / "labelled.csv").write_text("\n".join([head, *rows[100:140], ""]))
    questions = [",".join(row.split(",")[:5]) for row in (head, *rows[:12])]
    (folder / "queries.csv").write_text("\n".join([*questions, ""]))
    (folder / "ids.txt").write_text("r3\nr8\nr21\n")
    (folder / "more.txt").write_text("r30\n")
    (folder / "units.txt").write_text("p3\np8\np21\n")
    asked = [
        {"id": f"r{i}", "record": {"a": a[i], "b": b[i], "region": region[i]}} for i in range(3)
    ]
    (folder / "asked.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    vectors = rng.normal(size=(160, 6)).astype(np.float32)
    kind = (vectors[:, 0] + vectors[:, 1] > 0).astype(np.int64)
    np.savez(
        folder / "vectors.npz",
        x=vectors,
        label=kind,
        is_test=(np.arange(160) % 4 == 3).astype(np.uint8),
    )
    np.savez(folder / "questions.npz", x=vectors[:9])
    shades = rng.integers(0, 256, size=(140, 8, 8)).astype(np.uint8)
    three = rng.integers(0, 3, size=(140, 1)).astype(np.uint8)
    shades[:, :4, :4] //= (1 + three)[:, :, None]
    parts = {"train": slice(0, 90), "val": slice(90, 110), "test": slice(110, 140)}
    arrays = {
        f"{part}_{what}": array[cut]
        for part, cut in parts.items()
        for what, array in (("images", shades), ("labels", three))
    }
    np.savez(folder / "images.npz", **arrays)


def run_chains(
    tree: Path,
    chains: dict[str, list[str]],
    jobs: int,
    to: dict[str, Path],
    more: Mapping[str, str] | None = None,
) -> None:
    """Run chains with one source tree, in a process of its own; the folder of each comes to ``to``.

    Args:
        more: of the process's environment.
    """
    plan = json.dumps(
        {
            "tree": str(tree),
            "chains": chains,
            "to": {name: str(path) for name, path in to.items()},
            "jobs": jobs,
        }
    )
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AGT_", "GOLDEN_"))
    }
    paths = os.pathsep.join((str(HERE / "golden_world"), str(tree)))
    fixed = {
        "PYTHONPATH": paths,
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "Agg",
        "TZ": "UTC",
        "COLUMNS": "120",
    }
    fixed["XDG_STATE_HOME"] = os.devnull  # no list of ledgers is kept
    environment = {
        **inherited,
        **THREADS,
        **fixed,
        "GOLDEN_NOW": "2030-01-01T00:00:00+00:00",
        **(more or {}),
    }
    subprocess.run(
        [sys.executable, __file__, "--serve"], input=plan, text=True, env=environment, check=True
    )


def serve(plan: dict[str, Any]) -> None:
    """Import the tree once, then fork a process for each command line: several chains at once,
    each in order.
    """
    load(Path(plan["tree"]))
    if GUARD_NOTES in os.environ:
        guard_sentences(Path(plan["tree"]))
    chains = plan["chains"]
    running = dict[int, tuple[str, int]]()
    waiting = list(chains)
    while waiting or running:
        if waiting and len(running) < plan["jobs"]:
            name = waiting.pop(0)
            step = 0
            inputs(HOME / "work" / name)
        else:
            process, status = os.wait()
            name, step = running.pop(process)
            end(name, step, chains[name][step], os.waitstatus_to_exitcode(status))
            step += 1
        if step < len(chains[name]):
            running[started(name, step, chains[name][step])] = name, step
        else:
            shutil.rmtree(plan["to"][name], ignore_errors=True)
            shutil.copytree(HOME / "work" / name, plan["to"][name], symlinks=True)


def end(name: str, step: int, line: str, code: int) -> None:
    """Note what a command ended with; stop where no user would have seen that end."""
    if code in (CRASHED, -signal.SIGALRM):
        sys.exit(
            f"{name}: {line}: no end that a user could see ({code}):\n"
            f"{said(name, step, line, '.err').read_text()}"
        )
    said(name, step, line, ".exit").write_text(f"{code}\n")


def load(tree: Path) -> None:
    """Import whatever of the tree can be, so that each command finds it there."""
    for package in ("agt", "agt_cli", "agt_audit"):
        for path in sorted((tree / package).rglob("*.py")):
            name = ".".join(path.relative_to(tree).with_suffix("").parts).removesuffix(".__init__")
            if path.stem != "__main__":
                with suppress(Exception):  # a GPU's modules, or what a command would tell
                    importlib.import_module(name)


def said(name: str, step: int, line: str, end: str) -> Path:
    """What a step ended with, or wrote to a stream."""
    return (
        HOME / "work" / name / "said" / f"{step:02}-{line.split()[0].strip('$-') or 'shell'}{end}"
    )


def started(name: str, step: int, line: str) -> int:
    """The process of one command line."""
    process = os.fork()
    if process == 0:
        try:
            os._exit(verify_everything(name) if line == VERIFY_ALL else done(name, step, line))
        except BaseException:
            traceback.print_exc()
        os._exit(CRASHED)
    return process


def done(name: str, step: int, line: str) -> int:
    """Run one command line in this process, and say what it ends with."""
    signal.alarm(LIMIT_SECONDS)
    said(name, step, line, "").parent.mkdir(exist_ok=True)
    words, _, source = line.partition(" < ")
    out = said(name, step, line, ".out" if {"--json", "--cfg"} & {*words.split()} else ".said")
    os.chdir(HOME / "work" / name)
    for stream, path in enumerate((source or os.devnull, out, said(name, step, line, ".err"))):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), stream)
    os.environ |= {
        "GOLDEN_SEED": f"{name} {step}",
        "GOLDEN_NOW": f"2030-01-01T00:{step:02}:00+00:00",
    }
    if words.startswith("$"):
        return subprocess.run(words[1:], shell=True, check=False).returncode
    sys.argv = ["agt", *shlex.split(words)]
    try:
        runpy.run_module("agt_cli", run_name="__main__")
    except SystemExit as end:
        sys.stdout.flush()
        return int(end.code or 0)
    return 0


def guard_sentences(tree: Path) -> None:
    """Make every sentence of a template raise where code of the tree reads it, in this process
    and its forks.
    """
    import pytest

    sys.path.insert(0, str(tree / "tests"))
    importlib.import_module("sentences").guard(pytest.MonkeyPatch())


def verify_everything(name: str) -> int:
    """Run agt verify over every folder with a manifest and every ledger that a chain left; 1:
    one ended otherwise.
    """
    home = HOME / "work" / name
    os.chdir(home)
    for stream in (1, 2):
        os.dup2(
            os.open(said(name, 99, "verify", ".said"), os.O_RDWR | os.O_CREAT | os.O_APPEND), stream
        )
    os.environ |= {"GOLDEN_SEED": name, "GOLDEN_NOW": "2030-01-02T00:00:00+00:00"}
    main = importlib.import_module("agt_cli.cli").main
    folders = [path.parent for path in sorted(home.rglob("manifest.json"))]
    ends = {
        str(path): main(["verify", str(path)])
        for path in [*folders, *sorted(home.rglob("*.ledger"))]
    }
    odd = {path: code for path, code in ends.items() if code not in VERIFIED_ENDS}
    print(f"verified {len(ends)}; otherwise: {odd}", flush=True)
    return int(bool(odd))


def run_guarded(chains: dict[str, list[str]], jobs: int) -> int:
    """Run chains with guarded sentences, and agt verify over their records; 1: something of them
    was read.
    """
    with tempfile.TemporaryDirectory(prefix="golden-guard-") as home:
        notes = Path(home) / "notes"
        to = {name: Path(home) / "done" / name for name in chains}
        run_chains(
            ROOT,
            {name: [*lines, VERIFY_ALL] for name, lines in chains.items()},
            jobs,
            to,
            {HOME_VARIABLE: home, GUARD_NOTES: str(notes)},
        )
        read = notes.read_text().splitlines() if notes.exists() else []
        wrong = bool(read)
        for name, lines in chains.items():
            folder = to[name] / "said"
            code = (folder / f"{len(lines):02}-verify.exit").read_text().strip()
            *_, last = (folder / "99-verify.said").read_text().splitlines()
            print(f"{name}: {last}")
            wrong |= code != "0"
    print("\n".join([*read, f"{len(read) // 2} sentences read"]), flush=True)
    return int(wrong)


def checked_out(revision: str) -> Path:
    """The source tree of a revision."""
    tree = HOME / revision / "tree"
    part = HOME / revision / f"tree.{os.getpid()}"
    if not tree.exists():
        packed = subprocess.run(
            ["git", "-C", str(ROOT), "archive", revision], capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(part, filter="data")
        (part / ".git").touch()  # env.json names the revision of a checkout alone
        with suppress(OSError):  # another process was first
            part.rename(tree)
    return tree


def kept(revision: str, name: str, lines: list[str]) -> Path:
    """Where the base's folder of one chain is kept: by the chain, and by what these scripts make
    of it.
    """
    code = [inspect.getsource(made) for made in (inputs, done)] + [
        path.read_text() for path in HERE.glob("golden_world/*.py")
    ]
    return (
        HOME
        / revision
        / hashlib.sha256(json.dumps([lines, *code]).encode()).hexdigest()[:12]
        / name
    )


def report(name: str, found: Sequence[Difference]) -> bool:
    """Print what differs in one chain; True if that is more than what may change, and hashes
    that follow from it.
    """
    follows = any(one.kind == "may change" for one in found)
    wrong = [
        one
        for one in found
        if one.kind not in {"hash", "may change"} or (one.kind == "hash" and not follows)
    ]
    for one in sorted(wrong, key=lambda one: one.kind == "hash")[:8]:
        print(f"  {name}/{one.name}: {one.kind}\n{one.words}".rstrip())
    print(f"{name}: " + (f"{len(wrong)} files differ" if wrong else "equal"), flush=True)
    return bool(wrong)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; 1 if something differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", default=BASE, help=f"the revision to compare with ({BASE})")
    parser.add_argument("--only", nargs="*", default=[], help="chains of golden.yaml; all")
    parser.add_argument("--jobs", type=int, default=2, help="chains at once")
    parser.add_argument("--guard", action="store_true", help="no sentence is read back")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(json.load(sys.stdin))
        return 0
    every = yaml.safe_load((HERE / "golden.yaml").read_text())
    unknown = set(options.only) - every.keys()
    if unknown:
        parser.error(
            f"no chain of golden.yaml: {', '.join(sorted(unknown))}; there are {', '.join(every)}"
        )
    chains = {
        name: lines for name, lines in every.items() if name in options.only or not options.only
    }
    if options.guard:
        return run_guarded(chains, options.jobs)
    HOME.mkdir(exist_ok=True)
    base = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", options.base],
        capture_output=True,
        text=True,
        check=True,
    )
    before = {name: kept(base.stdout.strip()[:12], name, lines) for name, lines in chains.items()}
    after = {name: ROOT / ".golden" / name for name in chains}
    with (HOME / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another checkout runs in the same folders
        absent = {name: lines for name, lines in chains.items() if not before[name].exists()}
        if absent:
            run_chains(checked_out(base.stdout.strip()[:12]), absent, options.jobs, before)
        run_chains(ROOT, chains, options.jobs, after)
    return int(sum(report(name, compare(before[name], after[name])) for name in chains) > 0)


if __name__ == "__main__":
    sys.exit(main())
