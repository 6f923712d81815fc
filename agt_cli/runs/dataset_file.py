"""The dataset file that is written about a table, and what its comments say of each column."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

import yaml  # type: ignore[import-untyped]

from agt.data.csv_format import CsvFormat
from agt.data.settings import CLASSES, DECLARED_SIZE
from agt.errors import ConfigError, counted, few
from agt_cli.process import visible
from agt_cli.report.record import escape_interpolations
from agt_cli.runs.column import CODES_REMARK, UNWRITABLE_WORD, Column
from agt_cli.runs.formats import format_as_yaml, format_example
from agt_cli.runs.inspection import Inspection
from agt_cli.runs.ranges import number
from agt_cli.table_settings import (
    PLAIN_NAME,
    RESERVED_WORDS,
    TEST_SHARE,
    columns_override,
    training_rows,
)
from agt_cli.typed_ranges import decimal_point

_SIGNATURE = re.compile(
    r"# Written by agt (?:start|data inspect), unedited if the hash of all that follows is (.*)"
)
"""The first line of a file that agt wrote."""
_DIGITS = 16  # of this hash
MAX_NAMED_COLUMNS = 20
"""The largest number of columns that a sentence on equal rows names."""
FILE_HEADER = """\
# Written by agt data inspect about the table {file}. Only for the owner of the data: the comments show extreme values.
#
# agt read ranges and lists of values from the records, so a single record can change them. The list from_data (below)
# names them. As long as it has a name, no privacy claim holds (condition e). You can do one of two things:
#   1. Replace each of them by publicly known values (an age: [0, 120]), and remove its name from the list from_data.
#   2. Or write from_data: []. This is your statement that everything in this file is public and would be the same if any
#      record were added or removed: ranges, edges, lists, which columns are used and how, how their cells are written,
#      and what counts as a missing value.
# The list proposed_from_rows names them, too. If you declare a range or a list public as it stands here, leave its name
# in that list: every claim then says that agt proposed it from the records. If you replace it, remove its name there, too.
"""
MIXED = (
    "only some ids of this column are whole numbers, so agt reads all of them as text, and 7 "
    "and 07 are different ids"
)
COUNTS_ROWS = (
    "this column seems to contain row numbers, which change if a record is added or removed. "
    "So condition b (a record's batch depends on that record only) is not met. If the column "
    "gives each record a permanent id, write id_permanent: true"
)
PERMANENT = (
    "an id never passes to another person, and never changes when people join or leave the table"
)
CODES_LONG = (
    "agt treats a column with only a few different whole numbers as ordered. If these numbers "
    "are codes without an order, list the column under categorical"
)
SIZE = (
    "approximate number of training records: write a public, round number that you know without "
    "counting the rows (condition c)"
)
SIZE_OF_TABLE = (
    f"about {1 - TEST_SHARE:.0%} of {{rows:,}}, the public number of rows of the whole table; the "
    "rest is kept out of training (condition c)"
)
MISSING_LABEL = "declared by this line: a row without a label is left out, whatever else it has"
ROWS = (
    "the largest number of rows that one unit (person) may have (a public number); training "
    "refuses a unit with more rows"
)
LABEL_RANGE = (
    "declared by this line: the public range of the labels, whoever is among the records; labels "
    "outside of it are clipped"
)
LISTS = (
    "each list has only values that occur in the file (the rarest are left out); add public values "
    "that may occur as well; all other values count as other"
)
NO_ID = (
    "no column gives ids, so the id of each record is a hash of its content; if a column gives "
    "ids, write its name here"
)
NO_ID_BUT_UNIT = (
    "the id of each record is a hash of its content, because the column that you named identifies "
    "people: it stands under unit"
)
EACH_ROW_A_PERSON = (
    "declared by id=none: each row is another person; the id of each record is a hash of its "
    "content"
)
FORMATS = (
    "how the dates or numbers of these columns are written; the columns of queries must be "
    "written in the same way"
)


@dataclass(frozen=True)
class PublicSize:
    """A number of rows that the owner of a table declared public.

    Attributes:
        rows: the number of rows of the whole table, test rows included.
        is_proposed: whether it is the exact number as agt rounded it.
    """

    rows: int
    is_proposed: bool


@dataclass(frozen=True, kw_only=True)
class Declarations:
    """What the owner of a table declared about it.

    Attributes:
        not_public: the names in ``from_data`` that were not declared public.
        size: the public size of the table; None: no size was declared.
        unit_rows: the public cap on the rows of one unit; None: each row is a unit of its own.
        has_permanent_ids: whether ids were declared to be permanent, if a column has ids.
        each_row_is_a_person: whether it was declared, by naming no column of ids, that each row is
            another person.
    """

    not_public: Iterable[str]
    size: PublicSize | None = None
    unit_rows: int | None = None
    has_permanent_ids: bool = False
    each_row_is_a_person: bool = False


def dataset_yaml(
    inspection: Inspection, name: str, declarations: Declarations | None = None
) -> str:
    """Return the text of a dataset file.

    Names and values are quoted so that YAML reads them as they are in the table.

    Args:
        inspection: what the table holds.
        name: the name of the dataset.
        declarations: what the owner declared; None: nothing, so nothing is public.

    Raises:
        ConfigError: there is no feature, or a class that a configuration cannot hold.
    """
    _check_writable(inspection)
    proposed = from_data(inspection)
    if declarations is None:
        declarations = Declarations(not_public=proposed)
    if declarations.size is not None and declarations.size.is_proposed:
        proposed = (*proposed, DECLARED_SIZE)
    lines = [
        *FILE_HEADER.format(file=visible(inspection.path.name)).splitlines(),
        "defaults:\n  - table\n  - _self_",
        f"name: {_scalar(name)}",
        f"path: {_scalar(str(inspection.path))}",
        *_csv_lines(inspection.form),
        f"label: {_scalar(str(inspection.label))}",
        *_target_lines(inspection),
        *([f"missing_label: drop    # {MISSING_LABEL}"] if inspection.unlabelled else []),
        *_id_lines(inspection, declarations),
        _size_line(declarations.size),
        *_feature_lines(inspection),
        *_format_lines(inspection),
        f"from_data: {_yaml_list(declarations.not_public)}",
        f"proposed_from_rows: {_yaml_list(proposed)}",
    ]
    if inspection.left_out:
        lines.append("# left out:")
    for column in inspection.left_out:
        lines.append(f"#   {visible(column.name)}: {visible(column.remark)}")
    return "\n".join(lines) + "\n"


def _size_line(size: PublicSize | None) -> str:
    """Return the line of a dataset file that declares a size; None: no size is declared."""
    if size is None:
        return f"declared_size: null    # {SIZE}"
    remark = SIZE_OF_TABLE.format(rows=size.rows)
    return f"declared_size: {training_rows(size.rows)}    # {remark}"


def _feature_lines(inspection: Inspection) -> list[str]:
    """Return the lines of a dataset file on features: missing values, ranges and lists."""
    features = inspection.features
    markers = dict.fromkeys(word for column in features for word in column.markers)
    markers.update(dict.fromkeys(inspection.label_markers))
    ranges = {}
    lists = {}
    for column in features:
        if column.numeric:
            ends = [decimal_point(column.bound(end)) for end in column.numeric]
            ranges[column] = f"[{', '.join(ends)}]"
        # What stands for no value in one column does so in all.
        words = [word for word in column.categorical if word not in markers]
        if words:
            lists[column] = _yaml_list(words)
    missing = "indicator" if any(column.missing for column in features) else "error"
    return [
        f"missing: {missing}",
        f"missing_values: {_yaml_list(markers)}",
        f"# {CODES_REMARK} {CODES_LONG}",
        *_mapping_lines("numeric", ranges),
        *([f"# {LISTS}"] if lists else []),
        *_mapping_lines("categorical", lists),
    ]


def signed(text: str, command: str) -> str:
    """Return the text of a dataset file below a line by which an edit is recognised.

    Args:
        command: the command that writes the file, "start" or "data inspect".
    """
    line = f"# Written by agt {command}, unedited if the hash of all that follows is {_hash(text)}"
    return f"{line}\n{text}"


def is_unedited(text: str) -> bool:
    """Return whether the text of a dataset file is as agt wrote it."""
    first, _, rest = text.partition("\n")
    signature = _SIGNATURE.fullmatch(first)
    return signature is not None and signature[1] == _hash(rest)


def _hash(text: str) -> str:
    """Return the hash by which an edit of a text is recognised."""
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def _check_writable(inspection: Inspection) -> None:
    """Raise ConfigError if there is no feature, or a class that a configuration cannot hold."""
    path = inspection.path
    if not inspection.features:
        left_out = [column for column in inspection.left_out if column.remark]
        remarks = few((f"'{column.name}': {column.remark}" for column in left_out), between="; ")
        raise ConfigError(
            f"{path}: no column of this table can be used as a feature ({remarks}): give a table "
            "with at least one column that can"
        )
    if UNWRITABLE_WORD in inspection.classes:
        raise ConfigError(
            f"{path}: the name '???' of a class cannot be written into a dataset configuration: "
            "replace '???' by another word in the file"
        )


def _csv_lines(form: CsvFormat | None) -> list[str]:
    """Return the line of a dataset file that says how a csv is cut into cells, if that is not the
    usual way.

    Args:
        form: the format of a csv; None: the file is no csv.
    """
    if form is None or form == CsvFormat():
        return []
    cells = [
        f"separator: {_scalar(form.separator)}",
        f"encoding: {form.encoding}",
        f"header: {str(form.header).lower()}",
    ]
    if form.decimal != ".":
        cells.append(f"decimal: {_scalar(form.decimal)}")
    return [f"csv: {{{', '.join(cells)}}}"]


def _id_lines(inspection: Inspection, declarations: Declarations) -> list[str]:
    """Return the lines of a dataset file that say what names records and people."""
    names = inspection.identifying_columns
    if inspection.id is not None:
        id = (
            f"{_scalar(inspection.id)}    # declared by this line: the column gives each record a "
            "permanent id, which does not change if other records are added or removed"
        )
    elif inspection.unit is not None:
        id = f"null # {NO_ID_BUT_UNIT}"
    elif declarations.each_row_is_a_person:
        id = f"null # {EACH_ROW_A_PERSON}"
    else:
        id = f"null # {NO_ID}"
    lines = [f"id: {id}"]
    if names and declarations.has_permanent_ids:
        lines.append(f"id_permanent: true    # declared by this line: {PERMANENT}")
    if any(column.mixed for column in names):
        lines.append(f"id_as_text: true    # {MIXED}")
    if inspection.unit is not None:
        lines.append(f"unit: {_scalar(inspection.unit)}")
        lines.append(f"unit_rows: {declarations.unit_rows}    # {ROWS}")
    return lines


def from_data(inspection: Inspection) -> tuple[str, ...]:
    """Return the columns, and ``CLASSES``, whose values are not public by themselves."""
    columns = [column.name for column in inspection.features if not column.public]
    return (*columns, CLASSES) if inspection.classes else tuple(columns)


def describe_content(column: Column) -> str:
    """Return a short text on the values of a column, for the data owner."""
    if column.kind == "dropped":
        return "not looked at"
    count = f"{column.distinct} distinct"
    if column.low is not None and column.high is not None:
        low = column.bound(column.low)
        high = column.bound(column.high)
        count = f"values from {low} to {high}; {count}"
    elif column.kind == "category" and column.values:
        count = f"{count}, most often {column.values[0][0]!r}"
    if column.unlisted:
        values = counted(len(column.unlisted), "value")
        rows = counted(sum(rows for _, rows in column.unlisted), "row")
        count = f'{count}; {values} ({rows}) not in the list, counted as "other"'
    if column.outside:
        rows = counted(column.outside, "row")
        count = f"{count}; {rows} outside the proposed range, counted as its nearest end"
    markers = f" ({', '.join(map(repr, column.markers))})" if column.markers else ""
    prediction_remark = ""
    if column.predicted_share:
        share = 100 * column.predicted_share
        prediction_remark = (
            f"; this column alone predicts the label of {share:.1f} % of the rows (if its value "
            "is not known before the label, leave the column out with "
            f"{shlex.quote(columns_override('drop', [column.name]))})"
        )
    return (
        count
        + (f", {column.missing} missing{markers}" if column.missing else "")
        + prediction_remark
    )


def repeated_rows(inspection: Inspection) -> str:
    """Return a sentence on how many rows are equal to others, and on what follows without ids.

    It names the columns that were compared: rows that differ only in others are equal here.
    """
    compared = [column.name for column in inspection.features]
    if inspection.label is not None:
        compared.append(inspection.label)
    names = few(map(repr, compared), MAX_NAMED_COLUMNS)
    return (
        f"{inspection.repeated:,} of {inspection.rows:,} rows are equal to an earlier row in all "
        f"columns that are used ({names}). Without a column that names records, equal rows are all "
        "trained on or all tested on, so accuracy says LITTLE about new records: name such a "
        "column, or add one to the file"
    )


def describe_proposal(column: Column, inspection: Inspection, *, id_permanent: bool = False) -> str:
    """Return a short text on the settings that are proposed for a column.

    Args:
        id_permanent: whether ids that look like row numbers were declared to be permanent.
    """
    if column.name == inspection.unit:
        return "the id of the person to whom each record belongs"
    if column.name == inspection.id:
        is_doubtful = column.resembles_row_numbers and not id_permanent
        return "the record's id" + (f": {COUNTS_ROWS}" if is_doubtful else "")
    if column.name == inspection.label:
        missing = column.missing
        gaps = f"; rows without a label: {missing} (missing_label=drop leaves them out)"
        gaps = gaps if missing else ""
        return f"the label: {describe_labels(inspection)}{gaps}"
    remark = f" ({column.remark})" if column.remark else ""
    if column.format is not None:
        remark = f", written {format_example(column.format)}{remark}"
    if column.categorical:
        listed = len(column.categorical)
        return (
            f"{listed} values are in the list of this column; any other value counts as "
            f'"other"{remark}'
        )
    if column.numeric:
        low, high = (column.bound(value) for value in column.numeric)
        return f"range [{low}, {high}]{remark}"
    return f"left out: {column.remark}"


def describe_labels(inspection: Inspection) -> str:
    """Return a short text on the kind of the labels."""
    if inspection.numbers is not None:
        return f"numbers in the public range {inspection.numbers.bounds}"
    if inspection.needs_target:
        return "numbers or classes (say which)"
    return f"{len(inspection.classes)} classes"


def _target_lines(inspection: Inspection) -> list[str]:
    """Return the lines of a dataset file that say what labels are."""
    if inspection.numbers is None:
        return [f"classes: {_yaml_list(inspection.classes)}"]
    low = decimal_point(number(inspection.numbers.low))
    high = decimal_point(number(inspection.numbers.high))
    return ["target: numeric", f"range: [{low}, {high}]    # {LABEL_RANGE}"]


def _format_lines(inspection: Inspection) -> list[str]:
    """Return the lines of a dataset file that say how cells of features, and labels that are
    numbers, are written.
    """
    columns = [*inspection.features]
    if inspection.numbers is not None and inspection.label_column is not None:
        columns.append(inspection.label_column)
    formats = {column.name: column.format for column in columns if column.format is not None}
    if not formats:
        return []
    return [
        f"formats:    # {FORMATS}",
        *(f"  {_quoted(name)}: {format_as_yaml(form)}" for name, form in formats.items()),
    ]


def _mapping_lines(key: str, entries: Mapping[Column, str]) -> list[str]:
    """Return the lines of a mapping by column, with a comment on each column's values."""
    if not entries:
        return [f"{key}: {{}}"]
    remarks = {
        c: visible(f"seen: {describe_content(c)}" + (f", {c.remark}" if c.remark else ""))
        for c in entries
    }
    return [
        f"{key}:",
        *(f"  {_quoted(c.name)}: {value}    # {remarks[c]}" for c, value in entries.items()),
    ]


def _yaml_list(words: Iterable[str]) -> str:
    """Return text as a list in YAML, in one line."""
    return f"[{', '.join(map(_scalar, words))}]"


def _scalar(text: str) -> str:
    """Return text as a YAML value that is read back as the same text, not as an interpolation."""
    return _quoted(escape_interpolations(text))


def _quoted(text: str) -> str:
    """Return text as a YAML value in one line, which is read back as text and not as a number."""
    if PLAIN_NAME.fullmatch(text) and text.casefold() not in RESERVED_WORDS:
        return text
    quoted: str = yaml.safe_dump(
        text, default_style='"', allow_unicode=text.isprintable(), width=10**9
    )
    return quoted.strip()
