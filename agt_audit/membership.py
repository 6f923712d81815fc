"""agt audit membership: membership inference, which guesses from a model's confidences and labels
whether a record was in its training data.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter

from agt.errors import ConfigError
from agt.settings import schema
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import MembershipSettings
from agt_audit.membership_attack import (
    ATTACKS,
    COPIES,
    Reference,
    ShadowEvaluation,
    confidences,
    label_scores,
    loss_scores,
    spread_of,
)
from agt_audit.page import rounded_cell
from agt_audit.roc import Roc, too_few_non_members
from agt_audit.shadows import SIZES, Pool, ShadowConfig, Shadows, class_logits, trained_shadows
from agt_cli.report.console import Console
from agt_cli.report.figures import WIDTH, draw_headline, draw_legend, saved_figure
from agt_cli.report.findings import Finding, Outcome, Strength
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import certification_progress
from agt_cli.runs.queries import OpenedRun

LABELS = "labels"
ATTACK_DESCRIPTIONS = {
    "loss": "attack by the loss, with one threshold for all records (Yeom et al. 2018)",
    "lira_online": (
        "LiRA, online: likelihood ratio between models trained with and without the record "
        "(Carlini et al. 2022)"
    ),
    "rmia": "RMIA, offline: pairwise likelihood ratios of the record against the other attacked "
    "records (Zarifzadeh et al. 2024)",
    LABELS: (
        f"label-only attack: uses the labels of the record and of {COPIES} noisy copies of it "
        "(Choquette-Choo et al. 2021)"
    ),
}
LINE_STYLES: dict[str, dict[str, Any]] = {
    "loss": {"color": "0.45"},
    "lira_online": {"color": "#d94801"},
    "rmia": {"color": "#238b45", "linestyle": "-."},
    "labels": {"color": "black", "linestyle": ":"},
}
SHORT_NAMES = {
    "loss": "loss threshold",
    "lira_online": "LiRA, online",
    "rmia": "RMIA, offline",
    "labels": "labels only",
}
CURVE_POINTS = 300
MIN_RATE = 1e-4  # the smallest rate of false alarms in a figure
FIGURE_CONFIDENCE = 0.95  # of limits of rates, which the figure does not show
MAX_START = 0.5  # the largest value at which an axis of a figure begins
FEWEST_FALSE_ALARMS = 0.001
FEW_FALSE_ALARMS = 0.01
RATES = (FEWEST_FALSE_ALARMS, FEW_FALSE_ALARMS)
"""The rates of false alarms at which detection rates are reported."""
UNCLAIMED = "nothing is claimed about this attack, because certificates cover labels, not scores"
NO_NON_MEMBERS = (
    "the attack was not tested, because the run has no test records that it was not trained on "
    "(non-members)"
)
NO_SHADOWS = (
    "the attack was not made, because it needs shadow models (audit.shadows=0): set "
    "audit.shadows=64, for example"
)
UPSIDE_DOWN = (
    "the scores of this attack are UPSIDE DOWN: non-members score higher than members (the AUC "
    "is {shown}), so the attack shows nothing. Look for a wrong sign, for members and "
    "non-members being swapped, or for test records that are easier than training records"
)
EXPOSED = "exposed_NOT_FOR_PUBLICATION"
EXPOSED_COLUMN_NOTE = (
    f"in tables/{EXPOSED}.csv, 'score_lira' is the logarithm of LiRA's likelihood ratio for the "
    "run's own model, which was trained on more records than the shadow models were. By how much "
    "training on a record changes its label is estimated by `agt audit memorisation`"
)


@schema
class Membership(MembershipSettings, AuditKind):
    """Attacks a run's model by membership inference.

    Scores that are computed from confidences may tell members from non-members, so the findings are
    reported without a verdict. Labels of certified queries must not, which ``agt audit
    certificate`` tests.

    Attributes:
        shadows: how many shadow models are trained, an even number; 0: none, and the attacks that
            need them are left out.
        workers: how many processes train shadow models at once; None: one for each processor.
        exposed: how many rows the table of the most exposed records has.
    """

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train shadow models, and attack by scores.

        Args:
            given: the settings that all kinds of audit share.
            record: the audit's run folder, into which figures are drawn.
            console: the console, which shows progress.

        Returns:
            A finding for each attack; the tables of attacks and of the most exposed records.

        Raises:
            ConfigError: the run's data is missing or was changed.
            CheckError: every shadow model failed.
        """
        opened = given.open(record, console)
        pool = Pool.of(opened.dataset)
        shadows = None
        if self.shadows:
            config = ShadowConfig(self.shadows, given.seed, self.workers)
            shadows = trained_shadows(config, given, opened, pool, console)
        attacked = AttackedModel.of(given, opened, pool, shadows, console)
        tables = {
            "membership": attacked.attacks_table(),
            EXPOSED: attacked.exposed_table().head(self.exposed),
        }
        captions = {}
        if attacked.rocs:
            captions["roc"] = draw_curves(record, opened.dataset.name, attacked.rocs)
        metrics: dict[str, float] = {f"auc_{name}": roc.area for name, roc in attacked.rocs.items()}
        if shadows:
            metrics |= {"shadows": len(shadows), "shadows_reused": shadows.reused}
        return Audited.of(
            opened.trained.finished,
            attacked.score_findings(),
            attacked.notes(),
            tables=tables,
            captions=captions,
            metrics=metrics,
        )


@dataclass(frozen=True)
class AttackedModel:
    """The run's own model, and the scores of every attack on it.

    Attributes:
        opened: the run.
        pool: the n attacked records, members and non-members.
        shadows: shadow models; None: none, and attacks that need them are left out.
        confidence: with which limits of findings hold.
        distance: [n] stable distances of the records.
        scores: name of an attack -> [n] scores, higher for members.
        evaluation: attacks on each shadow model; None: there are none, or too few.
        reason: why attacks that need shadow models were not made, if ``evaluation`` is None.
    """

    opened: OpenedRun
    pool: Pool
    shadows: Shadows | None
    confidence: float
    distance: np.ndarray
    scores: Mapping[str, np.ndarray]
    evaluation: ShadowEvaluation | None = None
    reason: str = NO_SHADOWS

    @classmethod
    def of(
        cls,
        given: AuditInputs,
        opened: OpenedRun,
        pool: Pool,
        shadows: Shadows | None,
        console: Console,
    ) -> "AttackedModel":
        """Attack the run's model, and each shadow model, with every attack.

        Args:
            given: the settings that all kinds of audit share.
            opened: the run.
            pool: the records to attack.
            shadows: shadow models; None: none, and attacks that need them are left out.
            console: the console, which shows progress.
        """
        model = opened.model
        features = pool.records.features
        labels = pool.records.labels
        phi = confidences(class_logits(model, features), labels)
        scores = {"loss": loss_scores(phi)}
        evaluation = None
        reason = NO_SHADOWS
        if shadows is not None:
            reference = Reference.of(shadows, labels)
            try:
                evaluation = ShadowEvaluation.of(reference)
            except ConfigError as error:  # there are too few
                reason = str(error)
            else:
                scores |= {name: attack(phi, reference) for name, attack in ATTACKS.items()}
        scores[LABELS] = label_scores(model.predict, features, labels, given.seed)
        with certification_progress(model, console) as report:
            distance = model.certify(features, on_progress=report).stable_distance
        return cls(opened, pool, shadows, given.confidence, distance, scores, evaluation, reason)

    @property
    def two_sided(self) -> bool:
        """Whether there are both members and non-members."""
        return bool(self.pool.member.any() and not self.pool.member.all())

    @cached_property
    def rocs(self) -> dict[str, Roc]:
        """Name of an attack -> its ROC curve on all records; empty unless ``two_sided``."""
        if not self.two_sided:
            return {}
        return {name: Roc(scores, self.pool.member) for name, scores in self.scores.items()}

    # -- findings
    # ----------------------------------------------------------------------------------------------

    def score_findings(self) -> Iterator[Finding]:
        """Yield a finding for each attack by scores.

        Attacks on shadow models come first, if there are any; then those on the run's own model.
        An attack that could not be made has a finding that says why.
        """
        if self.evaluation is not None:
            for name in ATTACKS:
                yield _shadow_targets_finding(name, self.evaluation, self.confidence)
        shadows = 0 if self.shadows is None else len(self.shadows)
        members = int(self.pool.member.sum())
        test_records = len(self.pool) - members
        for name, description in ATTACK_DESCRIPTIONS.items():
            reason_untested = ""
            if not self.two_sided:
                reason_untested = NO_NON_MEMBERS
            elif name not in self.scores:
                reason_untested = self.reason
            finding = Finding(
                subject=f"membership by {name}",
                claim=UNCLAIMED,
                attack=description,
                effort=(
                    f"{members:,} training records are compared with {test_records:,} test "
                    f"records; {shadows} shadow models"
                ),
                outcome=Outcome.UNTESTED,
                meaning=f"{name}: {reason_untested}",
                measure="AUC",
                strength=Strength.ASYMPTOTIC,
            )
            if not reason_untested:
                finding = area_finding(finding, name, self.rocs[name], self.confidence)
            yield finding

    # -- tables and notes
    # ----------------------------------------------------------------------------------------------

    def attacks_table(self) -> pd.DataFrame:
        """Return a table with a row for each attack on the run's own model.

        Columns are the AUC and detection rates with their limits. Attacks that were also made on
        shadow models have the advantage at a threshold that was fixed on these. The table is empty
        unless ``two_sided``.
        """
        rows = []
        for name, roc in self.rocs.items():
            row: dict[str, Any] = {"attack": name, **_area(roc, self.confidence)}
            for rate in RATES:
                point = roc.at_false_alarm_rate(rate, self.confidence)
                column = f"TPR_at_{100 * rate:g}%_FPR"
                low, high = point.tpr_limits
                row |= {column: point.tpr, f"{column}_low": low, f"{column}_high": high}
            if self.evaluation is not None and name in self.evaluation.scores:
                fixed = roc.at_threshold(self.evaluation.threshold(name), self.confidence)
                low, high = fixed.advantage_limits
                advantage = fixed.tpr - fixed.fpr
                row |= {"advantage": advantage, "advantage_low": low, "advantage_high": high}
            rows.append(row)
        return pd.DataFrame(rows).round(5)

    def exposed_table(self) -> pd.DataFrame:
        """Return a table of all training records, the most exposed first.

        They are sorted by LiRA's score, or without shadow models by the loss. With shadow models, a
        column says for how many of these the record's membership was guessed rightly.
        """
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
        column = "score_loss"
        scores = self.scores["loss"]
        if self.evaluation is not None:
            column = "score_lira"
            scores = self.scores["lira_online"]
            targets = len(self.evaluation.included)
            table[f"guessed_right_of_{targets}"] = self.evaluation.right_guesses("lira_online")
        table[column] = scores
        members = table[self.pool.member]
        return members.sort_values(column, ascending=False, kind="stable").map(rounded_cell)

    def notes(self) -> Iterator[str]:
        """Yield sentences that a reader needs beside the findings, for the audit's notes."""
        if self.two_sided:
            rate = 100 * FEWEST_FALSE_ALARMS

            reason_too_few = too_few_non_members(
                FEWEST_FALSE_ALARMS, int((~self.pool.member).sum())
            )
            if reason_too_few:
                yield (
                    f"detection rates at {rate:g} % false alarms were measured at a threshold that "
                    f"gives no false alarm at all, because {reason_too_few}"
                )
            yield (
                "on the run's own model, members are training records and non-members are test "
                "records, so scores also show other differences between these records, such as "
                "other shares of the classes. On models trained on random halves there are no "
                "such differences"
            )
        if self.shadows is not None:
            yield SIZES
            yield from self.shadows.failure_notes
        if self.evaluation is not None:
            yield EXPOSED_COLUMN_NOTE


def _area(roc: Roc, confidence: float) -> dict[str, float]:
    """Return the columns AUC, AUC_low and AUC_high of a curve.

    Args:
        roc: the curve.
        confidence: with which the true AUC lies between the two limits (asymptotically).
    """
    low, high = roc.area_limits(confidence)
    return {"AUC": roc.area, "AUC_low": low, "AUC_high": high}


def area_finding(untested: Finding, name: str, roc: Roc, confidence: float) -> Finding:
    """Return the finding of an attack by scores: its AUC, and detection rate at few false alarms.

    If non-members surely score higher than members, the result stays untested and says so,
    because such scores point to a mistake.

    Args:
        untested: the finding before anything was found; it is not changed.
        name: the name of the attack, with which the finding's sentence begins.
        roc: the attack's curve on the run's own model.
        confidence: the confidence level of all limits.
    """
    low, high = roc.area_limits(confidence)
    percentage = 100 * confidence
    shown = f"{roc.area:.3f} ({low:.3f} to {high:.3f} with {percentage:.12g} % confidence)"
    if roc.area < 0.45 and high < 0.5:  # non-members score higher, and not by chance
        return replace(untested, meaning=f"{name}: {UPSIDE_DOWN.format(shown=shown)}")
    smallest_auc = min(1.0, 0.5 + high - roc.area)
    return replace(
        untested,
        outcome=Outcome.REPORTED,
        meaning=(
            f"{name}: a training record scores higher than a test record with probability {shown}. "
            f"{_detection_sentence(roc, confidence)}"
        ),
        found=roc.area,
        confidence=confidence,
        noticeable=(
            f"this audit detects an AUC of at least {smallest_auc:.3f} as different from 0.5"
        ),
        estimator="DeLong",
    )


def _detection_sentence(roc: Roc, confidence: float) -> str:
    """Return which share of training records is detected at few false alarms, with its limits.

    If the records or their scores do not allow such a rate of false alarms, the sentence says so.

    Args:
        roc: the attack's curve on the run's own model.
        confidence: the confidence level of the limits.
    """
    point = roc.at_false_alarm_rate(FEW_FALSE_ALARMS, confidence)
    non_members = point.mistakes.trials_without
    rate = 100 * FEW_FALSE_ALARMS
    percentage = 100 * confidence
    detected = 100 * point.tpr
    limits = " to ".join(f"{100 * limit:.2f}" for limit in point.tpr_limits)
    sentence = (
        f"At {rate:g} % false alarms, {detected:.2f} % of training records are detected (with "
        f"{percentage:.12g} % confidence, {limits} %)"
    )
    too_few = too_few_non_members(FEW_FALSE_ALARMS, non_members)
    if too_few:
        return f"{sentence}; {too_few}"
    if point.mistakes.alarms < FEW_FALSE_ALARMS * non_members / 2:
        return (
            f"{sentence}; no threshold gives about {rate:g} % false alarms, because the scores "
            "have only few different values: the threshold that was used gives fewer"
        )
    return sentence


def _shadow_targets_finding(name: str, evaluation: ShadowEvaluation, confidence: float) -> Finding:
    """Return the finding of an attack on shadow models: its mean AUC and detection rate.

    Args:
        name: the attack, a key of ``ATTACKS``.
        evaluation: attacks on each shadow model by the others.
        confidence: passed on to the curves; the means that are reported do not depend on it.
    """
    rocs = evaluation.rocs(name)
    area, spread = spread_of(roc.area for roc in rocs)
    rate, rate_spread = spread_of(
        roc.at_false_alarm_rate(FEW_FALSE_ALARMS, confidence).tpr for roc in rocs
    )
    false_alarms = 100 * FEW_FALSE_ALARMS
    detected = 100 * rate
    detected_spread = 100 * rate_spread
    attack = ATTACK_DESCRIPTIONS[name]
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
        strength=Strength.EXACT,  # about these targets only: nothing was estimated from them
        estimator="mean over these targets",
    )


# -- figures. Both rates have a log scale, because detection at few false alarms matters most
# --------------------------------------------------------------------------------------------------


def draw_curves(record: RunRecord, dataset: str, rocs: Mapping[str, Roc]) -> str:
    """Draw the figure "roc" of ROC curves on the run's own model, with log scales, and its table.

    Args:
        record: the run folder into which it is drawn.
        dataset: the dataset's name, for the caption.
        rocs: name of an attack -> its curve, at least one; all on the same records.

    Returns:
        The figure's caption.
    """
    data = _curves_data(rocs)
    rates = data["FPR"].to_numpy()
    values = data.to_numpy()
    lowest_share = min(float(values[values > 0].min()), MAX_START)
    with saved_figure(record, "roc", data, (WIDTH, 4.6)) as figure:
        axes = figure.subplots()
        axes.plot(rates, rates, color="0.8", linewidth=1, label="guessing")
        for attack, roc in rocs.items():
            is_positive = data[attack] > 0  # 0 has no place on a log scale
            axes.step(
                rates[is_positive],
                data[attack][is_positive],
                where="post",
                linewidth=1.2,
                label=f"{SHORT_NAMES[attack]}: accuracy {roc.best_accuracy:.2f}",
                **LINE_STYLES[attack],
            )
        axes.set(xscale="log", yscale="log", xlim=(rates[0], 1), ylim=(lowest_share, 1))
        axes.set(
            xlabel="false alarms (share of non-members taken for members)",
            ylabel="share of members that are detected",
        )
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda share, place: f"{100 * share:g} %"))
        draw_legend(figure, [axes])
        draw_headline(figure, _curves_headline(rocs), "")
    return (
        f"{dataset}: attacks on the run's own model, comparing training records with test "
        "records. Accuracy: mean over both sides, at the threshold that is best for these records."
    )


def _curves_data(rocs: Mapping[str, Roc]) -> pd.DataFrame:
    """Return a table of rates of false alarms ("FPR"), and of the share that each attack detects.

    The rates are evenly spaced on a log scale, from that of one false alarm among the non-members
    (at least ``MIN_RATE``) to 1.

    Args:
        rocs: name of an attack -> its curve, at least one; all on the same records.
    """
    any_roc = next(iter(rocs.values()))
    non_members = int((~any_roc.member).sum())
    smallest_rate = min(max(1 / non_members, MIN_RATE), MAX_START)
    rates = np.geomspace(smallest_rate, 1, CURVE_POINTS)
    shares = {}
    for attack, roc in rocs.items():
        points = [roc.at_false_alarm_rate(rate, FIGURE_CONFIDENCE) for rate in rates]
        shares[attack] = [point.tpr for point in points]
    return pd.DataFrame({"FPR": rates, **shares})


def _curves_headline(rocs: Mapping[str, Roc]) -> str:
    """Return a sentence about the attack that detects most members at few false alarms."""
    points = {
        attack: roc.at_false_alarm_rate(FEW_FALSE_ALARMS, FIGURE_CONFIDENCE)
        for attack, roc in rocs.items()
    }
    best = max(points, key=lambda attack: points[attack].tpr)
    false_alarms = 100 * points[best].fpr
    detected = 100 * points[best].tpr
    return (
        f"At {false_alarms:.2g} % false alarms, {detected:.2g} % of the training records are "
        f"detected (by {SHORT_NAMES[best]})"
    )
