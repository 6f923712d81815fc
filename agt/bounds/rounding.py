"""WidenBy widening, so that bounds hold for the numbers the machine computes (method.md section 6).

Formal guarantees
    Let an operation's exact inclusion function give [F_l, F_u], let the machine compute C_l with
    |C_l - F_l| <= tau, and the nominal value c with |c - f| <= tau, f in [F_l, F_u]. The lower
    bound reported is C_l - 2(k+1) tau. Then

    * containment: C_l - 2(k+1) tau <= F_l - (2k+1) tau <= f - tau <= c, for every k >= 0;
    * nesting: let D' be a neighbour of D. If the inputs of the operation for (D', k-1) lie inside
      those for (D, k), then F_l <= F'_l, and tau' <= tau because tau is inclusion-monotone and
      depends on the record and the box alone. So reported(D, k) <= F_l - (2k+1) tau <= F'_l -
      (2k+1) tau' <= reported(D', k-1), bit for bit, whatever order a library summed in, at whatever
      batch size.

    Elementwise operations (product, clamp, ReLU, rounding to an integer) are one correctly rounded
    operation of the same inputs each, hence monotone and equal wherever the record stands: they
    need no widening, only the same sequence of operations for the bounds and for the nominal value.

tau must not itself depend on the order of a sum: it is built from maxima alone.

Interval products: a box of matrices applied to intervals (method.md section 1).

Every function returns fresh (lower, upper) tensors, correct in exact arithmetic; the caller widens
them for rounding. Shapes: x is [K or 1, n, in], weights are [K, out, in], results [K, n, out]; or
more axes in front, which broadcast, for matrices of each record.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.errors import ConfigError

WidenBy = Callable[[Tensor, Tensor, Tensor], Interval]
# roundings around a dot product: midpoints, radii, their difference, bias, the widening itself
_OPERATIONS = 10


def widen_by(lower: Tensor, upper: Tensor, slack: Tensor) -> Interval:
    """[lower - slack, upper + slack], overwriting both; checked as every interval is."""
    return Interval(lower.sub_(slack), upper.add_(slack))


def check_precision(dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a PyTorch that was told to compute otherwise than in the precision of its tensors.

    Raises:
        ConfigError: float32 matrices are multiplied at reduced precision (TF32, bfloat16), or
            autocast is on.
    """
    if dtype == torch.float32 and _reduced():
        raise ConfigError(
            "training.dtype=float32: PyTorch is set to reduced-precision matrix products, which "
            "breaks the bounds: "
            "call torch.set_float32_matmul_precision('highest'), or use float64"
        )
    if torch.is_autocast_enabled(device.type):
        raise ConfigError(
            "PyTorch's autocast is on, which computes some layers in a precision that no bound "
            "covers: train and "
            "certify outside of it"
        )


def _reduced() -> bool:
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # set for each backend, or both ways: PyTorch has no one answer then
        return True


@dataclass(frozen=True)
class Rounding:
    """Widening for a group of k: the factors 2(k+1), and the unit_roundoff roundoff of the dtype.

    Attributes:
        factor: [K, 1, 1], 2(k+1).
        unit_roundoff: u = 2^-53 or 2^-24.
        smallest_normal: the least normal number: covers underflow, flushed to zero or not.
        widen_by: a kernel's own ``widen_by``.
    """

    factor: Tensor
    unit_roundoff: float
    smallest_normal: float
    widen_by: "WidenBy" = widen_by

    @classmethod
    def for_grid(
        cls,
        ks: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        widen_by: WidenBy = widen_by,
    ) -> "Rounding":
        """The widening for these k.

        Raises:
            ConfigError: the dtype is too coarse for a k this large, or PyTorch was told to multiply
                float32 matrices at reduced precision (TF32, bfloat16) or to choose precisions
                itself (autocast), which no bound here covers.
        """
        info = torch.finfo(dtype)
        check_precision(dtype, device)
        if 2 * (max(ks) + 1) * info.eps > 1e-3:
            raise ConfigError(
                f"training.dtype={str(dtype)[6:]} is too coarse for k = {max(ks)}: use float64"
            )
        factor = torch.tensor([2.0 * (k + 1) for k in ks], dtype=dtype, device=device)
        return cls(factor[:, None, None], info.eps / 2, info.tiny, widen_by)

    def __getitem__(self, part: slice) -> "Rounding":
        """The widening for a part of the group."""
        return Rounding(self.factor[part], self.unit_roundoff, self.smallest_normal, self.widen_by)

    def widen(self, bounds: tuple[Tensor, Tensor], tau: Tensor | float) -> Interval:
        """[lower - 2(k+1) tau, upper + 2(k+1) tau], overwriting ``bounds`` [K, ...]."""
        factor = self.factor.view(-1, *[1] * (bounds[0].dim() - 1))
        return self.widen_by(*bounds, factor * tau)

    def double(self) -> "Rounding":
        """For what the same group computes in float64."""
        info = torch.finfo(torch.float64)
        return replace(
            self, factor=self.factor.double(), unit_roundoff=info.eps / 2, smallest_normal=info.tiny
        )

    def dot_error(self, left: Interval, weight: Interval, bias: Interval | None = None) -> Tensor:
        """tau of a linear map, for any order of summation, fused or not; one number for all of a
        record's outputs.

        |x|.|w| <= n max|x| max|w| =: A bounds every partial sum. A dot product errs by at most g_n A; midpoint-radius
        forms run up to four dot products and ``_OPERATIONS`` roundings of the size of A, so 4 (n +
        10) u A covers all.

        Args:
            left: [K or 1, rows, n], the vector's bounds.
            weight: [K, ..., ...], the box of the matrix.
            bias: [K, outputs], or None.

        Returns:
            [K, rows, 1].
        """
        length = left.shape[-1]
        size = (left.inf_norm() * length) * weight.magnitude().amax(dim=(1, 2))[:, None, None]
        if bias is not None:
            size = size + bias.magnitude().amax(dim=1)[:, None, None]
        return self.sum_error(length, size)

    def sum_error(self, length: int, size: Tensor) -> Tensor:
        """tau of sums of at most ``length`` products, and a bias, whose magnitudes add up to at
        most ``size``.

        An operation whose result is below the least normal number loses less than that, flushed to
        zero or not: up to four products and four additions a term, and ``_OPERATIONS`` around them.
        """
        return (
            size * (4 * (length + _OPERATIONS) * self.unit_roundoff)
            + (8 * length + _OPERATIONS) * self.smallest_normal
        )
