"""Synthetic statements in the schema of the American Express default prediction data, for trying
`agt data prepare amex`.

    python scripts/make_amex_like.py FOLDER --rows 1000000 --format parquet

writes FOLDER/train_data.{csv,parquet} and FOLDER/train_labels.csv; what is in them:
experiments/amex_like.py.
"""

import argparse
from pathlib import Path

from agt_cli._experiments.amex_like import make


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for path in make(given.folder, given.rows, given.format, given.seed):
        print(f"{path} ({path.stat().st_size / 2**20:.0f} MiB, synthetic)")


if __name__ == "__main__":
    main()
