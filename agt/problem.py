"""The input of a training: the settings, and the records together with them (``Problem``)."""

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
from agt.training.setup import TrainingSetup


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of a training, checked against each other.

    Attributes:
        model: the description of the head.
        training: the loss, learning rate, batches and seed.
        relation: which datasets are neighbours.
        kgrid: the values of k to certify at.
        compute: the device, and how much memory to use.
        certificate: the kind of certificate, with its own settings (agt/models/kind.py).
        ensemble: how many members there are, and how they vote.
        noise: DP-SGD's noise inside training; None: no noise.
        choices: the fact of condition e that says what these settings were chosen on.
        learner: the learner of the user's own that ``certificate.learner`` names, if training may
            use it; else None.

    Raises:
        ConfigError: settings do not go together, or no proof covers them together; the message
            names the setting.
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
        """Whether there is an ensemble, each of whose members is a model of its own."""
        return self.certificate.has_member_models(self.ensemble)


@dataclass(frozen=True)
class Problem:
    """A dataset and the settings to train with, checked against each other.

    Attributes:
        dataset: the records, with features as the head takes them.
        settings: everything else about the training.
        initial: ``weight.0``, ``bias.0``, ``weight.1``, ... -> the parameters of the dense layers
            that the head starts from; None: the seed makes them.
        records: how many records the model, or each member of the ensemble, was trained on, where
            ``dataset`` no longer holds them because the model was read back without its data. It
            matters only if no size was declared.

    Raises:
        ConfigError: the vote is of margins and there are not two classes; there are more classes
            than a vote can name; ids may hold labels under a relation of labels, or the opposite;
            or units of several rows, which members would share, have no names.
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
                    "{config:ensemble.vote}=margins adds one margin per member, which only "
                    "works for two classes, but there are {classes}: use "
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
    def setup(self) -> TrainingSetup:
        """How to train, apart from the records, with numbers in place of what the recipe decides.

        Nothing else resolves the settings that are left to the recipe.
        """
        settings = self.settings
        declared_size = self.dataset.declared_size
        training = settings.certificate.resolve(
            settings.training,
            self.classes,
            declared_size or self.trained_on,
            settings.relation.unit_rows,
        )
        return TrainingSetup(
            self.classes,
            training,
            settings.relation,
            settings.kgrid,
            settings.compute,
            declared_size,
        )

    @property
    def plan(self) -> BatchPlan:
        """The plan of batches of a training on all records."""
        return self.setup.plan(self.trained_on)

    @property
    def trained_on(self) -> int:
        """The number of training records, of all members together."""
        if self.records is None:
            return len(self.dataset.train)
        if isinstance(self.records, int):
            return self.records
        return sum(self.records)

    @property
    def counts(self) -> int | tuple[int, ...]:
        """The number of training records; of an ensemble, the number of each member."""
        ensemble = self.settings.ensemble
        if self.records is not None:
            return self.records
        if ensemble.members == 1:
            return self.trained_on
        shard_of_record = shards(self.dataset.train.units, ensemble)
        records_by_member = np.bincount(shard_of_record, minlength=ensemble.members)
        return tuple(records_by_member.tolist())

    def on(self, dataset: Dataset, records: int | None = None) -> "Problem":
        """Return this problem with other data, such as the shard of one member.

        Args:
            dataset: the data, prepared in the same way.
            records: how many records it had, if ``dataset`` does not hold them.
        """
        return replace(self, dataset=dataset, records=records)


def check_units_named(settings: Settings, train: Records) -> None:
    """Refuse an ensemble on units of several rows that have no names.

    Each row would be dealt to a member by itself, so that one unit could change several members.

    Raises:
        ConfigError: there are several members and rows of a unit, and ``train`` names no units.
    """
    rows = settings.relation.unit_rows
    if settings.ensemble.members > 1 and rows > 1 and not train.units_named:
        raise ConfigError(
            Message(
                "{config:relation.unit_rows}={rows}: all rows of a unit (person) must go to "
                "the same member, but no column says whose rows they are: give "
                "{config:dataset.unit} (units= in Python), or unit_rows=1 if each record is a "
                "unit of its own",
                rows=rows,
            )
        )
