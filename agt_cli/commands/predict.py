"""agt predict: a finished training run and a file of queries -> labels that may be published,
with their guarantee.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

from agt.errors import ConfigError
from agt_cli.command_settings.predict import PREDICT_KEYS
from agt_cli.configuration import check_keys
from agt_cli.releasing.answers import PortableAnswers
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord

if TYPE_CHECKING:
    from agt_cli.releasing.private import PrivateAnswers


def configure(config: Mapping[str, Any]) -> Union["PrivateAnswers", PortableAnswers]:
    """Validate the settings, the budget and the run, or the release, before any data is read."""
    check_keys(config, PREDICT_KEYS)
    if config.get("release") is not None:
        return PortableAnswers.of(config)
    if config.get("run") is None:
        raise ConfigError(
            "run is missing: give run=FOLDER, the folder of a training run. To use weights "
            "that were released earlier, give release=FOLDER instead"
        )
    from agt_cli.releasing.private import PrivateAnswers  # loads torch, and what draws

    return PrivateAnswers.of(config)


def run(
    config: Union["PrivateAnswers", PortableAnswers], record: RunRecord, console: Console
) -> dict[str, Any]:
    """Judge the release, pay for it, say on disk what it spends, draw it and write it; or answer
    from one that was made.
    """
    return config.run(record, console)
