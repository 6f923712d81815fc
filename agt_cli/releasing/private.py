"""agt predict of a finished training run: settings and budget, who pays, and the draw."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from pydantic import InstanceOf

from agt.errors import ConfigError
from agt.ledger.payer import NoPayer
from agt.mechanisms.accounts import Uncounted
from agt.mechanisms.mechanism_config import MechanismConfig
from agt.numeric import Randomness, SeededRandomness, SystemRandomness
from agt.release import ReleaseTerms
from agt.settings import keyword_schema
from agt_cli.command_settings.on_run import STANDARD_INPUT
from agt_cli.command_settings.predict import PredictSettings, check_private_answers
from agt_cli.ledger_files import NO_LEDGER
from agt_cli.releasing.file import release_file
from agt_cli.releasing.known_records import (
    constants_warning,
    names_training_table,
    query_warning,
    training_table_sentence,
)
from agt_cli.releasing.ledgers import people_of_run
from agt_cli.releasing.payer import payer_of
from agt_cli.releasing.request import PredictRequest
from agt_cli.releasing.session import serve
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.pending import PendingErasures
from agt_cli.runs.queries import OpenedRun, TrainedRun


def _warn_owner(opened: OpenedRun, console: Console, may_stop: bool) -> None:
    """Say which constants were proposed from the rows, and which queries are training records.

    Args:
        may_stop: True: if ``inputs`` names the training table, the command ends before it pays.

    Raises:
        ConfigError: ``inputs`` names the training table, and ``may_stop`` is True.
    """
    run = opened.trained.finished
    inputs = opened.trained.inputs
    if note := constants_warning(run):
        console.note(note)
    if inputs is None or inputs == STANDARD_INPUT:
        return
    # The names of files are public. What the content of queries tells about the records is private,
    # so it must not decide whether there is an answer.
    if may_stop and names_training_table(run, inputs):
        raise ConfigError(
            f"{training_table_sentence(inputs)}. No budget was spent; to release nevertheless, add "
            "force=true"
        )
    if warning := query_warning(run, inputs, opened.queries, opened.stored.source):
        console.warn(warning)


@keyword_schema
class PrivateAnswers(PredictSettings):
    """The settings of agt predict for a finished training run.

    Attributes:
        trained: the training run and the queries.
        mechanism: the mechanism and its budget.

    Raises:
        ConfigError: a setting has no effect with this mechanism or these queries.
    """

    trained: InstanceOf[TrainedRun]
    mechanism: InstanceOf[MechanismConfig]

    def __post_init__(self) -> None:
        self.check_effects(
            self.mechanism.kind.name,
            self.mechanism.releases_weights,
            self.trained.inputs == STANDARD_INPUT,
        )

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "PrivateAnswers":
        """Validate the settings, the budget and the run of a configuration; no data is read.

        Raises:
            ConfigError: a setting, the budget or the run is not possible, or erasures of the run
                are pending.
        """
        settings, total = check_private_answers(config)
        mechanism = MechanismConfig.from_settings(config.get("mechanism"), total)
        trained = TrainedRun.from_config(config)
        PendingErasures.from_run(trained.finished).refuse(f"mechanism={mechanism.kind.name}")
        return cls(trained=trained, mechanism=mechanism, **vars(settings))

    def run(self, record: RunRecord, console: Console) -> dict[str, Any]:
        """Judge the release, pay for it, write spent.json, draw the release and write it.

        Nothing is paid for in a simulation (with ``seed``).

        Returns:
            The object that --json prints.

        Raises:
            ConfigError: the release is refused, or there are more queries than the budget is for.
            CheckError: some queries were not answered, or the run was changed meanwhile.
        """
        randomness: Randomness = (
            SystemRandomness() if self.seed is None else SeededRandomness(self.seed)
        )
        if randomness.simulated and self.ledger not in (None, NO_LEDGER):
            console.note(
                f"ledger={self.ledger} is not used, because a simulation is not a release: nothing "
                "is debited"
            )
        mechanism = self.mechanism
        lines = self.trained.inputs == STANDARD_INPUT
        opened = self.trained.open(record, console, mechanism.reads_records)
        _warn_owner(opened, console, may_stop=not (self.force or randomness.simulated))
        count = len(opened.queries)
        max_queries = mechanism.total.queries
        if max_queries is not None and count > max_queries:
            raise ConfigError(
                f"total.queries={max_queries} is less than the number of queries, which is "
                f"{count}: give a larger total.queries=..., or fewer queries"
            )
        trained = opened.trained.finished
        paying = payer_of(self.ledger, people_of_run(trained), record, trained.digest)
        with nullcontext(NoPayer()) if randomness.simulated else paying as payer:
            terms = ReleaseTerms(
                conditions=opened.conditions,
                accounting=self.accounting,
                counting=self.counting,
                delta=mechanism.total.delta,
                payer=payer,
                randomness=randomness,
            )
            request = PredictRequest(mechanism, terms, payer, opened, record, console, self.force)
            result = serve(request, self.lot) if lines else release_file(request)
            if isinstance(payer, NoPayer) and payer.uncounted == Uncounted("unnamed"):
                console.note(
                    "to count all releases about the same data, create a ledger with agt ledger "
                    "init NAME run=FOLDER total.eps=EPS, and give ledger=NAME. Each release is "
                    "then debited from the ledger before anything is drawn"
                )
            return result
