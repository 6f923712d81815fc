"""Attacks on a run's certificates: neighbours are trained, and compared with the run's claims."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from agt.certificates.box import Certificates
from agt.errors import AgtError
from agt.models.model import Model
from agt.training.ensemble import assign_shards
from agt_audit.batch_plans import batches_finding
from agt_audit.certificate_counts import Claims, Counts
from agt_audit.certificate_findings import (
    CERTIFIED_LABELS,
    PARAMETERS,
    certified_labels_finding,
    pair_findings,
    parameters_finding,
)
from agt_audit.edited_records import EditedRecords
from agt_audit.editor import AttackSettings, Editor, TargetQuery
from agt_audit.lines import LabelsAndDistances, change_points
from agt_audit.model_bounds import Deviations, bounds_of, uphill
from agt_audit.neighbours import neighbour_of, neighbours_of, retrained
from agt_audit.recorded_numbers import recorded_numbers_finding
from agt_audit.relation_edits import edit_distance
from agt_cli.report.findings import Finding, exact_finding

if TYPE_CHECKING:
    from agt_audit.certificate import Certificate

MAX_WITHIN_BOUNDS = 100  # queries of ``audit_labels_within_bounds``, in addition to bisected ones
EDITS_AT_ONCE = 64  # neighbours that are made before the best of them are edited further
BEST_EDITS = 16  # neighbours with the largest deviations, which are edited further
LONG_SECONDS = 300  # a time limit from which on it is worth to start worker processes
# Names of findings, with which their subjects begin.
ON_RECORD_AGAIN = "on record"
LABELS_WITHIN_BOUNDS = "labels within bounds"
BATCHES = "batches and constants"


def inconsistent_distances(
    of_run: LabelsAndDistances, of_neighbour: LabelsAndDistances, symmetric: bool
) -> np.ndarray:
    """Return at which queries two models at distance 1 contradict each other, [n] bool.

    They do if a distance is too large by more than 1 for the other one, or if the labels differ
    although a distance above 0 rules that out.

    Args:
        of_run: labels and stable distances of the run's model.
        of_neighbour: those of the neighbour's model.
        symmetric: whether the run's dataset is also a neighbour of the other one; if not, the
            neighbour's distances claim nothing of the run's model.
    """
    label, distance = of_run
    other_label, other_distance = of_neighbour
    labels_differ = label != other_label
    if not symmetric:
        return (distance > other_distance + 1) | (labels_differ & (distance > 0))
    is_certified = (distance > 0) | (other_distance > 0)
    return (abs(distance - other_distance) > 1) | (labels_differ & is_certified)


@dataclass(frozen=True)
class TrainedNeighbour:
    """A model that was trained on a neighbouring dataset.

    Attributes:
        records: the neighbouring dataset.
        model: the model.
        deviation: the largest deviation of its parameters, as a share of the bounds.
    """

    records: EditedRecords
    model: Model
    deviation: float


class TriedEdit(NamedTuple):
    """A neighbouring dataset, and the deviation of its model, which is not kept."""

    records: EditedRecords
    deviation: float


class Auditor:
    """One audit of a saved model: it trains neighbours, and counts what contradicts a claim.

    Args:
        model: the model as it was saved; its problem has the records that it was trained on.
        extent: how much to try.
        seed: the seed of every choice.
        other_code: a clause that says which other version of agt made the run, so that training
            again may give other numbers; "": the same version did.
        on_progress: called with (how many neighbours are done, of how many).

    Attributes:
        claims: the claims that are attacked.
        counts: what was tried and found so far.
        queries: [n, ...] the queries that are asked.
        certificates: the run's certificates of these queries.
        line_ends: [m, ...] the records at which lines begin and end.
        stage_ends: the time after which the present stage starts no training.
        farthest_neighbour: the neighbour with the largest deviation;
            None: no neighbour deviated.
    """

    def __init__(
        self,
        model: Model,
        extent: "Certificate",
        seed: int,
        other_code: str = "",
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        self.model = model
        self.extent = extent
        self.other_code = other_code
        self.on_progress = on_progress
        self.rng = np.random.default_rng(seed)
        self.started = time.monotonic()
        self.stage_ends = math.inf
        self.problem = model.problem
        self.claims = Claims(self.problem)
        self.counts = Counts()
        self.farthest_neighbour: TrainedNeighbour | None = None
        dataset = self.problem.dataset
        candidates = dataset.test if len(dataset.test) > 1 else dataset.train
        shuffled = self.rng.permutation(len(candidates))
        chosen = np.sort(shuffled[: max(self.extent.queries, 2)])
        self.line_ends = np.asarray(candidates.take(chosen).features)
        self.queries = np.concatenate(
            [self.line_ends[: self.extent.queries], self.queries_at_changes(self.model)]
        )
        self.certificates = self.model.certify(self.queries)
        attack = AttackSettings.of(self.problem)
        self.editor = Editor(attack, self.rng, partial(uphill, self.model))
        self.unchanged = EditedRecords(dataset.train)

    @property
    def relation_name(self) -> str:
        """The name of the run's relation."""
        return self.problem.settings.relation.name

    def _out_of_time(self) -> bool:
        """Return whether the present stage has no time left; if so, count that it ended early."""
        is_out_of_time = time.monotonic() > self.stage_ends
        self.counts.ended_early |= is_out_of_time
        return is_out_of_time

    def run(self) -> dict[str, Finding]:
        """Make all attacks, and return a finding for each claim, under the claim's name.

        The attacks that train neighbours come first, each with an equal share of the time that is
        left when it begins. They write what they found into ``counts`` and ``farthest_neighbour``,
        from which the findings are made afterwards. All attacks draw from one random generator, so
        another order gives other neighbours for the same seed.
        """
        findings: dict[str, Finding] = {}
        stages = self._training_stages()
        if self.extent.again:
            self.share_time(1 + len(stages))  # training again takes a share of its own
            findings[ON_RECORD_AGAIN] = self._audit_recorded_numbers()
        for finished, stage in enumerate(stages):
            self.share_time(len(stages) - finished)
            stage()
        self.probe_farthest_neighbour()
        return findings | self._findings_after_training()

    def _training_stages(self) -> list[Callable[[], None]]:
        """Return the attacks that train neighbours and apply to this run's claims, in order."""
        stages = [self.attack]
        if self.claims.distances:
            stages.append(self.compare_bounds)
        if self.claims.relation.edits_whole_records:
            stages.append(self.leave_out)
        return stages

    def _audit_recorded_numbers(self) -> Finding:
        """Train the run again on its own records, and compare the result with what was saved."""
        compared = "parameters and boxes" if self.claims.has_boxes else "weights"
        return recorded_numbers_finding(self.model, self.trained_again, compared, self.other_code)

    def _findings_after_training(self) -> dict[str, Finding]:
        """Return the findings that need no further training, by the name of the claim.

        Most of them are made from ``counts``, so the attacks that train have to be done before.
        """
        claims = self.claims
        findings = {
            PARAMETERS: parameters_finding(claims, self.counts),
            CERTIFIED_LABELS: certified_labels_finding(claims, self.counts, len(self.queries)),
            LABELS_WITHIN_BOUNDS: self.audit_labels_within_bounds(),
            **pair_findings(claims, self.counts, self.other_code),
        }
        one_edit = self.editor.step(self.unchanged, self.choose_target(1)).records
        train = self.problem.dataset.train
        half_of_records = train.take(np.arange(1, len(train), 2))
        findings[BATCHES] = batches_finding(
            self.problem, (one_edit, half_of_records), f"{BATCHES}: {claims.subject}"
        )
        return findings

    def share_time(self, stages: int) -> None:
        """Set ``stage_ends`` for the stage that begins now, if there is a time limit.

        Args:
            stages: how many stages are left, this one included; they share the remaining time.
        """
        if self.extent.seconds is None:
            return
        now = time.monotonic()
        remaining = max(0.0, self.started + self.extent.seconds - now)
        self.stage_ends = now + remaining / stages

    def draw_lines(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the beginnings and the ends of random lines, [n, ...] float64 each.

        A line begins at one record of ``line_ends``, and has another one at its middle.
        """
        rows = self.rng.integers(0, len(self.line_ends), (2, 4 * self.extent.lines))
        low, high = self.line_ends[rows].astype(np.float64)
        return low, 2 * high - low

    def queries_at_changes(self, model: Model, max_k: int | None = None) -> np.ndarray:
        """Find queries at which a label of a model changes, or its certificate for some k ends.

        Args:
            model: the run's model, or a neighbour's.
            max_k: the k of each line is drawn from 1 to this; None: the lines take turns at 0 (the
                label alone), 1, ..., ``extent.farthest``.

        Returns:
            [2 m, ...] two queries on each of m <= ``extent.lines`` lines: query i lies just before
            a change, and query m + i just after it.
        """
        low, high = self.draw_lines()
        if max_k is None:
            level = np.arange(len(low)) % (self.extent.farthest + 1)
        else:
            level = self.rng.integers(1, max_k + 1, len(low))
        queries = change_points(partial(self._read, model), low, high, level)
        half = len(queries) // 2  # the other half lies on the other sides of the changes
        chosen = np.sort(self.rng.permutation(half)[: self.extent.lines])
        return queries[np.concatenate([chosen, half + chosen])]

    def _read(self, model: Model, queries: np.ndarray) -> LabelsAndDistances:
        """Return a model's labels and stable distances of queries, each [n] int64."""
        return self.claims.labels_and_distances(model.certify(queries))

    def choose_target(self, distance: int) -> TargetQuery:
        """Choose a query whose label an edit may try to change, at random.

        It is one of the 8 queries with the smallest stable distance of at least ``distance``; or,
        if no query has such a distance, one of the 8 with the smallest distances of all. Without
        queries, its features are drawn.
        """
        distances = self.certificates.stable_distance
        if not len(distances):
            return TargetQuery(self.rng.normal(size=self.editor.attack.low.size), 0)
        rows = np.flatnonzero(distances >= distance)
        if not len(rows):
            rows = np.arange(len(distances))
        barely_certified = rows[np.argsort(distances[rows], kind="stable")[:8]]
        row = int(self.rng.choice(barely_certified))
        query = self.queries[row].astype(np.float64).ravel()
        return TargetQuery(query, int(self.certificates.prediction[row]))

    def leave_out(self) -> None:
        """Train without single units, and compare the labels of all training records."""
        train = self.problem.dataset.train
        features = np.asarray(train.features)
        units = np.unique(train.units[~train.public])
        if self.extent.units is not None and len(units) > self.extent.units:
            units = np.sort(self.rng.choice(units, self.extent.units, replace=False))
        self.counts.neighbours_planned += len(units)
        certificates = self._certificates_at_first_k(features)
        edits = [EditedRecords.without_unit(train, unit) for unit in units]
        for trained in self._train(edits):
            self.counts.units_left_out += 1
            self._count_changed_labels(trained.records, trained.model, features, certificates)

    def _certificates_at_first_k(self, features: np.ndarray) -> Certificates:
        """Return certificates of queries at the smallest k of the grid above 0; at 0 if none is."""
        settings = self.problem.settings
        ks = (1,) if settings.certificate.covers_every_k else settings.kgrid.ks
        first_k = next((k for k in ks if k >= 1), 0)
        return self.model.certify(features, (first_k,))

    def attack(self) -> None:
        """Train on neighbouring datasets whose edits are chosen to change answers.

        They are made in groups of ``EDITS_AT_ONCE``. From the second group on, about half of them
        are earlier neighbours with large deviations, with one more edit.
        """
        remaining = self.extent.neighbours
        self.counts.neighbours_planned += remaining
        best: list[TriedEdit] = []
        while remaining and not self._out_of_time():
            count = min(EDITS_AT_ONCE, remaining)
            remaining -= count
            best_edits = [tried.records for tried in best]
            edits = [self._next_edit(best_edits) for _ in range(count)]
            # Models are large, so only the edits and their deviations are kept.
            best += [
                TriedEdit(trained.records, trained.deviation) for trained in self._train(edits)
            ]
            best = sorted(best, key=lambda tried: -tried.deviation)[:BEST_EDITS]

    def _next_edit(self, best: Sequence[EditedRecords]) -> EditedRecords:
        """Return the next neighbour to train on: a new one, or one of ``best`` with one more edit.

        Args:
            best: neighbours with large deviations; those at ``extent.farthest`` are not used.
        """
        extensible = [edit for edit in best if edit.distance < self.extent.farthest]
        if extensible and self.rng.random() < 0.5:
            start = extensible[int(self.rng.integers(len(extensible)))]
            repeat_last = bool(start.added) and self.rng.random() < 0.7
            return self.editor.step(start, self.choose_target(start.distance + 1), repeat_last)
        steps = 1
        if self.rng.random() < 0.3:
            steps = int(self.rng.integers(1, self.extent.farthest + 1))
        edit = self.unchanged
        for _ in range(steps):
            edit = self.editor.step(edit, self.choose_target(edit.distance + 1))
        return edit

    def _train(self, edits: Sequence[EditedRecords]) -> Iterator[TrainedNeighbour]:
        """Train on neighbours while there is time, and compare each with the run's claims.

        It changes the counts of neighbours, of deviations and of labels. A neighbour that training
        refuses is counted as refused, and not yielded.

        Args:
            edits: the neighbours.
        """
        counts = self.counts
        is_long = self.extent.seconds is None or self.extent.seconds >= LONG_SECONDS
        neighbours = neighbours_of(self.model, edits, processes=is_long)
        for done, edit in enumerate(edits):
            if self._out_of_time():
                return
            self.on_progress(done, len(edits))
            neighbour = next(neighbours)
            if isinstance(neighbour, AgtError):
                counts.refused += 1
                counts.refusal_reasons[str(neighbour)] += 1
                continue
            largest_before = counts.largest_deviation
            deviation = counts.add_neighbour(edit, self._deviations(edit, neighbour))
            trained = TrainedNeighbour(edit, neighbour, deviation)
            if deviation > largest_before:
                self.farthest_neighbour = trained
            self._count_changed_labels(edit, neighbour, self.queries, self.certificates)
            yield trained
        self.on_progress(len(edits), len(edits))

    def _deviations(self, edit: EditedRecords, neighbour: Model) -> Deviations:
        """Return each parameter's largest deviation, and count members that were not compared.

        The deviation is the largest over all members that the edit changes. Members at a distance
        for which the run has no bounds are counted (``unreached``) and left out, so the result may
        be empty.

        Args:
            edit: the neighbour.
            neighbour: the model that was trained on it.
        """
        largest = Deviations()
        for member, k in self._changed_members(edit).items():
            run_member = self.model.member_models[member]
            deviations = bounds_of(run_member).deviations(
                run_member, neighbour.member_models[member], k
            )
            if deviations is None:
                self.counts.unreached += 1
                continue
            for name, deviation in deviations.items():
                largest[name] = max(deviation, largest.get(name, 0.0))
        return largest

    def _changed_members(self, edit: EditedRecords) -> dict[int, int]:
        """Return the members whose records an edit changes: index -> distance k of its records.

        A model that is no ensemble is member 0.
        """
        if not self.problem.settings.ensembled:
            return {0: edit_distance(edit, self.relation_name)}
        ensemble = self.problem.settings.ensemble
        shard_of_removed = assign_shards(edit.original.units[edit.removed_rows], ensemble)
        shard_of_added = [int(assign_shards(unit.units[:1], ensemble)[0]) for unit in edit.added]
        distances = {}
        for member in sorted({*shard_of_removed.tolist(), *shard_of_added}):
            removed_rows = edit.removed_rows[shard_of_removed == member]
            units = zip(edit.added, shard_of_added, strict=True)
            added = tuple(unit for unit, shard in units if shard == member)
            of_member = replace(edit, removed_rows=removed_rows, added=added)
            distances[member] = edit_distance(of_member, self.relation_name)
        return distances

    def _count_changed_labels(
        self,
        edit: EditedRecords,
        neighbour: Model,
        queries: np.ndarray,
        certificates: Certificates,
    ) -> None:
        """Compare certified labels with a neighbour's, and count those that differ.

        Args:
            edit: the neighbour.
            neighbour: the model that was trained on it.
            queries: [n, ...] the queries to ask.
            certificates: the run's certificates of these queries.
        """
        if not len(queries):
            return
        k = max(1, edit_distance(edit, self.relation_name))
        is_certified = certificates.stable_distance >= k
        differs = certificates.prediction != neighbour.predict(queries)
        self.counts.add_labels(edit, k, is_certified, differs)

    def compare_bounds(self) -> None:
        """Train on neighbours at distance 1 with all bounds, and compare these with the run's.

        Boxes must nest, and stable distances may differ by at most 1. If another version of agt
        made the run, its bounds may be sound but wider than this version's, so the neighbours are
        compared with a model that this version trains again.
        """
        self.counts.pairs_planned = self.extent.bounded
        model = self.trained_again if self.other_code else self.model
        for done in range(self.extent.bounded):
            if self._out_of_time():
                return
            self.on_progress(done, self.extent.bounded)
            edit = self.editor.step(self.unchanged, self.choose_target(1))
            try:
                neighbour = neighbour_of(model, edit.records)
            except AgtError as error:
                self.counts.refusal_reasons[str(error)] += 1
                continue
            self.counts.pairs += 1
            if self.claims.nesting:
                self._count_nesting(model, neighbour)
            queries = self.queries
            if len(queries):
                queries = np.concatenate([queries, self.queries_at_changes(neighbour)])
                run_values = self._read(model, queries)
                other = self._read(neighbour, queries)
                symmetric = self.claims.relation.symmetric
                inconsistent = inconsistent_distances(run_values, other, symmetric)
                self.counts.answers_compared += len(queries)
                self.counts.answers_inconsistent += int(inconsistent.sum())

    def _count_nesting(self, model: Model, neighbour: Model) -> None:
        """Count the ends of a neighbour's boxes that lie outside of the model's, in all members.

        If the relation is symmetric, the model's ends are compared with the neighbour's, too.
        """
        for run_member, neighbour_member in zip(
            model.member_models, neighbour.member_models, strict=True
        ):
            directions = [(run_member, neighbour_member)]
            if self.claims.relation.symmetric:
                directions.append((neighbour_member, run_member))
            for outer, inner in directions:
                outside_count, compared = bounds_of(run_member).ends_outside(outer, inner)
                self.counts.ends_outside += outside_count
                self.counts.ends_compared += compared

    def audit_labels_within_bounds(self) -> Finding:
        """Test labels at parameters that are moved as far as the bounds for a distance k allow.

        Perhaps no neighbour reaches these parameters, but the certificate covers them. Ensembles
        are not tested, because each member has bounds of its own.
        """
        if self.problem.settings.ensembled:
            return self._within_bounds_finding(
                queries=0,
                changed=None,
                meaning=(
                    "this claim was not tested, because each member of this ensemble has bounds "
                    "of its own"
                ),
            )
        queries, distances = self._queries_within_bounds()
        if not len(queries):
            return self._within_bounds_finding(
                queries=0,
                changed=None,
                meaning=(
                    "this claim was not tested, because no query has a stable distance of 1 or more"
                ),
            )
        is_changed = bounds_of(self.model).labels_changed(self.model, queries, distances)
        changed = int(is_changed.sum())
        return self._within_bounds_finding(
            queries=len(queries),
            changed=changed,
            meaning=(
                f"{changed} of {len(queries)} labels change for some parameters that are within "
                "the bounds for the label's stable distance"
            ),
        )

    def _within_bounds_finding(self, queries: int, changed: int | None, meaning: str) -> Finding:
        """Return the finding about labels at parameters within the bounds.

        Args:
            queries: how many queries were tested.
            changed: how many of their labels changed; None: the claim was not tested.
            meaning: what was found, or why nothing was tested.
        """
        return exact_finding(
            subject=f"{LABELS_WITHIN_BOUNDS}: {self.claims.subject}",
            claim=(
                "a label with stable distance L is the same for all parameters within the run's "
                "bounds for k = L"
            ),
            attack=(
                "the parameters were moved as far as their bounds allow, towards a change of the "
                "label. Some queries lie where the stable distance changes (found by bisection)"
            ),
            effort=f"{queries} queries",
            measure="labels that change",
            found=changed,
            meaning=meaning,
            noticeable=(
                "this audit detects a single label that changes. For a linear model, it also "
                "detects a stable distance that is too large by more than its rounding"
            ),
        )

    def _queries_within_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return certified queries [n, ...] and a distance k at which each is certified, [n]."""
        queries = self.queries[-MAX_WITHIN_BOUNDS:]
        max_k = self.model.max_distance
        farthest = int(self.certificates.stable_distance.max(initial=0))
        if farthest:
            at_changes = self.queries_at_changes(self.model, min(farthest, max_k))
            queries = np.concatenate([queries, at_changes])
        distances = np.minimum(self.model.certify(queries).stable_distance, max_k)
        is_certified = distances >= 1
        return queries[is_certified], distances[is_certified]

    def probe_farthest_neighbour(self) -> None:
        """Ask the farthest neighbour for labels that are barely certified at its distance.

        The counts of certified labels are updated.
        """
        if self.farthest_neighbour is None or self._out_of_time():
            return
        edit = self.farthest_neighbour.records
        neighbour = self.farthest_neighbour.model
        k = max(1, edit_distance(edit, self.relation_name))
        low, high = self.draw_lines()
        # every line in both directions, as bisection finds the change that is nearest to its
        # beginning
        both_low = np.concatenate([low, high])
        both_high = np.concatenate([high, low])
        levels = np.full(2 * len(low), k)
        queries = change_points(partial(self._read, self.model), both_low, both_high, levels)
        if len(queries):
            certificates = self.model.certify(queries)
            self._count_changed_labels(edit, neighbour, queries, certificates)

    @cached_property
    def trained_again(self) -> Model:
        """The model that this agt trains on the run's own records, at the first read of it."""
        records = self.problem.dataset.train
        if self.model.stores_noise:  # ``retrained`` would draw new noise
            return neighbour_of(self.model, records)
        return retrained(self.problem, records)
