"""The value every bound is: a pair of tensors, lower <= upper, with nothing undefined in it."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agt.errors import UnboundedError, UnsoundError


@dataclass(frozen=True, slots=True)
class Interval:
    """Elementwise bounds: every value spoken of lies in [lower, upper].

    Tensors about records are laid out [K, n, width]: one slice for each k of the grid, one row for each record. A
    quantity that does not depend on k (a layer's input before any weight was applied) has K = 1.

    Raises:
        UnsoundError: shapes or dtypes differ, lower > upper somewhere, or (UnboundedError) a bound is NaN or infinite.
            This is raised, not asserted: a guarantee rests on it.
    """

    lower: Tensor
    upper: Tensor

    def __post_init__(self) -> None:
        if self.lower.shape != self.upper.shape or self.lower.dtype != self.upper.dtype:
            raise UnsoundError(
                f"interval: lower is {tuple(self.lower.shape)} {self.lower.dtype}, "
                f"upper is {tuple(self.upper.shape)} {self.upper.dtype}"
            )
        if self.lower.numel() == 0:
            return
        # One pass catches everything: a NaN reaches both ends, and an infinite bound makes the width infinite or NaN.
        least, greatest = (end.item() for end in (self.lower if self.is_point else self.upper - self.lower).aminmax())
        if not (-math.inf < least and greatest < math.inf):
            raise UnboundedError("interval: a bound is NaN or infinite (learning rate or inputs too large?)")
        if not self.is_point and least < 0:
            raise UnsoundError("interval: a lower bound exceeds its upper bound")

    @classmethod
    def point(cls, value: Tensor) -> "Interval":
        """The interval that holds ``value`` alone."""
        return cls(value, value)

    @classmethod
    def image(cls, lower: Tensor, upper: Tensor) -> "Interval":
        """Bounds that need no check: the image of a valid interval under a nondecreasing map with finite values, or a part
        of one. Whoever calls this has shown that it is one."""
        interval = object.__new__(cls)
        object.__setattr__(interval, "lower", lower)
        object.__setattr__(interval, "upper", upper)
        return interval

    @property
    def is_point(self) -> bool:
        """True if it was made by ``point`` (the two bounds are one tensor)."""
        return self.lower is self.upper

    @property
    def shape(self) -> torch.Size:
        """The shape of both bounds."""
        return self.lower.shape

    def double(self) -> "Interval":
        """The same bounds in float64: every float32 is one, so nothing is rounded."""
        if self.lower.dtype == torch.float64:
            return self
        lower = self.lower.double()
        return Interval.image(lower, lower if self.is_point else self.upper.double())

    def magnitude(self) -> Tensor:
        """The largest absolute value in each element's interval; grows with the interval."""
        return self.lower.abs() if self.is_point else torch.maximum(self.lower.abs(), self.upper.abs())

    def inf_norm(self) -> Tensor:
        """The greatest infinity norm of each row (last axis), kept as an axis of length 1."""
        if self.is_point:
            least, greatest = self.lower.aminmax(dim=-1, keepdim=True)
            return torch.maximum(greatest, -least)
        return torch.maximum(self.upper.amax(dim=-1, keepdim=True), -self.lower.amin(dim=-1, keepdim=True))

    def __sub__(self, other: "Interval") -> "Interval":
        return Interval(self.lower - other.upper, self.upper - other.lower)

    def __getitem__(self, index: Any) -> "Interval":
        lower = self.lower[index]
        return Interval.image(lower, lower if self.is_point else self.upper[index])

    def contains(self, value: Tensor) -> bool:
        """True if every element of ``value`` (broadcast) lies in its interval."""
        return bool(((self.lower <= value) & (value <= self.upper)).all())
