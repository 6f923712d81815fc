"""Ranges of labels and columns, and lists of a column's values, as a person types them.

Nothing here loads NumPy, so that a mistake is answered at once.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date

from agt.errors import ConfigError

RANGE_KEYS = ("range", "dataset.range")
"""The settings that take a range of labels."""
_NUMBER = re.compile(r"(?<!\d)[+-]?(?:\d+(?:\.\d+)?|(?<!\.)\.\d+)(?:[eE][+-]?\d+)?")
"""A number in a text. A dash behind a digit separates two numbers and is no sign."""
_THOUSANDS_OR_DECIMALS = re.compile(r"(?<![\w.+-])[+-]?[1-9]\d{0,2}\.\d{3}(?![\w.])")
"""A number such as 20.000: twenty in English, and twenty thousand in German."""


def read_range(value: object) -> object:
    """Return the two ends of a range of labels.

    Args:
        value: the range, as a command line, YAML or a person gives it: ``[0, 120]``, or ``0 120``.

    Raises:
        ConfigError: it is not two numbers; the message shows the form with the numbers in it. Or
            the point of a number that is text may separate thousands.
    """
    ends = _ends(value)
    if not isinstance(ends, Sequence) or isinstance(ends, str) or len(ends) != 2:
        raise ConfigError(malformed_range("range", _typed(value)))
    if any(isinstance(end, str) for end in ends):
        check_no_ambiguous_points("range", _typed(ends))
    try:
        [float(end) for end in ends]
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(malformed_range("range", _typed(value))) from None
    return tuple(ends)


def check_mapping(value: object) -> object:
    """Return a mapping by columns unchanged; raises ValueError for any other value."""
    if not isinstance(value, Mapping):
        raise ValueError(
            "give the values of each column, as in 'ranges={age: [15, 50]}' or "
            "'lists={region: [north, south]}'"
        )
    return value


def read_column_list(value: object) -> object:
    """Return a list of words unchanged.

    It is checked before words are: a single word would be a list of its letters.

    Raises:
        ValueError: it is no list, or a word is in it twice or is empty.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError("a list is in brackets, such as [north, south]")
    words = [str(word).strip() for word in value]
    if "" in words:
        raise ValueError("a word of the list is empty: leave it out")
    repeated = next((word for word in words if words.count(word) > 1), None)
    if repeated is not None:
        raise ValueError(f"'{repeated}' is in the list twice: give each value once")
    return value


def read_column_range(value: object) -> tuple[float | str, ...]:
    """Return the two ends of a column's range: numbers, or dates, which stay text.

    Args:
        value: the range, as a command line, YAML or a person gives it: ``[0, 120]``, or ``0 120``.

    Raises:
        ValueError: it is not two numbers or two dates.
    """
    ends = _ends(value)
    if isinstance(ends, Sequence) and len(ends) == 2:
        # YAML reads 2024-12-31 as a date.
        texts = [str(end) for end in ends if isinstance(end, str | date)]
        if len(texts) == 2 and all(re.match(r"\d{4}-\d", text) for text in texts):
            return tuple(texts)
        with suppress(TypeError, ValueError, OverflowError):
            return tuple(float(end) for end in ends)
    raise ValueError(
        "a range is two numbers in brackets, such as [0, 120], or two dates, such as "
        "[1900-01-01, 2030-01-01]"
    )


def _ends(value: object) -> object:
    """Return the words of text such as ``[0, 120]`` or ``0 120``; other values unchanged."""
    if isinstance(value, str):
        return value.strip(" []").replace(",", " ").split()
    return value


def check_no_ambiguous_points(setting: str, text: str) -> None:
    """Raise ConfigError if a point in a range may separate thousands, as in 20.000.

    Args:
        setting: the setting that was given.
        text: the value, as it was typed: once it is read, 20.000 is 20.
    """
    ambiguous = _THOUSANDS_OR_DECIMALS.search(text)
    if ambiguous is None:
        return
    with_thousands = _THOUSANDS_OR_DECIMALS.sub(_without_point, text)
    with_decimals = _THOUSANDS_OR_DECIMALS.sub(_with_decimal_point, text)
    raise ConfigError(
        f"{setting}={text}: the point in {ambiguous[0]} may separate thousands or decimals: give "
        f"{setting}={with_thousands} or {setting}={with_decimals}"
    )


def _without_point(number: re.Match[str]) -> str:
    """Return a number such as 20.000 in a text without its point."""
    return number[0].replace(".", "")


def _with_decimal_point(number: re.Match[str]) -> str:
    """Return a number such as 20.000 in a text as ``decimal_point`` does."""
    return decimal_point(number[0])


def decimal_point(number: str) -> str:
    """Return a number as a range on a command line takes it, its point a decimal point.

    Args:
        number: such as 20.000 (then 20.0) or 1.125 (then 1.1250); any other number is returned
            unchanged.
    """
    if not _THOUSANDS_OR_DECIMALS.fullmatch(number):
        return number
    shortest = str(float(number))
    if _THOUSANDS_OR_DECIMALS.fullmatch(shortest):
        return f"{shortest}0"
    return shortest


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
