"""JSON, written for people to read, and read as if anybody may have written it."""

import json
import math
from typing import Any

from agt.store.reading import Broken

MAX_DEPTH = 100
"""The largest depth of nested JSON and YAML."""
MAX_DIGITS = 40
"""The largest number of digits of a whole number."""
Metrics = dict[str, float | int | str]
"""Metrics, or public constants of a model, by name, as a file in JSON has them."""


def as_json(value: object) -> bytes:
    """Return JSON for people to read, with an entry a line and a newline at the end.

    What JSON has no form for becomes text.
    """
    return (json.dumps(value, indent=2, default=str) + "\n").encode()


def parse_json(content: bytes, name: str) -> Any:
    """Return the value of a JSON text.

    Args:
        content: the text.
        name: the name of the file in messages.

    Raises:
        Broken: it is not JSON, has a key twice, a number that is NaN, infinite or very long, or is
            nested deeper than ``MAX_DEPTH``.
    """
    try:
        value = json.loads(
            content.decode(),
            object_pairs_hook=_object_with_unique_keys,
            parse_constant=_finite_float,
            parse_float=_finite_float,
            parse_int=_bounded_int,
        )
        _check_depth(value)
    except RecursionError:
        raise Broken(f"{name} cannot be read, because its values are nested too deeply") from None
    except ValueError as error:
        raise Broken(f"{name} cannot be read as JSON ({error})") from None
    return value


def parse_object(content: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object that a text contains.

    Args:
        content: the text.
        name: the name of the file in messages.

    Raises:
        Broken: it is not valid JSON (see ``parse_json``), or another value than an object.
    """
    value = parse_json(content, name)
    if not isinstance(value, dict):
        raise Broken(f"{name} does not contain a JSON object")
    return value


def _object_with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object from its (key, value) pairs.

    Raises:
        ValueError: a key occurs twice.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(
            f"the key {repeated!r} occurs twice, so two programs could read different values"
        )
    return value


def _check_depth(value: Any) -> None:
    """Raise RecursionError if objects and lists are nested deeper than ``MAX_DEPTH``."""
    level = [value]
    for _ in range(MAX_DEPTH):
        containers = [node for node in level if isinstance(node, dict | list)]
        if not containers:
            return
        level = []
        for node in containers:
            children = node.values() if isinstance(node, dict) else node
            level.extend(children)
    raise RecursionError


def _finite_float(digits: str) -> float:
    """Return the number that digits, ``NaN`` or ``Infinity`` stand for.

    Raises:
        ValueError: it is NaN, infinite, or too large for a float.
    """
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is NaN, infinite, or too large for a float")
    return value


def _bounded_int(digits: str) -> int:
    """Return a whole number from its digits.

    Raises:
        ValueError: there are more than ``MAX_DIGITS`` digits, which would take long to read.
    """
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number has more than {MAX_DIGITS} digits")
    return int(digits)
