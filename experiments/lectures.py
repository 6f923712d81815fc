"""Kinds about the lectures' claims that need no data: what audits can show of a Gaussian mechanism
(004), what a mean costs with a trusted server and without one (004), and worked numbers (002, 004).

Draws come from seeds: simulations, which hide nothing.
"""

import math
from collections.abc import Callable
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field
from scipy.special import ndtr, ndtri

from agt.numeric import gaussian_epsilon, gaussian_mu
from agt.settings import Count, Positive
from agt_audit.estimates import (
    Mistakes,
    epsilon_bound,
    katz_bound,
    mu_bound,
    posterior_bound,
    upper_limit,
)
from agt_audit.one_run import mean_right, one_run_epsilon, right_guesses

from .certified import Delta
from .figures import lines
from .kinds import EVERY, Figure, Key, Kind, Profiles, Shown, grid, kind, wide

Budgets = Annotated[tuple[Positive, ...], Field(min_length=1)]
Sizes = Annotated[tuple[Count, ...], Field(min_length=1)]


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


@kind
def audited_mechanism(
    profiles: Profiles,
    eps: Budgets = (1.0, 4.0, 8.0, 16.0),
    delta: Delta = 1e-5,
    trials: Count = 5000,
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95,
) -> Kind:
    """Lower bounds on epsilon that an audit finds, by estimator, for each claimed epsilon (004's
    table of audited epsilons).

    The mechanism adds Gaussian noise, as much as the claim asks for, to 0 without the record and to
    1 with it. The attack calls "in" what exceeds a threshold.

    Args:
        trials: of each side.
        confidence: of each bound.
    """
    keys = grid(profile=[EVERY], claimed=eps, bound=list(AUDIT_BOUNDS))

    def rows(entry: object) -> pd.DataFrame:
        found = []
        for key in keys:
            mu = gaussian_mu(key["claimed"], delta)
            threshold = _best_threshold(mu, delta, trials, confidence)
            draws = np.random.default_rng(0).standard_normal((2, trials))
            mistakes = Mistakes(
                alarms=int((draws[0] > threshold).sum()),
                without=trials,
                misses=int((draws[1] + mu <= threshold).sum()),
                having=trials,
            )
            bound = AUDIT_BOUNDS[key["bound"]]
            found.append({**key, "found": bound(mistakes, delta, confidence)})
        return pd.DataFrame(found)

    def shown(rows: pd.DataFrame) -> Shown:
        table = wide(rows, ["bound"], "claimed", "found", eps, "claimed eps = {:g}")
        draw = lines("claimed", "found", "claimed eps", "lower bound on eps", log=False)
        points = _with_claim(rows.rename(columns={"bound": "series"}))
        caption = (
            f"Lower bounds on eps (delta = {delta:g}) from {trials:,} draws of a Gaussian "
            "mechanism on each side, by the bound, against the claimed eps."
        )
        return Shown(table, [Figure(caption, points, draw)], measured=rows)

    def compared(key: Key) -> Key:
        return {f"{key['bound']}, claimed eps = {key['claimed']:g}": "found"}

    return Kind(keys, ("claimed", "bound"), rows, shown, compared)


def _best_threshold(mu: float, delta: float, trials: int, confidence: float) -> float:
    """Return the threshold whose expected counts show the largest epsilon.

    It rests on the claim alone, so that no draw that is counted decides it.
    """
    candidates = np.linspace(0.0, mu + 4.0, 200)

    def shown(threshold: float) -> float:
        alarms = round(trials * float(ndtr(-threshold)))
        misses = round(trials * float(ndtr(threshold - mu)))
        return epsilon_bound(Mistakes(alarms, trials, misses, trials), delta, confidence)

    return float(max(candidates, key=shown))


def _with_claim(points: pd.DataFrame) -> pd.DataFrame:
    """Return points of ``claimed`` against ``found``, with the claim itself as one more series."""
    claimed = points["claimed"].unique()
    claim = pd.DataFrame({"series": "the claim", "claimed": claimed, "found": claimed})
    return pd.concat([points[["series", "claimed", "found"]], claim], ignore_index=True)


@kind
def audited_in_one_run(
    profiles: Profiles,
    eps: Budgets = (1.0, 2.0, 4.0, 8.0),
    canaries: Sizes = (500, 1000, 10000),
    delta: Delta = 1e-5,
    draws: Count = 5,
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95,
) -> Kind:
    """The lower bound on epsilon from one run with many canaries, against the claimed epsilon (004
    Fig 3).

    The best case of a white box: canaries that do not meet, so that the score of each is Gaussian
    noise of its own, and 1 if its coin put it in.

    Args:
        canaries: how many there are, a curve each.
        draws: of coins and noise; their mean and range are shown.
        confidence: of each bound.
    """
    keys = grid(profile=[EVERY], canaries=canaries, claimed=eps)

    def rows(entry: object) -> pd.DataFrame:
        found = []
        for key in keys:
            m = key["canaries"]
            mu = gaussian_mu(key["claimed"], delta)
            guesses = _most_telling_guesses(m, mu, delta, confidence)
            bounds = []
            for draw in range(draws):
                rng = np.random.default_rng(draw)
                included = rng.random(m) < 0.5
                scores = mu * included + rng.standard_normal(m)
                positive = guesses // 2
                right = right_guesses(scores, included, positive, guesses - positive)
                bounds.append(one_run_epsilon(right, guesses, m, delta, confidence, "exact"))
            measured = {"found": float(np.mean(bounds)), "low": min(bounds), "high": max(bounds)}
            found.append({**key, "guesses": guesses, **measured})
        return pd.DataFrame(found)

    def shown(rows: pd.DataFrame) -> Shown:
        series = [f"{m:,} canaries" for m in rows["canaries"]]
        points = rows.assign(series=series)[["series", "claimed", "found", "low", "high"]]
        claim = _with_claim(points).query("series == 'the claim'")
        draw = lines("claimed", "found", "claimed eps", "lower bound on eps", log=False)
        caption = (
            f"Lower bound on eps (delta = {delta:g}) from one run, by the number of canaries: mean "
            f"and range of {draws} runs of a Gaussian mechanism."
        )
        return Shown(rows, [Figure(caption, pd.concat([points, claim], ignore_index=True), draw)])

    return Kind(keys, ("canaries", "claimed"), rows, shown)


def _most_telling_guesses(canaries: int, mu: float, delta: float, confidence: float) -> int:
    """Return how many guesses show the largest epsilon if as many are right as in the mean.

    It rests on the claim alone, so that no draw that is counted decides it.
    """
    halvings = range(2 * canaries.bit_length())
    numbers = sorted({max(1, round(canaries * 2 ** (-half / 2))) for half in halvings})

    def shown(guesses: int) -> float:
        right = int(mean_right(guesses, canaries, mu))
        return one_run_epsilon(right, guesses, canaries, delta, confidence, "exact")

    return max(numbers, key=shown)


@kind
def trade_offs(
    profiles: Profiles,
    eps: Budgets = (0.5, 1.0, 3.0, 6.0),
    delta: Delta = 1e-5,
    points: Annotated[int, Field(ge=2)] = 200,
) -> Kind:
    """The least share of misses of any attack against its share of false alarms, under (eps,
    delta)-DP and under the Gaussian DP that the same claim allows (004, "Use GDP").

    Args:
        eps: a panel each.
        points: of each curve.
    """
    claims = ("(eps, delta)-DP", "Gaussian DP")
    rates = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, points - 1)])
    keys = grid(profile=[EVERY], eps=eps, claim=claims, alarms=rates.tolist())

    def misses(key: Key) -> float:
        alarms = key["alarms"]
        if key["claim"] == "Gaussian DP":
            return float(ndtr(-gaussian_mu(key["eps"], delta) - ndtri(alarms)))
        growth = math.exp(key["eps"])
        return max(0.0, 1 - delta - growth * alarms, (1 - delta - alarms) / growth)

    def rows(entry: object) -> pd.DataFrame:
        return pd.DataFrame([{**key, "misses": misses(key)} for key in keys])

    def shown(rows: pd.DataFrame) -> Shown:
        panels = [f"eps = {value:g}" for value in rows["eps"]]
        data = rows.assign(series=rows["claim"], panel=panels)
        draw = lines("alarms", "misses", "false alarms", "least misses", log=False, panels="panel")
        caption = (
            "The least share of misses that an attack can have, against its share of false alarms "
            f"(delta = {delta:g}); below the curve no attack can be."
        )
        equal = data["misses"] - data["alarms"]
        meeting = data[equal <= 0].groupby(["eps", "claim"], sort=False)["alarms"].min()
        table = meeting.rename("misses = false alarms at").reset_index()
        columns = ["alarms", "misses", "series", "panel"]
        return Shown(table, [Figure(caption, data[columns], draw)])

    return Kind(keys, ("eps", "claim", "alarms"), rows, shown)


CENTRAL, LOCAL, PLAIN_MEAN = "central", "local", "no privacy"


@kind
def private_means(
    profiles: Profiles,
    users: Sizes = (10, 30, 100, 300, 1000, 3000, 10000),
    eps: Positive = 1.0,
    draws: Annotated[int, Field(ge=2)] = 2000,
) -> Kind:
    """The mean squared error of a mean of n bits under eps-DP, with a trusted server (Laplace noise
    on the mean) and without one (Laplace noise on each bit), against n (004).

    Args:
        users: n.
        draws: of bits, whose probability of 1 is 1/2, and of noise.
    """
    ways = (CENTRAL, LOCAL, PLAIN_MEAN)
    keys = grid(profile=[EVERY], way=ways, users=users)

    def in_formula(way: str, n: int) -> float:
        sampling = 1 / (4 * n)
        noise = {CENTRAL: 2 / (n * eps) ** 2, LOCAL: 2 / (n * eps**2), PLAIN_MEAN: 0.0}
        return sampling + noise[way]

    def error(way: str, n: int) -> float:
        rng = np.random.default_rng(n)
        means = rng.binomial(n, 0.5, size=draws) / n
        noise = np.zeros(draws)
        if way == CENTRAL:
            noise = rng.laplace(scale=1 / (n * eps), size=draws)
        elif way == LOCAL:  # the mean of n draws: the difference of two Gamma draws, over n
            noise = (rng.gamma(n, size=draws) - rng.gamma(n, size=draws)) / (n * eps)
        return float(np.mean((means + noise - 0.5) ** 2))

    def rows(entry: object) -> pd.DataFrame:
        found = [
            {
                **key,
                "squared error": error(key["way"], key["users"]),
                "by the formula": in_formula(key["way"], key["users"]),
            }
            for key in keys
        ]
        return pd.DataFrame(found)

    def shown(rows: pd.DataFrame) -> Shown:
        points = rows.rename(columns={"way": "series"}).drop(columns="profile")
        draw = lines("users", "squared error", "n", "mean squared error of the mean", ylog=True)
        caption = f"Mean squared error of a mean of n bits at eps = {eps:g}, {draws:,} draws."
        note = (
            "The lecture bounds the variance of a bit by 1, so its first term is 1/n; it is at "
            "most 1/(4 n), which is what stands here."
        )
        return Shown(rows, [Figure(caption, points, draw)], (note,))

    return Kind(keys, ("way", "users"), rows, shown)


@kind
def worked_numbers(profiles: Profiles) -> Kind:
    """Numbers that the lectures work out by hand, worked out again: 002's exponential mechanism,
    004's recap of an audit and its two cases of memorisation.
    """
    found = {**_hair_colour(), **_recap(), **_memorisation()}
    keys = grid(profile=[EVERY], what=list(found))

    def rows(entry: object) -> pd.DataFrame:
        return pd.DataFrame([{**key, "value": found[key["what"]]} for key in keys])

    def compared(key: Key) -> Key:
        return {key["what"]: "value"}

    return Kind(keys, ("what",), rows, Shown, compared)


def _hair_colour() -> dict[str, float]:
    """002: four hair colours, counts 500 and 399, eps = 0.1. The lecture bounds from below the
    probability that the exponential mechanism answers with the most common one.
    """
    eps, most, next_most, colours = 0.1, 500, 399, 4
    miss_bound = colours * math.exp(-eps * 100 / 2)  # a score of at most 400 = 500 - 100
    others = np.array([next_most] * (colours - 1))
    others_weight = float(np.exp(eps * (others - most) / 2).sum())
    return {
        "most common hair colour: bound": 1 - miss_bound,
        "most common hair colour: probability, at least": 1 / (1 + others_weight),
    }


def _recap() -> dict[str, float]:
    """004: a claim of (0.21, 1e-5)-DP, against 4,922 and 174 mistakes in 100,000 models each."""
    eps, delta, models, error = 0.21, 1e-5, 100_000, 1e-10
    hits, misses = 4_922, 174
    alpha = 1 - hits / models
    allowed = max(1 - delta - math.exp(eps) * alpha, (1 - delta - alpha) / math.exp(eps))
    upper = float(upper_limit(models - hits, models, error / 2))
    upper_misses = float(upper_limit(misses, models, error / 2))
    found = math.log((1 - delta - upper) / upper_misses)
    return {
        "recap: least beta under the claim": allowed,
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
        p, q = np.array(having), np.array(without)
        found[f"memorisation, {name}: largest difference"] = float(np.abs(p - q).max())
        found[f"memorisation, {name}: total variation"] = float(np.abs(p - q).sum() / 2)
        found[f"memorisation, {name}: largest ratio"] = float(np.maximum(p / q, q / p).max())
    return found
