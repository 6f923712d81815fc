"""agt plan: a finished training run -> how accurate private answers would be, for each mechanism
and budget.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pandas as pd
from pydantic import InstanceOf

from agt import sentences
from agt.errors import ConfigError, DataError, counted
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.planning import NumberEvidence, Plan, QueryEvidence, plan
from agt.mechanisms.published import MORE_NOISE, PUBLISHED
from agt.mechanisms.weights_mechanism import weights_mechanisms
from agt.models.number_votes import NumberVotes
from agt.settings import keyword_schema
from agt_cli.command_settings.plan import PlanSettings, check_plan
from agt_cli.report import plan_words
from agt_cli.report.console import Console, Report
from agt_cli.report.figures import draw_accuracy_by_queries
from agt_cli.report.markdown import Markdown, document, escape_markdown, markdown_table
from agt_cli.report.number_quality import evaluate_numbers, format_number
from agt_cli.report.proposed_release import release_command
from agt_cli.report.quality import Quality, format_rate
from agt_cli.report.quality_md import ModelAnswers, evaluate_answers, write_quality
from agt_cli.report.record import RunRecord
from agt_cli.report.sections_md import (
    conditions_section,
    describe_unmet_conditions,
    figures_section,
    privacy_sentence,
)
from agt_cli.report.training_md import caution_advice
from agt_cli.runs.prepare import certification_progress
from agt_cli.runs.queries import OpenedRun, TrainedRun
from agt_cli.start.ledger_proposal import LedgerProposal

FIGURE = "accuracy_by_queries"


@keyword_schema
class PlanConfig(PlanSettings):
    """The settings of ``agt plan``.

    Attributes:
        trained: the training run and the queries.
    """

    trained: InstanceOf[TrainedRun]


def configure(config: Mapping[str, Any]) -> PlanConfig:
    """Validate the settings and the run that they name, before any data is read.

    Raises:
        ConfigError: a setting is missing, unknown or invalid; the message names its key.
    """
    settings = check_plan(config)
    return PlanConfig(trained=TrainedRun.from_config(config), **vars(settings))


def run(config: PlanConfig, record: RunRecord, console: Console) -> dict[str, Any]:
    """Compute the plan, write the record and print the plan.

    Returns:
        What --json prints.


    Raises:
        DataError: the queries have no labels.
        ConfigError: ``mechanisms`` has a mechanism that cannot release such answers.
    """
    trained = config.trained
    opened = trained.open(record, console)
    labels = opened.labels
    if labels is None:
        raise DataError(
            f"inputs={trained.inputs}: these queries have no labels, but agt plan needs labels "
            "to compute accuracies: give queries with labels"
        )
    numbers = opened.model.number_votes
    if numbers is not None and config.mechanisms not in (None, (LaplaceMean.name,)):
        raise ConfigError(
            f"mechanisms={list(config.mechanisms or ())}: numbers are released by "
            f"{LaplaceMean.name} only: leave mechanisms=... out"
        )
    if numbers is None and LaplaceMean.name in (config.mechanisms or ()):
        raise ConfigError(
            f"mechanisms={list(config.mechanisms or ())}: {LaplaceMean.name} releases numbers, but "
            "this model answers with classes: name another mechanism, or leave mechanisms=... out"
        )
    planned = _plan(config, opened, labels, console)
    offers = offer_table(planned)
    if numbers is not None:
        return _report_numbers(opened, planned, offers, labels, numbers, record, console)
    return _report_classes(config, opened, planned, offers, labels, record, console)


def _report_classes(
    config: PlanConfig,
    opened: OpenedRun,
    planned: Plan[QueryEvidence],
    offers: pd.DataFrame,
    labels: np.ndarray,
    record: RunRecord,
    console: Console,
) -> dict[str, Any]:
    """Write the record of a plan for answers that are classes, and print the plan.

    Args:
        config: the settings of the command.
        opened: the run and the queries.
        planned: the plan.
        offers: ``offer_table``.
        labels: [n] the true labels of the queries.
        record: the command's record.
        console: the console, which shows results.
    """
    trained = opened.trained
    evidence = planned.evidence
    record.table("plan", offers)
    record.conditions(opened.conditions)
    names = ", ".join(planned.names)
    record.add_metrics(n_queries=len(labels), accuracy=evidence.nominal_score, mechanisms=names)
    distance = evidence.distance if config.counting == "distance" else None
    answers = ModelAnswers(evidence.prediction, distance)
    quality = evaluate_answers(
        opened.model, opened.queries, trained.queries_description, labels, answers
    )
    write_quality(record, quality)
    caption = draw_expected_accuracy(record, opened, planned, offers)
    advice = _advice(opened, planned)
    majority = f"majority class '{quality.majority}'"
    columns, rows = score_cells(planned, offers, majority, format_rate)
    accuracies = markdown_table(columns, rows)
    record.report(plan_report(opened, planned, advice, quality, caption, accuracies))
    if quality.verdict:
        console.say(quality.verdict)
    nominal = format_rate(evidence.nominal_score)
    dataset = opened.dataset.name
    title = (
        f"{dataset}: expected accuracy of private answers for each total budget and number of "
        f"queries (accuracy without noise: {nominal}; all of it is private, as is any choice that "
        "is based on it)"
    )
    console.table(title, columns, rows)
    for line in advice:
        console.say(line)
    if all(condition.held for condition in opened.conditions):
        console.say(privacy_sentence(opened.conditions, brief=True))
        ledger = LedgerProposal.of_counting_ledger(trained.finished, max(config.eps), config.delta)
        for sentence in ledger.sentences:
            console.note(sentence)
        if ledger.accepts_a_release:
            folder = trained.finished.folder
            release = release_command(folder, "NAME", "EPS", "DELTA", ledger.name or None)
            console.note(f"next: agt {release}")
    console.say(f"run folder: {record.folder}")
    return {
        "metrics": record.metrics,
        "verdict": quality.verdict,
        "recommendation": " ".join(advice),
        "table": offers.to_dict("records"),
    }


def _report_numbers(
    opened: OpenedRun,
    planned: Plan[NumberEvidence],
    offers: pd.DataFrame,
    labels: np.ndarray,
    model: NumberVotes,
    record: RunRecord,
    console: Console,
) -> dict[str, Any]:
    """Write the record of a plan for answers that are numbers, and print the plan.

    Args:
        opened: the run and the queries.
        planned: the plan.
        offers: ``offer_table``.
        labels: [n] the true numbers of the queries.
        model: the model that answers.
        record: the command's record.
        console: the console, which shows results.
    """
    evidence = planned.evidence
    quality = evaluate_numbers(
        model, opened.trained.queries_description, opened.queries, labels, evidence.answers
    )
    record.table("plan", offers)
    record.conditions(opened.conditions)
    record.add_metrics(n_queries=len(opened.queries), mechanisms=", ".join(planned.names))
    write_quality(record, quality)
    titles, cells = score_cells(planned, offers, "always the median", format_number)
    title = (
        f"{opened.dataset.name}: expected RMSE of private numbers for each total budget and number "
        f"of queries (RMSE without noise: {format_number(evidence.nominal_score)})"
    )
    simulated = [
        f"The RMSE of {name} is the mean of {method.draws} simulated draws: its weights are "
        "released once, and answer any number of queries."
        for name, method in planned.methods.items()
        if name in set(offers["mechanism"])
    ]
    record.report(
        document(
            f"# Plan: {escape_markdown(opened.dataset.name)}",
            escape_markdown(title),
            markdown_table(titles, cells),
            simulated,
            *conditions_section(opened.conditions),
        )
    )
    if quality.verdict:
        console.say(quality.verdict)
    console.table(title, titles, cells)
    for line in simulated:
        console.say(line)
    console.say(f"run folder: {record.folder}")
    return {
        "metrics": record.metrics,
        "verdict": quality.verdict,
        "table": offers.to_dict("records"),
    }


def _plan(config: PlanConfig, opened: OpenedRun, labels: np.ndarray, console: Console) -> Plan:
    """Compute the plan, and show progress."""
    with ExitStack() as progress_bars:
        on_progress = progress_bars.enter_context(certification_progress(opened.model, console))
        weights_bars: list[Report] = []

        def on_simulated_release(done: int, total: int) -> None:
            """Show how many releases of weights were simulated, in a separate bar."""
            if not weights_bars:
                progress_bars.close()  # two live bars would overwrite one another
                bar = console.progress("planning releases of weights", "release")
                weights_bars.append(progress_bars.enter_context(bar))
            weights_bars[0](done, total, done, total)

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
            on_weights=on_simulated_release,
        )


def _advice(opened: OpenedRun, planned: Plan) -> list[str]:
    """Return sentences that recommend a mechanism; the first one says why nothing can be released,
    if a condition is not met.
    """
    advice = list[str]()
    failed = [condition for condition in opened.conditions if not condition.held]
    if failed:
        reasons = "; ".join(condition.evidence.missing for condition in failed)
        advice.append(
            "agt predict refuses to release answers of this run, because "
            f"{describe_unmet_conditions(failed)}: {reasons}. The following is about a run that "
            "meets all conditions."
        )
    advice += plan_words.advice(planned)
    advice += _other_weights(planned)
    for name in planned.names:
        if name in PUBLISHED:  # kept to reproduce papers
            advice.append(f"{MORE_NOISE.format(name=name)}.")
    if opened.trained.settings.noise:
        advice.append(f"Note: {sentences.APART}.")
    return advice


def _other_weights(planned: Plan) -> list[str]:
    """Return that some mechanisms train weights of their own, where these beat the model.

    Without this sentence, an accuracy with noise above that without noise looks like a mistake.
    """
    nominal = planned.evidence.nominal_score
    merit = planned.evidence.merit
    mechanisms = weights_mechanisms()
    better_mechanisms = dict.fromkeys(
        offer.mechanism
        for offer in planned.releases
        if offer.mechanism in mechanisms
        and mechanisms[offer.mechanism].reads_records
        and merit(offer.expected) > merit(nominal)
    )
    if not better_mechanisms:
        return []
    names = " and ".join(f"mechanism={name}" for name in better_mechanisms)
    return [
        f"{names}: these weights are trained anew from the records, with noise. They are not the "
        "weights of this model, so their accuracy can be above its accuracy without noise."
    ]


def offer_table(planned: Plan) -> pd.DataFrame:
    """Return a table with one row for each mechanism, budget and number of queries."""
    rows = []
    for offer in planned.releases:
        row = {
            "mechanism": offer.mechanism,
            "total_eps": offer.budget.eps,
            "total_delta": offer.budget.delta,
            "queries": offer.budget.queries,
            "each": str(offer.guarantee),
            f"expected_{planned.evidence.score}": offer.expected,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def score_cells(
    planned: Plan, offers: pd.DataFrame, constant_name: str, format_score: Callable[[float], str]
) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the rows of a table: score by number of queries.

    Mechanisms have one order for all total budgets: those with the best mean score come first. The
    last row is of a constant answer. A row in which no score is better than it says so.

    Args:
        offers: ``offer_table``.
        constant_name: the name of the constant answer.
        format_score: score -> its text in a cell.
    """
    evidence = planned.evidence
    grid = offers.pivot_table(
        index=["total_eps", "mechanism"], columns="queries", values=f"expected_{evidence.score}"
    )
    merit = grid.mean(axis=1).map(evidence.merit).groupby("mechanism").mean()
    best_first = sorted(grid.index, key=lambda row: (row[0], -merit[row[1]], row[1]))
    columns = ["total eps", "mechanism"]
    columns += [counted(int(queries), "query", "queries") for queries in grid.columns]
    rows = []
    for eps, mechanism in best_first:
        scores = grid.loc[(eps, mechanism)]
        cells = ["-" if math.isnan(score) else format_score(score) for score in scores]
        name = mechanism
        if not any(evidence.is_worthwhile(score) for score in scores):
            name = f"{mechanism} (not better than {constant_name})"
        rows.append([f"{eps:g}", name, *cells])
    constant = format_score(evidence.constant_score)
    rows.append(["-", constant_name, *(constant for _ in grid.columns)])
    return columns, rows


def draw_expected_accuracy(
    record: RunRecord, opened: OpenedRun, planned: Plan, offers: pd.DataFrame
) -> str:
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
    draw_accuracy_by_queries(
        record,
        FIGURE,
        points,
        noise_free=planned.evidence.nominal_score,
        majority=planned.evidence.constant_score,
        order=list(panels.values()),
        finding=_if_releases_allowed(plan_words.finding(planned), opened),
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
        advice: sentences that say which release to use, and what it gives.
        caption: the caption of the figure.
        accuracies: the table of ``score_cells``, as Markdown.
    """
    dataset = opened.dataset.name
    nominal = format_rate(planned.evidence.nominal_score)
    baseline = format_rate(planned.evidence.constant_score)
    dataset_name = escape_markdown(dataset)
    queries = escape_markdown(opened.trained.queries_description)
    approximate = _describe_first_order(planned)
    return document(
        f"# Accuracy of private answers: {dataset_name}",
        f"**{escape_markdown(quality.verdict or _conditional_verdict(opened, planned))}**",
        [
            f"Accuracy without noise: {nominal}. Accuracy of always giving the most frequent class "
            f"(majority-class baseline): {baseline}.",
            *advice,
            *caution_advice(opened.trained.finished.config["training"]),
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


def _conditional_verdict(opened: OpenedRun, planned: Plan) -> str:
    """Return the plan's verdict, with the reason if nothing may be released from the run."""
    return _if_releases_allowed(plan_words.verdict(planned), opened)


def _if_releases_allowed(sentence: str, opened: OpenedRun) -> str:
    """Return a sentence about releases, preceded by the reason if nothing may be released."""
    unmet = describe_unmet_conditions(opened.conditions)
    if not unmet:
        return sentence
    return f"Nothing may be released, because {unmet}. If releases were allowed: {sentence}"


def _describe_first_order(planned: Plan) -> str:
    """Return clauses on the accuracies that were computed only to first order in the noise."""
    offered = {offer.mechanism for offer in planned.releases}
    text = ""
    for name, method in planned.methods.items():
        if method.name == "first order" and name in offered:
            text += (
                f"; the accuracy of {name} is only approximate (to first order in the size of "
                "the noise)"
            )
    return text
