"""Outward widening of computed bounds, so that they contain what the machine computes.

The proofs are in docs/proofs/rounding.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.errors import ConfigError
from agt.messages import Message

# (lower, upper, amount) -> the interval [lower - amount, upper + amount], as ``widen_by`` does it.
WidenBy = Callable[[Tensor, Tensor, Tensor], Interval]
# (inputs, weights, bias, slack, with_relu) -> bounds on the output of a linear layer, or of the
# ReLU behind it, as ``affine_point`` of products.py computes them.
PointAffine = Callable[[Tensor, Interval, Interval, Tensor, bool], Interval]
# An allowance for the roundings around a sum of products: midpoints, radii, their difference, the
# bias and the widening itself (Lemma 3 of docs/proofs/rounding.md).
_ROUNDINGS_AROUND_A_SUM = 10


def widen_by(lower: Tensor, upper: Tensor, amount: Tensor) -> Interval:
    """Return the interval [lower - amount, upper + amount], overwriting both bounds.

    Args:
        lower: the lower bounds; overwritten by the result.
        upper: the upper bounds; overwritten by the result.
        amount: the amount by which each bound moves outwards, at least 0; broadcasts with the
            bounds.

    Raises:
        UnsoundError: a lower bound exceeds its upper bound.
        UnboundedError: a bound is NaN or infinite.
    """
    return Interval(lower.sub_(amount), upper.add_(amount))


def check_precision(dtype: torch.dtype, device: torch.device) -> None:
    """Raise ConfigError if PyTorch computes in a lower precision than its tensors have.

    Args:
        dtype: the dtype of the run, float32 or float64.
        device: the device on which the run computes.

    Raises:
        ConfigError: PyTorch multiplies float32 matrices at reduced precision (TF32, bfloat16), or
            autocast is on. The bounds on rounding here cover neither.
    """
    if dtype == torch.float32 and _multiplies_at_reduced_precision():
        raise ConfigError(
            Message(
                "{config:training.dtype}=float32 cannot be used while PyTorch multiplies matrices "
                "with reduced precision, because the bounds would not hold: call "
                "torch.set_float32_matmul_precision('highest'), or use "
                "{config:training.dtype}=float64",
            )
        )
    if torch.is_autocast_enabled(device.type):
        raise ConfigError(
            "PyTorch's autocast is on, which computes some layers in a precision that no bound "
            "covers: train and certify outside of torch.autocast"
        )


def _multiplies_at_reduced_precision() -> bool:
    """Return whether PyTorch may multiply float32 matrices with less than float32's precision."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:
        # PyTorch gives no single answer if the precision was set separately for each backend.
        return True


@dataclass(frozen=True)
class Rounding:
    """The amounts by which computed bounds are widened, so that they cover floating-point error.

    Let tau be a bound on the floating-point error of an operation: of the computed ends of its
    interval and of its computed nominal value. At distance k the interval is moved outwards by
    2 (k + 1) tau on each side.

    Formal guarantees, if tau does not shrink when the operation's argument intervals grow, and
    depends on no other record:
        - Containment: the nominal value, as computed, lies in the widened bounds for every k.
        - Nesting: narrower argument intervals at k - 1 give widened bounds within those of wider
          argument intervals at k, bit for bit, in whatever order a library adds.

    Attributes:
        factor: [K, 1, 1], the number 2 (k + 1) for each distance k.
        unit_roundoff: the largest relative error of one rounded operation of the dtype, 2^-53 for
            float64 and 2^-24 for float32.
        smallest_normal: the smallest positive normal number of the dtype. An operation that
            underflows errs by less than this number, whether or not it is flushed to zero.
        widen_by: the implementation of ``widen_by``, which a kernel may replace by a faster one.
        point_affine: a kernel's implementation of ``affine_point``, which widens as ``widen_by``
            does. Like that, it may skip the check of an interval whose bounds it has checked, so
            it is used in training alone: certification records overflows in that check, and does
            the same work whatever the bounds are. None: the operations one by one.
    """

    factor: Tensor
    unit_roundoff: float
    smallest_normal: float
    widen_by: WidenBy = widen_by
    point_affine: PointAffine | None = None

    @classmethod
    def for_grid(
        cls,
        ks: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        widen_by: WidenBy = widen_by,
        point_affine: PointAffine | None = None,
    ) -> "Rounding":
        """Return the widening for a grid of distances.

        Args:
            ks: the K distances of the grid.
            dtype: the dtype in which bounds and nominal values are computed.
            device: the device on which they are computed.
            widen_by: the implementation of ``widen_by`` to use.
            point_affine: the implementation of ``affine_point`` to use for linear layers whose
                inputs are known; None: product, bias and widening are computed one by one.

        Raises:
            ConfigError: the dtype is too coarse for the largest k, or PyTorch is set to compute in
                reduced precision (``check_precision``).
        """
        precision = torch.finfo(dtype)
        check_precision(dtype, device)
        # Beyond 0.1 % of an operation's size, widened bounds would say little.
        if 2 * (max(ks) + 1) * precision.eps > 1e-3:
            raise ConfigError(
                Message(
                    "{config:training.dtype}={name} is not precise enough to bound rounding "
                    "errors for k = {largest}: use {config:training.dtype}=float64",
                    name=str(dtype).removeprefix("torch."),
                    largest=max(ks),
                )
            )
        # With the factor 2 (k + 1), the bounds contain the nominal value (Lemma 1 of
        # docs/proofs/rounding.md), and bounds for k - 1 stay within those for k (Lemma 2 of
        # docs/proofs/rounding.md).
        factor = torch.tensor([2.0 * (k + 1) for k in ks], dtype=dtype, device=device)
        return cls(
            factor[:, None, None],
            unit_roundoff=precision.eps / 2,
            smallest_normal=precision.tiny,
            widen_by=widen_by,
            point_affine=point_affine,
        )

    def __getitem__(self, ks: slice) -> "Rounding":
        """Return the widening for only a slice of the grid of distances."""
        return replace(self, factor=self.factor[ks])

    def widen(self, bounds: tuple[Tensor, Tensor], error_bound: Tensor | float) -> Interval:
        """Return bounds moved outwards by 2 (k + 1) times a bound on their floating-point error.

        Args:
            bounds: (lower, upper) as computed, each [K, ...]; both are overwritten.
            error_bound: tau, a bound on the error of every computed end and of the nominal value;
                broadcasts with the bounds.

        Returns:
            The interval [lower - 2 (k + 1) tau, upper + 2 (k + 1) tau], [K, ...].
        """
        lower, upper = bounds
        axes_after_k = [1] * (lower.dim() - 1)
        factor = self.factor.view(-1, *axes_after_k)  # 2 (k + 1), [K, 1, ..., 1]
        return self.widen_by(lower, upper, factor * error_bound)

    def slack(self, error_bound: Tensor) -> Tensor:
        """Return 2 (k + 1) times a bound on floating-point errors, as ``widen`` moves bounds.

        Args:
            error_bound: tau, [K or 1, n, 1].

        Returns:
            [K, n, 1].
        """
        return self.factor * error_bound

    def double(self) -> "Rounding":
        """Return the widening for the same distances, for bounds that are computed in float64."""
        precision = torch.finfo(torch.float64)
        return replace(
            self,
            factor=self.factor.double(),
            unit_roundoff=precision.eps / 2,
            smallest_normal=precision.tiny,
        )

    def dot_error(
        self, vectors: Interval, weight: Interval, bias: Interval | None = None
    ) -> Tensor:
        """Return a bound on the floating-point error of the outputs of an interval linear map.

        It holds for any order of summation, with or without fused multiply-add, and both for the
        bounds on vectors @ weight.T + bias and for its nominal values.

        Args:
            vectors: bounds on the row vectors, [K or 1, rows, n].
            weight: bounds on the matrix, [K, outputs, n] or transposed.
            bias: bounds on the bias, [K, outputs]; None: no bias.

        Returns:
            [K, rows, 1], one bound for all outputs of a row.
        """
        length = vectors.shape[-1]
        # Lemma 3 of docs/proofs/rounding.md: n max|vector| max|weight| + max|bias| bounds every
        # partial sum of n products and the bias.
        largest_weight = weight.magnitude().amax(dim=(1, 2))[:, None, None]
        size = (vectors.inf_norm() * length) * largest_weight
        if bias is not None:
            largest_bias = bias.magnitude().amax(dim=1)[:, None, None]
            size = size + largest_bias
        return self.sum_error(length, size)

    def sum_error(self, length: int, size: Tensor) -> Tensor:
        """Return a bound on the floating-point error of a sum of products, with or without a bias.

        It holds for any order of summation, with or without fused multiply-add.

        Args:
            length: n, an upper bound on the number of products in a sum.
            size: an upper bound on the sum of the absolute values of all terms, bias included.

        Returns:
            A tensor of the shape of ``size``.
        """
        # Lemma 3 of docs/proofs/rounding.md: with the unit roundoff u and the smallest normal
        # number eta, the error is at most 4 (n + 10) u size + (8 n + 10) eta.
        relative = 4 * (length + _ROUNDINGS_AROUND_A_SUM) * self.unit_roundoff
        underflow = (8 * length + _ROUNDINGS_AROUND_A_SUM) * self.smallest_normal
        return size * relative + underflow
