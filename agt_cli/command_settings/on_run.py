"""Settings of every command that answers queries with a finished run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agt.settings import ComputeConfig, validate
from agt_cli.configuration import digest_of

LINES = Path("-")
"""``inputs`` of queries that come as JSON lines on standard input."""
ON_RUN = ("run", "digest", "inputs", "compute", "output_dir")
"""Settings of every command that answers queries with a finished run."""


def check_on_run(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if ``digest`` is not a digest, or a setting of ``compute`` is wrong."""
    digest_of(config, "digest")
    validate(ComputeConfig, config.get("compute"), "compute")
