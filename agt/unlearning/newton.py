"""Certified removal: one Newton step that takes records out, and a bound on the gradient it leaves.

The weights are within residual / strength of the minimiser over the records that remain. The
residual starts as measured on the weights that training left. What is done costs:

| what    | passes over the data             | the residual afterwards                            |
|---------|----------------------------------|----------------------------------------------------|
| remove  | none: O(d^2) for each record     | what it was, and a bound on what the step adds     |
| polish  | a few of O(n d)                  | measured: little more than rounding, if it helps   |
| refresh | a few of O(n d^2)                | the same, whatever the weights were before         |

Proofs: docs/proofs/removal.md for the bounds, docs/proofs/masking.md for what may be promised.
"""

import copy
import math
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from agt.errors import UnsoundError
from agt.facts import Fact, not_held, proved
from agt.numeric import (
    COVER,
    UNIT,
    check_norms,
    gamma_up,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    next_up,
)
from agt.training.objective import (
    SQUARE_UNDERFLOW_ALLOWANCE,
    ComputedGradient,
    Objective,
    chunked_logits,
    gram,
    gram_rounding,
)
from agt.training.removal import RemovalConfig, RemovalState, spectral_norm
from agt.training.row_sums import row_blocks
from agt.unlearning.promise import Promise
from agt.unlearning.sentences import Remark

REFINEMENTS = 4
_MANY = 8  # of width / _MANY records at once, Woodbury's formula is no cheaper than a new inverse


@dataclass
class BoundedMatrix:
    """A symmetric positive semidefinite matrix that loses terms, and how far it may be from the
    exact one.

    Attributes:
        matrix: [d, d] float64.
        error: bound on |matrix - exact|, Frobenius.
        size: bound on the Frobenius norm of both, now and later.
    """

    matrix: np.ndarray
    error: float
    size: float

    @classmethod
    def of(cls, matrix: np.ndarray, error: float) -> "BoundedMatrix":
        """Of a matrix as it was formed."""
        return cls(matrix, error, (float(np.linalg.norm(matrix)) + error) * COVER)

    def remove(self, rows: np.ndarray, off: float) -> None:
        """Subtract the sum of r r' over [m, d] rows; ``off``: bound on how far the computed sum is
        from what is meant; it is summed as ``training.objective.gram_rounding`` charges it, in
        blocks.
        """
        # Lemma 9 of docs/proofs/removal.md
        self.matrix = self.matrix - sum(rows[part].T @ rows[part] for part in row_blocks(len(rows)))
        self.error = (self.error + off + UNIT * self.size) * COVER
        self.size += self.error

    def times(self, vector: np.ndarray) -> tuple[np.ndarray, float]:
        """(the product as computed, bound on how far the exact matrix's product is from it)."""
        # Lemma 10 of docs/proofs/removal.md
        error = gamma_up(len(vector) + 2) * self.size + self.error
        return self.matrix @ vector, error * float(np.linalg.norm(vector)) * COVER

    def length(self, vector: np.ndarray) -> float:
        """An upper bound on sqrt(v'Kv), K the exact matrix."""
        product, off = self.times(vector)
        form = float(vector @ product)
        sizes = float(np.linalg.norm(vector)) * (
            off + gamma_up(len(vector) + 2) * float(np.linalg.norm(product))
        )
        return math.sqrt(max(0.0, form) + sizes * COVER) * COVER


@dataclass
class Factor:
    """A matrix that is kept, with something close to its inverse.

    Attributes:
        kept: the matrix H~.
        inverse: [d, d] P, nothing rests on how close it is; None: not needed yet.
        made: how often P was made from the matrix.
    """

    kept: BoundedMatrix
    inverse: np.ndarray | None = None
    made: int = 0

    def remove(self, rows: np.ndarray, off: float) -> None:
        """Take r r' of [m, d] rows out of both; ``off`` as for ``BoundedMatrix.remove``."""
        self.kept.remove(rows, off)
        if self.inverse is None or len(rows) * _MANY > rows.shape[1]:
            self.inverse = None
            return
        moved = self.inverse @ rows.T
        try:
            inner = cho_factor(np.eye(len(rows)) - rows @ moved, check_finite=False)
        except LinAlgError:  # P is no longer close to the inverse of anything positive
            self.inverse = None
            return
        self.inverse = self.inverse + moved @ cho_solve(inner, moved.T, check_finite=False)

    def solve(self, force: np.ndarray) -> tuple[np.ndarray, float]:
        """(v, bound on |H v - force| for the exact H): v = P force, refined until rounding is most
        of what is left.

        Args:
            force: [d].

        Raises:
            UnsoundError: the matrix is not positive definite in floating point.
        """
        step, left, floor = self._refined(force)
        if left > floor:
            self.inverse = None
            step, left, floor = self._refined(force)
        return step, (left + floor) * COVER

    def _refined(self, force: np.ndarray) -> tuple[np.ndarray, float, float]:
        """(v, |r| as computed, what rounding and the matrix's own error may add to it)."""
        if self.inverse is None:
            self.inverse, self.made = _inverse(self.kept.matrix), self.made + 1
        step = np.zeros_like(force)
        rest, left, floor = force, math.inf, 0.0
        for _ in range(REFINEMENTS):
            better = step + self.inverse @ rest
            product, off = self.kept.times(better)
            rest = force - product
            now = float(np.linalg.norm(rest)) * COVER
            if not now < left / 2:
                break
            step, left, floor = (
                better,
                now,
                (off + UNIT * (now + float(np.linalg.norm(force)))) * COVER,
            )
            if left <= floor:
                break
        return step, left, floor


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """By Cholesky."""
    try:
        inverse: np.ndarray = cho_solve(
            cho_factor(matrix, check_finite=False), np.eye(len(matrix)), check_finite=False
        )
    except LinAlgError:
        raise UnsoundError(
            "training.weight_decay is too small for this data, because the Hessian is not "
            "positive definite in floating point: give a larger one"
        ) from None
    return inverse


PASSES = 12  # of polishing, each of which halves the residual or is the last
LITTLE = 64  # a look at the data leaves one part in so many of an allowance, or less
REFRESHES = 30  # a Newton method's iterations: its last few square the error


@dataclass(frozen=True)
class NewtonStep:
    """What one step did, bounds as numbers.

    Attributes:
        before, after: the residual's bound.
        solved: bound on |H0 v - force|, what the kept matrices and their rounding leave.
        curved: bound on |(A - H0) v|: the loss is no parabola, and the Hessian not of these
            weights.
        fresh: the part of ``curved`` that a Hessian at these very weights would leave: 003's
            corollary, halved.
        moved: |v|, all outputs.
    """

    before: float
    after: float
    solved: float
    curved: float
    fresh: float
    moved: float


@dataclass
class RemovableHead:
    """A minimiser that is kept up while records go. Changed in place; ``copy`` it where a step may
    be taken back.

    Attributes:
        objective: loss and strength.
        weight, tilt: w and b, [J, d].
        residual: bound on the gradient that is left, l2 over all outputs.
        reference: w0, [J, d].
        factors: the Hessian at w0 over the records that are left, of each output; of squares, one
            for all.
        gram: K = X'X over them.
        norm: bound on |X|_2; removals only make it smaller.
        count: how many records are left.
    """

    objective: Objective
    weight: np.ndarray
    tilt: np.ndarray
    residual: float
    reference: np.ndarray = field(init=False)
    factors: list[Factor] = field(init=False)
    gram: BoundedMatrix = field(init=False)
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
    ) -> "RemovableHead":
        """Of any weights on the data: matrices formed, the residual measured. Arguments as for
        ``Objective.gradient``.

        Raises:
            UnsoundError: a record of norm above 1, rounding included.
        """
        head = cls(
            objective, weight, tilt, objective.gradient(weight, features, targets, tilt).norm_bound
        )
        head.settle(features)
        return head

    @classmethod
    def of(cls, objective: Objective, state: RemovalState) -> "RemovableHead":
        """Of a state whose matrices were formed over its records, as training and ``settle``
        leave them.
        """
        head = cls(objective, state.weight, state.tilt, state.residual)
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

    def copy(self) -> "RemovableHead":
        """Another that is changed by itself: arrays are replaced, never written into."""
        other = copy.copy(self)
        other.factors = [replace(factor, kept=replace(factor.kept)) for factor in self.factors]
        other.gram = replace(self.gram)
        return other

    @property
    def distance(self) -> float:
        """Bound on |w - w*|, all outputs, w* the exact minimiser over the records that are left."""
        return self.residual / self.objective.strength * COVER

    def remove(
        self, features: np.ndarray, targets: np.ndarray, remaining: np.ndarray | None = None
    ) -> NewtonStep:
        """Take [m, d] records with [m, J] targets out, all in one step.

        Args:
            remaining: features of all the others: matrices are formed anew over them at the weights
                of now; None: those that are kept lose the records' part, and nothing else is read.

        Raises:
            ValueError: more records than there are, or another number of others.
            UnsoundError: as ``formed``; the Hessian is not positive definite in floating point, or
                a bound is not finite: then the residual is infinite until it is measured.
        """
        left = self.count - len(features)
        if left < 0 or (remaining is not None and len(remaining) != left):
            raise ValueError(
                f"{len(features)} of {self.count} records cannot be removed while these "
                "other records stay"
            )
        x = np.ascontiguousarray(features, dtype=np.float64)
        check_norms(x)
        force = self.objective.loss_gradient(self.weight, x, targets)
        # of the records that are left nothing is known until the end
        before, self.residual = self.residual, math.inf
        if remaining is None:
            self._downdate(x)
        else:
            self.settle(remaining)
        return self._step(force, before)

    def polish(self, features: np.ndarray, targets: np.ndarray, goal: float = 0.0) -> bool:
        """Measure the residual, and take Newton steps from the full gradient, with the matrices at
        hand, while needed.

        Args:
            features, targets: all the records that are left.
            goal: what the residual may be; 0: as little as rounding lets be known.

        Returns:
            Whether it got there; else the steps ceased to help before.

        Raises:
            ValueError: another number of records.
        """
        if len(features) != self.count:
            raise ValueError(f"{len(features)} records were given, but {self.count} are left")
        self.residual, best = math.inf, self.weight
        for _ in range(PASSES):
            gradient = self.objective.gradient(self.weight, features, targets, self.tilt)
            helped = gradient.norm_bound <= self.residual / 2
            if gradient.norm_bound < self.residual:
                self.residual, best = gradient.norm_bound, self.weight
            if not helped or self.residual <= max(goal, 2 * gradient.error):
                break
            self.weight = self._moved(-gradient.value)[0]
        self.weight = best
        return self.residual <= max(goal, 2 * gradient.error)

    def refresh(self, features: np.ndarray, targets: np.ndarray, goal: float = 0.0) -> None:
        """Newton's method: matrices formed anew at the weights of now, then polished, until that no
        longer helps.

        Args: as for ``polish``, over any records: they are those that count from now on.
        """
        before = math.inf
        for _ in range(REFRESHES):
            self.settle(features)
            if self.polish(features, targets, goal) or not self.residual < before / 2:
                break
            before = self.residual

    def settle(self, features: np.ndarray) -> None:
        """Form the matrices anew over these records, at the weights of now: nothing of earlier
        weights is kept.
        """
        check_norms(features)
        products = gram(features)
        norm = spectral_norm(products, len(features))
        self._hold(
            self.weight,
            self.objective.hessian(self.weight, features),
            products,
            norm,
            len(features),
        )

    def _hold(
        self,
        reference: np.ndarray,
        hessian: np.ndarray,
        products: np.ndarray,
        norm: float,
        count: int,
    ) -> None:
        """Matrices as they were formed over ``count`` records; ``norm``: bound on |X|_2 of the
        features as computed.
        """
        off = self.objective.hessian_rounding(reference, count)
        self.reference, self.count = reference, count
        self.factors = [Factor(BoundedMatrix.of(matrix, off)) for matrix in hessian]
        self.gram = BoundedMatrix.of(products, gram_rounding(count))
        self.norm = norm * COVER

    def _downdate(self, x: np.ndarray) -> None:
        """Take the records' part out of the matrices that are kept."""
        problem, count = self.objective, len(x)
        off = problem.hessian_rounding(self.reference, count)
        roots = np.sqrt(problem.curvatures(chunked_logits(x, self.reference)))
        for output, factor in enumerate(self.factors):
            factor.remove(roots[:, output : output + 1] * x, off)
        self.gram.remove(x, gram_rounding(count))
        self.count -= count

    def _step(self, force: ComputedGradient, before: float) -> NewtonStep:
        """Move by v, H0 v = force as nearly as it is solved, from a residual of at most
        ``before``.
        """
        moved, parts = self._moved(force.value)
        solved, curved, fresh, length = (
            float(size) * COVER for size in np.linalg.norm(parts, axis=1)
        )
        # Lemma 7 of docs/proofs/removal.md; residuals of removals in a row add:
        # Lemma 13 of docs/proofs/removal.md
        after = (before + force.error + solved + curved) * COVER + SQUARE_UNDERFLOW_ALLOWANCE
        if not math.isfinite(after):
            raise UnsoundError(
                "a bound on the residual is not finite, so nothing was removed: train again"
            )
        self.weight, self.residual = moved, after
        return NewtonStep(before, after, solved + force.error, curved, fresh, length)

    def _moved(self, force: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(w + v, [4, J] what ``NewtonStep`` adds up: solved, curved, fresh and moved of each
        output).
        """
        parts, moved = np.zeros((4, len(force))), np.array(self.weight)
        # Lemma 8 of docs/proofs/removal.md
        lever = self.objective.curvature_lipschitz / 2 * self.norm
        steepest = self.objective.smoothness * self.norm**2 + self.objective.strength
        for output, wanted in enumerate(force):
            step, left = self.factors[output if len(self.factors) > 1 else 0].solve(wanted)
            moved[output] += step
            away = _length(self.weight[output] - self.reference[output]) + _length(
                moved[output] - self.reference[output]
            )
            # w + v is that far from its rounding: Lemma 11 of docs/proofs/removal.md
            away += UNIT * _length(moved[output])
            sway, length = (
                lever * min(self.gram.length(step), self.norm * _length(step)),
                _length(step),
            )
            parts[:, output] = (
                left + steepest * UNIT * _length(moved[output]),
                sway * away,
                sway * length,
                length,
            )
        return moved, parts


def brought_within(
    head: RemovableHead, features: np.ndarray, targets: np.ndarray, allowance: float
) -> tuple[str, ...]:
    """Bring the residual down to an allowance, by no more than it takes.

    Args:
        head: changed in place.
        features, targets: all the records that are left.

    Returns:
        What was done: nothing, polish, refresh, or both. The residual may still be above: then only
        training anew, with noise anew, is left.
    """
    done = []
    for name, measure in (("polish", head.polish), ("refresh", head.refresh)):
        if head.residual > allowance:
            measure(features, targets, allowance / LITTLE)
            done.append(name)
    return tuple(done)


def worst_case(
    gamma: float, removed: int, left: int, strength: float, reach: float = 1.0, outputs: int = 1
) -> float:
    """What a step adds at most, whatever the data, at w = w0 and rounding aside: gamma sqrt(J) n'
    (m C / strength)^2.

    Each output is a problem of its own with as much as that of one, and they add in squares.

    That of 003 (theorems 1 and 4) is 4 times as large: its regulariser changes with the number of
    records, which doubles the force; and its gamma is 1/4.

    Args:
        removed, left: m and n'.
        reach: C, a bound on a loss's slope.
        outputs: J.
    """
    # Lemma 12 of docs/proofs/removal.md
    return gamma * math.sqrt(outputs) * left * (removed * reach / strength) ** 2


def _length(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector)) * COVER


STATES = 10  # for which what several states tell together is said
DEPENDENT = not_held("residual_depends_on_noise")
FLOATING = not_held("noise_in_floating_point")
EXACT_NOISE = proved("noise_exact")
DRAWN_ANEW = proved("noise_drawn_anew")
SIMULATION = not_held("noise_from_recorded_seed")


def together(eps: float, delta: float, states: int) -> float:
    """The eps, rounded up, at which so many served states of one (eps, delta) each are close at
    the same delta.
    """
    # Lemma 3 of docs/proofs/masking.md
    return gaussian_epsilon(math.sqrt(states) * gaussian_mu(eps, delta), delta)


def promise(config: RemovalConfig, residual: float, strength: float) -> Promise:
    """What holds of a state after a removal.

    Args:
        config: how it was trained.
        residual: bound on the gradient that is left, within the budget.
        strength: of the objective.
    """
    # Lemma 4 of docs/proofs/masking.md
    within = next_up((residual + config.tolerance) / strength * COVER)
    left = {"distance": next_up(residual / strength), "gradient": residual, "strength": strength}
    distance = proved("near_minimiser_before_noise", **left)
    if config.masking == "none":
        retrained_within = next_up(config.tolerance / strength)
        near = {"distance": next_up(residual / strength), "retrained": retrained_within}
        terms = (Remark("near_retrained", {"within": within}), Remark("near_minimiser", near))
        return Promise("newton", True, 0.0, 0.0, True, terms, (distance,), within)
    seeded = () if config.seed is None else (SIMULATION,)
    if config.masking == "loss":
        facts: tuple[Fact, ...] = (distance, DEPENDENT, FLOATING, *seeded)
        eps, lead, rest = config.eps, "close_as_published", _OF_LOSS
    else:
        # Lemma 2 of docs/proofs/masking.md
        mu = within / config.sigma * COVER
        # the least eps at which N(0, 1) and N(mu, 1) are close, or the settings'
        eps = (
            0.0
            if gaussian_delta(0.0, mu) <= config.delta
            else min(config.eps, gaussian_epsilon(mu, config.delta))
        )
        retrained = proved("retraining_near_minimiser", distance=config.tolerance / strength)
        facts = (distance, retrained, *(seeded or (DRAWN_ANEW, EXACT_NOISE)))
        lead, rest = "close_without_seed" if seeded else "close", _of_output(config)
    close = Remark(lead, {"eps": eps, "delta": config.delta})
    return Promise(
        "newton", False, eps, config.delta, config.masking == "output", (close, *rest), facts
    )


_OF_LOSS: tuple[Remark, ...] = (Remark("proof_has_gap"), Remark("noise_of_training"))


def _of_output(config: RemovalConfig) -> tuple[Remark, ...]:
    together_values = {
        "states": STATES,
        "eps": together(config.eps, config.delta, STATES),
        "delta": config.delta,
    }
    return (
        Remark("noise_after_request"),
        Remark("at_most", {"eps": config.eps, "delta": config.delta}),
        Remark("states_together", together_values),
        Remark("weights_before_noise"),
    )
