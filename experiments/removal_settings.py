"""Kinds about the settings of certified removal (003 Figs 1 and 4).

They show lambda, sigma and eps against accuracy and the number of removals that they support.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Literal

import pandas as pd

from agt.settings import Count, Positive, Probability, keyword_schema
from agt_cli.report.figures import SERIES_STYLES

from .curves import Looks
from .entry import Entry, Key, Overrides
from .figures import lines, named_points
from .kinds import Figure, Kind, Shown, grid
from .removable_head import ENDS, Strengths, averaged, budget, column_of, named, supported

SETTINGS_NOTES = (
    "ours: the bound's exact constants (1/(6 sqrt 3), half for the integral) and the exact "
    "Gaussian curve; where each removal may take one pass over the data, the residual is measured "
    "and the budget does not run out (003 Fig 2).",
    "No proof of removal rests on a perturbed loss alone: 003's Theorem 2 takes the residual to "
    "be independent of the perturbation, and the weights depend on it. The draws come from seeds: "
    "a simulation, which hides nothing.",
    "Settings are compared on the test records.",
)


@keyword_schema
class RemovalSettings(Kind):
    """What lambda and sigma do to accuracy and to the number of removals supported (003 Fig 1 left
    and right, Fig 4).

    Attributes:
        run: overrides of a head with certificate=removal.
        strengths: lambda; ``sigmas``: of b. Their mean accuracy is taken over ``draws`` of b.
        show: accuracy against lambda; accuracy against removals; or only the best of them (a row of
            Fig 4).
        records: on how many removals the mean bound of one is taken.
        data: which data the run is on, where it is not the experiment's.
    """

    run: Overrides
    strengths: Strengths
    sigmas: Strengths
    show: tuple[Literal["accuracy", "removals", "front"], ...] = ("accuracy", "removals")
    eps: Positive = 1.0
    delta: Probability = 1e-4
    draws: Count = 3
    records: Count = 50
    data: str = ""
    index = ("profile", "lambda", "sigma")

    @property
    def keys(self) -> list[Key]:
        return grid(
            **{"profile": self.profiles, "lambda": self.strengths, "sigma": self.sigmas},
            **named(self.data),
        )

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        profile = self.profiles[key["profile"]]
        found = averaged(
            entry, name, self.run, key["lambda"], key["sigma"], self.draws, self.records
        )
        total = budget(profile, key["sigma"], self.eps, self.delta)
        row = {end: found[end] for end in ENDS}
        row["bound of one removal"] = found[column_of(profile)]
        row["budget"] = total
        row["removals"] = supported(profile, found, total)
        yield row

    def shown(self, rows: pd.DataFrame) -> Shown:
        figures = settings_figures(rows, f"eps = {self.eps:g}, delta = {self.delta:g}", self.draws)
        note = (
            f"Removals supported: the budget over the mean bound of {self.records} removals, each "
            "from the head as trained; no more than there are training records."
        )
        return Shown(rows, [figures[name] for name in self.show], (note, *SETTINGS_NOTES))

    def compared(self, key: Key) -> Key:
        if key["lambda"] > min(self.strengths) or key["sigma"] > min(self.sigmas):
            return {}
        return {"accuracy, least lambda and sigma": "accuracy"}


def mean_and_range(draws: int) -> str:
    """Return what a caption says of accuracies over so many draws."""
    return "one draw" if draws == 1 else f"mean, range of {draws} draws"


def settings_figures(rows: pd.DataFrame, at: str, draws: int) -> dict[str, Figure]:
    """Each that ``show`` may name."""
    some = rows[rows["profile"] == rows["profile"].iloc[0]]  # the head is the same in every profile
    by_sigma = some.assign(series=some["lambda"].map(LAMBDA.format))
    best = _front(rows, ["profile", "lambda"])
    by_removals = best.assign(series=best["lambda"].map(LAMBDA.format))
    front = _front(rows, ["profile"], fewest=0).rename(columns={"profile": "series"})
    looks = strength_looks(rows["lambda"])
    return {
        "accuracy": Figure(
            "Test accuracy against sigma, the deviation of the loss's perturbation, for each "
            f"lambda: {mean_and_range(draws)}.",
            by_sigma[["sigma", "series", *ENDS]],
            lines("sigma", "accuracy", "sigma", "test accuracy", looks=looks),
            "_accuracy",
        ),
        "removals": Figure(
            f"Test accuracy against how many removals are supported before training again ({at}); "
            "points of a line: sigma.",
            by_removals[["removals", "series", "profile", "sigma", *ENDS]],
            lines(
                "removals",
                "accuracy",
                "removals supported",
                "test accuracy",
                panels="profile",
                looks=looks,
            ),
            "_removals",
        ),
        "front": Figure(
            f"The most accurate head of those that support so many removals ({at}); beside each "
            "point: lambda, sigma.",
            front[["removals", "series", "lambda", "sigma", *ENDS]],
            partial(
                named_points,
                x="removals",
                y="accuracy",
                names=("lambda", "sigma"),
                xlabel="removals supported",
                ylabel="test accuracy",
            ),
        ),
    }


LAMBDA = "lambda = {:g}"


def strength_looks(strengths: Iterable[float]) -> Looks:
    """Return how the line of each lambda looks, by its series.

    Figures whose largest values of lambda are the same show these alike.
    """
    falling = sorted(set(strengths), reverse=True)
    return {
        LAMBDA.format(strength): dict(SERIES_STYLES[rank % len(SERIES_STYLES)])
        for rank, strength in enumerate(falling)
    }


def _front(rows: pd.DataFrame, about: list[str], fewest: int = 1) -> pd.DataFrame:
    """Return those rows of the same ``about`` that no other beats in both removals and accuracy.

    Args:
        rows: of settings.
        about: the columns that tell fronts apart.
        fewest: removals; settings that support fewer are left out.
    """
    some = rows[rows["removals"] >= fewest].sort_values(["removals", "accuracy"], ascending=False)
    before = some.groupby(about)["accuracy"].transform(
        lambda seen: seen.cummax().shift(fill_value=0.0)
    )
    return some[some["accuracy"] > before].sort_index()


@keyword_schema
class RemovalBudgets(Kind):
    """Accuracy against eps where so many removals are to be supported (003 Fig 1 middle).

    Attributes:
        run, strengths, draws, records: as of ``removal_settings``; sigma follows from eps.
    """

    run: Overrides
    strengths: Strengths
    eps: Strengths = (0.01, 0.1, 1.0, 10.0)
    removals: Count = 100
    delta: Probability = 1e-4
    draws: Count = 3
    records: Count = 50
    index = ("profile", "lambda", "eps")

    @property
    def keys(self) -> list[Key]:
        return grid(**{"profile": self.profiles, "lambda": self.strengths, "eps": self.eps})

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        strength = key["lambda"]
        profile = self.profiles[key["profile"]]
        unit = budget(profile, 1.0, key["eps"], self.delta)
        sigma = 1.0
        # with more noise the weights are longer, and a removal's bound is another
        for _ in range(8):
            found = averaged(entry, name, self.run, strength, sigma, self.draws, self.records)
            needed = self.removals * found[column_of(profile)] / unit
            if 0.9 * sigma <= needed <= sigma:
                break
            sigma = float(f"{1.03 * needed:.3g}")
        about = {
            "series": LAMBDA.format(strength),
            "sigma": sigma,
            **{end: found[end] for end in ENDS},
        }
        yield {**about, "removals": supported(profile, found, sigma * unit)}

    def shown(self, rows: pd.DataFrame) -> Shown:
        draw = lines(
            "eps",
            "accuracy",
            f"eps (delta = {self.delta:g})",
            f"test accuracy with {self.removals:,} removals supported",
            panels="profile",
            looks=strength_looks(self.strengths),
        )
        caption = (
            f"Test accuracy against eps, sigma for {self.removals} removals: "
            f"{mean_and_range(self.draws)}."
        )
        return Shown(
            rows, [Figure(caption, rows[["eps", "series", "profile", "sigma", *ENDS]], draw)]
        )
