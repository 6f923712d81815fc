"""Read the ids that a file of a request to erase lists.

Messages name the place of an id in the file, and never the id, because messages are stored in
records, and no record may contain an erased id.
"""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agt.data.files import open_columns
from agt.data.header import SEPARATORS
from agt.errors import ConfigError
from agt_cli.command_settings.unlearn import no_column_of_ids
from agt_cli.places import TABLES_OF_IDS, check_file_of_ids, no_file_of_ids

INPUT = "-"
_LINE = re.compile("\r\n?|\n")  # what else str.splitlines cuts at, an id may hold


@dataclass(frozen=True)
class ListedId:
    """An id as a file lists it.

    Attributes:
        name: the id.
        place: its place in the file, such as "line 3", by which messages call it.
    """

    name: str
    place: str


def read_ids(path: str, source: object) -> list[ListedId]:
    """Return the ids of a file in their order, repeated ones too.

    Args:
        path: a text file with one id on each line; a table, of which the column is read that the
            dataset's setting ``unit`` or ``id`` names, or its only column; or ``-`` for lines of
            standard input.
        source: the dataset, which names the columns and says how its tables are read.

    Raises:
        ConfigError, DataMissing, DataError: there are no ids, or the file cannot be read.
    """
    if path != INPUT and Path(path).suffix.lower() in TABLES_OF_IDS:
        names = _column(Path(path), source)
        ids = [ListedId(name, f"row {number}") for number, name in enumerate(names, 1)]
    else:
        lines = _lines(path)
        ids = [
            ListedId(line, f"line {number}") for number, line in enumerate(lines, 1) if line.strip()
        ]
    if not ids:
        raise ConfigError(
            f"ids={path}: the file contains no ids: write one id per line. To carry out the "
            "pending requests, leave ids=... out"
        )
    return ids


def _lines(path: str) -> list[str]:
    """Return the lines of a file of ids, or of standard input.

    Args:
        path: the file, or ``-``.

    Raises:
        DataMissing: there is no such file.
        ConfigError: the file is a pipe or a device, which may never end, or is not UTF-8 text.
    """
    try:
        if path == INPUT:
            content = sys.stdin.buffer.read()
        else:
            check_file_of_ids(path)
            content = Path(path).read_bytes()
        return _LINE.split(content.decode("utf-8-sig"))
    except FileNotFoundError:
        raise no_file_of_ids(path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"ids={path}: agt cannot read the file ({error}): give a text file "
            "in UTF-8 that you may read"
        ) from None


def _column(path: Path, source: Any) -> list[str]:
    """Return the ids in a table, read in the same way as those of the data.

    Args:
        path: the table.
        source: the dataset, whose column of units, else of ids, is looked for.

    Raises:
        ConfigError: the table has several columns, and none of them has such a name.
    """
    names = (getattr(source, "unit", None), getattr(source, "id", None))
    columns = open_columns(path, "ids", csv_format=getattr(source, "csv", None))
    if columns.csv_format and len(columns.names) == 1:
        # Perhaps the table has several columns, cut by another separator than the data.
        (header,) = columns.names
        for separator in SEPARATORS:
            if set(names).intersection(header.split(separator)):
                csv_format = replace(columns.csv_format, separator=separator)
                columns = open_columns(path, "ids", csv_format=csv_format)
                break
    known = [name for name in names if name in columns.names]
    if known:
        name = known[0]
    elif len(columns.names) == 1 and not columns.csv_format:
        name = columns.names[0]
    else:
        raise no_column_of_ids(path)
    return columns.ids(name, "ids", as_text=True).tolist()
