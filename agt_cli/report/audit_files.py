"""What audits leave beside other records, by its names: for whoever reads or removes it and
audits nothing.
"""

import shutil
from pathlib import Path

from agt_cli.report.finished import Run

SHADOWS = "shadows"  # below output_dir: where shadow models are kept
# in a record's folder: copies of private data that an audit works on
SCRATCH = (".stage-*", ".copies-*")


def remove_copies(audits: Path) -> None:
    """Remove the copies of private data that audits below a folder left there, whose process was
    killed outright.
    """
    for folder in audits.iterdir():
        if Run.at(folder).is_alive is False:  # where nobody can tell, it stays
            for path in [path for name in SCRATCH for path in folder.glob(name)]:
                shutil.rmtree(path, ignore_errors=True)
