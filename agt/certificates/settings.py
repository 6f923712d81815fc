"""Settings of the kinds of certificate: ``certificate=NAME`` and what belongs to it.

Each kind in ``agt.models`` inherits its settings from a class here. Nothing here imports NumPy or
PyTorch, so that a mistake in a setting is answered at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field

from agt.errors import ConfigError, UnsoundError, nearest
from agt.messages import Message
from agt.relations import RELATIONS
from agt.settings import (
    RECIPE,
    ComputeConfig,
    Count,
    FeaturesConfig,
    Positive,
    RelationConfig,
    TrainingConfig,
    schema,
    validate,
)
from agt.training.settings import (
    EnsembleConfig,
    NoiseConfig,
    RemovalConfig,
    check_linear_loss,
    check_minimiser_settings,
    check_no_momentum,
    check_no_recipe_settings,
)

Strength = Annotated[float, Field(ge=1e-6, le=1e6)]


@dataclass(frozen=True, kw_only=True)
class TrainingParts:
    """The settings of a training that a kind of certificate checks without data."""

    training: TrainingConfig
    relation: RelationConfig
    compute: ComputeConfig
    ensemble: EnsembleConfig
    noise: NoiseConfig | None


class CertificateConfig:
    """The base class of the settings of every kind of certificate.

    Attributes:
        name: the name of the kind in ``certificate=NAME`` and in the files of runs.
        takes_hidden_layers: whether the model may be a network; else it is one linear layer.
        own_erasure: the name of the kind's own method of erasing records, which starts from files
            that training stored; empty: it has none.
    """

    name: str = ""
    takes_hidden_layers: ClassVar[bool] = False
    own_erasure: ClassVar[str] = ""

    @classmethod
    def is_described_by(cls, node: Mapping[str, Any]) -> bool:
        """Return whether a mapping of settings describes a certificate of this kind.

        Args:
            node: the value of the configuration's key ``certificate``; its "name" names a kind.
        """
        return node.get("name") == cls.name

    def covers_changed_labels(self) -> bool:
        """Return whether certificates cover edits that change the label of a record.

        The neighbour relation ``flip`` makes such edits. The default is False; a kind whose proofs
        cover them overrides this method.
        """
        return False

    def check_parts(self, parts: TrainingParts) -> None:
        """Raise ConfigError if the proofs of this kind do not cover settings, whatever the data.

        The base class is that of the closed forms.
        """
        rule = RELATIONS[parts.relation.name]
        rule.check_head(self.covers_changed_labels(), parts.relation.unit_rows)
        if parts.compute.device != "cpu":
            raise ConfigError(
                Message(
                    "{config:compute.device}={device}: certificate={name} only runs on the "
                    "CPU: use {config:compute=default}",
                    device=parts.compute.device,
                    name=self.name,
                )
            )
        rule.check_closed_form()
        check_no_momentum(parts.training)
        if parts.noise is not None:
            raise ConfigError(
                Message(
                    (
                        "noise.epsilon: certificate={name} does not add noise to training steps. "
                        "Leave out noise.epsilon, and release the weights with `agt predict` and "
                        "{config:mechanism=release_weights}, which needs less noise, because it "
                        "adds noise only once, after training"
                    ),
                    name=self.name,
                )
            )

    def check_statistics_perturbation(self, mechanism: str) -> None:
        """Raise ConfigError unless noisy sufficient statistics determine the head of this kind.

        A mechanism that adds noise to sums over the records, and solves the head's optimisation
        problem from these, calls it first. By default it always raises; kinds that train such a
        head override it and return None.

        Args:
            mechanism: the name of the mechanism, for the message.
        """
        raise ConfigError(
            f"mechanism={mechanism} solves the training problem again with a random term, which "
            f"certificate={self.name} does not support: train with certificate=erm"
        )

    def check_objective_perturbation(self, mechanism: str) -> None:
        """Raise ConfigError unless the head of this kind minimises a strongly convex objective.

        A mechanism of objective perturbation, which adds a random linear term to the objective
        before minimising it, calls this method first. By default it always raises; kinds that train
        such a head override it and return None.

        Args:
            mechanism: the name of the mechanism, for the message.
        """
        raise ConfigError(
            Message(
                "mechanism={mechanism} adds a random linear term to the loss, but "
                "certificate={name} does not compute a minimiser that this term could change: "
                "train with certificate=erm, or use {config:mechanism=release_weights}",
                mechanism=mechanism,
                name=self.name,
            )
        )

    def has_member_models(self, ensemble: EnsembleConfig) -> bool:
        """Return whether the settings train an ensemble, each member a model with certificates.

        A kind that trains its own members inside one model returns False.

        Args:
            ensemble: the settings of the ensemble; with 1 member there is none.
        """
        return ensemble.members > 1

    def erasure_methods(self, ensemble: EnsembleConfig) -> tuple[str, ...]:
        """Return the names of the methods that can erase records from a trained model.

        Every kind has two of them: "retrain" trains again without the records, and "certificate"
        notes the request but removes nothing yet, because certified answers do not depend on the
        records. "sisa", which trains only the affected members of an ensemble again, and the kind's
        own method are cheaper than "retrain".

        Args:
            ensemble: the settings of the ensemble; with 1 member there is none.

        Returns:
            The names in the order in which ``method=auto`` prefers them; it never takes
            "certificate".
        """
        for_every_kind = ("retrain", "certificate")
        if self.has_member_models(ensemble):
            return ("sisa", *for_every_kind)
        if self.own_erasure:
            return (self.own_erasure, *for_every_kind)
        return for_every_kind


@schema
class BoxConfig(CertificateConfig):
    """Settings of ``certificate=box``, which has no setting except its name."""

    name: Literal["box"] = "box"
    takes_hidden_layers = True

    def check_parts(self, parts: TrainingParts) -> None:
        check_no_recipe_settings(parts.training, self.name)
        members = parts.ensemble.members
        if parts.noise is not None and members > 1:
            raise ConfigError(
                f"noise.epsilon: an ensemble (ensemble.members={members}) "
                "answers by vote and does not release its weights, so noise on the weights "
                "has no use: leave out noise.epsilon, or train one model (ensemble.members=1)"
            )
        rule = RELATIONS[parts.relation.name]
        # Bounds of networks do not follow changed labels, so the relation may refuse them.
        rule.check_head(counts_label_flips=False, unit_rows=parts.relation.unit_rows)
        if parts.noise is None:
            return
        rule.check_noise()
        # The result is not needed: it raises if the relation has no sensitivity, whatever the
        # number of parameters and the normaliser are.
        rule.step_sensitivity(parts.training.clip, parameters=1, normalizer=1.0)


class LinearConfig(CertificateConfig):
    """The base class of the settings of linear heads with a sensitivity from public constants."""

    def covers_changed_labels(self) -> bool:
        """Return True: changing a record's label moves the head no further than changing it all."""
        return True

    def check_parts(self, parts: TrainingParts) -> None:
        super().check_parts(parts)
        check_linear_loss(parts.training)

    def check_statistics_perturbation(self, mechanism: str) -> None:
        """Do nothing, which accepts every mechanism; the base class raises ConfigError.

        Of a head without noise of its own, a release may solve the training problem again from sums
        over the records to which noise was added. A kind of linear head that refuses this overrides
        the method and raises ConfigError.

        Args:
            mechanism: the name of the mechanism; not read.
        """


@schema
class StabilityConfig(LinearConfig):
    """Settings of ``certificate=stability``, a linear head trained by plain SGD.

    Attributes:
        features: the public feature map in front of the head.
        average: the weights are the mean of the last ``average`` iterates of SGD; 1: the last one.
    """

    name: Literal["stability"] = "stability"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    average: Count = 1


@schema
class ErmConfig(LinearConfig):
    """Settings of ``certificate=erm``, a linear head that minimises an l2-regularised loss.

    Attributes:
        features: the settings of the public map from records to features of norm at most 1.
        tolerance: a public bound on the norm of the gradient at the weights that training returns;
            training fails if it does not reach the bound.
    """

    name: Literal["erm"] = "erm"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    tolerance: Positive = 1e-8

    def check_parts(self, parts: TrainingParts) -> None:
        super().check_parts(parts)
        check_minimiser_settings(parts.training)

    def check_objective_perturbation(self, mechanism: str) -> None:
        """Accept every mechanism that adds a random linear term to the loss; never raise.

        The head is the minimiser of a strongly convex loss, as objective perturbation requires.
        """


@schema
class RemovalCertificateConfig(RemovalConfig, CertificateConfig):
    """Settings of ``certificate=removal``, a head from which records can be removed later."""

    own_erasure: ClassVar[str] = "newton"

    def check_parts(self, parts: TrainingParts) -> None:
        super().check_parts(parts)
        check_minimiser_settings(parts.training, self.name)
        if parts.ensemble.members > 1:
            raise ConfigError(
                Message(
                    "{config:ensemble.members}={members}: certificate=removal removes records "
                    "from a single head, but an ensemble trains the affected members again "
                    "instead: use {config:ensemble.members}=1, or certificate=erm",
                    members=parts.ensemble.members,
                )
            )

    def check_statistics_perturbation(self, mechanism: str) -> None:
        """Raise ConfigError: no mechanism may train this head from noisy sums, as it has own noise.

        Args:
            mechanism: the name of the mechanism, for the message.
        """
        raise ConfigError(
            f"mechanism={mechanism} adds noise to weights, but certificate=removal already adds "
            "noise to them: train with certificate=erm"
        )


class VotingConfig(CertificateConfig):
    """The base class of the settings of votes, whose members are no models with certificates."""

    def has_member_models(self, ensemble: EnsembleConfig) -> bool:
        """Return False: the members are trained inside one model.

        Args:
            ensemble: not read.
        """
        return False

    def check_statistics_perturbation(self, mechanism: str) -> None:
        """Do nothing: a release trains a linear head of ``certificate=erm`` on the same records.

        Args:
            mechanism: the name of the mechanism; not read.
        """

    def check_objective_perturbation(self, mechanism: str) -> None:
        """Do nothing, for the reason of ``check_statistics_perturbation``.

        Args:
            mechanism: the name of the mechanism; not read.
        """


@schema
class VotesConfig(VotingConfig):
    """Settings of ``certificate=votes`` whose members agt's own learners train.

    Attributes:
        features: the public feature map that all members share.
        learner: each member is a ridge regression, or a logistic regression of each class against
            the others.
        strength: the factor of each member's regulariser, which is added to the sum of the losses
            over its shard; features have a norm of at most 1. "recipe" is replaced by a number
            before training (agt/models/votes_recipe.py).
    """

    name: Literal["votes"] = "votes"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    learner: Literal["ridge", "logistic"] = "ridge"
    strength: Strength | Literal["recipe"] = RECIPE

    def covers_changed_labels(self) -> bool:
        """Return whether members are ridge regressions, to which the proof applies."""
        return self.learner == "ridge"

    @property
    def member_strength(self) -> float:
        """The strength as a number.

        Raises:
            UnsoundError: it is still "recipe", so the records' kind has not decided it.
        """
        if isinstance(self.strength, str):
            raise UnsoundError(
                "certificate.strength is still 'recipe' (a default that agt computes), but "
                "members need a number: give certificate.strength=0.1 or another number"
            )
        return self.strength

    @classmethod
    def is_described_by(cls, node: Mapping[str, Any]) -> bool:
        """Return whether settings describe votes by one of agt's learners, ``ridge`` for example.

        Args:
            node: the settings of a certificate by name. A learner of the user's own is a mapping
                there, and is read by ``OwnVotesConfig``.
        """
        return super().is_described_by(node) and not isinstance(node.get("learner"), Mapping)

    def erasure_methods(self, ensemble: EnsembleConfig) -> tuple[str, ...]:
        """Return the names of the methods that can erase records from a trained model.

        Several members are trained again one by one ("sisa"), since the model has their weights.

        Args:
            ensemble: the settings of the ensemble; with 1 member there is none.
        """
        methods = super().erasure_methods(ensemble)
        return methods if ensemble.members == 1 else ("sisa", *methods)


@schema
class OwnVotesConfig(VotingConfig):
    """Settings of ``certificate=votes`` whose members a learner of the user's own trains.

    Attributes:
        features: the public feature map in front of the members; by default they take raw features.
        learner: the full name of the learner's class or function (``_target_``), and its settings.
            Reading these settings imports no code.
        strength: not read; it is here because ``VotesConfig`` with the same name has it.
            "recipe" is replaced by a number before training.

    Raises:
        ValueError: ``learner`` has no ``_target_``.
    """

    name: Literal["votes"] = "votes"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    learner: Mapping[str, Any] = Field(default_factory=dict)
    strength: float | Literal["recipe"] = RECIPE

    def __post_init__(self) -> None:
        """Raise ValueError unless the settings name a learner."""
        if not isinstance(self.learner.get("_target_"), str):
            raise ValueError(
                "learner: give ridge, logistic, or the full name of your own learner in "
                "learner._target_"
            )

    @classmethod
    def is_described_by(cls, node: Mapping[str, Any]) -> bool:
        """Return whether settings describe votes by a learner of the user's own.

        Args:
            node: the settings of a certificate by name, in which such a learner is a mapping.
        """
        return super().is_described_by(node) and isinstance(node.get("learner"), Mapping)


CERTIFICATES: tuple[type[CertificateConfig], ...] = (
    BoxConfig,
    StabilityConfig,
    ErmConfig,
    RemovalCertificateConfig,
    VotesConfig,
    OwnVotesConfig,
)
"""The settings of all kinds, in the order of ``agt.models.kinds.KINDS``."""

C = TypeVar("C", bound=CertificateConfig)


def no_hidden_layers(name: str, hidden: Sequence[int] | None) -> ConfigError:
    """Return the refusal of a network by a kind of certificate that trains a linear head.

    Args:
        name: the name of the kind.
        hidden: the widths of the hidden layers; None: of a network of the user's own, which has
            none.
    """
    shown = Message("{config:model}: your own network")
    if hidden is not None:
        shown = Message("{config:model.hidden}={hidden}", hidden=list(hidden))
    return ConfigError(
        Message(
            "{shown}: certificate={name} trains linear models only, so it does not "
            "support hidden layers: use {config:model=linear}, or certificate=box",
            shown=shown,
            name=name,
        )
    )


def read_certificate(node: object, classes: Sequence[type[C]]) -> C:
    """Validate the settings of a certificate, and return them as an object of the class they name.

    Args:
        node: a mapping of settings that has the kind's ``name``, such as
            ``{"name": "stability", "average": 10}``.
        classes: the classes of settings, or the kinds that inherit from them; that of boxes first.

    Raises:
        ConfigError: the kind or a setting is unknown, or a value has the wrong type.
    """
    if not isinstance(node, Mapping):
        # A value that is no mapping is refused here. The message lists the expected settings.
        return validate(classes[0], node, "certificate")
    for cls in classes:
        if cls.is_described_by(node):
            return validate(cls, node, "certificate")
    name = str(node.get("name"))
    names = dict.fromkeys(cls.name for cls in classes)
    raise ConfigError(
        Message(
            "{config:certificate.name}: unknown value '{name}'{hint}",
            name=name,
            hint=nearest(name, names),
        )
    )
