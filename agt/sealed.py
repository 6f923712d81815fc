"""JSON files that carry a checksum over their own content, so that a damaged or edited one is told from a whole one.

A checksum is kept against accidents and careless edits. It is no signature: whoever rewrites a file and its checksum
together is not found out.
"""

import json
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

_KEY = "sha256"


def seal(content: Mapping[str, Any]) -> bytes:
    """The one file that holds ``content``: a JSON object with its checksum last. What JSON has no form for becomes text."""
    plain = json.loads(json.dumps(dict(content), default=str))
    checksum = sha256(json.dumps(plain).encode()).hexdigest()
    return (json.dumps({**plain, _KEY: checksum}, indent=2) + "\n").encode()


def unseal(raw: bytes) -> dict[str, Any]:
    """The content of a file that ``seal`` made.

    Raises:
        ValueError: it is not such a file, to the last byte.
    """
    content = json.loads(raw)
    if not isinstance(content, dict) or content.pop(_KEY, None) is None:
        raise ValueError("it holds no checksum of itself")
    if seal(content) != raw:
        raise ValueError("its content is not what its own checksum says")
    return content


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read in pieces, as hexadecimal digits."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
