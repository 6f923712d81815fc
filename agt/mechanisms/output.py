"""What a release puts out: labels, one number, weights, or constants."""

from enum import StrEnum


class Output(StrEnum):
    """What a release puts out; the value is its name in records."""

    LABELS = "labels"
    NUMBER = "a number"
    WEIGHTS = "weights"
    CONSTANTS = "constants"
