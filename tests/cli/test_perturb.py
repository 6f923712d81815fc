"""relation=perturb on the command line: trained, certified, audited and verified; nothing is
released by it.
"""

from pathlib import Path

from .conftest import Agt

TRAIN = ("train", "dataset.n_train=60", "model.hidden=[4]", "relation=perturb", "kgrid.max=2")


def test_it_is_certified_audited_and_verified_and_releases_nothing(agt: Agt) -> None:
    agt(*TRAIN, "relation.radius=0.05").ended(0)
    certified = agt("certify", "run=latest").ended(0)
    assert (
        "k counts up to k records given other features, each within 0.05 of what it was"
        in " ".join(certified.out.split())
    )
    assert "not held: inclusion-monotone rules (d)" in certified.out + certified.err
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
        ).ended(2, "against poisoning, and no release mechanism takes them")
    agt("plan", "run=latest").ended(2, "no release can be planned by them")
    for command in (("audit", "membership"), ("unlearn", "ids=none.csv")):
        agt(*command, "run=latest").ended(
            2, "relation=perturb: its certificates count changed features"
        )


def test_what_it_needs_is_said(agt: Agt) -> None:
    for given, words in (
        ((), "needs relation.radius"),
        (("relation.radius=0.1", "training.batch.count=2"), "Use 1 of each"),
        (("relation.radius=0.1", "noise.epsilon=1"), "bounded by boxes alone, without noise"),
    ):
        agt(*TRAIN, *given).ended(2, words)
