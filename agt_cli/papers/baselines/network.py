"""A small convolutional network whose training is private (DP-SGD), and the features that it makes: 003 section 4.3.

Formal guarantees
    The weights are (eps, delta)-differentially private (dpsgd.py), so the features of a record given the weights are a
    function of that record and of private weights. Whatever is trained on them adds its own (eps', delta') for the rest
    (003 Theorem 5: a guarantee for every fixed extractor, integrated over extractors whose laws are (eps, delta)-close).
    For m records at once, (eps1, delta1) of one record gives (m eps1, delta1 sum_{i<m} exp(i eps1)) (method.md section 8);
    003 takes (m eps1, delta1).
"""

import math

import numpy as np
import torch
from torch import nn

from agt_cli.papers.baselines.released import Bench, Weights

Channels = tuple[int, int]


def network(pixels: int, classes: int, channels: Channels, hidden: int, seed: int) -> nn.Sequential:
    """Two 3 x 3 convolutions with 2 x 2 max-pooling, a dense layer whose outputs are the features, and the logits.

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
    """[n, hidden] float32: what the last layer of a network with these weights sees of [n, pixels] images."""
    kept = {name: weight for name, weight in weights.items() if int(name.split(".")[0]) < len(bench.head) - 1}
    penultimate = bench.head[:-1]
    with torch.no_grad():
        made = torch.func.functional_call(penultimate, kept, (torch.from_numpy(x.astype(np.float32)),))
    return np.ascontiguousarray(made.numpy())


def of_one(eps: float, delta: float, records: int, published: bool) -> tuple[float, float]:
    """The (eps1, delta1) of one record that gives (eps, delta) for so many: as above, or as 003 takes it."""
    one = eps / records
    return one, delta if published else delta / sum(math.exp(i * one) for i in range(records))
