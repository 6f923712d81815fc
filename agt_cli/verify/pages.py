"""What a run says of its certificates, its audit and its noise, compared field by field with its
other files.

report.md is held by its hash in the manifest alone: its sentences are compared with nothing.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from agt import sentences
from agt.certificates.box import Certificates
from agt.store.reading import MAX_TEXT_BYTES, Broken
from agt_cli.command_settings.on_run import LINES
from agt_cli.releasing.noise import MECHANISM, meant_guarantee
from agt_cli.report.certification_md import table_metrics
from agt_cli.report.findings import AUDIT_FILE, read_audit
from agt_cli.report.sections_md import counted_edits, guarantee
from agt_cli.verify.environment import compare_spent
from agt_cli.verify.folders import (
    SAME,
    Record,
    check_not_better,
    check_version,
    first_difference,
    mismatch,
    spent_has_fields,
)

CLAIM_FILE, WEIGHTS_FILE = "claim.json", "released_weights.json"
LABEL_FILES = ("labels.csv", "labels.parquet")
INTERVALS_BY_QUERY = "tables/intervals_by_query.csv"
DATA_KEYS = ("dataset", "data_digest", "features_digest")


def check_descent(record: Record, trained: Record | None) -> None:
    """What is made from a training run has conditions that did not get better on the way."""
    if trained is not None and trained is not record:
        check_not_better(record, trained.conditions, "the training run")


def check_data(record: Record, trained: Record | None) -> None:
    """What is made from a training run has its data."""
    if trained is not None and trained.command == "train":
        then, now = (
            {key: each.environment.get(key) for key in DATA_KEYS} for each in (record, trained)
        )
        if key := next((key for key in DATA_KEYS if then[key] != now[key]), None):
            here = then[key]
            there = now[key]
            raise Broken(
                f"the entry '{key}' is {here} in env.json, but {there} in env.json of the training "
                "run"
            )


def by_lines(record: Record) -> bool:
    """Whether questions came line by line: how many there would be was not fixed before the
    first was drawn.
    """
    return str(record.config.get("inputs")) == str(LINES)


def check_certified(record: Record, trained: Record | None) -> str:
    """Check that metrics.json and the table of certified counts match the stable distances.

    Of boxes, whose bounds may have gaps, the table may count more than the distances show.

    Raises:
        Broken: they do not match.
    """
    if record.holds("tables/intervals.csv"):
        return _check_intervals(record)
    table = _certified_table(record)
    content = record.read("certificates.parquet")
    words = ["label", "prediction"]
    try:
        file = open_parquet(content, words, record.metrics["n_queries"], 64)
        rows = file.read(["stable_distance", *words]).to_pandas()
        some_deferred = "answer" in file.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        raise Broken(f"certificates.parquet is not a valid parquet file ({error})") from None
    stable = rows["stable_distance"].to_numpy(np.int64)
    record.check_metrics(
        "certificates.parquet",
        stable_distance_mean=float(stable.mean()),
        stable_distance_median=float(np.median(stable)),
    )
    labels = None
    if "nominal_accuracy" in table and not some_deferred:
        labels = rows["label"].to_numpy()
    ks = [int(k) for k in table["k"]]
    certified: Any = (stable >= k for k in ks)  # a row at a time: a table may have many
    prediction = rows["prediction"].to_numpy()
    derived = Certificates(tuple(ks), record.metrics["relation"], prediction, certified)
    model = None if trained is None else trained.rebuilt_model
    exact = model is not None and model.problem.settings.certificate.covers_every_k
    for row, recorded in zip(derived.table(labels), table.to_dict("records"), strict=True):
        difference = _certified_difference(row, recorded, exact) if row["k"] else ""
        if difference:
            k = row["k"]
            at_k = f"at k = {k}, {difference}"
            raise mismatch("tables/certified.csv", "certificates.parquet", at_k)
    return (
        "tables/certified.csv and metrics.json match the stable distances in certificates.parquet"
    )


def _certified_difference(row: Mapping[str, Any], recorded: Mapping[Any, Any], exact: bool) -> str:
    """Return how a row of certified counts differs from the recorded one; empty: it does not.

    Args:
        row: as the stable distances make it.
        recorded: as the table has it.
        exact: bounds have no gaps, so both must be equal; False: the table may count more.
    """
    fraction = recorded["certified_fraction"]
    least = row["certified_fraction"]
    if fraction < least - SAME:
        return (
            f"certified_fraction is recorded as {fraction!r}, but should be at least {least!r} "
            "according to the stable distances"
        )
    if not exact:
        return ""
    return first_difference({name: recorded[name] for name in row}, row)


def _check_listed_intervals(record: Record, rows: pd.DataFrame) -> None:
    """Raise Broken unless the table with the interval of each query is what the parquet has.

    Args:
        record: the certification.
        rows: of its certificates.parquet.
    """
    expected = rows.to_csv(index=False, lineterminator="\n").encode()
    if record.read(INTERVALS_BY_QUERY, MAX_TEXT_BYTES) != expected:
        raise Broken(
            f"{INTERVALS_BY_QUERY} does not match certificates.parquet, so one of these files was "
            "changed"
        )


def _check_intervals(record: Record) -> str:
    """Intervals contain their answers and nest; widths are those of the table and metrics.json.

    Raises:
        Broken: a file is none that agt writes, or contradicts another.
    """
    table = pd.read_csv(BytesIO(record.read("tables/intervals.csv", MAX_TEXT_BYTES)))
    content = record.read("certificates.parquet")
    try:
        rows = open_parquet(content, [], record.metrics["n_queries"], 64).read().to_pandas()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise Broken(f"certificates.parquet is not a valid parquet file ({error})") from None
    lower = upper = rows["prediction"].to_numpy()
    for row in table.to_dict("records"):
        k = int(row["k"])
        if k:
            inner_lower, inner_upper = lower, upper
            lower, upper = (rows[f"{end}_k{k}"].to_numpy() for end in ("lower", "upper"))
            if (lower > inner_lower).any() or (upper < inner_upper).any():
                raise Broken(
                    f"certificates.parquet: an interval at k = {k} does not contain that of a "
                    "smaller k, so the file was changed"
                )
        width = upper - lower
        made = {
            "width_median": float(np.median(width)),
            "width_mean": float(width.mean()),
            "width_largest": float(width.max()),
        }
        if difference := first_difference({name: row[name] for name in made}, made):
            raise Broken(
                f"tables/intervals.csv does not match certificates.parquet at k = {k}, so one of "
                f"these files was changed: {difference}"
            )
        record.check_metrics("tables/intervals.csv", **{f"width_median_k{k}": made["width_median"]})
    if record.holds(INTERVALS_BY_QUERY):
        _check_listed_intervals(record, rows)
    return "tables/intervals.csv and metrics.json match the intervals in certificates.parquet"


def _certified_table(record: Record) -> pd.DataFrame:
    """A certification's table. Raises Broken: metrics.json says something else."""
    content = record.read("tables/certified.csv", MAX_TEXT_BYTES)
    table = pd.read_csv(BytesIO(content))
    record.check_metrics("tables/certified.csv", **table_metrics(table))
    return table


def open_parquet(content: bytes, words: list[str], count: object, dense: int) -> pq.ParquetFile:
    """A table of ``count`` rows. Args: words: columns of few words; dense: rows that a byte of the
    file may hold, at most.

    Raises:
        ValueError: it is none that agt writes, or unpacks to more.
    """
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=words)
    heads, rows = file.metadata, file.metadata.num_rows
    columns = (
        heads.row_group(at).column(c)
        for at in range(heads.num_row_groups)
        for c in range(heads.num_columns)
    )
    packings = {column.compression for column in columns} - {"SNAPPY", "UNCOMPRESSED"}
    if rows != count:
        raise ValueError(f"the parquet file has {rows} rows, but metrics.json counts {count}")
    if packings:
        compression = packings.pop()
        raise ValueError(
            f"the parquet file is compressed with {compression}, but agt writes parquet files "
            "only with SNAPPY or without compression, so agt did not write this file"
        )
    size = len(content)
    if rows > dense * size:
        raise ValueError(
            f"the parquet file has {rows} rows in {size} bytes, but agt cannot write so many "
            "rows into so few bytes"
        )
    return file


def check_audit(record: Record, trained: Record | None) -> tuple[str, ...]:
    """An audit against its own record, and the state of the run that it names; returns what it
    found, a line each.
    """
    with record.findings.looking(AUDIT_FILE):
        audit = read_audit(record.read(AUDIT_FILE))
        named = record.environment.get("trained_digest")
        check_version(audit.by, AUDIT_FILE, record)
        if audit.kind != (kind := record.environment.get("kind", audit.kind)):
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
        record.findings.ok(
            AUDIT_FILE,
            f"the audit's findings (format {audit.schema}) do not contradict each other",
        )
        return tuple(
            f"{finding.subject}: {finding.outcome}: {finding.meaning}" for finding in audit.findings
        )
    return ()


def certified(record: Record, trained: Record | None) -> tuple[str, ...]:
    """What certificates of a training run are about, and whether a guarantee may rest on them."""
    if trained is None or trained.relation is None or not trained.conditions:
        return ()
    edits = counted_edits(trained.relation)
    relation = trained.relation.name
    return f"k is the number of {edits} (relation={relation})", guarantee(trained.conditions)


def check_noise(record: Record, trained: Record | None) -> str | None:
    """What a training's noise gives away is what its settings ask for."""
    if not record.spent:
        return None
    noise = record.config["noise"]
    guarantee = meant_guarantee(float(noise["epsilon"]), float(noise["delta"]))
    derived: dict[str, object] = {"simulated": noise["seed"] is not None}
    derived |= {"what": "weights", "mechanism": MECHANISM, "queries": 0}
    if spent_has_fields(record):
        derived |= {"guarantee": guarantee, "totals": []}
    compare_spent(record, derived, "the settings noise.*")
    meant = sentences.guarantee(guarantee)
    return f"spent.json matches the settings noise.*, which ask for weights that are {meant}"
