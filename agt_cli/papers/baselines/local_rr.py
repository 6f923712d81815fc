"""Local randomised response on the training labels, then plain SGD (002, 004): epsilon-DP for labels alone.

Every record's label is kept or replaced before anyone sees it, so not even the trainer is trusted with it; features, and
which records there are, get no protection at all.

Formal guarantees
    Out of 2^64 equally likely draws, each wrong class gets T = ceil(2^64 / (e^epsilon + C - 1)), and the true one the
    2^64 - (C - 1) T that are left. T is at least the exact share, so right over wrong is at most e^epsilon; for
    epsilon >= 1e-9 and C <= 1000 the rounding, at most C draws, keeps wrong over right below e^epsilon too.
    What follows sees the flipped labels only: batches are laid out by features, never by an id that may hash the label.
    Training on flipped labels as they are keeps the likeliest class: each wrong one takes the same share.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from hashlib import blake2b
from typing import ClassVar

import numpy as np

from agt.data.dataset import Records
from agt.errors import ConfigError
from agt_cli.papers.baselines.released import LABEL, Bench, Weights
from agt_cli.papers.baselines.sgd import train_sgd

_DRAWS = 2**64


def wrong_draws(epsilon: float, classes: int) -> int:
    """T: of 2^64 draws, how many give any one wrong class; rounded up.

    Raises:
        ConfigError: epsilon below 1e-9, fewer than 2 classes, or more than 1000.
    """
    if not (epsilon >= 1e-9 and 2 <= classes <= 1000):
        raise ConfigError(
            f"randomised response on labels takes epsilon >= 1e-9 and 2 to 1000 classes, got {epsilon:g} and {classes}"
        )
    with localcontext() as context:
        context.prec = 60
        return math.ceil(_DRAWS / (Decimal(epsilon).exp() + classes - 1) * (1 + Decimal(10) ** -40))


def flip_labels(labels: np.ndarray, classes: int, epsilon: float, seed: int) -> np.ndarray:
    """[n] labels, each replaced by another class, uniform, with probability (C - 1)/(e^epsilon + C - 1)."""
    wrong = np.uint64(wrong_draws(epsilon, classes))
    draws = np.random.default_rng(seed).integers(0, _DRAWS, size=len(labels), dtype=np.uint64)
    offset = (draws // wrong).clip(max=np.uint64(classes - 1)).astype(np.int64) + 1  # 1..C-1: another class; C: the same
    return (labels + offset) % classes


@dataclass(frozen=True)
class LocalRR:
    """The private records' labels flipped, then plain SGD on them. Public records keep their labels."""

    protects: ClassVar[str] = LABEL
    caveat: ClassVar[str] = "protects labels alone, from the trainer too"

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline.fit``; delta is not spent."""
        records = bench.single
        flipped = np.where(records.public, records.labels, flip_labels(records.labels, bench.classes, eps, seed))
        rows = (np.ascontiguousarray(row).tobytes() for row in records.features)
        units = np.array([blake2b(row, digest_size=16).hexdigest() for row in rows])
        return train_sgd(bench, Records(records.features, flipped, records.ids, units, records.public))
