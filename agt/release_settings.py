"""What the settings of a release tell by themselves: budgets, and which models a mechanism takes.

Nothing here loads NumPy, so that a mistake is answered before a run or its data is opened. The
mechanisms themselves (agt.mechanisms) use the same limits and raise the same errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from agt.errors import ConfigError
from agt.messages import Message, Setting
from agt.settings import STRICT, TotalConfig, keyword_schema

MIN_BUDGET = 1e-15
"""The least eps or mu of one release."""
MAX_BUDGET = 100.0
"""The largest eps or mu of one release."""
MAX_TOTAL_EPS = 1e6
"""The largest eps of a total budget; a larger one protects nobody."""
LEAK_SHARE = 0.1
"""The default share of delta for leaks; a tenth costs Gaussian releases 1 % of their number."""
BUDGET_KEYS = ("eps", "mu", "delta")
"""The settings of a mechanism that are its budget."""
Need = Literal["distance", "votes", "counts", "nothing"]
"""What a mechanism reads of a model: certified distances, votes, counts, or nothing."""
Epsilon = Annotated[float, Field(ge=MIN_BUDGET, le=MAX_BUDGET)]
Mu = Annotated[float, Field(ge=MIN_BUDGET, le=MAX_BUDGET)]


@dataclass(frozen=True)
class MechanismFacts:
    """The properties of one of agt's own mechanisms, as its class has them.

    Attributes:
        name: its name in settings.
        releases: the kind of release: labels, weights or a number.
        needs: the evidence that the mechanism reads, which decides the conditions that it requires.
        budget: the settings that state its own budget, by name.
        reads_records: True: it computes new weights from the training records.
        of_numbers: True: its labels are numbers; False: they are classes.
    """

    name: str
    releases: Literal["labels", "weights", "a number"] = "labels"
    needs: Need = "distance"
    budget: tuple[str, ...] = ("eps",)
    reads_records: bool = False
    of_numbers: bool = False

    @property
    def pure(self) -> bool:
        """Whether the guarantee is pure-DP, which needs no delta."""
        return self.budget == ("eps",)


_WITH_DELTA = ("eps", "delta")
MECHANISM_FACTS = {
    "agt.mechanisms.optimal.RandomizedResponse": MechanismFacts("randomized_response"),
    "agt.mechanisms.optimal.GaussianMargin": MechanismFacts("gaussian_margin", budget=("mu",)),
    "agt.mechanisms.argmax.NoisyArgmax": MechanismFacts("noisy_argmax", needs="votes"),
    "agt.mechanisms.argmax.GaussianArgmax": MechanismFacts(
        "gaussian_argmax", budget=("mu",), needs="votes"
    ),
    "agt.mechanisms.laplace_mean.LaplaceMean": MechanismFacts(
        "laplace_mean", needs="votes", of_numbers=True
    ),
    "agt.mechanisms.published.SmoothCauchy": MechanismFacts("smooth_cauchy"),
    "agt.mechanisms.published.SmoothLaplace": MechanismFacts("smooth_laplace", budget=_WITH_DELTA),
    "agt.mechanisms.published.ProposeTestRelease": MechanismFacts(
        "propose_test_release", budget=_WITH_DELTA
    ),
    "agt.mechanisms.published.GlobalSensitivity": MechanismFacts(
        "global_sensitivity", needs="nothing"
    ),
    "agt.mechanisms.published.ExponentialMechanism": MechanismFacts(
        "exponential_mechanism", needs="nothing"
    ),
    "agt.mechanisms.published.InverseSensitivity": MechanismFacts("inverse_sensitivity"),
    "agt.mechanisms.quantile.CertifiedQuantile": MechanismFacts(
        "certified_quantile", releases="a number"
    ),
    "agt.mechanisms.weights.ReleaseWeights": MechanismFacts(
        "release_weights", releases="weights", budget=("mu",)
    ),
    "agt.mechanisms.objective.ObjectivePerturbation": MechanismFacts(
        "objective_perturbation", releases="weights", budget=_WITH_DELTA, reads_records=True
    ),
    "agt.mechanisms.statistics.NoisyStatistics": MechanismFacts(
        "noisy_statistics", releases="weights", budget=("mu",), reads_records=True
    ),
}
"""Full name of the class -> what it is. It is stated again because the classes load NumPy and
SciPy; a test compares them.
"""


@keyword_schema
class MechanismBudget:
    """The settings of a mechanism that state a budget, within the widest limits of any of them."""

    eps: Epsilon | None = None
    mu: Mu | None = None
    delta: Annotated[float, Field(ge=0, lt=1)] | None = None


def check_one_budget(given: Mapping[str, Any], total: TotalConfig, facts: MechanismFacts) -> None:
    """Raise ConfigError unless one budget is stated: the mechanism's own, or the total.

    A mechanism that is not pure-DP also needs a delta of the total.

    Args:
        given: the mechanism's settings that are not null, by name.
        total: the budget of the whole call.
        facts: the name, the output and the budget of the mechanism.
    """
    # A delta of 0 is a setting's default, and states no budget.
    own = [
        f"mechanism.{key}"
        for key in BUDGET_KEYS
        if key in given and (key != "delta" or given["delta"])
    ]
    if not own and total.eps is None:
        parameters = [f"mechanism.{key}" for key in BUDGET_KEYS if key in facts.budget]
        own_budget = " and ".join(parameters)
        if facts.releases == "weights":
            raise ConfigError(
                "the release of the weights has no privacy budget: give either total.eps and "
                f"total.delta, or {own_budget}"
            )
        raise ConfigError(
            "the release has no privacy budget: give either total.eps (and total.delta) for "
            f"all queries together, or {own_budget} for each query"
        )
    if own and total.eps is not None:
        own_key = own[0]
        raise ConfigError(
            f"total.eps and {own_key} both state a budget: give only one of these two"
        )
    if total.eps is not None and not total.delta and not facts.pure:
        raise ConfigError(
            f"mechanism={facts.name} needs a delta: give total.delta as well, such as "
            "total.delta=1e-5"
        )


@dataclass(frozen=True)
class TotalBudget:
    """The settings of a population's budget (``agt.mechanisms.budget.Allowance``).

    Attributes:
        eps: all releases together are (eps, delta)-DP.
        delta: see ``eps``; 0: pure differential privacy.
        leaks: the share of delta for leaks.

    Raises:
        ConfigError: eps is not positive, or beyond ``MAX_TOTAL_EPS``, delta not in [0, 1), or leaks
            not in [0, 1].
    """

    eps: float
    delta: float = 0.0
    leaks: float = LEAK_SHARE

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        """Raise ConfigError if eps, delta, or the share of delta for leaks is out of range."""
        if not 0 < self.eps <= MAX_TOTAL_EPS:
            raise ConfigError(
                Message(
                    (
                        "{config:total.eps}={eps!r}: give the total budget as a positive number, "
                        "at most {maximum:g}"
                    ),
                    eps=self.eps,
                    maximum=MAX_TOTAL_EPS,
                )
            )
        if not 0 <= self.delta < 1:
            raise ConfigError(
                Message(
                    "{config:total.delta}={delta!r}: give a number of at least 0 and below 1, "
                    "far below 1 / (number of records)",
                    delta=self.delta,
                )
            )
        if not 0 <= self.leaks <= 1:
            raise ConfigError(
                Message(
                    "{config:total.leaks}={leaks!r}: give a number from 0 to 1, the share of "
                    "{config:total.delta} that is reserved for releases whose mechanism needs a "
                    "delta of its own",
                    leaks=self.leaks,
                )
            )


def no_linear_head(name: str, reads_records: bool) -> ConfigError:
    """Return the refusal of a model without a linear head whose weights could be released.

    Args:
        name: the name of the mechanism.
        reads_records: as in ``MechanismFacts``.
    """
    certificates = "certificate=stability (a single model)"
    if reads_records:
        certificates = "certificate=erm or votes"
    return ConfigError(
        Message(
            "{mechanism} releases the weights of one linear head, which "
            "this model does not have: release labels instead, with "
            "{config:mechanism=randomized_response} or {config:mechanism=gaussian_margin}; or "
            "train with {config:model=linear} and {certificates}",
            mechanism=Setting(f"mechanism={name}"),
            certificates=certificates,
        )
    )


def classes_for_numbers(name: str) -> ConfigError:
    """Return the error for a mechanism that releases classes where labels are numbers.

    Args:
        name: the name of the mechanism.
    """
    return ConfigError(
        f"mechanism={name} releases classes, but the labels are numbers: use mechanism=laplace_mean"
    )


def numbers_for_classes() -> ConfigError:
    """Return the error for ``laplace_mean``, which releases numbers, where labels are classes."""
    return ConfigError(
        Message(
            "{config:mechanism=laplace_mean} releases numbers, but this model answers with "
            "classes: train with {config:dataset.target}=numeric and certificate=votes, or use a "
            "mechanism of classes, such as {config:mechanism=randomized_response}"
        )
    )


def no_votes(name: str) -> ConfigError:
    """Return the error for a mechanism that counts votes where there is a single model.

    Args:
        name: the name of the mechanism.
    """
    return ConfigError(
        Message(
            "mechanism={name} needs the votes of an ensemble, but this run is a single "
            "model: train with {config:ensemble.members}=T",
            name=name,
        )
    )
