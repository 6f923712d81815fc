"""Sums over the rows of a large array, a block of rows at a time, shared among processes.

The strongly convex problems use them (training/objective.py, training/erm_with_linear_term.py).
The features may be float32 and memory-mapped: only one block is in memory in float64. Blocks, and
the order in which their sums are added, do not depend on the number of processes.
"""

from collections.abc import Callable

import numpy as np
import torch

from agt.data.arrays import block_slices
from agt.distributed import group, spans

# Rows of a block, which takes a few MB in float64 for some hundred features.
BLOCK_ROWS = 8192


def sum_over_rows(
    count: int,
    sum_of_block: Callable[[slice], tuple[np.ndarray, ...]],
    block_rows: int = BLOCK_ROWS,
) -> tuple[np.ndarray, ...]:
    """Return the sum over all rows of functions that are computed a block of rows at a time.

    The blocks are shared among the processes of a group; all processes get the same bits.

    Args:
        count: the number of rows, at least 0.
        sum_of_block: called with a slice of row numbers, returns the sums over these rows: one or
            more arrays, of the same shapes for every block. The arrays must be newly made, because
            later blocks are added into them. If there are no rows, it is called once with an empty
            slice.
        block_rows: the number of rows of a block, at least 1. The last block may be shorter.

    Returns:
        The total of each array that ``sum_of_block`` returns, in the same order.
    """

    def sum_of_span(span: slice) -> tuple[torch.Tensor, ...]:
        """Return the sums over the rows of ``span``, added in the order of the blocks."""
        length = span.stop - span.start
        blocks = block_slices(length, block_rows, span.start)
        if not blocks:
            blocks = [span]  # an empty slice, from which the shapes of the totals follow
        totals = sum_of_block(blocks[0])
        for rows in blocks[1:]:
            block_sums = sum_of_block(rows)
            for total, block_sum in zip(totals, block_sums, strict=True):
                total += block_sum
        return tuple(torch.from_numpy(total) for total in totals)

    # Each process sums some of the spans, which are whole blocks.
    row_spans = spans(count, block_rows)
    totals = group().sum_spans(row_spans, sum_of_span)
    return tuple(total.numpy() for total in totals)


def float64_rows(features: np.ndarray, rows: slice) -> np.ndarray:
    """Return some rows of an array as a contiguous float64 array.

    Args:
        features: [n, d], of any float type; may be memory-mapped.
        rows: the rows to return.

    Returns:
        [b, d] float64; a view of ``features`` where no conversion is needed, so do not write into
        it.
    """
    return np.ascontiguousarray(features[rows], dtype=np.float64)
