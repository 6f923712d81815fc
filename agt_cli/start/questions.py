"""What ``agt start`` asks: each question, its possible answers, and what an empty answer means."""

from collections.abc import Sequence

from agt.errors import few
from agt_cli.process import visible
from agt_cli.runs.inspect import Inspection
from agt_cli.runs.inspect_settings import RANGE_IS_PUBLIC
from agt_cli.runs.ranges import number
from agt_cli.start.constants import range_words
from agt_cli.start.remarks import SHOWN, each_tells, left_out_remarks
from agt_cli.start.settings import NONE


def questions(
    inspection: Inspection, id_permanent: bool = False, size: int | None = None
) -> dict[str, tuple[str, str, str]]:
    """Key -> what is asked, what may be answered, and what an empty answer means; nothing is
    claimed by one.

    Args:
        id_permanent: whether ids that look like row numbers were declared to be permanent.
        size: the number of training rows that the owner gave; None: it is computed.
    """
    likely = inspection.label or next(iter(inspection.labels), "")
    table = inspection.path
    rows = inspection.rows
    label = f"{table}: {rows:,} rows. Which column should be predicted?"
    parts = _grouped(inspection, size or inspection.rounded_training_rows)
    groups = "".join(f"\n  {name}: {what}" for name, what in parts.items())
    groups += "".join(f"\n  {line}" for line in left_out_remarks(inspection, id_permanent))
    again = "".join(f" ('{name}' repeats)" for name in inspection.possible_people)
    again += "".join(
        f" (perhaps '{column.name}')" for column in inspection.columns if column.possible_id
    )
    most = max(
        (column.most_rows for column in inspection.columns if column.name == inspection.unit),
        default=0,
    )
    public = (
        "Which of these values from your file (ranges are rounded, and lists have only what "
        "occurs) are public, that is, would be the same with other people in the table? A limit "
        "of 120 for ages is public; the largest income in the file is not."
        f"{groups} Answer yes (all of them, and the choice of columns, are public), no (none "
        "is), or the names of those that are, such as "
        f"ranges,{list(parts)[-2]}"
    )
    unit = inspection.unit
    return {
        "label": (label, f"COLUMN ({likely or NONE}?)", likely),
        **_questions_about_numbers(inspection),
        "drop": (
            f"{each_tells(inspection.label_predictors)}. Which columns are known only after the "
            "label, so must be left out? Answer names, or none",
            "[COLUMN,...]",
            NONE,
        ),
        "id": (
            "Which column names each person permanently, even if other people join or "
            f"leave{again}? Answer with its name, or none",
            "COLUMN or none",
            NONE,
        ),
        "id_permanent": (
            f"{looks_like_row_numbers(inspection)}. If the number of a row changes when somebody "
            "joins or leaves, no private answer can be given. Does each person keep this id "
            "whoever joins or leaves? Answer true or false",
            "true or false",
            "false",
        ),
        "unit_rows": (
            f"By column '{unit}', one person has up to {most} rows here. How many rows may one "
            "person have at most? Answer a public limit, which training enforces",
            "NUMBER",
            "",
        ),
        "public": (public, f"yes, no or some of [{','.join(parts)}]", "no"),
        "purpose": (
            "What do you need? Answer certificates (on how many people an answer depends; "
            "not to be published), answers (private answers to publish), or both",
            "certificates, answers or both",
            "both",
        ),
        "eps": (
            "How much privacy budget (eps) may everything that you publish spend in total? "
            "0.1 is strict, 1 usual, 10 weak",
            "NUMBER",
            "1",
        ),
    }


def looks_like_row_numbers(inspection: Inspection) -> str:
    """Return which column of ids looks like row numbers, in a clause; any, if none was named."""
    names = inspection.row_number_ids
    return (
        f"The ids in '{names[0]}' look like row numbers"
        if names
        else "The ids look like row numbers"
    )


def _questions_about_numbers(inspection: Inspection) -> dict[str, tuple[str, str, str]]:
    """Return what is asked about a label of numbers, as ``questions`` does.

    The ends that were seen are shown as what they are, private values; none is proposed.
    """
    column = inspection.label_column
    name = "" if column is None else column.name
    seen = ""
    if column is not None and column.low is not None and column.high is not None:
        ends = f"from {number(column.low)} to {number(column.high)}"
        seen = f" ({column.distinct:,} different values {ends}, which are private)"
    return {
        "target": (
            f"What is '{name}'{seen}? Answer numeric (a quantity, such as an age or an amount, "
            "which is predicted as a number) or classes (each number is a class)",
            "numeric (with range=[LOW,HIGH]) or classes",
            "numeric" if inspection.needs_target else "classes",
        ),
        "range": (
            f"Which public range do the numbers in '{name}' have{seen}? {RANGE_IS_PUBLIC}; numbers "
            "outside are clipped. Answer LOW,HIGH",
            "[LOW,HIGH]",
            "",
        ),
    }


def _grouped(inspection: Inspection, size: int) -> dict[str, str]:
    # What each group of ``public`` holds, in words; ``size`` is the number of training rows.
    ranges = [
        f"{column.name} from {range_words(column)}"
        for column in inspection.features
        if column.numeric
    ]
    lists = [f"{c.name} ({few(c.categorical)})" for c in inspection.features if c.categorical]
    some: dict[str, Sequence[str]] = {"ranges": ranges, "lists": lists}
    if inspection.numbers is None:
        some["classes"] = inspection.classes
    return {
        **{name: few(map(visible, words), SHOWN, "; ") or NONE for name, words in some.items()},
        "size": f"about {size:,} rows for training",
    }
