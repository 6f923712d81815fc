"""agt data inspect FILE: a table -> a dataset configuration; agt data prepare NAME: raw data -> a folder to train on."""

import resource
import sys
import time
from collections.abc import Mapping, Sequence
from hashlib import file_digest
from typing import Any

from agt.disk import write_atomic
from agt.errors import ConfigError
from agt.settings import build, validate
from agt_cli.papers.prepare.contract import Preparation
from agt_cli.report.console import Console
from agt_cli.report.markdown import markdown_table, plain
from agt_cli.report.record import RunRecord
from agt_cli.runs.inspection import CODES, CODES_LONG, InspectSettings, as_json, dataset_yaml, from_data, proposal, seen
from agt_cli.runs.prepare import only_keys

COMMON = ("action", "prepare", "output_dir")
INSPECT = tuple(InspectSettings.__dataclass_fields__)


def configure(config: Mapping[str, Any]) -> Preparation | InspectSettings:
    """Validate the configuration (ConfigError), before any data is read."""
    only_keys(config, (*COMMON, *INSPECT))
    if config.get("action") != "inspect":
        preparation: Preparation = build(config.get("prepare"), "prepare")
        return preparation
    given = {key: config[key] for key in INSPECT if key in config}
    settings: InspectSettings = validate(InspectSettings, given, "")
    settings.check_target()
    return settings


def run(settings: Preparation | InspectSettings, record: RunRecord, console: Console) -> dict[str, Any]:
    """Inspect or prepare, write the record, and say what was made and how to train on it."""
    if isinstance(settings, InspectSettings):
        return _inspect(settings, record, console)
    return _prepare(settings, record, console)


def _inspect(settings: InspectSettings, record: RunRecord, console: Console) -> dict[str, Any]:
    started = time.perf_counter()
    inspection = settings.inspect()
    with inspection.path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    record.environment(file=str(inspection.path.resolve()), file_sha256=digest)
    rows = [(c.name, c.kind, seen(c), proposal(c, inspection)) for c in inspection.columns]
    console.table(f"{inspection.path}: {inspection.rows} rows", ("column", "kind", "seen", "proposal"), rows)
    if any(column.remark == CODES for column in inspection.features):
        console.say(f"{CODES} {CODES_LONG}")
    if inspection.label is None:
        likely = ", ".join(map(repr, inspection.labels[:5])) or "no column has 2 to 100 values"
        raise ConfigError(f"which column is the label? Say label=NAME (likely: {likely}); nothing was written")
    text = dataset_yaml(inspection, settings.dataset)
    write_atomic(settings.target, text.encode())
    record.write("dataset.yaml", text.encode())
    record.add_metrics(rows=inspection.rows, columns=len(rows), seconds=round(time.perf_counter() - started, 3))
    record.report(_report(settings, inspection.path.name, rows))
    unsaid, command = from_data(inspection), f"agt train dataset={settings.dataset}"
    console.say(f"written: {settings.target}")
    console.say(
        f"not public until you replace or declare it (from_data in that file): {len(unsaid) - 1} of "
        f"{len(inspection.features)} columns' ranges or values, and the classes"
    )
    console.note(f"next: {command}")
    return {
        "dataset": str(settings.target),
        "label": inspection.label,
        "id": inspection.id,
        "classes": list(inspection.classes),
        "columns": as_json(inspection),
        "from_data": list(unsaid),
        "metrics": record.metrics,
        "next": command,
    }


def _report(settings: InspectSettings, name: str, rows: Sequence[tuple[str, ...]]) -> str:
    """For the owner: it tells extremes."""
    table = markdown_table(("column", "kind", "seen", "proposal"), rows)
    return f"# {plain(name)}, for its owner alone\n\nWritten: `{settings.target}`\n\n{table}\n"


def _prepare(preparation: Preparation, record: RunRecord, console: Console) -> dict[str, Any]:
    started = time.perf_counter()
    with console.progress("preparing", "record") as report:
        outcome = preparation.run(lambda done, total: report(done, total, done, total), console.note)
    seconds = time.perf_counter() - started
    record.environment(prepared=str(outcome.folder.resolve()))
    record.add_metrics(**outcome.metrics, seconds=round(seconds, 3), peak_memory_mib=_peak_memory_mib())
    lines = [f"# {outcome.folder.name}", "", *(f"- {fact}" for fact in outcome.facts), "", f"    {outcome.train}", ""]
    record.report("\n".join(lines))
    for fact in outcome.facts:
        console.say(fact)
    console.say(f"prepared folder: {outcome.folder}")
    console.note(f"next: {outcome.train}")
    return {"metrics": record.metrics, "prepared": str(outcome.folder), "facts": list(outcome.facts), "next": outcome.train}


def _peak_memory_mib() -> float:
    """The most memory this process has held, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
