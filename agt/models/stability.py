"""``certificate=stability``: a linear head trained by plain SGD (method.md section 5)."""

from typing import Literal

from pydantic import Field

from agt.certificates.conditions import stated_constants
from agt.data.records import Records
from agt.facts import Fact, proved
from agt.models.linear import LinearKind, movement_values
from agt.settings import Count, FeaturesConfig, TrainingConfig, schema
from agt.training.checkpoint import Checkpoints
from agt.training.linear import LinearTrained, train_linear
from agt.training.loop import OnProgress
from agt.training.sensitivity import LinearSetting, Sensitivity, sgd_sensitivity
from agt.training.setup import TrainingSetup
from agt.training.sgd import learning_rate
from agt.training.strength import resolve_sgd


@schema
class StabilityKind(LinearKind):
    """Certificates in closed form for a linear head on public features, by the stability of SGD.

    Attributes:
        features: the public feature map.
        average: how many of the last iterates the model is the mean of; 1: it is the last one.
    """

    name: Literal["stability"] = "stability"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    average: Count = 1

    certifies_more = "votes"

    def resolve(
        self, training: TrainingConfig, classes: int, size: float, unit_rows: int
    ) -> TrainingConfig:
        """Return the training settings with the recipe's numbers for plain SGD."""
        return resolve_sgd(training, classes, size, unit_rows)

    def sensitivity(self, setting: LinearSetting) -> Sensitivity:
        """Return a bound on how far one record moves the weights that SGD ends at.

        Raises:
            ConfigError: a learning rate is so large that a step may drive two heads apart.
        """
        return sgd_sensitivity(setting, self.average)

    def train(
        self,
        setup: TrainingSetup,
        records: Records,
        on_progress: OnProgress,
        checkpoints: Checkpoints,
    ) -> LinearTrained:
        """Return the head after the recipe's steps of SGD from 0, on public features."""
        return train_linear(setup, records, self.average, on_progress, checkpoints)

    def step_facts(self, trained: LinearTrained) -> tuple[Fact, Fact]:
        """Return that the number of steps is public, and why no step drives two heads apart."""
        constants = stated_constants(trained.plan, "steps_stated", steps=trained.plan.steps)
        first_rate = learning_rate(trained.training, 0)  # rates only fall from here
        rate_limit = trained.sensitivity.rate_limit
        assert rate_limit is not None  # sgd_sensitivity sets it
        movement = proved(
            "steps_do_not_expand",
            rate=first_rate,
            limit=rate_limit,
            **movement_values(trained),
        )
        return constants, movement
