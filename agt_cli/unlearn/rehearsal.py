"""rehearse=true: a request carried out on a copy of the run, to see what a method takes and
promises. Nothing is erased.

The copy lies below the command's own record and is gone when it ends, however it ends; of a process
that is killed outright the next rehearsal beside it removes it. No account is written: there is
nothing to account for.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agt.errors import ConfigError
from agt_cli.report.console import Console
from agt_cli.report.finished import STATE_LOCK, Run
from agt_cli.report.markdown import document, escape_markdown, markdown_table
from agt_cli.report.next_state import run_lock
from agt_cli.report.opening import open_run
from agt_cli.report.record import RunRecord
from agt_cli.unlearn.erasure import ErasureOrder, NothingErased, erase
from agt_cli.unlearn.methods import removal_metrics

WORDS = (
    "REHEARSAL: the erasure was only carried out on a copy of the run, which is then "
    "deleted. The run itself still contains the records that are to be erased"
)
SCORES = ("test_accuracy", "test_auc")


def rehearse(order: ErasureOrder, record: RunRecord, console: Console) -> dict[str, Any]:
    """Carry a request out on a copy, and note what it took and what would hold.

    Raises:
        ConfigError: there is nothing to do; and as ``erase``.
    """
    run = open_run(order.folder, "train", order.digest)
    with TemporaryDirectory(dir=record.folder, prefix=".copies-") as scratch:
        copy = copied(run, Path(scratch) / "run")
        with run_lock(copy):
            erased = erase(replace(order, folder=copy, digest=run.digest), console)
        if isinstance(erased, NothingErased):
            raise ConfigError(
                f"ids={order.ids}: no id names a training record of this run, so there is nothing "
                "to rehearse: leave dry_run=true out"
            )
        if erased.digest == run.digest:
            raise ConfigError(
                "there is no request to rehearse: give ids=FILE, because no request is pending"
            )
        entry, after = erased.entry, open_run(copy, "train", erased.digest)
    source = {"trained_run": str(run.folder.resolve()), "trained_digest": run.digest}
    record.environment(**source, rehearsed=True, dataset=run.environment.get("dataset"))
    scores = {name: after.metrics[name] for name in SCORES if name in after.metrics}
    earlier = {f"{name}_before": run.metrics[name] for name in scores if name in run.metrics}
    seconds = {"seconds_training": float(entry.facts["training"])}
    record.add_metrics(
        **scores, **earlier, **removal_metrics(entry.removal), **seconds, asked=len(entry.records)
    )
    rows = [(escape_markdown(name), str(value)) for name, value in record.metrics.items()]
    told = (*entry.removal.sentences, *entry.removal.promise.sentences)
    name = escape_markdown(run.folder.name)
    method = entry.removal.promise.method
    page = document(
        f"# Rehearsal of agt unlearn: run {name}, method={method}",
        f"**{WORDS}.** This page is only for the data owner, because its accuracies depend on "
        "the private data.",
        told,
        markdown_table(("number", "value"), rows),
    )
    record.report(page)
    digest = record.finish()
    for line in (WORDS, *told):
        console.say(line)
    console.say(f"report: {record.folder / 'report.html'}")
    return {
        "rehearsed": True,
        "method": method,
        "metrics": record.metrics,
        "digest": digest,
    }


def copied(run: Run, place: Path) -> Path:
    """A copy of a run's folder, its key with it, without what its living processes lock, and
    without itself.

    Args:
        place: of the copy, in a folder of its own, which may lie below the run's.
    """
    own = place.parent.resolve()

    def left_out(at: str, names: list[str]) -> list[str]:
        return [
            name
            for name in names
            if name == Path(STATE_LOCK).name or (Path(at) / name).resolve() == own
        ]

    shutil.copytree(run.folder, place, ignore=left_out)
    return place
