"""A model's parameters, and bounds on the parameters that training on any neighbour gives."""

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
    """The trained parameters, and for each k bounds on those of all neighbours at distance k.

    Attributes:
        ks: the K distances of the grid, increasing.
        nominal: parameter name -> the value that training gave.
        bounds: parameter name -> bounds [K, *parameter shape], one slice for each k.

    Raises:
        UnsoundError: names or shapes of ``nominal`` and ``bounds`` differ, or a bound does not
            contain the nominal value. ``Interval`` checks that bounds are finite and in order.
    """

    ks: tuple[int, ...]
    nominal: Point
    bounds: Intervals

    def __post_init__(self) -> None:
        if self.nominal.keys() != self.bounds.keys():
            raise UnsoundError(
                f"box: the named parameters {sorted(self.nominal)} differ from the parameters "
                f"with bounds {sorted(self.bounds)}, but every parameter needs bounds"
            )
        for name, value in self.nominal.items():
            bounds = self.bounds[name]
            if bounds.shape != (len(self.ks), *value.shape):
                raise UnsoundError(
                    f"box: parameter {name} has shape {tuple(value.shape)}, so its bounds for "
                    f"{len(self.ks)} values of k must have shape [{len(self.ks)}, ...] with "
                    f"that shape at the end, but have {tuple(bounds.shape)}"
                )
            if not bounds.contains(value):
                raise UnsoundError(f"box: the parameter {name} lies outside of its own bounds")

    @classmethod
    def from_ends(cls, ks: tuple[int, ...], nominal: Point, lower: Point, upper: Point) -> "Box":
        """Return the box with these lower and upper bounds, parameter name -> [K, *shape].

        Raises:
            UnsoundError: as for ``Box`` and ``Interval``.
        """
        return cls(ks, nominal, {name: Interval(lower[name], upper[name]) for name in lower})

    @classmethod
    def point(cls, ks: tuple[int, ...], nominal: Point) -> "Box":
        """Return the box that contains the nominal parameters alone for every k.

        Training starts from it. Its bounds are tensors of their own (``is_point`` is False).
        """
        bounds = {}
        for name, value in nominal.items():
            repeated = value.expand(len(ks), *value.shape)
            bounds[name] = Interval(repeated.clone(), repeated.clone())
        return cls(ks, nominal, bounds)

    def select_ks(self, ks: tuple[int, ...]) -> "Box":
        """Return the box for some distances of the grid, in the order given.

        Raises:
            ValueError: a k is not in the grid.
        """
        rows = [self.ks.index(k) for k in ks]
        selected = {name: interval[rows] for name, interval in self.bounds.items()}
        return Box(ks, self.nominal, selected)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Box":
        """Return the box on another device or in another dtype, checked again.

        Raises:
            UnsoundError: a tensor was overwritten since it was checked.
        """
        nominal = {name: value.to(device, dtype) for name, value in self.nominal.items()}
        lower = {name: end.to(device, dtype) for name, end in self.lower.items()}
        upper = {name: end.to(device, dtype) for name, end in self.upper.items()}
        return Box.from_ends(self.ks, nominal, lower, upper)

    @property
    def lower(self) -> dict[str, Tensor]:
        """Return the lower bounds, parameter name -> [K, *shape]."""
        return {name: interval.lower for name, interval in self.bounds.items()}

    @property
    def upper(self) -> dict[str, Tensor]:
        """Return the upper bounds, parameter name -> [K, *shape]."""
        return {name: interval.upper for name, interval in self.bounds.items()}


def select_ks(bounds: Intervals, ks: slice) -> dict[str, Interval]:
    """Return the bounds for a slice of the grid, as views of the same tensors."""
    return {name: interval[ks] for name, interval in bounds.items()}
