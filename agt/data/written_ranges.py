"""Ranges in a dataset file, whose numbers may be written as the cells of their columns are.

In quotes, ``'30.000'`` is thirty thousand where points separate thousands. Without quotes YAML
reads it as thirty, before any setting says how numbers are written.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from agt.errors import ConfigError

_POINT_BEFORE_THREE_DIGITS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")


def read_written_ranges(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings of a table in which the text of ranges is read by the declared formats.

    Args:
        settings: the settings of a table, before they are checked. They are not changed.

    Raises:
        ValueError: text is neither a date nor a number in the format of its column.
    """
    read = dict(settings)
    numeric = settings.get("numeric")
    if isinstance(numeric, Mapping):
        read["numeric"] = {
            column: _numbers_in(limits, *_separators(settings, column))
            for column, limits in numeric.items()
        }
    if "range" in settings:
        separators = _separators(settings, settings.get("label"))
        read["range"] = _numbers_in(settings["range"], *separators)
    return read


def check_unquoted_points(path: Path, settings: Mapping[str, Any] | None = None) -> None:
    """Raise ConfigError if YAML reads a range of a dataset file as other numbers than were meant.

    That is a number without quotes such as 30.000, of a column in which points separate thousands.
    A file that ``agt measure`` wrote is not checked, nor one that is no mapping in YAML, because
    whoever reads it says what is wrong with it.

    Args:
        path: the file; its entry ``dataset`` is read as well, if it has one.
        settings: the settings of the table, which say how its numbers are written; a range of the
            file that they replace is not checked. None: those of the file itself.
    """
    try:
        text = path.read_text(encoding="utf-8")
        in_file = yaml.safe_load(text)
        root = yaml.compose(text, yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return
    if not isinstance(in_file, Mapping) or "measurement" in in_file:
        return
    if settings is None:
        settings = in_file
    label = settings.get("label")
    ends_in_use = {str(column): ends for column, ends in (settings.get("numeric") or {}).items()}
    ends_in_use[str(label)] = settings.get("range") or ends_in_use.get(str(label))
    for column, end in _written_ends(root, label):
        is_unquoted = end.style is None
        has_doubtful_point = _POINT_BEFORE_THREE_DIGITS.fullmatch(end.value)
        if not is_unquoted or not has_doubtful_point or _separators(settings, column)[1] != ".":
            continue
        if float(end.value) in (ends_in_use.get(str(column)) or ()):
            line = text.splitlines()[end.start_mark.line]
            raise _unquoted_point(path, column, end, line)


def _unquoted_point(path: Path, column: object, end: Any, line: str) -> ConfigError:
    """Return the error about a number that YAML reads otherwise than its column is written.

    Args:
        path: the dataset file.
        column: the column, in which points separate thousands.
        end: the node of the number in the YAML text.
        line: the line of the file that has it.
    """
    number = end.value
    statement = line.partition(" #")[0].strip()
    without_point = statement.replace(number, number.replace(".", ""))
    with_decimals = statement.replace(number, f"{number}0")
    return ConfigError(
        f"{path}, line {end.start_mark.line + 1}: without quotes, {number} is the number "
        f"{float(number):g}, but points separate thousands in column '{column}': write "
        f"{without_point}, or {with_decimals} if the point is a decimal point"
    )


def _written_ends(root: Any, label: object) -> Iterator[tuple[object, Any]]:
    """Yield each end of a range in a dataset file, as (column, its node in the YAML text).

    Args:
        root: the node of the whole file, a mapping.
        label: the column to which the setting ``range`` belongs.
    """
    for key, node in root.value:
        if key.value == "range" and isinstance(node, yaml.SequenceNode):
            yield from ((label, end) for end in node.value)
        if key.value == "numeric" and isinstance(node, yaml.MappingNode):
            for column, limits in node.value:
                if isinstance(limits, yaml.SequenceNode):
                    yield from ((column.value, end) for end in limits.value)
        if key.value == "dataset" and isinstance(node, yaml.MappingNode):
            yield from _written_ends(node, label)


def _separators(settings: Mapping[str, Any], column: object) -> tuple[str, str]:
    """Return the decimal separator of a column's numbers, and what may separate thousands.

    Args:
        settings: the settings of the table.
        column: the column, whose numbers have the format that ``formats`` declares, or that of the
            csv.
    """
    formats = settings.get("formats")
    form = formats.get(column) if isinstance(formats, Mapping) else None
    if isinstance(form, Mapping):
        return str(form.get("decimal", ".")), str(form.get("thousands", ""))
    csv = settings.get("csv")
    if form is None and isinstance(csv, Mapping) and csv.get("decimal") == ",":
        return ",", "."
    return ".", ""


def _numbers_in(ends: object, decimal: str, thousands: str) -> object:
    """Return the ends of a range with numbers in place of text.

    Args:
        ends: a list, whose numbers and dates stay unchanged; any other value is returned
            unchanged.
        decimal: the decimal separator; where it is a point, and nothing separates thousands, text
            stays unchanged.
        thousands: the character that may separate thousands; empty: no character may.

    Raises:
        ValueError: text is neither a date nor a number that is written so.
    """
    if not isinstance(ends, list | tuple) or (decimal, thousands) == (".", ""):
        return ends
    between = re.escape(thousands)
    whole_number = rf"\d{{1,3}}(?:{between}\d{{3}})+|\d+" if thousands else r"\d+"
    pattern = re.compile(rf"[+-]?(?:{whole_number})(?:{re.escape(decimal)}\d+)?")
    read = []
    for end in ends:
        if isinstance(end, str) and not re.match(r"\d{4}-\d", end):
            if not pattern.fullmatch(end):
                raise ValueError(
                    f"the range has {end!r}, but the numbers of this column are written as "
                    f"1{thousands}234{decimal}5: write the range so, too, or without quotes as "
                    "1234.5"
                )
            end = float(end.replace(thousands, "").replace(decimal, "."))
        read.append(end)
    return read
