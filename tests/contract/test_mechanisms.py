"""What every release mechanism owes (mechanisms/mechanism.py), for each of the registry: a new one
inherits this suite.

Privacy is checked between all neighbouring states in exact arithmetic. Nothing here uses the code's
own reductions or enclosures: distributions over labels are compared event by event, with exp and
the normal distribution from mpmath to 90 digits. The conditions that a claim needs follow from what
a mechanism says that it needs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from itertools import combinations, pairwise
from math import lcm
from typing import Any, ClassVar

import mpmath
import numpy as np
import pytest
from grid_losses import true_loss
from omegaconf import OmegaConf
from scipy.special import ndtri

from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.facts import evidence, not_held, proved
from agt.mechanisms.argmax import NoisyArgmax
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.judging import judge_claim
from agt.mechanisms.mechanism import MECHANISMS, Mechanism
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import SmoothCauchy, SmoothLaplace
from agt.numeric import SeededRandomness
from agt.relations import RELATIONS
from agt.relations.names import ENTRIES
from agt.release_settings import Epsilon, Need
from agt.settings import KGridConfig, RelationConfig, build, keyword_schema, validate
from agt.targets import imported
from agt_cli import config_files

FARTHEST = 400
BUDGETS = (1e-15, 1e-6, 0.001, 0.1, 1.0, 3.0, 10.0, 100.0)
DELTAS = (1e-300, 1e-12, 1e-5, 0.01, 0.4)
MUS = (1e-15, 0.001, 0.07, 0.1, 1.0, 5.0, 30.0, 100.0)
USUAL: tuple[Guarantee, ...] = (PureDP(0.7), ApproximateDP(0.7, 0.01), GaussianDP(0.3))
# reference.md section 3
REQUIRED_CONDITIONS: dict[Need, str] = {"distance": "abcdefg", "votes": "bceg", "nothing": "eg"}
HELD = tuple(
    Condition(letter, letter, evidence(proved("own_words", text="it holds")))
    for letter in "abcdefg"
)
Kind = type[Mechanism]


def accepted(
    kind: Kind, guarantees: Sequence[Guarantee] = USUAL, classes: Sequence[int] = (2, 3)
) -> list[Mechanism]:
    """The mechanism with each of the guarantees that it gives, for each number of classes that
    it takes.
    """
    found = []
    for guarantee in guarantees:
        # more have counts as evidence
        for count in classes if kind.any_classes and kind.needs != "votes" else (2,):
            try:
                found.append(kind.with_guarantee(guarantee, count))
            except ConfigError:
                continue  # another kind of guarantee, or a budget out of its range
    return found


def usual(kind: Kind) -> Mechanism:
    """One that spends what its budget is shared out in, for two classes."""
    return next(
        mechanism for mechanism in accepted(kind) if type(mechanism.guarantee) is kind.spends
    )


# -- privacy, event by event

State = tuple[int, ...]  # the probability of each label, in units of one over an integer


def states(flips: Sequence[Fraction], classes: int, units: int) -> Iterator[tuple[State, State]]:
    """The distributions of every pair of neighbours, up to renaming labels: (0, L) and (0, L+1);
    (0, 0) and (1, 0).
    """

    def at(label: int, flip: Fraction) -> State:
        wrong = flip.numerator * (units // flip.denominator)
        return tuple(
            units - wrong if c == label else wrong // (classes - 1) for c in range(classes)
        )

    yield at(0, flips[0]), at(1, flips[0])
    for here, there in pairwise(flips):
        if here != there:  # equal states break nothing
            yield at(0, here), at(0, there)


def violations(flips: Sequence[Fraction], classes: int, guarantee: Guarantee) -> int:
    """How many (pair, direction, event) break the guarantee."""
    units = lcm(*(flip.denominator for flip in flips)) * (classes - 1)
    holds = (gaussian_holds if isinstance(guarantee, GaussianDP) else ratio_holds)(guarantee, units)
    events = [e for size in range(1, classes) for e in combinations(range(classes), size)]
    count = 0
    for one, other in states(flips, classes, units):
        for event in events:
            p = sum(one[c] for c in event)
            q = sum(other[c] for c in event)
            count += (not holds(p, q)) + (not holds(q, p))
    return count


def ratio_holds(guarantee: PureDP | ApproximateDP, units: int):
    """eps and delta as doubles and as the decimals that they print as: whichever is less."""
    delta = float(getattr(guarantee, "delta", 0.0))
    with mpmath.workdps(120):
        eps = min(mpmath.mpf(guarantee.eps), mpmath.mpf(repr(float(guarantee.eps))))
        exact = mpmath.exp(eps) * (1 - mpmath.mpf(10) ** -100)
        ratio = int(mpmath.floor(exact * mpmath.mpf(2) ** 350))
    slack = min(Fraction(delta), Fraction(repr(delta))) * units * 2**350

    def holds(p: int | Fraction, q: int | Fraction) -> bool:
        """p <= exp(eps) q + delta."""
        return (p * 2**350 - ratio * q) * slack.denominator <= slack.numerator

    return holds


def gaussian_holds(guarantee: GaussianDP, units: int):
    """mu as a double and as the decimal that it prints as: whichever is less."""
    mu = guarantee.mu
    cache = dict[int, mpmath.mpf]()

    def z(p: int) -> mpmath.mpf:
        """Phi^-1(p) by Newton's method; the smaller of p and 1 - p, so that nothing cancels."""
        if 2 * p > units:
            return -z(units - p)
        if p not in cache:
            exact = mpmath.mpf(p) / units
            x = mpmath.mpf(float(ndtri(p / units)))
            step = mpmath.mpf(1)
            # a step errs by about its square, so the last by 10^-80
            while abs(step) > mpmath.mpf(10) ** -42:
                step = (mpmath.ncdf(x) - exact) / mpmath.npdf(x)
                x -= step
            cache[p] = x
        return cache[p]

    def holds(p: int, q: int) -> bool:
        with mpmath.workdps(90):
            return z(p) - z(q) <= min(mpmath.mpf(mu), mpmath.mpf(repr(mu)))

    return holds


def steps(mechanism: Mechanism) -> list[range]:
    """The evidence between which neighbours move by one step: of votes, an odd number of
    members, or an even one.
    """
    votes = mechanism.needs == "votes"
    return [range(odd, FARTHEST, 2) for odd in (0, 1)] if votes else [range(FARTHEST + 1)]


# -- what is owed


def privacy_holds(kind: Kind) -> None:
    """All events, both directions, L = 0..400, over every budget from 10^-15 to 100 that it
    takes.
    """
    everything = [PureDP(eps) for eps in BUDGETS] + [GaussianDP(mu) for mu in MUS]
    everything += [ApproximateDP(eps, delta) for eps in BUDGETS for delta in DELTAS]
    mechanisms = accepted(kind, everything)
    assert len(mechanisms) >= len(BUDGETS)
    for mechanism in mechanisms:
        for distances in steps(mechanism):
            flips = [mechanism.exact_flip(distance) for distance in distances]
            assert violations(flips, mechanism.classes, mechanism.guarantee) == 0, mechanism


def the_closed_form_is_what_the_table_does(kind: Kind) -> None:
    for mechanism in accepted(kind, classes=(2, 5)):
        unit = mechanism.classes * 2.0**-128 * 20
        k = np.arange(120)
        for distance, p in zip(k.tolist(), mechanism.flip_probability(k).tolist(), strict=True):
            exact = mechanism.exact_flip(distance)
            assert abs(Fraction(p) - exact) <= Fraction(1e-13) * exact + Fraction(unit)
        far = mechanism.flip_probability(
            np.array([10**5, 2**31])
        )  # eps L far beyond exp's range: not 0 unless the table is
        assert (far >= 2.0**-128).all() or mechanism.exact_flip(FARTHEST) == 0


def a_table_that_grows_keeps_its_entries(kind: Kind) -> None:
    early = usual(kind)
    late = usual(kind)
    late.exact_flip(60)
    assert [early.exact_flip(k) for k in range(61)] == [late.exact_flip(k) for k in range(61)]


def a_million_samples_have_its_frequencies(kind: Kind) -> None:
    """10^6 draws over six distances: each frequency within 5 standard errors of the exact
    probability.
    """
    mechanism = usual(kind)
    n = 166_667
    distances = np.repeat([0, 1, 2, 5, 10, 21], n)
    predictions = np.arange(len(distances)) % 2
    flipped = mechanism.release(predictions, distances, SeededRandomness(7)) != predictions
    for distance in np.unique(distances):
        here = flipped[distances == distance]
        p = float(mechanism.exact_flip(int(distance)))
        assert abs(here.mean() - p) < 5 * np.sqrt(p * (1 - p) / n) + 1e-9, distance
        ones = here[predictions[distances == distance] == 1]
        assert abs(ones.mean() - p) < 5 * np.sqrt(2 * p / n) + 1e-9, "neither label is favoured"


def expectations_are_of_what_is_drawn(kind: Kind) -> None:
    draw = np.random.default_rng(3)
    n = 200_000
    mechanism = accepted(kind)[-1]
    labels = draw.integers(0, mechanism.classes, n)
    distances = draw.integers(0, 12, n)
    predictions = np.where(draw.random(n) < 0.8, labels, draw.integers(0, mechanism.classes, n))
    released = mechanism.release(predictions, distances, SeededRandomness(1))
    expected = mechanism.expected_accuracy(predictions, distances, labels)
    assert abs((released == labels).mean() - expected) < 5 * 0.5 / np.sqrt(n)
    assert 0.2 < expected < 0.9


def a_guarantee_makes_the_mechanism_again(kind: Kind) -> None:
    for mechanism in accepted(kind):
        assert kind.with_guarantee(mechanism.guarantee, mechanism.classes) == mechanism
        assert str(mechanism.guarantee).endswith("differentially private")


def other_settings_are_refused(kind: Kind) -> None:
    mechanism = usual(kind)
    given = mechanism.guarantee.parameters
    names = {field.name for field in fields(mechanism)}
    assert {"eps", "mu"} & names
    for key in {"eps", "mu"} & names:
        for value in (0, -1, 1e-16, 1000, float("nan"), float("inf"), "much"):
            with pytest.raises(ConfigError, match=rf"mechanism\.{key}"):
                validate(kind, {**given, key: value}, "mechanism")
    for value in (-0.1, 0.5, 1.0, float("nan")) if "delta" in names else ():
        with pytest.raises(ConfigError, match=r"mechanism\.delta"):
            validate(kind, {**given, "delta": value}, "mechanism")
    with pytest.raises(ConfigError, match=r"mechanism\.epsilon: "):
        validate(kind, {**given, "epsilon": 1.0}, "mechanism")
    refused = [
        guarantee for guarantee in USUAL if guarantee not in {m.guarantee for m in accepted(kind)}
    ]
    assert refused
    for guarantee in refused:
        with pytest.raises(ConfigError, match=f"mechanism={kind.name}"):
            kind.with_guarantee(guarantee)


def more_classes_are_taken_or_refused(kind: Kind) -> None:
    mechanism = usual(kind)
    if kind.any_classes:
        assert replace(mechanism, classes=7).classes == 7
        return
    with pytest.raises(ConfigError, match=r"7 .*mechanism=randomized_response"):
        replace(mechanism, classes=7)


def bad_evidence_is_refused(kind: Kind) -> None:
    mechanism = usual(kind)
    for distances, message in (([0.5], "integers.*float64"), ([-1], "at least 0")):
        with pytest.raises(ConfigError, match=message):
            mechanism.flip_probability(np.array(distances))
        with pytest.raises(ConfigError, match=message):
            mechanism.release(np.zeros(1, int), np.array(distances), SeededRandomness(0))


def claims_rest_on_the_conditions_of_its_evidence(kind: Kind) -> None:
    mechanism = usual(kind)
    relation = RelationConfig("add_remove")
    assert judge_claim(HELD, relation, mechanism).text.startswith(
        f"{mechanism.guarantee} per query"
    )
    for letter in "abcdefg":
        less = tuple(
            replace(c, evidence=evidence(not_held("own_words", text="it does not")))
            if c.letter == letter
            else c
            for c in HELD
        )
        if letter not in REQUIRED_CONDITIONS[kind.needs]:
            assert judge_claim(less, relation, mechanism).proved, letter
            continue
        with pytest.raises(ConfigError, match=f"condition {letter}"):
            judge_claim(less, relation, mechanism)


def claims_need_a_relation_that_the_evidence_covers(kind: Kind) -> None:
    """A symmetric one, under which bounds of neighbours go together."""
    for name, relation in RELATIONS.items():
        radius = 0.1 if ENTRIES[name].takes_radius else None
        # type: ignore[arg-type]
        config = RelationConfig(name, radius=radius)
        mechanism = usual(kind)
        if not relation.reason_not_releasable:
            assert judge_claim(HELD, config, mechanism).proved
            continue
        with pytest.raises(ConfigError, match=f"relation={name}"):
            judge_claim(HELD, config, mechanism)


CHECKS = (
    privacy_holds,
    the_closed_form_is_what_the_table_does,
    a_table_that_grows_keeps_its_entries,
    a_million_samples_have_its_frequencies,
    expectations_are_of_what_is_drawn,
    a_guarantee_makes_the_mechanism_again,
    other_settings_are_refused,
    more_classes_are_taken_or_refused,
    bad_evidence_is_refused,
    claims_rest_on_the_conditions_of_its_evidence,
    claims_need_a_relation_that_the_evidence_covers,
)
checks = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@checks
@pytest.mark.parametrize("name", MECHANISMS)
def test_each_mechanism(name: str, check: Callable[[Kind], None]) -> None:
    check(MECHANISMS[name])


# -- the registry


@keyword_schema
class Newcomer(Mechanism):
    """Ten lines: the sign of +-(L + 1/2) plus Laplace noise of scale 1/eps, which moves by at
    most 1 between neighbours.
    """

    eps: Epsilon
    name: ClassVar[str] = "newcomer"
    guarantee = property(lambda self: PureDP(self.eps))

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return np.exp(-self.eps * (distance + 0.5)) / 2


assert MECHANISMS.pop("newcomer") is Newcomer, "a class is registered by being defined"


@checks
def test_a_mechanism_of_ten_lines_inherits_all_of_it(check: Callable[[Kind], None]) -> None:
    check(Newcomer)


def test_a_name_is_given_once() -> None:
    with pytest.raises(
        ConfigError,
        match=r"mechanism=smooth_cauchy: .*agt\.mechanisms\.published",
    ):

        class Another(Mechanism):
            name: ClassVar[str] = "smooth_cauchy"

    assert MECHANISMS["smooth_cauchy"] is SmoothCauchy


FILES = config_files.options_of_group("mechanism")


def test_each_mechanism_has_a_file_of_its_name() -> None:
    assert set(MECHANISMS) <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_file_builds_what_it_is_named_after_and_shows_every_setting(name: str) -> None:
    node = OmegaConf.to_container(OmegaConf.create(FILES[name]))
    assert isinstance(node, dict)
    kind = imported(str(node["_target_"]), "mechanism")
    assert kind.name == name
    settings = set(node) - {"_target_"}
    taken = {field.name for field in fields(kind)}
    # of a release, where an earlier one lies
    assert settings == taken or (settings > taken and name not in MECHANISMS)
    assert config_files.first_sentence(FILES[name])
    if name in MECHANISMS:
        assert kind is MECHANISMS[name]
        # what the file leaves to the command
        open_ = {**usual(kind).guarantee.parameters, "classes": 2}
        given = {
            str(key): open_[str(key)] if value in (None, "???") else value
            for key, value in node.items()
        }
        assert type(build(given, "mechanism")) is kind


# -- one by one


def test_tables_are_tight() -> None:
    """Nothing is given away: one unit of 2^-128 less anywhere in the bulk breaks an inequality."""
    unit = Fraction(1, 2**128)
    for mechanism in (
        RandomizedResponse(eps=0.1),
        RandomizedResponse(eps=0.5, delta=1e-6),
        GaussianMargin(mu=0.2),
    ):
        flips = [mechanism.exact_flip(k) for k in range(12)]
        for k in range(len(flips)):
            less = [p - unit * (place == k) for place, p in enumerate(flips)]
            assert violations(less[: k + 1], 2, mechanism.guarantee) > 0, (mechanism, k)


def test_an_even_ensemble_changes_its_label_between_counts_0_and_2() -> None:
    """noisy_argmax: the states of n1 - n0 = 0 (label 0) and 2 (label 1), which ``states`` does
    not list.
    """
    for eps in BUDGETS:
        mechanism = NoisyArgmax(eps=eps)
        tie = mechanism.exact_flip(0)
        two = mechanism.exact_flip(2)
        holds = ratio_holds(PureDP(eps), units=1)
        for p, q in ((1 - tie, two), (tie, 1 - two)):  # label 0, then label 1
            assert holds(p, q)
            assert holds(q, p)


@pytest.mark.parametrize("eps", [1e-9, 0.01, 0.5, 5.0, 50.0])
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, kind in MECHANISMS.items()
        if kind.needs == "distance" and kind.spends is not GaussianDP
    ],
)
def test_closed_forms_too(name: str, eps: float) -> None:
    """The published formulas themselves, with complements where numbers would vanish; 10^-12 for
    floating point.
    """
    for mechanism in accepted(
        MECHANISMS[name], (PureDP(eps), ApproximateDP(eps, 1e-5)), classes=(2,)
    ):
        delta = getattr(mechanism.guarantee, "delta", 0.0)
        if not delta:
            assert true_loss(mechanism, range(401)) <= eps * (1 + 1e-12) + 1e-15
            continue
        p = mechanism.flip_probability(np.arange(401))
        slack = delta * (1 + 1e-9) + 1e-16
        assert (p[:-1] - np.exp(eps) * p[1:] <= slack).all()
        assert ((1 - p[1:]) - np.exp(eps) * (1 - p[:-1]) <= slack).all()
        assert (1 - p[0]) - np.exp(eps) * p[0] <= slack


def test_smooth_laplace_fails_where_it_is_refused() -> None:
    """At delta = 10^-5 and eps = 41 the published constants break (eps, delta)-DP, so refusing
    is not caution.
    """
    eps = 41.0
    delta = 1e-5
    beta = eps / (2 * np.log(2 / delta))
    p0, p1 = (np.exp(-eps / 4 * np.exp(beta * k)) / 2 for k in (0, 1))
    assert p0 > np.exp(eps) * p1 + delta
    with pytest.raises(ConfigError, match="eps"):
        SmoothLaplace(eps=eps, delta=delta)
    SmoothLaplace(eps=2.5 * np.log(2 / delta) * 0.999, delta=delta)


def test_the_papers_violation() -> None:
    """smooth_cauchy with distances from the grid {0, 50}: loss 6.25 at eps = 1, and at most eps
    on the dense grid.
    """
    assert true_loss(SmoothCauchy(eps=1.0), (0, 50)) == pytest.approx(6.2456, abs=1e-4)
    flips = [SmoothCauchy(eps=1.0).exact_flip(k) for k in (0, 50)]
    assert violations(flips, 2, PureDP(6.24)) > 0
    assert violations(flips, 2, PureDP(6.25)) == 0
    for mechanism in (SmoothCauchy(eps=1.0), RandomizedResponse(eps=1.0)):
        assert violations([mechanism.exact_flip(k) for k in range(51)], 2, PureDP(1.0)) == 0
        # no mechanism survives the gap
        assert violations([mechanism.exact_flip(k) for k in (0, 50)], 2, PureDP(1.0)) > 0


@pytest.mark.parametrize("eps", [True, np.True_, "1", b"1"], ids=repr)
def test_only_a_number_is_an_epsilon(eps: Any) -> None:
    with pytest.raises(ConfigError, match=r"RandomizedResponse\.eps: "):
        RandomizedResponse(eps=eps)
    assert (
        RandomizedResponse(eps=np.float64(1))
        == RandomizedResponse(eps=1)
        == RandomizedResponse(eps=1.0)
    )


def test_values_given_by_place_are_checked_as_those_given_by_name() -> None:
    with pytest.raises(ConfigError, match=r"KGridConfig\.max: .*True"):
        KGridConfig(True)
    assert KGridConfig(None, (0, 1)).ks == (0, 1)
