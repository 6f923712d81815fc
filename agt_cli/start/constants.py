"""The public constants of a dataset file that ``agt start`` proposes from the rows."""

from collections.abc import Sequence

from agt.data.settings import CLASSES
from agt.errors import counted, few
from agt_cli.report.start_md import ProposedConstant, ProposedConstants
from agt_cli.runs.column import Column
from agt_cli.runs.inspection import Inspection
from agt_cli.start.settings import StartSettings

LATER_DATES = " (later dates are outside: write a later public end if new records will have them)"


def proposed_constants(settings: StartSettings, inspection: Inspection) -> ProposedConstants:
    """Return which public constants of a dataset file are as agt proposed them from the rows."""
    private = settings.private_groups(inspection)
    proposed = []
    for column in inspection.features:
        if column.public or group_of(column) in private:
            continue
        if column.numeric:
            words = range_words(column)
            remark = LATER_DATES if column.kind == "date" else ""
            proposed.append(ProposedConstant(column.name, words, remark))
        else:
            proposed.append(_list_constant(column.name, column.categorical))
    if inspection.classes and "classes" not in private:
        proposed.append(_list_constant(CLASSES, inspection.classes))
    return ProposedConstants(
        settings.dataset_file,
        tuple(proposed),
        len(inspection.features),
        settings.proposed_size(inspection),
        settings.declared_size(inspection),
    )


def _list_constant(name: str, values: Sequence[str]) -> ProposedConstant:
    """Return a list of values as a constant: their number, and the first of them."""
    number = counted(len(values), "value")
    return ProposedConstant(name, f"{number} ({few(values, 4)})")


def range_words(column: Column) -> str:
    """Return the proposed range of a column of numbers or dates, as text."""
    low = column.bound(column.numeric[0])
    high = column.bound(column.numeric[-1])
    return f"{low} to {high}"


def group_of(column: Column) -> str:
    """Return the group of public values that a feature's constants belong to."""
    return "ranges" if column.numeric else "lists"
