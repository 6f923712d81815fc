"""agt certify: a finished training run -> stable distances of queries -> tables, figures,
report.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pydantic import InstanceOf

from agt.certificates.box import Certificates
from agt.models.doubts import CertifiedCounts
from agt.models.number_votes import NumberVotes
from agt.settings import keyword_schema
from agt.store.json_text import as_json
from agt_cli.command_settings.certify import CertifySettings, check_certify
from agt_cli.releasing.noise import REDRAWN
from agt_cli.releasing.payer import counting_ledger
from agt_cli.report import figures
from agt_cli.report.certification_md import (
    LabelCertification,
    certified_metrics,
    certified_rows,
    certify_report,
    rows_at_round_ks,
    write_tables,
)
from agt_cli.report.console import Console
from agt_cli.report.number_md import (
    NumberCertification,
    interval_table,
    number_report,
    number_rows,
    print_intervals,
    write_intervals_by_query,
)
from agt_cli.report.number_quality import evaluate_numbers
from agt_cli.report.quality import ALWAYS_CERTIFIED, Quality
from agt_cli.report.quality_md import evaluate_answers, write_quality
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import outside_section
from agt_cli.report.sections_md import describe_edits_up_to, describe_median_distance
from agt_cli.runs.prepare import certification_progress
from agt_cli.runs.queries import OpenedRun, TrainedRun
from agt_cli.unlearn.person import PersonAnswers, compare_people
from agt_cli.unlearn.person_md import (
    FIELDS,
    person_fields,
    person_metrics,
    person_page,
    say_people,
)

CertificatesT = TypeVar("CertificatesT")

CONSTANT_ON_TEST = (
    "This model gave (nearly) the same answer to every test record when it was trained, so it is "
    f"nearly constant. {ALWAYS_CERTIFIED}."
)


@keyword_schema
class CertifyConfig(CertifySettings):
    """A run and queries, which are to be certified."""

    trained: InstanceOf[TrainedRun]


def configure(config: Mapping[str, Any]) -> CertifyConfig:
    """Validate the settings and the run that they name, before any data is read.

    Args:
        config: the composed settings of ``agt certify``.

    Raises:
        ConfigError: a setting is wrong; the message begins with its key.
    """
    settings = check_certify(config)
    return CertifyConfig(trained=TrainedRun.from_config(config), **vars(settings))


def run(config: CertifyConfig, record: RunRecord, console: Console) -> dict[str, Any]:
    """Certify the queries, write the record and print the result.

    Returns:
        What --json prints.

    Raises:
        ConfigError: a setting that does not suit the kind of answers; or the run has changed.
    """
    opened = config.trained.open(record, console, with_records=bool(config.person))
    votes = opened.model.number_votes
    config.check_target(votes is not None)
    # First, because an unknown id should not be found after everything else.
    people = compare_people(config.person, opened, console) if config.person else ()
    if votes is not None:
        return certify_numbers(config, opened, votes, record, console)
    return _certify_classes(config, opened, people, record, console)


def _certify_classes(
    config: CertifyConfig,
    opened: OpenedRun,
    people: Sequence[PersonAnswers],
    record: RunRecord,
    console: Console,
) -> dict[str, Any]:
    """Certify queries whose answers are classes, write the record and print the result.

    Args:
        config: the settings of the command.
        opened: the run and the queries.
        people: the people for whom answers with and without their records are compared; empty:
            none.
        record: the command's record.
        console: for progress and results.

    Returns:
        What --json prints.
    """
    trained = config.trained
    certificates, seconds = _certify(opened.model.certify, opened, console)
    table = pd.DataFrame(certificates.table(opened.labels))
    certification = LabelCertification(
        dataset=opened.dataset.name,
        queries_description=trained.queries_description,
        relation=trained.settings.relation,
        conditions=opened.conditions,
        classes=opened.dataset.classes,
        certificates=certificates,
        labelled=opened.labels is not None,
        caveat=REDRAWN if trained.settings.noise else "",
    )
    quality = _evaluate_certified(opened, certificates)
    pending = opened.pending_erasures
    answerable = pending.answerable_queries(certificates, opened.model.problem.classes)
    pending_sentences = pending.record_deferred(answerable, record)
    # Few queries, or queries of one class, do not show that a model is constant.
    warnings = []
    if trained.finished.metrics.get("test_constant") == 1 and not quality.verdict:
        warnings = [CONSTANT_ON_TEST]
    least_stable = write_tables(
        record,
        opened.dataset,
        opened.queries,
        certificates,
        table,
        quality,
        answerable if pending.units else None,
    )
    record.conditions(opened.conditions)
    record.add_metrics(
        **certified_metrics(table, certificates, quality.grid_end),
        n_queries=len(opened.queries),
        seconds_certifying=seconds,
    )
    write_quality(record, quality)
    captions = _draw_figures(config, record, opened, certification, table, console)
    report = certify_report(
        certification,
        table,
        least_stable,
        captions,
        trained.finished,
        quality,
        (*warnings, *pending_sentences, *outside_section(opened.queries)),
        record,
        counting_ledger(trained.finished),
    )
    # before the report, so that no report is of a run that changed meanwhile
    opened.check_current()
    record.report(report)
    for line in warnings:
        console.say(line)
    n_train = int(trained.finished.metrics["n_train"])
    _print_result(record, certification, table, quality, n_train, console)
    for line in pending_sentences:
        console.say(line)
    result = {
        "metrics": record.metrics,
        "verdict": quality.verdict,
        "table": table.to_dict("records"),
    }
    if people:
        result["people"] = _write_people(people, record, certification, opened)
        say_people(people, record, console)
    result["trained_run"] = str(trained.finished.folder)
    if pending_sentences:
        result["owed"] = pending_sentences[0]
    return result


def _certify(
    certify: Callable[..., CertificatesT], opened: OpenedRun, console: Console
) -> tuple[CertificatesT, float]:
    """Return certificates of the answers to the queries, and how many seconds they took.

    Args:
        certify: the method of the model that certifies answers, of classes or numbers.
        opened: the run and the queries.
        console: shows progress.
    """
    started = time.perf_counter()
    with certification_progress(opened.model, console) as on_progress:
        certificates = certify(opened.queries.features, on_progress=on_progress)
    return certificates, round(time.perf_counter() - started, 4)


def _evaluate_certified(opened: OpenedRun, certificates: Certificates) -> Quality:
    """Return the quality of the certified answers to a run's queries."""
    model = opened.model
    trained = opened.trained
    return evaluate_answers(
        model,
        opened.queries,
        trained.queries_description,
        opened.labels,
        certificates.prediction,
        certificates.stable_distance,
        CertifiedCounts.from_certificates(certificates, trained.settings),
        margins=model.certified_margins(opened.queries.features, certificates),
    )


def certify_numbers(
    config: CertifyConfig,
    opened: OpenedRun,
    model: NumberVotes,
    record: RunRecord,
    console: Console,
) -> dict[str, Any]:
    """Certify the intervals of queries whose answers are numbers, and write the record.

    Args:
        config: the settings of the command.
        opened: the run and the queries.
        model: its model.
        record: the command's record.
        console: for progress and results.

    Returns:
        What --json prints.

    Raises:
        ConfigError: requests for erasure are pending, but only answers that are classes can be
            given before they are carried out.
    """
    trained = opened.trained
    labels = opened.labels
    opened.pending_erasures.refuse("certifying numbers")
    certificates, seconds = _certify(model.certify, opened, console)
    certification = NumberCertification(
        dataset=opened.dataset.name,
        queries_description=trained.queries_description,
        relation=trained.settings.relation,
        conditions=opened.conditions,
        certificates=certificates,
    )
    distances = None
    max_k = None
    if config.tolerance is not None:
        distances = certificates.within(config.tolerance)
        max_k = distances.max_k
    quality = evaluate_numbers(
        model, trained.queries_description, opened.queries, labels, certificates.prediction
    )
    table = interval_table(certification, distances)
    rows = list(number_rows(certification, opened.queries, labels, max_k))
    intervals_file = write_intervals_by_query(record, rows)
    record.table("intervals", table)
    record.conditions(opened.conditions)
    widths = zip(table["k"], table["width_median"], strict=True)
    record.add_metrics(
        **{f"width_median_k{k}": float(width) for k, width in widths},
        relation=certificates.relation,
        k_max=certificates.max_k,
        n_queries=len(opened.queries),
        seconds_certifying=seconds,
    )
    if distances is not None:
        median_k = float(np.median(distances.max_k))
        record.add_metrics(tolerance=distances.tolerance, k_within_median=median_k)
    write_quality(record, quality)
    captions = figures.draw_intervals(record, certification, table, labels)
    sections = outside_section(opened.queries)
    report = number_report(
        certification,
        table,
        captions,
        trained.finished,
        quality,
        distances,
        sections,
        intervals_file,
        counting_ledger(trained.finished),
    )
    opened.check_current()
    record.report(report)
    if quality.verdict:
        console.say(quality.verdict)
    print_intervals(console, certification, table, distances)
    quality.print_to(console)
    intervals_path = record.folder / intervals_file
    console.say(f"the interval of each query (for the data owner only): {intervals_path}")
    console.say(f"run folder: {record.folder}")
    console.note(f"report: {record.folder / 'report.html'}")
    return {
        "metrics": record.metrics,
        "verdict": quality.verdict,
        "table": table.to_dict("records"),
        "trained_run": str(trained.finished.folder),
    }


def _write_people(
    people: Sequence[PersonAnswers],
    record: RunRecord,
    certification: LabelCertification,
    opened: OpenedRun,
) -> list[dict[str, Any]]:
    """Write the page about people and its fields, and return the fields."""
    answers = certification.certificates.prediction
    fields = person_fields(people, opened.queries, certification.classes, answers)
    record.add_metrics(**person_metrics(people))
    record.write(FIELDS, as_json(fields))
    record.page(
        "person",
        person_page(people, fields, certification.dataset, certification.queries_description),
    )
    return fields


def _draw_figures(
    config: CertifyConfig,
    record: RunRecord,
    opened: OpenedRun,
    certification: LabelCertification,
    table: pd.DataFrame,
    console: Console,
) -> dict[str, str]:
    """Draw the figures; return their captions by name.

    If the features are a plane, a map of it is drawn, for which a grid of points is certified.

    Args:
        config: the settings of the command.
        record: the figures are written into it.
        opened: the run and the queries.
        certification: what was certified.
        table: certified counts by k.
        console: for progress.
    """
    captions = figures.draw_certified_fraction(record, certification, table)
    dataset = opened.dataset
    if dataset.plane is not None and config.map_resolution:
        model = opened.model
        points = dataset.plane.points
        grid = figures.Grid.around(points, config.map_resolution)
        features = dataset.plane.lift(grid.points).astype(dataset.train.features.dtype)
        levels = figures.plane_map_ks(model.problem.settings.kgrid.ks)
        with certification_progress(model, console, "map of the plane") as on_progress:
            certificates = model.certify(features, levels, on_progress)
        margins = model.margins(features)
        captions |= figures.draw_plane_map(
            record, certification, grid, certificates, margins, points, dataset.train.labels
        )
    return captions | figures.draw_distance_histogram(record, certification, opened.labels)


def _print_result(
    record: RunRecord,
    certification: LabelCertification,
    table: pd.DataFrame,
    quality: Quality,
    trained: int,
    console: Console,
) -> None:
    """Print what was certified.

    Args:
        record: the command's record.
        certification: what was certified.
        table: certified counts by k.
        quality: how good the model is.
        trained: the number of training records.
        console: prints it.
    """
    if quality.verdict:
        console.say(quality.verdict)
    titles, rows = certified_rows(rows_at_round_ks(table))
    relation = certification.relation
    title = certification.table_title
    if quality.constant_note:
        title = f"{title}; {quality.constant_note}"
    console.table(title, titles, rows)
    median = float(record.metrics["stable_distance_median"])
    end = quality.all_records.grid_end
    median_distance = describe_median_distance(median, trained, end, relation)
    console.say(f"median stable distance: {median_distance}")
    if median >= 1:
        k = math.floor(median)
        changes = describe_edits_up_to(relation, k)
        console.say(
            "protection against poisoning: half of the answers stay the same under any "
            f"attack that changes the training data by up to k = {k:,}, that is, with "
            f"{changes}"
        )
    quality.print_to(console)
    if certification.caveat:
        console.say(certification.caveat)
    console.say(
        "each query's answer and stable distance (for the data owner only; an answer is certified "
        f"for every k up to its stable_distance): {record.folder / 'certificates.parquet'} "
        "(columns: row, record_id, label, prediction, stable_distance, score)"
    )
    console.say(f"run folder: {record.folder}")
    for name in sorted((record.folder / "figures").glob("*.png")):
        console.note(f"figure: {name}")
    console.note(f"report: {record.folder / 'report.html'}")
    console.note(certification.privacy_sentence)
