"""By which columns a run's data name records and people, and whether two runs share these names.

A run can be searched for a name only if the name means the same there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agt_cli.command_settings.unlearn import By
from agt_cli.report.finished import Run

NOT_IN_CONTENT_IDS = (
    "name",
    "unit_rows",
    "id_permanent",
    "test_fraction",
    "split_key",
    "declared_size",
    "subgroups",
    "settled",
)
"""Settings of agt's own data files that change no id that is a hash of a record's content."""
FILE_SETTINGS = ("path", "data_dir")
"""Settings of a table that change no such id either, because a table lists its columns."""


@dataclass(frozen=True)
class NameColumns:
    """How a run's data name records and people.

    Attributes:
        id, unit: the columns; None: records are named by a hash of their content, or by the dataset
            itself, and each is its own unit.
        content: what decides how a record is named without ``id``: ids are then hashes of the
            label, the unit and the columns that a data set reads, or its own class makes them.
        table: the name of the run's data.
        files: the sha256 of the data's files.
    """

    id: str | None = None
    unit: str | None = None
    content: str = ""
    table: str = ""
    files: frozenset[str] = frozenset()

    @classmethod
    def of(cls, run: Run) -> "NameColumns":
        """Return those that a run's settings name.

        Args:
            run: a run of which nothing was verified. If its settings name no dataset, its records
                count as named by their content.
        """
        dataset = run.config.get("dataset")
        if not isinstance(dataset, Mapping):
            dataset = {}
        files = _file_digests(run)
        return cls(
            id=dataset.get("id"),
            unit=dataset.get("unit"),
            content=_content_of_names(dataset, files),
            table=str(run.environment.get("dataset")),
            files=frozenset(files),
        )

    @property
    def settings(self) -> str:
        """The settings of a training whose records have the same names; empty: by content."""
        columns = {"dataset.id": self.id, "dataset.unit": self.unit}
        return " ".join(f"{name}={column}" for name, column in columns.items() if column)

    def is_of_another_table(self, other: "NameColumns") -> bool:
        """Return whether another run's data have another name, and no file of this run's data."""
        return self.table != other.table and not self.files & other.files

    def shares(self, by: By, other: "NameColumns") -> bool:
        """Return whether a name of a record, or of a unit, means the same in another run.

        Without a column of units, each record is its own unit, so units are named as records.

        Args:
            by: what is named: a record ("id") or a unit.
            other: how the other run's data name records and people.
        """
        column = self.id
        if by == "unit" and self.unit is not None:
            column = self.unit
        if column is None:
            return other.id is None and self.content == other.content
        return column in (other.id, other.unit)


def _content_of_names(dataset: Mapping[str, Any], files: list[str]) -> str:
    """Return what decides the ids of records where no column does, as JSON.

    A table lists the columns that it reads, in their order. Vectors are whatever their file has, so
    the file must be the same. Of a class that has no setting ``id`` nobody knows which settings
    decide, so all count.

    Args:
        dataset: the settings of the dataset.
        files: the sha256 of its files.
    """
    ignored: tuple[str, ...] = ()
    if "id" in dataset:
        ignored = NOT_IN_CONTENT_IDS
    if "numeric" in dataset:
        ignored += FILE_SETTINGS
        files = []
    settings = {name: value for name, value in dataset.items() if name not in ignored}
    return json.dumps([settings, files], default=str)


def _file_digests(run: Run) -> list[str]:
    """Return the sorted sha256 of the files of a run's data; nothing of the run was verified."""
    files = run.environment.get("data_files")
    entries = files.values() if isinstance(files, Mapping) else ()
    return sorted(
        str(entry["sha256"])
        for entry in entries
        if isinstance(entry, Mapping) and "sha256" in entry
    )
