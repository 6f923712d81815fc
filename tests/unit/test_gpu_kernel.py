"""The Triton kernel gives the reference kernel's integers: on a GPU where there is one, else under Triton's interpreter.

``make triton`` runs this without a GPU. Elsewhere it is skipped.
"""

import os

import numpy as np
import pytest
import torch
from synthetic import random_interval

from agt.bounds.interval import Interval
from agt.kernels.contract import QUANTA
from agt.kernels.reference import ReferenceKernel
from agt.kernels.select import check

pytest.importorskip("triton", reason="Triton is not installed: it comes with a CUDA build of PyTorch")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="no GPU, and TRITON_INTERPRET=1 is not set"
)


def on_device(interval: Interval) -> Interval:
    if interval.is_point:
        return Interval.point(interval.lower.to(DEVICE))
    return Interval(interval.lower.to(DEVICE), interval.upper.to(DEVICE))


@pytest.mark.parametrize("kind", ["point", "shared", "per k", "bias"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 7, 5, 11), (3, 40, 17, 65)])
@pytest.mark.parametrize("size", [1e-8, 1.0, 40.0], ids=["a few quanta", "about the clip", "far beyond it"])
def test_sums_are_the_references(shape: tuple[int, int, int, int], kind: str, size: float) -> None:
    from agt.kernels.gpu import GpuKernel

    ks, n, outputs, width = shape
    rng = np.random.default_rng(0)
    d = random_interval(rng, ks, n, outputs)
    d = on_device(Interval(d.lower * size * QUANTA, d.upper * size * QUANTA))
    x: Interval | None = None
    if kind == "point":
        x = on_device(Interval.point(torch.from_numpy(rng.normal(size=(1, n, width)))))
    elif kind != "bias":
        x = on_device(random_interval(rng, 1 if kind == "shared" else ks, n, width))
    for ours, theirs in zip(GpuKernel().bound_sum(d, x, "exact"), ReferenceKernel().bound_sum(d, x, "exact"), strict=True):
        assert ours.dtype == torch.int64
        assert torch.equal(ours, theirs)
    point = None if x is None else x.lower[0]
    assert torch.equal(GpuKernel().nominal_sum(d.lower[0], point), ReferenceKernel().nominal_sum(d.lower[0], point))


def test_the_self_test_passes() -> None:
    from agt.kernels.gpu import GpuKernel

    check(GpuKernel(), DEVICE)
