"""Intervals of tensors, the value that every bound is, and what happens where a bound overflows."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agt.errors import UnboundedError, UnsoundError

INVERTED_MESSAGE = "interval: a lower bound exceeds its upper bound"


class OverflowMask:
    """A record of which rows of bounds are finite, kept instead of raising an error.

    An error would reveal that some record's bounds overflow.

    Attributes:
        finite: bool [K or 1, n]; False where any interval seen so far had a NaN or infinite bound
            in that row. None before the first interval.
    """

    finite: Tensor | None = None

    def update(self, width: Tensor) -> None:
        """Mark the rows in which an interval is NaN or infinite.

        Args:
            width: [K or 1, n, ...], ``upper - lower`` of the interval; of a point the absolute
                values, since its width is 0 whatever it is.

        Raises:
            UnsoundError: a width is negative, which no rule produces for any data.
        """
        row_widths = width.flatten(2)
        if bool((row_widths.amin(dim=-1) < 0).any()):
            raise UnsoundError(INVERTED_MESSAGE)
        finite = row_widths.amax(dim=-1) < math.inf  # False for a NaN as well
        self.finite = finite if self.finite is None else self.finite & finite


_OVERFLOW_MASK: ContextVar[OverflowMask | None] = ContextVar("overflow_mask", default=None)


@contextmanager
def recording_overflow() -> Iterator[OverflowMask]:
    """Record overflowing bounds in a mask, instead of raising ``UnboundedError``.

    Every interval made inside must be about records ([K or 1, n, ...]), or a difference of
    parameters, which is not checked here.

    Formal guarantee: every row whose final bound depends on an overflowed one is marked. Sums,
    products and widenings of a NaN or infinite bound are NaN or infinite in the same row
    [k, record], since matrix products and elementwise operations keep rows apart. Where an
    activation maps such a bound to a finite one, its input was recorded before. A difference of
    parameters that overflows reaches every row of its k.

    Yields:
        The mask, which is complete when the block ends.
    """
    mask = OverflowMask()
    token = _OVERFLOW_MASK.set(mask)
    try:
        yield mask
    finally:
        _OVERFLOW_MASK.reset(token)


@dataclass(frozen=True, slots=True)
class Interval:
    """Elementwise lower and upper bounds of a tensor; both ends belong to the interval.

    Tensors about records have the shape [K, n, width], with one slice for each k of the grid and
    one row for each record. K is 1 for a quantity that does not depend on k, such as a layer's
    input before any weight was applied.

    Attributes:
        lower, upper: tensors of equal shape and dtype, finite, with lower <= upper.

    Raises:
        UnsoundError: shapes or dtypes differ, or lower > upper somewhere. It is raised and not
            asserted, because guarantees depend on it.
        UnboundedError: a bound is NaN or infinite; inside ``recording_overflow`` the row is marked
            instead.
    """

    lower: Tensor
    upper: Tensor

    def __post_init__(self) -> None:
        if self.lower.shape != self.upper.shape or self.lower.dtype != self.upper.dtype:
            raise UnsoundError(
                f"interval: the lower bound is {tuple(self.lower.shape)} {self.lower.dtype}, "
                f"but the upper bound is {tuple(self.upper.shape)} {self.upper.dtype}; shape "
                "and type must be equal"
            )
        if self.lower.numel() == 0:
            return
        mask = _OVERFLOW_MASK.get()
        if mask is not None:
            mask.update(self.lower.abs() if self.is_point else self.upper - self.lower)
            return
        # One pass finds every fault: a NaN reaches both extremes, and an infinite bound makes the
        # width infinite or NaN. A point has no width to look at, so its values are.
        checked = self.lower if self.is_point else self.upper - self.lower
        smallest, largest = (extreme.item() for extreme in checked.aminmax())
        if not (-math.inf < smallest and largest < math.inf):
            raise UnboundedError(
                "interval: a bound is NaN or infinite; the learning rate or the inputs may be "
                "too large"
            )
        if not self.is_point and smallest < 0:
            raise UnsoundError(INVERTED_MESSAGE)

    @classmethod
    def point(cls, value: Tensor) -> "Interval":
        """Return the interval that contains ``value`` alone."""
        return cls(value, value)

    @classmethod
    def unchecked(cls, lower: Tensor, upper: Tensor) -> "Interval":
        """Return an interval without checking its bounds.

        The caller must know that they are finite and in order, for example because they are part
        of a valid interval, or its image under a nondecreasing map with finite values.
        """
        interval = object.__new__(cls)
        object.__setattr__(interval, "lower", lower)
        object.__setattr__(interval, "upper", upper)
        return interval

    @property
    def is_point(self) -> bool:
        """Return whether the interval was made by ``point``: both bounds are one tensor object."""
        return self.lower is self.upper

    @property
    def shape(self) -> torch.Size:
        """Return the shape of both bounds."""
        return self.lower.shape

    def double(self) -> "Interval":
        """Return the same bounds in float64; nothing is rounded, as every float32 is a float64."""
        if self.lower.dtype == torch.float64:
            return self
        return self.rearranged(Tensor.double)

    def rearranged(self, arrange: Callable[[Tensor], Tensor]) -> "Interval":
        """Return the interval with both bounds rearranged alike; a point remains a point.

        Args:
            arrange: a map that only copies or converts numbers and may add zeros (a view, an index,
                a transpose, padding), so that the result needs no check.
        """
        lower = arrange(self.lower)
        upper = lower if self.is_point else arrange(self.upper)
        return Interval.unchecked(lower, upper)

    def magnitude(self) -> Tensor:
        """Return the largest absolute value in each element's interval."""
        if self.is_point:
            return self.lower.abs()
        return torch.maximum(self.lower.abs(), self.upper.abs())

    def inf_norm(self) -> Tensor:
        """Return the largest infinity norm of each row, the last axis kept with length 1."""
        return torch.maximum(
            self.upper.amax(dim=-1, keepdim=True), -self.lower.amin(dim=-1, keepdim=True)
        )

    def __sub__(self, other: "Interval") -> "Interval":
        """Return the interval of all differences, [lower - other.upper, upper - other.lower]."""
        lower = self.lower - other.upper
        upper = self.upper - other.lower
        # Differences are of parameters, whose axes are not rows of records, as a mask expects.
        if _OVERFLOW_MASK.get() is not None:
            return Interval.unchecked(lower, upper)
        return Interval(lower, upper)

    def __getitem__(self, index: Any) -> "Interval":
        """Return the bounds at an index of the tensors, as views where PyTorch gives views."""
        return self.rearranged(lambda end: end[index])

    def contains(self, value: Tensor) -> bool:
        """Return whether every element of ``value`` (broadcast) lies in its interval."""
        return bool(((self.lower <= value) & (value <= self.upper)).all())
