"""Releases from a model, without a command line: the claim before the evidence, everything before the draw."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.facts import grounds, proved, void
from agt.mechanisms.argmax import NoisyArgmax
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.output import Output
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.releases import prepare_labels, prepare_quantile, prepare_weights, totals_of
from agt.mechanisms.weights import ReleaseWeights
from agt.numeric import SeededRandomness, SystemRandomness
from agt.settings import RelationConfig
from agt_cli.releasing.release import ReleaseRequest

HELD = tuple(Condition(letter, f"name of {letter}", grounds(proved("it holds"))) for letter in "abcdefg")
BROKEN = tuple(replace(c, grounds=grounds(void("it does not"))) if c.letter == "c" else c for c in HELD)
QUERIES = np.zeros((4, 2))
RESPONSE = RandomizedResponse(eps=20.0)
RELATION = RelationConfig("add_remove")


@dataclass
class Model:
    """A model whose labels are 0, 1, 0, 1 at distances 0..3, and which counts how often it is asked to certify."""

    members: int = 1
    classes: int = 2
    noise: object = None
    conditions: tuple[Condition, ...] = HELD
    certified: list[int] = field(default_factory=list)
    farthest = 3
    linear_head = None
    metrics = {"k_max": 3}  # noqa: RUF012

    @property
    def problem(self) -> Any:
        settings = SimpleNamespace(
            relation=RelationConfig("add_remove"), ensemble=SimpleNamespace(members=self.members), noise=self.noise
        )
        return SimpleNamespace(settings=settings, classes=self.classes)

    def check(self, features: np.ndarray) -> None:
        """Takes them all."""

    def certify(self, features: np.ndarray, ks: object = None, on_progress: object = None) -> Certificates:
        self.certified.append(len(features))
        held = np.arange(4)[:, None] <= np.arange(4)[None]
        return Certificates((0, 1, 2, 3), "add_remove", np.array([0, 1, 0, 1]), held)


def test_labels_with_their_claim_and_totals() -> None:
    model = Model()
    release = prepare_labels(model, QUERIES, RESPONSE)  # type: ignore[arg-type]
    assert not model.certified, "nothing private before it is paid for"
    assert release.claim.proved
    claim = release.claim
    assert (claim.guarantee, claim.relation, claim.releases, claim.answers) == (RESPONSE.guarantee, RELATION, 4, 4)
    assert (claim.totals[0].eps, claim.totals[0].delta) == (pytest.approx(80), 0.0)
    assert release.draw(SystemRandomness()).tolist()[1:] == [1, 0, 1], "flipped once in 10^17"
    assert model.certified == [4]
    drawn = [release.draw(SeededRandomness(1)).tolist() for _ in range(2)]
    assert drawn[0] == drawn[1]
    words = replace(claim, simulated=True).lines()
    assert words[0].startswith("SIMULATION")
    assert all(line.startswith("drawn without a seed it would be: ") for line in words[1:])
    assert not claim.noisy
    assert prepare_labels(Model(noise=1), QUERIES, RESPONSE).claim.noisy  # type: ignore[arg-type]


REFUSED = [
    (Model(conditions=BROKEN), RESPONSE, "condition c"),
    (Model(classes=3), RESPONSE, "mechanism.classes=2 and the model has 3"),
    (Model(), NoisyArgmax(eps=1.0), "train with ensemble.members=T"),
    (Model(), RandomizedResponse(eps=1.0, delta=1e-5), "spend a delta of 4e-05 alone"),
]


@pytest.mark.parametrize(("model", "mechanism", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_what_is_refused_looks_at_no_distance(model: Any, mechanism: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare_labels(model, QUERIES, mechanism, delta=1e-5)
    assert not model.certified


def test_conditions_may_be_weaker_than_the_model_s_own_and_paper_accounting_says_so() -> None:
    with pytest.raises(ConfigError, match="condition c"):
        prepare_labels(Model(), QUERIES, RESPONSE, conditions=BROKEN)  # type: ignore[arg-type]
    release = prepare_labels(Model(), QUERIES, RESPONSE, conditions=BROKEN, accounting="paper")  # type: ignore[arg-type]
    assert release.claim.reasons == ("c",)
    assert release.claim.lines()[0] == (
        "NO PROOF OF PRIVACY: condition c does not hold. As its paper has it, 20-differentially private per query"
    )
    assert not any("together" in line for line in release.claim.lines()), "a total of what is not proved"
    assert release.claim.spent[0].startswith("all 4 together"), "what is drawn counts, proved or not"


def test_one_number() -> None:
    release = prepare_quantile(Model(), QUERIES, CertifiedQuantile(eps=50.0))  # type: ignore[arg-type]
    assert release.claim.text.startswith("50-differentially private for this one number for add_remove neighbours")
    assert release.claim.spent == ["in all: 50-differentially private"]
    assert release.draw(SystemRandomness()) == 2, "two of the four are certified up to 2"


def test_weights_are_those_of_one_linear_head() -> None:
    with pytest.raises(ConfigError, match="for one linear head"):
        prepare_weights(Model(), ReleaseWeights(mu=1.0))  # type: ignore[arg-type]


def test_totals_are_shown_where_they_say_something() -> None:
    assert [total.delta for total in totals_of_labels(PureDP(0.01), 10_000, 0.0)] == [0, 1e-5]
    assert [total.delta for total in totals_of_labels(GaussianMargin(mu=0.1).guarantee, 3, 1e-6)] == [1e-6]
    assert [total.delta for total in totals_of_labels(ApproximateDP(0.1, 1e-4), 3, 0.0)] == [pytest.approx(6e-4)]
    assert totals_of_labels(GaussianDP(0.1), 1, 1e-5)[0].eps == pytest.approx(0.35, abs=0.02)


@pytest.mark.parametrize(
    ("output", "guarantee"),
    [(Output.WEIGHTS, GaussianDP(0.5)), (Output.WEIGHTS, ApproximateDP(0.5, 1e-6)), (Output.LABELS, GaussianDP(0.5))],
)
def test_a_ledger_is_charged_the_guarantee_that_is_claimed(output: Output, guarantee: Guarantee, tmp_path: Path) -> None:
    environment = {"data_digest": "d" * 32, "dataset": "table"}
    run = SimpleNamespace(
        environment=environment,
        config={"dataset": {}, "relation": {"name": "add_remove"}},
        folder=tmp_path,
        digest="sha256:" + "a" * 64,
    )
    opened: Any = SimpleNamespace(trained=SimpleNamespace(finished=run))
    nothing: Any = None
    request = ReleaseRequest(nothing, "rigorous", "distance", opened, nothing, nothing, nothing)
    charge = request.charge(SimpleNamespace(guarantee=guarantee, output=output, mechanism="release_weights"))  # type: ignore[arg-type]
    assert charge.guarantee == guarantee
    assert charge.output == output.value
