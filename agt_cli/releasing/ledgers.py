"""Where ledgers lie, and whose data a run is about, as a ledger counts people. Loads no torch."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256, shake_256
from pathlib import Path
from typing import Any

from agt.data.dataset import Dataset
from agt.errors import ConfigError
from agt.ledger.ledger import ledgers_in
from agt.ledger.payer import ProtectedPeople
from agt.ledger.store import other_program
from agt.ledger.tables import AdmittedTable, sample_names
from agt.ledger.unit import Unit
from agt_cli.process import put
from agt_cli.report.finished import Run
from agt_cli.unlearn.log import HashKey

EARLIER = "earlier_data"
"""In env.json: digests of the data of a run's earlier states, before records were erased, by
which its people are known.
"""
PEOPLE = "people"
"""In env.json: ``sample_names`` of the run's units, readable with the run's key alone."""


def people_of_run(run: Run, name: str | None = None) -> ProtectedPeople:
    """Return whose data a finished training run is about, and how it counted them.

    Args:
        run: the run.
        name: of its table; None: the dataset's.
    """
    files = run.environment.get("data_files") or {}
    data = str(run.environment["data_digest"])
    people: tuple[str, ...] = ()
    # the key is for its owner alone: without it nobody is compared
    with suppress(ConfigError, ValueError):
        if key := HashKey.of(run.folder):
            people = unveiled(str(run.environment.get(PEOPLE, "")), key, data)
    hashed = [file for file in files.values() if "sha256" in file]
    table = AdmittedTable(
        name or str(run.environment["dataset"]),
        data,
        tuple(sorted(file["sha256"] for file in hashed)),
        unit_of(run.config),
        before=tuple(map(str, run.environment.get(EARLIER, ()))),
        people=people,
        paths=tuple(sorted(file["path"] for file in hashed)),
        columns=columns_of(run.config),
    )
    return ProtectedPeople(table, run.config["relation"]["name"])


def second_head() -> Path | None:
    """Where the head file must lie, whatever a ledger says: the environment's AGT_LEDGER_HEAD,
    a file or a folder.
    """
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
    """What env.json has of the people of a training set: in hexadecimal, under the run's key and
    the data's digest.
    """
    return _xor(bytes.fromhex("".join(sample_names(loaded.train.units))), key, loaded.digest).hex()


def unveiled(text: str, key: HashKey, digest: str) -> tuple[str, ...]:
    """What ``veiled`` hid."""
    words = _xor(bytes.fromhex(text), key, digest).hex()
    return tuple(words[start : start + 16] for start in range(0, len(words), 16))


def _xor(content: bytes, key: HashKey, digest: str) -> bytes:
    pad = shake_256(key.secret + digest.encode()).digest(len(content))
    return bytes(a ^ b for a, b in zip(content, pad, strict=True))


def say_skipped(folder: Path) -> list[Path]:
    """``ledgers_in`` a folder; what among them surely is another program's file is named on
    stderr.
    """
    paths = ledgers_in(folder)
    for path in paths:
        if kind := other_program(path):
            put(f"{path} is not a ledger but {kind}, so agt does not change this file", "stderr")
    return paths
