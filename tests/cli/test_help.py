"""Help, version and the command line's own grammar."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import pytest

import agt_cli
from agt_cli import config_files, usage

from .conftest import TINY, Agt

HELPS = [["--help"], ["--version"], ["train", "--help"], ["certify", "-h"], ["data", "-h"], []]
MISSING = [
    ["certify", "run=nowhere"],
    ["predict", "release=nowhere", "inputs=x.csv"],
    ["verify", "nowhere"],
    ["train", "dataset=table", "dataset.path=nowhere.csv"],
    ["data", "inspect", "nowhere.csv"],
    ["start", "nowhere.csv"],
]
PROBE = f"""
import json, sys
from agt_cli.cli import main
codes = [main(line) for line in {HELPS + MISSING!r}]
print(json.dumps([codes, sorted({{"torch", "hydra", "numpy"}} & set(sys.modules))]))
"""


def test_help_and_a_wrong_path_import_neither_torch_nor_hydra(tmp_path: Path) -> None:
    home = {**os.environ, "PYTHONPATH": str(Path(agt_cli.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=home,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [[0, 0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4], []]


def test_version_is_the_package_s(process: Agt) -> None:
    said = process("--version")
    assert (said.code, said.out.strip()) == (0, f"agt {agt_cli.__version__}")


def test_a_person_gives_a_setting_once(process: Agt) -> None:
    words = ("training.epochs=3", "training.epochs=5")
    process("train", *words).ended(2, *words)


@pytest.mark.parametrize(
    "words",
    [
        ("help", "train", "trainig"),
        ("train", "trainig", "--help"),
        ("help", "train", "certificate", "emr"),
        ("help", "audit", "membershp"),
        ("help", "doctor", "disk"),
    ],
)
def test_help_on_a_word_that_is_no_topic_is_refused(agt: Agt, words: tuple[str, ...]) -> None:
    unknown = next(word for word in reversed(words) if word != "--help")
    agt(*words).ended(2, f"'{unknown}'")


@pytest.mark.parametrize(
    "words",
    [
        ("help", "train", "certificate", "erm"),
        ("help", "audit", "membership"),
        ("help", "start", "clients.csv"),
        ("train", "--epochs", "5", "--help"),
        ("train", "model=linear", "--help"),
    ],
)
def test_help_takes_the_words_of_a_command_line(agt: Agt, words: tuple[str, ...]) -> None:
    assert agt(*words).ended(0).out


def test_help_lists_the_commands_that_exist(agt: Agt) -> None:
    section = agt("--help").out.split("\ncommands:\n")[1].split("\n\n")[0]
    assert {line.split()[0] for line in section.splitlines()} == set(usage.COMMANDS)
    for command in usage.COMMANDS.values():
        assert find_spec(command.module) is not None, "one that is not built is not listed"


def test_every_group_belongs_to_a_command() -> None:
    home = config_files.config_dir()
    folders = {
        path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_dir()
    } | set(config_files.packed_groups())
    folders = {folder for folder in folders if not folder.startswith(("hydra", "groups"))}
    assert {
        group
        for command in usage.COMMANDS.values()
        for group in config_files.groups_of_command(command.config)
    } == folders


@pytest.mark.parametrize("name", list(usage.COMMANDS))
def test_command_help_lists_every_group_and_option(agt: Agt, name: str) -> None:
    text = agt(name, "--help").out
    for group in config_files.groups_of_command(usage.COMMANDS[name].config):
        section = text.split(f"\n{group}=:\n")[1].split("\n\n")[0]
        listed = {line.split()[0] for line in section.splitlines()}
        assert listed == set(config_files.options_of_group(group))
        assert all(len(line.split()) > 1 for line in section.splitlines()), (
            "every option says what it is"
        )


def test_a_setting_is_told_by_all_of_its_comment(agt: Agt) -> None:
    line = next(
        line
        for line in agt("predict", "--help").out.splitlines()
        if line.startswith("  ledger=null ")
    )
    before = (config_files.config_dir() / "predict.yaml").read_text().split("\nledger: null")[0]
    above = takewhile(lambda text: text.startswith("# "), reversed(before.splitlines()))
    comment = " ".join(text.removeprefix("# ") for text in reversed([*above]))
    assert comment
    assert line.endswith(f" {comment}")


def test_examples_in_help_name_real_options() -> None:
    for command in usage.COMMANDS.values():
        for example in command.examples:
            for word in example.split():
                group, _, option = word.partition("=")
                if option and group in config_files.groups_of_command(command.config):
                    assert option in (*config_files.options_of_group(group), "loans"), (
                        "or what agt data inspect loans.csv writes"
                    )


PIPES = [
    (("--help",), "stdout"),
    (("train", "--cfg", "job"), "both"),
    pytest.param(("certify", "run=latest", "--json"), "both", marks=pytest.mark.sweep),
]


@pytest.mark.parametrize(("arguments", "streams"), PIPES)
def test_a_reader_that_stops_reading_is_no_traceback(
    tmp_path: Path, arguments: tuple[str, ...], streams: str
) -> None:
    """``agt --help | head`` closes the pipe that help is written to, ``agt ... 2>&1 | head``
    both.
    """
    done = unheard(tmp_path, arguments, streams)
    assert done.stderr in ("", None) or done.stderr.startswith("agt: error: ")
    assert done.returncode in (1, 2)


def unheard(
    folder: Path, arguments: Sequence[str], streams: str
) -> subprocess.CompletedProcess[str]:
    """A command whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "agt_cli", *arguments]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    error = writer if streams == "both" else subprocess.PIPE
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=path,
            stdout=writer,
            stderr=error,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writer)


@pytest.mark.sweep
@pytest.mark.parametrize("streams", ["stdout", "both"])
def test_a_run_goes_on_where_nobody_reads_what_it_says(tmp_path: Path, streams: str) -> None:
    done = unheard(tmp_path, ("train", *TINY), streams)
    assert done.returncode == 1, "what was to be printed was not"
    (status,) = tmp_path.glob("outputs/train/*/status.json")
    assert json.loads(status.read_text())["state"] == "done"


def test_a_disk_too_full_for_the_output_is_named() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    command = [sys.executable, "-m", "agt_cli", "--help"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("agt: error: ")
    assert len(done.stderr.splitlines()) == 1, "and no traceback"


@pytest.mark.parametrize(
    "arguments", [("help", "train"), ("train", "help"), ("--help", "train"), ("-q", "train", "-h")]
)
def test_help_is_asked_for_in_any_order(agt: Agt, arguments: tuple[str, ...]) -> None:
    assert agt(*arguments).out.startswith("agt train: ")


def test_options_and_settings_stand_in_any_order(agt: Agt, tmp_path: Path) -> None:
    for line in (
        "train dataset=digits --cfg job kgrid.max=7 --json",
        "--json train --cfg job dataset=digits kgrid.max=7",
        "-v train kgrid.max=7 --cfg job dataset=digits",
        "data --cfg job prepare prepare.batch=7 imdb",
        "data prepare.batch=7 prepare imdb --cfg job",
        "reproduce profile=smoke blobs --cfg job",
    ):
        said = agt(*line.split()).ended(0)
        assert any(text in said.out for text in ("max: 7", "batch: 7", "profile: smoke"))
    swept = agt("train", *TINY, "-m", "training.seed=1,2", "--json", "dataset.std=0.3", "-q")
    assert [job["command"] for job in swept.json["jobs"]] == ["train", "train"]


def test_text_with_any_sign_needs_no_second_pair_of_quotes(agt: Agt) -> None:
    for name in ("données (1).csv", "a=b.csv", "~home#1;&!.csv", "naïve/日本.csv"):
        agt(
            "train",
            "dataset=table",
            "dataset.label=y",
            "+dataset.numeric={a: [0, 1]}",
            f"dataset.path={name}",
        ).ended(4, name.removeprefix("~"))
    agt("certify", "run=~/nowhere").ended(2, f"{Path.home()}/nowhere: ")
    assert (
        agt("train", "training.lr=${training.clip}", "--cfg", "job", "--resolve").out.count("0.06")
        == 2
    )
    agt("train", *TINY, "training.lr=${training.clip}", "-q").ended(0)
