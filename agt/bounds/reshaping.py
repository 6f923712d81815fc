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
    """The rule of a layer that changes the shape of each record, and none of its numbers.

    Attributes:
        name: the layer's name in the network.
        shape: the shape of one record in the output; (-1,) for a row of all its numbers.
    """

    name: str
    shape: tuple[int, ...] = (-1,)

    @classmethod
    def from_flatten(cls, name: str, layer: nn.Flatten) -> "ReshapeRule":
        """Return the rule of ``nn.Flatten``, which makes each record a row of numbers.

        Args:
            name: the layer's name in the network.
            layer: the layer, of which only the settings are read.

        Raises:
            ConfigError: the layer flattens only some axes of a record.
        """
        if layer.start_dim != 1 or layer.end_dim != -1:
            raise ConfigError(
                f"model: layer {name} (Flatten) flattens only some axes of a record, for which "
                "agt has no bound rule: use nn.Flatten() without arguments"
            )
        return cls(name)

    @classmethod
    def from_unflatten(cls, name: str, layer: nn.Unflatten) -> "ReshapeRule":
        """Return the rule of ``nn.Unflatten``, which makes each row of numbers an image.

        Args:
            name: the layer's name in the network.
            layer: the layer, of which only the settings are read.

        Raises:
            ConfigError: the layer does not turn rows into (channels, height, width), or one of the
                three is not a positive number.
        """
        shape = layer.unflattened_size
        if layer.dim not in (1, -1) or len(shape) != 3 or min(shape) < 1:
            raise ConfigError(
                f"model: layer {name} (Unflatten) does not turn a record into an image: use "
                "nn.Unflatten(1, (channels, height, width))"
            )
        return cls(name, tuple(shape))

    def nominal(self, inputs: Tensor, point: Point) -> Tensor:
        """Return the records in the layer's output shape, [n, ...] -> [n, *shape].

        ``point`` is not used, because the layer has no parameters.
        """
        return self._reshape(inputs, leading_axes=1)

    def nominal_backward(self, output_gradient: Tensor, inputs: Tensor, point: Point) -> Tensor:
        """Return the loss gradient in the input: output_gradient in the shape of inputs."""
        return output_gradient.reshape(inputs.shape)

    def bound(
        self, inputs: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Return the bounds in the output shape, [K or 1, n, ...] -> [K or 1, n, *shape].

        The other arguments are not used, because numbers are moved and not changed.
        """
        return inputs.rearranged(lambda end: self._reshape(end, leading_axes=2))

    def bound_backward(
        self,
        output_gradient: Interval,
        inputs: Interval,
        box: Intervals,
        rounding: Rounding,
        products: Products,
    ) -> Interval:
        """Return bounds on the loss gradient in the input: output_gradient in the inputs' shape.

        Args:
            output_gradient: bounds on the loss gradient in the output, [K, n, *shape].
            inputs: bounds on the input, [K or 1, n, ...], of which only the shape is used.
            box, rounding, products: not used, because numbers are only moved.

        Returns:
            [K, n, *shape of one record of the input].
        """
        shape = output_gradient.shape[:2] + inputs.shape[2:]
        return output_gradient.rearranged(lambda end: end.reshape(shape))

    def _reshape(self, records: Tensor, leading_axes: int) -> Tensor:
        """Return records in the layer's output shape.

        Args:
            records: [*leading axes, *shape of one record of the input].
            leading_axes: the number of axes before those of a record: 1 for the records, 2 with an
                axis of k.

        Returns:
            [*leading axes, *self.shape].

        Raises:
            ConfigError: a record does not have as many numbers as the output shape needs.
        """
        numbers = prod(records.shape[leading_axes:])
        if -1 not in self.shape and prod(self.shape) != numbers:
            raise ConfigError(
                f"model: layer {self.name} (Unflatten) cannot make images of shape {self.shape} "
                f"from the {numbers} numbers of a record: give a shape (channels, height, width) "
                f"whose product is {numbers}"
            )
        # -1 is replaced by its value, because PyTorch cannot infer it for a batch of no records.
        shape = [numbers if size == -1 else size for size in self.shape]
        return records.reshape(*records.shape[:leading_axes], *shape)
