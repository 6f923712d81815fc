"""Intervals of tensors, and how to record which records' bounds overflow."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from agt.errors import UnboundedError, UnsoundError

INVERTED_MESSAGE = (
    "agt.bounds: a lower bound of an interval exceeds the upper bound: correct the code that "
    "computed the bounds; if it is a part of agt, please report this"
)


class OverflowMask:
    """A record of which rows of bounds are finite, for code that must not raise an error.

    An error would reveal to an observer that some record's bounds overflow.

    Attributes:
        finite: bool [K or 1, n]; False where an interval seen so far had a NaN or infinite bound
            in that row. None before the first interval.
    """

    finite: Tensor | None = None

    def update(self, width: Tensor) -> None:
        """Mark the rows in which an interval has a NaN or infinite bound.

        Args:
            width: [K or 1, n, ...], the differences ``upper - lower`` of the interval. For an
                interval whose bounds are one tensor the caller passes the absolute values, since
                the differences are 0 even where the values overflow.

        Raises:
            UnsoundError: a width is negative, which is a programming error for any data.
        """
        row_widths = width.flatten(2)
        if bool((row_widths.amin(dim=-1) < 0).any()):
            raise UnsoundError(INVERTED_MESSAGE)
        finite = row_widths.amax(dim=-1) < math.inf  # False for a NaN as well
        if self.finite is not None:  # a row stays marked if an earlier interval overflowed
            finite = self.finite & finite
        self.finite = finite


_OVERFLOW_MASK: ContextVar[OverflowMask | None] = ContextVar("overflow_mask", default=None)


@contextmanager
def recording_overflow() -> Iterator[OverflowMask]:
    """Record in a mask which rows of bounds overflow, instead of raising ``UnboundedError``.

    Every ``Interval`` made inside the block must have one row for each record ([K or 1, n, ...]).
    Differences of parameters (``Interval.__sub__``) are exempt, and are not checked.

    Formal guarantee: every row whose final bound depends on an overflowed bound is marked.
        - Sums, products and widenings of a NaN or infinite bound are NaN or infinite in the same
          row [k, record], because matrix products and elementwise operations keep rows separate.
        - An activation may map an infinite bound to a finite one; its input was marked before.
        - A difference of parameters that overflows reaches every row of its k.

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
    """Elementwise lower and upper bounds of a tensor; both bounds belong to the interval.

    Tensors about records have the shape [K, n, width], with one slice for each distance k of the
    grid and one row for each record. K is 1 for a quantity that is the same for every k, such as
    the features that enter the first layer.

    Attributes:
        lower: the lower bounds, finite.
        upper: the upper bounds, finite, at least ``lower``, with its shape and dtype.

    Raises:
        UnsoundError: shapes or dtypes differ, or lower > upper somewhere. It is raised and not
            asserted, because guarantees depend on the check (``python -O`` drops assertions).
        UnboundedError: a bound is NaN or infinite. Inside ``recording_overflow`` the row is marked
            in the mask instead.
    """

    lower: Tensor
    upper: Tensor

    def __post_init__(self) -> None:
        """Raise an error, or mark rows in the overflow mask, unless the bounds are valid."""
        if self.lower.shape != self.upper.shape or self.lower.dtype != self.upper.dtype:
            raise UnsoundError(
                f"agt.bounds: the lower bound of an interval has shape {tuple(self.lower.shape)} "
                f"and type {self.lower.dtype}, but its upper bound has shape "
                f"{tuple(self.upper.shape)} and type {self.upper.dtype}: give both the same shape "
                "and type"
            )
        if self.lower.numel() == 0:
            return
        # One pass over the widths finds every fault: a NaN reaches both extremes, and an infinite
        # bound makes the width infinite or NaN. All widths of a point are 0, so its values are
        # looked at instead.
        checked = self.lower
        if not self.is_point:
            checked = self.upper - self.lower
        mask = _OVERFLOW_MASK.get()
        if mask is not None:  # faults are recorded in the mask instead of raised here
            mask.update(checked.abs() if self.is_point else checked)
            return
        smallest, largest = (extreme.item() for extreme in checked.aminmax())
        is_finite = -math.inf < smallest and largest < math.inf  # False for a NaN as well
        if not is_finite:
            raise UnboundedError(
                "a bound of an interval is NaN or infinite, perhaps because the learning rate "
                "or the inputs are too large: lower training.lr, or scale the inputs by public "
                "constants"
            )
        if not self.is_point and smallest < 0:
            raise UnsoundError(INVERTED_MESSAGE)

    @classmethod
    def point(cls, value: Tensor) -> "Interval":
        """Return the interval whose lower and upper bounds are both ``value``, without a copy."""
        return cls(value, value)

    @classmethod
    def unchecked(cls, lower: Tensor, upper: Tensor) -> Self:
        """Return an interval without checking its bounds, to save the time of the check.

        The caller must know that the bounds are finite and in order, for example because they are
        part of a valid interval, or its image under a nondecreasing function with finite values.

        Args:
            lower: the lower bounds.
            upper: the upper bounds, of the same shape and dtype.
        """
        interval = object.__new__(cls)
        # The dataclass is frozen, so attributes cannot be assigned in the usual way.
        object.__setattr__(interval, "lower", lower)
        object.__setattr__(interval, "upper", upper)
        return interval

    @property
    def is_point(self) -> bool:
        """Return whether both bounds are one tensor object, as ``Interval.point`` makes them.

        Two tensors with equal values do not count: comparing values would cost time.
        """
        return self.lower is self.upper

    @property
    def shape(self) -> torch.Size:
        """Return the shape of both bounds."""
        return self.lower.shape

    def double(self) -> "Interval":
        """Return the same bounds in float64; every float32 number is exact in float64."""
        if self.lower.dtype == torch.float64:
            return self
        return self.rearranged(Tensor.double)

    def rearranged(self, arrange: Callable[[Tensor], Tensor]) -> "Interval":
        """Return the interval with one rearrangement applied to both of its bounds.

        If both bounds are one tensor (``is_point``), so are those of the result.

        Args:
            arrange: a function that only copies, moves or converts numbers and may add zeros, such
                as a view, an index, a transpose or padding. The result is therefore not checked.
        """
        lower = arrange(self.lower)
        upper = lower
        if not self.is_point:
            upper = arrange(self.upper)
        return Interval.unchecked(lower, upper)

    def magnitude(self) -> Tensor:
        """Return the largest absolute value in each element's interval, in the interval's shape."""
        if self.is_point:
            return self.lower.abs()
        return torch.maximum(self.lower.abs(), self.upper.abs())

    def inf_norm(self) -> Tensor:
        """Return the largest absolute value in each row, [..., width] -> [..., 1].

        The result is the largest infinity norm of any vector within the row's bounds.
        """
        largest_upper = self.upper.amax(dim=-1, keepdim=True)
        smallest_lower = self.lower.amin(dim=-1, keepdim=True)
        return torch.maximum(largest_upper, -smallest_lower)

    def __sub__(self, other: "Interval") -> "Interval":
        """Return bounds on all differences of two parameters, one in each interval.

        The bounds are [lower - other.upper, upper - other.lower], rounded to nearest.
        """
        lower = self.lower - other.upper
        upper = self.upper - other.lower
        # A mask expects one row for each record, but the axes of a parameter are not records.
        if _OVERFLOW_MASK.get() is not None:
            return Interval.unchecked(lower, upper)
        return Interval(lower, upper)

    def __getitem__(self, index: Any) -> "Interval":
        """Return the interval at an index, as views wherever PyTorch's indexing gives views."""
        return self.rearranged(lambda end: end[index])

    def contains(self, value: Tensor) -> bool:
        """Return whether every element of a tensor lies within its bounds.

        Args:
            value: a tensor that broadcasts with the bounds.
        """
        return bool(((self.lower <= value) & (value <= self.upper)).all())


class ReluOutput(Interval):
    """Bounds on the output of a ReLU, with the largest number of each row.

    Attributes:
        largest: the largest upper bound of each row, [..., 1].
    """

    __slots__ = ("largest",)
    largest: Tensor

    @classmethod
    def with_largest(cls, lower: Tensor, upper: Tensor, largest: Tensor) -> Self:
        """Return the bounds without checking them.

        Args:
            lower: the lower bounds, at least 0, [..., width].
            upper: the upper bounds, finite, at least ``lower``.
            largest: the largest upper bound of each row, [..., 1].
        """
        output = cls.unchecked(lower, upper)
        object.__setattr__(output, "largest", largest)
        return output

    @classmethod
    def from_inputs(cls, inputs: Interval) -> Self:
        """Return bounds on max(inputs, 0), overwriting the bounds on the inputs.

        Args:
            inputs: bounds on the input of the ReLU, [..., width].
        """
        # ReLU is nondecreasing, so the images of the ends are the bounds, in order and finite.
        lower = inputs.lower.clamp_(min=0)
        upper = inputs.upper.clamp_(min=0)
        return cls.with_largest(lower, upper, upper.amax(dim=-1, keepdim=True))

    def inf_norm(self) -> Tensor:
        """Return the largest absolute value in each row, [..., 1]; no number is negative."""
        return self.largest


class ReluGradient(Interval):
    """Bounds on the gradient in the output of a ReLU that hold for that in its input as well.

    The derivative of the ReLU is 1, 0 or anything between, and has been multiplied already.
    """

    __slots__ = ()
