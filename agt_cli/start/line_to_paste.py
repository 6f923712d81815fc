"""The line that answers every open question of ``agt start``, for where nobody can be asked."""

from agt.errors import ConfigError
from agt_cli.report.console import Console
from agt_cli.runs.inspection import Inspection
from agt_cli.runs.label_column import MIN_QUANTITY_NUMBERS
from agt_cli.start.questions import Question, questions
from agt_cli.start.settings import Answered, StartSettings

_NEEDS_A_DECISION = {"public": "YES_OR_NO"}
"""A setting whose default is not proposed -> the word in place of its answer.

With public=no, no private answer can follow, whatever is said of the purpose.
"""


class OpenQuestions(ConfigError):
    """Questions are to be answered before the command can go on; it is no mistake of the user."""

    heading = "questions to answer"


def check_answered(answered: Answered, console: Console) -> None:
    """Raise OpenQuestions if a question is open, because there is no terminal to ask it on.

    The open questions are printed first. The message ends with one command line that answers all
    of them, and those that follow from the default answers of others. In this line, an answer
    without a default is a word in capital letters.

    Args:
        answered: the answers so far.
        console: takes the questions.
    """
    shown = answered
    placeholders: dict[str, str] = {}
    while open_keys := [key for key in shown.open_keys if key not in placeholders]:
        key = open_keys[0]
        question = questions(shown.inspection, shown.settings.id_permanent is True)[key]
        _print_question(key, question, console)
        if question.default and key not in _NEEDS_A_DECISION:
            shown = shown.with_answer(key, question.default)
        else:
            placeholders[key] = _NEEDS_A_DECISION.get(key, question.answers)
    if shown is answered and not placeholders:
        return
    for key in ("drop", "codes"):
        if key in shown.settings.open_questions(shown.inspection):
            question = questions(shown.inspection)[key]
            _print_question(key, question, console)
            shown = shown.with_answer(key, question.default)
    if "label" in placeholders:
        placeholders |= _explain_settings_of_other_labels(shown.inspection, console)
    if "id" in placeholders:
        placeholders |= _explain_settings_of_people(shown.settings, shown.inspection, console)
    line = shown.settings.line(shown.inspection.path, placeholders)
    if shown.settings.force:
        line += " force=true"
    raise OpenQuestions(
        "this terminal is not interactive, so answer on the command line (or in a file, "
        f"answers=FILE.yaml, with a line for each). Check each answer of this line: {line}"
    )


def _explain_settings_of_other_labels(inspection: Inspection, console: Console) -> dict[str, str]:
    """Print what the settings are for that only another label than the proposed one needs.

    Returns:
        Such a setting -> the word in place of its answer.
    """
    columns = inspection.columns
    if any(
        column.low is not None and column.distinct >= MIN_QUANTITY_NUMBERS for column in columns
    ):
        console.warn("target: a label that is a quantity needs target=numeric range=[LOW,HIGH].")
    if not any(column.missing for column in columns):
        return {}
    console.warn("missing_label: drop leaves out every row without a label.")
    return {"missing_label": "drop"}


def _explain_settings_of_people(
    settings: StartSettings, inspection: Inspection, console: Console
) -> dict[str, str]:
    """Print what ``unit_rows`` is for, which only a column of repeating ids needs.

    Returns:
        A setting that such a column needs -> the word in place of its answer.
    """
    if settings.unit_rows is not None:
        return {}
    counts = [f"{column.most_rows:,} by '{column.name}'" for column in inspection.possible_people]
    console.warn(
        "unit_rows: a public limit on the rows of one person, no smaller than the most here "
        f"({', '.join(counts)}), because nothing is cut. Leave it out for id=none."
    )
    is_doubtful = any(column.resembles_row_numbers for column in inspection.possible_people)
    if not is_doubtful or settings.id_permanent is not None or settings.purpose == "certificates":
        return {"unit_rows": "NUMBER"}
    return {"unit_rows": "NUMBER", "id_permanent": "ANSWER"}


def _print_question(key: str, question: Question, console: Console) -> None:
    """Print a question, line by line."""
    first, *others = question.text.splitlines()
    console.warn(f"{key}: {first}")
    for line in others:
        console.warn(line)
