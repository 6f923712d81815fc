"""Figures of erasure requests: who is answered while they wait, and what methods cost."""

import math
from pathlib import Path

import numpy as np
import pytest
from agt_cli._experiments.erasure_requests import (
    AT_RANDOM,
    SPREAD,
    WITH,
    WITHOUT,
    answered_at_random,
    spread_requests,
)
from agt_cli._experiments.experiment import Profile
from reproducing import BOTH_PROFILES, REMOVAL_HEAD, an_entry, rows_of

from agt.unlearning.sisa import answerable

WAITING = (
    "experiment=blobs_overlapping",
    "model=linear",
    "dataset.n_train=200",
    "kgrid=dense",
    "kgrid.max=8",
)


def test_one_request_a_shard_takes_an_ensemble_offline_unless_it_is_certified() -> None:
    labels = np.zeros((4, 10), dtype=int)
    home = np.repeat(np.arange(4), 25)
    everywhere = spread_requests(4, 4)
    assert everywhere.tolist() == [1, 1, 1, 1]
    assert not answerable(np.zeros_like(labels), labels, everywhere).any()
    assert answerable(np.ones_like(labels), labels, everywhere).all()
    assert spread_requests(4, 6).tolist() == [2, 2, 1, 1]

    def shares(distance: int) -> list[float]:
        distances = np.full_like(labels, distance)
        rng = np.random.default_rng(0)
        counts = (0, 1, 4, 100)
        return [answered_at_random(distances, labels, home, count, rng) for count in counts]

    offline = shares(0)
    assert offline[0] == offline[1] == 1 > offline[2] > offline[3] == 0
    assert shares(25) == [1, 1, 1, 1]


@pytest.mark.sweep
def test_certificates_keep_an_ensemble_answering(tmp_path: Path) -> None:
    entry = an_entry(
        "answered_while_waiting",
        tmp_path,
        WAITING,
        {"ours": Profile(privacy="remove", unlearning="remove")},
    )
    rows = rows_of(entry, run=[], members=3, requests=[1, 4, 20], draws=4)
    share = rows.set_index(["certificates", "who", "requests"])["answered"]
    for who in (AT_RANDOM, SPREAD):
        assert share[WITH, who, 1] >= share[WITH, who, 4] >= share[WITH, who, 20]
        assert share[WITH, who, 4] > share[WITHOUT, who, 4]
        assert share[WITHOUT, who, 20] == 0
    assert rows["d log d"].eq(3 * math.log(3)).all()


def test_methods_are_compared_on_the_same_requests(tmp_path: Path) -> None:
    certified = [
        "model=linear",
        "training=recipe",
        "certificate=stability",
        "certificate.features.bias=0.1",
    ]
    one = {
        "label": "digits",
        "data": "small digits",
        "removal": REMOVAL_HEAD[1:],
        "certified": certified,
        "ensemble": ["ensemble.members=2"],
    }
    entry = an_entry(
        "erasure_methods",
        tmp_path,
        ("dataset=digits", "compute.threads=1"),
        {"ours": BOTH_PROFILES["ours"]},
    )
    rows = rows_of(entry, sets=[one], requests=2).set_index("method")
    assert set(rows.index) == {"newton", "sisa", "retrain", "certificate"}
    assert rows["accuracy after"]["newton"] == pytest.approx(
        rows["accuracy after"]["retrain"], abs=0.02
    )
    assert rows["seconds"]["certificate"] == 0
    assert rows["promise"]["newton"].startswith("(1, 0.0001)")
    assert rows["promise"]["sisa"] == rows["promise"]["retrain"] == "exact, adaptive"
