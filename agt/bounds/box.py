"""A model's parameters, and bounds on the parameters of every neighbour's training."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.errors import UnsoundError

Point = Mapping[str, Tensor]  # parameter name -> its value
Intervals = Mapping[str, Interval]  # parameter name -> bounds on it, [K, ...]


@dataclass(frozen=True)
class Box:
    """A model's parameters, and for each k an interval that holds those of every training k changes
    away.

    Attributes:
        ks: [K] the grid, increasing.
        nominal: name -> the parameters that were trained.
        bounds: name -> [K, ...] bounds, one slice for each k.

    Raises:
        UnsoundError: names or shapes differ, or a bound does not hold the nominal parameters.
            ``Interval`` sees to it that bounds are finite and in order.
    """

    ks: tuple[int, ...]
    nominal: Point
    bounds: Intervals

    def __post_init__(self) -> None:
        if self.nominal.keys() != self.bounds.keys():
            raise UnsoundError(
                f"box: parameters {sorted(self.nominal)} and bounds {sorted(self.bounds)}"
            )
        for name, value in self.nominal.items():
            if self.bounds[name].shape != (len(self.ks), *value.shape):
                raise UnsoundError(
                    f"box: {name} has shape {tuple(value.shape)}, and for {len(self.ks)} values of "
                    "k its bounds have "
                    f"{tuple(self.bounds[name].shape)}"
                )
            if not self.bounds[name].contains(value):
                raise UnsoundError(f"the nominal parameters {name} are outside their box")

    @classmethod
    def from_ends(cls, ks: tuple[int, ...], nominal: Point, lower: Point, upper: Point) -> "Box":
        """From the ends of the bounds, name -> [K, ...].

        Raises:
            UnsoundError: as above, or a bound is not finite or out of order.
        """
        return cls(ks, nominal, {name: Interval(lower[name], upper[name]) for name in lower})

    @classmethod
    def point(cls, ks: tuple[int, ...], nominal: Point) -> "Box":
        """Before the first step, where every k allows the nominal parameters alone."""
        lower, upper = (
            {n: p.expand(len(ks), *p.shape).clone() for n, p in nominal.items()} for _ in range(2)
        )
        return cls.from_ends(ks, nominal, lower, upper)

    def select_ks(self, ks: tuple[int, ...]) -> "Box":
        """The same for some k of the grid."""
        rows = [self.ks.index(k) for k in ks]
        return Box(
            ks, self.nominal, {name: interval[rows] for name, interval in self.bounds.items()}
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> "Box":
        """The same elsewhere, checked again.

        Raises:
            UnsoundError: a tensor was overwritten since it was checked.
        """
        nominal = {name: value.to(device, dtype) for name, value in self.nominal.items()}
        bounds = {
            n: Interval(i.lower.to(device, dtype), i.upper.to(device, dtype))
            for n, i in self.bounds.items()
        }
        return Box(self.ks, nominal, bounds)

    @property
    def lower(self) -> dict[str, Tensor]:
        """name -> [K, ...] lower bounds."""
        return {name: interval.lower for name, interval in self.bounds.items()}

    @property
    def upper(self) -> dict[str, Tensor]:
        """name -> [K, ...] upper bounds."""
        return {name: interval.upper for name, interval in self.bounds.items()}


def select_ks(bounds: Intervals, ks: slice) -> dict[str, Interval]:
    """The bounds for a part of the grid: views, not copies."""
    return {name: interval[ks] for name, interval in bounds.items()}
