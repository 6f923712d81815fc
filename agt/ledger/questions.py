"""Which queries were answered before, which ask the same, and which are new: a question is answered once, and paid once.

Formal guarantees
    Two queries are one question only if their features are the same bytes, as the model takes them, and so are the training
    run, the mechanism with all of its parameters, and what its evidence counts: then the stored label is a draw of the very
    same release, and to say it again gives nothing away. All of that is public, so which queries are new, how many they
    are and in which order says nothing about the records.
    Keys are BLAKE2b of 32 bytes, keyed by the ledger's first entry: two questions share one by a chance of 2^-128, or if
    somebody finds a collision.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from agt.data.blocks import pieces
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.rigour import Accounting, Counting

KEY = 32  # bytes
UNANSWERED = -1


@dataclass(frozen=True)
class Asking:
    """What questions have in common.

    Attributes:
        run: the training run's digest.
        mechanism: with its parameters.
        accounting, counting: of the release.
    """

    run: str
    mechanism: Mechanism
    accounting: Accounting
    counting: Counting

    def keys(self, salt: bytes, features: np.ndarray) -> list[bytes]:
        """Of each query.

        Args:
            salt: of the ledger, 64 bytes at most.
            features: [n, ...], as the head takes them.
        """
        mechanism = {"name": self.mechanism.name, **asdict(self.mechanism)}
        about = [self.run, mechanism, self.accounting, self.counting, features.shape[1:]]
        common = blake2b(json.dumps(about).encode(), digest_size=KEY, key=salt)
        return list(_keys(common, features))


def _keys(common: "blake2b", features: np.ndarray) -> Iterator[bytes]:
    for piece in pieces(features):
        for row in np.ascontiguousarray(piece, dtype=np.float64).reshape(len(piece), -1):  # every float32 is a float64
            key = common.copy()
            key.update(row.data)
            yield key.digest()


@dataclass(frozen=True)
class Asked:
    """The queries of one call.

    Attributes:
        keys: [n] of each query's question.
        known: key -> label, of those that were answered before.
    """

    keys: Sequence[bytes]
    known: Mapping[bytes, int]

    @classmethod
    def each(cls, count: int) -> "Asked":
        """Of queries that are questions of their own, whatever they ask: nobody remembers answers."""
        return cls([row.to_bytes(8) for row in range(count)], {})

    @cached_property
    def new(self) -> np.ndarray:
        """[m] int64: the first query of each question that was not answered before, in their order."""
        first: dict[bytes, int] = {}
        for row, key in enumerate(self.keys):
            if key not in self.known:
                first.setdefault(key, row)
        return np.fromiter(first.values(), dtype=np.int64, count=len(first))

    def answers(self, drawn: np.ndarray) -> dict[bytes, int]:
        """Key -> label of the first so many new questions."""
        return {self.keys[row]: label for row, label in zip(self.new.tolist(), drawn.tolist(), strict=False)}

    def counts(self, labels: np.ndarray) -> dict[str, int]:
        """How many queries are answered, how many of them as they were before, how many not."""
        answered, stored = int((labels != UNANSWERED).sum()), sum(key in self.known for key in self.keys)
        return {"answered": answered, "stored": stored, "unanswered": len(labels) - answered}

    def labels(self, answers: Mapping[bytes, int]) -> np.ndarray:
        """[n] int64 labels of all queries; ``UNANSWERED`` where there is none."""
        labels = (self.known.get(key, answers.get(key, UNANSWERED)) for key in self.keys)
        return np.fromiter(labels, dtype=np.int64, count=len(self.keys))
