"""What training is made of: batches, shards, steps, bounds on eigenvalues, and the solver of
regularised problems with a linear term.
"""

import glob
import os
import tempfile
import threading
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from commands import members_in_processes
from scipy.special import expit
from synthetic import ball, make_recipe, make_records, make_training, refused

import agt
from agt.data.records import Records
from agt.errors import AgtError, ConfigError
from agt.settings import BatchConfig, default_n_max
from agt.training import ensemble, erm_with_linear_term, spectral
from agt.training.batches import BatchPlan, check_unit_rows
from agt.training.checkpoint import Checkpoints
from agt.training.ensemble import assign_shards, member_records, train_members
from agt.training.erm_with_linear_term import (
    ErmWithLinearTerm,
    clamped_logistic_smoothness,
    minimiser_norm_bound,
    smallest_tolerance,
    solve,
)
from agt.training.settings import EnsembleConfig
from agt.training.setup import TrainingSetup
from agt.training.sgd import Sgd, descend, learning_rate
from agt.training.spectral import largest_eigenvalue, prove_eigenvalue_bound

# -- batches
# --------------------------------------------------------------------------------------------------


def plan(count: int = 4, epochs: int = 3, key: str = "agt", n_max: int = 1000) -> BatchPlan:
    return BatchPlan.from_settings(
        BatchConfig(count=count, normalizer=5.0, n_max=n_max, key=key), epochs, None, 0
    )


def names(n: int) -> np.ndarray:
    return np.array([f"unit{i}" for i in range(n)])


def homes(batch_plan: BatchPlan, units: np.ndarray) -> list[dict[str, int]]:
    """For each epoch: unit -> batch."""
    batches = [units[rows].tolist() for rows in batch_plan.batches(units)]
    epochs = [batches[i : i + batch_plan.count] for i in range(0, len(batches), batch_plan.count)]
    return [{u: index for index, batch in enumerate(epoch) for u in batch} for epoch in epochs]


@pytest.mark.parametrize("size", [2.0**30, 1e18, 1e308])
def test_a_batch_larger_than_sums_are_proved_for_is_refused(size: float) -> None:
    with pytest.raises(ConfigError, match=r"training\.batch\.n_max"):
        BatchPlan.from_settings(BatchConfig(), 1, size, 0)
    assert BatchPlan.from_settings(BatchConfig(n_max=2**30), 1, 2.0**29, 0).n_max == 2**30


def test_every_row_is_in_one_batch_of_each_epoch() -> None:
    units = names(100)
    batches = list(plan().batches(units))
    assert len(batches) == plan().steps == 12
    for epoch in (batches[i : i + 4] for i in range(0, 12, 4)):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(100))
        assert all((np.diff(rows) > 0).all() for rows in epoch)


@pytest.mark.parametrize("edit", ["remove", "add", "shuffle", "double"])
def test_a_units_batches_do_not_depend_on_the_others(edit: str) -> None:
    rng = np.random.default_rng(0)
    units = names(60)
    other = {
        "remove": units[rng.random(60) < 0.7],
        "add": np.array([*units, "a", "another unit with a much longer name"]),
        "shuffle": rng.permutation(units),
        "double": np.repeat(units, 2),
    }[edit]
    for before, after in zip(homes(plan(), units), homes(plan(), other), strict=True):
        assert all(after[u] == home for u, home in before.items() if u in after)


def test_rows_of_a_unit_share_their_batches() -> None:
    units = np.repeat(names(20), 3)
    for rows in plan().batches(units):
        kept, counts = np.unique(units[rows], return_counts=True)
        assert (counts == 3).all() or not len(kept)


def test_epochs_and_keys_lay_records_anew() -> None:
    units = names(200)
    epochs = homes(plan(), units)
    assert all(a != b for a, b in pairwise(epochs))
    assert homes(plan(key="other"), units) != epochs
    assert max(len(rows) for rows in plan(n_max=5000).batches(names(4000))) < 1.15 * 1000


def test_empty_batches_are_kept_and_no_records_are_fine() -> None:
    assert [len(rows) for rows in plan(count=50).batches(names(2))].count(0) == 150 - 6
    assert [len(rows) for rows in plan().batches(names(0))] == [0] * 12


def test_the_only_batch_has_every_record_without_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("agt.training.batches.keyed_hash")
    batches = list(plan(count=1, n_max=10).batches(names(7)))
    assert [rows.tolist() for rows in batches] == [list(range(7))] * 3


def test_a_batch_above_n_max_stops_before_the_first_step() -> None:
    batches = plan(count=1, n_max=10).batches(names(11))
    with pytest.raises(ConfigError, match=r"\b11\b.*training\.batch\.n_max.*\b10\b"):
        next(iter(batches))
    assert len(next(iter(plan(count=1, n_max=10).batches(names(10))))) == 10


@pytest.mark.parametrize(
    ("config", "declared_size", "normalizer", "declared"),
    [
        (BatchConfig(count=4, normalizer=9.0), None, 9.0, True),
        (BatchConfig(count=4), 100, 25.0, True),
        (BatchConfig(count=4), None, 30.0, False),  # from the data: condition c is not held
        (BatchConfig(count=4, normalizer=9.0), 100, 9.0, True),
    ],
)
def test_where_the_normaliser_comes_from(
    config: BatchConfig, declared_size: int | None, normalizer: float, declared: bool
) -> None:
    made = BatchPlan.from_settings(config, 1, declared_size, 120)
    assert (made.normalizer, made.declared, made.n_max) == (
        normalizer,
        declared,
        default_n_max(normalizer),
    )
    assert made.n_max >= 1.1 * normalizer


def test_n_max_below_its_floor_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"n_max=10\b.*\b11\b"):
        BatchPlan.from_settings(BatchConfig(normalizer=10.0, n_max=10), 1, None, 5)


def test_the_cap_on_a_units_rows() -> None:
    units = np.array(["a", "b", "b"])
    check_unit_rows(units, 2)
    check_unit_rows(np.array([], dtype=str), 1)
    with pytest.raises(ConfigError, match=r"'b'.*\b2\b.*relation\.unit_rows.*\b1\b"):
        check_unit_rows(units, 1)


# -- ensemble
# --------------------------------------------------------------------------------------------------


SEVEN = EnsembleConfig(members=7)


def summary(
    setup: TrainingSetup, records: Records, checkpoints: Checkpoints
) -> tuple[list[str], float | None]:
    """A stand-in for training: what a member was given."""
    return records.ids.tolist(), setup.declared_size


def test_every_record_has_one_shard_and_units_stay_together() -> None:
    units = np.array([f"unit{i // 3}" for i in range(300)])
    home = assign_shards(units, SEVEN)
    assert home.min() >= 0
    assert len(np.unique(home)) == 7
    for unit in np.unique(units):
        assert len(np.unique(home[units == unit])) == 1


def test_a_record_gone_changes_one_shard_alone() -> None:
    units = np.array([f"unit{i}" for i in range(200)])
    home = assign_shards(units, SEVEN)
    for gone in (0, 57, 199):
        kept = np.arange(200) != gone
        assert np.array_equal(assign_shards(units[kept], SEVEN), home[kept])


def test_another_key_deals_otherwise() -> None:
    units = np.array([f"unit{i}" for i in range(200)])
    one, other = (EnsembleConfig(members=7, key=key) for key in ("agt", "other"))
    assert (assign_shards(units, one) != assign_shards(units, other)).any()


@pytest.mark.parametrize("threads", [1, 2], ids=["one process", "two processes"])
def test_members_get_their_shards_in_order(threads: int) -> None:
    records = make_records(np.zeros((40, 3)), np.arange(40) % 2).take(
        np.random.default_rng(0).permutation(40)
    )
    done: list[int] = []
    given = train_members(
        summary,
        make_recipe(make_training(), declared_size=70, threads=threads),
        records,
        SEVEN,
        done.append,
    )
    home = assign_shards(records.units, SEVEN)
    assert [ids for ids, _ in given] == [
        sorted(records.ids[home == shard].tolist()) for shard in range(7)
    ]
    assert {size for _, size in given} == {10.0}
    assert done == list(range(1, 8))


def test_a_vote_of_margins_comes_with_its_clip_and_of_two_classes() -> None:
    assert EnsembleConfig(members=3) == EnsembleConfig(3, "agt", "labels", None)
    for given in ({"vote": "margins"}, {"margin_clip": 1.0}):
        with pytest.raises(ConfigError, match=r"vote=margins.*margin_clip"):
            EnsembleConfig(members=3, **given)
    with pytest.raises(ConfigError, match=r"EnsembleConfig\.margin_clip"):
        EnsembleConfig(members=3, vote="margins", margin_clip=0.0)
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = np.arange(60) % 3
    three = agt.Declared(classes=[0, 1, 2], size=60)
    refused(
        (
            ConfigError,
            "vote=margins needs several members, but members=1",
            lambda: agt.fit(
                x, y % 2, declared=agt.Declared(classes=[0, 1]), vote="margins", margin_clip=1.0
            ),
        ),
        (
            ConfigError,
            "vote=margins adds up one margin per ensemble member",
            lambda: agt.fit(x, y, declared=three, members=2, vote="margins", margin_clip=1.0),
        ),
    )


def test_shards_lie_in_memory_of_their_own_at_one_alignment() -> None:
    """A matrix product may round otherwise at another address: where a shard lies must not tell
    about other shards.
    """
    rng = np.random.default_rng(0)
    features = rng.normal(size=(41, 3))
    for start in range(4):
        shifted = make_records(features[start:], rng.integers(0, 2, 41 - start))
        for part in member_records(shifted, EnsembleConfig(members=2)):
            assert part.features.ctypes.data % 64 == 0
            assert not np.shares_memory(part.features, features)


def test_records_on_their_way_to_other_processes_lie_in_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """joblib would map arrays above a megabyte to files below /dev/shm that every local user may
    read.
    """

    # sent by value, as a function inside another is: the processes do not import this file
    def size_of(setup: TrainingSetup, records: Records, checkpoints: Checkpoints) -> int:
        time.sleep(0.2)
        return len(records)

    monkeypatch.setattr(ensemble, "_divide_cores", lambda config, compute: (2, 1))
    n = 60_000
    seen = set[str]()
    done = threading.Event()
    ids = np.array([f"{at}" for at in range(n)])
    records = Records(
        np.zeros((n, 8)), np.zeros(n, dtype=np.int64), ids, ids, np.zeros(n, dtype=bool)
    )
    # Only the folders of this process: other tests run at the same time.
    pattern = f"joblib_memmapping_folder_{os.getpid()}_*/*"
    places = ("/dev/shm", tempfile.gettempdir())

    def mapped_files() -> set[str]:
        # glob.glob, unlike Path.glob, passes over folders that disappear while it reads them.
        return {file for place in places for file in glob.glob(f"{place}/{pattern}")}

    before = mapped_files()

    def look() -> None:
        while not done.wait(0.05):  # a job takes longer
            seen.update(mapped_files())

    watch = threading.Thread(target=look)
    watch.start()
    try:
        with members_in_processes():
            sizes = train_members(
                size_of, make_recipe(make_training()), records, EnsembleConfig(members=2)
            )
    finally:
        done.set()
        watch.join()
    assert sum(sizes) == n
    assert min(sizes) * 8 * 8 > 2**20, "arrays that joblib would map"
    assert seen - before == set()


# -- optimizer
# --------------------------------------------------------------------------------------------------


SETTINGS = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.7, "dampening": 0.3},
    {"momentum": 0.5, "weight_decay": 0.4},
    {"momentum": 0.6, "nesterov": True, "weight_decay": 0.2, "decay": 0.5, "lr_min": 0.02},
    {"weight_decay": 10.0},  # lr * wd = 1: the parameters are forgotten
]


def walk(config, theta: torch.Tensor, gradients: list[torch.Tensor]) -> torch.Tensor:  # type: ignore[no-untyped-def]
    sgd = Sgd(config)
    for step, g in enumerate(gradients):
        theta = descend(config, learning_rate(config, step), theta, sgd.update(("p", 0), g))
    return theta


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_box_holds_every_sequence_of_gradients_bitwise(
    settings: dict, dtype: torch.dtype
) -> None:
    config = make_training(**settings)
    rng = np.random.default_rng(0)
    theta = torch.from_numpy(rng.normal(size=7)).to(dtype)
    ends = [torch.from_numpy(rng.normal(size=(25, 7))).to(dtype) for _ in range(2)]
    low = torch.minimum(*ends)
    high = torch.maximum(*ends)
    lower = theta
    upper = theta
    down = Sgd(config)
    up = Sgd(config)
    for step in range(25):
        lr = learning_rate(config, step)
        # As in training: theta's lower bound takes the update's upper one.
        updates = down.update(("p", 0), low[step]), up.update(("p", 0), high[step])
        lower = descend(config, lr, lower, updates[1])
        upper = descend(config, lr, upper, updates[0])
    for index in range(200):
        share = torch.from_numpy(
            rng.integers(0, 2, (25, 7)) if index % 2 else rng.random((25, 7))
        ).to(dtype)
        inside = torch.minimum(torch.maximum(low + share * (high - low), low), high)
        end = walk(config, theta, list(inside))
        assert ((lower <= end) & (end <= upper)).all()


def test_the_schedule() -> None:
    config = make_training(lr=2.0, decay=0.5, lr_min=0.3)
    assert [learning_rate(config, n) for n in (0, 1, 2, 100)] == [2.0, 2.0 / 1.5, 1.0, 0.3]
    assert learning_rate(make_training(lr=0.1), 10**6) == 0.1


def test_groups_of_k_keep_their_own_buffers() -> None:
    sgd = Sgd(make_training(momentum=0.5))
    one = torch.ones(2)
    sgd.update(("p", 0), one)
    assert sgd.update(("p", 3), one).tolist() == [1, 1]
    assert sgd.update(("q", 0), one).tolist() == [1, 1]
    assert sgd.update(("p", 0), one).tolist() == [1.5, 1.5]


# -- spectral
# --------------------------------------------------------------------------------------------------


def hidden():
    """(a matrix, its largest eigenvalue): no start that lies in the last 20 coordinates ever
    sees it.
    """
    top = np.ones((20, 20)) / 20 * 10.0
    matrix = np.zeros((40, 40))
    matrix[:20, :20], matrix[20:, 20:] = top, np.diag(np.linspace(1, 9, 20))
    return matrix, 10.0


def power(matrix, start, steps=1000):
    for _ in range(steps):
        start = matrix @ (start / np.linalg.norm(start))
    return np.linalg.norm(start)


def test_a_power_iteration_would_stop_too_low_and_the_bound_does_not():
    matrix, top = hidden()
    # the longest column: a natural start, orthogonal to the eigenvector
    start = matrix[:, int(np.diag(matrix).argmax())]
    assert power(matrix, start) < top - 0.9
    assert top <= largest_eigenvalue(matrix) <= top * (1 + 1e-5)


def test_an_estimate_that_is_too_low_is_not_proved():
    matrix, top = hidden()
    assert prove_eigenvalue_bound(matrix, 9.5) is None
    assert prove_eigenvalue_bound(matrix, 10.001) >= top


def test_a_guess_that_is_too_low_is_not_the_bound(monkeypatch):
    matrix, top = hidden()
    monkeypatch.setattr(
        spectral, "_estimate_largest_eigenvalue", lambda _: 9.0
    )  # a guess from a blind iteration
    assert top <= largest_eigenvalue(matrix) <= 2 * top
    monkeypatch.setattr(spectral, "_estimate_largest_eigenvalue", lambda _: 0.01)  # a hopeless one
    assert largest_eigenvalue(matrix) >= np.trace(matrix)


@pytest.mark.parametrize("seed", range(20))
def test_never_below_the_exact_one(seed):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    values = np.sort(rng.pareto(0.5, size=30))
    matrix = (basis * values) @ basis.T
    matrix = (matrix + matrix.T) / 2
    assert values[-1] <= largest_eigenvalue(matrix, 1e-13 * values[-1]) <= values[-1] * (1 + 1e-4)


def test_what_may_hide_within_the_error_is_added():
    assert largest_eigenvalue(np.eye(3), 0.5) == pytest.approx(1.5, rel=1e-5)
    assert 0 <= largest_eigenvalue(np.zeros((4, 4))) < 1e-200
    assert 1e-3 <= largest_eigenvalue(np.zeros((4, 4)), 1e-3) <= 4.1e-3


def test_a_matrix_whose_last_eigenpair_alone_lapack_does_not_find() -> None:
    half = np.array([[1, 0, 0], [0, 1, 0], [1 / np.sqrt(2), 0, 1 / np.sqrt(2)]])
    assert largest_eigenvalue(half.T @ half) >= float(np.linalg.eigvalsh(half.T @ half)[-1]) - 1e-14


# -- training ERM with a linear term
# --------------------------------------------------------------------------------------------------


CLAMPS = (1.0, 0.5, 0.3)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_gradient_and_hessian_are_the_values_derivatives(clamp: float) -> None:
    x, y = ball(40, 3)
    erm = ErmWithLinearTerm(x, 2.0 * y - 1, 0.7, clamp, np.array([0.1, -2.0, 0.3]))
    rng = np.random.default_rng(1)
    for _ in range(5):
        theta = 3 * rng.normal(size=3)
        step = 1e-5
        ends = [(theta + step * e, theta - step * e) for e in np.eye(3)]
        slope = [(erm.value(a) - erm.value(b)) / (2 * step) for a, b in ends]
        curve = [(erm.gradient(a) - erm.gradient(b)) / (2 * step) for a, b in ends]
        np.testing.assert_allclose(erm.gradient(theta), slope, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(erm.hessian(theta), curve, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_the_losses_bounds(clamp: float) -> None:
    p = expit(np.linspace(-20, 20, 100_001))
    assert np.where(p < clamp, p * (1 - p), 0).max() == pytest.approx(
        clamped_logistic_smoothness(clamp), rel=1e-3
    )
    assert np.where(p < clamp, p * (1 - p), 0).max() <= clamped_logistic_smoothness(clamp)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_the_gradients_norm_is_bounded_above_rounding_included(clamp: float) -> None:
    x, y = ball(3000, 5)
    erm = ErmWithLinearTerm(x, 2.0 * y - 1, 0.5, clamp, np.full(5, 0.2))
    solved = solve(erm, 1e-9)
    wide = x.astype(np.longdouble)
    assert np.finfo(np.longdouble).eps < 1e-18
    for step in range(40):  # whether rounding raises a norm or lowers it is chance
        theta = solved + step * 1e-14
        t = theta.astype(np.longdouble)
        weight = np.minimum(1 / (1 + np.exp(erm.y * (wide @ t))), np.longdouble(clamp))
        exact = np.linalg.norm((-(wide.T @ (erm.y * weight)) + 0.5 * t + erm.tilt).astype(float))
        assert exact <= erm.gradient_norm_bound(theta) <= 1e-9
    assert erm.gradient_norm_bound(solved + 0.01) > 1e-3


def test_a_tolerance_that_rounding_forbids_releases_nothing() -> None:
    x, y = ball(500, 3)
    with pytest.raises(AgtError, match=r"tolerance=1e-16"):
        solve(ErmWithLinearTerm.from_labels(x, y, 1.0, 1.0), 1e-16)


@pytest.mark.parametrize("row", [0, 1500])
def test_a_record_that_is_not_a_number_is_refused_in_whichever_block_it_lies(row: int) -> None:
    x, y = ball(3000, 2)
    x[row, 1] = np.nan
    with pytest.raises(ConfigError, match="norm nan"):
        ErmWithLinearTerm.from_labels(x, y, 1.0, 1.0)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_where_newtons_steps_do_not_do_the_public_number_of_others_does(
    clamp: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = ball(300, 4)
    for strength, pull in ((0.3, 0.0), (5.0, 30.0)):
        tilt = np.full(4, pull / 2)
        erm = replace(
            ErmWithLinearTerm.from_labels((0.999 * x).astype(np.float32), y, strength, clamp),
            tilt=tilt,
        )
        least = smallest_tolerance(330, 4, clamp, strength, pull)
        by_newton = solve(erm, least, np.ones(4))
        with monkeypatch.context() as patched:
            patched.setattr(erm_with_linear_term, "NEWTON_STEPS", 0)
            other = solve(erm, least, max_records=330)
        assert np.linalg.norm(by_newton - other) <= 2 * least / strength < 1e-9
        assert np.linalg.norm(other) <= minimiser_norm_bound(300, strength, pull)
