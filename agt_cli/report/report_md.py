"""report.md: the parts that reports share, and that of a training run.

A certification's tables, metrics and report.

report.md of a choice of settings on public rows.

What is told of a model's quality: for the data owner alone.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.data.arrays import ROWS
from agt.data.dataset import Dataset
from agt.data.records import UNLABELLED, Records
from agt.facts import Standing
from agt.models.kind import BoundedQuantity, CertificateKind
from agt.models.model import Model
from agt.problem import Settings
from agt.relations import RELATIONS
from agt.settings import RelationConfig
from agt_cli.report.console import Console, show
from agt_cli.report.finished import Run
from agt_cli.report.markdown import Markdown, bullets, document, markdown_table, plain
from agt_cli.report.quality import Judged, Quality, RateEstimate, Subgroup, rate_words
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import setting_section


def ball(relation: RelationConfig) -> str:
    """What one k counts under a relation."""
    return RELATIONS[relation.name].ball_of(relation.unit_rows, relation.radius)


def within(relation: RelationConfig, k: int) -> str:
    """What lies within so many k: up to 20 records added or removed in all."""
    counted = re.sub(r"\bk\b", f"{k:,}", ball(relation))
    return RELATIONS[relation.name].neighbours(relation.unit_rows) if k == 1 else counted


def guarantee(conditions: Sequence[Condition]) -> str:
    """One sentence: can these certificates carry a privacy guarantee?"""
    failed = [condition for condition in conditions if not condition.held]
    if not failed:
        return f"{_standing(conditions)} through a release mechanism calibrated to the stable distance."
    return f"These certificates cannot carry a privacy guarantee: not held: {_names(failed)}."


def _names(conditions: Sequence[Condition]) -> str:
    return ", ".join(f"{condition.name} ({condition.letter})" for condition in conditions)


def unmet(conditions: Sequence[Condition]) -> list[str]:
    """Lines for the console: what a guarantee of privacy still needs, or why this run can have none."""
    failed = [condition for condition in conditions if not condition.held]
    if not failed:
        return []
    one_sided = [condition for condition in failed if condition.letter == "g"]
    if one_sided:  # whatever else is mended, the relation stays as it is
        return ["no private answer can rest on this run (certificates are true as they stand):", *map(_asked, one_sided)]
    return ["no private answer can rest on this run yet (certificates are true as they stand):", *map(_asked, failed)]


def _asked(condition: Condition) -> str:
    return f"  condition {condition.letter}: {condition.grounds.missing}"


def _standing(conditions: Sequence[Condition]) -> str:
    declared = [c for c in conditions if c.standing is Standing.DECLARED]
    if not declared:
        return "All conditions are proved here: these certificates can carry a privacy guarantee,"
    return (
        f"No condition fails; on what was declared, which nothing here can check, rests: {_names(declared)}; "
        "as far as that is true, these certificates can carry a privacy guarantee,"
    )


def headline(row: Mapping[str, Any], metrics: Mapping[str, Any], trained: int, relation: RelationConfig) -> list[str]:
    """The first lines of a page about a model: a sentence, and the numbers that it rests on.

    Args:
        row: of all records, in tables/quality.csv.
        metrics: of the page's record: a verdict on a model that is of no use, and where the grid ends.
        trained: training records.
        relation: says what one k counts.
    """
    known = {name: value for name, value in row.items() if not pd.isna(value)}

    def estimate(name: str) -> RateEstimate:
        return RateEstimate(known[name], known[name + "_low"], known[name + "_high"])

    facts, lead = list[str](), plain(metrics.get("verdict", metrics.get("test_verdict", "")))
    if "accuracy_or_recall" in known:
        always = rate_words(known["majority"])
        facts.append(Markdown(f"accuracy {estimate('accuracy_or_recall')}; the same answer to all: {always}"))
    if shares := [name for name in known if re.fullmatch(r"certified_k\d+", name)]:
        name = max((name for name in shares if known[name] >= MOST), default=shares[0], key=shares.index)
        k = name.removeprefix("certified_k")
        lead = lead or f"{rate_words(known[name])} of the answers stay the same with {within(relation, int(k))}."
        if (right := f"certified_and_right_k{k}") in known:
            facts.append(Markdown(f"the same at k = {k} and right: {estimate(right)}"))
    if "stable_distance_median" in known:
        facts.append(half_stands(known["stable_distance_median"], trained, metrics.get("k_max"), relation))
    lead = lead or (facts.pop(0) if facts else "")
    return [f"**{lead}**" if lead else "", bullets(facts)]


def half_stands(distance: float, trained: int, most: int | None, relation: RelationConfig) -> str:
    """What a median of stable distances says; ``most``: the last k of the grid."""
    reach, end = math.floor(distance), " or more, where the grid ends" if distance == most else ""
    share = f"{reach / trained:.2%}" if relation.unit_rows == 1 else f"units of up to {relation.unit_rows}"
    return f"half of the answers stand up to k = {reach:,}{end} ({share} of the {trained:,} training records)"


def caution_words(training: Mapping[str, Any]) -> list[str]:
    """What the recipe's one knob would change; nothing where settings are not the recipe's."""
    if training.get("chosen_on") != "recipe":
        return []
    now = float(training.get("caution", 1))
    return [
        f"training.caution={now:g}: at {2 * now:g} stable distances are about twice as long and answers less accurate, at "
        f"{now / 2:g} the other way (docs/recipe.md)"
    ]


NOTES_WARNING = "How data and declaration fit. These sentences depend on the private data: they are not for publication."


def train_report(
    record: RunRecord,
    dataset: Dataset,
    relation: RelationConfig,
    certificate: CertificateKind,
    conditions: tuple[Condition, ...],
    quality: Quality,
    noise: Sequence[str] = (),
) -> str:
    """report.md of a training run.

    Args:
        quality: on the test records.
        noise: what may be said of weights that were trained with noise, and of later removals, a line each.
    """
    kind, how = _trained(record, dataset, relation, certificate)
    return document(
        f"# Training {kind}: {plain(dataset.name)}",
        *headline(_row(quality.whole), record.metrics, len(dataset.train), relation),
        how,
        *counts_section(relation),
        *quality_section(quality),
        *(("## For the data owner", NOTES_WARNING, dataset.notes) if dataset.notes else ()),
        *(("## Removing records later" if certificate.own_erasure else "## The noisy weights", noise) if noise else ()),
        *conditions_section(conditions),
        *next_section(f"certify run={record.place}"),
        "## Every number",
        metrics_table(record.metrics),
        "## Setting",
        setting_section(record.config),
    )


def next_section(*commands: str) -> list[str]:
    """What one may do after a command."""
    return ["## Next", "\n".join(f"    agt {command}" for command in commands)]


def metrics_table(metrics: Mapping[str, object]) -> str:
    rows = [(name, f"{value:,.6g}" if isinstance(value, float) else str(value)) for name, value in metrics.items()]
    return markdown_table(("metric", "value"), rows)


_TRAINED: dict[BoundedQuantity, tuple[str, str]] = {
    "each parameter": ("with bounds", "{on}, with bounds on the parameters for k up to {k_max}."),
    "vote counts": (
        "votes",
        "{on}, each in one of {members} shards, with a small model for each: {counted}. Every constant: `votes.json`.",
    ),
    "norm": (
        "a linear head",
        "{on}. One k moves the parameters by at most {moved_by_one_k:.4g} in norm, whatever the data: stable distances "
        "follow in closed form, for every k at once, and so does the noise that a release of the weights takes. Every "
        "constant: `stability.json`.",
    ),
}
"""What a certificate bounds -> (what was trained, how far a k reaches in it)."""


def _trained(
    record: RunRecord, dataset: Dataset, relation: RelationConfig, certificate: CertificateKind
) -> tuple[str, str]:
    """(what was trained, how far a k reaches in it)."""
    counted = (
        "the labels that must change before a member answers otherwise are counted exactly, and from these the vote's"
        if RELATIONS[relation.name].counts_label_flips
        else "one k changes the votes of the members that it reaches, and stable distances are counted from the votes"
    )
    kind, how = _TRAINED[certificate.bounded]
    on = f"Trained on {len(dataset.train):,} records"
    return kind, how.format(on=on, counted=counted, **record.metrics)


def counts_section(relation: RelationConfig) -> list[str]:
    counts = f"Neighbour relation `{relation.name}`: k counts **{ball(relation)}**."
    return ["## What k counts", " ".join((counts, *RELATIONS[relation.name].remarks))]


def figures_section(dataset: str, captions: Mapping[str, str], folder: str = "figures") -> list[str]:
    """Each figure of a record with its caption.

    Args:
        captions: figure name -> what it shows.
        folder: where they are, from the page.
    """
    words = {name: plain(text) for name, text in captions.items()}
    return [f"![{text}]({folder}/{name}.png)\n\n*{plain(dataset)}. {text}*" for name, text in words.items()]


def conditions_section(conditions: Sequence[Condition]) -> list[str]:
    """Whether a guarantee may rest on a run, and each condition."""
    rows = [(c.name, c.letter, Markdown(f"**{c.standing}**"), c.why) for c in conditions]
    return [
        "## Can a privacy guarantee rest on this?",
        guarantee(conditions),
        markdown_table(("asks", "", "stands", "why"), rows),
    ]


HANDFUL = (0, 1, 5, 10, 20, 50, 100, 150, 200, 500, 1000)
LEAST_STABLE = 20
OWED = "abstains: owes an answer after the next update"
OWNER_ONLY = (
    "For the data owner only: stable distances, logits, boxes and which predictions are certified depend on the private "
    "data. Publishing them, or answering only certified queries, is not private."
)


@dataclass(frozen=True)
class Subject:
    """What a table or figure is about.

    Attributes:
        dataset: its name; a synthetic one says so.
        classes: the names of its classes.
        queries: which queries, in words.
        relation: the neighbour relation.
        certificates: of the queries.
        labelled: every query has a label, so accuracies are known.
        conditions: a-g, held or not.
        caveat: what else certificates of this run compare with; empty: nothing.
    """

    dataset: str
    classes: tuple[str, ...]
    queries: str
    relation: RelationConfig
    certificates: Certificates
    labelled: bool
    conditions: tuple[Condition, ...]
    caveat: str = ""

    @property
    def ball(self) -> str:
        """What one k counts, in words."""
        return ball(self.relation)

    @property
    def about(self) -> str:
        """What a figure is of, in one line."""
        return f"{self.dataset} · {self.queries}"

    @property
    def guarantee(self) -> str:
        """Whether a privacy guarantee can rest on these certificates."""
        return guarantee(self.conditions)


def write_tables(
    record: RunRecord,
    dataset: Dataset,
    queries: Records,
    certificates: Certificates,
    table: pd.DataFrame,
    judged: Judged,
    answered: np.ndarray | None = None,
) -> pd.DataFrame:
    """Write every table; returns the least stable records.

    Args:
        answered: [n] bool, the queries that are answered while requests to erase wait; None: none waits, and all are.
    """
    names = np.array([*dataset.classes, ""], dtype=object)  # UNLABELLED (-1) is the last: no label
    stable, score = certificates.stable_distance, judged.score
    numbers = np.arange(len(queries)) if queries.rows is None else queries.rows
    prediction = certificates.prediction if answered is None else np.where(answered, certificates.prediction, UNLABELLED)
    score = score if score is None or answered is None else np.where(answered, score, np.nan)

    def rows(places: slice | np.ndarray) -> pd.DataFrame:
        owed = {} if answered is None else {"answer": np.where(answered[places], "given", OWED).astype(object)}
        return pd.DataFrame(
            {
                "row": numbers[places],
                "record_id": queries.ids[places].astype(object),
                "label": names[queries.labels[places]],
                "prediction": names[prediction[places]],
                "stable_distance": stable[places],
                "score": None if score is None else score[places],
                **owed,
            }
        )

    record.parquet("certificates", (rows(slice(start, start + ROWS)) for start in range(0, len(queries), ROWS)))
    record.table("certified", table)
    least = rows(np.argsort(stable, kind="stable")[:LEAST_STABLE])
    record.table("least_stable", least)
    return least


def certified_metrics(table: pd.DataFrame, certificates: Certificates) -> dict[str, float | int | str]:
    """Flat numbers: stable distances in brief, and each column of the table at a handful of k."""
    stable = certificates.stable_distance
    metrics: dict[str, float | int | str] = {
        "stable_distance_median": float(np.median(stable)),
        "stable_distance_mean": float(stable.mean()),
        "relation": certificates.relation,
        "k_max": certificates.ks[-1],
    }
    return metrics | table_metrics(table)


def table_metrics(table: pd.DataFrame) -> dict[str, float]:
    """Each column of a certification's table at a handful of k."""
    metrics = {"accuracy": float(table["nominal_accuracy"].iloc[0])} if "nominal_accuracy" in table else {}
    for _, row in handful(table).iterrows():
        for name in table.columns.intersection(["certified_fraction", "worst_accuracy", "best_accuracy"]):
            metrics[f"{name}_k{int(row['k'])}"] = float(row[name])
    return metrics


def handful(table: pd.DataFrame) -> pd.DataFrame:
    """The rows worth printing: round values of k, the first and the last."""
    ends = [table["k"].min(), table["k"].max()]
    return table[table["k"].isin([*HANDFUL, *ends])]


def certify_report(
    subject: Subject,
    table: pd.DataFrame,
    least: pd.DataFrame,
    captions: Mapping[str, str],
    trained: Run,
    quality: Quality,
    sections: Sequence[str],
    record: RunRecord,
) -> str:
    """report.md of a certification run.

    Args:
        table: per k, as in tables/certified.csv.
        least: the least stable records.
        captions: figure name -> what it shows.
        trained: the run that was certified.
        quality: on the queries.
        sections: on the queries that wait, or do not fit.
    """
    first, *more = figures_section(subject.dataset, captions)
    away = os.path.relpath(trained.folder, record.folder)
    return document(
        f"# Certified predictions: {plain(subject.dataset)}",
        *headline(_row(quality.whole), record.metrics, int(trained.metrics["n_train"]), subject.relation),
        first,
        subject.guarantee,
        f"{len(subject.certificates.prediction):,} {plain(subject.queries)}, certified against "
        f"[{plain(trained.folder.name)}](<{away}/report.html>). {OWNER_ONLY}",
        *counts_section(subject.relation),
        *results_section(table, subject.caveat),
        *quality_section(quality),
        *sections,
        *(["## Figures", *more] if more else []),
        *conditions_section(subject.conditions),
        *next_section(f"plan run={trained.folder}", f"predict run={trained.folder} mechanism=NAME total.eps=NUMBER"),
        "## Least stable records",
        "For the data owner only, as everything here. Every query: `certificates.parquet`; `row`: its number in its file, "
        "from 0.",
        markdown_table(tuple(least.columns), [tuple(map(str, row)) for row in least.itertuples(index=False)]),
        "## Setting of the training run",
        setting_section(trained.config),
    )


def results_section(table: pd.DataFrame, caveat: str) -> list[str]:
    """A certification's table, and how to read it. Args: caveat: what else certificates compare with; empty: nothing."""
    return [
        "## Results",
        results_table(table),
        "A query is certified at k if every dataset that k counts trains a model that gives it the same label. Its "
        "stable distance is the largest k up to which it is certified throughout. Worst-case accuracy: certified and "
        "right; best-case accuracy: all but certified and wrong. Every k: `tables/certified.csv`.",
        caveat and f"**With noise in training, {caveat}.**",
    ]


def results_table(table: pd.DataFrame) -> str:
    """A certification's table, at a round k now and then where it is long."""
    rows = [(str(int(row["k"])), *(rate_words(row[name]) for name in table.columns[1:])) for _, row in table.iterrows()]
    few = rows if len(rows) <= 24 else [row for row in rows if int(row[0]) in _round_ks(table)]
    return markdown_table(tuple(name.replace("_", " ") for name in table.columns), few)


def _round_ks(table: pd.DataFrame) -> set[int]:
    ks = [int(k) for k in table["k"]]
    step = max(1, ks[-1] // 10)
    return {ks[0], 1, 2, 5, ks[-1], *range(0, ks[-1], step)}


def tune_report(table: pd.DataFrame, at: int, rule: str, rows: str, path: Path, record: RunRecord) -> str:
    """report.md of a choice.

    Args:
        table: a row for each candidate: settings, the mean of each score, and its standard error (``_se``).
        at: the row that was chosen.
        rule: how, in words.
        rows: the public rows, in words.
        path: of the experiment file.
    """
    names = [name for name in table.columns if f"{name}_se" in table.columns]
    cells = [table["settings"], *(table[name].map(show) + " ± " + table[f"{name}_se"].map(show) for name in names)]
    lines = [[f"**{text}**" if i == at else text for text in row] for i, row in enumerate(zip(*cells, strict=True))]
    return document(
        f"# Settings chosen on {rows}",
        f"Chosen: {rule}: **{table['settings'][at]}**, written to `{path}`. No private record took part: what is below "
        "depends on rows declared public, and on constants. Whoever trains with that file declares the same.",
        markdown_table(("settings", *names), lines),
        "Means over the folds ± standard errors. The chosen row is a little flattered: it is the best of several.",
        "## Setting",
        setting_section(record.config),
    )


MOST = 0.9  # of the answers: a page's first sentence is about the farthest k at which so many are certified
KS = (1, 5, 20, 100)  # certified shares are told at these
SHOWN = 20  # rows on the console


def judge(
    model: Model,
    queries: Records,
    records: str,
    labels: np.ndarray | None,
    prediction: np.ndarray,
    distance: np.ndarray | None,
) -> Judged:
    """What a model says of some records.

    Args:
        records: what they are, in words.
        labels: [n]; None: not known.
        prediction: [n] class indices.
        distance: [n] stable distances; None: not certified.
    """
    classes, scores = model.problem.dataset.classes, model.margins(queries.features)
    return Judged(classes, records, labels, prediction, scores, distance, queries.groups, _told(model.problem.settings))


def _told(settings: Settings) -> tuple[int, ...]:
    """At which k certified shares are told: round ones, of the grid and with its end where that bounds what is known."""
    ks = settings.kgrid.ks
    if settings.ensemble.members > 1 or settings.certificate.covers_every_k:
        return KS
    return tuple(k for k in ks if k in KS or (k == ks[-1] and k < KS[-1]))


def write_quality(record: RunRecord, judged: Judged, prefix: str = "") -> Quality:
    """tables/quality.csv and the metrics.

    Args:
        prefix: of the metrics' names.
    """
    quality = Quality.of(judged)
    record.table("quality", pd.DataFrame([_row(group) for group in quality.groups]))
    record.add_metrics(**quality_metrics(quality, prefix))
    return quality


def _row(group: Subgroup) -> dict[str, object]:
    """Each share with the ends of its interval."""
    shares = {
        "majority": group.majority,
        "accuracy_or_recall": group.accuracy,
        "precision": group.precision,
        "auc": group.auc,
    }
    shares |= {f"certified_k{k}": estimate for k, estimate in group.certified.items()}
    shares |= {f"certified_and_right_k{k}": estimate for k, estimate in group.held.items()}
    row: dict[str, object] = {"column": group.column, "value": group.value, "class": group.label, "records": group.records}
    for name, estimate in shares.items():
        row |= {name + end: estimate and getattr(estimate, end[1:] or "value") for end in ("", "_low", "_high")}
    return row | {"stable_distance_median": group.distance}


def quality_metrics(quality: Quality, prefix: str = "") -> dict[str, float | int | str]:
    """Flat numbers; what is not known is left out."""
    whole = quality.whole
    metrics: dict[str, float | int | str] = {}
    for name, estimate in (("accuracy", whole.accuracy), ("auc", whole.auc)):
        if estimate is not None:
            ends = {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            metrics |= {name: estimate.value, **ends}
    if whole.majority is not None and quality.balanced is not None:
        metrics |= {"majority_rate": whole.majority.value, "balanced_accuracy": quality.balanced}
    metrics |= {"constant": int(quality.constant)} | ({"verdict": quality.verdict} if quality.verdict else {})
    metrics |= {f"certified_fraction_k{k}": estimate.value for k, estimate in whole.certified.items()}
    return {prefix + name: value for name, value in metrics.items()}


def say_quality(console: Console, quality: Quality) -> None:
    """The table, for which the verdict is said before anything else."""
    groups = [group for group in quality.groups if group.column is None or group.label is None]
    columns, rows = _cells(quality, groups, console_columns=True)
    whole, always = quality.whole, f"; always answering '{quality.majority}': " if quality.majority else ""
    title = f"{quality.records}: accuracy {whole.accuracy}{always}" if whole.accuracy else f"{quality.records}, unlabelled"
    title += rate_words(whole.majority.value) if whole.majority else ""
    console.table(title, [column.replace(" ", "\n", 1) for column in columns], rows[:SHOWN])
    if len(rows) > SHOWN:
        console.say(f"{len(rows) - SHOWN} more groups: tables/quality.csv")


def quality_section(quality: Quality) -> list[str]:
    columns, rows = _cells(quality, quality.groups)
    of_all = f" (of all '{plain(quality.majority)}')" if quality.majority else ""
    return [
        "## How good it is, and for whom",
        "For the data owner only. Intervals cover the true value in 95 of 100 samples, if records are drawn one by one: "
        "shares by Clopper and Pearson, areas under the ROC curve by DeLong. *Majority*: what always answering a group's "
        f"most frequent class{of_all} would reach. The accuracy on the records of a class is its recall. A certified "
        "prediction may be a wrong one; with the shares that are certified and right: `tables/quality.csv`.",
        markdown_table(columns, rows),
    ]


def _cells(
    quality: Quality, groups: Sequence[Subgroup], console_columns: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(the names of the columns, the cells of each group)."""
    ks = list(quality.whole.certified)
    ks = [k for k in ks if k == 20] or ks[-1:] if console_columns else ks
    shares: list[tuple[str, list[RateEstimate | None]]] = [
        ("accuracy, recall", [group.accuracy for group in groups]),
        ("AUC", [group.auc for group in groups]),
        *((f"certified k = {k}", [group.certified.get(k) for group in groups]) for k in ks),
    ]
    known = [(name, cells) for name, cells in shares if any(cells)]
    majority = ["-" if group.majority is None else rate_words(group.majority.value) for group in groups]
    rows = []
    for at, group in enumerate(groups):
        # Brackets are no link, and an interval stays in one line.
        cells = [Markdown(str(e).replace(", ", ",\u00a0")) if (e := estimates[at]) else "-" for _, estimates in known]
        distance = [] if group.distance is None else [f"{group.distance:g}"]
        constant = [majority[at]] if quality.majority else []
        rows.append((group.name, f"{group.records:,}", *constant, *cells, *distance))
    distances = ("median distance",) if quality.whole.distance is not None else ()
    always = ("majority",) if quality.majority else ()
    return ("", "records", *always, *(name for name, _ in known), *distances), rows
