"""The interface of trained models, the same for every kind of certificate."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.certificates.envelopes import Envelope
from agt.data.arrays import ROWS
from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.distributed import group
from agt.errors import ConfigError
from agt.messages import Message
from agt.models.store import FileWriter
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.store.json_text import Metrics
from agt.training.batches import BatchPlan
from agt.training.loop import OnProgress, ignore_progress, row_reporter
from agt.training.noise import NoisePlan

if TYPE_CHECKING:
    from agt.models.box import BoxModel
    from agt.models.linear import LinearModel
    from agt.models.number_votes import NumberVotes
    from agt.models.voting import Votes

T = TypeVar("T")


@dataclass(frozen=True)
class RemovableWeights:
    """The weights of a linear head that supports removing records, with and without noise.

    The noise hides the small error that a removal leaves in the weights.

    Attributes:
        weight: [J, d] the weights before noise; J is 1 for two classes, else their number.
        noisy_weight: [J, d] the weights that predict: ``weight`` with noise.
        sigma: the standard deviation of the noise in each coordinate; 0: there is no noise.
        noise_is_random: True if the operating system drew the noise; False if a recorded seed did,
            so that anybody who knows the seed can repeat it.
        distance: a bound on the l2 distance between ``weight`` and the exact minimiser.
    """

    weight: np.ndarray
    noisy_weight: np.ndarray
    sigma: float
    noise_is_random: bool
    distance: float


@dataclass(frozen=True)
class Model(ABC):
    """The interface of trained models, for every kind of certificate.

    Labels are indices of classes, 0 to C - 1. Queries and records are arrays [n, ...] on the scale
    of the features in the problem's dataset. The stable distance of a query is the largest number
    of edits of the training records that cannot change its label; the relation of the settings
    defines what one edit (one unit of k) is.

    What is not abstract has a default: that of a single model that was trained without noise, has
    no feature map, and does not support removing records. A subclass overrides it where it differs.

    Attributes:
        problem: the training records and all settings.
        instant: True if certifying a query takes no longer than predicting its label.
    """

    problem: Problem
    instant: ClassVar[bool] = False

    @property
    def settings(self) -> Settings:
        """All settings that the model was trained with."""
        return self.problem.settings

    @property
    def members_per_edit(self) -> int:
        """The number of members of an ensemble that one edit of the data can change.

        It is 2 if an edit replaces a record, because the old and the new one may be in two shards.
        """
        return RELATIONS[self.settings.relation.name].members_changed_per_edit

    @property
    @abstractmethod
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy claim, a to g (docs/method.md), in this order.

        They say that training on a neighbouring dataset differs in nothing that the bounds leave
        out. Each is proved, declared by the user, or not met.
        """

    @property
    @abstractmethod
    def plan(self) -> BatchPlan:
        """The plan of the batches that the model was trained on."""

    @property
    def noise(self) -> NoisePlan | None:
        """The noise that training added to its steps; None, the default: it added none."""
        return None

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences for a report on removing records later; empty by default."""
        return ()

    @property
    def linear_head(self) -> "LinearModel | None":
        """The model itself if it is a single linear head, whose weights can be released.

        None, the default, for every other model.
        """
        return None

    @property
    def boxed_network(self) -> "BoxModel | None":
        """This model if it is a single network with bounds on each parameter; None (default): not.

        The bounds contain the parameters of every training within k edits of the training records.
        Training may add noise to its steps.
        """
        return None

    @property
    def release_head(self) -> "LinearModel | None":
        """The linear head that a release of weights may train on the records itself.

        Such a release adds noise to the sums or to the objective that it minimises. A linear head
        returns itself, a model of votes an untrained head on the same records, and any other model
        None, the default.
        """
        return None

    @property
    def shard_votes(self) -> "Votes | None":
        """The model itself if its members are handled as one model, and vote.

        Each member depends on its own shard of the records alone, so that a few members can be
        trained again without the others. None, the default: the model has no members, or each is a
        model of its own.
        """
        return None

    @property
    def number_votes(self) -> "NumberVotes | None":
        """The model itself if its labels are numbers, certified by intervals.

        None, the default: labels are classes.
        """
        return None

    @property
    @abstractmethod
    def metrics(self) -> Metrics:
        """Facts about the model by name, such as its number of parameters, for a run's metrics."""

    @abstractmethod
    def save(self, store: FileWriter) -> None:
        """Write the files that ``load`` of the model's kind reads back."""

    @property
    @abstractmethod
    def max_distance(self) -> int:
        """A public upper bound on every stable distance, k of the grid and difference of votes."""

    @abstractmethod
    def check(self, features: np.ndarray) -> None:
        """Raise an error for queries that the model cannot answer.

        Whether an error is raised depends on the queries and on public values, and on no trained
        parameter, so an error reveals nothing about the training records.

        Args:
            features: [n, ...] the queries.

        Raises:
            ConfigError: the queries have the wrong shape.
            UnsoundError: a query is not finite in the model's precision.
        """

    @abstractmethod
    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the labels [n] int64 of queries [n, ...], without noise."""

    @abstractmethod
    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return the signed margins of queries, which are 0 on the decision boundaries.

        Args:
            features: [n, ...] the queries.

        Returns:
            For two classes [1, n], positive where class 1 is predicted. For more classes [C, n]:
            each class's score less the greatest score of the other classes.
        """

    def certified_margins(self, features: np.ndarray, certificates: Certificates) -> np.ndarray:
        """Return ``margins`` of queries that were certified, to the same bits.

        What the certificates tell about the queries is not computed again; by default they tell
        nothing.

        Args:
            features: [n, ...] the queries.
            certificates: the certificates of these queries, as ``certify`` of this model returned
                them.
        """
        return self.margins(features)

    @abstractmethod
    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return each class's probability, or its fraction of an ensemble's votes, [n, C].

        Each row adds up to 1, up to rounding.

        Args:
            features: [n, ...] the queries.
        """

    @abstractmethod
    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> Certificates:
        """Return the labels of queries, and the numbers of edits that cannot change them.

        Args:
            features: [n, ...] the queries.
            ks: certify only at these k of the grid, for example the few that a plot shows; None:
                at every k of the grid.
            on_progress: called after every block of queries, or after every member of an ensemble.
        """

    @property
    def member_models(self) -> "tuple[Model, ...]":
        """The models of an ensemble's members; by default the model itself, a single model."""
        return (self,)

    @property
    def counting_single_edits(self) -> "Model":
        """This model with certificates in which one edit removes or adds one unit.

        It differs from the model only if one unit of k does both, as under ``substitute``. By
        default it is the model itself, whose certificates count single edits or can count no
        others.
        """
        return self

    @property
    def public_features(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """The function from raw features [n, ...] to the public features [n, w] of the head.

        None, the default: the head takes the raw features.
        """
        return None

    @property
    def removable_weights(self) -> RemovableWeights | None:
        """The weights from which records can be removed without training again.

        None, the default: this kind of certificate has no such method.
        """
        return None

    @property
    def stores_noise(self) -> bool:
        """True if the noise of the training is stored, for ``retrain_with_same_noise``.

        False, the default: training added no noise, or its noise is not stored.
        """
        return False

    def retrain_with_same_noise(self, problem: Problem) -> "Model":
        """Train a new model on another problem, with the random noise of this model's training.

        By default it raises ConfigError, because the noise is not stored. A kind of model that
        stores it (``stores_noise`` is True) overrides this method; this model is not changed.

        Args:
            problem: other records, such as those of a neighbouring dataset, with equal settings.

        Raises:
            ConfigError: the noise is not stored.
        """
        certificate = self.settings.certificate.name
        raise ConfigError(
            f"certificate={certificate} does not store the random draws of its training, so "
            "agt cannot repeat the training with the same draws"
        )

    def with_problem(self, problem: Problem) -> Self:
        """Return a model with the same parameters and another problem.

        Args:
            problem: the other problem, for example this model's own without its training records.
        """
        return replace(self, problem=problem)

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return whether the public rows of a dataset give this model's feature map, bit for bit.

        A model without a feature map returns True, as by default.
        """
        return True

    def save_shards(self, writer: FileWriter) -> None:  # noqa: B027  # a default, not a duty
        """Write which records each member of an ensemble was trained on.

        By default nothing is written, as of a single model.
        """

    def member_margins(self, features: np.ndarray) -> np.ndarray:
        """Return the ``margins`` of each of the T members for queries [n, ...].

        Returns:
            [T, 1, n] for two classes, else [T, C, n]. Members that only vote have margins 1 and -1.
        """
        return np.stack([member.margins(features) for member in self.member_models])

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Return bounds on each query's margin of class 1 after k edits of the training records.

        An ensemble of two classes that averages margins needs them. By default it raises
        ConfigError.

        Args:
            features: [n, ...] the queries.
            ks: the numbers of edits; None: all that such an ensemble uses.

        Raises:
            ConfigError: this kind of certificate has no bounds on margins.
        """
        raise ConfigError(
            Message(
                "{config:ensemble.vote}=margins adds the members' margins, but certificate={name} "
                "does not bound margins: use {config:ensemble.vote}=labels",
                name=self.settings.certificate.name,
            )
        )


def accuracy(model: Model, records: Records) -> float:
    """Return the fraction of records whose label the model predicts; NaN if there are no records.

    Args:
        model: a trained model.
        records: labelled records on the scale of the model's own dataset.
    """
    is_right = model.predict(records.features) == records.labels
    return float(is_right.mean())


def map_queries(
    queries: np.ndarray,
    work: Callable[[np.ndarray], T],
    on_progress: OnProgress = ignore_progress,
    block_rows: int | None = None,
) -> Iterable[T]:
    """Apply a function to queries in blocks, which the processes of a distributed job share.

    Args:
        queries: [n, ...], which may be larger than the memory.
        work: a block of the queries -> a result.
        on_progress: called with the number of queries that are done.
        block_rows: the number of queries of a block; None: ``ROWS``.

    Returns:
        The results in the order of the blocks, to be iterated over once. There is at least one,
        because without queries there is one empty block.
    """
    report = row_reporter(on_progress, len(queries))
    size = ROWS if block_rows is None else block_rows
    return group().map_blocks(len(queries), size, lambda rows: work(queries[rows]), report)
