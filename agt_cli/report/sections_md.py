"""Parts that reports of runs share."""

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

MOST = 0.9  # of the answers: a page's first sentence is about the farthest k at which so many are certified


def ball(relation: RelationConfig) -> str:
    """What one k counts under a relation."""
    return RELATIONS[relation.name].ball_of(relation.unit_rows, relation.radius)


def within(relation: RelationConfig, k: int) -> str:
    """What lies within so many k: up to 20 records added or removed in all."""
    rule = RELATIONS[relation.name]
    if k == 1:
        return rule.neighbours(relation.unit_rows)
    return rule.ball_of(relation.unit_rows, relation.radius, k)


def guarantee(conditions: Sequence[Condition]) -> str:
    """One sentence: can these certificates carry a privacy guarantee?"""
    failed = [condition for condition in conditions if not condition.held]
    if not failed:
        return f"{_standing(conditions)} through a release mechanism calibrated to the stable distance."
    return f"These certificates cannot carry a privacy guarantee: not held: {_names(failed)}."


def _names(conditions: Sequence[Condition]) -> str:
    return ", ".join(f"{condition.name} ({condition.letter})" for condition in conditions)


def unmet(conditions: Sequence[Condition]) -> list[str]:
    """Lines for the console: what a guarantee of privacy still needs, or why this run can have none."""
    failed = [condition for condition in conditions if not condition.held]
    if not failed:
        return []
    one_sided = [condition for condition in failed if condition.letter == "g"]
    if one_sided:  # whatever else is mended, the relation stays as it is
        return ["no private answer can rest on this run (certificates are true as they stand):", *map(_asked, one_sided)]
    return ["no private answer can rest on this run yet (certificates are true as they stand):", *map(_asked, failed)]


def _asked(condition: Condition) -> str:
    return f"  condition {condition.letter}: {condition.grounds.missing}"


def _standing(conditions: Sequence[Condition]) -> str:
    declared = [c for c in conditions if c.standing is Standing.DECLARED]
    if not declared:
        return "All conditions are proved here: these certificates can carry a privacy guarantee,"
    return (
        f"No condition fails; on what was declared, which nothing here can check, rests: {_names(declared)}; "
        "as far as that is true, these certificates can carry a privacy guarantee,"
    )


def headline(row: Mapping[str, Any], metrics: Mapping[str, Any], trained: int, relation: RelationConfig) -> list[str]:
    """The first lines of a page about a model: a sentence, and the numbers that it rests on.

    Args:
        row: of all records, in tables/quality.csv.
        metrics: of the page's record: a verdict on a model that is of no use, and where the grid ends.
        trained: training records.
        relation: says what one k counts.
    """
    known = {name: value for name, value in row.items() if not pd.isna(value)}

    def estimate(name: str) -> RateEstimate:
        return RateEstimate(known[name], known[name + "_low"], known[name + "_high"])

    facts, lead = list[str](), plain(metrics.get("verdict", metrics.get("test_verdict", "")))
    if "accuracy_or_recall" in known:
        always = rate_words(known["majority"])
        facts.append(Markdown(f"accuracy {estimate('accuracy_or_recall')}; the same answer to all: {always}"))
    if shares := [name for name in known if re.fullmatch(r"certified_k\d+", name)]:
        name = max((name for name in shares if known[name] >= MOST), default=shares[0], key=shares.index)
        k = name.removeprefix("certified_k")
        lead = lead or f"{rate_words(known[name])} of the answers stay the same with {within(relation, int(k))}."
        if (right := f"certified_and_right_k{k}") in known:
            facts.append(Markdown(f"the same at k = {k} and right: {estimate(right)}"))
    if "stable_distance_median" in known:
        facts.append(half_stands(known["stable_distance_median"], trained, metrics.get("k_max"), relation))
    lead = lead or (facts.pop(0) if facts else "")
    return [f"**{lead}**" if lead else "", bullets(facts)]


def half_stands(distance: float, trained: int, most: int | None, relation: RelationConfig) -> str:
    """What a median of stable distances says; ``most``: the last k of the grid."""
    reach, end = math.floor(distance), " or more, where the grid ends" if distance == most else ""
    share = f"{reach / trained:.2%}" if relation.unit_rows == 1 else f"units of up to {relation.unit_rows}"
    return f"half of the answers stand up to k = {reach:,}{end} ({share} of the {trained:,} training records)"


def next_section(*commands: str) -> list[str]:
    """What one may do after a command."""
    return ["## Next", "\n".join(f"    agt {command}" for command in commands)]


def metrics_table(metrics: Mapping[str, object]) -> str:
    rows = [(name, f"{value:,.6g}" if isinstance(value, float) else str(value)) for name, value in metrics.items()]
    return markdown_table(("metric", "value"), rows)


def counts_section(relation: RelationConfig) -> list[str]:
    counts = f"Neighbour relation `{relation.name}`: k counts **{ball(relation)}**."
    return ["## What k counts", " ".join((counts, *RELATIONS[relation.name].remarks))]


def figures_section(dataset: str, captions: Mapping[str, str], folder: str = "figures") -> list[str]:
    """Each figure of a record with its caption.

    Args:
        captions: figure name -> what it shows.
        folder: where they are, from the page.
    """
    words = {name: plain(text) for name, text in captions.items()}
    return [f"![{text}]({folder}/{name}.png)\n\n*{plain(dataset)}. {text}*" for name, text in words.items()]


def conditions_section(conditions: Sequence[Condition]) -> list[str]:
    """Whether a guarantee may rest on a run, and each condition."""
    rows = [(c.name, c.letter, Markdown(f"**{c.standing}**"), c.why) for c in conditions]
    return [
        "## Can a privacy guarantee rest on this?",
        guarantee(conditions),
        markdown_table(("asks", "", "stands", "why"), rows),
    ]
