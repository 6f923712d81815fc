"""Convolutions."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient
from agt.bounds.pooling import IntPair, pair
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError

# elements of a [K, records, parameters] block: all that is ever made of per-record gradients
_BLOCK = 1 << 20


@dataclass(frozen=True)
class ConvRule:
    """[..., channels, H, W] -> [..., out, H', W'] (``nn.Conv2d``). ``name`` prefixes the
    parameters.

    Attributes:
        shape: of the weight: out, in / groups, rows, columns.
        stride, padding, dilation: of the window, in rows and columns.
        nonnegative: what it is given has no value below 0.
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
    def of(cls, name: str, layer: nn.Conv2d) -> "ConvRule":
        """The rule of a layer.

        Raises:
            ConfigError: padding with something else than zeros, or given as a word.
        """
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise ConfigError(
                f"model: no bound rule for layer {name} (Conv2d) with padding={layer.padding!r} "
                "and "
                f"padding_mode={layer.padding_mode!r}: give the padding as numbers, and "
                "padding_mode='zeros'"
            )
        out, each, rows, columns = layer.weight.shape
        stride, padding, dilation = (
            pair(getattr(layer, setting)) for setting in ("stride", "padding", "dilation")
        )
        shape = (out, each, rows, columns)
        return cls(name, layer.bias is not None, shape, stride, padding, dilation, layer.groups)

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """[n, in, H, W] -> [n, out, H', W']."""
        y = self._grouped(point[f"{self.name}.weight"]) @ self._patches(x)
        if self.bias:
            y = y + point[f"{self.name}.bias"].view(self.groups, -1, 1)
        return y.reshape(*x.shape[:-3], self.shape[0], *self._positions(x.shape))

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """[n, out, H', W'] -> [n, in, H, W]."""
        return self._folded(self._grouped(point[f"{self.name}.weight"]).mT @ self._rows(d), x.shape)

    def nominal_gradients(self, d: Tensor, x: Tensor) -> Iterator[tuple[str, Tensor, None]]:
        """Each record's gradients in the weight [n, parameters], some records at a time, and in
        the bias [n, out].
        """
        for block in self._blocks(1, len(d)):
            gradient = self._rows(d[block]) @ self._patches(x[block]).mT
            yield f"{self.name}.weight", gradient.flatten(1), None
        if self.bias:
            yield f"{self.name}.bias", d.flatten(2).sum(dim=-1), None

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """[K or 1, n, in, H, W] -> [K, n, out, H', W']."""
        patches, weight = x.rearranged(self._patches_of_each_k), box[f"{self.name}.weight"]
        product = products.forward(
            patches.rearranged(_turned), weight.rearranged(self._of_every_record), self.nonnegative
        )
        lower, upper = (end.mT for end in product)
        length = prod(self.shape[1:])
        size = _terms(x) * _greatest(weight) * length
        if self.bias:
            bias = box[f"{self.name}.bias"]
            rows = bias.rearranged(lambda end: end.view(len(end), 1, self.groups, -1, 1))
            lower, upper = lower.add_(rows.lower), upper.add_(rows.upper)
            size = size + _greatest(bias)
        image = (*lower.shape[:2], self.shape[0], *self._positions(x.shape))
        bounds = rounding.widen(
            (lower.flatten(2), upper.flatten(2)), rounding.sum_error(length, size)
        )
        return bounds.rearranged(lambda end: end.view(image))

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """[K, n, out, H', W'] -> [K, n, in, H, W]."""
        weight = box[f"{self.name}.weight"]
        rows = d.rearranged(lambda end: _turned(self._rows(end)))
        ends = products.back(
            weight.rearranged(lambda end: _turned(self._of_every_record(end))), rows
        )
        shape = (*d.shape[:2], *x.shape[2:])
        lower, upper = (self._folded(end, shape) for end in ends)
        length = prod(self.shape[2:]) * self.shape[0] // self.groups
        size = _terms(d) * _greatest(weight) * length
        bounds = rounding.widen(
            (lower.flatten(2), upper.flatten(2)), rounding.sum_error(length, size)
        )
        return bounds.rearranged(lambda end: end.view(shape))

    def gradients(
        self, d: Interval, x: Interval, rounding: Rounding, products: Products
    ) -> Iterator[Gradient]:
        """Bounds on what ``nominal_gradients`` gives: [K, n, parameters], some records at a
        time, and [K, n, out].
        """
        ks, n, positions = d.shape[0], d.shape[1], prod(d.shape[3:])
        size = _terms(d) * positions
        for block in self._blocks(ks, n):
            tau = rounding.sum_error(positions, size[:, block] * _terms(x[:, block]))
            product = products.forward(
                x[:, block].rearranged(self._patches_of_each_k),
                d[:, block].rearranged(self._rows),
                self.nonnegative,
            )
            lower, upper = (end.mT.flatten(2) for end in product)
            yield Gradient(f"{self.name}.weight", rounding.widen((lower, upper), tau), None)
        if self.bias:
            sums = d.lower.flatten(3).sum(dim=-1), d.upper.flatten(3).sum(dim=-1)
            yield Gradient(
                f"{self.name}.bias", rounding.widen(sums, rounding.sum_error(positions, size)), None
            )

    def alive(self, x: Tensor, y: Tensor) -> int:
        """How many numbers of a record its passes hold at once, ends of intervals and copies
        aside.
        """
        return x.numel() + self._patches(x).numel() + y.numel()

    # -- arrangements: nothing below computes but _folded, which adds
    # ----------------------------------------------

    def _patches(self, x: Tensor, axes: int = 1) -> Tensor:
        """[..., in, H, W] -> [..., groups, in / groups * kh * kw, positions].

        Args:
            axes: before a record's own.

        Raises:
            ConfigError: a record is no such image, or has no room for a window.
        """
        channels, record = self.shape[1] * self.groups, tuple(x.shape[axes:])
        if len(record) != 3 or record[0] != channels or min(self._positions(record)) < 1:
            reach = "{} x {}".format(*self._reach)
            raise ConfigError(
                f"model: layer {self.name} (Conv2d) takes images of {channels} channels with room "
                f"for a window of {reach}, "
                f"and a record comes as {record}"
            )
        (rows, columns), (down, right), (below, beside) = self._reach, self.stride, self.dilation
        padded = (
            nn.functional.pad(x, (self.padding[1],) * 2 + (self.padding[0],) * 2)
            if any(self.padding)
            else x
        )
        # a view: nothing copied
        windows = padded.unfold(-2, rows, down).unfold(-2, columns, right)[..., ::below, ::beside]
        arranged = windows.movedim((-4, -3), (-2, -1))  # [..., in, kh, kw, H', W']
        return arranged.reshape(
            *x.shape[:-3], self.groups, prod(self.shape[1:]), prod(arranged.shape[-2:])
        )

    def _patches_of_each_k(self, x: Tensor) -> Tensor:
        return self._patches(x, axes=2)

    def _folded(self, columns: Tensor, shape: tuple[int, ...]) -> Tensor:
        """[..., groups, in / groups * kh * kw, positions] -> ``shape``, what stands for the same
        number added up.
        """
        (down, right), (below, beside), (top, left) = self.stride, self.dilation, self.padding
        height, width = self._positions(shape)
        seen = columns.reshape(*shape[:-2], *self.shape[2:], height, width)
        image = columns.new_zeros((*shape[:-2], shape[-2] + 2 * top, shape[-1] + 2 * left))
        for i in range(self.shape[2]):
            for j in range(self.shape[3]):
                image[..., i * below :: down, j * beside :: right][..., :height, :width] += seen[
                    ..., i, j, :, :
                ]
        return image[..., top : top + shape[-2], left : left + shape[-1]].contiguous()

    def _rows(self, d: Tensor) -> Tensor:
        """[..., out, H', W'] -> [..., groups, out / groups, positions]."""
        return d.reshape(
            *d.shape[:-3], self.groups, self.shape[0] // self.groups, prod(d.shape[-2:])
        )

    def _grouped(self, weight: Tensor) -> Tensor:
        """[..., out, in / groups, kh, kw] -> [..., groups, out / groups, in / groups * kh * kw]."""
        return weight.reshape(*weight.shape[:-4], self.groups, self.shape[0] // self.groups, -1)

    def _of_every_record(self, weight: Tensor) -> Tensor:
        """[K, out, ...] -> [K, 1, groups, ...]."""
        return self._grouped(weight)[:, None]

    def _blocks(self, ks: int, n: int) -> list[slice]:
        """Records at a time, so that their gradients are a block of bounded size."""
        step = max(1, _BLOCK // (ks * prod(self.shape)))
        return [slice(start, start + step) for start in range(0, n, step)]

    @property
    def _reach(self) -> IntPair:
        """How many rows and columns a window spans."""
        rows, columns = (
            d * (s - 1) + 1 for d, s in zip(self.dilation, self.shape[2:], strict=True)
        )
        return rows, columns

    def _positions(self, shape: tuple[int, ...]) -> IntPair:
        """H', W' for an image whose last axes are H, W."""
        ends = zip(shape[-2:], self.padding, self._reach, self.stride, strict=True)
        rows, columns = (
            (length + 2 * p - reach) // stride + 1 for length, p, reach, stride in ends
        )
        return rows, columns


def _turned(matrices: Tensor) -> Tensor:
    return matrices.mT


def _terms(x: Interval) -> Tensor:
    """[K or 1, n, 1]: the greatest magnitude of a record's numbers."""
    return x.rearranged(lambda end: end.flatten(2)).inf_norm()


def _greatest(parameters: Interval) -> Tensor:
    """[K, 1, 1]: the greatest magnitude of all."""
    return parameters.magnitude().flatten(1).amax(dim=1)[:, None, None]
