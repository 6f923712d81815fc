"""One rule per layer: how a nominal value and a box pass forward, and how a loss gradient passes
back.

``RULES`` is the registry, keyed on the exact layer type: a subclass may compute something else, so
it is as unknown as any other layer, and an unknown layer is an error before training starts. What a
rule owes stands below.

What a layer's rule is: four short functions, two for the nominal pass and two for its bounds; with
parameters, more.

Formal guarantees, which tests/contract/test_layer_rules.py checks for every entry of the registry
    Containment. Let every value lie in its bounds: an input in x, a gradient in d, parameters in
    the box. Then what ``nominal`` computes lies in ``bound``, and what ``nominal_back`` computes in
    ``bound_back``: as computed, at any batch size, for each k.
    Nesting. Bounds for k-1 from inner intervals lie within those for k from outer ones, as computed
    (rounding.py).
    A layer with parameters: the same for each record's gradient, ``nominal_gradients`` in
    ``gradients``, in float64 throughout. One that is d (x) x lies within its factors' corner
    products (kernels/reference.py), one that is d within d.

Activations that act on each number alone. A new one is an entry of ``ELEMENTWISE``: s, s', their
turns and ranges.

Formal guarantees
    Between its turning points a function is monotone, so over [l, u] its extremes are among its
    values at l, at u and at each turning point t of [l, u]; clip(t, l, u) is that point, or one of
    the ends again. This is the exact inclusion function of s (and of s'), so wider intervals give
    wider ranges.
    A turning point t is stored rounded to the dtype, at most u|t| from the true one. Where s turns
    its derivative is 0, so the value there differs by at most max|s''| (u t)^2 / 2, far below the
    margin; and where only one of the two lies in [l, u], the other lies as close to the end that is
    taken instead.

    Rounding. The machine's tanh, sigmoid, exp, log1p, erf err by a few ulp, and by another few
    elsewhere in a tensor (a vector unit's code, or the scalar tail's), so that computed values are
    neither monotone nor the same at every batch size. ``MARGIN`` u is charged, absolute for a
    bounded s and for every s', relative to 1 + |x| for an s that grows:
    tanh, sigmoid: at most 4 ulp of a number below 1, that is 4u; 1 - tanh^2: 8u and two roundings;
    p (1 - p): less; softplus = max(x, 0) + log1p(exp(-|x|)): 4u + 4u + u (1 + |x|);
    gelu = x Phi(x), Phi = (1 + erf(x / sqrt 2)) / 2: Phi errs by 4u at most, of which 3u is
    float32's polynomial for erf, so x Phi(x) by 5u |x|; gelu' = Phi(x) + x phi(x): x phi(x) has the
    relative error 3u + x^2 u in exp(-x^2 / 2), and
    |x|^3 phi(x) < 1/2, so 4u + 3u.
    All are below MARGIN u / 2, which leaves the other half to the roundings of the widening itself.
    tau depends on the interval's largest |x| alone, so it grows with the interval, and rounding.py
    gives containment and nesting. Afterwards values are cut to s's range, as the nominal value is:
    monotone, and the exact value lies in it.
    A function of one correctly rounded operation (LeakyReLU) is monotone as computed and needs no
    margin.

    Backward. d s'(x) is one rounded product of a number in d and one in the range of s': monotone,
    four corners.

Flatten and Unflatten: the same numbers as a row, which linear layers take, or as an image.

The linear layer: a record's gradient in its weight is one outer product, which kernels make and add
up.

Average pooling of images, in front of Flatten: a linear map whose weights are fixed and not
negative.

Formal guarantees
    An output is the sum of its window's numbers, added one after another in the order of the
    window's places, and divided by how many there are; a gradient passes back as quotients added in
    the same fixed order. Each of these is one correctly rounded operation per element,
    nondecreasing in each operand (a divisor is a positive constant), so what the machine computes
    is itself a nondecreasing function of each number of the record, the same function for the
    nominal value and both ends, for one record or many, whatever the device does side by side.
    Hence the image of the lower ends, of the upper ends: containment and nesting hold bit for bit,
    with nothing to widen, and a point stays a point. PyTorch's own pooling adds in an order of its
    own, which nobody promises: it is not used, and agrees up to rounding.

Convolutions of images: the linear layer's sums, over the patches that an image unfolds to.

y[o, p] = sum_q W[o, q] u[q, p] + b[o]: u[:, p] is the patch of numbers that position p sees, in the
order of the weight's own axes (in, rows, columns), padding being zeros. Everything is unfolding,
which copies, and matrix products; PyTorch's own convolution may take short cuts (Winograd, FFT),
whose rounding no proof here covers, and is not used; nor is its unfolding, which starts and joins
its threads once for each image.

Formal guarantees
    Forward. Unfolding copies numbers, and zeros for the padding: an interval goes to its patches'
    intervals, the padding to the point 0. Each output is a sum of in/groups * kh * kw products of a
    weight and a number of the patch, and a bias: what a linear layer computes, bounded by the same
    products and widened by the same tau (rounding.py), with the greatest magnitude of the whole
    record and of the whole weight in place of a row's own: greater, and as inclusion-monotone.
    Backward. The gradient in a number of the image is the sum of W[o, q] d[o, p] over the outputs o
    and over the at most T = kh * kw pairs (q, p) that saw it: products of different weights with
    different gradients, so that the sum of their exact bounds is exact. They are summed over the
    out/groups =: m outputs first, then folded: added up, in any order, over the pairs. Let a bound
    |W||d|. A product of length m errs by at most 4 (m + 10) u m a (rounding.py), and T - 1
    additions of numbers of at most m a (1 + 4 (m + 10) u) err by less than 2 (T - 1) u T m a. In
    all less than u T m a (4 (m + 10) + 2 (T - 1)) <= u T m a * 4 (T m + 10): the tau of a single
    sum of T m products.
    Weights. A record's gradient is dW[o, q] = sum_p d[o, p] u[q, p]: for each record a product of
    two interval matrices of length P, the number of positions; db[o] = sum_p d[o, p]. For one (o,
    q) every d and every u stands in one product alone, so the sum of exact bounds is exact. Bounds
    are widened as any product's, 2(k+1) tau, tau = 4 (P + 10) u P max|d| max|u| (+ P times the
    least normal number), and only then clipped and rounded to quanta by a kernel, as the nominal
    gradient is: it is computed, by any product in float64, within tau of the exact one, so
    rounding.py gives containment and nesting of what is clipped, and clipping and rounding are
    monotone. Clipping each position's share instead would be another algorithm: the clip holds for
    a record's gradient, which is what a neighbour changes.
    Groups are convolutions side by side: the same, for each alone.

ReLU: exact, and the kernels bring a fast backward pass for it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from math import prod
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from agt.bounds.interval import Interval
from agt.bounds.rounding import Bounds, Products, Rounding, corners
from agt.errors import ConfigError, nearest

# parameter name -> [K, ...] bounds; bounds/network.py has the whole
Intervals = Mapping[str, Interval]
Point = Mapping[str, Tensor]  # parameter name -> nominal value


class LayerRule(Protocol):
    """How one layer acts. x is the layer's input; d the gradient of the loss in its output."""

    @property
    def name(self) -> str: ...

    def nominal(self, x: Tensor, point: Point) -> Tensor: ...
    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor: ...
    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval: ...
    def bound_back(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval: ...


class Gradient(NamedTuple):
    """Bounds on some records' gradients in one parameter.

    Attributes:
        parameter: its name.
        d: [K, n, out] where each record's gradient is d (x) x, or x None and d is the gradient: in
            a bias, or [K, n, parameters] in any parameter, in the order of its numbers.
        x: [K or 1, n, in], or None.
    """

    parameter: str
    d: Interval
    x: Interval | None


class Trained(LayerRule, Protocol):
    """A layer with parameters. d and x come in float64, whatever the passes are computed in."""

    def nominal_gradients(
        self, d: Tensor, x: Tensor
    ) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """As ``gradients``, without the axis K: the parameter, d and x."""

    def gradients(
        self, d: Interval, x: Interval, rounding: Rounding, products: Products
    ) -> Iterator[Gradient]:
        """Each parameter's, all records at once or some after others, in order."""

    def alive(self, x: Tensor, y: Tensor) -> int:
        """How many numbers of a record [1, ...] in and out its passes hold at once, ends of
        intervals aside.
        """


MARGIN = 32.0  # in units of u: past what any of these functions errs by, twice
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Activation:
    """s, and what its bounds need to know of it.

    Attributes:
        value, slope: s and s', elementwise, finite for finite arguments.
        range: the least and the greatest value of s, or a little outside, exact in both dtypes or
            never reached.
        slopes: the same for s'.
        turns, slope_turns: where s and s' turn from rising to falling or back.
        margin: what a computed value may err by, twice, in units of u.
        only: settings of the layer that this describes, if it has others.
    """

    value: Function
    slope: Function
    range: tuple[float, float]
    slopes: tuple[float, float]
    turns: tuple[float, ...] = ()
    slope_turns: tuple[float, ...] = ()
    margin: float = MARGIN
    only: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ElementwiseRule:
    """y = s(x)."""

    name: str
    activation: Activation

    @classmethod
    def of(cls, name: str, layer: nn.Module) -> "ElementwiseRule":
        """The rule of a layer whose type ``ELEMENTWISE`` lists.

        Raises:
            ConfigError: the layer has settings that no entry describes.
        """
        activation = ELEMENTWISE[type(layer)](layer)
        for setting, value in activation.only.items():
            given = getattr(layer, setting)
            if given != value:
                kind = type(layer).__name__
                raise ConfigError(
                    f"model: no bound rule for layer {name} ({kind}) with {setting}={given!r}, "
                    f"only with {value!r}"
                )
        return cls(name, activation)

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        return self.activation.value(x).clamp(*self.activation.range)

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return d * self.activation.slope(x).clamp(*self.activation.slopes)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """[K or 1, n, width] -> [K, n, width]."""
        s = self.activation
        grows = math.inf in s.range or -math.inf in s.range
        tau: Tensor | float = s.margin * rounding.unit
        return _widened(
            _range(s.value, x, s.turns),
            tau * (1 + x.magnitude()) if grows else tau,
            rounding,
            s.range,
        )

    def bound_back(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """d times the derivative's range."""
        s = self.activation
        slope = _widened(
            _range(s.slope, x, s.slope_turns), s.margin * rounding.unit, rounding, s.slopes
        )
        return Interval(*corners(d, slope))


def _range(function: Function, x: Interval, turns: tuple[float, ...]) -> Bounds:
    """The function's extremes over each interval, as computed."""
    at = [x.lower, x.upper, *(torch.full_like(x.lower, t).clamp(x.lower, x.upper) for t in turns)]
    values = [function(point) for point in at]
    return reduce(torch.minimum, values), reduce(torch.maximum, values)


def _widened(
    bounds: Bounds, tau: Tensor | float, rounding: Rounding, ends: tuple[float, float]
) -> Interval:
    """Widened for each k, and cut to what the function takes."""
    ks = len(rounding.factor)
    lower, upper = (t.expand(ks, *t.shape[1:]).contiguous() for t in bounds)  # widening overwrites
    if not isinstance(tau, float) or tau:
        widened = rounding.widen((lower, upper), tau)
        lower, upper = widened.lower, widened.upper
    return Interval.image(lower.clamp(*ends), upper.clamp(*ends))


# -- the functions
# -------------------------------------------------------------------------------------------------------


def _leaky(layer: nn.LeakyReLU) -> Activation:
    """x for x > 0, else a x, with derivative a at 0 as PyTorch has it: one rounded product at
    most.
    """
    a = layer.negative_slope
    if not 0 <= a <= 1:
        raise ConfigError(
            f"model: LeakyReLU with negative_slope={a} has no bound rule: give one between 0 and 1"
        )
    return Activation(
        lambda x: torch.where(x > 0, x, x * a),
        lambda x: torch.where(x > 0, torch.ones_like(x), torch.full_like(x, a)),
        (-math.inf, math.inf),
        (0.0, 1.0),
        margin=0.0,
    )


def _sigmoid_slope(x: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    return p * (1 - p)


def _softplus(x: Tensor) -> Tensor:
    """log(1 + e^x).

    PyTorch's jumps to x above its threshold of 20, down by 2e-9: not monotone, so not taken.
    """
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def _gelu(x: Tensor) -> Tensor:
    return x * _normal(x)


def _gelu_slope(x: Tensor) -> Tensor:
    return _normal(x) + x * torch.exp(x * x / -2) * (1 / math.sqrt(2 * math.pi))


def _normal(x: Tensor) -> Tensor:
    return (1 + torch.erf(x * math.sqrt(0.5))) / 2


_GELU_LEAST = -0.7517915246935645  # where Phi(x) + x phi(x) = 0; gelu is -0.16997 there
_TANH = Activation(
    torch.tanh, lambda x: 1 - torch.tanh(x).square(), (-1.0, 1.0), (0.0, 1.0), slope_turns=(0.0,)
)
_SIGMOID = Activation(torch.sigmoid, _sigmoid_slope, (0.0, 1.0), (0.0, 0.25), slope_turns=(0.0,))
_SOFTPLUS = Activation(
    _softplus, torch.sigmoid, (0.0, math.inf), (0.0, 1.0), only={"beta": 1, "threshold": 20}
)
_GELU = Activation(
    _gelu,
    _gelu_slope,
    (-0.17, math.inf),
    (-0.13, 1.13),
    turns=(_GELU_LEAST,),
    slope_turns=(-math.sqrt(2), math.sqrt(2)),
    only={"approximate": "none"},
)

ELEMENTWISE: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.LeakyReLU: _leaky,
    nn.Tanh: lambda layer: _TANH,
    nn.Sigmoid: lambda layer: _SIGMOID,
    nn.Softplus: lambda layer: _SOFTPLUS,
    nn.GELU: lambda layer: _GELU,
}


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

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return d.reshape(x.shape)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        return x.moved(lambda end: self._shaped(end, 2))

    def bound_back(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        return d.moved(lambda end: end.reshape(d.shape[:2] + x.shape[2:]))

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


@dataclass(frozen=True)
class LinearRule:
    """y = x W^T + b (method.md section 1). ``name`` prefixes the parameters: ``0.weight``,
    ``0.bias``.

    Attributes:
        nonnegative: the layer before gives no value below 0.
    """

    name: str
    bias: bool
    nonnegative: bool = False

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """[n, in] -> [n, out]."""
        return nn.functional.linear(
            x, point[f"{self.name}.weight"], point[f"{self.name}.bias"] if self.bias else None
        )

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """[n, out] -> [n, in]."""
        return d @ point[f"{self.name}.weight"]

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """[K or 1, n, in] -> [K, n, out]; exact products are exact, and all are widened for
        rounding.
        """
        return rounding.widen(self.product(x, box, products), self.rounding_of(x, box, rounding))

    def product(self, x: Interval, box: Intervals, products: Products) -> Bounds:
        """The same, not widened."""
        lower, upper = products.forward(x, box[f"{self.name}.weight"], self.nonnegative)
        if self.bias:
            bias = box[f"{self.name}.bias"]
            lower, upper = lower.add_(bias.lower[:, None, :]), upper.add_(bias.upper[:, None, :])
        return lower, upper

    def rounding_of(self, x: Interval, box: Intervals, rounding: Rounding) -> Tensor:
        """tau of each record's outputs, [K, n, 1]."""
        return rounding.dot(
            x, box[f"{self.name}.weight"], box[f"{self.name}.bias"] if self.bias else None
        )

    def bound_back(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """d_in = W^T d_out. [K, n, out] -> [K, n, in]."""
        weight = box[f"{self.name}.weight"]
        transposed = Interval.image(weight.lower.mT, weight.upper.mT)
        return rounding.widen(products.back(d, transposed), rounding.dot(d, weight))

    def nominal_gradients(
        self, d: Tensor, x: Tensor
    ) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """d [n, out] and x [n, in]: dW = d (x) x, db = d."""
        yield f"{self.name}.weight", d, x
        if self.bias:
            yield f"{self.name}.bias", d, None

    def gradients(
        self, d: Interval, x: Interval, rounding: Rounding, products: Products
    ) -> Iterator[Gradient]:
        """The same for intervals: kernels multiply, exactly or as training.product asks."""
        yield Gradient(f"{self.name}.weight", d, x)
        if self.bias:
            yield Gradient(f"{self.name}.bias", d, None)

    def alive(self, x: Tensor, y: Tensor) -> int:
        return x.numel() + y.numel()


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

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
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

    def bound_back(
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

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
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
        patches, weight = x.moved(self._patches_of_each_k), box[f"{self.name}.weight"]
        product = products.forward(
            patches.moved(_turned), weight.moved(self._of_every_record), self.nonnegative
        )
        lower, upper = (end.mT for end in product)
        length = prod(self.shape[1:])
        size = _terms(x) * _greatest(weight) * length
        if self.bias:
            bias = box[f"{self.name}.bias"]
            rows = bias.moved(lambda end: end.view(len(end), 1, self.groups, -1, 1))
            lower, upper = lower.add_(rows.lower), upper.add_(rows.upper)
            size = size + _greatest(bias)
        image = (*lower.shape[:2], self.shape[0], *self._positions(x.shape))
        bounds = rounding.widen((lower.flatten(2), upper.flatten(2)), rounding.of_sum(length, size))
        return bounds.moved(lambda end: end.view(image))

    def bound_back(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """[K, n, out, H', W'] -> [K, n, in, H, W]."""
        weight = box[f"{self.name}.weight"]
        rows = d.moved(lambda end: _turned(self._rows(end)))
        ends = products.back(weight.moved(lambda end: _turned(self._of_every_record(end))), rows)
        shape = (*d.shape[:2], *x.shape[2:])
        lower, upper = (self._folded(end, shape) for end in ends)
        length = prod(self.shape[2:]) * self.shape[0] // self.groups
        size = _terms(d) * _greatest(weight) * length
        bounds = rounding.widen((lower.flatten(2), upper.flatten(2)), rounding.of_sum(length, size))
        return bounds.moved(lambda end: end.view(shape))

    def gradients(
        self, d: Interval, x: Interval, rounding: Rounding, products: Products
    ) -> Iterator[Gradient]:
        """Bounds on what ``nominal_gradients`` gives: [K, n, parameters], some records at a
        time, and [K, n, out].
        """
        ks, n, positions = d.shape[0], d.shape[1], prod(d.shape[3:])
        size = _terms(d) * positions
        for block in self._blocks(ks, n):
            tau = rounding.of_sum(positions, size[:, block] * _terms(x[:, block]))
            product = products.forward(
                x[:, block].moved(self._patches_of_each_k),
                d[:, block].moved(self._rows),
                self.nonnegative,
            )
            lower, upper = (end.mT.flatten(2) for end in product)
            yield Gradient(f"{self.name}.weight", rounding.widen((lower, upper), tau), None)
        if self.bias:
            sums = d.lower.flatten(3).sum(dim=-1), d.upper.flatten(3).sum(dim=-1)
            yield Gradient(
                f"{self.name}.bias", rounding.widen(sums, rounding.of_sum(positions, size)), None
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
    return x.moved(lambda end: end.flatten(2)).inf_norm()


def _greatest(parameters: Interval) -> Tensor:
    """[K, 1, 1]: the greatest magnitude of all."""
    return parameters.magnitude().flatten(1).amax(dim=1)[:, None, None]


@dataclass(frozen=True)
class ReluRule:
    """max(x, 0), with derivative 1 for x > 0 and 0 for x <= 0; nominal and bounds use the same
    value at 0.
    """

    name: str

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        return x.clamp(min=0)

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return torch.where(x > 0, d, 0.0)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        return Interval.image(x.lower.clamp(min=0), x.upper.clamp(min=0))

    def bound_back(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """d times the derivative: 1 where x.lower > 0, 0 where x.upper <= 0, else anything in
        [0, 1].
        """
        return Interval.image(*products.relu_backward(d, x))


RULES: dict[type[nn.Module], Callable[[str, Any], LayerRule]] = {
    nn.Linear: lambda name, layer: LinearRule(name, layer.bias is not None),
    nn.ReLU: lambda name, layer: ReluRule(name),
    nn.Flatten: FlattenRule.of,
    nn.Unflatten: FlattenRule.back,
    nn.AvgPool2d: AvgPoolRule.of,
    nn.Conv2d: ConvRule.of,
    **dict.fromkeys(ELEMENTWISE, ElementwiseRule.of),
}


TRAINED = (LinearRule, ConvRule)  # those with parameters (contract.Trained)
# what a layer takes and leaves; the others take both, and leave the same
TURNS: dict[type[nn.Module], tuple[str, str]] = {
    nn.Linear: ("rows", "rows"),
    nn.Conv2d: ("images", "images"),
    nn.AvgPool2d: ("images", "images"),
    nn.Flatten: ("images", "rows"),
    nn.Unflatten: ("rows", "images"),
}
NamedLayers = dict[str, nn.Module]


def rules_for(head: nn.Sequential) -> tuple[LayerRule, ...]:
    """The rule of each layer, in order.

    Raises:
        ConfigError: a layer has no rule, two layers share a parameter (their gradients would have
            to be added), or a layer for images is given rows, or one for rows images.
    """
    if len(list(head.parameters())) < len(list(head.named_parameters(remove_duplicate=False))):
        raise ConfigError("model: two layers share a parameter, which no bound rule covers")
    # Not named_children(), which names a layer used twice (a shared ReLU) only once.
    layers = {name: layer for name, layer in head._modules.items() if layer is not None}
    for name, layer in layers.items():
        if type(layer) not in RULES:
            kind = type(layer).__name__
            raise ConfigError(
                f"model: no bound rule for layer {name} "
                f"({kind}){nearest(kind, [t.__name__ for t in RULES])}"
            )
    _check_order(layers)
    rules, nonnegative = list[LayerRule](), False
    for name, layer in layers.items():
        rule = RULES[type(layer)](name, layer)
        rules.append(replace(rule, nonnegative=nonnegative) if isinstance(rule, TRAINED) else rule)
        nonnegative = _nonnegative(rule, nonnegative)
    return tuple(rules)


def _nonnegative(rule: LayerRule, before: bool) -> bool:
    """Whether a layer gives no value below 0, whatever it is given; ``before``: of none below 0."""
    if isinstance(rule, FlattenRule | AvgPoolRule):
        return before  # the same numbers, or their means
    return isinstance(rule, ReluRule) or (
        isinstance(rule, ElementwiseRule) and rule.activation.range[0] >= 0
    )


def _check_order(layers: NamedLayers) -> None:
    """Raise ConfigError where a layer that takes rows is given images, or the other way round.

    Whether they have the right size is another question, and what records are, too
    (network.Network.check).
    """
    last, given = "", ""
    for name, layer in layers.items():
        kind, (takes, leaves) = (
            f"layer {name} ({type(layer).__name__})",
            TURNS.get(type(layer), (given, given)),
        )
        if given and takes != given:
            between = "nn.Flatten()" if takes == "rows" else "nn.Unflatten()"
            raise ConfigError(
                f"model: {kind} takes {takes}, and {last} leaves {given}: put {between} between "
                "them"
            )
        last, given = kind, leaves
