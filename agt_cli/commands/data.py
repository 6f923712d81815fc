"""agt data inspect FILE: a table -> a dataset configuration; agt data prepare NAME: raw data -> a
folder to train on.

What was seen of a table is written as a configuration that its owner goes on from.
"""

import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

from agt.data.settings import CLASSES
from agt.errors import ConfigError, counted
from agt.settings import build, validate
from agt.store.atomic import write_atomic
from agt.store.reading import file_sha256
from agt_cli.configuration import only_keys
from agt_cli.report.console import Console
from agt_cli.report.markdown import document, markdown_table, plain
from agt_cli.report.record import RunRecord
from agt_cli.runs.dataset_file import dataset_yaml, from_data, proposal, seen
from agt_cli.runs.inspect import (
    Inspection,
)
from agt_cli.runs.inspect_settings import RANGE_IS_PUBLIC, InspectSettings
from agt_cli.runs.ranges import number

COMMON = ("action", "prepare", "output_dir")
INSPECT = tuple(InspectSettings.__dataclass_fields__)


def configure(config: Mapping[str, Any]) -> Any:
    """Validate the configuration (ConfigError), before any data is read."""
    only_keys(config, (*COMMON, *INSPECT))
    if config.get("action") != "inspect":
        return build(config.get("prepare"), "prepare")
    given = {key: config[key] for key in INSPECT if key in config}
    settings: InspectSettings = validate(InspectSettings, given, "")
    if settings.target == "numeric" and settings.range is None:
        raise ConfigError(
            "range is missing, but labels that are numbers need a public range: give "
            f"range=[LOW,HIGH]. {RANGE_IS_PUBLIC}"
        )
    settings.check_dataset_file()
    return settings


def run(settings: Any, record: RunRecord, console: Console) -> dict[str, Any]:
    """Inspect or prepare, write the record, and say what was made and how to train on it."""
    if isinstance(settings, InspectSettings):
        return _inspect(settings, record, console)
    return _prepare(settings, record, console)


def _inspect(settings: InspectSettings, record: RunRecord, console: Console) -> dict[str, Any]:
    started = time.perf_counter()
    inspection = settings.inspect()
    record.environment(
        file=str(inspection.path.resolve()), file_sha256=file_sha256(inspection.path)
    )
    rows = [(c.name, c.kind, seen(c), proposal(c, inspection)) for c in inspection.columns]
    title = f"{inspection.path}: {inspection.rows} rows"
    if inspection.unlabelled:
        title += f" with a label; {counted(inspection.unlabelled, 'row')} without one left out"
    console.table(title, ("column", "kind", "seen", "proposal"), rows)
    doubts = [doubt.sentence for doubt in inspection.doubts]
    for sentence in doubts:
        console.say(sentence)
    if inspection.label is None:
        likely = ", ".join(map(repr, inspection.labels[:5]))
        hint = (
            "no column looks like a label, because none has between 2 and 100 different values; "
            "if the label is a number, give target=numeric as well"
        )
        if likely:
            hint = f"likely: {likely}"
        raise ConfigError(
            "label is missing, so agt does not know which column to predict: give label=NAME "
            f"({hint}). No dataset configuration was written"
        )
    if inspection.needs_target:
        raise ConfigError(target_question(inspection))
    text = dataset_yaml(inspection, settings.dataset)
    write_atomic(settings.dataset_file, text.encode())
    record.write("dataset.yaml", text.encode())
    record.add_metrics(
        rows=inspection.rows, columns=len(rows), seconds=round(time.perf_counter() - started, 3)
    )
    table = markdown_table(("column", "kind", "seen", "proposal"), rows)
    name = plain(inspection.path.name)
    record.report(
        document(
            f"# Columns of the table {name} (only for the owner of the data)",
            f"Written: `{settings.dataset_file}`",
            table,
            [plain(sentence) for sentence in doubts],
        )
    )
    unsaid = from_data(inspection)
    command = f"agt train dataset={settings.dataset}"
    if inspection.numbers is not None:
        command += " certificate=votes dataset.declared_size=N"
    console.say(f"written: {settings.dataset_file}")
    features = len(inspection.features)
    not_public = len([name for name in unsaid if name != CLASSES])
    classes = "classes, and the " if inspection.classes else ""
    console.say(
        f"the {classes}ranges or values of {not_public} of {features} columns, were "
        "read from your data, so they count as private. Replace them by public ones, or "
        "declare them public, in the dataset configuration (its entry from_data)"
    )
    console.note(f"next: {command}")
    return {
        "dataset": str(settings.dataset_file),
        "label": inspection.label,
        "id": inspection.id,
        "classes": list(inspection.classes),
        "range": settings.range,
        "columns": [
            {
                **{
                    key: getattr(column, key)
                    for key in ("name", "kind", "distinct", "missing", "low", "high")
                },
                "values": dict(column.values),
                "proposal": proposal(column, inspection),
            }
            for column in inspection.columns
        ],
        "doubts": [
            {"code": doubt.code, "column": doubt.column, "sentence": doubt.sentence}
            for doubt in inspection.doubts
        ],
        "from_data": list(unsaid),
        "metrics": record.metrics,
        "next": command,
    }


def target_question(inspection: Inspection) -> str:
    """Return that the owner has to say what labels are, what could be said, and what it means."""
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
    started = time.perf_counter()
    with console.progress("preparing", "record") as report:
        outcome = preparation.run(
            lambda done, total: report(done, total, done, total), console.note
        )
    seconds = time.perf_counter() - started
    record.environment(prepared=str(outcome.folder.resolve()))
    # MiB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 2**10
    )
    record.add_metrics(**outcome.metrics, seconds=round(seconds, 3), peak_memory_mib=round(peak, 1))
    record.report(
        document(f"# {plain(outcome.folder.name)}", outcome.facts, f"    {outcome.train}")
    )
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
