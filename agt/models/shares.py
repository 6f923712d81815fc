"""One scale for the answers of every model: how likely, or how often voted for, each class is.

Shares are [n, C] float64, at least 0, and each row adds up to 1 but for rounding. The label that a
model predicts is the first of the greatest (two outputs that differ by less than rounding apart).
No certificate is about them.
"""

import numpy as np
from scipy.special import expit, softmax


def logistic_shares(margins: np.ndarray) -> np.ndarray:
    """Return the sigmoid or softmax of logits, from their margins.

    Args:
        margins: as ``agt.numeric.signed_margins`` has them: [1, n] of two classes, else [C, n].
    """
    if len(margins) == 1:
        second = expit(margins[0])
        return np.stack([1 - second, second], axis=1)
    # The best class leads by as much as the second lags, so softmax of the lags is that of logits.
    return np.asarray(softmax(np.minimum(margins, 0), axis=0).T)


def shares_of_leads(leads: np.ndarray) -> np.ndarray:
    """Return shares from how far each leads the greatest of the others.

    Args:
        leads: [1, n] share of class 1 less that of class 0; of more classes [C, n].
    """
    if len(leads) == 1:
        return np.stack([1 - leads[0], 1 + leads[0]], axis=1) / 2
    behind = np.minimum(leads, 0)
    return np.asarray((behind + (1 - behind.sum(axis=0)) / len(behind)).T)
