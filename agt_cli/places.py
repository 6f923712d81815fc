"""Check that files and folders of a command line exist, before anything heavy is loaded.

The command checks them again when it reads them, so these checks only answer mistakes sooner.
Nothing here loads Hydra, pydantic, NumPy or PyTorch.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agt.data.suffixes import check_has_arrays, check_suffix
from agt.errors import ConfigError, DataMissing, counted
from agt.ledger.file_checks import check_free, check_suffix as check_suffix_of_ledger
from agt.store.locations import locate, require
from agt.store.manifest import MANIFEST_FILE
from agt.targets import OWN_SETTINGS
from agt_cli.ledger_files import NO_LEDGER, VARIABLE, is_ledger, ledger_path, require_ledger
from agt_cli.report.finished import COMMIT_FOLDER, Run
from agt_cli.report.found import LATEST, newest_run
from agt_cli.report.opening import STATUS_FILE, check_usable
from agt_cli.report.proposed_release import HEAD
from agt_cli.usage import IDS_NEED_A_FILE, ids_by_pipe

UNSET_VALUES = ("", "null")
STANDARD_INPUT = "-"
"""``inputs`` and ``ids`` that come on standard input."""
COMMANDS_WITH_LEDGER = ("predict", "measure", "ledger")
"""Commands that open the ledger that is named, whatever else was typed."""
TABLES_OF_IDS = (".csv", ".tsv", ".parquet", ".npz", ".gz")
"""Endings of files of ids that are tables; others have one id on each line."""
_FIRST_BYTES = 4096
LOG_OF_REQUESTS = "unlearning/log.jsonl"
"""In a run's folder: the requests for erasure (``agt_cli.unlearn.log``, which loads NumPy)."""


def check_named_files(command: str, typed: Mapping[str, str]) -> None:
    """Raise ConfigError or DataMissing if a file or folder that a setting names does not exist.

    Args:
        command: its name.
        typed: setting -> value, of settings whose value needs no composing.
    """
    settings = {key: value for key, value in typed.items() if value not in UNSET_VALUES}
    if command != "ledger":  # which looks into this folder, and writes nothing there
        for key in ("output_dir", "hydra.run.dir", "hydra.sweep.dir"):
            if key in settings:
                check_output_folder(key, Path(settings[key]))
    if "path" in settings:
        check_verified_path(Path(settings["path"]).expanduser())
    if "release" in settings:
        check_release(Path(settings["release"]))
        # a run says where else its queries may lie
        if settings.get("inputs", STANDARD_INPUT) != STANDARD_INPUT:
            check_kind_of_queries(locate(Path(settings["inputs"]), Path("data"), "inputs"))
    if "answers" in settings and command == "start":
        check_answers(Path(settings["answers"]))
    if "ledger" in settings and command in COMMANDS_WITH_LEDGER:
        check_ledger_file(command, settings)
    if settings.get("run", LATEST) != LATEST:
        check_run(command, Path(settings["run"]), settings)
    data_dir = Path(settings.get("data_dir", os.environ.get("AGT_DATA", "data")))
    # or a file that says where data are
    has_other_data_dir = "dataset.data_dir" in settings or "experiment" in settings
    trains_on_file = settings.get("dataset") in ("table", "embeddings") and not has_other_data_dir
    if trains_on_file and "dataset.path" in settings:
        _check_table(Path(settings["dataset.path"]), data_dir, "dataset.path or data_dir")
    if "file" in settings:
        if Path(settings["file"]).is_dir():
            raise ConfigError(folder_for_file(Path(settings["file"])))
        _check_table(Path(settings["file"]), data_dir, "the file or data_dir")


def check_output_folder(key: str, folder: Path) -> None:
    """Raise ConfigError if a folder for results cannot be made, because its place is taken.

    A file has its name or that of a folder above it, or a symbolic link whose target is missing.

    Args:
        key: the setting that names the folder.
        folder: the folder, which need not exist.
    """
    for path in (folder, *folder.parents):
        if path.is_dir():
            return
        if path.is_symlink() and not path.exists():
            target = os.readlink(path)
            raise ConfigError(
                f"{key}={folder}: {path} is a symbolic link to {target}, which does not exist: "
                "make that folder, or give another one"
            )
        if path.exists():
            raise ConfigError(
                f"{key}={folder}: {path} is not a folder: give another name, {key}=FOLDER"
            )


def check_table_of_dataset(node: object) -> None:
    """Raise DataMissing or DataError where the file of agt's own data is not there.

    Args:
        node: the value of the key ``dataset``, composed. If a command makes the file (``obtain``),
            whoever reads the data names the command.
    """
    if not isinstance(node, Mapping) or node.get("_target_") not in OWN_SETTINGS:
        return
    if node.get("obtain") is not None:
        return
    if isinstance(node.get("path"), str) and isinstance(node.get("data_dir"), str):
        _check_table(Path(node["path"]), Path(node["data_dir"]), "dataset.path or data_dir")


def check_public_rows(public: str, node: object) -> None:
    """Raise DataMissing where the file of public rows for ``agt tune`` is not there.

    Args:
        public: the value of ``tune.public``, where it names a file.
        node: the value of the key ``dataset``, composed.
    """
    if isinstance(node, Mapping) and isinstance(node.get("data_dir"), str):
        # Called because it raises if the file is in neither folder.
        locate(Path(public), Path(node["data_dir"]), "tune.public")
    else:
        require(Path(public), "tune.public")


def _check_table(path: Path, data_dir: Path, setting: str) -> None:
    """Raise DataMissing or DataError unless a table is there, by its name one that agt reads."""
    located = locate(path, data_dir, setting)
    if located.is_file():
        check_suffix(located, setting)
    elif located.is_dir():
        check_has_arrays(located, setting)


def folder_for_file(path: Path) -> str:
    """Return the refusal of a folder where the file of a table is needed."""
    return (
        f"'{path}' is a folder, but this command reads one file: give the path of the table's "
        "file, such as loans.csv. To train on a folder of arrays, type `agt train "
        f"dataset=embeddings dataset.path={path}`"
    )


def check_verified_path(path: Path) -> None:
    """Raise ConfigError if a path has nothing that ``agt verify`` can verify.

    The message names a run that could be verified, if there is one.
    """
    if not path.exists():
        run = newest_run(Path("outputs/train"), "train")
        suggestion = f"; the newest finished train run is {run.folder}" if run else ""
        raise ConfigError(
            f"{path}: this file or folder does not exist: give the path of a run's or a release's "
            f"folder, or of a ledger's file{suggestion}"
        )
    if not path.is_dir() and not is_ledger(path):
        raise ConfigError(
            f"{path} is neither a folder nor a ledger: give the folder of a run or of a release, "
            "or a ledger's file"
        )
    if path.is_dir() and not any(
        os.path.lexists(path / name) for name in (MANIFEST_FILE, STATUS_FILE)
    ):
        raise ConfigError(_not_a_run_message(path))


def _not_a_run_message(folder: Path) -> str:
    """Return the message that a folder is not a run, with a command for one of the runs inside it.

    Runs are looked for one and two levels below the folder.
    """
    problem = (
        f"{folder}: this is neither a run nor a release, because both {MANIFEST_FILE} and "
        "status.json are missing"
    )
    manifests = [*folder.glob(f"*/{MANIFEST_FILE}"), *folder.glob(f"*/*/{MANIFEST_FILE}")]
    runs = sorted(path.parent for path in manifests)
    if runs:
        runs_inside = counted(len(runs), "run")
        newest = runs[-1]
        return (
            f"{problem}. To verify one of the {runs_inside} in this folder, type for example `agt "
            f"verify {newest}`"
        )
    ledgers = sorted(filter(is_ledger, folder.glob("*.ledger")))
    if ledgers:
        return (
            f"{problem}. It has ledgers: to check one, type `agt verify {ledgers[0]}`, and to see "
            f"its budget, `agt ledger show {ledgers[0]}`"
        )
    return problem


def check_release(folder: Path) -> None:
    """Raise ConfigError unless there is the folder of a release.

    Args:
        folder: the value of ``release``.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"release={folder}: this folder does not exist: give the folder of a release"
        )
    is_run = (folder / STATUS_FILE).exists()
    is_release = (folder / MANIFEST_FILE).exists() and not is_run
    contains_release = (folder / "release" / MANIFEST_FILE).exists()  # the run that released it
    if is_release or contains_release:
        return
    reason = "it is the folder of a run" if is_run else f"{MANIFEST_FILE} is missing"
    suggestion = "; give the folder release/ in the folder of the agt predict that made the release"
    # The folder of a run has the time of its start for a name.
    release_of_run: dict[str, Path] = {}
    for path in _manifests_of_releases(folder):
        release_of_run.setdefault(path.parent.parent.name, path.parent)
    if release_of_run:
        newest_release = release_of_run[max(release_of_run)]
        suggestion = f"; did you mean release={newest_release}?"
    raise ConfigError(
        f"release={folder}: this is not the folder of a release ({reason}){suggestion}"
    )


def _manifests_of_releases(folder: Path) -> Iterator[Path]:
    """Yield the manifests of releases in a folder, and one and two levels below it."""
    for pattern in ("", "*/", "*/*/"):
        yield from folder.glob(f"{pattern}release/{MANIFEST_FILE}")


def check_answers(path: Path) -> None:
    """Raise DataMissing or ConfigError unless there is a file of answers for ``agt start``."""
    if not path.exists():
        raise DataMissing(
            f"answers={path}: this file does not exist: give a file with one line for each "
            "answer, such as 'label: income', or leave answers=... out"
        )
    if path.is_dir():
        raise ConfigError(
            f"answers={path} is a folder: give a file with one line for each answer, such as "
            "answers=answers.yaml"
        )


def check_ledger_file(command: str, settings: Mapping[str, str]) -> None:
    """Raise ConfigError if a ledger does not exist, or a new one cannot be created at its path.

    Args:
        command: its name.
        settings: setting -> value as typed; ``ledger`` is among them.
    """
    name = settings["ledger"]
    if command != "ledger":
        if name != NO_LEDGER:
            require_ledger(name)
        return
    if settings.get("action") == "init":
        check_suffix_of_ledger(ledger_path(name))
        check_free(ledger_path(name))
    else:
        require_ledger(name)
    head = settings.get("head")
    if head and settings.get("action") in ("init", "admit"):
        check_head_folder(head)


def check_ledger_of_environment(setting: object) -> None:
    """Raise ConfigError where the ledger that the environment names is not there.

    Args:
        setting: the value of ``ledger``, which comes first; None: ``ledger`` was not given.
    """
    name = os.environ.get(VARIABLE)
    if setting is None and name and name != NO_LEDGER:
        require_ledger(name)


def check_head_folder(head: str) -> None:
    """Raise ConfigError unless there is the folder of a new head file.

    Args:
        head: the file, or the folder that it is to lie in.
    """
    if head == HEAD:
        raise ConfigError(
            f"head={head}: replace {HEAD} by a new file on another disk, such as "
            "head=/mnt/stick/people.head"
        )
    folder = Path(head).parent
    if not folder.is_dir():
        raise ConfigError(
            f"head={head}: the folder {folder} does not exist: create it, or mount the disk that "
            "it is on"
        )


def check_run(command: str, folder: Path, settings: Mapping[str, str]) -> None:
    """Raise ConfigError or DataMissing if a run, or a file of it that is needed, is missing.

    Args:
        command: its name.
        folder: the value of ``run``.
        settings: the other settings: name -> value as typed.
    """
    ids = settings.get("ids", STANDARD_INPUT)
    if command == "unlearn" and folder.is_file() and (Path(ids) / MANIFEST_FILE).is_file():
        raise ConfigError(
            f"run={folder} is a file, and ids={ids} is the folder of a run: type run={ids} "
            f"ids={folder}"
        )
    check_usable(folder, "train")
    run = Run.at(folder)
    inputs = settings.get("inputs", STANDARD_INPUT)
    # Each kind of audit says which inputs it takes.
    if command != "audit" and inputs != STANDARD_INPUT:
        check_inputs(Path(inputs), run)
    if command == "unlearn" and ids != STANDARD_INPUT:
        check_file_of_ids(ids)


def check_inputs(path: Path, run: Run) -> None:
    """Raise DataMissing or DataError unless there is a file or a folder of queries, by its name.

    Args:
        path: the value of ``inputs``.
        run: says where else queries may lie, and whether agt itself reads them.
    """
    dataset: Any = run.config.get("dataset")
    if not isinstance(dataset, Mapping):
        return
    is_own = str(dataset.get("_target_")) in OWN_SETTINGS
    if path.exists():
        if is_own:
            check_kind_of_queries(path)
        return
    if "data_dir" not in dataset:
        if is_own:
            require(path, "inputs")
        return  # of the user's own, which may keep its files elsewhere
    data_files = run.environment.get("data_files")
    recorded = data_files.get("data_dir") if isinstance(data_files, Mapping) else None
    data_dir = Path(str(dataset["data_dir"]))
    if isinstance(recorded, Mapping) and Path(str(recorded.get("path"))).exists():
        data_dir = Path(str(recorded["path"]))
    locate(path, data_dir, "inputs")  # called because it raises if the file is not there


def check_kind_of_queries(path: Path) -> None:
    """Raise DataMissing or DataError unless agt reads a file or a folder, by the names in it.

    Args:
        path: the file or the folder of queries, which exists.
    """
    if path.is_dir():
        check_has_arrays(path, "inputs")
    elif path.is_file():
        check_suffix(path, "inputs")


def check_requested(folder: Path) -> None:
    """Raise ConfigError where ``agt unlearn`` without ids has nothing to do.

    Args:
        folder: the folder of the run.
    """
    # an update that was stopped half-way has its log in COMMIT
    if not (folder / LOG_OF_REQUESTS).exists() and not (folder / COMMIT_FOLDER).exists():
        raise nothing_requested(folder)


def check_file_of_ids(path: str) -> None:
    """Raise DataMissing or ConfigError unless there is a file of ids.

    Args:
        path: the value of ``ids``.
    """
    if not Path(path).exists():
        raise no_file_of_ids(path)
    if not Path(path).is_file():
        kind = "a folder" if Path(path).is_dir() else "not a regular file"
        raise ConfigError(
            f"ids={path} is {kind}: give a file with one id per line, or ids=- to read "
            "the ids from standard input"
        )
    if Path(path).suffix.lower() in TABLES_OF_IDS:
        return
    with Path(path).open("rb") as file:
        if b"\0" in file.read(_FIRST_BYTES):
            raise ConfigError(
                f"ids={path}: this is not a text file: write one id per line into a .txt file, or "
                "save the table as .csv"
            )


def nothing_requested(folder: Path) -> ConfigError:
    """Return the refusal of ``agt unlearn`` without ids, of a run without requests."""
    return ConfigError(
        "no erasure was requested: give the ids of the records with ids=FILE, one id on each line "
        f"(agt unlearn run={folder} ids=FILE)"
    )


def no_file_of_ids(path: str) -> DataMissing:
    """Return the error for a file of ids that does not exist; the message repeats no id."""
    shown = "..." if "," in path or ";" in path else path
    return DataMissing(
        f"ids={shown}: there is no file of this name, and {IDS_NEED_A_FILE}. Without a file, "
        f"{ids_by_pipe()}"
    )
