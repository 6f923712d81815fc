"""How to train, as one value: the public settings that runs, sensitivities and certificates
take, the records aside.
"""

from dataclasses import dataclass, field

from agt.errors import UnsoundError
from agt.settings import ComputeConfig, KGridConfig, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan


@dataclass(frozen=True)
class Recipe:
    """How to train, and which other datasets a certificate speaks of.

    Attributes:
        classes: the number of classes.
        training: loss, steps, clip level, batches.
        relation: which datasets are neighbours.
        kgrid: the values of k to carry bounds for.
        compute: device, kernel, memory: speed alone.
        declared_size: public constant, about how many records there are: the normaliser comes from
            it. None: it is taken from the records, and then condition c does not hold.

    Raises:
        UnsoundError: settings are still left to the recipe: whoever builds this settles them first
            (linear.py).
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
                f"training.{self.training.by_recipe[0]}: trained before the recipe settled it"
            )

    def plan(self, records: int) -> BatchPlan:
        """The plan of batches.

        Args:
            records: how many there are; it matters only where neither a size nor a normaliser was
                declared.

        Raises:
            ConfigError: the sizes of batches are out of range (``BatchPlan.of``).
        """
        return BatchPlan.of(self.training.batch, self.training.epochs, self.declared_size, records)
