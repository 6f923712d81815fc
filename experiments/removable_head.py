"""A head that records can be removed from, for the kinds about certified removal (003), and what
003 makes of its steps.

Everything that is removed goes through agt.unlearning.newton. 003's numbers are worked out from the
same steps: its bound takes 1/4 for the Lipschitz constant of l'' and an integral's largest term for
the integral (``published``), and its budget is sigma eps / sqrt(2 ln(1.5 / delta)). Its regulariser
is lambda times the number of records that are left; here it stays that of the training set, so that
a removal need not move the weights for it.
"""

import math
import time
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pandas as pd

from agt.errors import ConfigError
from agt.models.features import FeatureMap
from agt.models.model import accuracy
from agt.models.removal import RemovalKind, RemovalModel, training_rows
from agt.numeric import gaussian_mu
from agt.settings import Positive
from agt.training.objective import Objective
from agt.unlearning.newton import NewtonStep, RemovableHead
from agt_cli.runs.prepare import Prepared, RunSettings

from .entry import Entry, Key, Overrides, once
from .experiment import OneOrMore, Profile, ProfileName

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
Strengths = OneOrMore[Positive]


def mean_bounds(trained: Removing, records: int) -> dict[str, float]:
    """The mean bound of removing one record, of so many: 003's ("paper"), and ours."""
    head = trained.head
    paper = []
    ours = []
    for row in trained.drawn(records):
        step = deepcopy(head).remove(trained.x[[row]], trained.targets[[row]])
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
    """The means over draws of b: accuracy, the optimiser's residual, n, and the mean bounds of
    removing one record, of so many records; ``low``, ``high``: the range of the accuracies.
    """

    def make(prepared: Prepared, settings: RunSettings) -> list[Key]:
        trained = removing(prepared, settings, entry.artifact.id)
        head = trained.head
        right = accuracy(trained.model, prepared.dataset.test)
        about = {"accuracy": right, "start": head.residual, "n": head.count}
        return [{**about, **mean_bounds(trained, records)}]

    found = []
    for seed in range(draws):
        own = (*run, *settings_of(strength, sigma, seed))
        found += once(entry, name, own, " ".join(own[-3:]), make, f"removing {records}")
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


def named(data: str) -> dict[str, list[str]]:
    """The column of a key that says which data it is, where it is not the experiment's."""
    return {"data": [data]} if data else {}
