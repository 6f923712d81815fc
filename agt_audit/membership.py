"""agt audit membership: who was trained on, judged from what the model says of a record."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.labelling import Labelling
from agt.mechanisms.weights_mechanism import WeightsMechanism, labels_from
from agt.numeric import SystemRandomness
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.release import ReleaseTerms, WeightsRelease, reserve_and_draw
from agt.settings import schema
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.membership_attack import (
    ATTACKS,
    COPIES,
    Reference,
    Rehearsal,
    compare_labels,
    confidences,
    exposure,
    label_scores,
    loss_scores,
    spread_of,
)
from agt_audit.page import short
from agt_audit.roc import Roc, fewest
from agt_audit.shadows import SIZES, Pool, ShadowConfig, Shadows, class_logits, trained_shadows
from agt_cli.report.console import Console
from agt_cli.report.figures import WIDTH, drawing, headline, keys
from agt_cli.report.findings import Finding, Outcome, Strength
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import certifying
from agt_cli.runs.queries import OpenedRun

LABELS = "labels"
WORDS = {
    "loss": "attack by the loss, with one threshold for all records (Yeom et al. 2018)",
    "lira_online": (
        "LiRA, online: likelihood ratio between models trained with and without the record "
        "(Carlini et al. 2022)"
    ),
    "lira_offline": "LiRA, offline: uses only shadow models that were trained without the record",
    "rmia": "RMIA, offline: pairwise likelihood ratios of the record against the other attacked "
    "records (Zarifzadeh et al. 2024)",
    LABELS: (
        f"label-only attack: uses the labels of the record and of {COPIES} noisy copies of it "
        "(Choquette-Choo et al. 2021)"
    ),
}
LINES: dict[str, dict[str, Any]] = {
    "loss": {"color": "0.45", "linewidth": 3},
    "lira_online": {"color": "#d94801", "linewidth": 1.8},
    "lira_offline": {"color": "#2171b5", "linewidth": 1.4, "linestyle": "--"},
    "rmia": {"color": "#238b45", "linewidth": 1.4, "linestyle": "-."},
    "labels": {"color": "black", "linewidth": 1.2, "linestyle": ":"},
}
CURVE_POINTS = 300
MIN_RATE, MAX_START = 1e-4, 0.5  # share of false alarms that is drawn; an axis begins no later
CLASSES_DIFFER = 0.05  # shares of classes that differ by more are told beside each number
RATES = (0.001, 0.01)
UNCLAIMED = "nothing is claimed about this attack, because certificates cover labels, not scores"
NOBODY = (
    "the attack was not tested, because the run has no test records that it was not trained on "
    "(non-members)"
)
UPSIDE_DOWN = (
    "the scores of this attack are UPSIDE DOWN: non-members score higher than members (the AUC "
    "is {shown}), so the attack shows nothing. Look for a wrong sign, for members and "
    "non-members being swapped, or for test records that are easier than training records"
)
EXPOSED = "exposed_NOT_FOR_PUBLICATION"
BINS = (0, 1, 10, 50)
COLUMNS = (
    f"in tables/{EXPOSED}.csv, 'score_lira' is the logarithm of LiRA's likelihood ratio for the "
    "run's own model, which was trained on more records than the shadow models were. "
    "'standard_error' is the asymptotic standard error of 'score_lira', which comes from the "
    "uncertainty of the shadow models' means",
    f"in tables/{EXPOSED}.csv, 'shift' says by how many standard deviations training on the "
    "record raises the confidence in it, on average over pairs of shadow models (in each pair, "
    "a fair coin decides which model has the record). 'shift_error' is the standard error of "
    "this average",
)


@schema
class Membership(AuditKind):
    """Attacks a run's model: with scores, which are reported; and with labels at certified queries,
    which must not tell.

    Attributes:
        shadows: how many shadow models, an even number; 0: none, and the attacks that need them are
            left out.
        workers: as ``ShadowConfig``.
        pairs: how many units are left out, one at a time.
        exposed: how many records the table of the most exposed has.
    """

    name: ClassVar[str] = "membership"
    needs_classes: ClassVar[bool] = True
    shadows: Annotated[int, Field(ge=0, le=4096, multiple_of=2)] = 64
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    pairs: Annotated[int, Field(ge=0)] = 20
    exposed: Annotated[int, Field(ge=1)] = 50

    def check(self, given: AuditInputs) -> None:
        """A run is needed, and no queries; a mechanism may be named."""
        super().check(given)
        if given.config.get("mechanism") is not None:
            given.mechanism()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train shadow models, attack, compare."""
        opened = given.open(record, console)
        pool, run = Pool.of(opened.dataset), opened.trained.finished
        shadows = None
        if self.shadows:
            config = ShadowConfig(self.shadows, given.seed, self.workers)
            shadows = trained_shadows(config, given, opened, console)
        attacked = AttackedModel(given, opened, pool, shadows, console)
        units = attacked.units_to_leave_out(self.pairs, given.seed)
        why, records = (
            _incomparable(opened.kept.problem, self.pairs, attacked.distance),
            pool.records,
        )
        labels = compare_labels(
            opened.model, units, records.features, attacked.distance, records.ids, why
        )
        findings = (*attacked.scored(), labels)
        tables = {
            "membership": attacked.attacks_table(),
            "by_stable_distance": attacked.distances_table(),
        }
        tables[EXPOSED] = attacked.exposed_table().head(self.exposed)
        captions = draw_curves(record, opened.dataset.name, attacked.rocs, attacked.rehearsal)
        metrics: dict[str, float] = {f"auc_{name}": roc.area for name, roc in attacked.rocs.items()}
        metrics |= {"shadows": len(shadows), "shadows_reused": shadows.reused} if shadows else {}
        return Audited.of(
            run, findings, attacked.notes(), tables=tables, captions=captions, metrics=metrics
        )


def _incomparable(problem: Problem, pairs: int, distance: np.ndarray) -> str:
    """Why labels of trainings with and without a unit cannot be compared; empty: they can."""
    settings = problem.settings
    if not pairs:
        return "audit.pairs=0"
    if not RELATIONS[settings.relation.name].includes_one_removal:
        return (
            "models with and without a record were not compared, because certificates under "
            f"relation={settings.relation.name} cover a record that is replaced, but not one "
            "that is left out"
        )
    hidden = settings.certificate.noise != "none"
    if settings.noise is not None or hidden:
        return (
            "models with and without a record were not compared, because the run's random noise "
            "was not stored and its certificates hold for that noise only"
        )
    return (
        ""
        if (distance >= 1).any()
        else (
            "models with and without a record were not compared, because no attacked record has "
            "a stable distance of 1 or more (is certified)"
        )
    )


def _rehearsed(
    shadows: Shadows | None, pool: Pool
) -> tuple[Reference | None, Rehearsal | None, str]:
    """(the shadow models, each of them as the target, or why neither can be used)."""
    if shadows is None:
        return (
            None,
            None,
            (
                "the attack was not made, because it needs shadow models (audit.shadows=0): set "
                "audit.shadows=64, for example"
            ),
        )
    reference = Reference.of(shadows, pool.records.labels)
    try:
        return reference, Rehearsal.of(reference), ""
    except ConfigError as error:
        return None, None, str(error)


def _service(
    given: AuditInputs, opened: OpenedRun, features: np.ndarray
) -> tuple[Callable[[np.ndarray], np.ndarray], str]:
    """(what gives labels, in words): the model itself, or releases that are drawn as agt predict
    draws them.
    """
    model, randomness = opened.model, SystemRandomness()
    if given.config.get("mechanism") is None:
        return model.predict, "the model's own labels"
    config = given.mechanism()
    mechanism = config.mechanism(model.problem.classes, (COPIES + 1) * len(features))
    how = f"labels released by {config.kind.name}"
    if config.releases_weights:
        weights_mechanism = cast(WeightsMechanism, mechanism)
        terms = ReleaseTerms(conditions=opened.conditions)
        released = reserve_and_draw(WeightsRelease.judged(model, weights_mechanism, terms))
        return lambda queries: labels_from(model, queries)(released), how
    accounting, counting = (given.config[key] for key in ("accounting", "counting"))
    labelling = Labelling.judged(model, mechanism, opened.conditions, accounting, counting)  # type: ignore[arg-type]
    return lambda queries: labelling.labels(queries, randomness), how


class AttackedModel:
    """The run's own model and what is judged by it: every attack's scores; without shadow models,
    of those that need none.

    Attributes:
        reference, rehearsal: what shadow models make of each record; each of them as the target.
            None: there are none, or too few, and ``why`` says so.
        phi: [n] its confidence in each record's label, as ln(p/(1 - p)).
        distance: [n] stable distances.
        scores: name of an attack -> [n].
        how: who gave the labels: the model, or a mechanism.
    """

    def __init__(
        self,
        given: AuditInputs,
        opened: OpenedRun,
        pool: Pool,
        shadows: Shadows | None,
        console: Console,
    ) -> None:
        model, records = opened.model, pool.records
        self.opened, self.pool, self.shadows, self.confidence = (
            opened,
            pool,
            shadows,
            given.confidence,
        )
        self.reference, self.rehearsal, self.why = _rehearsed(shadows, pool)
        self.phi = confidences(class_logits(model, records.features), records.labels)
        self.scores = {"loss": loss_scores(self.phi)}
        if self.reference is not None:
            self.scores = {
                name: attack(self.phi, self.reference) for name, attack in ATTACKS.items()
            }
        answer, self.how = _service(given, opened, records.features)
        self.scores[LABELS] = label_scores(answer, records.features, records.labels, given.seed)
        with certifying(model, console) as report:
            self.distance = model.certify(records.features, on_progress=report).stable_distance
        self.two_sided = bool(pool.member.any() and not pool.member.all())
        self.rocs = {name: self.roc(name) for name in self.scores} if self.two_sided else {}

    def roc(self, name: str, rows: np.ndarray | slice = slice(None)) -> Roc:
        """Of some records. Raises ConfigError: one side is empty."""
        return Roc(self.scores[name][rows], self.pool.member[rows])

    @property
    def difference(self) -> float:
        """The most by which the shares of a class differ between both sides, which scores tell,
        too.
        """
        member, labels, classes = (
            self.pool.member,
            self.pool.records.labels,
            len(self.opened.dataset.classes),
        )
        members, others = (
            np.bincount(labels[side], minlength=classes) / side.sum() for side in (member, ~member)
        )
        return float(np.abs(members - others).max())

    def units_to_leave_out(self, pairs: int, seed: int) -> np.ndarray:
        """Half of them the most exposed, half at random."""
        member = np.flatnonzero(self.pool.member)
        scores, units = (
            self.scores.get("lira_online", self.scores["loss"])[member],
            self.pool.records.units[member],
        )
        exposed = units[np.argsort(-scores, kind="stable")[: (pairs + 1) // 2]]
        others = np.random.default_rng(seed).permutation(units)
        return np.array(list(dict.fromkeys([*exposed.tolist(), *others.tolist()]))[:pairs])

    # -- findings
    # ----------------------------------------------------------------------------------------------

    def scored(self) -> Iterator[Finding]:
        """What each attack's scores told: of the run's own model, and of the shadow models in
        turn.
        """
        made = 0 if self.shadows is None else len(self.shadows)
        difference = self.difference if self.two_sided else 0.0
        points = 100 * difference
        members = int(self.pool.member.sum())
        test_records = len(self.pool) - members
        sides = f"{members:,} training records are compared with {test_records:,} test records"
        differ = (
            f" (of training and test records, whose class shares differ by up to {points:.1f} "
            "percentage points)"
        )
        differ = differ if difference >= CLASSES_DIFFER else ""
        if self.rehearsal is not None:
            yield from (_in_turn(name, self.rehearsal, self.confidence) for name in ATTACKS)
        for name, words in WORDS.items():
            missing = NOBODY if not self.two_sided else self.why if name not in self.scores else ""
            blank = Finding(
                subject=f"membership by {name}{differ}",
                claim=UNCLAIMED,
                attack=words,
                effort=f"{sides}; {made} shadow models",
                outcome=Outcome.UNTESTED,
                meaning=f"{name}: {missing}",
                measure="AUC",
                strength=Strength.ASYMPTOTIC,
            )
            yield (
                blank
                if missing
                else area_of(blank, f"{name}{differ}", self.roc(name), self.confidence)
            )

    # -- tables and notes
    # ----------------------------------------------------------------------------------------------

    def attacks_table(self) -> pd.DataFrame:
        """A line for each attack on the run's own model; beside it the mean over shadow models
        as targets.
        """
        rows = []
        for name, roc in self.rocs.items():
            row: dict[str, Any] = {"attack": name, **_area(roc, self.confidence)}
            for rate in RATES:
                point, at = roc.at(rate, self.confidence), f"TPR_at_{100 * rate:g}%_FPR"
                row |= {
                    at: point.tpr,
                    f"{at}_low": point.tpr_limits[0],
                    f"{at}_high": point.tpr_limits[1],
                }
            if self.rehearsal is not None and name in self.rehearsal.scores:
                fixed = roc.beyond(self.rehearsal.threshold(name), self.confidence)
                (low, high), advantage = fixed.advantage_limits, fixed.tpr - fixed.fpr
                row |= {"advantage": advantage, "advantage_low": low, "advantage_high": high}
                row["balanced_accuracy"] = (1 + advantage) / 2
                row["AUC_on_halves"] = spread_of(each.area for each in self.rehearsal.rocs(name))[0]
            rows.append(row)
        return pd.DataFrame(rows).round(5)

    def distances_table(self) -> pd.DataFrame:
        """A line for each bin of stable distances and each attack."""
        spans, rows = [(low, high - 1) for low, high in pairwise([*BINS, np.inf])], []
        for low, high in [*spans, (1, np.inf)]:
            here = (self.distance >= low) & (self.distance <= high)
            words = (
                f"{low}"
                if low == high
                else f"{low} or more"
                if high == np.inf
                else f"{low} to {high}"
            )
            counts = {
                "members": int(self.pool.member[here].sum()),
                "others": int((~self.pool.member[here]).sum()),
            }
            for name in self.scores:
                row: dict[str, Any] = {"stable_distance": words, "attack": name, **counts}
                if all(counts.values()):
                    roc = self.roc(name, here)
                    row |= {
                        **_area(roc, self.confidence),
                        "TPR_at_1%_FPR": roc.at(RATES[1], self.confidence).tpr,
                    }
                rows.append(row)
        return pd.DataFrame(rows).round(5)

    def exposed_table(self) -> pd.DataFrame:
        """Training records, the most exposed first."""
        records, member, classes = self.pool.records, self.pool.member, self.opened.dataset.classes
        table = pd.DataFrame(
            {
                "id": records.ids,
                "unit": records.units,
                "label": [classes[y] for y in records.labels],
            }
        )
        table["stable_distance"], by = self.distance, "score_loss"
        if self.reference is None or self.rehearsal is None or len(self.reference.pairs.phi) < 4:
            table[by] = self.scores["loss"]
        else:
            by, table = "score_lira", table.assign(**exposure(self.phi, self.reference))
            table[f"guessed_right_of_{len(self.rehearsal.included)}"] = self.rehearsal.right(
                "lira_online"
            )
        return table[member].sort_values(by, ascending=False, kind="stable").map(short)

    def notes(self) -> Iterator[str]:
        """What a reader must know beside the findings."""
        yield f"the label-only attack used {self.how}, and asked each query only once"
        rate = 100 * RATES[0]
        points = 100 * self.difference if self.two_sided else 0.0
        few = fewest(RATES[0], int((~self.pool.member).sum()))
        if few and self.two_sided:
            yield (
                f"detection rates at {rate:g} % false alarms were measured at a threshold that "
                f"gives no false alarm at all, because {few}"
            )
        if self.two_sided:
            yield (
                "on the run's own model, members are training records and non-members are test "
                "records, so scores also show other differences between these records (their "
                f"class shares differ by up to {points:.1f} percentage points). On models "
                "trained on random halves there are no such differences"
            )
        if self.shadows is not None:
            yield SIZES
            if self.shadows.failed:
                (index, error), count = self.shadows.failed[0], len(self.shadows.failed)
                yield (
                    f"shadow models that failed and were left out: {count}. Error of model "
                    f"number {index}, the first of them: {error}"
                )
        if self.rehearsal is not None:
            yield from COLUMNS


def _area(roc: Roc, confidence: float) -> dict[str, float]:
    low, high = roc.area_limits(confidence)
    return {"AUC": roc.area, "AUC_low": low, "AUC_high": high}


def area_of(blank: Finding, name: str, roc: Roc, confidence: float) -> Finding:
    """The area under an attack's curve, and who is found at few false alarms; scores that are
    upside down show nothing.
    """
    low, high = roc.area_limits(confidence)
    percentage = 100 * confidence
    rate = 100 * RATES[1]
    shown = f"{roc.area:.3f} ({low:.3f} to {high:.3f} with {percentage:.12g} % confidence)"
    if roc.area < 0.45 and high < 0.5:  # higher for non-members, surely
        return replace(blank, meaning=f"{name}: {UPSIDE_DOWN.format(shown=shown)}")
    at = roc.at(RATES[1], confidence)
    few = fewest(RATES[1], at.mistakes.trials_without)
    if at.mistakes.alarms < RATES[1] * at.mistakes.trials_without / 2 and not few:
        few = (
            f"no threshold gives about {rate:g} % false alarms, because the scores have only few "
            "different values: the threshold that was used gives fewer"
        )
    detected = 100 * at.tpr
    limits = " to ".join(f"{100 * limit:.2f}" for limit in at.tpr_limits)
    meaning = (
        f"{name}: a training record scores higher than a test record with probability {shown}. "
        f"At {rate:g} % false alarms, {detected:.2f} % of training records are detected (with "
        f"{percentage:.12g} % confidence, {limits} %)"
    )
    if few:
        meaning += f"; {few}"
    smallest_auc = min(1.0, 0.5 + high - roc.area)
    noticeable = f"this audit detects an AUC of at least {smallest_auc:.3f} as different from 0.5"
    found: dict[str, Any] = {
        "found": roc.area,
        "confidence": confidence,
        "noticeable": noticeable,
        "estimator": "DeLong",
    }
    return replace(blank, outcome=Outcome.REPORTED, meaning=meaning, **found)


def _in_turn(name: str, rehearsal: Rehearsal, confidence: float) -> Finding:
    """Each shadow model as the target."""
    rocs = rehearsal.rocs(name)
    area, spread = spread_of(roc.area for roc in rocs)
    rate, rate_spread = spread_of(roc.at(RATES[1], confidence).tpr for roc in rocs)
    false_alarms, detected, detected_spread = (
        100 * share for share in (RATES[1], rate, rate_spread)
    )
    attack = WORDS[name]
    records = rehearsal.included.shape[1]
    return Finding(
        subject=f"membership by {name}, on models trained on half of the records",
        claim=UNCLAIMED,
        attack=(
            f"{attack}. Each shadow model in turn is the target, and the others are used to "
            "attack it"
        ),
        effort=f"{len(rocs)} target models were attacked, each on {records:,} records, about half "
        "of which it was trained on",
        outcome=Outcome.REPORTED,
        meaning=(
            f"{name}, on models trained on random halves: the mean AUC over the target models is "
            f"{area:.3f} (standard deviation {spread:.3f}). At {false_alarms:g} % false alarms, "
            f"{detected:.2f} % of members are detected (standard deviation {detected_spread:.2f} "
            "%). There are no confidence limits, because target models share records"
        ),
        measure="AUC",
        found=area,
        strength=Strength.CERTAIN,  # of these targets, and of no more
        estimator="mean over these targets",
    )


# -- curves, both rates in log scale: what counts is who is found at few false alarms
# ------------------------------------


def draw_curves(
    record: RunRecord, dataset: str, own: Mapping[str, Roc], rehearsal: Rehearsal | None
) -> dict[str, str]:
    """Draw what there is; captions by name."""
    captions = dict[str, str]()
    if own:
        about = (
            f"{dataset}: attacks on the run's own model, comparing training records with test "
            "records."
        )
        captions |= _draw(record, "roc", own, "training records", about)
    if rehearsal is not None:
        pooled = {
            name: Roc(rows.ravel(), rehearsal.included.ravel())
            for name, rows in rehearsal.scores.items()
        }
        models = len(rehearsal.included)
        about = (
            f"{models} models, each trained on half of the records, are attacked in turn, with "
            "one threshold for all models."
        )
        captions |= _draw(record, "roc_halves", pooled, "members", f"{dataset}: {about}")
    return captions


def _draw(
    record: RunRecord, name: str, rocs: Mapping[str, Roc], members: str, about: str
) -> dict[str, str]:
    others = int((~next(iter(rocs.values())).member).sum())
    rates = np.geomspace(min(max(1 / others, MIN_RATE), MAX_START), 1, CURVE_POINTS)
    data = pd.DataFrame(
        {"FPR": rates, **{attack: _shares(roc, rates) for attack, roc in rocs.items()}}
    )
    values = data.to_numpy()
    floor = min(float(values[values > 0].min()), MAX_START)
    best = max(rocs, key=lambda attack: rocs[attack].at(0.01, 0.95).tpr)
    with drawing(record, name, data, (WIDTH, 4.6)) as figure:
        axes = figure.subplots()
        axes.plot(rates, rates, color="0.8", linewidth=1, label="guessing")
        for attack in rocs:
            seen = data[attack] > 0
            axes.step(rates[seen], data[attack][seen], where="post", label=attack, **LINES[attack])
        axes.set(xscale="log", yscale="log", xlim=(rates[0], 1), ylim=(floor, 1))
        axes.set(
            xlabel="false alarms (share of non-members taken for members)",
            ylabel="share of members that are detected",
        )
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda share, place: f"{100 * share:g} %"))
        keys(figure, [axes])
        point = rocs[best].at(0.01, 0.95)
        false_alarms = 100 * point.fpr
        detected = 100 * point.tpr
        headline(
            figure,
            f"At {false_alarms:.2g} % false alarms, {detected:.2g} % of the {members} are "
            f"detected (by {best})",
            about,
        )
    return {name: about}


def _shares(roc: Roc, rates: np.ndarray) -> np.ndarray:
    """[len(rates)] the share of members found with at most such a share of false alarms."""
    members, others = int(roc.member.sum()), int((~roc.member).sum())
    place = np.searchsorted(roc.curve[:, 1] / others, rates * (1 + 1e-12), side="right") - 1
    return roc.curve[place, 2] / members
