"""Files and folders that a command line names, looked at before anything heavy is loaded.

A command looks at them again, and reads them: what is found here is only answered sooner. Nothing
here loads Hydra, pydantic, NumPy or PyTorch.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agt.data.suffixes import check_suffix
from agt.errors import ConfigError, DataMissing
from agt.store import MANIFEST_FILE, locate
from agt_cli.report.finished import Run
from agt_cli.report.found import LATEST, newest
from agt_cli.report.opening import check_usable

UNSET = ("", "null")
LINES = "-"
"""``inputs`` and ``ids`` that come on standard input."""
NO_LEDGER = "none"
LOG_OF_REQUESTS = "unlearning/log.jsonl"
"""In a run's folder: the requests for erasure (``agt_cli.unlearn.log``, which loads NumPy)."""


def check_places(command: str, typed: Mapping[str, str]) -> None:
    """Raise ConfigError or DataMissing where what a setting names is not there.

    Args:
        command: its name.
        typed: setting -> value, of settings whose value needs no composing.
    """
    given = {key: value for key, value in typed.items() if value not in UNSET}
    if "path" in given:
        check_verified_path(Path(given["path"]), Path(given.get("output_dir", "outputs")))
    if "release" in given:
        check_release(Path(given["release"]))
        # a run says where else its queries may lie
        if given.get("inputs", LINES) != LINES:
            locate(Path(given["inputs"]), Path("data"), "inputs")
    if "answers" in given and command == "start":
        check_answers(Path(given["answers"]))
    if "ledger" in given:
        check_ledger_file(command, given)
    if given.get("run", LATEST) != LATEST:
        check_run(command, Path(given["run"]), given)
    data_dir = Path(given.get("data_dir", os.environ.get("AGT_DATA", "data")))
    # or a file that says where data are
    elsewhere = "dataset.data_dir" in given or "experiment" in given
    trains_on_file = given.get("dataset") in ("table", "embeddings") and not elsewhere
    if trains_on_file and "dataset.path" in given:
        _check_table(Path(given["dataset.path"]), data_dir, "dataset.path or data_dir")
    if "file" in given:
        _check_table(Path(given["file"]), data_dir, "the file or data_dir")
        if Path(given["file"]).is_dir():
            raise ConfigError(folder_for_file(Path(given["file"])))


def _check_table(path: Path, data_dir: Path, setting: str) -> None:
    """Raise DataMissing or DataError unless a table is there, by its name one that agt reads."""
    found = locate(path, data_dir, setting)
    if found.is_file():
        check_suffix(found, setting)


def folder_for_file(path: Path) -> str:
    """Return the refusal of a folder where the file of a table is needed."""
    return (
        f"'{path}' is a folder, but this command reads one file: give the path of the table's "
        "file, such as loans.csv. To train on a folder of arrays, type `agt train "
        f"dataset=embeddings dataset.path={path}`"
    )


def check_verified_path(path: Path, outputs: Path) -> None:
    """Raise ConfigError where nothing that ``agt verify`` can look at is at a path.

    Args:
        path: what is to be verified.
        outputs: where runs are, of which the newest is named.
    """
    from agt_cli.ledger_files import is_ledger

    if not path.exists():
        run = newest(outputs / "train", "train")
        instead = f"; the newest finished train run is {run.folder}" if run else ""
        raise ConfigError(
            f"{path}: this file or folder does not exist: give the path of a run's or a release's "
            f"folder, or of a ledger's file{instead}"
        )
    if path.is_file() and not is_ledger(path):
        raise ConfigError(
            f"{path} is neither a folder nor a ledger: give the folder of a run or of a release, "
            "or a ledger's file"
        )


def check_release(folder: Path) -> None:
    """Raise ConfigError unless there is the folder of a release.

    Args:
        folder: the value of ``release``.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"release={folder}: this folder does not exist: give the folder of a release"
        )
    if (folder / MANIFEST_FILE).exists():
        return
    below = [path.parent for path in _manifests_of_releases(folder)]
    instead = "; it is the folder release/ inside the folder of the agt predict that released it"
    if below:
        newest_release = max(below, key=lambda path: path.parent.name)
        instead = f"; did you mean release={newest_release}?"
    raise ConfigError(
        f"release={folder}: this is not the folder of a release ({MANIFEST_FILE} is missing)"
        f"{instead}"
    )


def _manifests_of_releases(folder: Path) -> Iterator[Path]:
    """Yield the manifests of releases in a folder, and one and two levels below it."""
    for pattern in ("", "*/", "*/*/"):
        yield from folder.glob(f"{pattern}release/{MANIFEST_FILE}")


def check_answers(path: Path) -> None:
    """Raise DataMissing unless there is a file of answers for ``agt start``."""
    if not path.exists():
        raise DataMissing(
            f"answers={path}: this file does not exist: give a file with one line for each "
            "answer, such as 'label: income', or leave answers=... out"
        )


def check_ledger_file(command: str, given: Mapping[str, str]) -> None:
    """Raise ConfigError where a ledger is not there, or a new one has no place.

    Args:
        command: its name.
        given: as in ``check_places``; ``ledger`` is among it.
    """
    from agt_cli.ledger_files import existing_ledger

    name = given["ledger"]
    if command != "ledger":
        if name != NO_LEDGER:
            existing_ledger(name)
        return
    if given.get("action") != "init":
        existing_ledger(name)
    head = given.get("head")
    if head and given.get("action") in ("init", "admit"):
        check_head_folder(head)


def check_ledger_of_environment(setting: object) -> None:
    """Raise ConfigError where the ledger that the environment names is not there.

    Args:
        setting: the value of ``ledger``, which comes first; None: it was not given.
    """
    from agt_cli.ledger_files import VARIABLE, existing_ledger

    name = os.environ.get(VARIABLE)
    if setting is None and name and name != NO_LEDGER:
        existing_ledger(name)


def check_head_folder(head: str) -> None:
    """Raise ConfigError unless there is the folder of a new second head.

    Args:
        head: the file, or the folder that it is to lie in.
    """
    folder = Path(head).parent
    if not folder.is_dir():
        raise ConfigError(
            f"head={head}: the folder {folder} does not exist: mount the other disk, or create "
            "the folder first"
        )


def check_run(command: str, folder: Path, given: Mapping[str, str]) -> None:
    """Raise ConfigError or DataMissing where a run, or what is asked of it, is not there.

    Args:
        command: its name.
        folder: the value of ``run``.
        given: the other settings, as in ``check_places``.
    """
    check_usable(folder, "train")
    run = Run.at(folder)
    inputs = given.get("inputs", LINES)
    if inputs != LINES:
        check_inputs(Path(inputs), run)
    if command == "unlearn":
        check_ids(given.get("ids"), folder)


def check_inputs(path: Path, run: Run) -> None:
    """Raise DataMissing unless there is a file or a folder of queries.

    Args:
        path: the value of ``inputs``.
        run: says where else queries may lie.
    """
    if path.exists():
        return
    dataset: Any = run.config.get("dataset")
    if not isinstance(dataset, Mapping) or "data_dir" not in dataset:
        return  # of the user's own, which may keep its files elsewhere
    found = run.environment.get("data_files")
    recorded = found.get("data_dir") if isinstance(found, Mapping) else None
    data_dir = Path(str(dataset["data_dir"]))
    if isinstance(recorded, Mapping) and Path(str(recorded.get("path"))).exists():
        data_dir = Path(str(recorded["path"]))
    locate(path, data_dir, "inputs")


def check_ids(ids: str | None, folder: Path) -> None:
    """Raise ConfigError where ``agt unlearn`` has nothing to do.

    Args:
        ids: the value of the setting; None: it was not given.
        folder: of the run.
    """
    if ids is None and not (folder / LOG_OF_REQUESTS).exists():
        raise nothing_requested(folder)
    if ids not in (None, LINES) and not Path(str(ids)).exists():
        raise no_file_of_ids(str(ids))


def nothing_requested(folder: Path) -> ConfigError:
    """Return the refusal of ``agt unlearn`` without ids, of a run without requests."""
    return ConfigError(
        "no erasure was requested, neither in this command nor earlier: give the ids of the "
        f"records with ids=FILE, one id on each line (agt unlearn run={folder} ids=FILE)"
    )


def no_file_of_ids(path: str) -> DataMissing:
    """Return the refusal of ids in a file that is not there; ids themselves are not repeated."""
    shown = "..." if "," in path or ";" in path else path
    return DataMissing(
        f"ids={shown}: there is no file of this name, and ids cannot be given on the command "
        "line. Write them into a file, one id per line, and give ids=FILE; or give them on "
        "standard input: printf 'ID1\\nID2\\n' | agt unlearn run=RUN ids=-"
    )
