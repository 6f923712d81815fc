"""The data files of a training run: still where they were, with the bytes that were trained on?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agt.manifest import HASH, Broken
from agt_cli.report.checks import Findings
from agt_cli.verify.findings import Subject
from agt_cli.verify.reading import file_sha256
from agt_cli.verify.record import Record


def data_subjects(record: Record) -> tuple[Subject, ...]:
    """The data of a training run: the files that it named, where they lay then."""
    files: Mapping[str, Any] = record.environment.get("data_files") or {}
    subjects = [_file(key, entry) for key, entry in files.items() if key != "data_dir"]
    if not subjects:
        target = str((record.config.get("dataset") or {}).get("_target_"))
        findings = Findings()
        findings.unchecked("data", "no file of the owner's, and nothing of it was made anew")
        digest = record.environment.get("data_digest")
        subjects = [Subject(f"data {digest}, which {target} makes or fetches", tuple(findings.checks))]
    return tuple(subjects)


def _file(key: str, entry: Mapping[str, Any]) -> Subject:
    findings, path = Findings(), Path(str(entry.get("path")))
    name, recorded = f"dataset.{key} {path}", str(entry.get("sha256", ""))
    with findings.looking("data"):
        if path.is_dir():
            findings.unchecked("data", f"{name}: a folder, of whose files the record has no hashes")
        elif not HASH.fullmatch(recorded):
            findings.unchecked("data", f"{name}: the record has no hash of it")
        else:
            _compare_file(path, name, recorded, findings)
    return Subject(name, tuple(findings.checks))


def _compare_file(path: Path, name: str, recorded: str, findings: Findings) -> None:
    try:
        digest = file_sha256(path)
    except Broken as error:
        findings.unchecked("data", f"{name}: {error}")
        return
    if digest == recorded:
        findings.ok("data", f"{name}: the bytes that were trained on (sha256 {digest[:16]}...)")
    else:
        findings.note("data", f"{name}: CHANGED since (sha256 {digest[:16]}..., then {recorded[:16]}...): another file now")
