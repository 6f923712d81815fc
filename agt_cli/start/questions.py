"""What ``agt start`` asks: each question, its possible answers, and what an empty answer means."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agt.errors import counted, few
from agt_cli.process import visible
from agt_cli.runs.column import Column
from agt_cli.runs.dataset_file import repeated_rows
from agt_cli.runs.inspect_settings import RANGE_IS_PUBLIC
from agt_cli.runs.inspection import Inspection
from agt_cli.runs.ranges import number
from agt_cli.start.constants import range_words
from agt_cli.start.remarks import SHOWN, left_out_remarks, predictors_sentence, unused_remarks
from agt_cli.start.settings import NONE
from agt_cli.table_settings import TEST_SHARE

MAX_COLUMNS = 40
"""The largest number of columns that are described; as many more are only named."""
LINE_LETTERS = 76
"""The largest width of the line of a column."""
FEW_VALUES = 3
"""The largest number of values of a column that are listed."""


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        text: the text of the question.
        answers: the possible answers, as a word of a command line: ``yes`` or ``COLUMN``.
        default: the answer that an empty answer means; empty: there is no default, so it must be
            answered.
    """

    text: str
    answers: str
    default: str = ""


def questions(inspection: Inspection, id_permanent: bool = False) -> dict[str, Question]:
    """Return each question by the setting that answers it.

    Args:
        inspection: what the table holds.
        id_permanent: whether ids that look like row numbers were declared to be permanent.
    """
    return {
        "label": _label_question(inspection),
        "missing_label": _missing_label_question(inspection),
        **_questions_about_numbers(inspection),
        "drop": Question(
            f"{predictors_sentence(inspection.label_predictors)}. Which to leave out, because by "
            "their meaning they are known only after the label (a choice by results breaks "
            "condition e)? Answer names, or none",
            "[COLUMN,...]",
            NONE,
        ),
        "codes": Question(
            "Which of these columns have codes without an order, such as numbers of regions: "
            f"{few(map(repr, inspection.possible_codes), SHOWN)}? Answer names, or none",
            "[COLUMN,...]",
            NONE,
        ),
        "id": _id_question(inspection),
        "id_permanent": Question(
            f"{looks_like_row_numbers(inspection)}. If the number of a row changes when somebody "
            "joins or leaves, no private answer can be given. Does each person keep this id "
            "whoever joins or leaves, and never pass it to another? Answer true or false",
            "ANSWER",
        ),
        "unit_rows": _unit_rows_question(inspection),
        "public": _public_question(inspection, id_permanent),
        "size": Question(
            "How many rows has the whole table? Answer a public number (published or round; "
            f"{TEST_SHARE:.0%} are for testing)",
            "NUMBER",
            str(inspection.rounded_rows),
        ),
        "purpose": Question(
            "What do you need? Answer certificates (on how many people an answer depends; "
            "not for publication), answers (private, to publish), or both",
            "certificates, answers or both",
            "both",
        ),
        "eps": Question(
            "What privacy budget (eps) may all publications together spend? 0.1 strict, 1 "
            "usual, 10 weak",
            "NUMBER",
            "1",
        ),
    }


def _label_question(inspection: Inspection) -> Question:
    """Return the question which column to predict, with a line for each column.

    Its default is the proposed label, if there is a reason to propose one.
    """
    lines = [f"{inspection.path}: {inspection.rows:,} rows. Columns:"]
    shown = inspection.columns[:MAX_COLUMNS]
    lines += [_column_line(column) for column in shown]
    hidden = [visible(column.name) for column in inspection.columns[MAX_COLUMNS:]]
    if hidden:
        names = f"  and {counted(len(hidden), 'column')} more: {few(hidden, MAX_COLUMNS)}"
        lines += textwrap.wrap(names, LINE_LETTERS, subsequent_indent="    ")
    question = "Which one should be predicted?"
    if inspection.label_reason:
        question += f" '{inspection.label}' is proposed, because {inspection.label_reason}"
    lines.append(question)
    default = (inspection.label or "") if inspection.label_reason else ""
    return Question("\n".join(lines), "COLUMN", default)


def _column_line(column: Column) -> str:
    """Return a column's name and what it holds, in a line of ``LINE_LETTERS`` at most."""
    parts = list(_column_words(column))
    line = f"  {visible(column.name)}: {visible(', '.join(parts))}"
    if len(line) <= LINE_LETTERS:
        return line
    return f"{line[: LINE_LETTERS - 3]}..."


def _column_words(column: Column) -> Iterator[str]:
    """Yield short descriptions of a column's values."""
    if column.kind == "dropped":
        yield "dropped"
    elif column.values and len(column.values) <= FEW_VALUES:
        yield few([value for value, _ in column.values], FEW_VALUES)
    elif column.low is not None and column.high is not None:
        yield f"{column.bound(column.low)} to {column.bound(column.high)}"
    else:
        yield counted(column.distinct, "value")
    if column.missing:
        yield f"{column.missing:,} missing"
    if column.may_be_row_numbers:
        yield "row numbers?"


def _missing_label_question(inspection: Inspection) -> Question:
    """Return the question whether to leave out rows without a label, with their number."""
    column = inspection.label_column
    missing = 0 if column is None else column.missing
    name = "" if column is None else column.name
    rows = [doubt.first_row for doubt in inspection.warnings if doubt.code == "label_missing"]
    first = f" (the first is {rows[0]})" if rows else ""
    return Question(
        f"'{name}' has no value in {missing:,} of {inspection.rows:,} rows{first}. Leave out every "
        "row without a label? Answer drop, or stop here (Ctrl-C) and fill them in",
        "drop",
        "drop",
    )


def _id_question(inspection: Inspection) -> Question:
    """Return the question which column names people.

    It has no default where a column looks as if it did and a person had several rows, because all
    claims rest on the answer.
    """
    answer = (
        "Its name declares: ids are never reused, nor changed when others leave; none: each row "
        "another person, whom no erasure request can name"
    )
    for column in inspection.possible_row_numbers:
        answer += (
            f". '{column.name}' looks like row numbers: naming it needs id_permanent=true, which "
            "declares that each person keeps the number whoever joins or leaves"
        )
    if inspection.repeated:
        answer += f". {repeated_rows(inspection)}"
    repeated = [
        f"'{column.name}' ({column.distinct:,} values, up to {column.most_rows:,} rows each)"
        for column in inspection.possible_people
    ]
    if repeated:
        return Question(
            f"Which column names each person permanently? Perhaps {few(repeated, 4)}. {answer}",
            "COLUMN",
        )
    possible = [
        f"'{column.name}'"
        for column in inspection.columns
        if column.possible_id or column.may_be_numeric_id
    ]
    perhaps = f" (perhaps {few(possible, 4)})" if possible else ""
    return Question(
        f"Which column names each person permanently{perhaps}? {answer}",
        "COLUMN or none",
        NONE,
    )


def _unit_rows_question(inspection: Inspection) -> Question:
    """Return the question for the public limit on the rows of one person."""
    unit = inspection.unit
    max_rows = 0
    few_values = ""
    for column in inspection.columns:
        if column.name == unit:
            max_rows = column.most_rows
            if inspection.rows >= 100 * column.distinct:
                few_values = (
                    f" (it has only {column.distinct:,} different values in {inspection.rows:,} "
                    "rows: does each name one person?)"
                )
    return Question(
        f"By column '{unit}', one person has up to {max_rows} rows here{few_values}. How many "
        "rows may one person have at most? Answer a public limit, no smaller (nothing is cut)",
        "NUMBER",
    )


def _public_question(inspection: Inspection, id_permanent: bool) -> Question:
    """Return the question which groups of values are public.

    Args:
        inspection: what the table holds.
        id_permanent: whether ids that look like row numbers were declared to be permanent.
    """
    parts = _grouped(inspection)
    example = f"ranges,{list(parts)[-2]}"  # two of the groups; size is the last one
    lines = [
        "What is public (the same with other people in the table)? A limit of 120 for ages is; "
        "the largest income is not. From your rows, rounded:",
        *(f"  {name}: {what}" for name, what in parts.items()),
        *(f"  {line}" for line in left_out_remarks(inspection, id_permanent)),
        *(f"  {line}" for line in unused_remarks(inspection)),
        "Answer yes (all, the choice of columns, and that each row was made from its own record "
        f"alone); or, without private answers for now, no or names, such as {example}",
    ]
    return Question("\n".join(lines), f"yes, no or some of [{','.join(parts)}]", "no")


def looks_like_row_numbers(inspection: Inspection) -> str:
    """Return a clause that the ids look like row numbers, with their column if there is one."""
    names = inspection.row_number_ids
    if not names:
        return "The ids look like row numbers"
    return f"The ids in '{names[0]}' look like row numbers"


def _questions_about_numbers(inspection: Inspection) -> dict[str, Question]:
    """Return the questions about labels that are numbers, by the setting that answers each.

    The smallest and the largest label are shown as private values, and are not proposed.
    """
    column = inspection.label_column
    name = "" if column is None else column.name
    values_note = ""
    if column is not None and column.low is not None and column.high is not None:
        ends = f"from {number(column.low)} to {number(column.high)}"
        values_note = f" ({column.distinct:,} different values {ends}, which are private)"
    return {
        "target": Question(
            f"What is '{name}'{values_note}? Answer numeric (a quantity, such as an age or an "
            "amount, which is predicted as a number) or classes (each number is a class)",
            "numeric (with range=[LOW,HIGH]) or classes",
            "numeric" if inspection.needs_target else "classes",
        ),
        "range": Question(
            f"Which public range do the numbers in '{name}' have{values_note}? {RANGE_IS_PUBLIC}; "
            "numbers outside are clipped. Answer LOW,HIGH",
            "[LOW,HIGH]",
        ),
    }


def _grouped(inspection: Inspection) -> dict[str, str]:
    """Return a description of each group of values that may be public, by the group's name.

    The groups are ranges, lists, classes (unless labels are numbers) and size, in this order.
    """
    ranges = [
        f"{column.name} {range_words(column)}" for column in inspection.features if column.numeric
    ]
    lists = [f"{c.name} ({few(c.categorical)})" for c in inspection.features if c.categorical]
    values: dict[str, Sequence[str]] = {"ranges": ranges, "lists": lists}
    if inspection.numbers is None:
        values["classes"] = inspection.classes or ["those of the label"]
    groups = {}
    for name, entries in values.items():
        groups[name] = few(map(visible, entries), SHOWN, "; ") or NONE
    return {**groups, "size": f"about {inspection.rounded_rows:,} rows in the whole table"}
