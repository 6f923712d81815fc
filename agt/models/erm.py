"""``certificate=erm``: the minimiser of a regularised loss on a linear head (002's output
perturbation).
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
from agt.training.recipe import Recipe
from agt.training.sensitivity import LinearSetting, Sensitivity

UNREAD_OF_MINIMISERS: Mapping[str, UnreadReason] = dict.fromkeys(
    ("training.epochs", "training.lr", "training.lr_min", "training.decay"), "minimum"
)
"""What training to a minimum reads of a schedule: nothing."""


@schema
class ErmKind(LinearKind):
    """Certificates in closed form for the minimiser of the regularised loss; training.weight_decay
    is lambda.

    Attributes:
        features: the public feature map.
        tolerance: public bound on the gradient's norm at the solution; a run that does not reach it
            stops.
    """

    name: Literal["erm"] = "erm"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    tolerance: Positive = 1e-8

    trains_in_steps = False
    regularised_by = "weight_decay"

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """A schedule too: the minimum is the same, by whatever steps."""
        return {**super().unread_settings, **UNREAD_OF_MINIMISERS}

    def check_own(self, settings: Settings) -> None:
        """Raise ConfigError where the settings do not describe one strongly convex problem."""
        check_minimiser_settings(settings.training, self.name)

    def sensitivity(self, setting: LinearSetting) -> Sensitivity:
        """Return how far one record moves the minimiser.

        Raises ConfigError: the tolerance is too small.
        """
        return erm_sensitivity(setting, self.tolerance)

    def train(
        self, recipe: Recipe, records: Records, on_progress: OnProgress, checkpoints: Checkpoints
    ) -> LinearTrained:
        """Return the minimiser. Raises UnsoundError: the tolerance was not reached."""
        return train_erm(recipe, records, self.tolerance, on_progress, checkpoints)

    def step_facts(self, trained: LinearTrained) -> tuple[Fact, Fact]:
        """Return the constants of the objective, and why the number of steps says nothing."""
        strength = trained.training.weight_decay
        objective = {"weight_decay": strength, "tolerance": self.tolerance}
        constants = stated_constants(trained.plan, "objective_stated", **objective)
        movement = movement_values(trained)
        return constants, proved(
            "minimiser_of_loss", strength=strength, gradient=self.tolerance, **movement
        )

    def check_tilted(self, mechanism: str) -> None:
        """Accept: a random linear term moves the minimiser as its proof says."""
