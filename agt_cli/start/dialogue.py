"""Asks the open questions of ``agt start`` at the terminal."""

import sys
from dataclasses import replace

from agt.errors import AgtError
from agt_cli.report.console import Console
from agt_cli.runs.doubts import DataWarning
from agt_cli.start.dataset_file import check_may_be_replaced, with_own_name
from agt_cli.start.line_to_paste import check_answered
from agt_cli.start.questions import questions
from agt_cli.start.settings import Answered, StartSettings


def ask(settings: StartSettings, console: Console) -> Answered:
    """Return the settings with every question answered.

    Raises:
        ConfigError: there is no terminal, and a question is open; or the dataset file must not be
            replaced by answers.
    """
    settings = with_own_name(settings, console)
    check_may_be_replaced(settings)
    answered = Answered(settings, settings.inspect())
    said = _say_doubts(answered, (), console)
    if console.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        check_answered(answered, console)
        return answered
    while unanswered := answered.settings.open_questions(answered.inspection):
        key = unanswered[0]
        question = questions(answered.inspection, answered.settings.id_permanent is True)[key]
        try:
            next_answered = answered.with_answer(key, console.ask(question.text, question.default))
            said = _say_doubts(next_answered, said, console)
        except AgtError as error:
            console.warn(str(error))
            continue
        named = with_own_name(next_answered.settings, console)
        if named.dataset != answered.settings.dataset:
            check_may_be_replaced(named)
        answered = replace(next_answered, settings=named)
    return answered


def _say_doubts(
    answered: Answered, said: tuple[DataWarning, ...], console: Console
) -> tuple[DataWarning, ...]:
    """Say what may be a mistake in the file, each once; returns all that was said.

    Columns that are left out are among the remarks (``left_out_remarks``), and what labels are,
    what becomes of rows without one, or which numbers are codes, is asked. Where ranges were called
    public, nothing is said about where the range of dates ends.
    """
    elsewhere = [
        *("number_as_classes", "left_out", "taken_as_words", "label_missing", "may_be_codes")
    ]
    if "ranges" in (answered.settings.public or ()):
        elsewhere.append("dates_may_go_on")
    new = tuple(
        doubt
        for doubt in answered.inspection.warnings
        if doubt not in said and doubt.code not in elsewhere
    )
    for doubt in new:
        console.warn(doubt.sentence)
    return (*said, *new)
