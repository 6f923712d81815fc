"""What train and certify leave in their folders: the contract that other commands, tests and
users read.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import figures_drawn
from PIL import Image
from safetensors.numpy import load_file

from agt.certificates.conditions import CONDITION_NAMES, Condition
from agt.facts import evidence, not_held, proved
from agt_cli.cli import main
from agt_cli.report.sections_md import unmet_condition_lines

DATA = (
    "dataset=blobs_overlapping",
    "dataset.n_train=200",
    "model.hidden=[8]",
    "compute.kernel=reference",
    "training.chosen_on=public",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dense run under add_remove and a sparse one under remove, each trained and certified."""
    home = tmp_path_factory.mktemp("runs")
    found = {}
    for name, more in {
        "dense": ("kgrid.max=30",),
        "sparse": ("kgrid=sparse", "relation=remove"),
    }.items():
        train = home / name / "train"
        certify = home / name / "certify"
        assert main(["train", *DATA, *more, f"hydra.run.dir={train}", "-q", "--json"]) == 0
        with figures_drawn():
            assert (
                main(
                    [
                        "certify",
                        f"run={train}",
                        f"hydra.run.dir={certify}",
                        "map_resolution=24",
                        "-q",
                        "--json",
                    ]
                )
                == 0
            )
        found |= {f"{name} train": train, f"{name} certify": certify}
    return found


def table(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "tables" / "certified.csv")


def test_files_of_every_run(runs: dict[str, Path]) -> None:
    digests = set()
    for folder in (runs["dense train"], runs["dense certify"]):
        for name in (
            "config.yaml",
            "env.json",
            "status.json",
            "metrics.json",
            "conditions.json",
            "report.md",
        ):
            assert (folder / name).stat().st_size > 0
        metrics = json.loads((folder / "metrics.json").read_text())
        assert all(isinstance(value, int | float | str) for value in metrics.values()), "one level"
        assert not list(folder.rglob("*.part*")), "nothing half written"
        digests.add(json.loads((folder / "env.json").read_text())["data_digest"])
    assert len(digests) == 1
    metrics = json.loads((runs["dense train"] / "metrics.json").read_text())
    assert (metrics["n_train"], metrics["n_test"], metrics["steps"], metrics["k_max"]) == (
        200,
        50,
        4,
        30,
    )
    assert 0 < metrics["train_accuracy"] <= 1
    assert metrics["seconds_training"] > 0


@pytest.mark.parametrize(("name", "ks"), [("dense", range(31)), ("sparse", (1, 5, 10, 50))])
def test_one_box_for_each_k_around_the_nominal_model(
    runs: dict[str, Path], name: str, ks: list[int]
) -> None:
    folder = runs[f"{name} train"]
    assert sorted(path.name for path in (folder / "bounds").iterdir()) == [
        f"k={k:05d}.safetensors" for k in ks
    ]
    nominal = load_file(folder / "model.safetensors")
    widths = []
    for k in ks:
        box = load_file(folder / "bounds" / f"k={k:05d}.safetensors")
        assert set(box) == {f"{end}.{tensor}" for end in ("lower", "upper") for tensor in nominal}
        for tensor, value in nominal.items():
            assert np.all(box[f"lower.{tensor}"] <= value)
            assert np.all(value <= box[f"upper.{tensor}"])
        widths.append(sum(float((box[f"upper.{t}"] - box[f"lower.{t}"]).sum()) for t in nominal))
    assert widths == sorted(widths)
    assert widths[-1] > widths[0]


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_certificates_agree_with_the_table(runs: dict[str, Path], name: str) -> None:
    """The table's columns, recomputed from the records one by one."""
    folder = runs[f"{name} certify"]
    each = pd.read_parquet(folder / "certificates.parquet")
    assert list(each.columns) == [
        "row",
        "record_id",
        "label",
        "prediction",
        "stable_distance",
        "score",
    ]
    assert each["record_id"].is_unique
    assert set(each["label"]) == {"left", "right"}
    right = each["label"] == each["prediction"]
    rows = table(folder)
    assert list(rows.columns) == [
        "k",
        "certified_fraction",
        "nominal_accuracy",
        "worst_accuracy",
        "best_accuracy",
    ]
    for row in rows[rows["k"] > 0].itertuples():
        certified = each["stable_distance"] >= row.k
        assert row.certified_fraction == pytest.approx(certified.mean())
        assert row.nominal_accuracy == pytest.approx(right.mean())
        assert row.worst_accuracy == pytest.approx((certified & right).mean())
        assert row.best_accuracy == pytest.approx(1 - (certified & ~right).mean())
    assert rows["certified_fraction"].iloc[-1] < 1, (
        "the test would not notice a stable distance that is always the most"
    )
    assert rows["certified_fraction"].is_monotonic_decreasing


def test_least_stable_records_are_the_least_stable(runs: dict[str, Path]) -> None:
    folder = runs["dense certify"]
    least = pd.read_csv(folder / "tables" / "least_stable.csv")
    every = pd.read_parquet(folder / "certificates.parquet")["stable_distance"]
    assert least["stable_distance"].tolist() == sorted(every)[: len(least)]
    assert 0 < len(least) < len(every)


@pytest.mark.parametrize("figure", ["certified_fraction", "stable_distances", "plane_map"])
def test_figures_with_their_data(runs: dict[str, Path], figure: str) -> None:
    folder = runs["dense certify"] / "figures"
    assert (folder / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
    pixels = np.asarray(Image.open(folder / f"{figure}.png").convert("L"))
    assert pixels.min() < 60, "something dark was drawn"
    assert pixels.max() == 255
    assert len(pd.read_csv(folder / f"{figure}.csv")) > 5
    assert f"figures/{figure}.png" in (folder.parent / "report.md").read_text()


def test_histogram_counts_every_query_once(runs: dict[str, Path]) -> None:
    data = pd.read_csv(runs["dense certify"] / "figures" / "stable_distances.csv")
    assert data["right"].sum() + data["wrong"].sum() == 50


def test_map_says_what_certification_of_its_points_says(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    """Points of the map, certified again as queries from a file: the map rounds their stable
    distance down.
    """
    data = pd.read_csv(runs["dense certify"] / "figures" / "plane_map.csv")
    assert len(data) == 24 * 24
    data[["x1", "x2"]].to_csv(tmp_path / "points.csv", index=False)
    again = tmp_path / "again"
    arguments = [
        f"run={runs['dense train']}",
        f"inputs={tmp_path / 'points.csv'}",
        "map_resolution=0",
    ]
    assert main(["certify", *arguments, f"hydra.run.dir={again}", "-q", "--json"]) == 0
    each = pd.read_parquet(again / "certificates.parquet")
    assert each["prediction"].tolist() == [("left", "right")[p] for p in data["prediction"]]
    levels = np.array(sorted(data["certified_up_to"].unique()))
    assert len(levels) > 3
    floor = levels[np.searchsorted(levels, each["stable_distance"], side="right") - 1]
    assert data["certified_up_to"].tolist() == floor.tolist()


def test_report_of_a_dense_symmetric_run(runs: dict[str, Path]) -> None:
    text = (runs["dense certify"] / "report.md").read_text()
    assert "blobs" in text
    assert "synthetic" in text
    conditions = json.loads((runs["dense certify"] / "conditions.json").read_text())
    assert [c["letter"] for c in conditions] == list("abcdefg")
    assert all(c["held"] for c in conditions)


def test_training_says_at_once_what_a_release_will_need() -> None:
    held = [
        Condition(letter, names[0], evidence(proved("own_words", text="it holds")))
        for letter, names in CONDITION_NAMES.items()
    ]
    failed = {
        letter: Condition(
            letter,
            CONDITION_NAMES[letter][0],
            evidence(not_held("own_words", text=f"{letter} is missing")),
        )
        for letter in "ceg"
    }
    assert unmet_condition_lines(held) == []
    lines = unmet_condition_lines([failed["c"], failed["e"]])
    for letter, line in zip("ce", lines[1:], strict=True):
        assert f"condition {letter} (" in line
        assert f"{letter} is missing" in line


def test_training_says_that_no_release_takes_a_one_sided_relation() -> None:
    failed = [
        Condition(
            letter,
            CONDITION_NAMES[letter][0],
            evidence(not_held("own_words", text=f"{letter} is missing")),
        )
        for letter in "cg"
    ]
    _, *lines = unmet_condition_lines(failed)
    (line,) = lines
    assert "condition g (" in line, "nothing else helps such a run"


def test_report_of_a_sparse_one_sided_run_promises_nothing(runs: dict[str, Path]) -> None:
    for command in ("train", "certify"):
        folder = runs[f"sparse {command}"]
        conditions = json.loads((folder / "conditions.json").read_text())
        assert [c["letter"] for c in conditions if not c["held"]] == ["a", "g"]
