"""Features that move within a radius (relation=perturb): what boxes hold, by brute force, and
where else it is refused.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import KERNELS, make_head, make_recipe, make_records, make_training, refused
from torch import nn

import agt
from agt.bounds.box import Box
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient
from agt.data.records import Records
from agt.errors import ConfigError
from agt.kernels.select import load_kernel
from agt.mechanisms.judging import judge_claim
from agt.mechanisms.optimal import RandomizedResponse
from agt.models.box import BoxModel
from agt.relations import RELATIONS
from agt.relations.perturb import bound_moved_features, decode_deviations, encode_deviations
from agt.relations.relation import BoundSums
from agt.settings import QUANTA, ComputeConfig, KGridConfig, RelationConfig
from agt.training.loop import train
from agt.training.setup import TrainingSetup
from agt_audit.certificate import Certificate
from agt_audit.certificate_attacks import Auditor
from agt_cli.report.findings import Outcome

RULE = RELATIONS["perturb"]
RADIUS = 0.3
KS = (0, 1, 2)


# -- the rule


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("r", range(4))
def test_the_rule_is_the_extreme_over_every_set_of_records(kernel: str, r: int) -> None:
    """Of two parameters and five records; to two quanta for each that moved, as deviations are
    counted in twos.
    """
    rng = np.random.default_rng(r)
    for step in (1, 2, QUANTA // 4):
        least, greatest = (
            np.sort(
                rng.integers(-QUANTA // step // 2, QUANTA // step // 2 + 1, (2, 1, 5, 2)), axis=0
            )
            * step
        )
        low, high = (
            sign * rng.integers(0, QUANTA // step // 2 + 1, (1, 5, 2)) * step for sign in (-1, 1)
        )
        near, far = (
            Gradient("p", Interval(*(torch.from_numpy(end).double() for end in ends)), None)
            for ends in ((least, greatest), (least + low, greatest + high))
        )
        counts = torch.tensor([RULE.count_selected(r, 5, 3)])  # the last two records are public
        chosen = load_kernel(kernel).start_selection(counts, (2,), False, "exact")
        private = [Gradient("p", each.left_factor[:, :3], None) for each in (near, far)]
        for each in encode_deviations(*private, "exact"):
            chosen.update(each.left_factor, each.right_factor)
        sums = [torch.from_numpy(end.sum(axis=1)) for end in (least, greatest)]
        lower, upper = RULE.bound_direction(
            BoundSums(*sums, *decode_deviations(*chosen.result(), counts)),
            torch.tensor([r]),
            5,
            1.0,
            QUANTA,
        )
        moves = [list(rows) for rows in chain(*(combinations(range(3), k) for k in range(r + 1)))]
        lowest = np.min([sums[0].numpy() + low[:, rows].sum(axis=1) for rows in moves], axis=0)
        highest = np.max([sums[1].numpy() + high[:, rows].sum(axis=1) for rows in moves], axis=0)
        for beyond in (lowest - lower.numpy(), upper.numpy() - highest):
            assert (beyond >= 0).all()
            assert (beyond <= (min(r, 3) if step == 1 else 0)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_ball_holds_whatever_moves_within_the_radius_as_it_is_read(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    for radius, size in product((1e-40, 1e-9, 0.1, 1 / 3, 7.0), (1e-45, 1e-8, 0.1, 1.0, 1e7)):
        x = rng.normal(size=(400, 2)) * size
        x[0] = radius, -radius
        held = bound_moved_features(torch.from_numpy(x).to(dtype), radius, 3)
        assert held.shape == (3, 400, 2)
        for share in (-1.0, 1.0, rng.uniform(-1, 1, x.shape)):
            moved = x + share * radius
            within = abs(moved - x) <= radius  # but for rounding here
            assert (
                (held.lower <= torch.from_numpy(moved).to(dtype)) | ~torch.from_numpy(within)
            ).all()
            assert (
                (held.upper >= torch.from_numpy(moved).to(dtype)) | ~torch.from_numpy(within)
            ).all()
        assert held.upper.sub(held.lower).max() <= 2.001 * radius + 1e-5 * size + 1e-30


def test_a_ball_holds_what_is_read_with_fewer_digits() -> None:
    """-1 + 2^-26 is read as -1 by float32, and 2^-26, a radius of 1 away, as it is."""
    held = bound_moved_features(
        torch.tensor([[-1.0 + 2.0**-26, 1.0 - 2.0**-26]], dtype=torch.float64).float(), 1.0, 1
    )
    assert held.contains(torch.tensor([[2.0**-26, -(2.0**-26)]]))


# -- boxes


def recipe_of(
    ks: tuple[int, ...], unit_rows: int = 1, kernel: str = "cpu", **training: Any
) -> TrainingSetup:
    usual: dict[str, Any] = {"lr": 0.5, "clip": 0.5, "epochs": 3, "batch": {"normalizer": 4.0}}
    made = make_recipe(make_training(**(usual | training)), ks=ks)
    relation = RelationConfig("perturb", unit_rows=unit_rows, radius=RADIUS)
    return replace(made, relation=relation, compute=ComputeConfig(kernel=kernel))  # type: ignore[arg-type]


def images() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 1, 2)),
        nn.Conv2d(1, 2, (1, 2)),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(2, 2),
    )


HEADS: dict[str, tuple[nn.Sequential, dict[str, Any]]] = {
    "linear": (make_head(make_training(), 2, 2, ()), {}),
    "one output": (
        make_head(make_training(loss="binary_cross_entropy"), 2, 2, (3,)),
        {"loss": "binary_cross_entropy"},
    ),
    "relu": (make_head(make_training(), 2, 2, (4,)), {"kernel": "reference"}),
    "relu, float32": (make_head(make_training(), 2, 2, (4,)), {"dtype": "float32"}),
    "tanh, momentum": (
        make_head(make_training(), 2, 2, (3,), "tanh"),
        {"momentum": 0.5, "weight_decay": 0.1},
    ),
    "convolution": (images(), {}),
    "rump": (make_head(make_training(), 2, 2, (4,)), {"product": "rump"}),
}


def data(units: str = "abcde") -> Records:
    """Four private records, and a public one."""
    rng = np.random.default_rng(3)
    return make_records(
        rng.normal(size=(5, 2)), [0, 1, 1, 0, 1], units=list(units), public=[False] * 4 + [True]
    )


def moved(records: Records, rows: list[int], signs: np.ndarray) -> Records:
    features = np.array(records.features)
    features[rows] += RADIUS * signs
    return replace(records, features=features)


def corners(records: Records, k: int, rng: np.random.Generator, most: int) -> Iterator[Records]:
    """Every set of k private records at every corner of their balls, edges and centres; or so
    many of these, at random.
    """
    every = [
        (list(rows), np.array(at))
        for rows in combinations(range(4), k)
        for at in product((-1, 0, 1), repeat=2 * k)
    ]
    for place in rng.permutation(len(every))[:most]:
        rows, at = every[place]
        yield moved(records, rows, at.reshape(k, 2))


def outside(box: Box, index: int, nominal: Box) -> int:
    bounds = {name: interval[index : index + 1] for name, interval in box.bounds.items()}
    return sum(not bounds[name].contains(value) for name, value in nominal.nominal.items())


def escapes(name: str, radius: float = RADIUS, most: int = 60, count: int = 0) -> int:
    """Trainings on moved records that leave the box of as many k; of a box for another radius,
    or for ``count`` fewer.
    """
    head, training = HEADS[name]
    records = data()
    rng = np.random.default_rng(0)
    wide = recipe_of(KS, **training)
    box = train(head, replace(wide, relation=replace(wide.relation, radius=radius)), records)
    # the same steps, sooner
    again = replace(wide, kgrid=KGridConfig(values=(0,)), relation=RelationConfig("add_remove"))
    return sum(
        outside(box, KS.index(k - count), train(head, again, other)) > 0
        for k in KS[1:]
        for other in corners(records, k, rng, most)
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", HEADS)
def test_boxes_hold_every_training_on_records_that_moved(name: str) -> None:
    assert escapes(name) == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["linear", "relu", "convolution"])
def test_a_smaller_radius_or_one_record_fewer_does_not_hold_them(name: str) -> None:
    assert escapes(name, radius=RADIUS / 3, most=40) > 0
    assert escapes(name, most=40, count=1) > 0


def test_a_unit_moves_with_all_its_rows_and_public_records_do_not() -> None:
    head, training = HEADS["linear"]
    records = data("aabcd")
    rng = np.random.default_rng(0)
    ks = (0, 1, 4, 9)
    box = train(head, recipe_of(ks, 2, **training), records)
    single = train(head, recipe_of(ks, **training), data())
    again = replace(recipe_of((0,), **training), relation=RelationConfig("add_remove", unit_rows=2))
    for at in product((-1, 0, 1), repeat=4):
        assert not outside(
            box, 1, train(head, again, moved(records, [0, 1], np.array(at).reshape(2, 2)))
        )
    for name, interval in box.bounds.items():  # four private records are all that there are
        assert torch.equal(interval.lower[2], single.bounds[name].lower[2])
        assert torch.equal(interval.upper[2], interval.upper[3])
    far = (
        train(head, again, moved(records, [4], rng.choice([-9.0, 9.0], (1, 2)))) for _ in range(4)
    )
    assert any(outside(box, 3, each) for each in far)


def test_all_kernels_and_fragments_give_the_same_bits() -> None:
    head, training = HEADS["relu"]
    whole = train(head, recipe_of(KS, **training), data())
    for compute in (
        ComputeConfig(kernel="cpu", fragment=2),
        ComputeConfig(kernel="cpu", memory_mb=16),
    ):
        other = train(head, replace(recipe_of(KS, **training), compute=compute), data())
        for name, interval in whole.bounds.items():
            torch.testing.assert_close(interval.lower, other.bounds[name].lower, rtol=0, atol=1e-8)
            torch.testing.assert_close(interval.upper, other.bounds[name].upper, rtol=0, atol=1e-8)


# -- a run


def fitted(**given: Any) -> agt.Fitted:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = rng.normal(size=(40, 2)) * 0.6 + np.where(y == 1, 1, -1)[:, None]
    usual: dict[str, Any] = {
        "relation": "perturb",
        "radius": 0.1,
        "network": (4,),
        "certificate": "box",
        "ks": 3,
    }
    declared = agt.Declared(classes=[0, 1], size=40, features=True, settings=True)
    return agt.fit(
        x, y, declared=declared, **(usual | {"lr": 0.5, "clip": 0.2, "epochs": 3} | given)
    )


def audited(model: BoxModel) -> dict[str, Outcome]:
    extent = Certificate(neighbours=16, farthest=2, bounded=1, queries=10, lines=3, again=False)
    return {about: finding.outcome for about, finding in Auditor(model, extent, 0).run().items()}


def test_an_audit_moves_records_and_finds_bounds_for_a_smaller_radius() -> None:
    model = fitted().model
    assert isinstance(model, BoxModel)
    # Nothing is claimed of nesting and of stable distances, because a record may move twice.
    claimed = ("parameters", "certified labels", "labels within bounds", "batches and constants")
    assert audited(model) == dict.fromkeys(claimed, Outcome.NOT_CONTRADICTED)
    wider = replace(model.problem.settings, relation=RelationConfig("perturb", radius=0.4))
    assert (
        audited(replace(model, problem=replace(model.problem, settings=wider)))["parameters"]
        is Outcome.VIOLATED
    )


def test_nothing_is_released_by_it() -> None:
    model = fitted().model
    assert [c.letter for c in model.conditions if not c.held] == ["d"]
    for accounting in ("rigorous", "paper"):
        with pytest.raises(ConfigError, match="relation=perturb"):
            judge_claim(
                model.conditions,
                model.problem.settings.relation,
                RandomizedResponse(eps=1.0),
                accounting,
            )  # type: ignore[arg-type]


def test_it_is_refused_where_nothing_is_proved() -> None:
    refused(
        *(
            (
                ConfigError,
                "relation=perturb: .*certificate=box",
                lambda kind=kind: fitted(certificate=kind, network=(), ks=3),
            )
            for kind in ("stability", "erm", "removal")
        ),
        (ConfigError, "may move to another batch", lambda: fitted(members=2)),
        (
            ConfigError,
            "may move to another batch",
            lambda: fitted(certificate="votes", network=(), members=2),
        ),
        (ConfigError, "may move to another batch", lambda: fitted(batch={"count": 2})),
        (ConfigError, "radius must be given", lambda: fitted(radius=None)),
        (ConfigError, "radius must be given", lambda: fitted(relation="add_remove")),
    )
