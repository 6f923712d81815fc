"""A run with its training data, opened to be attacked: neighbours of it are trained."""

from agt.audit.findings import Finding, Outcome
from agt.errors import ConfigError, DataMissing
from agt.settings import validate
from agt_cli.audit.job import Given
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.mechanisms import AnyMechanism, MechanismConfig, TotalConfig
from agt_cli.runs.queries import OpenedRun, TrainedRun

OWNER = "for the data owner alone: it names units, and says what a mechanism saw of a query on the private data"


def mechanism_of(given: Given, such: str = "mechanism=randomized_response mechanism.eps=1") -> MechanismConfig:
    """The mechanism that is audited, with its budget. Raises ConfigError: none, or no budget.

    Args:
        such: an example, for who named none.
    """
    if given.config.get("mechanism") is None:
        raise ConfigError(f"mechanism: name what is audited: {such}, say")
    return MechanismConfig.of(given.config["mechanism"], validate(TotalConfig, given.config.get("total"), "total"))


def check_run(given: Given) -> TrainedRun:
    """The run that is audited, of which no data is read yet.

    Raises:
        ConfigError: it is no finished training run, or queries are brought along; or training drew noise, which training
            again would draw anew.
    """
    if given.config.get("inputs") is not None:
        raise ConfigError(f"inputs={given.config['inputs']}: the audit searches its own queries: leave it out")
    trained = TrainedRun.of(given.config)
    if trained.settings.noise is not None:
        raise ConfigError(
            f"run={given.run}: its training drew noise, which training on a neighbour draws anew, so that two models "
            "cannot be compared one by one: use agt audit dpsgd"
        )
    return trained


def open_with_data(given: Given, record: RunRecord, console: Console, instead: str) -> OpenedRun:
    """The run, with the records that it was trained on.

    Args:
        instead: what can be audited without them.

    Raises:
        DataMissing: they are not there.
        ConfigError: they are not what they were.
    """
    try:
        return check_run(given).open(record, console)
    except DataMissing as error:
        raise DataMissing(
            f"{error}\nneighbours of run={given.run} cannot be trained without its data; without data: {instead}"
        ) from None


def not_found(mechanism: AnyMechanism, neighbours: int, sought: str) -> Finding:
    """What is said where no pair was found, so that nothing was drawn.

    Args:
        sought: of the neighbours, in words.
    """
    return Finding(
        subject=mechanism.name,
        claim=str(mechanism.guarantee),
        attack=f"{sought} was looked for",
        effort=f"{neighbours} neighbouring datasets at most, made at queries between test records of different labels",
        outcome=Outcome.UNTESTED,
        meaning=(
            "none was found, so that nothing was drawn: raise audit.neighbours, or use a run with more test records and "
            "of both labels, between which queries are looked for"
        ),
        measure="mu" if "mu" in mechanism.guarantee.parameters else "epsilon",
    )
