"""Parts that several reports have in common."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from agt.certificates.conditions import Condition
from agt.facts import Standing
from agt.relations import RELATIONS
from agt.settings import RelationConfig
from agt_cli.report.markdown import Markdown, bullets, markdown_table, plain
from agt_cli.report.quality import RateEstimate, rate_words

# of the answers: a page's first sentence is about the farthest k at which so many are certified
MOST = 0.9
CERTIFIED_SHARE = re.compile(r"certified_k(\d+)")  # a column of tables/quality.csv


def ball(relation: RelationConfig) -> str:
    """Return in words what one k counts under a relation."""
    return RELATIONS[relation.name].describe_ball(relation.unit_rows, relation.radius)


def within(relation: RelationConfig, k: int) -> str:
    """Return in words what lies within k: "up to 20 records added or removed in all"."""
    rule = RELATIONS[relation.name]
    if k == 1:
        return rule.describe_edit(relation.unit_rows)
    return rule.describe_ball(relation.unit_rows, relation.radius, k)


def guarantee(conditions: Sequence[Condition]) -> str:
    """Return one sentence: can these certificates carry a privacy guarantee?"""
    failed = [condition for condition in conditions if not condition.held]
    if failed:
        return f"These certificates cannot carry a privacy guarantee: not held: {_names(failed)}."
    granted = "these certificates can carry a privacy guarantee"
    through = "through a release mechanism calibrated to the stable distance."
    declared = [c for c in conditions if c.standing is Standing.DECLARED]
    if not declared:
        return f"All conditions are proved here: {granted}, {through}"
    return (
        "No condition fails; on what was declared, which nothing here can check, rests: "
        f"{_names(declared)}; "
        f"as far as that is true, {granted}, {through}"
    )


def _names(conditions: Sequence[Condition]) -> str:
    names = [f"{condition.name} ({condition.letter})" for condition in conditions]
    return ", ".join(names)


def unmet(conditions: Sequence[Condition]) -> list[str]:
    """Return lines for the console: what a guarantee of privacy still needs, or why this run can
    have none.

    Returns:
        Nothing where every condition holds. Where the relation is one-sided (condition g), that
        alone:
        whatever else is mended, the relation stays as it is.
    """
    failed = [condition for condition in conditions if not condition.held]
    if not failed:
        return []
    one_sided = [condition for condition in failed if condition.letter == "g"]
    yet = "" if one_sided else " yet"
    lines = [f"no private answer can rest on this run{yet} (certificates are true as they stand):"]
    for condition in one_sided or failed:
        lines.append(f"  condition {condition.letter}: {condition.evidence.missing}")
    return lines


def headline(
    row: Mapping[str, Any], metrics: Mapping[str, Any], trained: int, relation: RelationConfig
) -> list[str]:
    """Return the first lines of a page about a model: a sentence, and the numbers that it rests on.

    The sentence is the verdict on a model that is of no use; else how many answers stay the same;
    else the first number.

    Args:
        row: of all records, in tables/quality.csv.
        metrics: of the page's record: the verdict, and where the grid ends.
        trained: training records.
        relation: says what one k counts.
    """
    known = {name: value for name, value in row.items() if not pd.isna(value)}
    verdict = metrics.get("verdict", metrics.get("test_verdict", ""))
    lead = plain(verdict)
    facts = list[str]()
    if "accuracy_or_recall" in known:
        accuracy = _estimate(known, "accuracy_or_recall")
        facts.append(
            Markdown(
                f"accuracy {accuracy}; the same answer to all: {rate_words(known['majority'])}"
            )
        )
    k = _farthest_certified(known)
    if k is not None:
        if not lead:
            share = rate_words(known[f"certified_k{k}"])
            lead = f"{share} of the answers stay the same with {within(relation, k)}."
        right = f"certified_and_right_k{k}"
        if right in known:
            facts.append(Markdown(f"the same at k = {k} and right: {_estimate(known, right)}"))
    if "stable_distance_median" in known:
        facts.append(
            half_stands(known["stable_distance_median"], trained, metrics.get("k_max"), relation)
        )
    if not lead and facts:
        lead = facts.pop(0)
    return [f"**{lead}**" if lead else "", bullets(facts)]


def _estimate(row: Mapping[str, Any], name: str) -> RateEstimate:
    return RateEstimate(row[name], row[f"{name}_low"], row[f"{name}_high"])


def _farthest_certified(row: Mapping[str, Any]) -> int | None:
    """Return the last k of a row at which ``MOST`` of the answers are certified; if there is
    none, the first k.
    """
    farthest = None
    for name, share in row.items():
        column = CERTIFIED_SHARE.fullmatch(name)
        if column and (farthest is None or share >= MOST):
            farthest = int(column[1])
    return farthest


def half_stands(distance: float, trained: int, most: int | None, relation: RelationConfig) -> str:
    """Return what a median of stable distances says.

    Args:
        distance: the median.
        trained: training records.
        most: the last k of the grid; None: there is no grid.
        relation: says how many rows a unit may have.
    """
    reach = math.floor(distance)
    end = " or more, where the grid ends" if distance == most else ""
    share = f"units of up to {relation.unit_rows}"
    if relation.unit_rows == 1:
        share = f"{reach / trained:.2%}"
    return (
        f"half of the answers stand up to k = {reach:,}{end} ({share} of the {trained:,} "
        "training records)"
    )


def next_section(*commands: str) -> list[str]:
    """Return the part of a page that says what one may do after a command."""
    return ["## Next", "\n".join(f"    agt {command}" for command in commands)]


def metrics_table(metrics: Mapping[str, object]) -> str:
    """Return a table of metrics, floats with six digits."""
    rows = []
    for name, value in metrics.items():
        text = f"{value:,.6g}" if isinstance(value, float) else str(value)
        rows.append((name, text))
    return markdown_table(("metric", "value"), rows)


def counts_section(relation: RelationConfig) -> list[str]:
    """Return the part of a page that says what one k counts."""
    counts = f"Neighbour relation `{relation.name}`: k counts **{ball(relation)}**."
    remarks = RELATIONS[relation.name].remarks
    return ["## What k counts", " ".join((counts, *remarks))]


def figures_section(
    dataset: str, captions: Mapping[str, str], folder: str = "figures"
) -> list[str]:
    """Return each figure of a record with its caption.

    Args:
        captions: figure name -> what it shows.
        folder: where they are, from the page.
    """
    figures = []
    for name, caption in captions.items():
        text = plain(caption)
        figures.append(f"![{text}]({folder}/{name}.png)\n\n*{plain(dataset)}. {text}*")
    return figures


def conditions_section(conditions: Sequence[Condition]) -> list[str]:
    """Return the part of a page that says whether a guarantee may rest on a run, and lists each
    condition.
    """
    rows = []
    for condition in conditions:
        standing = Markdown(f"**{condition.standing}**")
        rows.append((condition.name, condition.letter, standing, condition.why))
    return [
        "## Can a privacy guarantee rest on this?",
        guarantee(conditions),
        markdown_table(("asks", "", "stands", "why"), rows),
    ]
