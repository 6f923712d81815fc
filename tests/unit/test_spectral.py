"""Upper bounds of spectral norms: proved by a factorisation, where a power iteration would stop too low."""

import numpy as np
import pytest

from agt.training import spectral
from agt.training.spectral import largest_eigenvalue, proved


def hidden():
    """(a matrix, its largest eigenvalue): no start that lies in the last 20 coordinates ever sees it."""
    top = np.ones((20, 20)) / 20 * 10.0
    matrix = np.zeros((40, 40))
    matrix[:20, :20], matrix[20:, 20:] = top, np.diag(np.linspace(1, 9, 20))
    return matrix, 10.0


def power(matrix, start, steps=1000):
    for _ in range(steps):
        start = matrix @ (start / np.linalg.norm(start))
    return np.linalg.norm(start)


def test_a_power_iteration_would_stop_too_low_and_the_bound_does_not():
    matrix, top = hidden()
    start = matrix[:, int(np.diag(matrix).argmax())]  # the longest column: a natural start, orthogonal to the eigenvector
    assert power(matrix, start) < top - 0.9
    assert top <= largest_eigenvalue(matrix) <= top * (1 + 1e-5)


def test_an_estimate_that_is_too_low_is_not_proved(monkeypatch):
    matrix, top = hidden()
    assert proved(matrix, 9.5) is None
    assert proved(matrix, 10.001) >= top
    monkeypatch.setattr(spectral, "eigh", lambda *_, **__: [9.0])  # a guess from a blind iteration
    assert top <= largest_eigenvalue(matrix) <= 2 * top
    monkeypatch.setattr(spectral, "eigh", lambda *_, **__: [0.01])  # a hopeless one
    assert largest_eigenvalue(matrix) >= np.trace(matrix)


@pytest.mark.parametrize("seed", range(20))
def test_never_below_the_exact_one(seed):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    values = np.sort(rng.pareto(0.5, size=30))
    matrix = (basis * values) @ basis.T
    matrix = (matrix + matrix.T) / 2
    assert values[-1] <= largest_eigenvalue(matrix, 1e-13 * values[-1]) <= values[-1] * (1 + 1e-4)


def test_what_may_hide_within_the_error_is_added():
    assert largest_eigenvalue(np.eye(3), 0.5) == pytest.approx(1.5, rel=1e-5)
    assert 0 <= largest_eigenvalue(np.zeros((4, 4))) < 1e-200
    assert 1e-3 <= largest_eigenvalue(np.zeros((4, 4)), 1e-3) <= 4.1e-3
