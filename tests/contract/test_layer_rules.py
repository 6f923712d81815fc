"""What every layer rule owes (agt/bounds/rules.py), for each entry of the registry: a new entry
inherits this suite.

No tolerance where the claims are about numbers as computed. Each check counts violations, so that
it proves itself twice: none for the rules as they are, some for each rule broken on purpose.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from synthetic import random_interval, sample
from torch import Tensor, nn

from agt.bounds.activations import ELEMENTWISE, ElementwiseRule
from agt.bounds.box import Intervals, Point
from agt.bounds.convolution import ConvRule
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import LayerRule
from agt.bounds.pooling import AvgPoolRule
from agt.bounds.products import EXACT, Products, corners
from agt.bounds.rounding import Rounding
from agt.bounds.rules import RULES, rules_for
from agt.errors import ConfigError
from agt.models.heads import describe_layers, from_layers

WIDTH = 3
IMAGE = (2, 4, 5)
KS = (0, 3, 40)
DTYPES = ("float64", "float32")
# How to make a layer, where its type alone does not say; several settings of one type may be
# listed.
LAYERS: dict[type[nn.Module], tuple[Callable[[], nn.Module], ...]] = {
    nn.Linear: (lambda: nn.Linear(WIDTH, 4), lambda: nn.Linear(WIDTH, 2, bias=False)),
    nn.LeakyReLU: (
        nn.LeakyReLU,
        lambda: nn.LeakyReLU(0.0),
        lambda: nn.LeakyReLU(0.7),
        lambda: nn.LeakyReLU(1.0),
    ),
    nn.AvgPool2d: (
        lambda: nn.AvgPool2d(2),
        lambda: nn.AvgPool2d(3, stride=1, padding=1),
        lambda: nn.AvgPool2d((2, 3), stride=(3, 2), padding=(1, 0), count_include_pad=False),
    ),
    nn.Conv2d: (
        lambda: nn.Conv2d(2, 3, 2),
        lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), groups=2, bias=False),
        lambda: nn.Conv2d(2, 1, 2, stride=(1, 2), padding=(0, 1), dilation=(3, 2)),
    ),
    nn.Unflatten: (lambda: nn.Unflatten(1, (1, WIDTH, 1)),),
}
# The others take rows.
RECORDS: dict[type[nn.Module], tuple[int, ...]] = dict.fromkeys(
    (nn.Flatten, nn.AvgPool2d, nn.Conv2d), IMAGE
)
EVERY = [(kind, make) for kind in RULES for make in LAYERS.get(kind, (kind,))]
NAMES = [
    f"{kind.__name__}{i or ''}" for kind in RULES for i in range(len(LAYERS.get(kind, (kind,))))
]
SHAPES = ("ordinary", "points", "slivers", "turns", "huge")
OF_TRAINED = [
    (make, name)
    for (kind, make), name in zip(EVERY, NAMES, strict=True)
    if kind in (nn.Linear, nn.Conv2d)
]
trained = pytest.mark.parametrize(
    "make", [make for make, _ in OF_TRAINED], ids=[name for _, name in OF_TRAINED]
)
rules = pytest.mark.parametrize("make", [make for _, make in EVERY], ids=NAMES)


@dataclass(frozen=True)
class Setting:
    """A layer, its rule, bounds of its parameters, of inputs x and of gradients d, for each k of
    ``KS``.
    """

    layer: nn.Module
    rule: LayerRule
    box: Intervals
    x: Interval
    d: Interval
    rounding: Rounding


def rule_of(layer: nn.Module) -> LayerRule:
    return rules_for(nn.Sequential(layer))[0]


def inputs(rng: np.random.Generator, shape: str, size: tuple[int, ...], dtype: str) -> Interval:
    """Intervals of size [K, n, ...]: one for each k, as is usual after a layer that was bounded
    for each.
    """
    if shape == "ordinary":
        return random_interval(rng, *size, radius=2.0, dtype=dtype)
    centre = torch.from_numpy(rng.normal(size=size) * rng.choice([0.1, 1.0, 4.0, 30.0], size)).to(
        getattr(torch, dtype)
    )
    if shape == "points":
        return Interval(centre, centre.clone())
    if shape == "slivers":  # a few neighbouring numbers: here rounding decides
        return Interval(centre, centre + centre.abs() * torch.finfo(centre.dtype).eps * 3)
    if shape == "huge":
        reach = torch.as_tensor(10.0 ** rng.uniform(0, 15, size), dtype=centre.dtype)
        return Interval(centre - reach, centre + reach)
    # Where functions of one number turn: 0, -.7518, +-sqrt 2; softplus's threshold.
    turns = torch.from_numpy(
        rng.choice([0.0, -0.7517915246935645, 2**0.5, -(2**0.5), 20.0], size)
    ).to(centre.dtype)
    below, above = (
        torch.as_tensor(rng.choice([0.0, 1e-16, 1e-7, 0.3, 2.0], size), dtype=centre.dtype)
        for _ in range(2)
    )
    return Interval(turns - below, turns + above)


def setting(
    make: Callable[[], nn.Module], shape: str, dtype: str, n: int = 40, seed: int = 0
) -> Setting:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    layer = make().to(getattr(torch, dtype))
    x = inputs(rng, shape, (len(KS), n, *RECORDS.get(type(layer), (WIDTH,))), dtype)
    box = {
        f"0.{name}": random_interval(rng, len(KS), *p.shape, radius=0.4, dtype=dtype)
        for name, p in layer.named_parameters()
    }
    d = random_interval(rng, len(KS), *layer(x.lower[0]).shape, dtype=dtype)
    rounding = Rounding.for_grid(KS, x.lower.dtype, torch.device("cpu"))
    return Setting(layer, rule_of(layer), box, x, d, rounding)


def draws(at: Setting, samples: int) -> Iterator[tuple[int, Tensor, Tensor, Point]]:
    """(k's index, an input, a gradient, parameters), ends as often as insides."""
    rng = np.random.default_rng(1)
    for index in range(samples):
        x, d = (sample(rng, interval, corners=index % 2 == 0) for interval in (at.x, at.d))
        values = {
            name: sample(rng, interval, corners=index % 2 == 0) for name, interval in at.box.items()
        }
        for k in range(len(KS)):
            yield k, x[k], d[k], {name: value[k] for name, value in values.items()}


def beyond(bound: Interval, value: Tensor) -> int:
    return int((~((bound.lower <= value) & (value <= bound.upper))).sum())


def record_gradients(at: Setting, d: Tensor, x: Tensor) -> dict[str, Tensor]:
    """Parameter -> [n, its shape], the gradients of each record as computed: in float64, and not
    clipped.
    """
    parts: dict[str, list[Tensor]] = {}
    for name, factor, other in at.rule.nominal_gradients(d.double(), x.double()):  # type: ignore[attr-defined]
        value = factor if other is None else factor[:, :, None] * other[:, None, :]
        parts.setdefault(name, []).append(value.reshape(len(value), *at.box[name].shape[1:]))
    return {name: torch.cat(blocks) for name, blocks in parts.items()}


def gradient_bounds(at: Setting, d: Interval, x: Interval, rounding: Rounding) -> Intervals:
    """Parameter -> bounds on them, [K, n, its shape]."""
    parts: dict[str, list[Interval]] = {}
    for part in at.rule.gradients(d.double(), x.double(), rounding.double(), EXACT):  # type: ignore[attr-defined]
        bound = (
            part.left_factor
            if part.right_factor is None
            else Interval(*corners(part.left_factor[..., None], part.right_factor[..., None, :]))
        )
        shape = (*bound.shape[:2], *at.box[part.parameter].shape[1:])
        reshaped = bound.rearranged(lambda end: end.reshape(shape))  # noqa: B023
        parts.setdefault(part.parameter, []).append(reshaped)
    return {
        name: Interval(
            *(torch.cat([getattr(b, end) for b in blocks], dim=1) for end in ("lower", "upper"))
        )
        for name, blocks in parts.items()
    }


PASSES = ("forward", "backward")
GRADIENTS = ("0.weight", "0.bias")


def values(at: Setting, d: Tensor, x: Tensor, point: Point) -> dict[str, Tensor]:
    """What a layer computes: both passes, and the gradients of single records in its parameters."""
    passes = at.rule.nominal(x, point), at.rule.nominal_backward(d, x, point)
    return dict(zip(PASSES, passes, strict=True)) | (record_gradients(at, d, x) if at.box else {})


def bounds(at: Setting, d: Interval, x: Interval, box: Intervals, rounding: Rounding) -> Intervals:
    """Bounds on each of ``values``, for each k."""
    passes = (
        at.rule.bound(x, box, rounding, EXACT),
        at.rule.bound_backward(d, x, box, rounding, EXACT),
    )
    return dict(zip(PASSES, passes, strict=True)) | (
        gradient_bounds(at, d, x, rounding) if at.box else {}
    )


def outside(at: Setting, samples: int = 40, of: tuple[str, ...] = (*PASSES, *GRADIENTS)) -> int:
    """Computed values outside their bounds; each also computed for one record alone."""
    bound = bounds(at, at.d, at.x, at.box, at.rounding)
    count = 0
    for k, x, d, point in draws(at, samples):
        for rows in (slice(None), slice(0, 1)):
            computed = values(at, d[rows], x[rows], point)
            count += sum(
                beyond(bound[name][k, rows], value)
                for name, value in computed.items()
                if name in of
            )
    return count


def unnested(at: Setting, shares: tuple[float, ...] = (0.0, 1e-9, 0.3)) -> int:
    """Ends of bounds, for each k - 1 and inner intervals, beyond those for k; also of one record
    alone.
    """
    rng = np.random.default_rng(2)
    count = 0
    outer = Rounding.for_grid([k + 1 for k in KS], at.x.lower.dtype, torch.device("cpu"))
    wide = bounds(at, at.d, at.x, at.box, outer)
    for share in shares:
        x = inner(rng, at.x, share)
        d = inner(rng, at.d, share)
        box = {n: inner(rng, i, share) for n, i in at.box.items()}
        for rows in (slice(None), slice(0, 1)):
            for name, small in bounds(at, d[:, rows], x[:, rows], box, at.rounding).items():
                big = wide[name][:, rows]
                count += int((big.lower > small.lower).sum() + (small.upper > big.upper).sum())
    return count


def inner(rng: np.random.Generator, interval: Interval, share: float) -> Interval:
    """Within the interval, each end moved by up to ``share`` of the width."""
    width = interval.upper - interval.lower
    moves = [
        torch.as_tensor(rng.random(interval.shape) * share / 2, dtype=width.dtype) * width
        for _ in range(2)
    ]
    lower = torch.minimum(interval.lower + moves[0], interval.upper)
    return Interval(
        lower, torch.maximum(lower, torch.minimum(interval.upper - moves[1], interval.upper))
    )


# -- the contract


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES)
@rules
def test_computed_values_and_gradients_lie_within_their_bounds_which_nest(
    make: Callable, dtype: str
) -> None:
    for shape in SHAPES:
        at = setting(make, shape, dtype, n=20)
        assert outside(at, 16) == unnested(at) == 0, shape
        if isinstance(at.rule, ConvRule):  # of numbers not below 0, as a ReLU leaves them
            x = Interval(at.x.lower.clamp(min=0), at.x.upper.clamp(min=0))
            at = replace(at, x=x, rule=replace(at.rule, nonnegative=True))
            assert outside(at, 16) == unnested(at) == 0, shape


@trained
def test_gradients_of_single_records_are_autograds(make: Callable) -> None:
    at = setting(make, "ordinary", "float64", n=5)
    point = {name: interval.lower[0] for name, interval in at.box.items()}
    values = record_gradients(at, at.d.lower[0], at.x.lower[0])
    for row in range(5):
        leaves = {name[2:]: value.clone().requires_grad_() for name, value in point.items()}
        y = torch.func.functional_call(at.layer, leaves, (at.x.lower[0, row : row + 1],))
        y.backward(at.d.lower[0, row : row + 1])
        for name, leaf in leaves.items():
            torch.testing.assert_close(values[f"0.{name}"][row], leaf.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_bounds_on_gradients_are_reached(nonnegative: bool) -> None:
    """Brute force over every vertex of a record's d (two positions) and of its image (six
    numbers).
    """
    at = setting(lambda: nn.Conv2d(2, 1, (1, 2)), "ordinary", "float64")
    rng = np.random.default_rng(0)
    x = random_interval(rng, 1, 1, 2, 1, 3)
    d = random_interval(rng, 1, 1, 1, 1, 2)
    x = Interval(x.lower.clamp(min=0), x.upper.clamp(min=0)) if nonnegative else x
    at = replace(at, rule=replace(at.rule, nonnegative=nonnegative))
    values = {
        name: torch.cat(
            [record_gradients(at, *vertex)[name] for vertex in product(vertices(d), vertices(x))]
        )
        for name in at.box
    }
    for name, bound in gradient_bounds(
        at, d, x, Rounding.for_grid((0,), x.lower.dtype, x.lower.device)
    ).items():
        torch.testing.assert_close(bound.lower[0, 0], values[name].amin(0), rtol=0, atol=1e-12)
        torch.testing.assert_close(bound.upper[0, 0], values[name].amax(0), rtol=0, atol=1e-12)


def vertices(interval: Interval) -> list[Tensor]:
    """Every combination of ends, each without the axis of k."""
    ends = zip(interval.lower.flatten().tolist(), interval.upper.flatten().tolist(), strict=True)
    return [
        torch.tensor(point, dtype=torch.float64).view(interval.shape)[0] for point in product(*ends)
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@rules
def test_the_nominal_pass_is_pytorchs(make: Callable, dtype: str) -> None:
    at = setting(make, "ordinary", dtype)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for k, x, d, point in draws(at, 4):
        with torch.no_grad():
            for name, parameter in at.layer.named_parameters():
                parameter.copy_(point[f"0.{name}"])
        at_x = x.clone().requires_grad_()
        y = at.layer(at_x)
        y.backward(d)
        torch.testing.assert_close(
            at.rule.nominal(x, point), y.detach(), rtol=tolerance, atol=tolerance
        )
        torch.testing.assert_close(
            at.rule.nominal_backward(d, x, point), at_x.grad, rtol=tolerance, atol=tolerance
        )
        assert k in range(len(KS))


@rules
def test_bounds_are_little_wider_than_what_is_reached(make: Callable) -> None:
    """Brute force over 501 points of each input's interval: one input at a time, parameters and
    gradient being points.
    """
    at = setting(make, "ordinary", "float64", n=6)
    at = replace(
        at,
        box={n: Interval(i.lower, i.lower.clone()) for n, i in at.box.items()},
        d=Interval(at.d.lower, at.d.lower.clone()),
        rounding=Rounding.for_grid((0,) * len(KS), torch.float64, torch.device("cpu")),
    )
    point = {n: i.lower[0] for n, i in at.box.items()}
    width = torch.zeros_like(at.x.lower)
    width.flatten(2)[..., 0] = (at.x.upper - at.x.lower).flatten(2)[..., 0]
    x = Interval(at.x.lower, at.x.lower + width)
    bound = at.rule.bound(x, at.box, at.rounding, EXACT)
    back = at.rule.bound_backward(at.d, x, at.box, at.rounding, EXACT)
    path = [x.lower[0] + step * width[0] for step in torch.linspace(0, 1, 501, dtype=torch.float64)]
    for found, values in (
        (bound, torch.stack([at.rule.nominal(p, point) for p in path])),
        (back, torch.stack([at.rule.nominal_backward(at.d.lower[0], p, point) for p in path])),
    ):
        torch.testing.assert_close(found.lower[0], values.amin(0), rtol=0, atol=2e-3)
        torch.testing.assert_close(found.upper[0], values.amax(0), rtol=0, atol=2e-3)


@rules
def test_a_point_of_no_k_gets_bounds_for_every_k(make: Callable) -> None:
    """The first layer's input: one slice, K = 1."""
    at = setting(make, "points", "float64")
    x = Interval.point(at.x.lower[:1])
    bound = at.rule.bound(x, at.box, at.rounding, EXACT)
    assert bound.shape[0] in (1, len(KS))
    for k, _, _, point in draws(at, 4):
        assert beyond(bound[min(k, bound.shape[0] - 1)], at.rule.nominal(x.lower[0], point)) == 0


@rules
def test_a_layer_that_was_saved_has_the_same_rule(make: Callable) -> None:
    """As a network's description keeps it: plain values, through JSON."""
    at = setting(make, "turns", "float64")
    (layer,) = from_layers(json.loads(json.dumps(describe_layers(nn.Sequential(at.layer)))))
    for _, x, d, point in draws(at, 2):
        assert torch.equal(rule_of(layer).nominal(x, point), at.rule.nominal(x, point))
        assert torch.equal(
            rule_of(layer).nominal_backward(d, x, point), at.rule.nominal_backward(d, x, point)
        )


@pytest.mark.parametrize("kind", list(RULES), ids=lambda kind: kind.__name__)
def test_subclasses_and_unknown_layers_have_no_rule(kind: type[nn.Module]) -> None:
    layer = LAYERS.get(kind, (kind,))[0]()
    layer.__class__ = type("Changed", (kind,), {})
    for unknown in (layer, nn.Mish()):
        with pytest.raises(ConfigError, match="layer 0"):
            rule_of(unknown)


# -- activations: margins and turning points

EXACTLY: dict[type[nn.Module], tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    nn.LeakyReLU: (lambda x: x if x > 0 else x * 0.01, lambda x: 1 if x > 0 else 0.01),
    nn.Tanh: (mpmath.tanh, lambda x: mpmath.sech(x) ** 2),
    nn.Sigmoid: (
        lambda x: 1 / (1 + mpmath.exp(-x)),
        lambda x: mpmath.exp(-abs(x)) / (1 + mpmath.exp(-abs(x))) ** 2,
    ),
    nn.Softplus: (
        lambda x: mpmath.log1p(mpmath.exp(-abs(x))) + max(x, 0),
        lambda x: 1 / (1 + mpmath.exp(-x)),
    ),
    nn.GELU: (lambda x: x * mpmath.ncdf(x), lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x)),
}
activations = pytest.mark.parametrize("kind", list(ELEMENTWISE), ids=lambda kind: kind.__name__)


@pytest.mark.parametrize("dtype", DTYPES)
@activations
def test_computed_functions_err_by_less_than_half_the_margin(
    kind: type[nn.Module], dtype: str
) -> None:
    """High precision at points of every size; a vector and its scalar tail (a length that no
    vector unit divides).
    """
    s = ELEMENTWISE[kind](kind())
    rng = np.random.default_rng(0)
    numbers = np.concatenate(
        [
            rng.normal(size=400) * 10.0 ** rng.uniform(-6, 2.5, 400),
            rng.normal(size=199) * 3,
            *[[0.0]],
        ]
    )
    x = torch.from_numpy(numbers[:-1]).to(getattr(torch, dtype))
    unit = torch.finfo(x.dtype).eps / 2
    value = s.value(x)
    slope = s.slope(x)
    margin = max(s.margin, 4)  # without margin: one rounding, and a float32 constant's
    grows = max(map(abs, s.value_range)) == np.inf
    with mpmath.workdps(40):
        for at, y, dy in zip(x.tolist(), value.tolist(), slope.tolist(), strict=True):
            exact, derivative = (f(mpmath.mpf(at)) for f in EXACTLY[kind])
            assert abs(y - exact) <= margin / 2 * unit * (1 + abs(at) if grows else 1), at
            assert abs(dy - derivative) <= margin / 2 * unit, at
            assert s.value_range[0] <= exact <= s.value_range[1]
            assert s.slope_range[0] <= derivative <= s.slope_range[1]


@activations
def test_functions_are_monotone_between_the_turning_points(kind: type[nn.Module]) -> None:
    """In high precision, on a grid from -9 to 9; at each turning point they do turn."""
    s = ELEMENTWISE[kind](kind())
    grid = [mpmath.mpf(i) / 50 for i in range(-450, 451)]
    for f, turns in zip(EXACTLY[kind], (s.turning_points, s.slope_turning_points), strict=True):
        with mpmath.workdps(40):
            ends = [grid[0], *map(mpmath.mpf, turns), grid[-1]]
            signs = []
            for low, high in pairwise(ends):
                values = [f(p) for p in [low, *[g for g in grid if low < g < high], high]]
                steps = [b - a for a, b in pairwise(values)]
                assert all(step >= 0 for step in steps) or all(step <= 0 for step in steps)
                signs.append(sum(steps) > 0)
            assert all(a != b for a, b in pairwise(signs))


@activations
def test_no_number_is_too_large(kind: type[nn.Module]) -> None:
    rule = rule_of(kind())
    for size in (1e3, 1e30, 1e300):
        x = Interval(*(torch.full((1, 1, 1), v, dtype=torch.float64) for v in (-size, size)))
        d = Interval.point(torch.ones(1, 1, 1, dtype=torch.float64))
        rounding = Rounding.for_grid((1,), torch.float64, torch.device("cpu"))
        assert torch.isfinite(rule.bound(x, {}, rounding, EXACT).lower).all()
        assert rule.bound_backward(d, x, {}, rounding, EXACT).upper.item() <= 1.13


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.GELU(approximate="tanh"), "approximate='tanh'"),
        (nn.Softplus(beta=2), "beta=2"),
        (nn.Softplus(threshold=5), "threshold=5"),
        (nn.LeakyReLU(-0.1), "negative_slope=-0.1"),
        (nn.LeakyReLU(1.5), "negative_slope=1.5"),
        (nn.AvgPool2d(2, ceil_mode=True), "ceil_mode=True"),
        (nn.AvgPool2d(2, divisor_override=3), "divisor_override=3"),
        (nn.AvgPool2d(3, padding=2), "a padding of at most half the size"),
        (nn.AvgPool2d(2, stride=0), "strides of at least 1"),
        (nn.Conv2d(1, 1, 3, padding="same"), "padding='same'"),
        (nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"), "padding_mode='circular'"),
        (
            nn.Unflatten(1, (2, 3)),
            r"nn.Unflatten\(1, \(channels, height, width",
        ),
    ],
)
def test_settings_without_a_rule_are_refused(layer: nn.Module, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rule_of(layer)


# -- broken on purpose


def padded_otherwise(patch: pytest.MonkeyPatch) -> None:
    """Bounds see the image's edge where the nominal pass sees the padding's zeros."""

    def edged(self: ConvRule, x: Tensor) -> Tensor:
        down, right = self.padding
        front = x.flatten(0, 1)
        wide = nn.functional.pad(front, (right, right, down, down), mode="replicate").unflatten(
            0, x.shape[:2]
        )
        return replace(self, padding=(0, 0))._unfold(wide, leading_axes=2)

    patch.setattr(ConvRule, "_unfold_each_k", edged)


def a_position_dropped(patch: pytest.MonkeyPatch) -> None:
    """Bounds on gradients leave the last position out."""
    rows = ConvRule._group_outputs

    def fewer(self: ConvRule, d: Tensor) -> Tensor:
        kept = rows(self, d).clone()
        kept[..., -1] = 0 if d.dim() > 4 else kept[..., -1]
        return kept

    patch.setattr(ConvRule, "_group_outputs", fewer)


def never_widened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rounding, "widen", lambda self, bounds, error_bound: Interval(*bounds))


def unsigned(patch: pytest.MonkeyPatch) -> None:
    """The formula for numbers that are not below 0, for all."""
    forward = Products.forward
    patch.setattr(
        Products,
        "forward",
        lambda self, x, weights, nonnegative=False: _ordered(*forward(self, x, weights, True)),
    )


def _ordered(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return torch.minimum(a, b), torch.maximum(a, b)


@pytest.mark.parametrize(
    ("broken", "shape"),
    [
        (padded_otherwise, "slivers"),
        (a_position_dropped, "slivers"),
        (unsigned, "ordinary"),
        (never_widened, "points"),
    ],
)
def test_the_checks_catch_a_broken_convolution(
    broken: Callable[[pytest.MonkeyPatch], None], shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = setting(lambda: nn.Conv2d(2, 3, 2, padding=1), shape, "float64")
    if shape == "points":  # all of them, so that rounding alone decides
        at = replace(
            at, d=_middle(at.d), box={name: _middle(interval) for name, interval in at.box.items()}
        )
    assert outside(at) == 0
    broken(monkeypatch)
    assert outside(at, 5, GRADIENTS) > 0
    assert outside(at, 5, PASSES) > 0


@dataclass(frozen=True)
class Narrow:
    """Any rule, with its bounds taken at the middle of the input's intervals, forward or
    backward.
    """

    rule: LayerRule
    back: bool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rule, name)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        return self.rule.bound(x if self.back else _middle(x), box, rounding, products)

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        d, x = (_middle(d), _middle(x)) if self.back else (d, x)
        return self.rule.bound_backward(d, x, box, rounding, products)


def _middle(x: Interval) -> Interval:
    middle = (x.lower + x.upper) / 2
    return Interval(middle, middle.clone())


@pytest.mark.parametrize("back", [False, True], ids=["forward", "backward"])
@rules
def test_the_checks_catch_a_rule_that_ignores_widths(make: Callable, back: bool) -> None:
    at = setting(make, "ordinary", "float64")
    assert outside(replace(at, rule=Narrow(at.rule, back)), of=PASSES) > 0


def without(at: Setting, **changes: Any) -> Setting:
    assert isinstance(at.rule, ElementwiseRule)
    return replace(at, rule=replace(at.rule, activation=replace(at.rule.activation, **changes)))


def rough(at: Setting) -> Setting:
    """The same on a worse machine: each evaluation of s and s' errs anew, by up to half the
    margin more.
    """
    assert isinstance(at.rule, ElementwiseRule)
    s = at.rule.activation
    unit = torch.finfo(at.x.lower.dtype).eps / 2
    generator = torch.Generator().manual_seed(0)

    def erring(function: Callable[[Tensor], Tensor], grows: bool) -> Callable[[Tensor], Tensor]:
        def computed(x: Tensor) -> Tensor:
            error = (2 * torch.rand(x.shape, generator=generator, dtype=x.dtype) - 1) * (
                s.margin / 2 * unit
            )
            return function(x) + (error * (1 + x.abs()) if grows else error)

        return computed

    return without(
        at,
        value=erring(s.value, max(map(abs, s.value_range)) == np.inf),
        slope=erring(s.slope, False),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kind", [k for k in ELEMENTWISE if ELEMENTWISE[k](k()).margin], ids=lambda kind: kind.__name__
)
def test_margins_hold_on_a_rougher_machine_and_are_missed_where_left_out(
    kind: type[nn.Module], dtype: str
) -> None:
    for shape in ("slivers", "turns", "points"):
        at = rough(setting(kind, shape, dtype))
        assert outside(at) == unnested(at) == 0
        bare = without(at, margin=0.0)
        assert outside(bare) > 0
        assert unnested(bare) > 0


# -- images


@pytest.mark.parametrize(
    "kind", [nn.Flatten, nn.Unflatten, nn.AvgPool2d], ids=lambda kind: kind.__name__
)
def test_rules_of_images_keep_a_point_a_point(kind: type[nn.Module]) -> None:
    """A layer in front leaves the first linear layer the exact form of a point."""
    at = setting(LAYERS.get(kind, (kind,))[0], "points", "float64")
    x = at.x.lower[:1]
    bound = at.rule.bound(Interval.point(x), {}, at.rounding, EXACT)
    assert bound.is_point
    assert torch.equal(bound.lower[0], at.rule.nominal(x[0], {}))


@pytest.mark.parametrize("record", [(7,), (2, 1, 4), (4, 1)], ids=str)
def test_records_without_room_for_a_window_are_refused(record: tuple[int, ...]) -> None:
    """A row has no image to pool: its neighbours are other records."""
    x = torch.zeros(3, *record)
    rounding = Rounding.for_grid((0,), x.dtype, x.device)
    for layer in (nn.AvgPool2d(2), nn.Conv2d(2, 1, 2)):
        rule = rule_of(layer)
        point = {f"0.{name}": value.detach() for name, value in layer.named_parameters()}
        box = {name: Interval.point(value[None]) for name, value in point.items()}
        for run in (
            lambda: rule.nominal(x, point),  # noqa: B023
            lambda: rule.bound(Interval.point(x[None]), box, rounding, EXACT),  # noqa: B023
        ):
            with pytest.raises(ConfigError, match=r"2 x\s2"):
                run()


class Backwards(AvgPoolRule):
    """The same numbers, added in the opposite order."""

    def _window_positions(self, shape: torch.Size) -> list[tuple[slice, slice]]:
        return super()._window_positions(shape)[::-1]


@pytest.mark.parametrize("way", ["nominal", "nominal_backward"])
def test_the_checks_catch_pooling_that_adds_in_another_order(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Bounds are not widened, so the nominal pass must add as they do, to the last digit."""
    at = setting(LAYERS[nn.AvgPool2d][1], "points", "float64")
    at = replace(at, d=Interval(at.d.lower, at.d.lower.clone()))
    assert outside(at) == 0
    whole = getattr(AvgPoolRule, way)
    monkeypatch.setattr(
        AvgPoolRule, way, lambda self, *tensors: whole(Backwards(**vars(self)), *tensors)
    )
    assert outside(at) > 0
