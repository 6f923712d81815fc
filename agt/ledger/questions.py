"""Which queries ask the same question, and which questions were answered before.

A question is answered once and paid for once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from agt.data.arrays import pieces
from agt.data.records import UNANSWERED
from agt.mechanisms.mechanism import Mechanism

if TYPE_CHECKING:  # whoever reads a ledger loads no torch
    from agt.mechanisms.laplace_mean import LaplaceMean

KEY_BYTES = 32  # of a question's key


def question_terms(
    run: str, mechanism: "Mechanism | LaplaceMean", accounting: str, counting: str
) -> list[object]:
    """Return what all questions to one mechanism have in common, as JSON values.

    Args:
        run: the digest of the training run.
        mechanism: the mechanism with its parameters.
        accounting: the name of the accounting, "rigorous" or "paper".
        counting: what the evidence counts, "distance" or "index".
    """
    return [run, {"name": mechanism.name, **asdict(mechanism)}, accounting, counting]


def keys_of(salt: bytes, about: list[object], features: np.ndarray) -> list[bytes]:
    """Return the key of each query's question, n keys of ``KEY_BYTES`` bytes.

    Two queries have the same key only if they are one question (Lemma 8 of docs/proofs/ledger.md).

    Args:
        salt: the ledger's salt, at most 64 bytes.
        about: ``question_terms``.
        features: [n, ...], the queries' features as the model takes them.
    """
    common = blake2b(
        json.dumps([*about, features.shape[1:]]).encode(), digest_size=KEY_BYTES, key=salt
    )
    keys = list[bytes]()
    for piece in pieces(features):
        # every float32 is a float64
        for row in np.ascontiguousarray(piece, dtype=np.float64).reshape(len(piece), -1):
            key = common.copy()
            key.update(row.data)
            keys.append(key.digest())
    return keys


@dataclass(frozen=True)
class Questions:
    """The queries of one call, and which of them were answered before.

    Attributes:
        keys: [n], the key of each query's question. Without a ledger it is a range of row numbers,
            and each query is a question of its own.
        known: the labels of the questions that were answered before, by key.
    """

    keys: Sequence[Any]
    known: Mapping[Any, int]

    @property
    def remembered(self) -> bool:
        """Whether a ledger keeps the answers."""
        return not isinstance(self.keys, range)

    @cached_property
    def new(self) -> np.ndarray | range:
        """[m], the first query of each question that was not answered before, in their order."""
        if isinstance(self.keys, range):  # not ``remembered``
            return self.keys
        first: dict[Any, int] = {}
        for row, key in enumerate(self.keys):
            if key not in self.known:
                first.setdefault(key, row)
        return np.fromiter(first.values(), dtype=np.int64, count=len(first))

    def counts(self, labels: np.ndarray) -> dict[str, int]:
        """Return how many queries are "answered", "stored" and "unanswered".

        Stored are those with an answer from before; they are among the answered ones.

        Args:
            labels: [n] of all queries; ``UNANSWERED`` where there is none.
        """
        answered = int((labels != UNANSWERED).sum())
        stored = sum(key in self.known for key in self.keys)
        return {"answered": answered, "stored": stored, "unanswered": len(labels) - answered}

    def labels(self, answers: Mapping[Any, int]) -> np.ndarray:
        """Return the labels of all queries, [n] int64; ``UNANSWERED`` where there is none.

        Args:
            answers: the labels of new questions, by key.
        """
        labels = (self.known.get(key, answers.get(key, UNANSWERED)) for key in self.keys)
        return np.fromiter(labels, dtype=np.int64, count=len(self.keys))
