"""Values as JSON files of a versioned form, which programs of other people read: claims, accounts of erasures.

A form is a class of ``agt.settings.schema`` whose first entry, ``schema``, is its version. What is None is left out.
"""

import json
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from agt.errors import ConfigError
from agt.settings import validate

T = TypeVar("T")


def plain_of(value: Any) -> dict[str, Any]:
    """JSON values; what is None is left out."""
    node: dict[str, Any] = _adapter(value.__class__).dump_python(value, mode="json", exclude_none=True)
    return node


def content_of(value: Any) -> bytes:
    """The file: the same value gives the same bytes."""
    return (json.dumps(plain_of(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def read_document(cls: type[T], content: bytes, version: str, name: str) -> T:
    """What ``content_of`` made.

    Args:
        version: that this program reads.
        name: of such a document, for messages: ``a claim``.

    Raises:
        ConfigError: another version, or no such document: no JSON, NaN or infinity, an entry unknown, missing or out of
            range.
    """
    try:
        node = json.loads(content, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: cannot be read ({error})") from None
    given = node.get("schema") if isinstance(node, dict) else None
    if given != version:
        raise ConfigError(f"{name} of version {given!r}; this agt reads {version}")
    value = validate(cls, node, name.split()[-1])
    if plain_of(value) != node:
        raise ConfigError(f"{name}: an entry is not as agt writes it (a number as text, or null)")
    return value


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number")
