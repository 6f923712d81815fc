"""The range of labels that are numbers, as a person types it.

Nothing here loads NumPy, so that a mistake is answered at once.
"""

import re
from collections.abc import Sequence

from agt.errors import ConfigError

RANGE_KEYS = ("range", "dataset.range")
"""The settings that take a range of labels."""
_NUMBER = re.compile(r"(?<!\d)[+-]?(?:\d+(?:\.\d+)?|(?<!\.)\.\d+)(?:[eE][+-]?\d+)?")
"""A number in a text. A dash behind a digit separates two numbers and is no sign."""


def read_range(value: object) -> object:
    """Return the two ends of a range of labels.

    Args:
        value: as a command line, YAML or a person gives it: ``[0, 120]``, or ``0 120``.

    Raises:
        ConfigError: it is not two numbers; the message shows the form with the numbers in it.
    """
    ends = value
    if isinstance(value, str):
        ends = value.strip(" []").replace(",", " ").split()
    if not isinstance(ends, Sequence) or isinstance(ends, str) or len(ends) != 2:
        raise ConfigError(malformed_range("range", _typed(value)))
    try:
        [float(end) for end in ends]
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(malformed_range("range", _typed(value))) from None
    return tuple(ends)


def malformed_range(setting: str, text: str) -> str:
    """Return what is wrong with the value of a range, and what to type with its own numbers.

    Args:
        setting: the setting that was given.
        text: the value, as it was typed.
    """
    numbers = _NUMBER.findall(text)
    example = f"{setting}=[LOW,HIGH], such as {setting}=[0,120]"
    if len(numbers) == 2:
        example = f"{setting}=[{numbers[0]},{numbers[1]}]"
    return f"{setting}={text}: a range is two numbers in brackets, so type {example}"


def _typed(value: object) -> str:
    """Return a value as a command line has it."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{','.join(map(str, value))}]"
    return str(value)
