"""Compare the data files of a training run with the hashes that they had at training."""

from hashlib import file_digest
from pathlib import Path
from typing import Any

from agt.store.manifest import HASH
from agt.store.reading import Broken, open_plain
from agt_cli.report.markdown import Findings
from agt_cli.unlearn.log import REQUEST_LOG_FILE
from agt_cli.verify.folders import Record
from agt_cli.verify.items import VerifiedItem


def data_items(record: Record) -> tuple[VerifiedItem, ...]:
    """Check the data files of a training run at their recorded paths, and return the findings.

    For data that are not in files, there is one item which says that they were not checked.
    """
    files = {
        key: entry
        for key, entry in (record.environment.get("data_files") or {}).items()
        if key != "data_dir"
    }
    if files:
        erased = record.holds(REQUEST_LOG_FILE)
        return tuple(
            _compare_data_file(f"dataset.{key} {entry.get('path')}", entry, erased)
            for key, entry in files.items()
        )
    findings = Findings()
    target = (record.config.get("dataset") or {}).get("_target_")
    findings.unchecked(
        "data",
        "the data were not checked, because they are not in a file: they are generated or "
        "downloaded, which `agt verify` does not do",
    )
    digest = record.environment.get("data_digest")
    name = f"data {digest}, which {target} generates or downloads"
    return (VerifiedItem(name, findings.checks),)


def _compare_data_file(name: str, entry: dict[str, Any], erased: bool) -> VerifiedItem:
    """Compare a data file with the hash that it had at training, and return the findings.

    A file that changed is a note, and not a problem of the run.

    Args:
        name: the setting that named the file, and its path.
        entry: the file's entry in env.json: path and sha256.
        erased: whether the run has requests for erasure, after which its owner deletes rows.
    """
    findings = Findings()
    path = Path(str(entry.get("path")))
    recorded = str(entry.get("sha256", ""))
    try:
        if path.is_dir() or not HASH.fullmatch(recorded):
            raise Broken(
                "the data file was not compared, because env.json does not contain the hash "
                "that the file had at training"
            )
        with open_plain(path) as file:
            digest = file_digest(file, "sha256").hexdigest()
        if digest == recorded:
            findings.ok(
                "data",
                f"{name}: the file is the one that was trained on (sha256 {digest[:16]}...)",
            )
        else:
            changed = (
                f"{name}: the file CHANGED since training (sha256 {digest[:16]}... now, "
                f"{recorded[:16]}... at training)"
            )
            if erased:
                changed += (
                    ". This is expected after an erasure, when rows were deleted from the file; "
                    "whether anything else changed was not checked"
                )
            findings.note("data", changed)
    except (Broken, ValueError) as error:
        findings.unchecked("data", f"{name}: {error}")
    return VerifiedItem(name, findings.checks)
