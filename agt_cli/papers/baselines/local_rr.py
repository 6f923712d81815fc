"""Local randomised response on the training labels, then plain SGD (002, 004): epsilon-DP for labels alone.

Every record's label is kept or replaced before anyone sees it, so not even the trainer is trusted with it; features, and
which records there are, get no protection at all.

Formal guarantees
    Out of 2^64 equally likely draws, each wrong class gets T = ceil(2^64 / (e^epsilon + C - 1)), and the true one the
    2^64 - (C - 1) T that are left. T is at least the exact share, so right over wrong is at most e^epsilon; for
    epsilon >= 1e-9 and C <= 1000 the rounding, at most C draws, keeps wrong over right below e^epsilon too.
    What follows sees the flipped labels only: batches are laid out by features, never by an id that may hash the label.

Unbiasing (Natarajan et al. 2013)
    With p = T/2^64 and q = 1 - (C-1) p, E[(onehot(flipped) - p)/(q - p)] = onehot(true). Cross-entropy is linear in its
    targets, so with these the expected loss, and each expected gradient, is that of the true labels; the loss stays convex.
    Targets leave the simplex, so the loss has no lower bound: steps or weight decay have to end the descent.
"""

import math
import secrets
from decimal import Decimal, localcontext
from hashlib import blake2b
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.settings import STRICT, TrainingConfig
from agt_cli.papers.baselines.released import LABEL, Released
from agt_cli.papers.baselines.sgd import one_hot, train_sgd

_DRAWS = 2**64


@validated(frozen=True, config=STRICT)
class LocalRRConfig:
    """Randomised response on labels.

    Attributes:
        epsilon: the guarantee of one label.
        unbias: train on targets whose expectation is the true label, for calibrated probabilities; False: on the flipped
            labels as they are, whose likeliest class is the same, at a gentler step size.
        seed: for simulation; None: the operating system's generator.
    """

    epsilon: Annotated[float, Field(ge=1e-9)]
    unbias: bool = False
    seed: Annotated[int, Field(ge=0)] | None = None


def wrong_draws(epsilon: float, classes: int) -> int:
    """T: of 2^64 draws, how many give any one wrong class; rounded up.

    Raises:
        ConfigError: fewer than 2 classes, or more than 1000.
    """
    if not 2 <= classes <= 1000:
        raise ConfigError(f"randomised response on labels takes 2 to 1000 classes, got {classes}")
    with localcontext() as context:
        context.prec = 60
        return math.ceil(_DRAWS / (Decimal(epsilon).exp() + classes - 1) * (1 + Decimal(10) ** -40))


def flip_labels(labels: np.ndarray, classes: int, config: LocalRRConfig) -> np.ndarray:
    """[n] labels, each replaced by another class, uniform, with probability (C - 1)/(e^epsilon + C - 1)."""
    wrong = np.uint64(wrong_draws(config.epsilon, classes))
    if config.seed is None:
        draws = np.frombuffer(secrets.token_bytes(8 * len(labels)), dtype="<u8").astype(np.uint64)
    else:
        draws = np.random.default_rng(config.seed).integers(0, _DRAWS, size=len(labels), dtype=np.uint64)
    offset = (draws // wrong).clip(max=np.uint64(classes - 1)).astype(np.int64) + 1  # 1..C-1: another class; C: the same
    return (labels + offset) % classes


def unbiased_targets(flipped: np.ndarray, classes: int, loss: str, epsilon: float) -> np.ndarray:
    """Targets [n, outputs] whose expectation over the flips is the true label's."""
    p = wrong_draws(epsilon, classes) / _DRAWS
    return (one_hot(flipped, classes, loss) - p) / (1 - classes * p)


def train_local_rr(
    head: nn.Sequential,
    classes: int,
    records: Records,
    declared_size: int | None,
    training: TrainingConfig,
    config: LocalRRConfig,
) -> Released:
    """Flip the private records' labels, then train on them by plain SGD. Public records keep their labels.

    Raises:
        ConfigError, UnsoundError: as ``train_sgd``.
    """
    flipped = np.where(records.public, records.labels, flip_labels(records.labels, classes, config))
    targets = one_hot(flipped, classes, training.loss)
    if config.unbias:
        unbiased = unbiased_targets(flipped, classes, training.loss, config.epsilon)
        targets = np.where(records.public[:, None], targets, unbiased)
    blind = Records(records.features, flipped, records.ids, _feature_names(records.features), records.public)
    weights = train_sgd(head, classes, blind, declared_size, training, targets)
    simulated = () if config.seed is None else (f"simulation: the flips are determined by seed={config.seed}",)
    return Released(weights, config.epsilon, 0.0, LABEL, ("protects labels alone", *simulated))


def _feature_names(features: np.ndarray) -> np.ndarray:
    rows = (np.ascontiguousarray(row).tobytes() for row in features)
    return np.array([blake2b(row, digest_size=16).hexdigest() for row in rows])
