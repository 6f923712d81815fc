"""A student trained on labels bought from a private prediction mechanism (001, Table 1).

Formal guarantees
    The student is a function of public queries and of the released labels alone, so it inherits the labels' guarantee,
    whatever is done with it afterwards (post-processing). That holds only if nothing else reaches it: the queries and all
    of ``training`` must be public, and every query whose label was bought is used, whatever its certificate.
"""

import numpy as np
from torch import Tensor, nn

from agt.data.dataset import UNLABELLED, Records
from agt.errors import ConfigError
from agt.settings import TrainingConfig
from agt_cli.papers.baselines.sgd import train_sgd


def train_student(
    head: nn.Sequential, classes: int, queries: np.ndarray, answers: np.ndarray, training: TrainingConfig
) -> dict[str, Tensor]:
    """Plain SGD on the queries that have an answer.

    Args:
        head: the student's initial parameters; left unchanged.
        queries: [n, ...] public features.
        answers: [n] released labels; ``UNLABELLED`` where none was bought.

    Returns:
        name -> the student's parameters.

    Raises:
        ConfigError: shapes that disagree, or no answer at all.
    """
    if answers.shape != (len(queries),):
        raise ConfigError(f"answers have shape {answers.shape} and there are {len(queries)} queries: one label each")
    bought = np.flatnonzero(answers != UNLABELLED)
    if not len(bought):
        raise ConfigError("the student has no labels: buy at least one answer")
    names = np.array([f"query{row}" for row in bought])
    public = np.ones(len(bought), dtype=bool)
    records = Records(queries[bought], answers[bought].astype(np.int64), names, names, public)
    return train_sgd(head, classes, records, len(bought), training)
