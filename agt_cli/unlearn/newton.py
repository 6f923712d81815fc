"""method=newton: of a head that was trained for it, records are removed by a step towards the minimiser without them.

What is cheap is tried first, and each next only where the budget would be exceeded: the step, with matrices that training
kept; Newton steps from the gradient of all that remain; the same with matrices formed anew; training from scratch, with
noise drawn anew. certificate.bound says what a step is charged: data: its bound beforehand; worst: that over all data;
measured: the steps that follow it until rounding is what is left, which is then known.

Where the data has the erased rows no longer, or not all, there is nothing to step from: the gradient of those that remain,
and matrices formed anew over them, take its place. That needs no erased row.

In the end the matrices are formed anew over the records that remain, at the weights of now. So the run's folder keeps
nothing that was computed from the erased rows, nor the weights that were: what a step with kept matrices saves is the time
until the new weights are there, and whoever removes records in one process (agt.unlearning.newton) saves it each time.
"""

import time
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from agt.errors import CheckError
from agt.facts import Standing
from agt.models.model import load
from agt.models.removal import RemovalModel, training_rows
from agt.unlearning.masking import promise
from agt.unlearning.newton import Head, brought_within, worst_case
from agt.unlearning.promise import Allowance, Removal
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.trained import write_trained
from agt_cli.unlearn.job import Job
from agt_cli.unlearn.retrain import retrain

UNIT = "bound on the norm of the gradient that removals and the optimiser left"
_STAGES = {
    "step": "one Newton step took {count} records out",
    "polish": "Newton steps from the gradient of all records that remain",
    "refresh": "the same with the Hessian formed anew",
}


@dataclass
class Removing:
    """A head on its way to the minimiser without the erased records.

    Attributes:
        model: as the run has it.
        head: of it; changed.
        phi, targets: the records that remain, as the head takes them.
        stages: what was done.
        facts: flat numbers of it.
    """

    model: RemovalModel
    head: Head
    phi: np.ndarray
    targets: np.ndarray
    stages: tuple[str, ...]
    facts: dict[str, float | int | str]

    @classmethod
    def of(cls, job: Job) -> "Removing":
        """Nothing removed yet."""
        problem = job.prepared.problem(job.settings)
        model = load(problem, job.run)
        assert isinstance(model, RemovalModel)
        phi, labels = training_rows(problem, model.features)
        head = Head.of(model.known.objective, model.state, model.features.slack)
        return cls(model, head, phi, model.known.objective.targets(labels, problem.classes), (), {})

    @property
    def budget(self) -> float:
        """What the residual may be: what the noise hides; without noise, or where it is measured, what training may
        leave."""
        config, budget = self.model.config, self.model.budget
        return config.tolerance if budget is None or config.bound == "measured" else budget

    def remove(self, job: Job) -> None:
        """The cheapest way to a residual within the budget; it may still be above."""
        erased, head = job.erased, self.head
        if len(erased) == job.count and head.count - len(erased) == len(self.phi):
            self._step(self.model.phi(erased.features), self._targets(erased.labels))
        else:
            head.refresh(self.phi, self.targets)
            self.stages = ("refresh",)
        if self.model.config.bound == "measured" and "refresh" not in self.stages:
            head.polish(self.phi, self.targets)
            self.stages += ("polish",)
        if self.model.config.bound != "worst":
            self.stages += brought_within(head, self.phi, self.targets, self.budget)

    def settled(self) -> RemovalModel:
        """The run's next model: matrices formed anew; the noise on what is served, too."""
        started, model, state = time.perf_counter(), self.model, self.model.state
        self.head.settle(self.phi)
        served = model.known.served(self.head.weight, again=1 + len(self.phi))
        self.facts["seconds_settling"] = round(time.perf_counter() - started, 4)
        return RemovalModel.of(model.problem, model.features, self.head.state(state, served, self.budget))

    def _targets(self, labels: np.ndarray) -> np.ndarray:
        return self.head.objective.targets(labels, self.model.problem.classes)

    def _step(self, features: np.ndarray, targets: np.ndarray) -> None:
        started, config, head = time.perf_counter(), self.model.config, self.head
        step = head.remove(features, targets, self.phi if config.factorisation == "fresh" else None)
        problem = head.objective
        reach, outputs = self.model.known.loss.reach, len(head.weight)
        worst = worst_case(problem.gamma, len(features), head.count, problem.strength, reach, outputs)
        if config.bound == "worst":
            head.residual = max(step.after, step.before + worst)
        self.stages = ("step",)
        self.facts |= {
            "seconds_step": round(time.perf_counter() - started, 6),
            "bound_of_step": step.after - step.before,
            "worst_case_of_step": worst,
        }


def newton(job: Job, record: RunRecord, console: Console) -> Removal:
    """Remove the erased records (a ``Method``).

    Raises:
        CheckError: the budget is exceeded whatever is done, or cannot be counted, and training from scratch is forbidden.
    """
    if reason := _unfit(job):
        return _from_scratch(job, record, console, reason)
    removing = Removing.of(job)
    before, started = removing.model.state.residual, time.perf_counter()
    with threadpool_limits(job.settings.compute.threads, user_api="blas"):
        removing.remove(job)
        spent, total = removing.head.residual, removing.budget
        if not spent <= total:
            reason = f"{', '.join(removing.stages)} would bring the removal budget to {spent:.3g}, of {total:.3g}"
            return _from_scratch(job, record, console, reason)
        model = removing.settled()
    seconds = time.perf_counter() - started
    write_trained(record, job.prepared, job.settings, model, float(job.run.metrics.get("seconds_training", 0.0)))
    facts = {"removed_by": "+".join(removing.stages), "residual_before": before, "residual": spent, **removing.facts}
    made = promise(model.config, model.state, model.known.objective.strength)
    made = replace(made, assumptions=(*made.assumptions, job.prepared.untouched))
    return Removal(made, job.count, seconds, facts, _words(job, removing, model), Allowance(spent, total, UNIT))


def _unfit(job: Job) -> str:
    """Why no step can be taken from the present state; empty where one can."""
    if job.fresh and getattr(job.settings.certificate, "masking", "none") == "loss":
        return "fresh=true asks for another random term in the loss, and the state was made with the one there is"
    if job.prepared.untouched.standing is Standing.VOID:
        return f"the other records are not what the state was made with: {job.prepared.untouched.why}"
    if job.prepared.classes != int(job.run.metrics["classes"]):
        return f"classes: the run has {job.run.metrics['classes']}, and the records that remain have {job.prepared.classes}"
    return ""


def _from_scratch(job: Job, record: RunRecord, console: Console, reason: str) -> Removal:
    """Raises CheckError where that is forbidden."""
    if not job.may_retrain:
        raise CheckError(
            f"method=newton: {reason}; and forbid_retraining=true. Nothing was changed. Let it train: "
            "forbid_retraining=false, or method=retrain"
        )
    console.note(f"training from scratch: {reason}")
    done = retrain(job, record, console)
    return replace(done, words=(*done.words, f"no step was taken: {reason}"))


def _words(job: Job, removing: Removing, model: RemovalModel) -> tuple[str, ...]:
    state, head = model.state, removing.head
    did = [_STAGES[stage].format(count=job.count) for stage in removing.stages]
    if "step" not in removing.stages:
        did.insert(0, f"the data no longer has the {job.count} records: what remains was fitted from where the model was")
    lines = [
        "; ".join(did),
        f"the gradient that is left is at most {state.residual:.3g}, so the weights are within {head.distance:.3g} of the "
        f"exact minimiser on the {state.count} records that remain",
        "Hessian and products were then formed anew over these records, at these weights: no matrix that the erased ones "
        "were part of, and no earlier weights, are kept",
    ]
    if model.config.masking == "output":
        lines.append("noise on the weights that are served was drawn anew")
    return tuple(lines)
