"""The base class of the kinds of certificate, with everything that differs from kind to kind.

A kind of certificate is a way to train a model together with a proof of how many edits of the data
its answers withstand. It is one class in a separate file, listed in ``agt.models.kinds``. Its
fields are the settings that users give with ``certificate=NAME``. The rest of the code calls its
methods, and never compares names or classes of kinds.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from agt.certificates.settings import CertificateConfig
from agt.errors import AgtError, ConfigError
from agt.messages import Message
from agt.models.votes_recipe import VotesRecipe
from agt.settings import FeaturesConfig, TrainingConfig
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.learners import Learner
from agt.training.loop import OnProgress, ignore_progress
from agt.training.settings import check_no_recipe_settings
from agt.unlearning.sentences import Remark

if TYPE_CHECKING:
    from agt.data.records import Records
    from agt.data.target import Target
    from agt.facts import Fact
    from agt.models.features import FeatureMap
    from agt.models.heads import HeadBuilder
    from agt.models.linear import LinearModel
    from agt.models.model import Model
    from agt.problem import Problem, Settings
    from agt.store.folder import Folder
    from agt.training.linear import LinearTrained
    from agt.unlearning.promise import Promise, Removal

BoundedQuantity = Literal["each parameter", "norm", "vote counts"]
# Why training does not read a setting; agt_cli/choices.py has the sentence for each.
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
    """The error that a kind's own method cannot remove the given records from a trained model.

    Attributes:
        reason: the reason, as a code with values, which the report of an erasure records.
    """

    def __init__(self, reason: Remark) -> None:
        """Make the error, whose message is the sentence of ``reason``."""
        super().__init__(reason.sentence)
        self.reason = reason


@dataclass(frozen=True)
class RemovalBounds:
    """Bounds on how far weights after removals are from those of training without these records.

    The first three measure the same error, in the unit that the kind's own method uses.

    Attributes:
        spent: the bound on the error after training and the removals made so far.
        total: the largest error that the kind's method may leave.
        hidden: the largest error that is masked by noise on the weights; None: no noise is added.
        noise: the standard deviation of that noise; 0: there is no noise.
    """

    spent: float
    total: float
    hidden: float | None
    noise: float


class CertificateKind(CertificateConfig):
    """The base class of kinds of certificate: the settings of a kind, and what depends on them.

    A certificate proves that a query's label is the same for all datasets within k edits of the
    training data. A kind is a way of training that allows such proofs. A subclass inherits its
    settings from a class of ``agt.certificates.settings``, and overrides the methods and
    attributes that differ for it. The defaults are the safe answers: they refuse, or claim nothing.

    Attributes:
        features: the settings of the public feature map in front of the head; the default is no
            map, and a kind that supports maps makes it a field.
        training_defaults: training setting -> the value that ``agt.fit`` uses by default.
        bounded: the quantity that is bounded for each k: "each parameter", the "norm" of the change
            of all parameters, or "vote counts".
        covers_every_k: True if stable distances (the edits that a label withstands) are known for
            every integer k; False if only for the k of a grid, each of which takes time in
            training.
        covers_retraining: True if certificates cover training again on fewer records; False if they
            only hold for a draw of noise that another training does not repeat.
        trains_in_steps: True if training takes the steps of the batch plan; False if it minimises
            a function, with as many steps as that needs.
        draws_start: True if ``training.seed`` draws the initial parameters.
        regularised_by: the training setting that regularises the model most directly, which
            ``agt tune`` varies.
        certifies_more: another kind that certified more on large tables of two classes in all
            comparisons of docs/recipe.md; empty: no such setting is known.
        retraining_refusal: the reason why ``Fitted.unfit`` does not train this kind again; None: it
            trains this kind again.
    """

    features: FeaturesConfig = FeaturesConfig()
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    bounded: ClassVar[BoundedQuantity] = "each parameter"
    covers_every_k: ClassVar[bool] = False
    covers_retraining: ClassVar[bool] = False
    trains_in_steps: ClassVar[bool] = True
    draws_start: ClassVar[bool] = True
    regularised_by: ClassVar[Literal["epochs", "weight_decay"]] = "epochs"
    certifies_more: ClassVar[str] = ""
    retraining_refusal: ClassVar[Message | None] = None

    # Settings.

    def with_features(self, features: FeaturesConfig) -> "CertificateKind":
        """Return a copy of the certificate's settings with the given public feature map.

        By default it raises ConfigError, for kinds that support no feature map.

        Args:
            features: the settings of the map from records to public features.

        Raises:
            ConfigError: the kind supports no feature map, or its settings already name one.
        """
        raise ConfigError(
            "features: a feature map (features=) needs a linear head: use certificate=stability "
            "and network=() (no hidden layers)"
        )

    def with_learner(self, learner: Any) -> tuple["CertificateKind", Learner | None]:
        """Return a copy of the certificate's settings with a learner for the ensemble's members.

        A learner trains one member. By default it raises ConfigError, for kinds without a choice of
        learner.

        Args:
            learner: the name of a learner of agt, or an estimator or function of the user's own.

        Returns:
            The settings; and the wrapped learner if it is the user's own, else None.

        Raises:
            ConfigError: the kind has no members whose learner could be chosen.
        """
        raise ConfigError(
            f"learner={learner!r}: only certificate=votes can use a learner of your own, "
            f"certificate={self.name} cannot: use certificate=votes"
        )

    def import_learner(self) -> Learner | None:
        """Import the user's own learner that the settings name, which trains an ensemble's members.

        Returns:
            The learner; None if the settings name none, as by default.

        Raises:
            ConfigError: the learner's code cannot be imported.
        """
        return None

    def missing_training_settings(
        self, head: "HeadBuilder", given: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """Return the names of the training settings that have no default and were not given.

        The default is none: every setting has a default.

        Args:
            head: the builder of the network to be trained.
            given: name -> value, the training settings that the user gave.
        """
        return ()

    @classmethod
    def default_members(
        cls, size: float, unit_rows: int, caution: float, relation: str, recipe: VotesRecipe
    ) -> int:
        """Return the default number of ensemble members; 1, the default here, is no ensemble.

        Args:
            size: the declared number of training records.
            unit_rows: the public limit on the records of one person.
            caution: the setting ``training.caution``, a factor on the number of members: with more
                members, labels withstand more edits of the data, and accuracy is lower.
            relation: the name of the neighbour relation, which says what an edit is.
            recipe: the default settings of votes on data of this kind.
        """
        return 1

    @property
    def trains_ridge_members(self) -> bool:
        """True if the kind trains agt's ridge regressions as members; by default it does not."""
        return False

    def with_recipe(self, recipe: VotesRecipe) -> "CertificateKind":
        """Return the settings with numbers for those left at "recipe"; by default there are none.

        Args:
            recipe: the default settings of votes on data of this kind.
        """
        return self

    @property
    def seeds(self) -> tuple[str, ...]:
        """The names of the certificate's settings that seed random numbers, such as features.seed.

        ``features.seed`` is one of them only if the settings have a feature map that uses it.
        """
        return ("features.seed",) if self.features.map != "none" else ()

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """The settings that have no effect on training: dotted name -> reason; none by default."""
        return {}

    @property
    def normalises_records(self) -> bool:
        """Whether a model sees the directions of records only, because each is scaled to norm 1.

        Then records that all point in nearly the same direction are hard to separate. False
        by default.
        """
        return False

    # Checks, before any data is read.

    def check(self, settings: "Settings") -> None:
        """Raise ConfigError if the proofs of this kind do not cover the settings.

        It is called before any data is read. Every kind overrides it; this default raises
        NotImplementedError.

        Raises:
            ConfigError: no proof covers the setting that the message names, together with the
                others.
        """
        raise NotImplementedError

    def check_target(self, target: "Target", settings: "Settings") -> None:
        """Raise ConfigError if this kind does not support the labels of the data.

        The default supports any number of classes, and refuses labels that are numbers.

        Args:
            target: the kind of labels: classes, or numbers in a public range.
            settings: all settings of the training.
        """
        if target.numeric is not None:
            raise ConfigError(
                Message(
                    "certificate={name} answers with classes, but {config:dataset.target}=numeric: "
                    "use certificate=votes, which certifies intervals of numbers",
                    name=self.name,
                )
            )

    def resolve(
        self, training: TrainingConfig, classes: int, size: float, unit_rows: int
    ) -> TrainingConfig:
        """Return the training settings with a number in place of every "recipe".

        A user can leave a setting at "recipe", a default computed from public numbers. The method
        of this base class is for kinds without these defaults: it returns the settings unchanged,
        or raises if one of them is "recipe".

        Args:
            training: the settings as configured.
            classes: the number of classes.
            size: the declared number of records, or one ensemble member's part of it.
            unit_rows: the public cap on the records of one unit (such as one person).

        Raises:
            ConfigError: a setting was left at "recipe", which has no value for this kind.
        """
        check_no_recipe_settings(training, self.name)
        return training

    # Training.

    def fit(
        self,
        problem: "Problem",
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> "Model":
        """Train one model on all records of a problem.

        Every kind overrides it; this default raises NotImplementedError.

        Args:
            problem: the records and the settings.
            on_progress: receives the progress.
            checkpoints: where training resumes from, if an earlier attempt was interrupted, and
                where it saves its state.

        Returns:
            The trained model, which predicts labels of queries and certifies them.

        Raises:
            ConfigError: no proof covers the settings, or there are more records in a batch or unit
                than the public caps allow.
            UnsoundError: a bound or a parameter is NaN or infinite.
        """
        raise NotImplementedError

    def load(self, problem: "Problem", reader: "Folder") -> "Model":
        """Return a saved model, read from its folder.

        Every kind overrides it; this default raises NotImplementedError.

        Args:
            problem: the settings that the model was trained with, and its dataset, which need not
                hold the records.
            reader: the model's files.

        Raises:
            ConfigError: a file is missing, or is not what was written.
            UnsoundError: a recorded value differs from the one that the settings imply.
        """
        raise NotImplementedError

    def untrained_head(
        self, problem: "Problem", features: "FeatureMap | None" = None
    ) -> "LinearModel | None":
        """Return a linear head with the settings of a problem, whose weights are not yet trained.

        Its public constants, such as its sensitivity, are those that the trained head will have.

        Args:
            problem: the settings, and the public rows from which the feature map may be made.
            features: the public feature map; None: make it from the problem's data.

        Returns:
            The head; None, as by default, if this kind does not train exactly one linear head
            without noise.
        """
        return None

    def retrain(
        self,
        head: "LinearModel",
        records: "Records",
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> "LinearModel":
        """Train a linear head on the given records, with the settings and features of another head.

        Only kinds whose ``untrained_head`` returns a head override it; this default raises
        NotImplementedError.

        Args:
            head: has the settings and the feature map, as ``untrained_head`` returns it; its
                weights are not read.
            records: the training records, with features scaled as in the head's own dataset.
            on_progress: receives the progress.
            checkpoints: where training resumes from and saves its state.

        Returns:
            The head with trained weights; ``head`` is not changed.
        """
        raise NotImplementedError

    @property
    def minimiser_tolerance(self) -> float | None:
        """A bound on the norm of the loss's gradient at the trained weights of a linear head.

        The loss is the regularised mean of training/erm.py. None, the default: training does not
        minimise it.
        """
        return None

    def step_facts(self, trained: "LinearTrained") -> "tuple[Fact, Fact]":
        """Return the facts about a trained linear head for two conditions of a guarantee.

        Only kinds that train linear heads override it; this default raises NotImplementedError.

        Args:
            trained: the trained head, with its settings and its sensitivity.

        Returns:
            The fact that the configuration states all constants (condition c of docs/method.md:
            constants are public), and the fact why one edit of the data moves the weights by no
            more than the sensitivity (condition d: bounds of neighbours are nested).
        """
        raise NotImplementedError

    def ignores_initial_parameters(self, problem: "Problem") -> bool:
        """Return whether ``problem.initial`` has parameters that do not fit the network.

        Training then ignores them. The default is False.
        """
        return False

    def training_inputs(self, problem: "Problem") -> dict[str, object]:
        """Return the inputs of training other than settings, records and machine.

        The default is nothing. A kind whose network comes from the user's own code returns a hash
        of the initial parameters.

        Returns:
            A description for messages -> a value, to be compared between processes or runs.
        """
        return {}

    def allocating_shapes_only(self) -> AbstractContextManager[object]:
        """Return a context manager in which ``load`` allocates no memory for sizes in the settings.

        ``agt verify`` uses it to read files of unknown origin, whose settings may name sizes beyond
        the memory. The default does nothing, for kinds whose ``load`` allocates none.
        """
        return nullcontext()

    # Releases and erasures.

    def distances_differ_by_one(self, settings: "Settings") -> bool:
        """Return whether one edit of the data provably changes every stable distance by at most 1.

        A stable distance is the number of edits that a query's label withstands. Mechanisms that
        use it as a score of sensitivity 1 need this proof. The default is False: it is not proved.
        """
        return False

    def remove_records(
        self, model: "Model", erased: "Records", count: int
    ) -> "tuple[Model, Removal]":
        """Remove records from a trained model by the kind's own method (``own_erasure``).

        By default it raises CannotRemove, for kinds without a method.

        Args:
            model: the current model, whose problem holds only the remaining records.
            erased: the records to remove, as far as the data still has them.
            count: the number of removed records.

        Returns:
            The new model; and a report of what was done and what is promised of the new model.

        Raises:
            CannotRemove: the kind has no method, or the new model would be farther from training
                without the records than the settings allow. Nothing was changed.
        """
        raise CannotRemove(Remark("nothing_to_start_from", {"certificate": self.name}))

    def removal_bounds(self, reader: "Folder") -> RemovalBounds:
        """Return bounds on the distance of a run's model from training without the removed records.

        They are computed from the run's settings. Every kind with a method of its own
        (``own_erasure``) overrides it; this default raises NotImplementedError.

        Args:
            reader: the run's files, which record the error of the removals made so far.

        Raises:
            ConfigError: a file is damaged.
        """
        raise NotImplementedError

    def removal_promise(self, reader: "Folder", spent: float) -> "Promise":
        """Return the promise that a run makes about its model after removals of records.

        The promise compares the model with one that was trained without these records. Every kind
        with a method of its own (``own_erasure``) overrides it; this default raises
        NotImplementedError.

        Args:
            reader: the run's files.
            spent: the bound on the distance between the two models that the removals left
                (``RemovalBounds.spent``).

        Raises:
            ConfigError: a file is damaged.
        """
        raise NotImplementedError

    @property
    def noise(self) -> Literal["none", "seeded", "drawn"]:
        """The source of the random noise that training adds to weights or to the loss.

        "none", the default: training adds no noise; "seeded": a recorded seed, so that the same
        noise can be drawn again; "drawn": the operating system.
        """
        return "none"

    @property
    def noise_is_fixed(self) -> bool:
        """Whether training draws the noise once and removals of records reuse the same draw.

        False by default.
        """
        return False
