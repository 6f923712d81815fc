"""What a claim says for people."""

from dataclasses import replace

import pytest
from conditions import HELD, without

from agt import sentences
from agt.errors import ConfigError
from agt.mechanisms.claims import Claim
from agt.mechanisms.judging import judge_claim
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.output import Output
from agt.mechanisms.published import SmoothCauchy
from agt.settings import RelationConfig

ADD_REMOVE = RelationConfig("add_remove")
RESPONSE = RandomizedResponse(eps=0.1)


CLAIMS = [
    (
        judge_claim(HELD, ADD_REMOVE, RESPONSE),
        "0.1-differentially private per query for add_remove neighbours (one record added or "
        "removed)",
    ),
    (
        judge_claim(HELD, RelationConfig("add_remove", 3), GaussianMargin(mu=0.07)),
        "0.07-Gaussian differentially private per query for add_remove neighbours "
        "(one unit of up to 3 records added or removed)",
    ),
    (
        judge_claim(HELD, RelationConfig("substitute"), RESPONSE),
        "one record replaced by another",
    ),
    (
        judge_claim(HELD, RelationConfig("paper_privacy"), RESPONSE),
        "one record removed and, at the same time, one added",
    ),
    (
        judge_claim(without("a", "c"), ADD_REMOVE, SmoothCauchy(eps=1.0), "paper"),
        "NO PROOF OF PRIVACY, because conditions a, c are not met",
    ),
    (
        judge_claim(without("b"), ADD_REMOVE, SmoothCauchy(eps=1.0), "paper"),
        "condition b is not met",
    ),
    (
        judge_claim(without("c"), ADD_REMOVE, RandomizedResponse(eps=20.0), "paper"),
        "NO PROOF OF PRIVACY, because condition c is not met. The mechanism's paper claims: "
        "20-differentially private per query",
    ),
    (
        judge_claim(HELD, ADD_REMOVE, SmoothCauchy(eps=1.0), "paper"),
        "Although this release does not require a proof, its guarantee is proved",
    ),
    (
        judge_claim(HELD, ADD_REMOVE, SmoothCauchy(eps=1.0), "paper", voting="published"),
        "NO PROOF OF PRIVACY, because the published stable distance",
    ),
    (
        judge_claim(HELD, ADD_REMOVE, RandomizedResponse(eps=50.0), output=Output.NUMBER),
        "50-differentially private for the single published number for add_remove neighbours",
    ),
]


@pytest.mark.parametrize(("made", "sentence"), CLAIMS, ids=[text for _, text in CLAIMS])
def test_claims_say_what_is_proved(made: Claim, sentence: str) -> None:
    assert sentence in made.text


def test_a_simulation_says_of_each_line_what_it_would_be() -> None:
    words = replace(judge_claim(HELD, ADD_REMOVE, RESPONSE), simulated=True).lines()
    assert words[0].startswith("SIMULATION")
    assert all(line.startswith("without a seed, this would hold: ") for line in words[1:])


def test_a_claim_without_recorded_reasons_says_that_nothing_is_proved() -> None:
    text = sentences.no_proof("labels", "20-differentially private", ())
    assert text.startswith("NO PROOF OF PRIVACY. The mechanism's paper claims: 20-diff")


def test_what_is_spent() -> None:
    one_number = judge_claim(HELD, ADD_REMOVE, RandomizedResponse(eps=50.0), output=Output.NUMBER)
    assert one_number.total_sentences == ["in all: 50-differentially private"]


@pytest.mark.parametrize("letter", "abcdefg")
def test_a_refusal_says_which_condition_does_not_hold_and_why(letter: str) -> None:
    with pytest.raises(ConfigError) as error:
        judge_claim(without(letter), ADD_REMOVE, RESPONSE)
    sentence = f"condition {letter} (name of {letter}) is not met: why not {letter}"
    assert sentence in str(error.value)
