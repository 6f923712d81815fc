"""Asks the open questions of ``agt start`` at the terminal, or says what to give without one."""

import sys

from agt.errors import AgtError, ConfigError
from agt.settings import validate
from agt_cli.report.console import Console
from agt_cli.runs.doubts import Doubt
from agt_cli.runs.inspect import Inspection
from agt_cli.start.questions import looks_like_row_numbers, questions
from agt_cli.start.settings import StartSettings


def ask(settings: StartSettings, console: Console) -> tuple[StartSettings, Inspection]:
    """With every question answered, by whoever sits at the terminal where settings leave it open.

    Raises:
        ConfigError: there is no terminal; names what to give.
    """
    inspection = settings.inspect()
    said = _say_doubts(inspection, settings, (), console)
    if console.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _check_answered(settings, inspection)
        return settings, inspection
    while unanswered := settings.open_questions(inspection):
        key = unanswered[0]
        text, _, usual = questions(inspection, settings.id_permanent is True, settings.size)[key]
        given = {name: getattr(settings, name) for name in StartSettings.__dataclass_fields__}
        try:
            now: StartSettings = validate(
                StartSettings, {**given, key: console.ask(text, usual)}, ""
            )
            if key in ("label", "target", "range", "drop", "id", "unit_rows"):
                inspection = now.inspect()
                said = _say_doubts(inspection, now, said, console)
            settings = now
        except AgtError as error:
            console.warn(str(error))
    return settings, inspection


def _check_answered(settings: StartSettings, inspection: Inspection) -> None:
    """Raise ConfigError, which names what to give, where a question is open that nobody can be
    asked.

    Without a terminal no column is dropped that nobody named. While the id is open, what depends on
    it is named with its condition: a limit on the rows of one person, and whether ids that look
    like row numbers are permanent.
    """
    open_keys = [key for key in settings.open_questions(inspection) if key != "drop"]
    if not open_keys:
        return
    asked = questions(inspection, settings.id_permanent is True, settings.size)
    # Whoever gave all other answers has not seen why these two are asked.
    reasons = {
        "id_permanent": f"{looks_like_row_numbers(inspection)}: true if each person keeps this id "
        "whoever joins or leaves",
        "unit_rows": "the most rows that one person may have, a public limit",
    }
    missing = []
    for key in open_keys:
        reason = f" ({reasons[key]})" if key in reasons else ""
        missing.append(f"{key}={asked[key][1]}{reason}")
    if "id" in open_keys and settings.unit_rows is None:
        example = "".join(f", as '{name}' does" for name in inspection.possible_people[:1])
        missing.append(f"unit_rows=NUMBER (only if the id repeats{example})")
    asks_about_ids = settings.id_permanent is None and settings.purpose != "certificates"
    if "id" in open_keys and asks_about_ids:
        doubtful = [column.name for column in inspection.columns if column.counts_rows]
        example = "".join(f", as those of '{name}' do" for name in doubtful[:1])
        missing.append(
            f"id_permanent=true or false (only if the ids look like row numbers{example})"
        )
    needed = ", ".join(missing)
    raise ConfigError(
        "this terminal is not interactive, so answer the questions on the command line: give "
        f"{needed}; or give answers=FILE.yaml, a file with one line for each answer"
    )


def _say_doubts(
    inspection: Inspection, settings: StartSettings, said: tuple[Doubt, ...], console: Console
) -> tuple[Doubt, ...]:
    """Say what may be a mistake in the file, each once; returns all that was said.

    Columns that are left out are among the remarks (``left_out_remarks``), and what labels are is
    asked. Where ranges were called public, nothing is said about where the range of dates ends.
    """
    elsewhere = ["number_as_classes", "left_out", "taken_as_words"]
    if "ranges" in (settings.public or ()):
        elsewhere.append("dates_may_go_on")
    new = tuple(
        doubt for doubt in inspection.doubts if doubt not in said and doubt.code not in elsewhere
    )
    for doubt in new:
        console.warn(doubt.sentence)
    return (*said, *new)
