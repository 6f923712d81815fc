"""agt data prepare NAME: raw data that a user has -> a folder that agt train reads -> run record."""

import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

from agt.settings import build
from agt_cli.papers.prepare.contract import Preparation
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import only_keys


def configure(config: Mapping[str, Any]) -> Preparation:
    """Validate the configuration (ConfigError), before any data is read."""
    only_keys(config, ("action", "prepare", "output_dir", "data_dir"))
    preparation: Preparation = build(config.get("prepare"), "prepare")
    return preparation


def run(preparation: Preparation, record: RunRecord, console: Console) -> dict[str, Any]:
    """Prepare, write the record, and say what was made and how to train on it."""
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
