"""Rules broken on purpose: the very checks of the soundness tests count violations, and none for the rules as they are."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from checks import CASES, Case, Tally, claims, factors
from torch import Tensor

from agt.bounds import rounding
from agt.bounds.interval import Interval
from agt.bounds.rounding import EXACT, Products, Rounding, corners
from agt.bounds.rules import ConvRule, Gradient, ReluRule
from agt.kernels.cpu import CpuKernel
from agt.kernels.reference import QUANTA
from agt.relations import RELATIONS
from agt.training.batches import BatchPlan, Slices
from agt.training.loop import TrainingRun

Break = Callable[[pytest.MonkeyPatch], None]
LINEAR = replace(CASES[0], name="linear")
DEEP = Case("deep", (4, 3), training={"loss": "binary_cross_entropy", "lr": 0.3})
NOISY = Case("noisy", noise=3.0, training={"loss": "binary_cross_entropy"})
SLICED = Case("sliced", slices=3, training={"loss": "binary_cross_entropy"})
CONVOLVED = Case("convolved", channels=2, n=40, training={"loss": "binary_cross_entropy", "lr": 0.3})
LOUD = Case("loud", (4, 3), n=60, training={"loss": "binary_cross_entropy", "lr": 10.0, "epochs": 4, "batch": {"count": 1}})


def signed_as_nonnegative(patch: pytest.MonkeyPatch) -> None:
    """The x >= 0 formula on the signed features of the first layer."""

    def formula(x: Tensor, w: Interval) -> tuple[Tensor, Tensor]:
        return _sorted(*rounding.linear_nonnegative(Interval.point(x), w))

    patch.setattr(rounding, "linear_point", formula)
    patch.setattr(CpuKernel, "point_product", lambda kernel, x, w: formula(x, w))


def _sorted(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    # The wrong formula may cross its ends, which Interval refuses; the quiet form of the mistake is the harder catch.
    return torch.minimum(a, b), torch.maximum(a, b)


def wrong_sign_split(patch: pytest.MonkeyPatch) -> None:
    """Hidden layers pair lower with lower whatever the sign of the weight."""

    def formula(x: Interval, w: Interval) -> tuple[Tensor, Tensor]:
        return _sorted(x.lower @ w.lower.mT, x.upper @ w.upper.mT)

    patch.setattr(rounding, "linear_nonnegative", formula)
    patch.setattr(CpuKernel, "nonnegative_product", lambda kernel, x, w: formula(x, w))


def gamma_forgotten(patch: pytest.MonkeyPatch) -> None:
    """No k * gamma for what may be added."""
    patch.setitem(RELATIONS, "add_remove", replace(RELATIONS["add_remove"], adds=False))


def noise_that_knows_the_data(patch: pytest.MonkeyPatch) -> None:
    """A draw scaled by how many records there are: no longer the same for every neighbour."""
    whole = TrainingRun._noisy

    def noisy(self: TrainingRun, name: str, direction: Tensor, drawn: dict[str, Tensor]) -> Tensor:
        return whole(self, name, direction, {n: z * len(self.records) / 12 for n, z in drawn.items()})

    patch.setattr(TrainingRun, "_noisy", noisy)


def batches_by_index(patch: pytest.MonkeyPatch) -> None:
    """A record's batch is its position: one removal moves every later record."""

    def batches(self: BatchPlan, units: np.ndarray) -> Iterator[np.ndarray]:
        for _ in range(self.epochs):
            for index in range(self.count):
                yield np.flatnonzero(np.arange(len(units)) % self.count == index)

    patch.setattr(BatchPlan, "batches", batches)


def slices_by_index(patch: pytest.MonkeyPatch) -> None:
    """A record's slice is its position: one removal lets later records join in earlier."""
    patch.setattr(Slices, "of", lambda self, units: np.arange(len(units)) * self.count // max(len(units), 1))


def clipped_at_each_position(patch: pytest.MonkeyPatch) -> None:
    """Bounds on a record's gradient clip each position's share, and add up what is left."""

    def gradients(self: ConvRule, d: Interval, x: Interval, rounding: Rounding, how: Products) -> Iterator[Gradient]:
        patches = x.moved(self._patches_of_each_k)
        pairs = d.moved(self._rows)[..., :, None, :], patches[..., None, :, :]
        ends = [share.clamp(-QUANTA, QUANTA).sum(dim=-1).flatten(2) for share in corners(*pairs)]
        yield Gradient(f"{self.name}.weight", Interval(*ends), None)
        yield Gradient(f"{self.name}.bias", d.moved(lambda end: end.clamp(-QUANTA, QUANTA).flatten(3).sum(dim=-1)), None)

    patch.setattr(ConvRule, "gradients", gradients)


def by_factors(edits: int) -> Tally:
    """Sampled containment of a three-layer head's factors."""
    return factors(DEEP, "float64", "exact", samples=10 * edits)


def by_training(case: Case, relation: str) -> Callable[[int], Tally]:
    """Whole training, edited and repeated."""
    return lambda edits: claims(case, relation, pairs=0, edits=edits)


def by_refusal(edits: int) -> Tally:
    """Whole training that stops, as even the nominal run leaves its box."""
    tally = claims(CONVOLVED, "remove", pairs=0, edits=edits)
    return replace(tally, outside=tally.outside + tally.refused)


BROKEN = [
    pytest.param(signed_as_nonnegative, by_factors, id="x >= 0 formula on signed data, factors"),
    pytest.param(wrong_sign_split, by_factors, id="wrong sign split, factors"),
    pytest.param(wrong_sign_split, by_training(LOUD, "remove"), id="wrong sign split, training"),
    pytest.param(gamma_forgotten, by_training(LINEAR, "add_remove"), id="gamma forgotten"),
    pytest.param(noise_that_knows_the_data, by_training(NOISY, "remove"), id="noise that knows the data"),
    pytest.param(batches_by_index, by_training(LINEAR, "remove"), id="batches by index"),
    pytest.param(clipped_at_each_position, by_refusal, id="clipped at each position"),
    pytest.param(slices_by_index, by_training(SLICED, "remove"), id="slices by index"),
]


@pytest.mark.parametrize(("broken", "check"), BROKEN)
def test_the_check_catches(broken: Break, check: Callable[[int], Tally], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = check(4)
    assert whole.violations == 0, whole
    broken(monkeypatch)
    caught = check(24)
    assert caught.outside > 0, caught


# -- ReLU's derivative at 0 ----------------------------------------------------------------------------------------------


def relu_violations() -> int:
    """Brute force over intervals with ends in {-1, 0, 1}: nominal derivatives outside their bounds."""
    rule, count, rounding = ReluRule("1"), 0, Rounding.of((0,), torch.float64, torch.device("cpu"))
    ends = [(low, high) for low, high in product((-1.0, 0.0, 1.0), repeat=2) if low <= high]
    for x_ends, d_ends in product(ends, repeat=2):
        x, d = (Interval(*(torch.full((1, 1, 1), e) for e in pair)) for pair in (x_ends, d_ends))
        bound = rule.bound_back(d, x, {}, rounding, EXACT)
        for at, factor in product(sorted({*x_ends, sum(x_ends) / 2}), sorted({*d_ends})):
            count += not bound.contains(rule.nominal_back(torch.full((1, 1), factor), torch.full((1, 1), at), {}))
    return count


def test_the_check_catches_relus_derivative_at_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert relu_violations() == 0
    monkeypatch.setattr(ReluRule, "nominal_back", lambda self, d, x, point: torch.where(x >= 0, d, 0.0))
    assert relu_violations() > 0
