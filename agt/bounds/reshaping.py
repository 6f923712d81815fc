"""Flatten and Unflatten."""

from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError


@dataclass(frozen=True)
class FlattenRule:
    """[n, ...] -> [n, *shape]: the same numbers.

    Attributes:
        shape: of a record's numbers.
    """

    name: str
    shape: tuple[int, ...] = (-1,)

    @classmethod
    def of(cls, name: str, layer: nn.Flatten) -> "FlattenRule":
        """To a row.

        Raises:
            ConfigError: some axes alone are flattened.
        """
        if layer.start_dim != 1 or layer.end_dim != -1:
            raise ConfigError(
                f"model: layer {name} (Flatten) flattens some axes alone: use plain nn.Flatten()"
            )
        return cls(name)

    @classmethod
    def back(cls, name: str, layer: nn.Unflatten) -> "FlattenRule":
        """From a row.

        Raises:
            ConfigError: another axis is parted than a row's own, or not into an image's three, each
                of a given size.
        """
        shape = layer.unflattened_size
        if layer.dim not in (1, -1) or len(shape) != 3 or min(shape) < 1:
            raise ConfigError(
                f"model: layer {name} (Unflatten) is supported as nn.Unflatten(1, (channels, "
                "height, width)) alone"
            )
        return cls(name, tuple(shape))

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        return self._shaped(x, 1)

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return d.reshape(x.shape)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        return x.rearranged(lambda end: self._shaped(end, 2))

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        return d.rearranged(lambda end: end.reshape(d.shape[:2] + x.shape[2:]))

    def _shaped(self, x: Tensor, axes: int) -> Tensor:
        """Records have ``axes`` axes before their own.

        Raises:
            ConfigError: a record has another number of numbers.
        """
        numbers = prod(x.shape[axes:])
        if -1 not in self.shape and prod(self.shape) != numbers:
            raise ConfigError(
                f"model: layer {self.name} (Unflatten) makes {self.shape} of rows, and a row has "
                f"{numbers} numbers"
            )
        return x.reshape(*x.shape[:axes], *(numbers if size == -1 else size for size in self.shape))
