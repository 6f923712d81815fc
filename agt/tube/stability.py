"""Stable distances of a tube's queries: for which k does the label survive, wherever within the radius the weights are?

Formal guarantees
    Let M be an exact margin at W, of one logit or of two classes' difference, phi the query's features, |phi| <= n: grad M
    = (a * s'(W phi)) phi^T with a the row of A, or the difference of two, so that from W to W + V it moves by at most
    |grad M| |V| + L |V|^2 / 2, L = max|a_j| s2 n^2: its second derivative is block diagonal, (a_j s''(w_j.phi)) phi phi^T.
    Let e_f, e_g bound what the computed margin and |grad M| err by, public numbers. certified(k) means, in exact terms,
        |M| > |grad M| r + L r^2 / 2 + (2 c + 2)(e_f + e_g r),   r = r_c (radius.py), c the records that k moves.
    Sound: a neighbour's computed weights lie within r, so its exact margin has the sign of M, by more than e_f: so has what
    it computes, and its label is the same. 1-Lipschitz: if it holds for (D, c) it holds for (D', c - 1), D' a neighbour
    with weights d away and radius r', r >= r' + d (nesting). M and |grad M|, as computed, move by |grad M| d + L d^2 / 2 +
    2 e_f + e_g d and by L d + 2 e_g at most; the left side less the right of (D', c - 1) is then at least (2 c + 1) e_g d
    >= 0, as |grad M|(r - r' - d) >= 0 and r^2 >= r'^2 + 2 d r' + d^2. So the label is that of D, and the distances differ
    by at most 1; where labels differ, neither is certified at 1. As computed: the right side is rounded up, by 2^-47 of it
    in all; where it matters it is below |M|, itself at most ``farthest``, a public number, and e_f holds 2^-45 of that
    beyond what a margin errs by. (Features known up to ``slack`` may have another length in another run: e_g holds slack
    |grad M|, and e_f 4 slack ``farthest``, for L r^2 / 2.) The right side grows with k as computed, too (rounding is
    monotone), so that the k which are certified are those up to one, found by bisection. A radius that is infinite
    certifies nothing, nor does a margin of 0; k = 0 counts as any other: r_0 is what rounding moves.
    Envelopes (envelope.py): lower(k) is M less the right side R, M now signed, and no less than -2 ``farthest``, which no
    margin goes beyond; upper mirrors it. By the same inequality M' - R'(c - 1) >= M - R(c), in exact terms, with 2^-44
    ``farthest`` to spare, more than what rounding adds to R'(c - 1) where that is at most 8 ``farthest``; where it is more,
    so is R(c), and both bounds are the least there is. Subtracting and comparing are monotone as computed.

Source: method.md section 9.
"""

from dataclasses import dataclass

import numpy as np
import torch

from agt.certificates.envelope import Envelope
from agt.certificates.stability import ClosedForm, upper_lengths
from agt.errors import UnsoundError
from agt.numeric import COVER, gamma_up, labels_of
from agt.settings import RelationName
from agt.tube.network import TubeNetwork
from agt.tube.setting import TubeSetting
from agt.tube.training import TubeTrained

_UP = 1 + 2.0**-48


@dataclass(frozen=True)
class Room:
    """Queries' margins, and what moving the weights takes of them.

    Attributes:
        margin: [R, n] of the predicted class over each other; of one logit one row, its size.
        gradient: [R, n] the norms of its gradient in W.
        bend: [R, n] L, bound on its second derivative.
        errors: e_f and e_g.
        farthest: no margin is greater, a public number.
    """

    prediction: np.ndarray
    margin: np.ndarray
    gradient: np.ndarray
    bend: np.ndarray
    errors: tuple[float, float]
    farthest: float

    def left(self, radius: np.ndarray, count: np.ndarray) -> np.ndarray:
        """[n] the least that is left of a margin: certified where it is > 0. Arguments as of ``moved``."""
        rest: np.ndarray = (self.margin - self.moved(radius, count)).min(axis=0)
        return rest

    def moved(self, radius: np.ndarray, count: np.ndarray) -> np.ndarray:
        """[R, n] how far each margin can be moved; infinite where nothing is known.

        Args:
            radius: [n] r, the same c's for each query.
            count: [n] c.
        """
        logit, slope = self.errors
        with np.errstate(over="ignore", invalid="ignore"):
            moved = (self.gradient + self.bend * radius / 2) * radius + (2 * count + 2) * (logit + slope * radius)
        return np.where(np.isfinite(radius) & ~np.isnan(moved), moved * _UP, np.inf)


def room_of(setting: TubeSetting, network: TubeNetwork, trained: TubeTrained, phi: np.ndarray) -> Room:
    """Of queries' features [n, d].

    Raises:
        UnsoundError: a logit is NaN or infinite.
    """
    with torch.no_grad():
        x = torch.from_numpy(phi).double()
        logits, slopes = (tensor.numpy() for tensor in network.logits(trained.weight, x))
    if not bool(np.isfinite(logits).all()):
        raise UnsoundError("a query's logit is NaN or infinite: its features, or the weights, are out of range")
    prediction, length, rows = labels_of(logits), upper_lengths(phi), np.arange(len(phi))
    outputs = network.outputs.numpy()
    if len(outputs) == 1:
        margin, heads = np.abs(logits.T), [np.broadcast_to(outputs, (len(phi), outputs.shape[1]))]
    else:
        others = [(prediction + step) % len(outputs) for step in range(1, len(outputs))]
        margin = np.stack([logits[rows, prediction] - logits[rows, other] for other in others])
        heads = [outputs[prediction] - outputs[other] for other in others]
    pair, one = setting.loss.pair, setting.rounding(trained.reach)
    gradient = np.stack([np.linalg.norm(head * slopes, axis=1) * length for head in heads])
    bend = np.stack([np.abs(head).max(axis=1) * setting.activation.bend * length**2 * COVER for head in heads])
    value = setting.activation.slope * trained.reach + setting.activation.zero * setting.units**0.5  # bounds |s(W phi)|
    farthest, steepest = pair * setting.alpha * value, pair * setting.alpha * setting.activation.slope
    logit = (pair * one.logit + (2.0**-45 + 4 * setting.slack) * farthest) * COVER
    slope = (pair * one.slope + (gamma_up(2 * (setting.units + setting.width + 16)) + setting.slack) * steepest) * COVER
    return Room(prediction, margin, gradient, bend, (logit, slope), farthest)


def envelope_tube(
    setting: TubeSetting,
    network: TubeNetwork,
    trained: TubeTrained,
    counts: np.ndarray,
    phi: np.ndarray,
    ks: tuple[int, ...],
) -> Envelope:
    """The margin of two classes with its bounds at these k >= 1. Arguments as of ``certify_tube``."""
    room = room_of(setting, network, trained, phi)
    margin, most = np.where(room.prediction == 1, room.margin[0], -room.margin[0]), 2 * room.farthest
    moved = np.array([room.moved(trained.radii[k], counts[k])[0] for k in ks]).reshape(len(ks), len(phi))
    return Envelope(ks, margin, np.maximum(margin - moved, -most), np.minimum(margin + moved, most))


def certify_tube(
    setting: TubeSetting,
    network: TubeNetwork,
    trained: TubeTrained,
    counts: np.ndarray,
    phi: np.ndarray,
    relation: RelationName,
    ks: tuple[int, ...],
) -> ClosedForm:
    """Stable distances of queries, up to the last k that has a radius.

    Args:
        counts: [K + 1] the records that each k moves.
        phi: [n, d] the queries' features, norm at most 1.
        ks: the values of k to tabulate.
    """
    room = room_of(setting, network, trained, phi)
    good, bad = np.full(len(phi), -1), np.full(len(phi), len(counts))
    while bool((bad - good > 1).any()):
        middle = (good + bad) // 2
        at = np.clip(middle, 0, len(counts) - 1)
        held = room.left(trained.radii[at], counts[at]) > 0
        good, bad = np.where((middle > good) & held, middle, good), np.where((middle > good) & ~held, middle, bad)
    return ClosedForm.of(ks, relation, room.prediction, good >= 0, np.maximum(good, 0).astype(np.int64))
