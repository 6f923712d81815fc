"""The public settings of a training, as one value for runs, sensitivities and certificates."""

from dataclasses import dataclass, field

from agt.errors import UnsoundError
from agt.settings import ComputeConfig, KGridConfig, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan


@dataclass(frozen=True)
class TrainingSetup:
    """The public settings of a training and of the neighbouring datasets that it is certified for.

    Attributes:
        classes: the number of classes.
        training: loss, steps, clip level and batches, with a number for each setting (none is left
            as ``recipe``).
        relation: the neighbour relation: what one edit of the dataset is.
        kgrid: the values of k (numbers of edits) for which bounds are computed.
        compute: device, kernel and memory, which change only the speed.
        declared_size: the public size of the dataset, from which the divisor of gradient sums
            follows. None: the records are counted, and condition c (all constants are public) does
            not hold.

    Raises:
        UnsoundError: a setting of ``training`` was left to the recipe (the default settings) and
            not replaced by a number.
    """

    classes: int
    training: TrainingConfig
    relation: RelationConfig
    kgrid: KGridConfig
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    declared_size: float | None = None

    def __post_init__(self) -> None:
        """Raise UnsoundError if a training setting still has the value ``recipe``.

        That value means a default that is computed from public constants. The caller replaces it by
        a number first (training/strength.py).
        """
        if self.training.by_recipe:
            setting = self.training.by_recipe[0]
            raise UnsoundError(
                f"training.{setting} is still 'recipe' (a default that agt computes), but the "
                "training needs a number: give one"
            )

    def plan(self, records: int) -> BatchPlan:
        """Return the plan of batches: their number, their largest size and the divisor of sums.

        Args:
            records: the number of records. It is used only if neither the size of the dataset nor
                the divisor (``training.batch.normalizer``) is given.

        Raises:
            ConfigError: the largest size of a batch is below 1.1 times the divisor, or above 2^30.
        """
        training = self.training
        return BatchPlan.from_settings(training.batch, training.epochs, self.declared_size, records)
