"""agt doctor: is this machine, and this folder, fit for agt, and what is to be done where it is not?"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt.errors import CheckError
from agt_cli.doctor.doctor import examine
from agt_cli.report.checks import State
from agt_cli.report.console import Console
from agt_cli.runs.prepare import only_keys

COLUMNS = ("check", "stands", "seen, and what to do")


@dataclass(frozen=True)
class DoctorConfig:
    """Where runs are written, and where data sets are looked for."""

    output_dir: Path
    data_dir: Path


def configure(config: Mapping[str, Any]) -> DoctorConfig:
    """Take the two folders."""
    only_keys(config, ("output_dir", "data_dir"))
    return DoctorConfig(Path(str(config["output_dir"])).expanduser(), Path(str(config["data_dir"])).expanduser())


def run(config: DoctorConfig, console: Console) -> dict[str, Any]:
    """Look, and say what was seen.

    Raises:
        CheckError: something is a problem.
    """
    checks = examine(config.output_dir, config.data_dir)
    console.table("agt doctor", COLUMNS, [check.cells for check in checks])
    problems = [check for check in checks if check.state is State.PROBLEM]
    result = {"healthy": not problems, "checks": [check.as_json() for check in checks]}
    if problems:
        raise CheckError(f"{len(problems)} of {len(checks)} checks are problems", {"command": "doctor", **result})
    console.say(f"no problem in {len(checks)} checks; a note is nothing that agt cannot work with")
    return result
