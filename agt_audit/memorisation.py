"""agt audit memorisation: which records the model learns by heart, and which one record decides the
answer to another.

    memorisation of j       P(h(x_j) = y_j | j in S) - P(h(x_j) = y_j | j not in S)
    influence of i on t     P(h(x_t) = y_t | i in S, t not in S) - P(h(x_t) = y_t | i not in S, t
                            not in S)

over the draw of the subset S that h is trained on (Feldman 2020; Feldman and Zhang 2020). Both are
a ``Contrast``: of the models with a record and of those without it, how many are right. Left out
one at a time, with everything else as it is, memorisation is 0 wherever the label is certified
(stable distance 1 or more): that is a claim.

Formal guarantees
    Let whether j is in S be drawn independently of the other records (each unit by a fair coin),
    and models be independent, or paired on both halves of one draw. Given which models have j,
    those that have it are independent draws of h given j in S, and those without it likewise; a
    pair has one of each. So each count is binomial, the difference of the shares has the contrast
    for its mean, and each share lies within its Clopper-Pearson limits but with the error
    probability given to them: a union bound, whether or not the two counts depend on each other.
    ``bounds`` shares the error among both ends of both shares, and among all contrasts that are
    looked at. ``error``, a standard error, takes the counts for independent, which within pairs
    they need not be.
    The diagonal. A record's influence on its own answer is its memorisation, and no influence: t's
    answer is asked only of models without t, none of which has t, so that pair is undefined, and
    never among ``strongest``.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.ticker import StrMethodFormatter
from pydantic import Field

from agt.errors import AgtError
from agt.models.model import Model
from agt.settings import schema
from agt_audit.estimates import lower_limit, upper_limit
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.neighbours import EditedRecords, neighbours_of
from agt_audit.page import short
from agt_audit.shadows import SIZES, Pool, ShadowConfig, trained_shadows
from agt_cli.report.console import Console
from agt_cli.report.figures import WIDTH, drawing, headline, keys
from agt_cli.report.findings import Finding, Outcome, counterexamples
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import certifying

TARGETS_AT_ONCE = 64  # whose influences are worked out


@dataclass(frozen=True)
class Contrast:
    """How many of the models with a record, and of those without it, are right; arrays of one
    shape.

    Attributes:
        right_with, having: right ones of those with it; how many these are.
        right_without, without: the same of those without it.
    """

    right_with: np.ndarray
    having: np.ndarray
    right_without: np.ndarray
    without: np.ndarray

    @property
    def value(self) -> np.ndarray:
        """The difference of the shares; NaN where no model has the record, or all have it."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.right_with / self.having - self.right_without / self.without

    @property
    def error(self) -> np.ndarray:
        """Standard errors of the values; infinite for a share of fewer than two models."""

        def variance(right: np.ndarray, count: np.ndarray) -> np.ndarray:
            share = right / np.maximum(count, 1)
            return np.where(count > 1, share * (1 - share) / np.maximum(count - 1, 1), np.inf)

        return np.sqrt(
            variance(self.right_with, self.having) + variance(self.right_without, self.without)
        )

    def bounds(self, confidence: float, looks: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """(least, greatest) contrasts; all that are looked at lie between theirs with this
        confidence.
        """
        error = (1 - confidence) / looks / 4
        sides = (self.right_with, self.having, error), (self.right_without, self.without, error)
        (low, low_without), (high, high_without) = (
            [limit(*side) for side in sides] for limit in (lower_limit, upper_limit)
        )
        return low - high_without, high - low_without

    def take(self, places: np.ndarray) -> "Contrast":
        """Those at some places of the flattened arrays."""
        parts = (self.right_with, self.having, self.right_without, self.without)
        return Contrast(*(part.ravel()[places] for part in parts))


def needed(records: int, confidence: float) -> int:
    """How many models each record must be in, and as many out of, for a bound above 0 to be
    possible.
    """
    return math.floor(math.log2(4 * records / (1 - confidence))) + 1


def memorisation(included: np.ndarray, right: np.ndarray) -> Contrast:
    """Of each record.

    Args:
        included: [m, n] bool, which model was trained on which record.
        right: [m, n] bool, which model gives a record its own label.
    """
    having = included.sum(axis=0)
    return Contrast(
        (included & right).sum(axis=0),
        having,
        (~included & right).sum(axis=0),
        len(included) - having,
    )


def influence(
    included: np.ndarray, right: np.ndarray, sources: np.ndarray, targets: np.ndarray
) -> Contrast:
    """[len(sources), len(targets)] of each source on each target, asked of the models without the
    target.

    Args:
        included, right: as for ``memorisation``.
        sources, targets: places of records.
    """
    had, absent = included[:, sources].astype(np.float32), ~included[:, targets]
    hits = (absent & right[:, targets]).astype(np.float32)
    asked = absent.astype(np.float32)
    right_with, having = had.T @ hits, had.T @ asked
    return Contrast(right_with, having, hits.sum(axis=0) - right_with, asked.sum(axis=0) - having)


def strongest(
    included: np.ndarray, right: np.ndarray, sources: np.ndarray, targets: np.ndarray, count: int
) -> tuple[np.ndarray, Contrast]:
    """([p, 2] places of source and target, their contrasts): the pairs of greatest influence,
    the greatest first.
    """
    best: list[tuple[float, int, int, Contrast]] = []
    for start in range(0, len(targets), TARGETS_AT_ONCE):
        block = targets[start : start + TARGETS_AT_ONCE]
        contrast = influence(included, right, sources, block)
        values = np.nan_to_num(contrast.value, nan=-np.inf).ravel()
        for place in np.argpartition(-values, min(count, len(values) - 1))[:count].tolist():
            if np.isfinite(values[place]):
                at = sources[place // len(block)], block[place % len(block)]
                best.append(
                    (float(values[place]), int(at[0]), int(at[1]), contrast.take(np.array([place])))
                )
    best.sort(key=lambda pair: -pair[0])
    best = best[:count]
    parts = [(c.right_with, c.having, c.right_without, c.without) for *_, c in best]
    joined = (
        [np.concatenate(part) for part in zip(*parts, strict=True)] if parts else [np.empty(0)] * 4
    )
    return np.array([(i, t) for _, i, t, _ in best], dtype=np.int64).reshape(-1, 2), Contrast(
        *joined
    )


# -- the audit
# --------------------------------------------------------------------------------------------------

NOTES = (
    "the tables and the figure describe models trained on random halves of the run's data, not "
    "the run's own model. The run's certificate does not cover these models: it says only that "
    "the run's own model gives a certified record the same label if only this record is left out "
    "of training",
    "most numbers of the tables and the figure are rough estimates from few models. The largest "
    "ones were picked from many, so some are large by chance",
    "only the column 'at_least' of tables/memorised.csv is certain: its numbers are rigorous "
    "lower bounds that hold for all records together. A value above 0 shows memorisation",
    SIZES,
    "half of the records that were left out of training, one at a time, are the certified "
    "records with the smallest stable distance. The other half are uncertified records",
)
COLOURS = {"certified": "#2c7fb8", "not certified": "#d95f0e"}
QUARTER = 0.25


@schema
class Memorisation(AuditKind):
    """Memorisation and influence from models on random halves; and exactly, leaving records out one
    at a time.

    Attributes:
        shadows: how many models, an even number; those of ``agt audit membership`` are used again.
        workers: processes that train them; null: as many as there are processors.
        left_out: how many units are left out in turn.
        targets: how many test records' answers are looked at for influence.
        shown: how many records and pairs the owner is shown.
    """

    name: ClassVar[str] = "memorisation"
    needs_classes: ClassVar[bool] = True
    shadows: Annotated[int, Field(ge=2, le=4096, multiple_of=2)] = 64
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    left_out: Annotated[int, Field(ge=0)] = 40
    targets: Annotated[int, Field(ge=0)] = 200
    shown: Annotated[int, Field(ge=1)] = 50

    def check(self, given: AuditInputs) -> None:
        """A run is needed, whose neighbours can be trained."""
        given.check_run()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train, count, and say who is memorised."""
        opened = given.open_with_data(record, console, "no part of this audit can be carried out")
        model, dataset, pool, confidence = (
            opened.model,
            opened.dataset,
            Pool.of(opened.dataset),
            given.confidence,
        )
        shadows = trained_shadows(
            ShadowConfig(self.shadows, given.seed, self.workers), given, opened, console
        )
        right = shadows.logits.argmax(axis=2) == pool.records.labels
        learnt, members = memorisation(shadows.included, right), np.flatnonzero(pool.member)
        with certifying(model, console) as report:
            distance = model.certify(pool.records.features, on_progress=report).stable_distance
        targets = np.random.default_rng(given.seed).permutation(np.flatnonzero(~pool.member))[
            : self.targets
        ]
        pairs, decided = strongest(shadows.included, right, members, targets, self.shown)
        looks = len(members) * len(targets)
        findings = (
            memorised(learnt.take(members), len(shadows), confidence),
            influence_finding(decided, looks, len(targets), len(shadows), confidence),
            self._left_out(model, pool, distance, console),
        )
        table = pd.DataFrame(
            {"id": pool.records.ids, "label": [dataset.classes[y] for y in pool.records.labels]}
        )
        table["stable_distance"] = distance
        table["estimate_over_halves"], table["standard_error"] = learnt.value, learnt.error
        table["at_least"] = learnt.bounds(confidence, len(members))[0]
        table["right_with"], table["models_with"] = learnt.right_with, learnt.having
        table["right_without"], table["models_without"] = learnt.right_without, learnt.without
        most = (
            table.iloc[members]
            .sort_values("estimate_over_halves", ascending=False, kind="stable")
            .head(self.shown)
        )
        ids = pool.records.ids
        influence = pd.DataFrame(
            {"training_record": ids[pairs[:, 0]], "test_record": ids[pairs[:, 1]]}
        )
        influence["influence"], influence["standard_error"] = decided.value, decided.error
        tables = {"memorised": most.map(short), "influence": influence.map(short)}
        captions = draw_histogram(
            record, learnt.value[members], distance[members] >= 1, dataset.name
        )
        notes: tuple[str, ...] = NOTES
        if shadows.failed:
            failed = len(shadows.failed)
            first_error = shadows.failed[0][1]
            notes += (f"shadow models that failed: {failed}. The first error is: {first_error}",)
        counts = {"shadows": len(shadows), "shadows_reused": shadows.reused}
        drawn = {"tables": tables, "captions": captions, "metrics": counts}
        return Audited.of(opened.trained.finished, findings, notes, **drawn)

    def _left_out(
        self, model: Model, pool: Pool, distance: np.ndarray, console: Console
    ) -> Finding:
        """Labels of records whose unit alone is left out, half of them certified, half not."""
        members, train = np.flatnonzero(pool.member), model.problem.dataset.train
        order = members[np.argsort(distance[members], kind="stable")]
        near, loose = order[distance[order] >= 1], order[distance[order] < 1]
        chosen = np.concatenate(
            [near[: self.left_out - self.left_out // 2], loose[: self.left_out // 2]]
        )
        # in the order of the pool, whose first records they are
        private = np.flatnonzero(~train.public)
        edits = [EditedRecords.without_unit(train, train.units[row]) for row in private[chosen]]
        changed, refused = {True: list[bool](), False: list[bool]()}, list[str]()
        with console.progress("leaving records out", "record") as report:
            for done, (place, other) in enumerate(
                zip(chosen, neighbours_of(model, edits), strict=True), 1
            ):
                report(done, len(edits), done, len(edits))
                if isinstance(other, AgtError):
                    refused.append(str(other))
                    continue
                asked = train.features[private[place] : private[place] + 1]
                right = [
                    of.predict(asked)[0] == train.labels[private[place]] for of in (model, other)
                ]
                changed[bool(distance[place] >= 1)].append(right[0] != right[1])
        certified, others = changed[True], changed[False]
        parts = [] if certified else ["no certified record was left out of training"]
        for kind, flips in (("certified", certified), ("uncertified", others)):
            if flips:
                parts.append(
                    f"{sum(flips)} of {len(flips)} {kind} records changed from correctly to "
                    "wrongly labelled, or back, when only that record was left out of training"
                )
        if refused:
            unusable = len(refused)
            first_error = refused[0]
            parts.append(
                f"for {unusable} records, training refused the data without the record; the first "
                f"error is: {first_error}"
            )
        return counterexamples(
            "memorisation of certified records",
            "if the stable distance of a record is at least 1, its own label stays the same "
            "when only that record is left out of training",
            "the run was trained again without a record's unit (person), with everything else "
            "unchanged",
            f"{len(certified)} certified records with the smallest stable distance and "
            f"{len(others)} uncertified records were left out of training, one at a time",
            "certified records memorised", float(sum(certified)) if certified else None,
            "; ".join(parts),
            "this audit detects a single memorised record among those left out of training",
        )  # fmt: skip


def draw_histogram(
    record: RunRecord, values: np.ndarray, certified: np.ndarray, dataset: str
) -> dict[str, str]:
    """Memorisation, split by whether the record's own label is certified; the caption by its
    name.
    """
    edges, known = np.linspace(-1, 1, 41), np.isfinite(values)
    sides = zip(COLOURS, (certified, ~certified), strict=True)
    counts = {name: np.histogram(values[known & side], edges)[0] for name, side in sides}
    with drawing(
        record, "memorisation", pd.DataFrame({"from": edges[:-1], **counts}), (WIDTH, 4.2)
    ) as figure:
        axes = figure.subplots()
        for name, colour in COLOURS.items():
            label = f"{name} ({int(counts[name].sum()):,})"
            axes.stairs(counts[name], edges, label=label, color=colour, fill=True, alpha=0.6)
        axes.set(
            xlabel="how much more often models trained on a record label it correctly than other "
            "models do",
            ylabel="training records",
            yscale="symlog",
        )
        # text is drawn as it is, formulas too
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        keys(figure, [axes])
        high = int((values[known] >= QUARTER).sum())
        headline(
            figure,
            f"{high:,} of {len(values):,} training records have an estimated memorisation of "
            "at least 0.25",
            dataset,
        )
    return {
        "memorisation": (
            "Estimated memorisation of records, from models trained on random halves of the "
            "data. Records whose label is certified in the run (stable distance at least 1) are "
            "shown separately. Certificates do not cover models trained on halves, so the "
            "estimates of certified records also lie on both sides of 0, by chance."
        )
    }


def memorised(learnt: Contrast, models: int, confidence: float) -> Finding:
    """Of half of the models a record is in, and of as many not."""
    looks, many = len(learnt.value), int((learnt.value >= QUARTER).sum())
    why, surely, least_seen, found = _surely(learnt, looks, confidence, "record", 2)
    sure = (
        f"for {surely} of {looks:,} training records, it is certain (with the stated confidence) "
        "that models trained on the record label it correctly more often than other models"
    )
    noticeable = (
        f"this audit detects a difference of at least {least_seen} between the probabilities of "
        "a correct label with and without the record, if all models trained on the record label "
        "it correctly"
    )
    return Finding(
        subject="memorisation",
        claim=(
            "nothing is claimed about how much training on a record raises the probability "
            "that it is labelled correctly"
        ),
        attack="models trained on random halves of the data are compared: those trained on a "
        "record with those not trained on it",
        effort=f"{models} models, {looks:,} records",
        meaning=(
            f"{why or sure}. For {many:,} records, models trained on random halves of the data "
            "give an estimated probability of a correct label that is at least 0.25 higher if the "
            "record was trained on. Some of these differences are due to chance"
        ),
        measure="records memorised",
        noticeable="" if why else noticeable,
        **found,
    )


def influence_finding(
    decided: Contrast, looks: int, targets: int, models: int, confidence: float
) -> Finding:
    """Of the models without the test record, which are half, half were trained on the training
    record.
    """
    why, surely, least_seen, found = _surely(decided, looks, confidence, "pair", 4)
    sure = why or (
        f"for {surely} pairs of a training and a test record, it is certain (with the stated "
        "confidence) that models trained on the training record answer the test record "
        "correctly more often. Only pairs with the largest estimates were examined"
    )
    noticeable = (
        f"this audit detects an influence of at least {least_seen} (a difference between "
        "probabilities), if all models trained on the training record answer the test record "
        "correctly"
    )
    if len(decided.value):
        strongest = float(decided.value[0])
        sure = (
            f"{sure}. The strongest influence is estimated at {strongest:.3g} (a difference "
            "between probabilities)"
        )
    return Finding(
        subject="influence of a training record on a test record's answer",
        claim=(
            "nothing is claimed about how much training on a record changes the probability "
            "that a test record is answered correctly"
        ),
        attack=(
            "models trained on random halves of the data are compared: those trained on the "
            "training record with those not trained on it"
        ),
        effort=(
            f"{models} models; {looks:,} pairs, each of a training record and one of {targets:,} "
            "test records (seed=... chose these test records)"
        ),
        meaning=sure,
        measure="pairs",
        noticeable="" if why else noticeable,
        **found,
    )


def _surely(
    contrast: Contrast, looks: int, confidence: float, item: str, parts: int
) -> tuple[str, str, str, dict[str, Any]]:
    """(why not even the clearest contrast would be sure, empty: it would; how many are; the least
    estimate that would have been; what a finding says of it).

    Args:
        looks: among which the error is shared.
        item: contrast, in a word.
        parts: into how many equal parts of the models a contrast's two sides fall.
    """
    fewest, estimator = (
        needed(looks, confidence),
        f"Clopper-Pearson, with the error probability shared among all {item}s",
    )
    needed_models = parts * fewest
    why = (
        f"there are too few models trained on halves to be certain about any {item}: set "
        f"audit.shadows={needed_models} or more (for {looks:,} {item}s)"
    )
    if not len(contrast.value):
        why = (
            "no influence could be estimated, because no test record was used. Set "
            "audit.targets=NUMBER, and give a run with test records"
        )
    elif min(int(side.max(initial=0)) for side in (contrast.having, contrast.without)) >= fewest:
        surely = int((contrast.bounds(confidence, looks)[0] > 0).sum())
        found = {"outcome": Outcome.REPORTED, "found": float(surely), "confidence": confidence}
        return (
            "",
            f"{surely:,}",
            f"{_smallest(contrast, confidence, looks):.2g}",
            {**found, "estimator": estimator},
        )
    return why, "", "", {"outcome": Outcome.UNTESTED, "estimator": estimator}


def _smallest(learnt: Contrast, confidence: float, looks: int) -> float:
    """The least estimate that would have been called memorised, of a record that all models with
    it have right.
    """
    with_it, without = int(np.median(learnt.having)), int(np.median(learnt.without))
    hits = np.arange(without + 1)
    ends = Contrast(
        np.full(without + 1, with_it),
        np.full(without + 1, with_it),
        hits,
        np.full(without + 1, without),
    )
    shown = ends.bounds(confidence, looks)[0] > 0
    return float(ends.value[shown].min()) if shown.any() else 1.0
