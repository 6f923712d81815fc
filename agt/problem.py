"""What is trained, on what, and what it is compared with: the values that a run is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.errors import ConfigError
from agt.facts import Fact
from agt.kernels.select import pick_device
from agt.messages import Message
from agt.models.heads import HeadBuilder
from agt.models.kind import CertificateKind
from agt.relations import RELATIONS
from agt.settings import ComputeConfig, KGridConfig, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.ensemble import EnsembleConfig, shards
from agt.training.learners import Learner
from agt.training.noise import NoiseConfig
from agt.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything about a training but its data, every part of it typed.

    Attributes:
        model: the head.
        training, relation, kgrid, compute, ensemble: as in settings.py.
        certificate: the kind of certificate, with its settings (models/kind.py).
        noise: DP-SGD's noise inside training; None: none.
        choices: what these settings were chosen on, for condition e.
        learner: what ``certificate.learner`` names, where it is the user's own and a training may
            use it; else None.

    Raises:
        ConfigError: parts that do not go together, or a case that no proof covers; by key.
    """

    model: HeadBuilder
    training: TrainingConfig
    relation: RelationConfig
    kgrid: KGridConfig
    compute: ComputeConfig
    certificate: CertificateKind
    ensemble: EnsembleConfig
    noise: NoiseConfig | None
    choices: Fact
    learner: Learner | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        pick_device(self.compute)
        relation = RELATIONS[self.relation.name]
        relation.check_dealing(self.training.batch.count, self.ensemble.members)
        self.certificate.check(self)
        relation.rows_at_stake(self.kgrid.ks, self.relation.unit_rows)

    @property
    def ensembled(self) -> bool:
        """Whether each member of an ensemble is a model of its own."""
        return self.certificate.has_member_models(self.ensemble)


@dataclass(frozen=True)
class Problem:
    """A dataset and the settings to train with.

    Attributes:
        dataset: features as the head takes them.
        settings: everything else.
        initial: ``weight.0``, ``bias.0``, ...: dense layers that the head starts from, where there
            are any.
        records: how many records were trained on, or each member of an ensemble was, where
            ``dataset`` no longer holds them: a model read back without its data. It matters only
            where no size was declared.

    Raises:
        ConfigError: a vote of margins, and not two classes; more classes than a vote names; ids
            that may hold labels where labels flip, or that do without where none does; members, and
            units of several rows that nothing names.
    """

    dataset: Dataset
    settings: Settings
    initial: Mapping[str, Tensor] | None = field(default=None, compare=False)
    records: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        RELATIONS[self.settings.relation.name].check_ids(self.dataset.label_free)
        check_units_named(self.settings, self.dataset.train)
        self.settings.certificate.check_classes(self.classes)
        if self.settings.ensemble.vote == "margins" and self.classes != 2:
            raise ConfigError(
                Message(
                    "{config:ensemble.vote}=margins: with {classes} classes, margins do not "
                    "have a single sign whose sum could be certified: use "
                    "{config:ensemble.vote}=labels, whose certified vote supports any number "
                    "of classes",
                    classes=self.classes,
                )
            )

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.dataset.classes)

    @property
    def recipe(self) -> Recipe:
        """How to train, the records aside; what the settings leave to the recipe is settled
        here, and nowhere else.
        """
        s, size = self.settings, self.dataset.declared_size
        records = size or self.trained_on
        rows = s.relation.unit_rows
        training = s.certificate.resolve(s.training, self.classes, records, rows)
        return Recipe(self.classes, training, s.relation, s.kgrid, s.compute, size)

    @property
    def plan(self) -> BatchPlan:
        """The plan of batches."""
        return self.recipe.plan(self.trained_on)

    @property
    def trained_on(self) -> int:
        """How many records."""
        if self.records is None:
            return len(self.dataset.train)
        return self.records if isinstance(self.records, int) else sum(self.records)

    @property
    def counts(self) -> int | tuple[int, ...]:
        """How many records; of an ensemble, how many each member trained on."""
        ensemble = self.settings.ensemble
        if self.records is not None:
            return self.records
        if ensemble.members == 1:
            return self.trained_on
        return tuple(
            np.bincount(
                shards(self.dataset.train.units, ensemble), minlength=ensemble.members
            ).tolist()
        )

    def on(self, dataset: Dataset, records: int | None = None) -> "Problem":
        """The same settings on other data: a member's shard; and how many records that had,
        where they are not there.
        """
        return replace(self, dataset=dataset, records=records)


def check_units_named(settings: Settings, train: Records) -> None:
    """Raise ConfigError where units of several rows are not named, and each row would go to a
    member of its own.
    """
    rows = settings.relation.unit_rows
    if settings.ensemble.members > 1 and rows > 1 and not train.units_named:
        raise ConfigError(
            Message(
                "{config:relation.unit_rows}={rows}: all rows of a unit must go to the same "
                "member, but no column says whose rows they are: give {config:dataset.unit} "
                "(units= in Python), or unit_rows=1 if each record is a unit of its own",
                rows=rows,
            )
        )
