"""A network in a curvature tube (certificate=tube) on the command line: whatever a run of boxes can do, or why not."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from agt.data.blobs import Blobs
from agt_cli.cli import main

from .conftest import Agt

TUBE = ("dataset.n_train=120", "certificate=tube", "model.hidden=[8]", "training.caution=4", "kgrid.max=6")
DELTA = ("total.eps=1", "total.delta=1e-5")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose settings were declared, to be copied."""
    folder = tmp_path_factory.mktemp("tube") / "run"
    assert main(["train", *TUBE, "training.chosen_on=public", f"hydra.run.dir={folder}", "-q", "--json"]) == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_train_says_what_it_is_and_how_far_it_reaches(run: Path) -> None:
    config, metrics = yaml.safe_load((run / "config.yaml").read_text()), json.loads((run / "metrics.json").read_text())
    assert config["model"]["activation"] == "tanh", "the certificate chose the head"
    assert metrics["recipe.batch.count"] == 1
    assert metrics["k_with_radius"] == metrics["k_max"] == 6
    assert metrics["conditions_held"] == 7
    assert set(json.loads((run / "tube.json").read_text())) >= {"gradient", "gauss", "pull", "twist", "recipe.lr"}
    report = (run / "report.md").read_text()
    assert "for every k up to 6 at once. Every public constant: `tube.json`" in report
    assert "curvature moves as a neighbour does" in report


def test_where_nothing_bounds_the_weights_the_report_says_so(agt: Agt) -> None:
    said = agt("train", *TUBE, "training.lr=3", "training.epochs=9", "--json", "-q").ended(0)
    reached = said.json["metrics"]["k_with_radius"]
    assert reached < 6
    assert f"Beyond k = {reached} nothing bounds it" in (Path(said.json["run"]) / "report.md").read_text()


def test_certify_plan_and_predict(agt: Agt, run: Path) -> None:
    said = agt("certify", f"run={run}", "map_resolution=6", "--json", "-q").ended(0)
    each = pd.read_parquet(Path(said.json["run"]) / "certificates.parquet")
    assert each["stable_distance"].max() > 0
    assert (Path(said.json["run"]) / "figures" / "plane_map.csv").exists()
    said = agt("plan", f"run={run}", "eps=[1.0]", "queries=[10]", "--json", "-q").ended(0)
    assert "release_weights" not in (Path(said.json["run"]) / "report.md").read_text()
    agt("ledger", "init", "people", f"run={run}", "total.eps=2", "total.delta=1e-5").ended(0)
    said = agt("predict", f"run={run}", "mechanism=randomized_response", *DELTA[:1], "ledger=people", "--json", "-q").ended(
        0
    )
    for folder in (run, said.json["run"]):
        assert agt("verify", str(folder), "-q").code == 0
    agt("predict", f"run={run}", "mechanism=release_weights", *DELTA, "ledger=none").ended(
        2, "how far one record moves a tube's weights depends on the data"
    )


def test_erasures_wait_on_its_certificates_or_are_trained_away(agt: Agt, run: Path) -> None:
    Path("ids.txt").write_text(str(Blobs(center=1.25, std=0.35, n_train=120).load().train.ids[3]))
    agt("unlearn", f"run={run}", "ids=ids.txt", "method=certificate", "--json", "-q").ended(0)
    agt("unlearn", f"run={run}", "method=newton").ended(2, "certificate=tube, which keeps nothing")
    seed = yaml.safe_load((run / "config.yaml").read_text())["training"]["seed"]
    agt("unlearn", f"run={run}", "fresh=true", "--json", "-q").ended(0)
    assert yaml.safe_load((run / "config.yaml").read_text())["training"]["seed"] != seed, "its weights begin at random"
    assert agt("certify", f"run={run}", "map_resolution=0", "-q").code == 0


def test_radii_that_were_narrowed_are_noticed_by_an_audit(agt: Agt, run: Path) -> None:
    from records import reseal
    from safetensors.numpy import load_file, save_file

    few = ("audit.units=2", "audit.neighbours=2", "audit.bounded=1", "audit.queries=10", "audit.lines=2")
    assert agt("audit", "certificate", f"run={run}", *few, "-q").code == 0
    save_file({"radii": load_file(run / "radii.safetensors")["radii"] * 0.99}, run / "radii.safetensors")
    reseal(run)
    said = agt("audit", "certificate", f"run={run}", *few, "--json", "-q").ended(3)
    findings = json.loads((Path(said.json["run"]) / "audit.json").read_text())["findings"]
    assert [each["subject"] for each in findings if each["outcome"] == "violated"] == ["weights and radii on record"]


def test_radii_of_another_agt_may_be_wider_and_hold(agt: Agt, run: Path) -> None:
    from records import reseal
    from safetensors.numpy import load_file, save_file

    save_file({"radii": load_file(run / "radii.safetensors")["radii"] * 1.5}, run / "radii.safetensors")
    few = ("audit.units=2", "audit.neighbours=2", "audit.bounded=2", "audit.queries=10", "audit.lines=2")
    reseal(run)
    agt("audit", "certificate", f"run={run}", *few, "-q").ended(3)
    environment = json.loads((run / "env.json").read_text())
    (run / "env.json").write_text(json.dumps(environment | {"revision": "before"}))
    reseal(run)
    assert agt("audit", "certificate", f"run={run}", *few, "-q").code == 0


def test_notes_say_what_has_no_effect(agt: Agt) -> None:
    said = agt("train", *TUBE, "training.product=rump", "training.seed=2")
    assert "training.product has no effect on certificate=tube, which carries no boxes" in said.err
    assert "training.seed" not in said.err
    assert "kgrid.max" not in said.err
