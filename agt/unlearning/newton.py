"""Certified removal of records by Newton steps, with a bound on the gradient that remains.

The residual is the norm of the objective's gradient, l2 over all outputs. The distance of the
weights from the minimiser over the remaining records is at most residual / strength. Training
measures the first residual. The cost of each method, and the residual after it:

| method | reads of the data | the residual afterwards |
|---|---|---|
| ``remove`` | none, O(d^2) for each record | as before, plus a bound on what the step adds |
| ``repeat_newton_steps`` | a few of O(n d) | measured; little more than rounding, if it converges |
| ``minimise_again`` | a few of O(n d^2) | as after ``repeat_newton_steps``, from any weights |

Proofs: docs/proofs/removal.md.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from agt.errors import UnsoundError
from agt.numeric import COVER, UNIT, check_norms
from agt.training.objective import (
    SQUARE_UNDERFLOW_ALLOWANCE,
    ComputedGradient,
    Objective,
    chunked_logits,
    gram,
    gram_rounding,
)
from agt.training.removal import RemovalState, spectral_norm_bound
from agt.unlearning.bounded_matrix import BoundedMatrix, Factor

MAX_POLISHING_STEPS = 12  # each step halves the residual or is the last
# A pass over the data reduces the residual to 1/64 of what is allowed, so that later removals need
# no pass.
GOAL_DIVISOR = 64
# Codes of the methods of removal in metrics.json and in remarks.
NEWTON_STEP = "step"  # one Newton step for the removed records
REPEATED_STEPS = "polish"  # Newton steps with the stored Hessian, each measuring the residual
MINIMISATION = "refresh"  # minimising over the remaining records, with new Hessians
MAX_REFRESHES = 30  # iterations of Newton's method; each of the last few squares the error


@dataclass(frozen=True)
class NewtonStep:
    """Upper bounds on the effect of one Newton step that removes records.

    The step v approximately solves H0 v = f, where H0 is the stored Hessian and f the sum of the
    removed records' loss gradients. The residual is the norm of the objective's gradient.

    Attributes:
        before: bound on the residual before the step.
        after: bound on the residual after the step.
        solve_error: bound on |H0 v - f|, which is not 0 because the linear system is solved
            approximately.
        curvature_error: bound on |(A - H0) v|, where A is the Hessian averaged along the step. It
            is not 0 because the loss is not quadratic, and H0 was computed at other weights.
        fresh_curvature_error: the ``curvature_error`` that would remain if H0 were computed at the
            current weights; half of the bound of Guo et al. (2020, corollaries 1, 2).
        length: |v|, l2 over all outputs.
    """

    before: float
    after: float
    solve_error: float
    curvature_error: float
    fresh_curvature_error: float
    length: float


@dataclass(frozen=True)
class _NewtonMove:
    """The weights after one Newton step, and upper bounds for each output.

    The step v approximately solves H0 v = f, where H0 is the stored Hessian.

    Attributes:
        weight: [J, d] w + v, the weights after the step.
        solve_error: [J] bounds on |H0 v - f|, with the rounding of w + v.
        curvature_error: [J] bounds on |(A - H0) v|, where A is the Hessian averaged along the step.
        fresh_curvature_error: [J] the bounds on |(A - H0) v| that would hold if H0 were computed at
            the weights before the step.
        length: [J] bounds on |v|.
    """

    weight: np.ndarray
    solve_error: np.ndarray
    curvature_error: np.ndarray
    fresh_curvature_error: np.ndarray
    length: np.ndarray


@dataclass
class RemovableHead:
    """A trained linear head from which records are removed in place, with a bound on its gradient.

    A removal changes the head. To be able to undo it, copy the head before (``copy.deepcopy``).

    Attributes:
        objective: the loss and the strength of the regulariser.
        weight: [J, d] w.
        tilt: [J, d] the linear term b of the objective.
        residual: bound on the l2 norm of the objective's gradient at w over the remaining records,
            over all outputs together.
        reference: [J, d] w0, the weights at which the Hessian was computed.
        factors: the Hessian at w0 over the remaining records, one for each output; for least
            squares one for all outputs, which share it.
        gram: X'X for the features X of the remaining records.
        norm: bound on the spectral norm of X. Removals never increase it.
        count: the number of remaining records.
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
    def from_state(cls, objective: Objective, state: RemovalState) -> "RemovableHead":
        """Return a head that can continue to remove records, from the state that was stored for it.

        Args:
            objective: the loss and the strength that the state was made with.
            state: a state whose matrices were computed over its records, as
                ``training.removal.minimise`` and ``form_matrices`` do.
        """
        head = cls(objective, state.weight, state.tilt, state.residual)
        head._set_matrices(state.reference, state.hessian, state.gram, state.norm, state.count)
        return head

    def state(self, before: RemovalState, noisy_weight: np.ndarray, allowed: float) -> RemovalState:
        """Return the state that later removals start from, to be stored.

        Call ``form_matrices`` before: the state does not hold the matrices' error bounds, and
        ``from_state`` takes them as computed over the remaining records.

        Args:
            before: the state before the removal, whose number of removed records is continued.
            noisy_weight: [J, d] the weights that answer queries from now on.
            allowed: public bound on the residual (the norm of the objective's gradient).

        Raises:
            UnsoundError: the residual exceeds ``allowed``.
        """
        return RemovalState(
            weight=self.weight,
            tilt=self.tilt,
            noisy_weight=noisy_weight,
            reference=self.reference,
            hessian=np.stack([factor.hessian.matrix for factor in self.factors]),
            gram=self.gram.matrix,
            norm=self.norm,
            residual=self.residual,
            allowed=allowed,
            count=self.count,
            removed=before.removed + before.count - self.count,
        )

    @property
    def distance(self) -> float:
        """A bound on |w - w*|, where w* is the exact minimiser over the remaining records."""
        # COVER (slightly above 1) covers the roundings of this bound itself.
        return self.residual / self.objective.strength * COVER

    def remove(
        self, features: np.ndarray, targets: np.ndarray, remaining: np.ndarray | None = None
    ) -> NewtonStep:
        """Remove records by one Newton step, in place.

        ``residual``, the bound on the gradient's norm over the remaining records, becomes ``after``
        of the returned step.

        Args:
            features: [m, d] float32 or float64, the records to remove.
            targets: [m, J] as ``Objective.targets`` returns them, of the records to remove.
            remaining: [n - m, d] the features of all other records, over which the matrices are
                computed again at the current weights. None: the removed records' terms are
                subtracted from the matrices, and no other record is read.

        Returns:
            Bounds on the effect of the step.

        Raises:
            ValueError: more records than there are, or another number of remaining records.
            UnsoundError: a removed or remaining record has a norm above 1, the Hessian is not
                positive definite in floating point, or a bound is not finite. ``residual`` is then
                infinite until it is measured.
        """
        remaining_count = self.count - len(features)
        if remaining_count < 0 or (remaining is not None and len(remaining) != remaining_count):
            raise ValueError(
                f"the records to remove ({len(features)}) and the records that remain must "
                f"together be {self.count}"
            )
        removed = np.ascontiguousarray(features, dtype=np.float64)
        check_norms(removed)
        removed_gradient = self.objective.loss_gradient(self.weight, removed, targets)
        before = self.residual
        # No bound holds for the remaining records until the step has been taken. If an error is
        # raised before, the residual stays infinite.
        self.residual = math.inf
        if remaining is None:
            self._downdate(removed)
        else:
            self.form_matrices(remaining)
        return self._step(removed_gradient, before)

    def repeat_newton_steps(
        self, features: np.ndarray, targets: np.ndarray, goal: float = 0.0
    ) -> bool:
        """Measure the residual over the remaining records, and reduce it by Newton steps.

        The stored Hessian is used for all steps. The weights end at the smallest residual that was
        measured.

        Args:
            features: [n, d] of all remaining records.
            targets: [n, J] as ``Objective.targets`` returns them, of these records.
            goal: the residual to reach; 0: the smallest one that rounding allows to verify.

        Returns:
            True if the goal was reached; False if a step no longer halved the residual before.

        Raises:
            ValueError: another number of records than remain.
        """
        if len(features) != self.count:
            raise ValueError(
                f"{len(features)} records were given, but the state expects the {self.count} "
                "that remain"
            )
        self.residual = math.inf
        best_weight = self.weight
        for _ in range(MAX_POLISHING_STEPS):
            gradient = self.objective.gradient(self.weight, features, targets, self.tilt)
            was_halved = gradient.norm_bound <= self.residual / 2
            if gradient.norm_bound < self.residual:
                self.residual = gradient.norm_bound
                best_weight = self.weight
            is_reached = self.residual <= max(goal, 2 * gradient.error)
            if is_reached or not was_halved:
                break
            self.weight = self._newton_move(-gradient.value).weight
        self.weight = best_weight
        return is_reached

    def minimise_again(self, features: np.ndarray, targets: np.ndarray, goal: float = 0.0) -> None:
        """Minimise the objective over records by Newton's method, from any weights.

        It computes the matrices and calls ``repeat_newton_steps`` in turns, until the goal is
        reached or the residual is no longer halved.

        Args:
            features: [n, d] of any records. They are the head's records from now on.
            targets: [n, J] as ``Objective.targets`` returns them, of these records.
            goal: the residual to reach; 0: the smallest one that rounding allows to verify.
        """
        before = math.inf
        for _ in range(MAX_REFRESHES):
            self.form_matrices(features)
            if self.repeat_newton_steps(features, targets, goal) or not self.residual < before / 2:
                break
            before = self.residual

    def form_matrices(self, features: np.ndarray) -> None:
        """Compute the Hessian and the Gram matrix over records, at the current weights.

        Afterwards only ``weight`` and ``residual`` still depend on earlier weights and removed
        records.

        Args:
            features: [n, d] of all remaining records.

        Raises:
            UnsoundError: a record has a norm above 1, rounding included.
        """
        check_norms(features)
        count = len(features)
        gram_matrix = gram(features)
        norm = spectral_norm_bound(gram_matrix, count)
        hessian = self.objective.hessian(self.weight, features)
        self._set_matrices(self.weight, hessian, gram_matrix, norm, count)

    def _set_matrices(
        self,
        reference: np.ndarray,
        hessian: np.ndarray,
        gram_matrix: np.ndarray,
        norm: float,
        count: int,
    ) -> None:
        """Set matrices that were computed over ``count`` records, with bounds on their rounding.

        Args:
            reference: [J, d] the weights at which the Hessian was computed.
            hessian: [J, d, d], or [1, d, d] if the outputs share it.
            gram_matrix: [d, d] X'X.
            norm: bound on the spectral norm of the features X.
            count: the number of records.
        """
        hessian_error = self.objective.hessian_rounding(reference, count)
        self.reference = reference
        self.count = count
        self.factors = [
            Factor(BoundedMatrix.from_matrix(matrix, hessian_error)) for matrix in hessian
        ]
        self.gram = BoundedMatrix.from_matrix(gram_matrix, gram_rounding(count))
        self.norm = norm * COVER

    def _downdate(self, features: np.ndarray) -> None:
        """Subtract the terms of removed records from the Hessian, the Gram matrix and the count.

        Args:
            features: [m, d] float64, of the removed records, whose norms have been checked.
        """
        count = len(features)
        hessian_error = self.objective.hessian_rounding(self.reference, count)
        curvatures = self.objective.curvatures(chunked_logits(features, self.reference))
        # A record x adds l'' x x' to the Hessian, which is the outer product of sqrt(l'') x.
        roots = np.sqrt(curvatures)
        for output, factor in enumerate(self.factors):
            scaled_rows = roots[:, output : output + 1] * features
            factor.remove(scaled_rows, hessian_error)
        self.gram.remove(features, gram_rounding(count))
        self.count -= count

    def _step(self, removed_gradient: ComputedGradient, before: float) -> NewtonStep:
        """Change the weights by one Newton step for removed records, and bound the new residual.

        ``weight`` and ``residual`` are changed.

        Args:
            removed_gradient: the sum of the removed records' loss gradients at the current weights.
            before: bound on the residual before the step.

        Raises:
            UnsoundError: the bound is not finite. The weights are then unchanged.
        """
        move = self._newton_move(removed_gradient.value)
        solve_error = _combine_outputs(move.solve_error)
        curvature_error = _combine_outputs(move.curvature_error)
        # Lemma 7 of docs/proofs/removal.md: the residual after the step is at most the one before
        # plus |H0 v - f| plus |(A - H0) v|. Lemma 13 of docs/proofs/removal.md: so residuals of
        # several removals add up.
        residual_sum = before + removed_gradient.error + solve_error + curvature_error
        after = residual_sum * COVER + SQUARE_UNDERFLOW_ALLOWANCE
        if not math.isfinite(after):
            raise UnsoundError(
                "the bound on the remaining gradient is not finite, so nothing was removed: "
                "train again"
            )
        self.weight = move.weight
        self.residual = after
        return NewtonStep(
            before=before,
            after=after,
            solve_error=solve_error + removed_gradient.error,
            curvature_error=curvature_error,
            fresh_curvature_error=_combine_outputs(move.fresh_curvature_error),
            length=_combine_outputs(move.length),
        )

    def _newton_move(self, right_side: np.ndarray) -> _NewtonMove:
        """Return the weights after a Newton step, and bounds on the parts of its error.

        The step v, from the weights w to w + v, approximately solves H0 v = f. H0 is the stored
        Hessian, which was computed at the weights w0. The head's weights are not changed.

        Args:
            right_side: [J, d] f.

        Raises:
            UnsoundError: the Hessian is not positive definite in floating point.
        """
        outputs = len(right_side)
        weight = np.array(self.weight)
        solve_errors = np.zeros(outputs)
        curvature_errors = np.zeros(outputs)
        fresh_curvature_errors = np.zeros(outputs)
        lengths = np.zeros(outputs)
        # Lemma 8 of docs/proofs/removal.md: |(A - H0) v|, with A the Hessian averaged along the
        # step, is at most curvature_change times |X v| times the sum of the old and the new
        # weights' distances from w0 (``drift``). X are the features.
        curvature_change = self.objective.curvature_lipschitz / 2 * self.norm
        largest_curvature = self.objective.smoothness * self.norm**2 + self.objective.strength
        for output, right_side_of_output in enumerate(right_side):
            # A single factor is shared by all outputs.
            factor_index = output if len(self.factors) > 1 else 0
            factor = self.factors[factor_index]
            step, solve_error = factor.solve(right_side_of_output)
            weight[output] += step
            length = _bound_length(step)
            new_length = _bound_length(weight[output])
            # Lemma 11 of docs/proofs/removal.md: storing w + v rounds the weights by at most
            # UNIT |w + v|, which changes the gradient by at most the largest curvature times that.
            rounding = UNIT * new_length
            drift_before = _bound_length(self.weight[output] - self.reference[output])
            drift_after = _bound_length(weight[output] - self.reference[output])
            drift = drift_before + drift_after + rounding
            # The smaller of two bounds on |X v|.
            image_length = min(self.gram.bound_norm(step), self.norm * length)
            solve_errors[output] = solve_error + largest_curvature * UNIT * new_length
            curvature_errors[output] = curvature_change * image_length * drift
            fresh_curvature_errors[output] = curvature_change * image_length * length
            lengths[output] = length
        return _NewtonMove(weight, solve_errors, curvature_errors, fresh_curvature_errors, lengths)


def reduce_residual(
    head: RemovableHead, features: np.ndarray, targets: np.ndarray, allowed: float
) -> tuple[str, ...]:
    """Reduce a head's residual to at most ``allowed``, by the cheapest methods that suffice.

    Args:
        head: the head, which is changed in place.
        features: [n, d] of all remaining records.
        targets: [n, J] as ``Objective.targets`` returns them, of these records.
        allowed: the largest residual that is allowed.

    Returns:
        The codes of the methods that were used, in order: ``REPEATED_STEPS``, ``MINIMISATION``,
        both or none. The residual may still exceed ``allowed``; then only training again with new
        noise helps.
    """
    goal = allowed / GOAL_DIVISOR
    methods = []
    if head.residual > allowed:
        # The result is not needed, because ``head.residual`` says whether the goal was reached.
        head.repeat_newton_steps(features, targets, goal)
        methods.append(REPEATED_STEPS)
    if head.residual > allowed:
        head.minimise_again(features, targets, goal)
        methods.append(MINIMISATION)
    return tuple(methods)


def worst_step_increase(
    curvature_lipschitz: float,
    removed: int,
    remaining: int,
    strength: float,
    derivative_bound: float = 1.0,
    outputs: int = 1,
) -> float:
    """Return the largest amount that one Newton step can add to the residual, on any data.

    The residual is the norm of the objective's gradient. The amount is gamma sqrt(J) n' (m C /
    s)^2, for a Hessian at the current weights and without rounding. Outputs are separate problems,
    so their errors add in squares. The bound of Guo et al. (2020, theorems 1 and 4) is 4 times as
    large, because their regulariser depends on the number of records, which doubles the removed
    gradient. Their gamma is 1/4.

    Args:
        curvature_lipschitz: gamma, the Lipschitz constant of the loss's second derivative.
        removed: m, the number of removed records.
        remaining: n', the number of remaining records.
        strength: s, the factor of the regulariser.
        derivative_bound: C, a bound on the loss's absolute first derivative.
        outputs: J, the number of outputs.
    """
    # Lemma 12 of docs/proofs/removal.md: a step is at most m C / s long.
    distance = removed * derivative_bound / strength
    return curvature_lipschitz * math.sqrt(outputs) * remaining * distance**2


def _bound_length(vector: np.ndarray) -> float:
    """Return an upper bound on the l2 norm of a vector [d]."""
    # COVER (slightly above 1) covers the roundings of this bound itself.
    return float(np.linalg.norm(vector)) * COVER


def _combine_outputs(bounds: np.ndarray) -> float:
    """Return a bound on an l2 norm over all outputs, from bounds [J] on the norm of each output.

    Outputs are separate problems, so the squares of their norms add up.
    """
    # With an axis, NumPy adds the squares in a fixed order, and not in that of a BLAS library.
    return float(np.linalg.norm(bounds, axis=0)) * COVER
