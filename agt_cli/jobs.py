"""One job: a configuration goes in, its record comes out; and what a sweep's job computes, in one
word.

Of two jobs with one signature, one is enough. The folder of a sweep's job is named by it, whatever
number the job has and whatever else the command line changed. The configuration counts as it was
resolved; where results and data lie does not, nor what only affects speed (compute). A file or
folder that a setting names counts by its content, wherever it lies, so that changed data are
another job's. The code counts (agt's, and that of the packages whose classes a configuration
names), and the versions of what computes.
"""

import gc
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import blake2b, sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from agt.errors import AgtError, ConfigError
from agt.provenance import PACKAGES, code_digest, package_version, targets
from agt.store.locations import possible_paths
from agt.store.manifest import MANIFEST_FILE as MANIFEST
from agt.store.reading import file_sha256
from agt.targets import targets_of, trusting
from agt_cli import config_files, usage
from agt_cli.checks import check_not_empty, check_settings
from agt_cli.process import current_team
from agt_cli.report.console import Console
from agt_cli.report.finished import manifest_digest
from agt_cli.report.found import resolve_latest
from agt_cli.report.opening import open_run
from agt_cli.report.replaced import check_not_replaced, home_of


@contextmanager
def command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Records keep sys.argv: the command as the user knows it, whoever started this process."""
    saved, sys.argv = sys.argv, list(arguments)
    try:
        yield
    finally:
        sys.argv = saved


def resolve_settings(
    command: str, settings: dict[str, Any], overrides: Sequence[str], console: Console
) -> dict[str, Any]:
    """A job's configuration as its record keeps it.

    Args:
        settings: composed, as plain containers.
        overrides: the command line's own.

    Raises:
        ConfigError: a value is empty, or run=latest finds none.
    """
    settings = resolve_latest(settings, console.note)
    if settings.get("run") and "output_dir" in settings:
        folder = Path(str(settings["run"]))
        check_not_replaced(
            manifest_digest(folder),
            folder,
            {Path(str(settings["output_dir"])).resolve(), *home_of(folder)},
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
    """Validate everything, then run the command in its record; returns the object of --json.

    A single run that never started leaves no folder; a sweep's job always leaves a record, which
    says why it failed.

    Args:
        settings: composed, as plain containers. Code that they name is the user's choice, and that
            of ``TRUST``.
        folder: of the record; None: the command keeps none, and writes nothing here.
        overrides: the command line's own.
        sweep: whether it is one job of several.
    """
    if not sweep:  # whose record says why a job failed
        check_settings(command, settings)
    # What is heavy comes after, so that mistakes are answered at once.
    task = import_module(usage.COMMANDS[command].module)
    if not gc.isenabled():  # a process that was started for this command: what it has loaded stays
        gc.freeze()
        gc.enable()
    if folder is None:
        return {"command": command, **task.run(task.configure(settings), console)}

    from agt_cli.report.record import RunRecord

    with ExitStack() as stack:
        stack.enter_context(trusting(trusted_by(settings)))
        settings = {key: value for key, value in settings.items() if key != TRUST}
        settings = resolve_settings(command, settings, overrides, console)
        # queued again by a cluster: what it drew must not be forgotten
        if sweep and (folder / "status.json").exists():
            raise ConfigError(
                f"{folder}: this job of a sweep was stopped before it finished, so it has no "
                "result. Type the same command again: agt moves this folder aside and runs "
                "the job again"
            )
        again = task.run_to_resume(settings, overrides, sweep) if command == "train" else None
        if again:
            folder, settings = again.folder, again.config
        record = RunRecord(folder, command, settings, again)
        if sweep:
            stack.enter_context(record)
            record.environment(
                overrides=list(overrides), signature=signature_or_empty(command, settings)
            )
        configured = task.configure(settings)
        if not sweep:
            stack.enter_context(record)
        if shared := current_team.get():
            record.environment(processes=shared.described)
        if command == "train":
            from agt_cli.choices import ineffective_settings

            for line in ineffective_settings(settings, overrides):
                console.note(line)
        try:
            result = task.run(configured, record, console)
        except AgtError as error:
            # A refused request changed nothing, so its folder would only look like a damaged one.
            if command == "unlearn" and not sweep and error.exit_code != AgtError.exit_code:
                record.leave_nothing()
            raise
    if "digest" not in result:  # of an answer line by line, stdout has the answers
        (console.note if str(settings.get("inputs")) == "-" else console.say)(
            f"digest: {record.digest}"
        )
    report = folder / "report.html"
    console.note(f"report (open it in a browser): {report}")
    return {"command": command, "run": str(folder), "digest": record.digest, **result}


def trusted_by(settings: Mapping[str, Any]) -> set[str]:
    """Return the names of code that the user lets records import: in these settings, in ``TRUST``,
    and in ./conf.

    Args:
        settings: of the command line at hand, composed. Those of a record must not come here.

    Raises:
        ConfigError: ``TRUST`` is no list.
    """
    named = settings.get(TRUST) or []
    if not isinstance(named, list):
        raise ConfigError(
            f"{TRUST}={named}: this is not a list: give a list of the full Python names of the "
            f"code that you trust, for example {TRUST}=[my_net.Net]"
        )
    return {ENCODED_HEAD, *map(str, named), *targets_of(settings), *targets_of([*_user_settings()])}


def _user_settings() -> Iterator[object]:
    """Yield what each YAML file in the user's own ./conf holds; one that cannot be read names no
    code.
    """
    folder = config_files.user_conf()
    for path in folder.rglob("*.yaml") if folder else ():
        with suppress(OSError, ValueError, yaml.YAMLError):
            yield yaml.safe_load(path.read_bytes())


def signature_or_empty(command: str, settings: Mapping[str, Any]) -> str:
    """A job's signature; empty where there is none to tell: the job itself then says what is
    wrong.
    """
    try:
        return signature(command, settings)
    except (AgtError, OSError):
        return ""


# -- what a job computes
# --------------------------------------------------------------------------------------------------

SPEED = ("compute",)
PLACES = ("output_dir", "data_dir", "runs_dir", "cache_dir", "download", "resume")
# the papers' own, which records of theirs name
ENCODED_HEAD = "agt_cli._experiments.encoder.EncodedHead"
# names code that records may have imported; which code it is, their own settings say
TRUST = "trust"
NAMES = ("ledger",)  # a file that the job itself changes is meant by its name


def signature(command: str, config: Mapping[str, Any], state: str | None = None) -> str:
    """Names what a job computes.

    Args:
        config: resolved, as plain containers.
        state: the digest that stands for ``run``; None: that of the run as it is.

    Raises:
        AgtError: the code that a ``_target_`` names is not to be found.
        OSError: a file that a setting names cannot be read.
    """
    settings = {key: value for key, value in config.items() if key not in (*SPEED, TRUST)}
    settings = _contents(settings, Path()) | (
        {} if state is None else {"run": Content(file=state.removeprefix("sha256:"))}
    )
    code = _code(("agt_cli", usage.COMMANDS[command].module, *targets(config)))
    versions = {name: package_version(name) for name in PACKAGES}
    text = json.dumps([command, settings, code, versions], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=12).hexdigest()


def erasing(command: str, config: Mapping[str, Any]) -> bool:
    """Whether a job changes the run that it names."""
    return command == "unlearn" and not config.get("rehearse")


def signatures_on_earlier_states(command: str, config: Mapping[str, Any]) -> frozenset[str]:
    """Of a job that changes its run: the signatures that it had on each earlier state, as the run
    itself lists them.

    A finished job is this one by one of these alone: only a run that has been through the state
    that the job began with has had done to it what was asked; a copy from before has not.
    """
    if config.get("ids") is None:  # whatever waits now
        return frozenset()
    succeeds = open_run(Path(str(config["run"])), "train").environment.get("succeeds", ())
    return frozenset(signature(command, config, str(state)) for state in succeeds)


def _contents(node: Mapping[str, Any], data_dir: Path) -> dict[str, Any]:
    """Settings, in which what lies on the disk stands for its name.

    Args:
        data_dir: of the settings around these; their own goes before it.
    """
    data_dir = Path(str(node.get("data_dir", data_dir)))
    kept = {
        str(key): _content(key, value, data_dir) for key, value in node.items() if key not in PLACES
    }
    if (
        "_target_" in node
        and "data_dir" in node
        and not any(isinstance(value, Content) for value in kept.values())
    ):
        kept["data_dir"] = str(data_dir.absolute())  # it finds its files there by itself
    return kept


def _content(key: str, node: Any, data_dir: Path) -> Any:
    if isinstance(node, Mapping):
        return _contents(node, data_dir)
    if isinstance(node, list | tuple):
        return [_content(key, value, data_dir) for value in node]
    return node if key in NAMES or not isinstance(node, str) else _on_disk(node, data_dir)


class Content(dict[str, str]):
    """What stands for a name."""


def _on_disk(text: str, data_dir: Path) -> Any:
    """The content of a file, the manifest of a run, the names, sizes and times of another
    folder's files; else the text.
    """
    try:
        path = next(
            (path for path in possible_paths(Path(text), data_dir) if text and path.exists()), None
        )
    except (OSError, ValueError):  # longer than a name can be
        return text
    if path is None:
        return text
    path = path / MANIFEST if (path / MANIFEST).is_file() else path
    state = path.stat()
    if path.is_file():
        return Content(file=_sha256(path, state.st_size, state.st_mtime_ns))
    return (
        Content(folder=sha256(json.dumps(sorted(_inside(path))).encode()).hexdigest())
        if path.is_dir()
        else text
    )


def _inside(folder: Path) -> Iterator[tuple[str, int, int]]:
    for path in folder.rglob("*"):
        if path.is_file():
            state = path.stat()
            yield path.relative_to(folder).as_posix(), state.st_size, state.st_mtime_ns


@cache
def _sha256(path: Path, size: int, changed: int) -> str:
    """Of a file as it stands: the jobs of one sweep mostly read the same."""
    return file_sha256(path)


@cache
def _code(modules: tuple[str, ...]) -> str:
    """Read once: what a process has loaded stays as it is."""
    return code_digest(modules)
