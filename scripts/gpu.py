"""The GPU path on this machine: checked, measured, and the papers' runs at their published sizes, in under ten minutes.

    python scripts/gpu.py [--out measurements.md] [--seconds 560] [--only JOB ...] [--dry]

| job        | what it does                                                                                   |
|------------|------------------------------------------------------------------------------------------------|
| machine    | the card, its driver, versions                                                                 |
| compile    | the kernels to machine code, without a card too; fused operations in it (0 wanted)             |
| integers   | sums and selections on the card against the reference kernel there and on the CPU              |
| suite      | tests/unit/test_gpu_kernel.py without the interpreter                                          |
| soundness  | small runs of every relation, retrained on neighbours: parameters outside their boxes (0 wanted) |
| bits       | one run on the CPU and on the card: the same bits? if not, how far apart                       |
| step       | 20,000 x 768-100-1, grid of 64, cost of one k against a plain PyTorch SGD step there (goal: 3x) |
| streamed   | 500,000 x 188, MLP 128-128: records held by the card, and streamed through pinned memory       |
| blobs      | 3,000 x 6-128-2, k = 0..199, 4 epochs                                                          |
| imdb       | 25,000 x 768-100-1, the published grid, 3 epochs, momentum                                     |
| octmnist   | 15,500 x 3200-100-1, the published grid, 4 epochs, Nesterov                                    |
| amex       | 5,531,451 x 188, MLP 128 x 4, k = 50, batches of a fifth: as many as there is time for         |

All data is synthetic, of those shapes; times do not depend on what it says. Each job is a process of its own with its own
share of the time: one that fails or takes longer costs its own rows. Rows are written to --out as they come, so that a call
that is cut off leaves what it had; what was not measured says why. Needed: torch with CUDA, Triton and agt's own
dependencies. --dry tries everything small on the CPU, the kernels under Triton's interpreter.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import bench_engine as bench  # noqa: E402

from agt.bounds.interval import Interval  # noqa: E402
from agt.data.dataset import Records  # noqa: E402
from agt.kernels.reference import QUANTA, ReferenceKernel  # noqa: E402
from agt.relations import RELATIONS  # noqa: E402
from agt.settings import BatchConfig  # noqa: E402
from agt.training import batches  # noqa: E402
from agt.training.loop import TrainingRun, train  # noqa: E402

HEAD = "| job | what | measured | against | ratio | remark |\n|---|---|---|---|---|---|\n"
GRACE_SECONDS = 5.0  # a job keeps to its time by itself; one that hangs is ended
MARK = "row "  # what a line of a job's output begins with, if it is a row


def row(what: str, measured: object = "", against: object = "", ratio: float | None = None, remark: str = "") -> list[str]:
    """A row of the table but for its job; seconds are given as numbers."""
    shown = [f"{value:.4g} s" if isinstance(value, float) else str(value) for value in (measured, against)]
    return [what, *shown, "" if ratio is None else f"{ratio:.2f}", remark]


Rows = Iterator[list[str]]


class Place(NamedTuple):
    """Where jobs compute, and how large: a card, or in a dry run the CPU."""

    dry: bool

    @property
    def device(self) -> str:
        return "cpu" if self.dry else "cuda"

    def size(self, full: int, small: int) -> int:
        return small if self.dry else full

    def done(self) -> None:
        """Wait for the card."""
        if not self.dry:
            torch.cuda.synchronize()


# -- checks --------------------------------------------------------------------------------------------------------------


def machine(at: Place, seconds: float) -> Rows:

    if at.dry:
        yield row("DRY RUN", remark="everything small, on the CPU: seconds, ratios and the sizes in names mean nothing")
    yield row("versions", f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}")
    yield row(
        "processor", f"{os.cpu_count()} cores, {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    )
    if find_spec("triton"):
        import triton

        yield row("Triton", triton.__version__)
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(asked, capture_output=True, text=True).stdout.strip() or "unknown"
        yield row(
            "card",
            f"{card.name}, {card.total_memory / 2**30:.0f} GiB",
            remark=f"CUDA {torch.version.cuda}, driver {driver}",
        )
    else:
        yield row("card", "none: PyTorch sees no GPU")


COMPILED = """
import triton
from triton.compiler import ASTSource
from triton.backends.compiler import GPUTarget
from agt.kernels import gpu, gpu_select
kinds = {
    "*fp64": ("d_lower", "d_upper", "x_lower", "x_upper"),
    "*i32": ("kept", "held", "thresholds"),
    "*i64": ("counts", "rooms", "firsts", "sums", "low", "high"),
}
pointers = {name: kind for kind, names in kinds.items() for name in names}
for capability in CAPABILITIES:
    for bias, point, rump in ((1, 1, 0), (0, 1, 0), (0, 0, 0), (0, 0, 1)):
        for kernel in (gpu._sum_kernel, gpu_select._update_kernel, gpu_select._result_kernel):
            flags = {"BIAS": bool(bias), "POINT": bool(point), "RUMP": bool(rump), "CAPPED": True, "OUT": 16, "IN": 64}
            flags = {name: value for name, value in flags.items() if name in kernel.arg_names}
            types = {name: "constexpr" if name in flags else pointers.get(name, "i32") for name in kernel.arg_names}
            source, target = ASTSource(kernel, types, flags), GPUTarget("cuda", capability, 32)
            made = triton.compile(source, target=target, options={"enable_fp_fusion": False})
            print(kernel.__name__, capability, made.asm["ptx"].count("fma.rn.f64"), len(made.asm["cubin"]))
"""


def compile_kernels(at: Place, seconds: float) -> Rows:
    """In a process without the interpreter."""
    code = COMPILED.replace("CAPABILITIES", "(90,)" if at.dry else "(80, 90)")
    alone = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=alone, timeout=seconds)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    made = [line.split() for line in done.stdout.splitlines()]
    fused = sum(int(words[2]) for words in made)
    remark = "as it must be" if fused == 0 else "BROKEN: bounds are rounded otherwise than gradients"
    yield row(
        f"{len(made)} kernels to machine code", time.perf_counter() - began, f"{fused} fused operations", remark=remark
    )


def integers(at: Place, seconds: float) -> Rows:
    from agt.kernels.gpu import GpuKernel  # needs Triton

    def interval(draw: Any, *sizes: int, scale: float) -> Any:
        center, reach = (torch.randn(sizes, generator=draw, dtype=torch.float64) * scale for _ in range(2))
        return Interval((center - reach.abs() / 3).to(at.device), (center + reach.abs() / 3).to(at.device))

    def all_of(kernel: Any, d: Any, x: Any, capped: bool, product: str, counts: list[int]) -> list[Any]:
        shape = (d.shape[2],) if x is None else (d.shape[2], x.shape[2])
        extremes = kernel.extremes(torch.tensor(counts, device=d.lower.device), shape, capped, product)
        for part in (slice(0, d.shape[1] // 3), slice(d.shape[1] // 3, None)):
            extremes.update(d[:, part], None if x is None else x[:, part])
        return [*kernel.bound_sum(d, x, product), *extremes.result()]

    def on_cpu(value: Any) -> Any:
        return None if value is None else Interval(value.lower.cpu(), value.upper.cpu())

    shapes = [(2, 30, 2, 3)] if at.dry else [(3, 1501, 17, 65), (1, 1, 1, 1), (2, 20_000, 1, 100), (4, 700, 130, 9)]
    for bias in (False, True):
        equal = cases = 0
        for seed, (ks, n, outputs, width) in enumerate(shapes):
            draw, counts = torch.Generator().manual_seed(seed), [0, min(5, n), n // 2, n][:ks]
            d = interval(draw, ks, n, outputs, scale=float(QUANTA))
            x = None if bias else interval(draw, ks, n, width, scale=1.0)
            for capped, product in ((False, "exact"), (True, "exact"), (False, "rump")):
                ours = all_of(GpuKernel(), d, x, capped, product, counts)
                for there in ((d, x), (on_cpu(d), on_cpu(x))):
                    theirs = all_of(ReferenceKernel(), *there, capped, product, counts)
                    cases += 1
                    equal += all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(ours, theirs, strict=True))
        remark = "" if equal == cases else "BROKEN: do not use compute.kernel=gpu"
        yield row(
            f"sums and selections{', bias' if bias else ''}",
            f"{equal} of {cases} equal",
            "reference, card and CPU",
            remark=remark,
        )


def suite(at: Place, seconds: float) -> Rows:
    files = ["tests/unit/test_gpu_kernel.py"] + ([] if at.dry else ["tests/unit/test_staging.py"])
    chosen = ["-k", "test_sums and number"] if at.dry else []
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", *files]
    began = time.perf_counter()
    done = subprocess.run([*command, *chosen], capture_output=True, text=True, cwd=ROOT, timeout=seconds)
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]])[-1]
    yield row(" ".join(files), time.perf_counter() - began, remark=last if done.returncode == 0 else f"FAILED: {last}")


def soundness(at: Place, seconds: float) -> Rows:
    """Records removed, added or replaced: the parameters of training again must lie in the box of as many k."""

    def without(data: Records, rows: np.ndarray) -> Records:
        arrays = (np.asarray(array)[rows] for array in (data.features, data.labels, data.ids, data.units, data.public))
        return Records(*arrays)

    rng = np.random.default_rng(1)
    whole, model, k = bench.records(at.size(400, 40), 12), bench.head(12, 16, 1), 4
    data = without(whole, np.arange(len(whole) - k))
    for name in RELATIONS:
        method = bench.recipe(
            data, bench.settings(epochs=at.size(3, 1), batch=bench_batch(len(data))), (0, k), name, device=at.device
        )
        box, outside, tries = train(model, method, data), 0, at.size(20, 1)
        for _ in range(tries):
            gone = rng.choice(len(data), k, replace=False)
            kept = np.setdiff1d(np.arange(len(data)), gone if name != "add_remove" else gone[: k // 2])
            come = {"add_remove": k // 2, "remove": 0, "paper_unlearning": 0}.get(name, k)
            again = train(model, method, without(whole, np.concatenate([kept, np.arange(len(data), len(data) + come)])))
            for parameter, value in again.nominal.items():
                outside += int(((value < box.lower[parameter][1]) | (value > box.upper[parameter][1])).sum())
        yield row(f"{name}, k = {k}, {tries} neighbours", f"{outside} parameters outside",
                  remark="" if outside == 0 else "BROKEN: the bounds do not hold on this card")  # fmt: skip


def bench_batch(records: int) -> BatchConfig:
    return BatchConfig(count=1, normalizer=float(records), n_max=2 * records)


def bits(at: Place, seconds: float) -> Rows:

    data, model = bench.records(at.size(5000, 60), at.size(64, 4)), bench.head(at.size(64, 4), 32, 1)
    boxes = [train(model, bench.recipe(data, bench.settings(epochs=3), (0, 5), device=d), data) for d in ("cpu", at.device)]
    apart, inside, equal = 0.0, True, True
    for name, here in boxes[0].nominal.items():
        there = boxes[1].nominal[name]
        apart, equal = max(apart, float((here - there).abs().max())), equal and torch.equal(here, there)
        inside = inside and bool(((boxes[0].lower[name][1] <= there) & (there <= boxes[0].upper[name][1])).all())
    where = f"the card's lie {'in' if inside else 'OUTSIDE'} the CPU's box; matrix products may add in another order"
    yield row("parameters of one run, CPU and card", "equal" if equal else f"{apart:.1e} apart", remark=where)


# -- speed ---------------------------------------------------------------------------------------------------------------


def measured(work: Callable[[], object], at: Place, repeats: int) -> float:
    """Median seconds, after one call that is not counted."""
    taken = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        at.done()
        taken.append(time.perf_counter() - began)
    return sorted(taken[1:])[repeats // 2]


def peak(at: Place) -> str:
    if at.dry:
        return ""

    used = f"at most {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB of the card"
    torch.cuda.reset_peak_memory_stats()
    return used


def gpu_run(at: Place, data: Any, model: Any, ks: Any, relation: str = "add_remove", **compute: Any) -> Any:

    memory = {} if at.dry else {"memory_mb": 4096}
    return bench.make_run(data, model, ks, relation, device=at.device, **{**memory, **compute})


def step(at: Place, seconds: float) -> Rows:

    n, width = at.size(20_000, 64), at.size(768, 4)
    data, model = bench.records(n, width), bench.head(width, at.size(100, 4), 1)
    plain = measured(bench.plain_step(data, model, at.device), at, at.size(20, 1))
    for ks in (1, 16, 64):
        taken = measured(bench.one_step(gpu_run(at, data, model, range(ks))), at, at.size(5, 1)) / ks
        remark = "; ".join(
            filter(
                None, [f"goal 3x {'met' if taken <= 3 * plain else 'NOT met'}" if ks == 64 and not at.dry else "", peak(at)]
            )
        )
        yield row(f"{n:,} x {width}-100-1, add_remove, grid of {ks}, per k", taken, plain, taken / plain, remark)


def streamed(at: Place, seconds: float) -> Rows:

    data, model = bench.records(at.size(500_000, 200), 188), bench.head(188, at.size(128, 4), at.size(128, 4), 1)
    times, share = {}, batches.RESIDENT
    try:
        for name, batches.RESIDENT in (("held by the card", share), ("streamed", 0.0)):
            times[name] = measured(bench.one_step(gpu_run(at, data, model, range(8))), at, 1)
            yield row(f"{len(data):,} x 188, MLP 128-128, 8 k, records {name}", times[name], remark=peak(at))
    finally:
        batches.RESIDENT = share
    yield row(
        "streamed against held", times["streamed"], times["held by the card"], times["streamed"] / times["held by the card"]
    )


# -- the papers' runs ----------------------------------------------------------------------------------------------------

OCT = (*range(10), *range(10, 46, 5), *range(50, 201, 10))
IMDB = (*range(50), *range(50, 201, 10))


def published(name: str, at: Place, seconds: float) -> Rows:
    """Both of the papers' claims and our own, as far as the time goes: step by step."""

    widths, n, ks, settings = PUBLISHED[name]
    widths, n = ((4, 3, widths[-1]), 60) if at.dry else (widths, n)
    data, model, began = bench.records(n, widths[0]), bench.head(*widths), time.perf_counter()
    for relation, product in (("paper_privacy", "rump"), ("paper_unlearning", "rump"), ("add_remove", "exact")):
        training = bench.settings(widths[-1], product=product, **settings)
        method = bench.recipe(data, training, tuple(ks)[:3] if at.dry else ks, relation, device=at.device,
                              **({} if at.dry else {"memory_mb": 8192}))  # fmt: skip
        yield timed(at, f"{name}: {n:,} x {'-'.join(map(str, widths))}, {relation}", model, method, data, began + seconds)


def timed(at: Place, what: str, model: Any, method: Any, data: Any, until: float) -> list[str]:
    """The whole training, or its first steps until then."""

    if time.perf_counter() > until - 2:
        return row(what, "not measured", remark="no time left")
    began, ks = time.perf_counter(), len(method.kgrid.ks)
    with torch.no_grad():
        run = TrainingRun(model, method, data)
        for rows in run.plan.batches(data.units):
            run.step(rows)
            at.done()
            taken = time.perf_counter() - began
            if time.perf_counter() + taken / run.taken > until:
                break
    whole = taken * run.plan.steps / run.taken
    part = "" if run.taken == run.plan.steps else f"EXTRAPOLATED from {run.taken} of {run.plan.steps} steps; "
    return row(what, whole, remark=f"{part}{ks} k, {1e3 * whole / ks:.1f} ms a k; {peak(at)}".rstrip("; "))


PUBLISHED: dict[str, tuple[tuple[int, ...], int, Any, dict[str, Any]]] = {
    "blobs": ((6, 128, 2), 3000, range(200), {"epochs": 4, "lr": 2.0, "decay": 0.6, "lr_min": 1e-3, "clip": 0.06}),
    "imdb": (
        (768, 100, 1),
        25_000,
        IMDB,
        {"epochs": 3, "lr": 0.2, "lr_min": 0.0, "clip": 0.04, "momentum": 0.99, "dampening": 0.3},
    ),
    "octmnist": (
        *((3200, 100, 1), 15_500, OCT),
        {"epochs": 4, "lr": 0.06, "decay": 0.5, "lr_min": 1e-3, "clip": 0.9, "momentum": 0.95, "nesterov": True},
    ),
    "amex": (
        *((188, 128, 128, 128, 128, 1), 5_531_451, (50,)),
        {"lr": 1e-3, "decay": 0.6, "lr_min": 0.0, "clip": 0.06, "batch": BatchConfig(count=5, n_max=5_531_451)},
    ),
}


# -- one after the other ---------------------------------------------------------------------------------------------------


JOBS: dict[str, tuple[Callable[[Place, float], Rows], float]] = {  # what is done, and the seconds it may take
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
    """A job's rows from a process of its own, which is ended when its time is over."""
    command = [sys.executable, __file__, "--job", name, "--seconds", str(seconds), *(["--dry"] if dry else [])]
    said, failed = "", ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=seconds + GRACE_SECONDS)
        said, failed = done.stdout, f"it failed: {done.stderr.strip()[-200:]}" if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        said, failed = (error.stdout or b"").decode(), f"cut off after {seconds:.0f} s"
    yield from (json.loads(line.removeprefix(MARK)) for line in said.splitlines() if line.startswith(MARK))
    if failed:
        yield row("the rest", "not measured", remark=failed.replace("\n", " "))


def run_job(name: str, seconds: float, dry: bool) -> Rows:
    """A job's rows, made in this process."""
    if not dry and name not in ("machine", "compile") and not torch.cuda.is_available():
        yield row("all of it", "not measured", remark="PyTorch sees no GPU here")
        return
    yield from JOBS[name][0](Place(dry), seconds)


def lines(options: argparse.Namespace) -> Rows:
    """The table's rows, job by job, until the time is over."""
    until = time.monotonic() + options.seconds
    for name in options.only:
        left = until - time.monotonic()
        if left < 15:
            yield [name, *row("all of it", "not measured", remark="no time left")]
            continue
        made = (run_job if options.dry else rows_of)(name, min(JOBS[name][1], left - 10), options.dry)
        yield from ([name, *cells] for cells in made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="the table, as Markdown")
    parser.add_argument("--seconds", type=float, default=560.0, help="for all jobs together")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="JOB")
    parser.add_argument("--dry", action="store_true", help="everything small, on the CPU, in this process")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    if options.job:
        for made in run_job(options.job, options.seconds, options.dry):
            print(f"{MARK}{json.dumps(made)}", flush=True)
        return 0
    broken = False
    with (options.out or Path(os.devnull)).open("w", encoding="utf-8") as table:
        for line in chain(
            [HEAD], (f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n" for cells in lines(options))
        ):
            broken = broken or any(word in line for word in ("BROKEN", "FAILED", "OUTSIDE", "it failed"))
            for stream in (table, sys.stdout):
                stream.write(line)
                stream.flush()
    return 3 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
