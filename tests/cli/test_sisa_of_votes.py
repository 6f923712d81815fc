"""agt unlearn method=sisa on runs of certificate=votes, of numbers and of classes."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from records import reseal

from agt.models.shards import SHARDS, read_shards
from agt.unlearning import sisa
from agt_cli.cli import main
from agt_cli.report.opening import open_run

TABLE = (
    "dataset=table",
    "dataset.path=t.csv",
    "dataset.id=id",
    "dataset.id_permanent=true",
    "+dataset.numeric={a:[-1,1],b:[-1,1]}",
    "dataset.declared_size=300",
    "training.chosen_on=public",
    "certificate=votes",
    "ensemble.members=8",
    "compute.threads=1",
)
NUMBERS = (*TABLE, "dataset.label=cost", "dataset.target=numeric", "dataset.range=[0,90]")
CLASSES = (*TABLE, "dataset.label=high", "dataset.classes=[0,1]")
TARGETS = pytest.mark.parametrize("target", [NUMBERS, CLASSES], ids=["numbers", "classes"])
ERASED = ("r3", "r7", "r11")
MODEL_FILES = ("model.safetensors", "features.safetensors", "votes.json", SHARDS)


def write_table(without: Sequence[str] = ()) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, 400)).round(3)
    cost = (50 + 20 * a - 10 * b + rng.normal(0, 5, 400)).round(2)
    ids = [f"r{row}" for row in range(400)]
    table = pd.DataFrame({"id": ids, "a": a, "b": b, "cost": cost, "high": (cost > 50).astype(int)})
    table[~table["id"].isin(without)].to_csv("t.csv", index=False)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_table()
    Path("ids.txt").write_text("\n".join(ERASED))


def trained(target: Sequence[str], folder: str) -> None:
    assert main(["train", *target, f"hydra.run.dir={folder}", "-q"]) == 0


def unlearn(*words: str) -> int:
    return main(["unlearn", "run=run", *words, "-q"])


def account(folder: str = "account") -> dict[str, dict[str, object]]:
    node: dict[str, dict[str, object]] = json.loads(Path(folder, "account.json").read_text())
    return node


def model_files(folder: str) -> dict[str, bytes]:
    return {name: Path(folder, name).read_bytes() for name in MODEL_FILES}


@TARGETS
def test_every_member_has_the_bits_of_a_training_without_the_erased_records(
    target: Sequence[str], table: None
) -> None:
    trained(target, "run")
    before = model_files("run")
    assert unlearn("ids=ids.txt", "method=sisa", "hydra.run.dir=account") == 0
    write_table(ERASED)
    trained(target, "fresh")
    assert model_files("run") == model_files("fresh") != before


@TARGETS
def test_the_account_counts_members_and_changed_answers(target: Sequence[str], table: None) -> None:
    trained(target, "run")
    run = open_run(Path("run"), "train")
    before = read_shards(run, 8)
    assert unlearn("ids=ids.txt", "hydra.run.dir=account") == 0
    after = read_shards(open_run(Path("run"), "train"), 8)
    removal = account()["removal"]
    facts = removal["facts"]
    assert isinstance(facts, dict)
    changed = [old.digest != new.digest for old, new in zip(before, after, strict=True)]
    assert facts["members_retrained"] == sum(changed)
    assert 0 < facts["members_retrained"] < facts["members"] == 8
    assert facts["test_answers"] == run.metrics["n_test"]
    assert 0 <= facts["test_answers_changed"] <= facts["test_answers"]
    promise = removal["promise"]
    assert isinstance(promise, dict)
    assert (promise["method"], promise["exact"]) == ("sisa", True)
    assert main(["verify", "account"]) == 0
    assert main(["verify", "run"]) == 0


def test_changed_numbers_are_counted(table: None) -> None:
    trained(NUMBERS, "run")
    everybody = open_run(Path("run"), "train")
    assert main(["certify", "run=run", "hydra.run.dir=before", "-q"]) == 0
    assert unlearn("ids=ids.txt", "hydra.run.dir=account") == 0
    assert main(["certify", "run=run", "hydra.run.dir=after", "-q"]) == 0
    answers = [
        pd.read_parquet(f"{folder}/certificates.parquet")["prediction"]
        for folder in ("before", "after")
    ]
    facts = account()["removal"]["facts"]
    assert isinstance(facts, dict)
    assert facts["test_answers_changed"] == int((answers[0] != answers[1]).sum()) > 0
    assert everybody.metrics["n_test"] == len(answers[0])


def keep_every_shard(recorded: Sequence[object], digests: Sequence[str]) -> list[int]:
    """The fault: no member is trained again."""
    return []


@TARGETS
def test_a_shard_that_is_kept_is_noticed_before_anything_changes(
    target: Sequence[str], table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(target, "run")
    before = Path("run/model.safetensors").read_bytes()
    monkeypatch.setattr(sisa, "_changed_shards", keep_every_shard)
    assert unlearn("ids=ids.txt", "method=sisa", "hydra.run.dir=account") == 3
    assert Path("run/model.safetensors").read_bytes() == before


@TARGETS
def test_shards_of_a_training_without_the_records_do_not_pass_for_an_erasure(
    target: Sequence[str], table: None
) -> None:
    trained(target, "run")
    node = json.loads(Path("run", SHARDS).read_text())
    node["digests"][0] = "0" * 32  # this member is trained again in any case
    node["records"][0] -= 1
    Path("run", SHARDS).write_text(json.dumps(node))
    reseal(Path("run"))
    assert unlearn("ids=ids.txt", "method=sisa", "hydra.run.dir=account") == 3


@TARGETS
def test_a_shard_that_is_kept_does_not_verify(
    target: Sequence[str], table: None, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(target, "run")
    node = json.loads(Path("run", SHARDS).read_text())
    node["records"][0] += 1
    Path("run", SHARDS).write_text(json.dumps(node))
    reseal(Path("run"))
    capsys.readouterr()
    assert main(["verify", "run", "--json"]) == 3
    assert SHARDS in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "file"),
    [
        (CLASSES, SHARDS),
        (("model=linear", "dataset.n_train=80", "ensemble.members=2"), "members/000/shard.json"),
    ],
    ids=["votes", "models"],
)
def test_what_members_were_trained_on_is_named_as_not_compared(
    target: Sequence[str], file: str, table: None, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(target, "run")
    node = json.loads(Path("run", file).read_text())
    node["digests"][0] = "0" * 32
    Path("run", file).write_text(json.dumps(node))
    reseal(Path("run"))
    capsys.readouterr()
    assert main(["verify", "run", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    [members] = [check for check in checks if check["check"] == "members"]
    assert members["state"] == "note"
    assert file in members["words"]


def test_records_whose_request_waited_are_removed_with_those_of_a_later_one(table: None) -> None:
    trained(CLASSES, "run")
    Path("waits.txt").write_text(ERASED[0])
    assert unlearn("ids=waits.txt", "method=certificate", "hydra.run.dir=first") == 0
    Path("ids.txt").write_text("\n".join(ERASED[1:]))
    assert unlearn("ids=ids.txt", "method=sisa", "hydra.run.dir=account") == 0
    write_table(without=ERASED)
    trained(CLASSES, "fresh")
    assert model_files("run") == model_files("fresh")


def test_rows_that_are_gone_from_the_file_are_removed(table: None) -> None:
    trained(NUMBERS, "run")
    write_table(without=ERASED)
    assert unlearn("ids=ids.txt", "method=sisa", "hydra.run.dir=account") == 0
    trained(NUMBERS, "fresh")
    assert model_files("run") == model_files("fresh")


def test_a_run_that_recorded_no_shards_is_trained_again(table: None) -> None:
    trained(CLASSES, "run")
    Path("run", SHARDS).unlink()
    reseal(Path("run"))
    assert unlearn("ids=ids.txt", "method=sisa", "hydra.run.dir=refused") == 3
    assert unlearn("ids=ids.txt", "hydra.run.dir=account") == 0
    promise = account()["removal"]["promise"]
    assert isinstance(promise, dict)
    assert promise["method"] == "retrain"
    assert main(["verify", "run"]) == 0


def test_a_second_erasure_trains_the_members_of_the_second_request(table: None) -> None:
    trained(NUMBERS, "run")
    assert unlearn("ids=ids.txt", "hydra.run.dir=first") == 0
    Path("more.txt").write_text("r21")
    assert unlearn("ids=more.txt", "hydra.run.dir=account") == 0
    facts = account()["removal"]["facts"]
    assert isinstance(facts, dict)
    assert facts["members_retrained"] <= 1
    write_table((*ERASED, "r21"))
    trained(NUMBERS, "fresh")
    assert model_files("run") == model_files("fresh")


def test_numbers_are_not_answered_around_a_request_that_waits(table: None) -> None:
    trained(NUMBERS, "run")
    before = model_files("run")
    assert unlearn("ids=ids.txt", "method=certificate", "hydra.run.dir=account") == 3
    assert model_files("run") == before


def test_a_release_of_weights_of_numbers_stands_for_the_erased_people(
    table: None, capsys: pytest.CaptureFixture[str]
) -> None:
    trained((*NUMBERS, "dataset.from_data=[]"), "run")
    release = ["mechanism=noisy_statistics", "total.eps=1", "total.delta=1e-5"]
    assert main(["predict", "run=run", *release, "hydra.run.dir=outputs/predict/r", "-q"]) == 0
    rehearsal = ["dry_run=true", "hydra.run.dir=rehearsal"]
    capsys.readouterr()
    assert main(["unlearn", "run=run", "ids=ids.txt", *rehearsal]) == 0
    assert "agt verify FOLDER page=FILE" in capsys.readouterr().err, "before it is too late"
    assert main(["unlearn", "run=run", "ids=ids.txt", "hydra.run.dir=account"]) == 0
    (earlier,) = account()["earlier"]
    assert isinstance(earlier, dict)
    assert (earlier["answers_standing"], earlier["answers_void"]) == (1, 0)
    assert earlier["reasons"][-1]["code"] == "weights_stand"
    assert earlier["reasons"][0]["code"].startswith("group_")


def test_labels_that_were_made_from_released_weights_are_listed(table: None) -> None:
    trained((*NUMBERS, "dataset.from_data=[]"), "run")
    release = ["mechanism=noisy_statistics", "total.eps=1", "total.delta=1e-5"]
    assert main(["predict", "run=run", *release, "hydra.run.dir=outputs/predict/r", "-q"]) == 0
    shutil.copytree("outputs/predict/r/release", "copy")
    for folder, weights in (("labels", "outputs/predict/r/release"), ("moved", "copy")):
        line = [f"release={weights}", "inputs=t.csv", f"hydra.run.dir=outputs/predict/{folder}"]
        assert main(["predict", *line, "-q"]) == 0
    shutil.rmtree("copy")
    assert unlearn("ids=ids.txt", "hydra.run.dir=account") == 0
    earlier: dict[str, Any] = {each["name"]: each for each in account()["earlier"]}  # type: ignore[misc]
    assert earlier["predict/labels"]["reasons"][0]["code"] == "made_from_release"
    assert earlier["predict/labels"]["answers_standing"] == 400
    assert "predict/moved" not in earlier, "its weights lie nowhere any more"
    unlooked: Any = account()["sweep"]["unlooked"]
    assert "releases_handed_on" in {remark["code"] for remark in unlooked}
