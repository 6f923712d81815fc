"""Settings of agt plan."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from agt.errors import ConfigError, nearest
from agt.mechanism_settings import OWN_MECHANISMS
from agt.settings import Counting, NonNegative, Positive, keyword_schema, validate
from agt_cli.command_settings.on_run import RUN_SETTINGS, check_run_settings
from agt_cli.configuration import check_keys


@keyword_schema
class PlanSettings:
    """The releases that agt plan compares: every mechanism at every budget and number of queries.

    Attributes:
        eps: the total budgets, each for all queries together.
        queries: the numbers of queries that share a budget.
        delta: the delta of each budget.
        mechanisms: the names of the mechanisms; None: all that the model can use.
        published: True: if ``mechanisms`` is None, mechanisms that agt has only to reproduce papers
            are compared as well.
        counting: what the evidence of a query counts: "distance": how many edits of the training
            data certainly leave its label; "index": how many values of a sparse grid of such
            numbers are certified.

    Raises:
        ConfigError: a mechanism does not exist, or a value is listed twice.
    """

    eps: Annotated[tuple[Positive, ...], Field(min_length=1)]
    queries: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    delta: Annotated[NonNegative, Field(lt=1)] = 1e-5
    mechanisms: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    published: bool = False
    counting: Counting = "distance"

    def __post_init__(self) -> None:
        for key in ("eps", "queries", "mechanisms"):
            values = getattr(self, key) or ()
            for value in values:
                if values.count(value) > 1:
                    raise ConfigError(
                        f"{key}: the value {value} is listed twice: give each value once"
                    )
        known = [kind.name for kind in OWN_MECHANISMS.values() if kind.releases == "labels"]
        for name in self.mechanisms or ():
            if name not in known:
                hint = nearest(name, known)
                raise ConfigError(f"mechanisms: unknown mechanism '{name}'{hint}")


def check_plan(config: Mapping[str, Any]) -> PlanSettings:
    """Return the settings of agt plan but for ``run``, ``inputs``, ``digest`` and ``compute``.

    The last two are checked as well.

    Raises:
        ConfigError: a key is unknown, or a value is wrong; the message names the key.
    """
    keys = ("eps", "delta", "queries", "mechanisms", "published", "counting")
    check_keys(config, (*keys, *RUN_SETTINGS))
    check_run_settings(config)
    return validate(PlanSettings, {key: config.get(key) for key in keys}, "")
