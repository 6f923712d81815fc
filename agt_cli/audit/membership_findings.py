"""What membership inference told: scores are reported, labels at certified queries are held against their claim."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.membership import (
    ATTACKS,
    Reference,
    Rehearsal,
    coin_guesses,
    fewest,
    labels_finding,
    spread_of,
    told_apart,
    upside_down,
)
from agt.audit.one_run import MOST, canaries_needed, one_run_epsilon, planned_guesses
from agt.audit.roc import Roc
from agt.audit.shadows import Shadows
from agt.audit.written import least
from agt.problem import Problem
from agt.settings import RemovalConfig
from agt_cli.audit.membership_target import WORDS, Target

UNLIKE = 0.05  # shares of classes that differ by more are told beside each number
RATES = (0.001, 0.01)
BOUND = "exact"  # of one_run.BOUNDS
UNCLAIMED = "nothing: certificates speak of labels, and say nothing about scores"
NOBODY = "no non-members at hand: every test record was trained on, or there is none"
UPSIDE_DOWN = (
    "the scores are UPSIDE DOWN: AUC {shown} is far below one half, non-members score above members. Such an attack shows "
    "nothing: look for a sign, for swapped sides, or for test records that are easier than training records"
)


def scored(
    target: Target, rehearsal: Rehearsal | None, why: str, shadows: Shadows | None, confidence: float
) -> Iterator[Finding]:
    """What each attack's scores told: of the run's own model, and of the shadow models in turn.

    Args:
        why: there is no rehearsal.
    """
    made, unlike = 0 if shadows is None else len(shadows), target.unlike if target.two_sided else 0.0
    differ = f" (training against test, whose classes differ by up to {100 * unlike:.1f} points)" * (unlike >= UNLIKE)
    for name in ATTACKS if rehearsal is not None else ():
        yield _in_turn(name, rehearsal, confidence)  # type: ignore[arg-type]
    for name, words in WORDS.items():
        missing = NOBODY if not target.two_sided else why if name not in target.scores else ""
        blank = Finding(
            subject=f"membership by {name}{differ}",
            claim=UNCLAIMED,
            attack=words,
            effort=f"{target.sides}; {made} shadow models",
            outcome=Outcome.UNTESTED,
            meaning=f"{name}: {missing}",
            measure="AUC",
            strength=Strength.ASYMPTOTIC,
        )
        yield blank if missing else area_of(blank, f"{name}{differ}", target.roc(name), confidence)


def area_of(blank: Finding, name: str, roc: Roc, confidence: float) -> Finding:
    """The area under an attack's curve, and who is found at few false alarms; scores that are upside down show nothing."""
    low, high = roc.area_limits(confidence)
    shown = f"{roc.area:.3f} ({low:.3f} to {high:.3f} at {100 * confidence:.12g} %)"
    if upside_down(roc, confidence):
        return replace(blank, meaning=f"{name}: {UPSIDE_DOWN.format(shown=shown)}")
    at = roc.at(RATES[1], confidence)
    few = fewest(RATES[1], at.mistakes.without)
    if at.mistakes.alarms < RATES[1] * at.mistakes.without / 2 and not few:
        few = f"no threshold lies near {100 * RATES[1]:g} %, as scores take few values: this one has fewer false alarms"
    limits = " to ".join(f"{100 * limit:.2f}" for limit in at.tpr_limits)
    meaning = (
        f"{name}: a training record scores above a test record with probability {shown}; at {100 * RATES[1]:g} % "
        f"false alarms {100 * at.tpr:.2f} % of training records are found ({limits} %){f'; {few}' if few else ''}"
    )
    told = f"an AUC of {min(1.0, 0.5 + high - roc.area):.3f} or more would have been told from one half"
    found = {"found": roc.area, "confidence": confidence, "noticeable": told, "estimator": "DeLong"}
    return replace(blank, outcome=Outcome.REPORTED, meaning=meaning, **found)  # type: ignore[arg-type]


def _in_turn(name: str, rehearsal: Rehearsal, confidence: float) -> Finding:
    """Each shadow model as the target."""
    rocs = rehearsal.rocs(name)
    area, apart = spread_of(roc.area for roc in rocs)
    rate, unlike = spread_of(roc.at(RATES[1], confidence).tpr for roc in rocs)
    return Finding(
        subject=f"membership by {name}, of models on half of the records",
        claim=UNCLAIMED,
        attack=f"{WORDS[name]}; each shadow model in turn is the target, judged by the others",
        effort=f"{len(rocs)} targets of {rehearsal.included.shape[1]} records, about half of them members",
        outcome=Outcome.REPORTED,
        meaning=(
            f"{name}, on halves: AUC {area:.3f} on average over targets, whose standard deviation is {apart:.3f}; at "
            f"{100 * RATES[1]:g} % false alarms {100 * rate:.2f} % of members are found (standard deviation "
            f"{100 * unlike:.2f} %). Members are drawn by a hash: no difference between training and test records plays a "
            "part. Targets share records, so that no limits follow"
        ),
        measure="AUC",
        found=area,
        strength=Strength.CERTAIN,  # of these targets, and of no more
        estimator="mean over these targets",
    )


# -- labels at certified queries ---------------------------------------------------------------------------------------


def certified_labels(target: Target, pairs: int, seed: int) -> Finding:
    """Whether labels at certified queries told who was trained on."""
    problem = target.opened.kept.problem
    why = _incomparable(problem, pairs, target.distance)
    if why:
        return labels_finding(None, target.pool.records.ids, target.distance, why)
    units = left_out(target, pairs, seed)
    apart = told_apart(target.opened.model, problem, units, target.pool.records.features, target.distance)
    return labels_finding(apart, target.pool.records.ids, target.distance)


def _incomparable(problem: Problem, pairs: int, distance: np.ndarray) -> str:
    """Why labels of trainings with and without a unit cannot be compared; empty: they can."""
    settings = problem.settings
    if not pairs:
        return "audit.pairs=0"
    if settings.relation.name == "substitute":
        return "relation=substitute: its certificates compare with a record replaced, not left out"
    hidden = isinstance(settings.certificate, RemovalConfig) and settings.certificate.masking != "none"
    if settings.noise is not None or hidden:
        return "the training drew noise, and certificates hold given the draw, which is not kept"
    return "" if (distance >= 1).any() else "no record of the pool has a stable distance of 1 or more"


def left_out(target: Target, pairs: int, seed: int) -> np.ndarray:
    """Units to leave out: half of them the most exposed, half at random."""
    member = np.flatnonzero(target.pool.member)
    scores = target.scores.get("lira_online", target.scores["loss"])[member]
    units = target.pool.records.units[member]
    exposed = units[np.argsort(-scores, kind="stable")[: (pairs + 1) // 2]]
    others = np.random.default_rng(seed).permutation(units)
    return np.array(list(dict.fromkeys([*exposed.tolist(), *others.tolist()]))[:pairs])


# -- noise inside training ---------------------------------------------------------------------------------------------


def noise_claim(target: Target, reference: Reference | None, confidence: float) -> Iterator[Finding]:
    """What scores say of a claim that training itself is private: an audit in one run, of the first shadow model."""
    noise, units = target.opened.kept.problem.settings.noise, target.pool.records.units
    if noise is None:
        return
    blank = Finding(
        subject="noise inside training",
        claim=f"weights are ({noise.epsilon:g}, {noise.delta:g})-differentially private",
        attack="LiRA online guesses which units the first shadow model saw, each by a fair coin; it claims the same",
        effort="none",
        outcome=Outcome.UNTESTED,
        meaning="not tested",
        measure="epsilon",
        claimed=noise.epsilon,
        delta=noise.delta,
        confidence=confidence,
        estimator=BOUND,
    )
    if reference is None or noise.seed is not None:
        why = "no shadow models to guess with" if reference is None else "noise.seed makes this noise a simulation"
        yield replace(blank, meaning=why)
        return
    canaries = len(np.unique(units))
    planned = planned_guesses(canaries, noise.epsilon, noise.delta, confidence, BOUND, contradicting=True)
    made = coin_guesses(reference, units, planned)
    shown, most = (
        one_run_epsilon(right, made.made, canaries, noise.delta, confidence, BOUND) for right in (made.right, made.made)
    )
    effort = f"{made.made} guesses about {canaries} units, their number fixed by the claim"
    if most <= noise.epsilon:
        few = canaries_needed(noise.epsilon, noise.delta, confidence, BOUND)
        enough = f"{few:,} are the least" if few < MOST else "with this confidence and delta no number would do"
        why = f"too few units to contradict epsilon {noise.epsilon:g}, whatever is guessed: {enough}"
        yield replace(blank, effort=effort, meaning=why, noticeable=f"nothing: {why}")
        return
    yield replace(
        blank,
        effort=effort,
        outcome=Outcome.VIOLATED if shown > noise.epsilon else Outcome.STANDS,
        meaning=f"{made.right} of {made.made} guesses were right: epsilon is at least {least(shown, noise.epsilon)}",
        found=shown,
        noticeable=f"an epsilon of up to {most:.3g}, had every guess been right",
    )
