"""A certified network: forward and backward passes through its layers, nominal and bounded.

A network of two classes with two outputs is computed as one logit, the logit difference f_1 - f_0:
bounds on the difference are never wider than the difference of bounds on both logits.
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
from agt.messages import Message, joined
from agt.numeric import labels_of

# How many differences of two classes' logits are bounded together, so that memory is bounded.
CLASS_PAIRS_AT_ONCE = 1024


class Factors(NamedTuple):
    """Bounds on the two quantities from which a layer's parameter gradients are computed.

    Attributes:
        name: the layer's name, which prefixes its parameters' names.
        output_gradient: bounds on the loss gradient in the layer's output, [K, n, ...].
        inputs: bounds on the layer's input, [K or 1, n, ...].
    """

    name: str
    output_gradient: Interval
    inputs: Interval


@dataclass(frozen=True)
class Network:
    """A network as a sequence of layer rules, with its loss, for nominal and bounded passes.

    The network holds no parameters. Methods take them as ``point`` (parameter name -> value) or as
    ``box`` (parameter name -> bounds [K, *parameter shape], one slice for each distance k of the
    grid). Both hold all rows of the last layer.

    Attributes:
        rules: the rule of each layer, in order; the last layer is linear.
        loss: the loss, whose gradient is taken in the logits, or in the logit difference.
        uses_logit_difference: True if the network has two classes and two outputs, and is computed
            as one logit. The two rows of the last layer are then replaced by row 1 - row 0, so
            that the layer outputs the logit difference f_1 - f_0.
        products: the interval matrix products to use.
        outputs: the number of logits that are computed: 1 for the logit difference or a loss with
            one output, otherwise the number of classes.
    """

    rules: tuple[LayerRule, ...]
    loss: Loss
    uses_logit_difference: bool
    products: Products
    outputs: int

    @classmethod
    def from_head(
        cls, head: nn.Sequential, loss: str, classes: int, products: Products = EXACT
    ) -> "Network":
        """Return the certified network of a PyTorch module.

        A network of two classes with two outputs is computed as the logit difference f_1 - f_0, if
        the loss has an equal form for it (cross entropy has).

        Args:
            head: the layers; only their settings are read, not their parameters.
            loss: a key of ``LOSSES``.
            classes: the number of classes of the data.
            products: the interval matrix products to use.

        Raises:
            ConfigError: a layer has no rule, the loss does not fit the number of classes, or the
                last layer is not linear with as many outputs as the loss needs.
        """
        rules = rules_for(head)
        problem = output_problem(tuple(head), loss, classes)
        if problem is not None:
            raise ConfigError(Message("model: {problem}", problem=problem))
        logit_loss = find_loss(loss, classes)
        if classes == 2 and logit_loss.difference is not None:
            return cls(
                rules,
                logit_loss.difference,
                uses_logit_difference=True,
                products=products,
                outputs=1,
            )
        outputs = 1 if logit_loss.one_output else classes
        return cls(
            rules, logit_loss, uses_logit_difference=False, products=products, outputs=outputs
        )

    @property
    def last(self) -> LinearRule:
        """Return the rule of the last layer, which is linear."""
        return cast(LinearRule, self.rules[-1])

    @property
    def _first_trained_index(self) -> int:
        """Return the position of the first layer that has parameters."""
        return next(
            index for index, rule in enumerate(self.rules) if isinstance(rule, TRAINED_RULES)
        )

    def trained_rule(self, name: str) -> TrainedLayerRule:
        """Return the rule of the layer with a given name, which must have parameters."""
        return next(cast(TrainedLayerRule, rule) for rule in self.rules if rule.name == name)

    def check_record_shape(self, shape: Sequence[int], point: Point, record: str) -> None:
        """Raise ConfigError unless a record of a given shape can pass through all layers.

        Args:
            shape: the shape of one record.
            point: the parameter values, by name.
            record: the name of the record in messages, for example "model: a record".

        Raises:
            ConfigError: a linear layer would get rows of another width than it has, or a layer for
                images (convolution, pooling) something that is not an image of its size.
        """
        for _ in self._trace(shape, point, record):
            pass  # The iteration raises at the first layer that does not fit.

    def numbers_per_record(self, shape: Sequence[int], point: Point) -> int:
        """Return the number of scalars that layers with parameters hold in memory for one record.

        Inputs and outputs of these layers count, and the patches of convolutions. Callers size
        blocks of records by this number.

        Args:
            shape: the shape of one record.
            point: the parameter values, by name.
        """
        total = 0
        for rule, layer_input, layer_output in self._trace(shape, point, "model: a record"):
            if isinstance(rule, TRAINED_RULES):
                total += rule.count_numbers_held(layer_input, layer_output)
        return total

    def _trace(
        self, shape: Sequence[int], point: Point, record: str
    ) -> Iterator[tuple[LayerRule, Tensor, Tensor]]:
        """Pass one record of zeros through the network, and yield what each layer takes and gives.

        Args:
            shape: the shape of one record.
            point: the parameter values, by name.
            record: the name of the record in messages.

        Yields:
            (rule, input, output) of each layer in order; both tensors have the shape [1, ...].

        Raises:
            ConfigError: a layer cannot take what the layer before gives, or the first layer with
                parameters cannot take a record of this shape.
        """
        parameter = next(iter(point.values()))
        x = torch.zeros((1, *shape), dtype=parameter.dtype, device=parameter.device)
        for index, rule in enumerate(self.rules):
            # Only linear layers are checked here; layers for images check their inputs themselves.
            if isinstance(rule, LinearRule):
                width = point[f"{rule.name}.weight"].shape[-1]
                if x.shape[1:] != (width,):
                    raise self._width_error(index, width, x, record)
            output = rule.nominal(x, point)
            yield rule, x, output
            x = output

    def _width_error(self, index: int, width: int, x: Tensor, record: str) -> ConfigError:
        """Return the error for a linear layer that gets rows of another width, or an image.

        Args:
            index: the layer's position in the network.
            width: the number of values per record that the layer takes.
            x: one record as it reaches the layer, [1, ...].
            record: the name of the record in messages.
        """
        layer = self.rules[index].name
        number_count = x.numel()
        is_image = x.dim() > 2
        flatten = f". Put nn.Flatten() before layer {layer}"
        if index > self._first_trained_index:  # the layers do not fit each other
            remedy = f": set its in_features to {number_count}"
            if is_image:
                remedy = flatten
            return ConfigError(
                f"model: layer {layer} (Linear) takes {width} numbers per record, but the layer "
                f"before it gives {number_count}{remedy}"
            )
        # No layer before has parameters, so the record does not fit the model.
        remedy = ": give records that fit the model, or change its first layer"
        if is_image:
            remedy = flatten
        return ConfigError(
            f"{record} has {number_count} features, but the model takes {width}{remedy}"
        )

    def logits(self, x: Tensor, point: Point) -> Tensor:
        """Return the network's outputs for given parameter values.

        Args:
            x: records, [n, ...].
            point: the parameter values, by name. For the logit difference of two classes, pass
                ``convert_to_logit_difference(point)``; otherwise both logits are returned.

        Returns:
            [n, number of logits], which is 1 for the logit difference.
        """
        for rule in self.rules:
            x = rule.nominal(x, point)
        return x

    def predict(self, x: Tensor, point: Point) -> Tensor:
        """Return the predicted class of each record, as int64 class indices [n].

        With one output (or the logit difference), class 1 is predicted if it exceeds the loss's
        threshold, otherwise class 0. With several outputs, the class with the largest logit is
        predicted; a tie gives the smaller class index. No certificate covers a tie.

        Args:
            x: records, [n, ...].
            point: the parameter values, by name.
        """
        parameters = self.convert_to_logit_difference(point)
        logits = self.logits(x, parameters)
        # With one logit, ``labels_of`` compares it with 0; with several, it takes the argmax.
        return labels_of(logits - self.loss.threshold)

    def nominal_factors(
        self, x: Tensor, labels: Tensor, point: Point, scale: float = 1.0
    ) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield the loss gradient and the input of each layer with parameters, by backpropagation.

        Each record's gradient in the layer's parameters follows from the two
        (``TrainedLayerRule.nominal_gradients``).

        Args:
            x: records, [n, ...].
            labels: int64 [n], class indices.
            point: the parameter values as trained, by name; the method converts them to the logit
                difference where the network uses it.
            scale: a positive number that the loss gradient is multiplied by.

        Yields:
            (layer name, scaled loss gradient in the layer's output [n, ...], layer input [n, ...]),
            the last layer first.
        """
        point = self.convert_to_logit_difference(point)
        inputs = [x]  # of each layer; after the loop also the last layer's output
        for rule in self.rules:
            inputs.append(rule.nominal(inputs[-1], point))
        logits = inputs.pop()
        output_gradient = self.loss.nominal(logits, labels) * scale
        for index, rule in reversed(list(enumerate(self.rules))):
            if isinstance(rule, TRAINED_RULES):
                yield rule.name, output_gradient, inputs[index]
            # Layers before the first one with parameters need no gradient.
            if index > self._first_trained_index:
                output_gradient = rule.nominal_backward(output_gradient, inputs[index], point)

    def bound_logits(self, x: Tensor, box: Intervals, rounding: Rounding) -> Interval:
        """Bound the logits, or the logit difference of two classes, over all parameters in a box.

        Args:
            x: records, [n, ...].
            box: bounds on the parameters as trained, by name, [K, *parameter shape], one slice for
                each distance k (number of edits of the training data). The method converts them to
                the logit difference where the network uses it.
            rounding: the widening by which bounds cover floating-point error, for each k.

        Returns:
            [K, n, number of logits]; the number is 1 for the logit difference.
        """
        box = self.convert_box_to_logit_difference(box)
        return self._bound_layers(self.rules, x, box, rounding)[-1]

    def bound_hidden(self, x: Tensor, box: Intervals, rounding: Rounding) -> Interval:
        """Bound the input of the last layer over all parameters in a box.

        Args:
            x: records, [n, ...].
            box: bounds on the parameters, by name, [K, *parameter shape], one slice for each
                distance k (number of edits of the training data).
            rounding: the widening by which bounds cover floating-point error, for each k.

        Returns:
            [K or 1, n, in]; 1 if no layer before the last one has parameters.
        """
        return self._bound_layers(self.rules[:-1], x, box, rounding)[-1]

    def bound_margins(
        self, hidden: Interval, labels: Tensor, box: Intervals, rounding: Rounding
    ) -> Interval:
        """Bound by how much the logit of each record's label exceeds that of every other class.

        These margins are f_label - f_c, where f_c is the logit of class c. A label is certified
        where all of its margins are positive. The network must have one output for each class.
        Every pair of classes is bounded for every record, so the running time does not depend on
        the labels.

        Args:
            hidden: bounds on the last layer's input, [K or 1, n, in].
            labels: int64 [n], the class index of each record, as a rule its predicted class.
            box: bounds on the parameters, by name, [K, *parameter shape], one slice for each
                distance k (number of edits of the training data).
            rounding: the widening by which bounds cover floating-point error, for each k.

        Returns:
            [K, n, classes - 1], the other classes in increasing order. The bounds contain the
            computed difference of two logits, each of which was rounded on its own.
        """
        # Every unordered pair (i, j) with i < j is bounded once: bounds on f_j - f_i are those on
        # f_i - f_j with the ends negated and swapped, to the last bit.
        first, second = torch.triu_indices(self.outputs, self.outputs, 1, device=labels.device)
        (lower, upper), largest = self._bound_differences(hidden, box, first, second)
        # pairs_of_class[c]: the indices of the pairs that contain class c.
        pair_lists = []
        for c in range(self.outputs):
            has_class = (first == c) | (second == c)
            pair_lists.append(torch.nonzero(has_class)[:, 0])
        pairs_of_class = torch.stack(pair_lists)
        # For each class, a bound on the floating-point error of its differences, [K, n, 1].
        errors = []
        for pairs in pairs_of_class:
            largest_of_class = {name: interval[:, pairs] for name, interval in largest.items()}
            errors.append(self.last.output_error(hidden, largest_of_class, rounding))
        ks = len(lower)
        pairs_of_record = pairs_of_class[labels]  # [n, classes - 1]
        # True where the pair is (c, label), so that f_c - f_label was bounded.
        swapped = second[pairs_of_record] == labels[:, None]
        low = lower.gather(2, pairs_of_record.expand(ks, -1, -1))
        high = upper.gather(2, pairs_of_record.expand(ks, -1, -1))
        margin_low = torch.where(swapped, -high, low)
        margin_high = torch.where(swapped, -low, high)
        error_of_class = torch.cat(errors, dim=2)  # [K, n, classes]
        error_bound = error_of_class.gather(2, labels[:, None].expand(ks, -1, -1))
        margins = rounding.widen((margin_low, margin_high), error_bound)
        # A prediction compares logits that were each rounded on their own, so the errors of two
        # logits are added to that of the difference.
        logit_error = 2 * self.last.output_error(hidden, box, rounding)
        return rounding.widen((margins.lower, margins.upper), logit_error)

    def _bound_differences(
        self, hidden: Interval, box: Intervals, first: Tensor, second: Tensor
    ) -> tuple[Bounds, Intervals]:
        """Bound the logit differences f_i - f_j of pairs of classes, as in exact arithmetic.

        Args:
            hidden: bounds on the last layer's input, [K or 1, n, in].
            box: bounds on the parameters, by name, [K, *parameter shape], one slice for each
                distance k (number of edits of the training data).
            first: int64 [pairs], the class i of each pair.
            second: int64 [pairs], the class j of each pair.

        Returns:
            (lower, upper), each [K, n, pairs], which the caller widens for floating-point error;
            and parameter name -> the largest absolute value within the bounds of each pair's
            difference of rows, from which the error follows: [K, pairs, 1] for the weight, and
            [K, pairs] for the bias.
        """
        bounds_parts = list[Bounds]()
        largest_parts = list[Intervals]()
        first_parts = first.split(CLASS_PAIRS_AT_ONCE)
        second_parts = second.split(CLASS_PAIRS_AT_ONCE)
        for i, j in zip(first_parts, second_parts, strict=True):
            # f_i - f_j is the output of a layer whose parameters are the rows i minus the rows j.
            differences = {
                name: box[name][:, i] - box[name][:, j] for name in self._last_parameters
            }
            bounds_parts.append(self.last.unwidened_bounds(hidden, differences, self.products))
            largest_parts.append(
                {name: _largest_of_rows(rows) for name, rows in differences.items()}
            )
        lower_parts, upper_parts = zip(*bounds_parts, strict=True)
        lower = torch.cat(lower_parts, dim=2)
        upper = torch.cat(upper_parts, dim=2)
        largest = {}
        for name in self._last_parameters:
            values = torch.cat([part[name].lower for part in largest_parts], dim=1)
            largest[name] = _unchecked_point(values)
        return (lower, upper), largest

    def factors(
        self,
        x: Tensor | Interval,
        labels: Tensor,
        box: Intervals,
        rounding: Rounding,
        scale: float = 1.0,
    ) -> Iterator[Factors]:
        """Yield bounds on the loss gradient and the input of each layer with parameters.

        They contain what ``nominal_factors`` yields for every record and every parameter in its
        bounds, in the same order (the last layer first).

        Args:
            x: records [n, ...], or bounds on them [K, n, ...].
            labels: int64 [n], class indices.
            box: bounds on the parameters as trained, by name, [K, *parameter shape], one slice for
                each distance k (number of edits of the training data). The method converts them to
                the logit difference where the network uses it.
            rounding: the widening by which bounds cover floating-point error, for each k.
            scale: a positive number that the loss gradient is multiplied by.
        """
        box = self.convert_box_to_logit_difference(box)
        inputs = self._bound_layers(self.rules, x, box, rounding)  # of each layer, and the output
        logits = inputs.pop()
        output_gradient = self.loss.bound(logits, labels, rounding)
        # The nominal pass scales by the same single rounded product, which is monotone, so these
        # bounds need no further widening.
        output_gradient = Interval(output_gradient.lower * scale, output_gradient.upper * scale)
        for index, rule in reversed(list(enumerate(self.rules))):
            if isinstance(rule, TRAINED_RULES):
                yield Factors(rule.name, output_gradient, inputs[index])
            # Layers before the first one with parameters need no gradient.
            if index > self._first_trained_index:
                output_gradient = rule.bound_backward(
                    output_gradient, inputs[index], box, rounding, self.products
                )

    def gradients(self, factors: Factors, rounding: Rounding) -> Iterator[Gradient]:
        """Yield bounds on each record's gradients in the parameters of one layer, in float64.

        Args:
            factors: the values that ``factors`` yielded for the layer.
            rounding: the widening for each k, in the precision of the passes.
        """
        rule = self.trained_rule(factors.name)
        return rule.gradients(
            factors.output_gradient.double(),
            factors.inputs.double(),
            rounding.double(),
            self.products,
        )

    def _bound_layers(
        self, rules: tuple[LayerRule, ...], x: Tensor | Interval, box: Intervals, rounding: Rounding
    ) -> list[Interval]:
        """Bound the values between the first layers of the network, by a forward pass.

        Args:
            rules: the rules of the first layers, in order.
            x: records [n, ...], or bounds on them [K, n, ...].
            box: bounds on the parameters, by name, as the rules read them.
            rounding: the widening by which bounds cover floating-point error, for each k.

        Returns:
            The input of each of these layers, and after them the output of the last one.
        """
        if isinstance(x, Tensor):
            x = Interval.point(x[None])  # [1, n, ...], the same for every k
        values = [x]
        for rule in rules:
            values.append(rule.bound(values[-1], box, rounding, self.products))
        return values

    def convert_to_logit_difference(self, point: Point) -> Point:
        """Return parameters with which the network outputs the logit difference f_1 - f_0.

        f_0 and f_1 are the logits of two classes. The two rows of the last layer's weight and bias
        are replaced by their difference, row 1 - row 0. Parameters of a network that does not use
        the logit difference are returned unchanged.

        Args:
            point: the parameter values as trained, by name; with the logit difference, the last
                layer's weight is [2, in] and its bias [2].

        Returns:
            The parameter values by name; the last layer's weight is then [1, in] and its bias [1].
        """
        if not self.uses_logit_difference:
            return point
        # Of the last layer's weight and bias: row 1 minus row 0, as a parameter of one row.
        differences = {name: point[name][1:] - point[name][:1] for name in self._last_parameters}
        return {**point, **differences}

    def convert_box_to_logit_difference(self, box: Intervals) -> Intervals:
        """Return parameter bounds with which the network bounds the logit difference f_1 - f_0.

        f_0 and f_1 are the logits of two classes. The result contains
        ``convert_to_logit_difference(point)`` for every point in the box. A difference of two
        bounds is a single rounded operation and hence monotone, so nothing is widened. Bounds of a
        network that does not use the logit difference are returned unchanged.

        Args:
            box: bounds on the parameters as trained, by name, [K, *parameter shape], one slice for
                each distance k (number of edits of the training data).

        Returns:
            Bounds by name; on the last layer's weight they are then [K, 1, in], on its bias [K, 1].
        """
        if not self.uses_logit_difference:
            return box
        # Of the last layer's weight and bias: row 1 minus row 0, as a parameter of one row.
        differences = {name: box[name][:, 1:] - box[name][:, :1] for name in self._last_parameters}
        return {**box, **differences}

    def expand_gradient_to_both_rows(
        self, name: str, lower: Tensor, upper: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return bounds on the gradient in both rows of the last layer, given those in one row.

        A network of two classes may be computed with one row, row 1 - row 0, whose output is the
        logit difference. If the gradient in this row is g, then the gradient in the two rows of the
        trained parameter is (-g, +g).

        Args:
            name: the parameter's name; only those of the last layer are expanded.
            lower: lower bounds on the gradient; [K, 1, ...] for a parameter of the last layer.
            upper: upper bounds, of the same shape.

        Returns:
            (lower, upper), each [K, 2, ...] for a parameter of the last layer. All other gradients,
            and those of a network that does not use the logit difference, are returned unchanged.
        """
        if not self.uses_logit_difference or name not in self._last_parameters:
            return lower, upper
        # Of -g the bounds are those of g negated and swapped.
        lower_of_both_rows = torch.cat([-upper, lower], dim=1)
        upper_of_both_rows = torch.cat([-lower, upper], dim=1)
        return lower_of_both_rows, upper_of_both_rows

    @property
    def _last_parameters(self) -> tuple[str, ...]:
        """Return the names of the last layer's weight and, if it has one, of its bias."""
        weight = f"{self.last.name}.weight"
        bias = f"{self.last.name}.bias"
        if self.last.bias:
            return (weight, bias)
        return (weight,)


def _largest_of_rows(rows: Interval) -> Interval:
    """Return the largest absolute value within the bounds of each row of a parameter.

    Args:
        rows: bounds on a weight [K, rows, in], or on a bias [K, rows].

    Returns:
        An interval whose two bounds are this value: [K, rows, 1] of a weight, [K, rows] of a bias.
        It stands for the rows in ``output_error``, which only needs the largest value.
    """
    largest = rows.magnitude()
    is_weight = largest.dim() == 3
    if is_weight:  # a row of a bias is a single number, which is its own largest
        largest = largest.amax(dim=-1, keepdim=True)
    return _unchecked_point(largest)


def _unchecked_point(value: Tensor) -> Interval:
    """Return the interval whose two bounds are ``value``, which may be infinite.

    The value only enters an error bound, and the interval that is widened by it is checked.
    """
    return Interval.unchecked(value, value)


def output_problem(layers: Sequence[nn.Module], loss: str, classes: int) -> Message | None:
    """Return the reason why a last layer's output does not fit a loss; None if it fits.

    Args:
        layers: all layers of a network, in their order.
        loss: a key of ``LOSSES``.
        classes: the number of classes of the data.

    Raises:
        ConfigError: the loss does not fit the number of classes.
    """
    problems = list[str | Message]()
    last = layers[-1] if layers else None
    if not isinstance(last, nn.Linear):
        end = f", but it is nn.{type(last).__name__}" if layers else ""
        problems.append(
            f"The last layer must be nn.Linear{end}. It gives the scores from which the loss "
            "computes probabilities. Leave out what follows the last nn.Linear, or add one at the "
            "end"
        )
    linear_layers = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if linear_layers:
        mismatch = _output_mismatch(linear_layers[-1], loss, classes)
        if mismatch is not None:
            problems.append(mismatch)
    return joined(problems, ". ") if problems else None


def _output_mismatch(last: nn.Linear, loss: str, classes: int) -> Message | None:
    """Return the reason why a layer has too many or too few outputs for a loss; None if it fits.

    Args:
        last: the layer whose outputs are the scores.
        loss: a key of ``LOSSES``.
        classes: the number of classes of the data.

    Raises:
        ConfigError: the loss does not fit the number of classes.
    """
    logit_loss = find_loss(loss, classes)
    needed = 1 if logit_loss.one_output else classes
    outputs = last.out_features
    if outputs == needed:
        return None
    expected = "one output" if needed == 1 else f"{needed} outputs"
    other_loss = ""
    if classes == 2 and outputs in (1, 2):
        other = "cross_entropy" if outputs == 2 else "binary_cross_entropy"
        other_loss = f", or give {{config:training.loss}}={other}"
    return Message(
        "{config:training.loss}={loss} needs {expected}, but the model has {outputs}: write "
        "nn.Linear({inputs}, {needed}) as the last layer" + other_loss,
        loss=loss,
        expected=expected,
        outputs=outputs,
        inputs=last.in_features,
        needed=needed,
    )
