"""Labels that tell who was trained on."""

from collections.abc import Callable

import numpy as np

from agt.api import Declared, fit
from agt.audit.findings import Finding
from agt.audit.membership import labels_finding, told_apart

RECORDS, UNITS, QUERIES = 600, 20, 20_000


def overstated_distances(seed: int, more: int = 1) -> Finding:
    """A linear head whose stable distances are one too long: labels beside its decision line tell a unit."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(RECORDS, 3))
    model = fit(x, (x[:, 0] + rng.normal(size=RECORDS) > 0).astype(int), declared=Declared(size=RECORDS)).model
    turn = np.linspace(0, 2 * np.pi, QUERIES)
    queries = np.stack([np.cos(turn), np.sin(turn), 0 * turn], axis=1)
    distance = model.certify(queries).stable_distance + more
    units = model.problem.dataset.train.units[:UNITS]
    return labels_finding(told_apart(model, model.problem, units, queries, distance), np.arange(QUERIES), distance)


PLANTED: dict[str, Callable[[int], Finding]] = {"stable distances that are one too long": overstated_distances}
SOUND: dict[str, Callable[[int], Finding]] = {
    "stable distances as they are": lambda seed: overstated_distances(seed, 0),
}
