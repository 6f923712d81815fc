"""Commands that are stopped at each write, sync and rename: is what they leave what must be left?

    python scripts/faults.py [--only NAME ...] [--modes killed torn ...] [--every 1] [--at 17 ...]

scripts/injector.py stops each command at each of its changes, in each of these modes:

| mode   | at change n                                                                             |
|--------|-----------------------------------------------------------------------------------------|
| killed | SIGKILL before it                                                                       |
| torn   | of a write: half of it, then SIGKILL                                                    |
| data   | killed, and the power is cut: what was appended since a file's last sync is lost        |
| names  | killed, and the power is cut: names that no sync of their folder followed are as before |
| fails  | it fails (EIO, or ENOSPC of what takes room), and the next ones do not                  |
| full   | from now on all that takes room fails with ENOSPC                                       |

What must hold after each of them, and again once the command was given again:

- nothing lost: the ledger is in order, each debit that was there is there; an erasure is carried
  out wholly or not at all;
- nothing free: whatever is published, or stored, has its spent.json, and its debit where there is a
  ledger;
- nothing spent twice: what was stored is not debited again, and answers the same;
- nothing false: `agt verify` ends with 0 only of what is whole;
- the command, given again, ends with 0, and leaves nothing that an undisturbed call does not leave,
  but the folder of the call that was stopped.

Linux, and gcc. Exit code 1: a fault.
"""

import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from injector import TMP, Case, Ended, main, run, start_preloaded

import agt as library
from agt.ledger.ledger import Ledger
from agt.store.manifest import unseal_manifest
from agt_cli import cli, configuration
from agt_cli.configuration import compose_with_hydra
from agt_cli.report.opening import open_run
from agt_cli.unlearn.log import Log, state_of

TRAINED = (
    "dataset.n_train=80",
    "training.epochs=1",
    "kgrid.max=3",
    "compute.kernel=reference",
    "compute.threads=1",
)
TRAINED += ("training.chosen_on=public", "model=linear", "hydra.run.dir=run", "-q")
HEAD = (
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
    "training.momentum=0",
    "certificate=stability",
)
BUDGET = ("total.eps=5", "total.delta=1e-5")
PEOPLE = (
    "dataset=table",
    "dataset.path=people.csv",
    "dataset.label=y",
    "dataset.id=id",
    "dataset.unit=person",
)
PEOPLE += (
    "+dataset.numeric={a: [-3, 3], b: [-3, 3]}",
    "dataset.classes=[0, 1]",
    "relation.unit_rows=2",
    "kgrid.max=2",
)
QUESTIONS = 5
SESSION = 3


COMPOSED: dict[str, Any] = {}
"""Configurations that were composed before the trials: each would spend half of its time on
that.
"""
NOTES = Path("..", "composed")


def composing(name: str, overrides: Sequence[str]) -> Any:
    """``compose_with_hydra``, with those that are in ``COMPOSED``; others are noted."""
    from hydra.core.hydra_config import HydraConfig

    key = json.dumps([name, *overrides])
    if key not in COMPOSED:
        with NOTES.open("a") as file:
            file.write(f"{key}\n")
        return compose_with_hydra(name, overrides)
    config = deepcopy(COMPOSED[key])
    HydraConfig.instance().set_config(config)
    return config


def compose_noted(home: Path) -> None:
    """Compose what was noted, in this process."""
    for key in {*(home / NOTES).read_text().splitlines()}:
        name, *overrides = json.loads(key)
        COMPOSED[key] = compose_with_hydra(name, overrides)


def agt(*words: str, given: str = "") -> int:
    """A command line in this process. Args: given: on standard input."""
    sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    sys.argv = ["agt", *words]
    with mock.patch.object(configuration, "compose_with_hydra", composing):
        return cli.main(words)


def must(home: Path, *words: str) -> None:
    """Run what a case begins with."""
    ended = run(partial(agt, *words), home)
    if ended.code:
        raise SystemExit(f"{' '.join(words)}: {ended.err[-2000:]}")


def verified(home: Path, *words: str) -> int:
    """How `agt verify` or `agt ledger verify` ends, within this process, and says nothing."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return agt(*words)


def left_over(home: Path, apart: str = "outputs/") -> list[str]:
    """Files that no command meant to leave: in the temporary folder, or half written beside the
    records.
    """
    files = [path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()]
    half = [
        name
        for name in files
        if re.search(r"\.part\d|-journal$|\.tmp", name) and not name.startswith(apart)
    ]
    return [f"left behind: {name}" for name in files if name.startswith(f"{TMP}/") or name in half]


def bug(ended: Ended) -> list[str]:
    """Whether a command called itself broken."""
    said = ended.err[-600:]
    return (
        [f"ended with {ended.code}: {said}"] if "Traceback" in said or "bug in agt" in said else []
    )


# -- releases


@dataclass(frozen=True)
class Release:
    """One `agt predict`, and what must be true of it.

    Attributes:
        words: of the command.
        given: on standard input.
        train: of the command that makes the run.
        lot: how many releases are paid at once, in a session.
        stored: how many answers the ledger has then; 0: none are stored.
        output: what is published, as a file of its folder; empty: lines on standard output.
    """

    words: tuple[str, ...]
    train: tuple[str, ...] = TRAINED
    given: str = ""
    lot: int = 1
    stored: int = QUESTIONS
    output: str = "labels.csv"

    def case(self) -> Case:
        """As the injector takes it."""
        return Case(
            partial(agt, "predict", "run=run", *self.words, given=self.given),
            self.check,
            self.after,
            self.before,
            compose_noted,
        )

    @property
    def paid(self) -> bool:
        """Whether a ledger pays."""
        return "ledger=people" in self.words

    def before(self, home: Path) -> None:
        """A run, queries, and a ledger with a second head."""
        rows = np.random.default_rng(0).normal(size=(QUESTIONS, 2))
        pd.DataFrame(rows, columns=["x1", "x2"]).to_csv(home / "q.csv", index=False)
        must(home, "train", *self.train)
        if self.paid:
            must(
                home,
                "ledger",
                "init",
                "people",
                "run=run",
                *BUDGET,
                "unit='one person'",
                "head=away.head",
            )

    def facts(self, home: Path) -> dict[str, Any]:
        """Debits and stored answers of the ledger, and of each folder what it published and what
        it told.
        """
        found: dict[str, Any] = {"debits": {}, "stored": 0, "folders": {}}
        if self.paid:
            with Ledger.open(
                home / "ledgers/people.ledger", home / "away.head", writing=False
            ) as ledger:
                book = ledger.verify()
                found["stored"] = book.answered
                found["debits"] = {
                    n: (debit.size, debit.entry.hash) for n, debit in ledger.history().items()
                }
        for folder in sorted((home / "outputs/predict").glob("*")):
            spent = folder / "spent.json"
            about: dict[str, Any] = {"spent": None, "published": None}
            if spent.exists():
                about["spent"] = unseal_manifest(spent.read_bytes(), "spent.json")
            if self.output and (folder / self.output).exists():
                about["published"] = (folder / self.output).read_text(errors="replace")
            about["done"] = (
                "done" in (folder / "status.json").read_text()
                if (folder / "status.json").exists()
                else False
            )
            found["folders"][folder.name] = about
        return found

    def check(self, home: Path, ended: Ended) -> list[str]:
        """What is told and paid covers what was published and stored; what is not whole is not
        verified.
        """
        facts = self.facts(home)
        faults = bug(ended)
        (home.parent / "facts.json").write_text(json.dumps(facts))
        said = [
            json.loads(line)
            for line in ended.out.splitlines()
            if not self.output and line.endswith("}")
        ]
        labels = [line for line in said if "label" in line]
        for name, about in facts["folders"].items():
            told = about["spent"]
            drawn = (
                about["published"] is not None
                or bool(labels)
                or (facts["stored"] and len(facts["folders"]) == 1)
            )
            if drawn and not told:
                faults.append(f"{name}: drawn, and no spent.json tells it")
            entry = told and told.get("ledger")
            if told and self.paid:
                _, digest = facts["debits"].get(entry["entry"], (0, ""))
                faults += [f"{name}: spent.json tells of entry {entry['entry']}, which is none"] * (
                    digest != entry["hash"]
                )
            whole = about["done"] and told and (about["published"] is not None or not self.output)
            listed = (home / "outputs/predict" / name / "manifest.json").exists()
            if listed and not whole and not verified(home, "verify", f"outputs/predict/{name}"):
                faults.append(f"{name}: verified, and it is not whole: {about}")
        if len(labels) > sum(size for size, _ in facts["debits"].values()):
            faults.append(f"{len(labels)} answers were given, and the debits are {facts['debits']}")
        if ended.code == 0 and not any(about["done"] for about in facts["folders"].values()):
            faults.append("ended with 0, and no folder is done")
        return faults

    def after(self, home: Path, again: Ended) -> list[str]:
        """Given again, it ends well; what was stored is answered as before, and nothing more is
        debited for it.
        """
        before = json.loads((home.parent / "facts.json").read_text())
        facts = self.facts(home)
        faults = (
            [f"given again it ends with {again.code}: {again.err[-400:]}"] if again.code else []
        )
        lost = [
            number
            for number, debit in before["debits"].items()
            if facts["debits"].get(int(number)) != tuple(debit)
        ]
        faults += [f"debits that were lost: {lost}"] if lost else []
        new = sum(size for size, _ in facts["debits"].values()) - sum(
            size for size, _ in before["debits"].values()
        )
        if self.paid:
            questions = self.stored or 1
            due = (
                0
                if before["stored"] == self.stored and self.stored
                else questions - before["stored"]
            )
            alone = len(facts["folders"]) == 1  # nobody gave it again
            if not alone and new not in (due, due + -due % self.lot):
                faults.append(
                    f"{new} releases were debited again, and {before['stored']} answers were "
                    f"stored: {due} are due"
                )
        elif self.paid is False:
            told = [
                name
                for name, about in before["folders"].items()
                if about["spent"] and not about["done"]
            ]
            report = "".join(path.read_text() for path in home.glob("outputs/predict/*/report.md"))
            faults += [
                f"{name}: an attempt is not told"
                for name in told
                if name not in again.out + again.err + report
            ]
        published = [
            about["published"]
            for about in facts["folders"].values()
            if about["published"] is not None
        ]
        if self.paid and self.stored and len(set(published)) > 1:
            faults.append("the same questions were answered in two ways")
        done = [name for name, about in before["folders"].items() if about["done"]]
        faults += [
            f"{name}: done, and not verified"
            for name in done
            if verified(home, "verify", f"outputs/predict/{name}")
        ]
        return faults + left_over(home)


@dataclass(frozen=True)
class PythonRelease:
    """One release by a program, on a ledger with a second head.

    Attributes:
        fits: ``PrivateClassifier`` is fitted; False: labels of a saved model are released.
    """

    fits: bool = False

    def case(self) -> Case:
        """As the injector takes it."""
        return Case(self.release, self.check, self.after, self.before)

    @staticmethod
    def records() -> tuple[np.ndarray, np.ndarray, library.Declared]:
        """Return the training records, and what is declared of them."""
        y = np.arange(40) % 2
        x = np.random.default_rng(0).normal(size=(40, 2)) / 4 + y[:, None] / 2
        return x, y, library.Declared(classes=[0, 1], size=40, features=True, settings=True)

    def before(self, home: Path) -> None:
        """A saved model and a ledger, which are made in the folder where trials run."""
        x, y, declared = self.records()
        with chdir(home):
            library.fit(x, y, declared=declared).save("model")
            library.Ledger.create(
                "people.ledger", unit="one record", eps=5, delta=1e-5, second_head="away.head"
            )

    def release(self) -> int:
        """The program: prints what it was given."""
        x, y, declared = self.records()
        ledger = library.Ledger.open("people.ledger", "away.head")
        if self.fits:
            private = library.PrivateClassifier(
                epsilon=1.0, delta=1e-7, declared=declared, ledger=ledger
            ).fit(x, y)
            print(json.dumps(private.released_.weight.tolist()))
        else:
            mechanism = library.RandomizedResponse(eps=0.1)
            released = library.load("model").release(x[:QUESTIONS], mechanism, ledger=ledger)
            print(json.dumps(released.labels.tolist()))
        return 0

    def facts(self, home: Path) -> dict[str, Any]:
        """Debits, by entry, and stored answers of the ledger, which must be in order."""
        with Ledger.open(home / "people.ledger", home / "away.head", writing=False) as ledger:
            stored = ledger.verify().answered
            debits = {
                str(n): (debit.size, debit.entry.hash) for n, debit in ledger.history().items()
            }
        return {"debits": debits, "stored": stored}

    def check(self, home: Path, ended: Ended) -> list[str]:
        """What was given out was debited."""
        facts = self.facts(home)
        (home.parent / "facts.json").write_text(json.dumps({**facts, "out": ended.out}))
        paid = sum(size for size, _ in facts["debits"].values())
        given = 0 if not ended.out else 1 if self.fits else QUESTIONS
        return [f"{given} were given out, and {paid} were debited"] if given > paid else []

    def after(self, home: Path, again: Ended) -> list[str]:
        """Given again it ends well; no debit is lost, and stored answers are repeated at no
        cost.
        """
        before = json.loads((home.parent / "facts.json").read_text())
        facts = self.facts(home)
        faults = (
            [f"given again it ends with {again.code}: {again.err[-400:]}"] if again.code else []
        )
        lost = [
            n for n, debit in before["debits"].items() if facts["debits"].get(n) != tuple(debit)
        ]
        faults += [f"debits that were lost: {lost}"] if lost else []
        paid = {
            name: sum(size for size, _ in found["debits"].values())
            for name, found in (("b", before), ("a", facts))
        }
        due = 1 if self.fits else QUESTIONS - before["stored"]
        if paid["a"] - paid["b"] != due and before["out"] != again.out:
            faults.append(f"{paid['a'] - paid['b']} releases were debited again, and {due} are due")
        if before["stored"] and before["out"].endswith("\n") and before["out"] != again.out:
            faults.append("the same questions were answered in two ways")
        # Python's tempfile tries the temporary folder with a file of eight letters.
        return faults + [
            left
            for left in left_over(home)
            if not re.fullmatch(rf"left behind: {TMP}/\w{{8}}", left)
        ]


# -- erasures


def person_name(number: int) -> str:
    """A name that does not count: certificates cover an erasure only where ids do not number the
    rows.
    """
    return hashlib.sha256(str(number).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Erasure:
    """One `agt unlearn`."""

    words: tuple[str, ...] = ("method=retrain",)
    train: tuple[str, ...] = ()

    def case(self) -> Case:
        """As the injector takes it."""
        command = partial(agt, "unlearn", "run=run", "ids=ids.txt", *self.words, "-q")
        return Case(command, self.check, self.after, self.before, compose_noted)

    def before(self, home: Path) -> None:
        """A table of people, a run on it, and a request."""
        chance = np.random.default_rng(0)
        count = 60
        a, b = chance.normal(size=(2, count))
        people = [person_name(n // 2) for n in range(count)]
        table = {"id": [f"{person}-{n % 2}" for n, person in enumerate(people)], "person": people}
        pd.DataFrame({**table, "a": a, "b": b, "y": (a + b > 0).astype(int)}).to_csv(
            home / "people.csv", index=False
        )
        (home / "ids.txt").write_text("".join(f"{person_name(n)}\n" for n in range(4, 8)))
        given = (
            "training.epochs=1",
            "compute.kernel=reference",
            "compute.threads=1",
            "hydra.run.dir=run",
            "-q",
        )
        must(home, "train", *PEOPLE, *self.train, *given)
        (home.parent / "state").write_text(json.dumps(self.state(home)))

    def state(self, home: Path) -> tuple[str, int]:
        """(the model's state, requests in its log): every file of the run is read."""
        opened = open_run(home / "run", "train")
        for name in opened.manifest.files:
            opened.read(name)
        entries = Log.of(opened).entries
        state = state_of(opened.manifest.files)
        if entries and entries[-1].after != state:
            raise AssertionError("the log ends with another state than the model's")
        return state, len(entries)

    def check(self, home: Path, ended: Ended) -> list[str]:
        """The state before, or the one after; never a third; a record that is not done is not
        verified.
        """
        faults = bug(ended)
        for folder in (home / "outputs/unlearn").glob("*"):
            status = folder / "status.json"
            done = status.exists() and '"done"' in status.read_text()
            if not done and not verified(home, "verify", f"outputs/unlearn/{folder.name}"):
                faults.append(f"{folder.name}: verified, and it is not done")
        before = json.loads((home.parent / "state").read_text())
        now = list(self.state(home))
        if verified(home, "verify", "run"):
            faults.append("the run does not verify")
        if (now[0] == before[0]) != (now[1] == 0) and "method=certificate" not in self.words:
            faults.append(f"half an erasure: {now}")
        if ended.code == 0 and now[1] != 1:
            faults.append("ended with 0, and the log has no entry")
        return faults

    def after(self, home: Path, again: Ended) -> list[str]:
        """Given again, it is carried out, once."""
        asked = again.code == 2 and "asked for before" in again.err
        faults = (
            []
            if again.code == 0 or asked
            else [f"given again it ends with {again.code}: {again.err[-400:]}"]
        )
        now = self.state(home)
        faults += [] if now[1] == 1 else [f"the log has {now[1]} entries"]
        files = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
        faults += [
            f"left behind: {name}"
            for name in sorted(files)
            if name.startswith("run/unlearning/next")
        ]
        if verified(home, "verify", "run"):
            faults.append("the run does not verify")
        return faults + left_over(home)


# -- ledgers


@dataclass(frozen=True)
class Account:
    """One `agt ledger`."""

    words: tuple[str, ...]
    prior: tuple[tuple[str, ...], ...] = ()
    entries: int = 2
    again: Callable[[], int] | None = None

    def case(self) -> Case:
        """As the injector takes it."""
        return Case(
            partial(agt, "ledger", *self.words),
            self.check,
            self.after,
            self.before,
            compose_noted,
            self.again,
        )

    def before(self, home: Path) -> None:
        """A run, and what was done with the ledger before."""
        must(home, "train", *TRAINED)
        (home / "stick").mkdir()
        for words in self.prior:
            must(home, "ledger", *words)
        (home.parent / "entries").write_text(json.dumps(self.entries_of(home)))

    def entries_of(self, home: Path) -> list[str]:
        """The hashes of its entries; none: there is no ledger."""
        if not (home / "ledgers/people.ledger").exists():
            return []
        with Ledger.open(home / "ledgers/people.ledger", writing=False) as ledger:
            ledger.verify()
            return [entry.hash for entry in ledger.entries()]

    def check(self, home: Path, ended: Ended) -> list[str]:
        """What was in the ledger is in it, and it is a ledger, or there is none."""
        before = json.loads((home.parent / "entries").read_text())
        now = self.entries_of(home)
        return bug(ended) + (["entries were lost"] if now[: len(before)] != before else [])

    def after(self, home: Path, again: Ended) -> list[str]:
        """Given again it is done, once; or it says that it was done."""
        known = ("there is one already", "have a ledger already", "something is there already")
        told = again.code == 2 and any(words in again.err for words in known)
        faults = (
            []
            if again.code == 0 or told
            else [f"given again it ends with {again.code}: {again.err[-400:]}"]
        )
        now = self.entries_of(home)
        faults += (
            [] if len(now) >= self.entries else [f"{len(now)} entries, and {self.entries} are due"]
        )
        if verified(home, "ledger", "verify", "people"):
            faults.append("the ledger does not verify")
        return faults + left_over(home)


def init_again(*words: str) -> int:
    """As its messages say: a head that an interrupted init left is deleted; a ledger that is
    there admits the table.
    """
    code = agt("ledger", *words)
    if code and not Path("ledgers/people.ledger").exists():
        Path("stick/people.head").unlink()
        return agt("ledger", *words)
    return agt("ledger", "admit", "people", "run=run") if code else code


def head_again(*words: str) -> int:
    """As its message says: a head that an interrupted admit left is deleted."""
    code = agt("ledger", *words)
    left = Path("stick/people.head" if "head=stick" in words else "other.head")
    if code == 3:
        left.unlink()
        code = agt("ledger", *words)
    return code


LINES = "".join(
    json.dumps({"id": n, "record": {"x1": n / 4, "x2": 1.0}}) + "\n" for n in range(SESSION)
)
INIT = ("init", "people", "run=run", *BUDGET, "unit='one person'")
CASES: dict[str, Callable[[], Case]] = {
    "labels": Release(("inputs=q.csv", "ledger=people", "mechanism.eps=0.1")).case,
    "labels, no ledger": Release(("inputs=q.csv", "mechanism.eps=0.1", "force=true")).case,
    "session": Release(
        ("inputs=-", "ledger=people", "mechanism.eps=0.1"), given=LINES, stored=SESSION, output=""
    ).case,
    "session, lots": Release(
        ("inputs=-", "ledger=people", "mechanism.eps=0.1", "lot=2"),
        given=LINES,
        lot=2,
        stored=SESSION,
        output="",
    ).case,
    "weights": Release(
        ("inputs=q.csv", "ledger=people", "mechanism=release_weights", "mechanism.mu=0.1"),
        (*TRAINED, *HEAD),
        stored=0,
        output="released_weights.safetensors",
    ).case,
    "number": Release(
        ("inputs=q.csv", "ledger=people", "mechanism=certified_quantile", "mechanism.eps=0.1"),
        stored=0,
        output="report.md",
    ).case,
    "python, labels": PythonRelease().case,
    "python, weights": PythonRelease(fits=True).case,
    "unlearn": Erasure().case,
    "unlearn, noted": Erasure(("method=certificate",), ("dataset.declared_size=60",)).case,
    "ledger init": Account(
        (*INIT, "head=stick"), again=partial(init_again, *INIT, "head=stick")
    ).case,
    "ledger admit": Account(
        ("admit", "people", f"data={'e' * 32}", "table=accounts"), (INIT,), 3
    ).case,
    "ledger head": Account(
        ("admit", "people", "head=stick"),
        (INIT,),
        3,
        partial(head_again, "admit", "people", "head=stick"),
    ).case,
    "ledger head moved": Account(
        ("admit", "people", "head=other.head"),
        ((*INIT, "head=stick"),),
        3,
        partial(head_again, "admit", "people", "head=other.head"),
    ).case,
}


if __name__ == "__main__":
    start_preloaded()
    sys.exit(main({name: make() for name, make in CASES.items()}))
