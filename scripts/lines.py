"""Several command lines of agt, one after another in one process, which imports everything once.

    python -P scripts/lines.py 'train kgrid.max=5' 'certify run=latest'

The first that fails ends it, with its exit code.
"""

import shlex
import sys
from collections.abc import Sequence

from agt_cli.cli import main


def run_lines(lines: Sequence[str]) -> int:
    """Run command lines quietly, and return the exit code of the first that fails, or 0."""
    for line in lines:
        print(f"agt -q {line}", flush=True)
        code = main(["-q", *shlex.split(line)])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(run_lines(sys.argv[1:]))
