"""Settings with which a table is inspected, for ``agt data inspect`` and ``agt start``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from agt.data.formats import DeclaredFormat
from agt.data.settings import ColumnName, LabelWord
from agt.settings import schema
from agt.store.locations import locate
from agt_cli.runs.column import MAX_LISTED_VALUES, MOST_VALUES_LIMIT, ColumnOptions
from agt_cli.runs.inspect import inspect_table
from agt_cli.runs.inspection import Inspection
from agt_cli.table_settings import TableFile

RANGE_IS_PUBLIC = (
    "LOW and HIGH must be limits that you know without looking at the records, such as 0 and 120 "
    "for ages; noise grows with HIGH - LOW"
)


@schema
class InspectSettings(TableFile):
    """What ``agt data inspect`` takes (conf/data.yaml says what each is)."""

    missing_values: tuple[LabelWord, ...] = ()
    most_values: Annotated[int, Field(ge=1, le=MOST_VALUES_LIMIT)] = MAX_LISTED_VALUES
    formats: Mapping[ColumnName, DeclaredFormat] = Field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where the table is. Raises DataMissing if it is not there."""
        return locate(self.file, self.data_dir, "the file or data_dir")

    def inspect(self) -> Inspection:
        """Look at the file. Raises DataMissing or DataError (agt_cli.runs.inspect)."""
        options = ColumnOptions(
            missing_values=tuple(map(str, self.missing_values)),
            most_values=self.most_values,
            formats=self.formats,
            ranges=self.limits,
            lists={column: tuple(map(str, words)) for column, words in self.lists.items()},
            codes=self.codes or (),
        )
        given = {"separator": self.separator, "encoding": self.encoding}
        return inspect_table(
            self.path,
            label=self.label,
            id=self.id,
            header=self.header,
            form={key: value for key, value in given.items() if value is not None},
            target=self.target,
            label_range=self.range,
            drop=self.drop or (),
            missing_label=self.missing_label or "error",
            options=options,
        )
