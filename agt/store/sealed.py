"""JSON objects with a checksum of their own content.

The checksum detects accidents and careless edits. It is no signature: if the content and its
checksum are rewritten together, nothing shows it.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

_CHECKSUM_KEYS = {False: "sha256", True: "seal"}
"""Canonical or not -> the key of the checksum."""


def seal(content: Mapping[str, Any], canonical: bool = False) -> bytes:
    """Return the bytes of a file with ``content`` and its checksum, as a JSON object.

    There are two forms. Users have files of both, so neither may change.

    Args:
        content: the object. Values that JSON does not have become text.
        canonical: keys are sorted, and ``seal`` is the checksum of the lines without it. False:
            keys keep their own order, and ``sha256``, the last one, is the checksum of one line of
            JSON.
    """
    plain = json.loads(json.dumps(dict(content), default=str))
    hashed = _indented_lines(plain, canonical) if canonical else json.dumps(plain).encode()
    checksum = sha256(hashed).hexdigest()
    return _indented_lines({**plain, _CHECKSUM_KEYS[canonical]: checksum}, canonical)


def unseal(raw: bytes, canonical: bool = False) -> dict[str, Any]:
    """Return the content of a file that ``seal`` made, without its checksum.

    Args:
        raw: the bytes of the file.
        canonical: True: the file has sorted keys, and the checksum as ``seal``; False: keys in
            their own order, and the checksum as ``sha256`` at the end.

    Raises:
        ValueError: these are not, to the last byte, what ``seal`` makes of the content.
    """
    content = json.loads(raw)
    if not isinstance(content, dict) or content.pop(_CHECKSUM_KEYS[canonical], None) is None:
        raise ValueError("the file does not contain a checksum of its content")
    if seal(content, canonical) != raw:
        raise ValueError("the file's content does not match its checksum")
    return content


def _indented_lines(content: Mapping[str, Any], sort_keys: bool) -> bytes:
    """Return JSON with an entry a line and a newline at the end."""
    return (json.dumps(content, indent=2, sort_keys=sort_keys) + "\n").encode()
