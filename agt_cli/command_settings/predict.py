"""Settings of agt predict."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from agt.release_settings import (
    BUDGET_KEYS,
    MECHANISM_FACTS,
    MechanismBudget,
    MechanismFacts,
    check_one_budget,
)
from agt.settings import Accounting, Counting, TotalConfig, keyword_schema, validate
from agt.targets import current_name
from agt_cli.command_settings.on_run import check_run_settings
from agt_cli.configuration import check_keys


@keyword_schema
class PredictSettings:
    """How labels are released from a run.

    Attributes:
        accounting: as in ``agt.release.ReleaseTerms``.
        counting: as in ``agt.release.ReleaseTerms``.
        seed: the seed of a simulation; None: noise comes from the operating system.
        ledger: the ledger that counts the release, by name or path; ``none``: no ledger does; None:
            the one that the environment variable AGT_LEDGER names, if there is one.
        lot: for how many questions that come as JSON lines budget is reserved at once.
        force: True: release although the answers would hardly be better than guesses.
    """

    accounting: Accounting = "rigorous"
    counting: Counting = "distance"
    seed: Annotated[int, Field(ge=0)] | None = None
    ledger: str | None = None
    lot: Annotated[int, Field(ge=1)] = 1
    force: bool = False


ON_RELEASE = ("run", "release", "inputs", "digest", "ledger", "compute", "output_dir")
PREDICT_KEYS = (
    *ON_RELEASE,
    *("mechanism", "total", "accounting", "counting", "seed", "lot", "force"),
)


def check_private_answers(config: Mapping[str, Any]) -> tuple[PredictSettings, TotalConfig]:
    """Return how agt predict releases labels, and the budget of the whole call.

    Settings of the run and of the mechanism are not among them.

    Raises:
        ConfigError: a value is wrong; the message names the key.
    """
    total = validate(TotalConfig, config.get("total"), "total")
    check_run_settings(config)
    given = {key: config.get(key) for key in PredictSettings.__dataclass_fields__}
    return validate(PredictSettings, given, ""), total


def check_predict(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting of agt predict is wrong whatever the data are.

    Only keys are checked if released weights answer the queries (``release``), or if no run is
    named, because other code checks these cases.

    Args:
        config: the composed settings of ``agt predict``.
    """
    check_keys(config, PREDICT_KEYS)
    if config.get("release") is None and config.get("run") is not None:
        _, total = check_private_answers(config)
        check_mechanism(config.get("mechanism"), total)


def check_mechanism(node: object, total: TotalConfig) -> None:
    """Raise ConfigError for a wrong budget of a mechanism of agt.

    Its other settings are checked by its class, which loads NumPy.

    Args:
        node: the value of the key ``mechanism``.
        total: the budget of the whole call.
    """
    facts = mechanism_facts(node)
    if facts is None or not isinstance(node, Mapping):
        return
    given = {key: value for key, value in node.items() if key != "_target_" and value is not None}
    check_one_budget(given, total, facts)
    own = {key: given[key] for key in BUDGET_KEYS if key in given}
    validate(MechanismBudget, own, "mechanism")


def mechanism_facts(node: object) -> MechanismFacts | None:
    """Return the facts about a mechanism of agt; None: the mechanism is the user's own.

    Args:
        node: the value of the key ``mechanism``.
    """
    if not isinstance(node, Mapping):
        return None
    return MECHANISM_FACTS.get(current_name(str(node.get("_target_"))))
