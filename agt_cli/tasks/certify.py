"""agt certify: a finished training run -> stable distances of queries -> tables, figures, report."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt_cli.certificates.box import Certificates
from agt_cli.certificates.stability import ClosedForm
from agt_cli.data.dataset import UNLABELLED, DataError, Dataset, Records
from agt_cli.errors import ConfigError
from agt_cli.models.encoder import encode_queries
from agt_cli.report import figures
from agt_cli.report.console import Console, show
from agt_cli.report.record import FinishedRun, RunRecord, open_run
from agt_cli.report.report_md import Subject, certify_report
from agt_cli.schema import STRICT, validate
from agt_cli.tasks.model import Model, load
from agt_cli.tasks.prepare import Prepared, Settings, only_keys, prepare, settings_of

HANDFUL = (0, 1, 5, 10, 20, 50, 100, 150, 200, 500, 1000)
LEAST_STABLE = 20


@validated(frozen=True, config=STRICT)
class Request:
    """What is asked for, beside the run itself: queries, and how fine a map."""

    run: str
    inputs: str | None = None
    map_resolution: Annotated[int, Field(ge=0, le=1000)] = 160


@dataclass(frozen=True)
class Job:
    """A valid request, the finished run it is about, and that run's settings with this command's own ``compute``."""

    request: Request
    finished: FinishedRun
    settings: Settings


def configure(config: Mapping[str, Any]) -> Job:
    """Validate the request and the run it names, before any data is read."""
    only_keys(config, ("run", "inputs", "map_resolution", "compute", "output_dir"))
    asked = {key: config.get(key) for key in ("run", "inputs", "map_resolution")}
    for key in ("run", "inputs"):
        asked[key] = None if asked[key] is None else str(asked[key])
    request = validate(Request, asked, "certify")
    finished = open_run(Path(request.run), "train")
    return Job(request, finished, settings_of({**finished.config, "compute": config.get("compute")}))


def run(job: Job, record: RunRecord, console: Console) -> dict[str, Any]:
    """Certify the queries and write the record."""
    settings = job.settings
    prepared = prepare(settings, console)
    _check_unchanged(job.finished, prepared)
    model = load(prepared, settings, job.finished)
    queries = _queries(job, prepared)
    dataset = prepared.dataset
    record.environment(data_digest=prepared.loaded.digest, features_digest=dataset.digest, dataset=dataset.name)
    record.environment(trained_run=str(job.finished.folder), inputs=job.request.inputs)
    started = time.perf_counter()
    certificates = model.certify(queries.features, console, "certifying")
    seconds = time.perf_counter() - started
    labels = queries.labels if bool((queries.labels != UNLABELLED).all()) else None
    table = pd.DataFrame(certificates.table(labels))
    conditions = model.conditions
    labelled = labels is not None
    subject = Subject(dataset.name, dataset.classes, _where(job), settings.relation, certificates, labelled, conditions)

    least = _write_tables(record, dataset, queries, certificates, table)
    record.conditions(conditions)
    record.add_metrics(**_metrics(table, certificates), n_queries=len(queries), seconds_certifying=round(seconds, 4))
    _draw(job, record, prepared, model, subject, table, labels, console)
    record.write("report.md", certify_report(record, subject, table, least, job.finished).encode())
    _say(record, subject, table, console)
    return {"metrics": record.metrics, "table": table.to_dict("records"), "trained_run": str(job.finished.folder)}


def _check_unchanged(finished: FinishedRun, prepared: Prepared) -> None:
    """Certificates are about the data that was trained on, and no other."""
    now = {"data_digest": prepared.loaded.digest, "features_digest": prepared.dataset.digest}
    for key, what in (("data_digest", "data"), ("features_digest", "encoder's features")):
        then = finished.environment.get(key)
        if then != now[key]:
            raise ConfigError(
                f"run={finished.folder}: the {what} changed between train and certify (digest {then} then, "
                f"{now[key]} now): restore what was trained on, or train again"
            )


def _queries(job: Job, prepared: Prepared) -> Records:
    if job.request.inputs is None:
        return prepared.dataset.test
    queries = job.settings.source.load_queries(Path(job.request.inputs))
    if not len(queries):
        raise DataError(f"inputs={job.request.inputs}: holds no queries")
    encoder = job.settings.model.encoder
    return queries if encoder is None else encode_queries(encoder, prepared.loaded, queries)


def _write_tables(
    record: RunRecord, dataset: Dataset, queries: Records, certificates: Certificates, table: pd.DataFrame
) -> pd.DataFrame:
    """Write every table; returns the least stable records."""
    names = np.array([*dataset.classes, ""], dtype=object)  # UNLABELLED (-1) is the last: no label
    each = pd.DataFrame(
        {
            "record_id": queries.ids.astype(str),
            "label": names[queries.labels],
            "prediction": names[certificates.prediction],
            "stable_distance": certificates.stable_distance,
        }
    )
    record.parquet("certificates", each)
    record.table("certified", table)
    least = each.sort_values("stable_distance", kind="stable").head(LEAST_STABLE)
    record.table("least_stable", least)
    return least


def _metrics(table: pd.DataFrame, certificates: Certificates) -> dict[str, float | int | str]:
    """Flat numbers: stable distances in brief, and each column of the table at a handful of k."""
    stable = certificates.stable_distance
    metrics: dict[str, float | int | str] = {
        "stable_distance_median": float(np.median(stable)),
        "stable_distance_mean": float(stable.mean()),
        "relation": certificates.relation,
        "k_max": certificates.ks[-1],
    }
    if "nominal_accuracy" in table:
        metrics["accuracy"] = float(table["nominal_accuracy"].iloc[0])
    for _, row in _handful(table).iterrows():
        for name in table.columns.intersection(["certified_fraction", "worst_accuracy", "best_accuracy"]):
            metrics[f"{name}_k{int(row['k'])}"] = float(row[name])
    return metrics


def _handful(table: pd.DataFrame) -> pd.DataFrame:
    """The rows worth printing: round values of k, the first and the last."""
    ends = [table["k"].min(), table["k"].max()]
    return table[table["k"].isin([*HANDFUL, *ends])]


def _draw(
    job: Job,
    record: RunRecord,
    prepared: Prepared,
    model: Model,
    subject: Subject,
    table: pd.DataFrame,
    labels: np.ndarray | None,
    console: Console,
) -> None:
    figures.curve(record, subject, table)
    figures.histogram(record, subject, labels)
    plane, resolution = prepared.dataset.plane, job.request.map_resolution
    if plane is None or not resolution:
        return
    grid = figures.Grid.around(plane.points, resolution)
    features = plane.lift(grid.points).astype(prepared.dataset.train.features.dtype)
    certificates = model.certify(features, console, "map of the plane", shown=True)
    margins = model.margins(features)
    figures.plane_map(record, subject, grid, certificates, margins, plane.points, prepared.dataset.train.labels)


def _where(job: Job) -> str:
    return "test records" if job.request.inputs is None else f"queries of {Path(job.request.inputs).name}"


def _say(record: RunRecord, subject: Subject, table: pd.DataFrame, console: Console) -> None:
    columns = [column for column in table.columns if column != "k"]
    console.table(
        f"{subject.dataset}, {subject.queries}: certified against {subject.relation.name}; k counts {subject.ball}",
        ("k", *(column.replace("_", " ") for column in columns)),
        [(str(int(row["k"])), *(show(row[column]) for column in columns)) for _, row in _handful(table).iterrows()],
    )
    median = float(record.metrics["stable_distance_median"])
    censored = median == subject.certificates.ks[-1] and not isinstance(subject.certificates, ClosedForm)
    end = " or more: the grid ends there" if censored else ""
    console.say(f"median stable distance: {median:g}{end}")
    console.say(f"run folder: {record.folder}")
    for name in sorted((record.folder / "figures").glob("*.png")):
        console.note(f"figure: {name}")
    console.note(f"report: {record.folder / 'report.md'}")
    console.note(subject.guarantee)
