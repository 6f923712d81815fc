"""The CPU kernel: the reference kernel's numbers, computed by functions that Numba compiles."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agt.bounds.interval import Interval, ReluGradient, ReluOutput
from agt.bounds.products import (
    PRODUCTS,
    Bounds,
    Products,
    add_bias,
    linear_corners,
    linear_nonnegative,
    linear_point,
    relu_backward,
)
from agt.data.arrays import aligned_empty
from agt.kernels import cpu_compiled
from agt.kernels.first_use import FirstUseChecks, NotUsableError
from agt.kernels.reference import EMPTY_SLOT, BoundSelection, ReferenceKernel
from agt.kernels.threads import run_jobs

# Inputs, or outputs, of a layer: fewer are not worth vectorising over. Only speed depends on it.
_FEWEST_VECTORISED = 16
_TILE_BYTES = 1 << 18  # a tile of the inputs stays in a core's second-level cache
_PRODUCT_BLOCK_RECORDS = 64  # records of one job of a thread

# Compiled function -> the cases of ``selftest.CASES`` that run it: it is used only if all of them
# give the reference kernel's numbers. A function that is not listed cannot be used.
CASES_OF = {
    cpu_compiled.sum_nominal: ("gradients of weights",),
    cpu_compiled.sum_over_outputs: (
        "gradients of biases",
        "gradient bounds of biases",
        "gradient bounds, narrow layer",
    ),
    cpu_compiled.sum_point: ("gradient bounds, wide layer",),
    cpu_compiled.sum_interval: (
        "gradient bounds, interval inputs",
        "gradient bounds, midpoint-radius inputs",
    ),
    cpu_compiled.sum_nonnegative: ("gradient bounds, nonnegative inputs",),
    cpu_compiled.select_extremes: (
        "selection, point x",
        "selection, interval x",
        "selection, interval x, midpoint-radius",
        "selection, capped",
        "selection of a bias",
    ),
    cpu_compiled.corner_product: ("corner product", "nonnegative product"),
    cpu_compiled.narrow_relu_backward: ("linear and relu backward",),
    cpu_compiled.point_affine: ("point product", "point affine"),
    cpu_compiled.relu_backward_in_place: ("relu backward",),
    cpu_compiled.widen_in_place: ("outward",),
}

RunJobs = Callable[..., list[Any]]
"""(compiled function, number of jobs, other arguments) -> what each of its calls returned."""


class CpuKernel(ReferenceKernel):
    """The kernel for CPUs: each method returns the numbers of ``ReferenceKernel``, bit for bit.

    Most methods choose one of several compiled functions. The choice changes the speed only.
    Bounds are in quanta (clip level / 2^30).

    Formal guarantees:
        - No number of a compiled function is returned before the function has passed its cases of
          the self-test in this process (``CASES_OF``). What cannot be compiled is left to the
          reference kernel.
    """

    name = "cpu"
    tests_functions_when_used = True

    def __init__(self, *, is_under_test: bool = False) -> None:
        """Start with no function tested.

        Args:
            is_under_test: True for the kernel that runs the self-tests of another one. It uses its
                functions without testing them.
        """
        self._checks: FirstUseChecks | None = None
        if not is_under_test:
            # The tests run a kernel of their own, which must not ask for tests again.
            self._checks = FirstUseChecks(CpuKernel(is_under_test=True), CASES_OF)

    def _require(self, function: Callable[..., Any]) -> None:
        """Return if a compiled function may be used, which is tested unless it was before.

        Raises:
            UnsoundError: the function gives other numbers than the reference kernel.
            NotUsableError: it cannot be compiled here.
        """
        if self._checks is not None:
            self._checks.require(function)

    def _run(self, function: Callable[..., Any], jobs: int, *arguments: object) -> list[Any]:
        """Return ``run_jobs`` of a compiled function that passed its self-test.

        Raises:
            UnsoundError: the function gives other numbers than the reference kernel.
            NotUsableError: it cannot be compiled here. No argument was changed.
        """
        self._require(function)
        return run_jobs(function, jobs, *arguments)

    def nominal_sum(self, output_gradient: Tensor, inputs: Tensor | None) -> Tensor:
        """Return the sum over records of their clipped gradients, in quanta (clip level / 2^30).

        Args:
            output_gradient: [n, out] gradients of the loss in the layer's output, in quanta (units
                of clip level / 2^30).
            inputs: [n, in] the layer's inputs; None for a bias.

        Returns:
            int64 [out, in], or [out] for a bias.
        """
        if inputs is None:
            # A bias needs no multiplication, so the reference kernel is fast enough.
            return super().nominal_sum(output_gradient, None)
        outputs = output_gradient.shape[1]
        total = torch.zeros((outputs, inputs.shape[1]), dtype=torch.int64)
        try:
            self._run(
                cpu_compiled.sum_nominal,
                outputs,
                _array(output_gradient),
                _array(inputs),
                _inf_norms(inputs),
                _tile_records(inputs.shape[1]),
                total.numpy(),
            )
        except NotUsableError:
            return super().nominal_sum(output_gradient, inputs)
        return total

    def bound_sum(
        self, output_gradient: Interval, inputs: Interval | None, product: str
    ) -> tuple[Tensor, Tensor]:
        """Return the sums over records of the lower and of the upper bounds on their gradients.

        Args:
            output_gradient: [K, n, out] bounds on the gradients of the loss in the layer's output,
                for K numbers of edits, in quanta (units of clip level / 2^30).
            inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.
            product: how two intervals are multiplied: "exact" (the four corners) or "rump"
                (midpoint and radius, which is wider).

        Returns:
            (sum of lower bounds, sum of upper bounds) in quanta (clip level / 2^30), both int64
            [K, out, in], or [K, out] for a bias.
        """
        try:
            return self._compiled_bound_sum(output_gradient, inputs, product)
        except NotUsableError:
            return super().bound_sum(output_gradient, inputs, product)

    def _compiled_bound_sum(
        self, output_gradient: Interval, inputs: Interval | None, product: str
    ) -> tuple[Tensor, Tensor]:
        """Return ``bound_sum`` by the compiled function that is the fastest for the inputs.

        Raises:
            NotUsableError: that function cannot be compiled here.
        """
        if inputs is None:
            # A bias is the weight of an input that is always 1.
            ones = np.ones((output_gradient.shape[1], 1))
            lower, upper = self._sum_over_outputs(output_gradient, ones)
            return lower[..., 0], upper[..., 0]
        # The innermost loop runs along the longer side of the weight matrix, if that pays. The two
        # branches return the same numbers.
        outputs = output_gradient.shape[2]
        is_narrow = inputs.shape[2] < min(_FEWEST_VECTORISED, outputs)
        if inputs.is_point and is_narrow:
            return self._sum_over_outputs(output_gradient, _array(inputs.lower[0]))
        return self._sum_over_inputs(output_gradient, inputs, product == "rump")

    def _sum_over_outputs(
        self, output_gradient: Interval, inputs: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of bounds for known inputs (points), vectorised over outputs.

        Args:
            output_gradient: [K, n, out] bounds, in quanta.
            inputs: [n, in] float64, the layer's inputs; few, so that the sums stay in the cache.

        Returns:
            (sum of lower bounds, sum of upper bounds), both int64 [K, out, in].
        """
        ks, _, outputs = output_gradient.shape
        width = inputs.shape[1]
        low = torch.zeros((ks, width, outputs), dtype=torch.int64)
        high = torch.zeros_like(low)
        self._run(
            cpu_compiled.sum_over_outputs,
            ks * width,
            _array(output_gradient.lower),
            _array(output_gradient.upper),
            inputs,
            low.numpy(),
            high.numpy(),
        )
        return low.mT, high.mT

    def _sum_over_inputs(
        self, output_gradient: Interval, inputs: Interval, rump: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of bounds on gradients in a weight, vectorised over inputs.

        Args:
            output_gradient: [K, n, out] bounds, in quanta.
            inputs: [K or 1, n, in] bounds on the layer's inputs.
            rump: True to multiply intervals by midpoint and radius, which gives wider bounds; False
                for the exact product. It makes no difference for inputs that are points.

        Returns:
            (sum of lower bounds, sum of upper bounds), both int64 [K, out, in].
        """
        ks, _, outputs = output_gradient.shape
        width = inputs.shape[2]
        rows = ks * outputs
        low = torch.zeros((rows, width), dtype=torch.int64)
        high = torch.zeros_like(low)
        function: Callable[..., Any]
        arguments: tuple[Any, ...]  # of the function, between the gradients and the results
        if inputs.is_point:
            point = inputs.lower[0]
            function = cpu_compiled.sum_point
            arguments = (_array(point), _inf_norms(point), _tile_records(width))
        elif rump or outputs < _FEWEST_VECTORISED or float(inputs.lower.min()) < 0:
            # ``rump`` changes the result. Without it this function and the next one return the same
            # numbers, but the next one needs inputs >= 0, and pays only for many outputs.
            function = cpu_compiled.sum_interval
            bounds = (_array(inputs.lower), _array(inputs.upper))
            arguments = (*bounds, rump, _tile_records(2 * width))
        else:
            # Inputs >= 0, as behind a ReLU, need half as many products.
            norms = _array(inputs.upper.amax(dim=-1))
            function = cpu_compiled.sum_nonnegative
            bounds = (_array(inputs.lower), _array(inputs.upper))
            arguments = (*bounds, norms, _tile_records(2 * width))
        gradient_lower = _array(output_gradient.lower)
        gradient_upper = _array(output_gradient.upper)
        sums = (low.numpy(), high.numpy())
        self._run(function, rows, gradient_lower, gradient_upper, *arguments, *sums)
        shape = (ks, outputs, width)
        return low.view(shape), high.view(shape)

    def start_selection(
        self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> BoundSelection:
        """Return an empty selection of the most extreme bounds of each entry of a parameter.

        For each k it selects the c smallest upper bounds and the c largest lower bounds of a
        batch's records, whose sums bound what c records can contribute to the batch's gradient.

        Args:
            counts: int [K], c for each number of edits k; at most the number of records to come.
            shape: the parameter's shape, (out, in) or (out,).
            capped: True to select from min(upper bound, 0) and max(lower bound, 0), so that the
                results are extreme sums over at most c records instead of exactly c.
            product: "exact" or "rump", how two intervals are multiplied.
        """
        try:
            # Asked here, because a selection cannot change its kernel once it holds values.
            self._require(cpu_compiled.select_extremes)
        except NotUsableError:
            return super().start_selection(counts, shape, capped, product)
        return CpuSelection(counts, shape, capped, product == "rump", self._run)

    def products(self, product: str) -> Products:
        """Return the functions that multiply intervals and matrices, some of them compiled.

        Args:
            product: "exact" or "rump", a key of ``PRODUCTS``.
        """
        linear_relu_backward = None  # of "rump", which has no compiled function
        if product == "exact":
            linear_relu_backward = self.linear_relu_backward
        return replace(
            PRODUCTS[product],
            corners=self.corner_product,
            nonnegative=self.nonnegative_product,
            point=self.point_product,
            relu_backward=self.relu_backward,
            linear_relu_backward=linear_relu_backward,
        )

    def corner_product(self, inputs: Interval, weights: Interval) -> Bounds:
        """Return bounds on inputs @ weights.T for intervals of any sign, from the four corners.

        The terms are those of ``linear_corners``. They are added in another order, which depends
        on the signs of the record's inputs, so the results may differ by rounding.

        Args:
            inputs: [K or 1, n, in] bounds; with one more leading axis for a matrix of each record.
            weights: [K, out, in] bounds; with the same leading axes.

        Returns:
            (lower, upper), each [K, n, out] in the dtype of ``inputs``; not yet widened for
            rounding.
        """
        if inputs.lower.dtype != torch.float64:
            # Terms and their sums in float64, rounded to float32 once: the error is smaller than
            # the allowance for a float32 sum (Lemma 7 of docs/proofs/sums.md).
            lower, upper = self.corner_product(inputs.double(), weights.double())
            return lower.to(inputs.lower.dtype), upper.to(inputs.lower.dtype)
        if inputs.lower.dim() > 3:
            # A matrix of each record is handled like a matrix of each k: all leading axes are
            # flattened into one, and restored afterwards.
            leading_shape = np.broadcast_shapes(inputs.shape[:-2], weights.shape[:-2])
            lower, upper = self.corner_product(
                inputs.rearranged(lambda end: _stacked(end, leading_shape)),
                weights.rearranged(lambda end: _stacked(end, leading_shape)),
            )
            return lower.unflatten(0, leading_shape), upper.unflatten(0, leading_shape)
        # The compiled function runs along outputs, so they come last: [K, in, out].
        weights_by_input = weights.rearranged(lambda end: end.mT)
        shape = (len(weights.lower), inputs.shape[1], weights.shape[1])
        low = aligned_empty(shape, "float64")
        high = aligned_empty(shape, "float64")
        try:
            self._run(
                cpu_compiled.corner_product,
                _product_jobs(shape),
                _array(inputs.lower),
                _array(inputs.upper),
                _array(weights_by_input.lower),
                _array(weights_by_input.upper),
                _PRODUCT_BLOCK_RECORDS,
                low,
                high,
            )
        except NotUsableError:
            return linear_corners(inputs, weights)
        return torch.from_numpy(low), torch.from_numpy(high)

    def nonnegative_product(self, inputs: Interval, weights: Interval) -> Bounds:
        """Return bounds on inputs @ weights.T for inputs >= 0 and an interval of weights.

        Both branches compute bounds on the same exact product. The compiled one is faster than
        matrix products if there are enough outputs to vectorise over. A matrix of each record
        would have to be copied for it, and is small.

        Args:
            inputs: [K or 1, n, in] bounds, none of them negative; with one more leading axis for a
                matrix of each record.
            weights: [K, out, in] bounds; with the same leading axes.

        Returns:
            (lower, upper), each [K, n, out]; not yet widened for rounding.
        """
        if weights.shape[-2] < _FEWEST_VECTORISED or inputs.lower.dim() > 3:
            return linear_nonnegative(inputs, weights)
        return self.corner_product(inputs, weights)

    def point_product(self, inputs: Tensor, weights: Interval) -> Bounds:
        """Return bounds on inputs @ weights.T for known inputs and an interval of weights.

        Both branches compute bounds on the same exact product. The compiled one is faster for
        narrow inputs; PyTorch's matrix products are faster for wide ones.

        Args:
            inputs: [1, n, in]; other numbers of axes are left to PyTorch.
            weights: [K, out, in] bounds.

        Returns:
            (lower, upper), each [K, n, out]; not yet widened for rounding.
        """
        if not _is_narrow(inputs, weights):
            return linear_point(inputs, weights)
        # Unchecked, because an interval that is recorded must have a row for each record.
        zeros = weights.lower.new_zeros(weights.shape[:2])
        no_bias = Interval.unchecked(zeros, zeros)
        no_slack = weights.lower.new_zeros((len(weights.lower), inputs.shape[1], 1))
        try:
            lower, upper, _, _ = self._compiled_point_affine(
                inputs, weights, no_bias, no_slack, -np.inf
            )
        except NotUsableError:
            return linear_point(inputs, weights)
        return lower, upper

    def point_affine(
        self, inputs: Tensor, weights: Interval, bias: Interval, slack: Tensor, with_relu: bool
    ) -> Interval:
        """Return bounds on inputs @ weights.T + bias for known inputs, moved outwards by the slack.

        The compiled function adds the bias and the slack, and applies the ReLU, while a record's
        outputs are in the cache.

        Args:
            inputs: [1, n, in].
            weights: [K, out, in] bounds.
            bias: [K, out] bounds.
            slack: nonnegative bounds on rounding errors, [K, n, 1].
            with_relu: True to bound the ReLU of these numbers instead.

        Returns:
            [K, n, out], the bits of ``point_product`` with the bias added, and then widened; a
            ``ReluOutput`` with ``with_relu``.
        """
        if _is_narrow(inputs, weights):
            smallest = 0.0 if with_relu else -np.inf
            try:
                lower, upper, largest, is_valid = self._compiled_point_affine(
                    inputs, weights, bias, slack, smallest
                )
            except NotUsableError:
                is_valid = False  # computed below
            if is_valid and with_relu:
                return ReluOutput.with_largest(lower, upper, largest)
            if is_valid:
                return Interval.unchecked(lower, upper)
        # Raises, or marks the rows, where bounds are not finite: the same bits as above.
        bounds = add_bias(*self.point_product(inputs, weights), bias)
        widened = self.widen_by(*bounds, slack)
        return ReluOutput.from_inputs(widened) if with_relu else widened

    def _compiled_point_affine(
        self, inputs: Tensor, weights: Interval, bias: Interval, slack: Tensor, smallest: float
    ) -> tuple[Tensor, Tensor, Tensor, bool]:
        """Return ``point_affine`` as tensors, with what the caller needs to know about them.

        Args:
            inputs, weights, bias, slack: as for ``point_affine``.
            smallest: bounds below it are replaced by it: 0 for the ReLU, -inf to leave it out.

        Returns:
            (lower bounds, upper bounds, the largest upper bound of each row or 0 if that is
            negative [K, n, 1], whether all bounds were finite and in order before the ReLU).

        Raises:
            NotUsableError: the function cannot be compiled here.
        """
        shape = (len(weights.lower), inputs.shape[1], weights.shape[1])
        low = aligned_empty(shape, "float64")
        high = aligned_empty(shape, "float64")
        largest = aligned_empty((*shape[:2], 1), "float64")
        valid = self._run(
            cpu_compiled.point_affine,
            _product_jobs(shape),
            _array(inputs[0]),
            _array(weights.lower.mT),
            _array(weights.upper.mT),
            _array(bias.lower),
            _array(bias.upper),
            _array(slack[..., 0]),
            smallest,
            _PRODUCT_BLOCK_RECORDS,
            largest[..., 0],
            low,
            high,
        )
        return (
            torch.from_numpy(low),
            torch.from_numpy(high),
            torch.from_numpy(largest),
            all(valid),
        )

    def relu_backward(self, output_gradient: Interval, inputs: Interval) -> Bounds:
        """Return bounds on the gradients in the input of a ReLU, from the gradients in its output.

        A gradient is multiplied by the derivative of ReLU: 1 where the input is positive, 0 where
        it is not, and anything from 0 to 1 where its sign is unknown. ``output_gradient`` is
        overwritten if the compiled function can be used, so the caller must not use it afterwards.

        Args:
            output_gradient: bounds on the gradient in the output of ReLU.
            inputs: bounds on the input of ReLU, usually of the same shape.
        """
        lower = output_gradient.lower
        upper = output_gradient.upper
        contiguous = lower.is_contiguous() and upper.is_contiguous()
        if not contiguous or output_gradient.shape != inputs.shape:
            return relu_backward(output_gradient, inputs)
        # Reshaping contiguous arrays makes views, so the two tensors themselves are overwritten.
        gradient_lower, gradient_upper, inputs_lower, inputs_upper = (
            _array(end).reshape(-1, end.shape[-1])
            for end in (lower, upper, inputs.lower, inputs.upper)
        )
        try:
            self._run(
                cpu_compiled.relu_backward_in_place,
                len(gradient_lower),
                gradient_lower,
                gradient_upper,
                inputs_lower,
                inputs_upper,
            )
        except NotUsableError:
            return relu_backward(output_gradient, inputs)
        return lower, upper

    def linear_relu_backward(
        self, output_gradient: Interval, weights: Interval, slack: Tensor, inputs: Interval
    ) -> ReluGradient:
        """Return bounds on the gradient in the input of a ReLU, from those behind the next layer.

        The compiled function widens, and multiplies by the derivative of ReLU, while a record's
        gradients are in the cache. It is for few outputs, as the last layer has; with more, the
        product takes most of the time, and the operations follow one another.

        Args:
            output_gradient: bounds on the gradient in the output of a linear layer, [K, n, out].
            weights: bounds on its weights, transposed, [K, in, out].
            slack: nonnegative bounds on rounding errors, [K, n, 1].
            inputs: bounds on the layer's input, which is the output of the ReLU, [K, n, in].
        """
        shape = (len(weights.lower), output_gradient.shape[1], weights.shape[1])
        is_narrow = weights.shape[2] < cpu_compiled.FEWEST_LISTED
        if is_narrow and weights.lower.dtype == torch.float64 and inputs.shape == shape:
            try:
                gradient = self._narrow_relu_backward(output_gradient, weights, slack, inputs)
            except NotUsableError:
                gradient = None  # computed below
            if gradient is not None:
                return gradient
        # Raises, or marks the rows, where bounds are not finite.
        widened = self.widen_by(*self.corner_product(output_gradient, weights), slack)
        return ReluGradient.unchecked(*self.relu_backward(widened, inputs))

    def _narrow_relu_backward(
        self, output_gradient: Interval, weights: Interval, slack: Tensor, inputs: Interval
    ) -> ReluGradient | None:
        """Return ``linear_relu_backward`` by the compiled function for few outputs.

        Returns:
            None if bounds on the gradient in the ReLU's output are not finite or not in order.

        Raises:
            NotUsableError: the function cannot be compiled here.
        """
        shape = (len(weights.lower), output_gradient.shape[1], weights.shape[1])
        low = aligned_empty(shape, "float64")
        high = aligned_empty(shape, "float64")
        valid = self._run(
            cpu_compiled.narrow_relu_backward,
            _product_jobs(shape),
            _array(output_gradient.lower),
            _array(output_gradient.upper),
            _array(weights.lower.mT),
            _array(weights.upper.mT),
            _array(slack[..., 0]),
            _array(inputs.lower),
            _array(inputs.upper),
            _PRODUCT_BLOCK_RECORDS,
            low,
            high,
        )
        gradient = ReluGradient.unchecked(torch.from_numpy(low), torch.from_numpy(high))
        return gradient if all(valid) else None

    def widen_by(self, lower: Tensor, upper: Tensor, slack: Tensor) -> Interval:
        """Return the interval [lower - slack, upper + slack], overwriting ``lower`` and ``upper``.

        One pass over the memory moves and checks the bounds where they are contiguous float64 and
        every row has one slack. Other arguments are left to the reference kernel.

        Args:
            lower, upper: [..., width] bounds of one shape.
            slack: nonnegative bounds on rounding errors, [..., 1] or any shape that broadcasts.
        """
        has_one_slack_per_row = slack.shape == (*lower.shape[:-1], 1)
        are_contiguous = lower.is_contiguous() and upper.is_contiguous()
        if lower.dtype != torch.float64 or not has_one_slack_per_row or not are_contiguous:
            return super().widen_by(lower, upper, slack)
        slacks = _array(slack).reshape(-1)
        width = lower.shape[-1]
        try:
            # For the rows of each thread: whether all bounds are finite and in order.
            valid = self._run(
                cpu_compiled.widen_in_place,
                len(slacks),
                lower.numpy().reshape(-1, width),
                upper.numpy().reshape(-1, width),
                slacks,
            )
        except NotUsableError:
            return super().widen_by(lower, upper, slack)
        return _interval(lower, upper, all(valid))


@dataclass
class CpuSelection:
    """The selection of the CPU kernel, which holds the selected bounds as int32 arrays.

    It takes 8 bytes for each selected pair of bounds, c of them for each entry and each k.

    Attributes:
        counts: int [K], how many bounds to select for each number of edits k.
        shape: the parameter's shape, (out, in) or (out,).
        capped: whether to select from min(upper bound, 0) and max(lower bound, 0).
        rump: whether intervals are multiplied by midpoint and radius, which gives wider bounds.
        run: runs a compiled function, as ``CpuKernel`` does.
    """

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    rump: bool
    run: RunJobs
    # R rows (k, output), ``in`` inputs, c the largest count.
    _held: np.ndarray = field(init=False)  # int64 [R, in], how many values are selected
    _largest_lower: np.ndarray = field(init=False)  # int32 [R, in, c], lower bounds, negated
    _smallest_upper: np.ndarray = field(init=False)  # int32 [R, in, c], upper bounds

    def __post_init__(self) -> None:
        """Allocate room for the largest count of all k, with nothing selected yet."""
        outputs = self.shape[0]
        width = 1  # a bias is the weight of one input, which is always 1
        if len(self.shape) > 1:
            width = self.shape[1]
        rows = len(self.counts) * outputs
        size = (rows, width, int(self.counts.max()))
        self._held = np.zeros((rows, width), dtype=np.int64)
        self._largest_lower = np.empty(size, dtype=np.int32)
        self._smallest_upper = np.empty(size, dtype=np.int32)

    def update(self, output_gradient: Interval, inputs: Interval | None) -> None:
        """Add the gradient bounds of some more records of the batch to the selection.

        Args:
            output_gradient: [K, n, out] bounds on the gradients of the loss in the layer's output,
                in quanta (units of clip level / 2^30).
            inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.
        """
        if inputs is None:
            # A bias is the weight of an input that is always 1.
            is_point = True
            inputs_lower = np.ones((1, 1, output_gradient.shape[1]))
            inputs_upper = inputs_lower
        else:
            is_point = inputs.is_point
            inputs_lower = _array(inputs.lower.mT)
            inputs_upper = inputs_lower if is_point else _array(inputs.upper.mT)
        gradient_lower = _rows(output_gradient.lower)
        self.run(
            cpu_compiled.select_extremes,
            len(gradient_lower),
            gradient_lower,
            _rows(output_gradient.upper),
            inputs_lower,
            inputs_upper,
            self.counts.numpy(),
            self.shape[0],
            is_point,
            self.capped,
            self.rump,
            self._held,
            self._largest_lower,
            self._smallest_upper,
        )

    def selected_values(self) -> tuple[Tensor, Tensor]:
        """Return the bounds that are selected so far, in any order.

        Returns:
            (largest lower bounds with the sign reversed, smallest upper bounds), both int32
            [K, *shape, c] with c the largest of all counts; ``EMPTY_SLOT`` where there is no
            value. They are views of this selection's memory, so the caller must not write to them.
        """
        max_selected = self._smallest_upper.shape[2]
        shape = (len(self.counts), *self.shape, max_selected)
        free = ~self._used
        for values in (self._largest_lower, self._smallest_upper):
            values[free] = EMPTY_SLOT  # later updates do not read a free slot
        largest_lower = torch.from_numpy(self._largest_lower).view(shape)
        smallest_upper = torch.from_numpy(self._smallest_upper).view(shape)
        return largest_lower, smallest_upper

    @property
    def _used(self) -> np.ndarray:
        """Return which slots hold a value, bool [R, in, c]."""
        slots = np.arange(self._smallest_upper.shape[2])
        return slots < self._held[..., None]  # the values are in the first slots

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the sums of the selected bounds; zeros where no record came.

        Returns:
            (sum of the largest lower bounds, sum of the smallest upper bounds), both int64
            [K, *shape].
        """
        used = self._used
        shape = (len(self.counts), *self.shape)
        # Lower bounds are held with the sign reversed.
        lower = -np.where(used, self._largest_lower, 0).sum(axis=2, dtype=np.int64)
        upper = np.where(used, self._smallest_upper, 0).sum(axis=2, dtype=np.int64)
        return torch.from_numpy(lower).view(shape), torch.from_numpy(upper).view(shape)


def _interval(lower: Tensor, upper: Tensor, is_valid: bool) -> Interval:
    """Return an interval whose bounds a compiled function has checked.

    Args:
        lower, upper: the bounds.
        is_valid: whether all bounds are finite and in order.
    """
    if is_valid:
        return Interval.unchecked(lower, upper)
    return Interval(lower, upper)  # raises, or marks the rows that are not finite


def _is_narrow(inputs: Tensor, weights: Interval) -> bool:
    """Return whether the compiled function for known inputs can be used, and is the fastest."""
    is_matrix = inputs.dim() == 3 and inputs.shape[-1] < _FEWEST_VECTORISED
    return is_matrix and weights.lower.dtype == torch.float64


def _stacked(matrices: Tensor, leading_shape: tuple[int, ...]) -> Tensor:
    """Return matrices with all leading axes flattened into one, [matrices, rows, columns].

    Args:
        matrices: [..., rows, columns], whose leading axes broadcast to ``leading_shape``.
        leading_shape: the sizes of the leading axes before they are flattened.
    """
    rows_and_columns = matrices.shape[-2:]
    return matrices.expand(*leading_shape, *rows_and_columns).flatten(0, -3)


def _array(tensor: Tensor) -> np.ndarray:
    """Return a CPU tensor as a C-contiguous array, sharing its memory if that is contiguous.

    A copy is PyTorch's, because its memory starts at a multiple of 64 bytes and NumPy's need not.
    Vectorised loops take up to 1.5 times as long where every vector lies in two cache lines.
    """
    return tensor.contiguous().numpy()


def _rows(output_gradient: Tensor) -> np.ndarray:
    """Return a tensor [K, n, out] as an array [K * out, n], with a row for each (k, output)."""
    records = output_gradient.shape[1]
    return _array(output_gradient.mT).reshape(-1, records)


def _inf_norms(inputs: Tensor) -> np.ndarray:
    """Return the largest absolute value of each record's inputs, [n, in] -> [n]."""
    return _array(Interval.point(inputs).inf_norm()[:, 0])


def _product_jobs(shape: tuple[int, int, int]) -> int:
    """Return how many jobs a product of the shape [K, n, out] has, one for each block and k."""
    ks, records, _ = shape
    blocks = -(-records // _PRODUCT_BLOCK_RECORDS)  # divided and rounded up
    return ks * blocks


def _tile_records(width: int) -> int:
    """Return how many records of ``width`` float64 numbers fit into ``_TILE_BYTES``, at least 8."""
    bytes_per_record = 8 * width
    return max(8, _TILE_BYTES // bytes_per_record)
