"""Asks the open questions of ``agt start`` at the terminal, or says what to give without one."""

import sys

from agt.errors import AgtError, ConfigError
from agt.settings import validate
from agt_cli.report.console import Console
from agt_cli.runs.doubts import Doubt
from agt_cli.runs.inspect import Inspection
from agt_cli.start.dataset_file import check_may_be_asked, with_own_name
from agt_cli.start.questions import Question, questions
from agt_cli.start.settings import AT_A_TERMINAL, Answered, StartSettings

_CHANGES_INSPECTION = ("label", "missing_label", "target", "range", "drop", "id", "unit_rows")
"""The answers after which the table is looked at again."""


def ask(settings: StartSettings, console: Console) -> Answered:
    """Return the settings with every question answered.

    Raises:
        ConfigError: there is no terminal, and a question is open; or the dataset file must not be
            replaced by answers.
    """
    settings = with_own_name(settings, console)
    inspection = settings.inspect()
    said = _say_doubts(inspection, settings, (), console)
    if _open_without_terminal(settings, inspection):
        check_may_be_asked(settings, inspection)
    if console.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _check_answered(settings, inspection, console)
        return Answered(settings, inspection)
    asked = set()
    while unanswered := settings.open_questions(inspection):
        key = unanswered[0]
        question = questions(inspection, settings.id_permanent is True)[key]
        try:
            answered = _answered(settings, key, console.ask(question.text, question.default))
            if key in _CHANGES_INSPECTION:
                answered = with_own_name(answered, console)
                inspection = answered.inspect()
                said = _say_doubts(inspection, answered, said, console)
            settings = answered
            asked.add(key)
        except AgtError as error:
            console.warn(str(error))
    return Answered(settings, inspection, frozenset(asked))


def _answered(settings: StartSettings, key: str, answer: str) -> StartSettings:
    """Return the settings with one more answer.

    Raises:
        ConfigError: it is empty, or no possible answer.
    """
    if not answer.strip():
        raise ConfigError(f"{key} has no default, so please answer")
    given = {name: getattr(settings, name) for name in StartSettings.__dataclass_fields__}
    answered: StartSettings = validate(StartSettings, {**given, key: answer}, "")
    return answered


def _check_answered(settings: StartSettings, inspection: Inspection, console: Console) -> None:
    """Raise ConfigError where a question is open that nobody can be asked.

    Its message ends with one line that answers all questions, those included that follow from the
    defaults of others. What has no default is in capital letters there.
    """
    placeholders: list[str] = []
    shown = settings
    while True:
        named = {placeholder.partition("=")[0] for placeholder in placeholders}
        open_keys = [key for key in _open_without_terminal(shown, inspection) if key not in named]
        if not open_keys:
            break
        key = open_keys[0]
        question = questions(inspection, shown.id_permanent is True)[key]
        _say_question(key, question, console)
        if not question.default:
            placeholders.append(f"{key}={question.answers}")
            continue
        shown = _answered(shown, key, question.default)
        if key in _CHANGES_INSPECTION:
            inspection = shown.inspect()
    if shown == settings and not placeholders:
        return
    if "id=COLUMN" in placeholders:
        placeholders += _placeholders_after_id(shown, inspection, console)
    line = " ".join([shown.line(inspection.path), *placeholders])
    raise ConfigError(
        "this terminal is not interactive, so answer on the command line (or in a file, "
        f"answers=FILE.yaml, with a line for each). Check each answer of this line: {line}"
    )


def _placeholders_after_id(
    settings: StartSettings, inspection: Inspection, console: Console
) -> list[str]:
    """Return placeholders for what is asked about a column of ids that repeat; say what they are
    for.
    """
    if settings.unit_rows is not None:
        return []
    console.warn("unit_rows: a public limit on the rows of one person; leave it out for id=none.")
    doubtful = [column.name for column in inspection.possible_people if column.counts_rows]
    if not doubtful or settings.id_permanent is not None or settings.purpose == "certificates":
        return ["unit_rows=NUMBER"]
    console.warn(
        f"id_permanent: true if each person keeps this id whoever joins or leaves, asked because "
        f"the ids in '{doubtful[0]}' look like row numbers; otherwise false."
    )
    return ["unit_rows=NUMBER", "id_permanent=ANSWER"]


def _open_without_terminal(settings: StartSettings, inspection: Inspection) -> list[str]:
    """Return the questions that are open where nobody can be asked."""
    return [key for key in settings.open_questions(inspection) if key not in AT_A_TERMINAL]


def _say_question(key: str, question: Question, console: Console) -> None:
    """Say a question that nobody can answer now, line by line."""
    first, *others = question.text.splitlines()
    console.warn(f"{key}: {first}")
    for line in others:
        console.warn(line)


def _say_doubts(
    inspection: Inspection, settings: StartSettings, said: tuple[Doubt, ...], console: Console
) -> tuple[Doubt, ...]:
    """Say what may be a mistake in the file, each once; returns all that was said.

    Columns that are left out are among the remarks (``left_out_remarks``), and what labels are, or
    what becomes of rows without one, is asked. Where ranges were called public, nothing is said
    about where the range of dates ends.
    """
    elsewhere = ["number_as_classes", "left_out", "taken_as_words", "label_missing"]
    if "ranges" in (settings.public or ()):
        elsewhere.append("dates_may_go_on")
    new = tuple(
        doubt for doubt in inspection.doubts if doubt not in said and doubt.code not in elsewhere
    )
    for doubt in new:
        console.warn(doubt.sentence)
    return (*said, *new)
