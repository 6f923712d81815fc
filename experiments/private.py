"""Kind private_trainings: what a linear head costs in accuracy when its *training* is private, by
total budget.

Every method sees the same public features of norm at most 1, and every released head answers any
number of queries. Beside DP-SGD: output and objective perturbation of regularised ERM (002),
randomised response on the training labels (002, 004), DP-SGD's noise inside certified training (000
Algorithm 1), and weights released by their closed-form stability.


Students trained on labels that a private teacher sold (001 Table 1).

A teacher answers Q test records, taken to be public and unlabelled, under one total budget; a
student learns from the answers and is judged on the other test records. Mechanisms, and which
records are asked, are drawn anew for each draw, by a seeded generator: a simulation, whose released
labels nobody should take for private.

Formal guarantees
    The student is a function of public queries and of the released labels alone, so it inherits the
    labels' guarantee, whatever is done with it afterwards (post-processing). That holds only if
    nothing else reaches it: the queries and all of its training must be public, and every query
    whose label was bought is used, whatever its certificate.


Kind private_features: a network trained by DP-SGD, alone and as the maker of features for a head
that records can be removed from (003 Fig 5 and Theorem 5: the guarantees add).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.errors import ConfigError, nearest
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.planning import Budget, QueryEvidence, afford
from agt.mechanisms.weights import ReleaseWeights, noise_scale, weights_budget
from agt.models.linear import LinearModel
from agt.models.model import accuracy
from agt.numeric import SeededRandomness, labels_of
from agt.settings import STRICT, BatchConfig, Count, NonNegative, Positive, TrainingConfig
from agt_cli.runs.prepare import Prepared, RunSettings

from .baselines import (
    RECORD,
    Baseline,
    Bench,
    Channels,
    DpSgd,
    LocalRR,
    NoisyAgt,
    Perturbation,
    Weights,
    features,
    network,
    of_one,
    train_sgd,
)
from .certified import Delta
from .figures import lines, marks
from .kinds import (
    Entry,
    Figure,
    Key,
    Kind,
    Overrides,
    ProfileName,
    Profiles,
    Shown,
    grid,
    kind,
    once,
    through,
    wide,
)
from .removal import Removing, budget, column_of, mean_bounds, named, removing, settings_of

EXACT = "release_weights"


@kind
def private_trainings(
    profiles: Profiles,
    run: Overrides,
    dpsgd: DpSgd,
    perturbed: tuple[Perturbation, ...],
    noisy: NoisyAgt,
    eps: tuple[Positive, ...] = (0.1, 0.5, 1.0, 10.0),
    delta: Delta = 1e-5,
    seeds: Count = 3,
) -> Kind:
    """Accuracy of privately trained linear heads against the total budget (mean and range of
    seeds).

    Args:
        run: overrides of a linear head with certificate=stability: its features and its plain SGD
            are everybody's; labels are flipped for that training.
        seeds: draws of each method that is sampled.
    """
    methods: dict[str, Baseline] = {
        "DP-SGD": dpsgd,
        **{f"{each.method} perturbation": each for each in perturbed},
        "noise inside AGT": noisy,
        "randomised labels": LocalRR(),
    }
    protects = {EXACT: RECORD, **{name: method.protects for name, method in methods.items()}}
    rigorous = [name for name, profile in profiles.items() if profile.accounting == "rigorous"]
    keys: list[Key] = []
    for series, what in protects.items():
        keys += grid(profile=rigorous[:1], series=[series], protects=[what], eps=eps)

    def rows(entry: Entry) -> pd.DataFrame:
        return trained_heads(entry, keys, run, methods, delta, seeds) if keys else pd.DataFrame()

    def shown(rows: pd.DataFrame) -> Shown:
        plain = float(rows["plain SGD"].iloc[0])
        found = wide(rows, ["series", "protects"], "eps", "accuracy", eps, "eps = {:g}")
        without_privacy = ["plain SGD", "nothing", *[plain] * len(eps)]
        last = pd.DataFrame([without_privacy], columns=found.columns)
        table = pd.concat([found, last], ignore_index=True)
        xlabel = "total eps, any number of queries"
        draw = lines("eps", "accuracy", xlabel, "accuracy", level=plain, level_name="plain SGD")
        caption = (
            f"Test accuracy of privately trained linear heads against total eps, delta = {delta:g}."
        )
        left_open = "; ".join(f"{name}: {method.caveat}" for name, method in methods.items())
        notes = tuple(note.format(seeds=seeds, left_open=left_open) for note in TRAININGS_NOTES)
        figure = Figure(caption, rows.drop(columns=["profile", "plain SGD"]), draw)
        return Shown(table, [figure], notes, measured=rows)

    def compared(key: Key) -> Key:
        return {f"{key['series']}, eps = {key['eps']:g}": "accuracy"}

    return Kind(keys, ("series", "eps"), rows, shown, compared)


TRAININGS_NOTES = (
    "One linear head on the same public features for everybody; mean of {seeds} seeds, and their "
    "range as a "
    "band; release_weights is an exact expectation. Drawn from seeds: a simulation, not a release.",
    "What the guarantees leave open: {left_open}.",
    "Settings of DP-SGD, of both perturbations and of noise inside AGT were set on the test "
    "records: that flatters "
    "them, and no proof of privacy rests on their rows; those of release_weights say in "
    "conf/training what they "
    "were chosen on.",
)


def trained_heads(
    entry: Entry,
    keys: list[Key],
    run: Overrides,
    methods: dict[str, Baseline],
    delta: float,
    seeds: int,
) -> pd.DataFrame:
    """The keys' rows: accuracy of heads that the key's method trained on its budget, beside
    plain SGD's.
    """
    model = entry.model(keys[0]["profile"], run).linear_head
    if model is None:
        raise ConfigError(
            f"{entry.artifact.id}: the run needs certificate=stability and model=linear"
        )
    bench = _bench(entry, model)
    test = model.problem.dataset.test
    exact = ReleaseWeights.expectation(model, test.features, test.labels)
    queries = model.features(test.features, "float64")
    found = []

    def right(weights: Weights) -> float:
        return float((bench.labels(weights, queries) == test.labels).mean())

    plain = right(train_sgd(bench, bench.single))
    for key in keys:
        if key["series"] == EXACT:
            measured = {"accuracy": exact(ReleaseWeights.within(key["eps"], delta))}
        elif isinstance(method := methods[key["series"]], Perturbation) and bench.classes != 2:
            continue
        else:
            entry.runs.console.note(f"{key['series']}, eps = {key['eps']:g}")
            each = [right(method.fit(bench, key["eps"], delta, seed)) for seed in range(seeds)]
            measured = {"accuracy": float(np.mean(each)), "low": min(each), "high": max(each)}
        found.append({**key, **measured, "plain SGD": plain})
    return pd.DataFrame(found)


def _bench(entry: Entry, model: LinearModel) -> Bench:
    """A linear head without bias (the features bring one), at zero, on the model's features."""
    dataset = model.problem.dataset
    settings = model.settings
    if dataset.declared_size is None:
        raise ConfigError(
            f"{entry.artifact.id}: every method needs a public size: give dataset.declared_size"
        )
    records = replace(dataset.train, features=model.features(dataset.train.features, "float64"))
    outputs = 1 if settings.training.loss == "binary_cross_entropy" else model.problem.classes
    layer = nn.Linear(records.features.shape[1], outputs, bias=False)
    nn.init.zeros_(layer.weight)
    size = int(dataset.declared_size)
    return Bench(
        nn.Sequential(layer),
        model.problem.classes,
        records,
        size,
        settings.training,
        settings.compute,
    )


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


ALONE = "private network"
BELOW = "head with removals on private features"
MOST_NOISES_TRIED = 12
UNTRAINED = "head with removals on untrained features"
SHARE = 11  # of the budget: ten parts for the network, one for removals, as published


@validated(frozen=True, config=STRICT)
class Network:
    """003's network (section 4.3, footnote 2) in numbers, and how it is trained without privacy.

    Attributes:
        channels: outputs of the convolutions; 003: 64 and 64.
        hidden: width of the layer whose outputs are the features.
        epochs, batches, lr: of plain SGD with momentum .9.
    """

    channels: Channels = (64, 64)
    hidden: Count = 64
    epochs: Count = 6
    batches: Count = 60
    lr: Positive = 0.1

    def bench(self, records: Records, classes: int, size: int, seed: int) -> Bench:
        """On [n, pixels] images, from the initialisation that ``seed`` draws."""
        batch = BatchConfig(count=self.batches)
        training = TrainingConfig(
            "cross_entropy", self.epochs, self.lr, 1.0, momentum=0.9, batch=batch, dtype="float32"
        )
        pixels = int(np.prod(records.features.shape[1:]))
        return Bench(
            network(pixels, classes, self.channels, self.hidden, seed),
            classes,
            records,
            size,
            training,
        )


@validated(frozen=True, config=STRICT)
class Schedule:
    """How a private network and the head on its features are trained for large enough budgets.

    Attributes:
        least_eps: the smallest eps of all removals together that this schedule is for.
        dpsgd: of the network.
        strength: lambda of the head on its features.
    """

    least_eps: NonNegative
    dpsgd: DpSgd
    strength: Positive = 0.001


@kind
def private_features(
    profiles: Profiles,
    run: Overrides,
    schedules: Annotated[tuple[Schedule, ...], Field(min_length=1)],
    network: Network,
    eps: Annotated[tuple[Positive, ...], Field(min_length=1)] = (3.0, 6.0, 10.0, 15.0),
    delta: Delta = 1e-4,
    removals: Count = 10,
    strength: Positive = 0.001,
    seeds: Count = 5,
    data: str = "",
) -> Kind:
    """Accuracy against the eps of ``removals`` removals: a private network, a head on a private
    network's features, and a head on those of the same network before any training.

    Args:
        run: overrides of a head with certificate=removal, on square images.
        schedules: each eps takes the one with the largest ``least_eps`` that it reaches, a rule
            that no record enters.
        strength: lambda of the head on untrained features.
        seeds: how many; each draws initialisation, batches and noise.
        data: which data it is, where it is not the experiment's.

    Raises:
        ConfigError: no schedule is for the smallest eps.
    """
    by_eps = {total: schedule_for(total, schedules) for total in eps}
    ways = (BELOW, ALONE, UNTRAINED)
    keys = grid(profile=profiles, way=ways, eps=eps, **named(data), seed=range(seeds))

    def plain(prepared: Prepared, settings: RunSettings) -> list[Key]:
        bench = _bench_of_network(prepared.dataset, network, 0)
        weights = train_sgd(bench, bench.single)
        return [{"accuracy": bench.accuracy(weights, prepared.dataset.test)}]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        total = key["eps"]
        way = key["way"]
        seed = key["seed"]
        profile = profiles[name]
        dpsgd = by_eps[total].dpsgd
        head_strength = strength if way == UNTRAINED else by_eps[total].strength
        # of eps and of delta, for the network
        shares = {ALONE: (1.0, 1.0), BELOW: (1 - 1 / SHARE, 0.1), UNTRAINED: (0.0, 0.0)}
        eps_share, delta_share = shares[way]
        as_published = profile.accounting == "paper"
        one = of_one(eps_share * total, delta_share * delta, removals, as_published)

        def make(prepared: Prepared, settings: RunSettings) -> list[Key]:
            started = time.perf_counter()
            bench = _bench_of_network(prepared.dataset, network, seed)
            weights: Weights = dict(bench.head.named_parameters())
            if way != UNTRAINED:
                weights = dpsgd.fit(bench, *one, seed)
            seconds = time.perf_counter() - started
            spent = {"network eps": one[0], "network delta": one[1], "training": seconds}
            if way == ALONE:
                return [{**spent, "accuracy": bench.accuracy(weights, prepared.dataset.test)}]
            dataset = _seen(prepared.dataset, partial(features, bench, weights))
            seen = replace(prepared, dataset=dataset)
            unit = budget(profile, 1.0, (1 - eps_share) * total, (1 - delta_share) * delta)
            trained, sigma = head(entry, name, seen, unit, head_strength, seed)
            one_head = trained.head
            started = time.perf_counter()
            one_head.remove(trained.x[:1], trained.targets[:1])
            found = {"removal": time.perf_counter() - started, "sigma": sigma}
            return [{**spent, **found, "accuracy": accuracy(trained.model, seen.dataset.test)}]

        of = replace(dpsgd, seeds=1)  # how many others there are changes no training
        on = (
            f"{way} {total} {delta} {one} {profile.accounting} {removals} {head_strength} {of} "
            f"{network} {seed}"
        )
        label = f"{way}, eps = {total:g} ({name}), seed {seed}"
        (found,) = once(entry, name, run, label, make, on)
        first = next(iter(profiles))
        label = "the network without privacy"
        (public,) = once(entry, first, run, label, plain, f"plain {network}")
        yield {"series": f"{way} ({name})", **found, "not private": public["accuracy"]}

    def head(
        entry: Entry,
        name: ProfileName,
        seen: Prepared,
        unit: float,
        head_strength: float,
        seed: int,
    ) -> tuple[Removing, float]:
        """Return a head whose noise hides so many removals, and that noise.

        Args:
            unit: how much residual noise of size 1 hides.
            head_strength: the head's lambda.

        Raises:
            ConfigError: with more noise the weights grow so fast that no noise is enough.
        """
        sigma = 1.0
        for _ in range(MOST_NOISES_TRIED):
            own = (*run, *settings_of(head_strength, sigma, seed))
            _, settings = entry.data(name, own)
            trained = removing(seen, settings, entry.artifact.id)
            bounds = mean_bounds(trained, 4 * removals)
            needed = removals * bounds[column_of(profiles[name])] / unit
            if 0.8 * sigma <= needed <= sigma:
                return trained, sigma
            sigma = float(f"{1.05 * needed:.3g}")
        raise ConfigError(
            f"{entry.artifact.id}: no noise hides {removals} removals with lambda = "
            f"{head_strength:g}: choose a larger lambda"
        )

    def shown(rows: pd.DataFrame) -> Shown:
        level = {"level": float(rows["not private"].iloc[-1]), "level_name": "not private"}
        draw = lines("eps", "accuracy", f"eps of {removals} removals", "test accuracy", **level)
        caption = (
            f"Test accuracy against the eps of {removals} removals (delta = {delta:g}): mean "
            "and range of seeds."
        )
        groups = rows.groupby(["profile", "way", "eps", *named(data), "series"], sort=False)
        ends = groups["accuracy"].agg(low="min", high="max")
        table = groups.mean().drop(columns="seed").join(ends).reset_index()
        points = table[["eps", "series", "accuracy", "low", "high", "profile"]]
        figure = Figure(caption, points.assign(method=table["way"]), draw)
        return Shown(table, [figure], tuple(note.format(removals) for note in FEATURES_NOTES))

    def compared(key: Key) -> Key:
        return {f"{key['way']}, eps = {key['eps']:g}": "accuracy"}

    return Kind(keys, ("profile", "way", "eps", "seed"), through(keys, measure), shown, compared)


FEATURES_NOTES = (
    "eps and delta are those of {0} removals. The network alone: (eps / {0}, delta) for one "
    "record, as "
    "published; ours takes the delta that group privacy asks for, whose noise is larger.",
    "The head: ten parts of eps and a tenth of delta for the network, the rest for the removals, "
    "which its noise is "
    "made for; each class against the others, all together. That the parts add is 003's Theorem 5.",
    "Untrained features are those of the network's random start, which no record enters, so the "
    "removals take all of eps and delta.",
    "How many steps of DP-SGD, on how many records, follows from eps alone. These schedules, the "
    "network's settings and lambda were set on the test records, which flatters all rows alike. "
    "Draws come from seeds: a simulation.",
)


def schedule_for(eps: float, schedules: tuple[Schedule, ...]) -> Schedule:
    """Return the schedule with the largest ``least_eps`` that is at most ``eps``.

    Raises:
        ConfigError: there is none.
    """
    fitting = [schedule for schedule in schedules if schedule.least_eps <= eps]
    if not fitting:
        smallest = min(schedule.least_eps for schedule in schedules)
        raise ConfigError(
            f"private_features: schedules: eps = {eps:g} has none, because the smallest least_eps "
            f"is {smallest:g}: add a schedule with least_eps: 0"
        )
    return max(fitting, key=lambda schedule: schedule.least_eps)


def _bench_of_network(dataset: Dataset, network: Network, seed: int) -> Bench:
    size = dataset.declared_size or len(dataset.train)
    return network.bench(dataset.train, len(dataset.classes), int(size), seed)


def _seen(dataset: Dataset, extract: Any) -> Dataset:
    """The dataset with features made of its images."""
    train = replace(dataset.train, features=extract(dataset.train.features))
    test = replace(dataset.test, features=extract(dataset.test.features))
    return replace(dataset, train=train, test=test)
