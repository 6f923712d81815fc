"""What baselines share: what they are fitted on, what they release, and in words what is claimed
about it.

Every draw of a baseline comes from a seed: these are simulations for comparison, and protect nobody
who is in them.


Plain SGD: no clip, no bounds, no privacy. The batch plan, schedule and optimizer are those of the
certified run.

DP-SGD with Opacus, the papers' baseline: Poisson sampling, an l2 clip for each record, Gaussian
noise, PRV accountant.

Formal guarantees
    Every step draws a batch into which each record enters independently with the public probability
    q, clips each record's gradient to l2 norm C, sums, and adds N(0, (z C)^2 I): a
    Poisson-subsampled Gaussian mechanism under one record added or removed (Abadi et al. 2016).
    Opacus' PRV accountant (Gopi et al. 2021) bounds epsilon of all steps at delta from above; at q
    = 1, where there is no sampling, mu = sqrt(steps)/z of Gaussian composition is exact and
    replaces it. The sum is divided by the expected batch size, a public constant, never by the
    number drawn; an empty batch takes its step too.


Local randomised response on the training labels, then plain SGD (002, 004): epsilon-DP for labels
alone.

Every record's label is kept or replaced before anyone sees it, so not even the trainer is trusted
with it; features, and which records there are, get no protection at all.

Formal guarantees
    Labels are flipped by the mechanism that agt releases labels by, at stable distance 0, where any
    label is a neighbour of any other: epsilon-DP for each (agt.mechanisms.optimal, its integer
    table agt.mechanisms.mechanism).
    What follows sees the flipped labels only: batches are laid out by features, never by an id that
    may hash the label. Training on flipped labels as they are keeps the likeliest class: each wrong
    one takes the same share.


DP-SGD's noise inside certified training (000, Algorithm 1): the nominal weights of such a run, as a
baseline.

Private logistic regression by output and by objective perturbation (Chaudhuri et al. 2011; Kifer et
al. 2012; 002).

Both concern F(theta) = sum_i l(y_i theta.x_i) + (Lambda/2)|theta|^2 with |x_i| <= 1 and a logistic
loss whose derivative is clamped to [-C, 0] (``erm``), Lambda and C public. The neighbours are D and
D + z, z one record; written as a sum, F needs no public number of records. theta* is the minimiser,
theta~ what the solver returns: |grad F(theta~)| <= tau is verified, so |theta~ - theta*| <=
tau/Lambda, F being Lambda-strongly convex. A solver that misses tau raises: nothing is released.

Formal guarantees
    Output perturbation. theta~ + noise. At theta*(D + z) the gradient of F_D has norm |grad l_z| <=
    C, and strong convexity gives |theta*(D + z) - theta*(D)| <= C/Lambda. So theta~ moves by at
    most Delta = (C + 2 tau)/Lambda.
    Noise: N(0, (Delta/mu)^2 I), mu = mu(epsilon, delta) exact.

    Objective perturbation. theta~ solves F(theta) + b.theta with a random b, and has a little noise
    of its own: the mechanism that agt releases weights by, and its proof
    (agt.mechanisms.objective).

Norms up to 1 + 1e-9 are accepted and charged. Per record: a person with several rows is not
protected by this as one.


A small convolutional network whose training is private (DP-SGD), and the features that it makes:
003 section 4.3.

Formal guarantees
    The weights are (eps, delta)-differentially private (agt_audit/dpsgd.py), so the features of
    a record given the weights are a function of that record and of private weights. Whatever is
    trained on them adds its own (eps', delta') for the rest (003 Theorem 5: a guarantee for every
    fixed extractor, integrated over extractors whose laws are (eps, delta)-close).
    For m records at once, (eps1, delta1) of one record gives (m eps1, delta1 sum_{i<m} exp(i eps1))
    (reference.md section 8); 003 takes (m eps1, delta1).
"""

import copy
import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import Tensor, nn
from torch.nn import functional as F

from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.mechanisms.guarantees import ApproximateDP, PureDP
from agt.mechanisms.objective import ProblemConstants, release_objective
from agt.mechanisms.optimal import RandomizedResponse
from agt.numeric import SeededRandomness, gaussian_mu, labels_of
from agt.relations import RELATIONS
from agt.settings import (
    STRICT,
    BatchConfig,
    ComputeConfig,
    Count,
    KGridConfig,
    NonNegative,
    Positive,
    RelationConfig,
    TrainingConfig,
)
from agt.training.batches import BatchPlan
from agt.training.erm_with_linear_term import NORM_SLACK, ErmWithLinearTerm, solve
from agt.training.loop import train
from agt.training.noise import draw_noise, plan_noise
from agt.training.settings import NoiseConfig
from agt.training.setup import TrainingSetup
from agt.training.sgd import Sgd, descend, learning_rate

RECORD = "one record added or removed"
LABEL = "one record's label changed; its features, and which records there are, are not protected"
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Bench:
    """What every baseline is fitted on.

    Attributes:
        head: layers and initial parameters; left unchanged.
        classes: their number.
        records: the private training records. Each row is one: a person with several rows is not
            protected as one.
        size: the public number of records, from which sampling rates and normalisers come.
        training: the loss, and the settings of whoever trains by plain SGD.
        compute: how to compute.
    """

    head: nn.Sequential
    classes: int
    records: Records
    size: int
    training: TrainingConfig
    compute: ComputeConfig = field(default_factory=ComputeConfig)

    @property
    def single(self) -> Records:
        """The records in single precision."""
        return replace(self.records, features=self.records.features.astype(np.float32))

    def labels(self, weights: Weights, queries: np.ndarray) -> np.ndarray:
        """[n] what the head with these weights says of queries [n, ...], computed in their
        dtype.
        """
        x = torch.from_numpy(np.ascontiguousarray(queries))
        parameters = {name: weight.detach().to(x.dtype) for name, weight in weights.items()}
        with torch.no_grad():
            logits = torch.func.functional_call(self.head, parameters, (x,))
        return labels_of(logits).numpy()

    def accuracy(self, weights: Weights, test: Records) -> float:
        """Of the head with these weights on test records, in single precision."""
        is_right = self.labels(weights, test.features.astype(np.float32)) == test.labels
        return float(is_right.mean())


def finite(weights: Weights) -> Weights:
    """The weights, or UnsoundError naming what became NaN or infinite."""
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            raise UnsoundError(
                f"training diverged, because the weights {name} became NaN or infinite: lower "
                "the learning rate"
            )
    return weights


LOSSES: dict[str, Callable[..., Tensor]] = {
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
}
_ROWS = 65_536  # rows handled at once


def one_hot(labels: np.ndarray, classes: int, loss: str) -> np.ndarray:
    """[n] class indices as the loss's targets, float64: [n, 1] under binary cross-entropy, else [n,
    classes].

    Raises:
        ConfigError: a label that is no class, or a loss that no baseline takes.
    """
    if loss not in LOSSES:
        raise ConfigError(
            f"training.loss={loss}: the baselines can only use training.loss={' or '.join(LOSSES)}"
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ConfigError(
            f"labels must be from 0 to {classes - 1}, but they are from {labels.min()} to "
            f"{labels.max()}"
        )
    if loss == "binary_cross_entropy":
        return labels[:, None].astype(np.float64)
    return np.eye(classes)[labels]


def train_sgd(bench: Bench, records: Records) -> Weights:
    """Train the bench's head on ``records`` in place of its own; ``training.clip`` is not applied.

    Returns:
        name -> trained parameters, in ``training.dtype``.

    Raises:
        ConfigError: a label that is no class, or a batch above n_max.
        UnsoundError: a parameter became NaN or infinite.
    """
    training = bench.training
    dtype = bench.training.dtype
    head = copy.deepcopy(bench.head).to(getattr(torch, dtype))
    targets = one_hot(records.labels, bench.classes, training.loss)
    plan = BatchPlan.from_settings(training.batch, training.epochs, bench.size, len(records))
    sgd = Sgd(training)
    for step, rows in enumerate(plan.batches(records.units)):
        head.zero_grad(set_to_none=False)
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            x = torch.from_numpy(records.features[part].astype(dtype))
            y = torch.from_numpy(targets[part].astype(dtype))
            LOSSES[training.loss](head(x), y, reduction="sum").backward()
        with torch.no_grad():
            for name, p in head.named_parameters():
                gradient = torch.zeros_like(p) if p.grad is None else p.grad / plan.normalizer
                update = sgd.update((name,), gradient)
                p.copy_(descend(training, learning_rate(training, step), p, update))
    return finite({name: p.detach() for name, p in head.named_parameters()})


# epsilon below which the PRV accountant's grid, as fine as 1 % of epsilon, takes minutes
_LEAST = 1e-3
_BYTES = 2**28  # memory of one block's per-record gradients
_HARMLESS = (
    # Inputs need no gradient: PyTorch tells the hooks that they fire on outputs alone, which is
    # what Opacus reads.
    "Full backward hook is firing when gradients are computed with respect to module outputs",
    # The RDP orders only set how wide the PRV accountant's domain is; a cruder one makes it wider.
    "Optimal order is the (largest|smallest) alpha",
)


@dataclass(frozen=True)
class Plan:
    """What follows from the settings, the budget and the public size.

    Attributes:
        rate: q, the probability with which a record enters a batch.
        steps: the number of steps.
        noise: z, the noise's standard deviation over the clip.
    """

    rate: float
    steps: int
    noise: float


@validated(frozen=True, config=STRICT)
class DpSgd:
    """DP-SGD's settings; weights, gradients and noise are in the head's precision.

    Attributes:
        batch: expected records in a batch; at least the number of records: full batch.
        lr, decay: learning rate lr / (1 + decay n) at step n.
        clip: C, the l2 norm to which each record's gradient is clipped.
        epochs: how long: size/batch steps each, rounded up over all of them.
        momentum: PyTorch's.
        seeds: how many trainings stand for the method where one figure compares it.
    """

    batch: Positive
    lr: Positive
    clip: Positive
    epochs: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    decay: NonNegative = 0.0
    seeds: Count = 3
    protects: ClassVar[str] = RECORD
    caveat: ClassVar[str] = (
        "Opacus' secure_mode is off, so the last digits of the noise can reveal the number to "
        "which it was added"
    )

    def plan(self, size: int, eps: float, delta: float) -> Plan:
        """The least noise that meets the budget, to 0.1 % of epsilon.

        Args:
            size: the public number of records.

        Raises:
            ConfigError: Opacus is not installed, or the budget is out of its accountant's reach.
        """
        if importlib.util.find_spec("opacus") is None:
            raise ConfigError("DP-SGD needs the package opacus: type pip install 'opacus>=1.5'")
        rate = min(1.0, self.batch / size)
        steps = math.ceil(self.epochs / rate)
        if rate == 1:
            return Plan(rate, steps, math.sqrt(steps) / gaussian_mu(eps, delta))
        if eps < _LEAST:
            raise ConfigError(
                f"epsilon={eps:g} is too small for sampled batches: give at least {_LEAST:g}, or "
                "use all records in one batch"
            )
        return Plan(rate, steps, _least_noise(eps, delta, rate, steps))

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline`` says.

        ConfigError too where Opacus cannot take a layer's records apart.
        """
        model = copy.deepcopy(bench.head).train()
        dtype = next(model.parameters()).dtype
        targets = one_hot(bench.records.labels, bench.classes, bench.training.loss)
        x = torch.tensor(bench.records.features, dtype=dtype)
        y = torch.tensor(targets, dtype=dtype)
        plan = self.plan(bench.size, eps, delta)
        draws = torch.Generator()
        draws.manual_seed(seed)
        loss = LOSSES[bench.training.loss]
        with _quiet():
            self.descend(model, x, y, loss, plan, plan.rate * bench.size, draws)
        return finite({name: p.detach().clone() for name, p in model.named_parameters()})

    def descend(
        self,
        model: nn.Sequential,
        x: Tensor,
        y: Tensor,
        loss: Any,
        plan: Plan,
        expected: float,
        draws: torch.Generator,
    ) -> None:
        """Train in place; ``expected``: records in a batch, a public constant: what a noisy sum
        is divided by.
        """
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        try:
            hooked = GradSampleModule(model, loss_reduction="sum")
        except NotImplementedError as error:
            raise ConfigError(
                f"DP-SGD: Opacus cannot compute gradients of single records for this model: {error}"
            ) from None
        sgd = torch.optim.SGD(model.parameters(), lr=self.lr, momentum=self.momentum)
        optimizer = DPOptimizer(
            sgd,
            noise_multiplier=plan.noise,
            max_grad_norm=self.clip,
            expected_batch_size=expected,
            loss_reduction="mean",
            generator=draws,
        )
        count = sum(parameter.numel() for parameter in model.parameters())
        block = max(1, _BYTES // (x.element_size() * count))
        for step in range(plan.steps):
            for group in optimizer.param_groups:
                group["lr"] = self.lr / (1 + self.decay * step)
            parts = _poisson(len(x), plan.rate, draws).split(block)
            # no rows: one empty part, whose step is noise alone
            for index, rows in enumerate(parts):
                optimizer.zero_grad(set_to_none=True)
                loss(hooked(x[rows]), y[rows], reduction="sum").backward()
                optimizer.signal_skip_step(do_skip=index < len(parts) - 1)
                optimizer.step()


@cache
def _least_noise(eps: float, delta: float, rate: float, steps: int) -> float:
    """The noise multiplier, by Opacus' PRV accountant; kept, because sweeps over seeds and
    learning rates ask again.
    """
    # the accountant's additive error: its default, or 1 % of a small epsilon
    accuracy = 0.01 * min(1.0, eps)
    with _quiet():
        from opacus.accountants.utils import get_noise_multiplier

        try:
            noise: float = get_noise_multiplier(
                target_epsilon=eps,
                target_delta=delta,
                sample_rate=rate,
                steps=steps,
                accountant="prv",
                epsilon_tolerance=1e-3 * eps,
                eps_error=accuracy,
            )
        except (ValueError, RuntimeError) as error:
            raise ConfigError(
                f"epsilon={eps:g}, delta={delta:g}, {steps} steps: Opacus finds no noise for "
                f"this budget: {error}"
            ) from None
    return noise


def _poisson(records: int, rate: float, draws: torch.Generator) -> Tensor:
    """The rows of one batch: each record enters independently with probability ``rate``."""
    is_in = torch.rand(records, generator=draws, dtype=torch.float64) < rate
    return is_in.nonzero().flatten()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what is known to be harmless, by message."""
    with warnings.catch_warnings():
        for message in _HARMLESS:
            warnings.filterwarnings("ignore", message=message)
        yield


@dataclass(frozen=True)
class LocalRR:
    """The private records' labels flipped, then plain SGD on them.

    Public records keep their labels.
    """

    protects: ClassVar[str] = LABEL
    caveat: ClassVar[str] = "protects labels alone, from the trainer too"

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline`` says; delta is not spent."""
        records = bench.single
        response = RandomizedResponse.with_guarantee(PureDP(eps), bench.classes)
        drawn = response.release(
            records.labels, np.zeros_like(records.labels), SeededRandomness(seed)
        )
        flipped = np.where(records.public, records.labels, drawn)
        rows = (np.ascontiguousarray(row).tobytes() for row in records.features)
        units = np.array([blake2b(row, digest_size=16).hexdigest() for row in rows])
        return train_sgd(
            bench, Records(records.features, flipped, records.ids, units, records.public)
        )


@validated(frozen=True, config=STRICT)
class NoisyAgt:
    """Certified training with noise: full batch, ``epochs`` steps of plain SGD at ``lr``,
    elementwise clip.
    """

    epochs: Count
    lr: Positive
    clip: Positive
    protects: ClassVar[str] = RECORD
    caveat: ClassVar[str] = (
        "the bounds around these weights hold for every draw of the noise, and are not released"
    )

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline`` says; the proof is in ``agt.training.loop``."""
        batch = BatchConfig(n_max=2 * bench.size + 10)
        training = TrainingConfig(
            loss=bench.training.loss, epochs=self.epochs, lr=self.lr, clip=self.clip, batch=batch
        )
        plan = BatchPlan.from_settings(batch, self.epochs, bench.size, len(bench.records))
        parameters = {name: p.detach() for name, p in bench.head.named_parameters()}
        scalars = sum(p.numel() for p in parameters.values())
        sensitivity = RELATIONS["add_remove"].step_sensitivity(self.clip, scalars, plan.normalizer)
        noise = plan_noise(
            NoiseConfig(epsilon=eps, delta=delta, seed=seed), sensitivity, plan.epochs
        )

        def draws(step: int) -> Weights:
            return draw_noise(parameters, noise, seed, step)

        relation = RelationConfig(name="add_remove")
        setup = TrainingSetup(
            bench.classes, training, relation, KGridConfig(max=0), bench.compute, bench.size
        )
        return dict(train(bench.head, setup, bench.single, noise=draws).nominal)


@validated(frozen=True, config=STRICT)
class Perturbation:
    """Perturbed ERM on a linear head without bias.

    Attributes:
        method: where the noise goes.
        strength: Lambda, against the *sum* of the losses (lambda n for a regulariser lambda against
            their mean).
        clamp: C, the largest derivative of the loss; 1: the logistic loss itself.
        tolerance: tau, the norm of the gradient that the solver may leave.
    """

    method: Literal["output", "objective"]
    strength: Positive
    clamp: Annotated[float, Field(gt=0, le=1)] = 1.0
    tolerance: Positive = 1e-5
    protects: ClassVar[str] = RECORD
    caveat: ClassVar[str] = "two classes only, and features with a public bound of 1 on their norm"

    @property
    def sensitivity(self) -> float:
        """Delta = (C + 2 tau)/Lambda: how far one record moves what output perturbation adds its
        noise to.
        """
        return (self.clamp * (1 + NORM_SLACK) + 2 * self.tolerance) / self.strength

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline`` says, for two classes, labelled 0 and 1, and [n, d] records of norm at
        most 1, any bias coordinate included.

        Raises:
            AgtError: the solver missed its tolerance; nothing is released.
        """
        erm = ErmWithLinearTerm.from_labels(
            bench.records.features, bench.records.labels, self.strength, self.clamp
        )
        count, width = erm.x.shape
        if self.method == "objective":
            shape = ProblemConstants(self.strength, self.clamp, count, width)
            source = SeededRandomness(seed)
            weight = release_objective(erm, shape, ApproximateDP(eps, delta), source).weight
        else:
            standard = np.random.default_rng(seed).normal(size=(1, width))
            noise = standard * self.sensitivity / gaussian_mu(eps, delta)
            weight = solve(erm, self.tolerance) + noise
        theta = torch.from_numpy(weight)
        if bench.training.loss != "binary_cross_entropy":  # two outputs
            theta = torch.cat([-theta / 2, theta / 2])
        return {"0.weight": theta}


# A private training method with its settings, all public. ``protects``: which datasets count as
# neighbours; ``caveat``: what its guarantee leaves open. ``fit(bench, eps, delta, seed)``: weights
# that are (eps, delta)-differentially private, whatever number of queries they answer; ConfigError:
# the records, the head or the budget are out of its reach; UnsoundError: training diverged.
Baseline = DpSgd | LocalRR | NoisyAgt | Perturbation
Channels = tuple[int, int]


def network(pixels: int, classes: int, channels: Channels, hidden: int, seed: int) -> nn.Sequential:
    """Two 3 x 3 convolutions with 2 x 2 max-pooling, a dense layer whose outputs are the features,
    and the logits.

    Args:
        pixels: of a square image, as one row of numbers.
    """
    side = math.isqrt(pixels)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Unflatten(1, (1, side, side)),
            nn.Conv2d(1, channels[0], 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels[0], channels[1], 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(channels[1] * (side // 4) ** 2, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )


def features(bench: Bench, weights: Weights, x: np.ndarray) -> np.ndarray:
    """[n, hidden] float32: what the last layer of a network with these weights sees of [n,
    pixels] images.
    """
    last = f"{len(bench.head) - 1}."
    kept = {name: weight for name, weight in weights.items() if not name.startswith(last)}
    images = torch.from_numpy(x.astype(np.float32))
    with torch.no_grad():
        made = torch.func.functional_call(bench.head[:-1], kept, (images,))
    return np.ascontiguousarray(made.numpy())


def of_one(eps: float, delta: float, records: int, published: bool) -> tuple[float, float]:
    """The (eps1, delta1) of one record that gives (eps, delta) for so many: as above, or as 003
    takes it.
    """
    one = eps / records
    if published:
        return one, delta
    return one, delta / sum(math.exp(i * one) for i in range(records))
