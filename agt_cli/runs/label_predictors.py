"""Columns that predict nearly every label by themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from agt_cli.runs.column import Column
from agt_cli.runs.column_values import ColumnValues, row_count

_SUSPICIOUS_SHARE = 0.95  # share of the rows whose label a column must give away to be suspicious
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

    A value, or a bin of many values, predicts the label that most of its rows have.

    Args:
        values: the column.
        label: the column of labels.
        rows: the number of rows.
    """
    max_bins = max(2, min(_MAX_BINS, rows // _MIN_BIN_ROWS))
    max_distinct = rows if values.is_numeric else max_bins
    if values.is_date or not 0 < len(values.distinct) <= max_distinct:
        return 0.0
    if values.is_numeric:
        _, bins = np.unique(values.numbers, return_inverse=True)
    else:
        bins = np.arange(len(values.distinct))
    if bins.max() >= max_bins:  # numbers of about as many rows share a bin
        counts = np.bincount(bins, values.counts)
        share_below = (counts.cumsum() - counts) / counts.sum()
        bins = (share_below * max_bins).astype(int)[bins]
    no_value = bins.max() + 1
    bin_of_row = np.append(bins, no_value)[values.index_of_rows()]
    table = np.zeros((no_value + 1, len(label.distinct) + 1))  # rows of each bin and label
    np.add.at(table, (bin_of_row, label.index_of_rows()), 1)
    share = table.max(axis=1).sum() / rows
    constant = table.sum(axis=0).max() / rows  # of the most frequent label
    is_suspicious = share >= _SUSPICIOUS_SHARE and 1 - share <= (1 - constant) / 10
    return float(share) if is_suspicious else 0.0
