"""What every kind of certificate answers for itself: its settings, and all that is asked of them.

A kind is one class in a file of its own. Its fields are its settings, as ``certificate=NAME`` and
records have them; its methods and attributes are what differs from kind to kind.
``agt.models.kinds`` lists it once. Code elsewhere asks ``settings.certificate``, and compares
neither names nor classes.
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
    """A kind's own method cannot remove these records from the state that there is.

    Attributes:
        reason: why, as the account of an erasure records it.
    """

    def __init__(self, reason: Remark) -> None:
        super().__init__(reason.sentence)
        self.reason = reason


@dataclass(frozen=True)
class RemovalBounds:
    """What a run's files say of removals from it.

    Attributes:
        spent: bound on the error that removals, and training before them, have left.
        total: how much of it there may be.
        hidden: how much of it the noise hides; None: there is no noise.
        noise: the standard deviation of that noise; 0: there is none.
    """

    spent: float
    total: float
    hidden: float | None
    noise: float


class CertificateKind:
    """A kind of certificate.

    A subclass is made a class of settings by ``agt.settings.schema``, and overrides what is
    different for it. What a guarantee rests on is refused or denied unless a kind says otherwise.

    Attributes:
        name: what ``certificate=NAME`` and records call it.
        features: the public feature map in front of the head; no map unless it is a setting.
        training_defaults: the settings of training that ``agt.fit`` begins with, by name.
        bounded: what the bounds are about: each parameter, the norm of how far all parameters move
            together, or the votes of members.
        covers_every_k: stable distances are known at every integer k, whatever grid is asked for;
            False: at the grid's k alone, and each of them takes work in training.
        covers_retraining: its certificates say what training again on fewer records gives; False:
            they hold given a draw of noise that training again does not repeat.
        trains_in_steps: training takes the plan's steps; False: it goes to a minimum by however
            many it needs, and their number says nothing.
        draws_start: training begins at parameters that are drawn by ``training.seed``.
        regularised_by: the setting of training that holds the model back most directly, which a
            comparison of settings varies.
        certifies_more: another kind that certified more on large tables of two classes in all
            comparisons of docs/recipe.md; empty: none is known.
        own_erasure: the kind's own method of erasure, which starts from what training kept; empty:
            it has none.
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
        """Return whether a mapping of settings is of this kind."""
        return node.get("name") == cls.name

    def with_features(self, features: FeaturesConfig) -> "CertificateKind":
        """Return the same settings on these public features.

        Raises:
            ConfigError: the kind takes no public features, or has some already.
        """
        raise ConfigError(
            "features: public features need a linear head: use certificate=stability and network=()"
        )

    def with_learner(self, learner: Any) -> tuple["CertificateKind", Learner | None]:
        """Return the same settings with a learner for the members.

        Args:
            learner: the name of one that agt has, or a learner of the user's own.

        Returns:
            The settings, and the learner where it is the user's own.

        Raises:
            ConfigError: the kind has no members whose learner could be chosen.
        """
        raise ConfigError(
            f"learner={learner!r}: certificate={self.name} does not have members with a "
            "learner: use certificate=votes"
        )

    def import_learner(self) -> Learner | None:
        """Return the learner of the user's own that the settings name, which imports its code.

        Raises:
            ConfigError: it cannot be imported.
        """
        return None

    def missing_training(self, head: "HeadBuilder", given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of settings of training that have no default for a head and are not
        given.
        """
        return ()

    @classmethod
    def usual_members(cls, size: float, caution: float, relation: str) -> int:
        """Return the recipe's number of members of an ensemble; 1: no ensemble.

        Args:
            size: the declared number of records.
            caution: the factor of the recipe's strength.
            relation: the name of the neighbour relation.
        """
        return 1

    @property
    def seeds(self) -> tuple[str, ...]:
        """The certificate's own settings that are seeds which its training reads, by dotted
        name.
        """
        return ("features.seed",) if self.features.map != "none" else ()

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """Settings of a run that training does not read, by dotted name, and why."""
        return {}

    # Checks, before any data is read.

    def check(self, settings: "Settings") -> None:
        """Refuse settings that no proof of this kind covers.

        Raises:
            ConfigError: the parts do not go together; by key.
        """
        raise NotImplementedError

    def check_classes(self, classes: int) -> None:
        """Raise ConfigError where there are more classes than this kind takes."""

    def resolve(
        self, training: TrainingConfig, classes: int, size: float, unit_rows: int
    ) -> TrainingConfig:
        """Return the settings of training with numbers for all that they leave to the recipe.

        Args:
            training: as configured.
            classes: how many there are.
            size: the records declared, or one member's share of them.
            unit_rows: the public cap on the rows of one unit.

        Raises:
            ConfigError: something is left to the recipe, which has nothing for this kind.
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
        """Train one model on all records of a problem, going on from checkpoints if there are any.

        Raises:
            ConfigError: settings that no proof covers, or records beyond the public caps.
            UnsoundError: a bound or a parameter is no number.
        """
        raise NotImplementedError

    def load(self, problem: "Problem", reader: "FileReader") -> "Model":
        """Read back a model that was trained on a problem.

        Raises:
            ConfigError: a file is missing, or is not what was written.
            UnsoundError: what was recorded is not what the settings imply.
        """
        raise NotImplementedError

    def untrained_head(
        self, problem: "Problem", features: "FeatureMap | None" = None
    ) -> "LinearModel | None":
        """Return the one linear head of a problem before training, with the constants of any run.

        Args:
            features: the public feature map; None: make it from the problem's data.

        Returns:
            None where this kind trains no linear head, or more than one, or one whose training
            draws noise.
        """
        return None

    def retrain(
        self,
        head: "LinearModel",
        records: "Records",
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "LinearModel":
        """Train the head that ``untrained_head`` returns on records, with features as they are
        scaled.
        """
        raise NotImplementedError

    def step_facts(self, trained: "LinearTrained") -> "tuple[Fact, Fact]":
        """Return, of a linear head, condition c's constants and condition d's reason."""
        raise NotImplementedError

    def has_member_models(self, ensemble: EnsembleConfig) -> bool:
        """Return whether the members of an ensemble are models with certificates of their own."""
        return ensemble.members > 1

    def starts_elsewhere(self, problem: "Problem") -> bool:
        """Return whether the problem brings initial parameters that training cannot begin at."""
        return False

    def training_inputs(self, problem: "Problem") -> dict[str, object]:
        """Return what a model's bits depend on beside settings, records and machine, by
        description.
        """
        return {}

    def allocating_shapes_only(self) -> AbstractContextManager[object]:
        """Return a context to ``load`` in where config.yaml is a stranger's: no memory for its
        sizes.
        """
        return nullcontext()

    # What may be done with a model.

    def distances_differ_by_one(self, settings: "Settings") -> bool:
        """Return whether stable distances of neighbours are claimed to differ by at most one k."""
        return False

    def check_solved_anew(self, mechanism: str) -> None:
        """Raise ConfigError where a mechanism may not solve the head's problem anew from noisy
        sums.
        """
        raise ConfigError(
            f"mechanism={mechanism}: certificate={self.name} does not train a head whose "
            "optimisation problem can be solved again: train with certificate=erm"
        )

    def check_tilted(self, mechanism: str) -> None:
        """Raise ConfigError where a mechanism may not add a random linear term to the objective."""
        raise ConfigError(
            Message(
                "mechanism={mechanism}: certificate={name} does not have a minimiser that a "
                "random linear term could change: train with certificate=erm, or use "
                "{config:mechanism=release_weights}",
                mechanism=mechanism,
                name=self.name,
            )
        )

    def erasure_methods(self, settings: "Settings") -> tuple[str, ...]:
        """Return the methods of erasure that can remove records from a run, the cheapest first.

        Methods that need no certificate (``retrain``), or only note a request (``certificate``),
        are for every kind: the first of them that is listed is what ``method=auto`` falls back to.
        """
        for_every_kind = ("retrain", "certificate")
        if self.has_member_models(settings.ensemble):
            return ("sisa", *for_every_kind)
        return (self.own_erasure, *for_every_kind) if self.own_erasure else for_every_kind

    def remove_records(
        self, model: "Model", erased: "Records", count: int
    ) -> "tuple[Model, Removal]":
        """Remove records from a model by the kind's own method.

        Args:
            model: as it is, its problem holding the records that remain.
            erased: the records to remove, as far as the data still has them.
            count: how many are removed.

        Returns:
            The new state, and what was done to reach it with what holds of it.

        Raises:
            CannotRemove: the error would exceed what the state allows; nothing was changed.
        """
        raise CannotRemove(Remark("nothing_to_start_from", {"certificate": self.name}))

    def removal_bounds(self, reader: "FileReader") -> RemovalBounds:
        """Return what a run's files say of removals from it, worked out by its own settings.

        Raises:
            ConfigError: the kind has no method of its own, or a file is damaged.
        """
        raise ConfigError(f"certificate={self.name} does not store what a removal starts from")

    def removal_promise(self, reader: "FileReader", spent: float) -> "Promise":
        """Return what may be promised of a state of a run whose removals have left such an error.

        Raises:
            ConfigError: as ``removal_bounds``.
        """
        raise ConfigError(f"certificate={self.name} does not store what a removal starts from")

    @property
    def noise(self) -> Literal["none", "seeded", "drawn"]:
        """Where noise on the weights, or in their loss, comes from: a recorded seed, or the
        system.
        """
        return "none"

    @property
    def noise_is_fixed(self) -> bool:
        """True where noise is drawn once, in training, so that every later state is made with
        it.
        """
        return False
