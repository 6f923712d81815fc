"""Run folders that tests spoil on purpose."""

import json
from pathlib import Path

from agt.store import MANIFEST_FILE, Manifest, sha256, write_atomic


def reseal(folder: Path) -> None:
    """Write the manifest again for what now lies in the folder: what lies behind the manifest must be checked too."""
    command = json.loads((folder / MANIFEST_FILE).read_text())["command"]
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST_FILE)
    files = {path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() for path in paths}
    write_atomic(folder / MANIFEST_FILE, Manifest(command, files).content)
