"""agt audit membership: who was trained on, judged from what the model says of a record."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from agt.audit.estimates import epsilon_bound
from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.membership import ATTACKS as SCORES
from agt.audit.membership import (
    COPIES,
    Apart,
    Exposure,
    Reference,
    Rehearsal,
    confidences,
    fewest,
    label_scores,
    loss_scores,
    spread_of,
    told_apart,
    upside_down,
)
from agt.audit.roc import Roc
from agt.audit.shadows import Pool, ShadowConfig, Shadows, class_logits, train_shadows
from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.mechanisms.release import Labelling, labels_from, prepare_weights
from agt.mechanisms.weights import ReleaseWeights
from agt.models.model import Model
from agt.problem import Problem
from agt.randomness import SystemRandomness
from agt.settings import RemovalConfig, schema, validate
from agt_cli.audit.job import Audited, Given
from agt_cli.audit.membership_figures import rocs_drawn
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.mechanisms import MechanismConfig, TotalConfig
from agt_cli.runs.model import certifying
from agt_cli.runs.queries import OpenedRun, TrainedRun

EXPOSED = "exposed_NOT_FOR_PUBLICATION"
RATES = (0.001, 0.01)
BINS = (0, 1, 10, 50)
LABELS = "labels"
WORDS = {
    "loss": "one threshold on the loss for all records (Yeom et al. 2018)",
    "lira_online": "LiRA: likelihood ratio of models with and without the record (Carlini et al. 2022)",
    "lira_offline": "LiRA from models without the record alone",
    "rmia": "RMIA, offline: pairwise likelihood ratios with the pool (Zarifzadeh et al. 2024)",
    LABELS: f"labels alone: of the record and {COPIES} noisy copies (Choquette-Choo et al. 2021)",
}
UNCLAIMED = "nothing: certificates speak of labels, and say nothing about scores"
OWNER = "for the data owner alone: this report names records and tells who was trained on"


@dataclass(frozen=True)
class Target:
    """The run's own model and what is judged by it.

    Attributes:
        opened: the run.
        pool: its records, and those that it has not seen.
        phi: [n] its confidence in each record's label, as ln(p/(1 - p)).
        distance: [n] stable distances.
        scores: name of an attack -> [n].
        how: who gave the labels: the model, or a mechanism.
    """

    opened: OpenedRun
    pool: Pool
    phi: np.ndarray
    distance: np.ndarray
    scores: Mapping[str, np.ndarray]
    how: str

    def roc(self, name: str, rows: np.ndarray | slice = slice(None)) -> Roc:
        """Of some records. Raises ConfigError: one side is empty."""
        return Roc(self.scores[name][rows], self.pool.member[rows])

    @property
    def sides(self) -> str:
        """How many there are of each."""
        members = int(self.pool.member.sum())
        return f"{members} training records against {len(self.pool) - members} test records"


@schema
class Membership:
    """Attacks a run's model: with scores, which are reported; and with labels at certified queries, which must not tell.

    Attributes:
        shadows: how many shadow models, an even number; 0: none, and the attacks that need them are left out.
        workers: as ``ShadowConfig``.
        pairs: how many units are left out, one at a time.
        exposed: how many records the table of the most exposed has.
    """

    name: ClassVar[str] = "membership"
    shadows: Annotated[int, Field(ge=0, le=4096)] = 64
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    pairs: Annotated[int, Field(ge=0)] = 20
    exposed: Annotated[int, Field(ge=1)] = 50

    def check(self, given: Given) -> None:
        """A run is needed, and no queries."""
        if given.run is None:
            raise ConfigError("run: give the folder of the training run to audit")
        if given.config.get("inputs") is not None:
            raise ConfigError("inputs: membership is asked of the run's own training and test records: leave inputs out")
        if self.shadows:
            self._shadow_config(given)
        _mechanism(given)

    def _shadow_config(self, given: Given) -> ShadowConfig:
        return ShadowConfig(self.shadows, given.seed, self.workers)

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Train shadow models, attack, compare."""
        opened = TrainedRun.of(given.config).open(record, console)
        pool = Pool.of(opened.dataset)
        shadows = self._train(given, opened.kept.problem, pool, console)
        reference = None if shadows is None else Reference.of(shadows, pool.records.labels)
        rehearsal, why = _rehearsed(reference)
        target = _attacked(given, opened, pool, reference if rehearsal else None, console)
        findings = [*_scored(target, rehearsal, why, shadows, given), self._certified(target, given.seed)]
        findings += _claimed(target, rehearsal, given)
        tables = {"membership": _attacks_table(target, rehearsal, given.confidence)}
        tables["by_stable_distance"] = _split(target, given.confidence)
        tables[EXPOSED] = _exposed(target, reference if rehearsal else None, rehearsal).head(self.exposed)
        drawn = rocs_drawn(record, opened.dataset.name, _curves(target), rehearsal, WORDS)
        notes = tuple(_notes(target, shadows, rehearsal, given.confidence))
        metrics = {f"auc_{name}": target.roc(name).area for name in target.scores} if _two_sided(pool) else {}
        subject = opened.trained.finished
        return Audited(subject.folder.name, subject.digest, tuple(findings), notes, tables, drawn, metrics)

    def _train(self, given: Given, problem: Problem, pool: Pool, console: Console) -> Shadows | None:
        if not self.shadows:
            return None
        with console.progress(f"training {self.shadows} shadow models", "model") as report:
            return train_shadows(
                problem,
                pool,
                self._shadow_config(given),
                given.output_dir / "shadows",
                lambda done: report(done, self.shadows, done, self.shadows),
            )

    def _certified(self, target: Target, seed: int) -> Finding:
        """What labels at certified queries told of who was trained on."""
        problem, pool = target.opened.kept.problem, target.pool
        why = _incomparable(problem, self.pairs, target.distance)
        if why:
            return _told(target, None, why)
        units = _left_out(target, self.pairs, seed)
        return _told(target, told_apart(target.opened.model, problem, units, pool.records.features, target.distance), "")


def _rehearsed(reference: Reference | None) -> tuple[Rehearsal | None, str]:
    """(each shadow model as the target, why that cannot be)."""
    if reference is None:
        return None, "no shadow models: audit.shadows=0"
    try:
        return Rehearsal.of(reference), ""
    except ConfigError as error:
        return None, str(error)


def _attacked(given: Given, opened: OpenedRun, pool: Pool, reference: Reference | None, console: Console) -> Target:
    """Every attack's scores on the run's own model."""
    model, records = opened.model, pool.records
    phi = confidences(class_logits(model, records.features), records.labels)
    names = SCORES if reference is not None else {"loss": loss_scores}
    scores = {name: attack(phi, reference) for name, attack in names.items()}  # type: ignore[arg-type]
    answer, how = _service(given, model, opened.conditions, records.features)
    scores[LABELS] = label_scores(answer, records.features, records.labels, given.seed)
    with certifying(model, console) as report:
        distance = model.certify(records.features, on_progress=report).stable_distance
    return Target(opened, pool, phi, distance, scores, how)


def _mechanism(given: Given) -> MechanismConfig | None:
    node, total = given.config.get("mechanism"), validate(TotalConfig, given.config.get("total") or {}, "total")
    return None if node is None else MechanismConfig.of(node, total)


def _service(
    given: Given, model: Model, conditions: tuple[Condition, ...], features: np.ndarray
) -> tuple[Callable[[np.ndarray], np.ndarray], str]:
    """(what gives labels, in words): the model itself, or a mechanism whose releases are drawn as agt predict draws them."""
    config, randomness = _mechanism(given), SystemRandomness()
    if config is None:
        return model.predict, "nominal labels"
    mechanism = config.mechanism(model.problem.classes, (COPIES + 1) * len(features))
    how = f"labels released by {config.kind.name}"
    if isinstance(mechanism, ReleaseWeights):
        released = prepare_weights(model, mechanism, conditions=conditions).draw(randomness)
        return lambda queries: labels_from(model, queries)(released.weight), how
    accounting, counting = (given.config.get(key) for key in ("accounting", "counting"))
    labelling = Labelling.of(model, mechanism, conditions, accounting, counting)  # type: ignore[arg-type]
    return lambda queries: labelling.labels(queries, randomness), how


# -- findings ----------------------------------------------------------------------------------------------------------


def _two_sided(pool: Pool) -> bool:
    return bool(pool.member.any() and not pool.member.all())


def _scored(
    target: Target, rehearsal: Rehearsal | None, why: str, shadows: Shadows | None, given: Given
) -> Iterator[Finding]:
    """What each attack's scores told: of the run's own model, and of the shadow models in turn."""
    made = 0 if shadows is None else len(shadows)
    for name, words in WORDS.items():
        effort = f"{target.sides}; {made} shadow models"
        about = {
            "subject": f"membership by {name}",
            "claim": UNCLAIMED,
            "attack": words,
            "effort": effort,
            "measure": "AUC",
        }
        if name not in target.scores or not _two_sided(target.pool):
            missing = (
                why if name not in target.scores else "no non-members: every test record was trained on, or there is none"
            )
            yield Finding(**about, outcome=Outcome.UNTESTED, meaning=f"not tested: {missing}", strength=Strength.ASYMPTOTIC)
        else:
            yield _area(about, target.roc(name), given.confidence)
    if rehearsal is not None:
        for name in SCORES:
            yield _in_turn(name, rehearsal, given.confidence)


def _area(about: Mapping[str, Any], roc: Roc, confidence: float) -> Finding:
    low, high = roc.area_limits(confidence)
    shown = f"{roc.area:.3f} ({low:.3f} to {high:.3f} at {100 * confidence:g} %)"
    if upside_down(roc, confidence):
        meaning = (
            f"the scores are UPSIDE DOWN: AUC {shown} is far below one half, so that non-members score above members; such an "
            "attack shows nothing: look for a sign, for swapped sides, or for test records that are easier than training ones"
        )
        return Finding(**about, outcome=Outcome.UNTESTED, meaning=meaning, strength=Strength.ASYMPTOTIC)
    at = roc.at(RATES[1], confidence)
    few = fewest(RATES[1], at.mistakes.without)
    limits = " to ".join(f"{100 * limit:.2f}" for limit in at.tpr_limits)
    meaning = (
        f"a training record scores above a test record with probability {shown}; at {100 * RATES[1]:g} % false alarms "
        f"{100 * at.tpr:.2f} % of training records are found ({limits} %){f'; {few}' if few else ''}"
    )
    told = f"an AUC of {min(1.0, 0.5 + high - roc.area):.3f} or more would have been told from one half"
    return Finding(
        **about,
        outcome=Outcome.REPORTED,
        meaning=meaning,
        found=roc.area,
        strength=Strength.ASYMPTOTIC,
        confidence=confidence,
        noticeable=told,
        estimator="DeLong",
    )


def _in_turn(name: str, rehearsal: Rehearsal, confidence: float) -> Finding:
    rocs = rehearsal.rocs(name)
    area, low, high = spread_of((roc.area for roc in rocs), confidence)
    rate, least, most = spread_of((roc.at(RATES[1], confidence).tpr for roc in rocs), confidence)
    return Finding(
        subject=f"membership by {name}, of models on half of the records",
        claim=UNCLAIMED,
        attack=f"{WORDS[name]}; each shadow model in turn is the target, judged by the others",
        effort=f"{len(rocs)} targets of {rehearsal.included.shape[1]} records, about half of them members",
        outcome=Outcome.REPORTED,
        meaning=(
            f"AUC {area:.3f} ({low:.3f} to {high:.3f}) on average over targets; at {100 * RATES[1]:g} % false alarms "
            f"{100 * rate:.2f} % of members are found ({100 * least:.2f} to {100 * most:.2f} %). Members are drawn by a hash, "
            "so that no difference between training and test records plays a part"
        ),
        measure="AUC",
        found=area,
        strength=Strength.ASYMPTOTIC,
        confidence=confidence,
        estimator="Student's t over targets",
    )


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


def _left_out(target: Target, pairs: int, seed: int) -> np.ndarray:
    """Units to leave out: half of them the most exposed, half at random."""
    member = np.flatnonzero(target.pool.member)
    scores = target.scores.get("lira_online", target.scores["loss"])[member]
    units = target.pool.records.units[member]
    exposed = units[np.argsort(-scores, kind="stable")[: (pairs + 1) // 2]]
    others = np.random.default_rng(seed).permutation(units)
    return np.array(list(dict.fromkeys([*exposed.tolist(), *others.tolist()]))[:pairs])


def _told(target: Target, apart: Apart | None, why: str) -> Finding:
    certified = int((target.distance >= 1).sum())
    about = {
        "subject": "labels at certified queries",
        "claim": "certified queries' labels do not tell whether a unit was trained on: any attack on them has advantage 0",
        "attack": "the same queries asked of trainings with and without a unit: the most exposed ones, and random ones",
        "measure": "labels that differ",
        "strength": Strength.CERTAIN,
    }
    if apart is None:
        return Finding(**about, effort="none", outcome=Outcome.UNTESTED, meaning=f"not tested: {why}")  # type: ignore[arg-type]
    found = len(apart.told)
    where = (
        f", the first at record {target.pool.records.ids[apart.told[0][1]]} without unit {apart.told[0][0]}"
        if found
        else ""
    )
    return Finding(
        **about,  # type: ignore[arg-type]
        effort=f"{apart.pairs} units left out in turn, {apart.queries} certified queries asked of each pair",
        outcome=Outcome.VIOLATED if found else Outcome.STANDS,
        meaning=(
            f"{found} of {apart.pairs * apart.queries} labels differed{where}"
            if found
            else f"all {apart.pairs * apart.queries} labels were the same: advantage exactly 0 on these pairs"
        ),
        claimed=0.0,
        found=float(found),
        noticeable=f"one label that differs; {len(target.pool) - certified} uncertified records were not asked about",
    )


def _claimed(target: Target, rehearsal: Rehearsal | None, given: Given) -> Iterator[Finding]:
    """What the strongest scores say of a claim that training itself is private."""
    noise = target.opened.kept.problem.settings.noise
    if noise is None or rehearsal is None or not _two_sided(target.pool):
        return
    point = target.roc("lira_online").beyond(rehearsal.threshold("lira_online"), given.confidence)
    found = epsilon_bound(point.mistakes, noise.delta, given.confidence)
    yield Finding(
        subject="noise inside training",
        claim=f"({noise.epsilon:g}, {noise.delta:g})-differentially private weights",
        attack="LiRA online at one threshold, fixed on the shadow models",
        effort=target.sides,
        outcome=Outcome.REPORTED,
        meaning=(
            f"as if each record were a trial of its own, epsilon would be at least {found:.3g}, where {noise.epsilon:g} is "
            "claimed; records of one training are no such trials, and training records were not drawn by a coin: no bound "
            "that could call the claim false (agt audit dpsgd makes one)"
        ),
        measure="epsilon",
        claimed=noise.epsilon,
        delta=noise.delta,
        found=found,
        strength=Strength.ASYMPTOTIC,
        confidence=given.confidence,
        estimator="Clopper-Pearson",
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def _attacks_table(target: Target, rehearsal: Rehearsal | None, confidence: float) -> pd.DataFrame:
    """A line for each attack on the run's own model; beside it the mean over shadow models as targets."""
    rows = []
    for name in target.scores if _two_sided(target.pool) else ():
        roc = target.roc(name)
        row: dict[str, Any] = {"attack": name, "AUC": roc.area}
        row |= dict(zip(("AUC_low", "AUC_high"), roc.area_limits(confidence), strict=True))
        for rate in RATES:
            point, at = roc.at(rate, confidence), f"TPR_at_{100 * rate:g}%_FPR"
            row |= {at: point.tpr, f"{at}_low": point.tpr_limits[0], f"{at}_high": point.tpr_limits[1]}
        if rehearsal is not None and name in rehearsal.scores:
            fixed = roc.beyond(rehearsal.threshold(name), confidence)
            low, high = fixed.advantage_limits
            row |= {"advantage": fixed.advantage, "advantage_low": low, "advantage_high": high}
            row |= {"balanced_accuracy": (1 + fixed.advantage) / 2}
            row["AUC_on_halves"] = spread_of((each.area for each in rehearsal.rocs(name)), confidence)[0]
        rows.append(row)
    return pd.DataFrame(rows).round(5)


def _split(target: Target, confidence: float) -> pd.DataFrame:
    """A line for each attack and each bin of stable distances."""
    rows, edges = [], [*BINS, np.inf]
    bins = [
        (f"{low}" if high == low + 1 else f"{low} to {high - 1:g}", low, high)
        for low, high in zip(edges, edges[1:], strict=False)
    ]
    for words, low, high in [*bins, ("certified: 1 or more", 1, np.inf)]:
        here = (target.distance >= low) & (target.distance < high)
        words = words.replace("to inf", "or more")
        counts = {"members": int(target.pool.member[here].sum()), "others": int((~target.pool.member[here]).sum())}
        for name in target.scores:
            row: dict[str, Any] = {"stable_distance": words, "attack": name, **counts}
            if all(counts.values()):
                roc = target.roc(name, here)
                row |= {"AUC": roc.area, **dict(zip(("AUC_low", "AUC_high"), roc.area_limits(confidence), strict=True))}
                row["TPR_at_1%_FPR"] = roc.at(0.01, confidence).tpr
            rows.append(row)
    return pd.DataFrame(rows).round(5)


def _exposed(target: Target, reference: Reference | None, rehearsal: Rehearsal | None) -> pd.DataFrame:
    """Training records, the most exposed first."""
    records, member = target.pool.records, target.pool.member
    classes = target.opened.dataset.classes
    table = pd.DataFrame({"id": records.ids, "unit": records.units, "label": [classes[y] for y in records.labels]})
    table["stable_distance"] = target.distance
    if reference is None or rehearsal is None:
        table["score_loss"] = target.scores["loss"]
        return table[member].sort_values("score_loss", ascending=False, kind="stable")
    exposure = Exposure.of(target.phi, reference, member)
    table["score_lira"], table["standard_error"] = exposure.score, exposure.error
    table["p_without"], table["p_of_all"] = exposure.chance, exposure.adjusted
    table[f"guessed_right_of_{len(rehearsal.included)}"] = rehearsal.right("lira_online")
    return table[member].sort_values("score_lira", ascending=False, kind="stable")


def _curves(target: Target) -> dict[str, Roc]:
    return {name: target.roc(name) for name in target.scores} if _two_sided(target.pool) else {}


def _notes(target: Target, shadows: Shadows | None, rehearsal: Rehearsal | None, confidence: float) -> Iterator[str]:
    """What a reader must know beside the findings."""
    yield OWNER
    yield f"labels alone were attacked by {target.how}, each asked once"
    member, labels = target.pool.member, target.pool.records.labels
    few = fewest(RATES[0], int((~member).sum()))
    if few:
        yield f"at 0.1 % false alarms, only a threshold without any false alarm was looked at: {few}"
    if _two_sided(target.pool):
        apart = np.abs(
            np.bincount(labels[member], minlength=2) / member.sum() - _shares(labels[~member], labels[member])
        ).max()
        yield (
            "members are training records and non-members test records: where these differ in anything else, scores tell that "
            f"too (shares of classes differ by up to {100 * apart:.1f} points); halves drawn for shadow models do not differ"
        )
    if shadows is None:
        return
    yield (
        "shadow models are trained on about half of training and test records together, by the run's own settings with sizes "
        "(declared size, normaliser, n_max) brought to that half; whatever the recipe settles it settles for that size"
    )
    if shadows.failed:
        first = f"the first, number {shadows.failed[0][0]}: {shadows.failed[0][1]}"
        yield f"{len(shadows.failed)} shadow models failed and were left out; {first}"
    if rehearsal is not None:
        yield (
            "tables/"
            + EXPOSED
            + ".csv: score_lira is ln of the likelihood ratio and standard_error its error from the shadow "
            "models' means (asymptotic); p_without: how likely a model without the record is as sure of it, under a normal "
            "law; p_of_all: that times the number of training records, for many were looked at"
        )


def _shares(labels: np.ndarray, like: np.ndarray) -> np.ndarray:
    size = int(max(labels.max(), like.max())) + 1
    return np.bincount(labels, minlength=max(2, size))[: max(2, int(like.max()) + 1)] / len(labels)
