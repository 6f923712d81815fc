"""Settings of commands that read a table's file, checked without reading it.

Nothing here loads NumPy or pandas, so that a mistake is answered at once. Further settings of ``agt
data inspect`` and ``agt start`` are in their own modules.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from agt.data.file_settings import LabelledFileSettings
from agt.data.settings import (
    ColumnName,
    LabelWord,
    as_number,
    check_edges,
    check_label_range,
)
from agt.errors import ConfigError, nearest
from agt.release_settings import MAX_TOTAL_EPS
from agt.settings import (
    DeclaredSize,
    Probability,
    RowLimit,
    keyword_schema,
    schema,
    validate,
)
from agt_cli import config_files
from agt_cli.places import folder_for_file
from agt_cli.typed_ranges import (
    check_mapping,
    read_column_list,
    read_column_range,
    read_range,
)
from agt_cli.usage import quoted

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
RESERVED_WORDS = {"yes", "no", "on", "off", "true", "false", "null", "y", "n", "nan", "inf"}
"""Words that YAML does not read as text."""
PUBLIC_GROUPS = ("ranges", "lists", "classes", "size")
"""Groups of values of a table, each of which may be public or not."""


def read_columns(value: object) -> object:
    """Return the names of columns in the value of a setting.

    Args:
        value: text with commas between the names; empty or "none" means no column. Other values
            (a list) are returned unchanged.
    """
    if not isinstance(value, str):
        return value
    names = [name.strip() for name in value.strip(" []").split(",")]
    return () if names in ([""], ["none"]) else tuple(names)


def read_flag(value: object) -> object:
    """Return True for the text "yes" or "true", and False for "no" or "false".

    Args:
        value: text, in capitals or not; other values are returned unchanged.

    Raises:
        ConfigError: it is another text.
    """
    if not isinstance(value, str):
        return value
    flags = {"yes": True, "true": True, "no": False, "false": False}
    answer = flags.get(value.strip().casefold())
    if answer is None:
        raise ConfigError(f"'{value}' is neither true nor false: give true or false")
    return answer


def columns_override(setting: str, columns: Sequence[str]) -> str:
    """Return the word of a command line that names columns, not quoted for a shell.

    Args:
        setting: the setting that takes the columns, such as ``drop``.
        columns: their names; none of them is written as none.
    """
    if not columns:
        return f"{setting}=none"
    words = []
    for name in columns:
        words.append(name if PLAIN_NAME.fullmatch(name) else quoted(name))
    return f"{setting}=[{','.join(words)}]"


ColumnList = Annotated[
    tuple[LabelWord, ...], Field(min_length=1), BeforeValidator(read_column_list)
]
"""The public list of a column's values."""
ColumnRange = Annotated[tuple[float | str, ...], BeforeValidator(read_column_range)]
"""The public range of a column: two numbers, or the text of two dates such as 2024-12-31."""


@schema
class TableFile:
    """A table, and the dataset file that is written about it.

    Attributes:
        file: the table's file.
        data_dir: the folder in which a relative path is looked for after the working directory.
        label: the column to predict; None: not given.
        id: the column that names each record or person; None: not given.
        id_permanent: True: ids that look like row numbers were declared to be permanent; None: not
            given.
        target: the kind of labels, classes or numbers; None: not given.
        range: the public range of labels that are numbers; None: not given.
        drop: the columns that must not be features; None: not given.
        codes: columns whose numbers are codes without an order, such as those of regions; None: not
            given.
        ranges: column of numbers or dates -> its public range, as its owner declares it; those of
            other columns are proposed from the rows.
        lists: column of words or codes -> the public list of its values, likewise.
        name: the name of the dataset; None: the name of the file.
        force: True: overwrite the dataset file.
        header: whether the first line of a csv names its columns; None: not given.
        separator: the character between the cells of a csv; None: not given.
        encoding: the encoding of a csv; None: not given.
        missing_label: the treatment of rows without a label; None: not given.

    Raises:
        ConfigError: the label or the id is to be dropped, or has a range or a list; a column has
            both; there is a range, but labels are not numbers; or a range is not valid.
    """

    file: Path
    data_dir: Path
    label: ColumnName | None = None
    id: ColumnName | None = None
    id_permanent: Annotated[bool | None, BeforeValidator(read_flag)] = None
    target: Literal["classes", "numeric"] | None = None
    range: Annotated[tuple[float, float], BeforeValidator(read_range)] | None = None
    drop: Annotated[tuple[ColumnName, ...], BeforeValidator(read_columns)] | None = None
    codes: Annotated[tuple[ColumnName, ...], BeforeValidator(read_columns)] | None = None
    ranges: Annotated[Mapping[ColumnName, ColumnRange], BeforeValidator(check_mapping)] = Field(
        default_factory=dict
    )
    lists: Annotated[Mapping[ColumnName, ColumnList], BeforeValidator(check_mapping)] = Field(
        default_factory=dict
    )
    name: ColumnName | None = None
    force: bool = False
    header: bool | None = None
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    encoding: str | None = None
    missing_label: Literal["error", "drop"] | None = None

    def __post_init__(self) -> None:
        for setting, column in (("label", self.label), ("id", self.id)):
            if column is not None and column in (self.drop or ()):
                raise ConfigError(
                    f"drop names the column '{column}', but {setting}={column} uses it: leave it "
                    f"out of drop, or give another {setting}"
                )
            if column is not None and column in self.ranges:
                remedy = "give the range of labels that are numbers with range=[LOW,HIGH]"
                if setting == "id":
                    remedy = f"leave '{column}' out of ranges"
                raise ConfigError(
                    f"ranges gives the range of a feature, but {setting}={column} uses this "
                    f"column: {remedy}"
                )
            if column is not None and column in self.lists:
                raise ConfigError(
                    f"lists gives the values of a feature, but {setting}={column} uses this "
                    f"column: leave '{column}' out of lists"
                )
        for column in self.lists:
            if column in self.ranges:
                raise ConfigError(
                    f"ranges and lists both name the column '{column}': give a range for ordered "
                    "numbers, or a list for words and codes"
                )
        for column, limits in self.limits.items():
            try:
                check_edges(f"ranges.{column}", limits)
            except ValueError as error:
                raise ConfigError(str(error)) from None
        if self.range is None:
            return
        if self.target != "numeric":
            raise ConfigError(
                f"range={list(self.range)} is the public range of labels that are numbers: give "
                "target=numeric as well, or leave range=... out"
            )
        check_label_range(*self.range)

    @property
    def limits(self) -> dict[str, tuple[float, ...]]:
        """The ranges of ``ranges`` as numbers; dates are days since 1970-01-01."""
        limits = {}
        for column, ends in self.ranges.items():
            limits[column] = tuple(float(as_number(end)) for end in ends)
        return limits

    @property
    def dataset(self) -> str:
        """The name of the dataset, of ASCII letters, digits, dashes and underscores.

        It is ``name``, or the file's name without its suffixes, with other characters replaced.
        """
        suffixes = r"(\.(csv|tsv|txt|data))?(\.gz)?$|\.parquet$"
        stem = self.name or re.sub(suffixes, "", self.file.name, flags=re.IGNORECASE)
        ascii = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
        name_part = re.sub(r"[^A-Za-z0-9_-]+", "_", ascii).strip("_-")
        if PLAIN_NAME.fullmatch(name_part) and name_part.casefold() not in RESERVED_WORDS:
            return name_part
        return f"table_{name_part}".strip("_")

    @property
    def dataset_file(self) -> Path:
        """The path of the dataset file."""
        return Path("conf", "dataset", f"{self.dataset}.yaml")

    def check_dataset_file(self) -> None:
        """Raise ConfigError if the dataset file must not be written, or the table is a folder."""
        self.check_name()
        if self.dataset_file.exists() and not self.force:
            another = replace(self, name=f"{self.dataset}_{self.label or 2}").dataset
            raise ConfigError(
                f"{self.dataset_file} already exists and may contain your declarations: to train "
                f"with this file as it is, type `agt train dataset={self.dataset}`; otherwise give "
                f"another name, such as name={another}, or force=true to overwrite this file"
            )

    def check_name(self) -> None:
        """Raise ConfigError if the name is that of one of agt's own data sets, or if the table is
        a folder.
        """
        self.check_file()
        in_source_tree = (
            self.force and self.dataset_file.exists() and config_files.user_conf() is None
        )
        if config_files.is_builtin("dataset", self.dataset) and not in_source_tree:
            raise ConfigError(
                f"dataset={self.dataset} is the name of one of agt's own data sets: give "
                f"another name, such as name=my_{self.dataset}"
            )

    def check_file(self) -> None:
        """Raise ConfigError if the table is a folder."""
        if self.file.is_dir():
            raise ConfigError(folder_for_file(self.file))

    def check_columns(self) -> None:
        """Raise DataError if the table lacks a column that a setting names.

        Only the first line of a csv is read, and only one whose form nothing else is said of.
        """
        if self.header is False or self.encoding is not None or not self.file.is_file():
            return
        columns = [("drop", name) for name in self.drop or ()]
        columns += [("codes", name) for name in self.codes or ()]
        columns += [("ranges", name) for name in self.ranges]
        columns += [("lists", name) for name in self.lists]
        if self.label is not None:
            columns.append(("label", self.label))
        # agt start takes id=none where no column names the records.
        if self.id not in (None, "none"):
            columns.append(("id", str(self.id)))
        # Imported only for a table of text, because it loads the settings of data.
        from agt_cli.table_columns import check_named_columns

        check_named_columns(self.file, columns, self.separator)


def read_groups(value: object) -> object:
    """Return the groups of values that the setting ``public`` names.

    Args:
        value: yes (all groups), no (none), a list of names, or text with names between blanks or
            commas, in brackets or not. Values of other types are returned as they are.

    Raises:
        ConfigError: a name is not one of ``PUBLIC_GROUPS``; or the value is true or false, which
            is no declaration.
    """
    if isinstance(value, bool):
        raise ConfigError(
            f"public={str(value).lower()}: if you declare all of these values public, type "
            f"public=yes; if none, public=no; if some, name them ({', '.join(PUBLIC_GROUPS)})"
        )
    if value == "yes":
        return PUBLIC_GROUPS
    if value == "no":
        return ()
    if isinstance(value, str):
        value = tuple(value.strip(" []").replace(",", " ").split())
    if not isinstance(value, list | tuple):
        return value
    for word in value:
        if word not in PUBLIC_GROUPS:
            hint = nearest(str(word), ("yes", "no", *PUBLIC_GROUPS))
            raise ConfigError(f"public: unknown value '{word}'{hint}")
    return value


@keyword_schema
class StartAnswers:
    """The answers to the questions of ``agt start`` that can be checked without the table.

    Attributes:
        public: the groups of values that are public; None: not answered.
        size: a public number of rows of the whole table, of which a public share is trained on
            (``training_rows``); None: computed from the file's rows, if the size is public.
        purpose: the purpose of the model; None: not answered.
        unit_rows: a public limit on the rows of one person; None: not answered.
        eps: the total privacy budget to plan with; None: not answered.
        delta: the delta of this budget.
    """

    public: (
        Annotated[
            tuple[Literal["ranges", "lists", "classes", "size"], ...], BeforeValidator(read_groups)
        ]
        | None
    ) = None
    size: DeclaredSize | None = None
    purpose: Literal["certificates", "answers", "both"] | None = None
    unit_rows: RowLimit | None = None
    eps: Annotated[float, Field(gt=0, le=MAX_TOTAL_EPS)] | None = None
    delta: Probability = 1e-5

    def __post_init__(self) -> None:
        """Raise ConfigError where a size is declared that is not among what is public."""
        if self.size is None or self.public is None or "size" in self.public:
            return
        public = f"[{','.join((*self.public, 'size'))}]"
        raise ConfigError(
            f"size={self.size} declares how many rows the table has, but public does not name the "
            f"size: give public={public}, or leave size=... out"
        )


TEST_SHARE = LabelledFileSettings.test_fraction
"""The public share of a table's rows that is kept out of training."""


def training_rows(table_rows: int) -> int:
    """Return about how many rows are trained on, by the public rule of the split.

    Args:
        table_rows: the number of rows of the whole table.
    """
    return max(1, round((1 - TEST_SHARE) * table_rows))


def check_start(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong answer on the command line, or a folder instead of a table."""
    _read(StartAnswers, config)  # called because it raises for a wrong answer
    table = _read(TableFile, config)
    table.check_name()
    table.check_columns()


def check_data(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if ``agt data inspect`` must not write its dataset file."""
    if config.get("action") == "inspect":
        table = _read(TableFile, config)
        if table.id_permanent and table.id is None:
            raise ConfigError(
                "id_permanent=true declares that the ids of a column are permanent, but no column "
                "is named: give id=COLUMN as well, or leave id_permanent=... out"
            )
        table.check_dataset_file()
        table.check_columns()


def _read(cls: type[Any], config: Mapping[str, Any]) -> Any:
    """Return the settings of a class, read from a command's configuration.

    Args:
        cls: the class. Its other settings, and settings that are null, have their defaults.
        config: the configuration.

    Raises:
        ConfigError: a value is invalid.
    """
    given = {key: config[key] for key in cls.__dataclass_fields__ if config.get(key) is not None}
    return validate(cls, given, "")
