"""Shows the summary of ``agt start`` on a terminal, and writes it as a record."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agt.data.formats import NumberFormat
from agt.settings import plain_of
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.report.start_md import REMARKS, Summary, write_start
from agt_cli.start.settings import StartSettings


def print_summary(summary: Summary, console: Console) -> None:
    """Print a summary.

    The commands that do the same step by step are left out, because its page has them.
    """
    if summary.remarks:
        console.items(f"{REMARKS}:", summary.remarks)
    comparison = summary.comparison
    table = summary.table
    rows = comparison.rows
    scoring = comparison.scoring
    title = (
        f"{table}: trained on {summary.size}; {scoring.heading.lower()} on {rows:,} held-out rows "
        f"(private, so do not publish {scoring.pronoun})"
    )
    cells = []
    for name, scores in comparison.scores.items():
        score_texts = [str(score or "-") for score in scores]
        cells.append((name, *score_texts))
    console.table(title, ("", *scoring.titles), cells)
    lines = [*comparison.legend, comparison.shortfall, summary.stability.sentence]
    lines.append("Plan (no budget is spent yet):")
    lines += _numbered_lines(summary.ways, summary.proposed)
    # The heading of the constants says the same, where all of them are public.
    if summary.not_public or not summary.constants.heading:
        lines.append(summary.declared)
    if summary.measuring:
        lines.append("To measure, with noise, what is not public:")
        lines += [f"  {command}" for command in summary.measuring]
    lines += [*summary.constants.lines, summary.ledger, "Next:"]
    lines += [f"  {command}" for command in summary.onward]
    lines += [summary.warning_of_next, *summary.placeholders]
    for line in filter(None, lines):
        console.say(line)


def _numbered_lines(options: Sequence[str], proposed: int) -> Iterator[str]:
    """Yield a numbered line for each option of how to continue.

    Args:
        options: the options, in words.
        proposed: the index of the proposed option, which is marked.
    """
    for index, option in enumerate(options):
        number = index + 1
        mark = "  <- the next command" if index == proposed else ""
        yield f"  {number}. {option}{mark}"


def write_record(settings: StartSettings, summary: Summary) -> RunRecord:
    """Write a separate run folder with the comparison, the plan and the proposed option."""
    answers = {name: getattr(settings, name) for name in StartSettings.__dataclass_fields__}
    config = {name: _plain_answer(value) for name, value in answers.items()}
    with RunRecord(settings.new_folder("start"), "start", config) as record:
        record.environment(dataset=settings.dataset)
        write_start(record, summary)
    return record


def _plain_answer(value: object) -> object:
    """Return an answer as the record's configuration writes it: text, numbers, lists, mappings."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, NumberFormat):
        return plain_of(value)
    if isinstance(value, Mapping):
        return {name: _plain_answer(entry) for name, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value
