"""agt plan: a finished training run -> how accurate private answers would be, for each mechanism and budget."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, InstanceOf

from agt.certificates.conditions import declarations
from agt.data.dataset import DataError
from agt.errors import ConfigError, nearest
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.planning import Plan, plan
from agt.mechanisms.release import APART
from agt.mechanisms.rigour import Counting, two_votes_moved
from agt.quality import Quality, rate_words
from agt.settings import NonNegative, Positive, schema, validate
from agt_cli.report.console import Console
from agt_cli.report.plan import cells, draw, offer_table, plan_report
from agt_cli.report.quality import judge, say_quality, write_quality
from agt_cli.report.record import RunRecord
from agt_cli.runs.model import certifying
from agt_cli.runs.prepare import only_keys
from agt_cli.runs.queries import OpenedRun, TrainedRun

KEYS = ("eps", "delta", "queries", "mechanisms", "counting")


@schema
class PlanConfig:
    """What is to be planned.

    Attributes:
        trained: the run, and the queries.
        eps, delta: total budgets.
        queries: how many may share one.
        mechanisms: their names; None: all that the model can use.

    Raises:
        ConfigError: no such mechanism, or one that counts votes of which one k can change two.
    """

    trained: InstanceOf[TrainedRun]
    eps: Annotated[tuple[Positive, ...], Field(min_length=1)]
    queries: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    delta: Annotated[NonNegative, Field(lt=1)] = 1e-5
    mechanisms: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    counting: Counting = "distance"

    def __post_init__(self) -> None:
        for key in ("eps", "queries", "mechanisms"):
            values = getattr(self, key) or ()
            if len(set(values)) < len(values):
                raise ConfigError(f"{key}: {next(value for value in values if values.count(value) > 1)} is given twice")
        settings = self.trained.settings
        reason = two_votes_moved(settings.relation.name) if settings.ensemble.members > 1 else None
        for name in self.mechanisms or ():
            if name not in MECHANISMS:
                raise ConfigError(f"mechanisms: unknown mechanism '{name}'{nearest(name, MECHANISMS)}")
            if reason and MECHANISMS[name].needs == "votes":
                raise ConfigError(f"mechanisms={name}: {reason}")


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
    chosen: dict[str, Any] = {"names": config.mechanisms, "counting": config.counting}
    with certifying(opened.model, console) as on_progress:
        planned = plan(opened.model, features, opened.labels, *budgets, **chosen, on_progress=on_progress)
    evidence, table = planned.evidence, offer_table(planned.offers)
    distance = evidence.distance if config.counting == "distance" else None
    record.table("plan", table)
    record.conditions(opened.conditions)
    record.add_metrics(n_queries=len(features), accuracy=evidence.accuracy, mechanisms=", ".join(planned.names))
    judged = judge(opened.model, opened.queries, words, opened.labels, evidence.prediction, distance)
    quality = write_quality(record, judged)
    captions = draw(record, dataset, planned)
    advice = f"{planned.advice.text} Note: {APART}." if trained.settings.noise else planned.advice.text
    report = plan_report(dataset, words, advice, planned, opened.conditions, captions, record, quality)
    record.report(report)
    _say(record, opened, planned, advice, quality, console)
    result = {"metrics": record.metrics, "verdict": quality.verdict, "recommendation": advice}
    return result | {"table": table.to_dict("records")}


def _say(record: RunRecord, opened: OpenedRun, planned: Plan, advice: str, quality: Quality, console: Console) -> None:
    if quality.verdict:
        console.say(quality.verdict)
    console.table(
        f"{opened.dataset.name}: expected accuracy by total budget and number of queries "
        f"(without noise {rate_words(planned.evidence.accuracy)})",
        *cells(planned, quality.majority),
    )
    say_quality(console, quality)
    console.say(advice)
    failed = [c.letter for c in opened.conditions if not c.held]
    if failed:
        console.say(
            f"{'condition' if len(failed) == 1 else 'conditions'} {', '.join(failed)} of a guarantee: not held here, so "
            "accounting=rigorous will refuse to release from it; report.md says why"
        )
    for line in declarations(opened.conditions):
        console.say(line)
    console.say(f"run folder: {record.folder}")
