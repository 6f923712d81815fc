"""Settings of commands, without the runs and the data that they name.

Nothing here loads NumPy or PyTorch, so that a mistake in a setting is answered at once
(agt_cli/checks.py). The commands' own classes inherit from those here.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

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
from agt.targets import current_name
from agt_cli.configuration import digest_of, only_keys
from agt_cli.renamed import with_new_name
from agt_cli.usage import IDS_NEED_A_FILE

if TYPE_CHECKING:
    from agt.mechanisms.budget import Allowance

LINES = Path("-")
"""``inputs`` of queries that come as JSON lines on standard input."""
ON_RUN = ("run", "digest", "inputs", "compute", "output_dir")
"""Settings of every command that answers queries with a finished run."""


@keyword_schema
class CertifySettings:
    """How a run is certified.

    Attributes:
        map_resolution: points of a side of the map of the plane, where there is one; 0: no map.
        person: the ids of people without whose records the answers are computed, each alone. An id
            that was read as a whole number stays one, because ``+7`` and ``7`` are then the same.
    """

    map_resolution: Annotated[int, Field(ge=0, le=1000)] = 160
    person: tuple[str | int, ...] = ()


def check_certify(config: Mapping[str, Any]) -> CertifySettings:
    """Return the settings of agt certify but for the run.

    Raises:
        ConfigError: by key.
    """
    only_keys(config, (*ON_RUN, "map_resolution", "person"))
    if str(config.get("inputs")) == str(LINES):
        raise ConfigError(
            "inputs=-: agt certify cannot read queries from standard input. Give a file with "
            "inputs=FILE, or use agt predict"
        )
    check_on_run(config)
    given = {
        "map_resolution": config.get("map_resolution"),
        "person": _ids_of_people(config.get("person")),
    }
    return validate(CertifySettings, given, "")


def _ids_of_people(value: object) -> tuple[str | int, ...]:
    """Return the ids that the setting ``person`` names, one of them or a list; empty: none.

    Raises:
        ConfigError: the list is empty, or an entry is neither text nor a whole number.
    """
    if value is None:
        return ()
    entries = value if isinstance(value, list | tuple) else [value]
    valid = [type(entry) in (str, int) and str(entry) != "" for entry in entries]
    if not entries or not all(valid):
        raise ConfigError(
            f"person={value}: give the id of a person, or a list of ids as in person=[p17,p18]. "
            "Quote an id that is neither text nor a whole number, as in \"person='1.5'\""
        )
    return tuple(entries)


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

    Raises:
        ConfigError: no such mechanism, or a value is listed twice.
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
        if self.mechanisms is not None:
            # NumPy and SciPy, which no other setting of a plan needs
            from agt.mechanisms.mechanism import MECHANISMS

            for name in self.mechanisms:
                if name not in MECHANISMS:
                    hint = nearest(name, MECHANISMS)
                    raise ConfigError(f"mechanisms: unknown mechanism '{name}'{hint}")


def check_plan(config: Mapping[str, Any]) -> PlanSettings:
    """Return the settings of agt plan but for the run.

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
        _, total = check_private_answers(config)
        check_mechanism(config.get("mechanism"), total)


def check_mechanism(node: object, total: TotalConfig) -> None:
    """Raise ConfigError for a wrong setting of a mechanism of agt for labels.

    Nothing is checked where settings are missing, or where the total states the budget: then the
    mechanism's own are made from it.

    Args:
        node: the value of the key ``mechanism``.
        total: the budget of the whole call.
    """
    from agt.mechanisms.mechanism import MECHANISMS  # NumPy and SciPy

    if not isinstance(node, Mapping) or total.eps is not None:
        return
    names = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in MECHANISMS.values()}
    kind = names.get(current_name(str(node.get("_target_"))))
    if kind is None:
        return
    given = {key: value for key, value in node.items() if key != "_target_" and value is not None}
    required = {entry.name for entry in fields(kind) if entry.default is MISSING}
    if required <= given.keys():
        validate(kind, given, "mechanism")


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
            "certified": f"fraction of answers that are correct and certified at k = {self.k}",
            "expected": "expected accuracy of the weights when they are released with noise",
        }[self.objective]
        return (
            f"among the candidates whose {what} is within one standard error of the best one, "
            f"the candidate with the highest {other}"
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


def ids_by_pipe(config: Mapping[str, Any]) -> str:
    """Return what to type to give ids of records without a file."""
    run = config.get("run") or "RUN"
    return f"give the ids on standard input: printf 'ID1\\nID2\\n' | agt unlearn run={run} ids=-"


def check_unlearn(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of agt unlearn, but for the run and the ids."""
    only_keys(config, UNLEARN_KEYS)
    for key, choices, free in (("method", METHOD_CHOICES, False), ("by", get_args(By), True)):
        value = config.get(key)
        if value not in choices and not (free and value is None):
            hint = nearest(str(value), choices)
            raise ConfigError(f"{key}={value}: unknown value{hint}")
    for key in UNLEARN_FLAGS:
        value = config.get(key)
        if not isinstance(value, bool):
            shown = with_new_name("unlearn", key)
            raise ConfigError(f"{shown}={value}: give true or false")
    if isinstance(config.get("ids"), list | dict):
        raise ConfigError(f"ids=[...]: {IDS_NEED_A_FILE}. Without a file, {ids_by_pipe(config)}")
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
            endings = " or ".join(PAGES)
            raise ConfigError(f"page={page}: give a file name that ends with {endings}")
        if page.exists():
            raise ConfigError(
                f"page={page}: this file already exists, and agt does not overwrite it: give "
                "another name"
            )
        if page.resolve().is_relative_to(path.resolve()):
            raise ConfigError(
                f"page={page}: this file would be inside the folder that is verified: give a "
                "file outside of that folder"
            )
    digest_of(config, "digest")


@schema
class ReproduceConfig:
    """What is asked for.

    Attributes:
        name: the experiment's.
        profile: paper, ours, both side by side, or smoke.
        data: the papers' own (``original``), the definition's ``stand_in``, or ``either``: the
            first that is there.
        only: ids of artifacts; None: all.
        overrides: of agt train's configuration, for every run (where data lies, how to compute).
        runs_dir: where finished runs are kept and found again.
    """

    name: str
    profile: Literal["both", "paper", "ours", "smoke"] = "both"
    data: Literal["either", "original", "stand_in"] = "either"
    only: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    overrides: tuple[str, ...] = ()
    runs_dir: Annotated[str, Field(min_length=1)] = "outputs/reproduce/runs"


REPRODUCE_KEYS = ("name", "profile", "data", "only", "overrides", "runs_dir")


def check_reproduce(config: Mapping[str, Any]) -> ReproduceConfig:
    """Return the settings of agt reproduce, but for what the experiment has.

    Raises:
        ConfigError: by key.
    """
    only_keys(config, (*REPRODUCE_KEYS, "compute", "output_dir", "data_dir"))
    given = {key: config.get(key) for key in REPRODUCE_KEYS}
    return validate(ReproduceConfig, given, "reproduce")


def check_ledger(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong budget of a new ledger."""
    total = config.get("total")
    if config.get("action") != "init" or not isinstance(total, Mapping):
        return
    if total.get("eps") is not None:
        read_allowance(total)


def read_allowance(total: Mapping[str, Any]) -> "Allowance":
    """Return the budget of a new ledger.

    Args:
        total: the value of the key ``total``, in which ``eps`` is given.

    Raises:
        ConfigError: by key.
    """
    from agt.mechanisms.budget import Allowance  # NumPy and SciPy

    given = {key: value for key, value in total.items() if value is not None}
    return validate(Allowance, given, "total")
