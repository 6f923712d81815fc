"""What a release guarantees, as values: pure, approximate and Gaussian differential privacy.

Each implies (eps, delta)-DP: ``delta_of(guarantee, 1, eps)`` is the least delta that it alone
proves.

Formal guarantees
    PureDP(e): every e-DP mechanism is a post-processing of randomized response (Kairouz, Oh,
    Viswanath 2015), so that delta(eps) = max(0, (exp(e) - exp(eps)) / (1 + exp(e))).
    ApproximateDP(e, d): the same after a leak of probability d: delta(eps) = d + (1 - d) * the
    above.
    GaussianDP(mu): delta(eps) = Phi(-eps/mu + mu/2) - exp(eps) Phi(-eps/mu - mu/2) (Dong, Roth, Su
    2022, Corollary 1). Every returned delta is rounded up by more than its floating-point error
    (``UP``): it is never below the true one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from agt import sentences
from agt.errors import ConfigError
from agt.numeric import UP
from agt.settings import STRICT

LEAST, GREATEST = 1e-15, 100.0  # of eps and mu, for one release


class _Parametrised:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    parameter_names: ClassVar[tuple[str, ...]]
    kind: str

    @property
    def parameters(self) -> dict[str, float]:
        """The values by name, as a mechanism's settings take them."""
        return {name: getattr(self, name) for name in self.parameter_names}

    @property
    def as_json(self) -> dict[str, Any]:
        """The kind, and the parameters by name; ``guarantee_of`` reads it."""
        return {"kind": self.kind, **self.parameters}

    def __str__(self) -> str:
        return sentences.guarantee(self.as_json)


@dataclass(frozen=True)
class PureDP(_Parametrised):
    """eps-differential privacy: P(S) <= exp(eps) P'(S) for all events S and neighbours.

    Raises:
        ConfigError: eps is not in [1e-15, 100].
    """

    eps: float
    kind: Literal["pure"] = field(default="pure", repr=False, kw_only=True)

    parameter_names: ClassVar[tuple[str, ...]] = ("eps",)

    def __post_init__(self) -> None:
        _check_range("eps", self.eps)


@dataclass(frozen=True)
class ApproximateDP(_Parametrised):
    """(eps, delta)-differential privacy: P(S) <= exp(eps) P'(S) + delta.

    Raises:
        ConfigError: eps is not in [1e-15, 100], or delta not in (0, 1).
    """

    eps: float
    delta: float
    kind: Literal["approximate"] = field(default="approximate", repr=False, kw_only=True)

    parameter_names: ClassVar[tuple[str, ...]] = ("eps", "delta")

    def __post_init__(self) -> None:
        _check_range("eps", self.eps)
        if not 0 < self.delta < 1:
            raise ConfigError(
                f"delta = {self.delta!r}: give a number between 0 and 1, far below one over the "
                "records"
            )


@dataclass(frozen=True)
class GaussianDP(_Parametrised):
    """mu-Gaussian differential privacy: no test between neighbours beats one between N(0, 1) and
    N(mu, 1).

    Raises:
        ConfigError: mu is not in [1e-15, 100].
    """

    mu: float
    kind: Literal["gaussian"] = field(default="gaussian", repr=False, kw_only=True)

    parameter_names: ClassVar[tuple[str, ...]] = ("mu",)

    def __post_init__(self) -> None:
        _check_range("mu", self.mu)


Guarantee: TypeAlias = Annotated[PureDP | ApproximateDP | GaussianDP, Field(discriminator="kind")]

_READER: TypeAdapter[Guarantee] = TypeAdapter(Guarantee)


def guarantee_of(node: Mapping[str, Any]) -> Guarantee:
    """What ``as_json`` gave.

    Raises:
        ConfigError: it is no such thing.
    """
    try:
        return _READER.validate_python(dict(node))
    except (ValidationError, TypeError, ValueError):
        raise ConfigError(
            f"a guarantee of {node!r}: pure, approximate or gaussian with its parameters is "
            "expected"
        ) from None


def leftover(pure: float, eps: float) -> float:
    """max(0, (exp(pure) - exp(eps)) / (1 + exp(pure))), rounded up: what eps leaves of pure-DP."""
    if eps >= pure:
        return 0.0
    return min(1.0, -math.expm1(eps - pure) / (1 + math.exp(-pure)) * (1 + UP))


def _check_range(name: str, value: float) -> None:
    if not LEAST <= value <= GREATEST:  # a NaN fails every comparison
        raise ConfigError(
            f"{name} = {value!r}: give a number from {LEAST:g} to {GREATEST:g}, the budget of one "
            "release"
        )
