"""The line that answers every open question of ``agt start``, for where nobody can be asked."""

from agt.errors import ConfigError
from agt_cli.report.console import Console
from agt_cli.start.questions import Question, questions
from agt_cli.start.settings import Answered

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
    without a default is a word in capital letters. Questions that follow from such an answer are
    asked when the line is typed.

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
    line = shown.settings.line(shown.inspection.path, placeholders)
    if shown.settings.force:
        line += " force=true"
    raise OpenQuestions(
        "this terminal is not interactive, so answer on the command line (or in a file, "
        f"answers=FILE.yaml, with a line for each). Check each answer of this line: {line}"
    )


def _print_question(key: str, question: Question, console: Console) -> None:
    """Print a question, line by line."""
    first, *others = question.text.splitlines()
    console.warn(f"{key}: {first}")
    for line in others:
        console.warn(line)
