"""Members of ``certificate=votes`` by a learner of the user's own: any that is deterministic.

A learner is an estimator with fit and predict, or a function. Labels are 0, 1, ... of the classes
that a shard has. Nothing that a learner makes is written or read: a run stores votes
(models/own_votes.py). The proof is docs/proofs/learners.md.
"""

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from agt.data.ids import keyed_hash
from agt.errors import ConfigError, UnsoundError, first_line
from agt.messages import Message
from agt.targets import imported
from agt.training.ensemble import aligned_copy

RETRAINED_MEMBERS = 3  # how many members are trained again in a fresh process
COMPARED_QUERIES = 200  # how many queries they answer there, at most
TRIAL_ROWS = 200  # how many made-up rows a learner is tried on
FIRST_CLASS = np.zeros(1, dtype=np.int64)  # the classes of a member that always answers class 0
_SEEDS = 2**31  # random states are below this, as scikit-learn's have to be

Predict = Callable[[np.ndarray], Any]
"""Rows [n, w] -> [n] indices of classes, if the learner does as it should."""


@dataclass(frozen=True)
class Shard:
    """Everything that a member is a function of.

    Attributes:
        rows: [n, w] float64, in the order of the records' ids.
        labels: [n] int64.
        seed: the random state, a public constant.
    """

    rows: np.ndarray
    labels: np.ndarray
    seed: int


@dataclass(frozen=True)
class Member:
    """A trained member, which answers queries.

    Attributes:
        classes: [c] int64, the classes of its shard; of a member that always gives one answer,
            that answer alone.
        predict: rows -> indices into ``classes``; None: the first class for every row.
        raised: whether the learner raised an error on the shard.
    """

    classes: np.ndarray
    predict: Predict | None = None
    raised: bool = False

    def labels(self, rows: np.ndarray) -> np.ndarray:
        """Return the member's label of each query, [n] int16.

        Formal guarantees
            * A query for which the learner's model gives no index of a class has label 0; so have
              all queries if the model raises, or gives another number of answers.
            * Only running out of memory raises: it says something about the machine.

        Args:
            rows: [n, w] float64.

        Raises:
            MemoryError: the learner's model ran out of memory.
        """
        if self.predict is None:
            return np.full(len(rows), self.classes[0], dtype=np.int16)
        try:
            indices = np.asarray(self.predict(aligned_copy(rows))).reshape(len(rows))
            is_index = np.isin(indices, np.arange(len(self.classes)))
            valid = np.where(is_index, indices, 0).astype(np.int64)
            return np.where(is_index, self.classes[valid], 0).astype(np.int16)
        except MemoryError:
            raise
        except (Exception, SystemExit):
            return np.zeros(len(rows), dtype=np.int16)


@dataclass(frozen=True)
class Learner:
    """Trains members by an estimator or a function of the user's own.

    Formal guarantees
        * A member is a function of its shard, if the learner is one (Lemma 1 of
          docs/proofs/learners.md). That the learner is, to the last bit, is declared by the user.
        * If it is one, no record decides whether training is refused (Lemma 2 of
          docs/proofs/learners.md).

    Attributes:
        implementation: an estimator with fit and predict, of which each member trains a copy; or a
            function that takes a shard's rows and labels, and ``random_state`` where it has such an
            argument, and returns what labels rows.
    """

    implementation: Any

    @classmethod
    def wrap(cls, implementation: Any) -> "Learner":
        """Return the learner that a program hands over.

        Args:
            implementation: as in the class; or a class of estimators, which is called.

        Raises:
            ConfigError: it can neither be fitted nor called.
        """
        thing = implementation() if isinstance(implementation, type) else implementation
        is_estimator = hasattr(thing, "fit") and hasattr(thing, "predict")
        if not is_estimator and not callable(thing):
            raise ConfigError(
                f"learner={implementation!r} cannot be used as a learner: give ridge, "
                "logistic, an estimator with fit and predict, or a function"
            )
        return cls(thing)

    @classmethod
    def from_target(cls, node: Mapping[str, Any], key: str) -> "Learner":
        """Import the learner that a configuration names.

        This is only for a learner that the user gave for this very training, never for one that a
        run's record names.

        Args:
            node: ``_target_``, the full name of a class or function, and its settings.
            key: where the configuration has it, for messages.

        Raises:
            ConfigError: it cannot be imported, or does not take these settings.
        """
        settings = {str(name): value for name, value in node.items() if name != "_target_"}
        target = imported(str(node["_target_"]), key)
        try:
            if isinstance(target, type):
                return cls.wrap(target(**settings))
            return cls.wrap(partial(target, **settings))
        except TypeError as error:
            raise ConfigError(
                f"{key}: the class {node['_target_']} does not accept these settings: "
                f"{first_line(error)}"
            ) from None

    @property
    def description(self) -> dict[str, str]:
        """The full name and the settings as text, for records; nothing builds it from these."""
        function = getattr(self.implementation, "func", self.implementation)
        kind = function if hasattr(function, "__qualname__") else type(function)
        settings: dict[str, Any] = {}
        if hasattr(self.implementation, "get_params"):
            settings |= self.implementation.get_params(deep=False)
        settings |= getattr(self.implementation, "keywords", {})
        texts = {name: repr(value) for name, value in settings.items()}
        return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **texts}

    def fit(self, shard: Shard) -> Predict:
        """Train on a shard of two classes or more; raises whatever the learner raises.

        Every ``random_state`` of an estimator and of what it contains is the shard's seed, and
        every ``n_jobs`` is 1.

        Returns:
            What labels rows with indices into the shard's classes.
        """
        _, targets = np.unique(shard.labels, return_inverse=True)
        rows = aligned_copy(shard.rows)
        if not hasattr(self.implementation, "fit"):
            options = {}
            if "random_state" in signature(self.implementation).parameters:
                options["random_state"] = shard.seed
            model = self.implementation(rows, targets, **options)
            return getattr(model, "predict", model)
        # The import takes most of a second, so only runs with such a learner wait for it.
        from sklearn.base import clone

        estimator = clone(self.implementation, safe=False)
        if hasattr(estimator, "get_params"):
            fixed = {"random_state": shard.seed, "n_jobs": 1}
            changed = {}
            for name in estimator.get_params():
                _, _, setting = name.rpartition("__")  # "base__n_jobs" is of an inner estimator
                if setting in fixed:
                    changed[name] = fixed[setting]
            estimator.set_params(**changed)
        estimator.fit(rows, targets)
        return estimator.predict

    def train_member(self, shard: Shard) -> Member:
        """Train a member on a shard; to be called within ``single_threaded``.

        | shard                        | the member's answer                      |
        |------------------------------|------------------------------------------|
        | no records                   | always class 0                           |
        | one class                    | always that class                        |
        | the learner raises           | always class 0, and ``raised`` is True   |
        | any other                    | the learner's                            |

        Raises:
            MemoryError: the learner ran out of memory, which is no vote: it says something about
                the machine.
        """
        # Lemma 1 of docs/proofs/learners.md: every case is decided by the shard alone.
        classes = np.unique(shard.labels)
        if len(classes) < 2:
            return Member(classes if len(classes) else FIRST_CLASS)
        try:
            return Member(classes, self.fit(shard))
        except MemoryError:
            raise
        except (Exception, SystemExit):
            return Member(FIRST_CLASS, raised=True)

    def check(self, width: int, classes: int) -> None:
        """Try the learner on made-up rows, which are public: an error there is no shard's.

        Args:
            width: how many features a row has.
            classes: how many classes there are.

        Raises:
            ConfigError: it raises an error, or gives other labels than it was taught.
        """
        rng = np.random.default_rng(0)
        rows = rng.random((TRIAL_ROWS, width))
        shard = Shard(rows, np.arange(TRIAL_ROWS) % classes, 0)
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
        if labels.shape != (TRIAL_ROWS,) or not np.isin(labels, np.arange(classes)).all():
            raise ConfigError(
                Message(
                    "{config:certificate.learner}: in a trial on {rows} made-up rows, the "
                    "learner returned {dtype} of shape {shape}, but must return a label "
                    "between 0 and {last} for each row",
                    rows=TRIAL_ROWS,
                    dtype=labels.dtype,
                    shape=labels.shape,
                    last=classes - 1,
                )
            )


@contextmanager
def single_threaded() -> Iterator[None]:
    """Give libraries one thread, and reset this process's handling of warnings and NaN.

    Within the block a learner meets the same settings in every process.
    """
    with threadpool_limits(1), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def member_seed(key: str, member: int) -> int:
    """Return a member's random state, a function of the public key and the member's number."""
    (member_hash,) = keyed_hash(np.array([str(member)]), f"learner/{key}")
    return int(member_hash % np.uint64(_SEEDS))


def labels_one_by_one(learner: Learner, shards: Sequence[Shard], rows: np.ndarray) -> np.ndarray:
    """Train members, and return their labels of queries that are asked one at a time.

    Args:
        learner: trains the members.
        shards: [m] their shards.
        rows: [n, w] the queries.

    Returns:
        [m, n] int64.
    """
    labels = np.empty((len(shards), len(rows)), dtype=np.int64)
    with single_threaded():
        members = [learner.train_member(shard) for shard in shards]
        for labels_of_member, member in zip(labels, members, strict=True):
            for query in range(len(rows)):
                labels_of_member[query] = member.labels(rows[query : query + 1])[0]
    return labels


def unused_copy(learner: Learner) -> Learner:
    """Return a copy as a fresh process gets it, without what trainings leave behind in this one.

    Raises:
        ConfigError: the learner cannot be sent to another process.
    """
    from joblib.externals.loky.backend.reduction import dumps

    try:
        copy: Learner = pickle.loads(dumps(learner))
    except Exception as error:
        raise _not_sendable(error) from error
    return copy


def check_retrained(
    learner: Learner, shards: Sequence[Shard], rows: np.ndarray, labels: np.ndarray
) -> None:
    """Train members again in a fresh process, and refuse a learner that gives other labels.

    A difference refutes that the learner is a function; equal labels prove nothing (Lemma 3 of
    docs/proofs/learners.md).

    Args:
        learner: as it was before any training.
        shards: [m] the members' shards.
        rows: [n, w] queries.
        labels: [m, n] what the members answered, all queries at once.

    Raises:
        ConfigError: the learner cannot be sent to another process, or trained there.
        UnsoundError: a label differs.
    """
    from joblib.externals.loky import ProcessPoolExecutor

    try:
        with ProcessPoolExecutor(max_workers=1) as fresh:
            again = fresh.submit(labels_one_by_one, learner, shards, rows).result()
    except Exception as error:
        raise _not_sendable(error) from error
    if differing := int((again != labels).sum()):
        raise UnsoundError(
            Message(
                "{config:certificate.learner}: trained again in a fresh process, {members} "
                "members gave other labels in {differing} of {size} cases. So the learner "
                "depends on more than its shard, its random state and each single query, and "
                "its votes would have no guarantee",
                members=len(shards),
                differing=differing,
                size=labels.size,
            )
        )


def _not_sendable(error: Exception) -> ConfigError:
    """Return the error to raise for a learner that could not be sent to a fresh process."""
    return ConfigError(
        Message(
            "{config:certificate.learner}: the learner could not be trained again in a fresh "
            "process ({error}). Put it into a module that can be imported",
            error=_describe(error),
        )
    )


def _describe(error: Exception) -> str:
    """Return an error's class and the first line of its message."""
    return f"{type(error).__name__}: {first_line(error)}"
