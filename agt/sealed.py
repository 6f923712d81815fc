"""JSON files that carry a checksum over their own content, so that a damaged or edited one is told from a whole one.

A checksum is kept against accidents and careless edits. It is no signature: whoever rewrites a file and its checksum
together is not found out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Form:
    """How a kind of sealed file is laid out; both kinds are on users' disks, and are written as they always were.

    Attributes:
        key: the entry that holds the checksum.
        sort: keys are written in sorted order; False: in their own, the checksum last.
        hash_lines: the checksum is of the lines as the file would have them without it; False: of one line of JSON.
    """

    key: str = "sha256"
    sort: bool = False
    hash_lines: bool = False

    def lines(self, content: Mapping[str, Any]) -> bytes:
        """The text of a file: two spaces a level, a newline at the end."""
        return (json.dumps(content, indent=2, sort_keys=self.sort) + "\n").encode()


def seal(content: Mapping[str, Any], form: Form = Form()) -> bytes:
    """The one file that holds ``content``: a JSON object and its checksum. What JSON has no form for becomes text."""
    plain = json.loads(json.dumps(dict(content), default=str))
    checksum = sha256(form.lines(plain) if form.hash_lines else json.dumps(plain).encode()).hexdigest()
    return form.lines({**plain, form.key: checksum})


def unseal(raw: bytes, form: Form = Form()) -> dict[str, Any]:
    """The content of a file that ``seal`` made, without its checksum.

    Raises:
        ValueError: it is not such a file, to the last byte.
    """
    content = json.loads(raw)
    if not isinstance(content, dict) or content.pop(form.key, None) is None:
        raise ValueError("it holds no checksum of itself")
    if seal(content, form) != raw:
        raise ValueError("its content is not what its own checksum says")
    return content


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read in pieces, as hexadecimal digits."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
