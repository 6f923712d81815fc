"""Kinds about certified removal (003): settings against accuracy and removals supported (Figs 1 and 4), bounds on the gradient's
residual beside the residual itself (Fig 2), which records are hard to remove (Fig 3), times (Table 1).

Everything that is removed goes through agt.unlearning.newton. 003's numbers are worked out from the same steps: its bound
takes 1/4 for the Lipschitz constant of l'' and the largest term of an integral for the integral (``PUBLISHED``), and its
budget is sigma eps / sqrt(2 ln(1.5 / delta)). Its regulariser is lambda times the number of records that are left; here it stays
that of the training set, so that a removal need not move the weights for it.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.errors import ConfigError
from agt.models.removal import RemovalModel, training_rows
from agt.numeric import gaussian_mu
from agt.settings import STRICT, Positive
from agt.training.objective import Objective
from agt.unlearning.newton import Head, Step, worst_case
from agt_cli.papers.reproduction.budgets import Count, Delta
from agt_cli.papers.reproduction.definition import Profile, ProfileName
from agt_cli.papers.reproduction.kinds import EVERY, Entry, Figure, Key, Kind, Overrides, Profiles, kind, through
from agt_cli.papers.reproduction.marks import Marks, marks
from agt_cli.papers.reproduction.pictures import Pictures, pictures
from agt_cli.report.curves import Curves
from agt_cli.runs.prepare import Prepared, RunSettings

GAMMA = 0.25  # 003's Lipschitz constant of l'' for the logistic loss; 1 / (6 sqrt 3) is exact
ROUNDS = 8  # of finding the sigma that a number of removals needs
CODE = ("agt.unlearning.newton", "agt_cli.papers.reproduction.removal")
Strengths = Annotated[tuple[Positive, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Removing:
    """A head that records can be removed from, with what it was trained on.

    Attributes:
        model: as trained.
        x, targets: [n, d], [n, J] of the training records, as the head takes them.
        seconds: that training took, features not counted.
    """

    model: RemovalModel
    x: np.ndarray
    targets: np.ndarray
    seconds: float

    @property
    def objective(self) -> Objective:
        """The loss and its strength."""
        return self.model.known.objective

    @property
    def head(self) -> Head:
        """To remove from: a new one each time."""
        return Head.of(self.objective, self.model.state, self.model.features.slack)

    def left(self, gone: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """(features, targets) without these rows."""
        stays = np.ones(len(self.x), dtype=bool)
        stays[list(gone)] = False
        return self.x[stays], self.targets[stays]

    def drawn(self, count: int, seed: int = 0) -> np.ndarray:
        """[count] different rows: who asks."""
        return np.random.default_rng(seed).permutation(len(self.x))[:count]


def removing(prepared: Prepared, settings: RunSettings, where: str) -> Removing:
    """Train. Raises ConfigError for a run that is none of certificate=removal."""
    started = time.perf_counter()
    model = RemovalModel.fit(prepared.problem(settings)) if settings.certificate.name == "removal" else None
    if model is None:
        raise ConfigError(f"{where}: run needs certificate=removal and model=linear")
    seconds = time.perf_counter() - started
    x, labels = training_rows(model.problem, model.features)
    return Removing(model, x, model.known.objective.targets(labels, model.problem.classes), seconds)


def published(step: Step, objective: Objective) -> float:
    """003's data-dependent bound on what a step adds (corollaries 1 and 2)."""
    return 2 * step.fresh * GAMMA / objective.gamma


def budget(profile: Profile, sigma: float, eps: float, delta: float) -> float:
    """How much residual noise of this size hides: by the exact curve, or by 003's line 16."""
    return sigma * (
        eps / math.sqrt(2 * math.log(1.5 / delta)) if profile.accounting == "paper" else gaussian_mu(eps, delta)
    )


def settings_of(strength: float, sigma: float, seed: int) -> Overrides:
    """Overrides of one head; what the solver may leave is a small part of the noise, however much there is."""
    tolerance = f"certificate.tolerance={1e-5 * max(1.0, sigma):.3g}"
    return (tolerance, f"training.weight_decay={strength!r}", f"certificate.sigma={sigma!r}", f"certificate.seed={seed}")


def probed(entry: Entry, name: ProfileName, own: Overrides, records: int) -> pd.DataFrame:
    """One row: accuracy, the optimiser's residual, n, and the mean bounds of removing one record, of so many records."""

    def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
        trained = removing(prepared, settings, entry.artifact.id)
        head, test = trained.head, prepared.dataset.test
        steps = [head.copy().remove(trained.x[[row]], trained.targets[[row]]) for row in trained.drawn(records)]
        paper = [published(step, trained.objective) for step in steps]
        ours = [step.after - step.before for step in steps]
        accuracy = float((trained.model.predict(test.features) == test.labels).mean())
        found = {
            "accuracy": accuracy,
            "start": head.residual,
            "n": head.count,
            "paper": np.mean(paper),
            "ours": np.mean(ours),
        }
        return pd.DataFrame([found]), {}

    frame, _ = entry.runs.once(entry.overrides(name, own), " ".join(own[-3:]), make, f"removing {records}", modules=CODE)
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
            Curves(
                "_removals", "removals", "accuracy", "removals supported", f"test accuracy ({at})", "", panels="profile"
            ),
            lambda rows: _reach(rows, 0.02),
        ),
        "front": Figure(
            f"The most accurate head of those that support so many removals ({at}): each point a lambda and a sigma.",
            front,
            Curves("", "removals", "accuracy", f"removals supported ({at})", "test accuracy", ""),
            lambda rows: _reach(rows, 0.02),
        ),
    }
    notes = (
        f"Removals supported: the budget over the mean bound of {records} removals, each from the head as trained; at most as "
        "many as there are training records.",
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
    """The rows than which none of the same ``about`` supports as many removals and is more accurate; at least one removal."""
    some = rows[rows["removals"] >= 1].sort_values(["removals", "accuracy"], ascending=False)
    before = some.groupby(about)["accuracy"].transform(lambda seen: seen.cummax().shift(fill_value=0.0))
    return some[some["accuracy"] > before].sort_index()


def _costs(rows: pd.DataFrame) -> str:
    top, low = (rows.iloc[int(place)] for place in (rows["accuracy"].argmax(), rows["accuracy"].argmin()))
    return (
        f"From {top['accuracy']:.3f} (lambda = {top['lambda']:g}, sigma = {top['sigma']:g}) down to {low['accuracy']:.3f} "
        f"(lambda = {low['lambda']:g}, sigma = {low['sigma']:g})"
    )


def _reach(rows: pd.DataFrame, cost: float) -> str:
    """How many removals are supported for little accuracy."""
    enough = rows[rows["accuracy"] >= rows["accuracy"].max() - cost]
    most = enough.groupby("profile", sort=False)["removals"].max()
    return f"For {100 * cost:g} points of accuracy: " + ", ".join(f"{n:,.0f} removals ({name})" for name, n in most.items())


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


@kind
def removal_bounds(
    profiles: Profiles,
    run: Overrides,
    removals: Annotated[int, Field(ge=2)] = 500,
    batch: Annotated[int, Field(ge=2)] = 10,
    every: Count = 10,
) -> Kind:
    """Bounds on the gradient's residual, and the residual, against the number of records removed (003 Fig 2).

    Args:
        run: overrides of a head with certificate=removal.
        removals: how many records go, one at a time and ``batch`` at a time; a point for ``every`` so many.
    """
    each, many = "one at a time", f"{batch} at a time"
    ways = {
        "paper": (f"worst case, {each}", f"worst case, {many}", f"bound, {each}", f"bound, {many}", f"residual, {each}"),
        "rigorous": (f"bound, {each}", f"bound, Hessian kept up, {each}", f"measured after each, {each}"),
    }
    keys = [{"profile": name, "way": way} for name, profile in profiles.items() for way in ways[profile.accounting]]
    step = math.lcm(every, batch)
    marks = range(step, removals + 1, step)

    def rows(entry: Entry) -> pd.DataFrame:
        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            trained = removing(prepared, settings, entry.artifact.id)
            if removals >= len(trained.x):
                raise ConfigError(f"{entry.artifact.id}: removals={removals}: there are {len(trained.x)} training records")
            found = [
                *_anew(trained, removals, 1, each, marks),
                *_anew(trained, removals, batch, many, marks),
                *_kept(trained, removals, each, marks),
            ]
            return pd.DataFrame(found, columns=["accounting", "way", "removed", "residual"]), {}

        overrides, words = entry.overrides(next(iter(profiles)), run), f"removing {removals} records"
        found, _ = entry.runs.once(overrides, words, make, f"bounds {removals} {batch} {every}", modules=CODE)
        parts = [
            found[found["accounting"] == profile.accounting].assign(profile=name) for name, profile in profiles.items()
        ]
        whole = pd.concat(parts, ignore_index=True).drop(columns="accounting")
        return whole[whole["way"].isin([way for known in ways.values() for way in known])]

    def finding(rows: pd.DataFrame) -> str:
        ends = last(rows)
        if "paper" in set(ends["profile"]):
            published = ends[ends["profile"] == "paper"].set_index("way")["residual"]
            times = published[f"worst case, {each}"] / published[f"bound, {each}"]
            return (
                f"After {rows['removed'].max()} removals the bound from the data is {times:,.0f} times below the worst case"
            )
        return f"After {rows['removed'].max()} removals the residual is measured as {ends['residual'].min():.1g}"

    def series(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(series=rows["way"] + " (" + rows["profile"] + ")")[["removed", "series", "residual"]]

    def last(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[rows["removed"] == rows["removed"].max()]

    figure = Figure(
        "Bounds on the norm of the gradient's residual, summed over removals, and the residual as measured.",
        series,
        Curves("", "removed", "residual", "records removed", "norm of the gradient's residual", "", log=False, ylog=True),
        finding,
    )
    notes = (
        "Hessian and spectral norm formed anew for each step, except where they are kept up. paper: 003's theorems 1 and 4 and "
        "corollaries 1 and 2, sums that start at 0; the residual is what these steps leave, measured, rounding charged.",
        "ours: on the same steps with exact constants, from the optimiser's residual on; with a Hessian that is kept up in "
        "O(d^2) a record, its drift charged; and with that, polished and measured in a few O(n d) passes after each removal.",
    )
    return Kind(
        keys,
        rows,
        ("profile", "way", "removed"),
        (figure,),
        last,
        extra={"_all": lambda rows: rows},
        notes=lambda rows: notes,
    )


Line = tuple[str, str, int, float]  # accounting, way, records removed, a bound on the residual


def _anew(trained: Removing, removals: int, size: int, words: str, marks: range) -> Iterator[Line]:
    """With matrices formed anew for each step, as 003 does: its bounds, ours on the same steps, and what they leave."""
    head, objective, gone = trained.head, trained.objective, trained.drawn(removals)
    worst = bound = 0.0
    for start in range(0, removals - size + 1, size):
        rows, left = gone[start : start + size], trained.left(gone[: start + size])
        step = head.remove(trained.x[rows], trained.targets[rows], remaining=left[0])
        worst += 4 * worst_case(GAMMA, size, head.count, objective.strength)
        bound += published(step, objective)
        if (removed := start + size) in marks:
            yield "paper", f"worst case, {words}", removed, worst
            yield "paper", f"bound, {words}", removed, bound
            yield "paper", f"residual, {words}", removed, objective.slope(head.weight, *left, head.tilt, head.slack).bound
            yield "rigorous", f"bound, {words}", removed, head.residual


def _kept(trained: Removing, removals: int, words: str, marks: range) -> Iterator[Line]:
    """With matrices that are kept up, one record at a time; and with the residual measured after each."""
    head, polished, gone = trained.head, trained.head, trained.drawn(removals)
    for removed, row in enumerate(gone, start=1):
        for one in (head, polished):
            one.remove(trained.x[[row]], trained.targets[[row]])
        polished.polish(*trained.left(gone[:removed]))
        if removed in marks:
            yield "rigorous", f"bound, Hessian kept up, {words}", removed, head.residual
            yield "rigorous", f"measured after each, {words}", removed, polished.residual


@kind
def removal_difficulty(profiles: Profiles, run: Overrides, shown: Annotated[int, Field(ge=1, le=20)] = 10) -> Kind:
    """The training images whose removal moves the weights most, and least (003 Fig 3).

    Args:
        run: overrides of a head with certificate=removal, on square images.
        shown: how many of each.
    """
    keys = [
        {"profile": EVERY, "side": side, "rank": rank} for side in ("hardest", "easiest") for rank in range(1, shown + 1)
    ]

    def rows(entry: Entry) -> pd.DataFrame:
        name = next(iter(profiles))

        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            trained, dataset = removing(prepared, settings, entry.artifact.id), prepared.dataset
            head = trained.head
            moved = np.array(
                [head.copy().remove(trained.x[[row]], trained.targets[[row]]).moved for row in range(len(trained.x))]
            )
            order = np.argsort(moved)
            places = {"hardest": order[::-1][:shown], "easiest": order[:shown]}
            found = [
                {"profile": EVERY, "side": side, "rank": rank, "digit": dataset.classes[_label(trained.targets[row])],
                 "moved": moved[row], **_pixels(trained.x[row])}
                for side, chosen in places.items()
                for rank, row in enumerate(chosen, start=1)
            ]  # fmt: skip
            return pd.DataFrame(found), {}

        return entry.runs.once(
            entry.overrides(name, run), "every removal alone", make, f"difficulty {shown}", modules=CODE
        )[0]

    def ends(rows: pd.DataFrame) -> str:
        most, least = (rows[rows["side"] == side]["moved"] for side in ("hardest", "easiest"))
        return f"The hardest record moves the weights {most.max() / least.min():,.0f} times as far as the easiest"

    caption = f"The {shown} training images whose removal moves the weights most (above), and least (below)."
    drawing = Pictures("side", "rank", "moved", "weights move by")
    return Kind(
        keys,
        rows,
        ("profile", "side", "rank"),
        (Figure(caption, lambda rows: rows, drawing, ends, draw=pictures),),
        lambda rows: rows[["profile", "side", "rank", "digit", "moved"]],
    )


def _label(targets: np.ndarray) -> int:
    """The class of one record's targets."""
    return int(targets[0] > 0) if len(targets) == 1 else int(targets.argmax())


def _pixels(x: np.ndarray) -> dict[str, float]:
    """The pixels of one record: its features without the bias."""
    side = math.isqrt(len(x))
    return {f"p{at}": float(value) for at, value in enumerate(x[: side * side])}


@validated(frozen=True, config=STRICT)
class Timed:
    """A row of Table 1: what it is called, which data it is on in words, and the overrides of its run."""

    label: str
    data: str
    run: Overrides = ()


@kind
def removal_times(
    profiles: Profiles, rows: Annotated[tuple[Timed, ...], Field(min_length=1)], removals: Count = 50, anew: Count = 3
) -> Kind:
    """Seconds of one removal beside seconds of training (003 Table 1).

    Args:
        rows: runs of certificate=removal.
        removals: how many are timed; the median counts. Of ``anew`` where the Hessian is formed for each, as in 003.
    """
    by_label = {row.label: row.run for row in rows}
    keys = [{"profile": name, "row": row.label, "data": row.data} for row in rows for name in profiles]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name, paper = key["profile"], profiles[key["profile"]].accounting == "paper"

        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            trained, test = removing(prepared, settings, entry.artifact.id), prepared.dataset.test
            gone, head, taken = trained.drawn(anew if paper else removals), trained.head, []
            for count, row in enumerate(gone, start=1):
                remaining = trained.left(gone[:count])[0] if paper else None
                started = time.perf_counter()
                head.remove(trained.x[[row]], trained.targets[[row]], remaining)
                taken.append(time.perf_counter() - started)
            accuracy = float((trained.model.predict(test.features) == test.labels).mean())
            seconds = {"training": trained.seconds, "removal": float(np.median(taken))}
            size = {"records": len(trained.x), "features": trained.x.shape[1], "outputs": trained.targets.shape[1]}
            return pd.DataFrame([{**size, **seconds, "accuracy": accuracy}]), {}

        on = f"times {removals} {anew} {paper}"
        overrides = entry.overrides(name, by_label[key["row"]])
        frame, _ = entry.runs.once(overrides, f"times: {key['row']}, {name}", make, on, modules=CODE)
        row = frame.to_dict("records")[0]
        yield {**row, "training / removal": row["training"] / row["removal"]}

    def compared(key: Key) -> Key:
        return {f"{key['row']}: seconds of {what}": what for what in ("removal", "training")}

    def ratios(rows: pd.DataFrame) -> str:
        best = rows.loc[rows.groupby("profile", sort=False)["training / removal"].idxmax()]
        return "Training takes " + ", ".join(
            f"up to {row['training / removal']:,.0f} removals ({row['profile']})" for row in best.to_dict("records")
        )

    notes = (
        "Training: Newton's method to a gradient of 1e-5 or less, matrices that removals need among it, features not counted. "
        "003 trains by L-BFGS on another machine. Removal: the median of several.",
        "paper: the Hessian of the records that are left is formed for each removal; ours: it is kept up, O(d^2) a record.",
        "LSUN (003: .48 s against 124 s) is not reproduced: its images are not to be had.",
    )
    marked = Figure(
        "Seconds of one removal.",
        lambda found: found.assign(low=found["removal"], high=found["removal"]),
        Marks("removal", "row", "profile", "unit", "seconds of one removal", "{}", log=True),
        ratios,
        draw=marks,
    )
    return Kind(
        keys,
        lambda entry: through(keys, measure)(entry).assign(unit="one removal"),
        ("profile", "row"),
        (marked,),
        lambda found: found.drop(columns="unit"),
        compared=compared,
        notes=lambda found: notes,
    )
