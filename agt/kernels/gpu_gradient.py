"""What both GPU kernels do to one record: bounds on its gradient, rounded to whole quanta.

Products and roundings are float64, as the reference kernel's. Whoever launches a kernel switches
the fusing of products with additions off (``enable_fp_fusion=False``), because a fused bound would
be rounded differently from the nominal gradient. Literals are powers of two, or three times one:
exact in whatever precision Triton gives a literal. The proofs are in docs/proofs/sums.md.
"""

import triton
import triton.language as tl
from torch import Tensor

from agt.bounds.interval import Interval
from agt.kernels.reference import RUMP_ROUNDINGS
from agt.settings import QUANTA

PROGRAM_THREADS = 128  # Triton 3.6 does not compile some tiles of fewer lanes
_FLOAT_QUANTA = tl.constexpr(float(QUANTA))
_QUANTA_BITS = tl.constexpr(0x41D00000 << 32)  # of QUANTA as a float64
_SIGN_BIT = tl.constexpr(-(1 << 63))
# Adding it to a number of at most 2^51 in size rounds that to an integer, ties to even.
MAGIC = tl.constexpr(1.5 * 2.0**52)
MAGIC_BITS = tl.constexpr(0x4338 << 48)
_RUMP_SLACK = tl.constexpr(RUMP_ROUNDINGS * 2.0**-52)


@triton.jit
def _quantise(value):  # type: ignore[no-untyped-def]
    """Return float64 values, clipped and rounded to integers, plus the bits of ``MAGIC``.

    A value is clipped to [-QUANTA, QUANTA] and rounded to the nearest integer, ties to even. The
    result is the int64 that has the bits of the float64 ``MAGIC`` + value: it exceeds the rounded
    value by ``MAGIC_BITS`` (Lemma 4 of docs/proofs/sums.md). The caller subtracts these.
    """
    # The clip is done on bits: QUANTA with the sign of the value takes the place of a larger one.
    bits = value.to(tl.int64, bitcast=True)
    bits = tl.where(tl.abs(value) > _FLOAT_QUANTA, (bits & _SIGN_BIT) | _QUANTA_BITS, bits)
    return (bits.to(tl.float64, bitcast=True) + MAGIC).to(tl.int64, bitcast=True)


@triton.jit
def gradient_bounds(  # type: ignore[no-untyped-def]
    gradient_lower, gradient_upper, inputs_lower, inputs_upper, j, i, sign,
    INPUT_KIND: tl.constexpr,
):  # fmt: skip
    """Return bounds on one record's gradient, each in integer quanta plus the bits of ``MAGIC``.

    The gradient in the weight from input i to output j is output_gradient[j] * inputs[i].

    Args:
        gradient_lower, gradient_upper: the addresses of the record's bounds on the gradient of the
            loss in the layer's output, [out] float64 in quanta.
        inputs_lower, inputs_upper: the addresses of its bounds on the layer's inputs, [in] float64;
            not read for a bias, whose input is 1.
        j: [TILE_OUTPUTS], the indices of this program's outputs.
        i: [TILE_INPUTS], the indices of this program's inputs.
        sign: 1.0, or -1.0 for bounds on the gradient with the sign reversed.
        INPUT_KIND: the kind of product that is computed, from ``input_kind``. "rump" gives wider
            bounds; the other kinds give the exact bounds, each by the fewest products that its
            inputs allow.

    Returns:
        (lower, upper), each int64 [TILE_OUTPUTS, TILE_INPUTS], or [TILE_OUTPUTS, 1] for a bias.
        Each exceeds the bound in quanta by ``MAGIC_BITS``.
    """
    signed_lower = (sign * tl.load(gradient_lower + j))[:, None]
    signed_upper = (sign * tl.load(gradient_upper + j))[:, None]
    # [p, q] bounds the output gradient, or the output gradient with the sign reversed.
    p = tl.where(sign > 0, signed_lower, signed_upper)
    q = tl.where(sign > 0, signed_upper, signed_lower)
    if INPUT_KIND == "one":
        return _quantise(p), _quantise(q)
    # [a, b] bounds the inputs.
    a = tl.load(inputs_lower + i)[None, :]
    b = tl.load(inputs_upper + i)[None, :]
    # The signs of the factors decide which ends give the smallest and the largest product, by
    # Lemma 6 of docs/proofs/sums.md.
    if INPUT_KIND == "point":
        return _quantise(tl.where(a >= 0, p, q) * a), _quantise(tl.where(a >= 0, q, p) * a)
    if INPUT_KIND == "rump":
        # The operations of reference._rump, in its order. With the sign reversed the midpoint
        # changes its sign, and nothing else.
        mid = (p + q) * 0.5
        rad = tl.abs(q - p) * 0.5
        x_mid = (a + b) * 0.5
        x_rad = (b - a) * 0.5
        spread = tl.abs(mid) * x_rad + rad * (tl.abs(x_mid) + x_rad)
        sizes = tl.maximum(tl.abs(p), tl.abs(q)) * tl.maximum(tl.abs(a), tl.abs(b))
        spread = spread + sizes * _RUMP_SLACK
        bounded = spread < float("inf")  # False for a NaN too
        smallest = tl.where(bounded, mid * x_mid - spread, float("-inf"))
        largest = tl.where(bounded, mid * x_mid + spread, float("inf"))
        return _quantise(smallest), _quantise(largest)
    # For "nonnegative" the smallest product is p times an end of the input, and the largest is q
    # times one. For "any" the other end of the output gradient may give them as well.
    smallest = p * tl.where(p >= 0, a, b)
    largest = q * tl.where(q >= 0, b, a)
    if INPUT_KIND == "any":
        smallest = tl.minimum(smallest, q * tl.where(q >= 0, a, b))
        largest = tl.maximum(largest, p * tl.where(p >= 0, b, a))
    return _quantise(smallest), _quantise(largest)


def program_tile(outputs: int, width: int, lanes: int, max_inputs: int) -> tuple[int, int]:
    """Return how many outputs and how many inputs of a layer one program handles.

    Both are powers of two, with a product of at most ``lanes`` and at least ``PROGRAM_THREADS``.
    The number of inputs is the one that leaves the fewest lanes empty, the largest of several. An
    output's factors are read once for all inputs of a program. The choice changes only the speed.

    Args:
        outputs: how many outputs the layer has.
        width: how many inputs the layer has, 1 for a bias.
        lanes: the largest number of entries of a parameter for one program, a power of two.
        max_inputs: the largest number of inputs for one program: 64, 128 or 256.
    """

    def lanes_of_all_inputs(size: int) -> tuple[int, int]:
        """Return how many lanes programs of this size have in all, and -size to prefer large ones.

        The first number exceeds the width by the lanes that are empty.
        """
        programs = triton.cdiv(width, size)
        return programs * size, -size

    sizes = [size for size in (64, 128, 256) if size <= max_inputs]
    fewest_empty = min(sizes, key=lanes_of_all_inputs)
    inputs = min(triton.next_power_of_2(width), fewest_empty)
    fitting_outputs = min(lanes // inputs, triton.next_power_of_2(outputs))
    return max(PROGRAM_THREADS // inputs, fitting_outputs), inputs


def input_kind(inputs: Interval | None, product: str) -> str:
    """Return how ``gradient_bounds`` multiplies an output gradient by a layer's inputs.

    Args:
        inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.
        product: "exact" or "rump", how two intervals are multiplied.

    Returns:
        "one" for a bias, "point" where both bounds are the same, "rump" for the midpoint-radius
        product, "nonnegative" for the exact product with inputs >= 0, or "any" for the exact
        product with inputs of any sign.
    """
    if inputs is None:
        return "one"
    if inputs.is_point:
        return "point"
    if product == "rump":
        return "rump"
    if bool((inputs.lower >= 0).all()):
        return "nonnegative"
    return "any"


def contiguous_factors(
    output_gradient: Interval, inputs: Interval | None
) -> tuple[list[Tensor], int]:
    """Return the factors of gradients as the Triton kernels take them.

    Args:
        output_gradient: [K, n, out] bounds on the gradients of the loss in the layer's output.
        inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.

    Returns:
        ([lower and upper bounds of ``output_gradient``, lower and upper bounds of ``inputs``], all
        contiguous; how many numbers lie between the inputs of one k and of the next, 0 if all k
        share them). For a bias the bounds of ``output_gradient`` take the place of the inputs,
        which the kernels do not read.
    """
    if inputs is None:  # a bias: the kernels take some addresses for the inputs, and read nothing
        inputs = output_gradient
        inputs_stride = 0
    elif inputs.shape[0] == 1:  # all k share the inputs
        inputs_stride = 0
    else:
        inputs_stride = inputs.shape[1] * inputs.shape[2]
    ends = [output_gradient.lower, output_gradient.upper, inputs.lower, inputs.upper]
    return [end.contiguous() for end in ends], inputs_stride
