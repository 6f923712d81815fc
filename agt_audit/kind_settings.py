"""Settings of the kinds of audit, and what each kind requires of the other settings and the run.

Nothing here loads NumPy or PyTorch, so that a mistake is answered at once. The kinds (a file of
agt_audit each) inherit from these classes.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from agt.errors import ConfigError
from agt.mechanism_settings import OWN_MECHANISMS, MechanismSettings, NoiseLaw
from agt.settings import (
    Accounting,
    Count,
    Counting,
    NonNegativeInt,
    Positive,
    TotalConfig,
    check_choice,
    schema,
    validate,
)
from agt.targets import own_settings
from agt.training.settings import read_noise_config
from agt.unlearning.promise import MethodName
from agt_cli.command_settings.on_run import STANDARD_INPUT
from agt_cli.command_settings.predict import check_mechanism
from agt_cli.command_settings.unlearn import METHOD_CHOICES
from agt_cli.report.finished import Run
from agt_cli.report.opening import check_edits

RUN_MISSING = "run: give the folder of a finished `agt train` run, or write run=latest"
Natural = Annotated[int, Field(ge=0, le=65_536)]
Workers = Annotated[int, Field(ge=1, le=1024)] | None


class AuditSettings:
    """What settings are checked against: the name of a kind of audit, and what it can audit.

    Attributes:
        name: the kind's name in settings, ``agt audit NAME``.
        takes_run: whether it audits a run; others attack a mechanism, or the auditor, by itself.
        takes_queries: whether it takes the user's own queries (``inputs``).
        needs_classes: whether it attacks labels that are classes; it then refuses a run whose
            labels are numbers.
        takes_mechanism: whether it attacks a mechanism.
        example: settings to type that name a mechanism.
    """

    name: ClassVar[str]
    takes_run: ClassVar[bool] = True
    takes_queries: ClassVar[bool] = False
    takes_mechanism: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False
    example: ClassVar[str] = "mechanism=randomized_response mechanism.eps=1"

    def check_settings(self, config: Mapping[str, Any], run: Run | None) -> None:
        """Raise ConfigError unless the run and the mechanism suit this kind; no data is read.

        Args:
            config: the settings of ``agt audit``.
            run: the run that they name, whose files are read without comparing their hashes; None:
                they name none.
        """
        named = config.get("run")
        inputs = config.get("inputs")
        if self.takes_run:
            if run is None:
                raise ConfigError(RUN_MISSING)
            if not self.takes_queries and inputs is not None:
                raise ConfigError(
                    f"inputs={inputs}: this audit uses the run's own records and "
                    "chooses its queries itself. Leave inputs=... out"
                )
            self.check_run(run)
        elif self.takes_mechanism and named is not None:
            raise ConfigError(
                f"run={named}: `agt audit {self.name}` attacks a mechanism by itself. Leave "
                f"run=... out, or type `agt audit replay run={named} mechanism=...`, which attacks "
                "a release from the run"
            )
        if self.takes_mechanism:
            self.check_mechanism(config)
        elif config.get("mechanism") is not None:
            raise ConfigError(
                "mechanism=...: this audit attacks the model's own outputs. Leave mechanism=... "
                "out, or type `agt audit prediction` with it, which attacks released labels"
            )

    def check_run(self, run: Run) -> None:
        """Raise ConfigError unless this kind can audit a run.

        Args:
            run: the training run.
        """
        check_edits(run, f"agt audit {self.name}")
        dataset = run.config.get("dataset") or {}
        if self.needs_classes and dataset.get("target") == "numeric":
            raise ConfigError(
                f"run={run.folder}: `agt audit {self.name}` attacks models of classes, but this "
                "run answers with numbers. Audit its certified intervals with `agt audit "
                "certificate`, and its releases with `agt audit prediction` or `agt audit replay` "
                "(mechanism=laplace_mean)"
            )

    def check_mechanism(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigError unless a mechanism with a budget is given that this kind can attack.

        A mechanism of the user's own is checked by ``check_kind_of_mechanism`` later, once its code
        is imported.

        Args:
            config: the settings of ``agt audit``.
        """
        node = config.get("mechanism")
        if node is None:
            raise ConfigError(f"mechanism: name the mechanism to audit, for example {self.example}")
        kind = own_settings(node)
        if kind is not None:
            self.check_kind_of_mechanism(kind)
            check_mechanism(node, validate(TotalConfig, config.get("total"), "total"))

    def check_kind_of_mechanism(self, kind: type[MechanismSettings]) -> None:
        """Raise ConfigError if this kind of audit cannot attack a mechanism; by default accept it.

        Args:
            kind: the class of the mechanism, or of its settings.
        """


def is_trained_with_noise(run: Run) -> bool:
    """Return whether a run's training added noise to its steps, as its settings say."""
    return read_noise_config(run.config.get("noise")) is not None


@schema
class CertificateSettings(AuditSettings):
    """Settings of ``agt audit certificate``."""

    units: NonNegativeInt | None = 200
    neighbours: NonNegativeInt = 100
    farthest: Annotated[int, Field(ge=1, le=10_000)] = 3
    bounded: NonNegativeInt = 4
    queries: NonNegativeInt = 200
    lines: NonNegativeInt = 8
    seconds: Positive | None = None
    again: bool = True

    name = "certificate"


@schema
class DpSgdAuditSettings(AuditSettings):
    """Settings of ``agt audit dpsgd``."""

    records: Count = 200
    canary: Literal["signs", "dirac", "mislabelled", "adversarial"] = "signs"
    canaries: NonNegativeInt = 100
    trials: Count = 200
    step_runs: Count = 50

    name = "dpsgd"
    needs_classes = True

    def check_run(self, run: Run) -> None:
        super().check_run(run)
        if not is_trained_with_noise(run):
            raise trained_without_noise()


def trained_without_noise() -> ConfigError:
    """Return the error about a run without noise in an audit of training with noise."""
    return ConfigError(
        "run: this run was trained without noise, so it makes no privacy claim about its "
        "weights. Give a run that was trained with noise.epsilon=NUMBER"
    )


@schema
class MembershipSettings(AuditSettings):
    """Settings of ``agt audit membership``."""

    shadows: Annotated[int, Field(ge=0, le=4096, multiple_of=2)] = 64
    workers: Workers = None
    exposed: Count = 50

    name = "membership"
    needs_classes = True


@schema
class MemorisationSettings(AuditSettings):
    """Settings of ``agt audit memorisation``."""

    shadows: Annotated[int, Field(ge=2, le=4096, multiple_of=2)] = 64
    workers: Workers = None
    targets: NonNegativeInt = 200
    shown: Count = 50

    name = "memorisation"
    needs_classes = True


@schema
class PredictionAuditSettings(AuditSettings):
    """Settings of ``agt audit prediction``."""

    trials: Annotated[int, Field(ge=10)] = 10_000
    together: Annotated[int, Field(ge=2)] = 4
    targets: Count = 3

    name = "prediction"
    takes_queries = True
    takes_mechanism = True

    def check_run(self, run: Run) -> None:
        super().check_run(run)
        if is_trained_with_noise(run):
            raise ConfigError(
                f"run={run.folder}: the training of this run used random noise, so models of "
                "neighbouring datasets cannot be compared with it. Use `agt audit dpsgd` for "
                "this run"
            )

    def check_settings(self, config: Mapping[str, Any], run: Run | None) -> None:
        super().check_settings(config, run)
        if str(config.get("inputs")) == str(STANDARD_INPUT):
            raise ConfigError(
                "inputs=-: this audit chooses its own queries and does not read standard input. "
                "Leave inputs=- out, or give inputs=FILE with typical queries"
            )
        if self.together > self.trials:
            raise ConfigError(
                f"audit.together={self.together} exceeds audit.trials={self.trials}: set "
                f"audit.trials={self.together} or more"
            )
        total = validate(TotalConfig, config.get("total"), "total")
        if total.eps is not None and total.queries is None:
            raise ConfigError(
                "total.eps is divided among the queries: give their number too, with "
                "total.queries=NUMBER"
            )

    def check_kind_of_mechanism(self, kind: type[MechanismSettings]) -> None:
        if kind.releases != "labels":
            names = [own.name for own in OWN_MECHANISMS.values() if own.releases == "labels"]
            label_mechanisms = " or ".join(names)
            raise ConfigError(
                f"mechanism={kind.name}: `agt audit prediction` can only audit mechanisms "
                f"that release labels. Give mechanism={label_mechanisms}"
            )


@schema
class ReplaySettings(AuditSettings):
    """Settings of ``agt audit replay``."""

    neighbours: Count = 2
    queries: Count = 100

    name = "replay"
    takes_mechanism = True

    def check_settings(self, config: Mapping[str, Any], run: Run | None) -> None:
        """Raise ConfigError unless a mechanism with a budget is given, or training had noise.

        A training with noise in each step is replayed itself, so no mechanism may be given for it.
        """
        if run is None or not is_trained_with_noise(run):
            super().check_settings(config, run)
        elif config.get("mechanism") is not None:
            raise ConfigError(
                f"mechanism=... cannot be given here: run={run.folder} was trained with random "
                "noise, so the audit replays its training. Leave mechanism=... out"
            )


@schema
class UnlearningSettings(AuditSettings):
    """Settings of ``agt audit unlearning``."""

    records: Count = 8
    trials: Annotated[int, Field(ge=1, le=10_000)] = 2
    methods: tuple[MethodName, ...] | None = None
    releases: Annotated[int, Field(ge=40, le=10**7)] = 20_000
    queries: Count = 500

    name = "unlearning"
    needs_classes = True
    takes_queries = True

    def __post_init__(self) -> None:
        methods = METHOD_CHOICES[1:]  # without ``auto``
        unknown = [method for method in self.methods or () if method not in methods]
        if unknown:
            unknown_method = unknown[0]
            known = ", ".join(methods)
            raise ConfigError(
                f"audit.methods: `agt unlearn` has no method '{unknown_method}'. Choose from: "
                f"{known}"
            )


@schema
class MechanismAuditSettings(AuditSettings):
    """Settings of ``agt audit mechanism``."""

    trials: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    farthest: Natural = 100
    values: tuple[Natural, ...] | None = None

    name = "mechanism"
    takes_run = False
    takes_mechanism = True

    def check_settings(self, config: Mapping[str, Any], run: Run | None) -> None:
        super().check_settings(config, run)
        for key, choices in (("accounting", Accounting), ("counting", Counting)):
            check_choice(config.get(key), choices, key)

    def check_kind_of_mechanism(self, kind: type[MechanismSettings]) -> None:
        """Raise ConfigError for released weights, and for settings without effect.

        The meaning of ``values`` and ``farthest`` depends on the mechanism.
        """
        name = kind.name
        if kind.releases == "weights":
            raise ConfigError(
                f"mechanism={name}: `agt audit mechanism` cannot audit released weights. Use "
                "`agt audit weights` or `agt audit replay`"
            )
        if kind.needs == "votes" and (self.values is not None or not self.farthest):
            raise ConfigError(
                f"mechanism={name} uses the answers of ensemble members, so audit.values=... has "
                "no effect. Give audit.farthest=NUMBER_OF_MEMBERS (1 or more) instead"
            )
        if kind.releases != "labels" and self.values is not None:
            raise ConfigError(
                f"audit.values=... has no effect on mechanism={name}: the audit makes up two "
                "quantiles that differ by 1. Leave audit.values=... out"
            )


@schema
class WeightsAuditSettings(AuditSettings):
    """Settings of ``agt audit weights``."""

    trials: Annotated[int, Field(ge=1, le=10_000_000)] = 2000
    width: Annotated[int, Field(ge=1, le=100_000)] = 4

    name = "weights"
    takes_run = False
    takes_mechanism = True
    example = "mechanism=release_weights mechanism.mu=1"

    def check_kind_of_mechanism(self, kind: type[MechanismSettings]) -> None:
        if kind.noise_law is NoiseLaw.OTHER:
            raise ConfigError(
                f"mechanism={kind.name}: `agt audit weights` cannot draw releases of this "
                "mechanism. Use `agt audit replay`, or give mechanism=release_weights or "
                "mechanism=objective_perturbation"
            )


@schema
class SelftestSettings(AuditSettings):
    """Settings of ``agt audit selftest``, which needs no run."""

    name = "selftest"
    takes_run = False
