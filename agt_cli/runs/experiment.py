"""conf/experiment/NAME.yaml: settings that were chosen, kept where ``agt train experiment=NAME`` finds them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from agt.disk import write_atomic
from agt.errors import ConfigError
from agt_cli.report.record import to_yaml
from agt_cli.runs.choices import PARTS
from agt_cli.runs.compose import composed

FOLDER = Path("conf/experiment")  # of the working directory


def free_path(name: str) -> Path:
    """Where the experiment of this name goes.

    Raises:
        ConfigError: there is one.
    """
    path = FOLDER / f"{name}.yaml"
    if path.exists():
        raise ConfigError(f"{path} is there already: give another name, tune.name=NAME, or move it away")
    return path


def write_experiment(path: Path, config: Mapping[str, Any], comment: str) -> None:
    """Write a training configuration as an experiment: which options its command line composed, and what differs.

    Args:
        config: resolved, as plain containers.
        comment: for people, a line.
    """
    options = {group: option for group, option in chosen_options().items() if group.partition("/")[0] in PARTS}
    plain = composed("train", [f"{group}={option}" for group, option in options.items()], complete=False)
    content = {part: _difference(plain.get(part), config[part]) for part in PARTS}
    content["dataset"].pop("data_dir", None)  # where files lie is no setting
    defaults = [*({f"override /{group}": option} for group, option in options.items()), "_self_"]
    body = {"defaults": defaults, **{part: node for part, node in content.items() if node}}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, f"# @package _global_\n# {comment}\n{to_yaml(body)}".encode())


def chosen_options() -> dict[str, str]:
    """Group -> the option that this command line composed, by itself or through an experiment."""
    chosen = HydraConfig.get().runtime.choices
    return {str(group): str(option) for group, option in chosen.items() if option is not None}


def _difference(plain: Any, wanted: Any) -> Any:
    """What must be said beside ``plain`` to have ``wanted``."""
    if not (isinstance(plain, Mapping) and isinstance(wanted, Mapping)):
        return wanted
    return {key: _difference(plain.get(key), value) for key, value in wanted.items() if plain.get(key, ...) != value}
