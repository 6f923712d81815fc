"""A ledger that cannot pay is named before PyTorch is loaded, and no other ledger is."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest

from agt.errors import ConfigError
from agt.ledger.book import Charge, Population
from agt.ledger.ledger import Exhausted, Ledger
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.budget import Allowance
from agt.mechanisms.guarantees import GaussianDP, Guarantee, PureDP, guarantee_of_budget
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.mechanism_config import AnyMechanism
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.weights_mechanism import weights_mechanisms
from agt.release_settings import BUDGET_KEYS
from agt_cli.ledger_files import NO_LEDGER
from agt_cli.releasing.payer import check_payer
from agt_cli.report.finished import Run

DATA = "of the run"
EARLIER = "before an erasure"
HALF = PureDP(0.5)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The record of a run in a new working folder, as far as a ledger is about it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "run"
    folder.mkdir()
    config = {"dataset": {}, "relation": {"name": "add_remove"}}
    environment = {"dataset": "loans", "data_digest": DATA, "earlier_data": [EARLIER]}
    (folder / "config.yaml").write_text(json.dumps(config))
    (folder / "env.json").write_text(json.dumps(environment))
    return Run.at(folder)


def make_ledger(
    data: str = DATA, relation: str = "add_remove", spent: Sequence[Charge] = ()
) -> Path:
    """Create a ledger of eps = 1 that admitted one table and paid for releases."""
    path = Path("ledgers", "loans.ledger")
    population = Population("loans", "one record", relation, Allowance(eps=1.0))
    with Ledger.create(path, population, tables=[AdmittedTable("loans", data)]) as ledger:
        for charge in spent:
            ledger.debit(charge, 2)
    return path


def charged(run: str, mechanism: str = "randomized_response") -> Charge:
    """A charge for a label of a run, two of which spend the whole budget."""
    return Charge(HALF, "labels", mechanism, run, DATA, "add_remove")


def check(
    run: Run,
    ledger: object = "loans",
    guarantee: Guarantee | None = HALF,
    mechanism: str | None = "randomized_response",
) -> None:
    """Check whether a ledger can pay for a release, as ``agt predict`` does first."""
    check_payer(ledger, run, Path("outputs"), guarantee, mechanism)


def test_a_ledger_that_can_pay_is_accepted_and_not_changed(run: Run) -> None:
    path = make_ledger()
    before = path.read_bytes()
    check(run)
    assert path.read_bytes() == before
    assert [*path.parent.iterdir()] == [path]


def test_data_that_a_ledger_has_not_admitted_are_named(run: Run) -> None:
    make_ledger(data="others")
    with pytest.raises(ConfigError, match="not admitted"):
        check(run)


def test_another_relation_is_named(run: Run) -> None:
    make_ledger(relation="substitute")
    with pytest.raises(ConfigError, match="relation=add_remove"):
        check(run)


def test_a_spent_budget_is_named(run: Run) -> None:
    make_ledger(spent=[charged("another run")])
    with pytest.raises(Exhausted, match="already spent"):
        check(run)


def test_gaussian_noise_of_a_ledger_without_delta_is_named(run: Run) -> None:
    make_ledger()
    with pytest.raises(Exhausted, match="Gaussian noise"):
        check(run, guarantee=GaussianDP(1e-15))


def test_stored_answers_of_a_spent_ledger_are_left_to_who_looks_them_up(run: Run) -> None:
    make_ledger(spent=[charged(run.digest)])
    check(run)
    with pytest.raises(Exhausted):
        check(run, mechanism="noisy_argmax")
    with pytest.raises(Exhausted):
        check(run, mechanism=None)


def test_a_ledger_of_the_table_before_an_erasure_is_left_to_who_opens_it(run: Run) -> None:
    make_ledger(data=EARLIER)
    check(run)


def test_a_ledger_that_counts_these_people_must_be_named(run: Run) -> None:
    make_ledger()
    with pytest.raises(ConfigError, match="give ledger=loans"):
        check(run, ledger=None)
    check(run, ledger=NO_LEDGER)


def test_a_ledger_that_cannot_be_opened_is_left_to_who_opens_it(run: Run) -> None:
    make_ledger().write_bytes(b"no ledger")
    check(run)


def budgets() -> list[tuple[type[AnyMechanism], dict[str, float]]]:
    """Every mechanism of agt, with each budget that it takes."""
    kinds = [*MECHANISMS.values(), *weights_mechanisms().values(), LaplaceMean, CertifiedQuantile]
    given = []
    for kind in kinds:
        names = {field.name for field in fields(kind)} & {*BUDGET_KEYS}
        values = {"eps": 0.5, "mu": 0.5, "delta": 1e-6}
        given.append((kind, {name: values[name] for name in names}))
        if "delta" in names and "delta" not in kind.budget_keys():
            given.append((kind, {name: values[name] for name in names - {"delta"}}))
    return given


@pytest.mark.parametrize(("kind", "budget"), budgets())
def test_a_budget_has_the_guarantee_of_its_mechanism(
    kind: type[AnyMechanism], budget: dict[str, float]
) -> None:
    assert guarantee_of_budget(budget) == kind(**budget).guarantee
