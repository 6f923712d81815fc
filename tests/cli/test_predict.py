"""agt predict: labels with their guarantee, and every case in which it must refuse to give one."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from .conftest import Agt, Said

BLOBS = (
    "dataset.n_train=200",
    "model=linear",
    "training.epochs=20",
    "training.decay=0",
    "compute.kernel=reference",
)
PUBLIC = "training.chosen_on=public"
DIGITS = (
    "dataset=digits",
    "model=linear",
    "training=generic",
    "training.loss=binary_cross_entropy",
)
HEAD = (
    *DIGITS,
    "certificate=stability",
    "training.clip=0.5",
    "training.epochs=40",
    "training.lr=5",
    "training.decay=0",
)
TEN = (*HEAD, "dataset.classes=null", "dataset.declared_size=1350", "training.chosen_on=public")
FIVE = ("ensemble.members=5", "compute.threads=1", "kgrid.max=6")
RUNS = {
    "box": (*BLOBS, PUBLIC, "kgrid.max=20"),
    "sparse": (*BLOBS, PUBLIC, "kgrid=sparse", "kgrid.values=[0,2,5,10]"),
    "remove": (*BLOBS, PUBLIC, "kgrid.max=3", "relation=remove"),
    "chosen": (*BLOBS, "kgrid.max=3", "training.chosen_on=data"),
    "ensemble": (*BLOBS, PUBLIC, *FIVE),
    "margins": (*BLOBS, PUBLIC, *FIVE, "ensemble.vote=margins", "ensemble.margin_clip=1"),
    "profile": (*BLOBS, "kgrid.max=3"),
    "replaced ensemble": (*BLOBS, PUBLIC, *FIVE, "relation=substitute"),
    "head": (*HEAD, "training.chosen_on=public"),
    "another head": (*HEAD, "training.chosen_on=public"),
    "head by results": (*HEAD, "training.chosen_on=data"),
    "undeclared head": (*HEAD, "training.chosen_on=public", "dataset.declared_size=null"),
    "ten": TEN,
    "ensemble of ten": (*TEN, "ensemble.members=2", "compute.threads=1"),
}
POINTS = {"x1": [1.25, -1.25, 1.0], "x2": [1.25, -1.25, 1.2]}
WEIGHTS = ("mechanism=release_weights", "total.eps=1", "total.delta=1e-5")

Run = Callable[[str], Path]


@pytest.fixture(scope="module")
def run(trained_as: Callable[..., Path]) -> Run:
    """The folder of a finished training run by its name in RUNS."""
    return lambda name: trained_as(name, RUNS[name])


@pytest.fixture
def predict(agt: Agt, run: Run) -> Callable[..., Said]:
    """``agt predict`` on the run of that name; ``inputs=points`` is a file of three points."""

    def ask(name: str, *arguments: str) -> Said:
        folder = run(name)
        pd.DataFrame(POINTS).to_csv("points.csv", index=False)
        return agt("predict", f"run={folder}", *arguments)

    return ask


Predict = Callable[..., Said]


def folder_of(said: Said) -> Path:
    """Where the labels went, from what was printed."""
    assert said.code == 0, said.err
    return Path(re.search(r"^labels: (.+)/labels\.csv$", said.out, re.M)[1])  # type: ignore[index]


def claim_of(said: Said) -> dict[str, Any]:
    """The fields of the claim beside what was released."""
    assert said.code == 0, said.err
    (path,) = max(Path("outputs/predict").iterdir()).glob("claim.json")
    claim: dict[str, Any] = json.loads(path.read_text())
    return claim


# -- what it says and writes


def test_labels_with_their_claim_and_total(predict: Predict) -> None:
    said = predict("box", "inputs=points.csv", "mechanism.eps=20")  # flips the label once in 5 10^8
    folder = folder_of(said)
    labels = pd.read_csv(folder / "labels.csv")
    assert labels["label"].tolist() == ["right", "left", "right"]
    assert labels["record_id"].is_unique
    claim = claim_of(said)
    assert claim["guarantee"] == {"kind": "pure", "eps": 20}
    assert claim["relation"]["name"] == "add_remove"
    assert claim["totals"][0] == {"eps": pytest.approx(60), "delta": 0, "bound": "basic"}
    assert claim["uncounted"]["why"] == "unnamed"
    assert (claim["proved"], claim["simulated"]) == (True, False)
    report = (folder / "report.md").read_text()
    for text in (said.out, report):
        for sentence in claim["words"][:2]:
            assert sentence in text, "of one label, and of all together"
    for value in ("labels.csv", "points.csv", "randomized_response"):
        assert value in report


def test_a_total_budget_is_divided_over_the_queries_that_may_come(predict: Predict) -> None:
    few = predict("box", "inputs=points.csv", "total.eps=1", "force=true", "--json", "-q").json
    many = predict(
        "box",
        "inputs=points.csv",
        "total.eps=1",
        "total.queries=1000",
        "force=true",
        "--json",
        "-q",
    ).json
    assert few["metrics"]["eps"] == pytest.approx(1 / 3, rel=1e-6)
    assert many["metrics"]["eps"] == pytest.approx(1e-3, rel=1e-6)
    loose = predict(
        "box",
        "inputs=points.csv",
        "total.eps=1",
        "total.queries=1000",
        "total.delta=1e-5",
        "force=true",
        "--json",
        "-q",
    ).json
    assert loose["metrics"]["eps"] > 5 * many["metrics"]["eps"], (
        "delta lets the optimal composition help"
    )


@pytest.mark.parametrize("mechanism", ["gaussian_margin", "smooth_laplace", "propose_test_release"])
def test_what_the_total_says_is_what_was_asked_for(predict: Predict, mechanism: str) -> None:
    said = predict(
        "box",
        "inputs=points.csv",
        f"mechanism={mechanism}",
        "total.eps=1",
        "total.delta=1e-5",
        "force=true",
    )
    assert "(1, 1e-05)" in said.out
    (total,) = [total for total in claim_of(said)["totals"] if total["delta"] == 1e-5]
    assert 0.9 < total["eps"] <= 1


@pytest.mark.parametrize("budget", ["mechanism.mu=3", "mechanism.mu=15", "mechanism.mu=1e-6"])
def test_budgets_at_the_ends_of_their_range_are_stated(predict: Predict, budget: str) -> None:
    said = predict("box", "inputs=points.csv", "mechanism=gaussian_margin", budget, "force=true")
    assert said.code == 0, said.err
    (composed,) = claim_of(said)["totals"]
    assert f"({composed['eps']:.6g}, {composed['delta']:.6g})" in said.out


def test_a_terminal_shows_a_claim_in_brief_and_the_page_all_of_it(predict: Predict) -> None:
    said = predict("box", "mechanism.eps=1")
    page = (folder_of(said) / "report.md").read_text().partition("## What is guaranteed")[2]
    title, *_ = said.out.splitlines()
    assert "report.html" in title
    shown = [line.removeprefix("  - ") for line in said.out.splitlines() if line.startswith("  - ")]
    numbers = r"\d[\d.e-]*\d|\d"
    assert set(re.findall(numbers, "\n".join(shown))) <= set(re.findall(numbers, page))
    (declared,) = (line for line in shown if "what was declared" in line)
    conditions = {fact["condition"] for fact in claim_of(said)["declared"]}
    assert set(re.findall(r" ([a-g]) \(", declared)) == conditions
    assert len(" ".join(shown).split()) < len(page.split()) / 2


def test_json_is_one_object_without_accuracy_or_distances(predict: Predict) -> None:
    value = predict("box", "mechanism.eps=20", "--json").json
    assert set(value) == {
        "command",
        "run",
        "digest",
        "metrics",
        "claim",
        "words",
        "labels",
        "exit_code",
    }
    assert set(value["metrics"]) == {
        "n_queries",
        "proved",
        "simulated",
        "eps",
        "conditions",
        "conditions_held",
        "conditions_proved",
        "conditions_declared",
        "conditions_not_met",
    }
    assert (value["metrics"]["proved"], value["metrics"]["simulated"]) == (1, 0)
    assert len(value["labels"]) == value["metrics"]["n_queries"] == 50
    assert value["words"][0] == value["claim"]
    assert claim_of(predict("box", "mechanism.eps=20"))["words"][0] == value["claim"]


def test_a_delta_of_its_own_is_never_forgotten(predict: Predict) -> None:
    """Randomized response with a delta, which the accountant of pure eps would drop."""
    said = predict("box", "mechanism.eps=0.1", "mechanism.delta=1e-6")
    claim = claim_of(said)
    assert claim["guarantee"] == {"kind": "approximate", "eps": 0.1, "delta": 1e-6}
    assert len(claim["totals"]) == 1, "no pure total"
    assert claim["totals"][0]["delta"] >= 50 * 1e-6
    predict("box", "mechanism.eps=0.1", "mechanism.delta=1e-6", "total.delta=1e-6").ended(
        2, "total.delta=1e-06", "5e-05"
    )


def test_draws_come_from_the_operating_system(predict: Predict) -> None:
    """Fifty fair coins agree twice with probability 2^-50."""
    one, two = (
        predict("box", "mechanism.eps=1e-9", "force=true", "--json", "-q").json["labels"]
        for _ in range(2)
    )
    assert one != two


def test_labels_near_those_drawn_by_lot_are_not_drawn_unasked(predict: Predict) -> None:
    said = predict("box", "mechanism.eps=1e-3").ended(2, "force=true")
    assert "labels.csv" not in said.out
    assert not list(Path("outputs").rglob("spent.json"))
    assert predict("box", "mechanism.eps=1e-3", "force=true").code == 0
    assert predict("box", "mechanism.eps=1e-3", "seed=3").code == 0, "a simulation spends nothing"


# -- simulations and published accounting


def test_a_seed_marks_everything_as_a_simulation(predict: Predict) -> None:
    said = predict("box", "inputs=points.csv", "mechanism.eps=1", "seed=7")
    folder = folder_of(said)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert (metrics["proved"], metrics["simulated"]) == (0, 1)
    claim = claim_of(said)
    assert (claim["simulated"], claim["publishable"]) == (True, False)
    for text in (said.out, (folder / "report.md").read_text()):
        assert "SIMULATION" in text
    again = predict("box", "mechanism.eps=0.001", "seed=7", "--json", "-q").json
    assert "SIMULATION" in again["claim"]
    assert (
        again["labels"]
        == predict("box", "mechanism.eps=0.001", "seed=7", "--json", "-q").json["labels"]
    )
    assert (
        again["labels"]
        != predict("box", "mechanism.eps=0.001", "seed=8", "--json", "-q").json["labels"]
    )


def test_paper_accounting_says_everywhere_that_it_proves_nothing(predict: Predict) -> None:
    said = predict("sparse", "mechanism=smooth_cauchy", "mechanism.eps=1", "accounting=paper")
    folder = folder_of(said)
    report = (folder / "report.md").read_text()
    claim = claim_of(said)
    assert (claim["proved"], claim["publishable"], claim["reasons"]) == (False, False, ["a"])
    assert not claim["totals"], "a total of what is not proved"
    assert claim["words"][0] in said.out
    assert claim["words"][0] in report
    assert json.loads((folder / "metrics.json").read_text())["proved"] == 0


def test_published_vote_of_an_ensemble_proves_nothing_and_the_certified_one_does(
    predict: Predict,
) -> None:
    published = predict("ensemble", "mechanism.eps=1", "accounting=paper")
    claim = claim_of(published)
    assert (claim["proved"], claim["publishable"]) == (False, False)
    certified = predict("ensemble", "mechanism.eps=20", "inputs=points.csv")
    assert pd.read_csv(folder_of(certified) / "labels.csv")["label"].tolist() == [
        "right",
        "left",
        "right",
    ]
    votes = claim_of(predict("ensemble", "mechanism=noisy_argmax", "mechanism.eps=1"))
    assert (votes["proved"], votes["guarantee"]["eps"]) == (True, 1)
    assert votes["relation"]["name"] == "add_remove"


def test_an_ensemble_that_votes_by_margins(predict: Predict, run: Run) -> None:
    """The members are those of a vote of labels; noisy_argmax counts labels all the same."""
    labels, margins = (
        (run(name) / "members/000/model.safetensors").read_bytes()
        for name in ("ensemble", "margins")
    )
    assert labels == margins
    certified = predict("margins", "mechanism.eps=20", "inputs=points.csv")
    assert claim_of(certified)["guarantee"]["eps"] == 20
    assert pd.read_csv(folder_of(certified) / "labels.csv")["label"].tolist() == [
        "right",
        "left",
        "right",
    ]
    votes = claim_of(predict("margins", "mechanism=noisy_argmax", "mechanism.eps=1"))
    assert (votes["guarantee"]["eps"], votes["relation"]["name"]) == (1, "add_remove")
    conditions = json.loads((run("margins") / "conditions.json").read_text())
    (clipped,) = (fact for fact in conditions[2]["facts"] if fact["code"] == "margins_clipped")
    assert clipped["values"]["clip"] == 1


def test_an_ensemble_whose_records_may_be_replaced(predict: Predict, run: Run) -> None:
    """The certified vote counts two members for each k, and noise on votes covers two."""
    said = predict("replaced ensemble", "mechanism.eps=20", "inputs=points.csv")
    claim = claim_of(said)
    assert (claim["guarantee"]["eps"], claim["relation"]["name"]) == (20, "substitute")
    assert pd.read_csv(folder_of(said) / "labels.csv")["label"].tolist() == [
        "right",
        "left",
        "right",
    ]
    claim = claim_of(predict("replaced ensemble", "mechanism=noisy_argmax", "mechanism.eps=1"))
    assert (claim["guarantee"]["eps"], claim["relation"]["name"]) == (1, "substitute")
    one, two = (
        json.loads((run(name) / "conditions.json").read_text())
        for name in ("ensemble", "replaced ensemble")
    )
    assert "shards_by_hash" in [fact["code"] for fact in one[1]["facts"]]
    (several,) = (fact for fact in two[1]["facts"] if fact["code"] == "shards_by_hash_several")
    assert several["values"]["touches"] == 2


def test_counting_steps_of_a_sparse_grid_is_proved(predict: Predict) -> None:
    said = predict("sparse", "mechanism.eps=20", "inputs=points.csv", "counting=index")
    claim = claim_of(said)
    assert (claim["guarantee"]["eps"], claim["counting"], claim["proved"]) == (20, "index", True)
    assert pd.read_csv(folder_of(said) / "labels.csv")["label"].tolist() == [
        "right",
        "left",
        "right",
    ]


def test_ten_classes(predict: Predict) -> None:
    said = predict("ten", "mechanism.eps=20", "--json", "-q").json
    assert set(said["labels"]) == set("0123456789")


def test_one_number_about_all_certificates(predict: Predict) -> None:
    said = predict("box", "mechanism=certified_quantile", "mechanism.eps=1").ended(0)
    found = re.search(
        r"^the fraction 0\.5 of the queries has a stable distance of at least about (\d+) ",
        said.out,
        re.M,
    )
    assert found, said.out
    assert 0 <= int(found[1]) <= 20, "the public end of the grid"
    claim = claim_of(said)
    assert (claim["guarantee"]["eps"], claim["output"], claim["releases"]) == (1, "a number", 1)
    assert not [
        *Path("outputs").rglob("labels.csv"),
        *Path("outputs").rglob("certificates.parquet"),
    ]
    assert claim["publishable"]


# -- the weights of a linear head


def test_released_weights_answer_any_number_of_queries(predict: Predict) -> None:
    predict("head", *WEIGHTS, "hydra.run.dir=release").ended(0)
    claim = json.loads(Path("release/claim.json").read_text())
    assert claim["guarantee"] == {"kind": "gaussian", "mu": pytest.approx(0.268051, rel=1e-5)}
    assert claim["totals"] == [{"eps": pytest.approx(1), "delta": 1e-5, "bound": "gaussian"}]
    assert "answers" not in claim, "any number of queries"
    report = Path("release/report.md").read_text()
    for name in ("`labels.csv`", "`released_weights.safetensors`", "`release`"):
        assert name in report


# -- refusals

PAPER = "unproved=allow"
REFUSED = [
    (
        "remove",
        ("mechanism.eps=1",),
        ("relation=remove", "condition g", "relation=add_remove"),
    ),
    (
        "remove",
        ("mechanism.eps=1", "accounting=paper"),
        ("condition g",),
    ),
    (
        "sparse",
        ("mechanism.eps=1",),
        ("condition a", "counting=index", "kgrid=dense", PAPER),
    ),
    ("sparse", ("mechanism=certified_quantile", "mechanism.eps=1"), ("condition a",)),
    ("chosen", ("mechanism.eps=1",), ("condition e", PAPER)),
    (
        "profile",
        ("mechanism.eps=1",),
        (
            "condition e",
            "dataset, model, training, kgrid",
            PAPER,
        ),
    ),
    ("ensemble", WEIGHTS, ("mechanism=release_weights", "a single model")),
    (
        "head by results",
        WEIGHTS,
        ("condition e",),
    ),
    (
        "undeclared head",
        WEIGHTS,
        ("condition c", "dataset.declared_size"),
    ),
    (
        "ten",
        ("mechanism=gaussian_margin", "mechanism.mu=1"),
        ("10 classes", "mechanism=randomized_response"),
    ),
    (
        "ensemble of ten",
        ("mechanism.eps=1", "accounting=paper"),
        ("unproved=refuse",),
    ),
    (
        "margins",
        ("mechanism.eps=1", "accounting=paper"),
        ("ensemble.vote=labels",),
    ),
]


@pytest.mark.parametrize(
    ("name", "arguments", "words"), REFUSED, ids=[" ".join([n, *a]) for n, a, _ in REFUSED]
)
def test_refused(
    predict: Predict, name: str, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    said = predict(name, *arguments).ended(2)
    assert len(said.err.splitlines()) == 1, said.err
    for word in words:
        assert word in said.err
    assert not said.out
    assert not list(Path("outputs").rglob("labels.csv")), "nothing is released"


@pytest.mark.parametrize(
    ("queries", "code"),
    [("c,d\n0.1,0.2\n", 2), ("a,b\n" + "1000,1000\n" * 50, 2), (None, 4)],
    ids=["other columns", "another population", "no file"],
)
def test_a_refused_release_leaves_no_folder(agt: Agt, queries: str | None, code: int) -> None:
    values = np.linspace(-1, 1, 60)
    labels = np.where(values > 0, "yes", "no")
    pd.DataFrame({"a": values, "b": -values, "label": labels}).to_csv("t.csv", index=False)
    table = ("dataset=table", "dataset.path=t.csv", "dataset.label=label", "model=linear")
    public = ("+dataset.classes=[no,yes]", "+dataset.numeric={a: [-1, 1], b: [-1, 1]}")
    agt("train", *table, *public, "dataset.declared_size=48", PUBLIC, "hydra.run.dir=r").ended(0)
    if queries is not None:
        Path("q.csv").write_text(queries)
    release = ("inputs=q.csv", "mechanism=randomized_response", "total.eps=1")
    agt("predict", "run=r", *release, "hydra.run.dir=refused").ended(code)
    assert not Path("refused").exists()


def test_a_release_that_a_ledger_cannot_pay_leaves_no_folder(
    predict: Predict, run: Run, agt: Agt
) -> None:
    pd.DataFrame(POINTS).to_csv("points.csv", index=False)
    agt("ledger", "init", "loans", f"run={run('box')}", "total.eps=0.5").ended(0)
    arguments = ("inputs=points.csv", "mechanism=randomized_response", "mechanism.eps=1")
    refused = predict("box", *arguments, "ledger=loans", "force=true", "hydra.run.dir=refused")
    refused.ended(3, "ledger")
    assert not Path("refused").exists()
