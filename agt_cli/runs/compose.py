"""A command's configuration from overrides, as its own command line would give it: for what runs other commands' work."""

from collections.abc import Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from agt.errors import ConfigError
from agt_cli import search_path, usage


def composed(command: str, overrides: Sequence[str], complete: bool = True) -> dict[str, Any]:
    """The resolved configuration of ``command``, as plain containers.

    Args:
        complete: refuse where a required value was not given; else it is ???.

    Raises:
        ConfigError: an override does not fit.
    """
    config_name = usage.COMMANDS[command].config
    search_path.register()
    try:
        if GlobalHydra.instance().is_initialized():
            config = compose(config_name, list(overrides))
        else:
            with initialize_config_dir(str(usage.config_dir()), version_base="1.3"):
                config = compose(config_name, list(overrides))
    except Exception as error:
        from agt_cli.mistakes import explain

        raise explain(error, config_name, list(overrides)) or error from None
    return plain(config, complete)


def plain(config: DictConfig, complete: bool = True) -> dict[str, Any]:
    """A configuration as plain containers, interpolations resolved.

    Raises:
        ConfigError: a required value (???) was not given.
    """
    missing = sorted(OmegaConf.missing_keys(config)) if complete else []
    if missing:
        raise ConfigError(f"{missing[0]}: a value is required; give {missing[0]}=VALUE")
    resolved = OmegaConf.to_container(config, resolve=True)
    return {str(key): value for key, value in resolved.items()} if isinstance(resolved, dict) else {}
