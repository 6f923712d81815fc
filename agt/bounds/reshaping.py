"""The rule of ``nn.Flatten`` and ``nn.Unflatten``, which change shapes and no numbers."""

from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError


@dataclass(frozen=True)
class ReshapeRule:
    """The rule of a layer that gives the numbers of each record another shape.

    Attributes:
        shape: the shape of one record in the output; (-1,) is a row of all its numbers.
    """

    name: str
    shape: tuple[int, ...] = (-1,)

    @classmethod
    def from_flatten(cls, name: str, layer: nn.Flatten) -> "ReshapeRule":
        """Return the rule that makes each record a row.

        Raises:
            ConfigError: the layer flattens only some axes of a record.
        """
        if layer.start_dim != 1 or layer.end_dim != -1:
            raise ConfigError(
                f"model: layer {name} (Flatten) flattens only some axes of a record: use "
                "nn.Flatten() without arguments"
            )
        return cls(name)

    @classmethod
    def from_unflatten(cls, name: str, layer: nn.Unflatten) -> "ReshapeRule":
        """Return the rule that makes each row an image.

        Raises:
            ConfigError: the layer does not turn rows into (channels, height, width), each given as
                a positive number.
        """
        shape = layer.unflattened_size
        if layer.dim not in (1, -1) or len(shape) != 3 or min(shape) < 1:
            raise ConfigError(
                f"model: layer {name} (Unflatten) does not make images: use "
                "nn.Unflatten(1, (channels, height, width))"
            )
        return cls(name, tuple(shape))

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """Return the records [n, ...] in the shape [n, *shape]; ``point`` is not needed."""
        return self._reshaped(x, leading_axes=1)

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """Return the gradient d in the shape of x."""
        return d.reshape(x.shape)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Return the bounds [K or 1, n, ...] in the shape [K or 1, n, *shape]."""
        return x.rearranged(lambda end: self._reshaped(end, leading_axes=2))

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Return the bounds on the gradient, [K, n, *shape of a record in x]."""
        return d.rearranged(lambda end: end.reshape(d.shape[:2] + x.shape[2:]))

    def _reshaped(self, x: Tensor, leading_axes: int) -> Tensor:
        """Return x with records in ``self.shape``.

        Args:
            x: records with ``leading_axes`` axes before their own.

        Raises:
            ConfigError: a record does not have as many numbers as the shape needs.
        """
        numbers = prod(x.shape[leading_axes:])
        if -1 not in self.shape and prod(self.shape) != numbers:
            raise ConfigError(
                f"model: layer {self.name} (Unflatten) makes images of shape {self.shape}, "
                f"but a record has {numbers} numbers at this point"
            )
        # -1 is written out, as PyTorch cannot infer it for an empty batch.
        shape = [numbers if size == -1 else size for size in self.shape]
        return x.reshape(*x.shape[:leading_axes], *shape)
