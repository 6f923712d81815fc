"""Settings of commands, without the runs and the data that they name.

Nothing here loads NumPy or PyTorch, so that a mistake in a setting is answered at once
(agt_cli/checks.py). The commands' own classes inherit from those here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from agt.errors import ConfigError, nearest
from agt.settings import (
    Accounting,
    ComputeConfig,
    Counting,
    NonNegative,
    Positive,
    TotalConfig,
    keyword_schema,
    schema,
    validate,
)
from agt_cli.configuration import digest_of, only_keys

LINES = Path("-")
"""``inputs`` of queries that come as JSON lines on standard input."""
ON_RUN = ("run", "digest", "inputs", "compute", "output_dir")
"""Settings of every command that answers queries with a finished run."""


@keyword_schema
class CertifySettings:
    """How a run is certified.

    Attributes:
        map_resolution: points of a side of the map of the plane, where there is one; 0: no map.
    """

    map_resolution: Annotated[int, Field(ge=0, le=1000)] = 160


def check_certify(config: Mapping[str, Any]) -> CertifySettings:
    """Return the settings of agt certify but for the run.

    Raises:
        ConfigError: by key.
    """
    only_keys(config, (*ON_RUN, "map_resolution"))
    if str(config.get("inputs")) == str(LINES):
        raise ConfigError(
            "inputs=-: agt certify cannot read queries from standard input: give a file; or "
            "use agt predict, which answers line by line"
        )
    check_on_run(config)
    return validate(CertifySettings, {"map_resolution": config.get("map_resolution")}, "")


def check_on_run(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a digest that is none, or a wrong setting of ``compute``."""
    digest_of(config, "digest")
    validate(ComputeConfig, config.get("compute"), "compute")


@keyword_schema
class PlanSettings:
    """What is to be planned.

    Attributes:
        eps, delta: total budgets.
        queries: how many may share one.
        mechanisms: their names; None: all that the model can use.
        published: where ``mechanisms`` is None, those that are kept to reproduce papers, too.
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
                    raise ConfigError(f"{key}: the value {value} is listed twice")


def check_plan(config: Mapping[str, Any]) -> PlanSettings:
    """Return the settings of agt plan but for the run and whether there are such mechanisms.

    Raises:
        ConfigError: by key.
    """
    keys = ("eps", "delta", "queries", "mechanisms", "published", "counting")
    only_keys(config, (*keys, *ON_RUN))
    check_on_run(config)
    return validate(PlanSettings, {key: config.get(key) for key in keys}, "")


@keyword_schema
class PredictSettings:
    """How labels are released from a run.

    Attributes:
        accounting, counting: as in ``agt.release.ReleaseTerms``.
        seed: of a simulation; None: the operating system draws.
        ledger: that pays, by name or path; none: no account; None: AGT_LEDGER's, or no account.
        lot: how many questions of JSON lines are paid at once.
        force: release although it would hardly be worth its budget.
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
    """Return the settings of agt predict but for the run and the mechanism, and the total budget.

    Raises:
        ConfigError: by key.
    """
    total = validate(TotalConfig, config.get("total"), "total")
    check_on_run(config)
    given = {key: config.get(key) for key in PredictSettings.__dataclass_fields__}
    return validate(PredictSettings, given, ""), total


def check_predict(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of agt predict, where it answers with a run."""
    only_keys(config, PREDICT_KEYS)
    if config.get("release") is None and config.get("run") is not None:
        check_private_answers(config)


TuningObjective = Literal["accuracy", "certified", "expected"]


@schema
class TuneConfig:
    """What is compared, by what.

    Attributes:
        public: the rows declared public, with their labels (``ChosenFrom.rows``); None: training
            records marked public.
        grid: key -> values, every combination of which is a candidate; None: ``neighbours``.
        folds: of the public rows.
        objective: what is compared: accuracy; the fraction right and certified at ``k``; the
            expected accuracy of released weights at total.eps and total.delta.
        k: a distance.
        name: of the experiment file; None: the dataset's with _tuned.
    """

    public: Annotated[str, Field(min_length=1)] | None = None
    grid: Mapping[str, Annotated[tuple[Any, ...], Field(min_length=1)]] | None = None
    folds: Annotated[int, Field(ge=2, le=100)] = 5
    objective: TuningObjective = "certified"
    k: Annotated[int, Field(ge=1)] = 20
    name: Annotated[str, Field(pattern=r"^[\w-]+$")] | None = None

    @property
    def words(self) -> str:
        """How the choice is made, in words."""
        other = (
            "accuracy"
            if self.objective == "certified"
            else f"fraction of answers that are correct and certified at k = {self.k}"
        )
        what = {
            "accuracy": "accuracy",
            "certified": f"the fraction of answers that are correct and certified at k = {self.k}",
            "expected": "the expected accuracy of released weights",
        }[self.objective]
        return (
            f"best by {what}; among all candidates within one standard error of the best, the "
            f"one with the highest {other}"
        )


TUNE_KEYS = ("tune", "total")
MEASURE_KEYS = ("total", "name")
"""Settings of agt tune, and of agt measure, that are not those of a training."""
By = Literal["id", "unit"]
METHOD_CHOICES = ("auto", "certificate", "newton", "sisa", "retrain")
"""``method`` of agt unlearn: what ``agt_cli.unlearn.methods.METHODS`` has, or the cheapest."""
UNLEARN_KEYS = (
    *("run", "digest", "ids", "by", "method", "forbid_retraining", "fresh", "rehearse"),
    *("compute", "output_dir"),
)
UNLEARN_FLAGS = ("forbid_retraining", "fresh", "rehearse")


def check_unlearn(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of agt unlearn, but for the run and the ids."""
    only_keys(config, UNLEARN_KEYS)
    for key, choices, free in (("method", METHOD_CHOICES, False), ("by", get_args(By), True)):
        value = config.get(key)
        if value not in choices and not (free and value is None):
            raise ConfigError(
                f"{key}={value}: expected one of {', '.join(choices)}{nearest(str(value), choices)}"
            )
    for key in UNLEARN_FLAGS:
        if not isinstance(config.get(key), bool):
            raise ConfigError(f"{key}={config.get(key)}: expected true or false")
    digest_of(config, "digest")


VERIFY_KEYS = ("path", "digest", "page", "ledger", "head")
PAGES = (".html", ".md")


def check_verify(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong digest, or a page that cannot be written."""
    only_keys(config, VERIFY_KEYS)
    path = Path(str(config["path"])).expanduser()
    if config.get("page") is not None:
        page = Path(str(config["page"]))
        if page.suffix not in PAGES:
            raise ConfigError(f"page={page}: give a file name that ends with {' or '.join(PAGES)}")
        if page.exists():
            raise ConfigError(
                f"page={page}: this file already exists and is not overwritten: give another name"
            )
        if page.resolve().is_relative_to(path.resolve()):
            raise ConfigError(
                f"page={page}: this place is in the folder that is verified, which must not "
                "be changed: give a place outside of it"
            )
    digest_of(config, "digest")
