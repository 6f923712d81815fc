"""Kinds about the lectures' claims: what audits can show of a Gaussian mechanism (004), what a mean
costs with a trusted server and without one (004), gradients beside DP-SGD's noise (002), and worked
numbers (002, 004).

Draws come from seeds: simulations, which hide nothing.
"""

import math
from collections.abc import Callable
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from scipy.special import ndtr, ndtri
from torch import Tensor

from agt.numeric import gaussian_epsilon, gaussian_mu
from agt.settings import Count, Positive
from agt_audit.estimates import Mistakes, epsilon_bound, mu_bound, upper_limit
from agt_audit.one_run import mean_right, one_run_epsilon, right_guesses

from .accuracy import Delta
from .audit_estimates import katz_bound, posterior_bound
from .bench import LOSSES, Bench, one_hot
from .dp_sgd import DpSgd
from .entry import Entry, Key, Overrides, Profiles
from .experiment import ProfileName
from .figures import Draw, lines
from .kinds import EVERY, Figure, Kind, Shown, grid, kind, wide
from .removable_head import named

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

    def rows(entry: Entry) -> pd.DataFrame:
        found = []
        for key in keys:
            mu = gaussian_mu(key["claimed"], delta)
            threshold = _best_threshold(mu, delta, trials, confidence)
            draws = np.random.default_rng(0).standard_normal((2, trials))
            alarms = int((draws[0] > threshold).sum())
            misses = int((draws[1] + mu <= threshold).sum())
            mistakes = Mistakes(alarms, trials, misses, trials)
            bound = AUDIT_BOUNDS[key["bound"]]
            found.append({**key, "found": bound(mistakes, delta, confidence)})
        return pd.DataFrame(found)

    def shown(rows: pd.DataFrame) -> Shown:
        table = wide(rows, ["bound"], "claimed", "found", eps, "claimed eps = {:g}")
        draw = _drawing_beside_the_claim()
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

    def rows(entry: Entry) -> pd.DataFrame:
        found = []
        for key in keys:
            m = key["canaries"]
            mu = gaussian_mu(key["claimed"], delta)
            guesses = _most_telling_guesses(m, mu, delta, confidence)
            bounds = []
            for draw in range(draws):
                rng = np.random.default_rng(draw)
                included = rng.integers(0, 2, size=m).astype(bool)
                scores = rng.standard_normal(m) + mu * included
                positive = guesses // 2
                right = right_guesses(scores, included, positive, guesses - positive)
                bounds.append(one_run_epsilon(right, guesses, m, delta, confidence, "exact"))
            mean = float(np.mean(bounds))
            ends = {"low": min(bounds), "high": max(bounds)}
            found.append({**key, "guesses": guesses, "found": mean, **ends})
        return pd.DataFrame(found)

    def shown(rows: pd.DataFrame) -> Shown:
        series = [f"{m:,} canaries" for m in rows["canaries"]]
        points = rows.assign(series=series)[["series", "claimed", "found", "low", "high"]]
        claim = _with_claim(points).query("series == @THE_CLAIM")
        draw = _drawing_beside_the_claim()
        caption = (
            f"Lower bound on eps (delta = {delta:g}) from one run, by the number of canaries: mean "
            f"and range of {draws} runs of a Gaussian mechanism."
        )
        drawn = pd.concat([points, claim], ignore_index=True)
        return Shown(rows, [Figure(caption, drawn, draw)])

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
        points: of each curve, beside the two kinks of each (eps, delta)-DP curve.
    """
    claims = ("(eps, delta)-DP", "Gaussian DP")
    kinks = [(1 - delta) / (1 + math.exp(value)) for value in eps]
    small = np.geomspace(1e-6, 1.0, points - 1)
    rates = np.unique(np.concatenate([[0.0], small, kinks, [1 - delta]]))
    keys = grid(profile=[EVERY], eps=eps, claim=claims, alarms=rates.tolist())

    def misses(key: Key) -> float:
        alarms = key["alarms"]
        if key["claim"] == "Gaussian DP":
            mu = gaussian_mu(key["eps"], delta)
            return float(ndtr(-mu - ndtri(alarms)))
        growth = math.exp(key["eps"])
        from_alarms = 1 - delta - growth * alarms
        from_misses = (1 - delta - alarms) / growth
        return max(0.0, from_alarms, from_misses)

    def rows(entry: Entry) -> pd.DataFrame:
        return pd.DataFrame([{**key, "misses": misses(key)} for key in keys])

    def shown(rows: pd.DataFrame) -> Shown:
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
            looks=dict.fromkeys(claims, exact),
            inside=True,
        )
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


@kind
def gradients_and_noise(
    profiles: Profiles,
    run: Overrides,
    dpsgd: DpSgd,
    eps: Positive = 1.0,
    delta: Delta = 1e-5,
    bins: Annotated[int, Field(ge=3)] = 301,
    data: str = "",
) -> Kind:
    """How the coordinates of DP-SGD's first gradient and of its noise are distributed (002).

    Args:
        run: overrides of a network's run, which names the data.
        dpsgd: how it would be trained within (eps, delta).
        bins: of the histogram, between plus and minus three deviations of the noise.
        data: which data it is on, where it is not the experiment's.
    """
    first: ProfileName = next(iter(profiles), "ours")
    keys = grid(profile=[EVERY], what=("gradient", "noise"), bin=range(bins), **named(data))

    def rows(entry: Entry) -> pd.DataFrame:
        bench = entry.bench(first, run, dtype="float32")
        plan = dpsgd.plan(bench.size, eps, delta)
        deviation = plan.noise * dpsgd.clip / (plan.rate * bench.size)
        edges = np.linspace(-3 * deviation, 3 * deviation, bins + 1)
        clipped = clipped_gradients(bench, dpsgd.clip).mean(axis=0)
        inside = np.clip(clipped, edges[0], edges[-1])
        counts, _ = np.histogram(inside, edges)
        noise_shares = np.diff(ndtr(edges / deviation))
        shares = {"gradient": counts / len(clipped), "noise": noise_shares}
        spread = {"gradient": float(clipped.std()), "noise": deviation}
        middle = (edges[1:] + edges[:-1]) / 2
        found = []
        for key in keys:
            what = key["what"]
            place = key["bin"]
            measured = {"value": middle[place], "share": shares[what][place]}
            found.append({**key, **measured, "standard deviation": spread[what]})
        return pd.DataFrame(found)

    def shown(rows: pd.DataFrame) -> Shown:
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
            f"that DP-SGD adds to it at eps = {eps:g}, delta = {delta:g}: shares of {bins} bins "
            "of equal width."
        )
        columns = ["what", "standard deviation", *named(data)]
        return Shown(rows[columns].drop_duplicates(), [Figure(caption, points, draw)])

    return Kind(keys, ("what", "bin"), rows, shown)


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


@kind
def private_means(
    profiles: Profiles,
    users: Sizes = (10, 30, 100, 300, 1000, 3000, 10000),
    eps: Positive = 1.0,
    draws: Annotated[int, Field(ge=2)] = 1000,
) -> Kind:
    """The mean squared error of a mean of n numbers under eps-DP, against n (004).

    Bits, with a trusted server (Laplace noise on the mean) and without one (Laplace noise on each
    bit); and numbers without a bound, which each user clips before adding noise.

    Args:
        users: n.
        draws: of the numbers and of the noise.
    """
    ways = (PLAIN_MEAN, CENTRAL, LOCAL, UNBOUNDED)
    keys = grid(profile=[EVERY], way=ways, users=users)

    def rows(entry: Entry) -> pd.DataFrame:
        found = []
        for key in keys:
            way = key["way"]
            n = key["users"]
            rng = np.random.default_rng(n)
            errors = [error_of_mean(way, n, eps, rng) for _ in range(draws)]
            squared_error = float(np.mean(np.square(errors)))
            by_formula = expected_error(way, n, eps)
            found.append({**key, "squared error": squared_error, "by the formula": by_formula})
        return pd.DataFrame(found)

    def shown(rows: pd.DataFrame) -> Shown:
        points = rows.rename(columns={"way": "series"}).drop(columns="profile")
        draw = lines(
            "users",
            "squared error",
            "n, the number of users",
            "mean squared error of the mean",
            ylog=True,
        )
        caption = f"Mean squared error of a mean of n numbers at eps = {eps:g}, {draws:,} draws."
        note = (
            "By the formula: of bits exact, with the variance 1/4 of a fair bit where the lecture "
            "has 1; of unbounded numbers the lecture's bound at its best clip level."
        )
        return Shown(rows, [Figure(caption, points, draw)], (note,))

    return Kind(keys, ("way", "users"), rows, shown)


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


@kind
def worked_numbers(profiles: Profiles) -> Kind:
    """Numbers that the lectures work out by hand, worked out again: 002's exponential mechanism,
    004's recap of an audit and its two cases of memorisation.
    """
    found = {**_hair_colour(), **_recap(), **_memorisation()}
    keys = grid(profile=[EVERY], what=list(found))

    def rows(entry: Entry) -> pd.DataFrame:
        return pd.DataFrame([{**key, "value": found[key["what"]]} for key in keys])

    def compared(key: Key) -> Key:
        return {key["what"]: "value"}

    return Kind(keys, ("what",), rows, Shown, compared)


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
    growth = math.exp(eps)
    allowed = max(1 - delta - growth * alpha, (1 - delta - alpha) / growth)
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
        p = np.array(having)
        q = np.array(without)
        difference = np.abs(p - q)
        ratio = np.maximum(p / q, q / p)
        found[f"memorisation, {name}: largest difference"] = float(difference.max())
        found[f"memorisation, {name}: total variation"] = float(difference.sum() / 2)
        found[f"memorisation, {name}: largest ratio"] = float(ratio.max())
    return found
