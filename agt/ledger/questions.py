"""Questions: queries that must get the same answer, which is drawn and paid for once.

Two queries ask the same question if their features, the run, the mechanism and what its evidence
counts are the same.
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

if TYPE_CHECKING:  # a program that reads a ledger need not load torch
    from agt.mechanisms.laplace_mean import LaplaceMean

KEY_BYTES = 32  # the length of a question's key


def question_terms(
    run: str, mechanism: "Mechanism | LaplaceMean", accounting: str, counting: str
) -> list[object]:
    """Return the terms that all questions to one run by one mechanism share, as JSON values.

    Args:
        run: the digest of the training run.
        mechanism: the mechanism with its parameters.
        accounting: the name of the accounting, "rigorous" or "paper".
        counting: the kind of number that the evidence is: "distance" or "index".
    """
    return [run, {"name": mechanism.name, **asdict(mechanism)}, accounting, counting]


def keys_of(salt: bytes, terms: list[object], features: np.ndarray) -> list[bytes]:
    """Return the key of each query's question, a keyed hash of ``KEY_BYTES`` bytes.

    Two queries have the same key only if they ask the same question (Lemma 8 of
    docs/proofs/ledger.md).

    Args:
        salt: the ledger's salt, at most 64 bytes.
        terms: the terms that all the questions share (``question_terms``).
        features: [n, ...], the queries' features as the model takes them.

    Returns:
        n keys, in the order of the queries.
    """
    beginning = json.dumps([*terms, features.shape[1:]]).encode()
    common = blake2b(beginning, digest_size=KEY_BYTES, key=salt)
    keys = list[bytes]()
    for piece in pieces(features):
        # Every float32 is a float64, so features of both types have the same key.
        for row in np.ascontiguousarray(piece, dtype=np.float64).reshape(len(piece), -1):
            key = common.copy()
            key.update(row.data)
            keys.append(key.digest())
    return keys


@dataclass(frozen=True)
class Questions:
    """Queries that must get the same label when repeated, with the labels stored for them before.

    Attributes:
        keys: [n], the key of each query's question. Without a ledger it is the range of row
            numbers, so that each query is a separate question.
        known: the labels of the questions that were answered before, by key.
    """

    keys: Sequence[Any]
    known: Mapping[Any, int]

    @property
    def has_ledger(self) -> bool:
        """Whether a ledger stores the answers, so that a question gets its first answer again."""
        return not isinstance(self.keys, range)

    @cached_property
    def new_rows(self) -> np.ndarray | range:
        """[m], row numbers of queries that need a new answer, in ascending order.

        Of several queries that ask the same question, it has the first.
        """
        if isinstance(self.keys, range):  # without a ledger, all of them
            return self.keys
        first_row: dict[Any, int] = {}
        for row, key in enumerate(self.keys):
            if key not in self.known:
                first_row.setdefault(key, row)
        return np.fromiter(first_row.values(), dtype=np.int64, count=len(first_row))

    def counts(self, labels: np.ndarray) -> dict[str, int]:
        """Return how many queries are "answered", "stored" and "unanswered", by these names.

        Stored queries, whose label an earlier release drew, are among the answered queries.

        Args:
            labels: [n] the labels of all queries; ``UNANSWERED`` for a query without an answer.
        """
        answered = int((labels != UNANSWERED).sum())
        stored = sum(key in self.known for key in self.keys)
        return {"answered": answered, "stored": stored, "unanswered": len(labels) - answered}

    def labels(self, answers: Mapping[Any, int]) -> np.ndarray:
        """Return the labels of all queries, [n] int64; ``UNANSWERED`` for one without an answer.

        Args:
            answers: the newly drawn labels, by the key of the question. Questions in ``known`` have
                the stored label.
        """
        labels = (self.known.get(key, answers.get(key, UNANSWERED)) for key in self.keys)
        return np.fromiter(labels, dtype=np.int64, count=len(self.keys))
