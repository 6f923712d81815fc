"""agt certify: a finished training run -> stable distances of queries -> tables, figures,
report.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pandas as pd
from pydantic import InstanceOf

from agt.certificates.box import Certificates
from agt.models.doubts import CertifiedCounts
from agt.models.number_votes import NumberVotes
from agt.settings import keyword_schema
from agt.store.json_text import as_json
from agt_cli.command_settings.certify import CertifySettings, check_certify
from agt_cli.releasing.noise import REDRAWN
from agt_cli.report import figures
from agt_cli.report.certification_md import (
    MAX_TABLE_ROWS,
    LabelCertification,
    certified_metrics,
    certified_rows,
    certify_report,
    rows_at_round_ks,
    write_tables,
)
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.markdown import escape_markdown
from agt_cli.report.number_md import (
    NumberCertification,
    interval_metrics,
    interval_table,
    number_report,
    number_rows,
    print_intervals,
    write_intervals_by_query,
)
from agt_cli.report.number_quality import NumberQuality, evaluate_numbers
from agt_cli.report.proposed_release import WEIGHTS_MECHANISMS, release_command
from agt_cli.report.quality import ALWAYS_CERTIFIED, ModelQuality, Quality
from agt_cli.report.quality_md import ModelAnswers, evaluate_answers, write_quality
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import outside_section
from agt_cli.report.sections_md import describe_edits_up_to, describe_median_distance
from agt_cli.runs.prepare import certification_progress
from agt_cli.runs.queries import OpenedRun, TrainedRun
from agt_cli.start.ledger_proposal import LedgerProposal
from agt_cli.unlearn.person import PersonAnswers, compare_people
from agt_cli.unlearn.person_md import (
    FIELDS,
    person_fields,
    person_metrics,
    person_page,
    print_people,
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
        return _certify_numbers(config, opened, votes, record, console)
    return _certify_classes(config, opened, people, record, console)


@dataclass(frozen=True)
class CertifiedLabels:
    """Certified answers that are classes, with what tables and pages say of them.

    Attributes:
        certification: the certificates, and what they are of.
        table: a row for each k, as in tables/certified.csv.
        quality: the scores of the answers.
        warnings: sentences for the owner about the model; empty: none.
        seconds: the duration of certifying in seconds.
    """

    certification: LabelCertification
    table: pd.DataFrame
    quality: Quality
    warnings: tuple[str, ...]
    seconds: float


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
        console: the console, which shows progress and results.

    Returns:
        What --json prints.
    """
    certified = _certified_labels(opened, console)
    pending_sentences = _write_labels(config, opened, certified, record, console)
    for line in certified.warnings:
        console.say(line)
    _print_labels(certified, opened, record, console)
    for line in pending_sentences:
        console.say(line)
    result = _result(opened, certified.quality, certified.table, record)
    if people:
        result["people"] = _write_people(people, record, certified.certification, opened)
        print_people(people, record, console)
    if pending_sentences:
        result["owed"] = pending_sentences[0]
    return result


def _certified_labels(opened: OpenedRun, console: Console) -> CertifiedLabels:
    """Certify the queries of a run whose answers are classes; nothing is written.

    Args:
        opened: the run and the queries.
        console: shows progress.
    """
    trained = opened.trained
    timed = _certify(opened.model.certify, opened, console)
    certificates = timed.certificates
    caveat = REDRAWN if trained.settings.noise else ""
    certification = LabelCertification(
        dataset=opened.dataset.name,
        queries_description=trained.queries_description,
        relation=trained.settings.relation,
        conditions=opened.conditions,
        classes=opened.dataset.classes,
        certificates=certificates,
        labelled=opened.labels is not None,
        caveat=caveat,
    )
    quality = _evaluate_certified(opened, certificates)
    # Few queries, or queries of one class, do not show that a model is constant.
    was_constant = trained.finished.metrics.get("test_constant") == 1
    warnings = (CONSTANT_ON_TEST,) if was_constant and not quality.verdict else ()
    table = pd.DataFrame(certificates.table(opened.labels))
    return CertifiedLabels(certification, table, quality, warnings, timed.seconds)


def _write_labels(
    config: CertifyConfig,
    opened: OpenedRun,
    certified: CertifiedLabels,
    record: RunRecord,
    console: Console,
) -> Sequence[str]:
    """Write tables, metrics, figures and the report of certified answers that are classes.

    Args:
        config: the settings of the command.
        opened: the run and the queries.
        certified: the certified answers.
        record: the command's record.
        console: shows progress.

    Returns:
        Sentences on queries that are not answered while requests for erasure are pending; empty:
        all are answered.

    Raises:
        CheckError: the run was changed meanwhile.
    """
    certification = certified.certification
    certificates = certification.certificates
    quality = certified.quality
    pending = opened.pending_erasures
    answerable = pending.answerable_queries(certificates, opened.model.problem.classes)
    pending_sentences = pending.record_deferred(answerable, record)
    least_stable = write_tables(
        record,
        opened.dataset,
        opened.queries,
        certificates,
        certified.table,
        quality,
        answerable if pending.units else None,
    )
    record.conditions(opened.conditions)
    metrics = certified_metrics(certified.table, certificates, quality.grid_end)
    record.add_metrics(
        **metrics, n_queries=len(opened.queries), seconds_certifying=certified.seconds
    )
    write_quality(record, quality)
    captions = _draw_figures(config, record, opened, certification, certified.table, console)
    training_run = opened.trained.finished
    release = _NextRelease.propose(training_run, "NAME", "NUMBER")
    remarks = [*certified.warnings, *pending_sentences, *outside_section(opened.queries)]
    report = certify_report(
        certification,
        certified.table,
        least_stable,
        captions,
        training_run,
        quality,
        (*remarks, *release.refusals),
        record,
        release.command,
    )
    opened.check_current()  # before the report, so that no report is of a run that was changed
    record.report(report)
    return pending_sentences


@dataclass(frozen=True)
class _NextRelease:
    """The release that a report proposes.

    Attributes:
        command: the command that releases answers; None: a ledger accepts none.
        refusals: sentences in Markdown on why there is none; empty beside a command.
    """

    command: str | None
    refusals: Sequence[str] = ()

    @classmethod
    def propose(cls, training_run: Run, mechanism: str, delta: str) -> "_NextRelease":
        """Return the proposed release of a run's answers.

        Args:
            training_run: the run that was certified.
            mechanism: the name of the mechanism.
            delta: the delta of the budget, as it is typed.
        """
        ledger = LedgerProposal.of_counting_ledger(training_run)
        if not ledger.accepts_a_release:
            return cls(None, [escape_markdown(sentence) for sentence in ledger.sentences])
        name = ledger.name or None
        return cls(release_command(training_run.folder, mechanism, "NUMBER", delta, name))


def _result(
    opened: OpenedRun, quality: ModelQuality, table: pd.DataFrame, record: RunRecord
) -> dict[str, Any]:
    """Return what --json prints of certified answers, of classes or numbers.

    Args:
        opened: the run and the queries.
        quality: the scores of the answers.
        table: the table of the page, with a row for each k.
        record: the command's record.
    """
    return {
        "metrics": record.metrics,
        "verdict": quality.verdict,
        "table": table.to_dict("records"),
        "trained_run": str(opened.trained.finished.folder),
    }


@dataclass(frozen=True)
class _Timed(Generic[CertificatesT]):
    """Certificates, and how long it took to compute them.

    Attributes:
        certificates: of each answer.
        seconds: the duration.
    """

    certificates: CertificatesT
    seconds: float


def _certify(
    certify: Callable[..., CertificatesT], opened: OpenedRun, console: Console
) -> _Timed[CertificatesT]:
    """Certify the answers to the queries.

    Args:
        certify: the method of the model that certifies answers, of classes or numbers.
        opened: the run and the queries.
        console: shows progress.
    """
    started = time.perf_counter()
    with certification_progress(opened.model, console) as on_progress:
        certificates = certify(opened.queries.features, on_progress=on_progress)
    seconds = time.perf_counter() - started
    return _Timed(certificates, round(seconds, 4))


def _evaluate_certified(opened: OpenedRun, certificates: Certificates) -> Quality:
    """Return the quality of the certified answers to a run's queries."""
    model = opened.model
    trained = opened.trained
    answers = ModelAnswers(
        prediction=certificates.prediction,
        distance=certificates.stable_distance,
        certified_counts=CertifiedCounts.from_certificates(certificates, trained.settings),
        margins=model.certified_margins(opened.queries.features, certificates),
    )
    return evaluate_answers(
        model, opened.queries, trained.queries_description, opened.labels, answers
    )


def _certify_numbers(
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
        console: the console, which shows progress and results.

    Returns:
        What --json prints.

    Raises:
        ConfigError: requests for erasure are pending, but only answers that are classes can be
            given before they are carried out.
        CheckError: the run was changed meanwhile.
    """
    trained = opened.trained
    opened.pending_erasures.refuse("certifying numbers")
    timed = _certify(model.certify, opened, console)
    certificates = timed.certificates
    distances = None
    if config.tolerance is not None:
        distances = certificates.within(config.tolerance)
    certification = NumberCertification(
        dataset=opened.dataset.name,
        queries_description=trained.queries_description,
        relation=trained.settings.relation,
        conditions=opened.conditions,
        certificates=certificates,
        distances=distances,
    )
    quality = evaluate_numbers(
        model,
        trained.queries_description,
        opened.queries,
        opened.labels,
        certificates.prediction,
    )
    table = interval_table(certification)
    record.add_metrics(n_queries=len(opened.queries), seconds_certifying=timed.seconds)
    intervals_file = _write_numbers(opened, certification, table, quality, record)
    if quality.verdict:
        console.say(quality.verdict)
    print_intervals(console, certification, table)
    quality.print_to(console)
    intervals_path = record.folder / intervals_file
    console.say(f"the interval of each query (for the data owner only): {intervals_path}")
    console.say(f"run folder: {record.folder}")
    return _result(opened, quality, table, record)


def _write_numbers(
    opened: OpenedRun,
    certification: NumberCertification,
    table: pd.DataFrame,
    quality: NumberQuality,
    record: RunRecord,
) -> str:
    """Write tables, metrics, the figure and the report of certified numbers.

    Args:
        opened: the run and the queries.
        certification: the certified answers.
        table: ``interval_table``.
        quality: the scores of the answers.
        record: the command's record.

    Returns:
        The file with the interval of each query, from the record's folder.

    Raises:
        CheckError: the run was changed meanwhile.
    """
    training_run = opened.trained.finished
    rows = list(number_rows(certification, opened.queries, opened.labels))
    intervals_file = write_intervals_by_query(record, rows)
    record.table("intervals", table)
    record.conditions(opened.conditions)
    metrics = interval_metrics(certification, table)
    record.add_metrics(**metrics)
    write_quality(record, quality)
    release = _NextRelease.propose(training_run, WEIGHTS_MECHANISMS[0], "1e-5")
    captions = figures.draw_intervals(record, certification, table, opened.labels)
    report = number_report(
        certification,
        table,
        captions,
        training_run,
        quality,
        [*outside_section(opened.queries), *release.refusals],
        intervals_file,
        release.command,
    )
    opened.check_current()  # before the report, so that no report is of a run that was changed
    record.report(report)
    return intervals_file


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
        certification: the certified answers.
        table: certified counts by k.
        console: the console, which shows progress.
    """
    captions = figures.draw_certified_fraction(record, certification, table)
    dataset = opened.dataset
    if dataset.plane is not None and config.map_resolution:
        model = opened.model
        points = dataset.plane.points
        grid = figures.Grid.around(points, config.map_resolution)
        features = dataset.plane.lift(grid.points).astype(dataset.train.features.dtype)
        shown_ks = figures.plane_map_ks(model.problem.settings.kgrid.ks)
        with certification_progress(model, console, "map of the plane") as on_progress:
            certificates = model.certify(features, shown_ks, on_progress)
        margins = model.margins(features)
        captions |= figures.draw_plane_map(
            record, certification, grid, certificates, margins, points, dataset.train.labels
        )
    return captions | figures.draw_distance_histogram(record, certification, opened.labels)


def _print_labels(
    certified: CertifiedLabels, opened: OpenedRun, record: RunRecord, console: Console
) -> None:
    """Print certified answers that are classes: a table by k, their quality, and the files.

    Args:
        certified: the certified answers.
        opened: the run and the queries.
        record: the command's record, which was written.
        console: prints them.
    """
    quality = certified.quality
    certification = certified.certification
    if quality.verdict:
        console.say(quality.verdict)
    _print_table_by_k(certified, console)
    _print_median_distance(certified, opened, record, console)
    quality.print_to(console)
    if certification.caveat:
        console.say(certification.caveat)
    console.say(
        "each answer and its stable distance (for the data owner only): "
        f"{record.folder / 'certificates.parquet'}"
    )
    console.say(f"run folder: {record.folder}")
    console.note(certification.privacy_sentence)
    if all(condition.held for condition in opened.conditions):
        console.note(f"next: agt plan run={opened.trained.finished.folder}")


def _print_table_by_k(certified: CertifiedLabels, console: Console) -> None:
    """Print the table by k; of a long one the rows of round k."""
    shown = certified.table
    if len(shown) > MAX_TABLE_ROWS:
        shown = rows_at_round_ks(shown)
    titles, rows = certified_rows(shown)
    title = certified.certification.table_title
    if certified.quality.constant_note:
        title = f"{title}; {certified.quality.constant_note}"
    console.table(title, titles, rows)
    hidden = len(certified.table) - len(shown)
    if hidden:
        console.say(
            f"number of values of k that are not shown here: {hidden:,} "
            "(all are in tables/certified.csv)"
        )


def _print_median_distance(
    certified: CertifiedLabels, opened: OpenedRun, record: RunRecord, console: Console
) -> None:
    """Print the median stable distance, and which attacks half of the answers withstand."""
    relation = certified.certification.relation
    median = float(record.metrics["stable_distance_median"])
    training_records = int(opened.trained.finished.metrics["n_train"])
    grid_end = certified.quality.all_records.grid_end
    description = describe_median_distance(median, training_records, grid_end, relation)
    console.say(f"median stable distance: {description}")
    if median >= 1:
        changes = describe_edits_up_to(relation, math.floor(median))
        console.say(f"half of the answers stay the same under any attack with {changes}")
