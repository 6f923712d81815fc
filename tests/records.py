"""Run folders that tests spoil on purpose."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from agt.store.atomic import write_atomic
from agt.store.json_text import as_json
from agt.store.manifest import MANIFEST_FILE, Manifest, seal_manifest, unseal_manifest
from agt_cli.report.finished import SPENT_FILE


def reseal(folder: Path) -> None:
    """Write the manifest again for what now lies in the folder: what lies behind the manifest
    must be checked too.
    """
    command = json.loads((folder / MANIFEST_FILE).read_text())["command"]
    paths = sorted(
        path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST_FILE
    )
    files = {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() for path in paths
    }
    write_atomic(folder / MANIFEST_FILE, Manifest(command, files).content)


def name_training_run(folder: Path, place: str) -> None:
    """Let a record say that its training run lies somewhere else, and seal it again."""
    environment = json.loads((folder / "env.json").read_text())
    (folder / "env.json").write_bytes(as_json(environment | {"trained_run": place}))
    if (folder / SPENT_FILE).exists():
        spent = unseal_manifest((folder / SPENT_FILE).read_bytes(), SPENT_FILE)
        (folder / SPENT_FILE).write_bytes(seal_manifest({**spent, "trained_run": place}))
    reseal(folder)


MARKS_ITSELF = """from pathlib import Path
Path(__file__).with_name("imported").touch()
def __getattr__(name):
    raise AttributeError(name)
"""
"""A module that leaves a file beside it where it is imported, and has nothing else."""


def _naming(node: Any, target: str) -> Any:
    """The same JSON value, in which every ``_target_`` is ``target``."""
    if isinstance(node, dict):
        added = {"_target_": target} if "_target_" in node else {}
        return {key: _naming(value, target) for key, value in node.items()} | added
    return [_naming(value, target) for value in node] if isinstance(node, list) else node


def name_everywhere(folder: Path, target: str) -> None:
    """Make every ``_target_`` of every record below a folder this name, and seal each record
    again.
    """
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".yaml") and path.name != "manifest.json":
            load, dump = (
                (json.loads, json.dumps)
                if path.suffix == ".json"
                else (yaml.safe_load, yaml.safe_dump)
            )
            node = load(path.read_text())
            if _naming(node, target) != node:
                path.write_text(dump(_naming(node, target)))
    for manifest in sorted(folder.rglob("manifest.json"), reverse=True):
        reseal(manifest.parent)
