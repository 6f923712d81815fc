"""The GPU kernel: Triton. Sums are here, one program for each (k, tile of outputs, tile of inputs,
slice of records); selections below. Either is one launch for all k of a fragment.

Each program adds its integers to the result atomically; integers, so the order does not matter.
Indices of records are int32, at most 2^30 + 2^11, and addresses int64.

Cost. For each k, record and weight, where x is a number: two products, two comparisons with the
clip and two roundings, 6 operations of float64; 12 choices and additions of half as many bits. As
compiled for an H100 29 instructions, loads among them (8 products a thread, 256 inputs a program),
of which 4 x 132 processors issue 32 each in a cycle: 100 ms for 20,000 records, 76,900 weights and
64 k. Next to no memory traffic: a program reads OUT + IN factors for OUT x IN products.

What both GPU kernels do to one record: its factors, the bounds on their products, and the roundings
to whole quanta.

Products and roundings are float64, as the reference's. Whoever launches these switches the fusing
of products with additions off (``enable_fp_fusion=False``): bounds would then be rounded
differently from the nominal gradient. Literals are powers of two, or three times one: exact in
whatever precision Triton gives a literal.

Selections on a GPU: per parameter the sums of the c least upper and of the c greatest lower bounds,
for all k at once.

One program for each (k, side, tile of parameters) goes through a fragment's records in their order.
A parameter has room for c values and as many more; a bound below its threshold, at first above
every value, goes into the next free place. When a program finds that one of its parameters may run
out of room, it finds a level between the c least and the others of each that holds more than c,
keeps the c least, and makes the level the threshold. What is kept waits in the GPU's memory for the
next fragment: one launch for each fragment and parameter tensor.

Cost, for each k, parameter and side, of n records in an order that has nothing to do with their
values: 7 operations a record (a choice of factors, a product, a clip, a rounding, the comparison
with the threshold, its counting, a shift of addresses), and about log2(n / c) + 1 cuts, as the next
c values below a threshold take as many records again. A cut reads 2c values of 4 bytes up to 17
times, since a pass quarters an interval of 2^31, and moves them once: 144 c bytes. With n = 20,000
and c = 50 that is 140,000 operations and 69,000 bytes: where a GPU does 15 Tops (float64, not
fused) and 3 TB/s, 9 ns and 23 ns, and the sums of both sides take 20 ns. These are estimates, not
measurements.
A radix selection that keeps no values and works every bound out again in each of 11 passes over
three bits needs more than 11 times those operations (each pass compares with seven pivots), and
either every factor of the batch held or every fragment passed forward and back again for each pass.
Keeping the c least sorted would move c values for each that comes. Memory: both sides take 16 c
bytes a parameter (``room``), as the reference's do; training/batches.py cuts the grid into groups
by that.

Formal guarantees
    Whole quanta. |q| <= 2^30, and MAGIC + q is a float64 of [2^52, 2^53), where one unit in the
    last place is 1: its bits are those of MAGIC, plus q. The low 32 bits are q modulo 2^32, hence q
    as int32; and the bits of n of them, added modulo 2^64, less n times MAGIC's, are the sum of the
    q, which int64 holds (reference.py).

    Ends. Which factors make the least product and the greatest is known from signs, and the product
    as rounded is the same number (cpu.py, "Ends"): of a number x, d's lower or upper end by the
    sign of x; of x >= 0 x's end by the sign of d's; of any [a, b] the least of d a and d b is d a
    where d >= 0 and else d b, for either end d of [p, q].

    Sides. The greatest lower bounds of d x are the least upper bounds of -d x, negated: with [p, q]
    for d, [-q, -p] for -d, each product, minimum, clip and rounding (to nearest, ties to even)
    changes its sign and nothing else. So both sides run the same code, and sums of the second are
    negated at the end. max(l, 0) = -min(-l, 0).

    Kept. Let S be the multiset of a parameter's bounds so far and S_c its c least. Invariant: the
    kept multiset is part of S and holds S_c (all of S, if |S| <= c), where of equal values any will
    do; at most ``room`` values; and the threshold is above every int32 in range, or no less than
    the c-th least of S.
    A new bound v below the threshold is appended: the kept stay part of S, and hold S_c. One that
    is not below it is left out: then the threshold is a number t of at least c kept values <= t, so
    S_c needs no further value >= t.
    A cut of a parameter that holds more than c values: t is a level as ``_level`` finds it, with
    exactly c values below, or fewer and then c or more at or below it. Those below are kept and
    filled up to c with t, which occurs often enough: the c least of what was held, and hence S_c. t
    becomes the threshold. One that holds c or fewer stays as it is.
    Room. Between two looks a program appends at most ``_LOOK`` values to a parameter; it cuts if
    any holds more than room - ``_LOOK``, and a cut leaves at most c <= room - ``_LOOK`` in each
    that held more.
    Levels. ``_level`` narrows [low, high], at first [-2^30, 2^30], for what holds more than c
    values, keeping: more than c values are <= high, and at most c are < low. Whatever the pivots m:
    where more than c values are <= m, high may come down to it; otherwise low may rise to m + 1;
    and where exactly c are, m + 1 is a level, and remains one if that is found of it again. While
    low < high all pivots are in [low, high), so each pass shortens the interval; at low = high it
    is the (c + 1)-st least value: at most c are below, and more than c at or below.
    The result is the sum of the values below such a level, and the level as often as is missing to
    c: of S_c, which depends on S alone, not on fragments, on the order of records, or on when cuts
    happened.

    Range. Places fit int32: room <= 2^30 + 2^20. All addresses are int64. Sums are at most 2^60
    (reference.py).

    Memory order. A parameter's place is written by one thread and may be read by another of its
    program: barriers stand before each reading of places and after their moving. In the moving
    itself a place is written only once the values before and at it were read, as where to write is
    counted from these. Programs share nothing.
"""

from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from torch import Tensor

from agt.bounds.interval import Interval
from agt.kernels.reference import EMPTY_SLOT, RUMP_ROUNDINGS, Extremes, ReferenceKernel
from agt.settings import QUANTA

_FLOAT_QUANTA = tl.constexpr(float(QUANTA))
_BITS_QUANTA = tl.constexpr(0x41D00000 << 32)
_SIGN = tl.constexpr(-(1 << 63))
# adding it to a number up to 2^51 in size rounds that to an integer, ties to even
MAGIC = tl.constexpr(1.5 * 2.0**52)
_ZERO = tl.constexpr(0x4338 << 48)  # MAGIC's bits
_RUMP_SLACK = tl.constexpr(RUMP_ROUNDINGS * 2.0**-52)


@triton.jit
def _quantised(v):  # type: ignore[no-untyped-def]
    """The nearest whole quanta to v as clipped, plus ``MAGIC``; its bits."""
    bits = v.to(tl.int64, bitcast=True)
    bits = tl.where(tl.abs(v) > _FLOAT_QUANTA, (bits & _SIGN) | _BITS_QUANTA, bits)
    return (bits.to(tl.float64, bitcast=True) + MAGIC).to(tl.int64, bitcast=True)


@triton.jit
def record(d_lower, d_upper, x_lower, x_upper, j, i, turn, X: tl.constexpr):  # type: ignore[no-untyped-def]
    """One record's bounds, clipped and rounded to whole quanta, as the bits of ``MAGIC`` plus each.
    [OUT, IN] or [OUT, 1].

    Args:
        d_lower, d_upper, x_lower, x_upper: where the record's factors begin; of a bias, whose input
            is 1, x is not read.
        j, i: [OUT] and [IN], which of them.
        turn: 1, or -1 for bounds of -d x.
        X: what ``kind_of`` says of x.
    """
    p, q = (turn * tl.load(d_lower + j))[:, None], (turn * tl.load(d_upper + j))[:, None]
    p, q = tl.where(turn > 0, p, q), tl.where(turn > 0, q, p)
    if X == "one":
        return _quantised(p), _quantised(q)
    a, b = tl.load(x_lower + i)[None, :], tl.load(x_upper + i)[None, :]
    if X == "point":
        return _quantised(tl.where(a >= 0, p, q) * a), _quantised(tl.where(a >= 0, q, p) * a)
    # reference._rump, in its order; of [-q, -p] the middle is turned, and nothing else
    if X == "rump":
        mid, rad, x_mid, x_rad = (p + q) * 0.5, tl.abs(q - p) * 0.5, (a + b) * 0.5, (b - a) * 0.5
        spread = tl.abs(mid) * x_rad + rad * (tl.abs(x_mid) + x_rad)
        sizes = tl.maximum(tl.abs(p), tl.abs(q)) * tl.maximum(tl.abs(a), tl.abs(b))
        spread = spread + sizes * _RUMP_SLACK
        bounded = spread < float("inf")  # false for NaN too
        least = tl.where(bounded, mid * x_mid - spread, float("-inf"))
        return _quantised(least), _quantised(tl.where(bounded, mid * x_mid + spread, float("inf")))
    least, greatest = p * tl.where(p >= 0, a, b), q * tl.where(q >= 0, b, a)
    if X == "any":
        least = tl.minimum(least, q * tl.where(q >= 0, a, b))
        greatest = tl.maximum(greatest, p * tl.where(p >= 0, b, a))
    return _quantised(least), _quantised(greatest)


def tile(outputs: int, width: int, lanes: int, most: int) -> tuple[int, int]:
    """(outputs, inputs) of one program, powers of two, at most ``lanes`` together and at least
    ``_THREADS``.

    Of up to ``most`` inputs as many as leave the fewest lanes empty: an output's factors are read
    once for them all.
    """
    sizes = [size for size in (64, 128, 256) if size <= most]
    inputs = min(
        triton.next_power_of_2(width),
        min(sizes, key=lambda size: (triton.cdiv(width, size) * size, -size)),
    )
    return max(_THREADS // inputs, min(lanes // inputs, triton.next_power_of_2(outputs))), inputs


def kind_of(x: Interval | None, product: str) -> str:
    """How a record's d meets its x: as ``record`` tells them apart."""
    if x is None:
        return "one"
    if x.is_point:
        return "point"
    if product == "rump":
        return "rump"
    return "nonnegative" if bool((x.lower >= 0).all()) else "any"


def factors_of(d: Interval, x: Interval | None) -> tuple[list[Tensor], int]:
    """(the ends of d and x, contiguous; numbers between x of one k and of the next).

    Of a bias, d stands in x's place.
    """
    other = d if x is None else x
    stride = 0 if x is None or x.shape[0] == 1 else x.shape[1] * x.shape[2]
    return [t.contiguous() for t in (d.lower, d.upper, other.lower, other.upper)], stride


_THREADS = 128  # of a program; some tiles of fewer lanes Triton 3.6 does not compile
_LANES = 512  # parameters for each program
_LOOK = tl.constexpr(32)  # records between two looks at how much room is left
_CHUNK = tl.constexpr(4)  # places read one after the other, without waiting
_MOST = 1 << 20  # values beyond c that there is room for, at most
_Q = tl.constexpr(QUANTA)
_TOP = tl.constexpr(QUANTA + 1)  # above every value


def room(count: int) -> int:
    """Values that a parameter has room for on each side, where ``count`` are selected."""
    return count + min(max(count, _LOOK.value), _MOST) if count else 0


@triton.jit
def _level(places, held, count, step, OUT: tl.constexpr, IN: tl.constexpr):  # type: ignore[no-untyped-def]
    """[OUT, IN] int32: for each parameter that holds more than ``count`` values a level t with
    ``count`` of them below t, or with fewer below t and more at or below it; else above all.
    ``places``: each one's first, others ``step`` apart.
    """
    low = tl.full((OUT, IN), -_Q, dtype=tl.int64)
    high = tl.where(held > count, low + 2 * _Q, low)
    most = tl.max(held)
    while tl.max(high - low) > 0:
        width = high - low
        m1, m2, m3 = low + (width >> 2), low + (width >> 1), low + ((3 * width) >> 2)
        n1 = tl.full((OUT, IN), 0, dtype=tl.int32)
        n2, n3 = n1, n1
        for start in range(0, most, _CHUNK):
            for place in tl.static_range(_CHUNK):
                s = start + place
                v = tl.load(places + tl.cast(s, tl.int64) * step, mask=s < held, other=_TOP)
                n1 += (v <= m1).to(tl.int32)
                n2 += (v <= m2).to(tl.int32)
                n3 += (v <= m3).to(tl.int32)
        exact = tl.where(n1 == count, m1, tl.where(n2 == count, m2, m3)) + 1
        low = tl.where(
            n3 <= count, m3 + 1, tl.where(n2 <= count, m2 + 1, tl.where(n1 <= count, m1 + 1, low))
        )
        high = tl.where(n1 > count, m1, tl.where(n2 > count, m2, tl.where(n3 > count, m3, high)))
        done = (n1 == count) | (n2 == count) | (n3 == count)
        low, high = tl.where(done, exact, low), tl.where(done, exact, high)
    return tl.where(held > count, low, _TOP).to(tl.int32)


@triton.jit
def _cut(places, held, threshold, count, step, OUT: tl.constexpr, IN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keep the ``count`` least values of each parameter that holds more.

    Returns what is held and the thresholds now.
    """
    tl.debug_barrier()
    t = _level(places, held, count, step, OUT, IN)
    filled = tl.full((OUT, IN), 0, dtype=tl.int32)
    for s in range(0, tl.max(held)):
        v = tl.load(places + tl.cast(s, tl.int64) * step, mask=s < held, other=_TOP)
        kept = (s < held) & (v < t)
        tl.store(places + filled.to(tl.int64) * step, v, mask=kept)
        filled += kept.to(tl.int32)
    left = tl.minimum(held, count)
    for s in range(tl.min(filled), count):
        tl.store(places + tl.cast(s, tl.int64) * step, t, mask=(filled <= s) & (s < left))
    tl.debug_barrier()
    return left, tl.minimum(threshold, t)


@triton.jit
def _update_kernel(  # type: ignore[no-untyped-def]
    d_lower, d_upper, x_lower, x_upper, kept, held, thresholds, counts, rooms, firsts,
    n, outputs, width, parameters, x_stride, ks, places_of_a_side,
    X: tl.constexpr, CAPPED: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    """d: [K, n, out]; x: [K or 1, n, in]; held, thresholds: int32 [2, K, out, in]; counts, rooms,
    firsts: int64 [K].

    kept: int32, for each side ``places_of_a_side`` arrays [out, in], those of k from the
    ``firsts[k]``-th on.
    """
    k, side = (tl.program_id(0) // 2).to(tl.int64), (tl.program_id(0) % 2).to(tl.int64)
    j = tl.program_id(1) * OUT + tl.arange(0, OUT)
    i = tl.program_id(2) * IN + tl.arange(0, IN)
    inside = (j < outputs)[:, None] & (i < width)[None, :]
    j, i = tl.minimum(j, outputs - 1), tl.minimum(i, width - 1)  # lanes outside read what is there
    parameter = j.to(tl.int64)[:, None] * width + i[None, :]
    state = (side * ks + k) * parameters + parameter
    places = kept + (side * places_of_a_side + tl.load(firsts + k)) * parameters + parameter
    count, limit = tl.load(counts + k).to(tl.int32), tl.load(rooms + k).to(tl.int32) - _LOOK
    holding = tl.load(held + state, mask=inside, other=0)
    threshold = tl.load(thresholds + state, mask=inside, other=_TOP)
    turn = 1.0 - 2.0 * side.to(tl.float64)
    stop = tl.where(count > 0, n, 0)
    for start in range(0, stop, _LOOK):
        if tl.max(holding) > limit:
            holding, threshold = _cut(places, holding, threshold, count, parameters, OUT, IN)
        for s in range(start, tl.minimum(start + _LOOK, stop)):
            row = k * n + s
            d_at, x_at = row * outputs, k * x_stride + (row - k * n) * width
            v = record(
                d_lower + d_at, d_upper + d_at, x_lower + x_at, x_upper + x_at, j, i, turn, X
            )[1]
            v = tl.broadcast_to(v.to(tl.int32), (OUT, IN))
            if CAPPED:
                v = tl.minimum(v, 0)
            below = inside & (v < threshold)
            tl.store(places + holding.to(tl.int64) * parameters, v, mask=below)
            holding += below.to(tl.int32)
    tl.store(held + state, holding, mask=inside)
    tl.store(thresholds + state, threshold, mask=inside)


@triton.jit
def _result_kernel(  # type: ignore[no-untyped-def]
    kept,
    held,
    counts,
    firsts,
    sums,
    outputs,
    width,
    parameters,
    ks,
    places_of_a_side,
    OUT: tl.constexpr,
    IN: tl.constexpr,
):
    """sums: int64 [2, K, out, in], of the ``counts[k]`` least values that each parameter holds,
    or of all of fewer.
    """
    k, side = (tl.program_id(0) // 2).to(tl.int64), (tl.program_id(0) % 2).to(tl.int64)
    j = tl.program_id(1) * OUT + tl.arange(0, OUT)
    i = tl.program_id(2) * IN + tl.arange(0, IN)
    inside = (j < outputs)[:, None] & (i < width)[None, :]
    parameter = j.to(tl.int64)[:, None] * width + i[None, :]
    state = (side * ks + k) * parameters + parameter
    places = kept + (side * places_of_a_side + tl.load(firsts + k)) * parameters + parameter
    holding = tl.load(held + state, mask=inside, other=0)
    count = tl.load(counts + k).to(tl.int32)
    t = _level(places, holding, count, parameters, OUT, IN)
    total = tl.full((OUT, IN), 0, dtype=tl.int64)
    below = tl.full((OUT, IN), 0, dtype=tl.int32)
    for s in range(0, tl.max(holding)):
        v = tl.load(places + tl.cast(s, tl.int64) * parameters, mask=s < holding, other=_TOP)
        taken = (s < holding) & (v < t)
        total += tl.where(taken, v, 0).to(tl.int64)
        below += taken.to(tl.int32)
    total += (tl.minimum(holding, count) - below).to(tl.int64) * t
    tl.store(sums + state, total, mask=inside)


@dataclass
class GpuExtremes:
    """What is kept: int32, 16 c bytes a parameter and k (``room``), whatever the batch."""

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    product: str
    _kept: Tensor = field(init=False)
    _held: Tensor = field(init=False)
    _thresholds: Tensor = field(init=False)
    _rooms: Tensor = field(init=False)
    _firsts: Tensor = field(init=False)

    def __post_init__(self) -> None:
        rooms = [room(count) for count in self.counts.tolist()]
        self._rooms = self.counts.new_tensor(rooms)
        self._firsts = self._rooms.cumsum(0) - self._rooms
        self._places = sum(rooms)
        state = (2, len(rooms), *self.shape)
        self._kept = self._new((2, self._places, *self.shape), torch.int32)
        self._held = torch.zeros(state, dtype=torch.int32, device=self.counts.device)
        self._thresholds = torch.full_like(self._held, QUANTA + 1)

    def update(self, d: Interval, x: Interval | None) -> None:
        factors, stride = factors_of(d, x)
        grid, sizes, tiles = self._launch()
        _update_kernel[grid](
            *factors, self._kept, self._held, self._thresholds, self.counts, self._rooms, self._firsts,
            d.shape[1], *sizes[:3], stride, *sizes[3:],
            X=kind_of(x, self.product), CAPPED=self.capped,
            **tiles, enable_fp_fusion=False,
        )  # fmt: skip

    def selected_values(self) -> tuple[Tensor, Tensor]:
        most = int(self.counts.max())
        kept = torch.full(
            (2, len(self.counts), *self.shape, most),
            EMPTY_SLOT,
            dtype=torch.int32,
            device=self.counts.device,
        )
        for k, (count, first, size) in enumerate(
            zip(*(t.tolist() for t in (self.counts, self._firsts, self._rooms)), strict=True)
        ):
            for side in (0, 1):
                held, places = (
                    self._held[side, k],
                    self._kept[side, first : first + size].movedim(0, -1),
                )
                there = torch.arange(size, device=held.device) < held[..., None]
                kept[side, k, ..., :count] = (
                    torch.where(there, places, EMPTY_SLOT).topk(count, largest=False).values
                )
        return kept[1], kept[0]

    def result(self) -> tuple[Tensor, Tensor]:
        sums = self._new((2, len(self.counts), *self.shape), torch.int64)
        grid, sizes, tiles = self._launch()
        _result_kernel[grid](
            self._kept, self._held, self.counts, self._firsts, sums, *sizes, **tiles
        )
        return sums[1].neg(), sums[0]

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.counts.device)

    def _launch(self) -> tuple[tuple[int, int, int], list[int], dict[str, int]]:
        """The grid, its sizes as both kernels take them, and the tile of one program."""
        outputs, width = self.shape[0], self.shape[1] if len(self.shape) > 1 else 1
        out, inputs = tile(outputs, width, _LANES, 64)
        ks = len(self.counts)
        grid = (2 * ks, triton.cdiv(outputs, out), triton.cdiv(width, inputs))
        return grid, [outputs, width, outputs * width, ks, self._places], {"OUT": out, "IN": inputs}


_SUM_LANES = 1024  # parameters for each program
_SLICE = 2048  # records for each program, at most: 2^11 * 2^30 stays exact in float64
_SHORT = 64  # ... and at least, where there are fewer programs than keep a GPU busy:
_PROGRAMS = 2048


@triton.jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    d_lower, d_upper, x_lower, x_upper, low, high, n, outputs, width, x_stride, size, slices,
    X: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    """d: [K, n, out]; x: [K or 1, n, in] with ``x_stride`` elements between k; low, high: int64 [K,
    out, in].

    ``size`` records for each of ``slices`` programs.
    """
    k = (tl.program_id(0) // slices).to(tl.int64)
    start = (tl.program_id(0) % slices) * size
    j = tl.program_id(1) * OUT + tl.arange(0, OUT)
    i = tl.program_id(2) * IN + tl.arange(0, IN)
    inside = (j < outputs)[:, None] & (i < width)[None, :]
    j, i = tl.minimum(j, outputs - 1), tl.minimum(i, width - 1)  # lanes outside read what is there
    sum_low = tl.zeros((OUT, IN), dtype=tl.int64)
    sum_high = tl.zeros((OUT, IN), dtype=tl.int64)
    stop = min(start + size, n)
    for s in range(start, stop):
        row = k * n + s
        # row is int64, as addresses must be
        d_at, x_at = row * outputs, k * x_stride + (row - k * n) * width
        least, greatest = record(
            d_lower + d_at, d_upper + d_at, x_lower + x_at, x_upper + x_at, j, i, 1.0, X
        )
        sum_low += least
        sum_high += greatest
    magics = (stop - start).to(tl.int64) * _ZERO  # modulo 2^64, as the sums of bits
    at = (k * outputs + j[:, None]) * width + i[None, :]
    tl.atomic_add(low + at, sum_low - magics, mask=inside)
    tl.atomic_add(high + at, sum_high - magics, mask=inside)


class GpuKernel(ReferenceKernel):
    """The reference kernel with sums and selections by Triton."""

    name = "gpu"

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[Tensor, Tensor]:
        ks, n, outputs = d.shape
        width = 1 if x is None else x.shape[2]
        shape = (ks, outputs) if x is None else (ks, outputs, width)
        low = torch.zeros(shape, dtype=torch.int64, device=d.lower.device)
        high = torch.zeros_like(low)
        out, inputs = tile(outputs, width, _SUM_LANES, 256)
        # The first axis may be 2^31 long, the others 65,535; a longer one is refused by the driver.
        tiles = triton.cdiv(outputs, out), triton.cdiv(width, inputs)
        slices = max(
            1, min(_PROGRAMS // (ks * tiles[0] * tiles[1]), n // _SHORT), triton.cdiv(n, _SLICE)
        )
        size = max(1, triton.cdiv(n, slices))
        slices = max(1, triton.cdiv(n, size))  # none begins beyond the last record
        factors, stride = factors_of(d, x)
        _sum_kernel[(ks * slices, *tiles)](
            *factors, low, high, n, outputs, width, stride, size, slices,
            X=kind_of(x, product),
            OUT=out, IN=inputs, enable_fp_fusion=False,
        )  # fmt: skip
        return low, high

    def extremes(
        self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> Extremes:
        return GpuExtremes(counts, shape, capped, product)

    def selection_bytes(self, rows: int) -> int:
        return 8 * room(rows)
