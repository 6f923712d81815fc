"""Commands here are run in this process."""

from cli.conftest import agt  # noqa: F401
from commands import quick_commands  # noqa: F401
