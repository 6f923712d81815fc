"""Students trained on labels that a private teacher sold (001 Table 1).

A teacher answers Q test records, taken to be public and unlabelled, under one total budget; a student learns from the
answers and is judged on the other test records. Mechanisms, and which records are asked, are drawn anew for each draw, by a
seeded generator: a simulation, whose released labels nobody should take for private.

Formal guarantees
    The student is a function of public queries and of the released labels alone, so it inherits the labels' guarantee,
    whatever is done with it afterwards (post-processing). That holds only if nothing else reaches it: the queries and all
    of its training must be public, and every query whose label was bought is used, whatever its certificate.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.data.dataset import Records
from agt.errors import ConfigError, nearest
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.planning import Budget, Evidence, afford
from agt.mechanisms.weights import noise_scale, weights_budget
from agt.models.linear import LinearModel
from agt.numeric import labels_of
from agt.randomness import SeededRandomness
from agt.settings import STRICT, BatchConfig, Positive, TrainingConfig
from agt_cli.papers.baselines.dpsgd import DpSgd
from agt_cli.papers.baselines.sgd import train_sgd
from agt_cli.papers.reproduction.budgets import Count, Delta
from agt_cli.papers.reproduction.definition import ProfileName
from agt_cli.papers.reproduction.kinds import Entry, Figure, Key, Kind, Overrides, Profiles, kind, through
from agt_cli.papers.reproduction.marks import Marks, marks

TRAINED = ("dpsgd", "release_weights")  # teachers whose weights are private, so that any number of answers costs nothing
Answers = Callable[[np.ndarray, int], np.ndarray]  # rows of test records asked about, draw -> released labels


@validated(frozen=True, config=STRICT)
class Teacher:
    """A row of the table.

    Attributes:
        label: what the table calls it.
        mechanisms: profile -> what it releases labels with: the name of a mechanism, ``many`` (the profile's own choice for
            many queries), ``dpsgd`` or ``release_weights``; a profile that is not named has no such teacher.
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
    """Accuracy of students, for each teacher, profile and number of labels bought: mean and range of the draws.

    Args:
        eps, delta: the total budget of a teacher.
        queries: how many labels it sells; the first number's rows stand beside the published ones.
        draws: how often the whole is drawn.
        trained: how many DP-SGD teachers are trained; draws go through them in turn.
    """
    by_label = {teacher.label: teacher for teacher in teachers}
    keys = [
        {"teacher": teacher.label, "profile": name}
        for teacher in teachers
        for name in profiles
        if name in teacher.mechanisms
    ]

    def private_labels(entry: Entry, name: ProfileName, mechanism: str, own: Overrides) -> np.ndarray:
        """[draws, n] labels of the test records, by weights that are private."""
        test = entry.data(name, own)[0].dataset.test
        if mechanism == "release_weights":
            model = entry.model(name, own)
            if not isinstance(model, LinearModel):
                raise ConfigError(f"{entry.artifact.id}: release_weights needs certificate=stability and model=linear")
            phi, theta = model.phi(test.features), model.trained.weight.numpy()
            sigma = noise_scale(model.moves, weights_budget(eps, delta))
            noise = (np.random.default_rng(draw).standard_normal(theta.shape) for draw in range(draws))
            return np.stack([labels_of(phi @ (theta + sigma * z).T) for z in noise])
        if dpsgd is None:
            raise ConfigError(f"{entry.artifact.id}: a teacher uses dpsgd, and the settings do not give its settings")
        benches = [entry.bench(name, own, seed=seed, dtype="float32") for seed in range(trained)]
        fitted = [dpsgd.fit(bench, eps, delta, seed) for seed, bench in enumerate(benches)]
        single = test.features.astype(np.float32)
        return np.stack([bench.labels(weights, single) for bench, weights in zip(benches, fitted, strict=True)])

    def sold(evidence: Evidence, name: str, number: int, bounds: tuple[str, ...]) -> tuple[float, Answers]:
        """The expected accuracy of labels sold one by one, each with noise of its own, and the labels."""
        labels, seen = evidence.prediction, evidence.distance
        if MECHANISMS[name].needs == "votes":
            if evidence.gap is None or evidence.votes is None:
                raise ConfigError(f"mechanism={name} needs an ensemble's votes: give the teacher more members")
            labels, seen = evidence.votes, evidence.gap
        mechanism = afford(MECHANISMS[name], Budget(eps, delta, number), evidence.classes, bounds)
        return evidence.expected(mechanism), lambda asked, draw: mechanism.release(
            labels[asked], seen[asked], SeededRandomness(draw)
        )

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        teacher, name, profile = by_label[key["teacher"]], key["profile"], profiles[key["profile"]]
        own, mechanism = (*run, *teacher.run), teacher.mechanisms[name]
        if mechanism in TRAINED:
            found = private_labels(entry, name, mechanism, own)
            accuracy = float((found == entry.data(name, own)[0].dataset.test.labels).mean())
            offers = [(accuracy, lambda asked, draw: found[draw % len(found), asked])] * len(queries)
        else:
            mechanism = profile.many if mechanism == "many" else mechanism
            ensemble = (*own, f"ensemble.members={teacher.members}")
            evidence = entry.run(name, ensemble, f"{teacher.members} members").evidence(profile.vote)
            accuracy = evidence.accuracy
            offers = [sold(evidence, mechanism, number, profile.bounds) for number in queries]
        for number, (right, answers) in zip(queries, offers, strict=True):
            entry.runs.console.note(f"students: {teacher.label}, {name}, {number} labels")
            accuracies = taught(entry, name, own, student, number, draws, answers)
            yield {
                "mechanism": mechanism,
                "members": teacher.members,
                "labels": number,
                "teacher, noise-free": accuracy,
                "labels right, expected": right,
                "student": float(accuracies.mean()),
                "low": float(accuracies.min()),
                "high": float(accuracies.max()),
            }

    notes = (
        f"Each teacher spends eps = {eps:g}, delta = {delta:g} in all on the labels it sells; the records asked about are "
        "test records, taken to be public and unlabelled, and students are judged on the others.",
        f"Students: mean and range (low, high) of {draws} draws of the records asked about, the mechanism's noise and the "
        "student's initialisation, by seeded generators: a simulation, not a release.",
    )

    caption = f"Test accuracy of students: mean and range of {draws} draws."

    def finding(rows: pd.DataFrame) -> str:
        top = rows.iloc[int(rows["student"].argmax())]
        return f"{top['teacher']} teaches best: {top['student']:.3f} from {top['labels']} labels ({top['profile']})"

    drawn = Marks("student", "teacher", "profile", "labels", "student's test accuracy", "{} labels")
    return Kind(
        keys,
        through(keys, measure),
        ("teacher", "profile", "labels"),
        (
            Figure(
                caption,
                lambda rows: rows,
                drawn,
                finding,
                draw=marks,
            ),
        ),
        measured=lambda rows: rows[rows["labels"] == queries[0]],
        compared=lambda key: {key["teacher"]: "student"},
        notes=lambda rows: notes,
    )


def taught(
    entry: Entry, name: ProfileName, own: Overrides, student: Student, number: int, draws: int, answers: Answers
) -> np.ndarray:
    """[draws] each student's accuracy on the test records that its teacher was not asked about."""
    prepared, settings = entry.data(name, own)
    test = prepared.dataset.test
    if number >= len(test):
        raise ConfigError(f"queries={number}: there are {len(test)} test records, and a student needs some to be judged on")
    loss, clip = settings.training.loss, settings.training.clip  # which has no effect on plain SGD
    batch = BatchConfig(n_max=2 * number + 10)
    training = TrainingConfig(loss=loss, clip=clip, batch=batch, dtype="float32", **vars(student))
    names, accuracies = np.array([f"query{row}" for row in range(number)]), []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(test))
        asked, left = order[:number], order[number:]
        bench = replace(entry.bench(name, own, seed=draw, dtype="float32"), size=number, training=training)
        labels = answers(asked, draw).astype(np.int64)
        weights = train_sgd(bench, Records(test.features[asked], labels, names, names, np.ones(number, dtype=bool)))
        said = bench.labels(weights, test.features[left].astype(np.float32))
        accuracies.append(float((said == test.labels[left]).mean()))
    return np.array(accuracies)
