"""Sentences are compared in this folder alone; commands here are run in this process."""

from cli.conftest import agt, home, process, trained, trained_as  # noqa: F401
from commands import quick_commands  # noqa: F401
