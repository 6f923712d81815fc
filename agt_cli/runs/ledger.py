"""Ledgers as the command line names them, and what a finished run tells one."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agt.errors import ConfigError, nearest
from agt.ledger.book import Charge, Population, Table
from agt.ledger.chain import Head
from agt.ledger.neighbours import SUFFIX
from agt.ledger.unit import Unit
from agt.mechanisms.account import Allowance
from agt.mechanisms.guarantee import Guarantee
from agt.settings import schema, validate
from agt_cli.latest import resolved

if TYPE_CHECKING:
    from agt_cli.report.finished import FinishedRun

FOLDER = "ledgers"
NONE = "none"
EARLIER = "earlier_data"
"""In env.json: digests of the data of a run's earlier states, before records were erased, by which its people are known."""
NOBODY = (NONE, "null")  # what ledger= takes for none
FOR = {
    "init": ("total", "unit", "relation", "run", "digest", "data", "table", "unit_column", "unit_rows"),
    "admit": ("unit", "run", "digest", "data", "table", "unit_column", "unit_rows", "lost"),
    "show": (),
    "verify": (),
}
_NAME = re.compile(r"\w[\w .-]*")
_DIGEST = re.compile("[0-9a-f]{32}")


@schema
class LedgerConfig:
    """What ``agt ledger`` is told, as in conf/ledger.yaml."""

    action: Literal["init", "show", "verify", "admit"]
    ledger: str
    total: Mapping[str, Any]
    unit: str | None = None
    relation: Mapping[str, Any] | None = None
    run: str | None = None
    digest: str | None = None
    data: str | None = None
    table: str | None = None
    unit_column: str | None = None
    unit_rows: int | None = None
    head: str | None = None
    lost: bool = False
    output_dir: str = "outputs"

    def __post_init__(self) -> None:
        for key in sorted({key for keys in FOR.values() for key in keys} - {*FOR[self.action]}):
            value = any(self.total.values()) if key == "total" else getattr(self, key)
            if value:
                actions = " and ".join(action for action, keys in FOR.items() if key in keys)
                raise ConfigError(f"{key} is for agt ledger {actions}: agt ledger {self.action} takes no {key}")
        empty = [key for key, value in vars(self).items() if value == ""]
        if empty:
            raise ConfigError(f"{empty[0]}= is empty: give a value, or leave it out")
        if self.action == "verify" and re.match(r"\d+:", self.head or "") and not self.noted:
            raise ConfigError(f"head={self.head}: COUNT:HASH needs at least the first 16 digits of the hash")
        if self.action == "init" and self.ledger in NOBODY:
            raise ConfigError(f"ledger={self.ledger}: says in other commands that no ledger pays: give it another name")
        if self.run and self.data:
            raise ConfigError("run and data: give one of them: a run tells the digest of its data")
        if (self.unit_column and not self.data) or (self.unit_rows is not None and not self.unit_column):
            raise ConfigError("unit_column, and unit_rows with it, are for data=DIGEST: a run tells how it counts")
        if self.action == "admit" and self.unit and not (self.run or self.data):
            raise ConfigError("unit: is declared of a table: give run=FOLDER, or data=DIGEST table=NAME")
        if self.data and not (_DIGEST.fullmatch(self.data) and self.table):
            raise ConfigError("data: give data_digest of a run's env.json (32 hexadecimal digits), and table=NAME with it")

    def settled(self, note: Callable[[str], None]) -> "LedgerConfig":
        """The same with the folder that run=latest means in its place."""
        return replace(self, run=str(resolved(vars(self), note)["run"])) if self.run else self

    @property
    def path(self) -> Path:
        """Of the ledger's file, which is there unless it is to be made."""
        return ledger_path(self.ledger) if self.action == "init" else ledger_there(self.ledger)

    @property
    def noted(self) -> Head | None:
        """The head that is to be compared, where one was given in so many digits."""
        return Head.read(self.head) if self.head and self.action == "verify" else None

    @property
    def second_head(self) -> Path | None:
        """The file of the second head, where one was given.

        Raises:
            ConfigError: one is to be made where there is no folder: the other disk is not there.
        """
        if not self.head or self.noted:
            return None
        place = Path(self.head)
        if self.action in ("init", "admit") and not place.parent.is_dir():
            raise ConfigError(
                f"head={self.head}: there is no folder {place.parent}: is the other disk there? Or make it first"
            )
        return place

    def subject(self) -> "Subject | None":
        """Whose data is admitted; None: nobody's was named."""
        if self.run:
            return Subject.of_run(Path(self.run), self.digest, self.table)
        if not self.data or not self.table:
            return None
        unit = Unit(self.unit_column, 1 if self.unit_rows is None else self.unit_rows)
        return Subject(Table(self.table, self.data, unit=unit))

    def population(self, subject: "Subject | None") -> Population:
        """Whose budget a new ledger is.

        Raises:
            ConfigError: no budget, or nobody's.
        """
        if self.total.get("eps") is None:
            raise ConfigError(
                "total.eps: a budget is needed: total.eps=1 total.delta=1e-5, say; it is for everything that is ever "
                "released about these people, and cannot be raised later"
            )
        given = {key: value for key, value in self.total.items() if value is not None}
        allowance = validate(Allowance, given, "total")
        unit = self.unit or (subject.table.unit.name if subject and self.run else "")
        if not unit:
            raise ConfigError("unit: whose data one step of privacy is: unit='one customer', say; run=FOLDER tells it too")
        told = subject.relation if subject else ""
        chosen = str((self.relation or {}).get("name") or told or "add_remove")
        return Population(self.path.stem, unit, chosen, allowance)


@dataclass(frozen=True)
class Subject:
    """Data about a population, and how a run on it counted people.

    Attributes:
        table: the data.
        relation: of the run; empty: there is none.
    """

    table: Table
    relation: str = ""

    def charge(self, guarantee: Guarantee, output: str, mechanism: str, run: str = "") -> Charge:
        """What a ledger is to count of each release about it; ``run``: empty where it comes from no finished one."""
        table = self.table
        return Charge(guarantee, output, mechanism, run, table.data, self.relation, table.unit)

    @classmethod
    def of_run(cls, folder: Path, digest: str | None, name: str | None) -> "Subject":
        """Of a finished training run.

        Raises:
            ConfigError: it is none, or another than ``digest``.
        """
        from agt_cli.report.finished import open_run  # loads torch
        from agt_cli.runs.queries import digest_of

        return cls.of_finished(open_run(folder, "train", digest_of({"digest": digest}, "digest")), name)

    @classmethod
    def of_finished(cls, run: "FinishedRun", name: str | None = None) -> "Subject":
        """The same of one that is open."""
        files = (run.environment.get("data_files") or {}).values()
        hashes = tuple(sorted(file["sha256"] for file in files if "sha256" in file))
        dataset, data = name or str(run.environment["dataset"]), str(run.environment["data_digest"])
        before = tuple(map(str, run.environment.get(EARLIER, ())))
        return cls(Table(dataset, data, hashes, unit_of(run.config), before), run.config["relation"]["name"])


def ledger_path(name: str) -> Path:
    """Where a ledger lies that is called by its name, or by a path (anything with a slash, or that ends in .ledger).

    Raises:
        ConfigError: it is neither.
    """
    if "/" in name or name.endswith(SUFFIX):
        return Path(name)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"ledger={name}: give a name of letters, digits, - and _, or a path")
    return Path(FOLDER) / f"{name}{SUFFIX}"


def ledger_there(name: str) -> Path:
    """The same of one that is there.

    Raises:
        ConfigError: it is not; names those that are.
    """
    path = ledger_path(name)
    if path.exists() or path.is_symlink():
        return path
    known = nearest(name, [other.stem for other in Path(FOLDER).glob(f"*{SUFFIX}")])
    raise ConfigError(f"ledger={name}: there is no {path}{known}; agt ledger init makes one")


def second_head() -> Path | None:
    """Where the second head must lie, whatever a ledger says: the environment's AGT_LEDGER_HEAD, a file or a folder."""
    place = os.environ.get("AGT_LEDGER_HEAD")
    return Path(place) if place else None


def unit_of(config: Mapping[str, Any]) -> Unit:
    """How a run with a configuration counts."""
    column = config["dataset"].get("unit")
    return Unit(None if column is None else str(column), config["relation"].get("unit_rows", 1))
