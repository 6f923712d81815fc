"""Carry out a request to erase on a copy of the run (dry_run=true), to see what a method would do.

Nothing is erased, so no account (report of an erasure) is written. The copy lies in the folder of
the command's record, and is removed when the command ends. If the process is killed, the next
rehearsal in a folder beside it removes the copy.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from agt_cli.unlearn.log import RequestEntry
from agt_cli.unlearn.methods import removal_metrics

WORDS = (
    "REHEARSAL: the erasure was only carried out on a copy of the run, which is then "
    "deleted. The run itself still contains the records that are to be erased"
)
SCORES = ("test_accuracy", "test_auc")


@dataclass(frozen=True)
class Rehearsed:
    """A request that was carried out on a copy of a run.

    Attributes:
        entry: its entry in the request log of the copy.
        metrics: the metrics of the copy afterwards.
    """

    entry: RequestEntry
    metrics: Mapping[str, Any]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the method did and what it promises."""
        removal = self.entry.removal
        return (*removal.sentences, *removal.promise.sentences)


def rehearse(order: ErasureOrder, record: RunRecord, console: Console) -> dict[str, Any]:
    """Carry out a request on a copy of the run, and write what it took and promises.

    Args:
        order: the settings of the command.
        record: the command's record, which is finished here.
        console: prints progress and the result.

    Returns:
        The object that --json prints.

    Raises:
        ConfigError: the request names no training record, or nothing is requested; and what
            ``erase`` raises.
    """
    run = open_run(order.folder, "train", order.digest)
    rehearsed = _erase_from_copy(order, run, record.folder, console)
    record.environment(
        trained_run=str(run.folder.resolve()),
        trained_digest=run.digest,
        rehearsed=True,
        dataset=run.environment.get("dataset"),
    )
    scores = {name: rehearsed.metrics[name] for name in SCORES if name in rehearsed.metrics}
    scores_before = {f"{name}_before": run.metrics[name] for name in scores if name in run.metrics}
    entry = rehearsed.entry
    record.add_metrics(
        **scores,
        **scores_before,
        **removal_metrics(entry.removal),
        seconds_training=float(entry.facts["training"]),
        asked=len(entry.records),
    )
    method = entry.removal.promise.method
    record.report(_page(run, method, rehearsed.sentences, record.metrics))
    digest = record.finish()
    for line in (WORDS, *rehearsed.sentences):
        console.say(line)
    console.say(f"report: {record.folder / 'report.html'}")
    return {
        "rehearsed": True,
        "method": method,
        "metrics": record.metrics,
        "digest": digest,
    }


def _erase_from_copy(order: ErasureOrder, run: Run, folder: Path, console: Console) -> Rehearsed:
    """Carry out a request on a copy of a run, which is deleted afterwards.

    Args:
        order: the settings of the command.
        run: the run, which is not changed.
        folder: the folder in which the copy lies meanwhile.
        console: prints progress.

    Raises:
        ConfigError: the request names no training record, or nothing is requested.
    """
    with TemporaryDirectory(dir=folder, prefix=".copies-") as scratch:
        copy = copy_run(run, Path(scratch) / "run")
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
        return Rehearsed(erased.entry, open_run(copy, "train", erased.digest).metrics)


def _page(run: Run, method: str, sentences: Sequence[str], metrics: Mapping[str, Any]) -> str:
    """Return the page of a rehearsal, in Markdown.

    Args:
        run: the run, which was not changed.
        method: the method of erasure.
        sentences: what the method did and what it promises.
        metrics: the numbers of the rehearsal by name.
    """
    rows = [(escape_markdown(name), str(value)) for name, value in metrics.items()]
    return document(
        f"# Rehearsal of agt unlearn: run {escape_markdown(run.folder.name)}, method={method}",
        f"**{WORDS}.** This page is only for the data owner, because its accuracies depend on "
        "the private data.",
        sentences,
        markdown_table(("number", "value"), rows),
    )


def copy_run(run: Run, copy_path: Path) -> Path:
    """Copy a run's folder with its key, and return the path of the copy.

    The lock of the run is left out, and so is the copy itself, if it lies below the run.

    Args:
        run: the run.
        copy_path: the path of the copy, whose parent folder contains nothing else.
    """
    parent_of_copy = copy_path.parent.resolve()

    def left_out(in_folder: str, names: list[str]) -> list[str]:
        """Return the names in a folder that are not to be copied."""
        return [
            name
            for name in names
            if name == Path(STATE_LOCK).name or (Path(in_folder) / name).resolve() == parent_of_copy
        ]

    shutil.copytree(run.folder, copy_path, ignore=left_out)
    return copy_path
