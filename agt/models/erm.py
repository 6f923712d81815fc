"""``certificate=erm``: the minimiser of a regularised loss on a linear head.

Its sensitivity is that of 002's output perturbation.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from agt.certificates.conditions import stated_constants
from agt.data.records import Records
from agt.facts import Fact, proved
from agt.models.kind import UnreadReason
from agt.models.linear import LinearKind, movement_values
from agt.problem import Settings
from agt.settings import FeaturesConfig, Positive, schema
from agt.training.checkpoint import Checkpoints
from agt.training.erm import check_minimiser_settings, erm_sensitivity, train_erm
from agt.training.linear import LinearTrained
from agt.training.loop import OnProgress
from agt.training.sensitivity import LinearSetting, Sensitivity
from agt.training.setup import TrainingSetup

UNREAD_OF_MINIMISERS: Mapping[str, UnreadReason] = dict.fromkeys(
    ("training.epochs", "training.lr", "training.lr_min", "training.decay"), "minimum"
)
"""The settings of a schedule of steps, which training to a minimum does not read, and why."""


@schema
class ErmKind(LinearKind):
    """Certificates in closed form for the minimiser of a regularised loss.

    The strength of the regulariser, lambda, is ``training.weight_decay``.

    Attributes:
        features: the public feature map.
        tolerance: a public bound on the norm of the gradient at the solution; training that does
            not reach it fails.
    """

    name: Literal["erm"] = "erm"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    tolerance: Positive = 1e-8

    trains_in_steps = False
    regularised_by = "weight_decay"

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """The settings of a schedule as well: the minimum does not depend on the steps to it."""
        return {**super().unread_settings, **UNREAD_OF_MINIMISERS}

    def check_own(self, settings: Settings) -> None:
        """Raise ConfigError unless the settings describe one strongly convex problem."""
        check_minimiser_settings(settings.training, self.name)

    def sensitivity(self, setting: LinearSetting) -> Sensitivity:
        """Return a bound on how far one record moves the minimiser.

        Raises:
            ConfigError: the tolerance is too small to be reached in floating point.
        """
        return erm_sensitivity(setting, self.tolerance)

    def train(
        self,
        setup: TrainingSetup,
        records: Records,
        on_progress: OnProgress,
        checkpoints: Checkpoints,
    ) -> LinearTrained:
        """Return the minimiser for records that have public features.

        Raises:
            UnsoundError: the tolerance was not reached.
        """
        return train_erm(setup, records, self.tolerance, on_progress, checkpoints)

    def step_facts(self, trained: LinearTrained) -> tuple[Fact, Fact]:
        """Return that the objective is public, and why one record moves its minimiser so little."""
        strength = trained.training.weight_decay
        constants = stated_constants(
            trained.plan, "objective_stated", weight_decay=strength, tolerance=self.tolerance
        )
        movement = proved(
            "minimiser_of_loss",
            strength=strength,
            gradient=self.tolerance,
            **movement_values(trained),
        )
        return constants, movement

    def check_objective_perturbation(self, mechanism: str) -> None:
        """Accept every mechanism: the minimiser may be moved by a random linear term."""
