"""A head as its rules see it: forward and backward passes, nominal and bounded, layer by layer.

Two classes under a softmax are handled as one logit, the difference f_1 - f_0: its gradient in the
two rows of the last layer is (-delta, +delta), so bounding the difference loses nothing, and is
never looser than bounding both logits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient, LayerRule, Trained
from agt.bounds.linear import LinearRule
from agt.bounds.losses import Loss, find_loss
from agt.bounds.products import EXACT, Bounds, Products
from agt.bounds.rounding import Rounding
from agt.bounds.rules import TRAINED, rules_for
from agt.errors import ConfigError
from agt.numeric import labels_of


class Factors(NamedTuple):
    """What one trained layer's per-record gradient is made of.

    Attributes:
        name: the layer's parameter prefix.
        d: the loss gradient in the layer's output, [K, n, ...].
        x: the layer's input, [K or 1, n, ...].
    """

    name: str
    d: Interval
    x: Interval


PAIRS = 1024  # of classes, bounded at once


@dataclass(frozen=True)
class Network:
    """A certified head: rules, loss, and how its last layer is read.

    Attributes:
        rules: one per layer.
        loss: the gradient in the (collapsed) logits.
        two_class: the last layer has two rows, read as their difference.
        products: which interval products are used.
        outputs: logits after collapsing: 1, or the number of classes.
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
        """Read a head.

        Raises:
            ConfigError: an unknown layer, a loss that does not fit the number of classes, or a last
                layer that is not linear with the outputs this loss needs.
        """
        rules = rules_for(head)
        last = head[-1] if rules else None
        if not isinstance(last, nn.Linear):
            raise ConfigError("model: the last layer must be linear")
        outputs = last.out_features
        gradient = find_loss(loss, classes)
        needed = 1 if gradient.one_output else classes
        if outputs != needed:
            words = "one output" if needed == 1 else f"{needed} outputs"
            raise ConfigError(f"training.loss={loss} needs {words} and the model has {outputs}")
        if classes == 2 and gradient.difference is not None:
            return cls(rules, gradient.difference, True, products, 1)
        return cls(rules, gradient, False, products, outputs)

    @property
    def last(self) -> LinearRule:
        """The last layer's rule."""
        return cast(LinearRule, self.rules[-1])

    @property
    def first(self) -> Trained:
        """The first trained layer's rule: its input is the same whatever the parameters are."""
        return cast(Trained, self.rules[self._first])

    def trained_rule(self, name: str) -> Trained:
        """The rule of the trained layer of this name."""
        return next(cast(Trained, rule) for rule in self.rules if rule.name == name)

    def check_record_shape(self, shape: Sequence[int], point: Point, record: str) -> None:
        """Refuse records that do not pass through the layers.

        Args:
            shape: of one record.
            point: the parameters.
            record: what messages call it.

        Raises:
            ConfigError: they do not reach a linear layer as rows of the width it takes, or another
                as images it takes.
        """
        for rule, x, _ in self._passed(shape, point, record):
            del rule, x

    def numbers_per_record(self, shape: Sequence[int], point: Point) -> int:
        """How many numbers of a record of this shape the trained layers hold, in and out."""
        passed = self._passed(shape, point, "model: a record")
        return sum(rule.alive(x, y) for rule, x, y in passed if isinstance(rule, TRAINED))

    def _passed(
        self, shape: Sequence[int], point: Point, record: str
    ) -> Iterator[tuple[LayerRule, Tensor, Tensor]]:
        """Each rule, with a record of zeros before and behind it, [1, ...]."""
        x = torch.zeros(
            (1, *shape),
            dtype=next(iter(point.values())).dtype,
            device=next(iter(point.values())).device,
        )
        for index, rule in enumerate(self.rules):
            width = point[f"{rule.name}.weight"].shape[-1] if isinstance(rule, LinearRule) else None
            if width is not None and x.shape[1:] != (width,):
                images = "" if x.dim() == 2 else ", in a row: put nn.Flatten() in front"
                if index > self._first:
                    raise ConfigError(
                        f"model: layer {rule.name} (Linear) takes {width} numbers, given "
                        f"{x.numel()}{images}"
                    )
                raise ConfigError(
                    f"{record} has {x.numel()} features and the model takes {width}{images}"
                )
            y = rule.nominal(x, point)
            yield rule, x, y
            x = y

    # -- nominal
    # ---------------------------------------------------------------------------------------------------

    def logits(self, x: Tensor, point: Point) -> Tensor:
        """The head's own outputs. [n, ...] -> [n, outputs]; not collapsed."""
        for rule in self.rules:
            x = rule.nominal(x, point)
        return x

    def predict(self, x: Tensor, point: Point) -> Tensor:
        """Class indices [n].

        A tie of two classes goes to class 0 (and is never certified), as does ``loss.threshold``.
        """
        return labels_of(self.logits(x, self.collapse_point(point)) - self.loss.threshold)

    def nominal_factors(
        self, x: Tensor, labels: Tensor, point: Point, scale: float = 1.0
    ) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Per trained layer, last first: its name, d [n, ...] in its output, times ``scale``,
        and its input x [n, ...].
        """
        point = self.collapse_point(point)
        inputs = [x]
        for rule in self.rules:
            inputs.append(rule.nominal(inputs[-1], point))
        d = self.loss.nominal(inputs.pop(), labels) * scale
        for index, rule in reversed(list(enumerate(self.rules))):
            if isinstance(rule, TRAINED):
                yield rule.name, d, inputs[index]
            if index > self._first:
                d = rule.nominal_backward(d, inputs[index], point)

    # -- bounded
    # ---------------------------------------------------------------------------------------------------

    def bound_logits(self, x: Tensor, box: Intervals, rounding: Rounding) -> Interval:
        """Bounds on the logits, or on their difference for two classes. [n, ...] -> [K, n,
        outputs].
        """
        return self._bound(self.rules, x, self.collapse(box), rounding)[-1]

    def bound_hidden(self, x: Tensor, box: Intervals, rounding: Rounding) -> Interval:
        """Bounds on the last layer's input, [K or 1, n, in]."""
        return self._bound(self.rules[:-1], x, box, rounding)[-1]

    def bound_margins(
        self, hidden: Interval, labels: Tensor, box: Intervals, rounding: Rounding
    ) -> Interval:
        """Bounds on f_label - f_c for every other class c: [K or 1, n, in], labels [n] -> [K, n,
        classes - 1].

        The prediction compares logits that were computed one by one, so both of their roundings are
        added to that of their difference. Every pair of classes is bounded for every record,
        whatever its label is: once, as f_j - f_i has the bounds of f_i - f_j negated, to the last
        bit.
        """
        first, second = torch.triu_indices(self.outputs, self.outputs, 1, device=labels.device)
        ends, sizes = list[Bounds](), list[Intervals]()
        for i, j in zip(first.split(PAIRS), second.split(PAIRS), strict=True):
            rows = {name: box[name][:, i] - box[name][:, j] for name in self._last_names}
            ends.append(self.last.product(hidden, rows, self.products))
            sizes.append({name: _size(rows[name]) for name in rows})
        lower, upper = (torch.cat(end, dim=2) for end in zip(*ends, strict=True))
        size = {
            name: _image(torch.cat([each[name].lower for each in sizes], dim=1))
            for name in self._last_names
        }
        pairs = torch.stack(
            [torch.nonzero((first == c) | (second == c))[:, 0] for c in range(self.outputs)]
        )
        taus = [
            self.last.rounding_of(hidden, {name: size[name][:, own] for name in size}, rounding)
            for own in pairs
        ]
        ks, where = len(lower), pairs[labels]
        turned = second[where] == labels[:, None]
        low, high = (end.gather(2, where.expand(ks, -1, -1)) for end in (lower, upper))
        tau = torch.cat(taus, dim=2).gather(2, labels[:, None].expand(ks, -1, -1))
        margins = rounding.widen(
            (torch.where(turned, -high, low), torch.where(turned, -low, high)), tau
        )
        return rounding.widen(
            (margins.lower, margins.upper), 2 * self.last.rounding_of(hidden, box, rounding)
        )

    def factors(
        self,
        x: Tensor | Interval,
        labels: Tensor,
        box: Intervals,
        rounding: Rounding,
        scale: float = 1.0,
    ) -> Iterator[Factors]:
        """Bounds on what each record's gradient, times ``scale`` > 0, is made of, per trained
        layer, last first; of x [n, ...], or of all records in an interval [K, n, ...].
        """
        box = self.collapse(box)
        inputs = self._bound(self.rules, x, box, rounding)
        d = self.loss.bound(inputs.pop(), labels, rounding)
        # one rounding, as in the nominal pass: monotone
        d = Interval(d.lower * scale, d.upper * scale)
        for index, rule in reversed(list(enumerate(self.rules))):
            if isinstance(rule, TRAINED):
                yield Factors(rule.name, d, inputs[index])
            if index > self._first:
                d = rule.bound_backward(d, inputs[index], box, rounding, self.products)

    def gradients(self, factors: Factors, rounding: Rounding) -> Iterator[Gradient]:
        """Bounds on each record's gradients in a layer's parameters, in float64, as kernels take
        them.
        """
        rule = self.trained_rule(factors.name)
        return rule.gradients(
            factors.d.double(), factors.x.double(), rounding.double(), self.products
        )

    def _bound(
        self, rules: tuple[LayerRule, ...], x: Tensor | Interval, box: Intervals, rounding: Rounding
    ) -> list[Interval]:
        """Bounds on the input of each of the rules, the first ones of the head, and on the
        output of the last.
        """
        values = [x if isinstance(x, Interval) else Interval.point(x[None])]
        for rule in rules:
            values.append(rule.bound(values[-1], box, rounding, self.products))
        return values

    @property
    def _first(self) -> int:
        return next(i for i, rule in enumerate(self.rules) if isinstance(rule, TRAINED))

    # -- the two-class head
    # ----------------------------------------------------------------------------------------

    def collapse_point(self, point: Point) -> Point:
        """The parameters with the last layer's two rows replaced by their difference (row 1 -
        row 0).
        """
        if not self.two_class:
            return point
        return {**point, **{n: point[n][1:] - point[n][:1] for n in self._last_names}}

    def collapse(self, box: Intervals) -> Intervals:
        """The same for a box [K, 2, ...]; the difference of two bounds is one rounding, so it
        stays monotone.
        """
        if not self.two_class:
            return box
        return {**box, **{n: box[n][:, 1:] - box[n][:, :1] for n in self._last_names}}

    def expand_difference(self, name: str, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """A bound on the difference row's gradient, as bounds on both rows': (-delta, +delta).

        Leading axis K.
        """
        if not self.two_class or name not in self._last_names:
            return lower, upper
        return torch.cat([-upper, lower], dim=1), torch.cat([-lower, upper], dim=1)

    @property
    def _last_names(self) -> tuple[str, ...]:
        return (
            (f"{self.last.name}.weight", f"{self.last.name}.bias")
            if self.last.bias
            else (f"{self.last.name}.weight",)
        )


def _size(rows: Interval) -> Interval:
    """The greatest magnitude in each row, [K, rows, ...], for what asks for magnitudes alone."""
    size = rows.magnitude()
    return _image(size.amax(dim=-1, keepdim=True) if size.dim() == 3 else size)


def _image(value: Tensor) -> Interval:
    return Interval.unchecked(value, value)
