"""The kinds of things that a release can publish."""

from enum import StrEnum


class Output(StrEnum):
    """The kind of output that a release publishes, by the name that files have for it."""

    LABELS = "labels"
    NUMBER = "a number"
    WEIGHTS = "weights"
    CONSTANTS = "constants"
