"""Nested settings by dotted keys, such as ``training.lr``."""

from collections.abc import Mapping
from typing import Any


def flatten_keys(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one mapping with dotted keys.

    For example ``{"training": {"lr": 1}}`` becomes ``{"training.lr": 1}``. An empty mapping stays a
    value.

    Args:
        node: the settings.
        prefix: the beginning of every key, with its dot; empty: none.
    """
    dotted: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            dotted |= flatten_keys(value, f"{prefix}{key}.")
        else:
            dotted[f"{prefix}{key}"] = value
    return dotted
