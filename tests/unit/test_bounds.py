"""Bounds: intervals, boxes, rules of layers in exact arithmetic, and whole heads."""

from collections import OrderedDict
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
import torch
from synthetic import make_head, make_training, random_interval
from torch import nn

from agt.bounds.activations import ReluRule
from agt.bounds.box import Box, select_ks
from agt.bounds.interval import Interval
from agt.bounds.linear import LinearRule
from agt.bounds.network import Network
from agt.bounds.products import EXACT, PRODUCTS, Products
from agt.bounds.rounding import Rounding
from agt.bounds.rules import RULES, rules_for
from agt.errors import ConfigError, UnsoundError
from agt.kernels.cpu import CpuKernel
from agt.models.heads import ACTIVATIONS, ActivationName, ConvConfig, HeadConfig, describe_layers
from agt.settings import validate

# -- interval
# --------------------------------------------------------------------------------------------------


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (tensor(0, 1), tensor(0, 0.5)),
        (tensor(0, float("nan")), tensor(1, 1)),
        (tensor(0, 0), tensor(1, float("nan"))),
        (tensor(0, float("-inf")), tensor(1, 1)),
        (tensor(0, 0), tensor(float("inf"), 1)),
        (tensor(0, float("inf")), tensor(1, float("inf"))),
        (tensor(float("-inf"), 0), tensor(float("-inf"), 0)),
        # finite, and its width is not: refused rather than trusted
        (tensor(-1.7e308), tensor(1.7e308)),
        (tensor(0, 0), tensor(1)),
        (tensor(0), tensor(1).float()),
        (tensor(1 + 2**-52), tensor(1)),
    ],
)
def test_what_is_no_interval_is_refused(lower: torch.Tensor, upper: torch.Tensor) -> None:
    with pytest.raises(UnsoundError):
        Interval(lower, upper)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_point_that_is_not_finite_is_refused(broken: float) -> None:
    with pytest.raises(UnsoundError):
        Interval.point(tensor(0, broken, 1))


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("at", [0, -1])
def test_nan_is_found_wherever_it_stands(size: int, at: int) -> None:
    """The check is one vectorised pass: the last, incomplete vector counts too."""
    upper = torch.ones(size)
    upper[at] = float("nan")
    with pytest.raises(UnsoundError):
        Interval(torch.zeros(size), upper)


def test_an_empty_interval_holds_everything() -> None:
    assert Interval(torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0, 3)


def test_operations() -> None:
    a = Interval(tensor(-3, 1), tensor(2, 4))
    b = Interval(tensor(-1, 0), tensor(1, 5))
    assert (a - b).lower.tolist() == [-4, -4]
    assert (a - b).upper.tolist() == [3, 4]
    assert a.magnitude().tolist() == [3, 4]
    assert a.inf_norm().tolist() == [4]
    assert Interval(tensor(-3, -2), tensor(-1, -1)).inf_norm().tolist() == [3]
    assert a[1:].lower.tolist() == [1]


@pytest.mark.parametrize(
    ("value", "held"),
    [((-3, 4), True), ((2, 1), True), ((2.5, 1), False), ((float("nan"), 1), False)],
)
def test_contains(value: tuple[float, ...], held: bool) -> None:
    assert Interval(tensor(-3, 1), tensor(2, 4)).contains(tensor(*value)) is held


def test_points_stay_points() -> None:
    point = Interval.point(tensor(1, -2).float())
    assert point.is_point
    assert point[:1].is_point
    assert point.double().is_point
    assert point.double().lower.dtype == torch.float64
    assert point.magnitude().tolist() == [1, 2]
    assert not Interval(tensor(1), tensor(1)).is_point


# -- box
# --------------------------------------------------------------------------------------------------


KS = (0, 2, 5)
NOMINAL = {"0.weight": torch.tensor([[1.0, -2.0]]), "0.bias": torch.tensor([0.5])}
RADII = torch.tensor([0.0, 0.25, 1.0])


def around(nominal: dict[str, torch.Tensor] = NOMINAL) -> Box:
    spread = {name: RADII.view(-1, *[1] * p.dim()) for name, p in nominal.items()}
    lower, upper = (
        {name: p + sign * spread[name] for name, p in nominal.items()} for sign in (-1, 1)
    )
    return Box.from_ends(KS, nominal, lower, upper)


def test_names_and_shapes_must_agree() -> None:
    bounds = around().bounds
    for nominal, message in (
        ({"0.weight": NOMINAL["0.weight"]}, r"\['0\.weight'\].*'0\.bias'"),
        (
            {**NOMINAL, "0.bias": torch.zeros(1, 1)},
            r"0\.bias.*\(3, 1\).*\(3, 1, 1\)",
        ),
        (
            {**NOMINAL, "0.bias": torch.tensor([9.0])},
            r"0\.bias",
        ),
    ):
        with pytest.raises(UnsoundError, match=message):
            Box(KS, nominal, bounds)
    with pytest.raises(UnsoundError, match=r"0\.weight.*\(3, .*\b2\b"):
        Box((0, 2), NOMINAL, bounds)


def test_some_k_and_parts_of_the_grid() -> None:
    box = around()
    assert box.select_ks((5, 0)).lower["0.bias"].tolist() == [[-0.5], [0.5]]
    assert select_ks(box.bounds, slice(1, 3))["0.bias"].upper.tolist() == [[0.75], [1.5]]
    with pytest.raises(ValueError, match="not in"):
        box.select_ks((3,))


def test_a_start_is_the_point_in_memory_of_its_own() -> None:
    box = Box.point(KS, NOMINAL)
    for name, interval in box.bounds.items():
        assert torch.equal(interval.lower, NOMINAL[name].expand(3, *NOMINAL[name].shape))
        assert torch.equal(interval.lower, interval.upper)
        assert not interval.is_point, "its ends are tensors of their own, as after any step"


def test_a_copy_is_checked_again() -> None:
    box = around()
    cpu = torch.device("cpu")
    wide = box.to(cpu, torch.float64)
    assert isinstance(wide.bounds["0.bias"], Interval)
    assert wide.nominal["0.bias"].dtype == wide.upper["0.bias"].dtype == torch.float64
    box.upper["0.weight"][0, 0, 0] = float("inf")
    with pytest.raises(UnsoundError):
        box.to(cpu, torch.float32)


# -- layers
# --------------------------------------------------------------------------------------------------


DTYPES = ("float64", "float32")


def rounding(*ks: int, dtype: str = "float64") -> Rounding:
    return Rounding.for_grid(ks, getattr(torch, dtype), torch.device("cpu"))


def exact_linear(x: Interval, w: Interval, b: Interval) -> tuple[list[Fraction], list[Fraction]]:
    """Bounds of each output in rational arithmetic, for the numbers as given. x [1, n, in], w
    [1, out, in], b [1, out].
    """
    lows = []
    highs = []
    for s in range(x.shape[1]):
        for j in range(w.shape[1]):
            low = Fraction(b.lower[0, j].item())
            high = Fraction(b.upper[0, j].item())
            for i in range(w.shape[2]):
                ends = [
                    Fraction(t[0, s, i].item()) * Fraction(v[0, j, i].item())
                    for t in (x.lower, x.upper)
                    for v in (w.lower, w.upper)
                ]
                low = low + min(ends)
                high = high + max(ends)
            lows.append(low)
            highs.append(high)
    return lows, highs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["point", "nonnegative", "signed"])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e15])
def test_linear_forward_holds_the_exact_bounds_and_little_more(
    form: str, dtype: str, scale: float
) -> None:
    if dtype == "float32" and scale == 1e-150:
        scale = 1e-36
    rng = np.random.default_rng(0)
    x, w, b = (random_interval(rng, 1, *s, dtype=dtype) for s in ((4, 3), (2, 3), (2,)))
    x = Interval(x.lower * scale, x.upper * scale)
    if form == "point":
        x = Interval.point(x.lower)
    if form == "nonnegative":
        x = Interval(x.lower.clamp(min=0), x.upper.clamp(min=0))
    bound = LinearRule("0", True).bound(
        x, {"0.weight": w, "0.bias": b}, rounding(0, dtype=dtype), EXACT
    )
    lows, highs = exact_linear(x, w, b)
    slack = 2000 * torch.finfo(w.lower.dtype).eps * max(scale, 1)
    for low, high, lower, upper in zip(
        lows, highs, bound.lower.flatten().tolist(), bound.upper.flatten().tolist(), strict=True
    ):
        assert low - Fraction(slack) <= Fraction(lower) <= low
        assert high <= Fraction(upper) <= high + Fraction(slack)


def test_a_relu_that_overwrites_its_input_gives_the_same_bounds() -> None:
    rng = np.random.default_rng(0)
    inputs = random_interval(rng, 2, 30, 4)
    gradient = random_interval(rng, 2, 30, 4)
    inputs.lower[:, ::3] = 0.0
    inputs.upper[:, ::3] = inputs.upper[:, ::3].abs()
    inputs.upper[:, ::6] = 0.0  # where the derivative changes
    rounding = Rounding.for_grid((0, 1), torch.float64, torch.device("cpu"))
    results = []
    for overwrites in (False, True):
        rule = ReluRule("0", overwrites_bounds=overwrites)
        given = inputs.rearranged(torch.clone)
        outputs = rule.bound(given, {}, rounding, EXACT)
        back = rule.bound_backward(gradient, given, {}, rounding, EXACT)
        assert torch.equal(given.lower, outputs.lower if overwrites else inputs.lower)
        results.append([outputs.lower, outputs.upper, back.lower, back.upper])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(
    "before",
    [(), (nn.Flatten(),), (nn.Tanh(),), (nn.ReLU(),)],
    ids=["first", "view", "tanh", "relu"],
)
def test_a_relu_overwrites_nothing_that_another_layer_reads(before: tuple[nn.Module, ...]) -> None:
    """Records, or a layer's output that its own backward pass may need."""
    head = nn.Sequential(*before, nn.ReLU(), nn.Linear(4, 1)).double()
    network = Network.from_head(head, "binary_cross_entropy", 2)
    records = random_interval(np.random.default_rng(0), 2, 9, 4)
    copies = records.rearranged(torch.clone)
    box = Box.point((0, 1), dict(head.named_parameters())).bounds
    rounding = Rounding.for_grid((0, 1), torch.float64, torch.device("cpu"))
    with torch.no_grad():
        values = network._bound_layers(network.rules, records, box, rounding)
    assert torch.equal(records.lower, copies.lower)
    assert torch.equal(records.upper, copies.upper)
    assert values[len(before)].lower is not values[len(before) + 1].lower


def test_relus_nominal_derivative_at_0_is_0() -> None:
    x = torch.tensor([[-1.0, 0.0, -0.0, 1e-300]], dtype=torch.float64)
    assert ReluRule("1").nominal_backward(torch.ones_like(x), x, {}).tolist() == [[0, 0, 0, 1]]


# -- reading a head
# --------------------------------------------------------------------------------------------------


class Doubled(nn.Linear):
    """A subclass may compute something else."""


def linear() -> nn.Linear:
    return nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (nn.Sequential(linear(), nn.Mish()), r"layer 1 .Mish\)"),
        (nn.Sequential(linear(), nn.ReLU6(), linear()), r"\(ReLU6\)\. Use nn\.ReLU"),
        (nn.Sequential(Doubled(2, 2)), "cannot compute bounds through layer"),
        (nn.Sequential(nn.Sequential(linear())), "cannot compute bounds through layer"),
        (
            nn.Sequential(linear(), nn.Flatten(), linear()),
            r"\(Flatten\).*\(Linear\).*nn\.Unflatten",
        ),
        (
            nn.Sequential(nn.Flatten(), nn.AvgPool2d(2), linear()),
            r"\(AvgPool2d\).*\(Flatten\).*nn\.Unflatten",
        ),
        (
            nn.Sequential(nn.AvgPool2d(2), nn.AvgPool2d(2), linear()),
            r"\(Linear\).*\(AvgPool2d\).*nn\.Flatten",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 1, 2), nn.ReLU(), linear()),
            r"\(Linear\).*\(ReLU\).*nn\.Flatten",
        ),
        (
            nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Conv2d(1, 1, 2)),
            r"\(Conv2d\).*\(Tanh\).*nn\.Unflatten",
        ),
        (nn.Sequential(nn.Flatten(2), linear()), r"layer 0 \(Flatten\)"),
        (
            nn.Sequential(nn.Unflatten(1, (1, -1, 2)), nn.Flatten(), linear()),
            r"layer 0 \(Unflatten\)",
        ),
        (
            nn.Sequential(nn.utils.parametrizations.weight_norm(linear())),
            "cannot compute bounds through layer",
        ),
    ],
)
def test_a_layer_without_a_rule_is_refused(head: nn.Sequential, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rules_for(head)


@pytest.mark.parametrize(
    ("layer", "instead"),
    [
        (nn.Softmax(1), "the loss contains it"),
        (nn.BatchNorm1d(2), "public constants"),
        (nn.LayerNorm(2), "public constants"),
        (nn.Dropout(), "weight_decay"),
        (nn.SiLU(), "nn.ReLU"),
        (nn.ELU(), "nn.ReLU"),
        (nn.MaxPool2d(2), "nn.AvgPool2d"),
        (nn.AdaptiveAvgPool2d(1), "nn.AvgPool2d"),
        (nn.Embedding(2, 2), "categories"),
        (nn.LSTM(2, 2), "encoder"),
        (nn.MultiheadAttention(2, 1), "encoder"),
        (nn.Conv1d(1, 1, 1), "nn.Conv2d"),
        (nn.Identity(), "changes nothing"),
        (nn.LazyLinear(2), "nn.Linear"),
        (Doubled(2, 2), "nn.Linear itself"),
        (nn.PixelShuffle(2), "layers that have a rule"),
    ],
)
def test_a_layer_without_a_rule_is_refused_with_what_to_use_instead(
    layer: nn.Module, instead: str
) -> None:
    with pytest.raises(ConfigError, match=instead):
        rules_for(nn.Sequential(linear(), layer))


def test_softmax_between_layers_is_no_output_that_the_loss_contains() -> None:
    with pytest.raises(ConfigError, match=r"nn\.ReLU"):
        rules_for(nn.Sequential(linear(), nn.Softmax(1), linear()))


def test_all_layers_without_a_rule_are_named_at_once() -> None:
    head = nn.Sequential(linear(), nn.BatchNorm1d(2), nn.Dropout(), linear(), nn.Dropout())
    with pytest.raises(ConfigError, match=r"layer 1 .*layer 2 .* and layer 4 "):
        rules_for(head)


@pytest.mark.parametrize("products", PRODUCTS.values(), ids=PRODUCTS)
def test_convolutions_take_no_images_as_well(products: Products) -> None:
    """As of an empty file of queries."""
    rule = rules_for(nn.Sequential(nn.Conv2d(2, 4, 2, groups=2)))[0]
    box = {
        "0.weight": random_interval(np.random.default_rng(0), 2, 4, 1, 2, 2),
        "0.bias": random_interval(np.random.default_rng(1), 2, 4),
    }
    x = torch.zeros(0, 2, 3, 3, dtype=torch.float64)
    point = {name: interval.lower[0] for name, interval in box.items()}
    assert rule.nominal(x, point).shape == (0, 4, 2, 2)
    bound = rule.bound(Interval.point(x[None]), box, rounding(0, 1), products)
    assert bound.shape == (2, 0, 4, 2, 2)
    assert rule.bound_backward(
        bound, Interval.point(x[None]), box, rounding(0, 1), products
    ).shape == (
        2,
        0,
        2,
        3,
        3,
    )


def test_a_layer_used_twice_counts_twice() -> None:
    relu = nn.ReLU()
    rules = rules_for(nn.Sequential(linear(), relu, linear(), relu, linear()))
    assert [type(r) for r in rules] == [LinearRule, ReluRule] * 2 + [LinearRule]


def test_shared_parameters_are_refused() -> None:
    shared = linear()
    tied = linear()
    other = linear()
    tied.weight = other.weight
    for head in (nn.Sequential(shared, nn.ReLU(), shared), nn.Sequential(tied, nn.ReLU(), other)):
        with pytest.raises(ConfigError, match=r"^model: "):
            rules_for(head)


def test_names_come_from_the_head() -> None:
    head = nn.Sequential(
        OrderedDict(first=linear(), act=nn.ReLU(), last=nn.Linear(2, 2, bias=False))
    )
    assert rules_for(head) == (
        LinearRule("first", True, before_relu=True),
        ReluRule("act", overwrites_bounds=True),
        LinearRule("last", False, nonnegative=True, behind_relu=True),
    )


# -- network
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "between",
    [(nn.ReLU(),), (nn.ReLU(), nn.ReLU()), (nn.ReLU(), nn.Tanh()), (nn.Tanh(),)],
    ids=["relu", "two relus", "relu and tanh", "tanh"],
)
@pytest.mark.parametrize("width", [6, 20])
def test_a_first_layer_with_its_relu_in_one_pass_gives_the_same_factors(
    between: tuple[nn.Module, ...], width: int
) -> None:
    kernel = CpuKernel()
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(width, 5), *between, nn.Linear(5, 1)).double()
    network = Network.from_head(head, "binary_cross_entropy", 2, kernel.products("exact"))
    box = {}
    for name, parameter in head.named_parameters():
        value = parameter.detach()
        box[name] = Interval(torch.stack([value, value - 0.1]), torch.stack([value, value + 0.2]))
    records = torch.randn(70, width, dtype=torch.float64)
    labels = torch.arange(70) % 2
    factors = []
    for point_affine in (kernel.point_affine, None):
        rounding = Rounding.for_grid(
            (0, 1), torch.float64, torch.device("cpu"), kernel.widen_by, point_affine
        )
        factors.append(list(network.factors(records, labels, box, rounding)))
    for one_pass, single_operations in zip(*factors, strict=True):
        for interval, expected in zip(one_pass[1:], single_operations[1:], strict=True):
            assert torch.equal(interval.lower, expected.lower)
            assert torch.equal(interval.upper, expected.upper)


def setting(
    loss: str, classes: int, hidden: tuple[int, ...], products: Products = EXACT, n: int = 12
):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(3)
    head = make_head(make_training(loss=loss), 6, classes, hidden)
    x = torch.from_numpy(rng.normal(size=(n, 6)))
    y = torch.from_numpy(rng.integers(0, classes, n))
    return rng, head, Network.from_head(head, loss, classes, products), x, y


def test_two_layers_by_hand() -> None:
    """x = 1, w1 in [1/2, 3/2], b1 in [-1/4, 1/4]; w2 in [-3/8, 1/8], b2 in [-1/2, 1/4]; y = 0."""
    head = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    network = Network.from_head(head, "binary_cross_entropy", 2)
    ends = {
        "0.weight": (0.5, 1.5),
        "0.bias": (-0.25, 0.25),
        "2.weight": (-0.375, 0.125),
        "2.bias": (-0.5, 0.25),
    }
    shapes = {n: p.shape for n, p in head.named_parameters()}
    box = {
        n: Interval(*(torch.full((1, *shapes[n]), e, dtype=torch.float64) for e in pair))
        for n, pair in ends.items()
    }
    x = torch.ones(1, 1, dtype=torch.float64)
    y = torch.zeros(1, dtype=torch.int64)
    logits = network.bound_logits(x, box, rounding(0))
    # The hidden value lies in [1/4, 7/4]; f in [-3/8 * 7/4 - 1/2, 1/8 * 7/4 + 1/4].
    assert logits.lower.item() == pytest.approx(-1.15625, abs=1e-13)
    assert logits.upper.item() == pytest.approx(0.46875, abs=1e-13)
    last, first = network.factors(x, y, box, rounding(0))
    low = 1 / (1 + np.exp(1.15625))
    high = 1 / (1 + np.exp(-0.46875))
    assert (last.output_gradient.lower.item(), last.output_gradient.upper.item()) == pytest.approx(
        (low, high), abs=1e-13
    )
    assert (last.inputs.lower.item(), last.inputs.upper.item()) == pytest.approx(
        (0.25, 1.75), abs=1e-13
    )
    # ReLU is active throughout: d_hidden = w2 d.
    assert (
        first.output_gradient.lower.item(),
        first.output_gradient.upper.item(),
    ) == pytest.approx((-0.375 * high, 0.125 * high), abs=1e-13)
    assert (first.inputs.lower.item(), first.inputs.upper.item()) == (1, 1)


def test_the_two_class_head_is_never_looser_than_two_logits() -> None:
    rng, head, network, x, _ = setting("cross_entropy", 2, (5,))
    separate = Network(network.rules, network.loss, False, EXACT, 2)
    box = {n: random_interval(rng, 1, *p.shape, radius=0.3) for n, p in head.state_dict().items()}
    difference = network.bound_logits(x, box, rounding(0))
    both = separate.bound_logits(x, box, rounding(0))
    assert (difference.lower[..., 0] >= both.lower[..., 1] - both.upper[..., 0] - 1e-12).all()
    assert (difference.upper[..., 0] <= both.upper[..., 1] - both.lower[..., 0] + 1e-12).all()
    assert (difference.upper - difference.lower).sum() < 0.99 * (both.upper - both.lower).sum()


def test_expand_is_the_gradient_in_both_rows() -> None:
    _, _, network, _, _ = setting("cross_entropy", 2, (5,))
    lower = torch.tensor([[[-1, 2]]])
    upper = torch.tensor([[[3, 5]]])
    low, high = network.expand_gradient_to_both_rows("2.weight", lower, upper)
    assert low.tolist() == [[[-3, -5], [-1, 2]]]
    assert high.tolist() == [[[1, -2], [3, 5]]]
    assert network.expand_gradient_to_both_rows("0.weight", lower, upper) == (lower, upper)


def test_prediction_of_a_tie_is_class_0() -> None:
    for loss, classes in (("binary_cross_entropy", 2), ("cross_entropy", 2), ("cross_entropy", 3)):
        _, head, network, x, _ = setting(loss, classes, ())
        zero = {n: torch.zeros_like(p) for n, p in head.state_dict().items()}
        assert network.predict(x, zero).tolist() == [0] * len(x)


def test_the_last_layer_must_be_linear() -> None:
    relu = nn.ReLU()
    for layers in (
        [],
        [nn.Linear(2, 2), nn.ReLU()],
        [nn.Linear(2, 2), relu, nn.Linear(2, 2), relu],
    ):
        with pytest.raises(ConfigError, match=r"^model: "):
            Network.from_head(nn.Sequential(*layers), "cross_entropy", 2)


# -- heads
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", get_args(ActivationName))
def test_every_activation_has_a_rule_and_stands_between_linear_layers(name: str) -> None:
    head = make_head(make_training(), 3, 2, (5, 4), activation=name)
    kinds = [type(layer) for layer in head]
    assert kinds == [nn.Linear, ACTIVATIONS[name], nn.Linear, ACTIVATIONS[name], nn.Linear]
    assert len(rules_for(head)) == 5
    assert ACTIVATIONS[name].__name__.lower() == name.replace("_", "")


def test_every_rule_of_an_activation_has_a_name_for_the_settings() -> None:
    assert set(ACTIVATIONS.values()) == set(RULES) - {
        nn.Linear,
        nn.Flatten,
        nn.Unflatten,
        nn.AvgPool2d,
        nn.Conv2d,
    }


def test_the_activation_changes_no_initial_parameter() -> None:
    heads = [
        make_head(make_training(), 3, 2, (5,), activation=name).state_dict()
        for name in ("relu", "gelu")
    ]
    assert all(torch.equal(heads[0][n], heads[1][n]) for n in heads[0])


def test_older_settings_without_an_activation_mean_relu() -> None:
    model = validate(HeadConfig, {"hidden": [4]}, "model")
    assert isinstance(model.build((3,), 2, make_training())[1], nn.ReLU)


def test_convolutions_of_the_papers_network() -> None:
    head = ConvConfig(hidden=(100,)).build(
        (1, 28, 28), 2, make_training(loss="binary_cross_entropy")
    )
    assert [type(layer) for layer in head] == [
        nn.Conv2d, nn.ReLU, nn.Conv2d, nn.ReLU, nn.Flatten, nn.Linear, nn.ReLU, nn.Linear,
    ]  # fmt: skip
    assert [tuple(p.shape) for p in head.parameters() if p.dim() > 1] == [
        (16, 1, 4, 4), (32, 16, 4, 4), (100, 3200), (1, 100),
    ]  # fmt: skip
    again = ConvConfig(hidden=(100,)).build(
        (1, 28, 28), 2, make_training(loss="binary_cross_entropy")
    )
    assert describe_layers(head) == describe_layers(again)
    assert all(
        torch.equal(a, b) for a, b in zip(head.parameters(), again.parameters(), strict=True)
    )
    pooled = ConvConfig(pools=(2, 1), activation="tanh").build((3, 28, 28), 5, make_training())
    assert [type(layer) for layer in pooled][:4] == [nn.Conv2d, nn.Tanh, nn.AvgPool2d, nn.Conv2d]
    assert pooled(torch.zeros(2, 3, 28, 28, dtype=torch.float64)).shape == (2, 5)


def test_where_convolutions_start() -> None:
    training = make_training(loss="binary_cross_entropy")
    usual = ConvConfig(hidden=(8,)).build((1, 28, 28), 2, training)
    he = ConvConfig(hidden=(8,), start="he", output_scale=0.5).build((1, 28, 28), 2, training)
    for (name, a), (_, b) in zip(usual.named_parameters(), he.named_parameters(), strict=True):
        scale = (6**0.5 if name.endswith("weight") else 0.0) * (
            0.5 if name.startswith("7.") else 1.0
        )
        assert torch.allclose(b, a * scale, rtol=1e-15, atol=0), name
    # 8,192 weights
    assert float(he[2].weight.detach().var() * 16 * 4 * 4) == pytest.approx(2, rel=0.05)
    flat = ConvConfig(output_scale=0.0).build((1, 28, 28), 2, training)
    assert not flat(torch.rand(3, 1, 28, 28, dtype=torch.float64)).any()


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        (
            {"kernels": (4,)},
            (1, 28, 28),
            r"kernels .*\b1\b.*\b2\b",
        ),
        ({"encoder": {}}, (1, 28, 28), "model=small_cnn"),
        (
            {},
            (784,),
            "a record has 1 axis",
        ),
        ({}, (1, 7, 7), r"\(1, 7, 7\)"),
    ],
)
def test_convolutions_that_cannot_be_made_are_refused(
    settings: dict, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(ConvConfig, settings, "model").build(shape, 2, make_training())
