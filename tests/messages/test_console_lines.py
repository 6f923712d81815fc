"""What commands say on the console where nothing is refused, and of runs that no line can make."""

import shlex

import pytest
from cli.conftest import Agt
from museum import COMMANDS, FinishedRuns

from .test_catalogue import cases

REMOVAL = "train dataset=digits model=linear training=recipe certificate=removal"

TABLE = f"""
predict run=@train/box mechanism.eps=1 seed=7 | 0 | SIMULATION: the random draws come from a seed, so they can be predicted: this is not a private release | without a seed, this would hold: 1-differentially private
verify @predict/labels | 0 | the sentences in report.md and report.html may be false | their text was not compared
verify @predict/labels page=@predict/labels/own.md | 2 | this file would be inside the folder that is verified
runs output_dir=nowhere | 0 | no run in the folder nowhere has the properties
train resume=@train/box | 2 | this run is finished, so there is nothing to resume: to use it, type agt certify run=
{REMOVAL} certificate.seed=4 | 0 | SIMULATION: the noise comes from certificate.seed=4 | not proved, because the noise comes from a seed
{REMOVAL} training.clip=0.5 | 0 | training.clip: this setting has no effect, because certificate=removal does not clamp gradients
certify run=@train/noisy map_resolution=0 | 0 | the certificates say nothing about retraining
ledger init people unit='one customer' total.eps=1 total.delta=1e-5 | 0 | eps = 1, delta = 1e-05, which cannot be raised | 1e-06 of delta is reserved for mechanisms with a delta of their own (total.delta_share=0.1), the rest for Gaussian noise
predict run=@train/noisy ledger=none mechanism.eps=1 force=true | 0 | publish either labels from this run's certificates or its noisy weights, but never both
"""
"""A command line, its exit code, and what it must say; ``@name`` is a run of museum.py."""


@pytest.mark.parametrize(("line", "code", "sentences"), cases(TABLE))
def test_a_command_says(
    agt: Agt, finished_runs: FinishedRuns, line: str, code: int, sentences: tuple[str, ...]
) -> None:
    for name in (name for name in COMMANDS if f"@{name}" in line):
        line = line.replace(f"@{name}", str(finished_runs[name]))
    said = agt(*shlex.split(line)).ended(code)
    text = " ".join((said.out + said.err).split())
    for sentence in sentences:
        assert sentence in text
