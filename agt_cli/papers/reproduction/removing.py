"""A head that records can be removed from, for the kinds about certified removal (003), and what 003 makes of its steps.

Everything that is removed goes through agt.unlearning.newton. 003's numbers are worked out from the same steps: its bound
takes 1/4 for the Lipschitz constant of l'' and an integral's largest term for the integral (``published``), and its budget
is sigma eps / sqrt(2 ln(1.5 / delta)). Its regulariser is lambda times the number of records that are left; here it stays
that of the training set, so that a removal need not move the weights for it.
"""

import math
import time
from dataclasses import dataclass

import numpy as np

from agt.errors import ConfigError
from agt.models.features import FeatureMap
from agt.models.removal import RemovalModel, training_rows
from agt.numeric import gaussian_mu
from agt.settings import RemovalConfig
from agt.training.objective import Objective
from agt.unlearning.newton import Head, Step
from agt_cli.papers.reproduction.definition import Profile
from agt_cli.papers.reproduction.kinds import Overrides
from agt_cli.runs.prepare import Prepared, RunSettings

GAMMA = 0.25  # 003's Lipschitz constant of l'' for the logistic loss; 1 / (6 sqrt 3) is exact
CODE = ("agt.unlearning.newton", __name__)  # what kept measurements come from


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
    def head(self) -> Head:
        """To remove from: a new one each time."""
        return Head.of(self.objective, self.model.state, self.model.features.slack)

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
