"""relation=perturb on the command line: trained, certified, audited and verified; nothing is
released by it.
"""

import json
from pathlib import Path

from .conftest import Agt

TRAIN = ("train", "dataset.n_train=60", "model.hidden=[4]", "relation=perturb", "kgrid.max=2")


def test_it_is_certified_audited_and_verified_and_releases_nothing(agt: Agt) -> None:
    agt(*TRAIN, "relation.radius=0.05").ended(0)
    certified = agt("certify", "run=latest").ended(0)
    assert "0.05" in certified.out
    (path,) = Path("outputs/certify").glob("*/conditions.json")
    standings = {entry["letter"]: entry["standing"] for entry in json.loads(path.read_text())}
    assert standings["d"] == "not held"
    agt(
        "audit",
        "certificate",
        "run=latest",
        "audit.neighbours=4",
        "audit.queries=10",
        "audit.bounded=0",
    ).ended(0)
    for folder in ("train", "certify"):
        agt("verify", str(next(Path(f"outputs/{folder}").glob("2*")))).ended(0)
    for accounting in ("rigorous", "paper"):
        agt(
            "predict", "run=latest", "mechanism.eps=1", f"accounting={accounting}", "ledger=none"
        ).ended(2, "relation=perturb")
    agt("plan", "run=latest").ended(2, "relation=perturb")
    Path("ids.txt").write_text("1\n")
    for command in (("audit", "membership"), ("unlearn", "ids=ids.txt")):
        agt(*command, "run=latest").ended(2, "relation=perturb")
    assert not list(Path("outputs").rglob("spent.json"))


def test_what_it_needs_is_said(agt: Agt) -> None:
    for given, words in (
        ((), "relation.radius must be given"),
        (("relation.radius=0.1", "training.batch.count=2"), "may move to another batch"),
        (
            ("relation.radius=0.1", "noise.epsilon=1"),
            "only certificate=box, without noise",
        ),
    ):
        agt(*TRAIN, *given).ended(2, words)
