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
from agt.models.heads import HeadBuilder
from agt.relations import RELATIONS
from agt.settings import CertificateConfig, ComputeConfig, KGridConfig, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.ensemble import EnsembleConfig, shards
from agt.training.erm import check_erm
from agt.training.learners import Learner
from agt.training.noise import NoiseConfig
from agt.training.recipe import Recipe
from agt.training.sensitivity import check_optimizer
from agt.training.strength import check_open, settled

MAX_VOTED = 2**15 - 1  # classes that a vote, of 16 bits, names


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything about a training but its data, every part of it typed.

    Attributes:
        model: the head.
        training, relation, kgrid, compute, certificate, ensemble: as in settings.py.
        noise: DP-SGD's noise inside training; None: none.
        choices: what these settings were chosen on, for condition e.
        learner: what ``certificate.learner`` names, where it is the user's own and a training may use it; else None.

    Raises:
        ConfigError: parts that do not go together, or a case that no proof covers; by key.
    """

    model: HeadBuilder
    training: TrainingConfig
    relation: RelationConfig
    kgrid: KGridConfig
    compute: ComputeConfig
    certificate: CertificateConfig
    ensemble: EnsembleConfig
    noise: NoiseConfig | None
    choices: Fact
    learner: Learner | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        pick_device(self.compute)
        check_open(self.training, self.certificate.name)
        _check_relation(self)
        if self.certificate.linear:
            _check_linear(self)
        _check_noise(self)
        RELATIONS[self.relation.name].rows_at_stake(self.kgrid.ks, self.relation.unit_rows)

    @property
    def ensembled(self) -> bool:
        """Whether each member of an ensemble is a model of its own."""
        return self.ensemble.members > 1 and not self.certificate.votes


@dataclass(frozen=True)
class Problem:
    """A dataset and the settings to train with.

    Attributes:
        dataset: features as the head takes them.
        settings: everything else.
        initial: ``weight.0``, ``bias.0``, ...: dense layers that the head starts from, where there are any.
        records: how many records were trained on, or each member of an ensemble was, where ``dataset`` no longer holds
            them: a model read back without its data. It matters only where no size was declared.

    Raises:
        ConfigError: a vote of margins, and not two classes; more classes than a vote names; ids that may hold labels where
            labels flip, or that do without where none does; members, and units of several rows that nothing names.
    """

    dataset: Dataset
    settings: Settings
    initial: Mapping[str, Tensor] | None = field(default=None, compare=False)
    records: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        RELATIONS[self.settings.relation.name].check_ids(self.dataset.label_free)
        check_units_named(self.settings, self.dataset.train)
        if self.settings.certificate.votes and self.classes > MAX_VOTED:
            raise ConfigError(
                f"certificate=votes: {self.classes:,} classes are more than the {MAX_VOTED:,} that a vote names"
            )
        if self.settings.ensemble.vote == "margins" and self.classes != 2:
            raise ConfigError(
                f"ensemble.vote=margins: margins of {self.classes} classes have no one sign that a sum could be certified "
                "by: use ensemble.vote=labels, whose certified vote takes any number of classes"
            )

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.dataset.classes)

    @property
    def recipe(self) -> Recipe:
        """How to train, the records aside; what the settings leave to the recipe is settled here, and nowhere else."""
        s, size = self.settings, self.dataset.declared_size
        records = size or self.trained_on
        rows = s.relation.unit_rows
        training = settled(s.training, s.certificate.name, self.classes, records, rows)
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
        return tuple(np.bincount(shards(self.dataset.train.units, ensemble), minlength=ensemble.members).tolist())

    def on(self, dataset: Dataset, records: int | None = None) -> "Problem":
        """The same settings on other data: a member's shard; and how many records that had, where they are not there."""
        return replace(self, dataset=dataset, records=records)


def _check_linear(settings: Settings) -> None:
    """Refuse what no closed form covers. The step size also depends on the data's declared size: see training/.

    Raises:
        ConfigError: hidden layers, momentum, a relation or features that the proofs leave out.
    """
    if not settings.model.linear:
        hidden = getattr(settings.model, "hidden", None)
        shown = "model: a network of your own" if hidden is None else f"model.hidden={list(hidden)}"
        raise ConfigError(
            f"{shown}: certificate={settings.certificate.name} is proved for linear heads alone (no hidden layers), which "
            "it trains itself: use model=linear, or certificate=box"
        )
    _check_closed(settings)
    if settings.certificate.minimiser:
        check_erm(settings.training, settings.certificate.name)
    relation = RELATIONS[settings.relation.name]
    alone = settings.ensemble.members == 1 and not relation.counts_label_flips
    if settings.certificate.votes and (alone or settings.ensemble.vote != "labels"):
        raise ConfigError(
            f"ensemble.members={settings.ensemble.members} ensemble.vote={settings.ensemble.vote}: certificate=votes "
            "counts labels of many small members: give the declared size, of which the recipe takes one member for 100 "
            "records (dataset.declared_size=N), or ensemble.members=T, a public constant, and ensemble.vote=labels"
        )
    if settings.certificate.removable and settings.ensemble.members > 1:
        raise ConfigError(
            f"ensemble.members={settings.ensemble.members}: certificate=removal removes records from one head; an ensemble "
            "trains the members that had them again, whatever its certificate: use ensemble.members=1, or certificate=erm"
        )


def check_units_named(settings: Settings, train: Records) -> None:
    """Raise ConfigError where units of several rows are not named, and each row would go to a member of its own."""
    rows = settings.relation.unit_rows
    if settings.ensemble.members > 1 and rows > 1 and not train.units_named:
        raise ConfigError(
            f"relation.unit_rows={rows}: all rows of a unit have to go to one member, and nothing says whose they are: "
            "give dataset.unit (units= in Python), or unit_rows=1 where each record is a unit of its own"
        )


def _check_relation(settings: Settings) -> None:
    """Refuse heads, units, batches and shards that the relation's proof does not cover (ConfigError); by key."""
    relation, certificate = RELATIONS[settings.relation.name], settings.certificate
    ridge = getattr(certificate, "learner", "ridge") == "ridge"
    counts_label_flips = certificate.linear and not certificate.removable and ridge
    relation.check_head(counts_label_flips, settings.relation.unit_rows)
    relation.check_dealing(settings.training.batch.count, settings.ensemble.members)


def _check_closed(settings: Settings) -> None:
    """What every closed form needs.

    Raises:
        ConfigError: another device than the CPU, a relation or momentum that no proof covers.
    """
    certificate = settings.certificate
    if settings.compute.device != "cpu":
        raise ConfigError(
            f"compute.device={settings.compute.device}: certificate={certificate.name} runs on the CPU: use compute=default"
        )
    RELATIONS[settings.relation.name].check_closed_form()
    check_optimizer(settings.training)


def _check_noise(settings: Settings) -> None:
    """Refuse noise where nothing is proved about it.

    Raises:
        ConfigError: a linear certificate, an ensemble, or a relation whose steps are means over the actual batch.
    """
    if settings.noise is None:
        return
    if not settings.certificate.boxes:
        raise ConfigError(
            f"noise.epsilon: certificate={settings.certificate.name} trains without noise in its steps; agt predict "
            "mechanism=release_weights adds it once, at the end, and needs less"
        )
    if settings.ensemble.members > 1:
        raise ConfigError(
            f"noise.epsilon: ensemble.members={settings.ensemble.members}: an ensemble answers by vote and its weights are "
            "not released: leave the noise out, or train one model"
        )
    relation = RELATIONS[settings.relation.name]
    relation.check_noise()
    relation.step_sensitivity(settings.training.clip, 1, 1.0)
