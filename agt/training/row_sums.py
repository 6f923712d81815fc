"""Sums over the rows of a large array, a block of rows at a time, shared among processes.

The strongly convex problems use them (training/objective.py, training/erm_with_linear_term.py).
The features may be float32 and memory-mapped: only one block is in memory in float64. Blocks, and
the order in which their sums are added, do not depend on the number of processes.
"""

from collections.abc import Callable

import numpy as np
import torch

from agt.distributed import group, spans

# Rows of a block: a few MB of float64 for some hundred features.
BLOCK_ROWS = 8192


def sum_over_rows(
    count: int,
    sum_of_block: Callable[[slice], tuple[np.ndarray, ...]],
    block_rows: int = BLOCK_ROWS,
) -> tuple[np.ndarray, ...]:
    """Return the sums of a function over blocks of rows, shared among the processes of a group.

    Args:
        count: the number of rows.
        sum_of_block: takes the rows of one block and returns one or more fresh arrays, of the same
            shapes for each block; it is called with an empty slice if there are no rows.
        block_rows: the number of rows of a block.

    Returns:
        One array for each that ``sum_of_block`` returns. All processes get the same bits.
    """

    def sum_of_span(span: slice) -> tuple[torch.Tensor, ...]:
        length = span.stop - span.start
        blocks = row_blocks(length, block_rows, span.start)
        if not blocks:
            blocks = [span]
        totals = sum_of_block(blocks[0])
        for rows in blocks[1:]:
            for total, of_block in zip(totals, sum_of_block(rows), strict=True):
                total += of_block
        return tuple(map(torch.from_numpy, totals))

    row_spans = spans(count, block_rows)
    totals = group().summed(row_spans, sum_of_span)
    return tuple(total.numpy() for total in totals)


def row_blocks(count: int, block_rows: int = BLOCK_ROWS, start: int = 0) -> list[slice]:
    """Return slices that cover ``count`` consecutive rows in blocks; the last may be shorter.

    Args:
        count: the number of rows, or of coordinates; 0: no slices.
        block_rows: the number of rows of a block.
        start: the first row.
    """
    stop = start + count
    return [slice(first, min(first + block_rows, stop)) for first in range(start, stop, block_rows)]


def float64_rows(features: np.ndarray, rows: slice) -> np.ndarray:
    """Return some rows of an array as a contiguous float64 array, copied only if necessary."""
    return np.ascontiguousarray(features[rows], dtype=np.float64)
