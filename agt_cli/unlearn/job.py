"""What a method of ``agt unlearn`` is given, and what it leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agt.data.dataset import Records
from agt.unlearning.promise import Removal
from agt_cli.report.console import Console
from agt_cli.report.finished import FinishedRun
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings


@dataclass(frozen=True)
class Job:
    """One update of a run's state: every erasure that is pending, and those that were asked for now.

    Attributes:
        run: as it is now.
        settings: it was trained with, with the present command's ``compute``.
        prepared: its data, of which the erased records are no longer a part.
        erased: the records to remove, as the head takes them; empty where the data does not have them any more.
        count: how many records are removed: those of ``erased``, or as many as were found gone.
        units: how many people (or other units of protection) they belong to.
        may_retrain: whether a method that cannot keep its promise otherwise may train from scratch.
        fresh: draw anew whatever the state was made with (noise, seeds, shards), for requests that may have followed from
            what the model gave out.
    """

    run: FinishedRun
    settings: RunSettings
    prepared: Prepared
    erased: Records
    count: int
    units: int
    may_retrain: bool = True
    fresh: bool = False


Method = Callable[[Job, RunRecord, Console], Removal]
"""Writes the new state (``runs.trained.write_trained``) into a record that is folded into the run afterwards, and says what
holds of it. Raises CheckError (exit 3) where it cannot, with nothing changed."""


def removal_metrics(removal: Removal) -> dict[str, Any]:
    """Flat numbers of a removal, for metrics.json."""
    budget = removal.allowance
    spent = {} if budget is None else {"budget_spent": budget.spent, "budget": budget.total}
    return {"removed": removal.records, "seconds_unlearning": round(removal.seconds, 4), **spent, **removal.facts}
