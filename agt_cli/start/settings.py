"""The settings of ``agt start``: the answers to its questions, and which questions are open."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from agt.data.settings import is_far_size
from agt.errors import ConfigError
from agt.settings import schema, validate
from agt_cli.report.scoring import UnitNames
from agt_cli.runs.column import Column
from agt_cli.runs.formats import formats_override
from agt_cli.runs.inspect_settings import InspectSettings
from agt_cli.runs.inspection import Inspection, round_number
from agt_cli.runs.ranges import number
from agt_cli.table_settings import PUBLIC_GROUPS, StartAnswers, columns_override, training_rows
from agt_cli.typed_ranges import decimal_point

QUESTIONS = (
    *("label", "missing_label", "target", "range", "drop", "codes"),
    *("id", "id_permanent", "unit_rows", "public", "size", "purpose", "eps"),
)
AT_A_TERMINAL = ("drop", "codes", "size")
"""The questions that are asked at a terminal only. Without one, no column is dropped or taken for
codes that nobody named, and a public size is computed from the rows.
"""
CHANGES_INSPECTION = (
    *("label", "missing_label", "target", "range", "drop", "codes", "id", "unit_rows"),
)
"""The answers after which the table is looked at again."""
_WRITTEN_IN_OWN_FORM = (
    *("file", "data_dir", "force"),
    *("formats", "drop", "codes", "ranges", "lists"),
)
"""Settings that a command line does not repeat, or not as KEY=VALUE."""
NONE = "none"


@schema
class StartSettings(StartAnswers, InspectSettings):
    """What ``agt start`` takes (conf/start.yaml says what each is); None: not answered."""

    output_dir: Path = Path("outputs")

    def __post_init__(self) -> None:
        StartAnswers.__post_init__(self)
        InspectSettings.__post_init__(self)

    def open_questions(self, inspection: Inspection) -> list[str]:
        """Return the settings whose questions are open, in the order of ``QUESTIONS``.

        A setting that has a value is not asked for, nor one that has no effect on this table: the
        budget where nothing is to be published, for example, or the limit on the rows of a person
        where each has one row. Whether ids are permanent is asked where they look like row
        numbers, because no private answer can be given with ids that are not.

        Args:
            inspection: what the table holds by the present answers.
        """
        label = inspection.label_column
        is_asked = {
            "missing_label": label is not None and label.missing > 0,
            "target": inspection.may_be_numbers,
            "range": self.target == "numeric",
            "drop": bool(inspection.label_predictors),
            "codes": bool(inspection.possible_codes),
            "id_permanent": bool(inspection.row_number_ids) and self.purpose != "certificates",
            "unit_rows": inspection.unit is not None,
            "size": "size" in (self.public or ()),
            "eps": self.purpose != "certificates",
        }
        return [key for key in QUESTIONS if getattr(self, key) is None and is_asked.get(key, True)]

    def new_folder(self, command: str) -> Path:
        """Return the path of a new run's folder, named by the time.

        Args:
            command: the command of the run.
        """
        return self.output_dir / command / datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")

    @property
    def id_column(self) -> str | None:
        """The column whose ids are declared to name a person permanently; None: no column is."""
        return None if self.id == NONE else self.id

    def declares_permanent_ids(self, inspection: Inspection) -> bool:
        """Return whether ids are declared to be permanent, if a column has ids.

        To name the column declares it, unless its ids look like row numbers: then ``id_permanent``
        must say so.
        """
        return self.id_permanent is True or not inspection.row_number_ids

    @property
    def planned_eps(self) -> float:
        """The total privacy budget to plan with; 1 where nothing is to be published."""
        return self.eps or 1.0

    @property
    def unit_names(self) -> UnitNames:
        """The name of what certificates count.

        It is a person if a column names people, and also with ``id=none``, which declares that
        each row is another person.
        """
        return UnitNames("row", "rows") if self.id is None else UnitNames("person", "people")

    @property
    def groups(self) -> list[str]:
        """The groups of public values of this table; labels that are numbers have no classes."""
        return [group for group in PUBLIC_GROUPS if group != "classes" or self.target != "numeric"]

    def table_rows(self, inspection: Inspection) -> int | None:
        """Return the declared public number of rows of the whole table; None: none is declared."""
        if "size" not in (self.public or ()):
            return None
        return self.size or inspection.rounded_rows

    def proposed_size(self, inspection: Inspection) -> int | None:
        """Return the declared number of rows of the whole table, if agt computed it from the rows.

        A size that its owner gave was not, unless it is the one that agt proposes.

        Returns:
            None: no size is declared, or another one than agt proposes.
        """
        if self.size not in (None, inspection.rounded_rows):
            return None
        return self.table_rows(inspection)

    def declared_size(self, inspection: Inspection) -> int | None:
        """Return the declared public number of training records; None: none is declared."""
        rows = self.table_rows(inspection)
        return None if rows is None else training_rows(rows)

    def private_groups(self, inspection: Inspection) -> list[str]:
        """Return the groups that are not declared public.

        A group is declared by its name in ``public``, or by a range (a list) for each of its
        columns.
        """
        declared = {*(self.public or ())}
        if self.ranges and all(c.public for c in inspection.features if c.numeric):
            declared.add("ranges")
        if self.lists and all(c.public for c in inspection.features if not c.numeric):
            declared.add("lists")
        return [group for group in self.groups if group not in declared]

    def inspect(self) -> Inspection:
        """Read the table as ``InspectSettings.inspect`` does, and check it against the answers.

        The column ``id`` becomes the unit instead of the id if one of its values has several rows,
        or if ``unit_rows`` declares that it may.

        Raises:
            ConfigError: the column ``id`` has no value in some rows; a person has more rows than
                ``unit_rows``; ``size`` is far from the number of rows; or rows have no label, and
                are not to be left out.
        """
        inspection = InspectSettings.inspect(replace(self, id=self.id_column))
        self._check_labels(inspection)
        self.check_size(inspection)
        if self.unit_rows and self.id == NONE:
            raise ConfigError(
                f"unit_rows={self.unit_rows} limits the rows of one person, but agt does not "
                "know to whom each row belongs: give id=COLUMN, or leave unit_rows=... out"
            )
        if not inspection.identifying_columns:
            return inspection
        column = inspection.identifying_columns[0]
        self._check_people(column, inspection.rows)
        if column.most_rows == 1 and not self.unit_rows:
            return inspection
        return replace(inspection, id=None, unit=column.name)

    def _check_people(self, column: Column, rows: int) -> None:
        """Raise ConfigError if a column cannot name the person of each row.

        Args:
            column: the column that the owner says to name people.
            rows: the number of rows.
        """
        if column.missing:
            given_rows = rows - column.missing
            # One number may be a default, such as an amount of 0; or few values have many rows.
            has_default = 5 * column.most_rows >= given_rows
            has_few_values = given_rows >= 100 * column.distinct
            unlikely = ""
            if has_default or has_few_values:
                unlikely = (
                    f". With only {column.distinct:,} different values, up to "
                    f"{column.most_rows:,} rows each, it may not name people at all: then give "
                    "another column, or id=none if each row is another person"
                )
            raise ConfigError(
                f"id={column.name}: {column.missing:,} of {rows:,} rows have no value in this "
                "column: fill in to whom each row belongs, or remove these rows from the "
                f"file{unlikely}"
            )
        if self.unit_rows and column.most_rows > self.unit_rows:
            raise ConfigError(
                f"unit_rows={self.unit_rows}: one value of '{column.name}' has "
                f"{column.most_rows:,} rows, but training refuses a person with more than "
                "unit_rows rows: give a higher number, or keep fewer rows of each person in the "
                "file"
            )

    def check_size(self, inspection: Inspection) -> None:
        """Raise ConfigError if the size given is ten times the number of rows, or a tenth of it."""
        rows = inspection.rows + inspection.unlabelled
        if self.size is None or not is_far_size(self.size, rows):
            return
        raise ConfigError(
            f"size={self.size}: did you mean size={round_number(rows)}? The file has "
            f"{rows:,} rows, and size is a public number near that of all rows, training and test "
            "rows together"
        )

    def _check_labels(self, inspection: Inspection) -> None:
        """Raise ConfigError if rows have no label, and the answer is not to leave them out."""
        if self.missing_label != "error":
            return
        for doubt in inspection.warnings:
            if doubt.code == "label_missing":
                raise ConfigError(f"missing_label=error: {doubt.clause}")

    def line(self, path: Path, placeholders: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return the command line ``agt start`` with these answers.

        Args:
            path: the path of the table.
            placeholders: setting -> the word to write in place of an answer that is not known.
        """
        words = []
        for field in fields(self):
            value = placeholders.get(field.name, getattr(self, field.name))
            if field.name == "public" and self.public is not None:
                value = self._public_answer
            if value != field.default and field.name not in _WRITTEN_IN_OWN_FORM:
                words.append(f"{field.name}={_word(value)}")
        for setting in ("drop", "codes"):
            columns = getattr(self, setting)
            if columns is not None:
                words.append(columns_override(setting, columns))
        for setting in ("ranges", "lists"):
            values_of_columns = getattr(self, setting)
            if values_of_columns:
                words.append(_columns_mapping(setting, values_of_columns))
        if self.formats:
            words.append(formats_override(self.formats))
        return shlex.join(["agt", "start", str(path), *words])

    @property
    def _public_answer(self) -> object:
        """The answer to the question what is public: yes, no, or the names of groups."""
        if not self.public:
            return "no"
        return "yes" if {*self.groups} <= {*self.public} else self.public


@dataclass(frozen=True)
class Answered:
    """Settings in which some questions are answered.

    Attributes:
        settings: the settings with the answers.
        inspection: what the table holds by the answers.
        asked: the settings that were asked for at the terminal.
    """

    settings: StartSettings
    inspection: Inspection
    asked: frozenset[str] = frozenset()

    @property
    def open_keys(self) -> list[str]:
        """The questions that are open, without those that are asked at a terminal only."""
        open_questions = self.settings.open_questions(self.inspection)
        return [key for key in open_questions if key not in AT_A_TERMINAL]

    def with_answer(self, key: str, answer: str) -> "Answered":
        """Return a copy with one more answer; the table is read again if that is needed.

        Args:
            key: the setting that the answer is for.
            answer: the answer, as it was typed.

        Raises:
            AgtError: it is empty or no possible answer, or the table contradicts it.
        """
        if not answer.strip():
            raise ConfigError(f"{key} has no default, so please answer")
        if key == "eps" and "," in answer:
            raise ConfigError(f"'{answer}': write numbers with a decimal point, such as 0.5")
        given = {field.name: getattr(self.settings, field.name) for field in fields(self.settings)}
        settings: StartSettings = validate(StartSettings, {**given, key: answer}, "")
        inspection = self.inspection
        if key in CHANGES_INSPECTION:
            inspection = settings.inspect()
        settings.check_size(inspection)
        return Answered(settings, inspection, self.asked | {key})


def _columns_mapping(setting: str, values: Mapping[str, Sequence[float | str]]) -> str:
    """Return the word of a command line that declares ranges or lists, not quoted for a shell.

    Args:
        setting: the setting, ``ranges`` or ``lists``.
        values: column -> the ends of its range, or its values.
    """
    entries = (f"{name}: [{', '.join(map(_word, words))}]" for name, words in values.items())
    return f"{setting}={{{', '.join(entries)}}}"


def _word(value: object) -> str:
    """Return a value as a command line takes it."""
    if isinstance(value, tuple):
        return f"[{','.join(decimal_point(_word(item)) for item in value)}]"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
