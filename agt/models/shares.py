"""Shares of the classes for any model: how likely each class is, or how often it is voted for.

Shares are [n, C] float64, at least 0, and each row adds up to 1 up to rounding. The label that a
model predicts is the first of the largest shares, unless two outputs differ by less than rounding.
Certificates say nothing about shares.
"""

import numpy as np
from scipy.special import expit, softmax


def logistic_shares(margins: np.ndarray) -> np.ndarray:
    """Return the sigmoid or softmax of logits, computed from their margins.

    Args:
        margins: as ``agt.numeric.signed_margins`` returns them: of two classes [1, n], the logit of
            class 1 less that of class 0; of more [C, n], each logit less the largest other.

    Returns:
        [n, C] shares.
    """
    if len(margins) == 1:
        share_of_class_1 = expit(margins[0])
        return np.stack([1 - share_of_class_1, share_of_class_1], axis=1)
    # A logit less the largest of all is min(margin, 0), and softmax ignores what is subtracted
    # from all logits.
    differences_from_largest = np.minimum(margins, 0)
    return np.asarray(softmax(differences_from_largest, axis=0).T)


def shares_of_leads(leads: np.ndarray) -> np.ndarray:
    """Return shares that add up to 1, from how far each one leads the largest of the others.

    Args:
        leads: of two classes [1, n], the share of class 1 less that of class 0; of more classes
            [C, n], each share less the largest other.

    Returns:
        [n, C] shares.
    """
    if len(leads) == 1:
        lead_of_class_1 = leads[0]
        return np.stack([1 - lead_of_class_1, 1 + lead_of_class_1], axis=1) / 2
    differences_from_largest = np.minimum(leads, 0)
    # The shares add up to 1, so that C times the largest is 1 less the sum of the differences.
    largest = (1 - differences_from_largest.sum(axis=0)) / len(differences_from_largest)
    return np.asarray((differences_from_largest + largest).T)
