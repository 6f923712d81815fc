"""Releases from a model, without a command line: the claim before the evidence, everything
before the draw.
"""

import copy
import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from releasing import drawn_labels, judged_labels, judged_number, judged_weights, reserve_and_draw

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.data.arrays import Blocks, as_array, gathered
from agt.data.records import UNANSWERED
from agt.data.target import ClassTarget
from agt.errors import ConfigError
from agt.facts import evidence, not_held, proved
from agt.ledger.book import Population
from agt.ledger.ledger import Exhausted, Ledger
from agt.ledger.lots import LotPayer
from agt.ledger.payer import LedgerPayer, NoPayer, ProtectedPeople, Reservation
from agt.ledger.questions import Questions
from agt.ledger.tables import AdmittedTable
from agt.ledger.unit import Unit
from agt.mechanisms.argmax import NoisyArgmax
from agt.mechanisms.budget import Allowance
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.output import Output
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.totals import totals_of_labels
from agt.mechanisms.weights import ReleaseWeights
from agt.numeric import SeededRandomness
from agt.release import LabelRelease
from agt.settings import RelationConfig

HELD = tuple(
    Condition(letter, f"name of {letter}", evidence(proved("own_words", text="it holds")))
    for letter in "abcdefg"
)
BROKEN = tuple(
    replace(c, evidence=evidence(not_held("own_words", text="it does not")))
    if c.letter == "c"
    else c
    for c in HELD
)
QUERIES = np.zeros((4, 2))
RESPONSE = RandomizedResponse(eps=20.0)
RELATION = RelationConfig("add_remove")


@dataclass
class Model:
    """A model whose labels are 0, 1, 0, 1 at distances 0..3, and which counts how often it is
    asked to certify.
    """

    members: int = 1
    classes: int = 2
    noise: object = None
    conditions: tuple[Condition, ...] = HELD
    certified: list[int] = field(default_factory=list)
    max_distance = 3
    linear_head = None
    metrics = {"k_max": 3}  # noqa: RUF012

    @property
    def problem(self) -> Any:
        settings = SimpleNamespace(
            relation=RelationConfig("add_remove"),
            ensemble=SimpleNamespace(members=self.members),
            noise=self.noise,
        )
        dataset = SimpleNamespace(target=ClassTarget(("no", "yes")))
        return SimpleNamespace(settings=settings, classes=self.classes, dataset=dataset)

    def check(self, features: np.ndarray) -> None:
        """Takes them all."""

    def certify(
        self, features: np.ndarray, ks: object = None, on_progress: object = None
    ) -> Certificates:
        self.certified.append(len(features))
        held = np.arange(4)[:, None] <= np.arange(4)[None]
        return Certificates((0, 1, 2, 3), "add_remove", np.array([0, 1, 0, 1]), held)


def test_labels_with_their_claim_and_totals() -> None:
    model = Model()
    release = judged_labels(model, QUERIES, RESPONSE)
    assert not model.certified, "nothing private before it is paid for"
    assert release.claim.proved
    claim = release.requested_claim
    assert (claim.guarantee, claim.relation, claim.releases, claim.answers) == (
        RESPONSE.guarantee,
        RELATION,
        4,
        4,
    )
    assert (claim.totals[0].eps, claim.totals[0].delta) == (pytest.approx(80), 0.0)
    assert drawn_labels(release).tolist()[1:] == [1, 0, 1], "flipped once in 10^17"
    assert model.certified == [4]
    assert release.reserved_claim == claim, "it says by itself that no ledger counts it"
    seeded = [
        judged_labels(model, QUERIES, RESPONSE, randomness=SeededRandomness(1)) for _ in range(2)
    ]
    drawn = [drawn_labels(release).tolist() for release in seeded]
    assert drawn[0] == drawn[1]
    words = replace(claim, simulated=True).lines()
    assert words[0].startswith("SIMULATION")
    assert len(words) > 1
    assert not claim.noisy
    assert judged_labels(Model(noise=1), QUERIES, RESPONSE).claim.noisy


REFUSED = [
    (Model(conditions=BROKEN), RESPONSE, "condition c"),
    (Model(classes=3), RESPONSE, r"mechanism\.classes=2"),
    (Model(), NoisyArgmax(eps=1.0), r"ensemble\.members=T"),
    (Model(), RandomizedResponse(eps=1.0, delta=1e-5), "4e-05"),
]


@pytest.mark.parametrize(
    ("model", "mechanism", "words"), REFUSED, ids=[words for *_, words in REFUSED]
)
def test_what_is_refused_looks_at_no_distance(model: Any, mechanism: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        judged_labels(model, QUERIES, mechanism, delta=1e-5)
    assert not model.certified


def test_conditions_may_be_weaker_than_the_model_s_own_and_paper_accounting_says_so() -> None:
    with pytest.raises(ConfigError, match="condition c"):
        judged_labels(Model(), QUERIES, RESPONSE, conditions=BROKEN)
    claim = judged_labels(
        Model(), QUERIES, RESPONSE, conditions=BROKEN, accounting="paper"
    ).requested_claim
    assert claim.reasons == ("c",)
    assert not claim.proved
    assert not set(claim.total_sentences) & set(claim.lines()), "a total of what is not proved"
    assert claim.answers == 4
    assert claim.totals, "what is drawn counts, proved or not"


def test_one_number() -> None:
    release = judged_number(Model(), QUERIES, CertifiedQuantile(eps=50.0))
    assert release.claim.output is Output.NUMBER
    assert release.claim.guarantee == PureDP(50.0)
    (spent,) = release.claim.total_sentences
    assert "50-" in spent
    assert reserve_and_draw(release) == 2, "two of the four are certified up to 2"


def test_weights_are_those_of_one_linear_head() -> None:
    with pytest.raises(ConfigError, match="mechanism=release_weights"):
        judged_weights(Model(), ReleaseWeights(mu=1.0))


def test_totals_are_shown_where_they_say_something() -> None:
    assert [total.delta for total in totals_of_labels(PureDP(0.01), 10_000, 0.0)] == [0, 1e-5]
    assert [
        total.delta for total in totals_of_labels(GaussianMargin(mu=0.1).guarantee, 3, 1e-6)
    ] == [1e-6]
    assert [total.delta for total in totals_of_labels(ApproximateDP(0.1, 1e-4), 3, 0.0)] == [
        pytest.approx(6e-4)
    ]
    assert totals_of_labels(GaussianDP(0.1), 1, 1e-5)[0].eps == pytest.approx(0.35, abs=0.02)


@dataclass
class Remembering:
    """Has so many releases to give, remembers what was drawn, and notes what it was asked in
    which order.
    """

    budget: int
    answers: dict[Any, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    name = "people"

    def check(self, claim: Claim) -> None:
        """Takes every claim."""

    def account(self, reservation: Reservation, one_by_one: bool = False) -> None:
        """No ledger has one."""

    def remaining(self, guarantee: Guarantee, maximum: int = 0) -> int:
        return self.budget

    def questions(self, labelling: Any, features: np.ndarray) -> Questions:
        self.calls.append("questions")
        keys = [row.tobytes() for row in features]
        return Questions(keys, {key: self.answers[key] for key in keys if key in self.answers})

    def reserve(self, charged: Any, wanted: int) -> Reservation:
        self.calls.append("reserve")
        size = min(wanted, self.budget)
        if not size:
            raise Exhausted("nothing is left")
        self.budget -= size
        return Reservation(size)

    def store_answers(
        self, reservation: Reservation, answers: Mapping[Any, int]
    ) -> Mapping[Any, int]:
        self.calls.append("keep")
        assert len(answers) <= reservation.size
        self.answers.update(answers)
        return answers


ROWS = np.arange(4.0).reshape(4, 1)


def test_nothing_is_drawn_before_it_is_reserved_and_nothing_twice() -> None:
    releases = (
        judged_labels(Model(), QUERIES, RESPONSE),
        judged_number(Model(), QUERIES, CertifiedQuantile(eps=50.0)),
    )
    for release in releases:
        with pytest.raises(RuntimeError, match="reserved"):
            release.draw()
        release.reserve()
        with pytest.raises(RuntimeError, match="already reserved"):
            release.reserve()
        release.draw()
        with pytest.raises(RuntimeError, match="already drawn"):
            release.draw()


def test_a_release_that_was_refused_its_budget_is_not_drawn() -> None:
    model = Model()
    for release in (
        judged_number(model, ROWS, CertifiedQuantile(eps=50.0), payer=Remembering(budget=0)),
        judged_labels(model, ROWS, RESPONSE, payer=Remembering(budget=0)),
    ):
        with pytest.raises(Exhausted):
            release.reserve()
        with pytest.raises(RuntimeError, match="reserved"):
            release.draw()
    assert not model.certified


def test_a_payer_that_reserves_less_than_one_number_gets_none() -> None:
    release = judged_number(
        Model(), ROWS, CertifiedQuantile(eps=50.0), payer=LotPayer(Remembering(budget=0))
    )
    release.reserve()
    with pytest.raises(RuntimeError, match="covered only a part"):
        release.draw()


def test_what_the_budget_does_not_hold_is_unanswered_and_what_was_answered_is_repeated() -> None:
    payer = Remembering(2, {ROWS[0].tobytes(): 1})
    release = judged_labels(AnyRows(), ROWS, RESPONSE, payer=payer)
    assert release.requested == 3
    assert release.reserve().size == 2
    assert drawn_labels_of(release) == [1, 1, 1, UNANSWERED]
    assert release.reserved_claim.releases == 2
    assert payer.calls == ["questions", "reserve", "keep"]
    again = judged_labels(AnyRows(), ROWS[:3], RESPONSE, payer=payer)
    assert again.reserve().size == 0, "everything was answered before"
    assert drawn_labels_of(again) == [1, 1, 1]
    last = judged_labels(AnyRows(), ROWS, RESPONSE, payer=payer)
    assert last.reserve().size == 0, "nothing is left, and some was answered"
    assert drawn_labels_of(last) == [1, 1, 1, UNANSWERED]


@dataclass
class AnyRows(Model):
    """A model that says 1 of every query, at a distance of 3."""

    def certify(
        self, features: np.ndarray, ks: object = None, on_progress: object = None
    ) -> Certificates:
        held = np.ones((4, len(features)), dtype=bool)
        return Certificates(
            (0, 1, 2, 3), "add_remove", np.ones(len(features), dtype=np.int64), held
        )


def drawn_labels_of(release: LabelRelease) -> list[int]:
    return gathered(release.draw(), len(release.features)).tolist()


def test_lots_are_paid_as_they_are_used_up_and_remembered_when_they_are() -> None:
    payer = Remembering(budget=5)
    lots = LotPayer(payer, size=2, maximum=4)
    asked = [
        judged_labels(AnyRows(), ROWS[:1] + number, RESPONSE, payer=lots) for number in (10, 20)
    ]
    for number, release in enumerate(asked):
        release.reserve()
        assert (lots.reserved, lots.unreserved) == (2, 1 - number)
        assert len(payer.answers) == 0
        assert drawn_labels_of(release) == [1]
    assert len(payer.answers) == 2, "the lot is used up"
    third = judged_labels(AnyRows(), ROWS, RESPONSE, payer=lots)
    assert third.reserve().size == 2, "no more than the maximum in all"
    assert lots.at_maximum
    assert drawn_labels_of(third) == [1, 1, UNANSWERED, UNANSWERED]
    assert payer.budget == 1


def test_what_was_drawn_on_an_open_lot_is_repeated_and_remembered_at_the_end() -> None:
    payer = Remembering(budget=5)
    lots = LotPayer(payer, size=3)
    for _ in range(2):
        release = judged_labels(AnyRows(), ROWS[:1], RESPONSE, payer=lots)
        release.reserve()
        assert drawn_labels_of(release) == [1]
    assert (lots.unreserved, len(payer.answers)) == (2, 0)
    lots.store_remaining_answers()
    assert len(payer.answers) == 1
    assert lots.unreserved == 2, "it stays spent"


@pytest.mark.parametrize(
    ("output", "guarantee"),
    [
        (Output.WEIGHTS, GaussianDP(0.5)),
        (Output.WEIGHTS, ApproximateDP(0.5, 1e-6)),
        (Output.LABELS, GaussianDP(0.5)),
    ],
)
def test_a_ledger_is_charged_the_guarantee_that_is_claimed(
    output: Output, guarantee: Guarantee, tmp_path: Path
) -> None:
    table = AdmittedTable("table", "d" * 32)
    population = Population("people", "one record", "add_remove", Allowance(9.0, 1e-5))
    charged = SimpleNamespace(guarantee=guarantee, output=output, mechanism="release_weights")
    with Ledger.create(tmp_path / "a.ledger", population, tables=[table]) as ledger:
        payer = LedgerPayer(ledger, ProtectedPeople(table, "add_remove"), "sha256:" + "a" * 64)
        debit = payer.reserve(charged, 1).debit
        assert payer.find_earlier(charged) == Reservation(1, debit, "people")
    assert debit is not None
    assert debit.charge.guarantee == guarantee
    assert debit.charge.output == output.value
    assert debit.charge.run == "sha256:" + "a" * 64


def reserved_release(payer: Any = None) -> LabelRelease:
    release = judged_labels(AnyRows(), ROWS, RESPONSE, payer=payer or Remembering(budget=4))
    release.reserve()
    return release


def test_a_copy_of_a_reserved_release_is_not_drawn_once_more() -> None:
    release = reserved_release()
    other = copy.copy(release)
    assert drawn_labels_of(other) == [1, 1, 1, 1]
    with pytest.raises(RuntimeError, match="already drawn"):
        release.draw()


def test_a_release_that_is_made_from_a_reserved_one_has_to_be_reserved_itself() -> None:
    with pytest.raises(RuntimeError, match="reserved"):
        replace(reserved_release()).draw()


def test_a_reserved_release_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(reserved_release())


def test_what_was_paid_for_is_drawn_by_one_of_many_threads() -> None:
    reservation = Reservation(1)
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: reservation.mark_drawn(), range(64)))
    assert sum(taken) == 1


def test_a_simulation_is_paid_by_no_ledger() -> None:
    payer = Remembering(budget=4)
    with pytest.raises(ConfigError, match="simulation"):
        judged_labels(AnyRows(), ROWS, RESPONSE, payer=payer, randomness=SeededRandomness(1))
    assert payer.budget == 4


def test_a_simulation_is_paid_from_no_lot_of_a_ledger() -> None:
    lots = LotPayer(Remembering(budget=4), size=2)
    with pytest.raises(ConfigError, match="simulation"):
        judged_labels(AnyRows(), ROWS, RESPONSE, payer=lots, randomness=SeededRandomness(1))
    assert lots.reserved == 0


def test_lots_that_no_ledger_remembers_are_not_held() -> None:
    lots = LotPayer(NoPayer(), size=2)
    for number in range(10):
        release = judged_labels(AnyRows(), ROWS[:1] + number, RESPONSE, payer=lots)
        release.reserve()
        drawn_labels_of(release)
    assert (lots.reserved, len(lots.lots)) == (10, 1)


def test_releases_that_were_reserved_from_one_lot_are_drawn_in_any_order() -> None:
    payer = Remembering(budget=2)
    lots = LotPayer(payer, size=2)
    first, second = (
        judged_labels(AnyRows(), ROWS[:1] + number, RESPONSE, payer=lots) for number in (10, 20)
    )
    first.reserve()
    second.reserve()
    assert drawn_labels_of(second) == [1]
    assert drawn_labels_of(first) == [1]
    assert len(payer.answers) == 2
    assert lots.unreserved == 0


def test_lots_refuse_fewer_answers_than_were_reserved_and_reservations_of_another_payer() -> None:
    lots = LotPayer(Remembering(budget=4), size=2)
    claim = judged_labels(AnyRows(), ROWS, RESPONSE, payer=lots).claim
    reservation = lots.reserve(claim, 2)
    with pytest.raises(ValueError, match="1 answers for 2 reserved"):
        lots.store_answers(reservation, {b"one key": 1})
    with pytest.raises(TypeError, match="not a reservation of a LotPayer"):
        lots.store_answers(Reservation(1), {b"one key": 1})


def test_nothing_is_certified_where_nothing_was_reserved() -> None:
    model = AnyRows()
    lots = LotPayer(NoPayer(), maximum=1)
    for expected in ([1, UNANSWERED, UNANSWERED, UNANSWERED], [UNANSWERED] * 4):
        release = judged_labels(
            model, as_array(Blocks(lambda: iter([ROWS]), 4)), RESPONSE, payer=lots
        )
        release.reserve()
        assert drawn_labels_of(release) == expected


@pytest.mark.parametrize(
    "relation", [RelationConfig("substitute"), RelationConfig("add_remove", unit_rows=1)]
)
def test_a_ledger_pays_for_a_claim_about_the_neighbours_that_it_counts_alone(
    relation: RelationConfig, tmp_path: Path
) -> None:
    table = AdmittedTable("table", "d" * 32, unit=Unit(rows=2))
    population = Population("people", "one record", "add_remove", Allowance(9.0, 1e-5))
    claim = replace(judged_labels(Model(), QUERIES, RESPONSE).claim, relation=relation)
    with Ledger.create(tmp_path / "a.ledger", population, tables=[table]) as ledger:
        payer = LedgerPayer(ledger, ProtectedPeople(table, "add_remove"), "sha256:" + "a" * 64)
        payer.check(replace(claim, relation=RelationConfig("add_remove", unit_rows=2)))
        with pytest.raises(ConfigError, match="relation=add_remove"):
            payer.check(claim)


def test_weights_rest_on_the_reasons_of_their_own_head() -> None:
    def conditions(why: str) -> tuple[Condition, ...]:
        return tuple(
            replace(condition, evidence=evidence(proved("own_words", text=why)))
            for condition in HELD
        )

    head = SimpleNamespace(conditions=conditions("of the head"), settings=Model().problem.settings)

    class Weights(ReleaseWeights):
        def releasable_head(self, model: Any) -> Any:
            return head

        def check(self, model: Any) -> None:
            """Takes every head."""

    release = judged_weights(Model(conditions=conditions("of the votes")), Weights(mu=1.0))
    assert all(
        condition.evidence == evidence(proved("own_words", text="of the head"))
        for condition in release.conditions
    )


def test_a_value_given_by_position_is_shown_by_name() -> None:
    with pytest.raises(ConfigError) as error:
        RandomizedResponse(1.0)  # type: ignore[misc]
    assert "write eps=1.0" in str(error.value)
