"""A model's parameters, and bounds on those that training on any neighbouring dataset gives."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.errors import UnsoundError

Point = Mapping[str, Tensor]  # parameter name -> its value
Intervals = Mapping[str, Interval]  # parameter name -> its bounds, [K, *parameter shape]


@dataclass(frozen=True)
class Box:
    """A model's parameters, with bounds on those that training on neighbouring datasets gives.

    For each distance k of the grid, the bounds contain the trained parameters of every dataset that
    k edits (what one edit is depends on the neighbour relation) can make of the original one.

    Attributes:
        ks: the K distances of the grid, increasing.
        nominal: parameter name -> the value that training on the original dataset gave.
        bounds: parameter name -> bounds [K, *parameter shape], one slice for each k.

    Raises:
        UnsoundError: names or shapes of ``nominal`` and ``bounds`` differ, or a bound does not
            contain the nominal value. ``Interval`` checks that bounds are finite and in order.
    """

    ks: tuple[int, ...]
    nominal: Point
    bounds: Intervals

    def __post_init__(self) -> None:
        """Raise UnsoundError unless names and shapes match and bounds contain nominal values."""
        if self.nominal.keys() != self.bounds.keys():
            raise UnsoundError(
                f"box (bounds on the weights): the parameters are {sorted(self.nominal)}, but "
                f"bounds are given for {sorted(self.bounds)}: give bounds for exactly these "
                "parameters"
            )
        for name, value in self.nominal.items():
            bounds = self.bounds[name]
            expected = (len(self.ks), *value.shape)
            if bounds.shape != expected:
                raise UnsoundError(
                    f"box (bounds on the weights): the bounds of parameter {name} have shape "
                    f"{tuple(bounds.shape)}, but need shape {expected} (one slice for each of "
                    f"{len(self.ks)} values of k)"
                )
            if not bounds.contains(value):
                raise UnsoundError(
                    f"box (bounds on the weights): the value of parameter {name} lies outside of "
                    "the bounds of this parameter, so these bounds are wrong: train again"
                )

    @classmethod
    def from_ends(cls, ks: tuple[int, ...], nominal: Point, lower: Point, upper: Point) -> "Box":
        """Return the box with the given lower and upper bounds.

        Args:
            ks: the K distances of the grid, increasing.
            nominal: parameter name -> the trained value.
            lower: parameter name -> the lower bounds, [K, *parameter shape].
            upper: parameter name -> the upper bounds, [K, *parameter shape].

        Raises:
            UnsoundError: names or shapes differ, a lower bound exceeds its upper bound, or bounds
                do not contain the nominal value.
            UnboundedError: a bound is NaN or infinite.
        """
        return cls(ks, nominal, {name: Interval(lower[name], upper[name]) for name in lower})

    @classmethod
    def point(cls, ks: tuple[int, ...], nominal: Point) -> "Box":
        """Return the box whose lower and upper bounds are the nominal parameters, for every k.

        Training starts from this box, because the initial parameters do not depend on the data.
        Both bounds are copies, so training may overwrite them; ``Interval.is_point`` is therefore
        False for them.

        Args:
            ks: the K distances of the grid, increasing.
            nominal: parameter name -> its initial value.
        """
        bounds = {}
        for name, value in nominal.items():
            repeated = value.expand(len(ks), *value.shape)
            bounds[name] = Interval(repeated.clone(), repeated.clone())
        return cls(ks, nominal, bounds)

    def select_ks(self, ks: tuple[int, ...]) -> "Box":
        """Return the box with the bounds for only some distances of the grid.

        Args:
            ks: distances of the grid, increasing.

        Raises:
            ValueError: a k is not in the grid.
        """
        rows = [self.ks.index(k) for k in ks]
        selected = {name: interval[rows] for name, interval in self.bounds.items()}
        return Box(ks, self.nominal, selected)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Box":
        """Return the box with its tensors on a device and in a dtype.

        The new box is checked again, because rounding to a coarser dtype, or code that overwrote
        a tensor, could have broken it.

        Raises:
            UnsoundError: a bound no longer contains the nominal value.
            UnboundedError: a bound is NaN or infinite in the new dtype.
        """
        nominal = {name: value.to(device, dtype) for name, value in self.nominal.items()}
        lower = {name: end.to(device, dtype) for name, end in self.lower.items()}
        upper = {name: end.to(device, dtype) for name, end in self.upper.items()}
        return Box.from_ends(self.ks, nominal, lower, upper)

    @property
    def lower(self) -> dict[str, Tensor]:
        """Return the lower bounds, parameter name -> [K, *parameter shape]."""
        return {name: interval.lower for name, interval in self.bounds.items()}

    @property
    def upper(self) -> dict[str, Tensor]:
        """Return the upper bounds, parameter name -> [K, *parameter shape]."""
        return {name: interval.upper for name, interval in self.bounds.items()}


def select_ks(bounds: Intervals, ks: slice) -> dict[str, Interval]:
    """Return parameter bounds for a slice of the grid of distances, as views without copies.

    Args:
        bounds: parameter name -> bounds [K, *parameter shape].
        ks: a slice of the positions of the grid.

    Returns:
        Parameter name -> bounds [length of the slice, *parameter shape].
    """
    return {name: interval[ks] for name, interval in bounds.items()}
