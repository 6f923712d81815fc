"""Which of several identical records is erased, where ids are hashes of the content.

Such ids number identical records in their order. So if one of them is removed from the data, the
last id disappears, whichever row was removed (agt/data/erasure.py). Therefore the last ones are
erased, and those that the data lacks already before these.
"""

from collections import Counter

import numpy as np

from agt.data.erasure import copy_groups
from agt_cli.unlearn.record_index import places
from agt_cli.unlearn.training_records import TrainingRecords


def last_copies(known: TrainingRecords, requested_rows: np.ndarray) -> np.ndarray:
    """Return the records to erase instead of some requested ones, if others are identical to them.

    Args:
        known: the run's training records.
        requested_rows: rows in the index of the requested records.

    Returns:
        As many rows in the index, in increasing order; ``requested_rows`` itself if a column gives
        ids.
    """
    is_present = known.data_rows[requested_rows] >= 0
    if not is_present.any():
        return requested_rows
    groups = copy_groups(known.source, known.data.train)
    if np.array_equal(groups, known.data.train.ids):
        return requested_rows  # a column names the records, so none is erased instead of another
    requested_groups = groups[known.data_rows[requested_rows[is_present]]]
    rows_in_groups = np.flatnonzero(np.isin(groups, requested_groups))
    chosen = set(requested_rows[~is_present].tolist())
    for group, count in Counter(requested_groups.tolist()).items():
        copies = known.index_rows[rows_in_groups[groups[rows_in_groups] == group]]
        last_first = (*_lost_copies(known, copies), *copies[::-1].tolist())
        free = [row for row in last_first if row not in chosen and not known.is_pending[row]]
        chosen.update(free[:count])
    return np.array(sorted(chosen), dtype=np.int64)


def _lost_copies(known: TrainingRecords, copies: np.ndarray) -> list[int]:
    """Return the rows in the index of copies of a record that the data does not have any more.

    A missing record is a copy if its content is the same and its id is one that a copy would have.
    The content alone is not enough, because different rows may be loaded as the same features.

    Args:
        known: the run's training records.
        copies: rows in the index of all identical records that the data has, at least one.
    """
    content = known.index.contents[copies[0]]
    has_content = (known.index.contents[known.missing] == content).all(axis=1)
    candidates = known.missing[has_content]
    if not len(candidates) or not hasattr(known.source, "copies"):
        return []
    first_id = str(known.data.train.ids[known.data_rows[copies[0]]])
    ids_of_copies = known.source.copies(first_id, len(copies) + len(candidates))
    hashes = known.key.names(ids_of_copies, "record")
    return candidates[places(known.index.ids[candidates], hashes)].tolist()
