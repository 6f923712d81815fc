"""How far any k records move the weights: one number for each k, one recursion for all (method.md section 9).

A step is W' = keep W - s sum_i grad_i. rho bounds dip(R) = max(0, lambda_max(-R)) at the weights reached, l
lambda_max(sum x x^T), each within its slack (network.py); c = k unit_rows records (twice that under substitute). With b =
pull + rho's slack, l_c = l + c (1 + l's slack):

    E_c = max(keep + s (rho + c b),  s whole l_c - keep),   F_c = max(keep + s pull l_c,  s whole l_c - keep)
    grown_c(r) = integral from x = 0 to r of min(E_c + s twist l_c x, F_c)  +  (2 c + 2) tau
    after_c <- max(grown_c(after_c), grown_c(before_c) + s c gradient);   before_c <- grown_c(before_c)

and at an epoch's end before_c <- after_c, which is the radius r_c. ``before`` is for c records that are still to take part
in this epoch, ``after`` for c that have, all in the batch where that is worst. Where one batch is an epoch, the two lines
are r_c <- grown_c(r_c) + s c gradient. Where F_c is not reached, grown_c(r) = (E_c + s twist l_c r / 2) r + (2 c + 2) tau.

Formal guarantees
    Write |.| for the Frobenius norm, W for the computed run on D and W' for one on D', c records away; R' is D''s R.
    A step. If n of the records that differ take part, the exact step moves W' - W by (keep I - s int Hess') (W' - W) and by
    their gradients at W: s n gradient at most. Hess' = GN' + R', GN' semidefinite, GN' + R' <= whole l_c; and dip(R'(V)) <=
    dip(R(V)) + c pull <= dip(R(W)) + twist l_c |V - W| + c pull, whose mean over the segment has half of the middle term.
    So the factor lies between keep - s whole l_c and keep + s (rho + c b) + s twist l_c r / 2, r = |W' - W|, and its size
    is at most E_c + s twist l_c r / 2. Each run's rounding adds tau. So |W' - W| becomes at most grown_c(r) + s n gradient.
    Containment, |W' - W| <= r_c. A record takes part in one batch of each epoch, its hash deciding anew which one: the n of
    an epoch's steps add up to c at most. Any such dealing gives a bound r <- grown_c(r) + s n gradient. grown_c is
    increasing and convex for r >= 0 (E_c >= 0: it is at least half the sum of the two numbers it is the larger of), so
    each bound is a convex function of the dealing, and greatest where an epoch's c records are all in one batch. The
    greatest of those that had theirs, and the one that is still to have it, are after_c and before_c.
    Nesting, r_c(D) >= r_{c-1}(D') + |W - W'| for neighbours D, D', one record apart; call the right side's parts r' and d.
    Take the dealing of c - 1 records that r' comes from and that of the one record: together a dealing of c. Along it,
    r >= r' + d for D: rho' <= dip(R'(W')) + slack <= rho + twist l_1 d + b, so that E_{c-1}(D') <= E_c(D) + t d with t =
    s twist l_c; d itself grows by a factor of at most E_c(D) + t d / 2. With E = E_c(D) the sum is at most
    E (r' + d) + t (d r' + r' r' / 2 + d d / 2) = E (r' + d) + t (r' + d)^2 / 2, which grows with r' + d <= r, and both
    sides get s gradient for each record of the batch. Several records are a chain of single ones, through datasets that
    hold what D and D' share and then some.
    The cap, for both. R' is block diagonal, R'_j = sum_i u_ij s'' x x^T with |u_ij s''| <= pull: |R'(V)| <= pull l_c at
    every V. So dip(R'(V)) <= min(rho + c b + twist l_c x, pull l_c) at a distance x from W, and the factor's size is at
    most the mean over x from 0 to r of min(E_c + s twist l_c x, F_c), nowhere less than s whole l_c - keep. Times r it is
    the integral in grown_c: increasing and convex, since what is integrated is >= 0 and does not fall (F_c, too, is >= 0).
    Nesting: F_{c-1}(D') <= F = F_c(D), lengths being so, and E_{c-1}(D') <= E + t d. So r' grows to at most the integral
    over x from 0 to r' of min(E + t d + t x, F), which is that of min(E + t x, F) from d to r' + d; and d to at most the
    latter's from 0 to d: together its integral from 0 to r' + d. As computed it is E + t x up to some m <= r, and F from
    there on: no less than the integral, whatever m is, and by 2^-102 of it more where m is (F - E) / t as rounded.
    Rounding: tau is a step's and more, tau = step + spent. Of (2 c + 2) tau, r_{c-1}(D') takes 2 c tau, d takes 2 step, and
    2 spent are left for what D''s recursion is rounded up, by less than 2^-47 of a number that is within ``limit`` where it
    counts; spent is 2^-45 of that (network.py). D's own rounding up only helps.
    Radii grow with c as computed, too: c + 1 has 2 tau more, and rounding takes less than that.
    A radius beyond ``limit`` = 2 |W|'s public bound, which no difference exceeds, is infinite from then on: nothing is
    certified at that k, and no run fails for it, which would tell a private fact. A finite r_c(D) has finite r_{c-1}(D').
    Under ``remove`` with one batch, what c records add is at most the sum of the c greatest gradients at W: they are D's.
    That does not nest, and nothing that needs nesting takes such certificates (condition g).

Source: method.md section 9.
"""

from dataclasses import dataclass, replace

import numpy as np

from agt.tube.network import Curvature, EigenvalueBound, Public

_UP = 1 + 2.0**-48  # more than the roundings of a step below


@dataclass(frozen=True)
class Radii:
    """How far c records can have moved the weights, for several c.

    Attributes:
        counts: [K] int64 c, increasing.
        before: [K] float64, if all of them are still to take part in this epoch.
        after: [K] float64, wherever they are: r_c, nondecreasing; infinity: not known.
        limit: public; a radius beyond it is infinite.
    """

    counts: np.ndarray
    before: np.ndarray
    after: np.ndarray
    limit: float

    @classmethod
    def zero(cls, counts: np.ndarray, limit: float) -> "Radii":
        """Before training."""
        return cls(counts, np.zeros(len(counts)), np.zeros(len(counts)), limit)

    def batch(
        self,
        curvature: Curvature,
        public: Public,
        rho: EigenvalueBound,
        gram: EigenvalueBound,
        added: np.ndarray | None = None,
    ) -> "Radii":
        """After a step on one batch of an epoch.

        Args:
            rho, gram: of dip(R) and lambda_max(sum x x^T) of the batch.
            added: [K] bounds on the sum of c records' gradients; None: c times the public bound.
        """
        at, counts = public.at, self.counts
        added = counts * curvature.gradient if added is None else added
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            longest = gram.value + counts * (1 + gram.slack)
            pulled = at.keep + at.step * (rho.value + counts * (curvature.pull + rho.slack))
            turned = at.step * curvature.whole * longest - at.keep
            factor, cap = np.maximum(pulled, turned), np.maximum(at.keep + at.step * curvature.pull * longest, turned)
            turn = at.step * curvature.twist * longest
            before, after = (
                integral(factor, turn, cap, r) + (2 * counts + 2) * public.tau for r in (self.before, self.after)
            )
            after = np.maximum(after, before + at.step * added) * _UP
            known = after <= self.limit  # NaN is not
        return replace(self, before=np.where(known, before * _UP, np.inf), after=np.where(known, after, np.inf))

    def epoch_over(self) -> "Radii":
        """The next epoch deals every record anew."""
        return replace(self, before=self.after)


def integral(first: np.ndarray, slope: np.ndarray, cap: np.ndarray, to: np.ndarray) -> np.ndarray:
    """[K] of min(first + slope x, cap) over x from 0 to ``to``, as above."""
    first = np.minimum(first, cap)
    rising = np.fmin(to, (cap - first) / slope)  # all of it where neither first nor slope tell: 0 / 0
    return (first + slope * rising / 2) * rising + cap * (to - rising)
