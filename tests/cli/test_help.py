"""Help, version and the command line's own grammar."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

import agt_cli
from agt_cli import usage

from .conftest import Agt

PROBE = """
import json, sys
from agt_cli.cli import main
code = main({arguments!r})
print(json.dumps([code, sorted({{"torch", "hydra", "numpy"}} & set(sys.modules))]))
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["train", "--help"], ["certify", "-h"], ["data", "-h"], []]
)
def test_help_imports_neither_torch_nor_hydra(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(arguments=arguments)], capture_output=True, text=True, check=True
    )
    code, heavy = json.loads(done.stdout.splitlines()[-1])
    assert heavy == []
    assert code == (0 if arguments else 2)


def test_version_is_the_package_s(process: Agt) -> None:
    said = process("--version")
    assert (said.code, said.out.strip()) == (0, f"agt {agt_cli.__version__}")


def test_help_lists_the_commands_that_exist(agt: Agt) -> None:
    section = agt("--help").out.split("\ncommands:\n")[1].split("\n\n")[0]
    assert {line.split()[0] for line in section.splitlines()} == set(usage.COMMANDS)
    for command in usage.COMMANDS.values():
        assert find_spec(command.module) is not None, "one that is not built is not listed"


def test_every_group_belongs_to_a_command() -> None:
    folders = {path.name for path in usage.config_dir().iterdir() if path.is_dir()} - {"hydra"}
    assert {group for command in usage.COMMANDS.values() for group in usage.groups(command.config)} == folders


@pytest.mark.parametrize("name", list(usage.COMMANDS))
def test_command_help_lists_every_group_and_option(agt: Agt, name: str) -> None:
    text = agt(name, "--help").out
    for group in usage.groups(usage.COMMANDS[name].config):
        section = text.split(f"\n{group}=:\n")[1].split("\n\n")[0]
        listed = {line.split()[0] for line in section.splitlines()}
        assert listed == {path.stem for path in (usage.config_dir() / group).glob("*.yaml")}
        assert all(len(line.split()) > 1 for line in section.splitlines()), "every option says what it is"


def test_examples_in_help_name_real_options() -> None:
    for command in usage.COMMANDS.values():
        for example in command.examples:
            for word in example.split():
                group, _, option = word.partition("=")
                if option and group in usage.groups(command.config):
                    assert option in (*usage.options(group), "loans"), "or what agt data inspect loans.csv writes"


@pytest.mark.parametrize("flag", ["-q", "-v", "--json"])
def test_own_flags_may_stand_anywhere(agt: Agt, flag: str) -> None:
    for arguments in ((flag, "train", "--cfg", "job"), ("train", "--cfg", "job", flag)):
        assert "lr: 2.0" in agt(*arguments).out


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"], ["train", "--cfg", "job"], []])
def test_a_reader_that_stops_reading_is_no_traceback(arguments: list[str]) -> None:
    """``agt --help | head`` closes the pipe that help is written to."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "agt_cli", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
