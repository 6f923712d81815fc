"""agt data: inspect FILE writes a dataset configuration for a table; prepare NAME converts raw data
into a folder to train on.

What ``inspect`` writes is a proposal, which the owner of the table corrects and completes.
"""

import resource
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agt.data.settings import CLASSES
from agt.data.table import Columns
from agt.errors import ConfigError, counted
from agt.settings import build, validate
from agt.store.atomic import write_atomic
from agt.store.reading import file_sha256
from agt_cli.configuration import check_keys
from agt_cli.process import typed_words
from agt_cli.report.console import Console
from agt_cli.report.markdown import document, escape_markdown, markdown_table
from agt_cli.report.record import RunRecord
from agt_cli.runs.dataset_file import (
    Declarations,
    dataset_yaml,
    describe_content,
    describe_proposal,
    from_data,
    repeated_rows,
    signed,
)
from agt_cli.runs.inspect_settings import RANGE_IS_PUBLIC, InspectSettings
from agt_cli.runs.inspection import Inspection
from agt_cli.runs.ranges import number
from agt_cli.table_settings import PLAIN_NAME
from agt_cli.usage import quoted

COMMON_KEYS = ("action", "prepare", "output_dir")
INSPECT_KEYS = tuple(InspectSettings.__dataclass_fields__)
COLUMN_TITLES = ("column", "kind", "seen", "proposal")
COLUMN_FIELDS = ("name", "kind", "distinct", "missing", "low", "high")
"""What --json prints about each column."""


def configure(config: Mapping[str, Any]) -> Any:
    """Validate the configuration (ConfigError), before any data is read."""
    check_keys(config, (*COMMON_KEYS, *INSPECT_KEYS))
    if config.get("action") != "inspect":
        return build(config.get("prepare"), "prepare")
    given = {key: config[key] for key in INSPECT_KEYS if config.get(key) is not None}
    settings: InspectSettings = validate(InspectSettings, given, "")
    if settings.target == "numeric" and settings.range is None:
        raise ConfigError(
            "range is missing, but labels that are numbers need a public range: give "
            f"range=[LOW,HIGH]. {RANGE_IS_PUBLIC}"
        )
    settings.check_dataset_file()
    return settings


def run(settings: Any, record: RunRecord, console: Console) -> dict[str, Any]:
    """Inspect or prepare data, write the record, and print how to train on the result.

    Returns:
        What --json prints.
    """
    if isinstance(settings, InspectSettings):
        return _inspect(settings, record, console)
    return _prepare(settings, record, console)


def _inspect(settings: InspectSettings, record: RunRecord, console: Console) -> dict[str, Any]:
    """Inspect a table, write a dataset configuration and the record, and print the columns.

    Returns:
        What --json prints.

    Raises:
        ConfigError: it is not clear which column is the label, or what labels are.
    """
    started = time.perf_counter()
    inspection = settings.inspect()
    table = inspection.path
    record.environment(file=str(table.resolve()), file_sha256=file_sha256(table))
    has_permanent_ids = settings.id_permanent is True
    proposals = []
    rows = []
    for column in inspection.columns:
        proposal = describe_proposal(column, inspection, id_permanent=has_permanent_ids)
        proposals.append(proposal)
        rows.append((column.name, column.kind, describe_content(column), proposal))
    _show_columns(inspection, rows, console)
    _check_label(inspection)
    declarations = Declarations(
        not_public=from_data(inspection), has_permanent_ids=has_permanent_ids
    )
    text = signed(dataset_yaml(inspection, settings.dataset, declarations), "data inspect")
    write_atomic(settings.dataset_file, text.encode())
    record.write("dataset.yaml", text.encode())
    seconds = round(time.perf_counter() - started, 3)
    record.add_metrics(rows=inspection.rows, columns=len(rows), seconds=seconds)
    record.report(_inspection_page(settings, inspection, rows))
    console.say(f"written: {settings.dataset_file}")
    # The units are given only because a file that names a unit is refused without them.
    columns = Columns.of(settings.dataset_file, units=())
    feature_count = columns.feature_count
    console.say(
        f"a record has {feature_count:,} features after its columns are coded: a network of your "
        f"own takes this many inputs, nn.Linear({feature_count}, ...)"
    )
    console.say(_private_constants_sentence(inspection))
    if settings.id is None:
        for sentence in _id_sentences(settings, inspection):
            console.say(sentence)
    command = f"agt train dataset={settings.dataset}"
    if inspection.numbers is not None:
        command += " certificate=votes dataset.declared_size=N"
    console.note(f"next: {command}")
    return {
        "dataset": str(settings.dataset_file),
        **_inspection_fields(inspection, proposals),
        "range": settings.range,
        "features": feature_count,
        "metrics": record.metrics,
        "next": command,
    }


def _show_columns(inspection: Inspection, rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print the columns of a table, and what may be mistakes in it.

    Args:
        rows: the rows of the table of columns, with ``COLUMN_TITLES``.
    """
    title = f"{inspection.path}: {inspection.rows} rows"
    if inspection.unlabelled:
        title += f" with a label; {counted(inspection.unlabelled, 'row')} without one left out"
    console.table(title, COLUMN_TITLES, rows)
    for warning in inspection.warnings:
        console.say(warning.sentence)


def _inspection_page(
    settings: InspectSettings, inspection: Inspection, rows: Sequence[Sequence[str]]
) -> str:
    """Return the page of the record: the columns of a table, and what may be mistakes in it.

    Args:
        rows: the rows of the table of columns, with ``COLUMN_TITLES``.
    """
    name = escape_markdown(inspection.path.name)
    return document(
        f"# Columns of the table {name} (only for the owner of the data)",
        f"Written: `{settings.dataset_file}`",
        markdown_table(COLUMN_TITLES, rows),
        [escape_markdown(warning.sentence) for warning in inspection.warnings],
    )


def _check_label(inspection: Inspection) -> None:
    """Raise ConfigError if the owner has to say which column is the label, or what labels are."""
    if inspection.label is None:
        hint = (
            "no column looks like a label, because none has between 2 and 100 different values; "
            "if the label is a number, give target=numeric as well"
        )
        if inspection.labels:
            likely = ", ".join(map(repr, inspection.labels[:5]))
            hint = f"likely: {likely}"
        raise ConfigError(
            "label is missing, so agt does not know which column to predict: give label=NAME "
            f"({hint}). No dataset configuration was written"
        )
    if inspection.needs_target:
        raise ConfigError(target_question(inspection))


def _private_constants_sentence(inspection: Inspection) -> str:
    """Return a sentence on the ranges and lists that were read from the records."""
    features = len(inspection.features)
    not_public = len([name for name in from_data(inspection) if name != CLASSES])
    classes = "classes, and the " if inspection.classes else ""
    return (
        f"the {classes}ranges or values of {not_public} of {features} columns, were "
        "read from your data, so they count as private. Replace them by public ones, or "
        "declare them public, in the dataset configuration (its entry from_data)"
    )


def _id_sentences(settings: InspectSettings, inspection: Inspection) -> Iterator[str]:
    """Yield notes on a table for which no column of ids was given."""
    if inspection.repeated:
        yield f"{repeated_rows(inspection)}."
    typed = [
        word
        for word in typed_words()[1:]
        if word.partition("=")[0] not in ("action", "file", "force")
    ]
    for column in inspection.possible_row_numbers:
        name = column.name if PLAIN_NAME.fullmatch(column.name) else quoted(column.name)
        words = ["agt", "data", "inspect", str(settings.file), *typed]
        words += [f"id={name}", "id_permanent=true", "force=true"]
        yield (
            f"if '{column.name}' identifies each record permanently, whoever joins or leaves, "
            f"declare it: {shlex.join(words)}"
        )


def _inspection_fields(inspection: Inspection, proposals: Sequence[str]) -> dict[str, Any]:
    """Return what --json prints about an inspected table.

    Args:
        proposals: the settings that are proposed for each column.
    """
    columns = []
    for column, proposal in zip(inspection.columns, proposals, strict=True):
        fields = {key: getattr(column, key) for key in COLUMN_FIELDS}
        fields["values"] = dict(column.values)
        fields["proposal"] = proposal
        columns.append(fields)
    warnings = [
        {"code": warning.code, "column": warning.column, "sentence": warning.sentence}
        for warning in inspection.warnings
    ]
    return {
        "label": inspection.label,
        "id": inspection.id,
        "classes": list(inspection.classes),
        "columns": columns,
        "doubts": warnings,
        "from_data": list(from_data(inspection)),
    }


def target_question(inspection: Inspection) -> str:
    """Return the question whether labels are classes or numbers, and what to type for each.

    Args:
        inspection: the description of a table whose labels are numbers that may be classes.
    """
    column = inspection.label_column
    assert column is not None
    assert column.low is not None
    assert column.high is not None
    classes = ""
    if inspection.classes:
        classes = " If each number is a class, give target=classes."
    return (
        f"target is missing: the label '{column.name}' has {column.distinct:,} different numbers "
        f"(from {number(column.low)} to {number(column.high)}; these ends are private), so it may "
        "be a quantity, such as an amount or an age. If it is one, give target=numeric "
        f"range=[LOW,HIGH]. {RANGE_IS_PUBLIC}.{classes} No dataset configuration was written"
    )


def _prepare(preparation: Any, record: RunRecord, console: Console) -> dict[str, Any]:
    """Convert raw data into a folder to train on, and write the record.

    Args:
        preparation: the settings of the conversion, whose method ``run`` does it.
        record: the command's record.
        console: the console, which shows progress and results.

    Returns:
        What --json prints.
    """
    started = time.perf_counter()
    with console.progress("preparing", "record") as report:

        def report_records(done: int, total: int) -> None:
            """Show how many records were converted, and how many there are."""
            report(done, total, done, total)

        outcome = preparation.run(report_records, console.note)
    seconds = round(time.perf_counter() - started, 3)
    record.environment(prepared=str(outcome.folder.resolve()))
    record.add_metrics(**outcome.metrics, seconds=seconds, peak_memory_mib=_peak_memory_mib())
    title = f"# {escape_markdown(outcome.folder.name)}"
    record.report(document(title, outcome.facts, f"    {outcome.train}"))
    for fact in outcome.facts:
        console.say(fact)
    console.say(f"prepared folder: {outcome.folder}")
    console.note(f"next: {outcome.train}")
    return {
        "metrics": record.metrics,
        "prepared": str(outcome.folder),
        "facts": list(outcome.facts),
        "next": outcome.train,
    }


def _peak_memory_mib() -> float:
    """Return the most memory that this process has used so far, in MiB."""
    units_per_mib = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / units_per_mib, 1)
