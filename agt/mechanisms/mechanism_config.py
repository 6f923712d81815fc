"""A mechanism whose budget is stated once: by its own parameters, or by a total for the whole call.

    total = TotalConfig(eps=1.0, delta=1e-5)
    node = {"_target_": "agt.mechanisms.weights.ReleaseWeights"}
    config = MechanismConfig.from_settings(node, total)
    mechanism = config.mechanism(classes=2, queries=100)

No other module reads which parameters of a mechanism are its budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agt.errors import ConfigError
from agt.mechanism_settings import check_one_budget
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.output import Output
from agt.mechanisms.planning import Budget, afford
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.release_settings import classes_for_numbers
from agt.settings import TotalConfig, validate
from agt.targets import imported_with_settings

AnyMechanism = Mechanism | WeightsMechanism | CertifiedQuantile | LaplaceMean


@dataclass(frozen=True)
class MechanismConfig:
    """The settings of a mechanism, with a budget that is either per query or for the whole call.

    Attributes:
        kind: the mechanism's class.
        given: the mechanism's settings that are not null.
        total: the budget of the whole call; if it has no ``eps``, ``given`` contains the budget of
            one query.
    """

    kind: type[Any]
    given: Mapping[str, Any]
    total: TotalConfig

    @classmethod
    def from_settings(cls, node: object, total: TotalConfig) -> "MechanismConfig":
        """Return validated settings of a mechanism; nothing is read from data.

        Args:
            node: the mapping ``mechanism`` of a configuration.
            total: the mapping ``total`` of the same configuration.

        Raises:
            UntrustedCode: the class belongs to neither agt nor the code that the user has named.
            ConfigError: ``node`` names no mechanism, or no budget is stated, or two are.
        """
        name, kind, settings = imported_with_settings(node, "mechanism")
        is_mechanism = isinstance(kind, type) and issubclass(kind, AnyMechanism)
        if not is_mechanism or not hasattr(kind, "name"):  # abstract base classes have no name
            raise ConfigError(
                f"mechanism._target_: '{name}' is not a release mechanism: give the class of a "
                "release mechanism, for example agt.mechanisms.quantile.CertifiedQuantile"
            )
        given = {key: value for key, value in settings.items() if value is not None}
        config = cls(kind, given, total)
        config._check_budget()
        return config

    def _check_budget(self) -> None:
        """Raise ConfigError unless one budget is stated: the mechanism's own, or the total.

        A mechanism that is not pure-DP also needs a delta of the total.
        """
        check_one_budget(self.given, self.total, self.kind)
        if self.total.eps is None:
            validate(self.kind, self.given, "mechanism")  # raises ConfigError if out of range

    @property
    def releases_weights(self) -> bool:
        """Whether the mechanism releases weights, once for any number of queries."""
        return self.kind.output is Output.WEIGHTS

    @property
    def reads_records(self) -> bool:
        """Whether the mechanism computes new weights from the training records."""
        return bool(self.kind.reads_records)

    def mechanism(self, classes: int | None, queries: int) -> AnyMechanism:
        """Return the mechanism for a model; a total budget is divided among the queries.

        Args:
            classes: the number of classes of the model; None: its labels are numbers.
            queries: the number of queries that the file holds; ``total.queries``, if given, takes
                its place.

        Raises:
            ConfigError: the total leaves too little for each query, or the mechanism does not
                support as many classes.
        """
        settings = dict(self.given)
        releases_labels = self.kind.output is Output.LABELS
        # Answers that are numbers (of ``LaplaceMean``) have no classes.
        if releases_labels and not self.kind.of_numbers:
            if classes is None:
                raise classes_for_numbers(self.kind.name)
            settings.setdefault("classes", classes)
        total = self.total
        mechanism: AnyMechanism
        if total.eps is None:
            mechanism = validate(self.kind, settings, "mechanism")  # with a budget of its own
        elif releases_labels:
            if total.queries is not None:
                queries = total.queries
            budget = Budget(total.eps, total.delta, queries)
            mechanism = afford(self.kind, budget, settings.get("classes", 0))
        else:
            # Weights or a number are released once, and spend the whole total.
            mechanism = self.kind.within(total.eps, total.delta, **settings)
        return mechanism
