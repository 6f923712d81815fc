"""The public constants of a dataset file that ``agt start`` proposes from the rows."""

from collections.abc import Sequence

from agt.data.settings import CLASSES
from agt.errors import counted, few
from agt_cli.report.start_md import ProposedConstant, ProposedConstants
from agt_cli.runs.column import Column
from agt_cli.runs.inspection import Inspection
from agt_cli.start.settings import StartSettings


def proposed_constants(settings: StartSettings, inspection: Inspection) -> ProposedConstants:
    """Return which public constants of a dataset file are as agt proposed them from the rows."""
    private = settings.private_groups(inspection)
    proposed = []
    for column in inspection.features:
        if column.public or group_of(column) in private:
            continue
        words = range_words(column) if column.numeric else _list_words(column.categorical)
        is_date = column.kind == "date" and bool(column.numeric)
        proposed.append(ProposedConstant(column.name, words, is_date))
    if inspection.classes and "classes" not in private:
        proposed.append(ProposedConstant(CLASSES, _list_words(inspection.classes)))
    return ProposedConstants(
        settings.dataset_file,
        tuple(proposed),
        len(inspection.features),
        settings.proposed_size(inspection),
        settings.declared_size(inspection),
    )


def _list_words(values: Sequence[str]) -> str:
    """Return the number of values of a list and the first of them, as text."""
    return f"{counted(len(values), 'value')} ({few(values, 4)})"


def range_words(column: Column) -> str:
    """Return the proposed range of a column of numbers or dates, as text."""
    low = column.bound(column.numeric[0])
    high = column.bound(column.numeric[-1])
    return f"{low} to {high}"


def group_of(column: Column) -> str:
    """Return the group of public values that a feature's constants belong to."""
    return "ranges" if column.numeric else "lists"
