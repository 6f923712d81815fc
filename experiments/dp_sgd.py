"""DP-SGD with Opacus, the papers' baseline: Poisson sampling, an l2 clip for each record, Gaussian
noise, PRV accountant.

Formal guarantees
    Every step draws a batch into which each record enters independently with the public probability
    q, clips each record's gradient to l2 norm C, sums, and adds N(0, (z C)^2 I): a
    Poisson-subsampled Gaussian mechanism under one record added or removed (Abadi et al. 2016).
    Opacus' PRV accountant (Gopi et al. 2021) bounds epsilon of all steps at delta from above; at q
    = 1, where there is no sampling, mu = sqrt(steps)/z of Gaussian composition is exact and
    replaces it. The sum is divided by the expected batch size, a public constant, never by the
    number drawn; an empty batch takes its step too.
"""

import copy
import importlib.util
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from agt.errors import ConfigError
from agt.numeric import gaussian_mu
from agt.settings import Count, NonNegative, Positive, schema

from .bench import LOSSES, RECORD, Bench, Weights, finite, one_hot

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


@schema
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


def of_one(eps: float, delta: float, records: int, published: bool) -> tuple[float, float]:
    """The (eps1, delta1) of one record that gives (eps, delta) for so many: as above, or as 003
    takes it.
    """
    one = eps / records
    if published:
        return one, delta
    return one, delta / sum(math.exp(i * one) for i in range(records))
