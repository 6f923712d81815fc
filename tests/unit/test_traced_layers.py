"""Networks with their own ``forward``: which layers are trained in their place, or why none are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import agt
from agt.bounds.rules import RULES
from agt.errors import ConfigError
from agt.models.heads import CustomNetwork
from agt.models.traced_layers import check_same_outputs, layers_applied
from agt.settings import TrainingConfig

TRAINING = TrainingConfig("cross_entropy", 3, 0.5, 0.5)
STEPS = {"epochs": 2, "lr": 1.0, "clip": 0.1, "ks": 2}
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 6))
Y = (X[:, 0] > 0).astype(int)


class Two(nn.Module):
    """Layers that the methods below apply."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(5, 2)
        self.act = nn.ReLU()
        self.first = nn.Linear(6, 5)
        self.middle = nn.Linear(5, 5)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(6, 5), Block(5, 4)])
        self.body = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.body(x)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 2)
        self.pool = nn.AvgPool2d(2)
        self.out = nn.Linear(2, 2)


class OwnSequential(nn.Sequential):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x)


def with_forward(forward: Callable[..., Any], layers: type[nn.Module] = Two) -> nn.Module:
    """Return a network whose class has a method ``forward``."""
    network: nn.Module = type("Own", (layers,), {"forward": forward})()
    return network


def shaped(self: Any, x: torch.Tensor) -> Any:
    """Print, and reshape to the shape that the values have."""
    print("shape", x.shape)
    x = x.view(x.size(0), -1)
    hidden = F.relu(self.first(x), inplace=True)
    return self.out(hidden.reshape(hidden.shape[0], 5).flatten(1))


def stepwise(self: Any, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
    """Take another argument with a default, and make a layer without parameters."""
    x = self.first(x)
    if mask is not None:
        x = x * mask
    x = nn.GELU()(x)
    x = F.softplus(F.leaky_relu(self.middle(x), 0.2))
    return self.out(x.sigmoid())


LINEAR_RELU_LINEAR = ["first", "relu", "out"]
ACCEPTED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[str]]] = {
    "functional": (
        lambda: with_forward(lambda self, x: self.out(F.relu(self.first(x)))),
        (6,),
        LINEAR_RELU_LINEAR,
    ),
    "torch": (
        lambda: with_forward(lambda self, x: self.out(torch.relu(self.first(x)))),
        (6,),
        LINEAR_RELU_LINEAR,
    ),
    "method": (
        lambda: with_forward(lambda self, x: self.out(self.first(x).relu_())),
        (6,),
        ["first", "relu_", "out"],
    ),
    "self has another name": (
        lambda: with_forward(lambda s, batch: s.out(s.act(s.first(batch)))),
        (6,),
        ["first", "act", "out"],
    ),
    "shared activation": (
        lambda: with_forward(
            lambda self, x: self.out(self.act(self.middle(self.act(self.first(x)))))
        ),
        (6,),
        ["first", "act", "middle", "act'", "out"],
    ),
    "reshaped": (lambda: with_forward(shaped), (6,), ["view", "first", "relu", "out"]),
    "other argument": (
        lambda: with_forward(stepwise),
        (6,),
        ["first", "GELU", "middle", "leaky_relu", "softplus", "sigmoid", "out"],
    ),
    "nested": (
        Nested,
        (6,),
        ["blocks.0.linear", "tanh", "blocks.1.linear", "tanh_1", "body.0.0", "body.0.1", "body.1"],
    ),
    "own Sequential": (
        lambda: OwnSequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)),
        (6,),
        ["0", "1", "2"],
    ),
    "nested Sequential": (
        lambda: nn.Sequential(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), nn.Linear(5, 2)),
        (6,),
        ["0.0", "0.1", "1"],
    ),
    "a layer": (lambda: nn.Linear(6, 2), (6,), ["net"]),
    "double": (
        lambda: with_forward(lambda self, x: self.out(F.relu(self.first(x)))).double(),
        (6,),
        LINEAR_RELU_LINEAR,
    ),
    "images": (
        lambda: with_forward(
            lambda self, x: self.out(torch.flatten(self.pool(F.relu(self.conv(x))), 1)), Images
        ),
        (1, 3, 3),
        ["conv", "relu", "pool", "flatten", "out"],
    ),
    "images from rows": (
        lambda: with_forward(
            lambda self, x: self.out(
                F.avg_pool2d(self.conv(x.view(-1, 1, 3, 3)).tanh(), 2).view(-1, 2)
            ),
            Images,
        ),
        (9,),
        ["view", "view'", "conv", "tanh", "avg_pool2d", "view_1", "out"],
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_the_layers_found_compute_what_forward_computes(case: str) -> None:
    make, shape, names = ACCEPTED[case]
    network = make()
    layers = layers_applied(network, "it")
    assert [*layers] == names
    dtype = next(network.parameters()).dtype
    records = torch.randn(50, *shape, dtype=dtype)
    assert torch.equal(nn.Sequential(*layers.values())(records), network(records))
    built = CustomNetwork.from_network(network).build(shape, 2, TRAINING)
    assert {type(layer) for layer in built} <= {*RULES}


def by_hand(network: Any) -> nn.Sequential:
    return nn.Sequential(network.first, nn.ReLU(), network.middle, nn.ReLU(), network.out)


def test_certificates_are_those_of_the_sequential_written_by_hand(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = with_forward(lambda self, x: self.out(F.relu(self.middle(torch.relu(self.first(x))))))
    own = agt.fit(X, Y, network=network, **STEPS)
    written = agt.fit(X, Y, network=by_hand(network), **STEPS)
    assert own.save(tmp_path / "own") == written.save(tmp_path / "written")
    expected = written.certify(X)
    for model in (own, agt.load(tmp_path / "own")):
        answers = model.certify(X)
        assert (answers.labels == expected.labels).all()
        assert (answers.stable_distance == expected.stable_distance).all()
    assert "middle (Linear), relu_1 (ReLU), out (Linear)" in repr(own)
    assert "applies one after" not in repr(written)


def in_training(self: Any, x: torch.Tensor) -> Any:
    x = self.first(x)
    return self.out(x.tanh() if self.training else x.relu())


def without_gradients(self: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        x = self.act(self.first(x))
    return self.out(x)


def with_a_changed_layer(self: Any, x: torch.Tensor) -> Any:
    negated = nn.ReLU()
    negated.forward = lambda x: -x  # type: ignore[method-assign]
    return self.out(negated(self.first(x)))


def clamping(self: Any, x: torch.Tensor) -> Any:
    for parameter in self.parameters():
        parameter.data.clamp_(-0.1, 0.1)
    return self.out(self.act(self.first(x)))


def scaling_tensors(self: Any, x: torch.Tensor) -> Any:
    if isinstance(x, torch.Tensor):
        x = x / 255
    return self.out(self.act(self.first(x)))


def result_dropped(self: Any, x: torch.Tensor) -> Any:
    x = self.first(x)
    F.relu(x, inplace=True)
    return self.out(x)


def conditional(self: Any, x: torch.Tensor) -> Any:
    return self.out(x) if x.mean() > 0 else self.out(self.act(self.first(x)))


def looked_at(self: Any, x: torch.Tensor) -> Any:
    print(x.mean())
    return self.out(self.act(self.first(x)))


class Frozen(Two):
    def __init__(self) -> None:
        super().__init__()
        self.first.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.out(self.act(self.first(x)))


class Lazy(Two):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LazyLinear(5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.out(self.act(self.first(x)))


class Normalised(Two):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.drop(self.act(self.norm(self.first(x))))
        return F.log_softmax(self.out(x), dim=1)


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "several": (Normalised, ("layer norm (B", "layer drop (D", "log_softmax() (line", "plain sco")),
    "softmax": (
        lambda: with_forward(lambda self, x: torch.softmax(self.out(self.act(self.first(x))), 1)),
        ("softmax() (line", "the loss contains it"),
    ),
    "sigmoid": (
        lambda: with_forward(lambda self, x: self.first(x).sigmoid()),
        ("but it is nn.Sigmoid", "nn.Linear(6, 2) as the last layer"),
    ),
    "dropout": (
        lambda: with_forward(lambda self, x: self.out(F.dropout(self.first(x), training=False))),
        ("dropout() (line", "because it is random"),
    ),
    "residual": (
        lambda: with_forward(lambda self, x: self.out(self.middle(self.first(x)) + self.first(x))),
        ("as a residual connection does", "(line "),
    ),
    "parameter": (
        lambda: with_forward(lambda self, x: F.linear(self.first(x), self.out.weight)),
        ("without a layer (line",),
    ),
    "scaled": (
        lambda: with_forward(lambda self, x: self.out(self.act(self.first(x / 255)))),
        ("truediv() (line", "by public constants"),
    ),
    "two inputs": (lambda: with_forward(lambda self, x, y: self.out(x)), ("argument: 'y'",)),
    "two outputs": (lambda: with_forward(lambda self, x: (self.first(x), x)), ("nothing else",)),
    "pair": (lambda: with_forward(lambda self, x: (self.first(x),)), ("one tensor",)),
    "training mode": (lambda: with_forward(in_training), ("self.training",)),
    "no gradients": (lambda: with_forward(without_gradients), ("without gradients (line",)),
    "no gradients at all": (
        lambda: with_forward(torch.no_grad()(lambda self, x: self.out(self.act(self.first(x))))),
        ("without gradients (line",),
    ),
    "changed layer": (lambda: with_forward(with_a_changed_layer), ("its own forward()",)),
    "clamps": (lambda: with_forward(clamping), ("changes parameters",)),
    "isinstance": (lambda: with_forward(scaling_tensors), ("not return the same numbers",)),
    "result dropped": (
        lambda: with_forward(result_dropped),
        ("does not use the result", "F.relu(x, inplace=True)"),
    ),
    "condition": (lambda: with_forward(conditional), ("a condition", "x.mean() > 0")),
    "beside": (lambda: with_forward(looked_at), ("does not use the result", "print(x.mean())")),
    "no forward of a list": (
        lambda: nn.ModuleList([nn.Linear(6, 2)]),
        ('missing the required "forward"',),
    ),
    "no forward": (Two, ('missing the required "forward"',)),
    "frozen": (Frozen, ("first.weight is frozen",)),
    "lazy": (Lazy, ("layer first (LazyLinear)", "with the number of inputs")),
    "twice": (
        lambda: with_forward(lambda self, x: self.out(self.middle(self.middle(self.first(x))))),
        ("share a parameter",),
    ),
    "whole batch flattened": (
        lambda: with_forward(lambda self, x: self.out(torch.flatten(self.first(x)))),
        ("flatten() (line",),
    ),
    "other width": (
        lambda: with_forward(lambda self, x: self.out(self.act(self.middle(x)))),
        ("Layer middle takes 5 inputs, but gets 6 features",),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_another_forward_is_refused_with_the_reason(case: str) -> None:
    make, named = REFUSED[case]
    with pytest.raises(ConfigError) as error:
        CustomNetwork.from_network(make()).build((6,), 2, TRAINING)
    for text in named:
        assert text in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda network: network.register_forward_hook(lambda module, x, y: -y),
        lambda network: setattr(network, "forward", network.first.forward),
        lambda network: network.act.register_forward_pre_hook(lambda module, x: None),
    ],
)
def test_hooks_and_a_replaced_forward_are_refused(change: Callable[[Any], object]) -> None:
    network = with_forward(lambda self, x: self.out(self.act(self.first(x))))
    change(network)
    with pytest.raises(ConfigError, match="has hooks or its own forward"):
        CustomNetwork.from_network(network)


class ReversedGradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


class Negating(nn.Parameter):
    pass


def clip_weights(self: Any, x: torch.Tensor) -> Any:
    for parameter in self.parameters():
        parameter.data.clamp_(-1, 1)
    return self.out(self.act(self.first(x)))


def limit_weights_from_below(self: Any, x: torch.Tensor) -> Any:
    for parameter in self.parameters():
        parameter.data.clamp_(min=-1)
    return self.out(self.act(self.first(x)))


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (clip_weights, "changes parameters"),
        (limit_weights_from_below, "changes parameters"),
        (lambda self, x: self.out(self.act(ReversedGradient.apply(self.first(x)))), "gradients"),
    ],
    ids=["clipped weights", "weights limited from below", "replaced gradients"],
)
def test_weight_clipping_and_replaced_gradients_are_refused(
    forward: Callable[..., Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        CustomNetwork.from_network(with_forward(forward)).build((6,), 2, TRAINING)


def test_layers_with_other_gradients_are_not_the_same() -> None:
    """The comparison alone."""
    network = with_forward(lambda self, x: self.out(ReversedGradient.apply(self.first(x))))
    assert isinstance(network.first, nn.Linear)
    assert isinstance(network.out, nn.Linear)
    with pytest.raises(ConfigError, match="other gradients"):
        check_same_outputs(network, nn.Sequential(network.first, network.out), (6,), "it")


def test_values_of_parameters_are_the_same_after_the_layers_were_found() -> None:
    network = with_forward(lambda self, x: self.out(self.act(self.first(x))))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    layers_applied(network, "it")
    assert all(map(torch.equal, before, network.parameters()))


def test_hooks_for_all_modules_are_refused() -> None:
    network = nn.Sequential(nn.Linear(6, 2))
    handle = nn.modules.module.register_module_forward_hook(lambda module, x, y: 3 * y)
    try:
        with pytest.raises(ConfigError, match="for all modules"):
            CustomNetwork.from_network(network)
    finally:
        handle.remove()
    CustomNetwork.from_network(network)


@pytest.mark.parametrize("name", ["_call_impl", "_conv_forward", "_compiled_call_impl"])
def test_a_replaced_method_of_a_layer_is_refused(name: str) -> None:
    layer = nn.Conv2d(1, 2, 3)
    setattr(layer, name, lambda *arguments: arguments[0])
    with pytest.raises(ConfigError, match="layer 0 has hooks or its own forward"):
        CustomNetwork.from_network(nn.Sequential(layer))


def test_parameters_that_share_a_part_of_their_memory_are_refused() -> None:
    network = with_forward(lambda self, x: self.out(self.middle(self.first(x))))
    base = torch.randn(35)
    assert isinstance(network.first, nn.Linear)
    assert isinstance(network.middle, nn.Linear)
    network.first.weight = nn.Parameter(base[:30].view(5, 6))
    network.middle.weight = nn.Parameter(base[10:].view(5, 5))
    with pytest.raises(ConfigError, match="share memory"):
        CustomNetwork.from_network(network)


def test_a_subclass_of_parameter_is_refused() -> None:
    layer = nn.Linear(6, 2)
    layer.weight = Negating(layer.weight.detach())
    with pytest.raises(ConfigError, match="has the type Negating"):
        CustomNetwork.from_network(nn.Sequential(layer))


def test_layers_of_another_network_do_not_have_the_same_outputs() -> None:
    """The comparison alone, with layers that were not found by running ``forward``."""
    network = with_forward(lambda self, x: self.out(F.gelu(self.first(x))))
    assert isinstance(network.first, nn.Linear)
    assert isinstance(network.out, nn.Linear)
    same = nn.Sequential(network.first, nn.GELU(), network.out)
    other = nn.Sequential(network.first, nn.GELU("tanh"), network.out)
    with torch.no_grad():
        check_same_outputs(network, same, (6,), "it")
        with pytest.raises(ConfigError, match="the same numbers"):
            check_same_outputs(network, other, (6,), "it")


def test_one_message_names_all_that_a_network_lacks() -> None:
    declared = agt.Declared(classes=[0, 1], size=60, features=True, settings=True)
    with pytest.raises(ConfigError) as error:
        agt.fit(X, Y, network=Normalised(), declared=declared)
    for text in ("layer norm", "layer drop", "log_softmax", "epochs=4, lr=1", "network=True"):
        assert text in str(error.value)


def test_columns_are_told_where_numbers_without_bins_fit_a_network() -> None:
    import pandas as pd

    columns = agt.Columns(numeric={"a": (0, 1), "b": (0, 1)}, bins=20)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    with pytest.raises(ConfigError, match=r"agt\.Columns\(\.\.\., bins=0\), with which"):
        agt.fit(frame, Y, columns=columns, network=nn.Sequential(nn.Linear(2, 2)), **STEPS)


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_start_that_was_not_declared_is_said_before_the_training(is_declared: bool) -> None:
    declared = agt.Declared(
        classes=[0, 1], size=60, features=True, settings=True, network=is_declared
    )
    steps_seen: list[int] = []
    with pytest.warns(agt.Doubtful) as warned:
        agt.fit(
            X,
            Y,
            network=nn.Sequential(nn.Linear(6, 2)),
            declared=declared,
            on_progress=lambda progress: steps_seen.append(progress.done),
            **STEPS,
        )
    said = [str(each.message) for each in warned]
    assert any("declared.network=True" in text for text in said) == (not is_declared)
