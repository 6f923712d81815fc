"""agt verify: what an auditor is told of folders that are as they were made, and of folders that
are not.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from records import (
    MARKS_ITSELF,
    name_everywhere,
    name_training_run,
    reseal,
)

from agt import __version__ as agt_version
from agt.documents import LAST_READER
from agt.fact_sentences import BROKEN_BY, TEMPLATES
from agt.mechanisms.claims import read_claim
from agt.sentences import SCOPE
from agt.settings import RelationConfig
from agt.store.manifest import Manifest, seal_manifest
from agt.targets import trusting
from agt_cli.cli import main
from cli.conftest import Agt, Said

CONDITIONS = (
    "conditions_held",
    "conditions_proved",
    "conditions_declared",
    "conditions_not_met",
    "conditions",
)
PUBLIC = "training.chosen_on=public"
TINY = (
    "dataset.n_train=80",
    "training.epochs=2",
    "kgrid.max=3",
    "compute.kernel=reference",
    PUBLIC,
    "model=linear",
)
LINEAR = (
    *TINY,
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
    "training.momentum=0",
    "certificate=stability",
)
WEIGHTS = ("mechanism=release_weights", "total.eps=1", "total.delta=1e-5")
PAID = ("ledger=people", "mechanism=gaussian_margin", "mechanism.mu=0.1")
SURE = "confidence=0.999999"  # draws are the operating system's
COMMANDS: dict[str, tuple[str, ...]] = {
    "train/box": ("train", *TINY),
    "train/head": ("train", *LINEAR),
    "train/noise": ("train", *TINY, "noise.epsilon=1", "training.clip=0.05"),
    "certify/c": ("certify", "run=train/box", "map_resolution=0"),
    "plan/p": (
        "plan",
        "run=train/box",
        "eps=[1.0]",
        "queries=[10]",
        "mechanisms=[randomized_response]",
    ),
    "predict/labels": ("predict", "run=train/box", "mechanism.eps=1"),
    "predict/within": (
        "predict",
        "run=train/box",
        "mechanism=gaussian_margin",
        "total.eps=1",
        "total.delta=1e-5",
        "force=true",
    ),
    "predict/number": (
        "predict",
        "run=train/box",
        "mechanism=certified_quantile",
        "mechanism.eps=1",
    ),
    "predict/total": ("predict", "run=train/box", "mechanism=certified_quantile", "total.eps=0.5"),
    "predict/simulated": ("predict", "run=train/box", "mechanism.eps=1", "seed=3"),
    "predict/weights": ("predict", "run=train/head", *WEIGHTS),
    "predict/answers": ("predict", "release=predict/weights/release", "inputs=queries.npz"),
    "audit/a": (
        "audit",
        "mechanism",
        "mechanism=randomized_response",
        "mechanism.eps=1",
        "audit.trials=300",
        SURE,
    ),
    "ledgers": (
        "ledger",
        "init",
        "people",
        "run=train/head",
        "total.eps=1",
        "total.delta=1e-5",
        "unit=one person",
    ),
    "predict/paid": ("predict", "run=train/head", "inputs=queries.npz", *PAID),
    "predict/again": ("predict", "run=train/head", "inputs=queries.npz", *PAID),
}


RUNS = [name for name in COMMANDS if name != "ledgers"]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small finished run of each kind; nobody changes anything here."""
    home = tmp_path_factory.mktemp("audited")
    before = Path.cwd()
    os.chdir(home)
    np.savez("queries.npz", x=np.arange(6.0).reshape(3, 2), id=np.array(["a", "b", "c"]))
    try:
        for name, words in COMMANDS.items():
            place = [] if name == "ledgers" else [f"hydra.run.dir={name}"]
            assert main([*words, *place, "-q", "--json"]) == 0, name
    finally:
        os.chdir(before)
    return home


@pytest.fixture
def outputs(made: Path, agt: Agt, tmp_path: Path) -> Path:
    """The same runs, to be spoilt; the first ones are where they were."""
    shutil.copytree(made, tmp_path / "copy")
    os.chdir(tmp_path / "copy")
    return Path()


def digest(folder: Path) -> str:
    return f"sha256:{sha256((folder / 'manifest.json').read_bytes()).hexdigest()}"


def problems(said: Said, below: bool = False) -> dict[str, str]:
    """What does not hold, of the folder itself; ``below``: of what it rests on, too."""
    assert said.code == 3, said.out + said.err
    assert said.json["exit_code"] == 3
    assert said.json["verifies"] is False
    assert "Traceback" not in said.err
    told: dict[str, str] = {}
    for part in (said.json, *(said.json["rests_on"] if below else ())):
        for check in part["checks"]:
            if check["state"] == "PROBLEM":
                told[check["check"]] = f"{told.get(check['check'], '')}{check['words']}\n"
    return told


def change(path: Path, edit: Callable[[Any], object]) -> None:
    """Edit a JSON or YAML file in place."""
    text = path.read_text()
    value = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    edit(value)
    path.write_text(
        json.dumps(value, indent=2) + "\n" if path.suffix == ".json" else yaml.safe_dump(value)
    )


def states_of_ledger(said: Said) -> dict[str, str]:
    """State of each check of the ledger that a release rests on."""
    return {check["check"]: check["state"] for check in said.json["rests_on"][-1]["checks"]}


Edit = tuple[str, str] | tuple[str, str, int] | Callable[[Any], Any] | None
"""Text and what stands in its place; what changes a file's values, or gives another text; None:
the file is left out.
"""


def tamper(folder: Path, edits: dict[str, Edit], seal: Callable[[Path], None] = reseal) -> None:
    """Edit files of a folder, and seal it again, as anybody could."""
    for name, edit in edits.items():
        path = folder / name
        before = path.read_bytes()
        if edit is None:
            path.unlink()
        elif isinstance(edit, tuple):
            path.write_text(path.read_text().replace(*edit))
        elif path.suffix not in (".json", ".yaml"):
            path.write_text(edit(path.read_text()))
        elif name == "spent.json":
            value = {
                key: value
                for key, value in json.loads(before).items()
                if key not in ("seal", "format")
            }
            edit(value)
            path.write_bytes(seal_manifest(value))
        else:
            change(path, edit)
        assert edit is None or path.read_bytes() != before
    seal(folder)


# -- folders that are what was made


@pytest.mark.parametrize("name", [*RUNS, "predict/weights/release"])
def test_what_was_made_verifies(made: Path, agt: Agt, name: str) -> None:
    said = agt("verify", str(made / name), f"digest={digest(made / name)}", "--json", "-q").ended(0)
    assert said.json["verifies"] is True
    assert said.json["exit_code"] == 0
    states = {check["check"]: check["state"] for check in said.json["checks"]}
    assert {states[check] for check in ("manifest", "digest", "files", "nothing else")} == {"ok"}
    assert set(states.values()) <= {"ok", "note"}


@pytest.mark.parametrize(
    "edit",
    [
        lambda node: node["source"].update(split_key="another"),
        lambda node: node["source"].update(_target_="evil.make"),
        lambda node: node["source"].update(surprise=1),
    ],
    ids=["setting", "code", "unknown"],
)
def test_queries_are_read_as_the_data_set_of_config_yaml(
    made: Path, agt: Agt, tmp_path: Path, edit: Callable[[Any], object]
) -> None:
    shutil.copytree(made / "train/head", tmp_path / "run")
    tamper(tmp_path / "run", {"source.json": edit})
    assert problems(agt("verify", str(tmp_path / "run"), "--json", "-q")).keys() == {"model"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"relation": RelationConfig("substitute")}, "relation.name is recorded as 'substitute'"),
        ({"noisy": True}, "noisy is recorded as True"),
    ],
    ids=["relation", "noise"],
)
def test_released_weights_have_the_claim_of_the_run_that_released_them(
    made: Path, agt: Agt, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    """Each folder is in order by itself: the claim is forged with its words, and both manifests
    are sealed again.
    """
    run = tmp_path / "weights"
    shutil.copytree(made / "predict/weights", run)
    claim = read_claim((run / "release/claim.json").read_bytes())
    forged = replace(claim, **change).for_file()
    (run / "release/claim.json").write_bytes(forged.content)
    texts = {"words": list(forged.words), "brief": forged.lines(brief=True)}
    tamper(run / "release", {"release.json": lambda value: value.update(texts)})
    reseal(run)
    for folder in (run, run / "release"):
        said = agt("verify", str(folder), "-q")
        assert said.code == 3
        assert words in " ".join(said.out.split())


def test_a_record_is_verified_with_the_folder_that_it_hands_on(
    made: Path, agt: Agt, tmp_path: Path
) -> None:
    run = tmp_path / "weights"
    shutil.copytree(made / "predict/weights", run)
    (run / "release/weights.npz").write_bytes(b"other weights")
    reseal(run / "release")
    reseal(run)
    assert agt("verify", str(run), "-q").code == 3


def test_answers_are_named_by_the_classes_of_config_yaml(agt: Agt) -> None:
    """Answers are named by source.json, so that swapped names in it would swap what is released."""
    agt("train", "dataset=digits", "model=linear", "kgrid.max=2", "hydra.run.dir=run", "-q").ended(
        0
    )
    tamper(Path("run"), {"source.json": lambda node: node["names"].reverse()})
    assert "names[0]" in problems(agt("verify", "run", "--json", "-q"))["model"]


def test_words_that_are_compared_are_those_of_one_version(made: Path) -> None:
    """Were they others, each earlier record of this version would contradict itself: give them a
    version of their own.
    """
    declared = [f"{TEMPLATES[code]} {broken_by}" for code, broken_by in sorted(BROKEN_BY.items())]
    words = [SCOPE, (made / "train/box/conditions.json").read_text(), *declared]
    assert (agt_version, sha256("".join(words).encode()).hexdigest()[:16]) == (
        "0.22.0",
        "19a67da30f4e66ba",
    )


def test_the_page_says_what_rests_on_what(made: Path, agt: Agt) -> None:
    said = agt("verify", str(made / "predict/labels")).ended(0)
    for words in (
        "VERIFIES: predict run",
        "1-differentially private per query for add_remove neighbours (one record added or "
        "removed)",
        "all 20 together: (20, 0)-differentially private in all, by the basic composition",
        "declared (in full with page=FILE)",
        "└── training run",
        "by code: a dense grid",
        "hashes do not prove who made",
        "of which only the best was kept",
    ):
        assert words in said.out, words


def test_a_page_is_written_where_it_is_asked_for(made: Path, agt: Agt, tmp_path: Path) -> None:
    folder = made / "predict/labels"
    for name in ("audit.html", "audit.md"):
        assert agt("verify", str(folder), f"page={name}").code == 0
        page = (tmp_path / name).read_text()
        assert "add_remove" in page
        assert "training.chosen_on=public" in page.replace("\\", ""), "each declaration in full"
    written = (tmp_path / "audit.md").read_bytes()
    agt("verify", str(folder), "page=audit.md").ended(2, "page=audit.md")
    assert (tmp_path / "audit.md").read_bytes() == written
    agt("verify", str(folder), f"page={folder}/audit.md").ended(2, "page=")
    assert not (folder / "audit.md").exists()
    assert agt("verify", str(folder), "page=audit.txt").code == 2


def test_a_copy_finds_what_it_rests_on_beside_it(outputs: Path, made: Path, agt: Agt) -> None:
    shutil.move(made / "train/box", made / "train/away")
    try:
        said = agt("verify", "predict/labels", "--json", "-q")
    finally:
        shutil.move(made / "train/away", made / "train/box")
    assert said.code == 0
    (trained,) = said.json["rests_on"]
    assert trained["name"].endswith("copy/train/box")
    assert trained["state"] in ("ok", "note"), "the note: a source tree with changes"


def test_what_is_not_there_is_said_to_be_not_checked(made: Path, agt: Agt, tmp_path: Path) -> None:
    shutil.copytree(made / "predict/labels", tmp_path / "alone/deep/labels")
    name_training_run(tmp_path / "alone/deep/labels", "/nowhere/train/x")
    said = agt("verify", "alone/deep/labels", "--json", "-q").ended(0)
    states = {check["check"]: check["state"] for check in said.json["checks"]}
    assert states["claim"] == "not checked"
    assert [part["state"] for part in said.json["rests_on"]] == ["not checked"]


def test_a_run_with_an_unknown_certificate_does_not_verify(
    made: Path, agt: Agt, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(made / "train/box", folder)
    tube = {"name": "tube", "length": 16.0}
    change(folder / "config.yaml", lambda config: config.update(certificate=tube))
    reseal(folder)
    assert "certificate.name" in problems(agt("verify", str(folder), "--json", "-q"))["model"]
    agt("certify", f"run={folder}").ended(2, "certificate.name")


# -- usage


def test_what_is_no_run_is_a_mistake(made: Path, agt: Agt, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, words in (
        ("nowhere", "this file or folder does not exist"),
        ("empty", "neither a run nor a release"),
        (str(made), "in this folder, type for example `agt verify"),
        (str(made / "predict/labels/labels.csv"), "give the folder"),
    ):
        agt("verify", path).ended(2, words)
    assert agt("verify").code == 2
    assert agt("verify", str(made / "train/box"), "digest=abc").code == 2


def test_a_run_that_did_not_end_does_not_verify(outputs: Path, agt: Agt) -> None:
    folder = outputs / "predict/labels"
    (folder / "manifest.json").unlink()
    assert "manifest.json" in problems(agt("verify", str(folder), "--json", "-q"))["status"]
    change(folder / "status.json", lambda status: status.update(state="running"))
    assert "killed" in problems(agt("verify", str(folder), "--json", "-q"))["status"]
    change(folder / "status.json", lambda status: status.update(state="failed", error="disk full"))
    said = problems(agt("verify", str(folder), "--json", "-q"))
    assert "disk full" in said["status"]
    assert "(20, 0)" in said["budget"], "what was drawn counts"


# -- folders that were changed


def test_a_folder_that_was_sealed_again_differs_in_its_digest_alone(
    outputs: Path, agt: Agt
) -> None:
    folder = outputs / "train/box"
    kept = digest(folder)
    change(folder / "env.json", lambda env: env.update(platform="elsewhere"))
    reseal(folder)
    alone = agt("verify", str(folder), "--json", "-q").ended(0)
    (uncompared,) = (check for check in alone.json["checks"] if check["check"] == "digest")
    assert uncompared["state"] == "note"
    assert "digest=sha256:" in uncompared["remedy"]
    assert "digest" in problems(agt("verify", str(folder), f"digest={kept}", "--json", "-q"))
    agt("verify", str(outputs / "predict/labels"), "--json", "-q").ended(0)


def _unnamed(source: dict[str, Any]) -> None:
    source["source"]["unit"] = None  # "units" goes on saying that they are named


def test_votes_that_dealt_the_rows_of_a_unit_one_by_one_do_not_verify(
    tmp_path: Path, agt: Agt
) -> None:
    """As version 0.4.0 once trained them: no column names the units, and k counts units of two."""
    n = 40
    rng = np.random.default_rng(0)
    pd.DataFrame(
        {"x": rng.normal(size=n), "home": np.arange(n) // 2, "y": np.arange(n) % 2}
    ).to_csv("t.csv", index=False)
    table = (
        "dataset=table",
        "dataset.path=t.csv",
        "dataset.data_dir=.",
        "dataset.label=y",
        "dataset.unit=home",
        "dataset.declared_size=30",
    )
    numbers = (
        "+dataset.numeric={x: [-3, 3]}",
        "dataset.classes=['0', '1']",
        "relation.unit_rows=2",
        "ensemble.members=2",
    )
    agt(
        "train", *table, *numbers, *LINEAR[1:], "training=generic", "hydra.run.dir=run", "-q"
    ).ended(0)
    agt("verify", "run", "-q").ended(0)
    tamper(Path("run"), {"config.yaml": ("unit: home", "unit: null"), "source.json": _unnamed})
    assert "model" in problems(agt("verify", "run", "--json", "-q"))


def test_accuracies_of_classes_that_are_numbers_and_of_subgroups_verify(
    tmp_path: Path, agt: Agt
) -> None:
    n = 120
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 3
    columns = {"x": labels + rng.normal(size=n), "g": np.arange(n) // 60, "y": labels}
    pd.DataFrame(columns).to_csv("t.csv", index=False)
    table = (
        "dataset=table",
        "dataset.path=t.csv",
        "dataset.data_dir=.",
        "dataset.label=y",
        "dataset.id=null",
        "dataset.declared_size=90",
        "+dataset.numeric={x: [-3, 5]}",
        "dataset.subgroups=[g]",
        "dataset.classes=['0', '1', '2']",
    )
    head = ("model=linear", "certificate=stability", PUBLIC)
    agt("train", *table, *head, "hydra.run.dir=run", "-q").ended(0)
    agt("certify", "run=run", "hydra.run.dir=certified", "-q").ended(0)
    assert (pd.read_csv("certified/tables/quality.csv")["column"] == "g").any()
    agt("verify", "certified", "-q").ended(0)


def test_a_training_run_that_was_sealed_again_breaks_what_rests_on_it(
    outputs: Path, made: Path, agt: Agt
) -> None:
    folder = outputs / "predict/labels"
    name_training_run(folder, str(Path("train/box").resolve()))
    assert agt("verify", str(folder), "-q").code == 0
    change(outputs / "train/box/metrics.json", lambda metrics: metrics.update(train_accuracy=1.0))
    reseal(outputs / "train/box")
    shutil.move(outputs / "train", outputs / "elsewhere")
    (outputs / "train").mkdir()
    shutil.move(outputs / "elsewhere/box", outputs / "train/box")
    said = agt("verify", str(folder), "--json", "-q").ended(3)
    (trained,) = said.json["rests_on"]
    states = {check["check"]: check["state"] for check in trained["checks"]}
    assert states["digest"] == "PROBLEM"


# Records that were edited and sealed again: what the files say of each other still tells.

QUALITY = "tables/quality.csv"
PLAN = "tables/plan.csv"
UNPAID = "spent.json is missing, although these answers"


def set_entry(name: str, entry: object) -> Callable[[Any], object]:
    """An edit that gives an entry another value."""
    return lambda value: value.update({name: entry})


def debits(numbers: list[int]) -> dict[str, Edit]:
    """Edits after which a session names these debits, from its own on."""

    def spent(value: Any) -> None:
        entries = [value["ledger"]["entry"] + number for number in numbers]
        value.update(ledger={**value["ledger"], "entries": entries}, queries=3 * len(numbers))

    # whose debits come one by one
    return {"config.yaml": lambda value: value.update(inputs="-"), "spent.json": spent}


# the run, its files, the check that tells, and what it tells
EDITS: dict[str, tuple[str, dict[str, Edit], str, str]] = {
    "a condition called proved": (
        "train/box",
        {"conditions.json": lambda value: value[4].update(standing="proved")},
        "",
        "standing is recorded as 'proved'",
    ),
    "a condition left out": (
        "train/box",
        {"conditions.json": lambda value: value.pop(2)},
        "",
        "should contain each of the conditions a to g",
    ),
    "a declaration made a proof": (
        "predict/labels",
        {
            "conditions.json": lambda value: [
                fact.update(standing="proved") for fact in value[4]["facts"]
            ]
        },
        "",
        "standing of this fact must be",
    ),
    "another value of a fact in a release": (
        "predict/labels",
        {"conditions.json": lambda value: value[2]["facts"][1]["values"].update(n_max=1_000_000)},
        "conditions",
        "facts[1].values.n_max is recorded as 1000000, but should be 142",
    ),
    "another value of a fact in a release of weights": (
        "predict/weights",
        {"conditions.json": lambda value: value[3]["facts"][0]["values"].update(rate=1.0)},
        "conditions",
        "facts[0].values.rate is recorded as 1.0, but should be 2.0",
    ),
    "another value of a fact in a certification": (
        "certify/c",
        {"conditions.json": lambda value: value[0]["facts"][0]["values"].update(last=300)},
        "conditions",
        "facts[0].values.last is recorded as 300, but should be 3",
    ),
    "a fact of the training run left out": (
        "plan/p",
        {"conditions.json": lambda value: value[1]["facts"].pop()},
        "conditions",
        "condition b in conditions.json does not match the training run",
    ),
    "a further proof": (
        "certify/c",
        {"conditions.json": lambda value: value[1]["facts"].append(value[5]["facts"][0])},
        "conditions",
        "it has a further fact that is proved",
    ),
    "one-sided relation": (
        "train/box",
        {"config.yaml": lambda value: value["relation"].update(name="remove")},
        "",
        "does not match config.yaml",
    ),
    "a smaller budget in the record": (
        "predict/labels",
        {"metrics.json": lambda value: value.update(eps=0.1)},
        "",
        "eps is recorded as 0.1, but should be 1",
    ),
    "a smaller budget everywhere but in what was spent": (
        "predict/within",
        {"metrics.json": lambda value: value.update(mu=0.001)},
        "",
        "mu is recorded as 0.001",
    ),
    "a proof that there is none of": (
        "predict/simulated",
        {"metrics.json": lambda value: value.update(proved=1)},
        "",
        "proved is recorded as 1, but should be 0",
    ),
    "a simulation passed off": (
        "predict/simulated",
        {"config.yaml": lambda value: value.update(seed=None)},
        "",
        "seed in config.yaml, simulated should be False, but it is True in spent.json",
    ),
    "fewer answers counted": (
        "predict/labels",
        {"metrics.json": lambda value: value.update(n_queries=2)},
        "",
        "20 rows, but metrics.json counts 2 labels",
    ),
    "less noise": (
        "predict/weights",
        {"released_weights.json": lambda value: value.update(sigma=1e-6)},
        "",
        "sigma",
    ),
    "a little less noise": (
        "predict/weights",
        {"released_weights.json": lambda value: value.update(sigma=value["sigma"] * 0.999)},
        "",
        "altered or damaged after agt wrote it: sigma",
    ),
    "another mechanism": (
        "predict/labels",
        {
            "config.yaml": lambda value: value["mechanism"].update(
                _target_="agt.mechanisms.published.GlobalSensitivity"
            )
        },
        "",
        "mechanism.delta",
    ),
    "other data": (
        "certify/c",
        {"env.json": lambda value: value.update(data_digest="0")},
        "",
        "'data_digest' is 0 in env.json",
    ),
    "proved by a word": (
        "predict/labels",
        {"metrics.json": lambda value: value.update(proved="yes")},
        "",
        "proved is recorded as 'yes'",
    ),
    "a source without a digest": (
        "predict/labels",
        {"env.json": lambda value: value.update(trained_digest=None)},
        "",
        "",
    ),
    "another source": (
        "predict/labels",
        {"env.json": lambda value: value.pop("trained_run")},
        "",
        "trained_run is recorded as",
    ),
    "words that are none": (
        "train/box",
        {"conditions.json": lambda value: value[0].update(name=[])},
        "",
        "there is no condition",
    ),
    **{
        f"env.json: {name}": (run, {"env.json": edit}, "env.json", words)
        for name, (run, edit, words) in {
            "no version": (
                "train/box",
                lambda value: value.pop("agt"),
                "'agt' in env.json is None",
            ),
            "a seed": ("train/box", lambda value: value.update(seed=7), "seed is recorded as 7"),
            "a rehearsal": (
                "predict/labels",
                lambda value: value.update(rehearsed=True),
                "rehearsed is recorded as True",
            ),
            "other data": (
                "train/box",
                lambda value: value.update(dataset="x"),
                "dataset is recorded as 'x'",
            ),
            "another ledger": (
                "predict/paid",
                lambda value: value.update(ledger="x"),
                "ledger is recorded as 'x'",
            ),
            "no ledger": (
                "predict/paid",
                lambda value: value.pop("ledger"),
                "ledger is recorded as None",
            ),
            "other queries": (
                "predict/paid",
                lambda value: value.update(inputs="x"),
                "inputs is recorded as 'x', but should be 'queries.npz'",
            ),
        }.items()
    },
    **{
        f"spent.json: {name}": (run, {"spent.json": edit}, "", words)
        for name, (run, edit, words) in {
            "a time before the run": (
                "predict/labels",
                lambda value: value.update(time="2001-01-01T00:00:00+00:00"),
                "time in spent.json is '2001-01-01T00:00:00+00:00'",
            ),
            "a time after the noise": (
                "train/noise",
                lambda value: value.update(time="2999-01-01T00:00:00+00:00"),
                "time in spent.json is",
            ),
            "another note": (
                "predict/labels",
                lambda value: value.update(note="nothing was drawn"),
                "'note' in spent.json is 'nothing was drawn'",
            ),
            "another training run": (
                "predict/labels",
                lambda value: value.update(trained_run="/nowhere"),
                "trained_run is recorded as '/nowhere'",
            ),
            "another data set of noise": (
                "train/noise",
                lambda value: value.update(dataset="x"),
                "dataset is recorded as 'x'",
            ),
            "other data of noise": (
                "train/noise",
                lambda value: value.update(data_digest="0"),
                "data_digest is recorded as '0'",
            ),
            "an entry more": (
                "predict/labels",
                lambda value: value.update(refunded=True),
                "the entry 'refunded' = True",
            ),
            "fewer queries of weights": (
                "predict/weights",
                lambda value: value.update(queries=1),
                "n_queries is recorded as 20, but should be 1",
            ),
        }.items()
    },
    "claim.json: a ledger declined that was not": (
        "predict/labels",
        {"claim.json": lambda value: value["uncounted"].update(why="declined")},
        "claim",
        "'uncounted.why' is 'declined', but should be 'unnamed'",
    ),
    "audit.json: another version": (
        "audit/a",
        {"audit.json": lambda value: value.update(by="0.1.0")},
        "audit.json",
        "'0.1.0' according to audit.json",
    ),
    "env.json: another kind of audit": (
        "audit/a",
        {"env.json": lambda value: value.update(kind="weights")},
        "audit.json",
        "the field 'kind' is 'mechanism' in audit.json, but 'weights' in env.json",
    ),
    "not finished": (
        "train/box",
        {"status.json": lambda value: value.update(state="running")},
        "",
        "'running'",
    ),
    "spent": (
        "predict/labels",
        {"spent.json": lambda value: value["totals"][0].update(eps=0.1)},
        "claim",
        "totals[0].eps is recorded as 0.1, but should be 20.0",
    ),
    "a label of no class": (
        "predict/labels",
        {"labels.csv": (",left", ",up")},
        "labels",
        "which is not a class",
    ),
    "other labels": (
        "predict/paid",
        {
            "labels.csv": lambda text: re.sub(
                r",(left|right)", lambda m: ",right" if m[1] == "left" else ",left", text, count=1
            )
        },
        "entry",
        "the ledger stores",
    ),
    "noise of another mechanism": (
        "train/noise",
        {"spent.json": lambda value: value.update(mechanism="nothing")},
        "",
        "mechanism is recorded as 'nothing'",
    ),
    "a fact's value": (
        "train/box",
        {"conditions.json": lambda value: value[0]["facts"][0]["values"].update(last=4)},
        "model",
        "conditions[0].facts[0].values.last is recorded as 4, but should be 3",
    ),
    "a fact for another": (
        "train/box",
        {
            "conditions.json": lambda value: value[0]["facts"][0].update(
                code="every_k_counted", values={}
            )
        },
        "model",
        "conditions[0].facts[0].code is recorded as 'every_k_counted', but should be 'grid_dense'",
    ),
    "a declared setting in a claim": (
        "predict/labels",
        {
            "claim.json": lambda value: value["declared"][0]["fact"]["values"].update(
                setting="declared.settings=True"
            )
        },
        "claim",
        "declared[0].fact.values.setting is recorded as 'declared.settings=True', but should be "
        "'training.chosen_on=public'",
    ),
    "another product": (
        "train/box",
        {"config.yaml": lambda value: value["training"].update(product="rump")},
        "model",
        "conditions.json does not match config.yaml",
    ),
    "a better condition": (
        "predict/labels",
        {
            "conditions.json": lambda value: value[4].update(
                standing="proved",
                facts=[{"standing": "proved", "code": "own_words", "values": {"text": "trust me"}}],
            ),
            "metrics.json": lambda value: value.update(
                conditions_proved=value["conditions_proved"] + value["conditions_declared"],
                conditions_declared=0,
            ),
        },
        "conditions",
        "says that condition e is 'proved'",
    ),
    **{
        f"claim.json: {name}": ("predict/labels", {"claim.json": edit}, "", "claim.json")
        for name, edit in {
            "more answers": ('"releases": 20', '"releases": 10'),
            "less spent": ('"eps": 1.0', '"eps": 0.1'),
            "other neighbours": ("one record added", "one comma added"),
            "words": ("all 20 together", "all of them together"),
            "words added": lambda value: value["words"].append("it is safe"),
            "scope": (
                '"the guarantee protects the training',
                '"the guarantee does not protect the training',
            ),
            "outside": ("how accurate the answers are", "nothing"),
            "another output": ('"output": "labels"', '"output": "constants"'),
            "a declaration left out": lambda value: value["declared"].pop(),
            "another condition declared": lambda value: value["declared"][0].update(condition="b"),
            "noise left out": ('"noisy": false', '"noisy": true'),
            "another reason why no ledger counts it": ('"why": "unnamed"', '"why": "call"'),
            "no reason why no ledger counts it": lambda value: value.pop("uncounted"),
            "an earlier form, without words": lambda value: value.update(schema="agt.claim/1"),
            "another version, whose words nobody compares": lambda value: value.update(
                agt="0.6.0", words=["all is safe"]
            ),
            "1 for true": lambda value: value.update(proved=1),
            "0 for false": lambda value: value.update(noisy=0),
            "a key twice": ("{\n", '{"proved": false,\n'),
        }.items()
    },
    **{
        f"account: {name}": ("predict/paid", {"claim.json": edit}, "", "claim.json")
        for name, edit in {
            "unit": ('"unit": "one person"', '"unit": "one household"'),
            "spent": ('"square": "0.', '"square": "0.0'),
            "a table left out": lambda value: value["account"]["ledger"].update(tables=[]),
            "another table": lambda value: value["account"]["ledger"]["tables"][0].update(
                name="others"
            ),
            "a second head": ('"second_head": "none"', '"second_head": "away"'),
            "what it counts": ('"counts": "entry"', '"counts": "answers"'),
            "words": ("All releases of this", "Nearly all releases of this"),
        }.items()
    },
    "certified share": (
        "certify/c",
        {"tables/certified.csv": ("\n1,", "\n1,1")},
        "certificates",
        "does not match tables/certified.csv",
    ),
    **{
        f"release: {name}": ("predict/weights/release", {"release.json": edit}, "budget", words)
        for name, (edit, words) in {
            "less": (
                lambda value: value["words"].__setitem__(
                    1, value["words"][1].replace("(1,", "(0.1,")
                ),
                "differ (field 'words')",
            ),
            "a line before it": (
                lambda value: value["words"].insert(1, "and nobody learns anything"),
                "differ (field 'words')",
            ),
            "words before the claim": (
                lambda value: value["words"].__setitem__(0, f"free: {value['words'][0]}"),
                "differ (field 'words')",
            ),
            "other words in brief": (lambda value: value["brief"].pop(), "'brief' in release.json"),
            "another guarantee": (
                lambda value: value["noise"].update(mu=value["noise"]["mu"] / 2),
                "guarantee.mu is recorded as",
            ),
        }.items()
    },
    "release: another guarantee, and a total that is not its own": (
        "predict/weights/release",
        {
            "release.json": lambda value: value["noise"].update(mu=value["noise"]["mu"] / 2),
            "claim.json": lambda value: value["guarantee"].update(mu=value["guarantee"]["mu"] / 2),
        },
        "budget",
        "totals[0].eps is recorded as",
    ),
    "release: a total of less": (
        "predict/weights/release",
        {"claim.json": lambda value: value["totals"][0].update(eps=0.1)},
        "claim.json",
        "stronger than what the mechanism's guarantee proves",
    ),
    **{
        f"free: {name}": (name, {"spent.json": None, "claim.json": None}, "budget", UNPAID)
        for name in ("predict/labels", "predict/paid", "predict/number")
    },
    "stored in no ledger": (
        "predict/within",
        {
            "spent.json": None,
            "claim.json": None,
            "metrics.json": lambda value: value.update(stored=20, answered=20, unanswered=0),
            "config.yaml": lambda value: value.update(ledger="none"),
        },
        "budget",
        UNPAID,
    ),
    "no entry of a ledger": (
        "predict/paid",
        {"claim.json": None, "spent.json": lambda value: value.update(ledger=None)},
        "budget",
        "does not name the ledger's entry that paid",
    ),
    **{
        f"alone: {name}": (
            "predict/labels",
            {
                "env.json": lambda value: value.update(trained_run="/nowhere/x"),
                "claim.json": None,
                "spent.json": lambda value, totals=totals: value.update(
                    totals=totals, trained_run="/nowhere/x"
                ),
            },
            "budget",
            "totals is recorded as",
        )
        for name, totals in {
            "totals": [{"eps": 0.1, "delta": 0.0, "bound": "basic"}],
            "none": [],
        }.items()
    },
    "debits: one twice": (
        "predict/paid",
        debits([0, 0]),
        "entry",
        "they are not the debits of this run",
    ),
    "debits: not the newest": (
        "predict/paid",
        debits([0, 1]),
        "entry",
        "they are not the debits of this run",
    ),
    "debits: none": ("predict/paid", debits([]), "entry", "was altered or damaged"),
    "debits: before the run": (
        "predict/paid",
        debits([0])
        | {
            "status.json": lambda value: value.update(
                dict.fromkeys(("started", "ended"), "2999-01-01T00:00:00+00:00")
            )
        },
        "entry",
        "they are not the debits of this run",
    ),
    **{
        f"entry: {key}": (
            "predict/paid",
            {
                "spent.json": lambda value, key=key, other=other: value["ledger"].update(
                    {key: other}
                )
            },
            "entry",
            words,
        )
        for key, other, words in (
            ("entry", 1, "did not pay for the release"),
            ("hash", 64 * "0", "did not pay for the release"),
            ("population", "others", "'population' is people in the ledger"),
        )
    },
    "a debit of more": (
        "predict/paid",
        {"metrics.json": lambda value: value.update(mu=value["mu"] / 2)},
        "entry",
        "'guarantee' is",
    ),
    "a debit of other data": (
        "predict/paid",
        {"env.json": lambda value: value.update(data_digest="0" * 32)},
        "entry",
        "'data' is",
    ),
    "a debit of fewer": (
        "predict/paid",
        {"spent.json": lambda value: value.update(queries=value["queries"] + 1)},
        "entry",
        "paid for another release",
    ),
    **{
        f"a {metric} that is not that of the table": (
            run,
            {
                "metrics.json": lambda value, metric=metric, number=number: value.update(
                    {metric: number}
                )
            },
            check,
            words,
        )
        for run, metric, number, check, words in (
            ("train/head", "test_certified_fraction_k1", 7.5, "quality", "recorded as 7.5"),
            ("train/head", "test_accuracy_high", 0.5, "quality", "recorded as 0.5"),
            ("train/box", "test_auc", 0.99, "quality", "test_auc is recorded as 0.99"),
            ("train/box", "n_test", 2000, "quality", "n_test is recorded as 2000"),
            ("train/box", "train_accuracy", 1.5, "quality", "train_accuracy is 1.5"),
            ("train/box", "n_train", 800, "records", "lists 80 training records"),
            ("train/noise", "noise_proved", 0, "budget", "noise_proved is recorded as 0"),
            ("certify/c", "balanced_accuracy", 0.99, "quality", "recorded as 0.99"),
            ("plan/p", "majority_rate", 0.99, "quality", "recorded as 0.99"),
        )
    },
    **{
        f"{run}: {name}": (run, edits, check, words)
        for run, name, edits, check, words in (
            *(
                (run, f"another {metric}", {"metrics.json": set_entry(metric, value)}, check, words)
                for run, metric, value, check, words in (
                    ("certify/c", "relation", "substitute", "certificates", "relation is recorded"),
                    ("certify/c", "k_max", 30, "certificates", "k_max is recorded as 30"),
                    (
                        "certify/c",
                        "stable_distance_median_is_lower_bound",
                        0,
                        "certificates",
                        "is_lower_bound is recorded as 0",
                    ),
                    ("certify/c", "constant", 1, "quality", "constant is recorded as 1"),
                    ("certify/c", "verdict", "Good.", "quality", "verdict is recorded as 'Good.'"),
                    ("audit/a", "verdict", "proved", "audit.json", "verdict is recorded as"),
                    ("plan/p", "mechanisms", "all", "metrics", "mechanisms is recorded as 'all'"),
                    ("predict/answers", "mu", 0.1, "metrics", "mu is recorded as 0.1"),
                    ("predict/again", "mu", 0.05, "claim", "mu is recorded as 0.05"),
                    ("predict/number", "fraction", 0.1, "claim", "fraction is recorded as 0.1"),
                )
            ),
            *(
                (run, "no table", {"tables/quality.csv": None}, "quality", "is missing")
                for run in ("train/box", "certify/c", "plan/p")
            ),
            (
                "train/box",
                "conditions that are not counted",
                {"metrics.json": lambda value: value.pop("conditions_proved")},
                "conditions",
                "conditions_proved is recorded as None",
            ),
            (
                "train/box",
                "a narrower interval everywhere",
                {
                    "tables/quality.csv": lambda text: text.replace("0.4078114654671719", "0.6"),
                    "metrics.json": set_entry("test_accuracy_low", 0.6),
                },
                "quality",
                "accuracy_or_recall_low is recorded as 0.6",
            ),
            (
                "certify/c",
                "another AUC everywhere",
                {
                    "tables/quality.csv": lambda text: text.replace(",0.58,", ",0.59,"),
                    "metrics.json": set_entry("auc", 0.59),
                },
                "quality",
                "auc is recorded as 0.59",
            ),
            (
                "predict/paid",
                "answers that are not counted",
                {"metrics.json": lambda value: value.pop("answered")},
                "entry",
                "answered",
            ),
            (
                "audit/a",
                "no kind",
                {"env.json": lambda value: value.pop("kind")},
                "audit.json",
                "but None in env.json",
            ),
            (
                "predict/paid",
                "another version that names no ledger",
                {
                    "env.json": lambda value: (value.pop("ledger"), value.update(agt="0.12.0")),
                    "claim.json": lambda value: value.update(agt="0.12.0"),
                },
                "env.json",
                "ledger is recorded as None",
            ),
        )
    },
    **{
        f"{run}: {name} in a table": (run, {table: edit}, check, words)
        for run, table, name, edit, check, words in (
            *(
                (run, QUALITY, "another class", (",left,", ",up,"), "quality", "the classes ['up'")
                for run in ("train/box", "train/head", "plan/p")
            ),
            (
                "plan/p",
                QUALITY,
                "a higher median",
                (",3.0,True", ",7.0,True"),
                "quality",
                "is_lower_bound is recorded as True, but should be False",
            ),
            (
                "train/head",
                QUALITY,
                "a median that the shares exclude",
                lambda text: re.sub(r",4\d\.\d,False", ",400.0,False", text),
                "quality",
                "is 400, but by the certified shares it is from 20 to 99",
            ),
            (
                "train/box",
                QUALITY,
                "a median of no certificates",
                lambda text: re.sub(r",,\n", ",50.0,False\n", text),
                "quality",
                "needs certified shares",
            ),
            (
                "plan/p",
                QUALITY,
                "a class less",
                lambda text: "".join(text.splitlines(keepends=True)[:-1]),
                "quality",
                "balanced_accuracy",
            ),
            (
                "train/head",
                QUALITY,
                "a class less of equal recalls",
                lambda text: "".join(text.splitlines(keepends=True)[:-1]),
                "quality",
                "records is 20, but the rows of classes sum to 10",
            ),
            (
                "train/box",
                QUALITY,
                "a narrower majority",
                (",0.2719578495607919,", ",0.4,"),
                "quality",
                "majority_low is recorded as 0.4",
            ),
            ("plan/p", PLAN, "a smaller guarantee", ("0.100629", "0.05"), "tables", PLAN),
            ("plan/p", PLAN, "a smaller budget", ("1.0,1e-05", "0.1,1e-05"), "tables", PLAN),
            (
                "plan/p",
                "figures/accuracy_by_queries.csv",
                "another accuracy",
                (",0.54", ",0.74"),
                "tables",
                PLAN,
            ),
            (
                "certify/c",
                "tables/least_stable.csv",
                "another answer",
                (",right,left,0,", ",left,left,0,"),
                "tables",
                "the least stable answers are others",
            ),
            (
                "certify/c",
                "figures/certified_fraction.csv",
                "another share",
                ("1,0.9,", "1,1.0,"),
                "tables",
                "does not match tables/certified.csv",
            ),
            (
                "certify/c",
                "figures/stable_distances.csv",
                "another count",
                ("0,1,1", "0,2,0"),
                "tables",
                "right[0] is recorded as 2, but should be 1",
            ),
            (
                "certify/c",
                "tables/certified.csv",
                "another accuracy",
                lambda text: re.sub(r"(?m)^2,(\S+?),0.65,", r"2,\1,0.7,", text),
                "certificates",
                "nominal_accuracy is recorded as 0.7",
            ),
        )
    },
    "a share that no share can be": (
        "train/head",
        {
            "tables/quality.csv": (",1.0,", ",1.5,"),
            "metrics.json": lambda value: value.update(test_accuracy=1.5),
        },
        "quality",
        "1.5] is not within [0, 1]",
    ),
}


QUALITY_OF_TRAINING = {"n_train", "notes", "seconds_training", "test_constant", "train_accuracy"}
UNCOMPARED: dict[str, set[str]] = {
    "train/box": {*QUALITY_OF_TRAINING, "test_verdict"},
    "train/head": QUALITY_OF_TRAINING,
    "train/noise": {*QUALITY_OF_TRAINING, "test_verdict"},
    "certify/c": {"seconds_certifying"},
    "plan/p": {"constant", "verdict"},
    "predict/number": {"certified_quantile"},
    "predict/total": {"certified_quantile"},
    "predict/paid": {"stored"},
}
"""Entries of metrics.json that depend on records, times or draws that no file has.

n_train is at most the number of indexed records, and stored at most what the ledger leaves.
"""


def uncompared(said: Said) -> set[str]:
    """The entries of metrics.json that ``agt verify`` says it has not compared."""
    notes = [
        check["words"]
        for check in said.json["checks"]
        if (check["check"], check["state"]) == ("metrics", "note")
    ]
    return {name for note in notes for name in re.findall(r"\w+", note.split(": ")[-1])}


@pytest.mark.parametrize("name", RUNS)
def test_every_number_that_is_not_compared_is_named(made: Path, agt: Agt, name: str) -> None:
    said = agt("verify", str(made / name), "--json", "-q").ended(0)
    metrics = json.loads((made / name / "metrics.json").read_text())
    assert uncompared(said) & metrics.keys() == {
        entry for entry in UNCOMPARED.get(name, set()) if entry in metrics
    }


@pytest.mark.sweep
@pytest.mark.parametrize("name", RUNS)
def test_every_number_that_is_not_named_is_compared(outputs: Path, agt: Agt, name: str) -> None:
    folder = outputs / name
    path = folder / "metrics.json"
    before = path.read_bytes()
    for entry, value in json.loads(before).items():
        if entry in UNCOMPARED.get(name, set()):
            continue
        other = value + 1 if isinstance(value, int | float) else f"{value}."
        change(path, set_entry(entry, other))
        reseal(folder)
        assert agt("verify", name, "--json", "-q").code == 3, (entry, other)
        path.write_bytes(before)


UNCOMPARED_COLUMNS = {
    "train/box": {"tables/quality.csv": "records"},
    "certify/c": {"tables/certified.csv": "certified_fraction"},
    "plan/p": {"tables/plan.csv": "expected_accuracy", "tables/quality.csv": "auc"},
}
"""Tables that no file determines as a whole, with a column that is not compared; empty: none is."""


@pytest.mark.parametrize("name", RUNS)
def test_every_column_that_is_not_compared_is_named(made: Path, agt: Agt, name: str) -> None:
    said = agt("verify", str(made / name), "--json", "-q").ended(0)
    notes = [
        check["words"]
        for check in said.json["checks"]
        if (check["check"], check["state"]) == ("tables", "note")
    ]
    words = notes[0] if notes else ""
    tables = [path.relative_to(made / name) for path in (made / name).glob("tables/*.csv")]
    named = {str(table) for table in tables if str(table) in words}
    expected = UNCOMPARED_COLUMNS.get(name, {})
    if name in ("train/head", "train/noise"):
        expected = UNCOMPARED_COLUMNS["train/box"]
    assert named == expected.keys()
    assert all(column in words for column in expected.values())


def test_a_column_that_no_version_writes_is_named(outputs: Path, agt: Agt) -> None:
    more = {"tables/plan.csv": lambda text: re.sub("(?m)$\n", ",better\n", text)}
    tamper(outputs / "plan/p", more)
    said = agt("verify", "plan/p", "--json", "-q").ended(0)
    assert any("better" in check["words"] for check in said.json["checks"])


def test_an_entry_that_no_version_writes_is_named(outputs: Path, agt: Agt) -> None:
    tamper(outputs / "train/box", {"metrics.json": set_entry("attacks_survived", 1000)})
    assert "attacks_survived" in uncompared(agt("verify", "train/box", "--json", "-q").ended(0))


def test_what_an_older_version_did_not_write_is_not_checked(outputs: Path, agt: Agt) -> None:
    """The version is text in the record, so it may have been typed to leave something out."""
    edits: dict[str, Edit] = {
        "metrics.json": lambda value: value.pop("conditions_not_met"),
        "env.json": set_entry("agt", "0.10.0"),
    }
    tamper(outputs / "train/box", edits)
    said = agt("verify", "train/box", "--json", "-q").ended(0)
    states = {check["check"]: check["state"] for check in said.json["checks"]}
    assert states["metrics.json"] == "not checked"
    tamper(outputs / "train/box", {"env.json": set_entry("agt", "0.11.0")})
    assert "conditions" in problems(agt("verify", "train/box", "--json", "-q"))


@pytest.mark.parametrize("name", ["predict/labels", "certify/c", "audit/a"])
def test_the_words_of_a_page_are_held_by_its_hash_alone(outputs: Path, agt: Agt, name: str) -> None:
    folder = Path(name)
    kept = digest(folder)
    page = folder / "report.md"
    page.write_text(page.read_text().replace("\n\n", "\n\n**All of it holds.**\n\n", 1))
    assert "report.md" in problems(agt("verify", name, "--json", "-q"))["files"]
    tamper(folder, {"report.md": ("All of it holds", "All of it is free")})
    said = agt("verify", name, "-q").ended(0)
    assert "report.md" in said.out, "what was not compared"
    assert "digest" in problems(agt("verify", name, f"digest={kept}", "--json", "-q"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", EDITS)
def test_a_record_that_was_edited_and_sealed_again_contradicts_itself(
    outputs: Path, agt: Agt, name: str
) -> None:
    run, edits, check, words = EDITS[name]
    tamper(outputs / run, edits)
    said = problems(agt("verify", run, "--json", "-q"), below=True)
    assert words in (said[check] if check else str(said)), said


def as_facts_with_text(conditions: list[dict[str, Any]]) -> None:
    """Make a fact of condition e what agt wrote up to version 0.8.0."""
    fact = {"standing": conditions[4]["standing"], "why": "it is so", "broken_by": "it is not"}
    conditions[4]["facts"] = [fact]


SUPERSEDED: dict[str, tuple[dict[str, Edit], str]] = {
    "claim/1": ({"claim.json": lambda claim: claim.update(schema="agt.claim/1")}, "claim.json"),
    "claim/2": ({"claim.json": lambda claim: claim.update(schema="agt.claim/2")}, "claim.json"),
    "spent": ({"spent.json": lambda spent: spent.update(guarantee="it is private")}, "spent.json"),
    "facts": ({"conditions.json": as_facts_with_text}, "conditions"),
}


@pytest.mark.parametrize("form", SUPERSEDED)
def test_a_file_of_sentences_does_not_verify_and_names_the_version_that_reads_it(
    outputs: Path, agt: Agt, form: str
) -> None:
    """It could be any file under the name of an earlier form."""
    edits, check = SUPERSEDED[form]
    tamper(Path("predict/labels"), edits)
    assert LAST_READER in problems(agt("verify", "predict/labels", "--json", "-q"))[check]


def test_no_declaration_of_the_training_run_is_left_out_of_a_release(
    outputs: Path, agt: Agt
) -> None:
    def declare_something_else(conditions: list[dict[str, Any]]) -> None:
        for fact in conditions[4]["facts"]:
            if fact["standing"] == "declared":
                fact.update(code="classes_public", values={"setting": "dataset.classes"})

    tamper(Path("predict/labels"), {"conditions.json": declare_something_else})
    found = problems(agt("verify", "predict/labels", "--json", "-q"))
    assert "claims condition e too strongly" in found["conditions"]


def test_facts_that_weaken_a_condition_are_named_as_not_compared(outputs: Path, agt: Agt) -> None:
    """They come from the data as they were when the record was made."""

    def add_declaration(conditions: Any) -> None:
        [declared] = [fact for fact in conditions[4]["facts"] if fact["standing"] == "declared"]
        conditions[4]["facts"].append(declared | {"values": {"setting": "training.chosen_on=x"}})

    tamper(Path("certify/c"), {"conditions.json": add_declaration})
    said = agt("verify", "certify/c", "--json", "-q").ended(0)
    notes = [check["words"] for check in said.json["checks"] if check["state"] == "note"]
    assert any("facts that weaken the conditions e in conditions.json" in note for note in notes)


def test_facts_of_a_release_without_its_training_run_are_named_as_not_compared(
    outputs: Path, agt: Agt
) -> None:
    name_training_run(Path("predict/labels"), "/nowhere/x")
    said = agt("verify", "predict/labels", "--json", "-q").ended(0)
    states = {check["check"]: check["state"] for check in said.json["checks"]}
    assert states["conditions"] == "not checked"


def test_a_release_without_its_claim_does_not_verify(outputs: Path, agt: Agt) -> None:
    tamper(Path("predict/labels"), {"claim.json": None})
    assert "claim.json" in problems(agt("verify", "predict/labels", "--json", "-q"))


def test_a_run_whose_facts_are_sentences_is_refused_with_the_version_that_reads_it(
    outputs: Path, agt: Agt
) -> None:
    edits: dict[str, Edit] = {
        "source.json": lambda source: source.update(format=1),
        "conditions.json": as_facts_with_text,
    }
    tamper(Path("train/box"), edits)
    agt("predict", "run=train/box", "mechanism.eps=1", "ledger=none").ended(2, LAST_READER)
    agt("certify", "run=train/box").ended(2, LAST_READER)


def test_stable_distances_are_those_that_the_table_and_metrics_count(
    outputs: Path, agt: Agt
) -> None:
    path = outputs / "certify/c/certificates.parquet"
    table = pd.read_parquet(path)
    longer = table["stable_distance"] + 100
    metrics = path.parent / "metrics.json"
    table.assign(stable_distance=longer).to_parquet(path, index=False)
    reseal(path.parent)
    assert (
        "stable_distance_mean"
        in problems(agt("verify", "certify/c", "--json", "-q"))["certificates"]
    )
    brief = {
        "stable_distance_mean": float(longer.mean()),
        "stable_distance_median": float(longer.median()),
    }
    change(metrics, lambda value: value.update(brief))
    reseal(path.parent)
    said = problems(agt("verify", "certify/c", "--json", "-q"))
    assert "certified.csv" in said["certificates"]


@pytest.mark.parametrize("command", ["certify", "plan", "data", "doctor"])
def test_no_other_command_writes_what_a_release_does(outputs: Path, agt: Agt, command: str) -> None:
    folder = outputs / "predict/labels"
    change(folder / "status.json", lambda status: status.update(command=command))
    files = Manifest.read((folder / "manifest.json").read_bytes()).files
    (folder / "manifest.json").write_bytes(Manifest(command, files).content)
    reseal(folder)
    said = problems(agt("verify", "predict/labels", "--json", "-q"))
    for name in ("spent.json", "claim.json", "labels.csv"):
        assert name in said["files"]


def test_weights_that_were_not_drawn_are_off_their_lattice(outputs: Path, agt: Agt) -> None:
    folder = outputs / "predict/weights/release"
    with np.load(folder / "weights.npz") as arrays:
        np.savez(folder / "weights.npz", weight=arrays["weight"] + 1e-12)
    reseal(folder)
    assert "noise" in problems(agt("verify", str(folder), "--json", "-q"))


# -- ledgers


def test_a_ledger_verifies_and_says_what_rests_on_it(made: Path, agt: Agt) -> None:
    said = agt("verify", str(made / "ledgers/people.ledger")).ended(0)
    for words in (
        "VERIFIES: ledger",
        "this ledger ever pays for are together (1, 1e-05)-differentially private",
        "1 debits were checked",
        "3 stored answers",
        "declared, not checked: in the table",
        "latest entry is not recorded outside of the ledger",
        "releases about these people may be missing from the ledger",
    ):
        assert words in " ".join(said.out.split()), words


def test_a_head_that_was_noted_is_compared(made: Path, agt: Agt) -> None:
    path = str(made / "ledgers/people.ledger")
    head = agt("verify", path, "--json", "-q").json["facts"]["head"]
    assert agt("verify", path, f"head={head}", "-q").code == 0
    assert (
        "differs from the one"
        in problems(agt("verify", path, f"head={head[:2]}{64 * '0'}", "--json", "-q"))["ledger"]
    )
    assert "older" in problems(agt("verify", path, f"head=99:{64 * '0'}", "--json", "-q"))["ledger"]
    assert agt("verify", path, "head=nonsense").code == 2
    assert agt("verify", path, f"digest=sha256:{64 * '0'}").code == 2


def test_a_release_is_compared_with_the_entry_that_counts_it(outputs: Path, agt: Agt) -> None:
    said = agt("verify", "predict/paid", "--json", "-q").ended(0)
    ledger = said.json["rests_on"][-1]
    assert {"check": "entry", "state": "ok"}.items() <= ledger["checks"][-1].items()
    assert "0.1-Gaussian" in ledger["checks"][-1]["words"]
    agt("verify", "predict/again", "-q").ended(0)
    assert not Path("predict/again/spent.json").exists(), "stored answers spend nothing more"


def test_a_ledger_that_the_environment_declined_is_in_the_record(
    outputs: Path, agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGT_LEDGER", "none")
    agt(
        "predict", "run=train/box", "mechanism.eps=1", "hydra.run.dir=predict/declined", "-q"
    ).ended(0)
    checks = agt("verify", "predict/declined", "--json", "-q").ended(0).json["checks"]
    assert ("ledgers", "not checked") in {(check["check"], check["state"]) for check in checks}
    tamper(Path("predict/declined"), {"env.json": lambda env: env.pop("ledger")})
    said = problems(agt("verify", "predict/declined", "--json", "-q"))
    for word in ("uncounted.why", "'declined'", "'unnamed'"):
        assert word in said["claim"]


def test_stored_answers_are_looked_for_in_their_ledger(outputs: Path, agt: Agt) -> None:
    folder = Path("predict/again")
    assert states_of_ledger(agt("verify", str(folder), "-q", "--json").ended(0))["entry"] == "ok"
    change(folder / "metrics.json", lambda value: value.update(mu=0.2))
    reseal(folder)
    assert "entry" in problems(agt("verify", str(folder), "--json", "-q"), below=True)
    shutil.move("ledgers", "accounts")
    assert "entry" not in states_of_ledger(agt("verify", str(folder), "--json", "-q"))


def test_a_release_without_its_training_run_is_proved_by_its_own_conditions(
    outputs: Path, agt: Agt
) -> None:
    """claim.json and metrics.json still say that it is."""
    # nobody says what chose it
    void = agt("train", *TINY[:-2], "model=linear", "hydra.run.dir=train/void", "-q")
    assert void.code == 0, void.err
    shutil.copy("train/void/conditions.json", "predict/labels/conditions.json")
    counts = {
        key: json.loads(Path("train/void/metrics.json").read_text())[key] for key in CONDITIONS
    }
    edits: dict[str, Edit] = {
        "env.json": lambda value: value.update(trained_run="/nowhere/x"),
        "spent.json": lambda value: value.update(trained_run="/nowhere/x"),
        "metrics.json": lambda value: value.update(counts),
        "config.yaml": lambda value: value.update(accounting="paper"),
    }
    tamper(Path("predict/labels"), edits)
    assert "proved" in problems(agt("verify", "predict/labels", "--json", "-q"))["budget"]


@pytest.mark.parametrize(
    "name",
    ["predict/paid", "predict/labels", "predict/within", "predict/weights", "predict/number"],
)
def test_an_honest_release_verifies_without_its_training_run(
    outputs: Path, agt: Agt, name: str
) -> None:
    name_training_run(Path(name), "/nowhere/x")
    said = agt("verify", name, "--json", "-q").ended(0)
    states = {check["check"]: check["state"] for check in said.json["checks"]}
    assert states["budget"] == "ok", "it is worked out again"


def test_a_ledger_that_is_not_there_is_not_checked(outputs: Path, agt: Agt) -> None:
    shutil.move("ledgers", "accounts")
    (Path("ledgers")).mkdir()
    said = agt("verify", "predict/paid", "--json", "-q").ended(0)
    assert said.json["rests_on"][-1]["state"] == "not checked"
    assert "ledger=FILE" in str(said.json["rests_on"][-1])
    assert agt("verify", "predict/paid", "ledger=accounts/people.ledger", "--json", "-q").json[
        "rests_on"
    ][-1]["state"] != ("not checked")


def test_a_ledger_that_was_edited_or_is_none_does_not_verify(outputs: Path, agt: Agt) -> None:
    path = Path("ledgers/people.ledger")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"size":3', b'"size":1'))
    assert problems(agt("verify", str(path), "--json", "-q"))
    for spoilt in (b"", b"not a ledger", content[: len(content) // 2]):
        path.write_bytes(spoilt)
        assert problems(agt("verify", str(path), "--json", "-q"))["ledger"]
    path.unlink()
    os.mkfifo(path)
    assert "ledger" in problems(agt("verify", str(path), "--json", "-q"))


# -- hostile folders


def test_nothing_acts_on_the_terminal_or_in_a_page(outputs: Path, agt: Agt) -> None:
    folder = outputs / "train/box"
    evil = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\u202e[link](javascript:1)\nVERIFIES"
    change(folder / "env.json", lambda env: env.update(dataset=evil, agt=evil, platform=evil))
    change(folder / "status.json", lambda status: status.update(started=evil))
    (folder / "\x1b[31mred\n.txt").write_text("")
    (folder / os.fsdecode(b"\xff\xfe")).write_text("")
    reseal_but(folder, "\x1b", os.fsdecode(b"\xff"))
    said = agt("verify", str(folder), "page=page.html").ended(3)
    for text in (said.out, said.err, Path("page.html").read_text()):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert "\nVERIFIES" not in text
    assert "\\x1b[2J" in said.out
    assert "<script>alert" not in Path("page.html").read_text()
    assert 'href="javascript' not in Path("page.html").read_text()


def reseal_but(folder: Path, *starts: str) -> None:
    """Seal again, without files whose names begin so."""
    reseal(folder)
    path = folder / "manifest.json"
    value = json.loads(path.read_text())
    files = {name: listed for name, listed in value["files"].items() if not name.startswith(starts)}
    path.write_bytes(seal_manifest({"command": value["command"], "files": files}))


@pytest.mark.parametrize("file", ["status.json", "metrics.json", "conditions.json", "config.yaml"])
def test_a_file_that_no_run_writes_is_a_problem(outputs: Path, agt: Agt, file: str) -> None:
    """Each way to write one: tests/unit/test_verified.py."""
    folder = outputs / "train/box"
    yaml_file = file.endswith("yaml")
    (folder / file).write_bytes(
        b"a: !!python/object/apply:os.system ['touch owned']\n"
        if yaml_file
        else HOSTILE["a key twice"]
    )
    reseal(folder)
    said = problems(agt("verify", str(folder), "--json", "-q"))
    assert file in said or "conditions" in said
    assert not Path("owned").exists()


HOSTILE = {
    "a key twice": b'{"state": "failed", "state": "done", "command": "train"}',
    "no number": b'{"state": "done", "command": "train", "seconds": NaN}',
    "infinity": b'{"state": "done", "command": "train", "seconds": 1e999}',
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "a list": b"[]",
    "no text": b"\xff\xfe",
    "digits": b'{"a": ' + b"9" * 100_000 + b"}",
    "empty": b"",
}


def test_code_that_a_folder_names_is_not_imported(
    outputs: Path, agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("owned.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    for name in ("train/box", "predict/labels"):
        config = outputs / name / "config.yaml"
        for key in ("dataset", "model", "mechanism"):
            change(
                config,
                lambda value, key=key: value.__setitem__(
                    key, {**(value.get(key) or {}), "_target_": "owned.X"}
                ),
            )
        reseal(outputs / name)
    assert "owned.X" in agt("verify", "train/box").out
    said = agt("verify", "predict/labels", "-q")
    assert "mechanism._target_" in said.out
    assert "owned.X" in said.out
    folder = outputs / "predict/weights/release"
    change(folder / "release.json", lambda value: value["source"].update(_target_="owned.X"))
    reseal(folder)
    said = agt("verify", str(folder)).ended(0)
    assert "owned.X" in said.out


def test_no_record_of_any_kind_has_code_imported_that_it_names_whoever_trusts_it(
    outputs: Path, agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every ``_target_`` of every record is hostile, and a command around this one trusts it."""
    name_everywhere(outputs, "evil.Boom")
    Path("evil.py").write_text(MARKS_ITSELF)
    Path("conf").mkdir(exist_ok=True)
    Path("conf/mine.yaml").write_text("_target_: evil.Boom\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    for name in (*RUNS, "predict/weights/release"):
        with trusting(["evil.Boom"]):
            said = agt("verify", name, "--json", "-q")
        assert said.code in (0, 3), said.err
        assert not Path("imported").exists(), name


def test_a_record_that_points_anywhere_gets_nothing_opened(outputs: Path, agt: Agt) -> None:
    os.mkfifo("pipe")
    places = {"path": "/dev/zero", "test": str(Path("pipe").resolve()), "x": "/dev/tty", "y": "/"}
    files = {key: {"path": path, "sha256": 64 * "0"} for key, path in places.items()}
    change(outputs / "train/box/env.json", lambda env: env.update(data_files=files))
    name_training_run(outputs / "predict/labels", "/dev/zero")
    for name in ("train/box", "predict/labels"):
        reseal(outputs / name)
        assert agt("verify", name, "-q").code == 0
    said = agt("verify", "train/box", "--json", "-q")
    assert {check["state"] for part in said.json["rests_on"] for check in part["checks"]} == {
        "not checked"
    }


def test_data_is_the_same_changed_or_gone(outputs: Path, agt: Agt) -> None:
    def of_data() -> dict[str, str]:
        (part,) = agt("verify", "train/box", "--json", "-q").json["rests_on"]
        return part["checks"][0]

    path = Path("loans.csv")
    path.write_text("a,b\n")
    entry = {"path": str(path.resolve()), "sha256": sha256(path.read_bytes()).hexdigest()}
    change(outputs / "train/box/env.json", lambda env: env.update(data_files={"path": entry}))
    reseal(outputs / "train/box")
    assert of_data()["state"] == "ok"
    path.write_text("a,c\n")
    assert of_data()["state"] == "note"
    assert "CHANGED since" in of_data()["words"]
    assert "CHANGED since" in " ".join(agt("verify", "train/box", "-q").out.split())
    path.unlink()
    assert of_data()["state"] == "not checked"
    assert "is gone" in of_data()["words"]


def test_a_run_of_a_network_of_ones_own_verifies(
    agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agt verify builds the network without memory, where all parameters have one address."""
    (tmp_path / "own_net_to_verify.py").write_text(
        "from torch import nn\n"
        "def make_net(): return nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 2))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    model = ("model=custom", "model._target_=own_net_to_verify.make_net", "certificate=box")
    training = ("training=generic", "training.epochs=1", "training.lr=1", "kgrid.max=1")
    words = (*model, *training, "training.clip_elementwise=0.1", "hydra.run.dir=run", "-q")
    agt("train", "dataset=blobs", "dataset.n_train=80", *words).ended(0)
    agt("verify", "run").ended(0)
