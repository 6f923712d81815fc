"""What a release guarantees, as values: pure, approximate and Gaussian differential privacy.

Each implies (eps, delta)-DP: ``delta_of(guarantee, 1, eps)`` is the least delta that it alone proves.

Formal guarantees
    PureDP(e): every e-DP mechanism is a post-processing of randomized response (Kairouz, Oh, Viswanath 2015), so that
    delta(eps) = max(0, (exp(e) - exp(eps)) / (1 + exp(e))).
    ApproximateDP(e, d): the same after a leak of probability d: delta(eps) = d + (1 - d) * the above.
    GaussianDP(mu): delta(eps) = Phi(-eps/mu + mu/2) - exp(eps) Phi(-eps/mu - mu/2) (Dong, Roth, Su 2022, Corollary 1).
    Every returned delta is rounded up by more than its floating-point error (``UP``): it is never below the true one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from agt.errors import ConfigError
from agt.numeric import UP

LEAST, GREATEST = 1e-15, 100.0  # of eps and mu, for one release


class _Parametrised:
    @property
    def parameters(self) -> dict[str, float]:
        """The values by name, as a mechanism's settings take them."""
        return dict(vars(self))


@dataclass(frozen=True)
class PureDP(_Parametrised):
    """eps-differential privacy: P(S) <= exp(eps) P'(S) for all events S and neighbours.

    Raises:
        ConfigError: eps is not in [1e-15, 100].
    """

    eps: float

    def __post_init__(self) -> None:
        _check_range("eps", self.eps)

    def __str__(self) -> str:
        return f"{self.eps:.6g}-differentially private"


@dataclass(frozen=True)
class ApproximateDP(_Parametrised):
    """(eps, delta)-differential privacy: P(S) <= exp(eps) P'(S) + delta.

    Raises:
        ConfigError: eps is not in [1e-15, 100], or delta not in (0, 1).
    """

    eps: float
    delta: float

    def __post_init__(self) -> None:
        _check_range("eps", self.eps)
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta = {self.delta!r}: give a number between 0 and 1, far below one over the records")

    def __str__(self) -> str:
        return f"({self.eps:.6g}, {self.delta:.6g})-differentially private"


@dataclass(frozen=True)
class GaussianDP(_Parametrised):
    """mu-Gaussian differential privacy: no test between neighbours beats one between N(0, 1) and N(mu, 1).

    Raises:
        ConfigError: mu is not in [1e-15, 100].
    """

    mu: float

    def __post_init__(self) -> None:
        _check_range("mu", self.mu)

    def __str__(self) -> str:
        return f"{self.mu:.6g}-Gaussian differentially private"


Guarantee: TypeAlias = PureDP | ApproximateDP | GaussianDP

KINDS: dict[str, type[PureDP] | type[ApproximateDP] | type[GaussianDP]] = {
    "pure": PureDP,
    "approximate": ApproximateDP,
    "gaussian": GaussianDP,
}


def described(guarantee: Guarantee) -> dict[str, Any]:
    """As JSON has it: its kind, and its parameters by name."""
    return {"kind": next(name for name, kind in KINDS.items() if type(guarantee) is kind), **guarantee.parameters}


def guarantee_of(node: Mapping[str, Any]) -> Guarantee:
    """What ``described`` gave.

    Raises:
        ConfigError: it is no such thing.
    """
    try:
        return KINDS[node["kind"]](**{name: float(value) for name, value in node.items() if name != "kind"})
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"a guarantee of {node!r}: one of {', '.join(KINDS)} with its parameters is expected") from None


def leftover(pure: float, eps: float) -> float:
    """max(0, (exp(pure) - exp(eps)) / (1 + exp(pure))), rounded up: what eps leaves of pure-DP."""
    if eps >= pure:
        return 0.0
    return min(1.0, -math.expm1(eps - pure) / (1 + math.exp(-pure)) * (1 + UP))


def _check_range(name: str, value: float) -> None:
    if not LEAST <= value <= GREATEST:  # a NaN fails every comparison
        raise ConfigError(f"{name} = {value!r}: give a number from {LEAST:g} to {GREATEST:g}, the budget of one release")
