"""The record of ``agt start``: how good the model is beside others, the plan, and what to do next.

Everything in it depends on private records, so it is for the data owner only.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.ticker import PercentFormatter

from agt_cli.report.figures import WIDTH, drawing, headline
from agt_cli.report.markdown import Markdown, document, markdown_table, plain
from agt_cli.report.quality import RateEstimate, rate_words
from agt_cli.report.record import RunRecord

FIGURE = "comparison"
OWNER_ONLY = (
    "For the data owner only. Accuracies, stable distances and the plan depend on private records. "
    "Nothing was released, and no budget was spent."
)
CAPTION = (
    "Fraction of the rows kept out of training that each model answers correctly. Thin line: "
    "95 % confidence interval. Dashed line: accuracy of always giving the most frequent "
    "class."
)
_OURS = "#08306b"
_PRIVATE = "#4292c6"
_OTHERS = "0.75"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How often a model is right, beside other models.

    Attributes:
        rows: the number of rows, kept out of training, that all of them answered.
        model: accuracy of the model that was trained.
        others: name -> accuracy of usual learners, without privacy; None: it could not be computed.
        majority: the most frequent class.
        constant: accuracy of always answering ``majority``.
        private: expected accuracy of released weights within the budget; None: none are possible.
        eps: the total budget that ``private`` is about.
    """

    rows: int
    model: RateEstimate
    others: Mapping[str, RateEstimate | None]
    majority: str
    constant: RateEstimate
    private: float | None
    eps: float

    @property
    def rates(self) -> dict[str, RateEstimate | None]:
        """Name -> accuracy, as the console shows them: the model first, the constant last."""
        constant_name = f"majority class '{self.majority}'"
        return {"this model": self.model, **self.others, constant_name: self.constant}

    @property
    def finding(self) -> str:
        """What the figure shows, in a sentence."""
        constant = _percent(self.constant.value)
        accuracy = _percent(self.model.value)
        return (
            f"This model answers {accuracy} of the rows correctly. Always answering "
            f"'{self.majority}' would be correct for {constant}."
        )

    @property
    def table(self) -> pd.DataFrame:
        """A row for each model: its accuracy, and the ends of the 95 % interval where known."""
        rows: list[dict[str, Any]] = []
        for name, rate in self.rates.items():
            known = {} if rate is None else asdict(rate)
            rows.append({"name": name, "accuracy": known.pop("value", None), **known})
        if self.private is not None:
            rows.insert(1, {"name": self._private_name, "accuracy": self.private})
        return pd.DataFrame(rows, columns=["name", "accuracy", "low", "high"])

    @property
    def _private_name(self) -> str:
        return f"published weights, eps = {self.eps:g} (expected accuracy)"

    def cells(self) -> list[tuple[str, str]]:
        """The rows of the page's table: name, and accuracy with its interval."""
        rows: list[tuple[str, str]] = []
        for name, rate in self.rates.items():
            rows.append((name, Markdown(rate or "-")))
        if self.private is not None:
            rows.insert(1, (self._private_name, Markdown(rate_words(self.private))))
        return rows

    def metrics(self) -> Iterator[tuple[str, float]]:
        """Flat numbers: accuracies by name, the model's as its training record calls them."""
        yield "test_accuracy", self.model.value
        yield "test_accuracy_low", self.model.low
        yield "test_accuracy_high", self.model.high
        yield "test_majority_rate", self.constant.value
        for name, rate in self.others.items():
            if rate is not None:
                yield f"accuracy_{name}", rate.value
        if self.private is not None:
            yield "accuracy_published_weights", self.private


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What ``agt start`` found out about a table.

    Attributes:
        table: the file's name.
        dataset: the dataset file that was written.
        run: the folder of the training run.
        comparison: how good the model is.
        counted: what stable distances count, "rows" or "people".
        distance: median stable distance of the answers.
        stability: what that means, in a sentence.
        ways: the ways to go on, in words.
        proposed: index of the way that ``onward`` takes. It depends on public values alone.
        declared: what is public, and what that allows, in a sentence.
        remarks: what to look at before the result is trusted.
        measuring: commands that measure what is not public; empty: nothing is to be measured.
        commands: the commands that do the same step by step.
        onward: the next command.
    """

    table: str
    dataset: Path
    run: Path
    comparison: Comparison
    counted: str
    distance: int
    stability: str
    ways: Sequence[str]
    proposed: int
    declared: str
    remarks: Sequence[str]
    measuring: Sequence[str]
    commands: Sequence[str]
    onward: str


def write_start(record: RunRecord, summary: Summary) -> None:
    """Write metrics, tables, the figure and the page of a record of ``agt start``.

    Args:
        record: open for writing.
    """
    comparison = summary.comparison
    table = comparison.table
    record.add_metrics(
        **dict(comparison.metrics()),
        stable_distance_median=summary.distance,
        n_test=comparison.rows,
        total_eps=comparison.eps,
        recommended=summary.proposed + 1,  # ways are counted from 1, as on the page
    )
    record.table("comparison", table)
    record.table("plan", _plan_table(summary))
    _draw(record, comparison, table, summary.table)
    record.report(start_report(summary, record.folder))


def _plan_table(summary: Summary) -> pd.DataFrame:
    rows = []
    for index, way in enumerate(summary.ways):
        rows.append({"way": index + 1, "what": way, "recommended": index == summary.proposed})
    return pd.DataFrame(rows)


def start_report(summary: Summary, folder: Path) -> str:
    """Return report.md of ``agt start``.

    Args:
        folder: of the record, from which links are made.
    """
    comparison = summary.comparison
    model = Markdown(
        f"{comparison.model}; majority-class baseline {rate_words(comparison.constant.value)}"
    )
    facts = [
        ("Proposed next", summary.ways[summary.proposed]),
        ("Accuracy", model),
        (f"On how many {summary.counted} an answer depends", summary.stability),
        ("What is public", summary.declared),
    ]
    ways = []
    for index, way in enumerate(summary.ways):
        mark = Markdown("**proposed next**") if index == summary.proposed else ""
        ways.append((str(index + 1), way, mark))
    return document(
        f"# First look: {plain(summary.table)}",
        f"**{plain(comparison.finding)}**",
        markdown_table(("", ""), facts),
        f"*{OWNER_ONLY}*",
        f"![{plain(CAPTION)}](figures/{FIGURE}.png)\n\n*{plain(summary.table)}. {plain(CAPTION)}*",
        "## Accuracy compared with other models",
        f"Accuracy on the same {comparison.rows:,} rows, which were kept out of training. The "
        "other models are the usual learners, which have no privacy and no certificates.",
        markdown_table(("", "accuracy"), comparison.cells()),
        "## Plan",
        "You can continue in the following ways. No budget is spent before you type one of "
        "the commands below.",
        markdown_table(("", "way", ""), ways),
        *(("## Before you trust this result", [*summary.remarks]) if summary.remarks else ()),
        *(
            ("## Measure, with noise, what is not public", _commands(summary.measuring))
            if summary.measuring
            else ()
        ),
        "## Next",
        _commands([summary.onward]),
        "The following commands do the same as agt start, one step at a time:",
        _commands(summary.commands),
        _links(summary, folder),
    )


def _commands(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _links(summary: Summary, folder: Path) -> str:
    run_folder = os.path.relpath(summary.run, folder)
    run_name = plain(summary.run.name)
    return (
        f"Trained run: [{run_name}](<{run_folder}/report.html>). What is declared about the "
        f"table: `{summary.dataset}`. Settings: `config.yaml`."
    )


def _draw(record: RunRecord, comparison: Comparison, table: pd.DataFrame, title: str) -> None:
    """Draw accuracies as bars from 0 to 1, the model on top, with their intervals."""
    bars = table[table["accuracy"].notna()].iloc[::-1]
    colours = [_colour(str(name), comparison) for name in bars["name"]]
    with drawing(record, FIGURE, table, (WIDTH, 1.4 + 0.42 * len(bars))) as figure:
        axes = figure.subplots()
        heights = range(len(bars))
        axes.barh(heights, bars["accuracy"], 0.6, color=colours)
        axes.hlines(heights, bars["low"], bars["high"], color="black", linewidth=1.2)
        axes.axvline(comparison.constant.value, color="0.3", linewidth=0.8, linestyle="--")
        for height, (accuracy, high) in enumerate(zip(bars["accuracy"], bars["high"], strict=True)):
            end = accuracy if math.isnan(high) else high
            axes.text(end + 0.01, height, _percent(accuracy), va="center", fontsize=9)
        axes.set_yticks(heights, [fill(str(name), 22) for name in bars["name"]])
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_xlabel(f"right answers ({comparison.rows:,} rows)")
        headline(figure, comparison.finding, title)


def _colour(name: str, comparison: Comparison) -> str:
    if name == "this model":
        return _OURS
    return _OTHERS if name in comparison.rates else _PRIVATE


def _percent(share: float) -> str:
    """Return a share as a percentage that is 100 only for all."""
    return f"{100 * float(rate_words(share)):.1f} %"
