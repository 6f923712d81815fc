"""Do the tasks that the first process of a command sends to the others (``agt_cli.team``)."""

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
from agt_cli.team import END_TASK, MAX_WAIT_SECONDS, QUERIES, SPLITS, Team, published_exit_code


def work() -> int:
    """Do the tasks that the first process sends until it has ended, and return its exit code.

    This process has no command line, record, ledger or randomness of its own. It knows what the
    first process sends, and the data and runs that this names. It writes nothing, and prints only
    the traceback of a bug: the first process reports all errors.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        # There is nothing to clean up, and Python runs no handler while it waits for others.
        signal.signal(number, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    group = ALONE
    try:
        with together(MAX_WAIT_SECONDS) as joined:
            group = joined
            worker = Worker(Team.from_group(group))
            code = None
            while code is None:
                code = worker.do_next_task()
            return code
    except Exception as error:
        if explain(error, "", ()) is None:
            traceback.print_exc()
    return published_exit_code(group)


@dataclass
class Worker:
    """One of the other processes. ``TASK_METHODS`` lists the methods that are tasks.

    Attributes:
        team: all processes.
        settings: the settings of the training; None: nothing is trained.
        prepared: the data of the training; None: nothing is trained.
        model: the model that was trained or opened; None: there is no model yet.
        known: features that this process has read, by the names that the first process uses.
    """

    team: Team
    settings: Any = None
    prepared: Any = None
    model: Model | None = None
    known: Mapping[str, np.ndarray] = field(default_factory=dict)

    def do_next_task(self) -> int | None:
        """Wait for a task, and do it.

        Returns:
            None; or the exit code of the first process, if that has ended.
        """
        sent: tuple[Any, ...] = self.team.group.broadcast(())
        task, *arguments = sent
        if task == END_TASK:
            return int(arguments[0])
        # The last argument names the code that the first process may import.
        with trusting(arguments.pop()):
            TASK_METHODS[task](self, *arguments)
        return None

    def prepare(self, config: Mapping[str, Any]) -> None:
        """Read the data of a training.

        Args:
            config: the configuration of the training.
        """
        from agt_cli.runs.prepare import prepare, read_settings_and_learner

        def read_settings_and_data() -> None:
            self.settings = read_settings_and_learner(config)
            self.prepared = prepare(self.settings, Console(json=True, quiet=True))

        self.team.call_in_all(read_settings_and_data)
        self.known = {split: getattr(self.prepared.dataset, split).features for split in SPLITS}

    def fit(self) -> None:
        """Train on the data."""
        self.model = fit(self.prepared.problem(self.settings))

    def open(self, config: Mapping[str, Any]) -> None:
        """Read a finished run's model, and queries that are too many to be sent.

        Args:
            config: the command's settings; ``run``, ``digest``, ``inputs`` and ``compute`` are
                read.
        """

        from agt_cli.runs.queries import TrainedRun

        def make() -> tuple[Any, Any]:
            trained = TrainedRun.from_config(config)
            return trained, trained.read_without_data()

        trained, (self.model, queries) = self.team.call_in_all(make)
        self.known = {QUERIES: queries.features}
        trained.check_group_agrees(self.team.group)

    def answer(
        self, method: str, name: str | None, features: np.ndarray | None, *more: Any
    ) -> None:
        """Call a method of the model.

        Args:
            method: the name of the method.
            name: the name of the features in ``known`` that are the method's first argument; None:
                the argument is ``features``.
            features: the features that were sent; None: they are named instead.
            more: the other arguments of the method.
        """
        getattr(self.model, method)(features if name is None else self.known[name], *more)


TASK_METHODS = {
    task.__name__: task for task in (Worker.prepare, Worker.fit, Worker.open, Worker.answer)
}
