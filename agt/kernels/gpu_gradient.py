"""What both GPU kernels do to one record: bounds on its gradient, rounded to whole quanta.

Products and roundings are float64, as the reference kernel's. Whoever launches a kernel switches
the fusing of products with additions off (``enable_fp_fusion=False``), since bounds would otherwise
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
def _quantise(v):  # type: ignore[no-untyped-def]
    """Return the bits of ``MAGIC`` plus v, clipped and rounded to whole quanta.

    Lemma 4 of docs/proofs/sums.md.
    """
    bits = v.to(tl.int64, bitcast=True)
    bits = tl.where(tl.abs(v) > _FLOAT_QUANTA, (bits & _SIGN_BIT) | _QUANTA_BITS, bits)
    return (bits.to(tl.float64, bitcast=True) + MAGIC).to(tl.int64, bitcast=True)


@triton.jit
def gradient_bounds(d_lower, d_upper, x_lower, x_upper, j, i, turn, X: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return bounds on one record's gradient, each as the bits of ``MAGIC`` plus whole quanta.

    Args:
        d_lower, d_upper, x_lower, x_upper: where the record's factors begin; x is not read for a
            bias, whose input is 1.
        j, i: [OUT] and [IN], the outputs and inputs of this program.
        turn: 1, or -1 for bounds on -d x.
        X: the kind of x, from ``input_kind``.

    Returns:
        (lower, upper), each [OUT, IN], or [OUT, 1] for a bias.
    """
    turned_lower = (turn * tl.load(d_lower + j))[:, None]
    turned_upper = (turn * tl.load(d_upper + j))[:, None]
    p = tl.where(turn > 0, turned_lower, turned_upper)
    q = tl.where(turn > 0, turned_upper, turned_lower)
    if X == "one":
        return _quantise(p), _quantise(q)
    a = tl.load(x_lower + i)[None, :]
    b = tl.load(x_upper + i)[None, :]
    # Lemma 6 of docs/proofs/sums.md: which factors give the smallest and the largest product.
    if X == "point":
        return _quantise(tl.where(a >= 0, p, q) * a), _quantise(tl.where(a >= 0, q, p) * a)
    if X == "rump":
        # The operations of reference._rump, in its order. For -d the midpoint changes its sign,
        # and nothing else.
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
    smallest = p * tl.where(p >= 0, a, b)
    largest = q * tl.where(q >= 0, b, a)
    if X == "any":
        smallest = tl.minimum(smallest, q * tl.where(q >= 0, a, b))
        largest = tl.maximum(largest, p * tl.where(p >= 0, b, a))
    return _quantise(smallest), _quantise(largest)


def program_tile(outputs: int, width: int, lanes: int, max_inputs: int) -> tuple[int, int]:
    """Return how many outputs and inputs of a layer one program handles.

    Both are powers of two, with a product of at most ``lanes`` and at least ``PROGRAM_THREADS``.
    The inputs are as many as leave the fewest lanes empty, up to ``max_inputs``, because an
    output's factors are read once for all of them.

    Args:
        outputs, width: the outputs and inputs of the layer.
        lanes: the most numbers of a parameter for one program.
        max_inputs: 64, 128 or 256.
    """
    sizes = [size for size in (64, 128, 256) if size <= max_inputs]
    fewest_empty = min(sizes, key=lambda size: (triton.cdiv(width, size) * size, -size))
    inputs = min(triton.next_power_of_2(width), fewest_empty)
    fitting_outputs = min(lanes // inputs, triton.next_power_of_2(outputs))
    return max(PROGRAM_THREADS // inputs, fitting_outputs), inputs


def input_kind(x: Interval | None, product: str) -> str:
    """Return the kind of a layer's input x, which decides how ``gradient_bounds`` multiplies.

    Returns:
        "one" for a bias, "point", "rump", "nonnegative" if no bound is negative, or "any".
    """
    if x is None:
        return "one"
    if x.is_point:
        return "point"
    if product == "rump":
        return "rump"
    return "nonnegative" if bool((x.lower >= 0).all()) else "any"


def contiguous_factors(d: Interval, x: Interval | None) -> tuple[list[Tensor], int]:
    """Return the factors of gradients as kernels take them.

    Returns:
        The ends of d and of x, contiguous (of d again for a bias, whose x is not read), and how
        many numbers lie between x of one k and x of the next: 0 if all k have the same x.
    """
    other = d if x is None else x
    x_stride = 0 if x is None or x.shape[0] == 1 else x.shape[1] * x.shape[2]
    ends = [d.lower, d.upper, other.lower, other.upper]
    return [end.contiguous() for end in ends], x_stride
