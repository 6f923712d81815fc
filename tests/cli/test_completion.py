"""Completion: what the shells are given, and bash itself asking for it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agt_cli import completion, usage

from .conftest import Agt

BASH = shutil.which("bash")
SOURCE = str(Path(usage.__file__).parents[1])
ASK = """
agt() {{ "{python}" -m agt_cli "$@"; }}
source <(agt completion bash)
while IFS= read -r line; do
    IFS=' ' read -ra COMP_WORDS <<< "$line"
    [[ $line == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    _agt_complete
    (IFS=,; echo "${{COMPREPLY[*]}}")
done
"""
LINES = [  # as bash cuts them, at = too
    ("agt ", {"train", "certify", "help", "completion"}),
    ("agt train dataset = di", {"digits"}),
    ("agt --json train certificate/f", {"certificate/features="}),
    ("agt nonsense ", set()),
]
WORDS = [
    ("cert", {"certify"}),
    ("help pl", {"plan"}),
    ("completion b", {"bash"}),
    ("train data", {"dataset="}),
    ("train dataset=", {"dataset=blobs", "dataset=digits", "dataset=table"}),
    ("train certificate=erm certificate.t", set()),
    (
        "train certificate=stability model=linear certificate/features=la",
        {"certificate/features=landmarks"},
    ),
    ("train --js", {"--json"}),
    ("data ", {"prepare", "inspect"}),
    ("data prepare im", {"imdb"}),
    ("reproduce b", {"blobs"}),
    ("audit sel", {"selftest"}),
    ("certify run=", set()),
    ("data inspect my", set()),
]


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_bash_asks(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(BASH), "--norc", "-c", ASK.format(python=sys.executable)],
        input="\n".join(line for line, _ in LINES) + "\n",
        env={"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    answers = [set(filter(None, line.split(","))) for line in done.stdout.split("\n")]
    for (line, expected), found in zip(LINES, answers, strict=False):
        assert expected <= found, line
        assert bool(expected) == bool(found), line


@pytest.mark.parametrize(("line", "expected"), WORDS, ids=[line for line, _ in WORDS])
def test_candidates(line: str, expected: set[str]) -> None:
    found = set(completion.candidates(line.split(" ")))
    assert expected <= found
    assert bool(expected) == bool(found)
    assert all(word.startswith(line.split(" ")[-1]) for word in found)


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_every_shell_has_a_script_that_asks_in_its_name(agt: Agt, shell: str) -> None:
    said = agt("completion", shell).ended(0)
    assert f"completion --query {shell}" in said.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=said.out, text=True, check=True, timeout=30)


def test_commands_and_groups_are_answered_without_anything_heavy() -> None:
    code = (
        "import sys; from agt_cli.cli import main\n"
        "main(['completion', '--query', 'bash', 'train', 'dataset', '=', 'di'])\n"
        "print(sorted({'torch', 'numpy', 'hydra', 'omegaconf', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["digits", "[]"]
