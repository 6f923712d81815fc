"""Code that records name runs only where the user named it: agt verify runs none of it, whatever
anybody named.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from museum import BUDGET, FinishedRuns
from records import MARKS_ITSELF, name_everywhere, reseal

from agt.errors import ConfigError
from agt.store.reading import file_sha256
from agt.targets import OWN_SETTINGS, UntrustedCode, imported, is_own_code, trusting
from agt_cli import config_files
from cli.conftest import Agt

RUNS = (
    *(
        "train/box",
        "train/linear",
        "train/erased",
        "train/trees",
        "predict/labels",
        "predict/weights",
    ),
    *("certify/box", "plan/linear", "unlearn/erased"),
)
SPENDING = ("mechanism=release_weights", *BUDGET, "ledger=none")
LINES = {
    "certify": ("certify", "run=train/box"),
    "a sweep": ("certify", "-m", "run=train/box,train/linear"),
    "a file of queries": ("certify", "run=train/box", "inputs=queries.npz"),
    "plan": ("plan", "run=train/linear"),
    "predict": ("predict", "run=train/box", "mechanism.eps=1", "ledger=none"),
    "weights": ("predict", "run=train/linear", *SPENDING),
    "a release": ("predict", "release=predict/weights/release", "inputs=queries.npz"),
    "a release with its digest": (
        "predict",
        "release=predict/weights/release",
        "inputs=queries.npz",
        "digest=DIGEST",
    ),
    "unlearn": ("unlearn", "run=train/erased", "ids=more.txt"),
    "a rehearsal": ("unlearn", "run=train/box", "ids=ids.txt", "method=retrain", "rehearse=true"),
    "audit certificate": ("audit", "certificate", "run=train/box"),
    "audit membership": ("audit", "membership", "run=train/box"),
    "audit prediction": (
        "audit",
        "prediction",
        "run=train/box",
        "mechanism=randomized_response",
        "mechanism.eps=1",
    ),
    "audit replay": (
        "audit",
        "replay",
        "run=train/box",
        "mechanism=randomized_response",
        "mechanism.eps=1",
    ),
    "audit unlearning": ("audit", "unlearning", "run=train/erased"),
    "a run that goes on": ("train", "resume=train/box"),
    "a learner that goes on": ("train", "resume=train/trees"),
}
QUIET = {
    "ledger": ("ledger", "init", "others", "run=train/linear", *BUDGET, "unit=one person"),
    "runs": ("runs", "output_dir=."),
}


@pytest.fixture(scope="module")
def spoilt(finished_runs: FinishedRuns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of every kind in which every ``_target_`` is ``evil.Boom``, which lies in the
    folder above them.
    """
    home = tmp_path_factory.mktemp("spoilt")
    for name in RUNS:
        finished_runs.copy(name, home / name)
    for name in ("queries.npz", "ids.txt"):
        shutil.copy(finished_runs.home / name, home / name)
    (home / "more.txt").write_text("row 7\n")
    (home / "evil.py").write_text(MARKS_ITSELF)
    name_everywhere(home, "evil.Boom")
    return home


@pytest.fixture
def stranger(spoilt: Path, agt: Agt, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of these, of which ``evil`` could be imported, as the present one; after the
    test it was or was not.
    """
    shutil.copytree(spoilt, Path.cwd(), dirs_exist_ok=True)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    yield Path.cwd()
    sys.modules.pop("evil", None)


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_command_imports_no_code_that_the_record_alone_names(
    stranger: Path, agt: Agt, line: tuple[str, ...]
) -> None:
    if "resume" in line[-1]:
        status = stranger / line[-1].partition("=")[2] / "status.json"
        status.write_text(json.dumps({**json.loads(status.read_text()), "state": "failed"}))
        (status.parent / "manifest.json").unlink()
    digest = file_sha256(stranger / "predict/weights/release/manifest.json")
    said = agt(*(word.replace("DIGEST", f"sha256:{digest}") for word in line))
    assert said.code == 2, said.err
    assert "_target_: 'evil.Boom'" in said.err + said.out
    assert "trust=[evil.Boom]" in said.err + said.out
    assert not (stranger / "imported").exists()


@pytest.mark.parametrize("line", QUIET.values(), ids=QUIET)
def test_a_command_that_needs_no_code_of_a_record_reads_it_all_the_same(
    stranger: Path, agt: Agt, line: tuple[str, ...]
) -> None:
    agt(*line).ended(0)
    assert not (stranger / "imported").exists()


def test_verify_says_of_released_weights_what_it_did_not_check(
    finished_runs: FinishedRuns, agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism alone is another, so that the training run's model is there to compare the
    weights with.
    """
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("evil.py").write_text(MARKS_ITSELF)
    for name in ("train/linear", "predict/weights"):
        finished_runs.copy(name, Path(name))
    config = Path("predict/weights/config.yaml")
    node = yaml.safe_load(config.read_text())
    node["mechanism"]["_target_"] = "evil.Boom"
    config.write_text(yaml.safe_dump(node))
    reseal(config.parent)
    said = agt("verify", "predict/weights", "--json", "-q")
    states = {check["check"]: check["state"] for check in said.json["checks"]}
    assert states["claim"] == states["noise"] == "not checked"
    assert "PROBLEM" not in states.values()
    assert not Path("imported").exists()


@pytest.mark.parametrize("named", ["trust=[evil.Boom]", "./conf"])
def test_code_that_the_user_names_runs(stranger: Path, agt: Agt, named: str) -> None:
    if named == "./conf":
        Path("conf/dataset").mkdir(parents=True)
        Path("conf/dataset/mine.yaml").write_text("_target_: evil.Boom\n")
        Path("conf/broken.yaml").write_text("a: [")
    words = [named] if named.startswith("trust=") else []
    agt("certify", "run=train/box", *words).ended(2, "'evil.Boom'")
    assert (stranger / "imported").exists()


@pytest.mark.parametrize("value", ["evil.Boom", "3"])
def test_trust_takes_a_list_of_names_and_nothing_else(stranger: Path, agt: Agt, value: str) -> None:
    agt("certify", "run=train/box", f"trust={value}").ended(2, "trust=")
    assert not (stranger / "imported").exists()


@pytest.mark.parametrize(
    "target",
    [
        *(
            "agt.mechanisms.planning.np",
            "agt.data.table.pd",
            "agt.settings.KGridConfig",
            "os.system",
        ),
        *("x", ".x", "", "agt", "agt.mechanisms..x", "agt.mechanisms.evil.Boom"),
        *("agt.mechanisms.mechanism.Mechanism", "agt.mechanisms.weights.GaussianWeights"),
        *("agt.mechanisms.objective.WeightsMechanism", "agt.mechanisms.measurement.Measurement"),
    ],
)
def test_a_part_of_agt_that_no_table_lists_is_not_resolved(target: str) -> None:
    with pytest.raises(UntrustedCode, match=re.escape(f"'{target}'")):
        imported(target, "model")
    with trusting(["agt.data.table"]), pytest.raises(ConfigError):
        imported(target, "model")


def test_every_class_of_the_table_is_there_and_every_class_of_conf_is_agts_own() -> None:
    for target in OWN_SETTINGS:
        assert (
            f"{imported(target, 'model').__module__}.{imported(target, 'model').__qualname__}"
            == target
        )
    texts = [
        text
        for group in ("dataset", "model", "mechanism")
        for text in config_files.options_of_group(group).values()
    ]
    named = {yaml.safe_load(text)["_target_"] for text in texts if "_target_: agt." in text}
    assert all(map(is_own_code, named))


def alone(folder: Path, path: str, *words: str) -> subprocess.CompletedProcess[str]:
    """``agt`` as a process in this folder, by its own script or with -m."""
    script = ["-P", "-c", "import sys; from agt_cli.cli import main; sys.exit(main())"]
    start = ["-m", "agt_cli"] if path == "-m" else script
    env = {**os.environ, "PYTHONPATH": "." if path == "." else ""}
    return subprocess.run(
        [sys.executable, *start, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "path", ["-m", *(pytest.param(path, marks=pytest.mark.sweep) for path in ("", "."))]
)
def test_a_process_that_could_import_a_strangers_code_does_not(stranger: Path, path: str) -> None:
    """All other tests here have the folder on Python's path, in this process."""
    (stranger / "hydra_plugins").mkdir()
    for name in ("hydra_plugins/launcher.py", *(["shlex.py", "yaml.py"] if path == "-m" else [])):
        (stranger / name).write_text(MARKS_ITSELF)
    assert alone(stranger, path, "verify", "predict/weights", "-q").returncode in (0, 3)
    assert not [*stranger.rglob("imported")]


@pytest.mark.parametrize("path", [".", pytest.param("-m", marks=pytest.mark.sweep)])
def test_a_strangers_package_named_experiments_is_not_imported(tmp_path: Path, path: str) -> None:
    for name in ("experiments", "papers", "_experiments"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(MARKS_ITSELF)
    done = alone(tmp_path, path, "reproduce", "blobs", "only=[none]", "-q")
    assert done.returncode == 2, done.stderr
    assert "none" in done.stderr
    assert not [*tmp_path.rglob("imported")]


def test_the_papers_code_is_found_under_one_name() -> None:
    from agt_cli._experiments import reproduce

    assert reproduce.__name__ == "agt_cli._experiments.reproduce"
    assert Path(str(reproduce.__file__)).parent.name in ("experiments", "_experiments")
    present_name = "agt_cli._experiments.encoder.EncodedHead"
    for trusted in (present_name, "agt_cli.papers.encoder.EncodedHead"):
        with trusting([trusted]):
            head = imported("agt_cli.papers.encoder.EncodedHead", "model")
        assert head.__module__ == "agt_cli._experiments.encoder"


@pytest.mark.parametrize(
    ("name", "edit", "words"),
    [
        ("metrics.json", lambda node: node.clear(), "certify run=run"),
        (
            "env.json",
            lambda node: node.update(data_files={"path": {"path": None}}),
            "certify run=run",
        ),
        (
            "env.json",
            lambda node: node.update(data_files={"path": 3}),
            "predict run=run mechanism.eps=1",
        ),
        (
            "config.yaml",
            lambda node: node["relation"].update(name="friends"),
            "audit certificate run=run",
        ),
        ("config.yaml", lambda node: node.pop("relation"), "audit certificate run=run"),
    ],
)
def test_an_entry_that_is_not_as_agt_wrote_it_is_no_bug(
    agt: Agt, name: str, edit: Callable[[Any], object], words: str
) -> None:
    agt("train", "dataset=digits", "model=linear", "kgrid.max=2", "hydra.run.dir=run", "-q").ended(
        0
    )
    path = Path("run", name)
    node = yaml.safe_load(path.read_text())
    edit(node)
    path.write_text(yaml.safe_dump(node) if path.suffix == ".yaml" else json.dumps(node))
    if name == "metrics.json":  # a note about other test records is made of it
        environment = Path("run/env.json")
        environment.write_text(
            environment.read_text().replace('"data_digest": "', '"data_digest": "0')
        )
    reseal(Path("run"))
    said = agt(*words.split())
    assert said.code in (1, 2)
    assert "bug" not in said.err


def test_a_module_of_the_present_folder_needs_a_path_as_well_as_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_mine.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UntrustedCode, match=r"trust=\[module_of_mine\.net\].*PYTHONPATH=\."):
        imported("module_of_mine.net", "model")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UntrustedCode) as error:
        imported("module_of_mine.net", "model")
    assert "PYTHONPATH" not in str(error.value)
