"""Certified removal: one Newton step for the records that go, and a bound on what it leaves of the gradient.

The objective of a head is L(w) = sum_i l(w.x_i, t_i) + (strength / 2) |w|^2 + b.w for each output (training/objective.py),
and u = grad L(w; D) what is left of its gradient: |w - w*| <= |u| / strength, w* the exact minimiser on the records there
are, since L is strongly convex. ``residual`` is a bound on |u|, l2 over all outputs. It starts as measured on the weights
that the optimiser left, b included, never at 0.

| what      | passes over the data  | residual afterwards                                                      |
|-----------|-----------------------|--------------------------------------------------------------------------|
| remove    | none: O(d^2) a record | what it was, and what the step adds, bounded without the other records   |
| polish    | a few of O(n d)       | measured: where the Hessian is near enough, little more than rounding    |
| refresh   | of O(n d^2), too      | the same, whatever the weights were before                               |

Formal guarantees
    The step. Let D' be D without R, w the weights, w0 the reference, H0 the exact Hessian at w0 over D'. With force = sum_R
    grad l_i(w), grad L(w; D') = u - force, and for w' = w + v with any v
        grad L(w'; D') = u - force + A v,   A = sum_D' a_i x_i x_i' + strength I,
        a_i = integral over s in [0, 1] of l''(f_i(w + s v)),
        |grad L(w'; D')| <= |u| + |H0 v - force| + |(A - H0) v|.
    |H0 v - force| is worked out with the matrix that is kept, its error charged (factor.py): v need not solve anything.
    l'' is gamma-Lipschitz, |x_i| <= 1, and the norm is convex, so that
        |a_i - l''(f_i(w0))| <= gamma integral |w + s v - w0| <= (gamma / 2) (|w - w0| + |w' - w0|),
        |(A - H0) v| <= |X| max_i |a_i - l''(f_i(w0))| |X v|,
    with a proved bound on |X| (training/removal.py) and |X v|^2 = v'K v from K = X'X. At w = w0 this is (gamma / 2) |X| |v|
    |X v|: half of 003's corollaries 1 and 2, whose proof bounds the integral by its largest term. Away from w0 it holds the
    drift of a Hessian that is not formed anew. Theorems 1 and 4, worst over all data, follow by |X|^2 <= n' and |v| <=
    |force| / strength <= m C / strength (``worst_case``).
    Batches are one step; a person's rows are a batch. Outputs are separate problems; their residuals add in squares.
    Removals in a row: u is whatever the last step left, so the bounds add.
    Polishing. The same step from the gradient as computed; the residual is then measured (``Slope.bound``).
    Rounding. The force's is ``Objective.force``'s; that of H0 and K is charged as they are formed and downdated. The new
    weights round by u |w'|, which moves the gradient by |A|_2 u |w'|, |A|_2 <= h |X|^2 + strength. ``TINY``: squares in
    norms may underflow.
    Features that are known up to ``slack`` (models/features.py) put H0 off by (2 h + gamma |w0|) slack for each record, and
    K by 2 slack; the force and measured gradients charge it themselves.

Sources: Guo, Goldstein, Hannun, van der Maaten (2020) [003], theorems 1 and 4, corollaries 1 and 2; method.md section 7.
"""

import copy
import math
from dataclasses import dataclass, field, replace

import numpy as np

from agt.errors import UnsoundError
from agt.models.features import check_norms
from agt.numeric import COVER, UNIT
from agt.training.objective import TINY, Objective, Slope, gram, gram_rounding, logits_in
from agt.training.removal import RemovalState, spectral_norm
from agt.unlearning.factor import Factor, Kept

PASSES = 12  # of polishing, each of which halves the residual or is the last
OFTEN = 4  # steps between two looks at the data, below which a Hessian has drifted too far
LITTLE = 64  # a look at the data leaves one part in so many of an allowance, or less
REFRESHES = 30  # a Newton method's iterations: its last few square the error


@dataclass(frozen=True)
class Step:
    """What one step did, bounds as numbers.

    Attributes:
        before, after: the residual's bound.
        solved: bound on |H0 v - force|, what the kept matrices and their rounding leave.
        curved: bound on |(A - H0) v|: the loss is no parabola, and the Hessian not of these weights.
        fresh: the part of ``curved`` that a Hessian at these very weights would leave: 003's corollary, halved.
        moved: |v|, all outputs.
    """

    before: float
    after: float
    solved: float
    curved: float
    fresh: float
    moved: float


@dataclass
class Head:
    """A minimiser that is kept up while records go. Changed in place; ``copy`` it where a step may be taken back.

    Attributes:
        objective: loss and strength.
        weight, tilt: w and b, [J, d].
        residual: bound on the gradient that is left, l2 over all outputs.
        slack: bound on how far features are from a function of each record alone.
        reference: w0, [J, d].
        factors: the Hessian at w0 over the records that are left, of each output; of squares, one for all.
        gram: K = X'X over them.
        norm: bound on |X|_2; removals only make it smaller.
        count: how many records are left.
    """

    objective: Objective
    weight: np.ndarray
    tilt: np.ndarray
    residual: float
    slack: float = 0.0
    reference: np.ndarray = field(init=False)
    factors: list[Factor] = field(init=False)
    gram: Kept = field(init=False)
    norm: float = field(init=False)
    count: int = field(init=False)

    @classmethod
    def formed(
        cls,
        objective: Objective,
        weight: np.ndarray,
        tilt: np.ndarray,
        features: np.ndarray,
        targets: np.ndarray,
        slack: float = 0.0,
    ) -> "Head":
        """Of any weights on the data: matrices formed, the residual measured. Arguments as for ``Objective.slope``.

        Raises:
            UnsoundError: a record of norm above 1, rounding included.
        """
        head = cls(objective, weight, tilt, objective.slope(weight, features, targets, tilt, slack).bound, slack)
        head.settle(features)
        return head

    @classmethod
    def of(cls, objective: Objective, state: RemovalState, slack: float = 0.0) -> "Head":
        """Of a state whose matrices were formed over its records, as training and ``settle`` leave them."""
        head = cls(objective, state.weight, state.tilt, state.residual, slack)
        head._hold(state.reference, state.hessian, state.gram, state.norm, state.count)
        return head

    def state(self, before: RemovalState, served: np.ndarray, allowed: float) -> RemovalState:
        """What later removals start from, once the head is settled.

        Args:
            before: as it was; how many were removed goes on from there.
            served: [J, d], the weights that answer from now on.
            allowed: public bound on the residual.

        Raises:
            UnsoundError: the residual is above it.
        """
        return RemovalState(
            weight=self.weight,
            tilt=self.tilt,
            served=served,
            reference=self.reference,
            hessian=np.stack([factor.kept.matrix for factor in self.factors]),
            gram=self.gram.matrix,
            norm=self.norm,
            residual=self.residual,
            allowed=allowed,
            count=self.count,
            removed=before.removed + before.count - self.count,
        )

    def copy(self) -> "Head":
        """Another that is changed by itself: arrays are replaced, never written into."""
        other = copy.copy(self)
        other.factors = [replace(factor, kept=replace(factor.kept)) for factor in self.factors]
        other.gram = replace(self.gram)
        return other

    @property
    def distance(self) -> float:
        """Bound on |w - w*|, all outputs, w* the exact minimiser over the records that are left."""
        return self.residual / self.objective.strength * COVER

    def remove(self, features: np.ndarray, targets: np.ndarray, remaining: np.ndarray | None = None) -> Step:
        """Take [m, d] records with [m, J] targets out, all in one step.

        Args:
            remaining: features of all the others: matrices are formed anew over them at the weights of now; None: those
                that are kept lose the records' part, and nothing else is read.

        Raises:
            ValueError: more records than there are, or another number of others.
            UnsoundError: as ``formed``; the Hessian is not positive definite in floating point, or a bound is not finite:
                then the residual is infinite until it is measured.
        """
        left = self.count - len(features)
        if left < 0 or (remaining is not None and len(remaining) != left):
            raise ValueError(f"{len(features)} records cannot be removed of {self.count} with these others left")
        x = np.ascontiguousarray(features, dtype=np.float64)
        check_norms(x)
        force = self.objective.force(self.weight, x, targets, self.slack)
        before, self.residual = self.residual, math.inf  # of the records that are left nothing is known until the end
        if remaining is None:
            self._downdate(x)
        else:
            self.settle(remaining)
        return self._step(force, before)

    def polish(self, features: np.ndarray, targets: np.ndarray, goal: float = 0.0) -> bool:
        """Measure the residual, and take Newton steps from the full gradient, with the matrices at hand, while needed.

        Args:
            features, targets: all the records that are left.
            goal: what the residual may be; 0: as little as rounding lets be known.

        Returns:
            Whether it got there; else the steps ceased to help before.

        Raises:
            ValueError: another number of records.
        """
        if len(features) != self.count:
            raise ValueError(f"{len(features)} records are given, and {self.count} are left")
        self.residual, best = math.inf, self.weight
        for _ in range(PASSES):
            slope = self.objective.slope(self.weight, features, targets, self.tilt, self.slack)
            helped = slope.bound <= self.residual / 2
            if slope.bound < self.residual:
                self.residual, best = slope.bound, self.weight
            if not helped or self.residual <= max(goal, 2 * slope.error):
                break
            self.weight = self._moved(-slope.gradient)[0]
        self.weight = best
        return self.residual <= max(goal, 2 * slope.error)

    def refresh(self, features: np.ndarray, targets: np.ndarray, goal: float = 0.0) -> None:
        """Newton's method: matrices formed anew at the weights of now, then polished, until that no longer helps.

        Args: as for ``polish``, over any records: they are those that count from now on.
        """
        before = math.inf
        for _ in range(REFRESHES):
            self.settle(features)
            if self.polish(features, targets, goal) or not self.residual < before / 2:
                break
            before = self.residual

    def settle(self, features: np.ndarray) -> None:
        """Form the matrices anew over these records, at the weights of now: nothing of earlier weights is kept."""
        check_norms(features)
        products = gram(features)
        norm = spectral_norm(products, len(features))
        self._hold(self.weight, self.objective.hessian(self.weight, features), products, norm, len(features))

    def _hold(self, reference: np.ndarray, hessian: np.ndarray, products: np.ndarray, norm: float, count: int) -> None:
        """Matrices as they were formed over ``count`` records; ``norm``: bound on |X|_2 of the features as computed."""
        off = self.objective.hessian_rounding(reference, count) + self._blur(reference, count)
        unknown = 2 * count * self.slack * COVER
        self.reference, self.count = reference, count
        self.factors = [Factor(Kept.of(matrix, off)) for matrix in hessian]
        self.gram = Kept.of(products, gram_rounding(count) + unknown)
        self.norm = math.sqrt(norm**2 + unknown) * COVER

    def _downdate(self, x: np.ndarray) -> None:
        """Take the records' part out of the matrices that are kept."""
        problem, count = self.objective, len(x)
        off = problem.hessian_rounding(self.reference, count) + self._blur(self.reference, count)
        roots = np.sqrt(problem.curvatures(logits_in(x, self.reference)))
        for output, factor in enumerate(self.factors):
            factor.remove(roots[:, output : output + 1] * x, off)
        self.gram.remove(x, gram_rounding(count) + 2 * count * self.slack * COVER)
        self.count -= count

    def _blur(self, reference: np.ndarray, count: int) -> float:
        """What the records' unknown digits put their part of a Hessian off by, Frobenius."""
        longest = float(np.linalg.norm(reference, axis=1).max())
        return (
            count * (2 * self.objective.smoothness + self.objective.gamma * longest) * self.slack * (1 + self.slack) * COVER
        )

    def _step(self, force: Slope, before: float) -> Step:
        """Move by v, H0 v = force as nearly as it is solved, from a residual of at most ``before``."""
        moved, parts = self._moved(force.gradient)
        solved, curved, fresh, length = (float(size) * COVER for size in np.linalg.norm(parts, axis=1))
        after = (before + force.error + solved + curved) * COVER + TINY
        if not math.isfinite(after):
            raise UnsoundError("a bound on the residual is not finite: nothing is removed; train again")
        self.weight, self.residual = moved, after
        return Step(before, after, solved + force.error, curved, fresh, length)

    def _moved(self, force: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(w + v, [4, J] what ``Step`` adds up: solved, curved, fresh and moved of each output)."""
        parts, moved = np.zeros((4, len(force))), np.array(self.weight)
        lever = self.objective.gamma / 2 * (1 + self.slack) * self.norm
        steepest = self.objective.smoothness * self.norm**2 + self.objective.strength
        for output, wanted in enumerate(force):
            step, left = self.factors[output if len(self.factors) > 1 else 0].solve(wanted)
            moved[output] += step
            away = _length(self.weight[output] - self.reference[output]) + _length(moved[output] - self.reference[output])
            away += UNIT * _length(moved[output])  # w + v is that far from its rounding
            sway, length = lever * min(self.gram.length(step), self.norm * _length(step)), _length(step)
            parts[:, output] = left + steepest * UNIT * _length(moved[output]), sway * away, sway * length, length
        return moved, parts


def brought_within(
    head: Head, features: np.ndarray, targets: np.ndarray, allowance: float, last: Step | None = None
) -> tuple[str, ...]:
    """Bring the residual down to an allowance, by no more than it takes.

    Args:
        head: changed in place.
        features, targets: all the records that are left.
        last: the step before, if any: where the drift of the Hessian alone lets fewer than ``OFTEN`` such steps into the
            allowance, it is formed anew, which costs as much as many looks at the data and saves as many.

    Returns:
        What was done: nothing, polish, refresh, or both. The residual may still be above: then only training anew, with
        noise anew, is left.
    """
    drifted = last is not None and (last.curved - last.fresh) * OFTEN > allowance
    done = []
    for name, measure in (("polish", head.polish), ("refresh", head.refresh)):
        if head.residual <= allowance:
            break
        if name == "polish" and drifted:
            continue
        measure(features, targets, allowance / LITTLE)
        done.append(name)
    return tuple(done)


def worst_case(gamma: float, removed: int, left: int, strength: float, reach: float = 1.0, outputs: int = 1) -> float:
    """What a step adds at most, whatever the data, at w = w0 and rounding aside: gamma sqrt(J) n' (m C / strength)^2.

    Each output is a problem of its own with as much as that of one, and they add in squares.

    That of 003 (theorems 1 and 4) is 4 times as large: its regulariser changes with the number of records, which doubles
    the force; and its gamma is 1/4.

    Args:
        removed, left: m and n'.
        reach: C, a bound on a loss's slope.
        outputs: J.
    """
    return gamma * math.sqrt(outputs) * left * (removed * reach / strength) ** 2


def _length(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector)) * COVER
