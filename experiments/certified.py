"""Kinds about privacy budgets: accuracy against eps (001 Fig 2), ensemble size (Fig 4), queries (Fig 5), and the bound on
smooth sensitivity against the grid (Fig 6). Every accuracy is an exact expectation; only DP-SGD is sampled.

Kinds about certified fractions: against k (000 Fig 3, 001 Fig 7), over training (000 Fig 4, 001 Fig 8), and the k at
which half of the test records are certified.

What one k counts differs between the profiles and between privacy and unlearning; every table says it.


Kinds drawn over the plane: certified regions (000 Fig 1), and the bound on smooth sensitivity (001 Fig 3).

Their rows are points of the plane, of the map and of the training data, so they are drawn in a way of their own.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.bounds.network import Box
from agt.errors import ConfigError
from agt.mechanisms.composition import PureDP
from agt.mechanisms.planning import Budget, afford, weights_accuracy
from agt.mechanisms.published import MECHANISMS
from agt.mechanisms.weights import weights_budget
from agt.models.box import BoxModel
from agt.relations import RELATIONS
from agt.settings import STRICT, BoxConfig, Positive
from agt.training.loop import Progress, train
from agt_cli.report.console import Console
from agt_cli.report.figures import COLOURS, DARKEST, MARKERS, Curves, Grid, drawing, headline
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings

from .baselines import DpSgd
from .kinds import EVERY, Entry, Figure, Key, Kind, Overrides, Profile, ProfileName, Profiles, Purpose, kind, through, wide
from .runs import Finished

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

    figure = Figure(caption, lambda rows: rows.drop(columns="profile"), drawing)
    index = ("series", "values of k")
    return Kind(keys, through(keys, measure), index, (figure,), figure.points, notes=lambda rows: (note,))


def of_labels(names: Iterable[str]) -> list[str]:
    """The mechanisms that release the label of one model, each once."""
    return [name for name in dict.fromkeys(names) if MECHANISMS[name].needs != "votes"]


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


Claims = Annotated[tuple[Purpose, ...], Field(min_length=1)]
FRACTION = "certified fraction of the test records"
HALF = "k at half certified"
RATIO = "k at half certified, ours over paper"


@validated(frozen=True, config=STRICT)
class Variant:
    """One curve of each profile and claim: what it is called, and its overrides."""

    label: str = ""
    run: Overrides = ()


@kind
def certified_by_k(
    profiles: Profiles,
    run: Overrides = (),
    variants: Annotated[tuple[Variant, ...], Field(min_length=1)] = (Variant(),),
    claims: Claims = ("privacy",),
    at: tuple[Count, ...] = (1, 5, 10),
    only: int | None = None,
) -> Kind:
    """Certified fraction of the test records against k, and their accuracy before and after training.

    Args:
        variants: the curves, such as several clip levels.
        claims: one panel each.
        at: the k in the table.
        only: test records with this label (an index) alone; None: all.
    """
    own = {variant.label or "-": (*run, *variant.run) for variant in variants}
    keys = [{"profile": name, "claim": claim, "variant": label} for name in profiles for label in own for claim in claims]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name, label, claim = key["profile"], key["variant"].removeprefix("-"), key["claim"]
        words = " ".join(filter(None, (claim, label)))
        finished = entry.run(name, (*own[key["variant"]], f"relation=@{claim}"), words)
        asked = finished.frame if only is None else finished.frame[finished.frame["label"] == only]
        if asked.empty:
            raise ConfigError(f"{entry.artifact.id}: only={only}: no test record has this label")
        about = {
            "series": f"{label} ({name})" if label else name,
            "k counts": finished.counts,
            "test records": len(asked),
            "accuracy before": _accuracy_before(entry, name, own[key["variant"]], only),
            "accuracy": float((asked["prediction"] == asked["label"]).mean()),
            "seconds": round(float(finished.facts["seconds_training"]), 1),
        }
        fractions = certified_fractions(asked["distance"].to_numpy(), finished.ks)
        return ({**row, **about} for row in fractions.to_dict("records"))

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        about = ["profile", "claim", "variant", "k counts", "test records", "accuracy before", "accuracy"]
        found = wide(rows, [*about, "seconds"], "k", "certified_fraction", at, "certified at k={}")
        return found[[*found.columns.drop("seconds"), "seconds"]]

    def compared(key: Key) -> Key:
        which = "" if key["variant"] == "-" else f", {key['variant']}"
        found = {f"certified at k={k} ({key['claim']}{which})": f"certified at k={k}" for k in at}
        return {**found, f"accuracy{which}": "accuracy", "accuracy before training": "accuracy before"}

    columns = ["k", "certified_fraction", "series", "claim", "profile", "variant"]
    figure = Figure(
        "Certified fraction of the test records against k.",
        lambda rows: rows[columns],
        Curves(
            "", "k", "certified_fraction", "k (what one counts: see the table)", FRACTION, "", log=False, panels="claim"
        ),
    )
    return Kind(keys, through(keys, measure), ("profile", "claim", "variant", "k"), (figure,), table, compared=compared)


@kind
def training_curve(
    profiles: Profiles,
    run: Overrides = (),
    ks: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 5, 10),
    claims: Claims = ("privacy", "unlearning"),
) -> Kind:
    """Accuracy, its bounds and the certified fraction after each epoch of one run, for a few k (000 Fig 4, 001 Fig 8)."""
    keys = [{"profile": name, "claim": claim, "panel": f"{claim} ({name})"} for name in profiles for claim in claims]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        own = (*run, f"relation=@{key['claim']}")
        overrides = _on_grid(ks, entry.overrides(key["profile"], own))
        label = f"{entry.artifact.source}, {key['profile']}, {key['claim']}"
        make = partial(_over_training, entry.runs.console, label, entry.bench(key["profile"], own).head)
        frame, _ = entry.runs.once(overrides, label, make, "_over_training", modules=(__name__,))
        relation = entry.runs.settings(overrides)[1].relation.name
        about = {"k counts": RELATIONS[relation].ball, "accuracy at the start": float(frame["nominal_accuracy"].iloc[0])}
        return ({**row, **about, "epochs": int(frame["epoch"].max())} for row in frame.to_dict("records"))

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        last = rows[rows["epoch"] == rows["epochs"]].rename(columns={"nominal_accuracy": "accuracy"})
        about = ["profile", "claim", "k counts", "epochs", "accuracy at the start", "accuracy"]
        worst = wide(last, about, "k", "worst_accuracy", ks, "worst case at k={}").drop(columns=about)
        return wide(last, about, "k", "certified_fraction", ks, "certified at k={}").join(worst)

    def compared(key: Key) -> Key:
        return {
            **{f"certified at k={k} ({key['claim']})": f"certified at k={k}" for k in ks},
            "nominal accuracy": "accuracy",
        }

    def fractions(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(series=[f"k = {k}" for k in rows["k"]])[["panel", "series", "epoch", "k", "certified_fraction"]]

    def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
        nominal = rows.assign(series="nominal", accuracy=rows["nominal_accuracy"]).drop_duplicates(["panel", "epoch"])
        ends = [
            rows.assign(series=[f"{end} case, k = {k}" for k in rows["k"]], accuracy=rows[f"{end}_accuracy"])
            for end in ("worst", "best")
        ]
        return pd.concat([nominal, *ends])[["panel", "series", "epoch", "k", "accuracy"]]

    def last(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[(rows["epoch"] == rows["epochs"]) & (rows["k"] == max(ks))]

    figures = (
        Figure(
            "Certified fraction of the test records after each epoch of one run.",
            fractions,
            Curves("", "epoch", "certified_fraction", "epoch", FRACTION, "", log=False, panels="panel"),
        ),
        Figure(
            "Nominal test accuracy, and what any neighbouring data set could make of it, after each epoch.",
            accuracies,
            Curves("_accuracy", "epoch", "accuracy", "epoch", "test accuracy", "", log=False, panels="panel"),
        ),
    )
    return Kind(keys, through(keys, measure), ("profile", "claim", "epoch", "k"), figures, table, compared=compared)


@kind
def half_certified(
    profiles: Profiles, run: Overrides = (), grids: dict[ProfileName, Overrides] | None = None, seeds: Count = 10
) -> Kind:
    """The largest k at which at least half of the test records are certified; median over initialisations.

    The claim is the same in both profiles: nothing that changes up to k records in all, added or removed, moves the label.
    paper_privacy's ball of k (k removed and k added) holds all such changes, and no smaller of its balls does.

    Args:
        grids: profile -> overrides that choose its grid: every integer around the answer.
        seeds: initialisations, the same in every profile.
    """
    keys = [{"profile": name, "seed": seed} for name in profiles for seed in range(seeds)]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        own = (*run, *(grids or {}).get(key["profile"], ()), f"training.seed={key['seed']}")
        finished = entry.run(key["profile"], own, f"seed {key['seed']}")
        half, exact = at_half(finished.distance, finished.ks)
        about = {HALF: half, "known": "exactly" if exact else "at least", "accuracy": finished.accuracy}
        fractions = certified_fractions(finished.distance, finished.ks)
        return ({**about, "k counts": finished.counts, **row} for row in fractions.to_dict("records"))

    def by_seed(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[["profile", "seed", HALF, "known", "accuracy", "k counts"]].drop_duplicates()

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        columns = {
            "initialisations": ("seed", "count"),
            "k counts": ("k counts", "first"),
            "accuracy, median": ("accuracy", "median"),
            HALF: (HALF, "median"),
            "known": ("known", "min"),
            "least": (HALF, "min"),
            "greatest": (HALF, "max"),
        }
        return by_seed(rows).groupby("profile", sort=False).agg(**columns).reset_index()

    def measured(rows: pd.DataFrame) -> pd.DataFrame:
        found = table(rows)
        paper = found.loc[found["profile"] == "paper", HALF]
        return found.assign(**{RATIO: found[HALF] / paper.iloc[0] if len(paper) else np.nan})

    def compared(key: Key) -> Key:
        return {HALF: HALF, **({RATIO: RATIO} if key["profile"] == "ours" and "paper" in profiles else {})}

    def band(rows: pd.DataFrame) -> pd.DataFrame:
        by = rows.groupby(["profile", "k"], sort=False)["certified_fraction"]
        found = by.agg(certified_fraction="median", low="min", high="max").reset_index()
        return found.assign(series=found["profile"])

    def notes(rows: pd.DataFrame) -> tuple[str, ...]:
        same = "The same claim in both profiles: no change of up to k records in all, added or removed, moves the label."
        more = "Some k are at least so large: the grid ends, or has a gap, right above."
        return (same, more) if (rows["known"] != "exactly").any() else (same,)

    drawing = Curves("", "k", "certified_fraction", "k: records added or removed in all", FRACTION, "", log=False,
                     level=0.5, level_name="half")  # fmt: skip
    caption = "Certified fraction of the test records against k: median of the initialisations, and their range."

    figures, index = (Figure(caption, band, drawing),), ("profile", "seed", "k")
    return Kind(keys, through(keys, measure), index, figures, table, {"_seeds": by_seed}, measured, compared, notes)


def certified_fractions(distance: np.ndarray, ks: tuple[int, ...]) -> pd.DataFrame:
    """For each k >= 1 of the grid, the fraction of records whose stable distance is at least k."""
    grid = np.array([k for k in ks if k > 0])
    return pd.DataFrame({"k": grid, "certified_fraction": (distance[None] >= grid[:, None]).mean(axis=1)})


def at_half(distance: np.ndarray, ks: tuple[int, ...]) -> tuple[int, bool]:
    """(the largest k of the grid at which at least half of the records are certified, or 0; whether k + 1 is on it too)."""
    fractions = certified_fractions(distance, ks)
    k = max(fractions.loc[fractions["certified_fraction"] >= 0.5, "k"], default=0)
    return int(k), k + 1 in ks


def _accuracy_before(entry: Entry, name: ProfileName, own: Overrides, only: int | None) -> float:
    """Of the head as training finds it: a base model's, or random; NaN where another certificate knows no such head."""
    prepared, settings = entry.data(name, own)
    if not isinstance(settings.certificate, BoxConfig):
        return float("nan")
    test, bench = prepared.dataset.test, entry.bench(name, own)
    rows = np.ones(len(test), dtype=bool) if only is None else test.labels == only
    before = bench.labels(dict(bench.head.named_parameters()), test.features[rows].astype(settings.training.dtype))
    return float((before == test.labels[rows]).mean())


def _on_grid(ks: tuple[int, ...], overrides: Overrides) -> Overrides:
    """The overrides with these k, whatever grid the profile insists on: nothing is released from a curve."""
    kept = [word for word in overrides if word.split("=")[0] not in ("kgrid", "kgrid.max", "kgrid.values")]
    return (*kept, "kgrid=sparse", "kgrid.max=null", f"kgrid.values=[{','.join(map(str, ks))}]")


def _over_training(
    console: Console, label: str, head: nn.Sequential, prepared: Prepared, settings: RunSettings
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """After each epoch and for each k: nominal, worst-case and best-case accuracy, certified fraction."""
    problem, dataset = prepared.problem(settings), prepared.dataset
    epochs: dict[int, pd.DataFrame] = {}

    def on_epoch(epoch: int, reached: Box) -> None:
        certificates = BoxModel(problem, head, reached, problem.plan).certify(dataset.test.features)
        epochs[epoch] = pd.DataFrame(certificates.table(dataset.test.labels))

    with console.progress(f"training, {label}") as report:

        def on_progress(at: Progress) -> None:
            report(at.step, at.steps, at.done, at.total)

        train(head, problem.recipe, dataset.train, on_progress, on_epoch=on_epoch)
    return pd.concat(epochs, names=["epoch"]).reset_index(level="epoch").astype({"k": int}), {}


Resolution = Annotated[int, Field(ge=8, le=400)]  # points along each axis
Facts = Callable[[np.ndarray, np.ndarray], dict[str, float]]  # distances of test records, of the map's points -> columns
TRAINING_POINTS = 250  # drawn on a map, at most


@validated(frozen=True, config=STRICT)
class Panel:
    """One map of each profile: its title and the overrides of its run."""

    title: str
    run: Overrides = ()


Panels = Annotated[tuple[Panel, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Planes:
    """How maps are drawn: a row of panels for each profile, a colour for each interval of values.

    Attributes:
        label: of the colour bar.
        value: the rows' stable distances -> what is coloured.
        scale: all values -> the intervals' ends, and where the bar has which names.
        shades: of the first and the last interval, 0 the lightest.
        name, title, finding: as of ``Curves``.
    """

    label: str
    value: Callable[[pd.Series], pd.Series]
    scale: Callable[[pd.Series], tuple[list[float], dict[float, str]]]
    shades: tuple[float, float]
    name: str = ""
    title: str = ""
    finding: str = ""


@kind
def plane_maps(
    profiles: Profiles,
    panels: Panels,
    levels: tuple[int, ...] = (1, 5, 10, 20, 50, 100, 150),
    resolution: Resolution = 100,
    eps: Positive = 1.0,
) -> Kind:
    """Regions of the plane by stable distance, told apart at public ``levels`` (000 Fig 1)."""

    def facts(tested: np.ndarray, mapped: np.ndarray) -> dict[str, float]:
        return {f"certified at k = {k}": float((tested >= k).mean()) for k in levels}

    def scale(values: pd.Series) -> tuple[list[float], dict[float, str]]:
        ends: list[float] = [0, *levels, levels[-1] + 1]
        names = [f"< {levels[0]}", *(f"{k} or more" for k in levels)]
        return ends, {(low + high) / 2: name for (low, high), name in zip(pairwise(ends), names, strict=True)}

    drawn = Planes("stable distance, in k", lambda distance: distance, scale, (0, DARKEST))
    caption = "Regions of the plane by how many records would have to change before the label could; black: decision line."
    figure = Figure(caption, lambda rows: rows, drawn, draw=_draw)
    return _maps(profiles, panels, resolution, ["accuracy"], facts, figure)


@kind
def sensitivity_maps(
    profiles: Profiles,
    panels: Panels,
    levels: tuple[int, ...] = (),
    resolution: Resolution = 100,
    eps: Positive = 1.0,
) -> Kind:
    """The bound exp(-beta L) on the smooth sensitivity over the plane, beta = eps/6 (001 Fig 3)."""

    def facts(tested: np.ndarray, mapped: np.ndarray) -> dict[str, float]:
        mean, least = np.exp(-eps / 6 * tested).mean(), np.exp(-eps / 6 * mapped).min()
        return {"mean bound, test records": float(mean), "least bound on the map": float(least)}

    def scale(values: pd.Series) -> tuple[list[float], dict[float, str]]:
        ends = np.geomspace(max(1e-12, min(values.min(), math.exp(-eps / 6))), 1.0, 9).tolist()
        return ends, {end: f"{end:.2g}" for end in ends}

    label = f"bound on smooth sensitivity\n(eps = {eps:g}, beta = eps/6)"
    drawn = Planes(label, lambda distance: np.exp(-eps / 6 * distance), scale, (DARKEST, 0))
    caption = "Bound on the smooth sensitivity of the label; darker: less noise is needed; black: decision line."
    return _maps(profiles, panels, resolution, [], facts, Figure(caption, lambda rows: rows, drawn, draw=_draw))


def _maps(profiles: Profiles, panels: Panels, resolution: int, columns: list[str], facts: Facts, figure: Figure) -> Kind:
    """Maps of the plane, one for each panel and profile, and a table with ``columns`` and ``facts`` of the test records."""
    own = {panel.title: panel.run for panel in panels}
    keys = [{"profile": name, "panel": panel} for name in profiles for panel in own]

    def measure(entry: Entry, key: Key) -> pd.DataFrame:
        name, panel = key["profile"], key["panel"]
        dataset = entry.data(name, own[panel])[0].dataset
        if dataset.plane is None:
            raise TypeError(f"{entry.artifact.id}: {dataset.name} does not lie in a plane")
        grid = Grid.around(dataset.plane.points, resolution)
        points = dataset.plane.lift(grid.points).astype(dataset.train.features.dtype)
        mapped = entry.run(name, own[panel], f"{panel} (map)", f"map{resolution}", points)
        tested = entry.run(name, own[panel], panel)
        few = np.linspace(0, len(dataset.train) - 1, min(TRAINING_POINTS, len(dataset.train))).astype(int)
        parts = [
            pd.DataFrame(grid.points, columns=["x1", "x2"]).assign(
                point="map", prediction=mapped.frame["prediction"], stable_distance=mapped.distance
            ),
            pd.DataFrame(dataset.plane.points[few], columns=["x1", "x2"]).assign(
                point="training", prediction=dataset.train.labels[few]
            ),
        ]
        about: Key = {"k counts": tested.counts, "accuracy": tested.accuracy, **facts(tested.distance, mapped.distance)}
        return pd.concat(parts).assign(**key, **about)

    def rows(entry: Entry) -> pd.DataFrame:
        return pd.concat([measure(entry, key) for key in keys], ignore_index=True)

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        measured = facts(np.zeros(1), np.zeros(1))
        return rows[["profile", "panel", "k counts", *columns, *measured]].drop_duplicates()

    return Kind(keys, rows, ("profile", "panel", "point", "x1", "x2"), (figure,), table)


def _draw(record: RunRecord, planes: Planes, rows: pd.DataFrame) -> None:
    """One panel for each profile and panel of the rows, and one colour bar."""
    mapped = rows[rows["point"] == "map"]
    ends, names = planes.scale(planes.value(mapped["stable_distance"]))
    norm = BoundaryNorm(ends, len(ends) - 1)
    colours = ListedColormap(mpl.colormaps[COLOURS](np.linspace(*planes.shades, len(ends) - 1)))
    columns = ["x1", "x2", "profile", "panel", "prediction", "stable_distance"]
    data, across, down = (
        mapped[columns].astype({"stable_distance": int}),
        rows["panel"].nunique(),
        rows["profile"].nunique(),
    )
    with drawing(record, planes.name, data, (1.5 + 2.3 * across, 0.7 + 2.3 * down)) as figure:
        axes = figure.subplots(down, across, squeeze=False, sharex="col", sharey="col")
        for place, ((profile, panel), part) in zip(
            axes.ravel(), rows.groupby(["profile", "panel"], sort=False), strict=True
        ):
            _panel(place, planes, part, colours, norm)
            place.set_title(f"{profile}: {panel}", fontsize=8)
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, shrink=0.8, spacing="uniform")
        bar.set_ticks(list(names), labels=list(names.values()))
        bar.ax.minorticks_off()
        bar.ax.tick_params(length=0)
        bar.set_label(planes.label)
        headline(figure, planes.finding, planes.title)


def _panel(axes: Axes, planes: Planes, part: pd.DataFrame, colours: ListedColormap, norm: BoundaryNorm) -> None:
    """Colours, the decision line, and some training points by class."""
    mapped, training = part[part["point"] == "map"], part[part["point"] == "training"]
    x, y = mapped["x1"].unique(), mapped["x2"].unique()
    image = planes.value(mapped["stable_distance"]).to_numpy().reshape(len(y), len(x))
    axes.pcolormesh(x, y, image, cmap=colours, norm=norm, shading="nearest", rasterized=True)
    label = mapped["prediction"].to_numpy().reshape(len(y), len(x))
    for c in range(1, int(label.max()) + 1):
        axes.contour(x, y, (label == c).astype(float), levels=[0.5], colors="black", linewidths=1.2)
    for (_, here), (marker, face, edge) in zip(training.groupby("prediction"), MARKERS, strict=False):
        axes.scatter(here["x1"], here["x2"], s=9, marker=marker, facecolors=face, edgecolors=edge, linewidths=0.35)
    axes.set(aspect="equal", xlim=x[[0, -1]], ylim=y[[0, -1]])
    axes.tick_params(labelsize=8)
