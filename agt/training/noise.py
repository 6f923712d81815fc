"""DP-SGD's noise inside certified training (000, Algorithm 1): its settings, size and draws.

The proof of its privacy is docs/proofs/noise.md.
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

SEED = "noise"  # the name under which checkpoints store the seed of private draws
_SEED_BITS = 128


@schema
class NoiseConfig:
    """The privacy that a run's noise is to guarantee, and the seed of its draws.

    Attributes:
        epsilon: of the released weights.
        delta: of the released weights.
        release: when the weights are released. ``inside_box`` (only if they lie in the box) is
            refused, because no epsilon covers it (Lemma 3 of docs/proofs/noise.md).
        seed: of the draws, for a simulation; None: the operating system gives one.

    Raises:
        ValueError: ``release`` is ``inside_box``.
    """

    epsilon: Annotated[float, Field(ge=1e-6, le=1e6)]
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    release: Literal["always", "inside_box"] = "always"
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None

    def __post_init__(self) -> None:
        if self.release == "inside_box":
            raise ValueError(
                "noise.release=inside_box is not private: whether the weights lie in the box "
                "depends on private data, and the noise covers neither the release nor the "
                "refusal (docs/proofs/noise.md). Use release=always, or publish no weights"
            )


@schema
class NoisePlan:
    """How much noise each step of a run takes, and what the whole run guarantees with it.

    Formal guarantees
        * The released weights are mu-GDP, hence (epsilon, ``delta(epsilon)``)-DP for every epsilon
          (Lemma 2 of docs/proofs/noise.md).
        * There is no amplification by sampling: batches are fixed by public hashes.

    Attributes:
        sensitivity: Delta, how far in l2 one k moves the direction of one step (Lemma 1 of
            docs/proofs/noise.md).
        sigma: the noise's standard deviation on each element of a step's direction, before the
            learning rate.
        epochs: how many steps depend on any one unit: one of each epoch.
    """

    sensitivity: Positive
    sigma: Positive
    epochs: Annotated[int, Field(ge=1)]

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy of the whole run."""
        return math.sqrt(self.epochs) * self.sensitivity / self.sigma

    def delta(self, epsilon: float) -> float:
        """Return the delta with which the whole run is (epsilon, delta)-DP."""
        return gaussian_delta(epsilon, self.mu)


def plan_noise(config: NoiseConfig, sensitivity: float, epochs: int) -> NoisePlan:
    """Return the least noise that reaches the target, sigma = sqrt(epochs) Delta / mu.

    Args:
        config: the target (epsilon, delta).
        sensitivity: Delta, how far in l2 one k moves the direction of one step.
        epochs: how many steps depend on any one unit.
    """
    mu = gaussian_mu(config.epsilon, config.delta)
    sigma = math.sqrt(epochs) * sensitivity / mu
    return NoisePlan(sensitivity=sensitivity, sigma=sigma, epochs=epochs)


def noise_config(node: object) -> NoiseConfig | None:
    """Return the settings under the key ``noise``.

    Args:
        node: the configuration's value; None: records older than this key have none.

    Returns:
        None where there is no noise: no settings, or an epsilon of null.

    Raises:
        ConfigError: a setting is unknown or wrong, or was given without an epsilon, so that it
            would be ignored.
    """
    if node is None:
        return None
    if isinstance(node, Mapping) and node.get("epsilon", 0) is None:
        # Any valid epsilon will do to see whether another setting differs from its default.
        without_epsilon = validate(NoiseConfig, {**node, "epsilon": 1.0}, "noise")
        if without_epsilon != NoiseConfig(epsilon=1.0):
            raise ConfigError(
                "noise: epsilon is null, which means no noise, but other noise settings are "
                "given. Give epsilon as well, or leave them out"
            )
        return None
    return validate(NoiseConfig, node, "noise")


def noise_seed(config: NoiseConfig) -> int:
    """Return the seed of a run's draws: the configured one, or 128 bits of the operating system's.

    Whoever learns the seed can subtract the noise, so it is stored with private data or not at all.
    """
    if config.seed is not None:
        return config.seed
    return secrets.randbits(_SEED_BITS)


def draw_noise(
    parameters: Mapping[str, Tensor], plan: NoisePlan, seed: int, step: int
) -> dict[str, Tensor]:
    """Return the noise of one step, the same for the same seed, step and shapes in this order.

    Args:
        parameters: name -> a tensor of which only the shape matters.
        plan: has the standard deviation.
        seed: the secret of the draws, below 2^128.
        step: the number of the step, which is public.

    Returns:
        Name -> float64 draws from N(0, sigma^2) of each parameter's shape, on the CPU.
    """
    # The step is the counter's highest word, which no draw within a step reaches.
    counter = np.array([0, 0, 0, step], dtype=np.uint64)
    generator = np.random.Generator(np.random.Philox(key=seed, counter=counter))
    noise = {}
    for name, parameter in parameters.items():
        draws = generator.normal(0, plan.sigma, tuple(parameter.shape))
        noise[name] = torch.from_numpy(draws)
    return noise
