"""The processes beside the first: what each does when the first asks for it (``agt_cli.team``)."""

import signal
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agt.distributed import ALONE, together
from agt.models.fitting import fit
from agt.models.model import Model
from agt.targets import trusting
from agt_cli.errors import explain
from agt_cli.report.console import Console
from agt_cli.team import FOREVER, OVER, QUERIES, SPLITS, Team, word_of_the_first


def work() -> int:
    """Do what the first process asks for, until it has ended; returns its exit code.

    The processes beside the first have no command line, record, ledger or randomness of their own,
    write nothing and print nothing but the traceback of a bug: what they know is what the first
    sends, and the data and runs that this names. Whatever goes wrong here, the first process hears
    of it and tells it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        # there is nothing to put in order, and a call to others hears no handler
        signal.signal(number, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    group = ALONE
    try:
        with together(FOREVER) as joined:
            group = joined
            worker = Worker(Team.of(group))
            while (code := worker.hear()) is None:
                pass
            return code
    except Exception as error:
        if explain(error, "", ()) is None:
            traceback.print_exc()
    return word_of_the_first(group)


@dataclass
class Worker:
    """One of them: its public methods are the tasks.

    Attributes:
        team: all.
        settings, prepared: of what is trained.
        model: that was trained, or is asked.
        known: features by the names that the first process calls them.
    """

    team: Team
    settings: Any = None
    prepared: Any = None
    model: Model | None = None
    known: Mapping[str, np.ndarray] = field(default_factory=dict)

    def hear(self) -> int | None:
        """Do the next task; the exit code of the first process, if it has ended."""
        sent: tuple[Any, ...] = self.team.group.broadcast(())
        task, *given = sent
        if task == OVER:
            return int(given[0])
        with trusting(given.pop()):  # what the first process may import, whose command line it is
            TASKS[task](self, *given)
        return None

    def prepare(self, config: Mapping[str, Any]) -> None:
        """Read a training's data."""

        from agt_cli.runs.prepare import prepare, settings_to_train

        def make() -> tuple[Any, Any]:
            settings = settings_to_train(config)
            return settings, prepare(settings, Console(json=True, quiet=True))

        self.settings, self.prepared = self.team.made(make)
        self.known = {split: getattr(self.prepared.dataset, split).features for split in SPLITS}

    def fit(self) -> None:
        """Train on it."""
        self.model = fit(self.prepared.problem(self.settings))

    def open(self, config: Mapping[str, Any]) -> None:
        """Read a finished run's model, and queries that are too many to be sent."""

        from agt_cli.runs.queries import TrainedRun

        def make() -> tuple[Any, Any]:
            trained = TrainedRun.of(config)
            return trained, trained.read()

        trained, (self.model, queries) = self.team.made(make)
        self.known = {QUERIES: queries.features}
        trained.agree(self.team.group)

    def answer(
        self, method: str, name: str | None, features: np.ndarray | None, *more: Any
    ) -> None:
        """Ask the model, about features that were sent, or known by name."""
        getattr(self.model, method)(features if name is None else self.known[name], *more)


TASKS = {task.__name__: task for task in (Worker.prepare, Worker.fit, Worker.open, Worker.answer)}
