"""``python -m agt_cli`` is ``agt``."""

import sys

from agt_cli.cli import main

if __name__ == "__main__":
    sys.exit(main())
