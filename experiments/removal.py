"""A head that records can be removed from, for the kinds about certified removal (003), and what 003 makes of its steps.

Everything that is removed goes through agt.unlearning.newton. 003's numbers are worked out from the same steps: its bound
takes 1/4 for the Lipschitz constant of l'' and an integral's largest term for the integral (``published``), and its budget
is sigma eps / sqrt(2 ln(1.5 / delta)). Its regulariser is lambda times the number of records that are left; here it stays
that of the training set, so that a removal need not move the weights for it.


Kinds about the settings of certified removal: lambda, sigma and eps against accuracy and the number of removals that
they support (003 Figs 1 and 4).

Kinds about the steps of certified removal: bounds on the gradient's residual beside the residual (003 Fig 2), which
records are hard to remove (Fig 3), and times (Table 1).

Kinds about erasure requests: which queries an ensemble answers while they wait (000 section 4.2), and what each method
of removing records costs, promises and leaves, on the same requests."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.errors import ConfigError
from agt.models.features import FeatureMap
from agt.models.linear import LinearModel, RemovalModel, training_rows
from agt.models.model import EnsembleModel, Model, VoteCertificates, accuracy, fit
from agt.numeric import gaussian_mu
from agt.settings import STRICT, Positive, RemovalConfig
from agt.store import Folder, NewFolder
from agt.training.ensemble import shards
from agt.training.erm import Objective
from agt.unlearning.newton import NewtonStep, RemovableHead, brought_within, worst_case
from agt.unlearning.sisa import answerable, availability, retrain_affected, spread_requests
from agt_cli.report.figures import Curves
from agt_cli.runs.prepare import Prepared, RunSettings

from .certified import Count, Delta
from .kinds import (
    EVERY,
    Entry,
    Figure,
    Key,
    Kind,
    Marks,
    Overrides,
    Pictures,
    Profile,
    ProfileName,
    Profiles,
    kind,
    marks,
    pictures,
    through,
    wide,
)

GAMMA = 0.25  # 003's Lipschitz constant of l'' for the logistic loss; 1 / (6 sqrt 3) is exact
CODE = ("agt.unlearning.newton", "agt.unlearning.sisa", __name__)  # of kept measurements


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
        return self.model.known.objective

    @property
    def head(self) -> RemovableHead:
        """To remove from: a new one each time."""
        return RemovableHead.of(self.objective, self.model.state, self.model.features.slack)

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
    if not isinstance(settings.certificate, RemovalConfig):
        raise ConfigError(f"{where}: run needs certificate=removal and model=linear")
    FeatureMap.of(settings.certificate.features, prepared.dataset)(
        prepared.dataset.train.features[:1]
    )  # compiled, not timed
    started = time.perf_counter()
    model = RemovalModel.fit(prepared.problem(settings))
    seconds = time.perf_counter() - started
    x, labels = training_rows(model.problem, model.features)
    return Removing(model, x, model.known.objective.targets(labels, model.problem.classes), seconds)


def published(step: NewtonStep, objective: Objective) -> float:
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
        ),
        "removals": Figure(
            f"Test accuracy against how many removals are supported before training again ({at}); points of a line: sigma.",
            by_removals,
            Curves("_removals", "removals", "accuracy", "removals supported", "test accuracy", "", panels="profile"),
        ),
        "front": Figure(
            f"The most accurate head of those that support so many removals ({at}): each point a lambda and a sigma.",
            front,
            Curves("", "removals", "accuracy", "removals supported", "test accuracy", ""),
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

    figure = Figure(
        f"Test accuracy against eps, sigma such that {removals} removals are supported; mean of {draws} draws.",
        lambda rows: rows[["eps", "series", "profile", "sigma", "accuracy"]],
        Curves("", "eps", "accuracy", f"eps (delta = {delta:g})", "test accuracy", "", panels="profile"),
    )
    return Kind(
        keys,
        through(keys, measure),
        ("profile", "lambda", "eps"),
        (figure,),
    )


Line = tuple[str, str, int, float]  # accounting, way, records removed, a bound on the residual


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
            found[(found["accounting"] == profile.accounting) & found["way"].isin(ways[profile.accounting])].assign(
                profile=name
            )
            for name, profile in profiles.items()
        ]
        return pd.concat(parts, ignore_index=True).drop(columns="accounting")

    def series(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(series=rows["way"] + " (" + rows["profile"] + ")")[["removed", "series", "residual"]]

    def last(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[rows["removed"] == rows["removed"].max()]

    figure = Figure(
        "Bounds on the norm of the gradient's residual, summed over removals, and the residual as measured.",
        series,
        Curves("", "removed", "residual", "records removed", "norm of the gradient's residual", "", log=False, ylog=True),
    )
    notes = (
        "Hessian and spectral norm are formed anew for each step, except where they are kept up. paper: 003's theorems 1 "
        "and 4 and corollaries 1 and 2, sums that start at 0; the residual is what these steps leave, measured.",
        "ours: on the same steps with exact constants, from the optimiser's residual on; with a Hessian that is kept up in "
        "O(d^2) a record, its drift charged; and with that, polished and measured after each in a few O(n d) passes.",
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

    caption = f"The {shown} training images whose removal moves the weights most (above), and least (below)."
    drawing = Pictures("side", "rank", "moved", "weights move by")
    return Kind(
        keys,
        rows,
        ("profile", "side", "rank"),
        (Figure(caption, lambda rows: rows, drawing, draw=pictures),),
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
        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            trained, test = removing(prepared, settings, entry.artifact.id), prepared.dataset.test
            size = {"records": len(trained.x), "features": trained.x.shape[1], "outputs": trained.targets.shape[1]}
            found = {
                "training": trained.seconds,
                "paper": _timed(trained, anew, True),
                "ours": _timed(trained, removals, False),
            }
            return pd.DataFrame([{**size, **found, "accuracy": accuracy(trained.model, test)}]), {}

        name, row = key["profile"], key["row"]
        overrides = entry.overrides(next(iter(profiles)), by_label[row])
        frame, _ = entry.runs.once(overrides, f"times: {row}", make, f"times {removals} {anew}", modules=CODE)
        found = frame.to_dict("records")[0]
        paper, ours = found.pop("paper"), found.pop("ours")
        removal = paper if profiles[name].accounting == "paper" else ours
        yield {**found, "removal": removal, "training / removal": found["training"] / removal}

    def compared(key: Key) -> Key:
        return {f"{key['row']}: seconds of {what}": what for what in ("removal", "training")}

    notes = (
        "Training: Newton's method to a gradient of 1e-5 or less, from vectors or pixels on, with all that removals need. "
        "003 trains by L-BFGS on another machine. Removal: the median of several.",
        "paper: the Hessian of the records that are left is formed for each removal; ours: it is kept up, O(d^2) a record.",
        "LSUN (003: .48 s against 124 s) is not reproduced: its images are not to be had.",
    )
    index = ("profile", "row")
    return Kind(keys, through(keys, measure), index, (), compared=compared, notes=lambda found: notes)


def _timed(trained: Removing, removals: int, anew: bool) -> float:
    """The median of the seconds that one record's removal takes, the Hessian formed ``anew`` for each or kept up."""
    head, taken, gone = trained.head, [], trained.drawn(removals)
    for count, row in enumerate(gone, start=1):
        remaining = trained.left(gone[:count])[0] if anew else None
        started = time.perf_counter()
        head.remove(trained.x[[row]], trained.targets[[row]], remaining)
        taken.append(time.perf_counter() - started)
    return float(np.median(taken))


WITH, WITHOUT = "with certificates", "without"
AT_RANDOM, SPREAD = "at random", "spread by the key"


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
    """The share of queries that an ensemble answers, against how many erasure requests wait (000 section 4.2).

    Args:
        run: overrides of an ensemble's run; its relation is the profile's for unlearning.
        members: d.
        requests: how many wait at once, of randomly chosen units (mean of ``draws``), or one after another for each member
            in turn, by somebody who knows which unit is where.
        only: the profiles that it is for; none: all.
        data: which data it is, where it is not the experiment's.
    """
    keys = [
        {"profile": name, "certificates": way, "who": who, "requests": number, **({"data": data} if data else {})}
        for name in profiles
        if not only or name in only
        for way in (WITH, WITHOUT)
        for who in (AT_RANDOM, SPREAD)
        for number in requests
    ]

    def votes(entry: Entry, name: ProfileName) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            certificates = fit(prepared.problem(settings)).certify(prepared.dataset.test.features)
            if not isinstance(certificates, VoteCertificates):
                raise ConfigError(f"{entry.artifact.id}: members={members}: an ensemble is asked for")
            columns = [*certificates.members, *certificates.member_distances]
            home = shards(np.unique(prepared.dataset.train.units), settings.ensemble)
            facts = {"home": home.tolist(), "classes": prepared.classes}
            return pd.DataFrame({f"c{at}": column for at, column in enumerate(columns)}), facts

        own = (*run, "relation=@unlearning", f"ensemble.members={members}")
        frame, facts = entry.runs.once(
            entry.overrides(name, own), f"{members} members, {name}", make, "votes", modules=CODE
        )
        both = frame.to_numpy().T
        return both[:members], both[members:], np.array(facts["home"]), int(facts["classes"])

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        labels, distances, home, classes = votes(entry, key["profile"])
        seen = distances if key["certificates"] == WITH else np.zeros_like(distances)
        if key["who"] == AT_RANDOM:
            number = min(key["requests"], len(home))
            share = float(availability(seen, labels, home, (number,), np.random.default_rng(0), classes, draws)[0])
        else:
            share = float(answerable(seen, labels, spread_requests(members, key["requests"]), classes).mean())
        k = int(np.median(distances)) + 1
        yield {
            "series": f"{key['certificates']}, {key['who']} ({key['profile']})",
            "answered": share,
            "k": k,
            "d log d": members * math.log(members),
            "kd log(kd)": k * members * math.log(k * members),
        }

    def points(rows: pd.DataFrame) -> pd.DataFrame:
        known = rows[(rows["certificates"] == WITH) | (rows["profile"] == rows["profile"].iloc[0])]  # without: all alike
        last = known.groupby("profile")["kd log(kd)"].transform("first").max()
        return known.assign(**{"kd log(kd)": last})[["requests", "series", "answered", "d log d", "kd log(kd)"]]

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        about = [*rows.columns.intersection(["data"]), "series", "k"]
        return wide(rows, about, "requests", "answered", requests[:: max(1, len(requests) // 4)], "{:,}")

    figure = Figure(
        f"Test queries that {members} members answer while requests wait; k: a member's median stable distance, plus 1.",
        points,
        Curves(
            "",
            "requests",
            "answered",
            "requests that wait",
            "share of queries answered",
            "",
            upright=("d log d", "kd log(kd)"),
        ),
    )
    notes = (
        "Answered: the vote's label is the same whatever the members say that are to be retrained; so it is the label that "
        "the retrained ensemble gives. Without certificates such a member is every one with a request.",
        f"d log d and kd log(kd): 000's orders of how many requests take d = {members} members offline, without and with "
        "certificates. 000 gives no constants and no numbers, so nothing published stands beside.",
    )
    index = ("profile", "certificates", "who", "requests")
    return Kind(keys, through(keys, measure), index, (figure,), table, notes=lambda rows: notes)


@validated(frozen=True, config=STRICT)
class Served:
    """One data set and what is trained on it.

    Attributes:
        label, data: what figures and tables call it.
        run: overrides of its data.
        removal: of a head with certificate=removal.
        certified: of a linear head with certificates in closed form.
        ensemble: of an ensemble, added to ``certified``'s.
    """

    label: str
    data: str
    removal: Overrides
    certified: Overrides
    ensemble: Overrides
    run: Overrides = ()


@kind
def erasure_methods(
    profiles: Profiles,
    sets: Annotated[tuple[Served, ...], Field(min_length=1)],
    requests: Count = 20,
) -> Kind:
    """Every method on the same requests: seconds for each record beside training again, accuracy, what is promised.

    Args:
        requests: how many records are to go, the same for each method.
    """
    *_, name = profiles  # everything here is ours, whatever the profile
    ways = {"newton": _newton, "sisa": _sisa, "retrain": _retrain, "certificate": _certificate}
    keys = [{"profile": EVERY, "set": one.label, "data": one.data, "method": method} for one in sets for method in ways]
    by_label = {one.label: one for one in sets}

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        one, method = by_label[key["set"]], key["method"]
        own = {"sisa": (*one.certified, *one.ensemble), "certificate": one.certified}.get(method, one.removal)

        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            units = np.unique(prepared.dataset.train.units)
            gone = np.isin(prepared.dataset.train.units, np.random.default_rng(0).permutation(units)[:requests])
            return pd.DataFrame([ways[method](prepared, settings, gone)]), {}

        overrides, words = entry.overrides(name, (*one.run, *own)), f"{key['set']}: {method}"
        frame, _ = entry.runs.once(overrides, words, make, f"{method} {requests}", modules=CODE)
        yield frame.to_dict("records")[0]

    notes = (
        f"The same {requests} records for every method of a data set, from a seed. newton: one at a time, the Hessian "
        "kept up, and a pass over the data where the budget asks for it. sisa: all at once, divided by their number. "
        "retrain: the removal head from scratch, which one request alone costs, too. certificate: nothing is trained; "
        "what is not certified for all of them abstains.",
        "Accuracy of certificate: of the queries that are answered. Requests supported: newton, by the bound alone, before "
        "a pass over the data is needed; certificate, while half of the queries are answered; the others, all there are.",
        "newton's promise is 003's (eps, delta): its Theorem 2 takes the residual to be independent of the perturbation, "
        "and it is not; certificate.masking=output needs no such assumption. The noise's seed is fixed here: a simulation.",
    )
    drawing = Marks("seconds each", "method", "set", "unit", "seconds for each record", "{}", log=True)
    figure = Figure(
        f"Seconds for each of {requests} records, by method; certificate takes none.",
        lambda rows: rows[rows["seconds each"] > 0].assign(
            unit=f"{requests} requests", low=lambda some: some["seconds each"], high=lambda some: some["seconds each"]
        ),
        drawing,
        draw=marks,
    )
    index = ("profile", "set", "method")
    return Kind(
        keys,
        through(keys, measure),
        index,
        (figure,),
        lambda rows: rows.drop(columns="profile"),
        notes=lambda rows: notes,
    )


def _row(
    seconds: float, each: float, training: float, accuracies: tuple[float, float], promise: str, supported: float
) -> Key:
    """What one method is compared by."""
    return {
        "seconds": seconds,
        "seconds each": each,
        "training": training,
        "accuracy before": accuracies[0],
        "accuracy after": accuracies[1],
        "answered": 1.0,
        "promise": promise,
        "requests supported": supported,
    }


def _remaining(prepared: Prepared, gone: np.ndarray) -> Prepared:
    return replace(prepared, dataset=replace(prepared.dataset, train=prepared.dataset.train.take(~gone)))


def _newton(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    trained, test = removing(prepared, settings, "newton"), prepared.dataset.test
    head, rows, model = trained.head, np.flatnonzero(gone), trained.model
    before, allowed = head.residual, model.budget or math.inf
    started, bounds = time.perf_counter(), []
    for count, row in enumerate(rows, start=1):
        step = head.remove(trained.x[[row]], trained.targets[[row]])
        bounds.append(step.after - step.before)
        if head.residual > allowed:
            brought_within(head, *trained.left(rows[:count]), allowed)
    seconds = time.perf_counter() - started
    after = model.with_weight(torch.from_numpy(head.weight))
    scores = accuracy(model, test), accuracy(after, test)
    promise = f"({model.config.eps:g}, {model.config.delta:g}), oblivious"
    most = min(float(len(trained.x)), (allowed - before) / float(np.mean(bounds)))
    return _row(seconds, seconds / len(rows), trained.seconds, scores, promise, math.floor(most))


def _retrain(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    trained, test = removing(prepared, settings, "retrain"), prepared.dataset.test
    again = removing(_remaining(prepared, gone), settings, "retrain")
    scores = accuracy(trained.model, test), accuracy(again.model, test)
    return _row(again.seconds, again.seconds, trained.seconds, scores, "exact, adaptive", float(len(trained.x)))


def _sisa(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    model, training = _fitted(prepared, settings)
    if not isinstance(model, EnsembleModel):
        raise ConfigError("sisa: ensemble: several members are asked for")
    with TemporaryDirectory() as folder:
        store = NewFolder(Path(folder), "train")
        model.save(store)
        model.save_shards(store)
        store.finish()
        started = time.perf_counter()
        after = retrain_affected(_remaining(prepared, gone).problem(settings), Folder.open(Path(folder), "train")).model
        seconds = time.perf_counter() - started
    scores = accuracy(model, prepared.dataset.test), accuracy(after, prepared.dataset.test)
    return _row(seconds, seconds / int(gone.sum()), training, scores, "exact, adaptive", float(len(gone)))


def _certificate(prepared: Prepared, settings: RunSettings, gone: np.ndarray) -> Key:
    model, training = _fitted(prepared, settings)
    if not isinstance(model, LinearModel):
        raise ConfigError("certificate: a linear head with certificates in closed form is asked for")
    test = prepared.dataset.test
    certificates = model.certify(test.features)
    stable = certificates.stable_distance >= len(np.unique(prepared.dataset.train.units[gone]))
    right = certificates.prediction == test.labels
    after = float(right[stable].mean()) if stable.any() else float("nan")
    supported = float(np.median(certificates.stable_distance))
    found = _row(0.0, 0.0, training, (float(right.mean()), after), "exact where answered, adaptive", supported)
    return {**found, "answered": float(stable.mean())}


def _fitted(prepared: Prepared, settings: RunSettings) -> tuple[Model, float]:
    started = time.perf_counter()
    model = fit(prepared.problem(settings))
    return model, time.perf_counter() - started
