"""The gate between certificates and mechanisms: what may be claimed, and every refusal."""

import re

import numpy as np
import pytest
from conditions import HELD, without
from synthetic import SYMMETRIC

from agt.certificates.box import count_grid_steps
from agt.errors import ConfigError
from agt.mechanisms.argmax import NoisyArgmax
from agt.mechanisms.judging import judge_claim
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.output import Output
from agt.mechanisms.published import GlobalSensitivity, SmoothCauchy
from agt.settings import RelationConfig

ADD_REMOVE = RelationConfig("add_remove")
MECHANISM = RandomizedResponse(eps=0.1)


def test_claims() -> None:
    for relation in (ADD_REMOVE, RelationConfig("add_remove", 3), RelationConfig("paper_privacy")):
        for mechanism in (MECHANISM, GaussianMargin(mu=0.07)):
            made = judge_claim(HELD, relation, mechanism)
            assert made.proved
            assert (made.guarantee, made.relation) == (mechanism.guarantee, relation)


@pytest.mark.parametrize("letter", "abcdefg")
def test_rigorous_refuses_each_condition(letter: str) -> None:
    with pytest.raises(ConfigError) as error:
        judge_claim(without(letter), ADD_REMOVE, MECHANISM)
    text = str(error.value)
    assert re.search(rf"condition {letter}\b.*\bname of {letter}\b.*\bwhy not {letter}\b", text)
    assert "unproved=allow" in text
    assert ("counting=index" in text) == (letter == "a")


def test_a_refusal_names_every_condition_that_is_not_met() -> None:
    for output in (Output.LABELS, Output.WEIGHTS):
        with pytest.raises(ConfigError, match=r"(?s)condition c\b.*\be\b"):
            judge_claim(without("c", "e"), ADD_REMOVE, MECHANISM, output=output)


def test_a_condition_that_nobody_assessed_does_not_hold() -> None:
    with pytest.raises(ConfigError, match="condition f"):
        judge_claim([c for c in HELD if c.letter != "f"], ADD_REMOVE, MECHANISM)
    with pytest.raises(ConfigError, match="condition a"):
        judge_claim([], ADD_REMOVE, MECHANISM)


def test_index_counting_replaces_the_dense_grid_alone() -> None:
    assert judge_claim(without("a"), ADD_REMOVE, MECHANISM, counting="index").proved
    with pytest.raises(ConfigError, match="condition c"):
        judge_claim(without("a", "c"), ADD_REMOVE, MECHANISM, counting="index")


@pytest.mark.parametrize("relation", ["remove", "paper_unlearning"])
@pytest.mark.parametrize("accounting", ["rigorous", "paper"])
@pytest.mark.parametrize("mechanism", [MECHANISM, GlobalSensitivity(eps=1.0), NoisyArgmax(eps=1.0)])
def test_one_sided_relations_never(relation: str, accounting: str, mechanism) -> None:
    with pytest.raises(ConfigError, match="condition g"):
        judge_claim(HELD, RelationConfig(relation), mechanism, accounting)


def test_paper_says_that_there_is_no_proof() -> None:
    found = judge_claim(without("a", "c"), ADD_REMOVE, SmoothCauchy(eps=1.0), "paper")
    assert not found.proved
    assert found.reasons == ("a", "c")
    one = judge_claim(without("b"), ADD_REMOVE, SmoothCauchy(eps=1.0), "paper")
    assert (one.proved, one.reasons) == (False, ("b",))


def test_paper_where_everything_holds_is_proved_and_says_so() -> None:
    found = judge_claim(HELD, ADD_REMOVE, SmoothCauchy(eps=1.0), "paper")
    assert found.proved
    assert not found.reasons
    assert found.accounting == "paper"


@pytest.mark.parametrize("relation", SYMMETRIC)
def test_the_certified_vote_takes_every_symmetric_relation(relation: str) -> None:
    assert judge_claim(HELD, RelationConfig(relation), MECHANISM, voting="certified").proved


def test_published_ensembles_are_no_proof() -> None:
    with pytest.raises(ConfigError, match="unproved=refuse"):
        judge_claim(HELD, ADD_REMOVE, SmoothCauchy(eps=1.0), voting="published")
    found = judge_claim(HELD, ADD_REMOVE, SmoothCauchy(eps=1.0), "paper", voting="published")
    assert not found.proved
    assert found.reasons == ("published_vote",)


def nested(ks: list[int], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Certified [K, n] of D and of a neighbour: thresholds on true distances that differ by at
    most 1.
    """
    draw = np.random.default_rng(seed)
    far = draw.integers(-1, 70, n)
    near = np.maximum(far + draw.integers(-1, 2, n), -1)
    grid = np.array(ks)[:, None]
    return far >= grid, near >= grid


@pytest.mark.parametrize("ks", [[0, 50], [1, 5, 10, 50], [0, 1, 2, 3], [0, 10, 20, 60], [7]])
def test_grid_index_is_lipschitz_and_positive_only_where_the_label_stands(ks: list[int]) -> None:
    one, other = nested(ks, 20_000, seed=1)
    index = count_grid_steps(ks, one)
    assert (abs(index - count_grid_steps(ks, other)) <= 1).all()
    positive = [k for k in ks if k >= 1]
    assert index.max() == len(positive)
    assert (one[ks.index(positive[0])] == (index > 0)).all()  # some k >= 1 is certified


def test_counting_the_zero_of_the_grid_too_would_break() -> None:
    """With the raw number of certified values, k = 0 alone would count as 1, where a neighbour
    may have another label.
    """
    assert count_grid_steps([0, 50], np.array([[True], [False]])).tolist() == [0]
    assert count_grid_steps([5, 50], np.array([[True], [False]])).tolist() == [1]
    assert count_grid_steps([0, 1, 2], np.array([[False], [True], [True]])).tolist() == [0]
