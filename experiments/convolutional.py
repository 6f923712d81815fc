"""A small convolutional network for square images, and its features."""

import math

import numpy as np
import torch
from torch import nn

from .bench import Bench, Weights

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
