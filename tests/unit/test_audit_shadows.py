"""Shadow models: who is in which, what is kept on disk, what goes on after a kill."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from synthetic import make_records

import agt
from agt.errors import ConfigError
from agt.problem import Problem
from agt_audit import shadows
from agt_audit.shadows import Pool, ShadowConfig, halved, shadow_key, train_shadows

ONE = ShadowConfig(models=6, workers=1)


def problem_of(
    certificate: str = "stability",
    units: list[str] | None = None,
    classes: int = 2,
    **given: object,
) -> Problem:
    """180 training records and 60 test records of 4 features."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(240, 4))
    y = np.digitize(x[:, 0] + rng.normal(size=240), np.linspace(-0.5, 0.5, classes - 1))
    declared = agt.Declared(size=180)
    given = {"compute": {"kernel": "reference"}, **given}
    fitted = agt.fit(x[:180], y[:180], declared=declared, certificate=certificate, **given)  # type: ignore[arg-type]
    problem = fitted.model.problem
    train = (
        problem.dataset.train
        if units is None
        else replace(problem.dataset.train, units=np.array(units))
    )
    return problem.with_dataset(
        replace(
            problem.dataset,
            train=train,
            test=make_records(x[180:], y[180:], prefix="t"),
            tested=True,
        )
    )


def test_every_record_is_in_half_of_the_models_and_units_stay_together() -> None:
    problem = problem_of(units=[f"u{i // 3}" for i in range(180)])
    pool = Pool.of(problem.dataset)
    sides = pool.sides(ShadowConfig(models=200))
    assert (sides.sum(axis=0) == 100).all()
    assert (sides[:, :180].reshape(200, 60, 3).all(axis=2) == sides[:, 0:180:3]).all()
    assert abs(sides[::2].mean() - 0.5) < 0.02
    # two units: their coins are independent
    one = sides[::2, 0]
    other = sides[::2, 3]
    assert abs((one == other).mean() - 0.5) < 0.2


def test_a_test_record_that_was_trained_on_is_no_non_member() -> None:
    problem = problem_of()
    test = problem.dataset.test
    ids = test.ids.astype("U64")
    ids[0] = problem.dataset.train.ids[5]
    pool = Pool.of(replace(problem.dataset, test=replace(test, ids=ids)))
    assert pool.member.sum() == 180
    assert len(pool) == 239


def test_public_records_are_in_every_training() -> None:
    problem = problem_of()
    public = np.arange(180) < 20
    pool = Pool.of(replace(problem.dataset, train=replace(problem.dataset.train, public=public)))
    assert (len(pool.always), pool.member.sum()) == (20, 160)
    assert len(shadows._half_of(pool, np.arange(len(pool)) < 10)) == 30


def test_sizes_follow_the_half() -> None:
    problem = problem_of()
    half = halved(problem, Pool.of(problem.dataset))
    assert half.dataset.declared_size == pytest.approx(180 * 120 / 180)
    batch = replace(problem.settings.training.batch, normalizer=180.0, n_max=300)
    fixed = problem_of(batch=batch, lr=0.5, epochs=3)
    scaled = halved(fixed, Pool.of(fixed.dataset)).settings.training.batch
    assert (scaled.normalizer, scaled.n_max) == (pytest.approx(120), 200)


@pytest.mark.parametrize(("certificate", "classes"), [("stability", 3), ("box", 2)])
def test_models_are_found_again(tmp_path: Path, certificate: str, classes: int) -> None:
    problem = problem_of(certificate, classes=classes)
    pool = Pool.of(problem.dataset)
    counts: list[int] = []
    first = train_shadows(problem, pool, ONE, tmp_path, counts.append)
    assert first.logits.shape == (6, 240, classes)
    assert counts == [0, 1, 2, 3, 4, 5, 6]
    assert (first.included.sum(axis=0) == 3).all()
    assert first.reused == 0
    again = train_shadows(problem, pool, ONE, tmp_path)
    assert again.reused == 6
    assert np.array_equal(first.logits, again.logits)


def test_several_workers_make_the_same_bits_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of()
    pool = Pool.of(problem.dataset)
    one = train_shadows(problem, pool, ONE, tmp_path / "one")
    # threads: processes take seconds to start
    monkeypatch.setattr(
        shadows, "worker_processes", lambda *given: parallel_config("threading", n_jobs=2)
    )
    two = train_shadows(problem, pool, replace(ONE, workers=2), tmp_path / "two")
    assert np.array_equal(one.logits, two.logits)


def test_a_key_tells_settings_and_records_apart(tmp_path: Path) -> None:
    problem = problem_of()
    pool = Pool.of(problem.dataset)
    half = halved(problem, pool)
    key = shadow_key(half, pool, ONE)
    assert key == shadow_key(halved(problem_of(), pool), pool, replace(ONE, models=8, workers=2))
    other = problem_of(epochs=2)
    fewer = replace(pool, records=pool.records.take(np.arange(200)), member=pool.member[:200])
    changed = [
        shadow_key(halved(other, pool), pool, ONE),
        shadow_key(half, fewer, ONE),
        shadow_key(half, pool, replace(ONE, seed=1)),
    ]
    assert len({key, *changed}) == 4


def failing(
    monkeypatch: pytest.MonkeyPatch, at: tuple[int, ...], error: BaseException
) -> list[int]:
    """Training fails at these calls; the calls that were made."""
    fit = shadows.fit
    calls = list[int]()

    def trained(problem: Problem) -> object:
        calls.append(len(calls) + 1)
        if calls[-1] in at:
            raise error
        return fit(problem)

    monkeypatch.setattr(shadows, "fit", trained)
    return calls


def test_interrupted_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of()
    calls = failing(monkeypatch, (4,), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        train_shadows(problem, Pool.of(problem.dataset), ONE, tmp_path)
    assert train_shadows(problem, Pool.of(problem.dataset), ONE, tmp_path).reused == 3
    assert len(calls) == 7


def test_failures_are_counted_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of()
    failing(monkeypatch, (2, 3), ConfigError("no such model"))
    made = train_shadows(problem, pool := Pool.of(problem.dataset), ONE, tmp_path)
    assert made.failed == ((1, "no such model"), (2, "no such model"))
    assert np.array_equal(made.included, pool.sides(ONE)[[0, 3, 4, 5]])


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    problem = problem_of()
    pool = Pool.of(problem.dataset)
    first = train_shadows(problem, pool, ONE, tmp_path)
    path = next(tmp_path.rglob("model=0002.*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    again = train_shadows(problem, pool, ONE, tmp_path)
    assert again.reused == 5
    assert np.array_equal(first.logits, again.logits)
