"""DP-SGD's noise inside certified training (000, Algorithm 1): its sensitivity, its accounting, its
draws.

The nominal direction of each step becomes d + z, z ~ N(0, sigma^2 I), and both ends of every box
move by the same z. Given the draw, z is a constant, so the box for k still holds what the same run,
*with the same draw*, would have given on every neighbouring dataset. That coupling is a statement
about one draw, for the data owner; the differential privacy of the released weights is the separate
statement below.

Formal guarantees
    Sensitivity. A record's gradient is clipped elementwise to [-gamma, gamma], so its l2 norm is at
    most gamma sqrt(P), P the number of parameters, and attains it; gamma, as in DP-SGD with an l2
    clip, would be wrong. A step's direction is a sum over a public constant B, so one unit of at
    most m rows moves it by Delta = m gamma sqrt(P)/B when added or removed, and by twice that when
    replaced. A mean over the actual batch has no such bound and is refused. Composition. A unit's
    batch is a function of its own id, so neighbours differ in one batch of every epoch: of all
    steps, ``epochs`` see the difference, each Delta/sigma-GDP given the past, the others see none.
    Adaptive composition of GDP (Dong, Roth and Su 2022, Cor. 2) gives mu = sqrt(epochs) Delta/sigma
    for the whole run; momentum, decay and the final weights are post-processing. There is no
    amplification: batches are fixed by public hashes, not drawn in secret.
"""

import math
import secrets
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from agt.errors import ConfigError
from agt.numeric import gaussian_delta, gaussian_mu
from agt.settings import Positive, schema, validate

SEED = "noise"  # what checkpoints call the seed of private draws


@schema
class NoiseConfig:
    """A target for the whole run, and the draws' seed.

    Attributes:
        epsilon, delta: of the released weights.
        release: when the weights are released; ``inside_box``, only if they lie in the box, is
            refused. Whether they do is decided by private data: the box moves with it. Conditioning
            on that event divides the density of the weights by its probability, which differs
            between neighbours without bound, and an abstention is itself an answer; the noise's
            (epsilon, delta) covers neither.
        seed: for simulation; None: the operating system's.
    """

    epsilon: Annotated[float, Field(ge=1e-6, le=1e6)]
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    release: Literal["always", "inside_box"] = "always"
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None

    def __post_init__(self) -> None:
        if self.release == "inside_box":
            raise ValueError(
                "releasing the weights only when they lie in the box is not private: whether they "
                "do depends on the private"
                " data, and both the release and the refusal tell about it (method.md section 3). "
                "Release them always, "
                "with the noise's own (epsilon, delta), or not at all"
            )


@schema
class NoisePlan:
    """What one run's noise guarantees.

    Attributes:
        sensitivity: Delta, l2, of one step's direction.
        sigma: standard deviation of the noise on each element of a step's direction, before the
            learning rate.
        epochs: how many steps see any one unit.
    """

    sensitivity: Positive
    sigma: Positive
    epochs: Annotated[int, Field(ge=1)]

    @property
    def mu(self) -> float:
        """The run is mu-GDP."""
        return math.sqrt(self.epochs) * self.sensitivity / self.sigma

    def delta(self, epsilon: float) -> float:
        """The run is (epsilon, delta)-private for every epsilon."""
        return gaussian_delta(epsilon, self.mu)


def plan_noise(config: NoiseConfig, sensitivity: float, epochs: int) -> NoisePlan:
    """The least noise per step for the target: sigma = sqrt(epochs) Delta/mu(epsilon, delta)."""
    mu = gaussian_mu(config.epsilon, config.delta)
    return NoisePlan(
        sensitivity=sensitivity, sigma=math.sqrt(epochs) * sensitivity / mu, epochs=epochs
    )


def noise_config(node: object) -> NoiseConfig | None:
    """The settings under the key ``noise``; None where its epsilon is null, or in records older
    than the key.

    Raises:
        ConfigError: an unknown or wrong setting, or one that was set without an epsilon, and would
            be ignored.
    """
    if node is None:
        return None
    if isinstance(node, Mapping) and node.get("epsilon", 0) is None:
        unused = validate(NoiseConfig, {**node, "epsilon": 1.0}, "noise")
        if unused != NoiseConfig(epsilon=1.0):
            raise ConfigError(
                "noise: epsilon is null, so that there is no noise, and other settings are given: "
                "give epsilon"
            )
        return None
    return validate(NoiseConfig, node, "noise")


def noise_seed(config: NoiseConfig) -> int:
    """The seed of a run's draws.

    Whoever learns it can subtract the noise: it is kept with the private data or nowhere.
    """
    return secrets.randbits(128) if config.seed is None else config.seed


def draw_noise(
    parameters: Mapping[str, Tensor], plan: NoisePlan, seed: int, step: int
) -> dict[str, Tensor]:
    """The noise of one step: name -> a float64 tensor of each parameter's shape, on the CPU.

    Determined by (seed, step) and the names' order alone. The seed, of 128 bits, is the whole key;
    the step is public, and the counter's highest word, which no draw reaches.
    """
    generator = np.random.Generator(
        np.random.Philox(key=seed, counter=np.array([0, 0, 0, step], dtype=np.uint64))
    )
    return {
        name: torch.from_numpy(generator.normal(0, plan.sigma, tuple(p.shape)))
        for name, p in parameters.items()
    }
