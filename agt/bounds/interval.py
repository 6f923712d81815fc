"""The value every bound is: a pair of tensors, lower <= upper, with nothing undefined in it."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agt.errors import UnboundedError, UnsoundError


class OverflowMask:
    """Where bounds about records overflow, in place of an error, which would tell that some do.

    Attributes:
        finite: [K or 1, n] bool: no bound on the way to a record's own was NaN or infinite; None:
            none was made yet.
    """

    finite: Tensor | None = None

    def update(self, width: Tensor) -> None:
        """Look at the widths of one interval [K or 1, n, ...], or at a point's values, which are
        finite where it is.

        Raises:
            UnsoundError: a width is negative: no rule makes one, whatever the data.
        """
        each = width.flatten(2)
        if bool((each.amin(dim=-1) < 0).any()):
            raise UnsoundError(INVERTED_MESSAGE)
        finite = each.amax(dim=-1) < math.inf  # a NaN is not
        self.finite = finite if self.finite is None else self.finite & finite


_OVERFLOW_MASK: ContextVar[OverflowMask | None] = ContextVar("overflow_mask", default=None)
INVERTED_MESSAGE = "interval: a lower bound exceeds its upper bound"


@contextmanager
def recording_overflow() -> Iterator[OverflowMask]:
    """Certify without an error where bounds overflow: every interval made inside is about records,
    or made by ``-``.

    Formal guarantee: what a bound that is not finite goes into is found out, too. Sums, products
    and widenings of it are NaN or infinite, in its own row [k, record] alone, as matrix products
    and elementwise operations keep rows apart; and where an activation would make it finite again,
    it was looked at before. A difference of parameters that overflows makes every row of its k so.
    """
    watch = OverflowMask()
    token = _OVERFLOW_MASK.set(watch)
    try:
        yield watch
    finally:
        _OVERFLOW_MASK.reset(token)


@dataclass(frozen=True, slots=True)
class Interval:
    """Elementwise bounds: every value spoken of lies in [lower, upper].

    Tensors about records are laid out [K, n, width]: one slice for each k of the grid, one row for
    each record. A quantity that does not depend on k (a layer's input before any weight was
    applied) has K = 1.

    Raises:
        UnsoundError: shapes or dtypes differ, lower > upper somewhere, or (UnboundedError) a bound
            is NaN or infinite. This is raised, not asserted: a guarantee rests on it.
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
        watch = _OVERFLOW_MASK.get()
        if watch is not None:
            watch.update(self.lower.abs() if self.is_point else self.upper - self.lower)
            return
        # One pass catches everything: a NaN reaches both ends, and an infinite bound makes the
        # width infinite or NaN.
        least, greatest = (
            end.item()
            for end in (self.lower if self.is_point else self.upper - self.lower).aminmax()
        )
        if not (-math.inf < least and greatest < math.inf):
            raise UnboundedError(
                "interval: a bound is NaN or infinite (learning rate or inputs too large?)"
            )
        if not self.is_point and least < 0:
            raise UnsoundError(INVERTED_MESSAGE)

    @classmethod
    def point(cls, value: Tensor) -> "Interval":
        """The interval that holds ``value`` alone."""
        return cls(value, value)

    @classmethod
    def unchecked(cls, lower: Tensor, upper: Tensor) -> "Interval":
        """Bounds that need no check: the image of a valid interval under a nondecreasing map with
        finite values, or a part of one. Whoever calls this has shown that it is one.
        """
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
        return self.rearranged(Tensor.double)

    def rearranged(self, arranged: Callable[[Tensor], Tensor]) -> "Interval":
        """Both ends rearranged alike: ``arranged`` copies numbers, and may add zeros.

        A point stays one.
        """
        lower = arranged(self.lower)
        return Interval.unchecked(lower, lower if self.is_point else arranged(self.upper))

    def magnitude(self) -> Tensor:
        """The largest absolute value in each element's interval; grows with the interval."""
        return (
            self.lower.abs() if self.is_point else torch.maximum(self.lower.abs(), self.upper.abs())
        )

    def inf_norm(self) -> Tensor:
        """The greatest infinity norm of each row (last axis), kept as an axis of length 1."""
        return torch.maximum(
            self.upper.amax(dim=-1, keepdim=True), -self.lower.amin(dim=-1, keepdim=True)
        )

    def __sub__(self, other: "Interval") -> "Interval":
        make = Interval if _OVERFLOW_MASK.get() is None else Interval.unchecked
        return make(self.lower - other.upper, self.upper - other.lower)

    def __getitem__(self, index: Any) -> "Interval":
        return self.rearranged(lambda end: end[index])

    def contains(self, value: Tensor) -> bool:
        """True if every element of ``value`` (broadcast) lies in its interval."""
        return bool(((self.lower <= value) & (value <= self.upper)).all())
