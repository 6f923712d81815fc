"""Completion: what the shells are given, and bash itself asking for it."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from agt.data.table import Table
from agt.mechanisms.rigour import Accounting, Counting
from agt.settings import ComputeConfig, FeaturesConfig, TrainingConfig
from agt.training.noise import NoiseConfig
from agt_cli import completion, usage
from agt_cli.commands.reproduce import ReproduceConfig
from agt_cli.report.listed import State

from .conftest import Agt
from .test_latest import kept

BASH = shutil.which("bash")
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
    ("agt cert", {"certify"}),
    ("agt help pl", {"plan"}),
    ("agt train data", {"dataset=", "dataset.", "data_dir="}),
    ("agt train dataset = di", {"digits"}),
    ("agt train dataset =", {"blobs", "digits", "table"}),
    ("agt train dataset=di", {"dataset=digits"}),
    ("agt --json train training.l", {"training.loss=", "training.lr=", "training.lr_min="}),
    ("agt train training.loss = b", {"binary_cross_entropy"}),
    ("agt train training.nesterov =", {"true", "false"}),
    ("agt train certificate = erm certificate.t", {"certificate.tolerance="}),
    ("agt train --cfg ", {"job"}),
    ("agt train --js", {"--json"}),
    ("agt predict mechanism = gaussian_margin mechanism.m", {"mechanism.mu="}),
    ("agt predict accounting = p", {"paper"}),
    ("agt data ", {"prepare", "inspect"}),
    ("agt data prepare i", {"imdb"}),
    ("agt data prepare imdb prepare.pool", {"prepare.pooling="}),
    ("agt data inspect my", {"my.csv", "my\\ own\\ (1).csv".replace("(", "\\(").replace(")", "\\)")}),
    ("agt reproduce b", {"blobs"}),
    ("agt audit sel", {"selftest"}),
    ("agt audit summary run = lat", {"latest"}),
    ("agt audit summary audit.au", {"audit.audits="}),
    ("agt ledger show pe", {"people"}),
    ("agt predict ledger = pe", {"people"}),
    ("agt reproduce blobs profile = s", {"smoke"}),
    ("agt certify run =", {"latest", "outputs/train/2026-01-02_00-00-00-000000"}),
    ("agt certify run = outputs/train/", {"outputs/train/2026-01-02_00-00-00-000000"}),
    ("agt plan run = l", {"latest"}),
    ("agt certify inputs = my", {"my.csv"}),
    ("agt train dataset = table dataset.path = my", {"my.csv"}),
    ("agt certify output_dir = out", {"outputs/"}),
    ("agt nonsense ", set()),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, one of them finished, and two files."""
    monkeypatch.chdir(tmp_path)
    kept("outputs/train/2026-01-02_00-00-00-000000")
    kept("outputs/train/2026-01-03_00-00-00-000000", state="failed")
    (tmp_path / "ledgers").mkdir()
    for name in ("my.csv", "my own (1).csv", "ledgers/people.ledger"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_bash_asks(folder: Path) -> None:
    source = str(Path(completion.__file__).parents[1])
    done = subprocess.run(
        [str(BASH), "--norc", "-c", ASK.format(python=sys.executable)],
        input="\n".join(line for line, _ in LINES) + "\n",
        env={"PYTHONPATH": source, "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        cwd=folder,
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
        typed = line.split(" ")[-1]
        assert typed == "=" or all(word.startswith(typed) for word in found), line


def test_a_run_that_failed_is_not_offered(folder: Path, agt: Agt) -> None:
    words = agt("completion", "--query", "zsh", "certify", "run=outputs/train/2026-01-0").out.split()
    assert [word for word in words if not word.endswith("/")] == ["run=outputs/train/2026-01-02_00-00-00-000000"]


def test_a_release_is_a_folder(folder: Path, agt: Agt) -> None:
    (folder / "weights").mkdir()
    words = agt("completion", "--query", "zsh", "predict", "release=weig").out.split()
    assert words == ["release=weights/"]


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_every_shell_has_a_script_that_asks_in_its_name(agt: Agt, shell: str) -> None:
    said = agt("completion", shell)
    assert said.code == 0
    assert f"completion --query {shell}" in said.out
    assert agt("train", "--shell-completion", f"install={shell}").out == said.out, "as any Hydra application is asked"
    assert agt("train", "--shell-completion", f"uninstall={shell}").code == 0
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=said.out, text=True, check=True, timeout=30)


def test_help_says_how_to_install_it(agt: Agt) -> None:
    assert 'eval "$(agt completion bash)" in ~/.bashrc' in agt("--help").out
    assert agt("help", "completion").code == 0
    for line in (("completion",), ("completion", "bsh"), ("train", "--shell-completion")):
        said = agt(*line)
        assert (said.code, "bash" in said.err) == (2, True)
    assert agt("train", "-sc", "query=bash").out == "", "a script that Hydra once installed"


def test_it_answers_without_anything_heavy(folder: Path) -> None:
    code = (
        "import sys; from agt_cli.cli import main\n"
        "main(['completion', '--query', 'bash', 'train', 'dataset', '=', 'table', 'dataset.'])\n"
        "print(sorted({'torch', 'numpy', 'hydra', 'omegaconf', 'pydantic'} & set(sys.modules)))"
    )
    source = str(Path(completion.__file__).parents[1])
    command, pure = [sys.executable, "-c", code], {"PYTHONPATH": source}
    done = subprocess.run(command, env=pure, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "dataset.path=" in done.stdout


def choices(annotation: Any) -> set[str]:
    """The words that an annotation lists."""
    if get_origin(annotation) is Literal:
        return {value for value in get_args(annotation) if isinstance(value, str)}
    return set().union(*(choices(part) for part in get_args(annotation)))


def test_the_values_offered_are_those_that_are_taken() -> None:
    types = {"training": TrainingConfig, "compute": ComputeConfig, "certificate.features": FeaturesConfig}
    types |= {"dataset": Table, "noise": NoiseConfig, "": ReproduceConfig}
    plain = {"accounting": Accounting, "counting": Counting, "state": State}
    for key, offered in completion.VALUES.items():
        where, _, name = key.rpartition(".")
        annotation = plain[key] if key in plain else get_type_hints(types[where], include_extras=True)[name]
        assert set(offered) == choices(annotation), key


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        *((name, {}) for name in usage.COMMANDS),
        ("data", {"prepare": "imdb"}),
        ("train", {"dataset": "table"}),
        ("train", {"dataset": "table", "certificate/features": "crosses"}),
        ("tune", {"dataset": "embeddings"}),
        ("train", {"experiment": "imdb_linear_whitened"}),
        ("predict", {"mechanism": "release_weights"}),
    ],
)
def test_every_key_of_the_composed_configuration_is_offered(name: str, choices: dict[str, str]) -> None:
    from agt_cli.mistakes import _compose, _flatten

    offered = dict(completion._flat(completion.composed(name, choices)))
    composed = _compose(usage.COMMANDS[name].config, [f"{group}={option}" for group, option in choices.items()])
    expected = {key for key in _flatten(composed) if not key.endswith("_target_")}
    leaves = {key for key in expected if not any(other.startswith(f"{key}.") for other in expected)}
    assert leaves - set(offered) - set(usage.groups(usage.COMMANDS[name].config)) == set()
