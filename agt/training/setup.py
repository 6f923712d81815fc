"""The public settings of a training, as one value for runs, sensitivities and certificates."""

from dataclasses import dataclass, field

from agt.errors import UnsoundError
from agt.settings import ComputeConfig, KGridConfig, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan


@dataclass(frozen=True)
class TrainingSetup:
    """How to train, and which other datasets a certificate speaks of.

    Attributes:
        classes: the number of classes.
        training: loss, steps, clip level, batches; nothing in it is still ``recipe``.
        relation: which datasets are neighbours.
        kgrid: the values of k to carry bounds for.
        compute: device, kernel and memory, which change the speed alone.
        declared_size: a public constant, about how many records there are, from which the
            normaliser of sums follows. None: it is counted from the records, and then condition c
            does not hold.

    Raises:
        UnsoundError: a setting of ``training`` is still left to be resolved, which whoever builds
            this has to do first.
    """

    classes: int
    training: TrainingConfig
    relation: RelationConfig
    kgrid: KGridConfig
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    declared_size: float | None = None

    def __post_init__(self) -> None:
        if self.training.by_recipe:
            raise UnsoundError(
                f"training.{self.training.by_recipe[0]} is still set to recipe, so the recipe "
                "must be applied before training"
            )

    def plan(self, records: int) -> BatchPlan:
        """Return the plan of batches for so many records.

        Args:
            records: how many there are; it matters only where neither a size nor a normaliser was
                declared.

        Raises:
            ConfigError: the sizes of batches are out of range (``BatchPlan.from_settings``).
        """
        training = self.training
        return BatchPlan.from_settings(training.batch, training.epochs, self.declared_size, records)
