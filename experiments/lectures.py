"""Kinds about the lectures' claims: what audits can show of a Gaussian mechanism (004), what a mean
costs with a trusted server and without one (004), gradients beside DP-SGD's noise (002), and worked
numbers (002, 004).

Draws come from seeds: simulations, which hide nothing.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from scipy.special import ndtr, ndtri
from torch import Tensor

from agt.numeric import gaussian_epsilon, gaussian_mu
from agt.settings import Count, Positive, Probability, keyword_schema
from agt_audit.estimates import Mistakes, epsilon_bound, mu_bound, upper_limit
from agt_audit.one_run import mean_right, one_run_epsilon, right_guesses

from .audit_estimates import katz_bound, posterior_bound
from .bench import LOSSES, Bench, one_hot
from .dp_sgd import DpSgd
from .entry import Entry, Key, Overrides
from .experiment import AtLeastTwo, OneOrMore, ProfileName
from .figures import Draw, lines
from .kinds import EVERY, Figure, Kind, Shown, grid, wide
from .removable_head import named

Budgets = OneOrMore[Positive]
Sizes = OneOrMore[Count]


def _by_gaussian_dp(mistakes: Mistakes, delta: float, confidence: float) -> float:
    """Return the epsilon at ``delta`` of the mu that mistakes show of a Gaussian mechanism."""
    return gaussian_epsilon(mu_bound(mistakes, confidence), delta)


AUDIT_BOUNDS: dict[str, Callable[[Mistakes, float, float], float]] = {
    "f-DP, Clopper-Pearson": _by_gaussian_dp,
    "(eps, delta)-DP, Clopper-Pearson": epsilon_bound,
    "(eps, delta)-DP, Bayesian": posterior_bound,
    "(eps, delta)-DP, Katz": katz_bound,
}
"""004's names of bounds -> mistakes, delta and confidence to a lower bound on epsilon."""


@keyword_schema
class AuditedMechanism(Kind):
    """Lower bounds on epsilon that an audit finds, by estimator, for each claimed epsilon (004's
    table of audited epsilons).

    The mechanism adds Gaussian noise, as much as the claim asks for, to 0 without the record and to
    1 with it. The attack calls "in" what exceeds a threshold.

    Attributes:
        trials: of each side.
        confidence: of each bound.
    """

    eps: Budgets = (1.0, 4.0, 8.0, 16.0)
    delta: Probability = 1e-5
    trials: Count = 5000
    confidence: Probability = 0.95
    index = ("claimed", "bound")

    @property
    def keys(self) -> list[Key]:
        return grid(profile=[EVERY], claimed=self.eps, bound=list(AUDIT_BOUNDS))

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        mu = gaussian_mu(key["claimed"], self.delta)
        threshold = self._best_threshold(mu)
        draws = np.random.default_rng(0).standard_normal((2, self.trials))
        alarms = int((draws[0] > threshold).sum())
        misses = int((draws[1] + mu <= threshold).sum())
        mistakes = Mistakes(alarms, self.trials, misses, self.trials)
        bound = AUDIT_BOUNDS[key["bound"]]
        yield {"found": bound(mistakes, self.delta, self.confidence)}

    def _best_threshold(self, mu: float) -> float:
        """Return the threshold whose expected counts show the largest epsilon.

        It rests on the claim alone, so that no draw that is counted decides it.
        """

        def shown(threshold: float) -> float:
            alarms = round(self.trials * float(ndtr(-threshold)))
            misses = round(self.trials * float(ndtr(threshold - mu)))
            mistakes = Mistakes(alarms, self.trials, misses, self.trials)
            return epsilon_bound(mistakes, self.delta, self.confidence)

        return float(max(np.linspace(0.0, mu + 4.0, 200), key=shown))

    def shown(self, rows: pd.DataFrame) -> Shown:
        table = wide(rows, ["bound"], "claimed", "found", self.eps, "claimed eps = {:g}")
        draw = _drawing_beside_the_claim()
        found = rows.rename(columns={"bound": "series"})
        points = _with_claim(found[["series", "claimed", "found"]])
        caption = (
            f"Lower bounds on eps (delta = {self.delta:g}) from {self.trials:,} draws of a "
            "Gaussian mechanism on each side, by the bound, against the claimed eps."
        )
        return Shown(table, [Figure(caption, points, draw)], measured=rows)

    def compared(self, key: Key) -> Key:
        return {f"{key['bound']}, claimed eps = {key['claimed']:g}": "found"}


THE_CLAIM = "the claim"
CLAIM_LOOK = {"color": "black", "linestyle": "--", "marker": ""}


def _drawing_beside_the_claim() -> Draw:
    """Return how found bounds are drawn against claimed eps, with the claim as a plain line."""
    return lines(
        "claimed",
        "found",
        "claimed eps",
        "lower bound on eps",
        log=False,
        looks={THE_CLAIM: CLAIM_LOOK},
    )


def _with_claim(points: pd.DataFrame) -> pd.DataFrame:
    """Return points of ``claimed`` against ``found``, with the claim itself as one more series."""
    claimed = points["claimed"].unique()
    claim = pd.DataFrame({"series": THE_CLAIM, "claimed": claimed, "found": claimed})
    return pd.concat([points, claim], ignore_index=True)


@keyword_schema
class AuditedInOneRun(Kind):
    """The lower bound on epsilon from one run with many canaries, against the claimed epsilon (004
    Fig 3).

    The best case of a white box: canaries that do not meet, so that the score of each is Gaussian
    noise of its own, and 1 if its coin put it in.

    Attributes:
        canaries: how many there are, a curve each.
        draws: of coins and noise; their mean and range are shown.
        confidence: of each bound.
    """

    eps: Budgets = (1.0, 2.0, 4.0, 8.0)
    canaries: Sizes = (500, 1000, 10000)
    delta: Probability = 1e-5
    draws: Count = 5
    confidence: Probability = 0.95
    index = ("canaries", "claimed")

    @property
    def keys(self) -> list[Key]:
        return grid(profile=[EVERY], canaries=self.canaries, claimed=self.eps)

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        m = key["canaries"]
        mu = gaussian_mu(key["claimed"], self.delta)
        guesses = self._most_telling_guesses(m, mu)
        positive = guesses // 2
        bounds = []
        for draw in range(self.draws):
            rng = np.random.default_rng(draw)
            included = rng.integers(0, 2, size=m).astype(bool)
            scores = rng.standard_normal(m) + mu * included
            right = right_guesses(scores, included, positive, guesses - positive)
            bound = one_run_epsilon(right, guesses, m, self.delta, self.confidence, "exact")
            bounds.append(bound)
        mean = float(np.mean(bounds))
        yield {"guesses": guesses, "found": mean, "low": min(bounds), "high": max(bounds)}

    def _most_telling_guesses(self, canaries: int, mu: float) -> int:
        """Return how many guesses show the largest epsilon if as many are right as in the mean.

        It rests on the claim alone, so that no draw that is counted decides it.
        """
        halvings = range(2 * canaries.bit_length())
        numbers = sorted({max(1, round(canaries * 2 ** (-half / 2))) for half in halvings})

        def shown(guesses: int) -> float:
            right = int(mean_right(guesses, canaries, mu))
            return one_run_epsilon(right, guesses, canaries, self.delta, self.confidence, "exact")

        return max(numbers, key=shown)

    def shown(self, rows: pd.DataFrame) -> Shown:
        series = [f"{m:,} canaries" for m in rows["canaries"]]
        points = rows.assign(series=series)[["series", "claimed", "found", "low", "high"]]
        draw = _drawing_beside_the_claim()
        caption = (
            f"Lower bound on eps (delta = {self.delta:g}) from one run, by the number of canaries: "
            f"mean and range of {self.draws} runs of a Gaussian mechanism."
        )
        return Shown(rows, [Figure(caption, _with_claim(points), draw)])


GAUSSIAN_DP = "Gaussian DP"
TRADE_OFF_CLAIMS = ("(eps, delta)-DP", GAUSSIAN_DP)


@keyword_schema
class TradeOffs(Kind):
    """The least share of misses of any attack against its share of false alarms, under (eps,
    delta)-DP and under the Gaussian DP that the same claim allows (004, "Use GDP").

    Attributes:
        eps: a panel each.
        points: of each curve, beside the two kinks of each (eps, delta)-DP curve.
    """

    eps: Budgets = (0.5, 1.0, 3.0, 6.0)
    delta: Probability = 1e-5
    points: AtLeastTwo = 200
    index = ("eps", "claim", "alarms")

    @property
    def keys(self) -> list[Key]:
        kinks = [(1 - self.delta) / (1 + math.exp(value)) for value in self.eps]
        small = np.geomspace(1e-6, 1.0, self.points - 1)
        rates = np.unique(np.concatenate([[0.0], small, kinks, [1 - self.delta]]))
        return grid(profile=[EVERY], eps=self.eps, claim=TRADE_OFF_CLAIMS, alarms=rates.tolist())

    def _least_misses(self, key: Key) -> float:
        """Return the smallest share of misses that the claim allows at a share of false alarms."""
        alarms = key["alarms"]
        if key["claim"] == GAUSSIAN_DP:
            mu = gaussian_mu(key["eps"], self.delta)
            return float(ndtr(-mu - ndtri(alarms)))
        return max(0.0, least_misses(alarms, key["eps"], self.delta))

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        yield {"misses": self._least_misses(key)}

    def shown(self, rows: pd.DataFrame) -> Shown:
        panels = [f"eps = {value:g}" for value in rows["eps"]]
        data = rows.assign(series=rows["claim"], panel=panels)
        exact = {"marker": ""}
        draw = lines(
            "alarms",
            "misses",
            "false alarms",
            "least misses",
            log=False,
            panels="panel",
            looks=dict.fromkeys(TRADE_OFF_CLAIMS, exact),
            inside=True,
        )
        caption = (
            "The least share of misses that an attack can have, against its share of false alarms "
            f"(delta = {self.delta:g}); below the curve no attack can be."
        )
        equal = data["misses"] - data["alarms"]
        meeting = data[equal <= 0].groupby(["eps", "claim"], sort=False)["alarms"].min()
        table = meeting.rename("misses = false alarms at").reset_index()
        columns = ["alarms", "misses", "series", "panel"]
        return Shown(table, [Figure(caption, data[columns], draw)])


def least_misses(alarms: float, eps: float, delta: float) -> float:
    """Return the smallest share of misses of any attack under (eps, delta)-DP, given its share of
    false alarms; below 0: it may miss nothing.
    """
    growth = math.exp(eps)
    return max(1 - delta - growth * alarms, (1 - delta - alarms) / growth)


@keyword_schema
class GradientsAndNoise(Kind):
    """How the coordinates of DP-SGD's first gradient and of its noise are distributed (002).

    Attributes:
        run: overrides of a network's run, which names the data.
        dpsgd: how it would be trained within (eps, delta).
        bins: of the histogram, between plus and minus three deviations of the noise.
        data: which data it is on, where it is not the experiment's.
    """

    run: Overrides
    dpsgd: DpSgd
    eps: Positive = 1.0
    delta: Probability = 1e-5
    bins: Annotated[int, Field(ge=3)] = 301
    data: str = ""
    index = ("what", "bin")

    @property
    def keys(self) -> list[Key]:
        return grid(
            profile=[EVERY], what=("gradient", "noise"), bin=range(self.bins), **named(self.data)
        )

    def rows(self, entry: Entry) -> pd.DataFrame:
        first_profile: ProfileName = next(iter(self.profiles), "ours")
        bench = entry.bench(first_profile, self.run, dtype="float32")
        plan = self.dpsgd.plan(bench.size, self.eps, self.delta)
        deviation = plan.noise * self.dpsgd.clip / (plan.rate * bench.size)
        edges = np.linspace(-3 * deviation, 3 * deviation, self.bins + 1)
        clipped = clipped_gradients(bench, self.dpsgd.clip).mean(axis=0)
        inside = np.clip(clipped, edges[0], edges[-1])
        counts, _ = np.histogram(inside, edges)
        noise_shares = np.diff(ndtr(edges / deviation))
        shares = {"gradient": counts / len(clipped), "noise": noise_shares}
        spread = {"gradient": float(clipped.std()), "noise": deviation}
        middle = (edges[1:] + edges[:-1]) / 2
        found = []
        for key in self.keys:
            what = key["what"]
            place = key["bin"]
            measured = {"value": middle[place], "share": shares[what][place]}
            found.append({**key, **measured, "standard deviation": spread[what]})
        return pd.DataFrame(found)

    def shown(self, rows: pd.DataFrame) -> Shown:
        points = rows.rename(columns={"what": "series"})[["value", "series", "share"]]
        steps = {"marker": "", "drawstyle": "steps-mid", "linewidth": 1.0}
        looks = {"gradient": {**steps, "linestyle": "-"}, "noise": {**steps, "linestyle": "--"}}
        draw = lines(
            "value",
            "share",
            "value of a coordinate",
            "share of coordinates in a bin",
            log=False,
            ylog=True,
            looks=looks,
        )
        caption = (
            "Coordinates of the mean of clipped gradients before the first step, and the noise "
            f"that DP-SGD adds to it at eps = {self.eps:g}, delta = {self.delta:g}: shares of "
            f"{self.bins} bins of equal width."
        )
        columns = ["what", "standard deviation", *named(self.data)]
        return Shown(rows[columns].drop_duplicates(), [Figure(caption, points, draw)])


def clipped_gradients(bench: Bench, clip: float) -> np.ndarray:
    """Return each record's gradient at the head's initial parameters, clipped to length ``clip``:
    [n, parameters] float32.
    """
    weights = {name: weight.detach() for name, weight in bench.head.named_parameters()}
    targets = one_hot(bench.records.labels, bench.classes, bench.training.loss)
    features = torch.from_numpy(bench.records.features.astype(np.float32))
    loss = LOSSES[bench.training.loss]

    def loss_of_one(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = torch.func.functional_call(bench.head, weights, (x[None],))
        return loss(logits, y[None], reduction="sum")

    per_record = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0, 0))
    found = per_record(weights, features, torch.from_numpy(targets.astype(np.float32)))
    flat = torch.cat([gradient.flatten(1) for gradient in found.values()], dim=1).numpy()
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    return flat * np.minimum(1.0, clip / np.maximum(length, 1e-12))


CENTRAL = "central, bits"
LOCAL = "local, bits"
PLAIN_MEAN = "no privacy, bits"
UNBOUNDED = "local, unbounded numbers"
SECOND_MOMENT = 2.0  # of the unbounded numbers, which are exponential with mean 1


@keyword_schema
class PrivateMeans(Kind):
    """The mean squared error of a mean of n numbers under eps-DP, against n (004).

    Bits, with a trusted server (Laplace noise on the mean) and without one (Laplace noise on each
    bit); and numbers without a bound, which each user clips before adding noise.

    Attributes:
        users: n.
        draws: of the numbers and of the noise.
    """

    users: Sizes = (10, 30, 100, 300, 1000, 3000, 10000)
    eps: Positive = 1.0
    draws: AtLeastTwo = 1000
    index = ("way", "users")

    @property
    def keys(self) -> list[Key]:
        ways = (PLAIN_MEAN, CENTRAL, LOCAL, UNBOUNDED)
        return grid(profile=[EVERY], way=ways, users=self.users)

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        way = key["way"]
        n = key["users"]
        rng = np.random.default_rng(n)
        errors = [error_of_mean(way, n, self.eps, rng) for _ in range(self.draws)]
        squared_error = float(np.mean(np.square(errors)))
        yield {"squared error": squared_error, "by the formula": expected_error(way, n, self.eps)}

    def shown(self, rows: pd.DataFrame) -> Shown:
        points = rows.rename(columns={"way": "series"}).drop(columns="profile")
        draw = lines(
            "users",
            "squared error",
            "n, the number of users",
            "mean squared error of the mean",
            ylog=True,
        )
        caption = (
            f"Mean squared error of a mean of n numbers at eps = {self.eps:g}, {self.draws:,} "
            "draws."
        )
        note = (
            "By the formula: of bits exact, with the variance 1/4 of a fair bit where the lecture "
            "has 1; of unbounded numbers the lecture's bound at its best clip level."
        )
        return Shown(rows, [Figure(caption, points, draw)], (note,))


def expected_error(way: str, n: int, eps: float) -> float:
    """Return the mean squared error that 004 works out for a mean of ``n`` numbers."""
    if way == UNBOUNDED:
        clip = best_clip(n, eps)
        bias = 2 * SECOND_MOMENT**2 / clip**2
        noise_variance = 16 * clip**2 / (n * eps**2)
        return SECOND_MOMENT / n + bias + noise_variance
    variance_of_bits = 1 / (4 * n)
    if way == CENTRAL:
        return variance_of_bits + 2 / (n * eps) ** 2
    if way == LOCAL:
        return variance_of_bits + 2 / (n * eps**2)
    return variance_of_bits


def best_clip(n: int, eps: float) -> float:
    """Return the clip level that makes 004's bound for unbounded numbers smallest."""
    return (SECOND_MOMENT**2 * n * eps**2 / 8) ** 0.25


def error_of_mean(way: str, n: int, eps: float, rng: np.random.Generator) -> float:
    """Return by how much one released mean of ``n`` drawn numbers misses the true mean."""
    if way == UNBOUNDED:
        clip = best_clip(n, eps)
        numbers = np.minimum(rng.exponential(size=n), clip)
        noise = rng.laplace(scale=2 * clip / eps, size=n)
        return float((numbers + noise).mean() - 1.0)
    mean = rng.binomial(n, 0.5) / n
    if way == CENTRAL:
        mean += rng.laplace(scale=1 / (n * eps))
    elif way == LOCAL:
        mean += rng.laplace(scale=1 / eps, size=n).mean()
    return float(mean - 0.5)


@keyword_schema
class WorkedNumbers(Kind):
    """Numbers that the lectures work out by hand, worked out again: 002's exponential mechanism,
    004's recap of an audit and its two cases of memorisation.
    """

    index = ("what",)

    @cached_property
    def found(self) -> Mapping[str, float]:
        """The numbers by name."""
        return {**_hair_colour(), **_recap(), **_memorisation()}

    @property
    def keys(self) -> list[Key]:
        return grid(profile=[EVERY], what=list(self.found))

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        yield {"value": self.found[key["what"]]}

    def compared(self, key: Key) -> Key:
        return {key["what"]: "value"}


def _hair_colour() -> dict[str, float]:
    """002: four hair colours, counts 500 and 399, eps = 0.1. The lecture bounds from below the
    probability that the exponential mechanism answers with the most common one.
    """
    eps = 0.1
    most = 500
    next_most = 399
    colours = 4
    miss_bound = colours * math.exp(-eps * 100 / 2)  # a score of at most 400 = 500 - 100
    others = np.array([next_most] * (colours - 1))
    others_weight = float(np.exp(eps * (others - most) / 2).sum())
    return {
        "most common hair colour: bound": 1 - miss_bound,
        "most common hair colour: probability, at least": 1 / (1 + others_weight),
    }


def _recap() -> dict[str, float]:
    """004: a claim of (0.21, 1e-5)-DP, against 4,922 and 174 mistakes in 100,000 models each."""
    eps = 0.21
    delta = 1e-5
    models = 100_000
    error = 1e-10
    hits = 4_922
    misses = 174
    alpha = 1 - hits / models
    upper = float(upper_limit(models - hits, models, error / 2))
    upper_misses = float(upper_limit(misses, models, error / 2))
    found = math.log((1 - delta - upper) / upper_misses)
    return {
        "recap: least beta under the claim": least_misses(alpha, eps, delta),
        "recap: upper limit of alpha": upper,
        "recap: upper limit of beta": upper_misses,
        "recap: eps at least": found,
    }


def _memorisation() -> dict[str, float]:
    """004: probabilities of four labels with and without a record, in two cases: the largest
    difference that a set of labels shows, and the largest ratio of a label.
    """
    cases = {
        "case 1": ([0.1, 0.1, 0.2, 0.6], [0.3, 0.2, 0.2, 0.4]),
        "case 2": ([0.1, 0.1, 0.2, 0.6], [0.2, 0.2, 0.3, 0.3]),
    }
    found = {}
    for name, (having, without) in cases.items():
        p = np.array(having)
        q = np.array(without)
        difference = np.abs(p - q)
        ratio = np.maximum(p / q, q / p)
        found[f"memorisation, {name}: largest difference"] = float(difference.max())
        found[f"memorisation, {name}: total variation"] = float(difference.sum() / 2)
        found[f"memorisation, {name}: largest ratio"] = float(ratio.max())
    return found
