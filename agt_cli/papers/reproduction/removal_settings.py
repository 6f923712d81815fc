"""Kinds about the settings of certified removal: lambda, sigma and eps against accuracy and the number of removals that
they support (003 Figs 1 and 4)."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from agt.models.model import accuracy
from agt.settings import Positive
from agt_cli.papers.reproduction.budgets import Count, Delta
from agt_cli.papers.reproduction.definition import Profile, ProfileName
from agt_cli.papers.reproduction.kinds import Entry, Figure, Key, Kind, Overrides, Profiles, kind, through
from agt_cli.papers.reproduction.removing import CODE, budget, published, removing, settings_of
from agt_cli.report.curves import Curves
from agt_cli.runs.prepare import Prepared, RunSettings

ROUNDS = 8  # of finding the sigma that a number of removals needs
Strengths = Annotated[tuple[Positive, ...], Field(min_length=1)]


def probed(entry: Entry, name: ProfileName, own: Overrides, records: int) -> pd.DataFrame:
    """One row: accuracy, the optimiser's residual, n, and the mean bounds of removing one record, of so many records."""

    def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
        trained = removing(prepared, settings, entry.artifact.id)
        head, test = trained.head, prepared.dataset.test
        steps = [head.copy().remove(trained.x[[row]], trained.targets[[row]]) for row in trained.drawn(records)]
        paper = [published(step, trained.objective) for step in steps]
        ours = [step.after - step.before for step in steps]
        found = {
            "accuracy": accuracy(trained.model, test),
            "start": head.residual,
            "n": head.count,
            "paper": np.mean(paper),
            "ours": np.mean(ours),
        }
        return pd.DataFrame([found]), {}

    frame, _ = entry.runs.once(
        entry.overrides(name, own), " ".join(own[-3:]), make, f"removing {records}", modules=(*CODE, __name__)
    )
    return frame


def averaged(
    entry: Entry, name: ProfileName, run: Overrides, strength: float, sigma: float, draws: int, records: int
) -> Key:
    """The mean over draws of b of what ``probed`` finds."""
    found = [probed(entry, name, (*run, *settings_of(strength, sigma, seed)), records) for seed in range(draws)]
    return dict(pd.concat(found).mean())


def supported(profile: Profile, found: Key, total: float) -> float:
    """How many removals a budget is expected to pay for, one at a time; at most as many as there are records."""
    paper = profile.accounting == "paper"
    some = total / found["paper"] if paper else max(0.0, total - found["start"]) / found["ours"]
    return float(min(math.floor(some), found["n"]))


@kind
def removal_settings(
    profiles: Profiles,
    run: Overrides,
    strengths: Strengths,
    sigmas: Strengths,
    show: tuple[Literal["accuracy", "removals", "front"], ...] = ("accuracy", "removals"),
    eps: Positive = 1.0,
    delta: Delta = 1e-4,
    draws: Count = 3,
    records: Count = 50,
    data: str = "",
) -> Kind:
    """What lambda and sigma do to accuracy and to the number of removals supported (003 Fig 1 left and right, Fig 4).

    Args:
        run: overrides of a head with certificate=removal.
        strengths: lambda; ``sigmas``: of b. Their mean accuracy is taken over ``draws`` of b.
        show: accuracy against lambda; accuracy against removals; or only the best of them (a row of Fig 4).
        records: on how many removals the mean bound of one is taken.
        data: which data the run is on, where it is not the experiment's.
    """
    keys = [
        {"profile": name, "lambda": strength, "sigma": sigma, **({"data": data} if data else {})}
        for name in profiles
        for strength in strengths
        for sigma in sigmas
    ]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        found = averaged(entry, name, run, key["lambda"], key["sigma"], draws, records)
        total = budget(profiles[name], key["sigma"], eps, delta)
        yield {
            "accuracy": found["accuracy"],
            "bound of one removal": found["paper" if profiles[name].accounting == "paper" else "ours"],
            "budget": total,
            "removals": supported(profiles[name], found, total),
        }

    def by_strength(rows: pd.DataFrame) -> pd.DataFrame:
        some = rows[rows["profile"] == rows["profile"].iloc[0]]  # the head is the same in every profile
        return some.assign(series=[f"sigma = {sigma:g}" for sigma in some["sigma"]])[["lambda", "series", "accuracy"]]

    def by_removals(rows: pd.DataFrame) -> pd.DataFrame:
        best = _front(rows, ["profile", "lambda"])
        series = [f"lambda = {value:g}" for value in best["lambda"]]
        return best.assign(series=series)[["removals", "series", "profile", "sigma", "accuracy"]]

    def front(rows: pd.DataFrame) -> pd.DataFrame:
        best = _front(rows, ["profile"])
        return best.rename(columns={"profile": "series"})[["removals", "series", "lambda", "sigma", "accuracy"]]

    def compared(key: Key) -> Key:
        plainest = (key["lambda"], key["sigma"]) == (min(strengths), min(sigmas))
        return {"accuracy, least lambda and sigma": "accuracy"} if plainest else {}

    at = f"eps = {eps:g}, delta = {delta:g}"
    figures = {
        "accuracy": Figure(
            f"Test accuracy against lambda, for each standard deviation of the loss's perturbation; mean of {draws} draws.",
            by_strength,
            Curves("_accuracy", "lambda", "accuracy", "lambda", "test accuracy", ""),
            lambda rows: _costs(rows),
        ),
        "removals": Figure(
            f"Test accuracy against how many removals are supported before training again ({at}); points of a line: sigma.",
            by_removals,
            Curves("_removals", "removals", "accuracy", "removals supported", "test accuracy", "", panels="profile"),
            lambda rows: _reach(rows, at),
        ),
        "front": Figure(
            f"The most accurate head of those that support so many removals ({at}): each point a lambda and a sigma.",
            front,
            Curves("", "removals", "accuracy", "removals supported", "test accuracy", ""),
            lambda rows: _reach(rows, at),
        ),
    }
    notes = (
        f"Removals supported: the budget over the mean bound of {records} removals, each from the head as trained; no more "
        "than there are training records.",
        "ours: the bound's exact constants (1/(6 sqrt 3), half for the integral) and the exact Gaussian curve; where each "
        "removal may take one pass over the data, the residual is measured and the budget does not run out (003 Fig 2).",
        "No proof of removal rests on a perturbed loss alone: 003's Theorem 2 takes the residual to be independent of the "
        "perturbation, and the weights depend on it. The draws come from seeds: a simulation, which hides nothing.",
        "Settings are compared on the test records.",
    )
    return Kind(
        keys,
        through(keys, measure),
        ("profile", "lambda", "sigma"),
        tuple(figures[name] for name in show),
        compared=compared,
        notes=lambda rows: notes,
    )


def _front(rows: pd.DataFrame, about: list[str]) -> pd.DataFrame:
    """Those rows of the same ``about`` that no other beats in both removals and accuracy; one removal at the least."""
    some = rows[rows["removals"] >= 1].sort_values(["removals", "accuracy"], ascending=False)
    before = some.groupby(about)["accuracy"].transform(lambda seen: seen.cummax().shift(fill_value=0.0))
    return some[some["accuracy"] > before].sort_index()


def _costs(rows: pd.DataFrame) -> str:
    top, low = (rows.iloc[int(place)] for place in (rows["accuracy"].argmax(), rows["accuracy"].argmin()))
    return (
        f"From {top['accuracy']:.3f} (lambda = {top['lambda']:g}, sigma = {top['sigma']:g}) down to {low['accuracy']:.3f} "
        f"(lambda = {low['lambda']:g}, sigma = {low['sigma']:g})"
    )


def _reach(rows: pd.DataFrame, at: str) -> str:
    """How many removals are supported for little accuracy."""
    enough = rows[rows["accuracy"] >= rows["accuracy"].max() - 0.02]
    most = enough.groupby("profile", sort=False)["removals"].max()
    each = ", ".join(f"{number:,.0f} removals ({name})" for name, number in most.items())
    return f"Two points of accuracy pay for {each}, at {at}"


@kind
def removal_budgets(
    profiles: Profiles,
    run: Overrides,
    strengths: Strengths,
    eps: Strengths = (0.01, 0.1, 1.0, 10.0),
    removals: Count = 100,
    delta: Delta = 1e-4,
    draws: Count = 3,
    records: Count = 50,
) -> Kind:
    """Accuracy against eps where so many removals are to be supported (003 Fig 1 middle).

    Args:
        run, strengths, draws, records: as of ``removal_settings``; sigma follows from eps.
    """
    keys = [
        {"profile": name, "lambda": strength, "eps": value} for name in profiles for strength in strengths for value in eps
    ]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name, strength = key["profile"], key["lambda"]
        profile, unit = profiles[name], budget(profiles[name], 1.0, key["eps"], delta)
        column = "paper" if profile.accounting == "paper" else "ours"
        sigma, found = 1.0, dict[str, Any]()
        for _ in range(ROUNDS):  # with more noise the weights are longer, and a removal's bound is another
            found = averaged(entry, name, run, strength, sigma, draws, records)
            needed = removals * found[column] / unit
            if 0.9 * sigma <= needed <= sigma:
                break
            sigma = float(f"{1.03 * needed:.3g}")
        yield {
            "series": f"lambda = {strength:g}",
            "sigma": sigma,
            "accuracy": found["accuracy"],
            "removals": supported(profile, found, sigma * unit),
        }

    def finding(rows: pd.DataFrame) -> str:
        near = rows[np.isclose(rows["eps"], 1.0)] if np.isclose(rows["eps"], 1.0).any() else rows
        best = near.loc[near.groupby("profile", sort=False)["accuracy"].idxmax()]
        each = ", ".join(f"{row.accuracy:.3f} ({row.profile})" for row in best.itertuples())
        return f"Supporting {removals} removals at eps = {best['eps'].iloc[0]:g}: {each}"

    figure = Figure(
        f"Test accuracy against eps, sigma such that {removals} removals are supported; mean of {draws} draws.",
        lambda rows: rows[["eps", "series", "profile", "sigma", "accuracy"]],
        Curves("", "eps", "accuracy", f"eps (delta = {delta:g})", "test accuracy", "", panels="profile"),
        finding,
    )
    return Kind(
        keys,
        through(keys, measure),
        ("profile", "lambda", "eps"),
        (figure,),
    )
