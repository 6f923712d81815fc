"""Looseness: the truth lies between what is certified and what an attack finds."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agt_cli._experiments.experiment import Profile
from agt_cli._experiments.looseness import influences
from agt_cli._experiments.runs import Runs
from reproducing import an_entry, rows_of
from scipy.special import expit

from agt_audit.neighbours import retrained
from agt_cli.report.console import Console

FEW = (
    "dataset=blobs_overlapping",
    "dataset.n_train=6",
    "dataset.test_fraction=1",
    "model=linear",
    "training.chosen_on=null",
)
MINIMISED = ("certificate=erm", "training=recipe", "training.weight_decay=0.03")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", ["remove", "add_remove"])
def test_the_truth_lies_between_certificate_and_attack(tmp_path: Path, relation: str) -> None:
    """And is what trying every removal by hand finds, where records only go."""
    entry = an_entry("looseness", tmp_path, (*FEW, *MINIMISED), {"ours": Profile(privacy=relation)})  # type: ignore[arg-type]
    rows = rows_of(entry, small=[{"label": "few"}], large=[{"label": "few, too"}], queries=4)
    few, larger = (rows[rows["panel"] == title] for title in ("few", "few, too"))
    assert (few["certified"] <= few["exact"]).all()
    assert (few["exact"] <= few["attacked"]).all()
    assert larger["exact"].isna().all()
    assert (few["attacked"].to_numpy() == larger["attacked"].to_numpy()).all()
    if relation == "remove":
        model = entry.model("ours", [])
        queries = model.problem.dataset.test.features[:4]
        train = model.problem.dataset.train
        nominal = model.predict(queries)
        least = np.full(4, 7)
        for kept in product([False, True], repeat=6):
            other = retrained(model.problem, train.take(np.array(kept)), (0,)).predict(queries)
            least = np.where(other != nominal, np.minimum(least, 6 - sum(kept)), least)
        assert few["exact"].tolist() == least.tolist()
        assert (least < 7).any()


def test_the_attack_goes_by_the_records_gradients(tmp_path: Path) -> None:
    """Of a linear head on one logit: residual times inner product, towards the query's label."""
    model: Any = Runs(tmp_path, (), Console(quiet=True)).model((*FEW, *MINIMISED), "one logit")
    records = model.problem.dataset.train
    queries = model.problem.dataset.test.features
    phi = model.phi(records.features)
    weight = model.trained.weight.numpy()
    for query in (queries[:1], queries[1:2]):
        label = torch.from_numpy(model.predict(query))
        found = influences(model, records, query, label) / 2e-4
        pull = (phi @ model.phi(query).T)[:, 0] * (2 * label.item() - 1)
        np.testing.assert_allclose(
            found, (expit(phi @ weight.T)[:, 0] - records.labels) * pull, rtol=1e-5
        )
