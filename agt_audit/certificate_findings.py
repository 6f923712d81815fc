"""The findings of an audit of certificates, and its notes, made from the audit's counts."""

import math
from collections.abc import Iterator

import numpy as np

from agt.errors import counted
from agt_audit.certificate_counts import Claims, Counts
from agt_audit.relation_edits import EditKind, kinds_of
from agt_cli.report.findings import Finding, exact_finding

MAX_REFUSALS_SHOWN = 3
NESTING_CLAIM = (
    "if D and D' are neighbouring datasets, the parameter bounds computed on D' for distance k - 1 "
    "lie within those computed on D for distance k"
)
# Names of findings, with which their subjects begin.
PARAMETERS = "parameters"
CERTIFIED_LABELS = "certified labels"
NESTING_BOXES = "nesting"
STABLE_DISTANCES = "stable distances"


def describe_effort(claims: Claims, counts: Counts) -> str:
    """Return a text that says how many neighbours were trained, and how many were not."""
    train = claims.problem.dataset.train
    private_units = len(np.unique(train.units[~train.public]))
    edited = counts.neighbours_trained - counts.units_left_out
    changed = "no neighbouring dataset was made with edits chosen to change answers"
    if edited:
        changed = (
            f"{edited:,} neighbouring datasets, up to distance k = {counts.farthest}, were made "
            "with edits chosen to change answers"
        )
    parts = [
        f"{counts.units_left_out:,} of {private_units:,} units (people) were left out of "
        "training, one at a time",
        changed,
    ]
    if counts.refused:
        refused_datasets = counted(counts.refused, "more neighbouring dataset")
        parts.append(f"training refused {refused_datasets}")
    if counts.ended_early:
        parts.append("the time limit audit.seconds ended the search early")
    return "; ".join(parts)


def parameters_finding(claims: Claims, counts: Counts) -> Finding:
    """Return the finding about whether neighbours' parameters lie within their bounds.

    It says by how much the bounds must be too narrow to be detected, for the two groups of
    parameters (one tensor each) with the largest and the smallest deviation. A deviation is the
    largest of all elements of a group, so this is about all bounds of a group together.
    """
    edits_within_k = claims.relation.describe_neighbours(claims.problem.settings.relation.unit_rows)
    largest_first = sorted(counts.parameter_deviations.items(), key=lambda item: -item[1])
    narrowings = {}
    for group, deviation in (*largest_first[:1], *largest_first[-1:]):
        narrowings[group] = 100 * max(0.0, 1 - deviation)
    detectable = " and ".join(
        f"by more than {narrowing:.3g} % in {group}" for group, narrowing in narrowings.items()
    )
    return exact_finding(
        subject=f"{PARAMETERS}: {claims.subject}",
        claim=(
            f"on every dataset with {edits_within_k}, the trained parameters stay within the "
            "run's bounds for distance k"
        ),
        attack=(
            "models were trained on neighbouring datasets with the run's settings. Some of these "
            "datasets lack a unit (a person), others were edited to change answers"
        ),
        effort=describe_effort(claims, counts),
        measure="deviation/bound",
        found=counts.largest_deviation if counts.parameter_deviations else None,
        meaning=_parameters_sentence(counts),
        noticeable=(
            "this audit detects if all bounds of a group of parameters are too narrow "
            f"{detectable}. For other groups, the percentage lies between those given. It may "
            "miss a single bound that is too narrow"
        ),
        max_allowed=1.0,
    )


def _parameters_sentence(counts: Counts) -> str:
    """Return a sentence with the largest deviation, or with the reason why there is none."""
    deviation = share_of_bound_text(counts.largest_deviation)
    if counts.bound_violation:
        return (
            "a model trained on a neighbouring dataset deviates from the run's parameters by "
            f"{deviation}, which is more than allowed. First case found: {counts.bound_violation}"
        )
    if not counts.neighbours_trained:
        return (
            "no model was trained on a neighbouring dataset, so the bounds were not tested: raise "
            "audit.units, audit.neighbours or audit.seconds"
        )
    if not counts.parameter_deviations:
        return (
            "the bounds were not tested, because all neighbouring datasets are farther from the "
            "run's dataset than the largest distance k for which the run has bounds"
        )
    return (
        "models trained on neighbouring datasets deviate from the run's parameters by at most "
        f"{deviation}"
    )


def share_of_bound_text(share: float) -> str:
    """Return a deviation, given as a share of its bound, as a percentage or a multiple of it.

    It has so many digits that only a share of exactly 1 is shown as 100 %.
    """
    difference = abs(1 - share)
    percentage = 100 * share
    if share >= 2:
        return f"{share:.3g} times the bound"
    if 0 < difference < 0.01:
        digits = max(1, math.ceil(-math.log10(100 * difference)))
        return f"{percentage:.{digits}f} % of the bound"
    return f"{percentage:.3g} % of the bound"


def certified_labels_finding(claims: Claims, counts: Counts, queries: int) -> Finding:
    """Return the finding about certified labels, of which neighbours must not change any.

    Args:
        claims: the run's claims.
        counts: the counts of the audit.
        queries: how many queries were asked, beside the training records.
    """
    if counts.label_violation:
        meaning = f"some certified labels changed; for example, {counts.label_violation}"
    elif counts.labels_compared:
        meaning = (
            f"0 of {counts.labels_compared:,} certified labels changed on neighbouring datasets"
        )
    else:
        meaning = (
            "no certified label was tested, because no query is certified at the distance of any "
            "neighbouring dataset that was made"
        )
    return exact_finding(
        subject=f"{CERTIFIED_LABELS}: {claims.subject}",
        claim=(
            "a label with stable distance L is the same for models trained on any dataset within "
            "distance L of the run's dataset. So no certified training record is memorised"
        ),
        attack=(
            f"{queries} queries were asked. Some of them lie where the label or the stable "
            "distance changes (found by bisection). The labels of all training records were "
            "compared, too, whenever a unit was left out"
        ),
        effort=describe_effort(claims, counts),
        measure="certified labels that changed",
        found=float(counts.labels_changed) if counts.labels_compared else None,
        meaning=meaning,
        noticeable="this audit detects a single label that changed",
    )


def pair_findings(claims: Claims, counts: Counts, other_code: str) -> dict[str, Finding]:
    """Return the findings about the bounds of two neighbouring datasets, by their names.

    Bounds of which the run claims nothing have no finding.

    Args:
        claims: the run's claims.
        counts: the counts of the audit.
        other_code: a clause that says which other version of agt made the run; "": the same did.
    """
    findings: dict[str, Finding] = {}
    if claims.nesting:
        findings[NESTING_BOXES] = _pair_finding(
            counts,
            other_code,
            subject=f"{NESTING_BOXES}: {claims.subject}",
            claim=NESTING_CLAIM,
            compared="ends of parameter bounds",
            count=counts.ends_compared,
            violations=counts.ends_outside,
        )
    if claims.distances:
        largest_difference = "1" if claims.dense else "one step in the run's list of values of k"
        findings[STABLE_DISTANCES] = _pair_finding(
            counts,
            other_code,
            subject=f"{STABLE_DISTANCES}: {claims.subject}",
            claim=(
                "on two neighbouring datasets, the stable distances of a query differ by at most "
                f"{largest_difference}, and its labels differ only if its stable distance is 0 on "
                "both datasets"
            ),
            compared="queries",
            count=counts.answers_compared,
            violations=counts.answers_inconsistent,
        )
    return findings


def _pair_finding(
    counts: Counts,
    other_code: str,
    *,
    subject: str,
    claim: str,
    compared: str,
    count: int,
    violations: int,
) -> Finding:
    """Return the finding on one claim about the bounds that two neighbouring datasets have.

    Args:
        counts: the counts of the audit.
        other_code: a clause that says which other version of agt made the run; "": the same did.
        subject: the subject of the finding.
        claim: the claim, as a sentence.
        compared: what was compared, as a noun in the plural.
        count: how many were compared; 0: the finding is untested.
        violations: how many of them violate the claim.
    """
    attack = (
        "models were trained on neighbouring datasets (at distance 1), and all their bounds were "
        "computed. Some queries were chosen by bisection: they lie where the answer of one of the "
        "models changes"
    )
    if other_code:
        attack = (
            f"{attack}. These models were compared with the run's own model, which this version "
            "of agt trained again"
        )
    meaning = f"no {compared} were compared"
    if count:
        meaning = f"{violations} of {count} {compared} violate the claim"
    elif not counts.pairs:
        meaning = (
            "no bounds were computed on a neighbouring dataset, so this claim was not tested: "
            "raise audit.bounded (or audit.seconds, if the time ran out)"
        )
    return exact_finding(
        subject=subject,
        claim=claim,
        attack=attack,
        effort=f"{counts.pairs} neighbouring datasets",
        measure=f"{compared} that violate the claim",
        found=float(violations) if count else None,
        meaning=meaning,
    )


def notes(claims: Claims, counts: Counts, seconds: float | None) -> Iterator[str]:
    """Yield the notes of an audit of certificates: sentences that help to read the findings.

    Args:
        claims: the run's claims.
        counts: the counts of the audit.
        seconds: the time limit; None: there is none.
    """
    yield (
        "a violation is a counterexample and therefore certain, but finding none proves nothing. "
        "If the largest deviation is 90 % of its bound, for example, this audit detects only "
        "bounds that are too narrow by more than 10 %"
    )
    if counts.ended_early:
        yield (
            f"audit.seconds={seconds:g} ended the search early. On neighbouring datasets, "
            f"{counts.neighbours_trained:,} of {counts.neighbours_planned:,} planned models were "
            f"trained, and the bounds of {counts.pairs} of {counts.pairs_planned} planned models "
            "were computed"
        )
    for reason, refused in counts.refusal_reasons.most_common(MAX_REFUSALS_SHOWN):
        refused_datasets = counted(refused, "neighbouring dataset")
        yield f"training refused {refused_datasets}, for this reason: {reason}"
    if counts.unreached:
        yield (
            f"{counts.unreached} comparisons with neighbouring datasets were not made, because "
            "these datasets are farther from the run's data than the largest k for which the run "
            "has bounds"
        )
    if {EditKind.COMES, EditKind.REPLACED} & kinds_of(claims.problem.settings.relation.name):
        yield (
            "records that the audit adds may have values outside the declared ranges of their "
            "columns. The certificates must hold for these records as well"
        )
