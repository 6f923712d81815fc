"""Settings of agt predict."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from agt.errors import ConfigError
from agt.mechanism_settings import check_own_mechanism
from agt.settings import Accounting, Counting, TotalConfig, keyword_schema, validate
from agt.targets import own_settings
from agt_cli.command_settings.on_run import STANDARD_INPUT, check_run_settings
from agt_cli.configuration import check_keys
from agt_cli.renamed import with_new_name


@keyword_schema
class PredictSettings:
    """How labels are released from a run.

    Attributes:
        accounting: "rigorous" refuses a release that is not proved to be private; "paper" releases
            as the papers do, and says what is not proved.
        counting: what the evidence of a query counts: "distance": how many edits of the training
            data certainly leave its label; "index": how many values of a sparse grid of such
            numbers are certified.
        seed: the seed of a simulation; None: noise comes from the operating system.
        ledger: the ledger that counts the release, by name or path; ``none``: no ledger does; None:
            the one that the environment variable AGT_LEDGER names, if there is one.
        lot: the number of questions that come as JSON lines for which budget is reserved at once.
        force: True: release although the answers would hardly be better than guesses, or most
            queries are training records.
    """

    accounting: Accounting = "rigorous"
    counting: Counting = "distance"
    seed: Annotated[int, Field(ge=0)] | None = None
    ledger: str | None = None
    lot: Annotated[int, Field(ge=1)] = 1
    force: bool = False

    def check_effects(self, mechanism: str, releases_weights: bool, reads_lines: bool) -> None:
        """Raise ConfigError if a setting has no effect.

        Args:
            mechanism: the name of the mechanism.
            releases_weights: whether it releases weights.
            reads_lines: whether queries come as JSON lines on standard input.
        """
        for key, default in (("accounting", "rigorous"), ("counting", "distance")):
            value = getattr(self, key)
            if releases_weights and value != default:
                setting = with_new_name("predict", f"{key}={value}")
                shown_key = with_new_name("predict", key)
                raise ConfigError(
                    f"{setting} has no effect, because mechanism={mechanism} does not use stable "
                    f"distances: leave {shown_key}=... out"
                )
        if self.lot > 1 and not reads_lines:
            raise ConfigError(
                f"reserve={self.lot} has no effect: it sets how many queries are paid for at once "
                "with inputs=-, but all queries of a file are paid for together. Leave "
                "reserve=... out"
            )


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

    Only keys are checked if nothing is named that answers, because other code checks this case.

    Args:
        config: the composed settings of ``agt predict``.
    """
    check_keys(config, PREDICT_KEYS)
    if config.get("release") is not None:
        check_portable_answers(config)
    elif config.get("run") is not None:
        settings, total = check_private_answers(config)
        kind = own_settings(config.get("mechanism"))
        if kind is not None:
            reads_lines = str(config.get("inputs")) == str(STANDARD_INPUT)
            settings.check_effects(kind.name, kind.releases == "weights", reads_lines)
        check_mechanism(config.get("mechanism"), total)


def check_portable_answers(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting does not suit answers from weights that were released.

    Args:
        config: the composed settings of ``agt predict``; ``release`` is among them.
    """
    folder = config["release"]
    given = [key for key in ("run", "seed", "ledger") if config.get(key) is not None]
    total = validate(TotalConfig, config.get("total"), "total")
    given += [f"total.{key}" for key, value in vars(total).items() if value]
    mechanism = config.get("mechanism") or {}
    given += [f"mechanism.{key}" for key, value in mechanism.items() if value and key != "_target_"]
    if given:
        setting = given[0]
        raise ConfigError(
            f"release={folder}: released weights answer without further noise, so the "
            f"setting {setting}=... has no effect: leave it out"
        )
    if config.get("inputs") is None:
        raise ConfigError(
            f"release={folder}: no queries were given: give their file with inputs=FILE. Only "
            "run=FOLDER answers without one, for the rows that were kept out of training"
        )
    if str(config["inputs"]) == str(STANDARD_INPUT):
        raise ConfigError(
            f"release={folder}: only run=FOLDER answers queries on standard input (inputs=-): "
            "write the queries into a file and give inputs=FILE. Released weights label any number "
            "of files without a further cost"
        )


def check_mechanism(node: object, total: TotalConfig) -> None:
    """Raise ConfigError for a wrong setting of a mechanism of agt; others are not checked.

    Args:
        node: the value of the key ``mechanism``.
        total: the budget of the whole call.
    """
    kind = own_settings(node)
    if kind is None or not isinstance(node, Mapping):
        return
    given = {key: value for key, value in node.items() if key != "_target_" and value is not None}
    check_own_mechanism(given, total, kind)
