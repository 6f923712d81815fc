"""Nested settings by dotted keys, such as ``training.lr``."""

from collections.abc import Mapping
from typing import Any


def flatten_keys(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted keys."""
    dotted: dict[str, Any] = {}
    for key, value in node.items():
        inside = isinstance(value, Mapping) and value
        dotted |= flatten_keys(value, f"{prefix}{key}.") if inside else {f"{prefix}{key}": value}
    return dotted
