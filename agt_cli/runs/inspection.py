"""agt data inspect: what was seen of a table, as a dataset configuration that its owner goes on from."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml  # type: ignore[import-untyped]
from pydantic import Field

from agt.data.checks import Word
from agt.data.delimited import CsvFormat, is_delimited, sniffed
from agt.data.files import locate
from agt.data.inspect import CODES, MOST_VALUES, Column, Inspection, inspect_table
from agt.data.table import CLASSES
from agt.errors import ConfigError
from agt.settings import schema
from agt_cli import usage
from agt_cli.report.record import literal

HEAD = """\
# The table {file}, as agt data inspect saw it: not public while from_data names anything
#
# For the owner of the data alone until then: the ranges and lists of values below were read off its records, one of
# which can move them, and the comments tell extremes. No claim of privacy holds so far (condition e). What to do:
#   1. Replace what from_data names by what is publicly known (an age: [0, 120]), and take its name off that list.
#   2. Or write from_data: []. That is your statement that everything here is public and would be the same with any
#      record more or less: ranges, edges, lists, which columns are used and how, what counts as a missing value.
"""
CODES_LONG = "few whole numbers are taken as ordered; where they are codes without an order, list them under categorical"
SIZE = "about how many training records there are: a public round number that you know without counting (condition c)"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_RESERVED = {"yes", "no", "on", "off", "true", "false", "null", "y", "n"}


@schema
class InspectSettings:
    """What ``agt data inspect`` takes (conf/data.yaml says what each is)."""

    file: Path
    data_dir: Path
    label: str | None = None
    id: str | None = None
    name: str | None = None
    force: bool = False
    header: bool | None = None
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    encoding: str | None = None
    missing_values: tuple[Word, ...] = ()
    most_values: Annotated[int, Field(ge=1, le=10_000)] = MOST_VALUES

    @property
    def dataset(self) -> str:
        """What ``agt train dataset=`` takes: letters, digits, dashes and underscores."""
        stem = self.name or re.sub(r"(\.(csv|tsv|txt|data))?(\.gz)?$|\.parquet$", "", self.file.name, flags=re.IGNORECASE)
        ascii = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
        bare = re.sub(r"[^A-Za-z0-9_-]+", "_", ascii).strip("_-")
        return bare if _PLAIN.fullmatch(bare) and bare.casefold() not in _RESERVED else f"table_{bare}".strip("_")

    @property
    def target(self) -> Path:
        """The file to write."""
        return Path("conf", "dataset", f"{self.dataset}.yaml")

    def check_target(self) -> None:
        """Raise ConfigError where it may not be written."""
        ours = usage.config_dir() / "dataset" / f"{self.dataset}.yaml"
        if ours.exists() and not (self.force and self.target.exists() and ours.samefile(self.target)):
            raise ConfigError(
                f"dataset={self.dataset} is one of agt's own: give another name, such as name=my_{self.dataset}"
            )
        if self.target.exists() and not self.force:
            raise ConfigError(
                f"{self.target} is there already, and may hold what you declared: give force=true to write over it, or "
                "name=NAME"
            )

    def inspect(self) -> Inspection:
        """Look at the file. Raises DataMissing or DataError (agt.data.inspect)."""
        path = locate(self.file, self.data_dir, "the file or data_dir")
        form: CsvFormat | None = None
        if (self.separator or self.encoding) and is_delimited(path):
            form = sniffed(path, self.header is not False)
            form = CsvFormat(self.separator or form.separator, self.encoding or form.encoding, form.header)
        return inspect_table(
            path,
            label=self.label,
            id=self.id,
            form=form,
            header=self.header,
            missing_values=tuple(map(str, self.missing_values)),
            most_values=self.most_values,
        )


def seen(column: Column) -> str:
    """What a column holds, in a few words for its owner."""
    count = f"{column.distinct} distinct"
    if column.low is not None and column.high is not None:
        count = f"{number(column.low)} to {number(column.high)}, {count}"
    elif column.kind == "category" and column.values:
        count = f"{count}, most often {column.values[0][0]!r}"
    markers = f" ({', '.join(map(repr, column.markers))})" if column.markers else ""
    return count + (f", {column.missing} missing{markers}" if column.missing else "")


def proposal(column: Column, inspection: Inspection) -> str:
    """What a column is to be, in a few words."""
    if column.name == inspection.id:
        return "the record's id"
    if column.name == inspection.label:
        gaps = f"; {column.missing} rows have none: drop them from the file" if column.missing else ""
        return f"the label: {len(inspection.classes)} classes{gaps}"
    if column.categorical:
        return f"{len(column.categorical)} values listed, any other counts as other"
    if len(column.numeric) > 2:
        return f"edges {' '.join(map(number, column.numeric))}"
    if column.numeric:
        low, high = map(number, column.numeric)
        return f"range [{low}, {high}]" + (f" ({column.remark})" if column.remark else "")
    return f"left out: {column.remark}"


def from_data(inspection: Inspection) -> tuple[str, ...]:
    """What nobody has declared public."""
    return (*(column.name for column in inspection.features if not column.public), CLASSES)


def dataset_yaml(inspection: Inspection, name: str) -> str:
    """The configuration; every name and word in it is read back as it stands in the table.

    Raises:
        ConfigError: there is no feature, or a class that a configuration cannot hold.
    """
    if not inspection.features:
        raise ConfigError(f"{inspection.path}: no column can be a feature; see what is said of each of them")
    if "???" in inspection.classes:
        raise ConfigError(f"{inspection.path}: '???' cannot be the name of a class in a configuration: write another word")
    numeric = {c.name: (f"[{', '.join(map(number, c.numeric))}]", _comment(c)) for c in inspection.features if c.numeric}
    lists = {c.name: (_list(c.categorical), _comment(c)) for c in inspection.features if c.categorical}
    lines = [
        *HEAD.format(file=_one_line(inspection.path.name)).splitlines(),
        "defaults:\n  - table\n  - _self_",
        f"name: {_scalar(name)}",
        f"path: {_scalar(str(inspection.path))}",
        *_form(inspection.form),
        f"label: {_scalar(str(inspection.label))}",
        f"classes: {_list(inspection.classes)}",
        *_id(inspection),
        f"declared_size: null    # {SIZE}",
        f"missing: {'indicator' if inspection.gaps else 'error'}",
        f"missing_values: {_list(inspection.missing_values)}",
        f"# {CODES} {CODES_LONG}",
        *_mapping("numeric", numeric),
        *_mapping("categorical", lists),
        f"from_data: {_list(from_data(inspection))}",
    ]
    if inspection.left_out:
        lines += ["# left out:", *(f"#   {_one_line(c.name)}: {_one_line(c.remark)}" for c in inspection.left_out)]
    return "\n".join(lines) + "\n"


def as_json(inspection: Inspection) -> list[dict[str, Any]]:
    """Every column for a program, its counts included."""
    return [
        {
            "name": column.name,
            "kind": column.kind,
            "distinct": column.distinct,
            "missing": column.missing,
            "low": column.low,
            "high": column.high,
            "values": dict(column.values),
            "proposal": proposal(column, inspection),
        }
        for column in inspection.columns
    ]


def number(value: float) -> str:
    """A number as a person writes it, and as a configuration reads it."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _form(form: CsvFormat | None) -> list[str]:
    if form is None or form == CsvFormat():
        return []
    header = str(form.header).lower()
    return [f"csv: {{separator: {_scalar(form.separator)}, encoding: {form.encoding}, header: {header}}}"]


def _id(inspection: Inspection) -> list[str]:
    if inspection.id is not None:
        return [f"id: {_scalar(inspection.id)}    # you say that it names a record for good, whatever becomes of others"]
    return ["id: null    # each record is named by a hash of its own content"]


def _mapping(key: str, entries: Mapping[str, tuple[str, str]]) -> Iterable[str]:
    if not entries:
        return [f"{key}: {{}}"]
    return [f"{key}:", *(f"  {_quoted(name)}: {value}    # {comment}" for name, (value, comment) in entries.items())]


def _comment(column: Column) -> str:
    return _one_line(f"seen: {seen(column)}" + (f", {column.remark}" if column.remark else ""))


def _list(words: Iterable[str]) -> str:
    return f"[{', '.join(map(_scalar, words))}]"


def _scalar(text: str) -> str:
    """A value that is read back as the same text, never as an interpolation."""
    return _quoted(literal(text))


def _quoted(text: str) -> str:
    """Text in one line of yaml that is read back as text, never as a number or a truth."""
    if _PLAIN.fullmatch(text) and text.casefold() not in _RESERVED:
        return text
    quoted: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=10**9)
    return quoted.strip()


def _one_line(text: str) -> str:
    """Text for a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
