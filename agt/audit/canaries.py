"""Canaries: gradients and records made to be seen, of which an audit knows whether they were trained on.

A gradient canary is a gradient of its own that stands for a record's in every step (Nasr et al. 2023). It is longer than
any clip, so that a clip that was forgotten shows. Several of one run are orthogonal: what one leaves in the noisy sum moves
no other's score. An input canary is a record, whose gradient the head gives: what somebody can do who only hands in data.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agt.audit.heads import AuditHead
from agt.data.dataset import Records
from agt.errors import ConfigError

LENGTH = 10.0  # a gradient canary's, in clips
_LOOKED_AT = 256  # records, for the coordinates that they leave alone


@dataclass(frozen=True)
class Canaries:
    """m canaries, of one sort.

    Attributes:
        words: what they are, for a stranger.
        gradients: [m, P] gradients in units of the clip, orthogonal to one another; None: they are records.
        features, labels: [m, ...] and [m]; None: they are gradients.
    """

    words: str
    gradients: np.ndarray | None = None
    features: np.ndarray | None = None
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        rows = self.features if self.gradients is None else self.gradients
        return 0 if rows is None else len(rows)


def dirac(count: int, head: AuditHead, pool: Records, seed: int) -> Canaries:
    """Each on a coordinate of its own: those that the data's gradients move least at first, of equals any."""
    size = _room(count, head)
    rows = _rows(min(_LOOKED_AT, len(pool)), pool, seed)
    at_first = head.on(np.asarray(pool.features)[rows], pool.labels[rows])(head.initial[None]).last(len(rows))
    shuffled = np.random.default_rng(seed).permutation(size)
    places = shuffled[np.argsort((at_first[0] ** 2).sum(0)[shuffled], kind="stable")][:count]
    gradients = np.zeros((count, size))
    gradients[np.arange(count), places] = LENGTH
    return Canaries("gradient canaries on one coordinate each", gradients)


def gaussian(count: int, head: AuditHead, pool: Records, seed: int) -> Canaries:
    """Random directions, made orthogonal."""
    drawn = np.random.default_rng(seed).standard_normal((_room(count, head), count))
    return Canaries("gradient canaries in random directions", LENGTH * np.linalg.qr(drawn)[0].T)


def signs(count: int, head: AuditHead, pool: Records, seed: int) -> Canaries:
    """The same size in every element, which is what an elementwise clip lets through most of; nearly orthogonal."""
    size = _room(count, head)
    drawn = np.random.default_rng(seed).choice([-1.0, 1.0], (count, size))
    return Canaries("gradient canaries of one size in every element", LENGTH / np.sqrt(size) * drawn)


def mislabelled(count: int, head: AuditHead, pool: Records, seed: int) -> Canaries:
    """Records of the data under another class."""
    rows = _rows(count, pool, seed)
    return _records("mislabelled records", pool.features[rows], _others(pool)[rows])


def blank(count: int, head: AuditHead, pool: Records, seed: int) -> Canaries:
    """A record of zeros."""
    if count != 1:
        raise ConfigError(
            f"audit.canaries={count}: blank records are all alike: use audit.canary=mislabelled, or one canary"
        )
    return _records("a blank record", np.zeros_like(np.asarray(pool.features[:1])), pool.labels[:1])


def adversarial(count: int, head: AuditHead, pool: Records, seed: int) -> Canaries:
    """Of the data's records, under either their class or another, those with the greatest gradients at the first step."""
    rows = _rows(len(pool), pool, seed)
    both = np.concatenate([pool.labels[rows], _others(pool)[rows]])
    features = np.concatenate([np.asarray(pool.features)[rows]] * 2)
    norms = head.on(features, both)(head.initial[None]).norms[0]
    worst = np.argsort(-norms, kind="stable")[: _rows(count, pool, seed).size]
    return _records("records with the greatest gradients", features[worst], both[worst])


CANARIES: dict[str, Callable[[int, AuditHead, Records, int], Canaries]] = {
    "dirac": dirac,
    "gaussian": gaussian,
    "signs": signs,
    "mislabelled": mislabelled,
    "blank": blank,
    "adversarial": adversarial,
}
"""Sorts of canaries: (how many, the head, records to make them of, seed) -> canaries."""


def _room(count: int, head: AuditHead) -> int:
    """P, if so many directions fit into it."""
    size = len(head.initial)
    if count > size:
        raise ConfigError(f"audit.canaries={count}: a head of {size} parameters has no more orthogonal directions")
    return size


def _rows(count: int, pool: Records, seed: int) -> np.ndarray:
    if count > len(pool):
        raise ConfigError(f"audit.canaries={count}: there are {len(pool)} records to make them of: use fewer")
    return np.random.default_rng(seed).permutation(len(pool))[:count]


def _others(pool: Records) -> np.ndarray:
    """[n] each record's next class."""
    shifted: np.ndarray = (pool.labels + 1) % (int(pool.labels.max()) + 1)
    return shifted


def _records(words: str, features: np.ndarray, labels: np.ndarray) -> Canaries:
    return Canaries(words, features=np.asarray(features, dtype=np.float64), labels=labels.astype(np.int64))
