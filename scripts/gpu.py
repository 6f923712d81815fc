"""The GPU path on this machine: checked, measured, and the papers' runs at their published sizes,
in under ten minutes.

    python scripts/gpu.py [--out measurements.md] [--seconds 560] [--only JOB ...] [--dry]

| job       | what it does                                                                      |
|-----------|-----------------------------------------------------------------------------------|
| machine   | the card, its driver, versions                                                    |
| compile   | the kernels to machine code, without a card too; fused operations (0 wanted)      |
| integers  | sums and selections on the card against the reference kernel there and on the CPU |
| suite     | tests/unit/test_gpu_kernel.py without the interpreter                             |
| soundness | small runs of every relation, retrained on neighbours: parameters outside boxes   |
| bits      | one run on the CPU and on the card: the same bits? if not, how far apart          |
| step      | 20,000 x 768-100-1, grid of 64: a k against a PyTorch SGD step (goal: 3x)         |
| streamed  | 500,000 x 188, MLP 128-128: records held by the card, and streamed                |
| blobs     | 3,000 x 6-128-2, k = 0..199, 4 epochs                                             |
| imdb      | 25,000 x 768-100-1, the published grid, 3 epochs, momentum                        |
| octmnist  | 15,500 x 3200-100-1, the published grid, 4 epochs, Nesterov                       |
| amex      | 5,531,451 x 188, MLP 128 x 4, k = 50, batches of a fifth, while there is time     |

All data is synthetic, of those shapes; times do not depend on what it says. A job that fails, or
takes longer than its share of the time, costs its own rows. Rows are written to --out as they come,
so that a call that is cut off leaves what it had; what was not measured says why. Needed: torch
with CUDA, Triton and agt's own dependencies. --dry tries everything small on the CPU, the kernels
under Triton's interpreter.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agt.training import transfer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import bench_engine as bench  # noqa: E402

from agt.bounds.interval import Interval  # noqa: E402
from agt.kernels.reference import ReferenceKernel  # noqa: E402
from agt.relations import RELATIONS  # noqa: E402
from agt.settings import QUANTA, BatchConfig  # noqa: E402
from agt.training.loop import TrainingRun, train  # noqa: E402

HEAD = "| job | what | measured | against | ratio | remark |\n|---|---|---|---|---|---|\n"
WRONG = ("BROKEN", "FAILED", "OUTSIDE", "it failed")
Rows = Iterator[list[str]]


def row(
    what: str,
    measured: object = "",
    against: object = "",
    ratio: float | None = None,
    remark: str = "",
) -> list[str]:
    """A row of the table but for its job; seconds are given as numbers."""
    shown = [
        f"{value:.4g} s" if isinstance(value, float) else str(value)
        for value in (measured, against)
    ]
    return [what, *shown, "" if ratio is None else f"{ratio:.2f}", remark]


def where(dry: bool) -> str:
    """The device."""
    return "cpu" if dry else "cuda"


def machine(dry: bool, seconds: float) -> Rows:
    if dry:
        yield row(
            "DRY RUN",
            remark="everything small, on the CPU: seconds, ratios and the sizes in names mean "
            "nothing",
        )
    versions = (
        f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda}"
    )
    yield row("machine", bench.machine(), remark=versions)
    if torch.cuda.is_available():
        query = ["nvidia-smi", "--query-gpu=memory.total,driver_version", "--format=csv,noheader"]
        yield row(
            "card",
            subprocess.run(query, capture_output=True, text=True).stdout.strip() or "unknown",
        )


COMPILED = """
import triton
from triton.compiler import ASTSource
from triton.backends.compiler import GPUTarget
from agt.kernels import gpu, gpu_selection
kinds = {
    "*fp64": ("gradient_lower", "gradient_upper", "inputs_lower", "inputs_upper"),
    "*i32": ("values", "held", "thresholds"),
    "*i64": ("counts", "slot_counts", "first_slots", "sums", "sum_lower", "sum_upper"),
}
pointers = {name: kind for kind, names in kinds.items() for name in names}
intervals = [(x, 8, 64) for x in ("point", "nonnegative", "any", "rump")]
for capability in CAPABILITIES:
    for x, out, inputs in (("one", 128, 1), ("point", 4, 256), *intervals, ("any", 2, 64)):
        for kernel in (gpu.sum_kernel, gpu_selection.update_kernel, gpu_selection.result_kernel):
            flags = {"INPUT_KIND": x, "CAPPED": True, "TILE_OUTPUTS": out, "TILE_INPUTS": inputs}
            flags = {name: value for name, value in flags.items() if name in kernel.arg_names}
            types = {name: pointers.get(name, "i32") for name in kernel.arg_names}
            types |= dict.fromkeys(flags, "constexpr")
            source, target = ASTSource(kernel, types, flags), GPUTarget("cuda", capability, 32)
            made = triton.compile(source, target=target, options={"enable_fp_fusion": False})
            fused = made.asm["ptx"].count("fma.rn.f64")
            print(kernel.__name__, capability, fused, len(made.asm["cubin"]))
"""


def compile_kernels(dry: bool, seconds: float) -> Rows:
    """In a process without the interpreter."""
    code = COMPILED.replace("CAPABILITIES", "(90,)" if dry else "(80, 90)")
    alone = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=alone)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    made = [line.split() for line in done.stdout.splitlines()]
    fused = sum(int(words[2]) for words in made)
    remark = (
        "as it must be" if fused == 0 else "BROKEN: bounds are rounded otherwise than gradients"
    )
    taken = time.perf_counter() - began
    yield row(
        f"{len(made)} kernels to machine code", taken, f"{fused} fused operations", remark=remark
    )


def all_of(kernel: Any, d: Any, x: Any, capped: bool, product: str, counts: list[int]) -> list[Any]:
    """A kernel's sums and selections of rows that come in two parts."""
    shape = (d.shape[2],) if x is None else (d.shape[2], x.shape[2])
    extremes = kernel.start_selection(
        torch.tensor(counts, device=d.lower.device), shape, capped, product
    )
    for part in (slice(0, d.shape[1] // 3), slice(d.shape[1] // 3, None)):
        extremes.update(d[:, part], None if x is None else x[:, part])
    return [*kernel.bound_sum(d, x, product), *extremes.result()]


def integers(dry: bool, seconds: float) -> Rows:
    from agt.kernels.gpu import GpuKernel  # needs Triton

    def interval(draw: Any, *sizes: int, scale: float) -> Any:
        center, reach = (
            torch.randn(sizes, generator=draw, dtype=torch.float64) * scale for _ in range(2)
        )
        return Interval(
            (center - reach.abs() / 3).to(where(dry)), (center + reach.abs() / 3).to(where(dry))
        )

    def on_cpu(value: Any) -> Any:
        return None if value is None else Interval(value.lower.cpu(), value.upper.cpu())

    shapes = (
        [(2, 30, 2, 3)]
        if dry
        else [(3, 1501, 17, 65), (1, 1, 1, 1), (2, 20_000, 1, 100), (4, 700, 130, 9)]
    )
    for bias in (False, True):
        equal = []
        for seed, (ks, n, outputs, width) in enumerate(shapes):
            draw = torch.Generator().manual_seed(seed)
            counts = [0, min(5, n), n // 2, n][:ks]
            d = interval(draw, ks, n, outputs, scale=float(QUANTA))
            x = None if bias else interval(draw, ks, n, width, scale=1.0)
            for capped, product in ((False, "exact"), (True, "exact"), (False, "rump")):
                ours = all_of(GpuKernel(), d, x, capped, product, counts)
                for there in ((d, x), (on_cpu(d), on_cpu(x))):
                    theirs = all_of(ReferenceKernel(), *there, capped, product, counts)
                    equal.append(
                        all(
                            torch.equal(a.cpu(), b.cpu()) for a, b in zip(ours, theirs, strict=True)
                        )
                    )
        remark = "" if all(equal) else "BROKEN: do not use compute.kernel=gpu"
        found = f"{sum(equal)} of {len(equal)} equal"
        yield row(
            f"sums and selections{', bias' if bias else ''}",
            found,
            "reference, card and CPU",
            remark=remark,
        )


def suite(dry: bool, seconds: float) -> Rows:
    chosen = ["-k", "test_sums and number"] if dry else ["tests/unit/test_staging.py"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "-p",
        "no:cacheprovider",
    ]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "tests/unit/test_gpu_kernel.py", *chosen],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]])[-1]
    remark = last if done.returncode == 0 else f"FAILED: {last}"
    yield row("tests/unit/test_gpu_kernel.py", time.perf_counter() - began, remark=remark)


def soundness(dry: bool, seconds: float) -> Rows:
    """Records removed, added or replaced: the parameters of training again must lie in the box
    of as many k.
    """
    rng = np.random.default_rng(1)
    k = 4
    tries = 1 if dry else 20
    whole = bench.records(40 if dry else 400, 12)
    model = bench.head(12, 16, 1)
    data = whole.take(np.arange(len(whole) - k))
    batch = BatchConfig(count=1, normalizer=float(len(data)), n_max=2 * len(data))
    for name in sorted(
        name for name, relation in RELATIONS.items() if relation.edits_whole_records
    ):
        training = bench.settings(epochs=1 if dry else 3, batch=batch)
        method = bench.setup(data, training, (0, k), name, device=where(dry))
        box = train(model, method, data)
        outside = 0
        for _ in range(tries):
            gone = rng.choice(len(data), k, replace=False)
            stay = np.setdiff1d(
                np.arange(len(data)), gone if name != "add_remove" else gone[: k // 2]
            )
            come = {"add_remove": k // 2, "remove": 0, "paper_unlearning": 0}.get(name, k)
            again = train(
                model,
                method,
                whole.take(np.concatenate([stay, np.arange(len(data), len(data) + come)])),
            )
            for parameter, value in again.nominal.items():
                outside += int(
                    ((value < box.lower[parameter][1]) | (value > box.upper[parameter][1])).sum()
                )
        remark = "" if outside == 0 else "BROKEN: the bounds do not hold on this card"
        yield row(
            f"{name}, k = {k}, {tries} neighbours", f"{outside} parameters outside", remark=remark
        )


def bits(dry: bool, seconds: float) -> Rows:
    data = bench.records(60 if dry else 5000, 4 if dry else 64)
    model = bench.head(4 if dry else 64, 32, 1)
    training = bench.settings(epochs=3)
    here, card = (
        train(model, bench.setup(data, training, (0, 5), device=at), data)
        for at in ("cpu", where(dry))
    )
    apart = max(
        float((value - card.nominal[name]).abs().max()) for name, value in here.nominal.items()
    )
    ends = (
        (here.lower[name][1], there, here.upper[name][1]) for name, there in card.nominal.items()
    )
    inside = all(bool(((low <= there) & (there <= high)).all()) for low, there, high in ends)
    remark = (
        f"the card's lie {'in' if inside else 'OUTSIDE'} the CPU's box; matrix products may "
        "add in another order"
    )
    yield row("parameters of one run, CPU and card", f"{apart:.1e} apart", remark=remark)


def measured(work: Callable[[], object], dry: bool, repeats: int) -> float:
    """Median seconds, after one call that is not counted."""

    def waited() -> None:
        work()
        if not dry:
            torch.cuda.synchronize()

    return bench.side_by_side([waited], repeats)[0].clock


def peak(dry: bool) -> str:
    if dry:
        return ""
    used = f"at most {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB of the card"
    torch.cuda.reset_peak_memory_stats()
    return used


def step(dry: bool, seconds: float) -> Rows:
    n, width, hidden = (64, 4, 4) if dry else (20_000, 768, 100)
    data = bench.records(n, width)
    model = bench.head(width, hidden, 1)
    plain = measured(bench.plain_step(data, model, where(dry)), dry, 1 if dry else 20)
    for ks in (1, 16, 64):
        run = bench.make_run(data, model, range(ks), device=where(dry), memory_mb=16384)
        taken = measured(bench.one_step(run), dry, 1 if dry else 5) / ks
        goal = (
            f"goal 3x {'met' if taken <= 3 * plain else 'NOT met'}; "
            if ks == 64 and not dry
            else ""
        )
        yield row(
            f"{n:,} x {width}-100-1, add_remove, grid of {ks}, per k",
            taken,
            plain,
            taken / plain,
            goal + peak(dry),
        )


def streamed(dry: bool, seconds: float) -> Rows:
    n = 200 if dry else 500_000
    hidden = 4 if dry else 128
    share = transfer.RESIDENT_SHARE
    times = list[float]()
    data = bench.records(n, 188)
    model = bench.head(188, hidden, hidden, 1)
    for name, transfer.RESIDENT_SHARE in (("held by the card", share), ("streamed", 0.0)):
        run = bench.make_run(data, model, range(8), device=where(dry), memory_mb=16384)
        times.append(measured(bench.one_step(run), dry, 1))
        yield row(f"{n:,} x 188, MLP 128-128, 8 k, records {name}", times[-1], remark=peak(dry))
    transfer.RESIDENT_SHARE = share
    yield row("streamed against held", times[1], times[0], times[1] / times[0])


OCT = (*range(10), *range(10, 46, 5), *range(50, 201, 10))
IMDB = (*range(50), *range(50, 201, 10))
AMEX_BATCH = BatchConfig(count=5, n_max=5_531_451)
PUBLISHED: dict[str, tuple[tuple[int, ...], int, Any, dict[str, Any]]] = {
    "blobs": (
        (6, 128, 2),
        3000,
        range(200),
        {"epochs": 4, "lr": 2.0, "decay": 0.6, "lr_min": 1e-3, "clip": 0.06},
    ),
    "imdb": (
        (768, 100, 1),
        25_000,
        IMDB,
        {"epochs": 3, "lr": 0.2, "lr_min": 0.0, "clip": 0.04, "momentum": 0.99, "dampening": 0.3},
    ),
    "octmnist": (
        (3200, 100, 1),
        15_500,
        OCT,
        {
            "epochs": 4,
            "lr": 0.06,
            "decay": 0.5,
            "lr_min": 1e-3,
            "clip": 0.9,
            "momentum": 0.95,
            "nesterov": True,
        },
    ),
    "amex": (
        (188, 128, 128, 128, 128, 1),
        5_531_451,
        (50,),
        {"lr": 1e-3, "decay": 0.6, "lr_min": 0.0, "clip": 0.06, "batch": AMEX_BATCH},
    ),
}


def published(name: str, dry: bool, seconds: float) -> Rows:
    """Both of the papers' claims and our own, as far as the time goes: step by step."""
    widths, n, ks, settings = PUBLISHED[name]
    widths, n, ks = ((4, 3, widths[-1]), 60, tuple(ks)[:3]) if dry else (widths, n, ks)
    data = bench.records(n, widths[0])
    model = bench.head(*widths)
    until = time.perf_counter() + seconds
    for relation, product in (
        ("paper_privacy", "rump"),
        ("paper_unlearning", "rump"),
        ("add_remove", "exact"),
    ):
        training = bench.settings(widths[-1], product=product, **settings)
        method = bench.setup(data, training, ks, relation, device=where(dry), memory_mb=8192)
        what = f"{name}: {n:,} x {'-'.join(map(str, widths))}, {relation}"
        whole, part = extrapolated(TrainingRun(model, method, data), dry, until)
        yield row(
            what,
            whole,
            remark=f"{part}{len(ks)} k, {1e3 * whole / len(ks):.1f} ms a k; {peak(dry)}",
        )


def extrapolated(run: TrainingRun, dry: bool, until: float) -> tuple[float, str]:
    """Seconds of the whole training, from its first steps until then; in words, from how many."""
    began = time.perf_counter()
    with torch.no_grad():
        for rows in run.plan.batches(run.records.units):
            run.step(rows)
            if not dry:
                torch.cuda.synchronize()
            taken = time.perf_counter() - began
            if time.perf_counter() + taken / run.steps_taken > until:
                break
    part = (
        ""
        if run.steps_taken == run.plan.steps
        else f"EXTRAPOLATED from {run.steps_taken} of {run.plan.steps} steps; "
    )
    return taken * run.plan.steps / run.steps_taken, part


# what is done, and the seconds it may take
JOBS: dict[str, tuple[Callable[[bool, float], Rows], float]] = {
    "machine": (machine, 20),
    "compile": (compile_kernels, 60),
    "integers": (integers, 60),
    "step": (step, 60),
    "soundness": (soundness, 60),
    "bits": (bits, 30),
    "imdb": (partial(published, "imdb"), 60),
    "blobs": (partial(published, "blobs"), 40),
    "octmnist": (partial(published, "octmnist"), 75),
    "streamed": (streamed, 60),
    "suite": (suite, 60),
    "amex": (partial(published, "amex"), 120),
}


def rows_of(name: str, seconds: float, dry: bool) -> Rows:
    """A job's rows, until its time is over."""
    if seconds < 5:
        yield row("all of it", "not measured", remark="no time left")
    elif not dry and name not in ("machine", "compile") and not torch.cuda.is_available():
        yield row("all of it", "not measured", remark="PyTorch sees no GPU here")
    else:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield from JOBS[name][0](dry, seconds - 2)
        except KeyboardInterrupt:
            if signal.getitimer(signal.ITIMER_REAL)[0]:
                raise  # a person's
            yield row("the rest", "not measured", remark=f"cut off after {seconds:.0f} s")
        except Exception as error:
            yield row(
                "the rest", "not measured", remark=f"it failed: {error}".replace("\n", " ")[-200:]
            )
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(os.devnull), help="the table, as Markdown")
    parser.add_argument("--seconds", type=float, default=560.0, help="for all jobs together")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="JOB")
    parser.add_argument("--dry", action="store_true", help="everything small, on the CPU")
    options = parser.parse_args()
    if options.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    until = time.monotonic() + options.seconds
    broken = False
    with options.out.open("w", encoding="utf-8", buffering=1) as table:
        print(HEAD, end="", file=table)
        for name in options.only:
            for cells in rows_of(
                name, min(JOBS[name][1], until - time.monotonic() - 10), options.dry
            ):
                line = f"| {' | '.join(cell.replace('|', '/') for cell in (name, *cells))} |"
                broken = broken or any(word in line for word in WRONG)
                print(line, file=table)
                print(line, flush=True)
    return 3 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
