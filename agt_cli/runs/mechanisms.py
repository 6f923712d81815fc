"""From conf/mechanism and a budget to the mechanism that agt predict runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.aggregate import CertifiedQuantile
from agt.mechanisms.guarantee import PureDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.objective import ObjectivePerturbation, objective_budget
from agt.mechanisms.planning import Budget, afford
from agt.mechanisms.release import WeightsMechanism
from agt.mechanisms.weights import ReleasedWeights, ReleaseWeights, weights_budget
from agt.settings import NonNegative, Positive, imported, schema, validate
from agt_cli.report.finished import FinishedRun, open_run
from agt_cli.runs.queries import digest_of

AnyMechanism = Mechanism | WeightsMechanism | CertifiedQuantile


@schema
class TotalConfig:
    """The budget of the whole call.

    Attributes:
        eps, delta: over all of its queries together.
        queries: a public cap on how many they may be; None: as many as the file holds, its length being public.
    """

    eps: Positive | None = None
    delta: Annotated[NonNegative, Field(lt=1)] = 0.0
    queries: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True)
class MechanismConfig:
    """A mechanism whose budget is stated once: its own in mechanism.*, or one for the whole call in total.*.

    Attributes:
        kind: its class.
        given: those of its settings that are not null.
        total: the budget of the whole call.
        weights: the folder of weights released earlier, to answer more queries from; None: release now.
        weights_digest: the digest that this release must have; None: any.
    """

    kind: type[Any]
    given: Mapping[str, Any]
    total: TotalConfig
    weights: Path | None = None
    weights_digest: str | None = None

    @classmethod
    def of(cls, node: object, total: TotalConfig) -> "MechanismConfig":
        """Validate what can be before any data is read.

        Raises:
            ConfigError: no mechanism, or no budget, or two.
        """
        if not isinstance(node, Mapping) or "_target_" not in node:
            raise ConfigError(f"mechanism: expected a mapping with a _target_, got {node!r}")
        kind = imported(str(node["_target_"]), "mechanism")
        if not (isinstance(kind, type) and issubclass(kind, AnyMechanism) and hasattr(kind, "name")):  # the base has none
            raise ConfigError(f"mechanism._target_: '{node['_target_']}' is no release mechanism")
        given = {key: value for key, value in node.items() if value is not None and key != "_target_"}
        weights, digest = None, None
        if kind is ReleaseWeights:
            digest, folder = digest_of(given, "weights_digest", "mechanism."), given.pop("weights", None)
            weights = None if folder is None else Path(str(folder))
            if given.pop("weights_digest", None) is not None and weights is None:
                raise ConfigError(
                    "mechanism.weights_digest is of an earlier release: give mechanism.weights, its folder, too"
                )
        config = cls(kind, given, total, weights, digest)
        config._check_budget()
        return config

    def _check_budget(self) -> None:
        parameters = [key for key in ("eps", "mu") if key in self.given] + (["delta"] if self.given.get("delta") else [])
        stated = [*(f"mechanism.{key}" for key in parameters), *(["total.eps"] if self.total.eps is not None else [])]
        if self.weights is not None:
            if stated:
                raise ConfigError(
                    f"mechanism.weights were released at a budget of their own, which they keep: leave out {stated[0]}"
                )
        elif not stated:
            each = "the one release" if self.releases_weights else "each query"
            name = "mu" if "mu" in self.kind.__dataclass_fields__ else "eps"
            name += " and mechanism.delta" if self.kind is ObjectivePerturbation else ""
            raise ConfigError(
                f"no budget: give total.eps (and total.delta) for the whole call, or mechanism.{name} for {each}"
            )
        elif parameters and self.total.eps is not None:
            raise ConfigError(f"total.eps and mechanism.{parameters[0]} both state a budget: give one of them")
        elif self.total.eps is None:
            validate(self.kind, self.given, "mechanism")
        elif not self.total.delta and self._needs_delta:
            raise ConfigError(
                f"mechanism={self.kind.name} gives no guarantee without a delta: give total.delta (1e-5, say) as well"
            )

    @property
    def releases_weights(self) -> bool:
        """Whether it is weights that are released, once for any number of queries."""
        return issubclass(self.kind, WeightsMechanism)

    @property
    def reads_records(self) -> bool:
        """Whether a release looks at the training records themselves, beside the model."""
        return self.kind is ObjectivePerturbation

    @property
    def _needs_delta(self) -> bool:
        return self.releases_weights or (issubclass(self.kind, Mechanism) and self.kind.spends is not PureDP)

    def mechanism(self, classes: int, queries: int) -> AnyMechanism:
        """The mechanism for a model of ``classes`` classes and that many queries.

        Raises:
            ConfigError: no budget per query fits the total, or the mechanism does not take that many classes.
        """
        eps, delta, given = self.total.eps, self.total.delta, dict(self.given)
        if issubclass(self.kind, Mechanism):
            classes = given.setdefault("classes", classes)
            if eps is not None:
                return afford(self.kind, Budget(eps, delta, self.total.queries or queries), classes)
        elif eps is not None:
            given |= _parameters(self.kind, eps, delta)
        mechanism: AnyMechanism = validate(self.kind, given, "mechanism")
        return mechanism


def _parameters(kind: type[Any], eps: float, delta: float) -> dict[str, float]:
    """The budget of one release that is all of a total."""
    if kind is ReleaseWeights:
        return weights_budget(eps, delta).parameters
    return objective_budget(eps, delta).parameters if kind is ObjectivePerturbation else {"eps": eps}


def earlier_weights(folder: Path, digest: str | None, trained: FinishedRun) -> tuple[ReleasedWeights, ReleaseWeights]:
    """Weights that an earlier call released from the same training run, wherever it lies now, and their mechanism.

    Args:
        folder: of that call's run.
        digest: that it must have; None: any.
        trained: the training run.

    Raises:
        ConfigError: not such a release, or one of another run, or a simulation.
    """
    release = open_run(folder, "predict", digest, "mechanism.weights")
    run, made_from = (release.environment.get(key) for key in ("trained_run", "trained_digest"))
    if made_from in trained.environment.get("succeeds", ()):
        raise ConfigError(
            f"mechanism.weights={folder}: released from an earlier state of {trained.folder}, before records were erased: "
            "what was published stays as it was, and its folder answers (agt predict release=FOLDER); to release from the "
            "run as it is now, leave mechanism.weights out"
        )
    if made_from != trained.digest:
        raise ConfigError(
            f"mechanism.weights={folder}: released from the run {run}, not from {trained.folder} (digests {made_from} and "
            f"{trained.digest})"
        )
    weight, constants = release.released_weights()
    if "mu" not in constants:
        raise ConfigError(
            f"mechanism.weights={folder}: released by {ObjectivePerturbation.name}: its folder answers by itself: "
            f"agt predict release={folder / 'release'}"
        )
    if constants.get("simulated"):
        raise ConfigError(
            f"mechanism.weights={folder}: a simulation (drawn with a seed), which guarantees nothing: release without seed"
        )
    mechanism = ReleaseWeights(mu=float(constants["mu"]), shrink=constants.get("shrink", False))
    noise = float(constants["sigma"]), float(constants["step"])
    return ReleasedWeights(weight, mechanism.guarantee, *noise, simulated=False, shrink=mechanism.shrink), mechanism
