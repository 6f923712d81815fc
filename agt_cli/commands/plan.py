"""agt plan: a finished training run -> how accurate private answers would be, for each mechanism and budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.certificates.conditions import declarations
from agt.data.dataset import DataError
from agt.errors import ConfigError, nearest
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.exposure import gap_loss
from agt.mechanisms.guarantee import PureDP
from agt.mechanisms.planning import (
    Budget,
    Evidence,
    Offer,
    answerable,
    applicable,
    kind_of,
    offers,
    weight_offers,
    weights_accuracy,
)
from agt.mechanisms.rigour import Counting, one_vote_alone
from agt.mechanisms.weights import weights_budget
from agt.settings import STRICT, NonNegative, Positive, validate
from agt_cli.report.console import Console, show
from agt_cli.report.curves import Curves, curves
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import plan_report
from agt_cli.runs.model import certify
from agt_cli.runs.noise import APART
from agt_cli.runs.prepare import only_keys
from agt_cli.runs.queries import Asked, Source, ask

KEYS = ("run", "inputs", "eps", "delta", "queries", "mechanisms", "counting")
EPS = np.geomspace(0.01, 10, 31)  # of one query, in the first figure (001 Fig 2's range)
DISTANCES = tuple(range(0, 101, 5))
WITHIN = 0.01  # the recommendation's idea of "as good": within a point of the best


@validated(frozen=True, config=STRICT)
class Request:
    """What is asked for."""

    run: str
    eps: Annotated[tuple[Positive, ...], Field(min_length=1)]
    queries: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    inputs: str | None = None
    delta: Annotated[NonNegative, Field(lt=1)] = 1e-5
    mechanisms: tuple[str, ...] | None = None
    counting: Counting = "distance"

    def __post_init__(self) -> None:
        for name in self.mechanisms or ():
            if name not in MECHANISMS:
                raise ConfigError(f"mechanisms: unknown mechanism '{name}'{nearest(name, MECHANISMS)}")


@dataclass(frozen=True)
class Job:
    """A valid request, and what it is about."""

    request: Request
    source: Source


def configure(config: Mapping[str, Any]) -> Job:
    """Validate the request and the run it names, before any data is read."""
    only_keys(config, (*KEYS, "digest", "compute", "output_dir"))
    asked = {key: config.get(key) for key in KEYS}
    for key in ("run", "inputs"):
        asked[key] = None if asked[key] is None else str(asked[key])
    request = validate(Request, asked, "")
    job = Job(request, Source.of(request.run, request.inputs, config))
    _check_votes(job)
    return job


def _check_votes(job: Job) -> None:
    """Raise ConfigError if a mechanism asked for counts an ensemble's votes, and one k can change two of them."""
    asked = [name for name in job.request.mechanisms or () if MECHANISMS[name].needs == "votes"]
    why = one_vote_alone(job.source.settings.relation.name)
    if asked and why and job.source.settings.ensemble.members > 1:
        raise ConfigError(f"mechanisms={asked[0]}: {why}")


def run(job: Job, record: RunRecord, console: Console) -> dict[str, Any]:
    """Work the plan out and write the record."""
    asked = ask(job.source, record, console)
    if asked.labels is None:
        raise DataError(f"inputs={job.request.inputs}: a plan needs queries whose labels are known")
    certificates = certify(asked.model, asked.queries.features, console, "certifying")
    evidence = Evidence.of(certificates, asked.labels, asked.prepared.classes, job.request.counting)
    weights = weights_accuracy(asked.model, asked.queries.features, asked.labels)
    names = job.request.mechanisms or applicable(evidence)
    found = all_offers(evidence, names, weights, job.request)
    table = as_table(found)
    record.table("plan", table)
    record.conditions(asked.conditions)
    record.add_metrics(n_queries=len(asked.queries), accuracy=evidence.accuracy, mechanisms=", ".join(names))
    captions = draw(record, asked.prepared.dataset.name, evidence, names, weights, found, job.request)
    advice = recommend(evidence, weights, names, job.request)
    if job.source.settings.noise:
        advice = f"{advice} Note: {APART}."
    dataset, words = asked.prepared.dataset.name, job.source.words
    report = plan_report(dataset, words, advice, wide(found), asked.conditions, captions, record)
    record.write("report.md", report.encode())
    _say(record, asked, evidence, found, advice, console)
    return {"metrics": record.metrics, "recommendation": advice, "table": table.to_dict("records")}


def all_offers(
    evidence: Evidence, names: Sequence[str], weights: Callable[[float], float] | None, request: Request
) -> list[Offer]:
    """Every mechanism at every total budget and number of queries."""
    budgets = [Budget(eps, request.delta, queries) for eps in request.eps for queries in request.queries]
    return offers(evidence, names, budgets) + (weight_offers(weights, budgets) if weights else [])


def as_table(found: Sequence[Offer]) -> pd.DataFrame:
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
            for offer in found
        ]
    )


def wide(found: Sequence[Offer]) -> pd.DataFrame:
    """Accuracy with one column for each number of queries, best mechanisms first."""
    table = as_table(found)
    grid = table.pivot_table(index=["total_eps", "mechanism"], columns="queries", values="expected_accuracy")
    order = grid.mean(axis=1)
    grid = grid.loc[sorted(grid.index, key=lambda at: (at[0], -order[at]))].reset_index()
    grid.columns = [f"{name:,} queries" if isinstance(name, int) else str(name) for name in grid.columns]
    return grid.rename(columns={"1 queries": "1 query"})


def draw(
    record: RunRecord,
    dataset: str,
    evidence: Evidence,
    names: Sequence[str],
    weights: Callable[[float], float] | None,
    found: Sequence[Offer],
    request: Request,
) -> dict[str, str]:
    """Draw the figures; returns their captions by name."""
    level = {"level": evidence.accuracy}
    pure = [name for name in names if kind_of(MECHANISMS[name]) is PureDP]
    rows = [
        {"eps": eps, "series": name, "accuracy": evidence.expected(MECHANISMS[name].of(PureDP(eps), evidence.classes))}
        for name in pure
        for eps in EPS
    ]
    axis = {"ylabel": "expected accuracy", "y": "accuracy"}
    captions = {}
    if rows:  # no mechanism of pure eps may have been asked for
        what = Curves("accuracy_by_eps", "eps", xlabel="eps of one query (pure)", title=dataset, **axis, **level)  # type: ignore[arg-type]
        curves(record, what, pd.DataFrame(rows))
        captions["accuracy_by_eps"] = "Expected accuracy against the budget of one query; dotted: without noise."
    table = as_table(found).rename(columns={"mechanism": "series", "expected_accuracy": "accuracy"})
    table["panel"] = [f"total eps = {eps:g}, delta = {request.delta:g}" for eps in table["total_eps"]]
    what = Curves("accuracy_by_queries", "queries", xlabel="queries", title=dataset, panels="panel", **axis, **level)  # type: ignore[arg-type]
    curves(record, what, table)
    captions["accuracy_by_queries"] = "Expected accuracy against the number of queries that share a total budget."
    flips = [
        {"distance": int(k), "series": name, "flip": float(p)}
        for name in pure
        if MECHANISMS[name].needs == "distance"
        for k, p in zip(DISTANCES, MECHANISMS[name].of(PureDP(1.0), 2).flip_probability(np.array(DISTANCES)), strict=True)
    ]
    if evidence.classes == 2 and flips:
        what = Curves(
            "flips_by_distance", "distance", "flip", "stable distance", "probability of the other label",
            "eps = 1 per query", log=False, ylog=True,
        )  # fmt: skip
        curves(record, what, pd.DataFrame(flips))
        captions["flips_by_distance"] = "Probability of releasing the other label against stable distance, at eps = 1."
    gaps = [
        {"gap": gap, "series": f"true, at eps = {eps:g}", "loss": gap_loss(eps, gap)}
        for eps in (0.1, 1.0)
        for gap in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200)
    ]
    gaps += [{"gap": gap, "series": "what eps = 1 claims", "loss": 1.0} for gap in (1, 200)]
    gaps += [{"gap": gap, "series": "what eps = 0.1 claims", "loss": 0.1} for gap in (1, 200)]
    what = Curves("paper_accounting_loss", "gap", "loss", "gap of the k-grid", "true privacy loss of a query",
                  "smooth_cauchy under accounting=paper", ylog=True)  # fmt: skip
    curves(record, what, pd.DataFrame(gaps))
    captions["paper_accounting_loss"] = (
        "What smooth_cauchy truly gives away when distances are read off a grid {0, gap}, whatever it claims: why a dense "
        "grid, or counting steps of it, is needed."
    )
    return captions


def recommend(evidence: Evidence, weights: Callable[[float], float] | None, names: Sequence[str], request: Request) -> str:
    """What to use, and what it gives, in a sentence or two."""
    singly = _singly(evidence, names, request)
    if weights is None:
        return singly
    each = [(eps, weights(weights_budget(eps, request.delta).mu)) for eps in request.eps] if request.delta else []
    if not each:
        return f"Released weights need delta > 0. {singly}"
    gained = ", ".join(f"{accuracy:.3f} at total eps = {eps:g}" for eps, accuracy in each)
    return (
        f"Release the weights once: any number of queries at an expected accuracy of {gained} "
        f"(delta = {request.delta:g}; {evidence.accuracy:.3f} without noise). {singly}"
    )


def _singly(evidence: Evidence, names: Sequence[str], request: Request) -> str:
    """How many queries, answered one by one, stay within ``WITHIN`` of noise-free accuracy."""
    least, counts = evidence.accuracy - WITHIN, {}
    for eps in request.eps:
        found = {name: answerable(evidence, MECHANISMS[name], eps, request.delta, least) for name in names}
        best = max(found, key=lambda name: found[name], default=None)
        if best is not None and found[best]:
            counts[eps] = f"{found[best]:,} with {best}"
    if not counts:
        return (
            f"No mechanism answers even one query within a point of the noise-free {evidence.accuracy:.3f} here: "
            "longer stable distances are needed (more records, a smaller clip level, fewer steps)."
        )
    listed = "; ".join(f"total eps = {eps:g}: {count}" for eps, count in counts.items())
    return f"Queries that can be answered one by one within a point of the noise-free {evidence.accuracy:.3f}: {listed}."


def _say(
    record: RunRecord, asked: Asked, evidence: Evidence, found: Sequence[Offer], advice: str, console: Console
) -> None:
    table = wide(found)
    console.table(
        f"{asked.prepared.dataset.name}: expected accuracy by total budget and number of queries "
        f"(without noise {evidence.accuracy:.3f})",
        tuple(column.replace("_", " ") for column in table.columns),
        [(f"{row[0]:g}", str(row[1]), *(show(value) for value in row[2:])) for row in table.itertuples(index=False)],
    )
    console.say(advice)
    failed = [c.letter for c in asked.conditions if not c.held]
    if failed:
        console.say(
            f"{'condition' if len(failed) == 1 else 'conditions'} {', '.join(failed)} of a guarantee: not held here, so "
            "accounting=rigorous will refuse to release from it; report.md says why"
        )
    for line in declarations(asked.conditions):
        console.say(line)
    console.say(f"run folder: {record.folder}")
