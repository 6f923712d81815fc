"""Members of ensembles are trained in this process."""

from commands import quick_commands  # noqa: F401
