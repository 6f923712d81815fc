"""The curvature tube (agt/tube): its proof piece by piece, where retraining does not come, and neighbours retrained."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from adversary import assault
from adversary_settings import Setting
from checks import Case
from synthetic import make_records
from tubes import CASES, KS, WIDTH, TubeCase

from agt import relations
from agt.certificates.stability import ClosedForm
from agt.data.dataset import Records
from agt.settings import TrainingConfig, TubeConfig
from agt.training.linear import LinearLoss, Schedule
from agt.tube import network, radius, training
from agt.tube.network import SMOOTH, Curvature, EigenvalueBound, Meter, Public, TubeNetwork, TubeSetting
from agt.tube.radius import Radii
from agt.tube.training import Room, TubeTrained, room_of
from agt_audit.neighbours import Edited, Editor, Target

# -- tube pieces -------------------------------------------------------------------------------------------------------


# -- curvature, against automatic differentiation --------------------------------------------------------------------------


SMOOTH_TWICE = {
    SMOOTH["tanh"]: torch.tanh,
    SMOOTH["softplus"]: partial(torch.nn.functional.softplus, threshold=200.0),
    SMOOTH["gelu"]: torch.nn.functional.gelu,
}


def slopes(loss: LinearLoss, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """[n, J] the loss's derivative in the logits, once more."""
    if loss.outputs == 1:
        return torch.clamp(torch.sigmoid(f) - y[:, None], -loss.reach, loss.reach)
    return torch.softmax(f, dim=1) - torch.eye(loss.outputs, dtype=torch.float64)[y]


def functions(network: TubeNetwork, x: torch.Tensor, y: torch.Tensor) -> tuple[Callable, Callable]:
    """(W flat -> every record's logits [n, J], W flat -> the summed gradient), by automatic differentiation."""
    m, d = network.outputs.shape[1], x.shape[1]

    def logits(w: torch.Tensor) -> torch.Tensor:
        return SMOOTH_TWICE[network.activation](x @ w.view(m, d).T) @ network.outputs.T

    def gradient(w: torch.Tensor) -> torch.Tensor:
        w = w if w.requires_grad else w.requires_grad_()
        f = logits(w)
        return torch.autograd.grad(f, w, slopes(network.loss, f, y), create_graph=True)[0]

    return logits, gradient


def hessians(network: TubeNetwork, w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """(GN, R) at W [m, d], dense: J' q' J summed, and the rest of the gradient's Jacobian."""
    logits, gradient = functions(network, x, y)
    point, jacobian = w.flatten(), torch.autograd.functional.jacobian
    j, f = jacobian(logits, point), logits(point)
    inner = [jacobian(lambda f, i=i: slopes(network.loss, f[None], y[i : i + 1])[0], f[i].detach()) for i in range(len(x))]
    gauss = torch.einsum("nja,njk,nkb->ab", j, torch.stack(inner), j)
    return gauss.numpy(), (jacobian(gradient, point) - gauss).numpy()


def eigenvalues(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh((matrix + matrix.T) / 2)


def norm(matrix: np.ndarray) -> float:
    return float(np.abs(eigenvalues(matrix)).max())


@dataclass(frozen=True)
class Draw:
    """A tiny network, weights, and records of length up to 1."""

    case: TubeCase
    weight: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor

    @classmethod
    def of(cls, rng: np.random.Generator, activation: str, classes: int) -> "Draw":
        """Records often alike and of length 1, weights small or large: where bounds are nearly attained."""
        config = {"clip": float(rng.choice([0.1, 0.5, 1.0]))} if classes == 2 else {}
        length = float(rng.choice([0.1, 1.0, 5.0]))
        case = TubeCase(
            "drawn",
            activation,
            classes,
            hidden=int(rng.choice([2, 6])) if classes == 2 else 6,
            length=length,
            training=config,
        )
        n, d = int(rng.integers(1, 8)), case.features_map.outputs
        x = rng.normal(size=(n, d)) if rng.random() < 0.6 else np.tile(rng.normal(size=d), (n, 1))
        x /= np.linalg.norm(x, axis=1, keepdims=True) * (1 + 1e-12)
        weight = rng.normal(size=(case.hidden, d)) * float(rng.choice([0.0, 0.1, 1.0, 4.0]))
        return cls(case, torch.from_numpy(weight), torch.from_numpy(x), torch.from_numpy(rng.integers(0, classes, n)))

    def moved(self, rng: np.random.Generator) -> torch.Tensor:
        """Other weights, a little or far away, in one unit or all, often along a record."""
        way = rng.normal(size=self.weight.shape)
        if rng.random() < 0.5:
            way = rng.normal(size=(len(way), 1)) * self.x[0].numpy()
        if rng.random() < 0.5:
            way[1:] = 0
        return self.weight + torch.from_numpy(way * float(rng.choice([1e-4, 0.1, 1.0, 3.0])))

    @property
    def longest(self) -> float:
        return float(eigenvalues((self.x.T @ self.x).numpy())[-1])


@dataclass
class Ratios:
    """The most of each bound that was seen."""

    gradient: float = 0.0
    gauss: float = 0.0
    pull: float = 0.0
    twist: float = 0.0
    whole: float = 0.0

    @property
    def worst(self) -> float:
        return max(vars(self).values())


def ratios(activation: str, classes: int, draws: int) -> Ratios:
    """Hessians at two points, and on the segment between, against the bounds of tube/network.py."""
    rng, seen = np.random.default_rng(0), Ratios()
    for _ in range(draws):
        draw = Draw.of(rng, activation, classes)
        network, bounds, longest = draw.case.network, draw.case.setting.curvature, draw.longest
        there = draw.moved(rng)
        at = hessians(network, draw.weight, draw.x, draw.y)
        between = draw.weight + float(rng.random()) * (there - draw.weight)
        for w, (gauss, rest) in ((draw.weight, at), *((w, hessians(network, w, draw.x, draw.y)) for w in (there, between))):
            found = {
                "gauss": norm(gauss) / (bounds.gauss * longest),
                "whole": eigenvalues(gauss + rest)[-1] / (bounds.whole * longest),
                "twist": norm(rest - at[1]) / max(bounds.twist * longest * float(torch.linalg.norm(w - draw.weight)), 1e-9),
                "pull": norm(rest) / (bounds.pull * longest),
            }
            one, label = draw.x[:1], draw.y[:1]
            found["pull"] = max(found["pull"], norm(hessians(network, w, one, label)[1]) / bounds.pull)
            gradient = functions(network, one, label)[1](w.flatten()).detach()
            found["gradient"] = float(torch.linalg.norm(gradient)) / bounds.gradient
            for name, value in found.items():
                setattr(seen, name, max(getattr(seen, name), value))
    return seen


@pytest.mark.parametrize(("activation", "classes"), [("tanh", 2), ("softplus", 2), ("gelu", 2), ("tanh", 3), ("gelu", 3)])
def test_no_hessian_exceeds_its_bound_and_some_come_near(activation: str, classes: int) -> None:
    seen = ratios(activation, classes, 20 if classes == 2 else 8)
    assert seen.worst <= 1 + 1e-9
    assert min(vars(seen).values()) > 0.1, seen


# -- eigenvalues at the weights reached ------------------------------------------------------------------------------------


def dense(draw: Draw) -> tuple[float, float]:
    """(dip of R, lambda_max of M): from the formulas, record by record."""
    network = draw.case.network
    u = (slopes(network.loss, network.logits(draw.weight, draw.x)[0], draw.y) @ network.outputs).numpy()
    bend, x = network.activation.at(draw.x @ draw.weight.T)[2].numpy(), draw.x.numpy()
    blocks = [-(x.T * u[:, j] * bend[:, j]) @ x for j in range(u.shape[1])]
    cheap = (x.T * np.maximum(-u * bend, 0).max(axis=1)) @ x
    return max(0.0, *(float(eigenvalues(block)[-1]) for block in blocks)), float(eigenvalues(cheap)[-1])


def measured(draw: Draw) -> tuple[EigenvalueBound, EigenvalueBound, EigenvalueBound]:
    """(exact, cheap, of sum x x') by the library."""
    case, records = draw.case, make_records(draw.x.numpy(), draw.y.numpy())
    meter, rows = Meter(case.setting, case.network), np.arange(len(draw.x))
    radius = float(torch.linalg.norm(draw.weight)) * 1.001 + 1e-9
    square = (case.setting.width,) * 2
    (total,) = case.network.summed(draw.weight, records, rows, lambda part: (meter.share(part),), (square,))
    return meter.exact(draw.weight, records, rows, radius), meter.cheap(total.numpy(), radius), meter.gram(records, rows)


def outside(draws: int) -> int:
    """Bounds below the dense eigenvalue, or above it by more than their slack."""
    rng, count = np.random.default_rng(2), 0
    for index in range(draws):
        draw = Draw.of(rng, list(SMOOTH)[index % 3], 2 + index % 2)
        for bound, true in zip(measured(draw), (*dense(draw), draw.longest), strict=True):
            assert bound.slack < 1e-6 * max(draw.case.setting.curvature.pull, 1)
            count += not true <= bound.value <= true + bound.slack
    return count


def test_bounds_on_eigenvalues_lie_above_them_by_no_more_than_their_slack() -> None:
    assert outside(100) == 0


def test_a_power_iteration_in_their_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def power(matrix: np.ndarray, gap: float) -> float:
        v = np.ones(len(matrix))
        for _ in range(20):
            v = matrix @ v / max(float(np.linalg.norm(matrix @ v)), 1e-300)
        return float(np.linalg.norm(matrix @ v))

    monkeypatch.setattr(network, "eigenvalue_within", power)
    assert outside(60) > 0


def test_the_dip_of_all_is_at_most_what_one_matrix_bounds_and_the_hessian_goes_no_lower() -> None:
    rng = np.random.default_rng(3)
    for index in range(60):
        draw = Draw.of(rng, list(SMOOTH)[index % 3], 2 + index % 2)
        exact, cheap, _ = measured(draw)
        gauss, rest = hessians(draw.case.network, draw.weight, draw.x, draw.y)
        assert exact.value <= cheap.value + cheap.slack
        assert -exact.value <= eigenvalues(gauss + rest)[0] + 1e-12
        assert max(0.0, -eigenvalues(rest)[0]) == pytest.approx(dense(draw)[0], rel=1e-9, abs=1e-9)


# -- one step --------------------------------------------------------------------------------------------------------------


def network_of(activation: str, outputs: list[float], clip: float) -> TubeNetwork:
    """With these output weights."""
    config = TrainingConfig(loss="binary_cross_entropy", epochs=1, lr=1.0, clip=clip)
    return TubeNetwork(LinearLoss.of(config, 2), SMOOTH[activation], torch.tensor([outputs], dtype=torch.float64))


def test_the_gradient_bound_is_attained_to_the_last_digits_by_a_record_that_saturates() -> None:
    """Nobody, and one record of length 1, at weights where tanh is steepest; alpha so small that it stays there."""
    config = {"clip": 0.01, "epochs": 5, "weight_decay": 0.1, "lr": 2.0}
    case = TubeCase("gradient", n=1, length=1e-7, training=config | {"batch": {"normalizer": 1.0, "n_max": 4}})
    vars(case)["initial"] = torch.zeros_like(case.initial)
    nobody, one = make_records(np.zeros((0, 3)), []), make_records(np.ones((1, 3)), [0])
    empty, single = case.train(nobody), case.train(one)
    moved = float(torch.linalg.norm(single.weight - empty.weight))
    assert moved <= empty.radii[1]
    assert moved == pytest.approx(empty.radii[1], rel=1e-6)


# -- the recursion alone ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a recursion; nothing, unless it is said.

    Attributes:
        curvature: its bounds.
        one_sided: each run's rounding is charged once, not twice.
        no_longer: what c records added grows no more after their batch.
        quarter: the twist counts for a quarter of the radius.
    """

    curvature: Callable[[Curvature], Curvature] = lambda right: right
    one_sided: bool = False
    no_longer: bool = False
    quarter: bool = False

    def step(self, radii: Radii, true: Curvature, public: Public, rho: EigenvalueBound, longest: EigenvalueBound) -> Radii:
        """A step of the recursion, with the mistake."""
        used = self.curvature(true)
        used = replace(used, twist=used.twist / 2) if self.quarter else used
        moved = radii.batch(used, replace(public, tau=public.tau / 2) if self.one_sided else public, rho, longest)
        if self.no_longer:
            moved = replace(
                moved, after=np.maximum(radii.after, moved.before + public.at.step * radii.counts * used.gradient)
            )
        return moved


def drive(rng: np.random.Generator, several: bool, mistake: Mistake) -> int:
    """At how many k the radii of two neighbours do not nest, in a run that goes badly.

    D' bends more than D, by as much as one record and the distance between the weights allow, or by some of it; the weights
    part as fast as the true bounds allow, one record and both runs' rounding pushing; the record comes to any batch.
    """
    true = Curvature(*(float(value) for value in 10 ** rng.uniform(-2, 0, 4)))
    keep, step, batches = (
        float(rng.choice([1.0, 0.9])),
        10 ** rng.uniform(-3, 0),
        int(rng.integers(2, 12)) if several else 1,
    )
    rounding, limit, slack = float(rng.choice([0.0, 1e-3])), 1e4, float(rng.choice([0.0, 0.1]))
    one = two = Radii.zero(np.arange(1 + int(rng.choice([3, 30, 300]))), limit)
    count, parted, worst, guest = 0, 0.0, float(rng.choice([1.0, 0.5])), 0
    for t in range(36):
        longest, at = EigenvalueBound(float(rng.random()) * 10, slack), float(step * rng.choice([1, 10]))
        rho = EigenvalueBound(float(rng.random()) * true.pull * longest.value, slack)
        if t % batches == 0:
            guest = t + int(rng.integers(batches))
        bends = worst ** float(rng.integers(2)) * (true.twist * (longest.value + 1) * parted + true.pull + slack)
        public = Public(Schedule(keep, at), 1.0, rounding + 2.0**-45 * limit)
        one = mistake.step(one, true, public, rho, longest)
        two = mistake.step(
            two, true, public, EigenvalueBound(rho.value + bends, slack), EigenvalueBound(longest.value + 1 + slack, slack)
        )
        turned = at * true.whole * (longest.value + 1) - keep
        factor, cap = (max(keep + at * pull, turned) for pull in (rho.value + true.pull, true.pull * (longest.value + 1)))
        bending = min(parted, max(cap - factor, 0) / (at * true.twist * (longest.value + 1)))
        spared = (cap - min(factor, cap) - at * true.twist * (longest.value + 1) * bending / 2) * bending
        parted = cap * parted - spared + (at * true.gradient if t == guest else 0.0) + 2 * rounding
        if (t + 1) % batches == 0:
            one, two = one.epoch_over(), two.epoch_over()
        fits = (one.after[1:] >= two.after[:-1] + parted) | np.isinf(one.after[1:])
        count += int((~fits).sum())
    return count


def driven(several: bool, mistake: Mistake, runs: int = 60) -> int:
    rng = np.random.default_rng(0)
    return sum(drive(rng, several, mistake) for _ in range(runs))


both = pytest.mark.parametrize("several", [False, True], ids=["one batch", "several"])


@both
def test_radii_nest_whatever_happens(several: bool) -> None:
    assert driven(several, Mistake(), 100) == 0


@pytest.mark.sampled(2)
@both
@pytest.mark.parametrize("name", ["gauss", "pull", "twist", "gradient"])
def test_radii_that_leave_a_bound_out_do_not_nest(name: str, several: bool) -> None:
    def left_out(right: Curvature) -> Curvature:
        return replace(right, **{name: 0.0})

    assert driven(several, Mistake(left_out)) > 0


@both
def test_rounding_is_twosided_and_the_twist_counts_for_half(several: bool) -> None:
    assert driven(several, Mistake(one_sided=True)) > 0
    assert driven(several, Mistake(quarter=True)) > 0


def test_what_a_batch_adds_grows_with_the_steps_that_follow() -> None:
    assert driven(True, Mistake(no_longer=True)) > 0


def test_what_a_step_multiplies_is_capped_all_along_the_way() -> None:
    """The recursion's integral against a sum of small pieces; and no more than either bound alone makes of the radius."""
    rng, capped = np.random.default_rng(5), 0
    for first, slope, cap, to in 10 ** rng.uniform(-3, 3, size=(300, 4)):
        pieces = np.minimum(first + slope * (np.arange(100_000) + 0.5) * (to / 100_000), cap)
        (found,) = radius.integral(*(np.array([number]) for number in (first, slope, cap, to)))
        assert found == pytest.approx(pieces.mean() * to, rel=1e-4)
        assert found <= min((first + slope * to / 2) * to, cap * to) * (1 + 1e-12)
        capped += first < cap < first + slope * to
    assert 30 < capped < 270


@dataclass(frozen=True)
class Tiny:
    """A network of one weight, and records of two kinds, 0 and 1, whose feature is 1: as far as it goes, all is tried.

    Attributes:
        keep, step: of the step.
        here: the weight. ``wide``: the radius before the step.
        mine: [2] how many records there are of each kind. ``count``: c.
    """

    setting: TubeSetting
    network: TubeNetwork
    keep: float
    step: float
    here: float
    wide: float
    mine: np.ndarray
    count: int

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> "Tiny":
        """Steps about as long as those that swing."""
        outputs, clip, case = [float(rng.choice([0.01, 0.3, 3.0]))], float(rng.choice([0.05, 0.5])), TubeCase("tiny")
        made, plan = network_of(str(rng.choice(list(SMOOTH))), outputs, clip), replace(case.setting.plan, n_max=20)
        setting = replace(
            case.setting, loss=made.loss, activation=made.activation, outputs=np.array([outputs]), width=1, plan=plan
        )
        mine, keep = rng.integers(0, 4, 2), float(rng.choice([1.0, 0.8]))
        step = float(10 ** rng.uniform(-2, 0.5)) / (setting.curvature.whole * max(1, mine.sum()))
        here, wide = float(rng.normal() * 2), float(10 ** rng.uniform(-1.5, 1))
        return cls(setting, made, keep, step, here, wide, mine, int(rng.integers(4)))

    @property
    def rho(self) -> EigenvalueBound:
        """Of dip(R) at the weight."""
        records, here = (
            make_records(np.ones((self.mine.sum(), 1)), np.repeat([0, 1], self.mine)),
            torch.tensor([[self.here]]),
        )
        return Meter(self.setting, self.network).exact(here.double(), records, np.arange(len(records)), 9.0)

    @property
    def capped(self) -> bool:
        """Whether the cap is what holds at the end of the radius: not what the weight's curvature says, nor a swing."""
        bounds, longest = self.setting.curvature, self.mine.sum() + self.count
        bends = self.rho.value + self.count * bounds.pull + bounds.twist * longest * self.wide
        swings = self.step * bounds.whole * longest - self.keep > self.keep + self.step * bounds.pull * longest
        return bool(bounds.pull * longest < bends and not swings)

    def share(self, mistake: Callable[[Curvature], Curvature] = lambda right: right) -> float:
        """How far a step takes weights within the radius, on any records within c, of what the recursion allows."""
        there = np.append(self.here + self.wide * np.linspace(-1, 1, 2001), self.here)
        (value, slope, _), (output,) = self.network.activation.at(torch.from_numpy(there)), self.setting.outputs[0]
        excess, clip = 1 / (1 + np.exp(-output * value.numpy())) - np.array([[0], [1]]), self.setting.loss.reach
        gradients = np.clip(excess, -clip, clip) * output * slope.numpy()
        near = range(self.count + 4)
        others = [np.array([a, b]) for a in near for b in near if abs(self.mine - [a, b]).sum() <= self.count]
        reached = self.keep * self.here - self.step * self.mine @ gradients[:, -1]
        moved = max(float(np.abs(self.keep * there - self.step * other @ gradients - reached).max()) for other in others)
        radii = Radii(*(np.array([number]) for number in (self.count, self.wide, self.wide)), np.inf)
        public, gram = Public(Schedule(self.keep, self.step), 9.0, 1e-12), EigenvalueBound(float(self.mine.sum()), 0.0)
        allowed = radii.batch(mistake(self.setting.curvature), public, self.rho, gram).before[0]
        return moved / float(allowed + self.step * self.count * self.setting.curvature.gradient)


def test_no_weight_within_a_radius_goes_beyond_the_next_on_any_records() -> None:
    rng = np.random.default_rng(6)
    drawn = [Tiny.drawn(rng) for _ in range(300)]
    assert max(tiny.share() for tiny in drawn) <= 1
    capped = [tiny for tiny in drawn if tiny.capped]
    assert len(capped) > 60
    assert max(tiny.share() for tiny in capped) > 0.7, "some come near"
    assert max(tiny.share(lambda right: replace(right, pull=0.0)) for tiny in capped) > 1


def test_records_dealt_to_several_batches_move_no_more_than_all_in_the_worst() -> None:
    """Any dealing of c records to the batches of each epoch, followed by itself."""
    rng = np.random.default_rng(4)
    for _ in range(100):
        bounds = Curvature(*(float(value) for value in 10 ** rng.uniform(-2, 0, 4)))
        counts, batches = np.array([int(rng.integers(1, 10))]), int(rng.integers(2, 6))
        radii, dealt = Radii.zero(counts, 1e9), np.zeros(50)
        for t in range(3 * batches):
            if t % batches == 0:
                shares = rng.dirichlet(np.full(batches, float(rng.choice([0.1, 1.0]))), size=50) * counts
            public = Public(Schedule(1.0, float(rng.random())), 1.0, 1e-9)
            rho, gram = EigenvalueBound(float(rng.random()), 0.0), EigenvalueBound(float(rng.random()), 0.0)
            single = replace(radii, counts=np.repeat(counts, 50), before=dealt, after=dealt)
            dealt = single.batch(bounds, public, rho, gram, shares[:, t % batches] * bounds.gradient).after
            radii = radii.batch(bounds, public, rho, gram)
            radii = radii.epoch_over() if (t + 1) % batches == 0 else radii
            assert (dealt <= radii.after * (1 + 1e-12)).all()


# -- one query -------------------------------------------------------------------------------------------------------------


def certified(room: Room, radius: float) -> bool:
    return bool(room.left(np.array([radius]), np.array([0]))[0] > 0)


@pytest.mark.parametrize("shift", [0.003, 0.01, 0.03])
def test_a_certificate_ends_where_some_weights_turn_the_label_and_later_without_its_second_term(shift: float) -> None:
    """gelu(w) at w = -shift, the logit's sign turning at 0: on the way its slope rises as fast as it can."""
    network, case = network_of("gelu", [1.0], 1.0), TubeCase("query")
    setting = TubeSetting(
        network.loss,
        network.activation,
        network.outputs.numpy(),
        1.0,
        1,
        case.config,
        case.setting.plan,
        case.setting.relation,
    )
    trained = TubeTrained(torch.tensor([[-shift]], dtype=torch.float64), np.zeros(1), 1.0)
    room = room_of(setting, network, trained, np.ones((1, 1)))
    assert room.prediction[0] == 0
    assert certified(room, shift * (1 - 1e-3))
    assert not certified(room, shift)
    assert certified(replace(room, bend=0 * room.bend), shift * (1 + 1e-3))
    assert network.logits(torch.tensor([[1e-6]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))[0] > 0


# -- tube retrained ----------------------------------------------------------------------------------------------------


EDITS = 40
CASE = {case.name: case for case in CASES}
NESTING = [
    CASE[name]
    for name in (
        "tanh, exact", "softplus", "batches", "batches decay, gelu", "decays", "replaced", "replaced, batches",
        "units of two rows", "softmax of batches, gelu, exact", "fourier",
    )
]  # fmt: skip
names = {"ids": lambda case: case.name}


@dataclass
class Seen:
    """What a check saw.

    Attributes:
        retrained, outside: neighbours, and those beyond their radius.
        farthest: the most of its radius that one of them moved.
        certified, turned: labels certified for a neighbour, and those that it turned.
    """

    retrained: int = 0
    outside: int = 0
    farthest: float = 0.0
    certified: int = 0
    turned: int = 0


def walk(editor: Editor, data: Records, k: int, known: ClosedForm, queries: np.ndarray) -> Records:
    """A neighbour within k, each edit after the label of a query; rows in another order."""
    edited, rng = Edited(data), editor.rng
    for _ in range(k):
        row = int(rng.integers(len(queries)))
        edited = editor.step(edited, Target(queries[row], int(known.prediction[row])))
    records = edited.records
    return records.take(rng.permutation(len(records)))


def edits(case: TubeCase, count: int, seed: int = 0) -> Seen:
    """Train, then retrain ``count`` neighbours at 0 to 4 edits by the formulas alone."""
    rng, seen = np.random.default_rng(seed), Seen()
    data, queries, editor = case.data(rng), rng.normal(size=(40, WIDTH)), case.editor(rng)
    here = case.train(data)
    known, weight = case.certify(here, queries), here.weight.numpy()
    assert np.isfinite(here.radii).all()
    for edit in range(count):
        k = edit % len(KS)
        there = case.retrain(walk(editor, data, k, known, queries))
        moved, held = float(np.linalg.norm(there - weight)), known.certified[k]
        seen.retrained += 1
        seen.outside += not moved <= here.radii[k]
        if seen.outside:
            break
        seen.farthest = max(seen.farthest, moved / here.radii[k] if k else 0.0)
        seen.certified += int(held.sum()) if k else 0
        seen.turned += int((case.labels(there, queries) != known.prediction)[held].sum())
    return seen


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES, **names)
def test_no_edit_moves_farther_than_its_radius_and_some_come_near(case: TubeCase) -> None:
    seen = edits(case, EDITS)
    assert (seen.outside, seen.turned) == (0, 0)
    assert case.near < seen.farthest < 1
    assert seen.certified > 0, "a check of nothing would not show"


def setting_of(case: TubeCase) -> Setting:
    """As the adversary has it."""
    loss = "binary_cross_entropy" if case.classes == 2 else "cross_entropy"
    batch = {
        "count": 1,
        "normalizer": float(case.n * case.unit_rows),
        "n_max": 8 * case.n,
        **case.training.get("batch", {}),
    }
    training = {"loss": loss, "clip": case.config.clip, "epochs": 6, "lr": 1.0, **case.training, "batch": batch}
    how = {"n": case.n, "unit_rows": case.unit_rows, "activation": case.activation, "training": training}
    norms = "exact" if case.exact else "cheap"
    tube = TubeConfig(features=case.features, length=case.length, norms=norms)  # type: ignore[arg-type]
    return Setting(Case(case.name, (case.hidden,), case.classes, **how), case.relation, "tube", certificate=tube)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", NESTING, **names)
def test_radii_nest_and_distances_move_by_one(case: TubeCase) -> None:
    """Also of the same records in another order."""
    report = assault(setting_of(case), 1, 12)
    assert not report.escapes, "\n".join(map(str, report.escapes))
    assert report.reorders == report.apart == 1
    assert report.ends > 0


# -- mistakes planted ------------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def one_epoch(patch: pytest.MonkeyPatch) -> None:
    """What earlier epochs added is forgotten."""
    patch.setattr(Radii, "epoch_over", lambda self: self)


def one_row(patch: pytest.MonkeyPatch) -> None:
    """A unit counts as one record."""
    patch.setattr(TubeCase, "counts", np.array(KS))


def replaced_as_added(patch: pytest.MonkeyPatch) -> None:
    """A replaced record counts as one that comes."""
    rule = relations.RELATIONS["substitute"]
    patch.setitem(relations.RELATIONS, "substitute", replace(rule, moved=1))


def least_gradients(patch: pytest.MonkeyPatch) -> None:
    """The records whose gradients are shortest go."""
    whole = training.greatest
    patch.setattr(training, "greatest", lambda lengths, counts: whole(np.full_like(lengths, lengths.min()), counts))


def gradients_halved(patch: pytest.MonkeyPatch) -> None:
    """The clamp is taken to be half as wide."""
    whole = Radii.batch

    def batch(self: Radii, curvature, public, rho, gram, added=None):  # type: ignore[no-untyped-def]
        return whole(self, replace(curvature, gradient=curvature.gradient / 2), public, rho, gram, added)

    patch.setattr(Radii, "batch", batch)


def no_rounding(patch: pytest.MonkeyPatch) -> None:
    """Steps are taken to be exact."""
    patch.setattr(radius, "_UP", 1.0)
    whole = training.schedule

    def schedule(setting: object) -> object:
        publics, reach = whole(setting)  # type: ignore[arg-type]
        return [replace(public, tau=0.0) for public in publics], reach

    patch.setattr(training, "schedule", schedule)


@pytest.mark.parametrize(
    ("plant", "case"),
    [
        (one_epoch, CASE["batches, softplus, exact"]),
        (one_row, TubeCase("units of five rows", unit_rows=5, n=8, training={"clip": 0.05})),
        (replaced_as_added, CASE["replaced"]),
        (gradients_halved, CASE["clamped hard"]),
        (least_gradients, TubeCase("removed", relation="remove", training={"epochs": 3})),
        (no_rounding, CASE["tanh"]),
    ],
)
def test_radii_with_a_mistake_in_them_are_too_short(plant: Plant, case: TubeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    assert edits(case, 12).outside == 0
    plant(monkeypatch)
    vars(case).pop("counts", None)
    try:
        assert edits(case, 60).outside > 0
    finally:
        vars(case).pop("counts", None)
