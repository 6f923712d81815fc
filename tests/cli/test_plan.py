"""agt plan: what private answers would cost, for boxes, an ensemble and a linear head."""

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import figures_drawn
from PIL import Image

from agt.errors import ConfigError
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.published import MORE_NOISE, PUBLISHED
from agt_cli.cli import main
from agt_cli.report.quality import format_rate

from .conftest import Agt, Said
from .test_predict import RUNS

VOTES = {name for name, kind in MECHANISMS.items() if kind.needs == "votes"}
ASKED = ("eps=[1,10]", "queries=[1,100]")
ONE = ("eps=[1]", "queries=[1]", "mechanisms=[smooth_cauchy]")


@pytest.fixture(scope="module")
def run(trained_as: Callable[..., Path]) -> Callable[[str], Path]:
    """The folder of a finished training run by its name in RUNS."""
    return lambda name: trained_as(name, RUNS[name])


@pytest.fixture(scope="module")
def plans(run: Callable[[str], Path]) -> Callable[[str], Path]:
    """The folder of a finished plan of that run, made when first asked for; with figures of the
    ensemble alone.
    """

    def folder(name: str) -> Path:
        path = run(name).with_name(f"{name} plan")
        if not path.exists():
            with figures_drawn() if name == "ensemble" else nullcontext():
                line = [
                    "plan",
                    f"run={run(name)}",
                    *ASKED,
                    "published=true",
                    f"hydra.run.dir={path}",
                ]
                assert main([*line, "-q", "--json"]) == 0
        return path

    return folder


@pytest.fixture
def plan(agt: Agt, run: Callable[[str], Path]) -> Callable[..., Said]:
    """``agt plan`` on the run of that name."""
    return lambda name, *arguments: agt("plan", f"run={run(name)}", *arguments)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "without", "more"),
    [
        ("box", VOTES, set()),
        ("ensemble", set(), set()),
        ("replaced ensemble", set(), set()),
        ("head", VOTES, {"release_weights", "noisy_statistics"}),
    ],
)
def test_table_of_every_mechanism_that_the_model_can_use(
    plans: Callable[[str], Path], name: str, without: set[str], more: set[str]
) -> None:
    table = pd.read_csv(plans(name) / "tables" / "plan.csv")
    assert set(table["mechanism"]) == set(MECHANISMS) - without | more
    assert set(zip(table["total_eps"], table["queries"], strict=True)) == {
        (1, 1),
        (1, 100),
        (10, 1),
        (10, 100),
    }
    assert table["expected_accuracy"].between(0, 1).all()
    assert (table["total_delta"] == 1e-5).all()
    one = table.set_index(["mechanism", "total_eps", "queries"])["expected_accuracy"]
    assert (
        one["randomized_response", 10, 1]
        >= one["randomized_response", 1, 1]
        > one["randomized_response", 1, 100]
    )
    assert (one.loc[["randomized_response"]] >= one.loc[["smooth_cauchy"]].to_numpy() - 1e-12).all()


def test_mechanisms_of_papers_are_compared_if_asked_for(plan: Callable[..., Said]) -> None:
    said = plan("box", "eps=[1]", "queries=[1]", "--json", "-q")
    names = {row["mechanism"] for row in said.json["table"]}
    assert names == set(MECHANISMS) - VOTES - PUBLISHED
    asked = plan("box", *ONE, "--json", "-q").json
    assert {row["mechanism"] for row in asked["table"]} == {"smooth_cauchy"}
    assert f"{MORE_NOISE.format(name='smooth_cauchy')}." in asked["recommendation"]


def test_expected_accuracy_is_that_of_the_certified_distances(
    plans: Callable[[str], Path], run: Callable[[str], Path], tmp_path: Path
) -> None:
    """Recomputed from certify's record: p = exp(-eps L) / (1 + exp(eps))."""
    assert (
        main(
            [
                "certify",
                f"run={run('box')}",
                "map_resolution=0",
                f"hydra.run.dir={tmp_path / 'c'}",
                "-q",
                "--json",
            ]
        )
        == 0
    )
    each = pd.read_parquet(tmp_path / "c" / "certificates.parquet")
    rows = pd.read_csv(plans("box") / "tables" / "plan.csv").query(
        "mechanism == 'randomized_response'"
    )
    assert len(rows) == 4
    for row in rows.itertuples():
        eps = float(
            re.match(
                r"([\d.e-]+)-differentially "
                r"private",
                str(row.each),
            )[1]
        )  # type: ignore[index]
        flip = np.exp(-eps * each["stable_distance"]) / (1 + np.exp(eps))
        right = np.where(each["label"] == each["prediction"], 1 - flip, flip)
        assert row.expected_accuracy == pytest.approx(right.mean(), rel=1e-5)


def test_the_figure_with_its_data(plans: Callable[[str], Path]) -> None:
    folder = plans("ensemble") / "figures"
    report = (plans("ensemble") / "report.md").read_text()
    figure = folder / "accuracy_by_queries"
    assert figure.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert np.asarray(Image.open(figure.with_suffix(".png")).convert("L")).min() < 120, (
        "something was drawn"
    )
    assert len(pd.read_csv(figure.with_suffix(".csv"))) > 5
    assert "figures/accuracy_by_queries.png" in report


def test_a_linear_head_is_advised_to_release_its_weights(plans: Callable[[str], Path]) -> None:
    report = (plans("head") / "report.md").read_text()
    verdict, facts, figure = report.split("\n\n")[1:4]
    advice = facts.splitlines()[1].removeprefix("- ")
    table = pd.read_csv(plans("head") / "tables" / "plan.csv").set_index(["mechanism", "total_eps"])
    once = table.loc[["release_weights", "noisy_statistics"]]["expected_accuracy"].groupby(
        level=[0, 1]
    )
    found = once.max().groupby(level=1).max()
    for eps, accuracy in found.items():
        assert format_rate(accuracy) in advice
        assert f"eps = {eps:g}" in advice
    assert format_rate(found[1.0]) in verdict
    assert once.nunique().max() == 1, "whatever the number of queries"
    assert figure.endswith("(figures/accuracy_by_queries.png)"), (
        "the answer, then the figure, then what it rests on"
    )


def test_what_is_advised_for_boxes_is_as_many_queries_as_stay_within_a_point(
    plan: Callable[..., Said], plans: Callable[[str], Path]
) -> None:
    report = (plans("box") / "report.md").read_text()
    assert not list(plans("box").rglob("claim.json")), "nothing was released"
    advice = report.split("\n\n")[2]
    found = re.search(r"([\d,]+) (?:query|queries) with mechanism=(\w+) at total eps = 10", advice)
    assert found, advice
    count = int(found[1].replace(",", ""))
    name = found[2]
    said = plan("box", "eps=[10]", f"queries=[{count},{count + 1}]", "--json", "-q")
    metrics = said.json["metrics"]
    table = pd.DataFrame(said.json["table"])
    within = table[table["expected_accuracy"] >= metrics["accuracy"] - 0.01]
    assert set(within["queries"]) == {count}, "one more query is beyond every mechanism"
    assert name in set(within["mechanism"])


def test_it_says_which_condition_would_stop_a_release(plan: Callable[..., Said]) -> None:
    said = plan("remove", *ONE, "-q").ended(0)
    assert "condition g" in said.out
    assert "agt predict refuses" in said.out
    whole = plan("box", *ONE, "-q")
    assert "agt predict refuses" not in whole.out


def test_a_mechanism_for_numbers_is_refused_for_classes(plan: Callable[..., Said]) -> None:
    said = plan("ensemble", "mechanisms=[randomized_response,laplace_mean]")
    assert said.code == ConfigError.exit_code
    assert "answers with classes" in said.err


def test_json_is_one_object(plan: Callable[..., Said]) -> None:
    value = plan("box", *ONE, "--json", "-q").json
    assert set(value) == {
        "command",
        "run",
        "digest",
        "metrics",
        "verdict",
        "recommendation",
        "table",
        "exit_code",
    }
    assert {row["mechanism"] for row in value["table"]} == {"smooth_cauchy"}
    assert (
        json.loads((Path(value["run"]) / "metrics.json").read_text())["mechanisms"]
        == "smooth_cauchy"
    )


def test_labelled_queries_of_a_file(plan: Callable[..., Said]) -> None:
    points = pd.DataFrame({"x1": [1.25, -1.25], "x2": [1.25, -1.25], "label": ["right", "right"]})
    points.to_csv("labelled.csv", index=False)
    said = plan("box", "inputs=labelled.csv", *ONE, "--json", "-q")
    assert said.json["metrics"]["n_queries"] == 2
    assert said.json["metrics"]["accuracy"] == 0.5
