"""What a trained model answers about queries, as the table that is kept of a run."""

import numpy as np
import pandas as pd

from agt.certificates.votes import published_vote
from agt.models.model import Model, VoteCertificates
from agt.models.votes import Votes
from agt_cli.report.console import Console
from agt_cli.runs.prepare import Prepared, certifying


def answers(
    model: Model, features: np.ndarray, prepared: Prepared, labels: np.ndarray | None, console: Console
) -> tuple[pd.DataFrame, tuple[int, ...]]:
    """Certify queries.

    Args:
        features: [n, ...] the queries.
        labels: [n] their true ones, where they are known.

    Returns:
        ``Finished.frame`` and ``Finished.ks``.
    """
    with certifying(model, console) as on_progress:
        certificates = model.certify(features, on_progress=on_progress)
    columns = {"prediction": certificates.prediction, "distance": certificates.stable_distance}
    if labels is not None:
        columns["label"] = labels
    if isinstance(certificates, VoteCertificates) and prepared.classes == 2 and not certificates.by_margins:
        columns["gap"] = certificates.tally
        columns["published_distance"] = published_vote(certificates.members, certificates.member_distances).distance
    return pd.DataFrame(columns), () if isinstance(model, Votes) else certificates.ks
