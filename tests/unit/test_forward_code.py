"""The layers that the code of a network's ``forward`` applies, as they are proposed to its user."""

import ast
import inspect
import textwrap

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agt.models.forward_code import layers_applied


class Net(nn.Module):
    """Layers in another order than ``forward`` of the networks below applies them."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.body = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
        self.first = nn.Linear(6, 6)


class InOneLine(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(torch.relu(self.first(x))))  # type: ignore[no-any-return]


class InSteps(Net):
    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Each step has its own statement."""
        x = torch.flatten(records, 1)
        hidden: torch.Tensor = F.leaky_relu(self.first(x))
        hidden = self.body(hidden).sigmoid()
        return self.last(hidden)  # type: ignore[no-any-return]


class Twice(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x), inplace=True)
        x = self.first(x).relu()
        return self.last(F.gelu(self.body(x)))  # type: ignore[no-any-return]


def _layers(network: type[nn.Module]) -> list[str] | None:
    code = ast.parse(textwrap.dedent(inspect.getsource(network.forward))).body[0]
    assert isinstance(code, ast.FunctionDef)
    return layers_applied(code, ["body"])


@pytest.mark.parametrize("network", [InOneLine, InSteps, Twice])
def test_the_proposed_layers_compute_what_forward_computes(network: type[nn.Module]) -> None:
    layers = _layers(network)
    assert layers is not None
    net = network().double()
    proposed = eval(f"nn.Sequential({', '.join(layers)})", {"net": net, "nn": nn})
    records = torch.randn(50, 6, dtype=torch.float64)
    assert torch.equal(proposed(records), net(records))


@pytest.mark.parametrize(
    "body",
    [
        "return self.last(x) + x",
        "return self.last(x / 255)",
        "return self.last(torch.relu(x, y))",
        "return self.last(F.gelu(x, approximate='tanh'))",
        "return self.last(torch.flatten(x))",
        "return self.last(x, x)",
        "return self.last(x=x)",
        "return self.last(*x)",
        "return self.last(other(x))",
        "return self.last(y)",
        "if self.training: return x",
        "self.seen = self.first(x)",
        "a, b = self.first(x)",
        "x += 1",
        "return",
        "self.first(x)",
    ],
)
def test_code_that_does_something_else_gives_no_layers(body: str) -> None:
    code = ast.parse(f"def forward(self, x):\n    {body}").body[0]
    assert isinstance(code, ast.FunctionDef)
    assert layers_applied(code) is None


def test_a_forward_of_several_arguments_gives_no_layers() -> None:
    code = ast.parse("def forward(self, x, mask): return self.last(x)").body[0]
    assert isinstance(code, ast.FunctionDef)
    assert layers_applied(code) is None
