"""What the settings of a release tell by themselves: budgets, and which models a mechanism takes.

Nothing here loads NumPy, so that a mistake is answered before a run or its data is opened. The
mechanisms themselves (agt.mechanisms) use the same limits and raise the same errors.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from agt.errors import ConfigError
from agt.messages import Message, Setting
from agt.settings import STRICT

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
        reads_records: True: the mechanism computes new weights from the training records.
    """
    certificates = "certificate=stability (a single model)"
    if reads_records:
        certificates = "certificate=erm or votes"
    return ConfigError(
        Message(
            "{mechanism} releases the weights of one linear head, which this model does not have: "
            "release labels instead, with {config:mechanism=randomized_response} or "
            "{config:mechanism=gaussian_margin}; or train with {config:model=linear} and "
            "{certificates}",
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


def weights_for_classes(name: str) -> ConfigError:
    """Return the error for a mechanism whose weights answer with classes where labels are numbers.

    Args:
        name: the name of the mechanism.
    """
    return ConfigError(
        Message(
            "mechanism={name} releases weights for classes, but {config:dataset.target}=numeric: "
            "use mechanism=noisy_statistics",
            name=name,
        )
    )


def distances_of_numbers(name: str) -> ConfigError:
    """Return the error for a mechanism that reads stable distances where labels are numbers.

    Args:
        name: the name of the mechanism.
    """
    return ConfigError(
        f"mechanism={name} reads how many edits leave a predicted class, but this model answers "
        "with numbers: use mechanism=laplace_mean"
    )
