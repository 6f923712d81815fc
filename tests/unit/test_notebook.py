"""What a notebook's user sees: short descriptions without private values, polars frames, bars,
named arguments.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agt
from agt.training.loop import Progress

RNG = np.random.default_rng(3)
X = RNG.normal(size=(200, 3)) / 2
Y = (X[:, 0] > 0).astype(int)
DECLARED = agt.Declared(classes=[0, 1], size=200, features=True, settings=True)


@pytest.fixture(scope="module")
def model() -> agt.Fitted:
    return agt.fit(X, Y, declared=DECLARED)


def shown(model: agt.Fitted) -> dict[str, object]:
    answers = model.certify(X[:5])
    private = agt.PrivateClassifier(declared=DECLARED).fit(X, Y)
    released = agt.fit(X, Y, declared=DECLARED).release(
        X[:3], agt.RandomizedResponse(eps=1.0), seed=1
    )
    return {
        "model": model,
        "answers": answers,
        "certificates": answers.certificates,
        "votes": agt.fit(X, Y, declared=DECLARED, certificate="votes", members=5)
        .certify(X[:5])
        .certificates,
        "labels": released,
        "weights": private.released_,
    }


def test_nothing_private_and_at_most_five_lines_are_shown(model: agt.Fitted) -> None:
    for name, value in shown(model).items():
        text = repr(value)
        assert len(text.splitlines()) <= 5, name
        assert len(text) < 600, name
        assert "array(" not in text, name
        assert "tensor(" not in text, name


def test_a_model_says_which_conditions_are_not_met() -> None:
    assert "b c e" in repr(agt.fit(X, Y))


def test_polars_frames_are_taken_wherever_pandas_frames_are(model: agt.Fitted) -> None:
    polars: Any = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    fitted = agt.fit(frame, Y, declared=DECLARED)
    assert fitted.predict(frame.select(["c", "a", "b"])).tolist() == model.predict(X).tolist()
    for learner in (agt.CertifiedClassifier, agt.PrivateClassifier):
        estimator = learner(declared=DECLARED).fit(frame, polars.Series(Y))
        assert estimator.predict(frame).shape == (200,)
    with pytest.raises(agt.ConfigError, match="collect"):
        agt.fit(frame.lazy(), Y)


@pytest.mark.parametrize("value", ["1", None, True])
@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_a_budget_of_a_wrong_type_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(agt.ConfigError, match=f"{name}=") as refused:
        agt.PrivateClassifier(declared=DECLARED, **{name: value}).fit(X, Y)
    assert isinstance(refused.value, ValueError), "as scikit-learn expects"


def test_an_estimator_is_fitted_under_every_relation() -> None:
    settings: dict[str, Any] = {"network": (4,), "epochs": 1, "lr": 0.1, "clip": 1.0, "ks": 2}
    estimator = agt.CertifiedClassifier(
        declared=DECLARED, relation="perturb", radius=0.1, **settings
    )
    assert estimator.fit(X, Y).model_.model.problem.settings.relation.radius == 0.1


def test_a_bar_counts_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    bar = agt.progress_bar("training")
    for done in (0, 5, 10):
        bar(Progress(done, 10, done, 10))
    assert "training: 100%" in capsys.readouterr().err


def test_a_training_shows_a_bar_to_its_end_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The solver needs fewer steps than were expected.
    settings: dict[str, Any] = {"certificate": "erm", "weight_decay": 0.01, "declared": DECLARED}
    agt.fit(X, Y, verbose=True, **settings)
    shown = capsys.readouterr()
    assert "training: 100%" in shown.err
    assert not shown.out
    agt.CertifiedClassifier(verbose=True, **settings).fit(X, Y)
    assert "training: 100%" in capsys.readouterr().err


def test_a_training_prints_nothing_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    agt.fit(X, Y, declared=DECLARED)
    reported: list[Progress] = []
    agt.fit(X, Y, declared=DECLARED, verbose=True, on_progress=reported.append)
    assert reported
    shown = capsys.readouterr()
    assert not shown.out + shown.err


def test_importing_the_library_sets_no_variable_of_the_process(tmp_path: Path) -> None:
    code = (
        "import os; before = dict(os.environ); import agt; agt.fit; assert dict(os.environ) == "
        "before"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=120, cwd=Path(agt.__file__).parents[1]
    )


def test_every_name_that_is_offered_is_there() -> None:
    assert all(getattr(agt, name) is not None for name in agt.__all__)
    assert {
        "Ledger",
        "Claim",
        "Certificates",
        "Condition",
        "Portable",
        "Removal",
        "NoisyStatistics",
    } <= set(agt.__all__)


def test_the_page_of_public_names_lists_all_of_them_and_no_others() -> None:
    page = (Path(agt.__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    listed = {
        name
        for row in re.findall(r"^\| (`[^|]*) \|", page, re.M)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert listed == set(agt.__all__)


def test_every_package_is_marked_as_typed() -> None:
    folder = Path(agt.__file__).parents[1]
    assert all(
        (folder / package / "py.typed").exists() for package in ("agt", "agt_cli", "agt_audit")
    )
