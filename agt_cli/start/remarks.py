"""What the owner of a table should look at before trusting the result of ``agt start``."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from agt.data.dataset import Dataset
from agt.errors import counted, few
from agt_cli.runs.dataset_file import COUNTS_ROWS, MIXED
from agt_cli.runs.inspect import Inspection
from agt_cli.runs.prepare import size_question
from agt_cli.start.settings import StartSettings

DECLARED_AT_START = "To say so to agt start, give id_permanent=true force=true."
SHOWN = 20  # columns of each group, in a question


def left_out_remarks(inspection: Inspection, id_permanent: bool) -> Iterator[str]:
    # Columns that some cell kept from being used, or from being numbers; and ids that may be row
    # numbers, unless somebody declared that they are permanent.
    unread = [column for column in inspection.left_out if column.kind in ("unreadable", "date")]
    named = inspection.possible_people
    unlisted = ", ".join(
        f"'{column.name}' ({column.distinct:,})"
        for column in inspection.left_out
        if column.kind == "text" and column.name not in named
    )
    names = inspection.names
    doubtful = [column for column in inspection.features if column.categorical and column.remark]
    yield from (
        f"Column '{column.name}' is LEFT OUT, because {column.remark}." for column in unread
    )
    yield from (f"'{column.name}': {MIXED}." for column in names if column.mixed)
    if not id_permanent:
        yield from (
            f"'{column.name}': {COUNTS_ROWS}. {DECLARED_AT_START}"
            for column in names
            if column.counts_rows
        )
    if unlisted:
        yield (
            "These columns are LEFT OUT, because they have too many different values, or values "
            f"that are too rare (number of different values in brackets): {unlisted}. To take a "
            "column in, list its values under categorical in the dataset file."
        )
    yield from (
        f"Column '{column.name}' is treated as a list of words, because {column.remark}."
        for column in doubtful
    )


def outside_constants_remark(settings: StartSettings, inspection: Inspection) -> str:
    """Return how many values are in no list, and how many numbers outside of a proposed range.

    It is empty where every value is inside of what is proposed.
    """
    rare = [word for column in inspection.features for word in column.unlisted]
    outside = sum(column.outside for column in inspection.features)
    parts = []
    if rare:
        values = counted(len(rare), "rare value")
        rows = counted(sum(count for _, count in rare), "cell")
        parts.append(f'{values} ({rows}), counted as "other"')
    if outside:
        parts.append(f"{counted(outside, 'number')}, counted as the nearest end of the range")
    if not parts:
        return ""
    return (
        f"Outside of the proposed lists and ranges: {'; and '.join(parts)}. The comments in "
        f"{settings.dataset_file} say in which columns."
    )


def size_remark(settings: StartSettings, dataset: Dataset) -> str:
    """Return what to ask the owner about the number of training rows that was given; else empty."""
    question = None if settings.size is None else size_question(dataset)
    return f"{question}." if question else ""


def leak_remark(settings: StartSettings, inspection: Inspection) -> str:
    """Return which features may be known only after the label, and the command that leaves them
    out; empty: none may.
    """
    telling = inspection.label_predictors
    if not telling:
        return ""
    dropped = (*(settings.drop or ()), *telling)
    command = replace(settings, drop=dropped).line(inspection.path)
    return (
        f"{each_tells(telling)}. If such a value is known only after the label, do not believe "
        f"the accuracy, and leave the column out: {command} force=true"
    )


def each_tells(names: Sequence[str]) -> str:
    """Return that each of some columns predicts nearly every label by itself."""
    quoted_names = few(map(repr, names), SHOWN)
    if len(names) == 1:
        return f"Column {quoted_names} alone predicts nearly every label"
    return f"Each of the columns {quoted_names} alone predicts nearly every label"


def declared_sentence(settings: StartSettings) -> str:
    groups = ", ".join(settings.private_groups)
    file = settings.dataset_file
    if not groups:
        return f"{file} lists what you declared public: read it before any release."
    return (
        "This run cannot give private answers, because these parts of the table were not "
        f"declared public: {groups}. Write public values into {file} and train again."
    )
