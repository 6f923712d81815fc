"""Small jobs, each carried out alone and by 2 and 3 processes that share it: a script, which writes
what each came to.

The interpreter is started once, and every process is a fork of it: it has computed, but has no
threads yet.
"""

import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import agt
from agt.distributed import Group, group, together
from agt.errors import AgtError, ConfigError
from agt.fitted import Fitted
from agt.models.fitting import fit
from agt.training.checkpoint import Checkpoints, CheckpointState
from agt.training.settings import NoiseConfig

SIZES = (2, 3)
FEW_STEPS: dict[str, Any] = {
    "certificate": "stability",
    "batch": {"count": 2},
    "epochs": 2,
    "lr": 0.1,
}
Outcome = dict[str, str]


@dataclass
class Files:
    """A model's files, in memory."""

    kept: dict[str, bytes] = field(default_factory=dict)
    prefix: str = ""

    def write(self, name: str, content: bytes) -> None:
        self.kept[self.prefix + name] = content

    def part(self, name: str) -> "Files":
        return Files(self.kept, f"{self.prefix}{name}/")


@dataclass
class Kept(Checkpoints):
    """Checkpoints in memory: the state after some step, where somebody has one."""

    state: CheckpointState | None = None
    offered: dict[int, CheckpointState] = field(default_factory=dict)

    def last_state(self) -> CheckpointState | None:
        return self.state

    def save_if_due(
        self, step: int, tensors: Callable[[], dict[str, torch.Tensor]], is_last_step: bool = False
    ) -> None:
        self.offered[step] = CheckpointState(
            step, {name: tensor.clone() for name, tensor in tensors().items()}
        )


def digest(*parts: Any) -> str:
    h = sha256()
    for part in parts:
        h.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return h.hexdigest()


def data(rows: int, width: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, width))
    return x, (x[:, 0] + rng.normal(size=rows) > 0).astype(
        np.int64
    ) if classes == 2 else rng.integers(0, classes, rows)


def outcome(fitted: Fitted, queries: int = 200) -> str:
    """The bits of a model and of all that it says."""
    files = Files()
    model = fitted.model
    model.save(files)
    x = np.random.default_rng(1).normal(
        size=(queries, model.problem.dataset.train.features.shape[1])
    )
    model.check(x)
    answers = model.certify(x)
    said = [
        model.predict(x),
        model.margins(x),
        answers.prediction,
        answers.certified,
        answers.stable_distance,
    ]
    return digest(*(files.kept[name] for name in sorted(files.kept)), *said)


def trained(rows: int = 700, width: int = 5, classes: int = 2, **settings: Any) -> Fitted:
    x, y = data(rows, width, classes)
    units = [f"u{i // 2}" for i in range(rows)] if settings.get("unit_rows") else None
    declared = agt.Declared(classes=list(range(classes)), size=rows, features=True, settings=True)
    names = {} if units is None else {"units": np.array(units)}
    return agt.fit(x, y, declared=declared, **names, **settings)


def box(relation: str, **settings: Any) -> Fitted:
    compute = {"fragment": settings.pop("fragment", 32), "kernel": "reference", "threads": 1}
    given = {"network": (4,), "ks": 2, "epochs": 1, "lr": 2.0, "clip": 0.06, "batch": {"count": 2}}
    given |= {"compute": compute}
    return trained(400, relation=relation, certificate="box", **given | settings)


def noisy(seed: int | None) -> Fitted:
    """With DP-SGD's noise in its steps."""
    plain = box("add_remove")
    settings = replace(plain.model.problem.settings, noise=NoiseConfig(epsilon=8.0, seed=seed))
    return Fitted(fit(replace(plain.model.problem, settings=settings)), plain.classes)


def resumed() -> Fitted:
    """A linear head, and the same from a state in its midst, which the first process alone has."""
    plain = trained(3000, **FEW_STEPS)
    kept = Kept()
    fit(plain.model.problem, checkpoints=kept)
    assert (2 in kept.offered) == (group().rank == 0)
    return Fitted(fit(plain.model.problem, checkpoints=Kept(kept.offered.get(2))), plain.classes)


JOBS: dict[str, Callable[[], Fitted]] = {
    **{
        f"box, {name}": lambda name=name: box(name)
        for name in ("add_remove", "paper_privacy", "paper_unlearning")
    },
    "box, remove, public records": lambda: box("remove", public=np.arange(400) % 5 == 0),
    "box, substitute, units, momentum": lambda: box(
        "substitute", unit_rows=2, momentum=0.9, ks=[0, 1, 4]
    ),
    "box, perturb": lambda: box("perturb", radius=0.05, batch={"count": 1}),
    "box, fewer fragments than processes": lambda: box("remove", fragment=150, network=()),
    "box, noise": lambda: noisy(5),
    "stability": lambda: trained(3000, features="relu", **FEW_STEPS),
    "stability, classes": lambda: trained(2500, classes=3, **FEW_STEPS),
    "erm": lambda: trained(2500, certificate={"name": "erm", "tolerance": 1e-3}, caution=4),
    "removal": lambda: trained(17000, 3, certificate={"name": "removal", "seed": 3}),
    "ensemble of boxes": lambda: box("add_remove", members=2),
    "ensemble by margins": lambda: trained(
        3000, members=2, vote="margins", margin_clip=1.0, ks=4, compute={"threads": 1}, **FEW_STEPS
    ),
    "resumed": resumed,
}


def in_order(
    self: Group, spans: list[slice], part: Callable[[slice], tuple[torch.Tensor, ...]]
) -> tuple[torch.Tensor, ...]:
    """``Group.sum_spans`` broken: each process adds up its own spans, and the sums are added by
    rank.
    """
    parts = [part(spans[i]) for i in self.own_pieces(len(spans))] or [part(slice(0, 0))]
    return tuple(
        map(sum, zip(*self.all_gather(tuple(map(sum, zip(*parts, strict=True)))), strict=True))
    )


def each_its_own(
    group: Group, extremes: Any, counts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """``selected_sums`` broken: nothing is chosen anew from what the processes kept."""
    result: tuple[torch.Tensor, torch.Tensor] = extremes.result()
    return result


BROKEN: dict[str, tuple[str, Any]] = {
    "stability": ("agt.distributed.Group.sum_spans", in_order),
    "box, remove, public records": ("agt.training.loop.selected_sums", each_its_own),
    "box, paper_privacy": ("agt.training.loop.selected_sums", each_its_own),
}


@contextmanager
def small_blocks() -> Iterator[None]:
    """Blocks of so few queries and records that all processes get some, and a sum has many
    pieces.
    """
    with ExitStack() as stack:
        for place in ("closed_form.ROWS", "model.ROWS", "box.QUERY_BLOCK_ROWS"):
            stack.enter_context(patch(f"agt.models.{place}", 64))
        stack.enter_context(patch("agt.training.linear.GRADIENT_BLOCK_ROWS", 256))
        yield


def carried_out(size: int = 1) -> Outcome:
    """All jobs; among two processes some."""
    return {name: outcome(job()) for name, job in JOBS.items() if size != 2 or name in BROKEN}


def failing(how: Callable[[int], None]) -> Outcome:
    """A training in which one process fails after a few steps."""
    steps, (x, y) = iter(range(10**6)), data(3000, 4)
    agt.fit(x, y, **FEW_STEPS | {"epochs": 40}, on_progress=lambda _: how(next(steps)))
    return {}


def killed(step: int) -> None:
    if group().rank == group().size - 1 and step == 2:
        os._exit(9)


def mistaken(step: int) -> None:
    if group().rank == 1 and step == 2:
        raise ConfigError("training.lr: is no number\nor so")


def phases() -> Iterator[tuple[str, int, Callable[[], Outcome]]]:
    """(name, processes, what they do), one after another."""
    for size in SIZES:
        yield str(size), size, partial(carried_out, size)
    yield "drawn", 2, lambda: {"noise": outcome(noisy(None)), "removal": outcome(removal_drawn())}
    yield "broken", 3, lambda: {name: broken(name) for name in BROKEN}
    yield "mistaken", 3, lambda: failing(mistaken)
    yield (
        "unlike",
        3,
        lambda: {"stability": outcome(trained(**FEW_STEPS | {"lr": 0.1 + group().rank // 2}))},
    )
    yield "killed", 3, lambda: failing(killed)


def removal_drawn() -> Fitted:
    return trained(600, 3, certificate="removal")


def broken(name: str) -> str:
    with patch(*BROKEN[name]):
        return outcome(JOBS[name]())


def work(rank: int, ports: list[int], folder: Path) -> None:
    with small_blocks():
        for (name, size, job), port in zip(phases(), ports, strict=True):
            if rank >= size:
                continue
            os.environ.update(
                RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
            )
            start = time.monotonic()
            try:
                with together(timeout=60):
                    result = job()
            except AgtError as error:
                result = {"error": type(error).__name__, "message": str(error)}
            result["seconds"] = f"{time.monotonic() - start:.2f}"
            (folder / f"{name}.{rank}.json").write_text(json.dumps(result))


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with small_blocks():
        (folder / "1.0.json").write_text(json.dumps(carried_out()))
    ports = free_ports(len(list(phases())))
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=work, args=(rank, ports, folder)) for rank in range(max(SIZES))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
