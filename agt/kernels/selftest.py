"""The self-test of a kernel: small cases whose numbers must equal the reference kernel's.

A case is one operation on the inputs of a ``Probe``. It returns tensors to be compared bit for bit.
"""

import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import linear_point, linear_relu_backward
from agt.errors import UnsoundError
from agt.kernels.reference import ReferenceKernel
from agt.messages import Message
from agt.settings import QUANTA


class Probe:
    """Small inputs for every operation of a kernel: 7 records, 2 values of k, 3 outputs.

    All numbers are multiples of powers of two (dyadic), so that matrix products are exact in any
    order. Some gradients exceed the clip level, and some are ties of rounding.

    Attributes:
        output_gradient: bounds on the gradients in a layer's output, [2, 7, 3], in quanta.
        narrow, wide: known layer inputs (points), [1, 7, 2] and [1, 7, 18]. Kernels may treat few
            and many inputs by different code.
        interval: bounds on layer inputs, with intervals of either sign, [2, 7, 5].
        weights, point_weights: interval matrices for ``interval`` and ``narrow``, [2, 3, 5] and
            [2, 3, 2].
        counts: how many bounds a selection takes at each k, [2].
    """

    def __init__(self, device: str) -> None:
        """Make the tensors on ``device``, "cpu" or "cuda"."""

        def dyadic(count: int, step: int, *shape: int) -> Tensor:
            """Return ``count`` multiples of 1/8 from -15/8 to 15/8, in this shape.

            Args:
                count: the product of ``shape``.
                step: the difference between successive numbers in eighths, modulo 31; not a
                    multiple of 31, so that all values occur in a scattered order.
                shape: the shape of the result.
            """
            eighths = (torch.arange(count, dtype=torch.float64, device=device) * step) % 31 - 15
            return eighths.view(shape) / 8

        # Shapes are [K, records, width] with K = 2 and 7 records, and the first argument of
        # ``dyadic`` is their product. What is added makes intervals, some of which contain 0.
        # The gradients reach nearly twice the clip level QUANTA. The 0.5 makes ties of rounding.
        gradient = dyadic(42, 7, 2, 7, 3) * (QUANTA / 2)
        self.output_gradient = Interval(gradient + 0.5, gradient + QUANTA / 3)
        self.narrow = Interval.point(dyadic(14, 11, 1, 7, 2))
        self.wide = Interval.point(dyadic(126, 11, 1, 7, 18))
        inputs = dyadic(70, 9, 2, 7, 5)
        self.interval = Interval(inputs - 0.25, inputs + 0.5)
        weights = dyadic(30, 13, 2, 3, 5)
        self.weights = Interval(weights - 0.5, weights + 0.125)
        point_weights = dyadic(12, 13, 2, 3, 2)
        self.point_weights = Interval(point_weights - 0.5, point_weights + 0.125)
        self.counts = torch.tensor([2, 4], device=device)

    @property
    def square_weights(self) -> Interval:
        """Return an interval matrix [1, 18, 18] for inputs like ``wide``.

        It has so many outputs that the CPU kernel vectorises over them, and so many inputs of each
        sign that the kernel's lists of inputs have more than four entries.
        """
        seven_rows = self.wide.lower[0]
        numbers = seven_rows.repeat(3, 1)[:18]  # of the 21 rows
        return Interval(numbers[None], numbers[None] + 0.25)


Case = Callable[[ReferenceKernel, Probe], tuple[Tensor, ...]]


def _select(
    kernel: ReferenceKernel,
    probe: Probe,
    inputs: Interval | None,
    capped: bool,
    product: str = "exact",
) -> tuple[Tensor, Tensor]:
    """Return the sums of the most extreme bounds on the probe's gradients.

    The records come in two fragments, so that selected values are compared with new ones.

    Args:
        kernel: the kernel under test, or the reference kernel.
        probe: the output gradients, and how many bounds to select.
        inputs: [1 or 2, 7, in] bounds on the layer's inputs; None for a bias.
        capped: whether to select from min(upper bound, 0) and max(lower bound, 0).
        product: "exact" or "rump", how two intervals are multiplied.
    """
    outputs = probe.output_gradient.shape[2]
    shape: tuple[int, ...] = (outputs,)  # of a bias
    if inputs is not None:
        shape = (outputs, inputs.shape[2])
    selection = kernel.start_selection(probe.counts, shape, capped, product)
    for fragment in (slice(0, 3), slice(3, None)):
        inputs_of_fragment = None
        if inputs is not None:
            inputs_of_fragment = inputs[:, fragment]
        selection.update(probe.output_gradient[:, fragment], inputs_of_fragment)
    return selection.result()


def _widen(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return the ends of an interval that the kernel widened by a slack for each record.

    This is a case of the kernel's self-test, with the inputs of ``probe``.
    """
    slack = probe.interval.upper[..., :1].abs()  # any nonnegative number for each record
    # Copies, because ``widen_by`` overwrites its arguments.
    lower = probe.interval.lower.clone()
    upper = probe.interval.upper.clone()
    widened = kernel.widen_by(lower, upper, slack)
    return widened.lower, widened.upper


def _relu_backward(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return bounds on the gradients in the input of a ReLU, which has numbers of either sign.

    This is a case of the kernel's self-test, with the inputs of ``probe``.
    """
    # The same numbers serve as gradients and, in another order, as inputs. Contiguous ones let the
    # CPU kernel use its compiled function, which overwrites the gradients.
    reversed_records = probe.interval.rearranged(lambda end: end.flip(1).contiguous())
    return kernel.products("exact").relu_backward(reversed_records, probe.interval)


def _point_product(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return bounds on the product of known inputs (points) and an interval matrix.

    This is a case of the kernel's self-test, with the inputs of ``probe``.
    """
    multiply = kernel.products("exact").point
    if multiply is None:  # the kernel has no implementation of its own
        multiply = linear_point
    return multiply(probe.narrow.lower, probe.point_weights)


def _point_affine(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, ...]:
    """Return widened bounds on the outputs of a linear layer for known inputs, and on their ReLU.

    The layer has five inputs, because the CPU kernel takes three at a time and then one by one.
    This is a case of the kernel's self-test, with the inputs of ``probe``.
    """
    inputs = probe.interval.lower[:1]
    bias = probe.weights[..., 0]  # any interval for each output
    slack = probe.interval.upper[..., :1].abs()  # any nonnegative number for each record
    outputs = kernel.point_affine(inputs, probe.weights, bias, slack, with_relu=False)
    rectified = kernel.point_affine(inputs, probe.weights, bias, slack, with_relu=True)
    return outputs.lower, outputs.upper, rectified.lower, rectified.upper, rectified.inf_norm()


def _linear_relu_backward(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return bounds on the gradients in the input of a ReLU behind which a layer has 3 outputs.

    This is a case of the kernel's self-test, with the inputs of ``probe``.
    """
    multiply = kernel.products("exact").linear_relu_backward
    if multiply is None:  # the kernel has no implementation of its own
        multiply = linear_relu_backward
    # The 5 columns of ``probe.weights`` are the layer's inputs here, and some intervals hold 0.
    transposed = probe.weights.rearranged(lambda end: end.mT)
    slack = probe.interval.upper[..., :1].abs()  # any nonnegative number for each record
    gradient = multiply(probe.output_gradient, transposed, slack, probe.interval)
    return gradient.lower, gradient.upper


def _corner_product(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, ...]:
    """Return bounds on the products of intervals of inputs and interval matrices.

    One product has 5 inputs. The other has 18, some of them of one sign, some of either, some 0.
    This is a case of the kernel's self-test, with the inputs of ``probe``.
    """
    products = kernel.products("exact")
    with_5_inputs = products.corners(probe.interval, probe.weights)
    # Intervals between a record's numbers and the same numbers in reverse order.
    inputs = probe.wide.lower
    reversed_inputs = inputs.flip(2)
    lower = torch.minimum(inputs, reversed_inputs)
    upper = torch.maximum(inputs, reversed_inputs)
    with_18_inputs = products.corners(Interval(lower, upper), probe.square_weights)
    return *with_5_inputs, *with_18_inputs


def _nonnegative_product(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return bounds on the product of an interval of inputs >= 0 and an interval matrix.

    This is a case of the kernel's self-test, with the inputs of ``probe``.
    """
    inputs = probe.wide.lower.clamp(min=0)
    products = kernel.products("exact")
    return products.forward(Interval(inputs, inputs * 1.5), probe.square_weights, nonnegative=True)


def _nonnegative_sum(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return the sums of gradient bounds for inputs >= 0, as behind a ReLU.

    Some of the output gradients are 0, which the CPU kernel leaves out. Others exceed the clip.
    This is a case of the kernel's self-test, with the inputs of ``probe``.
    """
    inputs = probe.wide.lower.clamp(min=0)
    # For 7 records, gradients of either sign between one number and 1.5 times it.
    first_end = probe.square_weights[:, :7].lower * (QUANTA / 8)
    second_end = first_end * 1.5
    lower = torch.minimum(first_end, second_end)
    upper = torch.maximum(first_end, second_end)
    return kernel.bound_sum(Interval(lower, upper), Interval(inputs, inputs * 1.5), "exact")


# The name of each case, which an error message names. "x" is a layer's input.
CASES: dict[str, Case] = {
    "gradients of weights": lambda kernel, probe: (
        kernel.nominal_sum(probe.output_gradient.upper[0], probe.wide.lower[0]),
    ),
    "gradients of biases": lambda kernel, probe: (
        kernel.nominal_sum(probe.output_gradient.upper[0], None),
    ),
    "gradient bounds, narrow layer": lambda kernel, probe: kernel.bound_sum(
        probe.output_gradient, probe.narrow, "exact"
    ),
    "gradient bounds, wide layer": lambda kernel, probe: kernel.bound_sum(
        probe.output_gradient, probe.wide, "exact"
    ),
    "gradient bounds, interval inputs": lambda kernel, probe: kernel.bound_sum(
        probe.output_gradient, probe.interval, "exact"
    ),
    "gradient bounds, nonnegative inputs": _nonnegative_sum,
    "gradient bounds, midpoint-radius inputs": lambda kernel, probe: kernel.bound_sum(
        probe.output_gradient, probe.interval, "rump"
    ),
    "gradient bounds of biases": lambda kernel, probe: kernel.bound_sum(
        probe.output_gradient, None, "exact"
    ),
    "selection, point x": lambda kernel, probe: _select(kernel, probe, probe.narrow, capped=False),
    "selection, interval x": lambda kernel, probe: _select(
        kernel, probe, probe.interval, capped=False
    ),
    "selection, interval x, midpoint-radius": lambda kernel, probe: _select(
        kernel, probe, probe.interval, capped=False, product="rump"
    ),
    "selection, capped": lambda kernel, probe: _select(kernel, probe, probe.interval, capped=True),
    "selection of a bias": lambda kernel, probe: _select(kernel, probe, None, capped=False),
    "corner product": _corner_product,
    "nonnegative product": _nonnegative_product,
    "point product": _point_product,
    "point affine": _point_affine,
    "relu backward": _relu_backward,
    "linear and relu backward": _linear_relu_backward,
    "outward": _widen,
}


def check_kernel(kernel: ReferenceKernel, device: str) -> None:
    """Raise UnsoundError unless a kernel gives the reference kernel's numbers in every case.

    Args:
        kernel: the kernel under test.
        device: the device that it runs on, "cpu" or "cuda".

    Raises:
        UnsoundError: a number, a shape or a dtype differs.
        Exception: whatever compiling or launching the kernel raises.
    """
    check_cases(kernel, device, CASES)


def check_cases(kernel: ReferenceKernel, device: str, cases: Mapping[str, Case]) -> None:
    """Raise UnsoundError unless a kernel gives the reference kernel's numbers in some cases.

    Tensors are compared bit for bit. A kernel that is compiled when it is first called is compiled
    here.

    Args:
        kernel: the kernel under test.
        device: the device that it runs on, "cpu" or "cuda".
        cases: name -> case, all of ``CASES`` or some.

    Raises:
        UnsoundError: a number, a shape or a dtype differs. What is wrong with the kernel is then
            unknown, and certificates depend on these sums.
        Exception: whatever compiling or launching the kernel raises.
    """
    reference = ReferenceKernel()
    for name, case in cases.items():
        # A new probe for each, because some operations overwrite their arguments.
        computed = case(kernel, Probe(device))
        expected = case(reference, Probe(device))
        if not all(_is_equal(a, b) for a, b in zip(computed, expected, strict=True)):
            raise UnsoundError(
                Message(
                    "{config:compute.kernel}={kernel} gives other sums than the reference kernel "
                    "on this machine (in the test '{name}'), so its sums cannot be trusted: use "
                    "{config:compute.kernel}=reference, and please report this",
                    kernel=kernel.name,
                    name=name,
                )
            )


def _is_equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same shape, dtype and numbers."""
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def warn_of_replacement(name: str, next_name: str, error: Exception) -> None:
    """Warn that a kernel, or one of its functions, does not work here and is replaced.

    Args:
        name: the kernel's name.
        next_name: the name of the kernel that replaces it, and gives the same numbers.
        error: the error that shows why the kernel does not work.
    """
    lines = str(error).strip().splitlines()
    cause = lines[0] if lines else ""  # some errors have no message
    warnings.warn(
        f"compute.kernel={name} does not work here ({type(error).__name__}: {cause}), so "
        f"{next_name} is used, which gives the same numbers more slowly",
        stacklevel=3,
    )
