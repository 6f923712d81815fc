"""Answers given while people wait to be erased, against training again without every set of them."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from agt.api import Declared, Fitted, fit
from agt.facts import declared, void
from agt.unlearning.sisa import gaps

N, WAITING = 24, 2
RNG = np.random.default_rng(3)
Y = np.arange(N) % 2
X = (RNG.normal(size=(N, 2)) + 1.5 * np.where(Y == 1, 1, -1)[:, None]).round(3)
LINE = np.linspace(-1, 1, 400)
QUERIES = np.stack([LINE, LINE + 0.1 * RNG.normal(size=400)], axis=1)
SAID = Declared(classes=(0, 1), size=N, features=True, settings=True, ids=True)
BOX = {"certificate": "box", "network": (), "epochs": 2, "lr": 0.5, "clip": 0.5, "compute": {"kernel": "reference"}}
HEAD = {"certificate": "stability", "epochs": 4, "lr": 0.5, "clip": 0.5, "compute": {"kernel": "reference"}}


def trained(kept: np.ndarray, **settings: Any) -> Fitted:
    names = np.array([f"r{row}" for row in range(N)])
    return fit(X[kept], Y[kept], ids=names[kept], declared=SAID, ks=4, **settings)


@pytest.mark.parametrize(
    ("relation", "settings"),
    [
        *((name, BOX) for name in ("remove", "paper_privacy", "paper_unlearning")),
        *((name, HEAD) for name in ("add_remove", "substitute")),
    ],
    ids=str,
)
def test_no_answer_changes_whoever_goes(relation: str, settings: dict[str, Any]) -> None:
    everyone, near = np.arange(N), QUERIES * (40.0 if settings is not HEAD else 1.0)
    model = trained(everyone, relation=relation, **settings)
    assert gaps(model.model.problem.settings, model.conditions) == []
    answers = model.certify(near)
    answered = answers.certificates.stable_distance >= WAITING
    assert answered.any()
    changed = np.zeros(len(near), dtype=bool)
    for gone in list(combinations(range(N), WAITING))[::7]:
        without = trained(np.setdiff1d(everyone, gone), relation=relation, **settings)
        changed |= without.predict(near) != answers.labels
    assert not changed[answered].any()
    assert changed.any(), "whoever answered every query would be caught here"


def test_what_certificates_of_a_run_do_not_say() -> None:
    model = fit(X, Y, ks=4, **HEAD)  # nothing is declared
    settings, conditions = model.model.problem.settings, model.conditions
    found = " ".join(gaps(settings, conditions))
    assert "normaliser 24 was derived from the number of records" in found
    assert settings.choices.why not in found, "what settings were chosen on leaves the training what it is"
    assert gaps(settings, trained(np.arange(N), **HEAD).conditions) == []
    constants = next(c for c in conditions if c.letter == "e")
    read = void("a range was read off the records")
    worse = (*trained(np.arange(N), **HEAD).conditions[:4], constants.and_(read))
    assert read.why in gaps(settings, worse)
    assert gaps(settings, worse, compared=(*constants.grounds.facts, read)) == []
    assert gaps(settings, worse, compared=(declared("x", "y"),)) != []
    removing = fit(X, Y, ks=4, relation="remove", declared=SAID, **HEAD)
    assert "counts private records alone" in gaps(removing.model.problem.settings, removing.conditions, public=True)[0]
    drawn = np.arange(N) < 8
    features = {"map": "landmarks", "count": 4, "public": "train", "ridge": 1e-3}
    shown = fit(X, Y, ks=4, declared=SAID, public=drawn, features=features, ids=np.arange(N).astype(str), **HEAD)
    assert "made from public rows" in gaps(shown.model.problem.settings, shown.conditions, public=True)[0]
    assert gaps(shown.model.problem.settings, shown.conditions, public=False) == []
