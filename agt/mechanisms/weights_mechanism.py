"""The base class of weights mechanisms, which publish a linear head's weights with a guarantee.

    mechanism = ReleaseWeights.within(eps=1.0, delta=1e-5)
    head = mechanism.releasable_head(model)
    mechanism.check(head)                                 refuses what no proof covers
    released = mechanism.draw(head, SystemRandomness())   spends the guarantee

Formal guarantees
    - ``draw`` spends ``guarantee`` once. Labels that are computed from released weights are
      post-processing, so any number of queries spends no more.
    - ``noise``, which is published with the weights, depends on settings and public constants only.
    - ``check`` and ``noise`` draw nothing, so what they refuse is refused before any budget is
      spent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import ClassVar, Literal, Self

import numpy as np
import torch

import agt.mechanisms
from agt.errors import ConfigError
from agt.mechanism_settings import WeightsSettings
from agt.mechanisms.composition import per_query
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.mechanism import GuaranteeKind, register
from agt.mechanisms.output import Output
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import Randomness
from agt.release_settings import no_linear_head, weights_for_classes
from agt.settings import validate
from agt.training.batches import check_unit_rows

REGISTERED: dict[str, type["WeightsMechanism"]] = {}


@dataclass(frozen=True)
class ReleasedWeights:
    """Weights that a mechanism has released and that may be published.

    Attributes:
        weight: [J, d] float64, multiples of ``noise["step"]``.
        guarantee: the guarantee of the release, and of everything that is computed from it.
        noise: the public scales of the noise by name (``WeightsMechanism.noise``).
        simulated: True: the noise comes from a seeded generator, so the guarantee does not hold.
        mechanism: the name of the mechanism.
        link: computes ``slope`` from what was released; None: this mechanism has no such slope.
    """

    weight: np.ndarray
    guarantee: Guarantee
    noise: Mapping[str, float]
    simulated: bool
    mechanism: str
    link: Callable[[], float] | None = None

    @cached_property
    def slope(self) -> float | None:
        """The slope at which softmax(slope * scores) estimates class probabilities; None: unknown.

        It is computed when it is first asked for.
        """
        if self.link is None:
            return None
        return self.link()

    @property
    def public_parameters(self) -> dict[str, float]:
        """The guarantee's parameters and the scales of the noise, by name."""
        return {**self.guarantee.parameters, **self.noise}


@dataclass(frozen=True)
class AccuracyMethod:
    """The method by which the expected accuracy of released weights is computed.

    Attributes:
        name: ``exact``; ``first order``: to first order in the noise; ``simulated``: the mean over
            simulated releases.
        draws: the number of simulated releases; 0 unless ``simulated``.
    """

    name: Literal["exact", "first order", "simulated"]
    draws: int = 0


EXACT = AccuracyMethod("exact")


class WeightsMechanism(WeightsSettings):
    """A mechanism that publishes the weights of one linear head, once.

    A subclass is decorated with ``agt.settings.schema``. Its fields are the keys ``mechanism.*`` of
    a configuration, the parameters of its guarantee among them. It defines ``spends``,
    ``guarantee``, ``noise``, ``draw`` and ``expectation``. Defining a subclass with a ``name`` of
    its own registers it.

    Attributes:
        name: its name in conf/groups/mechanism.yaml and in tables.
        needs: the conditions that a release requires; all of them, because weights depend on all of
            training.
        output: the kind of release: weights.
        spends: the kind of guarantee that an (eps, delta) total is turned into.
        reads_records: True: weights are solved again from the training records, so the linear head
            of an ensemble of votes can be released, too. False: a trained head's own weights
            are released.
        accuracy_method: how ``expectation`` computes the expected accuracy.
    """

    output: ClassVar[Output] = Output.WEIGHTS
    spends: ClassVar[GuaranteeKind]
    accuracy_method: ClassVar[AccuracyMethod] = EXACT

    def __init_subclass__(cls) -> None:
        """Register the new mechanism under its name."""
        super().__init_subclass__()
        register(cls, REGISTERED)

    @classmethod
    def releasable_head(cls, model: Model) -> LinearModel:
        """Return the head of a model whose weights this mechanism releases.

        Raises:
            ConfigError: the model has no such head, or labels are numbers, which the mechanism does
                not take.
        """
        if model.problem.dataset.target.numeric is not None and not cls.releases_numbers:
            raise weights_for_classes(cls.name)
        # Weights that are solved from the records again may be those of a separate head that is
        # only for releases, which an ensemble of votes has. Others are the model's own.
        head = model.linear_head
        if cls.reads_records:
            head = model.release_head
        if head is None:
            raise no_linear_head(cls.name, cls.reads_records)
        return head

    @classmethod
    def check_head(cls, head: LinearModel) -> None:
        """Raise ConfigError unless the proof covers this head, whatever the budget and settings.

        A mechanism that reads records also raises it if they are not available. This default
        accepts every head.
        """

    def check(self, head: LinearModel) -> None:
        """Raise ConfigError unless the proof covers a release from this head with this budget."""
        self.check_head(head)
        self.noise(head)  # called because it raises if the budget is too small

    @classmethod
    def largest_guarantee(cls, eps: float, delta: float) -> Guarantee:
        """Return the largest guarantee whose one release is (eps, delta)-DP, rounded down.

        Raises:
            ConfigError: eps or delta is out of range, or no guarantee of the kind ``spends`` fits.
        """
        return per_query(cls.spends, eps, delta, 1)

    @classmethod
    def within(cls, eps: float, delta: float, **settings: object) -> Self:
        """Return the mechanism whose one release spends an (eps, delta) total.

        Args:
            eps, delta: the total.
            settings: the mechanism's other settings by name, without those that state a budget.

        Raises:
            ConfigError: no release fits the total, or a setting is wrong.
        """
        budget = cls.largest_guarantee(eps, delta).parameters
        return validate(cls, {**settings, **budget}, "mechanism")

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one release, of the kind ``spends``.

        Every subclass overrides it; this default raises NotImplementedError.
        """
        raise NotImplementedError

    def noise(self, head: LinearModel) -> dict[str, float]:
        """Return the public scales of the noise of a release from this head, by name.

        A name must differ from those of the guarantee's parameters and of a record's metrics.
        Every subclass overrides it; this default raises NotImplementedError.

        Returns:
            At least ``sigma`` and ``step``. ``sigma`` is the standard deviation of the noise on
            each weight; if there are several noises, of the one that is drawn last. ``step`` is
            ``agt.numeric.step_of(sigma)``, and released weights are its multiples. If sigma itself
            depends on the step (noise that is drawn in whole steps), start from the sigma of
            continuous noise and repeat until the step stays the same.

        Raises:
            ConfigError: the budget is too small for this head. The message names what to give
                instead.
        """
        raise NotImplementedError

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """Release the head's weights, which spends ``guarantee`` once.

        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            head: a linear head (the trained layer) that ``check`` accepts.
            source: SystemRandomness for a release. Anything else is a simulation, without a
                guarantee. Every draw whose distribution depends on private data must go through
                ``agt.numeric.draw_observably``, so that an audit can replay it. ``noisy`` and
                ``noisy_integers`` do so; only ``noisy`` also refuses weights that are NaN or
                infinite.

        Raises:
            ConfigError: ``check`` would raise it.
            AgtError: a weight is NaN or infinite, or a solver missed its tolerance. Then nothing is
                released.
        """
        raise NotImplementedError

    def expected_accuracy(
        self, head: LinearModel, features: np.ndarray, labels: np.ndarray
    ) -> float:
        """Return the expected accuracy of labels from released weights, by ``accuracy_method``.

        It depends on the records, so it is for the data owner only.

        Args:
            head: a linear head (the trained layer) that ``check_head`` accepts.
            features: [n, ...] queries, in the form that the head takes.
            labels: [n] the true labels of the queries.
        """
        return self.expectation(head, features, labels)(self)

    @classmethod
    def expectation(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> Callable[[Self], float]:
        """Return a function that gives a mechanism's ``expected_accuracy`` on fixed queries.

        For labels that are numbers it gives the expected RMSE. Values that do not depend on the
        budget are computed once for all calls of the function. Simulated releases draw from a fixed
        seed, so the same budget gives the same number. Every subclass
        overrides it; this default raises NotImplementedError.

        Args:
            head: a linear head (the trained layer) that ``check_head`` accepts.
            features: [n, ...] queries, in the form that the head takes.
            labels: [n] the true labels of the queries.
        """
        raise NotImplementedError

    @classmethod
    def training_rows(cls, head: LinearModel, unit_rows: int = 1) -> np.ndarray:
        """Return the row numbers of the records that weights are solved from, batch after batch.

        Args:
            head: a linear head; the rows are those of its training records.
            unit_rows: the largest number of records of one unit (for example one person).

        Raises:
            ConfigError: the records are not available, there are more than n_max in a batch, or
                more than ``unit_rows`` of one unit.
            DataError: memory-mapped records were changed after training.
        """
        train = head.problem.dataset.train
        units = train.units
        head.problem.dataset.check_unchanged()
        if not len(units):
            raise ConfigError(
                f"mechanism={cls.name} needs the training records, because it solves the training "
                "problem again, but this loaded model does not have them: release from the model "
                "that agt.fit returned, or use agt predict with the run of the model"
            )
        # Training an ensemble of votes does not check the records against the plan of its separate
        # head, so they are checked here.
        if train.units_named:  # else each record is a separate unit, and ids do not repeat
            check_unit_rows(units, unit_rows)
        plan_of_one_epoch = replace(head.plan, epochs=1)  # so that each record is in one batch
        return np.concatenate(list(plan_of_one_epoch.batches(units)))


def labels_from(model: Model, features: np.ndarray) -> Callable[[ReleasedWeights], np.ndarray]:
    """Return a function that computes the labels of fixed queries from released weights.

    Labels are post-processing of the weights, so any number of queries spends no more budget.

    Args:
        model: the model that the weights are released from. Its public features are used.
        features: [n, ...] the queries, in the form that the head takes.

    Returns:
        A function that takes released weights and returns the labels [n] int64.

    Raises:
        ConfigError: the model has no linear head, or the queries have another width.
    """
    head = model.release_head
    if head is None:
        raise ConfigError(
            "model: only the weights of a linear head can be released, and this model has "
            "none: train with certificate=stability and model=linear"
        )
    head.check(features)  # called because it raises if the queries have another width

    def labels(released: ReleasedWeights) -> np.ndarray:
        """Return the labels [n] int64 of the queries under released weights."""
        return head.with_weight(torch.from_numpy(released.weight)).predict(features)

    return labels


def weights_mechanisms() -> dict[str, type[WeightsMechanism]]:
    """Return every registered weights mechanism by name, those of other packages included.

    They are in the order of tables: first those with an exact expected accuracy, then those to
    first order, and last the simulated ones; by name within each.
    """
    for module in iter_modules(agt.mechanisms.__path__, "agt.mechanisms."):
        import_module(module.name)  # importing a module defines its classes, which registers them

    def rank(kind: type[WeightsMechanism]) -> tuple[int, int, str]:
        """Return the position in tables: exact first, then first order, then simulated."""
        method = kind.accuracy_method  # only a simulation has draws
        return method.draws, int(method != EXACT), kind.name

    ranked = sorted(REGISTERED.values(), key=rank)
    return {kind.name: kind for kind in ranked}
