"""Find the trainings below a folder, finished or not, by the files that they write.

A finished run has an index of its records, except in old versions; an unfinished one has a
checkpoint, parts of its model, or only a process that works in it.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from agt.store.manifest import MANIFEST_FILE, Manifest
from agt.store.reading import Broken
from agt.training.checkpoint import RUN_FILE
from agt_cli.report.finished import CHECKPOINTS, COMMIT_FOLDER, NEXT_STATE_FOLDER, Run
from agt_cli.report.opening import STATUS_FILE
from agt_cli.unlearn.record_index import RECORD_INDEX_FILE

TrainingKind = Literal["indexed", "index_missing", "training_unfinished", "folder_not_listed"]
"""What a folder is: a run with an index of its records; a model of agt without one; a training that
was stopped or still runs; or a folder whose files may not be listed. All but the first are codes of
sentences.
"""
MODELS_WITHOUT_INDEX = ("train", "agt.save")
"""Programs that write folders with a model. Such a folder without an index cannot be searched."""


def find_trainings(folder: Path) -> set[tuple[Path, TrainingKind]]:
    """Return the trainings in a folder and its subfolders, with what each is.

    A checkpoint that lies in no folder of an unfinished run is listed by its own folder.

    Args:
        folder: where to begin; it may not exist. Links are followed.
    """
    errors = list[OSError]()
    found = set[tuple[Path, TrainingKind]]()
    for path, files in _folders_below(folder, errors):
        # The next state of a run has no record that the run lacks, and the run itself is found.
        is_next_state = path.as_posix().endswith((f"/{NEXT_STATE_FOLDER}", f"/{COMMIT_FOLDER}"))
        if RECORD_INDEX_FILE in files:
            if not is_next_state:
                found.add((path, "indexed"))
        elif MANIFEST_FILE in files:
            if _is_model(path):
                found.add((path, "index_missing"))
        elif STATUS_FILE in files and not is_next_state and _may_hold_records(path, files):
            found.add((path, "training_unfinished"))
        checkpoint = _checkpoint_folder(path, files)
        if checkpoint is not None:
            found.add((_training_of(checkpoint), "training_unfinished"))
    found |= {(Path(error.filename), "folder_not_listed") for error in errors}
    return found


def _may_hold_records(folder: Path, files: frozenset[str]) -> bool:
    """Return whether a command that did not finish may have left what records decided.

    Args:
        folder: the folder of the command.
        files: the names of its files.
    """
    run = Run.at(folder)
    if run.state == "running":
        return run.command == "train"
    # The name of a file that was being written ends with ``.part`` and more.
    return any(".safetensors" in name or name.startswith(RECORD_INDEX_FILE) for name in files)


def _checkpoint_folder(folder: Path, files: frozenset[str]) -> Path | None:
    """Return the folder of the checkpoint to which a folder belongs; None: it has no part of one.

    A checkpoint may be a command's, with folders of its own, or that of a program, under any name.

    Args:
        folder: the folder.
        files: the names of its files.
    """
    if folder.name == CHECKPOINTS and RUN_FILE in files:
        return folder
    if not any(name.startswith("step=") and name.endswith(".safetensors") for name in files):
        return None
    for above in (folder, *folder.parents):
        if above.name == CHECKPOINTS:
            return above
    return folder


def _training_of(checkpoint: Path) -> Path:
    """Return the folder of the unfinished run that wrote a checkpoint, else the checkpoint's."""
    run = checkpoint.parent
    if (run / STATUS_FILE).exists() and not (run / MANIFEST_FILE).exists():
        return run
    return checkpoint


def _is_model(folder: Path) -> bool:
    """Return whether a folder's manifest says that agt wrote a model there."""
    with suppress(Broken, OSError):
        return Manifest.open(folder).command in MODELS_WITHOUT_INDEX
    return False


def _folders_below(folder: Path, errors: list[OSError]) -> Iterator[tuple[Path, frozenset[str]]]:
    """Yield a folder and all below it, each with the names of its files; links are followed.

    Args:
        folder: where to begin; it may not exist.
        errors: takes the error of each folder that cannot be listed.
    """
    if not folder.exists():
        return
    visited = set[tuple[int, int]]()
    for subfolder, folders, files in os.walk(folder, onerror=errors.append, followlinks=True):
        identity = os.stat(subfolder)
        if (identity.st_dev, identity.st_ino) in visited:
            folders.clear()  # a link back; os.walk goes no further
            continue
        visited.add((identity.st_dev, identity.st_ino))
        yield Path(subfolder), frozenset(files)
