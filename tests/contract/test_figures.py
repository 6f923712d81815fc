"""What a reader of a figure relies on: round intervals, honest names and findings, axes that end
with the data, colours that keep their order in grey.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from agt_cli._experiments.curves import Curves, _styles, curves
from agt_cli._experiments.figures import batches_by_depth, marks, named_points
from legibility import faults
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from agt.certificates.box import Certificates
from agt.relations import RELATIONS
from agt.settings import RelationConfig
from agt_cli.report import figures
from agt_cli.report.certification_md import COLUMN_TITLES, LabelCertification
from agt_cli.report.figures import (
    COLOUR_MAP,
    COVERED_EXTRA_WIDTH,
    CURVE_GID,
    CURVE_STYLES,
    DARKEST_COLOUR,
    HISTOGRAM_BINS,
    MAP_LEVELS,
    MECHANISM_STYLES,
    SERIES_STYLES,
    Grid,
    _bin_names,
    _bin_starts,
    _curve_names,
    panels_in_order,
    plane_map_ks,
    widen_covered_curves,
)
from agt_cli.report.quality import format_rate
from agt_cli.report.record import RunRecord


def test_colours_darken_monotonically_in_grey() -> None:
    rgb = mpl.colormaps[COLOUR_MAP](np.linspace(0, DARKEST_COLOUR, MAP_LEVELS + 2))[:, :3]
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
    assert list(plane_map_ks(tuple(ks))) == levels


@pytest.mark.parametrize("last", [1, 7, 13, 50, 99, 100, 1000])
def test_edges_cover_the_grid(last: int) -> None:
    edges = _bin_starts(tuple(range(last + 1)), HISTOGRAM_BINS)
    assert edges[0] == 0
    assert edges[1] == 1, "nothing certified is told apart from something"
    assert edges[-1] == last
    assert edges == sorted(set(edges))
    assert len(edges) <= HISTOGRAM_BINS + 3


def test_names_say_that_the_last_interval_is_open() -> None:
    assert _bin_names([0, 1, 20, 21]) == ["0", "1–19", "20", "≥ 21"]


def test_grid_covers_the_points_in_a_square() -> None:
    points = np.array([[-1.0, 0.0], [3.0, 1.0]])
    grid = Grid.around(points, 5)
    assert grid.points.shape == (25, 2)
    assert grid.points[1, 0] > grid.points[0, 0], "x runs fastest"
    low = grid.points.min(axis=0)
    high = grid.points.max(axis=0)
    assert np.all(low < points.min(axis=0))
    assert np.all(high > points.max(axis=0))
    assert high[0] - low[0] == pytest.approx(high[1] - low[1])


def greys(colours: list[str]) -> set[float]:
    return {rgb[0] for rgb in map(to_rgb, colours) if len(set(rgb)) == 1 and 0 < rgb[0] < 1}


def test_no_figure_has_more_than_three_greys() -> None:
    assert len(greys([look["color"] for look in CURVE_STYLES.values()] + ["0.9"])) <= 3
    assert len(greys([style["color"] for style in MECHANISM_STYLES.values()])) <= 3
    assert len(greys([style["color"] for style in SERIES_STYLES])) <= 3
    assert (
        len(greys([colour for _, face, edge in figures.CLASS_MARKERS for colour in (face, edge)]))
        <= 3
    )


def test_lines_that_run_on_one_another_are_one_with_both_names() -> None:
    table = pd.DataFrame(
        {
            "k": [0, 1],
            "certified_fraction": [1, 0.5],
            "nominal_accuracy": 1.0,
            "worst_accuracy": [1, 0.5],
        }
    )
    names = _curve_names(table.assign(best_accuracy=1.0))
    assert [*names] == ["certified_fraction", "nominal_accuracy"]
    assert [name.count(" = ") for name in names.values()] == [1, 1], "both names"
    assert len(_curve_names(table.assign(worst_accuracy=[1, 0.4], best_accuracy=[1, 0.9]))) == 4


def test_a_thin_line_is_drawn_over_a_thick_one() -> None:
    """Lines that run on one another over a part of their way are both seen there."""
    widths = [look["linewidth"] for look in CURVE_STYLES.values()]
    assert widths[0] > 2 * max(widths[1:])


@pytest.mark.parametrize(
    ("share", "words"), [(1.0, "1.000"), (0.99999, "0.999"), (0.9366, "0.937"), (0.0, "0.000")]
)
def test_all_is_said_of_all_alone(share: float, words: str) -> None:
    """In figures as in tables: of one certification, one number."""
    assert format_rate(share) == words


def test_panels_stand_in_the_order_that_is_given_or_as_they_come() -> None:
    names = ["eps = 1", "eps = 0.5", "eps = 10"]
    order = ["eps = 0.5", "eps = 1", "eps = 10", "eps = 100"]
    panels = [(name, pd.DataFrame()) for name in names]
    assert [name for name, _ in panels_in_order(panels, order)] == order[:3]
    assert [name for name, _ in panels_in_order(panels, ())] == names


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were drawn."""
    kept: list[Figure] = []
    whole = Figure.savefig

    def keep(self: Figure, *arguments: object, **more: object) -> None:
        kept.append(self)
        whole(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


def test_axes_end_with_the_data_and_no_label_meets_another(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    x = np.geomspace(0.02, 700, 9)
    rows = [{"x": v, "y": 0.5 + 0.4 * i / 9 * v / 700, "series": "mechanism "
                                                                 f"{i}", "panel": f"eps = {e}"}
            for i in range(9) for e in (10, 1, 0.1) for v in x]  # fmt: skip
    chart = Curves("c", "x", "y", "queries that share a "
                                  "budget", "expected "
                                                                 "accuracy", panels="panel",
                   order=("eps = 0.1", "eps = 1", "eps = 10"), level=0.95,
                   level_name="noise-free "
                              "$1$")  # fmt: skip
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, chart, pd.DataFrame(rows))
    figure = drawn[-1]
    axes = [one for one in figure.axes if one.axison]
    assert [one.get_title(loc="left") for one in axes] == ["eps = 0.1", "eps = 1", "eps = 10"]
    for one in axes:
        assert one.spines["bottom"].get_bounds() == pytest.approx((0.02, 700))
        assert one.spines["left"].get_bounds() == pytest.approx((0.5, 1.0)), "ticks around it"
        assert all(0.02 <= tick <= 700.1 for tick in one.get_xticks())

    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["noise-free $1$", *(f"mechanism {i}" for i in range(8, -1, -1))], (
        "the highest line first"
    )
    assert faults(figure) == []


def test_an_axis_of_names_ends_with_them(tmp_path: Path, drawn: list[Figure]) -> None:
    data = pd.DataFrame({"x": ["1 of 8", "2 of 8"], "y": (0.2, 0.4), "series": "one"})
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, Curves("c", "x", "y", "batches", "accuracy", log=False), data)
    (axes,) = (one for one in drawn[-1].axes if one.axison)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1 of 8", "2 of 8"]


def test_curves_that_nobody_could_tell_apart_are_one_with_both_names(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    x = np.arange(5.0)
    curve = {"one": x, "same": x + 1e-5, "other": x / 2}
    rows = [{"x": v, "y": y[int(v)], "series": name} for name, y in curve.items() for v in x]
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, Curves("c", "x", "y", "x", "y", log=False), pd.DataFrame(rows))
    names = {text.get_text() for text in drawn[-1].legends[0].get_texts()}
    assert names == {"one =\nsame", "other"}


def test_on_a_logarithmic_axis_small_curves_that_differ_many_fold_stay_apart(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    x = np.arange(1.0, 6.0)
    curve = {"worst case": 1e6 * x, "bound": x, "residual": 1e-4 * x}
    rows = [{"x": v, "y": y[int(v) - 1], "series": name} for name, y in curve.items() for v in x]
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, Curves("c", "x", "y", "x", "y", log=False, ylog=True), pd.DataFrame(rows))
    names = {text.get_text() for text in drawn[-1].legends[0].get_texts()}
    assert names == set(curve)


def test_a_logarithmic_axis_of_one_value_has_one_tick(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = [{"x": x, "y": 18000.0, "series": "one"} for x in (1.0, 2.0)]
    chart = Curves("c", "x", "y", "x", "y", log=False, ylog=True, level=18000.0)
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, chart, pd.DataFrame(rows))
    figure = drawn[-1]
    figure.draw_without_rendering()
    (axes,) = (one for one in figure.axes if one.axison)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["18,000"]
    assert list(axes.get_yticks(minor=True)) == []


@pytest.mark.parametrize(
    "name", ["short", "a head with removals on features of an untrained network"]
)
def test_long_names_leave_the_panel_its_width(
    name: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    rows = [{"x": x, "y": x, "series": name} for x in (0.0, 1.0)]
    rows += [{"x": x, "y": x / 2, "series": "other"} for x in (0.0, 1.0)]
    chart = Curves("c", "x", "y", "x", "y", log=False, beside=True)
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, chart, pd.DataFrame(rows))
    figure = drawn[-1]
    figure.draw_without_rendering()
    (axes,) = (one for one in figure.axes if one.axison)
    assert axes.get_position().width > 0.5


def test_looks_follow_from_method_members_and_profile_and_not_from_the_order() -> None:
    rows = [
        {"series": f"{method} {members} {profile}", "method": method, "members": members}
        | {"profile": profile}
        for method in ("smooth_cauchy", "noisy_argmax")
        for members in (1, 25)
        for profile in ("paper", "ours")
    ]
    looks = _styles(pd.DataFrame(rows))
    assert looks == _styles(pd.DataFrame(rows[::-1]))
    assert len({str(look) for look in looks.values()}) == len(rows)
    one = looks["smooth_cauchy 1 ours"]
    many = looks["smooth_cauchy 25 ours"]
    assert one["color"] == many["color"]
    assert one["linestyle"] != many["linestyle"]
    assert looks["smooth_cauchy 1 paper"]["markerfacecolor"] == "white"


def test_a_curve_may_have_a_look_of_its_own(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = [{"x": x, "y": x * slope, "series": f"{slope}"} for slope in (1, 2) for x in (1.0, 2.0)]
    chart = Curves("c", "x", "y", "x", "y", looks={"2": {"marker": "", "color": "red"}})
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, chart, pd.DataFrame(rows))
    looks = {line.get_label(): line for line in drawn[-1].axes[0].get_lines()}
    assert (looks["2"].get_marker(), looks["2"].get_color()) == ("", "red")
    assert looks["1"].get_marker()


def test_an_axis_of_shares_goes_from_0_to_1(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = [{"x": x, "y": 0.4 + 0.1 * x, "series": "one"} for x in (1.0, 2.0)]
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, Curves("c", "x", "y", "x", "y", share=True), pd.DataFrame(rows))
    ticks = drawn[-1].axes[0].get_yticks()
    assert (ticks[0], ticks[-1]) == (0, 1)


def test_a_share_of_0_on_a_logarithmic_axis_leaves_the_axis_its_end(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    rows = [{"x": x, "y": y, "series": "one"} for x, y in ((1.0, 0.1), (2.0, 0.0), (3.0, 0.01))]
    chart = Curves("c", "x", "y", "x", "y", log=False, ylog=True)
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, chart, pd.DataFrame(rows))
    assert drawn[-1].axes[0].spines["left"].get_bounds() == pytest.approx((0.01, 0.1))


def test_batches_that_are_not_enough_are_marks_on_the_line_of_all_records(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    rows = [
        {"depth": 1, "batch": 100.0, "low": 80.0, "high": 200.0},
        {"depth": 2, "batch": np.nan, "low": 500.0, "high": 1000.0},
    ]
    data = pd.DataFrame(rows).assign(series="privacy (ours)")
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        batches_by_depth(record, data, "batches", size=1000.0)
    lines = drawn[-1].axes[0].get_lines()
    shown = [line for line in lines if len(line.get_xydata())]
    empty = [line for line in shown if line.get_markerfacecolor() == "white"]
    assert [list(one.get_xydata()[0]) for one in empty] == [[2.0, 1000.0]]


def test_a_point_without_removals_is_shown_with_its_settings(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    rows = [
        {"removals": 0.0, "accuracy": 0.9, "lambda": 1e-4, "sigma": 0.1},
        {"removals": 50.0, "accuracy": 0.8, "lambda": 0.01, "sigma": 3.0},
    ]
    data = pd.DataFrame(rows).assign(series="ours", low=0.7, high=0.95)
    words = {"xlabel": "removals", "ylabel": "accuracy"}
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        named_points(
            record, data, "front", x="removals", y="accuracy", names=("lambda", "sigma"), **words
        )
    axes = drawn[-1].axes[0]
    low, high = axes.get_xlim()
    assert low < 0 < 50 < high
    assert {text.get_text() for text in axes.texts} == {"0.0001, 0.1", "0.01, 3"}


@pytest.mark.parametrize(
    ("certified", "drawn_rows"),
    [
        ([1, 0.5, 0, 0, 0, 0], 3),
        ([1, 1, 1, 1, 1, 1], 2),
        ([1, 0.9, 0.8, 0.7, 0.6, 0.5], 6),
        ([1, 0.9, 0.8, 0.7, 0.6, 0.6], 6),  # one row more is no reason to cut
    ],
)
def test_the_axis_ends_where_curves_stay_the_same(certified: list[float], drawn_rows: int) -> None:
    table = pd.DataFrame({"k": range(6), "certified_fraction": certified})
    assert figures._rows_until_constant(table) == drawn_rows


def test_legends_have_the_words_of_the_table() -> None:
    assert {*figures.LINE_NAMES} == {*figures.CURVE_STYLES}
    for column, title in COLUMN_TITLES.items():
        if column != "k":
            assert title.removeprefix("accuracy: ") in figures.LINE_NAMES[column]


def subject_of(relation: str, certificates: Certificates) -> LabelCertification:
    needed = {"perturb": {"radius": 0.125}}
    return LabelCertification(
        dataset="a table with a name of some length (synthetic)",
        queries_description="test records",
        relation=RelationConfig(name=relation, unit_rows=5, **needed.get(relation, {})),
        conditions=(),
        classes=("left", "right"),
        certificates=certificates,
        labelled=True,
    )


WORDIEST = sorted(RELATIONS, key=lambda name: len(RELATIONS[name].describe_counted(5, 0.125)))[-2:]


@pytest.mark.parametrize("relation", ["add_remove", *WORDIEST])
def test_figures_of_a_certification_can_be_read_whatever_k_counts(
    relation: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    ks = tuple(range(41))
    grid = Grid.around(np.array([[-1.0, -1.0], [1.0, 1.0]]), 12)
    # the stable distance grows with the distance from the line between the classes
    margin = grid.points.sum(axis=1)
    certified = np.abs(margin)[None] * 18 >= np.array(ks)[:, None]
    prediction = (margin > 0).astype(np.int64)
    certificates = Certificates(ks, relation, prediction, certified)  # type: ignore[arg-type]
    subject = subject_of(relation, certificates)
    labels = np.roll(prediction, 3)
    table = pd.DataFrame(certificates.table(labels))
    with RunRecord(tmp_path / "run", "certify", {}) as record:
        figures.draw_certified_fraction(record, subject, table)
        figures.draw_distance_histogram(record, subject, labels)
        figures.draw_plane_map(
            record, subject, grid, certificates, margin[None], grid.points[::5], prediction[::5]
        )
    assert len({*map(id, drawn)}) == 3
    assert [fault for figure in drawn for fault in faults(figure)] == []


def test_a_histogram_has_no_rows_beyond_its_data(tmp_path: Path, drawn: list[Figure]) -> None:
    distances = np.array([22, 23, 37])
    ks = tuple(range(41))
    certified = distances[None] >= np.array(ks)[:, None]
    certificates = Certificates(ks, "remove", np.zeros(3, dtype=np.int64), certified)
    with RunRecord(tmp_path / "run", "certify", {}) as record:
        figures.draw_distance_histogram(record, subject_of("remove", certificates), None)
    rows = [bar.get_width() for bar in drawn[-1].axes[0].patches]
    assert rows[0] > 0
    assert rows[-1] > 0
    assert sum(rows) == 3
    assert len(pd.read_csv(tmp_path / "run" / "figures" / "stable_distances.csv")) > len(rows)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0066, 0.0145), (1e-12, 1.0), (3e-6, 4e-6), (2, 150), (40, 60)]
)
def test_a_logarithmic_axis_has_several_ticks(
    low: float, high: float, tmp_path: Path, drawn: list[Figure]
) -> None:
    rows = [{"x": x, "y": y, "series": "one"} for x, y in ((1.0, low), (2.0, high))]
    chart = Curves("c", "x", "y", "x", "y", log=False, ylog=True)
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, chart, pd.DataFrame(rows))
    assert faults(drawn[-1]) == []


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_marks_in_several_panels_can_be_read(
    count: int, tmp_path: Path, drawn: list[Figure]
) -> None:
    panels = [f"a method of so many words, part {place}" for place in range(count)]
    rows = [
        {"panel": panel, "query": f"query {query}", "series": series, "k": k, "low": k, "high": k}
        for panel in panels
        for query in (1, 2)
        for series, k in (("at least", query), ("at most", 40 * query))
    ]
    words = {"series": "series", "panels": "panel", "xlabel": "records changed", "panel": "{}"}
    with RunRecord(tmp_path / "run", "reproduce", {}) as record:
        marks(record, pd.DataFrame(rows), "marks", x="k", y="query", log=True, **words)
    assert faults(drawn[-1]) == []
    assert drawn[-1].get_figwidth() < 10


@pytest.mark.parametrize("most", [3, 4, 6, 120])
def test_an_axis_of_counts_has_no_tick_between_whole_numbers(
    most: int, tmp_path: Path, drawn: list[Figure]
) -> None:
    counts = [2, most]
    data = pd.DataFrame({"k": counts, "low": counts, "high": counts, "query": ["one", "other"]})
    columns = {"x": "k", "y": "query", "series": "series", "panels": "panel"}
    data = data.assign(series="exactly", panel="linear head")
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        marks(record, data, "marks", **columns, xlabel="k", panel="{}", whole_numbers=True)
    ticks = drawn[-1].axes[0].get_xticks()
    assert all(tick.is_integer() for tick in ticks)
    assert ticks[0] <= 2
    assert most <= ticks[-1]
    assert faults(drawn[-1]) == []


def test_what_cannot_be_read_is_found() -> None:
    figure = Figure(figsize=(4, 3))
    first, second, empty = figure.subplots(1, 3)
    first.plot([1, 2], [1, 2], color="0.30", label="one")
    first.plot([1, 2], [2, 1], color="0.32", label="other")
    first.legend(loc="center")
    first.set(xlabel="x", ylabel="y")
    second.plot([1, 2], [1, 2])
    second.yaxis.set_major_locator(NullLocator())
    second.set_xticks([1.5])
    empty.set(xlabel="x", ylabel="y")
    figure.suptitle("a heading\n= 25", x=0.99)
    found = faults(figure)
    kinds = ("leaves", "equals sign", "empty", "no name", "one tick", "covers", "in grey")
    assert [kind for kind in kinds if not any(kind in fault for fault in found)] == []
    for words in ("here", "there"):
        first.text(1, 1, words)
    assert any("overlaps" in fault for fault in faults(figure))


@pytest.mark.parametrize("low", [0.0008, 0.0065, 0.23])
@pytest.mark.parametrize("ratio", [1.06, 1.5, 2.6, 5, 12, 80])
def test_ticks_of_a_narrow_logarithmic_range_are_few(
    tmp_path: Path, drawn: list[Figure], low: float, ratio: float
) -> None:
    seconds = low * np.geomspace(1, ratio, 4)
    data = pd.DataFrame({"seconds": seconds, "low": seconds, "high": seconds})
    data = data.assign(method=["newton", "sisa", "retrain", "newton"], set=[*"aaab"], unit="2")
    columns = {"x": "seconds", "y": "method", "series": "set", "panels": "unit"}
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        marks(record, data, "marks", **columns, xlabel="seconds", panel="{}", log=True)
    assert faults(drawn[-1]) == []


def test_a_hidden_curve_few_ticks_and_marks_off_their_places_are_found() -> None:
    figure = Figure(figsize=(8, 3))
    hidden, ticks, shifted = figure.subplots(1, 3)
    hidden.plot([1, 2, 3], [1, 2, 3], color="blue", linewidth=1, label="below")
    hidden.plot([1, 2, 3], [1, 2, 3], color="black", linewidth=3, label="above")
    ticks.plot([1, 2, 3], [0.31, 0.5, 0.97])
    ticks.set_yticks([0.5, 0.75])
    shifted.plot([0.95, 1.95], [1, 2], "o", label="one")
    shifted.plot([1.05, 2.05], [5, 6], "v", label="other")
    for axes in (hidden, ticks, shifted):
        axes.set(xlabel="x", ylabel="y")
    found = faults(figure)
    planted = ("'below' is hidden", "few ticks", "beyond the ticks", "off their places")
    assert [sum(kind in fault for fault in found) for kind in planted] == [1, 1, 1, 1]
    assert not any("'above' is hidden" in fault for fault in found)


def test_curves_that_only_meet_are_drawn_as_they_are() -> None:
    axes = Figure().subplots()
    x = np.linspace(0, 1, 101)
    heights = {"falls": 1 - x, "rises": x, "bends": (1 - x) ** 1.1}
    curves = [axes.plot(x, y, label=name, gid=CURVE_GID)[0] for name, y in heights.items()]
    widths = [curve.get_linewidth() for curve in curves]
    axes.set(xlim=(0, 1), ylim=(0, 1))
    widen_covered_curves([axes])
    assert [curve.get_linewidth() for curve in curves] == widths


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_curve_is_wider_for_each_that_runs_on_it_and_below_it(scale: str) -> None:
    axes = Figure().subplots()
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    heights = {"below": x, "between": x, "above": np.minimum(x, 100)}
    curves = [axes.plot(x, y, label=name, gid=CURVE_GID)[0] for name, y in heights.items()]
    axes.plot(x, x, label="to compare with")
    width = curves[0].get_linewidth()
    axes.set(xscale=scale, yscale=scale, xlim=(1, 1000), ylim=(1, 1000))
    widen_covered_curves([axes])
    runs_on_both = 0 if scale == "linear" else 1  # a tenth of the width, and two thirds
    extra = [1 + runs_on_both, runs_on_both, 0]
    widths = [width + COVERED_EXTRA_WIDTH * count for count in extra]
    assert [curve.get_linewidth() for curve in curves] == pytest.approx(widths)
    assert sorted(curves, key=lambda curve: curve.get_zorder()) == curves


def test_curves_that_run_on_one_another_in_part_are_all_seen(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    covered = {
        "below": (1.0, 1.0, 1.0, 1.0, 1.0),
        "falls": (1.0, 1.0, 1.0, 0.8, 0.6),
        "rises": (0.6, 0.8, 1.0, 1.0, 1.0),
    }
    rows = [
        {"x": x, "y": y, "series": name}
        for name, heights in covered.items()
        for x, y in enumerate(heights)
    ]
    plain = {
        name: {"linestyle": "-", "marker": "", "color": colour}
        for name, colour in zip(covered, ("black", "0.3", "0.6"), strict=True)
    }
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        chart = Curves("c", "x", "y", "x", "y", log=False, looks=plain)
        curves(record, chart, pd.DataFrame(rows))
    assert faults(drawn[-1]) == []
    lines = {line.get_label(): line for line in drawn[-1].axes[0].get_lines()}
    lines["below"].set_linewidth(lines["rises"].get_linewidth())
    assert any("'below' is hidden" in fault for fault in faults(drawn[-1]))


def test_equal_curves_of_every_method_and_variant_are_named_once(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    names = [f"{method}, T = {members}" for method in ("one", "other") for members in (1, 25)]
    rows = [{"x": x, "y": x, "series": name} for name in names for x in (1.0, 2.0, 3.0)]
    rows += [{"x": x, "y": x / 2, "series": "low"} for x in (1.0, 2.0, 3.0)]
    with RunRecord(tmp_path / "run", "plan", {}) as record:
        curves(record, Curves("c", "x", "y", "x", "y"), pd.DataFrame(rows))
    shown = {text.get_text() for text in drawn[-1].legends[0].get_texts()}
    assert shown == {"one =\nother, T = 1 and 25", "low"}


@pytest.mark.parametrize(
    ("low", "high"), [(0.9892, 0.9892), (0.27, 1.0), (0.0, 0.0), (0.63, 0.88), (3, 700), (1, 1)]
)
def test_ticks_cover_the_data_and_shares_stay_shares(low: float, high: float) -> None:
    ticks = figures.covering_ticks(low, high)
    assert len(ticks) >= 3
    assert ticks[0] <= low
    assert high <= ticks[-1]
    if high <= 1:
        assert ticks[0] >= 0
        assert ticks[-1] <= 1 + 1e-9


def test_batches_are_off_their_depth_only_where_they_would_meet(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    for other, depths in ((1000.0, {1.0}), (110.0, {0.955, 1.045})):
        rows = [
            {"depth": 1, "batch": batch, "low": batch, "high": batch, "series": name}
            for name, batch in (("one", 100.0), ("other", other))
        ]
        with RunRecord(tmp_path / str(other), "plan", {}) as record:
            batches_by_depth(record, pd.DataFrame(rows), "batches", size=5000.0)
        lines = [line for line in drawn[-1].axes[0].get_lines() if line.get_label()[0] == "o"]
        found = {round(float(x), 3) for line in lines for x in line.get_xdata()}
        assert found == depths
