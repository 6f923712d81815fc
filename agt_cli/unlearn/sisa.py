"""method=sisa: of an ensemble, the members that erased records were in are trained again, from the slice they were in."""

import time
from dataclasses import replace

from agt.errors import CheckError
from agt.facts import Fact, proved, void
from agt.unlearning.promise import Promise, Removal
from agt.unlearning.sisa import Retrained, retrain_affected
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.trained import write_trained
from agt_cli.unlearn.job import Job
from agt_cli.unlearn.retrain import from_the_start, retrain

EXACT = (
    "the model is what training without the erased records gives: members whose shard lost none were kept, the others were "
    "trained again from the state before the first slice that lost one"
)
DEALT = (
    "shards and slices are keyed hashes of ids, by the key that the run recorded: whoever knows it, or saw answers, may "
    "have chosen whom to erase by shard; fresh=true deals everybody anew"
)


def sisa(job: Job, record: RunRecord, console: Console) -> Removal:
    """Train again what the removal touched (a ``Method``).

    Raises:
        CheckError: no ensemble, or one that must be trained whole; or retraining is forbidden, and fresh shards are it.
    """
    if job.fresh:
        return _dealt_anew(job, record, console)
    started, settings = time.perf_counter(), from_the_start(job)
    with console.progress("training what the removal touched", "member") as report:
        done = retrain_affected(
            job.prepared.problem(settings), job.run, lambda at: report(at.step, at.steps, at.done, at.total)
        )
    seconds = time.perf_counter() - started
    write_trained(record, job.prepared, settings, done.model, seconds)
    promise = Promise("sisa", True, 0.0, 0.0, False, (EXACT, DEALT), _assumptions(done))
    return Removal(promise, job.count, seconds, _facts(done), _words(done))


def _dealt_anew(job: Job, record: RunRecord, console: Console) -> Removal:
    """With a fresh key no record keeps its shard, and no member stays."""
    if not job.may_retrain:
        raise CheckError("method=sisa: fresh=true deals every record to a shard anew, which forbid_retraining=true forbids")
    removal = retrain(job, record, console)
    return replace(removal, promise=replace(removal.promise, method="sisa"))


def _facts(done: Retrained) -> dict[str, int]:
    return {
        "members_retrained": len(done.begun),
        "members": len(done.model.members),
        "slices_retrained": done.slices,
        "slices": done.all_slices,
        "steps_retrained": done.steps,
        "steps_of_all": done.all_steps,
    }


def _words(done: Retrained) -> tuple[str, ...]:
    of_all = f"{len(done.begun)} of {len(done.model.members)} members were trained again"
    if done.model.settings.ensemble.slices == 1:
        return (of_all,)
    return (f"{of_all}: {done.slices} of {done.all_slices} slices, {done.steps} of {done.all_steps} steps",)


def _assumptions(done: Retrained) -> tuple[Fact, ...]:
    kept = "members were kept only where the digest of each slice of their shard is the one that they were trained on"
    return (proved(kept), _same_bits(done.changed))


def _same_bits(changed: tuple[str, ...]) -> Fact:
    if not changed:
        return proved("all members were trained by the same code, on machines of one kind, with as many threads")
    return void(
        f"not bit for bit a training of today: members that were kept were trained before {', '.join(changed)} changed; "
        "each is still what that training made of records that all remain"
    )
