"""The Triton kernel gives the reference kernel's integers: on a GPU where there is one, else under
Triton's interpreter.

``make triton`` runs this without a GPU. Elsewhere it is skipped.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import random_interval

from agt.bounds.interval import Interval
from agt.kernels.reference import ReferenceKernel
from agt.kernels.selftest import check_kernel
from agt.settings import QUANTA

triton = pytest.importorskip(
    "triton", reason="Triton is not installed: it comes with a CUDA build of PyTorch"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1",
    reason="no GPU, and TRITON_INTERPRET=1 is not set",
)


def on_device(interval: Interval) -> Interval:
    if interval.is_point:
        return Interval.point(interval.lower.to(DEVICE))
    return Interval(interval.lower.to(DEVICE), interval.upper.to(DEVICE))


def factors(
    rng: np.random.Generator, kind: str, size: float, shape: tuple[int, ...]
) -> tuple[Interval, Interval | None]:
    """d and x of each kind that the contract allows, with a few bounds that are equal."""
    ks, n, outputs, width = shape
    d = random_interval(rng, ks, n, outputs)
    d = Interval(d.lower * size * QUANTA, d.upper * size * QUANTA)
    d.lower[:, ::5], d.upper[:, ::5] = -1.5, 2.5
    if kind == "bias":
        return on_device(d), None
    if kind == "point":
        return on_device(d), on_device(
            Interval.point(torch.from_numpy(rng.normal(size=(1, n, width))))
        )
    x = random_interval(rng, 1 if kind == "shared" else ks, n, width)
    return on_device(d), on_device(
        Interval(x.lower.clamp(min=0), x.upper.clamp(min=0)) if kind == "nonnegative" else x
    )


KINDS = ("point", "shared", "per k", "nonnegative", "bias")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "size", "product"),
    [
        ((1, 1, 1, 1), 1.0, "exact"),
        ((2, 7, 5, 11), 1e-8, "exact"),
        ((2, 7, 5, 11), 40.0, "rump"),
        ((2, 20, 17, 65), 1.0, "exact"),
        ((2, 20, 2, 3), 1.0, "rump"),
        ((2, 7, 1, 70), 1.0, "exact"),
    ],
    ids=[
        "one number",
        "a few quanta",
        "far beyond the clip",
        "several tiles",
        "several slices",
        "one output",
    ],
)
def test_sums_are_the_references(
    kind: str,
    shape: tuple[int, int, int, int],
    size: float,
    product: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from agt.kernels import gpu
    from agt.kernels.gpu import GpuKernel

    monkeypatch.setattr(gpu, "_MIN_SLICE_RECORDS", 8)  # 20 records are two slices
    d, x = factors(np.random.default_rng(0), kind, size, shape)
    for ours, theirs in zip(
        GpuKernel().bound_sum(d, x, product),
        ReferenceKernel().bound_sum(d, x, product),
        strict=True,
    ):
        assert ours.dtype == torch.int64
        assert torch.equal(ours, theirs)
    point = None if x is None else x.lower[0]
    assert torch.equal(
        GpuKernel().nominal_sum(d.lower[0], point), ReferenceKernel().nominal_sum(d.lower[0], point)
    )


def test_no_slice_begins_beyond_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 4,289 records were once divided, of which the last slice subtracted what it had not
    added.
    """
    from agt.kernels import gpu

    monkeypatch.setattr(gpu, "_MIN_SLICE_RECORDS", 2)
    d = Interval.point(torch.ones(1, 11, 1, dtype=torch.float64, device=DEVICE))
    assert gpu.GpuKernel().bound_sum(d, None, "exact")[0].item() == 11


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # the interpreter's
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_products_that_overflow_are_bounded_by_the_clip_alone() -> None:
    from agt.kernels.gpu import GpuKernel

    huge = torch.tensor([[[1e200, -3.0], [2.0, 1e200]]], dtype=torch.float64)
    d = on_device(Interval(-huge.abs(), huge.abs() * 2))
    x = on_device(
        Interval(*(torch.full((1, 2, 3), end, dtype=torch.float64) for end in (-1e200, 3e200)))
    )
    for product in ("rump", "exact"):
        for ours, theirs in zip(
            GpuKernel().bound_sum(d, x, product),
            ReferenceKernel().bound_sum(d, x, product),
            strict=True,
        ):
            assert torch.equal(ours, theirs)


# -- selections
# --------------------------------------------------------------------------------------------------


def selected(
    kernel: ReferenceKernel,
    d: Interval,
    x: Interval | None,
    counts: Sequence[int],
    capped: bool,
    product: str,
    ends: tuple[int, int],
):  # type: ignore[no-untyped-def]
    """What a kernel keeps, and sums, from fragments that end there, and what is left."""
    shape = (d.shape[2],) if x is None else (d.shape[2], x.shape[2])
    extremes = kernel.start_selection(torch.tensor(counts, device=DEVICE), shape, capped, product)
    for part in (slice(0, ends[0]), slice(*ends), slice(ends[1], None)):
        extremes.update(d[:, part], None if x is None else x[:, part])
    return *(kept.sort(dim=-1).values for kept in extremes.selected_values()), *extremes.result()


def wrong(
    d: Interval,
    x: Interval | None,
    counts: Sequence[int],
    capped: bool,
    product: str,
    ends: tuple[int, int] = (3, 40),
) -> int:
    """How many of the GPU kernel's integers are not the reference's."""
    from agt.kernels.gpu import GpuKernel

    kernels = (GpuKernel(), ReferenceKernel())
    ours, theirs = (selected(kernel, d, x, counts, capped, product, ends) for kernel in kernels)
    assert all(a.dtype == b.dtype and a.shape == b.shape for a, b in zip(ours, theirs, strict=True))
    return sum(int((a != b).sum()) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture
def rows_between_checks(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many records a selection takes between two looks at its free slots: 32 on a GPU.

    The interpreter, which takes a tenth of a millisecond for each operation, looks four times as
    often, so that a quarter of the records fills the slots as often. It does not ask of each sum
    of integers whether it overflows: it does in the tests below.
    """
    from agt.kernels import gpu_selection

    if DEVICE == "cpu":
        from triton.runtime.interpreter import interpreter_builder

        monkeypatch.setattr(gpu_selection, "_RECORDS_BETWEEN_CHECKS", triton.language.constexpr(8))
        unchecked = replace(interpreter_builder.options, sanitize_overflow=False)
        monkeypatch.setattr(interpreter_builder, "options", unchecked)
    return int(gpu_selection._RECORDS_BETWEEN_CHECKS.value)


@pytest.mark.parametrize(
    ("kind", "size", "capped", "product"),
    [
        ("point", 1.0, False, "exact"),
        ("point", 1e-8, True, "rump"),
        ("shared", 40.0, False, "exact"),
        ("per k", 1.0, True, "exact"),
        ("per k", 1.0, False, "rump"),
        ("nonnegative", 1.0, False, "exact"),
        ("bias", 1.0, True, "exact"),
    ],
)
def test_selections_are_the_references(
    kind: str, size: float, capped: bool, product: str, rows_between_checks: int
) -> None:
    """No record, some, so that parameters are full several times, and nearly all: each k its own
    count, in one launch.
    """
    outputs = 2 if kind in ("shared", "bias") else 1
    rows = rows_between_checks + 12
    d, x = factors(np.random.default_rng(1), kind, size, (3, rows, outputs, 3))
    ends = (3, rows_between_checks + 7)
    assert wrong(d, x, (0, 4, rows - 1), capped, product, ends) == 0


@pytest.mark.parametrize("order", ["falling", "ends"])
def test_selections_whatever_the_order_and_with_ties(order: str) -> None:
    values = np.sort(np.random.default_rng(2).integers(-QUANTA, QUANTA, 44)).astype(float)
    values = {
        "falling": values[::-1].copy(),
        "ends": np.where(np.arange(44) % 3 == 0, -2.0 * QUANTA, 2.0 * QUANTA),
    }[order]
    d = on_device(
        Interval.point(torch.from_numpy(values).view(1, -1, 1).expand(2, -1, 1).contiguous())
    )
    assert wrong(d, None, (1, 20), False, "exact") == 0


@pytest.mark.skipif(DEVICE == "cuda", reason="only the interpreter takes functions as they are now")
@pytest.mark.parametrize("fault", ["a level one too low", "a threshold one too low"])
def test_a_selection_broken_on_purpose_is_noticed(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agt.kernels import gpu_selection

    cut = gpu_selection._keep_smallest
    level = gpu_selection._find_level

    def low(*args: Any) -> Any:
        return level(*args) - 1

    def strict(places: Any, held: Any, threshold: Any, *args: Any) -> Any:
        left, at = cut(places, held, threshold, *args)
        return left, at - (QUANTA >> 3)

    broken = {
        "a level one too low": ("_find_level", low),
        "a threshold one too low": ("_keep_smallest", strict),
    }[fault]
    monkeypatch.setattr(gpu_selection, *broken)
    d, x = factors(np.random.default_rng(1), "bias", 1.0, (1, 60, 2, 1))
    assert wrong(d, x, (5,), False, "exact") > 0


def test_the_self_test_passes() -> None:
    from agt.kernels.gpu import GpuKernel

    check_kernel(GpuKernel(), DEVICE)
