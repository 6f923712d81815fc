"""Ensemble members that the user's own learner trains, for ``certificate=votes``.

A learner is an estimator with fit and predict, or a function, and has to be deterministic. A shard
is one member's part of the training records. A run stores the members' labels and no trained model
(models/own_votes.py). The proof is docs/proofs/learners.md.
"""

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from agt.data.ids import keyed_hash
from agt.data.target import NumericTarget
from agt.errors import ConfigError, UnsoundError, first_line
from agt.messages import Message
from agt.targets import imported_with_settings
from agt.training.ensemble import aligned_copy
from agt.training.lattice import MIDDLE, to_lattice

RETRAINED_MEMBERS = 3  # how many members are trained again in a fresh process
COMPARED_QUERIES = 200  # how many queries they answer there, at most
TRIAL_ROWS = 200  # the number of random rows on which a learner is tried
_SEEDS = 2**31  # random states are below this, as scikit-learn requires

Predict = Callable[[np.ndarray], Any]
"""Rows [n, w] -> [n] indices of classes. A faulty learner may return something else."""


@dataclass(frozen=True)
class Shard:
    """The training data of one ensemble member, and its random state.

    Attributes:
        rows: [n, w] float64 features, in the order of the records' ids; n may be 0.
        labels: [n] int64 class labels.
        seed: the member's random state, a public constant.
        numbers: the range of labels that are numbers, [n] float64; None: labels are classes.
    """

    rows: np.ndarray
    labels: np.ndarray
    seed: int
    numbers: NumericTarget | None = None


@dataclass(frozen=True)
class Member:
    """A trained ensemble member, which answers queries with votes: labels or numbers.

    Attributes:
        constant_vote: the vote on every query of a member without a model, because its shard needs
            none.
        failure_vote: the vote that takes the place of an error.
        decode: (what the model returned, number of queries) -> votes [n]. It raises an error for
            another number of predictions, or if they cannot be read.
        predict: rows [n, w] -> predictions [n]; None: there is no model.
        raised: True if the learner raised an error on the shard, so that there is no model.
    """

    constant_vote: np.signedinteger
    failure_vote: np.signedinteger
    decode: Callable[[Any, int], np.ndarray]
    predict: Predict | None = None
    raised: bool = False

    def labels(self, rows: np.ndarray) -> np.ndarray:
        """Return the member's vote on each query, whatever the learner's model does.

        All queries have ``failure_vote`` if the model raises an error or returns the wrong number
        of predictions.

        Args:
            rows: [n, w] float64, the queries' features.

        Returns:
            [n] votes: int16 labels, or int32 points of the lattice from 0 to ``LATTICE_STEPS``.

        Raises:
            MemoryError: the model ran out of memory. This depends on the machine and not only on
                the member's data, so it must not become a vote.
        """
        count = len(rows)
        if self.raised:
            return np.full(count, self.failure_vote)
        if self.predict is None:
            return np.full(count, self.constant_vote)
        try:
            return self.decode(self.predict(aligned_copy(rows)), count)
        except MemoryError:
            raise
        except (Exception, SystemExit):
            # An error is an answer like any other: if it ended the release instead, it would reveal
            # something about the member's private records.
            return np.full(count, self.failure_vote)


def _labels_of_indices(classes: np.ndarray, predictions: Any, count: int) -> np.ndarray:
    """Return the labels of predicted indices, [count] int16; 0 for what is no index.

    Args:
        classes: [c] int64, the classes of the shard, which the model predicts by their indices.
        predictions: what the learner's model returned, which may be anything.
        count: the number of queries.
    """
    indices = np.asarray(predictions).reshape(count)
    is_index = np.isin(indices, np.arange(len(classes)))
    # What is no index may be NaN or text, which must not be cast to an integer.
    valid = np.where(is_index, indices, 0).astype(np.int64)
    return np.where(is_index, classes[valid], 0).astype(np.int16)


def _points_of_numbers(numbers: NumericTarget, predictions: Any, count: int) -> np.ndarray:
    """Return the points of the lattice of predicted numbers, [count] int32.

    A prediction that is not finite is replaced by the middle of the range.

    Args:
        numbers: the range of the labels.
        predictions: what the learner's model returned, which may be anything.
        count: the number of queries.
    """
    predicted = np.asarray(predictions, dtype=np.float64).reshape(count)
    finite = np.where(np.isfinite(predicted), predicted, numbers.middle)
    return to_lattice(numbers.scaled(finite))


@dataclass(frozen=True)
class Learner:
    """The user's own learning algorithm, which trains the members of an ensemble.

    The user declares that it is deterministic to the last bit: the same rows, labels and random
    state give the same model.

    Formal guarantees, if the learner is deterministic:
        * A member depends only on its shard (its part of the training records and a public random
          state; Lemma 1 of docs/proofs/learners.md).
        * No training is refused because of a record (Lemma 2 of docs/proofs/learners.md).

    Attributes:
        implementation: an estimator with fit and predict, of which each member trains a copy; or a
            function (rows, labels) -> model, which may also take ``random_state``. The model is a
            function rows -> labels or an object with ``predict``.
    """

    implementation: Any

    @classmethod
    def wrap(cls, implementation: Any) -> "Learner":
        """Return a learner that uses an estimator or function from the user's program.

        Args:
            implementation: an estimator with fit and predict; a class of estimators, which is
                called without arguments; or a function (rows, labels) -> model.

        Raises:
            ConfigError: it has no fit and predict, and cannot be called.
        """
        instance = implementation() if isinstance(implementation, type) else implementation
        is_estimator = hasattr(instance, "fit") and hasattr(instance, "predict")
        if not is_estimator and not callable(instance):
            raise ConfigError(
                f"learner={implementation!r} cannot be used as a learner: give ridge, "
                "logistic, an estimator with fit and predict, or a function"
            )
        return cls(instance)

    @classmethod
    def from_target(cls, node: Mapping[str, Any], key: str) -> "Learner":
        """Import the class or function that a configuration names, and return it as a learner.

        Importing runs code. So this is only for a configuration that the user gave for this
        training, and never for a name that was read from the files of a run.

        Args:
            node: ``_target_``, the full name of a class or function, such as
                "sklearn.svm.LinearSVC"; its other items are keyword arguments for it.
            key: the key of ``node`` in the configuration, which error messages name.

        Raises:
            ConfigError: the target cannot be imported, or does not take these arguments.
        """
        name, target, settings = imported_with_settings(node, key)
        try:
            if isinstance(target, type):
                return cls.wrap(target(**settings))
            # A function is called with these settings later, each time a member is trained.
            return cls.wrap(partial(target, **settings))
        except TypeError as error:
            raise ConfigError(
                f"{key}: the class {name} does not accept these settings "
                f"({first_line(error)}). Correct the settings"
            ) from None

    @property
    def description(self) -> dict[str, str]:
        """The learner's full name (``_target_``) and its settings as texts, for a run's record.

        The texts are for readers only: no learner is created from them.
        """
        # A function with settings is a ``functools.partial``, which has ``func`` and ``keywords``.
        function = getattr(self.implementation, "func", self.implementation)
        # A function or class has a qualified name; of an estimator the name of its class is taken.
        kind = function if hasattr(function, "__qualname__") else type(function)
        settings: dict[str, Any] = {}
        if hasattr(self.implementation, "get_params"):  # an estimator of scikit-learn
            settings |= self.implementation.get_params(deep=False)
        settings |= getattr(self.implementation, "keywords", {})
        texts = {name: repr(value) for name, value in settings.items()}
        return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **texts}

    def fit(self, shard: Shard) -> Predict:
        """Train the user's learner on one ensemble member's data, and return the model's predict.

        Labels are passed to the learner as 0, 1, ..., the indices of the classes that occur in the
        shard. An estimator is copied before it is trained. Every ``random_state`` of the copy and
        of the estimators inside it is set to the shard's seed, and every ``n_jobs`` to 1.

        Args:
            shard: the member's rows, labels and random state; at least two classes occur in it.

        Returns:
            A function rows [n, w] -> indices [n] into the sorted classes of the shard.

        Raises:
            Exception: the user's learner raised it.
        """
        targets = shard.labels
        if shard.numbers is None:
            _, targets = np.unique(shard.labels, return_inverse=True)  # the indices of the classes
        rows = aligned_copy(shard.rows)
        if not hasattr(self.implementation, "fit"):  # a function
            options = {}
            if "random_state" in signature(self.implementation).parameters:
                options["random_state"] = shard.seed
            model = self.implementation(rows, targets, **options)
            return getattr(model, "predict", model)
        # This import takes most of a second, so it is made only for runs that need it.
        from sklearn.base import clone

        estimator = clone(self.implementation, safe=False)
        if hasattr(estimator, "get_params"):
            # Threads may change the order of a sum, and with it the last bits of a model.
            fixed = {"random_state": shard.seed, "n_jobs": 1}
            changed = {}
            for name in estimator.get_params():
                _, _, setting = name.rpartition("__")  # "base__n_jobs": n_jobs of an inner one
                if setting in fixed:
                    changed[name] = fixed[setting]
            estimator.set_params(**changed)
        estimator.fit(rows, targets)
        return estimator.predict

    def train_member(self, shard: Shard) -> Member:
        """Return an ensemble member trained on its shard; errors of the learner do not propagate.

        | the shard                      | the member's label for every query       |
        |--------------------------------|------------------------------------------|
        | has no records                 | 0                                        |
        | has records of one class       | that class                               |
        | makes the learner raise        | 0, and the member's ``raised`` is True   |
        | any other                      | the learner's prediction                 |

        If labels are numbers, a shard of one label is no special case, and the middle of the range
        takes the place of 0. A member without records is not left out, because then the number of
        answers would depend on the records (Lemma 6 of docs/proofs/numbers.md).

        Call this within ``single_threaded()``, so that the result does not depend on the process.

        Args:
            shard: the member's rows, labels and random state.

        Raises:
            MemoryError: the learner ran out of memory. This depends on the machine and not only on
                the shard, so it must not decide the member's labels.
        """
        # Lemma 1 of docs/proofs/learners.md: only the shard decides which case applies, so a member
        # changes only if its shard does.
        if shard.numbers is None:
            classes = np.unique(shard.labels)
            first_class = np.int16(0)
            only_class = first_class if len(classes) == 0 else np.int16(classes[0])
            decode = partial(_labels_of_indices, classes)
            member = Member(only_class, first_class, decode)
            needs_model = len(classes) > 1
        else:
            middle = np.int32(MIDDLE)
            decode = partial(_points_of_numbers, shard.numbers)
            member = Member(middle, middle, decode)
            needs_model = len(shard.rows) > 0
        if not needs_model:
            return member
        try:
            return replace(member, predict=self.fit(shard))
        except MemoryError:
            raise
        except (Exception, SystemExit):
            return replace(member, raised=True)

    def try_on_random_rows(
        self, width: int, classes: int, numbers: NumericTarget | None = None
    ) -> None:
        """Train the learner on random rows, and raise ConfigError if it fails on them.

        The rows do not depend on private data, so an error message here reveals nothing. Errors on
        the private shards are not shown: there the member answers class 0 instead.

        Args:
            width: the number of features of a row.
            classes: the number of classes, at least 2; not read if labels are numbers.
            numbers: the range of labels that are numbers; None: labels are classes.

        Raises:
            ConfigError: the learner raised an error, or did not return one label from 0 to
                classes - 1, or one finite number, for each row.
        """
        rng = np.random.default_rng(0)  # a fixed seed: the same rows in every run
        rows = rng.random((TRIAL_ROWS, width))
        if numbers is None:
            shard = Shard(rows, np.arange(TRIAL_ROWS) % classes, 0)
        else:
            shard = Shard(rows, numbers.at(rng.random(TRIAL_ROWS)), 0, numbers)
        try:
            with single_threaded():
                labels = np.asarray(self.fit(shard)(shard.rows.copy()))
        except Exception as error:
            raise ConfigError(
                Message(
                    "{config:certificate.learner}: a trial on {rows} made-up rows failed, "
                    "because the learner raised {error}",
                    rows=TRIAL_ROWS,
                    error=_describe(error),
                )
            ) from error
        is_valid = labels.shape == (TRIAL_ROWS,)
        if numbers is None:
            is_valid = is_valid and bool(np.isin(labels, np.arange(classes)).all())
            needed = f"a label between 0 and {classes - 1}"
        else:
            is_valid = is_valid and labels.dtype.kind in "fiu" and bool(np.isfinite(labels).all())
            needed = "a finite number"
        if not is_valid:
            raise ConfigError(
                Message(
                    "{config:certificate.learner}: in a trial on {rows} made-up rows, the "
                    "learner returned values of type {dtype} and shape {shape}, but must return "
                    "{needed} for each row",
                    rows=TRIAL_ROWS,
                    dtype=labels.dtype,
                    shape=labels.shape,
                    needed=needed,
                )
            )


@contextmanager
def single_threaded() -> Iterator[None]:
    """Return a context in which libraries use one thread and no warning is shown or raised.

    NumPy's floating-point errors are ignored, too. The context makes these settings of the process
    the same everywhere, so that a learner gives the same bits in every process.
    """
    with threadpool_limits(1), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def member_seed(key: str, member: int) -> int:
    """Return an ensemble member's random state, an integer from 0 to 2^31 - 1.

    It is computed from public values only.

    Args:
        key: the public key of the ensemble's hash.
        member: the index of the member, from 0.
    """
    (member_hash,) = keyed_hash(np.array([str(member)]), f"learner/{key}")
    return int(member_hash % np.uint64(_SEEDS))


def labels_one_by_one(learner: Learner, shards: Sequence[Shard], rows: np.ndarray) -> np.ndarray:
    """Train ensemble members, and return their labels for queries that are passed one at a time.

    ``check_retrained`` compares these labels with those for all queries in one call. They differ if
    the model's label for a query depends on the other queries.

    Args:
        learner: the learner that trains the members.
        shards: the training data of each of m members.
        rows: [n, w] float64, the queries' features.

    Returns:
        [m, n] int64 labels.
    """
    labels = np.empty((len(shards), len(rows)), dtype=np.int64)
    with single_threaded():
        members = [learner.train_member(shard) for shard in shards]
        for labels_of_member, member in zip(labels, members, strict=True):
            for query in range(len(rows)):
                labels_of_member[query] = member.labels(rows[query : query + 1])[0]
    return labels


def copy_for_fresh_process(learner: Learner) -> Learner:
    """Return a copy of a learner, made as if it were sent to another process (pickled, unpickled).

    Take the copy before any training: a later training in this process cannot change it.

    Raises:
        ConfigError: the learner cannot be sent to another process.
    """
    # joblib's ``dumps`` also pickles lambdas and functions of the main program.
    from joblib.externals.loky.backend.reduction import dumps

    try:
        copy: Learner = pickle.loads(dumps(learner))
    except Exception as error:
        raise _not_sendable(error) from error
    return copy


def check_retrained(
    learner: Learner, shards: Sequence[Shard], rows: np.ndarray, labels: np.ndarray
) -> None:
    """Train members again in a fresh process, and raise UnsoundError if any label differs.

    A difference shows that the learner is not deterministic, or that its label for a query depends
    on other queries. The guarantee needs both properties. Equal labels do not prove them (Lemma 3
    of docs/proofs/learners.md).

    Args:
        learner: a copy of the learner that was made before any training
            (``copy_for_fresh_process``).
        shards: the training data of m of the ensemble's members.
        rows: [n, w] float64, the queries' features.
        labels: [m, n] the labels that these members gave before, for all queries in one call.

    Raises:
        ConfigError: the learner cannot be sent to another process or cannot be trained there.
        UnsoundError: a label differs.
    """
    from joblib.externals.loky import ProcessPoolExecutor

    try:
        with ProcessPoolExecutor(max_workers=1) as fresh_process:
            job = fresh_process.submit(labels_one_by_one, learner, shards, rows)
            repeated_labels = job.result()
    except Exception as error:
        raise _not_sendable(error) from error
    if differing := int((repeated_labels != labels).sum()):
        raise UnsoundError(
            Message(
                "{config:certificate.learner}: {members} members were trained again in a fresh "
                "process and gave other labels in {differing} of {size} cases. So the learner "
                "depends on more than its shard (its part of the records), its random state and "
                "the query, and its votes would have no guarantee: use a deterministic learner "
                "(see docs/extending.md)",
                members=len(shards),
                differing=differing,
                size=labels.size,
            )
        )


def _not_sendable(error: Exception) -> ConfigError:
    """Return the ConfigError for a learner that could not be trained in a fresh process.

    Args:
        error: the exception of sending the learner to the process, or of training it there.
    """
    return ConfigError(
        Message(
            "{config:certificate.learner}: the learner could not be trained again in a fresh "
            "process ({error}). Put the learner into a module that can be imported",
            error=_describe(error),
        )
    )


def _describe(error: Exception) -> str:
    """Return the name of an error's class and the first line of its message, as one text."""
    return f"{type(error).__name__}: {first_line(error)}"
