"""Kinds about privacy budgets: accuracy against eps (001 Fig 2), ensemble size (Fig 4), queries
(Fig 5), and the bound on smooth sensitivity against the grid (Fig 6).

Every accuracy is an exact expectation; only DP-SGD is sampled.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from agt.errors import ConfigError
from agt.mechanisms.guarantees import PureDP
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.planning import Budget, afford
from agt.mechanisms.weights import ReleaseWeights
from agt.settings import Count, Positive, Probability, keyword_schema

from .dp_sgd import DpSgd
from .entry import Entry, Key, Overrides
from .experiment import AtLeastTwo, Profile, ProfileName
from .figures import lines
from .kinds import EVERY, Figure, Kind, Shown, grid, wide
from .runs import Finished

LEAST = "{}: least eps within a point"
EVEN = "even spacing"
GEOMETRIC = "geometric spacing"


@keyword_schema
class AccuracyByEps(Kind):
    """Expected accuracy against eps of one query, one model (001 Fig 2): ``count`` values from
    ``least`` to ``most``.
    """

    run: Overrides = ()
    least: Positive = 0.01
    most: Positive = 10.0
    count: AtLeastTwo = 20
    index = ("profile", "mechanism", "eps")

    @property
    def offered(self) -> Mapping[ProfileName, list[str]]:
        """The mechanisms that each profile releases labels with."""
        return {name: of_labels(profile.mechanisms) for name, profile in self.profiles.items()}

    @property
    def keys(self) -> list[Key]:
        budgets = np.geomspace(self.least, self.most, self.count).tolist()
        keys: list[Key] = []
        for name in self.profiles:
            keys += grid(profile=[name], mechanism=self.offered[name], eps=budgets)
        return keys

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        profile = self.profiles[key["profile"]]
        finished = entry.run(key["profile"], self.run)
        evidence = finished.evidence(profile.vote)
        kind = MECHANISMS[key["mechanism"]]
        mechanism = kind.with_guarantee(PureDP(key["eps"]), evidence.classes)
        median_distance = float(np.median(finished.distance))
        yield {
            "series": f"{key['mechanism']} ({key['profile']})",
            "accuracy": evidence.expected(mechanism),
            "accounting": accounting(profile, finished),
            "k counts": finished.counts,
            "median stable distance": median_distance,
            "noise-free": finished.accuracy,
        }

    def shown(self, rows: pd.DataFrame) -> Shown:
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

    def compared(self, key: Key) -> Key:
        found = {}
        for one in self.offered[key["profile"]]:
            found[f"least eps within a point of noise-free, {one}"] = LEAST.format(one)
        return {**found, "noise-free accuracy": "noise-free"}


@keyword_schema
class AccuracyByMembers(Kind):
    """Expected accuracy against ensemble size: noisy arg-max and certified votes, a panel for
    each eps (001 Fig 4).
    """

    run: Overrides = ()
    members: tuple[Count, ...] = (1, 5, 25, 95)
    eps: tuple[Positive, ...] = (1.0, 0.5, 0.1)
    index = ("profile", "members", "mechanism", "eps")

    @property
    def panels(self) -> Mapping[float, str]:
        """The title of the panel of each eps, in the order in which they are drawn."""
        return {budget: f"eps = {budget:g}" for budget in sorted(self.eps)}

    @property
    def keys(self) -> list[Key]:
        keys: list[Key] = []
        for name, profile in self.profiles.items():
            offered = dict.fromkeys((*profile.mechanisms, "noisy_argmax"))
            mechanisms = [one for one in offered if one != "global_sensitivity"]
            keys += grid(profile=[name], members=self.members, mechanism=mechanisms, eps=self.eps)
        return keys

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        profile = self.profiles[key["profile"]]
        kind = MECHANISMS[key["mechanism"]]
        own = (*self.run, f"ensemble.members={key['members']}")
        finished = entry.run(key["profile"], own, f"{key['members']} members")
        evidence = finished.evidence(profile.vote)
        if evidence.tally is None and kind.needs == "votes":
            return
        mechanism = kind.with_guarantee(PureDP(key["eps"]), evidence.classes)
        median_distance = float(np.median(evidence.distance))
        seconds = float(finished.facts["seconds_training"])
        yield {
            "series": f"{kind.name} ({key['profile']})",
            "accuracy": evidence.expected(mechanism),
            "accounting": accounting(profile, finished),
            "vote": finished.accuracy,
            "median distance of the vote": median_distance,
            "seconds": round(seconds, 1),
        }

    def shown(self, rows: pd.DataFrame) -> Shown:
        about = [
            "profile",
            "members",
            "accounting",
            "vote",
            "median distance of the vote",
            "seconds",
        ]
        points = rows[["members", "series", "accuracy", "profile"]].rename(columns={"members": "T"})
        points = points.assign(method=rows["mechanism"], panel=rows["eps"].map(self.panels))
        order = tuple(self.panels.values())
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


@keyword_schema
class AccuracyByQueries(Kind):
    """Expected accuracy against the number of queries under one total budget (001 Fig 5).

    Attributes:
        dpsgd: settings of DP-SGD on the run's own head, for comparison.
        weights: overrides of a linear head whose weights a profile with rigorous accounting
            releases for the whole budget.
    """

    run: Overrides = ()
    members: tuple[Count, ...] = (1, 25)
    queries: tuple[Count, ...] = (1, 3, 10, 30, 100, 300, 1000)
    eps: Positive = 10.0
    delta: Probability = 1e-5
    dpsgd: DpSgd | None = None
    weights: Overrides = ()
    index = ("series", "queries")

    @property
    def keys(self) -> list[Key]:
        keys = []
        for name, profile in self.profiles.items():
            for size in self.members:
                offered = of_labels((*profile.mechanisms, profile.many))
                if size > 1:
                    offered = [*offered, "noisy_argmax"]
                for key in grid(profile=[name], members=[size], method=offered):
                    keys.append({**key, "series": f"{key['method']}, T = {size} ({name})"})
            if self.weights and profile.accounting == "rigorous":
                key = {"profile": name, "members": 0, "method": "release_weights"}
                keys.append({**key, "series": f"release_weights ({name})"})
        if self.dpsgd is not None:
            keys.append({"profile": EVERY, "members": 0, "method": "DP-SGD", "series": "DP-SGD"})
        return keys

    def _accuracies(self, entry: Entry, key: Key) -> Iterable[Key]:
        """Return the accuracy for each number of queries, with its range where it is drawn."""
        if key["method"] == "DP-SGD" and self.dpsgd is not None:
            first_profile = next(iter(self.profiles))
            bench = entry.bench(first_profile, self.run, dtype="float32")
            test = entry.data(first_profile, self.run)[0].dataset.test
            found = []
            for seed in range(self.dpsgd.seeds):
                weights = self.dpsgd.fit(bench, self.eps, self.delta, seed)
                found.append(bench.accuracy(weights, test))
            mean = float(np.mean(found))
            return [{"accuracy": mean, "low": min(found), "high": max(found)}] * len(self.queries)
        if key["method"] == "release_weights":
            accuracy = self._accuracy_of_released_weights(entry, key["profile"])
            return [{"accuracy": accuracy}] * len(self.queries)
        profile = self.profiles[key["profile"]]
        own = (*self.run, f"ensemble.members={key['members']}")
        finished = entry.run(key["profile"], own, f"{key['members']} members")
        evidence = finished.evidence(profile.vote)
        rows = []
        for number in self.queries:
            budget = Budget(self.eps, self.delta, number)
            mechanism = afford(MECHANISMS[key["method"]], budget, evidence.classes, profile.bounds)
            rows.append({"accuracy": evidence.expected(mechanism)})
        return rows

    def _accuracy_of_released_weights(self, entry: Entry, name: ProfileName) -> float:
        """Return the exact expected accuracy of a linear head's weights, released once for the
        total budget.
        """
        test = entry.data(name, self.weights)[0].dataset.test
        head = entry.model(name, self.weights).linear_head
        if head is None:
            raise ConfigError(
                f"{entry.artifact.id}: weights=... needs certificate=stability and model=linear"
            )
        mechanism = ReleaseWeights.within(self.eps, self.delta)
        return mechanism.expected_accuracy(head, test.features, test.labels)

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        for number, row in zip(self.queries, self._accuracies(entry, key), strict=True):
            yield {"queries": number, **row}

    def shown(self, rows: pd.DataFrame) -> Shown:
        bounds = {name: ", ".join(profile.bounds) for name, profile in self.profiles.items()}
        divided = "; ".join(f"{name}: {listed}" for name, listed in bounds.items())
        caption = (
            f"Expected accuracy against the number of queries that share eps = {self.eps:g} and "
            f"delta = {self.delta:g} (best composition of {divided})."
        )
        caption += " DP-SGD: mean and range of seeds." if self.dpsgd else ""
        columns = ["queries", "accuracy", "low", "high", "method", "members"]
        of_profiles = []
        for name in self.profiles:
            of_profile = rows[rows["profile"].isin([name, EVERY])]
            of_profiles.append(of_profile.filter(columns).assign(panel=name))
        points = pd.concat(of_profiles, ignore_index=True)
        with_members = points["method"] + ", T = " + points["members"].astype(str)
        points["series"] = points["method"].where(points["members"] == 0, with_members)
        draw = lines("queries", "accuracy", "queries", "expected accuracy", panels="panel")
        figure = Figure(caption, points, draw)
        table = wide(rows, ["series"], "queries", "accuracy", self.queries, "{}")
        most_queries = rows[rows["queries"] == self.queries[-1]]
        return Shown(table, [figure], measured=most_queries)

    def compared(self, key: Key) -> Key:
        name = key["method"]
        if key["members"]:
            name = f"{name}, T = {key['members']}, {self.queries[-1]} queries"
        return {name: "accuracy"}


@keyword_schema
class SensitivityByGrid(Kind):
    """The mean bound on smooth sensitivity, beta = eps/6, against how many values of k were
    certified (001 Fig 6), evenly and geometrically spaced.

    A coarser grid is read off the run's dense one: its boxes are some of the same boxes.
    """

    run: Overrides = ()
    counts: tuple[Count, ...] = (1, 2, 3, 5, 8, 10, 15, 20, 50, 100, 200)
    eps: Positive = 1.0
    index = ("profile", "spacing", "values of k")

    @property
    def keys(self) -> list[Key]:
        return grid(
            profile=self.profiles, spacing=(EVEN, GEOMETRIC), **{"values of k": self.counts}
        )

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        finished = entry.run(key["profile"], self.run)
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
            bound = np.exp(-self.eps / 6 * certified)
            yield {"series": series, "bound": float(bound.mean())}

    def shown(self, rows: pd.DataFrame) -> Shown:
        draw = lines(
            "values of k",
            "bound",
            "values of k certified",
            f"mean bound on smooth sensitivity (eps = {self.eps:g})",
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
        table = wide(rows, ["profile", "spacing"], "values of k", "bound", self.counts, "{}")
        return Shown(table, [Figure(caption, points, draw)], (note,))


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
