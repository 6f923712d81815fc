"""agt plan: a finished training run -> how accurate private answers would be, for each mechanism
and budget.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from pydantic import InstanceOf

from agt import sentences
from agt.certificates.conditions import declarations
from agt.errors import ConfigError, DataError, counted
from agt.mechanisms.composition import BOUNDS, per_query
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.planning import Plan, PlannedRelease, plan
from agt.mechanisms.published import MORE_NOISE, PUBLISHED
from agt.models.number_votes import NumberVotes
from agt.settings import keyword_schema
from agt_cli.command_settings import PlanSettings, check_plan
from agt_cli.report import plan_words
from agt_cli.report.console import Console
from agt_cli.report.figures import accuracy_by_queries
from agt_cli.report.markdown import Markdown, document, markdown_table, plain
from agt_cli.report.number_quality import judge_numbers, number_words
from agt_cli.report.quality import Quality, rate_words
from agt_cli.report.quality_md import judge, write_quality
from agt_cli.report.record import RunRecord
from agt_cli.report.sections_md import conditions_section, figures_section, unmet_requirements
from agt_cli.report.training_md import caution_words
from agt_cli.runs.prepare import certifying
from agt_cli.runs.queries import OpenedRun, TrainedRun

FIGURE = "accuracy_by_queries"


@keyword_schema
class PlanConfig(PlanSettings):
    """What is to be planned.

    Attributes:
        trained: the run, and the queries.
    """

    trained: InstanceOf[TrainedRun]


def configure(config: Mapping[str, Any]) -> PlanConfig:
    """Validate the settings and the run that they name, before any data is read."""
    settings = check_plan(config)
    return PlanConfig(trained=TrainedRun.of(config), **vars(settings))


def run(config: PlanConfig, record: RunRecord, console: Console) -> dict[str, Any]:
    """Work the plan out and write the record."""
    trained = config.trained
    opened = trained.open(record, console)
    if opened.labels is None:
        raise DataError(
            f"inputs={trained.inputs}: these queries have no labels, but agt plan needs labels "
            "to compute accuracies: give queries with labels"
        )
    if opened.model.number_votes is not None:
        return _plan_numbers(
            config, opened, opened.labels, opened.model.number_votes, record, console
        )
    planned = _plan(config, opened, opened.labels, console)
    evidence = planned.evidence
    offers = offer_table(planned.releases)
    record.table("plan", offers)
    record.conditions(opened.conditions)
    names = ", ".join(planned.names)
    record.add_metrics(n_queries=len(opened.labels), accuracy=evidence.accuracy, mechanisms=names)
    distance = evidence.distance if config.counting == "distance" else None
    judged = judge(
        opened.model, opened.queries, trained.words, opened.labels, evidence.prediction, distance
    )
    quality = Quality.of(judged)
    write_quality(record, quality)
    caption = draw(record, opened, planned, offers)
    advice = _advice(opened, planned)
    columns, rows = accuracy_cells(planned, offers, quality.majority)
    accuracies = markdown_table(columns, rows)
    record.report(plan_report(opened, planned, advice, quality, caption, accuracies))
    if quality.verdict:
        console.say(quality.verdict)
    nominal = rate_words(evidence.accuracy)
    dataset = opened.dataset.name
    title = (
        f"{dataset}: expected accuracy of private answers for each total budget and number of "
        f"queries (accuracy without noise: {nominal})"
    )
    console.table(title, columns, rows)
    quality.say(console)
    declared = map(str, declarations(opened.conditions))
    for line in (*advice, *declared, *caution_words(trained.finished.config["training"])):
        console.say(line)
    console.say(f"run folder: {record.folder}")
    result = {"metrics": record.metrics, "verdict": quality.verdict}
    return result | {"recommendation": " ".join(advice), "table": offers.to_dict("records")}


def _plan_numbers(
    config: PlanConfig,
    opened: OpenedRun,
    labels: np.ndarray,
    model: NumberVotes,
    record: RunRecord,
    console: Console,
) -> dict[str, Any]:
    """Work out the expected RMSE of private numbers for each budget, and write the record.

    Nothing is drawn.

    Args:
        config: the budgets and the numbers of queries.
        opened: the run and the queries.
        labels: [n] the true numbers of the queries.
        model: that answers.
        record: the command's record.
        console: for results.
    """
    if config.mechanisms not in (None, (LaplaceMean.name,)):
        raise ConfigError(
            f"mechanisms={list(config.mechanisms or ())}: numbers are released by "
            f"{LaplaceMean.name} only: leave mechanisms=... out"
        )
    with certifying(opened.model, console) as on_progress:
        answers = model.mean_of(model.sums(opened.queries.features, on_progress))
    quality = judge_numbers(model, opened.trained.words, opened.queries, labels, answers)
    rmse = float(quality.metrics["rmse"])
    rows = []
    for eps, queries in product(config.eps, config.queries):
        guarantee = per_query(LaplaceMean.spends, eps, config.delta, queries, BOUNDS)
        mechanism = LaplaceMean.with_guarantee(guarantee)
        expected = mechanism.expected_rmse_of(model, answers, labels)
        rows.append((eps, queries, str(mechanism.guarantee), expected))
    table = pd.DataFrame(rows, columns=["total_eps", "queries", "each", "expected_rmse"])
    table.insert(0, "mechanism", LaplaceMean.name)
    record.table("plan", table)
    record.conditions(opened.conditions)
    record.add_metrics(n_queries=len(opened.queries), mechanisms=LaplaceMean.name)
    write_quality(record, quality)
    titles = ("total eps", "queries", "each answer", "expected RMSE")
    cells = [
        (f"{eps:g}", str(queries), each, number_words(expected))
        for eps, queries, each, expected in rows
    ]
    constant = float(quality.metrics["rmse_of_median"])
    title = (
        f"{opened.dataset.name}: expected RMSE of private numbers (without noise: "
        f"{number_words(rmse)}; always the median: {number_words(constant)})"
    )
    record.report(
        document(
            f"# Plan: {plain(opened.dataset.name)}",
            plain(title),
            markdown_table(titles, cells),
            *conditions_section(opened.conditions),
        )
    )
    if quality.verdict:
        console.say(quality.verdict)
    console.table(title, titles, cells)
    console.say(f"run folder: {record.folder}")
    return {
        "metrics": record.metrics,
        "verdict": quality.verdict,
        "table": table.to_dict("records"),
    }


def _plan(config: PlanConfig, opened: OpenedRun, labels: np.ndarray, console: Console) -> Plan:
    with certifying(opened.model, console) as on_progress:
        return plan(
            opened.model,
            opened.queries.features,
            labels,
            config.eps,
            config.delta,
            config.queries,
            names=config.mechanisms,
            published=config.published,
            counting=config.counting,
            on_progress=on_progress,
        )


def _advice(opened: OpenedRun, planned: Plan) -> list[str]:
    """Return what to use and what it gives; first of all, if nothing can be released, why."""
    advice = list[str]()
    unmet = unmet_requirements(opened.conditions)
    if unmet:
        advice.append(
            f"agt predict refuses to release answers of this run, because {unmet} (for details, "
            "see the report of the training run)."
        )
    advice += plan_words.advice(planned)
    for name in planned.names:
        if name in PUBLISHED:  # kept to reproduce papers
            advice.append(f"{MORE_NOISE.format(name=name)}.")
    if opened.trained.settings.noise:
        advice.append(f"Note: {sentences.APART}.")
    return advice


def offer_table(offers: Sequence[PlannedRelease]) -> pd.DataFrame:
    """Return a table with one row for each offer."""
    rows = []
    for offer in offers:
        row = {
            "mechanism": offer.mechanism,
            "total_eps": offer.budget.eps,
            "total_delta": offer.budget.delta,
            "queries": offer.budget.queries,
            "each": str(offer.guarantee),
            "expected_accuracy": offer.accuracy,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def accuracy_cells(
    planned: Plan, offers: pd.DataFrame, majority: str | None
) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the rows of a table: accuracy by number of queries.

    For each total budget the best mechanisms come first; the last row is of a constant answer.

    Args:
        offers: ``offer_table``.
        majority: the name of the most frequent class.
    """
    grid = offers.pivot_table(
        index=["total_eps", "mechanism"], columns="queries", values="expected_accuracy"
    )
    mean_accuracy = grid.mean(axis=1)
    best_first = sorted(grid.index, key=lambda budget: (budget[0], -mean_accuracy[budget]))
    columns = ["total eps", "mechanism"]
    columns += [counted(int(queries), "query", "queries") for queries in grid.columns]
    rows = []
    for eps, mechanism in best_first:
        accuracies = grid.loc[(eps, mechanism)]
        rows.append([f"{eps:g}", mechanism, *map(_accuracy_cell, accuracies)])
    constant = rate_words(planned.evidence.majority)
    rows.append(["-", f"majority class '{majority}'", *(constant for _ in grid.columns)])
    return columns, rows


def _accuracy_cell(accuracy: float) -> str:
    return "-" if math.isnan(accuracy) else rate_words(accuracy)


def draw(record: RunRecord, opened: OpenedRun, planned: Plan, offers: pd.DataFrame) -> str:
    """Draw expected accuracy against the number of queries; return the figure's caption.

    Args:
        offers: ``offer_table``.
    """
    points = offers.rename(columns={"mechanism": "series", "expected_accuracy": "accuracy"})
    panels = {
        eps: f"total eps = {eps:g}, delta = {planned.delta:g}"
        for eps in sorted(set(points["total_eps"]))
    }
    points["panel"] = [panels[eps] for eps in points["total_eps"]]
    accuracy_by_queries(
        record,
        FIGURE,
        points,
        noise_free=planned.evidence.accuracy,
        majority=planned.evidence.majority,
        order=list(panels.values()),
        finding=_conditional(plan_words.finding(planned), opened),
        title=opened.dataset.name,
    )
    return (
        "Expected accuracy (vertical) against the number of queries that share a total "
        "budget (horizontal). Dotted line: accuracy without noise. Dashed grey line: the "
        "majority-class baseline."
    )


def plan_report(
    opened: OpenedRun,
    planned: Plan,
    advice: Sequence[str],
    quality: Quality,
    caption: str,
    accuracies: str,
) -> str:
    """Return report.md of a plan.

    Args:
        advice: what to use, and what it gives.
        caption: of the figure.
        accuracies: the table of ``accuracy_cells``, as Markdown.
    """
    dataset = opened.dataset.name
    nominal = rate_words(planned.evidence.accuracy)
    always = rate_words(planned.evidence.majority)
    dataset_name = plain(dataset)
    queries = plain(opened.trained.words)
    approximate = _first_order(planned)
    return document(
        f"# Accuracy of private answers: {dataset_name}",
        f"**{plain(quality.verdict or _lead(opened, planned))}**",
        [
            f"Accuracy without noise: {nominal}. Accuracy of always giving the most frequent class "
            f"(majority-class baseline): {always}.",
            *advice,
        ],
        *figures_section(dataset, {FIGURE: caption}),
        "Nothing was released.",
        Markdown(
            "*Only for the data owner, because this plan depends on private stable "
            "distances. If you choose a mechanism or a budget by this plan, your choice "
            "depends on private data, unless the data of the plan are public.*"
        ),
        "Every number is an expected accuracy, that is, a mean over the mechanism's random "
        f"draws, for {queries}, which are assumed to be public. The mean is exact, unless this "
        f"page says that draws were simulated{approximate}.",
        "## Accuracy by total budget and number of queries",
        accuracies,
        *quality.section(),
        *conditions_section(opened.conditions),
        "Settings: `config.yaml`.",
    )


def _lead(opened: OpenedRun, planned: Plan) -> str:
    """Return the plan's verdict; conditional where nothing may be released from the run."""
    return _conditional(plan_words.verdict(planned), opened)


def _conditional(sentence: str, opened: OpenedRun) -> str:
    """Return a sentence about releases, after the refusal where nothing may be released."""
    unmet = unmet_requirements(opened.conditions)
    if not unmet:
        return sentence
    return f"Nothing may be released, because {unmet}. If releases were allowed: {sentence}"


def _first_order(planned: Plan) -> str:
    """Return which accuracies were worked out to first order in a mechanism's noise."""
    offered = {offer.mechanism for offer in planned.releases}
    text = ""
    for name, method in planned.methods.items():
        if method.name == "first order" and name in offered:
            text += (
                f"; the accuracy of {name} is only approximate (to first order in the size of "
                "the noise)"
            )
    return text
