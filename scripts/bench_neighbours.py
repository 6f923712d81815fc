"""Neighbours trained together against neighbours trained one by one: the same leave-one-outs, side by side in one run.

    python scripts/bench_neighbours.py [--records 2000] [--neighbours 128]

alone: ``agt.audit.neighbours.retrained`` with k = 0 alone, the least that the product can train, in this process. with
bounds: the same with the run's grid. together: ``agt.audit.retraining.neighbours_of``. Seconds a neighbour, of as many as
fit the patience: together is measured on all of them. floor: what the products of matrices of a neighbour's passes alone
take, each of them a call of its own over all rows at once; nothing that does all the arithmetic can be faster, but what
shares it may. apart: the largest difference of a parameter between the two.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch

import agt
from agt.audit.edits import Edited
from agt.audit.neighbours import retrained
from agt.audit.retraining import Refused, neighbours_of
from agt.models.ensemble import EnsembleModel
from agt.models.model import Model

SEVERAL = {"epochs": 4, "lr": 0.5, "clip": 0.06, "batch": {"count": 4}}
KINDS: dict[str, dict[str, Any]] = {
    "stability, SGD": {"certificate": "stability"},
    "stability, softmax": {"certificate": "stability", "loss": "cross_entropy", "clip": 1.0},
    "erm": {"certificate": "erm", "weight_decay": 1e-2},
    "removal": {"certificate": {"name": "removal", "seed": 0}, "weight_decay": 1e-2},
    "box, linear": {"certificate": "box", "ks": 10, **SEVERAL},
    "box, one hidden layer of 32": {"certificate": "box", "network": (32,), "ks": 10, **SEVERAL},
    "box, one step": {"certificate": "box", "network": (32,), "ks": 10, **SEVERAL, "epochs": 1, "batch": {"count": 1}},
    "10 boxes that vote": {"certificate": "box", "network": (16,), "ks": 10, "members": 10, **SEVERAL},
    "10 heads that vote": {"certificate": "stability", "members": 10},
}
ALONE, BOUNDED = 4, 2  # neighbours that are trained by themselves


@dataclass(frozen=True)
class Line:
    """One kind's seconds a neighbour."""

    kind: str
    together: float
    alone: float
    bounded: float
    floor: float
    apart: float

    def __str__(self) -> str:
        numbers = f"{self.together:>10.5f}{self.alone:>10.5f}{self.bounded:>10.5f}{self.floor:>10.5f}"
        shares = f"{self.alone / self.together:>8.1f}{self.bounded / self.together:>8.1f}"
        return f"{self.kind:<30}{numbers}{shares}{self.apart:>10.1e}"


HEAD = f"{'kind':<30}{'together':>10}{'alone':>10}{'bounds':>10}{'floor':>10}{'alone/':>8}{'bounds/':>8}{'apart':>10}"


def trained(settings: dict[str, Any], n: int, width: int, classes: int) -> Model:
    """A run on synthetic records."""
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(classes, width)), rng.integers(0, classes, n)
    x = (centres[y] * 0.3 + rng.normal(size=(n, width))).astype(np.float32)
    declared = agt.Declared(classes=list(range(classes)), size=n, features=True, settings=True)
    return agt.fit(x, y, declared=declared, compute={"threads": 1}, **settings).model


def seconds(work: Callable[[], object]) -> float:
    """Of the processor, of one call: the work is on one thread, and others may be at work beside it."""
    start = time.process_time()
    work()
    return time.process_time() - start


def floor(model: Model) -> float:
    """Seconds of the products that one neighbour's passes are made of."""
    problem = model.problem
    member = model.members[0] if isinstance(model, EnsembleModel) else model
    shapes = [p.shape for p in parameters(member) if p.dim() == 2]
    n = len(problem.dataset.train) / problem.settings.ensemble.members * member.plan.epochs
    rows = torch.randn(1024, max(shape[1] for shape in shapes), dtype=torch.float64)
    total = 0.0
    for out, width in shapes:
        many, back = torch.randn(width, out * 64, dtype=torch.float64), torch.randn(1024, out * 64, dtype=torch.float64)
        x = rows[:, :width].contiguous()
        total += min(seconds(lambda x=x, many=many, back=back: (x @ many, back.T @ x)) for _ in range(5))  # type: ignore[misc]
    return total / 64 / 1024 * n


def parameters(model: Any) -> list[torch.Tensor]:
    """All of a model's, members one after another."""
    members = getattr(model, "members", (model,))
    return [t for m in members for t in (m.box.nominal.values() if hasattr(m, "box") else [m.trained.weight])]


def line(kind: str, arguments: argparse.Namespace) -> Line:
    """Measure one kind."""
    model = trained(KINDS[kind], arguments.records, arguments.width, arguments.classes)
    train = model.problem.dataset.train
    edits = [Edited(train, np.array([row])) for row in range(min(arguments.neighbours, len(train)))]
    neighbours_of(model, edits[:2])  # whatever is compiled on first use
    made: list[Any] = []
    together = seconds(lambda: made.extend(neighbours_of(model, edits))) / len(edits)
    some = edits[:: max(1, len(edits) // ALONE)][:ALONE]
    alone_made: list[Any] = []
    alone = seconds(lambda: alone_made.extend(retrained(model.problem, e.records, (0,)) for e in some)) / len(some)
    bounded = seconds(lambda: [retrained(model.problem, e.records) for e in some[:BOUNDED]]) / BOUNDED
    pairs = list(zip(made[:: max(1, len(edits) // ALONE)][:ALONE], alone_made, strict=True))
    assert not any(isinstance(mine, Refused) for mine, _ in pairs)
    apart = max(
        float((a - b).abs().max())
        for mine, other in pairs
        for a, b in zip(parameters(mine), parameters(other), strict=True)
    )
    return Line(kind, together, alone, bounded, floor(model), apart)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, value in (("records", 2000), ("width", 100), ("classes", 2), ("neighbours", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    print(
        f"{arguments.records} records of {arguments.width} features, {arguments.classes} classes, one thread; processor "
        "seconds a neighbour"
    )
    print(HEAD)
    for kind in KINDS:
        if arguments.only in kind:
            print(line(kind, arguments), flush=True)


if __name__ == "__main__":
    main()
