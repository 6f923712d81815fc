"""Upper bounds of spectral norms: proved by a factorisation, where a power iteration would stop too low."""

import numpy as np
import pytest

from agt.errors import UnsoundError
from agt.training import linear
from agt.training.linear import eigenvalue_gap, eigenvalue_within, largest_eigenvalue, proved


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
    monkeypatch.setattr(linear, "_top", lambda _: (9.0, None))  # a guess from a blind iteration
    assert top <= largest_eigenvalue(matrix) <= 2 * top
    monkeypatch.setattr(linear, "_top", lambda _: (0.01, None))  # a hopeless one
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


@pytest.mark.parametrize("width", [1, 2, 30])
def test_within_a_public_gap_of_the_largest_eigenvalue_whatever_its_sign(width):
    """Symmetric matrices with integer eigenvectors: the largest eigenvalue is known exactly."""
    rng = np.random.default_rng(width)
    for _ in range(30):
        values = rng.integers(-50, 51, size=width).astype(float) * rng.choice([0.0, 1e-100, 1.0, 2.0**40])
        matrix = np.diag(values)
        if width % 2 == 0:  # mixed by an exact rotation: [[a, b], [b, a]] has the eigenvalues a + b and a - b
            a, b = values[0], values[1]
            matrix, values = np.array([[a, b], [b, a]]), np.array([a + b, a - b])
        size = float(np.linalg.norm(matrix)) * (1 + rng.random())
        gap = eigenvalue_gap(width, size)
        assert values.max() <= eigenvalue_within(matrix, gap) <= values.max() + gap
        assert gap <= 1e-9 * size + 1e-280


def test_a_vector_that_is_none_or_a_matrix_without_numbers_stops_the_run(monkeypatch):
    matrix, _ = hidden()
    gap = eigenvalue_gap(40, 100.0)
    with pytest.raises(UnsoundError, match="a matrix of second derivatives is not finite"):
        eigenvalue_within(matrix * np.nan, gap)
    monkeypatch.setattr(linear, "eigh", lambda *_, **__: (np.array([9.0]), np.eye(40)[:, 39:]))
    with pytest.raises(UnsoundError, match="could not be confirmed to within"):
        eigenvalue_within(matrix, gap)


@pytest.mark.parametrize("square", [False, True])
def test_matrices_whose_last_eigenpair_alone_lapack_does_not_find(square: bool) -> None:
    whole = np.array([[1, 0, 1, 0], [0, 0, 0, -1], [1, 0, -1, 0], [0, -1, 0, -1.0]])
    half = np.array([[1, 0, 0], [0, 1, 0], [1 / np.sqrt(2), 0, 1 / np.sqrt(2)]])
    matrix = half.T @ half if square else whole
    exact, gap = float(np.linalg.eigvalsh(matrix)[-1]), eigenvalue_gap(len(matrix), 4.0)
    assert exact - 1e-14 <= eigenvalue_within(matrix, gap) <= exact + gap + 1e-14
    assert largest_eigenvalue(half.T @ half) >= float(np.linalg.eigvalsh(half.T @ half)[-1]) - 1e-14
