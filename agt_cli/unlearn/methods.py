"""The methods of ``agt unlearn``: what each does, and which one a run gets by ``method=auto``.

A method takes an ``ErasureJob``, and writes the next state of the run into a record.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agt.data.records import Records
from agt.errors import AgtError, CheckError, ConfigError
from agt.facts import Standing, not_held, proved
from agt.models.fitting import load
from agt.models.heads import head_from_config
from agt.models.kind import CannotRemove
from agt.models.kinds import certificate_config
from agt.models.model import Model
from agt.models.shards import SHARDS
from agt.relations import RELATIONS
from agt.settings import ComputeConfig, validate
from agt.training.ensemble import assign_shards
from agt.unlearning.newton_promise import NOISE_IS_NEW
from agt.unlearning.promise import MethodName, Promise, Removal
from agt.unlearning.sentences import Remark, sentences
from agt.unlearning.sisa import Retrained, required_facts, retrain_affected
from agt_cli.choices import bind_to_settings, hash_parts
from agt_cli.command_settings.unlearn import CERTIFICATE_OF_METHOD, check_method
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.report.recorded_conditions import conditions_of
from agt_cli.runs.pending import WAITING_FILE
from agt_cli.runs.prepare import (
    Prepared,
    RunSettings,
    fit,
    read_settings,
    run_without_records,
    use_threads,
    write_trained,
)
from agt_cli.unlearn.account import PENDING
from agt_cli.unlearn.earlier import removal_gaps
from agt_cli.unlearn.log import REQUEST_LOG_FILE


@dataclass(frozen=True)
class ErasureJob:
    """One update of a run's state, which carries out the pending requests and the present one.

    Attributes:
        run: the run as it is now.
        settings: the settings that it was trained with, with the present command's ``compute``.
        prepared: the run's data without the erased records.
        erased: the records to remove, with the features that the head takes; empty if the data
            does not have them any more.
        count: how many records are removed, whether the data still has them or not.
        units: how many people (or other units of protection) they belong to.
        may_retrain: whether a method that cannot keep its promise otherwise may train from scratch.
        fresh: whether noise, seeds and shards are drawn again. It is for requests that may have
            been chosen by answers of the model.
    """

    run: Run
    settings: RunSettings
    prepared: Prepared
    erased: Records
    count: int
    units: int
    may_retrain: bool = True
    fresh: bool = False

    @property
    def batches(self) -> int:
        """The number of batches in an epoch; the recipe's if the configuration names none."""
        return int(self.prepared.problem(self.settings).setup.training.batch.count)


Method = Callable[[ErasureJob, RunRecord, Console], Removal]
"""Writes the new state (``runs.prepare.write_trained``) into a record, which becomes the run's
state afterwards, and returns what was removed and what is guaranteed. Raises CheckError (exit 3) if
it cannot; then nothing was changed.
"""


def removal_metrics(removal: Removal) -> dict[str, Any]:
    """Return the numbers of a removal by name, as metrics.json has them."""
    budget = removal.budget
    spent = {} if budget is None else {"budget_spent": budget.spent, "budget": budget.total}
    return {
        "removed": removal.records,
        "seconds_unlearning": round(removal.seconds, 4),
        **spent,
        **removal.facts,
    }


def retrain(job: ErasureJob, record: RunRecord, console: Console) -> Removal:
    """Train from scratch on the remaining records, and write the new state (a ``Method``).

    It always works, and takes as long as training. Settings that are left to the recipe are
    computed from the remaining data as for a new run: from its declared size, else its number of
    records.

    Formal guarantees:
        - Training is a function A(D, r) of the data D and of public constants r: seed, keys of
          hashes, settings. The new state is A(D', r) for the remaining data D', computed from the
          beginning; nothing of A(D, r) is read. So it is exact for D', however D' came about, also
          if each request followed from outputs of earlier states.
        - Adaptive requests can make D' depend on r (by erasing whomever the seed treated in some
          way), so that (D', r) is not distributed as for a first training (Gupta et al. 2021, whose
          attack on ensembles is of this kind). With ``job.fresh``, r' is drawn by the operating
          system after the last request. Then r' is independent of D' and of all outputs, and given
          D', A(D', r') has exactly the distribution of a first training. No method can undo what D'
          itself reveals.

    Raises:
        CheckError: retraining is forbidden, or the training drew noise of its own (noise.epsilon).
            Such weights are a release, and another draw is another release about everybody who
            remains, which a run of its own must claim and pay for.
    """
    started = time.perf_counter()
    if not job.may_retrain:
        raise CheckError(
            "method=retrain trains again, but forbid_retraining=true forbids training: leave "
            "out one of these settings"
        )
    if job.settings.noise is not None:
        raise CheckError(
            "method=retrain cannot be used, because this run's weights contain noise "
            "(noise.epsilon), so training again would be a second release about all remaining "
            "people, with a claim and a budget of its own. Instead, remove the erased rows "
            "from the data, train a new run (agt train ledger=...), and then delete this run"
        )
    if job.fresh:
        settings, prepared = _with_new_seeds(job, record)
    else:
        settings = from_the_start(job.run, job.settings)
        prepared = job.prepared
    model = fit(prepared, settings, console)
    seconds = time.perf_counter() - started
    write_trained(record, prepared, settings, model, seconds)
    facts = {
        "steps_retrained": model.plan.steps * settings.ensemble.members,
        **changed_answers(job, model),
    }
    steps = (Remark("trained_from_scratch", {"records": len(job.prepared.dataset.train)}),)
    return Removal(_retrain_promise(job, settings), job.count, seconds, facts, steps)


def changed_answers(job: ErasureJob, model: Model) -> dict[str, int]:
    """Return how many test records get another answer than from the run's present state.

    Nothing where the two states cannot be compared: there are no test records, the classes or other
    records changed, or the present state cannot be read with the data of now. An erasure does not
    fail for this.

    Args:
        job: the update, with the data of the next state.
        model: the model of the next state.
    """
    prepared = job.prepared
    test = prepared.dataset.test
    same_classes = prepared.dataset.target.class_count == job.run.metrics.get("classes")
    if not len(test) or not same_classes or not prepared.untouched.held:
        return {}
    try:
        before = load(prepared.problem(job.settings), job.run).predict(test.features)
    except AgtError:
        return {}
    changed = int((model.predict(test.features) != before).sum())
    return {"test_answers": len(test), "test_answers_changed": changed}


def from_the_start(run: Run, settings: RunSettings) -> RunSettings:
    """Return the settings with which a run is trained again from the beginning.

    The head is built again, because a run stores only the layers of a network of the user's own.
    Threads, kernel and pieces of sums are those of the run, because the last bits depend on them;
    this process uses as many threads from now on.

    Args:
        run: the run that is trained again.
        settings: that it was trained with, with the present command's ``compute``.
    """
    recorded: ComputeConfig = validate(ComputeConfig, run.config.get("compute"), "compute")
    compute = replace(recorded, device=settings.compute.device)
    use_threads(compute)
    return replace(settings, model=head_from_config(run.config.get("model")), compute=compute)


def fresh_config(config: Mapping[str, Any], batches: int) -> dict[str, Any]:
    """Return a configuration in which each seed and key that training reads is drawn again.

    The operating system draws them. Other settings stay the same. A declaration that the settings
    were chosen on public data is renewed for the new ones, because no draw depends on data.

    Args:
        config: the configuration of a training, as plain containers.
        batches: the number of batches of an epoch (``ErasureJob.batches``).
    """
    training = dict(config["training"])
    ensemble = dict(config.get("ensemble") or {})
    kind = certificate_config(config.get("certificate"))
    certificate = deepcopy(config.get("certificate") or {"name": kind.name})
    if kind.draws_start:
        training["seed"] = secrets.randbits(63)
    if batches != 1:
        training["batch"] = {**training["batch"], "key": f"k{secrets.token_hex(16)}"}
    if ensemble.get("members", 1) > 1:
        ensemble["key"] = f"k{secrets.token_hex(16)}"
    for dotted_name in kind.seeds:
        *groups, name = dotted_name.split(".")
        settings = certificate
        for group in groups:
            settings = settings[group]
        settings[name] = secrets.randbits(63)
    fresh = {**config, "training": training, "ensemble": ensemble, "certificate": certificate}
    is_declared_public = training.get("chosen_on") == "public"
    if is_declared_public and training.get("chosen_for") == hash_parts(config):
        return bind_to_settings(fresh)
    return fresh


def _with_new_seeds(job: ErasureJob, record: RunRecord) -> tuple[RunSettings, Prepared]:
    """Draw seeds and keys again, and write them into the record's config.yaml.

    Returns:
        The settings with the new seeds and keys; and the data, which says that condition e
        (preprocessing and settings are public) is not met if the new settings do not meet it.
    """
    record.reconfigure(fresh_config(record.config, job.batches))
    settings = replace(
        read_settings(record.config), compute=from_the_start(job.run, job.settings).compute
    )
    prepared = job.prepared
    if settings.choices.standing is Standing.VOID:
        prepared = replace(prepared, choices=settings.choices)
    return settings, prepared


def _retrain_promise(job: ErasureJob, settings: RunSettings) -> Promise:
    """Return the guarantee after training from scratch on the remaining records.

    The new model is exactly one that was trained without the erased records. The guarantee also
    covers requests that depend on the model's answers (``Promise.adaptive``), unless training
    reads a seed or a key that the run had before the requests.

    Args:
        job: the update.
        settings: the settings that the new model was trained with.

    Returns:
        The promise. The codes of its terms name sentences in agt/unlearning/sentences.py.
    """
    summary = Remark("retrained")
    assumptions = [proved("began_from_nothing")]
    has_new_noise = settings.certificate.noise == "drawn"
    if has_new_noise:
        summary = Remark("retrained_with_noise")
        assumptions.append(NOISE_IS_NEW)
    # ``fresh_config`` replaces all seeds and keys, so without any it changes nothing.
    reads_keys = fresh_config(job.run.config, job.batches) != job.run.config
    if job.fresh:
        randomness = Remark("keys_drawn_anew")
    elif reads_keys:
        randomness = Remark("keys_recorded")
    elif has_new_noise:
        randomness = Remark("draws_only_noise")
    else:
        randomness = Remark("draws_nothing")
    return Promise(
        method="retrain",
        exact=True,
        eps=0.0,
        delta=0.0,
        adaptive=job.fresh or not reads_keys,
        terms=(summary, randomness),
        assumptions=tuple(assumptions),
    )


def remove_by_certificate(job: ErasureJob, record: RunRecord, console: Console) -> Removal:
    """Remove the erased records by the certificate's own method, or train again (a ``Method``).

    What is cheap is tried first, and each next only if the budget would be exceeded: a Newton step
    towards the minimiser without the records, with matrices that training stored; Newton steps from
    the gradient of all remaining records; the same with matrices computed again; training from
    scratch, with new noise. The setting certificate.bound says what a step is charged: data: its
    bound beforehand; worst: that bound over all data; measured: the steps that follow it until only
    rounding is left, which is then known. If the data lacks erased rows, the step starts from the
    gradient of the remaining records, with matrices computed over them, which needs no erased row.

    At the end the matrices are computed again over the remaining records, at the new weights. So
    the run's folder has nothing that was computed from the erased rows. A step with stored matrices
    saves time only until the new weights are there; whoever removes records in one process
    (agt.unlearning.newton) saves it each time.

    Training from scratch replaces the method where it is not possible.

    Raises:
        CheckError: the kind's budget is exceeded whatever is done, or cannot be counted, and
            training from scratch is forbidden.
    """
    if reason := _reason_no_step(job):
        return _retrain_instead(job, record, console, reason)
    present = load(job.prepared.problem(job.settings), job.run)
    try:
        model, removal = job.settings.certificate.remove_records(present, job.erased, job.count)
    except CannotRemove as error:
        return _retrain_instead(job, record, console, error.reason)
    seconds_training = float(job.run.metrics.get("seconds_training", 0.0))
    write_trained(record, job.prepared, job.settings, model, seconds_training)
    assumptions = (*removal.promise.assumptions, job.prepared.untouched)
    promise = replace(removal.promise, assumptions=assumptions)
    return replace(removal, promise=promise, facts={**removal.facts, **changed_answers(job, model)})


def _reason_no_step(job: ErasureJob) -> Remark | None:
    """Return why no step can be taken from the run's present state; None if one can."""
    prepared = job.prepared
    before = int(job.run.metrics["classes"])
    if job.fresh and job.settings.certificate.noise_is_fixed:
        return Remark("no_step_with_fresh_loss")
    if prepared.untouched.standing is Standing.VOID:
        return Remark("no_step_from_other_records", {"fact": prepared.untouched})
    if prepared.classes != before:
        return Remark("no_step_to_other_classes", {"before": before, "after": prepared.classes})
    return None


def _retrain_instead(
    job: ErasureJob, record: RunRecord, console: Console, reason: Remark
) -> Removal:
    """Train from scratch, because the certificate's own method is not possible.

    Args:
        job: the update.
        record: the record of the new state.
        console: prints the reason.
        reason: why the method is not possible; it becomes a step of the removal.

    Raises:
        CheckError: training is forbidden (``job.may_retrain``).
    """
    if not job.may_retrain:
        raise CheckError(
            f"method={job.settings.certificate.own_erasure} was not possible "
            f"({reason.sentence}), and forbid_retraining=true forbids training again, so "
            "nothing was changed. To allow training again, give forbid_retraining=false"
        )
    console.note(
        f"method={job.settings.certificate.own_erasure} was not possible, so agt trains the "
        f"model again without the erased records: {reason.sentence}"
    )
    done = retrain(job, record, console)
    return replace(done, steps=(*done.steps, reason))


def sisa(job: ErasureJob, record: RunRecord, console: Console) -> Removal:
    """Train again the members of an ensemble that had used erased records (a ``Method``).

    Each of these members is trained from the beginning. With ``job.fresh`` all members are trained
    again, in new shards.

    Raises:
        CheckError: the run is no ensemble, or its members cannot be trained separately; shards.json
            does not fit the request; or all members must be trained again, which is forbidden.
    """
    if job.fresh:  # with a new key, records are in other shards, so that no member stays the same
        if not job.may_retrain:
            raise CheckError(
                "method=sisa with new_seeds=true trains all members again, but "
                "forbid_retraining=true forbids training: leave out one of these settings"
            )
        removal = retrain(job, record, console)
        return replace(removal, promise=replace(removal.promise, method="sisa"))
    started = time.perf_counter()
    settings = from_the_start(job.run, job.settings)
    problem = job.prepared.problem(settings)
    label = "retraining the ensemble's members that used the erased records"
    with console.progress(label, "member") as report:
        done = retrain_affected(
            problem, job.run, lambda at: report(at.step, at.steps, at.done, at.total)
        )
    if done.removed not in (None, job.count):
        raise CheckError(
            f"method=sisa: by the run's shards.json its members lost {done.removed} records, but "
            f"{job.count} are to be erased, so shards.json was altered or damaged after agt wrote "
            "it: give method=retrain"
        )
    seconds = time.perf_counter() - started
    write_trained(record, job.prepared, settings, done.model, seconds)
    members = settings.ensemble.members
    trained = len(done.trained)
    facts = {
        "members_retrained": trained,
        "members": members,
        "steps_retrained": trained * done.steps,
        "steps_of_all": members * done.steps,
        **changed_answers(job, done.model),
    }
    steps = (Remark("members_trained_again", {"trained": trained, "members": members}),)
    return Removal(_sisa_promise(done), job.count, seconds, facts, steps)


def _sisa_promise(done: Retrained) -> Promise:
    """Return the guarantee for an ensemble of which the affected members were trained again."""
    same_code = proved("members_by_same_code")
    if done.environment_differences:
        same_code = not_held("members_by_other_code", changed=done.environment_differences)
    return Promise(
        method="sisa",
        exact=True,
        eps=0.0,
        delta=0.0,
        adaptive=False,  # the shards depend on the run's recorded key
        terms=(Remark("members_kept"), Remark("shards_by_recorded_key")),
        assumptions=(proved("members_of_same_shards"), same_code),
    )


PENDING_ANEW = ("config.yaml", "env.json", "metrics.json", "status.json", REQUEST_LOG_FILE)
"""Files that a pending request's record writes itself, instead of copying those of the run."""


def pending(job: ErasureJob, record: RunRecord, console: Console) -> Removal:
    """Note the request as pending, and copy the run's state without a change (a ``Method``).

    So the model is still the one that was trained with the records of pending requests. From then
    on, ``agt certify`` gives the answers that are the same without these records and abstains from
    others (runs/queries.py), and private releases are refused. The next update by another method
    carries out all pending requests.

    Raises:
        CheckError: the run answers with numbers; or its certificates do not cover the removal. The
            message says why.
    """
    started = time.perf_counter()
    _check_can_wait(job)
    for name in job.run.manifest.files:
        if name not in (*PENDING_ANEW, WAITING_FILE):
            record.write(name, job.run.read(name))
    record.add_metrics(**job.run.metrics)
    waiting = {"units": job.units, "members": _units_of_members(job)}
    record.write(WAITING_FILE, json.dumps(waiting).encode())
    model = load(run_without_records(job.run, job.settings).problem, job.run)
    noted = _noted(job, model.max_distance)
    if model.max_distance < job.units:
        console.say(f"method=certificate: {noted.sentence}")
    facts = {"pending": job.units, "farthest": model.max_distance}
    return Removal(_pending_promise(job), 0, time.perf_counter() - started, facts, (noted,))


def _check_can_wait(job: ErasureJob) -> None:
    """Raise CheckError unless the run's certificates say which answers the removal cannot change.

    Args:
        job: the update.
    """
    prepared = job.prepared
    if prepared.dataset.target.numeric is not None:
        raise CheckError(
            "method=certificate cannot be used, because this run answers with numbers: each "
            "removal may move an answer within its interval, so no answer is certain to stay the "
            "same. Give method=auto, which finds a suitable method"
        )
    reasons = removal_gaps(
        job.settings, prepared, job.erased, job.count, job.run, prepared.untouched.held
    )
    if reasons:
        why = "; ".join(sentences(tuple(reasons)))
        raise CheckError(
            "method=certificate cannot be used, because this run's certificates do not cover "
            f"the removal ({why}). Give method=auto, which finds a suitable method"
        )


def _units_of_members(job: ErasureJob) -> list[int] | None:
    """Return how many of the units to be erased each member of an ensemble was trained on.

    Returns:
        None: the run is no ensemble, or it is not known because the data lacks some of the units.
    """
    ensemble = job.settings.ensemble
    units = np.unique(job.erased.units)
    if ensemble.members == 1 or len(units) != job.units:
        return None
    return np.bincount(assign_shards(units, ensemble), minlength=ensemble.members).tolist()


def _pending_promise(job: ErasureJob) -> Promise:
    """Return the guarantee for the answers that are given while a request is pending."""
    prepared = job.prepared
    # These facts are replaced by those of the data as it is without the records.
    replaced = {*prepared.loaded.preprocessing.facts, job.settings.choices}
    recorded = required_facts(conditions_of(job.run))
    assumptions = [fact for fact in recorded if fact not in replaced]
    assumptions += [prepared.untouched, prepared.choices]
    return Promise(
        method="certificate",
        exact=True,
        eps=0.0,
        delta=0.0,
        adaptive=True,
        terms=(
            Remark("answers_as_retrained"),
            Remark("others_abstain"),
            Remark("state_still_holds"),
        ),
        assumptions=tuple(dict.fromkeys(assumptions)),
    )


def _noted(job: ErasureJob, max_distance: int) -> Remark:
    """Return a remark that the request was noted, and which queries are answered meanwhile.

    Args:
        job: the update.
        max_distance: the largest stable distance that a query of this run can have. If it is
            smaller than the number of people, no query is answered.
    """
    relation = RELATIONS[job.settings.relation.name]
    if max_distance < job.units:
        values = {"units": job.units, "farthest": max_distance}
        return Remark("request_noted_none_answered", values)
    code = "request_noted_of_mean" if relation.averages else "request_noted"
    return Remark(code, {"units": job.units, "relation": job.settings.relation.name})


METHODS: dict[MethodName, Method] = {
    "certificate": pending,
    **dict.fromkeys(CERTIFICATE_OF_METHOD, remove_by_certificate),
    "sisa": sisa,
    "retrain": retrain,
}


def own_learner_of(config: Mapping[str, Any]) -> str | None:
    """Return the full name of the user's own learner that a run's settings name.

    Args:
        config: the run's settings.

    Returns:
        The name; None: the run was trained by agt's own code.
    """
    certificate = config.get("certificate")
    learner = certificate.get("learner") if isinstance(certificate, Mapping) else None
    return str(learner.get("_target_")) if isinstance(learner, Mapping) else None


def check_can_train(method: MethodName, run: Run) -> None:
    """Raise ConfigError if a method would have to import the user's own learner.

    Args:
        method: the method of erasure.
        run: from which records are to be erased.
    """
    learner = own_learner_of(run.config)
    if learner is None or method == PENDING:
        return
    raise ConfigError(
        f"method={method} would train again with certificate.learner={learner}, but agt unlearn "
        "never imports code that a run names. Instead, delete the rows from the table, train a new "
        f"run with the command that made this one, and then delete the folder {run.folder}. Until "
        "then, for runs of classes, method=certificate answers only queries whose label the "
        "removal cannot change"
    )


def choose_method(choice: str, settings: RunSettings, run: Run, fresh: bool) -> MethodName:
    """Return the method of erasure for a run.

    Args:
        choice: the setting ``method``. ``auto`` stands for the cheapest method whose guarantee can
            hold for this run; it never stands for ``certificate``, which removes nothing yet.
        settings: the settings of the run.
        run: the run. Of votes by earlier versions it does not record the members' records.
        fresh: whether noise, seeds and shards are to be drawn again.

    Raises:
        ConfigError: the method that was chosen is not possible for this kind of run.
    """
    if choice != "auto":
        check_method(choice, settings.certificate, settings.ensemble)
        return choice
    can_use_sisa = not fresh and (settings.ensembled or run.holds(SHARDS))
    methods = settings.certificate.erasure_methods(settings.ensemble)
    return next(method for method in methods if method != "sisa" or can_use_sisa)
