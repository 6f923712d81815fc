"""Kinds about privacy budgets: accuracy against eps (001 Fig 2), ensemble size (Fig 4), queries
(Fig 5), and the bound on smooth sensitivity against the grid (Fig 6). Every accuracy is an exact
expectation; only DP-SGD is sampled.

Kinds about certified fractions: against k (000 Fig 3, 001 Fig 7), over training (000 Fig 4, 001 Fig
8), and the k at which half of the test records are certified. Kinds drawn over the plane: certified
regions (000 Fig 1), and the bound on smooth sensitivity (001 Fig 3).

What one k counts differs between the profiles and between privacy and unlearning; every table says
it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.bounds.box import Box
from agt.errors import ConfigError
from agt.mechanisms.guarantees import PureDP
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.planning import Budget, afford
from agt.mechanisms.weights import ReleaseWeights
from agt.models.box import BoxModel
from agt.relations import RELATIONS
from agt.settings import STRICT, Count, Positive
from agt.training.loop import Progress, train
from agt_cli.report.figures import DARKEST_COLOUR, SERIES_STYLES, Grid, format_power_of_ten
from agt_cli.runs.prepare import Prepared, RunSettings

from .baselines import DpSgd, Weights
from .figures import lines, marks, planes, regions
from .kinds import (
    EVERY,
    Entry,
    Figure,
    Key,
    Kind,
    Overrides,
    Profile,
    ProfileName,
    Profiles,
    Purpose,
    Shown,
    grid,
    kind,
    through,
    wide,
)
from .runs import Finished

Delta = Annotated[float, Field(gt=0, lt=1)]
LEAST = "{}: least eps within a point"
EVEN = "even spacing"
GEOMETRIC = "geometric spacing"


@kind
def accuracy_by_eps(
    profiles: Profiles,
    run: Overrides = (),
    least: Positive = 0.01,
    most: Positive = 10.0,
    count: Annotated[int, Field(ge=2)] = 20,
) -> Kind:
    """Expected accuracy against eps of one query, one model (001 Fig 2): ``count`` values from
    ``least`` to ``most``.
    """
    offered = {name: of_labels(profile.mechanisms) for name, profile in profiles.items()}
    budgets = np.geomspace(least, most, count).tolist()
    keys: list[Key] = []
    for name in profiles:
        keys += grid(profile=[name], mechanism=offered[name], eps=budgets)

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        profile = profiles[key["profile"]]
        finished = entry.run(key["profile"], run)
        evidence = finished.evidence(profile.vote)
        kind = MECHANISMS[key["mechanism"]]
        mechanism = kind.with_guarantee(PureDP(key["eps"]), evidence.classes)
        median_distance = float(np.median(finished.distance))
        yield {
            "series": f"{key['mechanism']} ({key['profile']})",
            "accuracy": evidence.expected_accuracy(mechanism),
            "accounting": accounting(profile, finished),
            "k counts": finished.counts,
            "median stable distance": median_distance,
            "noise-free": finished.accuracy,
        }

    def shown(rows: pd.DataFrame) -> Shown:
        is_enough = rows["accuracy"] >= rows["noise-free"] - 0.01
        enough = rows.assign(enough=rows["eps"].where(is_enough))
        about = ["profile", "accounting", "k counts", "median stable distance", "noise-free"]
        groups = enough.groupby([*about, "mechanism"], sort=False)
        first = groups["enough"].min().reset_index()
        table = wide(first, about, "mechanism", "enough", first["mechanism"].unique(), LEAST)
        noise_free = float(rows["noise-free"].iloc[-1])
        draw = lines("eps", "accuracy", "eps of one query", "expected accuracy", level=noise_free)
        points = rows[["eps", "series", "accuracy", "profile"]].assign(method=rows["mechanism"])
        caption = "Expected accuracy against the privacy budget (eps) of one query."
        return Shown(table, [Figure(caption, points, draw)])

    def compared(key: Key) -> Key:
        found = {}
        for one in offered[key["profile"]]:
            found[f"least eps within a point of noise-free, {one}"] = LEAST.format(one)
        return {**found, "noise-free accuracy": "noise-free"}

    return Kind(keys, ("profile", "mechanism", "eps"), through(keys, measure), shown, compared)


@kind
def accuracy_by_members(
    profiles: Profiles,
    run: Overrides = (),
    members: tuple[Count, ...] = (1, 5, 25, 95),
    eps: tuple[Positive, ...] = (1.0, 0.5, 0.1),
) -> Kind:
    """Expected accuracy against ensemble size: noisy arg-max and certified votes, a panel for
    each eps (001 Fig 4).
    """
    panels = {budget: f"eps = {budget:g}" for budget in sorted(eps)}
    keys = []
    for name, profile in profiles.items():
        offered = dict.fromkeys((*profile.mechanisms, "noisy_argmax"))
        mechanisms = [one for one in offered if one != "global_sensitivity"]
        for key in grid(profile=[name], members=members, mechanism=mechanisms, eps=eps):
            keys.append({**key, "panel": panels[key["eps"]]})

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        profile = profiles[key["profile"]]
        kind = MECHANISMS[key["mechanism"]]
        own = (*run, f"ensemble.members={key['members']}")
        finished = entry.run(key["profile"], own, f"{key['members']} members")
        evidence = finished.evidence(profile.vote)
        if evidence.tally is None and kind.needs == "votes":
            return
        mechanism = kind.with_guarantee(PureDP(key["eps"]), evidence.classes)
        median_distance = float(np.median(evidence.distance))
        seconds = float(finished.facts["seconds_training"])
        yield {
            "series": f"{kind.name} ({key['profile']})",
            "accuracy": evidence.expected_accuracy(mechanism),
            "accounting": accounting(profile, finished),
            "vote": finished.accuracy,
            "median distance of the vote": median_distance,
            "seconds": round(seconds, 1),
        }

    def shown(rows: pd.DataFrame) -> Shown:
        about = [
            "profile",
            "members",
            "accounting",
            "vote",
            "median distance of the vote",
            "seconds",
        ]
        points = rows[["members", "series", "panel", "accuracy", "profile"]]
        points = points.assign(method=rows["mechanism"]).rename(columns={"members": "T"})
        order = tuple(panels.values())
        draw = lines(
            "T",
            "accuracy",
            "T, the number of members",
            "expected accuracy",
            log=False,
            panels="panel",
            order=order,
        )
        figure = Figure("Expected accuracy against the number of members.", points, draw)
        return Shown(rows[about].drop_duplicates(), [figure])

    return Kind(keys, ("profile", "members", "mechanism", "eps"), through(keys, measure), shown)


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
        weights: overrides of a linear head whose weights a profile with rigorous accounting
            releases for the whole budget.
    """
    keys = []
    for name, profile in profiles.items():
        for size in members:
            offered = of_labels((*profile.mechanisms, profile.many))
            if size > 1:
                offered = [*offered, "noisy_argmax"]
            for key in grid(profile=[name], members=[size], method=offered):
                keys.append({**key, "series": f"{key['method']}, T = {size} ({name})"})
        if weights and profile.accounting == "rigorous":
            key = {"profile": name, "members": 0, "method": "release_weights"}
            keys.append({**key, "series": f"release_weights ({name})"})
    if dpsgd is not None:
        keys.append({"profile": EVERY, "members": 0, "method": "DP-SGD", "series": "DP-SGD"})

    def accuracies(entry: Entry, key: Key) -> Iterable[Key]:
        if key["method"] == "DP-SGD" and dpsgd is not None:
            first_profile = next(iter(profiles))
            found = [
                _trained(entry, first_profile, run, dpsgd, eps, delta, seed)
                for seed in range(dpsgd.seeds)
            ]
            mean = float(np.mean(found))
            return [{"accuracy": mean, "low": min(found), "high": max(found)}] * len(queries)
        if key["method"] == "release_weights":
            released = _released(entry, key["profile"], weights, eps, delta)
            return [{"accuracy": released}] * len(queries)
        profile = profiles[key["profile"]]
        own = (*run, f"ensemble.members={key['members']}")
        finished = entry.run(key["profile"], own, f"{key['members']} members")
        evidence = finished.evidence(profile.vote)
        rows = []
        for number in queries:
            budget = Budget(eps, delta, number)
            mechanism = afford(MECHANISMS[key["method"]], budget, evidence.classes, profile.bounds)
            rows.append({"accuracy": evidence.expected_accuracy(mechanism)})
        return rows

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        for number, row in zip(queries, accuracies(entry, key), strict=True):
            yield {"queries": number, **row}

    def shown(rows: pd.DataFrame) -> Shown:
        bounds = {name: ", ".join(profile.bounds) for name, profile in profiles.items()}
        divided = "; ".join(f"{name}: {listed}" for name, listed in bounds.items())
        caption = (
            f"Expected accuracy against the number of queries that share eps = {eps:g} and delta = "
            f"{delta:g} (best composition of {divided})."
        )
        caption += " DP-SGD: mean and range of seeds." if dpsgd else ""
        columns = ["queries", "accuracy", "low", "high", "method", "members"]
        of_profiles = []
        for name in profiles:
            of_profile = rows[rows["profile"].isin([name, EVERY])]
            of_profiles.append(of_profile.filter(columns).assign(panel=name))
        points = pd.concat(of_profiles, ignore_index=True)
        with_members = points["method"] + ", T = " + points["members"].astype(str)
        points["series"] = points["method"].where(points["members"] == 0, with_members)
        draw = lines("queries", "accuracy", "queries", "expected accuracy", panels="panel")
        figure = Figure(caption, points, draw)
        table = wide(rows, ["series"], "queries", "accuracy", queries, "{}")
        most_queries = rows[rows["queries"] == queries[-1]]
        return Shown(table, [figure], measured=most_queries)

    def compared(key: Key) -> Key:
        name = key["method"]
        if key["members"]:
            name = f"{name}, T = {key['members']}, {queries[-1]} queries"
        return {name: "accuracy"}

    return Kind(keys, ("series", "queries"), through(keys, measure), shown, compared)


@kind
def sensitivity_by_grid(
    profiles: Profiles,
    run: Overrides = (),
    counts: tuple[Count, ...] = (1, 2, 3, 5, 8, 10, 15, 20, 50, 100, 200),
    eps: Positive = 1.0,
) -> Kind:
    """The mean bound on smooth sensitivity, beta = eps/6, against how many values of k were
    certified (001 Fig 6), evenly and geometrically spaced.

    A coarser grid is read off the run's dense one: its boxes are some of the same boxes.
    """
    keys = grid(profile=profiles, spacing=(EVEN, GEOMETRIC), **{"values of k": counts})

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        finished = entry.run(key["profile"], run)
        count = key["values of k"]
        top = max(finished.ks, default=0)
        if finished.ks != tuple(range(top + 1)):
            raise ConfigError(
                f"{entry.artifact.id}: every k up to {top} is needed, but {key['profile']} has "
                f"{len(finished.ks)} values of k up to it"
            )
        if count <= top:
            ks = spaced_ks(top, count, key["spacing"])
            certified = ks[np.searchsorted(ks, finished.distance, side="right") - 1]
            series = f"{key['profile']}, {key['spacing']}"
            bound = np.exp(-eps / 6 * certified)
            yield {"series": series, "bound": float(bound.mean())}

    def shown(rows: pd.DataFrame) -> Shown:
        draw = lines(
            "values of k",
            "bound",
            "values of k certified",
            f"mean bound on smooth sensitivity (eps = {eps:g})",
            ylog=True,
            level=1.0,
            level_name="global sensitivity",
        )
        caption = (
            "Mean bound on the smooth sensitivity of the test records' labels against the "
            "number of values of k: evenly spaced up to the largest k, or geometrically spaced "
            "from 1 to it."
        )
        note = (
            "A few values of k look good here but are not private: under accounting=paper the "
            "true privacy loss exceeds the claimed one (agt plan shows by how much)."
        )
        points = rows[["series", "values of k", "bound", "profile"]]
        points = points.assign(method=rows["spacing"])
        table = wide(rows, ["profile", "spacing"], "values of k", "bound", counts, "{}")
        return Shown(table, [Figure(caption, points, draw)], (note,))

    index = ("profile", "spacing", "values of k")
    return Kind(keys, index, through(keys, measure), shown)


def spaced_ks(largest: int, count: int, spacing: str) -> np.ndarray:
    """Return 0 and up to ``count`` values of k; rounding may make two of them equal.

    Args:
        largest: the largest k of the dense grid.
        spacing: EVEN: the last value is ``largest``; GEOMETRIC: each value is the same multiple of
            the one before, and so are 1 and ``largest`` of their neighbours.
    """
    if spacing == EVEN:
        values = np.linspace(0, largest, count + 1)[1:]
    else:
        values = np.geomspace(1, largest, count + 2)[1:-1]
    return np.unique([0, *np.round(values).astype(int)])


def of_labels(names: Iterable[str]) -> list[str]:
    """The mechanisms that release the label of one model, each once."""
    return [name for name in dict.fromkeys(names) if MECHANISMS[name].needs != "votes"]


def accounting(profile: Profile, finished: Finished) -> str:
    """What the guarantee of labels released from this run would be worth."""
    if profile.accounting == "paper":
        return "paper: no proof of privacy"
    missing = [condition.letter for condition in finished.conditions if not condition.held]
    return (
        "rigorous, but no proof of privacy, because these conditions are not met: "
        f"{', '.join(missing)}"
        if missing
        else "rigorous"
    )


def _released(entry: Entry, name: ProfileName, own: Overrides, eps: float, delta: float) -> float:
    """The exact expected accuracy of a linear head's weights, released once for the total
    budget.
    """
    test = entry.data(name, own)[0].dataset.test
    head = entry.model(name, own).linear_head
    if head is None:
        raise ConfigError(
            f"{entry.artifact.id}: weights=... needs certificate=stability and model=linear"
        )
    return ReleaseWeights.within(eps, delta).expected_accuracy(head, test.features, test.labels)


def _trained(
    entry: Entry, name: ProfileName, own: Overrides, sgd: DpSgd, eps: float, delta: float, seed: int
) -> float:
    """Test accuracy of the run's own head trained by DP-SGD at the total budget."""
    bench = entry.bench(name, own, dtype="float32")
    test = entry.data(name, own)[0].dataset.test
    return bench.accuracy(sgd.fit(bench, eps, delta, seed), test)


Claims = Annotated[tuple[Purpose, ...], Field(min_length=1)]
FRACTION = "certified fraction of test records"
HALF = "k at half certified"
RATIO = "k at half certified, ours over paper"


@validated(frozen=True, config=STRICT)
class Variant:
    """One curve, panel or row: what it is called, its overrides, and which data it is on, where
    not the experiment's.
    """

    label: str = ""
    run: Overrides = ()
    data: str = ""


Variants = Annotated[tuple[Variant, ...], Field(min_length=1)]
PLAIN: Variants = (Variant(),)


@kind
def certified_by_k(
    profiles: Profiles,
    run: Overrides = (),
    variants: Variants = PLAIN,
    claims: Claims = ("privacy",),
    at: tuple[Count, ...] = (1, 5, 10),
    only: int | None = None,
) -> Kind:
    """Certified fraction of the test records against k, and their accuracy before and after
    training.

    Args:
        variants: the curves, such as several clip levels.
        claims: one panel each.
        at: the k in the table.
        only: test records with this label (an index) alone; None: all.
    """
    unnamed = "-"
    own = {variant.label or unnamed: (*run, *variant.run) for variant in variants}
    keys = [
        {"profile": name, "claim": claim, "variant": label}
        for name, label, claim in product(profiles, own, claims)
    ]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        claim = key["claim"]
        label = "" if key["variant"] == unnamed else key["variant"]
        words = " ".join(filter(None, (claim, label)))
        overrides = own[key["variant"]]
        finished = entry.run(name, (*overrides, f"relation=@{claim}"), words)
        asked = finished.frame
        if only is not None:
            asked = asked[asked["label"] == only]
        if asked.empty:
            raise ConfigError(f"{entry.artifact.id}: only={only}: no test record has this label")
        is_right = asked["prediction"] == asked["label"]
        seconds = float(finished.facts["seconds_training"])
        about = {
            "series": f"{label} ({name})" if label else name,
            "k counts": finished.counts,
            "test records": len(asked),
            "accuracy before": _accuracy_before(entry, name, overrides, only),
            "accuracy": float(is_right.mean()),
            "seconds": round(seconds, 1),
        }
        fractions = certified_fractions(asked["distance"].to_numpy(), finished.ks)
        return ({**row, **about} for row in fractions.to_dict("records"))

    def shown(rows: pd.DataFrame) -> Shown:
        about = [
            "profile",
            "claim",
            "variant",
            "k counts",
            "test records",
            "accuracy before",
            "accuracy",
        ]
        found = wide(rows, [*about, "seconds"], "k", "certified_fraction", at, "certified at k={}")
        draw = lines(
            "k",
            "certified_fraction",
            "k: number of changed records",
            FRACTION,
            log=False,
            panels="claim",
            share=True,
        )
        points = rows[["k", "certified_fraction", "series", "claim", "profile", "variant"]]
        points = points.assign(method=rows["variant"])
        after = found.drop(columns="seconds")
        mark = partial(
            marks,
            x="accuracy",
            y="variant",
            series="profile",
            panels="claim",
            xlabel="accuracy before and after training",
            panel="{}",
            start="accuracy before",
            start_name="before training",
            mark_name="after training",
        )
        words = (
            "Accuracy on the same test records before training (vertical line) and after it "
            "(the mark that the arrow leads to)."
        )
        figures = [
            Figure(
                "Certified fraction of the test records against k, whose unit the table names.",
                points,
                draw,
            ),
            Figure(words, after, mark, "_accuracy"),
        ]
        return Shown(found[[*found.columns.drop("seconds"), "seconds"]], figures)

    def compared(key: Key) -> Key:
        which = "" if key["variant"] == "-" else f", {key['variant']}"
        found = {f"certified at k={k} ({key['claim']}{which})": f"certified at k={k}" for k in at}
        return {
            **found,
            f"accuracy{which}": "accuracy",
            "accuracy before training": "accuracy before",
        }

    return Kind(keys, ("profile", "claim", "variant", "k"), through(keys, measure), shown, compared)


@kind
def training_curve(
    profiles: Profiles,
    run: Overrides = (),
    ks: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 5, 10),
    claims: Claims = ("privacy", "unlearning"),
) -> Kind:
    """Accuracy, its bounds and the certified fraction after each epoch of one run, for a few k
    (000 Fig 4, 001 Fig 8).
    """
    keys = [
        {"profile": name, "claim": claim, "panel": f"{claim} ({name})"}
        for name, claim in product(profiles, claims)
    ]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        own = (*run, f"relation=@{key['claim']}")
        overrides = _on_grid(ks, entry.overrides(key["profile"], own))
        label = f"{entry.artifact.source}, {key['profile']}, {key['claim']}"
        head = entry.bench(key["profile"], own).head

        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            with entry.runs.console.progress(f"training, {label}") as report:
                return _over_training(report, head, prepared, settings), {}

        frame, _ = entry.runs.once(overrides, label, make, "_over_training")
        relation = entry.runs.settings(overrides)[1].relation.name
        about = {
            "k counts": RELATIONS[relation].describe_neighbours(),
            "accuracy at the start": float(frame["nominal_accuracy"].iloc[0]),
        }
        about["epochs"] = int(frame["epoch"].max())
        return ({**row, **about} for row in frame.to_dict("records"))

    def shown(rows: pd.DataFrame) -> Shown:
        last = rows[rows["epoch"] == rows["epochs"]]
        last = last.rename(columns={"nominal_accuracy": "accuracy"})
        about = ["profile", "claim", "k counts", "epochs", "accuracy at the start", "accuracy"]
        worst = wide(last, about, "k", "worst_accuracy", ks, "worst case at k={}").drop(
            columns=about
        )
        table = wide(last, about, "k", "certified_fraction", ks, "certified at k={}").join(worst)
        fractions = rows.assign(series=[f"k = {k}" for k in rows["k"]])
        nominal = rows.assign(series="nominal", accuracy=rows["nominal_accuracy"])
        parts = [nominal.drop_duplicates(["panel", "epoch"])]
        for end in ("worst", "best"):
            series = [f"{end} case, k = {k}" for k in rows["k"]]
            parts.append(rows.assign(series=series, accuracy=rows[f"{end}_accuracy"]))
        about = ["panel", "series", "epoch", "k"]
        fraction_looks, accuracy_looks = _looks_by_k(ks)
        shares = partial(lines, "epoch", log=False, panels="panel", share=True)
        fraction = shares("certified_fraction", "epoch", FRACTION, looks=fraction_looks)
        accuracy = shares("accuracy", "epoch", "test accuracy", looks=accuracy_looks)
        caption = "Certified fraction of the test records after each epoch of one run."
        accuracies = (
            "Nominal test accuracy after each epoch, and the accuracies that any neighbouring "
            "data set could lead to."
        )
        fraction_points = fractions[[*about, "certified_fraction"]]
        accuracy_points = pd.concat(parts)[[*about, "accuracy"]]
        figures = [
            Figure(caption, fraction_points, fraction),
            Figure(accuracies, accuracy_points, accuracy, "_accuracy"),
        ]
        is_curve = rows["epochs"].max() > 1  # start and one epoch: the table has these numbers
        return Shown(table, figures if is_curve else ())

    def compared(key: Key) -> Key:
        found = {f"certified at k={k} ({key['claim']})": f"certified at k={k}" for k in ks}
        return {**found, "nominal accuracy": "accuracy"}

    return Kind(keys, ("profile", "claim", "epoch", "k"), through(keys, measure), shown, compared)


Looks = dict[str, dict[str, Any]]


def _looks_by_k(ks: Sequence[int]) -> tuple[Looks, Looks]:
    """Return how lines of certified fractions and of accuracies look, by their series.

    All lines of one k share a colour and a marker; a best case is dotted.
    """
    fractions: Looks = {}
    accuracies: Looks = {"nominal": {"color": "black", "linestyle": "-", "marker": ""}}
    for position, k in enumerate(ks):
        line = SERIES_STYLES[position % len(SERIES_STYLES)]
        look = {"color": line["color"], "marker": line["marker"]}
        fractions[f"k = {k}"] = {**look, "linestyle": "-"}
        accuracies[f"worst case, k = {k}"] = {**look, "linestyle": "-"}
        accuracies[f"best case, k = {k}"] = {**look, "linestyle": ":"}
    return fractions, accuracies


@kind
def half_certified(
    profiles: Profiles,
    run: Overrides = (),
    grids: dict[ProfileName, Overrides] | None = None,
    seeds: Count = 10,
) -> Kind:
    """The largest k at which at least half of the test records are certified; median over
    initialisations.

    The claim is the same in both profiles: nothing that changes up to k records in all, added or
    removed, moves the label. paper_privacy's ball of k (k removed and k added) holds all such
    changes, and no smaller of its balls does.

    Args:
        grids: profile -> overrides that choose its grid: every integer around the answer.
        seeds: initialisations, the same in every profile.
    """
    keys = grid(profile=profiles, seed=range(seeds))

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        ks = grids.get(key["profile"], ()) if grids else ()
        own = (*run, *ks, f"training.seed={key['seed']}")
        finished = entry.run(key["profile"], own, f"seed {key['seed']}")
        half, exact = at_half(finished.distance, finished.ks)
        about = {
            HALF: half,
            "known": "exactly" if exact else "at least",
            "accuracy": finished.accuracy,
        }
        fractions = certified_fractions(finished.distance, finished.ks)
        return (
            {**about, "k counts": finished.counts, **row} for row in fractions.to_dict("records")
        )

    def shown(rows: pd.DataFrame) -> Shown:
        by_seed = rows[["profile", "seed", HALF, "known", "accuracy", "k counts"]].drop_duplicates()
        columns = {
            "initialisations": ("seed", "count"),
            "k counts": ("k counts", "first"),
            "accuracy, median": ("accuracy", "median"),
            HALF: (HALF, "median"),
            "known": ("known", "min"),
            "least": (HALF, "min"),
            "greatest": (HALF, "max"),
        }
        table = by_seed.groupby("profile", sort=False).agg(**columns).reset_index()
        paper = table.loc[table["profile"] == "paper", HALF]
        ratio = table[HALF] / paper.iloc[0] if len(paper) else np.nan
        measured = table.assign(**{RATIO: ratio})
        band = rows.groupby(["profile", "k"], sort=False)["certified_fraction"]
        points = band.agg(certified_fraction="median", low="min", high="max").reset_index()
        xlabel = "k: records added or removed"
        draw = lines(
            "k",
            "certified_fraction",
            xlabel,
            FRACTION,
            log=False,
            level=0.5,
            level_name="half",
            steps=True,
            share=True,
        )
        caption = (
            "Certified fraction of the test records against k: median and range over "
            "initialisations. Between measured values of k, the fraction at the next one is "
            "shown."
        )
        notes = [
            "Both profiles claim the same: no change of up to k records in all, added or "
            "removed, changes the label."
        ]
        if (rows["known"] != "exactly").any():
            notes.append(
                "Some values of k are only lower bounds, because the list of values of k ends "
                "or has a gap right above them."
            )
        looks = {"series": points["profile"], "method": points["profile"]}
        figures = [Figure(caption, points.assign(**looks), draw)]
        return Shown(table, figures, tuple(notes), measured, {"_seeds": by_seed})

    def compared(key: Key) -> Key:
        names = {HALF: HALF}
        if key["profile"] == "ours" and "paper" in profiles:
            names[RATIO] = RATIO
        return names

    return Kind(keys, ("profile", "seed", "k"), through(keys, measure), shown, compared)


def certified_fractions(distance: np.ndarray, ks: tuple[int, ...]) -> pd.DataFrame:
    """For each k >= 1 of the grid, the fraction of records whose stable distance is at least k."""
    positive = np.array([k for k in ks if k > 0])
    fraction = (distance[None] >= positive[:, None]).mean(axis=1)
    return pd.DataFrame({"k": positive, "certified_fraction": fraction})


def at_half(distance: np.ndarray, ks: Sequence[int]) -> tuple[int, bool]:
    """(the largest k at which at least half of the records are certified, or 0; whether k + 1 was
    looked at, too: a closed form's distances go beyond its grid).
    """
    middle = np.sort(distance)[len(distance) // 2]
    half = max(0, int(middle))
    is_exact = half + 1 in ks or half > max(ks, default=0)
    return half, is_exact


def _accuracy_before(entry: Entry, name: ProfileName, own: Overrides, only: int | None) -> float:
    """Of the head as training finds it: a base model's, or random; NaN where another certificate
    knows no such head.
    """
    prepared, settings = entry.data(name, own)
    if not settings.certificate.draws_start:
        return float("nan")
    test = prepared.dataset.test
    bench = entry.bench(name, own)
    asked = test if only is None else test.take(test.labels == only)
    parameters: Weights = dict(bench.head.named_parameters())
    before = bench.labels(parameters, asked.features.astype(settings.training.dtype))
    return float((before == asked.labels).mean())


def _on_grid(ks: tuple[int, ...], overrides: Overrides) -> Overrides:
    """The overrides with these k, whatever grid the profile insists on: nothing is released from
    a curve.
    """
    of_grid = ("kgrid", "kgrid.max", "kgrid.values")
    others = [word for word in overrides if word.split("=")[0] not in of_grid]
    listed = ",".join(map(str, ks))
    return (*others, "kgrid=sparse", "kgrid.max=null", f"kgrid.values=[{listed}]")


def _over_training(
    report: Callable[[int, int, int, int], None],
    head: nn.Sequential,
    prepared: Prepared,
    settings: RunSettings,
) -> pd.DataFrame:
    """After each epoch and for each k: nominal, worst-case and best-case accuracy, certified
    fraction.
    """
    problem = prepared.problem(settings)
    dataset = prepared.dataset
    epochs: dict[int, pd.DataFrame] = {}

    def on_epoch(epoch: int, reached: Box) -> None:
        certificates = BoxModel(problem, head, reached, problem.plan).certify(dataset.test.features)
        epochs[epoch] = pd.DataFrame(certificates.table(dataset.test.labels))

    def on_progress(at: Progress) -> None:
        report(at.step, at.steps, at.done, at.total)

    train(head, problem.setup, dataset.train, on_progress, on_epoch=on_epoch)
    table = pd.concat(epochs, names=["epoch"])
    return table.reset_index(level="epoch").astype({"k": int})


Resolution = Annotated[int, Field(ge=8, le=400)]  # points along each axis
TRAINING_POINTS = 250  # drawn on a map, at most


@kind
def plane_maps(
    profiles: Profiles,
    panels: Variants,
    claims: Claims = ("privacy",),
    levels: tuple[int, ...] = (1, 5, 10, 20, 50, 100, 150),
    resolution: Resolution = 100,
    eps: Positive | None = None,
) -> Kind:
    """Regions of the plane by stable distance, told apart at public ``levels`` (000 Fig 1).

    Args:
        panels: one map each, for each claim and profile; one run is asked about the plane and about
            its test records.
        eps: colour the plane by the bound exp(-beta L) on the smooth sensitivity instead, beta =
            eps/6 (001 Fig 3).
    """
    own = {panel.label: panel.run for panel in panels}
    keys = grid(profile=profiles, claim=claims, panel=own)

    def bound(distance: Any) -> Any:
        return np.exp(-(eps or 0) / 6 * distance)

    def facts(tested: np.ndarray, mapped: np.ndarray) -> Key:
        if eps:
            return {
                "mean bound, test records": bound(tested).mean(),
                "least bound on the map": bound(mapped).min(),
            }
        return {f"certified at k = {k}": (tested >= k).mean() for k in levels}

    def measure(entry: Entry, key: Key) -> pd.DataFrame:
        name = key["profile"]
        panel = key["panel"]
        run = (*own[key["panel"]], f"relation=@{key['claim']}")
        dataset = entry.data(name, run)[0].dataset
        if dataset.plane is None:
            raise TypeError(
                f"{entry.artifact.id}: {dataset.name} is not two-dimensional, so it has no map"
            )
        points = Grid.around(dataset.plane.points, resolution).points
        lifted = dataset.plane.lift(points).astype(dataset.train.features.dtype)
        asked = np.concatenate([lifted, dataset.test.features.astype(lifted.dtype)])
        found = entry.run(name, run, f"{key['claim']}, {panel}", f"map{resolution} and test", asked)
        labels = found.frame["prediction"].to_numpy()
        mapped, tested = np.split(found.distance, [len(lifted)])
        records = len(dataset.train)
        few = np.linspace(0, records - 1, min(TRAINING_POINTS, records)).astype(int)
        on_map: Key = {
            "point": "map",
            "prediction": labels[: len(lifted)],
            "stable_distance": mapped,
        }
        known: Key = {"point": "training", "prediction": dataset.train.labels[few]}
        map_points = pd.DataFrame(points, columns=["x1", "x2"])
        training_points = pd.DataFrame(dataset.plane.points[few], columns=["x1", "x2"])
        parts = [map_points.assign(**on_map), training_points.assign(**known)]
        is_right = labels[len(lifted) :] == dataset.test.labels
        about: Key = {"k counts": found.counts, "accuracy": float(is_right.mean())}
        return pd.concat(parts).assign(**key, **about, **facts(tested, mapped))

    def rows(entry: Entry) -> pd.DataFrame:
        return pd.concat([measure(entry, key) for key in keys], ignore_index=True)

    def shown(rows: pd.DataFrame) -> Shown:
        scale = regions(levels)
        shades = (0.0, DARKEST_COLOUR)
        label = "stable distance, in k"
        what = (
            "Regions of the plane by how many records would have to change before the label could;"
        )
        if eps:
            least = min(bound(rows["stable_distance"]).min(), bound(1))
            power = math.floor(math.log10(max(1e-12, least)))
            lowest_power = min(-1, max(-12, power))
            within_decade = (1, 2, 5) if lowest_power >= -3 else (1,)
            powers = [10.0**power for power in range(lowest_power, 0)]
            ends = [step * power for power, step in product(powers, within_decade)]
            ends.append(1.0)
            in_words = format_power_of_ten if lowest_power < -4 else "{:g}".format
            scale = (ends, {end: in_words(end) for end in ends})
            shades = (DARKEST_COLOUR, 0.0)
            label = f"bound on smooth sensitivity\n(eps = {eps:g}, beta = eps/6)"
            what = "Bound on the smooth sensitivity of the label; darker: less noise is needed;"
        value = bound if eps else lambda at: at
        draw = partial(planes, value=value, scale=scale, shades=shades, label=label)
        table = rows.drop(
            columns=["point", "x1", "x2", "prediction", "stable_distance"]
        ).drop_duplicates()
        return Shown(table, [Figure(f"{what} black: decision line.", rows, draw)])

    return Kind(keys, ("profile", "claim", "panel", "point", "x1", "x2"), rows, shown)
