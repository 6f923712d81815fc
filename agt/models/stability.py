"""``certificate=stability``: a linear head trained by plain SGD (docs/reference.md, section 5)."""

from agt.certificates.conditions import stated_constants
from agt.certificates.settings import StabilityConfig
from agt.data.records import Records
from agt.facts import Fact, proved
from agt.models.linear import LinearKind, movement_values
from agt.settings import TrainingConfig, schema
from agt.training.checkpoint import Checkpoints
from agt.training.linear import LinearTrained, train_linear
from agt.training.loop import OnProgress
from agt.training.sensitivity import LinearSetting, Sensitivity, sgd_sensitivity
from agt.training.setup import TrainingSetup
from agt.training.sgd import learning_rate
from agt.training.strength import resolve_sgd


@schema
class StabilityKind(StabilityConfig, LinearKind):
    """Certificates for a linear head trained by plain SGD, from the algorithmic stability of SGD.

    Every step of SGD on a convex smooth loss with a small learning rate is non-expansive, so one
    record moves the final weights by a bounded l2 distance. The certificates follow in closed form.
    """

    certifies_more = "votes"

    def resolve(
        self, training: TrainingConfig, classes: int, size: float, unit_rows: int
    ) -> TrainingConfig:
        """Return the training settings with numbers in place of those left to the recipe.

        The recipe is agt's rule for default settings; this one is for plain SGD.

        Args:
            training: the settings as configured.
            classes: the number of classes.
            size: the declared number of records, or one member's share of them.
            unit_rows: the public cap on the rows of one unit (a person).
        """
        return resolve_sgd(training, classes, size, unit_rows)

    def sensitivity(self, setting: LinearSetting) -> Sensitivity:
        """Return bounds on how far one record moves the weights that SGD ends with.

        Args:
            setting: the loss, the learning rates, the batch plan, the number of features and the
                relation, all public.

        Raises:
            ConfigError: a learning rate is so large that a step may increase the distance between
                the weights of two runs.
        """
        return sgd_sensitivity(setting, self.average)

    def train(
        self,
        setup: TrainingSetup,
        records: Records,
        on_progress: OnProgress,
        checkpoints: Checkpoints,
    ) -> LinearTrained:
        """Train the weights by SGD from 0, with the number of steps that ``setup`` plans.

        Args:
            setup: the loss, the steps, the batches and the relation.
            records: the records; their features [m, w] are values of the feature map.
            on_progress: called with the progress of training.
            checkpoints: where training saves its state, and resumes if it was interrupted.
        """
        return train_linear(setup, records, self.average, on_progress, checkpoints)

    def step_facts(self, trained: LinearTrained) -> tuple[Fact, Fact]:
        """Return the facts about a trained linear head for two conditions of a privacy guarantee.

        Returns:
            That the number of steps is a public constant (condition c: all constants are public),
            and that no step increases the distance between the weights of two runs, because every
            learning rate is below the limit (condition d: one edit moves bounds by at most one
            step of k).
        """
        # The codes ("steps_stated", ...) name the sentences that reports show for these facts.
        steps = trained.plan.steps
        constants_are_public = stated_constants(trained.plan, "steps_stated", steps=steps)
        largest_rate = learning_rate(trained.training, step=0)  # because rates never rise
        rate_limit = trained.sensitivity.rate_limit
        assert rate_limit is not None, "a head that is trained in steps has a limit on the rates"
        movement_is_bounded = proved(
            "steps_do_not_expand",
            rate=largest_rate,
            limit=rate_limit,
            **movement_values(trained),
        )
        return constants_are_public, movement_is_bounded
