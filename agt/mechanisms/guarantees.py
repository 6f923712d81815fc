"""What a release guarantees, as values: pure, approximate and Gaussian differential privacy.

Each implies (eps, delta)-DP for every eps: ``composition.delta_of(guarantee, 1, eps)`` is the least
delta that follows from the guarantee.

    str(GaussianDP(0.5)), read_guarantee({"kind": "pure", "eps": 1.0})
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from agt import sentences
from agt.errors import ConfigError
from agt.numeric import UP
from agt.release_settings import MAX_BUDGET, MIN_BUDGET
from agt.settings import STRICT


class _Parametrised:
    """Base class of the guarantees: their parameters by name, and their form in JSON files.

    Attributes:
        parameter_names: the names of the parameters, such as ("eps", "delta").
        kind: "pure", "approximate" or "gaussian", which names the guarantee in files.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    parameter_names: ClassVar[tuple[str, ...]]
    kind: str

    @property
    def parameters(self) -> dict[str, float]:
        """The values by name, as a mechanism's settings take them."""
        return {name: getattr(self, name) for name in self.parameter_names}

    @property
    def as_json(self) -> dict[str, Any]:
        """The kind and the parameters by name, which ``read_guarantee`` reads."""
        return {"kind": self.kind, **self.parameters}

    def __str__(self) -> str:
        """Return a phrase that states the guarantee with its parameters."""
        return sentences.guarantee(self.as_json)


@dataclass(frozen=True)
class PureDP(_Parametrised):
    """eps-differential privacy: P(S) <= exp(eps) P'(S).

    It holds for all events S and for the distributions P and P' of two neighbouring datasets.

    Raises:
        ConfigError: eps is not in [1e-15, 100].
    """

    eps: float
    kind: Literal["pure"] = field(default="pure", repr=False, kw_only=True)

    parameter_names = ("eps",)

    def __post_init__(self) -> None:
        """Raise ConfigError unless eps is in [1e-15, 100]."""
        _check_budget("eps", self.eps)


@dataclass(frozen=True)
class ApproximateDP(_Parametrised):
    """(eps, delta)-differential privacy: P(S) <= exp(eps) P'(S) + delta.

    It holds for all events S and for the distributions P and P' of two neighbouring datasets.

    Raises:
        ConfigError: eps is not in [1e-15, 100], or delta not in (0, 1).
    """

    eps: float
    delta: float
    kind: Literal["approximate"] = field(default="approximate", repr=False, kw_only=True)

    parameter_names = ("eps", "delta")

    def __post_init__(self) -> None:
        """Raise ConfigError unless eps is in [1e-15, 100] and delta in (0, 1)."""
        _check_budget("eps", self.eps)
        if not 0 < self.delta < 1:
            raise ConfigError(
                f"delta = {self.delta!r}: give a number between 0 and 1, far below 1 / "
                "(number of records)"
            )


@dataclass(frozen=True)
class GaussianDP(_Parametrised):
    """mu-Gaussian differential privacy.

    From what is released, neighbouring datasets are at least as hard to distinguish as one draw of
    N(0, 1) from one of N(mu, 1).

    Raises:
        ConfigError: mu is not in [1e-15, 100].
    """

    mu: float
    kind: Literal["gaussian"] = field(default="gaussian", repr=False, kw_only=True)

    parameter_names = ("mu",)

    def __post_init__(self) -> None:
        """Raise ConfigError unless mu is in [1e-15, 100]."""
        _check_budget("mu", self.mu)


Guarantee: TypeAlias = Annotated[PureDP | ApproximateDP | GaussianDP, Field(discriminator="kind")]

_READER: TypeAdapter[Guarantee] = TypeAdapter(Guarantee)


def read_guarantee(node: Mapping[str, Any]) -> Guarantee:
    """Return the guarantee that ``as_json`` of a guarantee wrote.

    Args:
        node: such as {"kind": "pure", "eps": 1.0}.

    Raises:
        ConfigError: the kind is unknown, or a parameter is missing, unknown or out of range.
    """
    try:
        return _READER.validate_python(dict(node))
    except (ValidationError, TypeError, ValueError):
        raise ConfigError(
            f"{node!r} is not a guarantee: give 'kind' as pure (with eps), approximate (with eps "
            "and delta) or gaussian (with mu)"
        ) from None


def delta_of_pure(pure_eps: float, eps: float) -> float:
    """Return the delta for which one pure-DP release is (eps, delta)-DP, rounded up.

    It is max(0, (exp(pure_eps) - exp(eps)) / (1 + exp(pure_eps))): 0 where eps >= pure_eps.

    Args:
        pure_eps: the release is pure_eps-DP; at least 0.
        eps: the eps at which delta is asked for, at least 0.
    """
    # Lemma 1 of docs/proofs/composition.md with one release: the delta of randomized response,
    # which is the largest of all eps-DP releases.
    if eps >= pure_eps:
        return 0.0
    # Numerator and denominator are divided by exp(pure_eps), so that neither overflows.
    delta = -math.expm1(eps - pure_eps) / (1 + math.exp(-pure_eps))
    return min(1.0, delta * (1 + UP))


def _check_budget(name: str, value: float) -> None:
    """Raise ConfigError unless a parameter is a budget of one release, in [1e-15, 100].

    Args:
        name: the parameter's name for the message: "eps" or "mu".
        value: its value; a NaN is refused, too.
    """
    if not MIN_BUDGET <= value <= MAX_BUDGET:  # a NaN fails every comparison
        raise ConfigError(
            f"{name} = {value!r}: give a number from {MIN_BUDGET:g} to {MAX_BUDGET:g} (the "
            "privacy parameter of one release)"
        )
