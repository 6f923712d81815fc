"""YAML of records, read as if anybody may have written it."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

from agt.store.json_text import MAX_DEPTH, MAX_DIGITS
from agt.store.reading import Broken

MAX_YAML_BYTES = 2**20  # its reader is slow
_LONG_NUMBER = re.compile(rf"[-+.:_\d]{{{MAX_DIGITS},}}")


def parse_yaml(content: bytes, name: str) -> dict[str, Any]:
    r"""A mapping from YAML. Interpolations stay text, as nothing of this machine belongs into them;
    ``\${`` is ``${``.

    Raises:
        Broken: it is none, or holds what a record's never does: an alias, an object, a key twice.
    """
    yaml, loader = _yaml_loader()
    try:
        if len(content) > MAX_YAML_BYTES:
            raise ValueError(f"of {len(content):,} bytes")
        text = content.decode()
        _check_events(yaml.parse(text, loader))
        value = yaml.load(text, loader)
    except (ValueError, TypeError, OverflowError, RecursionError, yaml.YAMLError) as error:
        raise Broken(f"{name} cannot be read ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(value, dict):
        raise Broken(f"{name} does not contain a mapping (key: value)")
    return {str(key): unescaped(node) for key, node in value.items()}


def unescaped(node: Any) -> Any:
    """A configuration as it was before ``to_yaml`` kept its text from being an interpolation."""
    if isinstance(node, str):
        return (
            re.sub(r"(\\*)\\\$\{", lambda start: start[1][: len(start[1]) // 2] + "${", node)
            if "${" in node
            else node
        )
    if isinstance(node, dict):
        return {key: unescaped(value) for key, value in node.items()}
    return [unescaped(value) for value in node] if isinstance(node, list) else node


@cache
def _yaml_loader() -> tuple[Any, Any]:
    """(the yaml package, a safe loader that refuses a key twice); loaded when first needed."""
    import yaml  # type: ignore[import-untyped]

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc, valid-type]
        yaml_implicit_resolvers: ClassVar = {  # dates stay text, as OmegaConf reads them
            first: [(tag, rule) for tag, rule in rules if not tag.endswith(":timestamp")]
            for first, rules in base.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            value: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(value) < len(node.value):
                keys = [key.value for key, _ in node.value]
                repeated = next((key for key in keys if keys.count(key) > 1), "")
                raise yaml.YAMLError(f"the key {repeated!r} occurs twice")
            return value

    return yaml, Loader


def _check_events(events: Iterator[Any]) -> None:
    """Raise ValueError at what no record has, before a reader makes anything of it."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if kind == "AliasEvent":
            raise ValueError("the file contains a YAML alias (*name), which agt never writes")
        if getattr(event, "tag", None) or _LONG_NUMBER.fullmatch(getattr(event, "value", "")):
            raise ValueError(
                "the file contains a YAML tag (!name) or a number with very many digits, "
                "which agt never writes"
            )
        if depth > MAX_DEPTH:
            raise ValueError("nested beyond measure")
