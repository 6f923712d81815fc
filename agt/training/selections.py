"""Selects the most extreme bounds on records' gradients in a batch that several processes share."""

import torch
from torch import Tensor

from agt.distributed import Group
from agt.kernels.reference import EMPTY_SLOT, BoundSelection

_EXCHANGED_NUMBERS = 1 << 24  # the most numbers that a process sends at once, to bound its memory


def selected_sums(group: Group, extremes: BoundSelection, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return this process's part of the sums over a shared batch's most extreme gradient bounds.

    Each process has collected the most extreme bounds of its own records. The scalar parameters are
    divided among the processes: a process receives the bounds on its parameters from all others,
    selects the most extreme ones and returns their sums, and 0 for all other parameters.

    Formal guarantees
        * The results of all processes add up to what one process would return that had all records
          (Lemma 7 of docs/proofs/training.md).

    Args:
        group: the processes; all of them must call this together.
        extremes: the bounds that this process has collected.
        counts: [K] int64, the number of bounds to select at each k, equal in all processes.

    Returns:
        (sums of the greatest lower bounds, sums of the least upper bounds), int64 of shape
        [K, *shape of the parameter].
    """
    if group.size == 1:
        return extremes.result()
    # The greatest lower bounds are the least of their negatives.
    negated_lower, upper = extremes.selected_values()
    lower_sums = _sum_of_smallest(group, negated_lower, counts).neg_()
    upper_sums = _sum_of_smallest(group, upper, counts)
    return lower_sums, upper_sums


def _sum_of_smallest(group: Group, collected: Tensor, counts: Tensor) -> Tensor:
    """Return sums of the smallest numbers over all processes, for each k and scalar parameter.

    Each process computes the sums for its share of the parameters.

    Args:
        group: the processes; all of them must call this together.
        collected: int32 [K, *shape, c], for each k and scalar parameter up to c numbers that this
            process collected, in any order. Unused entries are ``EMPTY_SLOT``, which is greater
            than any of the numbers.
        counts: [K] int64, how many of the smallest numbers are summed at each k, at most c.

    Returns:
        int64 [K, *shape], with 0 for parameters outside of this process's share.
    """
    flat = collected.flatten(1, -2)  # [K, parameters, c]
    ks, parameters, slots = flat.shape
    sums = torch.zeros((ks, parameters), dtype=torch.int64, device=collected.device)
    if slots == 0:  # nothing is selected at any k
        return sums.view(collected.shape[:-1])
    share = _share_size(group.size, ks, parameters, slots)
    chunk_size = share * group.size
    # [K, 1, c]: whether the number at a position of the ascending order is summed at k.
    is_counted = torch.arange(slots, device=collected.device) < counts[:, None, None]
    # Parameters are exchanged in chunks, of which each process gets ``share`` parameters.
    for start in range(0, parameters, chunk_size):
        chunk = flat[:, start : start + chunk_size]
        # The last chunk is filled up, because all processes must receive tensors of one shape.
        padded = flat.new_full((ks, chunk_size, slots), EMPTY_SLOT)
        padded[:, : chunk.shape[1]] = chunk
        parts = padded.view(ks, group.size, share, slots).transpose(0, 1)
        # Entry r of ``parts`` goes to process r; entry r of ``received`` comes from process r.
        received = group.all_to_all(parts)  # [process, K, share, c]
        candidates = received.permute(1, 2, 0, 3).flatten(2)  # [K, share, processes * c]
        smallest = candidates.topk(slots, largest=False).values  # ascending
        chosen = torch.where(is_counted & (smallest != EMPTY_SLOT), smallest, 0)
        own_start = start + group.rank * share
        own_sums = sums[:, own_start : own_start + share]  # a view; shorter at the end
        own_sums += chosen.sum(dim=2)[:, : own_sums.shape[1]]
    return sums.view(collected.shape[:-1])


def _share_size(processes: int, ks: int, parameters: int, slots: int) -> int:
    """Return the number of scalar parameters that each process selects for in one exchange.

    The exchange is limited to about ``_EXCHANGED_NUMBERS`` numbers per process.

    Args:
        processes: the number of processes.
        ks: the number of values of k.
        parameters: the number of scalar parameters.
        slots: the number of collected bounds for each k and parameter.
    """
    equal_share = -(-parameters // processes)  # rounded up, so that one exchange suffices
    numbers_per_parameter = max(1, ks * slots)
    affordable = _EXCHANGED_NUMBERS // (numbers_per_parameter * processes)
    return max(1, min(equal_share, affordable))
