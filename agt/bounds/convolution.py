"""The rule of ``nn.Conv2d``: matrix products over the patches that an image unfolds to.

PyTorch's own convolution is not used, since it may take short cuts (Winograd, FFT) whose rounding
no proof here covers. Nor is its unfolding, which starts its threads again for each image.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient
from agt.bounds.pooling import IntPair, as_pair
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError

# Numbers of a [K, records, parameters] block: no more gradients of records are made at once.
_GRADIENT_BLOCK_NUMBERS = 1 << 20


@dataclass(frozen=True)
class ConvRule:
    """The rule of a convolution, [..., channels, H, W] -> [..., out, H', W'].

    Formal guarantees: outputs, gradients in the input and gradients in the parameters are bounded
    by exact products, widened by what their sums may err by (docs/proofs/layers.md).

    Attributes:
        name: the prefix of the parameters ``NAME.weight`` and ``NAME.bias`` [out].
        bias: whether the layer has a bias.
        shape: of the weight: (out, in / groups, rows, columns).
        stride, padding, dilation: of the window, in rows and columns.
        groups: the number of convolutions side by side, each of its own channels.
        nonnegative: True if the layers before cannot give a negative value for any data.
    """

    name: str
    bias: bool
    shape: tuple[int, int, int, int]
    stride: IntPair
    padding: IntPair
    dilation: IntPair
    groups: int
    nonnegative: bool = False

    @classmethod
    def from_layer(cls, name: str, layer: nn.Conv2d) -> "ConvRule":
        """Return the rule of a layer.

        Raises:
            ConfigError: the padding is not of zeros, or is given as a word ("same", "valid").
        """
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise ConfigError(
                f"model: no bound rule for layer {name} (Conv2d) with padding={layer.padding!r} "
                f"and padding_mode={layer.padding_mode!r}: give the padding as numbers, and "
                "padding_mode='zeros'"
            )
        out, channels_of_group, rows, columns = layer.weight.shape
        return cls(
            name,
            bias=layer.bias is not None,
            shape=(out, channels_of_group, rows, columns),
            stride=as_pair(layer.stride),
            padding=as_pair(layer.padding),
            dilation=as_pair(layer.dilation),
            groups=layer.groups,
        )

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """Return the convolution, [n, in, H, W] -> [n, out, H', W']."""
        y = self._grouped(point[f"{self.name}.weight"]) @ self._patches(x)
        if self.bias:
            y = y + point[f"{self.name}.bias"].view(self.groups, -1, 1)
        return y.reshape(*x.shape[:-3], self.shape[0], *self._output_size(x.shape))

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """Return the gradient in x, [n, out, H', W'] -> [n, in, H, W]."""
        weight = self._grouped(point[f"{self.name}.weight"])
        return self._folded(weight.mT @ self._rows(d), x.shape)

    def nominal_gradients(self, d: Tensor, x: Tensor) -> Iterator[tuple[str, Tensor, None]]:
        """Yield each record's gradients in the weight [n, parameters], and in the bias [n, out].

        Those in the weight come for some records at a time, in order.
        """
        for block in self._record_blocks(1, len(d)):
            gradient = self._rows(d[block]) @ self._patches(x[block]).mT
            yield f"{self.name}.weight", gradient.flatten(1), None
        if self.bias:
            yield f"{self.name}.bias", d.flatten(2).sum(dim=-1), None

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the convolution, [K or 1, n, in, H, W] -> [K, n, out, H', W']."""
        patches = x.rearranged(self._patches_of_each_k)
        weight = box[f"{self.name}.weight"]
        product = products.forward(
            patches.rearranged(_transposed),
            weight.rearranged(self._of_every_record),
            self.nonnegative,
        )
        lower, upper = (end.mT for end in product)
        # Lemma 2 of docs/proofs/layers.md.
        length = prod(self.shape[1:])
        size = _largest_of_record(x) * _largest_of_all(weight) * length
        if self.bias:
            bias = box[f"{self.name}.bias"]
            added = bias.rearranged(lambda end: end.view(len(end), 1, self.groups, -1, 1))
            lower = lower.add_(added.lower)
            upper = upper.add_(added.upper)
            size = size + _largest_of_all(bias)
        image = (*lower.shape[:2], self.shape[0], *self._output_size(x.shape))
        bounds = rounding.widen(
            (lower.flatten(2), upper.flatten(2)), rounding.sum_error(length, size)
        )
        return bounds.rearranged(lambda end: end.view(image))

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the gradient in x, [K, n, out, H', W'] -> [K, n, in, H, W]."""
        weight = box[f"{self.name}.weight"]
        rows = d.rearranged(lambda end: _transposed(self._rows(end)))
        weights = weight.rearranged(lambda end: _transposed(self._of_every_record(end)))
        ends = products.backward(weights, rows)
        shape = (*d.shape[:2], *x.shape[2:])
        lower, upper = (self._folded(end, shape) for end in ends)
        # Lemma 3 of docs/proofs/layers.md: one sum of all products that a number takes part in.
        length = prod(self.shape[2:]) * self.shape[0] // self.groups
        size = _largest_of_record(d) * _largest_of_all(weight) * length
        bounds = rounding.widen(
            (lower.flatten(2), upper.flatten(2)), rounding.sum_error(length, size)
        )
        return bounds.rearranged(lambda end: end.view(shape))

    def gradients(
        self, d: Interval, x: Interval, rounding: Rounding, products: Products
    ) -> Iterator[Gradient]:
        """Yield bounds on the gradients in the weight [K, n, parameters] and the bias [K, n, out].

        Those in the weight come for some records at a time, in order.
        """
        ks, n = d.shape[:2]
        positions = prod(d.shape[3:])
        size = _largest_of_record(d) * positions
        for block in self._record_blocks(ks, n):
            # Lemma 4 of docs/proofs/layers.md.
            tau = rounding.sum_error(positions, size[:, block] * _largest_of_record(x[:, block]))
            product = products.forward(
                x[:, block].rearranged(self._patches_of_each_k),
                d[:, block].rearranged(self._rows),
                self.nonnegative,
            )
            lower, upper = (end.mT.flatten(2) for end in product)
            yield Gradient(f"{self.name}.weight", rounding.widen((lower, upper), tau), None)
        if self.bias:
            sums = d.lower.flatten(3).sum(dim=-1), d.upper.flatten(3).sum(dim=-1)
            bounds = rounding.widen(sums, rounding.sum_error(positions, size))
            yield Gradient(f"{self.name}.bias", bounds, None)

    def numbers_held(self, x: Tensor, y: Tensor) -> int:
        """Return the numbers of one record's input, patches and output, without copies."""
        return x.numel() + self._patches(x).numel() + y.numel()

    def _patches(self, x: Tensor, leading_axes: int = 1) -> Tensor:
        """Return the patch that each position of the output sees.

        Args:
            x: [..., in, H, W].
            leading_axes: the number of axes before those of a record.

        Returns:
            [..., groups, in / groups * rows * columns, positions]; numbers are only copied, and
            zeros added for the padding.

        Raises:
            ConfigError: a record is not an image of ``in`` channels, or is smaller than a window.
        """
        channels = self.shape[1] * self.groups
        record = tuple(x.shape[leading_axes:])
        if len(record) != 3 or record[0] != channels or min(self._output_size(record)) < 1:
            window = "{} x {}".format(*self._window_size)
            raise ConfigError(
                f"model: layer {self.name} (Conv2d) takes images with {channels} channels "
                f"into which its window of {window} fits (with padding), but a record has the "
                f"shape {record}"
            )
        rows, columns = self._window_size
        row_stride, column_stride = self.stride
        row_step, column_step = self.dilation
        padded = x
        if any(self.padding):
            row_padding, column_padding = self.padding
            padded = nn.functional.pad(
                x, (column_padding, column_padding, row_padding, row_padding)
            )
        windows = padded.unfold(-2, rows, row_stride).unfold(-2, columns, column_stride)
        dilated = windows[..., ::row_step, ::column_step]  # still a view
        arranged = dilated.movedim((-4, -3), (-2, -1))  # [..., in, rows, columns, H', W']
        return arranged.reshape(
            *x.shape[:-3], self.groups, prod(self.shape[1:]), prod(arranged.shape[-2:])
        )

    def _patches_of_each_k(self, x: Tensor) -> Tensor:
        """Return ``_patches`` of an interval's end, [K or 1, n, in, H, W]."""
        return self._patches(x, leading_axes=2)

    def _folded(self, columns: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return an image from patches, adding up all entries of the same number.

        Args:
            columns: [..., groups, in / groups * rows * columns, positions].
            shape: of the result, [..., in, H, W].
        """
        row_stride, column_stride = self.stride
        row_step, column_step = self.dilation
        first_row, first_column = self.padding
        height, width = shape[-2:]
        rows_out, columns_out = self._output_size(shape)
        windows = columns.reshape(*shape[:-2], *self.shape[2:], rows_out, columns_out)
        padded = columns.new_zeros((*shape[:-2], height + 2 * first_row, width + 2 * first_column))
        for i in range(self.shape[2]):
            for j in range(self.shape[3]):
                from_ij = padded[..., i * row_step :: row_stride, j * column_step :: column_stride]
                from_ij[..., :rows_out, :columns_out] += windows[..., i, j, :, :]
        image = padded[..., first_row : first_row + height, first_column : first_column + width]
        return image.contiguous()

    def _rows(self, d: Tensor) -> Tensor:
        """Return [..., out, H', W'] as [..., groups, out / groups, positions]."""
        outputs_of_group = self.shape[0] // self.groups
        return d.reshape(*d.shape[:-3], self.groups, outputs_of_group, prod(d.shape[-2:]))

    def _grouped(self, weight: Tensor) -> Tensor:
        """Return a weight [..., *shape] as [..., groups, out / groups, in / groups * window]."""
        return weight.reshape(*weight.shape[:-4], self.groups, self.shape[0] // self.groups, -1)

    def _of_every_record(self, weight: Tensor) -> Tensor:
        """Return a weight's bound [K, *shape] as [K, 1, groups, ...], for all records alike."""
        return self._grouped(weight)[:, None]

    def _record_blocks(self, ks: int, n: int) -> list[slice]:
        """Return slices of records whose gradients together have a bounded size."""
        step = max(1, _GRADIENT_BLOCK_NUMBERS // (ks * prod(self.shape)))
        return [slice(start, start + step) for start in range(0, n, step)]

    @property
    def _window_size(self) -> IntPair:
        """Return how many rows and columns of an image a window spans."""
        rows, columns = (
            step * (size - 1) + 1 for step, size in zip(self.dilation, self.shape[2:], strict=True)
        )
        return rows, columns

    def _output_size(self, shape: tuple[int, ...]) -> IntPair:
        """Return (H', W') for an image of ``shape``, whose last axes are H, W."""
        axes = zip(shape[-2:], self.padding, self._window_size, self.stride, strict=True)
        rows, columns = (
            (length + 2 * padding - window) // stride + 1
            for length, padding, window, stride in axes
        )
        return rows, columns


def _transposed(matrices: Tensor) -> Tensor:
    """Return each matrix transposed, as a function to pass on."""
    return matrices.mT


def _largest_of_record(x: Interval) -> Tensor:
    """Return the largest magnitude of each record's numbers, [K or 1, n, 1]."""
    return x.rearranged(lambda end: end.flatten(2)).inf_norm()


def _largest_of_all(parameters: Interval) -> Tensor:
    """Return the largest magnitude of all numbers of a parameter, [K, 1, 1]."""
    return parameters.magnitude().flatten(1).amax(dim=1)[:, None, None]
