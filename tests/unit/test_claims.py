"""Claims as JSON: written, read back, refused; their curves against exact ones; what must not be
in them.
"""

import json
import math
from dataclasses import replace
from datetime import date
from string import Formatter
from typing import Any

import mpmath
import pytest

from agt.documents import LAST_READER
from agt.errors import ConfigError, Superseded
from agt.fact_sentences import BROKEN_BY, TEMPLATES
from agt.facts import Declaration, Fact, declared
from agt.mechanisms.accounts import (
    Account,
    CountedTable,
    LedgerState,
    MovedHead,
    OtherLedger,
    Uncounted,
)
from agt.mechanisms.budget import Allowance, Cost, Lot
from agt.mechanisms.claims import VERSION, Claim, read_claim
from agt.mechanisms.composition import delta_of, total
from agt.mechanisms.curves import Curve, sample_budget_curve, sample_curve
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.output import Output
from agt.mechanisms.totals import claim_of_labels
from agt.settings import RelationConfig

RELATION = RelationConfig("add_remove", 2)
SIZE = declared("size_public", size=80.0, setting="declared.size")
DECLARED = (Declaration("c", SIZE),)
GUARANTEES: tuple[Guarantee, ...] = (PureDP(0.1), ApproximateDP(0.1, 1e-8), GaussianDP(0.07))
STATE = LedgerState(
    (CountedTable("a"), CountedTable("b", "customer", 4, apart=True)),
    (
        MovedHead(3, "2026-05-04T09:00:00+00:00", lost=False, before="head"),
        MovedHead(4, "2026-05-04", lost=True),
    ),
    (OtherLedger(5, file="other.ledger"), OtherLedger(6, first_entry="0123456789abcdef")),
    "same_disk",
)


PURE = PureDP(0.1)


def claim_of(guarantee: Guarantee = PURE, queries: int = 1000, **changes: Any) -> Claim:
    """A claim of labels that no ledger counts."""
    about: dict[str, Any] = {
        "mechanism": "randomized_response",
        "relation": RELATION,
        "declared": DECLARED,
    }
    made = Claim(guarantee=guarantee, reasons=(), noisy=False, uncounted=Uncounted(), **about)
    return replace(claim_of_labels(made, queries, 0.0), **changes)


def account_of(guarantee: Guarantee = PURE, **changes: Any) -> Account:
    about: dict[str, Any] = {
        "population": "loans",
        "unit": "one customer",
        "entry": 7,
        "counts": "entry",
        "first_entry": "0" * 16,
        "ledger": STATE,
        **changes,
    }
    return Account(allowance=Allowance(1.0, 1e-5), spent=Lot(guarantee, 3).cost, **about)


def claimed(guarantee: Guarantee = PURE, queries: int = 1000, **changes: Any) -> Claim:
    """The same on a ledger, as claim.json has it."""
    return (
        claim_of(guarantee, queries, **changes)
        .with_account(account_of(guarantee))
        .for_file(date(2026, 5, 4))
    )


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=str)
@pytest.mark.parametrize("queries", [1, 1000, 10**6])
def test_what_is_written_is_read(guarantee: Guarantee, queries: int) -> None:
    one = claimed(guarantee, queries)
    assert read_claim(one.content) == one
    node = json.loads(one.content)
    assert node["schema"] == VERSION
    assert node["guarantee"] == guarantee.as_json
    assert (node["releases"], node["answers"], node["issued"]) == (queries, queries, "2026-05-04")
    assert len(node["curve"]["eps"]) >= 33


def test_the_words_are_a_function_of_the_fields() -> None:
    one = claimed()
    again = replace(read_claim(one.content), words=(), outside=(), curve=None).for_file(
        date(2026, 5, 4)
    )
    assert again.content == one.content


@pytest.mark.parametrize(
    "uncounted",
    [Uncounted(), Uncounted("unnamed"), Uncounted("declined", ("loans",), unopened=True)],
)
def test_a_claim_that_no_ledger_counts_says_why(uncounted: Uncounted) -> None:
    one = claim_of().with_account(uncounted).for_file()
    assert read_claim(one.content) == one
    assert one.words[-1:] == tuple(uncounted.lines())


def test_a_claim_is_counted_or_says_why_not() -> None:
    with pytest.raises(ConfigError, match="ledger"):
        claim_of(account=account_of())


def test_a_claim_of_weights_and_one_of_a_number() -> None:
    for output in (Output.WEIGHTS, Output.NUMBER):
        made = claim_of(
            GaussianDP(0.2), 1, answers=None, mechanism="release_weights", output=output
        )
        told = replace(made, totals=(total(GaussianDP(0.2), 1, 1e-5),)).for_file()
        assert (told.releases, told.answers, told.issued, told.account) == (1, None, None, None)
        assert read_claim(told.content) == told
        assert told.words[0] == made.text


@pytest.mark.parametrize("mu", [1e-15, 1e-6, 3.0, 15.0, 100.0])
@pytest.mark.parametrize("delta", [1e-5, 0.5])
def test_totals_beyond_the_budgets_of_one_release_are_said_in_brief(
    mu: float, delta: float
) -> None:
    guarantee = GaussianDP(mu)
    composed = total(guarantee, 1, delta)
    claim = claim_of(guarantee, 1, totals=(composed,))
    assert any(f"({composed.eps:.6g}, {delta:.6g})" in line for line in claim.lines(brief=True))


def test_nothing_is_claimed_where_nothing_is_proved() -> None:
    told = claim_of(queries=9, accounting="paper", reasons=("e", "published_vote")).for_file()
    assert not told.proved
    assert not told.publishable
    assert (told.totals, told.curve, told.reasons) == ((), None, ("e", "published_vote"))
    assert read_claim(told.content) == told
    simulated = claimed(simulated=True)
    assert (simulated.proved, simulated.publishable) == (True, False)


class TestOneByOne:
    """Answers that are paid for when their questions come."""

    def test_there_is_no_total_unless_their_number_was_fixed(self) -> None:
        told = claim_of(totals=(), one_by_one=True).for_file()
        assert (told.totals, told.curve) == ((), None)
        assert read_claim(told.content) == told

    def test_a_total_is_over_the_most_that_may_come(self) -> None:
        most = claim_of(queries=50)
        told = replace(most, releases=3, answers=3, one_by_one=True, most=50).for_file()
        assert read_claim(told.content) == told
        assert told.words[1] == most.lines()[1]

    @pytest.mark.parametrize(
        "changes",
        [{"totals": (total(PURE, 3, 0.0),)}, {"curve": sample_curve(PURE, 3)}],
        ids=["a total", "a curve"],
    )
    def test_more_is_refused(self, changes: dict[str, Any]) -> None:
        told = replace(claim_of(queries=3, totals=(), one_by_one=True).for_file(), **changes)
        with pytest.raises(ConfigError, match="the claim gives"):
            read_claim(told.content)

    def test_no_more_come_than_the_most(self) -> None:
        with pytest.raises(ConfigError, match="answers"):
            claim_of(queries=4, one_by_one=True, most=3)


def test_what_must_stay_at_home_has_no_entry() -> None:
    """Every entry that there is, by name: a new one is looked at before it is published."""
    kinds = (
        Claim,
        Declaration,
        Fact,
        Account,
        LedgerState,
        CountedTable,
        MovedHead,
        OtherLedger,
        Uncounted,
        Curve,
    )
    assert {kind.__name__: {*kind.__dataclass_fields__} for kind in kinds} == {
        "Claim": {
            *(
                "schema",
                "agt",
                "simulated",
                "reasons",
                "guarantee",
                "mechanism",
                "output",
                "releases",
                "answers",
            ),
            *(
                "one_by_one",
                "most",
                "relation",
                "accounting",
                "counting",
                "declared",
                "noisy",
                "totals",
                "curve",
            ),
            *("account", "uncounted", "issued", "outside", "words"),
        },
        "Declaration": {"condition", "fact"},
        "Fact": {"standing", "code", "values"},
        "Account": {
            *(
                "population",
                "unit",
                "entry",
                "allowance",
                "spent",
                "counts",
                "curve",
                "first_entry",
                "ledger",
                "elsewhere",
            ),
        },
        "LedgerState": {"tables", "moved", "declared", "second_head"},
        "CountedTable": {"name", "unit", "rows", "apart"},
        "MovedHead": {"entry", "time", "lost", "before"},
        "OtherLedger": {"entry", "file", "first_entry"},
        "Uncounted": {"why", "ledgers", "unopened"},
        "Curve": {"eps", "delta", "at_delta", "at_eps"},
    }


def test_every_value_of_a_declaration_by_name() -> None:
    """They are published with claims: names of columns, settings, files and learners, and public
    constants.
    """
    names = {"column", "file", "key", "learner", "names", "network", "public", "rows", "setting"}
    names |= {"low", "high"}  # the ends of the range of labels that are numbers
    names |= {"proposed"}  # columns whose public constants agt proposed
    # of agt measure: what it released
    public = {"claim", "digest", "measured", "members", "normaliser", "size"}
    texts = {"text", "broken_by"}  # of a data set's own author
    templates = [TEMPLATES[code] for code in BROKEN_BY] + [*BROKEN_BY.values()]
    found = {
        name for template in templates for _, name, _, _ in Formatter().parse(template) if name
    }
    # a declaration of a declaration is in accounts alone
    assert found - {"declaration"} == names | public | texts


def change(node: dict[str, Any], path: str, value: Any) -> bytes:
    here: Any = node
    *above, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in above:
        here = here[key]
    if value is None:
        del here[last]
    else:
        here[last] = value
    return json.dumps(node).encode()


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("schema", "agt.claim/4", "version 'agt.claim/4'"),
        ("schema", None, "version None"),
        ("guarantee.eps", math.nan, "NaN"),
        ("guarantee.eps", math.inf, "Infinity"),
        ("guarantee.eps", "0.1", r"guarantee\.eps"),
        ("guarantee.eps", 0.0, r"eps = 0\.0"),
        ("guarantee.mu", 0.1, "guarantee"),
        ("guarantee.kind", "gaussian", "guarantee"),
        ("guarantee.eps", 0.2, "guarantee"),
        ("releases", 2000, "guarantee"),
        ("curve.delta.20", 0.0, "decreasing values of delta"),
        ("curve.delta.64", 0.0, "guarantee"),
        ("totals.0.eps", 1.0, "guarantee"),
        ("account.allowance.delta", 1e-4, "guarantee"),
        ("account.spent.square", "nan", "square"),
        ("account.allowance.leaks", 2.0, "leaks"),
        ("issued", "yesterday", "issued"),
        ("publishable", False, "publishable"),
        ("proved", None, "a claim .*proved"),
        ("reasons", None, r"claim\.reasons"),
        ("declared", None, r"claim\.declared"),
        ("noisy", None, r"claim\.noisy"),
        ("account.ledger", None, r"claim\.account\.ledger"),
        ("declared.0.fact.code", "batches_by_hash", "fact: batches_by_hash"),
        ("declared.0.fact.standing", "proved", "fact: size_public.*proved"),
        ("declared.0.fact.values.size", "many", r"claim\.declared\.0\.fact: size_public"),
        (
            "declared.0.fact.values.setting",
            None,
            r"claim\.declared\.0\.fact: size_public.*\['size'\]",
        ),
        ("words", [], "words"),
        ("relation", None, "relation"),
        ("secret", "digest", "secret"),
    ],
)
def test_other_claims_are_refused(path: str, value: Any, match: str) -> None:
    node = json.loads(claimed().content)
    with pytest.raises(ConfigError, match=match):
        read_claim(change(node, path, value))


def test_numbers_beyond_all_doubles_are_refused() -> None:
    raw = claimed().content.replace(b'"eps": 0.1', b'"eps": 1e400', 1)
    with pytest.raises(ConfigError, match="1e400"):
        read_claim(raw)


@pytest.mark.parametrize("form", ["agt.claim/1", "agt.claim/2"])
def test_a_claim_of_sentences_is_refused_with_the_version_that_reads_it(form: str) -> None:
    node = json.loads(claimed().content)
    with pytest.raises(Superseded, match=LAST_READER):
        read_claim(change(node, "schema", form))


class TestCurves:
    def exact(self, guarantee: Guarantee, queries: int, eps: float) -> mpmath.mpf:
        """In 60 digits, term by term."""
        with mpmath.workdps(60):
            if isinstance(guarantee, GaussianDP):
                mu = mpmath.mpf(guarantee.mu) * mpmath.sqrt(queries)
                e = mpmath.mpf(eps)
                return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
            e0 = mpmath.mpf(guarantee.eps)
            d = mpmath.mpf(getattr(guarantee, "delta", 0.0))
            p = 1 / (1 + mpmath.exp(-e0))
            terms = (
                mpmath.binomial(queries, j)
                * p**j
                * (1 - p) ** (queries - j)
                * max(0, 1 - mpmath.exp(eps - (2 * j - queries) * e0))
                for j in range(queries + 1)
            )
            return 1 - (1 - d) ** queries * (1 - mpmath.fsum(terms))

    @pytest.mark.parametrize("guarantee", GUARANTEES, ids=str)
    @pytest.mark.parametrize("queries", [1, 2, 60])
    def test_the_truth_is_never_above(self, guarantee: Guarantee, queries: int) -> None:
        curve = sample_curve(guarantee, queries)
        for eps, delta in curve.points[::5] + curve.points[-1:]:
            true = self.exact(guarantee, queries, eps)
            assert true <= delta <= true * (1 + mpmath.mpf(1e-5)) + mpmath.mpf(3e-9)

    @pytest.mark.parametrize("guarantee", GUARANTEES, ids=str)
    @pytest.mark.parametrize("queries", [1, 50, 10**6, 2 * 10**9])
    def test_it_says_what_totals_say(self, guarantee: Guarantee, queries: int) -> None:
        curve = sample_curve(guarantee, queries)
        assert curve.eps[0] == 0
        assert list(curve.delta) == sorted(curve.delta, reverse=True)
        for delta, eps in zip(curve.at_delta, curve.at_eps, strict=True):
            assert delta_of(guarantee, queries, eps) <= delta
            if queries <= 10**6:
                assert eps == pytest.approx(
                    total(guarantee, queries, delta, ("optimal", "gaussian")).eps,
                    rel=1e-3,
                    abs=1e-9,
                )

    def test_a_budget_s(self) -> None:
        allowance = Allowance(1.0, 1e-5)
        curve = sample_budget_curve(allowance)
        at = dict(zip(curve.at_delta, curve.at_eps, strict=True))
        assert at[1e-5] == pytest.approx(1.0, rel=1e-6)
        assert 1e-6 not in at  # leaks: no eps takes them away
        pure = sample_budget_curve(Allowance(1.0))
        assert (pure.eps[-1], pure.delta[-1]) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-11))

    @pytest.mark.parametrize(
        "allowance",
        [
            Allowance(1e-9),
            Allowance(1e6, 0.5),
            Allowance(1e-3, 1 - 1e-9, 1.0),
            Allowance(50.0, 1e-300),
        ],
    )
    def test_odd_budgets_have_one(self, allowance: Allowance) -> None:
        curve = sample_budget_curve(allowance)
        assert all(0 <= delta <= 1 and math.isfinite(eps) for eps, delta in curve.points)

    def test_as_a_table(self) -> None:
        curve = sample_curve(PureDP(0.5), 4)
        rows = [tuple(map(float, line.split(","))) for line in curve.csv.splitlines()[1:]]
        assert tuple(rows) == curve.points
        assert curve.csv.startswith("eps,delta\n0.0,")

    @pytest.mark.parametrize(
        "change",
        [
            {"eps": (0.0, 1.0, 0.5)},
            {"delta": (0.1, 0.2, 0.3)},
            {"delta": (0.2, 0.1)},
            {"at_eps": (1.0,)},
        ],
    )
    def test_no_curve(self, change: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="curve"):
            replace(Curve((0.0, 0.5, 1.0), (0.3, 0.2, 0.1)), **change)

    def test_a_lot_admitted_alone_has_its_own(self) -> None:
        """What a fresh ledger takes by the lot's own total is not under the filters' curve."""
        allowance = Allowance(1.0, 1e-5)
        lot = Lot(PureDP(0.00848), 1000)
        assert allowance.admits(Cost(), lot)
        alone = Account(
            population="loans",
            unit="one customer",
            entry=2,
            allowance=allowance,
            spent=lot.cost,
            counts="entry",
            first_entry="0" * 16,
            ledger=STATE,
        )
        assert alone.budget_curve is None
