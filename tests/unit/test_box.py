"""A box: what cannot be one is refused, and its parts and copies hold what the whole does."""

import pytest
import torch

from agt.bounds.interval import Interval
from agt.bounds.network import Box, part_of
from agt.errors import UnsoundError

KS = (0, 2, 5)
NOMINAL = {"0.weight": torch.tensor([[1.0, -2.0]]), "0.bias": torch.tensor([0.5])}
RADII = torch.tensor([0.0, 0.25, 1.0])


def around(nominal: dict[str, torch.Tensor] = NOMINAL) -> Box:
    spread = {name: RADII.view(-1, *[1] * p.dim()) for name, p in nominal.items()}
    lower, upper = ({name: p + sign * spread[name] for name, p in nominal.items()} for sign in (-1, 1))
    return Box.of(KS, nominal, lower, upper)


def test_names_and_shapes_must_agree() -> None:
    bounds = around().bounds
    for nominal, message in (
        ({"0.weight": NOMINAL["0.weight"]}, "parameters .* and bounds"),
        ({**NOMINAL, "0.bias": torch.zeros(1, 1)}, r"0\.bias has shape \(1, 1\), and for 3 values of k .* \(3, 1\)"),
        ({**NOMINAL, "0.bias": torch.tensor([9.0])}, r"nominal parameters 0\.bias are outside their box"),
    ):
        with pytest.raises(UnsoundError, match=message):
            Box(KS, nominal, bounds)
    with pytest.raises(UnsoundError, match="for 2 values of k"):
        Box((0, 2), NOMINAL, bounds)


def test_some_k_and_parts_of_the_grid() -> None:
    box = around()
    assert box.at((5, 0)).lower["0.bias"].tolist() == [[-0.5], [0.5]]
    assert part_of(box.bounds, slice(1, 3))["0.bias"].upper.tolist() == [[0.75], [1.5]]
    with pytest.raises(ValueError, match="not in tuple"):
        box.at((3,))


def test_a_start_is_the_point_in_memory_of_its_own() -> None:
    box = Box.start(KS, NOMINAL)
    for name, interval in box.bounds.items():
        assert torch.equal(interval.lower, NOMINAL[name].expand(3, *NOMINAL[name].shape))
        assert torch.equal(interval.lower, interval.upper)
        assert not interval.is_point, "its ends are tensors of their own, as after any step"


def test_a_copy_is_checked_again() -> None:
    box, cpu = around(), torch.device("cpu")
    wide = box.to(cpu, torch.float64)
    assert isinstance(wide.bounds["0.bias"], Interval)
    assert wide.nominal["0.bias"].dtype == wide.upper["0.bias"].dtype == torch.float64
    box.upper["0.weight"][0, 0, 0] = float("inf")
    with pytest.raises(UnsoundError):
        box.to(cpu, torch.float32)
