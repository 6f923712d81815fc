"""Run folders that tests spoil on purpose."""

import json
from pathlib import Path

from agt.disk import write_atomic
from agt.manifest import NAME, Manifest, sha256


def reseal(folder: Path) -> None:
    """Write the manifest again for what now lies in the folder: what lies behind the manifest must be checked too."""
    command = json.loads((folder / NAME).read_text())["command"]
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / NAME)
    files = {path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() for path in paths}
    write_atomic(folder / NAME, Manifest(command, files).content)
