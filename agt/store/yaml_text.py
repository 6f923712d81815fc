"""YAML of records, read as if anybody may have written it."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

from agt.store.json_text import MAX_DEPTH, MAX_DIGITS
from agt.store.reading import Broken

MAX_YAML_BYTES = 2**20
"""The largest size of a YAML text, which is slow to read."""
_LONG_NUMBER = re.compile(rf"[-+.:_\d]{{{MAX_DIGITS},}}")
_ESCAPED_INTERPOLATION = re.compile(r"(\\*)\\\$\{")


def parse_yaml(content: bytes, name: str) -> dict[str, Any]:
    r"""Return the mapping of a YAML text.

    Interpolations such as ``${oc.env:HOME}`` stay text, because a record must not read anything of
    this machine. ``\${`` becomes ``${``.

    Args:
        content: the text.
        name: the name of the file in messages.

    Raises:
        Broken: it is not a mapping in YAML; or has what agt never writes: an alias, a tag, a very
            long number, a key twice.
    """
    yaml, loader = _yaml_loader()
    try:
        if len(content) > MAX_YAML_BYTES:
            raise ValueError(f"of {len(content):,} bytes")
        text = content.decode()
        _check_events(yaml.parse(text, loader))
        value = yaml.load(text, loader)
    except (ValueError, TypeError, OverflowError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise Broken(f"{name} cannot be read ({reason})") from None
    if not isinstance(value, dict):
        raise Broken(f"{name} does not contain a mapping (key: value)")
    return {str(key): unescaped(node) for key, node in value.items()}


def unescaped(node: Any) -> Any:
    r"""Return a configuration as it was before ``to_yaml`` escaped its interpolations.

    In all of its text, ``\${`` becomes ``${``, and of 2n backslashes before that, n stay.

    Args:
        node: a value, list or mapping.
    """
    if isinstance(node, str):
        if "${" not in node:
            return node
        return _ESCAPED_INTERPOLATION.sub(_without_escape, node)
    if isinstance(node, dict):
        return {key: unescaped(value) for key, value in node.items()}
    if isinstance(node, list):
        return [unescaped(value) for value in node]
    return node


def _without_escape(match: re.Match[str]) -> str:
    """Return ``${`` with half of the backslashes that stood before the escaped one."""
    backslashes = match[1]
    return backslashes[: len(backslashes) // 2] + "${"


@cache
def _yaml_loader() -> tuple[Any, Any]:
    """Return the yaml package, and a safe loader class that refuses a key that occurs twice.

    The package is loaded when it is first needed. Dates stay text, as OmegaConf reads them.
    """
    import yaml  # type: ignore[import-untyped]

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rules_without_dates = {}
    for first_character, rules in base.yaml_implicit_resolvers.items():
        rules_without_dates[first_character] = [
            (tag, rule) for tag, rule in rules if not tag.endswith(":timestamp")
        ]

    class Loader(base):  # type: ignore[misc, valid-type]
        yaml_implicit_resolvers: ClassVar = rules_without_dates

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            """Return a mapping; raise YAMLError if a key is repeated, which PyYAML accepts."""
            value: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(value) < len(node.value):
                keys = [key.value for key, _ in node.value]
                repeated = next((key for key in keys if keys.count(key) > 1), "")
                raise yaml.YAMLError(f"the key {repeated!r} occurs twice")
            return value

    return yaml, Loader


def _check_events(events: Iterator[Any]) -> None:
    """Refuse a YAML text with features that agt never writes, before objects are made of it.

    Args:
        events: the events of PyYAML's parser.

    Raises:
        ValueError: there is an alias, a tag, a number with very many digits, or a depth beyond
            ``MAX_DEPTH``.
    """
    depth = 0
    for event in events:
        kind = type(event).__name__
        if kind.endswith("StartEvent"):
            depth += 1
        elif kind.endswith("EndEvent"):
            depth -= 1
        if kind == "AliasEvent":
            raise ValueError("the file contains a YAML alias (*name), which agt never writes")
        has_tag = bool(getattr(event, "tag", None))
        if has_tag or _LONG_NUMBER.fullmatch(getattr(event, "value", "")):
            raise ValueError(
                "the file contains a YAML tag (!name) or a number with very many digits, "
                "which agt never writes"
            )
        if depth > MAX_DEPTH:
            raise ValueError("nested beyond measure")
