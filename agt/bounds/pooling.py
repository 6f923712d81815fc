"""The rule of ``nn.AvgPool2d``; its bounds need no widening (docs/proofs/layers.md)."""

from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError

IntPair = tuple[int, int]  # (rows, columns)


def as_pair(value: Any) -> IntPair:
    """Return a setting of PyTorch, one number for both axes or one for each, as two numbers."""
    first, second = (value, value) if isinstance(value, int) else value
    return int(first), int(second)


@dataclass(frozen=True)
class AvgPoolRule:
    """The rule of the mean over windows of an image, [..., H, W] -> [..., H', W'].

    A window is summed in a fixed order of its own. PyTorch's pooling promises no order; it agrees
    up to rounding, and is not used.

    Formal guarantee: outputs and gradients, as computed, are nondecreasing in every number of the
    record (Lemma 1 of docs/proofs/layers.md). So the images of the ends are bounds, bit for bit.

    Attributes:
        size, stride, padding: of the window, in rows and columns.
        counts_padding: whether the zeros of the padding count in a window's mean.
    """

    name: str
    size: IntPair
    stride: IntPair
    padding: IntPair
    counts_padding: bool

    @classmethod
    def from_layer(cls, name: str, layer: nn.AvgPool2d) -> "AvgPoolRule":
        """Return the rule of a layer.

        Raises:
            ConfigError: a setting that no proof covers, or a window that PyTorch would refuse too.
        """
        for setting, supported in (("ceil_mode", False), ("divisor_override", None)):
            value = getattr(layer, setting)
            if value != supported:
                raise ConfigError(
                    f"model: no bound rule for layer {name} (AvgPool2d) with {setting}={value!r}, "
                    f"only with {supported!r}"
                )
        size = as_pair(layer.kernel_size)
        stride = as_pair(layer.stride)
        padding = as_pair(layer.padding)
        padding_fits = all(0 <= 2 * p <= s for p, s in zip(padding, size, strict=True))
        if min(*size, *stride) < 1 or not padding_fits:
            raise ConfigError(
                f"model: layer {name} (AvgPool2d) has kernel_size={size}, stride={stride} and "
                f"padding={padding}: use sizes and strides of at least 1, and a padding of at most "
                "half the size"
            )
        return cls(name, size, stride, padding, layer.count_include_pad)

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """Return the means, [n, ..., H, W] -> [n, ..., H', W']; ``point`` is not needed."""
        return self._pooled(x, x.shape[1:])

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """Return the gradient in x, [n, ..., H', W'] -> [n, ..., H, W]."""
        return self._spread(d, x.shape)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the means, [K or 1, n, ..., H, W] -> [K or 1, n, ..., H', W']."""
        lower = self._pooled(x.lower, x.shape[2:])
        if x.is_point:
            return Interval.point(lower)
        return Interval(lower, self._pooled(x.upper, x.shape[2:]))

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the gradient in x, [K, n, ..., H', W'] -> [K, n, ..., H, W]."""
        return Interval(self._spread(d.lower, x.shape), self._spread(d.upper, x.shape))

    def _pooled(self, x: Tensor, record_shape: torch.Size) -> Tensor:
        """Return the mean of each window.

        Args:
            record_shape: of one record, whose last two axes are pooled.

        Raises:
            ConfigError: a record has no two axes, or is smaller than a window.
        """
        if len(record_shape) < 2 or any(
            length + 2 * p < s
            for length, p, s in zip(record_shape[-2:], self.padding, self.size, strict=True)
        ):
            raise ConfigError(
                f"model: layer {self.name} (AvgPool2d) takes images into which its window of "
                f"{self.size[0]} x {self.size[1]} fits (with padding), but a record has the "
                f"shape {tuple(record_shape)}"
            )
        return self._window_sums(self._padded(x), record_shape) / self._divisors(x, record_shape)

    def _spread(self, d: Tensor, shape: torch.Size) -> Tensor:
        """Return the gradient in an input of ``shape``.

        Each number of it gets its share of the gradient of every window that contains it.
        """
        share = d / self._divisors(d, shape)
        padded = self._padded(d.new_zeros((*d.shape[:-2], *shape[-2:])))
        for rows, columns in self._window_positions(shape):
            padded[..., rows, columns] += share
        first_row, first_column = self.padding
        height, width = shape[-2:]
        return padded[..., first_row : first_row + height, first_column : first_column + width]

    def _divisors(self, like: Tensor, shape: torch.Size) -> Tensor:
        """Return what each window's sum is divided by, [H', W'].

        It is a tensor, because a GPU multiplies by the reciprocal of a plain number instead of
        dividing.

        Args:
            like: a tensor with the dtype and device of the result.
            shape: of an input, whose last two axes are H, W.
        """
        ones = self._padded(like.new_ones(shape[-2:]))
        return self._window_sums(torch.ones_like(ones) if self.counts_padding else ones, shape)

    def _window_sums(self, padded: Tensor, shape: torch.Size) -> Tensor:
        """Return the sum of each window, added in the order of ``_window_positions``."""
        return reduce(
            torch.add,
            (padded[..., rows, columns] for rows, columns in self._window_positions(shape)),
        )

    def _padded(self, x: Tensor) -> Tensor:
        """Return x with zeros around its last two axes."""
        rows, columns = self.padding
        return nn.functional.pad(x, (columns, columns, rows, rows))

    def _window_positions(self, shape: torch.Size) -> list[tuple[slice, slice]]:
        """Return, for each position in a window, where the padded image has its number.

        The slices (rows, columns) of one position select one number for each window; the positions
        come row by row.

        Args:
            shape: of an input without padding, whose last two axes are H, W.
        """
        slices = []
        for length, size, stride, padding in zip(
            shape[-2:], self.size, self.stride, self.padding, strict=True
        ):
            last = length + 2 * padding - size  # the first row of the last window that fits
            slices.append([slice(i, i + last + 1, stride) for i in range(size)])
        rows, columns = slices
        return list(product(rows, columns))
