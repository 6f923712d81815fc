"""``python -m agt_cli`` is ``agt``."""

import sys

from agt_cli.cli import main

sys.exit(main())
