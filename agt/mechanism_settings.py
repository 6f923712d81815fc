"""Settings of agt's release mechanisms, and what a mechanism is.

Nothing here loads NumPy, so that a mistake in a setting is answered at once. The mechanisms
(agt.mechanisms) inherit from these classes; ``agt.targets.OWN_SETTINGS`` says which from which.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from agt.certificates.settings import CertificateConfig
from agt.errors import ConfigError
from agt.messages import Message
from agt.relations import RELATIONS
from agt.release_settings import BUDGET_KEYS, Epsilon, Mu, Need
from agt.settings import (
    NonNegativeInt,
    Positive,
    RelationConfig,
    TotalConfig,
    keyword_schema,
    schema,
    validate,
)
from agt.targets import MECHANISMS

MAX_CLASSES = 2**16
MAX_WIDTH = 2048  # the largest number of features whose noisy sums are supported
Delta = Annotated[float, Field(gt=0, lt=0.5)]
_VALID_BUDGET = {"eps": 1.0, "mu": 1.0, "delta": 1e-5}
"""A budget that each of agt's mechanisms takes."""


class NoiseLaw(Enum):
    """The distribution of a release, which determines the attack of ``agt audit weights``.

    From the distribution, an audit computes how well two neighbouring datasets can be
    distinguished.
    """

    ADDED_GAUSSIAN = "independent normal noise is added to each trained weight"
    LINEAR_TERM = "a random linear term is added to the loss, and the minimiser is released"
    OTHER = (
        "the mechanism draws its noise from another distribution, for which agt audit has no attack"
    )


class MechanismSettings:
    """What settings are checked against: a mechanism's name, output and needs.

    Attributes:
        name: its name in conf/groups/mechanism.yaml and in tables.
        releases: the name of what is released, as ``output`` of the mechanism says.
        needs: the kind of evidence that it reads of the model, which decides what it requires of
            the model.
        reads_records: True if the mechanism computes new weights from the training records.
        of_numbers: True if its labels are numbers; False if they are classes.
        noise_law: the law of the noise, which decides the attack of ``agt audit weights``; OTHER:
            it has no attack, only ``agt audit replay`` applies.
    """

    name: ClassVar[str]
    releases: ClassVar[Literal["labels", "weights", "a number"]] = "labels"
    needs: ClassVar[Need] = "distance"
    reads_records: ClassVar[bool] = False
    of_numbers: ClassVar[bool] = False
    noise_law: ClassVar[NoiseLaw] = NoiseLaw.OTHER

    @classmethod
    def budget_keys(cls) -> tuple[str, ...]:
        """Return the settings that state its own budget: those of a budget without a default."""
        required: list[str] = [
            entry.name
            for entry in fields(cls)  # type: ignore[arg-type]  # subclasses are dataclasses
            if entry.default is MISSING
        ]
        return tuple(key for key in BUDGET_KEYS if key in required)


def check_one_budget(
    given: Mapping[str, Any], total: TotalConfig, kind: type[MechanismSettings]
) -> None:
    """Raise ConfigError unless one budget is stated: the mechanism's own, or the total.

    A mechanism that is not pure-DP also needs a delta of the total.

    Args:
        given: the mechanism's settings that are not null, by name.
        total: the budget of the whole call.
        kind: the mechanism's class, or that of its settings.
    """
    # A delta of 0 is a setting's default, and states no budget.
    own_budget_keys = [
        f"mechanism.{key}"
        for key in BUDGET_KEYS
        if key in given and (key != "delta" or given["delta"])
    ]
    budget_keys = kind.budget_keys()
    if not own_budget_keys and total.eps is None:
        own_budget = " and ".join(f"mechanism.{key}" for key in budget_keys)
        if kind.releases == "weights":
            raise ConfigError(
                "the release of the weights has no privacy budget: give either total.eps and "
                f"total.delta, or {own_budget}"
            )
        raise ConfigError(
            "the release has no privacy budget: give either total.eps (and total.delta) for "
            f"all queries together, or {own_budget} for each query"
        )
    if own_budget_keys and total.eps is not None:
        own_key = own_budget_keys[0]
        raise ConfigError(
            f"total.eps and {own_key} both state a budget: give only one of these two"
        )
    if total.eps is not None and not total.delta and budget_keys != ("eps",):
        raise ConfigError(
            f"mechanism={kind.name} needs a delta: give total.delta as well, such as "
            "total.delta=1e-5"
        )


def check_own_mechanism(
    given: Mapping[str, Any], total: TotalConfig, kind: type[MechanismSettings]
) -> None:
    """Raise ConfigError for a wrong setting of a mechanism of agt, as far as no model is needed.

    Args:
        given: the mechanism's settings that are not null, by name.
        total: the budget of the whole call.
        kind: the class of the mechanism's settings.
    """
    check_one_budget(given, total, kind)
    budget = {}
    if total.eps is not None:  # The budget of a query depends on their number, which is not known.
        budget = {key: _VALID_BUDGET[key] for key in kind.budget_keys()}
    validate(kind, {**budget, **given}, "mechanism")


@keyword_schema
class LabelSettings(MechanismSettings):
    """Settings of every mechanism that releases classes.

    Attributes:
        classes: C, the number of labels.
        any_classes: the mechanism supports more than two classes.
    """

    classes: Annotated[int, Field(ge=2, le=MAX_CLASSES)] = 2

    any_classes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise ConfigError if the mechanism does not support more than two classes."""
        if self.classes > 2 and not self.any_classes:
            raise ConfigError(
                Message(
                    "mechanism={name} only releases labels of two classes, but the model has "
                    "{classes} classes: use {config:mechanism=randomized_response}",
                    name=self.name,
                    classes=self.classes,
                )
            )


@keyword_schema
class PureSettings(LabelSettings):
    """Settings of mechanisms with pure eps-DP for each label."""

    eps: Epsilon


@keyword_schema
class ApproximateSettings(LabelSettings):
    """Settings of mechanisms with (eps, delta)-DP for each label."""

    eps: Epsilon
    delta: Delta


@keyword_schema
class VotesSettings(LabelSettings):
    """Settings of mechanisms that count the votes of an ensemble.

    Attributes:
        moves: m, a number of votes that one edit of the training data may change.
    """

    moves: Annotated[int, Field(ge=1, le=2)] = 1

    needs: ClassVar[Need] = "votes"
    any_classes: ClassVar[bool] = True


@keyword_schema
class RandomizedResponseSettings(LabelSettings):
    """Settings of ``RandomizedResponse``."""

    eps: Epsilon
    delta: Annotated[float, Field(ge=0, lt=0.5)] = 0.0

    name: ClassVar[str] = "randomized_response"
    any_classes: ClassVar[bool] = True


@keyword_schema
class GaussianMarginSettings(LabelSettings):
    """Settings of ``GaussianMargin``."""

    mu: Mu

    name: ClassVar[str] = "gaussian_margin"


@keyword_schema
class NoisyArgmaxSettings(VotesSettings, PureSettings):
    """Settings of ``NoisyArgmax``."""

    name: ClassVar[str] = "noisy_argmax"


@keyword_schema
class GaussianArgmaxSettings(VotesSettings):
    """Settings of ``GaussianArgmax``."""

    mu: Mu

    name: ClassVar[str] = "gaussian_argmax"


@keyword_schema
class SmoothCauchySettings(PureSettings):
    """Settings of ``SmoothCauchy``."""

    name: ClassVar[str] = "smooth_cauchy"


@keyword_schema
class SmoothLaplaceSettings(ApproximateSettings):
    """Settings of ``SmoothLaplace``.

    Raises:
        ConfigError: eps is so large that the guarantee is not proved.
    """

    name: ClassVar[str] = "smooth_laplace"

    def __post_init__(self) -> None:
        super().__post_init__()  # checks the number of classes
        # Lemma 2 of docs/proofs/published.md proves the guarantee for beta <= 1.25, where beta =
        # eps / (2 ln(2 / delta)).
        largest_eps = 2.5 * math.log(2 / self.delta)
        if self.eps > largest_eps:
            raise ConfigError(
                f"mechanism.eps={self.eps:g} is too large, because mechanism=smooth_laplace is "
                f"only proved up to eps = 2.5 ln(2/delta), which is {largest_eps:.4g} at delta "
                f"= {self.delta:g}: lower mechanism.eps, or use mechanism=randomized_response"
            )


@keyword_schema
class ProposeTestReleaseSettings(ApproximateSettings):
    """Settings of ``ProposeTestRelease``."""

    name: ClassVar[str] = "propose_test_release"


@keyword_schema
class GlobalSensitivitySettings(PureSettings):
    """Settings of ``GlobalSensitivity``."""

    name: ClassVar[str] = "global_sensitivity"
    needs: ClassVar[Need] = "nothing"


@keyword_schema
class ExponentialMechanismSettings(PureSettings):
    """Settings of ``ExponentialMechanism``."""

    name: ClassVar[str] = "exponential_mechanism"
    needs: ClassVar[Need] = "nothing"
    any_classes: ClassVar[bool] = True


@keyword_schema
class InverseSensitivitySettings(PureSettings):
    """Settings of ``InverseSensitivity``."""

    name: ClassVar[str] = "inverse_sensitivity"
    any_classes: ClassVar[bool] = True


@schema
class LaplaceMeanSettings(MechanismSettings):
    """Settings of ``LaplaceMean``."""

    eps: Epsilon

    name: ClassVar[str] = "laplace_mean"
    needs: ClassVar[Need] = "votes"
    of_numbers: ClassVar[bool] = True


@schema
class CertifiedQuantileSettings(MechanismSettings):
    """Settings of ``CertifiedQuantile``."""

    eps: Epsilon
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.5

    name: ClassVar[str] = "certified_quantile"
    releases: ClassVar[Literal["a number"]] = "a number"


class WeightsSettings(MechanismSettings):
    """What mechanisms that release the weights of a linear head are.

    Attributes:
        releases_numbers: True if it also takes labels that are numbers.
    """

    releases: ClassVar[Literal["weights"]] = "weights"
    releases_numbers: ClassVar[bool] = False

    @classmethod
    def check_training(cls, certificate: CertificateConfig, relation: RelationConfig) -> None:
        """Raise ConfigError if the proof covers no head that was trained with some settings.

        This default accepts all settings.

        Args:
            certificate: the settings of the head's certificate.
            relation: the neighbour relation.
        """


@schema
class GaussianWeightsSettings(WeightsSettings):
    """Settings of mechanisms whose one release of weights is mu-GDP."""

    mu: Mu


@schema
class ReleaseWeightsSettings(GaussianWeightsSettings):
    """Settings of ``ReleaseWeights``."""

    name: ClassVar[str] = "release_weights"
    noise_law: ClassVar[NoiseLaw] = NoiseLaw.ADDED_GAUSSIAN


@schema
class NoisyStatisticsSettings(GaussianWeightsSettings):
    """Settings of ``NoisyStatistics``."""

    width: Annotated[int, Field(ge=2, le=MAX_WIDTH)] | None = None
    seed: NonNegativeInt = 0

    name: ClassVar[str] = "noisy_statistics"
    reads_records: ClassVar[bool] = True
    releases_numbers: ClassVar[bool] = True

    @classmethod
    def check_training(cls, certificate: CertificateConfig, relation: RelationConfig) -> None:
        certificate.check_statistics_perturbation(cls.name)
        check_sums_proved(relation)


def check_sums_proved(relation: RelationConfig) -> None:
    """Raise ConfigError unless it is proved how far an edit of the dataset moves noisy sums.

    Args:
        relation: the neighbour relation.
    """
    if not RELATIONS[relation.name].sums_proved:
        raise ConfigError(
            Message(
                "mechanism={name}: how much one person changes the sums is only proved under "
                "relation=add_remove and substitute, not {relation_name}: train with one of "
                "these, or use {config:mechanism=release_weights}",
                name=NoisyStatisticsSettings.name,
                relation_name=relation.name,
            )
        )


@schema
class ObjectivePerturbationSettings(WeightsSettings):
    """Settings of ``ObjectivePerturbation``."""

    eps: Epsilon
    delta: Delta
    weight_decay: Positive | None = None

    name: ClassVar[str] = "objective_perturbation"
    noise_law: ClassVar[NoiseLaw] = NoiseLaw.LINEAR_TERM
    reads_records: ClassVar[bool] = True

    @classmethod
    def check_training(cls, certificate: CertificateConfig, relation: RelationConfig) -> None:
        certificate.check_objective_perturbation(cls.name)
        is_one_unit = RELATIONS[relation.name].is_one_unit_added_or_removed
        if not is_one_unit or relation.unit_rows != 1:
            raise ConfigError(
                Message(
                    "mechanism={mechanism}: the proof of this mechanism only covers "
                    "relation=add_remove with unit_rows=1, but the run has relation={name} with "
                    "unit_rows={unit_rows}: use {config:mechanism=release_weights}",
                    mechanism=cls.name,
                    name=relation.name,
                    unit_rows=relation.unit_rows,
                )
            )


OWN_MECHANISMS: dict[str, type[MechanismSettings]] = {
    kind.name: kind
    for kind in (globals()[f"{name.partition('.')[2]}Settings"] for name in MECHANISMS)
}
"""The name of each mechanism of agt -> the class of its settings."""
