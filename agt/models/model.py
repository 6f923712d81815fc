"""What every trained model answers, whichever kind of certificate it was trained for."""

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
        weight: [J, d] before noise.
        served: [J, d] what answers.
        sigma: standard deviation of each coordinate of the noise; 0: there is none.
        drawn: the noise is the operating system's; False: a recorded seed's, which repeats itself.
        distance: bound on how far ``weight`` is from the exact minimiser, l2.
        gradient: (features [n, ...], labels [n]) -> [J, d] the sum of the gradients of their losses
            at ``weight``, without the regulariser.
    """

    weight: np.ndarray
    served: np.ndarray
    sigma: float
    drawn: bool
    distance: float
    gradient: Callable[[np.ndarray, np.ndarray], np.ndarray]


class Model(Protocol):
    """What ``fit`` makes and ``load`` reads back.

    Features are the problem's own: as the head takes them.
    """

    @property
    def problem(self) -> Problem:
        """What it was trained on, and how."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g of method.md section 3."""

    @property
    def plan(self) -> BatchPlan:
        """The batch plan it was trained by."""

    @property
    def noise(self) -> NoisePlan | None:
        """The noise of each step of its training; None without any."""

    @property
    def words(self) -> tuple[str, ...]:
        """What may be said of noise that hides removals, a line each."""

    @property
    def linear_head(self) -> "LinearModel | None":
        """Itself, where it is one linear head, whose weights may be released with noise."""

    @property
    def boxed_network(self) -> "BoxModel | None":
        """Itself, where it is one network with a box for each parameter, whose steps may carry
        noise.
        """

    @property
    def release_head(self) -> "LinearModel | None":
        """The linear head whose problem can be solved anew for a release: itself; beside votes, one
        on their records.
        """

    @property
    def instant(self) -> bool:
        """Whether certifying takes no longer than predicting."""

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Flat facts about it."""

    def save(self, store: FileWriter) -> None:
        """Write what ``load`` needs."""

    @property
    def farthest(self) -> int:
        """A public number that no stable distance, step of the grid or gap between votes
        exceeds.
        """

    def check(self, features: np.ndarray) -> None:
        """Raise where queries are not what it takes (ConfigError, UnsoundError): from public
        values alone.
        """

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels of the nominal model."""

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[lines, n] signed margins; a decision line of a map is where one is 0."""

    def shares(self, features: np.ndarray) -> np.ndarray:
        """[n, C] how likely each class is, or its share of votes (agt/models/shares.py)."""

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Certificates of queries.

        Args:
            ks: at these values of the grid alone, such as the few that a map tells apart; None: the
                whole grid.
            on_progress: called after every block of queries, or every member of an ensemble.
        """

    @property
    def member_models(self) -> "tuple[Model, ...]":
        """The models of an ensemble's members; itself, of a single model."""

    @property
    def counting_single_edits(self) -> "Model":
        """The same model, its certificates counting single edits where one k is two of them."""

    @property
    def public_features(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """[n, ...] features -> [n, w] those that a head or members see; None: the features
        themselves.
        """

    @property
    def removable_weights(self) -> RemovableWeights | None:
        """The weights that the kind's own method removes records from; None: it has none."""

    @property
    def keeps_draws(self) -> bool:
        """Whether it keeps the noise that its training drew, so that a neighbour can meet the
        same.
        """

    def with_draws(self, problem: Problem) -> "Model":
        """Return what training on a problem's records gives with the noise that this model met."""

    def with_problem(self, problem: Problem) -> Self:
        """Return the same parameters as the model of another problem, such as one without
        records.
        """

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return whether its public features are those that a dataset's public rows make."""

    def save_shards(self, writer: FileWriter) -> None:
        """Write what each member of an ensemble was trained on, where there are any."""

    def member_margins(self, features: np.ndarray) -> np.ndarray:
        """Return [T, lines, n] margins of each member; of members that only vote, 1 or -1."""

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Return bounds on the margin of two classes at each k, for a vote of margins.

        Args:
            features: [n, ...] queries.
            ks: at these k; None: at every k that a vote of margins looks at.

        Raises:
            ConfigError: nothing bounds the margins of this kind.
        """


@dataclass(frozen=True)
class Trained:
    """What a ``Model`` says where its kind has nothing else to say."""

    problem: Problem
    instant: ClassVar[bool] = False

    @property
    def settings(self) -> Settings:
        """The problem's."""
        return self.problem.settings

    @property
    def noise(self) -> NoisePlan | None:
        """None: training drew none."""
        return None

    @property
    def words(self) -> tuple[str, ...]:
        """No noise hides removals."""
        return ()

    @property
    def linear_head(self) -> "LinearModel | None":
        """None: it is not one linear head."""
        return None

    @property
    def boxed_network(self) -> "BoxModel | None":
        """None: it has no boxes, or several networks."""
        return None

    @property
    def release_head(self) -> "LinearModel | None":
        """None: there is no such head."""
        return None

    @property
    def member_models(self) -> tuple[Model, ...]:
        """Itself."""
        return (self,)  # type: ignore[return-value]  # a subclass has the rest of Model

    @property
    def counting_single_edits(self) -> Self:
        """Itself: nothing is known of single edits."""
        return self

    @property
    def public_features(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """None: it sees the features themselves."""
        return None

    @property
    def removable_weights(self) -> RemovableWeights | None:
        """None: the kind has no method of erasure of its own."""
        return None

    @property
    def keeps_draws(self) -> bool:
        """False: training drew nothing, or what it drew is not kept."""
        return False

    def with_draws(self, problem: Problem) -> Model:
        """Raise ConfigError: no draws are kept."""
        raise ConfigError(
            f"certificate={self.settings.certificate.name} does not store the random draws "
            "of its training"
        )

    def with_problem(self, problem: Problem) -> Self:
        """Return the same parameters as the model of another problem."""
        return replace(self, problem=problem)

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return True: no public rows make its features."""
        return True

    def save_shards(self, writer: FileWriter) -> None:
        """Write nothing: it is no ensemble."""

    def member_margins(self, features: np.ndarray) -> np.ndarray:
        """Return [T, lines, n] the margins of each member."""
        return np.stack([member.margins(features) for member in self.member_models])

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Raise ConfigError: nothing bounds its margins."""
        raise ConfigError(
            Message(
                "{config:ensemble.vote}=margins: the margins of certificate={name} have no "
                "bounds: use {config:ensemble.vote}=labels",
                name=self.settings.certificate.name,
            )
        )


def accuracy(model: Model, records: Records) -> float:
    """The fraction of records that the nominal model labels right."""
    return float((model.predict(records.features) == records.labels).mean())
