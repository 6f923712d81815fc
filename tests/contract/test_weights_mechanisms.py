"""What every weights mechanism owes (mechanisms/weights_mechanism.py), for each of the registry: a
new one inherits it.

Privacy is checked by replaying recorded draws on a neighbour (agt_audit/replay.py), which shares no
code with the mechanisms; a version whose noise is too little must be accused.
"""

import ast
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from omegaconf import OmegaConf
from releasing import drawn_weights, judged_weights
from synthetic import ball

import agt
import agt_audit
import agt_cli
from agt.api import fit, load
from agt.data.in_memory import Declared
from agt.errors import AgtError, ConfigError
from agt.facts import evidence, not_held
from agt.fitted import Fitted
from agt.mechanisms import weights_mechanism
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.output import Output
from agt.mechanisms.planning import weights_options
from agt.mechanisms.totals import total_of_weights
from agt.mechanisms.weights import ReleaseWeights
from agt.mechanisms.weights_mechanism import (
    ReleasedWeights,
    WeightsMechanism,
    labels_from,
    weights_mechanisms,
)
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import (
    Answer,
    Draw,
    ObservedRandomness,
    Randomness,
    SeededRandomness,
    noisy,
    step_of,
)
from agt.release_settings import Mu
from agt.settings import build, schema, validate
from agt_audit.replay import ReplayedRelease
from agt_cli import config_files
from agt_cli.report.findings import Outcome

Kind = type[WeightsMechanism]
N = 60
PARAMETERS = {
    PureDP: {"eps": 1.0},
    ApproximateDP: {"eps": 1.0, "delta": 1e-3},
    GaussianDP: {"mu": 0.8},
}
GENEROUS = {"eps": 60.0, "mu": 60.0}  # of a version that is to be caught
HEADS: dict[str, dict[str, Any]] = {
    "stability": {"certificate": "stability"},
    "erm": {"certificate": "erm", "weight_decay": 0.05},
    "several classes": {"certificate": "stability", "classes": 3},
    "substitute": {"certificate": "erm", "weight_decay": 0.05, "relation": "substitute"},
    "two rows": {"certificate": "erm", "weight_decay": 0.05, "unit_rows": 2},
    "flip": {"certificate": "erm", "weight_decay": 0.05, "relation": "flip"},
}
NO_HEAD: dict[str, dict[str, Any]] = {
    "network": {
        "network": (3,),
        "certificate": "box",
        "ks": 1,
        "epochs": 1,
        "lr": 0.1,
        "clip": 0.1,
    },
    "ensemble": {"certificate": "stability", "members": 3},
}


@cache
def trained(name: str, records: int = N) -> Fitted:
    settings = dict((HEADS | NO_HEAD)[name])
    classes = settings.pop("classes", 2)
    x, _ = ball(N, 3)
    y = (x[:, 0] > 0).astype(int) + (classes > 2) * (x[:, 1] > 0.3)
    declared = Declared(
        classes=list(range(classes)), size=N, features=True, settings=True, ids=True
    )
    ids = np.arange(N)
    keep = ids < records
    compute = {"threads": 1, "kernel": "reference"}
    return fit(x[keep], y[keep], declared=declared, ids=ids[keep], compute=compute, **settings)


def usual(kind: Kind) -> WeightsMechanism:
    """One with a budget at which labels are right more often than not."""
    return validate(kind, PARAMETERS[kind.spends], "mechanism")


def names_taken(kind: Kind) -> list[str]:
    """The entries of ``HEADS`` whose head the mechanism takes."""
    taken = []
    for name in HEADS:
        try:
            kind.check_head(kind.releasable_head(trained(name).model))
        except ConfigError:
            continue
        taken.append(name)
    assert taken, "no head to test it with: add one to HEADS"
    return taken


def model_for(kind: Kind) -> Model:
    return trained(names_taken(kind)[0]).model


def head_for(kind: Kind) -> LinearModel:
    return kind.releasable_head(model_for(kind))


# -- what is owed


def weights_lie_on_the_lattice_of_the_public_noise(kind: Kind) -> None:
    mechanism = usual(kind)
    for name in names_taken(kind):
        model = trained(name).model
        head = kind.releasable_head(model)
        mechanism.check(head)
        released = mechanism.draw(head, SeededRandomness(1))
        assert released.noise == mechanism.noise(head)
        assert released.noise["sigma"] > 0
        assert released.noise["step"] == step_of(released.noise["sigma"])
        assert np.isfinite(released.weight).all()
        assert released.weight.dtype == np.float64
        assert not np.fmod(released.weight, released.noise["step"]).any()
        assert released.weight.shape[1] == head.trained.weight.shape[1]
        assert labels_from(model, ball(5, 3, 1)[0])(released).shape == (5,)
        assert (released.guarantee, released.mechanism) == (mechanism.guarantee, kind.name)
        assert released.simulated


def the_noise_is_the_same_whatever_the_records_are(kind: Kind) -> None:
    mechanism = usual(kind)
    for name in names_taken(kind):
        one, other = (kind.releasable_head(trained(name, records).model) for records in (N, N - 1))
        assert mechanism.noise(one) == mechanism.noise(other)


def each_draw_is_another_and_hides_every_weight(kind: Kind) -> None:
    mechanism = usual(kind)
    head = head_for(kind)
    one, other, again = (mechanism.draw(head, SeededRandomness(seed)).weight for seed in (1, 2, 1))
    assert (one == again).all()
    assert (one != other).all()
    assert one.shape != head.trained.weight.shape or (one != head.trained.weight.numpy()).all()


def a_larger_budget_takes_no_more_noise(kind: Kind) -> None:
    head = head_for(kind)
    sigmas = [kind.within(eps, 1e-5).noise(head)["sigma"] for eps in (0.5, 1.0, 5.0)]
    assert sigmas == sorted(sigmas, reverse=True)
    assert sigmas[0] > sigmas[-1]


def a_total_affords_no_more_than_it_is_and_little_less(kind: Kind) -> None:
    for eps in (0.1, 1.0, 8.0):
        mechanism = kind.within(eps, 1e-5)
        assert type(mechanism.guarantee) is kind.spends
        assert 0.99 * eps <= total_of_weights(mechanism.guarantee, 1e-5).eps <= eps
    for eps in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError):
            kind.within(eps, 1e-5)
    for delta in (-0.1, float("nan"), 1.5, *([] if kind.spends is PureDP else [0.0])):
        with pytest.raises(ConfigError):
            kind.within(1.0, delta)


def a_guarantee_makes_the_mechanism_again(kind: Kind) -> None:
    mechanism = usual(kind)
    assert type(mechanism.guarantee) is kind.spends
    assert mechanism.guarantee.parameters.keys() <= {
        field.name for field in fields(cast(Any, kind))
    }
    assert replace(cast(Any, mechanism), **mechanism.guarantee.parameters) == mechanism
    assert (kind.output, kind.needs) == (Output.WEIGHTS, "distance")


def budgets_that_are_none_are_refused(kind: Kind) -> None:
    given = PARAMETERS[kind.spends]
    for key in given.keys() & {"eps", "mu"}:
        for value in (0, -1, 1e-16, 1000, float("nan"), float("inf"), "much"):
            with pytest.raises(ConfigError, match=rf"mechanism\.{key}"):
                validate(kind, {**given, key: value}, "mechanism")
    for value in (-0.1, 0.0, 0.5, float("nan")) if "delta" in given else ():
        with pytest.raises(ConfigError, match=r"mechanism\.delta"):
            validate(kind, {**given, "delta": value}, "mechanism")
    with pytest.raises(ConfigError, match=r"mechanism\.epsilon: "):
        validate(kind, {**given, "epsilon": 1.0}, "mechanism")


def weights_that_are_no_numbers_are_never_released(kind: Kind) -> None:
    head = head_for(kind)
    for value in (float("nan"), float("inf")):
        weight = head.trained.weight.clone()
        weight[-1, -1] = value
        try:
            released = usual(kind).draw(head.with_weight(weight), SeededRandomness(0))
        except (AgtError, ValueError, np.linalg.LinAlgError):
            continue
        assert kind.reads_records, "a head's own weights cannot be released where one is no number"
        assert np.isfinite(released.weight).all()


class ObservedDraws(ObservedRandomness):
    """Randomness that can only be asked through ``answered``."""

    simulated = True

    def __init__(self) -> None:
        self.draws: list[Draw] = []

    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        self.draws.append(draw)
        return sample(SeededRandomness(len(self.draws)))


def every_draw_can_be_replayed(kind: Kind) -> None:
    observed = ObservedDraws()
    usual(kind).draw(head_for(kind), cast(Any, observed))
    assert observed.draws
    assert any(draw.law != "uniform" for draw in observed.draws)


def outcomes_of(kind: Kind, mechanism: WeightsMechanism) -> set[Outcome]:
    """What a recorded release and its replay on three neighbours say."""
    head = head_for(kind)
    queries = head.problem.dataset.train.features[:20]
    replayed = ReplayedRelease(head, queries, cast(Any, mechanism))
    return {finding.outcome for finding in replayed.findings(3, np.random.default_rng(0))}


def a_neighbour_loses_no_more_than_the_guarantee(kind: Kind) -> None:
    assert outcomes_of(kind, usual(kind)) == {Outcome.NOT_CONTRADICTED}


def too_little_noise_is_noticed(kind: Kind) -> None:
    class TooLittleNoise(kind):  # type: ignore[valid-type, misc]
        """Draws with another budget than it claims."""

        def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
            claimed = self.guarantee.parameters
            spent = {key: GENEROUS.get(key, value) for key, value in claimed.items()}
            released = validate(kind, spent, "mechanism").draw(head, source)
            return replace(released, guarantee=self.guarantee)

    assert Outcome.VIOLATED in outcomes_of(kind, TooLittleNoise(**PARAMETERS[kind.spends]))


def expected_accuracy_is_what_releases_reach(kind: Kind) -> None:
    mechanism = usual(kind)
    model = model_for(kind)
    head = kind.releasable_head(model)
    dataset = head.problem.dataset.train
    drawn = []
    for seed in range(60):
        released = mechanism.draw(head, SeededRandomness(seed))
        drawn.append((labels_from(model, dataset.features)(released) == dataset.labels).mean())
    expected = mechanism.expected_accuracy(head, dataset.features, dataset.labels)
    slack = {"exact": 0.02, "first order": 0.05, "simulated": 0.1}[kind.accuracy_method.name]
    assert expected == pytest.approx(
        np.mean(drawn), abs=slack + 4 * np.std(drawn) / np.sqrt(len(drawn))
    )
    assert (kind.accuracy_method.draws > 0) == (kind.accuracy_method.name == "simulated")


def one_expectation_serves_every_budget(kind: Kind) -> None:
    head = head_for(kind)
    dataset = head.problem.dataset.train
    expectation = kind.expectation(head, dataset.features, dataset.labels)
    budgets = [kind.within(eps, 1e-5) for eps in (8.0, 0.5)]
    shared = [expectation(mechanism) for mechanism in budgets]
    alone = [
        mechanism.expected_accuracy(head, dataset.features, dataset.labels) for mechanism in budgets
    ]
    assert shared == alone
    assert shared[0] >= shared[1] - 0.1


def claims_rest_on_every_condition(kind: Kind) -> None:
    model = model_for(kind)
    assert judged_weights(model, usual(kind)).claim.proved
    for letter in "abcdefg":
        broken = evidence(not_held("own_words", text="it does not"))
        less = tuple(
            replace(c, evidence=broken) if c.letter == letter else c for c in model.conditions
        )
        with pytest.raises(ConfigError, match=f"mechanism={kind.name}: condition {letter}"):
            judged_weights(model, usual(kind), conditions=less)


def what_it_does_not_cover_is_neither_released_nor_planned(kind: Kind) -> None:
    queries = ball(4, 3, 1)[0]
    labels = np.zeros(4, dtype=int)
    taken = names_taken(kind)
    for name in (*HEADS, *NO_HEAD):
        model = trained(name).model
        offered = weights_options(model, queries, labels)
        if name in taken:
            assert kind.name in offered
            continue
        assert kind.name not in offered
        with pytest.raises(ConfigError, match=f"mechanism={kind.name}"):
            judged_weights(model, usual(kind))


CHECKS = (
    weights_lie_on_the_lattice_of_the_public_noise,
    the_noise_is_the_same_whatever_the_records_are,
    each_draw_is_another_and_hides_every_weight,
    a_larger_budget_takes_no_more_noise,
    a_total_affords_no_more_than_it_is_and_little_less,
    a_guarantee_makes_the_mechanism_again,
    budgets_that_are_none_are_refused,
    weights_that_are_no_numbers_are_never_released,
    every_draw_can_be_replayed,
    a_neighbour_loses_no_more_than_the_guarantee,
    too_little_noise_is_noticed,
    expected_accuracy_is_what_releases_reach,
    one_expectation_serves_every_budget,
    claims_rest_on_every_condition,
    what_it_does_not_cover_is_neither_released_nor_planned,
)
checks = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
KINDS = weights_mechanisms()


@checks
@pytest.mark.parametrize("name", KINDS)
def test_each_weights_mechanism(name: str, check: Callable[[Kind], None]) -> None:
    check(KINDS[name])


@pytest.mark.parametrize("name", KINDS)
def test_without_records_only_a_heads_own_weights_are_released(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    trained(names_taken(kind)[0]).save(tmp_path / "model")
    read_back = load(tmp_path / "model").model
    if not kind.reads_records:
        released = drawn_weights(read_back, usual(kind), SeededRandomness(0))
        assert np.isfinite(released.weight).all()
        return
    with pytest.raises(ConfigError, match=f"mechanism={name}"):
        judged_weights(read_back, usual(kind))


# -- the registry


@schema
class Newcomer(WeightsMechanism):
    """A head's own weights with twice the noise that they need."""

    mu: Mu

    name: ClassVar[str] = "newcomer"
    spends: ClassVar[type[GaussianDP]] = GaussianDP

    @property
    def guarantee(self) -> Guarantee:
        return GaussianDP(self.mu)

    def noise(self, head: LinearModel) -> dict[str, float]:
        sigma = 2 * head.l2_sensitivity / self.mu
        return {"sigma": sigma, "step": step_of(sigma)}

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        noise = self.noise(head)
        weight = noisy(head.trained.weight.numpy(), noise["sigma"], source)
        return ReleasedWeights(weight, self.guarantee, noise, source.simulated, self.name)

    @classmethod
    def expectation(
        cls, head: LinearModel, features: np.ndarray, labels: np.ndarray
    ) -> Callable[[Any], float]:
        exact = ReleaseWeights.expectation(head, features, labels)
        return lambda mechanism: exact(ReleaseWeights(mu=mechanism.mu / 2))


assert weights_mechanisms()["newcomer"] is Newcomer, "a class is registered by being defined"
weights_mechanism.REGISTERED.pop("newcomer")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(weights_mechanism.REGISTERED, "newcomer", Newcomer)


@checks
@pytest.mark.usefixtures("registered")
def test_a_mechanism_of_a_few_lines_inherits_all_of_it(check: Callable[[Kind], None]) -> None:
    check(Newcomer)


def test_tables_have_exact_expectations_first() -> None:
    first = {"exact": 0, "first order": 1, "simulated": 2}
    places = [first[kind.accuracy_method.name] for kind in KINDS.values()]
    assert places == sorted(places)


def test_a_name_is_given_once() -> None:
    with pytest.raises(
        ConfigError,
        match=r"mechanism=release_weights: .*agt\.mechanisms\.weights",
    ):

        class Another(WeightsMechanism):
            name: ClassVar[str] = "release_weights"

    assert weights_mechanisms()["release_weights"] is ReleaseWeights


def told_apart(source: Path) -> set[str]:
    """The names, and the classes, that a file's comparisons and ``isinstance`` ask about."""
    asked = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        is_question = isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "isinstance",
            "issubclass",
        )
        if is_question or isinstance(node, ast.Compare):
            for part in ast.walk(node):
                asked.add(str(getattr(part, "id", getattr(part, "value", ""))))
    return asked


def test_they_are_asked_and_not_told_apart() -> None:
    """By name or class: outside of their own files nothing depends on which one it is."""
    own = {Path(str(sys.modules[kind.__module__].__file__)) for kind in KINDS.values()}
    words = {*KINDS, *(kind.__name__ for kind in KINDS.values())}
    folders = [Path(str(package.__file__)).parent for package in (agt, agt_cli, agt_audit)]
    sources = {path for folder in folders for path in folder.rglob("*.py")} - own
    assert len(sources) > 150
    assert not [(path.name, found) for path in sources if (found := told_apart(path) & words)]


@pytest.mark.parametrize("name", KINDS)
def test_each_has_a_file_of_its_name_that_shows_every_setting(name: str) -> None:
    node = cast(
        dict[str, Any],
        OmegaConf.to_container(OmegaConf.create(config_files.options_of_group("mechanism")[name])),
    )
    settings = set(node) - {"_target_"}
    taken = {field.name for field in fields(cast(Any, KINDS[name]))}
    assert settings == taken
    given = {key: value for key, value in node.items() if value is not None}
    assert type(build({**given, **PARAMETERS[KINDS[name].spends]}, "mechanism")) is KINDS[name]
