"""Certified removal: one Newton step takes records out, and bounds the gradient that it leaves.

The weights are within residual / strength of the minimiser over the records that remain. The
residual starts as measured on the weights that training left. What each method costs and leaves:

| method | reads of the data | the residual afterwards |
|---|---|---|
| ``remove`` | none, O(d^2) for each record | what it was, plus a bound on what the step adds |
| ``polish`` | a few of O(n d) | measured; little more than rounding, if it converges |
| ``refresh`` | a few of O(n d^2) | as after ``polish``, from any weights |

Proofs: docs/proofs/removal.md of the bounds, docs/proofs/masking.md of what may be promised.
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

MAX_REFINEMENTS = 4  # of the solution of one linear system
_MIN_WIDTH_PER_ROW = 8  # with more rows than width / 8, a new inverse is as cheap as Woodbury's


@dataclass
class BoundedMatrix:
    """A symmetric positive semidefinite matrix from which terms are subtracted, with error bounds.

    Attributes:
        matrix: [d, d] float64, as computed.
        error: bound on the Frobenius norm of matrix - exact matrix.
        size: bound on the Frobenius norm of both, now and after any removal.
    """

    matrix: np.ndarray
    error: float
    size: float

    @classmethod
    def from_matrix(cls, matrix: np.ndarray, error: float) -> "BoundedMatrix":
        """Return a matrix [d, d] as it was computed, with a bound on its error."""
        size = (float(np.linalg.norm(matrix)) + error) * COVER
        return cls(matrix, error, size)

    def remove(self, rows: np.ndarray, sum_error: float) -> None:
        """Subtract the sum of r r' over rows.

        Args:
            rows: [m, d].
            sum_error: bound on the error of the computed sum (Frobenius), for a sum in the blocks
                of ``training.objective.gram_rounding``.
        """
        # Lemma 9 of docs/proofs/removal.md
        blocks = [rows[block] for block in row_blocks(len(rows))]
        self.matrix = self.matrix - sum(block.T @ block for block in blocks)
        self.error = (self.error + sum_error + UNIT * self.size) * COVER
        self.size += self.error

    def multiply(self, vector: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the computed product with a vector [d], and a bound on its error (l2)."""
        # Lemma 10 of docs/proofs/removal.md
        relative_error = gamma_up(len(vector) + 2) * self.size + self.error
        product_error = relative_error * float(np.linalg.norm(vector)) * COVER
        return self.matrix @ vector, product_error

    def bound_norm(self, vector: np.ndarray) -> float:
        """Return an upper bound on sqrt(v'Kv), K the exact matrix and v a vector [d]."""
        product, product_error = self.multiply(vector)
        quadratic_form = float(vector @ product)
        inner_product_error = gamma_up(len(vector) + 2) * float(np.linalg.norm(product))
        form_error = float(np.linalg.norm(vector)) * (product_error + inner_product_error)
        return math.sqrt(max(0.0, quadratic_form) + form_error * COVER) * COVER


@dataclass
class Factor:
    """A Hessian with an approximate inverse, by which systems are solved.

    Attributes:
        hessian: the Hessian H with its error bounds.
        inverse: [d, d] P, an approximate inverse; no bound depends on how close it is. None: it is
            computed when it is needed.
        inversions: how often P was computed from the matrix.
    """

    hessian: BoundedMatrix
    inverse: np.ndarray | None = None
    inversions: int = 0

    def remove(self, rows: np.ndarray, sum_error: float) -> None:
        """Subtract the sum of r r' over rows [m, d] from the Hessian, and update its inverse.

        Args:
            rows: [m, d].
            sum_error: as for ``BoundedMatrix.remove``.
        """
        self.hessian.remove(rows, sum_error)
        if self.inverse is None or len(rows) * _MIN_WIDTH_PER_ROW > rows.shape[1]:
            self.inverse = None
            return
        # Woodbury's formula
        inverse_times_rows = self.inverse @ rows.T
        try:
            inner = cho_factor(np.eye(len(rows)) - rows @ inverse_times_rows, check_finite=False)
        except LinAlgError:  # P is no longer close to the inverse of a positive definite matrix
            self.inverse = None
            return
        solved_rows = cho_solve(inner, inverse_times_rows.T, check_finite=False)
        self.inverse = self.inverse + inverse_times_rows @ solved_rows

    def solve(self, force: np.ndarray) -> tuple[np.ndarray, float]:
        """Solve H v = force approximately.

        The solution is refined until most of its error is rounding.

        Args:
            force: [d].

        Returns:
            v [d], and a bound on |H v - force| for the exact H.

        Raises:
            UnsoundError: the matrix is not positive definite in floating point.
        """
        solution, computed_error, rounding = self._refined_solution(force)
        if computed_error > rounding:
            self.inverse = None  # it has drifted too far from the matrix
            solution, computed_error, rounding = self._refined_solution(force)
        return solution, (computed_error + rounding) * COVER

    def _refined_solution(self, force: np.ndarray) -> tuple[np.ndarray, float, float]:
        """Solve H v = force by iterative refinement with the inverse at hand.

        Returns:
            v [d]; |H v - force| as computed; and what rounding and the matrix's own error may add.
        """
        if self.inverse is None:
            self.inverse = _invert(self.hessian.matrix)
            self.inversions += 1
        force_norm = float(np.linalg.norm(force))
        solution = np.zeros_like(force)
        remainder = force
        error = math.inf
        rounding = 0.0
        for _ in range(MAX_REFINEMENTS):
            refined = solution + self.inverse @ remainder
            product, product_error = self.hessian.multiply(refined)
            remainder = force - product
            refined_error = float(np.linalg.norm(remainder)) * COVER
            if not refined_error < error / 2:  # nor where it is NaN
                break
            solution = refined
            error = refined_error
            rounding = (product_error + UNIT * (refined_error + force_norm)) * COVER
            if error <= rounding:
                break
        return solution, error, rounding


def _invert(matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a positive definite matrix [d, d], by Cholesky's decomposition.

    Raises:
        UnsoundError: the matrix is not positive definite in floating point.
    """
    try:
        factor = cho_factor(matrix, check_finite=False)
        inverse: np.ndarray = cho_solve(factor, np.eye(len(matrix)), check_finite=False)
    except LinAlgError:
        raise UnsoundError(
            "training.weight_decay is too small for this data, because the Hessian is not "
            "positive definite in floating point: give a larger one"
        ) from None
    return inverse


MAX_POLISHING_STEPS = 12  # each of which halves the residual or is the last
GOAL_DIVISOR = 64  # whoever reads the data reduces the residual to 1/64 of what is allowed
MAX_REFRESHES = 30  # iterations of Newton's method, the last few of which square the error


@dataclass(frozen=True)
class NewtonStep:
    """The bounds of one step, rounded up.

    Attributes:
        before: bound on the residual before the step.
        after: bound on the residual after it.
        solve_error: bound on |H0 v - force|: the linear system is not solved exactly.
        curvature_error: bound on |(A - H0) v|: the loss is not quadratic, and the Hessian was taken
            at other weights.
        fresh_curvature_error: the part of ``curvature_error`` that a Hessian at the current weights
            would leave; half of what 003's corollary has.
        length: |v|, over all outputs.
    """

    before: float
    after: float
    solve_error: float
    curvature_error: float
    fresh_curvature_error: float
    length: float


@dataclass
class RemovableHead:
    """A minimiser from which records are removed in place; ``copy`` it to be able to undo a step.

    Attributes:
        objective: the loss and the strength.
        weight: w, [J, d].
        tilt: b, [J, d], the linear term of the objective.
        residual: bound on the norm of the gradient at w, l2 over all outputs.
        reference: w0, [J, d], the weights at which the Hessian was taken.
        factors: the Hessian at w0 over the records that remain, one for each output; of least
            squares one for all outputs.
        gram: K = X'X over these records.
        norm: bound on the spectral norm of X; removals never increase it.
        count: how many records remain.
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
    def from_data(
        cls,
        objective: Objective,
        weight: np.ndarray,
        tilt: np.ndarray,
        features: np.ndarray,
        targets: np.ndarray,
    ) -> "RemovableHead":
        """Return a head with any weights, its matrices formed and its residual measured on data.

        Arguments are those of ``Objective.gradient``.

        Raises:
            UnsoundError: a record of norm above 1, rounding included.
        """
        gradient = objective.gradient(weight, features, targets, tilt)
        head = cls(objective, weight, tilt, gradient.norm_bound)
        head.form_matrices(features)
        return head

    @classmethod
    def from_state(cls, objective: Objective, state: RemovalState) -> "RemovableHead":
        """Return the head of a state.

        The state's matrices were formed over its records, as training and ``form_matrices`` do.
        """
        head = cls(objective, state.weight, state.tilt, state.residual)
        head._set_matrices(state.reference, state.hessian, state.gram, state.norm, state.count)
        return head

    def state(self, before: RemovalState, served: np.ndarray, allowed: float) -> RemovalState:
        """Return what later removals start from, after ``form_matrices``.

        Args:
            before: the state before the removal, whose number of removed records is continued.
            served: [J, d], the weights that answer queries from now on.
            allowed: public bound on the residual.

        Raises:
            UnsoundError: the residual exceeds ``allowed``.
        """
        return RemovalState(
            weight=self.weight,
            tilt=self.tilt,
            served=served,
            reference=self.reference,
            hessian=np.stack([factor.hessian.matrix for factor in self.factors]),
            gram=self.gram.matrix,
            norm=self.norm,
            residual=self.residual,
            allowed=allowed,
            count=self.count,
            removed=before.removed + before.count - self.count,
        )

    def copy(self) -> "RemovableHead":
        """Return a copy that can be changed on its own."""
        other = copy.copy(self)
        # Arrays are shared, because methods replace them and never write into them.
        other.factors = [
            replace(factor, hessian=replace(factor.hessian)) for factor in self.factors
        ]
        other.gram = replace(self.gram)
        return other

    @property
    def distance(self) -> float:
        """Bound on |w - w*|, w* the exact minimiser over the records that remain."""
        return self.residual / self.objective.strength * COVER

    def remove(
        self, features: np.ndarray, targets: np.ndarray, remaining: np.ndarray | None = None
    ) -> NewtonStep:
        """Remove records by one Newton step.

        Args:
            features: [m, d] of the records to remove.
            targets: [m, J] of these records.
            remaining: [n - m, d], features of all other records: the matrices are formed anew over
                them at the current weights. None: the part of the removed records is subtracted
                from the matrices, and no other record is read.

        Raises:
            ValueError: more records than there are, or another number of remaining ones.
            UnsoundError: a removed or remaining record has a norm above 1; the Hessian is not
                positive definite in floating point; or a bound is not finite. The residual is then
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
        force = self.objective.loss_gradient(self.weight, removed, targets)
        before = self.residual
        # Nothing is known of the remaining records until the step has been taken.
        self.residual = math.inf
        if remaining is None:
            self._downdate(removed)
        else:
            self.form_matrices(remaining)
        return self._step(force, before)

    def polish(self, features: np.ndarray, targets: np.ndarray, goal: float = 0.0) -> bool:
        """Measure the residual, and reduce it by Newton steps with the matrices at hand.

        Args:
            features: [n, d] of all records that remain.
            targets: [n, J] of these records.
            goal: the residual to reach; 0: the least that rounding lets be known.

        Returns:
            True if the goal was reached; False if the steps ceased to help before.

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
            self.weight, _ = self._newton_move(-gradient.value)
        self.weight = best_weight
        return is_reached

    def refresh(self, features: np.ndarray, targets: np.ndarray, goal: float = 0.0) -> None:
        """Minimise by Newton's method: form the matrices and ``polish``, until that ceases to help.

        Args:
            features: [n, d] of any records, which are the head's records from now on.
            targets: [n, J] of these records.
            goal: as for ``polish``.
        """
        before = math.inf
        for _ in range(MAX_REFRESHES):
            self.form_matrices(features)
            if self.polish(features, targets, goal) or not self.residual < before / 2:
                break
            before = self.residual

    def form_matrices(self, features: np.ndarray) -> None:
        """Form the matrices anew over records [n, d], at the current weights.

        Afterwards nothing in the head depends on earlier weights or on removed records, apart from
        the weights themselves and the residual.

        Raises:
            UnsoundError: a record of norm above 1, rounding included.
        """
        check_norms(features)
        count = len(features)
        gram_matrix = gram(features)
        norm = spectral_norm(gram_matrix, count)
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
        """Set matrices that were formed over ``count`` records.

        Args:
            reference: [J, d] the weights at which the Hessian was taken.
            hessian: [J or 1, d, d].
            gram_matrix: [d, d].
            norm: bound on the spectral norm of the features as computed.
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
        """Subtract the part of removed records [m, d] from the matrices."""
        count = len(features)
        hessian_error = self.objective.hessian_rounding(self.reference, count)
        curvatures = self.objective.curvatures(chunked_logits(features, self.reference))
        roots = np.sqrt(curvatures)
        for output, factor in enumerate(self.factors):
            scaled_rows = roots[:, output : output + 1] * features
            factor.remove(scaled_rows, hessian_error)
        self.gram.remove(features, gram_rounding(count))
        self.count -= count

    def _step(self, force: ComputedGradient, before: float) -> NewtonStep:
        """Move by v, where H0 v = force nearly, and bound the residual that this leaves.

        Args:
            force: the gradients of the removed records' losses at the current weights.
            before: bound on the residual before the step.

        Raises:
            UnsoundError: the bound is not finite.
        """
        moved, bounds = self._newton_move(force.value)
        # The bounds of the outputs add in squares.
        solved, curved, fresh, length = (
            float(size) * COVER for size in np.linalg.norm(bounds, axis=1)
        )
        # Lemma 7 of docs/proofs/removal.md; residuals of removals in a row add:
        # Lemma 13 of docs/proofs/removal.md
        after = (before + force.error + solved + curved) * COVER + SQUARE_UNDERFLOW_ALLOWANCE
        if not math.isfinite(after):
            raise UnsoundError(
                "a bound on the residual is not finite, so nothing was removed: train again"
            )
        self.weight = moved
        self.residual = after
        return NewtonStep(before, after, solved + force.error, curved, fresh, length)

    def _newton_move(self, force: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights after a Newton step, and bounds on its parts.

        Args:
            force: [J, d], the right-hand side of H0 v = force.

        Returns:
            w + v [J, d], and [4, J] the attributes ``solve_error``, ``curvature_error``,
            ``fresh_curvature_error`` and ``length`` of ``NewtonStep`` for each output.
        """
        bounds = np.zeros((4, len(force)))
        moved = np.array(self.weight)
        # Lemma 8 of docs/proofs/removal.md
        lever = self.objective.curvature_lipschitz / 2 * self.norm
        largest_curvature = self.objective.smoothness * self.norm**2 + self.objective.strength
        for output, output_force in enumerate(force):
            factor = self.factors[output if len(self.factors) > 1 else 0]
            step, solve_error = factor.solve(output_force)
            moved[output] += step
            length = _length(step)
            moved_length = _length(moved[output])
            # w + v is that far from its rounding: Lemma 11 of docs/proofs/removal.md
            rounding = UNIT * moved_length
            drift_before = _length(self.weight[output] - self.reference[output])
            drift_after = _length(moved[output] - self.reference[output])
            drift = drift_before + drift_after + rounding
            # |X v|, by the smaller of two bounds
            image_length = min(self.gram.bound_norm(step), self.norm * length)
            curvature_error = lever * image_length * drift
            fresh_curvature_error = lever * image_length * length
            solve_error += largest_curvature * UNIT * moved_length
            bounds[:, output] = (solve_error, curvature_error, fresh_curvature_error, length)
        return moved, bounds


def reduce_residual(
    head: RemovableHead, features: np.ndarray, targets: np.ndarray, allowed: float
) -> tuple[str, ...]:
    """Reduce a head's residual to what is allowed, by the cheapest methods that suffice.

    Args:
        head: changed in place.
        features: [n, d] of all records that remain.
        targets: [n, J] of these records.
        allowed: the largest residual that is allowed.

    Returns:
        The methods that were used: none, polish, refresh, or both. The residual may still exceed
        what is allowed; then nothing but training anew, with new noise, helps.
    """
    methods = []
    for name, reduce in (("polish", head.polish), ("refresh", head.refresh)):
        if head.residual > allowed:
            reduce(features, targets, allowed / GOAL_DIVISOR)
            methods.append(name)
    return tuple(methods)


def worst_case(
    curvature_lipschitz: float,
    removed: int,
    remaining: int,
    strength: float,
    derivative_bound: float = 1.0,
    outputs: int = 1,
) -> float:
    """Return the most that a step at w = w0 adds to the residual on any data, without rounding.

    It is gamma sqrt(J) n' (m C / s)^2, because outputs are separate problems whose errors add in
    squares. The bound of 003 (theorems 1 and 4) is 4 times as large: its regulariser depends on the
    number of records, which doubles the force; and its gamma is 1/4.

    Args:
        curvature_lipschitz: gamma, the Lipschitz constant of the loss's second derivative.
        removed: m, the number of removed records.
        remaining: n', the number of records that remain.
        strength: s.
        derivative_bound: C, a bound on the loss's first derivative.
        outputs: J.
    """
    # Lemma 12 of docs/proofs/removal.md
    distance = removed * derivative_bound / strength
    return curvature_lipschitz * math.sqrt(outputs) * remaining * distance**2


def _length(vector: np.ndarray) -> float:
    """Return an upper bound on the l2 norm of a vector [d]."""
    return float(np.linalg.norm(vector)) * COVER


STATES = 10  # served states for which it is said how close they are all together
DEPENDENT = not_held("residual_depends_on_noise")
FLOATING = not_held("noise_in_floating_point")
EXACT_NOISE = proved("noise_exact")
DRAWN_ANEW = proved("noise_drawn_anew")
SIMULATION = not_held("noise_from_recorded_seed")


def joint_epsilon(eps: float, delta: float, states: int) -> float:
    """Return the eps, rounded up, at which several served states together are (eps, delta)-close.

    Args:
        eps: that of each state.
        delta: that of each state, and of all together.
        states: the number of served states.
    """
    # Lemma 3 of docs/proofs/masking.md
    return gaussian_epsilon(math.sqrt(states) * gaussian_mu(eps, delta), delta)


def promise_after_removal(config: RemovalConfig, residual: float, strength: float) -> Promise:
    """Return what holds of a state after a removal by Newton steps.

    Args:
        config: the settings that the head was trained with.
        residual: bound on the norm of the gradient, within the removal budget.
        strength: the strength of the objective.
    """
    distance = next_up(residual / strength)
    near_minimiser = proved(
        "near_minimiser_before_noise", distance=distance, gradient=residual, strength=strength
    )
    # Lemma 4 of docs/proofs/masking.md
    within = next_up((residual + config.tolerance) / strength * COVER)
    if config.masking == "none":
        retrained_distance = next_up(config.tolerance / strength)
        terms = (
            Remark("near_retrained", {"within": within}),
            Remark("near_minimiser", {"distance": distance, "retrained": retrained_distance}),
        )
        return Promise(
            method="newton",
            exact=True,
            eps=0.0,
            delta=0.0,
            adaptive=True,
            terms=terms,
            assumptions=(near_minimiser,),
            within=within,
        )
    is_simulated = config.seed is not None
    if config.masking == "loss":
        eps = config.eps
        close_code = "close_as_published"
        other_terms = _TERMS_OF_LOSS_NOISE
        facts: tuple[Fact, ...] = (near_minimiser, DEPENDENT, FLOATING)
        if is_simulated:
            facts = (*facts, SIMULATION)
    else:
        eps = _output_noise_epsilon(config, within)
        close_code = "close_without_seed" if is_simulated else "close"
        other_terms = _output_noise_terms(config)
        retrained = proved("retraining_near_minimiser", distance=config.tolerance / strength)
        noise_facts = (SIMULATION,) if is_simulated else (DRAWN_ANEW, EXACT_NOISE)
        facts = (near_minimiser, retrained, *noise_facts)
    close = Remark(close_code, {"eps": eps, "delta": config.delta})
    return Promise(
        method="newton",
        exact=False,
        eps=eps,
        delta=config.delta,
        adaptive=config.masking == "output",
        terms=(close, *other_terms),
        assumptions=facts,
    )


def _output_noise_epsilon(config: RemovalConfig, within: float) -> float:
    """Return the least eps at which noise on the served weights hides a distance of ``within``.

    It is 0 where delta alone suffices, and never above the eps of the settings.
    """
    # Lemma 2 of docs/proofs/masking.md
    mu = within / config.sigma * COVER
    if gaussian_delta(0.0, mu) <= config.delta:
        return 0.0
    return min(config.eps, gaussian_epsilon(mu, config.delta))


_TERMS_OF_LOSS_NOISE: tuple[Remark, ...] = (Remark("proof_has_gap"), Remark("noise_of_training"))


def _output_noise_terms(config: RemovalConfig) -> tuple[Remark, ...]:
    """Return what else is promised where the noise is on the served weights."""
    eps_of_states = joint_epsilon(config.eps, config.delta, STATES)
    states_together = {"states": STATES, "eps": eps_of_states, "delta": config.delta}
    return (
        Remark("noise_after_request"),
        Remark("at_most", {"eps": config.eps, "delta": config.delta}),
        Remark("states_together", states_together),
        Remark("weights_before_noise"),
    )
