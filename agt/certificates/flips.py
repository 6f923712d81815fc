"""How many labels must change before a ridge regression's answer does, exactly."""

import numpy as np


def count_flips_to_beat(
    label_influence: np.ndarray,
    labels: np.ndarray,
    class_to_beat: np.ndarray,
    classes: int,
    unreachable: int,
) -> np.ndarray:
    """Count the label flips after which each class beats a given class, [C, m] int64.

    A class's score is the sum of the influences of the records that have its label. A class beats
    another if its score is greater, or equal and the class is the smaller one.

    Args:
        label_influence: [m, n] float64 integers, by how much each record's label moves the score
            of each query.
        labels: [n] the records' labels.
        class_to_beat: [m] for each query, the class that is to be beaten.
        classes: C.
        unreachable: the count where no labels make the class win; a public number above n.

    Formal guarantees:
        - The counts are exact (Lemma 1 of docs/proofs/flips.md); 0 for the class to be beaten.
        - Where the answer is to be beaten, the least count of another class changes by at most 1
          with one label, and is 1 on both sides if the answer changes (Lemma 3 of
          docs/proofs/flips.md).
    """
    flips_of_class = np.zeros((classes, len(class_to_beat)), dtype=np.int64)
    for rival in range(classes):
        queries = np.flatnonzero(class_to_beat != rival)
        winner = class_to_beat[queries, None]
        influence = label_influence[queries]
        # All sums are exact in float64 (Lemma 4 of docs/proofs/flips.md).
        # What each record adds to the lead of the winner over the rival.
        side = (labels == winner).astype(np.int8) - (labels == rival)
        lead = side * influence
        # The lead is an integer, and a tie goes to the smaller class.
        need = lead.sum(axis=1, keepdims=True) + (winner < rival)
        # By how much one flip of each record, and the best r flips, can lower the lead.
        lowered_by_one = np.abs(influence) + lead
        largest_first = np.sort(lowered_by_one, axis=1)[:, ::-1]
        lowered_by_r = largest_first.cumsum(axis=1)
        flips = 1 + (lowered_by_r < need).sum(axis=1)
        flips *= need[:, 0] > 0  # a rival that is ahead already needs none
        is_unreachable = flips > len(labels)
        flips_of_class[rival, queries] = np.where(is_unreachable, unreachable, flips)
    return flips_of_class


def fewest_edits_to_change(edits_to_win: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return the least price of another class than the answer, [m] int64.

    Less 1 it is the stable distance, where edits_to_win count flips (Lemma 2 of docs/proofs/flips.md).

    Args:
        edits_to_win: [C, m] int64.
        answers: [m] the answered class of each query.
    """
    classes = np.arange(len(edits_to_win))[:, None]
    never = np.iinfo(np.int64).max
    edits_to_other_class = np.where(classes == answers, never, edits_to_win)
    return edits_to_other_class.min(axis=0)


def count_flips_to_win(
    label_influence: np.ndarray, labels: np.ndarray, classes: int, unreachable: int
) -> np.ndarray:
    """Count the label flips without which each class is not answered, [C, m] int64.

    It is the greatest number of flips that a class needs to beat any other one. Unlike the flips to
    beat the answer it moves by at most 1 for each flip, as a vote's edits_to_win must (Lemma 5 of
    docs/proofs/flips.md). The answered class has 0.

    Args:
        label_influence: [m, n] float64 integers, by how much each record's label moves the score
            of each query.
        labels: [n] the records' labels.
        classes: C.
        unreachable: the count where no labels make the class win; a public number above n.
    """
    queries = len(label_influence)
    flips = [
        count_flips_to_beat(
            label_influence, labels, np.full(queries, class_to_beat), classes, unreachable
        )
        for class_to_beat in range(classes)
    ]
    return np.max(flips, axis=0)
