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

WidenBy = Callable[[Tensor, Tensor, Tensor], Interval]
# Roundings around a dot product: midpoints, radii, their difference, the bias, the widening itself.
_ROUNDINGS_AROUND_A_SUM = 10


def widen_by(lower: Tensor, upper: Tensor, slack: Tensor) -> Interval:
    """Return the interval [lower - slack, upper + slack]; both tensors are overwritten.

    Raises:
        UnsoundError, UnboundedError: as for every ``Interval``.
    """
    return Interval(lower.sub_(slack), upper.add_(slack))


def check_precision(dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a PyTorch that is set to compute in a lower precision than its tensors have.

    Raises:
        ConfigError: float32 matrices are multiplied at reduced precision (TF32, bfloat16), or
            autocast is on. No bound here covers either.
    """
    if dtype == torch.float32 and _multiplies_at_reduced_precision():
        raise ConfigError(
            Message(
                "{config:training.dtype}=float32 does not work with PyTorch's reduced-precision "
                "matrix products, because bounds would not hold: call "
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
    """How far to widen computed bounds, for each distance k of a group.

    A bound whose computed ends err by at most tau is moved outwards by 2 (k + 1) tau.

    Formal guarantees (if tau bounds the error of the ends and of the nominal value, grows with the
    operation's inputs as intervals, and depends on one record and the box alone):
        - Containment: the nominal value, as computed, lies in the widened bounds for every k.
        - Nesting: bounds for k - 1 of inner inputs lie within bounds for k of outer inputs, bit for
          bit, in whatever order a library adds.

    Attributes:
        factor: [K, 1, 1], 2 (k + 1).
        unit_roundoff: u of the dtype: 2^-53 for float64, 2^-24 for float32.
        smallest_normal: the smallest positive normal number of the dtype. An operation that
            underflows loses less than it, whether or not the result is flushed to zero.
        widen_by: the implementation of ``widen_by``, which a kernel may replace by a faster one.
    """

    factor: Tensor
    unit_roundoff: float
    smallest_normal: float
    widen_by: WidenBy = widen_by

    @classmethod
    def for_grid(
        cls,
        ks: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        widen_by: WidenBy = widen_by,
    ) -> "Rounding":
        """Return the widening for these distances k, computed in ``dtype`` on ``device``.

        Raises:
            ConfigError: the dtype is too coarse for the largest k, or PyTorch is set to compute in
                reduced precision (``check_precision``).
        """
        precision = torch.finfo(dtype)
        check_precision(dtype, device)
        if 2 * (max(ks) + 1) * precision.eps > 1e-3:
            raise ConfigError(
                Message(
                    "{config:training.dtype}={name} has too few digits to bound the rounding "
                    "for k = {largest}: use {config:training.dtype}=float64",
                    name=str(dtype)[6:],
                    largest=max(ks),
                )
            )
        # The factor is that of Lemma 1 of docs/proofs/rounding.md (containment) and of
        # Lemma 2 of docs/proofs/rounding.md (nesting).
        factor = torch.tensor([2.0 * (k + 1) for k in ks], dtype=dtype, device=device)
        return cls(factor[:, None, None], precision.eps / 2, precision.tiny, widen_by)

    def __getitem__(self, ks: slice) -> "Rounding":
        """Return the widening for a slice of the distances."""
        return replace(self, factor=self.factor[ks])

    def widen(self, bounds: tuple[Tensor, Tensor], tau: Tensor | float) -> Interval:
        """Return [lower - 2 (k + 1) tau, upper + 2 (k + 1) tau], overwriting both bounds.

        Args:
            bounds: (lower, upper), each [K, ...].
            tau: what a bound may err by; broadcasts with ``bounds``.
        """
        factor = self.factor.view(-1, *[1] * (bounds[0].dim() - 1))
        return self.widen_by(*bounds, factor * tau)

    def double(self) -> "Rounding":
        """Return the widening for the same distances, of what is computed in float64."""
        precision = torch.finfo(torch.float64)
        return replace(
            self,
            factor=self.factor.double(),
            unit_roundoff=precision.eps / 2,
            smallest_normal=precision.tiny,
        )

    def dot_error(self, x: Interval, weight: Interval, bias: Interval | None = None) -> Tensor:
        """Return tau for a linear map of intervals: what any of its outputs may err by.

        It holds for any order of summation, with or without fused multiply-add.

        Args:
            x: [K or 1, rows, n], bounds on the vectors.
            weight: [K, outputs, n] or its transpose, bounds on the matrix.
            bias: [K, outputs], or None.

        Returns:
            [K, rows, 1], one number for all outputs of a record.
        """
        length = x.shape[-1]
        # Lemma 3 of docs/proofs/rounding.md: n max|x| max|w| bounds every partial sum.
        largest_weight = weight.magnitude().amax(dim=(1, 2))[:, None, None]
        size = (x.inf_norm() * length) * largest_weight
        if bias is not None:
            size = size + bias.magnitude().amax(dim=1)[:, None, None]
        return self.sum_error(length, size)

    def sum_error(self, length: int, size: Tensor) -> Tensor:
        """Return tau for sums of products, with or without a bias.

        Args:
            length: how many products a sum has, at most.
            size: what the absolute values of its terms, bias included, add up to, at most.
        """
        # Lemma 3 of docs/proofs/rounding.md. The second term covers underflow.
        relative = 4 * (length + _ROUNDINGS_AROUND_A_SUM) * self.unit_roundoff
        underflow = (8 * length + _ROUNDINGS_AROUND_A_SUM) * self.smallest_normal
        return size * relative + underflow
