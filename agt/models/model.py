"""What every trained model can be asked, whichever kind of certificate it was trained for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.certificates.envelopes import Envelope
from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.errors import ConfigError
from agt.messages import Message
from agt.models.store import FileWriter
from agt.problem import Problem, Settings
from agt.training.batches import BatchPlan
from agt.training.loop import OnProgress
from agt.training.noise import NoisePlan

if TYPE_CHECKING:
    from agt.models.box import BoxModel
    from agt.models.linear import LinearModel


@dataclass(frozen=True)
class RemovableWeights:
    """The weights of a head that records can be removed from, and the noise that hides removals.

    Attributes:
        weight: [J, d] the weights before noise.
        served: [J, d] the weights that predict.
        sigma: the standard deviation of the noise in each coordinate; 0: there is no noise.
        drawn: True where the operating system drew the noise; False where a recorded seed did, so
            that the same noise comes again.
        distance: a bound on the l2 distance of ``weight`` from the exact minimiser.
        gradient: (features [n, ...], labels [n]) -> [J, d], the sum of the gradients of these
            records' losses at ``weight``, without the regulariser.
    """

    weight: np.ndarray
    served: np.ndarray
    sigma: float
    drawn: bool
    distance: float
    gradient: Callable[[np.ndarray, np.ndarray], np.ndarray]


class Model(Protocol):
    """A trained model, as ``agt.models.fitting`` trains it and reads it back.

    Queries and records have the problem's own features: [n, ...], as the head takes them.
    """

    @property
    def problem(self) -> Problem:
        """The records that it was trained on, and the settings."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What is known of conditions a to g (docs/method.md, section 3), in this order."""

    @property
    def plan(self) -> BatchPlan:
        """The batch plan of its training."""

    @property
    def noise(self) -> NoisePlan | None:
        """The noise in each step of its training; None: training added no noise."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a report says about later removals of records; empty: nothing is promised."""

    @property
    def linear_head(self) -> "LinearModel | None":
        """The model itself, if it is one linear head, whose weights may be released with noise."""

    @property
    def boxed_network(self) -> "BoxModel | None":
        """The model itself, if it is one network with a box for every parameter.

        Its training may add noise to each step.
        """

    @property
    def release_head(self) -> "LinearModel | None":
        """The linear head whose problem a release may solve anew, from sums with noise.

        Of a linear head it is the model itself, of a model of votes a head on the same records.
        """

    @property
    def instant(self) -> bool:
        """Whether certifying a query takes no longer than predicting its label."""

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Facts about the model by name, such as its size, for a run's metrics."""

    def save(self, store: FileWriter) -> None:
        """Write the files that the kind's ``load`` reads back."""

    @property
    def max_distance(self) -> int:
        """A public number that no stable distance, step of the grid or gap of votes exceeds."""

    def check(self, features: np.ndarray) -> None:
        """Refuse queries that the model does not take.

        It reads no parameters: whether it raises depends on the queries and on public values alone.

        Raises:
            ConfigError: the queries have another shape.
            UnsoundError: a query is not finite in the model's precision.
        """

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the nominal model's labels, [n] int64."""

    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return signed margins, one row for each decision line of a map: 0 on the line.

        Returns:
            Of two classes [1, n], positive where class 1 is predicted. Of more classes [C, n], each
            class's lead over the best of the others.
        """

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return how likely each class is, or its share of the votes, [n, C].

        Each row adds up to 1 (agt/models/shares.py).
        """

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Return the certificates of queries.

        Args:
            features: [n, ...] the queries.
            ks: certify at these k of the grid alone, for example the few that a map shows; None:
                at the whole grid.
            on_progress: called after every block of queries, or every member of an ensemble.
        """

    @property
    def member_models(self) -> "tuple[Model, ...]":
        """The models of an ensemble's members; of a single model, the model itself."""

    @property
    def counting_single_edits(self) -> "Model":
        """This model with certificates that count single edits, where one k is two of them."""

    @property
    def public_features(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """[n, ...] features -> [n, w] those that the head or the members take.

        None: they take the features as they are.
        """

    @property
    def removable_weights(self) -> RemovableWeights | None:
        """The weights that the kind's own method removes records from; None: it has no method."""

    @property
    def keeps_draws(self) -> bool:
        """Whether it stores the noise of its training, so that a neighbour can be trained on it."""

    def with_draws(self, problem: Problem) -> "Model":
        """Return what training on another problem gives with the noise of this training.

        Raises:
            ConfigError: the noise is not stored (``keeps_draws``).
        """

    def with_problem(self, problem: Problem) -> Self:
        """Return a model with these parameters and another problem, such as one without records."""

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return whether its public features are those that a dataset's public rows make."""

    def save_shards(self, writer: FileWriter) -> None:
        """Write which records each member of an ensemble was trained on; else write nothing."""

    def member_margins(self, features: np.ndarray) -> np.ndarray:
        """Return the ``margins`` of each member, [T, lines, n]; of members that vote, 1 or -1."""

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Return bounds on the margin of two classes at each k, for a vote of margins.

        Args:
            features: [n, ...] the queries.
            ks: bound the margin at these k; None: at every k that a vote of margins uses.

        Raises:
            ConfigError: no bound on the margins of this kind is known.
        """


@dataclass(frozen=True)
class ModelDefaults:
    """The answers of a ``Model`` that most kinds give; a kind overrides what differs for it."""

    problem: Problem
    instant: ClassVar[bool] = False

    @property
    def settings(self) -> Settings:
        """The settings of the problem that it was trained on."""
        return self.problem.settings

    @property
    def noise(self) -> NoisePlan | None:
        """None: training added no noise."""
        return None

    @property
    def sentences(self) -> tuple[str, ...]:
        """No sentences: nothing is promised about later removals."""
        return ()

    @property
    def linear_head(self) -> "LinearModel | None":
        """None: the model is not one linear head."""
        return None

    @property
    def boxed_network(self) -> "BoxModel | None":
        """None: the model has no boxes, or more than one network."""
        return None

    @property
    def release_head(self) -> "LinearModel | None":
        """None: the model has no linear head whose problem could be solved anew."""
        return None

    @property
    def member_models(self) -> tuple[Model, ...]:
        """The model itself, as the only member."""
        return (self,)  # type: ignore[return-value]  # a subclass has the rest of Model

    @property
    def counting_single_edits(self) -> Self:
        """The model itself: its certificates count nothing finer than k."""
        return self

    @property
    def public_features(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """None: the head takes the features as they are."""
        return None

    @property
    def removable_weights(self) -> RemovableWeights | None:
        """None: the kind has no method of its own that removes records."""
        return None

    @property
    def keeps_draws(self) -> bool:
        """False: training added no noise, or the noise is not stored."""
        return False

    def with_draws(self, problem: Problem) -> Model:
        """Raise ConfigError: the noise of its training is not stored."""
        raise ConfigError(
            f"certificate={self.settings.certificate.name} does not store the random draws of "
            "its training, so they cannot be repeated"
        )

    def with_problem(self, problem: Problem) -> Self:
        """Return a model with these parameters and another problem."""
        return replace(self, problem=problem)

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return True: no public rows make its features."""
        return True

    def save_shards(self, writer: FileWriter) -> None:
        """Write nothing: the model is no ensemble."""

    def member_margins(self, features: np.ndarray) -> np.ndarray:
        """Return the margins of each member, [T, lines, n]."""
        return np.stack([member.margins(features) for member in self.member_models])

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Raise ConfigError: no bound on the margins of this kind is known."""
        raise ConfigError(
            Message(
                "{config:ensemble.vote}=margins adds the members' margins, but "
                "certificate={name} does not bound margins: use {config:ensemble.vote}=labels",
                name=self.settings.certificate.name,
            )
        )


def accuracy(model: Model, records: Records) -> float:
    """Return the fraction of records whose label the nominal model predicts; NaN of no records."""
    is_right = model.predict(records.features) == records.labels
    return float(is_right.mean())
