"""certificate=votes with a learner of one's own, from the command line: what is imported, kept,
answered and refused.
"""

import json
import sys
from pathlib import Path

import pytest
from museum import FinishedRuns
from records import reseal
from safetensors.numpy import load_file, save_file

from agt.models import own_votes
from agt.models.own_votes import OwnVotesModel
from agt_cli.runs.queries import TrainedRun

from .conftest import Agt

LEARNER = "certificate.learner._target_="
SOME = (
    "dataset=blobs_overlapping",
    "dataset.n_train=200",
    "certificate=votes",
    "ensemble.members=5",
    "-q",
    "--json",
)
TREE = (*SOME, f"{LEARNER}sklearn.tree.DecisionTreeClassifier", "certificate.learner.max_depth=2")
OWN = """
def stump(x, y, cut=0.0):
    return lambda queries: (queries[:, 0] > cut) * 1
"""


@pytest.fixture(autouse=True)
def not_trained_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with a fresh process takes seconds; tests/soundness/test_own_learners.py
    asks for it.
    """
    monkeypatch.setattr(own_votes, "check_retrained", lambda *_: None)


def test_a_run_keeps_votes_and_answers_its_test_records(
    agt: Agt, finished_runs: FinishedRuns
) -> None:
    run = finished_runs.copy("train/trees", Path("run"))
    assert not (run / "model.safetensors").exists()
    constants = json.loads((run / "votes.json").read_text())
    assert constants["learner"] == {
        "_target_": "sklearn.tree.DecisionTreeClassifier",
        "max_depth": 2,
    }
    assert load_file(run / "ballots.safetensors")["votes"].shape == (5, constants["queries"])
    said = agt("certify", f"run={run}", "map_resolution=0", "-q", "--json").ended(0)
    assert said.json["metrics"]["accuracy"] > 0.7
    Path("queries.csv").write_text("x1,x2\n0.123,4.5\n")
    for more in (("inputs=queries.csv", "map_resolution=0"), ()):
        agt("certify", f"run={run}", "-q", "--json", *more).ended(2)
    votes = ("mechanism=noisy_argmax", "mechanism.eps=1")
    agt("predict", f"run={run}", "inputs=queries.csv", *votes, "-q", "--json").ended(2)
    assert not list(Path("outputs").rglob("spent.json"))
    agt("audit", "certificate", f"run={run}", "-q", "--json").ended(2)


def test_what_a_folder_names_is_imported_by_nothing(
    agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("my_learner.py").write_text(OWN)
    said = agt(
        "train",
        *SOME,
        f"{LEARNER}my_learner.stump",
        "certificate.learner.cut=0.5",
        "training.chosen_on=public",
    ).ended(0)
    run = said.json["run"]
    Path("my_learner.py").write_text("raise RuntimeError('imported')")
    del sys.modules["my_learner"]
    for command in (
        ("verify", run),
        ("certify", f"run={run}", "map_resolution=0"),
        ("plan", f"run={run}"),
    ):
        agt(*command, "-q", "--json").ended(0)
    assert "my_learner" not in sys.modules
    ids = TrainedRun.from_config({"run": run, "compute": {}}).settings.source.load().train.ids
    Path("gone.txt").write_text(f"{ids[0]}\n")
    said = agt("unlearn", f"run={run}", "ids=gone.txt", "-q", "--json").ended(2)
    assert "my_learner.stump" in said.json["error"]
    assert f"delete the folder {run}" in said.json["error"], "what can be done instead"
    agt("unlearn", f"run={run}", "ids=gone.txt", "method=certificate", "-q", "--json").ended(0)
    assert "my_learner" not in sys.modules


def test_a_broken_ballot_is_refused(agt: Agt, finished_runs: FinishedRuns) -> None:
    run = finished_runs.copy("train/trees", Path("run"))
    tensors = load_file(run / "ballots.safetensors")
    for change in ({"votes": tensors["votes"] * 0 + 2}, {"raised": tensors["raised"] + 2}):
        save_file(tensors | change, run / "ballots.safetensors")
        reseal(run)
        said = agt("certify", f"run={run}", "map_resolution=0", "-q", "--json")
        assert "ballots.safetensors" in said.json["error"]
    constants = json.loads((run / "votes.json").read_text())
    (run / "votes.json").write_text(json.dumps(constants | {"queries": -1}))
    reseal(run)
    assert "-1" in agt("certify", f"run={run}", "-q", "--json").json["error"]


def test_a_folder_alone_imports_no_learner(agt: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    with monkeypatch.context() as patch:
        patch.setattr(OwnVotesModel, "fit", classmethod(lambda *some: 1 / 0))
        assert agt("train", *TREE, "hydra.run.dir=begun").code != 0
    Path("evil.py").write_text("raise RuntimeError('imported')")
    config = Path("begun/config.yaml")
    config.write_text(
        config.read_text().replace("sklearn.tree.DecisionTreeClassifier", "evil.learner")
    )
    said = agt("train", "resume=begun", "-q", "--json").ended(2)
    assert "trust=[evil.learner]" in said.json["error"]
    assert "evil" not in sys.modules


@pytest.mark.parametrize(
    "named",
    [
        [word for word in TREE if word.startswith(LEARNER)],
        ["trust=[sklearn.tree.DecisionTreeClassifier]"],
    ],
)
def test_a_run_goes_on_where_its_line_names_the_learner_again(
    agt: Agt, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(OwnVotesModel, "fit", classmethod(lambda *some: 1 / 0))
        assert agt("train", *TREE, "hydra.run.dir=begun").code != 0
    said = agt("train", "resume=begun", "-q", "--json").ended(2)
    assert "trust=[sklearn.tree.DecisionTreeClassifier]" in said.json["error"]
    agt("train", "resume=begun", *named, "-q", "--json").ended(0)
