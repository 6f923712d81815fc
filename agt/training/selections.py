"""Selections over a batch that several processes share: the c most extreme bounds of all from those
that each kept.

Formal guarantees
    The c least of a union are among the c least of its parts. Every process keeps as many of its
    own records' bounds as are wanted of all of them, or all that it met, so that choosing anew from
    what they kept gives the numbers that one process would have kept; their sum is one of integers,
    in range by kernels/reference.py.
"""

import torch
from torch import Tensor

from agt.distributed import Group
from agt.kernels.reference import EMPTY_SLOT, Extremes

_AT_ONCE = 1 << 24  # numbers that are exchanged together


def selected_sums(group: Group, extremes: Extremes, counts: Tensor) -> tuple[Tensor, Tensor]:
    """(sum of the greatest lower bounds, sum of the least upper bounds) over all processes: this
    one's part of both.

    Each process chooses for a share of the parameters, so that what is kept crosses once; for all
    others it has 0, and the sum over processes (``Group.total``) is the selection's.

    Args:
        counts: [K] how many are wanted.

    Returns:
        As ``Extremes.result``, which it is where a process is alone.
    """
    if group.size == 1:
        return extremes.result()
    greatest, least = (_chosen(group, kept, counts) for kept in extremes.selected_values())
    return greatest.neg_(), least


def _chosen(group: Group, kept: Tensor, counts: Tensor) -> Tensor:
    """int64 [K, *shape] the sum of the ``counts`` least, for this process's share of the
    parameters, of all processes'.
    """
    flat = kept.flatten(1, -2)
    ks, parameters, most = flat.shape
    sums = torch.zeros((ks, parameters), dtype=torch.int64, device=kept.device)
    share = max(1, min(-(-parameters // group.size), _AT_ONCE // (max(1, ks * most) * group.size)))
    used = torch.arange(most, device=kept.device) < counts[:, None, None]
    for start in range(0, parameters if most else 0, share * group.size):
        given = flat.new_full((ks, share * group.size, most), EMPTY_SLOT)
        some = flat[:, start : start + share * group.size]
        given[:, : some.shape[1]] = some
        came = group.dealt(given.view(ks, group.size, share, most).transpose(0, 1))
        least = came.permute(1, 2, 0, 3).flatten(2).topk(most, largest=False).values
        mine = sums[:, start + group.rank * share : start + (group.rank + 1) * share]
        mine += torch.where(used & (least != EMPTY_SLOT), least, 0).sum(dim=2)[:, : mine.shape[1]]
    return sums.view(kept.shape[:-1])
