"""Average pooling."""

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

IntPair = tuple[int, int]


@dataclass(frozen=True)
class AvgPoolRule:
    """[..., H, W] -> [..., H', W']: the mean of each window (``nn.AvgPool2d``).

    Attributes:
        size, stride, padding: of the window, in rows and columns.
        counts_padding: the padding's zeros count as numbers of the window.
    """

    name: str
    size: IntPair
    stride: IntPair
    padding: IntPair
    counts_padding: bool

    @classmethod
    def of(cls, name: str, layer: nn.AvgPool2d) -> "AvgPoolRule":
        """The rule of a layer.

        Raises:
            ConfigError: a setting that no proof covers, or a window that PyTorch would not take
                either.
        """
        for setting, usual in (("ceil_mode", False), ("divisor_override", None)):
            if (value := getattr(layer, setting)) != usual:
                raise ConfigError(
                    f"model: no bound rule for layer {name} (AvgPool2d) with {setting}={value!r}, "
                    f"only with {usual!r}"
                )
        size, stride, padding = (
            pair(getattr(layer, setting)) for setting in ("kernel_size", "stride", "padding")
        )
        if min(*size, *stride) < 1 or not all(
            0 <= 2 * p <= s for p, s in zip(padding, size, strict=True)
        ):
            raise ConfigError(
                f"model: layer {name} (AvgPool2d) has kernel_size={size}, stride={stride} and "
                f"padding={padding}: give "
                "sizes and strides of 1 or more, and a padding of at most half the size"
            )
        return cls(name, size, stride, padding, layer.count_include_pad)

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """[n, ..., H, W] -> [n, ..., H', W']."""
        return self._pooled(x, x.shape[1:])

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return self._spread(d, x.shape)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """[K or 1, n, ..., H, W] -> [K or 1, n, ..., H', W']."""
        lower = self._pooled(x.lower, x.shape[2:])
        return (
            Interval.point(lower)
            if x.is_point
            else Interval(lower, self._pooled(x.upper, x.shape[2:]))
        )

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        return Interval(self._spread(d.lower, x.shape), self._spread(d.upper, x.shape))

    def _pooled(self, x: Tensor, record: torch.Size) -> Tensor:
        """The mean of each window.

        Args:
            record: the shape of one record, whose last two axes are pooled.

        Raises:
            ConfigError: it has no such axes, or they have no room for a window.
        """
        if len(record) < 2 or any(
            n + 2 * p < s for n, p, s in zip(record[-2:], self.padding, self.size, strict=True)
        ):
            raise ConfigError(
                f"model: layer {self.name} (AvgPool2d) takes images with room for a window of "
                f"{self.size[0]} x "
                f"{self.size[1]}, and a record comes as {tuple(record)}"
            )
        return self._sums(self._padded(x), record) / self._counts(x, record)

    def _spread(self, d: Tensor, shape: torch.Size) -> Tensor:
        """The gradient in each number of an input of ``shape``: its share of every window that
        holds it.
        """
        share = d / self._counts(d, shape)
        padded = self._padded(d.new_zeros((*d.shape[:-2], *shape[-2:])))
        for rows, columns in self._places(shape):
            padded[..., rows, columns] += share
        (down, right), (height, width) = self.padding, shape[-2:]
        return padded[..., down : down + height, right : right + width]

    def _counts(self, like: Tensor, shape: torch.Size) -> Tensor:
        """[H', W'] what each window divides by; a tensor, as a GPU multiplies by a plain
        number's reciprocal.
        """
        ones = self._padded(like.new_ones(shape[-2:]))
        return self._sums(torch.ones_like(ones) if self.counts_padding else ones, shape)

    def _sums(self, padded: Tensor, shape: torch.Size) -> Tensor:
        return reduce(
            torch.add, (padded[..., rows, columns] for rows, columns in self._places(shape))
        )

    def _padded(self, x: Tensor) -> Tensor:
        down, right = self.padding
        return nn.functional.pad(x, (right, right, down, down))

    def _places(self, shape: torch.Size) -> list[tuple[slice, slice]]:
        """For each place in a window, in order: the padded numbers that stand there, one for
        each window.
        """
        rows, columns = (
            [slice(i, i + length + 2 * p - size + 1, stride) for i in range(size)]
            for length, size, stride, p in zip(
                shape[-2:], self.size, self.stride, self.padding, strict=True
            )
        )
        return list(product(rows, columns))


def pair(value: Any) -> IntPair:
    """PyTorch's one number for both axes, or one for each."""
    first, second = (value, value) if isinstance(value, int) else value
    return int(first), int(second)
