"""The base class of the kinds of certificate, with everything that differs from kind to kind.

A kind is one class in a file of its own, listed in ``agt.models.kinds``. Its fields are the
settings that users give with ``certificate=NAME``; its methods and attributes are what the rest of
the code asks of ``settings.certificate``, which compares neither names nor classes.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from agt.errors import AgtError, ConfigError
from agt.messages import Message
from agt.settings import FeaturesConfig, TrainingConfig
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.ensemble import EnsembleConfig
from agt.training.learners import Learner
from agt.training.loop import OnProgress
from agt.training.strength import refuse_recipe
from agt.unlearning.sentences import Remark

if TYPE_CHECKING:
    from agt.data.records import Records
    from agt.facts import Fact
    from agt.models.features import FeatureMap
    from agt.models.heads import HeadBuilder
    from agt.models.linear import LinearModel
    from agt.models.model import Model
    from agt.models.store import FileReader
    from agt.problem import Problem, Settings
    from agt.training.linear import LinearTrained
    from agt.unlearning.promise import Promise, Removal

BoundedQuantity = Literal["each parameter", "norm", "vote counts"]
UnreadReason = Literal[
    "minimum",
    "own loss",
    "no clamp",
    "own strength",
    "own learner",
    "no boxes",
    "no random start",
    "every k",
]


class CannotRemove(AgtError):
    """A kind's own method cannot remove these records from the current state of a run.

    Attributes:
        reason: why not, in the form that the account of an erasure records.
    """

    def __init__(self, reason: Remark) -> None:
        super().__init__(reason.sentence)
        self.reason = reason


@dataclass(frozen=True)
class RemovalBounds:
    """How far a run's weights may be from those of training without the removed records.

    All three bounds measure the same error, in the unit that the kind's own method uses.

    Attributes:
        spent: the bound on the error after training and the removals made so far.
        total: the largest error that the kind's method may leave.
        hidden: the largest error that the noise hides; None: there is no noise.
        noise: the standard deviation of that noise; 0: there is no noise.
    """

    spent: float
    total: float
    hidden: float | None
    noise: float


class CertificateKind:
    """A kind of certificate: its settings, and the answers that depend on it.

    A subclass becomes a class of settings by ``agt.settings.schema``, and overrides the methods and
    attributes that differ for it. The defaults are the cautious answers: they refuse, or claim
    nothing.

    Attributes:
        name: the name of the kind in ``certificate=NAME`` and in records.
        features: the public feature map in front of the head; no map, unless a kind makes it a
            setting.
        training_defaults: setting of training -> the value that ``agt.fit`` starts from.
        bounded: the quantity that is bounded for each k: every parameter, the norm of how far all
            parameters move together, or the counts of votes.
        covers_every_k: True if stable distances are known at every integer k, whatever the grid;
            False if at the grid's k alone, each of which takes work in training.
        covers_retraining: True if certificates say what training again on fewer records gives;
            False if they hold given a draw of noise that training again does not repeat.
        trains_in_steps: True if training takes the steps of the batch plan; False if it minimises,
            in as many steps as it needs.
        draws_start: True if ``training.seed`` draws the parameters that training starts at.
        regularised_by: the setting of training that regularises the model most directly, which
            ``agt tune`` varies.
        certifies_more: another kind that certified more on large tables of two classes in all
            comparisons of docs/recipe.md; empty: none is known.
        own_erasure: the kind's own method of erasure, which starts from files that training
            stored; empty: it has none.
        retraining_refusal: why ``Fitted.unfit`` does not train this kind again; None: it does.
    """

    name: str = ""
    features: FeaturesConfig = FeaturesConfig()
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    bounded: ClassVar[BoundedQuantity] = "each parameter"
    covers_every_k: ClassVar[bool] = False
    covers_retraining: ClassVar[bool] = False
    trains_in_steps: ClassVar[bool] = True
    draws_start: ClassVar[bool] = True
    regularised_by: ClassVar[Literal["epochs", "weight_decay"]] = "epochs"
    certifies_more: ClassVar[str] = ""
    own_erasure: ClassVar[str] = ""
    retraining_refusal: ClassVar[Message | None] = None

    # Settings.

    @classmethod
    def reads(cls, node: Mapping[str, Any]) -> bool:
        """Return whether a mapping of settings describes a certificate of this kind."""
        return node.get("name") == cls.name

    def with_features(self, features: FeaturesConfig) -> "CertificateKind":
        """Return the same settings on these public features.

        Raises:
            ConfigError: the kind takes no public features, or has some already.
        """
        raise ConfigError(
            "features: random or public features (features=) need a linear head: use "
            "certificate=stability and network=()"
        )

    def with_learner(self, learner: Any) -> tuple["CertificateKind", Learner | None]:
        """Return the same settings with a learner for the members.

        Args:
            learner: the name of a learner of agt, or an object of the user's own.

        Returns:
            The settings, and the learner if it is the user's own, else None.

        Raises:
            ConfigError: the kind has no members whose learner could be chosen.
        """
        raise ConfigError(
            f"learner={learner!r}: only the members of certificate=votes can have a learner "
            f"of their own, not those of certificate={self.name}: use certificate=votes"
        )

    def import_learner(self) -> Learner | None:
        """Import the learner of the user's own that the settings name, and return it.

        Returns:
            None where the settings name no learner of the user's own.

        Raises:
            ConfigError: its code cannot be imported.
        """
        return None

    def missing_training(self, head: "HeadBuilder", given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of training settings that a user has to add, as there is no default.

        Args:
            head: the head to be trained.
            given: the training settings that the user gave, by name.
        """
        return ()

    @classmethod
    def usual_members(cls, size: float, caution: float, relation: str) -> int:
        """Return how many members the recipe gives an ensemble; 1: no ensemble.

        Args:
            size: the declared number of records.
            caution: a factor on the number of members; more of them certify longer distances.
            relation: the name of the neighbour relation.
        """
        return 1

    @property
    def seeds(self) -> tuple[str, ...]:
        """The dotted names of the certificate's own settings that are seeds of its training."""
        return ("features.seed",) if self.features.map != "none" else ()

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """Dotted name of a run's setting that training does not read -> why it does not."""
        return {}

    # Checks, before any data is read.

    def check(self, settings: "Settings") -> None:
        """Refuse settings that no proof of this kind covers.

        Raises:
            ConfigError: a setting, named in the message, is not covered together with the others.
        """
        raise NotImplementedError

    def check_classes(self, classes: int) -> None:
        """Raise ConfigError if there are more classes than this kind supports."""

    def resolve(
        self, training: TrainingConfig, classes: int, size: float, unit_rows: int
    ) -> TrainingConfig:
        """Return the training settings with numbers in place of those left to the recipe.

        Args:
            training: the settings as configured.
            classes: the number of classes.
            size: the declared number of records, or one member's share of them.
            unit_rows: the public cap on the rows of one unit.

        Raises:
            ConfigError: a setting is left to the recipe, which has no value for this kind.
        """
        refuse_recipe(training, self.name)
        return training

    # Training.

    def fit(
        self,
        problem: "Problem",
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "Model":
        """Train one model on all records of a problem.

        Args:
            problem: the records and the settings.
            on_progress: receives the progress.
            checkpoints: where training resumes from, if an earlier attempt was interrupted, and
                where it saves its state.

        Raises:
            ConfigError: no proof covers the settings, or records exceed the public caps.
            UnsoundError: a bound or a parameter is NaN or infinite.
        """
        raise NotImplementedError

    def load(self, problem: "Problem", reader: "FileReader") -> "Model":
        """Read back a saved model.

        Args:
            problem: what the model was trained on; its records may be missing.
            reader: the model's files.

        Raises:
            ConfigError: a file is missing, or is not what was written.
            UnsoundError: recorded values are not those that the settings imply.
        """
        raise NotImplementedError

    def untrained_head(
        self, problem: "Problem", features: "FeatureMap | None" = None
    ) -> "LinearModel | None":
        """Return the linear head of a problem before training.

        Its public constants, such as its sensitivity, are those of every trained head.

        Args:
            problem: the settings, and the public rows that the feature map may need.
            features: the public feature map; None: make it from the problem's data.

        Returns:
            None if this kind trains no linear head, more than one, or one whose training draws
            noise.
        """
        return None

    def retrain(
        self,
        head: "LinearModel",
        records: "Records",
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "LinearModel":
        """Train a linear head on other records.

        Args:
            head: as ``untrained_head`` returns it; its weights are not read.
            records: the records, whose features are scaled as in the head's own dataset.
            on_progress: receives the progress.
            checkpoints: where training resumes from and saves its state.
        """
        raise NotImplementedError

    def step_facts(self, trained: "LinearTrained") -> "tuple[Fact, Fact]":
        """Return the facts of a trained linear head for conditions c and d.

        Returns:
            The public constants that the configuration states (condition c), and why one record
            moves the weights by no more than the sensitivity (condition d).
        """
        raise NotImplementedError

    def has_member_models(self, ensemble: EnsembleConfig) -> bool:
        """Return whether each member of the ensemble is a model with certificates of its own."""
        return ensemble.members > 1

    def starts_elsewhere(self, problem: "Problem") -> bool:
        """Return whether training ignores the problem's initial parameters, as they do not fit."""
        return False

    def training_inputs(self, problem: "Problem") -> dict[str, object]:
        """Return what a model's bits depend on beside settings, records and machine.

        Returns:
            Description, for a message -> a value that is compared with another process's or run's.
        """
        return {}

    def allocating_shapes_only(self) -> AbstractContextManager[object]:
        """Return a context in which ``load`` allocates no memory for sizes that settings name.

        ``agt verify`` uses it, because it reads settings that anybody may have written.
        """
        return nullcontext()

    # Releases and erasures.

    def distances_differ_by_one(self, settings: "Settings") -> bool:
        """Return whether stable distances of neighbours are proved to differ by at most one k."""
        return False

    def check_solved_anew(self, mechanism: str) -> None:
        """Raise ConfigError unless a mechanism may solve the head's problem from noisy sums.

        Args:
            mechanism: the name of the mechanism, for the message.
        """
        raise ConfigError(
            f"mechanism={mechanism} solves the training problem again, which "
            f"certificate={self.name} does not allow: train with certificate=erm"
        )

    def check_tilted(self, mechanism: str) -> None:
        """Raise ConfigError unless a mechanism may add a random linear term to the objective.

        Args:
            mechanism: the name of the mechanism, for the message.
        """
        raise ConfigError(
            Message(
                "mechanism={mechanism} adds a random linear term to the loss, but "
                "certificate={name} does not compute a minimiser that this term could change: "
                "train with certificate=erm, or use {config:mechanism=release_weights}",
                mechanism=mechanism,
                name=self.name,
            )
        )

    def erasure_methods(self, settings: "Settings") -> tuple[str, ...]:
        """Return the names of the methods that can erase records from a run, the cheapest first.

        ``retrain`` needs no certificate, and ``certificate`` only notes a request: every kind has
        both. ``method=auto`` falls back to the first of these two in the list.
        """
        for_every_kind = ("retrain", "certificate")
        if self.has_member_models(settings.ensemble):
            return ("sisa", *for_every_kind)
        if self.own_erasure:
            return (self.own_erasure, *for_every_kind)
        return for_every_kind

    def remove_records(
        self, model: "Model", erased: "Records", count: int
    ) -> "tuple[Model, Removal]":
        """Remove records from a model by the kind's own method.

        Args:
            model: the current model, whose problem holds the records that remain.
            erased: the records to remove, as far as the data still has them.
            count: how many records are removed.

        Returns:
            The new model; and what was done, with what is promised of the new model.

        Raises:
            CannotRemove: the error would exceed what the run allows; nothing was changed.
        """
        raise CannotRemove(Remark("nothing_to_start_from", {"certificate": self.name}))

    def removal_bounds(self, reader: "FileReader") -> RemovalBounds:
        """Return the bounds on the error of removals from a run, computed from its settings.

        Args:
            reader: the run's files, which say how much error there is.

        Raises:
            ConfigError: the kind has no method of its own, or a file is damaged.
        """
        raise ConfigError(
            f"certificate={self.name} does not store what later removals need: train with "
            "certificate=removal"
        )

    def removal_promise(self, reader: "FileReader", spent: float) -> "Promise":
        """Return what may be promised of a run after removals.

        Args:
            reader: the run's files.
            spent: the bound on the error that the removals left (``RemovalBounds.spent``).

        Raises:
            ConfigError: the kind has no method of its own, or a file is damaged.
        """
        raise ConfigError(
            f"certificate={self.name} does not store what later removals need: train with "
            "certificate=removal"
        )

    @property
    def noise(self) -> Literal["none", "seeded", "drawn"]:
        """The source of noise on the weights or in their loss: a recorded seed or the system."""
        return "none"

    @property
    def noise_is_fixed(self) -> bool:
        """Whether training draws the noise once, and every later state of a run uses it again."""
        return False
