"""The user's own ./conf on Hydra's search path, behind the package's: a name of ours means ours."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from agt_cli import usage


class UserConf(SearchPathPlugin):
    """Adds the folder that is there when a configuration is composed."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """As Hydra asks of its plugins."""
        folder = usage.user_conf()
        if folder is not None:
            search_path.append("user", f"file://{folder}")


def register() -> None:
    """Let every composition in this process look there; once is enough, and more does nothing."""
    Plugins.instance().register(UserConf)
