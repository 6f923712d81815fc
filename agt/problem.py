"""The input of a training: all settings (``Settings``), and settings with data (``Problem``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from agt.certificates.settings import TrainingParts
from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.errors import ConfigError
from agt.facts import Fact
from agt.kernels.select import pick_device
from agt.messages import Message
from agt.models.heads import HeadBuilder
from agt.models.kind import CertificateKind
from agt.relations import RELATIONS
from agt.settings import KGridConfig
from agt.training.batches import BatchPlan
from agt.training.ensemble import assign_shards
from agt.training.learners import Learner
from agt.training.setup import TrainingSetup


@dataclass(frozen=True, kw_only=True)
class Settings(TrainingParts):
    """All settings of a training, checked against each other.

    Attributes:
        model: the builder of the head, the network that is trained.
        training: the loss, learning rate, batches and seed.
        relation: the neighbour relation: what one edit of a dataset may change.
        kgrid: the numbers of edits k for which certificates are computed.
        compute: the device, threads and memory to use.
        certificate: the kind of certificate (how training is made provable), with its own settings.
        ensemble: the number of members and how they vote; 1 member: no ensemble.
        noise: the DP-SGD noise added to each training step; None: no noise.
        choices: the fact that says what data these settings were chosen on. A privacy guarantee
            needs public data or constants (condition e of docs/method.md: preprocessing and
            settings are public).
        learner: an estimator or function of the user's own that trains the members of an ensemble,
            where ``certificate.learner`` names one that may be imported; else None.

    Raises:
        ConfigError: settings do not go together, or no proof covers them together; the message
            names the setting.
    """

    model: HeadBuilder
    kgrid: KGridConfig
    certificate: CertificateKind
    choices: Fact
    learner: Learner | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Raise ConfigError unless the settings fit each other and a proof covers them.

        Each call is made only because it raises; the results are not used.
        """
        pick_device(self.compute)  # raises if the device is not there
        relation = RELATIONS[self.relation.name]
        # Raises if one edit could move records between the batches or the members of an ensemble.
        relation.check_batches_and_shards(self.training.batch.count, self.ensemble.members)
        self.certificate.check(self)
        # Raises if k edits, at the largest k, can change more rows than sums are proved for.
        relation.rows_at_stake(self.kgrid.ks, self.relation.unit_rows)

    @property
    def ensembled(self) -> bool:
        """Whether an ensemble is trained, each of whose members is a model with certificates."""
        return self.certificate.has_member_models(self.ensemble)


@dataclass(frozen=True)
class Problem:
    """The input of a training: a dataset and the settings, checked against each other.

    Attributes:
        dataset: the records, with features as the head (the trained network) takes them.
        settings: the settings of the training and of the certificates.
        initial: ``weight.0``, ``bias.0``, ``weight.1``, ... -> the parameters of the linear and
            convolutional layers from which training starts; None: a seed draws them.
        stored_record_counts: the numbers of records that a saved model was trained on, read from
            its files, because ``dataset`` does not hold the records: one number, or one for each
            member of an ensemble. None: ``dataset`` holds the records, or a size was declared.

    Raises:
        ConfigError: the ensemble votes by margins and there are not two classes; there are more
            classes than the kind of certificate supports; record ids are computed from labels but
            edits change labels, or ids ignore labels but edits remove or add records; or an
            ensemble could divide the rows of one unit (such as a person) among its members, because
            no column names the unit of a row.
    """

    dataset: Dataset
    settings: Settings
    initial: Mapping[str, Tensor] | None = field(default=None, compare=False)
    stored_record_counts: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError unless the dataset and the settings fit each other."""
        # Record ids must be computed without labels exactly where edits change labels.
        RELATIONS[self.settings.relation.name].check_ids(self.dataset.label_free)
        check_units_named(self.settings, self.dataset.train)
        self.settings.certificate.check_target(self.dataset.target, self.settings)
        if self.settings.ensemble.vote == "margins" and self.classes != 2:
            raise ConfigError(
                Message(
                    "{config:ensemble.vote}=margins adds up one margin per ensemble member, which "
                    "only works for two classes, but there are {classes} classes: use "
                    "{config:ensemble.vote}=labels, whose certified vote supports any number of "
                    "classes",
                    classes=self.classes,
                )
            )

    @property
    def classes(self) -> int:
        """The number of classes.

        Raises:
            ConfigError: labels are numbers, so there are no classes.
        """
        return len(self.dataset.classes)

    @property
    def setup(self) -> TrainingSetup:
        """The setup of training: loss, steps, clip level, neighbour relation, grid of k, device.

        Each setting that the user left at "recipe" (a default computed from public numbers) has its
        number here, and only here; ``settings.training`` keeps "recipe".
        """
        settings = self.settings
        declared_size = self.dataset.declared_size
        # Without a declared size the number of records is used, which is not a public constant.
        size = declared_size or self.record_count
        # A model of numbers has one output, as one of two classes has.
        classes = self.dataset.target.class_count or 2
        training = settings.certificate.resolve(
            settings.training, classes, size, settings.relation.unit_rows
        )
        return TrainingSetup(
            classes=classes,
            training=training,
            relation=settings.relation,
            kgrid=settings.kgrid,
            compute=settings.compute,
            declared_size=declared_size,
        )

    @property
    def plan(self) -> BatchPlan:
        """The plan of the batches: their number, and the records of each."""
        return self.setup.plan(self.record_count)

    @property
    def record_count(self) -> int:
        """The number of training records; for an ensemble the sum over its members."""
        if self.stored_record_counts is None:
            return len(self.dataset.train)
        if isinstance(self.stored_record_counts, int):
            return self.stored_record_counts
        return sum(self.stored_record_counts)

    @property
    def member_record_counts(self) -> int | tuple[int, ...]:
        """The number of training records; for an ensemble a tuple of one number for each member."""
        ensemble = self.settings.ensemble
        if self.stored_record_counts is not None:
            return self.stored_record_counts
        if ensemble.members == 1:
            return self.record_count
        # A public hash of the record's unit decides which member's records it belongs to.
        shard_of_record = assign_shards(self.dataset.train.units, ensemble)
        records_by_member = np.bincount(shard_of_record, minlength=ensemble.members)
        return tuple(records_by_member.tolist())

    def with_dataset(self, dataset: Dataset, stored_record_counts: int | None = None) -> "Problem":
        """Return a copy of this problem with another dataset, such as the records of one member.

        Args:
            dataset: the data, prepared (encoded and scaled) in the same way.
            stored_record_counts: the numbers of records that a saved model was trained on, if
                ``dataset`` does not hold them; None: it holds them, or a size was declared.
        """
        return replace(self, dataset=dataset, stored_record_counts=stored_record_counts)


def check_units_named(settings: Settings, train: Records) -> None:
    """Raise ConfigError if an ensemble could divide the rows of one unit among its members.

    A unit is what one edit removes or adds, such as all rows of a person. Its rows must train the
    same member, or one edit could change several members. So the rows must name their unit.

    Args:
        settings: says how many members there are, and how many rows a unit may have.
        train: the training records, with the name of each one's unit or without.

    Raises:
        ConfigError: there are several members, a unit may have several rows, and ``train`` names no
            units.
    """
    rows = settings.relation.unit_rows
    if settings.ensemble.members > 1 and rows > 1 and not train.units_named:
        raise ConfigError(
            Message(
                "{config:relation.unit_rows}={rows}: all rows of a unit (person) must go to the "
                "same ensemble member, but no column says whose rows they are: give "
                "{config:dataset.unit} (units= in Python). If each record is a unit of its own, "
                "give unit_rows=1",
                rows=rows,
            )
        )
