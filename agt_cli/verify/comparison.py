"""Compare values of a file with those that follow from other files."""

import math
from collections.abc import Mapping
from typing import Any

from agt.store.json_text import as_json
from agt.store.reading import Broken

SAME = 1e-6
"""The relative difference by which special functions of another machine may differ."""
TINY = 1e-300
"""The absolute difference that is ignored, near the smallest doubles."""


def first_difference(recorded: Any, derived: Any, value_path: str = "") -> str:
    """Return a sentence on the first difference between two JSON values; empty: they are equal.

    Floats are equal up to the relative difference ``SAME``.

    Args:
        recorded: the value in a file.
        derived: the value that it should be.
        value_path: the path of the value within the file, such as "totals[0].eps".
    """
    both_lists = isinstance(recorded, list | tuple) and isinstance(derived, list | tuple)
    if isinstance(recorded, dict) and isinstance(derived, dict):
        for key in {**derived, **recorded}:
            entry_path = f"{value_path}.{key}" if value_path else key
            difference = first_difference(recorded.get(key), derived.get(key), entry_path)
            if difference:
                return difference
        return ""
    if both_lists and len(recorded) == len(derived):
        for index, (recorded_item, derived_item) in enumerate(zip(recorded, derived, strict=True)):
            difference = first_difference(recorded_item, derived_item, f"{value_path}[{index}]")
            if difference:
                return difference
        return ""
    if type(recorded) is type(derived) is float:
        same = math.isclose(recorded, derived, rel_tol=SAME, abs_tol=TINY)
    else:
        # True equals 1 in Python, but not in JSON
        same = recorded == derived and isinstance(recorded, bool) == isinstance(derived, bool)
    return "" if same else f"{value_path} is recorded as {recorded!r}, but should be {derived!r}"


def mismatch(name: str, source: str, difference: str) -> Broken:
    """Return the error to raise for a file that does not match what its values follow from.

    Args:
        name: the file, or a part of it.
        source: what its values follow from.
        difference: a sentence that says what differs.
    """
    return Broken(
        f"{name} does not match {source}, so one of the two was altered or damaged after agt "
        f"wrote it: {difference}"
    )


def check_match(name: str, recorded: Any, source: str, derived: Any, value_path: str = "") -> None:
    """Raise Broken unless the values of a file are those that follow from their source.

    Args:
        name: the file, or a part of it, for the message.
        recorded: the values in the file.
        source: what the values follow from, for the message.
        derived: the values that follow.
        value_path: the path of the values within the file.
    """
    if difference := first_difference(recorded, derived, value_path):
        raise mismatch(name, source, difference)


def check_entries(
    name: str, recorded: Mapping[Any, Any], source: str, derived: Mapping[str, Any]
) -> None:
    """Raise Broken unless a file has the entries that follow from their source.

    Further entries of the file are not compared. Arguments as of ``check_match``.
    """
    check_match(name, {key: recorded.get(key) for key in derived}, source, derived)


def rendered_alike(recorded: object, made: object) -> bool:
    """Return whether recorded sentences equal, as a whole, those that fields give.

    Any JSON value of text may be compared. Sentences are never parsed.
    """
    return as_json(recorded) == as_json(made)
