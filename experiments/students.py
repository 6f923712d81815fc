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

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.data.records import Records
from agt.errors import ConfigError, nearest
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.planning import Budget, QueryEvidence, afford
from agt.mechanisms.weights import noise_scale, weights_budget
from agt.numeric import SeededRandomness, labels_of
from agt.settings import STRICT, BatchConfig, Count, Positive, TrainingConfig

from .accuracy import Delta
from .bench import train_sgd
from .dp_sgd import DpSgd
from .entry import Entry, Key, Overrides, Profiles
from .experiment import ProfileName
from .figures import marks
from .kinds import Figure, Kind, Shown, grid, kind, through

# teachers whose weights are private, so that any number of answers costs nothing
TRAINED = ("dpsgd", "release_weights")


# rows of test records asked about, draw -> released labels
Answers = Callable[[np.ndarray, int], np.ndarray]


@validated(frozen=True, config=STRICT)
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


@validated(frozen=True, config=STRICT)
class Student:
    """How a student is trained, full batch: chosen without a look at any private record."""

    epochs: Count = 100
    lr: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 0.01


STUDENT = Student()


@kind
def students(
    profiles: Profiles,
    teachers: Annotated[tuple[Teacher, ...], Field(min_length=1)],
    run: Overrides = (),
    eps: Positive = 10.0,
    delta: Delta = 1e-5,
    queries: Annotated[tuple[Count, ...], Field(min_length=1)] = (100,),
    draws: Count = 20,
    trained: Count = 3,
    student: Student = STUDENT,
    dpsgd: DpSgd | None = None,
) -> Kind:
    """Accuracy of students, for each teacher, profile and number of labels bought: mean and range
    of the draws.

    Args:
        eps, delta: the total budget of a teacher.
        queries: how many labels it sells; the first number's rows stand beside the published ones.
        draws: how often the whole is drawn.
        trained: how many DP-SGD teachers are trained; draws go through them in turn.
    """
    by_label = {teacher.label: teacher for teacher in teachers}
    keys: list[Key] = []
    for teacher in teachers:
        names = [name for name in profiles if name in teacher.mechanisms]
        keys += grid(teacher=[teacher.label], profile=names)

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        teacher = by_label[key["teacher"]]
        name = key["profile"]
        profile = profiles[key["profile"]]
        own = (*run, *teacher.run)
        mechanism = teacher.mechanisms[name]
        if mechanism in TRAINED:
            if mechanism == "dpsgd" and dpsgd is None:
                raise ConfigError(
                    f"{entry.artifact.id}: a teacher uses dpsgd, but the settings of dpsgd are "
                    "missing"
                )
            how = dpsgd if mechanism == "dpsgd" else None
            found = private_labels(entry, name, own, how, Budget(eps, delta, draws), trained)
            prepared, _ = entry.data(name, own)
            is_right = found == prepared.dataset.test.labels
            accuracy = float(is_right.mean())
            offer = (accuracy, lambda asked, draw: found[draw % len(found), asked])
            offers = [offer] * len(queries)
        else:
            mechanism = profile.many if mechanism == "many" else mechanism
            ensemble = (*own, f"ensemble.members={teacher.members}")
            finished = entry.run(name, ensemble, f"{teacher.members} members")
            evidence = finished.evidence(profile.vote)
            accuracy = evidence.accuracy
            budgets = [Budget(eps, delta, number) for number in queries]
            offers = [sold(evidence, mechanism, one, profile.bounds) for one in budgets]
        about = {"mechanism": mechanism, "members": teacher.members}
        for number, (right, answers) in zip(queries, offers, strict=True):
            entry.runs.console.note(f"students: {teacher.label}, {name}, {number} labels")
            each = taught(entry, name, own, student, number, draws, answers)
            known = {
                "labels": number,
                "teacher, noise-free": accuracy,
                "labels right, expected": right,
            }
            mean = float(each.mean())
            ends = {"low": float(each.min()), "high": float(each.max())}
            yield {**about, **known, "student": mean, **ends}

    def shown(rows: pd.DataFrame) -> Shown:
        columns: Key = {"x": "student", "y": "teacher", "series": "rules", "panels": "labels"}
        draw = partial(marks, **columns, xlabel="student's test accuracy", panel="{} labels")
        # DP-SGD is nobody's rules for certificates
        rules = rows["profile"].where(rows["teacher"] != "DP-SGD", "DP-SGD")
        points = rows.assign(rules=rules).sort_values("labels", kind="stable")
        figure = Figure(
            f"Test accuracy of students: mean and range of {draws} draws.", points, draw
        )
        notes = tuple(note.format(eps=eps, delta=delta, draws=draws) for note in STUDENTS_NOTES)
        fewest_labels = rows[rows["labels"] == queries[0]]
        return Shown(rows, [figure], notes, measured=fewest_labels)

    def compared(key: Key) -> Key:
        return {key["teacher"]: "student"}

    return Kind(keys, ("teacher", "profile", "labels"), through(keys, measure), shown, compared)


STUDENTS_NOTES = (
    "Each teacher spends eps = {eps:g}, delta = {delta:g} in all on the labels it sells; the "
    "records asked about are "
    "test records, taken to be public and unlabelled, and students are judged on the others.",
    "Students: mean and range (low, high) of {draws} draws of the records asked about, the "
    "mechanism's noise and the "
    "student's initialisation, by seeded generators: a simulation, not a release.",
)


def private_labels(
    entry: Entry,
    name: ProfileName,
    own: Overrides,
    dpsgd: DpSgd | None,
    budget: Budget,
    trained: int,
) -> np.ndarray:
    """[draws, n] labels of the test records, by weights that are private: of so many DP-SGD
    trainings, or released.

    Args:
        budget: its queries are the draws of released weights.
    """
    prepared, settings = entry.data(name, own)
    test = prepared.dataset.test
    if dpsgd is not None:
        first = settings.training.seed  # a run's first initialisation is its own
        seeds = range(first, first + trained)
        benches = [entry.bench(name, own, seed=seed, dtype="float32") for seed in seeds]
        single = test.features.astype(np.float32)
        labels = []
        for seed, bench in enumerate(benches):
            weights = dpsgd.fit(bench, budget.eps, budget.delta, seed)
            labels.append(bench.labels(weights, single))
        return np.stack(labels)
    model = entry.model(name, own).linear_head
    if model is None:
        raise ConfigError(
            f"{entry.artifact.id}: release_weights needs certificate=stability and model=linear"
        )
    phi = model.phi(test.features)
    theta = model.trained.weight.numpy()
    sigma = noise_scale(model.l2_sensitivity, weights_budget(budget.eps, budget.delta))
    labels = []
    for draw in range(budget.queries):
        noise = np.random.default_rng(draw).standard_normal(theta.shape)
        labels.append(labels_of(phi @ (theta + sigma * noise).T))
    return np.stack(labels)


def sold(
    evidence: QueryEvidence, name: str, budget: Budget, bounds: tuple[str, ...]
) -> tuple[float, Answers]:
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

    return evidence.expected_accuracy(mechanism), answers


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
