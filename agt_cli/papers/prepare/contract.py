"""What every preparation is to the command that runs it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

OnProgress = Callable[[int, int], None]
"""Called with rows finished and rows in all."""


@dataclass(frozen=True)
class Outcome:
    """A finished preparation.

    Attributes:
        folder: the prepared data.
        metrics: flat numbers about it.
        facts: sentences for a person: what was used, split and declared public.
        train: the command line that trains on it.
    """

    folder: Path
    metrics: Mapping[str, float | int | str]
    facts: tuple[str, ...]
    train: str


class Preparation(Protocol):
    """What ``conf/prepare/NAME.yaml`` builds: a frozen, validated description that can run itself."""

    def run(self, on_progress: OnProgress, note: Callable[[str], None]) -> Outcome:
        """Write the folder, or finish the one that an interrupted run left.

        Args:
            on_progress: called after every chunk.
            note: called with a line about what is going on.

        Raises:
            DataMissing: raw data, or what it takes to read it, is not there; the message has the commands.
            DataError: the raw data is damaged or contradicts itself, or the disk is too small.
            ConfigError: settings that do not fit each other or the interrupted run.
        """
        ...
