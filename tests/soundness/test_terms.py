"""Single terms of the formal guarantees, by hand: where other tests would need luck, or a long
run, to miss one of them.
"""

import math
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri
from synthetic import make_recipe, make_records, make_training

from agt.bounds.interval import Interval
from agt.bounds.rounding import Rounding
from agt.certificates.box import bound_binary_margins, certify_labels, count_grid_steps
from agt.certificates.conditions import Condition, weaker_conditions
from agt.certificates.requirements import REQUIRED_CONDITIONS
from agt.certificates.stability import certify_linear, compute_linear_envelope
from agt.certificates.votes import certified_vote
from agt.errors import CheckError
from agt.facts import evidence, not_held, proved
from agt.ledger.book import Charge, Population
from agt.ledger.chain import START, Head
from agt.ledger.head_file import HeadFile
from agt.ledger.ledger import Ledger
from agt.ledger.lots import LotPayer
from agt.ledger.payer import NoPayer
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.argmax import NoisyArgmax
from agt.mechanisms.budget import Allowance, Cost, Lot
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, PureDP
from agt.mechanisms.objective import (
    SOLVER_SHARE as OBJECTIVE_SHARE,
    ObjectiveNoises,
    ProblemConstants,
)
from agt.mechanisms.quantile import two_sided_geometric
from agt.mechanisms.tables import DRAW_VALUES, GaussianRule, rule_for_guarantee
from agt.mechanisms.weights import noise_scale
from agt.numeric import UNIT, gaussian_mu, step_of
from agt.settings import RelationConfig
from agt.store.atomic import write_atomic
from agt.training.erm import erm_sensitivity, train_erm
from agt.training.linear import LinearTrained
from agt.training.objective import ComputedGradient
from agt.training.removal import RemovalProblem, removal_budget
from agt.training.sensitivity import (
    LinearLoss,
    LinearSetting,
    Sensitivity,
    StepCoefficients,
    sgd_sensitivity,
)
from agt.training.settings import RemovalConfig
from agt.training.spectral import prove_eigenvalue_bound
from agt.unlearning.bounded_matrix import BoundedMatrix, Factor
from agt.unlearning.newton_promise import joint_epsilon
from agt.unlearning.sisa import answerable
from agt_cli.releasing.label_table import public_names
from agt_cli.releasing.session import Session
from agt_cli.releasing.writing import LabelsFile
from agt_cli.report import record
from agt_cli.runs.pending import _append

LOSS = LinearLoss.from_settings(make_training(loss="binary_cross_entropy", clip=1.0), 2)


# -- rounding


def test_the_widening_of_k_is_2_k_plus_2_times_tau() -> None:
    rounding = Rounding.for_grid((0, 1, 5), torch.float64, torch.device("cpu"))
    wide = rounding.widen((torch.zeros(3, 1, 1).double(), torch.zeros(3, 1, 1).double()), 1.0)
    assert wide.upper.flatten().tolist() == [2, 4, 12]
    assert wide.lower.flatten().tolist() == [-2, -4, -12]


@pytest.mark.parametrize("length", [1, 100, 10_000])
def test_the_rounding_of_a_sum_grows_with_its_length_and_covers_underflow(length: int) -> None:
    """Any order of n additions errs by n u times the sizes' sum at most; each of 2 n operations
    loses a tiny number.
    """
    rounding = Rounding.for_grid((0,), torch.float64, torch.device("cpu"))
    one, none = (
        float(rounding.sum_error(length, torch.tensor([size], dtype=torch.float64)))
        for size in (1.0, 0.0)
    )
    assert one >= length * UNIT
    assert none >= 2 * length * torch.finfo(torch.float64).tiny


@pytest.mark.parametrize("form", ["dot product", "bias alone"])
def test_what_a_linear_layer_rounds_by_counts_its_bias(form: str) -> None:
    rounding = Rounding.for_grid((0,), torch.float64, torch.device("cpu"))
    ones = torch.ones(1, 1, 3).double()
    weight = Interval.point(
        torch.zeros(1, 2, 3).double() if form == "bias alone" else torch.ones(1, 2, 3).double()
    )
    bias = Interval.point(torch.full((1, 2), 2.0**40).double())
    assert float(rounding.dot_error(Interval.point(ones), weight, bias)) >= 2.0**40 * UNIT


# -- certified labels


def bounded(
    lower: float, upper: float, outputs: int = 1, on_the_way: float = 0.0
) -> SimpleNamespace:
    """A network whose logit, or each margin of three classes, has these bounds, after another
    number.
    """

    def bounds(*given: object) -> Interval:
        Interval.point(torch.full((1, 1, 1), on_the_way, dtype=torch.float64))
        return Interval(
            torch.full((1, 1, 1), lower, dtype=torch.float64),
            torch.full((1, 1, 1), upper, dtype=torch.float64),
        )

    loss = SimpleNamespace(threshold=0.5)
    return SimpleNamespace(
        outputs=outputs, loss=loss, bound_logits=bounds, bound_hidden=bounds, bound_margins=bounds
    )


@pytest.mark.parametrize(
    ("lower", "upper", "label", "outputs", "on_the_way", "held"),
    [
        (0.5, 1.0, 1, 1, 0.0, False),  # on the threshold
        (np.nextafter(0.5, 1), 1.0, 1, 1, 0.0, True),
        (0.0, 0.5, 0, 1, 0.0, False),
        (0.0, np.nextafter(0.5, 0), 0, 1, 0.0, True),
        (0.0, 1.0, 2, 3, 0.0, False),  # a tie of several classes
        (5e-324, 1.0, 2, 3, 0.0, True),
        (0.6, 1.0, 1, 1, math.inf, False),  # a bound before it overflowed
        (1.0, 2.0, 2, 3, math.nan, False),
    ],
)
def test_a_label_is_certified_strictly_on_its_side_and_where_nothing_overflows(
    lower: float, upper: float, label: int, outputs: int, on_the_way: float, held: bool
) -> None:
    network = bounded(lower, upper, outputs, on_the_way)
    nothing = torch.zeros(1, 1)
    assert certify_labels(network, nothing, torch.tensor([label]), {}, None).tolist() == [[held]]  # type: ignore[arg-type]


@pytest.mark.parametrize("on_the_way", [math.inf, -math.inf, math.nan])
def test_nothing_is_known_of_a_margin_whose_bounds_overflow(on_the_way: float) -> None:
    network = bounded(0.6, 1.0, on_the_way=on_the_way)
    low, high = bound_binary_margins(network, torch.zeros(1, 1), {}, None)  # type: ignore[arg-type]
    assert (low.item(), high.item()) == (-math.inf, math.inf)
    assert not certify_labels(network, torch.zeros(1, 1), torch.tensor([1]), {}, None).any()  # type: ignore[arg-type]


def test_steps_of_a_grid_end_at_its_first_gap() -> None:
    certified = np.array([[True, True, False], [True, False, True], [False, True, True]])
    assert count_grid_steps((0, 1, 2), certified).tolist() == [1, 0, 0]
    assert count_grid_steps((1, 5, 9), certified).tolist() == [2, 1, 0]


# -- linear heads


def setting(relation: str = "add_remove", **training: object) -> LinearSetting:
    batch = {"count": 1, "normalizer": 50.0, "n_max": 60, **training.pop("batch", {})}  # type: ignore[dict-item]
    config = make_training(
        **{"loss": "binary_cross_entropy", "clip": 1.0, "lr": 1.0, **training, "batch": batch}
    )
    return LinearSetting.from_training_setup(make_recipe(config, relation), 50, 3)


def test_a_step_is_let_through_up_to_the_longest_that_does_not_expand() -> None:
    at = StepCoefficients(decay_factor=0.5, step_size=1.0)  # s h n <= 2 a with h = 1/4: n <= 4
    assert [at.may_expand(LOSS, n) for n in (1, 4, 5)] == [False, False, True]


def test_rho_is_what_the_worst_dealing_of_one_record_moves_the_head_by() -> None:
    given = setting(
        epochs=3,
        lr=0.4,
        decay=0.3,
        weight_decay=0.5,
        batch={"count": 2, "normalizer": 25.0, "n_max": 28},
    )
    steps = [StepCoefficients.at_step(given.training, given.plan, t) for t in range(6)]
    worst = Fraction(0)
    for batches in product(range(2), repeat=3):  # which one of each epoch
        moved = Fraction(0)
        for t, at in enumerate(steps):
            moved = moved * Fraction(at.decay_factor) + Fraction(at.step_size) * (
                batches[t // 2] == t % 2
            )
        worst = max(worst, moved)
    rho = sgd_sensitivity(given).rho
    assert worst <= rho <= float(worst) * (1 + 1e-12)


def test_a_sensitivity_has_rounding_and_every_row_in_it() -> None:
    known = Sensitivity(rho=1.0, rounding=0.5, radius=1.0, rate_limit=None, records_per_edit=6)
    assert 1.5 <= known.rho_fp < 1.5001
    assert 9.0 <= known.per_k < 9.001


def test_a_residual_has_in_it_what_rounding_may_hide() -> None:
    assert ComputedGradient(np.array([[3.0, 4.0]]), 0.5).norm_bound >= 5.5


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_two_minimisers_lie_apart_by_two_tolerances_more(relation: str) -> None:
    given = setting(relation, weight_decay=0.01)
    found = erm_sensitivity(given, 1e-6)
    assert found.rounding >= 2 * Fraction(1e-6) / Fraction(0.01)
    assert found.records_per_edit == (2 if relation == "substitute" else 1)


def test_the_minimisers_gradient_is_within_the_tolerance() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3)) / 4
    data = make_records(x, (x[:, 0] > 0).astype(int))
    config = setting(weight_decay=0.01).training
    theta = train_erm(make_recipe(config), data, 1e-5).weight[0].numpy().astype(np.longdouble)
    pull = 1 / (1 + np.exp(-(x @ theta))) - data.labels
    assert float(np.linalg.norm((x.T @ pull / 50 + 0.01 * theta).astype(float))) <= 1e-5


def head_of(weight: float, rho: float = 0.25, radius: float = 10.0) -> LinearTrained:
    given = setting()
    known = Sensitivity(rho, 0.0, radius, None, 1)
    return LinearTrained(
        torch.tensor([[weight]], dtype=torch.float64), LOSS, given.plan, known, given.training
    )


def test_a_margin_of_exactly_j_steps_withstands_one_less() -> None:
    query = np.ones((1, 1))
    step = -float(compute_linear_envelope(head_of(0.0), query, (1,)).lower[0, 0])
    for j in (1, 2, 3, 8):
        assert certify_linear(head_of(j * step), query, "add_remove", (0, 1)).distance.tolist() == [
            j - 1
        ]


@pytest.mark.parametrize("radius", [1.0, 1e6])
def test_two_computed_margins_round_even_where_no_record_counts(radius: float) -> None:
    bounds = compute_linear_envelope(head_of(0.0, rho=0.0, radius=radius), np.ones((1, 1)), (1,))
    assert float(bounds.upper[0, 0]) >= 2 * radius * UNIT
    assert (
        not certify_linear(
            head_of(radius * UNIT, 0.0, radius), np.ones((1, 1)), "add_remove", (0, 1)
        )
        .certified[1]
        .any()
    )


# -- removal


def removal(loss: str = "logistic", masking: str = "none", sigma: float = 0.0) -> RemovalProblem:
    config = RemovalConfig(loss=loss, masking=masking, sigma=sigma, tolerance=1e-4)  # type: ignore[arg-type]
    given = setting()
    return RemovalProblem.from_plan(config, given.plan, given.relation, 0.01, np.zeros((1, 3)))


@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
def test_two_states_lie_apart_by_both_residuals_and_a_records_steepest_pull(loss: str) -> None:
    problem = removal(loss, *(("output", 0.1) if loss == "logistic" else ()))
    found = problem.sensitivity(1e-4)
    s = problem.objective.strength
    assert found.rounding >= 2 * 1e-4 / s
    longest = 1.0 if loss == "logistic" else 1 + math.sqrt(problem.plan.n_max / s) / 2
    assert found.rho >= longest / s


def test_one_record_moves_the_minimiser_almost_as_far_as_its_bound() -> None:
    """Lemma 2 of docs/proofs/removal.md: many short records, and a long one against them."""
    records = 1000
    length = 0.0112  # of the records
    given = setting(batch={"normalizer": float(records), "n_max": records + 100})
    config = RemovalConfig(loss="logistic", masking="output", sigma=0.1, tolerance=1e-4)
    problem = RemovalProblem.from_plan(config, given.plan, given.relation, 0.001, np.zeros((1, 1)))
    strength = problem.objective.strength

    def gradient(weight: float, added: int) -> float:
        from_records = -records * length * expit(-length * weight)
        return float(strength * weight + from_records + added * expit(weight))

    before, after = (brentq(gradient, 0, 1000, args=(added,)) for added in (0, 1))
    distance = before - after
    rho = problem.sensitivity(1e-4).rho
    assert 0.95 * rho < distance <= rho


def test_what_noise_hides_covers_both_what_is_left_and_what_training_leaves() -> None:
    problem = removal(masking="output", sigma=0.1)
    config = problem.config
    s = problem.objective.strength
    budget = removal_budget(config, s)
    assert budget is not None
    assert (budget + config.tolerance) / s <= config.sigma * gaussian_mu(config.eps, config.delta)


@pytest.mark.parametrize("states", [4, 25])
def test_states_add_up_by_the_root_of_their_number(states: int) -> None:
    eps = 0.3
    delta = 1e-6
    assert gaussian_mu(joint_epsilon(eps, delta, states), delta) >= math.sqrt(states) * gaussian_mu(
        eps, delta
    ) * (1 - 1e-9)


def test_a_query_is_not_answered_where_an_unknown_vote_could_draw_level_for_a_smaller_class() -> (
    None
):
    pending = np.array([0, 1])
    # of two votes one is unknown: level, which class 0 wins
    for winner, answered in ((1, False), (0, True)):
        labels = np.array([[winner], [winner]])
        assert answerable(np.array([[5], [0]]), labels, pending).tolist() == [answered]


# -- votes


@pytest.mark.parametrize(
    ("labels", "distances", "touches", "expected"),
    [
        ([0, 1], [5, 7], 1, 5),  # level, for class 0: one who leaves turns it, at 6
        ([1, 1, 0], [5, 7, 0], 1, 5),  # one who leaves 1 is enough
        ([0, 0, 1], [5, 7, 0], 1, 5),  # two ahead, with the tie: still one who leaves
        ([0, 0, 0], [1, 2, 4], 1, 4),  # two of them: 2 + 3, less one
        ([1, 1, 1], [1, 2, 4], 2, 2),  # the same where one edit changes two
    ],
)
def test_the_distance_of_a_vote(
    labels: list[int], distances: list[int], touches: int, expected: int
) -> None:
    vote = certified_vote(np.array(labels)[:, None], np.array(distances)[:, None], touches=touches)
    assert vote.distance.tolist() == [expected]


# -- conditions


@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_assessments_the_weaker_stands(swapped: bool) -> None:
    held, broken = (
        Condition("a", "dense grid", evidence(fact))
        for fact in (proved("own_words", text="it is"), not_held("own_words", text="it is not"))
    )
    then, now = (broken, held) if swapped else (held, broken)
    assert [condition.held for condition in weaker_conditions([then], [now])] == [False]


def test_what_mechanisms_rest_on() -> None:
    assert REQUIRED_CONDITIONS == {
        "distance": "abcdefg",
        "votes": "bceg",
        "counts": "beg",
        "nothing": "eg",
    }


# -- mechanisms


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize(("eps", "delta"), [(0.1, 0.0), (1.0, 0.0), (0.1, 1e-3), (1.0, 1e-2)])
def test_entries_keep_the_inequalities_whatever_is_wished(
    eps: float, delta: float, classes: int
) -> None:
    """thresholds 1 to 4, with exp rounded up by 10^-15 and delta the decimal."""
    guarantee = ApproximateDP(eps, delta) if delta else SimpleNamespace(eps=eps)
    # type: ignore[arg-type]
    rule = rule_for_guarantee(guarantee, classes)
    others = classes - 1
    ratio = Fraction(math.exp(eps)) * (1 + Fraction(1, 10**15))
    slack = Fraction(str(delta)) * DRAW_VALUES
    entries = [rule.first_entry(0)]
    assert DRAW_VALUES - others * entries[0] <= ratio * entries[0] + slack
    assert entries[0] <= DRAW_VALUES - others * entries[0]
    for _ in range(12):
        s = entries[-1]
        after = rule.next_entry(entries[-1], 0)
        assert others * s <= ratio * others * after + slack
        assert DRAW_VALUES - others * after <= ratio * (DRAW_VALUES - others * s) + slack
        entries.append(after)


@pytest.mark.parametrize("mu", [0.1, 0.7, 2.0])
def test_gaussian_entries_take_steps_of_mu_from_half_of_it(mu: float) -> None:
    rule = rule_for_guarantee(GaussianDP(mu), 2)
    s = rule.first_entry(0)
    z = [ndtri(s / DRAW_VALUES)]
    for _ in range(5):
        s = rule.next_entry(s, 0)
        z.append(ndtri(s / DRAW_VALUES))
    assert z[0] >= -mu / 2 - 1e-9
    assert (np.diff(z) >= -mu - 1e-9).all()


@pytest.mark.parametrize(("mu", "steps"), [(0.1, 1), (0.1, 2), (0.2, 1)])
def test_a_gaussian_table_is_that_of_the_decimal_where_it_is_less(mu: float, steps: int) -> None:
    assert Fraction(repr(mu)) < Fraction(mu)
    with mpmath.workdps(60):
        assert (
            GaussianRule(mu, steps).first_entry(0)
            >= mpmath.ncdf(-mpmath.mpf(repr(mu)) / steps / 2) * DRAW_VALUES
        )


@pytest.mark.parametrize("gap", [2**16 + 1, 2**16 + 2])
def test_gaps_beyond_the_table_keep_their_parity(gap: int) -> None:
    mechanism = NoisyArgmax(eps=1e-5)
    assert mechanism.exact_flip(gap) == mechanism.exact_flip(min(gap, 2**16 - (2**16 - gap) % 2))


def test_a_flip_takes_a_draw_below_the_threshold() -> None:
    mechanism = NoisyArgmax(eps=1.0)
    limit = int(mechanism.exact_flip(3) * DRAW_VALUES)
    for draw, label in ((limit - 1, 0), (limit, 1)):
        source = SimpleNamespace(
            words=lambda n, draw=draw: np.array([divmod(draw, 2**64)] * n, dtype=np.uint64)
        )
        assert mechanism.release(np.array([1]), np.array([3]), source).tolist() == [label]  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_every_release_of_a_lot_counts(size: int) -> None:
    approximate = Lot(ApproximateDP(0.5, 1e-6), size).cost
    gaussian = Lot(GaussianDP(0.5), size).cost
    assert approximate.leak >= size * Fraction(1e-6) * (1 - Fraction(1, 10**9))
    assert approximate.pure >= size * Fraction(1, 2)
    assert gaussian.square >= size * Fraction(1, 4)
    assert not Allowance(1e6, 1e-6 * size).holds(Cost(leak=approximate.leak))


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_noise_on_weights_is_what_they_move_over_mu(mu: float) -> None:
    assert noise_scale(0.7, GaussianDP(mu)) * mu >= 0.7 * (1 - 1e-15)


# -- the second head


def test_a_second_head_is_synced_as_it_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = HeadFile(tmp_path / "head", START)
    synced = list[int]()
    head.create(Head(1, "a" * 64))
    with head.locked(1.0) as (known, move):
        monkeypatch.setattr(os, "fsync", synced.append)
        move(Head(2, "b" * 64))
    assert (known.count, len(synced)) == (1, 1)
    assert head.read() == Head(2, "b" * 64)


def ledger(folder: Path) -> tuple[Ledger, HeadFile]:
    people = Population("loans", "one customer", "add_remove", Allowance(1.0))
    made = Ledger.create(
        folder / "a.ledger", people, folder / "head", [AdmittedTable("customers", "d" * 32)]
    )
    return made, HeadFile(folder / "head", made.book.opening.hash)


CHARGE = Charge(
    PureDP(0.01), "labels", "randomized_response", "sha256:" + "a" * 64, "d" * 32, "add_remove"
)


def test_no_debit_where_the_second_head_is_further(tmp_path: Path) -> None:
    opened, head = ledger(tmp_path)
    with head.locked(1.0) as (known, move):
        move(Head(known.count + 1, "c" * 64))
    with pytest.raises(CheckError, match="older"):
        opened.debit(CHARGE, 1)
    assert opened.book.spent == Cost()


def test_no_debit_where_the_second_head_ends_in_another_entry(tmp_path: Path) -> None:
    opened, head = ledger(tmp_path)
    known = head.read()
    head.path.unlink()
    head.create(Head(known.count, "c" * 64))
    with pytest.raises(CheckError, match=str(head.path)):
        opened.debit(CHARGE, 1)
    assert opened.book.spent == Cost()


# -- eigenvalues


@pytest.mark.parametrize("width", [3, 40])
def test_a_factorisation_proves_no_more_than_its_rounding_leaves(width: int) -> None:
    assert prove_eigenvalue_bound(np.zeros((width, width)), 1.0) >= 1.0 + 2 * width * width * UNIT  # type: ignore[operator]


def test_the_overhead_of_a_factorisation_grows_with_the_trace_it_leaves() -> None:
    """Rump (2006): d + 1 roundings or more of each pivot, whose sum is the trace of what is
    factorised.
    """
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(9, 6))
        matrix = rows.T @ rows
        guess = 1.1 * float(np.linalg.eigvalsh(matrix)[-1])
        assert prove_eigenvalue_bound(matrix, guess) >= guess + 7 * UNIT * (
            6 * guess - np.trace(matrix)
        )  # type: ignore[operator]


# -- matrices that are kept


def test_a_product_with_a_matrix_is_off_by_the_matrixs_own_error() -> None:
    assert BoundedMatrix.from_matrix(np.eye(2), 1.0).multiply(np.array([3.0, 4.0]))[1] >= 5.0


def test_what_a_step_leaves_has_the_matrixs_own_error_in_it() -> None:
    step, left = Factor(BoundedMatrix.from_matrix(np.eye(2), 0.5)).solve(np.array([3.0, 4.0]))
    assert left >= 0.5 * float(np.linalg.norm(step)) > 2.0


def test_what_is_owed_is_synced_before_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[int]()
    monkeypatch.setattr(os, "fsync", synced.append)
    _append(tmp_path / "unlearning" / "abstained.jsonl", "{}")
    assert len(synced) == 2, "the file, and the folder that names it"


# -- files


def test_a_file_is_synced_before_it_appears_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list[str]()
    sync = os.fsync
    rename = Path.replace

    def synced(handle: int) -> None:
        events.append("names" if stat.S_ISDIR(os.fstat(handle).st_mode) else "bytes")
        sync(handle)

    def renamed(path: Path, target: Path) -> Path:
        events.append("appears")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write_atomic(tmp_path / "file", b"content")
    assert events == ["bytes", "appears", "names"]


def test_a_run_lists_its_files_before_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[str]()
    monkeypatch.setattr(record, "write_atomic", lambda path, content: written.append(path.name))
    with record.RunRecord(tmp_path / "run", "train", {}):
        pass
    assert written[-2:] == ["manifest.json", "status.json"]


def test_labels_are_published_under_no_hash_of_a_records_content() -> None:
    """An id that is made from content hashes the true label, too: whoever knows the record could
    test a guess of it.
    """
    made = np.array([f"{number:032x}" for number in range(3)])
    given = np.array(["ann", "bob"])
    assert {*made.tolist()}.isdisjoint(public_names(made)[:].tolist())
    assert public_names(given).tolist() == ["ann", "bob"]


def test_each_lot_of_a_session_without_a_ledger_is_told_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = list[int]()
    monkeypatch.setattr(
        Session, "write_spent", lambda session: written.append(session.lots.reserved)
    )
    session = Session.__new__(Session)  # what it is about plays no part
    session.lots = LotPayer(NoPayer(), size=2, maximum=5)
    claim = Claim(
        guarantee=PureDP(1.0),
        mechanism="m",
        relation=RelationConfig("add_remove"),
        reasons=(),
        declared=(),
        noisy=False,
    )
    for wanted, told in ((1, [2]), (1, [2]), (2, [2, 4]), (3, [2, 4, 5])):

        def reserve(wanted: int = wanted) -> None:
            session.lots.reserve(claim, wanted)

        def draw(told: list[int] = told) -> list[np.ndarray]:
            assert written == told, "told before it is drawn"
            return [np.zeros(0, dtype=np.int64)]

        session._draw(SimpleNamespace(reserve=reserve, draw=draw, simulated=False, features=[]))  # type: ignore[arg-type]
        assert written == told


# -- mechanisms and the ledger, once more


@pytest.mark.parametrize("share", [0.25, 0.4])
def test_the_next_entry_is_a_step_of_mu_from_the_one_that_was_wished(share: float) -> None:
    """Not from the least that was allowed: a formula may ask for more, and the next entry is
    then held to more.
    """
    rule = rule_for_guarantee(GaussianDP(2.0), 2)
    mu = 2.0
    first = rule.first_entry(int(share * DRAW_VALUES))
    assert first == int(share * DRAW_VALUES)
    assert rule.next_entry(first, 0) >= DRAW_VALUES * float(ndtr(ndtri(share) - mu)) * (1 - 1e-9)


@pytest.mark.parametrize(
    "shape",
    [ProblemConstants(1.0, 1.0, 10, 1), ProblemConstants(2.0, 0.5, 1000, 50)],
    ids=["narrow", "wide"],
)
def test_the_second_noise_covers_what_the_solver_and_the_lattice_leave_on_both_sides(
    shape: ProblemConstants,
) -> None:
    noises = ObjectiveNoises.from_budget(shape, 1.0, 0.01)
    off = (noises.tolerance + math.sqrt(shape.width) * step_of(noises.tilt) / 2) / shape.strength
    assert noises.scale * gaussian_mu(OBJECTIVE_SHARE * 1.0, OBJECTIVE_SHARE * 0.01) >= 2 * off


@pytest.mark.parametrize("eps", [0.1, 0.01, 0.3])
def test_geometric_noise_is_for_the_double_or_the_decimal_whichever_is_less(eps: float) -> None:
    def below(count: int) -> int:
        raise LookupError(count)

    with pytest.raises(LookupError) as first:
        two_sided_geometric(eps, SimpleNamespace(below=below))  # type: ignore[arg-type]
    assert first.value.args == (min(Fraction(eps), Fraction(repr(eps))).denominator,)


@pytest.mark.parametrize("what", ["debit", "answer"])
def test_an_open_ledger_notices_that_its_newest_entry_is_gone(tmp_path: Path, what: str) -> None:
    people = Population("loans", "one record", "add_remove", Allowance(1.0))
    with Ledger.create(
        tmp_path / "a.ledger", people, tables=[AdmittedTable("table", "d" * 32)]
    ) as ledger:
        charge = Charge(PureDP(0.1), "labels", "m", "", "d" * 32, "add_remove")
        debit = ledger.debit(charge, 2)
        ledger.debit(charge, 1)
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as rows:
            (trigger,) = rows.execute(
                "SELECT sql FROM sqlite_master WHERE name = 'entries_remain'"
            ).fetchone()
            for statement in (
                "DROP TRIGGER entries_remain",
                "DELETE FROM entries WHERE number = 4",
                trigger,
            ):
                rows.execute(statement)
        with pytest.raises(CheckError, match=r"a\.ledger"):
            ledger.debit(charge, 1) if what == "debit" else ledger.answer(debit, {b"k" * 32: 1})


def test_labels_drawn_from_an_earlier_state_are_not_put_in_their_place(tmp_path: Path) -> None:
    placed = list[bool]()

    @contextmanager
    def opened() -> Iterator[None]:
        yield
        placed.append(True)

    def changed() -> None:
        raise CheckError("the run was changed")

    table = SimpleNamespace(write=lambda file, labels: [*labels], file="labels.csv")
    request = SimpleNamespace(
        opened=SimpleNamespace(check_current=changed), record=SimpleNamespace(folder=tmp_path)
    )
    with pytest.raises(CheckError, match="changed"):
        LabelsFile.write(SimpleNamespace(table=table, request=request, _open=opened), [])  # type: ignore[arg-type]
    assert not placed
