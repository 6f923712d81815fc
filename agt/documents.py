"""Documents for other people's programs (claims, accounts of erasures, audits), as JSON files.

A form is a class of ``agt.settings.schema`` whose first entry, ``schema``, is its version. Entries
that are None are left out of the file.

Forms that only earlier versions wrote are not read, most of which hold sentences instead of
fields: ``check_form`` refuses them, in these documents and in every other file of a run or a model.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from agt.errors import ConfigError, Superseded, altered
from agt.settings import plain_of, validate
from agt.store.json_text import parse_json
from agt.store.reading import Broken

T = TypeVar("T")

FACTS_AS_TEXT = "facts as text"
"""The form of conditions, models and promises whose facts are sentences."""
SPENT_AS_TEXT = "totals as text"
"""The form of spent.json whose guarantee and totals are sentences."""
LAST_WRITERS = {
    "agt.audit/1": "0.5.0",
    "agt.claim/1": "0.7.0",
    "agt.claim/2": "0.8.0",
    "agt.erasure/1": "0.7.0",
    "agt.erasure/2": "0.8.0",
    "agt.erasure/3": "0.14.0",
    FACTS_AS_TEXT: "0.8.0",
    SPENT_AS_TEXT: "0.7.0",
}
"""Each form that is no longer read -> the last version of agt that wrote it."""
LAST_READER = "0.18.0"
"""The last version of agt that reads all of these forms."""
LAST_READER_COMMIT = "9913b034"


def content_of(value: Any) -> bytes:
    """Return the bytes of a document's file, which are equal for equal values."""
    text = json.dumps(plain_of(value), indent=2, allow_nan=False, ensure_ascii=False)
    return f"{text}\n".encode()


def check_form(form: object, name: str, remedy: str = "") -> None:
    """Raise Superseded if only earlier versions of agt wrote files of a form.

    Args:
        form: the form of the file, for example the entry ``schema`` of a document.
        name: the name of the file in the message, for example "a claim".
        remedy: a clause that says how to get such a file in the present form, for example "type agt
            audit again"; empty: it cannot be made again.
    """
    last_writer = LAST_WRITERS.get(str(form))
    if last_writer is None:
        return
    again = f"{remedy}, or " if remedy else ""
    raise Superseded(
        f"{name} has a form that agt wrote up to version {last_writer} ({form}), and that this "
        f"version does not read: {again}read it with version {LAST_READER} (in a clone of agt's "
        f"repository, type git checkout {LAST_READER_COMMIT} and pip install .)"
    )


def read_document(
    cls: type[T],
    content: bytes,
    version: str,
    name: str,
    key: str,
    remedy: str = "",
) -> T:
    """Read a document that ``content_of`` wrote.

    Args:
        cls: the class of settings that is its form.
        content: the bytes of the file.
        version: the version of the form that is read.
        name: the name of such a document in messages, for example "a claim".
        key: the key that messages put before the names of its entries, for example "claim".
        remedy: a clause that says how to get such a document in the present form, as ``check_form``
            needs it.

    Raises:
        Superseded: only earlier versions of agt wrote and read the document's form.
        ConfigError: the content has another version, is no JSON, or has NaN or infinity; or an
            entry is unknown, missing, out of range, or not written as ``content_of`` writes it.
    """
    try:
        node = parse_json(content, name)
    except Broken as error:
        raise ConfigError(str(error)) from None
    if not isinstance(node, dict):
        node = {}
    check_form(node.get("schema"), name, remedy)
    if node.get("schema") != version:
        raise ConfigError(
            f"{name} has version {node.get('schema')!r}, but this version of agt reads {version}: "
            "use the version of agt that wrote the file"
        )
    value = validate(cls, node, key)
    difference = _difference(node, plain_of(value))
    if difference:
        raise ConfigError(altered(name, difference))
    return value


def _difference(node: Any, expected: Any, path: str = "") -> str:
    """Return where a JSON value first differs from the one that agt would have written.

    true differs from 1, and 3.0 from 3; but a whole number may be written for a float.

    Args:
        node: the value in the file.
        expected: the value that agt would have written.
        path: the entry of the document that is compared, such as ".total.eps".

    Returns:
        A text with both values, for a message; empty: the values are equal.
    """
    if isinstance(node, Mapping) and isinstance(expected, Mapping):
        return _difference_of_mappings(node, expected, path)
    if isinstance(node, list | tuple) and isinstance(expected, list | tuple):
        if len(node) != len(expected):
            return _unequal(node, expected, path)
        for index, (item, expected_item) in enumerate(zip(node, expected, strict=True)):
            if difference := _difference(item, expected_item, f"{path}[{index}]"):
                return difference
        return ""
    has_other_type = isinstance(node, bool) != isinstance(expected, bool)
    is_float_of_integer = isinstance(expected, int) and isinstance(node, float)
    if has_other_type or is_float_of_integer or node != expected:
        return _unequal(node, expected, path)
    return ""


def _difference_of_mappings(node: Mapping[str, Any], expected: Mapping[str, Any], path: str) -> str:
    """Return where two mappings first differ (see ``_difference``), an entry of only one first."""
    for key in {**expected, **node}:
        if (key in expected) != (key in node):
            return f"{path}.{key} = {node.get(key)!r}".removeprefix(".")
    for key, expected_value in expected.items():
        if difference := _difference(node[key], expected_value, f"{path}.{key}"):
            return difference
    return ""


def _unequal(node: Any, expected: Any, path: str) -> str:
    """Return a text that names an entry, its value in the file, and the one that agt would write.

    Args:
        node: the value in the file.
        expected: the value that agt would have written.
        path: the entry of the document, such as ".total.eps".
    """
    entry = path.removeprefix(".")
    return f"the entry {entry} is {node!r}, but agt would have written {expected!r}"
