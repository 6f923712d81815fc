"""How many training labels must change before a ridge regression gives a query another answer.

The counts are exact, not bounds.
"""

import numpy as np


def count_flips_to_beat(
    label_influence: np.ndarray,
    labels: np.ndarray,
    class_to_beat: np.ndarray,
    classes: int,
    unreachable: int,
) -> np.ndarray:
    """Count the label flips after which each class beats a given class, [C, m] int64.

    A flip changes the label of one record. A class's score for a query is the sum of the influences
    of the records that have this label. A class beats another if its score is greater, or equal and
    the class is the smaller one.

    Args:
        label_influence: [m, n] float64 integers, by how much a record that has a class's label
            raises the class's score for each query; may be negative.
        labels: [n] integers, the records' labels.
        class_to_beat: [m] integers, for each query the class that is to be beaten.
        classes: C, the number of classes.
        unreachable: the count where no labels make the class win; a public number above n.

    Formal guarantees:
        - The counts are exact (Lemma 1 of docs/proofs/flips.md); 0 for the class to be beaten.
        - If the class to be beaten is the answer, the smallest count of another class changes by at
          most 1 with one label. If the answer changes with that label, the count is 1 before and
          after (Lemma 3 of docs/proofs/flips.md).
    """
    flips_of_class = np.zeros((classes, len(class_to_beat)), dtype=np.int64)
    for rival in range(classes):
        # A class needs no flip to beat itself, so the queries that it answers keep the count 0.
        queries = np.flatnonzero(class_to_beat != rival)
        winner = class_to_beat[queries, None]
        flips = _count_flips_of_rival(label_influence[queries], labels, winner, rival)
        is_unreachable = flips > len(labels)
        flips_of_class[rival, queries] = np.where(is_unreachable, unreachable, flips)
    return flips_of_class


def _count_flips_of_rival(
    influence: np.ndarray, labels: np.ndarray, winner: np.ndarray, rival: int
) -> np.ndarray:
    """Count the label flips after which one rival class beats the winner, [m] int64.

    Args:
        influence: [m, n] float64 integers, by how much a record that has a class's label raises the
            class's score for each query.
        labels: [n] integers, the records' labels.
        winner: [m, 1] integers, for each query the class that is to be beaten; not the rival.
        rival: the class that is to beat it.

    Returns:
        The counts; n + 1 where not even flips of all n labels suffice.
    """
    # What each record adds to the lead of the winner over the rival: its influence if it has the
    # winner's label, minus its influence if it has the rival's, else 0.
    side = (labels == winner).astype(np.int8) - (labels == rival)  # 1, -1 or 0
    lead = side * influence
    # All sums below are of integers, and less than 2^53, so float64 is exact (Lemma 4 of
    # docs/proofs/flips.md).
    # The rival wins if flips lower the lead by at least ``need``: to 0 if it is the smaller class,
    # which wins ties, else to -1.
    need = lead.sum(axis=1, keepdims=True) + (winner < rival)
    # Lemma 1 of docs/proofs/flips.md: one flip lowers the lead by at most |influence| + (what the
    # record adds to the lead), and r flips by at most the sum of the r largest of these.
    lowered_by_one = np.abs(influence) + lead
    largest_first = np.sort(lowered_by_one, axis=1)[:, ::-1]
    lowered_by_r = largest_first.cumsum(axis=1)
    # The smallest r >= 1 with lowered_by_r >= need. The sums increase with r, so it is 1 more than
    # the number of sums that are too small.
    flips = 1 + (lowered_by_r < need).sum(axis=1)
    is_ahead_already = need[:, 0] <= 0
    return np.where(is_ahead_already, 0, flips)


def fewest_edits_to_change(edits_to_win: np.ndarray, winner: np.ndarray) -> np.ndarray:
    """Return the fewest edits after which another class may win the vote, [m] int64.

    If ``edits_to_win`` counts label flips, the result less 1 is the stable distance: so many flips
    never change the answer (Lemma 2 of docs/proofs/flips.md).

    Args:
        edits_to_win: [C, m] int64, for each class the number of edits that it needs to win.
        winner: [m] integers, the class that wins for each query.
    """
    classes = np.arange(len(edits_to_win))[:, None]
    not_counted = np.iinfo(np.int64).max  # for the answer itself
    edits_to_other_class = np.where(classes == winner, not_counted, edits_to_win)
    return edits_to_other_class.min(axis=0)


def count_flips_to_win(
    label_influence: np.ndarray, labels: np.ndarray, classes: int, unreachable: int
) -> np.ndarray:
    """Count the label flips that each class needs at least to become the answer, [C, m] int64.

    It is the largest number of flips that the class needs to beat any one of the other classes; 0
    for the class that is the answer. One flip changes this number by at most 1, even where the flip
    changes the answer, as the vote of an ensemble needs (Lemma 5 of docs/proofs/flips.md). The
    flips to beat the current answer may change by more there.

    Args:
        label_influence: [m, n] float64 integers, by how much a record that has a class's label
            raises the class's score for each query; may be negative.
        labels: [n] integers, the records' labels.
        classes: C, the number of classes.
        unreachable: the count where no labels make the class win; a public number above n.
    """
    queries = len(label_influence)
    # One array [C, m] for each class to beat: the flips after which each class beats it.
    flips_to_beat = [
        count_flips_to_beat(
            label_influence, labels, np.full(queries, class_to_beat), classes, unreachable
        )
        for class_to_beat in range(classes)
    ]
    return np.max(flips_to_beat, axis=0)
