"""relation=flip on the command line: trained, certified, released and verified, and refused
where records come and go.
"""

import json
from pathlib import Path

from .conftest import Agt

TRAIN = (
    "train",
    "dataset.n_train=60",
    "certificate=votes",
    "relation=flip",
    "training.chosen_on=public",
)


def test_one_head_is_certified_released_and_verified(agt: Agt) -> None:
    trained = agt(*TRAIN, "--json").ended(0)
    # and not the recipe's number, which a declared size brings elsewhere
    assert trained.json["metrics"]["members"] == 1
    agt("certify", "run=latest").ended(0)
    told = agt(
        "predict", "run=latest", "mechanism=randomized_response", "mechanism.eps=1", "ledger=none"
    ).ended(0)
    claim = json.loads(next(Path("outputs/predict").glob("*/claim.json")).read_text())
    assert (claim["guarantee"]["eps"], claim["relation"]["name"]) == (1, "flip")
    assert claim["words"][0] in told.out
    agt("plan", "run=latest").ended(0)
    for folder in ("train", "certify", "predict"):
        agt("verify", str(next(Path(f"outputs/{folder}").glob("2*")))).ended(0)


def test_its_certificates_are_audited_by_changing_labels(agt: Agt) -> None:
    assert agt(*TRAIN).code == 0
    audit = agt(
        "audit", "certificate", "run=latest", "audit.neighbours=8", "audit.queries=10", "--json"
    ).ended(0)
    found = {
        finding["subject"].partition(":")[0]: finding["outcome"]
        for finding in audit.json["audit"]["findings"]
    }
    assert found["certified labels"] == "not contradicted"


def test_audits_and_erasures_are_refused_before_any_data_is_read(agt: Agt) -> None:
    agt(*TRAIN).ended(0)
    Path("ids.txt").write_text("1\n")
    for command in (
        ("audit", "memorisation"),
        ("audit", "membership"),
        ("unlearn", "ids=ids.txt"),
    ):
        agt(*command, "run=latest").ended(2, "relation=flip")


def test_data_that_cannot_be_named_without_labels_is_refused(agt: Agt) -> None:
    for dataset in ("digits", "mnist"):  # mnist: before its file is missed
        agt("train", f"dataset={dataset}", "dataset.declared_size=300", *TRAIN[2:]).ended(
            2, "makes the id of a record from the record and its label", "use dataset=table"
        )
    agt(*TRAIN, "dataset.label_free=false").ended(2, "dataset.label_free=true")
    agt("train", "+dataset.label_free=true").ended(2, "dataset.label_free=true", "relation=flip")
    agt(
        "train",
        "relation=flip",
        "model=linear",
        "certificate=removal",
        "training=recipe",
        "dataset.n_train=60",
    ).ended(2, "certificate=votes")
