"""agt audit replay, from the command line: what it finds, what it refuses, and its page."""

from pathlib import Path

import pytest

from agt_cli.cli import main
from tests.cli.conftest import TINY, Agt

QUICK = ("compute.kernel=reference", "audit.queries=20", "--json")
LABELS = ("mechanism=smooth_cauchy", "mechanism.eps=1")
NOISY = (
    "noise.epsilon=4",
    "training.clip=0.05",
    "training.batch.count=2",
    "training.epochs=2",
    "kgrid.max=0",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("replayed")
    made = {}
    settings = {
        "sparse": ("kgrid=sparse", "kgrid.values=[0,20]", "dataset.n_train=600"),
        "stability": ("certificate=stability", "training=recipe"),
        "noisy": NOISY,
    }
    for name, given in settings.items():
        words = (
            "train",
            *TINY[:2],
            TINY[4],
            *given,
            "training.chosen_on=public",
            f"output_dir={home / name}",
        )
        assert main((*words, "-q", "--json")) == 0
        (made[name],) = (home / name / "train").iterdir()
    return made


@pytest.mark.parametrize(
    ("run", "given", "code"),
    [
        ("stability", LABELS, 0),
        ("stability", ("mechanism=noisy_statistics", "mechanism.mu=1"), 0),
        ("noisy", (), 0),
        ("sparse", (*LABELS, "accounting=paper"), 3),
    ],
)
def test_a_run_is_replayed(
    agt: Agt, runs: dict[str, Path], run: str, given: tuple[str, ...], code: int
) -> None:
    said = agt("audit", "replay", f"run={runs[run]}", *given, *QUICK).ended(code)
    findings = said.json["audit"]["findings"]
    assert len(findings) == 4
    assert {each["outcome"] for each in findings[::2]} == {"not contradicted"}
    largest = max(each["found"] for each in findings[1::2])
    assert 0 < largest <= 1 if code == 0 else largest > 1


@pytest.mark.parametrize(
    ("run", "given", "part"),
    [
        ("noisy", LABELS, "was trained with random noise, so the audit replays its training"),
        ("stability", (), "mechanism: name the mechanism to audit"),
        ("sparse", LABELS, "condition a"),
        (
            "stability",
            ("mechanism=objective_perturbation", "mechanism.eps=1", "mechanism.delta=1e-3"),
            "certificate=erm",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    agt: Agt, runs: dict[str, Path], run: str, given: tuple[str, ...], part: str
) -> None:
    assert part in agt("audit", "replay", f"run={runs[run]}", *given, *QUICK).ended(2).err
