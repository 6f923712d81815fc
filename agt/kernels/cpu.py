"""The CPU kernel: Numba, parallel over (k, output) rows, vectorised, compiled once and cached on disk.

No fast-math: each product, comparison and rounding is the reference's own, in the same order, so both kernels return the
same integers. Running sums are float64 holding integers up to 2^22 2^30 = 2^52 in size, hence exact, flushed to int64 after
``_FLUSH`` records.

The selection keeps, for each parameter, the c least values seen so far. A block of records is first filtered against a
threshold (the c-th least so far, or a guess from a sample that is widened until enough pass), and the survivors' c-th
least value is found by bisection on integers. Whatever the guess was, the result is exact. Kept values are int32: they and
their negatives are at most 2^30 in size, and ``_TOP``, above them all, is 2^30 + 1. What is held and what is new are
different records of one batch, so counts of them are at most 2^30, within int32 as well.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numba import get_num_threads, njit, prange
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import PRODUCTS, Products, linear_corners, linear_point, relu_backward
from agt.kernels.contract import QUANTA, Extremes
from agt.kernels.reference import RUMP_ROUNDINGS, ReferenceKernel
from agt.numeric import UNIT

_FLUSH = 1 << 22  # records: 2^22 * 2^30 = 2^52
_NARROW = 16  # inputs: below, vectorising over outputs is faster
_TILE_BYTES = 1 << 18  # a tile of x stays in a core's second-level cache
_Q = float(QUANTA)
_MAGIC = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer, ties to even
_RUMP_SLACK = 2 * RUMP_ROUNDINGS * UNIT
_TOP = np.int32(QUANTA + 1)  # above every value


@njit(inline="always")
def _quantise(v):  # type: ignore[no-untyped-def]
    return (min(max(v, -_Q), _Q) + _MAGIC) - _MAGIC


@njit(inline="always")
def _corners(p, q, a, b, rump):  # type: ignore[no-untyped-def]
    """Bounds on [p, q] * [a, b]: four corners, or midpoint-radius as in ``reference.outer``."""
    if rump:
        mid, rad, x_mid, x_rad = (p + q) / 2, (q - p) / 2, (a + b) / 2, (b - a) / 2
        spread = abs(mid) * x_rad + rad * (abs(x_mid) + x_rad)
        spread = spread + (max(abs(p), abs(q)) * max(abs(a), abs(b))) * _RUMP_SLACK
        if not spread < np.inf:  # it overflowed, as it does wherever the centre does: anything, never NaN
            return -np.inf, np.inf
        return mid * x_mid - spread, mid * x_mid + spread
    c1, c2, c3, c4 = a * p, a * q, b * p, b * q
    return min(min(c1, c2), min(c3, c4)), max(max(c1, c2), max(c3, c4))


@njit(parallel=True, cache=True)
def _sum_point(lower, upper, x, norms, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """low, high [R, in] += sums over records of quantised bounds; lower, upper [R, n]; x [n, in]; norms [n]: max |x|."""
    rows, n = lower.shape
    width = x.shape[1]
    for thread in prange(threads):
        for start in range(0, n, tile):
            stop = min(n, start + tile)
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                out_low, out_high = low[r], high[r]
                for s in range(start, stop):
                    p, q = lower[r, s], upper[r, s]
                    if max(abs(p), abs(q)) * norms[s] <= _Q:  # nothing to clip in this record
                        for i in range(width):
                            a, b = x[s, i] * p, x[s, i] * q
                            out_low[i] += (min(a, b) + _MAGIC) - _MAGIC
                            out_high[i] += (max(a, b) + _MAGIC) - _MAGIC
                    else:
                        for i in range(width):
                            a, b = x[s, i] * p, x[s, i] * q
                            out_low[i] += _quantise(min(a, b))
                            out_high[i] += _quantise(max(a, b))


@njit(parallel=True, cache=True)
def _sum_point_wide(lower, upper, x, norms, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """``_sum_point`` vectorised over outputs, for layers with more outputs than inputs.

    lower, upper [K, n, out]; x [in, n]; norms [K, n]: max |d|; low, high [K * in, out]. One sign of x holds for the whole
    inner loop, so that it says which end is the least.
    """
    width, n = x.shape
    outputs = lower.shape[2]
    rows = len(lower) * width
    for thread in prange(threads):
        for start in range(0, n, tile):
            stop = min(n, start + tile)
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                k, out_low, out_high = r // width, low[r], high[r]
                for s in range(start, stop):
                    v = x[r % width, s]
                    least, greatest = (lower[k, s], upper[k, s]) if v >= 0 else (upper[k, s], lower[k, s])
                    if abs(v) * norms[k, s] <= _Q:  # nothing to clip
                        for j in range(outputs):
                            out_low[j] += (v * least[j] + _MAGIC) - _MAGIC
                            out_high[j] += (v * greatest[j] + _MAGIC) - _MAGIC
                    else:
                        for j in range(outputs):
                            out_low[j] += _quantise(v * least[j])
                            out_high[j] += _quantise(v * greatest[j])


@njit(parallel=True, cache=True)
def _sum_nominal(d, x, norms, tile, threads, total):  # type: ignore[no-untyped-def]
    """total [out, in] += sum over records of the quantised products; d [out, n], x [n, in]."""
    rows, n = d.shape
    width = x.shape[1]
    for thread in prange(threads):
        for start in range(0, n, tile):
            stop = min(n, start + tile)
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                out = total[r]
                for s in range(start, stop):
                    p = d[r, s]
                    if abs(p) * norms[s] <= _Q:
                        for i in range(width):
                            out[i] += (x[s, i] * p + _MAGIC) - _MAGIC
                    else:
                        for i in range(width):
                            out[i] += _quantise(x[s, i] * p)


@njit(parallel=True, cache=True)
def _sum_interval(lower, upper, x_lower, x_upper, outputs, rump, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """The same for intervals x [K, n, in]; rows are (k, output)."""
    rows, n = lower.shape
    width = x_lower.shape[2]
    for thread in prange(threads):
        for start in range(0, n, tile):
            stop = min(n, start + tile)
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                out_low, out_high = low[r], high[r]
                k = r // outputs if len(x_lower) > 1 else 0
                xl, xu = x_lower[k], x_upper[k]
                for s in range(start, stop):
                    p, q = lower[r, s], upper[r, s]
                    for i in range(width):
                        least, greatest = _corners(p, q, xl[s, i], xu[s, i], rump)
                        out_low[i] += _quantise(least)
                        out_high[i] += _quantise(greatest)


@njit(parallel=True, cache=True)
def _corner_product(x_lower, x_upper, w_lower, w_upper, block, low, high):  # type: ignore[no-untyped-def]
    """low, high [K, n, out] = sums over i of the four corner products, i in increasing order for every record.

    x: [1 or K, n, in]; w: [K, in, out], so that the innermost loop runs along outputs.
    """
    ks, n, outputs = low.shape
    blocks = (n + block - 1) // block
    for job in prange(ks * blocks):
        k, start = job // blocks, (job % blocks) * block
        source = k if len(x_lower) > 1 else 0
        for s in range(start, min(n, start + block)):
            out_low, out_high = low[k, s], high[k, s]
            out_low[:] = 0.0
            out_high[:] = 0.0
            for i in range(x_lower.shape[2]):
                p, q = x_lower[source, s, i], x_upper[source, s, i]
                a, b = w_lower[k, i], w_upper[k, i]
                for o in range(outputs):
                    c1, c2, c3, c4 = p * a[o], p * b[o], q * a[o], q * b[o]
                    out_low[o] += min(min(c1, c2), min(c3, c4))
                    out_high[o] += max(max(c1, c2), max(c3, c4))


@njit(parallel=True, cache=True)
def _point_product(x, lower, upper, block, low, high):  # type: ignore[no-untyped-def]
    """low, high [K, n, out] = x W^T; x [n, in] of any sign, which picks the end of lower and upper [K, in, out]."""
    ks, n, outputs = low.shape
    blocks = (n + block - 1) // block
    for job in prange(ks * blocks):
        k, start = job // blocks, (job % blocks) * block
        for s in range(start, min(n, start + block)):
            out_low, out_high = low[k, s], high[k, s]
            out_low[:] = 0.0
            out_high[:] = 0.0
            for i in range(x.shape[1]):
                v = x[s, i]
                least, greatest = (lower[k, i], upper[k, i]) if v >= 0 else (upper[k, i], lower[k, i])
                for o in range(outputs):
                    out_low[o] += v * least[o]
                    out_high[o] += v * greatest[o]


@njit(parallel=True, cache=True)
def _relu_backward(lower, upper, x_lower, x_upper):  # type: ignore[no-untyped-def]
    """Overwrites d = [lower, upper] with its product with ReLU's derivative at x; all [rows, width]."""
    for r in prange(len(lower)):
        for i in range(lower.shape[1]):
            alive = x_upper[r, i] > 0
            sure = x_lower[r, i] > 0
            p, q = lower[r, i], upper[r, i]
            lower[r, i] = (p if sure else min(p, 0.0)) if alive else 0.0
            upper[r, i] = (q if sure else max(q, 0.0)) if alive else 0.0


@njit(parallel=True, cache=True)
def _outward(lower, upper, slack):  # type: ignore[no-untyped-def]
    """lower, upper [rows, width] -+ slack [rows], in place; True if lower <= upper, all finite."""
    wrong = 0
    for r in prange(len(lower)):
        bad = 0
        for i in range(lower.shape[1]):
            p, q = lower[r, i] - slack[r], upper[r, i] + slack[r]
            lower[r, i], upper[r, i] = p, q
            bad += 0 if 0 <= q - p < np.inf else 1  # false for a NaN or an infinity in either, as in Interval
        wrong += bad
    return wrong == 0


@njit(cache=True)
def _rank_value(values, count, rank):  # type: ignore[no-untyped-def]
    """The rank-th least (from 1) of values[:count], by bisection on integers in [-Q, Q + 1]."""
    low, high = np.int64(-QUANTA), np.int64(QUANTA + 1)
    while low < high:
        middle = (low + high) >> 1
        pivot = np.int32(middle)
        below = np.int32(0)
        for s in range(count):
            below += np.int32(values[s] <= pivot)
        if below >= rank:
            high = middle
        else:
            low = middle + 1
    return np.int32(low)


@njit(cache=True)
def _keep_least(values, n, count, kept, held, pool, sample):  # type: ignore[no-untyped-def]
    """Merge values[:n] into kept[:held], keeping the ``count`` least of all. Returns how many are held now.

    pool: scratch of at least len(kept) + n. sample: scratch. kept's last element is the greatest held, once full.
    """
    if held + n <= count:
        for s in range(n):
            kept[held + s] = values[s]
        if held + n == count:
            top = 0
            for s in range(count):
                if kept[s] > kept[top]:
                    top = s
            kept[top], kept[count - 1] = kept[count - 1], kept[top]
        return held + n
    for s in range(held):
        pool[s] = kept[s]
    threshold = _TOP
    if held == count:
        threshold = kept[count - 1]
    elif n >= 4 * len(sample):
        size = len(sample)
        for s in range(size):
            sample[s] = values[s * n // size]
        share = size * (count - held) / n
        rank = int(share + 3.0 * np.sqrt(share) + 3.0)
        if rank < size:
            threshold = _rank_value(sample, size, rank)
    total = held
    for s in range(n):
        pool[total] = values[s]
        total += values[s] < threshold
    below = total - held
    for s in range(held):
        below += kept[s] < threshold
    if held < count and below < count:  # the sample misled, one left out may be among the least: take everything
        total = held
        for s in range(n):
            pool[total] = values[s]
            total += 1
    if total == count and held == count:
        return count
    cut = _rank_value(pool, total, count)
    filled = 0
    for s in range(total):
        if pool[s] < cut:
            kept[filled] = pool[s]
            filled += 1
    for s in range(filled, count):
        kept[s] = cut
    return count


@njit(parallel=True, cache=True)
def _select(lower, upper, xl, xu, counts, outputs, capped, rump, held, greatest, least):  # type: ignore[no-untyped-def]
    """Merge a block into the kept extremes.

    lower, upper: [R, n] with rows (k, output). xl, xu: [1 or K, in, n]. counts: [K]. held: [R, in].
    greatest, least: [R, in, c]; ``greatest`` holds negated lower bounds, so that both keep the least.
    """
    rows, n = lower.shape
    width = xl.shape[1]
    room = least.shape[2] + n
    for r in prange(rows):
        k = r // outputs
        count = counts[k]
        if count == 0:
            continue
        source = k if xl.shape[0] > 1 else 0
        down, up = np.empty(n, np.int32), np.empty(n, np.int32)
        pool, sample = np.empty(room, np.int32), np.empty(256, np.int32)
        p, q = lower[r], upper[r]
        for i in range(width):
            a, b = xl[source, i], xu[source, i]
            for s in range(n):
                lowest, highest = _corners(p[s], q[s], a[s], b[s], rump)
                down[s] = np.int32(-_quantise(lowest))
                up[s] = np.int32(_quantise(highest))
            if capped:
                for s in range(n):
                    down[s] = min(down[s], np.int32(0))
                    up[s] = min(up[s], np.int32(0))
            before = held[r, i]
            _keep_least(down, n, count, greatest[r, i], before, pool, sample)
            held[r, i] = _keep_least(up, n, count, least[r, i], before, pool, sample)


class CpuKernel(ReferenceKernel):
    """The reference kernel with everything but nominal sums of biases by Numba: those have nothing to multiply."""

    name = "cpu"

    def nominal_sum(self, d: Tensor, x: Tensor | None) -> Tensor:
        if x is None:
            return super().nominal_sum(d, None)
        total = torch.zeros((d.shape[1], x.shape[1]), dtype=torch.int64)
        for block in _blocks(len(x)):
            rows, part = _array(d[block].mT), _array(x[block])
            sums = np.zeros(total.shape)
            _sum_nominal(rows, part, _inf_norms(part), _tile(part.shape[1]), get_num_threads(), sums)
            total += torch.from_numpy(sums).to(torch.int64)
        return total

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[Tensor, Tensor]:
        if x is None:  # a bias is the weight of an input that is always 1
            ones = Interval.point(torch.ones((1, d.shape[1], 1), dtype=torch.float64))
            lower, upper = self._sum(d, ones, product, wide=True)
            return lower[..., 0], upper[..., 0]
        return self._sum(d, x, product, wide=x.is_point and x.shape[2] < min(_NARROW, d.shape[2]))

    def _sum(self, d: Interval, x: Interval, product: str, wide: bool) -> tuple[Tensor, Tensor]:
        """``bound_sum``; ``wide``: vectorised over outputs, for a point x of few inputs."""
        ks, n, outputs = d.shape
        inputs, threads = x.shape[2], get_num_threads()
        shape = (ks, inputs, outputs) if wide else (ks, outputs, inputs)
        lower, upper = (torch.zeros(shape, dtype=torch.int64) for _ in range(2))
        for block in _blocks(n):
            low, high = (np.zeros((shape[0] * shape[1], shape[2])) for _ in range(2))
            if wide:
                parts = [_array(t) for t in (d.lower[:, block], d.upper[:, block], x.lower[0, block].mT)]
                norms = _array(d[:, block].inf_norm()[..., 0])
                _sum_point_wide(*parts, norms, _tile(2 * outputs), threads, low, high)
            elif x.is_point:
                part = _array(x.lower[0, block])
                rows = _rows(d.lower[:, block]), _rows(d.upper[:, block])
                _sum_point(*rows, part, _inf_norms(part), _tile(inputs), threads, low, high)
            else:
                rows = _rows(d.lower[:, block]), _rows(d.upper[:, block])
                parts = [_array(x.lower[:, block]), _array(x.upper[:, block])]
                _sum_interval(*rows, *parts, outputs, product == "rump", _tile(2 * inputs), threads, low, high)
            lower += torch.from_numpy(low).to(torch.int64).view(shape)
            upper += torch.from_numpy(high).to(torch.int64).view(shape)
        return (lower.mT, upper.mT) if wide else (lower, upper)

    def extremes(self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str) -> Extremes:
        return CpuExtremes(counts, shape, capped, product == "rump")

    def products(self, product: str) -> Products:
        return replace(
            PRODUCTS[product],
            corners=self.corner_product,
            point=self.point_product,
            relu_backward=self.relu_backward,
        )

    def corner_product(self, x: Interval, weights: Interval) -> tuple[Tensor, Tensor]:
        """``linear_corners``, summed over inputs in the same order for every record."""
        if x.lower.dtype != torch.float64:
            return linear_corners(x, weights)
        parts = [_array(t) for t in (x.lower, x.upper, weights.lower.mT, weights.upper.mT)]
        low, high = (np.empty((len(parts[2]), x.shape[1], parts[2].shape[2])) for _ in range(2))
        _corner_product(*parts, 64, low, high)
        return torch.from_numpy(low), torch.from_numpy(high)

    def point_product(self, x: Tensor, weights: Interval) -> tuple[Tensor, Tensor]:
        """``linear_point``: a matrix product's work is worth its overhead for wide inputs only."""
        if x.shape[-1] >= _NARROW or weights.lower.dtype != torch.float64 or x.dim() != 3:
            return linear_point(x, weights)
        low, high = (np.empty((len(weights.lower), x.shape[1], weights.shape[1])) for _ in range(2))
        _point_product(_array(x[0]), _array(weights.lower.mT), _array(weights.upper.mT), 64, low, high)
        return torch.from_numpy(low), torch.from_numpy(high)

    def relu_backward(self, d: Interval, x: Interval) -> tuple[Tensor, Tensor]:
        """``relu_backward``, in place."""
        if not all(t.is_contiguous() for t in (d.lower, d.upper)) or d.shape != x.shape:
            return relu_backward(d, x)
        _relu_backward(*(_array(t).reshape(-1, t.shape[-1]) for t in (d.lower, d.upper, x.lower, x.upper)))
        return d.lower, d.upper

    def outward(self, lower: Tensor, upper: Tensor, slack: Tensor) -> Interval:
        """``rounding.outward`` in one pass; where it finds a bound wrong, ``Interval`` says which way."""
        flat = lower.dtype == torch.float64 and slack.shape == (*lower.shape[:-1], 1)
        if not flat or not (lower.is_contiguous() and upper.is_contiguous()):
            return super().outward(lower, upper, slack)
        ends = [t.numpy().reshape(-1, lower.shape[-1]) for t in (lower, upper)]
        valid = _outward(*ends, _array(slack).reshape(-1))
        return Interval.image(lower, upper) if valid else Interval(lower, upper)


@dataclass
class CpuExtremes:
    """The kept extremes, int32: 8 K c |parameters| bytes, whatever the batch."""

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    rump: bool
    _held: np.ndarray = field(init=False)
    _greatest: np.ndarray = field(init=False)
    _least: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rows, width = len(self.counts) * self.shape[0], self.shape[1] if len(self.shape) > 1 else 1
        self._held = np.zeros((rows, width), dtype=np.int64)
        size = (rows, width, int(self.counts.max()))
        self._greatest, self._least = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)

    def update(self, d: Interval, x: Interval | None) -> None:
        rows = _rows(d.lower), _rows(d.upper)
        rump = self.rump and x is not None and not x.is_point  # with a point both products are the same
        if x is None:
            factors = (np.ones((1, 1, d.shape[1])),) * 2
        elif x.is_point:
            factors = (_array(x.lower.mT),) * 2
        else:
            factors = (_array(x.lower.mT), _array(x.upper.mT))
        counts = self.counts.numpy()
        _select(*rows, *factors, counts, self.shape[0], self.capped, rump, self._held, self._greatest, self._least)

    def result(self) -> tuple[Tensor, Tensor]:
        used = np.arange(self._least.shape[2]) < self._held[..., None]
        greatest = -np.where(used, self._greatest, 0).sum(axis=2, dtype=np.int64)
        least = np.where(used, self._least, 0).sum(axis=2, dtype=np.int64)
        shape = (len(self.counts), *self.shape)
        return torch.from_numpy(greatest).view(shape), torch.from_numpy(least).view(shape)


def _array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.numpy())


def _rows(d: Tensor) -> np.ndarray:
    """[K, n, out] -> [K * out, n], contiguous."""
    return np.ascontiguousarray(d.mT.numpy()).reshape(-1, d.shape[1])


def _inf_norms(x: np.ndarray) -> np.ndarray:
    """[n]: the infinity norm of each record's x [n, in]."""
    return Interval.point(torch.from_numpy(x)).inf_norm()[:, 0].numpy()


def _blocks(n: int) -> list[slice]:
    """Slices over records within which a running sum stays exact."""
    return [slice(start, start + _FLUSH) for start in range(0, n, _FLUSH)]


def _tile(width: int) -> int:
    return max(8, _TILE_BYTES // (8 * width))
