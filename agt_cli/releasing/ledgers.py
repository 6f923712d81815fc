"""Describe the people whose data a run is about, in the form in which a ledger compares them.

This module does not import PyTorch.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256, shake_256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agt.errors import ConfigError
from agt.ledger.ledger import ledgers_in
from agt.ledger.payer import ProtectedPeople
from agt.ledger.store import other_program
from agt.ledger.tables import AdmittedTable, sample_names
from agt.ledger.unit import Unit
from agt_cli.process import write_line
from agt_cli.report.finished import Run
from agt_cli.unlearn.hash_key import HashKey

if TYPE_CHECKING:  # the people of a run are described without its data
    from agt.data.dataset import Dataset

EARLIER = "earlier_data"
"""The entry of env.json with the digests of the data before records were erased. A ledger that has
admitted one of these tables recognises the run by them.
"""
PEOPLE = "people"
"""The entry of env.json with ``sample_names`` of the run's units, encrypted with the run's key."""


def people_of_run(run: Run, name: str | None = None) -> ProtectedPeople:
    """Return the table of a finished training run, and its relation.

    Without the run's key, which only the owner has, the table has no sample of its units, so a
    ledger cannot compare them.

    Args:
        run: the training run.
        name: the name to give to the table; None: that of the dataset.
    """
    files = run.environment.get("data_files") or {}
    data = str(run.environment["data_digest"])
    people: tuple[str, ...] = ()
    with suppress(ConfigError, ValueError):
        key = HashKey.of(run.folder)
        if key:
            people = decrypt_unit_sample(str(run.environment.get(PEOPLE, "")), key, data)
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
    """Return the file or folder of the head file that the environment's AGT_LEDGER_HEAD names.

    It replaces the path that a ledger records; None: the ledger's own path is used.
    """
    path = os.environ.get("AGT_LEDGER_HEAD")
    return Path(path) if path else None


def unit_of(config: Mapping[str, Any]) -> Unit:
    """Return the unit (whose privacy counts, a record or a person) of a run's configuration."""
    column = config["dataset"].get("unit")
    return Unit(None if column is None else str(column), config["relation"].get("unit_rows", 1))


def columns_of(config: Mapping[str, Any]) -> str:
    """Return a hash of the names of the columns that a run's settings declare.

    Their order has no influence. Empty: the settings declare no columns.
    """
    dataset = config["dataset"]
    names = sorted({*(dataset.get("numeric") or ()), *(dataset.get("categorical") or ())})
    return sha256(json.dumps(names).encode()).hexdigest() if names else ""


def encrypt_unit_sample(loaded: "Dataset", key: HashKey) -> str:
    """Return ``sample_names`` of a training set's units, encrypted, in hexadecimal.

    Args:
        loaded: the dataset, whose digest takes part in the encryption.
        key: the run's secret key.
    """
    names = bytes.fromhex("".join(sample_names(loaded.train.units)))
    return _xor(names, key, loaded.digest).hex()


def decrypt_unit_sample(text: str, key: HashKey, digest: str) -> tuple[str, ...]:
    """Return the names that ``encrypt_unit_sample`` encrypted, each of 16 hexadecimal digits.

    Args:
        text: what ``encrypt_unit_sample`` returned.
        key: the run's secret key.
        digest: the digest of the dataset.

    Raises:
        ValueError: the text is not hexadecimal.
    """
    digits = _xor(bytes.fromhex(text), key, digest).hex()
    return tuple(digits[start : start + 16] for start in range(0, len(digits), 16))


def _xor(content: bytes, key: HashKey, digest: str) -> bytes:
    """Encrypt or decrypt content with a pad that SHAKE-256 makes of the key and the digest.

    Each pair of key and digest must encrypt one content only.
    """
    pad = shake_256(key.secret + digest.encode()).digest(len(content))
    return bytes(a ^ b for a, b in zip(content, pad, strict=True))


def say_skipped(folder: Path) -> list[Path]:
    """Return the ledgers in a folder (``ledgers_in``).

    A file among them that certainly belongs to another program is returned as well, and named on
    stderr.
    """
    paths = ledgers_in(folder)
    for path in paths:
        kind = other_program(path)
        if kind:
            write_line(
                f"{path} is not a ledger but {kind}, so agt does not change this file", "stderr"
            )
    return paths
