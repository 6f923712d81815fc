"""Train reference learners, without privacy and certificates, on the records of a model, to
compare.

Scores depend on private records, so they are for the data owner only.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.data.table import Table
from agt_cli.report.console import Console
from agt_cli.report.scoring import Scores, Scoring

MAX_TRAINING_RECORDS = 50_000  # that usual learners see
MAX_TRAINING_NUMBERS = 40_000_000
"""Of vectors, the largest product of records, their features, and classes or 1."""
MAX_TEST_NUMBERS = 200_000_000
"""Of vectors, the largest product of test records and their features."""
MAX_BOOSTED_FEATURES = 50
"""Of vectors, with more of which boosting takes too long."""


@dataclass(frozen=True)
class ReferenceScores:
    """The scores of reference learners on the test records of a dataset.

    Attributes:
        scores: name -> scores; empty if there are no test records, too many of them, or only one
            label in training.
        records_seen: the number of training records that these learners saw, the first ones.
    """

    scores: Mapping[str, Scores]
    records_seen: int


def scores_on_table(table: Table, scoring: Scoring, console: Console) -> ReferenceScores:
    """Train a linear learner and boosted trees on a table, and return their scores on test records.

    Columns are prepared as users of these learners do: numbers as they are, without bins, and words
    as indicators, or as codes for trees.

    Args:
        table: it is loaded again, without bins.
        scoring: how answers are scored.
        console: shows which learner is being trained, because that may take tens of seconds.
    """
    from sklearn.preprocessing import FunctionTransformer

    ranges = {name: edges and (edges[0], edges[-1]) for name, edges in table.numeric.items()}
    unbinned = replace(table, numeric=ranges, bins=0, crosses=0).load()
    widths = [len(words) + 1 for words in table.categorical.values()]
    has_missing_block = table.missing == "indicator"

    def columns(x: np.ndarray) -> np.ndarray:
        # [n, columns]: numbers and codes, of which trees make what they like.
        numbers, *blocks = np.split(x, np.cumsum([len(ranges), *widths]), axis=1)
        codes = np.column_stack([numbers, *(block.argmax(axis=1) for block in blocks[:-1])])
        return np.where(blocks[-1] == 1, np.nan, codes) if has_missing_block else codes

    max_records = min(MAX_TRAINING_RECORDS, len(unbinned.train))
    scores = _train_and_score(
        unbinned.train,
        unbinned.test,
        scoring,
        console,
        max_records,
        lambda: FunctionTransformer(columns),
    )
    return ReferenceScores(scores, max_records)


def scores_on_vectors(dataset: Dataset, scoring: Scoring, console: Console) -> ReferenceScores:
    """Train a linear learner, and boosted trees if there are few features; return their scores.

    Args:
        dataset: vectors before any feature map; they may be memory-mapped.
        scoring: how answers are scored.
        console: shows which learner is being trained.
    """
    train = dataset.train
    width = max(1, math.prod(train.features.shape[1:]))
    outputs = dataset.target.class_count or 1
    max_records = min(MAX_TRAINING_RECORDS, MAX_TRAINING_NUMBERS // (width * outputs), len(train))
    if len(dataset.test) * width > MAX_TEST_NUMBERS:
        return ReferenceScores({}, max_records)
    make_tree_features = (lambda: None) if width <= MAX_BOOSTED_FEATURES else None
    scores = _train_and_score(
        train, dataset.test, scoring, console, max_records, make_tree_features
    )
    return ReferenceScores(scores, max_records)


def _train_and_score(
    train: Records,
    test: Records,
    scoring: Scoring,
    console: Console,
    max_records: int,
    make_tree_features: Callable[[], Any] | None,
) -> dict[str, Scores]:
    """Train reference learners, and return name -> their scores on test records.

    Args:
        max_records: the largest number of training records that they see, the first ones.
        make_tree_features: makes what prepares features for boosted trees; None: no trees are
            trained.
    """
    # Loading them takes a second, which only a comparison costs.
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    training_records = train.take(np.arange(min(len(train), max_records)))
    if not len(test) or len(np.unique(training_records.labels)) < 2:
        return {}
    reference = scoring.learners()
    learners = {reference.linear_name: make_pipeline(StandardScaler(), reference.linear)}
    if make_tree_features is not None:
        preparing = make_tree_features()
        learners["boosting"] = make_pipeline(preparing or "passthrough", reference.boosting)
    features, queries = (_flat(records.features) for records in (training_records, test))
    scores = {}
    # Threads of boosting wait actively for one another: on a busy machine, two take twenty times as
    # long as one.
    with catch_warnings(), threadpool_limits(1, user_api="openmp"):
        simplefilter("ignore")  # one that did not converge is what people get
        for number, (name, learner) in enumerate(learners.items(), start=1):
            console.note(
                f"comparing with {name} ({number} of {len(learners)} usual learners, on "
                f"{len(training_records):,} training rows) ..."
            )
            answers = learner.fit(features, training_records.labels).predict(queries)
            scores[name] = scoring.scores(answers, test.labels)
    return scores


def _flat(features: np.ndarray) -> np.ndarray:
    """Return features [n, ...] as rows [n, width]."""
    return np.asarray(features).reshape(len(features), -1)
