"""Probabilities of the classes from a model's margins: by sigmoid or softmax, or as vote fractions.

They are called shares: [n, C] float64, at least 0, and each row adds up to 1 up to rounding. The
predicted label is the first class with the largest share, unless two outputs differ by less than
rounding errors. No certificate is about them.
"""

import numpy as np
from scipy.special import expit, softmax


def logistic_shares(margins: np.ndarray) -> np.ndarray:
    """Return the probabilities of the classes [n, C]: the sigmoid or softmax of the logits.

    The logits are not needed, because softmax depends only on their differences.

    Args:
        margins: the margins that ``agt.numeric.signed_margins`` returns: for two classes [1, n],
            the logit of class 1 less the logit of class 0; for more classes [C, n], each logit less
            the largest logit of the other classes.
    """
    if len(margins) == 1:
        share_of_class_1 = expit(margins[0])
        return np.stack([1 - share_of_class_1, share_of_class_1], axis=1)
    # min(margin, 0) is the logit less the largest of all logits. Subtracting one number from all
    # logits leaves the softmax as it is.
    differences_from_largest = np.minimum(margins, 0)
    return np.asarray(softmax(differences_from_largest, axis=0).T)


def shares_of_leads(leads: np.ndarray) -> np.ndarray:
    """Return the fractions of the votes [n, C] for each class, from their differences.

    It is the inverse of ``agt.numeric.signed_margins`` for numbers that add up to 1 over the
    classes.

    Args:
        leads: the differences of the fractions: for two classes [1, n], the fraction of class 1
            less that of class 0; for more classes [C, n], each fraction less the largest of the
            other classes.
    """
    if len(leads) == 1:
        lead_of_class_1 = leads[0]
        return np.stack([1 - lead_of_class_1, 1 + lead_of_class_1], axis=1) / 2
    # min(lead, 0) is the fraction less the largest of all fractions.
    differences_from_largest = np.minimum(leads, 0)
    # The fractions add up to 1: C times the largest plus the sum of the differences.
    largest = (1 - differences_from_largest.sum(axis=0)) / len(differences_from_largest)
    return np.asarray((differences_from_largest + largest).T)
