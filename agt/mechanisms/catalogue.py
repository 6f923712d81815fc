"""Every per-query mechanism by name."""

from agt.errors import ConfigError, nearest
from agt.mechanisms.comparisons import ExponentialMechanism, InverseSensitivity
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import (
    GlobalSensitivity,
    NoisyArgmax,
    ProposeTestRelease,
    SmoothCauchy,
    SmoothLaplace,
)

MECHANISMS: dict[str, type[Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        RandomizedResponse,
        GaussianMargin,
        SmoothCauchy,
        SmoothLaplace,
        ProposeTestRelease,
        GlobalSensitivity,
        NoisyArgmax,
        ExponentialMechanism,
        InverseSensitivity,
    )
}


def mechanism_named(name: str) -> type[Mechanism]:
    """The class of that name, or ConfigError with the nearest one."""
    if name not in MECHANISMS:
        raise ConfigError(f"unknown mechanism '{name}'{nearest(name, MECHANISMS)}")
    return MECHANISMS[name]
