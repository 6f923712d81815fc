"""agt verify of released weights: every field is that of the runs that they come from, and a folder
alone says what is not.

A forgery is in order by itself: the folder is written anew with what was changed, page and seals
included.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from records import name_training_run, reseal

from agt.data.target import ClassTarget
from agt.models.portable import COMMAND, Portable
from agt.settings import FeaturesConfig
from agt.store.atomic import write_atomic
from agt.store.folder import Folder
from agt_cli.cli import main
from contract.test_portable import COLUMNS, RUNS, TABLE, Home, published

Capsys = pytest.CaptureFixture[str]
Forge = Callable[[Portable], Portable]
NUMERIC: dict[str, Any] = dict(COLUMNS["numeric"])  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Each run with its release, made once; no test changes them."""
    root = tmp_path_factory.mktemp("verified")

    def make(name: str) -> Path:
        folder = root / name.replace(" ", "_")
        return folder if folder.exists() else published(folder, name, pd.DataFrame(TABLE))

    return make


class FolderWriter:
    """Writes files into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, content: bytes) -> None:
        write_atomic(self.folder / name, content)


def checks_of(folder: Path, capsys: Capsys, code: int) -> list[dict[str, str]]:
    """What agt verify says of a folder itself, and of the released weights in it."""
    capsys.readouterr()
    ended = main(["verify", str(folder), "--json", "-q"])
    said = json.loads(capsys.readouterr().out)
    parts = [
        said,
        *(part for part in said["rests_on"] if part["name"].startswith("released weights")),
    ]
    checks = [check for part in parts for check in part["checks"]]
    assert ended == code, [check for check in checks if check["state"] != "ok"]
    return checks


def problems(folder: Path, capsys: Capsys) -> str:
    return "\n".join(
        check["words"] for check in checks_of(folder, capsys, 3) if check["state"] == "PROBLEM"
    )


def unchecked(checks: list[dict[str, str]]) -> dict[str, str]:
    return {check["check"]: check["words"] for check in checks if check["state"] == "not checked"}


def copied(home: Path, to: Path) -> Path:
    """A copy of a release's run, whose training run stays where it is."""
    shutil.copytree(home / "predict", to / "predict")
    return to / "predict"


def forge(run: Path, change: Forge) -> None:
    """Write the folder of a release's run anew with a change, and seal folder and run."""
    folder = run / "release"
    portable = Portable.read(Folder.open(folder, COMMAND, None, "release"))
    change(portable).save(FolderWriter(folder), (folder / "claim.json").read_bytes())
    reseal(run)


def edit(run: Path, name: str, value: Any) -> None:
    """Put another value into one field of release.json, and seal folder and run."""
    path = run / "release" / "release.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    reseal(run / "release")
    reseal(run)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", RUNS)
def test_released_weights_of_each_kind_of_data_and_features_verify(
    releases: Home, capsys: Capsys, name: str
) -> None:
    run = releases(name) / "predict"
    for folder in (run, run / "release"):
        assert unchecked(checks_of(folder, capsys, 0)) == {}


def _with_source(**changes: Any) -> Forge:
    return lambda portable: replace(portable, source={**portable.source, **changes})


def _with_features(**changes: Any) -> Forge:
    def change(portable: Portable) -> Portable:
        config: FeaturesConfig = replace(portable.features.config, **changes)
        return replace(portable, features=replace(portable.features, config=config))

    return change


def _with_weight(portable: Portable) -> Portable:
    weight = portable.weight.copy()
    weight[0, 1] += portable.noise["step"]
    return replace(portable, weight=weight)


def _with_matrix(portable: Portable) -> Portable:
    matrices = {name: 2 * matrix for name, matrix in portable.features.matrices.items()}
    return replace(portable, features=portable.features.with_matrices(matrices))


# of which run, what is changed, and what the difference that is printed names
FORGERIES: dict[str, tuple[str, Forge, tuple[str, ...]]] = {
    "names of classes": (
        "table",
        lambda portable: replace(portable, target=ClassTarget(portable.classes[::-1])),
        ("release.json", "classes[0]", "'1'", "'0'"),
    ),
    "name of the data set": (
        "table",
        lambda portable: replace(portable, name="others"),
        ("release.json", "name", "'others'"),
    ),
    "ranges that scale queries": (
        "table",
        _with_source(numeric={**NUMERIC, "age": [18, 90]}),
        ("source.numeric.age[1]", "90", "100"),
    ),
    "a setting of the data set": (
        "table",
        _with_source(declared_size=91),
        ("source.declared_size", "91"),
    ),
    "bias": ("table", _with_features(bias=0.5), ("features.bias", "0.5", "0.1")),
    "radius": (
        "table of shorter vectors by softmax",
        _with_features(radius=8.0),
        ("features.radius", "8.0", "4.0"),
    ),
    "seed of random features": (
        "random features of crosses",
        _with_features(seed=1),
        ("features.seed", " 1,", " 0"),
    ),
    "dtype": (
        "table",
        lambda portable: replace(portable, dtype="float32"),
        ("dtype", "'float32'"),
    ),
    "a weight": ("table", _with_weight, ("weight[0, 1]", "weights.npz")),
    "landmarks": ("landmarks", _with_matrix, ("projection[0, 0]", "weights.npz")),
    "whitening": ("whitened", _with_matrix, ("[0, 0]", "weights.npz")),
    "noise": (
        "table",
        lambda portable: replace(
            portable, noise={**portable.noise, "sigma": portable.noise["sigma"] * 1.001}
        ),
        ("noise.sigma",),
    ),
    "centre of vectors": (
        "vectors with a center",
        lambda portable: replace(
            portable,
            source={
                **portable.source,
                "settled": {**portable.source["settled"], "center": [[0.5, 0.5], [0.5, 0.6]]},
            },
        ),
        ("source.settled.center[1][1]", "0.6", "0.5"),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FORGERIES)
def test_a_folder_of_other_weights_or_settings_is_told_from_its_run(
    releases: Home,
    tmp_path: Path,
    capsys: Capsys,
    name: str,
) -> None:
    of, change, named = FORGERIES[name]
    run = copied(releases(of), tmp_path)
    forge(run, change)
    for folder in (run, run / "release"):
        said = problems(folder, capsys)
        assert all(part in said for part in named), said


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["names of classes", "noise", "a weight", "bias", "whitening"])
def test_a_folder_alone_says_that_it_was_not_compared(
    releases: Home, tmp_path: Path, capsys: Capsys, name: str
) -> None:
    of, change, _ = FORGERIES[name]
    run = copied(releases(of), tmp_path)
    forge(run, change)
    shutil.copytree(run / "release", tmp_path / "alone")
    words = unchecked(checks_of(tmp_path / "alone", capsys, 0))["origin"]
    for field in ("classes", "source", "features", "bias", "radius", "dtype", "noise", "weights"):
        assert field in words


def test_without_its_training_run_a_folder_is_compared_with_its_release(
    releases: Home, tmp_path: Path, capsys: Capsys
) -> None:
    run = copied(releases("table"), tmp_path)
    name_training_run(run, "/nowhere/x")
    assert "classes" in unchecked(checks_of(run / "release", capsys, 0))["origin"]
    forge(run, _with_weight)
    said = problems(run, capsys)
    assert "weight[0, 1]" in said
    assert "weights.npz" in said


OTHER_VALUES: dict[str, Any] = {  # of every field of release.json
    "format": 2,
    "name": "others",
    "words": ["nothing is given away"],
    "brief": ["nothing is given away"],
    "noise": {"sigma": 1.0, "step": 2.0**-20, "mu": 1.0},
    "classes": ["1", "0"],
    "source": {},
    "features": {"bias": 0.2},
    "width": 3,
    "dtype": "float32",
    "radius": 7.0,
    "bias": 7.0,
    "columns": [],
    "missing": ["", "n"],
    "separator": ";",
    "encoding": "latin-1",
    "mechanism": "noisy_statistics",
    "another": 1,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OTHER_VALUES)
def test_no_field_of_release_json_may_be_another(
    releases: Home, tmp_path: Path, capsys: Capsys, name: str
) -> None:
    run = copied(releases("table"), tmp_path)
    edit(run, name, OTHER_VALUES[name])
    assert name in problems(run, capsys)
    assert name in problems(run / "release", capsys)


def test_every_field_of_release_json_has_another_value_here(releases: Home) -> None:
    node = json.loads((releases("table") / "predict" / "release" / "release.json").read_text())
    assert set(node) <= set(OTHER_VALUES)
    assert not [name for name, value in OTHER_VALUES.items() if node.get(name) == value]


@pytest.mark.parametrize("name", ["bias", "radius", "columns", "separator", "another"])
def test_a_folder_alone_contradicts_itself(
    releases: Home, tmp_path: Path, capsys: Capsys, name: str
) -> None:
    run = copied(releases("table"), tmp_path)
    edit(run, name, OTHER_VALUES[name])
    shutil.copytree(run / "release", tmp_path / "alone")
    said = problems(tmp_path / "alone", capsys)
    assert "release.json" in said
    assert name in said


def test_the_page_of_released_weights_is_the_one_of_their_fields(
    releases: Home, tmp_path: Path, capsys: Capsys
) -> None:
    shutil.copytree(releases("table") / "predict" / "release", tmp_path / "alone")
    page = tmp_path / "alone" / "README.md"
    page.write_text(page.read_text().replace("import csv", "import os, csv"))
    reseal(tmp_path / "alone")
    assert "README.md" in problems(tmp_path / "alone", capsys)


def test_a_folder_of_an_earlier_version_is_compared_in_what_it_has(
    releases: Home, tmp_path: Path, capsys: Capsys
) -> None:
    """Earlier versions had other settings of features, another page and no words for a terminal."""
    run = copied(releases("table"), tmp_path)
    for path in (run / "claim.json", run / "release" / "claim.json", run / "env.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"agt": "0.7.0"}))
    path = run / "release" / "release.json"
    node = json.loads(path.read_text())
    del node["brief"], node["encoding"]
    path.write_text(
        json.dumps(
            node | {"features": {**node["features"], "order": 2, "weight": 1.0}, "columns": []}
        )
    )
    (run / "release" / "README.md").write_text("another page")
    reseal(run / "release")
    reseal(run)
    for folder in (run, run / "release"):
        assert "fields" in unchecked(checks_of(folder, capsys, 0))
    edit(run, "classes", ["1", "0"])
    assert "classes[0]" in problems(run / "release", capsys)


def test_weights_of_a_simulation_have_no_folder(
    releases: Home, tmp_path: Path, capsys: Capsys
) -> None:
    run = copied(releases("table"), tmp_path)
    path = run / "released_weights.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"simulated": True}))
    reseal(run)
    assert "release.json" in problems(run / "release", capsys)
