"""A mechanism's budget is stated once: its own, or a total for the whole call."""

from typing import Any

import pytest

from agt.errors import ConfigError
from agt.mechanisms.composition import total
from agt.mechanisms.mechanism_config import MechanismConfig
from agt.mechanisms.objective import ObjectivePerturbation
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.statistics import NoisyStatistics
from agt.mechanisms.totals import total_of_weights
from agt.mechanisms.weights import ReleaseWeights
from agt.settings import TotalConfig

WHOLE = TotalConfig(eps=2.0, delta=1e-5)
NONE = TotalConfig()


def config(kind: type[Any], whole: TotalConfig = NONE, **settings: Any) -> MechanismConfig:
    return MechanismConfig.from_settings(
        {"_target_": f"{kind.__module__}.{kind.__qualname__}", **settings}, whole
    )


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (RandomizedResponse, ["mechanism.eps for each query"]),
        (GaussianMargin, ["mechanism.mu for each query"]),
        (CertifiedQuantile, ["mechanism.eps"]),
        (ReleaseWeights, ["weights", "or mechanism.mu"]),
        (ObjectivePerturbation, ["weights", "or mechanism.eps and mechanism.delta"]),
    ],
)
def test_without_a_budget_the_mechanism_s_own_parameters_are_named(
    kind: type[Any], keys: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        config(kind)
    assert all(key in str(refused.value) for key in ("total.eps", *keys))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (RandomizedResponse, {"eps": 1.0}),
        (RandomizedResponse, {"delta": 1e-5}),
        (ReleaseWeights, {"mu": 1.0}),
        (ObjectivePerturbation, {"eps": 1.0, "delta": 1e-5}),
    ],
)
def test_two_budgets_are_refused(kind: type[Any], settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=rf"total\.eps.*mechanism\.{next(iter(settings))}\b"):
        config(kind, WHOLE, **settings)


@pytest.mark.parametrize(
    "kind", [GaussianMargin, ReleaseWeights, ObjectivePerturbation, NoisyStatistics]
)
def test_a_guarantee_that_is_not_pure_needs_a_delta_of_the_total(kind: type[Any]) -> None:
    with pytest.raises(ConfigError, match=rf"mechanism={kind.name}.*total\.delta"):
        config(kind, TotalConfig(eps=2.0))
    assert (
        config(RandomizedResponse, TotalConfig(eps=2.0)).mechanism(2, 5).guarantee.parameters["eps"]
        <= 0.4
    )


@pytest.mark.parametrize("queries", [1, 50])
@pytest.mark.parametrize("kind", [RandomizedResponse, GaussianMargin])
def test_labels_share_a_total_and_weights_and_one_number_take_all_of_it(
    kind: type[Any], queries: int
) -> None:
    labels = config(kind, WHOLE).mechanism(2, queries)
    assert 1.9 < total(labels.guarantee, queries, 1e-5).eps <= 2.0
    capped = config(kind, TotalConfig(eps=2.0, delta=1e-5, queries=100)).mechanism(2, queries)
    assert total(capped.guarantee, 100, 1e-5).eps <= 2.0
    weights = config(ReleaseWeights, WHOLE).mechanism(2, queries)
    assert 1.9 < total_of_weights(weights.guarantee, 1e-5).eps <= 2.0
    assert config(CertifiedQuantile, WHOLE, fraction=0.25).mechanism(
        2, queries
    ) == CertifiedQuantile(2.0, 0.25)


def test_settings_beside_the_budget_are_kept() -> None:
    statistics = config(NoisyStatistics, WHOLE, width=5, seed=3).mechanism(2, 1)
    assert isinstance(statistics, NoisyStatistics)
    assert (statistics.width, statistics.seed) == (5, 3)
    assert config(ReleaseWeights, mu=0.5).mechanism(2, 1) == ReleaseWeights(mu=0.5)
    assert config(RandomizedResponse, eps=0.5, classes=None).mechanism(7, 1) == RandomizedResponse(
        eps=0.5, classes=7
    )


def test_which_mechanisms_release_weights_and_read_records_is_their_own_word() -> None:
    told = {
        kind: (config(kind, WHOLE).releases_weights, config(kind, WHOLE).reads_records)
        for kind in (
            RandomizedResponse,
            CertifiedQuantile,
            ReleaseWeights,
            ObjectivePerturbation,
            NoisyStatistics,
        )
    }
    assert told == {
        RandomizedResponse: (False, False),
        CertifiedQuantile: (False, False),
        ReleaseWeights: (True, False),
        ObjectivePerturbation: (True, True),
        NoisyStatistics: (True, True),
    }


@pytest.mark.parametrize("node", [None, 3, {}, {"_target_": "agt.mechanisms.mechanism.Mechanism"}])
def test_what_is_no_mechanism_is_refused(node: object) -> None:
    with pytest.raises(ConfigError, match="mechanism"):
        MechanismConfig.from_settings(node, WHOLE)
