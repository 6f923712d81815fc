"""Compare tables that repeat others of the same record, and the tables of a plan and of a start.

Tables of quality are checked in quality.py, those of certificates in pages.py.
"""

from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from itertools import product

import numpy as np
import pandas as pd

from agt.errors import ConfigError
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.planning import Budget, afford
from agt.mechanisms.weights_mechanism import weights_mechanisms
from agt.store.reading import MAX_TEXT_BYTES
from agt_cli.report.certification_md import LEAST_STABLE_ROWS
from agt_cli.report.quality import share_estimate
from agt_cli.report.record import csv_bytes
from agt_cli.verify.comparison import check_match, mismatch
from agt_cli.verify.folders import Record
from agt_cli.verify.pages import CERTIFICATES, CERTIFIED, INTERVALS, read_certificates

COMPARISON = "tables/comparison.csv"
LEAST_STABLE = "tables/least_stable.csv"
PLAN = "tables/plan.csv"
DISTANCES = "figures/stable_distances.csv"
DRAWN = {
    "figures/certified_fraction.csv": CERTIFIED,
    "figures/intervals.csv": INTERVALS,
    "figures/comparison.csv": COMPARISON,
    "figures/accuracy_by_queries.csv": PLAN,
}
"""Data of a figure -> the table whose first rows they are, or all rows."""
RENAMED = {"mechanism": "series", "expected_accuracy": "accuracy"}
"""Columns of plan.csv -> their names in accuracy_by_queries.csv."""


def read_texts(record: Record, name: str) -> pd.DataFrame:
    """Return a csv table of a record, whose cells are all text."""
    content = BytesIO(record.read(name, MAX_TEXT_BYTES))
    return pd.read_csv(content, dtype=str, keep_default_na=False)


def check_tables(record: Record, trained: Record | None) -> str | None:
    """Compare the tables of a record with what determines them.

    Args:
        record: any record.
        trained: the training run that it was made from, or itself; None: it was not found.

    Returns:
        A sentence that names the tables; None: there was nothing to compare.

    Raises:
        Broken: a table does not match.
    """
    before = set(record.compared_columns)
    for figure, table in DRAWN.items():
        if record.holds(figure) and record.holds(table):
            _compare_drawn(record, figure, table)
    if compare := BY_COMMAND.get(record.command):
        compare(record, trained)
    names = ", ".join(name for name in record.compared_columns if name not in before)
    return f"{names} match other files" if names else None


def _compare_drawn(record: Record, figure: str, table: str) -> None:
    """Compare the data of a figure with the table whose first rows they are."""
    drawn = read_texts(record, figure)
    whole = read_texts(record, table)
    if table == PLAN:
        whole = whole.rename(columns=RENAMED)
    columns = [str(name) for name in drawn.columns.intersection(whole.columns)]
    if not len(drawn) or not drawn[columns].equals(whole[columns].head(len(drawn))):
        raise mismatch(figure, table, "they have other rows")
    record.note_compared(figure, columns)


def _compare_certification(record: Record, trained: Record | None) -> None:
    """Compare the least stable answers, and how many have which distance, with all answers."""
    if not record.holds(LEAST_STABLE):
        return
    answers = read_certificates(record)
    stable = answers["stable_distance"].to_numpy()
    first = np.argsort(stable, kind="stable")[:LEAST_STABLE_ROWS]
    if record.read(LEAST_STABLE, MAX_TEXT_BYTES) != csv_bytes(answers.iloc[first]):
        raise mismatch(LEAST_STABLE, CERTIFICATES, "the least stable answers are others")
    record.note_compared(LEAST_STABLE, answers.columns)
    if not record.holds(DISTANCES) or "answer" in answers:
        return
    drawn = pd.read_csv(BytesIO(record.read(DISTANCES, MAX_TEXT_BYTES)))
    bins = [*drawn["stable_distance_from"], np.inf]
    is_right = np.ones(len(answers), dtype=bool)
    if "wrong" in drawn:
        is_right = (answers["label"] == answers["prediction"]).to_numpy()
    bars = {"right" if "wrong" in drawn else "queries": is_right, "wrong": ~is_right}
    for name in [name for name in bars if name in drawn]:
        counts, _ = np.histogram(stable[bars[name]], bins)
        check_match(DISTANCES, drawn[name].tolist(), CERTIFICATES, counts.tolist(), name)
    record.note_compared(DISTANCES, ("stable_distance_from", *bars))


def _compare_plan(record: Record, trained: Record | None) -> None:
    """Compare the budgets and guarantees of a plan with its settings.

    Expected scores follow from single answers, which the record does not have.
    """
    model = None if trained is None else trained.rebuilt_model
    if model is None:
        return
    config = record.config
    budgets = [
        Budget(float(eps), float(config["delta"]), int(queries))
        for eps in config["eps"]
        for queries in config["queries"]
    ]
    named = record.metrics["mechanisms"].split(", ")
    classes = model.problem.dataset.target.class_count or 0
    guarantees: dict[tuple[str, Budget], str] = {}
    for name, budget in product([*named, *weights_mechanisms()], budgets):
        with suppress(ConfigError):  # raised if no guarantee is within the budget
            guarantees[name, budget] = str(_guarantee(name, budget, classes))
    table = read_texts(record, PLAN)
    recorded = {}
    for row in table.to_dict("records"):
        budget = Budget(float(row["total_eps"]), float(row["total_delta"]), int(row["queries"]))
        recorded[row["mechanism"], budget] = row["each"]
    # A budget may be too small for the weights of this model.
    derived = {key: each for key, each in guarantees.items() if key[0] in named or key in recorded}
    if [*recorded.items()] != [*derived.items()] or len(recorded) != len(table):
        raise mismatch(PLAN, "config.yaml", "it has other budgets or guarantees")
    record.note_compared(PLAN, ("mechanism", "total_eps", "total_delta", "queries", "each"))


def _guarantee(name: str, budget: Budget, classes: int) -> Guarantee:
    """Return what a budget leaves a mechanism for one query, or for one release of weights.

    Args:
        name: the mechanism's name.
        budget: the total.
        classes: the number of classes; 0: answers are numbers.

    Raises:
        ConfigError: no guarantee is within the budget.
        KeyError: there is no such mechanism.
    """
    weights = weights_mechanisms()
    if name in weights:
        return weights[name].within(budget.eps, budget.delta).guarantee
    if not classes:
        return afford(LaplaceMean, budget, classes).guarantee
    return afford(MECHANISMS[name], budget, classes).guarantee


def _compare_start(record: Record, trained: Record | None) -> None:
    """Compare the intervals of accuracies, and the recommended way, with metrics.json."""
    table = pd.read_csv(BytesIO(record.read(PLAN, MAX_TEXT_BYTES)))
    ways = [*range(1, len(table) + 1)]
    recommended = [way == record.metrics["recommended"] for way in ways]
    check_match(PLAN, table["way"].tolist(), "its rows", ways, "way")
    check_match(PLAN, table["recommended"].tolist(), "metrics.json", recommended, "recommended")
    record.note_compared(PLAN, ("way", "recommended"))
    record.compared.add("recommended")
    compared = pd.read_csv(BytesIO(record.read(COMPARISON, MAX_TEXT_BYTES)))
    if "accuracy" not in compared:
        return
    rows = int(record.metrics["n_test"])
    for row in compared[compared["low"].notna()].to_dict("records"):
        derived = share_estimate(round(row["accuracy"] * rows), rows)
        columns = {"accuracy": derived.value, "low": derived.low, "high": derived.high}
        check_match(COMPARISON, {name: row[name] for name in columns}, "its counts", columns)
    record.note_compared(COMPARISON, ("low", "high"))


BY_COMMAND: dict[str, Callable[[Record, Record | None], None]] = {
    "certify": _compare_certification,
    "plan": _compare_plan,
    "start": _compare_start,
}
"""By command: compares its tables, given the record and the training run that it was made from."""
