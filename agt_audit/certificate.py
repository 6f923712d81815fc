"""agt audit certificate: models are trained on neighbouring datasets of a run, and compared with
every claim of the run's certificates.

The model is audited as it was saved. A violation is a counterexample, which is certain if the
conditions of the claim hold. That none was found is no proof, so the audit reports how close the
neighbours came to their bounds, and by how much a bound must be too narrow to be detected.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice

import numpy as np
import pandas as pd

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.data.records import Records
from agt.errors import AgtError, ConfigError, counted
from agt.facts import Standing
from agt.models.model import Model
from agt.relations import RELATIONS
from agt.settings import MAX_ROWS, schema
from agt.training.batches import BatchPlan
from agt.training.ensemble import assign_shards
from agt_audit.intervals import audit_intervals
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import CertificateSettings
from agt_audit.model_bounds import Deviations, bounds_of, uphill
from agt_audit.neighbours import (
    AttackSettings,
    EditedRecords,
    EditKind,
    Editor,
    TargetQuery,
    bisected,
    edits_of,
    kinds_of,
    neighbour_of,
    neighbouring,
    neighbours_of,
    on_line,
    retrained,
)
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome, Strength, exact_finding
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun

CODE_KEYS = ("agt", "revision")  # keys of env.json that name the version of agt
MAX_WITHIN_BOUNDS = 100  # queries of ``audit_labels_within_bounds``, in addition to bisected ones
ALLOWED_DRIFT = {"float64": 1e-6, "float32": 2e-3}
"""Dtype -> the largest difference, in widths of a box, between ends of boxes that were trained on
two processors.
"""
MAX_REFUSALS_SHOWN = 3
EDITS_AT_ONCE = 64  # neighbours that are made before the best of them are edited further
BEST_EDITS = 16  # neighbours with the largest deviations, which are edited further
LONG_SECONDS = 300  # a time limit from which on it is worth to start worker processes
NESTING_CLAIM = (
    "if D and D' are neighbouring datasets, the parameter bounds computed on D' for distance k - 1 "
    "lie within those computed on D for distance k"
)
# Names of findings, with which their subjects begin.
ON_RECORD_AGAIN = "on record"
PARAMETERS = "parameters"
CERTIFIED_LABELS = "certified labels"
LABELS_WITHIN_BOUNDS = "labels within bounds"
MEMORISATION = "memorisation of certified records"
NESTING_BOXES = "nesting"
STABLE_DISTANCES = "stable distances"
BATCHES = "batches and constants"
LabelsAndDistances = tuple[np.ndarray, np.ndarray]
"""Labels [n] and stable distances [n] of n queries."""
EditAndDistance = tuple[str, int]
"""The description of an edit, and the distance k of its neighbour."""


# -- queries
# --------------------------------------------------------------------------------------------------


def change_points(
    read: Callable[[np.ndarray], LabelsAndDistances],
    low: np.ndarray,
    high: np.ndarray,
    level: np.ndarray,
) -> np.ndarray:
    """Find queries on lines at which the label changes or a certificate ends, by bisection.

    Args:
        read: queries -> their labels and stable distances.
        low: [n, ...] where the lines begin.
        high: [n, ...] where they end.
        level: [n] which change to find on each line. 0: of the label. Otherwise: of the label, or
            of whether the stable distance is at least this.

    Returns:
        [2 m, ...] two queries for each of the m lines whose ends differ: query i lies just before
        a change, and query m + i just after it.
    """

    def label_and_certified(queries: np.ndarray, level: np.ndarray) -> np.ndarray:
        label, distance = read(queries)
        return 2 * label + ((distance >= level) & (level > 0))

    changes = label_and_certified(low, level) != label_and_certified(high, level)
    rows = np.flatnonzero(changes)
    low = low[rows]
    high = high[rows]
    if not len(rows):
        return low
    before, after = bisected(partial(label_and_certified, level=level[rows]), low, high)
    return np.concatenate([on_line(low, high, before), on_line(low, high, after)])


def inconsistent_distances(
    own: LabelsAndDistances, other: LabelsAndDistances, symmetric: bool
) -> np.ndarray:
    """Return at which queries two models at distance 1 contradict each other, [n] bool.

    They do if a distance is too large by more than 1 for the other one, or if the labels differ
    although a distance above 0 rules that out.

    Args:
        own: labels and stable distances of the run's model.
        other: those of the neighbour's model.
        symmetric: whether the run's dataset is also a neighbour of the other one; if not, the
            neighbour's distances claim nothing of the run's model.
    """
    label, distance = own
    other_label, other_distance = other
    labels_differ = label != other_label
    if not symmetric:
        return (distance > other_distance + 1) | (labels_differ & (distance > 0))
    is_certified = (distance > 0) | (other_distance > 0)
    return (abs(distance - other_distance) > 1) | (labels_differ & is_certified)


def edit_distance(edit: EditedRecords, relation: str) -> int:
    """Return the distance k of a neighbour, from the units that were removed and added.

    It is at most ``edit.distance``, which counts edits; some edits may have changed nothing.
    """
    removed = len(np.unique(edit.original.units[edit.removed_rows]))
    added = len(edit.added)
    only_removes_or_adds = kinds_of(relation) <= {EditKind.LEAVES, EditKind.COMES}
    # If one k replaces or changes a unit, it both removes and adds one.
    changes = removed + added if only_removes_or_adds else max(removed, added)
    changes_per_k = max(len(steps) for steps in edits_of(relation))
    return math.ceil(changes / changes_per_k)


# -- the audit
# --------------------------------------------------------------------------------------------------


@schema
class Certificate(CertificateSettings, AuditKind):
    """Audits the certificates of a run; its settings say how much is tried.

    Attributes:
        units: how many units are left out of training, one at a time, drawn at random if there are
            more; None: all.
        neighbours: how many neighbouring datasets to make by edits that are chosen to change
            answers, at distances from 1 to ``farthest``.
        farthest: the largest distance k of these.
        bounded: on how many neighbouring datasets to train with all bounds.
        queries: how many test records to ask.
        lines: on how many lines between test records to search changes of labels and certificates.
        seconds: no training starts after so many seconds; None: no limit.
        again: whether to train the run itself again, with its bounds.
    """

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Open the run with its data, make all attacks, and return the findings.

        Raises:
            DataMissing: the run's data is missing.
            ConfigError: the data was changed, or the run's training used noise without a seed.
        """
        opened = given.open(record, console)
        if opened.model.number_votes is not None:
            return self._audit_intervals(opened, given.seed)
        model = opened.model
        noise = model.problem.settings.noise
        if noise is not None and noise.seed is None:
            raise ConfigError(
                "noise.seed=null: the noise of this run was not stored, so models of "
                "neighbouring datasets cannot be trained with the same noise. Train a run with "
                "the same settings and noise.seed=NUMBER, then audit that run"
            )
        usable = max(model.max_distance, 1)
        if self.farthest > usable:
            console.note(
                f"audit.farthest={self.farthest} exceeds {model.max_distance}, the largest "
                "distance k for which this run has bounds, so datasets that are farther away "
                f"are not used: set audit.farthest={usable} or less"
            )
        run_environment = opened.trained.finished.environment
        audit_environment = Run.at(record.folder).environment
        other_code = _code_differences(run_environment, audit_environment)
        with console.progress("certificate audit", "neighbour") as report:

            def on_progress(done: int, total: int) -> None:
                report(done, total, done, total)

            auditor = Auditor(model, self, given.seed, other_code, on_progress)
            findings = auditor.run()
        conditions = map(_condition_sentence, opened.conditions)
        metrics = {
            "neighbours": auditor.neighbours_trained,
            "deviation": auditor.largest_deviation,
            "pairs": auditor.pairs,
        }
        return Audited.of(
            opened.trained.finished,
            findings.values(),
            (*auditor.notes(), *conditions),
            tables=auditor.tables(),
            metrics=metrics,
        )

    def _audit_intervals(self, opened: OpenedRun, seed: int) -> Audited:
        """Audit a run whose answers are numbers, and whose certificates are intervals.

        Args:
            opened: the run.
            seed: of the choice of queries and edits.
        """
        model = opened.model
        dataset = model.problem.dataset
        candidates = dataset.test if len(dataset.test) else dataset.train
        shuffled = np.random.default_rng(seed).permutation(len(candidates))
        rows = np.sort(shuffled[: max(self.queries, 1)])
        queries = np.asarray(candidates.take(rows).features)
        counts = audit_intervals(model, queries, self.neighbours, self.farthest, seed, self.seconds)
        settings = model.problem.settings
        members = settings.ensemble.members
        subject = (
            f"certificate={settings.certificate.name}, relation={settings.relation.name}, "
            f"{members} members"
        )
        return Audited.of(
            opened.trained.finished,
            tuple(counts.findings(subject, len(queries)).values()),
            map(_condition_sentence, opened.conditions),
            metrics={"neighbours": counts.neighbours},
        )


def _code_differences(
    run_environment: Mapping[str, object], audit_environment: Mapping[str, object]
) -> str:
    """Return a clause that says which other version of agt made a run; "": the same version did.

    Args:
        run_environment: the content of the run's env.json.
        audit_environment: the content of this audit's env.json.
    """
    differences = []
    for key in CODE_KEYS:
        old_value = run_environment.get(key)
        new_value = audit_environment.get(key)
        if old_value != new_value:
            differences.append(f"{key}={old_value} in the run, {key}={new_value} in this audit")
    if not differences:
        return ""
    listed = "; ".join(differences)
    return f"the run was made by another version of agt ({listed})"


def _condition_sentence(condition: Condition) -> str:
    """Return a sentence with a condition's status and the reason for it.

    The reason of a declared condition says itself that it is declared, so its status is left out.
    """
    reason = f"{condition.standing}: {condition.why}"
    if condition.standing is Standing.DECLARED:
        reason = condition.why
    return f"condition {condition.letter} ({condition.name}): {reason}"


class Auditor:
    """One audit of a saved model: it trains neighbours, and counts what contradicts a claim.

    Args:
        model: the model as it was saved; its problem has the records that it was trained on.
        extent: how much to try.
        seed: of every choice.
        other_code: a clause that says which other version of agt made the run, so that training
            again may give other numbers; "": the same version did.
        on_progress: called with (how many neighbours are done, of how many).

    Attributes:
        queries: [n, ...] the queries that are asked.
        certificates: the run's certificates of these queries.
        line_ends: [m, ...] the records at which lines begin and end.
        has_boxes: whether certificates bound each parameter by a box.
        only_changes: whether edits change records in place, and remove or add none.
        dense: whether the run has bounds for every k up to its largest one.
        stage_ends: the time after which the present stage starts no training.
        ended_early: whether a stage was ended by the time limit.
        planned: edit and distance -> how many neighbours were to be trained.
        refused: edit and distance -> how many neighbours training refused.
        refusal_reasons: message of training -> how often it refused a neighbour with it.
        edit_deviations: edit and distance -> the deviation of each trained neighbour.
        farthest_neighbour: the edit and the model of the neighbour with the largest deviation;
            None: no neighbour deviated.
        parameter_deviations: name of a parameter -> its largest deviation of all neighbours.
        bound_violations: a clause for each neighbour whose parameters left their bounds.
        labels_compared: how many certified labels were compared with a neighbour's label.
        labels_changed: how many of them differ.
        label_violations: a clause for each neighbour that changed a certified label.
        units_left_out: how many units were left out of training, one at a time.
        memorised: (is certified, memorisation) for each record of these units. Memorisation is 1 if
            only the model with the record labels it correctly, -1 if only the one without it does,
            and 0 otherwise.
        unreached: how many members of neighbours were not compared, because the run has no bounds
            for their distance.
        pairs: how many neighbours were trained with all their bounds.
        ends_compared: how many ends of boxes were compared between the run and these neighbours.
        ends_outside: how many of them lie outside of the other's box.
        answers_compared: how many answers of these neighbours were compared with the run's.
        answers_inconsistent: how many of them contradict the run's (``inconsistent_distances``).

    A deviation is how far a parameter of a neighbour's model lies from the run's, divided by the
    bound for the neighbour's distance: above 1, it violates the bound.
    """

    def __init__(
        self,
        model: Model,
        extent: Certificate,
        seed: int,
        other_code: str = "",
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        self.model = model
        self.extent = extent
        self.other_code = other_code
        self.on_progress = on_progress
        self.rng = np.random.default_rng(seed)
        self._reset_counts()
        self.started = time.monotonic()
        self.stage_ends = math.inf
        self.ended_early = False
        self.problem = model.problem
        settings = self.problem.settings
        dataset = self.problem.dataset
        self.certificate = settings.certificate
        self.relation = settings.relation.name
        self.symmetric = RELATIONS[self.relation].symmetric
        self.has_boxes = self.certificate.bounded == "each parameter"
        self.only_changes = not RELATIONS[self.relation].edits_whole_records
        ks = settings.kgrid.ks
        self.dense = self.certificate.covers_every_k or ks == tuple(range(len(ks)))
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
        self.subject = f"certificate={self.certificate.name}, relation={self.relation}"
        members = settings.ensemble.members
        if members != 1:
            self.subject = f"{self.subject}, {members} members"

    def _reset_counts(self) -> None:
        """Set every count to 0, and every list of results to an empty one."""
        self.planned = Counter[EditAndDistance]()
        self.refused = Counter[EditAndDistance]()
        self.refusal_reasons = Counter[str]()
        self.edit_deviations: dict[EditAndDistance, list[float]] = defaultdict(list)
        self.farthest_neighbour: tuple[EditedRecords, Model] | None = None
        self.parameter_deviations = Deviations()
        self.bound_violations = list[str]()
        self.labels_compared = 0
        self.labels_changed = 0
        self.label_violations = list[str]()
        self.units_left_out = 0
        self.memorised = list[tuple[bool, int]]()
        self.unreached = 0
        self.pairs = 0
        self.ends_compared = 0
        self.ends_outside = 0
        self.answers_compared = 0
        self.answers_inconsistent = 0

    def labels_and_distances(self, certificates: Certificates) -> LabelsAndDistances:
        """Return labels and stable distances; of a grid that is not dense, steps of the grid."""
        if self.dense:
            return certificates.prediction, certificates.stable_distance
        return certificates.prediction, certificates.grid_steps

    @property
    def largest_deviation(self) -> float:
        """The largest deviation of all parameters of all neighbours; 0 if none was trained."""
        return max(self.parameter_deviations.values(), default=0.0)

    @property
    def neighbours_trained(self) -> int:
        """The number of neighbours that were trained without bounds."""
        return sum(map(len, self.edit_deviations.values()))

    @property
    def distances_claimed(self) -> bool:
        """Whether stable distances at distance 1 are claimed to differ by at most 1."""
        return self.certificate.distances_differ_by_one(self.problem.settings)

    @property
    def nesting_claimed(self) -> bool:
        """Whether boxes of neighbours are claimed to lie within the run's (``NESTING_CLAIM``)."""
        return self.has_boxes and self.dense and self.distances_claimed

    def _out_of_time(self) -> bool:
        """Return whether the present stage has no time left; if so, set ``ended_early``."""
        is_out_of_time = time.monotonic() > self.stage_ends
        self.ended_early |= is_out_of_time
        return is_out_of_time

    def run(self) -> dict[str, Finding]:
        """Make all attacks, and return the finding of each claim, under the claim's name.

        Each stage gets an equal share of the time that is left when it begins. What comes after the
        stages uses the neighbours that they trained.
        """
        findings: dict[str, Finding] = {}
        stages = [self.attack]
        if self.distances_claimed:
            stages.append(self.compare_bounds)
        if not self.only_changes:
            stages.append(self.leave_out)
        if self.extent.again:
            self.share_time(len(stages) + 1)
            findings[ON_RECORD_AGAIN] = self.compare_with_training_again()
        for index, stage in enumerate(stages):
            self.share_time(len(stages) - index)
            stage()
        self.probe_farthest_neighbour()
        labels_within_bounds = self.audit_labels_within_bounds()
        batches = self.compare_batches()
        findings[PARAMETERS] = self._parameters_finding()
        findings[CERTIFIED_LABELS] = self._certified_labels_finding()
        findings[LABELS_WITHIN_BOUNDS] = labels_within_bounds
        if not self.only_changes:
            findings[MEMORISATION] = self._memorisation_finding()
        findings |= self._pair_findings()
        findings[BATCHES] = batches
        return findings

    def share_time(self, stages: int) -> None:
        """Set the end of the stage that begins now, if there is a time limit.

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
            [2 m, ...] as of ``change_points``, from m <= ``extent.lines`` lines.
        """
        low, high = self.draw_lines()
        if max_k is None:
            level = np.arange(len(low)) % (self.extent.farthest + 1)
        else:
            level = self.rng.integers(1, max_k + 1, len(low))

        def read(queries: np.ndarray) -> LabelsAndDistances:
            return self.labels_and_distances(model.certify(queries))

        found = change_points(read, low, high, level)
        half = len(found) // 2  # the other half lies on the other sides of the changes
        chosen = np.sort(self.rng.permutation(half)[: self.extent.lines])
        return found[np.concatenate([chosen, half + chosen])]

    def choose_target(self, distance: int) -> TargetQuery:
        """Choose a query whose label an edit may try to change, at random.

        It is one of the 8 queries with the smallest stable distance of at least ``distance``; or,
        if no query has such a distance, one of the 8 with the smallest distances of all. Without
        queries, its features are drawn.
        """
        distances = self.certificates.stable_distance
        if not len(distances):
            return TargetQuery(self.rng.normal(size=self.editor.attack.low.size), 0)
        rows = np.arange(len(distances))
        if (distances >= distance).any():
            rows = np.flatnonzero(distances >= distance)
        barely_certified = rows[np.argsort(distances[rows], kind="stable")[:8]]
        row = int(self.rng.choice(barely_certified))
        query = self.queries[row].astype(np.float64).ravel()
        return TargetQuery(query, int(self.certificates.prediction[row]))

    # -- neighbours
    # ----------------------------------------------------------------------------------------------

    def leave_out(self) -> None:
        """Train without single units, and compare the labels of all training records.

        Certified labels that change are counted, and memorisation of the units' own records is
        recorded (``memorised``).
        """
        train = self.problem.dataset.train
        features = np.asarray(train.features)
        units = np.unique(train.units[~train.public])
        if self.extent.units is not None and len(units) > self.extent.units:
            units = np.sort(self.rng.choice(units, self.extent.units, replace=False))
        certificates = self._certificates_at_first_k(features)
        is_certified = certificates.stable_distance >= 1
        is_right = self.model.predict(features) == train.labels
        edits = [EditedRecords.without_unit(train, unit) for unit in units]
        for edit, neighbour, _ in self._train(edits):
            self.units_left_out += 1
            self._count_changed_labels(edit, neighbour, features, certificates)
            rows = edit.removed_rows
            is_right_without = neighbour.predict(features[rows]) == train.labels[rows]
            memorisation = is_right[rows].astype(int) - is_right_without.astype(int)
            self.memorised += zip(is_certified[rows].tolist(), memorisation.tolist(), strict=True)

    def _certificates_at_first_k(self, features: np.ndarray) -> Certificates:
        """Return certificates of queries at the smallest k of the grid above 0; at 0 if none is."""
        ks = (1,) if self.certificate.covers_every_k else self.problem.settings.kgrid.ks
        first_k = next((k for k in ks if k >= 1), 0)
        return self.model.certify(features, (first_k,))

    def attack(self) -> None:
        """Train on neighbouring datasets whose edits are chosen to change answers.

        They are made in groups of ``EDITS_AT_ONCE``. From the second group on, about half of them
        are earlier neighbours with large deviations, with one more edit.
        """
        remaining = self.extent.neighbours
        best: list[tuple[float, EditedRecords]] = []  # deviation and edit
        while remaining and not self._out_of_time():
            count = min(EDITS_AT_ONCE, remaining)
            remaining -= count
            best_edits = [edit for _, edit in best]
            edits = [self._next_edit(best_edits) for _ in range(count)]
            best += [(deviation, edit) for edit, _, deviation in self._train(edits)]
            best = sorted(best, key=lambda pair: -pair[0])[:BEST_EDITS]

    def _next_edit(self, best: Sequence[EditedRecords]) -> EditedRecords:
        """Return the next neighbour to train on: a new one, or one of ``best`` with one more edit.

        Args:
            best: neighbours with large deviations; those at ``extent.farthest`` are not used.
        """
        extensible = [edit for edit in best if edit.distance < self.extent.farthest]
        if extensible and self.rng.random() < 0.5:
            start = extensible[int(self.rng.integers(len(extensible)))]
            if start.added and self.rng.random() < 0.7:
                return self.editor.add_copy_of_last_unit(start)
            return self.editor.step(start, self.choose_target(start.distance + 1))
        steps = 1
        if self.rng.random() < 0.3:
            steps = int(self.rng.integers(1, self.extent.farthest + 1))
        edit = self.unchanged
        for _ in range(steps):
            edit = self.editor.step(edit, self.choose_target(edit.distance + 1))
        return edit

    def _train(
        self, edits: Sequence[EditedRecords]
    ) -> Iterator[tuple[EditedRecords, Model, float]]:
        """Train on neighbours while there is time, and compare each with the run's claims.

        It changes the counts of neighbours, of deviations and of labels. A neighbour that training
        refuses is counted as refused, and not yielded.

        Args:
            edits: the neighbours.

        Yields:
            A neighbour, its model, and its largest deviation.
        """
        self.planned.update(map(edit_and_distance, edits))
        is_long = self.extent.seconds is None or self.extent.seconds >= LONG_SECONDS
        neighbours = neighbours_of(self.model, edits, processes=is_long)
        for done, edit in enumerate(edits):
            if self._out_of_time():
                return
            self.on_progress(done, len(edits))
            neighbour = next(neighbours)
            if isinstance(neighbour, AgtError):
                self.refused[edit_and_distance(edit)] += 1
                self.refusal_reasons[str(neighbour)] += 1
                continue
            largest_before = self.largest_deviation
            deviation = self._record_deviation(edit, neighbour)
            self.edit_deviations[edit_and_distance(edit)].append(deviation)
            if deviation > largest_before:
                self.farthest_neighbour = (edit, neighbour)
            self._count_changed_labels(edit, neighbour, self.queries, self.certificates)
            yield edit, neighbour, deviation
        self.on_progress(len(edits), len(edits))

    def _record_deviation(self, edit: EditedRecords, neighbour: Model) -> float:
        """Record the deviations of a neighbour's parameters, and return the largest one.

        It updates ``parameter_deviations``, ``unreached`` and ``bound_violations``.

        Args:
            edit: the neighbour.
            neighbour: the model that was trained on it.

        Returns:
            The largest deviation of all parameters of all members; 0 if none was compared.
        """
        deviations = Deviations()
        for member, k in self._changed_members(edit).items():
            own = self.model.member_models[member]
            of_member = bounds_of(own).deviations(own, neighbour.member_models[member], k)
            if of_member is None:
                self.unreached += 1
                continue
            # of an ensemble, the names are the last changed member's, as all members have the same
            deviations = {
                name: max(deviation, deviations.get(name, 0.0))
                for name, deviation in of_member.items()
            }
        for name, deviation in deviations.items():
            largest_before = self.parameter_deviations.get(name, 0.0)
            self.parameter_deviations[name] = max(largest_before, deviation)
        if not deviations:
            return 0.0
        name, largest = max(
            deviations.items(), key=lambda name_and_deviation: name_and_deviation[1]
        )
        if largest > 1:
            edits = ", ".join(edit.edits)
            self.bound_violations.append(
                f"the parameters '{name}' left their bound on a neighbouring dataset at distance "
                f"{edit.distance} (made by these edits: {edits})"
            )
        return largest

    def _changed_members(self, edit: EditedRecords) -> dict[int, int]:
        """Return the members whose records an edit changes: index -> distance k of its records.

        A model that is no ensemble is member 0.
        """
        if not self.problem.settings.ensembled:
            return {0: edit_distance(edit, self.relation)}
        ensemble = self.problem.settings.ensemble
        shard_of_removed = assign_shards(edit.original.units[edit.removed_rows], ensemble)
        shard_of_added = [int(assign_shards(unit.units[:1], ensemble)[0]) for unit in edit.added]
        distances = {}
        for member in sorted({*shard_of_removed.tolist(), *shard_of_added}):
            removed_rows = edit.removed_rows[shard_of_removed == member]
            units = zip(edit.added, shard_of_added, strict=True)
            added = tuple(unit for unit, shard in units if shard == member)
            of_member = replace(edit, removed_rows=removed_rows, added=added)
            distances[member] = edit_distance(of_member, self.relation)
        return distances

    def _count_changed_labels(
        self,
        edit: EditedRecords,
        neighbour: Model,
        queries: np.ndarray,
        certificates: Certificates,
    ) -> None:
        """Compare certified labels with a neighbour's, and count those that differ.

        It updates ``labels_compared``, ``labels_changed`` and ``label_violations``.

        Args:
            edit: the neighbour.
            neighbour: the model that was trained on it.
            queries: [n, ...] the queries to ask.
            certificates: the run's certificates of these queries.
        """
        if not len(queries):
            return
        k = max(1, edit_distance(edit, self.relation))
        is_certified = certificates.stable_distance >= k
        differs = certificates.prediction != neighbour.predict(queries)
        count = int((is_certified & differs).sum())
        self.labels_compared += int(is_certified.sum())
        self.labels_changed += count
        if count:
            edits = ", ".join(edit.edits)
            changed_labels = counted(count, "label")
            self.label_violations.append(
                f"{changed_labels} changed on a neighbouring dataset at distance {k} (made by "
                f"these edits: {edits})"
            )

    # -- neighbours with all their bounds
    # ----------------------------------------------------------------------------------------------

    def compare_bounds(self) -> None:
        """Train on neighbours at distance 1 with all bounds, and compare these with the run's.

        Boxes must nest, and stable distances may differ by at most 1. If another version of agt
        made the run, its bounds may be sound but wider than this version's, so the neighbours are
        compared with a model that this version trains again.
        """
        model = self.trained_again if self.other_code else self.model
        for done in range(self.extent.bounded):
            if self._out_of_time():
                return
            self.on_progress(done, self.extent.bounded)
            edit = self.editor.step(self.unchanged, self.choose_target(1))
            try:
                neighbour = neighbour_of(model, edit.records)
            except AgtError as error:
                self.refusal_reasons[str(error)] += 1
                continue
            self.pairs += 1
            if self.nesting_claimed:
                self._count_nesting(model, neighbour)
            queries = self.queries
            if len(queries):
                queries = np.concatenate([queries, self.queries_at_changes(neighbour)])
                own = self.labels_and_distances(model.certify(queries))
                other = self.labels_and_distances(neighbour.certify(queries))
                inconsistent = inconsistent_distances(own, other, self.symmetric)
                self.answers_compared += len(queries)
                self.answers_inconsistent += int(inconsistent.sum())

    def _count_nesting(self, model: Model, neighbour: Model) -> None:
        """Count the ends of a neighbour's boxes that lie outside of the model's, in all members.

        If the relation is symmetric, the model's ends are compared with the neighbour's, too.
        """
        for own, other in zip(model.member_models, neighbour.member_models, strict=True):
            directions = [(own, other)]
            if self.symmetric:
                directions.append((other, own))
            for outer, inner in directions:
                outside, compared = bounds_of(own).ends_outside(outer, inner)
                self.ends_outside += outside
                self.ends_compared += compared

    def audit_labels_within_bounds(self) -> Finding:
        """Test labels at parameters that are moved as far as the bounds for a distance k allow.

        Perhaps no neighbour reaches these parameters, but the certificate covers them. Ensembles
        are not tested, because each member has bounds of its own.
        """
        query_count = 0
        changed = 0
        meaning = (
            "this claim was not tested, because each member of this ensemble has bounds of its own"
        )
        if not self.problem.settings.ensembled:
            meaning = (
                "this claim was not tested, because no query has a stable distance of 1 or more"
            )
            queries, distances = self._queries_within_bounds()
            query_count = len(queries)
            changed = int(
                bounds_of(self.model).labels_changed(self.model, queries, distances).sum()
            )
        if query_count:
            meaning = (
                f"{changed} of {query_count} labels change for some parameters that are within the "
                "bounds for the label's stable distance"
            )
        return exact_finding(
            subject=f"{LABELS_WITHIN_BOUNDS}: {self.subject}",
            claim=(
                "a label with stable distance L is the same for all parameters within the run's "
                "bounds for k = L"
            ),
            attack=(
                "the parameters were moved as far as their bounds allow, towards a change of the "
                "label. Some queries lie where the stable distance changes (found by bisection)"
            ),
            effort=f"{query_count} queries",
            measure="labels that change",
            found=float(changed) if query_count else None,
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
        edit, neighbour = self.farthest_neighbour
        k = max(1, edit_distance(edit, self.relation))
        low, high = self.draw_lines()

        def read(queries: np.ndarray) -> LabelsAndDistances:
            return self.labels_and_distances(self.model.certify(queries))

        # every line in both directions, as bisection finds the change that is nearest to its
        # beginning
        both_low = np.concatenate([low, high])
        both_high = np.concatenate([high, low])
        queries = change_points(read, both_low, both_high, np.full(2 * len(low), k))
        if len(queries):
            certificates = self.model.certify(queries)
            self._count_changed_labels(edit, neighbour, queries, certificates)

    def compare_batches(self) -> Finding:
        """Compare the run's constants, batches and shards with those of two other datasets.

        One is at distance 1, the other has half of the records. A record's batch and shard may
        depend on that record only, and constants on no record.
        """
        train = self.problem.dataset.train
        wrong_constants = 0
        moved = 0
        one_edit = self.editor.step(self.unchanged, self.choose_target(1))
        half_removed = EditedRecords(train, np.arange(0, len(train), 2))
        for edit in (one_edit, half_removed):
            neighbour = neighbouring(self.problem, edit.records)
            for plan in (self.problem.plan, neighbour.plan):
                wrong_constants += (plan.normalizer, plan.n_max) != self._declared_constants
            moved += self._count_moved_records(edit.records, neighbour.plan)
        return exact_finding(
            subject=f"{BATCHES}: {self.subject}",
            claim=(
                "the divisor B of gradient sums and the maximum batch size n_max have their "
                "declared values, and a record's batch and shard depend on that record only"
            ),
            attack=(
                "the run's batches were compared with those of two other datasets: one is a "
                "neighbouring dataset, the other has half of the records"
            ),
            effort=(
                "for all records that are in the run's dataset and in the other one, the shards "
                "and the batches of the first two epochs were compared"
            ),
            measure="wrong constants, and records in another batch or shard",
            found=float(wrong_constants + moved),
            meaning=(
                f"{wrong_constants} of 4 batch plans have other constants than declared, and "
                f"{moved} records are in another batch or shard than in the run"
            ),
            noticeable=(
                "this audit detects a single wrong constant, and a single record in another batch "
                "or shard"
            ),
        )

    @property
    def _declared_constants(self) -> tuple[float, int]:
        """(the divisor of gradient sums, the maximum batch size), as declared or derived."""
        batch = self.problem.setup.training.batch
        plan = self.problem.plan
        size = self.problem.dataset.declared_size
        derived = plan.normalizer if size is None else size / batch.count
        return batch.normalizer or derived, batch.n_max or plan.n_max

    def _count_moved_records(self, records: Records, other_plan: BatchPlan) -> int:
        """Count common records of the run and another dataset with another batch or shard there.

        A record counts once for its shard, and once for each batch of the first two epochs. If the
        numbers of steps differ, every common record counts once more.

        Args:
            records: the records of the other dataset.
            other_plan: the plan of its batches.
        """
        train = self.problem.dataset.train
        plan = self.problem.plan
        common, own_rows, other_rows = np.intersect1d(train.ids, records.ids, return_indices=True)
        moved = 0
        batches = zip(_batch_ids(plan, train), _batch_ids(other_plan, records), strict=False)
        for own_batch, other_batch in islice(batches, 2 * plan.count):  # two epochs
            in_one_only = np.setxor1d(own_batch, other_batch)
            moved += len(np.intersect1d(in_one_only, common))
        if plan.steps != other_plan.steps:
            moved += common.size
        ensemble = self.problem.settings.ensemble
        own_shards = assign_shards(train.units, ensemble)[own_rows]
        other_shards = assign_shards(records.units, ensemble)[other_rows]
        return moved + int((own_shards != other_shards).sum())

    @cached_property
    def trained_again(self) -> Model:
        """The model that this version of agt trains on the run's own records."""
        records = self.problem.dataset.train
        if self.model.stores_noise:  # ``retrained`` would draw new noise
            return neighbour_of(self.model, records)
        return retrained(self.problem, records)

    def compare_with_training_again(self) -> Finding:
        """Train on the run's own records again, and compare the numbers with the stored ones.

        They should be equal. Differences that the bounds for k = 0 and ``ALLOWED_DRIFT`` allow are
        reported without a verdict, because another processor can cause them.
        """
        compared = 0
        differ = 0
        largest_deviation = 0.0
        largest_drift = 0.0
        own_members = self.model.member_models
        again_members = self.trained_again.member_models
        for own, again in zip(own_members, again_members, strict=True):
            bounds = bounds_of(own)
            own_tensors = [*bounds.parameters(own).values(), *bounds.bound_tensors(own)]
            again_tensors = [*bounds.parameters(again).values(), *bounds.bound_tensors(again)]
            for stored, fresh in zip(own_tensors, again_tensors, strict=True):
                compared += stored.numel()
                differ += int((stored != fresh).sum())
            deviations = bounds.deviations(own, again, 0) or {}
            largest_deviation = max(largest_deviation, *deviations.values(), 0.0)
            largest_drift = max(largest_drift, bounds.largest_drift(own, again))
        allowed_drift = ALLOWED_DRIFT[self.problem.settings.training.dtype]
        drifted = largest_drift > allowed_drift and not self.other_code
        beyond_rounding = largest_deviation > 1 or drifted
        outcome, meaning = self._judge_difference(compared, differ, beyond_rounding)
        on_record = "parameters and boxes" if self.has_boxes else "weights"
        noticeable = "this audit detects any change of the stored numbers beyond rounding"
        if self.other_code:
            noticeable = (
                "this audit detects parameters that differ by more than the allowed rounding"
            )
        return Finding(
            subject=f"{on_record} on record",
            claim=(
                "training with the run's settings on the run's records gives the numbers that are "
                "stored in the run's folder"
            ),
            attack=(
                "the run was trained again on the same records, and its bounds were computed again"
            ),
            effort=f"{compared:,} numbers compared",
            outcome=outcome,
            meaning=meaning,
            measure="numbers that differ",
            claimed=0.0,
            found=float(differ),
            strength=Strength.EXACT,
            noticeable=noticeable,
        )

    def _judge_difference(
        self, compared: int, differ: int, beyond_rounding: bool
    ) -> tuple[Outcome, str]:
        """Return the outcome of ``compare_with_training_again``, and a sentence that explains it.

        Args:
            compared: how many numbers were compared.
            differ: how many of them differ.
            beyond_rounding: whether they differ by more than rounding may explain.
        """
        meaning = (
            f"{differ:,} of {compared:,} numbers stored in the run's folder differ from those that "
            "training again gives"
        )
        if not differ:
            return Outcome.NOT_CONTRADICTED, meaning
        if beyond_rounding:
            return Outcome.VIOLATED, (
                f"{meaning}. The run was altered or damaged after training: restore it from a "
                "backup, or train again"
            )
        reason = self.other_code or (
            "another processor or another number of threads can cause such differences. If "
            "env.json names the same processor and number of threads for the run and for this "
            "audit, the run was altered or damaged"
        )
        return Outcome.REPORTED, (
            f"{meaning}, but the parameters differ by no more than the allowed rounding: {reason}"
        )

    # -- findings
    # ----------------------------------------------------------------------------------------------

    @property
    def effort(self) -> str:
        """A text that says how many neighbours were trained, and how many were not."""
        train = self.problem.dataset.train
        private_units = len(np.unique(train.units[~train.public]))
        edited = self.neighbours_trained - self.units_left_out
        farthest = max((k for _, k in self.edit_deviations), default=0)
        changed = "no neighbouring dataset was made with edits chosen to change answers"
        if edited:
            changed = (
                f"{edited:,} neighbouring datasets, up to distance k = {farthest}, were made with "
                "edits chosen to change answers"
            )
        parts = [
            f"{self.units_left_out:,} of {private_units:,} units (people) were left out of "
            "training, one at a time",
            changed,
        ]
        refused = self.refused.total()
        if refused:
            refused_datasets = counted(refused, "more neighbouring dataset")
            parts.append(f"training refused {refused_datasets}")
        if self.ended_early:
            parts.append("the time limit audit.seconds ended the search early")
        return "; ".join(parts)

    def _parameters_finding(self) -> Finding:
        """Return the finding about whether neighbours' parameters lie within their bounds.

        It says by how much the bounds must be too narrow to be detected, for the two groups of
        parameters (one tensor each) with the largest and the smallest deviation. A deviation is the
        largest of all elements of a group, so this is about all bounds of a group together.
        """
        relation = self.problem.settings.relation
        edits_within_k = RELATIONS[relation.name].describe_neighbours(relation.unit_rows)
        largest_first = sorted(self.parameter_deviations.items(), key=lambda item: -item[1])
        narrowings = {}
        for group, deviation in (*largest_first[:1], *largest_first[-1:]):
            narrowings[group] = 100 * max(0.0, 1 - deviation)
        clauses = []
        for group, narrowing in narrowings.items():
            clauses.append(f"by more than {narrowing:.3g} % in {group}")
        detectable = " and ".join(clauses)
        return exact_finding(
            subject=f"{PARAMETERS}: {self.subject}",
            claim=(
                f"on every dataset with {edits_within_k}, the trained parameters stay within the "
                "run's bounds for distance k"
            ),
            attack=(
                "models were trained on neighbouring datasets with the run's settings. Some of "
                "these datasets lack a unit (a person), others were edited to change answers"
            ),
            effort=self.effort,
            measure="deviation/bound",
            found=self.largest_deviation if self.parameter_deviations else None,
            meaning=self._parameters_sentence(),
            noticeable=(
                "this audit detects if all bounds of a group of parameters are too narrow "
                f"{detectable}. For other groups, the percentage lies between those given. It may "
                "miss a single bound that is too narrow"
            ),
            max_allowed=1.0,
        )

    def _parameters_sentence(self) -> str:
        """Return a sentence with the largest deviation, or with the reason why there is none."""
        deviation = share_of_bound_text(self.largest_deviation)
        if self.bound_violations:
            first_case = self.bound_violations[0]
            return (
                "a model trained on a neighbouring dataset deviates from the run's parameters "
                f"by {deviation}, which is more than allowed. First case found: {first_case}"
            )
        if not self.neighbours_trained:
            return (
                "no model was trained on a neighbouring dataset, so the bounds were not tested: "
                "raise audit.units, audit.neighbours or audit.seconds"
            )
        if not self.parameter_deviations:
            return (
                "the bounds were not tested, because all neighbouring datasets are farther from "
                "the run's dataset than the largest distance k for which the run has bounds"
            )
        return (
            "models trained on neighbouring datasets deviate from the run's parameters by at "
            f"most {deviation}"
        )

    def _certified_labels_finding(self) -> Finding:
        """Return the finding about certified labels, of which neighbours must not change any."""
        if self.label_violations:
            first_case = self.label_violations[0]
            meaning = f"some certified labels changed; for example, {first_case}"
        elif self.labels_compared:
            meaning = (
                f"0 of {self.labels_compared:,} certified labels changed on neighbouring datasets"
            )
        else:
            meaning = (
                "no certified label was tested, because no query is certified at the distance "
                "of any neighbouring dataset that was made"
            )
        return exact_finding(
            subject=f"{CERTIFIED_LABELS}: {self.subject}",
            claim=(
                "a label with stable distance L is the same for models trained on any dataset "
                "within distance L of the run's dataset"
            ),
            attack=(
                f"{len(self.queries)} queries were asked. Some of them lie where the label or the "
                "stable distance changes (found by bisection). The labels of all training records "
                "were compared, too, whenever a unit was left out"
            ),
            effort=self.effort,
            measure="certified labels that changed",
            found=float(self.labels_changed) if self.labels_compared else None,
            meaning=meaning,
            noticeable="this audit detects a single label that changed",
        )

    def _memorisation_finding(self) -> Finding:
        """Return the finding about certified records, of which none may be memorised."""
        changes = [change for certified, change in self.memorised if certified]
        changed = sum(change != 0 for change in changes)
        meaning = "no record was certified, so memorisation of certified records was not tested"
        if changes:
            meaning = f"{changed:,} of {len(changes):,} certified records were memorised"
        return exact_finding(
            subject=f"{MEMORISATION}: {self.subject}",
            claim=(
                "training on a record whose stable distance is at least 1 does not change the "
                "probability that the model labels this record correctly"
            ),
            attack=(
                "each unit (person) was left out in turn, and the model trained without it was "
                "asked about the unit's own records"
            ),
            effort=(
                f"{self.units_left_out} units (people) were left out of training, one at a time, "
                f"and {len(self.memorised)} records were used as queries"
            ),
            measure="records memorised",
            found=float(changed) if changes else None,
            meaning=meaning,
            noticeable="this audit detects a single memorised record",
        )

    def _pair_findings(self) -> dict[str, Finding]:
        """Return the findings about the bounds of two neighbouring datasets, under their names.

        There are none about what this run does not claim.
        """
        findings: dict[str, Finding] = {}
        if self.nesting_claimed:
            findings[NESTING_BOXES] = self._pair_finding(
                NESTING_BOXES,
                claim=NESTING_CLAIM,
                compared="ends of parameter bounds",
                count=self.ends_compared,
                violations=self.ends_outside,
            )
        if self.distances_claimed:
            largest_difference = "1" if self.dense else "one step in the run's list of values of k"
            findings[STABLE_DISTANCES] = self._pair_finding(
                STABLE_DISTANCES,
                claim=(
                    "on two neighbouring datasets, the stable distances of a query differ by at "
                    f"most {largest_difference}, and its labels differ only if its stable distance "
                    "is 0 on both datasets"
                ),
                compared="queries",
                count=self.answers_compared,
                violations=self.answers_inconsistent,
            )
        return findings

    def _pair_finding(
        self, name: str, claim: str, compared: str, count: int, violations: int
    ) -> Finding:
        """Return the finding of a claim about the bounds of two neighbouring datasets.

        Args:
            name: the name of the finding, with which its subject begins.
            claim: the claim, as a sentence.
            compared: what was compared, as a noun in the plural.
            count: how many were compared; 0: the finding is untested.
            violations: how many of them violate the claim.
        """
        attack = (
            "models were trained on neighbouring datasets (at distance 1), and all their bounds "
            "were computed. Some queries were chosen by bisection: they lie where the answer of "
            "one of the models changes"
        )
        if self.other_code:
            attack = (
                f"{attack}. These models were compared with the run's own model, which this "
                "version of agt trained again"
            )
        meaning = f"no {compared} were compared"
        if count:
            meaning = f"{violations} of {count} {compared} violate the claim"
        elif not self.pairs:
            meaning = (
                "no bounds were computed on a neighbouring dataset, so this claim was not "
                "tested: raise audit.bounded (or audit.seconds, if the time ran out)"
            )
        return exact_finding(
            subject=f"{name}: {self.subject}",
            claim=claim,
            attack=attack,
            effort=f"{self.pairs} neighbouring datasets",
            measure=f"{compared} that violate the claim",
            found=float(violations) if count else None,
            meaning=meaning,
        )

    def notes(self) -> Iterator[str]:
        """Yield sentences that a reader needs beside the findings, for the audit's notes."""
        units = len(np.unique(self.problem.dataset.train.units))
        yield (
            "a violation is a counterexample and therefore certain, but finding none proves "
            "nothing. If the largest deviation is 90 % of its bound, for example, this audit "
            "detects only bounds that are too narrow by more than 10 %"
        )
        if self.units_left_out < units and not self.only_changes:
            limit = "audit.seconds" if self.ended_early else "audit.units"
            yield (
                f"{self.units_left_out} of {units} units (people) were left out of training, one "
                f"at a time. {limit} limits their number, and public units are never left out"
            )
        if self.ended_early:
            planned = self.planned.total()
            yield (
                f"audit.seconds={self.extent.seconds:g} ended the search early. On neighbouring "
                f"datasets, {self.neighbours_trained:,} of {planned:,} planned models were "
                f"trained, and the bounds of {self.pairs} of {self.extent.bounded} planned models "
                "were computed"
            )
        for reason, refused in self.refusal_reasons.most_common(MAX_REFUSALS_SHOWN):
            refused_datasets = counted(refused, "neighbouring dataset")
            yield f"training refused {refused_datasets}, for this reason: {reason}"
        if self.unreached:
            yield (
                f"{self.unreached} comparisons with neighbouring datasets were not made, because "
                "these datasets are farther from the run's data than the largest k for which the "
                "run has bounds"
            )
        if {EditKind.COMES, EditKind.REPLACED} & kinds_of(self.relation):
            yield (
                "records that the audit adds may have values outside the declared ranges of their "
                "columns. The certificates must hold for these records as well"
            )

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return two tables by name: of neighbours by edit, and of deviations by parameter."""
        largest_of_edit = {
            edit: max(self.edit_deviations.get(edit, ()), default=0.0) for edit in self.planned
        }
        edit_rows = []
        for edit, deviation in sorted(largest_of_edit.items(), key=lambda item: -item[1]):
            description, distance = edit
            edit_rows.append(
                {
                    "edit": description,
                    "k": distance,
                    "planned": self.planned[edit],
                    "trained": len(self.edit_deviations.get(edit, ())),
                    "refused": self.refused[edit],
                    "deviation / bound": deviation,
                }
            )
        detected = "smallest narrowing of all bounds that is detected, %"
        parameter_rows = [
            {
                "parameters": name,
                "deviation / bound": deviation,
                detected: 100 * max(0.0, 1 - deviation),
            }
            for name, deviation in self.parameter_deviations.items()
        ]
        return {
            "certificate_edits": pd.DataFrame(edit_rows),
            "certificate_parameters": pd.DataFrame(parameter_rows),
        }


def edit_and_distance(edit: EditedRecords) -> EditAndDistance:
    """Return the description under which a neighbour is counted, and its distance.

    It is that of its only edit, or says how many edits there are.
    """
    if len(edit.edits) == 1:
        return edit.edits[0], edit.distance
    description = f"{len(edit.edits)} edits, all chosen to change the answer to one query"
    return description, edit.distance


def _batch_ids(plan: BatchPlan, records: Records) -> Iterator[np.ndarray]:
    """Yield the ids of the records in each step's batch, without the limit n_max."""
    for rows in replace(plan, n_max=MAX_ROWS).batches(records.units):
        yield records.ids[rows]


def share_of_bound_text(share: float) -> str:
    """Return a deviation, given as a share of its bound, as a percentage or a multiple of it.

    It has so many digits that only a share of exactly 1 is shown as 100 %.
    """
    difference = abs(1 - share)
    percentage = 100 * share
    if share >= 2:
        return f"{share:.3g} times the bound"
    if 0 < difference < 0.01:
        digits = max(1, math.ceil(-math.log10(100 * difference)))
        return f"{percentage:.{digits}f} % of the bound"
    return f"{percentage:.3g} % of the bound"
