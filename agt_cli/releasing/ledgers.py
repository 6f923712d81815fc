"""Where ledgers lie, and whose data a run is about, as a ledger counts people. Loads no torch."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256, shake_256
from pathlib import Path
from typing import Any

from agt.data.dataset import Dataset
from agt.errors import AgtError, ConfigError, nearest
from agt.ledger.book import AdmittedTable, Charge, sample_of
from agt.ledger.chain import Unit
from agt.ledger.ledger import SUFFIX, similar
from agt.mechanisms.composition import Guarantee
from agt.unlearning.log import HashKey
from agt_cli.report.finished import Run

FOLDER = "ledgers"
NO_LEDGER = "none"  # what ledger= takes for none
EARLIER = "earlier_data"
"""In env.json: digests of the data of a run's earlier states, before records were erased, by which its people are known."""
PEOPLE = "people"
"""In env.json: ``sample_of`` the units that were trained on, readable with the run's key alone."""
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
        files = run.environment.get("data_files") or {}
        data, people = str(run.environment["data_digest"]), tuple[str, ...]()
        with suppress(ConfigError, ValueError):  # the key is for its owner alone: without it nobody is compared
            if key := HashKey.of(run.folder):
                people = unveiled(str(run.environment.get(PEOPLE, "")), key, data)
        hashes, paths = ([file[part] for file in files.values() if "sha256" in file] for part in ("sha256", "path"))
        table = AdmittedTable(
            name or str(run.environment["dataset"]),
            data,
            tuple(sorted(hashes)),
            unit_of(run.config),
            before=tuple(map(str, run.environment.get(EARLIER, ()))),
            people=people,
            paths=tuple(sorted(paths)),
            columns=columns_of(run.config),
        )
        return cls(table, run.config["relation"]["name"])

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


def columns_of(config: Mapping[str, Any]) -> str:
    """A hash of the names of columns that a run's settings declare; empty: they declare none."""
    dataset = config["dataset"]
    names = sorted({*(dataset.get("numeric") or ()), *(dataset.get("categorical") or ())})
    return sha256(json.dumps(names).encode()).hexdigest() if names else ""


def veiled(loaded: Dataset, key: HashKey) -> str:
    """What env.json has of the people of a training set: in hexadecimal, under the run's key and the data's digest."""
    return _xor(bytes.fromhex("".join(sample_of(loaded.train.units))), key, loaded.digest).hex()


def unveiled(text: str, key: HashKey, digest: str) -> tuple[str, ...]:
    """What ``veiled`` hid."""
    words = _xor(bytes.fromhex(text), key, digest).hex()
    return tuple(words[start : start + 16] for start in range(0, len(words), 16))


def _xor(content: bytes, key: HashKey, digest: str) -> bytes:
    pad = shake_256(key.secret + digest.encode()).digest(len(content))
    return bytes(a ^ b for a, b in zip(content, pad, strict=True))


def register(path: Path, table: AdmittedTable | None) -> list[str]:
    """Note where a ledger lies, for whoever has this account on this machine; says which others may have the same people.

    The list is a file of paths, one a line, in XDG_STATE_HOME (``~/.local/state``); where none can be kept, none is.
    """
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "agt" / "ledgers"
    known: list[str] = []
    with suppress(OSError):
        known = state.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    here = str(path.resolve())
    if here not in known:
        with suppress(OSError):
            state.parent.mkdir(parents=True, exist_ok=True)
            with state.open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{here}\n")
    others = [Path(line) for line in known if Path(line).parent != path.resolve().parent and Path(line).is_file()]
    lines: list[str] = []
    for other in others:
        with suppress(AgtError):  # damaged, or locked: it is not this command's
            lines += similar(other, table) if table else []
    return lines
