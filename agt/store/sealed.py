"""JSON objects with a checksum of their own content.

The checksum is kept against accidents and careless edits. It is no signature: whoever rewrites the
content and its checksum together is not found out.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

_SEALS = {False: "sha256", True: "seal"}


def seal(content: Mapping[str, Any], canonical: bool = False) -> bytes:
    """The one file that holds ``content``: a JSON object and its checksum. What JSON has no form
    for becomes text.

    Both kinds are on users' disks, and are written as they always were.

    Args:
        canonical: keys are sorted, and ``seal`` is the checksum of the lines without it; False:
            they keep their own order, and ``sha256``, the last, is the checksum of one line of
            JSON.
    """
    plain = json.loads(json.dumps(dict(content), default=str))
    hashed = _lines(plain, canonical) if canonical else json.dumps(plain).encode()
    return _lines({**plain, _SEALS[canonical]: sha256(hashed).hexdigest()}, canonical)


def unseal(raw: bytes, canonical: bool = False) -> dict[str, Any]:
    """The content of a file that ``seal`` made, without its checksum.

    Raises:
        ValueError: it is not such a file, to the last byte.
    """
    content = json.loads(raw)
    if not isinstance(content, dict) or content.pop(_SEALS[canonical], None) is None:
        raise ValueError("the file does not contain a checksum of its content")
    if seal(content, canonical) != raw:
        raise ValueError("the file's content does not match its checksum")
    return content


def _lines(content: Mapping[str, Any], canonical: bool) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=canonical) + "\n").encode()
