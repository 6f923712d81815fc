"""Canaries: gradients or records that an audit adds to the training data.

* A **gradient canary** replaces the gradient of a record in every step. The audit clips it itself
  (agt_audit/noisy_training.py), so it does not test how training clips records. Several canaries of
  one training are (nearly) orthogonal, so that none changes another's score.
* An **input canary** is a record, whose gradient the training computes and clips.

Each canary is a separate unit, whose id decides its batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from agt.data.records import Records
from agt.errors import ConfigError
from agt_audit.edited_records import attack_records

CANARY_ID = "agt-canary-"  # the ids of canaries are this and a number
# the l2 norm of a gradient canary before it is clipped, in units of the clip level
CANARY_NORM = 10.0
PROBED_ROWS = 256  # records whose gradients decide which coordinates the data moves least
LOSSES: dict[str, Callable[..., Tensor]] = {
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
}
DESCRIPTIONS = {
    "dirac": "each canary (a gradient that the audit adds) is 0 except in one coordinate",
    "signs": "each canary (a gradient that the audit adds) has the same size in every coordinate",
    "mislabelled": "canaries are mislabelled records",
    "adversarial": (
        "the canaries (records that the audit adds) are those with the largest gradients, with "
        "right or wrong labels"
    ),
}
"""Kind of canaries -> a clause that says what they are."""
GRADIENT_KINDS = ("dirac", "signs")


@dataclass(frozen=True)
class Canaries:
    """m canaries of one kind.

    Attributes:
        description: a clause that says what they are, for findings.
        gradients: [m, P] the gradients, in units of the clip level; None: the canaries are records.
        records: the m records that are added to the data. Those of gradient canaries are zeros;
            their own gradients are not used.
    """

    description: str
    gradients: np.ndarray | None
    records: Records

    def __len__(self) -> int:
        return len(self.records)


class CanaryHead:
    """A network that computes the gradient of each record, in float64.

    Args:
        module: the layers with their initial parameters.
        loss: the name of the loss, a key of ``LOSSES``.

    Raises:
        ConfigError: ``LOSSES`` does not have the loss.

    Attributes:
        initial: [P] the initial parameters, one after another.
    """

    def __init__(self, module: nn.Sequential, loss: str) -> None:
        if loss not in LOSSES:
            losses = " or ".join(LOSSES)
            raise ConfigError(
                f"training.loss={loss}: `agt audit dpsgd` can only audit runs that were trained "
                f"with training.loss={losses}. Give the folder of such a run with run=..."
            )
        self.module = module
        self.loss = loss
        self.parameters = {
            name: parameter.detach().double() for name, parameter in module.state_dict().items()
        }
        self.initial = flat(self.parameters)

    def gradients(self, theta: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the gradient of each record, [n, P].

        Args:
            theta: [P] all parameters, one after another.
            features: [n, ...] the records' features.
            labels: [n] the records' labels.
        """
        of_each_record = vmap(grad(self._loss_of_record), in_dims=(None, 0, 0))
        gradients: Tensor = of_each_record(
            torch.from_numpy(theta),
            torch.from_numpy(np.asarray(features, dtype=np.float64)),
            torch.from_numpy(np.asarray(labels)),
        )
        return gradients.numpy()

    def _loss_of_record(self, theta: Tensor, features: Tensor, label: Tensor) -> Tensor:
        """Return the loss of one record, as a number, at the parameters ``theta`` [P]."""
        sizes = [parameter.numel() for parameter in self.parameters.values()]
        parameters = {}
        pieces = theta.split(sizes)
        for (name, like), piece in zip(self.parameters.items(), pieces, strict=True):
            parameters[name] = piece.view(like.shape)
        logits = functional_call(self.module, parameters, (features[None],))
        if self.loss == "binary_cross_entropy":
            target = label.to(logits.dtype).view(1, 1)
        else:
            target = label.view(1)
        return LOSSES[self.loss](logits, target)


def canaries_of(kind: str, count: int, head: CanaryHead, pool: Records, seed: int) -> Canaries:
    """Return canaries of one kind.

    Args:
        kind: a key of ``DESCRIPTIONS``.
        count: how many canaries.
        head: computes gradients of records.
        pool: the records from which canaries are made.
        seed: the seed of all random choices.

    Raises:
        ConfigError: there are too few parameters or records for so many canaries.
    """
    rng = np.random.default_rng(seed)
    gradients = None
    if kind in GRADIENT_KINDS:
        gradients = _canary_gradients(kind, count, head, pool, rng)
        features = np.zeros((count, *pool.features.shape[1:]))
        labels = np.zeros(count, dtype=np.int64)
    else:
        features, labels = _canary_features(kind, count, head, pool, rng)
    ids = np.array([f"{CANARY_ID}{index}" for index in range(count)])
    records = attack_records(features, labels, ids, like=pool)
    return Canaries(DESCRIPTIONS[kind], gradients, records)


def _canary_gradients(
    kind: str, count: int, head: CanaryHead, pool: Records, rng: np.random.Generator
) -> np.ndarray:
    """Return gradients [count, P] of norm ``CANARY_NORM``.

    Those of "signs" have the same absolute value in every coordinate: clipping each coordinate
    leaves more of such a gradient than of any other. Those of "dirac" are 0 except in one
    coordinate each, in which gradients of records at the initial parameters are smallest; ties are
    broken at random.

    Args:
        kind: a key of ``DESCRIPTIONS``.
        count: how many canaries.
        head: computes gradients of records.
        pool: the records from which canaries are made.
        rng: makes all random choices.

    Raises:
        ConfigError: there are too few parameters or records for so many canaries.
    """
    size = len(head.initial)
    if count > size:
        raise ConfigError(
            f"audit.canaries={count} exceeds {size}, the number of trained parameters: each "
            f"canary needs a direction of its own. Give {size} or fewer"
        )
    if kind == "signs":
        return CANARY_NORM / np.sqrt(size) * rng.choice([-1.0, 1.0], (count, size))
    rows = rng.permutation(len(pool))[:PROBED_ROWS]
    first_gradients = head.gradients(head.initial, pool.features[rows], pool.labels[rows])
    energy = (first_gradients**2).sum(axis=0)
    shuffled = rng.permutation(size)  # so that ties are broken by chance
    coordinates = shuffled[np.argsort(energy[shuffled], kind="stable")][:count]
    gradients = np.zeros((count, size))
    gradients[np.arange(count), coordinates] = CANARY_NORM
    return gradients


def _canary_features(
    kind: str, count: int, head: CanaryHead, pool: Records, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features [count, ...] and labels [count] of canaries that are records.

    Those of "mislabelled" are random records with the next class as their label; those of
    "adversarial" are the records, with right or wrong labels, that have the longest gradients at
    the initial parameters.

    Args:
        kind: a key of ``DESCRIPTIONS``.
        count: how many canaries.
        head: computes gradients of records.
        pool: the records from which canaries are made.
        rng: makes all random choices.

    Raises:
        ConfigError: there are too few parameters or records for so many canaries.
    """
    if count > len(pool):
        raise ConfigError(
            f"audit.canaries={count} exceeds {len(pool)}, the number of records from which "
            f"canaries can be made: give {len(pool)} or fewer"
        )
    rows = rng.permutation(len(pool))
    features = np.asarray(pool.features)[rows]
    wrong_labels = (pool.labels[rows] + 1) % (int(pool.labels.max()) + 1)
    if kind == "mislabelled":
        return features[:count], wrong_labels[:count]
    features = np.concatenate([features, features])
    labels = np.concatenate([pool.labels[rows], wrong_labels])
    gradients = head.gradients(head.initial, features, labels)
    longest_first = np.argsort(-np.linalg.norm(gradients, axis=1), kind="stable")[:count]
    return features[longest_first], labels[longest_first]


def flat(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """Return the elements of all tensors one after another, [P] float64."""
    return np.concatenate([tensor.detach().double().numpy().ravel() for tensor in tensors.values()])
