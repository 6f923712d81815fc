"""What a run says of itself in words and tables, made again from its other files: report.md, certificates, audits.

report.md is a function of all that a record says. Words are those of one version of agt.
"""

import re
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from agt import __version__
from agt.certificates.box import Certificates
from agt.mechanisms.claims import read_claim
from agt.store import MAX_TEXT_BYTES, Broken
from agt_cli.releasing.noise import REDRAWN, noise_words
from agt_cli.report.findings import AUDIT_FILE, read_audit
from agt_cli.report.markdown import bullets, capital, document, plain, report_page, sections, standings
from agt_cli.report.release_md import PUBLISHED, publish_headline, publish_section, setting_section
from agt_cli.report.report_md import (
    ball,
    conditions_section,
    counts_section,
    guarantee,
    headline,
    metrics_table,
    results_section,
    table_metrics,
)
from agt_cli.runs.queries import LINES
from agt_cli.verify.folders import SAME, Record, check_not_better, first_difference

CLAIM_FILE, WEIGHTS_FILE = "claim.json", "released_weights.json"
LABEL_FILES = ("labels.csv", "labels.parquet")
DATA_KEYS = ("dataset", "data_digest", "features_digest")
MAX_PAGE_BYTES = 2**20
TITLES = {  # of report.md, by command
    "train": (
        *("What k counts", "How good it is, and for whom", "For the data owner", "The noisy weights"),
        *("Removing records later", "Can a privacy guarantee rest on this?", "Every number", "Setting", "Next"),
    ),
    "certify": (
        *("What k counts", "Results", "How good it is, and for whom", "Figures", "Can a privacy guarantee rest on this?"),
        *("Least stable records", "Next", "Setting of the training run"),
        "For the data owner only: queries outside the public ranges (clipped to them) and lists (counted as other)",
    ),
    "plan": (
        *("Accuracy by total budget and number of queries", "How good it is, and for whom"),
        *("Figures", "Can a privacy guarantee rest on this?", "Setting"),
    ),
    "predict": ("What is guaranteed", "What may be published", "Setting"),
    "tune": ("What is guaranteed", "What may be published", "Setting"),
    "measure": ("What is guaranteed", "What may be published", "Setting"),
}
_BESIDE_CLAIM = re.compile(  # what a release says of its files and counts, and of earlier attempts
    r"- (release: .+ \(digest sha256:[0-9a-f]{64}\): it may be published, and answers without this run$"
    r"|no folder release: |answered \d|[\d.e-]+ of the queries are certified up to |weights released earlier "
    r"|an earlier attempt |\d+ labels were paid for )"
)
_OF_TUNING = re.compile(r"- (chosen|experiment|candidate): ")
OLDER = "written by agt {}, and this is {}: their words may differ"


def check_descent(record: Record, trained: Record | None) -> None:
    """What is made from a training run has conditions that did not get better on the way."""
    if trained is not None and trained is not record:
        check_not_better(record, trained.conditions, "in the training run that it comes from")


def check_data(record: Record, trained: Record | None) -> None:
    """What is made from a training run has its data."""
    if trained is not None and trained.command == "train":
        then, now = ({key: each.environment.get(key) for key in DATA_KEYS} for each in (record, trained))
        if key := next((key for key in DATA_KEYS if then[key] != now[key]), None):
            raise Broken(f"env.json says {key} = {then[key]}, and the training run {now[key]}")


def check_page(record: Record, trained: Record | None) -> str | None:
    """report.md says what the other files do, and report.html what report.md does."""
    if not record.holds("report.md"):
        return None
    if (version := record.environment.get("agt")) != __version__:
        record.findings.unchecked("report", OLDER.format(version, __version__))
        return None
    text, conditions = record.read("report.md", MAX_PAGE_BYTES).decode(), record.conditions
    there, made = sections(text), sections(document(*_blocks(record, trained, text)))
    for title, body in made.items():
        if title in there and not _is_section(title, there[title], body, record):
            raise Broken(f"report.md says something else below '{title}' than the record does")
    titles = {f"## {title}" for title in TITLES.get(record.command, ())}
    if titles and (strange := there.keys() - titles):
        raise Broken(f"report.md has a section that agt {record.command} does not write: {strange.pop()}")
    first = _headline(record, trained)
    title, _, rest = text.partition("\n\n")
    ends = rest[len(first) :][:1] in ("", "\n") or not first or record.holds(AUDIT_FILE)  # an audit's line goes on
    if not (re.fullmatch(r"# .+", title) and rest.startswith(first) and ends):
        raise Broken("report.md begins with something else than the record does")
    if conditions and standings(conditions) not in text:
        raise Broken("report.md says otherwise than conditions.json how each condition stands")
    page = report_page(text, lambda name: record.read(name) if record.holds(name) else None)
    if record.holds("report.html") and page.encode() != record.read("report.html"):
        raise Broken("report.html is not report.md")
    compared = ["its first lines"] * bool(first) + ["how conditions stand"] * bool(conditions)
    compared += [title.removeprefix("## ") for title in there if title in made]
    left = [title.removeprefix("## ") for title in there if title not in made]
    return f"as other files say: {', '.join(compared)}; not compared: {', '.join(['title', 'sentences between', *left])}"


def _blocks(record: Record, trained: Record | None, text: str) -> list[str]:
    """The sections of report.md that the other files make; ``text``: all of it."""
    blocks = conditions_section(record.conditions) if record.conditions else []
    relation, model = (record if trained is None else trained).relation, None if trained is None else trained.rebuilt_model
    blocks += counts_section(relation) if relation else []
    if record.command == "train":
        before = {name: value for name, value in record.metrics.items() if name != "noise_proved"}  # which came after it
        blocks += ["## Every number", metrics_table(before)]
        if model is not None:
            settings, noise = model.problem.settings, model.noise
            words = [*model.words, *(noise_words(settings, noise, model.conditions, ()) if noise else [])]
            title = "## Removing records later" if settings.certificate.removable else "## The noisy weights"
            blocks += [title, bullets(words)] if words else []
    if record.command == "certify":
        noisy = REDRAWN in text if model is None else model.problem.settings.noise is not None
        blocks += results_section(_certified_table(record), REDRAWN if noisy else "")
    if record.holds(CLAIM_FILE):
        blocks += ["## What is guaranteed", bullets(read_claim(record.read(CLAIM_FILE, MAX_TEXT_BYTES)).words)]
    if _releases(record):
        blocks += publish_section(_publishable(record))
    return [*blocks, "## Setting", setting_section(record.config)]


def _headline(record: Record, trained: Record | None) -> str:
    """What a page begins with; empty: nothing that is known here, or its training run is away."""
    if _releases(record):
        return publish_headline(_publishable(record))
    if record.holds(AUDIT_FILE):
        return f"**{plain(capital(read_audit(record.read(AUDIT_FILE)).verdict))}.**"
    if record.command not in ("train", "certify") or trained is None or trained.relation is None:
        return ""
    content = record.read("tables/quality.csv", MAX_TEXT_BYTES)
    (row, *_) = pd.read_csv(BytesIO(content)).to_dict("records")
    numbers = {str(name): value for name, value in row.items()}
    return document(*headline(numbers, record.metrics, trained.metrics["n_train"], trained.relation)).strip()


def _is_section(title: str, text: str, derived: str, record: Record) -> bool:
    """Whether a section of report.md is what other files make it, lines apart that no file has."""
    if title == "## What is guaranteed" and not by_lines(record):
        before, found, after = text.partition(derived)
        rest = (line for line in (*before.splitlines(), *after.splitlines()) if line)
        beside = [_BESIDE_CLAIM, *([_OF_TUNING] if record.command == "tune" else [])]
        return bool(found) and all(any(pattern.match(line) for pattern in beside) for line in rest)
    loose = ("## What is guaranteed", "## The noisy weights", "## Removing records later")
    waiting = title == "## Results" and "waiting" in record.metrics  # how many, and since when, is in the training run
    return derived in text if title in loose or waiting else derived == text


def _releases(record: Record) -> bool:
    """Whether its page says what may be published."""
    return record.command == "predict" or record.holds(CLAIM_FILE)


def _publishable(record: Record) -> str | None:
    """What a release's page says may be published; None: nothing."""
    if record.command in PUBLISHED:
        return None if record.metrics.get("simulated") else PUBLISHED[record.command]
    labels = next((name for name in LABEL_FILES if record.holds(name)), None)
    if record.environment.get("release"):
        return f"`{labels}`"
    if not record.metrics.get("proved"):
        return None
    if labels is None:
        return "The labels on standard output" if by_lines(record) else "That number"
    more = ", `released_weights.safetensors` and the folder `release`" if record.holds(WEIGHTS_FILE) else ""
    return f"`{labels}`{more}"


def by_lines(record: Record) -> bool:
    """Whether questions came line by line: how many there would be was not fixed before the first was drawn."""
    return str(record.config.get("inputs")) == str(LINES)


def check_certified(record: Record, trained: Record | None) -> str:
    """Stable distances are those that metrics.json and the table count; of boxes, which may have gaps, at most those."""
    table = _certified_table(record)
    content, words = record.read("certificates.parquet"), ["label", "prediction"]
    try:
        file = open_parquet(content, words, record.metrics["n_queries"], 64)
        rows, deferred = file.read(["stable_distance", *words]).to_pandas(), "answer" in file.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        raise Broken(f"certificates.parquet is no proper parquet ({error})") from None
    stable, ks = rows["stable_distance"].to_numpy(np.int64), [int(k) for k in table["k"]]
    mean, median = float(stable.mean()), float(np.median(stable))
    record.check_metrics("certificates.parquet", stable_distance_mean=mean, stable_distance_median=median)
    labels = rows["label"].to_numpy() if "nominal_accuracy" in table and not deferred else None
    certified: Any = (stable >= k for k in ks)  # a row at a time: a table may have many
    made = Certificates(tuple(ks), record.metrics["relation"], rows["prediction"].to_numpy(), certified)
    model = None if trained is None else trained.rebuilt_model
    exact = model is not None and not model.problem.settings.certificate.boxes
    for row, then in zip(made.table(labels), table.to_dict("records"), strict=True):
        right = then["certified_fraction"] >= row["certified_fraction"] - SAME
        if row["k"] and (not right or (exact and first_difference({name: then[name] for name in row}, row))):
            raise Broken(f"tables/certified.csv is not what certificates.parquet makes it at k = {row['k']}")
    return "the table and metrics.json count the stable distances of certificates.parquet"


def _certified_table(record: Record) -> pd.DataFrame:
    """A certification's table. Raises Broken: metrics.json says something else."""
    content = record.read("tables/certified.csv", MAX_TEXT_BYTES)
    table = pd.read_csv(BytesIO(content))
    record.check_metrics("tables/certified.csv", **table_metrics(table))
    return table


def open_parquet(content: bytes, words: list[str], count: object, dense: int) -> pq.ParquetFile:
    """A table of ``count`` rows. Args: words: columns of few words; dense: rows that a byte of the file may hold, at most.

    Raises:
        ValueError: it is none that agt writes, or unpacks to more.
    """
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=words)
    heads, rows = file.metadata, file.metadata.num_rows
    columns = (heads.row_group(at).column(c) for at in range(heads.num_row_groups) for c in range(heads.num_columns))
    packed = any(column.compression not in ("SNAPPY", "UNCOMPRESSED") for column in columns)
    if rows != count or rows > dense * len(content) or packed:
        raise ValueError(
            f"{rows} rows in {len(content)} bytes, packed as agt does not, or not the {count} that were counted"
        )
    return file


def check_audit(record: Record, trained: Record | None) -> tuple[str, ...]:
    """An audit against its own record, and the state of the run that it names; returns what it found, a line each."""
    with record.findings.looking(AUDIT_FILE):
        audit = read_audit(record.read(AUDIT_FILE))
        named = record.environment.get("trained_digest")
        if audit.digest not in (None, named):
            raise Broken(f"{AUDIT_FILE} is about a run of {audit.digest}, and env.json names {named}")
        record.check_metrics(AUDIT_FILE, findings=len(audit.findings), violations=len(audit.violations))
        record.findings.ok(AUDIT_FILE, f"{audit.schema}: it does not contradict itself")
        return tuple(f"{finding.subject}: {finding.outcome}: {finding.meaning}" for finding in audit.findings)
    return ()


def certified(record: Record, trained: Record | None) -> tuple[str, ...]:
    """What certificates of a training run are about, and whether a guarantee may rest on them."""
    if trained is None or trained.relation is None or not trained.conditions:
        return ()
    return f"k counts {ball(trained.relation)} (relation {trained.relation.name})", guarantee(trained.conditions)


def check_noise(record: Record, trained: Record | None) -> str | None:
    """What a training's noise gives away is what its settings ask for."""
    if not record.spent:
        return None
    noise = record.config["noise"]
    words = f"({float(noise['epsilon']):g}, {float(noise['delta']):g})-differentially private"
    if (record.spent["guarantee"], record.spent["simulated"]) != (words, noise["seed"] is not None):
        raise Broken("spent.json is not what noise.* asks for")
    return f"the noise in training: {words}"
