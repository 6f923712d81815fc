"""The Gaussian mechanism's curve against high precision, and its inverse."""

import mpmath
import pytest

from agt.errors import ConfigError
from agt.numeric import gaussian_delta, gaussian_mu

EPSILONS = (0.0, 1e-6, 0.01, 0.1, 1.0, 10.0, 50.0)


def exact(epsilon: float, mu: float) -> float:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("mu", [1e-3, 0.02, 0.3, 1.0, 5.0])
def test_delta_is_the_exact_curve(epsilon: float, mu: float) -> None:
    value = gaussian_delta(epsilon, mu)
    assert exact(epsilon, mu) <= value
    assert value == pytest.approx(exact(epsilon, mu), rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-5, 0.3])
def test_mu_meets_its_target_and_hardly_more_would_not(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert exact(epsilon, mu) <= delta
    assert exact(epsilon, mu * (1 + (1e-2 if delta < 1e-9 else 1e-6))) > delta


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 0.0), (1.0, 1.0), (-1.0, 0.1), (float("inf"), 0.1), (float("nan"), 0.1)]
)
def test_no_gaussian_gives_that(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError, match="Gaussian noise needs"):
        gaussian_mu(epsilon, delta)
    assert gaussian_delta(0.0, 0.0) == 0
