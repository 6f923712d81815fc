"""Students trained on labels that a private teacher sold (001 Table 1).

A teacher answers Q test records, taken to be public and unlabelled, under one total budget; a student learns from the
answers and is judged on the other test records. Mechanisms, and which records are asked, are drawn anew for each draw, by a
seeded generator: a simulation, whose released labels nobody should take for private.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.errors import ConfigError, nearest
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.planning import Budget, Evidence, afford
from agt.mechanisms.randomness import SeededRandomness
from agt.mechanisms.weights import noise_scale, weights_budget
from agt.models.box import start_from
from agt.models.heads import build_head
from agt.models.linear import LinearModel
from agt.numeric import labels_of
from agt.settings import STRICT, BatchConfig, TrainingConfig, validate
from agt_cli.papers.baselines.dpsgd import train_dpsgd
from agt_cli.papers.baselines.student import train_student
from agt_cli.papers.reproduction.budgets import Sgd
from agt_cli.papers.reproduction.definition import Profile, ProfileName
from agt_cli.papers.reproduction.kinds import Context, Made, kind
from agt_cli.report.curves import LINES
from agt_cli.report.figures import drawing
from agt_cli.runs.prepare import Prepared, RunSettings

Overrides = tuple[str, ...]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Momentum = Annotated[float, Field(ge=0, lt=1)]
TRAINED = ("dpsgd", "release_weights")  # teachers whose weights are private, so that any number of answers costs nothing


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
    momentum: Momentum = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 0.01


@validated(frozen=True, config=STRICT)
class StudentsConfig:
    """Settings of ``students``.

    Attributes:
        teachers: rows of the table.
        run: overrides of every teacher.
        eps, delta: the total budget of a teacher.
        queries: how many labels it sells; the first number's rows stand beside the published ones.
        draws: how often the whole is drawn.
        trained: how many DP-SGD teachers are trained; draws go through them in turn.
        student, dpsgd: settings of training.
    """

    teachers: Annotated[tuple[Teacher, ...], Field(min_length=1)]
    run: Overrides = ()
    eps: Positive = 10.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    queries: Annotated[tuple[Count, ...], Field(min_length=1)] = (100,)
    draws: Count = 20
    trained: Count = 3
    student: Student = Student()
    dpsgd: Sgd | None = None


@dataclass(frozen=True)
class Desk:
    """A teacher in service.

    Attributes:
        mechanism: its name.
        accuracy: of the teacher on the test records: of its labels without noise, or of its private weights, mean of those
            trained.
        sold: (Q, expected accuracy over all test records, draw -> released labels of the records asked for).
    """

    mechanism: str
    accuracy: float
    sold: Callable[[int], tuple[float, Callable[[np.ndarray, int], np.ndarray]]]


@kind
def students(context: Context, settings: dict[str, Any]) -> Made:
    """Accuracy of students, for each teacher, profile and number of labels bought: mean and range of the draws."""
    config = validate(StudentsConfig, settings, context.artifact.id)
    rows: list[dict[str, Any]] = []
    values: dict[str, dict[str, float]] = {}
    for teacher in config.teachers:
        for name, profile in context.profiles.items():
            if name not in teacher.mechanisms:
                continue
            own = (*config.run, *teacher.run)
            overrides = context.overrides(profile, own)
            prepared = context.runs.prepared(overrides)
            desk = _open(context, name, teacher, config, own)
            for queries in config.queries:
                bought, answers = desk.sold(queries)
                context.runs.console.note(f"students: {teacher.label}, {name}, {queries} labels")
                found = _taught(prepared, context.runs.settings(overrides)[1], config, queries, answers)
                rows.append(
                    {
                        "teacher": teacher.label,
                        "profile": name,
                        "mechanism": desk.mechanism,
                        "members": teacher.members,
                        "labels": queries,
                        "teacher, noise-free": desk.accuracy,
                        "labels right, expected": bought,
                        "student": float(found.mean()),
                        "low": float(found.min()),
                        "high": float(found.max()),
                    }
                )
                if queries == config.queries[0]:
                    values.setdefault(teacher.label, {})[name] = rows[-1]["student"]
    table = pd.DataFrame(rows)
    _draw(context, config, table)
    caption = f"Test accuracy of students: mean and range of {config.draws} draws."
    return Made(values, table, {context.artifact.id: caption}, _notes(config))


def _notes(config: StudentsConfig) -> tuple[str, ...]:
    return (
        f"Each teacher spends eps = {config.eps:g}, delta = {config.delta:g} in all on the labels it sells; the records "
        "asked about are test records, taken to be public and unlabelled, and students are judged on the others.",
        f"Students: mean and range (low, high) of {config.draws} draws of the records asked about, the mechanism's noise "
        "and the student's initialisation, by seeded generators: a simulation, not a release.",
    )


# -- teachers ----------------------------------------------------------------------------------------------------------


def _open(context: Context, name: ProfileName, teacher: Teacher, config: StudentsConfig, own: Overrides) -> Desk:
    profile = context.profiles[name]
    wanted = teacher.mechanisms[name]
    if wanted == "dpsgd":
        return _dpsgd(context, profile, config, own)
    if wanted == "release_weights":
        return _weights(context, name, config, own)
    wanted = profile.many if wanted == "many" else wanted
    finished = context.run(name, (*own, f"ensemble.members={teacher.members}"), f"{teacher.members} members")
    evidence = finished.evidence(profile.vote)
    return _per_query(evidence, wanted, config, profile.bounds)


def _per_query(evidence: Evidence, name: str, config: StudentsConfig, bounds: tuple[str, ...]) -> Desk:
    """A teacher that sells label by label, each with noise of its own."""
    labels, seen = evidence.prediction, evidence.distance
    if MECHANISMS[name].needs == "votes":
        if evidence.gap is None or evidence.votes is None:
            raise ConfigError(f"mechanism={name} needs an ensemble's votes: give the teacher more members")
        labels, seen = evidence.votes, evidence.gap

    def sold(queries: int) -> tuple[float, Callable[[np.ndarray, int], np.ndarray]]:
        budget = Budget(config.eps, config.delta, queries)
        mechanism: Mechanism = afford(MECHANISMS[name], budget, evidence.classes, bounds)

        def answers(asked: np.ndarray, draw: int) -> np.ndarray:
            return mechanism.release(labels[asked], seen[asked], SeededRandomness(draw))

        return evidence.expected(mechanism), answers

    return Desk(name, evidence.accuracy, sold)


def _private(name: str, labels: np.ndarray, truth: np.ndarray) -> Desk:
    """A teacher whose weights are private: its labels [draws, n] cost nothing more, however many are asked for."""
    accuracy = float((labels == truth).mean())
    return Desk(name, accuracy, lambda queries: (accuracy, lambda asked, draw: labels[draw % len(labels), asked]))


def _dpsgd(context: Context, profile: Profile, config: StudentsConfig, own: Overrides) -> Desk:
    """The run's own head, trained by DP-SGD at the total budget."""
    if config.dpsgd is None:
        raise ConfigError(f"{context.artifact.id}: a teacher uses dpsgd, and the settings do not give its settings")
    overrides = context.overrides(profile, own)
    _, settings = context.runs.settings(overrides)
    prepared = context.runs.prepared(overrides)
    train, test = prepared.dataset.train, prepared.dataset.test
    size = int(prepared.dataset.declared_size or len(train))
    answers = []
    for seed in range(config.trained):
        head = _head(prepared, settings, seed)
        plan = config.dpsgd.at(config.eps, config.delta, size, seed)
        context.runs.console.note(f"DP-SGD teacher {seed + 1} of {config.trained}")
        loss = settings.training.loss
        released = train_dpsgd(head, prepared.classes, train.features, train.labels, loss, size, plan)
        answers.append(_labels(head, released.weights, test.features))
    return _private("dpsgd", np.stack(answers), test.labels)


def _weights(context: Context, name: ProfileName, config: StudentsConfig, own: Overrides) -> Desk:
    """A linear head on public features, its weights released once with Gaussian noise."""
    overrides = context.overrides(context.profiles[name], own)
    model = context.runs.model(overrides, "a linear head to release")
    if not isinstance(model, LinearModel):
        raise ConfigError(f"{context.artifact.id}: release_weights needs certificate=stability and model=linear")
    test = context.runs.prepared(overrides).dataset.test
    phi, theta = model.phi(test.features), model.trained.weight.numpy()
    sigma = noise_scale(model.moves, weights_budget(config.eps, config.delta))
    answers = []
    for draw in range(config.draws):
        noisy = theta + sigma * np.random.default_rng(draw).standard_normal(theta.shape)
        answers.append(labels_of(phi @ noisy.T))
    return _private("release_weights", np.stack(answers), test.labels)


# -- students ----------------------------------------------------------------------------------------------------------


def _taught(
    prepared: Prepared,
    settings: RunSettings,
    config: StudentsConfig,
    queries: int,
    answers: Callable[[np.ndarray, int], np.ndarray],
) -> np.ndarray:
    """[draws] each student's accuracy on the test records that its teacher was not asked about."""
    test = prepared.dataset.test
    if queries >= len(test):
        raise ConfigError(
            f"queries={queries}: there are {len(test)} test records, and a student needs some to be judged on"
        )
    student = config.student
    training = TrainingConfig(
        loss=settings.training.loss,
        epochs=student.epochs,
        lr=student.lr,
        momentum=student.momentum,
        weight_decay=student.weight_decay,
        clip=settings.training.clip,  # of no effect on plain SGD
        batch=BatchConfig(n_max=2 * queries + 10),
        dtype="float32",
    )
    found = []
    for draw in range(config.draws):
        order = np.random.default_rng(draw).permutation(len(test))
        asked, left = order[:queries], order[queries:]
        head = _head(prepared, settings, draw)
        weights = train_student(head, prepared.classes, test.features[asked], answers(asked, draw), training)
        found.append(float((_labels(head, weights, test.features[left]) == test.labels[left]).mean()))
    return np.array(found)


def _head(prepared: Prepared, settings: RunSettings, seed: int) -> nn.Sequential:
    """The run's head as anybody may start it: from a public base model's dense layers, or at random."""
    training = validate(TrainingConfig, {**vars(settings.training), "seed": seed, "dtype": "float32"}, "training")
    head = build_head(prepared.dataset.test.features.shape[1:], prepared.classes, settings.model, training)
    if prepared.initial:
        start_from(head, prepared.initial)
    return head


def _labels(head: nn.Sequential, weights: dict[str, torch.Tensor], features: np.ndarray) -> np.ndarray:
    """[n] int64: what the head with these weights says."""
    with torch.no_grad():
        x = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
        logits = torch.func.functional_call(head, {n: t.float() for n, t in weights.items()}, (x,))
    return labels_of(logits).numpy()


# -- the figure --------------------------------------------------------------------------------------------------------


def _draw(context: Context, config: StudentsConfig, table: pd.DataFrame) -> None:
    """One panel for each number of labels; a teacher's row holds a mark for each profile, and the range of its draws."""
    size = (2.2 + 2.6 * len(config.queries), 1.2 + 0.42 * len(config.teachers))
    with drawing(context.record, context.artifact.id, table, size) as figure:
        panels = figure.subplots(1, len(config.queries), squeeze=False, sharey=True, sharex=True)[0]
        for axes, queries in zip(panels, config.queries, strict=True):
            _panel(axes, table[table["labels"] == queries], [teacher.label for teacher in config.teachers])
            axes.set_title(f"{queries} labels")
            axes.set_xlabel("student's test accuracy")
        panels[0].invert_yaxis()  # once: they share it
        handles = {name: handle for axes in panels for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside right center")
        figure.suptitle(context.experiment.data, fontsize=9, x=0.01, ha="left")


def _panel(axes: Axes, rows: pd.DataFrame, teachers: list[str]) -> None:
    profiles = list(dict.fromkeys(rows["profile"]))
    for position, profile in enumerate(profiles):
        part = rows[rows["profile"] == profile]
        place = np.array([teachers.index(label) for label in part["teacher"]]) + 0.18 * (position - (len(profiles) - 1) / 2)
        span = np.stack([part["student"] - part["low"], part["high"] - part["student"]])
        style = LINES[position]
        axes.errorbar(
            part["student"], place, xerr=span, linestyle="none", capsize=2, linewidth=1, markersize=4, label=profile,
            color=style["color"], marker=style["marker"],
        )  # fmt: skip
    axes.set_yticks(range(len(teachers)), teachers)
