"""Run one job, from its configuration to its record; and the signature of what a job computes.

Two jobs with the same signature compute the same, so a sweep runs one of them, in a folder that is
named by the signature. These go into it:

* the resolved configuration, but not where results and data lie, nor what only affects speed
  (``compute``);
* the content of each file or folder that a setting names, wherever it lies, so that the signature
  changes with the data;
* the code of agt and of the packages whose classes the configuration names;
* the versions of the libraries that compute.
"""

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from hashlib import blake2b, sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

from agt.errors import AgtError, CheckError, ConfigError
from agt.provenance import PACKAGES, code_digest, package_version, targets
from agt.store.locations import possible_paths
from agt.store.manifest import MANIFEST_FILE as MANIFEST
from agt.store.reading import file_sha256
from agt.targets import targets_of, trusting
from agt_cli import config_files, usage
from agt_cli.checks import (
    TRUST_SETTING,
    check_mechanism_is_named,
    check_not_empty,
    check_settings,
    trusted_names,
)
from agt_cli.process import current_team
from agt_cli.report.console import Console
from agt_cli.report.finished import manifest_digest
from agt_cli.report.found import resolve_latest
from agt_cli.report.opening import open_run
from agt_cli.report.replaced import check_not_replaced, output_folders_of

if TYPE_CHECKING:  # loads pandas and pyarrow
    from agt_cli.report.record import RunRecord


def resolve_settings(
    command: str, settings: dict[str, Any], overrides: Sequence[str], console: Console
) -> dict[str, Any]:
    """Return a job's configuration as its record keeps it, with its defaults and ``latest`` filled
    in.

    Args:
        command: the name of the command.
        settings: composed, as plain containers.
        overrides: the settings that were typed on the command line.
        console: prints which run ``latest`` is.

    Raises:
        ConfigError: a value is empty, ``run=latest`` finds no run, or an erasure replaced the state
            of the run that is in its folder.
    """
    settings = resolve_latest(settings, console.note)
    if settings.get("run") and "output_dir" in settings:
        folder = Path(str(settings["run"]))
        output_dir = Path(str(settings["output_dir"])).resolve()
        check_not_replaced(
            manifest_digest(folder), folder, {output_dir, *output_folders_of(folder)}
        )
    if command in ("train", "tune", "measure"):
        from agt_cli.choices import bind_declaration, with_votes_recipe

        settings = bind_declaration(with_votes_recipe(settings), overrides)
    check_not_empty(settings)
    return settings


def run_job(
    command: str,
    settings: dict[str, Any],
    folder: Path | None,
    console: Console,
    overrides: Sequence[str],
    sweep: bool = False,
) -> dict[str, Any]:
    """Check the settings of a command, run it, and return the object that --json prints.

    If the settings of a single run are wrong, or do not suit the data or the run that they name, no
    folder is left. A job of a sweep leaves a record in any case, which says why it failed.

    Args:
        command: the name of the command.
        settings: composed, as plain containers. Code that they name may be imported, because the
            user chose it; further code is named by ``TRUST_SETTING``.
        folder: the folder of the record; None: the command writes no record.
        console: prints progress and results.
        overrides: the settings that were typed on the command line.
        sweep: True: this is a job of a sweep.

    Raises:
        ConfigError: a setting is wrong, or a job of a sweep was stopped before it finished.
        Exception: whatever the command raises.
    """
    if command == "predict":
        check_mechanism_is_named(settings, overrides)
    if not sweep:
        check_settings(command, settings)
    # Imported after the check, because it loads PyTorch: a mistake is answered at once.
    task = import_module(usage.COMMANDS[command].module)
    if not gc.isenabled():
        # This process was started for this command (``cli.main``), so its modules are no garbage.
        gc.freeze()
        gc.enable()
    if folder is None:
        return {"command": command, **task.run(task.configure(settings), console)}
    with trusting(trusted_code(settings)):
        settings = {key: value for key, value in settings.items() if key != TRUST_SETTING}
        settings = resolve_settings(command, settings, overrides, console)
        record, result = _run_recorded(
            task, command, settings, folder, console, overrides, sweep=sweep
        )
    if "digest" not in result:
        # Answers to queries on standard input go to standard output, and nothing else may.
        answers_on_stdout = str(settings.get("inputs")) == "-"
        print_line = console.note if answers_on_stdout else console.say
        print_line(f"digest: {record.digest}")
    report = record.folder / "report.html"
    console.note(f"report: {report}")
    return {"command": command, "run": str(record.folder), "digest": record.digest, **result}


def _run_recorded(
    task: ModuleType,
    command: str,
    settings: dict[str, Any],
    folder: Path,
    console: Console,
    overrides: Sequence[str],
    *,
    sweep: bool,
) -> tuple["RunRecord", dict[str, Any]]:
    """Run a command that writes a record, and return the record and the command's result.

    Args:
        task: the module of the command.
        command: the name of the command.
        settings: the result of ``resolve_settings``. A resumed run uses its own ones instead.
        folder: the folder of the record. A resumed run uses its own one instead.
        console: prints progress and results.
        overrides: the settings that were typed on the command line.
        sweep: True: this is a job of a sweep.
    """
    from agt_cli.report.record import RunRecord

    # A cluster may queue a killed job again, but the record may say what was already drawn.
    if sweep and (folder / "status.json").exists():
        raise ConfigError(
            f"{folder}: this job of a sweep was stopped before it finished, so it has no "
            "result. Type the same command again: agt moves this folder aside and runs "
            "the job again"
        )
    resumed = task.run_to_resume(settings, overrides, sweep) if command == "train" else None
    if resumed:
        folder = resumed.folder
        settings = resumed.config
    record = RunRecord(folder, command, settings, resumed)
    with ExitStack() as contexts:
        # Entering the record makes its folder. That of a sweep's job is there before the settings
        # are checked, so that it says why they were refused.
        if sweep:
            contexts.enter_context(record)
            own_signature = signature_or_empty(command, settings)
            record.environment(overrides=list(overrides), signature=own_signature)
        configured = task.configure(settings)
        if not sweep:
            contexts.enter_context(record)
        if team := current_team.get():
            record.environment(processes=team.description)
        if command == "train":
            from agt_cli.choices import ineffective_settings

            for line in ineffective_settings(settings, overrides):
                console.note(line)
        try:
            result = task.run(configured, record, console)
        except AgtError as error:
            # A refused command did nothing, so its folder would only look like a damaged run.
            # An audit that raises CheckError is not refused: it began, and its record says so.
            is_refused = error.exit_code != AgtError.exit_code
            if command == "audit" and isinstance(error, CheckError):
                is_refused = False
            # Whatever a refused erasure wrote into its own record, it changed no run.
            did_nothing = command == "unlearn" or not record.has_results
            if is_refused and did_nothing and not sweep and resumed is None:
                record.discard()
            raise
    return record, result


def trusted_code(settings: Mapping[str, Any]) -> set[str]:
    """Return the names of the code that records may import during a command.

    These are the names in the command's own settings, in ``TRUST_SETTING``, and in the user's
    ./conf.

    Args:
        settings: the settings of the present command line, composed. They must not be a record's,
            because whoever made the record would choose which code is imported.

    Raises:
        ConfigError: the value of ``TRUST_SETTING`` is not a list.
    """
    return {
        ENCODED_HEAD,
        *trusted_names(settings),
        *targets_of(settings),
        *targets_of([*_user_settings()]),
    }


def _user_settings() -> Iterator[object]:
    """Yield the content of each YAML file in the user's own ./conf that can be read."""
    folder = config_files.user_conf()
    if folder is None:
        return
    for path in folder.rglob("*.yaml"):
        with suppress(OSError, ValueError, yaml.YAMLError):
            yield yaml.safe_load(path.read_bytes())


def signature_or_empty(command: str, settings: Mapping[str, Any]) -> str:
    """Return a job's signature; empty if it cannot be computed, in which case the job will fail."""
    try:
        return signature(command, settings)
    except (AgtError, OSError):
        return ""


# -- signatures
# --------------------------------------------------------------------------------------------------

SPEED_SETTINGS = ("compute",)
"""Settings that only affect speed."""
PLACE_SETTINGS = ("output_dir", "data_dir", "runs_dir", "cache_dir", "download", "resume")
"""Settings that only say where results and data lie."""
ENCODED_HEAD = "agt_cli._experiments.encoder.EncodedHead"
"""A class that records of the papers' experiments name."""
"""The setting that names code which records may import. It is in no signature, because the records'
own settings say which code they use.
"""
NAME_SETTINGS = ("ledger",)
"""Settings whose file the job itself changes, so that its name goes into a signature as it is."""


def signature(command: str, config: Mapping[str, Any], state: str | None = None) -> str:
    """Return a short hash of everything that a job's result depends on.

    Args:
        command: the name of the command.
        config: resolved, as plain containers.
        state: a digest of the run that ``run`` names; None: the run's present digest.

    Raises:
        AgtError: the code that a ``_target_`` names was not found.
        OSError: a file that a setting names cannot be read.
    """
    settings = {
        key: value for key, value in config.items() if key not in (*SPEED_SETTINGS, TRUST_SETTING)
    }
    settings = _with_digests(settings, Path())
    if state is not None:
        settings["run"] = ContentDigest(file=state.removeprefix("sha256:"))
    code = _code(("agt_cli", usage.COMMANDS[command].module, *targets(config)))
    versions = {name: package_version(name) for name in PACKAGES}
    text = json.dumps([command, settings, code, versions], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=12).hexdigest()


def erases_records(command: str, config: Mapping[str, Any]) -> bool:
    """Return whether a job erases records from the run that it names, and so changes it.

    Args:
        command: the name of the command.
        config: its resolved configuration.
    """
    return command == "unlearn" and not config.get("rehearse")


def signatures_on_earlier_states(command: str, config: Mapping[str, Any]) -> frozenset[str]:
    """Return the signatures that a job which changes its run had on each earlier state of the run.

    A job of this kind was done before only if its record has one of these signatures. They are
    made from the states that the run itself lists: a run that lists the state with which the job
    began has had the job done to it, but an older copy of the run has not.

    Args:
        command: the name of the command.
        config: its resolved configuration. Without ``ids`` the job carries out whatever is pending
            now, so it was never done before, and the result is empty.
    """
    if config.get("ids") is None:
        return frozenset()
    succeeds = open_run(Path(str(config["run"])), "train").environment.get("succeeds", ())
    return frozenset(signature(command, config, str(state)) for state in succeeds)


class ContentDigest(dict[str, str]):
    """The hash of the content of a path in a signature, under the key ``file`` or ``folder``."""


def _with_digests(settings: Mapping[str, Any], data_dir: Path) -> dict[str, Any]:
    """Return settings with the digest of its content in place of each path that exists.

    Settings that only say where things lie (``PLACE_SETTINGS``) are left out. ``data_dir`` is kept
    if the settings name a class but no existing path, because that class then finds its files in
    ``data_dir`` by itself.

    Args:
        settings: a mapping of a configuration, at any depth.
        data_dir: the folder in which relative paths are looked for, unless the settings have a
            ``data_dir``.
    """
    data_dir = Path(str(settings.get("data_dir", data_dir)))
    replaced = {
        str(key): _with_digest(key, value, data_dir)
        for key, value in settings.items()
        if key not in PLACE_SETTINGS
    }
    names_path = any(isinstance(value, ContentDigest) for value in replaced.values())
    if "_target_" in settings and "data_dir" in settings and not names_path:
        replaced["data_dir"] = str(data_dir.absolute())
    return replaced


def _with_digest(key: str, value: Any, data_dir: Path) -> Any:
    """Return the value of one setting, with a digest of its content if it is a path that exists.

    Args:
        key: the key of the setting; one of ``NAME_SETTINGS`` keeps its value.
        value: text, a number, or a list or mapping of values.
        data_dir: the folder in which relative paths are looked for.
    """
    if isinstance(value, Mapping):
        return _with_digests(value, data_dir)
    if isinstance(value, list | tuple):
        return [_with_digest(key, item, data_dir) for item in value]
    if key in NAME_SETTINGS or not isinstance(value, str):
        return value
    return _digest_of_path(value, data_dir) or value


def _digest_of_path(text: str, data_dir: Path) -> ContentDigest | None:
    """Return a digest of the file or folder that a text names; None: the text names neither.

    A run's folder is represented by its manifest, any other folder by the names, sizes and times of
    its files.
    """
    path = _existing_path(text, data_dir)
    if path is None:
        return None
    if (path / MANIFEST).is_file():
        path = path / MANIFEST
    if path.is_file():
        state = path.stat()
        return ContentDigest(file=_sha256(path, state.st_size, state.st_mtime_ns))
    if path.is_dir():
        listing = json.dumps(sorted(_files_inside(path)))
        return ContentDigest(folder=sha256(listing.encode()).hexdigest())
    return None


def _existing_path(text: str, data_dir: Path) -> Path | None:
    """Return the file or folder that a text names, relative to here or to a folder of data."""
    if not text:
        return None
    # The text may be too long for a name, or contain a null character.
    with suppress(OSError, ValueError):
        for path in possible_paths(Path(text), data_dir):
            if path.exists():
                return path
    return None


def _files_inside(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield (path in the folder, bytes, time of the last change) of each file in a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            state = path.stat()
            yield path.relative_to(folder).as_posix(), state.st_size, state.st_mtime_ns


@cache
def _sha256(path: Path, size: int, changed: int) -> str:
    """Return the hash of a file.

    It is cached, because the jobs of a sweep mostly read the same files. ``size`` and ``changed``
    (its time) are part of the cache's key, so that a file that changed is read again.
    """
    return file_sha256(path)


@cache
def _code(modules: tuple[str, ...]) -> str:
    """Return the digest of the modules' code, cached because loaded code does not change."""
    return code_digest(modules)
