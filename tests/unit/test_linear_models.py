"""Trained linear heads: what their certificates hold beside stable distances."""

from typing import Any

import numpy as np
import pytest

import agt
from agt.certificates.stability import ClosedFormCertificates
from agt.models.linear import LinearModel

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 5))


def fit(classes: int, **settings: Any) -> agt.Fitted:
    """A head on made-up records."""
    declared = agt.Declared(size=60, features=True, classes=range(classes))
    return agt.fit(X, np.arange(60) % classes, declared=declared, **settings)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("certificate", ["stability", "erm"])
def test_margins_of_certified_queries_have_the_bits_of_margins(
    certificate: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the queries are not asked again: their features take most of the time of large tables."""
    model = fit(classes, certificate=certificate).model
    assert isinstance(model, LinearModel)
    queries = RNG.normal(size=(30, 5))
    monkeypatch.setattr("agt.models.closed_form.ROWS", 7)
    monkeypatch.setattr("agt.models.model.ROWS", 7)
    margins = model.margins(queries)
    certificates = model.certify(queries)
    of_some_k = model.certify(queries, (1, 2))
    assert np.array_equal(model.certified_margins(queries, of_some_k), margins)
    monkeypatch.setattr(LinearModel, "margins", None)
    found = model.certified_margins(queries, certificates)
    assert found.tobytes() == margins.tobytes()
    assert found.shape == margins.shape
    # Blocks share the memory of their features.
    blocks = [model.certify(queries[start : start + 7]) for start in range(0, 30, 7)]
    distances = np.concatenate([block.stable_distance for block in blocks])
    assert np.array_equal(certificates.stable_distance, distances)


def test_members_of_an_ensemble_hold_no_logits() -> None:
    """A vote holds the certificates of hundreds of members at once."""
    for member in fit(2, certificate="stability", members=3).model.member_models:
        certificates = member.certify(X)
        assert isinstance(certificates, ClosedFormCertificates)
        assert certificates.logits is None
