"""Settings of every command that answers queries with a finished run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agt.errors import ConfigError
from agt.settings import ComputeConfig, validate
from agt_cli.configuration import read_digest_setting

STANDARD_INPUT = Path("-")
"""``inputs`` of queries that come as JSON lines on standard input."""
RUN_SETTINGS = ("run", "digest", "inputs", "compute", "output_dir")
"""Settings of every command that answers queries with a finished run."""


def check_run_settings(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if ``digest``, ``inputs`` or a setting of ``compute`` is wrong."""
    inputs = config.get("inputs")
    if isinstance(inputs, list | Mapping):
        raise ConfigError(f"inputs={inputs}: give one file or folder of queries: inputs=FILE")
    # Both are called because they raise; the commands read the values again.
    read_digest_setting(config, "digest")
    validate(ComputeConfig, config.get("compute"), "compute")
