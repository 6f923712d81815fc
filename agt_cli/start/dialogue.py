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
    said = _print_new_warnings(answered, (), console)
    if console.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        check_answered(answered, console)
        return answered
    while unanswered := answered.settings.open_questions(answered.inspection):
        key = unanswered[0]
        question = questions(answered.inspection, answered.settings.id_permanent is True)[key]
        try:
            next_answered = answered.with_answer(key, console.ask(question.text, question.default))
            said = _print_new_warnings(next_answered, said, console)
        except AgtError as error:
            console.warn(str(error))
            continue
        named = with_own_name(next_answered.settings, console)
        if named.dataset != answered.settings.dataset:
            check_may_be_replaced(named)
        answered = replace(next_answered, settings=named)
    return answered


def _print_new_warnings(
    answered: Answered, said: tuple[DataWarning, ...], console: Console
) -> tuple[DataWarning, ...]:
    """Print warnings about the file that were not printed before.

    Columns that are left out are among the remarks (``left_out_remarks``), and what labels are,
    what becomes of rows without one, or which numbers are codes, is asked. Where ranges were called
    public, nothing is said about where the range of dates ends.

    Args:
        answered: the answers so far.
        said: the warnings that were printed before.
        console: prints them.

    Returns:
        All warnings that were printed up to now.
    """
    asked_or_remarked = [
        *("number_as_classes", "left_out", "taken_as_words", "label_missing", "may_be_codes")
    ]
    if "ranges" in (answered.settings.public or ()):
        asked_or_remarked.append("dates_may_go_on")
    new = tuple(
        warning
        for warning in answered.inspection.warnings
        if warning not in said and warning.code not in asked_or_remarked
    )
    for warning in new:
        console.warn(warning.sentence)
    return (*said, *new)
