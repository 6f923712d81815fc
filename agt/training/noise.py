"""The noise of DP-SGD inside certified training (000, Algorithm 1): size and draws.

The proof of its privacy is docs/proofs/noise.md.
"""

import math
import secrets
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from agt.numeric import gaussian_delta, gaussian_mu
from agt.settings import Count, Positive, schema
from agt.training.settings import NoiseConfig

SEED = "noise"  # the name under which checkpoints store the secret seed of the draws
_SEED_BITS = 128  # the size of a Philox key


@schema
class NoisePlan:
    """The standard deviation of the noise in a training, and the privacy guarantee that follows.

    Formal guarantees
        * The trained weights are mu-GDP (Gaussian differential privacy), and so (epsilon,
          ``delta(epsilon)``)-DP for every epsilon (Lemma 2 of docs/proofs/noise.md).
        * Privacy amplification by sampling is not used, because public hashes fix the batches.

    Attributes:
        sensitivity: Delta, a bound on the l2 norm by which one edit of the dataset changes the
            descent direction of a step (Lemma 1 of docs/proofs/noise.md).
        sigma: the standard deviation of the noise on each element of a step's descent direction,
            before the learning rate multiplies it.
        epochs: the number of steps that use the records of one unit (whose data they are): one
            step in each epoch.
    """

    sensitivity: Positive
    sigma: Positive
    epochs: Count

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy of the training: sqrt(epochs) Delta / sigma."""
        return math.sqrt(self.epochs) * self.sensitivity / self.sigma

    def delta(self, epsilon: float) -> float:
        """Return the delta for which the whole training is (epsilon, delta)-DP.

        Args:
            epsilon: a number of at least 0.
        """
        return gaussian_delta(epsilon, self.mu)


def plan_noise(config: NoiseConfig, sensitivity: float, epochs: int) -> NoisePlan:
    """Return the least noise with which a training reaches its target (epsilon, delta).

    The standard deviation is sigma = sqrt(epochs) Delta / mu, where mu-GDP implies the target.

    Args:
        config: the target (epsilon, delta).
        sensitivity: Delta, a bound on the l2 norm by which one edit of the dataset changes the
            descent direction of a step.
        epochs: the number of steps that use the records of one unit: one step in each epoch.
    """
    mu = gaussian_mu(config.epsilon, config.delta)
    sigma = math.sqrt(epochs) * sensitivity / mu
    return NoisePlan(sensitivity=sensitivity, sigma=sigma, epochs=epochs)


def noise_seed(config: NoiseConfig) -> int:
    """Return the seed of a training's noise: the configured one, or a secret random integer.

    A random seed has 128 bits from the operating system. A person who learns it can subtract the
    noise, so the caller must protect it like the private data.
    """
    if config.seed is not None:
        return config.seed
    return secrets.randbits(_SEED_BITS)


def draw_noise(
    parameters: Mapping[str, Tensor], plan: NoisePlan, seed: int, step: int
) -> dict[str, Tensor]:
    """Return independent Gaussian noise for all parameters in one step of a training.

    The result is reproducible: equal seeds, steps and shapes (in the same order) give equal noise.

    Args:
        parameters: parameter name -> tensor, of which only the shape is used.
        plan: the noise plan, of which only ``sigma``, the standard deviation, is used.
        seed: a secret integer from 0 to 2^128 - 1.
        step: the number of the step, from 0. Each step has noise of its own.

    Returns:
        Parameter name -> float64 draws from N(0, sigma^2) of the parameter's shape, on the CPU.
    """
    # The counter of Philox has four words of 64 bits. Drawing counts up from the lowest word and
    # never reaches the highest one, so the draws of two steps do not overlap.
    counter = np.array([0, 0, 0, step], dtype=np.uint64)
    generator = np.random.Generator(np.random.Philox(key=seed, counter=counter))
    noise = {}
    for name, parameter in parameters.items():
        draws = generator.normal(0, plan.sigma, tuple(parameter.shape))
        noise[name] = torch.from_numpy(draws)
    return noise
