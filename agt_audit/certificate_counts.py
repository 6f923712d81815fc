"""What a run's certificates claim, and the counts of an audit that compares neighbours with it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from agt.certificates.box import Certificates
from agt.errors import counted
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.relations.relation import Relation
from agt_audit.edited_records import EditedRecords
from agt_audit.lines import LabelsAndDistances
from agt_audit.model_bounds import Deviations


@dataclass(frozen=True)
class Claims:
    """The claims that a run's certificates make.

    Attributes:
        problem: the run's problem, with the records that it was trained on.
    """

    problem: Problem

    @property
    def subject(self) -> str:
        """The run's kind of certificate, for the subjects of findings."""
        settings = self.problem.settings
        subject = f"certificate={settings.certificate.name}, relation={settings.relation.name}"
        if settings.ensemble.members == 1:
            return subject
        return f"{subject}, {settings.ensemble.members} members"

    @property
    def relation(self) -> Relation:
        """The rule of the run's relation."""
        return RELATIONS[self.problem.settings.relation.name]

    @property
    def has_boxes(self) -> bool:
        """Whether certificates bound each parameter by a box."""
        return self.problem.settings.certificate.bounded == "each parameter"

    @property
    def dense(self) -> bool:
        """Whether the run has bounds for every k up to its largest one."""
        settings = self.problem.settings
        ks = settings.kgrid.ks
        return settings.certificate.covers_every_k or ks == tuple(range(len(ks)))

    @property
    def distances(self) -> bool:
        """Whether stable distances at distance 1 are claimed to differ by at most 1."""
        settings = self.problem.settings
        return settings.certificate.distances_differ_by_one(settings)

    @property
    def nesting(self) -> bool:
        """Whether boxes of neighbours are claimed to lie within the run's."""
        return self.has_boxes and self.dense and self.distances

    def labels_and_distances(self, certificates: Certificates) -> LabelsAndDistances:
        """Return labels and stable distances; of a grid that is not dense, steps of the grid."""
        if self.dense:
            return certificates.prediction, certificates.stable_distance
        return certificates.prediction, certificates.grid_steps


@dataclass
class Counts:
    """Which neighbours an audit trained, and what it found when it compared them with the run.

    A deviation is how far a parameter of a neighbour's model lies from the run's, divided by the
    bound for the neighbour's distance: above 1, it violates the bound.

    Attributes:
        neighbours_planned: how many neighbours were to be trained without bounds.
        neighbours_trained: how many of them were trained.
        refused: how many of them training refused; the time limit left out the others.
        refusal_reasons: message of training -> how often it refused a neighbour with it.
        farthest: the largest distance k of a neighbour that was trained without bounds.
        parameter_deviations: name of a parameter -> its largest deviation of all neighbours.
        bound_violation: a clause about the first neighbour whose parameters left their bounds; "":
            none did.
        unreached: how many members of neighbours were not compared, because the run has no bounds
            for their distance.
        units_left_out: how many units were left out of training, one at a time.
        labels_compared: how many certified labels were compared with a neighbour's label.
        labels_changed: how many of them differ.
        label_violation: a clause about the first neighbour that changed a certified label; "": none
            did.
        pairs_planned: how many neighbours were to be trained with all their bounds.
        pairs: how many of them were trained.
        ends_compared: how many ends of boxes were compared between the run and these neighbours.
        ends_outside: how many of them lie outside of the other's box.
        answers_compared: how many answers of these neighbours were compared with the run's.
        answers_inconsistent: how many of them contradict the run's (``inconsistent_distances``).
        ended_early: whether the time limit ended a stage.
    """

    neighbours_planned: int = 0
    neighbours_trained: int = 0
    refused: int = 0
    refusal_reasons: Counter[str] = field(default_factory=Counter)
    farthest: int = 0
    parameter_deviations: Deviations = field(default_factory=dict)
    bound_violation: str = ""
    unreached: int = 0
    units_left_out: int = 0
    labels_compared: int = 0
    labels_changed: int = 0
    label_violation: str = ""
    pairs_planned: int = 0
    pairs: int = 0
    ends_compared: int = 0
    ends_outside: int = 0
    answers_compared: int = 0
    answers_inconsistent: int = 0
    ended_early: bool = False

    @property
    def largest_deviation(self) -> float:
        """The largest deviation of all parameters of all neighbours; 0 if none was compared."""
        return max(self.parameter_deviations.values(), default=0.0)

    def add_neighbour(self, edit: EditedRecords, deviations: Mapping[str, float]) -> float:
        """Count a trained neighbour, and return the largest deviation of its parameters.

        ``neighbours_trained``, ``farthest`` and ``parameter_deviations`` are updated. The first
        neighbour with a deviation above 1 also sets ``bound_violation``.

        Args:
            edit: the neighbour.
            deviations: name of a parameter -> its deviation; empty: none was compared.

        Returns:
            The largest of the deviations; 0 if there are none.
        """
        self.neighbours_trained += 1
        self.farthest = max(self.farthest, edit.distance)
        for name, deviation in deviations.items():
            largest_before = self.parameter_deviations.get(name, 0.0)
            self.parameter_deviations[name] = max(largest_before, deviation)
        largest = max(deviations.values(), default=0.0)
        if largest > 1 and not self.bound_violation:
            name = max(deviations, key=lambda name: deviations[name])
            edits = ", ".join(edit.edits)
            self.bound_violation = (
                f"the parameters '{name}' left their bound on a neighbouring dataset at distance "
                f"{edit.distance} (made by these edits: {edits})"
            )
        return largest

    def add_labels(
        self, edit: EditedRecords, k: int, is_certified: np.ndarray, differs: np.ndarray
    ) -> None:
        """Add a neighbour's certified labels to ``labels_compared`` and ``labels_changed``.

        The first neighbour with a label that differs also sets ``label_violation``.

        Args:
            edit: the neighbour.
            k: its distance.
            is_certified: [n] bool, whether the run certifies a query's label at k.
            differs: [n] bool, whether the neighbour gives the query another label.
        """
        count = int((is_certified & differs).sum())
        self.labels_compared += int(is_certified.sum())
        self.labels_changed += count
        if count and not self.label_violation:
            edits = ", ".join(edit.edits)
            changed_labels = counted(count, "label")
            self.label_violation = (
                f"{changed_labels} changed on a neighbouring dataset at distance {k} (made by "
                f"these edits: {edits})"
            )
