"""What both GPU kernels do to one record: its factors, the bounds on their products, and the roundings to whole quanta.

Products and roundings are float64, in the reference's own order. Whoever launches these switches the fusing of products
with additions off (``enable_fp_fusion=False``): bounds would then be rounded differently from the nominal gradient.
Literals are powers of two, or three times one: exact in whatever precision Triton gives a literal.
"""

import triton
import triton.language as tl
from torch import Tensor

from agt.bounds.interval import Interval
from agt.kernels.contract import QUANTA
from agt.kernels.reference import RUMP_ROUNDINGS

_Q = tl.constexpr(float(QUANTA))
MAGIC = tl.constexpr(1.5 * 2.0**52)  # adding it to a number up to 2^51 in size rounds that to an integer, ties to even
_RUMP_SLACK = tl.constexpr(RUMP_ROUNDINGS * 2.0**-52)


@triton.jit
def record(  # type: ignore[no-untyped-def]
    d_lower, d_upper, x_lower, x_upper, j, i, in_j, in_i, turn, BIAS: tl.constexpr, POINT: tl.constexpr, RUMP: tl.constexpr
):
    """One record's bounds, clipped and rounded to whole quanta, each plus ``MAGIC``, which is exact. [OUT, IN] or [OUT, 1].

    Args:
        d_lower, d_upper, x_lower, x_upper: where the record's factors begin; of a bias, whose input is 1, x is not read.
        j, i: [OUT] and [IN], which of them; in_j, in_i: whether they are there.
        turn: 1, or -1 for bounds of -d x.
    """
    p = turn * tl.load(d_lower + j, mask=in_j, other=0.0)[:, None]
    q = turn * tl.load(d_upper + j, mask=in_j, other=0.0)[:, None]
    if BIAS:
        least, greatest = tl.minimum(p, q), tl.maximum(p, q)
    elif POINT:
        a = tl.load(x_lower + i, mask=in_i, other=0.0)[None, :]
        c1, c2 = p * a, q * a
        least, greatest = tl.minimum(c1, c2), tl.maximum(c1, c2)
    else:
        a = tl.load(x_lower + i, mask=in_i, other=0.0)[None, :]
        b = tl.load(x_upper + i, mask=in_i, other=0.0)[None, :]
        if RUMP:  # reference._rump, in its order; of [-q, -p] the middle is turned, and nothing else
            mid, rad, x_mid, x_rad = (p + q) * 0.5, tl.abs(q - p) * 0.5, (a + b) * 0.5, (b - a) * 0.5
            spread = tl.abs(mid) * x_rad + rad * (tl.abs(x_mid) + x_rad)
            sizes = tl.maximum(tl.abs(p), tl.abs(q)) * tl.maximum(tl.abs(a), tl.abs(b))
            spread = spread + sizes * _RUMP_SLACK
            centre = mid * x_mid
            bounded = spread < float("inf")  # false for NaN too
            least = tl.where(bounded, centre - spread, float("-inf"))
            greatest = tl.where(bounded, centre + spread, float("inf"))
        else:
            c1, c2, c3, c4 = p * a, p * b, q * a, q * b
            least = tl.minimum(tl.minimum(c1, c2), tl.minimum(c3, c4))
            greatest = tl.maximum(tl.maximum(c1, c2), tl.maximum(c3, c4))
    return tl.minimum(tl.maximum(least, -_Q), _Q) + MAGIC, tl.minimum(tl.maximum(greatest, -_Q), _Q) + MAGIC


def tile(outputs: int, width: int, lanes: int) -> tuple[int, int]:
    """(outputs, inputs) of one program, powers of two, at most ``lanes`` together and 64 inputs; few lie outside."""
    inputs = min(64, triton.next_power_of_2(width))
    return min(lanes // inputs, triton.next_power_of_2(outputs)), inputs


def factors_of(d: Interval, x: Interval | None) -> tuple[list[Tensor], int]:
    """(the ends of d and x, contiguous; numbers between x of one k and of the next). Of a bias, d stands in x's place."""
    other = d if x is None else x
    stride = 0 if x is None or x.shape[0] == 1 else x.shape[1] * x.shape[2]
    return [t.contiguous() for t in (d.lower, d.upper, other.lower, other.upper)], stride
