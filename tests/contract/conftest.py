"""Commands here are run in this process."""

from commands import nothing_twice  # noqa: F401
