"""A certified network: forward and backward passes through its layers, nominal and bounded.

A network of two classes with two outputs is computed as one logit, the difference f_1 - f_0. Its
gradient in the two rows of the last layer is (-delta, +delta), so that bounds on the difference
lose nothing, and are never wider than bounds on both logits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient, LayerRule, TrainedLayerRule
from agt.bounds.linear import LinearRule
from agt.bounds.losses import Loss, find_loss
from agt.bounds.products import EXACT, Bounds, Products
from agt.bounds.rounding import Rounding
from agt.bounds.rules import TRAINED_RULES, rules_for
from agt.errors import ConfigError
from agt.messages import Message
from agt.numeric import labels_of

CLASS_PAIRS_AT_ONCE = 1024  # differences of two classes' logits that are bounded together


class Factors(NamedTuple):
    """What the gradients of a trained layer's parameters are computed from.

    Attributes:
        name: the layer's name, which prefixes its parameters.
        d: bounds on the loss gradient in the layer's output, [K, n, ...].
        x: bounds on the layer's input, [K or 1, n, ...].
    """

    name: str
    d: Interval
    x: Interval


@dataclass(frozen=True)
class Network:
    """The rules of a network's layers, its loss, and how its outputs are read.

    Attributes:
        rules: one for each layer, in order; the last one is linear.
        loss: the gradient of the loss in the (collapsed) logits.
        two_class: whether the last layer's two rows are replaced by their difference.
        products: the interval products in use.
        outputs: the number of logits after collapsing: 1, or the number of classes.
    """

    rules: tuple[LayerRule, ...]
    loss: Loss
    two_class: bool
    products: Products
    outputs: int

    @classmethod
    def from_head(
        cls, head: nn.Sequential, loss: str, classes: int, products: Products = EXACT
    ) -> "Network":
        """Return the certified network of a PyTorch module.

        Args:
            head: the layers; only their settings are read, not their parameters.
            loss: a key of ``LOSSES``.
            classes: the number of classes of the data.
            products: the interval products to use.

        Raises:
            ConfigError: a layer has no rule, the loss does not fit the number of classes, or the
                last layer is not linear with as many outputs as the loss needs.
        """
        rules = rules_for(head)
        last = head[-1] if rules else None
        if not isinstance(last, nn.Linear):
            raise ConfigError("model: the last layer must be linear (nn.Linear)")
        outputs = last.out_features
        gradient = find_loss(loss, classes)
        needed = 1 if gradient.one_output else classes
        if outputs != needed:
            expected = "one output" if needed == 1 else f"{needed} outputs"
            raise ConfigError(
                Message(
                    "{config:training.loss}={loss} needs {expected}, but the model has {outputs}",
                    loss=loss,
                    expected=expected,
                    outputs=outputs,
                )
            )
        if classes == 2 and gradient.difference is not None:
            return cls(rules, gradient.difference, True, products, 1)
        return cls(rules, gradient, False, products, outputs)

    @property
    def last(self) -> LinearRule:
        """Return the rule of the last layer."""
        return cast(LinearRule, self.rules[-1])

    @property
    def first(self) -> TrainedLayerRule:
        """Return the rule of the first trained layer, whose input no parameter changes."""
        return cast(TrainedLayerRule, self.rules[self._first_trained_index])

    @property
    def _first_trained_index(self) -> int:
        return next(i for i, rule in enumerate(self.rules) if isinstance(rule, TRAINED_RULES))

    def trained_rule(self, name: str) -> TrainedLayerRule:
        """Return the rule of the trained layer of this name."""
        return next(cast(TrainedLayerRule, rule) for rule in self.rules if rule.name == name)

    def check_record_shape(self, shape: Sequence[int], point: Point, record: str) -> None:
        """Refuse records that cannot pass through the layers.

        Args:
            shape: the shape of one record.
            point: the parameters.
            record: what an error calls the record, as "model: a record".

        Raises:
            ConfigError: a linear layer is not given rows of its width, or another layer not images
                that it can take.
        """
        for _ in self._trace(shape, point, record):
            pass  # each step raises if its layer does not fit

    def numbers_per_record(self, shape: Sequence[int], point: Point) -> int:
        """Return how many numbers the trained layers hold for one record, in and out.

        Args:
            shape: the shape of one record.
            point: the parameters.
        """
        trace = self._trace(shape, point, "model: a record")
        return sum(
            rule.numbers_held(x, y) for rule, x, y in trace if isinstance(rule, TRAINED_RULES)
        )

    def _trace(
        self, shape: Sequence[int], point: Point, record: str
    ) -> Iterator[tuple[LayerRule, Tensor, Tensor]]:
        """Yield (rule, input, output) of each layer for one record of zeros, [1, ...].

        Raises:
            ConfigError: as ``check_record_shape`` says.
        """
        parameter = next(iter(point.values()))
        x = torch.zeros((1, *shape), dtype=parameter.dtype, device=parameter.device)
        for index, rule in enumerate(self.rules):
            width = point[f"{rule.name}.weight"].shape[-1] if isinstance(rule, LinearRule) else None
            if width is not None and x.shape[1:] != (width,):
                images = "" if x.dim() == 2 else ": put nn.Flatten() before it"
                if index > self._first_trained_index:
                    raise ConfigError(
                        f"model: layer {rule.name} (Linear) takes {width} numbers per record, "
                        f"but gets {x.numel()}{images}"
                    )
                raise ConfigError(
                    f"{record} has {x.numel()} features, but the model takes {width}{images}"
                )
            y = rule.nominal(x, point)
            yield rule, x, y
            x = y

    def logits(self, x: Tensor, point: Point) -> Tensor:
        """Return the network's outputs, [n, ...] -> [n, outputs of the last layer in ``point``].

        Nothing is collapsed here: pass ``collapse_point(point)`` for the difference of two classes.
        """
        for rule in self.rules:
            x = rule.nominal(x, point)
        return x

    def predict(self, x: Tensor, point: Point) -> Tensor:
        """Return the predicted class indices, int64 [n].

        A tie of two classes, or a logit equal to ``loss.threshold``, gives class 0, and is never
        certified.
        """
        return labels_of(self.logits(x, self.collapse_point(point)) - self.loss.threshold)

    def nominal_factors(
        self, x: Tensor, labels: Tensor, point: Point, scale: float = 1.0
    ) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield (name, d, x) of each trained layer, the last layer first.

        Args:
            x: [n, ...].
            labels: int64 [n].
            point: the parameters, not collapsed.
            scale: what the loss gradient is multiplied by.

        Yields:
            The layer's name, the scaled gradient in its output and its input, both [n, ...].
        """
        point = self.collapse_point(point)
        inputs = [x]
        for rule in self.rules:
            inputs.append(rule.nominal(inputs[-1], point))
        d = self.loss.nominal(inputs.pop(), labels) * scale
        for index, rule in reversed(list(enumerate(self.rules))):
            if isinstance(rule, TRAINED_RULES):
                yield rule.name, d, inputs[index]
            if index > self._first_trained_index:
                d = rule.nominal_backward(d, inputs[index], point)

    def bound_logits(self, x: Tensor, box: Intervals, rounding: Rounding) -> Interval:
        """Bound the logits, or their difference for two classes, [n, ...] -> [K, n, outputs]."""
        return self._bound_layers(self.rules, x, self.collapse(box), rounding)[-1]

    def bound_hidden(self, x: Tensor, box: Intervals, rounding: Rounding) -> Interval:
        """Bound the last layer's input, [n, ...] -> [K or 1, n, in]."""
        return self._bound_layers(self.rules[:-1], x, box, rounding)[-1]

    def bound_margins(
        self, hidden: Interval, labels: Tensor, box: Intervals, rounding: Rounding
    ) -> Interval:
        """Bound f_label - f_c for every other class c.

        The running time does not depend on the labels, since every pair of classes is bounded for
        every record.

        Args:
            hidden: bounds on the last layer's input, [K or 1, n, in].
            labels: int64 [n].
            box: bounds on the parameters.
            rounding: the widening for each of the K distances.

        Returns:
            [K, n, classes - 1], the other classes in order. The bounds hold for the difference of
            two logits that were computed one by one.
        """
        # Every unordered pair is bounded once: f_j - f_i has the bounds of f_i - f_j with the
        # ends swapped and negated, to the last bit.
        first, second = torch.triu_indices(self.outputs, self.outputs, 1, device=labels.device)
        (lower, upper), size = self._bound_differences(hidden, box, first, second)
        # pairs_of_class[c]: the indices of the pairs that contain class c.
        pairs_of_class = torch.stack(
            [torch.nonzero((first == c) | (second == c))[:, 0] for c in range(self.outputs)]
        )
        errors = []  # of each class: what the differences with the other classes may err by
        for pairs in pairs_of_class:
            size_of_class = {name: interval[:, pairs] for name, interval in size.items()}
            errors.append(self.last.output_error(hidden, size_of_class, rounding))
        ks = len(lower)
        pairs_of_record = pairs_of_class[labels]
        swapped = second[pairs_of_record] == labels[:, None]
        low = lower.gather(2, pairs_of_record.expand(ks, -1, -1))
        high = upper.gather(2, pairs_of_record.expand(ks, -1, -1))
        tau = torch.cat(errors, dim=2).gather(2, labels[:, None].expand(ks, -1, -1))
        margins = rounding.widen(
            (torch.where(swapped, -high, low), torch.where(swapped, -low, high)), tau
        )
        # A prediction compares logits that were computed one by one, so the roundings of both are
        # added to that of their difference.
        logit_error = 2 * self.last.output_error(hidden, box, rounding)
        return rounding.widen((margins.lower, margins.upper), logit_error)

    def _bound_differences(
        self, hidden: Interval, box: Intervals, first: Tensor, second: Tensor
    ) -> tuple[Bounds, Intervals]:
        """Bound f_i - f_j for pairs of classes, without widening.

        Args:
            hidden: bounds on the last layer's input, [K or 1, n, in].
            box: bounds on the parameters.
            first, second: int64 [pairs], the classes i and j of each pair.

        Returns:
            (lower, upper), each [K, n, pairs], and the largest magnitudes of the differences of the
            last layer's rows, from which ``output_error`` follows.
        """
        ends = list[Bounds]()
        sizes = list[Intervals]()
        for i, j in zip(
            first.split(CLASS_PAIRS_AT_ONCE), second.split(CLASS_PAIRS_AT_ONCE), strict=True
        ):
            differences = {
                name: box[name][:, i] - box[name][:, j] for name in self._last_parameters
            }
            ends.append(self.last.unwidened_bounds(hidden, differences, self.products))
            sizes.append({name: _largest_of_rows(rows) for name, rows in differences.items()})
        lower, upper = (torch.cat(end, dim=2) for end in zip(*ends, strict=True))
        size = {}
        for name in self._last_parameters:
            of_rows = torch.cat([part[name].lower for part in sizes], dim=1)
            size[name] = _unchecked_point(of_rows)
        return (lower, upper), size

    def factors(
        self,
        x: Tensor | Interval,
        labels: Tensor,
        box: Intervals,
        rounding: Rounding,
        scale: float = 1.0,
    ) -> Iterator[Factors]:
        """Yield bounds on what ``nominal_factors`` gives, the last trained layer first.

        Args:
            x: records [n, ...], or bounds on them [K, n, ...].
            labels: int64 [n].
            box: bounds on the parameters, not collapsed.
            rounding: the widening for each of the K distances.
            scale: what the loss gradient is multiplied by; positive.
        """
        box = self.collapse(box)
        inputs = self._bound_layers(self.rules, x, box, rounding)
        d = self.loss.bound(inputs.pop(), labels, rounding)
        # One rounding, as in the nominal pass, so that it is monotone as computed.
        d = Interval(d.lower * scale, d.upper * scale)
        for index, rule in reversed(list(enumerate(self.rules))):
            if isinstance(rule, TRAINED_RULES):
                yield Factors(rule.name, d, inputs[index])
            if index > self._first_trained_index:
                d = rule.bound_backward(d, inputs[index], box, rounding, self.products)

    def gradients(self, factors: Factors, rounding: Rounding) -> Iterator[Gradient]:
        """Yield bounds on each record's gradients in a layer's parameters, in float64."""
        rule = self.trained_rule(factors.name)
        return rule.gradients(
            factors.d.double(), factors.x.double(), rounding.double(), self.products
        )

    def _bound_layers(
        self, rules: tuple[LayerRule, ...], x: Tensor | Interval, box: Intervals, rounding: Rounding
    ) -> list[Interval]:
        """Bound the input of each of the first layers, and the output of the last one of them."""
        values = [x if isinstance(x, Interval) else Interval.point(x[None])]
        for rule in rules:
            values.append(rule.bound(values[-1], box, rounding, self.products))
        return values

    def collapse_point(self, point: Point) -> Point:
        """Return parameters in which the last layer's two rows are replaced by row 1 - row 0.

        Unless the network is one of two classes with two outputs, they are returned as they are.
        """
        if not self.two_class:
            return point
        differences = {name: point[name][1:] - point[name][:1] for name in self._last_parameters}
        return {**point, **differences}

    def collapse(self, box: Intervals) -> Intervals:
        """Return bounds on ``collapse_point`` of all parameters in a box.

        The difference of two bounds is one rounding, so it is monotone as computed.
        """
        if not self.two_class:
            return box
        differences = {name: box[name][:, 1:] - box[name][:, :1] for name in self._last_parameters}
        return {**box, **differences}

    def expand_difference(self, name: str, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Return bounds on a parameter's gradient from those on its collapsed gradient.

        Args:
            name: the parameter's name.
            lower, upper: [K, 1, ...] for a parameter of a collapsed last layer, in which the rows
                of the result are (-delta, +delta); any other gradient is returned as it is.
        """
        if not self.two_class or name not in self._last_parameters:
            return lower, upper
        return torch.cat([-upper, lower], dim=1), torch.cat([-lower, upper], dim=1)

    @property
    def _last_parameters(self) -> tuple[str, ...]:
        """Return the names of the last layer's parameters."""
        weight = f"{self.last.name}.weight"
        return (weight, f"{self.last.name}.bias") if self.last.bias else (weight,)


def _largest_of_rows(rows: Interval) -> Interval:
    """Return the largest magnitude in each row as a point, for ``output_error``.

    Args:
        rows: of a weight [K, rows, in], which gives [K, rows, 1], or of a bias [K, rows], which
            gives its magnitudes.
    """
    size = rows.magnitude()
    return _unchecked_point(size.amax(dim=-1, keepdim=True) if size.dim() == 3 else size)


def _unchecked_point(value: Tensor) -> Interval:
    """Return the interval of one value, which may be infinite; widening with it is checked."""
    return Interval.unchecked(value, value)
