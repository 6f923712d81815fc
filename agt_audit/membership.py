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
    ShadowEvaluation,
    compare_labels,
    confidences,
    exposure,
    label_scores,
    loss_scores,
    spread_of,
)
from agt_audit.membership_classes import draw_advantage_by_class
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
    "loss": {"color": "0.45"},
    "lira_online": {"color": "#d94801"},
    "lira_offline": {"color": "#2171b5", "linestyle": "--"},
    "rmia": {"color": "#238b45", "linestyle": "-."},
    "labels": {"color": "black", "linestyle": ":"},
}
NAMES = {
    "loss": "loss threshold",
    "lira_online": "LiRA, online",
    "lira_offline": "LiRA, offline",
    "rmia": "RMIA, offline",
    "labels": "labels only",
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
    """Attacks a run's model with scores, which are reported, and with labels at certified queries.

    Scores may tell members from non-members; certified labels must not.

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
        """Refuse to go without a run, and a mechanism that is not complete; none need be named.

        Raises:
            ConfigError: by key.
        """
        super().check(given)
        if given.config.get("mechanism") is not None:
            given.mechanism()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train shadow models, attack, and compare certified labels.

        Raises:
            ConfigError: the run's data is gone or changed.
            CheckError: every shadow model failed.
        """
        opened = given.open(record, console)
        pool = Pool.of(opened.dataset)
        shadows = None
        if self.shadows:
            config = ShadowConfig(self.shadows, given.seed, self.workers)
            shadows = trained_shadows(config, given, opened, console)
        attacked = AttackedModel(given, opened, pool, shadows, console)
        labels = compare_labels(
            opened.model,
            attacked.units_to_leave_out(self.pairs, given.seed),
            pool.records.features,
            attacked.distance,
            pool.records.ids,
            _incomparable(opened.kept.problem, self.pairs, attacked.distance),
        )
        findings = (*attacked.scored(), labels)
        tables = {
            "membership": attacked.attacks_table(),
            "by_stable_distance": attacked.distances_table(),
            EXPOSED: attacked.exposed_table().head(self.exposed),
        }
        captions = draw_curves(record, opened.dataset.name, attacked.rocs, attacked.evaluation)
        captions |= draw_advantage_by_class(
            record,
            attacked.rocs,
            pool.records.labels,
            opened.dataset.classes,
            {attack: (NAMES[attack], LINES[attack]["color"]) for attack in attacked.rocs},
        )
        metrics: dict[str, float] = {f"auc_{name}": roc.area for name, roc in attacked.rocs.items()}
        if shadows:
            metrics |= {"shadows": len(shadows), "shadows_reused": shadows.reused}
        return Audited.of(
            opened.trained.finished,
            findings,
            attacked.notes(),
            tables=tables,
            captions=captions,
            metrics=metrics,
        )


def _incomparable(problem: Problem, pairs: int, distance: np.ndarray) -> str:
    """Return why labels with and without a unit cannot be compared; empty: they can.

    Args:
        problem: of the run.
        pairs: how many units are to be left out.
        distance: [n] stable distances of the queries.
    """
    settings = problem.settings
    if not pairs:
        return "audit.pairs=0"
    if not RELATIONS[settings.relation.name].includes_one_removal:
        return (
            "models with and without a record were not compared, because certificates under "
            f"relation={settings.relation.name} cover a record that is replaced, but not one "
            "that is left out"
        )
    if settings.noise is not None or settings.certificate.noise != "none":
        return (
            "models with and without a record were not compared, because the run's random noise "
            "was not stored and its certificates hold for that noise only"
        )
    if not (distance >= 1).any():
        return (
            "models with and without a record were not compared, because no attacked record has "
            "a stable distance of 1 or more (is certified)"
        )
    return ""


def _evaluate_shadows(
    shadows: Shadows | None, pool: Pool
) -> tuple[Reference | None, ShadowEvaluation | None, str]:
    """Return what shadow models say, each of them as a target, or why neither can be used.

    Args:
        shadows: the models; None: none were trained.
        pool: the records.

    Returns:
        Both and "", or None, None and the reason in words.
    """
    if shadows is None:
        reason = (
            "the attack was not made, because it needs shadow models (audit.shadows=0): set "
            "audit.shadows=64, for example"
        )
        return None, None, reason
    reference = Reference.of(shadows, pool.records.labels)
    try:
        return reference, ShadowEvaluation.of(reference), ""
    except ConfigError as error:
        return None, None, str(error)


def _service(
    given: AuditInputs, opened: OpenedRun, features: np.ndarray
) -> tuple[Callable[[np.ndarray], np.ndarray], str]:
    """Return what gives labels, and who that is in words.

    It is the model itself, or releases that are drawn as agt predict draws them.

    Args:
        given: the settings, with a mechanism or none.
        opened: the run.
        features: [n, ...] the records; each is asked, and ``COPIES`` copies of it.
    """
    model = opened.model
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
    randomness = SystemRandomness()
    accounting = given.config["accounting"]
    counting = given.config["counting"]
    labelling = Labelling.judged(model, mechanism, opened.conditions, accounting, counting)  # type: ignore[arg-type]
    return lambda queries: labelling.labels(queries, randomness), how


class AttackedModel:
    """The run's own model, and the scores of every attack on it.

    Args:
        given: the settings that all kinds share.
        opened: the run.
        pool: the records, members and non-members.
        shadows: shadow models; None: none, and attacks that need them are left out.
        console: for progress.

    Attributes:
        reference: what shadow models say of each record; None: there are none, or too few.
        evaluation: each shadow model as the target; None likewise.
        reason: why there are none, in words; empty: there are.
        phi: [n] its confidence in each record's label, as ln(p/(1 - p)).
        distance: [n] stable distances.
        scores: name of an attack -> [n].
        how: who gave the labels: the model, or a mechanism.
        two_sided: there are members and non-members.
        rocs: name of an attack -> its curve; empty unless two-sided.
    """

    def __init__(
        self,
        given: AuditInputs,
        opened: OpenedRun,
        pool: Pool,
        shadows: Shadows | None,
        console: Console,
    ) -> None:
        model = opened.model
        records = pool.records
        self.opened = opened
        self.pool = pool
        self.shadows = shadows
        self.confidence = given.confidence
        self.reference, self.evaluation, self.reason = _evaluate_shadows(shadows, pool)
        self.phi = confidences(class_logits(model, records.features), records.labels)
        self.scores = {"loss": loss_scores(self.phi)}
        if self.reference is not None:
            for name, attack in ATTACKS.items():
                self.scores[name] = attack(self.phi, self.reference)
        answer, self.how = _service(given, opened, records.features)
        self.scores[LABELS] = label_scores(answer, records.features, records.labels, given.seed)
        with certifying(model, console) as report:
            self.distance = model.certify(records.features, on_progress=report).stable_distance
        self.two_sided = bool(pool.member.any() and not pool.member.all())
        self.rocs: dict[str, Roc] = {}
        if self.two_sided:
            self.rocs = {name: self.roc(name) for name in self.scores}

    def roc(self, name: str, rows: np.ndarray | slice = slice(None)) -> Roc:
        """Return an attack's curve on some records.

        Raises:
            ConfigError: these are all members, or all non-members.
        """
        return Roc(self.scores[name][rows], self.pool.member[rows])

    @property
    def difference(self) -> float:
        """The most by which the share of a class differs between members and non-members.

        Scores tell such differences as well.
        """
        member = self.pool.member
        labels = self.pool.records.labels
        classes = len(self.opened.dataset.classes)
        member_shares = np.bincount(labels[member], minlength=classes) / member.sum()
        other_shares = np.bincount(labels[~member], minlength=classes) / (~member).sum()
        return float(np.abs(member_shares - other_shares).max())

    def units_to_leave_out(self, pairs: int, seed: int) -> np.ndarray:
        """Return units of members, half of them the most exposed, half at random.

        Args:
            pairs: how many.
            seed: of the random ones.
        """
        members = np.flatnonzero(self.pool.member)
        scores = self.scores.get("lira_online", self.scores["loss"])[members]
        units = self.pool.records.units[members]
        exposed = units[np.argsort(-scores, kind="stable")[: (pairs + 1) // 2]]
        others = np.random.default_rng(seed).permutation(units)
        distinct = list(dict.fromkeys([*exposed.tolist(), *others.tolist()]))
        return np.array(distinct[:pairs])

    # -- findings
    # ----------------------------------------------------------------------------------------------

    def scored(self) -> Iterator[Finding]:
        """Yield what each attack's scores tell, of shadow models in turn and of the run's model."""
        if self.evaluation is not None:
            for name in ATTACKS:
                yield _in_turn(name, self.evaluation, self.confidence)
        shadows = 0 if self.shadows is None else len(self.shadows)
        members = int(self.pool.member.sum())
        test_records = len(self.pool) - members
        differ = self._class_difference_words()
        for name, words in WORDS.items():
            missing = ""
            if not self.two_sided:
                missing = NOBODY
            elif name not in self.scores:
                missing = self.reason
            blank = Finding(
                subject=f"membership by {name}{differ}",
                claim=UNCLAIMED,
                attack=words,
                effort=(
                    f"{members:,} training records are compared with {test_records:,} test "
                    f"records; {shadows} shadow models"
                ),
                outcome=Outcome.UNTESTED,
                meaning=f"{name}: {missing}",
                measure="AUC",
                strength=Strength.ASYMPTOTIC,
            )
            if missing:
                yield blank
            else:
                yield area_of(blank, f"{name}{differ}", self.roc(name), self.confidence)

    def _class_difference_words(self) -> str:
        """Return in words that classes differ between both sides; empty: hardly."""
        if not self.two_sided or self.difference < CLASSES_DIFFER:
            return ""
        points = 100 * self.difference
        return (
            f" (of training and test records, whose class shares differ by up to {points:.1f} "
            "percentage points)"
        )

    # -- tables and notes
    # ----------------------------------------------------------------------------------------------

    def attacks_table(self) -> pd.DataFrame:
        """Return a line for each attack on the run's own model.

        Beside it is the mean over shadow models as targets.
        """
        rows = []
        for name, roc in self.rocs.items():
            row: dict[str, Any] = {"attack": name, **_area(roc, self.confidence)}
            for rate in RATES:
                point = roc.at(rate, self.confidence)
                column = f"TPR_at_{100 * rate:g}%_FPR"
                low, high = point.tpr_limits
                row |= {column: point.tpr, f"{column}_low": low, f"{column}_high": high}
            if self.evaluation is not None and name in self.evaluation.scores:
                fixed = roc.beyond(self.evaluation.threshold(name), self.confidence)
                low, high = fixed.advantage_limits
                advantage = fixed.tpr - fixed.fpr
                row |= {"advantage": advantage, "advantage_low": low, "advantage_high": high}
                row["balanced_accuracy"] = (1 + advantage) / 2
                mean_area, _ = spread_of(each.area for each in self.evaluation.rocs(name))
                row["AUC_on_halves"] = mean_area
            rows.append(row)
        return pd.DataFrame(rows).round(5)

    def distances_table(self) -> pd.DataFrame:
        """Return a line for each bin of stable distances and each attack."""
        bins: list[tuple[float, float]] = [
            (low, high - 1) for low, high in pairwise([*BINS, np.inf])
        ]
        bins.append((1, np.inf))
        rows = []
        for low, high in bins:
            in_bin = (self.distance >= low) & (self.distance <= high)
            members = int(self.pool.member[in_bin].sum())
            others = int((~self.pool.member[in_bin]).sum())
            for name in self.scores:
                row: dict[str, Any] = {
                    "stable_distance": _bin_words(low, high),
                    "attack": name,
                    "members": members,
                    "others": others,
                }
                if members and others:
                    roc = self.roc(name, in_bin)
                    row |= _area(roc, self.confidence)
                    row["TPR_at_1%_FPR"] = roc.at(RATES[1], self.confidence).tpr
                rows.append(row)
        return pd.DataFrame(rows).round(5)

    def exposed_table(self) -> pd.DataFrame:
        """Return training records, the most exposed first."""
        records = self.pool.records
        classes = self.opened.dataset.classes
        table = pd.DataFrame(
            {
                "id": records.ids,
                "unit": records.units,
                "label": [classes[label] for label in records.labels],
                "stable_distance": self.distance,
            }
        )
        if self.reference is None or self.evaluation is None or len(self.reference.pairs.phi) < 4:
            sort_column = "score_loss"
            table[sort_column] = self.scores["loss"]
        else:
            sort_column = "score_lira"
            table = table.assign(**exposure(self.phi, self.reference))
            targets = len(self.evaluation.included)
            table[f"guessed_right_of_{targets}"] = self.evaluation.right("lira_online")
        members = table[self.pool.member]
        return members.sort_values(sort_column, ascending=False, kind="stable").map(short)

    def notes(self) -> Iterator[str]:
        """Yield what a reader must know besides the findings."""
        yield f"the label-only attack used {self.how}, and asked each query only once"
        if self.two_sided:
            rate = 100 * RATES[0]
            points = 100 * self.difference
            few = fewest(RATES[0], int((~self.pool.member).sum()))
            if few:
                yield (
                    f"detection rates at {rate:g} % false alarms were measured at a threshold that "
                    f"gives no false alarm at all, because {few}"
                )
            yield (
                "on the run's own model, members are training records and non-members are test "
                "records, so scores also show other differences between these records (their "
                f"class shares differ by up to {points:.1f} percentage points). On models "
                "trained on random halves there are no such differences"
            )
        if self.shadows is not None:
            yield SIZES
            if self.shadows.failed:
                count = len(self.shadows.failed)
                index, error = self.shadows.failed[0]
                yield (
                    f"shadow models that failed and were left out: {count}. Error of model "
                    f"number {index}, the first of them: {error}"
                )
        if self.evaluation is not None:
            yield from COLUMNS


def _bin_words(low: float, high: float) -> str:
    """Return a bin of stable distances in words."""
    if low == high:
        return f"{low}"
    if high == np.inf:
        return f"{low} or more"
    return f"{low} to {high}"


def _area(roc: Roc, confidence: float) -> dict[str, float]:
    """Return the columns of a table about the area under a curve."""
    low, high = roc.area_limits(confidence)
    return {"AUC": roc.area, "AUC_low": low, "AUC_high": high}


def area_of(blank: Finding, name: str, roc: Roc, confidence: float) -> Finding:
    """Return the area under an attack's curve, and who is found at few false alarms.

    Scores that are upside down show nothing.

    Args:
        blank: the finding without what was found.
        name: of the attack.
        roc: its curve.
        confidence: of all limits.
    """
    low, high = roc.area_limits(confidence)
    percentage = 100 * confidence
    rate = 100 * RATES[1]
    shown = f"{roc.area:.3f} ({low:.3f} to {high:.3f} with {percentage:.12g} % confidence)"
    if roc.area < 0.45 and high < 0.5:  # higher for non-members, surely
        return replace(blank, meaning=f"{name}: {UPSIDE_DOWN.format(shown=shown)}")
    point = roc.at(RATES[1], confidence)
    others = point.mistakes.trials_without
    caveat = fewest(RATES[1], others)
    if point.mistakes.alarms < RATES[1] * others / 2 and not caveat:
        caveat = (
            f"no threshold gives about {rate:g} % false alarms, because the scores have only few "
            "different values: the threshold that was used gives fewer"
        )
    detected = 100 * point.tpr
    limits = " to ".join(f"{100 * limit:.2f}" for limit in point.tpr_limits)
    meaning = (
        f"{name}: a training record scores higher than a test record with probability {shown}. "
        f"At {rate:g} % false alarms, {detected:.2f} % of training records are detected (with "
        f"{percentage:.12g} % confidence, {limits} %)"
    )
    if caveat:
        meaning += f"; {caveat}"
    smallest_auc = min(1.0, 0.5 + high - roc.area)
    return replace(
        blank,
        outcome=Outcome.REPORTED,
        meaning=meaning,
        found=roc.area,
        confidence=confidence,
        noticeable=(
            f"this audit detects an AUC of at least {smallest_auc:.3f} as different from 0.5"
        ),
        estimator="DeLong",
    )


def _in_turn(name: str, evaluation: ShadowEvaluation, confidence: float) -> Finding:
    """Each shadow model as the target."""
    rocs = evaluation.rocs(name)
    area, spread = spread_of(roc.area for roc in rocs)
    rate, rate_spread = spread_of(roc.at(RATES[1], confidence).tpr for roc in rocs)
    false_alarms, detected, detected_spread = (
        100 * share for share in (RATES[1], rate, rate_spread)
    )
    attack = WORDS[name]
    records = evaluation.included.shape[1]
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
    record: RunRecord, dataset: str, own: Mapping[str, Roc], evaluation: ShadowEvaluation | None
) -> dict[str, str]:
    """Draw the curves of the run's model and of shadow models; return captions by name.

    Args:
        record: into which figures are drawn.
        dataset: its name.
        own: name of an attack -> its curve on the run's model; empty: none is drawn.
        evaluation: shadow models as targets; None: none are drawn.
    """
    captions = dict[str, str]()
    if own:
        about = (
            f"{dataset}: attacks on the run's own model, comparing training records with test "
            "records."
        )
        captions |= _draw(record, "roc", own, "training records", about)
    if evaluation is not None:
        pooled = {
            name: Roc(rows.ravel(), evaluation.included.ravel())
            for name, rows in evaluation.scores.items()
        }
        models = len(evaluation.included)
        about = (
            f"{models} models, each trained on half of the records, are attacked in turn, with "
            "one threshold for all models."
        )
        captions |= _draw(record, "roc_halves", pooled, "members", f"{dataset}: {about}")
    return captions


def _draw(
    record: RunRecord, name: str, rocs: Mapping[str, Roc], members: str, about: str
) -> dict[str, str]:
    """Draw curves into one figure, both rates in log scale; return its caption by its name.

    Args:
        record: into which it is drawn.
        name: of the figure.
        rocs: name of an attack -> its curve, at least one.
        members: what members are, in words.
        about: the caption.
    """
    others = int((~next(iter(rocs.values())).member).sum())
    rates = np.geomspace(min(max(1 / others, MIN_RATE), MAX_START), 1, CURVE_POINTS)
    shares = {attack: _shares(roc, rates) for attack, roc in rocs.items()}
    data = pd.DataFrame({"FPR": rates, **shares})
    values = data.to_numpy()
    floor = min(float(values[values > 0].min()), MAX_START)
    points = {attack: roc.at(0.01, 0.95) for attack, roc in rocs.items()}
    best = max(points, key=lambda attack: points[attack].tpr)
    with drawing(record, name, data, (WIDTH, 4.6)) as figure:
        axes = figure.subplots()
        axes.plot(rates, rates, color="0.8", linewidth=1, label="guessing")
        for attack in rocs:
            is_positive = data[attack] > 0  # 0 has no place on a log scale
            axes.step(
                rates[is_positive],
                data[attack][is_positive],
                where="post",
                linewidth=1.2,
                label=f"{NAMES[attack]}: accuracy {rocs[attack].best_accuracy:.2f}",
                **LINES[attack],
            )
        axes.set(xscale="log", yscale="log", xlim=(rates[0], 1), ylim=(floor, 1))
        axes.set(
            xlabel="false alarms (share of non-members taken for members)",
            ylabel="share of members that are detected",
        )
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda share, place: f"{100 * share:g} %"))
        keys(figure, [axes])
        false_alarms = 100 * points[best].fpr
        detected = 100 * points[best].tpr
        headline(
            figure,
            f"At {false_alarms:.2g} % false alarms, {detected:.2g} % of the {members} are "
            f"detected (by {NAMES[best]})",
            "",
        )
    accuracy = "Accuracy: mean over both sides, at the threshold that is best for these records."
    return {name: f"{about} {accuracy}"}


def _shares(roc: Roc, rates: np.ndarray) -> np.ndarray:
    """Return the share of members found with at most each rate [n] of false alarms, [n]."""
    members = int(roc.member.sum())
    others = int((~roc.member).sum())
    rate_of_point = roc.curve[:, 1] / others
    # the last point whose rate is allowed; a little more is, for rounding
    index = np.searchsorted(rate_of_point, rates * (1 + 1e-12), side="right") - 1
    return roc.curve[index, 2] / members
