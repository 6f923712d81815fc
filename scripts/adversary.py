"""Attacks the certificates by retraining neighbours, for as long as asked:
tests/soundness/adversary.py at length.

    python scripts/adversary.py [--trials 1000] [--seed 0] [--retrainings 24] [--only 17]

Trial i is one configuration of the i-th relation and kind in turn; it depends on the seed and i
alone, so that one that found something runs again with --only i. Prints each escape as it is found,
then a table. Exit code 1 if there was any.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
# this tree, whatever is installed
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "soundness")]

from adversary import CELLS, Report, table, trial  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--retrainings", type=int, default=24, help="of each trial, about")
    parser.add_argument("--only", type=int, help="one trial, by its number")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("error")  # as in the tests: a warning in training is an escape
    reports = {cell: Report() for cell in CELLS}
    start = time.perf_counter()
    for index in range(options.trials) if options.only is None else [options.only]:
        cell, report = trial(options.seed, index, options.retrainings)
        reports[cell] += report
        for escape in report.escapes:
            print(f"trial {index} of seed {options.seed}: {escape}\n", flush=True)
    print(table(reports))
    print(f"{time.perf_counter() - start:.0f} seconds")
    return int(any(report.escapes for report in reports.values()))


if __name__ == "__main__":
    sys.exit(main())
