"""Settings of data in files of one's own: ``dataset=table`` and ``dataset=embeddings``.

The classes that read such files inherit their settings from the classes here. Nothing here imports
NumPy, pandas or PyArrow, so that a mistake in a setting is answered at once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from agt.data.settings import (
    CLASSES,
    DECLARED_SIZE,
    MAX_FEATURES,
    ColumnName,
    LabelWord,
    Limits,
    check_edges,
    check_label_range,
)
from agt.data.written_ranges import read_written_ranges
from agt.errors import nearest
from agt.settings import (
    DeclaredSize,
    Positive,
    Probability,
    RowLimit,
    changing_settings,
    schema,
)


@schema
class FileConstants:
    """Constants that were read off a file of labelled records, and that queries need.

    A run records them, so that queries can be read without the file.

    Attributes:
        classes: the names of the classes, in their order; empty: labels are numbers.
        shape: the shape of one record's vector; None: the columns decide it.
        center: the constant that is subtracted from vectors; None: nothing is subtracted, or the
            configuration has it.
        ranges: column -> [low, high], for columns whose range the configuration does not have.
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...] | None = None
    center: Any = None
    ranges: Mapping[str, tuple[float, ...]] = Field(default_factory=dict)


@schema
class LabelledFileSettings:
    """Settings of a file with one record in each row: the meaning of its columns.

    Attributes:
        path: the file; a relative path is looked for in the working directory, then in
            ``data_dir``.
        label: column of the label.
        data_dir: the second folder in which a relative path is looked for.
        label_free: whether ids and the hashed split are made without labels (relation=flip).
        id, unit, public: columns; None: ids are hashes of the content, each record is a unit of its
            own, all records are private.
        unit_rows: public cap on the rows of one unit: the default of ``relation.unit_rows``
            (conf/relation).
        id_as_text: whether ids that mix numbers and text are taken as text.
        id_permanent: whether the user declares that a record keeps its id when other records are
            added or removed, which ids that look like row numbers need.
        classes: public list of label values in the order of the classes; None: the sorted values
            found, at most 100.
        target: ``classes``, or ``numeric``: labels are numbers.
        range: the public range [a, b] of numeric labels, into which they are clipped.
        test_fraction, split_key: the hash split's public rate and key.
        declared_size: public constant: about how many training records there are.
        name: the name of the data in tables; None: the file's name.
        subgroups: columns for each of whose values a report states the model's quality; training
            does not read them.
        settled: the constants that a training run recorded, for queries; None: reading queries
            opens the training file again.
    """

    SPLIT: ClassVar[str]
    """The setting that names a column of splits."""

    path: Path
    label: ColumnName
    data_dir: Path = Path("data")
    label_free: bool = False
    id: ColumnName | None = None
    unit: ColumnName | None = None
    unit_rows: RowLimit = 1
    public: ColumnName | None = None
    id_as_text: bool = False
    id_permanent: bool = False
    classes: Annotated[tuple[LabelWord, ...], Field(min_length=2)] | None = None
    target: Literal["classes", "numeric"] = "classes"
    range: tuple[float, float] | None = None
    test_fraction: Probability = 0.25
    split_key: str = "split"
    declared_size: DeclaredSize | None = None
    name: str | None = None
    subgroups: tuple[ColumnName, ...] = ()
    settled: FileConstants | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if settings contradict each other: classes, target, columns."""
        names = Counter(str(name).strip() for name in self.classes or ())
        if "" in names:
            raise ValueError(
                "'classes' contains an empty name, but a missing label cannot be a class: remove "
                "the empty name"
            )
        if len(names) < len(self.classes or ()):
            raise ValueError(
                f"classes lists {max(names, key=names.__getitem__)!r} twice, perhaps with "
                "different spaces: remove one of the two"
            )
        self._check_target()
        if len(set(self.subgroups)) < len(self.subgroups):
            raise ValueError("'subgroups' lists the same column twice: remove one of the two")
        for setting in ("id", "unit", "public", self.SPLIT):
            if getattr(self, setting) == self.label:
                raise ValueError(
                    f"dataset.label and {setting} both name column {self.label}: name two "
                    "different columns"
                )

    def _check_target(self) -> None:
        """Raise ConfigError or ValueError unless a range is given exactly for numeric labels."""
        if self.target == "classes":
            if self.range is not None:
                raise ValueError(
                    "'range' is the range of numeric labels: give target=numeric as well, or "
                    "leave range out"
                )
            return
        if self.range is None:
            raise ValueError(
                "target=numeric needs the public range of the labels: give range=[a,b], two "
                "constants that were not computed from the records"
            )
        if self.classes is not None:
            raise ValueError("target=numeric has no classes: leave classes out")
        check_label_range(*self.range)


@schema
class EmbeddingsSettings(LabelledFileSettings):
    """Settings of vectors with labels, in one file or a folder of arrays.

    Attributes (the others: ``LabelledFileSettings``; a column may be the key of an npz):
        path: npz, parquet, csv or a folder of npy files, such as ``agt data prepare`` makes.
        x: the vectors: an npz key, a column of lists, or the prefix of numbered columns.
        is_test: column that marks test records; None: a hash split.
        center: the constant that is subtracted: an npz key, a number for each feature, or one
            number for all.
        scale: a public factor.
        unit_norm: whether every vector is scaled to length ``scale``; a vector equal to the center
            stays zero.
        public_scaling: whether the user declares ``center`` public (not computed from training
            records).
        public_digest: the digest of the test records and the center, which are public. Others are
            refused, because the declarations of this configuration are about these. None: any are
            accepted.
        obtain: the command that makes the data, for the message if they are missing.
    """

    SPLIT: ClassVar[str] = "is_test"

    label: str = "label"
    x: str = "x"
    is_test: str | None = None
    center: str | float | tuple[float, ...] | None = None
    scale: Positive = 1.0
    unit_norm: bool = False
    public_scaling: bool = False
    public_digest: str | None = None
    obtain: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.x == self.label:
            raise ValueError(
                f"dataset.label and dataset.x both name column {self.label}: name two "
                "different columns"
            )


@schema
class CsvSettings:
    """The format of a text file: its cells, and the numbers in columns without a format.

    Attributes:
        separator: the one character between cells.
        encoding: Python's name of the text encoding; utf-8 may begin with a byte order mark.
        header: whether the first line names the columns; otherwise they are column1, column2, ...
        decimal: the decimal separator; if it is a comma, points may separate thousands.
    """

    separator: str = ","
    encoding: str = "utf-8"
    header: bool = True
    decimal: Literal[".", ","] = "."

    def __post_init__(self) -> None:
        """Raise ValueError if the separator or the encoding cannot be used."""
        if len(self.separator) != 1 or self.separator in '"\r\n':
            raise ValueError(
                f"separator={self.separator!r}: give one character that is not a quotation "
                "mark or a line end"
            )
        try:
            if not "a\nb".encode(self.encoding).startswith("a\n".encode(self.encoding)):
                raise LookupError  # what comes later changes what came before, as in punycode
        except (LookupError, UnicodeError):  # also of codecs from bytes to bytes, such as zlib
            raise ValueError(
                f"encoding={self.encoding}: this text encoding does not exist: use utf-8, "
                "latin-1, cp1252 or utf-16"
            ) from None


@schema
class MeasurementNote:
    """The constants of a table that ``agt measure`` released.

    Attributes:
        of: the columns whose range or list it released; and the words classes and size, if it
            released these.
        claim: its guarantee, as a sentence.
    """

    of: Annotated[tuple[str, ...], Field(min_length=1)]
    claim: Annotated[str, Field(min_length=1)]


@schema
class ColumnsSettings:
    """Settings of the columns of a table: its features, and the public constants that code them.

    Attributes:
        numeric: column -> public [low, high]; or more numbers, the public edges of bins in
            increasing order, of which the first and the last are the range (of a column of dates:
            dates). A number may be text, written as the column's numbers are.
        categorical: column -> public list of values.
        bins: how many equal parts a range is cut into for its thermometer code; 0: the number is
            scaled to [-1, 1] instead.
        crosses: the number of buckets that pairs of columns' values are hashed into; 0: pairs are
            not crossed.
        missing: "error" refuses a missing value; "indicator" makes it 0, and adds a 0/1 feature to
            each column.
        missing_values: text that stands for a missing value in columns of features, in addition to
            an empty cell, NA and the like.
        from_data: columns whose range or list of values was read off the records and not declared
            public; the word classes stands for the list of classes. The owner replaces these
            constants by public ones, or declares them public by removing them from this list.
        proposed_from_rows: columns (and the word classes) whose range or list is the one that agt
            proposed from the records; and the word declared_size, if agt computed this size from
            their number. If the owner has removed one from ``from_data``, and so declared it
            public, claims mention the proposal.
        measurement: the constants that were measured with noise (``agt measure``); None: none was.
        formats: numeric column, or label that is a number -> how it is written
            (``agt.data.formats``, which checks it).
    """

    SETTING: ClassVar[str] = "columns"
    """What messages call it."""

    _read_ranges = changing_settings(read_written_ranges)

    numeric: Mapping[ColumnName, Annotated[Limits, Field(min_length=2)] | None] = Field(
        default_factory=dict
    )
    categorical: Mapping[ColumnName, Annotated[tuple[LabelWord, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    bins: Annotated[int, Field(ge=0, le=1024)] = 20
    crosses: Annotated[int, Field(ge=0, le=MAX_FEATURES)] = 0
    missing: Literal["error", "indicator"] = "error"
    missing_values: tuple[LabelWord, ...] = ()
    formats: Mapping[ColumnName, Any] = Field(default_factory=dict)
    from_data: tuple[ColumnName, ...] = ()
    proposed_from_rows: tuple[ColumnName, ...] = ()
    measurement: MeasurementNote | None = None

    def __post_init__(self) -> None:
        self._check_columns()
        if self.crosses and len(self.numeric) + len(self.categorical) < 2:
            raise ValueError(
                "'crosses' (features made from two columns) needs two columns, but there is "
                "only one: set crosses=0"
            )

    def _check_columns(self) -> None:
        """Raise ValueError if columns, ranges, lists or formats contradict one another."""
        inputs = {*self.numeric, *self.categorical}
        if not inputs:
            raise ValueError(
                "no column is listed under 'numeric' or 'categorical', but a model needs "
                "features: list at least one column"
            )
        for column, limits in self.numeric.items():
            if limits is not None:
                check_edges(f"numeric.{column}", limits)
        for column, values in self.categorical.items():
            self._check_list(column, values)
        in_both = self.numeric.keys() & self.categorical.keys()
        if in_both:
            raise ValueError(
                f"column {min(in_both)} is listed under "
                "both numeric and categorical: remove it from one of them"
            )
        for name in self.formats:
            if name not in self._columns_of_numbers:
                raise ValueError(
                    f"'formats' names '{name}', which is not a column under "
                    f"'numeric'{nearest(name, [*self._columns_of_numbers])}"
                )
        self._check_listed("from_data", self.from_data)
        constants = [name for name in self.proposed_from_rows if name != DECLARED_SIZE]
        self._check_listed("proposed_from_rows", constants)

    def _check_list(self, column: str, values: tuple[LabelWord, ...]) -> None:
        """Raise ValueError if the list of a column has a value twice, or one that means missing."""
        listed = {str(value) for value in values}
        if len(listed) < len(values):
            raise ValueError(f"categorical.{column} lists a value twice: remove one of the two")
        listed_as_missing = listed & {*self._markers}
        if listed_as_missing:
            raise ValueError(
                f"categorical.{column} lists {min(listed_as_missing)!r} as a value, but "
                "missing_values lists it as a missing value: remove it from one of the two "
                "lists"
            )

    def _check_listed(self, setting: str, names: Iterable[str]) -> None:
        """Raise ValueError unless each name in a list is that of a feature, or ``CLASSES``."""
        known = [*self.numeric, *self.categorical, CLASSES]
        for name in names:
            if name not in known:
                hint = nearest(name, known)
                raise ValueError(
                    f"'{setting}' lists '{name}', which is neither a column under 'numeric' or "
                    f"'categorical' nor '{CLASSES}'{hint}"
                )

    @property
    def _columns_of_numbers(self) -> tuple[str, ...]:
        """The columns whose cells are read as numbers."""
        return tuple(self.numeric)

    @property
    def _markers(self) -> tuple[str, ...]:
        """The texts that mean a missing value, in addition to an empty cell, NA and the like."""
        return tuple(map(str, self.missing_values))


@schema
class TableSettings(ColumnsSettings, LabelledFileSettings):
    """Settings of a table: its columns, and the file.

    Attributes (the others: ``LabelledFileSettings``, and ``ColumnsSettings``, where null for a
            numeric column takes the range of the training records, which is not public):
        path: csv, parquet or npz.
        split: column with train or test for each record; None: a hash split, unless ``test`` is
            given.
        test: a second file with the test records.
        missing_label: refuse a row without a label, or leave it out, as if the file did not have
            it. A label is missing where a feature would be.
        csv: how a csv is cut into cells, of queries, too.
        record_axes: the number of axes of a record, a list of features.
    """

    SETTING: ClassVar[str] = "dataset"
    SPLIT: ClassVar[str] = "split"
    record_axes: ClassVar[int] = 1

    split: ColumnName | None = None
    test: Path | None = None
    missing_label: Literal["error", "drop"] = "error"
    bins: Annotated[int, Field(ge=0, le=1024)] = 0
    csv: CsvSettings = Field(default_factory=CsvSettings)

    @property
    def _columns_of_numbers(self) -> tuple[str, ...]:
        """The numeric features, and a label that is a number."""
        features = super()._columns_of_numbers
        return (*features, self.label) if self.target == "numeric" else features

    def __post_init__(self) -> None:
        """Raise ValueError if a column has two uses, or two settings split the records."""
        LabelledFileSettings.__post_init__(self)
        ColumnsSettings.__post_init__(self)
        used_twice = {*self.numeric, *self.categorical} & {
            self.label,
            self.id,
            self.unit,
            self.public,
            self.split,
        }
        if used_twice:
            raise ValueError(
                f"column {min(map(str, used_twice))} cannot be a feature, because another setting "
                "already uses it (as label, id, unit, public or split): remove it from one of the "
                "two settings"
            )
        if self.split is not None and self.test is not None:
            raise ValueError(
                "dataset.split and dataset.test cannot be given together: give either "
                "dataset.split (a column that marks the test records) or dataset.test (a file of "
                "test records)"
            )
        if self.test == self.path:
            raise ValueError(
                "dataset.test names the file of the training records: name another file, or "
                "leave dataset.test out"
            )
