"""Compare what a run records of its certificates, its audit and its noise with its other files.

Fields are compared. Only the hash of report.md is checked; its sentences are not compared.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from agt import sentences
from agt.certificates.box import Certificates
from agt.store.reading import MAX_TEXT_BYTES, Broken
from agt_cli.command_settings.on_run import STANDARD_INPUT
from agt_cli.releasing.noise import MECHANISM, missing_conditions, target_guarantee
from agt_cli.report.certification_md import table_metrics
from agt_cli.report.findings import AUDIT_FILE, read_audit
from agt_cli.report.quality_md import grid_end
from agt_cli.report.sections_md import describe_edits, privacy_sentence
from agt_cli.verify.comparison import SAME, check_entries, check_match, first_difference, mismatch
from agt_cli.verify.environment import compare_spent
from agt_cli.verify.folders import Record, check_version, model_of

CLAIM_FILE = "claim.json"
CERTIFICATES = "certificates.parquet"
CERTIFIED = "tables/certified.csv"
INTERVALS = "tables/intervals.csv"
INTERVALS_BY_QUERY = "tables/intervals_by_query.csv"
MAX_ROWS_PER_BYTE = 64
"""Rows that a byte of certificates.parquet may hold; a file with more would unpack to more than agt
writes.
"""


def is_line_by_line(record: Record) -> bool:
    """Return whether agt predict answered queries line by line (inputs=-).

    Their number was not known when the first answer was drawn.
    """
    return str(record.config.get("inputs")) == str(STANDARD_INPUT)


def check_certified(record: Record, trained: Record | None) -> str:
    """Check that metrics.json and the tables of a certification match certificates.parquet.

    If answers are numbers, intervals are compared instead of stable distances. For certificates by
    boxes, which exist only for the k of a grid, the table may count more queries at k than have a
    stable distance of at least k.

    Args:
        record: the record of the certification.
        trained: the training run that was certified; None: it was not found, so the table may
            count more in any case.

    Returns:
        A sentence that says what was compared.

    Raises:
        Broken: the files do not match, or one cannot be read.
    """
    if trained is not None and trained.relation is not None:
        record.check_metrics("the training run", relation=trained.relation.name)
    if record.holds(INTERVALS):
        return _check_intervals(record)
    table = pd.read_csv(BytesIO(record.read(CERTIFIED, MAX_TEXT_BYTES)))
    record.check_metrics(CERTIFIED, **table_metrics(table))
    label_columns = ["label", "prediction"]
    answers = read_certificates(record, ["stable_distance", *label_columns], label_columns)
    stable = answers["stable_distance"].to_numpy(np.int64)
    record.check_metrics(
        CERTIFICATES,
        stable_distance_mean=float(stable.mean()),
        stable_distance_median=float(np.median(stable)),
        k_max=int(table["k"].iloc[-1]),
    )
    model = model_of(trained)
    exact = model is not None and model.problem.settings.certificate.covers_every_k
    _compare_certified_table(record, table, answers, exact)
    if model is not None and not record.is_older_than(0, 10):
        end = grid_end(model.problem.settings)
        record.check_metrics(
            CERTIFICATES,
            stable_distance_median_is_lower_bound=int(np.median(stable) == end),
            stable_distance_mean_is_lower_bound=int(stable.max() == end),
        )
    return f"{CERTIFIED} and metrics.json match the stable distances in {CERTIFICATES}"


def _compare_certified_table(
    record: Record, table: pd.DataFrame, answers: pd.DataFrame, exact: bool
) -> None:
    """Raise Broken unless the table of certified answers by k follows from single answers.

    Args:
        record: the record of the certification; the columns are noted as compared.
        table: the content of tables/certified.csv.
        answers: the columns stable_distance, label and prediction of certificates.parquet.
        exact: whether the stable distances determine the table (``_certified_difference``).
    """
    ks = [int(k) for k in table["k"]]
    if ks != sorted(set(ks)):
        raise Broken(f"the values of k in {CERTIFIED} do not increase: {ks}")
    some_deferred = "answer" in certificate_columns(record)
    labels = None
    if "nominal_accuracy" in table and not some_deferred:
        labels = answers["label"].to_numpy()
    stable = answers["stable_distance"].to_numpy(np.int64)
    # A generator, so that only one row of [k, query] is in memory: there may be many of both.
    certified: Any = (stable >= k for k in ks)
    prediction = answers["prediction"].to_numpy()
    derived = Certificates(tuple(ks), record.metrics["relation"], prediction, certified)
    derived_rows = derived.table(labels)
    for row, recorded in zip(derived_rows, table.to_dict("records"), strict=True):
        difference = _certified_difference(row, recorded, exact)
        if difference:
            k = row["k"]
            raise mismatch(CERTIFIED, CERTIFICATES, f"at k = {k}, {difference}")
    compared = derived_rows[0] if exact else ("k", "nominal_accuracy")
    record.note_compared(CERTIFIED, compared)


def _certified_difference(row: Mapping[str, Any], recorded: Mapping[Any, Any], exact: bool) -> str:
    """Return how the recorded row of one k differs from the recomputed one; empty: it does not.

    Args:
        row: the row that the stable distances give.
        recorded: the row of tables/certified.csv.
        exact: True: a query is certified at k > 0 exactly if its stable distance is at least k, so
            both rows must be equal. False: the recorded row may count more certified queries. At
            k = 0 it may count fewer in any case, because a stable distance of 0 does not say
            whether a query is certified there.
    """
    if exact and row["k"]:
        return first_difference({name: recorded[name] for name in row}, row)
    fraction = recorded["certified_fraction"]
    minimum = row["certified_fraction"]
    if row["k"] and fraction < minimum - SAME:
        return (
            f"certified_fraction is recorded as {fraction!r}, but should be at least {minimum!r} "
            "according to the stable distances"
        )
    if "nominal_accuracy" not in row:
        return ""
    # An answer is certified if it is certified and right, or certified and wrong.
    worst = recorded["worst_accuracy"]
    best = recorded["best_accuracy"]
    nominal = row["nominal_accuracy"]
    if not 0 <= worst <= nominal + SAME <= best + 2 * SAME <= 1 + 2 * SAME:
        return f"the accuracy {nominal!r} is not from {worst!r} to {best!r}"
    derived = {"certified_fraction": worst + 1 - best, "nominal_accuracy": nominal}
    return first_difference({name: recorded[name] for name in derived}, derived)


def _check_intervals(record: Record) -> str:
    """Check the intervals of a certification whose answers are numbers.

    The interval at each k must contain the answer and the interval of every smaller k. The widths
    in tables/intervals.csv and metrics.json must be those of the intervals.

    Returns:
        A sentence that says what was compared.

    Raises:
        Broken: agt does not write such a file, or two files contradict each other.
    """
    table = pd.read_csv(BytesIO(record.read(INTERVALS, MAX_TEXT_BYTES)))
    rows = read_certificates(record)
    # at k = 0 the interval is the answer itself
    lower = rows["prediction"].to_numpy()
    upper = lower
    for row in table.to_dict("records"):
        k = int(row["k"])
        if k:
            outer_lower = rows[f"lower_k{k}"].to_numpy()
            outer_upper = rows[f"upper_k{k}"].to_numpy()
            if (outer_lower > lower).any() or (outer_upper < upper).any():
                raise Broken(
                    f"certificates.parquet: an interval at k = {k} does not contain that of a "
                    "smaller k, so the file was changed"
                )
            lower = outer_lower
            upper = outer_upper
        width = upper - lower
        derived = {
            "width_median": float(np.median(width)),
            "width_mean": float(width.mean()),
            "width_largest": float(width.max()),
        }
        check_entries(f"{INTERVALS}, at k = {k},", row, CERTIFICATES, derived)
        record.check_metrics(INTERVALS, **{f"width_median_k{k}": derived["width_median"]})
    if "tolerance" in record.config and record.config["tolerance"] is not None:
        within = rows["k_within_tolerance"].to_numpy()
        tolerance = float(record.config["tolerance"])
        record.check_metrics(
            f"config.yaml and {CERTIFICATES}",
            tolerance=tolerance,
            k_within_median=float(np.median(within)),
        )
        shares = [float((within >= k).mean()) for k in table["k"]]
        listed = table["share_within_tolerance"].tolist()
        check_match(INTERVALS, listed, CERTIFICATES, shares, "share_within_tolerance")
    if record.holds(INTERVALS_BY_QUERY):
        listed_rows = rows.to_csv(index=False, lineterminator="\n").encode()
        if record.read(INTERVALS_BY_QUERY, MAX_TEXT_BYTES) != listed_rows:
            raise Broken(
                f"{INTERVALS_BY_QUERY} does not match certificates.parquet, so one of these files "
                "was changed"
            )
    return "tables/intervals.csv and metrics.json match the intervals in certificates.parquet"


def read_certificates(
    record: Record, columns: Sequence[str] | None = None, label_columns: Sequence[str] = ()
) -> pd.DataFrame:
    """Return columns of certificates.parquet of a certification, a row for each query.

    Args:
        record: the record of the certification.
        columns: which; None: all.
        label_columns: those with few different texts, which become categories.

    Raises:
        Broken: agt does not write such a file, or metrics.json counts other queries.
    """
    content = record.read(CERTIFICATES)
    try:
        file = open_parquet(
            content, [*label_columns], record.metrics["n_queries"], MAX_ROWS_PER_BYTE
        )
        present = None if columns is None else [*columns]
        return file.read(present).to_pandas()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise Broken(f"{CERTIFICATES} is not a valid parquet file ({error})") from None


def certificate_columns(record: Record) -> set[str]:
    """Return the names of the columns of certificates.parquet."""
    return set(pq.read_schema(pa.BufferReader(record.read(CERTIFICATES))).names)


def open_parquet(
    content: bytes, label_columns: list[str], count: object, max_rows_per_byte: int
) -> pq.ParquetFile:
    """Open a parquet file that anybody may have written, after checking how large it would unpack.

    Its rows are not read yet.

    Args:
        content: the content of the file.
        label_columns: columns with few different texts, which are read as dictionaries.
        count: how many rows the file must have, by metrics.json.
        max_rows_per_byte: how many rows a byte of a file that agt writes holds at most.

    Raises:
        ValueError: the file has another number of rows, or more than its size allows, or a
            compression that agt does not use.
        OSError, ArrowException: the content is not a parquet file.
    """
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=label_columns)
    metadata = file.metadata
    rows = metadata.num_rows
    compressions = set()
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        for column_index in range(metadata.num_columns):
            compressions.add(group.column(column_index).compression)
    unexpected = compressions - {"SNAPPY", "UNCOMPRESSED"}
    if rows != count:
        raise ValueError(f"the parquet file has {rows} rows, but metrics.json counts {count}")
    if unexpected:
        compression = unexpected.pop()
        raise ValueError(
            f"the parquet file is compressed with {compression}, but agt writes parquet files "
            "only with SNAPPY or without compression, so agt did not write this file"
        )
    size = len(content)
    if rows > max_rows_per_byte * size:
        raise ValueError(
            f"the parquet file has {rows} rows in {size} bytes, but agt cannot write so many "
            "rows into so few bytes"
        )
    return file


def check_audit(record: Record) -> tuple[str, ...]:
    """Compare audit.json with env.json and metrics.json of the same record, and note the result.

    Args:
        record: the record of the audit; takes the findings.

    Returns:
        A sentence for each finding of the audit; empty: audit.json cannot be read or does not
        match.
    """
    with record.findings.recording_errors(AUDIT_FILE):
        audit = read_audit(record.read(AUDIT_FILE))
        named = record.environment.get("trained_digest")
        check_version(audit.by, AUDIT_FILE, record)
        kind = record.environment.get("kind")
        if audit.kind != kind:
            raise Broken(
                f"the field 'kind' is {audit.kind!r} in {AUDIT_FILE}, but {kind!r} in env.json"
            )
        if audit.digest not in (None, named):
            raise Broken(
                f"the audited run has the digest {audit.digest} according to {AUDIT_FILE}, but "
                f"{named} according to env.json"
            )
        record.check_metrics(
            AUDIT_FILE, findings=len(audit.findings), violations=len(audit.violations)
        )
        record.check_verdict(AUDIT_FILE, audit.verdict)
        record.findings.ok(
            AUDIT_FILE,
            f"the audit's findings (format {audit.schema}) do not contradict each other",
        )
        return tuple(
            f"{finding.subject}: {finding.outcome}: {finding.meaning}" for finding in audit.findings
        )
    return ()


def certificate_sentences(trained: Record | None) -> tuple[str, ...]:
    """Return two sentences on the certificates of a training run, as that run records itself.

    Args:
        trained: the training run; None: it was not found.

    Returns:
        What k counts, and whether the conditions of a privacy guarantee are met. Empty: the
        training run was not found, or its relation or conditions cannot be read.
    """
    if trained is None or trained.relation is None or not trained.conditions:
        return ()
    edits = describe_edits(trained.relation)
    relation = trained.relation.name
    return f"k is the number of {edits} (relation={relation})", privacy_sentence(trained.conditions)


def check_noise(record: Record) -> str | None:
    """Check that spent.json of a training run has the guarantee that its noise settings ask for.

    Returns:
        A sentence with the guarantee; None: the run trained without noise, so it spent nothing.

    Raises:
        Broken: spent.json has other values.
    """
    if not record.spent:
        return None
    noise = record.config["noise"]
    guarantee = target_guarantee(float(noise["epsilon"]), float(noise["delta"]))
    simulated = noise["seed"] is not None
    derived = {
        "what": "weights",
        "mechanism": MECHANISM,
        "queries": 0,
        "simulated": simulated,
        "guarantee": guarantee,
        "totals": [],
    }
    compare_spent(record, derived, "the settings noise.*")
    proved = not simulated and not missing_conditions(record.conditions)
    record.check_metrics("conditions.json", noise_proved=int(proved))
    meant = sentences.guarantee(guarantee)
    return f"spent.json matches the settings noise.*, which ask for weights that are {meant}"
