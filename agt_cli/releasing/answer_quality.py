"""How good the answers of released weights are on queries whose labels the file has.

This is for the data owner only: labels are private, and no guarantee covers the score.

What scores answers imports mechanisms and PyTorch, so it is imported where queries have labels:
who only asks for labels needs neither.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agt.data.arrays import Blocks
from agt.data.dataset import DataSource
from agt.data.records import Records
from agt.data.target import Target
from agt.errors import AgtError
from agt_cli.report.opening import open_run

if TYPE_CHECKING:
    from agt_cli.report.scoring import Estimate, Scoring


@dataclass(frozen=True)
class AnswerQuality:
    """The score of answers to queries with labels.

    Attributes:
        scoring: how answers are scored.
        score: the first score of this scoring.
        rows: how many queries were scored.
        trained_rows: the number of queries with a label that are training records, which are not
            scored; None: that is not known, so that training records among the queries are scored,
            too.
    """

    scoring: "Scoring"
    score: "Estimate"
    rows: int
    trained_rows: int | None

    @property
    def sentence(self) -> str:
        """The score, on which rows it was computed, and for whom."""
        title = self.scoring.titles[0]
        scored_queries = f"{self.rows:,} queries that have a label and are no training records"
        note = ""
        if self.trained_rows is None:
            scored_queries = f"all {self.rows:,} queries that have a label"
            note = " (training records among them count, too, so it may be too good)"
        elif self.trained_rows:
            note = f" ({self.trained_rows:,} queries are training records, and were not counted)"
        return (
            f"for the data owner only: {title} {self.score} on {scored_queries}{note}. No "
            "guarantee covers this number, so do not publish it"
        )

    @property
    def fields(self) -> dict[str, Any]:
        """The score, and how many queries were scored, as the entries that --json prints."""
        return {
            self.scoring.keys[0]: self.score.value,
            "rows": self.rows,
            "training_rows": self.trained_rows,
        }


def score_for_owner(
    folder: Path,
    inputs: Path,
    queries: Records,
    source: DataSource,
    target: Target,
    answers: Callable[[np.ndarray], np.ndarray],
) -> AnswerQuality | None:
    """Return how good released weights are on queries with labels; None: no query has a label.

    Queries that are training records are left out if the release still lies in the folder of the
    command that made it, and the training run is where it was.

    Args:
        folder: the folder of the release.
        inputs: the file of queries.
        queries: the queries, with their labels where the file has any.
        source: the data source that read the queries.
        target: the description of what answers are: classes or numbers.
        answers: gives the answers of the released weights to features.
    """
    if isinstance(queries.features, Blocks):
        return None
    known = target.are_known(queries.labels)
    if not known.any():
        return None
    trained = _training_records(folder, inputs, queries, source)
    scored = known if trained is None else known & ~trained
    if not scored.any():
        return None
    from agt_cli.report.scoring import scoring_of

    scoring = scoring_of(target)
    given = answers(queries.features[scored])
    score = scoring.scores(given, queries.labels[scored])[0]
    assert score is not None  # there is a query
    trained_rows = None if trained is None else int((known & trained).sum())
    return AnswerQuality(scoring, score, int(scored.sum()), trained_rows)


def _training_records(
    folder: Path, inputs: Path, queries: Records, source: DataSource
) -> np.ndarray | None:
    """Return which queries [n] are training records, by what the run knows; None: not known."""
    from agt_cli.releasing.known_records import TrainingIndex

    with suppress(AgtError, OSError, ValueError, TypeError, KeyError):
        environment = json.loads((folder.resolve().parent / "env.json").read_bytes())
        index = TrainingIndex.of(open_run(Path(environment["trained_run"]), "train"))
        known = None if index is None else index.find(queries, source, inputs)
        return None if known is None else known.matched
    return None
