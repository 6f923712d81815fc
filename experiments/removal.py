"""A head that records can be removed from, for the kinds about certified removal (003), and what
003 makes of its steps.

Everything that is removed goes through agt.unlearning.newton. 003's numbers are worked out from the
same steps: its bound takes 1/4 for the Lipschitz constant of l'' and an integral's largest term for
the integral (``published``), and its budget is sigma eps / sqrt(2 ln(1.5 / delta)). Its regulariser
is lambda times the number of records that are left; here it stays that of the training set, so that
a removal need not move the weights for it.


Kinds about the settings of certified removal: lambda, sigma and eps against accuracy and the number
of removals that they support (003 Figs 1 and 4).

Kinds about the steps of certified removal: bounds on the gradient's residual beside the residual
(003 Fig 2), which records are hard to remove (Fig 3), and times (Table 1).

Kinds about erasure requests: which queries an ensemble answers while they wait (000 section 4.2),
and what each method of removing records costs, promises and leaves, on the same requests.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.certificates.vote_certificates import VoteCertificates
from agt.errors import ConfigError
from agt.models.ensemble import EnsembleModel
from agt.models.features import FeatureMap
from agt.models.fitting import fit
from agt.models.linear import LinearModel
from agt.models.model import accuracy
from agt.models.removal import RemovalKind, RemovalModel, training_rows
from agt.numeric import gaussian_mu
from agt.settings import STRICT, Count, Positive
from agt.store.folder import Folder, NewFolder
from agt.training.ensemble import assign_shards
from agt.training.objective import Objective
from agt.unlearning.newton import NewtonStep, RemovableHead, reduce_residual, worst_step_increase
from agt.unlearning.sisa import answerable, retrain_affected
from agt_cli.report.figures import SERIES_STYLES
from agt_cli.runs.prepare import Prepared, RunSettings

from .certified import Delta, Variant, Variants
from .figures import lines, marks, named_points, pictures
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
    Shown,
    grid,
    kind,
    once,
    through,
    wide,
)

GAMMA = 0.25  # 003's Lipschitz constant of l'' for the logistic loss; 1 / (6 sqrt 3) is exact


@dataclass(frozen=True)
class Removing:
    """A head that records can be removed from, with what it was trained on.

    Attributes:
        model: as trained.
        x, targets: [n, d], [n, J] of the training records, as the head takes them.
        seconds: that training took.
    """

    model: RemovalModel
    x: np.ndarray
    targets: np.ndarray
    seconds: float

    @property
    def objective(self) -> Objective:
        """The loss and its strength."""
        return self.model.removal_problem.objective

    @property
    def head(self) -> RemovableHead:
        """To remove from: a new one each time."""
        return RemovableHead.from_state(self.objective, self.model.state)

    def left(self, gone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(features, targets) without these rows."""
        stays = np.ones(len(self.x), dtype=bool)
        stays[gone] = False
        return self.x[stays], self.targets[stays]

    def drawn(self, count: int, seed: int = 0) -> np.ndarray:
        """[count] different rows: who asks."""
        return np.random.default_rng(seed).permutation(len(self.x))[:count]


def removing(prepared: Prepared, settings: RunSettings, where: str) -> Removing:
    """Train. Raises ConfigError for a run that is none of certificate=removal."""
    if not isinstance(settings.certificate, RemovalKind):
        raise ConfigError(f"{where}: the run needs certificate=removal and model=linear")
    FeatureMap.from_dataset(settings.certificate.features, prepared.dataset)(
        prepared.dataset.train.features[:1]
    )  # compiled, not timed
    started = time.perf_counter()
    model = settings.certificate.fit(prepared.problem(settings))
    seconds = time.perf_counter() - started
    x, labels = training_rows(model.problem, model.features)
    return Removing(
        model, x, model.removal_problem.objective.targets(labels, model.problem.classes), seconds
    )


def published(step: NewtonStep, objective: Objective) -> float:
    """003's data-dependent bound on what a step adds (corollaries 1 and 2)."""
    return 2 * step.fresh_curvature_error * GAMMA / objective.curvature_lipschitz


def budget(profile: Profile, sigma: float, eps: float, delta: float) -> float:
    """How much residual noise of this size hides: by the exact curve, or by 003's line 16."""
    if profile.accounting == "paper":
        return sigma * (eps / math.sqrt(2 * math.log(1.5 / delta)))
    return sigma * gaussian_mu(eps, delta)


def settings_of(strength: float, sigma: float, seed: int) -> Overrides:
    """Overrides of one head; what the solver may leave is a small part of the noise, however
    much there is.
    """
    tolerance = f"certificate.tolerance={1e-5 * max(1.0, sigma):.3g}"
    return (
        tolerance,
        f"training.weight_decay={strength!r}",
        f"certificate.sigma={sigma!r}",
        f"certificate.seed={seed}",
    )


ENDS = ["accuracy", "low", "high"]  # a mean and its range

Strengths = Annotated[tuple[Positive, ...], Field(min_length=1)]


def probed(entry: Entry, name: ProfileName, own: Overrides, records: int) -> Key:
    """Accuracy, the optimiser's residual, n, and the mean bounds of removing one record, of so
    many records.
    """

    def make(prepared: Prepared, settings: RunSettings) -> list[Key]:
        trained = removing(prepared, settings, entry.artifact.id)
        head = trained.head
        right = accuracy(trained.model, prepared.dataset.test)
        about = {"accuracy": right, "start": head.residual, "n": head.count}
        return [{**about, **mean_bounds(trained, records)}]

    (found,) = once(entry, name, own, " ".join(own[-3:]), make, f"removing {records}")
    return found


def mean_bounds(trained: Removing, records: int) -> dict[str, float]:
    """The mean bound of removing one record, of so many: 003's ("paper"), and ours."""
    head = trained.head
    paper = []
    ours = []
    for row in trained.drawn(records):
        step = head.copy().remove(trained.x[[row]], trained.targets[[row]])
        paper.append(published(step, trained.objective))
        ours.append(step.after - step.before)
    return {"paper": float(np.mean(paper)), "ours": float(np.mean(ours))}


def averaged(
    entry: Entry,
    name: ProfileName,
    run: Overrides,
    strength: float,
    sigma: float,
    draws: int,
    records: int,
) -> Key:
    """The mean over draws of b of what ``probed`` finds; ``low``, ``high``: the range of the
    accuracies.
    """
    found = []
    for seed in range(draws):
        own = (*run, *settings_of(strength, sigma, seed))
        found.append(probed(entry, name, own, records))
    each = pd.DataFrame(found)
    accuracies = each["accuracy"]
    return {**each.mean(), "low": accuracies.min(), "high": accuracies.max()}


def supported(profile: Profile, found: Key, total: float) -> float:
    """How many removals a budget is expected to pay for, one at a time; at most as many as there
    are records.
    """
    if profile.accounting == "paper":
        affordable = total / found["paper"]
    else:
        affordable = max(0.0, total - found["start"]) / found["ours"]
    return float(min(math.floor(affordable), found["n"]))


def column_of(profile: Profile) -> str:
    """Where a profile's measurements stand: the paper's way, or ours."""
    return "paper" if profile.accounting == "paper" else "ours"


SETTINGS_NOTES = (
    "ours: the bound's exact constants (1/(6 sqrt 3), half for the integral) and the exact "
    "Gaussian curve; where each "
    "removal may take one pass over the data, the residual is measured and the budget does not run "
    "out (003 Fig 2).",
    "No proof of removal rests on a perturbed loss alone: 003's Theorem 2 takes the residual to be "
    "independent of the "
    "perturbation, and the weights depend on it. The draws come from seeds: a simulation, which "
    "hides nothing.",
    "Settings are compared on the test records.",
)


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
    """What lambda and sigma do to accuracy and to the number of removals supported (003 Fig 1 left
    and right, Fig 4).

    Args:
        run: overrides of a head with certificate=removal.
        strengths: lambda; ``sigmas``: of b. Their mean accuracy is taken over ``draws`` of b.
        show: accuracy against lambda; accuracy against removals; or only the best of them (a row of
            Fig 4).
        records: on how many removals the mean bound of one is taken.
        data: which data the run is on, where it is not the experiment's.
    """
    keys = grid(**{"profile": profiles, "lambda": strengths, "sigma": sigmas}, **named(data))

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        profile = profiles[key["profile"]]
        found = averaged(entry, name, run, key["lambda"], key["sigma"], draws, records)
        total = budget(profile, key["sigma"], eps, delta)
        row = {end: found[end] for end in ENDS}
        row["bound of one removal"] = found[column_of(profile)]
        row["budget"] = total
        row["removals"] = supported(profile, found, total)
        yield row

    def shown(rows: pd.DataFrame) -> Shown:
        figures = settings_figures(rows, f"eps = {eps:g}, delta = {delta:g}", draws)
        note = (
            f"Removals supported: the budget over the mean bound of {records} removals, each from "
            "the head as trained; no "
            "more than there are training records."
        )
        return Shown(rows, [figures[name] for name in show], (note, *SETTINGS_NOTES))

    def compared(key: Key) -> Key:
        if key["lambda"] > min(strengths) or key["sigma"] > min(sigmas):
            return {}
        return {"accuracy, least lambda and sigma": "accuracy"}

    return Kind(keys, ("profile", "lambda", "sigma"), through(keys, measure), shown, compared)


def named(data: str) -> dict[str, list[str]]:
    """The column of a key that says which data it is, where it is not the experiment's."""
    return {"data": [data]} if data else {}


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
            f"lambda: mean, range of {draws} draws.",
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


def strength_looks(strengths: Iterable[float]) -> dict[str, dict[str, Any]]:
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
    keys = grid(**{"profile": profiles, "lambda": strengths, "eps": eps})

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        strength = key["lambda"]
        profile = profiles[key["profile"]]
        unit = budget(profile, 1.0, key["eps"], delta)
        sigma = 1.0
        # with more noise the weights are longer, and a removal's bound is another
        for _ in range(8):
            found = averaged(entry, name, run, strength, sigma, draws, records)
            needed = removals * found[column_of(profile)] / unit
            if 0.9 * sigma <= needed <= sigma:
                break
            sigma = float(f"{1.03 * needed:.3g}")
        about = {
            "series": LAMBDA.format(strength),
            "sigma": sigma,
            **{end: found[end] for end in ENDS},
        }
        yield {**about, "removals": supported(profile, found, sigma * unit)}

    def shown(rows: pd.DataFrame) -> Shown:
        draw = lines(
            "eps",
            "accuracy",
            f"eps (delta = {delta:g})",
            f"test accuracy with {removals:,} removals supported",
            panels="profile",
            looks=strength_looks(strengths),
        )
        caption = (
            f"Test accuracy against eps, sigma for {removals} removals: mean, range of "
            f"{draws} draws."
        )
        return Shown(
            rows, [Figure(caption, rows[["eps", "series", "profile", "sigma", *ENDS]], draw)]
        )

    return Kind(keys, ("profile", "lambda", "eps"), through(keys, measure), shown)


BOUNDS_NOTES = (
    "Hessian and spectral norm are formed anew for each step, except where they are kept up. "
    "paper: 003's theorems 1 "
    "and 4 and corollaries 1 and 2, sums that start at 0; the residual is what these steps leave, "
    "measured.",
    "ours: on the same steps with exact constants, from the optimiser's residual on; with a "
    "Hessian that is kept up in "
    "O(d^2) a record, its drift charged; and with that, polished and measured after each in a few "
    "O(n d) passes.",
)


@kind
def removal_bounds(
    profiles: Profiles,
    run: Overrides,
    removals: Annotated[int, Field(ge=2)] = 500,
    batch: Annotated[int, Field(ge=2)] = 10,
    every: Count = 10,
) -> Kind:
    """Bounds on the gradient's residual, and the residual, against the number of records removed
    (003 Fig 2).

    Args:
        run: overrides of a head with certificate=removal.
        removals: how many records go, one at a time and ``batch`` at a time; a point for ``every``
            so many.
    """
    each = "one at a time"
    many = f"{batch} at a time"
    ways = {
        "paper": (
            f"worst case, {each}",
            f"worst case, {many}",
            f"bound, {each}",
            f"bound, {many}",
            f"residual, {each}",
        ),
        "rigorous": (
            f"bound, {each}",
            f"bound, Hessian kept up, {each}",
            f"measured after each, {each}",
        ),
    }
    keys: list[Key] = []
    for name, profile in profiles.items():
        keys += grid(profile=[name], way=ways[profile.accounting])
    step = math.lcm(every, batch)
    counts = range(step, removals + 1, step)

    def make(prepared: Prepared, settings: RunSettings) -> list[Key]:
        trained = removing(prepared, settings, "removal_bounds")
        if removals >= len(trained.x):
            raise ConfigError(
                f"removals={removals} exceeds {len(trained.x)}, the number of training records"
            )
        found = [
            *_anew(trained, removals, 1, each),
            *_anew(trained, removals, batch, many),
            *_kept(trained, removals, each),
        ]
        columns = ("accounting", "way", "removed", "residual")
        return [dict(zip(columns, line, strict=True)) for line in found if line[2] in counts]

    def rows(entry: Entry) -> pd.DataFrame:
        on = f"bounds {removals} {batch} {every}"
        words = f"removing {removals} records"
        found = once(entry, next(iter(profiles)), run, words, make, on)
        every_way = pd.DataFrame(found)
        chosen = []
        for name, profile in profiles.items():
            of_profile = every_way[every_way["accounting"] == profile.accounting]
            of_ways = of_profile[of_profile["way"].isin(ways[profile.accounting])]
            chosen.append(of_ways.drop(columns="accounting").assign(profile=name))
        return pd.concat(chosen, ignore_index=True)

    def shown(rows: pd.DataFrame) -> Shown:
        shown_as = {
            f"worst case, {each}": "worst-case bound, single removals",
            f"worst case, {many}": f"worst-case bound, batches of {batch}",
            f"bound, {each}": "data-dependent bound, single removals",
            f"bound, {many}": f"data-dependent bound, batches of {batch}",
            f"residual, {each}": "residual, single removals",
            f"bound, Hessian kept up, {each}": "data-dependent bound, Hessian updated in place",
            f"measured after each, {each}": "residual measured after further Newton steps",
        }
        series = rows["way"].map(shown_as) + " (" + rows["profile"] + ")"
        points = rows.assign(series=series)[["removed", "series", "residual"]]
        draw = lines(
            "removed",
            "residual",
            "records removed",
            "norm of the gradient's residual",
            log=False,
            ylog=True,
        )
        caption = (
            "Bounds on the norm of the gradient's residual, summed over removals, and the "
            "residual as measured."
        )
        last = rows[rows["removed"] == rows["removed"].max()]
        return Shown(last, [Figure(caption, points, draw)], BOUNDS_NOTES, extra={"_all": rows})

    return Kind(keys, ("profile", "way", "removed"), rows, shown)


Line = tuple[str, str, int, float]  # accounting, way, records removed, a bound on the residual


def _anew(trained: Removing, removals: int, size: int, words: str) -> Iterator[Line]:
    """With matrices formed anew for each step, as 003 does: its bounds, ours on the same steps,
    and what they leave.
    """
    head = trained.head
    objective = trained.objective
    gone = trained.drawn(removals)
    worst = bound = 0.0
    for removed in range(size, removals + 1, size):
        rows = gone[removed - size : removed]
        left = trained.left(gone[:removed])
        step = head.remove(trained.x[rows], trained.targets[rows], remaining=left[0])
        worst += 4 * worst_step_increase(GAMMA, size, head.count, objective.strength)
        bound += published(step, objective)
        yield "paper", f"worst case, {words}", removed, worst
        yield "paper", f"bound, {words}", removed, bound
        gradient = objective.gradient(head.weight, *left, head.tilt)
        yield "paper", f"residual, {words}", removed, gradient.norm_bound
        yield "rigorous", f"bound, {words}", removed, head.residual


def _kept(trained: Removing, removals: int, words: str) -> Iterator[Line]:
    """With matrices that are kept up, one record at a time; and with the residual measured after
    each.
    """
    head = trained.head
    polished = trained.head
    gone = trained.drawn(removals)
    for removed, row in enumerate(gone, start=1):
        for one in (head, polished):
            one.remove(trained.x[[row]], trained.targets[[row]])
        polished.repeat_newton_steps(*trained.left(gone[:removed]))
        yield "rigorous", f"bound, Hessian kept up, {words}", removed, head.residual
        yield "rigorous", f"measured after each, {words}", removed, polished.residual


@kind
def removal_difficulty(
    profiles: Profiles, run: Overrides, shown: Annotated[int, Field(ge=1, le=20)] = 10
) -> Kind:
    """The training images whose removal moves the weights most, and least (003 Fig 3).

    Args:
        run: overrides of a head with certificate=removal, on square images.
        shown: how many of each.
    """

    def make(prepared: Prepared, settings: RunSettings) -> list[Key]:
        trained = removing(prepared, settings, "removal_difficulty")
        one_by_one = zip(trained.x[:, None], trained.targets[:, None], strict=True)
        steps = [trained.head.copy().remove(x, targets) for x, targets in one_by_one]
        moved = np.array([step.length for step in steps])
        order = np.argsort(moved)
        labels = trained.targets.argmax(axis=1)
        if trained.targets.shape[1] == 1:
            labels = trained.targets[:, 0] > 0
        side = math.isqrt(trained.x.shape[1])  # beside the pixels there is the bias
        pixels = [f"p{at}" for at in range(side * side)]
        found = []
        for which, chosen in (("hardest", order[::-1][:shown]), ("easiest", order[:shown])):
            for rank, row in enumerate(chosen, start=1):
                about = {"profile": EVERY, "side": which, "rank": rank}
                about["digit"] = prepared.dataset.classes[int(labels[row])]
                about["moved"] = moved[row]
                image = dict(zip(pixels, trained.x[row].tolist(), strict=False))
                found.append({**about, **image})
        return found

    def rows(entry: Entry) -> pd.DataFrame:
        found = once(
            entry, next(iter(profiles)), run, "every removal alone", make, f"difficulty {shown}"
        )
        return pd.DataFrame(found)

    def drawn(rows: pd.DataFrame) -> Shown:
        caption = (
            f"The {shown} training images whose removal moves the weights most (atypical), and "
            "least (prototypical); below each, its class and by how much."
        )
        draw = partial(
            pictures,
            rows="side",
            titles={"hardest": "atypical", "easiest": "prototypical"},
            order="rank",
            value="moved",
            classes="digit",
            words="class\nweights move by",
        )
        return Shown(
            rows[["profile", "side", "rank", "digit", "moved"]], [Figure(caption, rows, draw)]
        )

    keys = grid(profile=[EVERY], side=["hardest", "easiest"], rank=range(1, shown + 1))
    return Kind(keys, ("profile", "side", "rank"), rows, drawn)


TIMES_NOTES = (
    "Training: Newton's method to a gradient of 1e-5 or less, from vectors or pixels on, with all "
    "that removals need. "
    "003 trains by L-BFGS on another machine. Removal: the median of several.",
    "paper: the Hessian of the records that are left is formed for each removal; ours: it is kept "
    "up, O(d^2) a record.",
    "LSUN (003: .48 s against 124 s) is not reproduced: its images are not to be had.",
)


@kind
def removal_times(
    profiles: Profiles, rows: Variants, removals: Count = 50, anew: Count = 3
) -> Kind:
    """Seconds of one removal beside seconds of training (003 Table 1).

    Args:
        rows: runs of certificate=removal, each with the data that it is on in words.
        removals: how many are timed; the median counts. Of ``anew`` where the Hessian is formed for
            each, as in 003.
    """
    by_label = {row.label: row.run for row in rows}
    keys = [
        {"profile": name, "row": row.label, "data": row.data} for row in rows for name in profiles
    ]

    def make(prepared: Prepared, settings: RunSettings) -> list[Key]:
        trained = removing(prepared, settings, "removal_times")
        records, features = trained.x.shape
        outputs = trained.targets.shape[1]
        size = {"records": records, "features": features, "outputs": outputs}
        paper = _timed(trained, anew, True)
        ours = _timed(trained, removals, False)
        found = {"training": trained.seconds, "paper": paper, "ours": ours}
        return [{**size, **found, "accuracy": accuracy(trained.model, prepared.dataset.test)}]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        row = key["row"]
        on = f"times {removals} {anew}"
        first = next(iter(profiles))
        (found,) = once(entry, first, by_label[row], f"times: {row}", make, on)
        each = {name: found.pop(name) for name in ("paper", "ours")}
        removal = each[column_of(profiles[key["profile"]])]
        yield {**found, "removal": removal, "training / removal": found["training"] / removal}

    def compared(key: Key) -> Key:
        return {f"{key['row']}: seconds of {what}": what for what in ("removal", "training")}

    return Kind(
        keys,
        ("profile", "row"),
        through(keys, measure),
        lambda found: Shown(found, notes=TIMES_NOTES),
        compared,
    )


def _timed(trained: Removing, removals: int, anew: bool) -> float:
    """The median of the seconds that one record's removal takes, the Hessian formed ``anew`` for
    each or kept up.
    """
    head = trained.head
    taken = []
    gone = trained.drawn(removals)
    for count, row in enumerate(gone, start=1):
        remaining = trained.left(gone[:count])[0] if anew else None
        started = time.perf_counter()
        head.remove(trained.x[[row]], trained.targets[[row]], remaining)
        taken.append(time.perf_counter() - started)
    return float(np.median(taken))


def spread_requests(members: int, requests: int) -> np.ndarray:
    """Return how many removal requests affect each member if an adversary spreads them evenly.

    The adversary knows the public key that assigns units to shards, and requests the removal of one
    unit of each shard in turn.

    Args:
        members: T, the number of members.
        requests: the number of requests, each to remove one unit.

    Returns:
        [T] int64.
    """
    return np.bincount(np.arange(requests) % members, minlength=members)


def answered_at_random(
    distances: np.ndarray,
    labels: np.ndarray,
    shard_of_units: np.ndarray,
    requests: int,
    rng: np.random.Generator,
    classes: int = 2,
    draws: int = 100,
) -> float:
    """Return the mean share of queries that are answered while random removal requests wait.

    Args:
        distances: [T, n] the stable distances of the members' labels, as in ``answerable``.
        labels: [T, n] the members' labels, as in ``answerable``.
        shard_of_units: [units] the index of the member that each unit belongs to
            (``training.ensemble.assign_shards``).
        requests: the number of pending requests, at most the number of units. A draw of requests is
            of different units, chosen uniformly.
        rng: draws the units.
        classes: C, the number of classes.
        draws: how often requests are drawn.
    """
    members = len(labels)
    shares = []
    for _ in range(draws):
        shards_of_requests = rng.choice(shard_of_units, size=requests, replace=False)
        pending = np.bincount(shards_of_requests, minlength=members)
        shares.append(float(answerable(distances, labels, pending, classes).mean()))
    return float(np.mean(shares))


WITH = "with certificates"
WITHOUT = "without"
AT_RANDOM = "at random"
SPREAD = "spread by the key"


@kind
def answered_while_waiting(
    profiles: Profiles,
    run: Overrides,
    members: Annotated[int, Field(ge=2)] = 10,
    requests: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 3, 10, 30, 100, 300, 1000),
    draws: Count = 50,
    only: tuple[ProfileName, ...] = (),
    data: str = "",
) -> Kind:
    """The share of queries that an ensemble answers, against how many erasure requests wait (000
    section 4.2).

    Args:
        run: overrides of an ensemble's run; its relation is the profile's for unlearning.
        members: d.
        requests: how many wait at once, of randomly chosen units (mean of ``draws``), or one after
            another for each member in turn, by somebody who knows which unit is where.
        only: the profiles that it is for; none: all.
        data: which data it is, where it is not the experiment's.
    """
    chosen = [name for name in profiles if not only or name in only]
    keys = grid(
        profile=chosen,
        certificates=(WITH, WITHOUT),
        who=(AT_RANDOM, SPREAD),
        requests=requests,
        **named(data),
    )

    def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
        certificates = fit(prepared.problem(settings)).certify(prepared.dataset.test.features)
        if not isinstance(certificates, VoteCertificates):
            raise ConfigError(
                f"answered_while_waiting: members={members}: this needs an ensemble, so give "
                "members=2 or more"
            )
        columns = [*certificates.members, *certificates.member_distances]
        table = {f"c{index}": column for index, column in enumerate(columns)}
        home = assign_shards(np.unique(prepared.dataset.train.units), settings.ensemble)
        facts = {"home": home.tolist(), "classes": prepared.classes}
        return pd.DataFrame(table), facts

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        own = (*run, "relation=@unlearning", f"ensemble.members={members}")
        overrides = entry.overrides(key["profile"], own)
        label = f"{members} members, {key['profile']}"
        frame, facts = entry.runs.once(overrides, label, make, "votes")
        labels, distances = np.split(frame.to_numpy().T, 2)
        home = np.array(facts["home"])
        classes = int(facts["classes"])
        seen = distances if key["certificates"] == WITH else np.zeros_like(distances)
        if key["who"] == AT_RANDOM:
            number = min(key["requests"], len(home))
            rng = np.random.default_rng(0)
            share = answered_at_random(seen, labels, home, number, rng, classes, draws)
        else:
            affected = spread_requests(members, key["requests"])
            share = float(answerable(seen, labels, affected, classes).mean())
        k = int(np.median(distances)) + 1
        series = f"{key['certificates']}, {key['who']} ({key['profile']})"
        without = members * math.log(members)
        within = k * members * math.log(k * members)
        orders = {"d log d": without, "kd log(kd)": within}
        yield {"series": series, "answered": share, "k": k, **orders}

    def shown(rows: pd.DataFrame) -> Shown:
        about = [*rows.columns.intersection(["data"]), "series", "k"]
        some_requests = requests[:: max(1, len(requests) // 4)]
        table = wide(rows, about, "requests", "answered", some_requests, "{:,}")
        # without certificates, all profiles are alike
        is_first = rows["profile"] == rows["profile"].iloc[0]
        known = rows[(rows["certificates"] == WITH) | is_first]
        last = known.groupby("profile")["kd log(kd)"].transform("first").max()
        alike = known["certificates"] + ", " + known["who"]
        names = known["series"].where(known["certificates"] == WITH, alike)
        points = known.assign(**{"kd log(kd)": last, "series": names})
        points = points[["requests", "series", "answered", "d log d", "kd log(kd)"]]
        upright = ("d log d", "kd log(kd)")
        draw = lines(
            "requests",
            "answered",
            "requests that wait",
            "share of queries answered",
            upright=upright,
            share=True,
        )
        caption = (
            f"Test queries that {members} members answer while requests wait; k: a member's "
            "median stable distance, plus 1."
        )
        notes = tuple(note.format(members) for note in WAITING_NOTES)
        return Shown(table, [Figure(caption, points, draw)], notes)

    return Kind(keys, ("profile", "certificates", "who", "requests"), through(keys, measure), shown)


WAITING_NOTES = (
    "Answered: the vote's label is the same whatever the members say that are to be retrained; so "
    "it is the label that "
    "the retrained ensemble gives. Without certificates such a member is every one with a request.",
    "d log d and kd log(kd): 000's orders of how many requests take d = {} members offline, "
    "without and with "
    "certificates. 000 gives no constants and no numbers, so nothing published stands beside.",
)


@validated(frozen=True, config=STRICT, kw_only=True)
class Served(Variant):
    """One data set, the overrides of its data, and what is trained on it.

    Attributes:
        removal: of a head with certificate=removal.
        certified: of a linear head with certificates in closed form.
        ensemble: of an ensemble, added to ``certified``'s.
    """

    removal: Overrides
    certified: Overrides
    ensemble: Overrides


@kind
def erasure_methods(
    profiles: Profiles,
    sets: Annotated[tuple[Served, ...], Field(min_length=1)],
    requests: Count = 20,
) -> Kind:
    """Every method on the same requests: seconds for each record beside training again, accuracy,
    what is promised.

    Args:
        requests: how many records are to go, the same for each method.
    """
    *_, name = profiles  # everything here is ours, whatever the profile
    ways = {"newton": _newton, "sisa": _sisa, "retrain": _retrain, "certificate": _certificate}
    keys = [
        {"profile": EVERY, "set": one.label, "data": one.data, "method": method}
        for one in sets
        for method in ways
    ]
    by_label = {one.label: one for one in sets}

    def measure(entry: Entry, key: Key) -> list[Key]:
        one = by_label[key["set"]]
        method = key["method"]
        own = one.removal
        if method == "sisa":
            own = (*one.certified, *one.ensemble)
        elif method == "certificate":
            own = one.certified

        def make(prepared: Prepared, settings: RunSettings) -> list[Key]:
            unit_of_row = prepared.dataset.train.units
            units = np.random.default_rng(0).permutation(np.unique(unit_of_row))
            gone = np.isin(unit_of_row, units[:requests])
            return [ways[method](prepared, settings, gone)]

        label = f"{key['set']}: {method}"
        return once(entry, name, (*one.run, *own), label, make, f"{method} {requests}")

    def shown(rows: pd.DataFrame) -> Shown:
        some = rows[rows["seconds each"] > 0]
        seconds = some["seconds each"]
        points = some.assign(unit=f"{requests} requests", low=seconds, high=seconds)
        columns: Key = {"x": "seconds each", "y": "method", "series": "set", "panels": "unit"}
        draw = partial(marks, **columns, xlabel="seconds for each record", panel="{}", log=True)
        caption = f"Seconds for each of {requests} records, by method; certificate takes none."
        notes = tuple(note.format(requests) for note in ERASURE_NOTES)
        return Shown(rows.drop(columns="profile"), [Figure(caption, points, draw)], notes)

    return Kind(keys, ("profile", "set", "method"), through(keys, measure), shown)


ERASURE_NOTES = (
    "The same {} records for every method of a data set, from a seed. newton: one at a time, the "
    "Hessian "
    "kept up, and a pass over the data where the budget asks for it. sisa: all at once, divided by "
    "their number. "
    "retrain: the removal head from scratch, which one request alone costs, too. certificate: "
    "nothing is trained; "
    "what is not certified for all of them abstains.",
    "Accuracy of certificate: of the queries that are answered. Requests supported: newton, by the "
    "bound alone, before "
    "a pass over the data is needed; certificate, while half of the queries are answered; the "
    "others, all there are.",
    "newton's promise is 003's (eps, delta): its Theorem 2 takes the residual to be independent of "
    "the perturbation, "
    "and it is not; certificate.masking=output needs no such assumption. The noise's seed is fixed "
    "here: a simulation.",
)


COMPARED = (
    "seconds",
    "seconds each",
    "training",
    "accuracy before",
    "accuracy after",
    "answered",
    "promise",
    "requests supported",
)


def _row(*values: float | str) -> Key:
    """What one method is compared by."""
    return dict(zip(COMPARED, values, strict=True))


def _remaining(prepared: Prepared, gone: np.ndarray) -> Prepared:
    dataset = prepared.dataset
    remaining = replace(dataset, train=dataset.train.take(~gone))
    return replace(prepared, dataset=remaining)


def _newton(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    trained = removing(prepared, settings, "newton")
    test = prepared.dataset.test
    head = trained.head
    rows = np.flatnonzero(gone)
    model = trained.model
    before = head.residual
    allowed = model.budget or math.inf
    started = time.perf_counter()
    bounds = []
    for count, row in enumerate(rows, start=1):
        step = head.remove(trained.x[[row]], trained.targets[[row]])
        bounds.append(step.after - step.before)
        if head.residual > allowed:
            reduce_residual(head, *trained.left(rows[:count]), allowed)
    seconds = time.perf_counter() - started
    after = model.with_weight(torch.from_numpy(head.weight))
    scores = accuracy(model, test), accuracy(after, test)
    promise = f"({model.config.eps:g}, {model.config.delta:g}), oblivious"
    affordable = (allowed - before) / float(np.mean(bounds))
    most = math.floor(min(float(len(trained.x)), affordable))
    return _row(seconds, seconds / len(rows), trained.seconds, *scores, 1.0, promise, most)


def _retrain(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    trained = removing(prepared, settings, "retrain")
    test = prepared.dataset.test
    again = removing(_remaining(prepared, gone), settings, "retrain")
    scores = accuracy(trained.model, test), accuracy(again.model, test)
    return _row(
        again.seconds,
        again.seconds,
        trained.seconds,
        *scores,
        1.0,
        "exact, adaptive",
        float(len(trained.x)),
    )


def _sisa(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    model, training = _fitted(prepared, settings, EnsembleModel)
    with TemporaryDirectory() as folder:
        store = NewFolder(Path(folder), "train")
        model.save(store)
        model.save_shards(store)
        store.finish()
        started = time.perf_counter()
        problem = _remaining(prepared, gone).problem(settings)
        after = retrain_affected(problem, Folder.open(Path(folder), "train")).model
        seconds = time.perf_counter() - started
    scores = accuracy(model, prepared.dataset.test), accuracy(after, prepared.dataset.test)
    return _row(
        seconds,
        seconds / int(gone.sum()),
        training,
        *scores,
        1.0,
        "exact, adaptive",
        float(len(gone)),
    )


def _certificate(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    model, training = _fitted(prepared, settings, LinearModel)
    test = prepared.dataset.test
    certificates = model.certify(test.features)
    units_gone = np.unique(prepared.dataset.train.units[gone])
    stable = certificates.stable_distance >= len(units_gone)
    right = certificates.prediction == test.labels
    after = float(right[stable].mean()) if stable.any() else float("nan")
    supported = float(np.median(certificates.stable_distance))
    answered = float(stable.mean())
    return _row(
        0.0,
        0.0,
        training,
        float(right.mean()),
        after,
        answered,
        "exact where answered, adaptive",
        supported,
    )


def _fitted(prepared: Prepared, settings: RunSettings, kind: type) -> tuple[Any, float]:
    """A model of this kind, and the seconds that it took."""
    started = time.perf_counter()
    model = fit(prepared.problem(settings))
    if not isinstance(model, kind):
        raise ConfigError(f"erasure_methods: the run must have a model of the kind {kind.__name__}")
    return model, time.perf_counter() - started
