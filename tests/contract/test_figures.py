"""What a reader of a figure relies on: round intervals, honest names, colours that keep their order in grey."""

import matplotlib as mpl
import numpy as np
import pytest

from agt_cli.report.figures import BINS, COLOURS, DARKEST, LEVELS, Grid, _edges, _names, map_levels


def test_colours_darken_monotonically_in_grey() -> None:
    rgb = mpl.colormaps[COLOURS](np.linspace(0, DARKEST, LEVELS + 2))[:, :3]
    grey = rgb @ np.array([0.299, 0.587, 0.114])
    assert np.all(np.diff(grey) < -0.03)


@pytest.mark.parametrize(
    ("ks", "levels"),
    [
        (range(4), [0, 1, 2, 3]),
        (range(101), [0, 1, 20, 40, 60, 80, 100]),
        (range(200), [0, 1, 25, 50, 75, 100, 125, 150, 175, 199]),
        ((1, 5, 10, 50), [1, 5, 10, 50]),
    ],
)
def test_levels_are_round_values_of_the_grid(ks: range, levels: list[int]) -> None:
    assert list(map_levels(tuple(ks))) == levels


@pytest.mark.parametrize("last", [1, 7, 13, 50, 99, 100, 1000])
def test_edges_cover_the_grid(last: int) -> None:
    edges = _edges(tuple(range(last + 1)), BINS)
    assert edges[0] == 0
    assert edges[1] == 1, "nothing certified is told apart from something"
    assert edges[-1] == last
    assert edges == sorted(set(edges))
    assert len(edges) <= BINS + 3


def test_names_say_that_the_last_interval_is_open() -> None:
    assert _names([0, 1, 20, 21]) == ["0", "1–19", "20", "≥ 21"]


def test_grid_covers_the_points_in_a_square() -> None:
    points = np.array([[-1.0, 0.0], [3.0, 1.0]])
    grid = Grid.around(points, 5)
    assert grid.points.shape == (25, 2)
    assert grid.points[1, 0] > grid.points[0, 0], "x runs fastest"
    low, high = grid.points.min(axis=0), grid.points.max(axis=0)
    assert np.all(low < points.min(axis=0))
    assert np.all(high > points.max(axis=0))
    assert high[0] - low[0] == pytest.approx(high[1] - low[1])
