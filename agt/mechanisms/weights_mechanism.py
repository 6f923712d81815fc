"""What every weights mechanism is: it publishes one linear head's weights once, with a guarantee.

    mechanism = ReleaseWeights.within(eps=1.0, delta=1e-5)
    head = mechanism.releasable_head(model)
    mechanism.check(head)                                 refuses what no proof covers
    released = mechanism.draw(head, SystemRandomness())   spends the guarantee

Formal guarantees
    - ``draw`` spends ``guarantee`` once. Labels that are computed from released weights are
      post-processing: any number of queries spends nothing more.
    - ``noise``, which travels with the weights, is a function of settings and public constants.
    - ``check`` and ``noise`` draw nothing: what they refuse is refused before anything is paid.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import ClassVar, Literal, Self

import numpy as np
import torch

import agt.mechanisms
from agt.errors import ConfigError
from agt.mechanisms.composition import per_query
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.mechanism import GuaranteeKind, Need, register
from agt.mechanisms.output import Output
from agt.messages import Message
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import Randomness
from agt.settings import validate
from agt.training.batches import check_unit_rows

REGISTERED: dict[str, type["WeightsMechanism"]] = {}


@dataclass(frozen=True)
class ReleasedWeights:
    """Weights that may be published.

    Attributes:
        weight: [J, d] float64, multiples of ``noise["step"]``.
        guarantee: of the release and of everything computed from it.
        noise: what the draw was made with, by name (``WeightsMechanism.noise``).
        simulated: True: drawn from a seeded generator, so that the guarantee does not hold.
        mechanism: the name of the mechanism that drew them.
        link: returns ``slope``, from what was released; None: the mechanism releases nothing to
            compute it from.
    """

    weight: np.ndarray
    guarantee: Guarantee
    noise: Mapping[str, float]
    simulated: bool
    mechanism: str
    link: Callable[[], float] | None = None

    @cached_property
    def slope(self) -> float | None:
        """softmax(slope * scores) are probabilities; worked out when it is first asked for."""
        return None if self.link is None else self.link()

    @property
    def described(self) -> dict[str, float]:
        """The guarantee's parameters and the noise, by name."""
        return {**self.guarantee.parameters, **self.noise}


@dataclass(frozen=True)
class AccuracyMethod:
    """How an expected accuracy is computed.

    Attributes:
        name: exact; to first order in the noise; or the mean of simulated releases.
        draws: how many releases are simulated; 0: none.
    """

    name: Literal["exact", "first order", "simulated"]
    draws: int = 0


EXACT = AccuracyMethod("exact")


class NoiseLaw(Enum):
    """The law of a release, from which an audit computes how well two neighbours are told apart."""

    ADDED_GAUSSIAN = "independent normal noise is added to each trained weight"
    LINEAR_TERM = "a random linear term is added to the loss, and the minimiser is released"
    OTHER = "another law, for which there is no audit attack"


class WeightsMechanism:
    """A mechanism that publishes the weights of one linear head, once.

    A subclass is decorated with ``agt.settings.schema``; its fields are the keys ``mechanism.*``,
    among them the parameters of its guarantee. It gives ``spends``, ``guarantee``, ``noise``,
    ``draw`` and ``expectation``. One that has a ``name`` of its own is registered by being defined.

    Attributes:
        name: its name in conf/groups/mechanism.yaml and in tables.
        needs: which conditions a release requires: all, as weights depend on all of training.
        output: what is released, which is weights.
        spends: the kind of guarantee that a total is turned into.
        reads_records: True: weights are solved anew from the training records, so that a head
            beside votes serves too. False: a trained head's own weights are released.
        accuracy_method: how ``expectation`` computes its numbers.
        noise_law: how ``agt audit weights`` attacks it; OTHER: only ``agt audit replay`` does.
    """

    name: ClassVar[str]
    needs: ClassVar[Need] = "distance"
    output: ClassVar[Output] = Output.WEIGHTS
    spends: ClassVar[GuaranteeKind]
    reads_records: ClassVar[bool] = False
    accuracy_method: ClassVar[AccuracyMethod] = EXACT
    noise_law: ClassVar[NoiseLaw] = NoiseLaw.OTHER

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        register(cls, REGISTERED)

    @classmethod
    def releasable_head(cls, model: Model) -> LinearModel:
        """Return the head of a model whose weights are released.

        Raises:
            ConfigError: the model has no such head.
        """
        head = model.release_head if cls.reads_records else model.linear_head
        if head is None:
            certificate = "erm" if cls.reads_records else "stability"
            raise ConfigError(
                Message(
                    "mechanism={name} only releases a single linear head: train with "
                    "{config:model=linear} certificate={certificate}, without an ensemble",
                    name=cls.name,
                    certificate=certificate,
                )
            )
        return head

    @classmethod
    def check_head(cls, head: LinearModel) -> None:
        """Raise ConfigError where no proof covers this head, whatever the budget and settings.

        A mechanism that reads records raises it as well where they are not there. The default takes
        every head.
        """

    def check(self, head: LinearModel) -> None:
        """Raise ConfigError where no proof covers a release from this head with this budget."""
        self.check_head(head)
        self.noise(head)  # called because it raises for a budget that is too little

    @classmethod
    def afford(cls, eps: float, delta: float) -> Guarantee:
        """Return the largest guarantee whose one release is (eps, delta)-DP, rounded down.

        Raises:
            ConfigError: eps or delta is out of range, or no guarantee of ``spends`` fits.
        """
        return per_query(cls.spends, eps, delta, 1)

    @classmethod
    def within(cls, eps: float, delta: float, **settings: object) -> Self:
        """Return the mechanism that a total affords.

        Args:
            eps: of the total.
            delta: of the total.
            settings: the mechanism's other settings, which do not state a budget, by name.

        Raises:
            ConfigError: nothing fits the total, or a setting is wrong.
        """
        return validate(cls, {**settings, **cls.afford(eps, delta).parameters}, "mechanism")

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one release, of the kind ``spends``."""
        raise NotImplementedError

    def noise(self, head: LinearModel) -> dict[str, float]:
        """Return the noise of a release from this head, by name; all of it is public.

        Names are not those of the guarantee's parameters, nor of a record's metrics.

        Returns:
            At least ``sigma``, the standard deviation of the noise on each weight (of the noise
            that is drawn last, where there are several), and ``step``, which is
            ``agt.numeric.step_of(sigma)``: weights are released as its multiples. Where sigma
            depends on the step in turn, as of noise that is drawn in whole steps, start from the
            sigma of continuous noise and repeat until the step stays the same.

        Raises:
            ConfigError: the budget is too little for this head; what to give instead is named.
        """
        raise NotImplementedError

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """Release the head's weights, which spends ``guarantee`` once.

        Args:
            head: one that ``check`` takes.
            source: SystemRandomness for a release; anything else is a simulation. Every draw whose
                distribution depends on private data goes through ``agt.numeric.answered``, as
                ``noisy`` and ``noisy_integers`` do, so that an audit can replay it. Of the two
                ``noisy`` alone refuses weights that are not finite.

        Raises:
            ConfigError: ``check`` would raise it.
            AgtError: a weight is not finite, or a solver missed its tolerance; nothing is released.
        """
        raise NotImplementedError

    def expected_accuracy(
        self, head: LinearModel, features: np.ndarray, labels: np.ndarray
    ) -> float:
        """Return the expected accuracy of labels from released weights, by ``accuracy_method``.

        It depends on the records, so it is for the data owner alone.

        Args:
            head: one that ``check_head`` takes.
            features: [n, ...] queries, as the head takes them.
            labels: [n] their true labels.
        """
        return self.expectation(head, features, labels)(self)

    @classmethod
    def expectation(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> Callable[[Self], float]:
        """Return the function that gives a mechanism's ``expected_accuracy`` on fixed queries.

        What no budget changes is computed once, however many mechanisms are asked about. Simulated
        releases draw from a generator with a fixed seed: the same budget gives the same number.

        Args:
            head: one that ``check_head`` takes.
            features: [n, ...] queries, as the head takes them.
            labels: [n] their true labels.
        """
        raise NotImplementedError

    @classmethod
    def training_rows(cls, head: LinearModel, unit_rows: int = 1) -> np.ndarray:
        """Return the indices of the records that weights are solved from, in the plan's order.

        Args:
            head: whose records are meant.
            unit_rows: how many records one unit may have.

        Raises:
            ConfigError: the records are not there, more than n_max, or more than ``unit_rows`` of
                one unit.
            DataError: memory-mapped records were edited after training.
        """
        units = head.problem.dataset.train.units
        head.problem.dataset.check_unchanged()
        if not len(units):
            raise ConfigError(
                f"mechanism={cls.name} solves the training problem again, so it needs the "
                "training records, which this loaded model does not have: release from the "
                "model that agt.fit returned, or with agt predict from its run"
            )
        # Votes never checked their records against the plan of the head beside them.
        check_unit_rows(units, unit_rows)
        return np.concatenate(list(replace(head.plan, epochs=1).batches(units)))


def labels_from(model: Model, features: np.ndarray) -> Callable[[ReleasedWeights], np.ndarray]:
    """Return the function that gives labels [n] int64 from released weights.

    It spends nothing more, whatever the number of queries.

    Args:
        model: the model that the weights are released from, for its public features.
        features: [n, ...] the queries, as the head takes them.

    Raises:
        ConfigError: the model has no linear head, or queries are of another width.
    """
    head = model.release_head
    if head is None:
        raise ConfigError(
            "model: only the weights of a linear head can be released, and this model has "
            "none: train with certificate=stability and model=linear"
        )
    head.check(features)

    def labels(released: ReleasedWeights) -> np.ndarray:
        return head.with_weight(torch.from_numpy(released.weight)).predict(features)

    return labels


def weights_mechanisms() -> dict[str, type[WeightsMechanism]]:
    """Return every weights mechanism by name: those of agt, and those that were defined elsewhere.

    They are in the order of tables: first those whose expected accuracy is exact, then those to
    first order, and last the simulated ones.
    """
    for module in iter_modules(agt.mechanisms.__path__, "agt.mechanisms."):
        import_module(module.name)  # a class is registered by being defined

    def rank(kind: type[WeightsMechanism]) -> tuple[int, int, str]:
        method = kind.accuracy_method
        return method.draws, int(method != EXACT), kind.name

    return {kind.name: kind for kind in sorted(REGISTERED.values(), key=rank)}
