"""Kind students: models trained on labels that a private teacher sold (001 Table 1).

A teacher answers Q test records, taken to be public and unlabelled, under one total budget; a
student learns from the answers and is judged on the other test records. Mechanisms, and which
records are asked, are drawn anew for each draw, by a seeded generator: a simulation, whose released
labels nobody should take for private.

Formal guarantees
    The student is a function of public queries and of the released labels alone, so it inherits the
    labels' guarantee, whatever is done with it afterwards (post-processing). That holds only if
    nothing else reaches it: the queries and all of its training must be public, and every query
    whose label was bought is used, whatever its certificate.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from agt.data.records import Records
from agt.errors import ConfigError, nearest
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.planning import Budget, QueryEvidence, afford
from agt.mechanisms.weights import noise_scale, weights_budget
from agt.numeric import SeededRandomness, labels_of
from agt.settings import (
    BatchConfig,
    Count,
    NonNegative,
    Positive,
    Probability,
    TrainingConfig,
    keyword_schema,
    schema,
)

from .bench import train_sgd
from .dp_sgd import DpSgd
from .entry import Entry, Key, Overrides
from .experiment import OneOrMore, ProfileName
from .figures import marks
from .kinds import Figure, Kind, Shown, grid

# teachers whose weights are private, so that any number of answers costs nothing
TRAINED = ("dpsgd", "release_weights")


# rows of test records asked about, draw -> released labels
Answers = Callable[[np.ndarray, int], np.ndarray]
Offer = tuple[float, Answers]
"""The expected share of right labels, and what answers an array of test records in one draw."""


@schema
class Teacher:
    """A row of the table.

    Attributes:
        label: what the table calls it.
        mechanisms: profile -> what it releases labels with: the name of a mechanism, ``many`` (the
            profile's own choice for many queries), ``dpsgd`` or ``release_weights``; a profile that
            is not named has no such teacher.
        members: of its ensemble.
        run: its own overrides.
    """

    label: str
    mechanisms: dict[ProfileName, str]
    members: Count = 1
    run: Overrides = ()

    def __post_init__(self) -> None:
        known = (*MECHANISMS, *TRAINED, "many")
        for name in self.mechanisms.values():
            if name not in known:
                raise ValueError(f"unknown mechanism '{name}'{nearest(name, known)}")


@schema
class Student:
    """How a student is trained, full batch: chosen without a look at any private record."""

    epochs: Count = 100
    lr: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegative = 0.01


STUDENT = Student()


@keyword_schema
class Students(Kind):
    """Accuracy of students, for each teacher, profile and number of labels bought: mean and range
    of the draws.

    Attributes:
        eps, delta: the total budget of a teacher.
        queries: how many labels it sells; the first number's rows stand beside the published ones.
        draws: how often the whole is drawn.
        trained: how many DP-SGD teachers are trained; draws go through them in turn.
    """

    teachers: OneOrMore[Teacher]
    run: Overrides = ()
    eps: Positive = 10.0
    delta: Probability = 1e-5
    queries: OneOrMore[Count] = (100,)
    draws: Count = 20
    trained: Count = 3
    student: Student = STUDENT
    dpsgd: DpSgd | None = None
    index = ("teacher", "profile", "labels")

    @property
    def by_label(self) -> Mapping[str, Teacher]:
        """The teachers by their labels."""
        return {teacher.label: teacher for teacher in self.teachers}

    @property
    def keys(self) -> list[Key]:
        keys: list[Key] = []
        for teacher in self.teachers:
            names = [name for name in self.profiles if name in teacher.mechanisms]
            keys += grid(teacher=[teacher.label], profile=names)
        return keys

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        teacher = self.by_label[key["teacher"]]
        name = key["profile"]
        mechanism = teacher.mechanisms[name]
        if mechanism in TRAINED:
            accuracy, offers = self._private_teacher(entry, name, teacher)
        else:
            many = self.profiles[name].many
            mechanism = many if mechanism == "many" else mechanism
            accuracy, offers = self._certified_teacher(entry, name, teacher, mechanism)
        about = {"mechanism": mechanism, "members": teacher.members}
        own = (*self.run, *teacher.run)
        for number, (right, answers) in zip(self.queries, offers, strict=True):
            entry.runs.console.note(f"students: {teacher.label}, {name}, {number} labels")
            each = taught(entry, name, own, self.student, number, self.draws, answers)
            known = {
                "labels": number,
                "teacher, noise-free": accuracy,
                "labels right, expected": right,
            }
            mean = float(each.mean())
            ends = {"low": float(each.min()), "high": float(each.max())}
            yield {**about, **known, "student": mean, **ends}

    def _private_teacher(
        self, entry: Entry, name: ProfileName, teacher: Teacher
    ) -> tuple[float, list[Offer]]:
        """Return the accuracy of teachers whose training is private, and what they sell.

        They answer any number of queries, so every number of labels has the same offer.

        Raises:
            ConfigError: the settings of the teacher's DP-SGD are missing.
        """
        own = (*self.run, *teacher.run)
        if teacher.mechanisms[name] == "dpsgd":
            found = self._labels_by_dpsgd(entry, name, own)
        else:
            found = self._labels_by_released_weights(entry, name, own)
        is_right = found == entry.data(name, own)[0].dataset.test.labels
        accuracy = float(is_right.mean())
        offer: Offer = (accuracy, lambda asked, draw: found[draw % len(found), asked])
        return accuracy, [offer] * len(self.queries)

    def _labels_by_dpsgd(self, entry: Entry, name: ProfileName, own: Overrides) -> np.ndarray:
        """Return the test records' labels by each of several DP-SGD trainings, [trained, n]."""
        if self.dpsgd is None:
            raise ConfigError(
                f"{entry.artifact.id}: a teacher uses dpsgd, but the settings of dpsgd are missing"
            )
        prepared, settings = entry.data(name, own)
        single = prepared.dataset.test.features.astype(np.float32)
        first = settings.training.seed  # a run's first initialisation is its own
        labels = []
        for number in range(self.trained):
            bench = entry.bench(name, own, seed=first + number, dtype="float32")
            weights = self.dpsgd.fit(bench, self.eps, self.delta, number)
            labels.append(bench.labels(weights, single))
        return np.stack(labels)

    def _labels_by_released_weights(
        self, entry: Entry, name: ProfileName, own: Overrides
    ) -> np.ndarray:
        """Return the test records' labels by weights that are released anew, [draws, n]."""
        model = entry.model(name, own).linear_head
        if model is None:
            raise ConfigError(
                f"{entry.artifact.id}: release_weights needs certificate=stability and model=linear"
            )
        phi = model.phi(entry.data(name, own)[0].dataset.test.features)
        theta = model.trained.weight.numpy()
        sigma = noise_scale(model.l2_sensitivity, weights_budget(self.eps, self.delta))
        labels = []
        for draw in range(self.draws):
            noise = np.random.default_rng(draw).standard_normal(theta.shape)
            labels.append(labels_of(phi @ (theta + sigma * noise).T))
        return np.stack(labels)

    def _certified_teacher(
        self, entry: Entry, name: ProfileName, teacher: Teacher, mechanism: str
    ) -> tuple[float, list[Offer]]:
        """Return the accuracy of a teacher with certificates, and its offer for each number of
        labels.
        """
        own = (*self.run, *teacher.run, f"ensemble.members={teacher.members}")
        finished = entry.run(name, own, f"{teacher.members} members")
        profile = self.profiles[name]
        evidence = finished.evidence(profile.vote)
        budgets = [Budget(self.eps, self.delta, number) for number in self.queries]
        offers = [sold(evidence, mechanism, one, profile.bounds) for one in budgets]
        return evidence.nominal_score, offers

    def shown(self, rows: pd.DataFrame) -> Shown:
        columns: Key = {"x": "student", "y": "teacher", "series": "rules", "panels": "labels"}
        draw = partial(marks, **columns, xlabel="student's test accuracy", panel="{} labels")
        # DP-SGD is nobody's rules for certificates
        rules = rows["profile"].where(rows["teacher"] != "DP-SGD", "DP-SGD")
        points = rows.assign(rules=rules).sort_values("labels", kind="stable")
        figure = Figure(
            f"Test accuracy of students: mean and range of {self.draws} draws.", points, draw
        )
        notes = tuple(
            note.format(eps=self.eps, delta=self.delta, draws=self.draws) for note in STUDENTS_NOTES
        )
        fewest_labels = rows[rows["labels"] == self.queries[0]]
        return Shown(rows, [figure], notes, measured=fewest_labels)

    def compared(self, key: Key) -> Key:
        return {key["teacher"]: "student"}


STUDENTS_NOTES = (
    "Each teacher spends eps = {eps:g}, delta = {delta:g} in all on the labels it sells; the "
    "records asked about are test records, taken to be public and unlabelled, and students are "
    "judged on the others.",
    "Students: mean and range (low, high) of {draws} draws of the records asked about, the "
    "mechanism's noise and the student's initialisation, by seeded generators: a simulation, not "
    "a release.",
)


def sold(evidence: QueryEvidence, name: str, budget: Budget, bounds: tuple[str, ...]) -> Offer:
    """The expected accuracy of labels sold one by one, each with noise of its own, and the
    labels.
    """
    labels = evidence.prediction
    seen = evidence.distance
    if MECHANISMS[name].needs == "votes":
        if evidence.tally is None or evidence.votes is None:
            raise ConfigError(
                f"mechanism={name} needs the votes of an ensemble: give the teacher more members"
            )
        labels = evidence.votes
        seen = evidence.tally
    of_one_vote = afford(MECHANISMS[name], budget, evidence.classes, bounds)
    mechanism = of_one_vote.for_changed_votes(evidence.changed_votes)

    def answers(asked: np.ndarray, draw: int) -> np.ndarray:
        return mechanism.release(labels[asked], seen[asked], SeededRandomness(draw))

    return evidence.expected(mechanism), answers


def taught(
    entry: Entry,
    name: ProfileName,
    own: Overrides,
    student: Student,
    number: int,
    draws: int,
    answers: Answers,
) -> np.ndarray:
    """[draws] each student's accuracy on the test records that its teacher was not asked about."""
    prepared, settings = entry.data(name, own)
    test = prepared.dataset.test
    if number >= len(test):
        raise ConfigError(
            f"queries={number} is too many: there are {len(test)} test records, and some must "
            "remain to judge the student"
        )
    loss = settings.training.loss
    clip = settings.training.clip  # it has no effect on plain SGD
    batch = BatchConfig(n_max=2 * number + 10)
    training = TrainingConfig(loss=loss, clip=clip, batch=batch, dtype="float32", **vars(student))
    names = np.array([f"query{row}" for row in range(number)])
    accuracies = []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(test))
        asked = order[:number]
        left = order[number:]
        bench = entry.bench(name, own, seed=draw, dtype="float32")
        bench = replace(bench, size=number, training=training)
        labels = answers(asked, draw).astype(np.int64)
        is_public = np.ones(number, dtype=bool)
        records = Records(test.features[asked], labels, names, names, is_public)
        weights = train_sgd(bench, records)
        accuracies.append(bench.accuracy(weights, test.take(left)))
    return np.array(accuracies)
