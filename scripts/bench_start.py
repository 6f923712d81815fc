"""How long a command takes to answer before it does any work: help, completion, version.

    python scripts/bench_start.py [--runs 20]

A table on stdout, milliseconds of whole processes on this machine: first an interpreter that does nothing, then a row for
each command. Every command is run once before it is counted.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

AGT = ("-m", "agt_cli")
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "agt --version": (*AGT, "--version"),
    "agt --help": (*AGT, "--help"),
    "agt train --help": (*AGT, "train", "--help"),
    "agt completion bash": (*AGT, "completion", "bash"),
    "completing: agt tr": (*AGT, "completion", "--query", "bash", "tr"),
    "completing: agt train training.": (*AGT, "completion", "--query", "bash", "train", "training."),
    "completing: agt certify run=": (*AGT, "completion", "--query", "bash", "certify", "run", "="),
    "agt trian (a mistake)": (*AGT, "trian"),
}


def seconds(arguments: tuple[str, ...]) -> float:
    """One run of an interpreter, from start to end."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False)
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    print(f"{'':<34}{'min':>8}{'median':>8}{'max':>8}   milliseconds, {runs} runs, Python {sys.version.split()[0]}")
    for name, arguments in COMMANDS.items():
        seconds(arguments)
        times = [1000 * seconds(arguments) for _ in range(runs)]
        print(f"{name:<34}{min(times):>8.0f}{statistics.median(times):>8.0f}{max(times):>8.0f}")


if __name__ == "__main__":
    main()
