"""``python -m agt_cli`` is ``agt``."""

import sys

# -m puts the current folder first, where anybody's module json would be taken for Python's
if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))

from agt_cli.cli import main

if __name__ == "__main__":
    sys.exit(main())
