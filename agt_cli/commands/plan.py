"""agt plan: a finished training run -> how accurate private answers would be, for each mechanism and budget."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, InstanceOf

from agt import sentences
from agt.certificates.conditions import Condition, declarations
from agt.data.records import DataError
from agt.errors import ConfigError, nearest
from agt.mechanisms.claims import Counting
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.planning import Plan, PlannedRelease, plan
from agt.mechanisms.published import MORE_NOISE, PUBLISHED
from agt.settings import NonNegative, Positive, schema, validate
from agt_cli.configuration import only_keys
from agt_cli.report import plan_words
from agt_cli.report.console import Console
from agt_cli.report.figures import accuracy_by_queries
from agt_cli.report.markdown import document, markdown_table, plain
from agt_cli.report.quality import Quality, rate_words
from agt_cli.report.quality_md import judge, quality_section, say_quality, write_quality
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import setting_section
from agt_cli.report.sections_md import conditions_section, figures_section
from agt_cli.report.training_md import caution_words
from agt_cli.runs.prepare import certifying
from agt_cli.runs.queries import OpenedRun, TrainedRun

FIGURE = "accuracy_by_queries"
KEYS = ("eps", "delta", "queries", "mechanisms", "published", "counting")


@schema
class PlanConfig:
    """What is to be planned.

    Attributes:
        trained: the run, and the queries.
        eps, delta: total budgets.
        queries: how many may share one.
        mechanisms: their names; None: all that the model can use.
        published: where ``mechanisms`` is None, those that are kept to reproduce papers, too.

    Raises:
        ConfigError: no such mechanism.
    """

    trained: InstanceOf[TrainedRun]
    eps: Annotated[tuple[Positive, ...], Field(min_length=1)]
    queries: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    delta: Annotated[NonNegative, Field(lt=1)] = 1e-5
    mechanisms: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    published: bool = False
    counting: Counting = "distance"

    def __post_init__(self) -> None:
        for key in ("eps", "queries", "mechanisms"):
            values = getattr(self, key) or ()
            if len(set(values)) < len(values):
                raise ConfigError(f"{key}: {next(value for value in values if values.count(value) > 1)} is given twice")
        for name in self.mechanisms or ():
            if name not in MECHANISMS:
                raise ConfigError(f"mechanisms: unknown mechanism '{name}'{nearest(name, MECHANISMS)}")


def configure(config: Mapping[str, Any]) -> PlanConfig:
    """Validate the settings and the run that they name, before any data is read."""
    only_keys(config, (*KEYS, "run", "inputs", "digest", "compute", "output_dir"))
    return validate(PlanConfig, {"trained": TrainedRun.of(config), **{key: config.get(key) for key in KEYS}}, "")


def run(config: PlanConfig, record: RunRecord, console: Console) -> dict[str, Any]:
    """Work the plan out and write the record."""
    trained, opened = config.trained, config.trained.open(record, console)
    if opened.labels is None:
        raise DataError(f"inputs={trained.inputs}: a plan needs queries whose labels are known")
    dataset, features, words = opened.dataset.name, opened.queries.features, trained.words
    budgets = (config.eps, config.delta, config.queries)
    chosen: dict[str, Any] = {
        "names": config.mechanisms,
        "published": config.published,
        "counting": config.counting,
    }
    with certifying(opened.model, console) as on_progress:
        planned = plan(opened.model, features, opened.labels, *budgets, **chosen, on_progress=on_progress)
    evidence, table = planned.evidence, offer_table(planned.offers)
    distance = evidence.distance if config.counting == "distance" else None
    record.table("plan", table)
    record.conditions(opened.conditions)
    record.add_metrics(n_queries=len(features), accuracy=evidence.accuracy, mechanisms=", ".join(planned.names))
    judged = judge(opened.model, opened.queries, words, opened.labels, evidence.prediction, distance)
    quality = write_quality(record, judged)
    caption = draw(record, dataset, planned)
    advice = [*_refusal(opened.conditions), *plan_words.advice(planned), *_published(planned.names)]
    if trained.settings.noise:
        advice.append(f"Note: {sentences.APART}.")
    report = plan_report(dataset, words, advice, planned, opened.conditions, caption, record, quality)
    record.report(report)
    _say(record, opened, planned, advice, quality, console)
    result = {"metrics": record.metrics, "verdict": quality.verdict, "recommendation": " ".join(advice)}
    return result | {"table": table.to_dict("records")}


def _refusal(conditions: Sequence[Condition]) -> list[str]:
    """What is said first where nothing can be released."""
    failed = [c.letter for c in conditions if not c.held]
    held = f"{'condition' if len(failed) == 1 else 'conditions'} {', '.join(failed)} of a guarantee: not held here"
    return [f"{held}, so accounting=rigorous will refuse to release from it; its conditions say why"] if failed else []


def _published(names: Iterable[str]) -> list[str]:
    """A sentence on each mechanism that is kept to reproduce papers."""
    return [f"{name} {MORE_NOISE}." for name in names if name in PUBLISHED]


def _say(
    record: RunRecord, opened: OpenedRun, planned: Plan, advice: Iterable[str], quality: Quality, console: Console
) -> None:
    if quality.verdict:
        console.say(quality.verdict)
    console.table(
        f"{opened.dataset.name}: expected accuracy by total budget and number of queries "
        f"(without noise {rate_words(planned.evidence.accuracy)})",
        *cells(planned, quality.majority),
    )
    say_quality(console, quality)
    for line in advice:
        console.say(line)
    for line in (*map(str, declarations(opened.conditions)), *caution_words(opened.trained.finished.config["training"])):
        console.say(line)
    console.say(f"run folder: {record.folder}")


def offer_table(offers: Sequence[PlannedRelease]) -> pd.DataFrame:
    """One row for each offer."""
    return pd.DataFrame(
        [
            {
                "mechanism": offer.mechanism,
                "total_eps": offer.budget.eps,
                "total_delta": offer.budget.delta,
                "queries": offer.budget.queries,
                "each": str(offer.each),
                "expected_accuracy": offer.accuracy,
            }
            for offer in offers
        ]
    )


def cells(planned: Plan, majority: str | None) -> tuple[list[str], list[list[str]]]:
    """(names of the columns, rows) of a table: accuracy by number of queries, best mechanisms first, the majority last.

    Args:
        majority: the name of the most frequent class.
    """
    table = _wide(planned.offers)
    columns = [column.replace("_", " ") for column in table.columns]
    rows = [
        [f"{row[0]:g}", str(row[1]), *("-" if rate != rate else rate_words(rate) for rate in row[2:])]
        for row in table.itertuples(index=False)
    ]
    constant = rate_words(planned.evidence.majority)
    return columns, [*rows, ["-", f"always '{majority}'", *[constant] * (len(columns) - 2)]]


def _wide(offers: Sequence[PlannedRelease]) -> pd.DataFrame:
    """Accuracy with one column for each number of queries, best mechanisms first."""
    grid = offer_table(offers).pivot_table(index=["total_eps", "mechanism"], columns="queries", values="expected_accuracy")
    order = grid.mean(axis=1)
    grid = grid.loc[sorted(grid.index, key=lambda at: (at[0], -order[at]))].reset_index()
    grid.columns = [f"{name:,} queries" if isinstance(name, int) else str(name) for name in grid.columns]
    return grid.rename(columns={"1 queries": "1 query"})


def draw(record: RunRecord, dataset: str, planned: Plan) -> str:
    """Draw expected accuracy against the number of queries; returns the figure's caption."""
    table = offer_table(planned.offers).rename(columns={"mechanism": "series", "expected_accuracy": "accuracy"})
    panels = {eps: f"total eps = {eps:g}, delta = {planned.delta:g}" for eps in sorted(set(table["total_eps"]))}
    table["panel"] = [panels[eps] for eps in table["total_eps"]]
    accuracy_by_queries(
        record,
        FIGURE,
        table,
        noise_free=planned.evidence.accuracy,
        majority=planned.evidence.majority,
        order=list(panels.values()),
        finding=plan_words.finding(planned),
        title=dataset,
    )
    return (
        "Expected accuracy against the number of queries that share a total budget; dotted: without noise; dashed grey: "
        "always answering the most frequent class."
    )


def plan_report(
    dataset: str,
    queries: str,
    advice: Iterable[str],
    planned: Plan,
    conditions: tuple[Condition, ...],
    caption: str,
    record: RunRecord,
    quality: Quality,
) -> str:
    """report.md of a plan.

    Args:
        advice: what to use, and what it gives.
        caption: of the figure.
    """
    evidence, always = planned.evidence, rate_words(planned.evidence.majority)
    offered = {offer.mechanism for offer in planned.offers}
    first_order = "".join(
        f"; that of {name} is to first order in its noise"
        for name, method in planned.methods.items()
        if method.name == "first order" and name in offered
    )
    return document(
        f"# What private answers would cost: {plain(dataset)}",
        f"**{plain(quality.verdict or plan_words.verdict(planned))}**",
        [f"accuracy without noise {rate_words(evidence.accuracy)}; the same answer to all: {always}", *advice],
        *figures_section(dataset, {FIGURE: caption}),
        "Every number is an expectation over a mechanism's own draws, exact unless simulated draws are named, on "
        f"{plain(queries)}, which are taken to be public{first_order}. Nothing was released. The plan "
        "itself looks at private distances: it is for the data owner, and a mechanism or budget chosen by it is a choice "
        "that looked at private data, unless what was trained to make the plan is public too.",
        record.standings,
        "## Accuracy by total budget and number of queries",
        markdown_table(*cells(planned, quality.majority)),
        *quality_section(quality),
        *conditions_section(conditions),
        "## Setting",
        setting_section(record.config),
    )
