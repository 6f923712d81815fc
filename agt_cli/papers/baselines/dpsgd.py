"""DP-SGD with Opacus, the papers' baseline: Poisson sampling, an l2 clip for each record, Gaussian noise, PRV accountant.

Formal guarantees
    Every step draws a batch into which each record enters independently with the public probability q, clips each record's
    gradient to l2 norm C, sums, and adds N(0, (z C)^2 I): a Poisson-subsampled Gaussian mechanism under one record added or
    removed (Abadi et al. 2016). Opacus' PRV accountant (Gopi et al. 2021) bounds epsilon of all steps at delta from above;
    at q = 1, where there is no sampling, mu = sqrt(steps)/z of Gaussian composition is exact and replaces it. The sum is
    divided by the expected batch size, a public constant, never by the number drawn; an empty batch takes its step too.
"""

import copy
import importlib.util
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import Tensor, nn

from agt.errors import ConfigError
from agt.numeric import gaussian_epsilon, gaussian_mu
from agt.settings import STRICT, LossName, NonNegative, Positive
from agt_cli.papers.baselines.released import RECORD, Released, caveat_of
from agt_cli.papers.baselines.sgd import LOSSES, one_hot

_LEAST = 1e-3  # epsilon below which the PRV accountant's grid, as fine as 1 % of epsilon, takes minutes
_BYTES = 2**28  # memory of one block's per-record gradients
_HARMLESS = (
    # Inputs need no gradient: PyTorch tells the hooks that they fire on outputs alone, which is what Opacus reads.
    "Full backward hook is firing when gradients are computed with respect to module outputs",
    # The RDP orders only set how wide the PRV accountant's domain is; a cruder one makes it wider.
    "Optimal order is the (largest|smallest) alpha",
)


@validated(frozen=True, config=STRICT)
class DpSgdConfig:
    """DP-SGD's settings, all public.

    Attributes:
        epsilon, delta: the target for the whole run.
        batch: expected records in a batch; at least the dataset's size: full batch.
        epochs, steps: how long; give one of them. An epoch is size/batch steps, rounded up over all epochs.
        lr, decay: learning rate lr / (1 + decay n) at step n.
        momentum: PyTorch's.
        clip: C, the l2 norm to which each record's gradient is clipped.
        seed: for simulation; None: from the operating system.
        dtype: of weights, gradients and noise.
    """

    epsilon: Positive
    delta: Annotated[float, Field(gt=0, lt=1)]
    batch: Positive
    lr: Positive
    clip: Positive
    epochs: Positive | None = None
    steps: Annotated[int, Field(ge=1)] | None = None
    decay: NonNegative = 0.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    seed: Annotated[int, Field(ge=0)] | None = None
    dtype: Literal["float64", "float32"] = "float32"

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give either epochs or steps, not both")


@validated(frozen=True, config=STRICT)
class DpSgdPlan:
    """What follows from the settings and the public size.

    Attributes:
        rate: q, the probability with which a record enters a batch.
        batch: the expected number of records in a batch: what a noisy sum is divided by.
        steps: the number of steps.
        noise: z, the noise's standard deviation over the clip.
        epsilon: what the steps spend at delta; at most the target.
    """

    rate: float
    batch: float
    steps: int
    noise: float
    epsilon: float


def plan_dpsgd(config: DpSgdConfig, size: int) -> DpSgdPlan:
    """The least noise that meets the target, to 0.1 % of epsilon.

    Args:
        size: the number of training records, a public constant.

    Raises:
        ConfigError: Opacus is not installed, or the target is out of its accountant's reach.
    """
    _require_opacus()
    rate = min(1.0, config.batch / size)
    steps = config.steps or math.ceil((config.epochs or 0) / rate)
    if rate == 1:
        noise = math.sqrt(steps) / gaussian_mu(config.epsilon, config.delta)
        return DpSgdPlan(rate, rate * size, steps, noise, config.epsilon)
    if config.epsilon < _LEAST:
        raise ConfigError(f"epsilon={config.epsilon:g}: with sampled batches at least {_LEAST:g}, or use the full batch")
    return DpSgdPlan(rate, rate * size, steps, *_least_noise(config.epsilon, config.delta, rate, steps))


@cache
def _least_noise(epsilon: float, delta: float, rate: float, steps: int) -> tuple[float, float]:
    """(noise multiplier, epsilon spent); kept, because sweeps over seeds and learning rates ask again."""
    accuracy = 0.01 * min(1.0, epsilon)  # the PRV accountant's additive error: its default, or 1 % of a small epsilon
    with _quiet():
        from opacus.accountants.utils import get_noise_multiplier

        try:
            noise = get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=rate,
                steps=steps,
                accountant="prv",
                epsilon_tolerance=1e-3 * epsilon,
                eps_error=accuracy,
            )
        except (ValueError, RuntimeError) as error:
            raise ConfigError(
                f"epsilon={epsilon:g}, delta={delta:g}, {steps} steps: Opacus finds no noise: {error}"
            ) from None
    return noise, epsilon_spent(noise, rate, steps, delta, accuracy)


def epsilon_spent(noise: float, rate: float, steps: int, delta: float, accuracy: float = 0.01) -> float:
    """An upper bound of epsilon at ``delta``, by Opacus' PRV accountant (``accuracy`` above it), or exact at rate 1."""
    if rate == 1:
        return gaussian_epsilon(math.sqrt(steps) / noise, delta)
    _require_opacus()
    with _quiet():
        from opacus.accountants import PRVAccountant

        accountant = PRVAccountant()
        accountant.history = [(noise, rate, steps)]
        return float(accountant.get_epsilon(delta, eps_error=accuracy))


def train_dpsgd(
    head: nn.Sequential,
    classes: int,
    features: np.ndarray,
    labels: np.ndarray,
    loss: LossName,
    declared_size: int | None,
    config: DpSgdConfig,
) -> Released:
    """Train ``head`` with DP-SGD.

    Args:
        head: initial parameters and layers; left unchanged.
        classes: number of classes.
        features: [n, ...]. Each row is a record; a person with several rows is not protected by this as one.
        labels: [n] class indices.
        declared_size: the public number of records, from which q comes; None: n itself, and a caveat says so.

    Returns:
        The weights and the epsilon spent, at most the target.

    Raises:
        ConfigError: Opacus is not installed or cannot handle a layer, a label is no class, or the target cannot be met.
        UnsoundError: training diverged.
    """
    plan = plan_dpsgd(config, declared_size or len(features))
    targets = one_hot(labels, classes, loss)
    generator = torch.Generator()
    generator.manual_seed(config.seed) if config.seed is not None else generator.seed()
    with _quiet():
        model = _descend(head, features, targets, loss, config, plan, generator)
    caveats = [caveat_of(config.seed), "Opacus' secure_mode is off"]
    if declared_size is None:
        caveats.append("the sampling rate and the normaliser come from the number of records, taken to be public")
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return Released(weights, plan.epsilon, config.delta, RECORD, tuple(caveats))


def _descend(
    head: nn.Sequential,
    features: np.ndarray,
    targets: np.ndarray,
    loss: str,
    config: DpSgdConfig,
    plan: DpSgdPlan,
    generator: torch.Generator,
) -> nn.Module:
    model = copy.deepcopy(head).to(getattr(torch, config.dtype)).train()
    hooked, optimizer = _opacus(model, config, plan, generator)
    x, y = (torch.from_numpy(a.astype(config.dtype)) for a in (features, targets))
    block = max(1, _BYTES // (x.element_size() * sum(p.numel() for p in model.parameters())))
    for step in range(plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.lr / (1 + config.decay * step)
        parts = _poisson(len(x), plan.rate, generator).split(block)
        for index, rows in enumerate(parts):  # no rows: one empty part, whose step is noise alone
            optimizer.zero_grad(set_to_none=True)
            LOSSES[loss](hooked(x[rows]), y[rows], reduction="sum").backward()
            optimizer.signal_skip_step(do_skip=index < len(parts) - 1)
            optimizer.step()
    return model


def _poisson(records: int, rate: float, generator: torch.Generator) -> Tensor:
    """The rows of one batch: each record enters independently with probability ``rate``."""
    return (torch.rand(records, generator=generator, dtype=torch.float64) < rate).nonzero().flatten()


def _opacus(model: nn.Sequential, config: DpSgdConfig, plan: DpSgdPlan, generator: torch.Generator) -> tuple[Any, Any]:
    """The model with Opacus' per-record gradients, and its clipping, noising optimizer."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    try:
        hooked = GradSampleModule(model, loss_reduction="sum")
    except NotImplementedError as error:
        raise ConfigError(f"DP-SGD: Opacus cannot take this head's records apart: {error}") from None
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum),
        noise_multiplier=plan.noise,
        max_grad_norm=config.clip,
        expected_batch_size=plan.batch,
        loss_reduction="mean",
        generator=generator,
    )
    return hooked, optimizer


def _require_opacus() -> None:
    if importlib.util.find_spec("opacus") is None:
        raise ConfigError("DP-SGD needs Opacus: pip install 'agt[dpsgd]'")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what is known to be harmless, by message."""
    with warnings.catch_warnings():
        for message in _HARMLESS:
            warnings.filterwarnings("ignore", message=message)
        yield
