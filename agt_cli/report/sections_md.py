"""Parts that several reports have in common."""

import math
from collections.abc import Mapping, Sequence

from agt import sentences
from agt.certificates.conditions import Condition
from agt.facts import Standing
from agt.relations import RELATIONS
from agt.settings import RelationConfig
from agt_cli.report.markdown import (
    Markdown,
    bold,
    capitalize_first,
    escape_markdown,
    markdown_table,
)
from agt_cli.report.quality import ModelQuality, Quality, Subgroup, format_rate

# of the answers: a page's first sentence is about the farthest k at which so many are certified
LEAD_SHARE = 0.9


def describe_edits(relation: RelationConfig) -> str:
    """Return the edits that k counts, such as "records added or removed"."""
    return RELATIONS[relation.name].describe_counted(relation.unit_rows, relation.radius)


def describe_edits_up_to(relation: RelationConfig, k: int) -> str:
    """Return a clause on up to k edits, such as "up to 20 records added or removed in all"."""
    rule = RELATIONS[relation.name]
    if k == 1:
        return rule.describe_edit(relation.unit_rows)
    return rule.describe_neighbours(relation.unit_rows, relation.radius, k)


REQUIREMENTS = {
    "dense grid": "certificates exist for every k = 0, 1, 2, ..., without gaps",
    "each record stands alone": (
        "a record's split (training or test) and batch depend on that record only"
    ),
    "public constants": "constants are public",
    "inclusion-monotone rules": (
        "the bounds for k contain the bounds that each neighbouring dataset has for k - 1"
    ),
    "every step non-expansive": (
        "no training step moves the models of two neighbouring datasets further apart"
    ),
    "curvature moves as a neighbour does": (
        "on a neighbouring dataset, the curvature of the loss changes by at most its bound"
    ),
    "a record moves one vote": "one record changes the vote of at most one member",
    "public preprocessing and choices": "preprocessing and settings use public data only",
    "floating point": "bounds cover floating-point rounding",
    "symmetric relation": "the relation is symmetric",
}
"""The name of a condition, as records have it -> what it requires, as readers see it."""


def privacy_sentence(conditions: Sequence[Condition], brief: bool = False) -> str:
    """Return one sentence that says whether these certificates can support a privacy claim.

    Args:
        conditions: the conditions of the claim.
        brief: True: the sentence for a terminal, in which declared conditions are named as in the
            brief form of a claim.
    """
    unmet = describe_unmet_conditions(conditions)
    if unmet:
        return f"These certificates cannot support a privacy claim, because {unmet}."
    supported = (
        "These certificates can support a privacy claim for a release whose mechanism is "
        "calibrated to the stable distance (the largest k at which an answer is certified)"
    )
    declared = [c for c in conditions if c.standing is Standing.DECLARED]
    if not declared:
        return f"{supported}. All conditions for this are proved."
    if brief:
        stated = sentences.declared_in_brief(condition.letter for condition in declared)
        return f"These certificates can support a privacy claim, which {stated}."
    declarations = _describe_requirements(declared)
    return (
        f"{supported}, if what was declared is true: {declarations}. No code can check a "
        "declaration."
    )


def _privacy_answer(conditions: Sequence[Condition]) -> str:
    """Return whether a privacy guarantee is possible, with the conditions that decide it."""
    unmet = describe_unmet_conditions(conditions)
    if unmet:
        return Markdown(f"**No.** {capitalize_first(unmet)}")
    declared = [c for c in conditions if c.standing is Standing.DECLARED]
    if declared:
        declarations = _describe_requirements(declared)
        return Markdown(f"**Yes**, if what was declared is true: {declarations}")
    return Markdown("**Yes.** All conditions for this are proved")


def describe_unmet_conditions(conditions: Sequence[Condition]) -> str:
    """Return a clause that names the conditions which are not met, with what they require.

    For example "condition e (preprocessing and settings use public data only) is not met"; empty if
    all conditions are met.
    """
    failed = [condition for condition in conditions if not condition.held]
    if not failed:
        return ""
    requirements = _describe_requirements(failed)
    if len(failed) == 1:
        return f"condition {requirements} is not met"
    return f"conditions {requirements} are not met"


def _describe_requirements(conditions: Sequence[Condition]) -> str:
    """Return the letters of conditions, each with what it requires in brackets."""
    return ", ".join(f"{c.letter} ({REQUIREMENTS[c.name]})" for c in conditions)


def unmet_condition_lines(conditions: Sequence[Condition]) -> list[str]:
    """Return lines for the console on the conditions of a privacy guarantee that are not met.

    Returns:
        Nothing where every condition holds. If the relation is not symmetric (condition g), only
        that condition is named, because it stays unmet if all others are corrected.
    """
    failed = [condition for condition in conditions if not condition.held]
    if not failed:
        return []
    one_sided = [condition for condition in failed if condition.letter == "g"]
    yet = "" if one_sided else " yet"
    lines = [f"The certificates hold, but they cannot support a private answer{yet}, because:"]
    for condition in one_sided or failed:
        lines.append(
            f"  condition {_describe_requirements([condition])}: {condition.evidence.missing}"
        )
    return lines


def report_headline(
    quality: ModelQuality, trained: int, relation: RelationConfig, conditions: Sequence[Condition]
) -> list[str]:
    """Return the first lines of a page about a model: a sentence, and a table of its main facts.

    The sentence is the verdict on a model that is of no use; otherwise how many answers are
    certified. For a model of numbers, only the verdict is returned.

    Args:
        quality: the quality of the model, on the records that the page is about.
        trained: the number of training records.
        relation: says what one k counts.
        conditions: the conditions of a privacy claim.
    """
    lead = escape_markdown(quality.verdict)
    if not isinstance(quality, Quality):
        return [f"**{lead}**" if lead else ""]
    all_records = quality.all_records
    facts: list[tuple[str, str]] = []
    if all_records.accuracy is not None and all_records.majority is not None:
        baseline = format_rate(all_records.majority.value)
        accuracy = f"{all_records.accuracy}; majority-class baseline {baseline}"
        facts.append(("Accuracy", Markdown(accuracy)))
    k = _largest_k_of_most_answers(all_records)
    if k is not None:
        share = format_rate(all_records.certified[k].value)
        lead = lead or _certified_sentence(share, k, relation)
        certified = f"{share} of the answers"
        if k in all_records.certified_and_correct:
            certified += (
                f"; certified **and** correct answers: {all_records.certified_and_correct[k]}"
            )
        facts.append((f"Answers certified at k = {k}", Markdown(certified)))
    if all_records.distance is not None:
        median = describe_median_distance(
            all_records.distance, trained, all_records.grid_end, relation
        )
        facts.append(("Median stable distance", median))
    if conditions:
        facts.append(("Can the certificates support a privacy claim?", _privacy_answer(conditions)))
    return [f"**{lead}**" if lead else "", markdown_table(("", ""), facts) if facts else ""]


def _certified_sentence(share: str, k: int, relation: RelationConfig) -> str:
    """Return a sentence on the share of the answers that is certified at k."""
    changes = describe_edits_up_to(relation, k)
    return (
        f"{share} of the answers are certified at k = {k}: with {changes}, each of these answers "
        "would stay the same."
    )


def _largest_k_of_most_answers(group: Subgroup) -> int | None:
    """Return the last k at which ``LEAD_SHARE`` of the answers are certified.

    Where there is none, it is the first k; None where nothing was certified.
    """
    ks = list(group.certified)
    ks_of_most = [k for k in ks if group.certified[k].value >= LEAD_SHARE]
    return max(ks_of_most) if ks_of_most else next(iter(ks), None)


def describe_median_distance(
    distance: float, trained: int, grid_end: int | None, relation: RelationConfig
) -> str:
    """Return the median of stable distances, as a bound where the grid of k ends at it.

    Args:
        distance: the median.
        trained: the number of training records.
        grid_end: the last k that was trained; None: every k is known.
        relation: says how many records a unit may have.
    """
    whole_distance = math.floor(distance)
    fraction = whole_distance / trained
    share = f"{fraction:.2%} of the {trained:,} training records"
    if relation.unit_rows > 1:
        rows = relation.unit_rows
        share = (
            f"k is the number of changed units (people), each with up to {rows} of the "
            f"{trained:,} training records"
        )
    if distance == grid_end:
        return f"at least {whole_distance:,} (the largest k for which this run has bounds; {share})"
    return f"{distance:,g} ({share})"


def next_section(*commands: str) -> list[str]:
    """Return the part of a page that says what one may do after a command."""
    return ["## Next", "\n".join(f"    agt {command}" for command in commands)]


def metrics_table(metrics: Mapping[str, object]) -> str:
    """Return a table of metrics, floats with six digits.

    ``conditions_held`` is left out, because it counts declared conditions as well. The table has
    how many are proved, declared and not met.
    """
    rows = []
    for name, value in metrics.items():
        if name == "conditions_held":
            continue
        text = f"{value:,.6g}" if isinstance(value, float) else str(value)
        rows.append((name, text))
    return markdown_table(("metric", "value"), rows)


_CERTIFIED_LABEL = (
    "An answer is certified at k if training on **every** dataset that differs from this one "
    "by at most k gives the same label. The stable distance of an answer is the largest such "
    "k. A certified answer can still be wrong."
)
_CERTIFIED_NUMBER = (
    "Training on **every** dataset that differs from this one by at most k gives an answer inside "
    "of the interval at k. An interval says nothing about the true label, which may lie outside."
)


def certified_section(relation: RelationConfig, numbers: bool = False) -> list[str]:
    """Return the part of a page that says what a certificate is, and what one k counts.

    Args:
        relation: the neighbour relation.
        numbers: answers are numbers with intervals; else labels with stable distances.
    """
    changes = describe_edits(relation)
    counts = f"k is the number of **{changes}** (relation `{relation.name}`)."
    title = "## What is certified"
    if numbers:
        return [title, f"{counts} {_CERTIFIED_NUMBER}"]
    remarks = RELATIONS[relation.name].remarks
    return [title, " ".join((counts, _CERTIFIED_LABEL, *remarks))]


def figures_section(
    dataset: str, captions: Mapping[str, str], folder: str = "figures"
) -> list[str]:
    """Return each figure of a record with its caption.

    Args:
        captions: figure name -> what it shows.
        folder: the path of the figures' folder from that of the page.
    """
    figures = []
    for name, caption in captions.items():
        text = escape_markdown(caption)
        figures.append(f"![{text}]({folder}/{name}.png)\n\n*{escape_markdown(dataset)}. {text}*")
    return figures


def conditions_section(conditions: Sequence[Condition]) -> list[str]:
    """Return the part of a page that lists the conditions of a privacy claim, and their status."""
    rows = []
    for condition in conditions:
        status = bold(str(condition.standing))
        rows.append((condition.letter, REQUIREMENTS[condition.name], status, condition.why))
    return [
        "## Conditions of a privacy claim",
        privacy_sentence(conditions),
        markdown_table(("", "condition", "status", "reason"), rows),
    ]
