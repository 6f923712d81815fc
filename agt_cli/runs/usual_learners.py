"""Usual learners, without privacy and certificates, on the records of a model: what these cost.

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
from agt_cli.report.scoring import Scores, Scoring

MAX_TRAINING_RECORDS = 50_000  # that usual learners see
MAX_TRAINING_NUMBERS = 40_000_000
"""Of vectors, the largest product of records, their features, and classes or 1."""
MAX_TEST_NUMBERS = 200_000_000
"""Of vectors, the largest product of test records and their features."""
MAX_BOOSTED_FEATURES = 50
"""Of vectors, with more of which boosting takes too long."""


@dataclass(frozen=True)
class UsualScores:
    """How good usual learners are on the test records of a dataset.

    Attributes:
        scores: name -> scores; nothing where there are no test records, too many of them, or only
            one label in training.
        records_seen: the number of training records that these learners saw, the first ones.
    """

    scores: Mapping[str, Scores]
    records_seen: int


def scores_on_table(table: Table, scoring: Scoring) -> UsualScores:
    """Return the scores of a linear learner and of boosted trees on a table's test records.

    Columns are prepared as users of these learners do: numbers as they are, without bins, and words
    as indicators, or as codes for trees.

    Args:
        table: it is loaded again, without bins.
        scoring: how answers are scored.
    """
    from sklearn.preprocessing import FunctionTransformer

    ends = {name: edges and (edges[0], edges[-1]) for name, edges in table.numeric.items()}
    plain = replace(table, numeric=ends, bins=0, crosses=0).load()
    widths = [len(words) + 1 for words in table.categorical.values()]
    gaps = table.missing == "indicator"

    def columns(x: np.ndarray) -> np.ndarray:
        # [n, columns]: numbers and codes, of which trees make what they like.
        numbers, *blocks = np.split(x, np.cumsum([len(ends), *widths]), axis=1)
        codes = np.column_stack([numbers, *(block.argmax(axis=1) for block in blocks[:-1])])
        return np.where(blocks[-1] == 1, np.nan, codes) if gaps else codes

    most = min(MAX_TRAINING_RECORDS, len(plain.train))
    scores = _scores(plain.train, plain.test, scoring, most, lambda: FunctionTransformer(columns))
    return UsualScores(scores, most)


def scores_on_vectors(dataset: Dataset, scoring: Scoring) -> UsualScores:
    """Return the scores of a linear learner, and of boosted trees where vectors have few features.

    Args:
        dataset: vectors before any feature map; they may be memory-mapped.
        scoring: how answers are scored.
    """
    train = dataset.train
    width = max(1, math.prod(train.features.shape[1:]))
    outputs = dataset.target.class_count or 1
    most = min(MAX_TRAINING_RECORDS, MAX_TRAINING_NUMBERS // (width * outputs), len(train))
    if len(dataset.test) * width > MAX_TEST_NUMBERS:
        return UsualScores({}, most)
    trees_prepare = (lambda: None) if width <= MAX_BOOSTED_FEATURES else None
    scores = _scores(train, dataset.test, scoring, most, trees_prepare)
    return UsualScores(scores, most)


def _scores(
    train: Records,
    test: Records,
    scoring: Scoring,
    most: int,
    trees_prepare: Callable[[], Any] | None,
) -> dict[str, Scores]:
    """Return name -> scores of usual learners on test records.

    Args:
        most: the largest number of training records that they see, the first ones.
        trees_prepare: makes what prepares features for boosted trees; None: no trees are trained.
    """
    # Loading them takes a second, which only a comparison costs.
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    seen = train.take(np.arange(min(len(train), most)))
    if not len(test) or len(np.unique(seen.labels)) < 2:
        return {}
    linear_name, linear, boosting = scoring.learners()
    learners = {linear_name: make_pipeline(StandardScaler(), linear)}
    if trees_prepare is not None:
        preparing = trees_prepare()
        learners["boosting"] = make_pipeline(preparing or "passthrough", boosting)
    features, queries = (_flat(records.features) for records in (seen, test))
    scores = {}
    # Threads of boosting wait actively for one another: on a busy machine, two take twenty times as
    # long as one.
    with catch_warnings(), threadpool_limits(1, user_api="openmp"):
        simplefilter("ignore")  # one that did not converge is what people get
        for name, learner in learners.items():
            answers = learner.fit(features, seen.labels).predict(queries)
            scores[name] = scoring.scores(answers, test.labels)
    return scores


def _flat(features: np.ndarray) -> np.ndarray:
    """Return features [n, ...] as rows [n, width]."""
    return np.asarray(features).reshape(len(features), -1)
