"""The kinds of things that a release can publish."""

from enum import StrEnum


class Output(StrEnum):
    """What a release publishes: labels, one number, weights, or constants, as files name it."""

    LABELS = "labels"
    NUMBER = "a number"
    WEIGHTS = "weights"
    CONSTANTS = "constants"
