"""What the commands say of how good a model is: the first line on a useless one, groups, a
forecast kept by no file.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from agt_cli.cli import main
from agt_cli.report.quality import share_estimate

from .conftest import Agt, Said

DATASET = (
    "dataset=table",
    "dataset.label=y",
    "+dataset.numeric.a=[-3,3]",
    "dataset.classes=[no,yes]",
    "dataset.subgroups=[g,h]",
    "dataset.declared_size=600",
    "training.chosen_on=public",
)


def people(path: Path, kind: str) -> None:
    """800 rows: of "noise" the label is yes for one in twenty, whatever the rest; of "signal" it
    follows the sign of a.
    """
    rng = np.random.default_rng(4)
    a = rng.normal(size=800)
    yes = rng.random(800) < 0.05 if kind == "noise" else a + 0.3 * rng.normal(size=800) > 0
    g = rng.choice(["x", "y", ""], 800)
    h = rng.choice(["left", "right"], 800)
    pd.DataFrame({"a": a, "g": g, "h": h, "y": np.where(yes, "yes", "no")}).to_csv(
        path, index=False
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a linear head trained on people of that kind, when first asked for."""
    home = tmp_path_factory.mktemp("quality")

    def folder(kind: str) -> Path:
        if not (home / kind / "run").exists():
            (home / kind).mkdir()
            people(home / kind / "people.csv", kind)
            where = (
                f"dataset.path={home / kind / 'people.csv'}",
                f"hydra.run.dir={home / kind / 'run'}",
            )
            assert main(["train", *DATASET, *where, "-q", "--json"]) == 0
        return home / kind / "run"

    return folder


MORE = {
    "certify": (),
    "plan": ("eps=[1]", "queries=[1]", "mechanisms=[randomized_response]"),
    "predict": ("mechanism.eps=1", "force=true"),
}


@pytest.mark.parametrize("command", [*MORE])
def test_a_constant_is_named_before_anything_else(
    agt: Agt, run: Callable[[str], Path], command: str
) -> None:
    said = agt(command, f"run={run('noise')}", *MORE[command]).ended(0)
    first = (said.err if command == "predict" else said.out).splitlines()[0]
    for value in ("'no'", "191"):
        assert value in first
    if command == "predict":
        assert first not in said.out
        return
    folder = Path(re.search(r"^run folder: (.+)$", said.out, re.M)[1])  # type: ignore[index]
    assert "'no'" in (folder / "report.md").read_text().split("\n\n")[1]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["constant"] == 1
    assert metrics["accuracy"] == metrics["majority_rate"]
    assert metrics["certified_fraction_k1"] > 0.95, "which is no achievement"


def test_training_says_so_too(agt: Agt, run: Callable[[str], Path]) -> None:
    people(Path("people.csv"), "noise")
    said = agt("train", *DATASET, "dataset.path=people.csv")
    assert "'no'" in said.out.splitlines()[0]
    assert "'no'" in (run("noise") / "report.md").read_text().split("\n\n")[1]
    metrics = json.loads((run("signal") / "metrics.json").read_text())
    assert metrics["test_constant"] == 0
    assert metrics["test_accuracy_low"] < metrics["test_accuracy"] < metrics["test_accuracy_high"]
    assert metrics["test_auc"] > 0.9 > metrics["test_majority_rate"]
    assert metrics["test_certified_fraction_k1"] > 0.5


def test_groups_are_recomputed_from_the_record(agt: Agt, run: Callable[[str], Path]) -> None:
    said = agt("certify", f"run={run('signal')}", "--json", "-q")
    assert said.json["verdict"] == ""
    folder = Path(said.json["run"])
    each = pd.read_parquet(folder / "certificates.parquet")
    table = (
        pd.read_csv(folder / "tables" / "quality.csv")
        .set_index(["column", "value", "class"])
        .sort_index()
    )
    rows = {
        (np.nan, np.nan, np.nan): each,
        (np.nan, np.nan, "yes"): each[each["label"] == "yes"],
    }
    for at, part in rows.items():
        row = table.loc[[at]].iloc[0]
        assert row["records"] == len(part)
        right = int((part["label"] == part["prediction"]).sum())
        expected = share_estimate(right, len(part))
        assert row["accuracy_or_recall"] == pytest.approx(expected.value)
        assert row["accuracy_or_recall_low"] == pytest.approx(expected.low)
        assert row["certified_k5"] == pytest.approx((part["stable_distance"] >= 5).mean())
        assert row["stable_distance_median"] == part["stable_distance"].median()
    groups = table.reset_index().dropna(subset=["column"])
    whole = groups[groups["class"].isna()]
    assert set(zip(whole["column"], whole["value"], strict=True)) == {
        ("g", "x"), ("g", "y"), ("g", "(missing)"), ("h", "left"), ("h", "right"),
    }  # fmt: skip
    assert whole.groupby("column")["records"].sum().tolist() == [len(each)] * 2
    assert said.json["metrics"]["auc"] == pytest.approx(table["auc"].dropna().iloc[0], abs=0.2)
    report = (folder / "report.md").read_text()
    assert "g = (missing)" in report
    assert "| nan" not in report


def test_scores_are_signed_margins(agt: Agt, run: Callable[[str], Path]) -> None:
    folder = Path(agt("certify", f"run={run('signal')}", "--json", "-q").json["run"])
    each = pd.read_parquet(folder / "certificates.parquet")
    assert ((each["score"] > 0) == (each["prediction"] == "yes")).all()
    order = each.sort_values("stable_distance")["score"].abs()
    assert order.iloc[-1] > order.iloc[0]


def test_queries_without_labels_or_subgroups(agt: Agt, run: Callable[[str], Path]) -> None:
    pd.DataFrame({"a": np.linspace(-2, 9, 40)}).to_csv("q.csv", index=False)
    said = agt("certify", f"run={run('signal')}", "inputs=q.csv").ended(0)
    assert "q.csv" in said.out
    assert "'a'" in said.err or "a:" in said.err, "values outside its public range"
    metrics = json.loads(
        (Path(re.search(r"^run folder: (.+)$", said.out, re.M)[1]) / "metrics.json").read_text()
    )  # type: ignore[index]
    assert "majority_rate" not in metrics


# -- whether labels are worth their budget


def files(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


def test_an_estimate_is_for_the_owner_alone(agt: Agt, run: Callable[[str], Path]) -> None:
    said = agt("predict", f"run={run('signal')}", "total.eps=0.1", "force=true").ended(0)
    found = re.search(
        r"^.*these labels would .*?(0\.\d+)\b.* without noise: ([01]\.\d+)",
        said.err,
        re.M,
    )
    assert found
    assert 0.4 < float(found[1]) < float(found[2])
    folder = Path(
        re.search(
            r"^labels: "
            r"(.+)/labels\.csv$",
            said.out,
            re.M,
        )[1]
    )  # type: ignore[index]
    # A claim names results by which nothing may have been chosen, but gives none.
    written = (said.out + files(folder)).replace("such as an accuracy, a stable distance", "")
    for word in ("these labels would", "without noise", "baseline", "accuracy", "AUC"):
        assert word not in written


def test_the_estimate_is_what_plan_expects(agt: Agt, run: Callable[[str], Path]) -> None:
    count = json.loads((run("signal") / "metrics.json").read_text())["n_test"]
    line = (
        f"run={run('signal')}",
        "eps=[0.01]",
        "delta=1e-5",
        f"queries=[{count}]",
        "--json",
        "-q",
    )
    expected = {
        row["mechanism"]: row["expected_accuracy"] for row in agt("plan", *line).json["table"]
    }
    for name in ("gaussian_margin", "release_weights"):
        said = agt(
            "predict",
            f"run={run('signal')}",
            f"mechanism={name}",
            "total.eps=0.01",
            "total.delta=1e-5",
        )
        said.ended(2, f"{expected[name]:.3f}".removeprefix("0"))


def test_few_queries_of_a_constant_model_are_certified_with_that_remark(
    agt: Agt, run: Callable[[str], Path], tmp_path: Path
) -> None:
    queries = tmp_path / "queries.csv"
    queries.write_text("a,g,h\n0.5,x,left\n-0.5,y,right\n")
    said = agt("certify", f"run={run('noise')}", f"inputs={queries}", "-q").ended(0)
    assert "nearly constant" in said.out
    assert "certificates.parquet" in said.out
    said = agt("certify", f"run={run('signal')}", f"inputs={queries}", "-q").ended(0)
    assert "constant" not in said.out


def test_a_constant_model_is_named_before_unlabelled_queries_are_answered(
    agt: Agt, run: Callable[[str], Path]
) -> None:
    Path("q.csv").write_text("a\n0.1\n2\n")
    said = agt("predict", f"run={run('noise')}", "mechanism.eps=1", "inputs=q.csv")
    for value in ("'no'", "191"):
        assert value in said.err.splitlines()[0]


@pytest.mark.parametrize(
    "more", [("mechanism.eps=0.01", "-q"), ("mechanism=certified_quantile", "mechanism.eps=1")]
)
def test_nothing_is_said_where_nobody_listens_or_no_label_is_drawn(
    agt: Agt, run: Callable[[str], Path], more: tuple[str, ...]
) -> None:
    said: Said = agt("predict", f"run={run('signal')}", *more, "force=true")
    assert said.code == 0, said.err
    assert "force=true" not in said.err


@pytest.mark.parametrize(("count", "is_refused"), [(2, False), (30, True)])
def test_weights_are_not_judged_by_a_few_difficult_queries(
    agt: Agt, run: Callable[[str], Path], count: int, is_refused: bool
) -> None:
    # Where a is near 0, noise decides the answers of weights.
    rows = "0.001\n" * count
    Path("q.csv").write_text(f"a\n{rows}")
    budget = ("mechanism=noisy_statistics", "total.eps=3", "total.delta=1e-5")
    said = agt("predict", f"run={run('noise')}", "inputs=q.csv", *budget)
    assert ("no better than always answering the most frequent class" in said.err) == is_refused
    assert said.code == (2 if is_refused else 0), said.err
