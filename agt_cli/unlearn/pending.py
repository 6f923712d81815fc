"""method=certificate: the request is noted and nothing is computed; what is stable for it is answered, the rest waits.

The run's files stay as they are, so that its model is the one that was trained with the records that wait. From then on
``agt certify`` gives the answers that are the same without them and abstains on others (runs/waiting.py), and private
releases are refused. The next update, by any other method, carries everything out.
"""

import json
import time

import numpy as np

from agt.errors import CheckError
from agt.facts import Fact
from agt.models.model import Model, load
from agt.relations import RELATIONS
from agt.training.ensemble import shards
from agt.unlearning.covered import gaps, needed
from agt.unlearning.log import NAME as LOG
from agt.unlearning.promise import Promise, Removal
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import conditions_of
from agt_cli.runs.source import kept
from agt_cli.runs.waiting import NAME, people
from agt_cli.unlearn.job import Job

ANEW = ("config.yaml", "env.json", "metrics.json", "status.json", LOG)
"""What a record has of its own."""
WORDS = (
    "every label that is given is the one that training again without them gives, with the same settings, seeds and public "
    "constants: its stable distance says so of every set of so many people at once, whoever chose them and after whichever "
    "answers",
    "other queries abstain until the next update. Which ones do depends on the records, those that are to go among them, "
    "and whoever asks sees it: abstaining itself is not private, and private releases are refused until then",
    "the model, its certificates and figures still hold what is to be erased: they stay with the data owner, and the next "
    "update replaces them",
)


def pending(job: Job, record: RunRecord, console: Console) -> Removal:
    """Note the request and keep the state (a ``Method``).

    Raises:
        CheckError: the run's certificates do not say what training without these records gives; says why.
    """
    started = time.perf_counter()
    reasons = uncovered(job)
    if reasons:
        raise CheckError(
            f"method=certificate: this run's certificates do not cover the removal: {'; '.join(reasons)}. Carry it out "
            "instead: method=auto finds how"
        )
    for name in job.run.manifest.files:
        if name not in (*ANEW, NAME):
            record.write(name, job.run.read(name))
    record.add_metrics(**job.run.metrics)
    members, model = _members(job), _model(job)
    record.write(NAME, json.dumps({"units": job.units, "members": members}).encode())
    words = (f"noted, and nothing was computed: {_answered(job, model)}",)
    if model.farthest < job.units:
        console.say(f"method=certificate: {words[0]}")
    facts = {"pending": job.units, "farthest": model.farthest}
    return Removal(_promise(job), 0, time.perf_counter() - started, facts, words)


def uncovered(job: Job) -> list[str]:
    """Why the certificates of a run do not cover a removal, in words; empty: they do."""
    prepared = job.prepared
    compared = prepared.loaded.preprocessing.facts if prepared.untouched.held else ()
    unseen = len(job.erased) < job.count and bool(prepared.dataset.train.public.any())
    public = unseen or bool(job.erased.public.any())
    return gaps(job.settings, conditions_of(job.run), compared, public)


def _answered(job: Job, model: Model) -> str:
    """Which queries are answered, in words."""
    relation = RELATIONS[job.settings.relation.name]
    if model.farthest < job.units:
        return (
            f"{people(job.units)} wait, and no stable distance of this run is beyond {model.farthest} (kgrid.max): every "
            "query abstains until an update"
        )
    published = ", by the published rule (the mean over the records that are left)" if relation.mean else ""
    return (
        f"{people(job.units)} wait; a query is answered where its stable distance is {job.units} or more (k counts "
        f"{relation.ball_of(job.settings.relation.unit_rows)}{published}), and abstains elsewhere"
    )


def _promise(job: Job) -> Promise:
    conditions, prepared = conditions_of(job.run), job.prepared
    apart = {*prepared.loaded.preprocessing.facts, job.settings.choices}
    facts: tuple[Fact, ...] = (*(f for f in needed(conditions) if f not in apart), prepared.untouched, prepared.choices)
    return Promise("certificate", True, 0.0, 0.0, True, WORDS, tuple(dict.fromkeys(facts)))


def _members(job: Job) -> list[int] | None:
    """How many of those that wait each member of an ensemble was trained on; None: no ensemble, or some are gone."""
    units, ensemble = np.unique(job.erased.units), job.settings.ensemble
    if ensemble.members == 1 or len(units) != job.units:
        return None
    counts: list[int] = np.bincount(shards(units, ensemble), minlength=ensemble.members).tolist()
    return counts


def _model(job: Job) -> Model:
    told = kept(job.run, job.settings)
    return load(job.prepared.problem(job.settings) if told is None else told.problem, job.run)
