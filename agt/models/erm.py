"""``certificate=erm``: a linear head that minimises a regularised loss on public features.

Its sensitivity is that of output perturbation (reference 002 of the bibliography).
"""

from collections.abc import Mapping

from agt.certificates.conditions import stated_constants
from agt.certificates.settings import ErmConfig
from agt.data.records import Records
from agt.facts import Fact, proved
from agt.models.kind import UnreadReason
from agt.models.linear import LinearKind, movement_values
from agt.settings import schema
from agt.training.checkpoint import Checkpoints
from agt.training.erm import erm_sensitivity, train_erm
from agt.training.linear import LinearTrained
from agt.training.loop import OnProgress
from agt.training.sensitivity import LinearSetting, Sensitivity
from agt.training.setup import TrainingSetup

UNREAD_OF_MINIMISERS: Mapping[str, UnreadReason] = dict.fromkeys(
    ("training.epochs", "training.lr", "training.lr_min", "training.decay"), "minimum"
)
"""The settings of a schedule of steps, which training to a minimum does not read, and why."""


@schema
class ErmKind(ErmConfig, LinearKind):
    """The kind of certificate for a linear head that minimises an l2-regularised loss (ERM).

    The loss is strongly convex, so one edit of the data moves its minimiser by a bounded distance.
    The strength of the regulariser, lambda, is the setting ``training.weight_decay``.
    """

    trains_in_steps = False
    regularised_by = "weight_decay"

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """The settings that have no effect on training: dotted name -> the reason.

        Every closed form has some. Here the number of epochs and the learning rates are added,
        because the minimum does not depend on the steps that lead to it.
        """
        return {**super().unread_settings, **UNREAD_OF_MINIMISERS}

    @property
    def minimiser_tolerance(self) -> float:
        """A bound on the norm of the loss's gradient at the trained weights: the tolerance."""
        return self.tolerance

    def sensitivity(self, setting: LinearSetting) -> Sensitivity:
        """Return a bound on how far one edit of the training data moves the trained weights.

        Args:
            setting: the public constants that the bound depends on, such as the loss, the weight
                decay and the declared number of records.

        Raises:
            ConfigError: floating-point arithmetic cannot reach the tolerance.
        """
        return erm_sensitivity(setting, self.tolerance)

    def train(
        self,
        setup: TrainingSetup,
        records: Records,
        on_progress: OnProgress,
        checkpoints: Checkpoints,
    ) -> LinearTrained:
        """Train the linear head: minimise the regularised loss of the records.

        Args:
            setup: the loss, the weight decay, the neighbour relation and the declared size.
            records: the training records, whose features are public features of norm at most 1.
            on_progress: receives the progress.
            checkpoints: where an interrupted training resumes from, and where it saves its state.

        Raises:
            UnsoundError: the norm of the gradient did not fall below ``tolerance``.
        """
        return train_erm(setup, records, self.tolerance, on_progress, checkpoints)

    def step_facts(self, trained: LinearTrained) -> tuple[Fact, Fact]:
        """Return the facts of a trained head for two conditions of a guarantee.

        Args:
            trained: the trained head, with its settings and its sensitivity.

        Returns:
            The fact that the configuration states the loss and its constants (condition c of
            docs/method.md: constants are public), and the fact why one edit moves the weights by no
            more than the sensitivity (condition d: bounds of neighbours are nested).
        """
        # The codes ("objective_stated", ...) name the sentences that reports show for these facts.
        strength = trained.training.weight_decay
        constants_are_public = stated_constants(
            trained.plan, "objective_stated", weight_decay=strength, tolerance=self.tolerance
        )
        movement_is_bounded = proved(
            "minimiser_of_loss",
            strength=strength,
            gradient=self.tolerance,
            **movement_values(trained),
        )
        return constants_are_public, movement_is_bounded
