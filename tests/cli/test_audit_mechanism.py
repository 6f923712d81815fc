"""agt audit mechanism and agt audit weights, from the command line: exit codes, records, and
what is refused.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agt_audit import weights
from agt_cli.cli import main
from tests.cli.conftest import TINY, Agt

QUICK = ("compute.kernel=reference", "audit.neighbours=2", "audit.segments=3")
CHOSEN = "training.chosen_on=public"
# draws are the operating system's: at 95 % a sound mechanism fails one test in twenty
SURE = "confidence=0.999999"


def findings(said: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = said.json["audit"]["findings"]
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of a linear head: boxes on {0, 50}, boxes on every k, and the closed form."""
    home = tmp_path_factory.mktemp("attacked")
    settings = {
        "sparse": ("kgrid=sparse", "kgrid.values=[0,20]", "dataset.n_train=600"),
        "dense": ("kgrid.max=3", CHOSEN),
        "stability": ("certificate=stability", "training=recipe", CHOSEN),
    }
    made = {}
    for name, given in settings.items():
        assert (
            main(("train", *TINY[:2], TINY[4], *given, f"output_dir={home / name}", "-q", "--json"))
            == 0
        )
        (made[name],) = (home / name / "train").iterdir()
    return made


def test_the_planted_violation(agt: Agt, runs: dict[str, Path]) -> None:
    """A grid with a gap, distances counted in records: by the table and by draws, exit code 3,
    the record finished.
    """
    given = ("run=" + str(runs["sparse"]), "mechanism=smooth_cauchy", "mechanism.eps=1")
    said = agt("audit", "mechanism", *given, *QUICK, SURE, "accounting=paper", "--json").ended(3)
    audit = json.loads((Path(said.json["run"]) / "audit.json").read_bytes())
    certain, drawn = audit["findings"][:2]
    assert [certain["outcome"], drawn["outcome"]] == ["violated"] * 2
    assert certain["found"] > drawn["found"] > 1
    assert audit["notes"], "that nothing is proved"
    agt("audit", "mechanism", *given).ended(2, "condition a")


def test_none_on_the_dense_grid(agt: Agt, runs: dict[str, Path]) -> None:
    given = (
        "run=" + str(runs["dense"]),
        "mechanism=randomized_response",
        "mechanism.eps=1",
        "audit.trials=300",
    )
    said = agt("audit", "mechanism", *given, *QUICK, SURE, "--json").ended(0)
    certain, drawn, *others = findings(said)
    assert certain["found"] == pytest.approx(1)
    assert drawn["found"] > 0
    assert len(others) == 3


def test_one_number_of_a_run(agt: Agt, runs: dict[str, Path]) -> None:
    """K_q of one query moves by the gap of the grid."""
    given = (
        "mechanism=certified_quantile",
        "mechanism.eps=1",
        "audit.trials=300",
        "accounting=paper",
        *QUICK,
        "--json",
    )
    said = agt("audit", "mechanism", f"run={runs['sparse']}", *given).ended(3)
    assert findings(said)[0]["found"] == pytest.approx(20)


def test_weights(agt: Agt, runs: dict[str, Path]) -> None:
    given = (
        "mechanism=release_weights",
        "mechanism.mu=1",
        "audit.trials=100",
        "audit.neighbours=1",
    )
    said = agt("audit", "weights", f"run={runs['stability']}", *given, SURE, "--json").ended(0)
    certain, drawn = findings(said)[:2]
    assert 0.1 < certain["found"] <= 1
    assert certain["strength"] == "certain"
    assert drawn["measure"] == "mu"
    refused = agt("audit", "weights", f"run={runs['dense']}", *given)
    refused.ended(2, "mechanism=release_weights")


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (("mechanism=randomized_response", "mechanism.eps=1"), 0, "not contradicted:"),
        (("mechanism=smooth_cauchy", "mechanism.eps=1", "audit.values=[0,50]"), 3, "VIOLATED"),
        (("mechanism=certified_quantile", "mechanism.eps=1"), 0, "not contradicted:"),
        (
            ("mechanism=randomized_response", "mechanism.eps=1", "audit.trials=5"),
            0,
            "at least 12 trials with the record",
        ),
    ],
)
def test_without_a_run(agt: Agt, words: tuple[str, ...], code: int, part: str) -> None:
    sound = ("audit.trials=300", SURE) if code == 0 and "trials" not in str(words) else ()
    said = agt("audit", "mechanism", *sound, *words).ended(code)
    assert part in said.out + said.err


@pytest.mark.parametrize(
    "words",
    [
        ("mechanism=randomized_response", "mechanism.eps=1"),
        ("mechanism=randomized_response", "mechanism.eps=1", "mechanism.delta=1e-5"),
        ("mechanism=gaussian_margin", "mechanism.mu=1"),
    ],
)
def test_without_a_run_by_its_own_settings(agt: Agt, words: tuple[str, ...]) -> None:
    """What is worked out without a draw stands: the table, and what answers cost."""
    said = agt("audit", "mechanism", *words, "--json")
    certain = [each for each in findings(said) if each["strength"] == "certain"]
    assert [each["outcome"] for each in certain] == ["not contradicted"] * 2


def test_no_neighbour_is_no_mistake_of_the_settings(
    agt: Agt, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "train_farthest_neighbour", lambda *about: None)
    said = agt(
        "audit",
        "weights",
        f"run={runs['stability']}",
        "mechanism=release_weights",
        "mechanism.mu=1",
        "--json",
    ).ended(0)
    (nowhere,) = findings(said)
    assert (nowhere["outcome"], nowhere["measure"]) == ("not tested", "mu")
