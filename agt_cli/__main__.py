"""``python -m agt_cli`` is ``agt``."""

import sys

if not sys.flags.safe_path:  # -m puts the current folder first, where anybody's module json would be taken for Python's
    sys.path.append(sys.path.pop(0))

from agt_cli.cli import main

if __name__ == "__main__":
    sys.exit(main())
