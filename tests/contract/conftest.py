"""Commands here are run in this process."""

from commands import quick_commands  # noqa: F401
