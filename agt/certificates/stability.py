"""Stable distances of a linear head in closed form: L = ceil(margin / what one k can move it) - 1,
for every k at once.

Formal guarantees
    Let theta, theta' be the computed parameters of two runs whose records are k apart, m and m'
    exact margins at a query of features phi: theta.phi for one logit, (theta_i - theta_j).phi for
    two classes of several. Training moves theta by at most k per_k (training/linear.py), so |m -
    m'| <= k * pair * per_k * |phi|: pair = 1 for one logit; sqrt 2 for a softmax, |(v, -v)| = sqrt
    2 |v|; 2 for one-vs-all, whose two classifiers move per_k each. Computed margins M, M' lie
    within e of m, m', e from public numbers alone. So with w = pair * per_k * n + 2 e, n >= |phi|,
    all rounded up,
        |M - M'| <= w for neighbours (k = 1),     and M - M' <= k w for every k >= 1.
    Labels. The predicted class is the least index of greatest computed logit (one logit: 1 where it
    is > 0). With M = min_j M_ij, i the predicted class and M_ij the rounded difference of computed
    logits (monotone: its sign is that of their comparison), certified(k) means k < q, q = M / w
    rounded to nearest, and for k = 0 that M exceeds what two runs on the same records can differ
    by. If k >= 1 is certified then M > k w exactly (rounding is monotone, and k is a float), so
    every M'_ij > 0: the neighbour's computed label is i.
    1-Lipschitz. L = max(0, ceil(q) - 1). Let D, D' be neighbours. Same label: |M_ij - M'_ij| <= w
    for every j, so the minima differ by at most w, and the exact quotients Q, Q' by at most 1. If
    fl(Q) <= N for an integer N and Q' <= Q + 1 then fl(Q') <= N + 1: either Q <= N; or Q rounds
    down to N, being less than half a unit in the last place above it (a quotient of two floats is
    never half way), and floats are no denser above N + 1. So ceil(fl(Q')) <= ceil(fl(Q)) + 1.
    Different labels i, i': M_ii' >= 0 >= M'_ii', each at most w in size, so Q, Q' <= 1 and L = L' =
    0, as the mechanisms need.
    Prices (votes.py, ``certified_vote``): A(u) = 0 for the label, else max(1, ceil(q_u)), q_u =
    fl(M_u / w), M_u the rounded lead of the greatest logit over u's; the least of them is max(1,
    ceil(q)) = L + 1, as rounding is monotone.
    (r) Where A(u) > k >= 1, M_u > k w as above, so M'_iu > 0: the neighbour's label is not u. (s)
    M_u = max over c of M_cu, each of which moves by at most w between neighbours, and so do M_u,
    and by at most 1 Q_u and ceil(q_u). If u is the label of the one, its M'_u = 0, so Q_u <= 1 and
    A(u) <= 1 on the other side.
    Envelopes (box.py): lower(0) = M, the signed margin, and lower(j) = fl(lower(j-1) - w). |M - M'|
    <= w and M' is a float, so M' >= fl(M - w) = lower(D, 1): rounding is monotone. With lower(D',
    j-1) >= lower(D, j) one more step of the same w keeps it so, w being the query's own and public.
    The upper bounds mirror it.
    A tie has M = 0 and L = 0. phi, n and e of a query come from the query and public constants,
    whatever the records are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from agt.certificates.box import Certificates, Envelope
from agt.errors import UnsoundError
from agt.numeric import UNIT, labels_of, logits_of, margins_of, signed_margins
from agt.settings import RelationName
from agt.training.linear import LinearTrained
from agt.training.sensitivity import margin_rounding

FARTHEST = 2**31
"""Stable distances are capped here, a public constant, which keeps them 1-Lipschitz. Sums of those
of 10,000 members are far from the end of int64 (certificates/votes.py), and no mechanism tells
distances of 2^16 and more apart.
"""


class Levels:
    """What ``Certificates.certified`` is of a closed form: [K, n] bool, whose rows are made when
    somebody asks for one.

    Certified at k >= 1 means share > k, and so ceil(share) - 1 >= k: the distance says it, and K
    flags a query need not be kept. An array where one is needed.

    Args:
        ks: the grid.
        same: [n] bool, certified at k = 0.
        distance: [n] int64.
    """

    def __init__(self, ks: tuple[int, ...], same: np.ndarray, distance: np.ndarray) -> None:
        self.ks, self.same, self.distance = ks, same, distance
        self.shape = (len(ks), len(distance))

    def __len__(self) -> int:
        return len(self.ks)

    def __getitem__(self, place: Any) -> np.ndarray:
        if isinstance(place, int):
            return self.distance >= self.ks[place] if self.ks[place] else self.same
        return np.asarray(self)[place]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.stack([self[place] for place in range(len(self))]).astype(
            dtype or bool, copy=False
        )


@dataclass(frozen=True, repr=False)
class ClosedForm(Certificates):
    """Certificates known for every k, the grid being only what tables and curves show.

    Attributes:
        distance: [n] int64, L, not capped by the grid.
    """

    distance: np.ndarray

    @classmethod
    def joined(cls, parts: Iterable["ClosedForm"], rows: int) -> "ClosedForm":
        """Of pieces of one head's ``rows`` queries, in order, at least one: each is copied to
        its place as it comes.
        """
        prediction, same, distance = (
            np.empty(rows, np.int64),
            np.empty(rows, bool),
            np.empty(rows, np.int64),
        )
        start, prices = 0, list[np.ndarray]()
        for part in parts:
            place = slice(start, start := start + len(part.distance))
            prediction[place], distance[place] = part.prediction, part.distance
            same[place] = cast(Levels, part.certified).same
            prices += [] if part.prices is None else [part.prices]
        priced = np.concatenate(prices, axis=1) if prices else None
        return cls.of(part.ks, part.relation, prediction, same, distance, priced)

    @classmethod
    def of(
        cls,
        ks: tuple[int, ...],
        relation: RelationName,
        prediction: np.ndarray,
        same: np.ndarray,
        distance: np.ndarray,
        prices: np.ndarray | None = None,
    ) -> "ClosedForm":
        """Of one head's queries.

        Args:
            same: [n] bool, certified at k = 0.
        """
        return cls(
            ks,
            relation,
            prediction,
            cast(np.ndarray, Levels(ks, same, distance)),
            distance,
            prices=prices,
        )

    @property
    def stable_distance(self) -> np.ndarray:
        """[n] int64: L."""
        return self.distance


def certify_linear(
    trained: LinearTrained,
    phi: np.ndarray,
    relation: RelationName,
    ks: tuple[int, ...],
    *,
    priced: bool = False,
) -> ClosedForm:
    """Stable distances of queries.

    Args:
        trained: the head, and how far one record moves it.
        phi: [n, w] the queries' features, norm at most 1.
        ks: the values of k to tabulate.
        priced: with what each class costs; of more than two classes.

    Raises:
        UnsoundError: a logit is NaN or infinite.
    """
    logits = _finite_logits(trained, phi)
    prediction, margin = labels_of(logits), margins_of(logits)
    step, idle = _moves(trained, phi)
    share = margin / step
    distance = np.minimum(np.maximum(np.ceil(share) - 1, 0), FARTHEST).astype(np.int64)
    prices = _prices(logits, prediction, step) if priced else None
    return ClosedForm.of(ks, relation, prediction, margin > idle, distance, prices)


def _prices(logits: np.ndarray, prediction: np.ndarray, step: np.ndarray) -> np.ndarray:
    """[C, n] int64: A(u)."""
    behind = np.ceil((logits.max(axis=1) - logits.T) / step)
    prices: np.ndarray = np.clip(behind, 1, FARTHEST + 1).astype(np.int64)
    prices[prediction, np.arange(len(prediction))] = 0
    return prices


def envelope_linear(trained: LinearTrained, phi: np.ndarray, ks: tuple[int, ...]) -> Envelope:
    """The margin of two classes with its bounds at these k >= 1: one step of w after another.

    Arguments as above.
    """
    margin, (step, _) = signed_margins(_finite_logits(trained, phi))[0], _moves(trained, phi)
    steps = np.vstack([margin, np.broadcast_to(step, (max(ks, default=0), len(step)))])
    lower, upper = (walked.accumulate(steps, axis=0)[list(ks)] for walked in (np.subtract, np.add))
    return Envelope(ks, margin, lower, upper)


def _finite_logits(trained: LinearTrained, phi: np.ndarray) -> np.ndarray:
    logits = logits_of(trained.weight, phi)
    if not bool(np.isfinite(logits).all()):
        raise UnsoundError(
            "a query's logit is NaN or infinite: its features, or the weights, are out of range"
        )
    return logits


def _moves(trained: LinearTrained, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([n] w, by how much neighbours' computed margins differ at most; [n] the same of two runs
    on the same records).
    """
    loss, sensitivity, length = trained.loss, trained.sensitivity, upper_lengths(phi)
    error = margin_rounding(loss, phi.shape[1], sensitivity.radius, length)
    step, idle = (
        (loss.margin_factor * move * length * (1 + 8 * UNIT) + 2 * error) * (1 + 8 * UNIT)
        for move in (sensitivity.per_k, sensitivity.rounding)
    )
    return step, idle


def upper_lengths(phi: np.ndarray) -> np.ndarray:
    """[n] upper bounds on |phi|, also where its squares underflow."""
    wide = phi.astype(np.float64, copy=False)
    squares = np.einsum("nd,nd->n", wide, wide)
    lost = phi.shape[1] * np.finfo(np.float64).tiny  # more than squares that underflow can lose
    return np.sqrt(squares + lost) * (1 + 2 * (phi.shape[1] + 4) * UNIT)
