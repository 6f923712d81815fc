"""Where ledgers lie, and whose data a run is about, as a ledger counts people. Loads no torch."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt.errors import ConfigError, nearest
from agt.ledger.book import AdmittedTable, Charge
from agt.ledger.chain import Unit
from agt.ledger.ledger import SUFFIX
from agt.mechanisms.composition import Guarantee
from agt_cli.report.finished import Run

FOLDER = "ledgers"
NO_LEDGER = "none"  # what ledger= takes for none
EARLIER = "earlier_data"
"""In env.json: digests of the data of a run's earlier states, before records were erased, by which its people are known."""
_NAME = re.compile(r"\w[\w .-]*")


@dataclass(frozen=True)
class ProtectedPeople:
    """Data about a population, and how a run on it counted people.

    Attributes:
        table: the data.
        relation: of the run; empty: there is none.
    """

    table: AdmittedTable
    relation: str = ""

    @classmethod
    def of_finished(cls, run: Run, name: str | None = None) -> "ProtectedPeople":
        """Of a finished training run; ``name``: of its table, None: the dataset's."""
        files = (run.environment.get("data_files") or {}).values()
        hashes = tuple(sorted(file["sha256"] for file in files if "sha256" in file))
        dataset, data = name or str(run.environment["dataset"]), str(run.environment["data_digest"])
        before = tuple(map(str, run.environment.get(EARLIER, ())))
        return cls(AdmittedTable(dataset, data, hashes, unit_of(run.config), before), run.config["relation"]["name"])

    def charge(self, guarantee: Guarantee, output: str, mechanism: str, run: str = "") -> Charge:
        """What a ledger counts of each release about it; ``run``: a finished run's digest, empty: it comes from none."""
        return Charge(guarantee, output, mechanism, run, self.table.data, self.relation, self.table.unit)


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


def existing_ledger(name: str) -> Path:
    """``ledger_path`` of a ledger that is there.

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
    """How a run with a configuration counts people."""
    column = config["dataset"].get("unit")
    return Unit(None if column is None else str(column), config["relation"].get("unit_rows", 1))
