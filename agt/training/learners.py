"""Members of ``certificate=votes`` by a learner of the user's own: any that is deterministic.

``Learner.thing`` is an estimator with fit and predict, of which each member trains a copy, or a
function that takes a shard's rows and labels (and ``random_state``, where it has such an argument)
and returns what labels queries. Labels are 0, 1, ... of the classes that the shard has. Nothing
that it makes is written or read: a run keeps votes (models/own_votes.py).

Formal guarantees
    The rule. A member is M(S, s): S the rows and labels of its shard, in the order of their ids and
    in memory of their own, s a function of the public key and the member's number. Where S is empty
    it answers class 0; where S has one class, that class; where the learner raises on S, class 0;
    where what it made raises, or gives no class of S, class 0. Else the answer is the learner's. So
    if the learner is a function, a member's label of a query is one of S, s and the query, for
    every S, and no refusal depends on records. One k of the relation changes ``Relation.touches``
    shards, as many votes at most, and ``plain_vote`` (certificates/votes.py) is sound and
    1-Lipschitz for members of which just this is known.
    No MemoryError becomes a vote: it would tell of the machine. It ends the training. That nothing
    else which a learner raises is about the machine is part of what is declared.
    What is declared, not proved (condition b). The learner is a function, to the last bit: it draws
    from ``random_state`` alone, reads nothing else (no clock or file, no other shard, no earlier
    training), and labels each query alone. To that end every ``random_state`` of an estimator and
    of what it contains is s, every ``n_jobs`` is 1, libraries have one thread, and this process's
    own ways with warnings and floating-point errors are set aside.
    What the comparison shows. ``AGAIN`` members, the last first, are trained again in a fresh
    process, by the learner as it was before any training, and asked one query at a time. A label
    that differs refutes the declaration, and training is refused. That none differs proves nothing.
    The learner is first tried on made-up rows, which are public: what it raises there is a mistake
    of the settings, and no shard's.
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
from agt.training.ensemble import aligned

AGAIN = 3  # members that are trained again in a fresh process
ASKED = 200  # queries at most that they are asked there
TRIED = 200  # made-up rows that a learner is tried on
NOBODY = np.zeros(1, dtype=np.int64)  # classes of a member that answers with class 0


@dataclass(frozen=True)
class Shard:
    """What a member is a function of: rows [n, w] float64, labels [n] int64, and its random
    state.
    """

    rows: np.ndarray
    labels: np.ndarray
    seed: int


@dataclass(frozen=True)
class Member:
    """What one member answers.

    Attributes:
        classes: of its shard; of a member that always gives one answer, that.
        predict: rows -> places in ``classes``; None: always the first.
        raised: whether the learner raised on its shard.
    """

    classes: np.ndarray
    predict: Callable[[np.ndarray], Any] | None = None
    raised: bool = False

    def labels(self, rows: np.ndarray) -> np.ndarray:
        """[n] int16: its label of each query; 0 where what the learner made gives none."""
        if self.predict is None:
            return np.full(len(rows), self.classes[0], dtype=np.int16)
        try:
            places = np.asarray(self.predict(aligned(rows))).reshape(len(rows))
            known = np.isin(places, np.arange(len(self.classes)))
            return np.where(
                known, self.classes[np.where(known, places, 0).astype(np.int64)], 0
            ).astype(np.int16)
        except MemoryError:
            raise
        except (Exception, SystemExit):
            return np.zeros(len(rows), dtype=np.int16)


@dataclass(frozen=True)
class Learner:
    """What trains each member: see above."""

    thing: Any

    @classmethod
    def of(cls, given: Any) -> "Learner":
        """Of what a program hands over. Raises ConfigError: it can neither be fitted nor called."""
        thing = given() if isinstance(given, type) else given
        if not (hasattr(thing, "fit") and hasattr(thing, "predict")) and not callable(thing):
            raise ConfigError(
                f"learner={given!r}: give ridge, logistic, an estimator with fit and predict, or a "
                "function"
            )
        return cls(thing)

    @classmethod
    def named(cls, node: Mapping[str, Any], where: str) -> "Learner":
        """Import what a mapping names: only for one that the user gave for this very training,
        never for a run's record.

        Raises:
            ConfigError: it cannot be imported, or takes no such settings.
        """
        settings = {str(key): value for key, value in node.items() if key != "_target_"}
        target = imported(str(node["_target_"]), where)
        try:
            return cls.of(
                target(**settings) if isinstance(target, type) else partial(target, **settings)
            )
        except TypeError as error:
            raise ConfigError(
                f"{where}: {node['_target_']} does not take these settings: {first_line(error)}"
            ) from None

    @property
    def described(self) -> dict[str, str]:
        """What it is in words, for records: nothing makes it again from these."""
        bare = getattr(self.thing, "func", self.thing)
        kind = bare if hasattr(bare, "__qualname__") else type(bare)
        given = self.thing.get_params(deep=False) if hasattr(self.thing, "get_params") else {}
        settings = {
            name: repr(value)
            for name, value in {**given, **getattr(self.thing, "keywords", {})}.items()
        }
        return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **settings}

    def fitted(self, shard: Shard) -> Callable[[np.ndarray], Any]:
        """What it makes of a shard of two classes or more; raises whatever the learner raises."""
        _, places = np.unique(shard.labels, return_inverse=True)
        rows, fixed = aligned(shard.rows), {"random_state": shard.seed, "n_jobs": 1}
        if not hasattr(self.thing, "fit"):
            takes = "random_state" in signature(self.thing).parameters
            made = self.thing(rows, places, **({"random_state": shard.seed} if takes else {}))
            return getattr(made, "predict", made)
        # which takes most of a second: only runs with such a learner wait for it
        from sklearn.base import clone

        model = clone(self.thing, safe=False)
        if hasattr(model, "get_params"):
            own = {name: name.rpartition("__")[2] for name in model.get_params()}
            model.set_params(**{name: fixed[last] for name, last in own.items() if last in fixed})
        model.fit(rows, places)
        return model.predict

    def member(self, shard: Shard) -> Member:
        """What a shard makes of it; within ``single_threaded``."""
        classes = np.unique(shard.labels)
        if len(classes) < 2:
            return Member(classes if len(classes) else NOBODY)
        try:
            return Member(classes, self.fitted(shard))
        except MemoryError:
            raise
        except (Exception, SystemExit):
            return Member(NOBODY, raised=True)

    def check(self, width: int, classes: int) -> None:
        """Try it on made-up rows.

        Raises ConfigError: it raises there, or gives other labels than it was taught.
        """
        rng = np.random.default_rng(0)
        shard = Shard(rng.random((TRIED, width)), np.arange(TRIED) % classes, 0)
        try:
            with single_threaded():
                given = np.asarray(self.fitted(shard)(shard.rows.copy()))
        except Exception as error:
            told = f"{type(error).__name__}: {first_line(error)}"
            raise ConfigError(
                Message(
                    "{config:certificate.learner}: on {tried} made-up rows it raised {told}",
                    tried=TRIED,
                    told=told,
                )
            ) from error
        if given.shape != (TRIED,) or not np.isin(given, np.arange(classes)).all():
            raise ConfigError(
                Message(
                    "{config:certificate.learner}: of {tried} made-up rows it gave {dtype} of "
                    "shape {shape}, and not a label 0..{last} for each",
                    tried=TRIED,
                    dtype=given.dtype,
                    shape=given.shape,
                    last=classes - 1,
                )
            )


@contextmanager
def single_threaded() -> Iterator[None]:
    """One thread, and none of this process's own ways with warnings and floating-point errors."""
    with threadpool_limits(1), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def seed_of(key: str, member: int) -> int:
    """A member's random state: a public constant."""
    return int(keyed_hash(np.array([str(member)]), f"learner/{key}")[0] % np.uint64(2**31))


def labels_one_by_one(learner: Learner, shards: Sequence[Shard], rows: np.ndarray) -> np.ndarray:
    """[members, n]: train them, and ask each query by itself."""
    with single_threaded():
        members = [learner.member(shard) for shard in shards]
        return np.array(
            [
                [int(member.labels(rows[at : at + 1])[0]) for at in range(len(rows))]
                for member in members
            ]
        )


def unsendable(error: Exception) -> ConfigError:
    """What to say of a learner that no other process takes."""
    told = f"{type(error).__name__}: {first_line(error)}"
    return ConfigError(
        Message(
            "{config:certificate.learner}: it could not be trained again in a fresh process "
            "({told}): put it into a module that can be imported",
            told=told,
        )
    )


def unused_copy(learner: Learner) -> Learner:
    """As a fresh process gets it, whatever trainings leave behind in this one.

    Raises ConfigError: it cannot be sent.
    """
    from joblib.externals.loky.backend.reduction import dumps

    try:
        copy: Learner = pickle.loads(dumps(learner))
    except Exception as error:
        raise unsendable(error) from error
    return copy


def check_again(
    learner: Learner, shards: Sequence[Shard], rows: np.ndarray, labels: np.ndarray
) -> None:
    """Train members again in a fresh process, and compare.

    Args:
        labels: [members, n] as they were.

    Raises:
        ConfigError: the learner cannot be sent to another process, or trained there.
        UnsoundError: a label differs.
    """
    from joblib.externals.loky import ProcessPoolExecutor

    try:
        with ProcessPoolExecutor(max_workers=1) as fresh:
            again = fresh.submit(labels_one_by_one, learner, shards, rows).result()
    except Exception as error:
        raise unsendable(error) from error
    if differing := int((again != labels).sum()):
        raise UnsoundError(
            Message(
                "{config:certificate.learner}: trained again in a fresh process, {count} "
                "members gave {differing} of {size} labels otherwise: it is no function of "
                "its shard, its random state and each query alone, and its votes would "
                "carry no guarantee",
                count=len(shards),
                differing=differing,
                size=labels.size,
            )
        )
