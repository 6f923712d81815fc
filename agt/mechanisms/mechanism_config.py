"""A mechanism whose budget is stated once: by its own parameters, or by a total for the whole call.

    total = TotalConfig(eps=1.0, delta=1e-5)
    config = MechanismConfig.of({"_target_": "agt.mechanisms.weights.ReleaseWeights"}, total)
    mechanism = config.mechanism(classes=2, queries=100)

Nothing else reads which parameters of a mechanism are its budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, cast

from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.guarantees import PureDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.output import Output
from agt.mechanisms.planning import Budget, afford
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.settings import NonNegative, Positive, schema, validate
from agt.targets import imported

BUDGET_KEYS = ("eps", "mu", "delta")
AnyMechanism = Mechanism | WeightsMechanism | CertifiedQuantile


@schema
class TotalConfig:
    """The budget of the whole call.

    Attributes:
        eps: of all queries together; None: the mechanism states its own budget.
        delta: of all queries together.
        queries: a public cap on how many queries there may be; None: as many as the file holds,
            whose length is public.
    """

    eps: Positive | None = None
    delta: Annotated[NonNegative, Field(lt=1)] = 0.0
    queries: Annotated[int, Field(ge=1)] | None = None


def mechanism_kind(node: object) -> type[Any]:
    """Return the class that the mapping ``mechanism`` of a configuration names.

    Raises:
        UntrustedCode: it is neither agt's own nor named by the user.
        ConfigError: it is no release mechanism.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(f"mechanism: expected a mapping with the entry _target_, got {node!r}")
    kind = imported(str(node["_target_"]), "mechanism")
    is_mechanism = isinstance(kind, type) and issubclass(kind, AnyMechanism)
    if not is_mechanism or not hasattr(kind, "name"):  # the base has none
        raise ConfigError(f"mechanism._target_: '{node['_target_']}' is not a release mechanism")
    return kind


@dataclass(frozen=True)
class MechanismConfig:
    """A mechanism and its budget, which is either its own or the whole call's.

    Attributes:
        kind: the mechanism's class.
        given: those of its settings that are not null.
        total: the budget of the whole call; without ``eps``, the mechanism states its own.
    """

    kind: type[Any]
    given: Mapping[str, Any]
    total: TotalConfig

    @classmethod
    def of(cls, node: object, total: TotalConfig) -> "MechanismConfig":
        """Return a validated configuration, before any data is read.

        Args:
            node: the mapping ``mechanism`` of a configuration.
            total: the mapping ``total`` of it.

        Raises:
            ConfigError: the mapping names no mechanism, or no budget is stated, or two are.
        """
        kind = mechanism_kind(node)
        given = {
            key: value
            for key, value in cast(Mapping[str, Any], node).items()
            if key != "_target_" and value is not None
        }
        config = cls(kind, given, total)
        config._check_budget()
        return config

    def _check_budget(self) -> None:
        """Raise ConfigError unless exactly one budget is stated, with its delta."""
        own = [
            f"mechanism.{key}"
            for key in BUDGET_KEYS
            if key in self.given and (key != "delta" or self.given["delta"])  # 0 states none
        ]
        if not own and self.total.eps is None:
            release = "the one release" if self.releases_weights else "each query"
            parameter_names = {field.name for field in fields(self.kind.spends)}
            parameters = [f"mechanism.{key}" for key in BUDGET_KEYS if key in parameter_names]
            raise ConfigError(
                "the release has no privacy budget: give total.eps (and total.delta) for all "
                f"queries together, or {' and '.join(parameters)} for {release}"
            )
        if own and self.total.eps is not None:
            raise ConfigError(f"total.eps and {own[0]} both state a budget: give one of them")
        if self.total.eps is None:
            validate(self.kind, self.given, "mechanism")
        elif not self.total.delta and self.kind.spends is not PureDP:
            raise ConfigError(
                f"mechanism={self.kind.name} needs a delta: give total.delta (1e-5, say) as well"
            )

    @property
    def releases_weights(self) -> bool:
        """Whether the mechanism releases weights, once for any number of queries."""
        return self.kind.output is Output.WEIGHTS

    @property
    def reads_records(self) -> bool:
        """Whether the mechanism computes weights anew from the training records."""
        return self.releases_weights and self.kind.reads_records

    def mechanism(self, classes: int, queries: int) -> AnyMechanism:
        """Return the mechanism for a model and a number of queries.

        Args:
            classes: how many classes the model has.
            queries: how many queries the file holds; a cap of the total takes precedence.

        Raises:
            ConfigError: no budget per query fits the total, or the mechanism does not take that
                many classes.
        """
        given = dict(self.given)
        releases_labels = self.kind.output is Output.LABELS
        if releases_labels:
            given.setdefault("classes", classes)
        total = self.total
        mechanism: AnyMechanism
        if total.eps is None:
            mechanism = validate(self.kind, given, "mechanism")
        elif releases_labels:
            budget = Budget(total.eps, total.delta, total.queries or queries)
            mechanism = afford(self.kind, budget, given["classes"])
        else:
            mechanism = self.kind.within(total.eps, total.delta, **given)
        return mechanism
