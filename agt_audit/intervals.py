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
from agt_audit.edited_records import attack_records, tried_label, with_added, without
from agt_audit.influence import units_by_influence
from agt_audit.neighbours import neighbour_of
from agt_audit.relation_edits import EditKind, kinds_of
from agt_cli.report.findings import Finding, exact_finding


@dataclass
class IntervalCounts:
    """Counts of the checks of certified intervals, and of the violations.

    Attributes:
        planned: how many neighbouring datasets were to be tried.
        neighbours: how many neighbouring datasets were trained on.
        refused: how many datasets training refused.
        answers: how many answers of neighbours were compared with an interval of the run that is
            narrower than the whole range.
        outside: how many answers lie outside of the run's interval.
        intervals: how many intervals of neighbours were compared with the run's.
        not_nested: how many of these do not lie inside of the run's.
        farthest: the largest distance k of a neighbour that was trained on.
        ended_early: whether the time limit ended the audit before all datasets were tried.
    """

    planned: int = 0
    neighbours: int = 0
    refused: int = 0
    answers: int = 0
    outside: int = 0
    intervals: int = 0
    not_nested: int = 0
    farthest: int = 0
    ended_early: bool = False

    def add_neighbour(
        self,
        run_certificates: NumberCertificates,
        neighbour_certificates: NumberCertificates,
        k: int,
    ) -> None:
        """Compare a neighbour's certificates with the run's, and add to all counts.

        Args:
            run_certificates: the run's certificates.
            neighbour_certificates: the neighbour's certificates of the same queries.
            k: the neighbour is within k edits of the run's dataset.
        """
        self.neighbours += 1
        self.farthest = max(self.farthest, k)
        predictions = neighbour_certificates.prediction
        lower, upper = run_certificates.bounds(k)
        narrower = upper - lower < run_certificates.target.width
        self.answers += int(narrower.sum())
        self.outside += int(((predictions < lower) | (predictions > upper)).sum())
        for distance in range(1, run_certificates.max_k - k + 1):
            inner_lower, inner_upper = neighbour_certificates.bounds(distance)
            outer_lower, outer_upper = run_certificates.bounds(distance + k)
            self.intervals += len(predictions)
            is_nested = (outer_lower <= inner_lower) & (inner_upper <= outer_upper)
            self.not_nested += int((~is_nested).sum())

    def findings(self, subject: str, queries: int) -> tuple[Finding, Finding]:
        """Return the findings about answers within their intervals, and about nested intervals.

        A finding is untested if nothing was compared.

        Args:
            subject: whose certificates these are, in words.
            queries: how many queries were asked, for the finding's text.
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
        if self.ended_early:
            tried = self.neighbours + self.refused
            effort = (
                f"{effort}; the time limit audit.seconds ended the search early, after {tried} of "
                f"{self.planned} datasets"
            )
        containment_meaning = (
            "no neighbouring dataset was trained at a distance k at which an interval is "
            "narrower than the whole range"
        )
        if self.answers:
            containment_meaning = (
                f"{self.outside} of {self.answers:,} answers lie outside of their interval"
            )
        contained = exact_finding(
            subject=f"certified intervals: {subject}",
            claim=(
                "the answer of the model that is trained on any dataset within distance k of the "
                "run's dataset lies in the interval that is certified for k"
            ),
            attack=attack,
            effort=effort,
            measure="answers outside of their interval",
            found=float(self.outside) if self.answers else None,
            meaning=containment_meaning,
            noticeable="this audit detects a single answer outside of its interval",
        )
        nesting_meaning = "every interval beyond the tried distances is the whole range"
        if self.intervals:
            nesting_meaning = (
                f"{self.not_nested} of {self.intervals:,} intervals of neighbouring datasets are "
                "not inside of the run's"
            )
        nested = exact_finding(
            subject=f"nesting: {subject}",
            claim=(
                "the interval for j on a dataset at distance k lies within the run's interval for "
                "j + k"
            ),
            attack=attack,
            effort=effort,
            measure="intervals that are not inside",
            found=float(self.not_nested) if self.intervals else None,
            meaning=nesting_meaning,
        )
        return contained, nested


def audit_intervals(
    model: Model,
    queries: np.ndarray,
    neighbours: int,
    farthest: int,
    seed: int,
    seconds: float | None = None,
) -> IntervalCounts:
    """Train on neighbours of a run, and count the answers that contradict its certificates.

    Args:
        model: the run's model, whose answers are numbers.
        queries: [n, ...], at least one.
        neighbours: how many neighbouring datasets to try.
        farthest: the largest distance k of these.
        seed: the seed of the choice of edits.
        seconds: after so many seconds, no further dataset is tried; None: no limit.

    Returns:
        The counts. A dataset that training refuses counts as ``refused`` only.
    """
    counts = IntervalCounts(planned=neighbours)
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    run_certificates = _numbers(model).certify(queries)
    for k, records in edited_datasets(model, queries, neighbours, farthest, seed):
        if time.monotonic() > deadline:
            counts.ended_early = True
            break
        try:
            neighbour = _numbers(neighbour_of(model, records))
        except AgtError:
            counts.refused += 1
            continue
        counts.add_neighbour(run_certificates, neighbour.certify(queries), k)
    return counts


def edited_datasets(
    model: Model, queries: np.ndarray, count: int, farthest: int, seed: int
) -> Iterator[tuple[int, Records]]:
    """Yield neighbouring datasets that are made to move the answer to a query.

    Units with the largest influence on a random query are removed, records with the query's
    features and a label at an end of the range are added, or both, as the run's relation allows.

    Args:
        model: the run's model, with the records that it was trained on.
        queries: [n, ...], at least one.
        count: how many datasets to make.
        farthest: the largest k; datasets have k = 1, 2, ..., farthest, and then again from 1.
        seed: the seed of the choice of queries.

    Yields:
        k, and the records of a dataset within k edits.
    """
    rng = np.random.default_rng(seed)
    problem = model.problem
    records = problem.dataset.train
    for turn in range(count):
        k = 1 + turn % farthest
        query = queries[int(rng.integers(len(queries)))]
        kind = _edit_of_turn(problem.settings.relation.name, turn)
        edited = records
        if kind is not EditKind.COMES:
            removed = units_by_influence(model, query)[:k]
            edited = without(records, np.isin(records.units, removed))
        if kind is not EditKind.LEAVES:
            added = attack_records(
                features=np.repeat(query[None], k, axis=0),
                labels=np.full(k, tried_label(problem.dataset.target, turn // 2)),
                ids=np.array([f"audit{turn}.{index}" for index in range(k)]),
                like=records,
            )
            edited = with_added(edited, added)
        yield k, edited


def _edit_of_turn(relation: str, turn: int) -> EditKind:
    """Return whether units are removed, added or replaced in a turn, as a relation allows.

    Units are replaced if the relation allows it. Otherwise they are removed in even turns, and
    added in odd ones if the relation allows that.

    Args:
        relation: the name of the run's relation.
        turn: counts the datasets, from 0.
    """
    kinds = kinds_of(relation)
    if EditKind.REPLACED in kinds:
        return EditKind.REPLACED
    if EditKind.COMES in kinds and turn % 2 == 1:
        return EditKind.COMES
    return EditKind.LEAVES


def _numbers(model: Model) -> NumberVotes:
    """Return the model as one whose answers are numbers, which the caller has made sure it is."""
    votes = model.number_votes
    assert votes is not None
    return votes
