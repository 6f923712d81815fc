"""Selections over a batch that several processes share: the most extreme bounds of all records."""

import torch
from torch import Tensor

from agt.distributed import Group
from agt.kernels.reference import EMPTY_SLOT, BoundSelection

_EXCHANGED_NUMBERS = 1 << 24  # how many numbers processes exchange at once


def selected_sums(group: Group, extremes: BoundSelection, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return this process's part of the sums over the most extreme bounds of all processes.

    Each process selects for its own share of the parameters, so that every number is sent once.

    Formal guarantees
        * The parts add up, over all processes, to what ``BoundSelection.result`` would give if one
          process had taken in all records (Lemma 7 of docs/proofs/training.md).
        * The result of a process that is alone is ``extremes.result()``.

    Args:
        group: the processes; all of them call this alike.
        extremes: what this process collected of its own records.
        counts: [K] how many bounds to select at each k, as ``extremes`` was made for.

    Returns:
        (sums of the greatest lower bounds, sums of the least upper bounds), int64 of shape
        [K, *shape of the parameter]; 0 for parameters that other processes select for.
    """
    if group.size == 1:
        return extremes.result()
    negated_lower, upper = extremes.selected_values()
    lower_sums = _sum_least(group, negated_lower, counts).neg_()
    upper_sums = _sum_least(group, upper, counts)
    return lower_sums, upper_sums


def _sum_least(group: Group, collected: Tensor, counts: Tensor) -> Tensor:
    """Return the sums of the least numbers that any process collected.

    Args:
        group: the processes.
        collected: int32 [K, *shape, c] the least numbers of this process's records in any order, at
            most c of them; the rest are ``EMPTY_SLOT``.
        counts: [K] how many to sum at each k, at most c.

    Returns:
        int64 [K, *shape], which is 0 outside of this process's share of the parameters.
    """
    flat = collected.flatten(1, -2)
    ks, parameters, slots = flat.shape
    sums = torch.zeros((ks, parameters), dtype=torch.int64, device=collected.device)
    share = _share_size(group.size, ks, parameters, slots)
    chunk_size = share * group.size
    is_counted = torch.arange(slots, device=collected.device) < counts[:, None, None]
    for start in range(0, parameters if slots else 0, chunk_size):
        chunk = flat[:, start : start + chunk_size]
        padded = flat.new_full((ks, chunk_size, slots), EMPTY_SLOT)
        padded[:, : chunk.shape[1]] = chunk
        sent = padded.view(ks, group.size, share, slots).transpose(0, 1)
        received = group.dealt(sent)  # [process, K, share, c]
        candidates = received.permute(1, 2, 0, 3).flatten(2)
        smallest = candidates.topk(slots, largest=False).values
        chosen = torch.where(is_counted & (smallest != EMPTY_SLOT), smallest, 0)
        own_start = start + group.rank * share
        own_sums = sums[:, own_start : own_start + share]
        own_sums += chosen.sum(dim=2)[:, : own_sums.shape[1]]
    return sums.view(collected.shape[:-1])


def _share_size(processes: int, ks: int, parameters: int, slots: int) -> int:
    """Return for how many parameters of a chunk each process selects, at least 1."""
    equal_share = -(-parameters // processes)
    numbers_per_parameter = max(1, ks * slots)
    affordable = _EXCHANGED_NUMBERS // (numbers_per_parameter * processes)
    return max(1, min(equal_share, affordable))
