"""The record of ``agt start``: the model compared with others, the plan, and what to do next.

Everything in it depends on private records, so it is for the data owner only.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from agt.data.settings import CLASSES
from agt.errors import few
from agt.fact_sentences import proposed_words
from agt_cli.report.markdown import Markdown, document, escape_markdown, markdown_table
from agt_cli.report.proposed_release import HEAD, HEAD_MEANING, QUERIES, QUERIES_MEANING
from agt_cli.report.record import RunRecord
from agt_cli.report.scoring import ConstantAnswer, Estimate, Scores, Scoring, Stability

OURS = "this model"
REMARKS = "Before you trust this result"
"""The heading of what to look at first."""
MAX_CONSTANTS = 20
"""The largest number of proposed constants that a terminal lists."""
CERTIFICATES_WAY = 2
"""The index of the way that publishes nothing, among ``Summary.ways``."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The scores of a model and of other models on the same rows.

    Attributes:
        scoring: how answers are scored.
        rows: the number of rows, not used for training, that all of them answered.
        scores: name -> scores, in the order of tables: the model, the reference learners of
            scikit-learn (without privacy), and the constant answer.
        constant_answer: the constant answer, whose scores have its name.
        private: the expected score of released weights within the budget; None: weights cannot be
            released.
        eps: the total budget that ``private`` is about.
        legend: what a reader needs to know of the scores, in sentences.
    """

    scoring: Scoring
    rows: int
    scores: Mapping[str, Scores]
    constant_answer: ConstantAnswer
    private: float | None
    eps: float
    legend: Sequence[str] = ()

    @property
    def model(self) -> Estimate:
        """The score of the model that was trained."""
        return _known(self.scores[OURS][0])

    @property
    def constant(self) -> Estimate:
        """The score of the constant answer."""
        return _known(self.scores[self.constant_answer.name][0])

    @property
    def finding(self) -> str:
        """How good the model is beside the constant answer, in a sentence."""
        return self.scoring.finding(self.model.value, self.constant.value, self.constant_answer)

    @property
    def useless_release(self) -> str:
        """A sentence on published answers that are no better than a constant answer.

        It is empty if the model is better than the constant answer and, where a release of its
        weights is planned, the released weights are expected to be better, too.
        """
        constant = self.constant.value
        name = self.scoring.baseline_in_sentence
        if not self.scoring.is_better(self.model.value, constant):
            return (
                f"This model is not better than {name}, so answers that you publish would not be "
                "better, either, but would spend the budget. (The command is proposed by public "
                "values alone, not by this result.)"
            )
        if self.private is not None and not self.scoring.is_better(self.private, constant):
            return (
                f"With the noise for eps = {self.eps:g}, published answers are not expected to be "
                f"better than {name}, but would spend the budget. (The command is proposed by "
                "public values alone, not by this result.)"
            )
        return ""

    @property
    def shortfall(self) -> str:
        """How much better the best reference learner is, in sentences; empty: hardly."""
        return self.scoring.shortfall(self.model.value, self._reference_scores)

    @property
    def _reference_scores(self) -> dict[str, float]:
        """The first score of each reference learner, by name."""
        others = (OURS, self.constant_answer.name)
        return {
            name: _known(scores[0]).value
            for name, scores in self.scores.items()
            if name not in others
        }

    @property
    def table(self) -> pd.DataFrame:
        """A row for each model: its scores, and the ends of the first one's 95 % interval."""
        score, *further = self.scoring.keys
        rows: list[dict[str, Any]] = []
        for name, (first, *others) in self.scores.items():
            estimate = _known(first)
            row: dict[str, object] = {
                "name": name,
                score: estimate.value,
                "low": estimate.low,
                "high": estimate.high,
            }
            for key, other in zip(further, others, strict=True):
                row[key] = None if other is None else other.value
            rows.append(row)
        if self.private is not None:
            rows.insert(1, {"name": self._private_name, score: self.private})
        return pd.DataFrame(rows, columns=["name", score, "low", "high", *further])

    @property
    def _private_name(self) -> str:
        title = self.scoring.titles[0]
        return f"published weights, eps = {self.eps:g} (expected {title})"

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows of the page's table: a name, and scores with their intervals."""
        rows: list[tuple[str, ...]] = []
        for name, scores in self.scores.items():
            rows.append((name, *(Markdown(score or "-") for score in scores)))
        if self.private is not None:
            blank = [""] * (len(self.scoring.keys) - 1)
            private = Markdown(self.scoring.words(self.private))
            rows.insert(1, (self._private_name, private, *blank))
        return rows

    def metrics(self) -> Iterator[tuple[str, float]]:
        """Yield metrics of the record: (name, score). The model's are named as in training."""
        score, *further = self.scoring.keys
        yield f"test_{score}", self.model.value
        yield f"test_{score}_low", self.model.low
        yield f"test_{score}_high", self.model.high
        for key, other in zip(further, self.scores[OURS][1:], strict=True):
            if other is not None:
                yield f"test_{key}", other.value
        yield self.scoring.baseline_metric, self.constant.value
        for name, value in self._reference_scores.items():
            yield f"{score}_{name}", value
        if self.private is not None:
            yield f"{score}_published_weights", self.private


def _known(estimate: Estimate | None) -> Estimate:
    """Return a first score; it is never None, because the scores are those of at least one row."""
    assert estimate is not None
    return estimate


@dataclass(frozen=True)
class ProposedConstant:
    """A range or list that was declared public as agt proposed it from the rows.

    Attributes:
        name: the column, or the word for the list of classes.
        words: the range, or the list's length and first values.
        remark: what the end of a range of dates means, in brackets; else empty.
    """

    name: str
    words: str
    remark: str = ""


@dataclass(frozen=True)
class ProposedConstants:
    """The constants of a dataset file that were declared public as they were proposed.

    Attributes:
        file: the dataset file.
        proposed: the ranges and lists, that of the classes included, which were read off the rows
            and declared public.
        total: the number of columns that have a range or a list in the file.
        size: the number of rows of the whole table that was declared public as it was computed from
            the file; None: no size was.
        training_size: about how many of these rows are trained on; None: no size was declared.
        were_shown: whether the terminal shows the items already, in the question about them.
    """

    file: Path
    proposed: tuple[ProposedConstant, ...]
    total: int
    size: int | None = None
    training_size: int | None = None
    were_shown: bool = False

    @property
    def heading(self) -> str:
        """A sentence on the constants declared public, and what to check; empty: there are none."""
        if not self.proposed and self.size is not None:
            return (
                "The size that you declared public was computed from the rows, as every claim will "
                f"say. If other people in the table would change it, correct {self.file} before "
                "any release"
            )
        if not self.proposed:
            return ""
        columns = [constant for constant in self.proposed if constant.name != CLASSES]
        words = proposed_words(
            len(columns),
            self.total,
            classes=len(columns) < len(self.proposed),
            size=self.size is not None,
        )
        return (
            f"{words}, which you declared public, were proposed from the rows, as every claim "
            "will say. If other people in the table would change them, correct "
            f"{self.file} before any release"
        )

    @property
    def items(self) -> Iterator[str]:
        """Yield a sentence for each proposed constant."""
        for constant in self.proposed:
            yield f"{constant.name}: {constant.words}{constant.remark}"
        if self.size is not None:
            yield (
                f"size: about {self.size:,} rows in the whole table, so {self.training_size:,} "
                "for training"
            )

    @property
    def lines(self) -> list[str]:
        """The heading and the first items, for a terminal; empty: nothing was proposed."""
        if not self.heading:
            return []
        if self.were_shown:
            return [f"{self.heading}."]
        return [f"{self.heading}:", f"  {few(self.items, MAX_CONSTANTS, '; ')}"]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What ``agt start`` found out about a table.

    Attributes:
        table: the file's name.
        training_rows: how many rows were trained on.
        features: the number of numbers in a record, after its columns are coded.
        dataset: the dataset file that was written.
        run: the folder of the training run.
        comparison: the scores of the model, beside those of others.
        counted: what stable distances count, "rows" or "people".
        stability: a measure of how much of the training data answers depend on.
        ways: the ways to continue, a clause each.
        proposed: the index of the way that the commands ``onward`` take. It depends on public
            values alone.
        not_public: the groups of values that were not declared public.
        declared: a sentence that says what is public, and what that allows.
        constants: the public constants that agt proposed from the rows.
        remarks: sentences that say what to check before the result is trusted.
        measuring: commands that measure what is not public; empty: nothing is to be measured.
        commands: the commands that do the same step by step.
        onward: the next commands.
        ledger: a sentence which says that these people already have a ledger; empty: no ledger of
            theirs was found.
    """

    table: str
    training_rows: int
    features: int
    dataset: Path
    run: Path
    comparison: Comparison
    counted: str
    stability: Stability
    ways: Sequence[str]
    proposed: int
    not_public: Sequence[str]
    declared: str
    constants: ProposedConstants
    remarks: Sequence[str]
    measuring: Sequence[str]
    commands: Sequence[str]
    onward: Sequence[str]
    ledger: str = ""

    @property
    def size(self) -> str:
        """On how many rows the model was trained, and how many features each has."""
        return f"{self.training_rows:,} rows of {self.features:,} features each"

    @property
    def warning_of_next(self) -> str:
        """A sentence that says why not to type a next command that spends budget; else empty."""
        if self.proposed == CERTIFICATES_WAY:
            return ""
        return self.comparison.useless_release

    @property
    def placeholders(self) -> list[str]:
        """What is to be filled into the proposed commands, a sentence for each placeholder."""
        commands = (*self.onward, *self.measuring)
        sentences = []
        if any(QUERIES in command for command in commands):
            sentences.append(QUERIES_MEANING)
        if any(command.endswith(f"head={HEAD}") for command in commands):
            sentences.append(HEAD_MEANING.format(dataset=self.dataset.stem))
        return sentences


def write_start(record: RunRecord, summary: Summary) -> None:
    """Write metrics, tables and the page of a record of ``agt start``.

    Args:
        record: open for writing.
    """
    comparison = summary.comparison
    record.add_metrics(
        **dict(comparison.metrics()),
        **{summary.stability.name: summary.stability.value},
        n_test=comparison.rows,
        total_eps=comparison.eps,
        recommended=summary.proposed + 1,  # ways are counted from 1, as on the page
    )
    record.table("comparison", comparison.table)
    record.table("plan", _plan_table(summary))
    record.report(start_report(summary, record.folder))


def _plan_table(summary: Summary) -> pd.DataFrame:
    """Return the table of the ways to continue, as tables/plan.csv has it."""
    rows = []
    for index, option in enumerate(summary.ways):
        rows.append({"way": index + 1, "what": option, "recommended": index == summary.proposed})
    return pd.DataFrame(rows)


def start_report(summary: Summary, folder: Path) -> str:
    """Return report.md of ``agt start``.

    Args:
        folder: the folder of the record, from which links are made.
    """
    comparison = summary.comparison
    scoring = comparison.scoring
    blocks: list[str | Sequence[str]] = [
        f"# First look: {escape_markdown(summary.table)}",
        f"**{escape_markdown(comparison.finding)}**",
        _facts_table(summary),
        f"*For the data owner only. {scoring.private_results} and the plan depend on private "
        "records. Nothing was released, and no budget was spent.*",
        f"## {scoring.heading} compared with other models",
        f"{scoring.heading} on the same {comparison.rows:,} rows, which were kept out of training. "
        "The other models are the usual learners, which have no privacy and no certificates.",
        markdown_table(("", *scoring.titles), comparison.cells()),
        *map(escape_markdown, comparison.legend),
        escape_markdown(comparison.shortfall),
        "## Plan",
        "You can continue in the following ways. No budget is spent before you type one of "
        "the commands below.",
        _ways_table(summary),
    ]
    if summary.remarks:
        blocks += [f"## {REMARKS}", [*summary.remarks]]
    if summary.measuring:
        blocks += ["## Measure, with noise, what is not public", _commands(summary.measuring)]
    blocks += _constants(summary.constants)
    blocks += ["## Next", escape_markdown(summary.ledger), _commands(summary.onward)]
    blocks += map(escape_markdown, [summary.warning_of_next, *summary.placeholders])
    blocks += [
        "The following commands do the same as agt start, one step at a time:",
        _commands(summary.commands),
        _links(summary, folder),
    ]
    return document(*blocks)


def _facts_table(summary: Summary) -> str:
    """Return the table of what matters most, from the proposed way to what is public."""
    comparison = summary.comparison
    scoring = comparison.scoring
    title = scoring.titles[0]
    constant = scoring.words(comparison.constant.value)
    score = Markdown(f"{comparison.model}; {scoring.baseline} {constant}")
    facts = [
        ("Proposed next", summary.ways[summary.proposed]),
        (title[0].upper() + title[1:], score),
        ("Trained on", summary.size),
        (f"On how many {summary.counted} an answer depends", summary.stability.sentence),
        ("What is public", summary.declared),
    ]
    return markdown_table(("", ""), facts)


def _ways_table(summary: Summary) -> str:
    """Return the table of the ways to continue, of which the proposed one is marked."""
    rows = []
    for index, way in enumerate(summary.ways):
        mark = Markdown("**proposed next**") if index == summary.proposed else ""
        rows.append((str(index + 1), way, mark))
    return markdown_table(("", "way", ""), rows)


def _constants(constants: ProposedConstants) -> list[str | Sequence[str]]:
    """Return the section about constants that were declared public as proposed; empty: none."""
    if not constants.heading:
        return []
    items = [escape_markdown(item) for item in constants.items]
    return ["## What you declared public", escape_markdown(f"{constants.heading}:"), items]


def _commands(lines: Sequence[str]) -> str:
    """Return commands as a block of code in Markdown."""
    return "\n".join(f"    {line}" for line in lines)


def _links(summary: Summary, folder: Path) -> str:
    """Return sentences with the paths of the trained run and of its settings."""
    run_folder = os.path.relpath(summary.run, folder)
    run_name = escape_markdown(summary.run.name)
    return (
        f"Trained run: [{run_name}](<{run_folder}/report.html>). What is declared about the "
        f"table: `{summary.dataset}`. Settings: `config.yaml`."
    )
