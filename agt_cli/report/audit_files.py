"""The names of what audits write next to other records, for commands that read or remove it."""

import shutil
from pathlib import Path

from agt_cli.report.finished import Run

SHADOWS = "shadows"  # the folder of shadow models in output_dir
SCRATCH = (".stage-*", ".copies-*")
"""Folders in a record with copies of private data that an audit works on."""


def remove_copies(audits: Path) -> None:
    """Remove the copies of private data that killed audits left in their records.

    Args:
        audits: the folder of the audits' records.
    """
    for folder in audits.iterdir():
        if Run.at(folder).is_alive is False:  # a process that may still run may need them
            for path in [path for name in SCRATCH for path in folder.glob(name)]:
                shutil.rmtree(path, ignore_errors=True)
