"""agt audit memorisation: which training records the model has memorised, and which training record
decides the answer to a test record.

    memorisation of j       P(h(x_j) = y_j | j in S) - P(h(x_j) = y_j | j not in S)
    influence of i on t     P(h(x_t) = y_t | i in S, t not in S) - P(h(x_t) = y_t | i not in S, t
                            not in S)

over the draw of the subset S that h is trained on (Feldman 2020; Feldman and Zhang 2020). Both are
``InOutCounts``: of the models with a record and of those without it, how many are right. If records
are left out one at a time, with everything else as it is, memorisation is 0 wherever the label is
certified (stable distance 1 or more): that is a claim, which agt_audit/certificate.py tests.

Formal guarantees
    * If each unit is in S by its own fair coin, and models are independent or paired on both halves
      of one draw, then each count is binomial, and each share lies within its Clopper-Pearson
      limits, apart from the error probability given to them. ``bounds`` shares the error among both
      ends of both shares and among all pairs that are looked at, by the union bound, whether or not
      the two counts depend on each other.
    * A record's influence on its own answer is undefined, as no model without t has t, and never
      among ``strongest``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from agt.settings import schema
from agt_audit.estimates import lower_limit, upper_limit
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import MemorisationSettings
from agt_audit.page import rounded_cell
from agt_audit.shadows import SIZES, Pool, ShadowConfig, trained_shadows
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import certification_progress

TARGETS_AT_ONCE = 64  # targets whose influences are computed together, to limit memory


class InOutCounts(NamedTuple):
    """Counts of models with and without a record, and of those that give the right label.

    All arrays have one shape: an element for each record, or for each pair of records.

    Attributes:
        right_with: how many of the models with the record are right.
        models_with: how many models were trained on the record.
        right_without: how many of the models without the record are right.
        models_without: how many models were trained without it.
    """

    right_with: np.ndarray
    models_with: np.ndarray
    right_without: np.ndarray
    models_without: np.ndarray

    @property
    def value(self) -> np.ndarray:
        """The difference of the two shares of right models; NaN if all models are on one side."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.right_with / self.models_with - self.right_without / self.models_without

    def bounds(self, confidence: float, comparisons: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper bounds on the true differences, each in the arrays' shape.

        Args:
            confidence: the probability with which all ``comparisons`` differences lie between their
                bounds.
            comparisons: how many differences share the error probability.
        """
        error = (1 - confidence) / comparisons / 4  # two ends of two shares
        with_record = (self.right_with, self.models_with, error)
        without_record = (self.right_without, self.models_without, error)
        lower = lower_limit(*with_record) - upper_limit(*without_record)
        upper = upper_limit(*with_record) - lower_limit(*without_record)
        return lower, upper

    def take(self, indices: np.ndarray) -> "InOutCounts":
        """Return the counts at some indices of the flattened arrays."""
        return InOutCounts(*(array.ravel()[indices] for array in self))


def needed(records: int, confidence: float) -> int:
    """Return how many models with, and without, a record a lower bound above 0 requires.

    Args:
        records: how many records' bounds share the error probability.
        confidence: the probability with which all bounds hold together.
    """
    return math.floor(math.log2(4 * records / (1 - confidence))) + 1


def memorisation(included: np.ndarray, right: np.ndarray) -> InOutCounts:
    """Count the models that give each record its own label, with and without the record, [n].

    Args:
        included: [m, n] bool, which model was trained on which record.
        right: [m, n] bool, which model gives a record its own label.
    """
    models_with = included.sum(axis=0)
    return InOutCounts(
        right_with=(included & right).sum(axis=0),
        models_with=models_with,
        right_without=(~included & right).sum(axis=0),
        models_without=len(included) - models_with,
    )


def influence(
    included: np.ndarray, right: np.ndarray, sources: np.ndarray, targets: np.ndarray
) -> InOutCounts:
    """Count the models that label a target rightly, with and without a source record.

    Only models that were trained without the target are counted.

    Args:
        included: [m, n] bool, which model was trained on which record.
        right: [m, n] bool, which model gives a record its own label.
        sources: indices of the records whose influence is measured.
        targets: indices of the records that are labelled.

    Returns:
        Counts of shape [sources, targets].
    """
    has_source = included[:, sources].astype(np.float32)
    lacks_target = ~included[:, targets]
    is_right = (lacks_target & right[:, targets]).astype(np.float32)
    is_counted = lacks_target.astype(np.float32)
    right_with = has_source.T @ is_right
    models_with = has_source.T @ is_counted
    return InOutCounts(
        right_with=right_with,
        models_with=models_with,
        right_without=is_right.sum(axis=0) - right_with,
        models_without=is_counted.sum(axis=0) - models_with,
    )


class InfluentialPairs(NamedTuple):
    """Pairs of records, the first of which influences the answer to the second.

    Attributes:
        sources: [p] the indices of the influencing records.
        targets: [p] the indices of the influenced records.
        counts: the counts of each pair, [p].
    """

    sources: np.ndarray
    targets: np.ndarray
    counts: InOutCounts


def strongest(
    included: np.ndarray, right: np.ndarray, sources: np.ndarray, targets: np.ndarray, count: int
) -> InfluentialPairs:
    """Return the pairs with the largest estimated influence, the largest first.

    Pairs without models on both sides are left out.

    Args:
        included: [m, n] bool, which model was trained on which record.
        right: [m, n] bool, which model gives a record its own label.
        sources: indices of the records whose influence is measured.
        targets: indices of the records that are labelled.
        count: the largest number of pairs to return.
    """
    no_rows = np.empty(0, dtype=np.int64)
    pairs = InfluentialPairs(no_rows, no_rows, InOutCounts(*np.empty((4, 0))))
    for start in range(0, len(targets), TARGETS_AT_ONCE):
        chunk = targets[start : start + TARGETS_AT_ONCE]
        of_chunk = influence(included, right, sources, chunk)
        known = np.flatnonzero(np.isfinite(of_chunk.value))
        source, target = np.divmod(known, len(chunk))
        both = zip(pairs.counts, of_chunk.take(known), strict=True)
        counts = InOutCounts(*map(np.concatenate, both))
        largest = np.argsort(-counts.value, kind="stable")[:count]
        pairs = InfluentialPairs(
            sources=np.concatenate([pairs.sources, sources[source]])[largest],
            targets=np.concatenate([pairs.targets, chunk[target]])[largest],
            counts=counts.take(largest),
        )
    return pairs


# -- the audit
# --------------------------------------------------------------------------------------------------

NOTES = (
    "the tables describe models trained on random halves of the run's data, not "
    "the run's own model. The run's certificate does not cover these models: it says only that "
    "the run's own model gives a certified record the same label if only this record is left out "
    "of training",
    "most numbers of the tables are rough estimates from few models. The largest "
    "ones were picked from many, so some are large by chance",
    "only the columns 'at_least' of the two tables are certain: their numbers are rigorous "
    "lower bounds that hold for all records, or all pairs of records, together. A value above 0 "
    "shows memorisation, or influence",
    SIZES,
    "a certified record must get the same label if only its person is left out of training: "
    "`agt audit certificate` tests this claim, which this audit does not",
)
QUARTER = 0.25  # the smallest estimate that is called large


@schema
class Memorisation(MemorisationSettings, AuditKind):
    """Estimates memorisation and influence from models that are trained on random halves.

    Nothing is claimed of these. ``agt audit certificate`` tests the claim that certified records
    are not memorised, by leaving people out of training, one at a time.

    Attributes:
        shadows: how many models are trained, an even number; models that ``agt audit membership``
            trained with the same settings are used again.
        workers: how many processes train them; None: one for each processor.
        targets: how many test records are targets of influence.
        shown: how many rows the tables of records and of pairs have.
    """

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train models on halves of the records, and return what they show.

        Args:
            given: the settings that all kinds of audit share.
            record: the audit's run folder.
            console: the console, which shows progress.

        Returns:
            Two findings, of memorisation and of influence; the tables of the most memorised
            records, and of the most influential pairs.

        Raises:
            DataMissing: the run's data is missing.
            ConfigError: the run's data was changed.
            CheckError: every shadow model failed.
        """
        opened = given.open(record, console)
        pool = Pool.of(opened.dataset)
        config = ShadowConfig(self.shadows, given.seed, self.workers)
        shadows = trained_shadows(config, given, opened, pool, console)
        is_right = shadows.logits.argmax(axis=2) == pool.records.labels
        with certification_progress(opened.model, console) as report:
            certificates = opened.model.certify(pool.records.features, on_progress=report)

        members = np.flatnonzero(pool.member)
        memorised = memorisation(shadows.included, is_right)
        memorised_table = _memorised_table(
            pool,
            opened.dataset.classes,
            certificates.stable_distance,
            memorised,
            given.confidence,
        )
        test_rows = np.random.default_rng(given.seed).permutation(np.flatnonzero(~pool.member))
        targets = test_rows[: self.targets]
        pairs = strongest(shadows.included, is_right, members, targets, count=self.shown)
        pair_count = len(members) * len(targets)
        influence_table = _influence_table(pool, pairs, max(pair_count, 1), given.confidence)

        models = len(shadows)
        of_members = memorised.take(members)
        findings = (
            _memorisation_finding(of_members, models, given.confidence),
            _influence_finding(pairs.counts, models, len(members), len(targets), given.confidence),
        )
        tables = {
            "memorised": memorised_table.head(self.shown).map(rounded_cell),
            "influence": influence_table.map(rounded_cell),
        }
        return Audited.of(
            opened.trained.finished,
            findings,
            (*NOTES, *shadows.failure_notes),
            tables=tables,
            metrics={"shadows": models, "shadows_reused": shadows.reused},
        )


def _memorisation_finding(counts: InOutCounts, models: int, confidence: float) -> Finding:
    """Return the finding about how many training records are memorised.

    Args:
        counts: for each training record, how many models label it rightly, with and without it.
        models: how many models were trained.
        confidence: the probability with which all lower bounds hold together.
    """
    records = len(counts.value)
    large_estimates = int((counts.value >= QUARTER).sum())
    return difference_finding(
        MEMORISATION,
        counts,
        records,
        confidence,
        effort=f"{models} models, {records:,} records",
        estimates=(
            f"For {large_estimates:,} records, models trained on random halves of the data "
            "give an estimated probability of a correct label that is at least 0.25 higher if "
            "the record was trained on. Some of these differences are due to chance"
        ),
    )


def _influence_finding(
    counts: InOutCounts, models: int, members: int, targets: int, confidence: float
) -> Finding:
    """Return the finding about how many training records influence the answer to a test record.

    Args:
        counts: how many models label a test record rightly, with and without a training record,
            of the pairs with the largest estimates.
        models: how many models were trained.
        members: how many training records there are.
        targets: how many test records were used.
        confidence: the probability with which the lower bounds of all pairs hold together.
    """
    pairs = members * targets
    largest = max(counts.value, default=0.0)
    return difference_finding(
        INFLUENCE,
        counts,
        pairs,
        confidence,
        effort=(
            f"{models} models; {pairs:,} pairs, each of a training record and one of "
            f"{targets:,} test records (seed=... chose these test records)"
        ),
        estimates=(
            "Only pairs with the largest estimates were examined. The strongest influence is "
            f"estimated at {largest:.3g} (a difference between probabilities)"
        ),
    )


def _influence_table(
    pool: Pool, pairs: InfluentialPairs, comparisons: int, confidence: float
) -> pd.DataFrame:
    """Return a table with a row for each pair, which names its two records.

    Args:
        pool: the records.
        pairs: the pairs with the largest estimates.
        comparisons: among how many pairs they were found, which share the error probability.
        confidence: the probability with which all lower bounds (``at_least``) hold together.
    """
    lower, _ = pairs.counts.bounds(confidence, comparisons)
    return pd.DataFrame(
        {
            "training_record": pool.records.ids[pairs.sources],
            "test_record": pool.records.ids[pairs.targets],
            "influence": pairs.counts.value,
            "at_least": lower,
        }
    )


def _memorised_table(
    pool: Pool,
    classes: Sequence[str],
    distance: np.ndarray,
    memorised: InOutCounts,
    confidence: float,
) -> pd.DataFrame:
    """Return the table of members, the most memorised first.

    Args:
        pool: the n records.
        classes: the names of the classes.
        distance: [n] stable distances of the records.
        memorised: for each record, the counts of models that label it rightly, with and without it
            in training.
        confidence: the probability with which all lower bounds hold together.
    """
    members = np.flatnonzero(pool.member)
    table = pd.DataFrame(
        {
            "id": pool.records.ids,
            "label": [classes[label] for label in pool.records.labels],
            "stable_distance": distance,
            "estimate_over_halves": memorised.value,
            "at_least": memorised.bounds(confidence, len(members))[0],
            **memorised._asdict(),
        }
    )
    return table.iloc[members].sort_values("estimate_over_halves", ascending=False, kind="stable")


@dataclass(frozen=True)
class Difference:
    """The words of a finding about one kind of difference between models trained on halves.

    Attributes:
        subject: the subject of the finding.
        measure: what is counted, in words.
        item: what a difference is computed for, "record" or "pair".
        target: the record that the models answer.
        groups: the number of equal groups of models of which one was trained on the source and one
            was not, and which are counted; it gives the number of models that are needed in all.
    """

    subject: str
    measure: str
    item: str
    target: str
    groups: int


MEMORISATION = Difference(
    subject="memorisation",
    measure="records memorised",
    item="record",
    target="this record",
    groups=2,
)
# of four groups of models, with and without each record of a pair, two are compared
INFLUENCE = Difference(
    subject="influence of a training record on a test record's answer",
    measure="pairs",
    item="pair",
    target="a test record",
    groups=4,
)


def difference_finding(
    difference: Difference,
    counts: InOutCounts,
    comparisons: int,
    confidence: float,
    effort: str,
    estimates: str,
) -> Finding:
    """Return the finding about how many differences have a lower bound above 0.

    Args:
        difference: what the differences are.
        counts: the differences that are examined, those with the largest estimates first if they
            are not all.
        comparisons: how many differences share the error probability, at least those of ``counts``.
        confidence: the probability with which all lower bounds hold together.
        effort: how many models and differences there are, in words.
        estimates: a sentence about the estimates, which are not certain.

    Returns:
        The finding, whose number is reported. It is untested if no bound could be above 0.
    """
    item = difference.item
    effect = (
        f"training on a training record raises the probability that {difference.target} is "
        "labelled correctly"
    )
    finding = partial(
        Finding,
        subject=difference.subject,
        claim=f"nothing is claimed about how much {effect}",
        attack=(
            "models trained on random halves of the data are compared: those trained on a training "
            "record with those not trained on it"
        ),
        effort=effort,
        measure=difference.measure,
        estimator=f"Clopper-Pearson, with the error probability shared among all {item}s",
    )
    reason = _reason_untested(difference, counts, comparisons, confidence)
    if reason:
        return finding(outcome=Outcome.UNTESTED, meaning=reason)
    lower, _ = counts.bounds(confidence, comparisons)
    certain = int((lower > 0).sum())
    smallest = _smallest_certain_estimate(counts, confidence, comparisons)
    return finding(
        outcome=Outcome.REPORTED,
        meaning=(
            f"for {certain:,} of {comparisons:,} {item}s, it is certain (with the stated "
            f"confidence) that {effect}. {estimates}"
        ),
        found=float(certain),
        confidence=confidence,
        noticeable=(
            f"this audit detects a difference of at least {smallest:.2g} between the two "
            f"probabilities, if all models trained on the training record label "
            f"{difference.target} correctly"
        ),
    )


def _reason_untested(
    difference: Difference, counts: InOutCounts, comparisons: int, confidence: float
) -> str:
    """Return why no lower bound could be above 0; "": one could.

    Args:
        difference: what the differences are.
        counts: the differences that are examined.
        comparisons: how many differences share the error probability.
        confidence: the probability with which all lower bounds hold together.
    """
    if not len(counts.value):
        return (
            "no influence could be estimated, because no test record was used. Set "
            "audit.targets=NUMBER, and give a run with test records"
        )
    fewest = needed(comparisons, confidence)
    if min(int(counts.models_with.max()), int(counts.models_without.max())) >= fewest:
        return ""
    models = difference.groups * fewest
    item = difference.item
    return (
        f"there are too few models trained on halves to be certain about any {item}: set "
        f"audit.shadows={models} or more (for {comparisons:,} {item}s)"
    )


def _smallest_certain_estimate(counts: InOutCounts, confidence: float, comparisons: int) -> float:
    """Return the smallest difference that the audit could have been sure is above 0.

    The difference is that of two shares: of the models with a record that label it rightly, and of
    the models without it. All models with the record are taken to be right. Of the models without
    it each possible number is tried, and the smallest difference whose lower bound is above 0 is
    returned; 1 if there is none. The numbers of models are the medians of ``counts``.

    Args:
        counts: the differences that were examined, at least one.
        confidence: the probability with which all lower bounds hold together.
        comparisons: how many differences share the error probability.
    """
    models_with = int(np.median(counts.models_with))
    models_without = int(np.median(counts.models_without))
    right_without = np.arange(models_without + 1)
    every_with = np.full(models_without + 1, models_with)
    every_without = np.full(models_without + 1, models_without)
    possible = InOutCounts(
        right_with=every_with,
        models_with=every_with,
        right_without=right_without,
        models_without=every_without,
    )
    lower, _ = possible.bounds(confidence, comparisons)
    is_certain = lower > 0
    if not is_certain.any():
        return 1.0
    return float(possible.value[is_certain].min())
