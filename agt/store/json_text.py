"""JSON, written for people to read, and read as if anybody may have written it."""

import json
import math
from typing import Any

from agt.store.reading import Broken

MAX_DEPTH = 100  # of nested JSON and YAML
MAX_DIGITS = 40  # of a whole number


def as_json(value: object) -> bytes:
    """JSON for people to read."""
    return (json.dumps(value, indent=2, default=str) + "\n").encode()


def parse_json(content: bytes, name: str) -> Any:
    """Any JSON.

    Args:
        name: of the file, for messages.

    Raises:
        Broken: it is none, has a key twice or a number that is none, or is nested beyond measure.
    """
    try:
        value = json.loads(
            content.decode(),
            object_pairs_hook=_unique_keys,
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_bounded_int,
        )
        _check_depth(value)
    except RecursionError:
        raise Broken(f"{name} cannot be read, because its values are nested too deeply") from None
    except ValueError as error:
        raise Broken(f"{name} cannot be read as JSON ({error})") from None
    return value


def parse_object(content: bytes, name: str) -> dict[str, Any]:
    """A JSON object. Raises Broken as ``parse_json``."""
    value = parse_json(content, name)
    if not isinstance(value, dict):
        raise Broken(f"{name} does not contain a JSON object")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(
            f"the key {repeated!r} occurs twice, so two programs could read different values"
        )
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        nested = [
            node.values() if isinstance(node, dict) else node
            for node in level
            if isinstance(node, dict | list)
        ]
        if not nested:
            return
        level = [part for parts in nested for part in parts]
    raise RecursionError


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is NaN, infinite, or too large for a float")
    return value


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number has more than {MAX_DIGITS} digits")
    return int(digits)
