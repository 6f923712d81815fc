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
    """Return a setting of a PyTorch layer as two integers, (rows, columns).

    Args:
        value: one integer for both axes, or a sequence of one integer for each.
    """
    if isinstance(value, int):
        return int(value), int(value)
    rows, columns = value
    return int(rows), int(columns)


@dataclass(frozen=True)
class AvgPoolRule:
    """The rule of average pooling, the mean of each window, [..., H, W] -> [..., H', W'].

    The numbers of a window are summed in a fixed order. PyTorch's pooling promises no order, so it
    is not used; its results agree up to rounding.

    Formal guarantee: outputs and gradients, as computed, are nondecreasing in every number of the
    record (Lemma 1 of docs/proofs/layers.md). So pooling the lower and the upper bounds gives
    bounds on the computed result, without widening.

    Attributes:
        name: the layer's name in the network.
        size: the size of a window, in rows and columns.
        stride: the steps between neighbouring windows, in rows and columns.
        padding: the rows and columns of zeros that are added on each side of the image.
        counts_padding: True if a window's mean divides by its full size; False if it divides by
            how many of its numbers are not padding.
    """

    name: str
    size: IntPair
    stride: IntPair
    padding: IntPair
    counts_padding: bool

    @classmethod
    def from_layer(cls, name: str, layer: nn.AvgPool2d) -> "AvgPoolRule":
        """Return the rule of a PyTorch average pooling layer.

        Args:
            name: the layer's name in the network.
            layer: the layer, of which only the settings are read.

        Raises:
            ConfigError: ``ceil_mode`` or ``divisor_override`` is set, which no proof covers; a size
                or stride is below 1; or the padding is negative or more than half of the size.
        """
        for setting, supported in (("ceil_mode", False), ("divisor_override", None)):
            value = getattr(layer, setting)
            if value != supported:
                raise ConfigError(
                    f"model: agt can compute bounds through layer {name} (AvgPool2d) only with "
                    f"{setting}={supported!r}, but it has {setting}={value!r}"
                )
        size = as_pair(layer.kernel_size)
        stride = as_pair(layer.stride)
        padding = as_pair(layer.padding)
        # More padding than half a window would give windows that contain nothing but padding.
        padding_fits = all(0 <= 2 * p <= s for p, s in zip(padding, size, strict=True))
        if min(*size, *stride) < 1 or not padding_fits:
            raise ConfigError(
                f"model: layer {name} (AvgPool2d) has kernel_size={size}, stride={stride} and "
                f"padding={padding}: use sizes and strides of at least 1, and a padding of at most "
                "half the size"
            )
        return cls(name, size, stride, padding, layer.count_include_pad)

    def nominal(self, inputs: Tensor, point: Point) -> Tensor:
        """Return the mean of each window, [n, ..., H, W] -> [n, ..., H', W'].

        ``point`` is not used, because the layer has no parameters.
        """
        return self._pool(inputs, inputs.shape[1:])

    def nominal_backward(self, output_gradient: Tensor, inputs: Tensor, point: Point) -> Tensor:
        """Return the loss gradient in the input, [n, ..., H', W'] -> [n, ..., H, W].

        Of ``inputs`` only the shape is used; ``point`` is not used.
        """
        return self._distribute(output_gradient, inputs.shape)

    def bound(
        self, inputs: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the mean of each window, [K or 1, n, ..., H, W] -> [K or 1, n, ..., H', W'].

        Only ``inputs`` is used: there are no parameters, and nothing is widened, because a mean is
        nondecreasing as computed.
        """
        lower = self._pool(inputs.lower, inputs.shape[2:])
        if inputs.is_point:
            return Interval.point(lower)
        return Interval(lower, self._pool(inputs.upper, inputs.shape[2:]))

    def bound_backward(
        self,
        output_gradient: Interval,
        inputs: Interval,
        box: Intervals,
        rounding: Rounding,
        products: Products,
    ) -> Interval:
        """Bound the loss gradient in the input, [K, n, ..., H', W'] -> [K, n, ..., H, W].

        Of ``inputs`` only the shape is used. The last three arguments are not used: there are no
        parameters, and nothing is widened, because gradients are nondecreasing as computed.
        """
        lower = self._distribute(output_gradient.lower, inputs.shape)
        upper = self._distribute(output_gradient.upper, inputs.shape)
        return Interval(lower, upper)

    def _pool(self, images: Tensor, record_shape: torch.Size) -> Tensor:
        """Return the mean of each window, [..., H, W] -> [..., H', W'].

        Args:
            images: [..., H, W], the images to pool.
            record_shape: the shape of one record, whose last two axes must be H and W.

        Raises:
            ConfigError: a record has fewer than two axes, or is smaller than a window.
        """
        fits = len(record_shape) >= 2
        if fits:
            axes = zip(record_shape[-2:], self.padding, self.size, strict=True)
            fits = all(length + 2 * padding >= size for length, padding, size in axes)
        if not fits:
            raise ConfigError(
                f"model: layer {self.name} (AvgPool2d) needs images at least as large as its "
                f"window of {self.size[0]} x {self.size[1]} (padding included), but gets records "
                f"of shape {tuple(record_shape)}: use a smaller window, or larger images"
            )
        sums = self._window_sums(self._pad(images), record_shape)
        return sums / self._divisors(images, record_shape)

    def _distribute(self, output_gradient: Tensor, shape: torch.Size) -> Tensor:
        """Return the gradient in the input: each number gets a share of each window that has it.

        The share of a window is its gradient divided by the divisor of its mean.

        Args:
            output_gradient: the gradient in the means, [..., H', W'].
            shape: the shape of the input, whose last two axes are H and W.

        Returns:
            [..., H, W].
        """
        share = output_gradient / self._divisors(output_gradient, shape)
        zeros = output_gradient.new_zeros((*output_gradient.shape[:-2], *shape[-2:]))
        padded = self._pad(zeros)
        for rows, columns in self._window_positions(shape):
            padded[..., rows, columns] += share
        first_row, first_column = self.padding
        height, width = shape[-2:]
        return padded[..., first_row : first_row + height, first_column : first_column + width]

    def _divisors(self, like: Tensor, shape: torch.Size) -> Tensor:
        """Return the numbers by which window sums are divided to give means, [H', W'].

        The divisors are a tensor and not a plain number, because a GPU multiplies by the reciprocal
        of a plain number instead of dividing, which rounds differently.

        Args:
            like: a tensor with the dtype and device that the result has.
            shape: the shape of the input, whose last two axes are H and W.
        """
        # The sum of a window of ones is the number of elements that its mean is taken over.
        counted = self._pad(like.new_ones(shape[-2:]))  # 0 in the padding
        if self.counts_padding:
            counted = torch.ones_like(counted)
        return self._window_sums(counted, shape)

    def _window_sums(self, padded: Tensor, shape: torch.Size) -> Tensor:
        """Return the sum of each window of padded images, in a fixed order of addition.

        Args:
            padded: images with their padding, [..., H + padding, W + padding].
            shape: the shape of the input without padding, whose last two axes are H and W.

        Returns:
            [..., H', W'].
        """
        # Element (i, j) of every window at once: one tensor [..., H', W'] for each (i, j).
        elements = [padded[..., rows, columns] for rows, columns in self._window_positions(shape)]
        return reduce(torch.add, elements)

    def _pad(self, images: Tensor) -> Tensor:
        """Return images [..., H, W] with the layer's padding of zeros around the last two axes."""
        rows, columns = self.padding
        return nn.functional.pad(images, (columns, columns, rows, rows))

    def _window_positions(self, shape: torch.Size) -> list[tuple[slice, slice]]:
        """Return for each position (i, j) in a window a slice with this number of every window.

        Args:
            shape: the shape of the input without padding, whose last two axes are H and W.

        Returns:
            (rows, columns) for each position, row by row. They index the padded image, and give a
            tensor [..., H', W'].
        """
        slices = []
        for length, size, stride, padding in zip(
            shape[-2:], self.size, self.stride, self.padding, strict=True
        ):
            last = length + 2 * padding - size  # where the last window that fits could begin
            slices.append([slice(i, i + last + 1, stride) for i in range(size)])
        rows, columns = slices
        return list(product(rows, columns))
