"""Certified intervals of numbers attacked: neighbours of a run are trained, and answer its queries.

A violation is a counterexample, certain apart from the claim's own conditions. No violation is no
proof.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agt.data.records import Records
from agt.errors import AgtError
from agt.models.model import Model
from agt.models.number_votes import NumberCertificates, NumberVotes
from agt_audit.neighbours import EditKind, kinds_of, neighbour_of, tried_label, with_added, without
from agt_audit.pairs import influences
from agt_cli.report.findings import Finding, counterexamples

INTERVALS = "certified intervals"
NESTING_INTERVALS = "nesting"


@dataclass
class IntervalCounts:
    """What neighbours of a run contradicted, counted.

    Attributes:
        neighbours: how many were trained.
        refused: how many training refused.
        answers: how many answers were held against an interval that is not the whole range.
        outside: how many of them lay outside.
        intervals: how many intervals of neighbours were held against the run's own.
        not_nested: how many of them were not inside.
        farthest: the largest distance k of a neighbour that was trained.
    """

    neighbours: int = 0
    refused: int = 0
    answers: int = 0
    outside: int = 0
    intervals: int = 0
    not_nested: int = 0
    farthest: int = 0

    def count(self, mine: NumberCertificates, theirs: NumberCertificates, k: int) -> None:
        """Hold a neighbour's certificates against the run's, of the same queries.

        Args:
            mine: of the run.
            theirs: of a dataset within k edits of the run's.
            k: how many edits.
        """
        self.neighbours += 1
        self.farthest = max(self.farthest, k)
        answers = theirs.prediction
        lower, upper = mine.bounds(k)
        narrower = upper - lower < mine.target.width
        self.answers += int(narrower.sum())
        self.outside += int(((answers < lower) | (answers > upper)).sum())
        for distance in range(1, max(mine.max_k - k, 0) + 1):
            inner_lower, inner_upper = theirs.bounds(distance)
            outer_lower, outer_upper = mine.bounds(distance + k)
            self.intervals += len(answers)
            inside = (outer_lower <= inner_lower) & (inner_upper <= outer_upper)
            self.not_nested += int((~inside).sum())

    def findings(self, subject: str, queries: int) -> dict[str, Finding]:
        """Return the finding of each claim, by what the claim is about.

        Args:
            subject: which certificates.
            queries: how many were asked.
        """
        attack = (
            "models were trained on neighbouring datasets with the run's settings. Records were "
            "removed where they have most influence on a query, or records with the features of a "
            "query and a label at an end of the range were added"
        )
        effort = (
            f"{self.neighbours} neighbouring datasets, up to distance k = {self.farthest}; "
            f"{queries} queries; training refused {self.refused} datasets"
        )
        contained = counterexamples(
            f"{INTERVALS}: {subject}",
            "the answer of the model that is trained on any dataset within distance k of the "
            "run's dataset lies in the interval that is certified for k",
            attack,
            effort,
            "answers outside of their interval",
            float(self.outside) if self.answers else None,
            f"{self.outside} of {self.answers:,} answers lie outside of their interval"
            if self.answers
            else "no neighbouring dataset was trained at a distance k at which an "
            "interval is narrower than the whole range",
            "this audit detects a single answer outside of its interval",
        )
        nested = counterexamples(
            f"{NESTING_INTERVALS}: {subject}",
            "the interval for j on a dataset at distance k lies within the run's interval for "
            "j + k",
            attack,
            effort,
            "intervals that are not inside",
            float(self.not_nested) if self.intervals else None,
            f"{self.not_nested} of {self.intervals:,} intervals of neighbouring datasets are not "
            "inside of the run's"
            if self.intervals
            else "every interval beyond the tried distances is the whole range",
        )
        return {INTERVALS: contained, NESTING_INTERVALS: nested}


def audit_intervals(
    model: Model,
    queries: np.ndarray,
    neighbours: int,
    farthest: int,
    seed: int,
    seconds: float | None = None,
) -> IntervalCounts:
    """Train neighbours of a run of numbers and count what contradicts its certificates.

    Args:
        model: the run's, whose answers are numbers.
        queries: [n, ...], at least one.
        neighbours: how many datasets are tried.
        farthest: the largest distance k of these.
        seed: of the choice of edits.
        seconds: no dataset is begun after so many; None: no limit.
    """
    counts = IntervalCounts()
    until = math.inf if seconds is None else time.monotonic() + seconds
    mine = _numbers(model).certify(queries)
    for k, records in edited_datasets(model, queries, neighbours, farthest, seed):
        if time.monotonic() > until:
            break
        try:
            theirs = _numbers(neighbour_of(model, records))
        except AgtError:
            counts.refused += 1
            continue
        counts.count(mine, theirs.certify(queries), k)
    return counts


def edited_datasets(
    model: Model, queries: np.ndarray, count: int, farthest: int, seed: int
) -> Iterator[tuple[int, Records]]:
    """Yield datasets within k edits of a run's, with k.

    Args:
        model: the run's.
        queries: [n, ...]; each dataset is made to move the answer to one of them.
        count: how many datasets.
        farthest: the largest k.
        seed: of the choice.
    """
    rng = np.random.default_rng(seed)
    problem = model.problem
    records = problem.dataset.train
    kinds = kinds_of(problem.settings.relation.name)
    replaces = EditKind.REPLACED in kinds
    private_rows = np.flatnonzero(~records.public)
    for turn in range(count):
        k = 1 + turn % farthest
        query = queries[int(rng.integers(len(queries)))]
        removes = replaces or EditKind.COMES not in kinds or turn % 2 == 0
        adds = replaces or not removes
        edited = records
        if removes:
            scores = influences(model, records, query[None])[0][private_rows]
            units = records.units[private_rows[np.argsort(-scores, kind="stable")]]
            removed = list(dict.fromkeys(units.tolist()))[:k]
            edited = without(records, np.isin(records.units, removed))
        if adds:
            ids = np.array([f"audit{turn}.{index}" for index in range(k)])
            added = Records(
                features=np.repeat(query[None], k, axis=0).astype(records.features.dtype),
                labels=np.full(k, tried_label(problem.dataset.target, turn // 2)),
                ids=ids,
                units=ids.copy(),
                public=np.zeros(k, dtype=bool),
            )
            edited = with_added(edited, added)
        yield k, edited


def _numbers(model: Model) -> NumberVotes:
    """Return a model of numbers as one."""
    votes = model.number_votes
    assert votes is not None
    return votes
