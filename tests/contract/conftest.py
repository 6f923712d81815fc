"""Commands here are run in this process."""

from commands import no_fsync  # noqa: F401
