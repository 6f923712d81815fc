"""Release mechanisms that leak more than they claim."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from agt.api import fit
from agt.audit.estimates import Claimed, Mistakes
from agt.audit.findings import Finding
from agt.audit.mechanism import Pair, Plan, Side, Target, attacked, audit_pair, certain_finding, exact_loss
from agt.audit.objective import Problems, audit_line, audit_objective, subject_of
from agt.audit.planted import SURE, worst
from agt.audit.verdict import Attacked
from agt.audit.weights import Heads, audit_weights
from agt.audit.worst import Quarry, search
from agt.data.arrays import Declared
from agt.lattice import noisy
from agt.mechanisms.guarantee import ApproximateDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.objective import Noises, Shape
from agt.mechanisms.optimal import RandomizedResponse
from agt.mechanisms.published import SmoothCauchy
from agt.mechanisms.release import Labelling
from agt.mechanisms.weights import ReleaseWeights
from agt.numeric import gaussian_mu
from agt.randomness import SeededRandomness
from agt.training.tilted import solve

COMPUTE = {"threads": 1, "kernel": "reference"}  # nothing to compile
ROUNDS = 20
DIFFERING = Pair(Side(1, 0), Side(0, 0))


def twice_the_budget(seed: int) -> Finding:
    """Randomized response that claims epsilon 1 and draws as for 2."""
    mechanism = _Doubled(RandomizedResponse(eps=1.0), RandomizedResponse(eps=2.0))
    return audit_pair(mechanism, DIFFERING, _plan(seed), 0).verdict  # type: ignore[arg-type]


def the_budget(seed: int) -> Finding:
    """Randomized response that draws as it claims, many times over: the rates that are counted lie beyond the claim in half
    of the audits, and their limits in none. Of its findings the worst."""
    plans = (_plan(ROUNDS * seed + each, 1000, SURE) for each in range(ROUNDS))
    return worst(audit_pair(RandomizedResponse(eps=1.0), DIFFERING, plan, 0).verdict for plan in plans)


def the_best_of_many(seed: int) -> Finding:  # no chance in it
    """Counts that would contradict epsilon 1 as those of one event alone, and are said to be the best of a thousand's."""
    words = ("counts", "they are of epsilon 1", "the best of 1,000 events", "1000 trials a side")
    return Attacked(*words, Claimed("epsilon", 1.0), 0.95, 1000).judge(Mistakes(230, 1000, 230, 1000))


def gap_of_the_grid(seed: int) -> Finding:
    """smooth_cauchy with distances from the grid {0, 50}, at epsilon 1, on a run of its own: one record less, and the
    distance falls from 50 to 0 between the two models' roots."""
    return audited_grid(SmoothCauchy(eps=1.0), (0, 50), seed)


def jump_of_the_evidence(seed: int) -> Finding:
    """smooth_cauchy on evidence that jumps by 50 from one dataset to the next, by its table: no draws."""
    pair = Pair(Side(1, 50), Side(1, 0))
    return certain_finding(SmoothCauchy(eps=1.0), exact_loss(SmoothCauchy(eps=1.0), pair), str(pair), pair.where)


def half_the_noise(seed: int) -> Finding:
    """Released weights whose noise is made for half the sensitivity."""
    heads = replace(Heads.alone(1), moves=0.5)
    return audit_weights(ReleaseWeights(mu=1.0), heads, _plan(seed, 1000)).verdict


def the_noise(seed: int) -> Finding:
    """Released weights whose noise is as they claim."""
    return audit_weights(ReleaseWeights(mu=1.0), Heads.alone(1), _plan(seed, 1000, SURE)).verdict


def no_determinant(seed: int) -> Finding:  # no chance in it
    """Objective perturbation at a Lambda that it would refuse, its noise made for epsilon as if no volume changed."""
    guarantee, problems = ApproximateDP(1.0, 0.01), Problems.line(replace(SHAPE, strength=0.1), 0)
    return audit_line(guarantee, problems, replace(NOISES, tilt=1 / gaussian_mu(guarantee.eps, guarantee.delta)))


def rows_of_one_unit(seed: int) -> Finding:
    """Objective perturbation whose noise is made for one row, and a unit that has ten."""
    return audit_objective(SOLVED, Problems.line(SHAPE, 30, rows=10), NOISES, _plan(seed, 300))[0]


def residual_left_out(seed: int) -> Finding:
    """Objective perturbation with no noise for its solver, which stops at even multiples of a length for the one dataset
    and at odd ones for the other: a residual within the tolerance that tells them apart."""
    source, erm = SeededRandomness(seed), Problems.line(SHAPE, 30).first
    length = NOISES.tolerance / SHAPE.strength / 2

    def draws(side: int, count: int) -> np.ndarray:
        tilts = noisy(np.zeros((count, 1)), NOISES.tilt, source)
        solved = np.array([solve(replace(erm, tilt=tilt), NOISES.tolerance / 2)[0] for tilt in tilts])
        stopped = length * (2 * np.round((solved / length - side) / 2) + side)
        return np.abs(noisy(stopped, length / 1000, source) / length % 2 - 1)

    how = "released weights, by where the solver stopped"
    target = Target(subject_of(SOLVED), SOLVED, how, "no data of a run", None)
    return attacked((partial(draws, 0), partial(draws, 1)), target, _plan(seed, 300))[0]


def objective_perturbation(seed: int) -> Finding:
    """Objective perturbation as it is: by its densities, and by what it draws."""
    problems = Problems.line(SHAPE, 30)
    drawn = audit_objective(SOLVED, problems, NOISES, _plan(seed, 300, SURE))[0]
    return worst((audit_line(SOLVED, problems, NOISES), drawn))


def audited_grid(mechanism: Mechanism, ks: int | tuple[int, ...], seed: int) -> Finding:
    """What draws say of a mechanism on the worst pair of a small run with boxes for these k: two clouds in the plane."""
    labels, rng = np.arange(600) % 2, np.random.default_rng(seed)
    points = 0.6 * rng.standard_normal((600, 2)) + (2 * labels - 1)[:, None]
    stated = Declared(classes=(0, 1), size=600, features=True, settings=True)
    model = fit(points, labels, declared=stated, certificate="box", ks=ks, epochs=2, compute=COMPUTE).model
    plan, labelling = _plan(seed), Labelling.of(model, mechanism, None, "paper")
    found = search(labelling, Quarry.of_labels(labelling, plan), points, 2, 4, seed)
    if found is None:
        raise AssertionError("there is a decision line between two clouds")
    return audit_pair(mechanism, found.pair, plan, model.farthest).verdict


SOLVED, SHAPE = ApproximateDP(0.5, 1e-3), Shape(50.0, 1.0, 40, 1)
NOISES = Noises.of(SHAPE, SOLVED.eps, SOLVED.delta)

PLANTED = {
    "randomized response that flips for another budget": twice_the_budget,
    "smooth_cauchy whose distances come from the grid {0, 50}": gap_of_the_grid,
    "smooth_cauchy on evidence that jumps, by its table": jump_of_the_evidence,
    "released weights whose noise is made for half the sensitivity": half_the_noise,
    "objective perturbation that leaves out the determinant": no_determinant,
    "objective perturbation of several rows of one unit": rows_of_one_unit,
    "objective perturbation that leaves out its solver's residual": residual_left_out,
}

SOUND = {
    "randomized response that flips for its budget": the_budget,
    "the best of many events": the_best_of_many,
    "released weights whose noise is made for their sensitivity": the_noise,
    "objective perturbation as it is": objective_perturbation,
}


@dataclass(frozen=True)
class _Doubled:
    """A mechanism that says one thing and draws another."""

    says: Mechanism
    draws: Mechanism

    def __getattr__(self, name: str) -> object:
        return getattr(self.draws if name == "release" else self.says, name)


def _plan(seed: int, trials: int = 10_000, confidence: float = 0.95) -> Plan:
    return Plan(trials, confidence, source=SeededRandomness(seed))
