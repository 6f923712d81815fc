"""A table and facts about it, kept under a signature as two files that are bound to each other and to their name.

NAME.parquet holds the table; NAME.json, written last, the facts, NAME itself, the table's SHA-256, and a checksum of all
that. A missing NAME.json says that nothing is kept yet; anything else that does not match is an error: a kept result is
never used where it may be another's, and never made again in silence.
"""

from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from agt.disk import write_atomic
from agt.errors import ConfigError
from agt.sealed import seal, unseal


def keep(place: Path, table: pd.DataFrame, facts: Mapping[str, Any]) -> None:
    """Write both files, each whole or not at all.

    Args:
        place: the folder and the signature, without an ending.
        facts: plain values.
    """
    buffer = BytesIO()
    table.to_parquet(buffer, index=False)
    content = buffer.getvalue()
    write_atomic(place.with_suffix(".parquet"), content)
    bound = {"signature": place.name, "table_sha256": sha256(content).hexdigest(), "facts": dict(facts)}
    write_atomic(place.with_suffix(".json"), seal(bound))  # last: finished


def kept(place: Path) -> tuple[pd.DataFrame, dict[str, Any]] | None:
    """What ``keep`` wrote there; None if it wrote nothing.

    Raises:
        ConfigError: a file is damaged, edited, gone, or another result's: it is named.
    """
    record, table = place.with_suffix(".json"), place.with_suffix(".parquet")
    remedy = f"delete {record} to compute it again"
    try:
        bound = unseal(record.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{record}: damaged or edited ({error}): {remedy}") from None
    if bound["signature"] != place.name:
        raise ConfigError(f"{record}: it was written as {bound['signature']}, the name of another result: {remedy}")
    try:
        content = table.read_bytes()
    except OSError as error:
        raise ConfigError(f"{table}: cannot be read ({error.strerror}), and {record.name} tells of it: {remedy}") from None
    if sha256(content).hexdigest() != bound["table_sha256"]:
        raise ConfigError(f"{table}: damaged, or not the table that {record.name} was written with: {remedy}")
    return pd.read_parquet(BytesIO(content)), bound["facts"]
