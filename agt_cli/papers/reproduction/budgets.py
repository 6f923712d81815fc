"""Kinds about privacy budgets: accuracy against eps (001 Fig 2), ensemble size (Fig 4), queries (Fig 5), and the bound on
smooth sensitivity against the grid (Fig 6). Every accuracy is an exact expectation; only DP-SGD is sampled."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.guarantee import PureDP
from agt.mechanisms.planning import Budget, afford, weights_accuracy
from agt.mechanisms.weights import weights_budget
from agt.settings import Positive
from agt_cli.papers.baselines.dpsgd import DpSgd
from agt_cli.papers.reproduction.definition import Profile, ProfileName
from agt_cli.papers.reproduction.kinds import EVERY, Entry, Figure, Key, Kind, Overrides, Profiles, kind, through, wide
from agt_cli.papers.reproduction.runs import Finished
from agt_cli.report.curves import Curves

Count = Annotated[int, Field(ge=1)]
Delta = Annotated[float, Field(gt=0, lt=1)]
LEAST = "{}: least eps within a point"


@kind
def accuracy_by_eps(
    profiles: Profiles,
    run: Overrides = (),
    least: Positive = 0.01,
    most: Positive = 10.0,
    count: Annotated[int, Field(ge=2)] = 20,
) -> Kind:
    """Expected accuracy against eps of one query, one model (001 Fig 2): ``count`` values from ``least`` to ``most``."""
    budgets = np.geomspace(least, most, count).tolist()
    keys = [
        {"profile": name, "mechanism": mechanism, "eps": eps}
        for name, profile in profiles.items()
        for mechanism in of_labels(profile.mechanisms)
        for eps in budgets
    ]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        profile, finished = profiles[key["profile"]], entry.run(key["profile"], run)
        evidence = finished.evidence(profile.vote)
        yield {
            "series": f"{key['mechanism']} ({key['profile']})",
            "accuracy": evidence.expected(MECHANISMS[key["mechanism"]].of(PureDP(key["eps"]), evidence.classes)),
            "accounting": accounting(profile, finished),
            "k counts": finished.counts,
            "median stable distance": float(np.median(finished.distance)),
            "noise-free": finished.accuracy,
        }

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        enough = rows.assign(enough=rows["eps"].where(rows["accuracy"] >= rows["noise-free"] - 0.01))
        about = ["profile", "accounting", "k counts", "median stable distance", "noise-free"]
        first = enough.groupby([*about, "mechanism"], sort=False)["enough"].min().reset_index()
        return wide(first, about, "mechanism", "enough", first["mechanism"].unique(), LEAST)

    def enough(rows: pd.DataFrame) -> str:
        near = rows[rows["accuracy"] >= rows["noise-free"] - 0.01]
        if near.empty:
            return "No mechanism comes within a point of the noise-free accuracy"
        first = near.iloc[int(near["eps"].argmin())]
        return f"{first['series']} comes within a point of noise-free first: from eps = {first['eps']:.2g} of a query on"

    def compared(key: Key) -> Key:
        mechanisms = of_labels(profiles[key["profile"]].mechanisms)
        found = {f"least eps within a point of noise-free, {name}": LEAST.format(name) for name in mechanisms}
        return {**found, "noise-free accuracy": "noise-free"}

    figure = Figure(
        "Expected accuracy against the budget of one query.",
        lambda rows: rows[["eps", "series", "accuracy"]],
        Curves("", "eps", "accuracy", "eps of one query", "expected accuracy", ""),
        enough,
        level="noise-free",
    )
    index = ("profile", "mechanism", "eps")
    return Kind(keys, through(keys, measure), index, (figure,), table, compared=compared)


@kind
def accuracy_by_members(
    profiles: Profiles,
    run: Overrides = (),
    members: tuple[Count, ...] = (1, 5, 25, 95),
    eps: tuple[Positive, ...] = (1.0, 0.5, 0.1),
) -> Kind:
    """Expected accuracy against ensemble size: noisy arg-max and certified votes, a panel for each eps (001 Fig 4)."""
    keys = [
        {"profile": name, "members": size, "mechanism": mechanism, "eps": budget, "panel": f"eps = {budget:g}"}
        for name, profile in profiles.items()
        for size in members
        for mechanism in dict.fromkeys((*profile.mechanisms, "noisy_argmax"))
        if mechanism != "global_sensitivity"
        for budget in eps
    ]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        profile, mechanism = profiles[key["profile"]], MECHANISMS[key["mechanism"]]
        own = (*run, f"ensemble.members={key['members']}")
        finished = entry.run(key["profile"], own, f"{key['members']} members")
        evidence, votes = finished.evidence(profile.vote), mechanism.needs == "votes"
        if evidence.gap is not None or not votes:
            yield {
                "series": f"{mechanism.name} ({key['profile']}{' members' if mechanism.name == 'noisy_argmax' else ''})",
                "accuracy": evidence.expected(mechanism.of(PureDP(key["eps"]), evidence.classes)),
                "accounting": accounting(profile, finished),
                "vote": finished.accuracy,
                "median distance of the vote": float(np.median(evidence.distance)),
                "seconds": round(float(finished.facts["seconds_training"]), 1),
            }

    about = ["profile", "members", "accounting", "vote", "median distance of the vote", "seconds"]
    figure = Figure(
        "Expected accuracy against the number of members.",
        lambda rows: rows[["members", "series", "panel", "accuracy"]],
        Curves("", "members", "accuracy", "members", "expected accuracy", "", log=False, panels="panel"),
        lambda rows: best(rows[rows["eps"] == rows["eps"].min()], "at eps = {eps:g} (members: {members})"),
    )
    index = ("profile", "members", "mechanism", "eps")
    return Kind(keys, through(keys, measure), index, (figure,), lambda rows: rows[about].drop_duplicates())


@kind
def accuracy_by_queries(
    profiles: Profiles,
    run: Overrides = (),
    members: tuple[Count, ...] = (1, 25),
    queries: tuple[Count, ...] = (1, 3, 10, 30, 100, 300, 1000),
    eps: Positive = 10.0,
    delta: Delta = 1e-5,
    dpsgd: DpSgd | None = None,
    weights: Overrides = (),
) -> Kind:
    """Expected accuracy against the number of queries under one total budget (001 Fig 5).

    Args:
        dpsgd: settings of DP-SGD on the run's own head, for comparison.
        weights: overrides of a linear head whose weights a profile with rigorous accounting releases for the whole budget.
    """
    keys = []
    for name, profile in profiles.items():
        mechanisms = of_labels((*profile.mechanisms, profile.many))
        of_run = [(method, size, f"{method}, T = {size} ({name})") for size in members for method in mechanisms]
        of_run += (
            [("release_weights", 0, f"release_weights ({name})")] if weights and profile.accounting == "rigorous" else []
        )
        keys += [{"profile": name, "method": method, "members": size, "series": series} for method, size, series in of_run]
    if dpsgd is not None:
        keys.append({"profile": EVERY, "method": "DP-SGD", "members": 0, "series": "DP-SGD"})

    def accuracies(entry: Entry, key: Key) -> Iterable[Key]:
        if key["method"] == "DP-SGD" and dpsgd is not None:
            found = [_trained(entry, next(iter(profiles)), run, dpsgd, eps, delta, seed) for seed in range(dpsgd.seeds)]
            return [{"accuracy": float(np.mean(found)), "low": min(found), "high": max(found)}] * len(queries)
        if key["method"] == "release_weights":
            return [{"accuracy": _released(entry, key["profile"], weights, eps, delta)}] * len(queries)
        profile, own = profiles[key["profile"]], (*run, f"ensemble.members={key['members']}")
        evidence = entry.run(key["profile"], own, f"{key['members']} members").evidence(profile.vote)
        budgets = [Budget(eps, delta, number) for number in queries]
        each = [afford(MECHANISMS[key["method"]], budget, evidence.classes, profile.bounds) for budget in budgets]
        return [{"accuracy": evidence.expected(mechanism)} for mechanism in each]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        return ({"queries": number, **row} for number, row in zip(queries, accuracies(entry, key), strict=True))

    def compared(key: Key) -> Key:
        many = f", T = {key['members']}, {queries[-1]} queries" if key["members"] else ""
        return {f"{key['method']}{many}": "accuracy"}

    divided = "; ".join(f"{name}: {', '.join(profile.bounds)}" for name, profile in profiles.items())
    caption = f"Expected accuracy against the number of queries under one total budget (best composition of {divided})."
    shared = f"queries that share eps = {eps:g}, delta = {delta:g}"
    figure = Figure(
        caption + (" DP-SGD: mean and range of seeds." if dpsgd else ""),
        lambda rows: rows.filter(["queries", "series", "accuracy", "low", "high"]),
        Curves("", "queries", "accuracy", shared, "expected accuracy", ""),
        lambda rows: best(rows[rows["queries"] == rows["queries"].max()], "for {queries:,} queries"),
    )
    return Kind(
        keys,
        through(keys, measure),
        ("series", "queries"),
        (figure,),
        lambda rows: wide(rows, ["series"], "queries", "accuracy", queries, "{}"),
        measured=lambda rows: rows[rows["queries"] == queries[-1]],
        compared=compared,
    )


@kind
def sensitivity_by_grid(
    profiles: Profiles,
    run: Overrides = (),
    counts: tuple[Count, ...] = (1, 2, 3, 5, 8, 10, 15, 20, 50, 100, 200),
    eps: Positive = 1.0,
) -> Kind:
    """The mean bound on smooth sensitivity, beta = eps/6, against how many values of k were certified (001 Fig 6).

    A coarser grid is read off the run's dense one: its boxes are some of the same boxes.
    """
    keys = [{"profile": name, "values of k": count, "series": name} for name in profiles for count in counts]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        finished, count = entry.run(key["profile"], run), key["values of k"]
        top = max(finished.ks, default=0)
        if finished.ks != tuple(range(top + 1)):
            raise ConfigError(
                f"{entry.artifact.id}: needs a dense grid; {key['profile']} has {len(finished.ks)} values up to {top}"
            )
        if count <= top:
            grid = np.unique(np.concatenate([[0], np.round(np.linspace(0, top, count + 1)[1:]).astype(int)]))
            certified = grid[np.searchsorted(grid, finished.distance, side="right") - 1]
            yield {"bound": float(np.exp(-eps / 6 * certified).mean())}

    note = (
        "A coarse grid looks tight here and is not private: under accounting=paper its true loss exceeds the claimed one "
        "(agt plan draws by how much)."
    )
    ylabel = f"mean bound on smooth sensitivity (eps = {eps:g})"
    drawing = Curves("", "values of k", "bound", "values of k certified, evenly spaced", ylabel, "", level=1.0,
                     level_name="global sensitivity")  # fmt: skip
    caption = "Mean bound on the smooth sensitivity of the test records' labels against the number of values of k."

    def finding(rows: pd.DataFrame) -> str:
        least = rows.iloc[int(rows["bound"].argmin())]
        return f"The mean bound falls to {least['bound']:.2g} (values of k: {least['values of k']}, {least['series']})"

    figure = Figure(caption, lambda rows: rows.drop(columns="profile"), drawing, finding)
    index = ("series", "values of k")
    return Kind(keys, through(keys, measure), index, (figure,), figure.points, notes=lambda rows: (note,))


def of_labels(names: Iterable[str]) -> list[str]:
    """The mechanisms that release the label of one model, each once."""
    return [name for name in dict.fromkeys(names) if MECHANISMS[name].needs != "votes"]


def best(rows: pd.DataFrame, about: str) -> str:
    """Which series is the most accurate of these rows, in a sentence.

    Args:
        about: the setting, with the row's columns in braces.
    """
    top = rows.iloc[int(rows["accuracy"].argmax())]
    return f"{top['series']} is the most accurate, {top['accuracy']:.3f}, {about.format_map(top)}"


def accounting(profile: Profile, finished: Finished) -> str:
    """What the guarantee of labels released from this run would be worth."""
    if profile.accounting == "paper":
        return "paper: no proof of privacy"
    missing = [condition.letter for condition in finished.conditions if not condition.held]
    return f"rigorous, but no proof of privacy: not held: {', '.join(missing)}" if missing else "rigorous"


def _released(entry: Entry, name: ProfileName, own: Overrides, eps: float, delta: float) -> float:
    """The exact expected accuracy of a linear head's weights, released once for the total budget."""
    test = entry.data(name, own)[0].dataset.test
    accuracy = weights_accuracy(entry.model(name, own), test.features, test.labels)
    if accuracy is None:
        raise ConfigError(f"{entry.artifact.id}: weights: these need certificate=stability and model=linear")
    return accuracy(weights_budget(eps, delta).mu)


def _trained(entry: Entry, name: ProfileName, own: Overrides, sgd: DpSgd, eps: float, delta: float, seed: int) -> float:
    """Test accuracy of the run's own head trained by DP-SGD at the total budget."""
    bench, test = entry.bench(name, own, dtype="float32"), entry.data(name, own)[0].dataset.test
    labels = bench.labels(sgd.fit(bench, eps, delta, seed), test.features.astype(np.float32))
    return float((labels == test.labels).mean())
