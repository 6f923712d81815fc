"""Columns that predict nearly every label by themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from agt_cli.runs.column import Column
from agt_cli.runs.column_values import ColumnValues, row_count

_SUSPICIOUS_SHARE = 0.95  # share of the rows whose label a column must give away to be suspicious
# Where most records are of one class, an answer that is always this class is nearly always right.
# So a suspicious column must also leave at most this share of the errors of that answer.
_MAX_REMAINING_ERRORS = 1 / 6
_MAX_BINS = 64  # the largest number of bins of a column of numbers, for that
_MIN_BIN_ROWS = 20  # rows of a bin


def with_predicted_shares(
    columns: Sequence[Column], values_by_column: Mapping[str, ColumnValues], label: str
) -> list[Column]:
    """Return columns with the share of rows whose label each of them predicts by itself.

    Args:
        columns: all columns of a table.
        values_by_column: the values of those that are not dropped.
        label: the column of labels, which are classes.
    """
    rows = row_count(values_by_column)
    result = []
    for column in columns:
        if column.name in values_by_column and column.name != label:
            values = values_by_column[column.name]
            share = _share_predicted(values, values_by_column[label], rows)
            column = replace(column, predicted_share=share)
        result.append(column)
    return result


def _share_predicted(values: ColumnValues, label: ColumnValues, rows: int) -> float:
    """Return the share of rows whose label a column predicts by itself; 0 unless it is nearly all.

    A bin of values predicts the label that most of its rows have. Rows without a value are a bin of
    their own: a date of a refund that only refunded orders have gives their label away.

    Args:
        values: the column.
        label: the column of labels.
        rows: the number of rows.
    """
    if not len(values.distinct):
        return 0.0
    max_bins = max(2, min(_MAX_BINS, rows // _MIN_BIN_ROWS))
    bin_of_value = _bins_of_values(values, max_bins)
    no_value = bin_of_value.max() + 1
    bin_of_row = np.append(bin_of_value, no_value)[values.index_of_rows()]
    rows_by_bin_and_label = np.zeros((no_value + 1, len(label.distinct) + 1))
    np.add.at(rows_by_bin_and_label, (bin_of_row, label.index_of_rows()), 1)
    share = rows_by_bin_and_label.max(axis=1).sum() / rows
    majority_share = rows_by_bin_and_label.sum(axis=0).max() / rows
    errors_of_column = 1 - share
    errors_of_majority = 1 - majority_share
    if share < _SUSPICIOUS_SHARE or errors_of_column > _MAX_REMAINING_ERRORS * errors_of_majority:
        return 0.0
    return float(share)


def _bins_of_values(values: ColumnValues, max_bins: int) -> np.ndarray:
    """Return the bin of each distinct value, [distinct] int from 0; several values may share one.

    Each value has a bin of its own if there are at most ``max_bins`` values. Otherwise neighbouring
    numbers share bins of about as many rows each, and all rare words or dates share one bin,
    because a bin of few rows predicts their labels by chance.

    Args:
        values: the column, with at least one value.
        max_bins: the largest number of bins of numbers.
    """
    if not values.is_numeric:
        if len(values.distinct) <= max_bins:
            return np.arange(len(values.distinct))
        is_frequent = values.counts >= _MIN_BIN_ROWS
        return np.where(is_frequent, np.cumsum(is_frequent), 0)  # bin 0: the rare ones
    _, bins = np.unique(values.numbers, return_inverse=True)
    if bins.max() < max_bins:
        return bins
    counts = np.bincount(bins, values.counts)
    share_below = (counts.cumsum() - counts) / counts.sum()
    bin_of_number: np.ndarray = (share_below * max_bins).astype(int)
    return bin_of_number[bins]
